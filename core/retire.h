/* SPDX-License-Identifier: Apache-2.0 */
/* Running ops and retiring them. */
#ifndef CORE_RETIRE_H
#define CORE_RETIRE_H

#include <core/op.h>

/* A body on the stack of a thread. */
struct frame {
	struct pawl_run run;	/* pawl_fail() finds the frame by container_of() */
	struct frame *up;	/* of any engine */
	struct thread *t;
	u32 op;
};

/* Is the op of a body on the stack complete?  An asynchronous body may complete its own op. */
static inline bool frame_complete(const struct frame *f)
{
	pawl_token_t token = f->run.token;

	return token.h && load_relaxed(&op_of(f->run.engine, (u32)token.h)->token) !=
	       ((u32)(token.h >> 32) << 2 | TOKEN_ARMED);
}

/* The first frame from f on that is of this engine, or NULL. */
static inline struct frame *frame_in(const struct thread *t, struct frame *f)
{
	while (unlikely(f && f->t != t))
		f = f->up;
	return f;
}

/* For each body of this engine on the calling thread's stack, the innermost first. */
#define for_each_frame(t, f)							\
	for ((f) = frame_in(t, thread_last.frame); (f); (f) = frame_in(t, (f)->up))

/* Fill in the body's frame and make it the innermost one of this thread. */
static inline void frame_push(struct thread *t, struct frame *f, struct op *op, u32 opi)
{
	f->run.engine = t->e;
	f->run.device.kind = PAWL_CPU;
	f->run.device.id = op->dev;
	f->run.status = 0;
	f->run.stream = NULL;
	f->run.token.h = 0;
	f->run.reserved = NULL;
	f->up = thread_last.frame;
	f->t = t;
	f->op = opi;
	thread_last.frame = f;
	t->depth++;
	store_relaxed(&t->running, opi);
}

static inline void frame_pop(struct thread *t, struct frame *f)
{
	thread_last.frame = f->up;
	t->depth--;
	f = frame_in(t, f->up);
	store_relaxed(&t->running, f ? f->op : 0);
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
u32 finish_op(struct thread *t, struct op *op, u32 opi, int status);
void run_async(struct thread *t, struct frame *f, struct op *op, u32 opi, pawl_async_fn fn,
	       void *arg);

#endif
