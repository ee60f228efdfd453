/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl/mx_bridge.h - the base of the layer with MXNet's interface (libpawl_mx).
 *
 * MXNet's engine in C, independent of a front end's language: vars, ops whose bodies may
 * throw, waits that return the exception.  <pawl/mx_c_api.h>, <pawl/mx_engine.hpp> and the
 * library that pawl mxnet preloads (compat/mxnet/pawl_mxnet.cc) use it, and so may other front
 * ends.
 *
 * Functions return 0 or a negative errno; pawl_mx_last_error() on the same thread returns the
 * full reason.  Any thread may make any call, also from a body.
 */
#ifndef PAWL_MX_BRIDGE_H
#define PAWL_MX_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pawl/visibility.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pawl_engine;
struct pawl_mx_engine;
struct pawl_mx_var;
struct pawl_mx_opr;

enum pawl_mx_kind {
	PAWL_MX_NAIVE,
	PAWL_MX_POOLED,
	PAWL_MX_PER_DEVICE,
};

/* The values of MXNet's Context::DeviceType. */
enum pawl_mx_device {
	PAWL_MX_CPU = 1,
	PAWL_MX_GPU = 2,
	PAWL_MX_CPU_PINNED = 3,
	PAWL_MX_CPU_SHARED = 5,
};

/* The layout of mxnet::Context, RunContext and CallbackOnComplete of MXNet 1.9.1. */
struct pawl_mx_context {
	int32_t dev_type;	/* enum pawl_mx_device */
	int32_t dev_id;
};

struct pawl_mx_run {
	struct pawl_mx_context ctx;
	void *stream;		/* NULL on a CPU */
	void *aux_stream;
	bool is_bulk;
};

/* To call it: cb.callback(cb.engine, cb.param, error), where error is NULL or a dmlc::Error. */
struct pawl_mx_callback {
	void (*callback)(struct pawl_mx_engine *engine, void *param, const void *error);
	struct pawl_mx_engine *engine;
	void *param;
};

/*
 * Bodies, all with void pointers as in MXNet's C API: run is a struct pawl_mx_run, on_start
 * and on_complete are struct pawl_mx_callback, which may be copied.  The op fails if its body
 * throws a C++ exception, or if a synchronous body calls pawl_mx_fail().
 */
typedef void (*pawl_mx_sync_fn)(void *run, void *arg);
typedef void (*pawl_mx_async_fn)(void *run, void *on_complete, void *arg);
typedef void (*pawl_mx_start_fn)(void *run, void *on_start, void *on_complete, void *arg);

struct pawl_mx_op {
	/* exactly one of them */
	pawl_mx_sync_fn sync;
	pawl_mx_async_fn async;
	pawl_mx_start_fn async_start;
	void *arg;
	/*
	 * Called once with arg: when the op is complete, whether it ran or not, and before its
	 * vars are released; at once if the push is refused.
	 */
	void (*drop)(void *arg);
	bool keep;		/* drop is not called before the body has returned */
	bool wait;		/* runs even if its vars are poisoned */
	bool timed;		/* measured by the profiler of the hooks */
	bool in_room;		/* arg is a room used by this op alone, which drop frees */
	int prop;		/* enum pawl_prop, which are MXNet's numbers */
	int priority;
	const char *name;	/* copied; may be NULL */
	struct pawl_mx_context ctx;
	struct pawl_mx_var *const *reads;
	struct pawl_mx_var *const *writes;
	size_t nreads, nwrites;
};

/*
 * Functions of a front end that replace this library's own, which NULL selects.  Set them
 * before the first engine is created.
 */
struct pawl_mx_hooks {
	/* Called on each new worker; the default sets MXNet's recommended OpenMP threads. */
	void (*worker_start)(void);
	/*
	 * The profiler.  While it aggregates there is no bulk.  begin is called before the body
	 * of a timed op, and end when the op is complete, on any thread.
	 */
	bool (*aggregating)(void);
	void *(*begin)(const char *name);
	void (*end)(void *task);
	/*
	 * The name under which the profiler measures the delete of a var that the calling
	 * thread makes now, or NULL if it does not.  NULL: it measures none.
	 */
	const char *(*delete_name)(void);
	/* The front end's bodies do not support streams: refuse GPU contexts. */
	bool cpus_only;
};

PAWL_API void pawl_mx_set_hooks(const struct pawl_mx_hooks *hooks);

/*
 * Engines use the environment's settings.  The process has one shared engine.  free waits for
 * all ops first; after free of the shared engine the next get creates a new one.
 */
PAWL_API int pawl_mx_engine_create(int kind, struct pawl_mx_engine **out);
PAWL_API int pawl_mx_engine_free(struct pawl_mx_engine *e);
/*
 * Return the shared engine, created on the first call according to MXNET_ENGINE_TYPE, or NULL
 * on failure (pawl_mx_last_error()).
 */
PAWL_API struct pawl_mx_engine *pawl_mx_engine_get(void);
/*
 * stop returns the error of an op and sets exception as the waits below do; if exception is NULL,
 * errors stay with the vars that they poisoned, for later calls.  From a body, stop has no effect;
 * neither has any call in the child of a fork until the engine was created again.
 */
PAWL_API int pawl_mx_engine_stop(struct pawl_mx_engine *e, void **exception);
PAWL_API int pawl_mx_engine_start(struct pawl_mx_engine *e);
/* From now on only the bodies of deletes run; other ops complete without their bodies. */
PAWL_API int pawl_mx_engine_shutdown(struct pawl_mx_engine *e);
PAWL_API int pawl_mx_engine_kind(struct pawl_mx_engine *e);
/* The underlying engine, which is another one after a fork. */
PAWL_API struct pawl_engine *pawl_mx_engine_pawl(struct pawl_mx_engine *e);

/* The first bytes of a var belong to the front end, with the largest alignment. */
#define PAWL_MX_VAR_ROOM 16
PAWL_API int pawl_mx_var_new(struct pawl_mx_engine *e, struct pawl_mx_var **out);
/* Calls fn(run, arg), then drop(arg); both may be NULL.  The var must not be used any more. */
PAWL_API int pawl_mx_var_delete(struct pawl_mx_engine *e, struct pawl_mx_var *var,
				struct pawl_mx_context ctx, pawl_mx_sync_fn fn, void *arg,
				void (*drop)(void *arg));
PAWL_API uint64_t pawl_mx_var_version(struct pawl_mx_var *var);

/*
 * A refused push has no effect except that drop is called.  In the naive kind the op is
 * complete when the push returns; if it failed, the push returns its error, with exception
 * set as by the waits below.
 */
PAWL_API int pawl_mx_push(struct pawl_mx_engine *e, const struct pawl_mx_op *op,
			  void **exception);
PAWL_API int pawl_mx_opr_new(struct pawl_mx_engine *e, const struct pawl_mx_op *op,
			     struct pawl_mx_opr **out);
PAWL_API int pawl_mx_opr_push(struct pawl_mx_engine *e, struct pawl_mx_opr *opr,
			      struct pawl_mx_context ctx, int priority, void **exception);
PAWL_API int pawl_mx_opr_delete(struct pawl_mx_engine *e, struct pawl_mx_opr *opr);

/* For synchronous bodies in C: let the op fail with this text. */
PAWL_API void pawl_mx_fail(void *run, const char *text);
/* Call on_complete from C; text NULL means success.  -EALREADY if it was called before. */
PAWL_API int pawl_mx_complete(const void *on_complete, const char *text);

/*
 * Waits return 0, or the failure of an op, which is reported once, or of the call itself.  If
 * exception is not NULL and the failure was a C++ exception, *exception is a pointer to a
 * std::exception_ptr on the heap, to be freed by pawl_mx_exception_free(); otherwise it is
 * NULL.  With exception NULL the exception is dropped.
 */
PAWL_API int pawl_mx_wait_var(struct pawl_mx_engine *e, struct pawl_mx_var *var,
			      void **exception);
PAWL_API int pawl_mx_wait_write(struct pawl_mx_engine *e, struct pawl_mx_var *var,
				void **exception);
PAWL_API int pawl_mx_wait_all(struct pawl_mx_engine *e, void **exception);
PAWL_API int pawl_mx_var_throw(struct pawl_mx_engine *e, struct pawl_mx_var *var,
			       void **exception);
PAWL_API void pawl_mx_exception_free(void *exception);

/*
 * The calling thread's limit, one for all its engines; 0 in the naive kind.  While it is
 * n > 1, consecutive synchronous pushes with PAWL_NORMAL and priority 0 on one device gather
 * into one op.  It is pushed when n are gathered (at most 64, on 256 vars), before any other
 * push, wait, delete or query of the thread, when the size changes, when the thread ends, when
 * it stops the engine, and when any thread frees the engine.  If the push is refused, because another
 * thread deleted a var meanwhile, each function's drop is called, and the thread's next wait
 * returns the error.  set returns the limit before.
 */
PAWL_API int pawl_mx_bulk_size(struct pawl_mx_engine *e);
PAWL_API int pawl_mx_set_bulk_size(struct pawl_mx_engine *e, int size);

/* A block of PAWL_MX_ROOM bytes with the largest alignment, from a pool; for arg and in_room. */
#define PAWL_MX_ROOM 64
PAWL_API void *pawl_mx_room_get(void);
PAWL_API void pawl_mx_room_put(void *room);

/*
 * Arrays (handles of <pawl/mx_c_api.h>, on the shared engine).  pawl_mx_nd_var() returns the
 * var of the array's memory, or NULL for an array without memory.  pawl_mx_nd_copy() copies
 * all elements asynchronously, like MXNet's CopyFromTo and _copyto: between different contexts
 * on a copy queue of the target, otherwise on the normal queue.
 */
PAWL_API struct pawl_mx_var *pawl_mx_nd_var(void *nd);
PAWL_API int pawl_mx_nd_copy(void *from, void *to, int priority);

/*
 * Resources, like those of MXNet's ResourceManager: temporary spaces per context
 * (MXNET_CPU_TEMP_COPY of them, returned in turn), and a random generator.  An op that uses a
 * resource must name its var among those that it writes; nothing else guards it.
 */
enum pawl_mx_resource_type {
	PAWL_MX_RANDOM,		/* one per context */
	PAWL_MX_TEMP_SPACE,
	PAWL_MX_PARALLEL_RANDOM,	/* MXNET_CPU_PARALLEL_RAND_COPY of them */
};

struct pawl_mx_resource {
	int type;
	int id;
	struct pawl_mx_var *var;
	void *ptr;
};

PAWL_API int pawl_mx_resource_get(struct pawl_mx_context ctx, int type,
				  struct pawl_mx_resource *out);
/* For the op's body: at least size bytes, aligned to 64; old contents may be lost. */
PAWL_API void *pawl_mx_resource_space(const struct pawl_mx_resource *r, size_t size);
/* For the op's body: the next 64 random bits. */
PAWL_API uint64_t pawl_mx_resource_random(const struct pawl_mx_resource *r);

/* The message of the calling thread's last failed call; never NULL. */
PAWL_API const char *pawl_mx_last_error(void);
PAWL_API void pawl_mx_set_last_error(const char *text);

#ifdef __cplusplus
}
#endif

#endif
