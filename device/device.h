/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices: the operations that the engine requires, and streams as numbered lanes; layer 2.
 *
 * Purpose: work is queued on streams and completes later.  Events order the streams on the
 * device itself, so no host thread waits for that order.
 *
 * The contract of struct device_ops.
 *
 *   Threads: any thread may make every call, concurrently, also with the same stream and the
 *   same event.  What a call queues on a stream is ordered after everything that other calls
 *   had queued there before it began.  Concurrent calls take effect in either order.
 *
 *   Order: a stream runs its work in order.  Streams are independent, except for
 *   stream_wait(): work queued on the stream after it runs only when the event's newest
 *   event_record() at the time of the call is complete.  An event that was never recorded is
 *   complete.  event_query() also refers to the newest record.
 *
 *   Ownership: an event may be recorded again while streams wait for it; they wait for the
 *   record that they saw.  Streams and events are destroyed when nothing uses them; work that
 *   is in a destroyed stream still runs.  Memory that a copy uses belongs to the caller and
 *   must stay valid until the copy is complete.  free_async() frees the memory when the
 *   stream reaches that point.
 *
 *   Host functions, host_call(): run in stream order, on a thread of the device.  They must
 *   neither call the device nor wait; they may set a word and wake a thread.
 *
 *   Errors: 0 or a negative errno, with a text (base/err.h):
 *     -EBUSY            a query: not complete yet
 *     -ENOMEM           no memory of that kind
 *     -EINVAL           invalid argument
 *     -ENODEV           no such device, or no driver
 *     -ENOTSUP          this device does not support the operation
 *     -ESHUTDOWN        the driver unloads because the process ends; not a failure
 *     -ENOTRECOVERABLE  the device is lost; every later call fails the same way
 *     -EIO              anything else
 *   A call that fails queues nothing.
 *
 *   Fork: a child process must not make any of these calls.
 *
 * Lanes.  A lane is a stream whose contents the engine tracks: every piece of work has a
 * number, in stream order.  An event belongs to one lane for its lifetime and has a label:
 * once the event's newest record is complete, so is all work of the lane up to that number.
 * Recording an event again only raises its label, so a wait that uses it late may wait longer
 * than needed, but never too short.  Events therefore need no counts and no references.
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
	u64 memory;		/* total bytes */
	u64 memory_free;	/* bytes free at this moment */
	int major, minor;	/* compute capability; 0.0 if the device has none */
	int units;		/* multiprocessors, or their closest equivalent */
	int driver, runtime;	/* versions, as the driver reports them; 0: none */
};

struct device_ops {
	const char *name;	/* "cpu", "cuda" */
	/* The number of devices.  Without a driver *n is 0, and the result is -ENODEV. */
	int (*count)(int *n);
	int (*info)(int id, struct device_info *out);
	int (*open)(int id, void **dev);
	/*
	 * Blocks until the streams are empty.  The caller has destroyed everything that it
	 * created on the device.
	 */
	void (*close)(void *dev);
	/* Make the device current on the calling thread, for kernels that bodies launch. */
	int (*use)(void *dev);

	int (*alloc)(void *dev, size_t bytes, void **p);
	int (*release)(void *dev, void *p);		/* NULL is allowed */
	int (*host_alloc)(void *dev, size_t bytes, void **p);	/* pinned */
	int (*host_free)(void *dev, void *p);
	int (*alloc_async)(void *dev, void *stream, size_t bytes, void **p);
	int (*free_async)(void *dev, void *stream, void *p);

	/* Higher is more urgent; 0 is the default.  Clamped to the device's range. */
	int (*stream_create)(void *dev, int priority, void **stream);
	int (*stream_destroy)(void *dev, void *stream);
	int (*stream_query)(void *dev, void *stream);	/* 0 if empty, else -EBUSY */
	int (*stream_sync)(void *dev, void *stream);	/* blocks until empty */
	int (*stream_wait)(void *dev, void *stream, void *event);

	int (*event_create)(void *dev, void **event);
	int (*event_destroy)(void *dev, void *event);
	int (*event_record)(void *dev, void *event, void *stream);
	int (*event_query)(void *dev, void *event);	/* 0 if complete, else -EBUSY */

	int (*copy)(void *dev, void *stream, void *to, const void *from, size_t bytes,
		    enum device_copy dir);
	int (*set)(void *dev, void *stream, void *to, int byte, size_t bytes);
	int (*host_call)(void *dev, void *stream, void (*fn)(void *arg), void *arg);

	/*
	 * Work that this thread queues on the stream between begin and end is not run but
	 * captured.  *graph can be launched any number of times, on any stream of the device,
	 * as one piece of work.  A NULL pointer means -ENOTSUP.  A failed end leaves the stream
	 * as it was before begin.
	 */
	int (*capture_begin)(void *dev, void *stream);
	int (*capture_end)(void *dev, void *stream, void **graph);
	int (*graph_launch)(void *dev, void *stream, void *graph);
	int (*graph_destroy)(void *dev, void *graph);
};

extern const struct device_ops device_cpu;
#ifdef CONFIG_DEVICE_CUDA
extern const struct device_ops device_cuda;
#endif

/* Numbers of enum pawl_device_kind. */
#define DEVICE_KIND_CUDA	1u

/* The operations of a kind, or NULL if this build does not have it. */
const struct device_ops *device_of_kind(u32 kind);

/* --- lanes --- */

#define LANE_EVENTS	256u
#define LANE_SEQ_BITS	48
#define LANE_SEQ_MASK	((1ull << LANE_SEQ_BITS) - 1)
#define LANE_TIP	4u

/*
 * Field legend: I set at creation; O owned by the thread that has taken the lane; A atomic,
 * any thread.
 */
struct lane_event {
	void *event;		/* A: NULL until it is first needed */
	u64 label;		/* A: the newest record covers at least this; 0: no record */
};

/* An open device. */
struct device {
	const struct device_ops *ops;	/* I */
	void *dev;			/* I */
	u32 lost;			/* A: 0 good, 1 a thread writes the text, 2 lost */
	char text[160];			/* the reason; valid once lost is 2 */
	char name[24];			/* I: "cuda:0" */
	void *user;			/* I */
};

struct lane {
	struct device *d;		/* I */
	void *stream;			/* I */
	u32 id;				/* I: in lane references */
	bool eager;			/* I: other lanes or the host use the results */
	bool adopted;			/* I: the stream belongs to the caller */
	u64 *load;			/* I, to A: incomplete work of lanes with one bound */
	u32 last_ev;			/* I: number of events minus 1 */
	u32 taken;			/* A: a body uses the stream */
	u64 *waited;			/* O: for each lane, the number this one waits for */
	u64 tip;			/* O: newest work whose vars are known, or 0 */
	u32 ntip;			/* O */
	u32 tip_var[LANE_TIP];		/* O: the vars that it reads and writes */

	u64 issued __cacheline_aligned;	/* A: number of the newest work */
	u64 done;			/* A: all work up to this number is complete */
	u64 want;			/* A: a thread waits for completion up to this number */
	u32 newest;			/* A: counter; its low bits index the newest record */
	struct lane_event ev[LANE_EVENTS];	/* a ring; labels rise up to the newest */
	/* At most one notice is pending; see lane_notify(). */
	void *notices;			/* the stream for notices, created when first needed */
	u64 noticed;			/* label of the notice, or 0 */
	struct notice *notice;		/* argument of the device's call */
};

enum lane_state { LANE_DONE, LANE_PENDING, LANE_LOST };

/* Number of events of each new lane, a power of two; tests reduce it. */
extern u32 lane_events;

int device_open(const struct device_ops *ops, int id, struct device *d);
void device_close(struct device *d);
/* Handle the error of a call: if it says that the device is lost, store that and the reason. */
int device_check(struct device *d, int code);
static inline bool device_lost(const struct device *d)
{
	return unlikely(load_acquire(&d->lost) == 2);	/* DEVICE-L2 <-> DEVICE-L1 */
}

/*
 * With stream NULL, create one.  nlanes is the largest possible number of lanes; load is the
 * counter of incomplete work that the lane shares.
 */
int lane_init(struct lane *l, struct device *d, u32 id, u32 nlanes, void *stream, int priority,
	      u64 *load);
void lane_fini(struct lane *l);

/* Reserve the stream for one body.  Returns false if another body has it. */
static inline bool lane_take(struct lane *l)
{
	u32 none = 0;

	/* DEVICE-T1 <-> DEVICE-T2: the O fields, as the last owner left them. */
	return !load_relaxed(&l->taken) && cas_acquire_relaxed(&l->taken, &none, 1);
}

static inline void lane_put(struct lane *l)
{
	store_release(&l->taken, 0);	/* DEVICE-T2 <-> DEVICE-T1 */
}

/* Number the work that was just queued on the lane. */
static inline u64 lane_issue(struct lane *l)
{
	/* Before the number exists: its completion subtracts this again. */
	fetch_add_relaxed(l->load, 1);
	/* DEVICE-I1 <-> DEVICE-I2: an event recorded after the number was read covers it. */
	return fetch_add_release(&l->issued, 1) + 1;
}

/* The state of number seq, as far as known; does not query the device. */
static inline enum lane_state lane_state(const struct lane *l, u64 seq)
{
	/* DEVICE-D2 <-> DEVICE-D1: the device's writes are visible once completion is known. */
	if (likely(load_acquire(&l->done) >= seq))
		return LANE_DONE;
	return device_lost(l->d) ? LANE_LOST : LANE_PENDING;
}

/* Query the device for the lane's progress.  Progress: lock-free; makes a few queries. */
void lane_poll(struct lane *l);
/* Ensure that an event covers seq.  Returns 0 or an error. */
int lane_mark(struct lane *l, u64 seq);
/* True if no event was recorded for the last n numbers up to seq. */
static inline bool lane_unmarked(const struct lane *l, u64 seq, u64 n)
{
	u64 label = load_relaxed(&l->ev[load_relaxed(&l->newest) & l->last_ev].label);

	return label < seq && seq - label >= n;
}
/*
 * Order all work that is queued on `l` from now on after number seq of `on`.  The caller has
 * taken l.  Both lanes are on devices of the same kind.
 */
int lane_follow(struct lane *l, struct lane *on, u64 seq);
/* Announce that a thread waits for seq; the thread that polls calls lane_poll() then. */
void lane_want(struct lane *l, u64 seq);
static inline bool lane_wanted(const struct lane *l)
{
	/* Relaxed: a thread that raises want wakes the poller; an old done costs one poll. */
	return load_relaxed(&l->want) > load_relaxed(&l->done);
}
/*
 * Have the device call fn(lane) once when wanted work is complete.  At most one such notice
 * is pending, and none is delivered after lane_fini().  All calls pass the same fn and come
 * from one thread, the one that polls.  If the result is not 0, the caller must poll.
 */
int lane_notify(struct lane *l, void (*fn)(void *lane));
/*
 * Wait until everything on the lane is complete or the device is lost.  Blocking; for engines
 * that wait after each op.
 */
void lane_sync(struct lane *l);

#endif
