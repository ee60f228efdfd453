/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CPP_MUST_HH
#define TESTS_CPP_MUST_HH

#include <cstdio>
#include <cstdlib>

#include <pawl/engine.h>

#define MUST(cond)								\
	do {									\
		if (!(cond)) {							\
			std::fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #cond, \
				     pawl_error_text());			\
			std::abort();						\
		}								\
	} while (0)

#endif
