/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an idle thread polls before it sleeps; layer 3, inside exec only.
 *
 * Polling saves a sleep and a wake-up if the thread is idle for a shorter time than it polls.
 * Otherwise it costs CPU time, which on a busy machine is taken from the thread that this one waits
 * for.  So each thread watches its own idle times.  When POLL_MISSES of them in a row were longer
 * than the polling, it pauses: in its next idle times it sleeps at once.  They are timed as well.
 * A pause is counted in idle times, and a short one, in which polling would have ended, counts
 * POLL_SHORT times.  After it the thread polls in one idle time as a trial; if that succeeds, it
 * polls as before, and if not, the next pause is twice as long.  Without trials, two threads that
 * work in turns and both sleep might never find that each would be quick: the measured times
 * contain a wake-up.
 *
 * Progress: wait-free.
 */
#ifndef EXEC_POLLS_H
#define EXEC_POLLS_H

#include <base/compiler.h>

#define POLL_MISSES	4u
#define POLL_PAUSE	64u	/* the first pause, and the longest one */
#define POLL_PAUSE_MOST	1024u
#define POLL_SHORT	16u

/* All of the owner thread; zero at first. */
struct polls {
	u32 missed;		/* idle times in a row that were longer than the polling */
	u32 pause;		/* the length of the last pause; 0: polling has succeeded since */
	u32 rest;		/* what remains of the pause; 0: poll */
};

static inline bool polls_now(const struct polls *p)
{
	return !p->rest;
}

/* An idle time ended; it was shorter than a thread polls, or not. */
static inline void polls_ended(struct polls *p, bool shorter)
{
	u32 n = shorter ? POLL_SHORT : 1;

	if (p->rest) {
		p->rest = p->rest > n ? p->rest - n : 0;
	} else if (shorter) {
		p->missed = p->pause = 0;
	} else if (++p->missed >= POLL_MISSES) {
		p->missed = POLL_MISSES - 1;	/* a trial is a single idle time */
		p->pause = p->pause ? 2 * p->pause : POLL_PAUSE;
		if (p->pause > POLL_PAUSE_MOST)
			p->pause = POLL_PAUSE_MOST;
		p->rest = p->pause;
	}
}

#endif
