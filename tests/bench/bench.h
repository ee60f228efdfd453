/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - what an engine must offer to be measured on the work of tools/bench/work.h.
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

#include "work.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* With --pin: put the calling thread on the k-th allowed CPU. */
void bench_pin_self(int k);
/* Let the calling thread use all CPUs again, and the threads that it creates. */
void bench_unpin_self(void);
/* The k-th allowed CPU. */
int bench_cpu(int k);

#ifdef __cplusplus
}
#endif
#endif /* BENCH_H */
