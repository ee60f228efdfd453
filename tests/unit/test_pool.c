/* SPDX-License-Identifier: Apache-2.0 */
/* pool/: arenas, magazines, statistics, and the text of errors. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <base/err.h>
#include <pool/internal.h>

#include "must.h"
#include "suite.h"

/* Fault injection: the k-th question fails (once, or it and all that follow). */
static s64 fail_at;		/* 0: never */
static bool fail_on;
static s64 asked;
static const char *fail_what;	/* NULL: any */

int pool_commit_hook(const char *what, size_t bytes)
{
	s64 n;

	if (fail_what && strcmp(what, fail_what))
		return 0;
	n = (s64)fetch_add_relaxed(&asked, 1) + 1;
	return fail_at && (n == fail_at || (fail_on && n > fail_at)) ? -ENOMEM : 0;
}

static void faults(const char *what, s64 at, bool on)
{
	fail_what = what;
	fail_at = at;
	fail_on = on;
	asked = 0;
}

struct thing {
	u32 idx;		/* by ctor */
	u32 built;		/* A: calls of ctor */
	u32 owner;		/* A: 0 free */
	u32 pad;
	u64 value;		/* plain, the owner's */
	u64 seen[5];
};

static u32 ctors;
static u32 ctor_user;

static void thing_ctor(void *obj, u32 idx, u32 base, void *user)
{
	struct thing *t = obj;

	if (user != &ctor_user || t->idx || t->built || t->owner || t->value)
		abort();
	t->idx = idx;
	fetch_add_relaxed(&t->built, 1);
	fetch_add_relaxed(&ctors, 1);
}

static struct arena *arena;

static struct pool *make(u32 max)
{
	struct pool_desc d = { .name = "things", .size = sizeof(struct thing), .max = max,
			       .ctor = thing_ctor, .user = &ctor_user };
	struct pool *p;

	ctors = 0;
	ck_assert_int_eq(arena_create("test", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	return p;
}

static void done(void)
{
	arena_destroy(arena);
	arena = NULL;
}

START_TEST(test_err)
{
	char big[400];

	errno = EIO;
	ck_assert_int_eq(err(-EINVAL, "a %d", 7), -EINVAL);
	ck_assert_str_eq(err_text(), "a 7");
	ck_assert_int_eq(errno, EIO);
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	ck_assert_int_eq(err(-1, "%s", big), -1);
	ck_assert_uint_eq(strlen(err_text()), 255);
}
END_TEST

static void *err_thread(void *arg)
{
	bool empty = !err_text()[0];

	err(-1, "other");
	return empty ? arg : NULL;
}

START_TEST(test_err_threads)
{
	char text[] = "x";
	pthread_t t;
	void *ret;

	err(-1, "mine");
	ck_assert_int_eq(pthread_create(&t, NULL, err_thread, text), 0);
	pthread_join(t, &ret);
	ck_assert_ptr_eq(ret, text);
	ck_assert_str_eq(err_text(), "mine");
}
END_TEST

START_TEST(test_bad_desc)
{
	static const struct { u32 size, max; } bad[] = {
		{ 0, 10 }, { 8, 10 }, { 24, 10 }, { (1 << 20) + 16, 10 },
		{ 16, 0 }, { 16, UINT32_MAX },
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
	}
	d.name = NULL;
	d.size = 1 << 20;
	d.max = 3;
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), -EINVAL);
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

START_TEST(test_address)
{
	struct pool *p = make(1000);
	struct pool_cache c = { 0 };
	u32 i, idx = 0;

	for (i = 0; i < 1000; i++) {
		struct thing *t = pool_get(p, &c, &idx);

		ck_assert_ptr_nonnull(t);
		ck_assert_uint_ne(idx, 0);
		ck_assert_ptr_eq(t, pool_obj(p, idx));
		ck_assert_uint_eq(t->idx, idx);
		ck_assert_uint_eq((uintptr_t)t % 64, 0);
	}
	done();
}
END_TEST

START_TEST(test_ascending)
{
	struct pool *p = make(100000);
	struct pool_cache c = { 0 };
	u32 i, idx;

	for (i = 1; i <= 100000; i++) {
		MUST(pool_get(p, &c, &idx));
		MUST(idx == i);
	}
	ck_assert_ptr_null(pool_get(p, &c, &idx));
	ck_assert_uint_eq(ctors, 100000);
	done();
}
END_TEST

static const u32 caps[] = { 1, 2, 3, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 2047, 2048,
			    2049, 4095, 4096, 5000 };

START_TEST(test_cap)
{
	u32 max = caps[_i];
	struct pool *p = make(max);
	struct pool_cache c = { 0 };
	u8 *seen = calloc(max + 1, 1);
	struct pool_stat s;
	u32 i, idx, round;

	for (round = 0; round < 3; round++) {
		memset(seen, 0, max + 1);
		for (i = 0; i < max; i++) {
			MUST(pool_get(p, &c, &idx));
			MUST(idx <= max);
			MUST(!seen[idx]++);
		}
		ck_assert_ptr_null(pool_get(p, &c, &idx));
		ck_assert_ptr_null(pool_get(p, &c, &idx));
		pool_put(p, &c, max / 2 + 1);
		MUST(pool_get(p, &c, &idx));
		ck_assert_uint_eq(idx, max / 2 + 1);
		ck_assert_ptr_null(pool_get(p, &c, &idx));
		for (i = max; i; i--)
			pool_put(p, &c, i);
		if (round == 1)
			pool_cache_flush(p, &c);
	}
	pool_cache_flush(p, &c);
	ck_assert_uint_eq(pool_depot_count(p), max);
	ck_assert_uint_eq(pool_carved(p), max);
	ck_assert_uint_eq(ctors, max);
	pool_stat(p, &s);
	ck_assert_str_eq(s.name, "things");
	ck_assert_uint_eq(s.carved, max);
	ck_assert_uint_eq(s.lost, 0);
	ck_assert_uint_ge(s.bytes, (u64)(max + 1) * sizeof(struct thing));
	ck_assert_uint_le(s.mags, max);
	ck_assert_uint_eq(c.gets, c.puts);
	free(seen);
	done();
}
END_TEST

START_TEST(test_content_stays)
{
	struct pool *p = make(10);
	struct pool_cache c = { 0 };
	struct thing *t;
	u32 idx, again;

	t = pool_get(p, &c, &idx);
	t->value = 4711;
	pool_put(p, &c, idx);
	ck_assert_uint_eq(((struct thing *)pool_obj(p, idx))->value, 4711);
	ck_assert_ptr_eq(pool_get(p, &c, &again), t);
	ck_assert_uint_eq(t->value, 4711);
	ck_assert_uint_eq(t->built, 1);
	done();
}
END_TEST

/* In a small pool, one thread's cache must leave something to the others. */
START_TEST(test_small_pool_shared)
{
	u32 max = 128;
	struct pool *p = make(max);
	struct pool_cache a = { 0 }, b = { 0 };
	u32 all[128], i, n, idx;

	ck_assert_uint_eq(p->mag, 4);
	for (i = 0; i < max; i++)
		MUST(pool_get(p, &a, &all[i]));
	for (i = 0; i < max; i++)
		pool_put(p, &a, all[i]);
	for (n = 0; pool_get(p, &b, &idx); n++)
		;
	ck_assert_uint_ge(n, max - 2 * p->mag);
	done();
}
END_TEST

/* Back and forth over the border of a magazine: the depot is not touched. */
START_TEST(test_no_thrash)
{
	struct pool *p = make(100000);
	struct pool_full *f = pool_full(p);
	struct pool_cache c = { 0 };
	u32 held[4 * POOL_MAG], i, k, idx;
	u64 full, empty;

	for (i = 0; i < 4 * POOL_MAG; i++)
		MUST(pool_get(p, &c, &held[i]));
	for (i = 0; i < 4 * POOL_MAG; i++)
		pool_put(p, &c, held[i]);
	for (k = 0; k <= POOL_MAG; k++) {
		MUST(pool_get(p, &c, &idx));
		/* Settle: at most one move. */
		pool_put(p, &c, idx);
		MUST(pool_get(p, &c, &idx));
		full = f->full;
		empty = f->empty;
		for (i = 0; i < 1000; i++) {
			pool_put(p, &c, idx);
			MUST(pool_get(p, &c, &idx));
		}
		ck_assert_uint_eq(full, f->full);
		ck_assert_uint_eq(empty, f->empty);
	}
	done();
}
END_TEST

/* One object each in many caches: the partial magazines merge, nothing is lost. */
START_TEST(test_flush_partial)
{
	u32 max = 5000, ncaches = 3000;
	struct pool *p = make(max);
	struct pool_cache *c = calloc(ncaches, sizeof(*c));
	struct pool_cache all = { 0 };
	struct pool_stat s;
	u32 i, n, idx;

	for (i = 0; i < max; i++)
		MUST(pool_get(p, &all, &idx));
	for (i = 0, idx = 1; i < ncaches; i++)
		for (n = 0; n < 1 + i % 3 && idx <= max; n++)
			pool_put(p, &c[i], idx++);
	for (i = 0; i < ncaches; i++) {
		pool_cache_flush(p, &c[i]);
		/* Again: empty. */
		pool_cache_flush(p, &c[i]);
	}
	ck_assert_uint_eq(pool_depot_count(p), max);
	pool_stat(p, &s);
	ck_assert_uint_le(s.mags, max / POOL_MAG + 2);
	ck_assert_uint_eq(s.lost, 0);
	for (i = 0; i < max; i++)
		MUST(pool_get(p, &all, &idx));
	ck_assert_ptr_null(pool_get(p, &all, &idx));
	free(c);
	done();
}
END_TEST

/* All sizes of cur, with and without spare, against all sizes of the partial one. */
START_TEST(test_flush_sizes)
{
	u32 n, k, i, idx, held[3 * POOL_MAG];

	for (n = 0; n <= 2 * POOL_MAG + 1; n += 5)
		for (k = 0; k < POOL_MAG; k += 9) {
			struct pool *p = make(2048);
			struct pool_cache c = { 0 }, d = { 0 };

			for (i = 0; i < n + k; i++)
				MUST(pool_get(p, &c, &held[i]));
			pool_cache_flush(p, &c);
			for (i = 0; i < k; i++)
				pool_put(p, &d, held[n + i]);
			pool_cache_flush(p, &d);
			for (i = 0; i < n; i++)
				pool_put(p, &c, held[i]);
			pool_cache_flush(p, &c);
			ck_assert_uint_eq(pool_depot_count(p), pool_carved(p));
			for (i = 0; i < 2048; i++)
				MUST(pool_get(p, &c, &idx));
			done();
		}
}
END_TEST

START_TEST(test_depot_count_broken)
{
	struct pool *p = make(2048);
	struct pool_full *f = pool_full(p);
	struct pool_cache c = { 0 };
	u32 idx, m;

	MUST(pool_get(p, &c, &idx));
	pool_put(p, &c, idx);
	pool_cache_flush(p, &c);
	m = head_idx(f->full | f->partial);
	ck_assert_uint_ne(m, 0);
	f->mags[m].idx[0] = 0;
	ck_assert_uint_eq(pool_depot_count(p), UINT32_MAX);
	f->mags[m].idx[0] = 1;
	f->mags[m].n = 0;
	ck_assert_uint_eq(pool_depot_count(p), UINT32_MAX);
	f->mags[m].n = 5;
	f->mags[m].link.next = m;
	ck_assert_uint_eq(pool_depot_count(p), UINT32_MAX);
	done();
}
END_TEST

START_TEST(test_head_word)
{
	u64 h = head_next(0, 5);
	u64 last = (u64)-1 << MAG_IDX_BITS | MAG_IDX_MAX;

	ck_assert_uint_eq(head_idx(h), 5);
	ck_assert_uint_eq(h >> MAG_IDX_BITS, 1);
	ck_assert_uint_eq(head_idx(last), MAG_IDX_MAX);
	/* The tag wraps, the index does not suffer. */
	ck_assert_uint_eq(head_next(last, 7), 7);
	ck_assert_uint_eq(head_idx(head_next(last, MAG_IDX_MAX)), MAG_IDX_MAX);
}
END_TEST

START_TEST(test_commit_steps)
{
	struct pool *p = make(1 << 20);
	struct pool_cache c = { 0 };
	u64 start = arena_bytes(arena), last, now;
	u32 i, idx, steps = 0;

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
	/* The bits of all that there can be are some of it. */
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

/* --- trim --- */

static s64 trim(struct pool *p)
{
	struct pool_trim t = { 0 };

	while (pool_trim_step(p, &t))
		;
	return t.rc ? t.rc : (s64)t.bytes;
}

static u32 resident(struct pool *p)
{
	struct arena_range *r = &pool_full(p)->obj;
	u32 i, sum = 0, n = (u32)(r->bytes / arena_page());
	unsigned char *in = calloc(n, 1);

	/* An emulator may not know: then nothing is. */
	if (!mincore(r->start, r->bytes, in))
		for (i = 0; i < n; i++)
			sum += in[i] & 1;
	free(in);
	return sum;
}

static u32 vacant(struct pool *p)
{
	struct pool_stat s;

	pool_stat(p, &s);
	return s.vacant;
}

/* All objects, each once, and as ctor made them if they were without memory. */
static void get_all(struct pool *p, struct pool_cache *c, u32 max)
{
	u8 *seen = calloc(max + 1, 1);
	u32 i, idx;

	for (i = 0; i < max; i++) {
		struct thing *t = pool_get(p, c, &idx);

		MUST(t && idx <= max && !seen[idx]++);
		MUST(t->idx == idx && t->built == 1);
	}
	MUST(!pool_get(p, c, &idx));
	free(seen);
}

static void put_all(struct pool *p, struct pool_cache *c, u32 max)
{
	u32 i;

	for (i = 1; i <= max; i++)
		pool_put(p, c, i);
	pool_cache_flush(p, c);
}

START_TEST(test_trim_gives_back)
{
	u32 max = _i ? caps[_i - 1] : 200000, i;
	struct pool *p = make(max);
	struct pool_cache c = { 0 };
	u64 all;

	for (i = 0; i < 3; i++) {
		get_all(p, &c, max);
		put_all(p, &c, max);
		all = arena_bytes(arena);
		ck_assert_int_ge(trim(p), 0);
		/* All: also the last slab, which is not full. */
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

/* Whatever step a trim stops after, all free objects can be had. */
START_TEST(test_trim_stopped_starves_nobody)
{
	u32 max = _i ? 5000 : 70000, k, i;
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

/* What tells the lives of an object apart goes on where it was. */
START_TEST(test_trim_base)
{
	struct pool_desc d = { .name = "based", .size = sizeof(struct thing), .max = 3000,
			       .ctor = things_again, .last = things_last };
	struct pool_cache c = { 0 };
	u64 had[3001] = { 0 };
	struct pool *p;
	u32 i, round, idx;

	ck_assert_int_eq(arena_create("based", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	for (round = 0; round < 4; round++) {
		for (i = 0; i < d.max; i++) {
			struct thing *t = pool_get(p, &c, &idx);

			MUST(t && t->value >= had[idx]);
			had[idx] = t->value += 1 + idx % 7;
		}
		put_all(p, &c, d.max);
		ck_assert_int_gt(trim(p), 0);
	}
	done();
}
END_TEST

/* The system does not take it: nothing is lost. */
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

START_TEST(test_trim_sizes)
{
	static const u32 sizes[] = { 16, 32, 80, 128, 240, 448, 6208, 98368, 786496 };
	struct pool_desc d = { .name = "sized", .size = sizes[_i], .max = 700 };
	u32 i, k, round, idx, n = 700 * 448 / sizes[_i] < 3 ? 20 : 700;
	struct pool_cache c = { 0 };
	struct pool *p;

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
		ck_assert_int_ge(trim(p), 0);
		ck_assert_uint_eq(pool_depot_count(p), pool_carved(p));
	}
	done();
}
END_TEST

/* The k-th request for memory fails, once or for good, for all k that there are. */
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

/* Can this process have so much more? */
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
	ck_assert_int_eq(arena_ready(arena, false), -ENOMEM);
	setrlimit(RLIMIT_AS, &old);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	done();
}
END_TEST

/* Threads */

#define NTHREADS 4

struct worker {
	pthread_t thread;
	struct pool *p;
	u32 me, rounds, got;
	u64 bad;
};

static void take_it(struct worker *w, struct thing *t, u32 idx)
{
	/* Relaxed and plain: the pool must order them, nobody else does. */
	if (load_relaxed(&t->owner) || t->idx != idx || load_relaxed(&t->built) != 1)
		w->bad++;
	store_relaxed(&t->owner, w->me);
	t->value = w->me;
}

static void leave_it(struct worker *w, struct thing *t)
{
	if (load_relaxed(&t->owner) != w->me || t->value != w->me)
		w->bad++;
	store_relaxed(&t->owner, 0);
}

static void *carve_all(void *arg)
{
	struct worker *w = arg;
	struct pool_cache c = { 0 };
	struct thing *t;
	u32 idx, last = 0;

	while ((t = pool_get(w->p, &c, &idx))) {
		if (idx <= last)
			w->bad++;
		last = idx;
		take_it(w, t, idx);
		w->got++;
	}
	pool_cache_flush(w->p, &c);
	return NULL;
}

static void run_threads(struct worker *w, void *(*fn)(void *), struct pool *p, u32 rounds)
{
	u32 i;

	for (i = 0; i < NTHREADS; i++) {
		w[i] = (struct worker){ .p = p, .me = i + 1, .rounds = rounds };
		ck_assert_int_eq(pthread_create(&w[i].thread, NULL, fn, &w[i]), 0);
	}
	for (i = 0; i < NTHREADS; i++) {
		pthread_join(w[i].thread, NULL);
		ck_assert_uint_eq(w[i].bad, 0);
	}
}

/* Four threads carve at once: each object once, ctor once, each sees rising indexes. */
START_TEST(test_threads_carve)
{
	u32 max = 200000, i, sum = 0;
	struct pool *p = make(max);
	struct worker w[NTHREADS];

	run_threads(w, carve_all, p, 0);
	for (i = 0; i < NTHREADS; i++)
		sum += w[i].got;
	ck_assert_uint_eq(sum, max);
	ck_assert_uint_eq(ctors, max);
	for (i = 1; i <= max; i++) {
		struct thing *t = pool_obj(p, i);

		MUST(t->built == 1);
		MUST(t->owner);
	}
	done();
}
END_TEST

static u32 rnd(u64 *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return (u32)(*s >> 32);
}

static void *mix(void *arg)
{
	struct worker *w = arg;
	struct pool_cache c = { 0 };
	u32 held[600], n = 0, i, target, idx;
	u64 seed = 0x9e3779b97f4a7c15ull * w->me;

	for (i = 0; i < w->rounds; i++) {
		target = rnd(&seed) % ARRAY_SIZE(held);
		while (n < target) {
			struct thing *t = pool_get(w->p, &c, &idx);

			if (!t)
				break;
			take_it(w, t, idx);
			held[n++] = idx;
		}
		while (n > target) {
			leave_it(w, pool_obj(w->p, held[--n]));
			pool_put(w->p, &c, held[n]);
		}
		if (rnd(&seed) % 16 == 0)
			pool_cache_flush(w->p, &c);
	}
	while (n) {
		leave_it(w, pool_obj(w->p, held[--n]));
		pool_put(w->p, &c, held[n]);
	}
	pool_cache_flush(w->p, &c);
	return NULL;
}

/* No object is given out twice; the cap is short, so the threads fight for it. */
START_TEST(test_threads_mix)
{
	struct pool *p = make(1500);
	struct worker w[NTHREADS];
	struct pool_stat s;

	run_threads(w, mix, p, SANITIZED ? 300 : 3000);
	ck_assert_uint_eq(pool_depot_count(p), pool_carved(p));
	pool_stat(p, &s);
	ck_assert_uint_eq(s.lost, 0);
	ck_assert_uint_eq(ctors, pool_carved(p));
	done();
}
END_TEST

/* Threads come and go; what they had comes back, and memory does not grow. */
START_TEST(test_threads_churn)
{
	struct pool *p = make(100000);
	struct worker w[NTHREADS];
	struct pool_stat s;
	u32 i;

	for (i = 0; i < (SANITIZED ? 30 : 200); i++) {
		run_threads(w, mix, p, 4);
		ck_assert_uint_eq(pool_depot_count(p), pool_carved(p));
	}
	pool_stat(p, &s);
	ck_assert_uint_eq(s.lost, 0);
	/* What they held at once, and what their caches kept from each other. */
	ck_assert_uint_le(s.carved, NTHREADS * (600 + 2 * POOL_MAG));
	ck_assert_uint_le(arena_bytes(arena), 1 << 20);
	done();
}
END_TEST

/* One object per thread, and flushes all the time: the magazines must suffice. */
START_TEST(test_threads_tiny)
{
	struct worker w[NTHREADS];
	struct pool_stat s;
	u32 max;

	for (max = 1; max <= 70; max += 3) {
		struct pool *p = make(max);

		run_threads(w, mix, p, 60);
		ck_assert_uint_eq(pool_depot_count(p), pool_carved(p));
		pool_stat(p, &s);
		ck_assert_uint_eq(s.lost, 0);
		ck_assert_uint_le(s.mags, max);
		done();
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pool");
	TCase *t = tcase_create("err");

	tcase_add_test(t, test_err);
	tcase_add_test(t, test_err_threads);
	suite_add_tcase(s, t);

	t = tcase_create("arena");
	tcase_add_test(t, test_bad_desc);
	tcase_add_test(t, test_not_ready);
	tcase_add_test(t, test_commit_steps);
	tcase_add_test(t, test_prefault);
	tcase_add_test(t, test_many_pools);
	tcase_add_test(t, test_large_caps);
	tcase_add_loop_test(t, test_fail_each, 0, 4);
	tcase_add_test(t, test_fail_step);
	if (!SANITIZED)
		tcase_add_test(t, test_rlimit);
	suite_add_tcase(s, t);

	t = tcase_create("magazine");
	tcase_add_test(t, test_address);
	tcase_add_test(t, test_ascending);
	tcase_add_loop_test(t, test_cap, 0, ARRAY_SIZE(caps));
	tcase_add_test(t, test_content_stays);
	tcase_add_test(t, test_small_pool_shared);
	tcase_add_test(t, test_no_thrash);
	tcase_add_test(t, test_flush_partial);
	tcase_add_test(t, test_flush_sizes);
	tcase_add_test(t, test_depot_count_broken);
	tcase_add_test(t, test_head_word);
	suite_add_tcase(s, t);

	t = tcase_create("trim");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, test_trim_gives_back, 0, ARRAY_SIZE(caps) + 1);
	tcase_add_test(t, test_trim_keeps_what_is_used);
	tcase_add_loop_test(t, test_trim_stopped_starves_nobody, 0, 2);
	tcase_add_test(t, test_trim_base);
	tcase_add_test(t, test_trim_refused);
	tcase_add_loop_test(t, test_trim_sizes, 0, 9);
	suite_add_tcase(s, t);

	t = tcase_create("threads");
	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_threads_carve);
	tcase_add_test(t, test_threads_mix);
	tcase_add_test(t, test_threads_churn);
	tcase_add_test(t, test_threads_tiny);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
