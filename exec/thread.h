/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread's part in an executor; layer 3.  The client embeds it in its per-thread
 * object, which stays (zeroed before its first use) as long as the executor: slots
 * are reused, and a late wake-up may touch the park word of a thread that has left.
 *
 * Field legend: I set by init; O owner thread only; A atomic, any thread; S owner
 * writes, others read (relaxed, statistics).
 */
#ifndef EXEC_THREAD_H
#define EXEC_THREAD_H

#if !defined(PAWL_LAYER) || PAWL_LAYER < 3
#error "exec/thread.h is for layer 3 and above"
#endif

#include <base/atomic.h>
#include <exec/prioq.h>

struct exec_queue;
struct exec_lane;

#define EXEC_UNLIMITED	UINT32_MAX

struct exec_thread {
	/* A: park.c; on a line of its own, because sleepers and wakers write it. */
	u32 park __cacheline_aligned;

	struct exec_queue *queue __cacheline_aligned;	/* O: a worker's queue, or NULL */
	u32 slot;		/* I */
	/*
	 * O: hand-offs that this thread may still accept; init: EXEC_UNLIMITED.  The
	 * client sets 0 around an exec_take() of which it wants one piece of work run.
	 */
	u32 budget;
	u32 tick;		/* O: pieces of work run, for sampling */
	u32 avg;		/* O: how long recent work ran, in cycles(), saturated */
	u32 batch;		/* O: how many to take at once, from avg */
	u32 turn;		/* O: drive queue to begin with */
	struct exec_lane *to;	/* O: the lane that it pushes to, of to_q, which is marked */
	struct exec_queue *to_q;	/* O: or NULL */
	struct exec_queue *from_q;	/* O: it took from last, or NULL; the lane: */
	u32 from;		/* O: slot */
	u32 takes;		/* O: pieces of work taken, or looked for */
	u32 around;		/* O: slot at which it looks around next */
	struct exec_lane *around_lane;	/* O: what it found there, or NULL; then */
	u64 around_head, around_hoard;	/* O */
	bool left;		/* O: it saw work, and leaves it to its maker */
	bool spinning;		/* O: counted in its group's spinners */
	bool rested;		/* O: it slept for REST_NS the last time that it had nothing to do */
	u64 stolen, handed, helped, sleeps;	/* S */

	struct prioq_cache nodes;	/* O */
};

#endif
