// SPDX-License-Identifier: Apache-2.0
/*
 * Lanes: streams whose contents the engine tracks.
 *
 * Purpose: work that depends on number n of a lane waits, on the device, for an event of that
 * lane whose label is at least n; a host thread queries such an event.
 *
 * Structures: device.h.  A lane has up to LANE_EVENTS events, used in turn and created when
 * first needed.  An event is recorded when another stream or the host needs it, or will
 * probably need it (lane_mark()); a chain of work on one stream needs none.
 *
 * Why a label is never too high: the number is read before the record is made, so the work
 * with that number is on the stream already (DEVICE-I1, DEVICE-I2).  If two threads record the
 * same event, the later record is ordered after everything that either of them read, so the
 * greater label is right.
 *
 * Ordering:
 *   DEVICE-I1 (number, release) <-> DEVICE-I2 (before a record, acquire)
 *   DEVICE-E1 (label, release)  <-> DEVICE-E2 (before a wait or query, acquire)
 *   DEVICE-V1 (a new event, CAS) <-> DEVICE-V2 (acquire)
 *   DEVICE-W1 (newest, release) <-> DEVICE-W2 (acquire): the events up to it are made
 *   DEVICE-D1 (done, release)   <-> DEVICE-D2 (lane_state(), acquire)
 *   DEVICE-L1 (lost, release)   <-> DEVICE-L2 (acquire): the text
 *   DEVICE-N3 (a call ends, release) <-> DEVICE-N4 (lane_fini(), acquire)
 *
 * Progress: lock-free, apart from the driver's calls.
 *
 * Lifetime: streams and events exist as long as their lane.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ck_stack.h>
#include <base/thread.h>
#include <device/device.h>

u32 lane_events = LANE_EVENTS;

int device_open(const struct device_ops *ops, int id, struct device *d)
{
	memset(d, 0, sizeof(*d));
	d->ops = ops;
	snprintf(d->name, sizeof(d->name), "%s:%d", ops->name, id);
	return ops->open(id, &d->dev);
}

void device_close(struct device *d)
{
	if (d->dev)
		d->ops->close(d->dev);
}

__cold int device_check(struct device *d, int code)
{
	u32 none = 0;

	if (code != -ENOTRECOVERABLE && code != -ESHUTDOWN)
		return code;
	/* Relaxed: it only selects the thread that writes the text. */
	if (cas_relaxed(&d->lost, &none, 1)) {
		snprintf(d->text, sizeof(d->text), "%s is lost: %.120s", d->name,
			 code == -ESHUTDOWN ? "its driver unloads" : err_text());
		store_release(&d->lost, 2);	/* DEVICE-L1 <-> DEVICE-L2 */
	}
	return -ENOTRECOVERABLE;
}

static void raise_to(u64 *word, u64 v)
{
	u64 was = load_relaxed(word);

	/* DEVICE-E1 <-> DEVICE-E2: the record that covers it comes before. */
	while (was < v && !cas_release_relaxed(word, &was, v))
		;
}

/* All work up to v is complete. */
static void lane_over(struct lane *l, u64 v)
{
	u64 was = load_relaxed(&l->done);

	/* DEVICE-D1 <-> DEVICE-D2: the device's writes come before. */
	while (was < v && !cas_release_relaxed(&l->done, &was, v))
		;
	if (was < v)
		fetch_add_relaxed(l->load, was - v);
}

/*
 * state: the bit NOTICE_CLOSED, plus NOTICE_CALL for each call inside fn, plus NOTICE_REF for
 * the lane and for each requested call that has not returned.
 */
struct notice {
	u32 state;
	u32 fired;
	void (*fn)(void *arg);
	void *arg;
	ck_stack_entry_t link;
};

/* Notices whose call a lost device never made; kept reachable, and never read. */
static ck_stack_t owed;

#define NOTICE_CLOSED	1u
#define NOTICE_CALL	2u
#define NOTICE_CALLS	0xfffeu
#define NOTICE_REF	0x10000u

static void notice_put(struct notice *n, u32 what)
{
	/* DEVICE-N3 <-> DEVICE-N4.  The last reference frees it, after notice_close(). */
	if (fetch_add_release(&n->state, -what) - what < NOTICE_REF)
		free(n);
}

/* On a thread of the device. */
static void notice_main(void *arg)
{
	struct notice *n = arg;

	/* Relaxed: it only checks for closed; the data were written before the request. */
	if (!(fetch_add_relaxed(&n->state, NOTICE_CALL) & NOTICE_CLOSED)) {
		/* Relaxed: fn() wakes the thread that reads it. */
		store_relaxed(&n->fired, 1);
		n->fn(n->arg);
	}
	notice_put(n, NOTICE_CALL + NOTICE_REF);
}

/* After this no call is inside fn, and none will enter it. */
static void notice_close(struct notice *n)
{
	/* Relaxed: a call either counts itself before this, or sees the bit. */
	fetch_or_relaxed(&n->state, NOTICE_CLOSED);
	while (load_acquire(&n->state) & NOTICE_CALLS)	/* DEVICE-N4 <-> DEVICE-N3 */
		os_thread_yield();
	/* Relaxed: with no call inside fn none can end concurrently. */
	if (load_relaxed(&n->state) < 2 * NOTICE_REF) {
		notice_put(n, NOTICE_REF);
		return;
	}
	/* A requested call may still come, or never: keep the memory. */
	ck_stack_push_upmc(&owed, &n->link);
}

int lane_init(struct lane *l, struct device *d, u32 id, u32 nlanes, void *stream, int priority,
	      u64 *load)
{
	int rc = 0;

	memset(l, 0, sizeof(*l));
	l->d = d;
	l->id = id;
	l->stream = stream;
	l->adopted = stream;
	l->load = load;
	l->last_ev = lane_events - 1;
	l->waited = calloc(nlanes, sizeof(*l->waited));
	if (!l->waited)
		return err(-ENOMEM, "no memory for a stream's table");
	if (!stream)
		rc = d->ops->stream_create(d->dev, priority, &l->stream);
	if (rc)
		lane_fini(l);
	return rc;
}

/* Errors are ignored: the device may be lost or the driver unloading, without a remedy. */
void lane_fini(struct lane *l)
{
	struct device *d = l->d;
	u32 i;
	int rc;

	if (l->notices) {
		/* The notice stream waits for events of the lane: drain it before they go. */
		for (i = 0; i < 1000; i++) {
			rc = d->ops->stream_sync(d->dev, l->notices);
			if (!rc || rc == -ENOTRECOVERABLE || rc == -ESHUTDOWN)
				break;
		}
		(void)!d->ops->stream_destroy(d->dev, l->notices);
	}
	if (l->notice)
		notice_close(l->notice);
	for (i = 0; i < LANE_EVENTS; i++)
		if (l->ev[i].event)
			(void)!d->ops->event_destroy(d->dev, l->ev[i].event);
	if (l->stream && !l->adopted)
		(void)!d->ops->stream_destroy(d->dev, l->stream);
	free(l->waited);
}

/*
 * Return the event with the smallest label that is at least `least`, or NULL.  The search may
 * miss an event whose label rises concurrently, and then returns the next one, which covers
 * more, or none.
 */
static struct lane_event *event_from(struct lane *l, u64 least, u64 *label)
{
	/* Relaxed: an old value only misses an event, as above. */
	u32 oldest = load_relaxed(&l->newest) + 1, from = 0, to = l->last_ev + 1;
	struct lane_event *best = NULL;

	while (from < to) {
		u32 mid = (from + to) / 2;
		struct lane_event *ev = &l->ev[(oldest + mid) & l->last_ev];
		u64 v = load_acquire(&ev->label);	/* DEVICE-E2 <-> DEVICE-E1 */

		bool covers = v >= least;

		if (BUSTED(EVENT_EARLY))
			covers = v + 1 >= least;
		if (covers) {
			best = ev;
			*label = v;
			to = mid;
		} else {
			from = mid + 1;
		}
	}
	return best;
}

static void *event_of(const struct lane_event *ev)
{
	return load_acquire(&ev->event);	/* DEVICE-V2 <-> DEVICE-V1 */
}

/* Create the event unless it exists.  Returns 0 or an error. */
static int event_make(struct lane *l, struct lane_event *ev)
{
	const struct device_ops *ops = l->d->ops;
	void *made = NULL, *none = NULL;
	int rc;

	if (likely(event_of(ev)))
		return 0;
	rc = ops->event_create(l->d->dev, &made);
	if (rc)
		return device_check(l->d, rc);
	if (!cas_release_relaxed(&ev->event, &none, made))	/* DEVICE-V1 <-> DEVICE-V2 */
		(void)!ops->event_destroy(l->d->dev, made);
	return 0;
}

/*
 * Return the next event of the ring to record, or the newest one again while the next one is
 * pending.  NULL: the error is in *rc.
 */
static struct lane_event *event_turn(struct lane *l, int *rc)
{
	u32 at = load_acquire(&l->newest);	/* DEVICE-W2 <-> DEVICE-W1 */
	struct lane_event *next = &l->ev[(at + 1) & l->last_ev];
	u64 was = load_acquire(&next->label);	/* DEVICE-E2 <-> DEVICE-E1 */

	/* Relaxed: an event may be recorded again at any time; an old value costs a query. */
	if (was > load_relaxed(&l->done)) {
		if (l->d->ops->event_query(l->d->dev, event_of(next))) {
			/* Another thread may have recorded it since the first read. */
			at = load_acquire(&l->newest);	/* DEVICE-W2 <-> DEVICE-W1 */
			return &l->ev[at & l->last_ev];
		}
		lane_over(l, was);
	}
	*rc = event_make(l, next);
	/* DEVICE-W1 <-> DEVICE-W2 */
	if (!*rc && cas_acq_rel_acquire(&l->newest, &at, at + 1))
		return next;
	/* No new event: use an older one; if another thread took the slot, its event exists. */
	next = &l->ev[at & l->last_ev];
	return event_of(next) ? next : NULL;
}

/* Record an event at the end of the lane.  NULL: the error is in *rc. */
static struct lane_event *record(struct lane *l, u64 *label, int *rc)
{
	struct lane_event *ev = event_turn(l, rc);

	if (unlikely(!ev))
		return NULL;
	*label = load_acquire(&l->issued);	/* DEVICE-I2 <-> DEVICE-I1 */
	*rc = l->d->ops->event_record(l->d->dev, event_of(ev), l->stream);
	if (unlikely(*rc)) {
		*rc = device_check(l->d, *rc);
		return NULL;
	}
	raise_to(&ev->label, *label);	/* DEVICE-E1 <-> DEVICE-E2 */
	return ev;
}

int lane_mark(struct lane *l, u64 seq)
{
	u64 label;
	int rc = 0;

	if (lane_state(l, seq) == LANE_PENDING && !event_from(l, seq, &label))
		record(l, &label, &rc);
	return rc;
}

int lane_follow(struct lane *l, struct lane *on, u64 seq)
{
	struct lane_event *ev;
	u64 label = 0;
	int rc;

	if (BUSTED(LANE_NO_FOLLOW))
		return 0;
	if (l == on || l->waited[on->id] >= seq)
		return 0;
	if (lane_state(on, seq) != LANE_DONE)
		lane_poll(on);
	switch (lane_state(on, seq)) {
	case LANE_DONE:
		return 0;
	case LANE_LOST:
		return err(-ENOTRECOVERABLE, "%s", on->d->text);
	case LANE_PENDING:
		break;
	}
	ev = event_from(on, seq, &label);
	if (!ev)
		ev = record(on, &label, &rc);
	if (unlikely(!ev))
		return rc;
	rc = l->d->ops->stream_wait(l->d->dev, l->stream, event_of(ev));
	if (unlikely(rc))
		return device_check(l->d, rc);
	l->waited[on->id] = label;
	return 0;
}

/* No event answers: query the whole stream. */
static void poll_stream(struct lane *l)
{
	u64 all = load_acquire(&l->issued);	/* DEVICE-I2 <-> DEVICE-I1 */
	int rc = l->d->ops->stream_query(l->d->dev, l->stream);

	if (!rc)
		lane_over(l, all);
	else if (rc != -EBUSY && device_check(l->d, rc) != -ENOTRECOVERABLE)
		device_check(l->d,
			     err(-ENOTRECOVERABLE, "it does not say how far its streams are"));
}

void lane_poll(struct lane *l)
{
	struct lane_event *ev;
	u64 step = 1, label = 0;
	int rc;

	/* From event to event, in doubling steps as long as they are complete. */
	for (;;) {
		if (device_lost(l->d))
			return;
		/* Relaxed: only a starting point. */
		ev = event_from(l, load_relaxed(&l->done) + step, &label);
		rc = ev ? l->d->ops->event_query(l->d->dev, event_of(ev)) : -EBUSY;
		if (!rc) {
			lane_over(l, label);
			step *= 2;
		} else if (rc == -EBUSY && step > 1) {
			step = 1;
		} else {
			break;
		}
	}
	if (ev && rc == -EBUSY)
		return;
	if (unlikely(rc != -EBUSY)) {
		if (device_check(l->d, rc) != -ENOTRECOVERABLE)
			poll_stream(l);
		return;
	}
	/* A thread waits and no event covers its number, because recording one failed. */
	if (lane_wanted(l))
		poll_stream(l);
}

void lane_want(struct lane *l, u64 seq)
{
	raise_to(&l->want, seq);
}

int lane_notify(struct lane *l, void (*fn)(void *lane))
{
	struct device *d = l->d;
	struct lane_event *ev;
	u64 label = 0;
	int rc = 0;

	/* Relaxed: after an old value the call's wake-up brings the thread back here. */
	if (l->noticed && !load_relaxed(&l->notice->fired))
		return 0;
	l->noticed = 0;
	if (!l->notice) {
		l->notice = calloc(1, sizeof(*l->notice));
		if (!l->notice)
			return err(-ENOMEM, "no memory for a notice");
		l->notice->state = NOTICE_REF;
		l->notice->fn = fn;
		l->notice->arg = l;
	}
	if (!l->notices)
		rc = d->ops->stream_create(d->dev, 0, &l->notices);
	if (rc)
		return device_check(d, rc);
	/* Relaxed: only a starting point. */
	ev = event_from(l, load_relaxed(&l->done) + 1, &label);
	if (!ev)
		ev = record(l, &label, &rc);
	if (!ev)
		return rc;
	rc = d->ops->stream_wait(d->dev, l->notices, event_of(ev));
	if (rc)
		return device_check(d, rc);
	store_relaxed(&l->notice->fired, 0);
	/* Relaxed: host_call() itself orders it before the device's thread. */
	fetch_add_relaxed(&l->notice->state, NOTICE_REF);
	rc = d->ops->host_call(d->dev, l->notices, notice_main, l->notice);
	if (rc) {
		notice_put(l->notice, NOTICE_REF);
		return device_check(d, rc);
	}
	l->noticed = label;
	return 0;
}

void lane_sync(struct lane *l)
{
	u64 all = load_acquire(&l->issued);	/* DEVICE-I2 <-> DEVICE-I1 */

	if (likely(!l->d->ops->stream_sync(l->d->dev, l->stream))) {
		lane_over(l, all);
		return;
	}
	/* The call failed: poll until the work is complete or the device is lost. */
	lane_want(l, all);
	while (lane_state(l, all) == LANE_PENDING) {
		lane_poll(l);
		os_thread_yield();
	}
}
