// SPDX-License-Identifier: Apache-2.0
/*
 * pawl infer: classify handwritten digits while the weights are swapped.
 *
 * This file parses the options and controls the run: read the files, compute all answers
 * serially (verify.c), let the engines answer in turns (serve.c), report.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <tools/pawl/cmd.h>
#include "gpu.h"
#include "infer.h"
#include "net.h"
#include "serve.h"

#define MAX_BATCH	4096u
#define MAX_IN_FLIGHT	4096u
#define MIN_ROUND_S	0.25		/* shorter ones measure start and drain */
#define MIN_ROUND	500u		/* requests, likewise */
#define OTHERS_SHARE	0.1		/* of the CPUs, before a warning */

const char *self = "pawl infer";
const char *const engine_name[] = { "per-device", "pooled", "naive" };

/* ---- messages --------------------------------------------------------------- */

int failed(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s%s%s\n", self, what, *what ? ": " : "", why);
	return -EIO;
}

void warn(struct work *w, const char *fmt, ...)
{
	va_list ap;

	if (w->nwarnings == MAX_WARNINGS)
		return;
	va_start(ap, fmt);
	vsnprintf(w->warning[w->nwarnings++], sizeof(w->warning[0]), fmt, ap);
	va_end(ap);
}

int pawl_failed(const struct result *r, const char *call)
{
	fprintf(stderr, "%s: %s engine: %s: %s\n", self, r->name, call, pawl_error_text());
	return -EIO;
}

/* ---- options ---------------------------------------------------------------- */

static const char help_text[] =
"Usage: pawl infer [OPTION]...\n"
"Classify handwritten digits.  Every request is a launch of a graph with an op per layer,\n"
"and the weights are swapped between two models while requests are in flight.  Every\n"
"answer is compared with a serial computation.  The naive engine runs the same in turns\n"
"with the other, for comparison.\n"
"\n"
"What is run:\n"
"  -a, --model-a=PREFIX     PREFIX-symbol.json and PREFIX-0000.params, by MXNet\n"
"  -b, --model-b=PREFIX     the model to swap with, of the same shape\n"
"  -i, --images=FILE        the images\n"
"      --data=DIR           folder of the files that are not given above\n"
"  -B, --batch=N            images in a request (8)\n"
"  -r, --reload-every=N     swap the weights every N requests; 0: never (500)\n"
"\n"
"How:\n"
"  -f, --in-flight=N        concurrent requests (64)\n"
"  -R, --rate=N             open loop: N requests arrive per second, regardless of earlier\n"
"                           ones; latency counts from the intended arrival\n"
"      --arrivals=KIND      poisson or constant, with --rate (poisson)\n"
"  -n, --requests=N         stop after N requests (no limit)\n"
"  -d, --duration=SECONDS   stop after this time, on each engine (3)\n"
"      --seed=N             seed for the order of images and arrivals (1)\n"
"  -q, --quick              4000 requests, a reload every 100\n"
"\n"
"Engine:\n"
"  -e, --engine=KIND        per-device, pooled or naive (per-device)\n"
"  -w, --workers=N          its threads; in a closed loop the pushing thread runs ops\n"
"                           too (number of CPUs; one less in a closed loop)\n"
"      --no-naive           do not run the naive engine for comparison\n"
"      --device=KIND        cpu or cuda: the device that computes the layers (cpu);\n"
"                           with cuda the naive engine does not run\n"
"\n"
"Output:\n"
"  -j, --json               one JSON object on standard output\n"
"  -t, --trace=FILE         the last events as Chrome trace JSON, for ui.perfetto.dev\n"
"  -h, --help               print this\n"
"\n"
"Data: the folder of model-a, model-b and digits.img is --data, or $PAWL_DATA, or data\n"
"beside this program, or ../share/pawl relative to it.\n"
"Exit status: 0: success; 1: a file cannot be used, the engine failed, or an answer was\n"
"wrong; 2: the command line is invalid.\n";

enum { OPT_ARRIVALS = 256, OPT_SEED, OPT_NO_NAIVE, OPT_DATA, OPT_DEVICE };

static const struct option long_options[] = {
	{ "model-a", required_argument, NULL, 'a' },
	{ "model-b", required_argument, NULL, 'b' },
	{ "images", required_argument, NULL, 'i' },
	{ "data", required_argument, NULL, OPT_DATA },
	{ "batch", required_argument, NULL, 'B' },
	{ "reload-every", required_argument, NULL, 'r' },
	{ "in-flight", required_argument, NULL, 'f' },
	{ "rate", required_argument, NULL, 'R' },
	{ "arrivals", required_argument, NULL, OPT_ARRIVALS },
	{ "requests", required_argument, NULL, 'n' },
	{ "duration", required_argument, NULL, 'd' },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "quick", no_argument, NULL, 'q' },
	{ "engine", required_argument, NULL, 'e' },
	{ "workers", required_argument, NULL, 'w' },
	{ "no-naive", no_argument, NULL, OPT_NO_NAIVE },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "json", no_argument, NULL, 'j' },
	{ "trace", required_argument, NULL, 't' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static int bad_option(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int bad_option(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", self);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nTry '%s --help'.\n", self);
	return -EINVAL;
}

static int get_count(const char *name, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;

	/* strtoull() accepts signs and blanks. */
	errno = 0;
	*out = strtoull(optarg, &end, 10);
	if (*optarg < '0' || *optarg > '9' || *end || errno || *out < min || *out > max)
		return bad_option("%s: '%s' is not a whole number in %" PRIu64 "..%" PRIu64,
				  name, optarg, min, max);
	return 0;
}

static int get_number(const char *name, double min, double max, double *out)
{
	char *end;

	errno = 0;
	*out = strtod(optarg, &end);
	/* Negated, so that NaN is refused. */
	if (end == optarg || *end || errno || !(*out >= min && *out <= max))
		return bad_option("%s: '%s' is not a number in %g..%g", name, optarg, min, max);
	return 0;
}

static int get_choice(const char *name, const char *const *choice, int n, int *out)
{
	int i;

	for (i = 0; i < n; i++)
		if (!strcmp(optarg, choice[i])) {
			*out = i;
			return 0;
		}
	fprintf(stderr, "%s: %s: '%s' is not one of", self, name, optarg);
	for (i = 0; i < n; i++)
		fprintf(stderr, " %s", choice[i]);
	fprintf(stderr, "\nTry '%s --help'.\n", self);
	return -EINVAL;
}

/* Options that were given, where a default depends on it. */
struct given {
	bool limit, reload, arrivals;
};

/* One option, whose argument is in optarg. */
static int parse_option(struct options *o, struct given *g, int c)
{
	static const char *const arrivals[] = { "constant", "poisson" };
	/* by enum pawl_device_kind */
	static const char *const devices[] = { "cpu", "cuda" };
	uint64_t n = 0;
	int i = 0, rc = 0;

	switch (c) {
	case 'a':
	case 'b':
		o->model[c - 'a'] = optarg;
		break;
	case 'i':
		o->images = optarg;
		break;
	case OPT_DATA:
		o->data = optarg;
		break;
	case 'B':
		rc = get_count("--batch", 1, MAX_BATCH, &n);
		o->batch = (unsigned int)n;
		break;
	case 'r':
		g->reload = true;
		return get_count("--reload-every", 0, UINT64_MAX, &o->reload_every);
	case 'f':
		rc = get_count("--in-flight", 1, MAX_IN_FLIGHT, &n);
		o->in_flight = (unsigned int)n;
		break;
	case 'R':
		return get_number("--rate", 0.001, 1e8, &o->rate);
	case OPT_ARRIVALS:
		rc = get_choice("--arrivals", arrivals, 2, &i);
		o->poisson = i == 1;
		g->arrivals = true;
		break;
	case 'n':
		g->limit = true;
		return get_count("--requests", 1, (uint64_t)1 << 48, &o->requests);
	case 'd':
		g->limit = true;
		return get_number("--duration", 0.001, 1e6, &o->duration);
	case OPT_SEED:
		return get_count("--seed", 0, UINT64_MAX, &o->seed);
	case 'q':
		o->quick = true;
		break;
	case 'e':
		return get_choice("--engine", engine_name, 3, &o->engine);
	case 'w':
		rc = get_count("--workers", 0, 1024, &n);
		o->workers = (int)n;
		break;
	case OPT_DEVICE:
		return get_choice("--device", devices, 2, &o->device);
	case OPT_NO_NAIVE:
		o->naive = false;
		break;
	case 'j':
		o->json = true;
		break;
	case 't':
		o->trace = optarg;
		break;
	default:
		fprintf(stderr, "Try '%s --help'.\n", self);
		return -EINVAL;
	}
	return rc;
}

/* Refuse contradictory options, and set defaults that depend on other options. */
static int check_options(struct options *o, const struct given *g)
{
	if (g->arrivals && o->rate <= 0)
		return bad_option("--arrivals needs --rate");
	if (o->rate > 0 && o->workers == 0 && o->engine != PAWL_NAIVE)
		return bad_option("--rate needs --workers of at least 1: its pushing thread only pushes");
	if (!g->limit && o->quick)
		o->requests = 4000;
	else if (!g->limit)
		o->duration = 3;
	if (o->quick && !g->reload)
		o->reload_every = 100;
	if (o->engine == PAWL_NAIVE || o->device != PAWL_CPU)
		o->naive = false;
	return 0;
}

/* Returns 0 to continue, 1 if help was requested, or -EINVAL after a message. */
static int parse_options(struct options *o, int argc, char **argv)
{
	struct given given = { 0 };
	int c, rc;

	*o = (struct options){ .batch = 8, .in_flight = 64, .workers = -1, .reload_every = 500,
			       .poisson = true, .seed = 1, .naive = true };
	optind = 1;
	while ((c = getopt_long(argc, argv, "a:b:i:B:r:f:R:n:d:qe:w:jt:h", long_options,
				NULL)) != -1) {
		if (c == 'h')
			return 1;
		rc = parse_option(o, &given, c);
		if (rc)
			return rc;
	}
	if (optind < argc)
		return bad_option("'%s' is more than was expected", argv[optind]);
	return check_options(o, &given);
}

/* ---- the order of the run --------------------------------------------------- */

/* CPU time in seconds: of all processes on all CPUs, and of this one. */
static int cpu_seconds(double *all, double *own)
{
	unsigned long long t[8] = { 0 };
	FILE *f = fopen("/proc/stat", "re");
	struct timespec ts;
	int n = 0;

	if (f) {
		n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1],
			   &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]);
		fclose(f);
	}
	if (n != 8 || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts))
		return -ENOENT;
	/* user, nice, system, irq, softirq, steal; not idle, iowait */
	*all = (double)(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) / (double)sysconf(_SC_CLK_TCK);
	*own = (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
	return 0;
}

/* CPU usage between two readings. */
struct cpu_watch {
	bool known;
	double all, own, start;		/* seconds */
};

static void cpu_watch_begin(struct cpu_watch *c)
{
	c->known = !cpu_seconds(&c->all, &c->own);
	c->start = (double)now_ns() / NSEC;
}

/* The share of the CPUs that other processes used since then; < 0: unknown. */
static double cpu_watch_end(const struct cpu_watch *c)
{
	double seconds = (double)now_ns() / NSEC - c->start, all, own, share;

	/* The kernel counts in ticks of 10 ms. */
	if (!c->known || seconds < 0.2 || cpu_seconds(&all, &own))
		return -1;
	share = (all - c->all - (own - c->own)) /
		(seconds * (double)sysconf(_SC_NPROCESSORS_ONLN));
	return share < 0 ? 0 : share > 1 ? 1 : share;
}

static void set_rounds(struct work *w)
{
	const struct options *o = &w->opt;

	w->rounds = MAX_ROUNDS;
	if (o->duration > 0 && o->duration / MIN_ROUND_S < w->rounds)
		w->rounds = (unsigned int)(o->duration / MIN_ROUND_S);
	if (o->requests && o->requests / MIN_ROUND < w->rounds)
		w->rounds = (unsigned int)(o->requests / MIN_ROUND);
	if (!w->rounds)
		w->rounds = 1;
}

/*
 * The engines take turns and are compared within each turn, so that a disturbance of the
 * machine affects both.
 */
static int run_rounds(struct work *w, struct server *const *servers, int n)
{
	struct cpu_watch watch;
	unsigned int round;
	int rc = 0, i;

	cpu_watch_begin(&watch);
	for (round = 0; !rc && round < w->rounds; round++)
		for (i = 0; !rc && i < n; i++)
			rc = serve_round(servers[i], round);
	w->others = cpu_watch_end(&watch);
	return rc;
}

/* Run the chosen engine, and the naive one if n is 2; the first one is traced. */
static int run_all(struct work *w, struct result *results, int n)
{
	struct server *servers[2] = { NULL };
	bool traced = w->opt.trace;
	int rc = 0, i;

	set_rounds(w);
	progress_begin(w);
	for (i = 0; !rc && i < n; i++)
		rc = serve_begin(&servers[i], w, &results[i], i ? PAWL_NAIVE : w->opt.engine,
				 !i && traced);
	if (!rc)
		rc = run_rounds(w, servers, n);
	progress_end(w);
	for (i = 0; !rc && i < n; i++)
		rc = serve_end(servers[i], !i && traced);
	for (i = 0; i < n; i++)
		if (serve_free(servers[i]) && !rc)
			rc = -EIO;
	return rc;
}

/* Check that the trace can be written, before the run and not after it. */
static int check_trace(const char *path)
{
	FILE *f = path ? fopen(path, "we") : NULL;

	if (path && !f)
		return failed(path, strerror(errno));
	if (f)
		fclose(f);
	return 0;
}

/* Print messages about wrong answers; true if there were none. */
static bool verify_results(const struct result *results, int n)
{
	bool verified = true;
	int i;

	for (i = 0; i < n; i++) {
		if (!results[i].wrong && !results[i].mixed)
			continue;
		verified = false;
		fprintf(stderr, "%s: %s engine: WRONG: %s\n", self, results[i].name,
			results[i].first_wrong);
	}
	return verified;
}

static int report(struct work *w, const struct result *results, int n, bool verified)
{
	int rc = 0, i;

	if (w->others > OTHERS_SHARE)
		warn(w, "other processes used %.0f %% of the CPUs: times and ratio are not reliable",
		     100 * w->others);
	for (i = 0; i < n; i++)
		report_warnings(w, &results[i]);
	if (w->opt.json)
		rc = report_json(w, results, n, verified);
	else
		report_text(w, results, n, verified);
	fflush(stdout);
	for (i = 0; i < (int)w->nwarnings; i++)
		fprintf(stderr, "%s: warning: %s\n", self, w->warning[i]);
	return rc;
}

/* The exit status. */
static int infer(struct work *w)
{
	static struct result results[2];	/* histograms: too large for the stack */
	int n = w->opt.naive ? 2 : 1;
	bool verified;

	if ((w->opt.device != PAWL_CPU && gpu_find()) || work_load(w) ||
	    check_trace(w->opt.trace))
		return STATUS_FAILED;
	if (w->opt.rate > 0)
		prctl(PR_SET_TIMERSLACK, 1);	/* the default adds 50 us to every arrival */
	if (!w->opt.json)
		report_head(w);
	if (run_all(w, results, n))
		return STATUS_FAILED;
	verified = verify_results(results, n);
	return report(w, results, n, verified) || !verified ? STATUS_FAILED : STATUS_OK;
}

int cmd_infer(int argc, char **argv)
{
	struct work w = { 0 };
	int rc;

	self = argv[0];
	rc = parse_options(&w.opt, argc, argv);
	if (rc > 0)
		fputs(help_text, stdout);
	if (rc)
		return rc > 0 ? STATUS_OK : STATUS_USAGE;
	net_init();
	rc = infer(&w);
	work_unload(&w);
	return rc;
}
