// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: waits inside a piece of work.  The thread has a stack on which the work stands that
 * waits; other work that it runs on top keeps that one from continuing.  So it leaves ready work
 * to the other workers, as long as one of them will take it.
 *
 * A thread takes work onto its stack only if all workers of the queue are inside such waits, or
 * if all of them are inside work and no thread has taken any of the queue's work for UNTOUCHED_NS:
 * that work does not end.  As long as a worker is idle, it leaves the work to that worker, also if
 * the system has no CPU for it: what the thread took could wait for the work below it, and that
 * must not depend on the load of the machine.  Since a debugger may have stopped that worker, it
 * takes the work after FORSAKEN_NS.  It also takes work of queues that have no workers, which no
 * other thread runs.
 *
 * Structures: q->waiting counts the workers of a queue that are inside such a wait and run
 * nothing on top.  The last one that begins to wait finds that all do, and takes.  Those before
 * it sleep in q->reserve, and a push that finds no other thread to wake wakes one of them.  That
 * one watches the queue: it sleeps a millisecond at a time, and wakes one more idle worker each
 * time.  A thread that ends its wait or takes work wakes the next one of the reserve, if work is
 * left.
 *
 * The queue that a thread serves is that of the work that it is in, also if it waits for another
 * executor.  Then it sleeps on its park word there, on which pushes to the queue do not wake it,
 * and it watches all the time.
 *
 * Ordering: of two workers that begin to wait, the one whose increment of `waiting` is the later
 * one finds that both do.  Sleeping: as in park.c, with the reserve as a group.
 *
 * Progress: blocking, its purpose.
 */
#include <exec/internal.h>

/* Are all workers of the queue inside waits? */
static bool all_wait(const struct exec_queue *q)
{
	if (load_relaxed(&q->drive) & DRIVE_BARE)
		return true;
	return load_relaxed(&q->waiting) >= q->workers - load_relaxed(&q->missing);
}

/* Take from the queues of x that have no workers. */
static u32 bare_take(struct exec *x, struct exec_thread *t)
{
	u32 i, w = 0;

	for (i = 0; i < x->nqueues && !w; i++)
		if (load_relaxed(&x->queues[i]->drive) & DRIVE_BARE)
			w = queue_take(x->queues[i], t, LOOK_DEEP);
	return w;
}

/* The queue has work: does the thread leave it to others? */
static bool inside_leaves(struct exec_inside *in)
{
	struct exec_queue *q = in->queue;
	const struct exec *x = in->x;
	u64 now = cycles(), passed = in->since ? now - in->since : 0, mark;
	bool all = all_wait(q);
	/* Read before the mark: a worker takes work, and then it runs it. */
	bool idle = (all || passed >= x->untouched) && worker_idle(q, in->t);

	if (all && !idle)
		return false;
	mark = queue_mark(q);
	in->watches = WATCHES;
	if (!in->since || mark != in->mark) {
		in->mark = mark;
		in->since = in->woke = now | 1;
		return true;
	}
	if (!idle || passed >= x->forsaken)
		return passed < x->untouched;
	if (now - in->woke >= x->untouched) {
		in->woke = now;
		queue_wake_worker(q);
	}
	return true;
}

u32 inside_take(struct exec *x, struct exec_thread *t, struct exec_inside *in)
{
	struct exec_queue *q = in->queue;
	u32 w;

	if (!in->takes)
		return 0;
	in->of = x;
	in->by = t;
	w = bare_take(x, t);
	if (w)
		return w;
	in->of = in->x;
	in->by = in->t;
	if (!queue_has(q, in->t)) {
		in->since = 0;
		return 0;
	}
	if (inside_leaves(in))
		return 0;
	w = queue_take(q, in->t, LOOK_DEEP);
	in->since = 0;
	return w;
}

/* The group in which the thread sleeps; NULL: it watches. */
struct exec_group *inside_group(struct exec *x, struct exec_inside *in)
{
	bool watches = in->polls || in->x != x || serves_any(x, DRIVE_BARE);

	if (watches || !in->takes)
		return NULL;
	if (in->watches && (in->since || !all_wait(in->queue))) {
		in->watches--;
		return NULL;
	}
	return &in->queue->reserve;
}

/* The thread does not watch any more: if work is left, another one of the reserve does. */
static void inside_pass(struct exec_inside *in)
{
	struct exec_queue *q = in->queue;

	smp_mb();	/* EXEC-P4 <-> EXEC-P3: the work for which it may have been claimed */
	if (load_relaxed(&q->reserve.attn) && queue_has(q, in->t))
		queue_wake(q);
}

static void inside_begin(struct exec_inside *in)
{
	if (in->t->queue == in->queue)
		fetch_add_relaxed(&in->queue->waiting, 1);
}

static void inside_end(struct exec_inside *in)
{
	if (in->t->queue == in->queue)
		fetch_add_relaxed(&in->queue->waiting, -1u);
	if (in->takes)
		inside_pass(in);
}

int exec_wait_inside(struct exec *x, struct exec_thread *t, bool (*cond)(void *arg), void *arg,
		     s64 timeout_ns, u32 flags, struct exec_inside *in)
{
	struct idle how = { .cond = cond, .arg = arg, .intr = flags & EXEC_INTR, .in = in };
	u32 w;
	int rc;

	if (cond(arg))
		return 0;
	if (!timeout_ns)
		return -ETIMEDOUT;
	if (timeout_ns > 0)
		how.deadline = exec_now_ns() + (u64)timeout_ns;
	in->since = 0;
	in->watches = 0;
	for (;;) {
		inside_begin(in);
		do {
			how.driven = load_acquire(&x->driven);	/* EXEC-W14 <-> EXEC-W13 */
			w = 0;
			rc = thread_idle(x, t, &how, &w);
		} while (rc == IDLE_DRIVEN);
		inside_end(in);
		if (rc != IDLE_WORK)
			return rc == IDLE_COND ? 0 : rc == IDLE_INTR ? -EINTR : -ETIMEDOUT;
		wait_run(in->of, in->by, w, 0);
		if (in->of->cl.idle)
			in->of->cl.idle(in->of->cl.user, in->by);
		if (cond(arg))
			return 0;
		if (how.deadline && exec_now_ns() >= how.deadline)
			return -ETIMEDOUT;
	}
}
