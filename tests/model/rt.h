/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the controlled scheduler: what memory.c, sched.c, weak.c and explore.c share.
 *
 * Threads are coroutines in one process.  A step of a thread runs from one access to shared
 * memory to just before the next one.  Everything that a step changes can be undone: words by
 * an undo log, the thread's stack by a copy.  So a search backtracks without running from the
 * start, and a hash of all changed memory is updated with each change.
 */
#ifndef MODEL_RT_H
#define MODEL_RT_H

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <base/compiler.h>
#include <base/atomic_model.h>
#include "model.h"

#define MAX_THREADS	8u	/* thread 0 is the scenario's set-up and check */
#define KEYS		4u
#define STACK_BYTES	(96u << 10)
#define STACK_SPARE	(24u << 10)	/* for the C library */
#define TLS_MAX		1024u

/* --- memory --------------------------------------------------------------- */

#define REGION_BASE	0x10000000000ull
#define REGION_BYTES	(1ull << 31)

/* What all schedules of a scenario have shown about one word of memory. */
struct shadow {
	u32 stamp;		/* step that logged it */
	u8 first;		/* thread + 1 that used it as an atomic first */
	u8 flags;
	u16 loc;		/* weak.c: its history */
};

enum { SH_MULTI = 1, SH_WROTE = 2, SH_SHARED = 4, SH_FREED = 8 };

struct undo {
	u64 *addr;		/* bit 0: the hash already contains the change */
	u64 old;
};

extern struct shadow *region_shadow, *data_shadow;
extern char *data_start;
extern u64 data_bytes;
extern char *tls_start;
extern u64 tls_bytes;
extern u64 *region_used;
extern struct undo *undo_log;
extern u64 undo_n;
extern u64 mem_hash;
extern u32 step_id;		/* 0: writes are not logged */
extern bool tls_dirty;
extern bool watch;		/* plain accesses are checked for races */
extern bool searching;		/* the hash is updated, and all changes can be undone */
extern u32 learned;		/* number of words that became shared since it was reset */

static inline u64 mix(u64 a, u64 v)
{
	u64 x = (v + a * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;

	x ^= x >> 32;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 29;
}

static inline struct shadow *shadow_of(const void *p)
{
	u64 a = (u64)(uintptr_t)p;

	if (likely(a - REGION_BASE < REGION_BYTES))
		return &region_shadow[(a - REGION_BASE) >> 3];
	if (a - (u64)(uintptr_t)data_start < data_bytes)
		return &data_shadow[(a - (u64)(uintptr_t)data_start) >> 3];
	return NULL;
}

/* Record that a word of the program is about to change. */
static inline void touch_word(u64 *w, struct shadow *s)
{
	if (s->stamp == step_id)
		return;
	s->stamp = step_id;
	undo_log[undo_n].addr = w;
	undo_log[undo_n++].old = *w;
}

void touch(void *p, u64 n);

/* Change a word of the model. */
static inline void lw(void *p, u64 v)
{
	u64 *w = p, old = *w;

	if (old == v)
		return;
	if (step_id) {
		undo_log[undo_n].addr = (u64 *)((uintptr_t)w | 1);
		undo_log[undo_n++].old = old;
		if (searching)
			mem_hash ^= mix((u64)(uintptr_t)w, old) ^ mix((u64)(uintptr_t)w, v);
	}
	*w = v;
}

void memory_init(void);
void *region_alloc(u64 n);
void steps_settle(u64 from);
void undo_to(u64 n);

/* --- threads -------------------------------------------------------------- */

enum { T_NONE, T_READY, T_ASLEEP, T_JOIN, T_DONE, T_FROZEN, T_AWAIT };

/* Every field is a word, changed by lw(). */
struct mthread {
	u64 state;
	u64 sp;
	u64 stack_hash;
	u64 yielded;		/* it spins, and nothing has changed since */
	u64 fresh;		/* something has changed since it last spun */
	u64 word;		/* asleep on */
	u64 deadline;
	u64 timed_out;
	u64 awaits;		/* thread to join; T_AWAIT: the condition */
	u64 fn, arg;
	u64 value[KEYS];	/* set by os_key_set() */
	u64 tls[TLS_MAX / 8];
};

struct mfixed {
	char *stack_lo, *stack_hi;
	u64 ops;		/* accesses so far */
	bool hardware;
	/* If it ran in the set-up: its stack at the end of the set-up, of `kept` bytes. */
	char *keep;
	u64 kept, kept_ops;
};

extern struct mthread *threads;		/* MAX_THREADS of them */
extern struct mfixed fixed[MAX_THREADS];
extern u32 self;			/* the running thread */
extern u64 *model_now;			/* clock_ns() */
extern u64 *model_stamp;		/* model_stamp_next(), cycles() */
extern struct model_site *pend_site;	/* the next access of the thread that stopped */
extern const void *pend_addr;
extern u32 pend_choice;			/* it requests one of this many values; 0: none */
extern u32 given;			/* the answer */
extern bool pend_free;			/* the values are not stale ones */
extern bool all_points;			/* the scheduler may switch at every atomic access */
extern bool step_wrote;			/* the step changed a word for which others may wait */
extern bool in_thread;			/* a thread of the model is running */
extern bool in_check;			/* the scenario's check of what is left is running */
extern const char *failed;		/* the reason of the failure, or NULL */

void sched_init(void);
extern bool in_setup;
u32 thread_spawn(void *(*fn)(void *), void *arg);
void step_run(u32 t, bool timeout);
void step_stack(u32 t);
void tls_load(u32 t);
void tls_save(u32 t);
extern jmp_buf fail_jump;
void stacks_reset(void);
void stacks_keep(void);			/* the set-up has ended */
void stacks_copy(bool back);
extern u32 time_flags;			/* MODEL_NO_TIME, MODEL_TIME_LAST */
extern u32 setup_threads;		/* threads that the set-up started, which are the
					   last ones */
extern u32 scenario_threads;		/* mask of threads that run scenario.thread() */
u32 enabled_mask(void);			/* bit t: ready; bit 8 + t: its deadline may pass */
bool all_done(void);
void describe_stuck(FILE *f);
u32 choose(u32 n);			/* called by a running thread; returns 0 .. n - 1 */
extern u32 (*choose_now)(u32 n);	/* without stopping; or NULL */

/* --- explore.c, mutate.c and main.c ----------------------------------------- */

extern const char *program;	/* how it was called */

extern bool cpu_time;
double now(void);
struct figures {
	u64 transitions, states, schedules, pruned, depth, restarts;
	double covered, seconds;
	bool exhausted;
};

extern struct figures fig;	/* of the run so far */
extern u64 seed;

void search_init(u32 log2);
bool run(const char *mode, double seconds, u64 most, u32 preemptions);
bool replay(const char *s);
bool check_undo(void);
void catch_faults(void);
void scenario_setup(const struct scenario *s);
bool run_quiet(const char *mode, double seconds, u64 most);
const char *busted_name(u32 i);
const char *program_name(void);
extern const char *trials_only, *trials_in;
int run_trials(bool planted, const char *list, u32 jobs, u64 most, double seconds,
	       double total);

/* --- weak memory ---------------------------------------------------------- */

extern bool weak;
extern bool weak_mutant;		/* an order is weakened: model_site.strong */
/*
 * For the code that answers choose(): which load it is, and the first answer that only a mutant
 * allows.
 */
struct weak_ask {
	const void *addr;
	struct model_site *site;
	u32 odd;		/* first answer that the order in the sources forbids; 0:
				   none */
};
extern struct weak_ask weak_ask;
extern u64 weak_odd;		/* number of loads with such answers */
void weak_reset(void);
u64 weak_load(struct model_site *s, const void *p, u32 size);
void weak_newest(struct model_site *s, const void *p);	/* the same, but never with an old
							   value */
void weak_store(struct model_site *s, void *p, u32 size, u64 v);
u64 weak_rmw(struct model_site *s, void *p, u32 size, u64 v);
bool weak_cas(struct model_site *s, void *p, u32 size, void *old, u64 v);
bool weak_pair_cas(struct model_site *s, u64 *p, u64 *old, const u64 *v);
void weak_fence(struct model_site *s);
void weak_plain(const void *p, u32 size, bool write);
void weak_zero(const void *p, u64 n);
void weak_relax(void);
void weak_settle(void);
extern u32 weak_untracked;
void weak_sync(u32 from, u32 to);	/* thread creation, join, sleep */

#endif
