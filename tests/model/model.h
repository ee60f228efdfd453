/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between a scenario and the controlled scheduler. */
#ifndef MODEL_H
#define MODEL_H

#include <base/compiler.h>

struct scenario {
	const char *name;
	const char *what;
	u32 threads;
	void (*setup)(void);		/* called once; its results exist at the start of
					   each schedule */
	void (*enter)(u32 i);		/* called once as thread i, before the search; or
					   NULL */
	void (*thread)(u32 i);		/* i: 0 .. threads - 1 */
	void (*check)(void);		/* called after all threads have ended */
	u32 bound;			/* preemptions in the default search; MODEL_ALL: any
					   number */
	u32 seconds;			/* time of the short run */
	u32 flags;
	const void *arg;		/* for the scenario: model_arg() */
};

#define MODEL_ALL	255u
#define MODEL_NO_DFS	1u		/* too large for a search: random schedules only */
#define MODEL_SLEEPS_OK	2u		/* workers that sleep at the end are not stuck */
#define MODEL_FREEZE	4u		/* one thread may be stopped forever, at any point */
#define MODEL_FREEZE2	8u		/* two of them */
#define MODEL_NO_TIME	16u		/* no deadline passes, so a missing wake-up is found */
#define MODEL_TIME_LAST	32u		/* deadlines pass when no thread can continue */
#define MODEL_TIME_IF_WEAK 64u	/* MODEL_TIME_LAST with weak memory, else MODEL_NO_TIME */

/* The table of a program; ends with a NULL name. */
extern const struct scenario scenarios[];

const void *model_arg(void);
void model_point(void);			/* the scheduler may switch here */
u64 model_stamp_next(void);		/* strictly increasing along happens-before */
void model_settle(void);		/* called by a check: the threads of engine and
					   device run */
void model_forget_exit(void);		/* no function of a key is called for this thread */
u32 model_self(void);			/* of thread(): i */
/*
 * Find out which actions of other threads are before the present one in the memory model:
 * model_clock() marks an action, and model_knows() checks the mark later.  Without weak memory
 * all actions are known.
 */
u64 model_clock(void);
bool model_knows(u64 clock);
void model_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define MODEL_CHECK(cond)							\
	do {									\
		if (!(cond))							\
			model_fail("%s:%d: not true: %s", __FILE__, __LINE__, #cond);	\
	} while (0)
/*
 * For a model of hardware.  The bound on preemptions does not count switches away from a thread
 * that is part of the hardware.
 */
void model_hardware(void);
void model_await(bool (*cond)(const void *arg), const void *arg);	/* sleep until it
									   returns true */
u32 model_choose(u32 n);		/* return 0 .. n - 1, which the schedule chooses */
/*
 * Accesses with an order, at which the scheduler does not switch; a receive may read an old
 * value.
 */
void model_send(u64 *p, u64 v);		/* release */
u64 model_receive(const u64 *p);	/* acquire, the newest */
u64 model_glance(const u64 *p, bool acquire);
/* Records of the scenario: no switch, no order, no race. */
u64 model_note(u64 *p, u64 v);		/* set *p to v, and return the old value */

#endif
