/* SPDX-License-Identifier: Apache-2.0 */
/* Pushing a recorded workload again (replay.c). */
#ifndef PAWL_REPLAY_H
#define PAWL_REPLAY_H

#include <stdbool.h>
#include <stdint.h>
#include <pawl/engine.h>

#include "source.h"

struct replay_options {
	int kind;		/* enum pawl_kind */
	int workers;		/* threads that run bodies; 0: the one that pushes; negative: the
				   default */
	double speed;		/* bodies take the recorded time divided by it; 0: none */
	bool sleep;		/* bodies sleep instead of keeping a processor busy */
};

struct replay_result {
	uint64_t ops, accesses;	/* run, and checked */
	uint64_t edges;		/* checked */
	uint64_t bodies;	/* of launches */
	uint64_t wrong;		/* accesses of another version or not alone, violated edges */
	char first[160];	/* description of the first */
	unsigned int threads;	/* that ran bodies */
	uint64_t ns;		/* from the first push to the last completion */
};

/* Before a replay: check that the ops have an order; *devices: CPU devices that they need. */
int replay_check(struct source *s, uint32_t *devices);
/*
 * Push the ops of the source on a new engine, from this thread.  Every body compares the position of
 * each of its accesses with that in the serial order; result->wrong counts differences.  Returns 0, or
 * a negative errno if the replay itself failed; the text is that of the source.
 */
int replay_source(struct source *s, uint32_t devices, const struct replay_options *opt,
		  struct replay_result *result);
/* The same for order[0..n) of a recording in memory (rec_order()). */
int replay_run(const struct recording *r, const uint32_t *order, size_t n,
	       const struct replay_options *opt, struct replay_result *result, char *err,
	       size_t errlen);

#endif
