// SPDX-License-Identifier: Apache-2.0
/*
 * pawl demo: pawl serve with two versions of a network for digits, and a client of it.
 *
 * It sends all images to each version, swaps the versions under load, and then stops the server
 * under load.  The command fails if anything is wrong.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tools/pawl/cmd.h>
#include "demo.h"
#include "net.h"

#define CONNECTIONS	32
#define SWAP_EVERY	0.05		/* seconds */

static const char help_text[] =
"Usage: pawl demo [OPTION]...\n"
"Start pawl serve with two versions of a network for handwritten digits, send it images over\n"
"HTTP, swap the versions under this load, and stop the server under load.  Each answer is\n"
"compared with a serial computation of the version that it names.\n"
"\n"
"      --seconds=N          duration of each of the two loads (8)\n"
"      --data=DIR           folder of the models and images\n"
"  -h, --help               print this\n"
"\n"
"Data: --data, or $PAWL_DATA, or data beside this program, or ../share/pawl relative to it.\n"
"Exit status: 0: all answers were right; 1: a check failed; 2: the command line is\n"
"invalid.\n";

struct demo {
	struct work w;
	struct child child;
	struct client *client;
	struct tally t;
	double seconds;
};

static int parse(struct demo *d, int argc, char **argv)
{
	static const struct option options[] = {
		{ "seconds", required_argument, NULL, 's' },
		{ "data", required_argument, NULL, 'd' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	char *end;
	int c;

	d->w.opt.batch = 1;
	d->seconds = 8;
	optind = 1;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == 'h')
			return 1;
		if (c == 'd') {
			d->w.opt.data = optarg;
			continue;
		}
		d->seconds = c == 's' ? strtod(optarg, &end) : 0;
		/* negated, so that NaN is refused */
		if (c == 's' && (end == optarg || *end ||
				 !(d->seconds >= 0.1 && d->seconds <= 1e6)))
			fprintf(stderr, "%s: --seconds: '%s' is not a number in 0.1..1e6\n",
				self, optarg);
		else if (c == 's')
			continue;
		return -EINVAL;
	}
	if (optind < argc) {
		fprintf(stderr, "%s: takes options only, not '%s'\n", self, argv[optind]);
		return -EINVAL;
	}
	return 0;
}

/* Send all images to each version. */
static int accuracy(struct demo *d)
{
	struct load load = { .connections = 8 };
	static struct outcome o;
	char buf[2][64];
	int rc = 0, version;

	printf("%-12s %-27s %s\n", "version", "right, all images", "right, held out");
	for (version = 1; version <= 2 && !rc; version++) {
		struct accuracy a;

		load.next_version = version > 1;
		rc = client_run(d->client, &load, &o);
		a = accuracy_of(&d->w, version_model(version));
		if (!rc)
			printf("%-12d %-27s %s\n", version,
			       share_text(buf[0], sizeof(buf[0]), a.right, a.seen),
			       share_text(buf[1], sizeof(buf[1]), a.held_right, a.held_seen));
		if (!rc && a.seen != d->w.images->count)
			rc = failed("the server", "has not answered for all images");
		fflush(stdout);
	}
	return rc;
}

static void print_load(const char *what, const struct outcome *o)
{
	static const unsigned int q[] = { 500, 990, 999 };
	char buf[32];
	size_t i;

	printf("%-21s %10.0f %10.0f", what, (double)o->answers / o->seconds,
	       (double)o->images / o->seconds);
	for (i = 0; i < sizeof(q) / sizeof(q[0]); i++)
		printf(" %9s", quantile_text(buf, sizeof(buf), &o->latency, q[i]));
	printf(" %9s\n", ns_text(buf, sizeof(buf), (double)o->latency.max));
	fflush(stdout);
}

/* Send as fast as possible, then at a quarter of that rate, with swaps. */
static int loads(struct demo *d)
{
	struct load load = { .connections = CONNECTIONS, .seconds = d->seconds,
			     .swap_every = SWAP_EVERY };
	static struct outcome full, part;
	char buf[2][32];
	int rc;

	printf("\n%-21s %10s %10s %9s %9s %9s %9s\n", "load", "requests/s", "images/s", "p50",
	       "p99", "p99.9", "max");
	fflush(stdout);
	rc = client_run(d->client, &load, &full);
	if (rc)
		return rc;
	print_load("32 connections", &full);
	load.rate = (double)full.answers / full.seconds / 4;
	load.connections = 4 * CONNECTIONS;
	rc = client_run(d->client, &load, &part);
	if (rc)
		return rc;
	print_load("a quarter of that *", &part);
	printf("*: requests arrive at random times; latency counts from the arrival\n\n");
	printf("%" PRIu64 " times a new version of the model replaced the old one under these "
	       "loads;\nfrom the call to the swap p50 %s, max %s.\n",
	       full.swap.count + part.swap.count,
	       quantile_text(buf[0], sizeof(buf[0]), &part.swap, 500),
	       ns_text(buf[1], sizeof(buf[1]), (double)part.swap.max));
	if (!full.swap.count || !part.swap.count)
		return failed("the server", "no version was swapped");
	return 0;
}

static int stop(struct demo *d)
{
	struct load load = { .connections = CONNECTIONS, .seconds = 0.3, .stop_server = true };
	static struct outcome o;
	int rc = client_run(d->client, &load, &o);

	/* all last answers have arrived: a second signal ends the grace time */
	if (!rc)
		rc = child_signal(&d->child, SIGTERM);
	if (!rc)
		rc = child_wait(&d->child);
	if (rc < 0)
		return rc;
	printf("SIGTERM under load: the server ended with status %d; of %" PRIu64
	       " requests it accepted\n%" PRIu64 " and answered %" PRIu64
	       ", and the client has %" PRIu64 " answers.\n", rc, d->t.sent,
	       d->child.requests, d->child.answers, d->t.answered);
	return rc || !d->child.stopped ? failed("the server", "did not stop regularly") : 0;
}

/* Whether all counters have the required values. */
static int verdict(struct demo *d)
{
	const struct tally *t = &d->t;
	bool lost = t->sent != t->answered || t->sent != d->child.requests ||
		    t->sent != d->child.answers;

	printf("%" PRIu64 " requests failed, %" PRIu64 " answers mix two versions, %" PRIu64
	       " differ from the serial computation.\n", t->failed, t->mixed, t->wrong);
	if (!t->failed && !t->mixed && !t->wrong && !lost && !d->child.errors)
		return 0;
	fflush(stdout);
	return failed("FAILED", *t->first ? t->first : lost ? "requests were lost" :
		      "the server reported errors");
}

static int demo(struct demo *d)
{
	int rc = work_load(&d->w);

	if (!rc)
		rc = child_start(&d->child, &d->w);
	if (!rc)
		rc = client_create(&d->client, &d->w, &d->child, &d->t);
	if (rc)
		return rc;
	printf("pawl serve answers on port %u: model " MODEL_NAME ", %" PRIu32 " images of %"
	       PRIu32 "x%" PRIu32 " pixels\n\n", d->child.port, d->w.images->count,
	       d->w.images->height, d->w.images->width);
	rc = accuracy(d);
	if (!rc)
		rc = loads(d);
	if (!rc)
		rc = stop(d);
	if (!rc)
		rc = verdict(d);
	else if (*d->t.first)
		failed("before that", d->t.first);
	return rc;
}

int cmd_demo(int argc, char **argv)
{
	static struct demo d;
	int rc;

	self = argv[0];
	d.child.log = -1;
	rc = parse(&d, argc, argv);
	if (rc > 0)
		fputs(help_text, stdout);
	if (rc)
		return rc > 0 ? STATUS_OK : STATUS_USAGE;
	net_init();
	rc = demo(&d);
	client_free(d.client);
	child_free(&d.child);
	work_unload(&d.w);
	return rc ? STATUS_FAILED : STATUS_OK;
}
