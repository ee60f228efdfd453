// SPDX-License-Identifier: Apache-2.0
/*
 * CUDA devices, through the C interface of the CUDA runtime.
 *
 * Purpose: implements the contract of device.h on libcudart, which is loaded when a program
 * first uses a CUDA device.  The same binary runs on a machine without it, where the call
 * reports an error.
 *
 * Structures: a table of the runtime's functions, filled once.  A device is its number;
 * streams and events are the runtime's own handles, so a body may pass its stream to any
 * CUDA library.  Streams do not synchronize with the legacy default stream.
 *
 * Errors: the runtime keeps the last error per thread.  This file clears it, so that a
 * program which reads it sees only its own errors.
 *
 * Ordering: DEVICE-C1 (table, release) <-> DEVICE-C2 (acquire).
 *
 * Progress: that of the driver.  Loading blocks, once.
 *
 * Lifetime: the library stays loaded.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <device/device.h>
#include <device/cuda_abi.h>

struct cuda {
#define X(name, args) int (*name) args;
	CUDA_CALLS(X)
#undef X
	cu_error_string_fn error_string;
	char from[128];			/* name of the library */
};

static struct cuda *table;		/* A: NULL until it is complete */

/* DEVICE-C2 <-> DEVICE-C1 */
#define cuda_call(fn, ...) cuda_error(#fn, load_acquire(&table)->fn(__VA_ARGS__))

static bool lost_for_good(int code)
{
	switch (code) {
	case CU_ECC:
	case CU_NVLINK:
	case CU_ILLEGAL_ADDRESS:
	case CU_LAUNCH_TIMEOUT:
	case CU_ASSERT:
	case CU_HARDWARE_STACK:
	case CU_ILLEGAL_INSTRUCTION:
	case CU_MISALIGNED_ADDRESS:
	case CU_INVALID_ADDRESS_SPACE:
	case CU_INVALID_PC:
	case CU_LAUNCH_FAILURE:
	case CU_UNKNOWN:
		return true;
	}
	return false;
}

static int cuda_errno(int code)
{
	switch (code) {
	case CU_NOT_READY:
		return -EBUSY;
	case CU_MEMORY_ALLOCATION:
		return -ENOMEM;
	case CU_INVALID_VALUE:
	case CU_INVALID_HANDLE:
		return -EINVAL;
	case CU_UNLOADING:
		return -ESHUTDOWN;
	case CU_NO_DEVICE:
	case CU_INVALID_DEVICE:
	case CU_INITIALIZATION:
	case CU_INSUFFICIENT_DRIVER:
	case CU_DEVICES_UNAVAILABLE:
	case CU_SYSTEM_NOT_READY:
	case CU_SYSTEM_DRIVER_MISMATCH:
		return -ENODEV;
	case CU_NOT_SUPPORTED:
		return -ENOTSUP;
	}
	return lost_for_good(code) ? -ENOTRECOVERABLE : -EIO;
}

/* Clear the runtime's last error after a call that returned code. */
static void forget(int code)
{
	if (code != CU_SUCCESS && code != CU_UNLOADING)
		load_relaxed(&table)->cudaGetLastError();
}

/* Translate the runtime's code to an errno.  "Not ready" is no error and has no text. */
static int cuda_error(const char *what, int code)
{
	struct cuda *c = load_relaxed(&table);

	if (likely(code == CU_SUCCESS))
		return 0;
	forget(code);
	if (code == CU_NOT_READY)
		return -EBUSY;
	return err(cuda_errno(code), "%s: %s (%d)", what,
		   code == CU_UNLOADING ? "the driver unloads" : c->error_string(code), code);
}

static void *find_library(char *from, size_t room)
{
	/* Newest first; a library that the program has already loaded is preferred. */
	static const char *const names[] = { "libcudart.so", "libcudart.so.13", "libcudart.so.12",
					     "libcudart.so.11.0" };
	const char *env = secure_getenv("PAWL_CUDART");
	void *lib;
	size_t i;

	if (env) {
		snprintf(from, room, "%s", env);
		return dlopen(env, RTLD_NOW | RTLD_LOCAL);
	}
	for (i = 0; i < 2 * ARRAY_SIZE(names); i++) {
		const char *name = names[i % ARRAY_SIZE(names)];

		lib = dlopen(name, RTLD_NOW | RTLD_LOCAL |
			     (i < ARRAY_SIZE(names) ? RTLD_NOLOAD : 0));
		if (lib) {
			snprintf(from, room, "%s", name);
			return lib;
		}
	}
	return NULL;
}

static int fill(struct cuda *c, void *lib)
{
	const char *missing = NULL;
	void *v2;

#define X(name, args) c->name = (int (*) args)dlsym(lib, #name);
	CUDA_CALLS(X)
#undef X
	/* In release 12 the headers mapped the plain name to this function. */
	v2 = dlsym(lib, "cudaGetDeviceProperties_v2");
	if (v2)
		c->cudaGetDeviceProperties = (int (*)(void *, int))v2;
	c->error_string = (cu_error_string_fn)dlsym(lib, "cudaGetErrorString");
#define X(name, args)								\
	if (!c->name)								\
		missing = #name;
	CUDA_CALLS(X)
#undef X
	if (!c->error_string)
		missing = "cudaGetErrorString";
	return missing ? err(-ENODEV, "cuda: %s has no %s", c->from, missing) : 0;
}

/* Load the table.  Two threads may do so concurrently; one of them publishes its table. */
static int cuda_load(void)
{
	struct cuda *c, *none = NULL;
	void *lib;
	int rc;

	if (likely(load_acquire(&table)))	/* DEVICE-C2 <-> DEVICE-C1 */
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return err(-ENOMEM, "cuda: no memory");
	lib = find_library(c->from, sizeof(c->from));
	if (lib)
		rc = fill(c, lib);
	else
		rc = err(-ENODEV, "cuda: no libcudart: %s", dlerror());
	/* DEVICE-C1 <-> DEVICE-C2 */
	if (rc || !cas_acq_rel_acquire(&table, &none, c)) {
		free(c);
		if (lib)
			dlclose(lib);
	}
	return rc;
}

/* A handle is the device's number plus 1, so that it is not NULL. */
static int id_of(const void *dev)
{
	return (int)(intptr_t)dev - 1;
}

/* Make dev current on the calling thread; *was is the previous device. */
static int enter(void *dev, int *was)
{
	int rc = cuda_call(cudaGetDevice, was);

	return rc || *was == id_of(dev) ? rc : cuda_call(cudaSetDevice, id_of(dev));
}

static int leave(void *dev, int was, int rc)
{
	/* rc is the result of the call itself; an error of the restore is ignored. */
	if (was != id_of(dev))
		forget(load_relaxed(&table)->cudaSetDevice(was));
	return rc;
}

static int cuda_count(int *n)
{
	int rc;

	*n = 0;
	rc = cuda_load();
	if (!rc)
		rc = cuda_call(cudaGetDeviceCount, n);
	if (rc)
		*n = 0;
	return rc;
}

static int cuda_info(int id, struct device_info *out)
{
	int n, was = 0, rc = cuda_count(&n);
	size_t left = 0, total = 0;
	char *properties;

	if (rc)
		return rc;
	if (id < 0 || id >= n)
		return err(-ENODEV, "cuda: there is no device %d, but %d", id, n);
	memset(out, 0, sizeof(*out));
	properties = calloc(1, CU_PROPERTIES_BYTES);
	if (!properties)
		return err(-ENOMEM, "cuda: no memory");
	rc = cuda_call(cudaGetDeviceProperties, properties, id);
	/* They begin with the name. */
	snprintf(out->name, sizeof(out->name), "%.*s", (int)sizeof(out->name) - 1, properties);
	free(properties);
	if (!rc)
		rc = cuda_call(cudaDeviceGetAttribute, &out->major, CU_ATTR_MAJOR, id);
	if (!rc)
		rc = cuda_call(cudaDeviceGetAttribute, &out->minor, CU_ATTR_MINOR, id);
	if (!rc)
		rc = cuda_call(cudaDeviceGetAttribute, &out->units, CU_ATTR_MULTIPROCESSORS, id);
	if (!rc)
		rc = cuda_call(cudaDriverGetVersion, &out->driver);
	if (!rc)
		rc = cuda_call(cudaRuntimeGetVersion, &out->runtime);
	if (rc)
		return rc;
	rc = enter((void *)(intptr_t)(id + 1), &was);
	if (!rc)
		rc = leave((void *)(intptr_t)(id + 1), was,
			   cuda_call(cudaMemGetInfo, &left, &total));
	out->memory = total;
	out->memory_free = left;
	return rc;
}

static int cuda_open(int id, void **dev)
{
	int n, was, rc = cuda_count(&n);

	*dev = NULL;
	if (rc)
		return rc;
	if (id < 0 || id >= n)
		return err(-ENODEV, "cuda: there is no device %d, but %d", id, n);
	rc = enter((void *)(intptr_t)(id + 1), &was);
	if (rc)
		return rc;
	/* Create the context now, so that no op pays for it. */
	rc = leave((void *)(intptr_t)(id + 1), was, cuda_call(cudaFree, NULL));
	if (!rc)
		*dev = (void *)(intptr_t)(id + 1);
	return rc;
}

/* The rest of the program may use the context too, so keep it. */
static void cuda_close(void *dev)
{
}

static int cuda_use(void *dev)
{
	return cuda_call(cudaSetDevice, id_of(dev));
}

static int cuda_alloc(void *dev, size_t bytes, void **p)
{
	int was, rc = enter(dev, &was);

	return rc ? rc : leave(dev, was, cuda_call(cudaMalloc, p, bytes));
}

static int cuda_free(void *dev, void *p)
{
	int was, rc = enter(dev, &was);

	return rc ? rc : leave(dev, was, cuda_call(cudaFree, p));
}

static int cuda_host_alloc(void *dev, size_t bytes, void **p)
{
	int was, rc = enter(dev, &was);

	return rc ? rc :
	       leave(dev, was, cuda_call(cudaHostAlloc, p, bytes, CU_HOST_ALLOC_PORTABLE));
}

static int cuda_host_free(void *dev, void *p)
{
	return cuda_call(cudaFreeHost, p);
}

static int cuda_alloc_async(void *dev, void *stream, size_t bytes, void **p)
{
	return cuda_call(cudaMallocAsync, p, bytes, stream);
}

static int cuda_free_async(void *dev, void *stream, void *p)
{
	return cuda_call(cudaFreeAsync, p, stream);
}

static int cuda_stream_create(void *dev, int priority, void **stream)
{
	int was, least = 0, greatest = 0, rc = enter(dev, &was);

	if (rc)
		return rc;
	rc = cuda_call(cudaDeviceGetStreamPriorityRange, &least, &greatest);
	/* In CUDA a smaller number is more urgent. */
	priority = -priority;
	if (priority < greatest)
		priority = greatest;
	if (priority > least)
		priority = least;
	if (!rc)
		rc = cuda_call(cudaStreamCreateWithPriority, stream, CU_STREAM_NON_BLOCKING,
			       priority);
	return leave(dev, was, rc);
}

static int cuda_stream_destroy(void *dev, void *stream)
{
	return cuda_call(cudaStreamDestroy, stream);
}

static int cuda_stream_query(void *dev, void *stream)
{
	return cuda_call(cudaStreamQuery, stream);
}

static int cuda_stream_sync(void *dev, void *stream)
{
	return cuda_call(cudaStreamSynchronize, stream);
}

static int cuda_stream_wait(void *dev, void *stream, void *event)
{
	return cuda_call(cudaStreamWaitEvent, stream, event, 0);
}

static int cuda_event_create(void *dev, void **event)
{
	int was, rc = enter(dev, &was);

	return rc ? rc : leave(dev, was, cuda_call(cudaEventCreateWithFlags, event,
						   CU_EVENT_DISABLE_TIMING));
}

static int cuda_event_destroy(void *dev, void *event)
{
	return cuda_call(cudaEventDestroy, event);
}

static int cuda_event_record(void *dev, void *event, void *stream)
{
	return cuda_call(cudaEventRecord, event, stream);
}

static int cuda_event_query(void *dev, void *event)
{
	return cuda_call(cudaEventQuery, event);
}

static int cuda_copy(void *dev, void *stream, void *to, const void *from, size_t bytes,
		     enum device_copy dir)
{
	static const int kinds[] = { CU_COPY_H2D, CU_COPY_D2H, CU_COPY_D2D, CU_COPY_H2H };

	if ((unsigned int)dir >= ARRAY_SIZE(kinds))
		return err(-EINVAL, "cuda: copy: direction %d", (int)dir);
	return cuda_call(cudaMemcpyAsync, to, from, bytes, kinds[dir], stream);
}

static int cuda_set(void *dev, void *stream, void *to, int byte, size_t bytes)
{
	return cuda_call(cudaMemsetAsync, to, byte, bytes, stream);
}

static int cuda_host_call(void *dev, void *stream, void (*fn)(void *arg), void *arg)
{
	return cuda_call(cudaLaunchHostFunc, stream, fn, arg);
}

static int cuda_capture_begin(void *dev, void *stream)
{
	return cuda_call(cudaStreamBeginCapture, stream, CU_CAPTURE_THREAD_LOCAL);
}

static int cuda_capture_end(void *dev, void *stream, void **graph)
{
	void *g = NULL;
	int rc = cuda_call(cudaStreamEndCapture, stream, &g);

	if (!rc)
		rc = cuda_call(cudaGraphInstantiateWithFlags, graph, g, 0);
	/* The executable graph does not need it; an error here does not fail the capture. */
	if (g)
		forget(load_relaxed(&table)->cudaGraphDestroy(g));
	return rc;
}

static int cuda_graph_launch(void *dev, void *stream, void *graph)
{
	return cuda_call(cudaGraphLaunch, graph, stream);
}

static int cuda_graph_destroy(void *dev, void *graph)
{
	return cuda_call(cudaGraphExecDestroy, graph);
}

const struct device_ops device_cuda = {
	.name = "cuda",
	.count = cuda_count,
	.info = cuda_info,
	.open = cuda_open,
	.close = cuda_close,
	.use = cuda_use,
	.alloc = cuda_alloc,
	.release = cuda_free,
	.host_alloc = cuda_host_alloc,
	.host_free = cuda_host_free,
	.alloc_async = cuda_alloc_async,
	.free_async = cuda_free_async,
	.stream_create = cuda_stream_create,
	.stream_destroy = cuda_stream_destroy,
	.stream_query = cuda_stream_query,
	.stream_sync = cuda_stream_sync,
	.stream_wait = cuda_stream_wait,
	.event_create = cuda_event_create,
	.event_destroy = cuda_event_destroy,
	.event_record = cuda_event_record,
	.event_query = cuda_event_query,
	.copy = cuda_copy,
	.set = cuda_set,
	.host_call = cuda_host_call,
	.capture_begin = cuda_capture_begin,
	.capture_end = cuda_capture_end,
	.graph_launch = cuda_graph_launch,
	.graph_destroy = cuda_graph_destroy,
};
