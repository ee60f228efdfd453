// SPDX-License-Identifier: Apache-2.0
/* eng_pawl.c - pawl, by its public header only. */
#include <errno.h>
#include <stdlib.h>

#include <pawl/engine.h>

#include "bench.h"
#include "tell.h"

#define PAWL_OPS_LIMIT	((1u << 20) - 4096)

struct host {
	struct pawl_engine *eng;
	pawl_var_t *vars;
	uint32_t nvars, tokens;
	pawl_token_t *token;
};

static struct host the;

static void check(int err, const char *what)
{
	if (err)
		bench_die("%s: %d: %s", what, err, pawl_error_text());
}

static void create_kind(struct host *h, int kind, int workers)
{
	struct pawl_config cfg;
	int cpus[8], i;

	/* The default of spin_ns follows the CPUs that all threads of the program may use. */
	bench_unpin_self();
	pawl_config_init(&cfg);
	bench_pin_self(0);
	cfg.kind = kind;
	cfg.workers = workers;
	cfg.prefault = bench_opts.prefault;
	/* a whole list must fit, and the ops that delete vars */
	if (bench_opts.ops > cfg.max_ops)
		cfg.max_ops = bench_opts.ops < PAWL_OPS_LIMIT ? bench_opts.ops : PAWL_OPS_LIMIT;
	if (bench_opts.window >= 0)
		cfg.window = (unsigned int)bench_opts.window;
	if (bench_opts.policy >= 0)
		cfg.window_policy = bench_opts.policy;
	if (bench_opts.spin_ns >= 0)
		cfg.spin_ns = (uint64_t)bench_opts.spin_ns;
	if (bench_opts.pin && workers > 0) {
		/* the pusher has CPU 0 */
		for (i = 0; i < workers && i < 8; i++)
			cpus[i] = bench_cpu(i + 1);
		cfg.cpus = cpus;
		cfg.ncpus = (unsigned int)i;
	}
	check(pawl_engine_create(&cfg, &h->eng), "pawl_engine_create");
}

/* threads as the tables count them: with help, the pusher is one of them */
static void create_help(int threads)
{
	create_kind(&the, PAWL_PER_DEVICE, threads - 1);
}

static void create_workers(int threads)
{
	create_kind(&the, PAWL_PER_DEVICE, threads);
}

static void create_naive(int threads)
{
	(void)threads;
	create_kind(&the, PAWL_NAIVE, 0);
}

/*
 * The engine of a program that sets nothing: its workers may use the CPUs of the thread that
 * creates it, so that one is not pinned.
 */
static void create_default(int threads)
{
	(void)threads;
	bench_unpin_self();
	check(pawl_engine_create(NULL, &the.eng), "pawl_engine_create");
}

static void host_wait(void *arg)
{
	struct host *h = arg;

	check(pawl_wait_all(h->eng, -1, NULL), "pawl_wait_all");
}

static void drop_vars(struct host *h)
{
	while (h->nvars)
		check(pawl_var_delete(h->eng, h->vars[--h->nvars], NULL, NULL),
		      "pawl_var_delete");
	free(h->vars);
	h->vars = NULL;
}

static void host_vars(struct host *h, uint32_t n)
{
	drop_vars(h);
	host_wait(h);
	h->vars = calloc(n, sizeof(*h->vars));
	if (!h->vars)
		bench_die("out of memory");
	while (h->nvars < n)
		check(pawl_var_create(h->eng, &h->vars[h->nvars++]), "pawl_var_create");
}

static int body(struct pawl_run *run, void *arg)
{
	(void)run;
	bench_body(arg);
	return 0;
}

static inline void push_to(struct host *h, struct bench_op *op)
{
	pawl_var_t v[BENCH_MAX_VARS_PER_OP];
	struct pawl_op p = PAWL_OP_INIT;
	unsigned int i, n = (unsigned int)op->nr + op->nw;
	int err;

	for (i = 0; i < n; i++)
		v[i] = h->vars[op->v[i]];
	p.fn = body;
	p.arg = op;
	p.reads = v;
	p.nreads = op->nr;
	p.writes = v + op->nr;
	p.nwrites = op->nw;
	while ((err = pawl_push(h->eng, &p)) == -EAGAIN || err == -ENOMEM)
		pawl_run_one(h->eng);	/* --policy fail, or more ops than the engine holds */
	check(err, "pawl_push");
}

static void host_destroy(void *arg)
{
	struct host *h = arg;

	drop_vars(h);
	check(pawl_engine_destroy(h->eng), "pawl_engine_destroy");
	if (h != &the) {
		free(h->token);
		free(h);
	}
}

static void make_vars(uint32_t n)
{
	host_vars(&the, n);
}

static void push(struct bench_op *op)
{
	push_to(&the, op);
}

static void wait_all(void)
{
	host_wait(&the);
}

static void destroy(void)
{
	host_destroy(&the);
}

static void *host_create(int threads, int workers, uint32_t n)
{
	struct host *h = calloc(1, sizeof(*h));

	(void)threads;
	if (!h)
		bench_die("out of memory");
	create_kind(h, PAWL_PER_DEVICE, workers);
	host_vars(h, n);
	return h;
}

static void host_push(void *h, struct bench_op *op)
{
	push_to(h, op);
}

/*
 * A thread that was stopped for a moment may find that another one has run its op.  It then
 * runs two at its next step: otherwise each op would be pushed behind one that waits from
 * there on, and the test would measure another thing for the rest of the run.
 */
static void host_step(void *arg, struct bench_op *op)
{
	static __thread unsigned int owed;
	struct host *h = arg;

	push_to(h, op);
	owed++;
	while (owed && pawl_run_one(h->eng) > 0)
		owed--;
}

static void keep_token(struct pawl_run *run, void *arg)
{
	__atomic_store_n((uint64_t *)arg, run->token.h, __ATOMIC_RELEASE);
}

/*
 * Ops without vars, since the completion of an op is measured.  The first call has the largest
 * n.
 */
static void host_start(void *arg, uint32_t n)
{
	struct pawl_op p = PAWL_OP_INIT;
	struct host *h = arg;
	uint32_t i;

	if (!h->token)
		h->token = calloc(n, sizeof(*h->token));
	if (!h->token)
		bench_die("out of memory");
	p.async_fn = keep_token;
	for (i = h->tokens; i < h->tokens + n; i++) {
		h->token[i].h = 0;
		p.arg = &h->token[i];
		check(pawl_push(h->eng, &p), "pawl_push");
	}
	for (i = h->tokens; i < h->tokens + n; i++)
		while (!__atomic_load_n(&h->token[i].h, __ATOMIC_ACQUIRE))
			pawl_run_one(h->eng);
	h->tokens += n;
}

static void host_complete(void *arg, uint32_t n)
{
	struct host *h = arg;

	while (n--)
		check(pawl_complete(h->eng, h->token[--h->tokens], 0, NULL), "pawl_complete");
}

static const struct bench_host host = {
	.create = host_create, .push = host_push, .step = host_step, .wait = host_wait,
	.start = host_start, .complete = host_complete, .destroy = host_destroy,
};

#define PAWL(n, t, f, c) {						\
	.name = n, .threads = t, .flags = BENCH_MANY_PUSHERS | (f),	\
	.create = c, .vars = make_vars, .push = push,			\
	.wait = wait_all, .destroy = destroy, .host = &host,		\
	.own_test = tell_test,						\
}

static const struct bench_engine pawl_default =
	PAWL("pawl-default", 2, BENCH_HAS_WORKER, create_default);
static const struct bench_engine pawl_help = PAWL("pawl-help", 2, BENCH_HAS_WORKER, create_help);
static const struct bench_engine pawl_2w = PAWL("pawl-2w", 2, BENCH_HAS_WORKER, create_workers);
static const struct bench_engine pawl_1 = PAWL("pawl-1", 1, 0, create_help);
static const struct bench_engine pawl_naive = PAWL("pawl-naive", 1, 0, create_naive);

const struct bench_engine *const bench_engines[] = {
	&pawl_default, &pawl_help, &pawl_2w, &pawl_1, &pawl_naive, NULL
};
