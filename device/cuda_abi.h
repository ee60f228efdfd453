/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the CUDA runtime's binary interface that device/cuda.c uses, according to its
 * documentation, so that pawl builds without CUDA.  Handles are pointers, enums are int.
 * tests/device/abi.c compares it with the real headers where they are installed.
 *
 * CUDA_CALLS(X) expands X(name, arguments) for every function that is used; each returns an
 * error code as int.  All of them are the same in every release since 11.4.
 */
#ifndef DEVICE_CUDA_ABI_H
#define DEVICE_CUDA_ABI_H

#include <stddef.h>

enum {
	CU_SUCCESS = 0,
	CU_INVALID_VALUE = 1,
	CU_MEMORY_ALLOCATION = 2,
	CU_INITIALIZATION = 3,
	CU_UNLOADING = 4,
	CU_INSUFFICIENT_DRIVER = 35,
	CU_DEVICES_UNAVAILABLE = 46,
	CU_NO_DEVICE = 100,
	CU_INVALID_DEVICE = 101,
	CU_ECC = 214,
	CU_NVLINK = 220,
	CU_INVALID_HANDLE = 400,
	CU_NOT_READY = 600,
	CU_ILLEGAL_ADDRESS = 700,
	CU_LAUNCH_TIMEOUT = 702,
	CU_ASSERT = 710,
	CU_HARDWARE_STACK = 714,
	CU_ILLEGAL_INSTRUCTION = 715,
	CU_MISALIGNED_ADDRESS = 716,
	CU_INVALID_ADDRESS_SPACE = 717,
	CU_INVALID_PC = 718,
	CU_LAUNCH_FAILURE = 719,
	CU_NOT_SUPPORTED = 801,
	CU_SYSTEM_NOT_READY = 802,
	CU_SYSTEM_DRIVER_MISMATCH = 803,
	CU_UNKNOWN = 999,

	CU_STREAM_NON_BLOCKING = 1,
	CU_EVENT_DISABLE_TIMING = 2,
	CU_HOST_ALLOC_PORTABLE = 1,
	CU_CAPTURE_THREAD_LOCAL = 1,

	CU_COPY_H2H = 0,
	CU_COPY_H2D = 1,
	CU_COPY_D2H = 2,
	CU_COPY_D2D = 3,
	CU_COPY_DEFAULT = 4,

	CU_ATTR_MULTIPROCESSORS = 16,
	CU_ATTR_MAJOR = 75,
	CU_ATTR_MINOR = 76,
};

/* In all releases the properties begin with the name and are smaller than this. */
#define CU_PROPERTIES_BYTES	8192

#define CUDA_CALLS(X)								\
	X(cudaGetDeviceCount, (int *n))						\
	X(cudaGetDeviceProperties, (void *properties, int id))			\
	X(cudaDeviceGetAttribute, (int *value, int attribute, int id))		\
	X(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest))	\
	X(cudaDriverGetVersion, (int *version))					\
	X(cudaRuntimeGetVersion, (int *version))				\
	X(cudaGetLastError, (void))						\
	X(cudaSetDevice, (int id))						\
	X(cudaGetDevice, (int *id))						\
	X(cudaMemGetInfo, (size_t *free, size_t *total))			\
	X(cudaMalloc, (void **p, size_t bytes))					\
	X(cudaFree, (void *p))							\
	X(cudaHostAlloc, (void **p, size_t bytes, unsigned int flags))		\
	X(cudaFreeHost, (void *p))						\
	X(cudaMallocAsync, (void **p, size_t bytes, void *stream))		\
	X(cudaFreeAsync, (void *p, void *stream))				\
	X(cudaStreamCreateWithPriority, (void **stream, unsigned int flags, int priority)) \
	X(cudaStreamDestroy, (void *stream))					\
	X(cudaStreamQuery, (void *stream))					\
	X(cudaStreamSynchronize, (void *stream))				\
	X(cudaStreamWaitEvent, (void *stream, void *event, unsigned int flags))	\
	X(cudaEventCreateWithFlags, (void **event, unsigned int flags))		\
	X(cudaEventDestroy, (void *event))					\
	X(cudaEventRecord, (void *event, void *stream))				\
	X(cudaEventQuery, (void *event))					\
	X(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, void *stream)) \
	X(cudaMemsetAsync, (void *to, int byte, size_t bytes, void *stream))	\
	X(cudaLaunchHostFunc, (void *stream, void (*fn)(void *arg), void *arg))	\
	X(cudaStreamBeginCapture, (void *stream, int mode))			\
	X(cudaStreamEndCapture, (void *stream, void **graph))			\
	X(cudaGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags)) \
	X(cudaGraphLaunch, (void *exec, void *stream))				\
	X(cudaGraphExecDestroy, (void *exec))					\
	X(cudaGraphDestroy, (void *graph))

/* The one function that returns text. */
typedef const char *(*cu_error_string_fn)(int code);

#endif
