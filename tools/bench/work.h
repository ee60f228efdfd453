/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.h - the work of pawl bench and of make bench: ops on numbered vars, the op lists, their
 * serial answers, and the check.
 */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#else
#include <time.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define BENCH_MAX_VARS_PER_OP	4
#define BENCH_HASH		0x9e3779b97f4a7c15ull

/* What the body of an op does. */
enum bench_body_kind {
	BODY_HASH = 0,		/* hash what is read into what is written */
	BODY_GRAIN,		/* the same, and a busy loop of bench_grain turns */
	BODY_STAMP,		/* note the time of the start */
	BODY_ORDER,		/* the same as HASH, and note the place in each var */
	BODY_WATCH,		/* one of these, and count the op if its own push has not
				   returned */
};

/* One op: reads v[0..nr), writes v[nr..nr + nw).  Made before the clock starts. */
struct bench_op {
	uint8_t nr, nw, kind, pusher;
	uint32_t c;				/* enters the hash: makes order count */
	uint32_t v[BENCH_MAX_VARS_PER_OP];
	uint32_t pos[2];			/* BODY_ORDER: how many wrote before */
};

/* The data behind one var.  One line each: ops on two vars share none. */
struct bench_cell {
	uint64_t v;
	uint32_t writes;	/* BODY_ORDER only */
} __attribute__((aligned(64)));

extern struct bench_cell *bench_cells;
void bench_body_slow(struct bench_op *op);

/* The "empty" op: the least a body can do that still shows every wrong order. */
static inline void bench_hash(const struct bench_op *op)
{
	uint64_t s = op->c;
	unsigned int i;

	for (i = 0; i < op->nr; i++)
		s += bench_cells[op->v[i]].v;
	for (; i < (unsigned int)op->nr + op->nw; i++)
		bench_cells[op->v[i]].v = bench_cells[op->v[i]].v * BENCH_HASH + s;
}

/* Every adapter calls this when its engine runs an op. */
static inline void bench_body(struct bench_op *op)
{
	if (__builtin_expect(op->kind == BODY_HASH, 1))
		bench_hash(op);
	else
		bench_body_slow(op);
}

/* Defined by the program. */
void bench_die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Ticks, and their length; steady and common to all cores (checked by measure.c). */
extern double bench_tick_ns;

static inline uint64_t bench_now(void)
{
#if defined(__x86_64__)
	unsigned int aux;

	return __rdtscp(&aux);
#else
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
#endif
}

static inline void bench_pause(void)
{
#if defined(__x86_64__)
	_mm_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

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

/* The turns of that loop that take so many ns. */
uint32_t work_turns(uint32_t ns);
/* Measure the length of a tick.  Takes 20 ms. */
void work_clock(void);

#ifdef __cplusplus
}
#endif
#endif /* BENCH_WORK_H */
