/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: what its threads share.  Layer 4, inside core only; all headers of the core that
 * need more than bits include this one.
 *
 * Field legend, here and in the other headers: I set at creation; O accessed only by the owner
 * thread (or the one thread that owns the object at that time); A atomic, any thread; S written
 * by the owner, read by others (relaxed, statistics); H written by the owner before it
 * publishes, read by helpers, which validate.
 */
#ifndef CORE_ENGINE_H
#define CORE_ENGINE_H

#if !defined(PAWL_LAYER) || (PAWL_LAYER != 4 && !defined(PAWL_TEST_INTERNAL))
#error "core/engine.h is inside core"
#endif
#include <stdlib.h>
#include <string.h>
#include <pawl/engine.h>
#include <pawl/version.h>
#include <base/atomic.h>
#include <base/bug.h>
#include <base/err.h>
#include <base/export.h>
#include <pool/pool.h>
#include <exec/exec.h>
#include <core/state.h>

enum {
	POOL_OP, POOL_BLOCK, POOL_VAR, POOL_ERROR, POOL_GRAPH, POOL_DEVREC, POOL_NOTE, POOL_CQ,
	POOL_GROUP, POOL_THREAD,
	POOL_EXT0, POOL_EXT1, POOL_EXT2, POOL_EXT3, POOLS
};

enum {
	SPECIAL_SPARE = 1,	/* the spare error was used; stays */
	SPECIAL_TRACING = 2,
	SPECIAL_NAIVE = 4,
	SPECIAL_DEVICES = 8,	/* the engine has devices: their work may be pending */
	SPECIAL_RECORDING = 16,
	SPECIAL_EVENTS = SPECIAL_TRACING | SPECIAL_RECORDING,
	SPECIAL_CANCELED = 32,	/* all ops were canceled once: each op is stamped; stays */
};

/*
 * Beside the flags, engine.special counts error objects (error.c): only while there is one, ops
 * check whether they inherit an error.
 */
#define SPECIAL_ERROR_SHIFT	8
#define SPECIAL_ERROR		(1u << SPECIAL_ERROR_SHIFT)
#define SPECIAL_POISONED	(~(SPECIAL_ERROR - 1) | SPECIAL_SPARE)

/* Sums of the counters (struct thread) of threads that left. */
struct gone {
	u64 pushed, completed, failed, skipped, inlined, records, helps;	/* A */
	u64 taken, freed, unreaped;	/* A */
};

#ifdef PAWL_MODEL
#define FIRST_ERRS	2u	/* two ops fill it */
#else
#define FIRST_ERRS	16u
#endif

struct pawl_engine {
	/* This line and the next are read by every call. */
	u64 id;			/* I: never repeats in a process */
	u32 gen_first;		/* I: even; generations of handles begin behind it: var.h */
	char *ops, *blocks, *vars;	/* I: memory of these pools */
	char *threads;		/* I: of slot 0: struct thread, and its rows; see thread_of() */
	struct rm *rms;		/* I: [RM_MAX] */
	struct pool *pool[POOLS];	/* I */
	struct exec *x;		/* I */
	u32 fork_gen;		/* I */
	u32 kind;		/* I */
	u32 window, policy;	/* I */
	u32 special;		/* A: SPECIAL_*, and how many errors exist; 0 for the fast path */
	u32 gate;		/* A: completions for which a pusher at the window sleeps, or 0 */
	u32 max_threads;	/* I */
	u32 ndev;		/* I */
	u32 rm_reads;		/* I: RM_READS; less in tests */
	struct exec_queue **routes;	/* I: [dev * 8 + prop] */
	struct devices *devices;	/* I: NULL if there are only CPUs */
	/* A: error.c: epoch of waits for all; its errors that were made, and reported */
	struct pair err_state __cacheline_aligned;
	u32 first_err[FIRST_ERRS];	/* A: the first errors of the epoch, not reported yet */
	u64 err_seq;		/* A: errors so far */
	u32 spare_error;	/* I: shared error, used when the pool is empty */
	u32 nflight __cacheline_aligned;	/* A: threads that wait until few ops, or none, are in flight */
	u32 changing;		/* A, futex: a thread is starting or joining workers */
	u32 tidying;		/* A: a worker trims */
	u32 leaving;		/* A: threads that have freed their slot, and still use the engine */
	u32 park_next;		/* A: index of block_reclaim()'s next var, counted from 0 */
	u64 park_vain;		/* A: park_changes() when no var could be parked, or 0 */
	u64 tracing;		/* A: events per thread, or 0 */
	struct pawl_config cfg;	/* I */
	struct arena *arena;	/* I */
	cpu_set_t *cpu_sets;	/* I: of the CPU devices, and all of them; NULL: any CPU */
	u64 trace_base, trace_cycles;	/* A: the time when the trace began: ns, cycles() */
	double trace_rate;	/* A: ns per cycle, measured when it was written first; or 0 */
	u64 trace_lost;		/* A: its events for which there was no memory */
	ck_stack_t trace_bufs;
	u64 *live;		/* A: a bit per slot: a thread has the slot */
	u32 live_words;		/* A: those of slots that threads ever had */
	struct op_group *root;	/* I: the group {0} */
	u32 cancels;		/* A: how often all ops were canceled */
	u32 *stamps;		/* A: by op: the cancels before its push, if SPECIAL_CANCELED */
	u32 interrupted;	/* A: the next wait that may be interrupted ends */
	u32 ncqs, ngroups;	/* A: completion queues and groups that exist: count_below() */
	struct gone gone;	/* A */
	struct rec_engine *record;	/* A: its part of the recording, or NULL */
	struct pawl_engine *next;	/* record.c: list of the process */
	struct watch *watch;	/* A: watch.c; NULL until the first call */
	struct watch *watch_published;	/* A: the same, for publish.c */
	struct pawl_engine *next_published;	/* publish.c: list of the process */
	bool published;		/* I: it holds the process's socket open */
	u8 traced;		/* publish.c: a client's trace: TRACE_RUNS, TRACE_ENDED, or 0 */
	struct pawl_engine *next_traced;	/* tracefile.c: list of the process */
	int trace_fd;		/* the file of PAWL_TRACE + 1, or 0 */
};

/*
 * Are all numbers of objects bounded?  Prefault touches the memory of all that may exist, and the
 * simulators have little room.
 */
static inline bool config_bounded(const struct pawl_config *c)
{
#ifdef PAWL_SIM
	return true;
#else
	return c->prefault;
#endif
}

/* Count one more, unless there are `most`.  Progress: lock-free. */
static inline bool count_below(u32 *n, u32 most)
{
	u32 was = load_relaxed(n);

	do
		if (was >= most)
			return false;
	while (!cas_relaxed(n, &was, was + 1));
	return true;
}

/* Zeroed memory on its own cache lines.  Returns NULL without memory. */
static inline void *zalloc_lines(size_t size)
{
	void *p = aligned_alloc(CACHELINE, (size + CACHELINE - 1) / CACHELINE * CACHELINE);

	return p ? memset(p, 0, size) : NULL;
}

#endif
