// SPDX-License-Identifier: Apache-2.0
/*
 * The client of core/publish.c.  The socket of a process is in a folder that belongs to the user of
 * the process; one that another user could have made is refused.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "attach.h"

#define ANSWER_BYTES	(1u << 18)
#define FOLDER_BYTES	80
#define NFOLDERS	3

/* As core/publish.c: that of the environment alone, or of the session, or in memory. */
static void folder_name(char *path, size_t size, uid_t user, int i)
{
	const char *env = getenv("PAWL_PUBLISH");
	bool named = env && *env == '/';

	if (named || !i)
		snprintf(path, size, "%s", named && !i ? env : "");
	else
		snprintf(path, size, i == 1 ? "/run/user/%u/pawl" : "/dev/shm/pawl-%u",
			 (unsigned int)user);
}

static bool folder_fine(const char *path, uid_t user)
{
	struct stat st;

	return !lstat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == user && !(st.st_mode & 077);
}

static int connect_to(const char *folder, pid_t pid)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(struct ucred);
	struct ucred peer;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -errno;
	snprintf(at.sun_path, sizeof(at.sun_path), "%.79s/%d", folder, (int)pid);
	rc = connect(fd, (const void *)&at, sizeof(at)) ? -errno : 0;
	/* The one that listens: not another one with the same number, of another container. */
	if (!rc && (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.pid != pid))
		rc = -ENOENT;
	if (!rc)
		return fd;
	close(fd);
	if (rc == -ECONNREFUSED && kill(pid, 0) && errno == ESRCH)
		unlink(at.sun_path);
	return rc;
}

int attach(struct attached *a, pid_t pid)
{
	char path[FOLDER_BYTES];
	struct stat st;
	int i, rc = -ENOENT;

	a->pid = pid;
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (stat(path, &st)) {
		fprintf(stderr, "%s: there is no process %d\n", a->who, (int)pid);
		return -1;
	}
	for (i = 0; i < NFOLDERS && rc < 0; i++) {
		folder_name(path, sizeof(path), st.st_uid, i);
		if (folder_fine(path, st.st_uid))
			rc = connect_to(path, pid);
	}
	a->fd = rc;
	if (rc >= 0)
		return 0;
	if (st.st_uid != geteuid() && geteuid())
		fprintf(stderr, "%s: process %d belongs to another user\n", a->who, (int)pid);
	else if (rc == -ENOENT || rc == -ECONNREFUSED)
		fprintf(stderr, "%s: process %d publishes no engine: start it with PAWL_PUBLISH=1 in its "
			"environment, or see pawl_publish(3)\n", a->who, (int)pid);
	else
		fprintf(stderr, "%s: process %d: %s\n", a->who, (int)pid, strerror(-rc));
	return -1;
}

void attach_end(struct attached *a)
{
	close(a->fd);
	a->fd = -1;
}

int attach_send(struct attached *a, const char *request, int file)
{
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } control = { 0 };
	struct iovec part = { (void *)(size_t)request, strlen(request) };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };

	if (file >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control);
		control.h.cmsg_level = SOL_SOCKET;
		control.h.cmsg_type = SCM_RIGHTS;
		control.h.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.h), &file, sizeof(file));
	}
	return sendmsg(a->fd, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

json_t *attach_receive(struct attached *a, int wait_ms, int *rc)
{
	struct pollfd f = { .fd = a->fd, .events = POLLIN };
	json_error_t error;
	json_t *answer, *text;
	char *buf;
	ssize_t n;

	*rc = poll(&f, 1, wait_ms);
	if (*rc <= 0) {
		*rc = *rc ? -errno : -ETIMEDOUT;
		return NULL;
	}
	*rc = -EPIPE;
	buf = malloc(ANSWER_BYTES);
	n = buf ? recv(a->fd, buf, ANSWER_BYTES, 0) : -1;
	answer = n > 0 ? json_loadb(buf, (size_t)n, JSON_ALLOW_NUL, &error) : NULL;
	free(buf);
	if (n <= 0)
		return NULL;
	*rc = answer ? 0 : -EBADMSG;
	text = json_object_get(answer, "text");
	if (text) {
		fprintf(stderr, "%s: process %d: %s\n", a->who, (int)a->pid, json_string_value(text));
		*rc = -EBADMSG;
	} else if (!answer) {
		fprintf(stderr, "%s: process %d: %s\n", a->who, (int)a->pid, error.text);
	}
	if (*rc) {
		json_decref(answer);
		return NULL;
	}
	return answer;
}

/* The state of a process as in proc(5), or 0. */
static char process_state(pid_t pid)
{
	char path[32], line[512], *p;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	p = fgets(line, sizeof(line), f);
	fclose(f);
	p = p ? strrchr(p, ')') : NULL;
	return p && p[1] ? p[2] : 0;
}

void attach_silent(const struct attached *a, int rc)
{
	char state = process_state(a->pid);

	if (rc == -EPIPE)
		fprintf(stderr, "%s: process %d has ended, or has destroyed its engines\n", a->who,
			(int)a->pid);
	else if (state == 'T' || state == 't')
		fprintf(stderr, "%s: process %d is stopped, and does not answer\n", a->who, (int)a->pid);
	else if (rc == -ETIMEDOUT)
		fprintf(stderr, "%s: process %d does not answer: all its workers run bodies, and no "
			"thread of it waits in pawl\n", a->who, (int)a->pid);
}

static void each_in(const char *folder, void (*fn)(void *arg, pid_t pid, const char *program),
		    void *arg)
{
	DIR *d = opendir(folder);
	char path[64], program[64];
	struct dirent *e;
	pid_t pid;
	FILE *f;
	int fd;

	while (d && (e = readdir(d))) {
		pid = attach_pid(e->d_name);
		fd = pid ? connect_to(folder, pid) : -1;
		if (fd < 0)
			continue;
		close(fd);
		snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
		f = fopen(path, "r");
		if (!f || !fgets(program, sizeof(program), f))
			strcpy(program, "?");
		program[strcspn(program, "\n")] = 0;
		if (f)
			fclose(f);
		fn(arg, pid, program);
	}
	if (d)
		closedir(d);
}

void attach_each(void (*fn)(void *arg, pid_t pid, const char *program), void *arg)
{
	char path[FOLDER_BYTES];
	int i;

	for (i = 0; i < NFOLDERS; i++) {
		folder_name(path, sizeof(path), geteuid(), i);
		if (folder_fine(path, geteuid()))
			each_in(path, fn, arg);
	}
}

pid_t attach_pid(const char *s)
{
	char *end;
	long pid = strtol(s, &end, 10);

	return *s >= '0' && *s <= '9' && !*end && pid > 0 && pid < 1 << 30 ? (pid_t)pid : 0;
}
