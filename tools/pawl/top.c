// SPDX-License-Identifier: Apache-2.0
/*
 * pawl top: what the engines of a running process do, once a second.  A figure per second is the
 * difference between two answers of the process.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attach.h"
#include "cmd.h"

#define ME		"pawl top"
#define FIRST_MS	5000	/* a process that has not answered the first request by then */
#define LATE_MS		2000

struct options {
	double interval;
	long count;		/* 0: no end */
	bool json;
};

static void usage(FILE *f)
{
	fputs("Usage: pawl top [OPTION]... [PID]\n"
	      "Show what the engines of the process PID do.  Without PID list the processes that can be\n"
	      "observed: those with PAWL_PUBLISH=1 in their environment, or that call pawl_publish(),\n"
	      "such as pawl serve.\n\n"
	      "  -i, --interval=SECONDS  time between two samples (default 1)\n"
	      "  -n, --count=N           end after N samples\n"
	      "  -j, --json              a line of JSON for each sample\n"
	      "  -h, --help              print this\n\n"
	      "See pawl-top(1).\n", f);
}

static double number(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

static const char *string(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static double rate(const json_t *now, const json_t *was, const char *key, double seconds)
{
	return was && seconds > 0 ? (number(now, key) - number(was, key)) / seconds : 0;
}

/* --- figures --- */

/* The upper end of the bucket that has this part of the waiting times since `was`, in ns; or 0. */
static double wait_at(const json_t *now, const json_t *was, double part)
{
	const json_t *a = json_object_get(now, "wait"), *b = json_object_get(was, "wait");
	double sum = 0, all = 0;
	size_t i, n = json_array_size(a);

	for (i = 0; i < n; i++)
		all += json_number_value(json_array_get(a, i)) - json_number_value(json_array_get(b, i));
	for (i = 0; i < n && all > 0; i++) {
		sum += json_number_value(json_array_get(a, i)) - json_number_value(json_array_get(b, i));
		if (sum >= part * all)
			return ldexp(1, (int)i);
	}
	return 0;
}

static const json_t *find(const json_t *list, const char *key, const json_t *value)
{
	size_t i;

	for (i = 0; i < json_array_size(list); i++)
		if (json_equal(json_object_get(json_array_get(list, i), key), value))
			return json_array_get(list, i);
	return NULL;
}

/* Add to the answer what follows from the one before. */
static void figures(json_t *now, const json_t *before)
{
	double seconds = before ? (number(now, "ns") - number(before, "ns")) / 1e9 : 0;
	json_t *engines = json_object_get(now, "engines"), *e, *q;
	size_t i, k;

	json_object_set_new(now, "seconds", json_real(seconds));
	json_array_foreach(engines, i, e) {
		const json_t *was = find(json_object_get(before, "engines"), "engine",
					 json_object_get(e, "engine"));

		json_object_set_new(e, "ops_per_s", json_real(rate(e, was, "completed", seconds)));
		json_object_set_new(e, "failed_per_s", json_real(rate(e, was, "failed", seconds)));
		json_array_foreach(json_object_get(e, "queues"), k, q) {
			const json_t *qwas = find(json_object_get(was, "queues"), "name",
						  json_object_get(q, "name"));

			json_object_set_new(q, "pushed_per_s", json_real(rate(q, qwas, "pushed", seconds)));
			json_object_set_new(q, "wait_p50_ns", json_real(wait_at(q, qwas, 0.5)));
			json_object_set_new(q, "wait_p99_ns", json_real(wait_at(q, qwas, 0.99)));
		}
	}
}

/* --- text --- */

static const char *time_text(double ns)
{
	static char text[4][24];
	static unsigned int turn;
	char *s = text[turn++ % 4];

	if (ns <= 0)
		return "-";
	if (ns < 1e3)
		snprintf(s, 24, "%.0f ns", ns);
	else if (ns < 1e6)
		snprintf(s, 24, "%.3g us", ns / 1e3);
	else if (ns < 1e9)
		snprintf(s, 24, "%.3g ms", ns / 1e6);
	else
		snprintf(s, 24, "%.1f s", ns / 1e9);
	return s;
}

static void queues_print(const json_t *e)
{
	json_t *q;
	size_t i;

	printf("  %-7s %8s %9s %12s %10s %10s\n", "queue", "workers", "depth", "queued/s", "wait p50",
	       "p99 below");
	json_array_foreach(json_object_get(e, "queues"), i, q) {
		/* One that was never used has nothing to say. */
		if (number(q, "pushed") == 0 && number(q, "workers") == 0)
			continue;
		printf("  %-7s %8.0f %9.0f %12.0f %10s %10s\n", string(q, "name"), number(q, "workers"),
		       number(q, "depth"), number(q, "pushed_per_s"), time_text(number(q, "wait_p50_ns")),
		       time_text(number(q, "wait_p99_ns")));
	}
}

static void held_print(const json_t *e)
{
	json_t *h;
	size_t i;

	json_array_foreach(json_object_get(e, "held"), i, h) {
		const char *what = string(h, "what"), *name = string(h, "name");

		if (i == 3)
			break;
		if (!strcmp(what, "queue")) {
			printf("  waits   queue %s: nothing was taken for %s, %.0f ops\n", name,
			       time_text(number(h, "ns")), number(h, "behind"));
			continue;
		}
		printf("  %s %s for %s or longer, thread %.0f", strcmp(what, "body") ? "pending" : "runs   ",
		       *name ? name : "(an op without a name)", time_text(number(h, "ns")),
		       number(h, "thread"));
		if (json_object_get(h, "var"))
			printf(", holds var %s, for which %.0f ops wait", string(h, "var"), number(h, "behind"));
		putchar('\n');
	}
}

static void full_print(const json_t *e)
{
	json_t *g;
	size_t i;

	json_array_foreach(json_object_get(e, "groups"), i, g) {
		if (i == 3 || (number(g, "ops") == 0 && number(g, "full") == 0))
			break;
		printf("  group   %s: %.0f ops", string(g, "group"), number(g, "ops"));
		if (number(g, "max_ops") > 0)
			printf(" of %.0f", number(g, "max_ops"));
		if (number(g, "max_cost") > 0)
			printf(", cost %.0f of %.0f", number(g, "cost"), number(g, "max_cost"));
		printf(", %.0f %% full\n", 100 * number(g, "full"));
	}
	json_array_foreach(json_object_get(e, "cqs"), i, g) {
		if (i == 3 || number(g, "completions") == 0)
			break;
		printf("  cq      %s: %.0f completions to come or to be reaped, %.1f %% of the window\n",
		       string(g, "cq"), number(g, "completions"), 100 * number(g, "full"));
	}
}

static void print(const json_t *now, bool terminal, const struct options *o)
{
	time_t t = time(NULL);
	char clock[16];
	struct tm tm;
	json_t *e;
	size_t i;

	strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&t, &tm));
	if (terminal)
		fputs("\033[H\033[J", stdout);
	printf("%s  %s, process %.0f, pawl %s, every %g s\n", clock, string(now, "program"),
	       number(now, "pid"), string(now, "pawl"), o->interval);
	json_array_foreach(json_object_get(now, "engines"), i, e) {
		printf("\nengine %.0f, %s, %s%s\n", number(e, "engine"), string(e, "name"),
		       string(e, "kind"), number(e, "tracing") > 0 ? ", being traced" : "");
		printf("  ops     %.0f/s, %.0f in flight, %.1f %% of the window; %.0f bodies run, %.0f workers",
		       number(e, "ops_per_s"), number(e, "pushed") - number(e, "completed"),
		       100 * number(e, "in_window") / fmax(1, number(e, "window")), number(e, "running"),
		       number(e, "workers"));
		if (number(e, "failed") > 0)
			printf("; %.0f failed so far", number(e, "failed"));
		printf("\n  memory  %.1f MB\n", number(e, "bytes") / 1e6);
		queues_print(e);
		held_print(e);
		full_print(e);
	}
	if (!json_array_size(json_object_get(now, "engines")))
		printf("no engine\n");
	if (!terminal)
		putchar('\n');
}

/* --- the command --- */

struct published {
	unsigned int n;
	pid_t pid;
};

static void published_add(void *arg, pid_t pid, const char *program)
{
	struct published *p = arg;

	p->n++;
	p->pid = pid;
	printf("%7d  %s\n", (int)pid, program);
}

static int list(void)
{
	struct published p = { 0 };

	attach_each(published_add, &p);
	if (!p.n)
		fprintf(stderr, ME ": no process of yours publishes an engine; see pawl_publish(3)\n");
	return p.n ? STATUS_OK : STATUS_FAILED;
}

/* Returns the answer to a request that was sent; waits as long as the process is silent. */
static json_t *receive(struct attached *a, bool first, int *rc)
{
	json_t *now = attach_receive(a, first ? FIRST_MS : LATE_MS, rc);

	if (now || first || *rc != -ETIMEDOUT)
		return now;
	attach_silent(a, *rc);
	while (!now && *rc == -ETIMEDOUT)
		now = attach_receive(a, LATE_MS, rc);
	return now;
}

static void sleep_until(const struct timespec *start, double seconds)
{
	double at = (double)start->tv_sec + (double)start->tv_nsec / 1e9 + seconds;
	struct timespec t = { .tv_sec = (time_t)at, .tv_nsec = (long)((at - floor(at)) * 1e9) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static int watch(struct attached *a, const struct options *o)
{
	bool terminal = !o->json && isatty(STDOUT_FILENO);
	json_t *before = NULL, *now;
	struct timespec start;
	long i;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &start);
	/* The first answer is what the others are compared with. */
	for (i = 0; !o->count || i <= o->count; i++) {
		if (i)
			sleep_until(&start, o->interval * (double)i);
		rc = attach_send(a, "snapshot", -1);
		now = rc ? NULL : receive(a, !i, &rc);
		if (!now)
			break;
		if (!i)
			clock_gettime(CLOCK_MONOTONIC, &start);
		figures(now, before);
		json_decref(before);
		before = now;
		if (!i)
			continue;
		if (o->json) {
			json_dumpf(now, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
			putchar('\n');
		} else {
			print(now, terminal, o);
		}
		if (fflush(stdout))
			break;
	}
	json_decref(before);
	if (rc)
		attach_silent(a, rc == -ECONNRESET ? -EPIPE : rc);
	/* A process that ends while it is observed is no failure, if anything was shown. */
	return rc && i < 2 ? STATUS_FAILED : STATUS_OK;
}

int cmd_top(int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "interval", required_argument, NULL, 'i' },
		{ "count", required_argument, NULL, 'n' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	struct options o = { .interval = 1 };
	struct attached a = { .who = ME };
	char *end;
	pid_t pid;
	int c, status;

	optind = 1;
	while ((c = getopt_long(argc, argv, "i:n:jh", long_options, NULL)) != -1) {
		switch (c) {
		case 'i':
			o.interval = strtod(optarg, &end);
			if (*end || !(o.interval >= 0.01 && o.interval <= 86400)) {
				fprintf(stderr, ME ": --interval=%s: not in 0.01 to 86400 seconds\n", optarg);
				return STATUS_USAGE;
			}
			break;
		case 'n':
			o.count = strtol(optarg, &end, 10);
			if (*end || o.count < 1) {
				fprintf(stderr, ME ": --count=%s: not a number from 1\n", optarg);
				return STATUS_USAGE;
			}
			break;
		case 'j':
			o.json = true;
			break;
		case 'h':
			usage(stdout);
			return STATUS_OK;
		default:
			fprintf(stderr, "'" ME " --help' lists the options\n");
			return STATUS_USAGE;
		}
	}
	if (optind == argc)
		return list();
	pid = attach_pid(argv[optind]);
	if (!pid || optind + 1 < argc) {
		fprintf(stderr, ME ": '%s' is not %s\n", argv[pid ? optind + 1 : optind],
			pid ? "expected: one process at a time" : "a process id");
		return STATUS_USAGE;
	}
	if (attach(&a, pid))
		return STATUS_FAILED;
	status = watch(&a, &o);
	attach_end(&a);
	return status;
}
