// SPDX-License-Identifier: Apache-2.0
/*
 * The CPU as a device: every call does its work before it returns, so a stream is always
 * empty and an event is always complete.
 *
 * Purpose: the simplest implementation of the contract of device.h, as a reference for the
 * others.  The engine's own CPU devices have no streams and do not use this file.
 *
 * Progress: that of the C library.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <device/device.h>

/* Capture is not supported: work is complete before it could be captured. */
struct cpu_thing {
	u64 unused;
};

static int cpu_count(int *n)
{
	*n = 1;
	return 0;
}

static int cpu_info(int id, struct device_info *out)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	if (id)
		return err(-ENODEV, "cpu: there is no device %d", id);
	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "host");
	out->memory = (u64)pages * (u64)size;
	out->memory_free = (u64)sysconf(_SC_AVPHYS_PAGES) * (u64)size;
	out->units = (int)sysconf(_SC_NPROCESSORS_ONLN);
	return 0;
}

static int thing_new(void *dev, void **out)
{
	*out = calloc(1, sizeof(struct cpu_thing));
	return *out ? 0 : err(-ENOMEM, "cpu: no memory");
}

static int thing_free(void *dev, void *thing)
{
	free(thing);
	return 0;
}

static int cpu_open(int id, void **dev)
{
	return id ? err(-ENODEV, "cpu: there is no device %d", id) : thing_new(NULL, dev);
}

static void cpu_close(void *dev)
{
	free(dev);
}

static int cpu_use(void *dev)
{
	return 0;
}

static int cpu_alloc(void *dev, size_t bytes, void **p)
{
	*p = malloc(bytes ? bytes : 1);
	return *p ? 0 : err(-ENOMEM, "cpu: no memory for %zu bytes", bytes);
}

static int cpu_alloc_async(void *dev, void *stream, size_t bytes, void **p)
{
	return cpu_alloc(dev, bytes, p);
}

static int cpu_free_async(void *dev, void *stream, void *p)
{
	return thing_free(dev, p);
}

static int cpu_stream_create(void *dev, int priority, void **stream)
{
	return thing_new(dev, stream);
}

static int cpu_over(void *dev, void *thing)
{
	return 0;
}

static int cpu_stream_wait(void *dev, void *stream, void *event)
{
	return 0;
}

static int cpu_copy(void *dev, void *stream, void *to, const void *from, size_t bytes,
		    enum device_copy dir)
{
	memmove(to, from, bytes);
	return 0;
}

static int cpu_set(void *dev, void *stream, void *to, int byte, size_t bytes)
{
	memset(to, byte, bytes);
	return 0;
}

static int cpu_host_call(void *dev, void *stream, void (*fn)(void *arg), void *arg)
{
	fn(arg);
	return 0;
}

const struct device_ops device_cpu = {
	.name = "cpu",
	.count = cpu_count,
	.info = cpu_info,
	.open = cpu_open,
	.close = cpu_close,
	.use = cpu_use,
	.alloc = cpu_alloc,
	.release = thing_free,
	.host_alloc = cpu_alloc,
	.host_free = thing_free,
	.alloc_async = cpu_alloc_async,
	.free_async = cpu_free_async,
	.stream_create = cpu_stream_create,
	.stream_destroy = thing_free,
	.stream_query = cpu_over,
	.stream_sync = cpu_over,
	.stream_wait = cpu_stream_wait,
	.event_create = thing_new,
	.event_destroy = thing_free,
	.event_record = cpu_stream_wait,
	.event_query = cpu_over,
	.copy = cpu_copy,
	.set = cpu_set,
	.host_call = cpu_host_call,
};
