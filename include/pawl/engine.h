/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl/engine.h - the engine: vars, ops, waits.
 *
 * A program creates vars, which are tags for pieces of data, and pushes ops, which name the
 * vars that they read and write.  The engine runs each op as soon as its data allows, in
 * parallel, in an order that a serial program could have had:
 *
 *   - Every var is a FIFO of accesses.  Consecutive reads run together, a write runs alone,
 *     and a read behind a waiting write waits, so writers never starve.
 *   - A push over k vars takes its positions in all k FIFOs at one point in time, from any
 *     thread, without a lock.  So no set of concurrent pushes can deadlock.
 *
 * A batch is several ops that are pushed at one point in time.  A graph is several ops that are
 * described once and pushed many times, each time as one op.
 *
 * This file follows the life of a program: create an engine, create vars, describe ops, push
 * them, wait, handle errors, use the engine in the threads of a host, inspect it.
 *
 * Conventions.
 *   Results: a call returns 0 or a negative errno, if nothing else is stated;
 *     pawl_error_text() then says what was wrong and where.  The list of errors of each call
 *     is in its manual page; a few are named here.  Every call can return -EUSERS (more than
 *     config.max_threads threads), -ENOMEM (a thread's first call allocates) and -EOWNERDEAD
 *     (in a child of fork()).
 *   Structs: one that the caller fills begins with its size, sizeof(struct ...), so that
 *     programs and libraries of different releases work together.
 *   Handles are values, and {0} is none.  A handle of something that was deleted, or of
 *     another engine, is refused with -ESTALE.
 *   Times are in nanoseconds.  Those named timeout_ns are relative: negative means no limit,
 *     and 0 means do not wait.
 *   Threads: "any thread" includes the bodies of ops and threads that the engine has never
 *     seen.  Every call may be made by any thread, if nothing else is stated.
 *   Progress says what other threads can do to a call.  Wait-free: nothing.  Lock-free: they
 *     delay it only by succeeding themselves.  Blocking: it waits for what its contract names.
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
struct pawl_error;		/* see "Errors" */

/* A var, and a graph of ops. */
typedef struct pawl_var { uint64_t h; } pawl_var_t;
typedef struct pawl_graph { uint64_t h; } pawl_graph_t;
/* The right, and the duty, to complete one run of an asynchronous body. */
typedef struct pawl_token { uint64_t h; } pawl_token_t;
/* A completion queue, and one push of an op. */
typedef struct pawl_cq { uint64_t h; } pawl_cq_t;
typedef struct pawl_ticket { uint64_t h; } pawl_ticket_t;
/* A group of ops, with its own count and limits.  {0} is the engine. */
typedef struct pawl_group { uint64_t h; } pawl_group_t;

/* --- Create an engine --------------------------------------------------------------- */

/* Where an op runs: a CPU device (ids below config.cpu_devices), or one of pawl/device.h. */
enum pawl_device_kind {
	PAWL_CPU = 0,
	PAWL_CUDA = 1,
};

struct pawl_device {
	uint16_t kind;		/* enum pawl_device_kind */
	uint16_t id;
};

enum pawl_kind {
	PAWL_PER_DEVICE = 0,	/* each device has a normal, a copy-in and a copy-out queue; all
				   CPUs share a priority queue, other devices have their own */
	PAWL_POOLED = 1,	/* one queue for all devices, and one for all copies */
	PAWL_NAIVE = 2,		/* every op runs inside its push */
};

/* What a push does when config.window ops are in flight. */
enum pawl_window_policy {
	PAWL_WINDOW_FAIL = 0,	/* it fails with -EAGAIN */
	PAWL_WINDOW_BLOCK = 1,	/* it waits until there is room; meanwhile it runs the ops of
				   queues that have no workers, and no others */
};

/* Set it with pawl_config_init(), then change what you need. */
struct pawl_config {
	size_t size;
	int kind;			/* enum pawl_kind; default PAWL_PER_DEVICE */
	int workers;			/* threads per CPU device (pooled: in all); 0: none, and
					   the host runs the ops; default: one less than the
					   CPUs that the affinity mask and the CPU quota of the
					   cgroup permit, at least one */
	int priority_workers;		/* threads for PAWL_CPU_PRIORITIZED; default 1 */
	int copy_workers;		/* threads for each copy queue; default 1 */
	unsigned int cpu_devices;	/* CPU devices, at most 64; default 1 */
	unsigned int max_ops;		/* ops in memory at once; default 2^18, at most
					   2^20 - 4096 */
	unsigned int max_vars;		/* vars alive at once, rounded up, at most 2^26; 0, the
					   default: 2^26, and 2^18 with prefault */
	unsigned int max_threads;	/* threads inside the engine at once, at most 2047; 0, the
					   default: 2047, and 256 with prefault */
	unsigned int window;		/* ops in flight and completions that are not reaped; 0,
					   the default: max_ops.  Exact if the policy is to fail,
					   else to within an eighth per pushing thread.  An op on
					   a device counts until its work is queued: see
					   device_window */
	int window_policy;		/* enum pawl_window_policy; -1, the default: BLOCK */
	bool reserved_2;		/* not read */
	bool prefault;			/* touch all memory at creation, so that no page fault
					   comes later; default false */
	uint64_t spin_ns;		/* a thread looks for work this long before it sleeps,
					   or not at all while its idle times are longer;
					   default 20000, or 0 with one usable CPU */
	uint64_t reserved;		/* not read */
	const int *cpus;		/* CPUs to which the workers are pinned in turn; default
					   NULL: they are not pinned */
	unsigned int ncpus;
	const char *name;		/* prefix of thread names, at most 7 bytes; "pawl" */
	const struct pawl_device *devices;	/* besides CPUs, at most 16; copied */
	unsigned int ndevices;
	int device_streams;		/* compute streams per device; default 16, at most 32 */
	int device_workers;		/* threads that issue a device's normal ops; default 1 */
	unsigned int device_window;	/* ops whose work is queued on the compute streams of a
					   device and not complete, and as many on its copy-in,
					   its copy-out, its priority and each adopted stream;
					   default 512, at most window.  Ops beyond it are
					   issued later and count for window */
	void (*thread_start)(void *user, const char *name);	/* called first on every worker */
	void (*thread_stop)(void *user, const char *name);	/* called last on every worker */
	void *user;
	void (*drop)(void *user, void *payload);	/* called with a payload that no call
							   returned: pawl_fail_with() */
	uint64_t trim_ns;		/* a worker that has slept this long frees memory as
					   pawl_trim() does; default 10^9.  With 0, or with
					   prefault, none does */
	bool start_workers;		/* create the workers with the engine, and in
					   pawl_engine_start(), not with the first op of their
					   queue; default false */
	int sched_policy;		/* of the engine's threads: SCHED_OTHER, SCHED_FIFO or
					   SCHED_RR; default -1: as the thread that creates them */
	int sched_priority;		/* 1 to 99 with SCHED_FIFO and SCHED_RR, else 0 */
	size_t stack_size;		/* of these threads; default 0: the C library's */
	const char *cpu_list;		/* CPUs on which they may run, such as "0-3,8".  Lists for
					   the CPU devices, for example one per NUMA node, are
					   separated by semicolons: "0-3;4-7".  Default NULL */
	/* Set if the host creates the threads: thread_create starts one that calls fn(arg), and
	   returns 0 or a negative errno; thread_join waits for its end.  Default NULL. */
	int (*thread_create)(void *user, void *(*fn)(void *arg), void *arg, void **thread);
	void (*thread_join)(void *user, void *thread);
	bool strict_priority;		/* an op waits as long as there are others with a higher
					   priority, for real-time programs.  Default false: it
					   starts at the latest 10 ms after it became ready, plus
					   a body per worker, if it is the only one that waits
					   for that; such ops take at most half of the time of
					   one worker */
};

/*
 * Set every field to its default.  The macro passes the size of the struct in this header.  The
 * function with the same name, for programs that look up symbols, writes the 152 bytes of
 * release 0.1.
 * Progress: blocking, because it reads the files of the process's cgroup.
 */
PAWL_API void pawl_config_init(struct pawl_config *cfg);
PAWL_API void pawl_config_init_size(struct pawl_config *cfg, size_t size);
#define pawl_config_init(cfg) pawl_config_init_size((cfg), sizeof(struct pawl_config))

/*
 * Create an engine.  cfg may be NULL and then means the defaults.  A process can have any
 * number of engines.  A worker starts with the first op that needs it, or at once with
 * config.start_workers; with config.devices one thread exists from the beginning.  Errors:
 * -EINVAL (the text names the field), -ENOMEM, -EAGAIN, -EPERM (config.sched_policy), what
 * config.thread_create returned; with config.devices also -ENODEV and -EOWNERDEAD.
 * Progress: blocking, because it allocates.
 */
PAWL_API int pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out);
/*
 * Wait for all ops, join the workers, and free everything.  e may be NULL.  Ops that still run
 * may push, but no other thread of the program may be inside a call on the engine, or begin
 * one, except the pawl_complete() that ends an op: it waits until that has returned.  From inside a body it fails with -EDEADLK.  In a child of fork() it succeeds and frees
 * nothing: the memory may be in the middle of a change by a thread of the parent, and is returned
 * when the child ends or calls exec().
 * Progress: blocking.
 */
PAWL_API int pawl_engine_destroy(struct pawl_engine *e);
/*
 * Stop an engine: wait for all ops and join the workers.  Pushes are still accepted; their ops
 * wait for pawl_engine_start(), unless a waiting thread, or a pusher at the window, runs
 * them.  Both calls may be repeated, also by several threads at once, and then take effect one
 * after the other.  From inside a body they fail with -EDEADLK.
 * Progress: blocking.
 */
PAWL_API int pawl_engine_stop(struct pawl_engine *e);
PAWL_API int pawl_engine_start(struct pawl_engine *e);

/* --- Vars --------------------------------------------------------------------------- */

/*
 * Create a var.  Error: -ENOMEM if config.max_vars are alive, or no memory.  pawl_var_delete() deletes it.
 * Progress: lock-free.
 */
PAWL_API int pawl_var_create(struct pawl_engine *e, pawl_var_t *out);
/*
 * Return in *out the number of writes that completed on the var; reads do not count.
 * Progress: lock-free.
 */
PAWL_API int pawl_var_version(struct pawl_engine *e, pawl_var_t v, uint64_t *out);

/* --- Ops ---------------------------------------------------------------------------- */

/* Which queue an op goes to, and how.  The values are those of MXNet's FnProperty. */
enum pawl_prop {
	PAWL_NORMAL = 0,
	PAWL_COPY_FROM_DEVICE = 1,	/* the copy-out queue of the device */
	PAWL_COPY_TO_DEVICE = 2,	/* the copy-in queue of the device */
	PAWL_CPU_PRIORITIZED = 3,	/* the CPU priority queue */
	PAWL_ASYNC = 4,			/* runs inside the push if it is ready then; an asynchronous
					   body needs op.async_fn, not this */
	PAWL_DELETE_VAR = 5,		/* runs before all other ready ops: pawl_var_delete() */
	PAWL_GPU_PRIORITIZED = 6,	/* the priority queue of the device; on a CPU: normal */
	PAWL_NO_SKIP = 7,		/* runs even if its vars are poisoned */
};

/* op.flags */
#define PAWL_OP_NO_SKIP	1u	/* as PAWL_NO_SKIP, with any property */
#define PAWL_OP_CQ	2u	/* report the completion to op.cq, with op.tag */
#define PAWL_OP_DEADLINE 4u	/* do not start after op.deadline_ns */
#define PAWL_OP_TICKET	8u	/* the push writes a ticket to *op.ticket */
#define PAWL_OP_GROUP	16u	/* op.group: the op belongs to it */
#define PAWL_OP_COST	32u	/* op.cost: counts for limits on costs */
#define PAWL_OP_ARG	64u	/* copy the op.arg_size bytes at op.arg */
#define PAWL_OP_NOTES	(PAWL_OP_CQ | PAWL_OP_DEADLINE | PAWL_OP_TICKET | PAWL_OP_GROUP | \
			 PAWL_OP_COST)

/* What a body can read while it runs; an asynchronous body only until it returns. */
struct pawl_run {
	struct pawl_engine *engine;
	struct pawl_device device;
	int status;		/* the error of its vars, which only an op that is not skipped
				   finds here; else 0 */
	void *stream;		/* the device's stream; NULL on a CPU */
	pawl_token_t token;	/* for an asynchronous body: see pawl_complete() */
	void *reserved;
};

/*
 * Bodies.  A synchronous body returns 0, or a negative errno, which poisons the vars that the
 * op writes.  An asynchronous body starts something and returns; pawl_complete(run->token)
 * ends the op, on any thread, exactly once, during the body or later.
 */
typedef int (*pawl_fn)(struct pawl_run *run, void *arg);
typedef void (*pawl_async_fn)(struct pawl_run *run, void *arg);
/*
 * Called once when an op has ended, whether its body ran or not, with 0 or the error of the
 * op; after the body, before the vars are released.  A push that is refused does not call it,
 * with one exception: see pawl_push().
 */
typedef void (*pawl_release_fn)(void *arg, int status);

/* One op.  Set it to zero first, or begin with PAWL_OP_INIT. */
struct pawl_op {
	size_t size;			/* sizeof(struct pawl_op) */
	pawl_fn fn;			/* at most one of fn and async_fn; an op with */
	pawl_async_fn async_fn;		/*   neither only orders other ops */
	void *arg;
	pawl_release_fn release;	/* may be NULL */
	const pawl_var_t *reads;	/* a var that is named twice is one access, */
	const pawl_var_t *writes;	/*   a write if one of them is a write */
	uint32_t nreads;
	uint32_t nwrites;
	int32_t priority;		/* highest first; FIFO among equals of one thread */
	uint16_t prop;			/* enum pawl_prop */
	uint16_t flags;			/* PAWL_OP_* */
	struct pawl_device device;
	const char *name;		/* for traces and messages; must outlive the engine */
	/* Each of these needs its flag, and but for deadline_ns it is 0 without it. */
	pawl_cq_t cq;
	uint64_t tag;
	int64_t deadline_ns;		/* absolute, of CLOCK_MONOTONIC */
	pawl_ticket_t *ticket;		/* written before the op can run */
	pawl_group_t group;
	uint64_t cost;			/* in the host's unit, for example bytes */
	uint32_t arg_size;		/* at most PAWL_ARG_ROOM() */
	uint32_t reserved;		/* 0 */
};

#define PAWL_OP_INIT { sizeof(struct pawl_op), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0 }, 0, \
	{ 0 }, 0, 0, 0, { 0 }, 0, 0, 0 }

/*
 * With PAWL_OP_ARG the engine copies op.arg_size bytes from op.arg into the op, and passes the
 * address of the copy to the body and to release, so that a small argument needs no memory of
 * its own.  The copy is aligned to 16 bytes; the body must not write to it, and it exists until
 * the op is complete.  Its room is what the vars leave free in the op: for `vars` vars
 * (op.nreads + op.nwrites, at most 4) PAWL_ARG_ROOM(vars) bytes, and 8 fewer if op.release is
 * set or op.flags has one of PAWL_OP_NOTES.
 */
#define PAWL_ARG_ROOM(vars) ((vars) > 4 ? 0u : 72u - 16u * (unsigned int)(vars))

/* --- Push --------------------------------------------------------------------------- */

/*
 * Push an op.  The call copies *op and its lists, but not the string op->name.
 *
 * Errors: -EINVAL (the text names the field), -ENODEV, -ESTALE (a var), -E2BIG (more vars than
 * an op can have, or an argument that has no room), -EAGAIN (the window, if the policy is to
 * fail), -ENOMEM.  A refused push has no effect, with one exception: if another thread deletes
 * a var during the push, the op keeps its positions on its other vars, its body does not run,
 * and it ends with release(arg, -ESTALE).  pawl_push() then returns 0.  So it returns -ESTALE
 * only if release was not and will not be called, and a caller whose release frees arg frees
 * it itself after every error, and only then.
 *
 * Memory: if the ops in flight use up some pool of objects, a push waits for a completion or
 * fails with -EAGAIN, as config.window_policy says for the window.  -ENOMEM means that the
 * system refused memory, or that nothing is in flight and the objects still do not suffice.
 *
 * A push runs no body but its own, and that only with PAWL_ASYNC, for deletes, and in an engine
 * of kind PAWL_NAIVE, which runs what its thread pushed.  Below the window it does not
 * wait.  A push of a body, of any engine, never waits: it is accepted as long as there are objects
 * (max_ops and some more), and fails with -EAGAIN without any.
 *
 * Progress: lock-free.  It takes no lock, calls no allocator and makes no system call, except:
 * to wake a sleeping worker, to touch memory for the first time, on a thread's first call,
 * when a run queue grows, for the first op of a queue (which creates its workers), and to
 * block where window_policy says so.
 */
PAWL_API int pawl_push(struct pawl_engine *e, const struct pawl_op *op);
/*
 * A batch: push n ops at one point in time.  They take their positions together, as one op
 * does, in the order of the array: no other push comes between them on any var.  If one of
 * them is refused, none is pushed.  Ops whose property makes them run inside the push do so
 * when the others are queued.  A batch with more ops than config.window waits until nothing is
 * in flight.
 * Errors: as pawl_push(); -E2BIG also for more ops than max_ops, for too many vars in all, if
 * the policy is to fail, for more ops than window, and for ops of a group, or costs, that
 * together are beyond a limit of the group or of the engine.
 * Progress: lock-free; allocates when the batch is larger than all that the thread pushed
 * before.
 */
PAWL_API int pawl_push_batch(struct pawl_engine *e, const struct pawl_op *ops, size_t n);
/*
 * Push an op that writes the var, runs fn(arg) before any other ready op of its queue, and
 * deletes the var.  fn may be NULL.  The handle is stale from the position of this op on:
 * later pushes that name it are refused, earlier ones run.  Errors: as pawl_push().
 * Progress: lock-free.
 */
PAWL_API int pawl_var_delete(struct pawl_engine *e, pawl_var_t v, pawl_fn fn, void *arg);
/*
 * End one run of an asynchronous body with 0 or a negative errno, and a message, which is
 * copied and may be NULL.  Errors: -EALREADY if it was completed before, -EINVAL, -ESTALE.
 * Progress: lock-free, in steps bounded by the number of accesses that it releases.
 */
PAWL_API int pawl_complete(struct pawl_engine *e, pawl_token_t token, int status,
			   const char *text);

/*
 * A graph: ops described once and pushed many times, also before earlier launches are complete.
 * Which ops wait for which is computed once.  A push of the graph, a launch, is one op with the
 * vars of all ops: it takes its positions at one point in time, and counts as one op.  When it
 * is granted, the bodies run as their data allows, on the queue of the launch and with its
 * priority; when all have ended, the vars are released.
 *
 * A body that fails fails the launch.  The bodies that depend on it do not run, unless the ops
 * have PAWL_OP_NO_SKIP; those that do not depend on it run.  On a device with streams, the
 * bodies run one after the other, in the order of the array, until one fails.
 *
 *   create:  copies the n ops, 1 to 32768.  They have the same device, prop and flags.  The
 *            release of each op is called once, with status 0, when the graph was deleted and
 *            its last launch is complete, or when the engine is destroyed.
 *   push:    how has the priority and the device of the launch, and more: see struct
 *            pawl_launch.  If it is NULL, they are those of the first op.
 *   refresh: says that what the bodies queue has changed; the next pushes capture it again.
 *   delete:  makes the handle stale; launches that were pushed still run.
 *
 * Slots: an op of a graph may name PAWL_SLOT(i) in the place of a var.  Each launch says in
 * how.vars[i] which var that is, so that launches with different data need not wait for one
 * another.  {0} there means that the data belongs to this launch alone: the slot then orders
 * only its ops.  Two slots must not be the same var, and a slot must not be a var that an op of
 * the graph names.
 *
 * With PAWL_GRAPH_CAPTURE in flags, the caller promises that what the bodies queue on a
 * device's stream depends on their arguments alone.  Where the device can, that work is
 * captured at the second push, and later pushes replay it without calling the bodies.
 *
 * Errors: as pawl_push(); -ESTALE for the graph or one of its vars.  -EINVAL also for an
 * asynchronous op with PAWL_GRAPH_CAPTURE, and for one beside other ops on a device with
 * streams.
 * Progress: create is blocking, because it allocates; push, refresh and delete are lock-free.
 * A push allocates if more launches of the graph are in flight than ever before.
 */
#define PAWL_GRAPH_CAPTURE	1u

/* A var of each launch: its number in how.vars, below 65535. */
#define PAWL_SLOT_0	0x736c6f7400000000u
#define PAWL_SLOT(i)	{ PAWL_SLOT_0 | (i) }

/* Set it to zero first, apart from the size. */
struct pawl_launch {
	size_t size;			/* sizeof(struct pawl_launch) */
	int32_t priority;
	struct pawl_device device;
	const pawl_var_t *vars;		/* the vars of the slots; copied */
	void *const *args;		/* the args of the ops, which replace op.arg, or NULL;
					   copied */
	uint32_t nvars;			/* the number of slots */
	uint32_t nargs;			/* 0, or the number of ops */
	uint32_t flags;			/* those of PAWL_OP_NOTES; a field below is read only if
					   its flag is set */
	uint32_t reserved;		/* 0 */
	pawl_cq_t cq;			/* this and the following as in struct pawl_op */
	uint64_t tag;
	int64_t deadline_ns;
	pawl_ticket_t *ticket;
	pawl_group_t group;
	uint64_t cost;
};

PAWL_API int pawl_graph_create(struct pawl_engine *e, const struct pawl_op *ops, size_t n,
			       unsigned int flags, pawl_graph_t *out);
PAWL_API int pawl_graph_push(struct pawl_engine *e, pawl_graph_t graph,
			     const struct pawl_launch *how);
PAWL_API int pawl_graph_refresh(struct pawl_engine *e, pawl_graph_t graph);
PAWL_API int pawl_graph_delete(struct pawl_engine *e, pawl_graph_t graph);

/* --- Wait --------------------------------------------------------------------------- */

/*
 * Wait for the ops that were pushed before.  If err is not NULL, it receives the error that the
 * call returns.
 *
 * A wait without a limit runs ops that it waits for, if they are next among those that this
 * thread made ready: ops that name the var; for pawl_wait_all(), any ops.  With a limit it runs
 * none.  In both cases it runs the ops of queues that have no workers, and checks the limit
 * between two of them.  In a body, where a thread that only waited would block a worker, a wait
 * takes ops of the body's queue onto the stack if all its workers are inside waits, or if all are
 * inside bodies and none has taken an op for a millisecond.  It leaves them to an idle worker, also
 * if the system does not run that one, but no longer than 10 s.
 *
 *   readable: until all writes of the var are complete.  Returns the error that poisons the
 *             var, and clears it, so that one wait reports it.
 *   writable: as readable, and until all reads of the var are complete.  It has the position
 *             of a write: reads that are pushed later stay behind it while it waits, and after
 *             a timeout until it would have been granted.
 *   all:      until no op is in flight.  Returns the first error since the last such wait that
 *             no other call has reported or cleared, and clears all errors.  If there is one,
 *             err->count is the number of ops that failed by themselves since that wait, also
 *             of those whose errors were reported or cleared.  In a body it always fails with
 *             -EDEADLK.
 *
 * Errors: besides those of ops, -ETIMEDOUT, -ESTALE, and -EDEADLK in a body that waits for its
 * own op.
 * Progress: blocking.
 */
PAWL_API int pawl_wait_readable(struct pawl_engine *e, pawl_var_t v, int64_t timeout_ns,
				struct pawl_error *err);
PAWL_API int pawl_wait_writable(struct pawl_engine *e, pawl_var_t v, int64_t timeout_ns,
				struct pawl_error *err);
PAWL_API int pawl_wait_all(struct pawl_engine *e, int64_t timeout_ns, struct pawl_error *err);

/* --- Errors ------------------------------------------------------------------------- */

/*
 * The text of the last call of this thread that failed: what was wrong, and where.  It is
 * never NULL, and valid until the next call that fails.
 * Progress: wait-free.
 */
PAWL_API const char *pawl_error_text(void);

/*
 * The error of an op, and where it came from.  An op that fails poisons the vars that it
 * writes.  An op that reads or writes a poisoned var is skipped, and poisons what it would
 * have written, unless it is pushed with PAWL_OP_NO_SKIP.  The error stays until a call
 * reports or clears it.
 */
struct pawl_error {
	int code;		/* a negative errno; 0: none */
	unsigned int count;	/* pawl_wait_all(): how many ops failed; other calls: 1 */
	char op[48];		/* name of the op that failed first, if it has one */
	char text[160];		/* its message */
	void *payload;		/* of pawl_fail_with(); it belongs to the caller now */
};

/*
 * For a synchronous body: keep a message for the error that it returns.  Returns code.
 * Progress: lock-free.
 */
PAWL_API int pawl_fail(struct pawl_run *run, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * As pawl_fail() and pawl_complete(), with an object of the program beside the message, for
 * example an exception.  It propagates with the error, and the one call that reports the error
 * (a wait, pawl_var_take()) returns it in err->payload.  If none does, config.drop is called
 * with it, on any thread; at once, if there is no failure to which it belongs.
 */
PAWL_API int pawl_fail_with(struct pawl_run *run, int code, const char *text, void *payload);
PAWL_API int pawl_complete_with(struct pawl_engine *e, pawl_token_t token, int status,
				const char *text, void *payload);

/*
 * The error that poisons a var now, without waiting: return 0 or its code, and the text in
 * *err, if err is not NULL.  It is the error of the newest completed write, provided that at
 * most one write waits behind it.
 *   error: reports it and keeps it.
 *   clear: clears it, on this var and on all others to which it spread.
 *   take:  does both, as a wait does; if several threads call it, one receives the error.
 * Errors: -ESTALE.
 * Progress: lock-free.
 */
PAWL_API int pawl_var_error(struct pawl_engine *e, pawl_var_t v, struct pawl_error *err);
PAWL_API int pawl_var_clear(struct pawl_engine *e, pawl_var_t v);
PAWL_API int pawl_var_take(struct pawl_engine *e, pawl_var_t v, struct pawl_error *err);

/* --- The threads of a host ---------------------------------------------------------- */

/*
 * A thread's first call on an engine takes one of config.max_threads slots, which the thread
 * keeps until it ends.  A thread of a host may also hold a slot only between these two:
 *
 *   attach: take a slot now, with all memory that the thread's first pushes would allocate.
 *           -EUSERS, if there is no slot.  No effect for a thread that has one.
 *   detach: free the slot at once.  What the thread pushed is not affected, and its next call
 *           takes a slot again.  -EDEADLK from inside a body, or a function that the engine
 *           calls (release, drop, done).  No effect for a thread that has no slot.
 *
 * Progress: attach is blocking, because it allocates; detach is lock-free.
 */
PAWL_API int pawl_thread_attach(struct pawl_engine *e);
PAWL_API int pawl_thread_detach(struct pawl_engine *e);

/*
 * The host as a worker: run one ready op of any CPU queue on the calling thread.  Returns 1 if
 * it ran one, 0 if none is ready, or an error.
 * Progress: lock-free, apart from the body.
 */
PAWL_API int pawl_run_one(struct pawl_engine *e);
/*
 * Return a descriptor for the event loop of a host that runs the ops of an engine with
 * config.workers 0: readable while an op may be ready.  It stays readable until pawl_run_one()
 * returns 0, so a loop can run one op per turn, or all of them.  Several threads may poll it.
 * It belongs to the engine: do not read, write or close it.  A push writes to it only when
 * the queues were empty.  Errors: -EINVAL if the engine has workers or is naive, or an errno
 * of eventfd(2).
 * Progress: wait-free, after a first call that makes a system call.
 */
PAWL_API int pawl_ready_fd(struct pawl_engine *e);
/*
 * Run ready ops until done(user) returns true, or until the timeout (-ETIMEDOUT).  done() is
 * called after each op, and when work is pushed.  If something else makes it true, push an op
 * then, or the call may sleep until the timeout.  In a body the call leaves ops to idle workers,
 * as a wait does, and calls done() at least once per millisecond.
 * Progress: blocking.
 */
PAWL_API int pawl_run_until(struct pawl_engine *e, bool (*done)(void *user), void *user,
			    int64_t timeout_ns);

/*
 * Completion queues: how a host learns in its own loop that ops are complete.  An op with
 * PAWL_OP_CQ names a queue and a tag.  When the op is complete and its vars are released, one
 * completion arrives in the queue, with the tag and the status.  The status is 0, or the error
 * that the op ended with, its own or an inherited one.  The push reserves room, so no
 * completion is lost; a refused push causes none.  Until it is reaped, a completion takes the
 * room in config.window that its op had, and a push that would wait for nothing but a reap
 * fails with -EAGAIN, whatever the policy is; pawl_stats.unreaped counts them.  An engine can have 2^20
 * queues (1024 with prefault), for example one per I/O thread, and destroying the engine destroys them.
 *
 *   create:  -ENOMEM.
 *   destroy: -EBUSY while a completion of the queue is not reaped or has not arrived, or
 *            another thread reaps; -ESTALE.  A thread that waits for the queue returns with
 *            -ESTALE.
 *   reap:    take up to n completions without waiting, in the order in which they arrived.
 *            Returns their number; -EBUSY if another thread reaps this queue; -ESTALE, -EINVAL.
 *            reap_named: with the name of each op.
 *   wait:    wait until there is a completion to reap; run the ops of queues
 *            without workers, and no others.
 *            -ETIMEDOUT; -ESTALE; -EBUSY if another thread waits for this queue.
 *   fd:      return a descriptor that is readable while there is a completion to reap, for
 *            epoll, poll, libuv, asyncio or io_uring.  It is level-triggered: reap clears it
 *            when it empties the queue, and the descriptor of a destroyed queue is not
 *            readable.  It belongs to the engine: do not read, write or close it.  The engine
 *            writes to it only when the queue was empty.  -ESTALE, or an errno of eventfd(2).
 *
 * Progress: create, destroy and reap are lock-free; reap makes one read(2) if the descriptor
 * was written.  wait is blocking.  fd is wait-free; it makes system calls when it is the first
 * one, or if there are completions.
 */
struct pawl_completion {
	uint64_t tag;
	int status;
	int reserved;
};

/* The same, with the name of the op; NULL if it has none. */
struct pawl_named_completion {
	uint64_t tag;
	int status;
	int reserved;
	const char *op;
};

PAWL_API int pawl_cq_create(struct pawl_engine *e, pawl_cq_t *out);
PAWL_API int pawl_cq_destroy(struct pawl_engine *e, pawl_cq_t cq);
PAWL_API int pawl_cq_reap(struct pawl_engine *e, pawl_cq_t cq, struct pawl_completion *out,
			  unsigned int n);
PAWL_API int pawl_cq_reap_named(struct pawl_engine *e, pawl_cq_t cq,
				struct pawl_named_completion *out, unsigned int n);
PAWL_API int pawl_cq_wait(struct pawl_engine *e, pawl_cq_t cq, int64_t timeout_ns);
PAWL_API int pawl_cq_fd(struct pawl_engine *e, pawl_cq_t cq);

/*
 * Tickets, deadlines and cancellation.  An op that was canceled before it started, or whose
 * deadline has passed when it would start, never starts.  It ends with -ECANCELED or
 * -ETIMEDOUT, as if its body had failed: what it would have written is poisoned.  A ticket
 * names one push.  A program that passes it to another thread must order that as it does with
 * any other data.
 *
 *   state:    return an enum pawl_ticket_state; COMPLETE also for a stale ticket, but -ESTALE for
 *             one of another engine.
 *   wait:     wait until the op is complete and its vars are released.  -ETIMEDOUT; -EBUSY if
 *             another thread waits for this op; -EDEADLK from inside the op; -ESTALE.
 *   cancel:   return 0 if the op will not start, -EINPROGRESS if it has started (its body can
 *             call pawl_run_canceled()), or -ESTALE if it is complete.
 *   canceled: called by a body: return 0, -ECANCELED after a cancel, or -ETIMEDOUT when the
 *             deadline has passed.  An asynchronous body may call it until it returns.
 *
 * Progress: state and canceled are wait-free, cancel is lock-free, wait is blocking.
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
 * Groups: ops that are counted, limited, waited for and canceled together, for example those
 * of one client.  An op belongs to one group at most (PAWL_OP_GROUP), and may have a cost
 * (PAWL_OP_COST), which counts for its group and for the engine.  The group {0} means the
 * engine, for a limit on the cost of all ops, pawl_group_count(), pawl_group_cancel() and
 * PAWL_WAIT_ROOM.
 *
 * A push beyond a limit is refused at once with -EAGAIN, whatever config.window_policy is, and
 * with -E2BIG if op.cost alone exceeds the limit.  The host can continue when there is room: a
 * group (or the engine) has room again at limits.low percent of its limits.  If limits.cq names
 * a queue, a completion with limits.tag arrives there at that moment, one for any number of
 * refused pushes.  It can be spurious: no push was refused, or the next one is refused again.
 * For the engine, room also means limits.low percent of config.window, if a push was refused
 * because of the window (PAWL_WINDOW_FAIL).
 *
 *   create:  limits may be NULL, which means no limits.  -ENOMEM, -EINVAL, -ESTALE (limits.cq).
 *   limit:   set other limits; one thread at a time for a group.  The queue can be set once:
 *            -EBUSY for another one; the same one can have another tag.  -EINVAL, -ESTALE,
 *            -ENOMEM.
 *   count:   return the number of incomplete ops and their cost; either pointer may be NULL.
 *            -ESTALE.
 *   cancel:  the ops pushed so far that have not started end with -ECANCELED, as by
 *            pawl_cancel(); running bodies can query it.  Later pushes are not affected.
 *            For {0} all ops in flight, apart from deletes of vars; from then on each op of
 *            the engine takes a slower path.  -ESTALE.
 *   wait:    wait until all ops of the group are complete.  -ETIMEDOUT; -EDEADLK from inside
 *            one of them; -ESTALE.
 *   destroy: -EBUSY while an op of the group is not complete, its room completion is not
 *            reaped, or another thread sets its limits or destroys it; -ESTALE.
 *
 * Progress: count is wait-free; create, limit, cancel and destroy are lock-free; wait is
 * blocking.
 */
struct pawl_group_limits {
	size_t size;
	uint64_t ops;			/* largest number of incomplete ops; 0: no limit */
	uint64_t cost;			/* largest sum of their costs; 0: no limit */
	int64_t deadline_ns;		/* of all its ops, as op.deadline_ns; 0: none */
	pawl_cq_t cq;			/* receives the room completion; {0}: none */
	uint64_t tag;
	unsigned int low;		/* percent; 0 means 50 */
	unsigned int reserved;
};

PAWL_API int pawl_group_create(struct pawl_engine *e, const struct pawl_group_limits *limits,
			       pawl_group_t *out);
PAWL_API int pawl_group_limit(struct pawl_engine *e, pawl_group_t group,
			      const struct pawl_group_limits *limits);
PAWL_API int pawl_group_count(struct pawl_engine *e, pawl_group_t group, uint64_t *ops,
			      uint64_t *cost);
PAWL_API int pawl_group_cancel(struct pawl_engine *e, pawl_group_t group);
PAWL_API int pawl_group_wait(struct pawl_engine *e, pawl_group_t group, int64_t timeout_ns);
PAWL_API int pawl_group_destroy(struct pawl_engine *e, pawl_group_t group);

/*
 * Any of the waits, with flags.  what is one of the values below, or'ed with flags; h is the
 * field h of the handle that the call waits for.  Besides the waits with their own call there
 * is PAWL_WAIT_ROOM, which waits until a group, or the engine ({0}), has room again.  err is
 * for READABLE, WRITABLE and ALL, and may be NULL.
 *
 *   NO_HELP: the thread runs no ops meanwhile.  So the wait does not end if no worker runs what
 *            it waits for, and in a body it can deadlock: the thread may be that worker.
 *   INTR:    pawl_interrupt() ends the wait with -EINTR, and so does a signal handler that was
 *            installed without SA_RESTART and runs on this thread while it sleeps (before
 *            Linux 5.16 also one with SA_RESTART, if the wait has a limit).
 *
 * Errors: those of the named wait, -EINVAL (what), -EINTR, -EAGAIN (ROOM of the engine would wait
 * for nothing but a reap).
 * Progress: blocking.
 */
enum pawl_wait_what {
	PAWL_WAIT_READABLE = 0,		/* pawl_wait_readable() */
	PAWL_WAIT_WRITABLE = 1,
	PAWL_WAIT_ALL = 2,
	PAWL_WAIT_CQ = 3,		/* pawl_cq_wait() */
	PAWL_WAIT_TICKET = 4,
	PAWL_WAIT_GROUP = 5,
	PAWL_WAIT_ROOM = 6,
	PAWL_WAIT_NO_HELP = 0x100,
	PAWL_WAIT_INTR = 0x200,
};

PAWL_API int pawl_wait(struct pawl_engine *e, unsigned int what, uint64_t h, int64_t timeout_ns,
		       struct pawl_error *err);
/*
 * End one wait with PAWL_WAIT_INTR: a pending one, or if there is none the next one, so that
 * an interrupt just before a wait is not lost.  Several calls before a wait ends count as one.
 * It is async-signal-safe.
 * Progress: wait-free, linear in config.max_threads, and a system call for each thread that
 * sleeps in such a wait.
 */
PAWL_API void pawl_interrupt(struct pawl_engine *e);

/* --- Memory and insight ------------------------------------------------------------- */

/*
 * Return memory to the system: all pages of the engine's objects without an object in use.
 * The objects that the calling thread caches for its next pushes are freed first; other threads
 * keep theirs, up to 128 of each kind.  Completion queues and groups, of 128 bytes each, keep
 * their memory until the engine is destroyed.  Valid handles and tokens stay valid, and stale ones
 * stale.  Other threads may push and run ops meanwhile.  The time is proportional to the free
 * memory, some 25 ms for 100 MB.  Workers do the same after config.trim_ns of sleep.
 * Errors: those of madvise(2), for example -EINVAL for locked pages.
 * Progress: lock-free, and system calls; it waits for no thread.
 */
PAWL_API int pawl_trim(struct pawl_engine *e);

/*
 * Return what the engine did so far: the sums of the counts of all threads.  The caller sets
 * out->size.
 * Errors: -EINVAL (size).
 * Progress: wait-free.
 */
struct pawl_stats {
	size_t size;
	uint64_t pushed, completed;	/* including waits that had to wait */
	uint64_t failed, skipped, inlined;
	uint64_t helped;		/* ops run by waiting or pushing threads */
	uint64_t handed;		/* ops run at once by the thread that made them ready */
	uint64_t stolen;		/* ops taken from another thread's ready list */
	uint64_t records, helps;	/* pushes that met an unfinished push, or finished one */
	uint64_t sleeps, wakes;		/* futex calls of idle threads, and to wake them */
	uint64_t vars, ops, blocks;	/* objects made of fresh memory so far */
	uint64_t bytes;			/* of memory for objects and run queues, committed now */
	unsigned int threads, workers;
	uint64_t address_space;		/* bytes of addresses for objects; grows as they do */
	uint64_t unreaped;		/* completions that wait for a reap */
};

PAWL_TAG_BEGIN
PAWL_API int pawl_stats(struct pawl_engine *e, struct pawl_stats *out);
PAWL_TAG_END
/*
 * Return statistics of the queue for ops of this device and property: how many ready ops it
 * has, and how long they wait in it.  Ops that run at once, inside their push or on the thread
 * that made them ready, are not queued and do not count (see pawl_stats.inlined, handed).
 *
 * Waiting times are samples, so that an op pays nothing for them: of the ops that one thread
 * makes ready for the queue, one at a time carries the time, and at most one in 128.  Its
 * waiting time counts for all ops that were pushed since the last sample.  It ends when a
 * thread takes the op, alone or with up to 31 others that it runs next.
 *
 * Several devices or properties can share a queue: number and name are then the same.
 * Errors: -EINVAL (size, prop), -ENODEV.
 * Progress: wait-free, linear in config.max_threads.
 */
#define PAWL_WAIT_BUCKETS 40
struct pawl_queue_stats {
	size_t size;
	const char *name;		/* also in the names of its workers; valid until the
					   engine is destroyed */
	unsigned int number;		/* of the queue in its engine, from 0 */
	unsigned int workers;		/* existing workers */
	uint64_t depth;			/* ready ops that no thread has taken */
	uint64_t pushed, taken;
	uint64_t waits;			/* number of waiting times that were counted */
	uint64_t wait_ns;		/* their sum */
	uint64_t wait[PAWL_WAIT_BUCKETS];	/* the number of those from 2^(i - 1) to below
						   2^i ns; in the last, also all longer ones */
};

PAWL_TAG_BEGIN
PAWL_API int pawl_queue_stats(struct pawl_engine *e, struct pawl_device device,
			      unsigned int prop, struct pawl_queue_stats *out);
PAWL_TAG_END
/*
 * Write all statistics of n engines and their queues as text for Prometheus (exposition format
 * 0.0.4): counters and gauges of pawl_stats(), and for each queue its depth and a histogram of
 * waiting times, in seconds.  Each sample has the labels engine (a number that is unique in the
 * process) and name (config.name).  Returns the length of the whole text, without the
 * terminating 0; if the buffer is too small, the text in it is truncated.  buf may be NULL if
 * size is 0.
 * Errors: -EINVAL, -E2BIG (more than INT_MAX bytes).
 * Progress: wait-free, linear in n, in config.max_threads and in the number of queues.
 */
PAWL_API int pawl_prometheus(struct pawl_engine *const *engines, unsigned int n, char *buf,
			     size_t size);
/*
 * Write the present state as text: the number of ops in flight, unfinished pushes, running
 * bodies, asynchronous ops that are not completed, waiting threads, and every var that is not
 * at rest, with its newest waiting reader.  It takes no lock and allocates nothing, so it can
 * be called while anything hangs, and in a signal handler, also in one for SIGSEGV: it is
 * async-signal-safe, and does not change errno and pawl_error_text().
 * Errors: those of write(2), and -EIO.
 * Progress: bounded by the number of vars, ops and threads so far; blocking only in write(2).
 */
PAWL_API int pawl_dump(struct pawl_engine *e, int fd);
/*
 * A watchdog: call fn(arg, s) for everything that has not moved for threshold_ns or longer: a
 * body that runs, an asynchronous op that is not completed, and a queue that has ready ops and
 * from which no thread took one.
 *
 * A host calls it periodically, on any of its threads, and fn is called on that thread, inside
 * the call.  The engine has no thread and no clock for this, so that no op pays for it: each
 * call compares the state with that of the last call.  So a time counts from the first call
 * that found the state, and the second call is the first that can report something.  Another op
 * in the same place is never mistaken for the one before.  For a body that waits and runs other
 * ops meanwhile, the time counts from the end of the last of these.
 *
 * fn may call the engine, except pawl_watch() (-EBUSY).  With fn NULL the call only counts.
 * Returns the number of reports.
 * Errors: -EINVAL (threshold_ns), -EBUSY (another call is in progress), -ENOMEM (the first call
 * allocates).
 * Progress: bounded by the number of ops, threads and queues so far, and by fn.
 */
enum pawl_stalled_what {
	PAWL_STALLED_BODY = 0,
	PAWL_STALLED_ASYNC = 1,
	PAWL_STALLED_QUEUE = 2,
};

struct pawl_stalled {
	size_t size;			/* of the struct in the library, which may be newer */
	int what;			/* enum pawl_stalled_what */
	unsigned int thread;		/* slot of the thread that runs the body, or that pushed
					   the asynchronous op */
	const char *name;		/* op.name, or NULL; of a queue: pawl_queue_stats.name */
	uint64_t ns;			/* it has not moved for this long, or longer */
	pawl_var_t var;			/* the var of the op with the most ops behind it; {0} if
					   it has none, and for a queue */
	uint64_t behind;		/* number of ops that wait for that var, at most 1000,
					   or of ops in the queue */
};

typedef void (*pawl_watch_fn)(void *arg, const struct pawl_stalled *s);
PAWL_API int pawl_watch(struct pawl_engine *e, int64_t threshold_ns, pawl_watch_fn fn,
			void *arg);

/*
 * Trace: keep the last n events of each thread (push, start, end, dependency), and write them
 * as Chrome trace JSON, which opens in Perfetto.  otherData.base_ns is the CLOCK_MONOTONIC of
 * ts 0, to add events of other sources.
 *
 *   start: begin a trace, and discard the one before.  -EINVAL (n); -EALREADY.
 *   stop:  end the trace.
 *   write: write the trace to a file, after stop.  -EBUSY, -EINVAL, -ENOMEM, or an errno of the
 *          file.
 *
 * The environment variable PAWL_TRACE=file traces an engine from its creation to its end.
 *
 * All return -ENOSYS without CONFIG_TRACE.
 * Progress: stop is lock-free; start and write are blocking: they wait until no thread writes
 * an event.
 */
PAWL_API int pawl_trace_start(struct pawl_engine *e, unsigned int events_per_thread);
PAWL_API int pawl_trace_stop(struct pawl_engine *e);
PAWL_API int pawl_trace_write(struct pawl_engine *e, const char *path);

/*
 * Record all that the engines of the process do in a file, which pawl record and pawl replay
 * read: ops with their vars, devices, properties, priorities, the times of push, start and
 * end, and the position of each access in its var.  A process makes one recording at a time;
 * the environment variable PAWL_RECORD=file starts one with the first engine.
 *
 *   start: -EINVAL, -EALREADY, -EBUSY (another recording writes to the file), -EOWNERDEAD (in a
 *          child of fork()), or an errno of open(2) or write(2).
 *   stop:  returns the error of the file since start; -ENOMEM.
 *
 * Both return -ENOSYS without CONFIG_RECORD.
 * Progress: blocking.
 */
PAWL_API int pawl_record_start(const char *path);
PAWL_API int pawl_record_stop(void);

/*
 * Let other processes of the same user, and of root, observe the engines that are created from
 * now on: pawl top shows what they do, and pawl trace traces them.  The environment variable
 * PAWL_PUBLISH takes precedence: with 0 no engine is published, with 1 each is, and with a path
 * each is, by a socket in that folder.
 *
 * Nothing is written per op, and there is no thread for it until a client comes: a thread that
 * sleeps in the engine, or that takes work, looks for one about twice a second.
 *
 * Errors: -EPERM (another user owns the folder of the sockets, or may enter it), -ENAMETOOLONG
 * (PAWL_PUBLISH), an errno of mkdir(2) or open(2); -ENOSYS without CONFIG_PUBLISH.
 * Progress: blocking.
 */
PAWL_API int pawl_publish(bool on);

/* The version of the library, for example "0.1.0". */
PAWL_API const char *pawl_version(void);

#ifdef __cplusplus
}
#endif

#endif
