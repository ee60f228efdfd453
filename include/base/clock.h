/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Monotonic time, layer 0; cycles() is in atomic.h.  Under PAWL_MODEL time advances when the
 * controlled scheduler lets a deadline pass.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <base/compiler.h>

#ifdef PAWL_MODEL
u64 clock_ns(void);
#else

#include <time.h>

static inline u64 clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

#endif /* !PAWL_MODEL */
#endif
