// SPDX-License-Identifier: Apache-2.0
/* eng_pawl.c - pawl, by its public header only. */
#include <errno.h>
#include <stdlib.h>

#include <pawl/engine.h>

#include "bench.h"

#define PAWL_OPS_LIMIT	((1u << 20) - 4096)

static struct pawl_engine *eng;
static pawl_var_t *vars;
static uint32_t nvars;

static void check(int err, const char *what)
{
	if (err)
		bench_die("%s: %d: %s", what, err, pawl_error_text());
}

static void create_kind(int kind, int workers)
{
	struct pawl_config cfg;
	int cpus[8], i;

	pawl_config_init(&cfg);
	cfg.kind = kind;
	cfg.workers = workers;
	cfg.no_help = bench_opts.no_help;
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
	cfg.leave_ns = bench_opts.leave_ns;
	if (bench_opts.pin && workers > 0) {
		/* the pusher has CPU 0 */
		for (i = 0; i < workers && i < 8; i++)
			cpus[i] = bench_cpu(i + 1);
		cfg.cpus = cpus;
		cfg.ncpus = (unsigned int)i;
	}
	check(pawl_engine_create(&cfg, &eng), "pawl_engine_create");
}

/* threads as the tables count them: with help, the pusher is one of them */
static void create_help(int threads)
{
	create_kind(PAWL_PER_DEVICE, threads - 1);
}

/* the same for a host that knows that its ops are short */
static void create_leave(int threads)
{
	if (!bench_opts.leave_ns)
		bench_opts.leave_ns = 30000;
	create_help(threads);
}

static void create_workers(int threads)
{
	create_kind(PAWL_PER_DEVICE, threads);
}

static void create_naive(int threads)
{
	(void)threads;
	create_kind(PAWL_NAIVE, 0);
}

static void drop_vars(void)
{
	while (nvars)
		check(pawl_var_delete(eng, vars[--nvars], NULL, NULL), "pawl_var_delete");
	free(vars);
	vars = NULL;
}

static void make_vars(uint32_t n)
{
	drop_vars();
	check(pawl_wait_all(eng, -1, NULL), "pawl_wait_all");
	vars = calloc(n, sizeof(*vars));
	if (!vars)
		bench_die("out of memory");
	while (nvars < n)
		check(pawl_var_create(eng, &vars[nvars++]), "pawl_var_create");
}

static int body(struct pawl_run *run, void *arg)
{
	(void)run;
	bench_body(arg);
	return 0;
}

static void push(struct bench_op *op)
{
	pawl_var_t v[BENCH_MAX_VARS_PER_OP];
	struct pawl_op p = PAWL_OP_INIT;
	unsigned int i, n = (unsigned int)op->nr + op->nw;
	int err;

	for (i = 0; i < n; i++)
		v[i] = vars[op->v[i]];
	p.fn = body;
	p.arg = op;
	p.reads = v;
	p.nreads = op->nr;
	p.writes = v + op->nr;
	p.nwrites = op->nw;
	while ((err = pawl_push(eng, &p)) == -EAGAIN || err == -ENOMEM)
		pawl_run_one(eng);	/* --policy fail, or more ops than the engine holds */
	check(err, "pawl_push");
}

static void wait_all(void)
{
	check(pawl_wait_all(eng, -1, NULL), "pawl_wait_all");
}

static void destroy(void)
{
	drop_vars();
	check(pawl_engine_destroy(eng), "pawl_engine_destroy");
}

#define PAWL(n, t, f, c) {						\
	.name = n, .threads = t, .flags = BENCH_MANY_PUSHERS | (f),	\
	.create = c, .vars = make_vars, .push = push,			\
	.wait = wait_all, .destroy = destroy,				\
}

static const struct bench_engine pawl_help = PAWL("pawl-help", 2, BENCH_HAS_WORKER, create_help);
static const struct bench_engine pawl_leave = PAWL("pawl-leave", 2, BENCH_HAS_WORKER, create_leave);
static const struct bench_engine pawl_2w = PAWL("pawl-2w", 2, BENCH_HAS_WORKER, create_workers);
static const struct bench_engine pawl_1 = PAWL("pawl-1", 1, 0, create_help);
static const struct bench_engine pawl_naive = PAWL("pawl-naive", 1, 0, create_naive);

const struct bench_engine *const bench_engines[] = {
	&pawl_help, &pawl_leave, &pawl_2w, &pawl_1, &pawl_naive, NULL
};
