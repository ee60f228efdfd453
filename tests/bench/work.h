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

/* NULL if there is no such shape.  n is a wish: cholesky comes in whole tiles. */
struct work *work_make(const char *shape, uint32_t n, uint64_t seed);
/* The list of mpush; no answer: any serial order of the pushers will do. */
struct work *work_make_mpush(uint32_t n, unsigned int pushers, uint64_t seed);
void work_free(struct work *w);
/* Put every cell back to where a run starts. */
void work_reset(struct work *w);
void work_set_kind(struct work *w, enum bench_body_kind kind);
/* The bodies do not change, and each checks that its own push has returned. */
void work_watch(struct work *w);
/* 0, or 1 + the first cell that differs from the serial answer. */
uint32_t work_check(const struct work *w);
/* NULL, or what is wrong: not serializable, or not in the order of a pusher. */
const char *work_check_mpush(struct work *w, unsigned int pushers);

/* Turns of the busy loop of BODY_GRAIN. */
extern uint32_t bench_grain;
/* Where BODY_STAMP notes its start: 0 before. */
extern uint64_t bench_stamp;
/* BODY_WATCH: the op whose push has not returned on this thread; NULL: none. */
extern __thread const struct bench_op *bench_pushing;
/* How many bodies looked, and how many of them ran inside their own push. */
extern uint32_t bench_watched, bench_in_push;

#endif /* BENCH_WORK_H */
