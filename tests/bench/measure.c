// SPDX-License-Identifier: Apache-2.0
/* measure.c - the measurements: shapes, latency, many pushers, grain, one line. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"

void bench_sleep_ns(long ns)
{
	struct timespec ts = { ns / 1000000000, ns % 1000000000 };

	while (nanosleep(&ts, &ts))
		;
}

static const struct bench_engine *watched_engine;

static void watched_push(struct bench_op *op)
{
	bench_pushing = op;
	watched_engine->push(op);
	bench_pushing = NULL;
}

const struct bench_engine *measure_watched(const struct bench_engine *e)
{
	static struct bench_engine w;

	watched_engine = e;
	w = *e;
	w.push = watched_push;
	return &w;
}

static void enter(const struct bench_engine *e, void (*fn)(void *), void *arg)
{
	if (e->enter)
		e->enter(fn, arg);
	else
		fn(arg);
}

static void reset(const struct bench_engine *e)
{
	if (e->reset)
		e->reset();
}

struct timed {
	const struct bench_engine *e;
	struct bench_op *ops;
	uint32_t n;
	uint64_t t0, t1, t2;	/* time of the first push, of the last return, of the end */
};

static void timed_run(void *arg)
{
	struct timed *t = arg;
	const struct bench_engine *e = t->e;
	uint32_t i;

	t->t0 = bench_now();
	for (i = 0; i < t->n; i++)
		e->push(&t->ops[i]);
	t->t1 = bench_now();
	e->wait();
	t->t2 = bench_now();
}

/* ns per op; ends the program if the result is not that of a serial run */
static double run_once(const struct measure *m, struct work *w, uint32_t n, double *push_ns)
{
	struct timed t = { m->e, w->ops, n, 0, 0, 0 };
	uint32_t bad;

	work_reset(w);
	enter(m->e, timed_run, &t);
	reset(m->e);
	if (m->check && n == w->n) {
		bad = work_check(w);
		if (bad)
			bench_die("%s: %s: WRONG RESULT: var %u is not what a serial run gives",
				  m->e->name, w->name, bad - 1);
	}
	if (push_ns)
		*push_ns = (double)(t.t1 - t.t0) * bench_tick_ns / n;
	return (double)(t.t2 - t.t0) * bench_tick_ns / n;
}

void measure_shape(const struct measure *m)
{
	struct work *w = work_make(m->test, m->ops, m->seed);
	double ns, push_ns;
	unsigned int i;

	if (!w)
		bench_die("no test \"%s\"", m->test);
	if (bench_grain)
		work_set_kind(w, BODY_GRAIN);
	if (m->watch)
		work_watch(w);
	m->e->vars(w->nvars);
	for (i = 0; i < m->warm + m->reps; i++) {
		uint32_t n = i < m->warm || !m->use || m->use > w->n ? w->n : m->use;

		ns = run_once(m, w, n, &push_ns);
		if (i < m->warm)
			continue;
		printf("{\"engine\":\"%s\",\"test\":\"%s\",\"ops\":%u,\"ns_op\":%.2f,"
		       "\"push_ns\":%.2f,\"checked\":%s}\n", m->e->name, w->name, n, ns,
		       push_ns, m->check && n == w->n ? "true" : "false");
	}
	work_free(w);
}

/* ---- latency ---- */

struct latency {
	const struct measure *m;
	struct bench_op op;
	long idle_ns;
	bool look;		/* do not help: poll the stamp */
	uint32_t warm;
	int64_t *sample;
	int64_t idle_cpu;	/* ns that the process ran while it had nothing to do */
};

static int64_t process_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* A peer whose threads poll all that time is not woken, since it never sleeps. */
static void latency_idle(struct latency *l)
{
	int64_t t0 = process_cpu_ns();

	bench_sleep_ns(l->idle_ns);
	l->idle_cpu += process_cpu_ns() - t0;
}

static void latency_run(void *arg)
{
	struct latency *l = arg;
	const struct bench_engine *e = l->m->e;
	uint32_t i, n = l->m->samples + l->warm;
	uint64_t t0, t1;

	for (i = 0; i < n; i++) {
		if (l->idle_ns)
			latency_idle(l);
		__atomic_store_n(&bench_stamp, 0, __ATOMIC_RELAXED);
		t0 = bench_now();
		e->push(&l->op);
		if (l->look)
			while (!__atomic_load_n(&bench_stamp, __ATOMIC_ACQUIRE))
				bench_pause();
		e->wait();
		t1 = __atomic_load_n(&bench_stamp, __ATOMIC_ACQUIRE);
		if (!t1)
			bench_die("%s: %s: the wait was over before the op", e->name,
				  l->m->test);
		if (i >= l->warm)
			l->sample[i - l->warm] = (int64_t)(t1 - t0);
		reset(e);
	}
}

static int cmp_i64(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Nearest rank, per 10 000.  A percentile needs a sample beyond it. */
static void print_percentile(const char *name, const int64_t *s, uint32_t n, uint32_t p)
{
	uint64_t rank = ((uint64_t)n * p + 9999) / 10000;

	if (rank >= n)
		printf(",\"%s\":null", name);
	else
		printf(",\"%s\":%.1f", name, (double)s[rank - 1] * bench_tick_ns);
}

void measure_latency(const struct measure *m)
{
	struct latency l = { .m = m };
	size_t len = strlen(m->test);
	uint32_t n = m->samples;
	struct work *w;

	l.look = len > 2 && !strcmp(m->test + len - 2, "-w");
	if (l.look && !(m->e->flags & BENCH_HAS_WORKER)) {
		printf("{\"engine\":\"%s\",\"test\":\"%s\",\"unsupported\":true}\n", m->e->name,
		       m->test);
		return;
	}
	l.idle_ns = strncmp(m->test, "wake", 4) ? 0 : 1000000;
	l.warm = l.idle_ns ? 10 : 1000;
	l.sample = calloc(n, sizeof(*l.sample));
	w = work_make("chain", 1, m->seed);
	if (!l.sample || !w)
		bench_die("out of memory");
	work_set_kind(w, BODY_STAMP);
	if (m->watch)
		work_watch(w);
	l.op = w->ops[0];
	m->e->vars(1);
	enter(m->e, latency_run, &l);
	qsort(l.sample, n, sizeof(*l.sample), cmp_i64);
	if (l.sample[0] < 0)
		bench_die("the clocks of the cores differ: no latencies here");
	printf("{\"engine\":\"%s\",\"test\":\"%s\",\"samples\":%u,\"min\":%.1f", m->e->name,
	       m->test, n, (double)l.sample[0] * bench_tick_ns);
	print_percentile("p50", l.sample, n, 5000);
	print_percentile("p90", l.sample, n, 9000);
	print_percentile("p99", l.sample, n, 9900);
	print_percentile("p99_9", l.sample, n, 9990);
	print_percentile("p99_99", l.sample, n, 9999);
	if (l.idle_ns)
		printf(",\"idle_cpu\":%.3f",
		       (double)l.idle_cpu / (double)l.idle_ns / (n + l.warm));
	printf(",\"max\":%.1f}\n", (double)l.sample[n - 1] * bench_tick_ns);
	work_free(w);
	free(l.sample);
}

/* ---- many pushers ---- */

struct mpush {
	const struct measure *m;
	struct work *w;
	pthread_barrier_t start;
	bool over;
	uint64_t t0;
};

struct mpush_thread {
	struct mpush *mp;
	unsigned int me;
	uint64_t t0;
};

static void *mpush_thread(void *arg)
{
	struct mpush_thread *t = arg;
	const struct bench_engine *e = t->mp->m->e;
	struct work *w = t->mp->w;
	uint32_t i;

	bench_pin_self((int)t->me);
	for (i = 0; i < w->n; i++)
		if (w->ops[i].pusher == t->me)
			break;
	pthread_barrier_wait(&t->mp->start);
	t->t0 = bench_now();
	for (; i < w->n && w->ops[i].pusher == t->me; i++)
		e->push(&w->ops[i]);
	return NULL;
}

static void mpush_one(void *arg)
{
	struct mpush *mp = arg;
	uint32_t i;

	mp->t0 = bench_now();
	for (i = 0; i < mp->w->n; i++)
		mp->m->e->push(&mp->w->ops[i]);
	mp->m->e->wait();
}

static uint64_t mpush_progress(const struct work *w)
{
	uint64_t sum = 0;
	uint32_t v;

	for (v = 0; v < w->nvars; v++)
		sum += __atomic_load_n(&bench_cells[v].writes, __ATOMIC_RELAXED);
	return sum;
}

/* Three seconds without an op are a hang: report it and end the process. */
static void *mpush_watchdog(void *arg)
{
	struct mpush *mp = arg;
	uint64_t last = 0, now;
	int still = 0;

	while (!__atomic_load_n(&mp->over, __ATOMIC_ACQUIRE)) {
		bench_sleep_ns(50000000);
		now = mpush_progress(mp->w);
		still = now == last ? still + 1 : 0;
		last = now;
		if (still < 60)
			continue;
		printf("{\"engine\":\"%s\",\"test\":\"mpush\",\"pushers\":%u,\"hangs\":true,"
		       "\"done\":%llu,\"ops\":%u}\n", mp->m->e->name, mp->m->pushers,
		       (unsigned long long)now / 2, mp->w->n);
		fflush(stdout);
		_exit(0);
	}
	return NULL;
}

static double mpush_once(struct mpush *mp)
{
	unsigned int p, pushers = mp->m->pushers;
	struct mpush_thread t[256];
	pthread_t id[256], dog;
	const char *bad;
	uint64_t t1;

	work_reset(mp->w);
	mp->over = false;
	if (pthread_create(&dog, NULL, mpush_watchdog, mp))
		bench_die("no thread");
	if (pushers == 1) {
		enter(mp->m->e, mpush_one, mp);
	} else {
		pthread_barrier_init(&mp->start, NULL, pushers + 1);
		for (p = 0; p < pushers; p++) {
			t[p] = (struct mpush_thread){ mp, p, 0 };
			if (pthread_create(&id[p], NULL, mpush_thread, &t[p]))
				bench_die("no thread");
		}
		pthread_barrier_wait(&mp->start);
		mp->t0 = UINT64_MAX;
		for (p = 0; p < pushers; p++) {
			pthread_join(id[p], NULL);
			if (t[p].t0 < mp->t0)
				mp->t0 = t[p].t0;
		}
		mp->m->e->wait();
		pthread_barrier_destroy(&mp->start);
	}
	t1 = bench_now();
	__atomic_store_n(&mp->over, true, __ATOMIC_RELEASE);
	pthread_join(dog, NULL);
	reset(mp->m->e);
	bad = work_check_mpush(mp->w, pushers);
	if (bad)
		bench_die("%s: mpush: WRONG RESULT: %s", mp->m->e->name, bad);
	return (double)(t1 - mp->t0) * bench_tick_ns / mp->w->n;
}

void measure_mpush(const struct measure *m)
{
	struct mpush mp = { .m = m };
	unsigned int i;
	double ns;

	if (m->pushers > 1 && !(m->e->flags & BENCH_MANY_PUSHERS)) {
		printf("{\"engine\":\"%s\",\"test\":\"mpush\",\"pushers\":%u,\"unsupported\":true}\n",
		       m->e->name, m->pushers);
		return;
	}
	if (m->pushers < 1 || m->pushers > 255)
		bench_die("1 to 255 pushers");
	mp.w = work_make_mpush(m->ops, m->pushers, m->seed);
	if (m->watch)
		work_watch(mp.w);
	m->e->vars(mp.w->nvars);
	for (i = 0; i < m->warm + m->reps; i++) {
		ns = mpush_once(&mp);
		if (i >= m->warm)
			printf("{\"engine\":\"%s\",\"test\":\"mpush\",\"pushers\":%u,\"ops\":%u,"
			       "\"ns_op\":%.2f,\"checked\":true}\n",
			       m->e->name, m->pushers, mp.w->n, ns);
	}
	work_free(mp.w);
}

/* ---- grain ---- */

#define METG_CORES	2
#define METG_RUN_NS	20e6	/* ideal length of one run */
#define METG_MAX_NS	400e3

/* Return the share of the ideal work at this grain; *ns is the time of one op alone. */
static double metg_efficiency(const struct measure *m, uint32_t turns, double *ns)
{
	struct measure serial = *m, eng = *m;
	double eff[15], t, best = 1e30;
	unsigned int i, reps = m->reps < 15 ? m->reps : 15;
	uint32_t n;
	struct work *w;

	n = (uint32_t)(METG_RUN_NS * METG_CORES / (50 + 1.5 * turns));
	n = n < 2000 ? 2000 : n > 50000 ? 50000 : n;
	w = work_make("stencil", n, m->seed);
	work_set_kind(w, BODY_GRAIN);
	bench_grain = turns;
	serial.e = &bench_serial;
	eng.e = m->e;
	m->e->vars(w->nvars);
	for (i = 0; i < reps; i++) {
		t = run_once(&serial, w, w->n, NULL);
		if (t < best)
			best = t;
	}
	for (i = 0; i < reps; i++)
		eff[i] = best / METG_CORES / run_once(&eng, w, w->n, NULL);
	work_free(w);
	qsort(eff, reps, sizeof(eff[0]), cmp_double);
	*ns = best;
	return eff[reps / 2];
}

void measure_metg(const struct measure *m)
{
	uint32_t lo = 0, hi = 32;
	double ns, eff, hi_ns = 0, hi_eff = 0;

	metg_efficiency(m, 0, &ns);	/* warm */
	for (;;) {
		eff = metg_efficiency(m, hi, &ns);
		if (eff >= 0.5)
			break;
		lo = hi;
		hi *= 2;
		if (ns > METG_MAX_NS) {
			printf("{\"engine\":\"%s\",\"test\":\"metg\",\"ns\":null,\"over\":%.0f}\n",
			       m->e->name, ns);
			return;
		}
	}
	hi_ns = ns;
	hi_eff = eff;
	while (hi - lo > 2 && (double)hi > 1.03 * lo) {
		uint32_t mid = lo + (hi - lo) / 2;

		eff = metg_efficiency(m, mid, &ns);
		if (eff >= 0.5) {
			hi = mid;
			hi_ns = ns;
			hi_eff = eff;
		} else {
			lo = mid;
		}
	}
	printf("{\"engine\":\"%s\",\"test\":\"metg\",\"ns\":%.1f,\"efficiency\":%.3f,\"turns\":%u}\n",
	       m->e->name, hi_ns, hi_eff, hi);
}

/* ---- one cache line between two cores ---- */

#define LINE_TRIPS	2000

struct line {
	uint32_t ball __attribute__((aligned(128)));
	uint32_t last __attribute__((aligned(128)));
	bool pin;
};

static void *line_other(void *arg)
{
	struct line *l = arg;
	uint32_t i;

	bench_pin_self(1);
	for (i = 1; i < l->last; i += 2) {
		while (__atomic_load_n(&l->ball, __ATOMIC_ACQUIRE) != i)
			;
		__atomic_store_n(&l->ball, i + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Always pinned: two threads on one core would measure the scheduler. */
void measure_line(const struct measure *m)
{
	unsigned int batches = 200, b, k;
	double *ns = calloc(batches, sizeof(*ns));
	struct line l = { .ball = 0 };
	pthread_t other;
	uint32_t i = 1;
	uint64_t t0;

	(void)m;
	if (!ns)
		bench_die("out of memory");
	if (bench_cpu(0) == bench_cpu(1)) {
		printf("{\"test\":\"line\",\"unsupported\":true}\n");
		free(ns);
		return;
	}
	bench_opts.pin = true;
	bench_pin_self(0);
	l.last = batches * LINE_TRIPS * 2;
	if (pthread_create(&other, NULL, line_other, &l))
		bench_die("no thread");
	for (b = 0; b < batches; b++) {
		t0 = bench_now();
		for (k = 0; k < LINE_TRIPS; k++, i += 2) {
			__atomic_store_n(&l.ball, i, __ATOMIC_RELEASE);
			while (__atomic_load_n(&l.ball, __ATOMIC_ACQUIRE) != i + 1)
				;
		}
		ns[b] = (double)(bench_now() - t0) * bench_tick_ns / LINE_TRIPS / 2;
	}
	pthread_join(other, NULL);
	qsort(ns, batches, sizeof(*ns), cmp_double);
	t0 = bench_now();
	for (k = 0; k < 1000; k++)
		bench_now();
	printf("{\"test\":\"line\",\"ns\":%.1f,\"p10\":%.1f,\"p90\":%.1f,\"clock_ns\":%.1f}\n",
	       ns[batches / 2], ns[batches / 10], ns[batches * 9 / 10],
	       (double)(bench_now() - t0) * bench_tick_ns / 1001);
	free(ns);
}
