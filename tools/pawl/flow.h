/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A large recording, op by op (flow.c): in memory are the ops that were in flight at one time, and
 * the vars that existed at one time.
 */
#ifndef PAWL_FLOW_H
#define PAWL_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record.h"

struct flow;

/* A var, as long as an op may name it. */
struct flow_var {
	struct flow_var *next;		/* in the table */
	uint32_t engine, index, gen;
	uint32_t refs;			/* ops that were not given to the caller yet */
	uint32_t number;		/* in the order of the first pushes */
	uint64_t write, reads;		/* the caller's: of its last write, of the reads since then */
	void *user;			/* the caller's */
	uint64_t done_write, done_read;	/* 1 + the last version that an op given out wrote, or read */
	struct flow_slot {
		uint64_t version;
		uint32_t reads;
		bool write;
	} *slots;			/* accesses of ops that began, and were not given out */
	uint32_t first, n, cap;
};

/* An op.  In `one` it is ops[0]; accesses, nodes and succ are its own. */
struct flow_op {
	const struct recording *one;
	struct flow_var **vars;		/* by access */
	uint32_t number;		/* as in struct recording */
	uint64_t place;			/* in the serial order */
};

struct flow_sink {
	/* In the serial order.  Returns 0, or a negative errno, which ends the run. */
	int (*op)(void *ctx, const struct flow_op *o);
	/* When the wait ended, or at the end. */
	void (*wait)(void *ctx, const struct rec_wait *w);
	/* No later op names the var. */
	void (*gone)(void *ctx, struct flow_var *v);
};

/* Recordings of fewer bytes are read as a whole.  Tests set it. */
extern uint64_t flow_min;

/*
 * Open a recording, and check its chunks; a compressed one is copied to a file without a name.
 * Returns 0; 1 if the caller must use workload_load(), because it is no recording, is damaged, or is
 * small; or -ENOMEM.
 */
int flow_open(const char *path, struct flow **f);
void flow_close(struct flow *f);
/*
 * Call the sink for each op.  Returns 0; 1 if the recording contradicts itself, or the clocks of its
 * threads differ by more than a millisecond: the caller must use workload_open(), which says why or
 * reads it; or a negative errno.  The first run finds the numbers of ops, so ops have their numbers
 * from the second run on.
 */
int flow_run(struct flow *f, const struct flow_sink *sink, void *ctx);
/* The numbers of ops, vars and so on, after a run; without the arrays. */
const struct recording *flow_info(const struct flow *f);
/* Of these ops were refused; of the accesses are writes. */
void flow_counts(const struct flow *f, uint64_t *undone, uint64_t *writes);

#endif
