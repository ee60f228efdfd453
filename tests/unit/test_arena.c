/* SPDX-License-Identifier: Apache-2.0 */
/* pool/arena.c: reserving and committing memory, and each of its failures. */
#include "pool_things.h"

START_TEST(test_bad_desc)
{
	static const struct { u32 size, max; const char *says; } bad[] = {
		{ 0, 10, "0 bytes" }, { 8, 10, "8 bytes" }, { 24, 10, "24 bytes" },
		{ (1 << 20) + 16, 10, "1048592 bytes" }, { 16, 0, "at most 0 objects" },
		{ 16, UINT32_MAX, "at most 4294967295 objects" },
	};
	struct pool_desc d = { .name = "bad" };
	struct pool *p = NULL;
	u32 i;

	ck_assert_int_eq(arena_create(NULL, &arena), 0);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		err(0, "%s", "");
		d.size = bad[i].size;
		d.max = bad[i].max;
		ck_assert_int_eq(arena_add(arena, &d, &p), -EINVAL);
		ck_assert_ptr_null(p);
		ck_assert_ptr_nonnull(strstr(err_text(), "bad"));
		ck_assert_ptr_nonnull(strstr(err_text(), bad[i].says));
	}
	d.name = NULL;
	d.size = 1 << 20;
	d.max = 3;
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "in use"));
	/* Again: nothing to do. */
	ck_assert_int_eq(arena_ready(arena, false), 0);
	done();
	arena_destroy(NULL);
}
END_TEST

START_TEST(test_not_ready)
{
	struct pool_desc d = { .name = "early", .size = 64, .max = 10 };
	struct pool_cache c = { 0 };
	struct pool *p;
	u32 idx;

	ck_assert_int_eq(arena_create("early", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_ptr_null(pool_get(p, &c, &idx));
	ck_assert_uint_eq(arena_bytes(arena), 0);
	done();
}
END_TEST

START_TEST(test_commit_steps)
{
	struct pool_cache c = { 0 };
	u32 i, idx, steps = 0;
	u64 start, last, now;
	struct pool *p;

	faults(HOOK_COMMIT, 0, false);
	p = make(1 << 20);
	start = arena_bytes(arena);
	/* Nothing but magazines yet. */
	ck_assert_uint_le(start, (u64)1 << 20);
	last = start;
	for (i = 0; i < 200000; i++) {
		MUST(pool_get(p, &c, &idx));
		now = arena_bytes(arena);
		if (now != last)
			steps++;
		last = now;
	}
	ck_assert_uint_ge(last - start, (u64)200000 * sizeof(struct thing));
	/* Ahead by two steps at most, of objects and of magazines. */
	ck_assert_uint_le(last - start, (u64)200000 * (sizeof(struct thing) + 8) + (4 << 20));
	ck_assert_uint_ge(steps, 6);
	ck_assert_uint_le(steps, 40);
	/* All of it was asked for. */
	ck_assert_uint_eq(asked_bytes, last);
	done();
}
END_TEST

/* A range doubles from 64 KiB on, by 2 MiB at a time at most, or grows by the bytes needed. */
START_TEST(test_a_range_grows_in_steps_that_double)
{
	static const u32 kib[] = { 64, 128, 256, 512, 1024, 2048, 4096, 6144, 8192 };
	struct arena_range *r = &pool_full(make(1 << 20))->obj;
	u64 before;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(kib); i++) {
		ck_assert_int_eq(arena_commit(arena, r, r->committed + 1), 0);
		ck_assert_uint_eq(r->committed, kib[i] << 10);
	}
	/* Memory that is committed already is not requested again. */
	faults(HOOK_COMMIT, 0, false);
	ck_assert_int_eq(arena_commit(arena, r, r->committed), 0);
	ck_assert_uint_eq(asked, 0);
	before = r->committed;
	ck_assert_int_eq(arena_commit(arena, r, before + (3 << 20) + 1), 0);
	ck_assert_uint_eq(r->committed, before + (3 << 20) + arena_page());
	/* If the step is refused, it commits only the page that is necessary. */
	before = r->committed;
	fail_above = 2 * arena_page();
	ck_assert_int_eq(arena_commit(arena, r, before + 1), 0);
	ck_assert_uint_eq(r->committed, before + arena_page());
	ck_assert_int_eq(arena_commit(arena, r, before + 3 * arena_page() + 1), -ENOMEM);
	ck_assert_uint_eq(r->committed, before + arena_page());
	fail_above = 0;
	/* It commits no memory behind the end of the range. */
	ck_assert_int_eq(arena_commit(arena, r, r->bytes - 1), 0);
	ck_assert_uint_eq(r->committed, r->bytes);
	ck_assert_uint_eq(arena_bytes(arena), r->committed + pool_full(things)->mag.committed +
			  sides(pool_full(things)));
	done();
}
END_TEST

/* The range of both threads, and the bytes that the other one commits in the middle of a call. */
static struct arena_range *both;
static size_t other_needs;

static void other_commits(void)
{
	fail_above = other_needs < 64 << 10 ? other_needs : 0;
	MUST(!arena_commit(arena, both, other_needs));
	fail_above = 0;
}

/* The memory that a call requests is committed afterwards, and is counted once. */
START_TEST(test_two_threads_commit_the_same_range)
{
	const size_t needs[] = { arena_page(), 3 << 20 };
	struct pool_full *f = pool_full(make(1 << 20));

	both = &f->obj;
	other_needs = needs[_i];
	on_request = other_commits;
	ck_assert_int_eq(arena_commit(arena, both, 1 << 20), 0);
	ck_assert_uint_eq(both->committed, _i ? 3 << 20 : 1 << 20);
	memset(both->start, 1, 1 << 20);
	ck_assert_uint_eq(arena_bytes(arena),
			  f->obj.committed + f->mag.committed + sides(f));
	done();
}
END_TEST

/* Near a memory limit the objects that are needed are committed, without the step ahead. */
START_TEST(test_a_small_commit_where_a_large_one_is_refused)
{
	struct pool_cache c = { 0 };
	struct pool *p = make(1 << 20);
	u32 i, idx;

	faults(HOOK_COMMIT, 0, false);
	fail_above = 16 << 10;
	for (i = 0; i < 20000; i++)
		MUST(pool_get(p, &c, &idx));
	faults(NULL, 0, false);
	done();
}
END_TEST

START_TEST(test_prefault)
{
	struct pool_desc d = { .name = "pre", .size = 64, .max = 50000 };
	struct pool_cache c = { 0 };
	struct pool *p;
	u64 all;
	u32 i, idx;

	ck_assert_int_eq(arena_create("pre", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, true), 0);
	all = arena_bytes(arena);
	ck_assert_uint_ge(all, (u64)50001 * 64);
	faults(NULL, 1, true);
	for (i = 0; i < 50000; i++)
		MUST(pool_get(p, &c, &idx));
	faults(NULL, 0, false);
	ck_assert_uint_eq(arena_bytes(arena), all);
	done();

	/* Later is right too. */
	p = make(50000);
	ck_assert_int_eq(arena_ready(arena, true), 0);
	ck_assert_uint_ge(arena_bytes(arena), (u64)50001 * sizeof(struct thing));
	done();
}
END_TEST

static u32 too_old;		/* madvise() fails, as on a kernel older than 5.14 */

int __real_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice);

int __wrap_madvise(void *at, size_t bytes, int advice)
{
	return too_old ? -1 : __real_madvise(at, bytes, advice);
}

static size_t mapped;		/* mapped and not unmapped */
static size_t misplaced;	/* by so much the next reservation misses its alignment */
static bool unsettled;		/* no address can be chosen: the arena reserves all of them */

void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t off);
int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);

void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t off)
{
	char *map, *base;
	const size_t align = 2 << 20;

	if (unsettled && prot != PROT_NONE) {
		errno = EEXIST;
		return MAP_FAILED;
	}
	if (prot != PROT_NONE) {
		/* Fails where something is mapped already, such as the heap of a sanitizer. */
		map = __real_mmap(at, bytes, prot, flags, fd, off);
		mapped += map != MAP_FAILED ? bytes : 0;
		return map;
	}
	map = __real_mmap(at, bytes + 2 * align, prot, flags, fd, off);
	if (map == MAP_FAILED)
		return map;
	mapped += bytes;
	base = (char *)round_up_to((uintptr_t)map, align) + misplaced;
	if (base > map)
		__real_munmap(map, (size_t)(base - map));
	__real_munmap(base + bytes, (size_t)(map + 2 * align - base));
	return base;
}

void *__real_mremap(void *at, size_t from, size_t to, int flags, ...);
void *__wrap_mremap(void *at, size_t from, size_t to, int flags, ...);

void *__wrap_mremap(void *at, size_t from, size_t to, int flags, ...)
{
	void *p = __real_mremap(at, from, to, flags);

	if (p != MAP_FAILED)
		mapped += to - from;
	return p;
}

int __wrap_munmap(void *at, size_t bytes)
{
	mapped -= bytes;
	return __real_munmap(at, bytes);
}

/* An arena keeps no address space that it does not use, and none at its end. */
START_TEST(test_address_space_goes_back)
{
	const size_t align = 2 << 20, miss[] = { 0, arena_page(), align - arena_page() };
	struct pool_cache c = { 0 };
	struct pool *p;
	u32 i, k, idx;

	for (i = 0; i < 2 * ARRAY_SIZE(miss); i++) {
		unsettled = i >= ARRAY_SIZE(miss);
		misplaced = miss[i % ARRAY_SIZE(miss)];
		mapped = 0;
		p = make(100000);
		ck_assert(!unsettled || !arena->place);
		ck_assert_uint_eq(mapped, arena_space(arena));
		for (k = 0; k < 100000; k++)
			MUST(pool_get(p, &c, &idx));
		c.n = c.nspare = 0;
		ck_assert_uint_eq(mapped, arena_space(arena));
		done();
		ck_assert_uint_eq(mapped, 0);
	}
	unsettled = false;
	misplaced = 0;
}
END_TEST

static struct arena_range *grown(void)
{
	struct arena_range *r = &pool_full(make(1 << 20))->obj;

	ck_assert_int_eq(arena_commit(arena, r, 64 << 10), 0);
	return r;
}

/* What another program maps behind a range stays, and the range grows when it is gone. */
START_TEST(test_a_range_replaces_no_mapping)
{
	struct arena_range *r = grown();
	size_t page = arena_page();
	char *at = r->start + (1 << 20), *other;

	if (!arena->place) {
		done();
		return;
	}
	other = mmap(at, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	MUST(other == at);
	memset(other, 9, page);
	ck_assert_int_eq(arena_commit(arena, r, (1 << 20) + 1), -ENOMEM);
	/* All that is before it may be used. */
	ck_assert_int_eq(arena_commit(arena, r, 1 << 20), 0);
	memset(r->start, 1, 1 << 20);
	ck_assert_int_eq(arena_commit(arena, r, (1 << 20) + 1), -ENOMEM);
	ck_assert_int_eq(other[0] + other[page - 1], 18);
	munmap(other, page);
	ck_assert_int_eq(arena_commit(arena, r, (1 << 20) + 1), 0);
	r->start[1 << 20] = 1;
	done();
}
END_TEST

/* A thread that stops after its system call, having mapped this many pages, delays no other. */
static const u32 stopped[] = { 1, 2, 7, 15, 16, 17, 31, 32, 33, 100, 255, 256, 257, 511, 512, 513 };

START_TEST(test_a_range_grows_past_a_stopped_thread)
{
	size_t page = arena_page(), more = stopped[_i] * page, had;
	struct arena_range *r;

	mapped = 0;
	r = grown();
	had = r->mapped;
	if (!arena->place) {
		done();
		return;
	}
	MUST(mremap(r->start, had, had + more, 0) == r->start);
	ck_assert_int_eq(arena_commit(arena, r, had + 256 * page), 0);
	memset(r->start, 1, had + 256 * page);
	ck_assert_uint_ge(r->mapped, r->committed);
	/* The kernel agrees. */
	ck_assert_int_eq(arena_commit(arena, r, had + 1024 * page), 0);
	ck_assert_uint_eq(r->mapped, had + 1024 * page);
	memset(r->start, 1, had + 1024 * page);
	done();
	ck_assert_uint_eq(mapped, 0);
}
END_TEST

/* Each arena has its own place until its end. */
START_TEST(test_arenas_have_places)
{
	struct pool_desc d = { .name = "p", .size = 64, .max = 10 };
	struct arena *a[40];
	struct pool *p;
	u32 i, k, placed;

	for (i = 0; i < ARRAY_SIZE(a); i++) {
		ck_assert_int_eq(arena_create("a", &a[i]), 0);
		ck_assert_int_eq(arena_add(a[i], &d, &p), 0);
		ck_assert_int_eq(arena_ready(a[i], false), 0);
		for (k = 0; k < i; k++)
			ck_assert(!a[i]->place || a[k]->place != a[i]->place);
	}
	placed = a[0]->place;
	for (i = 0; i < ARRAY_SIZE(a); i++)
		arena_destroy(a[i]);
	/* More than there are places. */
	for (i = 0; i < 1100; i++) {
		make(10);
		ck_assert(!arena->place == !placed);
		done();
	}
}
END_TEST

static bool pages_in_memory(void *start, size_t bytes)
{
	size_t pages = (bytes + arena_page() - 1) / arena_page(), i;
	unsigned char *in = calloc(pages, 1);
	bool all = true;

	MUST(in);
	if (!mincore(start, bytes, in))
		for (i = 0; i < pages; i++)
			all &= in[i] & 1;
	free(in);
	return all;
}

/* Emulators take the advice for a hint, return 0, and ignore it. */
static bool advice_is_ignored(void)
{
	void *at = mmap(NULL, arena_page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool ignored = false;

	MUST(at != MAP_FAILED);
#ifdef MADV_POPULATE_WRITE
	ignored = !madvise(at, arena_page(), MADV_POPULATE_WRITE) && !pages_in_memory(at, arena_page());
#endif
	munmap(at, arena_page());
	return ignored;
}

/* Are the first `bytes` bytes of a range in memory? */
static bool in_memory(const struct arena_range *r, size_t bytes)
{
	return advice_is_ignored() || pages_in_memory(r->start, bytes);
}

START_TEST(test_prefault_touches_each_page)
{
	u32 max = 20000, i, idx;
	struct pool *p = make(max);
	struct pool_full *f = pool_full(p);
	struct pool_cache c = { 0 };

	too_old = (u32)_i;
	ck_assert_int_eq(arena_ready(arena, true), 0);
	too_old = 0;
	ck_assert_uint_ge(f->obj.committed, (max + 1ull) * sizeof(struct thing));
	ck_assert(in_memory(&f->obj, f->obj.committed));
	ck_assert(in_memory(&f->mag, f->mag.committed));
	ck_assert(in_memory(&f->objs.side, f->objs.side.committed));
	/* The constructor demands zeros. */
	for (i = 0; i < max; i++)
		MUST(pool_get(p, &c, &idx));
	done();
}
END_TEST

/* Can the byte be read? */
static bool readable(const char *at)
{
	int fd[2];
	bool can;

	MUST(!pipe(fd));
	can = write(fd[1], at, 1) == 1;
	MUST(can || errno == EFAULT);
	close(fd[0]);
	close(fd[1]);
	return can;
}

/* A large range begins where a huge page can, and a page without access follows each range. */
START_TEST(test_ranges_lie_apart)
{
	struct pool_desc d = { .name = "r" };
	struct pool *p[7];
	u32 i, k;

	ck_assert_int_eq(arena_create("r", &arena), 0);
	for (i = 0; i < ARRAY_SIZE(p); i++) {
		d.size = 32u << 2 * i;
		d.max = i % 2 ? 100 : (4u << 20) / d.size;
		/* All objects of the last one, with number 0, are as large as a huge page. */
		if (i == 6) {
			d.size = 32 << 10;
			d.max = 63;
		}
		ck_assert_int_eq(arena_add(arena, &d, &p[i]), 0);
	}
	ck_assert_int_eq(arena_ready(arena, true), 0);
	for (i = 0; i < ARRAY_SIZE(p); i++) {
		struct pool_full *f = pool_full(p[i]);
		struct arena_range *r[] = { &f->obj, &f->mag, &f->objs.side };

		for (k = 0; k < ARRAY_SIZE(r); k++) {
			size_t align = r[k]->bytes >= 2 << 20 ? 2 << 20 : arena_page();

			ck_assert_uint_eq((uintptr_t)r[k]->start % align, 0);
			ck_assert(readable(r[k]->start));
			/* Some magazines are never needed. */
			ck_assert(readable(r[k]->start + r[k]->bytes - 1) || k == 1);
			ck_assert(!readable(r[k]->start + r[k]->bytes));
		}
	}
	done();
}
END_TEST

/* Prefault leaves out the lazy pools, and only those, wherever they are in the list. */
START_TEST(test_prefault_passes_over_lazy_pools)
{
	struct pool_desc d = { .name = "some", .size = 64, .max = 5000 };
	struct pool *p[4];
	u32 i;

	ck_assert_int_eq(arena_create("pre", &arena), 0);
	for (i = 0; i < 4; i++) {
		d.lazy = i == 0 || i == 2;
		ck_assert_int_eq(arena_add(arena, &d, &p[i]), 0);
	}
	ck_assert_int_eq(arena_ready(arena, true), 0);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(load_relaxed(&pool_full(p[i])->obj.committed) >= 5001 * 64,
				 i == 1 || i == 3);
	done();
}
END_TEST

/* An arena in use continues as before if there is no memory for the whole of a pool. */
START_TEST(test_a_refused_prefault_changes_nothing)
{
	struct pool_desc d = { .name = "one", .size = 64, .max = 5000 };
	u32 i, idx, refused[2] = { 0 };
	struct pool_cache c = { 0 };
	struct pool *p[2];
	s64 k;
	int rc;

	ck_assert_int_eq(arena_create("busy", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p[0]), 0);
	d.name = "two";
	ck_assert_int_eq(arena_add(arena, &d, &p[1]), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	MUST(pool_get(p[1], &c, &idx) && idx == 1);
	memset(pool_obj(p[1], idx), 7, 64);
	for (k = 1, i = 2; ; k++) {
		faults(HOOK_COMMIT, k, true);
		rc = arena_ready(arena, true);
		faults(NULL, 0, false);
		ck_assert_uint_eq(*(char *)pool_obj(p[1], 1), 7);
		MUST(pool_get(p[1], &c, &idx) && idx == i++);
		if (!rc)
			break;
		ck_assert_int_eq(rc, -ENOMEM);
		if (!strcmp(err_text(), "arena busy: no memory for pool one")) {
			refused[0]++;
			ck_assert_uint_eq(refused[1], 0);
		} else {
			refused[1]++;
			ck_assert_str_eq(err_text(), "arena busy: no memory for pool two");
		}
	}
	ck_assert(refused[0] && refused[1]);
	for (; i <= d.max; i++)
		MUST(pool_get(p[1], &c, &idx) && idx == i);
	ck_assert_uint_ge(pool_full(p[0])->obj.committed, 5001 * 64);
	done();
}
END_TEST

/* The text of an error names the arena and the pool, shortened if it is long. */
START_TEST(test_errors_say_which_pool)
{
	struct pool_desc d = { .name = "a pool with a name longer than the field", .size = 64,
			       .max = 10 };
	const char *name = "an arena with a name longer than the field";
	char want[200];
	struct pool *p = NULL;

	ck_assert_int_eq(arena_create(name, &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	faults(HOOK_RESERVE, 1, false);
	ck_assert_int_eq(arena_ready(arena, false), -ENOMEM);
	snprintf(want, sizeof(want), "arena %.23s: cannot reserve %llu bytes", name,
		 (unsigned long long)asked_bytes);
	ck_assert_str_eq(err_text(), want);
	/* The first request for memory, and a later one. */
	faults(HOOK_COMMIT, 1, true);
	ck_assert_int_eq(arena_ready(arena, false), -ENOMEM);
	snprintf(want, sizeof(want), "arena %.23s: no memory for pool %.23s", name, d.name);
	ck_assert_str_eq(err_text(), want);
	faults(HOOK_COMMIT, 3, true);
	err(0, "%s", "");
	ck_assert_int_eq(arena_ready(arena, true), -ENOMEM);
	ck_assert_str_eq(err_text(), want);
	faults(NULL, 0, false);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), -EINVAL);
	snprintf(want, sizeof(want), "pool %s: arena %.23s is in use already", d.name, name);
	ck_assert_str_eq(err_text(), want);
	done();

	ck_assert_int_eq(arena_create(NULL, &arena), 0);
	d.name = NULL;
	d.size = 24;
	ck_assert_int_eq(arena_add(arena, &d, &p), -EINVAL);
	ck_assert_str_eq(err_text(), "pool ?: objects of 24 bytes");
	d.size = 16;
	d.max = 0;
	ck_assert_int_eq(arena_add(arena, &d, &p), -EINVAL);
	ck_assert_str_eq(err_text(), "pool ?: at most 0 objects");
	d.max = 1;
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), -EINVAL);
	ck_assert_str_eq(err_text(), "pool ?: arena ? is in use already");
	done();
}
END_TEST

static u32 no_blocks;		/* aligned_alloc() fails */

void *__real_aligned_alloc(size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
	return no_blocks ? NULL : __real_aligned_alloc(align, bytes);
}

/* Without memory, creating an arena or adding a pool fails, and the other pools work. */
START_TEST(test_an_arena_or_a_pool_without_memory)
{
	struct pool_desc d = { .name = "lean", .size = 64, .max = 10 };
	struct arena *none = NULL;
	struct pool *p, *q = NULL;
	struct pool_cache c = { 0 };
	u32 idx;
	int rc;

	no_blocks = 1;
	rc = arena_create("poor", &none);
	no_blocks = 0;
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert_ptr_null(none);
	ck_assert_str_eq(err_text(), "arena poor: no memory");
	no_blocks = 1;
	rc = arena_create(NULL, &none);
	no_blocks = 0;
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert_str_eq(err_text(), "arena ?: no memory");
	ck_assert_int_eq(arena_create("poor", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	no_blocks = 1;
	rc = arena_add(arena, &d, &q);
	no_blocks = 0;
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert_ptr_null(q);
	ck_assert_str_eq(err_text(), "pool lean: no memory");
	ck_assert_int_eq(arena_ready(arena, false), 0);
	MUST(pool_get(p, &c, &idx));
	done();
}
END_TEST

/* An object is handed out when those that follow it have memory, too, and no further ones. */
START_TEST(test_a_pool_follows_another)
{
	struct pool_desc d = { .name = "led", .size = 16, .max = 20, .mag = 1 };
	struct pool_cache c = { 0 };
	struct pool *p, *with;
	u32 extra, i, idx;

	for (extra = 0; extra < 12; extra += 3) {
		ck_assert_int_eq(arena_create("follow", &arena), 0);
		d.size = 16;
		ck_assert_int_eq(arena_add(arena, &d, &p), 0);
		d.size = 1 << 20;
		ck_assert_int_eq(arena_add(arena, &d, &with), 0);
		pool_follow(p, with, extra);
		ck_assert_int_eq(arena_ready(arena, false), 0);
		/* The first one has all its memory at once, then each commits one more. */
		for (i = 1; i <= d.max; i++) {
			MUST(pool_get(p, &c, &idx) && idx == i);
			/* No memory is requested behind the last object. */
			ck_assert(i == 1 || i + extra <= d.max || !asked);
			ck_assert_uint_eq(pool_full(with)->obj.committed,
					  (u64)(min_u(i + extra, d.max) + 1) << 20);
			faults(HOOK_COMMIT, 0, false);
			fail_above = 1 << 20;
		}
		faults(NULL, 0, false);
		done();

		/*
		 * Without memory for the others it is not handed out, nor without its own,
		 * where the others have theirs.
		 */
		ck_assert_int_eq(arena_create("follow", &arena), 0);
		d.size = 16;
		d.lazy = true;
		ck_assert_int_eq(arena_add(arena, &d, &p), 0);
		d.lazy = false;
		d.size = 1 << 20;
		ck_assert_int_eq(arena_add(arena, &d, &with), 0);
		pool_follow(p, with, extra);
		ck_assert_int_eq(arena_ready(arena, false), 0);
		faults(HOOK_COMMIT, 0, false);
		fail_above = 256 << 10;
		ck_assert_ptr_null(pool_get(p, &c, &idx));
		faults(NULL, 0, false);
		ck_assert_uint_eq(pool_carved(p), 0);
		pool_full(p)->obj.committed = 0;	/* as if it had asked last */
		ck_assert_int_eq(arena_ready(arena, true), 0);
		faults(HOOK_COMMIT, 1, true);
		ck_assert_ptr_null(pool_get(p, &c, &idx));
		faults(NULL, 0, false);
		ck_assert_uint_eq(pool_carved(p), 0);
		MUST(pool_get(p, &c, &idx) && idx == 1);
		done();
	}
}
END_TEST

START_TEST(test_many_pools)
{
	struct pool_desc d = { .name = "a pool with a name longer than the field" };
	struct arena *b;
	struct pool *p[20], *q;
	struct pool_cache c[20];
	struct pool_stat s;
	u32 i, k, idx;

	memset(c, 0, sizeof(c));
	ck_assert_int_eq(arena_create("an arena with a name longer than the field", &arena), 0);
	ck_assert_int_eq(arena_create("b", &b), 0);
	for (i = 0; i < 20; i++) {
		d.size = 16 * (i + 1);
		d.max = 100 * i + 1;
		ck_assert_int_eq(arena_add(arena, &d, &p[i]), 0);
	}
	ck_assert_int_eq(arena_add(b, &d, &q), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	ck_assert_int_eq(arena_ready(b, false), 0);
	for (i = 0; i < 20; i++)
		for (k = 0; k < 100 * i + 1; k++) {
			u32 *o = pool_get(p[i], &c[i], &idx);

			ck_assert_ptr_nonnull(o);
			ck_assert_uint_eq(o[0], 0);
			ck_assert_uint_eq(o[4 * i + 3], 0);
			memset(o, 0xa5, 16 * (i + 1));
		}
	pool_stat(p[0], &s);
	ck_assert_uint_eq(strlen(s.name), 23);
	arena_destroy(b);
	done();
}
END_TEST

/* An arena that ends frees what it has allocated for its pools, and itself. */
START_TEST(test_memory_of_an_arena_goes_back)
{
	struct pool_desc d = { .name = "p", .size = 64, .max = 10 };
	struct pool *p;
	size_t before;
	u32 i, k;

	/* The allocator keeps some memory itself, but not each time. */
	for (i = 0; ; i++) {
		MUST(i < 50);
		before = heap_used();
		ck_assert_int_eq(arena_create("a", &arena), 0);
		for (k = 0; k < 3; k++)
			ck_assert_int_eq(arena_add(arena, &d, &p), 0);
		ck_assert_int_eq(arena_ready(arena, false), 0);
		done();
		if (heap_used() <= before)
			break;
	}
}
END_TEST

START_TEST(test_large_caps)
{
	struct pool_desc d = { .name = "large", .size = 256, .max = 1 << 24 };
	struct pool_cache c = { 0 };
	struct pool *p;
	u32 idx;

	ck_assert_int_eq(arena_create("large", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	MUST(pool_get(p, &c, &idx));
	/* This includes the bits of all possible objects. */
	ck_assert_uint_le(arena_bytes(arena), 8 << 20);
	done();

	/* 4 PiB: more than there is. */
	d.size = 1 << 20;
	d.max = UINT32_MAX - 1;
	ck_assert_int_eq(arena_create("larger", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), -ENOMEM);
	ck_assert_ptr_nonnull(strstr(err_text(), "larger"));
	done();
}
END_TEST

/* Objects beyond 4 GiB have memory; only their last pages are touched. */
START_TEST(test_a_pool_is_larger_than_4_gib)
{
	struct pool_desc d = { .name = "large", .size = 1 << 20, .max = 4200 };
	struct pool_cache c = { 0 };
	struct pool *p;
	u32 idx, i, most = 0;

	ck_assert_int_eq(arena_create("large", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	for (i = 0; i < 4150; i++) {
		char *object = pool_get(p, &c, &idx);

		MUST(object);
		object[d.size - 1] = 1;
		most = idx > most ? idx : most;
	}
	ck_assert_uint_gt(most, 4096);
	done();
}
END_TEST

/* The k-th request for memory fails, alone or with all later ones, for each k. */
START_TEST(test_fail_each)
{
	struct pool_desc d = { .name = "f", .size = 64, .max = 30000 };
	bool forever = _i & 1, prefault = _i & 2;
	s64 k, total = 0;

	for (k = 1; ; k++) {
		struct pool_cache c = { 0 };
		struct pool *p[2];
		struct arena *a = NULL;
		u32 i, idx, got = 0, fails = 0;
		int rc, tries;

		faults(NULL, k, forever);
		rc = arena_create("f", &a);
		if (rc) {
			ck_assert_int_eq(rc, -ENOMEM);
			ck_assert_int_eq(arena_create("f", &a), forever ? -ENOMEM : 0);
			if (!a)
				continue;
		}
		for (i = 0; i < 2; i++) {
			rc = arena_add(a, &d, &p[i]);
			ck_assert(rc == 0 || rc == -ENOMEM);
			if (rc) {
				faults(NULL, 0, false);
				ck_assert_int_eq(arena_add(a, &d, &p[i]), 0);
			}
		}
		rc = arena_ready(a, prefault);
		if (rc) {
			ck_assert_int_eq(rc, -ENOMEM);
			ck_assert_ptr_nonnull(strstr(err_text(), "arena f"));
			ck_assert_uint_eq(arena_bytes(a), 0);
			ck_assert_uint_eq(arena_space(a), 0);
			ck_assert_ptr_null(pool_get(p[0], &c, &idx));
			faults(NULL, 0, false);
			ck_assert_int_eq(arena_ready(a, prefault), 0);
		}
		for (tries = 0; got < d.max && tries < 10; tries++) {
			while (pool_get(p[0], &c, &idx))
				MUST(idx == ++got);
			if (got < d.max) {
				fails++;
				/* Still no memory, still no abort, nothing lost. */
				if (forever) {
					ck_assert_ptr_null(pool_get(p[0], &c, &idx));
					faults(NULL, 0, false);
				}
			}
		}
		ck_assert_uint_eq(got, d.max);
		for (i = 1; i <= got; i++)
			pool_put(p[0], &c, i);
		pool_cache_flush(p[0], &c);
		ck_assert_uint_eq(pool_depot_count(p[0]), d.max);
		total += fails;
		if (fail_at && asked < fail_at) {
			arena_destroy(a);
			break;
		}
		arena_destroy(a);
	}
	faults(NULL, 0, false);
	ck_assert_int_ge(k, 5);
	if (!prefault && forever)
		ck_assert_int_ge(total, 1);
}
END_TEST

/* Close to the limit the step shrinks to what is needed. */
START_TEST(test_fail_step)
{
	struct pool *p = make(30000);
	struct pool_cache c = { 0 };
	u32 idx, got = 0;

	/* Each first try fails, each second one succeeds. */
	for (;;) {
		faults(HOOK_COMMIT, 1, false);
		if (!pool_get(p, &c, &idx))
			break;
		got++;
	}
	faults(NULL, 0, false);
	ck_assert_uint_eq(got, 30000);
	done();
}
END_TEST

/* True if this process can have this much more memory. */
static bool may_map(size_t bytes)
{
	void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (m != MAP_FAILED)
		munmap(m, bytes);
	return m != MAP_FAILED;
}

/* The kernel itself refuses. */
START_TEST(test_rlimit)
{
	struct rlimit old, now;
	struct pool_cache c = { 0 };
	struct pool *p;
	u32 idx, got = 0;

	p = make(1 << 20);
	MUST(pool_get(p, &c, &idx));
	getrlimit(RLIMIT_DATA, &old);
	now = old;
	now.rlim_cur = 1 << 16;
	ck_assert_int_eq(setrlimit(RLIMIT_DATA, &now), 0);
	/* An emulator keeps its guest's limits to itself. */
	if (may_map(1 << 20)) {
		ck_assert_int_eq(setrlimit(RLIMIT_DATA, &old), 0);
		done();
		return;
	}
	while (pool_get(p, &c, &idx))
		got++;
	setrlimit(RLIMIT_DATA, &old);
	ck_assert_uint_gt(got, 0);
	ck_assert_uint_lt(got, 100000);
	MUST(pool_get(p, &c, &idx));
	ck_assert_uint_eq(idx, got + 2);
	done();

	getrlimit(RLIMIT_AS, &old);
	now = old;
	now.rlim_cur = 1 << 28;
	ck_assert_int_eq(arena_create("as", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &(struct pool_desc){ .name = "as", .size = 1024,
							      .max = 1 << 20 }, &p), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &now), 0);
	unsettled = true;
	ck_assert_int_eq(arena_ready(arena, false), -ENOMEM);
	unsettled = false;
	/* With a place, the arena grows up to the limit. */
	if (!arena_ready(arena, false)) {
		memset(&c, 0, sizeof(c));
		for (got = 0; pool_get(p, &c, &idx); got++)
			;
		ck_assert_uint_gt(got, 1000);
		ck_assert_uint_lt(got, 1 << 18);
	}
	setrlimit(RLIMIT_AS, &old);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	MUST(pool_get(p, &c, &idx));
	done();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("arena");
	TCase *t = tcase_create("arena");

	tcase_add_test(t, test_bad_desc);
	tcase_add_test(t, test_not_ready);
	tcase_add_test(t, test_commit_steps);
	tcase_add_test(t, test_a_range_grows_in_steps_that_double);
	tcase_add_loop_test(t, test_two_threads_commit_the_same_range, 0, 2);
	tcase_add_test(t, test_a_small_commit_where_a_large_one_is_refused);
	tcase_add_test(t, test_prefault);
	tcase_add_test(t, test_address_space_goes_back);
	tcase_add_test(t, test_a_range_replaces_no_mapping);
	tcase_add_loop_test(t, test_a_range_grows_past_a_stopped_thread, 0, ARRAY_SIZE(stopped));
	tcase_add_test(t, test_arenas_have_places);
	tcase_add_loop_test(t, test_prefault_touches_each_page, 0, 2);
	tcase_add_test(t, test_ranges_lie_apart);
	tcase_add_test(t, test_prefault_passes_over_lazy_pools);
	tcase_add_test(t, test_a_refused_prefault_changes_nothing);
	tcase_add_test(t, test_errors_say_which_pool);
	tcase_add_test(t, test_an_arena_or_a_pool_without_memory);
	tcase_add_test(t, test_a_pool_follows_another);
	tcase_add_test(t, test_many_pools);
	tcase_add_test(t, test_memory_of_an_arena_goes_back);
	tcase_add_test(t, test_large_caps);
	tcase_add_test(t, test_a_pool_is_larger_than_4_gib);
	tcase_add_loop_test(t, test_fail_each, 0, 4);
	tcase_add_test(t, test_fail_step);
	if (!SANITIZED)
		tcase_add_test(t, test_rlimit);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
