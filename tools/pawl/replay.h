/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded workload, pushed again (replay.c). */
#ifndef PAWL_REPLAY_H
#define PAWL_REPLAY_H

#include <stdbool.h>
#include <stdint.h>
#include <pawl/engine.h>

#include "record.h"

struct replay_options {
	int kind;		/* enum pawl_kind */
	int workers;		/* negative: the default */
	double speed;		/* bodies take the recorded time divided by it; 0: none */
	bool sleep;		/* they sleep, instead of keeping a processor busy */
};

struct replay_result {
	uint64_t ops, accesses;	/* run, and checked */
	uint64_t edges;		/* checked */
	uint64_t wrong;		/* accesses at another place, not alone, or edges the wrong way */
	char first[160];	/* what was the first */
	uint64_t ns;		/* from the first push until all was over */
};

/*
 * Push order[0..n) (rec_order()) on an engine of its own, from this thread.  Every body
 * compares the place of each of its accesses with the recorded one.  0, or a negative
 * errno: the replay itself failed.  Something in the wrong order is counted in
 * result->wrong.
 */
int replay_run(const struct recording *r, const uint32_t *order, size_t n,
	       const struct replay_options *opt, struct replay_result *result, char *err,
	       size_t errlen);

#endif
