/* SPDX-License-Identifier: Apache-2.0 */
/* measure.h - the measurements; each prints one JSON line per result. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "work.h"

struct measure {
	const struct bench_engine *e;
	const char *test;
	uint32_t ops, use, samples;	/* use: only the first so many ops; 0: all */
	unsigned int reps, warm, pushers;
	uint64_t seed;
	bool check;
};

void measure_clock(void);
void measure_shape(const struct measure *m);
/* "ping", "wake": the pusher then waits with the engine; "-w": it only looks. */
void measure_latency(const struct measure *m);
void measure_mpush(const struct measure *m);
void measure_metg(const struct measure *m);
void measure_line(const struct measure *m);

#endif /* BENCH_MEASURE_H */
