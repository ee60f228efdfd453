// SPDX-License-Identifier: Apache-2.0
/*
 * pawl trace: a Perfetto trace of a process that runs, or of a command.  The process writes the
 * events of its engines to files that this program opens, so it cannot be made to write another.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach.h"
#include "cmd.h"

#define ME		"pawl trace"
#define ANSWER_MS	5000
#define WRITE_MS	600000
#define EVENTS_MAX	(1 << 24)

struct options {
	const char *file;
	double seconds;		/* 0: until SIGINT */
	long events;		/* per thread; 0: the library's default */
};

static volatile sig_atomic_t interrupted;

static void usage(FILE *f)
{
	fputs("Usage: pawl trace [OPTION]... PID\n"
	      "       pawl trace [OPTION]... [--] COMMAND [ARG]...\n"
	      "Write a trace of the engines of a running process, until SIGINT; or run COMMAND and write\n"
	      "one from its begin to its end.  ui.perfetto.dev and chrome://tracing open it.\n\n"
	      "  -o, --output=FILE       the trace of the first engine (default pawl-trace.json); the\n"
	      "                          others have a number in their names\n"
	      "  -d, --duration=SECONDS  end the trace of PID by itself\n"
	      "  -e, --events=N          keep the last N events of each thread (default 65536)\n"
	      "  -h, --help              print this\n\n"
	      "The process PID must publish its engines, as for pawl top.  See pawl-trace(1).\n", f);
}

static void interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

/* --- a running process --- */

/* Send a request, and return its answer; NULL after a message. */
static json_t *ask(struct attached *a, const char *request, int file, int wait_ms)
{
	json_t *answer = NULL;
	int rc = attach_send(a, request, file);

	while (!rc && !answer) {
		answer = attach_receive(a, wait_ms, &rc);
		/* A second signal does not lose the trace. */
		if (rc == -EINTR)
			rc = 0;
	}
	if (!answer)
		attach_silent(a, rc == -ECONNRESET ? -EPIPE : rc);
	return answer;
}

/* Wait for the time, a signal, or the end of the process. */
static void pass(struct attached *a, double seconds)
{
	struct pollfd f = { .fd = a->fd, .events = POLLIN };
	struct timespec t = { .tv_sec = (time_t)seconds,
			      .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
	sigset_t none, both;

	sigemptyset(&both);
	sigaddset(&both, SIGINT);
	sigaddset(&both, SIGTERM);
	sigprocmask(SIG_BLOCK, &both, &none);
	if (!interrupted)
		ppoll(&f, 1, seconds > 0 ? &t : NULL, &none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* FILE, and for the engine with another number FILE with that before its suffix. */
static void file_name(char *path, size_t size, const char *file, bool first, long long engine)
{
	const char *base = strrchr(file, '/'), *dot;

	base = base ? base + 1 : file;
	dot = strrchr(base, '.');
	if (!dot || dot == base)
		dot = file + strlen(file);
	if (first)
		snprintf(path, size, "%s", file);
	else
		snprintf(path, size, "%.*s-%lld%s", (int)(dot - file), file, engine, dot);
}

static int engine_write(struct attached *a, const struct options *o, bool first, long long engine)
{
	char path[PATH_MAX], request[64];
	json_t *answer;
	int fd;

	file_name(path, sizeof(path), o->file, first, engine);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0) {
		fprintf(stderr, ME ": %s: %s\n", path, strerror(errno));
		return -1;
	}
	snprintf(request, sizeof(request), "trace write %lld", engine);
	answer = ask(a, request, fd, WRITE_MS);
	close(fd);
	if (!answer)
		return -1;
	json_decref(answer);
	printf("engine %lld: %s\n", engine, path);
	return 0;
}

static int trace_process(pid_t pid, const struct options *o)
{
	struct sigaction act = { .sa_handler = interrupt };
	struct attached a = { .who = ME };
	char request[64];
	json_t *answer, *engines;
	size_t i;
	int rc = 0;

	/* A file that cannot be written is known before, not after. */
	if (access(o->file, W_OK) && errno != ENOENT) {
		fprintf(stderr, ME ": %s: %s\n", o->file, strerror(errno));
		return STATUS_FAILED;
	}
	if (attach(&a, pid))
		return STATUS_FAILED;
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	snprintf(request, sizeof(request), "trace start %ld", o->events);
	answer = ask(&a, request, -1, ANSWER_MS);
	if (!answer)
		return STATUS_FAILED;
	json_decref(answer);
	fprintf(stderr, ME ": process %d is traced%s\n", (int)pid,
		o->seconds > 0 ? "" : "; SIGINT (Ctrl-C) ends it");
	pass(&a, o->seconds);
	answer = ask(&a, "trace stop", -1, ANSWER_MS);
	engines = json_object_get(answer, "engines");
	for (i = 0; i < json_array_size(engines) && !rc; i++)
		rc = engine_write(&a, o, !i, json_integer_value(json_array_get(engines, i)));
	if (answer && !json_array_size(engines))
		fprintf(stderr, ME ": process %d has destroyed its engines meanwhile\n", (int)pid);
	if (!json_array_size(engines))
		rc = -1;
	json_decref(answer);
	attach_end(&a);
	return rc ? STATUS_FAILED : STATUS_OK;
}

/* --- a command --- */

static int trace_command(char **argv, const struct options *o)
{
	struct sigaction act = { .sa_handler = SIG_IGN }, before[2];
	char path[PATH_MAX], events[32], *where;
	struct stat st;
	int status;
	pid_t pid;

	/* The process may change its folder before it creates an engine. */
	where = *o->file == '/' ? NULL : getcwd(NULL, 0);
	if (snprintf(path, sizeof(path), "%s%s%s", where ? where : "", where ? "/" : "", o->file) >=
	    (int)sizeof(path)) {
		fprintf(stderr, ME ": %s: %s\n", o->file, strerror(ENAMETOOLONG));
		free(where);
		return STATUS_FAILED;
	}
	free(where);
	/* One that exists is not replaced by the library. */
	if (!lstat(path, &st) && (!S_ISREG(st.st_mode) || unlink(path))) {
		fprintf(stderr, ME ": %s: %s\n", path, S_ISREG(st.st_mode) ? strerror(errno) :
			"not a regular file");
		return STATUS_FAILED;
	}
	setenv("PAWL_TRACE", path, 1);
	snprintf(events, sizeof(events), "%ld", o->events);
	if (o->events)
		setenv("PAWL_TRACE_EVENTS", events, 1);
	/* A signal from the terminal is for the command, which then writes its trace. */
	sigaction(SIGINT, &act, &before[0]);
	sigaction(SIGQUIT, &act, &before[1]);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		sigaction(SIGINT, &before[0], NULL);
		sigaction(SIGQUIT, &before[1], NULL);
		execvp(argv[0], argv);
		fprintf(stderr, ME ": %s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	if (pid < 0) {
		fprintf(stderr, ME ": %s\n", strerror(errno));
		return STATUS_FAILED;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!stat(path, &st) && st.st_size) {
		fprintf(stderr, ME ": %s\n", path);
	} else if (!WIFEXITED(status) || WEXITSTATUS(status) != 127) {
		fprintf(stderr, ME ": %s wrote no trace: it created no engine of pawl, or was killed\n",
			argv[0]);
		if (WIFEXITED(status) && !WEXITSTATUS(status))
			return STATUS_FAILED;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int cmd_trace(int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "output", required_argument, NULL, 'o' },
		{ "duration", required_argument, NULL, 'd' },
		{ "events", required_argument, NULL, 'e' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	struct options o = { .file = "pawl-trace.json" };
	char *end;
	pid_t pid;
	int c;

	optind = 1;
	/* What follows COMMAND are its options. */
	while ((c = getopt_long(argc, argv, "+o:d:e:h", long_options, NULL)) != -1) {
		switch (c) {
		case 'o':
			o.file = optarg;
			break;
		case 'd':
			o.seconds = strtod(optarg, &end);
			if (*end || !(o.seconds > 0 && o.seconds <= 86400)) {
				fprintf(stderr, ME ": --duration=%s: not a number of seconds up to 86400\n",
					optarg);
				return STATUS_USAGE;
			}
			break;
		case 'e':
			o.events = strtol(optarg, &end, 10);
			if (*end || o.events < 1 || o.events > EVENTS_MAX) {
				fprintf(stderr, ME ": --events=%s: not in 1 to %d\n", optarg, EVENTS_MAX);
				return STATUS_USAGE;
			}
			break;
		case 'h':
			usage(stdout);
			return STATUS_OK;
		default:
			fprintf(stderr, "'" ME " --help' lists the options\n");
			return STATUS_USAGE;
		}
	}
	if (optind == argc) {
		fprintf(stderr, ME ": a process id or a command is missing\n");
		return STATUS_USAGE;
	}
	pid = attach_pid(argv[optind]);
	if (pid && optind + 1 == argc)
		return trace_process(pid, &o);
	if (o.seconds > 0) {
		fprintf(stderr, ME ": --duration: the trace of a command ends with the command\n");
		return STATUS_USAGE;
	}
	return trace_command(argv + optind, &o);
}
