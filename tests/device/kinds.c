// SPDX-License-Identifier: Apache-2.0
/* Replaces device/kinds.c: the fake device is a kind too. */
#include "fake.h"

const struct device_ops *device_of_kind(u32 kind)
{
	switch (kind) {
#ifdef CONFIG_DEVICE_CUDA
	case DEVICE_KIND_CUDA:
		return &device_cuda;
#endif
	case FAKE_KIND:
		return &device_fake;
	}
	return NULL;
}
