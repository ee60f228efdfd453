// SPDX-License-Identifier: Apache-2.0
/*
 * Two threads are stopped, and a third thread reuses the memory that they refer to.
 *
 * Purpose: a thread that reads another's push, op or list entry may be stopped between two
 * reads. Meanwhile that object may complete and be reused, if its owner continues, or was
 * stopped where the object no longer needs it.  One stopped thread does not show that.
 *
 *   pushes   A pushes behind a gate and is stopped, most often after its last attach; B makes
 *            a call on A's vars, and is stopped at an instruction that it would not reach
 *            without A: it records or helps.  Then the gate opens, everything ready runs, and
 *            ops of other sizes reuse the memory; A and B continue, in both orders.
 *   mostly   The same, with vars in read-mostly mode instead of a gate: A reads them, and B
 *            ends the mode, or reads as well.
 *   notes    The same with completions in one queue and one group: A and B complete, reap and
 *            cancel, and notes are reused.
 *   entries  A is stopped in its first call of an engine, where it takes an entry of the list
 *            of free ones; other threads begin and end in such an order that the entry that A
 *            has read is free again and the next one is not.
 *
 * Checked: all pushes run once, writes alone; no two living threads share a slot of the
 * engine; and the library's own assertions, in builds that have them.
 */
#include "calls.h"
#include <core/thread.h>

#define GATED		0xfffffu	/* the shared vars that the gate holds */
#define LAST		48u		/* instructions at the end of A's push that are preferred */
#define SEQUENCE	65536u

/*
 * The calls of the first thread, and those of the second, which end while the gate is closed.
 */
static const struct kind {
	u32 flags;		/* of the world */
	const char *first[8], *second[12];
} kinds[] = {
	{ 0, { "push 20", "push 7", "push 20", "push batch", "push graph", "push read, 2 writes" },
	  { "push 1 write", "push 2 writes", "push read, 2 writes", "push 7", "push batch",
	    "push 1 read", "push graph", "look", "delete behind others" } },
	{ F_MOSTLY, { "read 3, read-mostly", "push 20", "read, read-mostly" },
	  { "write, read-mostly", "push 1 write", "read 3, read-mostly", "push 20",
	    "push 2 writes", "push graph", "look" } },
	{ F_ANY, { "completion in a group", "reap", "cancel" },
	  { "completion", "reap", "completion in a group", "group", "cancel", "deadline" } },
};

static const struct kind *kind;

/* The points where A may be stopped: each execution of each instruction. */
struct place {
	u64 at;
	u32 phase;		/* of A's push at that point */
};

static struct place place[SEQUENCE];
static u32 nplaces;
static u32 nplaces_met;	/* of the addresses in met; first those that B executes only because
			   of A */
static u32 nlast;		/* after the last point at which the push was COMMITTED */

static struct trace alone, met;
static struct thread *of_a;	/* its slot in the engine */
static const struct call *doing[2];

static void job_two(struct victim *v)
{
	if (!v->id)
		of_a = thread_enter(eng);
	step_begin(v);
	doing[v->id]->op(v);
	step_end(v);
}

static void job_mostly(struct victim *v)
{
	mostly_read(v);
}

/* What A's call finds. */
static void hold(void)
{
	if (!kind->flags) {
		gate_hold(GATED);
	} else if (kind->flags == F_MOSTLY) {
		mostly_read(NULL);
		drain();
		/* The mode begins when another thread reads. */
		victim_job(&victims[1], job_mostly);
		MUST(!victim_wait(&victims[1]));
		drain();
	} else {
		notes_use(2);
	}
}

/* Returns false if the call has returned without a stop. */
static bool stopped_in(struct victim *v, const struct call *c)
{
	doing[v->id] = c;
	victim_job(v, job_two);
	return victim_wait(v);
}

static bool stopped_at(struct victim *v, const struct call *c, u64 at, u32 skip)
{
	bool parked;

	v->crawl = false;
	v->skip = skip;
	breakpoint_set(at);
	parked = stopped_in(v, c);
	breakpoint_clear();
	v->skip = 0;
	return parked;
}

/* Record the instructions of A's call, all of them if there is enough time. */
static void places_find(struct victim *a, const struct call *c, u64 end)
{
	nplaces = nlast = 0;
	hold();
	a->crawl = a->every = true;
	a->left = 0;
	if (stopped_in(a, c)) {
		do {
			if (nplaces == SEQUENCE || now_ms() >= end)
				break;
			place[nplaces].at = a->at;
			place[nplaces].phase = (u32)load_relaxed(&of_a->d.status) & 3;
			if (place[nplaces++].phase == PHASE_COMMITTED)
				nlast = nplaces;
			victim_release(a);
		} while (victim_wait(a));
	}
	victim_finish(a);
	gate_open_now();
	drain();
}

static u32 place_random(u64 *seed)
{
	u32 k;

	if (nlast && rnd(seed) % 4)
		return nlast - 1 - (u32)(rnd(seed) % min_u(nlast, LAST));
	/* Half of the others are at points where helpers access the push. */
	k = (u32)(rnd(seed) % nplaces);
	if (rnd(seed) % 2)
		while (k + 1 < nplaces && place[k].phase != PHASE_LINKING)
			k++;
	return k;
}

static bool stop_a(struct victim *a, const struct call *c, u32 k)
{
	u32 i, before = 0;

	if (!code_at(place[k].at))
		return false;
	for (i = 0; i < k; i++)
		before += place[i].at == place[k].at;
	return stopped_at(a, c, place[k].at, before);
}

/* Record the instructions that B executes while A is stopped there. */
static void trace_of(struct victim *b, const struct call *c, struct trace *t)
{
	trace_clear(t);
	b->trace = t;
	b->crawl = true;
	b->every = false;
	b->left = ~0ull;
	stopped_in(b, c);
	b->trace = NULL;
	victim_finish(b);
}

static bool trace_has(const struct trace *t, u64 at)
{
	u32 i;

	for (i = 0; i < t->n; i++)
		if (t->at[i] == at)
			return true;
	return false;
}

/* First the instructions that B executes because of A. */
static void trace_sort(void)
{
	u32 i, n = 0;

	for (i = 0; i < met.n; i++) {
		u64 at = met.at[i];

		if (trace_has(&alone, at))
			continue;
		met.at[i] = met.at[n];
		met.at[n++] = at;
	}
	nplaces_met = n;
}

/* Run all ready ops; then ops of all sizes reuse the memory. */
static void use_again(u64 *seed)
{
	u32 i;

	gate_open_now();
	drain();
	for (i = 0; i < 4; i++)
		private_push_of(&others[0], (u32)(rnd(seed) % 21));
	if (kind->flags == F_ANY)
		notes_use(4);
	drain();
}

static void pair_once(struct victim *a, struct victim *b, const struct call *of, const struct call *by,
		      u64 *seed)
{
	u32 k = place_random(seed), i;
	bool in_a, in_b = false, a_first = rnd(seed) % 2;

	hold();
	in_a = stop_a(a, of, k);
	if (in_a && met.n) {
		/* Mostly at an instruction that it executes because of A. */
		i = nplaces_met && rnd(seed) % 8 ? (u32)(rnd(seed) % nplaces_met) :
		    (u32)(rnd(seed) % met.n);
		in_b = stopped_at(b, by, met.at[i], (u32)(rnd(seed) % 3 ? 0 : rnd(seed) % 8));
		fetch_add_relaxed(&found->parks, 1);
		if (in_b)
			fetch_add_relaxed(&found->pairs, 1);
	}
	use_again(seed);
	if (a_first) {
		victim_finish(a);
		use_again(seed);
		victim_finish(b);
	} else {
		victim_finish(b);
		use_again(seed);
		victim_finish(a);
	}
	drain();
}

static u32 names(const char *const *list, u32 most)
{
	u32 n = 0;

	while (n < most && list[n])
		n++;
	return n;
}

static void pushes(const struct kind *k, u64 end, u64 *seed)
{
	struct victim *a = &victims[0], *b = &victims[1];
	u32 turn, i, nfirst = names(k->first, ARRAY_SIZE(k->first));
	u32 nsecond = names(k->second, ARRAY_SIZE(k->second));
	const struct call *of, *by;

	kind = k;
	world_make(0, 20000, k->flags & F_MOSTLY);
	victims_start(2);
	/* The threads' first calls. */
	for (i = 0; i < 2; i++) {
		victims[i].crawl = true;
		victims[i].left = ~0ull;
		stopped_in(&victims[i], &calls[0]);
	}
	drain();
	for (turn = 0; now_ms() < end; turn++) {
		of = call_named(k->first[turn % nfirst]);
		by = call_named(k->second[turn / nfirst % nsecond]);
		step_what = of->name;
		places_find(a, of, end);
		hold();
		trace_of(b, by, &alone);
		gate_open_now();
		drain();
		hold();
		if (nplaces)
			stop_a(a, of, nlast ? nlast - 1 : nplaces / 2);
		trace_of(b, by, &met);
		trace_sort();
		gate_open_now();
		victim_finish(a);
		drain();
		for (i = 0; i < 150 && now_ms() < end && nplaces; i++)
			pair_once(a, b, of, by, seed);
		sh_check();
	}
	victims_stop(2);
	world_end();
}

/* --- entries --- */

struct comer {
	pthread_t thread;
	struct pawl_engine *e;
	struct thread *t;
	u32 in, go;		/* A */
};

static struct pawl_engine *young;

static void *comer_main(void *arg)
{
	struct comer *c = arg;

	(void)var_new(c->e);
	c->t = thread_enter(c->e);
	store_release(&c->in, 1);
	while (!load_acquire(&c->go))
		futex_wait_ms(&c->go, 0, 1000);
	/* Check that this thread still has its slot. */
	MUST(thread_enter(c->e) == c->t);
	(void)var_new(c->e);
	return NULL;
}

static void come(struct comer *c)
{
	memset(c, 0, sizeof(*c));
	c->e = young;
	c->thread = spawn(comer_main, c);
	MUST(soon(load_acquire(&c->in)));
}

static void leave(struct comer *c)
{
	store_release(&c->go, 1);
	futex_wake(&c->go);
	join(c->thread);
}

static void op_enter(struct victim *v)
{
	(void)var_new(young);
}

static void job_enter(struct victim *v)
{
	step_begin(v);
	op_enter(v);
	step_end(v);
}

static bool entry_once(struct victim *a, u64 at)
{
	struct pawl_config c;
	struct comer x, y, z, w;
	bool parked;

	pawl_config_init(&c);
	c.workers = 0;
	c.max_ops = 64;
	c.max_vars = 64;
	c.max_threads = 16;
	OK(pawl_engine_create(&c, &young));
	a->crawl = !at;
	a->every = false;
	a->left = ~0ull;
	if (at)
		breakpoint_set(at);
	victim_job(a, job_enter);
	parked = victim_wait(a);
	breakpoint_clear();
	come(&x);
	come(&y);
	leave(&x);
	victim_finish(a);
	come(&z);
	leave(&y);
	come(&w);
	MUST(z.t != w.t);
	leave(&z);
	leave(&w);
	OK(pawl_engine_destroy(young));
	return parked;
}

static void entries(u64 end, u64 *seed)
{
	struct victim *a = &victims[0];

	step_what = "a thread's first call";
	victims_start(1);
	trace_clear(&alone);
	(void)entry_once(a, 0);
	a->trace = &alone;
	(void)entry_once(a, 0);
	a->trace = NULL;
	while (now_ms() < end && alone.n) {
		if (entry_once(a, alone.at[rnd(seed) % alone.n]))
			fetch_add_relaxed(&found->parks, 1);
	}
	victims_stop(1);
}

void part_two(void *arg)
{
	u64 end = ((struct part *)arg)->end, now = now_ms(), seed = step_seed;

	step_init();
	entries(now + (end - now) / 5, &seed);
	pushes(&kinds[0], now + (end - now) * 3 / 5, &seed);
	pushes(&kinds[1], now + (end - now) * 4 / 5, &seed);
	pushes(&kinds[2], end, &seed);
}
