/* SPDX-License-Identifier: Apache-2.0 */
/* Threads in an engine: slots, counters, and how a call finds its own. */
#ifndef CORE_THREAD_H
#define CORE_THREAD_H

#include <base/probe.h>
#include <core/engine.h>

/* A thread's push to several vars, for threads that help or record. */
struct desc {
	u64 status;		/* A: push number << 2 | phase */
	u32 op;			/* H */
	u32 unused;
	u64 rec[INLINE_DEPS];	/* A: rec_empty() or rec_value() */
};

struct frame;
struct batch_scratch;
struct given_up;
struct trace_buf;

/* A thread's part of an rm's two sums, modulo 2^32: readmostly.c. */
struct rm_row {
	u32 in;			/* S: reads that its pushes began */
	u32 out;		/* S release: reads that it completed, or took back */
};

struct tls_entry;

/* A thread in an engine, an object of POOL_THREAD.  Its rows of fast reads are behind it. */
struct thread {
	struct desc d __cacheline_aligned;

	struct exec_thread ex __cacheline_aligned;

	struct pawl_engine *e __cacheline_aligned;	/* I */
	u32 slot;		/* I */
	u32 depth;		/* O: bodies on the stack */
	u32 lacks;		/* O: the pool that was empty last (err_pool_empty()) */
	u64 seq;		/* O: push number; continues under the next user of the slot */
	u32 var_limit;		/* O: var indexes below are carved */
	u32 waits_device;	/* A: the thread waits for all devices */
	u64 next_check;		/* O: the window is not checked up to this value of taken */
	u64 level;		/* O: taken - freed when the window was checked: admit_slow() */
	struct tls_entry *entry;	/* A: of the thread that has the slot */
	struct trace_buf *trace;	/* A */
	struct batch_scratch *scratch;	/* O */
	struct given_up *given_up;	/* O */
	u32 ngiven_up, given_up_cap;	/* O */

	/* Written by the owner with every op, read by waits for all and at the window. */
	u64 pushed __cacheline_aligned;	/* S release; reset by live_leave(); with waits */
	u64 completed;		/* S release; with waits */
	u64 taken, freed;	/* S release: room in the window, taken by pushes, and freed: admit.c */
	u64 unreaped;		/* S: completions posted, less those reaped; modulo 2^64 */
	u64 failed, skipped, inlined, records, helps;	/* S */
	u32 naive_pending;	/* A: naive: incomplete ops that this thread pushed, */
	u32 naive_ready;	/* A: those of them that other threads took: naive.c */
	u32 naive_list;		/* O: the same, oldest first */
	u32 running;		/* S: op of the innermost body on its stack, for dumps */
	u32 waits_group;	/* A: 1 + the group that it waits for, or 0 */
	u32 waits_interrupt;	/* A: it waits, and may be interrupted */
	u32 user;		/* S: threads that had the slot so far */
	u64 waits_flight;	/* A: 1 + number of ops in flight that it waits for, or 0 */
	u32 waits_room;		/* A: that number is of the window */
	u32 completing;		/* A: it completes an op of another thread, and uses the engine */
	u64 nodes;		/* S: bodies of graphs that it began; kept for the slot's next user */
	u64 vars;		/* S release: vars that it created; kept as well */

	struct pool_cache cache[POOLS] __cacheline_aligned;
};

/* Whole pages: a thread that does little touches one of them. */
#define THREAD_SIZE	((sizeof(struct thread) + RM_MAX * sizeof(struct rm_row) + 4095) & ~(size_t)4095)
#define THREADS_MOST	RM_SLOT		/* slots from 0 on that a tag can name */

/* The thread of a slot below slots_used(). */
static inline struct thread *thread_of(const struct pawl_engine *e, u32 slot)
{
	return (struct thread *)(e->threads + (size_t)slot * THREAD_SIZE);
}

/* Slots below were in use at some time.  Progress: wait-free. */
static inline u32 slots_used(const struct pawl_engine *e)
{
	return pool_carved(e->pool[POOL_THREAD]);
}

/* Return the first slot from `slot` on that a thread has, or max_threads. */
static inline u32 live_next(const struct pawl_engine *e, u32 slot)
{
	/* Relaxed: it is older than the bit. */
	u32 i = slot / 64, words = load_relaxed(&e->live_words);
	u64 b;

	for (; i < words; i++, slot = i * 64) {
		/* CORE-N10 <-> CORE-N9: a thread whose bit is clear has added its counts. */
		b = load_acquire(&e->live[i]) >> (slot % 64);
		if (b)
			return slot + (u32)__builtin_ctzll(b);
	}
	return e->max_threads;
}

/* For each thread that is in the engine.  Progress: wait-free. */
#define for_each_live(e, t, i)							\
	for ((i) = live_next(e, 0);						\
	     (i) < (e)->max_threads && ((t) = thread_of(e, i));			\
	     (i) = live_next(e, (i) + 1))

extern u32 pawl_fork_gen;	/* number of forks up to this process */
/* Returns NULL with the error in thread_last.code. */
struct thread *thread_enter(struct pawl_engine *e);
int thread_reserve(struct thread *t);	/* allocate what its first pushes need */
int thread_setup(void);
int threads_init(struct pawl_engine *e);
int fork_check(void);
void threads_fini(struct pawl_engine *e);
void threads_forget(struct pawl_engine *e);
bool engine_tidy(void *user, struct exec_thread *ex);	/* trim.c */

struct thread_tls {
	u64 id;			/* of the engine that this thread called last, or 0 */
	struct thread *t;	/* its slot there */
	int code;		/* why thread_get() returned NULL */
	struct frame *frame;	/* the innermost body on its stack, of any engine */
	u32 callbacks;		/* functions of the host on the stack that are called outside ops */
	struct var_wait *waits;	/* the innermost wait for a var on its stack, of any engine */
};

extern __thread struct thread_tls thread_last;

/*
 * Is the calling thread in a body, or in a function that the engine calls?  A body of another
 * engine counts: its op may be what the caller would wait for.
 */
static inline bool thread_inside(const struct thread *t)
{
	return t->depth || thread_last.frame;
}

/* Return the calling thread's slot in e, or NULL with the error in thread_last.code. */
static inline struct thread *thread_get(struct pawl_engine *e)
{
	if (likely(thread_last.id == e->id))
		return thread_last.t;
	return thread_enter(e);
}

#endif
