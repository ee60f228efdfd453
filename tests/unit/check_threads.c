// SPDX-License-Identifier: Apache-2.0
/*
 * Check with several threads, and tests that do not end.  A ck_assert() that holds writes its
 * position to a file of Check, which the thread that runs the tests closes and reopens between
 * tests; one that fails jumps to that thread's stack.  Bodies of ops may assert on workers.
 * Therefore this file is linked with --wrap: only the thread of the tests calls Check, and a
 * failure on another thread ends the program with its position.
 *
 * A failure also ends the program where Check does not fork (CK_FORK=no).  Otherwise Check
 * would continue with the next test, and leave by exit(), while the threads of the failed test
 * still run: they use what the next test begins with, and a stopped one may hold a lock that
 * exit() needs.
 */
#include <check.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);
void __real__ck_assert_failed(const char *file, int line, const char *expr, const char *msg,
			      ...) CK_ATTRIBUTE_NORETURN;
void __wrap__ck_assert_failed(const char *file, int line, const char *expr, const char *msg,
			      ...) CK_ATTRIBUTE_NORETURN;

/* The last assertion that held, for a test that does not end. */
static const char *mark_file = "its begin";
static int mark_line;
static void (*hang_says)(void);

static void hang(int sig)
{
	char text[256];
	int n = snprintf(text, sizeof(text), "%s:%d:F: no end after this point%s\n", mark_file,
			 mark_line, sig == SIGTERM ? " (terminated)" : "");

	if (write(2, text, (size_t)n) > 0 && hang_says)
		hang_says();
	signal(SIGABRT, SIG_DFL);
	abort();
}

/* From now on a test that has not ended after so many seconds (0: no limit) says where it is. */
void hang_limit(unsigned int seconds, void (*says)(void));
void hang_limit(unsigned int seconds, void (*says)(void))
{
	hang_says = says;
	signal(SIGALRM, seconds ? hang : SIG_DFL);
	signal(SIGTERM, seconds ? hang : SIG_DFL);
	alarm(seconds);
}

static int in_thread_of_tests(void)
{
	return gettid() == getpid();
}

/* As Check reads it. */
static int no_process_of_its_own(void)
{
	const char *s = getenv("CK_FORK");

	return s && !strcmp(s, "no");
}

void __wrap__mark_point(const char *file, int line)
{
	if (!in_thread_of_tests())
		return;
	/* the test, not a function in a header that it calls */
	if (file[strlen(file) - 1] == 'c') {
		mark_file = file;
		mark_line = line;
	}
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
	if (in_thread_of_tests() && !no_process_of_its_own())
		__real__ck_assert_failed(file, line, expr, "%s", why);
	/* the form of Check's own line */
	fprintf(stderr, "%s:%d:F: %s%s\n", file, line,
		in_thread_of_tests() ? "" : "in another thread: ", why);
	abort();
}
