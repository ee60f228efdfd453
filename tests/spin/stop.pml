// SPDX-License-Identifier: Apache-2.0
/*
 * Start and stop of a queue's worker: exec_start(), exec_stop() and queue_start() of
 * exec/worker.c beside pushers, and the worker's own end.  A pusher of the first work
 * creates the worker; one thread stops and starts again; at the end it stops once more,
 * as pawl_engine_destroy() does.
 *
 * Claims: after a stop no worker is alive; work is not left while a worker was promised
 * (queue armed or up, nothing moves); a stop comes back.
 *
 * twin START_BLIND	exec_start() does not look at the queue after it armed it
 * twin PUSH_LATE	a pusher looks at ATTN_START before its work is published
 * twin STOP_STARTING	exec_stop() does not wait for who is creating workers
 * twin STOP_UNSEEN	the worker looks at stop only before it sets PARKED
 * twin STOP_SILENT	exec_stop() does not unpark
 */
#define STOPPED 0
#define ARMED 1
#define STARTING 2
#define UP 3

byte run_ = STOPPED;		/* q->run */
bool attn;			/* ATTN_START of group.attn */
bool sleeps;			/* a sleeper, in the same word */
bool stop;			/* q->stop */
byte work;
byte alive;			/* workers that run; joined when 0 */
bool parked, asleep;
byte over;			/* pushers that are done */
bool end;			/* the last stop came back */

proctype worker()
{
	bool seen;

	do
	:: true ->
		if			/* [worker_loop] load_acquire(&q->stop) */
		:: stop -> break
		:: else
		fi;
		atomic {		/* queue_take() */
			if
			:: work > 0 -> work = work - 1; seen = true
			:: else -> seen = false
			fi
		};
		if
		:: seen
		:: else ->
#ifdef STOP_UNSEEN
			if
			:: stop -> break
			:: else
			fi;
#endif
			parked = true;		/* [idle_park] */
			sleeps = true;
#ifndef STOP_UNSEEN
			if			/* W6 and P6: idle_reason() */
			:: stop -> parked = false; sleeps = false; break
			:: else
			fi;
#endif
			atomic {		/* P2: thread_take() */
				if
				:: work > 0 -> work = work - 1; seen = true
				:: else -> seen = false
				fi
			};
			if
			:: seen
			:: else ->
				atomic { if :: parked -> asleep = true :: else fi };
end_asleep:			!asleep
			fi;
			parked = false;
			sleeps = false
		fi
	od;
	alive = alive - 1
}

/* [queue_start] */
inline queue_start()
{
	atomic {			/* W3: cas_acq_rel_acquire(&q->run, ARMED, STARTING) */
		if
		:: run_ == ARMED -> run_ = STARTING; won = true
		:: else -> won = false
		fi
	};
	if
	:: won ->
		attn = false;		/* fetch_and(&q->group.attn, ~ATTN_START) */
		alive = alive + 1;
		run worker();		/* worker_create() */
		run_ = UP		/* W4 */
	:: else
	fi;
	won = false
}

/* [exec_unpark], and [group_wake] for work */
inline unpark()
{
	atomic {
		if
		:: parked -> parked = false; woken = true
		:: else -> woken = false
		fi
	};
	if
	:: woken -> asleep = false
	:: else
	fi;
	woken = false
}

proctype pusher()
{
	bool won, woken;

#ifdef PUSH_LATE
	bool seen = attn;

	work = work + 1;
	if
	:: seen -> queue_start()
	:: else
	fi;
#else
	work = work + 1;		/* P1 */
	if				/* [queue_start_or_wake] */
	:: attn -> queue_start()
	:: else
	fi;
#endif
	if
	:: sleeps -> unpark()
	:: else
	fi;
	over = over + 1
}

/* [exec_start] of one queue */
inline exec_start()
{
	if
	:: run_ == STOPPED ->
		stop = false;
		run_ = ARMED;		/* W4 */
		attn = true;		/* fetch_or(&q->group.attn, ATTN_START) */
#ifndef START_BLIND
		if			/* P2 */
		:: work > 0 -> queue_start()
		:: else
		fi
#else
		skip
#endif
	:: else
	fi
}

/* [queue_stop] */
inline exec_stop()
{
	atomic {			/* W3 */
		if
		:: run_ == ARMED -> run_ = STOPPED; won = true
		:: else -> won = false
		fi
	};
	if
	:: won -> attn = false
	:: else ->
#ifndef STOP_STARTING
		(run_ != STARTING);	/* sched_yield() until then */
#endif
		if
		:: run_ == UP ->
			stop = true;	/* W5 */
#ifndef STOP_SILENT
			unpark();
#endif
			(alive == 0);	/* pthread_join() */
			run_ = STOPPED
		:: else
		fi
	fi;
	won = false;
	assert(alive == 0 && run_ == STOPPED)
}

proctype owner()
{
	bool won, woken;

	exec_start();
	exec_stop();
	exec_start();
	(over == 2);			/* destroy: nobody else is inside */
	(work == 0);			/* it drains: wait_none() */
	exec_stop();
	end = true
}

proctype monitor()
{
	timeout -> assert(end)
}

init {
	atomic { run monitor(); run owner(); run pusher(); run pusher() }
}
