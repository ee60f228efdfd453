/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one thread in an executor; layer 3.  The client embeds it in its per-thread
 * object, which is zero before its first use and exists as long as the executor: slots are
 * reused, and a late wake-up may write the park word of a thread that has left.
 *
 * Field legend: I set by init; O owner thread only; A atomic, any thread; S the owner writes,
 * others read (relaxed, statistics).
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
#define NEXTS_IDLE	UINT32_MAX	/* a worker that is in no run */

struct exec_thread {
	/* A: see park.c; on a separate line, because sleepers and wakers write it. */
	u32 park __cacheline_aligned;
	u64 woken;		/* A: cycles() when a thread last woke it */

	struct exec_queue *queue __cacheline_aligned;	/* O: a worker's queue, or NULL */
	u32 serves;		/* O: without a queue: the DRIVE_* of those that it may take from */
	u32 slot;		/* I */
	u32 id;			/* I: exec_config.id, where probes have it at hand */
	/*
	 * O: hand-offs that this thread may still accept; initially EXEC_UNLIMITED.  The
	 * client sets it to 0 where it wants a single piece of work run.
	 */
	u32 budget;
	u32 tick;		/* O: pieces of work run, for sampling */
	u32 avg;		/* O: average time of recent work, in cycles(), saturated */
	u32 batch;		/* O: how many pieces to take at once, computed from avg */
	u32 nexts;		/* S: pieces that exec_next() took in this run; or NEXTS_IDLE */
	u64 since;		/* O: cycles() before it took the first of them */
	u32 turn;		/* O: index of the drive queue to try first */
	struct exec_lane *to;	/* O: its lane in to_q, marked */
	struct exec_queue *to_q;	/* O: the queue it last pushed to, or NULL */
	struct exec_queue *from_q;	/* O: the queue it last took from, or NULL */
	u32 from;		/* O: the slot whose lane it last took from */
	/* O: turns, see take.c */
	u32 takes;		/* attempts to take a piece of work */
	u32 check;		/* the value of takes at which it reads the clock */
	u32 step;		/* takes between two readings */
	u32 step_most;
	u32 calm;		/* readings since the last one that found long work, or more steps */
	u32 mode;		/* MODE_* */
	u32 visit;		/* with MODE_VISIT: the slot of that lane */
	u32 around;		/* the slot whose lane has the next turn; behind them ZERO, hoards */
	u32 around_hoard;	/* the slot whose hoard has the next turn */
	struct exec_lane *hoarded;	/* the lane from which it took its last batch */
	u64 clock;		/* cycles() at the last reading */
	u64 began;		/* cycles() when its turn at the lane began */
	u64 late;		/* cycles() when it took late work that has not ended, or 0 */
	bool late_all;		/* with MODE_LATE: no clock was read for long */
	bool left;		/* O: it found work and leaves it to its maker: lane_leave() */
	bool spinning;		/* O: counted in its group's spinners */
	bool naps;		/* O: when it runs out of work, it sleeps at once */
	u32 against;		/* O: idle times in a row that were against that */
	u64 idle;		/* O: cycles() when it ran out of work, or last left some */
	bool woke;		/* O: it woke a thread since it was last idle */
	u32 slow_yields;	/* O: 2^n - 1 after n of them in a row, at most CROWDED */
	u32 crowded;		/* O: how often it still sleeps in place of a yield */
	bool rested;		/* O: its last idle time was a sleep longer than REST_NS */
	u64 trims;		/* O: how many it has followed; exec_trim() */
	u64 stolen, handed, helped, sleeps;	/* S */

	struct prioq_cache nodes;	/* O */
};

/* Increment a counter that only its owner writes. */
static inline void count(u64 *c)
{
	store_relaxed(c, load_relaxed(c) + 1);
}

#endif
