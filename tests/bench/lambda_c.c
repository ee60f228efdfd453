// SPDX-License-Identifier: Apache-2.0
/* lambda_c.c - what lambda.cc does, in C. */
#include <stdlib.h>

#include "bench.h"
#include "lambda.h"

static void check(int err, const char *what)
{
	if (err < 0)
		bench_die("%s: %d: %s", what, err, pawl_error_text());
}

static int body_pointer(struct pawl_run *run, void *arg)
{
	(void)run;
	++*(uint64_t *)arg;
	return 0;
}

static int body_words(struct pawl_run *run, void *arg)
{
	const struct lambda_words *w = arg;

	(void)run;
	*w->to += *w->a + *w->b;
	return 0;
}

static int body_owner(struct pawl_run *run, void *arg)
{
	struct lambda_words *w = arg;

	(void)run;
	*w->to += *w->a + *w->b;
	free(w);
	return 0;
}

/* As the manual describes an op, or with a struct that keeps what does not change. */
static inline void push(struct lambda *l, struct pawl_op *op, uint32_t k, pawl_fn fn, void *arg)
{
	if (!l->keep)
		*op = (struct pawl_op)PAWL_OP_INIT;
	op->fn = fn;
	op->arg = arg;
	op->writes = &l->v[k];
	op->nwrites = 1;
	check(pawl_push(l->e, op), "pawl_push");
}

static void pointer(struct lambda *l)
{
	struct pawl_op op = PAWL_OP_INIT;
	uint32_t i;

	for (i = 0; i < l->n; i++)
		push(l, &op, i % LAMBDA_VARS, body_pointer, l->cell[i % LAMBDA_VARS]);
}

static void words(struct lambda *l)
{
	struct pawl_op op = PAWL_OP_INIT;
	uint32_t i, k;

	for (i = 0; i < l->n; i++) {
		k = i % LAMBDA_VARS;
		l->words[i] = (struct lambda_words){ &l->cell[k][0], &l->cell[k][1],
						     &l->cell[k][2] };
		push(l, &op, k, body_words, &l->words[i]);
	}
}

static void owner(struct lambda *l)
{
	struct pawl_op op = PAWL_OP_INIT;
	struct lambda_words *w;
	uint32_t i, k;

	for (i = 0; i < l->n; i++) {
		k = i % LAMBDA_VARS;
		w = malloc(sizeof(*w));
		if (!w)
			bench_die("no memory");
		*w = (struct lambda_words){ &l->cell[k][0], &l->cell[k][1], &l->cell[k][2] };
		push(l, &op, k, body_owner, w);
	}
}

const lambda_fn lambda_c[LAMBDA_KINDS] = { pointer, words, owner };
