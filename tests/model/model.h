/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between a scenario and the controlled scheduler. */
#ifndef MODEL_H
#define MODEL_H

#include <base/compiler.h>

struct scenario {
	const char *name;
	const char *what;
	u32 threads;
	void (*setup)(void);		/* once; what it makes is there at each schedule's start */
	void (*enter)(u32 i);		/* as thread i, once, before the search; or NULL */
	void (*thread)(u32 i);		/* i: 0 .. threads - 1 */
	void (*check)(void);		/* after all threads ended */
	u32 bound;			/* preemptions for the default search; MODEL_ALL: any */
	u32 seconds;			/* of the short run */
	u32 flags;
	const void *arg;		/* the scenario's own: model_arg() */
};

#define MODEL_ALL	255u
#define MODEL_NO_DFS	1u		/* too large for a search: random schedules alone */
#define MODEL_SLEEPS_OK	2u		/* workers that sleep at the end are not stuck */
#define MODEL_FREEZE	4u		/* one thread may be stopped for good, anywhere */
#define MODEL_FREEZE2	8u		/* two of them */
#define MODEL_NO_TIME	16u		/* no deadline passes: who forgets to wake is found */
#define MODEL_TIME_LAST	32u		/* deadlines pass when nobody can go on */
#define MODEL_TIME_IF_WEAK 64u	/* the latter with weak memory, else MODEL_NO_TIME */

/* The table of a program; ends with a NULL name. */
extern const struct scenario scenarios[];

const void *model_arg(void);
void model_point(void);			/* another thread may go on here */
u64 model_stamp_next(void);		/* strictly increasing along happens-before */
void model_settle(void);		/* by a check: the engine's and the device's threads go on */
void model_forget_exit(void);		/* no key's function is called for this thread */
u32 model_self(void);			/* of thread(): i */
/*
 * Which of what others did is before this, by the orders of the memory model: model_clock()
 * then and there, and model_knows() here and now.  Without weak memory: all.
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
 * For a model of hardware.  A thread that is a part of it is no thread for the bound: to
 * switch away from it costs nothing.
 */
void model_hardware(void);
void model_await(bool (*cond)(const void *arg), const void *arg);	/* sleep until it is so */
u32 model_choose(u32 n);		/* 0 .. n - 1: a choice of the schedule */
/* Words that carry an order, at no place to switch; between them a read may be an old one. */
void model_send(u64 *p, u64 v);		/* release */
u64 model_receive(const u64 *p);	/* acquire, the newest */
u64 model_glance(const u64 *p, bool acquire);
/* The scenario's own books: no place to switch, no order, no race. */
u64 model_note(u64 *p, u64 v);		/* *p becomes v; the value before */

#endif
