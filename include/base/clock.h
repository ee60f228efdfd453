/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Monotonic time, layer 0; cycles() is in atomic.h.  Under PAWL_SIM it is a simulator's time.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <base/compiler.h>

#ifdef PAWL_SIM
u64 clock_ns(void);
#define clock_coarse_ns clock_ns
#else

#include <time.h>

static inline u64 clock_read(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

static inline u64 clock_ns(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

/* What clock_ns() was at the last tick of the kernel's timer; takes a quarter of the time. */
static inline u64 clock_coarse_ns(void)
{
	return clock_read(CLOCK_MONOTONIC_COARSE);
}

#endif /* !PAWL_SIM */
#endif
