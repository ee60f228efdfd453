/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: what a push needs before it may begin. */
#ifndef CORE_ADMIT_H
#define CORE_ADMIT_H

#include <core/thread.h>

#define HELP_DEPTH 64u		/* nested bodies after which a waiting body only waits */
int admit_slow(struct thread *t, u32 n);
void admit_undo(struct thread *t, u32 n);
int admit_again(struct thread *t, bool *tried, bool wait);
int err_pool_empty(struct thread *t, u32 pool, const char *what);
void gate_pass(struct thread *t);

/*
 * The places of n ops in the window.  0: they are counted as pushed, and admit_undo() gives
 * them back.
 */
static inline int admit(struct thread *t, u32 n)
{
	u64 pushed = t->pushed + n;

	if (unlikely(pushed > t->next_check))
		return admit_slow(t, n);
	/* CORE-N1 <-> CORE-N4: before the op can complete; see ops_in_flight(). */
	store_release(&t->pushed, pushed);
	return 0;
}

#endif
