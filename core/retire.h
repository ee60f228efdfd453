/* SPDX-License-Identifier: Apache-2.0 */
/* Running ops and retiring them. */
#ifndef CORE_RETIRE_H
#define CORE_RETIRE_H

#include <core/op.h>

/* A body on the stack of a thread. */
struct frame {
	struct pawl_run run;	/* pawl_fail() finds the frame by container_of() */
	struct frame *up;
	struct thread *t;
	u32 op;
};

/* Is the op of a body on the stack complete?  An asynchronous body may complete its own op. */
static inline bool frame_complete(const struct frame *f)
{
	return f->run.token.h && load_relaxed(&op_of(f->run.engine, f->op)->token) !=
	       ((u32)(f->run.token.h >> 32) << 2 | TOKEN_ARMED);
}

/*
 * These enclose a completion by a thread that does not run what it makes ready: all of that is
 * queued, in order.
 */
static inline u32 alone_begin(struct thread *t)
{
	u32 budget = t->ex.budget;

	t->ex.budget = 0;
	return budget;
}

static inline void alone_end(struct thread *t, u32 budget)
{
	t->ex.budget = budget;
}

void run_work(void *user, struct exec_thread *ex, u32 work);
void op_warm(void *user, u32 work);
void hold_put(struct thread *t, u32 bi);
void run_alone(struct thread *t, struct op *op, u32 opi);
u32 retire(struct thread *t, struct op *op, u32 error);

#endif
