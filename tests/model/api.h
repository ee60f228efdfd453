/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios that are a few calls by two or three threads, in C, with the real core and pools
 * and the executor of model_core.  Each checks the results that are known; and the weak-memory
 * runs check every plain word of the library, of a body and of a payload for races.  Handles
 * and tokens are often passed by relaxed accesses: then the engine's own edges must order what
 * they refer to.
 */
#ifndef MODEL_API_H
#define MODEL_API_H

#include "event.h"
#include "model.h"

#define THREADS	3u
#define VARS	6u

struct test {
	void (*before)(void);		/* by the set-up */
	void (*thread[THREADS])(void);
	void (*check)(void);
	int kind;
	u32 window;			/* and PAWL_WINDOW_FAIL */
	bool leaves;			/* threads leave their slots when they end */
};

extern const struct test *test;
extern struct pawl_engine *e;
extern pawl_var_t var[VARS];
extern u64 passed;			/* A, relaxed: a handle or a token that is passed on */
extern u64 runs, count_given, dropped;	/* records of the scenario: model_note() */
extern u64 data[VARS];			/* plain, written by bodies */
extern int null_fd;			/* of /dev/null */

void note(u64 *p);
void run_all(void);
void push(pawl_fn fn, void *arg, u32 w, u32 prop);
/* A body whose arg is the number of the var, and a push of it. */
int body_ok(struct pawl_run *run, void *arg);
void push_ok(u32 w);

void setup(void);
void enter(u32 i);
void thread(u32 i);
void check(void);

#define T(name_, what_, threads_, bound_, seconds_, ...)			\
	{ .name = name_, .what = what_, .threads = threads_, .setup = setup,	\
	  .enter = enter, .thread = thread, .check = check, .bound = bound_,	\
	  .seconds = seconds_, .arg = &(const struct test){ __VA_ARGS__ } }

#endif
