// SPDX-License-Identifier: Apache-2.0
/*
 * The server of pawl demo: a process of the same program, its log, and its repository.
 *
 * The repository has one model, with one version at a time: a symbolic link to the folder of
 * one of the two networks.  Each further version has the next number and the other network.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tools/pawl/cmd.h>
#include "demo.h"

static const char settings[] =
	"[server]\n"
	"grace = 600\n"			/* a second signal ends it */
	"idle_timeout = 600\n"
	"read_timeout = 600\n"
	"write_timeout = 600\n";

static int link_version(const struct child *ch, int version)
{
	char from[PATH_MAX], to[128];

	/* the folders of the data: 1 is model b, 2 is model a */
	if (snprintf(from, sizeof(from), "%s/%s/%d", ch->w->repository, MODEL_NAME,
		     version_model(version) ? 1 : 2) >= (int)sizeof(from))
		return failed(ch->w->repository, strerror(ENAMETOOLONG));
	if (access(from, R_OK))
		return failed(from, strerror(errno));
	snprintf(to, sizeof(to), "%s/models/%s/%d", ch->folder, MODEL_NAME, version);
	return symlink(from, to) ? failed(to, strerror(errno)) : 0;
}

static int make_repository(struct child *ch)
{
	const char *base = getenv("TMPDIR");
	char path[128];
	FILE *f;

	if (snprintf(ch->folder, sizeof(ch->folder), "%s/pawl-demo-XXXXXX",
		     base && *base ? base : "/tmp") >= (int)sizeof(ch->folder)) {
		*ch->folder = 0;
		return failed("TMPDIR", strerror(ENAMETOOLONG));
	}
	if (!mkdtemp(ch->folder)) {
		int rc = failed(ch->folder, strerror(errno));

		*ch->folder = 0;
		return rc;
	}
	snprintf(path, sizeof(path), "%s/models", ch->folder);
	if (mkdir(path, 0700))
		return failed(path, strerror(errno));
	snprintf(path, sizeof(path), "%s/models/%s", ch->folder, MODEL_NAME);
	if (mkdir(path, 0700))
		return failed(path, strerror(errno));
	snprintf(path, sizeof(path), "%s/serve.ini", ch->folder);
	f = fopen(path, "we");
	if (!f)
		return failed(path, strerror(errno));
	fputs(settings, f);
	if (fclose(f))
		return failed(path, strerror(errno));
	ch->version = 1;
	return link_version(ch, 1);
}

int child_next_version(struct child *ch)
{
	char old[128];
	int rc = link_version(ch, ch->version + 1);

	if (rc)
		return rc;
	snprintf(old, sizeof(old), "%s/models/%s/%d", ch->folder, MODEL_NAME, ch->version);
	ch->version++;
	return unlink(old) ? failed(old, strerror(errno)) : 0;
}

/* ---- the log ---------------------------------------------------------------- */

static void take_line(struct child *ch)
{
	const char *event, *level, *port, *requests, *answers;
	json_t *o = json_loads(ch->line, 0, NULL);

	memcpy(ch->last, ch->line, sizeof(ch->last));
	event = json_string_value(json_object_get(o, "event"));
	level = json_string_value(json_object_get(o, "level"));
	if (!event || !level || strcmp(level, "info")) {
		if (!ch->errors++)
			fprintf(stderr, "%s: the server says: %s\n", self, ch->line);
	} else if (!strcmp(event, "ready")) {
		port = json_string_value(json_object_get(o, "port"));
		ch->port = port ? (unsigned int)strtoul(port, NULL, 10) : 0;
		ch->ready = true;
	} else if (!strcmp(event, "stopped")) {
		requests = json_string_value(json_object_get(o, "requests"));
		answers = json_string_value(json_object_get(o, "answers"));
		ch->stopped = requests && answers;
		ch->requests = requests ? strtoull(requests, NULL, 10) : 0;
		ch->answers = answers ? strtoull(answers, NULL, 10) : 0;
	}
	json_decref(o);
}

int child_read(struct child *ch)
{
	ssize_t n;
	char *end;

	while (ch->log >= 0) {
		n = read(ch->log, ch->line + ch->nline, sizeof(ch->line) - 1 - ch->nline);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0)
			return failed("the server's log", strerror(errno));
		if (!n) {
			close(ch->log);
			ch->log = -1;
			return 0;
		}
		ch->nline += (size_t)n;
		ch->line[ch->nline] = 0;
		while ((end = strchr(ch->line, '\n'))) {
			*end = 0;
			take_line(ch);
			ch->nline -= (size_t)(end + 1 - ch->line);
			memmove(ch->line, end + 1, ch->nline + 1);
		}
		if (ch->nline == sizeof(ch->line) - 1)
			return failed("the server's log", "a line is too long");
	}
	return 0;
}

/* Wait until the log has more, or has ended. */
static int wait_log(struct child *ch)
{
	struct pollfd p = { ch->log, POLLIN, 0 };
	int n;

	do
		n = poll(&p, 1, (int)(PATIENCE_NS / 1000000));
	while (n < 0 && errno == EINTR);
	if (!n)
		return failed("the server", "logs nothing and does not end");
	return child_read(ch);
}

/* ---- the process ------------------------------------------------------------ */

/* In the new process. */
static void become_server(const struct child *ch, int log, pid_t parent)
{
	char repository[128], config[128], *const argv[] = {
		(char *)(uintptr_t)"pawl", (char *)(uintptr_t)"serve",
		(char *)(uintptr_t)"--repository", repository,
		(char *)(uintptr_t)"--config", config,
		(char *)(uintptr_t)"--port", (char *)(uintptr_t)"0", NULL };

	snprintf(repository, sizeof(repository), "%s/models", ch->folder);
	snprintf(config, sizeof(config), "%s/serve.ini", ch->folder);
	/* the kernel ends it when this command ends */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || dup2(log, STDERR_FILENO) < 0)
		_exit(STATUS_FAILED);
	execv("/proc/self/exe", argv);
	dprintf(STDERR_FILENO, "exec: %s\n", strerror(errno));
	_exit(STATUS_FAILED);
}

int child_start(struct child *ch, const struct work *w)
{
	int fds[2], rc;
	pid_t parent = getpid();

	ch->w = w;
	ch->log = -1;
	rc = make_repository(ch);
	if (rc)
		return rc;
	if (pipe2(fds, O_CLOEXEC))
		return failed("pipe", strerror(errno));
	fflush(NULL);
	ch->pid = fork();
	if (!ch->pid)
		become_server(ch, fds[1], parent);
	close(fds[1]);
	ch->log = fds[0];
	if (ch->pid < 0) {
		ch->pid = 0;
		return failed("fork", strerror(errno));
	}
	if (fcntl(ch->log, F_SETFL, O_NONBLOCK))
		return failed("pipe", strerror(errno));
	while (!rc && !ch->ready && ch->log >= 0)
		rc = wait_log(ch);
	if (!rc && (!ch->ready || !ch->port || ch->errors))
		rc = failed("the server did not start", ch->last);
	return rc;
}

int child_signal(struct child *ch, int sig)
{
	return kill(ch->pid, sig) ? failed("the server", strerror(errno)) : 0;
}

int child_wait(struct child *ch)
{
	int rc = 0, status;
	pid_t pid;

	while (!rc && ch->log >= 0)
		rc = wait_log(ch);
	if (rc)
		return rc;
	do
		pid = waitpid(ch->pid, &status, 0);
	while (pid < 0 && errno == EINTR);
	ch->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void child_free(struct child *ch)
{
	char path[160];

	if (ch->pid > 0) {
		kill(ch->pid, SIGKILL);
		waitpid(ch->pid, NULL, 0);
	}
	if (ch->log >= 0)
		close(ch->log);
	if (!*ch->folder)
		return;
	snprintf(path, sizeof(path), "%s/serve.ini", ch->folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/models/%s/%d", ch->folder, MODEL_NAME, ch->version);
	unlink(path);
	snprintf(path, sizeof(path), "%s/models/%s", ch->folder, MODEL_NAME);
	rmdir(path);
	snprintf(path, sizeof(path), "%s/models", ch->folder);
	rmdir(path);
	rmdir(ch->folder);
}
