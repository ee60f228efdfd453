// SPDX-License-Identifier: Apache-2.0
/*
 * loops.c - threads that each run their own ops: does one more thread slow down the others?
 *
 * Each thread has its own vars, STRIDE apart, so that an engine does not put vars of two
 * threads on one cache line.  Every result is compared with a serial run.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

#define STRIDE		16u
#define MAX_LOOPS	256u
#define MANY_VARS	64u		/* of a thread that pushes more than it runs */
#define BACKLOG		4096u		/* ops of a thread that pushes alone, then all run */
#define SPREAD_NS	5e6
#define COMPLETIONS	256u		/* asynchronous ops in a turn */

enum loop_kind { LOOP_STEP, LOOP_PUSH, LOOP_PUSH_WAIT };

struct loop {
	pthread_t id;
	const struct bench_host *host;
	void *h;
	struct bench_op op[MANY_VARS];
	unsigned int me, nops;
	uint32_t n;
	enum loop_kind kind;
	uint64_t t0, t1, spent;
	uint64_t runs[MANY_VARS];	/* of each op */
} __attribute__((aligned(128)));

static struct loop *loops;

/*
 * All threads continue within the time of a cache miss, since some tests measure fractions of a
 * ms.
 */
static struct gate {
	unsigned int threads, here, turn;
} gate;

static void gate_wait(void)
{
	unsigned int turn = __atomic_load_n(&gate.turn, __ATOMIC_ACQUIRE), spins = 0;

	if (__atomic_add_fetch(&gate.here, 1, __ATOMIC_ACQ_REL) == gate.threads) {
		gate.here = 0;
		__atomic_store_n(&gate.turn, turn + 1, __ATOMIC_RELEASE);
		return;
	}
	while (__atomic_load_n(&gate.turn, __ATOMIC_ACQUIRE) == turn) {
		bench_pause();
		/* more threads than cores */
		if (++spins % 1024 == 0)
			sched_yield();
	}
}

/* Returns the number of ops. */
static uint32_t loop_round(struct loop *l, uint32_t n)
{
	const struct bench_host *host = l->host;
	uint32_t i, k = 0;
	uint64_t t0;

	gate_wait();
	t0 = bench_now();
	for (i = 0; i < n; i++) {
		if (l->kind == LOOP_STEP)
			host->step(l->h, &l->op[k]);
		else
			host->push(l->h, &l->op[k]);
		k = k + 1 < l->nops ? k + 1 : 0;
	}
	if (l->kind == LOOP_PUSH_WAIT)
		host->wait(l->h);
	l->t1 = bench_now();
	l->t0 = l->t0 ? l->t0 : t0;
	l->spent += l->t1 - t0;
	for (i = 0; i < n && i < l->nops; i++)
		l->runs[i] += (n - i - 1) / l->nops + 1;
	return n;
}

static void loop_body(void *arg)
{
	struct loop *l = arg;
	uint32_t i = 0;

	l->t0 = l->spent = 0;
	while (i < l->n) {
		if (l->kind == LOOP_PUSH) {
			i += loop_round(l, BACKLOG);
			gate_wait();
			l->host->wait(l->h);
		} else {
			i += loop_round(l, l->n);
		}
	}
}

static void *loop_thread(void *arg)
{
	struct loop *l = arg;
	uint64_t t0 = bench_now();

	bench_pin_self((int)l->me);
	/* Those that are not pinned begin when the scheduler has had time to spread them. */
	while (l->kind == LOOP_PUSH_WAIT &&
	       (double)(bench_now() - t0) * bench_tick_ns < SPREAD_NS)
		bench_pause();
	if (l->host->enter)
		l->host->enter(l->h, loop_body, l);
	else
		loop_body(l);
	return NULL;
}

/* The vars of loop t are [t, t + 1) * MANY_VARS * STRIDE; the shared one is before all. */
static uint32_t own_var(unsigned int t, unsigned int i)
{
	return STRIDE * (1 + t * MANY_VARS + i);
}

static uint32_t all_vars(unsigned int threads)
{
	return own_var(threads, 0);
}

static void loops_set(const struct measure *m, unsigned int threads, unsigned int nops,
		      uint32_t n, enum loop_kind kind)
{
	bool two = !strncmp(m->test, "own2", 4), shared = !strncmp(m->test, "shared", 6);
	unsigned int t, i;

	memset(loops, 0, MAX_LOOPS * sizeof(*loops));
	for (t = 0; t < threads; t++) {
		struct loop *l = &loops[t];

		l->host = m->e->host;
		l->me = t;
		l->nops = nops;
		l->n = n;
		l->kind = kind;
		for (i = 0; i < nops; i++) {
			struct bench_op *op = &l->op[i];

			op->c = t * MANY_VARS + i + 1;
			op->kind = bench_grain ? BODY_GRAIN : BODY_HASH;
			op->nw = 1;
			if (two || shared)
				op->v[op->nr++] = two ? own_var(t, 1) : 0;
			op->v[op->nr] = own_var(t, i);
		}
	}
}

/* Runs the threads once; returns when all that they pushed has completed. */
static void loops_run(unsigned int threads)
{
	unsigned int t;

	gate.threads = threads;
	for (t = 0; t < threads; t++)
		if (pthread_create(&loops[t].id, NULL, loop_thread, &loops[t]))
			bench_die("no thread");
	for (t = 0; t < threads; t++)
		pthread_join(loops[t].id, NULL);
	for (t = 0; t < threads; t++)
		loops[t].host->wait(loops[t].h);
}

/*
 * ns of a thread per op; *rate: million ops per second of all threads together, from the
 * first that began to the last that ended, or while all push alone.
 */
static double loops_time(unsigned int threads, double *rate)
{
	uint64_t first = UINT64_MAX, last = 0, sum = 0, n = 0;
	unsigned int t;

	for (t = 0; t < threads; t++) {
		first = loops[t].t0 < first ? loops[t].t0 : first;
		last = loops[t].t1 > last ? loops[t].t1 : last;
		sum += loops[t].spent;
		n += loops[t].n;
	}
	if (loops[0].kind == LOOP_PUSH)
		*rate = 1e3 * (double)n * threads / ((double)sum * bench_tick_ns);
	else
		*rate = 1e3 * (double)n / ((double)(last - first) * bench_tick_ns);
	return (double)sum * bench_tick_ns / (double)n;
}

static void loops_cells(uint32_t n)
{
	uint32_t i;

	free(bench_cells);
	bench_cells = aligned_alloc(64, n * sizeof(*bench_cells));
	if (!bench_cells)
		bench_die("out of memory");
	for (i = 0; i < n; i++)
		bench_cells[i].v = i;
}

/* Check that the vars of the threads equal those of a serial run of as many ops. */
static void loops_check(const struct measure *m, unsigned int threads)
{
	unsigned int t, i;
	uint64_t k, got;

	for (t = 0; t < threads; t++)
		for (i = 0; i < loops[t].nops; i++) {
			struct bench_op *op = &loops[t].op[i];
			uint32_t v = op->v[op->nr];

			got = bench_cells[v].v;
			bench_cells[v].v = v;
			for (k = 0; k < loops[t].runs[i]; k++)
				bench_hash(op);
			if (bench_cells[v].v != got)
				bench_die("%s: %s: WRONG RESULT: var %u is not what a serial "
					  "run gives", m->e->name, m->test, v);
		}
}

static int cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, unsigned int n)
{
	qsort(v, n, sizeof(*v), cmp_double);
	return v[n / 2];
}

/* ---- own, own2, shared, push, pushers; "-each": an engine for each thread ---- */

static void several(const struct measure *m, int workers, unsigned int nops,
		    enum loop_kind kind)
{
	const struct bench_host *host = m->e->host;
	size_t len = strlen(m->test);
	bool each = len > 5 && !strcmp(m->test + len - 5, "-each");
	unsigned int threads = m->threads ? m->threads : 1, t, i, hosts = each ? threads : 1;
	uint32_t n = m->ops;
	void *h[MAX_LOOPS];
	double ns, rate;

	/*
	 * Else two new threads share a core for the first few ms, and do not meet.  With
	 * workers there are more threads than these to be placed: that is the scheduler's.
	 */
	bench_opts.pin |= kind != LOOP_PUSH_WAIT;
	if (kind == LOOP_PUSH)
		n = (n + BACKLOG - 1) / BACKLOG * BACKLOG;
	for (t = 0; t < hosts; t++)
		h[t] = host->create(each ? 1 : threads, each && workers ? 1 : workers,
				    all_vars(threads));
	loops_cells(all_vars(threads));
	loops_set(m, threads, nops, n, kind);
	for (t = 0; t < threads; t++)
		loops[t].h = h[each ? t : 0];
	for (i = 0; i < m->warm + m->reps; i++) {
		loops_run(threads);
		ns = loops_time(threads, &rate);
		if (i >= m->warm)
			printf("{\"engine\":\"%s\",\"test\":\"%s\",\"threads\":%u,"
			       "\"workers\":%d,\"ops\":%u,\"ns_op\":%.2f,\"mops\":%.3f}\n",
			       m->e->name, m->test, threads, workers, n, ns, rate);
	}
	if (kind == LOOP_STEP || !host->unordered)
		loops_check(m, threads);
	for (t = 0; t < hosts; t++)
		host->destroy(h[t]);
}

/* ---- gone, idle: one thread's loop after others, or beside them ---- */

struct others {
	const struct bench_host *host;
	void *h;
	pthread_barrier_t pushed, end;
	struct bench_op *op;		/* one for each, each with its own var */
	unsigned int next;
};

static void others_push(void *arg)
{
	struct others *o = arg;

	o->host->push(o->h, &o->op[__atomic_fetch_add(&o->next, 1, __ATOMIC_RELAXED)]);
}

static void *others_thread(void *arg)
{
	struct others *o = arg;

	if (o->host->enter)
		o->host->enter(o->h, others_push, o);
	else
		others_push(o);
	pthread_barrier_wait(&o->pushed);
	pthread_barrier_wait(&o->end);
	return NULL;
}

/* All threads at once, so that each has its own slot in the engine; each pushes once. */
static void others_start(struct others *o, pthread_t *id, unsigned int n)
{
	unsigned int i;

	o->op = calloc(n, sizeof(*o->op));
	if (!o->op)
		bench_die("out of memory");
	for (i = 0; i < n; i++) {
		o->op[i].nw = 1;
		o->op[i].v[0] = all_vars(1) + i;
	}
	pthread_barrier_init(&o->pushed, NULL, n + 1);
	pthread_barrier_init(&o->end, NULL, n + 1);
	for (i = 0; i < n; i++)
		if (pthread_create(&id[i], NULL, others_thread, o))
			bench_die("no thread");
	pthread_barrier_wait(&o->pushed);
	o->host->wait(o->h);
}

static void others_end(struct others *o, pthread_t *id, unsigned int n)
{
	pthread_barrier_wait(&o->end);
	while (n)
		pthread_join(id[--n], NULL);
	pthread_barrier_destroy(&o->pushed);
	pthread_barrier_destroy(&o->end);
	free(o->op);
}

/* Asynchronous ops that the calling thread completes while another waits for all. */
struct waiter {
	const struct bench_host *host;
	void *h;
	pthread_t id;
};

static void *waiter_thread(void *arg)
{
	struct waiter *w = arg;

	w->host->wait(w->h);
	return NULL;
}

static double complete_turn(struct waiter *w)
{
	uint64_t t0;

	bench_sleep_ns(1000000);	/* the waiter ran some of them: let it fall asleep */
	t0 = bench_now();
	w->host->complete(w->h, COMPLETIONS);
	t0 = bench_now() - t0;
	w->host->start(w->h, COMPLETIONS);
	return (double)t0 * bench_tick_ns / COMPLETIONS;
}

static double loop_turn(void *h, double *rate)
{
	loops[0].h = h;
	loop_thread(&loops[0]);
	return loops_time(1, rate);
}

/* Two engines in turns: one that no other thread has used, and one that others used or use. */
static void beside(const struct measure *m, unsigned int n, bool live, bool complete)
{
	const struct bench_host *host = m->e->host;
	struct others o = { .host = host };
	struct waiter w[2];
	unsigned int i, k, turns = m->warm + m->reps;
	double *ns[2], rate;
	pthread_t *id = calloc(n + 1, sizeof(*id));
	void *h[2];

	gate.threads = 1;
	loops_cells(all_vars(1) + n);
	loops_set(m, 1, 1, m->ops, LOOP_STEP);
	for (k = 0; k < 2; k++) {
		h[k] = host->create(1, 0, all_vars(1) + n);
		ns[k] = calloc(turns, sizeof(double));
		if (!ns[k] || !id)
			bench_die("out of memory");
	}
	o.h = h[1];
	others_start(&o, id, n);
	if (!live)
		others_end(&o, id, n);
	for (k = 0; complete && k < 2; k++) {
		w[k] = (struct waiter){ .host = host, .h = h[k] };
		host->start(h[k], COMPLETIONS + 1);
		if (pthread_create(&w[k].id, NULL, waiter_thread, &w[k]))
			bench_die("no thread");
	}
	for (i = 0; i < turns; i++)
		for (k = 0; k < 2; k++)
			ns[k][i] = complete ? complete_turn(&w[k]) : loop_turn(h[k], &rate);
	for (k = 0; complete && k < 2; k++) {
		host->complete(h[k], COMPLETIONS + 1);
		pthread_join(w[k].id, NULL);
	}
	if (live)
		others_end(&o, id, n);
	if (!complete)
		loops_check(m, 1);
	for (k = 0; k < 2; k++) {
		host->destroy(h[k]);
		rate = median(ns[k] + m->warm, m->reps);
		ns[k][0] = rate;
	}
	printf("{\"engine\":\"%s\",\"test\":\"%s\",\"others\":%u,\"ns_op\":%.2f,"
	       "\"without\":%.2f,\"ratio\":%.3f}\n", m->e->name, m->test, n, ns[1][0],
	       ns[0][0], ns[1][0] / ns[0][0]);
	for (k = 0; k < 2; k++)
		free(ns[k]);
	free(id);
}

bool measure_loops(const struct measure *m)
{
	bool complete = !strcmp(m->test, "complete-gone");

	if (complete || !strcmp(m->test, "gone") || !strcmp(m->test, "idle") ||
	    !strncmp(m->test, "own", 3) || !strncmp(m->test, "shared", 6) ||
	    !strncmp(m->test, "push", 4)) {
		if (!m->e->host || (complete && !m->e->host->complete) ||
		    (m->e->host->unordered && !strncmp(m->test, "push", 4) &&
		     strncmp(m->test, "pushers", 7))) {
			printf("{\"engine\":\"%s\",\"test\":\"%s\",\"unsupported\":true}\n",
			       m->e->name, m->test);
			return true;
		}
	} else {
		return false;
	}
	if (m->threads > MAX_LOOPS)
		bench_die("1 to %u threads", MAX_LOOPS);
	loops = aligned_alloc(128, MAX_LOOPS * sizeof(*loops));
	if (!loops)
		bench_die("out of memory");
	if (complete || !strcmp(m->test, "gone"))
		beside(m, m->others, false, complete);
	else if (!strcmp(m->test, "idle"))
		beside(m, m->others, true, false);
	else if (!strncmp(m->test, "pushers", 7))
		several(m, (int)m->workers, MANY_VARS, LOOP_PUSH_WAIT);
	else if (!strncmp(m->test, "push", 4))
		several(m, 0, MANY_VARS, LOOP_PUSH);
	else
		several(m, 0, 1, LOOP_STEP);
	free(loops);
	free(bench_cells);
	bench_cells = NULL;
	return true;
}
