/* SPDX-License-Identifier: Apache-2.0 */
/* For all tests: MUST(), an assertion for any thread. */
#ifndef TESTS_UNIT_MUST_H
#define TESTS_UNIT_MUST_H

#include <stdio.h>
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include "../sanitized.h"

/*
 * How long a test waits, in ms, for something that should happen much earlier.
 * PAWL_TEST_PATIENCE, in seconds, changes it for runs in which it does not happen
 * (tests/busted).
 */
static inline unsigned int patience_ms(unsigned int usual)
{
	const char *s = getenv("PAWL_TEST_PATIENCE");
	double seconds = s ? atof(s) : 0;

	return seconds > 0 ? (unsigned int)(seconds * 1000) : usual;
}

/* Additional text for the message, which a suite may define. */
#ifndef MUST_WHY
#define MUST_WHY ""
#endif

/* It also works in threads that Check does not know, and in inner loops. */
#define MUST(cond)								\
	do {									\
		if (!(cond)) {							\
			fprintf(stderr, "%s:%d: %s: not true: %s (%s)\n", __FILE__, \
				__LINE__, __func__, #cond, MUST_WHY);		\
			abort();						\
		}								\
	} while (0)

/* Bytes of the heap that are in use; 0: the C library does not say. */
static inline size_t heap_used(void)
{
#ifdef __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 33)
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
#endif
#endif
	return 0;
}

#endif
