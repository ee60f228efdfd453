/* SPDX-License-Identifier: Apache-2.0 */
/* pool/magazine.c: objects, magazines, caches, and many threads that use them. */
#include "pool_things.h"

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
	/* All but the bits for a trim. */
	ck_assert_uint_eq(s.bytes, arena_bytes(arena) - sides(pool_full(p)));
	ck_assert_uint_eq(s.mags, pool_full(p)->mag_carved - 1);
	ck_assert_uint_ge(s.mags, max / p->mag);
	ck_assert_uint_eq(s.vacant, 0);
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

/* Both magazines of a cache have 1/16 of the objects at most, but at least one each. */
START_TEST(test_magazines_are_small_in_small_pools)
{
	ck_assert_uint_eq(pool_mag(1), 1);
	ck_assert_uint_eq(pool_mag(63), 1);
	ck_assert_uint_eq(pool_mag(64), 2);
	ck_assert_uint_eq(pool_mag(2047), 63);
	ck_assert_uint_eq(pool_mag(2048), POOL_MAG);
	ck_assert_uint_eq(pool_mag(UINT32_MAX), POOL_MAG);
}
END_TEST

/* New objects of two threads share no cache line, since batches end at multiples of a magazine. */
START_TEST(test_batches_of_new_objects_end_on_multiples)
{
	struct pool *p = make(1000);
	struct pool_cache c[4] = { 0 };
	u32 i, idx;

	ck_assert_uint_eq(p->mag, 31);
	for (i = 0; i < 4; i++) {
		MUST(pool_get(p, &c[i], &idx));
		ck_assert_uint_eq(idx, i ? i * p->mag : 1);
		ck_assert_uint_eq(pool_carved(p), (i + 1) * p->mag - 1);
	}
	/* The next batch of a thread begins where the last batch of all ended. */
	for (i = 1; i < p->mag - 1; i++)
		MUST(pool_get(p, &c[0], &idx) && idx == i + 1);
	MUST(pool_get(p, &c[0], &idx) && idx == 4 * p->mag);
	done();
}
END_TEST

/* One thread's objects return in the opposite order, also through the depot. */
START_TEST(test_objects_freed_last_are_handed_out_first)
{
	struct pool *p = make(5000);
	struct pool_cache c = { 0 };
	u32 n = 7 * POOL_MAG + 5, i, idx;

	for (i = 0; i < n; i++)
		MUST(pool_get(p, &c, &idx));
	for (i = n; i; i--)
		pool_put(p, &c, i);
	for (i = 1; i <= n; i++)
		MUST(pool_get(p, &c, &idx) && idx == i);
	done();
}
END_TEST

/* Objects that another thread has returned come before those that were never handed out. */
START_TEST(test_returned_objects_come_before_new_ones)
{
	struct pool *p = make(5000);
	struct pool_cache c = { 0 }, other = { 0 };
	u32 held[3 * POOL_MAG], n, i, idx, carved;

	/* A magazine that is not full, then those that are full. */
	for (n = 1; n <= 3 * POOL_MAG; n += 3 * POOL_MAG - 1) {
		for (i = 0; i < n; i++)
			MUST(pool_get(p, &c, &held[i]));
		for (i = 0; i < n; i++)
			pool_put(p, &c, held[i]);
		pool_cache_flush(p, &c);
		carved = pool_carved(p);
		for (i = 0; i < carved; i++)
			MUST(pool_get(p, &other, &idx) && idx <= carved);
		ck_assert_uint_eq(pool_carved(p), carved);
		for (i = 1; i <= carved; i++)
			pool_put(p, &other, i);
		pool_cache_flush(p, &other);
	}
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
	u8 seen[2049];

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
			memset(seen, 0, sizeof(seen));
			for (i = 0; i < 2048; i++)
				MUST(pool_get(p, &c, &idx) && !seen[idx]++);
			done();
		}
}
END_TEST

START_TEST(test_magazines_beyond_the_spare_ones_are_committed)
{
	u32 n = 48 * POOL_MAG, i, idx;
	struct pool *p = make(200000);
	struct pool_full *f = pool_full(p);
	struct pool_cache c = { 0 };

	MUST(n > 2 * POOL_MAG_SPARE);
	for (i = 0; i < n; i++)
		MUST(pool_get(p, &c, &idx));
	/* As many threads would that are inside a slow path at once. */
	for (idx = 1; idx <= n; idx++)
		mag_put(f, &f->partial, &idx, 1);
	ck_assert_uint_gt(load_relaxed(&f->mag_carved), n);
	ck_assert_uint_eq(load_relaxed(&f->lost), 0);
	pool_cache_flush(p, &c);
	ck_assert_uint_eq(pool_depot_count(p), pool_carved(p));
	done();
}
END_TEST

/*
 * All objects are free, as many as possible of them in full magazines, and one each in a partial
 * one per thread that left and two per thread inside a slow path, for 2047 threads.
 */
START_TEST(test_magazines_suffice_for_all_threads_of_an_engine)
{
	u32 threads = 2047, max = 200000, singles = 4 * threads, i, k, idx[POOL_MAG];
	struct pool *p = make(max);
	struct pool_full *f = pool_full(p);
	struct pool_cache c = { 0 };
	struct pool_stat s;

	for (i = 0; i < max; i++)
		MUST(pool_get(p, &c, &idx[0]));
	for (i = 1; i <= singles; i++)
		mag_put(f, &f->partial, &i, 1);
	while (i <= max) {
		for (k = 0; k < POOL_MAG && i <= max; k++)
			idx[k] = i++;
		mag_put(f, k == POOL_MAG ? &f->full : &f->partial, idx, k);
	}
	pool_stat(p, &s);
	ck_assert_uint_eq(s.lost, 0);
	ck_assert_uint_eq(pool_depot_count(p), max);
	done();
}
END_TEST

/* Without any further memory, POOL_MAG_SPARE threads can return one object each. */
START_TEST(test_memory_of_spare_magazines_is_committed_before_the_objects)
{
	static const u32 gets[] = { 1, 100, 100000 };
	u32 n = gets[_i], i, idx[POOL_MAG];
	struct pool *p = make(200000);
	struct pool_full *f = pool_full(p);
	struct pool_cache c = { 0 };

	ck_assert_uint_ge(f->mag.committed, (POOL_MAG_SPARE + 1) * sizeof(struct pool_mag));
	for (i = 0; i < n; i++)
		MUST(pool_get(p, &c, &idx[i % POOL_MAG]));
	ck_assert_uint_ge(f->mag.committed,
			  (n / POOL_MAG + POOL_MAG_SPARE + 1) * sizeof(struct pool_mag));
	done();
}
END_TEST

/* Objects are returned without memory, however few a magazine holds. */
START_TEST(test_a_return_needs_no_memory)
{
	static const u32 mags[] = { 1, 4, 16, POOL_MAG };
	struct pool_desc d = { .name = "back", .size = 16, .max = 20000, .mag = mags[_i] };
	struct pool_cache c = { 0 };
	u32 i, idx, held[3];
	struct pool_stat s;
	struct pool *p;

	ck_assert_int_eq(arena_create("back", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	ck_assert_uint_eq(p->mag, mags[_i]);
	for (i = 0; i < d.max; i++)
		MUST(pool_get(p, &c, &idx));
	faults(NULL, 1, true);
	/* By one thread, and by many that leave. */
	for (i = 1; i <= d.max / 2; i++)
		pool_put(p, &c, i);
	pool_cache_flush(p, &c);
	for (; i <= d.max; i++) {
		pool_put(p, &c, i);
		pool_cache_flush(p, &c);
	}
	for (i = 0; i < 3; i++)
		MUST(pool_get(p, &c, &held[i]));
	while (i--)
		pool_put(p, &c, held[i]);
	pool_cache_flush(p, &c);
	faults(NULL, 0, false);
	pool_stat(p, &s);
	ck_assert_uint_eq(s.lost, 0);
	ck_assert_uint_eq(pool_depot_count(p), d.max);
	ck_assert_uint_eq(c.gets, c.puts);
	done();
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
	f->mags[m].idx[0] = 2049;
	ck_assert_uint_eq(pool_depot_count(p), UINT32_MAX);
	f->mags[m].idx[0] = 2048;
	ck_assert_uint_ne(pool_depot_count(p), UINT32_MAX);
	f->mags[m].n = 0;
	ck_assert_uint_eq(pool_depot_count(p), UINT32_MAX);
	f->mags[m].n = p->mag + 1;
	ck_assert_uint_eq(pool_depot_count(p), UINT32_MAX);
	f->mags[m].n = 5;
	f->mags[m].link.next = m;
	ck_assert_uint_eq(pool_depot_count(p), UINT32_MAX);
	f->mags[m].link.next = f->mag_carved;
	ck_assert_uint_eq(pool_depot_count(p), UINT32_MAX);
	done();
}
END_TEST

/* The count covers full and partial magazines, and detects corrupt ones of both kinds. */
START_TEST(test_depot_count_checks_full_and_partial_magazines)
{
	struct pool *p = make(5000);
	struct pool_full *f = pool_full(p);
	struct pool_cache c = { 0 };
	u32 i, idx, full, part;

	for (i = 0; i < 3 * POOL_MAG - 1; i++)
		MUST(pool_get(p, &c, &idx));
	for (i = 0; i < 2 * POOL_MAG; i++)
		pool_put(p, &c, i + 1);
	pool_cache_flush(p, &c);
	for (i = 0; i < 9; i++)
		pool_put(p, &c, 2 * POOL_MAG + i + 1);
	pool_cache_flush(p, &c);
	full = head_idx(f->full);
	part = head_idx(f->partial);
	MUST(full && part && f->mags[full].link.next && !f->mags[part].link.next);
	ck_assert_uint_eq(pool_depot_count(p), 2 * POOL_MAG + 9);

	f->mags[full].n = p->mag - 1;
	ck_assert_uint_eq(pool_depot_count(p), UINT32_MAX);
	f->mags[full].n = p->mag;
	ck_assert_uint_eq(pool_depot_count(p), 2 * POOL_MAG + 9);
	/* A magazine that is full is not a partial one. */
	for (i = 9; i < p->mag; i++)
		f->mags[part].idx[i] = 1;
	f->mags[part].n = p->mag - 1;
	ck_assert_uint_eq(pool_depot_count(p), 3 * POOL_MAG - 1);
	f->mags[part].n = p->mag;
	ck_assert_uint_eq(pool_depot_count(p), UINT32_MAX);
	f->mags[part].n = 9;
	idx = f->mags[part].idx[8];
	f->mags[part].idx[8] = 0;
	ck_assert_uint_eq(pool_depot_count(p), UINT32_MAX);
	f->mags[part].idx[8] = idx;
	/* Magazines that are not the first one. */
	full = f->mags[full].link.next;
	idx = f->mags[full].idx[p->mag - 1];
	f->mags[full].idx[p->mag - 1] = p->max + 1;
	ck_assert_uint_eq(pool_depot_count(p), UINT32_MAX);
	f->mags[full].idx[p->mag - 1] = idx;
	ck_assert_uint_eq(pool_depot_count(p), 2 * POOL_MAG + 9);
	done();
}
END_TEST

/* Without a magazine, objects are lost rather than handed out twice, and they are counted. */
START_TEST(test_objects_without_a_magazine_are_counted)
{
	u32 n = 5 * POOL_MAG, i, idx, full, held[5 * POOL_MAG];
	struct pool *p = make(5000);
	struct pool_full *f = pool_full(p);
	struct pool_cache c = { 0 }, other = { 0 };
	struct pool_stat s;

	for (i = 0; i < POOL_MAG; i++)
		MUST(pool_get(p, &c, &idx));
	while (c.n)
		MUST(pool_get(p, &c, &idx));
	for (i = 0; i < n; i++)
		MUST(pool_get(p, &other, &held[i]));
	for (i = 1; i <= POOL_MAG; i++)
		pool_put(p, &c, i);
	mag_put(f, &f->full, c.cur, POOL_MAG);
	c.n = 0;
	full = head_idx(f->full);
	f->nmags = load_relaxed(&f->mag_carved) - 1;
	while (mag_pop(f, &f->empty))
		;
	for (i = 0; i < n; i++)
		pool_put(p, &c, held[i]);
	pool_stat(p, &s);
	ck_assert_uint_eq(s.lost, n - 2 * POOL_MAG);
	/* Those in the depot and in the cache are as before. */
	ck_assert_uint_eq(head_idx(f->full), full);
	ck_assert_uint_eq(pool_depot_count(p), POOL_MAG);
	for (i = 0; i < 2 * POOL_MAG; i++)
		MUST(pool_get(p, &c, &idx) && idx == held[n - 1 - i]);
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
	/* The tag wraps without changing the index. */
	ck_assert_uint_eq(head_next(last, 7), 7);
	ck_assert_uint_eq(head_idx(head_next(last, MAG_IDX_MAX)), MAG_IDX_MAX);
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
	/* Relaxed and plain: only the pool orders them. */
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

/* No object is allocated twice; the maximum is small, so the threads compete for objects. */
START_TEST(test_threads_mix)
{
	struct pool *p = make(1500);
	struct worker w[NTHREADS];
	struct pool_stat s;

	run_threads(w, mix, p, BRIEF ? 300 : 3000);
	ck_assert_uint_eq(pool_depot_count(p), pool_carved(p));
	pool_stat(p, &s);
	ck_assert_uint_eq(s.lost, 0);
	ck_assert_uint_eq(ctors, pool_carved(p));
	done();
}
END_TEST

/* Threads begin and end; their objects return, and memory does not grow. */
START_TEST(test_threads_churn)
{
	struct pool *p = make(100000);
	struct worker w[NTHREADS];
	struct pool_stat s;
	u32 i;

	for (i = 0; i < (BRIEF ? 30 : 200); i++) {
		run_threads(w, mix, p, 4);
		ck_assert_uint_eq(pool_depot_count(p), pool_carved(p));
	}
	pool_stat(p, &s);
	ck_assert_uint_eq(s.lost, 0);
	/* The objects that they held at once, and those in their caches. */
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
	TCase *t = tcase_create("magazine");

	tcase_add_test(t, test_address);
	tcase_add_test(t, test_ascending);
	tcase_add_loop_test(t, test_cap, 0, ARRAY_SIZE(caps));
	tcase_add_test(t, test_content_stays);
	tcase_add_test(t, test_small_pool_shared);
	tcase_add_test(t, test_magazines_are_small_in_small_pools);
	tcase_add_test(t, test_batches_of_new_objects_end_on_multiples);
	tcase_add_test(t, test_objects_freed_last_are_handed_out_first);
	tcase_add_test(t, test_returned_objects_come_before_new_ones);
	tcase_add_test(t, test_no_thrash);
	tcase_add_test(t, test_flush_partial);
	tcase_add_test(t, test_flush_sizes);
	tcase_add_test(t, test_magazines_beyond_the_spare_ones_are_committed);
	tcase_add_test(t, test_magazines_suffice_for_all_threads_of_an_engine);
	tcase_add_loop_test(t, test_memory_of_spare_magazines_is_committed_before_the_objects,
			    0, 3);
	tcase_add_loop_test(t, test_a_return_needs_no_memory, 0, 4);
	tcase_add_test(t, test_depot_count_broken);
	tcase_add_test(t, test_depot_count_checks_full_and_partial_magazines);
	/* With CONFIG_DEBUG_ENGINE an assertion fails first. */
	if (!CONFIG_DEBUG_ENGINE)
		tcase_add_test(t, test_objects_without_a_magazine_are_counted);
	tcase_add_test(t, test_head_word);
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
