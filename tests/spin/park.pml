// SPDX-License-Identifier: Apache-2.0
/*
 * Sleeping and waking of exec/park.c, for work: pushers, and threads of one group that
 * look, sleep, are claimed, and hand claims on.  Sequential consistency: each statement
 * is one access; the source has seq_cst or a barrier where that is needed, which
 * the labels EXEC-P1 to EXEC-P4 name.
 *
 * Claim: when nothing moves any more, no work is left; also if one body never ends.
 *
 * The names in brackets are functions of the source.  BACKLOG is 0 here, so that every
 * pusher may rely on a spinner.
 *
 * twin NO_LOOK		a sleeper does not look again after it counted itself (P2)
 * twin LOOK_FIRST	it looks before it counts itself
 * twin PARK_LATE	it sets its park word after it looked
 * twin NO_PASS		the last spinner does not look what is left (P4)
 * twin CLAIM_KEPT	who was claimed, and so counted as a spinner, never counts itself out
 */
#ifndef PUSHERS
#define PUSHERS 2
#endif
#ifndef WORKS
#define WORKS 1
#endif
#define SLEEPERS 2

#define RUNNING 0
#define CLAIMED 1
#define PARKED 3

byte work;			/* in the queue */
byte attn;			/* group.attn */
short spin;			/* group.spin */
byte park[SLEEPERS];
bool bit_[SLEEPERS];
bool asleep[SLEEPERS];		/* in the kernel, after its check of the word */
byte pushed;
bool stuck;

/* [group_wake] */
inline wake_one()
{
	i = 0;
	if
	:: attn == 0
	:: else ->			/* load_seq_cst(&g->attn) */
		do
		:: i < SLEEPERS ->
			if
			:: bit_[i] ->	/* load_acquire(&g->bits[i]) */
				p = park[i];
				if
				:: p == PARKED ->
					atomic {	/* cas_relaxed(&t->park, &p, CLAIMED) */
						if
						:: park[i] == PARKED -> park[i] = CLAIMED; won = true
						:: else -> won = false
						fi
					}
					if
					:: won ->
						spin = spin + 1;	/* fetch_add_relaxed(&g->spin, 1) */
						asleep[i] = false;	/* park_wake */
						break
					:: else -> i = i + 1
					fi
				:: else -> i = i + 1
				fi
			:: else -> i = i + 1
			fi
		:: else -> break
		od
	fi;
	i = 0; p = 0; won = false
}

proctype pusher()
{
	byte i, p, n;
	bool won;

	do
	:: n < WORKS ->
		n = n + 1;
		work = work + 1;	/* P1, P3: ring_put(), xchg_seq_cst */
		if
		:: attn > 0 ->		/* [exec_push] load_seq_cst(&q->group.attn) */
			if
			:: spin > 0	/* [queue_start_or_wake] P3: a spinner will see it */
			:: else -> wake_one()
			fi
		:: else
		fi
	:: else -> break
	od;
	pushed = pushed + 1
}

/* [pass_on] */
inline pass_on()
{
	if
	:: attn > 0 ->
		if
		:: work > 0 -> wake_one()
		:: else
		fi
	:: else
	fi
}

/* One body of all may never end: the others' work is for the other worker. */
inline exec_run()
{
	found = false;
	if
	:: true
	:: !stuck -> stuck = true; end_stuck: false
	fi
}

proctype worker(byte me)
{
	byte i, p;
	bool won, spinning, found;

	do
	:: true ->
		/* [worker_loop] queue_take() */
		atomic { found = (work > 0); if :: found -> work = work - 1 :: else fi };
		if
		:: found -> exec_run()
		:: else ->
			/* [thread_idle] */
again:			if
			:: !spinning -> spin = spin + 1; spinning = true	/* [spin_begin] */
			:: else
			fi;
			/* [idle_spin] one look, then its budget is over */
			atomic { found = (work > 0); if :: found -> work = work - 1 :: else fi };
			if
			:: found
			:: else ->
				/* [idle_park] */
#ifdef LOOK_FIRST
				atomic { found = (work > 0); if :: found -> work = work - 1 :: else fi };
#endif
#ifndef PARK_LATE
				park[me] = PARKED;
#endif
				bit_[me] = true;
				attn = attn + 1;
				if
				:: spinning -> spinning = false; spin = spin - 1	/* P4 */
				:: else
				fi;
#if !defined(NO_LOOK) && !defined(LOOK_FIRST)
				/* P2: thread_take() */
				atomic { found = (work > 0); if :: found -> work = work - 1 :: else fi };
#endif
#ifdef PARK_LATE
				park[me] = PARKED;
#endif
				if
				:: found
				:: else ->
					/* park_wait(): the kernel compares and sleeps in one step */
					atomic { if :: park[me] == PARKED -> asleep[me] = true :: else fi };
end_asleep:				!asleep[me]
				fi;
				atomic {	/* xchg_acq_rel(&t->park, RUNNING) */
					won = (park[me] == CLAIMED);
					park[me] = RUNNING
				};
				if
				:: won ->
#ifndef CLAIM_KEPT
					spinning = true
#else
					skip
#endif
				:: else ->
					if
					:: found -> spin = spin + 1; spinning = true	/* [spin_begin] */
					:: else
					fi
				fi;
				won = false;
				bit_[me] = false;
				attn = attn - 1;
				if
				:: !found -> goto again
				:: else
				fi
			fi;
			if
			:: spinning ->
				/* [spin_end] */
				spinning = false;
				atomic { won = (spin <= 1); spin = spin - 1 };	/* P4 */
#ifndef NO_PASS
				if
				:: won -> won = false; pass_on()
				:: else
				fi;
#endif
				won = false
			:: else -> pass_on()
			fi;
			exec_run()
		fi
	od
}

proctype monitor()
{
	timeout -> assert(work == 0 && pushed == PUSHERS)
}

init {
	byte k;

	atomic {
		run monitor();
		k = 0;
		do
		:: k < SLEEPERS -> run worker(k); k = k + 1
		:: else -> break
		od;
		k = 0;
		do
		:: k < PUSHERS -> run pusher(); k = k + 1
		:: else -> break
		od;
		k = 0
	}
}
