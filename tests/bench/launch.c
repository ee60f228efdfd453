// SPDX-License-Identifier: Apache-2.0
/*
 * launch.c - ns per op of ops that are described once and launched as a graph, beside the same
 * ops pushed one by one, in turns in one process: until all are complete, and the calls alone.
 *
 *   graph-chain      ops that write one var
 *   graph-fan        one op, ops that read what it wrote, and one that reads theirs
 *   graph-private    the same with vars that belong to the launch, and args: four at a time
 *   graph-cholesky   a step of a tiled factorization: one tile, its column, all that is left
 */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

#include <pawl/engine.h>

#include "bench.h"
#include "tell.h"

#define REPS	9
#define SETS	4		/* launches before a wait */
#define NODES	64
#define ACCS	64		/* of an op */
#define VARS	128
#define TILES	8		/* in a column */

/* The ops with numbers for vars, and the same ops for pushes and for the graph. */
struct list {
	unsigned int n, nvars;
	unsigned int nreads[NODES], acc[NODES][ACCS], nacc[NODES];
};

static uint64_t cells[SETS][NODES][8];

static void check(int err, const char *what)
{
	if (err < 0)
		bench_die("%s: %d: %s", what, err, pawl_error_text());
}

static int count_body(struct pawl_run *run, void *arg)
{
	(void)run;
	++*(uint64_t *)arg;
	return 0;
}

static void reads(struct list *l, unsigned int var)
{
	l->acc[l->n][l->nacc[l->n]++] = var;
	l->nreads[l->n]++;
}

static void writes(struct list *l, unsigned int var)
{
	l->acc[l->n][l->nacc[l->n]++] = var;
	l->n++;
	if (l->nvars <= var)
		l->nvars = var + 1;
}

static void make_chain(struct list *l)
{
	while (l->n < NODES)
		writes(l, 0);
}

static void make_fan(struct list *l)
{
	unsigned int i;

	writes(l, 0);
	while (l->n < NODES - 1) {
		reads(l, 0);
		writes(l, l->n);
	}
	for (i = 1; i < NODES - 1; i++)
		reads(l, i);
	writes(l, NODES - 1);
}

static void make_cholesky(struct list *l)
{
	unsigned int i, k;

	writes(l, 0);
	for (i = 1; i < TILES; i++) {
		reads(l, 0);
		writes(l, i * TILES);
	}
	for (i = 1; i < TILES; i++) {
		for (k = 1; k <= i; k++) {
			reads(l, i * TILES);
			if (i != k)
				reads(l, k * TILES);
			writes(l, i * TILES + k);
		}
	}
}

static const struct shape {
	const char *name;
	void (*make)(struct list *l);
	bool own;			/* launches share no var */
} shapes[] = {
	{ "chain", make_chain, false },
	{ "fan", make_fan, false },
	{ "private", make_fan, true },
	{ "cholesky", make_cholesky, false },
};

struct side {
	double all, call;		/* ns per op */
};

struct bench {
	struct pawl_engine *e;
	unsigned int n, sets, rounds;
	struct pawl_op op[SETS][NODES];		/* those of set 0 without own vars */
	void *args[SETS][NODES];
	pawl_var_t acc[SETS + 1][NODES][ACCS];
	pawl_graph_t graph;
	struct pawl_launch how[SETS];
};

/* Ops on vars v; cells of the set. */
static void fill(struct bench *b, const struct list *l, const pawl_var_t *v, unsigned int set,
		 struct pawl_op *op)
{
	unsigned int i, k;

	for (i = 0; i < l->n; i++) {
		for (k = 0; k < l->nacc[i]; k++)
			b->acc[set][i][k] = v[l->acc[i][k]];
		op[i] = (struct pawl_op)PAWL_OP_INIT;
		op[i].fn = count_body;
		op[i].arg = cells[set % SETS][i];
		op[i].reads = b->acc[set][i];
		op[i].nreads = l->nreads[i];
		op[i].writes = b->acc[set][i] + l->nreads[i];
		op[i].nwrites = 1;
	}
}

static void prepare(struct bench *b, const struct shape *s, const struct list *l)
{
	static const pawl_var_t none[VARS];
	struct pawl_op node[NODES];
	unsigned int set, i;
	pawl_var_t v[VARS];

	b->n = l->n;
	b->sets = s->own ? SETS : 1;
	for (set = 0; set < b->sets; set++) {
		for (i = 0; i < l->nvars; i++)
			check(pawl_var_create(b->e, &v[i]), "pawl_var_create");
		fill(b, l, v, set, b->op[set]);
		for (i = 0; i < l->n; i++)
			b->args[set][i] = cells[set][i];
		b->how[set] = (struct pawl_launch){
			.size = sizeof(b->how[0]), .vars = none, .nvars = l->nvars,
			.args = b->args[set], .nargs = l->n,
		};
	}
	if (s->own) {
		for (i = 0; i < l->nvars; i++)
			v[i] = (pawl_var_t)PAWL_SLOT(i);
		fill(b, l, v, SETS, node);
	}
	check(pawl_graph_create(b->e, s->own ? node : b->op[0], l->n, 0, &b->graph),
	      "pawl_graph_create");
}

static struct side run(const struct bench *b, bool graph)
{
	uint64_t t0, t1, t2, call = 0, all = 0;
	double per = bench_tick_ns / ((double)b->rounds * SETS * b->n);
	unsigned int r, k, i;

	for (r = 0; r < b->rounds; r++) {
		t0 = bench_now();
		for (k = 0; k < SETS; k++) {
			unsigned int set = k % b->sets;

			if (graph) {
				check(pawl_graph_push(b->e, b->graph,
						      b->sets > 1 ? &b->how[set] : NULL),
				      "pawl_graph_push");
				continue;
			}
			for (i = 0; i < b->n; i++)
				check(pawl_push(b->e, &b->op[set][i]), "pawl_push");
		}
		t1 = bench_now();
		check(pawl_wait_all(b->e, -1, NULL), "pawl_wait_all");
		t2 = bench_now();
		call += t1 - t0;
		all += t2 - t0;
	}
	return (struct side){ (double)all * per, (double)call * per };
}

/* Each body ran once per round, set and side. */
static void verify(const struct bench *b)
{
	uint64_t want = (uint64_t)b->rounds * (SETS / b->sets) * 2 * (REPS + 1);
	unsigned int set, i;

	for (set = 0; set < b->sets; set++)
		for (i = 0; i < b->n; i++)
			if (cells[set][i][0] != want)
				bench_die("op %u ran %llu times, not %llu", i,
					  (unsigned long long)cells[set][i][0],
					  (unsigned long long)want);
}

static int cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v)
{
	qsort(v, REPS, sizeof(*v), cmp_double);
	return v[REPS / 2];
}

static void measure(const struct shape *s, const char *engine, int threads)
{
	double with[REPS], without[REPS], ratio[REPS], call[REPS];
	struct bench *b = calloc(1, sizeof(*b));
	struct list *l = calloc(1, sizeof(*l));
	struct pawl_config cfg;
	unsigned int i;

	if (!b || !l)
		bench_die("out of memory");
	s->make(l);
	pawl_config_init(&cfg);
	cfg.workers = threads - 1;
	cfg.window_policy = PAWL_WINDOW_BLOCK;	/* so that a call runs no bodies */
	check(pawl_engine_create(&cfg, &b->e), "pawl_engine_create");
	prepare(b, s, l);
	b->rounds = bench_opts.ops / (SETS * b->n) + 1;
	run(b, true);
	run(b, false);
	for (i = 0; i < REPS; i++) {
		struct side push = run(b, false), launch = run(b, true);

		with[i] = launch.all;
		without[i] = push.all;
		ratio[i] = launch.all / push.all;
		call[i] = launch.call / push.call;
	}
	verify(b);
	check(pawl_engine_destroy(b->e), "pawl_engine_destroy");
	printf("{\"engine\":\"%s\",\"test\":\"graph-%s\",\"ns_op\":%.1f,\"without\":%.1f,",
	       engine, s->name, median(with), median(without));
	printf("\"ratio\":%.3f,\"ratio_call\":%.3f}\n", median(ratio), median(call));
	free(b);
	free(l);
}

bool launch_test(const char *test, const char *engine, int threads)
{
	unsigned int i;

	if (strncmp(test, "graph-", 6))
		return false;
	for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		if (strcmp(test + 6, shapes[i].name))
			continue;
		measure(&shapes[i], engine, threads);
		return true;
	}
	return false;
}
