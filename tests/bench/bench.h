/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - the work, and what an engine must offer to be measured on it.
 *
 * One binary per run-time library (two OpenMP libraries do not fit in one
 * process); each links main.c, work.c, measure.c and one eng_*.c, which defines
 * bench_engines[].  run.py starts them in turns and compares what they print.
 */
#ifndef BENCH_H
#define BENCH_H

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

/* Options that reach the adapters. */
struct bench_opts {
	uint32_t ops;			/* the largest number in flight */
	bool pin;
	/* pawl only; below 0: the engine's default */
	long window, spin_ns;
	int policy;
	bool prefault;
};

extern struct bench_opts bench_opts;

enum bench_engine_flags {
	BENCH_MANY_PUSHERS = 1,	/* push may be called from several threads */
	BENCH_HAS_WORKER = 2,	/* an op can start while the pusher does not help */
};

/*
 * Engines of which there may be several, and which any threads drive that call them.  step
 * pushes an op and runs one.  start makes n asynchronous ops run; complete ends n of these.
 */
struct bench_host {
	bool unordered;			/* two ops on one var are not ordered */
	void *(*create)(int threads, int workers, uint32_t vars);
	void (*enter)(void *h, void (*fn)(void *), void *arg);	/* NULL: just call fn(arg) */
	void (*push)(void *h, struct bench_op *op);
	void (*step)(void *h, struct bench_op *op);
	void (*wait)(void *h);
	void (*start)(void *h, uint32_t n);	/* these two may be NULL */
	void (*complete)(void *h, uint32_t n);
	void (*destroy)(void *h);
};

/*
 * One engine.  Calls come in this order: create, then any number of
 * [vars, enter(push..., wait), reset], then destroy.  Nothing but push and wait
 * happens while the clock runs.
 */
struct bench_engine {
	const char *name;
	int threads;			/* threads, as the tables count them */
	unsigned int flags;
	/* "K=V" or "K" (unset), as they must stand before main(); or NULL */
	const char *const *env;
	void (*create)(int threads);
	void (*vars)(uint32_t n);	/* vars 0..n-1 exist, cell i behind var i */
	void (*enter)(void (*fn)(void *), void *arg);	/* NULL: just call fn(arg) */
	void (*push)(struct bench_op *op);
	void (*wait)(void);		/* wait until all pushed ops are complete */
	void (*reset)(void);		/* forget finished ops; may be NULL */
	void (*destroy)(void);
	const struct bench_host *host;	/* may be NULL */
	/* Tests of this library only; returns false if it is none of them.  May be NULL. */
	bool (*own_test)(const char *test, const char *engine, int threads);
};

extern const struct bench_engine *const bench_engines[];
extern const struct bench_engine bench_serial;

void bench_die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* With --pin: put the calling thread on the k-th allowed CPU. */
void bench_pin_self(int k);
/* The k-th allowed CPU. */
int bench_cpu(int k);

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

#ifdef __cplusplus
}
#endif
#endif /* BENCH_H */
