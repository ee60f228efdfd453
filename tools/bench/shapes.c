// SPDX-License-Identifier: Apache-2.0
/*
 * Lists of ops that depend on each other (work.c), pushed by one thread: the time per op, and
 * the smallest op at which the threads do half of the ideal work (METG).  Each result is
 * compared with that of a serial run.
 */

#include <stdlib.h>

#include "suite.h"

#define OPS	20000u			/* of a list */
#define SERIAL	3u			/* serial runs, of which the fastest counts */

static int work_body(struct pawl_run *run, void *arg)
{
	(void)run;
	bench_body(arg);
	return 0;
}

static pawl_var_t *work_vars(struct pawl_engine *e, const struct work *w)
{
	pawl_var_t *v = bench_alloc(w->nvars, sizeof(*v));

	bench_vars(e, v, w->nvars);
	return v;
}

/* Push the first n ops, and wait for them.  Returns ns per op. */
static double work_run(struct pawl_engine *e, struct work *w, const pawl_var_t *v, uint32_t n)
{
	uint32_t i, k, bad;
	uint64_t t0;
	double ns;

	work_reset(w);
	t0 = now_ns();
	for (i = 0; i < n; i++) {
		struct bench_op *b = &w->ops[i];
		pawl_var_t acc[BENCH_MAX_VARS_PER_OP];
		struct pawl_op op = PAWL_OP_INIT;

		for (k = 0; k < (uint32_t)b->nr + b->nw; k++)
			acc[k] = v[b->v[k]];
		op.fn = work_body;
		op.arg = b;
		op.reads = acc;
		op.nreads = b->nr;
		op.writes = acc + b->nr;
		op.nwrites = b->nw;
		bench_check(pawl_push(e, &op), "pawl_push");
	}
	bench_check(pawl_wait_all(e, -1, NULL), "pawl_wait_all");
	ns = (double)(now_ns() - t0) / n;
	bad = n == w->n ? work_check(w) : 0;
	if (bad)
		bench_die("%s: WRONG RESULT: var %u is not what a serial run makes of it", w->name,
			  bad - 1);
	return ns;
}

static void run_shape(struct run *r)
{
	struct work *w = work_make(r->c->text, OPS, r->seed);
	struct pawl_engine *e = run_engine(r, -1, 0);
	pawl_var_t *v = work_vars(e, w);
	struct series s = { 0 };
	uint64_t t = 0;

	run_begin(r);
	while (run_goes_on(r, t, s.n)) {
		double ns;

		t = now_ns();
		ns = work_run(e, w, v, w->n);
		if (t >= r->begin)
			series_add(&s, ns);
		t = now_ns();
	}
	run_destroy(r);
	r->value[0] = series_median(&s);
	free(v);
	work_free(w);
}

static double serial_run(struct work *w, uint32_t n)
{
	uint64_t t0;
	uint32_t i;

	work_reset(w);
	t0 = now_ns();
	for (i = 0; i < n; i++)
		bench_body(&w->ops[i]);
	return (double)(now_ns() - t0) / n;
}

/*
 * The share of the ideal work at this length of a body.  *ns: an op alone.  Returns NAN when
 * the time is over.
 */
static double efficiency(struct run *r, struct pawl_engine *e, struct work *w,
			 const pawl_var_t *v, uint32_t body, uint64_t until, double *ns)
{
	unsigned int threads = r->c->p[0], i;
	struct series s = { 0 };
	/* a run takes about 2 ms */
	uint32_t n = (uint32_t)(2e6 * threads / (body + 50));

	n = n < 200 ? 200 : n > w->n ? w->n : n;
	bench_grain = work_turns(body);
	*ns = INFINITY;
	for (i = 0; i < SERIAL; i++)
		*ns = fmin(*ns, serial_run(w, n));
	do
		series_add(&s, *ns / threads / work_run(e, w, v, n));
	while (run_goes_on(r, now_ns(), true) && now_ns() < until);
	return series_median(&s);
}

/*
 * The length of the body doubles until the threads do half of the ideal work; the figure is
 * between the last two lengths.  p[0]: the number of threads, with the one that pushes.
 */
static void run_metg(struct run *r)
{
	struct work *w = work_make("stencil", OPS, r->seed);
	struct pawl_engine *e = run_engine(r, (int)r->c->p[0] - 1, 0);
	pawl_var_t *v = work_vars(e, w);
	double ns, eff, last_ns = 0, last_eff = 0;
	uint64_t step;
	uint32_t body;

	work_set_kind(w, BODY_GRAIN);
	work_run(e, w, v, w->n);
	run_begin(r);
	step = (r->end - r->begin) / 10;
	for (body = 25; body <= 102400 && run_goes_on(r, 0, false); body *= 2) {
		eff = efficiency(r, e, w, v, body, now_ns() + step, &ns);
		if (eff >= 0.5) {
			double at = eff > last_eff ? (0.5 - last_eff) / (eff - last_eff) : 1;

			if (last_ns)
				r->value[0] = last_ns * pow(ns / last_ns, at);
			else
				r->value[0] = ns;
			break;
		}
		last_ns = ns;
		last_eff = eff;
	}
	bench_grain = 0;
	run_destroy(r);
	free(v);
	work_free(w);
}

void plan_shapes(struct plan *p)
{
	static const struct {
		const char *name, *what;
	} shapes[] = {
		{ "chain", "an op, of a list in which all write one var" },
		{ "indep", "an op, of a list in which op i writes var i mod 1024" },
		{ "readers", "an op, of a write and eight ops that read it, repeated" },
		{ "random", "an op that reads two of 1000 vars, and writes a third" },
		{ "stencil", "an op that reads its neighbours, of 64, and writes its own cell" },
		{ "cholesky", "an op of a factorization in tiles" },
	};
	unsigned int i;

	for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		plan_case(p, run_shape, 1, "shapes/%s", shapes[i].name)->text = shapes[i].name;
		plan_figure(p, NULL, UNIT_NS, false, shapes[i].what);
	}
}

void plan_metg(struct plan *p)
{
	unsigned int threads;

	for (threads = 1; threads; threads = threads == p->o->cpus ? 0 : threads * 2) {
		if (threads > p->o->cpus)
			threads = p->o->cpus;
		plan_case(p, run_metg, 2, "metg/threads-%u", threads)->p[0] = threads;
		plan_figure(p, NULL, UNIT_NS, false,
			    "the smallest op of stencil at which the threads do half of the ideal work");
	}
}
