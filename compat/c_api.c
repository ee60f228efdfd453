// SPDX-License-Identifier: Apache-2.0
/*
 * The engine part of MXNet's C API: checks arguments and converts them for the bridge.
 *
 * A call takes ownership of its parameter: the deleter is called exactly once in every case,
 * by the bridge once it has accepted the op, and here before that.
 */
#include <stdlib.h>
#include <compat/engine.h>
#include <pawl/mx_c_api.h>

const char *MXGetLastError(void)
{
	return pawl_mx_last_error();
}
PAWL_EXPORT(MXGetLastError);

int MXGetVersion(int *out)
{
	if (!out)
		return mx_err(-1, "MXGetVersion: out is NULL");
	*out = 10901;
	return 0;
}
PAWL_EXPORT(MXGetVersion);

int MXGetGPUCount(int *out)
{
	struct pawl_mx_engine *e;

	if (!out)
		return mx_err(-1, "MXGetGPUCount: out is NULL");
	e = pawl_mx_engine_get();
	if (!e)
		return -1;
	*out = (int)e->gpus;
	return 0;
}
PAWL_EXPORT(MXGetGPUCount);

int MXNotifyShutdown(void)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();

	return e && !pawl_mx_engine_shutdown(e) ? 0 : -1;
}
PAWL_EXPORT(MXNotifyShutdown);

/* --- ops --- */

/* The arrays of an ND call as vars; long lists are allocated on the heap. */
#define ND_ON_STACK	64

struct args {
	struct pawl_mx_op op;
	ContextHandle ctx;
	EngineFnPropertyHandle prop;
	int nreads, nwrites;
	struct pawl_mx_var *room[ND_ON_STACK];
};

static int refused(const struct args *a)
{
	if (a->op.drop)
		a->op.drop(a->op.arg);
	return -1;
}

static int checked(struct args *a)
{
	if (a->nreads < 0)
		return mx_err(-1, "non-negative number of const vars expected, not %d", a->nreads);
	if (a->nwrites < 0)
		return mx_err(-1, "non-negative number of mutable vars expected, not %d", a->nwrites);
	if (!a->ctx)
		return mx_err(-1, "the context handle is NULL");
	a->op.nreads = (size_t)a->nreads;
	a->op.nwrites = (size_t)a->nwrites;
	a->op.ctx = *(const struct pawl_mx_context *)a->ctx;
	a->op.prop = a->prop ? *(const int *)a->prop : 0;
	return 0;
}

static int push(struct args *a)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();

	if (!e)
		return refused(a);
	return pawl_mx_push(e, &a->op, NULL) ? -1 : 0;
}

static int push_vars(struct args *a, EngineVarHandle reads, EngineVarHandle writes)
{
	if (checked(a))
		return refused(a);
	a->op.reads = reads;
	a->op.writes = writes;
	return push(a);
}

static int vars_of(NDArrayHandle *nds, size_t n, const char *what, struct pawl_mx_var **out)
{
	size_t i;

	if (n && !nds)
		return mx_err(-1, "the list of %s arrays is NULL", what);
	for (i = 0; i < n; i++) {
		out[i] = nds[i] ? pawl_mx_nd_var(nds[i]) : NULL;
		if (!out[i])
			return mx_err(-1, "%s array %zu is %s", what, i, nds[i] ? "none" : "NULL");
	}
	return 0;
}

static int push_nds(struct args *a, NDArrayHandle *reads, NDArrayHandle *writes)
{
	struct pawl_mx_var **vars = a->room;
	int rc;

	if (checked(a))
		return refused(a);
	if (a->op.nreads + a->op.nwrites > ND_ON_STACK) {
		vars = malloc((a->op.nreads + a->op.nwrites) * sizeof(struct pawl_mx_var *));
		if (!vars) {
			mx_err(-1, "no memory for %d + %d vars", a->nreads, a->nwrites);
			return refused(a);
		}
	}
	if (vars_of(reads, a->op.nreads, "const", vars) ||
	    vars_of(writes, a->op.nwrites, "mutable", vars + a->op.nreads)) {
		rc = refused(a);
	} else {
		a->op.reads = vars;
		a->op.writes = vars + a->op.nreads;
		rc = push(a);
	}
	if (vars != a->room)
		free(vars);
	return rc;
}

#define ARGS(form, nr, nw, waits)						\
	struct args a;								\
										\
	memset(&a.op, 0, sizeof(a.op));						\
	a.op.form = func;							\
	a.op.arg = param;							\
	a.op.drop = deleter;							\
	a.op.priority = priority;						\
	a.op.name = name;							\
	a.op.wait = waits;							\
	a.ctx = ctx;								\
	a.prop = prop;								\
	a.nreads = nr;								\
	a.nwrites = nw

int MXEnginePushAsync(EngineAsyncFuncPlain func, void *param, EngineFuncParamDeleter deleter,
		      ContextHandle ctx, EngineVarHandle reads, int nreads,
		      EngineVarHandle writes, int nwrites, EngineFnPropertyHandle prop,
		      int priority, const char *name, bool wait)
{
	ARGS(async, nreads, nwrites, wait);

	return push_vars(&a, reads, writes);
}
PAWL_EXPORT(MXEnginePushAsync);

int MXEnginePushAsyncOnStart(EngineAsyncFuncOnStart func, void *param,
			     EngineFuncParamDeleter deleter, ContextHandle ctx,
			     EngineVarHandle reads, int nreads, EngineVarHandle writes,
			     int nwrites, EngineFnPropertyHandle prop, int priority,
			     const char *name, bool wait)
{
	ARGS(async_start, nreads, nwrites, wait);

	return push_vars(&a, reads, writes);
}
PAWL_EXPORT(MXEnginePushAsyncOnStart);

int MXEnginePushSync(EngineSyncFunc func, void *param, EngineFuncParamDeleter deleter,
		     ContextHandle ctx, EngineVarHandle reads, int nreads,
		     EngineVarHandle writes, int nwrites, EngineFnPropertyHandle prop,
		     int priority, const char *name)
{
	ARGS(sync, nreads, nwrites, false);

	return push_vars(&a, reads, writes);
}
PAWL_EXPORT(MXEnginePushSync);

int MXEnginePushAsyncND(EngineAsyncFuncPlain func, void *param, EngineFuncParamDeleter deleter,
			ContextHandle ctx, NDArrayHandle *reads, int nreads,
			NDArrayHandle *writes, int nwrites, EngineFnPropertyHandle prop,
			int priority, const char *name, bool wait)
{
	ARGS(async, nreads, nwrites, wait);

	return push_nds(&a, reads, writes);
}
PAWL_EXPORT(MXEnginePushAsyncND);

int MXEnginePushAsyncNDOnStart(EngineAsyncFuncOnStart func, void *param,
			       EngineFuncParamDeleter deleter, ContextHandle ctx,
			       NDArrayHandle *reads, int nreads, NDArrayHandle *writes,
			       int nwrites, EngineFnPropertyHandle prop, int priority,
			       const char *name, bool wait)
{
	ARGS(async_start, nreads, nwrites, wait);

	return push_nds(&a, reads, writes);
}
PAWL_EXPORT(MXEnginePushAsyncNDOnStart);

int MXEnginePushSyncND(EngineSyncFunc func, void *param, EngineFuncParamDeleter deleter,
		       ContextHandle ctx, NDArrayHandle *reads, int nreads,
		       NDArrayHandle *writes, int nwrites, EngineFnPropertyHandle prop,
		       int priority, const char *name)
{
	ARGS(sync, nreads, nwrites, false);

	return push_nds(&a, reads, writes);
}
PAWL_EXPORT(MXEnginePushSyncND);

int MXSetNumOMPThreads(int thread_num)
{
	if (thread_num < 1)
		return mx_err(-1, "MXSetNumOMPThreads: %d threads", thread_num);
	mx_omp_set(thread_num);
	return 0;
}
PAWL_EXPORT(MXSetNumOMPThreads);

int MXEngineSetBulkSize(int bulk_size, int *prev_bulk_size)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	int was = e ? pawl_mx_set_bulk_size(e, bulk_size) : -1;

	if (was < 0)
		return -1;
	if (prev_bulk_size)
		*prev_bulk_size = was;
	return 0;
}
PAWL_EXPORT(MXEngineSetBulkSize);
