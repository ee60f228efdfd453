// SPDX-License-Identifier: Apache-2.0
/*
 * Check in more than one thread.  A ck_assert() that holds writes its place to a file of
 * Check's, which the thread that runs the tests closes and opens between them; one that does not
 * hold jumps to that thread's stack.  Bodies of ops may assert, and run on workers.  Linked
 * with --wrap, so that only the thread of the tests calls Check, and another's failure ends
 * the program with its place.
 */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);
void __real__ck_assert_failed(const char *file, int line, const char *expr, const char *msg,
			      ...) CK_ATTRIBUTE_NORETURN;
void __wrap__ck_assert_failed(const char *file, int line, const char *expr, const char *msg,
			      ...) CK_ATTRIBUTE_NORETURN;

static int in_thread_of_tests(void)
{
	return gettid() == getpid();
}

void __wrap__mark_point(const char *file, int line)
{
	if (in_thread_of_tests())
		__real__mark_point(file, line);
}

void __wrap__ck_assert_failed(const char *file, int line, const char *expr, const char *msg,
			      ...)
{
	char why[1024];
	va_list ap;

	if (msg) {
		va_start(ap, msg);
		vsnprintf(why, sizeof(why), msg, ap);
		va_end(ap);
	} else {
		snprintf(why, sizeof(why), "%s", expr);
	}
	if (in_thread_of_tests())
		__real__ck_assert_failed(file, line, expr, "%s", why);
	/* the form of Check's own line */
	fprintf(stderr, "%s:%d:F: in another thread: %s\n", file, line, why);
	abort();
}
