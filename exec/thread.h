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
#define EXEC_SHY	4u

struct exec_shy {
	struct exec_lane *lane;
	u64 head, since;
};

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
	/*
	 * O: the client measures a body when `sample` is set: it clears that and puts the
	 * cycles into `body`.  What surrounds a body says little: it is mostly waiting for
	 * lines, which moving work to other cores makes longer.
	 */
	bool sample;
	u32 body;		/* O */
	u32 body_avg;		/* O: of recent samples, saturated */
	u32 turn;		/* O: drive queue to begin with */
	bool spinning;		/* O: counted in its group's spinners */
	bool greedy;		/* O: take what is there, whoever may be at it */
	bool stays;		/* O: the client will come back to exec_wait() soon */
	bool shied;		/* O: left work to its maker, since it last took some */
	u64 shy_since;		/* O: for how long */
	struct exec_shy shy[EXEC_SHY];	/* O: whose work, and what it looked like */
	u64 stolen, handed, helped, sleeps;	/* S */

	struct prioq_cache nodes;	/* O */
};

#endif
