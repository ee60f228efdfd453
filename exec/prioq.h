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
#error "exec/prioq.h is for layer 3, and for files that include exec/thread.h"
#endif

#include <base/atomic.h>
#include <pool/pool.h>

struct prioq;

/*
 * The nodes of all queues of an executor come from one pool, with a cache per thread.  The
 * cache starts as all zeros; a seed that differs by thread is a little better.  A thread that
 * leaves calls pool_cache_flush() on `nodes`.
 */
struct prioq_cache {
	struct pool_cache nodes;
	u64 seed;		/* O: levels of the skip list */
};

/* The index of a node has 28 bits. */
#define PRIOQ_NODES_MAX ((1u << 28) - 1)

/* Returns 0, -ENOMEM, or -EINVAL if more than PRIOQ_NODES_MAX nodes would be needed. */
int prioq_pool_add(struct arena *a, u32 max_work, u32 max_threads, u32 mag, struct pool **out);
/* Returns 0 or -ENOMEM. */
int prioq_create(struct pool *nodes, struct prioq **out);
/* NULL is allowed.  Nodes of work that is still queued are lost to the pool. */
void prioq_destroy(struct prioq *q);
/*
 * prio is an s64, so there are values above and below every int32_t priority.
 * order: among equal priorities the smaller goes first (the caller passes a ticket); two
 * entries with equal prio and order may leave in either order.
 * work is at least 1 and below max_work.  The node pool has a node for each piece of work, plus
 * what caches and threads can hold.  Returns false, with nothing queued, only if the system
 * refuses memory when the pool grows; if the memory is committed already (pool_follow()), only
 * while other threads move the free nodes.
 * Progress: lock-free.
 */
bool prioq_push(struct prioq *q, struct prioq_cache *c, s64 prio, u64 order, u32 work);
/* Remove the first entry; *prio receives its priority.  0: empty.  Progress: lock-free. */
u32 prioq_pop(struct prioq *q, struct prioq_cache *c, s64 *prio);
/*
 * Of each priority below *prio, from the highest on, check the first entry, and remove one whose
 * order is below `before`; *prio receives its priority.  0: none was found; *prio is INT64_MIN, or,
 * after several priorities, that of the last one, below which the next call may continue.
 * *prio is above INT64_MIN.  Progress: lock-free.
 */
u32 prioq_pop_below(struct prioq *q, struct prioq_cache *c, s64 *prio, u64 before);
/* Remove the first entry if it has this prio and order.  0: another entry is first, or none. */
u32 prioq_pop_this(struct prioq *q, struct prioq_cache *c, s64 prio, u64 order);
/*
 * Read the priority and order of the first entry.  Returns false if the queue is empty, after a
 * single load.  Progress: lock-free.
 */
bool prioq_peek(struct prioq *q, s64 *prio, u64 *order);

#endif
