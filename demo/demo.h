/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations shared by the files of pawl demo:
 *
 *   demo.c      options, the phases of the run, the report
 *   child.c     the server: its process, its log, its repository
 *   client.c    connections to it, and the comparison of its answers
 *
 * It uses the data, its readers and the serial computation of pawl infer (infer.h).  All of it
 * runs on one thread.
 */
#ifndef PAWL_DEMO_H
#define PAWL_DEMO_H

#include <sys/types.h>

#include "infer.h"

#define MODEL_NAME	"digits"
#define PATIENCE_NS	(120 * (uint64_t)NSEC)	/* without any progress: it hangs */

/* ---- child.c ---- */

struct child {
	const struct work *w;
	pid_t pid;
	int log;			/* its standard error, not blocking; -1: it has ended */
	char folder[64];		/* temporary: the repository and the configuration */
	unsigned int port;
	bool ready;
	int version;			/* the newest folder; odd: model b, even: model a */
	char line[4096];		/* of the log, as far as it has arrived */
	size_t nline;
	char last[4096];		/* its last complete line */
	unsigned int errors;		/* lines of the log that report one */
	uint64_t requests, answers;	/* its own counts, after it has stopped */
	bool stopped;
};

/* Make the repository with version 1, start the server, and wait until it is ready. */
int child_start(struct child *ch, const struct work *w);
/* Read the lines that the log has now. */
int child_read(struct child *ch);
/* Replace the version's folder by that of the next version, for a load to find. */
int child_next_version(struct child *ch);
/* Send a signal. */
int child_signal(struct child *ch, int sig);
/* Read the log to its end, and return the exit status; a negative errno after a message. */
int child_wait(struct child *ch);
/* Kill the server if it still runs, and remove the folder. */
void child_free(struct child *ch);

/* The model of a version: 0 is a, 1 is b. */
static inline int version_model(int64_t version)
{
	return (int)(version & 1);
}

/* ---- client.c ---- */

struct tally {
	uint64_t sent, answered;	/* HTTP requests, also those for loads */
	uint64_t answers, images;	/* of the model */
	uint64_t failed;		/* requests: a status other than 200, or no answer */
	uint64_t wrong, mixed;		/* answers of no version; of two versions */
	uint64_t swaps;
	char first[256];		/* the first one of these */
};

/* How requests are sent. */
struct load {
	unsigned int connections;
	double rate;			/* requests/s that arrive; 0: each after an answer */
	double seconds;			/* 0: each request once */
	bool next_version;		/* have it loaded before the first request */
	double swap_every;		/* seconds from a load to the next; 0: never */
	bool stop_server;		/* SIGTERM after these seconds; all connections end */
};

struct outcome {
	uint64_t answers, images;
	double seconds;
	struct hist latency, swap;	/* ns */
};

struct client;

int client_create(struct client **out, const struct work *w, struct child *ch, struct tally *t);
/* Run a load until it ends: every request that was sent has its answer. */
int client_run(struct client *cl, const struct load *load, struct outcome *o);
void client_free(struct client *cl);

#endif
