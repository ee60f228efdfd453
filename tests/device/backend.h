/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of devices on which each device test runs: the CPU, the fake device, CUDA on the
 * runtime of fakecudart.c, and, with PAWL_TEST_CUDA=1 in the environment, real CUDA instead.
 * fails, step, lose and unload are NULL for kinds that a test cannot control.
 */
#ifndef TESTS_DEVICE_BACKEND_H
#define TESTS_DEVICE_BACKEND_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <device/cuda_abi.h>
#include "fake.h"

struct backend {
	const char *name;
	const struct device_ops *ops;
	int kind;				/* a value of pawl_device.kind; 0: not for
						   engines */
	bool real;				/* it cannot be configured */
	void (*setup)(const struct fake_setup *s);
	void (*fail_call)(u64 n, bool lost);		/* fails call number n from now;
							   lost: also all later ones */
	u64 (*calls)(void);
	void (*counts)(struct fake_counts *out);
	u32 (*step)(u64 choice);
	void (*lose)(int id);
	void (*unload)(void);
	int (*urgent)(void);			/* the most urgent priority of a stream, in the
						   runtime's numbers; only CUDA's fake */
	int (*handles)(void);			/* streams, events and graphs that exist; the same */
};

static void cpu_setup(const struct fake_setup *s)
{
}

static void fake_fail_call(u64 n, bool gone)
{
	fake_fail(n, gone ? -ENOTRECOVERABLE : -EIO);
}

static u64 fake_call_count(void)
{
	struct fake_counts c;

	fake_counts(&c);
	return c.calls;
}

#ifdef CONFIG_DEVICE_CUDA
static struct {
	void (*setup)(const struct fake_setup *s);
	u32 (*step)(u64 choice);
	void (*fail_call)(u64 n, int code);
	u64 (*calls)(void);
	void (*counts)(struct fake_counts *out);
	void (*lose)(int id);
	void (*unload)(void);
	int (*urgent)(void);
	int (*handles)(void);
} cudart;

static void cudart_fail(u64 n, bool gone)
{
	cudart.fail_call(n, gone ? CU_LAUNCH_FAILURE : CU_INVALID_VALUE);
}

/* Our runtime, in the folder where the tests are built. */
static bool cudart_find(void)
{
	void *lib;

	setenv("PAWL_CUDART", PAWL_OBJDIR "/tests/device/libcudart.so", 1);
	lib = dlopen(getenv("PAWL_CUDART"), RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		abort();
	}
	cudart.setup = (void (*)(const struct fake_setup *))dlsym(lib, "fakecudart_setup");
	cudart.step = (u32 (*)(u64))dlsym(lib, "fakecudart_step");
	cudart.fail_call = (void (*)(u64, int))dlsym(lib, "fakecudart_fail");
	cudart.calls = (u64 (*)(void))dlsym(lib, "fakecudart_calls");
	cudart.counts = (void (*)(struct fake_counts *))dlsym(lib, "fakecudart_counts");
	cudart.lose = (void (*)(int))dlsym(lib, "fakecudart_lose");
	cudart.unload = (void (*)(void))dlsym(lib, "fakecudart_unload");
	cudart.urgent = (int (*)(void))dlsym(lib, "fakecudart_urgent");
	cudart.handles = (int (*)(void))dlsym(lib, "fakecudart_handles");
	return true;
}
#endif

/* Fill list[], and return the number of kinds. */
static inline int backends(struct backend list[4])
{
	int n = 0;

	list[n++] = (struct backend){ .name = "cpu", .ops = &device_cpu, .setup = cpu_setup,
				      .real = true };
	list[n++] = (struct backend){
		.name = "fake", .ops = &device_fake, .kind = FAKE_KIND, .setup = fake_setup,
		.fail_call = fake_fail_call, .calls = fake_call_count, .counts = fake_counts,
		.step = fake_step, .lose = fake_lose, .unload = fake_unload };
#ifdef CONFIG_DEVICE_CUDA
	if (getenv("PAWL_TEST_CUDA")) {
		list[n++] = (struct backend){ .name = "cuda", .ops = &device_cuda, .kind = 1,
					      .setup = cpu_setup, .real = true };
		return n;
	}
	cudart_find();
	list[n++] = (struct backend){
		.name = "cuda on a fake runtime", .ops = &device_cuda, .kind = 1,
		.setup = cudart.setup, .fail_call = cudart_fail, .calls = cudart.calls,
		.counts = cudart.counts, .step = cudart.step, .lose = cudart.lose,
		.urgent = cudart.urgent, .handles = cudart.handles, .unload = cudart.unload };
#endif
	return n;
}

#endif
