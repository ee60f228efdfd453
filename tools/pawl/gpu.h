/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl infer on a device (--device).  The command's thread makes all calls except
 * gpu_layer(), which bodies call.
 */
#ifndef PAWL_GPU_H
#define PAWL_GPU_H

#include <pawl/device.h>

#include "infer.h"

/* A layer on device memory: the argument of the fake device's host call. */
struct gpu_call {
	const struct layer *l;
	const float *weight, *bias, *in;
	float *out;
	int batch;
};

/* Find the device and load its kernels.  Returns 0, or -EIO after a message. */
int gpu_find(int kind);
/* The name of the device, for reports. */
const char *gpu_name(void);
/* Queue the layer on run->stream; *call must exist until that work is complete. */
int gpu_layer(struct pawl_run *run, struct gpu_call *call);

static inline struct pawl_device gpu_device(const struct work *w)
{
	return (struct pawl_device){ (uint16_t)w->opt.device, 0 };
}

#endif
