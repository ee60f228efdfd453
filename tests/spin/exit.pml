// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a thread beside the end of an engine: thread_exit_hook() and threads_fini()
 * of core/thread.c, which agree by one CAS on the state of an entry; and the entry's next
 * user.  The thread uses engine 1, and ends; then another thread takes the entry for
 * engine 2, while the end of engine 1 may still hold a pointer to it.
 *
 * Claims: nobody touches an engine that is gone; the thread's leave (what it gathered is
 * pushed, its caches go back) happens once if the engine lives; engine 2's thread is not
 * orphaned by engine 1; the engine's end comes back.
 *
 * twin NO_WAIT		the engine does not wait for a thread that is on its way out (T10)
 * twin NO_CAS		the thread says EXITING without looking
 * twin NO_ID		the state carries no engine id
 * twin ENGINE_BLIND	the engine says ORPHANED without looking
 */
#define ATTACHED 0
#define EXITING 1
#define ORPHANED 2
#define GONE 3

#ifdef NO_ID
#define ST(id, s) (s)
#else
#define ST(id, s) ((id) * 4 + (s))
#endif

byte state;			/* tls_entry.state */
bool engine_gone, put, has_left, cleaned, over, second_left;
bool second;			/* the second thread has the entry, with engine 2 */

/* [thread_exit_hook], then [entry_put] */
proctype thread()
{
	bool won;

#ifdef NO_CAS
	won = true;
	state = ST(1, EXITING);
#else
	atomic {			/* T7: cas_acq_rel_acquire(&en->state, ATTACHED, EXITING) */
		if
		:: state == ST(1, ATTACHED) -> state = ST(1, EXITING); won = true
		:: else -> won = false
		fi
	};
#endif
	if
	:: won ->
		assert(!engine_gone);	/* [thread_leave] begins */
		has_left = true;
		assert(!engine_gone);	/* and ends */
		state = ST(1, GONE)	/* T9 */
	:: else
	fi;
	put = true			/* T11 */
}

/* The entry's next user: [thread_enter] of engine 2, and its end. */
proctype next()
{
	bool won;

	(put);				/* T12: entry_new() */
	state = ST(2, ATTACHED);
	second = true;
	atomic {			/* T7, of engine 2, which lives */
		if
		:: state == ST(2, ATTACHED) -> state = ST(2, EXITING); won = true
		:: else -> won = false
		fi
	};
	assert(won);
	second_left = true
}

/* [threads_fini] of engine 1 */
proctype engine()
{
	byte st;

#ifdef ENGINE_BLIND
	st = state;
	if
	:: st == ST(1, EXITING)
	:: else -> state = ST(1, ORPHANED)
	fi;
#else
	atomic {			/* T8: cas_acq_rel_acquire(&en->state, ATTACHED, ORPHANED) */
		st = state;
		if
		:: st == ST(1, ATTACHED) -> state = ST(1, ORPHANED)
		:: else
		fi
	};
#endif
#ifndef NO_WAIT
	do
	:: st == ST(1, EXITING) -> st = state	/* T10 */
	:: else -> break
	od;
#endif
	engine_gone = true;
	over = true
}

proctype monitor()
{
	timeout -> assert(over && second_left)
}

init {
	state = ST(1, ATTACHED);
	atomic { run monitor(); run thread(); run engine(); run next() }
}
