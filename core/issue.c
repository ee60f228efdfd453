// SPDX-License-Identifier: Apache-2.0
/*
 * Ops of engines with devices: the steps before and after their bodies.
 *
 *   op on a device   takes a lane (stream), orders it after the pending work on its vars,
 *                    runs the body, numbers the work that the body queued, stores the number
 *                    with its vars (pending.c); then it retires like any op
 *   op on a CPU      runs if no work that it must follow is pending; otherwise it is parked
 *
 * Choice of the lane: the lane of the last write of one of its vars, if that write is the
 * newest work of the lane.  Then there is nothing to wait for, and a chain of ops needs no
 * events.  Otherwise the next lane in turn.  Before an op is queued behind an unrelated op of
 * a lane, an event is recorded between them, so that successors of the earlier op do not wait
 * for the later one.  That is not needed if the later op writes everything that the earlier
 * one touched: all successors must then follow it as well.
 *
 * Progress: lock-free, apart from the driver and the bodies.
 */
#include <string.h>
#include <core/devices.h>
#include <core/error.h>
#include <core/retire.h>

/* The device is lost: let the op fail. */
static int op_lost(struct thread *t, struct op *op, const struct device *d)
{
	err(-ENOTRECOVERABLE, "%s", d->text);
	if (!(op->flags & OP_ERR))
		op_err_set(t, op, error_make(t, -ENOTRECOVERABLE, op_name(op), d->text));
	return -ENOTRECOVERABLE;
}

/* An op on a CPU.  0: run it. */
static int host_begin(struct thread *t, struct op *op, u32 opi, struct pawl_run *run)
{
	struct pawl_engine *e = t->e;
	struct pending_query a = { .poll = true };

	pending_query(e, op, &a);
	if (likely(!a.lost && !a.pending))
		return 0;
	if (a.pending) {
		a.want = true;
		pending_query(e, op, &a);
	}
	if (a.pending) {
		op_park(e, op, opi);
		return DEVICE_PARKED;
	}
	if (!a.lost)
		return 0;
	if (op->flags & OP_NO_SKIP) {
		run->status = -ENOTRECOVERABLE;
		forget_pending(e, op);
		return 0;
	}
	return op_lost(t, op, lane_of(e->devices, a.lost)->d);
}

/* --- lanes for ops --- */

static int follow_one(struct devices *dv, u64 p, void *arg)
{
	return lane_follow(arg, lane_of(dv, p), p & LANE_SEQ_MASK);
}

/* A lane that this thread has already taken, for a body further up its stack. */
static struct lane *lane_above(struct thread *t, const struct dev_row *row)
{
	struct frame *f;

	/* Not the op's own frame, which has no lane yet. */
	for_each_frame(t, f) {
		struct lane *l = (struct lane *)((uintptr_t)f->run.reserved & ~(uintptr_t)1);

		if (l && l->d == row->d)
			return l;
	}
	return NULL;
}

/* The lane of the last write of one of the vars, if that write is the lane's newest work. */
static struct lane *lane_behind(struct pawl_engine *e, struct op *op, const struct dev_class *c)
{
	struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u32 j;

	for (j = 0; j < op->ndeps; j++) {
		u64 p = last_write(e, &deps[j]);
		struct lane *l = lane_of(e->devices, p);

		if (p && l->id - c->first < c->n &&
		    load_relaxed(&l->issued) == (p & LANE_SEQ_MASK) && lane_take(l))
			return l;
	}
	return NULL;
}

/* Returns NULL if other threads have taken all lanes. */
static struct lane *lane_choose(struct thread *t, struct op *op, const struct dev_row *row,
				struct dev_class *c)
{
	struct lane *l, *lanes = t->e->devices->lanes;
	u32 i, turn;

	l = lane_behind(t->e, op, c);
	if (l)
		return l;
	turn = fetch_add_relaxed(&c->turn, 1);
	for (i = 0; i < c->n; i++) {
		l = &lanes[c->first + (turn + i) % c->n];
		if (lane_take(l))
			return l;
	}
	return lane_above(t, row);
}

/* True if the lanes of the class are full, or if held ops must go first. */
static bool class_full(struct pawl_engine *e, struct dev_class *c)
{
	struct devices *dv = e->devices;
	u32 i;

	/* A naive push waits for its work, so it cannot fill a lane, and no thread serves held ops. */
	if (e->kind == PAWL_NAIVE)
		return false;
	if (!load_relaxed(&c->held) && class_room(dv, c))
		return false;
	for (i = 0; i < c->n; i++)
		lane_poll(&dv->lanes[c->first + i]);
	return load_relaxed(&c->held) || !class_room(dv, c);
}

/*
 * New work fills the class: record events from time to time, so that completion is noticed
 * and makes room, and poke the reaper if ops are held.
 */
static void class_fills(struct pawl_engine *e, struct lane *l, u64 seq)
{
	struct devices *dv = e->devices;
	struct dev_class *c = container_of(l->load, struct dev_class, load);

	if (load_relaxed(&c->load) > dv->most / 2 && lane_unmarked(l, seq, dv->most / 32 + 1)) {
		(void)!lane_mark(l, seq);
		lane_poll(l);
	}
	smp_mb();	/* CORE-D13 <-> CORE-D14: the number before the check */
	if (unlikely(load_relaxed(&c->held)))
		reaper_poke(e);
}

/* Does op write everything that the newest work of the lane touched? */
static bool covers_tip(struct pawl_engine *e, struct op *op, const struct lane *l)
{
	struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u32 i, j;

	if (l->tip != load_relaxed(&l->issued) || !l->ntip)
		return false;
	for (i = 0; i < l->ntip; i++) {
		for (j = 0; j < op->ndeps; j++)
			if (deps[j].var == (l->tip_var[i] | DEP_WRITE))
				break;
		if (j == op->ndeps)
			return false;
	}
	return true;
}

static void tip_set(struct pawl_engine *e, struct op *op, struct lane *l, u64 seq)
{
	struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u32 j;

	l->tip = seq;
	l->ntip = op->ndeps <= LANE_TIP ? op->ndeps : 0;
	for (j = 0; j < l->ntip; j++)
		l->tip_var[j] = deps[j].var & ~DEP_WRITE;
}

/* The op's work is queued on the lane: number it, and store the number with its vars. */
static u64 op_issued(struct thread *t, struct op *op, struct lane *l)
{
	u64 seq = lane_issue(l);

	pending_note(t, op, l, seq);
	if (l->eager)
		(void)!lane_mark(l, seq);	/* on failure a successor records one */
	if (t->e->kind == PAWL_NAIVE)
		lane_sync(l);
	class_fills(t->e, l, seq);
	return seq;
}

static int op_fails(struct thread *t, struct op *op, int rc)
{
	if (!(op->flags & OP_ERR))
		op_err_set(t, op, error_make(t, rc, op_name(op), err_text()));
	return rc;
}

/* Order the lane after all pending work that the op must follow. */
static int lane_prepare(struct thread *t, struct op *op, struct dev_row *row, struct lane *l)
{
	struct pawl_engine *e = t->e;
	int rc = recs_get(t, op);

	if (!rc && !covers_tip(e, op, l))
		/* Relaxed: DEVICE-T1 ordered the earlier owners' numbers before this. */
		rc = lane_mark(l, load_relaxed(&l->issued));
	if (!rc)
		rc = op_pending(e, op, follow_one, l);
	return rc ? rc : device_check(row->d, row->d->ops->use(row->d->dev));
}

/* True if no work that the op must follow is pending, so that any lane will do. */
static bool nothing_pending(struct pawl_engine *e, struct op *op)
{
	struct pending_query a = { .poll = true, .want = true };

	pending_query(e, op, &a);
	return !a.pending;
}

/* room: the reaper has released the op and counted it. */
static int device_op_begin(struct thread *t, struct op *op, u32 opi, struct pawl_run *run,
			   bool room)
{
	struct pawl_engine *e = t->e;
	struct dev_row *row = op_row(e->devices, op);
	struct dev_class *c = class_of(row, op->prop);
	struct pending_query a = { .except = row->d->ops, .poll = true, .want = true };
	struct lane *l;
	bool above;
	int rc;

	run->device = row->name;
	pending_query(e, op, &a);
	rc = device_lost(row->d) ? -ENOTRECOVERABLE : 0;
	/* No stream can follow work of another kind of device.  Or the lanes are full. */
	if (unlikely(a.pending || (!rc && !room && class_full(e, c)))) {
		op_park(e, op, opi);
		return DEVICE_PARKED;
	}
	if (unlikely(rc || a.lost))
		rc = op_lost(t, op, rc ? row->d : lane_of(e->devices, a.lost)->d);
	if (unlikely(rc && !(op->flags & OP_NO_SKIP)))
		return rc;
	l = lane_choose(t, op, row, c);
	if (unlikely(!l)) {
		cpu_relax();	/* it may be taken again at once: let other threads finish */
		store_relaxed(&op->wait, room ? OP_ROOM : 0);
		queue_op(t, op, opi);
		return DEVICE_QUEUED;
	}
	above = lane_above(t, row) == l;
	/* Device lost: let NO_SKIP ops run so that they can free resources. */
	if (likely(!rc))
		rc = lane_prepare(t, op, row, l);
	if (unlikely(rc && (!(op->flags & OP_NO_SKIP) || !nothing_pending(e, op)))) {
		if (!above)
			lane_put(l);
		if (!(op->flags & OP_NO_SKIP))
			return op_fails(t, op, rc);
		/* The memory that it frees may still be in use: try again later. */
		op_park(e, op, opi);
		return DEVICE_PARKED;
	}
	run->status = rc;
	run->stream = l->stream;
	run->reserved = (void *)((uintptr_t)l | above);
	store_relaxed(&op->wait, l->id + 1);
	return 0;
}

/*
 * Called before the body of every op of an engine with devices.  0: run it.  DEVICE_PARKED:
 * another thread owns the op now.  Negative: the op fails with this error.
 */
int device_begin(struct thread *t, struct op *op, u32 opi, struct pawl_run *run)
{
	struct devices *dv = t->e->devices;
	struct dev_class *c;
	bool room;
	int rc;

	if (op->dev < DEV_FIRST)
		return host_begin(t, op, opi, run);
	room = load_relaxed(&op->wait) == OP_ROOM;
	store_relaxed(&op->wait, 0);
	/* Read the class now: once the op is parked or queued it may complete. */
	c = class_of(op_row(dv, op), op->prop);
	rc = device_op_begin(t, op, opi, run, room);
	if (unlikely(room && rc != DEVICE_QUEUED)) {
		fetch_add_relaxed(&c->coming, -1u);
		if (rc)
			reaper_poke(t->e);	/* the next op may use its room */
	}
	return rc == DEVICE_QUEUED ? DEVICE_PARKED : rc;
}

/* The body has returned.  An asynchronous op (op is NULL) may queue more work later. */
void device_end(struct thread *t, struct op *op, struct pawl_run *run)
{
	uintptr_t v = (uintptr_t)run->reserved;
	struct lane *l = (struct lane *)(v & ~(uintptr_t)1);

	run->reserved = NULL;
	if (!l)
		return;
	if (op)
		tip_set(t->e, op, l, op_issued(t, op, l));
	if (!(v & 1))
		lane_put(l);
}

/* An asynchronous op on a device is completed: its work is everything queued until now. */
void device_async_end(struct thread *t, struct op *op)
{
	u32 lane = load_relaxed(&op->wait);

	if (lane)
		op_issued(t, op, &t->e->devices->lanes[lane - 1]);
}

/* An op without a body only orders its successors, on the host or on the device. */
int device_order(struct thread *t, struct op *op, u32 opi)
{
	struct frame f;
	int rc;

	memset(&f, 0, sizeof(f));
	f.run.engine = t->e;
	f.up = thread_last.frame;
	f.t = t;
	f.op = opi;
	thread_last.frame = &f;
	rc = device_begin(t, op, opi, &f.run);
	if (!rc)
		device_end(t, op, &f.run);
	thread_last.frame = f.up;
	return rc;
}

/* Returns NULL for a CPU. */
struct device *device_of_run(struct pawl_run *run)
{
	struct lane *l = (struct lane *)((uintptr_t)run->reserved & ~(uintptr_t)1);

	return l ? l->d : NULL;
}
