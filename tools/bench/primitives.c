// SPDX-License-Identifier: Apache-2.0
/* What single steps cost: pushes, runs, completions, launches, and the ways between threads. */

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "suite.h"

#define BATCH	512u			/* ops that are pushed, and then run */
#define ASYNC	256u			/* asynchronous ops that are completed in a row */
#define NODES	64u			/* of a graph */
#define LAUNCHES 4u
#define IDLE_NS	1000000u		/* so long that a worker sleeps */

static int nothing(struct pawl_run *run, void *arg)
{
	(void)run;
	(void)arg;
	return 0;
}

/* --- push, run ----------------------------------------------------------------------- */

/* p[0]: the number of vars of an op. */
static void run_push(struct run *r)
{
	unsigned int n = r->c->p[0], i;
	struct pawl_engine *e = run_engine(r, 0, 0);
	pawl_var_t *v = bench_alloc(BATCH * n, sizeof(*v));
	struct pawl_op *op = bench_alloc(BATCH, sizeof(*op));
	struct series push = { 0 }, run = { 0 };
	uint64_t t0, t1, t2 = 0;

	bench_vars(e, v, BATCH * n);
	for (i = 0; i < BATCH; i++) {
		op[i] = bench_write(nothing, NULL, &v[i * n]);
		op[i].nwrites = n;
	}
	run_begin(r);
	while (run_goes_on(r, t2, push.n)) {
		t0 = now_ns();
		for (i = 0; i < BATCH; i++)
			bench_check(pawl_push(e, &op[i]), "pawl_push");
		t1 = now_ns();
		bench_check(pawl_wait_all(e, -1, NULL), "pawl_wait_all");
		t2 = now_ns();
		if (t0 < r->begin)
			continue;
		series_add(&push, (double)(t1 - t0) / BATCH);
		series_add(&run, (double)(t2 - t1) / BATCH);
	}
	run_destroy(r);
	r->value[0] = series_median(&push);
	r->value[1] = series_median(&run);
	free(v);
	free(op);
}

/* --- complete ------------------------------------------------------------------------ */

static void keep_token(struct pawl_run *run, void *arg)
{
	*(pawl_token_t *)arg = run->token;
}

/* p[0]: an op waits for each of them. */
static void run_complete(struct run *r)
{
	struct pawl_engine *e = run_engine(r, 0, 0);
	pawl_token_t token[ASYNC];
	pawl_var_t v[ASYNC];
	struct series s = { 0 };
	uint64_t t0 = 0, t1;
	unsigned int i;

	bench_vars(e, v, ASYNC);
	run_begin(r);
	while (run_goes_on(r, t0, s.n)) {
		for (i = 0; i < ASYNC; i++) {
			struct pawl_op op = bench_write(NULL, &token[i], &v[i]);

			op.async_fn = keep_token;
			bench_check(pawl_push(e, &op), "pawl_push");
		}
		/* the queues have no workers: this thread starts them all */
		while (pawl_run_one(e) > 0)
			;
		for (i = 0; r->c->p[0] && i < ASYNC; i++) {
			struct pawl_op op = bench_write(nothing, NULL, &v[i]);

			bench_check(pawl_push(e, &op), "pawl_push");
		}
		t0 = now_ns();
		for (i = 0; i < ASYNC; i++)
			bench_check(pawl_complete(e, token[i], 0, NULL), "pawl_complete");
		t1 = now_ns();
		if (t0 >= r->begin)
			series_add(&s, (double)(t1 - t0) / ASYNC);
		bench_check(pawl_wait_all(e, -1, NULL), "pawl_wait_all");
	}
	run_destroy(r);
	r->value[0] = series_median(&s);
}

/* --- launch -------------------------------------------------------------------------- */

static void run_launch(struct run *r)
{
	struct pawl_engine *e = run_engine(r, 0, 0);
	struct series call = { 0 }, all = { 0 };
	struct pawl_op op[NODES];
	pawl_var_t v[NODES];
	pawl_graph_t graph;
	uint64_t t0, t1, t2 = 0;
	unsigned int i;

	bench_vars(e, v, NODES);
	for (i = 0; i < NODES; i++) {
		op[i] = bench_write(nothing, NULL, &v[i]);
		/* all read what the first one writes */
		op[i].reads = v;
		op[i].nreads = i > 0;
	}
	bench_check(pawl_graph_create(e, op, NODES, 0, &graph), "pawl_graph_create");
	run_begin(r);
	while (run_goes_on(r, t2, call.n)) {
		t0 = now_ns();
		for (i = 0; i < LAUNCHES; i++)
			bench_check(pawl_graph_push(e, graph, NULL), "pawl_graph_push");
		t1 = now_ns();
		bench_check(pawl_wait_all(e, -1, NULL), "pawl_wait_all");
		t2 = now_ns();
		if (t0 < r->begin)
			continue;
		series_add(&call, (double)(t1 - t0) / LAUNCHES);
		series_add(&all, (double)(t2 - t0) / LAUNCHES / NODES);
	}
	run_destroy(r);
	r->value[0] = series_median(&call);
	r->value[1] = series_median(&all);
}

/* --- from thread to thread ------------------------------------------------------------- */

struct stamp {
	uint64_t at;			/* atomic: 0: not yet */
	uint32_t turns;			/* before it */
};

static int stamp_body(struct pawl_run *run, void *arg)
{
	struct stamp *s = arg;

	(void)run;
	burn(s->turns);
	__atomic_store_n(&s->at, now_ns(), __ATOMIC_RELEASE);
	return 0;
}

/* From the push to the start of the body on a worker.  p[0]: the worker sleeps. */
static void run_start(struct run *r)
{
	struct pawl_engine *e = run_engine(r, 1, 0);
	struct stamp s = { 0 };
	struct pawl_op op;
	pawl_var_t v;
	uint64_t t0 = 0, t1;

	bench_vars(e, &v, 1);
	op = bench_write(stamp_body, &s, &v);
	run_begin(r);
	while (run_goes_on(r, t0, r->c->figure[0]->now->count)) {
		unsigned int spins = 0;

		if (r->c->p[0])
			sleep_ns(IDLE_NS);
		__atomic_store_n(&s.at, 0, __ATOMIC_RELAXED);
		t0 = now_ns();
		bench_check(pawl_push(e, &op), "pawl_push");
		while (!(t1 = __atomic_load_n(&s.at, __ATOMIC_ACQUIRE)))
			bench_poll(r->o, &spins);
		if (t0 >= r->begin)
			run_time(r, 0, t0, t1);
		bench_check(pawl_wait_all(e, -1, NULL), "pawl_wait_all");
	}
	run_destroy(r);
}

/* From the end of a body on a worker to the return of a wait.  p[0]: ns of the body. */
static void run_return(struct run *r)
{
	struct stamp s = { .turns = work_turns(r->c->p[0]) };
	struct pawl_engine *e = run_engine(r, 1, 0);
	struct pawl_op op;
	pawl_var_t v;
	uint64_t t0 = 0, t1, t2;

	bench_vars(e, &v, 1);
	op = bench_write(stamp_body, &s, &v);
	run_begin(r);
	while (run_goes_on(r, t0, r->c->figure[0]->now->count)) {
		t0 = now_ns();
		bench_check(pawl_push(e, &op), "pawl_push");
		bench_check(pawl_wait(e, PAWL_WAIT_READABLE | PAWL_WAIT_NO_HELP, v.h, -1, NULL),
			    "pawl_wait");
		t2 = now_ns();
		t1 = __atomic_load_n(&s.at, __ATOMIC_ACQUIRE);
		if (t0 >= r->begin)
			run_time(r, 0, t1, t2);
	}
	run_destroy(r);
}

/* From the end of a body on a worker until an event loop has its completion. */
static void run_event(struct run *r)
{
	struct stamp s = { .turns = work_turns(r->c->p[0]) };
	struct pawl_engine *e = run_engine(r, 1, 0);
	struct pawl_completion c;
	struct pollfd p;
	struct pawl_op op;
	pawl_var_t v;
	pawl_cq_t cq;
	uint64_t t0 = 0, t1, t2;
	int n;

	bench_vars(e, &v, 1);
	bench_check(pawl_cq_create(e, &cq), "pawl_cq_create");
	p = (struct pollfd){ .fd = pawl_cq_fd(e, cq), .events = POLLIN };
	bench_check(p.fd, "pawl_cq_fd");
	op = bench_write(stamp_body, &s, &v);
	op.flags = PAWL_OP_CQ;
	op.cq = cq;
	run_begin(r);
	while (run_goes_on(r, t0, r->c->figure[0]->now->count)) {
		t0 = now_ns();
		bench_check(pawl_push(e, &op), "pawl_push");
		do {
			if (poll(&p, 1, -1) < 0 && errno != EINTR)
				bench_die("poll: %s", strerror(errno));
			n = pawl_cq_reap(e, cq, &c, 1);
			bench_check(n, "pawl_cq_reap");
		} while (!n);
		t2 = now_ns();
		t1 = __atomic_load_n(&s.at, __ATOMIC_ACQUIRE);
		if (t0 >= r->begin)
			run_time(r, 0, t1, t2);
	}
	run_destroy(r);
}

void plan_primitives(struct plan *p)
{
	static const unsigned int vars[] = { 1, 2, 4, 8, 16 };
	struct bench_case *c;
	unsigned int i;

	for (i = 0; i < sizeof(vars) / sizeof(vars[0]); i++) {
		c = plan_case(p, run_push, 1, "primitives/vars-%u", vars[i]);
		c->p[0] = vars[i];
		plan_figure(p, "push", UNIT_NS, false, "a call of pawl_push(), while nothing runs");
		plan_figure(p, "run", UNIT_NS, false,
			    "an empty op from its queue to its end, by the thread that pushed");
	}
	for (i = 0; i < 2; i++) {
		c = plan_case(p, run_complete, 1, "primitives/complete%s", i ? "-next" : "");
		c->p[0] = i;
		plan_figure(p, NULL, UNIT_NS, false, i ?
			    "a call of pawl_complete() that makes an op ready" :
			    "a call of pawl_complete(), for which no op waits");
	}
	plan_case(p, run_launch, 1, "primitives/graph-%u", NODES);
	plan_figure(p, "launch", UNIT_NS, false, "a call of pawl_graph_push()");
	plan_figure(p, "op", UNIT_NS, false, "an op of the graph, from the call to the end of all");
	for (i = 0; i < 2; i++) {
		c = plan_case(p, run_start, 1, "primitives/%s", i ? "wake" : "hand-over");
		c->p[0] = i;
		plan_figure(p, NULL, UNIT_NS, true, i ?
			    "from a push to the start of the body on a worker that sleeps" :
			    "from a push to the start of the body on a worker that spins");
	}
	for (i = 0; i < 2; i++) {
		c = plan_case(p, run_return, 1, "primitives/return%s", i ? "-asleep" : "");
		c->p[0] = i ? 300000 : 5000;
		plan_figure(p, NULL, UNIT_NS, true, i ?
			    "from the end of a body of 300 us to the return of a wait" :
			    "from the end of a body of 5 us to the return of a wait");
	}
	c = plan_case(p, run_event, 1, "primitives/event");
	c->p[0] = 50000;
	plan_figure(p, NULL, UNIT_NS, true,
		    "from the end of a body of 50 us to the reap by a thread in poll(2)");
}
