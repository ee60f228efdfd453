// SPDX-License-Identifier: Apache-2.0
/* pawl replay: its options, and what it prints. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "replay.h"

static const char help[] =
"Usage: pawl replay [OPTION]... FILE\n"
"Push a recorded workload on an engine, in the serial order of the recording, and check\n"
"that every body finds its vars in the same versions. FILE: a recording (PAWL_RECORD), a\n"
"WfFormat instance, or a trace of PyTorch or Chrome; all may be compressed.\n\n"
"  -w, --workers=N    N threads run the bodies, with 0 the one that pushes (default: as many\n"
"                     as processors, among them the one that pushes)\n"
"  -e, --engine=KIND  per-device (default), pooled or naive\n"
"  -s, --speed=X      bodies take their recorded time divided by X, as time on a processor;\n"
"                     0: none (default)\n"
"      --sleep        bodies sleep for that time instead of keeping a processor busy\n"
"  -r, --repeat=N     replay N times (1)\n"
"  -h, --help         print this\n";

enum { OPT_SLEEP = 256 };

static const struct option options[] = {
	{ "workers", required_argument, NULL, 'w' },
	{ "engine", required_argument, NULL, 'e' },
	{ "speed", required_argument, NULL, 's' },
	{ "sleep", no_argument, NULL, OPT_SLEEP },
	{ "repeat", required_argument, NULL, 'r' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static int number(const char *self, const char *name, double min, double max, double *out)
{
	char *end;

	errno = 0;
	*out = strtod(optarg, &end);
	if (end == optarg || *end || errno || !(*out >= min && *out <= max)) {
		fprintf(stderr, "%s: %s: '%s' is not a number in %g..%g\n", self, name, optarg, min,
			max);
		return -1;
	}
	return 0;
}

static int replay_times(const char *self, const char *path, const struct replay_options *opt,
			unsigned int times)
{
	struct replay_result res;
	const struct recording *r;
	struct source s;
	uint32_t devices;
	char err[256] = "no memory";
	int rc;

	rc = source_open(&s, path, err, sizeof(err));
	if (!rc)
		rc = replay_check(&s, &devices);
	if (rc) {
		fprintf(stderr, "%s: %s\n", self, err);
		source_close(&s);
		return STATUS_FAILED;
	}
	r = source_info(&s);
	if (r->covered > 0 && r->covered < .9)
		fprintf(stderr, "%s: %s: warning: the ops cover %.1f %% of the time of the trace\n", self,
			path, r->covered * 100);
	if (r->nonsense)
		fprintf(stderr, "%s: %s: warning: %" PRIu64 " events and times that have no meaning "
			"are left out\n", self, path, r->nonsense);
	for (; !rc && times; times--) {
		rc = replay_source(&s, devices, opt, &res);
		if (rc)
			break;
		printf("%s: %" PRIu64 " ops, %zu vars, %" PRIu64 " accesses", r->format, res.ops,
		       r->nvars, res.accesses);
		if (r->nnodes)
			printf(", %" PRIu64 " bodies of launches", res.bodies);
		if (r->nedges)
			printf(", %" PRIu64 " parents", res.edges);
		printf(" in %.3f ms on %u ", (double)res.ns / 1e6, res.threads);
		if (opt->workers > 0 && res.threads <= (unsigned int)opt->workers)
			printf("of %d ", opt->workers);
		printf("thread%s", res.threads == 1 && opt->workers <= 1 ? "" : "s");
		if (opt->workers > 0 && res.threads > (unsigned int)opt->workers)
			printf(", with those that the properties of ops ask for");
		printf(": ");
		if (res.wrong) {
			printf("%" PRIu64 " out of order; first: %s\n", res.wrong, res.first);
			rc = 1;
		} else {
			printf("order kept\n");
		}
	}
	if (rc < 0)
		fprintf(stderr, "%s: %s: %s\n", self, path, err);
	source_close(&s);
	return rc ? STATUS_FAILED : STATUS_OK;
}

int cmd_replay(int argc, char **argv)
{
	static const char *const kinds[] = { "per-device", "pooled", "naive" };
	struct replay_options o = { .workers = -1 };
	double v, times = 1;
	int c, bad = 0;

	optind = 1;
	while (!bad && (c = getopt_long(argc, argv, "w:e:s:r:h", options, NULL)) != -1) {
		switch (c) {
		case 'w':
			bad = number(argv[0], "--workers", 0, 1024, &v);
			o.workers = (int)v;
			break;
		case 'e':
			for (o.kind = 0; o.kind < 3 && strcmp(optarg, kinds[o.kind]); o.kind++)
				;
			bad = o.kind == 3;
			if (bad)
				fprintf(stderr, "%s: --engine: '%s' is not per-device, pooled or naive\n",
					argv[0], optarg);
			break;
		case 's':
			bad = number(argv[0], "--speed", 0, 1e9, &o.speed);
			break;
		case OPT_SLEEP:
			o.sleep = true;
			break;
		case 'r':
			bad = number(argv[0], "--repeat", 1, 1e6, &times);
			break;
		case 'h':
			fputs(help, stdout);
			return STATUS_OK;
		default:
			bad = 1;
		}
	}
	if (!bad && optind != argc - 1) {
		fprintf(stderr, "%s: %s\n", argv[0], optind == argc ? "which file?" : "one file");
		bad = 1;
	}
	if (bad) {
		fprintf(stderr, "Try '%s --help'.\n", argv[0]);
		return STATUS_USAGE;
	}
	return replay_times(argv[0], argv[optind], &o, (unsigned int)times);
}
