/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that are stopped at a chosen instruction while others continue.
 *
 * Purpose: show that a thread which is stopped anywhere does not keep other threads from making
 * progress.  The code under test is what a program links, unchanged.
 *
 * Structures: a victim is a thread that does one job at a time.  Between step_begin() and
 * step_end() it is parked in one of two ways: it is stopped, and stays in a signal handler
 * until it is released.
 *   - A breakpoint is written over the first byte of one instruction.  The victim reaches it at
 *     full speed.  Other threads step over it.
 *   - The processor's trap flag raises a signal after each instruction: the victim crawls, and
 *     is parked at each instruction, or after a number of them.  That is slower by 10^4.
 * Others are threads that do rounds of work, all the time or once when requested.  A park
 * passes if each of them ends a round that it began after the victim stopped.  The code under
 * test is in its own sections; it is recorded which instructions there were executed at full
 * speed, and at which a thread was parked.  The work is done in children of fork(), so that a
 * hang ends with its child; the results are in shared memory.
 *
 * Progress: a park is a stall if some other thread ends no round for STALL_MS, twice.
 */
#ifndef TESTS_SUSPEND_STEP_H
#define TESTS_SUSPEND_STEP_H

#define UTIL_NO_CHECK
#include "../unit/util.h"

#define VICTIMS		5u
#define OTHERS		2u
#define STALL_MS	patience_ms(10000)

struct victim {
	pthread_t thread;
	u32 id;
	u64 seed;
	/* The job: begun when job != done. */
	void (*fn)(struct victim *v);
	u32 job;		/* A, futex */
	u32 done;		/* A */
	u32 event;		/* A, futex: number of parks and ends of jobs */
	/* Stepping. */
	bool crawl;		/* park by the trap flag, otherwise by the breakpoint */
	bool every;		/* park at each instruction, not only at one */
	u64 left;		/* instructions to the park */
	u32 skip;		/* number of times that the breakpoint is passed before */
	struct trace *trace;	/* keep the addresses */
	bool on;		/* O: it is stepping, or the breakpoint is for it */
	u64 steps;		/* instructions since step_begin() */
	u64 at;			/* address at which it is parked */
	u32 parked;		/* A */
	u32 released;		/* A, futex */
};

/* Instructions of the code under test, each once, in the order of their first execution. */
struct trace {
	u32 n;
	u64 at[8192];
	u8 *seen;
};

struct other {
	pthread_t thread;
	u32 id;
	u64 seed;
	u32 rounds;		/* A, futex */
	u32 answered;		/* O */
	pawl_var_t *var;	/* its own */
	u32 nvar;
	u64 *pushed, *done;	/* by var; done: A */
};

/* The results of the children. */
struct found {
	u64 parks, stalls, rounds, jobs;	/* A */
	u64 pairs;			/* A: two stopped at once, by part_two() */
	u64 most_parked;		/* A: at once */
	u32 convicted;			/* A */
	char first_stall[200];
	u8 maps[];			/* run, parked: one byte per byte of code */
};

extern struct found *found;
extern struct victim victims[VICTIMS];
extern struct other others[OTHERS];
extern u64 step_seed;
extern u32 stall_ms;
extern const char *step_what;		/* current activity, for messages */
extern void (*step_says)(void);	/* description of a stall */
extern bool step_anywhere;		/* also in the test's own code */
extern bool step_convict;		/* a stall is expected */

/* --- the code under test --- */
int code_init(const char *program);	/* Return 0, or print the reason and return 77 if the
					   code cannot be read. */
bool code_at(u64 address);		/* an instruction begins there */
void code_break(bool on);		/* record each executed instruction once */
void code_figures(u64 *run, u64 *both);
u64 *code_hot(u64 *n);
bool code_parked(u64 address);
void code_missing(u32 most);		/* print the instructions at which no thread was
					   parked */
const char *code_name(u64 address);
bool code_enters(u64 address, const char *prefix);	/* a function whose name begins so */

/*
 * The function number *i, or the next one, whose name begins with `prefix`; NULL: none.  Moves *i
 * behind it.  *stopped_in: a thread was stopped in it.
 */
const char *code_function(u32 *i, const char *prefix, bool *stopped_in);

void trace_clear(struct trace *t);
bool trace_passes(const struct trace *t, const char *function);
void breakpoint_set(u64 address);
void breakpoint_clear(void);

/* --- victims --- */
void step_init(void);
void step_unblock(void);
void step_me(struct victim *v);		/* this thread is v */
void step_begin(struct victim *v);
void step_end(struct victim *v);
void victims_start(u32 n);
void victims_stop(u32 n);
void victim_job(struct victim *v, void (*fn)(struct victim *v));
/* Wait until v is parked (true) or its job is complete (false). */
bool victim_wait(struct victim *v);
bool victim_wait_ms(struct victim *v, u64 ms);
struct victim *victims_wait_ms(u32 n, u64 ms);	/* wait for any of the first n; NULL if none
						   is parked */
void victim_release(struct victim *v);
void victim_finish(struct victim *v);
void victim_interrupt(struct victim *v);	/* park it wherever it is */

/* --- others --- */
void others_start(u32 n, void (*round)(struct other *o));
void others_stop(void);
void others_busy(bool all_the_time);
/*
 * Wait until each of them has completed a round that begins now.  Returns false after a stall,
 * which is recorded.
 */
bool others_go(u64 at, u64 step);

/* --- children --- */
int child(void (*fn)(void *arg), void *arg, u32 seconds);

void futex_wait_ms(u32 *word, u32 old, u64 ms);
void futex_wake(u32 *word);

#endif
