// SPDX-License-Identifier: Apache-2.0
/*
 * The priority queue: order, nothing lost, memory, progress, and all interleavings of
 * small programs.
 *
 * The interleaving check compiles exec/prioq.c once more, under other names and with a
 * scheduling point before each atomic access, and runs its threads as fibers on one
 * thread: depth first with a bound on preemptions, then at random.  Each history is
 * compared with all orders that its calls allow (linearizability).
 *
 * The progress check stops a push, pop or peek after each of its instructions in turn
 * (trap flag); the handler then plays the other threads, on the same queue.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <base/err.h>
#include <base/random.h>
#include <exec/prioq.h>

#include "must.h"
#include "suite.h"

/* The second copy: same layout, a hook in each atomic access. */
static void sched_point(void);
static u64 plain_load_relaxed(const u64 *p) { return load_relaxed(p); }
static u64 plain_load_acquire(const u64 *p) { return load_acquire(p); }
static u32 plain_load_relaxed32(const u32 *p) { return load_relaxed(p); }
static void plain_store_release(u64 *p, u64 v) { store_release(p, v); }
static u32 plain_fetch_add32(u32 *p, u32 v) { return fetch_add_acq_rel(p, v); }
static bool plain_cas(u64 *p, u64 *old, u64 v) { return cas_acq_rel_acquire(p, old, v); }

int hooked_pool_add(struct arena *a, u32 max_work, u32 max_threads, struct pool **out);
int hooked_create(struct pool *nodes, struct prioq **out);
void hooked_destroy(struct prioq *q);
bool hooked_push(struct prioq *q, struct prioq_cache *c, s64 prio, u64 order, u32 work);
u32 hooked_pop(struct prioq *q, struct prioq_cache *c, s64 *prio);
u32 hooked_pop_this(struct prioq *q, struct prioq_cache *c, s64 prio, u64 order);
bool hooked_peek(struct prioq *q, s64 *prio, u64 *order);

#define prioq_pool_add	hooked_pool_add
#define prioq_create	hooked_create
#define prioq_destroy	hooked_destroy
#define prioq_push	hooked_push
#define prioq_pop	hooked_pop
#define prioq_pop_this	hooked_pop_this
#define prioq_peek	hooked_peek
#pragma push_macro("load_relaxed")
#pragma push_macro("load_acquire")
#pragma push_macro("store_release")
#pragma push_macro("fetch_add_acq_rel")
#pragma push_macro("cas_acq_rel_relaxed")
#pragma push_macro("cas_acq_rel_acquire")
#undef load_relaxed
#undef load_acquire
#undef store_release
#undef fetch_add_acq_rel
#undef cas_acq_rel_relaxed
#undef cas_acq_rel_acquire
#define load_relaxed(p) (sched_point(), _Generic((p), \
	u32 *: plain_load_relaxed32, u64 *: plain_load_relaxed)(p))
#define load_acquire(p)			(sched_point(), plain_load_acquire(p))
#define store_release(p, v)		(sched_point(), plain_store_release(p, v))
#define fetch_add_acq_rel(p, v)		(sched_point(), plain_fetch_add32(p, v))
#define cas_acq_rel_relaxed(p, old, v)	(sched_point(), plain_cas(p, old, v))
#define cas_acq_rel_acquire(p, old, v)	(sched_point(), plain_cas(p, old, v))
#ifndef PRIOQ_SOURCE
#define PRIOQ_SOURCE "../../exec/prioq.c"
#endif
#include PRIOQ_SOURCE
#pragma pop_macro("load_relaxed")
#pragma pop_macro("load_acquire")
#pragma pop_macro("store_release")
#pragma pop_macro("fetch_add_acq_rel")
#pragma pop_macro("cas_acq_rel_relaxed")
#pragma pop_macro("cas_acq_rel_acquire")
#undef prioq_pool_add
#undef prioq_create
#undef prioq_destroy
#undef prioq_push
#undef prioq_pop
#undef prioq_pop_this
#undef prioq_peek

#define THREADS_MAX 8u

struct rig {
	struct arena *arena;
	struct pool *pool;
	struct prioq *q;
};

static int refuse;

int pool_commit_hook(const char *what, size_t bytes)
{
	return refuse ? -ENOMEM : 0;
}

static struct rig rig_make(u32 max_work)
{
	struct rig r;

	MUST(arena_create("test", &r.arena) == 0);
	MUST(prioq_pool_add(r.arena, max_work, THREADS_MAX, &r.pool) == 0);
	MUST(arena_ready(r.arena, false) == 0);
	MUST(prioq_create(r.pool, &r.q) == 0);
	return r;
}

static void rig_break(struct rig *r)
{
	prioq_destroy(r->q);
	arena_destroy(r->arena);
}

/*
 * Nobody uses q: every level is sorted, without marks, and its nodes are in the level
 * below.  Returns the number of entries.
 */
static u32 check_structure(struct prioq *q)
{
	struct prioq_node *x, *b, *prev;
	u32 count = 0, l, n;

	for (l = 0; l < LEVELS; l++) {
		b = &q->head;
		prev = NULL;
		n = 0;
		MUST(!link_marked(q->head.next[l]));
		for (u64 w = q->head.next[l]; link_idx(w); w = x->next[l]) {
			x = node(q, link_idx(w));
			n++;
			MUST(!link_marked(x->next[l]));
			MUST(x->hold >> HOLD_HEIGHT > l);
			if (prev)
				MUST(prev->rank < x->rank || (prev->rank == x->rank &&
					  (prev->order < x->order ||
					   (prev->order == x->order && prev < x))));
			prev = x;
			if (!l)
				continue;
			while (b != x) {
				MUST(link_idx(b->next[l - 1]));
				b = node(q, link_idx(b->next[l - 1]));
			}
		}
		if (l == 0)
			count = n;
		if (l > q->top)
			MUST(n == 0);
	}
	return count;
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

struct ent {
	s64 prio;
	u64 order;
	u32 work;
};

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
			e[n] = (struct ent){ draw((enum dist)_i, &seed, i % 50), i, idle[--nidle] };
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
	MUST(prioq_pool_add(a, PRIOQ_NODES_MAX, 1, &p) == -EINVAL);
	MUST(prioq_pool_add(a, UINT32_MAX, UINT32_MAX, &p) == -EINVAL);
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
	u32 left;		/* A: entries that nobody has popped */
	u8 seen[WORKS_MAX];	/* A */
	s64 prio[WORKS_MAX];
	u64 order[WORKS_MAX];
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
		mt.order[w] = cycles();
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

	mt_start(a, b, (SANITIZED ? 20000u : 100000u) / a, conf[_i][2]);
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

	mt_start(4, b, SANITIZED ? 5000 : 20000, conf[_i][1]);
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

	for (i = 0; i < (SANITIZED ? 50000u : 250000u); i++) {
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

/* ---- interleavings ---- */

#ifndef __SANITIZE_THREAD__

static u64 now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (u64)t.tv_sec * 1000000000u + (u64)t.tv_nsec;
}

#define FIBERS	4u
#define OPS_MAX	16u
#define STACK	(64u << 10)

enum what { END, PUSH, POP, PEEK };

struct op {
	enum what what;
	s64 prio;
	u32 height;		/* of a push */
};

/* A pop that gets something may come first to make a push use its node again. */
struct scenario {
	const char *name;
	struct op init[6];	/* by one thread, before */
	struct op script[FIBERS][4];
	u32 bound;		/* preemptions that are tried exhaustively */
};

#define PU(p, h)	{ PUSH, p, h }
#define PO		{ POP, 0, 0 }
#define PK		{ PEEK, 0, 0 }
#define EN		{ END, 0, 0 }

static const struct scenario scenarios[] = {
	{ "two pushes, two pops, one level", { EN },
	  { { PU(1, 1), PO }, { PU(2, 1), PO } }, 3 },
	{ "two pushes, two pops, two levels", { EN },
	  { { PU(1, 2), PO }, { PU(2, 2), PO } }, 3 },
	{ "push of two levels against pop and push again", { EN },
	  { { PU(1, 3) }, { PO, PU(2, 2), PO } }, 3 },
	{ "stale pop", { PU(3, 1), PU(1, 1) },
	  { { PO }, { PO, PU(2, 1), PO } }, 3 },
	{ "stale pop, high nodes", { PU(3, 2), PU(1, 2) },
	  { { PO }, { PO, PU(2, 2), PO } }, 3 },
	{ "walk over nodes that are recycled", { PU(5, 2), PU(4, 1), PU(3, 2) },
	  { { PU(1, 2) }, { PO, PO, PU(2, 2), PO } }, 3 },
	{ "walk over nodes that come back behind it", { PU(5, 1), PU(4, 1), PU(3, 1) },
	  { { PU(2, 1) }, { PO, PO, PU(1, 1), PU(1, 1) } }, 3 },
	{ "three poppers", { PU(3, 2), PU(2, 1), PU(1, 2) },
	  { { PO }, { PO }, { PO } }, 3 },
	{ "peek", { PU(3, 1), PU(1, 1) },
	  { { PK, PK }, { PO, PU(2, 1), PO } }, 3 },
	{ "peek of the empty queue", { EN },
	  { { PK, PK }, { PU(2, 2), PO }, { PO } }, 2 },
	{ "pusher, popper, pusher", { PU(4, 3) },
	  { { PU(1, 3) }, { PO, PO }, { PU(2, 2) } }, 2 },
	{ "equals", { PU(1, 1) },
	  { { PU(1, 2), PO }, { PU(1, 2), PO }, { PO } }, 2 },
	{ "pred is pushed again, not linked yet", { PU(5, 1) },
	  { { PU(1, 1), PO }, { PO, PU(2, 1) } }, 3 },
	{ "pred is pushed again, not linked yet, high nodes", { PU(5, 2) },
	  { { PU(1, 2), PO }, { PO, PU(2, 2) } }, 3 },
	{ "pred comes back behind the key", { PU(5, 1) },
	  { { PU(1, 1), EN }, { PO, PU(0, 1) } }, 3 },
	{ "pred comes back behind the key, high nodes", { PU(5, 2) },
	  { { PU(1, 2), EN }, { PO, PU(0, 2) } }, 3 },
	{ "popped, but not the first any more", { PU(1, 1) },
	  { { PO, PU(0, 1), PO }, { PU(5, 1) } }, 3 },
	{ "popped while it is linked, and not the first any more", { EN },
	  { { PU(1, 2), PU(0, 1), PO }, { PO }, { PU(5, 1) } }, 2 },
	{ "late help", { PU(9, 2), PU(4, 2) },
	  { { PU(6, 1) }, { PO, PO, PU(8, 2), PU(7, 2) } }, 3 },
	{ "equal keys", { PU(9, 1), PO, PU(1, 1) },
	  { { PO, PU(0, 1), PO }, { PU(1, 1) } }, 3 },
	{ "equal keys, high nodes", { PU(9, 1), PO, PU(1, 2) },
	  { { PO, PU(0, 2), PO }, { PU(1, 2) } }, 3 },
	{ "four", { PU(5, 2), PU(1, 2) },
	  { { PO, PU(2, 2), PO }, { PU(3, 2), PO }, { PO, PU(6, 1) },
	    { PK, PO } }, 1 },
};

static void fiber(void);

/* Contexts: no system call where we can do without, as ucontext makes two. */
#if defined(__x86_64__)

struct ctx {
	void *sp;
};

void prioq_test_switch(void **save, void *load);
__asm__(".text\n"
	".globl prioq_test_switch\n"
	".type prioq_test_switch, @function\n"
	"prioq_test_switch:\n\t"
	"push %rbp\n\tpush %rbx\n\tpush %r12\n\tpush %r13\n\tpush %r14\n\tpush %r15\n\t"
	"mov %rsp, (%rdi)\n\tmov %rsi, %rsp\n\t"
	"pop %r15\n\tpop %r14\n\tpop %r13\n\tpop %r12\n\tpop %rbx\n\tpop %rbp\n\tret\n"
	".size prioq_test_switch, . - prioq_test_switch\n");

static void ctx_make(struct ctx *c, char *stack)
{
	/* Six registers, the entry, and a frame that is aligned as after a call. */
	void **sp = (void **)(void *)(stack + STACK) - 8;

	memset(sp, 0, 8 * sizeof(*sp));
	sp[6] = (void *)(uintptr_t)fiber;
	c->sp = sp;
}

static void ctx_switch(struct ctx *from, struct ctx *to)
{
	prioq_test_switch(&from->sp, to->sp);
}

#else

struct ctx {
	ucontext_t uc;
};

static void ctx_make(struct ctx *c, char *stack)
{
	getcontext(&c->uc);
	c->uc.uc_stack.ss_sp = stack;
	c->uc.uc_stack.ss_size = STACK;
	c->uc.uc_link = NULL;
	makecontext(&c->uc, fiber, 0);
}

static void ctx_switch(struct ctx *from, struct ctx *to)
{
	swapcontext(&from->uc, &to->uc);
}

#endif

struct call {
	enum what what;
	s64 prio;
	u64 order;
	u32 work;		/* pushed, or the result */
	u32 start, end;
};

static struct {
	struct rig r;
	struct ctx ctx[FIBERS + 1];	/* the last one: who starts them */
	char *stack[FIBERS];
	const struct scenario *sc;
	struct prioq_cache cache[FIBERS + 1];
	u64 seeds[FIBERS + 1];
	int cur;		/* -1: no scheduling */
	u32 nfib, alive;	/* alive: bit mask */
	u32 time, steps, works;
	struct call call[32];
	u32 ncalls;
	/* Choices of this run, and how many there were. */
	u8 pick[4096], of[4096];
	u32 depth, replay, bound, used;
	bool random;
	u64 seed;
} sx;

/* A seed from which new_height() gives these heights. */
static u64 seed_for(const struct op *ops, u32 n)
{
	struct prioq_cache c;

	for (u64 seed = 1;; seed++) {
		bool ok = true;

		c.seed = seed;
		for (u32 i = 0; ok && i < n && ops[i].what != END; i++)
			if (ops[i].what == PUSH)
				ok = new_height(&c) == ops[i].height;
		if (ok)
			return seed;
	}
}

/* The next fiber; stay: the running one may go on. */
static int choose(bool stay)
{
	u32 alt[FIBERS], n = 0, c;

	if (stay)
		alt[n++] = (u32)sx.cur;
	if (!stay || sx.random || sx.used < sx.bound)
		for (u32 f = 0; f < sx.nfib; f++)
			if (sx.alive & 1u << f && (int)f != sx.cur)
				alt[n++] = f;
	if (n == 1)
		return (int)alt[0];
	if (sx.random) {
		if (stay && random_next(&sx.seed) % 6)
			return (int)alt[0];
		return (int)alt[random_next(&sx.seed) % n];
	}
	MUST(sx.depth < sizeof(sx.pick));
	c = sx.depth < sx.replay ? sx.pick[sx.depth] : 0;
	sx.pick[sx.depth] = (u8)c;
	sx.of[sx.depth++] = (u8)n;
	if (stay && c)
		sx.used++;
	return (int)alt[c];
}

static void sched_point(void)
{
	int me = sx.cur, next;

	if (me < 0)
		return;
	MUST(++sx.steps < 20000);		/* livelock? */
	sx.time++;
	next = choose(true);
	if (next == me)
		return;
	sx.cur = next;
	ctx_switch(&sx.ctx[me], &sx.ctx[next]);
}

static void do_op(const struct op *op, struct prioq_cache *c)
{
	struct call *l = &sx.call[sx.ncalls++];
	s64 prio = 0;
	u64 order = 0;

	*l = (struct call){ .what = op->what, .prio = op->prio, .start = ++sx.time };
	switch (op->what) {
	case PUSH:
		l->work = ++sx.works;
		/* Orders collide now and then. */
		l->order = l->work / 2;
		if (!hooked_push(sx.r.q, c, l->prio, l->order, l->work))
			abort();
		break;
	case POP:
		l->work = hooked_pop(sx.r.q, c, &prio);
		l->prio = prio;
		break;
	default:
		l->work = hooked_peek(sx.r.q, &prio, &order);
		l->prio = prio;
		l->order = order;
	}
	l->end = ++sx.time;
}

static void fiber(void)
{
	u32 f = (u32)sx.cur;

	for (u32 i = 0; i < 4 && sx.sc->script[f][i].what != END; i++)
		do_op(&sx.sc->script[f][i], &sx.cache[f]);
	sx.alive &= ~(1u << f);
	if (!sx.alive) {
		sx.cur = -1;
		ctx_switch(&sx.ctx[f], &sx.ctx[FIBERS]);
	}
	sx.cur = choose(false);
	ctx_switch(&sx.ctx[f], &sx.ctx[sx.cur]);
	abort();
}

/* Is there an order of the calls, within their times, that one thread could have made? */
static bool legal(u32 done, u32 queued)
{
	u32 first_end = UINT32_MAX, best = 0;
	struct call *l;

	if (done == (1u << sx.ncalls) - 1)
		return !queued;
	for (u32 i = 0; i < sx.ncalls; i++)
		if (!(done & 1u << i))
			first_end = (u32)min_u(first_end, sx.call[i].end);
	for (u32 i = 0; i < sx.ncalls; i++) {
		l = &sx.call[i];
		if (!(queued & 1u << i))
			continue;
		if (!best || l->prio > sx.call[best - 1].prio ||
		    (l->prio == sx.call[best - 1].prio && l->order < sx.call[best - 1].order))
			best = i + 1;
	}
	for (u32 i = 0; i < sx.ncalls; i++) {
		const struct call *b = best ? &sx.call[best - 1] : NULL;

		l = &sx.call[i];
		if (done & 1u << i || l->start > first_end)
			continue;
		if (l->what == PUSH) {
			if (legal(done | 1u << i, queued | 1u << i))
				return true;
			continue;
		}
		if (!l->work) {
			if (!b && legal(done | 1u << i, queued))
				return true;
			continue;
		}
		if (!b || b->prio != l->prio)
			continue;
		if (l->what == PEEK) {
			if (b->order == l->order && legal(done | 1u << i, queued))
				return true;
			continue;
		}
		for (u32 j = 0; j < sx.ncalls; j++)
			if (queued & 1u << j && sx.call[j].work == l->work &&
			    sx.call[j].prio == b->prio && sx.call[j].order == b->order &&
			    legal(done | 1u << i, queued & ~(1u << j)))
				return true;
	}
	return false;
}

static void sx_print(void)
{
	static const char *const name[] = { "", "push", "pop", "peek" };

	fprintf(stderr, "%s, seed %llx, depth %u:", sx.sc->name, (unsigned long long)sx.seed,
		sx.depth);
	for (u32 i = 0; i < sx.depth; i++)
		fprintf(stderr, " %u", sx.pick[i]);
	for (u32 i = 0; i < sx.ncalls; i++)
		fprintf(stderr, "\n  %3u..%3u %s %lld/%llu: %u", sx.call[i].start, sx.call[i].end,
			name[sx.call[i].what], (long long)sx.call[i].prio,
			(unsigned long long)sx.call[i].order, sx.call[i].work);
	fprintf(stderr, "\n");
}

static void one_run(void)
{
	static const struct op drain = PO;

	memset(&sx.r.q->head, 0, sizeof(sx.r.q->head));
	sx.r.q->top = 0;
	/* Each cache has 8 nodes of its own; the first is the last that was put. */
	memset(pool_obj(sx.r.pool, 1), 0, 8u * (FIBERS + 1) * sizeof(struct prioq_node));
	for (u32 f = 0; f <= FIBERS; f++) {
		memset(&sx.cache[f].nodes, 0, sizeof(sx.cache[f].nodes));
		sx.cache[f].nodes.n = 8;
		for (u32 i = 0; i < 8; i++)
			sx.cache[f].nodes.cur[i] = 1 + f * 8 + i;
		sx.cache[f].seed = sx.seeds[f];
	}
	sx.ncalls = sx.time = sx.steps = sx.works = sx.depth = sx.used = 0;
	sx.cur = -1;
	for (u32 i = 0; i < 6 && sx.sc->init[i].what != END; i++)
		do_op(&sx.sc->init[i], &sx.cache[FIBERS]);
	sx.nfib = 0;
	for (u32 f = 0; f < FIBERS; f++) {
		if (sx.sc->script[f][0].what == END)
			break;
		ctx_make(&sx.ctx[f], sx.stack[f]);
		sx.nfib++;
	}
	sx.alive = (1u << sx.nfib) - 1;
	sx.cur = choose(false);
	ctx_switch(&sx.ctx[FIBERS], &sx.ctx[sx.cur]);

	check_structure(sx.r.q);
	for (u32 n = 0; n < 32; n++) {
		do_op(&drain, &sx.cache[0]);
		if (!sx.call[sx.ncalls - 1].work)
			break;
	}
	if (!legal(0, 0)) {
		sx_print();
		ck_abort_msg("no legal order");
	}
	/* All nodes are in caches again. */
	for (u32 f = 0, n = 0; f <= FIBERS; f++) {
		n += sx.cache[f].nodes.n + sx.cache[f].nodes.nspare;
		if (f == FIBERS && n != 8 * (FIBERS + 1)) {
			sx_print();
			ck_abort_msg("%u nodes", n);
		}
	}
	for (u32 l = 0; l < LEVELS; l++)
		MUST(link_idx(sx.r.q->head.next[l]) == 0);
}

START_TEST(test_interleavings)
{
	u64 until = now_ns() + 60000000ull;
	u64 runs = 0, randoms = 0;
	u32 i;

	sx.sc = &scenarios[_i];
	sx.r = rig_make(4096);
	/* Commit the nodes. */
	memset(sx.cache, 0, sizeof(sx.cache));
	for (i = 0; i < 8 * (FIBERS + 1); i++)
		MUST(prioq_push(sx.r.q, &sx.cache[0], 0, i, 1));
	for (i = 0; i < FIBERS; i++) {
		sx.stack[i] = malloc(STACK);
		sx.seeds[i] = seed_for(sx.sc->script[i], 4);
	}
	sx.seeds[FIBERS] = seed_for(sx.sc->init, 6);

	sx.bound = sx.sc->bound;
	if (getenv("PRIOQ_BOUND"))
		sx.bound = (u32)atoi(getenv("PRIOQ_BOUND"));
	sx.random = false;
	sx.replay = 0;
	for (;;) {
		one_run();
		runs++;
		while (sx.depth && sx.pick[sx.depth - 1] + 1 == sx.of[sx.depth - 1])
			sx.depth--;
		if (!sx.depth)
			break;
		sx.pick[sx.depth - 1]++;
		sx.replay = sx.depth;
	}
	sx.random = true;
	do {
		sx.seed = ++randoms << 20;
		one_run();
	} while (randoms % 64 || now_ns() < until);
	if (getenv("PRIOQ_VERBOSE"))
		printf("%s: bound %u, %llu schedules, %llu at random\n", sx.sc->name, sx.bound,
		       (unsigned long long)runs, (unsigned long long)randoms);
	for (i = 0; i < FIBERS; i++)
		free(sx.stack[i]);
	rig_break(&sx.r);
}
END_TEST

/* ---- progress ---- */

static struct {
	struct rig r;
	struct prioq_cache other;	/* the others' cache */
	long left;			/* instructions until the stop; < 0: over */
	u32 stops;
	u32 count[64];			/* works 1 .. 15 are queued so many times */
} st;

/*
 * Whoever comes while the victim is stopped: they see the queue empty and full, pop
 * everything, and use the nodes again at once, above and below.
 */
static void others(void)
{
	struct ent e[64];
	s64 prio, last = INT64_MAX, first_prio;
	u64 order;
	u32 n = 0, i, w;

	for (i = 0; i < 2; i++) {
		if (prioq_peek(st.r.q, &first_prio, &order) !=
		    !!(w = prioq_pop(st.r.q, &st.other, &prio)))
			abort();
		if (w) {
			if (prio != first_prio)
				abort();
			e[n] = (struct ent){ prio, 100 + n, w };
			n++;
		}
	}
	for (i = 0; i < 6; i++)
		if (!prioq_push(st.r.q, &st.other, i % 3 * 10, i, 20 + i))
			abort();
	while ((w = prioq_pop(st.r.q, &st.other, &prio))) {
		if (prio > last || n == ARRAY_SIZE(e))
			abort();
		last = prio;
		if (w >= 20)
			continue;
		e[n] = (struct ent){ prio, 200 + n, w };
		n++;
	}
	if (prioq_peek(st.r.q, &prio, &order))
		abort();
	for (i = 0; i < n; i++)
		if (!prioq_push(st.r.q, &st.other, e[i].prio, e[i].order, e[i].work))
			abort();
}

#if defined(__x86_64__)

static void on_trap(int sig, siginfo_t *si, void *ctx)
{
	greg_t *flags = &((ucontext_t *)ctx)->uc_mcontext.gregs[REG_EFL];

	if (st.left < 0) {
		*flags &= ~0x100ll;
		return;
	}
	if (st.left-- == 0) {
		*flags &= ~0x100ll;
		st.stops++;
		others();
	}
}

/* Below the red zone. */
#define TRAP(how)								\
	__asm__ __volatile__("lea -128(%%rsp), %%rsp\n\tpushf\n\t" how ", (%%rsp)\n\t" \
			     "popf\n\tlea 128(%%rsp), %%rsp" ::: "memory", "cc")
#define TRAP_ON()	TRAP("orq $0x100")
#define TRAP_OFF()	TRAP("andq $~0x100")

static void refill(struct prioq_cache *c, u32 n)
{
	s64 prio;

	while (prioq_pop(st.r.q, c, &prio))
		;
	memset(st.count, 0, sizeof(st.count));
	for (u32 i = 1; i <= n; i++) {
		MUST(prioq_push(st.r.q, c, i % 4 * 10 + 5, i, i));
		st.count[i]++;
	}
}

/*
 * _i: height of what is pushed, 0: pop, 5: peek; for queues of 0, 1 and 8 entries.
 * A trap takes long, so it is one instruction in three, for each case another one;
 * PRIOQ_FULL: all.
 */
START_TEST(test_stopped)
{
	static const u32 fill[] = { 0, 1, 8 };
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	struct prioq_cache c = { .seed = 1 };
	struct op push = { PUSH, 0, (u32)_i };
	u64 seed = _i && _i < 5 ? seed_for(&push, 1) : 1, order = 0;
	u32 w, total = 0;
	long k, step;
	s64 prio;

	st.r = rig_make(1000);
	st.other.seed = 99;
	sigaction(SIGTRAP, &sa, NULL);
	for (u32 f = 0; f < ARRAY_SIZE(fill); f++) {
		step = getenv("PRIOQ_FULL") || _i % 5 == 0 ? 1 : 3;
		for (k = ((long)f + _i) % step;; k += step) {
			refill(&c, fill[f]);
			c.seed = seed;
			st.stops = 0;
			st.left = k;
			w = 0;
			TRAP_ON();
			if (_i == 0)
				w = prioq_pop(st.r.q, &c, &prio);
			else if (_i == 5)
				prioq_peek(st.r.q, &prio, &order);
			else
				prioq_push(st.r.q, &c, 15, 1000, 15);
			st.left = -1;
			TRAP_OFF();
			total += st.stops;
			if (_i && _i < 5)
				st.count[15]++;
			if (w)
				st.count[w]--;
			/* Nothing is lost, nothing came twice, the order is right. */
			check_structure(st.r.q);
			for (s64 last = INT64_MAX; (w = prioq_pop(st.r.q, &c, &prio)); last = prio) {
				MUST(prio <= last);
				MUST(w < 16);
				MUST(st.count[w] == 1);
				st.count[w]--;
			}
			for (w = 0; w < 16; w++)
				MUST(st.count[w] == 0);
			if (!st.stops)
				break;
			/* With a sanitizer there are many more instructions. */
			if (SANITIZED && k > 100)
				step = 3 + k / 50;
		}
	}
	MUST(total > 20);
	if (getenv("PRIOQ_VERBOSE"))
		printf("stopped, kind %d: %u instructions\n", _i, total);
	pool_cache_flush(st.r.pool, &c.nodes);
	pool_cache_flush(st.r.pool, &st.other.nodes);
	MUST(pool_depot_count(st.r.pool) == pool_carved(st.r.pool));
	rig_break(&st.r);
}
END_TEST

#endif /* __x86_64__ */

/* A thread under load is stopped by a signal at random instants; two others go on. */
static struct {
	u64 ops[3];		/* A */
	u32 parked, release, stop;	/* A */
} pk;

static void on_park(int sig)
{
	store_release(&pk.parked, 1);
	while (!load_acquire(&pk.release))
		sched_yield();
	store_release(&pk.parked, 0);
}

static void *parkee(void *arg)
{
	u32 id = (u32)(uintptr_t)arg;
	struct prioq_cache c = { .seed = id };
	u64 seed = id;
	s64 prio;

	while (!load_relaxed(&pk.stop)) {
		prioq_push(st.r.q, &c, (s64)(random_next(&seed) % 3), cycles(), id + 1);
		prioq_push(st.r.q, &c, (s64)(random_next(&seed) % 3), cycles(), id + 1);
		prioq_pop(st.r.q, &c, &prio);
		prioq_pop(st.r.q, &c, &prio);
		fetch_add_relaxed(&pk.ops[id], 1);
		if (id)
			sched_yield();
	}
	pool_cache_flush(st.r.pool, &c.nodes);
	return NULL;
}

START_TEST(test_parked)
{
	struct sigaction sa = { .sa_handler = on_park };
	struct timespec nap = { 0, 0 };
	u64 seed = 5, from[3], end = now_ns() + 400000000ull, limit;
	pthread_t t[3];
	u32 i, points = 0;
	s64 prio;

	st.r = rig_make(10000);
	sigaction(SIGUSR1, &sa, NULL);
	for (i = 0; i < 3; i++)
		MUST(pthread_create(&t[i], NULL, parkee, (void *)(uintptr_t)i) == 0);
	while (now_ns() < end || points < 10) {
		nap.tv_nsec = (long)(random_next(&seed) % 50000);
		nanosleep(&nap, NULL);
		store_release(&pk.release, 0);
		MUST(pthread_kill(t[0], SIGUSR1) == 0);
		while (!load_acquire(&pk.parked))
			sched_yield();
		for (i = 1; i < 3; i++)
			from[i] = load_relaxed(&pk.ops[i]);
		limit = now_ns() + 5000000000ull;
		for (i = 1; i < 3; i++)
			while (load_relaxed(&pk.ops[i]) < from[i] + 20) {
				ck_assert_msg(now_ns() < limit, "stalled at point %u", points);
				sched_yield();
			}
		points++;
		store_release(&pk.release, 1);
		while (load_acquire(&pk.parked))
			sched_yield();
	}
	store_release(&pk.stop, 1);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	for (struct prioq_cache c = { .seed = 1 };;) {
		if (prioq_pop(st.r.q, &c, &prio))
			continue;
		pool_cache_flush(st.r.pool, &c.nodes);
		break;
	}
	if (getenv("PRIOQ_VERBOSE"))
		printf("parked at %u points\n", points);
	MUST(pool_depot_count(st.r.pool) == pool_carved(st.r.pool));
	rig_break(&st.r);
}
END_TEST

#else /* __SANITIZE_THREAD__ */

/* The sanitizer knows neither fibers of others nor signals inside of its own code. */
static void sched_point(void)
{
}

#endif

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

#ifndef __SANITIZE_THREAD__
	/* The address sanitizer does not know the fibers, and adds nothing: no memory is freed. */
	tc = tcase_create("interleavings");
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, test_interleavings, 0, ADDRESS_SANITIZED ? 0 : (int)ARRAY_SIZE(scenarios));
	suite_add_tcase(s, tc);

	tc = tcase_create("progress");
	tcase_set_timeout(tc, 60);
#if defined(__x86_64__)
	tcase_add_loop_test(tc, test_stopped, 0, 6);
#endif
	tcase_add_test(tc, test_parked);
	suite_add_tcase(s, tc);
#endif
	return suite_run(s);
}
