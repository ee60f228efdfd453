/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl/mx_bridge.h - what the layer with MXNet's names stands on (libpawl_mx).
 *
 * MXNet's engine in C, with nothing of a language: vars, ops whose bodies may throw, waits
 * that give the exception back.  <pawl/mx_c_api.h>, <pawl/mx_engine.hpp> and what pawl mxnet
 * preloads (compat/mxnet/pawl_mxnet.cc) are written on it, and so can other front ends be.
 *
 * Functions return 0 or a negative errno; pawl_mx_last_error() of the same thread says what
 * was wrong, in full.  Any thread may call anything, also from a body.
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

/* Values as MXNet's Context::DeviceType. */
enum pawl_mx_device {
	PAWL_MX_CPU = 1,
	PAWL_MX_GPU = 2,
	PAWL_MX_CPU_PINNED = 3,
	PAWL_MX_CPU_SHARED = 5,
};

/* In memory as mxnet::Context, RunContext and CallbackOnComplete of MXNet 1.9.1. */
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

/* Call it: cb.callback(cb.engine, cb.param, error), error being NULL or a dmlc::Error. */
struct pawl_mx_callback {
	void (*callback)(struct pawl_mx_engine *engine, void *param, const void *error);
	struct pawl_mx_engine *engine;
	void *param;
};

/*
 * Bodies, all with void pointers as in MXNet's C API: run is a struct pawl_mx_run, on_start
 * and on_complete are struct pawl_mx_callback, which may be copied.  A body may throw a C++
 * exception, or a synchronous one call pawl_mx_fail(): then the op fails.
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
	 * Called once with arg: when the op is over and before its vars are released, ran or
	 * not; at once if the push is refused.
	 */
	void (*drop)(void *arg);
	bool keep;		/* drop is not called while the body is on a stack either */
	bool wait;		/* runs even if its vars are poisoned */
	bool timed;		/* the profiler of the hooks is told of it */
	bool in_room;		/* arg is a room of this op alone, which drop gives back */
	int prop;		/* enum pawl_prop, which are MXNet's numbers */
	int priority;
	const char *name;	/* copied; may be NULL */
	struct pawl_mx_context ctx;
	struct pawl_mx_var *const *reads;
	struct pawl_mx_var *const *writes;
	size_t nreads, nwrites;
};

/*
 * What a front end puts in place of this library's: NULL is ours.  Before the first engine.
 */
struct pawl_mx_hooks {
	/* On each new worker; ours tells OpenMP what MXNet recommends. */
	void (*worker_start)(void);
	/*
	 * The profiler.  While it adds up there is no bulk.  An op that is to be timed begins
	 * before its body, and ends, on whatever thread, when it is over.
	 */
	bool (*aggregating)(void);
	void *(*begin)(const char *name);
	void (*end)(void *task);
	/* Its bodies know no streams of ours: GPU contexts are refused. */
	bool cpus_only;
};

PAWL_API void pawl_mx_set_hooks(const struct pawl_mx_hooks *hooks);

/*
 * Engines, with the environment's settings; the process has one that is everybody's.  free
 * waits for everything first; of the process's engine the next get makes another one.
 */
PAWL_API int pawl_mx_engine_create(int kind, struct pawl_mx_engine **out);
PAWL_API int pawl_mx_engine_free(struct pawl_mx_engine *e);
/* The process's; made on the first call, by MXNET_ENGINE_TYPE.  NULL: see last_error(). */
PAWL_API struct pawl_mx_engine *pawl_mx_engine_get(void);
/*
 * exception: as in the waits below; from a body, stop does nothing, and in the child of a
 * fork, as long as the engine is not there again, neither does anything.
 */
PAWL_API int pawl_mx_engine_stop(struct pawl_mx_engine *e, void **exception);
PAWL_API int pawl_mx_engine_start(struct pawl_mx_engine *e);
/* From now on only the bodies of deletes run; all others complete without. */
PAWL_API int pawl_mx_engine_shutdown(struct pawl_mx_engine *e);
PAWL_API int pawl_mx_engine_kind(struct pawl_mx_engine *e);
/* The engine below; another one after a fork. */
PAWL_API struct pawl_engine *pawl_mx_engine_pawl(struct pawl_mx_engine *e);

/* The first bytes of a var are the front end's, aligned as anything. */
#define PAWL_MX_VAR_ROOM 16
PAWL_API int pawl_mx_var_new(struct pawl_mx_engine *e, struct pawl_mx_var **out);
/* fn(run, arg) and then drop(arg), both may be NULL; the var is nobody's from here on. */
PAWL_API int pawl_mx_var_delete(struct pawl_mx_engine *e, struct pawl_mx_var *var,
				struct pawl_mx_context ctx, pawl_mx_sync_fn fn, void *arg,
				void (*drop)(void *arg));
PAWL_API uint64_t pawl_mx_var_version(struct pawl_mx_var *var);

/*
 * A refused push has no effect, but drop was called.  In the naive kind the op is over when
 * the push returns, and if it failed, the push returns its error: see exception below.
 */
PAWL_API int pawl_mx_push(struct pawl_mx_engine *e, const struct pawl_mx_op *op,
			  void **exception);
PAWL_API int pawl_mx_opr_new(struct pawl_mx_engine *e, const struct pawl_mx_op *op,
			     struct pawl_mx_opr **out);
PAWL_API int pawl_mx_opr_push(struct pawl_mx_engine *e, struct pawl_mx_opr *opr,
			      struct pawl_mx_context ctx, int priority, void **exception);
PAWL_API int pawl_mx_opr_delete(struct pawl_mx_engine *e, struct pawl_mx_opr *opr);

/* Synchronous bodies in C: the op fails with this text. */
PAWL_API void pawl_mx_fail(void *run, const char *text);
/* on_complete from C: text NULL is success.  -EALREADY when it was called before. */
PAWL_API int pawl_mx_complete(const void *on_complete, const char *text);

/*
 * Waits: 0, or the failure of an op, given once, or of the call.  If exception is not NULL
 * it gets a std::exception_ptr of the heap when the failure was a C++ exception, for
 * pawl_mx_exception_free(); else NULL.  Without, the exception is dropped.
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
 * push, wait, delete or question of the thread, when the size changes, when the thread ends,
 * and when it stops the engine or anybody frees it.  If the push is refused, because another
 * thread deleted a var meanwhile, each function's drop is called, and the thread's next wait
 * returns the error.  set returns the limit before.
 */
PAWL_API int pawl_mx_bulk_size(struct pawl_mx_engine *e);
PAWL_API int pawl_mx_set_bulk_size(struct pawl_mx_engine *e, int size);

/* A block of PAWL_MX_ROOM bytes, aligned as anything, from a pool; for arg, and in_room. */
#define PAWL_MX_ROOM 64
PAWL_API void *pawl_mx_room_get(void);
PAWL_API void pawl_mx_room_put(void *room);

/*
 * Arrays (handles of <pawl/mx_c_api.h>, on the process's engine): the var that stands for the
 * memory, NULL for an array that is none; and an asynchronous copy of all elements, as
 * MXNet's CopyFromTo and _copyto: between different contexts on a copy queue of the target,
 * else on the normal one.
 */
PAWL_API struct pawl_mx_var *pawl_mx_nd_var(void *nd);
PAWL_API int pawl_mx_nd_copy(void *from, void *to, int priority);

/*
 * Resources, as MXNet's ResourceManager has them: a few temporary spaces per context
 * (MXNET_CPU_TEMP_COPY of them, given out in turn), and a random generator.  An op that uses
 * one names its var among those that it writes; that is all that guards it.
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
/* In the op: at least size bytes, aligned to 64; what it held before may be lost. */
PAWL_API void *pawl_mx_resource_space(const struct pawl_mx_resource *r, size_t size);
/* In the op: the next 64 random bits. */
PAWL_API uint64_t pawl_mx_resource_random(const struct pawl_mx_resource *r);

/* What the calling thread's last failed call has to say; never NULL. */
PAWL_API const char *pawl_mx_last_error(void);
PAWL_API void pawl_mx_set_last_error(const char *text);

#ifdef __cplusplus
}
#endif

#endif
