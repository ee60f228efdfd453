/* SPDX-License-Identifier: Apache-2.0 */
/* measure.h - the measurements; each prints one JSON line per result. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "bench.h"

struct measure {
	const struct bench_engine *e;
	const char *test;
	uint32_t ops, use, samples;	/* use: only the first so many ops; 0: all */
	unsigned int reps, warm, pushers;
	unsigned int threads;		/* 0: as the engine's name says; of loops.c: 1 */
	unsigned int others, workers;	/* loops.c */
	uint64_t seed;
	bool check, watch;
};

/*
 * For m->watch: the same engine; its push says which op it is at, so that BODY_WATCH can
 * tell whether a peer queues.  The times of such a run are not for a table.
 */
const struct bench_engine *measure_watched(const struct bench_engine *e);
void measure_shape(const struct measure *m);
/* "ping", "wake": the pusher waits with the engine; "-w": it only polls. */
void measure_latency(const struct measure *m);
void measure_mpush(const struct measure *m);
void measure_metg(const struct measure *m);
void measure_line(const struct measure *m);
void measure_hand(const struct measure *m);
/*
 * Run own, own2, shared, push, pushers, gone, idle or complete-gone; false if it is none of
 * these.
 */
bool measure_loops(const struct measure *m);
void bench_sleep_ns(long ns);

#endif /* BENCH_MEASURE_H */
