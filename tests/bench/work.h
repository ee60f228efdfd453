/* SPDX-License-Identifier: Apache-2.0 */
/* work.h - the op lists, their serial answers, and the check. */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include "bench.h"

struct work {
	const char *name;
	struct bench_op *ops;
	uint32_t n;
	uint32_t nvars;
	uint64_t *answer;	/* cell i after a serial run */
};

/*
 * Returns NULL if there is no such shape.  The list may have fewer ops than n: cholesky has
 * whole tiles.
 */
struct work *work_make(const char *shape, uint32_t n, uint64_t seed);
/* The list of mpush, without an answer: any serial order of the pushers is right. */
struct work *work_make_mpush(uint32_t n, unsigned int pushers, uint64_t seed);
void work_free(struct work *w);
/* Reset every cell to its value at the start of a run. */
void work_reset(struct work *w);
void work_set_kind(struct work *w, enum bench_body_kind kind);
/* The bodies do not change, and each checks that its own push has returned. */
void work_watch(struct work *w);
/* Returns 0, or 1 + the first cell that differs from the serial answer. */
uint32_t work_check(const struct work *w);
/* Returns NULL, or a text: not serializable, or not in the order of a pusher. */
const char *work_check_mpush(struct work *w, unsigned int pushers);

/* Turns of the busy loop of BODY_GRAIN. */
extern uint32_t bench_grain;
/* Where BODY_STAMP notes its start: 0 before. */
extern uint64_t bench_stamp;
/* BODY_WATCH: the op whose push has not returned on this thread; NULL: none. */
extern __thread const struct bench_op *bench_pushing;
/* The number of bodies that checked, and of those that ran inside their own push. */
extern uint32_t bench_watched, bench_in_push;

#endif /* BENCH_WORK_H */
