/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs of fault points share (fault.c): calls that fail in turn, the checks of a
 * run of a scenario, and a small engine with vars.
 */
#ifndef TESTS_FAULT_H
#define TESTS_FAULT_H

#define UTIL_NO_CHECK
#include "../unit/util.h"

enum { MEMORY, THREAD, FILES, FUTEX, CLASSES };

/* All but waits on futexes, whose failure is not seen by a caller. */
#define ALL (1u << MEMORY | 1u << THREAD | 1u << FILES)

/* What a run tells its parent. */
struct shared {
	u32 fired;		/* A: faults */
	u32 classes[CLASSES];	/* A: calls while armed */
	u32 refused;		/* calls of the library that failed */
	s64 left, left_bytes;	/* allocations, and bytes mapped, at the end */
	char text[400];
};

/* Of the program: its name, and its scenarios; the last one has no name. */
struct scenario {
	const char *name;
	void (*fn)(void);
	u32 most;		/* points looked at; 0: all there are */
	u32 stays;		/* the process keeps something; so many allocations more or less */
};
extern const char fault_program[];
extern const struct scenario scenarios[];
/* What a failed call says; pawl_error_text() unless the program has another one. */
extern const char *(*fault_text)(void);

/* Of the harness. */
extern struct shared *out;
extern char where[64];		/* the run, for messages */
extern char path[64];		/* a file for it */
extern struct pawl_config cfg;	/* what engines are made with, afresh in each run */

void arm(u32 classes);
void disarm(void);
/* A call of this class is made: does it fail? */
bool fails(u32 class);
/* A call that may be refused: then it says why.  0 or the errno. */
int tried(const char *what, int rc);
#define TRY(call) tried(#call, call)
/* A file that cannot be made to fail, and a thread that is not the library's. */
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
/* All that was accepted ran, once; the engine works; it ends. */
void world_check(struct world *w);

#endif
