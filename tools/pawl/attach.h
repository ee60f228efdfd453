/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a running process about its published engines (pawl_publish(3)). */
#ifndef PAWL_ATTACH_H
#define PAWL_ATTACH_H

#include <stddef.h>
#include <sys/types.h>
#include <jansson.h>

struct attached {
	const char *who;	/* the prefix of messages */
	pid_t pid;
	int fd;
};

/* Connect to a process.  Returns 0, or -1 after a message. */
int attach(struct attached *a, pid_t pid);
void attach_end(struct attached *a);

/*
 * Send a request, with a file if file >= 0.  Then receive the answer, which the caller frees:
 * NULL with *rc -ETIMEDOUT if none has come after wait_ms (it may be received later), -EPIPE if
 * the process has ended, or another error.  The text of an answer that is an error is printed.
 */
int attach_send(struct attached *a, const char *request, int file);
json_t *attach_receive(struct attached *a, int wait_ms, int *rc);

/* Say why the process does not answer, or has ended. */
void attach_silent(const struct attached *a, int rc);

/* Call fn for each process of the user that has published engines; remove the sockets of others. */
void attach_each(void (*fn)(void *arg, pid_t pid, const char *program), void *arg);
/* A process id: digits alone.  0: it is none. */
pid_t attach_pid(const char *s);

#endif
