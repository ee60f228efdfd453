// SPDX-License-Identifier: Apache-2.0
/* Statistics, the version, and the text of the last error. */
#include "util.h"
#include <pawl/version.h>

START_TEST(test_stats)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_stats s;
	int i;

	s = stats(e);
	ck_assert_uint_eq(s.pushed, 0);
	ck_assert_uint_eq(s.completed, 0);
	for (i = 0; i < 10; i++)
		OK(push_write(e, nothing, NULL, v));
	OK(push_write(e, fail_io, NULL, w));
	for (i = 0; i < 5; i++)
		OK(push_read(e, nothing, NULL, w));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	s = stats(e);
	ck_assert_uint_eq(s.pushed, 16);
	ck_assert_uint_eq(s.completed, 16);
	ck_assert_uint_eq(s.failed, 1);
	ck_assert_uint_eq(s.skipped, 5);
	ck_assert_uint_eq(s.inlined, 0);
	OK(pawl_var_delete(e, v, NULL, NULL));
	s = stats(e);
	ck_assert_uint_eq(s.inlined, 1);
	ck_assert_uint_ge(s.vars, 2);
	ck_assert_uint_ge(s.ops, 1);
	ck_assert_uint_ge(s.blocks, 2);
	ck_assert_uint_gt(s.bytes, 0);
	ck_assert_uint_ge(s.threads, 1);
	ck_assert_uint_eq(s.workers, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_stats_helped)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);

	OK(push_write(e, nothing, NULL, var_new(e)));
	OK(push_write(e, nothing, NULL, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(stats(e).helped, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_stats_size)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_stats s = { .size = offsetof(struct pawl_stats, workers) };

	FAILS(pawl_stats(e, &s), -EINVAL, "stats", "size");
	FAILS(pawl_stats(e, NULL), -EINVAL, "stats");
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_version)
{
	ck_assert_str_eq(pawl_version(), PAWL_VERSION_STRING);
}
END_TEST

static void *fresh_thread_text(void *arg)
{
	MUST(pawl_error_text());
	MUST(!pawl_error_text()[0]);
	return NULL;
}

START_TEST(test_error_text)
{
	ck_assert_ptr_nonnull(pawl_error_text());
	ck_assert_int_eq(pawl_engine_create(NULL, NULL), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pawl_error_text(), "out"));
	join(spawn(fresh_thread_text, NULL));
	ck_assert_ptr_nonnull(strstr(pawl_error_text(), "out"));
}
END_TEST

SUITE("stats", test_stats, test_stats_helped, test_stats_size, test_version, test_error_text)
