/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor: run queues and the threads that serve them; layer 3.
 *
 * It knows nothing of ops: a ready piece of work is a 32-bit number that means
 * something to the client, and client->run() is the one call upwards.
 */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#if !defined(PAWL_LAYER) || PAWL_LAYER < 3
#error "exec/exec.h is for layer 3 and above"
#endif

#include <base/atomic.h>
#include <pool/pool.h>

struct exec;
struct exec_queue;
struct exec_ring;

/* A thread's part in an executor; embedded in the client's per-thread object. */
struct exec_thread;

struct exec_client {
	void *user;
	/*
	 * Run one piece of work on this thread, to its end.  May run more by asking
	 * exec_handoff().
	 */
	void (*run)(void *user, struct exec_thread *t, u32 work);
	/* Another thread made it ready, and it is run after the next one: prefetch what it touches. */
	void (*warm)(void *user, u32 work);
	/* A worker starts: give it an exec_thread (or NULL: it ends); it leaves. */
	struct exec_thread *(*enter)(void *user);
	void (*leave)(void *user, struct exec_thread *t);
	/* A worker found nothing to do, once per busy-to-idle edge, before it spins. */
	void (*idle)(void *user, struct exec_thread *t);
	void (*thread_start)(void *user2, const char *name);	/* the host's hooks */
	void (*thread_stop)(void *user2, const char *name);
	void *user2;
};

#define EXEC_FRONT 1u		/* before all others of the queue, whatever their priority */


struct exec_config {
	struct arena *arena;	/* not ready yet: exec_create() adds its pools */
	u32 max_threads;	/* slots 0 .. max_threads - 1 */
	u32 max_work;		/* work numbers are below this */
	/*
	 * They are indexes of this pool, of `arena`: who gets an object of it may push its
	 * number, and that cannot fail.
	 */
	struct pool *works;
	u64 spin_ns;		/* how long a thread looks before it parks */
	const int *cpus;	/* workers are pinned to these in turn */
	u32 ncpus;
	const char *name;	/* prefix of thread names */
};

/* Layout is in exec/thread.h, which the client includes to embed it. */
#include <exec/thread.h>

int exec_create(const struct exec_config *cfg, const struct exec_client *cl, struct exec **out);
/*
 * Before the first push, when the arena is ready: what to prefetch for a piece of work,
 * two lines at base + work * stride.
 */
void exec_set_warm(struct exec *x, const char *base, u32 stride);
/* Workers are stopped.  Whatever is queued is forgotten. */
void exec_destroy(struct exec *x);

/*
 * Add a queue with so many workers, named "<prefix>-<name>-<i>".  Its workers start
 * on the first exec_push() to it after exec_start(), or never if workers is 0.
 * `drive`: waiting threads and the host may take from it too.  Before other threads use
 * the executor.
 */
int exec_queue_add(struct exec *x, const char *name, u32 workers, bool drive,
		   struct exec_queue **out);
/*
 * Both repeatable, by one thread at a time, whom the caller puts in order.  stop joins the
 * workers; queues keep their work.
 */
int exec_start(struct exec *x);
void exec_stop(struct exec *x);
/*
 * 0, or the negative errno of the last worker that could not be created, or that enter()
 * refused.  The others work; a queue that has none at all is served as if it were `drive`.
 */
int exec_worker_error(struct exec *x);

/* Per-thread part.  The slot is the client's choice and exclusive while in use. */
int exec_thread_init(struct exec *x, struct exec_thread *t, u32 slot);
/* The thread leaves; ready work that it produced stays visible to the others. */
void exec_thread_fini(struct exec *x, struct exec_thread *t);

/*
 * Queue ready work.  Order in one queue: among what a thread that takes can see, EXEC_FRONT
 * goes first, then the higher priority; what t pushed with one priority is taken in that
 * order.  Between threads that push there is no order for priority 0, but a bound: see
 * queue.c.  Any thread with its t.  Never fails.
 * Progress: wait-free for priority 0 (one exchange; when the ring grows it allocates), else
 * lock-free; a system call only if a worker or a waiter sleeps.
 */
void exec_push(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio, u32 flags);
/*
 * For client->run(): may this thread run `work`, which just became ready, at once?
 * True if t serves q, has no work of its own in q that goes before it, nothing in q has a
 * higher priority, it is not another lane's turn, and t's budget allows; then the caller runs
 * it.  Else it is queued, as by exec_push().
 */
bool exec_handoff(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio);
/*
 * Take the next piece of work that t may run (a worker: of its queue; another thread: of
 * any `drive` queue).  0: none, but for what another thread put in during the call.
 * Lock-free.
 */
u32 exec_take(struct exec *x, struct exec_thread *t);

/* Does a thread that waits run work?  Or as soon as no worker came to some queue. */
enum exec_help { EXEC_WAIT, EXEC_HELP, EXEC_HELP_DESERTED };

/*
 * Run work until cond(arg) is true or the time is over (-ETIMEDOUT).  timeout_ns < 0: no
 * limit; 0: look at cond once, and at the queues. The thread spins for the budget, then
 * parks; whoever makes cond true calls exec_unpark(t) afterwards, work that is pushed
 * wakes it too (help).
 */
int exec_wait(struct exec *x, struct exec_thread *t, bool (*cond)(void *arg), void *arg,
	      s64 timeout_ns, enum exec_help help);
/* Any thread; no system call unless t is parked.  t may have left: then nothing happens. */
void exec_unpark(struct exec *x, struct exec_thread *t);

struct exec_stats {
	u64 stolen, handed, helped, sleeps, wakes;
	u32 workers;
};
void exec_stats(struct exec *x, struct exec_stats *s);
/* Monotonic time for deadlines, ns; and the unit of cycles(), measured at exec_create(). */
u64 exec_now_ns(void);

#endif
