/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl/mx_c_api.h - the engine part of MXNet 1.9.1's c_api.h, on libpawl (libpawl_mx).
 *
 * Names, arguments and return values are MXNet's: 0, or -1 with the reason in
 * MXGetLastError() on the same thread.  A context is a pointer to a struct pawl_mx_context, a
 * property is a pointer to an int with a value of enum pawl_prop, a list of vars is an array
 * of struct pawl_mx_var *, and a list of arrays is an array of NDArrayHandle; all have
 * MXNet's layout.
 *
 * Asynchronous callbacks have two forms.  MXNet 1.9.1 calls func(run, on_complete, param);
 * its master passes an on_start before on_complete.  They are different types and different
 * functions here: MXEnginePushAsync() and MXEnginePushAsyncOnStart().  If PAWL_MX_API is
 * defined as 20000 before this header, MXNet's names refer to the second form, both the type
 * and the function, so code of one form does not compile or link as the other.
 *
 * A deleter is called exactly once, also if the call fails.
 */
#ifndef PAWL_MX_C_API_H
#define PAWL_MX_C_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pawl/mx_bridge.h>
#include <pawl/visibility.h>

#ifndef PAWL_MX_API
#define PAWL_MX_API 10901
#endif

#ifdef __cplusplus
#define PAWL_MX_DEFAULT(x) = x
#define PAWL_MX_VOID
extern "C" {
#else
#define PAWL_MX_DEFAULT(x)
#define PAWL_MX_VOID void
#endif

typedef uint32_t mx_uint;
typedef float mx_float;
typedef int64_t dim_t;

typedef void *NDArrayHandle;
typedef void *KVStoreHandle;
typedef const void *ContextHandle;
typedef const void *EngineFnPropertyHandle;
typedef void *EngineVarHandle;
typedef void *ProfileHandle;

/* on_complete, on_start: pointers to a struct pawl_mx_callback, valid during the call. */
typedef void (*EngineSyncFunc)(void *run_context, void *param);
typedef void (*EngineAsyncFuncPlain)(void *run_context, void *on_complete, void *param);
typedef void (*EngineAsyncFuncOnStart)(void *run_context, void *on_start, void *on_complete,
				       void *param);
typedef void (*EngineFuncParamDeleter)(void *param);
#if PAWL_MX_API >= 20000
typedef EngineAsyncFuncOnStart EngineAsyncFunc;
#else
typedef EngineAsyncFuncPlain EngineAsyncFunc;
#endif

PAWL_API const char *MXGetLastError(PAWL_MX_VOID);
PAWL_API int MXGetVersion(int *out);
PAWL_API int MXGetGPUCount(int *out);
/* From now on only the bodies of deletes run; other ops complete without their bodies. */
PAWL_API int MXNotifyShutdown(PAWL_MX_VOID);

/* --- ops --- */

PAWL_API int MXEnginePushAsync(EngineAsyncFuncPlain async_func, void *func_param,
			       EngineFuncParamDeleter deleter, ContextHandle ctx_handle,
			       EngineVarHandle const_vars_handle, int num_const_vars,
			       EngineVarHandle mutable_vars_handle, int num_mutable_vars,
			       EngineFnPropertyHandle prop_handle PAWL_MX_DEFAULT(NULL),
			       int priority PAWL_MX_DEFAULT(0),
			       const char *opr_name PAWL_MX_DEFAULT(NULL),
			       bool wait PAWL_MX_DEFAULT(false));
PAWL_API int MXEnginePushAsyncOnStart(EngineAsyncFuncOnStart async_func, void *func_param,
				      EngineFuncParamDeleter deleter, ContextHandle ctx_handle,
				      EngineVarHandle const_vars_handle, int num_const_vars,
				      EngineVarHandle mutable_vars_handle, int num_mutable_vars,
				      EngineFnPropertyHandle prop_handle PAWL_MX_DEFAULT(NULL),
				      int priority PAWL_MX_DEFAULT(0),
				      const char *opr_name PAWL_MX_DEFAULT(NULL),
				      bool wait PAWL_MX_DEFAULT(false));
PAWL_API int MXEnginePushSync(EngineSyncFunc sync_func, void *func_param,
			      EngineFuncParamDeleter deleter, ContextHandle ctx_handle,
			      EngineVarHandle const_vars_handle, int num_const_vars,
			      EngineVarHandle mutable_vars_handle, int num_mutable_vars,
			      EngineFnPropertyHandle prop_handle PAWL_MX_DEFAULT(NULL),
			      int priority PAWL_MX_DEFAULT(0),
			      const char *opr_name PAWL_MX_DEFAULT(NULL));
PAWL_API int MXEnginePushAsyncND(EngineAsyncFuncPlain async_func, void *func_param,
				 EngineFuncParamDeleter deleter, ContextHandle ctx_handle,
				 NDArrayHandle *const_nds_handle, int num_const_nds,
				 NDArrayHandle *mutable_nds_handle, int num_mutable_nds,
				 EngineFnPropertyHandle prop_handle PAWL_MX_DEFAULT(NULL),
				 int priority PAWL_MX_DEFAULT(0),
				 const char *opr_name PAWL_MX_DEFAULT(NULL),
				 bool wait PAWL_MX_DEFAULT(false));
PAWL_API int MXEnginePushAsyncNDOnStart(EngineAsyncFuncOnStart async_func, void *func_param,
					EngineFuncParamDeleter deleter, ContextHandle ctx_handle,
					NDArrayHandle *const_nds_handle, int num_const_nds,
					NDArrayHandle *mutable_nds_handle, int num_mutable_nds,
					EngineFnPropertyHandle prop_handle PAWL_MX_DEFAULT(NULL),
					int priority PAWL_MX_DEFAULT(0),
					const char *opr_name PAWL_MX_DEFAULT(NULL),
					bool wait PAWL_MX_DEFAULT(false));
PAWL_API int MXEnginePushSyncND(EngineSyncFunc sync_func, void *func_param,
				EngineFuncParamDeleter deleter, ContextHandle ctx_handle,
				NDArrayHandle *const_nds_handle, int num_const_nds,
				NDArrayHandle *mutable_nds_handle, int num_mutable_nds,
				EngineFnPropertyHandle prop_handle PAWL_MX_DEFAULT(NULL),
				int priority PAWL_MX_DEFAULT(0),
				const char *opr_name PAWL_MX_DEFAULT(NULL));
/* Sets the calling thread's number of OpenMP threads, if the program uses OpenMP. */
PAWL_API int MXSetNumOMPThreads(int thread_num);
/* prev_bulk_size may be NULL. */
PAWL_API int MXEngineSetBulkSize(int bulk_size, int *prev_bulk_size);

#if PAWL_MX_API >= 20000
#define MXEnginePushAsync MXEnginePushAsyncOnStart
#define MXEnginePushAsyncND MXEnginePushAsyncNDOnStart
#endif

/* --- arrays: memory with a var; dense, on CPUs --- */

PAWL_API int MXNDArrayCreateNone(NDArrayHandle *out);
PAWL_API int MXNDArrayCreate(const uint32_t *shape, uint32_t ndim, int dev_type, int dev_id,
			     int delay_alloc, NDArrayHandle *out);
PAWL_API int MXNDArrayCreateEx(const uint32_t *shape, uint32_t ndim, int dev_type, int dev_id,
			       int delay_alloc, int dtype, NDArrayHandle *out);
PAWL_API int MXNDArrayCreateEx64(const int64_t *shape, int ndim, int dev_type, int dev_id,
				 int delay_alloc, int dtype, NDArrayHandle *out);
/* The last handle frees the memory, by an op that follows all ops on the array. */
PAWL_API int MXNDArrayFree(NDArrayHandle handle);
/* size counts elements.  Both wait for all earlier ops on the array and report their error. */
PAWL_API int MXNDArraySyncCopyFromCPU(NDArrayHandle handle, const void *data, size_t size);
PAWL_API int MXNDArraySyncCopyToCPU(NDArrayHandle handle, void *data, size_t size);
/* i must be -1: there are no sparse parts. */
PAWL_API int MXNDArraySyncCopyFromNDArray(NDArrayHandle handle_dst,
					  const NDArrayHandle handle_src, const int i);
/* Waits for all ops on the array.  Dense arrays, the only ones here, always have their format. */
PAWL_API int MXNDArraySyncCheckFormat(NDArrayHandle handle, const bool full_check);
PAWL_API int MXNDArrayWaitToRead(NDArrayHandle handle);
PAWL_API int MXNDArrayWaitToWrite(NDArrayHandle handle);
PAWL_API int MXNDArrayWaitAll(PAWL_MX_VOID);
/* Views: another handle on the same memory and var. */
PAWL_API int MXNDArraySlice(NDArrayHandle handle, uint32_t slice_begin, uint32_t slice_end,
			    NDArrayHandle *out);
PAWL_API int MXNDArraySlice64(NDArrayHandle handle, int64_t slice_begin, int64_t slice_end,
			      NDArrayHandle *out);
PAWL_API int MXNDArrayAt(NDArrayHandle handle, uint32_t idx, NDArrayHandle *out);
PAWL_API int MXNDArrayAt64(NDArrayHandle handle, int64_t idx, NDArrayHandle *out);
PAWL_API int MXNDArrayReshape(NDArrayHandle handle, int ndim, int *dims, NDArrayHandle *out);
PAWL_API int MXShallowCopyNDArray(NDArrayHandle src, NDArrayHandle *out);
/* The results are valid as long as the handle. */
PAWL_API int MXNDArrayGetShape(NDArrayHandle handle, uint32_t *out_dim,
			       const uint32_t **out_pdata);
PAWL_API int MXNDArrayGetShapeEx(NDArrayHandle handle, int *out_dim, const int **out_pdata);
PAWL_API int MXNDArrayGetShapeEx64(NDArrayHandle handle, int *out_dim,
				   const int64_t **out_pdata);
PAWL_API int MXNDArrayGetData(NDArrayHandle handle, void **out_pdata);
PAWL_API int MXNDArrayGetDType(NDArrayHandle handle, int *out_dtype);
PAWL_API int MXNDArrayGetContext(NDArrayHandle handle, int *out_dev_type, int *out_dev_id);
PAWL_API int MXNDArrayGetStorageType(NDArrayHandle handle, int *out_storage_type);

/* --- random numbers --- */

PAWL_API int MXRandomSeed(int seed);
PAWL_API int MXRandomSeedContext(int seed, int dev_type, int dev_id);

/* --- the profiler: pawl's trace of the process's engine --- */

PAWL_API int MXSetProcessProfilerConfig(int num_params, const char *const *keys,
					const char *const *vals, KVStoreHandle kvstore_handle);
PAWL_API int MXSetProfilerConfig(int num_params, const char *const *keys,
				 const char *const *vals);
PAWL_API int MXSetProcessProfilerState(int state, int profile_process,
				       KVStoreHandle kvstore_handle);
PAWL_API int MXSetProfilerState(int state);
PAWL_API int MXDumpProcessProfile(int finished, int profile_process,
				  KVStoreHandle kvstore_handle);
PAWL_API int MXDumpProfile(int finished);
PAWL_API int MXProcessProfilePause(int paused, int profile_process,
				   KVStoreHandle kvstore_handle);
PAWL_API int MXProfilePause(int paused);
PAWL_API int MXAggregateProfileStatsPrint(const char **out_str, int reset);
PAWL_API int MXAggregateProfileStatsPrintEx(const char **out_str, int reset, int format,
					    int sort_by, int ascending);

/*
 * Objects for durations, counters and instants that a program names itself.  While the profiler
 * runs they are recorded and appear in the table and in the dump.  scope is "global",
 * "process", "thread", "task" or "marker".  A domain is never freed.
 */
PAWL_API int MXProfileCreateDomain(const char *domain, ProfileHandle *out);
PAWL_API int MXProfileCreateTask(ProfileHandle domain, const char *task_name, ProfileHandle *out);
PAWL_API int MXProfileCreateFrame(ProfileHandle domain, const char *frame_name,
				  ProfileHandle *out);
PAWL_API int MXProfileCreateEvent(const char *event_name, ProfileHandle *out);
PAWL_API int MXProfileCreateCounter(ProfileHandle domain, const char *counter_name,
				    ProfileHandle *out);
PAWL_API int MXProfileDestroyHandle(ProfileHandle frame_handle);
PAWL_API int MXProfileDurationStart(ProfileHandle duration_handle);
PAWL_API int MXProfileDurationStop(ProfileHandle duration_handle);
PAWL_API int MXProfileSetCounter(ProfileHandle counter_handle, uint64_t value);
PAWL_API int MXProfileAdjustCounter(ProfileHandle counter_handle, int64_t value);
PAWL_API int MXProfileSetMarker(ProfileHandle domain, const char *instant_marker_name,
				const char *scope);

#ifdef __cplusplus
}
#endif
#undef PAWL_MX_DEFAULT
#undef PAWL_MX_VOID

#endif
