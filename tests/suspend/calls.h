/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What threads do while one of them is stopped: an engine with shared and private vars, the
 * calls of the threads that are stopped, and the rounds of the others.
 */
#ifndef TESTS_SUSPEND_CALLS_H
#define TESTS_SUSPEND_CALLS_H

#include "step.h"

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

#define F_WORLD		(F_WORKERS | F_WORKER | F_WINDOW | F_MOSTLY | F_READY)

struct call {
	const char *name;
	void (*pre)(struct victim *v);
	void (*op)(struct victim *v);
	void (*round)(struct other *o);
	u32 flags;
	const char *passes;	/* a function that the call must pass through, or NULL */
};

#define NCALLS		57u

extern const struct call calls[NCALLS];
extern struct pawl_engine *eng;
extern u64 foreign;		/* A: ops of others that parked victims may have taken */
extern s64 sh_budget;		/* A: how many more times the others may delay the victim */
extern u32 stop_loops;		/* A: ends job_loop() */
extern __thread bool is_worker;
extern u32 workers_armed;	/* A: the next worker is this victim; 0: none is */

void world_make(int workers, u64 spin_ns, u32 flags);
void world_end(void);		/* every op ran once, and wrote alone */
void sh_check(void);
void sh_write_alone(pawl_fn fn);
void drain(void);
void feeder(void);
void notes_use(u32 n);		/* completions arrive in the shared queue, and are reaped */
void mostly_read(struct victim *v);	/* reads of shared vars, several times */
void gate_open_now(void);
const struct call *call_named(const char *name);
const struct call *call_random(u64 *seed, u32 without);
void job_loop(struct victim *v);

void gate_hold(u32 mask);	/* an op holds these shared vars until gate_open_now() */
void private_push_of(struct other *o, u32 n);	/* one op that writes n vars of o's */

struct part {
	u64 end;		/* ms */
};

void part_two(void *arg);	/* two.c */

void round_strict(struct other *o);
void round_spread(struct other *o);
void round_mixed(struct other *o);
void round_last(struct other *o);
void round_deaf(struct other *o);

#endif
