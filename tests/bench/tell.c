// SPDX-License-Identifier: Apache-2.0
/*
 * tell.c - pawl as a server uses it: how long it takes until an event loop learns of an op that
 * is complete, beside libuv's own thread pool, and what completions cost.
 *
 *   tell     the loop pushes an op, and sleeps in uv_run() until its callback; one worker
 *   collect  ops per second with a completion of each, and without
 *   lambda   bodies in C++ beside C: lambda.cc
 *   with-X   ns per op with the feature X, and without, in turns: with-ticket, with-deadline,
 *            with-group, with-limit, with-cost, with-trace, with-record
 */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>

#include <pawl/engine.h>

#include "bench.h"
#include "lambda.h"
#include "tell.h"

static void check(int err, const char *what)
{
	if (err < 0)
		bench_die("%s: %d: %s", what, err, pawl_error_text());
}

#ifdef BENCH_UV
#include <uv.h>

static int cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

#define TURNS	8		/* of each, alternately */
#define SAMPLES	2000		/* in a turn, after some that do not count */
#define WARM	100

static struct {
	struct pawl_engine *e;
	pawl_cq_t cq;
	struct pawl_op op;
	uv_loop_t loop;
	uv_poll_t poll;
	uv_work_t work;
	uint64_t done;			/* time of the end of the body */
	uint64_t *sample;		/* the next one of this kind */
	unsigned int n;
} tell;

static int pawl_body(struct pawl_run *run, void *arg)
{
	(void)run;
	(void)arg;
	tell.done = bench_now();
	return 0;
}

static void uv_body(uv_work_t *w)
{
	(void)w;
	tell.done = bench_now();
}

/* The callback: record the time that it took.  Returns true to repeat. */
static bool note(void)
{
	uint64_t took = bench_now() - tell.done;

	if (tell.n++ >= WARM)
		*tell.sample++ = took;
	return tell.n < WARM + SAMPLES;
}

static void pawl_callback(uv_poll_t *h, int status, int events)
{
	struct pawl_completion c[4];
	int n;

	(void)status;
	(void)events;
	n = pawl_cq_reap(tell.e, tell.cq, c, 4);
	check(n, "pawl_cq_reap");
	if (!n)
		return;
	if (note())
		check(pawl_push(tell.e, &tell.op), "pawl_push");
	else
		uv_stop(h->loop);
}

static void uv_callback(uv_work_t *w, int status)
{
	(void)status;
	if (note())
		uv_queue_work(w->loop, w, uv_body, uv_callback);
}

static void print_pair(const char *name, uint64_t *mine, uint64_t *uv, unsigned int n,
		       unsigned int percent)
{
	double a = (double)mine[n / 100 * percent] * bench_tick_ns;
	double b = (double)uv[n / 100 * percent] * bench_tick_ns;

	printf(",\"%s\":%.0f,\"uv_%s\":%.0f,\"ratio_%s\":%.3f", name, a, name, b, name, a / b);
}

static void measure_tell(const char *engine)
{
	unsigned int n = TURNS * SAMPLES, turn;
	uint64_t *mine = calloc(n, sizeof(*mine)), *uv = calloc(n, sizeof(*uv));
	struct pawl_config cfg;
	pawl_var_t v;

	if (!mine || !uv)
		bench_die("out of memory");
	setenv("UV_THREADPOOL_SIZE", "1", 1);
	pawl_config_init(&cfg);
	cfg.workers = 1;
	check(pawl_engine_create(&cfg, &tell.e), "pawl_engine_create");
	check(pawl_cq_create(tell.e, &tell.cq), "pawl_cq_create");
	check(pawl_var_create(tell.e, &v), "pawl_var_create");
	tell.op = (struct pawl_op)PAWL_OP_INIT;
	tell.op.fn = pawl_body;
	tell.op.writes = &v;
	tell.op.nwrites = 1;
	tell.op.flags = PAWL_OP_CQ;
	tell.op.cq = tell.cq;
	if (uv_loop_init(&tell.loop) ||
	    uv_poll_init(&tell.loop, &tell.poll, pawl_cq_fd(tell.e, tell.cq)))
		bench_die("libuv's loop");
	for (turn = 0; turn < TURNS; turn++) {
		tell.n = 0;
		tell.sample = mine + turn * SAMPLES;
		uv_poll_start(&tell.poll, UV_READABLE, pawl_callback);
		check(pawl_push(tell.e, &tell.op), "pawl_push");
		uv_run(&tell.loop, UV_RUN_DEFAULT);
		uv_poll_stop(&tell.poll);
		tell.n = 0;
		tell.sample = uv + turn * SAMPLES;
		uv_queue_work(&tell.loop, &tell.work, uv_body, uv_callback);
		uv_run(&tell.loop, UV_RUN_DEFAULT);
	}
	uv_close((uv_handle_t *)&tell.poll, NULL);
	uv_run(&tell.loop, UV_RUN_DEFAULT);
	uv_loop_close(&tell.loop);
	check(pawl_engine_destroy(tell.e), "pawl_engine_destroy");
	qsort(mine, n, sizeof(*mine), cmp_u64);
	qsort(uv, n, sizeof(*uv), cmp_u64);
	printf("{\"engine\":\"%s\",\"test\":\"tell\"", engine);
	print_pair("p50", mine, uv, n, 50);
	print_pair("p99", mine, uv, n, 99);
	puts("}");
	free(mine);
	free(uv);
}
#else
static void measure_tell(const char *engine)
{
	printf("{\"engine\":\"%s\",\"test\":\"tell\",\"unsupported\":true}\n", engine);
}
#endif

#define VARS	64
#define BATCH	64		/* pushes between two reaps */
#define REPS	9

static uint64_t cells[VARS][8];

static int count_body(struct pawl_run *run, void *arg)
{
	(void)run;
	++*(uint64_t *)arg;
	return 0;
}

/* Return ns per op of n ops on VARS vars, until all are complete and all completions reaped. */
static double collect(struct pawl_engine *e, const pawl_var_t *v, const pawl_cq_t *cq,
		      uint32_t n)
{
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_completion c[BATCH];
	uint32_t i, reaped = 0;
	uint64_t t0;
	int got;

	op.fn = count_body;
	op.nwrites = 1;
	if (cq) {
		op.flags = PAWL_OP_CQ;
		op.cq = *cq;
	}
	t0 = bench_now();
	for (i = 0; i < n; i++) {
		op.writes = &v[i % VARS];
		op.arg = cells[i % VARS];
		op.tag = cq ? i : 0;
		check(pawl_push(e, &op), "pawl_push");
		if (cq && i % BATCH == BATCH - 1) {
			got = pawl_cq_reap(e, *cq, c, BATCH);
			check(got, "pawl_cq_reap");
			reaped += (uint32_t)got;
		}
	}
	check(pawl_wait_all(e, -1, NULL), "pawl_wait_all");
	while (cq && reaped < n) {
		got = pawl_cq_reap(e, *cq, c, BATCH);
		check(got, "pawl_cq_reap");
		reaped += (uint32_t)got;
	}
	return (double)(bench_now() - t0) * bench_tick_ns / n;
}

static int cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure_collect(const char *engine, int threads)
{
	double with[REPS], without[REPS], ratio[REPS];
	struct pawl_engine *e;
	struct pawl_config cfg;
	pawl_var_t v[VARS];
	pawl_cq_t cq;
	unsigned int i;

	pawl_config_init(&cfg);
	cfg.workers = threads - 1;
	check(pawl_engine_create(&cfg, &e), "pawl_engine_create");
	check(pawl_cq_create(e, &cq), "pawl_cq_create");
	for (i = 0; i < VARS; i++)
		check(pawl_var_create(e, &v[i]), "pawl_var_create");
	collect(e, v, &cq, bench_opts.ops);
	for (i = 0; i < REPS; i++) {
		without[i] = collect(e, v, NULL, bench_opts.ops);
		with[i] = collect(e, v, &cq, bench_opts.ops);
		ratio[i] = without[i] / with[i];
	}
	check(pawl_engine_destroy(e), "pawl_engine_destroy");
	qsort(with, REPS, sizeof(*with), cmp_double);
	qsort(without, REPS, sizeof(*without), cmp_double);
	qsort(ratio, REPS, sizeof(*ratio), cmp_double);
	printf("{\"engine\":\"%s\",\"test\":\"collect\",\"ns_op\":%.1f,\"without\":%.1f,\"ratio\":%.3f}\n",
	       engine, with[REPS / 2], without[REPS / 2], ratio[REPS / 2]);
}

#ifndef BENCH_CXX
void lambda_measure(const char *engine, int threads)
{
	(void)threads;
	printf("{\"engine\":\"%s\",\"test\":\"lambda\",\"unsupported\":true}\n", engine);
}
#endif

/* What an op can have, and what can watch it, beside completions. */
struct feature {
	const char *name;
	uint16_t flags;
	bool limit, trace, record;
};

static const struct feature features[] = {
	{ "ticket", PAWL_OP_TICKET, false, false, false },
	{ "deadline", PAWL_OP_DEADLINE, false, false, false },
	{ "group", PAWL_OP_GROUP, false, false, false },
	{ "limit", PAWL_OP_GROUP | PAWL_OP_COST, true, false, false },
	{ "cost", PAWL_OP_COST, false, false, false },
	{ "trace", 0, false, true, false },
	{ "record", 0, false, false, true },
};

/* ns per op of n ops on VARS vars, pushed and complete; f is NULL without the feature. */
static double run_with(struct pawl_engine *e, const pawl_var_t *v, const struct feature *f,
		       const struct pawl_op *how, uint32_t n)
{
	struct pawl_op op = PAWL_OP_INIT;
	uint64_t t0;
	uint32_t i;

	if (f)
		op = *how;
	op.fn = count_body;
	op.nwrites = 1;
	op.name = "bench";
	t0 = bench_now();
	for (i = 0; i < n; i++) {
		op.writes = &v[i % VARS];
		op.arg = cells[i % VARS];
		check(pawl_push(e, &op), "pawl_push");
	}
	check(pawl_wait_all(e, -1, NULL), "pawl_wait_all");
	return (double)(bench_now() - t0) * bench_tick_ns / n;
}

static void measure_with(const struct feature *f, const char *engine, int threads)
{
	struct pawl_group_limits limits = { .size = sizeof(limits) };
	double with[REPS], without[REPS], ratio[REPS];
	char file[] = "/tmp/pawl-bench-XXXXXX";
	struct pawl_op op = PAWL_OP_INIT;
	pawl_ticket_t ticket;
	pawl_group_t group;
	struct pawl_engine *e;
	struct pawl_config cfg;
	pawl_var_t v[VARS];
	unsigned int i;
	int fd = -1;

	pawl_config_init(&cfg);
	cfg.workers = threads - 1;
	check(pawl_engine_create(&cfg, &e), "pawl_engine_create");
	/* Limits that are never reached. */
	limits.ops = f->limit ? cfg.max_ops : 0;
	limits.cost = f->limit ? UINT32_MAX : 0;
	check(pawl_group_create(e, &limits, &group), "pawl_group_create");
	op.flags = f->flags;
	op.group.h = f->flags & PAWL_OP_GROUP ? group.h : 0;
	op.ticket = f->flags & PAWL_OP_TICKET ? &ticket : NULL;
	op.deadline_ns = f->flags & PAWL_OP_DEADLINE ? INT64_MAX : 0;
	op.cost = f->flags & PAWL_OP_COST ? 64 : 0;
	for (i = 0; i < VARS; i++)
		check(pawl_var_create(e, &v[i]), "pawl_var_create");
	if (f->record) {
		fd = mkstemp(file);
		if (fd < 0)
			bench_die("no file in /tmp");
	}
	run_with(e, v, f, &op, bench_opts.ops);
	for (i = 0; i < REPS; i++) {
		without[i] = run_with(e, v, NULL, NULL, bench_opts.ops);
		if (f->trace)
			check(pawl_trace_start(e, 1024), "pawl_trace_start");
		if (f->record)
			check(pawl_record_start(file), "pawl_record_start");
		with[i] = run_with(e, v, f, &op, bench_opts.ops);
		if (f->trace)
			check(pawl_trace_stop(e), "pawl_trace_stop");
		if (f->record)
			check(pawl_record_stop(), "pawl_record_stop");
		ratio[i] = with[i] / without[i];
	}
	if (f->record) {
		close(fd);
		unlink(file);
	}
	check(pawl_engine_destroy(e), "pawl_engine_destroy");
	qsort(with, REPS, sizeof(*with), cmp_double);
	qsort(without, REPS, sizeof(*without), cmp_double);
	qsort(ratio, REPS, sizeof(*ratio), cmp_double);
	printf("{\"engine\":\"%s\",\"test\":\"with-%s\",\"ns_op\":%.1f,\"without\":%.1f,\"ratio\":%.3f}\n",
	       engine, f->name, with[REPS / 2], without[REPS / 2], ratio[REPS / 2]);
}

static bool with_test(const char *test, const char *engine, int threads)
{
	unsigned int i;

	if (strncmp(test, "with-", 5))
		return false;
	for (i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
		if (strcmp(test + 5, features[i].name))
			continue;
		measure_with(&features[i], engine, threads);
		return true;
	}
	return false;
}

bool tell_test(const char *test, const char *engine, int threads)
{
	if (!strcmp(test, "tell"))
		measure_tell(engine);
	else if (!strcmp(test, "collect"))
		measure_collect(engine, threads);
	else if (!strcmp(test, "lambda"))
		lambda_measure(engine, threads);
	else
		return with_test(test, engine, threads) || launch_test(test, engine, threads);
	return true;
}
