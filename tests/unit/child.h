/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child of fork(), for tests.
 *
 * The state of the other threads at that moment stays as it was in the child.  The C library
 * repairs its own locks, the address sanitizer does not: a child must not allocate, unless all
 * other threads were at rest before the fork.  Check allocates in each assertion, also in those
 * that hold.  So between child_fork() and child_exit() use MUST() or an exit status.
 */
#ifndef TESTS_UNIT_CHILD_H
#define TESTS_UNIT_CHILD_H

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "must.h"

/* Shared with the child: its current step. */
static const char **child_at;

#define CHILD_AT(what) (*(const char *volatile *)child_at = (what))

/* Like fork().  An alarm ends a child that hangs. */
static inline pid_t child_fork(void)
{
	unsigned int limit = patience_ms(60000) / 1000;
	pid_t pid;

	if (!child_at)
		child_at = mmap(NULL, sizeof(*child_at), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(child_at != MAP_FAILED);
	CHILD_AT("its begin");
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		/* Without CK_FORK, Check's handler would also kill the parent. */
		signal(SIGALRM, SIG_DFL);
		signal(SIGTERM, SIG_DFL);
		alarm(limit ? limit : 1);
	}
	return pid;
}

/* Return 0, or print how the child ended and return nonzero. */
static inline int child_wait(pid_t pid)
{
	int status;

	MUST(waitpid(pid, &status, 0) == pid);
	if (WIFSIGNALED(status))
		fprintf(stderr, "a child ended by a signal (%s) at %s\n",
			strsignal(WTERMSIG(status)), *child_at);
	else if (status)
		fprintf(stderr, "a child ended with status %d at %s\n", WEXITSTATUS(status),
			*child_at);
	return status;
}

#endif
