// SPDX-License-Identifier: Apache-2.0
/* eng_twin.c - the mutex twin: a pusher, and one or two workers. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "twin/twin.h"

static struct twin_engine *eng;
static struct twin_var **vars;
static uint32_t nvars;

static void pin_worker(int index)
{
	bench_pin_self(index + 1);
}

static void create(int threads)
{
	eng = twin_create(threads, pin_worker);
}

static void drop_vars(void)
{
	while (nvars)
		twin_var_delete(eng, vars[--nvars]);
	free(vars);
	twin_wait_for_all(eng);
}

static void make_vars(uint32_t n)
{
	drop_vars();
	vars = calloc(n, sizeof(struct twin_var *));
	if (!vars)
		bench_die("out of memory");
	while (nvars < n)
		vars[nvars++] = twin_var_new(eng);
}

static void body(void *closure, struct twin_done done)
{
	struct bench_op *op;

	memcpy(&op, closure, sizeof(op));
	bench_body(op);
	twin_done(done, 0);
}

static void push(struct bench_op *op)
{
	struct twin_var *v[BENCH_MAX_VARS_PER_OP];
	unsigned int i, n = (unsigned int)op->nr + op->nw;

	for (i = 0; i < n; i++)
		v[i] = vars[op->v[i]];
	twin_push_async(eng, body, &op, sizeof(op), v, op->nr, v + op->nr, op->nw,
			TWIN_NORMAL, 0);
}

static void wait_all(void)
{
	twin_wait_for_all(eng);
}

static void destroy(void)
{
	drop_vars();
	twin_destroy(eng);
}

#define TWIN(n, t) {							\
	.name = n, .threads = t,					\
	.flags = BENCH_MANY_PUSHERS | BENCH_HAS_WORKER,			\
	.create = create, .vars = make_vars, .push = push,		\
	.wait = wait_all, .destroy = destroy,				\
}

static const struct bench_engine twin_2w = TWIN("twin-2w", 2);
static const struct bench_engine twin_1w = TWIN("twin-1w", 1);

const struct bench_engine *const bench_engines[] = { &twin_2w, &twin_1w, NULL };
