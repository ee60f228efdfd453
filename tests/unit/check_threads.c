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
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "hang.h"

void __real__tcase_add_test(TCase *tc, const TTest *test, int sig, int status, int from, int to);
void __wrap__tcase_add_test(TCase *tc, const TTest *test, int sig, int status, int from, int to);
void __real_tcase_fn_start(const char *name, const char *file, int line);
void __wrap_tcase_fn_start(const char *name, const char *file, int line);
int __real_killpg(pid_t group, int sig);
int __wrap_killpg(pid_t group, int sig);
void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);
void __real__ck_assert_failed(const char *file, int line, const char *expr, const char *msg,
			      ...) CK_ATTRIBUTE_NORETURN;
void __wrap__ck_assert_failed(const char *file, int line, const char *expr, const char *msg,
			      ...) CK_ATTRIBUTE_NORETURN;

/* The last assertion that held, for a test that does not end. */
static const char *mark_file = "its begin";
static int mark_line;

void (*hang_says)(void);

static void hang(int sig)
{
	const char *test = tcase_name();
	char text[512];
	int n;

	n = snprintf(text, sizeof(text), "%s:%d:F: %s%sno end after this point%s\n", mark_file,
		     mark_line, test ? test : "", test ? ": " : "",
		     sig == SIGTERM ? " (terminated)" : "");
	if (test)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "repeat: PAWL_TEST=%s %s\n", test,
			      program_invocation_name);
	if (write(2, text, (size_t)n) > 0 && hang_says)
		hang_says();
	if (engines_dump)
		engines_dump();
	signal(SIGABRT, SIG_DFL);
	abort();
}

void hang_limit(unsigned int seconds)
{
	signal(SIGALRM, hang);
	signal(SIGTERM, hang);
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

/*
 * A test begins, in its process.  Check has a limit for each test, see below.  Under sanitizers
 * the tests share one process, and only tests/run.sh limits its time.
 */
void __wrap_tcase_fn_start(const char *name, const char *file, int line)
{
	mark_file = file;
	mark_line = line;
	hang_limit(no_process_of_its_own() ? 550 : 0);
	__real_tcase_fn_start(name, file, line);
}

/* Check kills a test that hangs; first let the test print its position. */
int __wrap_killpg(pid_t group, int sig)
{
	const struct timespec ms = { 0, 1000000 };
	siginfo_t ended = { 0 };
	int i;

	if (sig == SIGKILL && !__real_killpg(group, SIGTERM))
		for (i = 0; i < 5000 && !ended.si_pid; i++) {
			nanosleep(&ms, NULL);
			if (waitid(P_PID, (id_t)group, &ended, WEXITED | WNOHANG | WNOWAIT))
				break;
		}
	return __real_killpg(group, sig);
}

void __wrap__tcase_add_test(TCase *tc, const TTest *test, int sig, int status, int from,
				    int to)
{
	const char *only = getenv("PAWL_TEST");

	if (!only || !*only || !strcmp(only, test->name))
		__real__tcase_add_test(tc, test, sig, status, from, to);
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
