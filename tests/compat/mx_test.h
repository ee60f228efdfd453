/* SPDX-License-Identifier: Apache-2.0 */
/* What the Check suites of libpawl_mx share.  They include only installed headers. */
#ifndef TESTS_COMPAT_MX_TEST_H
#define TESTS_COMPAT_MX_TEST_H

#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <pawl/engine.h>
#include <mxnet/c_api.h>
#include "../sanitized.h"

#define ADD(p, n) __atomic_add_fetch(p, n, __ATOMIC_SEQ_CST)
#define GET(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define PUT(p, v) __atomic_store_n(p, v, __ATOMIC_SEQ_CST)

#define OK(call) do {								\
		int rc_ = (call);						\
										\
		ck_assert_msg(!rc_, "%s: %d %s", #call, rc_, MXGetLastError());	\
	} while (0)
/* The call returns rc, and its message contains the text. */
#define REFUSED(rc, call, text) do {						\
		pawl_mx_set_last_error("none");					\
		ck_assert_int_eq(call, rc);					\
		ck_assert_msg(strstr(MXGetLastError(), text) != NULL,		\
			      "\"%s\" is not in: %s", text, MXGetLastError());	\
	} while (0)
#define FAILS(call, text) REFUSED(-1, call, text)

#define MX_UNUSED __attribute__((unused))

static const struct pawl_mx_context cpu MX_UNUSED = { PAWL_MX_CPU, 0 };

MX_UNUSED static int soon(int (*done)(void))
{
	const struct timespec ms = { 0, 1000000 };
	int i;

	for (i = 0; i < 60000 && !done(); i++)
		nanosleep(&ms, NULL);
	return done();
}

/* An array of n floats. */
MX_UNUSED static NDArrayHandle floats(unsigned int n)
{
	const uint32_t shape[] = { n };
	NDArrayHandle nd = NULL;

	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 0, &nd));
	return nd;
}

MX_UNUSED static uint64_t version(NDArrayHandle nd)
{
	return pawl_mx_var_version(pawl_mx_nd_var(nd));
}

/* --- bodies --- */

static int ran MX_UNUSED, holds MX_UNUSED;	/* how many did */
static struct pawl_mx_callback hold_done MX_UNUSED;

MX_UNUSED static void body(void *run, void *param)
{
	const struct pawl_mx_run *r = run;

	ck_assert_int_eq(r->ctx.dev_type, PAWL_MX_CPU);
	ck_assert_ptr_null(r->stream);
	ADD(&ran, 1);
}

MX_UNUSED static void async_body(void *run, void *on_complete, void *param)
{
	struct pawl_mx_callback done = *(struct pawl_mx_callback *)on_complete;

	ADD(&ran, 1);
	done.callback(done.engine, done.param, NULL);
}

/* It is complete when hold_done is called. */
MX_UNUSED static void hold(void *run, void *on_complete, void *param)
{
	hold_done = *(struct pawl_mx_callback *)on_complete;
	ADD(&holds, 1);
}

MX_UNUSED static int is_held(void)
{
	return GET(&holds);
}

static pid_t waiter MX_UNUSED;
static int released MX_UNUSED;

MX_UNUSED static void releases_now(void)
{
	PUT(&released, 1);
	hold_done.callback(hold_done.engine, hold_done.param, NULL);
}

/* End what is held when the other thread sleeps, which it does in a wait. */
MX_UNUSED static void *releases(void *arg)
{
	char path[64], state = 0;
	FILE *f;
	int i;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)waiter);
	for (i = 0; i < 600000 && state != 'S'; i++) {
		f = fopen(path, "r");
		if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			abort();
		fclose(f);
		usleep(100);
	}
	releases_now();
	return NULL;
}

/* --- the program --- */

MX_UNUSED static int suite_run(const char *name, const TTest *const *tests, int seconds)
{
	Suite *s = suite_create(name);
	TCase *tc = tcase_create(name);
	SRunner *r;
	int failed;

	tcase_set_timeout(tc, seconds);
	for (; *tests; tests++)
		tcase_add_test(tc, *tests);
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}

#define SUITE(name, seconds, ...)						\
	int main(void)								\
	{									\
		const TTest *const tests[] = { __VA_ARGS__, NULL };		\
										\
		return suite_run(name, tests, seconds);				\
	}

#endif
