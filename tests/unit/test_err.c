/* SPDX-License-Identifier: Apache-2.0 */
/* pool/err.c: the text of errors, one per thread. */
#include <wchar.h>
#include "pool_things.h"

START_TEST(test_err)
{
	char big[400];

	errno = EIO;
	ck_assert_int_eq(err(-EINVAL, "a %d", 7), -EINVAL);
	ck_assert_str_eq(err_text(), "a 7");
	ck_assert_int_eq(errno, EIO);
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	ck_assert_int_eq(err(-1, "%s", big), -1);
	ck_assert_uint_eq(strlen(err_text()), 255);
	/* a character that cannot be printed: no text, rather than the last one */
	ck_assert_int_eq(err(-EIO, "%lc", (wint_t)0xd800), -EIO);
	ck_assert_str_eq(err_text(), "");
	ck_assert_int_eq(errno, EIO);
	/* the text in front of it is dropped as well */
	ck_assert_int_eq(err(-EIO, "front %lc", (wint_t)0xd800), -EIO);
	ck_assert_str_eq(err_text(), "");
}
END_TEST

static void *err_thread(void *arg)
{
	bool empty = !err_text()[0];

	err(-1, "other");
	return empty ? arg : NULL;
}

START_TEST(test_err_threads)
{
	char text[] = "x";
	pthread_t t;
	void *ret;

	err(-1, "mine");
	ck_assert_int_eq(pthread_create(&t, NULL, err_thread, text), 0);
	pthread_join(t, &ret);
	ck_assert_ptr_eq(ret, text);
	ck_assert_str_eq(err_text(), "mine");
}
END_TEST

/* The end of a thread frees its text. */
START_TEST(test_err_leaves_nothing_behind)
{
	enum { FIRST = 10, N = 60 };
	char text[] = "x";
	size_t before = 0;
	pthread_t t;
	u32 i;

	for (i = 0; i < N; i++) {
		/* The allocator keeps some memory itself at first. */
		if (i == FIRST)
			before = heap_used();
		ck_assert_int_eq(pthread_create(&t, NULL, err_thread, text), 0);
		pthread_join(t, NULL);
	}
	ck_assert_uint_lt(heap_used(), before + (N - FIRST) * 128);
}
END_TEST

static pthread_key_t late_key;

/* Runs after the destructor that freed the text: what is allocated now is not the text's. */
static void late_err(void *arg)
{
	char *mine = malloc(256), want[256];
	u32 *ended = arg;

	MUST(mine && !err_text()[0]);
	memset(mine, 'x', 256);
	memset(want, 'x', 256);
	err(-1, "late");
	MUST(!strcmp(err_text(), "late") && !memcmp(mine, want, 256));
	free(mine);
	++*ended;
}

static void *late_thread(void *arg)
{
	err(-1, "early");
	MUST(!pthread_setspecific(late_key, arg));
	return NULL;
}

/* A thread's last destructors may make calls that fail, too. */
START_TEST(test_err_in_a_later_destructor)
{
	pthread_t t;
	u32 ended = 0;

	/* Destructors run in the order in which the keys were made: that of err() is first. */
	err(-1, "mine");
	ck_assert_int_eq(pthread_key_create(&late_key, late_err), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, late_thread, &ended), 0);
	pthread_join(t, NULL);
	ck_assert_uint_eq(ended, 1);
	ck_assert_str_eq(err_text(), "mine");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("err");
	TCase *t = tcase_create("err");

	tcase_add_test(t, test_err);
	tcase_add_test(t, test_err_threads);
	tcase_add_test(t, test_err_leaves_nothing_behind);
	tcase_add_test(t, test_err_in_a_later_destructor);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
