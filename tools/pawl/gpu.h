/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl infer on a device (--device).  Calls are the command's thread's, but for
 * gpu_layer(), which bodies call.
 */
#ifndef PAWL_GPU_H
#define PAWL_GPU_H

#include <pawl/device.h>

#include "infer.h"

/* A layer on device memory, for the fake device: what its stream calls. */
struct gpu_call {
	const struct layer *l;
	const float *weight, *bias, *in;
	float *out;
	int batch;
};

/* Is there such a device, and what computes on it?  0, or -EIO after a message. */
int gpu_find(int kind);
/* What it is, for reports. */
const char *gpu_name(void);
/* Put the layer into run->stream; call lives until it is over. */
int gpu_layer(struct pawl_run *run, struct gpu_call *call);

static inline struct pawl_device gpu_device(const struct work *w)
{
	return (struct pawl_device){ (uint16_t)w->opt.device, 0 };
}

#endif
