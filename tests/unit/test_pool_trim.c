/* SPDX-License-Identifier: Apache-2.0 */
/* pool/trim.c: memory of free objects returns to the system and comes back. */
#include "pool_trims.h"
#include "trap.h"

static u32 resident(struct pool *p)
{
	struct arena_range *r = &pool_full(p)->obj;
	u32 i, sum = 0, n = (u32)(r->bytes / arena_page());
	unsigned char *in = calloc(n, 1);

	/* An emulator may not report residency; then no page counts as resident. */
	if (!mincore(r->start, r->bytes, in))
		for (i = 0; i < n; i++)
			sum += in[i] & 1;
	free(in);
	return sum;
}

/* Allocate all objects, each once, and as ctor initializes them if they were without memory. */
static void get_all(struct pool *p, struct pool_cache *c, u32 max)
{
	u8 *seen = calloc(max + 1, 1);
	u32 i, idx;

	for (i = 0; i < max; i++) {
		struct thing *t = pool_get(p, c, &idx);

		MUST(t && idx <= max && !seen[idx]++ && c->n < p->mag);
		MUST(t->idx == idx && t->built == 1);
	}
	MUST(!pool_get(p, c, &idx));
	free(seen);
}

/* Whole pages and enough objects, in as little as possible; small, if an object is large. */
START_TEST(test_slabs_are_small)
{
	struct slabs sl = { 0 };
	size_t page = arena_page(), bytes;
	u32 size;

	for (size = 16; size <= 1 << 20; size += 16) {
		bool pages, enough;

		slabs_shape(&sl, size, 1000);
		bytes = (size_t)size << sl.shift;
		pages = bytes % page == 0;
		enough = 1u << sl.shift >= SLAB_LEAST;
		MUST(sl.count == (1000u >> sl.shift) + 1 && sl.end == 1001);
		/* As large as permitted, or as is of use. */
		MUST(bytes <= SLAB_MAX || !sl.shift);
		MUST((pages && enough) || bytes * 2 > SLAB_MAX);
		MUST(!sl.shift || (bytes / 2) % page || 1u << (sl.shift - 1) < SLAB_LEAST);
	}
}
END_TEST

START_TEST(test_trim_gives_back)
{
	u32 max = _i ? caps[_i - 1] : 200000, i;
	struct pool *p = make(max);
	u64 objects = round_up_to((max + 1ull) * sizeof(struct thing), arena_page()), all, freed;
	struct pool_cache c = { 0 };

	for (i = 0; i < 3; i++) {
		get_all(p, &c, max);
		put_all(p, &c, max);
		all = arena_bytes(arena);
		freed = (u64)trim(p);
		/* Also magazines, if there are many. */
		if (pool_full(p)->mag_slabs.count)
			ck_assert_uint_gt(freed, objects);
		else
			ck_assert_uint_eq(freed, objects);
		/* All slabs, also the last one, which is not full. */
		ck_assert_uint_eq(vacant(p), max);
		ck_assert_uint_le(resident(p), 1);
		ck_assert_uint_eq(pool_depot_count(p), max);
		ck_assert_uint_eq(pool_carved(p), max);
		ck_assert_uint_le(arena_bytes(arena), all - (u64)max * sizeof(struct thing));
	}
	done();
}
END_TEST

START_TEST(test_trim_keeps_what_is_used)
{
	u32 max = 100000, i, idx;
	struct pool *p = make(max);
	struct pool_cache c = { 0 };

	get_all(p, &c, max);
	for (i = 1; i <= max; i++) {
		if (i % 1000)
			pool_put(p, &c, i);
		else
			((struct thing *)pool_obj(p, i))->value = i;
	}
	pool_cache_flush(p, &c);
	ck_assert_int_gt(trim(p), 0);
	ck_assert_uint_gt(vacant(p), max * 9 / 10 - max / 1000 * 64);
	ck_assert_uint_lt(vacant(p), max - max / 1000);
	/* All steps together leave at most one partial magazine. */
	ck_assert_uint_le(stacked(pool_full(p), &pool_full(p)->partial), 1);
	for (i = 1000; i <= max; i += 1000)
		MUST(((struct thing *)pool_obj(p, i))->value == i);
	for (i = 0; i < max - max / 1000; i++) {
		struct thing *t = pool_get(p, &c, &idx);

		MUST(t && idx % 1000 && t->idx == idx && t->built == 1);
	}
	ck_assert_ptr_null(pool_get(p, &c, &idx));
	done();
}
END_TEST

/* All free objects can be allocated, whichever step a trim stops after. */
START_TEST(test_trim_stopped_starves_nobody)
{
	static const u32 of[] = { 70000, 5000, 1000, 200 };
	u32 max = of[_i], k, i;
	bool more = true;

	for (k = 0; more; k += 1 + k / 8) {
		struct pool *p = make(max);
		struct pool_cache c = { 0 };
		struct pool_trim t = { 0 };

		get_all(p, &c, max);
		put_all(p, &c, max);
		for (i = 0; i <= k && more; i++)
			more = pool_trim_step(p, &t);
		ck_assert_uint_eq(pool_depot_count(p), max);
		get_all(p, &c, max);
		put_all(p, &c, max);
		/* Another one ends what it began. */
		ck_assert_int_ge(trim(p), 0);
		ck_assert_uint_eq(vacant(p), max);
		done();
	}
}
END_TEST

static u32 things_last(void *obj, u32 idx, void *user)
{
	return (u32)((struct thing *)obj)->value;
}

static void things_again(void *obj, u32 idx, u32 base, void *user)
{
	((struct thing *)obj)->value = base;
}

/*
 * Generations of an object continue where they were.  Each round also trims slabs whose
 * neighbours have no memory already.  A slab has more objects than a magazine, or as many.
 */
START_TEST(test_trim_base)
{
	struct pool_desc d = { .name = "based", .size = sizeof(struct thing), .max = 3000,
			       .ctor = things_again, .last = things_last,
			       .mag = _i ? 16 : POOL_MAG };
	struct pool_cache c = { 0 };
	u64 had[3001] = { 0 }, most[3001] = { 0 };	/* of an object; of a slab */
	struct pool *p;
	struct slabs *sl;
	u32 i, round, idx, mask;

	ck_assert_int_eq(arena_create("based", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	sl = &pool_full(p)->objs;
	mask = (1u << sl->shift) - 1;
	for (round = 0; round < 4; round++) {
		for (i = 0; i < d.max; i++) {
			struct thing *t = pool_get(p, &c, &idx);

			MUST(t && t->value == most[idx >> sl->shift]);
			/* The first object of a slab, or another one, has the largest. */
			t->value += (round & 1) && !(idx & mask) ? 100 : 1 + idx % 7;
			had[idx] = t->value;
		}
		for (i = 1; i <= d.max; i++)
			most[i >> sl->shift] = max_u(most[i >> sl->shift], had[i]);
		/* One object of every other slab stays in use at first. */
		for (i = 1; i <= d.max; i++)
			if (i >> sl->shift & 1 || i & ((1u << sl->shift) - 1))
				pool_put(p, &c, i);
		pool_cache_flush(p, &c);
		ck_assert_int_gt(trim(p), 0);
		for (i = 2u << sl->shift; i <= d.max; i += 2u << sl->shift)
			pool_put(p, &c, i);
		pool_cache_flush(p, &c);
		ck_assert_int_gt(trim(p), 0);
		ck_assert_uint_eq(vacant(p), d.max);
	}
	done();
}
END_TEST

/* The system refuses: nothing is lost, and the objects are in the depot again. */
START_TEST(test_trim_refused)
{
	u32 max = 20000, got;
	struct pool *p = make(max);
	struct pool_cache c = { 0 };
	s64 k;

	for (k = 1; k < 6; k++) {
		get_all(p, &c, max);
		put_all(p, &c, max);
		faults(HOOK_TRIM, k, true);
		ck_assert_int_eq(trim(p), -ENOMEM);
		faults(NULL, 0, false);
		got = vacant(p);
		ck_assert_uint_le(got, (u32)(k - 1) * SLAB_MAX / sizeof(struct thing));
		ck_assert_uint_eq(pool_depot_count(p), max);
		ck_assert_uint_eq(loose_count(&pool_full(p)->objs), 0);
	}
	/* Locked pages: the system itself.  The sanitizers make mlock() do nothing. */
	get_all(p, &c, max);
	put_all(p, &c, max);
	if (!SANITIZED && !mlock(pool_full(p)->obj.start, arena_page())) {
		ck_assert_int_eq(trim(p), -EINVAL);
		ck_assert_uint_eq(pool_depot_count(p), max);
		munlock(pool_full(p)->obj.start, arena_page());
	}
	ck_assert_int_gt(trim(p), 0);
	ck_assert_uint_eq(vacant(p), max);
	get_all(p, &c, max);
	done();
}
END_TEST

/* A refused trim keeps all objects also if the bits of a slab are in several words. */
START_TEST(test_trim_refused_of_slabs_of_several_words)
{
	struct pool_desc d = { .name = "words", .size = 16, .max = 4000 };
	struct pool_cache c = { 0 };
	struct pool *p;
	u32 i, idx;

	ck_assert_int_eq(arena_create("words", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	ck_assert_uint_ge(slab_words(&pool_full(p)->objs), 2);
	for (i = 0; i < d.max; i++)
		MUST(pool_get(p, &c, &idx));
	put_all(p, &c, d.max);
	faults(HOOK_TRIM, 1, true);
	ck_assert_int_eq(trim(p), -ENOMEM);
	faults(NULL, 0, false);
	ck_assert_uint_eq(loose_count(&pool_full(p)->objs), 0);
	ck_assert_uint_eq(pool_depot_count(p), d.max);
	ck_assert_int_gt(trim(p), 0);
	ck_assert_uint_eq(vacant(p), d.max);
	done();
}
END_TEST

/* An object that is used keeps all its bytes, also those on a page with freed ones. */
START_TEST(test_trim_keeps_pages_that_are_partly_used)
{
	static const u32 sizes[] = { 80, 6208, 98368 };
	struct pool_desc d = { .name = "shared", .size = sizes[_i], .max = _i ? 60 : 6000 };
	struct pool_cache c = { 0 };
	u32 i, k, idx, keep, shift;
	struct pool *p;

	for (keep = 0; keep < 2; keep++) {
		ck_assert_int_eq(arena_create("shared", &arena), 0);
		ck_assert_int_eq(arena_add(arena, &d, &p), 0);
		ck_assert_int_eq(arena_ready(arena, false), 0);
		shift = pool_full(p)->objs.shift;
		for (i = 0; i < d.max; i++)
			memset(pool_get(p, &c, &idx), (int)(i + 1), d.size);
		/* The objects of every other slab stay in use. */
		for (i = 1; i <= d.max; i++)
			if ((i >> shift) % 2 != keep)
				pool_put(p, &c, i);
		pool_cache_flush(p, &c);
		ck_assert_int_gt(trim(p), 0);
		ck_assert_uint_gt(vacant(p), 0);
		for (i = 1; i <= d.max; i++) {
			u8 *object = pool_obj(p, i);

			for (k = 0; k < d.size && (i >> shift) % 2 == keep; k++)
				MUST(object[k] == (u8)i);
		}
		done();
	}
}
END_TEST

START_TEST(test_trim_sizes)
{
	static const u32 sizes[] = { 16, 32, 80, 128, 240, 448, 6208, 98368, 786496 };
	struct pool_desc d = { .name = "sized", .size = sizes[_i], .max = 700 };
	u32 i, k, round, idx, n = 700 * 448 / sizes[_i] < 3 ? 20 : 700;
	struct pool_cache c = { 0 };
	struct pool *p;
	s64 freed;

	ck_assert_int_eq(arena_create("sized", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	for (round = 0; round < 2; round++) {
		for (i = 1; i <= n; i++) {
			u32 *o = pool_get(p, &c, &idx);

			MUST(o);
			/* A page that it shares with others is not zero. */
			for (k = 2048; k + 2048 < sizes[_i] / 4; k++)
				MUST(!o[k]);
			memset(o, 0xa5, sizes[_i]);
		}
		put_all(p, &c, n);
		freed = trim(p);
		ck_assert_int_ge(freed, 0);
		/* Whole pages, of these objects. */
		ck_assert_uint_eq((size_t)freed % arena_page(), 0);
		ck_assert_uint_le((size_t)freed, round_up_to(701ull * sizes[_i], arena_page()));
		ck_assert_uint_eq(pool_depot_count(p), pool_carved(p));
	}
	done();
}
END_TEST

/* Other threads find all free objects except 64 KiB of them, and slabs need not divide that. */
START_TEST(test_trim_takes_little_at_a_time)
{
	static const u32 sizes[] = { 48, 64, 80, 240, 448 };
	struct pool_desc d = { .name = "sized", .size = sizes[_i], .max = 20000 };
	struct pool_cache c = { 0 };
	struct pool_trim t = { 0 };
	struct pool *p;
	u64 before = 0;
	u32 i, idx;

	ck_assert_int_eq(arena_create("sized", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	for (i = 0; i < d.max; i++)
		MUST(pool_get(p, &c, &idx));
	put_all(p, &c, d.max);
	for (; pool_trim_step(p, &t); before = t.bytes)
		ck_assert_uint_le(t.bytes - before, 64 << 10);
	ck_assert_uint_gt(t.bytes, 0);
	done();
}
END_TEST

/* The objects of a slab that is partly in use return to the depot, whichever are in use. */
START_TEST(test_trim_leaves_no_object_loose)
{
	struct pool_desc d = { .name = "words", .size = 48, .max = 5000 };
	struct pool_cache c = { 0 };
	struct pool *p;
	struct slabs *sl;
	u32 i, idx, used;

	ck_assert_int_eq(arena_create("words", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	sl = &pool_full(p)->objs;
	ck_assert_uint_eq(slab_words(sl) * 64, 1u << sl->shift);
	ck_assert_uint_ge(slab_words(sl), 2);
	for (i = 0; i < d.max; i++)
		MUST(pool_get(p, &c, &idx));
	/* All objects of every other word of bits. */
	for (i = 1, used = 0; i <= d.max; i++) {
		if (i / 64 % 2 == (u32)_i)
			used++;
		else
			pool_put(p, &c, i);
	}
	pool_cache_flush(p, &c);
	ck_assert_int_ge(trim(p), 0);
	ck_assert_uint_eq(loose_count(sl), 0);
	ck_assert_uint_eq(vacant(p), 0);
	ck_assert_uint_eq(pool_depot_count(p), d.max - used);
	done();
}
END_TEST

/* A thread that needs a magazine while all empty ones are loose takes one of them. */
START_TEST(test_one_loose_magazine_is_taken)
{
	u32 max = 20000, i, loose, idx[POOL_MAG];
	struct pool *p = make(max);
	struct pool_full *f = pool_full(p);
	struct pool_cache c = { 0 };
	struct pool_trim t = { 0 };

	for (i = 1; i <= max; i++)
		MUST(pool_get_idx(p, &c, p->base, p->size));
	put_all(p, &c, max);
	for (i = 0; i < max; i++)
		idx[i % p->mag] = pool_get_idx(p, &c, p->base, p->size);
	do
		MUST(pool_trim_step(p, &t));
	while (loose_count(&f->mag_slabs) < 2 || stacked(f, &f->empty));
	loose = loose_count(&f->mag_slabs);
	mag_put(f, &f->full, idx, p->mag);
	ck_assert_uint_eq(loose_count(&f->mag_slabs), loose - 1);
	while (pool_trim_step(p, &t))
		;
	check_magazines(f);
	done();
}
END_TEST

/*
 * Magazines are few and their slabs partly in use: each one is on a stack again or freed after
 * the trim.  Each round keeps more objects, so that more magazines are empty.
 */
START_TEST(test_trim_loses_no_magazine)
{
	u32 max = 1000000, carved, whole, i, round;
	struct pool *p = make(max);
	struct pool_full *f = pool_full(p);
	struct pool_cache c = { 0 };
	u8 *kept = calloc(max + 1, 1);

	for (round = 0; round < 4; round++) {
		for (i = 1; i <= max; i++)
			if (!kept[i])
				MUST(pool_get_idx(p, &c, p->base, p->size));
		memset(kept, 0, max + 1);
		/* Some objects of each slab stay in use, so that the others return to magazines. */
		for (i = 1; i <= max; i++) {
			if (i % 16 <= 4 * round)
				kept[i] = 1;
			else
				pool_put(p, &c, i);
		}
		pool_cache_flush(p, &c);
		ck_assert_int_ge(trim(p), 0);
		ck_assert_uint_gt(f->mag_slabs.count, 0);
		check_magazines(f);
	}
	/* With all objects free, no magazine is needed: all whole slabs are freed. */
	for (i = 1; i <= max; i++)
		if (kept[i])
			pool_put(p, &c, i);
	pool_cache_flush(p, &c);
	ck_assert_int_ge(trim(p), 0);
	check_magazines(f);
	carved = load_relaxed(&f->mag_carved);
	whole = carved >> f->mag_slabs.shift;
	ck_assert_uint_eq(load_relaxed(&f->mag_slabs.nvacant),
			  whole ? slab_end(&f->mag_slabs, whole) - 1 : 0);
	free(kept);
	done();
}
END_TEST

/* A trim keeps the memory of the first slabs that have `spare` bytes together, and no more. */
START_TEST(test_trim_keeps_exactly_what_it_may_spare)
{
	u32 max = 100000, k;
	struct pool *p = make(max);
	struct slabs *sl = &pool_full(p)->objs;
	struct pool_cache c = { 0 };
	size_t bytes = (size_t)sl->size << sl->shift;
	const size_t less[] = { 0, 1, bytes - 1 };
	struct pool_trim t;

	/* A trim keeps a whole slab if it may keep a byte of it. */
	for (k = 0; k < 12; k++) {
		t = (struct pool_trim){ .spare = (k / 3 + 1) * bytes - less[k % 3] };
		get_all(p, &c, max);
		put_all(p, &c, max);
		while (pool_trim_step(p, &t))
			;
		ck_assert_uint_eq(vacant(p), max + 1 - slab_from(sl, k / 3 + 2));
	}
	get_all(p, &c, max);
	put_all(p, &c, max);
	ck_assert_int_gt(trim(p), 0);
	ck_assert_uint_eq(vacant(p), max);
	done();
}
END_TEST

/* Objects of the last slab that has memory are found while they are loose. */
START_TEST(test_loose_objects_of_the_last_slab_are_found)
{
	static const struct { u32 size, max; } of[] = { { 48, 1300 }, { 80, 800 }, { 240, 270 } };
	struct pool_desc d = { .name = "last", .size = of[_i].size, .max = of[_i].max };
	struct pool_trim t = { 0 };
	struct pool_cache c = { 0 };
	struct pool *p;
	u32 i, idx;

	ck_assert_int_eq(arena_create("last", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	for (i = 0; i < d.max; i++)
		MUST(pool_get(p, &c, &idx));
	put_all(p, &c, d.max);
	while (t.phase < 2)
		MUST(pool_trim_step(p, &t));
	ck_assert_uint_eq(loose_count(&pool_full(p)->objs), d.max);
	for (i = 0; i < d.max; i++)
		MUST(pool_get(p, &c, &idx));
	ck_assert_uint_eq(loose_count(&pool_full(p)->objs), 0);
	ck_assert_ptr_null(pool_get(p, &c, &idx));
	done();
}
END_TEST

/* Objects that a trim made loose, or freed, come before those that were never handed out. */
START_TEST(test_trimmed_objects_come_before_new_ones)
{
	u32 n = 5000, i, idx, carved, phase;
	struct pool_cache c = { 0 };
	struct pool *p = make(20000);

	for (phase = 2; phase <= 3; phase++) {
		struct pool_trim t = { 0 };

		for (i = 0; i < n; i++)
			MUST(pool_get(p, &c, &idx));
		pool_cache_flush(p, &c);
		carved = pool_carved(p);
		for (i = 1; i <= n; i++)
			pool_put(p, &c, i);
		pool_cache_flush(p, &c);
		while (t.phase < phase && pool_trim_step(p, &t))
			;
		for (i = 0; i < carved; i++)
			MUST(pool_get(p, &c, &idx) && idx <= carved);
		ck_assert_uint_eq(pool_carved(p), carved);
		ck_assert_uint_eq(vacant(p), 0);
		MUST(pool_get(p, &c, &idx) && idx == carved + 1);
		pool_put(p, &c, idx);
		for (i = 1; i <= carved; i++)
			pool_put(p, &c, i);
		pool_cache_flush(p, &c);
		n = pool_carved(p);
	}
	done();
}
END_TEST

/* If a slab has more objects than a cache holds, the depot holds the others. */
START_TEST(test_objects_of_a_trimmed_slab_go_to_the_depot)
{
	static const u32 mags[] = { 16, 24, POOL_MAG };
	struct pool_desc d = { .name = "more", .size = 16, .max = 3000, .mag = mags[_i] };
	struct pool_cache c = { 0 };
	struct pool *p;
	u32 i, idx;

	ck_assert_int_eq(arena_create("more", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	for (i = 0; i < d.max; i++)
		MUST(pool_get(p, &c, &idx));
	put_all(p, &c, d.max);
	ck_assert_int_gt(trim(p), 0);
	ck_assert_uint_eq(vacant(p), d.max);
	for (i = 1; i <= d.max; i++) {
		MUST(pool_get(p, &c, &idx));
		ck_assert_uint_eq(pool_depot_count(p) + c.n + c.nspare + i, d.max);
		ck_assert_uint_le(stacked(pool_full(p), &pool_full(p)->partial), 1);
	}
	ck_assert_ptr_null(pool_get(p, &c, &idx));
	done();
}
END_TEST

/* Objects that have no page of their own count as trimmed, and are found, without a system call. */
START_TEST(test_trim_of_a_slab_within_a_page)
{
	struct pool_desc d = { .name = "within", .size = 272, .max = 131 };
	struct pool_cache c = { 0 };
	struct pool_trim t = { 0 };
	struct pool *p;
	u32 i, idx;

	if (arena_page() != 4096)
		return;
	ck_assert_int_eq(arena_create("within", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	ck_assert_uint_eq(pool_full(p)->objs.shift, 7);
	for (i = 0; i < d.max; i++)
		MUST(pool_get(p, &c, &idx));
	/* The first slab stays in use; the second one begins in the middle of the last page. */
	for (i = 2; i <= d.max; i++)
		pool_put(p, &c, i);
	pool_cache_flush(p, &c);
	faults(HOOK_TRIM, 0, false);
	while (pool_trim_step(p, &t))
		;
	ck_assert_int_eq(t.rc, 0);
	ck_assert_uint_eq(t.bytes, 0);
	ck_assert_uint_eq(asked, 0);
	ck_assert_uint_eq(vacant(p), 4);
	ck_assert_uint_eq(pool_depot_count(p), d.max - 1);
	for (i = 1; i < d.max; i++)
		MUST(pool_get(p, &c, &idx));
	done();
}
END_TEST

/* There is nothing to trim of a pool that keeps its memory, has none, or is trimmed already. */
START_TEST(test_nothing_to_trim)
{
	struct pool_desc d = { .name = "kept", .size = 64, .max = 20000, .keep = true };
	struct pool_cache c = { 0 };
	struct pool_trim t = { 0 };
	struct pool *p, *q, *large;
	u32 i, idx;
	u64 bytes;

	ck_assert_int_eq(arena_create("kept", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	d.keep = false;
	ck_assert_int_eq(arena_add(arena, &d, &q), 0);
	d.size = 98368;		/* the first slab has object 0 only */
	ck_assert_int_eq(arena_add(arena, &d, &large), 0);
	ck_assert(!pool_trim_step(q, &t));
	ck_assert_int_eq(arena_ready(arena, false), 0);
	for (i = 0; i < d.max; i++) {
		u64 *object = pool_get(p, &c, &idx);

		MUST(object);
		object[7] = idx;
	}
	put_all(p, &c, d.max);
	bytes = arena_bytes(arena);
	ck_assert(!pool_trim_step(p, &t));
	ck_assert_int_eq(trim(p), 0);
	ck_assert_uint_eq(vacant(p), 0);
	ck_assert_uint_eq(pool_depot_count(p), d.max);
	ck_assert_uint_eq(arena_bytes(arena), bytes);
	for (i = 1; i <= d.max; i++)
		MUST(((u64 *)pool_obj(p, i))[7] == i);
	/* The other pool has no object yet, then one, and then no memory for it. */
	ck_assert_int_eq(trim(q), 0);
	ck_assert_int_eq(trim(large), 0);
	ck_assert_uint_eq(vacant(large), 0);
	MUST(pool_get(q, &c, &idx) && idx == 1);
	pool_put(q, &c, idx);
	pool_cache_flush(q, &c);
	ck_assert_int_eq(trim(q), (s64)arena_page());
	ck_assert_int_eq(trim(q), 0);
	done();
}
END_TEST

/* A trim ends although others take and return all objects after each of its steps. */
START_TEST(test_trim_ends_while_others_put)
{
	u32 max = 3000, steps = 0;
	struct pool *p = make(max);
	struct pool_cache c = { 0 };
	struct pool_trim t = { 0 };

	do {
		get_all(p, &c, max);
		put_all(p, &c, max);
		MUST(++steps < 1000);
	} while (pool_trim_step(p, &t));
	ck_assert_uint_eq(pool_depot_count(p), max);
	done();
}
END_TEST

#if CAN_TRAP
static struct slabs *trap_slabs;
static u32 trap_took;

static void take_loose(void)
{
	u32 idx;

	if (loose_take(trap_slabs, &idx, 1))
		trap_took = idx;
}

/*
 * An object of a slab whose bits are two words is taken at any moment of the step that
 * claims the slab, of either word: it is not handed out again, and the others are found again.
 */
START_TEST(test_a_slab_of_which_an_object_is_taken_is_kept)
{
	struct pool_desc d = { .name = "words", .size = 32, .max = 255 };
	struct pool_cache c = { 0 };
	struct pool_trim t;
	u32 i, idx, second = 0;
	struct pool *p;
	bool more;
	long k;

	ck_assert_int_eq(arena_create("words", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	trap_slabs = &pool_full(p)->objs;
	ck_assert_uint_eq(trap_slabs->shift, 7);
	trap_init(take_loose);
	/* Until it is taken from the next slab, since the first one is claimed. */
	for (k = 0, trap_took = 0; trap_took < 128; k += 3) {
		for (i = 0; i < d.max; i++)
			MUST(pool_get(p, &c, &idx));
		put_all(p, &c, d.max);
		memset(&t, 0, sizeof(t));
		do
			MUST(pool_trim_step(p, &t));
		while (loose_count(trap_slabs) < d.max);
		while (t.phase == 1)	/* the next step claims */
			MUST(pool_trim_step(p, &t));
		trap_took = 0;
		trap_after(k, more = pool_trim_step(p, &t));
		MUST(trap_took);
		while (more)
			more = pool_trim_step(p, &t);
		second += trap_took >= 64 && trap_took < 128;
		pool_put(p, &c, trap_took);
		pool_cache_flush(p, &c);
		ck_assert_uint_eq(pool_depot_count(p), d.max);
		ck_assert_uint_eq(loose_count(trap_slabs), 0);
	}
	ck_assert_uint_gt(second, 0);
	done();
}
END_TEST
#endif

static Suite *suite(void)
{
	Suite *s = suite_create("pool_trim");
	TCase *t = tcase_create("trim");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_slabs_are_small);
	tcase_add_loop_test(t, test_trim_gives_back, 0, ARRAY_SIZE(caps) + 1);
	tcase_add_test(t, test_trim_keeps_what_is_used);
	tcase_add_loop_test(t, test_trim_stopped_starves_nobody, 0, 4);
	tcase_add_loop_test(t, test_trim_base, 0, 2);
	tcase_add_test(t, test_trim_refused);
	tcase_add_test(t, test_trim_refused_of_slabs_of_several_words);
	tcase_add_loop_test(t, test_trim_keeps_pages_that_are_partly_used, 0, 3);
	tcase_add_loop_test(t, test_trim_sizes, 0, 9);
	tcase_add_loop_test(t, test_trim_takes_little_at_a_time, 0, 5);
	tcase_add_loop_test(t, test_trim_leaves_no_object_loose, 0, 2);
	tcase_add_test(t, test_one_loose_magazine_is_taken);
	tcase_add_test(t, test_trim_loses_no_magazine);
	tcase_add_test(t, test_trim_keeps_exactly_what_it_may_spare);
	tcase_add_test(t, test_trim_ends_while_others_put);
	tcase_add_loop_test(t, test_loose_objects_of_the_last_slab_are_found, 0, 3);
	tcase_add_test(t, test_trimmed_objects_come_before_new_ones);
	tcase_add_loop_test(t, test_objects_of_a_trimmed_slab_go_to_the_depot, 0, 3);
	tcase_add_test(t, test_trim_of_a_slab_within_a_page);
	tcase_add_test(t, test_nothing_to_trim);
#if CAN_TRAP
	/* A sanitizer's instructions are many. */
	if (!SANITIZED)
		tcase_add_test(t, test_a_slab_of_which_an_object_is_taken_is_kept);
#endif
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
