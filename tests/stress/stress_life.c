// SPDX-License-Identifier: Apache-2.0
/*
 * Threads, vars, graphs and engines are created and destroyed at random, while others push.
 *
 * Any thread may take the handle of a shared var, use it, replace it or delete it, so handles
 * become stale all the time while threads use them.  All results that the header permits are
 * accepted, and checked at the end: an accepted op is released exactly once, a refused one
 * never; a body never runs after the deletion of its var; nothing is in flight, and no object
 * has been lost.
 *
 *	stress_life [--seed N] [--seconds S] [--threads N]
 */
#include "stress.h"
#include <core/thread.h>

#define CELLS		16
#define THREADS_MAX	8

static u32 nthreads = 3;

/*
 * The user's side of a var.  It exists until the process ends, so that late users can read it.
 */
struct thing {
	u64 h;			/* A: handle */
	u32 inside;		/* A: ~0: a writer, else readers */
	u32 deleted;		/* A */
	struct thing *next;	/* of the round */
};

struct round {
	struct pawl_engine *e;
	struct thing *cell[CELLS];	/* A */
	struct thing *all;		/* A: list of all that were created */
	u64 oper[4];			/* A */
	u64 accepted, released;		/* A */
	u64 graphs, graphs_released;	/* A */
	u64 live;			/* A: vars that are not deleted */
	u32 seed;			/* A */
	u32 each;
	u32 completers;			/* A: number of separate threads that complete ops */
	u32 visited;			/* A: there was such a thread */
	bool async, strangers;
};

static struct thing *thing_new(struct round *r)
{
	struct thing *x = calloc(1, sizeof(*x));
	pawl_var_t v;
	int rc = pawl_var_create(r->e, &v);

	MUST(!rc);
	store_release(&x->h, v.h);
	fetch_add_relaxed(&r->live, 1);
	x->next = load_relaxed(&r->all);
	while (!cas_acq_rel_relaxed(&r->all, &x->next, x))
		;
	return x;
}

struct job {
	struct round *r;
	struct thing *read[4], *write[4];
	u32 nr, nw;
	u32 state;		/* A: 0 pushed, 1 ran, 2 released */
	bool refused;
};

static void job_in(struct job *j)
{
	u32 i;

	MUST(!fetch_add_acq_rel(&j->state, 1));
	for (i = 0; i < j->nw; i++) {
		MUST(xchg_acq_rel(&j->write[i]->inside, ~0u) == 0);
		MUST(!load_acquire(&j->write[i]->deleted));
	}
	for (i = 0; i < j->nr; i++) {
		MUST(fetch_add_acq_rel(&j->read[i]->inside, 1) < 10000);
		MUST(!load_acquire(&j->read[i]->deleted));
	}
}

static void job_out(struct job *j)
{
	u32 i;

	for (i = 0; i < j->nw; i++)
		MUST(xchg_acq_rel(&j->write[i]->inside, 0) == ~0u);
	for (i = 0; i < j->nr; i++)
		fetch_add_acq_rel(&j->read[i]->inside, -1u);
}

static int job_body(struct pawl_run *run, void *arg)
{
	struct job *j = arg;

	job_in(j);
	job_out(j);
	return 0;
}

struct late {
	struct job *j;
	pawl_token_t token;
};

static void job_complete(struct late *l)
{
	struct round *r = l->j->r;

	job_out(l->j);
	MUST(!pawl_complete(r->e, l->token, 0, NULL));
	free(l);
}

static void *stranger(void *arg)
{
	struct late *l = arg;
	struct round *r = l->j->r;

	job_complete(l);
	/* From here on the thread only ends, perhaps at the same time as the engine. */
	fetch_add_acq_rel(&r->completers, -1u);
	return NULL;
}

static void job_async(struct pawl_run *run, void *arg)
{
	struct late *l = malloc(sizeof(*l));
	struct job *j = arg;
	pthread_t t;

	*l = (struct late){ j, run->token };
	job_in(j);
	/* Now and then a new thread, which the engine has never seen. */
	if (j->r->strangers && j->nr + j->nw > 2 && j->write[0] && j->write[0]->h % 8 == 7) {
		fetch_add_acq_rel(&j->r->completers, 1);
		store_relaxed(&j->r->visited, 1);
		MUST(!pthread_create(&t, NULL, stranger, l));
		pthread_detach(t);
	} else {
		job_complete(l);
	}
}

static void job_release(void *arg, int status)
{
	struct job *j = arg;
	u32 ran = fetch_add_acq_rel(&j->state, 1);

	MUST(status == 0 ? ran == 1 : status == -ESTALE && ran == 0);
	fetch_add_acq_rel(&j->r->released, 1);
	free(j);
}

static int thing_deleted(struct pawl_run *run, void *arg)
{
	struct thing *x = arg;

	MUST(!load_acquire(&x->inside));
	MUST(!xchg_acq_rel(&x->deleted, 1));
	return 0;
}

/* A random job over the cells, and its op. */
static struct job *job_new(struct round *r, struct pawl_op *op, pawl_var_t *rd, pawl_var_t *wr,
			   u64 *seed)
{
	struct job *j = calloc(1, sizeof(*j));
	u32 i, k, n = (u32)(rnd(seed) % 5);

	j->r = r;
	*op = (struct pawl_op)PAWL_OP_INIT;
	op->arg = j;
	op->release = job_release;
	if (r->async && rnd(seed) % 4 == 0)
		op->async_fn = job_async;
	else
		op->fn = job_body;
	op->prop = rnd(seed) % 4 ? PAWL_NORMAL : rnd(seed) % 2 ? PAWL_ASYNC : PAWL_CPU_PRIORITIZED;
	op->priority = rnd(seed) % 2 ? 0 : (s32)(rnd(seed) % 5) - 2;
	for (i = 0; i < n; i++) {
		struct thing *x = load_acquire(&r->cell[rnd(seed) % CELLS]);
		bool dup = false;

		for (k = 0; k < j->nw; k++)
			dup |= j->write[k] == x;
		for (k = 0; k < j->nr; k++)
			dup |= j->read[k] == x;
		if (!x || dup)
			continue;
		if (rnd(seed) % 2)
			j->write[j->nw++] = x;
		else
			j->read[j->nr++] = x;
	}
	for (i = 0; i < j->nr; i++)
		rd[i].h = load_acquire(&j->read[i]->h);
	for (i = 0; i < j->nw; i++)
		wr[i].h = load_acquire(&j->write[i]->h);
	op->reads = rd;
	op->nreads = j->nr;
	op->writes = wr;
	op->nwrites = j->nw;
	return j;
}

static void graph_gone(void *arg, int status)
{
	struct round *r = arg;

	MUST(!status);
	fetch_add_acq_rel(&r->graphs_released, 1);
}

static void step(struct round *r, u64 *seed)
{
	u32 c = (u32)(rnd(seed) % CELLS), n, i;
	struct thing *x = load_acquire(&r->cell[c]), *fresh;
	struct pawl_op op[4];
	struct job *j[4];
	pawl_var_t rd[4][4], wr[4][4], v = { x ? load_acquire(&x->h) : 0 };
	struct pawl_error err;
	uint64_t ver;
	u64 *o;
	int rc;

	switch (rnd(seed) % 24) {
	case 0:		/* replace the var in the cell, and delete the previous one */
		fresh = thing_new(r);
		x = xchg_acq_rel(&r->cell[c], fresh);
		if (!x)
			break;
		rc = pawl_var_delete(r->e, (pawl_var_t){ load_acquire(&x->h) }, thing_deleted, x);
		MUST(!rc || rc == -ESTALE);
		if (!rc)
			fetch_add_relaxed(&r->live, -1ull);
		break;
	case 1:		/* delete it while other threads use it */
		if (!x)
			break;
		rc = pawl_var_delete(r->e, v, thing_deleted, x);
		MUST(!rc || rc == -ESTALE);
		if (!rc)
			fetch_add_relaxed(&r->live, -1ull);
		break;
	case 2:
		rc = pawl_wait_readable(r->e, v, (s64)(rnd(seed) % 200000), &err);
		MUST(!rc || rc == -ESTALE || rc == -ETIMEDOUT);
		break;
	case 3:
		rc = pawl_wait_writable(r->e, v, (s64)(rnd(seed) % 200000), NULL);
		MUST(!rc || rc == -ESTALE || rc == -ETIMEDOUT);
		break;
	case 4:
		rc = pawl_var_version(r->e, v, &ver);
		MUST(!rc || rc == -ESTALE);
		rc = pawl_var_error(r->e, v, NULL);
		MUST(!rc || rc == -ESTALE);
		rc = pawl_var_clear(r->e, v);
		MUST(!rc || rc == -ESTALE);
		break;
	case 5:
		if (rnd(seed) % 8 == 0)
			rc = pawl_wait_all(r->e, (s64)(rnd(seed) % 300000), NULL);
		else
			rc = 0;
		MUST(!rc || rc == -ETIMEDOUT);
		break;
	case 6:
		MUST(pawl_run_one(r->e) >= 0);
		break;
	case 7:		/* a graph */
		o = &r->oper[rnd(seed) % 4];
		op[0] = op_of_fn(nothing, r);
		op[0].release = graph_gone;
		op[0].reads = &v;
		op[0].nreads = x ? 1 : 0;
		op[0].prop = rnd(seed) % 2 ? PAWL_NORMAL : PAWL_ASYNC;
		{
			pawl_graph_t old, new;

			rc = pawl_graph_create(r->e, &op[0], 1, 0, &new);
			MUST(!rc || rc == -ESTALE);
			if (rc)
				break;
			fetch_add_relaxed(&r->graphs, 1);
			old.h = xchg_acq_rel(o, new.h);
			if (old.h)
				MUST(!pawl_graph_delete(r->e, old));
		}
		break;
	case 8:
	case 9:
		o = &r->oper[rnd(seed) % 4];
		rc = pawl_graph_push(r->e, (pawl_graph_t){ load_acquire(o) },
				     LAUNCH((int)(rnd(seed) % 3) - 1, { 0, 0 }));
		MUST(!rc || rc == -ESTALE);
		break;
	case 10:
	case 11:
	case 12:	/* a batch */
		n = 2 + (u32)(rnd(seed) % 3);
		for (i = 0; i < n; i++)
			j[i] = job_new(r, &op[i], rd[i], wr[i], seed);
		rc = pawl_push_batch(r->e, op, n);
		MUST(!rc || rc == -ESTALE);
		if (!rc)
			fetch_add_acq_rel(&r->accepted, n);
		else
			for (i = 0; i < n; i++)
				free(j[i]);
		break;
	default:
		j[0] = job_new(r, &op[0], rd[0], wr[0], seed);
		rc = pawl_push(r->e, &op[0]);
		MUST(!rc || rc == -ESTALE);
		if (!rc)
			fetch_add_acq_rel(&r->accepted, 1);
		else
			free(j[0]);
	}
}

static void *user(void *arg)
{
	struct round *r = arg;
	u64 seed = fetch_add_relaxed(&r->seed, 1);
	u32 i;

	for (i = 0; i < r->each; i++)
		step(r, &seed);
	return NULL;
}

/* Threads that make few calls and end. */
static void *visitor(void *arg)
{
	struct round *r = arg;
	u64 seed = fetch_add_relaxed(&r->seed, 1);
	u32 i, n = (u32)(rnd(&seed) % 8);

	for (i = 0; i < n; i++)
		step(r, &seed);
	return NULL;
}

static void *host(void *arg)
{
	struct round *r = arg;
	u64 seed = fetch_add_relaxed(&r->seed, 1);
	u32 i;

	for (i = 0; i < r->each / 32; i++) {
		pthread_t t = spawn(visitor, r);

		step(r, &seed);
		join(t);
	}
	return NULL;
}

/* With all caches flushed, every object is in its pool, except those in use. */
static void check_pools(struct round *r)
{
	struct pawl_engine *e = r->e;
	u32 used = slots_used(e), i, k;

	for (i = 0; i < used; i++)
		for (k = 0; k < POOLS; k++)
			pool_cache_flush(e->pool[k], &thread_of(e, i)->cache[k]);
	MUST(pool_depot_count(e->pool[POOL_OP]) == pool_carved(e->pool[POOL_OP]));
	MUST(pool_depot_count(e->pool[POOL_VAR]) + r->live == pool_carved(e->pool[POOL_VAR]));
	MUST(pool_depot_count(e->pool[POOL_BLOCK]) + r->live == pool_carved(e->pool[POOL_BLOCK]));
}

static u64 run_round(u64 seed)
{
	struct pawl_config c = small((int)(rnd(&seed) % 3), (int)(rnd(&seed) % 4));
	struct round r = { .each = 200 + (u32)(rnd(&seed) % 2000), .seed = (u32)rnd(&seed) };
	pthread_t t[THREADS_MAX + 1];
	bool leave = rnd(&seed) % 4 == 0;
	struct thing *x, *next;
	u64 n;
	u32 i;

	if (rnd(&seed) % 3 == 0) {
		c.window = 8 + (u32)(rnd(&seed) % 100);
		c.window_policy = PAWL_WINDOW_BLOCK;
	}
	if (rnd(&seed) % 3 == 0)
		c.spin_ns = 0;
	r.async = c.kind != PAWL_NAIVE || rnd(&seed) % 2;
	/* Destroy must not run beside a call, so no other thread may complete ops. */
	r.strangers = !leave;
	r.e = engine_with(&c);
	for (i = 0; i < CELLS; i++)
		r.cell[i] = rnd(&seed) % 4 ? thing_new(&r) : NULL;
	for (i = 0; i < nthreads; i++)
		t[i] = spawn(user, &r);
	t[i] = spawn(host, &r);
	for (i = 0; i <= nthreads; i++)
		join(t[i]);
	/* Either destroy finds the engine as it is, or everything is checked first. */
	if (leave) {
		for (i = 0; i < 4; i++)
			if (r.oper[i])
				MUST(!pawl_graph_delete(r.e, (pawl_graph_t){ r.oper[i] }));
	} else {
		OK(pawl_wait_all(r.e, -1, NULL));
		MUST(r.accepted == r.released);
		for (i = 0; i < 4; i++)
			if (r.oper[i])
				MUST(!pawl_graph_delete(r.e, (pawl_graph_t){ r.oper[i] }));
		OK(pawl_engine_stop(r.e));
		OK(pawl_wait_all(r.e, -1, NULL));
		MUST(r.graphs == r.graphs_released);
		MUST(soon(!load_acquire(&r.completers)));
		/* They may still be leaving, and hold objects in their caches. */
		if (!r.visited)
			check_pools(&r);
	}
	OK(pawl_engine_destroy(r.e));
	MUST(r.accepted == r.released);
	MUST(r.graphs == r.graphs_released);
	n = r.accepted;
	for (x = r.all; x; x = next) {
		next = x->next;
		MUST(!x->inside);
		free(x);
	}
	return n;
}

int main(int argc, char **argv)
{
	const struct stress_option options[] = {
		{ "--threads", &nthreads, 1, THREADS_MAX },
		{ 0 },
	};

	return stress_main(argc, argv, options, run_round);
}
