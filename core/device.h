/* SPDX-License-Identifier: Apache-2.0 */
/* What the rest of the core calls in an engine with devices. */
#ifndef CORE_DEVICE_H
#define CORE_DEVICE_H

#include <core/op.h>

/*
 * The files of core/devices.h.  An op's dev is the number of a CPU device, or DEV_FIRST + the
 * row of what op.device names.
 */
#define MAX_DEVICES	16u
#define MAX_ADOPTED	64u		/* streams */
#define MAX_ROWS	(MAX_DEVICES + MAX_ADOPTED)
#define MAX_STREAMS	32u		/* compute streams of a device */
#define DEV_FIRST	64u
#define DEV_ROWS	(DEV_FIRST + MAX_ROWS)
#define DEVICE_PARKED	1
#define DEVICE_QUEUED	2		/* issue.c: the same, in its queue */
int devices_check(const struct pawl_config *c);
int devices_create(struct pawl_engine *e, const struct pawl_device *list);
int devices_start(struct pawl_engine *e);
void devices_stop(struct pawl_engine *e);
void devices_free(struct pawl_engine *e);
u32 device_row(struct pawl_engine *e, struct pawl_device name);
int device_begin(struct thread *t, struct op *op, u32 opi, struct pawl_run *run);
void device_end(struct thread *t, struct op *op, struct pawl_run *run);
void device_async_end(struct thread *t, struct op *op);
int device_order(struct thread *t, struct op *op, u32 opi);
void device_var_end(struct thread *t, struct var_side *side);
bool device_busy(struct pawl_engine *e, u32 vi, bool write);
bool device_wait_parks(struct thread *t, struct op *op, u32 opi);
int device_wait_error(struct thread *t, struct op *op, struct pawl_error *out);
int device_lost_any(struct pawl_engine *e, struct pawl_error *out);
bool devices_work(struct pawl_engine *e);
int device_wait_all(struct thread *t, s64 timeout_ns, u32 how, u32 help);
u32 device_rec_size(void);
struct pawl_device device_name(const struct pawl_engine *e, u32 dev);
struct device;
struct device *device_of_run(struct pawl_run *run);

static inline u32 op_device(struct pawl_engine *e, struct pawl_device name)
{
	return likely(name.kind == PAWL_CPU) ? name.id : device_row(e, name);
}

#endif
