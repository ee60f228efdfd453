/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping on a word, layer 0.  Under PAWL_SIM the threads of a simulator sleep.
 */
#ifndef BASE_FUTEX_H
#define BASE_FUTEX_H

#include <base/compiler.h>

#ifdef PAWL_SIM
/* As below, but a wait with a deadline may end at any time. */
int futex_wait(u32 *word, u32 value, u64 deadline);
void futex_wake(u32 *word);
#define futex_wait_intr	futex_wait
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

/*
 * The same, but a signal handler that was installed with SA_RESTART does not end the wait.  The
 * call above restarts only without a deadline, and futex_waitv(2) with one, too.  Before Linux
 * 5.16 there is none, and any handler ends a wait with a deadline.
 */
static inline int futex_wait_intr(u32 *word, u32 value, u64 deadline)
{
	/* struct futex_waitv; older headers have neither it nor the number of the call. */
	const struct { u64 value, word; u32 flags, reserved; } w = {
		value, (u64)(uintptr_t)word, 2 /* FUTEX_32 */ | FUTEX_PRIVATE_FLAG, 0
	};
	struct timespec ts = { .tv_sec = (time_t)(deadline / 1000000000u),
			       .tv_nsec = (long)(deadline % 1000000000u) };

	if (!deadline)
		return futex_wait(word, value, 0);
	if (syscall(449 /* SYS_futex_waitv */, &w, 1, 0, &ts, CLOCK_MONOTONIC) >= 0)
		return 0;
	if (errno == EINTR)
		return -EINTR;
	return errno == EAGAIN || errno == ETIMEDOUT ? 0 : futex_wait(word, value, deadline);
}

/* Wake one sleeper. */
static inline void futex_wake(u32 *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#endif /* !PAWL_SIM */
#endif
