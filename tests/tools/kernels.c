// SPDX-License-Identifier: Apache-2.0
/*
 * Replaces demo/kernels.cu for the fake runtime of tests/device/fakecudart.c: the layers
 * of pawl infer --device cuda, which net.c computes in the order of the stream.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "../../demo/net.c"

struct call {
	struct layer l;
	const float *weight, *bias, *in;
	float *out;
	int batch;
};

int pawl_cuda_layer(int kind, int act, float temperature, const float *weight,
		    const float *bias, const float *in, float *out, int batch, int in_dim,
		    int out_dim, void *stream, char *why, size_t len)
	__attribute__((visibility("default")));

static void compute(void *arg)
{
	struct call *c = arg;

	layer_forward(&c->l, c->weight, c->bias, c->in, c->out, c->batch);
	free(c);
}

int pawl_cuda_layer(int kind, int act, float temperature, const float *weight,
		    const float *bias, const float *in, float *out, int batch, int in_dim,
		    int out_dim, void *stream, char *why, size_t len)
{
	void *lib = dlopen(getenv("PAWL_CUDART"), RTLD_NOW | RTLD_NOLOAD);
	int (*host_call)(void *, void (*)(void *), void *) =
		(int (*)(void *, void (*)(void *), void *))dlsym(lib, "cudaLaunchHostFunc");
	struct call *c = malloc(sizeof(*c));

	*c = (struct call){ .l = { .kind = kind, .act = act, .temperature = temperature,
				   .in_dim = in_dim, .out_dim = out_dim,
				   .bias = (float *)(uintptr_t)bias },
			    .weight = weight, .bias = bias, .in = in, .out = out, .batch = batch };
	if (!host_call(stream, compute, c))
		return 0;
	free(c);
	snprintf(why, len, "cudaLaunchHostFunc failed");
	return -1;
}
