/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping on a word, layer 0.  Under PAWL_MODEL the controlled scheduler's threads sleep.
 */
#ifndef BASE_FUTEX_H
#define BASE_FUTEX_H

#include <base/compiler.h>

#ifdef PAWL_MODEL
/* As below, but a wait with a deadline may end at any time. */
int futex_wait(u32 *word, u32 value, u64 deadline);
void futex_wake(u32 *word);
#else

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * Sleep while *word equals value, at most until clock_ns() reaches the deadline (0: none).
 * Spurious wake-ups are possible.  -EINTR: a signal handler ran on the thread; else 0.
 */
static inline int futex_wait(u32 *word, u32 value, u64 deadline)
{
	struct timespec ts = { .tv_sec = (time_t)(deadline / 1000000000u),
			       .tv_nsec = (long)(deadline % 1000000000u) };

	return syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, deadline ? &ts : NULL,
		       NULL, FUTEX_BITSET_MATCH_ANY) < 0 && errno == EINTR ? -EINTR : 0;
}

/* Wake one sleeper. */
static inline void futex_wake(u32 *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#endif /* !PAWL_MODEL */
#endif
