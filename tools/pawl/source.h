/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of any workload in their serial order: of a large recording op by op, of others from memory. */
#ifndef PAWL_SOURCE_H
#define PAWL_SOURCE_H

#include "flow.h"

struct source {
	const char *path;
	struct flow *flow;	/* NULL: the workload is in memory */
	struct recording mem;
	bool borrowed;		/* it, and the order, are the caller's */
	uint32_t *order;
	size_t n;
	struct flow_var *vars, **named;	/* all, and those of the present op */
	uint64_t *place;	/* in memory: of each op in the order */
	size_t *edge;		/* and its edges: r->edges[edge_of[edge[op]]] to those of the next op */
	size_t *edge_of;
	char *err;
	size_t errlen;
};

int source_open(struct source *s, const char *path, char *err, size_t errlen);
/* A workload in memory.  It and its order remain the caller's, and must live as long as the source. */
int source_of(struct source *s, const struct recording *r, const uint32_t *order, size_t n, char *err,
	      size_t errlen);
void source_close(struct source *s);
/*
 * Before a run that cannot be repeated: check that the ops have an order, so that the run needs no
 * again().  A run after it also has the numbers of ops.
 */
int source_check(struct source *s);
/*
 * Call the sink for each op, and for each wait.  Returns 0, or a negative errno.  again() is called
 * before the ops are given out from the start once more.
 */
int source_run(struct source *s, const struct flow_sink *sink, void *ctx, void (*again)(void *ctx));
/* Numbers of ops, vars and so on; of a large recording after a run. */
const struct recording *source_info(const struct source *s);
void source_counts(const struct source *s, uint64_t *undone, uint64_t *writes);

#endif
