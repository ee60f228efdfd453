// SPDX-License-Identifier: Apache-2.0
/*
 * Suspension: a thread is stopped at every instruction of the library's hot paths in turn, and
 * the others make progress.
 *
 * Purpose: the promise of Documentation/progress.md, on the production code.  While a thread
 * is stopped, each of two others must complete rounds of work: pushes of all sizes on their
 * own vars, batches, priorities, vars that are created and deleted, whose ops must complete;
 * and pushes on the vars of the stopped thread's call, which must return.  Only the stopped
 * thread's own work may be late: its push, the op that it runs, and what its completion makes
 * ready.  At the end every op has run once, and writes alone.
 *
 * Parts:
 *   run       a normal contended run at full speed, for the set of hot instructions
 *   step      each call in turn, stopped after 0, 1, 2 ... instructions, others idle until
 *             then; and with the others at work on the same vars all the time
 *   crawl     random calls that stop at each instruction, while the others overtake
 *   pair      a second thread crawls over a push that stays unfinished
 *   two       two threads are stopped, and memory that they refer to is reused: two.c
 *   worker    a worker thread, between two ops, asleep and awake
 *   all but one  four of five threads are stopped at random instructions, by steps (replayable)
 *             and by a signal at full speed; the last one makes progress
 *   hunt      the contended run again; a thread is stopped at each remaining instruction, which
 *             it reaches at full speed
 *   controls  a mutex queue, ck_ring and liburcu's wfcqueue must fail (control.c)
 *
 *	suspend [--seed N] [--seconds S] [--only PART] [--call NAMES] [--verbose 1]
 *
 * --call: in the part step, only the calls of calls.c whose names are in NAMES.
 */
#include "calls.h"
#include "control.h"

#define LEAP		7919u	/* prime, and larger than a call */
#define CALL_MS		300u	/* minimum for each call */

static double seconds = 18;
static bool verbose;
static const char *only_call;

/* --- parts --- */

/* True if the run continues after a stall, which takes half a minute. */
static bool enough(u64 end)
{
	return now_ms() >= end || load_acquire(&found->stalls) >= 3;
}

static struct trace trace;

static const struct call *current;

static void job_call(struct victim *v)
{
	const struct call *c = current;

	if (c->pre)
		c->pre(v);
	step_begin(v);
	c->op(v);
	step_end(v);
	/* No thread has opened it yet, so it would hold its vars. */
	gate_open_now();
}

/* Make one call that is stopped once.  Returns false if it was not stopped. */
static bool call_once(struct victim *v, const struct call *c, bool busy)
{
	current = c;
	store_relaxed(&sh_budget, 4);
	if (!busy && !(c->flags & (F_WORKER | F_WORKERS)))
		drain();
	if (c->flags & F_FEED)
		feeder();
	if (c->flags & F_MOSTLY) {
		/* The victim's reads are the second thread's then. */
		mostly_read(NULL);
		drain();
	}
	victim_job(v, job_call);
	return victim_wait(v);
}

/* Stop the call at each of its instructions, in order. */
static void call_trace(struct victim *v, const struct call *c, struct trace *t)
{
	trace_clear(t);
	v->trace = t;
	v->crawl = true;
	v->every = false;
	v->left = ~0ull;
	MUST(!call_once(v, c, false));
	v->trace = NULL;
}

static void call_name(const struct call *c, const char *how)
{
	static char what[80];

	snprintf(what, sizeof(what), "%s%s", c->name, how);
	step_what = what;
}

/* The call afresh, to its k-th instruction.  False: a stall. */
static bool call_stop(struct victim *v, const struct call *c, bool busy, u32 k)
{
	bool ok = true;

	v->crawl = false;
	breakpoint_set(trace.at[k]);
	if (call_once(v, c, busy))
		ok = others_go(v->at, k);
	breakpoint_clear();
	victim_finish(v);
	return ok;
}

/* At the first instruction of each public function in which no thread was stopped, at any load. */
static void call_enter(struct victim *v, const struct call *c)
{
	u32 k;

	call_name(c, ", entered");
	for (k = 0; k < trace.n; k++)
		if (code_enters(trace.at[k], "pawl_") && !code_parked(trace.at[k]) &&
		    !call_stop(v, c, false, k))
			break;
}

/*
 * Repeat the call for each of its instructions, in steps, so that a short run covers the whole
 * call.
 */
static void call_step(struct victim *v, const struct call *c, bool busy, u64 end)
{
	u32 i, k;

	call_name(c, busy ? ", stopped once, others busy" : ", stopped once");
	for (i = k = 0; i < trace.n && !enough(end); i++, k = (k + LEAP) % trace.n)
		if (!call_stop(v, c, busy, k))
			break;
}

/*
 * Stop the call at each of its instructions, while the others continue.  Each of their
 * successes can delay it again, so the number of stops is limited.
 */
static void call_crawl(struct victim *v, const struct call *c, bool busy, u64 end)
{
	u64 most = 2 * trace.n + 300;

	call_name(c, busy ? ", crawling, others busy" : ", crawling");
	v->crawl = v->every = true;
	v->left = 0;
	v->trace = busy ? NULL : &trace;
	if (call_once(v, c, busy)) {
		do {
			if (!others_go(v->at, v->steps) || enough(end))
				break;
			if (rnd(&v->seed) % 200 == 0)
				store_relaxed(&sh_budget, 2);
			victim_release(v);
		} while (v->steps < most && victim_wait(v));
	}
	victim_finish(v);
	v->trace = NULL;
}

static void call_test(const struct call *c, u64 end)
{
	u64 before = found->parks, since = now_ms();
	struct victim *v = &victims[0];

	call_name(c, "");
	store_release(&foreign, c->flags & F_TAKES ? 1 : 0);
	others_start(OTHERS, c->round);
	call_trace(v, c, &trace);
	if (c->passes && !trace_passes(&trace, c->passes)) {
		fprintf(stderr, "%s: the call does not pass through %s()\n", c->name, c->passes);
		abort();
	}
	call_enter(v, c);
	call_crawl(v, c, false, end);
	if (c->flags & F_BUSY) {
		others_busy(true);
		call_crawl(v, c, true, end);
		call_step(v, c, true, (now_ms() + end) / 2);
		others_busy(false);
	}
	call_step(v, c, false, end);
	others_stop();
	drain();
	sh_check();
	if (verbose)
		printf("    %-28s %5u instructions, %6llu parks, %5llu ms\n", c->name, trace.n,
		       (unsigned long long)(found->parks - before), (unsigned long long)(now_ms() - since));
}

static void world_for(u32 flags)
{
	world_make(flags & F_WORKERS ? 2 : flags & F_WORKER ? 1 : 0, flags & F_WORKERS ? 0 : 20000,
		   flags);
	victims_start(VICTIMS);
}

static void world_over(void)
{
	victims_stop(VICTIMS);
	world_end();
}

static void part_step(void *arg)
{
	static const u32 worlds[] = { F_WINDOW, F_BLOCK, F_WORKER, F_WORKERS, F_READY, F_MOSTLY, 0 };
	struct part *p = arg;
	u32 w, i, left = NCALLS;
	u64 now, share;

	step_init();
	for (w = 0; w < ARRAY_SIZE(worlds); w++) {
		world_for(worlds[w]);
		for (i = 0; i < NCALLS; i++) {
			if ((calls[i].flags & F_WORLD) != worlds[w] ||
			    (only_call && !strstr(only_call, calls[i].name)))
				continue;
			/* An equal share of the remaining time, with a minimum. */
			now = now_ms();
			share = p->end > now ? (p->end - now) / left : 0;
			left--;
			call_test(&calls[i], now + max_u(share, CALL_MS));
		}
		world_over();
	}
}

static void part_crawl(void *arg)
{
	struct part *p = arg;
	u64 seed = step_seed;

	step_init();
	world_for(0);
	store_release(&foreign, 1);
	others_start(OTHERS, round_spread);
	others_busy(true);
	while (!enough(p->end))
		call_crawl(&victims[0], call_random(&seed, 0), true, p->end);
	others_busy(false);
	others_stop();
	world_over();
}

/* Stop a push at every instruction in turn, and let another push meet it. */
static void part_pair(void *arg)
{
	static const char *const first[] = { "push read, 2 writes", "push 7", "push batch" };
	static const char *const second[] = {
		"push 1 write", "push 2 writes", "push read, 2 writes", "push 7", "push batch",
		"push 1 read", "push 20",
	};
	struct part *p = arg;
	struct victim *v = &victims[0];
	u64 seed = step_seed, turn;
	u32 i;

	step_init();
	world_for(0);
	others_start(OTHERS, round_strict);
	for (turn = 0; !enough(p->end); turn++) {
		const struct call *c = call_named(first[turn % 3]), *by;

		call_trace(v, c, &trace);
		/*
		 * Every 16th instruction from a random one, so that many turns cover all of
		 * them.
		 */
		for (i = (u32)(rnd(&seed) % 16); i < trace.n && !enough(p->end); i += 16) {
			v->crawl = false;
			breakpoint_set(trace.at[i]);
			if (call_once(v, c, false)) {
				breakpoint_clear();
				by = call_named(second[rnd(&seed) % ARRAY_SIZE(second)]);
				call_crawl(&victims[1], by, true, p->end);
			}
			victim_finish(v);
		}
	}
	others_stop();
	world_over();
}

/* --- workers --- */

static u32 armed;		/* A: 1 + number of the worker that is stopped next */
static u32 worker_count;	/* A */
static bool worker_crawl;

static int arm_body(struct pawl_run *run, void *arg)
{
	static __thread struct victim *mine;
	u32 none = 0;

	/* This needs a thread that helps. */
	if (!is_worker)
		return 0;
	if (!mine) {
		mine = &victims[fetch_add_relaxed(&worker_count, 1)];
		step_me(mine);
	}
	if (!cas_acq_rel_acquire(&armed, &none, mine->id + 1) && none != mine->id + 1)
		return 0;
	mine->crawl = worker_crawl;
	mine->every = false;
	mine->left = ~0ull;
	mine->trace = worker_crawl ? &trace : NULL;
	step_begin(mine);
	return 0;
}

/* Ops that wake it: plain ones, and some with a priority. */
static void worker_poke(u64 *seed)
{
	struct pawl_op op = op_of_fn(nothing, NULL);

	op.priority = rnd(seed) % 4 ? 0 : (s32)(rnd(seed) % 3) - 1;
	MUST(!pawl_push(eng, &op));
}

/* The code that a worker executes between two ops, asleep and awake. */
static void worker_trace(u64 *seed)
{
	u64 end = now_ms() + 300;

	worker_crawl = true;
	trace_clear(&trace);
	while (now_ms() < end) {
		sh_write_alone(arm_body);
		nap_us((long)(rnd(seed) % 300));
		worker_poke(seed);
	}
	worker_crawl = false;
}

static struct victim *worker_parked(u64 ms)
{
	u32 i, n = load_acquire(&worker_count);

	for (i = 0; i < n; i++)
		if (victim_wait_ms(&victims[i], ms))
			return &victims[i];
	return NULL;
}

/* No worker is armed. */
static void worker_calm(u64 *seed)
{
	struct victim *v;
	u32 i;

	breakpoint_clear();
	for (i = 0; i < VICTIMS; i++)
		victims[i].on = false;
	while ((v = worker_parked(0))) {
		v->on = false;
		victim_release(v);
	}
	store_release(&armed, 0);
}

/* Stop a worker at a random instruction, and at some later ones. */
static void worker_world(int workers, u64 spin_ns, bool busy, void (*round)(struct other *o), u64 end)
{
	u64 seed = step_seed, before = found->parks;
	struct victim *v;
	u32 i, n;

	memset(victims, 0, sizeof(victims));
	for (i = 0; i < VICTIMS; i++)
		victims[i].id = i;
	armed = worker_count = 0;
	world_make(workers, spin_ns, 0);
	store_release(&foreign, 1);
	worker_trace(&seed);
	worker_calm(&seed);
	others_start(OTHERS, round);
	others_busy(busy);
	while (!enough(end) && trace.n) {
		breakpoint_set(trace.at[rnd(&seed) % trace.n]);
		sh_write_alone(arm_body);
		for (i = 0; i < 3 && !(v = worker_parked(1)); i++)
			if (!busy)
				worker_poke(&seed);
		for (n = rnd(&seed) % 4 ? 1 : 30; v && n; n--) {
			if (!load_acquire(&v->parked) || !others_go(v->at, v->steps))
				break;
			store_relaxed(&sh_budget, 2);
			v->crawl = v->every = true;
			v->left = 0;
			v->on = n > 1;
			victim_release(v);
			for (i = 0; n > 1 && i < 3 && !victim_wait_ms(v, 1); i++)
				if (!busy)
					worker_poke(&seed);
			if (!load_acquire(&v->parked))
				break;
		}
		worker_calm(&seed);
	}
	for (i = 0; i < 20; i++) {
		worker_calm(&seed);
		nap_us(2000);
	}
	others_busy(false);
	others_stop();
	world_end();
	if (verbose)
		printf("    %-40s %5u instructions, %6llu parks\n", step_what, trace.n,
		       (unsigned long long)(found->parks - before));
}

static void part_worker(void *arg)
{
	struct part *p = arg;
	u64 now = now_ms(), each = (p->end - now) / 4;

	step_init();
	step_what = "two workers, others deaf and busy";
	worker_world(2, 0, true, round_deaf, now + each);
	step_what = "two workers that spin, others deaf";
	worker_world(2, 20000, false, round_deaf, now + 2 * each);
	step_what = "one worker, others help";
	worker_world(1, 20000, true, round_spread, now + 3 * each);
	step_what = "one worker that sleeps, others help";
	worker_world(1, 0, false, round_spread, p->end);
}

/* --- all but one --- */

/* Run a random call up to a random instruction. */
static bool stop_random(struct victim *v, u64 seed)
{
	static struct trace *traces[NCALLS];
	const struct call *c = call_random(&seed, F_WAITS);
	struct trace **t = &traces[c - calls];
	bool parked;

	if (!*t) {
		*t = calloc(1, sizeof(**t));
		MUST(*t);
		call_trace(&victims[VICTIMS - 1], c, *t);
	}
	v->crawl = false;
	breakpoint_set((*t)->at[rnd(&seed) % (*t)->n]);
	parked = call_once(v, c, true);
	breakpoint_clear();
	return parked;
}

static void part_all_but_one(void *arg)
{
	struct part *p = arg;
	u64 seed = step_seed, n, parked, half = (now_ms() + p->end) / 2;
	u32 i;

	step_init();
	step_what = "all but one, by steps";
	world_for(0);
	store_release(&foreign, VICTIMS - 1);
	others_start(1, round_last);
	for (n = 0; !enough(half); n++) {
		for (i = parked = 0; i < VICTIMS - 1; i++)
			parked += stop_random(&victims[i], seed * 1000 + n * 10 + i);
		store_relaxed(&sh_budget, 4);
		others_go(victims[0].at, n);
		if (parked > load_acquire(&found->most_parked))
			store_release(&found->most_parked, parked);
		for (i = 0; i < VICTIMS - 1; i++)
			victim_finish(&victims[(i + n) % (VICTIMS - 1)]);
		if (n % 64 == 63) {
			drain();
			sh_check();
		}
	}

	/* Here victims may have taken any op of the last thread when they are stopped. */
	step_what = "all but one, by signals";
	others_stop();
	others_start(1, round_mixed);
	store_relaxed(&sh_budget, INT64_MAX);
	store_release(&stop_loops, 0);
	for (i = 0; i < VICTIMS - 1; i++)
		victim_job(&victims[i], job_loop);
	others_busy(true);
	while (!enough(p->end)) {
		nap_us((long)(rnd(&seed) % 300));
		for (i = 0; i < VICTIMS - 1; i++)
			victim_interrupt(&victims[i]);
		for (i = 0; i < VICTIMS - 1; i++)
			MUST(victim_wait(&victims[i]));
		others_go(victims[0].at, 0);
		for (i = 0; i < VICTIMS - 1; i++)
			victim_release(&victims[i]);
	}
	store_release(&stop_loops, 1);
	for (i = 0; i < VICTIMS - 1; i++)
		victim_finish(&victims[i]);
	others_busy(false);
	others_stop();
	world_over();
}

/* --- at full speed --- */

#define LOOPS	2u
#define HUNT_MS	150000u
#define COVER	96u		/* percent; 95 are required */

/* Threads that make all calls, others beside them, and perhaps workers. */
static void loops_start(int workers)
{
	u32 i;

	memset(victims, 0, sizeof(victims));
	/*
	 * The workers follow the loops in the array of victims; the last one shares an entry.
	 */
	workers_armed = workers ? LOOPS : 0;
	world_make(workers, workers ? 0 : 20000, 0);
	workers_armed = 0;
	victims_start(LOOPS);
	others_start(OTHERS, round_mixed);
	store_release(&stop_loops, 0);
	store_relaxed(&sh_budget, INT64_MAX);
	store_release(&foreign, 1);
	others_busy(true);
	for (i = 0; i < LOOPS; i++)
		victim_job(&victims[i], job_loop);
	/* First calls, and the first use of memory, are not tested here. */
	nap_us(100000);
}

static void loops_end(void)
{
	u32 i;

	store_release(&stop_loops, 1);
	for (i = 0; i < VICTIMS; i++)
		victims[i].on = false;
	for (i = 0; i < LOOPS; i++)
		victim_finish(&victims[i]);
	others_busy(false);
	others_stop();
	victims_stop(LOOPS);
	world_end();
}

static void part_run(void *arg)
{
	struct part *p = arg;
	u64 ms = (p->end - now_ms()) / 2;
	int w;

	step_init();
	step_what = "run";
	for (w = 0; w <= 2; w += 2) {
		loops_start(w);
		code_break(true);
		nap_us((long)ms * 1000);
		code_break(false);
		loops_end();
	}
}

/*
 * For each instruction that the run executed and at which no thread was parked yet, park the
 * first thread (loop or worker) that reaches it.
 */
static void hunt(int workers, u64 end)
{
	u64 n, i, from, *hot = code_hot(&n);
	struct victim *v;
	u32 k;

	loops_start(workers);
	while (n && code_parked(hot[n - 1]))
		n--;
	/* Some are rarely executed again: do not begin with these each time. */
	from = n ? now_ms() % n : 0;
	for (i = 0; i < n && !enough(end); i++) {
		u64 at = hot[(from + i) % n];

		for (k = 0; k < VICTIMS; k++) {
			victims[k].crawl = false;
			victims[k].on = true;
		}
		breakpoint_set(at);
		v = victims_wait_ms(VICTIMS, 8);
		breakpoint_clear();
		if (v)
			others_go(v->at, i);
		/* It may have been parked at the last moment. */
		while ((v = victims_wait_ms(VICTIMS, 0)))
			victim_release(v);
	}
	loops_end();
	free(hot);
}

static bool covered(u32 percent)
{
	u64 run, both;

	code_figures(&run, &both);
	return both * 100 >= run * percent;
}

/* Use the time that the earlier parts left, or as long as necessary. */
static void part_hunt(void *arg)
{
	struct part *p = arg;
	u64 limit = p->end + HUNT_MS, more;
	u32 turn;

	step_init();
	step_what = "at full speed";
	for (turn = 0; turn < 4 || !covered(COVER); turn++) {
		more = turn < 4 ? (p->end - now_ms()) / (4 - turn) : 5000;
		hunt(turn % 2 ? 2 : 0, min_u(now_ms() + more, limit));
		if (enough(limit))
			break;
	}
}

/* --- the program --- */

static const struct {
	const char *name;
	void (*fn)(void *arg);
	double share;
} parts[] = {
	{ "run", part_run, 0.08 },
	{ "step", part_step, 0.38 },
	{ "crawl", part_crawl, 0.04 },
	{ "pair", part_pair, 0.06 },
	{ "worker", part_worker, 0.10 },
	{ "all", part_all_but_one, 0.10 },
	{ "two", part_two, 0.30 },
	{ "hunt", part_hunt, 0.24 },
};

/*
 * The public functions in which no thread is stopped, and why.  All others are calls of the step
 * part, so a new public function fails this test until it has a call or a line here.
 */
static const struct {
	const char *name, *why;
} not_stopped[] = {
	{ "pawl_config_init", "reads files" },
	{ "pawl_config_init_size", "reads files" },
	{ "pawl_engine_create", "blocking: allocates" },
	{ "pawl_engine_destroy", "blocking: waits for all ops" },
	{ "pawl_publish", "blocking: opens a folder" },
	{ "pawl_engine_start", "blocking: creates threads" },
	{ "pawl_engine_stop", "blocking: waits for all ops" },
	{ "pawl_thread_attach", "blocking: allocates" },
	{ "pawl_thread_detach", "frees memory of the C library" },
	{ "pawl_graph_create", "blocking: allocates" },
	{ "pawl_graph_delete", "the last reference frees; pushes take and drop references" },
	{ "pawl_dump", "loads only, formats text, system calls" },
	{ "pawl_prometheus", "loads only, formats text" },
	{ "pawl_watch", "the first call allocates; loads only" },
	{ "pawl_trace_start", "blocking: waits for readers" },
	{ "pawl_trace_stop", "one store" },
	{ "pawl_trace_write", "blocking: writes a file" },
	{ "pawl_record_start", "blocking: allocates" },
	{ "pawl_record_stop", "blocking: writes a file" },
	{ "pawl_device_count", "blocking: the driver" },
	{ "pawl_device_info", "blocking: the driver" },
	{ "pawl_device_alloc", "blocking: the driver" },
	{ "pawl_device_free", "blocking: the driver" },
	{ "pawl_host_alloc", "blocking: the driver" },
	{ "pawl_host_free", "blocking: the driver" },
	{ "pawl_var_delete_on", "pawl_var_delete() on a device" },
	{ "pawl_run_alloc", "the driver" },
	{ "pawl_run_call", "the driver" },
	{ "pawl_run_copy", "the driver" },
	{ "pawl_run_free", "the driver" },
	{ "pawl_run_set", "the driver" },
	{ "pawl_stream_adopt", "blocking: allocates" },
	{ "pawl_error_text", "returns a pointer" },
	{ "pawl_version", "returns a constant" },
};

/* Compare the public functions with those in which a thread was stopped.  False: they differ. */
static bool public_functions(u32 *n, u32 *excepted, bool all_parts)
{
	const char *name;
	bool ok = true, in;
	u32 i = 0, k;

	*n = *excepted = 0;
	while ((name = code_function(&i, "pawl_", &in))) {
		++*n;
		for (k = 0; k < ARRAY_SIZE(not_stopped) && strcmp(not_stopped[k].name, name); k++)
			;
		*excepted += k < ARRAY_SIZE(not_stopped);
		if (k == ARRAY_SIZE(not_stopped) && !in && all_parts) {
			printf("    no thread was stopped in %s(): add a call to calls.c\n", name);
			ok = false;
		}
	}
#ifdef CONFIG_LTO	/* without LTO the linker takes only those that are called */
	if (*excepted != ARRAY_SIZE(not_stopped)) {
		printf("    %u names of not_stopped[] are no functions\n",
		       (u32)ARRAY_SIZE(not_stopped) - *excepted);
		ok = false;
	}
#endif
	return ok;
}

int main(int argc, char **argv)
{
	const char *only = NULL, *controls = "";
	u64 run, both, parks0 = 0;
	bool bad = false;
	double share;
	u32 i, public, excepted;
	int rc;

	if (getenv("PAWL_SUSPEND_SECONDS"))
		seconds = atof(getenv("PAWL_SUSPEND_SECONDS"));
	for (i = 1; i + 1 < (u32)argc; i += 2) {
		if (!strcmp(argv[i], "--seed"))
			step_seed = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--seconds"))
			seconds = atof(argv[i + 1]);
		else if (!strcmp(argv[i], "--only"))
			only = argv[i + 1];
		else if (!strcmp(argv[i], "--call"))
			only_call = argv[i + 1];
		else if (!strcmp(argv[i], "--verbose"))
			verbose = true;
	}
	stall_ms = STALL_MS;
	rc = code_init(argv[0]);
	if (rc)
		return rc;
	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		struct part p;

		if (only && strcmp(only, parts[i].name))
			continue;
		share = seconds * parts[i].share;
		p.end = now_ms() + (u64)(1000 * share);
		bad |= child(parts[i].fn, &p, (u32)share + 240);
		code_figures(&run, &both);
		printf("  %-8s %7llu parks, %llu stalls, %llu of %llu hot instructions\n", parts[i].name,
		       (unsigned long long)(found->parks - parks0),
		       (unsigned long long)found->stalls, (unsigned long long)both,
		       (unsigned long long)run);
		parks0 = found->parks;
	}
	if (!only || !strcmp(only, "controls")) {
		controls = controls_run();
		bad |= !controls;
	}
	code_figures(&run, &both);
	if (!only && both * 100 < run * 95) {
		code_missing(40);
		bad = true;
	}
	bad |= !public_functions(&public, &excepted, !only);
	bad |= found->stalls != 0;
	printf("C10 suspension: calls=%u jobs=%llu parks=%llu stalls=%llu instructions=%llu/%llu "
	       "(%.1f %%) functions=%u+%u pairs=%llu at-once=%llu of %u rounds=%llu convicted=%s seed=%llu %s\n",
	       NCALLS, (unsigned long long)found->jobs, (unsigned long long)found->parks,
	       (unsigned long long)found->stalls, (unsigned long long)both, (unsigned long long)run,
	       run ? 100.0 * (double)both / (double)run : 0.0, public - excepted, excepted,
	       (unsigned long long)found->pairs, (unsigned long long)found->most_parked, VICTIMS, (unsigned long long)found->rounds,
	       controls ? controls : "not all", (unsigned long long)step_seed, bad ? "FAIL" : "PASS");
	if (bad)
		printf("replay: %s --seed %llu --seconds %g\n", argv[0], (unsigned long long)step_seed,
		       seconds);
	return bad;
}
