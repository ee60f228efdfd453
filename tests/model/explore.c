// SPDX-License-Identifier: Apache-2.0
/*
 * Decides which thread continues: a search of all schedules, random schedules, or a given one.
 *
 * The search is depth first, with a bound on preemptions.  The hash of all memory that differs
 * from the start, and of the threads' stacks, identifies the state after a step; a state that
 * was reached before is not searched again.  The counters:
 *   transitions   steps that were executed
 *   states        different states that were reached
 *   schedules     runs that were executed to their end, and checked
 *   covered       schedules that exist: each path through the states counted once (only if all
 *                 were searched, without a bound)
 * Random schedules are uniform, sticky, and PCT (Burckhardt et al., ASPLOS 2010) in turn.
 */
#include <math.h>
#include <sys/mman.h>
#include <time.h>
#include <base/bug.h>
#include "rt.h"

#define DEPTH_MAX	20000u

/* A choice: a thread, and whether it continues, sleeps until its deadline, or stops forever. */
#define C_TIME	8u
#define C_STOP	16u

struct node {
	u64 hash, undo, slog, ops, ops_after;
	double paths;
	struct visited *v;
	u32 left;		/* remaining choices: threads, or values */
	u8 values;		/* number of values; 0: the choices are threads */
	u8 chosen, last, preempts, stale, frozen;
};

struct visited {
	u64 key;
	float paths;		/* log2 */
	u8 preempts, done, used, unused;
};

struct record {
	u8 t;			/* thread | C_* */
	signed char value;		/* the first answer; -1: none */
	u64 ops;		/* accesses after it */
};

static const struct scenario *sc;
static struct node nodes[DEPTH_MAX];
static u32 depth;
static char *slog;
static u64 slog_n;
/* The states that were visited: a hash table that grows up to table_most.  The other is empty. */
#define TABLE_FIRST	((1u << 14) - 1)
static struct visited *table, *table_other;
static u64 table_used, table_mask, table_most;
static struct record trail[DEPTH_MAX * 2];
static u32 trail_n;
struct figures fig;
u64 seed = 1;
static double deadline_at;
static u32 bound, stale_bound;
static u64 rng;
static const char *how = "dfs";
bool in_check;
static u32 steps_seen = 50;

bool cpu_time;			/* limits are in CPU time of this process */

double now(void)
{
	struct timespec ts;

	clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

const void *model_arg(void)
{
	return sc->arg;
}

static u64 rnd(void)
{
	u64 z = rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* --- one step ----------------------------------------------------------------- */

static void step(u32 choice)
{
	u32 t = choice & 7;

	step_run(t, choice & 8);
	fig.transitions++;
	if (trail_n && trail[trail_n - 1].t == t && !pend_choice &&
	    trail[trail_n - 1].value < 0 && !(choice & 8)) {
		trail[trail_n - 1].ops = fixed[t].ops;
		return;
	}
	if (trail_n < DEPTH_MAX * 2)
		trail[trail_n++] = (struct record){ (u8)choice, -1, fixed[t].ops };
}

static void print_replay(FILE *f)
{
	u32 i;

	fprintf(f, "    again: %s -s %s%s", program, sc->name, weak ? " -w" : "");
	if (pawl_busted)
		fprintf(f, " -b %s", busted_name(pawl_busted));
	fprintf(f, " -r '");
	for (i = 0; i < trail_n; i++) {
		fprintf(f, "%s%u:%llu", i ? " " : "", trail[i].t & 7u,
			(unsigned long long)trail[i].ops);
		if (trail[i].t & C_TIME)
			fprintf(f, "t");
		if (trail[i].t & C_STOP)
			fprintf(f, "s");
		if (trail[i].value >= 0)
			fprintf(f, "=%d", trail[i].value);
	}
	fprintf(f, "'\n");
}

static bool quiescent(void)
{
	u32 i;

	if (all_done())
		return true;
	if (!(sc->flags & MODEL_SLEEPS_OK))
		return false;
	for (i = 1; i < MAX_THREADS; i++)
		if (threads[i].state != T_NONE && threads[i].state != T_DONE &&
		    (i <= sc->threads ||
		     (threads[i].state != T_ASLEEP && threads[i].state != T_AWAIT)))
			return false;
	return true;
}

static bool any_frozen(void)
{
	u32 i;

	for (i = 1; i < MAX_THREADS; i++)
		if (threads[i].state == T_FROZEN)
			return true;
	return false;
}

/* No thread can continue: either all have ended, or this is a failure. */
static void at_end(void)
{
	if (!quiescent()) {
		failed = "stuck: nobody can go on, and not all threads are over";
		return;
	}
	fig.schedules++;
	self = 0;
	tls_load(0);
	in_check = sc->check && !any_frozen();
	if (in_check && !setjmp(fail_jump))
		sc->check();
	in_check = false;
}

/* --- search ---------------------------------------------------------------------- */

static struct visited *lookup(u64 key)
{
	u64 i = key & table_mask;

	while (table[i].used && table[i].key != key)
		i = (i + 1) & table_mask;
	return &table[i];
}

static void table_empty(struct visited *t, u64 mask)
{
	if (madvise(t, (mask + 1) * sizeof(*t), MADV_DONTNEED))
		memset(t, 0, (mask + 1) * sizeof(*t));
}

/* Returns false if the table has its largest size. */
static bool table_grow(void)
{
	struct visited *old = table;
	u64 i, mask = table_mask;

	if (mask == table_most)
		return false;
	table = table_other;
	table_other = old;
	table_mask = 2 * mask + 1;
	for (i = 0; i <= mask; i++)
		if (old[i].used)
			*lookup(old[i].key) = old[i];
	for (i = 0; i < depth; i++)
		if (nodes[i].v)
			nodes[i].v = lookup(nodes[i].v->key);
	table_empty(old, mask);
	return true;
}

static void node_back(struct node *n)
{
	u32 i = n->values ? n->last : n->chosen & 7;
	struct mthread *t = &threads[i];

	undo_to(n->undo);
	mem_hash = n->hash;
	if (n->slog != slog_n) {
		memcpy((void *)(uintptr_t)t->sp, slog + n->slog, slog_n - n->slog);
		slog_n = n->slog;
	}
	fixed[i].ops = n->ops;
	tls_load(0);
}

/* Enter a state by a step of `last`.  Returns false if there is nothing to search from it. */
static bool node_enter(u32 last, u32 preempts, u32 stale, u32 frozen, struct node *from)
{
	struct node *n = &nodes[depth];
	u32 en = 0;

	if (depth + 1 >= DEPTH_MAX) {
		failed = "no end: the schedule is too long";
		return false;
	}
	*n = (struct node){ .hash = mem_hash, .undo = undo_n, .slog = slog_n, .last = (u8)last,
			    .preempts = (u8)preempts, .stale = (u8)stale, .frozen = (u8)frozen };
	if (pend_choice) {
		n->values = (u8)pend_choice;
		n->left = pend_free || stale_bound > stale ? (1u << pend_choice) - 1 : 1;
		depth++;
		return true;
	}
	en = enabled_mask();
	if (!en) {
		u64 undo = undo_n, hash = mem_hash;

		stacks_copy(false);
		at_end();
		stacks_copy(true);
		undo_to(undo);
		mem_hash = hash;
		if (from)
			from->paths += 1;
		return false;
	}
	if (preempts >= bound && (en & 1u << last) && !fixed[last].hardware)
		en = 1u << last;
	n->left = en;
	if (frozen < (sc->flags & MODEL_FREEZE2 ? 2u : sc->flags & MODEL_FREEZE ? 1u : 0u))
		n->left |= (en & 0xff) << 16;
	{
		u64 key = bound == MODEL_ALL ? mem_hash : mix(mem_hash, last + 1);
		struct visited *v = lookup(mix(key, stale_bound ? stale + 1 : 0));

		if (v->used && v->preempts <= preempts) {
			fig.pruned++;
			if (from && v->done)
				from->paths += exp2((double)v->paths);
			return false;
		}
		if (!v->used) {
			v->used = 1;
			v->key = mix(key, stale_bound ? stale + 1 : 0);
			fig.states++;
			table_used++;
		}
		v->preempts = (u8)preempts;
		v->done = 0;
		n->v = v;
	}
	depth++;
	if (depth > fig.depth)
		fig.depth = depth;
	return true;
}

static u32 take_choice(struct node *n)
{
	u32 c;

	if (!n->values && (n->left & 1u << n->last))
		c = n->last;
	else
		c = (u32)__builtin_ctz(n->left);
	n->left &= ~(1u << c);
	return c;
}

static void trail_from_nodes(void)
{
	u32 i;

	trail_n = 0;
	for (i = 0; i < depth; i++) {
		struct node *n = &nodes[i];

		if (n->values) {
			trail[trail_n++] = (struct record){ n->last, (signed char)n->chosen, n->ops };
			trail[trail_n++] = (struct record){ n->last, -1, n->ops_after };
		} else if (trail_n && trail[trail_n - 1].t == n->chosen &&
			   trail[trail_n - 1].value < 0)
			trail[trail_n - 1].ops = n->ops_after;
		else
			trail[trail_n++] = (struct record){ n->chosen, -1, n->ops_after };
	}
}

static void base_reset(void)
{
	undo_to(0);
	mem_hash = 0;
	slog_n = 0;
	stacks_reset();
	tls_load(0);
	self = 0;
	if (weak)
		weak_reset();
}

/* Returns false after a failure. */
static bool search_once(void)
{
	searching = true;
	watch = false;
	choose_now = NULL;
	base_reset();
	table_empty(table, table_mask);
	table_mask = TABLE_FIRST < table_most ? TABLE_FIRST : table_most;
	table_used = 0;
	depth = 0;
	learned = 0;
	fig.exhausted = false;
	fig.covered = 0;
	fig.states = fig.pruned = fig.schedules = fig.transitions = fig.depth = 0;
	pend_choice = 0;
	pend_addr = NULL;
	node_enter(0, 0, 0, 0, NULL);
	while (depth) {
		struct node *n = &nodes[depth - 1];
		u32 c, t, preempts = n->preempts, stale = n->stale, frozen = n->frozen;
		u64 bytes, undo;

		if (!n->left) {
			if (n->v) {
				n->v->paths = (float)log2(n->paths);
				n->v->done = 1;
			}
			depth--;
			if (depth) {
				nodes[depth - 1].paths += n->paths;
				node_back(&nodes[depth - 1]);
			} else {
				fig.covered = n->paths;
			}
			continue;
		}
		/* some, also where no time is left */
		if (fig.transitions && !(fig.transitions & 4095) && now() > deadline_at)
			return true;
		if (table_used > table_mask / 4 * 3 && !table_grow())
			return true;
		c = take_choice(n);
		t = n->values ? n->last : c & 7;
		if (n->values) {
			given = c;
			stale += stale_bound && c;
		} else if (c & C_STOP) {
			frozen++;
		} else if (c != n->last && (enabled_mask() & 1u << n->last) &&
			   !fixed[n->last].hardware) {
			preempts++;
		}
		bytes = (u64)(uintptr_t)fixed[t].stack_hi - threads[t].sp;
		memcpy(slog + slog_n, (void *)(uintptr_t)threads[t].sp, bytes);
		n->chosen = n->values ? (u8)c : (u8)c;
		n->ops = fixed[t].ops;
		n->slog = slog_n;
		slog_n += bytes;
		undo = undo_n;
		step_id++;
		if (!n->values && (c & C_STOP)) {
			lw(&threads[t].state, T_FROZEN);
			pend_choice = 0;
		} else {
			step_run(t, !n->values && (c & C_TIME));
			fig.transitions++;
		}
		n->ops_after = fixed[t].ops;
		if (n->values)
			n->chosen = (u8)c;
		if (failed) {
			trail_from_nodes();
			return false;
		}
		step_stack(t);
		steps_settle(undo);
		if (!node_enter(t, preempts, stale, frozen, n)) {
			if (failed) {
				trail_from_nodes();
				return false;
			}
			node_back(n);
			if (learned)
				return true;
		}
	}
	fig.exhausted = true;
	return true;
}

/* --- random ------------------------------------------------------------------------ */

/*
 * How stale values are chosen in this run.  Each mode finds failures that the others rarely
 * find: a missing order shows only if one word, or one thread, stays behind while everything
 * later is new.
 */
enum { STALE_ANY, STALE_WORDS, STALE_SITES, STALE_THREAD, STALE_KINDS, STALE_NONE = STALE_KINDS };
static u32 stale_kind;
static u64 stale_pick;

/* Of the values that only a mutant allows, choose most, all, or only those of one word. */
enum { ODD_MOST, ODD_ALL, ODD_WORD };
static u32 odd_kind, odd_skip;
static const void *odd_word;

static u32 pick_odd(u32 n)
{
	switch (odd_kind) {
	case ODD_MOST:
		return !(rnd() % 4) ? 0 : weak_ask.odd + (u32)(rnd() % (n - weak_ask.odd));
	case ODD_ALL:
		return n - 1;
	default:
		if (!odd_word && !odd_skip--)
			odd_word = weak_ask.addr;
		return weak_ask.addr == odd_word ? n - 1 : 0;
	}
}

/* True for a thread of the scenario or of the engine. */
static u32 stale_thread(void)
{
	u32 k = (u32)(stale_pick % (sc->threads + setup_threads));

	return k < sc->threads ? 1 + k : MAX_THREADS - 1 - (k - sc->threads);
}

static u32 pick_stale(u32 n)
{
	u64 h;

	if (pend_free)
		return (u32)(rnd() % n);

	/* The order in the sources forbids this value; only the mutant allows it. */
	if (weak_ask.odd)
		return pick_odd(n);
	switch (weak_ask.site ? stale_kind : STALE_ANY) {
	case STALE_WORDS:
		h = mix(stale_pick, (u64)(uintptr_t)weak_ask.addr);
		return (h >> 20) % 8 || !(rnd() % 8) ? 0 : n - 1;
	case STALE_SITES:
		h = mix(stale_pick, (u64)(uintptr_t)weak_ask.site);
		return (h >> 20) % 8 || !(rnd() % 8) ? 0 : n - 1;
	case STALE_THREAD:
		return self != stale_thread() || !(rnd() % 4) ? 0 : n - 1;
	case STALE_NONE:
		return 0;
	default:
		/* Choose the newest value half of the time. */
		return rnd() & 1 ? 0 : (u32)(rnd() % n);
	}
}

static u32 choose_random(u32 n)
{
	u32 k = pick_stale(n);

	if (k && trail_n < DEPTH_MAX * 2)
		trail[trail_n++] = (struct record){ (u8)self, (signed char)k, fixed[self].ops };
	return k;
}

/*
 * Program points at which threads stopped in earlier runs.  In most runs a thread that reaches
 * one of two such points stays there while the others continue, so that rare points are used as
 * often as others.
 */
#define PLACES	512u
#define PARKS	2u

static struct model_site *places[PLACES];
static u32 nplaces;
static struct park {
	struct model_site *at;
	u32 nth;
} parks[PARKS];

static void parks_pick(u64 number)
{
	u32 i;

	for (i = 0; i < PARKS; i++) {
		parks[i].at = nplaces && number & 3 ? places[rnd() % nplaces] : NULL;
		parks[i].nth = 1 + (rnd() & 1 ? 0 : (u32)(rnd() % 4));
	}
}

/* A thread is about to execute s: return for how many steps it stays there. */
static u32 parks_at(struct model_site *s)
{
	u32 i;

	for (i = 0; i < PARKS; i++)
		if (parks[i].at == s && parks[i].nth && !--parks[i].nth)
			return 1u << (2 + rnd() % 8);
	for (i = 0; i < nplaces && places[i] != s; i++)
		;
	if (i == nplaces && i < PLACES)
		places[nplaces++] = s;
	return 0;
}

/*
 * PCT is not fair: threads that repeat a loop until another thread has done something, and
 * write in it (to a queue, for example), would keep each other running, and that thread would
 * never run.  So a thread that repeated a loop this often yields to all others.
 */
#define TURNS	64u

static bool random_once(u64 number)
{
	u32 last = 0, steps = 0, kind = (u32)(number % 3), change[4], prio[16], i, low = 0, d = 0;
	u32 hold[8] = { 0 }, turns[8] = { 0 }, nth, after = 0;
	bool holds;

	rng = mix(seed, number);
	holds = weak_mutant && rnd() % 4;
	stale_kind = (u32)(number / 3 % STALE_KINDS);
	stale_pick = rnd();
	odd_kind = (u32)(rnd() & 3);
	odd_word = NULL;
	odd_skip = rnd() & 1 ? 0 : (u32)(rnd() % 4);
	if (weak_mutant && rnd() & 1)
		stale_kind = STALE_NONE;
	nth = (u32)(rnd() % (1u << rnd() % 5));
	parks_pick(number);
	searching = false;
	watch = weak;
	choose_now = choose_random;
	base_reset();
	step_id++;
	trail_n = 0;
	if (kind == 2) {
		d = 2 + (u32)(rnd() % 3);
		for (i = 0; i < d - 1; i++)
			change[i] = (u32)(rnd() % (steps_seen + 1));
		for (i = 0; i < 16; i++)
			prio[i] = 200000 + (u32)(rnd() % 1000000);
		low = 199999;	/* far more than the number of steps */
	}
	for (;;) {
		u32 en = enabled_mask(), c;

		if (!en)
			break;
		if (++steps > 200000) {
			failed = "no end: the schedule is too long";
			return false;
		}
		for (i = 1; i < 8; i++) {
			if (hold[i] && (en & ~(0x101u << i))) {
				hold[i]--;
				en &= ~(0x101u << i);
			}
		}
		if (kind == 2) {
			u32 best = 0;

			for (i = 0; i < d - 1; i++)
				if (change[i] == steps && last)
					prio[last] = low--;
			c = 0;
			for (i = 1; i < 16; i++)
				if ((en & 1u << i) && prio[i] > best) {
					best = prio[i];
					c = i;
				}
		} else if (kind == 1 && (en & 1u << last) && rnd() % 8) {
			c = last;
		} else {
			u32 k = (u32)(rnd() % (u32)__builtin_popcount(en));

			while (k--)
				en &= en - 1;
			c = (u32)__builtin_ctz(en);
		}
		pend_site = NULL;
		pend_addr = threads;
		step(c);
		if (failed)
			return false;
		last = c & 7;
		if (kind == 2 && !pend_addr && !(++turns[last] % TURNS))
			prio[last] = low--;
		if (pend_site)
			hold[last] += parks_at(pend_site);
		/*
		 * A thread is about to execute the weakened access, or just has: the others may
		 * run for a while.
		 */
		if (after & 1u << last) {
			after = 0;
			hold[last] += 1u << rnd() % 8;
		}
		if (holds && pend_site && pend_site->strong && !nth--) {
			if (rnd() & 1)
				hold[last] += 1u << rnd() % 8;
			else
				after = 1u << last;
		}
	}
	if (steps > steps_seen)
		steps_seen = steps;
	if (steps > fig.depth)
		fig.depth = steps;
	at_end();
	return !failed;
}

static bool random_runs(u64 most)
{
	u64 i;

	for (i = 0; i < most; i++) {
		if (!random_once(i))
			return false;
		if (!(i & 63) && now() > deadline_at)
			break;
	}
	base_reset();
	return true;
}

static bool search(void)
{
	double until = deadline_at;

	/* Most shared words are found very quickly. */
	deadline_at = now() + 0.2;
	if (!random_runs(3000))
		return false;
	deadline_at = until;
	for (;;) {
		if (!search_once())
			return false;
		if (!learned)
			return true;
		fig.restarts++;
	}
}

/* --- again --------------------------------------------------------------------------- */

static struct record told[DEPTH_MAX];
static u32 ntold;

/* The value that was read, if it was not the newest. */
static u32 choose_told(u32 n)
{
	u32 i;

	for (i = 0; i < ntold; i++)
		if (told[i].t == self && told[i].ops == fixed[self].ops &&
		    told[i].value < (int)n) {
			u32 k = (u32)told[i].value;

			fprintf(stderr, "    reads the value %u before the newest, or takes choice %u\n",
				k, k);
			told[i].t = 0;
			return k;
		}
	return 0;
}

/* Consecutive steps of one thread. */
static void replay_one(const struct record *r)
{
	u32 t = r->t & 7;
	bool timeout = r->t & C_TIME, first = true;

	if (r->t & C_STOP) {
		lw(&threads[t].state, T_FROZEN);
		return;
	}
	while ((first || fixed[t].ops < r->ops) && !failed &&
	       (threads[t].state == T_READY || timeout ||
		(threads[t].state == T_AWAIT && (enabled_mask() & 1u << t)))) {
		fprintf(stderr, "  thread %u %4llu: ", t - 1, (unsigned long long)fixed[t].ops);
		step_run(t, timeout);
		timeout = false;
		first = false;
		if (threads[t].state == T_DONE)
			fprintf(stderr, "over\n");
		else if (pend_site)
			fprintf(stderr, "before %s:%u %s %p\n", pend_site->file,
				pend_site->line, pend_site->func, pend_addr);
		else
			fprintf(stderr, "before %s\n", pend_addr ? "sleep, wake or stamp" :
				"a turn of a loop");
	}
}

bool replay(const char *s)
{
	all_points = true;
	searching = false;
	watch = weak;
	choose_now = choose_told;
	base_reset();
	step_id++;
	trail_n = 0;
	while (*s && trail_n < DEPTH_MAX && ntold < DEPTH_MAX) {
		char *end;
		struct record r = { (u8)strtoul(s, &end, 10), -1, 0 };

		r.ops = strtoull(end + 1, &end, 10);
		if (*end == 't')
			r.t |= C_TIME;
		else if (*end == 's')
			r.t |= C_STOP;
		else if (*end == '=')
			r.value = (signed char)strtol(end + 1, &end, 10);
		if (*end && *end != ' ' && *end != '=')
			end++;
		if (r.value >= 0)
			told[ntold++] = r;
		else
			trail[trail_n++] = r;
		s = *end ? end + 1 : end;
	}
	{
		u32 i;

		for (i = 0; i < trail_n && !failed; i++)
			replay_one(&trail[i]);
	}
	if (!failed && !enabled_mask())
		at_end();
	return !failed;
}

/* --- scenarios ------------------------------------------------------------------------ */

static void say(const char *verdict)
{
	printf("%s %-22s %-9s", weak ? "C05" : "C03", sc->name, how);
	if (!strcmp(how, "search")) {
		if (bound == MODEL_ALL)
			printf(" bound=none");
		else
			printf(" bound=%u", bound);
		printf(" %s states=%llu transitions=%llu", fig.exhausted ? "exhausted" : "stopped",
		       (unsigned long long)fig.states, (unsigned long long)fig.transitions);
		if (fig.exhausted && bound == MODEL_ALL)
			printf(" covered=%.3g", fig.covered);
	} else {
		printf(" transitions=%llu seed=%llu", (unsigned long long)fig.transitions,
		       (unsigned long long)seed);
	}
	printf(" schedules=%llu depth=%llu %.1fs %s\n", (unsigned long long)fig.schedules,
	       (unsigned long long)fig.depth, fig.seconds, verdict);
}

static void *thread_main(void *arg)
{
	sc->thread((u32)(uintptr_t)arg);
	return NULL;
}

void scenario_setup(const struct scenario *s)
{
	u32 i;

	sc = s;
	time_flags = s->flags & (MODEL_NO_TIME | MODEL_TIME_LAST);
	if (s->flags & MODEL_TIME_IF_WEAK)
		time_flags = weak ? MODEL_TIME_LAST : MODEL_NO_TIME;
	sched_init();
	if (weak)
		weak_reset();
	if (setjmp(fail_jump)) {
		fprintf(stderr, "%s: %s\n", s->name, failed);
		exit(2);
	}
	in_setup = true;
	s->setup();
	in_setup = false;
	tls_save(0);
	for (i = 0; i < s->threads; i++) {
		scenario_threads |= 1u << thread_spawn(thread_main, (void *)(uintptr_t)i);
		tls_load(i + 1);
		self = i + 1;
		if (s->enter)
			s->enter(i);
		tls_save(i + 1);
	}
	self = 0;
	tls_load(0);
	stacks_keep();
	step_id = 1;
	undo_n = 0;
	mem_hash = 0;
}

static struct visited *table_map(void)
{
	size_t bytes = (table_most + 1) * sizeof(*table);
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	/* A state may be anywhere in it: with small pages each look-up also reads page tables. */
	if (p != MAP_FAILED)
		madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

void search_init(u32 log2)
{
	slog = mmap(NULL, 1ull << 32, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	table_most = (1ull << log2) - 1;
	table = table_map();
	table_other = table_map();
	if (slog == MAP_FAILED || table == MAP_FAILED || table_other == MAP_FAILED) {
		perror("model: mmap");
		exit(2);
	}
}

/*
 * Check that the undo log has all changes: a write that it misses remains after an undo, so
 * after some random schedules the region must be the same as before.
 */
bool check_undo(void)
{
	u64 used, *was, *at = (u64 *)REGION_BASE, i;

	base_reset();
	used = *region_used / 8;
	was = malloc(used * 8);
	if (!was)
		return false;
	memcpy(was, at, used * 8);
	deadline_at = now() + 10;
	random_runs(1000);
	for (i = 0; i < used && !failed; i++)
		if (was[i] != at[i])
			failed = "the model missed a write";
	free(was);
	printf("C03 %-22s undo      schedules=%llu words=%llu %s\n", sc->name,
	       (unsigned long long)fig.schedules, (unsigned long long)used,
	       failed ? failed : "ok");
	return !failed;
}

bool run_quiet(const char *mode, double seconds, u64 most)
{
	memset(&fig, 0, sizeof(fig));
	failed = NULL;
	how = mode;
	bound = sc->bound;
	deadline_at = now() + seconds;
	return !strcmp(mode, "search") ? search() : random_runs(most);
}

bool run(const char *mode, double seconds, u64 most, u32 preemptions)
{
	double start = now();
	bool ok;

	memset(&fig, 0, sizeof(fig));
	how = mode;
	bound = preemptions;
	failed = NULL;
	deadline_at = start + seconds;
	ok = !strcmp(mode, "search") ? search() : random_runs(most);
	fig.seconds = now() - start;
	say(ok ? "ok" : "FAILED");
	if (!ok) {
		printf("    %s\n", failed);
		describe_stuck(stdout);
		print_replay(stdout);
	}
	fflush(stdout);
	return ok;
}
