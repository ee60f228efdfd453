/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy of the executor; layer 3, inside exec only.
 *
 * All times and limits, the estimates that threads make, and what they decide by them: how much a
 * thread takes at once, when it reads the clock and checks other lanes, whether it leaves work to
 * its maker, how it polls, yields or sleeps, and whether a push wakes a thread.  A wrong estimate
 * costs time, and no work is lost by it.  The protocol of lanes, rings, groups and park words is in
 * the other files.
 *
 * Times are in ns here and in cycles() in struct exec.
 */
#ifndef EXEC_POLICY_H
#define EXEC_POLICY_H

#ifndef EXEC_INTERNAL_H
#error "exec/internal.h includes exec/policy.h"
#endif

/* --- Batches and hand-overs ------------------------------------------------------------ */

/* The largest number of pieces of work that a thread takes at once from another's ring. */
#ifndef CONFIG_EXEC_BATCH
#define CONFIG_EXEC_BATCH 32
#endif
#define EXEC_BATCH_MAX	(CONFIG_EXEC_BATCH < 1 ? 1 :					\
			 CONFIG_EXEC_BATCH > 64 ? 64 : CONFIG_EXEC_BATCH)
#define BATCH_NS	3000u	/* a batch should not run longer than this */
#define SAMPLE_EVERY	16u	/* one run in this many is measured; a power of two */
/* exec_next() is for pieces of which at least so many fit into BATCH_NS. */
#ifdef PAWL_MODEL
#define NEXT_BATCH	1u	/* no time passes */
#else
#define NEXT_BATCH	2u
#endif
#define NEXT_MOST	16u	/* exec_next() takes at most so many pieces in one run, */
#define NEXT_NS		10000u	/* and none so long after the first one */

/* A run took c cycles per piece: t->avg and t->batch follow. */
static inline void run_measured(const struct exec *x, struct exec_thread *t, u64 c)
{
	if (c > UINT32_MAX / 8)
		c = UINT32_MAX / 8;
	t->avg = t->avg ? (u32)((3ull * t->avg + c) / 4) : (u32)c;
	c = x->batch / (t->avg + 1);
	t->batch = c > EXEC_BATCH_MAX ? EXEC_BATCH_MAX : c ? (u32)c : 1;
}

/* May exec_next() take one more piece after n in this run? */
static inline bool next_pays(const struct exec_thread *t, u32 n)
{
	return t->batch >= NEXT_BATCH && n < NEXT_MOST;
}

/* --- Turns ----------------------------------------------------------------------------- */

/*
 * Turns, see take.c.  In the model no time passes: a turn soon has four takes.
 */
#ifdef PAWL_MODEL
#define TURN_NS		0u
#define LOOK_TURNS	1u
#define STEP_SHARED	4u
#define STEP_ALONE	4u
#define CALM		1u
#else
#define TURN_NS		20000u	/* for so long a thread stays at a lane while others have work */
#define LOOK_TURNS	25u	/* in so many turns of short work it has looked at all lanes */
#define STEP_SHARED	16u	/* takes between two readings of the clock at most, */
#define STEP_ALONE	64u	/* and if no other lane had work when it last checked */
#define CALM		8u	/* readings that find short work before they become rarer */
#endif
#define ROUND_NS	1000000u	/* a turn at each lane together, if the work is short */
#define CHECK_NS	5000u	/* time between two readings of the clock */

/*
 * `spent` cycles passed since the last reading of the clock: when is the next one?  After about
 * CHECK_NS, if the work runs as long as it did; twice as many takes later after CALM readings that
 * found short work, but at most step_most.
 */
static inline void turn_pace(const struct exec *x, struct exec_thread *t, u64 spent)
{
	if (spent >= x->check) {
		t->step = (u32)max_u(t->step * x->check / max_u(spent, 1), 1);
		t->calm = 0;
	} else if (++t->calm >= CALM) {
		t->step *= 2;
		t->calm = 0;
	}
	t->step = (u32)min_u(t->step, t->step_most);
	t->check = t->takes + 1 + t->step;
}

/* A turn begins.  With so many lanes that they are short, it began that much earlier. */
static inline void turn_begin(const struct exec *x, struct exec_thread *t, u32 lanes)
{
	t->began = t->clock;
	if (lanes * x->turn > x->round)
		t->began -= x->turn - x->round / lanes;
}

/* How many of these lanes may the thread check now?  A check moves the lines of a lane. */
static inline u32 turn_looks(const struct exec_thread *t, u32 lanes)
{
	return t->step < STEP_SHARED ? UINT32_MAX : lanes / LOOK_TURNS + 1;
}

/* It has found work in another lane, or (0) none. */
static inline void turn_found(struct exec_thread *t, u32 work)
{
	t->step_most = work ? STEP_SHARED : STEP_ALONE;
}

/* --- Work that is left to its maker ------------------------------------------------------ */

#define FAST_NS		300u	/* a maker that runs one piece of work in this time is fast */
#define LEAVE_AVG_NS	1500u	/* a worker whose average run is longer takes all work */
#define LEAVE_FIRST_NS	2000u	/* for how long a lane is left to its maker at first, */
#define LEAVE_MOST_NS	32000u	/* and at most */
#define LEAVE_JUDGE_NS	100000u	/* for how long a maker is measured */
#define LEAVE_TRIES	6u	/* failed trials after which the pause stops growing */

/*
 * Short work stays with its maker.
 *
 * Running work on another core than its pusher's moves about ten cache lines there and back.
 * If the work runs for less time than that takes, and its maker runs work too, then a worker
 * that takes it makes both slower.  So a worker whose recent work was short tries to leave the
 * lane to its maker, if the maker is a thread that takes work.  The first trial lasts
 * LEAVE_FIRST_NS and each later one twice as long, up to LEAVE_MOST_NS, as long as the maker
 * takes one piece per FAST_NS.  That includes the time for pushing: a maker may push for a
 * while and then run, so it is measured for LEAVE_JUDGE_NS.  If the maker was slow, or has
 * neither pushed nor taken anything since the last check, the worker takes the work, and
 * continues to take it for LEAVE_JUDGE_NS, and after further failures for twice that and so
 * on, before it tries again.
 *
 * One worker at a time judges, the one that changes `left` by its CAS: a second one at the same
 * moment would find that the maker has done nothing since the check before.  The fields are
 * estimates: a wrong one costs time, at most LEAVE_JUDGE_NS.
 */
static inline bool lane_left(const struct exec_lane *l)
{
	u64 left = load_relaxed(&l->left);

	return left && (s64)(left - cycles()) > 0;
}

static inline bool lane_leave(struct exec_queue *q, struct exec_thread *t, struct exec_lane *l)
{
	const struct exec *x = q->x;
	u64 now = cycles(), left = load_relaxed(&l->left), rest = load_relaxed(&l->left_rest);
	u64 own, tail, since, n;
	u32 step = x->leave_first;
	bool still;

	if (left && (s64)(left - now) > 0)
		return true;
	/* What this thread knows comes first: the maker writes to its lines at each push. */
	if (!left && (!t->avg || t->avg > x->leave_avg || queue_ranked(q) ||
		      (rest && (s64)(rest - now) > 0)))
		return false;
	own = load_relaxed(&l->ring.own);
	tail = load_relaxed(&l->ring.tail);
	/* A maker that never tried to take work needs help. */
	if (!left && !(own + load_relaxed(&l->ring.empty)))
		return false;
	/* Relaxed: it only selects the worker that judges. */
	if (!cas_relaxed(&l->left, &left, now + step))
		return true;
	if (!left) {
		store_relaxed(&l->left_since, now);
		store_relaxed(&l->left_own, own);
		goto leave;
	}
	since = now - load_relaxed(&l->left_since);
	n = own - load_relaxed(&l->left_own);
	step = (u32)min_u(2ull * load_relaxed(&l->left_step), x->leave_most);
	still = own == load_relaxed(&l->left_own_last) && tail == load_relaxed(&l->left_tail);
	if (!still && n * x->fast >= since && !queue_ranked(q)) {
		store_relaxed(&l->left_since, now);
		store_relaxed(&l->left_own, own);
		store_relaxed(&l->left_tries, 0);
	} else if (still || since >= x->judge || queue_ranked(q)) {
		n = load_relaxed(&l->left_tries);
		store_relaxed(&l->left_tries, (u32)min_u(n + 1, LEAVE_TRIES));
		store_relaxed(&l->left_rest, now + ((u64)x->judge << n));
		store_relaxed(&l->left, 0);
		return false;
	}
leave:
	store_relaxed(&l->left_own_last, own);
	store_relaxed(&l->left_tail, tail);
	store_relaxed(&l->left_step, step);
	store_relaxed(&l->left, now + step);
	return true;
}

/* --- Idle threads ------------------------------------------------------------------------- */

#define STEAL_NS	2000u	/* idle time after which a thread polls other threads' hoards */
#define RELAX_NS	1000u	/* idle time after which the pauses between polls grow */
#define YIELD_NS	10000u	/* time between two sched_yield() calls of a spinner */
#define SLOW_YIELD_NS	1000000u	/* after a yield this long, a spinner sleeps instead */
#define CROWDED		64u	/* so many times at most */
#define NAP_AFTER	4u	/* a thread stops polling after so many long idle times */
#define REST_NS		200000u	/* after a sleep this long, the next is expected to be long */
#define BACKLOG		16u	/* pieces of work that a pusher leaves to each spinner */
#define LATE_EVERY	128u	/* searches without a sleeper per repeated futex call */

/* A pusher has a backlog of n, and so many threads poll: it wakes none. */
static inline bool spinners_suffice(u64 n, u32 spinners)
{
	return n <= BACKLOG * spinners;
}

/* The pause between two polls of a thread that is idle for so long. */
static inline void poll_pause(const struct exec *x, u64 idle)
{
	cpu_relax();
	if (idle > x->relax)
		cpu_relax();
	if (idle > 4 * x->relax)
		cpu_relax();
}

/* A sched_yield() took so long: how many of the next ones are sleeps instead? */
static inline void yield_took(const struct exec *x, struct exec_thread *t, u64 took)
{
	if (took > x->slow_yield)
		t->slow_yields = (u32)min_u(2 * t->slow_yields + 1, CROWDED);
	else
		t->slow_yields /= 2;
	t->crowded = t->slow_yields;
}

/*
 * t is no longer idle.  Polling pays if it is idle for a shorter time than it polls.  Otherwise
 * it costs CPU time, which on a busy machine is taken from the thread that t waits for.  So t
 * changes between polling and sleeping at once after NAP_AFTER idle times in a row for which
 * the other is better; fewer may only mean that a thread lost its CPU.  The idle time of a
 * sleeper ends when it is woken, however late the system runs it then.
 */
static inline void idle_ended(struct exec *x, struct exec_thread *t, bool slept)
{
	u64 now = cycles() - t->idle;
	/* Relaxed: if this is from before t was idle, it is large. */
	u64 woken = load_relaxed(&t->woken) - t->idle;
	bool nap = slept && min_u(woken, now) >= x->spin;

	if (nap == t->naps) {
		t->against = 0;
	} else if (++t->against == NAP_AFTER) {
		t->naps = nap;
		t->against = 0;
	}
}

/* --- Waits inside work, and workers that are missing ------------------------------------------- */

#define AGAIN_NS	1000000u	/* workers that could not be created are not tried before */
#define UNTOUCHED_NS	1000000u	/* work that none took for so long, a waiting thread takes, */
/*
 * and after so long if a worker is idle.  Linux lets a thread that can run wait for its CPU for at
 * most a period of cpu.max or of real-time throttling, which are 1 s at most, and on a busy CPU
 * for a slice of each other thread.
 */
#define FORSAKEN_NS	10000000000ull
#define WATCHES		16u	/* for so many ms a thread watches after it saw work that it left */

static inline void policy_init(struct exec *x, const struct exec_config *cfg)
{
	u64 us = exec_cycles_per_us();

	x->spin = ns_to_cycles(us, cfg->spin_ns);
	x->batch = ns_to_cycles(us, BATCH_NS);
	x->next = ns_to_cycles(us, NEXT_NS);
	x->turn = ns_to_cycles(us, TURN_NS);
	x->round = ns_to_cycles(us, ROUND_NS);
	x->check = ns_to_cycles(us, CHECK_NS);
	x->late = ns_to_cycles(us, cfg->late_ns);
	x->yield = ns_to_cycles(us, YIELD_NS);
	x->slow_yield = ns_to_cycles(us, SLOW_YIELD_NS);
	x->rest = ns_to_cycles(us, REST_NS);
	x->steal = ns_to_cycles(us, STEAL_NS);
	x->untouched = ns_to_cycles(us, UNTOUCHED_NS);
	x->forsaken = ns_to_cycles(us, FORSAKEN_NS);
	x->relax = ns_to_cycles(us, RELAX_NS);
	x->fast = (u32)ns_to_cycles(us, FAST_NS);
	x->leave_avg = (u32)ns_to_cycles(us, LEAVE_AVG_NS);
	x->leave_first = (u32)ns_to_cycles(us, LEAVE_FIRST_NS);
	x->leave_most = (u32)ns_to_cycles(us, LEAVE_MOST_NS);
	x->judge = (u32)ns_to_cycles(us, LEAVE_JUDGE_NS);
}

#endif
