/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl/engine.h - the engine: vars, ops, waits.
 *
 * A program creates vars (tags for pieces of data) and pushes ops that name the
 * vars they read and write.  The engine runs each op as soon as its data allows,
 * in parallel, in an order that a serial program could have had:
 *
 *   - every var is a FIFO of accesses: consecutive reads share, a write is alone,
 *     a read behind a waiting write waits (writers never starve);
 *   - a push over k vars takes its place in all k FIFOs at one point in time, from
 *     any thread, without a lock, so no set of concurrent pushes can deadlock.
 *
 * Conventions.  Actions return 0 or a negative errno; the text that says what was
 * wrong and where is pawl_error_text() of the calling thread, whose first failed call
 * allocates room for it.  A struct that a caller fills begins with its size.  Handles
 * are values; one that is stale, or of another engine, is refused with -ESTALE, never
 * undefined.  "Any thread" includes the bodies of ops and threads that the engine has
 * never seen.  "Progress" says what other threads can do to a call: wait-free (nothing),
 * lock-free (delay it only by succeeding themselves), blocking (it waits for what its
 * name says).
 */
#ifndef PAWL_ENGINE_H
#define PAWL_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pawl/visibility.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pawl_engine;

/* A var and a graph.  {0} is no var, and no graph. */
typedef struct pawl_var { uint64_t h; } pawl_var_t;
typedef struct pawl_graph { uint64_t h; } pawl_graph_t;
/* The right, and the duty, to complete one run of an asynchronous body. */
typedef struct pawl_token { uint64_t h; } pawl_token_t;
/* A completion queue, and one push of an op. */
typedef struct pawl_cq { uint64_t h; } pawl_cq_t;
typedef struct pawl_ticket { uint64_t h; } pawl_ticket_t;

/* Where an op runs: on a CPU device (ids below cpu_devices), or see pawl/device.h. */
enum pawl_device_kind {
	PAWL_CPU = 0,
	PAWL_CUDA = 1,
};

struct pawl_device {
	uint16_t kind;		/* enum pawl_device_kind */
	uint16_t id;
};

/* Values as MXNet's FnProperty. */
enum pawl_prop {
	PAWL_NORMAL = 0,
	PAWL_COPY_FROM_DEVICE = 1,	/* copy-out queue of the device */
	PAWL_COPY_TO_DEVICE = 2,	/* copy-in queue of the device */
	PAWL_CPU_PRIORITIZED = 3,	/* the CPU priority queue */
	PAWL_ASYNC = 4,			/* on the pushing thread if ready at the push */
	PAWL_DELETE_VAR = 5,		/* before all other ready ops; see pawl_var_delete() */
	PAWL_GPU_PRIORITIZED = 6,	/* the device's priority queue (normal on a CPU) */
	PAWL_NO_SKIP = 7,		/* runs even if its vars are poisoned */
};

/* op.flags */
#define PAWL_OP_NO_SKIP	1u	/* as PAWL_NO_SKIP, with any property */
#define PAWL_OP_CQ	2u	/* op.cq and op.tag: report the completion there */
#define PAWL_OP_DEADLINE 4u	/* op.deadline_ns: do not start later */
#define PAWL_OP_TICKET	8u	/* *op.ticket: the push returns a ticket */
#define PAWL_OP_NOTES	(PAWL_OP_CQ | PAWL_OP_DEADLINE | PAWL_OP_TICKET)

/* What a body may look at while it runs (an asynchronous one: until it returns). */
struct pawl_run {
	struct pawl_engine *engine;
	struct pawl_device device;
	int status;		/* inherited error (only a body that is not skipped sees one), or 0 */
	void *stream;		/* the device's stream; NULL on a CPU */
	pawl_token_t token;	/* asynchronous bodies */
	void *reserved;
};

/*
 * Bodies.  A synchronous body returns 0, or a negative errno that poisons the
 * vars it would have written; pawl_fail() attaches a message.  An asynchronous
 * body starts something and returns; pawl_complete(run->token) ends the op, from
 * any thread, exactly once, during the body or later.
 */
typedef int (*pawl_fn)(struct pawl_run *run, void *arg);
typedef void (*pawl_async_fn)(struct pawl_run *run, void *arg);
/*
 * Called once when the op is over, ran or not, with 0 or the op's error; after the
 * body and before its vars are released.  Not called by a push that was refused,
 * with one exception: -ESTALE from a push that raced with a delete, see pawl_push().
 */
typedef void (*pawl_release_fn)(void *arg, int status);

/* One op.  Zero it, or begin with PAWL_OP_INIT. */
struct pawl_op {
	size_t size;			/* sizeof(struct pawl_op) */
	pawl_fn fn;			/* exactly one of fn and async_fn; or neither: */
	pawl_async_fn async_fn;		/*   an op with no body only orders */
	void *arg;
	pawl_release_fn release;	/* may be NULL */
	const pawl_var_t *reads;	/* a var named twice is one access; */
	const pawl_var_t *writes;	/*   a write wins over a read */
	uint32_t nreads;
	uint32_t nwrites;
	int32_t priority;		/* higher first, in every queue; FIFO among a thread's equals */
	uint16_t prop;			/* enum pawl_prop */
	uint16_t flags;			/* PAWL_OP_* */
	struct pawl_device device;
	const char *name;		/* for traces and messages; must outlive the engine */
	/* Each is read only if its flag is set. */
	pawl_cq_t cq;
	uint64_t tag;
	int64_t deadline_ns;		/* absolute, CLOCK_MONOTONIC */
	pawl_ticket_t *ticket;		/* written before the op can run */
};

#define PAWL_OP_INIT { sizeof(struct pawl_op), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0 }, 0, \
	{ 0 }, 0, 0, 0 }

/* Where an error came from. */
struct pawl_error {
	int code;		/* negative errno; 0: none */
	unsigned int count;	/* wait-all: how many ops failed by themselves */
	char op[48];		/* name of the op that failed first, if it has one */
	char text[160];		/* its message */
	void *payload;		/* what came with it, now the caller's; see pawl_fail_with() */
};

enum pawl_kind {
	PAWL_PER_DEVICE = 0,	/* normal, copy-in and copy-out queues per device; one of
				   priority for all CPUs, and one for each other device */
	PAWL_POOLED = 1,	/* one pool for all devices, one copy lane */
	PAWL_NAIVE = 2,		/* every op runs inside its push */
};

/* What a push does at the limit of ops in flight (config.window). */
enum pawl_window_policy {
	PAWL_WINDOW_FAIL = 0,	/* -EAGAIN */
	PAWL_WINDOW_BLOCK = 1,	/* wait until there is room; run ready ops only if some queue
				   has no workers, or the engine is stopped */
	PAWL_WINDOW_HELP = 2,	/* run ready ops on the pushing thread until there is room, and
				   some of them when more than 1024 ops are in flight, so that
				   the backlog stays in the caches */
};

/* Fill with pawl_config_init(), then change what you need. */
struct pawl_config {
	size_t size;
	int kind;			/* enum pawl_kind */
	int workers;			/* threads per CPU device (pooled: in all); 0: none of
					   our own, the host drives; default: CPUs online less
					   one, for the pusher, at least one */
	int priority_workers;		/* threads for PAWL_CPU_PRIORITIZED; default 1 */
	int copy_workers;		/* threads for each copy queue; default 1 */
	unsigned int cpu_devices;	/* CPU devices, at most 64; default 1 */
	unsigned int max_ops;		/* ops in memory at once; default 2^18, at most 2^20 - 4096 */
	unsigned int max_vars;		/* vars alive at once, rounded up; default 2^18, at most 2^20 */
	unsigned int max_threads;	/* threads inside the engine at once; default 256 */
	unsigned int window;		/* ops in flight, exact if the policy is to fail, else to
					   within an eighth per pushing thread; 0: max_ops; an op
					   on a device counts until its work is in a stream:
					   device_window bounds what is in there */
	int window_policy;		/* enum pawl_window_policy; default HELP; with no_help and
					   workers BLOCK */
	bool no_help;			/* waiting threads only wait (default: they run ready
					   ops; inside a body they always do) */
	bool prefault;			/* touch all memory at creation: no page fault later */
	uint64_t spin_ns;		/* a thread looks for work this long before it sleeps;
					   default 20000 */
	uint64_t reserved;		/* not read */
	const int *cpus;		/* workers are pinned to these in turn; NULL: not pinned */
	unsigned int ncpus;
	const char *name;		/* prefix of thread names, at most 7 bytes; "pawl" */
	const struct pawl_device *devices;	/* besides CPUs, at most 16; copied */
	unsigned int ndevices;
	int device_streams;		/* compute streams per device; default 16, at most 32 */
	int device_workers;		/* threads that issue a device's normal ops; default 1 */
	unsigned int device_window;	/* ops whose work is in the compute streams of a device (in
					   its copy-in, copy-out, priority, an adopted stream) and
					   not over; or window, if that is less.  Ops beyond it
					   are issued later and count for window.  Default 512 */
	void (*thread_start)(void *user, const char *name);	/* first on every worker */
	void (*thread_stop)(void *user, const char *name);	/* last on every worker */
	void *user;
	void (*drop)(void *user, void *payload);	/* a payload that no caller got */
	uint64_t trim_ns;		/* a worker that has slept this long gives memory back as
					   pawl_trim() does; 0, or with prefault: none does;
					   default 1000000000 */
};

/*
 * Every field's default.  The macro says how long the struct is in this header; the function
 * of its name, for programs that look symbols up, writes the 152 bytes of release 0.1.  Any
 * thread; wait-free.
 */
PAWL_API void pawl_config_init(struct pawl_config *cfg);
PAWL_API void pawl_config_init_size(struct pawl_config *cfg, size_t size);
#define pawl_config_init(cfg) pawl_config_init_size((cfg), sizeof(struct pawl_config))

/*
 * Create an engine; cfg NULL means defaults.  Any number per process; no thread
 * exists before the first op that needs it, but one for config.devices.  -EINVAL (which
 * field), -ENOMEM, -EAGAIN; -ENODEV, -EOWNERDEAD (config.devices).  Blocking: allocates.
 */
PAWL_API int pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out);
/*
 * Drain, join the workers, free everything.  NULL is fine.  The caller sees to it
 * that no other thread of the program is inside a call on the engine or will make
 * one; ops that run may still push.  From inside a body: -EDEADLK.  In a child of
 * fork(): only forgets the memory.  Blocking: waits for all ops.
 */
PAWL_API int pawl_engine_destroy(struct pawl_engine *e);
/*
 * Stop: drain and join the workers; the engine stays usable, pushes are accepted (at the
 * window a pusher runs ready ops) and wait until pawl_engine_start() (or until a waiting thread runs them).
 * Both repeatable, by several threads at once too: one after the other.  From inside a
 * body: -EDEADLK.  Blocking.
 */
PAWL_API int pawl_engine_stop(struct pawl_engine *e);
PAWL_API int pawl_engine_start(struct pawl_engine *e);

/* Any thread.  -ENOMEM when max_vars are alive.  Lock-free. */
PAWL_API int pawl_var_create(struct pawl_engine *e, pawl_var_t *out);
/*
 * Push an op that writes the var, runs fn(arg) (may be NULL) before any other
 * ready op of its queue, and ends the var.  From the place of this op on, the handle is stale.
 * Any thread; lock-free; errors as pawl_push().
 */
PAWL_API int pawl_var_delete(struct pawl_engine *e, pawl_var_t v, pawl_fn fn, void *arg);
/* Writes completed on the var so far; reads do not count.  Any thread; lock-free. */
PAWL_API int pawl_var_version(struct pawl_engine *e, pawl_var_t v, uint64_t *out);
/*
 * The error that poisons the var now, without waiting or clearing: 0, or its code
 * and, if err is given, its text.  That is of the newest write that is over, if not more
 * than one waits behind it.  -ESTALE.  Any thread; lock-free.
 */
PAWL_API int pawl_var_error(struct pawl_engine *e, pawl_var_t v, struct pawl_error *err);
/* Forget that error, on this var and wherever it spread.  Any thread; lock-free. */
PAWL_API int pawl_var_clear(struct pawl_engine *e, pawl_var_t v);
/* Both in one: what a wait would give, without waiting; of several callers one gets it. */
PAWL_API int pawl_var_take(struct pawl_engine *e, pawl_var_t v, struct pawl_error *err);

/*
 * Push an op.  Any thread; lock-free; no allocation by the C library, no lock and no
 * system call, except to wake a sleeping worker, to touch memory for the first
 * time, on a thread's first call, when a run queue grows, for the first op of a queue
 * (which creates its workers), and to block where window_policy says so.
 * -EINVAL (which field), -ENODEV, -ESTALE, -E2BIG (more vars than an op can have),
 * -EAGAIN (window), -ENOMEM.  A refused push has no effect.  If the ops in flight use up
 * some pool of objects (large ops: limits.md), a push waits for a completion, or is refused
 * with -EAGAIN, as window_policy says for the window; -ENOMEM: the system refuses memory, or
 * nothing is in flight and the objects still do not suffice.  A body never waits at the
 * window: its pushes are accepted as long as there are objects (max_ops and some more);
 * without any it runs ready ops, and gets -ENOMEM if there are none.  One case of
 * -ESTALE is different: when a var is deleted by another thread during the very
 * push, the op keeps its place on its other vars, does not run, and ends with
 * release(arg, -ESTALE); op->release is then called, so a caller that uses it to
 * free arg must not free it a second time: pawl_push() returns -ESTALE if release
 * has not been and will not be called, and 0 otherwise.
 */
PAWL_API int pawl_push(struct pawl_engine *e, const struct pawl_op *op);
/*
 * A batch: push n ops that take their places together, at one point in time, as one op
 * would: no other push comes between them on any var.  All or nothing.  Any thread;
 * errors as pawl_push(), and -E2BIG for more ops than max_ops or too many vars in all.
 * One with more ops than window waits until nothing is in flight (-E2BIG if the policy is to
 * fail).  Ops that run inside the push, by their property, do so when the others are queued.
 * Lock-free; allocates when it is larger than all that the thread pushed before.
 */
PAWL_API int pawl_push_batch(struct pawl_engine *e, const struct pawl_op *ops, size_t n);
/*
 * End one run of an asynchronous body with 0 or a negative errno and a message
 * (copied; may be NULL).  Any thread.  -EALREADY when it was completed before;
 * -EINVAL.  Lock-free, in steps bounded by the accesses that it releases.
 */
PAWL_API int pawl_complete(struct pawl_engine *e, pawl_token_t token, int status,
			   const char *text);
/* For a synchronous body: keep a message for the error it returns.  Returns code. */
PAWL_API int pawl_fail(struct pawl_run *run, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * The same two with something of the program's beside the message: an exception, a
 * status object.  It goes where the error goes; one call that gives the error out (a wait,
 * pawl_var_take()) hands it over in err->payload.  If nobody gets it, config.drop is called
 * with it, on any thread; also at once if there is no failure that it could go with.
 */
PAWL_API int pawl_fail_with(struct pawl_run *run, int code, const char *text, void *payload);
PAWL_API int pawl_complete_with(struct pawl_engine *e, pawl_token_t token, int status,
				const char *text, void *payload);

/*
 * Graphs: ops described once and pushed many times, also before earlier runs are complete.
 * A push of a graph is one op with the vars of all its ops: it takes its positions at one
 * point in time, and the bodies run one after the other, in the order of the array.  A body
 * that fails fails the run, and the bodies behind it do not run.
 *   create:  n from 1 to 4096.  The ops are copied.  They have the same device, prop and flags,
 *            and none is asynchronous, unless it is the only one and is not captured.  Each
 *            op's release is called once, with status 0, when the graph was deleted and its
 *            last run is complete, or when the engine is destroyed.
 *   push:    how says where, and with which priority; NULL: as the first op.
 *   refresh: what the bodies would queue has changed; the next pushes capture it again.
 *   delete:  the handle is stale from then on; runs that were pushed still run.
 * PAWL_GRAPH_CAPTURE: what the bodies queue on a device's stream depends on their arguments
 * alone.  Where the device can, that work is captured at the second push, and later pushes
 * replay it without calling the bodies.
 * Any thread.  Errors as pawl_push(); -ESTALE for the graph or one of its vars.  create is
 * blocking, because it allocates; push, refresh and delete are lock-free.
 */
#define PAWL_GRAPH_CAPTURE	1u

/* One push of a graph. */
struct pawl_launch {
	size_t size;			/* sizeof(struct pawl_launch) */
	int32_t priority;
	struct pawl_device device;
};

PAWL_API int pawl_graph_create(struct pawl_engine *e, const struct pawl_op *ops, size_t n,
			       unsigned int flags, pawl_graph_t *out);
PAWL_API int pawl_graph_push(struct pawl_engine *e, pawl_graph_t graph,
			     const struct pawl_launch *how);
PAWL_API int pawl_graph_refresh(struct pawl_engine *e, pawl_graph_t graph);
PAWL_API int pawl_graph_delete(struct pawl_engine *e, pawl_graph_t graph);

/*
 * Waits.  timeout_ns < 0: no limit; 0: only look; else -ETIMEDOUT.  A wait is a
 * registration on the var: it neither queues behind other work nor wakes anybody
 * else.  While it waits the thread runs ready ops (config.no_help).
 *   readable: all writes pushed before are over; gives the var's error once, then
 *             the error is gone.
 *   writable: all reads pushed before are over too.  Its place is that of a write: while
 *             it waits, and after a timeout until it would have been granted, reads that
 *             are pushed later stay behind it.
 *   all:      no op is in flight.  Gives the first error and the number of failed
 *             ops since the last time, then forgets all errors.
 * Inside a body: -EDEADLK at once if the wait is for that op itself (or, for all,
 * always).  Any thread.  Blocking by purpose.
 */
PAWL_API int pawl_wait_readable(struct pawl_engine *e, pawl_var_t v, int64_t timeout_ns,
				struct pawl_error *err);
PAWL_API int pawl_wait_writable(struct pawl_engine *e, pawl_var_t v, int64_t timeout_ns,
				struct pawl_error *err);
PAWL_API int pawl_wait_all(struct pawl_engine *e, int64_t timeout_ns, struct pawl_error *err);

/*
 * Completion queues: how a host learns of completed ops in its own loop.  An op with
 * PAWL_OP_CQ names a queue and a tag.  When the op is complete and its vars are released, tag
 * and status (0, or the error that the op ended with, its own or an inherited one) arrive in
 * the queue, once; room for that is reserved by the push, so none is lost.  An op whose push
 * was refused does not arrive.  Any number of queues up to 1024, for example one per I/O thread.
 *   create:  -ENOMEM.
 *   destroy: -EBUSY while ops name it whose completions were not reaped; -ESTALE.  A thread
 *            that waits for the queue returns with -ESTALE.  Destroying the engine destroys
 *            its queues.
 *   reap:    take up to n completions without waiting, in the order in which they arrived;
 *            returns how many.  -EBUSY: another thread reaps this queue.  -ESTALE, -EINVAL.
 *   wait:    until there is something to reap.  timeout_ns and helping as for the other waits;
 *            -ETIMEDOUT, -ESTALE, -EBUSY (another thread waits for this queue).
 *   fd:      a descriptor that is readable while there is something to reap, for epoll, poll,
 *            libuv, asyncio or io_uring.  Level-triggered: reap clears it when it empties the
 *            queue.  It belongs to the engine: do not read, write or close it.  The engine
 *            writes to it only when the queue was empty.  -ESTALE, or the errno of eventfd(2).
 * Any thread.  reap is wait-free but for the pool (lock-free), and one read(2) if the fd was
 * written; create and destroy lock-free; wait blocking; fd: a system call on its first use.
 */
struct pawl_completion {
	uint64_t tag;
	int status;
	int reserved;
};

PAWL_API int pawl_cq_create(struct pawl_engine *e, pawl_cq_t *out);
PAWL_API int pawl_cq_destroy(struct pawl_engine *e, pawl_cq_t cq);
PAWL_API int pawl_cq_reap(struct pawl_engine *e, pawl_cq_t cq, struct pawl_completion *out,
			  unsigned int n);
PAWL_API int pawl_cq_wait(struct pawl_engine *e, pawl_cq_t cq, int64_t timeout_ns);
PAWL_API int pawl_cq_fd(struct pawl_engine *e, pawl_cq_t cq);

/*
 * Tickets, deadlines, cancelling.  An op that was canceled before it started, or whose deadline
 * has passed when it would start, never starts: it ends with -ECANCELED or -ETIMEDOUT, once,
 * as if its body had failed, so what it would have written is poisoned.  A ticket is
 * handed to another thread as any other data is, with an order.
 *   state:    one of pawl_ticket_state; a ticket of a complete op, or none: COMPLETE.
 *   cancel:   0: the op will not start.  -EINPROGRESS: it has started; its body can ask.
 *             -ESTALE: it is complete.
 *   wait:     until the op is complete and its vars are released; 0, -ETIMEDOUT, -EBUSY
 *             (another thread waits for it), -EDEADLK (from inside the op).
 *   canceled: for a body: 0, -ECANCELED after pawl_cancel(), or -ETIMEDOUT when its deadline
 *             has passed.  An asynchronous body may ask until it returns.
 * Any thread.  state and canceled wait-free, cancel lock-free, wait blocking.
 */
enum pawl_ticket_state {
	PAWL_TICKET_COMPLETE = 0,
	PAWL_TICKET_QUEUED = 1,
	PAWL_TICKET_RUNNING = 2,
};

PAWL_API int pawl_ticket_state(struct pawl_engine *e, pawl_ticket_t ticket);
PAWL_API int pawl_ticket_wait(struct pawl_engine *e, pawl_ticket_t ticket, int64_t timeout_ns);
PAWL_API int pawl_cancel(struct pawl_engine *e, pawl_ticket_t ticket);
PAWL_API int pawl_run_canceled(const struct pawl_run *run);

/*
 * The host as a worker: run one ready op of any CPU queue on the calling thread.
 * 1: ran one, 0: none is ready, negative: error.  Lock-free but for the body.
 */
PAWL_API int pawl_run_one(struct pawl_engine *e);
/*
 * A descriptor for the event loop of a host that runs the ops of an engine with config.workers 0:
 * readable while an op may be ready.  It stays readable until pawl_run_one() returns 0, so a
 * loop can run one op per turn, or all of them.  Several threads may read it.  It belongs to
 * the engine: do not read, write or close it.  A push writes to it only when the queues were
 * empty.  -EINVAL: the engine has workers, or is naive; or the errno of eventfd(2).  Any
 * thread; the first call makes a system call, then wait-free.
 */
PAWL_API int pawl_ready_fd(struct pawl_engine *e);
/*
 * Run ready ops until done(user) is true, or the time is over (-ETIMEDOUT).  done() is
 * looked at after each op, and when work is pushed: whoever makes it true in another way
 * pushes an op, or the call may sleep until its time is over.
 */
PAWL_API int pawl_run_until(struct pawl_engine *e, bool (*done)(void *user), void *user,
			    int64_t timeout_ns);

/*
 * What the engine did so far; counted per thread, added up here.  Set size before.  Any
 * thread; wait-free; -EINVAL (size).
 */
struct pawl_stats {
	size_t size;
	uint64_t pushed, completed;	/* waits that had to wait included */
	uint64_t failed, skipped, inlined;
	uint64_t helped;		/* ops run by waiting or pushing threads */
	uint64_t handed;		/* ops run at once by the thread that made them ready */
	uint64_t stolen;		/* ops taken from another thread's ready list */
	uint64_t records, helps;	/* pushes that met an unfinished push, or finished one */
	uint64_t sleeps, wakes;		/* futex calls of idle threads, and to wake them */
	uint64_t vars, ops, blocks;	/* objects carved so far */
	uint64_t bytes;			/* of memory committed, and not given back since */
	unsigned int threads, workers;
};

PAWL_TAG_BEGIN
PAWL_API int pawl_stats(struct pawl_engine *e, struct pawl_stats *out);
PAWL_TAG_END
/*
 * Give memory back to the system: of what ops, vars and what else an engine needs took, all
 * pages on which nothing is in use.  What the calling thread keeps at hand for its next
 * pushes is given up first; other threads keep theirs, up to 128 objects of each kind.
 * Handles and tokens stay what they are: one of something that ended is refused as before.
 * Any thread, also in a body; others push and run ops meanwhile.  Lock-free, and system
 * calls: it waits for nobody.  It takes a time in proportion to what is free, some 25 ms
 * for 100 MB.  An engine's workers do it themselves when they have slept for config.trim_ns.  0; -EINVAL and what else the system says if it refuses (locked pages),
 * -EAGAIN, -ENOMEM, -EOWNERDEAD as any first call of a thread.
 */
PAWL_API int pawl_trim(struct pawl_engine *e);
/*
 * Write what goes on as text: how many ops are in flight, pushes that are under way,
 * bodies that run, asynchronous ops that are not completed, threads that wait, and every
 * var that is not at rest, with its newest waiting reader.  Safe while anything is
 * stuck: no lock, no allocation.  Any thread; the errno of write().
 */
PAWL_API int pawl_dump(struct pawl_engine *e, int fd);

/*
 * Trace: keep the last n events per thread (push, start, end, dependency); write
 * them as Chrome trace JSON (opens in Perfetto).  Any thread.  start forgets the trace
 * before; -EINVAL (n), -EALREADY.  stop is wait-free.  write comes after stop; -EBUSY, -EINVAL,
 * -ENOMEM, the errno of the file.  Both are blocking: they wait until no thread is writing an
 * event any more.  All: -ENOSYS without CONFIG_TRACE.
 */
PAWL_API int pawl_trace_start(struct pawl_engine *e, unsigned int events_per_thread);
PAWL_API int pawl_trace_stop(struct pawl_engine *e);
PAWL_API int pawl_trace_write(struct pawl_engine *e, const char *path);

/*
 * Recording: all that the process's engines do, in a file that pawl record and pawl replay
 * read: ops with their vars, devices, properties, priorities, times of push, begin and
 * end, and the place that each access took in its var.  One recording at a time; the
 * environment variable PAWL_RECORD=file starts one with the first engine.  stop returns
 * what went wrong with the file meanwhile.  -EINVAL, -EALREADY, -EBUSY (the file is being
 * recorded to already), -EOWNERDEAD (a child of fork), of the file; -ENOMEM; -ENOSYS
 * without CONFIG_RECORD.  Any thread.  Blocking.
 */
PAWL_API int pawl_record_start(const char *path);
PAWL_API int pawl_record_stop(void);

/* What the last failed call of this thread has to say; never NULL.  Wait-free. */
PAWL_API const char *pawl_error_text(void);
/* "0.1.0" */
PAWL_API const char *pawl_version(void);

#ifdef __cplusplus
}
#endif

#endif
