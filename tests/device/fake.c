// SPDX-License-Identifier: Apache-2.0
/*
 * The fake device: the contract of device.h, with any legal order of completion.
 *
 * Purpose: tests code that depends on devices on a machine without one, with orders of
 * completion that a real device shows very rarely, and with failures of each call.
 *
 * Structures: a stream is a queue of work with many producers and one consumer.  The consumer
 * is either the device's thread, which picks a stream at random (seeded) and runs its next
 * piece of work once its delay has passed, or the test itself (fake_step()).  An event counts
 * its records and stores the last complete one.
 *
 * Progress: blocking, since it is for tests: it allocates, locks, and its thread polls.
 *
 * Lifetime: streams and events are kept until their device closes, because queued work may
 * refer to them.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <base/random.h>
#include "fake.h"

#define FAKE_STREAMS	1024u

enum work_kind { WORK_CALL, WORK_COPY, WORK_SET, WORK_RECORD, WORK_WAIT, WORK_FREE, WORK_GRAPH };

struct work {
	struct work *next;	/* A */
	enum work_kind kind;
	void (*fn)(void *arg);
	void *arg;		/* argument, memory, event, graph */
	const void *from;
	u64 n;			/* bytes, or number of a record */
	int byte;
};

struct thing {
	struct thing *next;	/* A: list of everything that is freed with the device */
};

struct event {
	struct thing thing;
	struct event *free;	/* under dev.busy */
	u64 recorded;		/* A */
	u64 over;		/* A */
};

struct graph {
	u32 refs;		/* A: one, plus one for each queued launch */
	struct work *first, **last;
};

struct stream {
	struct thing thing;
	struct work *head;	/* A: the newest work */
	struct work *tail;	/* consumer: the newest complete work */
	struct work stub;
	struct graph *capture;	/* owned by the thread that captures */
	u64 put, over;		/* A */
	u64 ready_at;		/* consumer: the device's turn at which it may run */
	u32 dead;		/* A: destroyed; reused when it is empty */
};

struct dev {
	int id;
	u32 nstreams;		/* A */
	struct stream *streams[FAKE_STREAMS];	/* A */
	struct thing *things;	/* A */
	struct event *events;	/* destroyed ones, under busy */
	u32 busy;		/* A */
	u32 lost;		/* A */
	u32 stop;		/* A */
	bool manual;
	u64 seed;
	u32 delay;
	pthread_t thread;
};

static struct fake_setup setup = { .devices = 1, .seed = 1 };
static struct dev *devs[FAKE_DEVICES];	/* A */
static u64 fail_at;		/* A: countdown, 0: none */
static int fail_code;		/* A */
static u32 unloaded;		/* A */
static u32 stepping;		/* A */
static struct fake_counts counts;	/* A */

void fake_setup(const struct fake_setup *s)
{
	setup = *s;
	store_relaxed(&fail_at, 0);
	store_relaxed(&unloaded, 0);
}

void fake_fail(u64 n, int code)
{
	store_relaxed(&fail_code, code);
	store_release(&fail_at, n);
}

void fake_counts(struct fake_counts *out)
{
	out->calls = load_relaxed(&counts.calls);
	out->records = load_relaxed(&counts.records);
	out->waits = load_relaxed(&counts.waits);
	out->host_calls = load_relaxed(&counts.host_calls);
	out->launches = load_relaxed(&counts.launches);
}

void fake_lose(int id)
{
	struct dev *d = load_acquire(&devs[id]);

	if (d)
		store_release(&d->lost, 1);
}

void fake_unload(void)
{
	store_release(&unloaded, 1);
}

/* Every call begins with this check for an injected failure. */
static int call(struct dev *d, const char *what)
{
	u64 n = load_acquire(&fail_at);

	fetch_add_relaxed(&counts.calls, 1);
	while (unlikely(n)) {
		if (!cas_acq_rel_acquire(&fail_at, &n, n - 1))
			continue;
		if (n > 1)
			break;
		if (load_relaxed(&fail_code) == -ENOTRECOVERABLE && d)
			store_release(&d->lost, 1);
		return err(load_relaxed(&fail_code), "fake: %s was told to fail", what);
	}
	if (unlikely(load_acquire(&unloaded)))
		return err(-ESHUTDOWN, "fake: %s: the driver unloads", what);
	if (unlikely(d && load_acquire(&d->lost)))
		return err(-ENOTRECOVERABLE, "fake: %s: an earlier piece of work broke the device",
			   what);
	return 0;
}

/* --- work --- */

static void graph_put(struct graph *g)
{
	struct work *w, *next;

	if (fetch_add_acq_rel(&g->refs, -1u) != 1)
		return;
	for (w = g->first; w; w = next) {
		next = w->next;
		free(w);
	}
	free(g);
}

static int put(struct stream *s, const struct work *from)
{
	struct work *w = malloc(sizeof(*w)), *before;

	if (!w)
		return err(-ENOMEM, "fake: no memory");
	*w = *from;
	w->next = NULL;
	if (s->capture) {
		*s->capture->last = w;
		s->capture->last = &w->next;
		return 0;
	}
	fetch_add_relaxed(&s->put, 1);
	before = xchg_acq_rel(&s->head, w);
	store_release(&before->next, w);
	return 0;
}

static void do_work(const struct work *w)
{
	struct graph *g = w->arg;
	struct event *ev = w->arg;
	const struct work *part;

	switch (w->kind) {
	case WORK_CALL:
		w->fn(w->arg);
		break;
	case WORK_COPY:
		memmove(w->arg, w->from, w->n);
		break;
	case WORK_SET:
		memset(w->arg, w->byte, w->n);
		break;
	case WORK_RECORD:
		/* One consumer; n orders the records of one event on two streams. */
		if (load_relaxed(&ev->over) < w->n)
			store_release(&ev->over, w->n);
		break;
	case WORK_WAIT:
		break;
	case WORK_FREE:
		free(w->arg);
		break;
	case WORK_GRAPH:
		for (part = g->first; part; part = part->next)
			do_work(part);
		graph_put(g);
		break;
	}
}

static struct work *runnable(struct stream *s)
{
	struct work *w = load_acquire(&s->tail->next);

	if (w && w->kind == WORK_WAIT && load_acquire(&((struct event *)w->arg)->over) < w->n)
		return NULL;
	return w;
}

static void step(struct stream *s, struct work *w)
{
	struct work *before = s->tail;

	do_work(w);
	s->tail = w;
	if (before != &s->stub)
		free(before);
	store_release(&s->over, s->over + 1);
}

/* On a busy machine, a thread that yields runs again much later than one that sleeps. */
static void nap(void)
{
	const struct timespec ts = { 0, 20000 };

	nanosleep(&ts, NULL);
}

u32 fake_step(u64 choice)
{
	struct stream *can[256];
	u32 n = 0, i, j, none = 0;

	/* Another thread runs a piece of work now, which is enough. */
	if (!cas_acq_rel_acquire(&stepping, &none, 1))
		return 1;

	for (i = 0; i < FAKE_DEVICES; i++) {
		struct dev *d = load_acquire(&devs[i]);

		if (!d || load_acquire(&d->lost))
			continue;
		for (j = 0; j < load_acquire(&d->nstreams); j++) {
			struct stream *s = load_acquire(&d->streams[j]);

			if (s && n < ARRAY_SIZE(can) && runnable(s))
				can[n++] = s;
		}
	}
	if (n)
		step(can[choice % n], runnable(can[choice % n]));
	store_release(&stepping, 0);
	return n;
}

static void *dev_main(void *arg)
{
	struct dev *d = arg;
	u64 turn = 0;
	u32 idle = 0;

	while (!load_acquire(&d->stop)) {
		u32 n = load_acquire(&d->nstreams), i, at;
		bool did = false, later = false;

		turn++;
		at = n ? (u32)(random_next(&d->seed) % n) : 0;
		for (i = 0; i < n && !did && !load_acquire(&d->lost); i++) {
			struct stream *s = load_acquire(&d->streams[(at + i) % n]);
			struct work *w = s ? runnable(s) : NULL;

			if (!w)
				continue;
			if (turn < s->ready_at) {
				later = true;
				continue;
			}
			step(s, w);
			if (d->delay)
				s->ready_at = turn + 1 + random_next(&d->seed) % d->delay;
			did = true;
		}
		if (did)
			idle = 0;
		else if (later || ++idle < 10)
			for (i = 0; i < 20; i++)
				cpu_relax();
		else
			nap();
	}
	return NULL;
}

/* --- the calls --- */

static int fake_count(int *n)
{
	int rc = call(NULL, "count");

	*n = 0;
	if (rc)
		return rc;
	if (!setup.devices)
		return err(-ENODEV, "fake: no driver");
	*n = setup.devices;
	return 0;
}

static int fake_info(int id, struct device_info *out)
{
	int rc = call(NULL, "info");

	if (rc)
		return rc;
	if (id < 0 || id >= setup.devices)
		return err(-ENODEV, "fake: there is no device %d", id);
	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "fake %d", id);
	out->memory = out->memory_free = 1 << 30;
	out->units = 1;
	return 0;
}

static int fake_open(int id, void **dev)
{
	int rc = call(NULL, "open");
	struct dev *d;

	if (rc)
		return rc;
	if (id < 0 || id >= setup.devices)
		return err(-ENODEV, "fake: there is no device %d", id);
	if (load_acquire(&devs[id]))
		return err(-EBUSY, "fake: device %d is open", id);
	d = calloc(1, sizeof(*d));
	if (!d)
		return err(-ENOMEM, "fake: no memory");
	d->id = id;
	d->manual = setup.manual;
	d->seed = setup.seed + (u64)id;
	d->delay = setup.delay;
	if (!d->manual && pthread_create(&d->thread, NULL, dev_main, d)) {
		free(d);
		return err(-EAGAIN, "fake: no thread");
	}
	store_release(&devs[id], d);
	*dev = d;
	return 0;
}

static bool stream_empty(struct stream *s)
{
	return load_acquire(&s->over) == load_acquire(&s->put);
}

static void fake_close(void *dev)
{
	struct dev *d = dev;
	struct thing *t, *next;
	u32 i, none = 0;

	store_release(&devs[d->id], NULL);
	/* Wait until no thread is inside fake_step() with this device. */
	while (!cas_acq_rel_acquire(&stepping, &none, 1)) {
		none = 0;
		nap();
	}
	store_release(&stepping, 0);
	for (i = 0; i < d->nstreams; i++)
		while (!d->manual && !load_acquire(&d->lost) && !stream_empty(d->streams[i]))
			nap();
	store_release(&d->stop, 1);
	if (!d->manual)
		pthread_join(d->thread, NULL);
	for (i = 0; i < d->nstreams; i++) {
		struct stream *s = d->streams[i];
		struct work *w = s->tail, *after;

		for (; w; w = after) {
			after = w->next;
			/* The tail is complete; on a lost device later work never ran. */
			if (w != s->tail && w->kind == WORK_GRAPH)
				graph_put(w->arg);
			if (w != s->tail && w->kind == WORK_FREE)
				free(w->arg);
			if (w != &s->stub)
				free(w);
		}
	}
	for (t = d->things; t; t = next) {
		next = t->next;
		free(t);
	}
	free(d);
}

static int fake_use(void *dev)
{
	return call(dev, "use");
}

static int fake_alloc(void *dev, size_t bytes, void **p)
{
	int rc = call(dev, "alloc");

	if (rc)
		return rc;
	*p = malloc(bytes ? bytes : 1);
	return *p ? 0 : err(-ENOMEM, "fake: no memory for %zu bytes", bytes);
}

static int fake_free(void *dev, void *p)
{
	int rc = call(dev, "free");

	free(p);	/* also on an injected failure: the caller does not try again */
	return rc;
}

static int fake_alloc_async(void *dev, void *stream, size_t bytes, void **p)
{
	return fake_alloc(dev, bytes, p);
}

static int fake_free_async(void *dev, void *stream, void *p)
{
	const struct work w = { .kind = WORK_FREE, .arg = p };
	int rc = call(dev, "free_async");

	return rc ? rc : put(stream, &w);
}

static void dev_enter(struct dev *d)
{
	u32 none = 0;

	while (!cas_acq_rel_acquire(&d->busy, &none, 1)) {
		none = 0;
		nap();
	}
}

static void dev_leave(struct dev *d)
{
	store_release(&d->busy, 0);
}

static void thing_add(struct dev *d, struct thing *t)
{
	t->next = load_relaxed(&d->things);
	while (!cas_acq_rel_acquire(&d->things, &t->next, t))
		;
}

static int fake_stream_create(void *dev, int priority, void **stream)
{
	struct dev *d = dev;
	int rc = call(dev, "stream_create");
	struct stream *s;
	u32 i;

	if (rc)
		return rc;
	for (i = 0; i < load_acquire(&d->nstreams); i++) {
		u32 dead = 1;

		s = load_acquire(&d->streams[i]);
		if (s && load_acquire(&s->dead) && stream_empty(s) &&
		    cas_acq_rel_acquire(&s->dead, &dead, 0)) {
			*stream = s;
			return 0;
		}
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return err(-ENOMEM, "fake: no memory");
	i = load_relaxed(&d->nstreams);
	do {
		if (i >= FAKE_STREAMS) {
			free(s);
			return err(-ENOMEM, "fake: no more streams");
		}
	} while (!cas_acq_rel_acquire(&d->nstreams, &i, i + 1));
	s->head = s->tail = &s->stub;
	thing_add(d, &s->thing);
	store_release(&d->streams[i], s);
	*stream = s;
	return 0;
}

/* Work that is still queued on it runs. */
static int fake_stream_destroy(void *dev, void *stream)
{
	struct stream *s = stream;
	int rc = call(dev, "stream_destroy");

	store_release(&s->dead, 1);
	return rc;
}

static int fake_stream_query(void *dev, void *stream)
{
	int rc = call(dev, "stream_query");

	return rc ? rc : stream_empty(stream) ? 0 : -EBUSY;
}

static int fake_stream_sync(void *dev, void *stream)
{
	struct dev *d = dev;
	int rc = call(dev, "stream_sync");

	while (!rc && !stream_empty(stream)) {
		if (d->manual)
			fake_step(random_next(&d->seed));
		else
			nap();
		if (load_acquire(&d->lost))
			rc = call(dev, "stream_sync");
	}
	return rc;
}

static int fake_stream_wait(void *dev, void *stream, void *event)
{
	struct event *ev = event;
	struct work w = { .kind = WORK_WAIT, .arg = event };
	int rc = call(dev, "stream_wait");

	if (rc)
		return rc;
	fetch_add_relaxed(&counts.waits, 1);
	/* Atomic with records: the wait must be queued after the record that it waits for. */
	dev_enter(dev);
	w.n = load_acquire(&ev->recorded);
	rc = put(stream, &w);
	dev_leave(dev);
	return rc;
}

static int fake_event_create(void *dev, void **event)
{
	int rc = call(dev, "event_create");
	struct dev *d = dev;
	struct event *ev, **p;

	if (rc)
		return rc;
	dev_enter(dev);
	for (p = &d->events; (ev = *p); p = &ev->free)
		if (load_acquire(&ev->over) >= load_acquire(&ev->recorded))
			break;
	if (ev)
		*p = ev->free;
	dev_leave(dev);
	if (!ev) {
		ev = calloc(1, sizeof(*ev));
		if (!ev)
			return err(-ENOMEM, "fake: no memory");
		thing_add(dev, &ev->thing);
	}
	*event = ev;
	return 0;
}

static int fake_event_destroy(void *dev, void *event)
{
	struct dev *d = dev;
	struct event *ev = event;
	int rc = call(dev, "event_destroy");

	dev_enter(d);
	ev->free = d->events;
	d->events = ev;
	dev_leave(d);
	return rc;
}

static int fake_event_record(void *dev, void *event, void *stream)
{
	struct event *ev = event;
	struct work w = { .kind = WORK_RECORD, .arg = event };
	int rc = call(dev, "event_record");

	if (rc)
		return rc;
	fetch_add_relaxed(&counts.records, 1);
	dev_enter(dev);
	w.n = ev->recorded + 1;
	rc = put(stream, &w);
	if (!rc)
		store_release(&ev->recorded, w.n);
	dev_leave(dev);
	return rc;
}

static int fake_event_query(void *dev, void *event)
{
	struct event *ev = event;
	int rc = call(dev, "event_query");

	return rc ? rc : load_acquire(&ev->over) >= load_acquire(&ev->recorded) ? 0 : -EBUSY;
}

static int fake_copy(void *dev, void *stream, void *to, const void *from, size_t bytes,
		     enum device_copy dir)
{
	const struct work w = { .kind = WORK_COPY, .arg = to, .from = from, .n = bytes };
	int rc = call(dev, "copy");

	return rc ? rc : put(stream, &w);
}

static int fake_set(void *dev, void *stream, void *to, int byte, size_t bytes)
{
	const struct work w = { .kind = WORK_SET, .arg = to, .byte = byte, .n = bytes };
	int rc = call(dev, "set");

	return rc ? rc : put(stream, &w);
}

static int fake_host_call(void *dev, void *stream, void (*fn)(void *arg), void *arg)
{
	const struct work w = { .kind = WORK_CALL, .fn = fn, .arg = arg };
	int rc = call(dev, "host_call");

	fetch_add_relaxed(&counts.host_calls, 1);
	return rc ? rc : put(stream, &w);
}

static int fake_capture_begin(void *dev, void *stream)
{
	struct stream *s = stream;
	int rc = call(dev, "capture_begin");
	struct graph *g;

	if (rc)
		return rc;
	if (s->capture)
		return err(-EINVAL, "fake: the stream is captured already");
	g = calloc(1, sizeof(*g));
	if (!g)
		return err(-ENOMEM, "fake: no memory");
	g->refs = 1;
	g->last = &g->first;
	s->capture = g;
	return 0;
}

static int fake_capture_end(void *dev, void *stream, void **graph)
{
	struct stream *s = stream;
	struct graph *g = s->capture;
	int rc = call(dev, "capture_end");

	s->capture = NULL;
	if (!g)
		return err(-EINVAL, "fake: the stream is not captured");
	if (rc)
		graph_put(g);
	else
		*graph = g;
	return rc;
}

static int fake_graph_launch(void *dev, void *stream, void *graph)
{
	const struct work w = { .kind = WORK_GRAPH, .arg = graph };
	struct graph *g = graph;
	int rc = call(dev, "graph_launch");

	if (rc)
		return rc;
	fetch_add_relaxed(&counts.launches, 1);
	fetch_add_relaxed(&g->refs, 1);
	rc = put(stream, &w);
	if (rc)
		graph_put(g);
	return rc;
}

static int fake_graph_destroy(void *dev, void *graph)
{
	int rc = call(dev, "graph_destroy");

	graph_put(graph);
	return rc;
}

const struct device_ops device_fake = {
	.name = "fake",
	.count = fake_count,
	.info = fake_info,
	.open = fake_open,
	.close = fake_close,
	.use = fake_use,
	.alloc = fake_alloc,
	.release = fake_free,
	.host_alloc = fake_alloc,
	.host_free = fake_free,
	.alloc_async = fake_alloc_async,
	.free_async = fake_free_async,
	.stream_create = fake_stream_create,
	.stream_destroy = fake_stream_destroy,
	.stream_query = fake_stream_query,
	.stream_sync = fake_stream_sync,
	.stream_wait = fake_stream_wait,
	.event_create = fake_event_create,
	.event_destroy = fake_event_destroy,
	.event_record = fake_event_record,
	.event_query = fake_event_query,
	.copy = fake_copy,
	.set = fake_set,
	.host_call = fake_host_call,
	.capture_begin = fake_capture_begin,
	.capture_end = fake_capture_end,
	.graph_launch = fake_graph_launch,
	.graph_destroy = fake_graph_destroy,
};
