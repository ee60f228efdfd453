// SPDX-License-Identifier: Apache-2.0
/*
 * The engine under calls of two or three concurrent threads: bytes select the calls of each
 * thread in each round.  The threads meet between two rounds and run freely within one.
 *
 * Ops take stamps while they hold their vars (in their release function, which skipped ops
 * have too).  One serial order of all pushes must explain every stamp, and respect each
 * thread's order, the rounds, and that a body pushes after its own op.  A batch is one push.
 * Besides: no op runs beside a writer; each accepted op is released once, and runs once or is
 * skipped for a reason; a refused op does neither; the ops that a wait waits for are complete
 * when it returns; each error is returned once; the engine's own counts and versions agree.
 *
 * The bytes do not determine the speed of the threads: an input that failed may need several
 * runs.
 */
#define UTIL_NO_CHECK
#include "../unit/util.h"
#include "fuzz.h"

#define THREADS		3u
#define ROUNDS		16u
#define CALLS		8u		/* of a thread in a round */
#define VARS_N		6u
#define OPS		400u
#define UNITS		(OPS + ROUNDS + 1)
#define NACC		4u
#define OPERS		2u
#define TOKENS		64u

const char fuzz_target[] = "threads";
const uint8_t *fuzz_data;
size_t fuzz_size;

struct slot {
	pawl_var_t v;
	u64 version;		/* plain: the var must protect it */
	u32 readers, writers;	/* A: ops that hold the var */
};

enum form { SYNC, ASYNC, LATER, NO_BODY, FORMS };

struct op {
	u32 id, unit, n;
	u8 slot[NACC];
	bool write[NACC];
	u8 form, prop;
	int prio;
	bool fails;
	u32 child;		/* op that the body pushes, or 0 */
	/* its outcome */
	u32 accepted, ran, released;	/* A */
	bool inside, poisoned;
	int status;
	u64 stamp[NACC];
};

/* One push: an op or a batch, which takes its positions at one point in time. */
struct unit {
	u32 first, n;		/* ops */
	u32 thread, round;	/* THREADS if a body pushed it, or no thread */
	u32 parent;		/* unit, or 0 */
	u32 accepted;		/* A */
};

enum what { PUSH, BATCH, WAIT_READ, WAIT_WRITE, WAIT_ALL, RUN, COMPLETE, OPER, ASK, TAKE, LIFE,
	    DOOMED, LEAVE, WHATS };

struct call {
	u8 what, arg, arg2;
	u32 unit;
};

struct oper {
	pawl_graph_t h;
	u8 slot[2];
	u32 pushes, runs;	/* A */
};

static struct {
	struct pawl_engine *e;
	const uint8_t *p;
	size_t n, at;
	u32 nthreads, nrounds, nops, nunits, ncalls[THREADS][ROUNDS];
	struct call calls[THREADS][ROUNDS][CALLS];
	struct op op[OPS];
	struct unit unit[UNITS];
	struct slot slot[VARS_N];
	struct oper oper[OPERS];
	pawl_var_t doomed;
	u32 doomed_pushed, doomed_released;	/* A */
	bool takes;		/* errors may be returned or cleared, so skipping is not
				   predicted */
	u64 token[TOKENS];	/* A: to be completed */
	u32 given[OPS];		/* A: number of times that the error of an op was returned */
	u32 lives;		/* A: ops on vars of LIFE */
	u32 round;		/* A: that runs */
	u32 here;		/* A: threads that no longer use it */
} *w;

static u64 total_ops, total_calls;

static u8 byte(void)
{
	return w->at < w->n ? w->p[w->at++] : 0;
}

/* --- ops --- */

static void enter(struct op *o)
{
	u32 i;

	for (i = 0; i < o->n; i++) {
		struct slot *s = &w->slot[o->slot[i]];

		if (o->write[i]) {
			if (fetch_add_acq_rel(&s->writers, 1) || load_acquire(&s->readers))
				fuzz_broken("op %u writes var %u, and is not alone", o->id, o->slot[i]);
		} else {
			fetch_add_acq_rel(&s->readers, 1);
			if (load_acquire(&s->writers))
				fuzz_broken("op %u reads var %u beside a writer", o->id, o->slot[i]);
		}
		o->stamp[i] = s->version;
	}
	o->inside = true;
}

static void leave(struct op *o)
{
	u32 i;

	for (i = 0; i < o->n; i++) {
		struct slot *s = &w->slot[o->slot[i]];

		if (s->version != o->stamp[i])
			fuzz_broken("var %u changed under op %u", o->slot[i], o->id);
		if (o->write[i]) {
			s->version++;
			if (load_acquire(&s->readers) || fetch_add_acq_rel(&s->writers, -1u) != 1)
				fuzz_broken("op %u was not alone in var %u", o->id, o->slot[i]);
		} else {
			if (load_acquire(&s->writers))
				fuzz_broken("op %u had a writer beside it in var %u", o->id, o->slot[i]);
			fetch_add_acq_rel(&s->readers, -1u);
		}
	}
}

static void release(void *arg, int status)
{
	struct op *o = arg;

	if (fetch_add_acq_rel(&o->released, 1))
		fuzz_broken("op %u is released twice", o->id);
	o->status = status;
	if (!o->inside)
		enter(o);
	leave(o);
}

static int unit_push(u32 ui);

static void begin(struct op *o)
{
	if (fetch_add_acq_rel(&o->ran, 1))
		fuzz_broken("op %u ran twice", o->id);
	enter(o);
	if (o->child)
		unit_push(w->op[o->child].unit);
}

static int body(struct pawl_run *run, void *arg)
{
	struct op *o = arg;

	begin(o);
	return o->fails ? pawl_fail(run, -EIO, "f%u", o->id) : 0;
}

static void token_done(const struct op *o, pawl_token_t token)
{
	char text[16];

	snprintf(text, sizeof(text), "f%u", o->id);
	GOOD(!pawl_complete(w->e, token, o->fails ? -EIO : 0, o->fails ? text : NULL));
}

static struct op *later[TOKENS];

static void body_async(struct pawl_run *run, void *arg)
{
	struct op *o = arg;
	u32 i;

	begin(o);
	for (i = 0; o->form == LATER && i < TOKENS; i++) {
		u64 none = 0;

		/* 1: taken, and must not be completed yet */
		if (!cas_acq_rel_acquire(&w->token[i], &none, 1))
			continue;
		later[i] = o;
		store_release(&w->token[i], run->token.h);
		return;
	}
	token_done(o, run->token);
}

/* Complete a remaining token.  Returns false if there is none. */
static bool complete_one(u32 from)
{
	u32 i, k;

	for (i = 0; i < TOKENS; i++) {
		u64 h;

		k = (from + i) % TOKENS;
		h = load_acquire(&w->token[k]);
		if (h > 1 && cas_acq_rel_acquire(&w->token[k], &h, 1)) {
			struct op *o = later[k];

			store_release(&w->token[k], 0);
			token_done(o, (pawl_token_t){ h });
			return true;
		}
	}
	return false;
}

static void op_fill(const struct op *o, struct pawl_op *d, pawl_var_t *vars)
{
	u32 i, n = 0;

	*d = (struct pawl_op)PAWL_OP_INIT;
	for (i = 0; i < o->n; i++)
		if (!o->write[i])
			vars[n++] = w->slot[o->slot[i]].v;
	d->reads = vars;
	d->nreads = n;
	d->writes = vars + n;
	for (i = 0; i < o->n; i++)
		if (o->write[i])
			vars[n++] = w->slot[o->slot[i]].v;
	d->nwrites = n - d->nreads;
	d->arg = (void *)(uintptr_t)o;
	d->release = release;
	d->priority = o->prio;
	d->prop = o->prop;
	if (o->form == SYNC)
		d->fn = body;
	else if (o->form != NO_BODY)
		d->async_fn = body_async;
}

static int unit_push(u32 ui)
{
	struct unit *u = &w->unit[ui];
	struct pawl_op d[NACC];
	pawl_var_t vars[NACC][NACC];
	u32 i;
	int rc;

	for (i = 0; i < u->n; i++)
		op_fill(&w->op[u->first + i], &d[i], vars[i]);
	rc = u->n == 1 ? pawl_push(w->e, d) : pawl_push_batch(w->e, d, u->n);
	if (rc) {
		if (rc != -EAGAIN && rc != -ENOMEM)
			fuzz_broken("push of op %u: %d %s", u->first, rc, pawl_error_text());
		return rc;
	}
	store_release(&u->accepted, 1);
	return 0;
}

static int oper_body(struct pawl_run *run, void *arg)
{
	struct oper *r = arg;
	struct op o = { .id = OPS, .n = 2, .slot = { r->slot[0], r->slot[1] }, .write = { true } };

	enter(&o);
	leave(&o);
	fetch_add_relaxed(&r->runs, 1);
	return 0;
}

/* --- calls --- */

/* Check an error's text, which names the op that failed; each is returned once. */
static void told(int rc, const struct pawl_error *err)
{
	u32 id;

	if (rc != -EIO)
		return;
	if (sscanf(err->text, "f%u", &id) != 1 || id >= w->nops || !w->op[id].fails)
		fuzz_broken("an error says \"%s\"", err->text);
	if (fetch_add_relaxed(&w->given[id], 1))
		fuzz_broken("the error of op %u is given twice", id);
}

/* Check everything that this thread pushed before, and all pushes of earlier rounds. */
static void wait_promise(u32 thread, u32 round, u32 upto, s32 slot, bool reads)
{
	u32 i, k;

	for (i = 1; i < w->nunits; i++) {
		struct unit *u = &w->unit[i];
		bool before = u->thread < THREADS &&
			      (u->round < round || (u->round == round && u->thread == thread && i < upto));

		if (!before || !load_acquire(&u->accepted))
			continue;
		for (k = 0; k < u->n; k++) {
			const struct op *o = &w->op[u->first + k];
			bool meant = slot < 0;
			u32 j;

			for (j = 0; j < o->n; j++)
				meant |= o->slot[j] == slot && (reads || o->write[j]);
			if (meant && !load_acquire(&o->released))
				fuzz_broken("thread %u: a wait is over, op %u is not", thread, o->id);
		}
	}
}

static void do_wait(const struct call *c, u32 thread, u32 round)
{
	static const s64 limits[] = { 0, 20000, 500000, 2000000 };
	struct pawl_error err = { 0 };
	s64 limit = limits[c->arg % 4];
	u32 slot = c->arg2 % VARS_N;
	int rc;

	if (c->what == WAIT_ALL)
		rc = pawl_wait_all(w->e, limit, &err);
	else if (c->what == WAIT_READ)
		rc = pawl_wait_readable(w->e, w->slot[slot].v, limit, &err);
	else
		rc = pawl_wait_writable(w->e, w->slot[slot].v, limit, &err);
	if (rc == -ETIMEDOUT || rc == -ENOMEM)
		return;
	GOOD(!rc || rc == -EIO);
	told(rc, &err);
	wait_promise(thread, round, c->unit, c->what == WAIT_ALL ? -1 : (s32)slot,
		     c->what == WAIT_WRITE);
}

/* A var that no other thread knows. */
static void do_life(u32 n)
{
	pawl_var_t v;
	int rc = pawl_var_create(w->e, &v);

	if (rc) {
		GOOD(rc == -ENOMEM);
		return;
	}
	for (n %= 3; n; n--)
		if (!push_write(w->e, add_one, &w->lives, v))
			fetch_add_relaxed(&w->lives, -1u);
	while ((rc = pawl_var_delete(w->e, v, NULL, NULL))) {
		/* There is no room: make some. */
		GOOD(rc == -EAGAIN || rc == -ENOMEM);
		if (!complete_one(0) && pawl_run_one(w->e) <= 0)
			sched_yield();
	}
}

static void doomed_release(void *arg, int status)
{
	GOOD(!status || status == -ESTALE);
	fetch_add_relaxed(&w->doomed_released, 1);
}

/* Delete a var while others push on it. */
static void do_doomed(u32 n)
{
	struct pawl_op op = op_write(nothing, NULL, &w->doomed);
	int rc;

	if (n % 8 == 7) {
		rc = pawl_var_delete(w->e, w->doomed, NULL, NULL);
	} else {
		op.release = doomed_release;
		rc = pawl_push(w->e, &op);
		if (!rc)
			fetch_add_relaxed(&w->doomed_pushed, 1);
	}
	GOOD(!rc || rc == -ESTALE || rc == -EAGAIN || rc == -ENOMEM);
}

static void do_call(const struct call *c, u32 thread, u32 round)
{
	struct pawl_error err = { 0 };
	pawl_var_t v = w->slot[c->arg % VARS_N].v;
	u64 n, m;
	int rc;

	switch (c->what) {
	case PUSH:
	case BATCH:
		unit_push(c->unit);
		break;
	case WAIT_READ:
	case WAIT_WRITE:
	case WAIT_ALL:
		do_wait(c, thread, round);
		break;
	case RUN:
		GOOD(pawl_run_one(w->e) >= 0);
		break;
	case COMPLETE:
		complete_one(c->arg);
		break;
	case OPER:
		rc = pawl_graph_push(w->e, w->oper[c->arg % OPERS].h,
				     LAUNCH(c->arg2 % 3 - 1, { 0, 0 }));
		GOOD(!rc || rc == -EAGAIN || rc == -ENOMEM);
		if (!rc)
			fetch_add_relaxed(&w->oper[c->arg % OPERS].pushes, 1);
		break;
	case ASK:
		GOOD(!pawl_var_version(w->e, v, &n) && !pawl_var_version(w->e, v, &m) && m >= n);
		rc = pawl_var_error(w->e, v, &err);
		GOOD(!rc || rc == -EIO);
		break;
	case TAKE:
		if (c->arg2 % 2) {
			rc = pawl_var_take(w->e, v, &err);
			GOOD(!rc || rc == -EIO);
			told(rc, &err);
		} else {
			GOOD(!pawl_var_clear(w->e, v));
		}
		break;
	case LIFE:
		do_life(c->arg);
		break;
	case DOOMED:
		do_doomed(c->arg);
		break;
	}
}

/* --- the bytes --- */

static u32 op_parse(u32 unit)
{
	struct op *o = &w->op[w->nops];
	u8 how = byte(), n = byte(), i, k;

	o->id = w->nops++;
	o->unit = unit;
	o->form = how % FORMS;
	o->fails = (how >> 2) % 8 == 1 && o->form != NO_BODY;
	o->prop = (how >> 5) == 7 ? PAWL_CPU_PRIORITIZED : (how >> 5) == 6 ? PAWL_NO_SKIP :
		  (how >> 5) == 5 && o->form != SYNC ? PAWL_ASYNC : PAWL_NORMAL;
	o->prio = (n >> 6) - 1;
	for (i = 0; i <= n % NACC; i++) {
		u8 b = byte();

		for (k = 0; k < o->n && o->slot[k] != b % VARS_N; k++)
			;
		if (k < o->n)
			continue;
		o->slot[o->n] = b % VARS_N;
		o->write[o->n++] = b & 64;
	}
	return o->id;
}

static u32 unit_parse(u32 thread, u32 round, u32 n, u32 parent)
{
	u32 ui = w->nunits++, i;
	struct unit *u = &w->unit[ui];

	u->thread = thread;
	u->round = round;
	u->parent = parent;
	u->first = w->nops;
	u->n = n;
	for (i = 0; i < n; i++)
		op_parse(ui);
	/* Only bodies of ops that were not pushed by a body push, and only one op. */
	for (i = 0; i < n && !parent; i++) {
		struct op *o = &w->op[u->first + i];

		if (o->form != NO_BODY && o->id % 5 == 2 && w->nops < OPS - 8)
			o->child = w->unit[unit_parse(THREADS, round, 1, ui)].first;
	}
	return ui;
}

static void call_parse(u32 t, u32 r)
{
	struct call *c = &w->calls[t][r][w->ncalls[t][r]++];
	/* More pushes than others. */
	static const u8 whats[] = { PUSH, PUSH, PUSH, PUSH, PUSH, PUSH, BATCH, WAIT_READ, WAIT_WRITE,
				    WAIT_ALL, RUN, COMPLETE, OPER, ASK, TAKE, LIFE, DOOMED, LEAVE };

	c->what = whats[byte() % sizeof(whats)];
	/* An earlier push has a smaller number. */
	c->unit = w->nunits;
	if (c->what == PUSH) {
		unit_parse(t, r, 1, 0);
		return;
	}
	c->arg = byte();
	if (c->what == BATCH) {
		unit_parse(t, r, 2 + c->arg % 3, 0);
		return;
	}
	if (c->what != RUN && c->what != LEAVE)
		c->arg2 = byte();
	w->takes |= (c->what >= WAIT_READ && c->what <= WAIT_ALL) || c->what == TAKE;
}

static void parse(void)
{
	u32 t, r, n;

	w->nunits = w->nops = 1;	/* 0: none */
	for (r = 0; r < ROUNDS && w->at < w->n; r++) {
		for (t = 0; t < w->nthreads; t++)
			for (n = 1 + byte() % (CALLS - 1); n && w->nops < OPS - 16 * CALLS; n--)
				call_parse(t, r);
	}
	w->nrounds = r;
}

/* --- the run --- */

static void *thread_main(void *arg)
{
	u32 t = (u32)(uintptr_t)arg & 15, r = (u32)((uintptr_t)arg >> 4), i;

	for (; r < w->nrounds; r++) {
		bool leaves = false;

		while (load_acquire(&w->round) < r + 1)
			sched_yield();
		for (i = 0; i < w->ncalls[t][r]; i++) {
			leaves |= w->calls[t][r][i].what == LEAVE;
			do_call(&w->calls[t][r][i], t, r);
		}
		fetch_add_acq_rel(&w->here, 1);
		if (leaves)
			return (void *)(uintptr_t)(r + 1);
	}
	return NULL;
}

/* The round is complete; another thread replaces one that left. */
static void threads_run(void)
{
	pthread_t thread[THREADS];
	u32 t, r, i;

	for (t = 0; t < w->nthreads; t++)
		thread[t] = spawn(thread_main, (void *)(uintptr_t)t);
	for (r = 0; r < w->nrounds; r++) {
		store_release(&w->here, 0);
		store_release(&w->round, r + 1);
		while (load_acquire(&w->here) < w->nthreads)
			sched_yield();
		for (t = 0; t < w->nthreads; t++) {
			bool left = false;

			for (i = 0; i < w->ncalls[t][r]; i++)
				left |= w->calls[t][r][i].what == LEAVE;
			if (!left)
				continue;
			join(thread[t]);
			thread[t] = spawn(thread_main, (void *)(uintptr_t)(t | (r + 1) << 4));
		}
	}
	for (t = 0; t < w->nthreads; t++)
		join(thread[t]);
}

/* --- afterwards --- */

/* Edges of the order that must exist; the numbers are small, so a matrix suffices. */
static u8 edge[UNITS][UNITS];
static u32 nodes;

static void before(u32 a, u32 b)
{
	if (a != b)
		edge[a][b] = 1;
}

/* The writer and the readers of each version of a var. */
static void order_of_var(u32 slot)
{
	static u32 writer[OPS + 2];
	u32 i, j, pass;

	memset(writer, 0, sizeof(writer));
	for (pass = 0; pass < 2; pass++) {
		for (i = 1; i < w->nops; i++) {
			struct op *o = &w->op[i];

			for (j = 0; j < o->n && load_acquire(&o->released); j++) {
				u64 s = o->stamp[j];

				if (o->slot[j] != slot)
					continue;
				GOOD(s <= OPS);
				if (!pass) {
					if (o->write[j] && writer[s + 1])
						fuzz_broken("ops %u and %u both wrote version %llu of var %u",
							    writer[s + 1], i, (unsigned long long)s, slot);
					if (o->write[j])
						writer[s + 1] = i;
					continue;
				}
				/* Runs of graphs are not recorded, so there may be a gap. */
				if (writer[s])
					before(w->op[writer[s]].unit, o->unit);
				if (writer[s + 1])
					before(o->unit, w->op[writer[s + 1]].unit);
				/* Ops of a batch are ordered as in its array. */
				if (writer[s] && w->op[writer[s]].unit == o->unit && writer[s] >= i)
					fuzz_broken("op %u of a batch is before op %u", writer[s], i);
			}
		}
	}
}

static void order_check(void)
{
	static u32 in[UNITS], queue[UNITS];
	u32 i, j, t, r, head = 0, tail = 0, last[THREADS];

	nodes = w->nunits + w->nrounds;
	memset(edge, 0, sizeof(edge));
	memset(last, 0, sizeof(last));
	for (i = 0; i < VARS_N; i++)
		order_of_var(i);
	for (r = 0; r < w->nrounds; r++)
		for (t = 0; t < w->nthreads; t++) {
			last[t] = r ? w->nunits + r - 1 : 0;	/* the meeting before the round */
			for (i = 1; i < w->nunits; i++) {
				struct unit *u = &w->unit[i];

				if (u->thread != t || u->round != r || !u->accepted)
					continue;
				if (last[t])
					before(last[t], i);
				last[t] = i;
			}
			if (last[t])
				before(last[t], w->nunits + r);
		}
	for (i = 1; i < w->nunits; i++)
		if (w->unit[i].parent && w->unit[i].accepted)
			before(w->unit[i].parent, i);
	memset(in, 0, sizeof(in));
	for (i = 1; i < nodes; i++)
		for (j = 1; j < nodes; j++)
			in[j] += edge[i][j];
	for (i = 1; i < nodes; i++)
		if (!in[i])
			queue[tail++] = i;
	for (; head < tail; head++)
		for (j = 1; j < nodes; j++)
			if (edge[queue[head]][j] && !--in[j])
				queue[tail++] = j;
	if (tail != nodes - 1) {
		for (i = 1; i < nodes; i++)
			if (in[i])
				fprintf(stderr, "in a circle: push %u (ops from %u)\n", i,
					i < w->nunits ? w->unit[i].first : 0);
		fuzz_broken("no serial order explains what the ops saw");
	}
}

/* A skipped op has a cause: an op that wrote one of its versions failed. */
static void cause_check(const struct op *o)
{
	bool cause = false, may = false;
	u32 i, j, k;

	for (j = 0; j < o->n; j++) {
		bool found = !o->stamp[j];

		for (i = 1; i < w->nops; i++) {
			const struct op *p = &w->op[i];

			for (k = 0; k < p->n && p->released; k++)
				if (p->slot[k] == o->slot[j] && p->write[k] && p->stamp[k] + 1 == o->stamp[j]) {
					cause |= p->status != 0;
					found = true;
				}
		}
		may |= !found;	/* a run of a graph passes on the error that it found */
	}
	if (o->status && o->status != -EIO)
		fuzz_broken("op %u ends with %d", o->id, o->status);
	if (!o->ran && o->form != NO_BODY && !cause && !may)
		fuzz_broken("op %u is skipped, and nobody failed before it", o->id);
	if (o->ran && cause && !w->takes && o->prop != PAWL_NO_SKIP)
		fuzz_broken("op %u runs, and what it sees is poisoned", o->id);
	if (o->ran && o->fails != (o->status != 0) && !((cause || may) && o->prop == PAWL_NO_SKIP))
		fuzz_broken("op %u %s, and ends with %d", o->id, o->fails ? "fails" : "does well",
			    o->status);
}

static void check(void)
{
	u64 failed = 0, n;
	struct pawl_stats st;
	u32 i;

	for (i = 1; i < w->nops; i++) {
		struct op *o = &w->op[i];
		bool accepted = w->unit[o->unit].accepted;

		if (o->released != accepted)
			fuzz_broken("op %u was %s, and released %u times", i,
				    accepted ? "accepted" : "refused", o->released);
		if (o->ran > accepted)
			fuzz_broken("op %u was refused, and ran", i);
		if (!accepted)
			continue;
		if (o->ran && o->fails)
			failed++;
		total_ops++;
		cause_check(o);
	}
	order_check();
	for (i = 0; i < VARS_N; i++) {
		GOOD(!pawl_var_version(w->e, w->slot[i].v, &n));
		if (n != w->slot[i].version)
			fuzz_broken("var %u has version %llu, %llu writes", i, (unsigned long long)n,
				    (unsigned long long)w->slot[i].version);
	}
	for (i = 0; i < OPERS; i++)
		if (w->oper[i].runs > w->oper[i].pushes)
			fuzz_broken("graph %u ran too often", i);
	st = stats(w->e);
	if (st.pushed != st.completed || st.failed != failed)
		fuzz_broken("pushed %llu, completed %llu, failed %llu; %llu failed",
			    (unsigned long long)st.pushed, (unsigned long long)st.completed,
			    (unsigned long long)st.failed, (unsigned long long)failed);
	GOOD(w->doomed_pushed == w->doomed_released && !w->lives);
}

static void opers_make(void)
{
	pawl_var_t vars[2];
	struct pawl_op op;
	u32 i;

	for (i = 0; i < OPERS; i++) {
		struct oper *r = &w->oper[i];

		r->slot[0] = (u8)(i * 2);
		r->slot[1] = (u8)(i * 2 + 1);
		vars[0] = w->slot[r->slot[0]].v;
		vars[1] = w->slot[r->slot[1]].v;
		op = op_of_fn(oper_body, r);
		op.writes = &vars[0];
		op.nwrites = 1;
		op.reads = &vars[1];
		op.nreads = 1;
		op.prop = PAWL_NO_SKIP;
		GOOD(!pawl_graph_create(w->e, &op, 1, 0, &r->h));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pawl_config cfg;
	struct pawl_error err;
	u32 i;
	u8 b;
	int rc;

	fuzz_data = data;
	fuzz_size = size;
	w = calloc(1, sizeof(*w));
	if (!w)
		abort();
	w->p = data;
	w->n = size;
	b = byte();
	cfg = small(b & 1 ? PAWL_POOLED : PAWL_PER_DEVICE, b / 2 % 4 - (b / 2 % 4 == 3));
	w->nthreads = 2 + b / 8 % 2;
	cfg.spin_ns = b & 16 ? 0 : 20000;
	cfg.max_threads = 16;
	b = byte();
	cfg.max_ops = b & 1 ? 64 : 4096;
	cfg.max_vars = 64;
	/*
	 * A thread that waits for room might wait for ops that only its own later calls
	 * complete.
	 */
	cfg.window_policy = PAWL_WINDOW_FAIL;
	if (b & 4)
		cfg.window = 8 + b / 8;
	w->e = engine_with(&cfg);
	for (i = 0; i < VARS_N; i++)
		w->slot[i].v = var_new(w->e);
	w->doomed = var_new(w->e);
	opers_make();
	parse();
	threads_run();
	/* Complete the remaining tokens; the ops behind them run. */
	do {
		while (complete_one(0))
			;
		rc = pawl_wait_all(w->e, 1000000, &err);
	} while (rc == -ETIMEDOUT);
	GOOD(!rc || rc == -EIO);
	told(rc, &err);
	check();
	for (i = 0; i < w->nthreads; i++)
		for (u32 r = 0; r < w->nrounds; r++)
			total_calls += w->ncalls[i][r];
	for (i = 0; i < OPERS; i++)
		GOOD(!pawl_graph_delete(w->e, w->oper[i].h));
	GOOD(!pawl_engine_destroy(w->e));
	free(w);
	return 0;
}

void fuzz_figures(char *buf, size_t len)
{
	snprintf(buf, len, "calls=%llu ops=%llu", (unsigned long long)total_calls,
		 (unsigned long long)total_ops);
}
