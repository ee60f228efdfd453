// SPDX-License-Identifier: Apache-2.0
/*
 * The kinds of devices beside CPUs that this build has.  A separate file: a test program
 * that has one more kind links another definition (tests/device/kinds.c).
 */
#include <device/device.h>

const struct device_ops *device_of_kind(u32 kind)
{
#if defined(CONFIG_DEVICE_CUDA) && !defined(PAWL_SIM)
	if (kind == DEVICE_KIND_CUDA)
		return &device_cuda;
#endif
	return NULL;
}
