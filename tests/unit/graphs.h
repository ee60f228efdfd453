/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of graphs share. */
#ifndef TESTS_UNIT_GRAPHS_H
#define TESTS_UNIT_GRAPHS_H

#include "util.h"
#include <core/engine.h>

#define SLOT(i) ((pawl_var_t)PAWL_SLOT(i))
#define R(...) .reads = VARS(__VA_ARGS__), .nreads = COUNT(VARS(__VA_ARGS__))
#define W(...) .writes = VARS(__VA_ARGS__), .nwrites = COUNT(VARS(__VA_ARGS__))
#define OP(fn_, arg_, ...) { .size = sizeof(struct pawl_op), .fn = (fn_), .arg = (arg_), __VA_ARGS__ }

static inline pawl_graph_t graph_new(struct pawl_engine *e, const struct pawl_op *op, size_t n)
{
	pawl_graph_t g = { 0 };

	OK(pawl_graph_create(e, op, n, 0, &g));
	return g;
}

static inline struct pawl_launch launch_init(void)
{
	return (struct pawl_launch){ .size = sizeof(struct pawl_launch) };
}

struct meeting {
	u32 in;			/* A */
	u32 want;
};

/* Returns when so many bodies are inside at the same time. */
static inline int meet(struct pawl_run *run, void *arg)
{
	struct meeting *m = arg;

	fetch_add_acq_rel(&m->in, 1);
	MUST(soon(load_acquire(&m->in) >= m->want));
	return 0;
}

/* Each op notes its place among those that have run. */
struct place {
	u32 *clock;		/* A */
	u32 at;
};

static inline int note_place(struct pawl_run *run, void *arg)
{
	struct place *p = arg;

	p->at = fetch_add_acq_rel(p->clock, 1) + 1;
	return 0;
}

#endif
