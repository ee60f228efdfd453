/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl infer on a device (--device).  The command's thread makes all calls except
 * gpu_layer(), which bodies call.
 */
#ifndef PAWL_GPU_H
#define PAWL_GPU_H

#include <pawl/device.h>

#include "infer.h"

/* Find the device and load the kernels.  Returns 0, or -EIO after a message. */
int gpu_find(void);
/* The name of the device, for reports. */
const char *gpu_name(void);
/* Queue a layer on run->stream; all pointers but l are to memory of the device. */
int gpu_layer(struct pawl_run *run, const struct layer *l, const float *weight,
	      const float *bias, const float *in, float *out, int batch);

static inline struct pawl_device gpu_device(const struct work *w)
{
	return (struct pawl_device){ (uint16_t)w->opt.device, 0 };
}

#endif
