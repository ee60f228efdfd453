/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.h - an engine that pawl bench measures beside pawl.  A driver is a shared object that
 * defines bench_driver; make bench-drivers builds those of tests/bench.
 */
#ifndef BENCH_DRIVER_H
#define BENCH_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BENCH_DRIVER_VERSION	1u

struct bench_driver {
	unsigned int version;		/* BENCH_DRIVER_VERSION */
	const char *name;
	bool unordered;			/* it does not order ops that write the same var */
	/* An engine with so many workers, and vars from 0.  So many threads will push. */
	void *(*create)(unsigned int pushers, unsigned int workers, uint32_t vars);
	/* Call fn(arg), which pushes, on this thread.  NULL: just call it. */
	void (*enter)(void *e, void (*fn)(void *arg), void *arg);
	/* Push an op that writes the var. */
	void (*push)(void *e, uint32_t var, void (*body)(void *arg), void *arg);
	/* All ops have ended, and no thread pushes. */
	void (*destroy)(void *e);
};

extern const struct bench_driver bench_driver;

#ifdef __cplusplus
}
#endif
#endif /* BENCH_DRIVER_H */
