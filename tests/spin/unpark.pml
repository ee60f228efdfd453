// SPDX-License-Identifier: Apache-2.0
/*
 * A thread that waits for a condition, and who makes it true: idle_park() and exec_unpark()
 * of exec/park.c (EXEC-P5, EXEC-P6), as waits on vars use them.  Two wakers: one makes the
 * condition true, the other unparks for nothing; and a claim for work may come between.
 *
 * Claim: when nothing moves any more, the waiter has come back.
 *
 * twin COND_FIRST	the waiter looks at the condition before it sets PARKED
 * twin UNPARK_FIRST	the waker looks at the park word before the condition is true
 * twin NO_NOTIFY	the waker calls the futex, but leaves the word
 * twin ONLY_PARKED	the waker does nothing about a word that is CLAIMED: its claimer,
 *			who is stopped before his futex call here, would be the only one
 */
#define RUNNING 0
#define CLAIMED 1
#define NOTIFIED 2
#define PARKED 3

byte park = RUNNING;
bool cond, asleep, back;

inline unpark()
{
	p = park;			/* [exec_unpark] load_relaxed(&t->park) after smp_mb() */
	if
	:: p == RUNNING
	:: else ->
		if
		:: p == PARKED ->
#ifndef NO_NOTIFY
			/* cas_relaxed(&t->park, &p, NOTIFIED) */
			atomic {
				if
				:: park == PARKED -> park = NOTIFIED
				:: else -> p = park
				fi
			};
#endif
			asleep = false	/* park_wake */
		:: else ->
#ifndef ONLY_PARKED
			asleep = false
#endif
			skip
		fi
	fi
}

proctype granter()
{
	byte p;

#ifdef UNPARK_FIRST
	unpark();
	cond = true
#else
	cond = true;		/* P5: the grant */
	unpark()
#endif
}

proctype other()
{
	byte p;

	unpark()
}

/* [group_wake] a claim whose futex call never comes: the claimer is stopped. */
proctype claimer()
{
	atomic {
		if
		:: park == PARKED -> park = CLAIMED
		:: else
		fi
	}
}

proctype waiter()
{
	bool seen;

	do
	:: cond -> break		/* [idle_reason] */
	:: else ->
#ifdef COND_FIRST
		seen = cond;
		park = PARKED;
#else
		park = PARKED;		/* [idle_park] */
		seen = cond;		/* P6, after smp_mb() */
#endif
		if
		:: seen
		:: else ->
			do
			:: true ->
				atomic { if :: park == PARKED -> asleep = true :: else fi };
end_asleep:			!asleep;
				if
				:: park == PARKED	/* woken for nothing: once more */
				:: else -> break
				fi
			od
		fi;
		park = RUNNING;
		if
		:: seen -> break
		:: else
		fi
	od;
	back = true
}

proctype monitor()
{
	timeout -> assert(back)
}

init {
	atomic { run monitor(); run waiter(); run granter(); run other(); run claimer() }
}
