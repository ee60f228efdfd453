// SPDX-License-Identifier: Apache-2.0
/* Many threads on one engine: rates, times of requests, fairness, and times beside long bodies. */

#include <pthread.h>
#include <stdlib.h>

#include "suite.h"

#define VARS		64u		/* of a producer */
#define WINDOW		4096u		/* ops in flight while producers only push */
#define REQUESTS	64u		/* in flight, of a producer */
#define CHAIN		4u		/* ops of a request */
#define SHARED		8u		/* vars that all requests read */
#define FAIR_OPS	8u		/* in flight, of a producer */
#define FAIR_NS		200000u		/* a body */
#define LONG_NS		1000000u	/* a long body */
#define PAUSE_NS	200000u		/* between two pushes beside long bodies */

/* One op, or one chain of ops, in flight. */
struct slot {
	pawl_var_t v;
	uint64_t pushed;
	uint64_t started, ended;	/* written by bodies, read after a wait */
	uint32_t turns;
};

struct producer {
	struct run *r;
	struct pawl_engine *e;
	const pawl_var_t *shared;
	pthread_t id;
	struct slot *slots;
	unsigned int nslots, me;
	uint64_t done;			/* in the measured time */
	struct hist hist;
};

static int slot_body(struct pawl_run *run, void *arg)
{
	struct slot *s = arg;

	(void)run;
	s->started = now_ns();
	burn(s->turns);
	s->ended = now_ns();
	return 0;
}

/* The ops of a request before its last one. */
static int part_body(struct pawl_run *run, void *arg)
{
	const struct slot *s = arg;

	(void)run;
	burn(s->turns);
	return 0;
}

static struct producer *producers_new(struct run *r, struct pawl_engine *e, unsigned int n,
				      unsigned int nslots, uint32_t turns)
{
	struct producer *p = bench_alloc(n, sizeof(*p));
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		p[i].r = r;
		p[i].e = e;
		p[i].me = i;
		p[i].slots = bench_alloc(nslots, sizeof(*p[i].slots));
		p[i].nslots = nslots;
		hist_init(&p[i].hist);
		for (k = 0; k < nslots; k++) {
			bench_vars(e, &p[i].slots[k].v, 1);
			p[i].slots[k].turns = turns;
		}
	}
	return p;
}

static void producers_start(struct producer *p, unsigned int n, void *(*fn)(void *))
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (pthread_create(&p[i].id, NULL, fn, &p[i]))
			bench_die("cannot create a thread");
}

static void producers_join(struct producer *p, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		pthread_join(p[i].id, NULL);
}

static void producers_free(struct producer *p, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		free(p[i].slots);
	free(p);
}

static void producers_run(struct run *r, struct producer *p, unsigned int n, void *(*fn)(void *))
{
	run_begin(r);
	producers_start(p, n, fn);
	run_warm(r);
	run_rest(r);
	producers_join(p, n);
}

/* --- producers ----------------------------------------------------------------------- */

static void *producer_thread(void *arg)
{
	struct producer *p = arg;
	unsigned int i;

	while (!run_ended(p->r)) {
		for (i = 0; i < p->nslots; i++) {
			struct slot *s = &p->slots[i];
			struct pawl_op op = bench_write(part_body, s, &s->v);

			bench_check(pawl_push(p->e, &op), "pawl_push");
		}
	}
	return NULL;
}

static uint64_t completed(struct pawl_engine *e)
{
	struct pawl_stats s = { .size = sizeof(s) };

	bench_check(pawl_stats(e, &s), "pawl_stats");
	return s.completed;
}

/* p: producers, workers. */
static void run_producers(struct run *r)
{
	unsigned int n = r->c->p[0];
	struct pawl_engine *e = run_engine(r, (int)r->c->p[1], WINDOW);
	struct producer *p = producers_new(r, e, n, VARS, 0);
	uint64_t before, after, t0, t1;

	run_begin(r);
	producers_start(p, n, producer_thread);
	run_warm(r);
	before = completed(e);
	t0 = t1 = now_ns();
	do {
		sleep_ns(t1 < r->end ? r->end - t1 : 1000000);
		t1 = now_ns();
		after = completed(e);
	} while (run_goes_on(r, t1, after > before));
	run_measured(r);
	run_rest(r);
	producers_join(p, n);
	bench_check(pawl_wait_all(e, -1, NULL), "pawl_wait_all");
	run_destroy(r);
	if (after > before)
		r->value[0] = (double)(after - before) * 1e9 / (double)(t1 - t0);
	producers_free(p, n);
}

/* --- requests -------------------------------------------------------------------------- */

static void request_push(struct producer *p, struct slot *s)
{
	unsigned int i;

	s->pushed = now_ns();
	for (i = 0; i < CHAIN; i++) {
		struct pawl_op op = bench_write(i + 1 < CHAIN ? part_body : slot_body, s, &s->v);

		op.reads = &p->shared[(p->me + i) % SHARED];
		op.nreads = 1;
		bench_check(pawl_push(p->e, &op), "pawl_push");
	}
}

static void slot_wait(struct producer *p, struct slot *s)
{
	if (s->pushed)
		bench_check(pawl_wait_readable(p->e, s->v, -1, NULL), "pawl_wait_readable");
}

/* Returns true if the request counts. */
static bool request_end(struct producer *p, struct slot *s)
{
	slot_wait(p, s);
	if (s->pushed < p->r->begin)
		return false;
	run_time_in(p->r, 1, &p->hist, s->pushed, s->ended);
	return true;
}

static void *request_thread(void *arg)
{
	struct producer *p = arg;
	unsigned int i = 0;

	while (!run_ended(p->r)) {
		struct slot *s = &p->slots[i];

		if (request_end(p, s)) {
			p->done++;
			run_measured(p->r);
		}
		request_push(p, s);
		i = i + 1 < p->nslots ? i + 1 : 0;
	}
	/* their times count, and no longer for the rate */
	for (i = 0; i < p->nslots; i++)
		request_end(p, &p->slots[i]);
	return NULL;
}

/* p: producers, workers, ns of a body. */
static void run_requests(struct run *r)
{
	unsigned int n = r->c->p[0], i;
	struct pawl_engine *e = run_engine(r, (int)r->c->p[1], 0);
	struct producer *p = producers_new(r, e, n, REQUESTS, work_turns(r->c->p[2]));
	pawl_var_t shared[SHARED];
	uint64_t done = 0;

	bench_vars(e, shared, SHARED);
	for (i = 0; i < n; i++)
		p[i].shared = shared;
	producers_run(r, p, n, request_thread);
	for (i = 0; i < n; i++) {
		done += p[i].done;
		hist_merge(r->c->figure[1]->now, &p[i].hist);
	}
	run_destroy(r);
	if (done)
		r->value[0] = (double)done * 1e9 / (double)(r->end - r->begin);
	producers_free(p, n);
}

/* --- fairness -------------------------------------------------------------------------- */

static void fair_push(struct producer *p, struct slot *s)
{
	struct pawl_op op = bench_write(slot_body, s, &s->v);

	s->pushed = now_ns();
	bench_check(pawl_push(p->e, &op), "pawl_push");
}

static void *fair_thread(void *arg)
{
	struct producer *p = arg;
	unsigned int i = 0, k;

	for (k = 0; k < p->nslots; k++)
		fair_push(p, &p->slots[k]);
	for (; !run_ended(p->r); i++) {
		struct slot *s = &p->slots[i % p->nslots];

		bench_check(pawl_wait(p->e, PAWL_WAIT_READABLE | PAWL_WAIT_NO_HELP, s->v.h, -1,
				      NULL), "pawl_wait");
		if (s->started >= p->r->begin) {
			run_time_in(p->r, 0, &p->hist, s->pushed, s->started);
			p->done++;
			run_measured(p->r);
		}
		fair_push(p, s);
	}
	/* the ops that have not run yet may have waited the longest */
	for (k = 0; k < p->nslots; k++) {
		struct slot *s = &p->slots[(i + k) % p->nslots];

		bench_check(pawl_wait(p->e, PAWL_WAIT_READABLE | PAWL_WAIT_NO_HELP, s->v.h, -1,
				      NULL), "pawl_wait");
		run_time_in(p->r, 0, &p->hist, s->pushed, s->started);
	}
	return NULL;
}

/* p: producers, workers. */
static void run_fairness(struct run *r)
{
	unsigned int n = r->c->p[0], i;
	struct pawl_engine *e = run_engine(r, (int)r->c->p[1], 0);
	struct producer *p = producers_new(r, e, n, FAIR_OPS, work_turns(FAIR_NS));
	uint64_t longest = 0, least = UINT64_MAX, sum = 0;

	producers_run(r, p, n, fair_thread);
	for (i = 0; i < n; i++) {
		hist_merge(r->c->figure[0]->now, &p[i].hist);
		longest = p[i].hist.max > longest ? p[i].hist.max : longest;
		least = p[i].done < least ? p[i].done : least;
		sum += p[i].done;
	}
	run_destroy(r);
	if (sum) {
		r->value[1] = (double)longest;
		r->value[2] = (double)least * n / (double)sum;
	}
	producers_free(p, n);
}

/* --- beside long bodies ---------------------------------------------------------------- */

/* Keeps every slot busy with a long body. */
static void *long_thread(void *arg)
{
	struct producer *p = arg;
	unsigned int i = 0;

	while (!run_ended(p->r)) {
		struct slot *s = &p->slots[i];

		if (s->pushed)
			bench_check(pawl_wait(p->e, PAWL_WAIT_READABLE | PAWL_WAIT_NO_HELP, s->v.h,
					      -1, NULL), "pawl_wait");
		fair_push(p, s);
		i = i + 1 < p->nslots ? i + 1 : 0;
	}
	return NULL;
}

/* p: workers. */
static void run_busy(struct run *r)
{
	unsigned int workers = r->c->p[0];
	struct pawl_engine *e = run_engine(r, (int)workers, 0);
	struct producer *p = producers_new(r, e, 1, 2 * workers, work_turns(LONG_NS));
	uint64_t t0 = 0, t1, t2;
	struct slot s = { 0 };
	struct pawl_op op;

	bench_vars(e, &s.v, 1);
	op = bench_write(slot_body, &s, &s.v);
	run_begin(r);
	producers_start(p, 1, long_thread);
	while (run_goes_on(r, t0, r->c->figure[0]->now->count)) {
		sleep_ns(PAUSE_NS / 2 + random_next(&r->seed) % PAUSE_NS);
		t0 = now_ns();
		bench_check(pawl_push(e, &op), "pawl_push");
		t1 = now_ns();
		bench_check(pawl_wait_readable(e, s.v, -1, NULL), "pawl_wait_readable");
		t2 = now_ns();
		if (t0 < r->begin)
			continue;
		run_time(r, 0, t0, t1);
		run_time(r, 1, t0, t2);
	}
	run_measured(r);
	run_rest(r);
	producers_join(p, 1);
	run_destroy(r);
	producers_free(p, 1);
}

/* --- plans ------------------------------------------------------------------------------- */

/* Pairs of producers and workers for this number of CPUs, each once. */
static unsigned int pairs(const struct options *o, unsigned int (*pair)[2])
{
	unsigned int all[4][2] = { { 1, 1 }, { 1, o->cpus - 1 }, { o->cpus / 2, o->cpus / 2 },
				   { o->cpus, o->cpus } };
	unsigned int n = 0, i, k;

	for (i = 0; i < 4; i++) {
		if (!all[i][0] || !all[i][1] || all[i][0] > MAX_PRODUCERS / 2)
			continue;
		for (k = 0; k < n && (pair[k][0] != all[i][0] || pair[k][1] != all[i][1]); k++)
			;
		if (k < n)
			continue;
		pair[n][0] = all[i][0];
		pair[n++][1] = all[i][1];
	}
	return n;
}

void plan_producers(struct plan *p)
{
	unsigned int pair[4][2], n = pairs(p->o, pair), i;

	for (i = 0; i < n; i++) {
		struct bench_case *c = plan_case(p, run_producers, 1, "producers/%ux%u",
						 pair[i][0], pair[i][1]);

		c->p[0] = pair[i][0];
		c->p[1] = pair[i][1];
		plan_figure(p, NULL, UNIT_RATE, false,
			    "empty ops, pushed by as many threads, run by as many workers");
	}
}

void plan_requests(struct plan *p)
{
	static const unsigned int body[] = { 0, 1000, 20000 };
	static const char *const text[] = { "0", "1us", "20us" };
	unsigned int pair[4][2], n = pairs(p->o, pair), i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < 3; k++) {
			struct bench_case *c = plan_case(p, run_requests, 1, "requests/%ux%u-%s",
							 pair[i][0], pair[i][1], text[k]);

			c->p[0] = pair[i][0];
			c->p[1] = pair[i][1];
			c->p[2] = body[k];
			plan_figure(p, "rate", UNIT_RATE, false,
				    "requests: chains of 4 ops, 64 in flight per producer");
			plan_figure(p, "time", UNIT_NS, true,
				    "a request, from its first push to the end of its last body");
		}
	}
}

void plan_fairness(struct plan *p)
{
	unsigned int n = p->o->cpus < MAX_PRODUCERS / 2 ? p->o->cpus * 2 : MAX_PRODUCERS / 2;
	struct bench_case *c = plan_case(p, run_fairness, 3, "fairness/%ux%u", n, p->o->cpus);

	c->p[0] = n;
	c->p[1] = p->o->cpus;
	plan_figure(p, "wait", UNIT_NS, true,
		    "from a push to the start, 8 ops of 200 us in flight per producer");
	plan_figure(p, "longest", UNIT_NS, false, "the longest of these waits in a round");
	plan_figure(p, "least", UNIT_SHARE, false,
		    "ops of the producer with the fewest, as a part of the mean");
}

void plan_busy(struct plan *p)
{
	plan_case(p, run_busy, 2, "busy/%u", p->o->cpus)->p[0] = p->o->cpus;
	plan_figure(p, "push", UNIT_NS, true,
		    "a call of pawl_push(), while each worker runs bodies of 1 ms");
	plan_figure(p, "wait", UNIT_NS, true,
		    "such a push of an empty op, and the wait for it by the same thread");
}
