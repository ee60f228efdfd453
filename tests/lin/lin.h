/* SPDX-License-Identifier: Apache-2.0 */
/* Histories of calls by a few threads: how they are made and judged. */
#ifndef TESTS_LIN_H
#define TESTS_LIN_H

#include "../unit/exec_fixture.h"
#include <base/random.h>
#include <pawl/engine.h>

#define THREADS		3u
#define CALLS		26u		/* calls in a history, including those that empty the
					   structure */

enum kind { PUSH, POP, PEEK, GET, PUT };

struct call {
	u8 thread, kind;
	u32 work;		/* pushed, popped; 0: empty */
	s64 prio;
	u64 order;
	u64 inv, res;		/* times of a clock that all threads share; 0 and ~0: not
				   timed */
};

struct history {
	u32 n;
	bool fifo;		/* order among equals: that of the pushes */
	struct call call[CALLS];
};

struct maker {
	pthread_t thread;
	u32 id;
	u64 seed;
	u32 n;			/* calls */
	struct call call[CALLS];
	struct exec_thread *t;
	struct prioq_cache pc;
	struct pool_cache oc;
};

extern struct maker maker[THREADS];
extern struct run {
	u32 threads, calls, prios, fault, gen;
	bool timed, peeks, consumes[THREADS];
	u64 works;		/* A: number of the next call */
} run;
extern u64 states_total;	/* states that the searches visited */

enum part { P_PRIOQ, P_RUNQ, P_HOARD, P_POOL, P_PUSH, PARTS };
extern const char *const part_name[PARTS];

#define PVARS	3u
#define PNODES	16u

struct pnode {
	u32 n;
	u8 var[PVARS];
	bool write[PVARS];
	u32 saw[PVARS];
	u64 inv, res;
	u32 thread;
	bool batch;
};

/* search.c */
bool linearizable(const struct history *h);
bool taken_once(const struct history *h);
bool takes_turns(const struct history *h);
bool acyclic(const struct pnode *nd, u32 n);

/* makers.c */
u64 stamp(bool timed, u64 not);
void round_run(void (*fn)(struct maker *));
void makers_start(void);
void makers_stop(void);
void round_shape(u64 *seed);
struct call *call_begin(struct maker *m, u8 kind);
void call_end(struct call *c);
void gather(struct history *h, bool fifo);
struct call *main_call(struct history *h, u8 kind);

/* parts.c */
void pu_print(void);
void part_begin(enum part p);
void part_end(enum part p);
bool part_history(enum part p, struct history *h, u64 seed);

/* lin_histories.c */
void convict(const struct history *h, const char *what);

#endif
