/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs of fault points share (fault.c): calls that fail in turn, the checks of a
 * run of a scenario, and a small engine with vars.
 */
#ifndef TESTS_FAULT_H
#define TESTS_FAULT_H

#define UTIL_NO_CHECK
#include "../unit/util.h"

enum { MEMORY, THREAD, FILES, FUTEX, NET, CLASSES };

/* All except waits on futexes, whose failure a caller does not see. */
#define ALL (1u << MEMORY | 1u << THREAD | 1u << FILES)

/* What a run reports to its parent. */
struct shared {
	u32 fired;		/* A: faults */
	u32 classes[CLASSES];	/* A: calls while armed */
	u32 refused;		/* calls of the library that failed */
	s64 left, left_bytes;	/* allocations, and bytes mapped, at the end */
	char text[400];
};

/* Defined by the program: its name and its scenarios; the last one has no name. */
struct scenario {
	const char *name;
	void (*fn)(void);
	u32 most;		/* number of points that are tried; 0: all */
	u32 stays;		/* tolerance for allocations that the process keeps */
};
extern const char fault_program[];
extern const struct scenario scenarios[];
/* The text of a failed call: pawl_error_text(), unless the program sets another function. */
extern const char *(*fault_text)(void);

/* Defined by the harness. */
extern struct shared *out;
extern char where[64];		/* the run, for messages */
extern char path[64];		/* a file for it */
extern struct pawl_config cfg;	/* configuration of the engines, set again in each run */
extern bool for_good;		/* all later calls fail, too */
extern __thread bool spared;	/* no call of this thread fails */
extern __thread bool watched;	/* allocations() counts those of this thread */

void arm(u32 classes);
void disarm(void);
/* Called for each call of this class; returns whether it fails. */
bool fails(u32 class);
void *counted(void *p);		/* an allocation that free() will end */
s64 allocations(void);		/* those of watched threads now */
/* Check a call that may be refused, and then must have a text.  Returns 0 or the errno. */
int tried(const char *what, int rc);
#define TRY(call) tried(#call, call)
/* Open a file and start a thread for the test itself, without injected faults. */
int open_for_sure(const char *name, int flags);
int thread_for_sure(pthread_t *t, void *(*fn)(void *), void *arg);

#define CHECK(cond, ...)							\
	do {									\
		if (!(cond)) {							\
			disarm();						\
			snprintf(out->text, sizeof(out->text), __VA_ARGS__);	\
			_exit(3);						\
		}								\
	} while (0)

struct world {
	struct pawl_engine *e;
	pawl_var_t v[64];
	u32 nv;
	u32 accepted;		/* pushes of counting bodies */
	u32 ran;		/* A */
	u32 released;		/* A */
};

int body(struct pawl_run *run, void *arg);
void world_vars(struct world *w, u32 n);
void world_make(struct world *w);
/* An op on nr + nw vars from var number `first` on. */
struct pawl_op op_on(struct world *w, u32 first, u32 nr, u32 nw);
void push(struct world *w, const struct pawl_op *op);
/* Check that accepted ops ran once, and that the engine still works; then destroy it. */
void world_check(struct world *w);

#endif
