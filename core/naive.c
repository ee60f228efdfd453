// SPDX-License-Identifier: Apache-2.0
/*
 * The naive kind: an op runs on the thread that pushed it, inside the outermost push.
 *
 * Structures: ready ops are in the run queues, as in the other kinds.  A thread that takes an op
 * of another thread, which is in a push, does not run it, but puts it on that thread's stack
 * (naive_ready), linked by op->wait, which a ready op does not use.  The owner moves the stack to
 * its list (naive_list), oldest first, and runs the ops one by one, also in waits of its bodies.
 *
 * Ordering: CORE-N21 (the stack, release) <-> CORE-N22 (acquire).
 *
 * Progress: a push blocks, its purpose; naive_run() is lock-free beside the body.
 *
 * Lifetime: an op on the stack is incomplete, so its owner is in the push.  Only the owner
 * removes ops, all of them at once, so there is no ABA.
 */
#include <core/graph.h>
#include <core/retire.h>
#include <core/thread.h>
#include <core/wait.h>

/* The thread that pushed the op, or the launch whose node the op carries. */
static struct thread *naive_owner(struct pawl_engine *e, const struct op *op)
{
	if (op->flags & OP_NODE)
		op = op_of(e, ((struct launch *)op->arg)->op);
	return thread_of(e, load_relaxed(&op->owner));
}

/* As run_work(), for the naive kind. */
void naive_run(void *user, struct exec_thread *ex, u32 work)
{
	struct thread *t = container_of(ex, struct thread, ex), *owner;
	struct op *op = op_of(t->e, work);
	u32 head;

	owner = naive_owner(t->e, op);
	/* A wait that was given up has no body; and a callback of pawl_complete() may have pushed. */
	if (owner == t || (op->flags & OP_WAITER) || !load_relaxed(&owner->naive_pending)) {
		run_alone(t, op, work);
		return;
	}
	head = load_relaxed(&owner->naive_ready);
	do
		store_relaxed(&op->wait, head);
	while (!cas_release_relaxed(&owner->naive_ready, &head, work));	/* CORE-N21 <-> CORE-N22 */
	exec_unpark(t->e->x, &owner->ex);
}

/* Does t own an op that another thread took? */
static bool naive_has(const struct thread *t)
{
	return t->naive_list || load_relaxed(&t->naive_ready);
}

/* Run the oldest one.  Returns false if there is none. */
static bool naive_step(struct thread *t)
{
	struct op *op;
	u32 opi, next;

	if (!t->naive_list) {
		opi = load_relaxed(&t->naive_ready);
		if (opi)
			opi = xchg_acquire(&t->naive_ready, 0);	/* CORE-N22 <-> CORE-N21 */
		for (; opi; opi = next) {
			op = op_of(t->e, opi);
			next = op->wait;
			store_relaxed(&op->wait, t->naive_list);
			t->naive_list = opi;
		}
	}
	opi = t->naive_list;
	if (!opi)
		return false;
	op = op_of(t->e, opi);
	t->naive_list = op->wait;
	store_relaxed(&op->wait, 0);
	run_alone(t, op, opi);
	flight_check(t);
	return true;
}

static bool naive_over(void *arg)
{
	struct thread *t = arg;

	return !load_acquire(&t->naive_pending) || naive_has(t);	/* CORE-N8 <-> CORE-N7 */
}

/*
 * A push that is not inside a body runs the ops that this thread pushed, here or from bodies, until
 * they are complete.
 */
int wait_naive(struct thread *t)
{
	if (BUSTED(NAIVE_EARLY))
		return 0;
	if (t->depth)
		return 0;
	do {
		while (naive_step(t))
			;
		exec_wait(t->e->x, &t->ex, naive_over, t, -1, EXEC_HELP);
	} while (load_acquire(&t->naive_pending));	/* CORE-N8 <-> CORE-N7 */
	flight_check(t);
	return 0;
}

struct naive_inside {
	bool (*cond)(void *arg);
	void *arg;
	struct thread *t, *of;	/* which waits, and whose body it is in: either may be naive */
	bool over;		/* cond() was true: it is not called again */
};

static bool inside_over(void *arg)
{
	struct naive_inside *w = arg;

	w->over = w->over || w->cond(w->arg);
	return w->over || naive_has(w->t) || naive_has(w->of);
}

/* exec_wait_inside(), where t or the thread of the body that waits may own such ops. */
int naive_wait_inside(struct thread *t, bool (*cond)(void *arg), void *arg, s64 timeout_ns,
		      u32 flags, struct exec_inside *in)
{
	struct naive_inside w = { cond, arg, t, container_of(in->t, struct thread, ex), false };
	u64 end = timeout_ns > 0 ? exec_now_ns() + (u64)timeout_ns : 0, now;
	int rc;

	for (;;) {
		rc = exec_wait_inside(t->e->x, &t->ex, inside_over, &w, timeout_ns, flags, in);
		if (rc || w.over)
			return rc;
		if (!naive_step(w.t))
			naive_step(w.of);
		now = end ? exec_now_ns() : 0;
		if (end && now >= end)
			return cond(arg) ? 0 : -ETIMEDOUT;
		if (end)
			timeout_ns = (s64)(end - now);
	}
}
