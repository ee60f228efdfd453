/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is one Check suite. */
#ifndef TESTS_UNIT_SUITE_H
#define TESTS_UNIT_SUITE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With PAWL_TEST=test_x in the environment the suite contains only that test: check_threads.c. */
static inline const char *suite_only(void)
{
	const char *only = getenv("PAWL_TEST");

	return only && *only ? only : NULL;
}

/* Run the suite; the last call of main().  CK_VERBOSITY selects how much is printed. */
static inline int suite_run(Suite *s)
{
	SRunner *r = srunner_create(s);
	int failed;

	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	if (suite_only() && !srunner_ntests_run(r)) {
		fprintf(stderr, "no test %s\n", suite_only());
		failed = 1;
	}
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
