/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices: what the engine asks of one, and its streams as numbered lanes; layer 2.
 *
 * Purpose: work is put into streams and is over later; the order between streams is
 * kept by events, on the device, so that no thread of the host waits for it.
 *
 * The contract of struct device_ops.
 *
 *   Threads: every call from any thread, several at once, also with the same stream and
 *   the same event.  What a call puts into a stream is behind what other calls had put
 *   there before this one began.  Two calls at the same time: in either order.
 *
 *   Order: a stream runs what is put into it one after the other.  Streams run
 *   independently, but for stream_wait(): what is put into the stream after it runs when
 *   the newest event_record() of the event at the time of the call is over.  An event that
 *   was never recorded is over.  event_query() is about the newest record, too.
 *
 *   Ownership: an event may be recorded again while others wait for it; they wait for the
 *   record they saw.  Streams and events are destroyed when nothing uses them; work that
 *   is in a stream that is destroyed still runs.  Memory that a copy uses belongs to the
 *   caller, and stays until the copy is over.  free_async() takes the memory when the
 *   stream gets there.
 *
 *   Host functions, host_call(): run in stream order, on a thread of the device.  They may
 *   not call the device, nor wait for anything: flip a word and wake somebody.
 *
 *   Errors: 0 or a negative errno, with a text (base/err.h):
 *     -EBUSY            a query: not over yet
 *     -ENOMEM           no memory of that kind
 *     -EINVAL           refused as it is
 *     -ENODEV           no such device, or no driver
 *     -ENOTSUP          this device cannot do that
 *     -ESHUTDOWN        the driver unloads: the process ends; nothing is wrong
 *     -ENOTRECOVERABLE  the device is lost: so will every later call be
 *     -EIO              anything else
 *   A call that failed put nothing into its stream.
 *
 *   Fork: a child calls nothing of this.
 *
 * Lanes.  A lane is a stream of which the engine knows what is in it: every piece of work
 * gets a number, in the order of the stream.  An event belongs to one lane for life and has
 * a label: all work of the lane up to that number is over when the event's newest record
 * is.  An event that is used again only stands for more, so a wait that finds it late
 * waits longer and never too short; there is nothing to count or to keep alive.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#if !defined(PAWL_LAYER) || PAWL_LAYER < 2
#error "device/device.h is for layer 2 and above"
#endif

#include <base/atomic.h>
#include <base/bug.h>
#include <base/err.h>

enum device_copy { DEVICE_H2D = 0, DEVICE_D2H = 1, DEVICE_D2D = 2, DEVICE_H2H = 3 };

struct device_info {
	char name[64];
	u64 memory;		/* bytes in all */
	u64 memory_free;	/* bytes free at this moment */
	int major, minor;	/* compute capability; 0.0 if there is no such thing */
	int units;		/* multiprocessors, or what comes near */
	int driver, runtime;	/* versions, as the driver gives them; 0: none */
};

struct device_ops {
	const char *name;	/* "cpu", "fake", "cuda" */
	/* How many there are; *n is 0 and -ENODEV says why, when there is no driver. */
	int (*count)(int *n);
	int (*info)(int id, struct device_info *out);
	int (*open)(int id, void **dev);
	/* Blocking: until its streams are empty.  Everything made with it was destroyed. */
	void (*close)(void *dev);
	/* The calling thread's device, for kernels that bodies launch. */
	int (*use)(void *dev);

	int (*alloc)(void *dev, size_t bytes, void **p);
	int (*release)(void *dev, void *p);		/* NULL is fine */
	int (*host_alloc)(void *dev, size_t bytes, void **p);	/* pinned */
	int (*host_free)(void *dev, void *p);
	int (*alloc_async)(void *dev, void *stream, size_t bytes, void **p);
	int (*free_async)(void *dev, void *stream, void *p);

	/* Higher is more urgent; 0 is usual.  Clamped to what the device has. */
	int (*stream_create)(void *dev, int priority, void **stream);
	int (*stream_destroy)(void *dev, void *stream);
	int (*stream_query)(void *dev, void *stream);	/* 0: empty, -EBUSY */
	int (*stream_sync)(void *dev, void *stream);	/* blocking, by name */
	int (*stream_wait)(void *dev, void *stream, void *event);

	int (*event_create)(void *dev, void **event);
	int (*event_destroy)(void *dev, void *event);
	int (*event_record)(void *dev, void *event, void *stream);
	int (*event_query)(void *dev, void *event);	/* 0: over, -EBUSY */

	int (*copy)(void *dev, void *stream, void *to, const void *from, size_t bytes,
		    enum device_copy dir);
	int (*set)(void *dev, void *stream, void *to, int byte, size_t bytes);
	int (*host_call)(void *dev, void *stream, void (*fn)(void *arg), void *arg);

	/*
	 * Between begin and end, what this thread puts into the stream is not run but
	 * gathered: *graph can be launched any number of times, in any stream of the device,
	 * and is one piece of work there.  NULL: -ENOTSUP.  A failed end leaves the stream as
	 * it was before the beginning.
	 */
	int (*capture_begin)(void *dev, void *stream);
	int (*capture_end)(void *dev, void *stream, void **graph);
	int (*graph_launch)(void *dev, void *stream, void *graph);
	int (*graph_destroy)(void *dev, void *graph);
};

extern const struct device_ops device_cpu;
#ifdef PAWL_MODEL
extern const struct device_ops device_model __attribute__((weak));
#endif
#ifdef CONFIG_DEVICE_FAKE
extern const struct device_ops device_fake;
#endif
#ifdef CONFIG_DEVICE_CUDA
extern const struct device_ops device_cuda;
#endif

/* --- lanes --- */

#define LANE_EVENTS	256u
#define LANE_SEQ_BITS	48
#define LANE_SEQ_MASK	((1ull << LANE_SEQ_BITS) - 1)
#define LANE_TIP	4u

/*
 * Field legend: I set at creation; O whoever has taken the lane; A atomic, any thread.
 */
struct lane_event {
	void *event;		/* A: NULL until it is first needed */
	u64 label;		/* A: its newest record covers this, or more; 0: none yet */
};

/* A device that was opened. */
struct device {
	const struct device_ops *ops;	/* I */
	void *dev;			/* I */
	u32 lost;			/* A: 0 good, 1 somebody writes the text, 2 lost */
	char text[160];			/* why; valid once lost is 2 */
	char name[24];			/* I: "cuda:0" */
	void *user;			/* I */
};

struct lane {
	struct device *d;		/* I */
	void *stream;			/* I */
	u32 id;				/* I: in lane references */
	bool eager;			/* I: what is put here is used from elsewhere */
	bool adopted;			/* I: the stream is not ours */
	u64 *load;			/* I, to A: in lanes that share a bound, and not over */
	u32 last_ev;			/* I: events minus 1 */
	u32 taken;			/* A: a body uses the stream */
	u64 *waited;			/* O: by lane: up to where this one waits for that one */
	u64 tip;			/* O: newest work whose vars are known, or 0 */
	u32 ntip;			/* O */
	u32 tip_var[LANE_TIP];		/* O: what it reads and writes */

	u64 issued __cacheline_aligned;	/* A: number of the newest work */
	u64 done;			/* A: all up to this is over */
	u64 want;			/* A: somebody wants to know when this is over */
	u32 newest;			/* A: place of the newest record, counts up */
	struct lane_event ev[LANE_EVENTS];	/* labels rise from the place after it round to it */
	/* The one notice that may be under way; see lane_notify(). */
	void *notices;			/* a stream of its own, made when first needed */
	u64 noticed;			/* label of the notice, or 0 */
	struct notice *notice;		/* what the device calls */
};

enum lane_state { LANE_DONE, LANE_PENDING, LANE_LOST };

/* Events of a lane that is made from now on: a power of two; tests make it small. */
extern u32 lane_events;

int device_open(const struct device_ops *ops, int id, struct device *d);
void device_close(struct device *d);
/* A call failed with code: if the device is lost, remember that, and why. */
int device_check(struct device *d, int code);
static inline bool device_lost(const struct device *d)
{
	return unlikely(load_acquire(&d->lost) == 2);	/* DEVICE-L2 <-> DEVICE-L1 */
}

/* stream NULL: make one.  nlanes: how many lanes there can be in all.  load: see there. */
int lane_init(struct lane *l, struct device *d, u32 id, u32 nlanes, void *stream, int priority,
	      u64 *load);
void lane_fini(struct lane *l);

/* One body at a time uses a stream.  False: somebody has it. */
static inline bool lane_take(struct lane *l)
{
	u32 none = 0;

	/* DEVICE-T1 <-> DEVICE-T2: what the last one left in the lane's own fields. */
	return !load_relaxed(&l->taken) && cas_acquire_relaxed(&l->taken, &none, 1);
}

static inline void lane_put(struct lane *l)
{
	store_release(&l->taken, 0);	/* DEVICE-T2 <-> DEVICE-T1 */
}

/* Number the work that was just put into the lane. */
static inline u64 lane_issue(struct lane *l)
{
	/* First: it is taken away again when the number is over. */
	fetch_add_relaxed(l->load, 1);
	/* DEVICE-I1 <-> DEVICE-I2: an event recorded after the number was seen covers it. */
	return fetch_add_release(&l->issued, 1) + 1;
}

/* Without asking the device. */
static inline enum lane_state lane_state(const struct lane *l, u64 seq)
{
	/* DEVICE-D2 <-> DEVICE-D1: what the device did, after it is known to be over. */
	if (likely(load_acquire(&l->done) >= seq))
		return LANE_DONE;
	return device_lost(l->d) ? LANE_LOST : LANE_PENDING;
}

/* Ask the device how far the lane is.  Lock-free; some queries. */
void lane_poll(struct lane *l);
/* See to it that an event covers seq.  0, or why not. */
int lane_mark(struct lane *l, u64 seq);
/* No event was recorded for the last n numbers up to seq. */
static inline bool lane_unmarked(const struct lane *l, u64 seq, u64 n)
{
	u64 label = load_relaxed(&l->ev[load_relaxed(&l->newest) & l->last_ev].label);

	return label < seq && seq - label >= n;
}
/*
 * What is put into `l` from now on runs after number seq of `on`.  The caller has taken l.
 * Both are of the same kind of device.
 */
int lane_follow(struct lane *l, struct lane *on, u64 seq);
/* Somebody wants to know when seq is over; lane_poll() by whoever cares. */
void lane_want(struct lane *l, u64 seq);
static inline bool lane_wanted(const struct lane *l)
{
	/* Relaxed: who wants something wakes who looks; an old done means one look more. */
	return load_relaxed(&l->want) > load_relaxed(&l->done);
}
/*
 * Have fn(lane), always the same fn, called once, by the device, when something that is wanted is over; at most
 * one such notice is under way, and none comes after lane_fini().  By one thread (the
 * one that polls).  Not 0: poll.
 */
int lane_notify(struct lane *l, void (*fn)(void *lane));
/*
 * Everything in the lane is over, or the device is lost.  Blocking; for engines that wait
 * after each op.
 */
void lane_sync(struct lane *l);

#endif
