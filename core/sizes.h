/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs of programs that were built with another release's header; layer 4, inside core only.
 *
 * A struct that begins with its size grows at its end, by fields for which 0 means the
 * behaviour without them.  For a shorter struct, of an older header, the missing fields have
 * their defaults.  A longer one, of a newer header, is accepted if the bytes that this library
 * does not know are zero, and refused with -EINVAL if not.  A removed field becomes a reserved
 * one.  Structs without a size do not grow: struct pawl_error, struct pawl_device, the handles.
 */
#ifndef CORE_SIZES_H
#define CORE_SIZES_H

#include <stddef.h>
#include <string.h>
#include <pawl/engine.h>
#include <pawl/device.h>
#include <base/bug.h>

/* Sizes in the first release, 0.1, on machines with pointers of 8 bytes. */
#define CONFIG_SIZE_0		152u
#define OP_SIZE_0		88u
#define STATS_SIZE_0		144u
#define DEVICE_INFO_SIZE_0	112u

/* Sizes of structs that were added later, in their first release. */
#define LAUNCH_SIZE_0		16u
#define QUEUE_STATS_SIZE_0	384u

BUILD_BUG_ON(offsetof(struct pawl_config, drop) + sizeof(void *) != CONFIG_SIZE_0);
BUILD_BUG_ON(offsetof(struct pawl_op, name) + sizeof(void *) != OP_SIZE_0);
BUILD_BUG_ON(offsetof(struct pawl_stats, workers) + sizeof(int) != STATS_SIZE_0);
BUILD_BUG_ON(offsetof(struct pawl_device_info, runtime) + sizeof(int) + 4 != DEVICE_INFO_SIZE_0);
BUILD_BUG_ON(offsetof(struct pawl_launch, device) + 4 != LAUNCH_SIZE_0);
BUILD_BUG_ON(offsetof(struct pawl_queue_stats, wait) + 320 != QUEUE_STATS_SIZE_0);
BUILD_BUG_ON(sizeof(struct pawl_error) != 224);

/*
 * Check the size of the program's struct; NULL is refused.  `first` is its size in the first
 * release, `now` in this one.  size_check() is for a struct that is read, size_check_out() for
 * one that is written.
 */
int size_check(const char *who, const void *given, size_t first, size_t now);
int size_check_out(const char *who, const void *given, size_t first);

/* Copy *from to the program's struct, whose size does not change. */
void size_copy_out(void *given, void *from, size_t now);

/* Op i of an array whose elements are as long as the program's header says. */
static inline const struct pawl_op *op_at(const struct pawl_op *ops, size_t i)
{
	return (const struct pawl_op *)((const char *)ops + i * ops->size);
}

#endif
