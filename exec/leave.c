// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: short work is left to those who push it.
 *
 * Work that another core runs than the one that pushed it takes some ten cache lines there
 * and back.  If it runs for less time than that takes, and its pusher runs work as well while it
 * waits, then a worker that takes it makes both slower.  With leave_ns set a worker leaves such
 * work to others while they are fast.
 *
 * Structures: in struct exec_thread, of a worker.  While it is `leaving` it looks every
 * leave_ns how much others have taken from the rings.  If that is less than one per LEAVE_NS,
 * it takes part again: at once if nothing at all was taken or pushed, else after LEAVE_SLOW
 * such looks.  After leave_ns, twice as much, and so on up to LEAVE_REST times, it tries anew.
 * If the rings are empty, or something has a priority, it looks for work as ever.
 *
 * So work that nobody takes waits for leave_ns more, LEAVE_SLOW times that if more is pushed
 * meanwhile.  A worker that leaves work does not sleep: nobody would wake it.
 *
 * Ordering: none.  What is read of others is a guess, and a worker that takes part takes as
 * all do.
 *
 * Progress: wait-free, bounded by the lanes.
 */
#include <exec/internal.h>

#define LEAVE_SLOW	4u
#define LEAVE_REST	64u

/* Others have taken little: is there still hope? */
static bool still_leaves(struct exec_thread *t, bool moved, u64 now, u64 leave)
{
	if (moved && ++t->leave_slow < LEAVE_SLOW)
		return true;
	t->leaving = false;
	t->leave_rest = t->leave_rest ? (u32)min_u(2 * t->leave_rest, LEAVE_REST) : 1;
	t->leave_next = now + t->leave_rest * leave;
	return false;
}

/* t, a worker of q, would look for work at the time now.  True: it does so later, at t->left. */
bool worker_leaves(struct exec_queue *q, struct exec_thread *t, u64 now)
{
	u64 heads = 0, tails = 0, leave = q->x->leave, past = now - t->leave_at;
	u32 i, n = load_relaxed(&q->nlanes);
	bool empty = true;

	if (!t->avg || t->avg > q->x->leave_avg || queue_ranked(q)) {
		t->leaving = false;
		return false;
	}
	if (!t->leaving && (s64)(now - t->leave_next) < 0)
		return false;
	for (i = 0; i < n; i++) {
		struct exec_lane *l = lane_at(q, i);
		u64 head, tail;

		if (!l)
			continue;
		head = ring_pos(load_relaxed(&l->ring.head));
		tail = load_relaxed(&l->ring.tail);
		empty &= head == tail;
		heads += head;
		tails += tail;
	}
	if (empty)
		return false;
	if (!t->leaving) {
		t->leaving = true;
		t->leave_slow = 0;
	} else if (past < leave) {
		/* The rings were empty meanwhile. */
		t->left = now + leave - past;
		return true;
	} else if ((heads - t->leave_heads) * leave >= q->x->leave_most * past) {
		t->leave_slow = 0;
		t->leave_rest = 0;
	} else if (!still_leaves(t, past < 2 * leave &&
				 (heads != t->leave_heads || tails != t->leave_tails), now, leave)) {
		return false;
	}
	t->leave_at = now;
	t->leave_heads = heads;
	t->leave_tails = tails;
	t->left = now + leave;
	return true;
}
