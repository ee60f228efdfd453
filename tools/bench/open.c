// SPDX-License-Identifier: Apache-2.0
/*
 * Open loop: ops that are due at random times, which do not depend on the ops before.  A time
 * counts from that intended start, so an op that is pushed late, or waits, has the whole delay
 * in its time.  How late this program itself is, is a figure of its own.
 */

#include <stdlib.h>

#include "suite.h"

#define SLOTS	8192u			/* ops in flight */
#define BODY_NS	10000u

struct due {
	uint64_t at;			/* its intended start; 0: free */
	uint64_t took;			/* atomic: 0: not complete */
	uint32_t turns;
};

static int due_body(struct pawl_run *run, void *arg)
{
	struct due *d = arg;

	(void)run;
	burn(d->turns);
	__atomic_store_n(&d->took, now_ns() - d->at + 1, __ATOMIC_RELEASE);
	return 0;
}

/* The time of the op in this slot, when it is complete. */
static void due_collect(struct run *r, struct due *d)
{
	unsigned int spins = 0;
	uint64_t took;

	if (!d->at)
		return;
	while (!(took = __atomic_load_n(&d->took, __ATOMIC_ACQUIRE)))
		bench_poll(r->o, &spins);
	if (d->at >= r->begin)
		run_time(r, 0, d->at, d->at + took - 1);
	d->at = 0;
}

/* p: workers, percent of their time that the bodies need. */
static void run_open(struct run *r)
{
	struct pawl_engine *e = run_engine(r, (int)r->c->p[0], 0);
	double gap = 1e2 * BODY_NS / (r->c->p[0] * r->c->p[1]);
	struct due *due = bench_alloc(SLOTS, sizeof(*due));
	pawl_var_t *v = bench_alloc(SLOTS, sizeof(*v));
	uint32_t turns = work_turns(BODY_NS);
	unsigned int i = 0, k, spins = 0;
	double at = 0;			/* from base to the next intended start */
	uint64_t t, base;

	bench_vars(e, v, SLOTS);
	run_begin(r);
	base = now_ns();
	while (run_goes_on(r, base + (uint64_t)at, true)) {
		struct pawl_op op;

		at += -log(((double)(random_next(&r->seed) >> 11) + 1) / 9007199254740993.0) * gap;
		due_collect(r, &due[i]);
		due[i].at = base + (uint64_t)at;
		due[i].took = 0;
		due[i].turns = turns;
		op = bench_write(due_body, &due[i], &v[i]);
		while ((t = now_ns()) < due[i].at)
			bench_poll(r->o, &spins);
		bench_check(pawl_push(e, &op), "pawl_push");
		if (due[i].at >= r->begin)
			hist_add(r->c->figure[1]->now, t - due[i].at);
		i = i + 1 < SLOTS ? i + 1 : 0;
	}
	for (k = 0; k < SLOTS; k++)
		due_collect(r, &due[k]);
	run_destroy(r);
	free(due);
	free(v);
}

void plan_open(struct plan *p)
{
	static const unsigned int percent[] = { 20, 60 };
	unsigned int workers = p->o->cpus > 1 ? p->o->cpus - 1 : 1, i;

	for (i = 0; i < 2; i++) {
		struct bench_case *c = plan_case(p, run_open, 2, "open/%u-%u%%", workers,
						 percent[i]);

		c->p[0] = workers;
		c->p[1] = percent[i];
		plan_figure(p, "time", UNIT_NS, true,
			    "an op of 10 us, from its intended start to its end");
		plan_figure(p, "lag", UNIT_NS, true,
			    "of this program: from the intended start to the push");
	}
}
