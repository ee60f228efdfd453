// SPDX-License-Identifier: Apache-2.0
/* pawl bench: options, the plan, and the order of its runs. */

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tools/pawl/cmd.h>
#include "suite.h"

#define TRACE_EVENTS	4096u		/* of a thread */
#define SLICE_MIN	10000000u	/* of a case in a round */

static const char help_text[] =
"Usage: pawl bench [OPTION]... [SUITE]...\n"
"   or: pawl bench --compare [--threshold=PERCENT] A.json[,FILE]... B.json[,FILE]...\n"
"Measure the engine on this host, or compare two measurements.\n"
"\n"
"Suites (without one, all but the last):\n"
"  primitives   a push, by the number of vars; run, completion, launch, wake, hand-over\n"
"  shapes       ops that depend on each other in six ways: time per op\n"
"  metg         the smallest op at which the threads do half of the ideal work\n"
"  producers    ops per second, by the number of producers and workers\n"
"  requests     requests of four ops: rate and time, by producers, workers and body\n"
"  fairness     how long ops wait where many producers compete, and who waits longest\n"
"  busy         pushes and waits while all workers run long bodies\n"
"  open         ops at random times: time from the intended start, and own lag\n"
"  preempted    more threads than CPUs, and stopped threads: rate, time, longest silence\n"
"\n"
"  -d, --duration=S          the time of all together (40)\n"
"  -r, --rounds=N            each case has a turn in each round (9)\n"
"  -w, --warmup=S            the time before each measurement (5ms)\n"
"  -S, --seed=N              the seed of random shapes and times (1)\n"
"  -C, --cpus=LIST           run on these CPUs, such as 0-3,8\n"
"  -V, --vs=DIR              preempted: also the engines whose drivers are in DIR, in turns\n"
"  -j, --json                print JSON instead of text\n"
"  -o, --output-json=FILE    write the JSON to a file\n"
"  -H, --html=FILE           write a page with curves for a browser, and the JSON in it\n"
"  -b, --break-us=N          end the run when a single time exceeds N us, and write a trace of\n"
"                            what the engine did until then; all times are longer with it\n"
"  -T, --trace=FILE          the file of that trace (pawl-bench-trace.json)\n"
"  -l, --list                list the figures of the suites, and measure nothing\n"
"  -c, --compare             compare the figures of A and B; the rounds of several files,\n"
"                            separated by commas, are taken together\n"
"  -t, --threshold=PERCENT   --compare: smaller differences do not count (5)\n"
"  -h, --help                print this\n"
"\n"
"Times may have a unit: us, ms or s.  pawl-bench(1) explains the figures.\n"
"SIGINT and SIGTERM end the run, and print what was measured so far.\n"
"Exit status: 0: measured, or nothing is worse; 1: a signal or --break-us ended the run, a\n"
"result was wrong, or, with --compare, a figure is worse or cannot be judged; 2: the command line is\n"
"invalid.\n";

static const struct option long_options[] = {
	{ "duration", required_argument, NULL, 'd' },
	{ "rounds", required_argument, NULL, 'r' },
	{ "warmup", required_argument, NULL, 'w' },
	{ "seed", required_argument, NULL, 'S' },
	{ "cpus", required_argument, NULL, 'C' },
	{ "html", required_argument, NULL, 'H' },
	{ "vs", required_argument, NULL, 'V' },
	{ "json", no_argument, NULL, 'j' },
	{ "output-json", required_argument, NULL, 'o' },
	{ "break-us", required_argument, NULL, 'b' },
	{ "trace", required_argument, NULL, 'T' },
	{ "list", no_argument, NULL, 'l' },
	{ "compare", no_argument, NULL, 'c' },
	{ "threshold", required_argument, NULL, 't' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static const struct suite {
	const char *name;
	void (*plan)(struct plan *p);
	bool extra;			/* only if it is named */
} bench_suites[] = {
	{ "primitives", plan_primitives, false },
	{ "shapes", plan_shapes, false },
	{ "metg", plan_metg, false },
	{ "producers", plan_producers, false },
	{ "requests", plan_requests, false },
	{ "fairness", plan_fairness, false },
	{ "busy", plan_busy, false },
	{ "open", plan_open, false },
	{ "preempted", plan_preempted, true },
};

#define NSUITES (sizeof(bench_suites) / sizeof(bench_suites[0]))

bool bench_stop;
struct limit bench_limit;

/* --- what the suites use ------------------------------------------------------------- */

void bench_die(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "%s: ", BENCH_SELF);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	/* not exit(): threads of the engine may still run */
	_exit(STATUS_FAILED);
}

void bench_check(int err, const char *what)
{
	if (err < 0)
		bench_die("%s: %s: %s", what, strerror(-err), pawl_error_text());
}

void *bench_alloc(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (!p)
		bench_die("out of memory");
	return p;
}

void sleep_ns(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	/* a signal ends the sleep, so that the run can end */
	nanosleep(&ts, NULL);
}

uint64_t random_next(uint64_t *state)
{
	uint64_t z = (*state += BENCH_HASH);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

void bench_poll(const struct options *o, unsigned int *spins)
{
	bench_pause();
	/* the other thread may need this CPU */
	if (++*spins % 1024 == 0 || o->cpus == 1)
		sched_yield();
}

struct pawl_engine *run_engine(struct run *r, int workers, unsigned int window)
{
	struct pawl_config c;

	pawl_config_init(&c);
	if (workers >= 0)
		c.workers = workers;
	if (window)
		c.window = window;
	c.max_threads = 2 * MAX_PRODUCERS + (unsigned int)c.workers;
	bench_check(pawl_engine_create(&c, &r->engine), "pawl_engine_create");
	if (r->o->break_ns && r->c->figure[r->c->nfigures > 1]->now)
		bench_check(pawl_trace_start(r->engine, TRACE_EVENTS), "pawl_trace_start");
	return r->engine;
}

void run_break(struct run *r, unsigned int figure, uint64_t from, uint64_t to)
{
	const char *none = NULL;

	if (!__atomic_compare_exchange_n(&bench_limit.figure, &none, r->c->figure[figure]->name,
					 false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return;
	bench_check(pawl_trace_stop(r->engine), "pawl_trace_stop");
	bench_limit.from = from;
	bench_limit.to = to;
	__atomic_store_n(&bench_stop, true, __ATOMIC_RELEASE);
}

/* The trace is in the file; where in it is the time? */
static void limit_find(const char *file)
{
	json_t *root = json_load_file(file, 0, NULL);
	json_t *base = json_object_get(json_object_get(root, "otherData"), "base_ns");
	double ns = json_is_string(base) ? strtod(json_string_value(base), NULL) :
					   json_number_value(base);

	bench_limit.from_us = ((double)bench_limit.from - ns) / 1e3;
	bench_limit.to_us = ((double)bench_limit.to - ns) / 1e3;
	bench_limit.traced = base != NULL;
	json_decref(root);
}

void run_destroy(struct run *r)
{
	/* no other case follows: the limit has ended the run */
	if (bench_limit.figure) {
		if (pawl_trace_write(r->engine, r->o->trace))
			fprintf(stderr, "%s: %s\n", BENCH_SELF, pawl_error_text());
		else
			limit_find(r->o->trace);
	}
	bench_check(pawl_engine_destroy(r->engine), "pawl_engine_destroy");
}

void bench_vars(struct pawl_engine *e, pawl_var_t *v, unsigned int n)
{
	while (n--)
		bench_check(pawl_var_create(e, &v[n]), "pawl_var_create");
}

struct pawl_op bench_write(pawl_fn fn, void *arg, const pawl_var_t *v)
{
	struct pawl_op op = PAWL_OP_INIT;

	op.fn = fn;
	op.arg = arg;
	op.writes = v;
	op.nwrites = 1;
	return op;
}

void run_begin(struct run *r)
{
	r->begin = now_ns() + r->o->warmup_ns;
	r->end = r->begin + r->slice_ns;
}

static void sleep_until(const struct run *r, uint64_t at)
{
	uint64_t now;

	while ((now = now_ns()) < at && run_goes_on(r, 0, false))
		sleep_ns(at - now);
}

void run_warm(const struct run *r)
{
	sleep_until(r, r->begin);
}

void run_rest(struct run *r)
{
	sleep_until(r, r->end);
	while (run_goes_on(r, r->end, __atomic_load_n(&r->measured, __ATOMIC_RELAXED)))
		sleep_ns(1000000);
	r->end = now_ns();
	__atomic_store_n(&r->over, true, __ATOMIC_RELAXED);
}

void series_add(struct series *s, double v)
{
	if (s->n == s->room) {
		s->room = s->room ? 2 * s->room : 64;
		s->v = realloc(s->v, s->room * sizeof(*s->v));
		if (!s->v)
			bench_die("out of memory");
	}
	s->v[s->n++] = v;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void sort_values(double *to, const double *from, unsigned int n)
{
	memcpy(to, from, n * sizeof(*to));
	qsort(to, n, sizeof(*to), by_value);
}

double median_of(const double *v, unsigned int n)
{
	double *sorted, m;

	if (!n)
		return NAN;
	sorted = bench_alloc(n, sizeof(*sorted));
	sort_values(sorted, v, n);
	m = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
	free(sorted);
	return m;
}

double series_median(struct series *s)
{
	double m = median_of(s->v, (unsigned int)s->n);

	free(s->v);
	*s = (struct series){ 0 };
	return m;
}

/* --- the plan ------------------------------------------------------------------------ */

struct bench_case *plan_case(struct plan *p, void (*run)(struct run *r), unsigned int weight,
			     const char *fmt, ...)
{
	struct bench_case *c = &p->cases[p->ncases++];
	va_list ap;

	if (p->ncases > MAX_CASES)
		bench_die("too many cases");
	va_start(ap, fmt);
	vsnprintf(c->name, sizeof(c->name), fmt, ap);
	va_end(ap);
	c->run = run;
	c->weight = weight;
	return c;
}

void plan_figure(struct plan *p, const char *name, enum unit unit, bool single, const char *what)
{
	struct bench_case *c = &p->cases[p->ncases - 1];
	struct figure *f = bench_alloc(1, sizeof(*f));

	snprintf(f->name, sizeof(f->name), "%s%s%s", c->name, name ? "/" : "", name ? name : "");
	f->what = what;
	f->unit = unit;
	if (single) {
		f->hist = bench_alloc(1, sizeof(*f->hist));
		f->now = bench_alloc(1, sizeof(*f->now));
	}
	c->figure[c->nfigures++] = f;
	p->figures[p->nfigures++] = f;
}

static void plan_free(struct plan *p)
{
	unsigned int i;

	for (i = 0; i < p->nfigures; i++) {
		free(p->figures[i]->hist);
		free(p->figures[i]->now);
		free(p->figures[i]);
	}
	free(p);
}

/* --- the runs -------------------------------------------------------------------------- */

static void case_run(const struct options *o, const struct bench_case *c, unsigned int round,
		     uint64_t slice_ns)
{
	struct run r = { .o = o, .c = c, .seed = o->seed + round, .slice_ns = slice_ns };
	uint64_t p50, seen;
	unsigned int i;

	for (i = 0; i < c->nfigures; i++) {
		r.value[i] = NAN;
		if (c->figure[i]->now)
			hist_init(c->figure[i]->now);
	}
	c->run(&r);
	for (i = 0; i < c->nfigures; i++) {
		struct figure *f = c->figure[i];

		if (f->now && f->now->count) {
			p50 = hist_rank(f->now, (f->now->count + 1) / 2, &seen);
			r.value[i] = (double)p50;
			hist_merge(f->hist, f->now);
		}
		if (!isnan(r.value[i]))
			f->round[f->rounds++] = r.value[i];
	}
}

static unsigned int weight_of(const struct plan *p)
{
	unsigned int i, sum = 0;

	for (i = 0; i < p->ncases; i++)
		sum += p->cases[i].weight;
	return sum;
}

/* Each run takes its share of the time that is left, so that all end in time. */
static void plan_run(struct plan *p, struct result *res)
{
	const struct options *o = p->o;
	uint64_t left = (uint64_t)weight_of(p) * o->rounds, begin = now_ns();
	uint64_t end = begin + o->duration_ns;
	bool show = isatty(STDERR_FILENO);
	unsigned int round, i;

	for (round = 0; round < o->rounds; round++) {
		host_round();
		for (i = 0; i < p->ncases; i++) {
			const struct bench_case *c = &p->cases[i];
			uint64_t now = now_ns(), slice;

			slice = now < end ? (end - now) / left * c->weight : 0;
			slice = slice > o->warmup_ns ? slice - o->warmup_ns : 0;
			left -= c->weight;
			if (show)
				fprintf(stderr, "\r\033[Kround %u of %u: %s", round + 1, o->rounds,
					c->name);
			case_run(o, c, round, slice > SLICE_MIN ? slice : SLICE_MIN);
			if (__atomic_load_n(&bench_stop, __ATOMIC_RELAXED))
				break;
		}
		if (i < p->ncases)
			break;
	}
	if (show)
		fprintf(stderr, "\r\033[K");
	res->plan = p;
	res->rounds = round;
	res->seconds = (double)(now_ns() - begin) / 1e9;
	res->interrupted = round < o->rounds;
}

/* --- signals --------------------------------------------------------------------------- */

static const int numbers[] = { SIGINT, SIGTERM };

static void handler(int number)
{
	(void)number;
	__atomic_store_n(&bench_stop, true, __ATOMIC_RELAXED);
}

/* The first signal ends the run, unless it is ignored; the second one ends the process. */
static void catch_signals(struct sigaction *before)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART | SA_RESETHAND };
	unsigned int i;

	bench_stop = false;
	for (i = 0; i < 2; i++) {
		sigaction(numbers[i], NULL, &before[i]);
		if (before[i].sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	}
}

static void release_signals(const struct sigaction *before)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		sigaction(numbers[i], &before[i], NULL);
}

/* --- options ----------------------------------------------------------------------------- */

static int usage(const char *what, const char *detail)
{
	fprintf(stderr, "%s: %s%s\n", BENCH_SELF, what, detail);
	return STATUS_USAGE;
}

static bool parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *v)
{
	char *end;

	errno = 0;
	*v = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *v >= min && *v <= max;
}

/* A time of up to a day, in seconds if the text names no unit. */
static bool parse_time(const char *text, bool zero, uint64_t *ns)
{
	char *end;
	double v = strtod(text, &end), unit = 1e9;

	if (!strcmp(end, "us"))
		unit = 1e3;
	else if (!strcmp(end, "ms"))
		unit = 1e6;
	else if (*end && strcmp(end, "s"))
		return false;
	if (end == text || !(v >= 0 && v * unit <= 86400e9))
		return false;
	*ns = (uint64_t)(v * unit);
	return *ns || (zero && v == 0);
}

static bool parse_percent(const char *text, double *v)
{
	char *end;

	*v = strtod(text, &end);
	return end != text && !*end && *v >= 0 && *v <= 1000;
}

/* A list as of taskset(1): numbers and ranges. */
static bool parse_cpus(const char *text)
{
	char *end = (char *)text;
	cpu_set_t set;

	CPU_ZERO(&set);
	do {
		unsigned long from, to;

		text = end + (end[0] == ',');
		if (*text < '0' || *text > '9')
			return false;
		from = to = strtoul(text, &end, 10);
		if (*end == '-' && end[1] >= '0' && end[1] <= '9')
			to = strtoul(end + 1, &end, 10);
		if (from > to || to >= CPU_SETSIZE)
			return false;
		for (; from <= to; from++)
			CPU_SET(from, &set);
	} while (*end == ',');
	return !*end && !sched_setaffinity(0, sizeof(set), &set);
}

static bool set(struct options *o, int c, const char *arg)
{
	uint64_t v = 0;
	bool ok;

	switch (c) {
	case 'd': return parse_time(arg, false, &o->duration_ns);
	case 'r':
		ok = parse_uint(arg, 1, MAX_ROUNDS, &v);
		o->rounds = (unsigned int)v;
		return ok;
	case 'w': return parse_time(arg, true, &o->warmup_ns);
	case 'S': return parse_uint(arg, 0, UINT64_MAX, &o->seed);
	case 'C':
		o->cpu_list = arg;
		return parse_cpus(arg);
	case 'V': o->drivers = arg; break;
	case 'j': o->json = true; break;
	case 'o': o->json_out = arg; break;
	case 'b':
		ok = parse_uint(arg, 1, 86400000000u, &v);
		o->break_ns = v * 1000;
		return ok;
	case 'T': o->trace = arg; break;
	case 'H': o->html = arg; break;
	case 'l': o->list = true; break;
	case 'c': o->compare = true; break;
	case 't': return parse_percent(arg, &o->threshold);
	}
	return true;
}

/* Returns -1, or an exit status. */
static int parse(struct options *o, int argc, char **argv)
{
	int c, index;
	char text[300];

	optind = 0;
	while ((c = getopt_long(argc, argv, "d:r:w:S:C:V:jo:H:b:T:lct:h", long_options, NULL)) != -1) {
		if (c == 'h') {
			fputs(help_text, stdout);
			return STATUS_OK;
		}
		if (c == '?')
			return STATUS_USAGE;
		if (!set(o, c, optarg)) {
			for (index = 0; long_options[index].val != c; index++)
				;
			snprintf(text, sizeof(text), "'%.200s' is not good for --%s", optarg,
				 long_options[index].name);
			return usage(text, "");
		}
	}
	if (o->compare && argc - optind != 2)
		return usage("--compare needs two measurements: A.json B.json", "");
	return -1;
}

/* The CPUs that the engine would use: its default leaves one for the caller. */
static unsigned int usable_cpus(void)
{
	struct pawl_config c;
	cpu_set_t set;
	int n = 1;

	if (!sched_getaffinity(0, sizeof(set), &set))
		n = CPU_COUNT(&set);
	pawl_config_init(&c);
	return (unsigned int)(n < c.workers + 1 ? n : c.workers + 1);
}

static int plan_suites(struct plan *p, int n, char **names)
{
	unsigned int i;
	int k;

	for (k = 0; k < n; k++) {
		for (i = 0; i < NSUITES && strcmp(names[k], bench_suites[i].name); i++)
			;
		if (i == NSUITES) {
			fprintf(stderr, "%s: no suite '%s'; there are", BENCH_SELF, names[k]);
			for (i = 0; i < NSUITES; i++)
				fprintf(stderr, " %s", bench_suites[i].name);
			fprintf(stderr, "\n");
			return -1;
		}
	}
	for (i = 0; i < NSUITES; i++) {
		for (k = 0; k < n && strcmp(names[k], bench_suites[i].name); k++)
			;
		if (n ? k < n : !bench_suites[i].extra)
			bench_suites[i].plan(p);
	}
	return 0;
}

static int measure(struct plan *p)
{
	const struct options *o = p->o;
	struct sigaction before[2];
	struct result res = { 0 };
	int rc = 0;

	bench_limit = (struct limit){ 0 };
	work_clock();
	catch_signals(before);
	host_begin();
	plan_run(p, &res);
	host_end(o);
	bench_report_judge(p);
	release_signals(before);
	if (o->json)
		rc = bench_report_json(&res, NULL);
	else
		bench_report_text(&res);
	if (o->json_out && bench_report_json(&res, o->json_out))
		rc = -1;
	if (o->html && bench_report_html(&res, o->html))
		rc = -1;
	return rc || res.interrupted ? STATUS_FAILED : STATUS_OK;
}

int cmd_bench(int argc, char **argv)
{
	struct options o = {
		.seed = 1, .duration_ns = 40000000000u, .warmup_ns = 5000000u, .rounds = 9,
		.threshold = 5, .trace = "pawl-bench-trace.json",
	};
	int rc = parse(&o, argc, argv);
	struct plan *p;
	unsigned int i;

	if (rc >= 0)
		return rc;
	if (o.compare)
		return bench_compare(&o, argv[optind], argv[optind + 1]);
	o.cpus = usable_cpus();
	o.vs = o.drivers != NULL;
	if (o.vs && bench_drivers(o.drivers))
		return STATUS_FAILED;
	p = bench_alloc(1, sizeof(*p));
	p->o = &o;
	if (plan_suites(p, argc - optind, argv + optind)) {
		rc = STATUS_USAGE;
	} else if (o.list) {
		for (i = 0; i < p->nfigures; i++)
			printf("%-32s %s\n", p->figures[i]->name, p->figures[i]->what);
		rc = STATUS_OK;
	} else {
		rc = measure(p);
	}
	plan_free(p);
	return rc;
}
