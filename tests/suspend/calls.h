/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the threads that are stopped. */
#ifndef TESTS_SUSPEND_CALLS_H
#define TESTS_SUSPEND_CALLS_H

#include "world.h"

#define F_BUSY		1u	/* also while the others run all the time */
#define F_TAKES		2u	/* it may have taken an op of another thread */
#define F_FEED		4u	/* the main thread fills a ring first */
#define F_WORKERS	8u	/* two workers, asleep; the others do not help them */
#define F_WORKER	16u	/* one worker */
#define F_WINDOW	64u	/* an engine with a small window */
#define F_ANY		128u	/* any thread at any time may do it */
#define F_WAITS		256u	/* it waits for what others may hold */
#define F_MOSTLY	512u	/* vars change to read-mostly mode at the first foreign read */
#define F_READY		1024u	/* an engine with a ready descriptor */
#define F_BLOCK		2048u	/* an engine with a small window, at which pushes block */

#define F_WORLD		(F_WORKERS | F_WORKER | F_WINDOW | F_MOSTLY | F_READY | F_BLOCK)

struct call {
	const char *name;
	void (*pre)(struct victim *v);
	void (*op)(struct victim *v);
	void (*round)(struct other *o);
	u32 flags;
	const char *passes;	/* a function that the call must pass through, or NULL */
};

#define NCALLS		61u

extern const struct call calls[NCALLS];
extern u32 stop_loops;		/* A: ends job_loop() */

void feeder(void);
void mostly_read(struct victim *v);	/* reads of shared vars, several times */
void gate_open_now(void);
const struct call *call_named(const char *name);
const struct call *call_random(u64 *seed, u32 without);
void job_loop(struct victim *v);

void gate_hold(u32 mask);	/* an op holds these shared vars until gate_open_now() */

struct part {
	u64 end;		/* ms */
};

void part_two(void *arg);	/* two.c */

#endif
