/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites of the priority queue share.
 *
 * exec/prioq.c is compiled here a second time, under other names, with a call of sched_point()
 * before each atomic access, which each suite defines.  So the suites can access the internals
 * of a queue.
 */
#ifndef TESTS_PRIOQ_FIXTURE_H
#define TESTS_PRIOQ_FIXTURE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/clock.h>
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
static void plain_store_relaxed(u64 *p, u64 v) { store_relaxed(p, v); }
static void plain_store_relaxed32(u32 *p, u32 v) { store_relaxed(p, v); }
static bool plain_cas(u64 *p, u64 *old, u64 v) { return cas_acq_rel_acquire(p, old, v); }
static bool plain_cas32(u32 *p, u32 *old, u32 v) { return cas_acq_rel_acquire(p, old, v); }

int hooked_pool_add(struct arena *a, u32 max_work, u32 max_threads, u32 mag,
		    struct pool **out);
int hooked_create(struct pool *nodes, struct prioq **out);
void hooked_destroy(struct prioq *q);
bool hooked_push(struct prioq *q, struct prioq_cache *c, s64 prio, u64 order, u32 work);
u32 hooked_pop(struct prioq *q, struct prioq_cache *c, s64 *prio);
u32 hooked_pop_this(struct prioq *q, struct prioq_cache *c, s64 prio, u64 order);
u32 hooked_pop_below(struct prioq *q, struct prioq_cache *c, s64 *prio, u64 before);
bool hooked_peek(struct prioq *q, s64 *prio, u64 *order);

#define prioq_pool_add	hooked_pool_add
#define prioq_create	hooked_create
#define prioq_destroy	hooked_destroy
#define prioq_push	hooked_push
#define prioq_pop	hooked_pop
#define prioq_pop_this	hooked_pop_this
#define prioq_pop_below	hooked_pop_below
#define prioq_peek	hooked_peek
#pragma push_macro("load_relaxed")
#pragma push_macro("load_acquire")
#pragma push_macro("store_relaxed")
#pragma push_macro("store_release")
#pragma push_macro("fetch_add_acq_rel")
#pragma push_macro("cas_relaxed")
#pragma push_macro("cas_release_relaxed")
#pragma push_macro("cas_acq_rel_relaxed")
#pragma push_macro("cas_acq_rel_acquire")
#undef load_relaxed
#undef load_acquire
#undef store_relaxed
#undef store_release
#undef fetch_add_acq_rel
#undef cas_relaxed
#undef cas_release_relaxed
#undef cas_acq_rel_relaxed
#undef cas_acq_rel_acquire
#define load_relaxed(p) (sched_point(), _Generic((p), \
	u32 *: plain_load_relaxed32, u64 *: plain_load_relaxed)(p))
#define load_acquire(p)			(sched_point(), plain_load_acquire(p))
#define store_relaxed(p, v) (sched_point(), _Generic((p), \
	u32 *: plain_store_relaxed32, u64 *: plain_store_relaxed)(p, v))
#define store_release(p, v)		(sched_point(), plain_store_release(p, v))
#define fetch_add_acq_rel(p, v)		(sched_point(), plain_fetch_add32(p, v))
#define cas_relaxed(p, old, v) (sched_point(), _Generic((p), \
	u32 *: plain_cas32, u64 *: plain_cas)(p, old, v))
#define cas_release_relaxed(p, old, v)	(sched_point(), plain_cas(p, old, v))
#define cas_acq_rel_relaxed(p, old, v)	(sched_point(), plain_cas(p, old, v))
#define cas_acq_rel_acquire(p, old, v)	(sched_point(), plain_cas(p, old, v))
#include "../../exec/prioq.c"
#pragma pop_macro("load_relaxed")
#pragma pop_macro("load_acquire")
#pragma pop_macro("store_relaxed")
#pragma pop_macro("store_release")
#pragma pop_macro("fetch_add_acq_rel")
#pragma pop_macro("cas_relaxed")
#pragma pop_macro("cas_release_relaxed")
#pragma pop_macro("cas_acq_rel_relaxed")
#pragma pop_macro("cas_acq_rel_acquire")
#undef prioq_pool_add
#undef prioq_create
#undef prioq_destroy
#undef prioq_push
#undef prioq_pop
#undef prioq_pop_this
#undef prioq_pop_below
#undef prioq_peek

#define THREADS_MAX 8u

struct rig {
	struct arena *arena;
	struct pool *pool;
	struct prioq *q;
};

static inline struct rig rig_make(u32 max_work)
{
	struct rig r;

	MUST(arena_create("test", &r.arena) == 0);
	MUST(prioq_pool_add(r.arena, max_work, THREADS_MAX, POOL_MAG, &r.pool) == 0);
	MUST(arena_ready(r.arena, false) == 0);
	MUST(prioq_create(r.pool, &r.q) == 0);
	return r;
}

static inline void rig_break(struct rig *r)
{
	prioq_destroy(r->q);
	arena_destroy(r->arena);
}

/*
 * Check q, which no thread uses: every level is sorted and without marks, and its nodes are in
 * the level below.  Returns the number of entries.
 */
static inline u32 check_structure(struct prioq *q)
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

struct ent {
	s64 prio;
	u64 order;
	u32 work;
};

/* The steps of a thread of a small program. */
enum what { END, PUSH, POP, PEEK };

struct op {
	enum what what;
	s64 prio;
	u32 height;		/* of a push */
};

/* Find a seed with which new_height() returns these heights. */
static inline u64 seed_for(const struct op *ops, u32 n)
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

#endif
