/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exact priority queue: higher priority first, FIFO among equals; any number of
 * threads; layer 3, inside exec only.
 *
 * All of push, pop and peek may run at the same time; no pair excludes another:
 *
 *              push   pop   peek   destroy
 *   push        -      -      -       X
 *   pop         -      -      -       X
 *   peek        -      -      -       X
 *
 * Linearizable: each call takes effect at one instant between its start and its end.
 */
#ifndef EXEC_PRIOQ_H
#define EXEC_PRIOQ_H

#if !defined(PAWL_LAYER) || PAWL_LAYER < 3
#error "exec/prioq.h is for layer 3, and for who embeds exec/thread.h"
#endif

#include <base/atomic.h>
#include <pool/pool.h>

/* s64, so that there is room above and below every int32_t priority. */
struct prioq;

/*
 * Nodes of all queues of an executor come from one pool; caches are per thread.  All
 * zero is a good start; a seed that differs by thread is a little better.  A thread that
 * leaves calls pool_cache_flush() on `nodes`.
 */
struct prioq_cache {
	struct pool_cache nodes;
	u64 seed;		/* O: levels of the skip list */
};

/* More than this many nodes cannot be named: -EINVAL. */
#define PRIOQ_NODES_MAX ((1u << 28) - 1)

int prioq_pool_add(struct arena *a, u32 max_work, u32 max_threads, struct pool **out);
/* -ENOMEM. */
int prioq_create(struct pool *nodes, struct prioq **out);
/* NULL is fine.  Nodes of work that is still queued are the pool's until the arena goes. */
void prioq_destroy(struct prioq *q);
/*
 * order: FIFO rank among equals, smaller first (the caller passes cycles() or a
 * ticket); equal (prio, order) pairs are allowed, in either order.
 * work is at least 1 and below max_work.  The node pool is as large as the number of
 * pieces of work plus what caches and threads can hold, so there is always a node;
 * false, with nothing queued, only if the system refuses memory when the pool grows; where
 * that is there already (pool_follow()), only while others move the free nodes.
 * Progress: lock-free.
 */
bool prioq_push(struct prioq *q, struct prioq_cache *c, s64 prio, u64 order, u32 work);
/* 0: empty.  *prio gets its priority.  Progress: lock-free. */
u32 prioq_pop(struct prioq *q, struct prioq_cache *c, s64 *prio);
/* The same, but only if it is an entry that a peek saw: 0 if something else is first now. */
u32 prioq_pop_this(struct prioq *q, struct prioq_cache *c, s64 prio, u64 order);
/*
 * The priority and order that pop would give now; false: empty (one load, then).
 * Progress: lock-free.
 */
bool prioq_peek(struct prioq *q, s64 *prio, u64 *order);

#endif
