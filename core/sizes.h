/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs of programs that were built with another release's header; layer 4, inside core only.
 *
 * A struct that begins with its size grows at its end, by fields for which 0 means what was
 * there before.  A shorter one, of an older header, has defaults for what it lacks; a
 * longer one, of a newer header, is served if what this library does not know is zero, and
 * refused with -EINVAL if not.  A field that is removed leaves its place reserved.  What has
 * no size does not grow: struct pawl_error, struct pawl_device and the handles.
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

/* And of those that came later. */
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
 * Check what the program gave (NULL is refused): first: its size in the first release; now: in
 * this one.  size_check(): a struct that is read.  size_check_out(): one that is written.
 */
int size_check(const char *who, const void *given, size_t first, size_t now);
int size_check_out(const char *who, const void *given, size_t first);

/* Write *from to what the program gave, which keeps its size. */
void size_copy_out(void *given, void *from, size_t now);

/* Op i of an array whose elements are as long as the program's header says. */
static inline const struct pawl_op *op_at(const struct pawl_op *ops, size_t i)
{
	return (const struct pawl_op *)((const char *)ops + i * ops->size);
}

#endif
