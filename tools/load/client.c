// SPDX-License-Identifier: Apache-2.0
/*
 * One run of pawl load: threads, each with an epoll, a schedule, and calls, which have one
 * request at a time.  h1.c and grpc.c send the requests.
 *
 * Open loop: the schedule has the intended start of each request, which does not depend on the
 * earlier ones, and its latency counts from that time.  If the client is late, or no call is
 * free, the request starts late, and its latency contains the delay.  Requests that are due
 * but not sent are not stored: the schedule has not advanced beyond them.
 *
 * Closed loop: each call has a request in flight; the end of one is the start of the next.
 *
 * Threads share constants only; their results are added up after the run.
 */

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

#define EVENTS		64
#define BACKOFF_NS	10000000u	/* closed loop: pause after a failure */

static const char no_answer[] = "no answer within the time of --wait";

uint64_t load_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* --- lists ---------------------------------------------------------------------- */

static void list_add(struct list *l, struct call *c)
{
	c->next = NULL;
	c->prev = l->tail;
	if (l->tail)
		l->tail->next = c;
	else
		l->head = c;
	l->tail = c;
}

static void list_del(struct list *l, struct call *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		l->head = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		l->tail = c->prev;
}

/* --- what a request became --------------------------------------------------------- */

void load_failure(struct thread *t, const char *what, const char *detail, size_t n)
{
	struct result *r = t->r;
	size_t i, k = strlen(what);

	if (r->failure[0])
		return;
	snprintf(r->failure, sizeof(r->failure), "%s%.*s", what, (int)n, detail);
	for (i = k; r->failure[i]; i++)
		if (r->failure[i] < 0x20 || r->failure[i] > 0x7e)
			r->failure[i] = r->failure[i] == '\n' ? ' ' : '?';
}

/* The request of the call has ended; drop the call unless it can be used again. */
static void release(struct thread *t, struct call *c, bool keep, bool pause)
{
	list_del(&t->busy, c);
	c->request = NULL;
	if (t->shown == c)
		t->shown = NULL;
	if (keep) {
		list_add(&t->idle, c);
		return;
	}
	t->transport->drop(t, c);
	/* a closed loop must not retry without a pause while the server refuses connections */
	if (pause && !t->step->rate) {
		c->start = t->now + BACKOFF_NS;
		list_add(&t->paused, c);
	} else {
		list_add(&t->closed, c);
	}
}

void load_answered(struct thread *t, struct call *c, enum outcome what, unsigned int code,
		   bool keep)
{
	struct tally *y = &t->r->tally[c->model];
	uint64_t ns, limit = t->o->limit_ns;
	bool good;

	t->now = load_now();
	ns = t->now - c->start;
	good = what == ANSWERED && (!limit || ns <= limit);
	if (what == ANSWERED && t->now >= t->t0 && t->now < t->t1) {
		y->arrived++;
		y->arrived_good += good;
	}
	if (c->measured) {
		t->last = t->now;
		t->r->status[code < MAX_STATUS ? code : 0]++;
		if (good)
			y->good++;
		else if (what == ANSWERED)
			y->late++;
		else if (what == REFUSED)
			y->refused++;
		else
			y->failed++;
		if (what == ANSWERED)
			hist_add(&y->answers, ns);
		else if (what == REFUSED)
			hist_add(&y->refusals, ns);
	}
	release(t, c, keep, false);
}

void load_lost(struct thread *t, struct call *c, const char *why)
{
	load_failure(t, "", why, strlen(why));
	if (c->measured)
		t->r->tally[c->model].lost++;
	t->now = load_now();
	release(t, c, false, true);
}

bool load_again(struct thread *t, struct call *c)
{
	if (c->again)
		return false;
	c->again = true;
	if (c->measured)
		t->r->retried++;
	return true;
}

/* --- the request --------------------------------------------------------------------- */

void load_closed(struct thread *t, struct call *c)
{
	list_del(&t->idle, c);
	list_add(&t->closed, c);
}

void load_opened(struct thread *t)
{
	t->r->opened++;
	if (t->now >= t->t0)
		t->r->opened_late++;
}

/* The model of the next request: each has its share of any sequence of requests. */
static unsigned int choose(struct thread *t)
{
	const struct options *o = t->o;
	unsigned int i, best = 0;
	double sum = 0;

	if (o->nmodels == 1)
		return 0;
	for (i = 0; i < o->nmodels; i++) {
		sum += o->models[i].share;
		t->credit[i] += o->models[i].share;
		if (t->credit[i] > t->credit[best])
			best = i;
	}
	t->credit[best] -= sum;
	return best;
}

static void dispatch(struct thread *t, struct call *c, uint64_t start, bool measured)
{
	const struct model *m;

	c->start = start;
	c->measured = measured;
	c->again = false;
	c->model = choose(t);
	m = &t->o->models[c->model];
	c->request = &m->requests[t->cursor[c->model]++ % m->nrequests];
	list_add(&t->busy, c);
	if (measured)
		t->r->tally[c->model].due++;
	t->nsent++;
	t->transport->start(t, c);
}

/* Return a call without a request. */
static struct call *take(struct thread *t)
{
	struct list *l = t->idle.head ? &t->idle : &t->closed;
	struct call *c = l->head;

	if (c)
		list_del(l, c);
	return c;
}

/* --- the schedule ---------------------------------------------------------------------- */

static void advance(struct thread *t)
{
	double u;

	t->count++;
	if (t->o->poisson) {
		/* of (0, 1]: the logarithm is finite */
		u = ((double)(load_random_next(&t->seed) >> 11) + 1) * 0x1p-53;
		t->at -= log(u) * t->gap;
	} else {
		/* each thread has every n-th request of the common schedule */
		t->at = ((double)t->index / t->o->threads + (double)t->count) * t->gap;
	}
	t->next = t->begin + (uint64_t)t->at;
}

static bool measured_now(struct thread *t, uint64_t start)
{
	if (start < t->t0)
		return false;
	t->quota--;
	return true;
}

/* Start what is due. */
static void start_due(struct thread *t)
{
	unsigned int model;
	struct call *c;
	bool measured, blocked;

	while (!t->ended) {
		t->now = load_now();
		if (!t->quota || (t->step->rate ? t->next : t->now) >= t->t1) {
			t->ended = true;
			return;
		}
		if (t->next > t->now)
			return;
		/* the request became due while no call was free */
		blocked = t->step->rate && t->next <= t->short_at;
		if (blocked)
			t->short_at = t->now;
		if (t->step->rate && t->now - t->next > t->o->wait_ns) {
			model = choose(t);
			if (measured_now(t, t->next)) {
				t->r->waited += blocked;
				t->r->tally[model].due++;
				t->r->tally[model].timed_out++;
				load_failure(t, no_answer, "", 0);
			}
			advance(t);
			continue;
		}
		c = take(t);
		if (!c) {
			t->short_at = t->now;
			return;
		}
		if (!t->step->rate) {
			dispatch(t, c, t->now, measured_now(t, t->now));
			continue;
		}
		measured = measured_now(t, t->next);
		if (measured && blocked)
			t->r->waited++;
		else if (measured)
			hist_add(&t->r->lag, t->now - t->next);
		dispatch(t, c, t->next, measured);
		advance(t);
	}
}

/* --- a thread ---------------------------------------------------------------------------- */

/* How long the thread was ready to run but had no CPU; 0 if the kernel does not count it. */
static uint64_t starved(void)
{
	unsigned long long run, wait = 0;
	FILE *f = fopen("/proc/thread-self/schedstat", "re");

	if (f && fscanf(f, "%llu %llu", &run, &wait) != 2)
		wait = 0;
	if (f)
		fclose(f);
	return wait;
}

static uint64_t cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The use of the CPU from the beginning of the measured time to the last request. */
static void sample(struct thread *t)
{
	if (!t->sampled && t->now >= t->t0) {
		t->sampled = true;
		t->cpu0 = cpu_time();
		t->starved0 = starved();
		t->wall0 = t->now;
		t->nsent0 = t->nsent;
	} else if (t->sampled && t->ended && !t->r->wall_ns) {
		t->now = load_now();
		t->r->cpu_ns = cpu_time() - t->cpu0;
		t->r->starved_ns = starved() - t->starved0;
		t->r->wall_ns = t->now > t->wall0 ? t->now - t->wall0 : 1;
		t->r->sent = t->nsent - t->nsent0;
	}
}

static void expire(struct thread *t)
{
	struct call *c;

	while ((c = t->busy.head) && c->start + t->o->wait_ns <= t->now) {
		load_failure(t, no_answer, "", 0);
		if (c->measured)
			t->r->tally[c->model].timed_out++;
		release(t, c, false, false);
	}
	while ((c = t->paused.head) && c->start <= t->now) {
		list_del(&t->paused, c);
		list_add(&t->closed, c);
	}
}

/* A signal ends the run: what is due and has no answer stays open. */
static void interrupt(struct thread *t)
{
	unsigned int model;
	struct call *c;

	t->now = t->stopped = load_now();
	while (!t->ended && t->step->rate && t->quota && t->next <= t->now && t->next < t->t1) {
		model = choose(t);
		if (measured_now(t, t->next)) {
			t->r->tally[model].due++;
			t->r->tally[model].open++;
		}
		advance(t);
	}
	t->ended = true;
	while ((c = t->busy.head)) {
		if (c->measured)
			t->r->tally[c->model].open++;
		release(t, c, false, false);
	}
}

/*
 * The time of the thread's next action if no answer arrives before.  A connection that failed
 * while its requests were sent has freed calls, and the next request may have become due
 * meanwhile: that time is in the past.
 */
static uint64_t wake(const struct thread *t)
{
	bool call_free = t->idle.head || t->closed.head;
	uint64_t at = NEVER;

	if (!t->ended && (call_free || t->next > t->now))
		at = t->next;
	else if (!t->ended && t->step->rate)
		at = t->next + t->o->wait_ns + 1;
	if (!t->ended && t->t1 < at)
		at = t->t1;
	if (!t->sampled && t->t0 < at)
		at = t->t0;
	if (t->busy.head && t->busy.head->start + t->o->wait_ns < at)
		at = t->busy.head->start + t->o->wait_ns;
	if (!t->ended && t->paused.head && t->paused.head->start < at)
		at = t->paused.head->start;
	return at;
}

static void loop(struct thread *t)
{
	struct epoll_event ev[EVENTS];
	struct timespec ts;
	uint64_t at, ns;
	int i, n;

	for (;;) {
		t->now = load_now();
		expire(t);
		sample(t);
		start_due(t);
		sample(t);
		if (t->transport->flush)
			t->transport->flush(t);
		if (t->ended && !t->busy.head)
			return;
		at = wake(t);
		ns = at > t->now ? at - t->now : 0;
		ts.tv_sec = (time_t)(ns / 1000000000u);
		ts.tv_nsec = (long)(ns % 1000000000u);
		n = epoll_pwait2(t->epfd, ev, EVENTS, at == NEVER ? NULL : &ts, NULL);
		for (i = 0; i < n; i++) {
			if (ev[i].data.ptr)
				t->transport->event(t, ev[i].data.ptr, ev[i].events);
			else
				interrupt(t);
			start_due(t);
		}
	}
}

static void *thread_main(void *arg)
{
	struct thread *t = arg;

	/* the kernel may be late by 50 us otherwise */
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	loop(t);
	return NULL;
}

/* --- a run ---------------------------------------------------------------------- */

static uint64_t part(uint64_t whole, unsigned int i, unsigned int n)
{
	return whole / n + (i < whole % n);
}

unsigned int load_part(const struct thread *t, unsigned int whole)
{
	return (unsigned int)part(whole, t->index, t->o->threads);
}

static int thread_init(struct thread *t, const struct options *o, const struct step *s,
		       unsigned int index, uint64_t begin)
{
	const struct timespec none = { 0 };
	struct epoll_event e = { .events = EPOLLIN };
	uint64_t seed = o->seed;
	unsigned int i;
	int rc;

	t->o = o;
	t->transport = o->grpc ? &load_grpc : &load_h1;
	t->step = s;
	t->index = index;
	t->begin = begin;
	t->t0 = begin + o->warmup_ns;
	t->t1 = o->requests ? NEVER : t->t0 + o->duration_ns;
	t->quota = o->requests ? part(o->requests, index, o->threads) : NEVER;
	t->ended = !t->quota;
	/* far from each other in the sequence */
	for (i = 0; i <= index; i++)
		t->seed = load_random_next(&seed);
	t->r = calloc(1, sizeof(*t->r));
	t->buf = malloc(RECV_SIZE);
	t->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (!t->r || !t->buf)
		return ENOMEM;
	/* Linux 5.11; a sandbox may not have it */
	if (t->epfd < 0 || epoll_pwait2(t->epfd, &e, 1, &none, NULL) < 0 ||
	    epoll_ctl(t->epfd, EPOLL_CTL_ADD, o->end_fd, &e))
		return errno;
	rc = t->transport->init(t);
	for (i = 0; !rc && i < t->ncalls; i++) {
		t->calls[i].t = t;
		list_add(&t->closed, &t->calls[i]);
	}
	t->next = begin;
	if (s->rate) {
		t->gap = 1e9 / s->rate * o->threads;
		t->at = o->poisson ? 0 : (double)index / o->threads * t->gap;
		t->next = begin + (uint64_t)t->at;
		if (o->poisson)
			advance(t);
	}
	return rc;
}

static void thread_fini(struct thread *t)
{
	if (t->transport)
		t->transport->fini(t);
	if (t->epfd >= 0)
		close(t->epfd);
	free(t->calls);
	free(t->r);
	free(t->buf);
}

static void tally_add(struct tally *a, const struct tally *b)
{
	a->due += b->due;
	a->good += b->good;
	a->late += b->late;
	a->refused += b->refused;
	a->failed += b->failed;
	a->lost += b->lost;
	a->timed_out += b->timed_out;
	a->open += b->open;
	a->arrived += b->arrived;
	a->arrived_good += b->arrived_good;
	hist_merge(&a->answers, &b->answers);
	hist_merge(&a->refusals, &b->refusals);
}

void load_tally_sum(const struct options *o, const struct result *r, struct tally *sum)
{
	unsigned int i;

	memset(sum, 0, sizeof(*sum));
	for (i = 0; i < o->nmodels; i++)
		tally_add(sum, &r->tally[i]);
}

static void add(struct result *r, const struct thread *t)
{
	const struct result *one = t->r;
	unsigned int i;

	for (i = 0; i < t->o->nmodels; i++)
		tally_add(&r->tally[i], &one->tally[i]);
	hist_merge(&r->lag, &one->lag);
	r->waited += one->waited;
	r->retried += one->retried;
	r->opened += one->opened;
	r->opened_late += one->opened_late;
	r->sent += one->sent;
	r->cpu_total_ns += one->cpu_ns;
	/* the busiest thread: compare the shares of the time */
	if ((double)one->cpu_ns * (double)r->wall_ns >=
	    (double)r->cpu_ns * (double)one->wall_ns && one->wall_ns) {
		r->cpu_ns = one->cpu_ns;
		r->wall_ns = one->wall_ns;
	}
	if (one->starved_ns > r->starved_ns)
		r->starved_ns = one->starved_ns;
	for (i = 0; i < MAX_STATUS; i++)
		r->status[i] += one->status[i];
	if (!r->failure[0])
		memcpy(r->failure, one->failure, sizeof(r->failure));
	r->interrupted = r->interrupted || t->stopped;
	if (t->o->requests && t->last > t->t0 && t->last - t->t0 > r->window_ns)
		r->window_ns = t->last - t->t0;
	if (!t->o->requests && t->stopped && t->stopped < t->t1)
		r->window_ns = t->stopped > t->t0 ? t->stopped - t->t0 : 0;
}

int load_client_run(const struct options *o, const struct step *s, struct result *r)
{
	struct thread *threads = calloc(o->threads, sizeof(*threads));
	unsigned int i, started = 0;
	sigset_t all, before;
	uint64_t begin;
	int rc = threads ? 0 : ENOMEM;

	r->window_ns = o->requests ? 0 : o->duration_ns;
	/* the threads exist when the schedule begins */
	begin = load_now() + 5000000;
	for (i = 0; threads && i < o->threads; i++)
		threads[i].epfd = -1;
	for (i = 0; !rc && i < o->threads; i++)
		rc = thread_init(&threads[i], o, s, i, begin);
	/* signals are for the thread that waits for these */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (i = 0; !rc && i < o->threads; i++) {
		rc = pthread_create(&threads[i].id, NULL, thread_main, &threads[i]);
		started += !rc;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	for (i = 0; i < started; i++)
		pthread_join(threads[i].id, NULL);
	for (i = 0; threads && i < o->threads; i++) {
		if (!rc)
			add(r, &threads[i]);
		thread_fini(&threads[i]);
	}
	free(threads);
	if (rc)
		fprintf(stderr, "%s: cannot start: %s\n", LOAD_SELF, rc == ENOSYS ?
			"the system has no epoll_pwait2 (Linux 5.11)" : strerror(rc));
	return rc ? -1 : 0;
}
