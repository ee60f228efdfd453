// SPDX-License-Identifier: Apache-2.0
/*
 * Admission: what a push needs before it may begin, and what it does without.
 *
 * Purpose: a push needs a place in the window and objects of the pools: the op, a block
 * for each var that it writes, a chunk for the accesses of a large op.  Here, and only
 * here, a push waits for them, runs other ops meanwhile, or is refused.  Once it has all
 * of them nothing can fail but that another thread deletes one of its vars.
 *
 * Structures: the place in the window is the thread's count of pushed ops, raised before
 * anything else (admit(), admit.h); ops in flight are the sum of these counts without
 * the sum of what was completed.  A thread looks at the sum once for every eighth of the
 * window, at most every 64 pushes, and with PAWL_WINDOW_FAIL at each push.
 *
 *	policy	at the window				a pool is empty
 *	FAIL	-EAGAIN					-EAGAIN
 *	BLOCK	waits					waits for a completion
 *	HELP	runs ready ops; waits if there are none	the same
 *
 * A thread that finds the window full waits in two steps.  While it spins, it waits until
 * half of the window is free, so that it and the workers do not alternate op by op.
 * When it is about to sleep, it accepts any room, and arms the gate: so many completions
 * as are missing, which those that complete ops count down; the one that comes to 0 wakes
 * it.  So it continues within one op of there being room, whatever the others do next.
 *
 * A body never waits at the window: its own op is in flight, and what it waits for may
 * stand behind it.  Its pushes are admitted as long as the pools have objects.  Without
 * these it runs ready ops, and fails with -ENOMEM when there are none.
 *
 * A pool is empty because ops in flight have its objects (then their completion brings
 * some), or because the system refused memory, which is -ENOMEM at once.
 *
 * Ordering: CORE-N13 (count raised, barrier) <-> CORE-N13 of another pusher: of two that
 *   take the last place one sees the other, so a window that fails is never exceeded.
 *   CORE-N14 (gate armed, barrier, sums) <-> the completer's count, which has no barrier:
 *   a completion at that very moment may be in neither.  The sleeper looks again after
 *   LOOK_NS for that case.
 *
 * Progress: as the policy says; otherwise wait-free but for the sums.
 */
#include <core/admit.h>
#include <core/retire.h>
#include <core/wait.h>

#define LOOK_NS		1000000		/* a sleeper looks by itself after this */
#define WARM_BUDGET	64u

struct room {
	struct thread *t;
	u64 hard, soft;		/* ops in flight: most; until the thread is about to sleep */
	u64 until;		/* ns: from then on any room will do */
	u64 own, look;		/* own completions: at the last call; at which to look */
	bool armed;
};

static void gate_arm(struct room *r, u64 flight)
{
	u64 need = flight - r->hard;

	store_relaxed(&r->t->e->gate, (u32)min_u(need, UINT32_MAX));
	r->armed = true;
}

/*
 * While this thread completes ops itself it need not count again before it has done a part of
 * what is too much.  If it did nothing since the last call, it counts: it may go to sleep.
 */
static bool room_there(void *arg)
{
	struct room *r = arg;
	u64 own = r->t->completed, flight;

	if (own < r->look && own != r->own) {
		r->own = own;
		return false;
	}
	flight = ops_in_flight(r->t->e);
	r->own = own;
	if (flight <= r->soft)
		return true;
	r->look = own + (flight - r->soft) / 4;
	if (r->until && exec_now_ns() < r->until)
		return false;
	r->until = 0;
	if (flight > r->hard && !r->armed) {
		gate_arm(r, flight);
		smp_mb();	/* CORE-N14 */
		flight = ops_in_flight(r->t->e);
	}
	return flight <= r->hard;
}

static enum exec_help room_help(const struct pawl_engine *e)
{
	/* A queue without a worker, or all of them while the engine is stopped: nobody else. */
	return e->policy == PAWL_WINDOW_HELP || e->unserved || load_relaxed(&e->stopped) ?
	       EXEC_HELP : EXEC_HELP_DESERTED;
}

/* Until at most `hard` ops are in flight; until `soft`, if that comes soon. */
static void room_wait(struct thread *t, u64 hard, u64 soft)
{
	struct pawl_engine *e = t->e;
	struct room r = { .t = t, .hard = hard, .soft = soft, .own = t->completed };

	r.until = e->cfg.spin_ns ? exec_now_ns() + e->cfg.spin_ns / 2 : 0;
	wait_flight_begin(t, hard);
	while (exec_wait(e->x, &t->ex, room_there, &r, LOOK_NS, room_help(e)))
		r.armed = false;
	wait_flight_end(t);
}

/* The gate is armed, and this thread has completed an op. */
__cold void gate_pass(struct thread *t)
{
	u32 n = load_relaxed(&t->e->gate);

	while (n && !cas_relaxed(&t->e->gate, &n, n - 1))
		;
	if (n == 1)
		flight_check(t);
}

/* Too much is waiting to stay in the caches: run some of what is ready. */
static void run_warm(struct thread *t)
{
	struct pawl_engine *e = t->e;
	struct room r = { .t = t, .hard = e->warm / 2, .soft = e->warm / 2, .own = t->completed };
	u32 budget = t->ex.budget, work;

	while (!room_there(&r) && (work = exec_take(e->x, &t->ex))) {
		count(&t->ex.helped);
		t->ex.budget = WARM_BUDGET;
		run_work(e, &t->ex, work);
		t->ex.budget = budget;
	}
	flight_check(t);
}

/* The places of n ops; see admit(). */
__cold int admit_slow(struct thread *t, u32 n)
{
	struct pawl_engine *e = t->e;
	/* The pools have room for what all threads may push between two looks. */
	u32 step = min_u(e->window / 8, POOL_MAG);
	u64 hard = e->window > n ? e->window - n : 0, flight;

	if (e->policy == PAWL_WINDOW_FAIL) {
		if (n > e->window)
			return err(-E2BIG, "push_batch: %u ops, config.window is %u", n, e->window);
		store_release(&t->pushed, t->pushed + n);
		if (!BUSTED(WINDOW_NO_MB))
			smp_mb();	/* CORE-N13 <-> CORE-N13 */
		if (ops_in_flight(e) <= e->window || BUSTED(WINDOW_IGNORED))
			return 0;
		admit_undo(t, n);
		return err(-EAGAIN, "push: %u ops are in flight (config.window)", e->window);
	}
	if (!t->depth && !BUSTED(WINDOW_IGNORED)) {
		flight = ops_in_flight(e);
		if (flight > hard)
			room_wait(t, hard, hard / 2);
		else if (e->policy == PAWL_WINDOW_HELP && flight > e->warm)
			run_warm(t);
	}
	store_release(&t->pushed, t->pushed + n);
	t->next_check = t->pushed + max_u(step, 1u) - 1;
	return 0;
}

/* The push ends here, with its places given back. */
__cold void admit_undo(struct thread *t, u32 n)
{
	store_release(&t->pushed, t->pushed - n);
	/* Who waits for all may have counted them. */
	flight_check(t);
}

/* Nothing is left of the pool. */
__cold int err_pool_empty(struct thread *t, u32 pool, const char *what)
{
	t->lacks = pool;
	return err(-ENOMEM, "%s", what);
}

/*
 * A try found a pool empty, and gave back all that it had.  0: there was a completion, try
 * again; else what the call returns.  tried: there was nothing in flight any more.
 */
__cold int admit_again(struct thread *t, bool *tried, bool wait)
{
	struct pawl_engine *e = t->e;
	const struct pool *p = e->pool[t->lacks];
	struct pool_stat st;
	u32 budget, work;
	u64 flight;

	if (pool_carved(e->pool[t->lacks]) < p->max)
		return -ENOMEM;
	if (e->policy == PAWL_WINDOW_FAIL && !wait) {
		pool_stat(e->pool[t->lacks], &st);
		return err(-EAGAIN, "push: the ops in flight use up the pool %s", st.name);
	}
	if (t->depth) {
		work = t->depth < HELP_DEPTH ? exec_take(e->x, &t->ex) : 0;
		if (!work)
			return -ENOMEM;
		budget = alone_begin(t);
		count(&t->ex.helped);
		run_work(e, &t->ex, work);
		alone_end(t, budget);
		return 0;
	}
	flight = ops_in_flight(e);
	if (flight) {
		room_wait(t, flight - 1, flight / 2);
		return 0;
	}
	if (*tried)
		return -ENOMEM;
	*tried = true;
	return 0;
}
