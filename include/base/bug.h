/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executable invariants, layer 0.  Level 1 enables cheap assertions, level 2 also checks of
 * structures.  Level 0 (production) compiles them out.
 */
#ifndef BASE_BUG_H
#define BASE_BUG_H

#include <stdio.h>
#include <stdlib.h>

#ifndef CONFIG_DEBUG_ENGINE
#define CONFIG_DEBUG_ENGINE 0
#endif

/*
 * Planted bugs, which test the tests: "if (BUSTED(NO_HELP)) do it wrong".  The model
 * (PAWL_BUSTED) and a build of the tests (CONFIG_BUSTED) contain all of them, and pawl_busted
 * selects the active one; other builds contain none.  busted.h lists them.
 */
#if defined(PAWL_BUSTED) || defined(CONFIG_BUSTED)
#include <base/busted.h>
#define BUSTED(name) (pawl_busted == BUSTED_##name)
#else
#define BUSTED(name) 0
#endif

#define BUILD_BUG_ON(cond) _Static_assert(!(cond), #cond)

#ifdef PAWL_MODEL
/* The controlled scheduler checks both levels: a broken invariant fails the schedule. */
void model_bug(const char *file, int line, const char *cond);
#define PAWL_ASSERT_AT(level, cond)						\
	do {									\
		if ((level) <= 2 && !(cond))					\
			model_bug(__FILE__, __LINE__, #cond);			\
	} while (0)
#else
#define PAWL_ASSERT_AT(level, cond)						\
	do {									\
		if ((level) <= CONFIG_DEBUG_ENGINE && !(cond)) {		\
			fprintf(stderr, "pawl: %s:%d: %s: invariant broken: %s\n", \
				__FILE__, __LINE__, __func__, #cond);		\
			abort();						\
		}								\
	} while (0)
#endif

#define BUG_ON1(cond) PAWL_ASSERT_AT(1, !(cond))
#define BUG_ON2(cond) PAWL_ASSERT_AT(2, !(cond))

#endif
