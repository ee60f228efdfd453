/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios of the engine as small programs, and their oracle.
 *
 * A program is a string, one part per thread:
 *
 *	w0r1 r0 | w1+r1		thread 0 pushes an op that writes var 0 and reads var 1, then a
 *				reader of var 0; thread 1 pushes a batch of two
 *
 * An op is a list of accesses (w or r, and the var's digit).  Other calls:
 *	d0	delete var 0		R0, W0	wait until it is readable, writable
 *	A	wait for all		.	run everything that is ready
 *	n1	create var 1, which only this call may do
 *	p2w0	an op with priority 2; m2w0: -2
 *	a w0..	asynchronous property: it runs inside the push if it can
 *	f, k	the op's body fails; the op runs although an earlier one failed
 *	q0, z0	wait as R0, W0, with a limit that has passed already
 *	V0	version of var 0	E0, C0, T0	its error: read, clear, take
 *	g w0..	on the device (test_device.c); i, o, h: its streams for copies in, out, priority
 *	l w0..	the same, and it loses the device
 *	gd0	delete var 0 in the order of the device
 *	N, u w0	adopt a stream; an op on it, if it is visible to this thread
 *	y w0.., Y	an asynchronous op; complete it, if this thread has its token
 *	G	push the graph of several ops
 *	M	pawl_trim()		D	pawl_thread_detach()
 *	K	park every var that no op uses
 *	Z	create the engine
 *	..#..	the set-up makes the calls before #, as thread 0
 *	x	this thread makes no more calls of the engine
 *	X	destroy the engine, if all other threads have passed x
 * At its end each thread runs what is ready.
 *
 * Checked while ops run: a write is alone, reads run only beside reads; an op runs once; an op
 * whose push returned before another conflicting push began is complete before that one runs;
 * the payload of a var, plain memory, is what the last writer left.  At rest: all ops have
 * run, the versions are right, nothing has leaked.
 */
#ifndef MODEL_ENGINE_H
#define MODEL_ENGINE_H

#include <core/admit.h>
#include <core/attach.h>
#include <core/cq.h>
#include <core/device.h>
#include <core/error.h>
#include <core/link.h>
#include <core/graph.h>
#include <core/push.h>
#include <core/readmostly.h>
#include <core/retire.h>
#include <core/wait.h>
#include <pawl/device.h>
#include "model.h"

#define MAX_OPS		16u
#define MAX_VARS	8u
#define MAX_ACC		8u

enum { P_OP, P_BATCH, P_DELETE, P_READABLE, P_WRITABLE, P_ALL, P_RUN, P_NEW, P_STOP, P_VERSION,
       P_OUT, P_DESTROY, P_ERROR, P_CLEAR, P_TAKE, P_ADOPT, P_COMPLETE, P_GROUP,
       P_CREATE, P_TRIM, P_DETACH, P_PARK };

struct mop {
	u32 kind, id, more;		/* the number of ops that follow in the batch */
	u32 thread;
	u32 n;
	u32 var[MAX_ACC];
	bool write[MAX_ACC];
	int prio;
	u32 prop;
	bool fails;
	bool brief;		/* a wait with a timeout */
	bool device, loses, adopted, async;
};

struct mthread_prog {
	struct mop op[MAX_OPS];
	u32 n;
};

struct model_engine {
	struct pawl_engine *e;
	pawl_var_t var[MAX_VARS];
	struct mthread_prog prog[6], before_all;
	u32 nprog, nops, nvars;
	struct mop *ops[MAX_OPS];
	bool deletes;
	u32 made;		/* mask of vars that the program creates */

	/* the records of the oracle, changed by model_note() */
	u64 ran[MAX_OPS], over[MAX_OPS], refused[MAX_OPS];
	u64 clock[MAX_OPS];	/* of the pushing thread, when the push had returned */
	u64 over_clock[MAX_OPS];	/* of the thread that ran the op, at its end */
	u64 gone[MAX_VARS];		/* its deletion ran */
	u64 destroyed;
	u64 ending;			/* plain */
	u64 outs;			/* A: number of threads that make no more calls */
	u64 nohandle[MAX_OPS];		/* a var of the op is not created yet, or may be
					   deleted */
	u32 mortal;			/* mask of vars that the program deletes */
	u32 total[MAX_VARS];		/* writes in the program */
	bool naive;
	u32 rm;				/* mask of vars that begin in read-mostly mode, or 0 */
	bool odd;			/* calls of the device fail: ops may be skipped */
	/* Devices: mask of ops whose work is in a stream; that mask when an op's body began. */
	u64 issued, behind[MAX_OPS];
	void (*lose)(void *op);
	void *(*stream)(void);
	void (*create)(void);
	pawl_graph_t group;
	u64 adopted;			/* A, relaxed, like handles that are passed on */
	u64 token;			/* A, release and acquire */
	u64 lost;
	u64 pushed;			/* mask of ops whose push has returned */
	u64 before[MAX_OPS];		/* that mask when its push began */
	u64 reading[MAX_VARS], writing[MAX_VARS];
	u64 writes[MAX_VARS];
	u64 last[MAX_VARS];		/* the last writer, according to the oracle */
	u64 payload[MAX_VARS];		/* the same, as plain data of the program */
};

extern struct model_engine me;

void engine_setup(void);		/* without workers */
void engine_setup_rm(void);
void engine_setup_worker(void);		/* with one worker */
void engine_setup_naive(void);
void engine_setup_few(void);		/* with few slots, so that threads reuse them */
void engine_create(struct pawl_config *c);
void engine_setup_with(const char *program, struct pawl_config *c);
void engine_config(struct pawl_config *c);	/* the configuration of most scenarios */
void engine_work(void *op);		/* run an op's work on the device */
int engine_body(struct pawl_run *run, void *op);
void engine_settle(void);
void engine_complete(void);		/* complete the asynchronous op, unless it is
					   complete */
void engine_enter(u32 i);
void engine_thread(u32 i);
void engine_check(void);

/*
 * A row of scenarios[]: a program, its number of threads, the bound and the time of a default
 * search, and further fields such as setup, check and flags.
 */
#define PROGRAM(...)	COMERS(__VA_ARGS__, .enter = engine_enter)
/*
 * The same without an enter function: the threads enter and leave the engine during the search.
 */
#define COMERS(name_, program, threads_, bound_, seconds_, ...)			\
	{ .name = name_, .what = program, .arg = program, .threads = threads_,	\
	  .thread = engine_thread, .bound = bound_, .seconds = seconds_, __VA_ARGS__ }

#endif
