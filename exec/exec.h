/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor: run queues and the threads that serve them; layer 3.
 *
 * The executor knows nothing about ops: a ready piece of work is a 32-bit number that only
 * the client interprets, and client->run() runs it.
 */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#if !defined(PAWL_LAYER) || PAWL_LAYER < 3
#error "exec/exec.h is for layer 3 and above"
#endif

#include <base/atomic.h>
#include <base/thread.h>
#include <pool/pool.h>

struct exec;
struct exec_queue;

/* The state of one thread in an executor; embedded in the client's per-thread object. */
struct exec_thread;

struct exec_client {
	void *user;
	/*
	 * Run one piece of work on this thread, to its end.  May run more pieces, if
	 * exec_handoff() permits.
	 */
	void (*run)(void *user, struct exec_thread *t, u32 work);
	/*
	 * Prefetch what `work` touches.  Another thread made it ready; this thread will run
	 * it after the next piece.  May be NULL.
	 */
	void (*warm)(void *user, u32 work);
	/* A worker starts: return its exec_thread, or NULL to end the worker. */
	struct exec_thread *(*enter)(void *user);
	/* A worker that entered ends.  May be NULL. */
	void (*leave)(void *user, struct exec_thread *t);
	/* A worker has run out of work; called once each time, before it spins. */
	void (*idle)(void *user, struct exec_thread *t);
	/*
	 * A worker has slept for tidy_ns: it may use its time, in steps, between which it calls
	 * exec_wanted().  Returns false to be called again after as long.  May be NULL.
	 */
	bool (*tidy)(void *user, struct exec_thread *t);
	/* Called about every look_ns, by any thread that sleeps or takes work.  May be NULL. */
	void (*look)(void *user);
	void (*thread_start)(void *user2, const char *name);	/* the host's hooks */
	void (*thread_stop)(void *user2, const char *name);
	/* The host makes the threads; NULL: the executor does.  Returns 0 or an errno. */
	int (*thread_create)(void *user2, void *(*fn)(void *arg), void *arg, void **thread);
	void (*thread_join)(void *user2, void *thread);
	void *user2;
};

#define EXEC_FRONT 1u		/* before everything else in the queue, of any priority */

struct exec_config {
	struct arena *arena;	/* before arena_ready(): exec_create() adds its pools */
	u32 id;			/* the first argument of probes */
	u32 max_threads;	/* slots 0 .. max_threads - 1 */
	u32 max_work;		/* work numbers are below this */
	/*
	 * Work numbers are indexes of this pool, which belongs to `arena`.  A push of the index
	 * of an allocated object cannot fail.
	 */
	struct pool *works;
	u64 spin_ns;		/* how long an idle thread polls before it sleeps */
	u64 tidy_ns;		/* how long a worker sleeps before client->tidy(); 0: never */
	u64 look_ns;		/* time between two calls of client->look(); 0: never */
	/*
	 * Work that a higher priority has kept waiting for so long is taken, at most half of the
	 * time of one thread; 0: never.
	 */
	u64 late_ns;
	const int *cpus;	/* workers are pinned to these in turn */
	u32 ncpus;
	struct os_thread_attr attr;	/* of its threads; what attr.cpus points to is kept */
	bool eager;		/* exec_start() creates the workers, and waits until they are up */
	const char *name;	/* prefix of thread names */
};

/* Layout is in exec/thread.h, which the client includes to embed it. */
#include <exec/thread.h>

int exec_create(const struct exec_config *cfg, const struct exec_client *cl, struct exec **out);
/*
 * Set what is prefetched for a piece of work: two lines at base + work * stride.  To be
 * called when the arena is ready, before the first push.
 */
void exec_set_warm(struct exec *x, const char *base, u32 stride);
/* For threads that neither sleep nor take work: is it time for client->look()? */
void exec_look_now(struct exec *x);
/* Stop the workers and free the executor.  Queued work is dropped. */
void exec_destroy(struct exec *x);

/*
 * Add a queue with that many workers, named "<prefix>-<name>-<i>".  The workers start on the
 * first exec_push() to the queue after exec_start().  With `drive`, threads that run any work
 * take from the queue too (EXEC_HELP, exec_take()).  While it has no workers, threads that
 * serve such queues do (EXEC_BARE).  To be called before other threads use the executor.
 */
int exec_queue_add(struct exec *x, const char *name, u32 workers, bool drive,
		   struct exec_queue **out);
/* The queue's workers may run on these CPUs, instead of attr.cpus.  *cpus is kept. */
void exec_queue_cpus(struct exec_queue *q, const cpu_set_t *cpus);
/*
 * Start and stop the workers, any number of times.  Callers must serialize these calls.
 * exec_stop() joins the workers; queues keep their work.
 */
void exec_start(struct exec *x);
void exec_stop(struct exec *x);
/*
 * Return 0, or the negative errno of the last worker that could not be created or that
 * enter() refused.  The other workers run.  If there is none, later pushes create them again,
 * at most once per millisecond.
 */
int exec_worker_error(struct exec *x);

/* A slot is free: a worker that found none may enter now.  Blocking: it may create threads. */
void exec_slot_freed(struct exec *x);

/* A thread as the executor's own are made, or as the host makes them. */
struct exec_os_thread {
	os_thread os;
	void *host;
};
int exec_os_thread_start(struct exec *x, struct exec_os_thread *t, const cpu_set_t *cpus,
			 void *(*fn)(void *arg), void *arg);
void exec_os_thread_join(struct exec *x, struct exec_os_thread *t);

/* Start to use slot `slot`, which the client chooses and no other thread uses meanwhile. */
int exec_thread_init(struct exec *x, struct exec_thread *t, u32 slot);
/*
 * Allocate all that t needs to push to any queue for the first time, and in each of them room
 * for `ready` pieces of work of priority 0 that no thread has taken.  Returns 0 or -ENOMEM.
 * Progress: blocking (allocates).
 */
int exec_thread_reserve(struct exec *x, struct exec_thread *t, u32 ready);
/* The thread leaves.  Ready work that it pushed stays visible to the others. */
void exec_thread_fini(struct exec *x, struct exec_thread *t);

/*
 * Queue ready work.  Any thread may call it, with its own t.  It never fails.
 * Order in one queue: of the work that is visible to a taking thread, EXEC_FRONT goes first,
 * then the higher priority, except for late work (config.late_ns).  Work that one thread pushed
 * with one priority is taken in the
 * order of the pushes.  Work of priority 0 that several threads pushed has no order among
 * them, but a bound: see take.c.
 * Progress: wait-free for priority 0 (one exchange; a ring that grows allocates), otherwise
 * lock-free; a system call only if a worker or a waiter sleeps.
 */
void exec_push(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio, u32 flags);
/*
 * exec_push() of several pieces: exec_push_more() for each, then exec_pushed() once for their
 * queue.  A thread that takes work finds each piece at once, but until exec_pushed() a thread
 * that falls asleep may miss it.
 */
void exec_push_more(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio, u32 flags);
void exec_pushed(struct exec_queue *q, struct exec_thread *t);
/*
 * For client->run(): may this thread at once run `work`, which has just become ready?
 * Returns true if it may: t serves q, t has no work in q that goes first, nothing in q has a
 * higher priority, no other work has its turn, and t's budget is not used up.  Otherwise
 * `work` is queued as by exec_push().
 */
bool exec_handoff(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio);
/*
 * Is it longer than about 10 us ago that cycles() returned `since`?  Then client->run() should
 * check the queues, by exec_handoff(), before it goes on.  Progress: wait-free.
 */
bool exec_turn_over(const struct exec *x, u64 since);
/*
 * Return the oldest piece of work in t's own ring for the queue that it last pushed to, or 0.
 * Another thread may take it at any time, and may even have run it.  Progress: wait-free.
 */
u32 exec_look(const struct exec_thread *t);
/*
 * For client->run() at the end of a piece of work: take this piece, which exec_look() returned, if
 * t would take it next, recent pieces were short, and t's budget is not used up; at most 16
 * pieces and for about 10 us in one call of run().  If this returns false, run() should return
 * to its caller, which searches all queues and checks what it waits for.
 * Progress: lock-free.
 */
bool exec_next(struct exec *x, struct exec_thread *t, u32 work);
/*
 * Take the next piece of work that t may run: a worker from its queue, another thread from
 * any `drive` queue and from those without workers.  Returns 0 if there was none; work that is pushed during the call may be
 * missed.  Progress: lock-free.
 */
u32 exec_take(struct exec *x, struct exec_thread *t);
/*
 * A descriptor that is readable while a thread may find work by exec_take_ready(), or the
 * negative errno of eventfd(2).  It stays readable until exec_take_ready() has returned 0.
 */
int exec_ready_fd(struct exec *x);
/* As exec_take(), for threads that read the descriptor.  Lock-free, and system calls. */
u32 exec_take_ready(struct exec *x, struct exec_thread *t);

/*
 * Take this piece, which exec_look() returned, if it is still the oldest in that ring.  Returns
 * it, or 0.  Progress: lock-free.
 */
u32 exec_take_this(struct exec_thread *t, u32 work);

/*
 * Which work a waiting thread runs: none; that of any `drive` queue; that of queues without
 * workers, as soon as those of some queue could not be created; or that of queues without workers.
 */
enum exec_help { EXEC_WAIT, EXEC_HELP, EXEC_FAILED, EXEC_BARE };
#define EXEC_HELPS 3u
/* With one of these: */
#define EXEC_INTR 4u	/* -EINTR when a signal handler ran while it slept */
#define EXEC_POLL 8u	/* it polls, however long its last idle times were */

/*
 * Wait until cond(arg) is true (returns 0) or the time has passed (-ETIMEDOUT), and run work
 * meanwhile as `help` says.  timeout_ns < 0: no limit; 0: check cond and the queues once.  With
 * a limit, the time is checked after each piece of work.  The
 * thread polls for the spin budget, unless that was in vain several times, and then sleeps.
 * The thread that makes cond true calls exec_unpark(t) afterwards; with help, pushed work wakes
 * the thread too.
 */
int exec_wait(struct exec *x, struct exec_thread *t, bool (*cond)(void *arg), void *arg,
	      s64 timeout_ns, u32 help);
/*
 * A wait inside a piece of work, which may be of another executor than that of the wait: it takes
 * work of the queue onto its stack only if no worker of the queue would run it, and work of
 * queues of x that have no workers.
 */
struct exec_inside {
	struct exec *x;		/* of the work that waits, */
	struct exec_thread *t;	/*   the thread in it, */
	struct exec_queue *queue;	/*   and its queue */
	bool takes;		/* false: it only waits */
	bool polls;		/* cond() is to be called from time to time */

	/* The rest belongs to exec. */
	struct exec *of;	/* of the work that inside_take() returned, */
	struct exec_thread *by;	/*   and the thread in it */
	u64 mark;		/* what was taken from the queue when it saw work, */
	u64 since;		/*   and cycles() then; 0: it saw none */
	u64 woke;		/* cycles() when it last woke a worker for that */
	u32 watches;		/* for so many ms it does not join the reserve */
};
int exec_wait_inside(struct exec *x, struct exec_thread *t, bool (*cond)(void *arg), void *arg,
		     s64 timeout_ns, u32 flags, struct exec_inside *in);
/* For client->tidy(): returns true if t must return, because of work or exec_stop(). */
bool exec_wanted(const struct exec_thread *t);
/*
 * Wake t if it sleeps.  Any thread may call it; no system call unless t sleeps.  No effect if
 * t has left.
 */
void exec_unpark(struct exec *x, struct exec_thread *t);

/*
 * Free the memory by which run queues have grown: those of t now, if they are empty; those of
 * another thread when it pushes to an idle queue, when its ring is full, or when it leaves.
 * Progress: wait-free, and system calls.
 */
void exec_trim(struct exec *x, struct exec_thread *t);

struct exec_stats {
	u64 stolen, handed, helped, sleeps, wakes;
	u64 bytes;		/* of lanes and rings */
	u32 workers;
};
void exec_stats(struct exec *x, struct exec_stats *s);

struct exec_queue_stats {
	const char *name;	/* as exec_queue_add() got it */
	u32 number, workers;
	u64 depth, pushed;
	u64 wait_ns, wait[40];	/* estimates from samples: waits.h */
};
/* Each number was right at some time.  Progress: wait-free. */
void exec_queue_stats(struct exec_queue *q, struct exec_queue_stats *s);
/* Has q work that is queued, or a worker inside a run?  Progress: wait-free. */
bool exec_queue_works(struct exec_queue *q);
/* config.name as the names of threads begin with it. */
const char *exec_name(const struct exec *x);
/* The queues in the order of their creation; NULL: there are no more. */
struct exec_queue *exec_queue_at(struct exec *x, u32 i);
/* Monotonic time for deadlines, in ns. */
u64 exec_now_ns(void);
/* Has it reached this time? */
bool exec_late(u64 deadline);
/* The rate of cycles().  The first call measures it, for 200 us. */
u64 exec_cycles_per_us(void);

static inline u64 ns_to_cycles(u64 per_us, u64 ns)
{
	return ns / 1000 * per_us + ns % 1000 * per_us / 1000;
}

#endif
