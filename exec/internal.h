/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structures of the executor; layer 3, inside exec only.
 *
 * Field legend: I set at creation; O only the owner of the slot; A atomic, any thread; S the
 * owner writes, others read; W(stop) only the thread that starts or stops the workers.
 */
#ifndef EXEC_INTERNAL_H
#define EXEC_INTERNAL_H

#if !defined(PAWL_LAYER) || (PAWL_LAYER != 3 && !defined(PAWL_TEST_INTERNAL))
#error "exec/internal.h is inside exec"
#endif

#include <ck_bitmap.h>
#include <base/atomic.h>
#include <base/bug.h>
#include <base/err.h>
#include <base/probe.h>
#include <base/thread.h>
#include <exec/exec.h>
#include <exec/prioq.h>
#include <exec/ring.h>

#define EXEC_MAX_QUEUES	256u	/* an engine has a few per device */

/* The work of one thread in one queue. */
struct exec_lane {
	struct ring ring;	/* work that the thread made ready */
	struct hoard hoard;	/* work that it took in a batch; others may steal it */

	/* A, estimates that any worker writes: see lane_leave(). */
	u64 left __cacheline_aligned;	/* cycles(): left to the maker until then; or 0 */
	u64 left_rest;		/* cycles(): no worker leaves the lane before then */
	u64 left_since, left_own;	/* cycles() and own at the start of the measurement */
	u64 left_own_last, left_tail;	/* own and tail at the last check */
	u64 late_mark[2];	/* the position of the tail, as exec_queue.late_mark */
	u32 left_step;		/* in cycles() */
	u32 left_tries;		/* consecutive failed trials */
};

/* Threads that sleep until work is pushed; see park.c. */
struct exec_group {
	/*
	 * A: ATTN_START, and the number of sleepers.  Every push reads this word, so nothing
	 * that changes often shares its line.
	 */
	u32 attn __cacheline_aligned;
	/* A, signed: threads that poll for work; may be too small for a moment. */
	u32 spin __cacheline_aligned;
	ck_bitmap_t *bits __cacheline_aligned;	/* slots that sleep, or are about to */
	u32 id;			/* I: from 1; a thread that sleeps in no group uses 0 */
	u32 late;		/* A: wakers that found only threads that are already waking */
};

#define ATTN_START	0x80000000u	/* the workers have not been created yet */
#define ATTN_RESERVE	0x10000u	/* in the group of a queue: a sleeper of its reserve */

enum { PQ_HIGH, PQ_ZERO, PQ_LOW, PQS };

enum { RUN_STOPPED, RUN_ARMED, RUN_STARTING, RUN_UP };

enum {
	DRIVE_HELP = 1,		/* threads that run any work */
	DRIVE_BARE = 2,		/* it has no workers: none are wanted, or they were stopped */
	DRIVE_FAILED = 4,	/* they could not be created; with DRIVE_BARE */
};

struct exec_queue {
	/* Read by every call. */
	struct exec *x __cacheline_aligned;	/* I */
	struct exec_lane **lanes;	/* A: by slot; NULL until the thread needs one */
	u64 *map;		/* A: lanes that may have work; a thread writes its bit */
	u32 drive;		/* A: DRIVE_*: which threads besides its workers may take from it */
	u32 stop;		/* A: workers must leave */
	u32 workers;		/* I */
	u32 drive_set;		/* I: `drive` while it has workers */
	u32 number;		/* I: queues are counted from 0 */

	/*
	 * A: at least the number of entries of pq[]: an entry counts from before its push
	 * until after its removal.  n[PQ_HIGH] is read at every take.
	 */
	u32 n[PQS] __cacheline_aligned;
	u64 ticket[PQS];	/* A: of the next entry */
	/* A, for late work: see take_late(). */
	u64 late;		/* cycles(): it may be taken from then on */
	u64 late_since;		/* cycles() when late_mark() was last called */
	u64 late_mark[PQS][2];	/* ticket[] at the last two calls, the last one first */
	s64 late_prio;		/* of the last late work */
	struct prioq *pq[PQS];	/* I: above 0 and EXEC_FRONT; 0 when a ring is full; below 0 */

	struct waits waits[PQS] __cacheline_aligned;

	struct exec_group group;	/* its workers */
	struct exec_group reserve;	/* threads that wait inside its work: see inside.c */
	u32 waiting;		/* A: its workers that wait inside work */

	u32 run __cacheline_aligned;	/* A: RUN_* */
	u32 alive;		/* A: workers that were created and not joined */
	u32 missing;		/* A: not created, or refused by enter() */
	u64 again;		/* A: exec_now_ns(): until then they are not created again */
	const cpu_set_t *cpus;	/* I: where its workers may run; NULL: anywhere */
	struct exec_os_thread *threads;	/* W(stop) */
	struct worker *args;	/* W(stop) */
	char name[16];		/* I */
};

struct exec {
	struct exec_client cl;	/* I */
	const char *warm;	/* I: address of work 0, for prefetching */
	u32 stride;		/* I */
	u32 id;			/* I: exec_config.id */
	u32 max_threads;	/* I */
	u32 words;		/* A: of the bitmaps of slots, those that threads ever used; grows */
	u32 nqueues;		/* I: queues are added before threads use the executor */
	u64 spin;		/* I: cycles */
	u64 tidy_ns, look_ns;	/* I: ns */
	u64 look;		/* A: cycles() of the next client->look() */
	u64 batch;		/* I: cycles, BATCH_NS */
	u64 next;		/* I: cycles, NEXT_NS */
	u64 turn, round, check;	/* I: cycles, TURN_NS, ROUND_NS, CHECK_NS */
	u64 late;		/* I: cycles, config.late_ns; 0: lower priorities may starve */
	u64 yield;		/* I: cycles, YIELD_NS */
	u64 slow_yield;		/* I: cycles, SLOW_YIELD_NS */
	u64 rest;		/* I: cycles, REST_NS */
	u64 steal;		/* I: cycles, STEAL_NS */
	u64 untouched, forsaken;	/* I: cycles, UNTOUCHED_NS, FORSAKEN_NS */
	u64 relax;		/* I: cycles, RELAX_NS */
	u32 fast, leave_avg, leave_first, leave_most, judge;	/* I: cycles */
	struct exec_queue *queues[EXEC_MAX_QUEUES];	/* I */
	struct exec_thread **threads;	/* A: by slot */
	struct pool *nodes;	/* I */
	struct exec_group helpers;	/* threads that run any work: for all drive queues */
	struct exec_group servants;	/* threads that serve queues without workers: for these */
	u32 ready_fd __cacheline_aligned;	/* A: the eventfd of ready.c + 1, or 0 */
	u32 ready_armed;	/* A: the next push writes it; counted in helpers.attn */
	u32 ready_written;	/* A: writes that were begun and not cleared */
	u32 error __cacheline_aligned;	/* A: errno of the last worker that could not start */
	u32 driven;		/* A: how often the `drive` of some queue has changed */
	u64 wakes;		/* A: futex wake calls */
	u64 trims;		/* A: calls of exec_trim() */
	struct os_thread_attr attr;	/* I */
	bool eager;		/* I */
	u32 settled;		/* A, futex: workers that entered, or were refused */
	u32 ncpus;		/* I */
	int *cpus;		/* I */
	u32 cpu_turn;		/* A */
	char name[8];		/* I */
};

/* queue.c */
#define ORDER_SLOT	16u	/* the order of an entry of pq[]: ticket << 16 | slot of the pusher */
struct exec_lane *lane_mine(struct exec_queue *q, struct exec_thread *t);
void lanes_unmark_empty(struct exec *x, struct exec_thread *t);
void lanes_leave(struct exec *x, struct exec_thread *t);

/* take.c */
enum {
	MODE_VISIT = 1,		/* the lane of t->visit has its turn before t's own */
	MODE_OVER = 2,		/* the turn has ended */
	MODE_LATE = 4,		/* work of a lower priority is due */
	MODE_QUEUE = 8,		/* each lane had its turn: other queues are next */
};
enum {
	LOOK_DEEP = 1,		/* check other threads' hoards too */
	LOOK_LEAVE = 2,		/* a worker, which may leave short work to its maker */
	LOOK_LATE = 4,		/* take work of priority 0 before that of a higher one */
};
u32 queue_take(struct exec_queue *q, struct exec_thread *t, u32 how);
bool queue_empty(struct exec_queue *q);
bool queue_has(struct exec_queue *q, struct exec_thread *t);
u64 queue_mark(struct exec_queue *q);
bool thread_may_take(struct exec *x, struct exec_thread *t, u32 how);
u32 thread_take(struct exec *x, struct exec_thread *t, u32 how);
bool thread_goes_first(struct exec_queue *q, struct exec_thread *t, s32 prio) __noinline;

/* worker.c */
void queue_start(struct exec_queue *q) __cold;
bool serves_any(struct exec *x, u32 serves);
void wait_run(struct exec *x, struct exec_thread *t, u32 work, u32 most);
bool worker_idle(struct exec_queue *q, const struct exec_thread *t);

/* inside.c */
u32 inside_take(struct exec *x, struct exec_thread *t, struct exec_inside *in);
struct exec_group *inside_group(struct exec *x, struct exec_inside *in);

/* park.c */
enum idle_end { IDLE_WORK, IDLE_COND, IDLE_TIME, IDLE_STOP, IDLE_INTR, IDLE_DRIVEN };
struct idle {
	bool (*cond)(void *arg);	/* NULL: a worker */
	void *arg;
	u64 deadline;		/* exec_now_ns(); 0: none */
	bool help;		/* take work that t serves */
	u32 driven;		/* x->driven, when `help` was decided; if it changes: IDLE_DRIVEN */
	bool intr;		/* a signal handler ends it */
	bool polls;		/* also if t->naps */
	struct exec_inside *in;	/* instead of `help`: a wait inside work */
};
enum idle_end thread_idle(struct exec *x, struct exec_thread *t, const struct idle *how,
			  u32 *work);
/*
 * The end of the slots that threads ever used.  Relaxed: a thread that synchronizes with what the
 * user of a slot did sees it.  Progress: wait-free.
 */
static inline u32 slots_end(const struct exec *x)
{
	return (u32)min_u(load_relaxed(&x->words) * 64, x->max_threads);
}

bool group_init(struct exec_group *g, u32 id, u32 max_threads);
void group_fini(struct exec_group *g);
void queue_start_or_wake(struct exec_queue *q, struct exec_thread *t) __noinline;
void queue_wake(struct exec_queue *q);
void queue_wake_worker(struct exec_queue *q);
bool thread_woken(const struct exec_thread *t);
void look_due(struct exec *x, u64 now) __noinline;

/* ready.c */
bool ready_wake(struct exec *x);

/* The caller has read the clock for something else: costs nothing between two looks. */
static inline void look_check(struct exec *x, u64 now)
{
	if (unlikely(x->look_ns) && now >= load_relaxed(&x->look))
		look_due(x, now);
}

static inline bool thread_serves(const struct exec_thread *t, const struct exec_queue *q)
{
	return t->queue ? t->queue == q : load_relaxed(&q->drive) & t->serves;
}

/* Threads besides the workers that sleep until work is pushed to q, whose drive is this. */
static inline u32 drive_attn(struct exec_queue *q, u32 drive)
{
	u32 n = drive ? load_seq_cst(&q->x->helpers.attn) : 0;	/* EXEC-P1 <-> EXEC-P2 */

	if (unlikely(drive & DRIVE_BARE))
		n += load_seq_cst(&q->x->servants.attn);	/* EXEC-P1 <-> EXEC-P2 */
	return n;
}

/*
 * May the lane hold work?  head is that of its ring; with a claimer it differs from the tail,
 * because the claimer's hoard may have to be opened.  Progress: wait-free.
 */
static inline bool lane_holds(const struct exec_lane *l, u64 head)
{
	return head != load_relaxed(&l->ring.tail) ||
	       !hoard_empty(load_relaxed(&l->hoard.word));
}

/* Work with a priority other than 0 is queued, or was a moment ago. */
static inline bool queue_ranked(const struct exec_queue *q)
{
	return load_relaxed(&q->n[PQ_HIGH]) | load_relaxed(&q->n[PQ_LOW]);
}

#include <exec/policy.h>

/*
 * Fault injection: a weak function that a test replaces.  It is called before worker number i
 * of a queue is created; if it returns an errno, the creation fails with that.
 */
int exec_worker_hook(const char *queue, u32 i);

#endif
