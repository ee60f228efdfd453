/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl bench: measures the engine on the host, through the public header alone.
 *
 * A suite has cases, and a case has figures.  cmd.c runs every case once per round, so that a
 * change of the host spreads over all cases, and a figure has one value per round.  The suites
 * are in primitives.c, shapes.c, load.c, open.c and preempted.c; report.c prints, and compare.c compares two
 * runs.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef PAWL_BENCH_SUITE_H
#define PAWL_BENCH_SUITE_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <pawl/engine.h>
#include <demo/hist.h>

#include "work.h"

#define BENCH_SELF	"pawl bench"
#define MAX_ROUNDS	1000u
#define MAX_CASES	256u
#define CASE_FIGURES	4u
#define BEYOND		10u		/* samples that a percentile needs above it */
#define MAX_PRODUCERS	256u

struct options {
	uint64_t seed, duration_ns, warmup_ns;
	unsigned int rounds;
	unsigned int cpus;		/* that the affinity mask and the quota permit */
	const char *cpu_list;
	bool json, list, compare, vs;
	const char *drivers;
	const char *json_out, *html, *trace;
	uint64_t break_ns;		/* 0: no limit */
	double threshold;		/* --compare: percent */
};

enum unit {
	UNIT_NS,			/* a time: less is better */
	UNIT_RATE,			/* a second: more is better */
	UNIT_SHARE,			/* from 0 to 1: more is better */
};

struct figure {
	char name[64];			/* SUITE/CASE/FIGURE, or SUITE/CASE */
	const char *what;
	enum unit unit;
	double round[MAX_ROUNDS];	/* of times: the median of the round */
	unsigned int rounds;
	struct hist *hist;		/* single times of all rounds, or NULL */
	struct hist *now;		/* those of this round */
};

struct run;

struct bench_case {
	char name[48];			/* SUITE/CASE */
	void (*run)(struct run *r);
	unsigned int p[3];		/* its own */
	const char *text;		/* its own */
	unsigned int weight;		/* its share of the time */
	struct figure *figure[CASE_FIGURES];
	unsigned int nfigures;
};

struct plan {
	const struct options *o;
	struct bench_case cases[MAX_CASES];
	unsigned int ncases;
	struct figure *figures[MAX_CASES * CASE_FIGURES];
	unsigned int nfigures;
};

/* One case in one round. */
struct run {
	const struct options *o;
	const struct bench_case *c;
	struct pawl_engine *engine;
	uint64_t seed;
	uint64_t slice_ns;
	uint64_t begin, end;		/* of the measured time, set by run_begin() */
	bool measured;			/* atomic: a thread of the case has a value */
	bool over;			/* atomic: the threads of the case end */
	double value[CASE_FIGURES];	/* NAN: there is no value; not used by figures with a hist */
};

void plan_primitives(struct plan *p);
void plan_shapes(struct plan *p);
void plan_metg(struct plan *p);
void plan_producers(struct plan *p);
void plan_requests(struct plan *p);
void plan_fairness(struct plan *p);
void plan_busy(struct plan *p);
void plan_open(struct plan *p);
void plan_preempted(struct plan *p);

/* Load the drivers of a folder.  0 or -1, after a message. */
int bench_drivers(const char *dir);

/* Add a case, and then its figures.  name NULL: the figure has the name of the case. */
struct bench_case *plan_case(struct plan *p, void (*run)(struct run *r), unsigned int weight,
			     const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void plan_figure(struct plan *p, const char *name, enum unit unit, bool single,
		 const char *what);

/* A signal has ended the run.  Atomic. */
extern bool bench_stop;

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void sleep_ns(uint64_t ns);

/* A run measures at least once, unless a signal ends it. */
static inline bool run_goes_on(const struct run *r, uint64_t now, bool measured)
{
	return (now < r->end || !measured) && !__atomic_load_n(&bench_stop, __ATOMIC_RELAXED);
}

static inline bool run_ended(const struct run *r)
{
	return __atomic_load_n(&r->over, __ATOMIC_RELAXED);
}

/* What the case needs exists: the warm-up begins, and the measured time follows. */
void run_begin(struct run *r);
/* Sleep until the measured time begins. */
void run_warm(const struct run *r);
/*
 * Sleep until the measured time ends, and there is a value; then the threads of the case end.
 * Sets r->end to the time of that.
 */
void run_rest(struct run *r);

/* For the threads of a case. */
static inline void run_measured(struct run *r)
{
	__atomic_store_n(&r->measured, true, __ATOMIC_RELAXED);
}

/* The time that exceeded --break-us; figure is NULL before. */
struct limit {
	const char *figure;		/* atomic */
	uint64_t from, to;
	bool traced;			/* these are times of the trace */
	double from_us, to_us;
};

extern struct limit bench_limit;

/* The time is beyond the limit: end the trace, and the run.  Any thread. */
void run_break(struct run *r, unsigned int figure, uint64_t from, uint64_t to);

/* Add a single time to a figure of the case, by way of a histogram of the thread. */
static inline void run_time_in(struct run *r, unsigned int figure, struct hist *h, uint64_t from,
			       uint64_t to)
{
	uint64_t ns = to > from ? to - from : 0;

	hist_add(h, ns);
	if (r->o->break_ns && ns > r->o->break_ns)
		run_break(r, figure, from, to);
}

static inline void run_time(struct run *r, unsigned int figure, uint64_t from, uint64_t to)
{
	run_time_in(r, figure, r->c->figure[figure]->now, from, to);
}

/* The values of one run, for their median. */
struct series {
	double *v;
	size_t n, room;
};

void series_add(struct series *s, double v);
/* Returns NAN if there is none.  Frees the series. */
double series_median(struct series *s);
double median_of(const double *v, unsigned int n);
void sort_values(double *to, const double *from, unsigned int n);

void bench_check(int err, const char *what);
void *bench_alloc(size_t n, size_t size);

/*
 * The engine of the case.  workers below 0: the default.  window 0: the default.  With
 * --break-us it has a trace.
 */
struct pawl_engine *run_engine(struct run *r, int workers, unsigned int window);
void run_destroy(struct run *r);
void bench_vars(struct pawl_engine *e, pawl_var_t *v, unsigned int n);
/* An op that writes one var. */
struct pawl_op bench_write(pawl_fn fn, void *arg, const pawl_var_t *v);

/* Keep the CPU busy for so many turns: work_turns(). */
static inline void burn(uint32_t turns)
{
	uint64_t x = turns;

	while (turns--) {
		x = x * BENCH_HASH + 1;
		__asm__ volatile("" : "+r"(x));
	}
}

/* Between two looks at what another thread writes. */
void bench_poll(const struct options *o, unsigned int *spins);

/* splitmix64 */
uint64_t random_next(uint64_t *state);

/* report.c */
struct result {
	const struct plan *plan;
	unsigned int rounds;		/* those that are complete */
	double seconds;
	bool interrupted;		/* by a signal, or the limit */
};

void bench_report_text(const struct result *r);
/* Write to the file, or if it is NULL to standard output.  0 or -1, after a message. */
int bench_report_json(const struct result *r, const char *file);
json_t *bench_report_root(const struct result *r);
/* The rounds spread. */
bool bench_unsteady(const struct figure *f);
/* Add the warnings that concern single figures. */
void bench_report_judge(const struct plan *p);
/* A value of this unit, for people. */
const char *bench_value(enum unit unit, double v, char *text, size_t size);

/* html.c: 0 or -1, after a message. */
int bench_report_html(const struct result *r, const char *file);

/* host.c */
void host_begin(void);
void host_round(void);
void host_end(const struct options *o);
/* Something spoils a figure. */
void host_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
json_t *host_json(const struct options *o);
json_t *host_warnings(void);
void host_text(const struct options *o);
void host_text_warnings(void);

/* compare.c: an exit status.  before and after: files, separated by commas. */
int bench_compare(const struct options *o, const char *before, const char *after);

#endif
