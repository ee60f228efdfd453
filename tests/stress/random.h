/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of stress_random: what a random program is made of. */
#ifndef TESTS_STRESS_RANDOM_H
#define TESTS_STRESS_RANDOM_H

#define UTIL_NO_CHECK
#include "../unit/util.h"

#define VARS_MAX	64
#define DEPS_MAX	12
#define SLOTS_MAX	1024		/* vars of a program, over all deletes */
#define OPS_MAX		1200
#define THREADS_MAX	4

extern bool verbose;

void broken(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#define GOOD(cond)								\
	do {									\
		if (!(cond))							\
			broken("%s:%d: %s (last error: %s)", __FILE__, __LINE__, #cond, \
			       pawl_error_text());				\
	} while (0)

/* A var over its life; its slot is never used for another one. */
struct slot {
	pawl_var_t v;
	u64 data;		/* plain: the engine must protect it */
	u64 version;		/* plain: writes that ran */
	u32 readers, writers;	/* A: ops that hold the slot */
	u64 pushed;		/* writes pushed (one pusher) */
	bool dead;
};

enum body { SYNC, ASYNC_IN_BODY, ASYNC_LATER, NO_BODY };

struct op {
	struct program *p;
	u32 id;
	u32 n;				/* slots that it accesses, ascending, without
					   duplicates */
	u16 slot[DEPS_MAX];
	bool write[DEPS_MAX];
	u64 expect[DEPS_MAX];		/* oracle B: version it must find */
	u64 saw[DEPS_MAX];		/* oracle C: version it found */
	u8 body;
	bool fails, no_skip, counted;	/* counted: release() comes (not for graphs) */
	bool deletes;
	u64 token;			/* A */
	u32 ran;			/* A: times */
	u32 released;			/* A: times */
	int status;			/* the status passed to release */
	int inherited;			/* run->status */
	u64 hash;
	u32 node;			/* oracle C */
	u64 begin, end;			/* oracle C: of its push */
	bool noted;			/* it names the program's queue and group */
	u32 arrived;			/* in the queue, written by the thread that reaps */
	pawl_ticket_t ticket;
};

struct program {
	struct pawl_engine *e;
	u64 seed;
	u32 nslots;
	struct slot *slot;
	u32 nops;			/* A with several pushers */
	struct op *op;
	u32 ncompleters;
	pthread_t completer[2];
	u64 later[4096];		/* A: ring of ops to complete: index + 1 */
	u32 later_in, later_out;	/* A */
	u32 stop;			/* A */
	bool errors, multi;
	pawl_cq_t cq;
	pawl_group_t group;
};

/* A random op over the slots map[0 .. nv), as the caller of pawl_push() describes it. */
struct desc {
	struct pawl_op op;
	pawl_var_t reads[2 * DEPS_MAX], writes[2 * DEPS_MAX];
	void *copy[2];		/* what op.arg points to, with PAWL_OP_ARG */
};

/* random_ops.c */
u64 mix(u64 a, u64 b);
void enter(struct op *o);
void work(struct op *o);
void leave(struct op *o);
void once(struct op *o);
int sync_body(struct pawl_run *run, void *arg);
void *completer(void *arg);
void op_make(struct program *p, struct op *o, struct desc *d, const u16 *map, u32 nv, u32 deps,
	     u64 *seed);
void op_body(struct op *o, struct desc *d, u32 percent, u64 *seed);
void notes_begin(struct program *p);
void op_notes(struct op *o, struct desc *d);
void notes_reap(struct program *p);
void notes_end(struct program *p);
u16 random_prop(u64 *seed);
u16 slot_new(struct program *p);

/* random_one.c */
void single(u64 program);

/* random_many.c */
void several(u64 program);

/* stress_random.c */
void engine_make(struct program *p, u64 *seed, bool multi);
void program_begin(struct program *p);
void program_end(struct program *p);

#endif
