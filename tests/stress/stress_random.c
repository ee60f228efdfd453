// SPDX-License-Identifier: Apache-2.0
/*
 * Random programs against oracles that were written apart.
 *
 * A program is a list of events (pushes of all kinds, waits, deletes, clears) that one
 * seed determines.
 *
 * With one pushing thread:
 *   oracle B looks while ops run: every op carries the version that each of its vars must
 *     have when it comes, and counters of who is inside.  It knows only how many writes
 *     were pushed before on each var.
 *   oracle A looks afterwards: it goes through the events one after the other, as if
 *     there were no engine, and compares what every op read (a hash of all the data it
 *     touched), which ops were skipped and with which error, and the data at the end.
 *
 * With several pushing threads there is no such order to compare with.  Oracle C records
 * what each op saw and checks that some serial order explains it: versions along every
 * var, the order of each thread, and the time between begin and end of each push; no
 * cycle.  A batch is one node of that order: nothing comes between its ops.
 *
 *	stress_random [--seed N] [--programs N] [--seconds S] [--verbose]
 *
 * A failure prints the command that runs the one program again.  How threads interleave
 * is not part of the seed: --programs repeats it.
 */
#include "stress.h"
#include <stdarg.h>

#define VARS_MAX	64
#define DEPS_MAX	12
#define SLOTS_MAX	1024		/* vars of a program, over all deletes */
#define OPS_MAX		1200
#define THREADS_MAX	4

static bool verbose;

static void broken(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void broken(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "FAILED: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	replay();
	abort();
}

#define GOOD(cond)								\
	do {									\
		if (!(cond))							\
			broken("%s:%d: %s (last error: %s)", __FILE__, __LINE__, #cond, \
			       pawl_error_text());				\
	} while (0)

/* --- what both kinds of programs share --- */

/* A var over its life; its slot is never used for another one. */
struct slot {
	pawl_var_t v;
	u64 data;		/* plain: the engine's to protect */
	u64 version;		/* plain: writes that came by */
	u32 readers, writers;	/* A: who is inside */
	u64 pushed;		/* writes pushed (one pusher) */
	bool dead;
};

enum body { SYNC, ASYNC_IN_BODY, ASYNC_LATER, NO_BODY };

struct op {
	struct program *p;
	u32 id;
	u32 n;				/* slots it touches, ascending, no doubles */
	u16 slot[DEPS_MAX];
	bool write[DEPS_MAX];
	u64 expect[DEPS_MAX];		/* oracle B: version it must find */
	u64 saw[DEPS_MAX];		/* oracle C: version it found */
	u8 body;
	bool fails, no_skip, counted;	/* counted: release() comes (not for operators) */
	bool deletes;
	u64 token;			/* A */
	u32 ran;			/* A: times */
	u32 released;			/* A: times */
	int status;			/* given to release */
	int inherited;			/* run->status */
	u64 hash;
	u32 node;			/* oracle C */
	u64 begin, end;			/* oracle C: of its push */
};

struct program {
	struct pawl_engine *e;
	u64 seed;
	u32 nslots;
	struct slot *slot;
	u32 nops;			/* A with several pushers */
	struct op *op;
	u32 ncompleters;
	pthread_t completer[2];
	u64 later[4096];		/* A: ring of ops to complete: index + 1 */
	u32 later_in, later_out;	/* A */
	u32 stop;			/* A */
	bool errors, multi;
};

static u64 mix(u64 a, u64 b)
{
	u64 s = a * 0x9e3779b97f4a7c15ull ^ b;

	return rnd(&s);
}

static void enter(struct op *o)
{
	struct program *p = o->p;
	u32 i;

	for (i = 0; i < o->n; i++) {
		struct slot *s = &p->slot[o->slot[i]];

		if (o->write[i]) {
			if (fetch_add_acq_rel(&s->writers, 1))
				broken("op %u writes slot %u beside another writer", o->id, o->slot[i]);
			if (load_acquire(&s->readers))
				broken("op %u writes slot %u beside a reader", o->id, o->slot[i]);
		} else {
			fetch_add_acq_rel(&s->readers, 1);
			if (load_acquire(&s->writers))
				broken("op %u reads slot %u beside a writer", o->id, o->slot[i]);
		}
		o->saw[i] = s->version;
		if (!p->multi && s->version != o->expect[i])
			broken("op %u finds slot %u at version %llu, expected %llu", o->id, o->slot[i],
			       (unsigned long long)s->version, (unsigned long long)o->expect[i]);
	}
}

/* The work of the op: reads all, writes what it writes. */
static void work(struct op *o)
{
	struct program *p = o->p;
	u64 h = o->id;
	u32 i;

	for (i = 0; i < o->n; i++)
		h = mix(h, p->slot[o->slot[i]].data);
	for (i = 0; i < o->n; i++)
		if (o->write[i])
			p->slot[o->slot[i]].data = mix(h, o->slot[i]);
	o->hash = h;
}

static void leave(struct op *o)
{
	struct program *p = o->p;
	u32 i;

	for (i = 0; i < o->n; i++) {
		struct slot *s = &p->slot[o->slot[i]];

		if (s->version != o->saw[i])
			broken("slot %u changed under op %u", o->slot[i], o->id);
		if (o->write[i]) {
			s->version++;
			if (load_acquire(&s->readers) || fetch_add_acq_rel(&s->writers, -1u) != 1)
				broken("op %u was not alone in slot %u", o->id, o->slot[i]);
		} else {
			if (load_acquire(&s->writers))
				broken("op %u had a writer beside it in slot %u", o->id, o->slot[i]);
			fetch_add_acq_rel(&s->readers, -1u);
		}
	}
}

static void once(struct op *o)
{
	if (fetch_add_acq_rel(&o->ran, 1))
		broken("op %u ran twice", o->id);
}

static int sync_body(struct pawl_run *run, void *arg)
{
	struct op *o = arg;

	once(o);
	o->inherited = run->status;
	enter(o);
	work(o);
	if (o->id % 16 == 0)
		sched_yield();
	leave(o);
	return o->fails ? pawl_fail(run, -EIO, "op %u", o->id) : 0;
}

static void complete(struct op *o)
{
	char text[32];

	snprintf(text, sizeof(text), "op %u", o->id);
	leave(o);
	GOOD(!pawl_complete(o->p->e, (pawl_token_t){ load_acquire(&o->token) },
			    o->fails ? -EIO : 0, text));
}

static void async_body(struct pawl_run *run, void *arg)
{
	struct op *o = arg;
	struct program *p = o->p;
	u32 i;

	once(o);
	o->inherited = run->status;
	enter(o);
	work(o);
	store_release(&o->token, run->token.h);
	if (o->body == ASYNC_IN_BODY) {
		complete(o);
		return;
	}
	i = fetch_add_acq_rel(&p->later_in, 1);
	store_release(&p->later[i % ARRAY_SIZE(p->later)], o->id + 1);
}

static void *completer(void *arg)
{
	struct program *p = arg;
	u64 seed = p->seed;

	for (;;) {
		u32 i = load_acquire(&p->later_out);
		u64 *cell = &p->later[i % ARRAY_SIZE(p->later)], id;

		if (i == load_acquire(&p->later_in)) {
			if (load_acquire(&p->stop))
				return NULL;
			sched_yield();
			continue;
		}
		if (!cas_acq_rel_acquire(&p->later_out, &i, i + 1))
			continue;
		while (!(id = xchg_acq_rel(cell, 0)))
			sched_yield();
		if (rnd(&seed) % 4 == 0)
			sched_yield();
		complete(&p->op[id - 1]);
	}
}

/* Over.  If it did not run, its place in its vars is now. */
static void released(void *arg, int status)
{
	struct op *o = arg;

	o->status = status;
	if (!load_acquire(&o->ran)) {
		enter(o);
		leave(o);
	}
	if (fetch_add_acq_rel(&o->released, 1))
		broken("op %u was released twice", o->id);
}

static void var_sort(struct program *p, struct op *o)
{
	u32 i, j;

	for (i = 1; i < o->n; i++)
		for (j = i; j && o->slot[j - 1] > o->slot[j]; j--) {
			u16 s = o->slot[j];
			bool w = o->write[j];

			o->slot[j] = o->slot[j - 1];
			o->write[j] = o->write[j - 1];
			o->slot[j - 1] = s;
			o->write[j - 1] = w;
		}
}

/* A random op over the slots map[0 .. nv), as the caller of pawl_push() describes it. */
struct desc {
	struct pawl_op op;
	pawl_var_t reads[2 * DEPS_MAX], writes[2 * DEPS_MAX];
};

static void op_make(struct program *p, struct op *o, struct desc *d, const u16 *map, u32 nv,
		    u32 deps, u64 *seed)
{
	u32 i, k, n = deps ? (u32)(rnd(seed) % (deps + 1)) : 0;

	memset(&d->op, 0, sizeof(d->op));
	d->op.size = sizeof(d->op);
	d->op.reads = d->reads;
	d->op.writes = d->writes;
	o->n = 0;
	for (i = 0; i < n; i++) {
		u16 s = map[rnd(seed) % nv];
		bool w = rnd(seed) % 2;

		for (k = 0; k < o->n && o->slot[k] != s; k++)
			;
		if (k == o->n) {
			o->slot[k] = s;
			o->write[k] = false;
			o->n++;
		}
		o->write[k] |= w;
		/* doubles go to the engine as they come */
		if (w)
			d->writes[d->op.nwrites++] = p->slot[s].v;
		else
			d->reads[d->op.nreads++] = p->slot[s].v;
	}
	var_sort(p, o);
	o->p = p;
	o->body = SYNC;
	o->counted = true;
	d->op.arg = o;
	d->op.fn = sync_body;
	d->op.release = released;
	d->op.name = "random";
}

/* Without a body it is over with its release, in a bulk with that of the bulk: not there. */
static void op_body(struct op *o, struct desc *d, u32 percent, bool empty, u64 *seed)
{
	if (rnd(seed) % 100 < percent) {
		o->body = rnd(seed) % 3 ? ASYNC_LATER : ASYNC_IN_BODY;
		d->op.fn = NULL;
		d->op.async_fn = async_body;
	} else if (rnd(seed) % 50 == 0 && empty) {
		o->body = NO_BODY;
		d->op.fn = NULL;
	}
}

static void engine_make(struct program *p, u64 *seed, bool multi)
{
	struct pawl_config c = small((int)(rnd(seed) % 3), (int)(rnd(seed) % 4));

	c.cpu_devices = 1 + (u32)(rnd(seed) % 3);
	if (rnd(seed) % 3 == 0) {
		c.window = 4 + (u32)(rnd(seed) % 60);
		c.window_policy = rnd(seed) % 2 && c.workers ? PAWL_WINDOW_BLOCK :
							       PAWL_WINDOW_HELP;
	}
	c.no_help = c.workers && c.kind != PAWL_NAIVE && rnd(seed) % 3 == 0;
	if (rnd(seed) % 4 == 0)
		c.spin_ns = 0;
	OK(pawl_engine_create(&c, &p->e));
	store_release(&engine_now, p->e);
	if (verbose)
		printf("  kind %d, workers %d, devices %u, window %u policy %d, no_help %d, spin %llu\n",
		       c.kind, c.workers, c.cpu_devices, c.window, c.window_policy, c.no_help,
		       (unsigned long long)c.spin_ns);
}

static void program_begin(struct program *p)
{
	u32 i;

	for (i = 0; i < p->ncompleters; i++)
		p->completer[i] = spawn(completer, p);
}

static void program_end(struct program *p)
{
	u32 i;

	store_release(&p->stop, 1);
	for (i = 0; i < p->ncompleters; i++)
		join(p->completer[i]);
	store_release(&engine_now, NULL);
	OK(pawl_engine_destroy(p->e));
	free(p->slot);
	free(p->op);
	free(p);
}

static u16 random_prop(u64 *seed)
{
	/* A push of PAWL_DELETE_VAR runs in front; all others have no effect on the order. */
	static const u16 props[] = { PAWL_NORMAL, PAWL_NORMAL, PAWL_NORMAL, PAWL_COPY_FROM_DEVICE,
				     PAWL_COPY_TO_DEVICE, PAWL_CPU_PRIORITIZED, PAWL_ASYNC,
				     PAWL_DELETE_VAR, PAWL_GPU_PRIORITIZED };

	return props[rnd(seed) % ARRAY_SIZE(props)];
}

/* --- one pusher: oracles A and B --- */

enum event_kind { EV_OP, EV_TAKE, EV_TAKE_ALL, EV_CLEAR };

struct event {
	enum event_kind kind;
	u32 op;			/* EV_OP */
	u32 slot;		/* EV_TAKE, EV_CLEAR */
	int rc;			/* what the engine said */
	u32 count;		/* of a wait for all */
	u32 by;			/* op that the message names, or ~0 */
	bool one_push;		/* EV_OP: gathered with the one before */
};

struct single {
	struct program *p;
	struct event ev[2 * OPS_MAX];
	u32 nev;
	u16 map[VARS_MAX];	/* slots alive */
	u32 nv;
	bool bulk;
	u32 devices;
};

/*
 * Oracle A.  Knows nothing of versions, threads or the engine: data, and for each slot
 * the error that is in it.
 */
struct oracle_a {
	u64 data[SLOTS_MAX];
	u32 err[SLOTS_MAX];	/* op that failed + 1, or 0 */
	bool gone[OPS_MAX];	/* its error was given out or cleared */
	u32 failed;		/* since the last wait for all */
};

static u32 a_alive(struct oracle_a *a, u32 err)
{
	return err && !a->gone[err - 1] ? err : 0;
}

static void a_op(struct program *p, struct oracle_a *a, struct op *o)
{
	u32 inherited = 0, i, mine;
	u64 h = o->id, best = ~0ull;
	bool run;

	/* Of its reads, then of its writes, the error of the var with the lowest index. */
	for (i = 0; i < o->n; i++) {
		u32 err = a_alive(a, a->err[o->slot[i]]);
		u64 rank = (u64)o->write[i] << 32 | (u32)p->slot[o->slot[i]].v.h;

		if (err && rank < best) {
			best = rank;
			inherited = err;
		}
	}
	run = o->body != NO_BODY && (!inherited || o->no_skip || o->deletes);
	if (run != (bool)o->ran)
		broken("op %u %s", o->id, run ? "was skipped" : "ran although it inherits an error");
	mine = inherited;
	if (run) {
		for (i = 0; i < o->n; i++)
			h = mix(h, a->data[o->slot[i]]);
		for (i = 0; i < o->n; i++)
			if (o->write[i])
				a->data[o->slot[i]] = mix(h, o->slot[i]);
		if (o->hash != h)
			broken("op %u read other data than in push order", o->id);
		if (!o->deletes && o->inherited != (inherited ? -EIO : 0))
			broken("op %u: run->status is %d", o->id, o->inherited);
		if (o->fails) {
			mine = o->id + 1;
			a->failed++;
		}
	}
	for (i = 0; i < o->n; i++)
		if (o->write[i])
			a->err[o->slot[i]] = mine;
	if (o->counted) {
		if (o->released != 1)
			broken("op %u was released %u times", o->id, o->released);
		if (o->status != (mine ? -EIO : 0))
			broken("op %u was released with %d", o->id, o->status);
	}
}

static void oracle_a(struct single *s)
{
	struct program *p = s->p;
	struct oracle_a *a = calloc(1, sizeof(*a));
	u32 i, k, err;

	for (i = 0; i < s->nev; i++) {
		struct event *ev = &s->ev[i];

		switch (ev->kind) {
		case EV_OP:
			a_op(p, a, &p->op[ev->op]);
			break;
		case EV_TAKE:
		case EV_CLEAR:
			err = a_alive(a, a->err[ev->slot]);
			if (ev->rc != (err && ev->kind == EV_TAKE ? -EIO : 0))
				broken("event %u: a wait on slot %u gave %d", i, ev->slot, ev->rc);
			if (ev->rc && ev->by != err - 1)
				broken("event %u: error of op %u, expected op %u", i, ev->by, err - 1);
			if (err)
				a->gone[err - 1] = true;
			break;
		case EV_TAKE_ALL:
			/* The first by time is any that is alive: ops ran in parallel. */
			for (k = 0, err = 0; k < p->nops && !err; k++)
				err = p->op[k].fails && p->op[k].ran && !a->gone[k] ? k + 1 : 0;
			/* only those up to here */
			for (k = 0, err = 0; k < i; k++)
				if (s->ev[k].kind == EV_OP && p->op[s->ev[k].op].fails &&
				    p->op[s->ev[k].op].ran && !a->gone[s->ev[k].op])
					err = s->ev[k].op + 1;
			if (ev->rc != (err ? -EIO : 0))
				broken("event %u: a wait for all gave %d, expected %d", i, ev->rc,
				       err ? -EIO : 0);
			if (err && (ev->by >= p->nops || !p->op[ev->by].fails || a->gone[ev->by]))
				broken("event %u: a wait for all names op %u", i, ev->by);
			if (err && ev->count != a->failed)
				broken("event %u: a wait for all counts %u failures, not %u", i, ev->count,
				       a->failed);
			a->failed = 0;
			for (k = 0; k < i; k++)
				if (s->ev[k].kind == EV_OP)
					a->gone[s->ev[k].op] = true;
			break;
		}
	}
	for (i = 0; i < p->nslots; i++)
		if (p->slot[i].data != a->data[i])
			broken("slot %u ends with other data than in push order", i);
	free(a);
}

static struct op *single_op(struct single *s)
{
	struct program *p = s->p;
	struct op *o = &p->op[p->nops];

	o->id = p->nops++;
	return o;
}

/* The op is pushed now, or will be at this place: what it must find. */
static void single_note(struct single *s, struct op *o)
{
	struct program *p = s->p;
	u32 i;

	for (i = 0; i < o->n; i++) {
		struct slot *v = &p->slot[o->slot[i]];

		o->expect[i] = v->pushed;
		v->pushed += o->write[i];
	}
	s->ev[s->nev++] = (struct event){ .kind = EV_OP, .op = o->id };
}

static u16 slot_new(struct program *p)
{
	u16 i = (u16)p->nslots++;

	p->slot[i].v = var_new(p->e);
	return i;
}

static int delete_body(struct pawl_run *run, void *arg)
{
	struct op *o = arg;

	once(o);
	enter(o);
	work(o);
	leave(o);
	return 0;
}

/* Everything that was pushed is over, and no error was taken for it. */
static void quiesce(struct single *s)
{
	struct program *p = s->p;
	struct pawl_stats st = { .size = sizeof(st) };

	GOOD(!pawl_bulk_flush(p->e));
	for (;;) {
		GOOD(!pawl_stats(p->e, &st));
		if (st.pushed == st.completed)
			return;
		if (pawl_run_one(p->e) == 0)
			sched_yield();
	}
}

static u32 named_op(const struct pawl_error *err)
{
	u32 id;

	return sscanf(err->text, "op %u", &id) == 1 ? id : ~0u;
}

struct run_list {
	u32 next, n;		/* A */
	struct op *op[OPS_MAX];
};

/* An operator's runs are in the order of their pushes: it has a write. */
static int oper_body(struct pawl_run *run, void *arg)
{
	struct run_list *l = arg;
	u32 i = fetch_add_acq_rel(&l->next, 1);

	GOOD(i < load_acquire(&l->n));
	return sync_body(run, l->op[i]);
}

struct oper {
	pawl_oper_t o;
	struct run_list runs;
	struct op proto;
	bool dead;
};

static void push_ops(struct single *s, struct desc *d, u32 n)
{
	struct program *p = s->p;
	struct pawl_op ops[64];
	u32 i;

	if (n == 1) {
		GOOD(!pawl_push(p->e, &d->op));
		return;
	}
	for (i = 0; i < n; i++)
		ops[i] = d[i].op;
	GOOD(!pawl_push_batch(p->e, ops, n));
}

static void single(u64 program)
{
	struct single *s = calloc(1, sizeof(*s));
	struct program *p = calloc(1, sizeof(*p));
	struct desc *d = calloc(64, sizeof(*d));
	struct oper *oper = calloc(8, sizeof(*oper));
	u64 seed = program;
	u32 deps, async, batch, deletes, waits, total, nopers = 0, i, k, fail, bulk_size;
	struct pawl_error err;

	s->p = p;
	p->seed = program;
	p->slot = calloc(SLOTS_MAX, sizeof(*p->slot));
	p->op = calloc(OPS_MAX + 100, sizeof(*p->op));
	engine_make(p, &seed, false);
	p->errors = rnd(&seed) % 3 == 0;
	s->bulk = !p->errors && rnd(&seed) % 3 == 0;
	s->nv = 1 + (u32)(rnd(&seed) % (rnd(&seed) % 2 ? 6 : VARS_MAX));
	deps = (u32)(rnd(&seed) % (DEPS_MAX + 1));
	async = rnd(&seed) % 2 ? 0 : (u32)(rnd(&seed) % 60);
	batch = rnd(&seed) % 2 ? 0 : (u32)(rnd(&seed) % 40);
	deletes = rnd(&seed) % 2 ? 0 : (u32)(rnd(&seed) % 8);
	waits = (u32)(rnd(&seed) % 15);
	fail = p->errors ? 1 + (u32)(rnd(&seed) % 20) : 0;
	total = 50 + (u32)(rnd(&seed) % (OPS_MAX / 2 - 100));
	p->ncompleters = async ? 1 + (u32)(rnd(&seed) % 2) : 0;
	if (verbose)
		printf("  one pusher: %u ops, %u vars, deps %u, async %u%%, batch %u%%, delete %u%%, wait %u%%, fail %u%%, bulk %d\n",
		       total, s->nv, deps, async, batch, deletes, waits, fail, s->bulk);
	for (i = 0; i < s->nv; i++)
		s->map[i] = slot_new(p);
	for (i = 0; i < 64; i++) {
		d[i].op.size = sizeof(d[i].op);
	}
	s->devices = 1;
	program_begin(p);
	if (s->bulk)
		GOOD(pawl_bulk_size(p->e, 2 + (int)(rnd(&seed) % 30)) == 0);
	while (p->nops < total) {
		u32 dice = (u32)(rnd(&seed) % 100);
		u32 x = (u32)(rnd(&seed) % s->nv);
		struct slot *v = &p->slot[s->map[x]];

		if (dice < waits) {
			s64 limit = rnd(&seed) % 3 ? -1 : (s64)(rnd(&seed) % 100000);
			int rc = 0;

			if (p->errors) {
				struct event *ev = &s->ev[s->nev];

				quiesce(s);
				memset(&err, 0, sizeof(err));
				*ev = (struct event){ .slot = s->map[x] };
				switch (rnd(&seed) % 5) {
				case 0:
					ev->kind = EV_TAKE_ALL;
					ev->rc = pawl_wait_all(p->e, -1, &err);
					ev->count = err.count;
					break;
				case 1:
					ev->kind = EV_CLEAR;
					GOOD(pawl_var_error(p->e, v->v, &err) <= 0);
					ev->rc = pawl_var_clear(p->e, v->v);
					break;
				case 2:
					ev->kind = EV_TAKE;
					ev->rc = pawl_wait_writable(p->e, v->v, limit, &err);
					break;
				default:
					ev->kind = EV_TAKE;
					ev->rc = pawl_wait_readable(p->e, v->v, limit, &err);
				}
				ev->by = named_op(&err);
				if (ev->kind == EV_TAKE && ev->rc)
					GOOD(err.code == ev->rc);
				s->nev++;
				if (s->nev > 2 * OPS_MAX - 200)
					break;
				continue;
			}
			switch (rnd(&seed) % 8) {
			case 0:
				rc = pawl_wait_all(p->e, limit, &err);
				break;
			case 1:
			case 2:
				rc = pawl_wait_writable(p->e, v->v, limit, NULL);
				/* Ours: nobody else may be at it, and all is there. */
				if (!rc && (v->version != v->pushed || v->readers))
					broken("slot %u is writable at version %llu of %llu", s->map[x],
					       (unsigned long long)v->version,
					       (unsigned long long)v->pushed);
				break;
			case 3:
			case 4:
				rc = pawl_wait_readable(p->e, v->v, limit, NULL);
				if (!rc && v->version != v->pushed)
					broken("slot %u is readable at version %llu of %llu", s->map[x],
					       (unsigned long long)v->version,
					       (unsigned long long)v->pushed);
				break;
			case 5:
				GOOD(pawl_run_one(p->e) >= 0);
				break;
			case 6:
				GOOD(!pawl_bulk_flush(p->e));
				break;
			default:
				if (rnd(&seed) % 4 == 0) {
					GOOD(!pawl_engine_stop(p->e));
					GOOD(!pawl_engine_start(p->e));
				}
			}
			GOOD(rc == 0 || (rc == -ETIMEDOUT && limit >= 0));
			continue;
		}
		if (rnd(&seed) % 100 < deletes && p->nslots < SLOTS_MAX - 1) {
			struct op *o = single_op(s);

			o->p = p;
			o->n = 1;
			o->slot[0] = s->map[x];
			o->write[0] = true;
			o->deletes = true;
			single_note(s, o);
			GOOD(!pawl_var_delete(p->e, v->v, delete_body, o));
			v->dead = true;
			GOOD(push_write(p->e, nothing, NULL, v->v) == -ESTALE);
			for (k = 0; k < nopers; k++)
				for (i = 0; i < oper[k].proto.n; i++)
					oper[k].dead |= oper[k].proto.slot[i] == s->map[x];
			s->map[x] = slot_new(p);
			continue;
		}
		if (rnd(&seed) % 100 < 4 && nopers < 8) {
			struct oper *q = &oper[nopers];

			op_make(p, &q->proto, d, s->map, s->nv, deps, &seed);
			for (i = 0, k = 0; i < q->proto.n; i++)
				k += q->proto.write[i];
			if (k && (!p->errors || rnd(&seed) % 2)) {
				d->op.fn = oper_body;
				d->op.arg = &q->runs;
				d->op.release = NULL;
				q->proto.no_skip = p->errors;
				d->op.prop = p->errors ? PAWL_NO_SKIP : random_prop(&seed);
				GOOD(!pawl_oper_create(p->e, &d->op, &q->o));
				nopers++;
			}
			continue;
		}
		if (nopers && rnd(&seed) % 100 < 15) {
			struct oper *q = &oper[rnd(&seed) % nopers];
			struct pawl_device dev = { PAWL_CPU, 0 };
			struct op *o;

			if (q->dead) {
				GOOD(pawl_oper_push(p->e, q->o, 0, dev) == -ESTALE);
				continue;
			}
			o = single_op(s);
			k = o->id;
			*o = q->proto;
			o->id = k;
			o->counted = false;
			o->fails = fail && rnd(&seed) % 100 < fail;
			single_note(s, o);
			q->runs.op[q->runs.n] = o;
			store_release(&q->runs.n, q->runs.n + 1);
			GOOD(!pawl_oper_push(p->e, q->o, (int)(rnd(&seed) % 7) - 3, dev));
			continue;
		}
		k = rnd(&seed) % 100 < batch ? (u32)(rnd(&seed) % 40) + 1 : 1;
		for (i = 0; i < k; i++) {
			struct op *o = single_op(s);

			op_make(p, o, &d[i], s->map, s->nv, deps, &seed);
			op_body(o, &d[i], async, !s->bulk, &seed);
			d[i].op.prop = s->bulk && rnd(&seed) % 4 ? PAWL_NORMAL : random_prop(&seed);
			d[i].op.priority = rnd(&seed) % 3 ? 0 : (s32)(rnd(&seed) % 9) - 4;
			if (o->body != NO_BODY)
				o->fails = fail && rnd(&seed) % 100 < fail;
			if (p->errors && rnd(&seed) % 8 == 0) {
				d[i].op.prop = PAWL_NO_SKIP;
				o->no_skip = true;
			}
			single_note(s, o);
		}
		push_ops(s, d, k);
		if (s->bulk && rnd(&seed) % 40 == 0) {
			bulk_size = (u32)(rnd(&seed) % 30);
			GOOD(pawl_bulk_size(p->e, (int)bulk_size) >= 0);
		}
	}
	quiesce(s);
	for (k = 0; k < nopers; k++)
		GOOD(!pawl_oper_delete(p->e, oper[k].o));
	if (p->errors)
		pawl_wait_all(p->e, -1, NULL);
	GOOD(!pawl_wait_all(p->e, -1, NULL));
	/* Oracle B, the rest: everything came by, everybody left. */
	for (i = 0; i < p->nslots; i++) {
		struct slot *v = &p->slot[i];

		if (v->version != v->pushed || v->readers || v->writers)
			broken("slot %u ends at version %llu of %llu", i,
			       (unsigned long long)v->version, (unsigned long long)v->pushed);
		if (!v->dead && !s->bulk && version(p->e, v->v) != v->pushed)
			broken("slot %u: the engine counts %llu versions, not %llu", i,
			       (unsigned long long)version(p->e, v->v),
			       (unsigned long long)v->pushed);
	}
	oracle_a(s);
	program_end(p);
	free(oper);
	free(d);
	free(s);
}

/* --- several pushers: oracle C --- */

struct pusher {
	struct program *p;
	u64 seed;
	u32 first, n;		/* its part of p->op */
	u32 deps, async, batch, nv, waits;
	const u16 *map;
	bool timed;
};

static u64 stamps;		/* A: a clock that all threads share */
static u32 nodes;		/* A */

static void *pusher(void *arg)
{
	struct pusher *u = arg;
	struct program *p = u->p;
	struct desc *d = calloc(24, sizeof(*d));
	struct pawl_op ops[24];
	u32 at = 0, i;

	while (at < u->n) {
		u32 k = rnd(&u->seed) % 100 < u->batch ? (u32)(rnd(&u->seed) % 20) + 1 : 1;
		u32 node = fetch_add_relaxed(&nodes, 1);
		struct op *o;
		u64 begin;

		k = min_u(k, u->n - at);
		o = &p->op[u->first + at];
		for (i = 0; i < k; i++) {
			o[i].id = u->first + at + i;
			op_make(p, &o[i], &d[i], u->map, u->nv, u->deps, &u->seed);
			op_body(&o[i], &d[i], u->async, true, &u->seed);
			d[i].op.prop = random_prop(&u->seed);
			d[i].op.priority = rnd(&u->seed) % 3 ? 0 : (s32)(rnd(&u->seed) % 9) - 4;
			o[i].node = node;
			ops[i] = d[i].op;
		}
		begin = u->timed ? fetch_add_relaxed(&stamps, 1) : 0;
		if (k == 1 && rnd(&u->seed) % 8)
			GOOD(!pawl_push(p->e, ops));
		else
			GOOD(!pawl_push_batch(p->e, ops, k));
		for (i = 0; i < k; i++) {
			/* After the push: bodies look at neither. */
			o[i].begin = begin;
			o[i].end = u->timed ? fetch_add_relaxed(&stamps, 1) : ~0ull;
		}
		at += k;
		if (rnd(&u->seed) % 100 < u->waits) {
			pawl_var_t v = p->slot[u->map[rnd(&u->seed) % u->nv]].v;
			s64 limit = rnd(&u->seed) % 2 ? -1 : (s64)(rnd(&u->seed) % 50000);
			int rc = rnd(&u->seed) % 3 ? pawl_wait_readable(p->e, v, limit, NULL) :
						     pawl_wait_writable(p->e, v, limit, NULL);

			GOOD(rc == 0 || (rc == -ETIMEDOUT && limit >= 0));
		}
	}
	free(d);
	return NULL;
}

struct edge { u32 to, next; };

struct graph {
	u32 n, nedges, cap;
	u32 *head, *indeg;
	u64 *place, *latest;
	struct edge *edge;
};

static void edge_add(struct graph *g, u32 from, u32 to)
{
	if (from == to)
		return;
	if (g->nedges == g->cap) {
		g->cap = g->cap ? 2 * g->cap : 4096;
		g->edge = realloc(g->edge, g->cap * sizeof(*g->edge));
	}
	g->edge[g->nedges] = (struct edge){ to, g->head[from] };
	g->head[from] = ++g->nedges;
	g->indeg[to]++;
}

/* Is there one order of all pushes that explains what the ops saw? */
static void oracle_c(struct program *p, u32 nthreads, const struct pusher *u)
{
	struct graph g = { .n = nodes };
	u32 i, k, s, done = 0, *queue = calloc(g.n + 1, sizeof(*queue)), qn = 0;

	g.head = calloc(g.n, sizeof(*g.head));
	g.indeg = calloc(g.n, sizeof(*g.indeg));
	g.place = calloc(g.n, sizeof(*g.place));
	g.latest = calloc(g.n, sizeof(*g.latest));
	for (i = 0; i < nthreads; i++)
		for (k = 0; k < u[i].n; k++) {
			struct op *o = &p->op[u[i].first + k];

			g.place[o->node] = o->begin;
			g.latest[o->node] = o->end;
			if (k)
				edge_add(&g, o[-1].node, o->node);
		}
	for (s = 0; s < p->nslots; s++) {
		u64 top = p->slot[s].version;
		u32 *writer = calloc(top + 2, sizeof(*writer));	/* of version i: op + 1 */

		for (i = 0; i < p->nops; i++)
			for (k = 0; k < p->op[i].n; k++) {
				struct op *o = &p->op[i];

				if (o->slot[k] != s || !o->write[k])
					continue;
				if (o->saw[k] >= top || writer[o->saw[k] + 1])
					broken("two ops make version %llu of slot %u",
					       (unsigned long long)o->saw[k] + 1, s);
				writer[o->saw[k] + 1] = i + 1;
			}
		for (i = 1; i <= top; i++) {
			if (!writer[i])
				broken("nobody made version %u of slot %u", i, s);
			if (i > 1) {
				struct op *a = &p->op[writer[i - 1] - 1], *b = &p->op[writer[i] - 1];

				/* Inside a batch: the order of the batch. */
				if (a->node == b->node && a->id > b->id)
					broken("ops %u and %u of one batch: wrong order", b->id, a->id);
				edge_add(&g, a->node, b->node);
			}
		}
		for (i = 0; i < p->nops; i++)
			for (k = 0; k < p->op[i].n; k++) {
				struct op *o = &p->op[i];
				u64 x = o->saw[k];

				if (o->slot[k] != s || o->write[k])
					continue;
				GOOD(x <= top);
				if (x) {
					struct op *w = &p->op[writer[x] - 1];

					if (w->node == o->node && w->id > o->id)
						broken("op %u reads what op %u of its batch will write", o->id, w->id);
					edge_add(&g, w->node, o->node);
				}
				if (x < top) {
					struct op *w = &p->op[writer[x + 1] - 1];

					if (w->node == o->node && w->id < o->id)
						broken("op %u does not read what op %u of its batch wrote", o->id, w->id);
					edge_add(&g, o->node, w->node);
				}
			}
		free(writer);
	}
	for (i = 0; i < g.n; i++)
		if (!g.indeg[i])
			queue[qn++] = i;
	while (done < qn) {
		u32 x = queue[done++], e;

		if (g.place[x] > g.latest[x])
			broken("push %u was over before another that must be in front of it began", x);
		for (e = g.head[x]; e; e = g.edge[e - 1].next) {
			u32 to = g.edge[e - 1].to;

			if (g.place[to] < g.place[x])
				g.place[to] = g.place[x];
			if (!--g.indeg[to])
				queue[qn++] = to;
		}
	}
	if (done != g.n)
		broken("no serial order: %u of %u pushes are in a cycle", g.n - done, g.n);
	free(queue);
	free(g.head);
	free(g.indeg);
	free(g.place);
	free(g.latest);
	free(g.edge);
}

static void several(u64 program)
{
	struct program *p = calloc(1, sizeof(*p));
	struct pusher u[THREADS_MAX];
	u32 n = 2 + (u32)(program % 3), nv, each, i;
	u64 seed = program, writes = 0, seen = 0;
	pthread_t t[THREADS_MAX];
	u16 map[VARS_MAX];

	p->seed = program;
	p->multi = true;
	p->slot = calloc(VARS_MAX, sizeof(*p->slot));
	p->op = calloc(OPS_MAX + 100, sizeof(*p->op));
	engine_make(p, &seed, true);
	memset(u, 0, sizeof(u));
	nv = 1 + (u32)(rnd(&seed) % (rnd(&seed) % 2 ? 5 : VARS_MAX));
	each = 30 + (u32)(rnd(&seed) % (OPS_MAX / THREADS_MAX - 30));
	for (i = 0; i < nv; i++)
		map[i] = slot_new(p);
	u[0].deps = 1 + (u32)(rnd(&seed) % DEPS_MAX);
	u[0].async = rnd(&seed) % 2 ? 0 : (u32)(rnd(&seed) % 60);
	u[0].batch = rnd(&seed) % 2 ? 0 : (u32)(rnd(&seed) % 50);
	u[0].waits = (u32)(rnd(&seed) % 10);
	u[0].timed = rnd(&seed) % 2;
	u[0].nv = nv;
	u[0].map = map;
	u[0].p = p;
	p->nops = n * each;
	p->ncompleters = u[0].async ? 1 : 0;
	store_relaxed(&nodes, 0);
	store_relaxed(&stamps, 1);
	if (verbose)
		printf("  %u pushers: %u ops each, %u vars, deps %u, async %u%%, batch %u%%, wait %u%%, timed %d\n",
		       n, each, nv, u[0].deps, u[0].async, u[0].batch, u[0].waits, u[0].timed);
	program_begin(p);
	for (i = 0; i < n; i++) {
		u[i] = u[0];
		u[i].seed = rnd(&seed);
		u[i].first = i * each;
		u[i].n = each;
		/* u[0] is the model of the others until all are made */
	}
	for (i = 0; i < n; i++)
		t[i] = spawn(pusher, &u[i]);
	for (i = 0; i < n; i++)
		join(t[i]);
	GOOD(!pawl_wait_all(p->e, -1, NULL));
	for (i = 0; i < p->nops; i++) {
		u32 k;

		GOOD(p->op[i].ran == (p->op[i].body != NO_BODY));
		GOOD(p->op[i].released == 1);
		GOOD(p->op[i].status == 0);
		for (k = 0; k < p->op[i].n; k++)
			writes += p->op[i].write[k];
	}
	for (i = 0; i < p->nslots; i++) {
		GOOD(!p->slot[i].readers && !p->slot[i].writers);
		GOOD(version(p->e, p->slot[i].v) == p->slot[i].version);
		seen += p->slot[i].version;
	}
	GOOD(writes == seen);
	oracle_c(p, n, u);
	program_end(p);
}

int main(int argc, char **argv)
{
	u64 seed = 1, programs = ~0ull, done, end = 0;
	double seconds = 3;
	int i;

	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--verbose")) {
			verbose = true;
		} else if (i + 1 < argc && !strcmp(argv[i], "--seed")) {
			seed = strtoull(argv[++i], NULL, 0);
		} else if (i + 1 < argc && !strcmp(argv[i], "--programs")) {
			programs = strtoull(argv[++i], NULL, 0);
			seconds = 0;
		} else if (i + 1 < argc && !strcmp(argv[i], "--seconds")) {
			seconds = atof(argv[++i]);
		} else {
			fprintf(stderr, "usage: %s [--seed N] [--programs N] [--seconds S] [--verbose]\n",
				argv[0]);
			return 2;
		}
	}
	stress_start(argv[0], "--programs 1 --verbose");
	if (seconds)
		end = now_ms() + (u64)(seconds * 1000);
	for (done = 0; done < programs && (!end || now_ms() < end); done++) {
		u64 now = seed + done;

		if (verbose)
			printf("program %llu\n", (unsigned long long)now);
		round_begin(now);
		if (mix(now, 7) % 2)
			single(mix(now, 1));
		else
			several(mix(now, 1));
		round_end();
	}
	printf("stress_random: %llu programs from seed %llu\n", (unsigned long long)done,
	       (unsigned long long)seed);
	return 0;
}
