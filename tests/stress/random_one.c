// SPDX-License-Identifier: Apache-2.0
/* Programs of one pusher: oracles A and B. */
#include "random.h"

enum event_kind { EV_OP, EV_TAKE, EV_TAKE_ALL, EV_CLEAR };

struct event {
	enum event_kind kind;
	u32 op;			/* EV_OP */
	u32 slot;		/* EV_TAKE, EV_CLEAR */
	int rc;			/* the result of the engine */
	u32 count;		/* of a wait for all */
	u32 by;			/* op that the message names, or ~0 */
	bool one_push;		/* EV_OP: in one batch with the previous one */
};

struct single {
	struct program *p;
	struct event ev[2 * OPS_MAX];
	u32 nev;
	u16 map[VARS_MAX];	/* slots alive */
	u32 nv;
	u32 devices;
};

/*
 * Oracle A.  It knows neither versions nor threads nor the engine; it has the data, and for
 * each slot the error that poisons it.
 */
struct oracle_a {
	u64 data[SLOTS_MAX];
	u32 err[SLOTS_MAX];	/* op that failed + 1, or 0 */
	bool gone[OPS_MAX];	/* its error was returned or cleared */
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

	/*
	 * Return the error that the op inherits: that of the var with the lowest index among
	 * its reads, then among its writes.
	 */
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
				broken("event %u: a wait on slot %u gave %d", i, ev->slot,
				       ev->rc);
			if (ev->rc && ev->by != err - 1)
				broken("event %u: error of op %u, expected op %u", i, ev->by, err - 1);
			if (err)
				a->gone[err - 1] = true;
			break;
		case EV_TAKE_ALL:
			/*
			 * Ops ran in parallel, so the first one in time may be any that is not
			 * cleared.
			 */
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
			if (err &&
			    (ev->by >= p->nops || !p->op[ev->by].fails || a->gone[ev->by]))
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

/* The op is pushed at this position: compute what it must find. */
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

static int delete_body(struct pawl_run *run, void *arg)
{
	struct op *o = arg;

	once(o);
	enter(o);
	work(o);
	leave(o);
	return 0;
}

/* Everything that was pushed is complete, and no error was taken. */
static void quiesce(struct single *s)
{
	struct program *p = s->p;
	struct pawl_stats st = { .size = sizeof(st) };

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

/* Runs of a graph are in the order of their pushes, because it has a write. */
static int graph_body(struct pawl_run *run, void *arg)
{
	struct run_list *l = arg;
	u32 i = fetch_add_acq_rel(&l->next, 1);

	GOOD(i < load_acquire(&l->n));
	return sync_body(run, l->op[i]);
}

struct graph_ops {
	pawl_graph_t o;
	struct run_list runs;
	struct op proto;
	bool dead;
};

/*
 * One op in eight is pushed as a graph, which is deleted at once.  It has no release, which
 * would be the graph's, so it must run.
 */
static bool push_graph(struct single *s, struct desc *d)
{
	struct op *o = d->op.arg;
	pawl_graph_t g;

	/* A graph keeps no copy of an argument. */
	if (d->op.flags & PAWL_OP_ARG)
		return false;
	if (mix(s->p->seed, o->id) % 8 || o->body != SYNC || (s->p->errors && !o->no_skip))
		return false;
	o->counted = false;
	d->op.release = NULL;
	GOOD(!pawl_graph_create(s->p->e, &d->op, 1, PAWL_GRAPH_CAPTURE, &g));
	GOOD(!pawl_graph_push(s->p->e, g, NULL));
	GOOD(!pawl_graph_delete(s->p->e, g));
	return true;
}

static void push_ops(struct single *s, struct desc *d, u32 n)
{
	struct program *p = s->p;
	struct pawl_op ops[64];
	u32 i;

	if (n == 1) {
		if (!push_graph(s, d))
			GOOD(!pawl_push(p->e, &d->op));
		return;
	}
	for (i = 0; i < n; i++)
		ops[i] = d[i].op;
	GOOD(!pawl_push_batch(p->e, ops, n));
}

void single(u64 program)
{
	struct single *s = calloc(1, sizeof(*s));
	struct program *p = calloc(1, sizeof(*p));
	struct desc *d = calloc(64, sizeof(*d));
	struct graph_ops *oper = calloc(8, sizeof(*oper));
	u64 seed = program;
	u32 deps, async, batch, deletes, waits, total, nopers = 0, i, k, fail;
	struct pawl_error err;

	s->p = p;
	p->seed = program;
	p->slot = calloc(SLOTS_MAX, sizeof(*p->slot));
	p->op = calloc(OPS_MAX + 100, sizeof(*p->op));
	engine_make(p, &seed, false);
	p->errors = rnd(&seed) % 3 == 0;
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
		printf("  one pusher: %u ops, %u vars, deps %u, async %u%%, batch %u%%, delete %u%%, wait %u%%, fail %u%%\n",
		       total, s->nv, deps, async, batch, deletes, waits, fail);
	for (i = 0; i < s->nv; i++)
		s->map[i] = slot_new(p);
	for (i = 0; i < 64; i++) {
		d[i].op.size = sizeof(d[i].op);
	}
	s->devices = 1;
	program_begin(p);
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
				/* Ours: no other thread may access it, and it is complete. */
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
			struct graph_ops *q = &oper[nopers];

			op_make(p, &q->proto, d, s->map, s->nv, deps, &seed);
			for (i = 0, k = 0; i < q->proto.n; i++)
				k += q->proto.write[i];
			if (k && (!p->errors || rnd(&seed) % 2)) {
				d->op.fn = graph_body;
				d->op.arg = &q->runs;
				d->op.release = NULL;
				q->proto.no_skip = p->errors;
				d->op.prop = p->errors ? PAWL_NO_SKIP : random_prop(&seed);
				GOOD(!pawl_graph_create(p->e, &d->op, 1, 0, &q->o));
				nopers++;
			}
			continue;
		}
		if (nopers && rnd(&seed) % 100 < 15) {
			struct graph_ops *q = &oper[rnd(&seed) % nopers];
			struct pawl_device dev = { PAWL_CPU, 0 };
			struct op *o;

			if (q->dead) {
				GOOD(pawl_graph_push(p->e, q->o, LAUNCH(0, dev)) == -ESTALE);
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
			GOOD(!pawl_graph_push(p->e, q->o,
					      LAUNCH((int)(rnd(&seed) % 7) - 3, dev)));
			continue;
		}
		k = rnd(&seed) % 100 < batch ? (u32)(rnd(&seed) % 40) + 1 : 1;
		for (i = 0; i < k; i++) {
			struct op *o = single_op(s);

			op_make(p, o, &d[i], s->map, s->nv, deps, &seed);
			op_body(o, &d[i], async, &seed);
			d[i].op.prop = random_prop(&seed);
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
	}
	quiesce(s);
	for (k = 0; k < nopers; k++)
		GOOD(!pawl_graph_delete(p->e, oper[k].o));
	if (p->errors)
		pawl_wait_all(p->e, -1, NULL);
	GOOD(!pawl_wait_all(p->e, -1, NULL));
	/* The rest of oracle B: all writes ran, and no op holds a slot. */
	for (i = 0; i < p->nslots; i++) {
		struct slot *v = &p->slot[i];

		if (v->version != v->pushed || v->readers || v->writers)
			broken("slot %u ends at version %llu of %llu", i,
			       (unsigned long long)v->version, (unsigned long long)v->pushed);
		if (!v->dead && version(p->e, v->v) != v->pushed)
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
