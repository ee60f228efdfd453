// SPDX-License-Identifier: Apache-2.0
/*
 * Linearizability of short histories that real threads made.
 *
 * A history is a few calls of two or three threads, each with its begin, its end and its
 * result.  Its parts:
 *   prioq    prioq_push, pop and peek: there is a serial order of the calls, which keeps
 *            that of each thread and real time, in which each pop and peek gives the
 *            entry that is first by (priority, order)
 *   runq     exec_push and exec_take, works taken one by one: there is such an order in
 *            which each take gives the first of the highest priority by the order of pushes
 *   hoard    the same with batches.  One consumer: as runq.  Several: each work is taken
 *            once, none is hidden from a take that began when it was there
 *   pool     get and put, objects also put by others than got them: for each object, gets
 *            and puts have an order in which they take turns
 *   push     pawl_push and pawl_push_batch over several vars: there is an order of the
 *            pushes that explains what each op found in each var, keeps that of each
 *            thread, and real time
 *
 * The first three by search with a memo (Wing and Gong, made quick as by Lowe), the
 * fourth by the same per object, the last by looking for a cycle.
 *
 * Controls: the same calls with a fault put between, and histories written by hand.  Each
 * must be convicted, or the program fails.
 *
 *	lin_histories [-s SEED] [-n HISTORIES] [-t SECONDS] [PART]...
 *
 * A failure prints the history and the command.  The seed fixes the calls, not how the
 * threads interleave: -n repeats it.
 */
#include "../unit/exec_fixture.h"
#include <pawl/engine.h>

#define THREADS		3u
#define CALLS		26u		/* in a history, with those that empty it */
#define MEMO		8192u

static u64 seed0 = 1, history, cap_n = ~0ull;
static const char *part_now;

static u64 rnd(u64 *s)
{
	u64 x = *s += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

enum kind { PUSH, POP, PEEK, GET, PUT };

struct call {
	u8 thread, kind;
	u32 work;		/* pushed, popped; 0: empty */
	s64 prio;
	u64 order;
	u64 inv, res;		/* of a clock that all share; 0 and ~0: not timed */
};

struct history {
	u32 n;
	bool fifo;		/* order among equals: that of the pushes */
	struct call call[CALLS];
};

static u64 stamps;		/* A */

static u64 stamp(bool timed, u64 not)
{
	return timed ? fetch_add_seq_cst(&stamps, 1) + 1 : not;
}

/* --- the checker --- */

struct search {
	const struct history *h;
	u32 before[CALLS];	/* calls that must come first */
	u32 gen;
	u64 states;
};

static struct { u32 gen, set; u64 seq; } memo[MEMO];
static u32 memo_gen;
static u64 states_total;

static bool memo_has(struct search *s, u32 set, u64 seq)
{
	u64 x = set * 0x9e3779b97f4a7c15ull ^ seq;
	u32 i = (u32)(rnd(&x) % MEMO), k;

	for (k = 0; k < 16; k++, i = (i + 1) % MEMO) {
		if (memo[i].gen != s->gen) {
			memo[i].gen = s->gen;
			memo[i].set = set;
			memo[i].seq = seq;
			return false;
		}
		if (memo[i].set == set && memo[i].seq == seq)
			return true;
	}
	return false;		/* no room: looked at again, which is only slow */
}

/*
 * A take from a run queue looks at one part after the other.  If it finds nothing, some work may
 * have been put in meanwhile, by another thread, where it had looked; but none that was there
 * before.
 */
static bool may_miss(const struct search *s, u64 seq, const struct call *c)
{
	for (; seq; seq >>= 5) {
		const struct call *p = &s->h->call[(seq & 31) - 1];

		if (p->thread == c->thread || p->res < c->inv)
			return false;
	}
	return s->h->fifo;
}

/* seq: what is in the queue, five bits each, oldest first; call + 1. */
static bool first_is(const struct search *s, u64 seq, const struct call *c)
{
	const struct call *best = NULL, *p;

	if (!c->work && may_miss(s, seq, c))
		return true;
	for (; seq; seq >>= 5) {
		p = &s->h->call[(seq & 31) - 1];
		if (!best || p->prio > best->prio ||
		    (!s->h->fifo && p->prio == best->prio && p->order < best->order))
			best = p;
	}
	if (!c->work)
		return !best;
	return best && best->work == c->work && best->prio == c->prio &&
	       (c->kind != PEEK || s->h->fifo || best->order == c->order);
}

static u64 without(const struct search *s, u64 seq, u32 work)
{
	u64 out = 0;
	u32 k = 0;

	for (; seq; seq >>= 5)
		if (s->h->call[(seq & 31) - 1].work != work)
			out |= (seq & 31) << 5 * k++;
	return out;
}

static u64 with(u64 seq, u32 call)
{
	u32 k = 0;

	while (seq >> 5 * k)
		k++;
	return seq | (u64)(call + 1) << 5 * k;
}

static bool search(struct search *s, u32 set, u64 seq)
{
	u32 i;

	if (set == (1u << s->h->n) - 1)
		return true;
	if (memo_has(s, set, seq))
		return false;
	s->states++;
	for (i = 0; i < s->h->n; i++) {
		const struct call *c = &s->h->call[i];
		u64 next = seq;

		if (set >> i & 1 || s->before[i] & ~set)
			continue;
		if (c->kind == PUSH)
			next = with(seq, i);
		else if (!first_is(s, seq, c))
			continue;
		else if (c->kind == POP)
			next = without(s, seq, c->work);
		if (search(s, set | 1u << i, next))
			return true;
	}
	return false;
}

static bool linearizable(const struct history *h)
{
	struct search s = { .h = h, .gen = ++memo_gen };
	bool ok;
	u32 i, k;

	for (i = 0; i < h->n; i++)
		for (k = 0; k < h->n; k++)
			if (h->call[k].res < h->call[i].inv ||
			    (k < i && h->call[k].thread == h->call[i].thread))
				s.before[i] |= 1u << k;
	ok = search(&s, 0, 0);
	states_total += s.states;
	return ok;
}

/* Each once; none that was there before a take began, and came out after its end. */
static bool taken_once(const struct history *h)
{
	u32 i, k, t;

	for (i = 0; i < h->n; i++) {
		const struct call *p = &h->call[i], *pop = NULL;

		if (p->kind == POP && p->work) {
			for (k = 0; k < h->n && !(h->call[k].kind == PUSH && h->call[k].work == p->work); k++)
				;
			if (k == h->n || h->call[k].inv > p->res)
				return false;	/* out of nothing */
		}
		if (p->kind != PUSH)
			continue;
		for (k = 0; k < h->n; k++)
			if (h->call[k].kind == POP && h->call[k].work == p->work) {
				if (pop)
					return false;
				pop = &h->call[k];
			}
		if (!pop)
			return false;
		for (t = 0; t < h->n; t++)
			if (h->call[t].kind == POP && !h->call[t].work &&
			    p->res < h->call[t].inv && h->call[t].res < pop->inv)
				return false;
	}
	return true;
}

/* Per object: some order in which gets and puts take turns. */
static bool takes_turns(const struct history *h)
{
	u32 i, k;

	for (i = 0; i < h->n; i++) {
		const struct call *a = &h->call[i];
		u32 puts = 0;

		if (a->kind != GET)
			continue;
		for (k = 0; k < h->n; k++)
			puts += h->call[k].kind == PUT && h->call[k].work == a->work &&
				h->call[k].order == a->order;
		if (puts != 1)
			return false;	/* order: the number of the get, which the put names */
		for (k = 0; k < h->n; k++) {
			const struct call *b = &h->call[k];
			const struct call *pa = NULL, *pb = NULL;
			u32 j;

			if (k == i || b->kind != GET || b->work != a->work)
				continue;
			for (j = 0; j < h->n; j++) {
				if (h->call[j].kind == PUT && h->call[j].order == a->order)
					pa = &h->call[j];
				if (h->call[j].kind == PUT && h->call[j].order == b->order)
					pb = &h->call[j];
			}
			/* One of the two was put, or began to be, before the other was had. */
			if (!pa || !pb || !(pa->inv < b->res || pb->inv < a->res))
				return false;
			if (pa->inv < b->res && pb->inv < a->res)
				return false;
		}
	}
	return true;
}

static void history_print(const struct history *h)
{
	static const char *const names[] = { "push", "pop", "peek", "get", "put" };
	u32 i;

	for (i = 0; i < h->n; i++)
		fprintf(stderr, "  thread %u %s work %u prio %lld order %llu [%llu, %llu]\n",
			h->call[i].thread, names[h->call[i].kind], h->call[i].work,
			(long long)h->call[i].prio, (unsigned long long)h->call[i].order,
			(unsigned long long)h->call[i].inv, (unsigned long long)h->call[i].res);
}

static void convict(const struct history *h, const char *what)
{
	fprintf(stderr, "FAILED: %s: %s\n", part_now, what);
	if (h)
		history_print(h);
	fprintf(stderr, "replay: tests/lin/lin_histories -s %llu -n 100000 %s\n",
		(unsigned long long)(seed0 + history), part_now);
	abort();
}

/* --- threads that make histories --- */

struct maker {
	pthread_t thread;
	u32 id;
	u64 seed;
	u32 n;			/* calls */
	struct call call[CALLS];
	struct exec_thread *t;
	struct prioq_cache pc;
	struct pool_cache oc;
};

static struct maker maker[THREADS];
static struct {
	u32 threads, calls, prios, fault, gen;
	bool timed, peeks, consumes[THREADS];
	u64 works;		/* A: number of the next */
} run;
static u32 round_go, round_in, round_left;	/* A */
static void (*round_fn)(struct maker *m);	/* what each thread does */

static void spin_until(u32 *word, u32 value)
{
	u32 n = 0;

	while (load_acquire(word) != value) {
		cpu_relax();
		if (++n % 64 == 0)
			sched_yield();
	}
}

static void *maker_main(void *arg)
{
	struct maker *m = arg;
	u32 gen = 0;

	for (;;) {
		spin_until(&round_go, ++gen);
		if (!round_fn)
			return NULL;
		if (m->id < run.threads) {
			/* All begin at once, so that they meet. */
			fetch_add_acq_rel(&round_in, 1);
			spin_until(&round_in, run.threads);
			round_fn(m);
		}
		fetch_add_acq_rel(&round_left, 1);
	}
}

static void round_run(void (*fn)(struct maker *))
{
	round_fn = fn;
	store_relaxed(&round_in, 0);
	store_relaxed(&round_left, 0);
	store_release(&round_go, ++run.gen);
	spin_until(&round_left, THREADS);
}

static void makers_start(void)
{
	u32 i;

	run.gen = 0;
	store_relaxed(&round_go, 0);
	for (i = 0; i < THREADS; i++) {
		maker[i].id = i;
		MUST(!pthread_create(&maker[i].thread, NULL, maker_main, &maker[i]));
	}
}

static void makers_stop(void)
{
	u32 i;

	round_fn = NULL;
	store_release(&round_go, ++run.gen);
	for (i = 0; i < THREADS; i++)
		pthread_join(maker[i].thread, NULL);
}

static void round_shape(u64 *seed)
{
	u32 i;

	run.threads = 2 + (u32)(rnd(seed) % (THREADS - 1));
	run.calls = 2 + (u32)(rnd(seed) % (run.threads == 2 ? 5 : 3));
	run.timed = rnd(seed) % 2;
	run.prios = 1 + (u32)(rnd(seed) % 3);
	run.peeks = rnd(seed) % 2;
	store_relaxed(&run.works, 1);
	store_relaxed(&stamps, 0);
	for (i = 0; i < THREADS; i++) {
		maker[i].seed = rnd(seed);
		maker[i].n = 0;
	}
}

static struct call *call_begin(struct maker *m, u8 kind)
{
	struct call *c = &m->call[m->n++];
	u32 wait = (u32)(rnd(&m->seed) % 64);

	memset(c, 0, sizeof(*c));
	c->thread = (u8)m->id;
	c->kind = kind;
	while (wait--)
		cpu_relax();
	c->inv = stamp(run.timed, 0);
	return c;
}

static void call_end(struct call *c)
{
	c->res = stamp(run.timed, ~0ull);
}

/* All calls of all; and where the emptying goes on. */
static void gather(struct history *h, bool fifo)
{
	u32 i, k;

	h->n = 0;
	h->fifo = fifo;
	for (i = 0; i < run.threads; i++)
		for (k = 0; k < maker[i].n; k++)
			h->call[h->n++] = maker[i].call[k];
}

/* By the main thread, after all others: after every call in any order. */
static struct call *main_call(struct history *h, u8 kind)
{
	struct call *c = &h->call[h->n++];
	u32 i;

	MUST(h->n <= CALLS);
	memset(c, 0, sizeof(*c));
	c->thread = THREADS;
	c->kind = kind;
	c->inv = ~0ull - 1;
	c->res = ~0ull;
	for (i = 0; i + 1 < h->n; i++)
		if (h->call[i].thread < THREADS && h->call[i].res == ~0ull)
			h->call[i].res = ~0ull - 2;
	return c;
}

/* --- prioq --- */

static struct { struct arena *arena; struct pool *nodes; struct prioq *q; } pq;

static void pq_step(struct maker *m)
{
	u32 i;

	for (i = 0; i < run.calls; i++) {
		u64 dice = rnd(&m->seed) % 8;
		struct call *c = call_begin(m, dice < 4 ? PUSH : dice < 7 || !run.peeks ? POP : PEEK);
		s64 prio = 0;

		if (c->kind == PUSH) {
			c->work = (u32)fetch_add_relaxed(&run.works, 1);
			c->prio = (s64)(rnd(&m->seed) % run.prios);
			c->order = rnd(&m->seed) >> 40 << 8 | c->work;
			MUST(prioq_push(pq.q, &m->pc, c->prio, c->order, c->work));
		} else if (c->kind == POP) {
			c->work = prioq_pop(pq.q, &m->pc, &prio);
			/* The fault: what is second comes first. */
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

static u32 rq_hidden;		/* A: the fault keeps one back */

static void rq_step(struct maker *m)
{
	u32 i;

	for (i = 0; i < run.calls; i++) {
		struct call *c = call_begin(m, rnd(&m->seed) % 2 && run.consumes[m->id] ? POP : PUSH);

		if (c->kind == PUSH) {
			c->work = (u32)fetch_add_relaxed(&run.works, 1);
			c->prio = (s64)(rnd(&m->seed) % run.prios) - (run.prios > 2);
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
	/* A work says no priority: that of its push. */
	for (i = 0; i < h->n; i++)
		for (k = 0; k < h->n; k++)
			if (h->call[i].kind == POP && h->call[i].work && h->call[k].kind == PUSH &&
			    h->call[k].work == h->call[i].work)
				h->call[i].prio = h->call[k].prio;
	return strict ? linearizable(h) : taken_once(h);
}

static void rq_setup(u64 *seed, bool batches)
{
	u32 i, one = batches && rnd(seed) % 2 ? (u32)(rnd(seed) % run.threads) : ~0u;

	for (i = 0; i < THREADS; i++) {
		run.consumes[i] = one == ~0u || one == i;
		maker[i].t->batch = batches ? 8 : 1;
	}
	/* What one consumer has in its hoard, it takes. */
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
		u32 b = (u32)(rnd(&m->seed) % 4);

		if (had && rnd(&m->seed) % 2) {
			op_put(m, had, order);
			had = 0;
		} else if (!had && rnd(&m->seed) % 8 == 0) {
			/* Its caches go to the depot, where others get it. */
			pool_cache_flush(op.p, &m->oc);
		} else if (!had) {
			struct call *c = call_begin(m, GET);

			c->order = order = fetch_add_relaxed(&op.gets, 1) + 1;
			MUST(pool_get(op.p, &m->oc, &had));
			/* The fault: it is given back, and kept. */
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
			u32 other = load_acquire(&op.box[b]);
			u64 o = other && other != ~0u ? box_order[b] : 0;

			if (o && cas_acq_rel_acquire(&op.box[b], &other, 0))
				op_put(m, other, o);
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

#define PVARS	3u
#define PNODES	16u

struct pnode {
	u32 n;
	u8 var[PVARS];
	bool write[PVARS];
	u32 saw[PVARS];
	u64 inv, res;
	u32 thread;
	bool batch;
};

static struct {
	struct pawl_engine *e;
	pawl_var_t v[PVARS];
	u32 version[PVARS];	/* plain: the engine's to protect */
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
		u64 r = rnd(&m->seed);
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

/* Must a come before b by what they found in var v? */
static bool pu_before(const struct pnode *a, const struct pnode *b)
{
	u32 i, k;

	for (i = 0; i < a->n; i++)
		for (k = 0; k < b->n; k++) {
			if (a->var[i] != b->var[k] || (!a->write[i] && !b->write[k]))
				continue;
			if (a->saw[i] < b->saw[k] || (a->saw[i] == b->saw[k] && b->write[k] && !a->write[i]))
				return true;
		}
	return false;
}

static bool acyclic(const struct pnode *nd, u32 n)
{
	u32 before[PNODES] = { 0 }, out = 0, i, k;
	bool more = true;

	for (i = 0; i < n; i++)
		for (k = 0; k < n; k++)
			if (k != i && (pu_before(&nd[k], &nd[i]) || nd[k].res < nd[i].inv ||
				       (k < i && nd[k].thread == nd[i].thread)))
				before[i] |= 1u << k;
	while (more) {
		more = false;
		for (i = 0; i < n; i++)
			if (!(out >> i & 1) && !(before[i] & ~out)) {
				out |= 1u << i;
				more = true;
			}
	}
	return out == (1u << n) - 1;
}

static void pu_print(void)
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

enum part { P_PRIOQ, P_RUNQ, P_HOARD, P_POOL, P_PUSH, PARTS };
static const char *const part_name[PARTS] = { "prioq", "runq", "hoard", "pool", "push" };

static void part_begin(enum part p)
{
	struct pawl_config c;
	struct pool_desc d = { "thing", 64, 64, NULL, NULL };
	u32 i;

	for (i = 0; i < THREADS; i++) {
		memset(&maker[i].pc, 0, sizeof(maker[i].pc));
		memset(&maker[i].oc, 0, sizeof(maker[i].oc));
		maker[i].pc.seed = i + 1;
	}
	switch (p) {
	case P_PRIOQ:
		MUST(!arena_create("lin", &pq.arena));
		MUST(!prioq_pool_add(pq.arena, 256, THREADS + 1, &pq.nodes));
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

static void part_end(enum part p)
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

static bool part_history(enum part p, struct history *h, u64 seed)
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

/* Until it is convicted; false: it was not. */
static bool control_part(enum part p, u64 *histories)
{
	struct history h;
	bool caught = false;
	u64 i;

	run.fault = 1;
	part_begin(p);
	for (i = 0; i < 200000 && !caught; i++)
		caught = !part_history(p, &h, seed0 + i);
	part_end(p);
	run.fault = 0;
	*histories = i;
	return caught;
}

/* Histories written by hand: bad ones, each beside its good twin. */
static u32 by_hand(void)
{
	static const struct { bool good, fifo; u32 n; struct call c[5]; } t[] = {
		/* two overlapping pushes in either order */
		{ true, true, 4, { { 0, PUSH, 1, 0, 0, 1, 4 }, { 1, PUSH, 2, 0, 0, 2, 3 },
				   { 0, POP, 1, 0, 0, 5, 6 }, { 0, POP, 2, 0, 0, 7, 8 } } },
		{ true, true, 4, { { 0, PUSH, 1, 0, 0, 1, 4 }, { 1, PUSH, 2, 0, 0, 2, 3 },
				   { 0, POP, 2, 0, 0, 5, 6 }, { 0, POP, 1, 0, 0, 7, 8 } } },
		/* one after the other, taken the wrong way round */
		{ false, true, 4, { { 0, PUSH, 1, 0, 0, 1, 2 }, { 1, PUSH, 2, 0, 0, 3, 4 },
				    { 0, POP, 2, 0, 0, 5, 6 }, { 0, POP, 1, 0, 0, 7, 8 } } },
		/* empty while something is in it */
		{ false, true, 3, { { 0, PUSH, 1, 0, 0, 1, 2 }, { 1, POP, 0, 0, 0, 3, 4 },
				    { 0, POP, 1, 0, 0, 5, 6 } } },
		{ true, true, 3, { { 0, PUSH, 1, 0, 0, 1, 4 }, { 1, POP, 0, 0, 0, 2, 3 },
				   { 0, POP, 1, 0, 0, 5, 6 } } },
		/* twice */
		{ false, true, 3, { { 0, PUSH, 1, 0, 0, 1, 2 }, { 1, POP, 1, 0, 0, 3, 4 },
				    { 0, POP, 1, 0, 0, 3, 5 } } },
		/* lower priority first */
		{ false, false, 4, { { 0, PUSH, 1, 1, 9, 1, 2 }, { 1, PUSH, 2, 0, 3, 1, 2 },
				     { 0, POP, 2, 0, 0, 5, 6 }, { 0, POP, 1, 1, 0, 7, 8 } } },
		/* equal priority, later order first */
		{ false, false, 4, { { 0, PUSH, 1, 1, 9, 1, 2 }, { 1, PUSH, 2, 1, 3, 1, 2 },
				     { 0, POP, 1, 1, 0, 5, 6 }, { 0, POP, 2, 1, 0, 7, 8 } } },
		/* a peek between that sees what was taken */
		{ false, false, 4, { { 0, PUSH, 1, 1, 9, 1, 2 }, { 1, POP, 1, 1, 0, 3, 4 },
				     { 0, PEEK, 1, 1, 9, 5, 6 }, { 1, POP, 0, 0, 0, 7, 8 } } },
	};
	/* two pushes over a and b that are in each other's way; and the good twin */
	struct pnode bad[2] = {
		{ 2, { 0, 1 }, { true, true }, { 0, 1 }, 0, ~0ull, 0, false },
		{ 2, { 0, 1 }, { true, true }, { 1, 0 }, 0, ~0ull, 1, false },
	}, good[2] = { bad[0], bad[1] }, late[2] = { bad[0], bad[1] };
	u32 i, n = 0;

	for (i = 0; i < ARRAY_SIZE(t); i++) {
		struct history h = { .n = t[i].n, .fifo = t[i].fifo };

		memcpy(h.call, t[i].c, sizeof(t[i].c));
		if (linearizable(&h) != t[i].good)
			convict(&h, t[i].good ? "a good history is refused" : "a bad history passes");
		n += !t[i].good;
	}
	good[0].saw[1] = 0;
	good[1].saw[1] = 1;
	if (acyclic(bad, 2) || !acyclic(good, 2))
		convict(NULL, "the search for cycles is wrong");
	/* in order, but against real time */
	late[0] = good[0];
	late[1] = good[1];
	late[0].inv = 5;
	late[0].res = 6;
	late[1].inv = 1;
	late[1].res = 2;
	if (acyclic(late, 2))
		convict(NULL, "the search for cycles does not know the time");
	return n + 2;
}

int main(int argc, char **argv)
{
	u64 n[PARTS] = { 0 }, control[PARTS] = { 0 }, end, calls = 0;
	bool want[PARTS] = { 0 }, any = false;
	double seconds = 2;
	struct history h;
	u32 hand, caught = 0;
	int opt, p, i;

	while ((opt = getopt(argc, argv, "s:n:t:")) != -1) {
		if (opt == 's')
			seed0 = strtoull(optarg, NULL, 0);
		else if (opt == 'n')
			cap_n = strtoull(optarg, NULL, 0);
		else if (opt == 't')
			seconds = atof(optarg);
		else
			return 2;
	}
	if (cap_n != ~0ull)
		seconds = 3600;
	for (; optind < argc; optind++)
		for (p = 0; p < PARTS; p++)
			if (!strcmp(argv[optind], part_name[p]))
				want[p] = any = true;
	watchdog(120 + (unsigned int)seconds);
	part_now = "";
	hand = by_hand();
	for (p = 0; p < PARTS; p++) {
		if (any && !want[p])
			continue;
		part_now = part_name[p];
		if (!control_part((enum part)p, &control[p]))
			convict(NULL, "the planted fault was not found");
		caught++;
		part_begin((enum part)p);
		end = exec_now_ns() + (u64)(seconds * 1e9 / (any ? 1 : PARTS));
		for (history = 0; history < cap_n && exec_now_ns() < end; history++) {
			if (!part_history((enum part)p, &h, seed0 + history)) {
				if (p == P_PUSH)
					pu_print();
				convict(&h, "no serial order explains this history");
			}
			for (i = 0; i < (int)run.threads; i++)
				calls += p == P_PUSH ? run.calls : maker[i].n;
		}
		n[p] = history;
		part_end((enum part)p);
	}
	printf("C15");
	for (p = 0; p < PARTS; p++)
		printf(" %s=%llu", part_name[p], (unsigned long long)n[p]);
	printf(" calls=%llu states=%llu controls=%u+%u seed=%llu PASS\n", (unsigned long long)calls,
	       (unsigned long long)states_total, caught, hand, (unsigned long long)seed0);
	return 0;
}
