/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulated cores: the library runs on as many threads as a scenario asks for, each on a core of
 * its own, one after the other in one process and in the same order each time.
 */
#ifndef CORES_SIM_H
#define CORES_SIM_H

#include <stdio.h>
#include <base/compiler.h>

#define SIM_MAX		144u	/* threads */

/* Run fn as the first thread, until it ends; the others must have ended before. */
void sim_run(void (*fn)(void));
/* The calling thread, 0 .. SIM_MAX - 1. */
u32 sim_self(void);
/* The body of an op: its core is busy for so long. */
void sim_work(u64 ns);
u64 sim_ns(void);
void sim_start(u32 *thread, void (*fn)(void *arg), void *arg);
void sim_join(u32 thread);
/* All n threads go on from the same time. */
void sim_meet(u32 *count, u32 n);
/* Memory that the tables call by this name, in objects of `size` bytes. */
void sim_name(const char *name, const void *from, u64 bytes, u64 size);

/*
 * Lines that one of the threads of `mask` (of the first 64) writes and another one of them reads
 * or writes, from sim_watch() on.
 */
void sim_watch(u64 mask);
/* Count from here on, to sim_stop(). */
void sim_reset(void);
void sim_stop(void);

/* A line, or all lines that are the same field of the same kind of object, at one access. */
struct sim_row {
	char object[48];	/* object+offset */
	char where[64];		/* function, file:line */
	char text[80];		/* that line of the source */
	u64 transfers;
	u64 wait_ns;
};

struct sim_sum {
	u64 accesses, atomics, transfers, cold;
	u64 futex_waits, futex_wakes, pauses;
	double wait_ns;
};

struct sim_sum sim_sum(void);
/* The accesses with the most transfers; returns how many rows were stored. */
u32 sim_rows(struct sim_row *rows, u32 most, bool watched);

#endif
