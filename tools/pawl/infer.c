// SPDX-License-Identifier: Apache-2.0
/*
 * pawl infer: classify handwritten digits while the weights are swapped.
 *
 * A request is a batch of images.  Each of its layers is an op: it reads the layer's
 * weights, which all requests share, and the activations of the layer before, and
 * writes its own activations, which belong to the request's slot.  A reload is one op
 * that writes all weights: it copies the other model's into the live buffers.
 *
 *   weights     one var per layer, for weight and bias together: no op ever wants one
 *               without the other, so a second var would order nothing more and cost
 *               every request another place in a queue.
 *   requests    pushed by pawl_push_batch().  With one push per layer a reload could
 *               take its place between two layers of a request, which would then be
 *               answered by half of each model; a batch takes all its places at one
 *               point in time, so a reload is before all of it or behind all of it.
 *   slots       a ring, with vars, buffers and ops made in advance: the loop allocates
 *               nothing.  A slot is used again when its request is over; that is looked
 *               at in the order of the pushes.
 *
 * Proof: a reload stamps each layer's weights with its number, before and after the
 * copy.  Every layer op compares the stamps, before and after its arithmetic, with
 * those that the layers before it saw.  Each answer is then compared, all bits of all
 * outputs, with what a serial loop over the layers computes from that version of the
 * weights, for the same batch and with the same kernels.  Batches are what the images
 * divide into, and versions are two, so the loop runs over all of both at the start.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <getopt.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <pawl/engine.h>

#ifndef PAWL_PLAIN_GEMM
#include <cblas.h>
#endif

#include "cmd.h"
#include "hist.h"
#include "images.h"
#include "model.h"

#define JSON_SCHEMA	1
#define NSEC		1000000000u
#define LATE_NS		1000000u	/* a push this long after its time is late */
#define TRACE_EVENTS	16384u		/* per thread */
#define MAX_BATCH	4096u
#define MAX_IN_FLIGHT	4096u
#define MAX_WARNINGS	8u
#define MAX_ROUNDS	8u
#define MIN_ROUND_S	0.25		/* shorter ones measure starting and draining */
#define MIN_ROUND	500u		/* requests, likewise */
#define OTHERS_SHARE	0.1		/* of the CPUs, before a warning */

/* ---- options ---------------------------------------------------------------- */

struct options {
	const char *model[2];		/* prefixes; NULL: the data folder's */
	const char *images;
	const char *data;		/* folder of those that are NULL; NULL: look for it */
	uint64_t requests;		/* 0: no limit */
	double duration;		/* seconds per engine; 0: no limit */
	unsigned int batch, in_flight;
	int workers;			/* -1: not given */
	int engine;			/* enum pawl_kind */
	uint64_t reload_every;		/* requests; 0: never */
	double rate;			/* requests/s; 0: closed loop */
	bool poisson;
	uint64_t seed;
	const char *trace;
	bool json, naive, quick;
};

static const char *const engine_name[] = { "per-device", "pooled", "naive" };

static const char help_text[] =
"Usage: pawl infer [OPTION]...\n"
"Classify handwritten digits.  Every layer of every request is an op, and the weights\n"
"are swapped between two models while requests fly.  Every answer is compared with a\n"
"serial computation.  The naive engine does the same in turns with the other, for\n"
"comparison.\n"
"\n"
"What is run:\n"
"  -a, --model-a=PREFIX     PREFIX-symbol.json and PREFIX-0000.params, by MXNet\n"
"  -b, --model-b=PREFIX     the model to swap with, of the same shape\n"
"  -i, --images=FILE        the images\n"
"      --data=DIR           folder of those of them that are not given\n"
"  -B, --batch=N            images in a request (8)\n"
"  -r, --reload-every=N     swap the weights every N requests; 0: never (500)\n"
"\n"
"How:\n"
"  -f, --in-flight=N        requests at once (64)\n"
"  -R, --rate=N             open loop: N requests arrive per second, whatever the state\n"
"                           of those before; latency counts from the intended arrival\n"
"      --arrivals=KIND      poisson or constant, with --rate (poisson)\n"
"  -n, --requests=N         stop after N requests (no limit)\n"
"  -d, --duration=SECONDS   stop after this time, on each engine (3)\n"
"      --seed=N             of the order of images and of the arrivals (1)\n"
"  -q, --quick              4000 requests, a reload every 100\n"
"\n"
"Engine:\n"
"  -e, --engine=KIND        per-device, pooled or naive (per-device)\n"
"  -w, --workers=N          its threads; in a closed loop the thread that pushes works,\n"
"                           too (the CPUs; one less in a closed loop)\n"
"      --no-naive           do not run the naive engine for comparison\n"
"\n"
"Output:\n"
"  -j, --json               one JSON object on standard output\n"
"  -t, --trace=FILE         the last events as Chrome trace JSON, for ui.perfetto.dev\n"
"  -h, --help               this\n"
"\n"
"Data: model-a, model-b and digits.img are in --data; else in $PAWL_DATA; else in the\n"
"folder data beside this program; else in ../share/pawl from there.\n"
"Exit status: 0; 1: a file cannot be used, the engine failed, or an answer was wrong;\n"
"2: the command line.\n";

enum { OPT_ARRIVALS = 256, OPT_SEED, OPT_NO_NAIVE, OPT_DATA };

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
	{ "json", no_argument, NULL, 'j' },
	{ "trace", required_argument, NULL, 't' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static const char *self = "pawl infer";

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

	/* strtoull() takes signs and blanks. */
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

/* 0: go on; 1: help was asked for; -EINVAL after a message. */
static int parse_options(struct options *o, int argc, char **argv)
{
	static const char *const arrivals[] = { "constant", "poisson" };
	bool limited = false, has_reload = false, has_arrivals = false;
	uint64_t n;
	int c, i, rc = 0;

	*o = (struct options){ .batch = 8, .in_flight = 64, .workers = -1, .reload_every = 500,
			       .poisson = true, .seed = 1, .naive = true };
	optind = 1;
	while ((c = getopt_long(argc, argv, "a:b:i:B:r:f:R:n:d:qe:w:jt:h", long_options,
				NULL)) != -1) {
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
			rc = get_count("--reload-every", 0, UINT64_MAX, &o->reload_every);
			has_reload = true;
			break;
		case 'f':
			rc = get_count("--in-flight", 1, MAX_IN_FLIGHT, &n);
			o->in_flight = (unsigned int)n;
			break;
		case 'R':
			rc = get_number("--rate", 0.001, 1e8, &o->rate);
			break;
		case OPT_ARRIVALS:
			rc = get_choice("--arrivals", arrivals, 2, &i);
			o->poisson = i == 1;
			has_arrivals = true;
			break;
		case 'n':
			rc = get_count("--requests", 1, (uint64_t)1 << 48, &o->requests);
			limited = true;
			break;
		case 'd':
			rc = get_number("--duration", 0.001, 1e6, &o->duration);
			limited = true;
			break;
		case OPT_SEED:
			rc = get_count("--seed", 0, UINT64_MAX, &o->seed);
			break;
		case 'q':
			o->quick = true;
			break;
		case 'e':
			rc = get_choice("--engine", engine_name, 3, &o->engine);
			break;
		case 'w':
			rc = get_count("--workers", 0, 1024, &n);
			o->workers = (int)n;
			break;
		case OPT_NO_NAIVE:
			o->naive = false;
			break;
		case 'j':
			o->json = true;
			break;
		case 't':
			o->trace = optarg;
			break;
		case 'h':
			return 1;
		default:
			fprintf(stderr, "Try '%s --help'.\n", self);
			return -EINVAL;
		}
		if (rc)
			return rc;
	}
	if (optind < argc)
		return bad_option("'%s' is more than was expected", argv[optind]);
	if (has_arrivals && o->rate <= 0)
		return bad_option("--arrivals needs --rate");
	if (o->rate > 0 && o->workers == 0 && o->engine != PAWL_NAIVE)
		return bad_option("--rate needs --workers of at least 1: its pushing thread only pushes");
	if (!limited) {
		if (o->quick)
			o->requests = 4000;
		else
			o->duration = 3;
	}
	if (o->quick && !has_reload)
		o->reload_every = 100;
	if (o->engine == PAWL_NAIVE)
		o->naive = false;
	return 0;
}

/* ---- what is loaded --------------------------------------------------------- */

enum { SEEN = 1, RIGHT = 2 };

/* Loaded and computed once, for all engines. */
struct work {
	struct options opt;
	char *path[2], *images_path;
	struct model *model[2];
	const struct model *shape;	/* model[0]; the other one's is the same */
	struct image_set *images;
	int weighted;			/* layers that have weights */
	size_t nweights;		/* floats */
	uint32_t nbatches;
	size_t in_size, out_size;	/* floats of a batch */
	float *input;			/* [nbatches][in_size]; the last batch wraps around */
	float *expected[2];		/* [nbatches][out_size], per model */
	uint8_t *seen[2];		/* [images] what the engines answered, per model */
	uint64_t answers[2];		/* requests answered by each model */
	int cpus;
	unsigned int rounds;
	double others;			/* share of the CPUs that others used; < 0: unknown */
	bool ticked;			/* progress is on the terminal */
	uint64_t started, next_tick;	/* ns */
	char warning[MAX_WARNINGS][200];
	unsigned int nwarnings;
};

static int failed(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s%s%s\n", self, what, *what ? ": " : "", why);
	return -EIO;
}

/* Printed when all is over, under the table or beside the JSON. */
static void warn(struct work *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void warn(struct work *w, const char *fmt, ...)
{
	va_list ap;

	if (w->nwarnings == MAX_WARNINGS)
		return;
	va_start(ap, fmt);
	vsnprintf(w->warning[w->nwarnings++], sizeof(w->warning[0]), fmt, ap);
	va_end(ap);
}

/* Beside the program, as in the tree of the sources, or where make install puts it. */
static char *find_data(void)
{
	static const char *const place[] = { "data", "../share/pawl" };
	char exe[PATH_MAX], *path, *real;
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	size_t i;

	if (len < 0)
		len = 0;
	exe[len] = 0;
	*(strrchr(exe, '/') ? strrchr(exe, '/') : exe) = 0;
	for (i = 0; i < sizeof(place) / sizeof(place[0]); i++) {
		if (asprintf(&path, "%s/%s", exe, place[i]) < 0)
			return NULL;
		real = realpath(path, NULL);
		free(path);
		if (real)
			return real;
	}
	/* There is none: what cannot be opened in there tells. */
	return asprintf(&path, "%s/%s", exe, place[0]) < 0 ? NULL : path;
}

static char *data_path(const char *given, const char *dir, const char *name)
{
	char *path;

	if (given)
		return strdup(given);
	return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

/* The names of the files: the given ones, or those of the data folder. */
static int find_files(struct work *w)
{
	const struct options *o = &w->opt;
	const char *env = getenv("PAWL_DATA");
	char *dir;

	if (o->data)
		dir = strdup(o->data);
	else if (env && *env)
		dir = strdup(env);
	else
		dir = find_data();
	if (dir) {
		w->path[0] = data_path(o->model[0], dir, "model-a");
		w->path[1] = data_path(o->model[1], dir, "model-b");
		w->images_path = data_path(o->images, dir, "digits.img");
	}
	free(dir);
	if (!w->path[0] || !w->path[1] || !w->images_path)
		return failed("", strerror(ENOMEM));
	return 0;
}

/* Lines of cache are not shared between layers or slots. */
static float *alloc_floats(size_t n)
{
	size_t bytes = (n * sizeof(float) + 63) / 64 * 64;
	float *p;

	if (n > SIZE_MAX / 8)
		return NULL;
	p = aligned_alloc(64, bytes ? bytes : 64);
	if (p)
		memset(p, 0, bytes);
	return p;
}

/* The batches' inputs, and what each model answers to them, one layer after the other. */
static int compute_expected(struct work *w)
{
	unsigned int batch = w->opt.batch;
	size_t wide = (size_t)batch * (size_t)w->shape->max_dim;
	float *buf[2] = { alloc_floats(wide), alloc_floats(wide) };
	int rc = -ENOMEM, v, k;
	uint32_t b, i;

	w->input = alloc_floats(w->nbatches * w->in_size);
	w->expected[0] = alloc_floats(w->nbatches * w->out_size);
	w->expected[1] = alloc_floats(w->nbatches * w->out_size);
	if (!buf[0] || !buf[1] || !w->input || !w->expected[0] || !w->expected[1])
		goto out;
	for (b = 0; b < w->nbatches; b++)
		for (i = 0; i < batch; i++)
			images_input(w->images, (uint32_t)(((uint64_t)b * batch + i) %
				     w->images->count),
				     w->input + b * w->in_size + i * (size_t)w->images->size);
	for (v = 0; v < 2; v++) {
		for (b = 0; b < w->nbatches; b++) {
			const float *in = w->input + b * w->in_size;

			for (k = 0; k < w->shape->nlayers; k++) {
				const struct layer *l = &w->model[v]->layers[k];

				layer_forward(l, l->weight, l->bias, in, buf[k & 1], (int)batch);
				in = buf[k & 1];
			}
			memcpy(w->expected[v] + b * w->out_size, in,
			       w->out_size * sizeof(float));
		}
	}
	rc = 0;
out:
	free(buf[0]);
	free(buf[1]);
	return rc;
}

static int load(struct work *w)
{
	uint32_t b, same = 0;
	char err[512];
	cpu_set_t set;
	int v, k;

	if (find_files(w))
		return -ENOMEM;
	if (images_load(w->images_path, &w->images, err, sizeof(err)))
		return failed("", err);
	for (v = 0; v < 2; v++) {
		if (model_load(w->path[v], NULL, &w->model[v], err, sizeof(err)))
			return failed("", err);
		if (model_check_io(w->model[v], (int)w->images->size, (int)w->images->classes,
				   err, sizeof(err)))
			return failed(w->path[v], err);
	}
	if (model_same_shape(w->model[0], w->model[1], err, sizeof(err)))
		return failed(w->path[0], err);
	w->shape = w->model[0];
	for (k = 0; k < w->shape->nlayers; k++) {
		const struct layer *l = &w->shape->layers[k];

		w->nweights += layer_nweight(l) + layer_nbias(l);
		w->weighted += l->weight || l->bias;
	}
	w->nbatches = (uint32_t)(((uint64_t)w->images->count + w->opt.batch - 1) / w->opt.batch);
	w->in_size = (size_t)w->opt.batch * w->images->size;
	w->out_size = (size_t)w->opt.batch * w->images->classes;
	w->seen[0] = calloc(w->images->count, 1);
	w->seen[1] = calloc(w->images->count, 1);
	if (!w->seen[0] || !w->seen[1] || compute_expected(w))
		return failed("", strerror(ENOMEM));
	for (b = 0; b < w->nbatches; b++)
		same += !memcmp(w->expected[0] + b * w->out_size, w->expected[1] + b * w->out_size,
				w->out_size * sizeof(float));
	if (same)
		warn(w, "of %" PRIu32 " batches %" PRIu32 " get the same answer from both models: there it does not tell which version gave it",
		     w->nbatches, same);
	w->cpus = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
	return 0;
}

static void unload(struct work *w)
{
	int v;

	for (v = 0; v < 2; v++) {
		free(w->path[v]);
		model_free(w->model[v]);
		free(w->expected[v]);
		free(w->seen[v]);
	}
	free(w->images_path);
	images_free(w->images);
	free(w->input);
}

/* ---- one run on one engine -------------------------------------------------- */

/* The live weights of a layer; all of it is covered by the var. */
struct live {
	pawl_var_t var;
	float *weight, *bias;
	uint64_t stamp, stamp_end;	/* written before and after the others */
};

struct slot;

/* What a layer op is given. */
struct step {
	struct slot *slot;
	int layer;
};

struct slot {
	struct run *run;
	struct step *step;		/* [layers], as all below */
	struct pawl_op *ops;
	float **act;			/* output of the layer */
	pawl_var_t *acts;		/* its var */
	pawl_var_t (*reads)[2];
	uint32_t batch;
	uint64_t start, end;		/* ns; end is written by the last layer */
	uint64_t version;		/* the stamp that the first weighted layer saw */
	bool fixed;			/* it is set */
	bool mixed;			/* a later layer saw another one */
};

struct run {
	struct work *w;
	const char *name;
	int kind, workers;
	struct pawl_engine *e;
	struct live *live;		/* [layers] */
	pawl_var_t *weights;		/* the vars of those that have any */
	struct slot *slots;
	uint64_t head, tail;		/* requests reaped, pushed */
	uint64_t random;
	uint32_t *deck, drawn;		/* the order of the batches in this round */
	bool record;			/* warming up is over */

	pthread_t reloader;
	bool has_reloader;
	sem_t kick, reloaded;
	atomic_bool stop;
	uint64_t serial;		/* of the weights; covered by their vars */
	uint64_t swapped;		/* ns; end of the newest reload */
	int reload_status;

	uint64_t t0, t1;		/* ns, of this round */
	uint64_t busy;			/* ns, of all rounds */
	double rate[MAX_ROUNDS];	/* requests/s */
	unsigned int nrates;
	uint64_t requests, reloads, checked, wrong, mixed;
	uint64_t late, full, unpushed;
	char first_wrong[160];
	struct pawl_stats before, stats;
	struct hist latency, lateness, reload;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC + (uint64_t)ts.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / NSEC), (long)(ns % NSEC) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static int pawl_failed(const struct run *r, const char *call)
{
	fprintf(stderr, "%s: %s engine: %s: %s\n", self, r->name, call, pawl_error_text());
	return -EIO;
}

/* The body of a layer. */
static int layer_body(struct pawl_run *pr, void *arg)
{
	const struct step *st = arg;
	struct slot *s = st->slot;
	const struct work *w = s->run->w;
	const struct layer *l = &w->shape->layers[st->layer];
	const struct live *live = &s->run->live[st->layer];
	const float *in = st->layer ? s->act[st->layer - 1] : w->input + s->batch * w->in_size;
	/* The stamp of a layer without weights belongs to no var, and nobody looks. */
	bool weighted = live->weight || live->bias;
	uint64_t stamp = weighted ? live->stamp : 0;

	(void)pr;
	layer_forward(l, live->weight, live->bias, in, s->act[st->layer], (int)w->opt.batch);
	if (weighted) {
		if (!s->fixed)
			s->version = stamp;
		s->fixed = true;
		/* Now, not when the op began: a copy that ran meanwhile shows. */
		if (live->stamp != s->version || live->stamp_end != s->version ||
		    stamp != s->version)
			s->mixed = true;
	}
	if (st->layer == w->shape->nlayers - 1)
		s->end = now_ns();
	return 0;
}

/* Swap: copy the other model's weights into the live buffers. */
static int reload_body(struct pawl_run *pr, void *arg)
{
	struct run *r = arg;
	const struct model *m = r->w->model[++r->serial & 1];
	int k;

	(void)pr;
	for (k = 0; k < m->nlayers; k++) {
		const struct layer *l = &m->layers[k];
		struct live *live = &r->live[k];

		if (!l->weight && !l->bias)
			continue;
		live->stamp = r->serial;
		if (l->weight)
			memcpy(live->weight, l->weight, layer_nweight(l) * sizeof(float));
		if (l->bias)
			memcpy(live->bias, l->bias, layer_nbias(l) * sizeof(float));
		live->stamp_end = r->serial;
	}
	r->swapped = now_ns();
	return 0;
}

static void reload_over(void *arg, int status)
{
	struct run *r = arg;

	r->reload_status = status;
	sem_post(&r->reloaded);
}

static void sem_wait_on(sem_t *sem)
{
	while (sem_wait(sem) && errno == EINTR)
		;
}

/*
 * The reloader is a thread of its own, as in a server that watches for new models: its
 * push and the requests' pushes meet in the engine.
 */
static void *reloader(void *arg)
{
	struct run *r = arg;
	struct pawl_op op = PAWL_OP_INIT;
	uint64_t start;

	op.fn = reload_body;
	op.arg = r;
	op.release = reload_over;
	op.writes = r->weights;
	op.nwrites = (uint32_t)r->w->weighted;
	op.name = "reload";
	for (;;) {
		sem_wait_on(&r->kick);
		if (atomic_load(&r->stop))
			return NULL;
		start = now_ns();
		r->reload_status = 0;
		if (pawl_push(r->e, &op)) {
			pawl_failed(r, "pawl_push (reload)");
			r->reload_status = -EIO;
			return NULL;
		}
		sem_wait_on(&r->reloaded);
		if (r->reload_status) {
			fprintf(stderr, "%s: %s engine: reload: %s\n", self, r->name,
				strerror(-r->reload_status));
			return NULL;
		}
		hist_add(&r->reload, r->swapped - start);
		r->reloads++;
	}
}

static int stop_reloader(struct run *r)
{
	if (!r->has_reloader)
		return 0;
	atomic_store(&r->stop, true);
	sem_post(&r->kick);
	pthread_join(r->reloader, NULL);
	r->has_reloader = false;
	return r->reload_status;
}

/* Each round visits all batches once, in an order of its own. */
static uint32_t next_batch(struct run *r)
{
	uint32_t n = r->w->nbatches, i = r->drawn, j, batch;

	j = i + (uint32_t)(next_random(&r->random) % (n - i));
	batch = r->deck[j];
	r->deck[j] = r->deck[i];
	r->deck[i] = batch;
	r->drawn = i + 1 == n ? 0 : i + 1;
	return batch;
}

static int push_request(struct run *r, uint64_t start)
{
	struct slot *s = &r->slots[r->tail % r->w->opt.in_flight];
	uint64_t every = r->w->opt.reload_every;

	s->batch = next_batch(r);
	s->start = start;
	s->version = 0;
	s->fixed = s->mixed = false;
	if (pawl_push_batch(r->e, s->ops, (size_t)r->w->shape->nlayers))
		return pawl_failed(r, "pawl_push_batch");
	r->tail++;
	if (r->has_reloader && r->record && r->tail % every == 0)
		sem_post(&r->kick);
	return 0;
}

/* Which images this batch has, and whether they were classified rightly. */
static void judge(struct work *w, const struct slot *s, const float *out, int v)
{
	uint32_t classes = w->images->classes, i, j, best;

	/* The last batch wraps around; those images are judged with the first batch. */
	for (i = 0; i < w->opt.batch; i++, out += classes) {
		uint64_t image = (uint64_t)s->batch * w->opt.batch + i;

		if (image >= w->images->count)
			break;
		for (best = 0, j = 1; j < classes; j++)
			if (out[j] > out[best])
				best = j;
		w->seen[v][image] = SEEN | (best == w->images->label[image] ? RIGHT : 0);
	}
}

static void progress(struct work *w, const struct run *r, uint64_t now)
{
	if (now < w->next_tick)
		return;
	w->next_tick = now + NSEC / 4;
	w->ticked = true;
	fprintf(stderr, "\r%.0f s, %s engine: %" PRIu64 " requests\033[K",
		(double)(now - w->started) / NSEC, r->name, r->requests);
}

/* The first second is silent. */
static void progress_begin(struct work *w)
{
	w->started = now_ns();
	w->next_tick = isatty(STDERR_FILENO) ? w->started + NSEC : UINT64_MAX;
}

static void progress_end(struct work *w)
{
	if (w->ticked)
		fputs("\r\033[K", stderr);
	w->ticked = false;
}

/* The oldest request is over: check and count it. */
static void reap(struct run *r)
{
	struct work *w = r->w;
	struct slot *s = &r->slots[r->head++ % w->opt.in_flight];
	const float *out = s->act[w->shape->nlayers - 1], *want;
	int v = (int)(s->version & 1);

	want = w->expected[v] + s->batch * w->out_size;
	r->checked++;
	if (s->mixed) {
		if (!r->mixed++ && !*r->first_wrong)
			snprintf(r->first_wrong, sizeof(r->first_wrong),
				 "request %" PRIu64 " began with version %" PRIu64
				 " of the weights and met another",
				 r->head - 1, s->version);
	} else if (memcmp(out, want, w->out_size * sizeof(float))) {
		if (!r->wrong++ && !*r->first_wrong)
			snprintf(r->first_wrong, sizeof(r->first_wrong),
				 "request %" PRIu64 " (batch %" PRIu32 ", version %" PRIu64
				 ") has other outputs than the serial computation",
				 r->head - 1, s->batch, s->version);
	}
	if (!r->record)
		return;
	w->answers[v]++;
	if (!(w->seen[v][(uint64_t)s->batch * w->opt.batch] & SEEN))
		judge(w, s, out, v);
	hist_add(&r->latency, s->end - s->start);
	if (s->end > r->t1)
		r->t1 = s->end;
	r->requests++;
	progress(w, r, s->end);
}

/* Reap the oldest request, if it is over within the time: 1, or 0, or an error. */
static int reap_one(struct run *r, int64_t timeout_ns)
{
	const struct slot *s = &r->slots[r->head % r->w->opt.in_flight];
	int rc = pawl_wait_readable(r->e, s->acts[r->w->shape->nlayers - 1], timeout_ns, NULL);

	if (rc == -ETIMEDOUT)
		return 0;
	if (rc)
		return pawl_failed(r, "pawl_wait_readable");
	reap(r);
	return 1;
}

static int reap_ready(struct run *r)
{
	int rc = 1;

	while (rc > 0 && r->head != r->tail)
		rc = reap_one(r, 0);
	return rc < 0 ? rc : 0;
}

static int reap_all(struct run *r)
{
	int rc = 0;

	while (rc >= 0 && r->head != r->tail)
		rc = reap_one(r, -1);
	return rc < 0 ? rc : 0;
}

/* Closed loop: the next request comes when the oldest is over.  0: no limit. */
static int fly_closed(struct run *r, uint64_t requests, uint64_t deadline)
{
	uint64_t now, left = requests ? requests : UINT64_MAX;
	int rc;

	while (left) {
		for (; left && r->tail - r->head < r->w->opt.in_flight; left--) {
			now = now_ns();
			if (deadline && now >= deadline)
				return reap_all(r);
			rc = push_request(r, now);
			if (rc)
				return rc;
		}
		rc = reap_one(r, -1);
		if (rc >= 0)
			rc = reap_ready(r);
		if (rc < 0)
			return rc;
	}
	return reap_all(r);
}

static double gap_ns(struct run *r)
{
	double mean = 1e9 / r->w->opt.rate, u;

	if (!r->w->opt.poisson)
		return mean;
	u = (double)(next_random(&r->random) >> 11) * 0x1p-53;	/* in [0, 1) */
	return -log1p(-u) * mean;
}

/*
 * Open loop: requests have times, and a request that is pushed later than that, because
 * no slot is free or the generator did not come to it, is counted from its time.
 */
static int fly_open(struct run *r, uint64_t requests, uint64_t deadline)
{
	bool backlog = r->kind == PAWL_NAIVE;	/* the engine's fault, not the generator's */
	double due = (double)r->t0 + gap_ns(r);
	uint64_t i, now, start;
	int rc;

	for (i = 0; !requests || i < requests; i++, due += gap_ns(r)) {
		start = (uint64_t)due;
		if (deadline && start >= deadline)
			break;
		rc = reap_ready(r);
		if (rc)
			return rc;
		now = now_ns();
		/* One that is due at the very end may be a bit late as any other. */
		if (deadline && now >= deadline && now - start > LATE_NS) {
			r->unpushed++;
			continue;
		}
		if (now < start) {
			sleep_until(start);
			now = now_ns();
			backlog = r->kind == PAWL_NAIVE;
		}
		if (r->tail - r->head == r->w->opt.in_flight) {
			r->full++;
			backlog = true;
			rc = reap_one(r, -1);
			if (rc < 0)
				return rc;
		}
		if (!backlog) {
			hist_add(&r->lateness, now - start);
			r->late += now - start > LATE_NS;
		}
		rc = push_request(r, start);
		if (rc)
			return rc;
	}
	return reap_all(r);
}

static void slot_free(struct run *r, struct slot *s)
{
	int k;

	for (k = 0; s->act && k < r->w->shape->nlayers; k++)
		free(s->act[k]);
	free(s->step);
	free(s->ops);
	free(s->act);
	free(s->acts);
	free(s->reads);
}

/* Buffers, vars and ops of a slot; they stay until the end. */
static int slot_init(struct run *r, struct slot *s)
{
	const struct model *m = r->w->shape;
	size_t n = (size_t)m->nlayers;
	int k;

	s->run = r;
	s->step = calloc(n, sizeof(*s->step));
	s->ops = calloc(n, sizeof(*s->ops));
	s->act = calloc(n, sizeof(*s->act));
	s->acts = calloc(n, sizeof(*s->acts));
	s->reads = calloc(n, sizeof(*s->reads));
	if (!s->step || !s->ops || !s->act || !s->acts || !s->reads)
		return failed("", strerror(ENOMEM));
	for (k = 0; k < m->nlayers; k++) {
		struct pawl_op *op = &s->ops[k];
		uint32_t nreads = 0;

		s->act[k] = alloc_floats((size_t)r->w->opt.batch * (size_t)m->layers[k].out_dim);
		if (!s->act[k])
			return failed("", strerror(ENOMEM));
		if (pawl_var_create(r->e, &s->acts[k]))
			return pawl_failed(r, "pawl_var_create");
		if (k)
			s->reads[k][nreads++] = s->acts[k - 1];
		if (r->live[k].weight || r->live[k].bias)
			s->reads[k][nreads++] = r->live[k].var;
		s->step[k] = (struct step){ s, k };
		*op = (struct pawl_op)PAWL_OP_INIT;
		op->fn = layer_body;
		op->arg = &s->step[k];
		op->reads = s->reads[k];
		op->nreads = nreads;
		op->writes = &s->acts[k];
		op->nwrites = 1;
		op->name = m->layers[k].name;
	}
	return 0;
}

/* The live weights; the first model's to begin with. */
static int live_init(struct run *r)
{
	const struct model *m = r->w->shape;
	int k, n = 0;

	for (k = 0; k < m->nlayers; k++) {
		const struct layer *l = &m->layers[k];
		struct live *live = &r->live[k];

		if (!l->weight && !l->bias)
			continue;
		if (pawl_var_create(r->e, &live->var))
			return pawl_failed(r, "pawl_var_create");
		r->weights[n++] = live->var;
		if (l->weight) {
			live->weight = alloc_floats(layer_nweight(l));
			if (!live->weight)
				return failed("", strerror(ENOMEM));
			memcpy(live->weight, l->weight, layer_nweight(l) * sizeof(float));
		}
		if (l->bias) {
			live->bias = alloc_floats(layer_nbias(l));
			if (!live->bias)
				return failed("", strerror(ENOMEM));
			memcpy(live->bias, l->bias, layer_nbias(l) * sizeof(float));
		}
	}
	return 0;
}

static int engine_init(struct run *r)
{
	const struct options *o = &r->w->opt;
	struct pawl_config cfg;
	int rc;

	pawl_config_init(&cfg);
	cfg.kind = r->kind;
	cfg.name = "infer";
	cfg.workers = o->rate > 0 ? r->w->cpus : r->w->cpus - 1;
	if (o->workers >= 0)
		cfg.workers = o->workers;
	else if (cfg.workers < 1)
		cfg.workers = 1;
	/* A generator that runs ops is late for its next arrival. */
	cfg.no_help = o->rate > 0;
	/* Twice what can be in flight, since a slot is reused before its last op is gone. */
	if ((uint64_t)o->in_flight * (uint64_t)r->w->shape->nlayers > cfg.max_ops / 2)
		return failed("", "--in-flight: more ops than an engine holds");
	rc = pawl_engine_create(&cfg, &r->e);
	if (rc)
		return pawl_failed(r, "pawl_engine_create");
	r->workers = cfg.workers;
	return 0;
}

static int run_init(struct run *r)
{
	const struct work *w = r->w;
	size_t layers = (size_t)w->shape->nlayers;
	uint32_t i;
	int rc;

	r->random = w->opt.seed;
	r->live = calloc(layers, sizeof(*r->live));
	r->weights = calloc(layers, sizeof(*r->weights));
	r->slots = calloc(w->opt.in_flight, sizeof(*r->slots));
	r->deck = calloc(w->nbatches, sizeof(*r->deck));
	if (!r->live || !r->weights || !r->slots || !r->deck)
		return failed("", strerror(ENOMEM));
	for (i = 0; i < w->nbatches; i++)
		r->deck[i] = i;
	rc = engine_init(r);
	if (!rc)
		rc = live_init(r);
	for (i = 0; !rc && i < w->opt.in_flight; i++)
		rc = slot_init(r, &r->slots[i]);
	if (rc)
		return rc;
	if (w->opt.reload_every && w->weighted) {
		rc = pthread_create(&r->reloader, NULL, reloader, r);
		if (rc)
			return failed("pthread_create", strerror(rc));
		r->has_reloader = true;
	}
	return 0;
}

/* Counters since `before`; the others as they are. */
static void stats_since(struct pawl_stats *s, const struct pawl_stats *before)
{
	s->pushed -= before->pushed;
	s->completed -= before->completed;
	s->failed -= before->failed;
	s->skipped -= before->skipped;
	s->inlined -= before->inlined;
	s->helped -= before->helped;
	s->handed -= before->handed;
	s->stolen -= before->stolen;
	s->records -= before->records;
	s->helps -= before->helps;
	s->sleeps -= before->sleeps;
	s->wakes -= before->wakes;
}

/* Everything up to the first recorded request. */
static int run_begin(struct run *r, struct work *w, int kind, bool traced)
{
	int rc;

	memset(r, 0, sizeof(*r));
	r->w = w;
	r->kind = kind;
	r->name = engine_name[kind];
	atomic_init(&r->stop, false);
	hist_init(&r->latency);
	hist_init(&r->lateness);
	hist_init(&r->reload);
	if (sem_init(&r->kick, 0, 0) || sem_init(&r->reloaded, 0, 0))
		return failed("sem_init", strerror(errno));
	rc = run_init(r);
	/* First touches, threads and BLAS's set-up; without reloads and records. */
	if (!rc)
		rc = fly_closed(r, 4 * (uint64_t)w->opt.in_flight, 0);
	if (rc)
		return rc;
	r->before.size = sizeof(r->before);
	if (pawl_stats(r->e, &r->before))
		return pawl_failed(r, "pawl_stats");
	if (traced && pawl_trace_start(r->e, TRACE_EVENTS))
		return pawl_failed(r, "pawl_trace_start");
	r->record = true;
	return 0;
}

/* One turn; no request is in flight before and after it. */
static int run_round(struct run *r, unsigned int round)
{
	const struct options *o = &r->w->opt;
	uint64_t had = r->requests, requests = 0, deadline = 0;
	int rc;

	/* Requests that cannot be shared out evenly fall to the first rounds. */
	if (o->requests) {
		requests = o->requests / r->w->rounds + (round < o->requests % r->w->rounds);
		if (!requests)
			return 0;
	}
	r->t0 = r->t1 = now_ns();
	if (o->duration > 0)
		deadline = r->t0 + (uint64_t)(o->duration / r->w->rounds * NSEC);
	rc = o->rate > 0 ? fly_open(r, requests, deadline) : fly_closed(r, requests, deadline);
	if (rc)
		return rc;
	r->busy += r->t1 - r->t0;
	if (r->t1 > r->t0)
		r->rate[r->nrates++] = (double)(r->requests - had) * 1e9 / (double)(r->t1 - r->t0);
	return 0;
}

static int run_end(struct run *r, bool traced)
{
	struct pawl_error error;
	int rc;

	rc = stop_reloader(r);
	if (rc)
		return rc;
	if (pawl_wait_all(r->e, -1, &error)) {
		fprintf(stderr, "%s: %s engine: %u ops failed, the first: %s: %s\n", self,
			r->name, error.count, error.op, error.text);
		return -EIO;
	}
	r->stats.size = sizeof(r->stats);
	if (pawl_stats(r->e, &r->stats))
		return pawl_failed(r, "pawl_stats");
	stats_since(&r->stats, &r->before);
	if (traced) {
		if (pawl_trace_stop(r->e))
			return pawl_failed(r, "pawl_trace_stop");
		if (pawl_trace_write(r->e, r->w->opt.trace))
			return pawl_failed(r, "pawl_trace_write");
	}
	return 0;
}

/* Of a run that was begun, however far it came.  Its results stay. */
static int run_free(struct run *r)
{
	uint32_t i;
	int rc = 0, k;

	/* After a failure ops may be in flight; they use what is freed below. */
	stop_reloader(r);
	if (r->e && pawl_engine_destroy(r->e))
		rc = pawl_failed(r, "pawl_engine_destroy");
	for (i = 0; r->slots && i < r->w->opt.in_flight; i++)
		slot_free(r, &r->slots[i]);
	for (k = 0; r->live && k < r->w->shape->nlayers; k++) {
		free(r->live[k].weight);
		free(r->live[k].bias);
	}
	free(r->live);
	free(r->weights);
	free(r->slots);
	free(r->deck);
	sem_destroy(&r->kick);
	sem_destroy(&r->reloaded);
	return rc;
}

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

/*
 * The engines take turns, so that what disturbs the machine for a while disturbs both,
 * and are compared within each turn.
 */
static int run_all(struct work *w, struct run *runs, int nruns)
{
	double all[2], own[2], seconds, cpus = (double)sysconf(_SC_NPROCESSORS_ONLN);
	const struct options *o = &w->opt;
	unsigned int round;
	int rc = 0, i, begun;
	bool known;

	w->rounds = MAX_ROUNDS;
	if (o->duration > 0 && o->duration / MIN_ROUND_S < w->rounds)
		w->rounds = (unsigned int)(o->duration / MIN_ROUND_S);
	if (o->requests && o->requests / MIN_ROUND < w->rounds)
		w->rounds = (unsigned int)(o->requests / MIN_ROUND);
	if (!w->rounds)
		w->rounds = 1;
	progress_begin(w);
	for (begun = 0; !rc && begun < nruns; begun++)
		rc = run_begin(&runs[begun], w, begun ? PAWL_NAIVE : o->engine,
			       !begun && o->trace);
	known = !cpu_seconds(&all[0], &own[0]);
	seconds = (double)now_ns() / NSEC;
	for (round = 0; !rc && round < w->rounds; round++)
		for (i = 0; !rc && i < nruns; i++)
			rc = run_round(&runs[i], round);
	seconds = (double)now_ns() / NSEC - seconds;
	known = known && !cpu_seconds(&all[1], &own[1]) && seconds > 0;
	w->others = -1;
	/* The kernel counts in ticks of 10 ms. */
	if (known && seconds >= 0.2) {
		w->others = (all[1] - all[0] - (own[1] - own[0])) / (seconds * cpus);
		w->others = w->others < 0 ? 0 : w->others > 1 ? 1 : w->others;
	}
	progress_end(w);
	for (i = 0; !rc && i < nruns; i++)
		rc = run_end(&runs[i], !i && o->trace);
	for (i = 0; i < begun; i++)
		if (run_free(&runs[i]) && !rc)
			rc = -EIO;
	return rc;
}

static double run_rate(const struct run *r)
{
	return r->busy ? (double)r->requests * 1e9 / (double)r->busy : 0;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* How many times as fast as the naive engine: the median of the rounds.  0: unknown. */
static double ratio_to_naive(const struct work *w, const struct run *runs, int nruns)
{
	double ratio[MAX_ROUNDS];
	unsigned int n, i;

	if (nruns < 2 || w->opt.rate > 0 || runs[0].nrates != runs[1].nrates)
		return 0;
	n = runs[0].nrates;
	for (i = 0; i < n; i++)
		ratio[i] = runs[0].rate[i] / runs[1].rate[i];
	if (!n)
		return 0;
	qsort(ratio, n, sizeof(ratio[0]), compare_doubles);
	return (ratio[(n - 1) / 2] + ratio[n / 2]) / 2;
}

static void run_warnings(struct work *w, const struct run *r)
{
	if (w->opt.rate <= 0)
		return;
	if (r->late * 100 > r->requests)
		warn(w, "%s engine: the generator fell behind: %" PRIu64 " of %" PRIu64
		     " requests were pushed over 1 ms late with slots free", r->name, r->late,
		     r->requests);
	if ((r->full + r->unpushed) * 100 > r->requests)
		warn(w, "%s engine: overloaded: %" PRIu64 " arrivals found no free slot (--in-flight), "
		     "%" PRIu64 " were never pushed", r->name, r->full, r->unpushed);
	if (run_rate(r) < 0.95 * w->opt.rate && r->requests >= 1000)
		warn(w, "%s engine: %.0f requests/s were asked for, %.0f reached", r->name,
		     w->opt.rate, run_rate(r));
}

/* ---- output ----------------------------------------------------------------- */

static const unsigned int quantile[] = { 500, 900, 990, 999 };
static const char *const quantile_name[] = { "p50", "p90", "p99", "p99.9" };

#define NQUANTILES (sizeof(quantile) / sizeof(quantile[0]))

struct accuracy {
	uint32_t seen, right, held_seen, held_right;
};

static struct accuracy accuracy_of(const struct work *w, int v)
{
	struct accuracy a = { 0 };
	uint32_t i;

	for (i = 0; i < w->images->count; i++) {
		uint8_t s = w->seen[v][i];

		if (!(s & SEEN))
			continue;
		a.seen++;
		a.right += !!(s & RIGHT);
		if (w->images->split[i]) {
			a.held_seen++;
			a.held_right += !!(s & RIGHT);
		}
	}
	return a;
}

/* A duration in three digits. */
static const char *ns_text(char *buf, size_t len, double ns)
{
	static const char *const unit[] = { "ns", "us", "ms", "s" };
	unsigned int i;

	for (i = 0; i < 3 && ns >= 999.5; i++)
		ns /= 1000;
	snprintf(buf, len, "%.*f %s", !i || ns >= 99.95 ? 0 : ns >= 9.995 ? 1 : 2, ns, unit[i]);
	return buf;
}

static const char *quantile_text(char *buf, size_t len, const struct hist *h, unsigned int q)
{
	uint64_t ns;

	if (hist_quantile(h, q, &ns))
		return "-";
	return ns_text(buf, len, (double)ns);
}

static const char *share_text(char *buf, size_t len, uint32_t part, uint32_t all)
{
	if (!all)
		return "-";
	snprintf(buf, len, "%" PRIu32 " of %" PRIu32 "  %6.2f %%", part, all,
		 100.0 * part / all);
	return buf;
}

static void cpu_model(char *buf, size_t len)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[512], *p;

	snprintf(buf, len, "unknown CPU");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "model name", 10) && strncmp(line, "Processor", 9))
			continue;
		p = strchr(line, ':');
		if (!p)
			continue;
		p += strspn(p, ": \t");
		p[strcspn(p, "\n")] = 0;
		snprintf(buf, len, "%s", p);
		break;
	}
	if (f)
		fclose(f);
}

static const char *gemm_name(void)
{
#ifdef PAWL_PLAIN_GEMM
	return "plain C";
#else
	return openblas_get_config();
#endif
}

static void print_head(const struct work *w)
{
	const struct options *o = &w->opt;
	char cpu[128];

	cpu_model(cpu, sizeof(cpu));
	printf("pawl %s: digits through a neural network, every layer of every request an op\n\n",
	       pawl_version());
	printf("model a    %s: %d layers, %d -> %d, %zu weights\n", w->path[0],
	       w->shape->nlayers, w->shape->in_dim, w->shape->out_dim, w->nweights);
	printf("model b    %s: the same layers, other weights\n", w->path[1]);
	printf("images     %s: %" PRIu32 " of %" PRIu32 " x %" PRIu32 ", %" PRIu32
	       " of them held out of training\n", w->images_path, w->images->count,
	       w->images->width, w->images->height, w->images->held_out);
	if (o->rate > 0)
		printf("load       open loop, %g requests/s (%s arrivals), at most %u in flight",
		       o->rate, o->poisson ? "poisson" : "constant", o->in_flight);
	else
		printf("load       closed loop, %u requests in flight", o->in_flight);
	printf(", %u images each\n", o->batch);
	if (o->reload_every)
		printf("reloads    a and b change places every %" PRIu64
		       " requests, by one op that writes all weights\n", o->reload_every);
	printf("machine    %s, %d CPU%s; %s\n\n", cpu, w->cpus, w->cpus == 1 ? "" : "s",
	       gemm_name());
	fflush(stdout);
}

static void print_run(const struct run *r)
{
	char buf[32], workers[16] = "-";
	size_t q;

	if (r->kind != PAWL_NAIVE)
		snprintf(workers, sizeof(workers), "%d", r->workers);
	printf("%-11s %7s %10" PRIu64 " %11.0f %11.0f", r->name, workers, r->requests,
	       run_rate(r), run_rate(r) * r->w->opt.batch);
	for (q = 0; q < NQUANTILES; q++)
		printf(" %8s", quantile_text(buf, sizeof(buf), &r->latency, quantile[q]));
	printf(" %8s\n", r->latency.count ?
	       ns_text(buf, sizeof(buf), (double)r->latency.max) : "-");
}

static void print_text(const struct work *w, const struct run *runs, int nruns, bool verified)
{
	uint64_t checked = 0, wrong = 0, mixed = 0, reloads = 0;
	bool closed = w->opt.rate <= 0, missing = false;
	double ratio = ratio_to_naive(w, runs, nruns);
	char buf[2][64];
	uint64_t ns;
	size_t q;
	int i, v;

	printf("%-11s %7s %10s %11s %11s", "engine", "workers", "requests", "requests/s",
	       "images/s");
	for (q = 0; q < NQUANTILES; q++)
		printf(" %8s", quantile_name[q]);
	printf(" %8s\n", "max");
	for (i = 0; i < nruns; i++) {
		print_run(&runs[i]);
		missing |= hist_quantile(&runs[i].latency, 999, &ns) != 0;
	}
	if (ratio > 0)
		printf("%-11s %7s %10s %10.2fx  (requests/s by the naive engine's; median of %u turns)\n",
		       "ratio", "", "", ratio, runs[0].nrates);
	printf("\np50 to max: the latency of a request, from its %s to the end of its last\nlayer.",
	       closed ? "push" : "intended arrival");
	if (closed && w->opt.engine != PAWL_NAIVE)
		printf("  With %u in flight it includes waiting for those before.%s",
		       w->opt.in_flight, nruns == 2 ?
		       "  The naive\nengine runs every op inside its push, on one thread: nothing waits." : "");
	printf("%s\n\n", missing ? "\n-: too few requests to tell that percentile." : "");

	printf("%-11s %10s   %-25s %-25s\n", "weights", "requests", "right, all images",
	       "right, held out");
	for (v = 0; v < 2; v++) {
		struct accuracy a = accuracy_of(w, v);

		printf("model %c     %10" PRIu64 "   %-25s %s\n", 'a' + v, w->answers[v],
		       share_text(buf[0], sizeof(buf[0]), a.right, a.seen),
		       share_text(buf[1], sizeof(buf[1]), a.held_right, a.held_seen));
	}
	printf("\n");
	for (i = 0; i < nruns; i++) {
		const struct run *r = &runs[i];
		const struct pawl_stats *s = &r->stats;

		printf("%-10s %" PRIu64 " ops pushed, %" PRIu64 " helped, %" PRIu64
		       " handed, %" PRIu64 " stolen; %" PRIu64 " sleeps, %" PRIu64
		       " wakes\n", r->name, s->pushed, s->helped, s->handed, s->stolen,
		       s->sleeps, s->wakes);
		if (r->reloads)
			printf("%-10s %" PRIu64 " reloads, from push to swapped p50 %s, max %s\n", "",
			       r->reloads,
			       quantile_text(buf[0], sizeof(buf[0]), &r->reload, 500),
			       ns_text(buf[1], sizeof(buf[1]), (double)r->reload.max));
		if (r->lateness.count)
			printf("%-10s arrivals were pushed late by p50 %s, p99 %s, max %s\n", "",
			       quantile_text(buf[0], 32, &r->lateness, 500),
			       quantile_text(buf[0] + 32, 32, &r->lateness, 990),
			       ns_text(buf[1], sizeof(buf[1]), (double)r->lateness.max));
		checked += r->checked;
		wrong += r->wrong;
		mixed += r->mixed;
		reloads += r->reloads;
	}
	if (w->opt.trace)
		printf("\ntrace      %s, of the %s engine; opens in https://ui.perfetto.dev\n",
		       w->opt.trace, runs[0].name);
	if (verified)
		printf("\nVerified: each of %" PRIu64 " answers is equal, to the last bit, to that of a serial loop\n"
		       "over the layers; every request saw one version of the weights (%" PRIu64 " reloads).\n",
		       checked, reloads);
	else
		printf("\nFAILED: of %" PRIu64 " answers %" PRIu64 " differ from the serial computation and %"
		       PRIu64 " saw\nmore than one version of the weights.\n", checked, wrong, mixed);
}

static json_t *hist_json(const struct hist *h)
{
	json_t *o = json_object();
	uint64_t ns;
	size_t q;

	json_object_set_new(o, "samples", json_integer((json_int_t)h->count));
	for (q = 0; q < NQUANTILES; q++)
		json_object_set_new(o, quantile_name[q], hist_quantile(h, quantile[q], &ns) ?
				    json_null() : json_integer((json_int_t)ns));
	json_object_set_new(o, "min", h->count ? json_integer((json_int_t)h->min) : json_null());
	json_object_set_new(o, "max", h->count ? json_integer((json_int_t)h->max) : json_null());
	return o;
}

/* The first line of a file, or null. */
static json_t *file_json(const char *path)
{
	FILE *f = fopen(path, "re");
	json_t *o = NULL;
	char line[128];

	if (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		o = json_string(line);
	}
	if (f)
		fclose(f);
	return o ? o : json_null();
}

static json_t *machine_json(const struct work *w)
{
	double load[3] = { 0 };
	struct utsname u;
	char cpu[128];
	json_t *o;

	cpu_model(cpu, sizeof(cpu));
	uname(&u);
	if (getloadavg(load, 3) < 0)
		load[0] = load[1] = load[2] = 0;
	o = json_pack("{s:s, s:s, s:i, s:s, s:s, s:[fff]}", "cpu", cpu, "arch", u.machine,
		      "cores", w->cpus, "kernel", u.release, "libc", gnu_get_libc_version(),
		      "load", load[0], load[1], load[2]);
	json_object_set_new(o, "governor",
		file_json("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
	json_object_set_new(o, "clocksource",
		file_json("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
	json_object_set_new(o, "gemm", json_string(gemm_name()));
	json_object_set_new(o, "compiler", json_string(
#ifdef __clang__
		"clang " __clang_version__
#else
		"gcc " __VERSION__
#endif
		));
#ifdef CONFIG_DEBUG_ENGINE
	json_object_set_new(o, "debug_engine", json_integer(CONFIG_DEBUG_ENGINE));
#endif
	return o;
}

static json_t *stats_json(const struct pawl_stats *s)
{
	const struct {
		const char *name;
		uint64_t v;
	} field[] = {
		{ "pushed", s->pushed }, { "completed", s->completed },
		{ "failed", s->failed }, { "skipped", s->skipped },
		{ "inlined", s->inlined }, { "helped", s->helped },
		{ "handed", s->handed }, { "stolen", s->stolen },
		{ "records", s->records }, { "helps", s->helps },
		{ "sleeps", s->sleeps }, { "wakes", s->wakes },
		{ "vars", s->vars }, { "ops", s->ops }, { "blocks", s->blocks },
		{ "bytes", s->bytes }, { "threads", s->threads },
	};
	json_t *o = json_object();
	size_t i;

	for (i = 0; i < sizeof(field) / sizeof(field[0]); i++)
		json_object_set_new(o, field[i].name, json_integer((json_int_t)field[i].v));
	return o;
}

static json_t *run_json(const struct run *r)
{
	json_t *o = json_object();

	json_object_set_new(o, "engine", json_string(r->name));
	json_object_set_new(o, "workers", r->kind == PAWL_NAIVE ? json_null() :
			    json_integer(r->workers));
	json_object_set_new(o, "requests", json_integer((json_int_t)r->requests));
	json_object_set_new(o, "seconds", json_real((double)r->busy / NSEC));
	json_object_set_new(o, "requests_per_s", json_real(run_rate(r)));
	json_object_set_new(o, "images_per_s", json_real(run_rate(r) * r->w->opt.batch));
	json_object_set_new(o, "latency_ns", hist_json(&r->latency));
	json_object_set_new(o, "reloads", json_integer((json_int_t)r->reloads));
	json_object_set_new(o, "reload_ns", hist_json(&r->reload));
	if (r->w->opt.rate > 0) {
		json_object_set_new(o, "lateness_ns", hist_json(&r->lateness));
		json_object_set_new(o, "pushed_late", json_integer((json_int_t)r->late));
		json_object_set_new(o, "no_free_slot", json_integer((json_int_t)r->full));
		json_object_set_new(o, "never_pushed", json_integer((json_int_t)r->unpushed));
	}
	json_object_set_new(o, "answers_checked", json_integer((json_int_t)r->checked));
	json_object_set_new(o, "answers_wrong", json_integer((json_int_t)r->wrong));
	json_object_set_new(o, "versions_mixed", json_integer((json_int_t)r->mixed));
	json_object_set_new(o, "stats", stats_json(&r->stats));
	return o;
}

static json_t *options_json(const struct work *w)
{
	const struct options *p = &w->opt;
	json_t *o = json_object();

	json_object_set_new(o, "loop", json_string(p->rate > 0 ? "open" : "closed"));
	json_object_set_new(o, "latency_from",
			    json_string(p->rate > 0 ? "intended arrival" : "push"));
	json_object_set_new(o, "batch", json_integer(p->batch));
	json_object_set_new(o, "in_flight", json_integer(p->in_flight));
	json_object_set_new(o, "reload_every", json_integer((json_int_t)p->reload_every));
	json_object_set_new(o, "rate", p->rate > 0 ? json_real(p->rate) : json_null());
	json_object_set_new(o, "arrivals", p->rate > 0 ?
			    json_string(p->poisson ? "poisson" : "constant") : json_null());
	json_object_set_new(o, "requests", p->requests ?
			    json_integer((json_int_t)p->requests) : json_null());
	json_object_set_new(o, "duration", p->duration > 0 ? json_real(p->duration) : json_null());
	json_object_set_new(o, "seed", json_integer((json_int_t)p->seed));
	json_object_set_new(o, "quick", json_boolean(p->quick));
	/* A trace slows its run down: whoever compares should know. */
	json_object_set_new(o, "trace", p->trace ? json_string(p->trace) : json_null());
	return o;
}

static json_t *model_json(const struct work *w)
{
	static const char *const kind[] = {
		[LAYER_FC] = "fully connected",
		[LAYER_ACT] = "activation",
		[LAYER_SOFTMAX] = "softmax",
	};
	json_t *layers = json_array(), *o;
	int k;

	for (k = 0; k < w->shape->nlayers; k++) {
		const struct layer *l = &w->shape->layers[k];

		o = json_pack("{s:s?, s:s, s:i, s:i}", "name", l->name, "kind", kind[l->kind],
			      "in", l->in_dim, "out", l->out_dim);
		/* A name that is no UTF-8 cannot be packed. */
		json_array_append_new(layers, o ? o : json_null());
	}
	o = json_object();
	json_object_set_new(o, "a", json_string(w->path[0]));
	json_object_set_new(o, "b", json_string(w->path[1]));
	json_object_set_new(o, "weights", json_integer((json_int_t)w->nweights));
	json_object_set_new(o, "layers", layers);
	return o;
}

static int print_json(const struct work *w, const struct run *runs, int nruns, bool verified)
{
	json_t *o = json_object(), *list, *sub;
	double ratio = ratio_to_naive(w, runs, nruns);
	unsigned int i;
	int v, rc;

	json_object_set_new(o, "schema_version", json_integer(JSON_SCHEMA));
	json_object_set_new(o, "tool", json_string(self));
	json_object_set_new(o, "version", json_string(pawl_version()));
	json_object_set_new(o, "machine", machine_json(w));
	json_object_set_new(o, "options", options_json(w));
	json_object_set_new(o, "model", model_json(w));
	sub = json_object();
	json_object_set_new(sub, "file", json_string(w->images_path));
	json_object_set_new(sub, "count", json_integer(w->images->count));
	json_object_set_new(sub, "held_out", json_integer(w->images->held_out));
	json_object_set_new(o, "images", sub);

	list = json_array();
	for (v = 0; v < 2; v++) {
		struct accuracy a = accuracy_of(w, v);

		json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}",
			"model", v ? "b" : "a", "requests", (json_int_t)w->answers[v],
			"seen", (json_int_t)a.seen, "right", (json_int_t)a.right,
			"held_out_seen", (json_int_t)a.held_seen,
			"held_out_right", (json_int_t)a.held_right));
	}
	json_object_set_new(o, "accuracy", list);

	list = json_array();
	for (v = 0; v < nruns; v++)
		json_array_append_new(list, run_json(&runs[v]));
	json_object_set_new(o, "runs", list);
	json_object_set_new(o, "ratio_to_naive", ratio > 0 ? json_real(ratio) : json_null());
	json_object_set_new(o, "rounds", json_integer(w->rounds));
	json_object_set_new(o, "others_cpu_share",
			    w->others >= 0 ? json_real(w->others) : json_null());
	json_object_set_new(o, "verified", json_boolean(verified));
	list = json_array();
	for (i = 0; i < w->nwarnings; i++)
		json_array_append_new(list, json_string(w->warning[i]));
	json_object_set_new(o, "warnings", list);
	rc = json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(o);
	return rc ? failed("--json", "cannot write") : 0;
}

/* ---- the command ------------------------------------------------------------ */

int cmd_infer(int argc, char **argv)
{
	static struct run runs[2];	/* histograms: too large for the stack */
	struct work w = { 0 };
	bool verified = true;
	int rc, nruns, i;

	self = argv[0];
	rc = parse_options(&w.opt, argc, argv);
	if (rc > 0) {
		fputs(help_text, stdout);
		return STATUS_OK;
	}
	if (rc)
		return STATUS_USAGE;
#ifndef PAWL_PLAIN_GEMM
	/* The engine's threads are the parallelism. */
	openblas_set_num_threads(1);
#endif
	rc = load(&w);
	if (rc)
		goto out;
	/* Now, not after seconds of work. */
	if (w.opt.trace) {
		FILE *f = fopen(w.opt.trace, "we");

		if (!f) {
			rc = failed(w.opt.trace, strerror(errno));
			goto out;
		}
		fclose(f);
	}
	if (w.opt.rate > 0)
		prctl(PR_SET_TIMERSLACK, 1);	/* the default adds 50 us to every arrival */
	if (!w.opt.json)
		print_head(&w);
	nruns = w.opt.naive ? 2 : 1;
	rc = run_all(&w, runs, nruns);
	if (rc)
		goto out;
	if (w.others > OTHERS_SHARE)
		warn(&w, "other processes used %.0f %% of the CPUs meanwhile: times and ratio are not to be relied on",
		     100 * w.others);
	for (i = 0; i < nruns; i++) {
		if (runs[i].wrong || runs[i].mixed) {
			verified = false;
			fprintf(stderr, "%s: %s engine: WRONG: %s\n", self, runs[i].name,
				runs[i].first_wrong);
		}
		run_warnings(&w, &runs[i]);
	}
	if (w.opt.json)
		rc = print_json(&w, runs, nruns, verified);
	else
		print_text(&w, runs, nruns, verified);
	fflush(stdout);
	for (i = 0; i < (int)w.nwarnings; i++)
		fprintf(stderr, "%s: warning: %s\n", self, w.warning[i]);
out:
	unload(&w);
	return rc || !verified ? STATUS_FAILED : STATUS_OK;
}
