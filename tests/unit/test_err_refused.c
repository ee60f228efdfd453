/* SPDX-License-Identifier: Apache-2.0 */
/* pool/err.c, compiled here once more, where the system has no key, or no memory for its values. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "suite.h"

static int no_key, no_value;
static int held;		/* allocations that were not freed */

static void *counted_malloc(size_t n)
{
	held++;
	return malloc(n);
}

static void counted_free(void *p)
{
	held -= !!p;
	free(p);
}

static int key_create(pthread_key_t *key, void (*at_end)(void *))
{
	return no_key ? EAGAIN : pthread_key_create(key, at_end);
}

static int set_value(pthread_key_t key, const void *value)
{
	return no_value ? ENOMEM : pthread_setspecific(key, value);
}

#define malloc(n)			counted_malloc(n)
#define free(p)				counted_free(p)
#define pthread_key_create(key, f)	key_create(key, f)
#define pthread_setspecific(key, v)	set_value(key, v)
#include "../../pool/err.c"

/* The end of a thread could not free its text, so all errors have the same fixed text. */
static void nothing_is_kept(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		errno = EIO;
		ck_assert_int_eq(err(-EINVAL, "number %d", i), -EINVAL);
		ck_assert_str_eq(err_text(), "an error, and no memory for its message");
		ck_assert_int_eq(errno, EIO);
		ck_assert_int_eq(held, 0);
	}
}

START_TEST(test_an_error_without_a_key_keeps_no_memory)
{
	no_value = 1;
	nothing_is_kept();
	no_value = 0;
	/* create the key once more, which no later err() does */
	have_key = false;
	no_key = 1;
	once_init();
	ck_assert(!have_key);
	nothing_is_kept();
	no_key = 0;
	once_init();
	ck_assert_int_eq(err(-EINVAL, "number %d", 7), -EINVAL);
	ck_assert_str_eq(err_text(), "number 7");
	ck_assert_int_eq(held, 1);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("err_refused");
	TCase *t = tcase_create("err_refused");

	tcase_add_test(t, test_an_error_without_a_key_keeps_no_memory);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
