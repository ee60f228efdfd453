// SPDX-License-Identifier: Apache-2.0
/* See device.h. */
#include <errno.h>
#include <base/err.h>
#include <base/thread.h>
#include <device/device.h>
#include "device.h"
#include "model.h"

#define STREAMS	16u
#define EVENTS	48u
#define PIECES	24u

enum { P_CALL, P_RECORD, P_WAIT };

struct event {
	u64 made;		/* plain: a thread that uses it knows that it exists */
	u64 used;
	u64 records;		/* number of records */
	u64 recorded;		/* the same, with an order: model_send() */
	u64 over;
};

struct piece {
	u64 kind, fn, arg, n;
	u64 clock;		/* of the caller */
	u64 number;		/* in the order of the calls */
	u64 put;		/* model_send() */
};

struct stream {
	u64 made;		/* plain, as in struct event */
	u64 used;
	u64 put, over;
	u64 done;		/* the same as over, with an order */
	struct piece p[PIECES];
};

/* Changed by model_note(), except fields with another comment. */
static struct stream streams[STREAMS];
static struct event events[EVENTS];
static u64 lost, fail_at, fail_code, opened;

static void note(u64 *p, u64 v)
{
	model_note(p, v);
}

void model_device_fail(u32 n, int code)
{
	note(&fail_at, n);
	note(&fail_code, (u64)(u32)-code);
}

void model_device_lose(void)
{
	note(&lost, 1);
}

/* The model reads this, not a thread, so there is no race. */
static __attribute__((noinline, no_sanitize_thread)) bool waits(const struct piece *p)
{
	return p->kind == P_WAIT && ((struct event *)(uintptr_t)p->arg)->over < p->n;
}

/*
 * Return the stream's next piece, skipping complete waits; NULL if there is none, or it must
 * wait.
 */
static struct piece *next_of(struct stream *s, u64 *at)
{
	for (*at = s->over; *at < s->put; ++*at) {
		struct piece *p = &s->p[*at % PIECES];

		if (p->kind != P_WAIT)
			return p;
		if (waits(p))
			return NULL;
	}
	return NULL;
}

static bool empty(const void *stream)
{
	u64 at;

	return !next_of((struct stream *)(uintptr_t)stream, &at) &&
	       at == ((const struct stream *)stream)->put;
}

/* What a thread waits for: the completion of the pieces that it knows of. */
struct until {
	const struct stream *s;
	u64 known;		/* numbers of pieces, modulo 64 */
};

static __attribute__((noinline, no_sanitize_thread)) bool is_over(const void *until)
{
	const struct until *u = until;
	u64 at;

	if (lost)
		return true;
	/* Complete waits are skipped together with the piece behind them: next_of(). */
	if (!next_of((struct stream *)(uintptr_t)u->s, &at) && at == u->s->put)
		return true;
	for (; at < u->s->put; at++)
		if (u->known >> u->s->p[at % PIECES].number % 64 & 1)
			return false;
	return true;
}

/* The pieces that the calling thread knows of. */
static struct until until_over(struct stream *s)
{
	struct until u = { .s = s };
	u64 at;

	for (at = s->over; at < s->put; at++)
		if (model_knows(s->p[at % PIECES].clock))
			u.known |= 1ull << s->p[at % PIECES].number % 64;
	return u;
}

bool model_device_empty(void)
{
	u32 i;

	for (i = 0; i < STREAMS; i++)
		if (!lost && streams[i].used && !empty(&streams[i]))
			return false;
	return true;
}

/*
 * True if calls are left; records and waits may be left in a destroyed stream, and still run.
 */
static bool has_work(const struct stream *s)
{
	u64 at;

	for (at = s->over; at < s->put; at++)
		if (s->p[at % PIECES].kind == P_CALL)
			return true;
	return false;
}

static bool can_go(const void *unused)
{
	u64 at;
	u32 i;

	for (i = 0; i < STREAMS && !lost; i++)
		if (next_of(&streams[i], &at))
			return true;
	return false;
}

static void do_one(struct stream *s, u64 at)
{
	struct piece *p = &s->p[at % PIECES];
	struct event *ev = (struct event *)(uintptr_t)p->arg;

	model_receive(&p->put);
	if (p->kind == P_CALL)
		((void (*)(void *))(uintptr_t)p->fn)((void *)(uintptr_t)p->arg);
	else if (p->n > ev->over)
		model_send(&ev->over, p->n);
	note(&s->over, at + 1);
	model_send(&s->done, at + 1);
}

static void *device_main(void *arg)
{
	model_hardware();
	for (;;) {
		struct stream *can[STREAMS];
		u64 at[STREAMS];
		u32 i, n = 0;

		model_await(can_go, NULL);
		for (i = 0; i < STREAMS; i++) {
			if (!next_of(&streams[i], &at[n]))
				continue;
			can[n++] = &streams[i];
		}
		i = model_choose(n);
		do_one(can[i], at[i]);
	}
	return NULL;
}

/* The beginning of every call; the scheduler may switch here. */
static int call(const char *what)
{
	model_point();
	if (fail_at) {
		note(&fail_at, fail_at - 1);
		if (!fail_at) {
			if (fail_code == ENOTRECOVERABLE)
				note(&lost, 1);
			return err(-(int)fail_code, "model: %s was told to fail", what);
		}
	}
	return lost ? err(-ENOTRECOVERABLE, "model: the device broke before %s", what) : 0;
}

static void put(struct stream *s, u64 kind, u64 fn, void *arg, u64 n)
{
	u64 at = s->put, least = s->put, i;
	struct piece *p;

	MODEL_CHECK(s->made == 1);
	if (s->put - s->over == PIECES)
		model_fail("model: more than %u pieces in a stream", PIECES);
	/* Perhaps insert it before pieces that the caller does not know of. */
	while (least > s->over && !model_knows(s->p[(least - 1) % PIECES].clock))
		least--;
	if (least < at)
		at -= model_choose((u32)(at - least) + 1);
	for (i = s->put; i > at; i--) {
		const struct piece *q = &s->p[(i - 1) % PIECES];

		p = &s->p[i % PIECES];
		note(&p->kind, q->kind);
		note(&p->fn, q->fn);
		note(&p->arg, q->arg);
		note(&p->n, q->n);
		note(&p->clock, q->clock);
		note(&p->number, q->number);
	}
	p = &s->p[at % PIECES];
	note(&p->kind, kind);
	note(&p->fn, fn);
	note(&p->arg, (u64)(uintptr_t)arg);
	note(&p->n, n);
	note(&p->clock, model_clock());
	note(&p->number, s->put);
	/* A thread that sees it also sees the pieces that moved, which were sent before. */
	model_send(&p->put, s->put + 1);
	note(&s->put, s->put + 1);
}

/* --- the calls --- */

static int dev_count(int *n)
{
	*n = 1;
	return 0;
}

static int dev_info(int id, struct device_info *out)
{
	return err(-ENOTSUP, "model: nothing to say");
}

static int dev_open(int id, void **dev)
{
	os_thread t;

	*dev = &streams;
	if (!model_note(&opened, 1) && os_thread_create(&t, device_main, NULL))
		return err(-EAGAIN, "model: no thread");
	return 0;
}

/* The device's thread never ends, so a second opening would find it running. */
static void dev_close(void *dev)
{
	u32 i;

	for (i = 0; i < STREAMS && !lost; i++)
		if (streams[i].used && has_work(&streams[i]))
			model_fail("the device is closed with work in its streams");
}

static int dev_use(void *dev)
{
	return 0;
}

static int dev_stream_create(void *dev, int priority, void **stream)
{
	int rc = call("stream_create");
	u32 i;

	if (rc)
		return rc;
	for (i = 0; i < STREAMS && streams[i].used; i++)
		;
	if (i == STREAMS)
		return err(-ENOMEM, "model: no more streams");
	note(&streams[i].used, 1);
	streams[i].made = 1;
	*stream = &streams[i];
	return 0;
}

void *model_device_stream(void)
{
	void *s;

	return dev_stream_create(streams, 0, &s) ? NULL : s;
}

static int dev_stream_destroy(void *dev, void *stream)
{
	struct stream *s = stream;

	call("stream_destroy");
	MODEL_CHECK(s->made == 1);
	if (!lost && has_work(s))
		model_fail("a stream is destroyed with work in it");
	s->made = 2;
	return 0;
}

static int dev_stream_query(void *dev, void *stream)
{
	struct stream *s = stream;
	int rc = call("stream_query");

	if (rc)
		return rc;
	MODEL_CHECK(s->made == 1);
	/* The answer may or may not cover pieces that the caller does not know of. */
	if (!empty(s)) {
		struct until u = until_over(s);

		if (!is_over(&u) || !model_choose(2))
			return -EBUSY;
	}
	model_receive(&s->done);
	return 0;
}

static int dev_stream_sync(void *dev, void *stream)
{
	struct stream *s = stream;
	int rc = call("stream_sync");

	if (rc)
		return rc;
	MODEL_CHECK(s->made == 1);
	{
		struct until u = until_over(s);

		if (!is_over(&u))
			model_await(is_over, &u);
	}
	if (lost)
		return err(-ENOTRECOVERABLE, "model: the device broke");
	model_receive(&s->done);
	return 0;
}

static int dev_stream_wait(void *dev, void *stream, void *event)
{
	struct event *ev = event;
	int rc = call("stream_wait");
	u64 n;

	if (rc)
		return rc;
	MODEL_CHECK(ev->made == 1);
	n = model_glance(&ev->recorded, false);
	put(stream, P_WAIT, 0, ev, n);
	return 0;
}

static int dev_event_create(void *dev, void **event)
{
	int rc = call("event_create");
	u32 i;

	if (rc)
		return rc;
	for (i = 0; i < EVENTS && events[i].used; i++)
		;
	if (i == EVENTS)
		return err(-ENOMEM, "model: no more events");
	note(&events[i].used, 1);
	events[i].made = 1;
	*event = &events[i];
	return 0;
}

static int dev_event_destroy(void *dev, void *event)
{
	struct event *ev = event;

	call("event_destroy");
	MODEL_CHECK(ev->made == 1);
	ev->made = 2;
	return 0;
}

static int dev_event_record(void *dev, void *event, void *stream)
{
	struct event *ev = event;
	int rc = call("event_record");
	u64 n;

	if (rc)
		return rc;
	MODEL_CHECK(ev->made == 1);
	n = ev->records + 1;
	note(&ev->records, n);
	put(stream, P_RECORD, 0, ev, n);
	model_send(&ev->recorded, n);
	return 0;
}

static int dev_event_query(void *dev, void *event)
{
	struct event *ev = event;
	int rc = call("event_query");
	u64 n;

	if (rc)
		return rc;
	MODEL_CHECK(ev->made == 1);
	n = model_glance(&ev->recorded, false);
	return model_glance(&ev->over, true) >= n ? 0 : -EBUSY;
}

static int dev_host_call(void *dev, void *stream, void (*fn)(void *arg), void *arg)
{
	int rc = call("host_call");

	if (!rc)
		put(stream, P_CALL, (u64)(uintptr_t)fn, arg, 0);
	return rc;
}

static const struct device_ops device_model = {
	.name = "model",
	.count = dev_count,
	.info = dev_info,
	.open = dev_open,
	.close = dev_close,
	.use = dev_use,
	.stream_create = dev_stream_create,
	.stream_destroy = dev_stream_destroy,
	.stream_query = dev_stream_query,
	.stream_sync = dev_stream_sync,
	.stream_wait = dev_stream_wait,
	.event_create = dev_event_create,
	.event_destroy = dev_event_destroy,
	.event_record = dev_event_record,
	.event_query = dev_event_query,
	.host_call = dev_host_call,
};

const struct device_ops *device_of_kind(u32 kind)
{
	return kind == MODEL_KIND ? &device_model : NULL;
}
