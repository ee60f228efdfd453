/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: what a push needs before it may begin. */
#ifndef CORE_ADMIT_H
#define CORE_ADMIT_H

#include <core/thread.h>

#define HELP_DEPTH 64u		/* nested bodies beyond which a waiting body runs no ops */
int admit_slow(struct thread *t, u32 n);
void admit_undo(struct thread *t, u32 n);
int admit_again(struct thread *t, u64 *idle);
int err_pool_empty(struct thread *t, u32 pool, const char *what);
void gate_pass(struct thread *t);
bool window_low(struct thread *t, u32 low);

/*
 * Take room for n ops in the window.  On success (0) they count as pushed; admit_undo() takes
 * that back.
 */
static inline int admit(struct thread *t, u32 n)
{
	u64 pushed = t->pushed + n;

	if (unlikely(pushed > t->next_check))
		return admit_slow(t, n);
	/* CORE-N1 <-> CORE-N4: they count before they can complete; see ops_in_flight(). */
	store_release(&t->pushed, pushed);
	return 0;
}

#endif
