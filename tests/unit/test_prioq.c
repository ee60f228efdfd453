// SPDX-License-Identifier: Apache-2.0
/*
 * The priority queue keeps its order, loses nothing and leaks no memory, on one thread and
 * several.
 */
#include <pthread.h>
#include <sched.h>
#include "prioq_fixture.h"

static void sched_point(void)
{
}

static int refuse;

int pool_commit_hook(const char *what, size_t bytes)
{
	return refuse ? -ENOMEM : 0;
}

/* ---- sequential ---- */

enum dist { EQUAL, FEW, ANY32, RISING, FALLING, EXTREME, WIDE, DISTS };

static s64 draw(enum dist d, u64 *seed, u32 i)
{
	static const s64 edge[] = { INT32_MIN, INT32_MAX, 0, -1, 1, (s64)INT32_MIN - 1,
				    (s64)INT32_MAX + 1, INT64_MIN, INT64_MAX };
	u64 r = random_next(seed);

	switch (d) {
	case EQUAL: return 7;
	case FEW: return (s64)(r % 3) - 1;
	case ANY32: return (s32)r;
	case RISING: return i;
	case FALLING: return -(s64)i;
	case EXTREME: return edge[r % ARRAY_SIZE(edge)];
	default: return (s64)r;
	}
}

static int ent_cmp(const void *a, const void *b)
{
	const struct ent *x = a, *y = b;

	if (x->prio != y->prio)
		return x->prio > y->prio ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

/* Push n, pop n: the exact order. */
START_TEST(test_sorted)
{
	enum { N = 20000 };
	static const u32 sizes[] = { 1, 2, 3, 5, 17, 100, 1000, N };
	struct rig r = rig_make(N + 1);
	struct prioq_cache c = { .seed = 1 };
	struct ent *e = calloc(N, sizeof(*e));
	u64 seed = 42;
	s64 prio;

	for (u32 s = 0; s < ARRAY_SIZE(sizes); s++) {
		u32 n = sizes[s];

		for (u32 i = 0; i < n; i++) {
			/* Orders run up, down, and mixed. */
			u64 order = s % 3 == 0 ? i : s % 3 == 1 ? ~(u64)i :
				    (u64)i * 0x9e3779b97f4a7c15ull;

			e[i] = (struct ent){ draw((enum dist)_i, &seed, i), order, i + 1 };
			MUST(prioq_push(r.q, &c, e[i].prio, e[i].order, e[i].work));
		}
		MUST(check_structure(r.q) == n);
		qsort(e, n, sizeof(*e), ent_cmp);
		for (u32 i = 0; i < n; i++) {
			u64 order;

			MUST(prioq_peek(r.q, &prio, &order));
			MUST(prio == e[i].prio);
			MUST(order == e[i].order);
			prio = 0;
			MUST(prioq_pop(r.q, &c, &prio) == e[i].work);
			MUST(prio == e[i].prio);
		}
		MUST(prioq_pop(r.q, &c, &prio) == 0);
		MUST(!prioq_peek(r.q, &prio, &(u64){ 0 }));
		MUST(check_structure(r.q) == 0);
	}
	free(e);
	rig_break(&r);
}
END_TEST

/* Push and pop in random sequences, against the simplest queue there is. */
START_TEST(test_reference)
{
	enum { N = 200 };
	struct rig r = rig_make(N + 1);
	struct prioq_cache c = { .seed = 2 };
	struct ent e[N], got;
	u32 idle[N], nidle = N, n = 0, best, bias;
	u64 seed = 7 + (u64)_i, order;

	for (u32 i = 0; i < N; i++)
		idle[i] = i + 1;
	for (u32 i = 0; i < 100000; i++) {
		bias = i / 1000 % 3 + 1;	/* mostly full, in between, mostly empty */
		if (nidle && random_next(&seed) % 4 >= bias) {
			e[n] = (struct ent){ draw((enum dist)_i, &seed, i % 50), i,
					     idle[--nidle] };
			MUST(prioq_push(r.q, &c, e[n].prio, e[n].order, e[n].work));
			n++;
			continue;
		}
		best = 0;
		for (u32 j = 1; j < n; j++)
			if (ent_cmp(&e[j], &e[best]) < 0)
				best = j;
		MUST(prioq_peek(r.q, &got.prio, &order) == (n > 0));
		if (n) {
			MUST(got.prio == e[best].prio);
			MUST(order == e[best].order);
		}
		got.work = prioq_pop(r.q, &c, &got.prio);
		if (!n) {
			MUST(got.work == 0);
			continue;
		}
		MUST(got.work == e[best].work);
		MUST(got.prio == e[best].prio);
		idle[nidle++] = got.work;
		e[best] = e[--n];
		if (i % 1000 == 0)
			MUST(check_structure(r.q) == n);
	}
	rig_break(&r);
}
END_TEST

/* Equal priority and equal order: both are there, in either order. */
START_TEST(test_equal_keys)
{
	struct rig r = rig_make(100);
	struct prioq_cache c = { .seed = 3 };
	u64 seen[2] = { 0, 0 };
	s64 prio;
	u32 w;

	for (w = 1; w <= 64; w++)
		MUST(prioq_push(r.q, &c, w % 2, 5, w));
	for (u32 i = 0; i < 64; i++) {
		w = prioq_pop(r.q, &c, &prio);
		MUST(w && w % 2 == (u64)prio);
		MUST(prio == (i < 32));
		MUST(!(seen[w % 2] & 1ull << (w - 1)));
		seen[w % 2] |= 1ull << (w - 1);
	}
	MUST(prioq_pop(r.q, &c, &prio) == 0);
	rig_break(&r);
}
END_TEST

/* Errors and memory. */
START_TEST(test_limits)
{
	struct rig r = rig_make(10);
	struct prioq_cache c = { .seed = 4 };
	struct prioq *q = NULL;
	struct arena *a;
	struct pool *p;
	s64 prio;

	MUST(arena_create("limits", &a) == 0);
	MUST(prioq_pool_add(a, PRIOQ_NODES_MAX, 1, POOL_MAG, &p) == -EINVAL);
	MUST(prioq_pool_add(a, UINT32_MAX, UINT32_MAX, POOL_MAG, &p) == -EINVAL);
	refuse = 1;
	MUST(prioq_create(r.pool, &q) == -ENOMEM);
	/* The pool cannot grow: nothing is queued, and later it works. */
	MUST(!prioq_push(r.q, &c, 1, 1, 1));
	MUST(prioq_pop(r.q, &c, &prio) == 0);
	refuse = 0;
	MUST(prioq_push(r.q, &c, 1, 1, 1));
	MUST(prioq_pop(r.q, &c, &prio) == 1);
	prioq_destroy(NULL);
	arena_destroy(a);
	rig_break(&r);
}
END_TEST

/* ---- threads ---- */

#define WORKS_MAX	(1u << 20)

static struct {
	struct rig r;
	pthread_barrier_t barrier;
	u64 seed;
	u32 pushers, poppers, each, prios;
	u32 left;		/* A: entries that were not popped */
	u8 seen[WORKS_MAX];	/* A */
	s64 prio[WORKS_MAX];
	u64 order[WORKS_MAX];
	u64 stamp;		/* A */
} mt;

static void popped(u32 w, s64 prio)
{
	u8 was;

	MUST(w && w <= mt.pushers * mt.each);
	MUST(mt.prio[w] == prio);
	was = fetch_add_relaxed(&mt.seen[w], 1);
	MUST(was == 0);
	fetch_add_relaxed(&mt.left, -1u);
}

/* Pusher p has works p * each + 1 .. (p + 1) * each, in this order. */
static void *pusher(void *arg)
{
	u32 p = (u32)(uintptr_t)arg, i, w;
	struct prioq_cache c = { .seed = p + 10 };
	u64 seed = mt.seed + p;

	pthread_barrier_wait(&mt.barrier);
	for (i = 0; i < mt.each; i++) {
		w = p * mt.each + i + 1;
		mt.prio[w] = (s64)(random_next(&seed) % mt.prios);
		mt.order[w] = fetch_add_relaxed(&mt.stamp, 1);
		MUST(prioq_push(mt.r.q, &c, mt.prio[w], mt.order[w], w));
	}
	pool_cache_flush(mt.r.pool, &c.nodes);
	return NULL;
}

/*
 * Of one pusher and priority, each popper sees rising works: while a later one is
 * queued, so is the earlier one, or it was popped.
 */
static void *popper(void *arg)
{
	u32 id = (u32)(uintptr_t)arg, w, p;
	struct prioq_cache c = { .seed = id + 100 };
	u32 *last = calloc((size_t)mt.pushers * mt.prios, sizeof(*last));
	s64 prio, peek;
	u64 order;

	pthread_barrier_wait(&mt.barrier);
	while (load_relaxed(&mt.left)) {
		if (prioq_peek(mt.r.q, &peek, &order))
			MUST(peek >= 0 && peek < mt.prios);
		w = prioq_pop(mt.r.q, &c, &prio);
		if (!w)
			continue;
		popped(w, prio);
		p = (w - 1) / mt.each;
		MUST(w > last[p * mt.prios + prio]);
		last[p * mt.prios + prio] = w;
	}
	free(last);
	pool_cache_flush(mt.r.pool, &c.nodes);
	return NULL;
}

static void mt_start(u32 pushers, u32 poppers, u32 each, u32 prios)
{
	mt.r = rig_make(WORKS_MAX);
	mt.pushers = pushers;
	mt.poppers = poppers;
	mt.each = each;
	mt.prios = prios;
	mt.left = pushers * each;
	mt.seed = 1234 + prios;
	memset(mt.seen, 0, sizeof(mt.seen));
	MUST(pushers * each < WORKS_MAX);
}

START_TEST(test_threads)
{
	static const u32 conf[][3] = {	/* pushers, poppers, priorities */
		{ 1, 1, 1 }, { 1, 1, 1000000 }, { 2, 2, 1 }, { 2, 2, 3 }, { 2, 2, 1000 },
		{ 4, 1, 5 }, { 1, 4, 5 }, { 4, 4, 16 },
	};
	u32 a = conf[_i][0], b = conf[_i][1];
	pthread_t t[THREADS_MAX];
	u32 i;

	mt_start(a, b, (BRIEF ? 20000u : 100000u) / a, conf[_i][2]);
	pthread_barrier_init(&mt.barrier, NULL, a + b);
	for (i = 0; i < a + b; i++)
		MUST(pthread_create(&t[i], NULL, i < a ? pusher : popper,
						(void *)(uintptr_t)(i < a ? i : i - a)) == 0);
	for (i = 0; i < a + b; i++)
		pthread_join(t[i], NULL);
	MUST(check_structure(mt.r.q) == 0);
	for (i = 1; i <= a * mt.each; i++)
		MUST(mt.seen[i] == 1);
	MUST(pool_depot_count(mt.r.pool) == pool_carved(mt.r.pool));
	rig_break(&mt.r);
}
END_TEST

/* All push; then all pop: each popper sees falling priorities, and FIFO inside. */
static void *phase_popper(void *arg)
{
	struct prioq_cache c = { .seed = (u64)(uintptr_t)arg };
	struct ent last = { INT64_MAX, 0, 0 }, e;

	pthread_barrier_wait(&mt.barrier);
	while ((e.work = prioq_pop(mt.r.q, &c, &e.prio))) {
		popped(e.work, e.prio);
		e.order = mt.order[e.work];
		MUST(ent_cmp(&last, &e) <= 0);
		last = e;
	}
	pool_cache_flush(mt.r.pool, &c.nodes);
	return NULL;
}

START_TEST(test_phases)
{
	static const u32 conf[][2] = { { 1, 1 }, { 1, 100 }, { 4, 1 }, { 4, 3 }, { 4, 10000 } };
	u32 b = conf[_i][0], i;
	pthread_t t[THREADS_MAX];

	mt_start(4, b, BRIEF ? 5000 : 20000, conf[_i][1]);
	pthread_barrier_init(&mt.barrier, NULL, 4);
	for (i = 0; i < 4; i++)
		MUST(pthread_create(&t[i], NULL, pusher, (void *)(uintptr_t)i) == 0);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	MUST(check_structure(mt.r.q) == 4 * mt.each);
	pthread_barrier_destroy(&mt.barrier);
	pthread_barrier_init(&mt.barrier, NULL, b);
	for (i = 0; i < b; i++)
		MUST(pthread_create(&t[i], NULL, phase_popper, (void *)(uintptr_t)i) == 0);
	for (i = 0; i < b; i++)
		pthread_join(t[i], NULL);
	MUST(mt.left == 0);
	MUST(check_structure(mt.r.q) == 0);
	MUST(pool_depot_count(mt.r.pool) == pool_carved(mt.r.pool));
	rig_break(&mt.r);
}
END_TEST

/* Memory comes back: 10^6 operations with at most 8 entries. */
static void *churn(void *arg)
{
	u32 id = (u32)(uintptr_t)arg, i;
	struct prioq_cache c = { .seed = id };
	u64 seed = id;
	s64 prio;

	for (i = 0; i < (BRIEF ? 50000u : 250000u); i++) {
		MUST(prioq_push(mt.r.q, &c, (s64)(random_next(&seed) % 5), i, id * 2 + 1));
		MUST(prioq_push(mt.r.q, &c, (s64)(random_next(&seed) % 5), i, id * 2 + 2));
		MUST(prioq_pop(mt.r.q, &c, &prio));
		MUST(prioq_pop(mt.r.q, &c, &prio));
	}
	pool_cache_flush(mt.r.pool, &c.nodes);
	return NULL;
}

START_TEST(test_memory)
{
	pthread_t t[4];

	mt_start(1, 1, 1, 1);
	for (u32 i = 0; i < 4; i++)
		MUST(pthread_create(&t[i], NULL, churn, (void *)(uintptr_t)i) == 0);
	for (u32 i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	MUST(check_structure(mt.r.q) == 0);
	/* What four caches hold, and the entries. */
	MUST(pool_carved(mt.r.pool) <= 4 * 3 * POOL_MAG + 8);
	MUST(pool_depot_count(mt.r.pool) == pool_carved(mt.r.pool));
	rig_break(&mt.r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("prioq");
	TCase *tc = tcase_create("sequential");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_sorted, 0, DISTS);
	tcase_add_loop_test(tc, test_reference, 0, DISTS);
	tcase_add_test(tc, test_equal_keys);
	tcase_add_test(tc, test_limits);
	suite_add_tcase(s, tc);

	tc = tcase_create("threads");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_threads, 0, 8);
	tcase_add_loop_test(tc, test_phases, 0, 5);
	tcase_add_test(tc, test_memory);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
