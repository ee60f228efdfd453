// SPDX-License-Identifier: Apache-2.0
/*
 * Computes a layer on a CUDA device by the kernels of kernels.cu, a library beside the
 * program that is loaded when needed.
 */

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

typedef int (*cuda_layer_fn)(int kind, int act, float temperature, const float *weight,
			     const float *bias, const float *in, float *out, int batch,
			     int in_dim, int out_dim, void *stream, char *why, size_t len);

static cuda_layer_fn cuda_layer;
static char name[128];

/* The library is beside this program in the build tree, or where make install installs it. */
static int load_kernels(void)
{
	static const char *const place[] = { "pawl-cuda.so", "../lib/pawl/pawl-cuda.so" };
	char path[PATH_MAX], why[256] = "";
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 32);
	void *lib = NULL;
	char *name_at;
	size_t i;

	path[len > 0 ? len : 0] = 0;
	name_at = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	for (i = 0; !lib && i < sizeof(place) / sizeof(*place); i++) {
		strcpy(name_at, place[i]);
		if (i && access(path, F_OK))
			break;	/* report the failure of the first place */
		lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (!lib)
			snprintf(why, sizeof(why), "%s", dlerror());
	}
	if (!lib)
		return failed("--device cuda: kernels (built by make cuda-kernels, where nvcc is)", why);
	cuda_layer = (cuda_layer_fn)dlsym(lib, "pawl_cuda_layer");
	return cuda_layer ? 0 : failed("--device cuda: kernels", dlerror());
}

int gpu_find(void)
{
	struct pawl_device_info info = { .size = sizeof(info) };
	int n = pawl_device_count(PAWL_CUDA);

	if (n > 0)
		n = pawl_device_info((struct pawl_device){ PAWL_CUDA, 0 }, &info);
	if (n < 0)
		return failed("--device", pawl_error_text());
	snprintf(name, sizeof(name), "%s", info.name);
	return load_kernels();
}

const char *gpu_name(void)
{
	return name;
}

int gpu_layer(struct pawl_run *run, const struct layer *l, const float *weight,
	      const float *bias, const float *in, float *out, int batch)
{
	char why[160] = "";

	if (cuda_layer(l->kind, l->act, l->temperature, weight, bias, in, out, batch, l->in_dim,
		       l->out_dim, run->stream, why, sizeof(why)))
		return pawl_fail(run, -EIO, "%s", why);
	return 0;
}
