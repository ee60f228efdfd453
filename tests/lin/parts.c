// SPDX-License-Identifier: Apache-2.0
/* The parts: which calls the threads make, on which object. */
#include "lin.h"

/* --- prioq --- */

static struct { struct arena *arena; struct pool *nodes; struct prioq *q; } pq;

static void pq_step(struct maker *m)
{
	u32 i;

	for (i = 0; i < run.calls; i++) {
		u64 dice = random_next(&m->seed) % 8;
		struct call *c = call_begin(m, dice < 4 ? PUSH : dice < 7 || !run.peeks ? POP : PEEK);
		s64 prio = 0;

		if (c->kind == PUSH) {
			c->work = (u32)fetch_add_relaxed(&run.works, 1);
			c->prio = (s64)(random_next(&m->seed) % run.prios);
			c->order = random_next(&m->seed) >> 40 << 8 | c->work;
			MUST(prioq_push(pq.q, &m->pc, c->prio, c->order, c->work));
		} else if (c->kind == POP) {
			c->work = prioq_pop(pq.q, &m->pc, &prio);
			/* The fault: the second entry is returned first. */
			if (run.fault && c->work) {
				s64 prio2;
				u32 second = prioq_pop(pq.q, &m->pc, &prio2);

				if (second) {
					MUST(prioq_push(pq.q, &m->pc, prio, c->work, c->work));
					c->work = second;
					prio = prio2;
				}
			}
			c->prio = c->work ? prio : 0;
		} else {
			/* peek names no work: the order does */
			if (prioq_peek(pq.q, &c->prio, &c->order))
				c->work = (u32)(c->order & 0xff);
		}
		call_end(c);
	}
}

static bool pq_history(struct history *h)
{
	struct call *c;

	round_run(pq_step);
	gather(h, false);
	do {
		c = main_call(h, POP);
		c->work = prioq_pop(pq.q, &maker[0].pc, &c->prio);
		if (!c->work)
			c->prio = 0;
	} while (c->work);
	return linearizable(h);
}

/* --- the run queue --- */

static struct { struct fix f; struct exec_queue *q; u32 drainer; } rq;

static void rq_nothing(struct fix *f, struct exec_thread *t, u32 work)
{
}

static u32 rq_hidden;		/* A: the work that the fault withholds */

static void rq_step(struct maker *m)
{
	u32 i;

	for (i = 0; i < run.calls; i++) {
		struct call *c = call_begin(m, random_next(&m->seed) % 2 && run.consumes[m->id] ? POP : PUSH);

		if (c->kind == PUSH) {
			c->work = (u32)fetch_add_relaxed(&run.works, 1);
			c->prio = (s64)(random_next(&m->seed) % run.prios) - (run.prios > 2);
			exec_push(rq.q, m->t, c->work, (s32)c->prio, 0);
		} else {
			c->work = exec_take(rq.f.x, m->t);
			if (run.fault && c->work && !load_relaxed(&rq_hidden)) {
				(void)xchg_acq_rel(&rq_hidden, c->work);
				c->work = exec_take(rq.f.x, m->t);
			}
		}
		call_end(c);
	}
}

static bool rq_history(struct history *h, bool strict)
{
	struct call *c;
	u32 i, k;

	round_run(rq_step);
	gather(h, true);
	do {
		u32 kept = xchg_acq_rel(&rq_hidden, 0);

		c = main_call(h, POP);
		c->work = kept ? kept : exec_take(rq.f.x, maker[rq.drainer].t);
	} while (c->work);
	/* A work does not contain its priority; use that of its push. */
	for (i = 0; i < h->n; i++)
		for (k = 0; k < h->n; k++)
			if (h->call[i].kind == POP && h->call[i].work &&
			    h->call[k].kind == PUSH && h->call[k].work == h->call[i].work)
				h->call[i].prio = h->call[k].prio;
	return strict ? linearizable(h) : taken_once(h);
}

static void rq_setup(u64 *seed, bool batches)
{
	u32 i, one = batches && random_next(seed) % 2 ? (u32)(random_next(seed) % run.threads) : ~0u;

	for (i = 0; i < THREADS; i++) {
		run.consumes[i] = one == ~0u || one == i;
		maker[i].t->batch = batches ? 8 : 1;
	}
	/* A consumer takes what it has in its hoard. */
	rq.drainer = one == ~0u ? 0 : one;
	if (batches)
		run.prios = 1;
}

/* --- pools --- */

static struct { struct arena *arena; struct pool *p; u32 box[4]; u64 gets; } op;

static u64 box_order[4];

static void op_put(struct maker *m, u32 idx, u64 order)
{
	struct call *c = call_begin(m, PUT);

	c->work = idx;
	c->order = order;
	pool_put(op.p, &m->oc, idx);
	call_end(c);
}

static void op_step(struct maker *m)
{
	u32 i, had = 0;
	u64 order = 0;

	for (i = 0; i < run.calls; i++) {
		u32 b = (u32)(random_next(&m->seed) % 4);

		if (had && random_next(&m->seed) % 2) {
			op_put(m, had, order);
			had = 0;
		} else if (!had && random_next(&m->seed) % 8 == 0) {
			/*
			 * Flush the caches to the depot, from which other threads get the
			 * objects.
			 */
			pool_cache_flush(op.p, &m->oc);
		} else if (!had) {
			struct call *c = call_begin(m, GET);

			c->order = order = fetch_add_relaxed(&op.gets, 1) + 1;
			MUST(pool_get(op.p, &m->oc, &had));
			/* The fault: the object is freed, and still used. */
			if (run.fault && b == 0)
				pool_put(op.p, &m->oc, had);
			c->work = had;
			call_end(c);
		} else if (!load_relaxed(&op.box[b])) {
			u32 none = 0;

			if (cas_acq_rel_acquire(&op.box[b], &none, ~0u)) {
				box_order[b] = order;
				(void)xchg_acq_rel(&op.box[b], had);
				had = 0;
			}
		} else {
			u32 other = load_relaxed(&op.box[b]);
			u64 o;

			/* No other thread touches the box while it is marked. */
			if (other && other != ~0u &&
			    cas_acq_rel_acquire(&op.box[b], &other, ~0u)) {
				o = box_order[b];
				(void)xchg_acq_rel(&op.box[b], 0);
				op_put(m, other, o);
			}
		}
	}
	if (had)
		op_put(m, had, order);
	pool_cache_flush(op.p, &m->oc);
}

static bool op_history(struct history *h)
{
	u32 i, carved;

	store_relaxed(&op.gets, 0);
	round_run(op_step);
	gather(h, false);
	for (i = 0; i < 4; i++) {
		u32 idx = op.box[i];

		if (!idx)
			continue;
		struct call *c = main_call(h, PUT);

		c->work = idx;
		c->order = box_order[i];
		pool_put(op.p, &maker[0].oc, idx);
		op.box[i] = 0;
	}
	pool_cache_flush(op.p, &maker[0].oc);
	carved = pool_carved(op.p);
	if (!run.fault && pool_depot_count(op.p) != carved)
		convict(h, "an object is lost");
	return takes_turns(h);
}

/* --- pushes over several vars --- */

static struct {
	struct pawl_engine *e;
	pawl_var_t v[PVARS];
	u32 version[PVARS];	/* plain: the engine must protect it */
	u32 nnodes;		/* A */
	struct pnode node[PNODES];
} pu;

struct parg { struct pnode *nd; u32 part; };
static struct parg parg[PNODES][2];

/* part: 0 all of the node's vars; 1 the first, 2 the others (a push in two steps) */
static bool in_part(u32 part, u32 i)
{
	return !part || (part == 1) == !i;
}

static int pu_body(struct pawl_run *r, void *arg)
{
	struct parg *a = arg;
	u32 i;

	for (i = 0; i < a->nd->n; i++) {
		u32 v = a->nd->var[i];

		if (!in_part(a->part, i))
			continue;
		a->nd->saw[i] = pu.version[v];
		pu.version[v] += a->nd->write[i];
	}
	return 0;
}

static void pu_op(struct pawl_op *o, pawl_var_t v[2][PVARS], struct pnode *nd, struct parg *a)
{
	u32 i;

	memset(o, 0, sizeof(*o));
	o->size = sizeof(*o);
	o->fn = pu_body;
	o->arg = a;
	o->reads = v[0];
	o->writes = v[1];
	for (i = 0; i < nd->n; i++) {
		if (!in_part(a->part, i))
			continue;
		if (nd->write[i])
			v[1][o->nwrites++] = pu.v[nd->var[i]];
		else
			v[0][o->nreads++] = pu.v[nd->var[i]];
	}
}

static void pu_step(struct maker *m)
{
	u32 i, k, ni;

	for (i = 0; i < run.calls; i++) {
		u64 r = random_next(&m->seed);
		struct pnode *nd;
		struct pawl_op o[2];
		pawl_var_t v[2][2][PVARS];

		ni = fetch_add_relaxed(&pu.nnodes, 1);
		if (ni >= PNODES)
			return;
		nd = &pu.node[ni];
		memset(nd, 0, sizeof(*nd));
		nd->thread = m->id;
		nd->n = 1 + (u32)(r % PVARS);
		for (k = 0; k < nd->n; k++) {
			nd->var[k] = (u8)((r / 16 + k) % PVARS);
			nd->write[k] = r >> (8 + k) & 3;
		}
		nd->batch = nd->n > 1 && r >> 20 & 1;
		for (k = (u32)(r >> 32) % 64; k--; )
			cpu_relax();
		if (run.fault || nd->batch) {
			/* As a batch this is one step; the fault makes it two pushes. */
			parg[ni][0] = (struct parg){ nd, 1 };
			parg[ni][1] = (struct parg){ nd, 2 };
			pu_op(&o[0], v[0], nd, &parg[ni][0]);
			pu_op(&o[1], v[1], nd, &parg[ni][1]);
		} else {
			parg[ni][0] = (struct parg){ nd, 0 };
			pu_op(&o[0], v[0], nd, &parg[ni][0]);
		}
		nd->inv = stamp(run.timed, 0);
		if (run.fault) {
			MUST(!pawl_push(pu.e, &o[0]));
			/* The other thread gets between, also where both have one CPU. */
			if (r >> 24 & 1)
				sched_yield();
			if (nd->n > 1)
				MUST(!pawl_push(pu.e, &o[1]));
		} else if (nd->batch) {
			MUST(!pawl_push_batch(pu.e, o, 2));
		} else {
			MUST(!pawl_push(pu.e, &o[0]));
		}
		nd->res = stamp(run.timed, ~0ull);
	}
}

void pu_print(void)
{
	u32 i, k;

	for (i = 0; i < pu.nnodes; i++) {
		struct pnode *nd = &pu.node[i];

		fprintf(stderr, "  thread %u push%s", nd->thread, nd->batch ? " batch" : "");
		for (k = 0; k < nd->n; k++)
			fprintf(stderr, " %s v%u at %u", nd->write[k] ? "write" : "read", nd->var[k],
				nd->saw[k]);
		fprintf(stderr, " [%llu, %llu]\n", (unsigned long long)nd->inv,
			(unsigned long long)nd->res);
	}
}

static bool pu_history(struct history *h)
{
	u32 i, n = 0;

	memset(pu.version, 0, sizeof(pu.version));
	for (i = 0; i < PVARS; i++)
		MUST(!pawl_var_create(pu.e, &pu.v[i]));
	store_relaxed(&pu.nnodes, 0);
	round_run(pu_step);
	if (pu.nnodes > PNODES)
		pu.nnodes = PNODES;
	for (i = 0; i < PVARS; i++)
		MUST(!pawl_var_delete(pu.e, pu.v[i], NULL, NULL));
	while (pawl_run_one(pu.e) == 1)
		n++;
	MUST(n >= pu.nnodes);
	h->n = 0;
	return acyclic(pu.node, pu.nnodes);
}

/* --- all parts --- */

const char *const part_name[PARTS] = { "prioq", "runq", "hoard", "pool", "push" };

void part_begin(enum part p)
{
	struct pawl_config c;
	struct pool_desc d = { .name = "thing", .size = 64, .max = 64 };
	u32 i;

	for (i = 0; i < THREADS; i++) {
		memset(&maker[i].pc, 0, sizeof(maker[i].pc));
		memset(&maker[i].oc, 0, sizeof(maker[i].oc));
		maker[i].pc.seed = i + 1;
	}
	switch (p) {
	case P_PRIOQ:
		MUST(!arena_create("lin", &pq.arena));
		MUST(!prioq_pool_add(pq.arena, 256, THREADS + 1, POOL_MAG, &pq.nodes));
		MUST(!arena_ready(pq.arena, false));
		MUST(!prioq_create(pq.nodes, &pq.q));
		break;
	case P_RUNQ:
	case P_HOARD:
		fix_init(&rq.f, &(struct fix_opt){ .spin_ns = 1000, .max_work = 4096 });
		rq.f.run = rq_nothing;
		rq.q = fix_queue(&rq.f, "q", 0, true);
		for (i = 0; i < THREADS; i++)
			maker[i].t = fix_thread(&rq.f);
		break;
	case P_POOL:
		MUST(!arena_create("lin", &op.arena));
		MUST(!arena_add(op.arena, &d, &op.p));
		MUST(!arena_ready(op.arena, false));
		break;
	default:
		pawl_config_init(&c);
		c.workers = 0;
		c.max_ops = 4096;
		c.max_vars = 4096;
		c.max_threads = 16;
		MUST(!pawl_engine_create(&c, &pu.e));
	}
	makers_start();
}

void part_end(enum part p)
{
	makers_stop();
	switch (p) {
	case P_PRIOQ:
		prioq_destroy(pq.q);
		arena_destroy(pq.arena);
		break;
	case P_RUNQ:
	case P_HOARD:
		fix_fini(&rq.f);
		break;
	case P_POOL:
		arena_destroy(op.arena);
		break;
	default:
		MUST(!pawl_engine_destroy(pu.e));
	}
}

bool part_history(enum part p, struct history *h, u64 seed)
{
	bool one;
	u32 i, n;

	round_shape(&seed);
	switch (p) {
	case P_PRIOQ:
		return pq_history(h);
	case P_RUNQ:
		rq_setup(&seed, false);
		return rq_history(h, true);
	case P_HOARD:
		rq_setup(&seed, true);
		for (i = 0, n = 0; i < run.threads; i++)
			n += run.consumes[i];
		one = n == 1;
		return rq_history(h, one);
	case P_POOL:
		run.calls += 2;
		run.timed = true;	/* an object has no other trace of its order */
		return op_history(h);
	default:
		return pu_history(h);
	}
}
