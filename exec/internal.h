/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structures of the executor; layer 3, inside exec only.
 *
 * Field legend: I set at creation; O only the owner of the slot; A atomic, any
 * thread; S owner writes, others read; W(stop) only who starts or stops the workers.
 */
#ifndef EXEC_INTERNAL_H
#define EXEC_INTERNAL_H

#if !defined(PAWL_LAYER) || (PAWL_LAYER != 3 && !defined(PAWL_TEST_INTERNAL))
#error "exec/internal.h is inside exec"
#endif

#include <base/atomic.h>
#include <base/bug.h>
#include <base/err.h>
#include <base/thread.h>
#include <exec/exec.h>
#include <exec/prioq.h>
#include <exec/ring.h>

/* Most pieces of work that a thread takes from another's ring at once. */
#ifndef CONFIG_EXEC_BATCH
#define CONFIG_EXEC_BATCH 32
#endif
#define EXEC_BATCH_MAX	(CONFIG_EXEC_BATCH < 1 ? 1 : CONFIG_EXEC_BATCH > 64 ? 64 : CONFIG_EXEC_BATCH)

#define EXEC_MAX_QUEUES	256u	/* an engine has a few per device */
#define BATCH_NS	3000u	/* a batch should not run longer than this */
#define STEAL_NS	2000u	/* idleness before foreign hoards are polled */
#define RELAX_NS	1000u	/* idleness before the pauses grow */
#define YIELD_NS	10000u	/* between two sched_yield() of a spinner */
#define REST_NS		200000u	/* sleep after which a thread is expected to sleep again */
#define FAST_NS		300u	/* a maker that runs one piece of work in this is left alone */
#define LEAVE_AVG_NS	1500u	/* work that runs longer, its lines' way included, is not left */
#define LEAVE_FIRST_NS	2000u	/* how long it is left alone at first, */
#define LEAVE_MOST_NS	32000u	/* and later */
#define LEAVE_JUDGE_NS	100000u	/* a maker that is slow is judged over this */
#define LEAVE_TRIES	6u	/* from so many trials in vain on, no more time between them */
#define SAMPLE_EVERY	16u	/* runs per measured one; a power of two */

/* What one thread has in one queue. */
struct exec_lane {
	struct ring ring;	/* what it made ready */
	struct hoard hoard;	/* what it took in a batch, and others may steal */

	/* A, all guesses of workers: lane_leave(). */
	u64 left __cacheline_aligned;	/* cycles(): it is left alone until then; 0: it is not */
	u64 left_rest;		/* cycles(): nobody leaves it before that */
	u64 left_since, left_own;	/* cycles() from which on the maker is judged, and own then */
	u64 left_own_last, left_tail;	/* at the last look */
	u32 left_step;		/* cycles() */
	u32 left_tries;		/* times in a row that this was in vain */
};

/* Threads that sleep until somebody pushes; park.c. */
struct exec_group {
	/*
	 * A: ATTN_START, and the number of sleepers.  The one word that a push reads, so
	 * nothing that changes often is on its line.
	 */
	u32 attn __cacheline_aligned;
	/* A, signed: threads that look for work; below the truth for a moment only. */
	u32 spin __cacheline_aligned;
	u64 *bits __cacheline_aligned;	/* A: slots that sleep, or are about to */
	u32 id;			/* I: 1 and up; 0 is a thread that sleeps in no group */
	u32 late;		/* A: wakers that found only threads on their way */
};

#define ATTN_START	0x80000000u	/* the workers have still to be created */

enum { PQ_HIGH, PQ_ZERO, PQ_LOW, PQS };

enum { RUN_STOPPED, RUN_ARMED, RUN_STARTING, RUN_UP };

struct exec_queue {
	/* Read by every call. */
	struct exec *x __cacheline_aligned;	/* I */
	struct exec_lane **lanes;	/* A: by slot; NULL until the thread needs one */
	u64 *map;		/* A: slots whose lanes may have work; each thread its own bit */
	u32 drive;		/* A: set by its creator, or when no worker could start */
	u32 stop;		/* A: workers leave */
	u32 workers;		/* I */
	u32 drive_set;		/* I: as created */

	/*
	 * A: entries of pq[], or more (counted before they are put in, until after they
	 * were taken out); n[PQ_HIGH] is read at every take.
	 */
	u32 n[PQS] __cacheline_aligned;
	u64 ticket;		/* A: of the next entry */
	struct prioq *pq[PQS];	/* I: above 0 and FRONT; 0 for which no ring has room; below 0 */

	struct exec_group group;	/* its workers */

	u32 run __cacheline_aligned;	/* A: RUN_* */
	u32 alive;		/* A: workers that were created, not joined */
	u32 missing;		/* A: workers that were not, or that found no place in the client */
	os_thread *threads;	/* W(stop) */
	struct worker *args;	/* W(stop) */
	char name[16];		/* I */
};

struct exec {
	struct exec_client cl;	/* I */
	const char *warm;	/* I: address of work 0, for prefetching */
	u32 stride;		/* I */
	u32 max_threads;	/* I */
	u32 words;		/* I: of a bitmap of slots */
	u32 nqueues;		/* I: queues are added before threads come */
	u64 spin;		/* I: cycles */
	u64 batch;		/* I: cycles, BATCH_NS */
	u64 yield;		/* I: cycles, YIELD_NS */
	u64 rest;		/* I: cycles, REST_NS */
	u64 steal;		/* I: cycles, STEAL_NS */
	u64 relax;		/* I: cycles, RELAX_NS */
	u32 fast, leave_avg, leave_first, leave_most, judge;	/* I: cycles, as the constants */
	struct exec_queue *queues[EXEC_MAX_QUEUES];	/* I */
	struct exec_thread **threads;	/* A: by slot */
	struct pool *nodes;	/* I */
	struct exec_group helpers;	/* other threads, for all drive queues */
	u32 error __cacheline_aligned;	/* A: why a worker could not start, errno */
	u32 deserted;		/* A: no worker came to a queue that should have some */
	u64 wakes;		/* A: futex wakes */
	u32 ncpus;		/* I */
	int *cpus;		/* I */
	u32 cpu_turn;		/* A */
	char name[8];		/* I */
};

/* queue.c */
enum {
	LOOK_DEEP = 1,		/* also at foreign hoards */
	LOOK_LEAVE = 2,		/* a worker that may leave it to others */
};
u32 queue_take(struct exec_queue *q, struct exec_thread *t, u32 how);
bool queue_empty(struct exec_queue *q);
bool thread_hint(struct exec *x, struct exec_thread *t, u32 how);
u32 thread_look(struct exec *x, struct exec_thread *t, u32 how);
struct exec_lane *lane_mine(struct exec_queue *q, struct exec_thread *t);
void lanes_rest(struct exec *x, struct exec_thread *t);

/* worker.c */
void queue_start(struct exec_queue *q) __cold;
void exec_run(struct exec *x, struct exec_thread *t, u32 work);

/* park.c */
enum idle_end { IDLE_WORK, IDLE_COND, IDLE_TIME, IDLE_STOP, IDLE_DESERTED };
struct idle {
	bool (*cond)(void *arg);	/* NULL: a worker */
	void *arg;
	u64 deadline;		/* exec_now_ns(); 0: none */
	bool help;
	bool relents;		/* will help if a queue is deserted */
};
enum idle_end thread_idle(struct exec *x, struct exec_thread *t, const struct idle *how,
			  u32 *work);
bool group_init(struct exec_group *g, u32 id, u32 max_threads);
void group_fini(struct exec_group *g);
void queue_attention(struct exec_queue *q, struct exec_thread *t) __noinline;
void queue_wake(struct exec_queue *q);

/* clock.c */
u64 clock_cycles_per_us(void);

static inline u64 ns_to_cycles(u64 per_us, u64 ns)
{
	return ns / 1000 * per_us + ns % 1000 * per_us / 1000;
}

static inline bool thread_serves(const struct exec_thread *t, const struct exec_queue *q)
{
	return t->queue ? t->queue == q : load_relaxed(&q->drive);
}

/* Something has a priority, or had just now. */
static inline bool queue_ranked(const struct exec_queue *q)
{
	return load_relaxed(&q->n[PQ_HIGH]) | load_relaxed(&q->n[PQ_LOW]);
}

/* A counter of the owner that others only read. */
static inline void count(u64 *c)
{
	store_relaxed(c, load_relaxed(c) + 1);
}

/*
 * Fault injection: a weak function that a test replaces.  It is asked before worker
 * number i of a queue is created; not 0 (an errno) makes it fail.
 */
int exec_worker_hook(const char *queue, u32 i);

#endif
