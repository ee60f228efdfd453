// SPDX-License-Identifier: Apache-2.0
/*
 * A CUDA runtime without CUDA: the functions that device/cuda.c uses, implemented with the
 * fake device, so that tests execute cuda.c on machines without a GPU.  The library contains a
 * second copy of fake.c.
 *
 * Tests call fakecudart_*() to configure it, to make a call fail, and to count calls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <device/cuda_abi.h>
#include "fake.h"

#define API __attribute__((visibility("default")))

#define X(name, args) API int name args;
CUDA_CALLS(X)
#undef X
API const char *cudaGetErrorString(int code);
API void fakecudart_setup(const struct fake_setup *s);
API u32 fakecudart_step(u64 choice);
API void fakecudart_fail(u64 n, int code);
API u64 fakecudart_calls(void);
API void fakecudart_counts(struct fake_counts *out);
API void fakecudart_lose(int id);
API u64 fakecudart_calls_of(const char *name);
API void fakecudart_unload(void);
API int fakecudart_urgent(void);
API int fakecudart_kind(void);
API int fakecudart_handles(void);
API int fakecudart_memory(void);

/* Handles: a device, and the handle of the fake device. */
struct handle {
	void *dev, *h;
};

static struct fake_setup setup = { .devices = 1, .seed = 1 };
static void *devs[FAKE_DEVICES];
static u32 opening;
static u64 fail_at, calls;	/* A */
static int fail_code;		/* A */
static u32 unloaded;		/* A */
static int kind_last;		/* A: of a copy */
static int handles;		/* A: streams, events and graphs that exist */
static int memory_of;		/* A: device of the last call for memory */
static __thread int current, last;

enum {
#define X(name, args) N_##name,
	CUDA_CALLS(X)
#undef X
	N_ALL
};
static const char *const names[] = {
#define X(name, args) #name,
	CUDA_CALLS(X)
#undef X
};
static u64 counts[N_ALL];	/* A */

void fakecudart_setup(const struct fake_setup *s)
{
	int i;

	for (i = 0; i < FAKE_DEVICES; i++) {
		if (devs[i])
			device_fake.close(devs[i]);
		store_relaxed(&devs[i], NULL);
	}
	setup = *s;
	fake_setup(s);
	store_relaxed(&fail_at, 0);
	store_relaxed(&unloaded, 0);
}

u32 fakecudart_step(u64 choice)
{
	return fake_step(choice);
}

void fakecudart_fail(u64 n, int code)
{
	store_relaxed(&fail_code, code);
	store_release(&fail_at, n);
}

u64 fakecudart_calls(void)
{
	return load_relaxed(&calls);
}

u64 fakecudart_calls_of(const char *name)
{
	u32 i;

	for (i = 0; i < N_ALL; i++)
		if (!strcmp(names[i], name))
			return load_relaxed(&counts[i]);
	return 0;
}

void fakecudart_counts(struct fake_counts *out)
{
	fake_counts(out);
}

void fakecudart_lose(int id)
{
	fake_lose(id);
}

/* The smallest number, which is the most urgent, with which a stream was created. */
static int urgent;		/* A */

int fakecudart_urgent(void)
{
	return load_relaxed(&urgent);
}

int fakecudart_kind(void)
{
	return load_relaxed(&kind_last);
}

int fakecudart_handles(void)
{
	return load_relaxed(&handles);
}

int fakecudart_memory(void)
{
	return load_relaxed(&memory_of);
}

void fakecudart_unload(void)
{
	store_release(&unloaded, 1);
}

static int result(int code)
{
	if (code)
		last = code;
	return code;
}

static int enter(int which)
{
	u64 n = load_acquire(&fail_at);
	int i;

	fetch_add_relaxed(&counts[which], 1);
	fetch_add_relaxed(&calls, 1);
	while (n) {
		if (!cas_acq_rel_acquire(&fail_at, &n, n - 1))
			continue;
		if (n > 1)
			break;
		/* Such an error is permanent: nothing in the streams will run. */
		for (i = 0; load_relaxed(&fail_code) == CU_LAUNCH_FAILURE && i < setup.devices; i++)
			fake_lose(i);
		return result(load_relaxed(&fail_code));
	}
	return result(load_acquire(&unloaded) ? CU_UNLOADING :
		      setup.devices ? CU_SUCCESS : CU_INSUFFICIENT_DRIVER);
}

/* The code for the fake device's error. */
static int code_of(int rc)
{
	switch (rc) {
	case 0:
		return CU_SUCCESS;
	case -EBUSY:
		return result(CU_NOT_READY);
	case -ENOMEM:
		return result(CU_MEMORY_ALLOCATION);
	case -EINVAL:
		return result(CU_INVALID_VALUE);
	case -ENODEV:
		return result(CU_NO_DEVICE);
	case -ENOTRECOVERABLE:
		return result(CU_ILLEGAL_ADDRESS);
	}
	return result(CU_UNKNOWN);
}

#define ENTER(name)								\
	do {									\
		int code_ = enter(N_##name);					\
		if (code_)							\
			return code_;						\
	} while (0)

/* The device that the calling thread uses, opened when it is first used. */
static void *dev(void)
{
	u32 none = 0;

	while (!load_acquire(&devs[current])) {
		if (cas_acq_rel_acquire(&opening, &none, 1)) {
			void *d = NULL;

			if (!load_acquire(&devs[current]) && !device_fake.open(current, &d))
				store_release(&devs[current], d);
			store_release(&opening, 0);
		}
		none = 0;
	}
	return devs[current];
}

static int handle_new(int rc, void *h, void **out)
{
	struct handle *n;

	if (rc)
		return code_of(rc);
	n = malloc(sizeof(*n));
	if (!n)
		return result(CU_MEMORY_ALLOCATION);
	n->dev = dev();
	n->h = h;
	*out = n;
	fetch_add_relaxed(&handles, 1);
	return CU_SUCCESS;
}

static void handle_free(struct handle *n)
{
	fetch_add_relaxed(&handles, -1);
	free(n);
}

const char *cudaGetErrorString(int code)
{
	return code == CU_ILLEGAL_ADDRESS ? "an illegal memory access was encountered" :
	       code == CU_MEMORY_ALLOCATION ? "out of memory" : "an error of the fake runtime";
}

int cudaGetLastError(void)
{
	int code = last;

	last = CU_SUCCESS;
	return code;
}

int cudaGetDeviceCount(int *n)
{
	ENTER(cudaGetDeviceCount);
	*n = setup.devices;
	return CU_SUCCESS;
}

int cudaGetDeviceProperties(void *properties, int id)
{
	ENTER(cudaGetDeviceProperties);
	snprintf(properties, 256, "fake %d", id);
	return CU_SUCCESS;
}

int cudaDeviceGetAttribute(int *value, int attribute, int id)
{
	ENTER(cudaDeviceGetAttribute);
	switch (attribute) {
	case CU_ATTR_MAJOR:
		*value = 8;
		return CU_SUCCESS;
	case CU_ATTR_MINOR:
		*value = 6;
		return CU_SUCCESS;
	case CU_ATTR_MULTIPROCESSORS:
		*value = 1;
		return CU_SUCCESS;
	}
	return result(CU_INVALID_VALUE);
}

int cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	ENTER(cudaDeviceGetStreamPriorityRange);
	*least = 0;
	*greatest = -5;
	return CU_SUCCESS;
}

int cudaDriverGetVersion(int *version)
{
	ENTER(cudaDriverGetVersion);
	*version = 13000;
	return CU_SUCCESS;
}

int cudaRuntimeGetVersion(int *version)
{
	ENTER(cudaRuntimeGetVersion);
	*version = 12090;
	return CU_SUCCESS;
}

int cudaSetDevice(int id)
{
	ENTER(cudaSetDevice);
	if (id < 0 || id >= setup.devices)
		return result(CU_INVALID_DEVICE);
	current = id;
	return CU_SUCCESS;
}

int cudaGetDevice(int *id)
{
	ENTER(cudaGetDevice);
	*id = current;
	return CU_SUCCESS;
}

int cudaMemGetInfo(size_t *left, size_t *total)
{
	ENTER(cudaMemGetInfo);
	store_relaxed(&memory_of, current);
	*total = 1 << 30;
	*left = *total / 2;
	return CU_SUCCESS;
}

int cudaMalloc(void **p, size_t bytes)
{
	ENTER(cudaMalloc);
	store_relaxed(&memory_of, current);
	return code_of(device_fake.alloc(dev(), bytes, p));
}

int cudaFree(void *p)
{
	int code = enter(N_cudaFree), rc = device_fake.release(dev(), p);

	store_relaxed(&memory_of, current);
	return code ? code : code_of(rc);
}

int cudaHostAlloc(void **p, size_t bytes, unsigned int flags)
{
	ENTER(cudaHostAlloc);
	store_relaxed(&memory_of, current);
	if (flags != CU_HOST_ALLOC_PORTABLE)
		return result(CU_INVALID_VALUE);
	return code_of(device_fake.host_alloc(dev(), bytes, p));
}

int cudaFreeHost(void *p)
{
	int code = enter(N_cudaFreeHost), rc = device_fake.host_free(dev(), p);

	return code ? code : code_of(rc);
}

int cudaMallocAsync(void **p, size_t bytes, void *stream)
{
	struct handle *s = stream;

	ENTER(cudaMallocAsync);
	return code_of(device_fake.alloc_async(s->dev, s->h, bytes, p));
}

int cudaFreeAsync(void *p, void *stream)
{
	struct handle *s = stream;

	ENTER(cudaFreeAsync);
	return code_of(device_fake.free_async(s->dev, s->h, p));
}

int cudaStreamCreateWithPriority(void **stream, unsigned int flags, int priority)
{
	void *h = NULL;
	int rc;

	ENTER(cudaStreamCreateWithPriority);
	if (flags != CU_STREAM_NON_BLOCKING || priority > 0 || priority < -5)
		return result(CU_INVALID_VALUE);
	if (priority < load_relaxed(&urgent))
		store_relaxed(&urgent, priority);
	rc = device_fake.stream_create(dev(), -priority, &h);
	return handle_new(rc, h, stream);
}

int cudaStreamDestroy(void *stream)
{
	struct handle *s = stream;
	int rc, code;

	/* Whatever the call returns, the object is freed: no caller could try again. */
	code = enter(N_cudaStreamDestroy);
	rc = device_fake.stream_destroy(s->dev, s->h);
	handle_free(s);
	return code ? code : code_of(rc);
}

int cudaStreamQuery(void *stream)
{
	struct handle *s = stream;

	ENTER(cudaStreamQuery);
	return code_of(device_fake.stream_query(s->dev, s->h));
}

int cudaStreamSynchronize(void *stream)
{
	struct handle *s = stream;

	ENTER(cudaStreamSynchronize);
	return code_of(device_fake.stream_sync(s->dev, s->h));
}

int cudaStreamWaitEvent(void *stream, void *event, unsigned int flags)
{
	struct handle *s = stream, *ev = event;

	ENTER(cudaStreamWaitEvent);
	if (flags)
		return result(CU_INVALID_VALUE);
	return code_of(device_fake.stream_wait(s->dev, s->h, ev->h));
}

int cudaEventCreateWithFlags(void **event, unsigned int flags)
{
	void *h = NULL;
	int rc;

	ENTER(cudaEventCreateWithFlags);
	if (flags != CU_EVENT_DISABLE_TIMING)
		return result(CU_INVALID_VALUE);
	rc = device_fake.event_create(dev(), &h);
	return handle_new(rc, h, event);
}

int cudaEventDestroy(void *event)
{
	struct handle *ev = event;
	int rc, code;

	code = enter(N_cudaEventDestroy);
	rc = device_fake.event_destroy(ev->dev, ev->h);
	handle_free(ev);
	return code ? code : code_of(rc);
}

int cudaEventRecord(void *event, void *stream)
{
	struct handle *s = stream, *ev = event;

	ENTER(cudaEventRecord);
	/* Like the real runtime: both must belong to one device. */
	if (s->dev != ev->dev)
		return result(CU_INVALID_HANDLE);
	return code_of(device_fake.event_record(s->dev, ev->h, s->h));
}

int cudaEventQuery(void *event)
{
	struct handle *ev = event;

	ENTER(cudaEventQuery);
	return code_of(device_fake.event_query(ev->dev, ev->h));
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	struct handle *s = stream;

	ENTER(cudaMemcpyAsync);
	if (kind < CU_COPY_H2H || kind > CU_COPY_DEFAULT)
		return result(CU_INVALID_VALUE);
	store_relaxed(&kind_last, kind);
	return code_of(device_fake.copy(s->dev, s->h, to, from, bytes, DEVICE_D2D));
}

int cudaMemsetAsync(void *to, int byte, size_t bytes, void *stream)
{
	struct handle *s = stream;

	ENTER(cudaMemsetAsync);
	return code_of(device_fake.set(s->dev, s->h, to, byte, bytes));
}

int cudaLaunchHostFunc(void *stream, void (*fn)(void *arg), void *arg)
{
	struct handle *s = stream;

	ENTER(cudaLaunchHostFunc);
	return code_of(device_fake.host_call(s->dev, s->h, fn, arg));
}

int cudaStreamBeginCapture(void *stream, int mode)
{
	struct handle *s = stream;

	ENTER(cudaStreamBeginCapture);
	if (mode != CU_CAPTURE_THREAD_LOCAL)
		return result(CU_INVALID_VALUE);
	return code_of(device_fake.capture_begin(s->dev, s->h));
}

int cudaStreamEndCapture(void *stream, void **graph)
{
	struct handle *s = stream;
	void *h = NULL;
	int code = enter(N_cudaStreamEndCapture), rc;

	/* The capture has ended in any case. */
	rc = device_fake.capture_end(s->dev, s->h, &h);
	if (!rc && code)
		device_fake.graph_destroy(s->dev, h);
	if (rc || code)
		return code ? code : code_of(rc);
	return handle_new(0, h, graph);
}

/* The handle of the executable takes over the fake device's graph. */
int cudaGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags)
{
	struct handle *g = graph;

	ENTER(cudaGraphInstantiateWithFlags);
	if (flags)
		return result(CU_INVALID_VALUE);
	*exec = NULL;
	if (handle_new(0, g->h, exec))
		return result(CU_MEMORY_ALLOCATION);
	g->h = NULL;
	return CU_SUCCESS;
}

int cudaGraphLaunch(void *exec, void *stream)
{
	struct handle *s = stream, *g = exec;

	ENTER(cudaGraphLaunch);
	return code_of(device_fake.graph_launch(s->dev, s->h, g->h));
}

static int graph_free(void *graph)
{
	struct handle *g = graph;
	int rc = g->h ? device_fake.graph_destroy(g->dev, g->h) : 0;

	handle_free(g);
	return code_of(rc);
}

int cudaGraphExecDestroy(void *exec)
{
	int code = enter(N_cudaGraphExecDestroy), rc = graph_free(exec);

	return code ? code : rc;
}

int cudaGraphDestroy(void *graph)
{
	int code = enter(N_cudaGraphDestroy), rc = graph_free(graph);

	return code ? code : rc;
}
