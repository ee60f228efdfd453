/* SPDX-License-Identifier: Apache-2.0 */
/*
 * twin.h - the algorithm of MXNet 1.9.1's ThreadedEnginePerDevice, with its locks.
 *
 * The measure that pawl is compared with: the same structures, the same mutexes in
 * the same places and the same allocations per op, written anew in C:
 *
 *   - a var is a mutex, a linked list of blocks (one per queued access, the head an
 *     empty one), a count of granted reads and the pending write;
 *   - an op in flight is a temporary operator plus a block with a wait counter of
 *     its vars + 1; both, and the list blocks, come from pools: one mutex and one
 *     free list per type, 4 KiB pages, never given back;
 *   - ready ops go through one FIFO with a mutex and a condition variable; a worker
 *     takes one, runs it with a completion callback, and completion queues what it
 *     made ready;
 *   - waiting for all is one mutex and one condition for the whole engine.
 *
 * For an op that writes one var that is 11 mutex acquisitions, 3 pool objects and 1
 * allocation (the vector of vars; a closure of up to 16 bytes fits in the function
 * object), as counted on the original.  Left out is what costs without belonging to
 * the algorithm (names, profiler, logging, the idle priority pool), so the twin
 * needs fewer instructions than the original: ratios to it are on the safe side.
 *
 * It has the faults of the original.  Two threads that push can hang it.
 */
#ifndef TWIN_H
#define TWIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct twin_engine;
struct twin_var;
struct twin_block;

enum twin_prop {
	TWIN_NORMAL,
	TWIN_ASYNC,
	TWIN_DELETE_VAR,
};

/* Given to a body; it must call twin_done() once. */
struct twin_done {
	void (*complete)(struct twin_engine *e, struct twin_block *b, int error);
	struct twin_engine *engine;
	struct twin_block *block;
};

static inline void twin_done(struct twin_done d, int error)
{
	d.complete(d.engine, d.block, error);
}

typedef void (*twin_body)(void *closure, struct twin_done done);

/* For an engine without workers: run one ready op here.  Returns false if there is none. */
bool twin_run_one(struct twin_engine *e);
struct twin_engine *twin_create(int workers, void (*worker_start)(int index));
void twin_destroy(struct twin_engine *e);
struct twin_var *twin_var_new(struct twin_engine *e);
void twin_var_delete(struct twin_engine *e, struct twin_var *v);
/* Copies size bytes of closure and the two vectors. */
void twin_push_async(struct twin_engine *e, twin_body body, const void *closure, size_t size,
		     struct twin_var *const *reads, size_t nreads,
		     struct twin_var *const *writes, size_t nwrites,
		     enum twin_prop prop, int priority);
/* Both return the error that they clear, or 0. */
int twin_wait_for_var(struct twin_engine *e, struct twin_var *v);
int twin_wait_for_all(struct twin_engine *e);

#endif /* TWIN_H */
