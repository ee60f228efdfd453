/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices: declarations that these files share; device.h is for the others.
 *
 *   devices.c   opening and closing devices and their streams; their names
 *   device.c    the public calls
 *   issue.c     ops on a device queue their work on a stream
 *   pending.c   the work of devices that is pending on a var
 *   reaper.c    ops and waits that are parked until a device completes work, and the thread
 *               that serves them
 *   group.c     the bodies of a graph as one, captured
 *
 * Field legend: core/engine.h.
 */
#ifndef CORE_DEVICES_H
#define CORE_DEVICES_H

#include <base/thread.h>
#include <core/device.h>
#include <device/device.h>
#include <pawl/device.h>

#define MAX_LANES	(MAX_DEVICES * (MAX_STREAMS + 3) + MAX_ADOPTED)
#define ADOPTED_ID	256u		/* ids of adopted streams begin here */

/*
 * Lanes of a device for the same purpose, with a bound for their incomplete work.  The reaper
 * holds ops beyond it (reaper.c), higher priority first, FIFO among equals.
 */
struct dev_class {
	u64 load;		/* A: ops in the lanes that are not known to be complete */
	u32 coming;		/* A: released ops that are not in a lane yet */
	u32 held;		/* number of held ops; the reaper writes, others read */
	u32 first, n;		/* I: lanes */
	u32 head, tail;		/* reaper: held ops, linked by op->wait */
	u32 turn;		/* A */
};

enum { CLASS_COMPUTE, CLASS_PRIO, CLASS_IN, CLASS_OUT, CLASSES };

/* Something that op.device can name, apart from CPUs. */
struct dev_row {
	struct pawl_device name;
	struct device *d;
	bool adopted;		/* I: one lane, one class */
	struct dev_class class[CLASSES];
};

/* Value of op->wait for an op that was released to its body: there is room for it. */
#define OP_ROOM		0xffffffffu

struct devices {
	u32 ndev;		/* I */
	u32 nrows;		/* A */
	u32 max_lanes;		/* I */
	u32 most;		/* I: bound of the ops in the lanes of a class */
	u32 nlanes;		/* A */
	struct lane *lanes;	/* I */
	struct thread *reaper;	/* A */
	u32 parked __cacheline_aligned;	/* A: ops, linked by op->wait */
	u32 nwait;		/* A: threads that wait for all devices */
	u32 poke;		/* A: the reaper must check again */
	u32 stop;		/* A */
	u32 adopting;		/* A: a thread adopts a stream */
	u32 kept, last;		/* reaper: parked ops that it took, oldest first */
	u32 held;		/* reaper: ops that it holds, in all classes */
	u64 seen[MAX_LANES];	/* reaper: last known completion of each lane */
	bool news;		/* reaper: seen has changed */
	struct exec_os_thread thread;
	int thread_rc;
	bool has_thread;
	struct device d[MAX_DEVICES];
	struct dev_row rows[MAX_ROWS];
};

static inline struct lane *lane_of(const struct devices *dv, u64 pending)
{
	return &dv->lanes[pending >> LANE_SEQ_BITS];
}

static inline u64 pending_make(const struct lane *l, u64 seq)
{
	return (u64)l->id << LANE_SEQ_BITS | seq;
}

static inline struct dev_row *op_row(struct devices *dv, const struct op *op)
{
	return &dv->rows[op->dev - DEV_FIRST];
}

static inline struct dev_class *class_of(struct dev_row *row, u32 prop)
{
	return &row->class[row->adopted ? CLASS_COMPUTE :
			   prop == PAWL_COPY_TO_DEVICE ? CLASS_IN :
			   prop == PAWL_COPY_FROM_DEVICE ? CLASS_OUT :
			   prop == PAWL_GPU_PRIORITIZED ? CLASS_PRIO : CLASS_COMPUTE];
}

static inline bool class_room(const struct devices *dv, const struct dev_class *c)
{
	return load_relaxed(&c->load) + load_relaxed(&c->coming) < dv->most;
}

/* devices.c */
struct dev_row *row_get(struct pawl_engine *e, struct pawl_device name, const char *who);
int device_lane_add(struct devices *dv, struct device *d, struct dev_class *c, void *stream,
		    int priority, bool eager);
int devices_process_check(const char *who);

/* pending.c */
/* Call fn for each number that is pending for an access, until one call does not return 0. */
typedef int (*pending_fn)(struct devices *dv, u64 pending, void *arg);
int op_pending(struct pawl_engine *e, struct op *op, pending_fn fn, void *arg);

/* A query: is any work that the op must follow pending, or on a lost device? */
struct pending_query {
	const struct device_ops *except;	/* skip this kind: its streams use events */
	bool poll, want;
	u64 lost;		/* result: a number on a lost device, or 0 */
	u64 pending;		/* result: a number that the host must wait for, or 0 */
};

void pending_query(struct pawl_engine *e, struct op *op, struct pending_query *a);
void forget_pending(struct pawl_engine *e, struct op *op);
u64 last_write(struct pawl_engine *e, const struct dep *d);
int recs_get(struct thread *t, struct op *op);
void pending_note(struct thread *t, struct op *op, struct lane *l, u64 seq);

/* reaper.c */
void reaper_wake(struct pawl_engine *e);
void reaper_poke(struct pawl_engine *e);
void op_park(struct pawl_engine *e, struct op *op, u32 opi);
void *reaper_main(void *arg);

#endif
