// SPDX-License-Identifier: Apache-2.0
/*
 * Admission: what a push needs before it may begin, and what it does if that is missing.
 *
 * Purpose: a push needs room in the window, and objects of the pools: the op, a block for
 * each var that it writes, a chunk for the accesses of a large op.  Only this file makes a
 * push wait for them, or fail.  A push that has all of them can
 * fail only because another thread deletes one of its vars.
 *
 * Structures: a push takes room in the window by raising its thread's count of room taken before
 * anything else (admit(), admit.h).  The room is freed before another thread can know that the op
 * is complete: by the thread that completes it, before it releases the vars, or, if the op names
 * a completion queue, by the thread that reaps the completion (room_free()).  Waits take none.
 * What is in the window is the sum of the counts of room taken minus the sum of those of room
 * freed.  With PAWL_WINDOW_FAIL a thread computes it at each push.  Otherwise a thread computes it
 * when the room that it took, less what it freed itself, has grown by an eighth of the window, 64
 * at most.  A thread that frees as much as it takes does not fill the window, and never reads the
 * other threads' counts.
 *
 *	policy	at the window				a pool is empty
 *	FAIL	-EAGAIN, window_want()			-EAGAIN, window_want()
 *	BLOCK	waits					waits for a completion
 *	both	-EAGAIN if it would wait for nothing but a reap
 *
 * A thread that finds the window full waits in two steps.  While it spins, it waits until
 * half of the window is free, so that it and the workers do not alternate op by op.
 * When it is about to sleep, it accepts any room, and arms the gate with the number of
 * completions that are missing.  Threads that complete ops count it down, and the one that
 * brings it to 0 wakes the sleeper.  So the sleeper continues within one op after there is
 * room, whatever the other threads do next.
 *
 * A body never waits at the window: its own op is in flight, and what it would wait for may
 * be queued behind that op, or behind that of another engine, if the body is one of its ops.
 * Its pushes are admitted as long as the pools have objects, and fail with -EAGAIN when a pool
 * is empty.
 *
 * A pool is empty either because ops in flight have its objects, which their completion
 * frees, or because the system refused memory, which is -ENOMEM at once.
 *
 * Ordering: CORE-N13 (count raised, barrier) <-> CORE-N13 of another pusher: of two pushers
 *   that take the last room, at least one sees the other, so that the window of policy FAIL
 *   is never exceeded.
 *   CORE-N14 (gate armed, barrier, sums) <-> the completer's count, which has no barrier: the
 *   gate and the sums may both miss a completion at that moment.  For that case the sleeper
 *   checks again after RECHECK_NS.
 *
 * Progress: blocking as the policy says; otherwise wait-free, bounded by the number of threads
 * where the sums are computed.
 */
#include <core/admit.h>
#include <core/cq.h>
#include <core/device.h>
#include <core/opgroup.h>
#include <core/retire.h>
#include <core/wait.h>

#define RECHECK_NS	1000000		/* a sleeper checks again after this */
#define REAP_NS		10000000	/* a wait for room checks after this what it waits for */

struct room {
	struct thread *t;
	u64 hard;		/* continue at this many ops in flight, or fewer */
	u64 soft;		/* the same, until the thread is about to sleep */
	u64 until;		/* ns: from then on `hard` is enough */
	u64 own;		/* own completions at the last call */
	u64 next;		/* own completions at which to compute the sums again */
};

/*
 * The gate counts completions for the sleeper that needs the fewest; when it wakes them, the
 * others arm it again.  Returns how many ops are in flight with the gate armed for that number.
 */
static u64 gate_arm(const struct room *r, u64 flight)
{
	struct pawl_engine *e = r->t->e;
	u32 was = load_relaxed(&e->gate), need;
	u64 before;

	do {
		need = (u32)min_u(flight - r->hard, UINT32_MAX);
		while ((!was || was > need) && !cas_relaxed(&e->gate, &was, need))
			;
		smp_mb();	/* CORE-N14 */
		before = flight;
		flight = window_flight(e);
		was = load_relaxed(&e->gate);
	} while (flight > r->hard && flight < before);
	return flight;
}

/*
 * Ops that take room in the window: those that are pushed, or being pushed, and not complete, and
 * those whose completion is not reaped.  Never less than at the beginning of the call, apart from
 * room that was freed meanwhile.  Progress: wait-free.
 */
u64 window_flight(struct pawl_engine *e)
{
	/* Before the slots, as in ops_completed().  CORE-N12 <-> CORE-N11 */
	u64 freed = load_acquire(&e->gone.freed), taken = 0;
	struct thread *t;
	u32 i;

	for_each_live(e, t, i)
		freed += load_acquire(&t->freed);	/* CORE-N20 <-> CORE-N19 */
	for_each_live(e, t, i)
		taken += load_acquire(&t->taken);	/* CORE-N18 <-> CORE-N17, CORE-N10 <-> CORE-N9 */
	/* After the slots, as in ops_pushed(). */
	return taken + load_relaxed(&e->gone.taken) - freed;
}

/*
 * A thread that completes ops itself need not compute the sums again before it has completed a
 * part of what is too much.  One that completed none since the last call computes them, since
 * it may be about to sleep.
 */
static bool room_there(void *arg)
{
	struct room *r = arg;
	u64 own = r->t->freed, flight;

	if (own < r->next && own != r->own) {
		r->own = own;
		return false;
	}
	flight = window_flight(r->t->e);
	r->own = own;
	if (flight <= r->soft)
		return true;
	r->next = own + (flight - r->soft) / 4;
	if (r->until && exec_now_ns() < r->until)
		return false;
	r->until = 0;
	return flight <= r->hard || gate_arm(r, flight) <= r->hard;
}

/*
 * Are at most `low` percent of the window in flight?  If not, the gate is armed, so that a
 * completion checks again.  Progress: lock-free.
 */
bool window_low(struct thread *t, u32 low)
{
	struct room r = { .t = t, .hard = low_of(t->e->window, low) };
	u64 flight = window_flight(t->e);

	return flight <= r.hard || gate_arm(&r, flight) <= r.hard;
}

/* Completions that were posted and not reaped.  Progress: wait-free. */
u64 unreaped(struct pawl_engine *e)
{
	u64 sum = load_relaxed(&e->gone.unreaped);
	struct thread *t;
	u32 i;

	for_each_live(e, t, i)
		sum += load_relaxed(&t->unreaped);
	/* The sum of values of different moments may be below 0. */
	return (s64)sum > 0 ? sum : 0;
}

/* Does a thread run an op, or could it, or does a device work? */
static bool engine_works(struct pawl_engine *e)
{
	struct exec_queue *q;
	struct thread *t;
	u32 i;

	for_each_live(e, t, i)
		if (load_relaxed(&t->running))
			return true;
	for (i = 0; (q = exec_queue_at(e->x, i)); i++)
		if (exec_queue_works(q))
			return true;
	return e->devices && devices_work(e);
}

/* The call must not wait: most completions wait for a reap of this queue. */
int err_unreaped(struct pawl_engine *e, const char *who)
{
	return err(-EAGAIN, "%s: %llu completions wait for a reap, most of them in the completion queue %#llx (config.window is %u)",
		   who, (unsigned long long)unreaped(e), (unsigned long long)cq_fullest(e), e->window);
}

/*
 * A push that has slept finds no room.  Would it wait for nothing but a reap, or for what only
 * the host can do, which reaps as well?  Nothing has completed since the last call, and nothing
 * runs or is ready.  *was is 0 at first.
 */
static bool reap_awaited(struct pawl_engine *e, u64 *was)
{
	u64 done = ops_completed(e) + 1;
	bool same = *was == done;

	*was = unreaped(e) && !engine_works(e) ? done : 0;
	return same && *was;
}

/*
 * Wait until at most `hard` ops are in the window; if it takes no longer than a spin, `soft`.
 * Returns 0, or -EAGAIN if that needs a reap.
 */
static int room_wait(struct thread *t, u64 hard, u64 soft)
{
	struct pawl_engine *e = t->e;
	struct room r = { .t = t, .hard = hard, .soft = soft, .own = t->freed };
	u64 was = 0;
	bool reap = !ops_in_flight(e) && window_flight(e) > hard && unreaped(e);

	if (reap)
		return err_unreaped(e, "push");
	r.until = e->cfg.spin_ns ? exec_now_ns() + e->cfg.spin_ns / 2 : 0;
	wait_flight_begin(t, hard, true);
	while (!reap && exec_wait(e->x, &t->ex, room_there, &r, RECHECK_NS, EXEC_BARE | EXEC_POLL))
		reap = reap_awaited(e, &was);
	wait_flight_end(t);
	return reap ? err_unreaped(e, "push") : 0;
}

/*
 * A wait until at most `hard` ops are in the window, and perhaps for more.  Returns what
 * wait_body() does, or -EAGAIN if that needs a reap.
 */
int window_wait(struct thread *t, u64 hard, const struct wait_for *what, s64 timeout_ns, u32 how)
{
	u64 now = exec_now_ns(), end = timeout_ns < 0 ? UINT64_MAX : now + (u64)timeout_ns, was = 0;
	int rc;

	do {
		rc = wait_body(t, what, (s64)min_u(end - now, REAP_NS), how);
		if (rc != -ETIMEDOUT)
			return rc;
		if (window_flight(t->e) > hard && reap_awaited(t->e, &was))
			return -EAGAIN;
		now = exec_now_ns();
	} while (now < end);
	return rc;
}

/* This thread has completed an op while the gate is armed.  Progress: lock-free. */
__cold void gate_pass(struct thread *t)
{
	u32 n = load_relaxed(&t->e->gate);

	while (n && !cas_relaxed(&t->e->gate, &n, n - 1))
		;
	if (BUSTED(GATE_NO_WAKE))
		return;
	/* Also those for which another pusher leaves no room by now: they arm it again. */
	if (n == 1)
		flight_wake(t, 1);
}

/* Slow path of admit(): compute the sums.  Progress: as the policy says. */
__cold int admit_slow(struct thread *t, u32 n)
{
	struct pawl_engine *e = t->e;
	/* The pools have room for what all threads may push between two sums. */
	u32 step = min_u(e->window / 8, e->pool[POOL_OP]->mag), part = step / 4;
	u64 hard = e->window > n ? e->window - n : 0, flight;
	u64 net = t->taken - t->freed + n;
	int rc = 0;

	if (unlikely(e->kind == PAWL_NAIVE))
		exec_look_now(e->x);
	if (e->policy == PAWL_WINDOW_FAIL) {
		if (n > e->window)
			return err(-E2BIG, "push_batch: %u ops, config.window is %u", n,
				   e->window);
		store_release(&t->taken, t->taken + n);		/* CORE-N17 <-> CORE-N18 */
		if (!BUSTED(WINDOW_NO_MB))
			smp_mb();	/* CORE-N13 <-> CORE-N13 */
		if (BUSTED(WINDOW_IGNORED))
			return 0;
		if (window_flight(e) <= e->window)
			return 0;
		admit_undo(t, n);
		window_want(t);
		if (unreaped(e))
			return err_unreaped(e, "push");
		return err(-EAGAIN, "push: %u ops are in flight (config.window)", e->window);
	}
	/*
	 * Between two calls a thread pushes up to part - 1 ops that no call sees, so that it may
	 * have been that much lower since the last call, and become that much higher until the
	 * next one.
	 */
	if (!thread_inside(t) && net - t->level > step - 2 * part) {
		flight = window_flight(e);
		if (BUSTED(WINDOW_IGNORED))
			flight = 0;
		if (flight > hard)
			rc = room_wait(t, hard, hard / 2);
		if (rc)
			return rc;
		t->level = t->taken + n - t->freed;
	}
	store_release(&t->taken, t->taken + n);		/* CORE-N17 <-> CORE-N18 */
	t->next_check = t->taken + max_u(part, 1u) - 1;
	return 0;
}

/* The push of n ops fails: free their room in the window. */
__cold void admit_undo(struct thread *t, u32 n)
{
	store_release(&t->taken, t->taken - n);		/* CORE-N17 <-> CORE-N18 */
	/* A thread that waits for room may have counted them. */
	flight_check(t);
}

/* The pool is empty: set the message, and remember the pool for admit_again(). */
__cold int err_pool_empty(struct thread *t, u32 pool, const char *what)
{
	t->lacks = pool;
	return err(-ENOMEM, "%s", what);
}

/*
 * A pool was empty, and the push has freed everything that it had.  Returns 0 after a
 * completion: try again; otherwise what the call returns.  *idle, 0 at first, is how many ops
 * had been pushed, plus 1, when no op was in flight at an earlier call.  If none was pushed
 * since, there is nothing left to wait for; otherwise it may have used the pool at the time of
 * the last try.  Progress: as the policy says.
 */
__cold int admit_again(struct thread *t, u64 *idle)
{
	struct pawl_engine *e = t->e;
	const struct pool *p = e->pool[t->lacks];
	struct pool_stat st;
	u64 flight, pushed;

	if (pool_carved(e->pool[t->lacks]) < p->max)
		return -ENOMEM;
	if (e->policy == PAWL_WINDOW_FAIL || thread_inside(t)) {
		window_want(t);
		if (t->lacks == POOL_NOTE && unreaped(e))
			return err_unreaped(e, "push");
		pool_stat(e->pool[t->lacks], &st);
		return err(-EAGAIN, "push: the ops in flight use up the pool %s%s", st.name,
			   e->policy == PAWL_WINDOW_FAIL ? "" : ", and a body does not wait for them");
	}
	pushed = ops_pushed(e) + 1;
	flight = window_flight(e);
	if (flight)
		return room_wait(t, flight - 1, flight / 2);
	if (*idle == pushed)
		return -ENOMEM;
	*idle = pushed;
	return 0;
}
