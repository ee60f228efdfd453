/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: what a push needs before it may begin. */
#ifndef CORE_ADMIT_H
#define CORE_ADMIT_H

#include <core/thread.h>

struct wait_for;

int admit_slow(struct thread *t, u32 n);
void admit_undo(struct thread *t, u32 n);
int admit_again(struct thread *t, u64 *idle);
int err_pool_empty(struct thread *t, u32 pool, const char *what);
void gate_pass(struct thread *t);
bool window_low(struct thread *t, u32 low);
int window_wait(struct thread *t, u64 hard, const struct wait_for *what, s64 timeout_ns, u32 how);
int err_unreaped(struct pawl_engine *e, const char *who);
u64 window_flight(struct pawl_engine *e);
u64 unreaped(struct pawl_engine *e);

/* Take room for n ops in the window, until admit_undo() or room_free().  Returns 0 or an error. */
static inline int admit(struct thread *t, u32 n)
{
	u64 taken = t->taken + n;

	if (unlikely(taken > t->next_check))
		return admit_slow(t, n);
	store_release(&t->taken, taken);	/* CORE-N17 <-> CORE-N18 */
	return 0;
}

/*
 * n ops are about to be pushed.  They count before they can complete; see ops_in_flight().  A push
 * that is refused after this counts as complete.
 */
static inline void count_pushed(struct thread *t, u32 n)
{
	store_release(&t->pushed, t->pushed + n);	/* CORE-N1 <-> CORE-N4 */
}

/* Count an op, or a wait, as complete. */
static inline void completed(struct thread *t)
{
	u64 n = t->completed + 1;

	/* CORE-N2 <-> CORE-N3: see ops_in_flight(). */
	store_release(&t->completed, n);
	/* A pusher sleeps at the window.  Other waits are woken when the thread is idle. */
	if (unlikely(load_relaxed(&t->e->gate)))
		gate_pass(t);
}

/*
 * Free the room of n ops: before a thread that waits for them, or reaps their completions, can
 * know that they are complete, since it may push as many.
 */
static inline void room_free(struct thread *t, u32 n)
{
	store_release(&t->freed, t->freed + n);		/* CORE-N19 <-> CORE-N20 */
}

#endif
