// SPDX-License-Identifier: Apache-2.0
/*
 * One run of pawl load: threads, each with an epoll, connections and a schedule.
 *
 * Open loop: the schedule has the intended start of each request, which does not depend on the
 * earlier ones, and its latency counts from that time.  If the client is late, or no connection
 * is free, the request starts late, and its latency contains the delay.  Requests that are due
 * but not sent are not stored: the schedule has not advanced beyond them.
 *
 * Closed loop: each connection has a request in flight; the end of one is the start of the
 * next.
 *
 * A request in flight costs two system calls, send and recv, and its share of an epoll_pwait2.
 * Threads share constants only; their results are added up after the run.
 */

#include <errno.h>
#include <http_parser.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

#define EVENTS		64
#define RECV_SIZE	(256u << 10)
#define BACKOFF_NS	10000000u	/* closed loop: pause after a failure */
#define BODY_SHOWN	300u

static const char no_answer[] = "no answer within the time of --wait";

struct thread;

struct conn {
	struct conn *prev, *next;	/* of the list of its state */
	struct thread *t;
	http_parser parser;
	int fd;				/* -1: not open */
	uint32_t events;		/* for which epoll waits */
	bool complete, keep;		/* the answer has ended; the connection may be reused */
	bool measured;
	const struct request *request;
	size_t sent;
	unsigned int model;
	uint64_t start;			/* intended */
};

struct list {
	struct conn *head, *tail;
};

struct thread {
	const struct options *o;
	const struct step *step;
	unsigned int index;
	pthread_t id;
	int epfd;
	uint64_t begin, t0, t1;		/* warm-up, measured time, its end (or NEVER) */
	uint64_t quota;			/* of requests, or NEVER */
	uint64_t now;
	/* the schedule */
	bool ended;			/* there is no further request */
	uint64_t next;			/* open loop: intended start of the next request */
	uint64_t short_at;		/* the last time at which no connection was free */
	uint64_t count;			/* requests of the schedule, for a constant rate */
	double at, gap;			/* Poisson: the exact time; mean gap */
	uint64_t seed;
	double credit[MAX_MODELS];
	size_t cursor[MAX_MODELS];
	/* connections: idle ones take turns; those with a request are in order of start */
	struct list idle, busy, closed, paused;
	struct conn *conns;
	unsigned int nconns;
	struct conn *shown;		/* whose body becomes the text of the first failure */
	size_t nbody;
	char body[BODY_SHOWN];
	uint64_t last;			/* arrival of the last measured answer */
	uint64_t cpu0, wall0, starved0, nsent, nsent0;
	bool sampled;
	struct result *r;
	char *buf;
};

uint64_t load_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* --- lists ---------------------------------------------------------------------- */

static void list_add(struct list *l, struct conn *c)
{
	c->next = NULL;
	c->prev = l->tail;
	if (l->tail)
		l->tail->next = c;
	else
		l->head = c;
	l->tail = c;
}

static void list_del(struct list *l, struct conn *c)
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

static void failure(struct thread *t, const char *what, const char *detail, size_t n)
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

/* The request of the connection has ended; close the connection unless it can be reused. */
static void release(struct thread *t, struct conn *c, bool keep, bool pause)
{
	list_del(&t->busy, c);
	c->request = NULL;
	if (t->shown == c)
		t->shown = NULL;
	if (keep) {
		list_add(&t->idle, c);
		return;
	}
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	/* a closed loop must not retry without a pause while the server refuses connections */
	if (pause && !t->step->rate) {
		c->start = t->now + BACKOFF_NS;
		list_add(&t->paused, c);
	} else {
		list_add(&t->closed, c);
	}
}

static void answered(struct thread *t, struct conn *c, bool clean)
{
	unsigned int status = c->parser.status_code;
	struct tally *y = &t->r->tally[c->model];
	uint64_t ns, limit = t->o->limit_ns;
	bool good;
	char what[64];

	t->now = load_now();
	ns = t->now - c->start;
	good = status == 200 && (!limit || ns <= limit);
	if (status == 200 && t->now >= t->t0 && t->now < t->t1) {
		y->arrived++;
		y->arrived_good += good;
	}
	if (status != 200 && status != 503) {
		snprintf(what, sizeof(what), "status %u: ", status);
		failure(t, what, t->shown == c ? t->body : "", t->shown == c ? t->nbody : 0);
	}
	if (c->measured) {
		t->last = t->now;
		t->r->status[status < MAX_STATUS ? status : 0]++;
		if (good)
			y->good++;
		else if (status == 200)
			y->late++;
		else if (status == 503)
			y->refused++;
		else
			y->failed++;
		if (status == 200)
			hist_add(&y->answers, ns);
		else if (status == 503)
			hist_add(&y->refusals, ns);
	}
	release(t, c, clean && c->keep && c->sent == c->request->n, false);
}

/* There will be no answer. */
static void lost(struct thread *t, struct conn *c, const char *why)
{
	failure(t, "", why, strlen(why));
	if (c->measured)
		t->r->tally[c->model].lost++;
	t->now = load_now();
	release(t, c, false, true);
}

/* --- the answer --------------------------------------------------------------------- */

static int on_body(http_parser *p, const char *at, size_t n)
{
	struct conn *c = p->data;
	struct thread *t = c->t;

	if (p->status_code == 200 || p->status_code == 503 || t->r->failure[0])
		return 0;
	if (!t->shown) {
		t->shown = c;
		t->nbody = 0;
	}
	if (t->shown == c) {
		if (n > BODY_SHOWN - t->nbody)
			n = BODY_SHOWN - t->nbody;
		memcpy(t->body + t->nbody, at, n);
		t->nbody += n;
	}
	return 0;
}

static int on_complete(http_parser *p)
{
	struct conn *c = p->data;

	if (p->status_code / 100 == 1)	/* the answer follows */
		return 0;
	c->complete = true;
	c->keep = http_should_keep_alive(p);
	http_parser_pause(p, 1);
	return 0;
}

static const http_parser_settings settings = {
	.on_body = on_body,
	.on_message_complete = on_complete,
};

static void receive(struct thread *t, struct conn *c)
{
	size_t used;
	ssize_t n;

	do {
		do
			n = recv(c->fd, t->buf, RECV_SIZE, 0);
		while (n < 0 && errno == EINTR);
		if (n < 0) {
			if (errno != EAGAIN)
				lost(t, c, strerror(errno));
			return;
		}
		used = http_parser_execute(&c->parser, &settings, t->buf, (size_t)n);
		if (c->complete) {
			/* bytes after an answer belong to no request */
			answered(t, c, n && used == (size_t)n);
			return;
		}
		if (HTTP_PARSER_ERRNO(&c->parser) != HPE_OK) {
			lost(t, c, n ? http_errno_description(HTTP_PARSER_ERRNO(&c->parser)) :
			     "the server closed the connection inside an answer");
			return;
		}
		if (!n) {
			lost(t, c, "the server closed the connection before the answer");
			return;
		}
	} while (n == RECV_SIZE);
}

/* --- the request --------------------------------------------------------------------- */

static bool want(struct thread *t, struct conn *c, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = c };

	if (c->events == events)
		return true;
	if (epoll_ctl(t->epfd, c->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &e))
		return false;
	c->events = events;
	return true;
}

static void transmit(struct thread *t, struct conn *c)
{
	const struct request *q = c->request;
	ssize_t n;

	while (c->sent < q->n) {
		n = send(c->fd, q->p + c->sent, q->n - c->sent, MSG_NOSIGNAL);
		if (n >= 0) {
			c->sent += (size_t)n;
		} else if (errno == EAGAIN) {
			if (!want(t, c, EPOLLIN | EPOLLOUT))
				lost(t, c, strerror(errno));
			return;
		} else if (errno == EPIPE || errno == ECONNRESET) {
			/* the server may have answered before all of the request arrived */
			n = recv(c->fd, t->buf, 1, MSG_PEEK);
			if (n > 0)
				receive(t, c);
			else
				lost(t, c, n ? strerror(errno) :
				     "the server closed the connection before the answer");
			return;
		} else if (errno != EINTR) {
			lost(t, c, strerror(errno));
			return;
		}
	}
	if (!want(t, c, EPOLLIN))
		lost(t, c, strerror(errno));
}

static bool connect_to(struct thread *t, struct conn *c)
{
	const struct options *o = t->o;
	int one = 1;

	c->events = 0;
	c->fd = socket(o->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		return false;
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	t->r->opened++;
	if (t->now >= t->t0)
		t->r->opened_late++;
	return !connect(c->fd, (const struct sockaddr *)&o->addr, o->addr_len) ||
	       errno == EINPROGRESS;
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

static void dispatch(struct thread *t, struct conn *c, uint64_t start, bool measured)
{
	const struct model *m;

	c->start = start;
	c->measured = measured;
	c->model = choose(t);
	m = &t->o->models[c->model];
	c->request = &m->requests[t->cursor[c->model]++ % m->nrequests];
	c->sent = 0;
	c->complete = false;
	http_parser_init(&c->parser, HTTP_RESPONSE);
	c->parser.data = c;
	list_add(&t->busy, c);
	if (measured)
		t->r->tally[c->model].due++;
	t->nsent++;
	if (c->fd < 0 && !connect_to(t, c))
		lost(t, c, strerror(errno));
	else
		transmit(t, c);
}

/* Return a connection without a request, which may have to be opened. */
static struct conn *take(struct thread *t)
{
	struct list *l = t->idle.head ? &t->idle : &t->closed;
	struct conn *c = l->head;

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
	struct conn *c;
	bool measured, blocked;

	while (!t->ended) {
		t->now = load_now();
		if (!t->quota || (t->step->rate ? t->next : t->now) >= t->t1) {
			t->ended = true;
			return;
		}
		if (t->next > t->now)
			return;
		/* no request that was due until now had a connection */
		blocked = t->step->rate && t->next <= t->short_at;
		if (blocked)
			t->short_at = t->now;
		if (t->step->rate && t->now - t->next > t->o->wait_ns) {
			model = choose(t);
			if (measured_now(t, t->next)) {
				t->r->waited += blocked;
				t->r->tally[model].due++;
				t->r->tally[model].timed_out++;
				failure(t, no_answer, "", 0);
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
	struct conn *c;

	while ((c = t->busy.head) && c->start + t->o->wait_ns <= t->now) {
		failure(t, no_answer, "", 0);
		if (c->measured)
			t->r->tally[c->model].timed_out++;
		release(t, c, false, false);
	}
	while ((c = t->paused.head) && c->start <= t->now) {
		list_del(&t->paused, c);
		list_add(&t->closed, c);
	}
}

/* The time of the thread's next action if no answer arrives before. */
static uint64_t wake(const struct thread *t)
{
	uint64_t at = NEVER;

	if (!t->ended && t->next > t->now)
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

static void event(struct thread *t, struct conn *c, uint32_t events)
{
	/* an earlier event closed the connection */
	if (c->fd < 0)
		return;
	if (!c->request) {
		/* idle: the server closed it, or sends bytes without a request */
		list_del(&t->idle, c);
		close(c->fd);
		c->fd = -1;
		list_add(&t->closed, c);
		return;
	}
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		receive(t, c);
	else
		transmit(t, c);
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
		if (t->ended && !t->busy.head)
			return;
		at = wake(t);
		ns = at > t->now ? at - t->now : 0;
		ts.tv_sec = (time_t)(ns / 1000000000u);
		ts.tv_nsec = (long)(ns % 1000000000u);
		n = epoll_pwait2(t->epfd, ev, EVENTS, at == NEVER ? NULL : &ts, NULL);
		for (i = 0; i < n; i++) {
			event(t, ev[i].data.ptr, ev[i].events);
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

/* A thread's part of a whole number. */
static uint64_t part(uint64_t whole, unsigned int i, unsigned int n)
{
	return whole / n + (i < whole % n);
}

static int thread_init(struct thread *t, const struct options *o, const struct step *s,
		       unsigned int index, uint64_t begin)
{
	const struct timespec none = { 0 };
	struct epoll_event e;
	unsigned int i;

	t->o = o;
	t->step = s;
	t->index = index;
	t->begin = begin;
	t->t0 = begin + o->warmup_ns;
	t->t1 = o->requests ? NEVER : t->t0 + o->duration_ns;
	t->quota = o->requests ? part(o->requests, index, o->threads) : NEVER;
	t->ended = !t->quota;
	t->seed = o->seed + index * 0x9e3779b97f4a7c15u;
	t->nconns = (unsigned int)part(s->rate ? o->connections : s->concurrency, index,
				       o->threads);
	t->conns = calloc(t->nconns, sizeof(*t->conns));
	t->r = calloc(1, sizeof(*t->r));
	t->buf = malloc(RECV_SIZE);
	t->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (!t->conns || !t->r || !t->buf)
		return ENOMEM;
	/* Linux 5.11; a sandbox may not have it */
	if (t->epfd < 0 || epoll_pwait2(t->epfd, &e, 1, &none, NULL))
		return errno;
	for (i = 0; i < t->nconns; i++) {
		t->conns[i].fd = -1;
		t->conns[i].t = t;
		list_add(&t->closed, &t->conns[i]);
	}
	t->next = begin;
	if (s->rate) {
		t->gap = 1e9 / s->rate * o->threads;
		t->at = o->poisson ? 0 : (double)index / o->threads * t->gap;
		t->next = begin + (uint64_t)t->at;
		if (o->poisson)
			advance(t);
	}
	return 0;
}

static void thread_fini(struct thread *t)
{
	unsigned int i;

	for (i = 0; t->conns && i < t->nconns; i++)
		if (t->conns[i].fd >= 0)
			close(t->conns[i].fd);
	if (t->epfd >= 0)
		close(t->epfd);
	free(t->conns);
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
	if (t->o->requests && t->last > t->t0 && t->last - t->t0 > r->window_ns)
		r->window_ns = t->last - t->t0;
}

int load_client_run(const struct options *o, const struct step *s, struct result *r)
{
	struct thread *threads = calloc(o->threads, sizeof(*threads));
	unsigned int i, started = 0;
	uint64_t begin;
	int rc = threads ? 0 : ENOMEM;

	r->window_ns = o->requests ? 0 : o->duration_ns;
	/* the threads exist when the schedule begins */
	begin = load_now() + 5000000;
	for (i = 0; threads && i < o->threads; i++)
		threads[i].epfd = -1;
	for (i = 0; !rc && i < o->threads; i++)
		rc = thread_init(&threads[i], o, s, i, begin);
	for (i = 0; !rc && i < o->threads; i++) {
		rc = pthread_create(&threads[i].id, NULL, thread_main, &threads[i]);
		started += !rc;
	}
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
