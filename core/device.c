// SPDX-License-Identifier: Apache-2.0
/*
 * Ops on devices, and what of them is pending.
 *
 * Purpose: an op on a device is over for the queue of its vars as soon as its body has put
 * its work into a stream.  What is still to happen on the device is kept beside the var, and
 * whoever comes next follows it: another stream by an event, the host by being parked
 * until the event is over.
 *
 * Structures: a var that a device op ever named has a record (struct devrec): the number of
 * the last write in its lane, and for each lane the highest number of a read since.  The queue
 * of the var says who may change it: the op that writes the var is alone; ops that read it
 * only add their reads, by compare-and-swap.  A record is one or more objects, bounded by
 * the number of lanes.
 *
 *   op on a device   takes a lane (stream), makes it follow what is pending on its vars,
 *                    runs the body, numbers what was put there, notes the number in the
 *                    records; then it retires as any op
 *   op on a CPU      runs if nothing that it must follow is pending; else it is parked
 *   wait             granted as before, but parked in the same way
 *
 * Parked ops are a list for one thread of the engine, the reaper, which asks events while
 * it spins, and sleeps until the device calls back (lane_notify()) when it takes longer.
 * Then they go to their queues, or the waiting thread is told.
 *
 * Which lane: that of the last write of one of its vars, if nothing came behind that write
 * in its stream: then there is nothing to wait for, and a chain of ops needs no event at
 * all.  Else the next one in turn.  Before an op goes behind another one in a lane, an
 * event is recorded between them, unless it writes all that the other one touched:
 * whoever follows the other one later must then follow it as well.
 *
 * Ordering:
 *   CORE-D1 (record's place in the var, CAS) <-> CORE-D2 (acquire)
 *   CORE-D3 (a read's number, CAS) <-> CORE-D4 (acquire, by the next writer)
 *   CORE-D5 (parked, CAS) <-> CORE-D6 (taken by the reaper, exchange)
 *   CORE-D7 (a wait for all counts itself, seq_cst) <-> CORE-D8 (the reaper looks, smp_mb)
 *   CORE-D9 (reaper is there, release) <-> CORE-D10
 *   CORE-D11 (adopted row, release) <-> CORE-D12 (acquire)
 *   The write's number is a plain fact of the version: CORE-R1 <-> CORE-A3 order it.
 *
 * Progress: lock-free, but for the driver and the bodies.
 *
 * Lifetime: records are type-stable; a look at one that went to another var gives a wrong
 * answer only about a var that was deleted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <base/thread.h>
#include <core/internal.h>
#include <device/device.h>
#include <pawl/device.h>

#define MAX_DEVICES	16u
#define MAX_ADOPTED	64u
#define MAX_ROWS	(MAX_DEVICES + MAX_ADOPTED)
#define MAX_STREAMS	32u		/* compute streams of a device */
#define MAX_LANES	(MAX_DEVICES * (MAX_STREAMS + 3) + MAX_ADOPTED)
#define REC_READS	14u
#define ADOPTED_ID	256u		/* ids of adopted streams begin here */

/* What is pending on a var. */
struct devrec {
	u64 write;		/* A: lane << 48 | number, or 0 */
	u32 next;		/* A: more reads, or 0 */
	u32 unused;
	u64 reads[REC_READS];	/* A */
};

BUILD_BUG_ON(sizeof(struct devrec) != 128);

/* What op.device can name, besides CPUs. */
struct dev_row {
	struct pawl_device name;
	struct device *d;
	u32 first, n;		/* I: its compute lanes */
	u32 prio, in, out;	/* I: lanes */
	u32 turn;		/* A */
};

struct devices {
	u32 ndev;		/* I */
	u32 nrows;		/* A */
	u32 max_lanes;		/* I */
	u32 nlanes;		/* A */
	struct lane *lanes;	/* I */
	struct thread *reaper;	/* A */
	u32 parked __cacheline_aligned;	/* A: ops, linked by op->wait */
	u32 nwait;		/* A: threads that wait for all devices */
	u32 poke;		/* A: something more is wanted */
	u32 stop;		/* A */
	u32 adopting;		/* A: one at a time */
	u32 kept, last;		/* reaper: parked ops that it took, oldest first */
	u64 seen[MAX_LANES];	/* reaper: how far it knows each lane to be */
	bool news;		/* reaper: that has changed */
	os_thread thread;
	int thread_rc;
	bool has_thread;
	struct device d[MAX_DEVICES];
	struct dev_row rows[MAX_ROWS];
};

u32 device_rec_size(void)
{
	return sizeof(struct devrec);
}

/* What op.device said, for an op's dev. */
struct pawl_device device_name(const struct pawl_engine *e, u32 dev)
{
	return dev < DEV_FIRST ? (struct pawl_device){ PAWL_CPU, (u16)dev } :
	       e->devices->rows[dev - DEV_FIRST].name;
}

static struct devrec *rec_of(const struct pawl_engine *e, u32 idx)
{
	return pool_obj(e->pool[POOL_DEVREC], idx);
}

static u32 var_rec(const struct pawl_engine *e, u32 vi)
{
	return load_acquire(&var_side_of(e, vi)->rec);	/* CORE-D2 <-> CORE-D1 */
}

static inline struct lane *lane_of(const struct devices *dv, u64 pending)
{
	return &dv->lanes[pending >> LANE_SEQ_BITS];
}

static inline u64 pending_make(const struct lane *l, u64 seq)
{
	return (u64)l->id << LANE_SEQ_BITS | seq;
}

static inline enum lane_state pending_state(const struct devices *dv, u64 pending)
{
	return likely(!pending) ? LANE_DONE :
	       lane_state(lane_of(dv, pending), pending & LANE_SEQ_MASK);
}

/* --- all that an op must follow --- */

/* fn for each number that is pending for an access; the first that is not 0 ends it. */
typedef int (*pending_fn)(struct devices *dv, u64 pending, void *arg);

static int dep_pending(struct pawl_engine *e, u32 vi, bool write, pending_fn fn, void *arg)
{
	struct devices *dv = e->devices;
	u32 idx = var_rec(e, vi), j;
	struct devrec *r;
	int rc;

	if (likely(!idx))
		return 0;
	r = rec_of(e, idx);
	if (pending_state(dv, load_acquire(&r->write)) != LANE_DONE) {
		rc = fn(dv, load_acquire(&r->write), arg);
		if (rc)
			return rc;
	}
	if (!write)
		return 0;
	for (; idx; idx = load_acquire(&r->next)) {
		r = rec_of(e, idx);
		for (j = 0; j < REC_READS; j++) {
			u64 p = load_acquire(&r->reads[j]);	/* CORE-D4 <-> CORE-D3 */

			if (pending_state(dv, p) == LANE_DONE)
				continue;
			rc = fn(dv, p, arg);
			if (rc)
				return rc;
		}
	}
	return 0;
}

static int op_pending(struct pawl_engine *e, struct op *op, pending_fn fn, void *arg)
{
	struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u32 j;
	int rc = 0;

	for (j = 0; !rc && j < op->ndeps; j++)
		if (deps[j].block)
			rc = dep_pending(e, deps[j].var & ~DEP_WRITE, deps[j].var & DEP_WRITE, fn, arg);
	return rc;
}

struct ask {
	const struct device_ops *except;	/* streams of this kind follow by themselves */
	bool poll, want;
	u64 lost;		/* one of a lost device */
	u64 pending;		/* one that is to be waited for by the host */
};

static int ask_one(struct devices *dv, u64 p, void *arg)
{
	struct ask *a = arg;
	struct lane *l = lane_of(dv, p);
	u64 seq = p & LANE_SEQ_MASK;

	if (l->d->ops == a->except)
		return 0;
	if (a->poll && lane_state(l, seq) == LANE_PENDING)
		lane_poll(l);
	switch (lane_state(l, seq)) {
	case LANE_DONE:
		return 0;
	case LANE_LOST:
		a->lost = p;
		return 0;
	case LANE_PENDING:
		break;
	}
	a->pending = p;
	if (a->want) {
		/* As early as can be, so that the event stands for little else. */
		(void)!lane_mark(l, seq);
		lane_want(l, seq);
	}
	return 0;
}

static void ask(struct pawl_engine *e, struct op *op, struct ask *a)
{
	a->lost = a->pending = 0;
	op_pending(e, op, ask_one, a);
}

/* --- parking --- */

static void reaper_wake(struct pawl_engine *e)
{
	struct thread *r = load_acquire(&e->devices->reaper);	/* CORE-D10 <-> CORE-D9 */

	if (r)
		exec_unpark(e->x, &r->ex);
}

/* The op's last look came too early: the reaper gives it back when that has changed. */
static void park(struct pawl_engine *e, struct op *op, u32 opi)
{
	struct devices *dv = e->devices;
	u32 head = load_relaxed(&dv->parked);

	do
		store_relaxed(&op->wait, head);
	while (!cas_acq_rel_relaxed(&dv->parked, &head, opi));	/* CORE-D5 <-> CORE-D6 */
	reaper_wake(e);
}

/* The device, as the driver sees it, is gone: what this means to an op. */
static int lost(struct thread *t, struct op *op, const struct device *d)
{
	err(-ENOTRECOVERABLE, "%s", d->text);
	if (!(op->flags & OP_ERR))
		op_err_set(op, error_make(t, -ENOTRECOVERABLE, op_name(op), d->text));
	return -ENOTRECOVERABLE;
}

/* By the op that writes the var: alone with it. */
static void rec_write(struct pawl_engine *e, u32 idx, u64 p)
{
	struct devrec *r = rec_of(e, idx);
	u32 j;

	store_release(&r->write, p);
	for (; idx; idx = load_relaxed(&r->next)) {
		r = rec_of(e, idx);
		for (j = 0; j < REC_READS; j++)
			store_relaxed(&r->reads[j], 0);
	}
}

/* An op that knows of the loss writes its vars: they are the host's again. */
static void forget_pending(struct pawl_engine *e, struct op *op)
{
	struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u32 j, idx;

	for (j = 0; j < op->ndeps; j++) {
		if (!(deps[j].var & DEP_WRITE) || !deps[j].block)
			continue;
		idx = var_rec(e, deps[j].var & ~DEP_WRITE);
		if (idx)
			rec_write(e, idx, 0);
	}
}

/* An op on a CPU.  0: go on. */
static int host_begin(struct thread *t, struct op *op, u32 opi, struct pawl_run *run)
{
	struct pawl_engine *e = t->e;
	struct ask a = { .poll = true };

	ask(e, op, &a);
	if (likely(!a.lost && !a.pending))
		return 0;
	if (a.pending) {
		a.want = true;
		ask(e, op, &a);
	}
	if (a.pending) {
		park(e, op, opi);
		return DEVICE_PARKED;
	}
	if (!a.lost)
		return 0;
	if (op->flags & OP_NO_SKIP) {
		run->status = -ENOTRECOVERABLE;
		forget_pending(e, op);
		return 0;
	}
	return lost(t, op, lane_of(e->devices, a.lost)->d);
}

/* --- lanes for ops --- */

static int follow_one(struct devices *dv, u64 p, void *arg)
{
	return lane_follow(arg, lane_of(dv, p), p & LANE_SEQ_MASK);
}

/* A lane that this thread has already, by a body further up its stack. */
static struct lane *lane_above(struct thread *t, const struct dev_row *row)
{
	struct frame *f;

	for (f = t->frame->up; f; f = f->up) {
		struct lane *l = (struct lane *)((uintptr_t)f->run.reserved & ~(uintptr_t)1);

		if (l && l->d == row->d)
			return l;
	}
	return NULL;
}

static struct lane *lane_one(struct thread *t, struct lane *l, const struct dev_row *row)
{
	return lane_take(l) ? l : lane_above(t, row);
}

/* Behind the newest write of one of the vars, if that is the last in its lane. */
static struct lane *lane_behind(struct pawl_engine *e, struct op *op, const struct dev_row *row)
{
	struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u32 j;

	for (j = 0; j < op->ndeps; j++) {
		u32 idx = deps[j].block ? var_rec(e, deps[j].var & ~DEP_WRITE) : 0;
		u64 p = idx ? load_acquire(&rec_of(e, idx)->write) : 0;
		struct lane *l = lane_of(e->devices, p);

		if (p && l->id - row->first < row->n &&
		    load_relaxed(&l->issued) == (p & LANE_SEQ_MASK) && lane_take(l))
			return l;
	}
	return NULL;
}

/* NULL: other threads have them all. */
static struct lane *lane_choose(struct thread *t, struct op *op, struct dev_row *row)
{
	struct devices *dv = t->e->devices;
	struct lane *l;
	u32 i, turn;

	switch (op->prop) {
	case PAWL_COPY_TO_DEVICE:
		return lane_one(t, &dv->lanes[row->in], row);
	case PAWL_COPY_FROM_DEVICE:
		return lane_one(t, &dv->lanes[row->out], row);
	case PAWL_GPU_PRIORITIZED:
		return lane_one(t, &dv->lanes[row->prio], row);
	}
	l = lane_behind(t->e, op, row);
	if (l)
		return l;
	turn = fetch_add_relaxed(&row->turn, 1);
	for (i = 0; i < row->n; i++) {
		l = &dv->lanes[row->first + (turn + i) % row->n];
		if (lane_take(l))
			return l;
	}
	return lane_above(t, row);
}

/* Does op write all that the newest work of the lane touched? */
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

/* The var's record; made if there is none.  0: no memory. */
static u32 rec_get(struct thread *t, u32 *place)
{
	struct pawl_engine *e = t->e;
	u32 idx = load_acquire(place), was = 0;	/* CORE-D2 <-> CORE-D1 */
	struct devrec *r;

	if (likely(idx))
		return idx;
	r = pool_get(e->pool[POOL_DEVREC], &t->cache[POOL_DEVREC], &idx);
	if (!r)
		return 0;
	store_relaxed(&r->write, 0);
	store_relaxed(&r->next, 0);
	for (u32 j = 0; j < REC_READS; j++)
		store_relaxed(&r->reads[j], 0);
	if (cas_acq_rel_acquire(place, &was, idx))	/* CORE-D1 <-> CORE-D2 */
		return idx;
	pool_put(e->pool[POOL_DEVREC], &t->cache[POOL_DEVREC], idx);
	return was;
}

static int recs_get(struct thread *t, struct op *op)
{
	struct dep *deps = op_deps(t->e, op, op->ndeps, op->ext);
	u32 j;

	for (j = 0; j < op->ndeps; j++)
		if (deps[j].block && !rec_get(t, &var_side_of(t->e, deps[j].var & ~DEP_WRITE)->rec))
			return err(-ENOMEM, "no memory for what is pending on a var");
	return 0;
}

/* True: the number is in this place of the list of reads. */
static bool read_put(struct devices *dv, u64 *place, u64 p)
{
	u64 was = load_acquire(place);

	while ((was >> LANE_SEQ_BITS) == (p >> LANE_SEQ_BITS) ||
	       pending_state(dv, was) == LANE_DONE) {
		if ((was >> LANE_SEQ_BITS) == (p >> LANE_SEQ_BITS) && was >= p)
			return true;
		if (cas_acq_rel_acquire(place, &was, p))	/* CORE-D3 <-> CORE-D4 */
			return true;
	}
	return false;
}

static void rec_read(struct thread *t, u32 idx, struct lane *l, u64 p)
{
	struct pawl_engine *e = t->e;
	u32 j, next;

	for (;;) {
		struct devrec *r = rec_of(e, idx);

		for (j = 0; j < REC_READS; j++)
			if (read_put(e->devices, &r->reads[j], p))
				return;
		next = rec_get(t, &r->next);
		if (unlikely(!next)) {
			/* Nowhere to write it down: then it must be over. */
			(void)!lane_sync(l);
			return;
		}
		idx = next;
	}
}

/* The op's work is in the lane: number it, and note the number with its vars. */
static u64 issued(struct thread *t, struct op *op, struct lane *l)
{
	struct pawl_engine *e = t->e;
	struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u64 seq = lane_issue(l), p = pending_make(l, seq);
	u32 j;

	for (j = 0; j < op->ndeps; j++) {
		u32 idx = deps[j].block ? var_rec(e, deps[j].var & ~DEP_WRITE) : 0;

		if (!idx)
			continue;
		if (deps[j].var & DEP_WRITE)
			rec_write(e, idx, p);
		else
			rec_read(t, idx, l, p);
	}
	if (l->eager)
		(void)!lane_mark(l, seq);	/* else whoever needs one records it */
	if (e->kind == PAWL_NAIVE)
		(void)!lane_sync(l);
	return seq;
}

static int op_fails(struct thread *t, struct op *op, int rc)
{
	if (!(op->flags & OP_ERR))
		op_err_set(op, error_make(t, rc, op_name(op), err_text()));
	return rc;
}

static int device_op_begin(struct thread *t, struct op *op, u32 opi, struct pawl_run *run)
{
	struct pawl_engine *e = t->e;
	struct dev_row *row = &e->devices->rows[op->dev - DEV_FIRST];
	struct ask a = { .except = row->d->ops, .poll = true, .want = true };
	struct lane *l;
	bool above;
	int rc;

	run->device = row->name;
	ask(e, op, &a);
	if (unlikely(a.pending)) {
		/* Of another kind of device: no stream can follow that. */
		park(e, op, opi);
		return DEVICE_PARKED;
	}
	rc = device_lost(row->d) ? lost(t, op, row->d) :
	     a.lost ? lost(t, op, lane_of(e->devices, a.lost)->d) : 0;
	if (unlikely(rc && !(op->flags & OP_NO_SKIP)))
		return rc;
	l = lane_choose(t, op, row);
	if (unlikely(!l)) {
		exec_push(op_queue(e, op), &t->ex, opi, op->prio,
			  op->prop == PAWL_DELETE_VAR ? EXEC_FRONT : 0);
		return DEVICE_PARKED;
	}
	above = lane_above(t, row) == l;
	if (unlikely(rc)) {
		/* A last chance to free things: the calls that need the device will fail. */
		run->status = rc;
		goto go;
	}
	rc = recs_get(t, op);
	if (!rc && !covers_tip(e, op, l))
		rc = lane_mark(l, load_acquire(&l->issued));
	if (!rc)
		rc = op_pending(e, op, follow_one, l);
	if (!rc)
		rc = device_check(row->d, row->d->ops->use(row->d->dev));
	if (unlikely(rc)) {
		if (!above)
			lane_put(l);
		rc = op_fails(t, op, rc);
		if (!(op->flags & OP_NO_SKIP))
			return rc;
		run->status = rc;
		return 0;
	}
go:
	run->stream = l->stream;
	run->reserved = (void *)((uintptr_t)l | above);
	store_relaxed(&op->wait, l->id + 1);
	return 0;
}

/*
 * Before the body of any op of an engine with devices.  0: run it; DEVICE_PARKED: it is
 * somebody else's now; negative: it fails with that.
 */
int device_begin(struct thread *t, struct op *op, u32 opi, struct pawl_run *run)
{
	if (op->dev < DEV_FIRST)
		return host_begin(t, op, opi, run);
	store_relaxed(&op->wait, 0);
	return device_op_begin(t, op, opi, run);
}

/* The body has returned; of an asynchronous op nothing but that is known. */
void device_end(struct thread *t, struct op *op, struct pawl_run *run)
{
	uintptr_t v = (uintptr_t)run->reserved;
	struct lane *l = (struct lane *)(v & ~(uintptr_t)1);

	run->reserved = NULL;
	if (!l)
		return;
	if (op)
		tip_set(t->e, op, l, issued(t, op, l));
	if (!(v & 1))
		lane_put(l);
}

/* An asynchronous op on a device is completed: its work is what it put there until now. */
void device_async_end(struct thread *t, struct op *op)
{
	u32 lane = load_relaxed(&op->wait);

	if (lane)
		issued(t, op, &t->e->devices->lanes[lane - 1]);
}

/* An op without a body: it orders what comes behind it, on the host or the device. */
int device_order(struct thread *t, struct op *op, u32 opi)
{
	struct frame f;
	int rc;

	memset(&f, 0, sizeof(f));
	f.run.engine = t->e;
	f.up = t->frame;
	f.t = t;
	f.op = opi;
	t->frame = &f;
	rc = device_begin(t, op, opi, &f.run);
	if (!rc)
		device_end(t, op, &f.run);
	t->frame = f.up;
	return rc;
}

/* The var ends: so does what was noted with it. */
void device_var_end(struct thread *t, struct var_side *side)
{
	struct pawl_engine *e = t->e;
	u32 idx = load_relaxed(&side->rec), next;

	store_relaxed(&side->rec, 0);
	for (; idx; idx = next) {
		next = load_relaxed(&rec_of(e, idx)->next);
		pool_put(e->pool[POOL_DEVREC], &t->cache[POOL_DEVREC], idx);
	}
}

/* --- waits --- */

/* A look from outside.  True: something is to be waited for, or is lost. */
bool device_busy(struct pawl_engine *e, u32 vi, bool write)
{
	struct ask a = { .poll = true };

	dep_pending(e, vi, write, ask_one, &a);
	return a.pending || a.lost;
}

/* A wait's place is granted.  True: the reaper will grant it again, later. */
bool device_wait_parks(struct thread *t, struct op *op, u32 opi)
{
	struct ask a = { .poll = true, .want = true };

	ask(t->e, op, &a);
	if (!a.pending)
		return false;
	park(t->e, op, opi);
	return true;
}

static int lost_out(const struct device *d, struct pawl_error *out)
{
	if (out) {
		memset(out, 0, sizeof(*out));
		out->code = -ENOTRECOVERABLE;
		out->count = 1;
		snprintf(out->text, sizeof(out->text), "%s", d->text);
	}
	return err(-ENOTRECOVERABLE, "%s", d->text);
}

/* What a granted wait is to say of a device that was lost: 0 or the code. */
int device_wait_error(struct thread *t, struct op *op, struct pawl_error *out)
{
	struct ask a = { 0 };

	ask(t->e, op, &a);
	return likely(!a.lost) ? 0 : lost_out(lane_of(t->e->devices, a.lost)->d, out);
}

/* A device is lost with work that nobody else asks about. */
int device_lost_any(struct pawl_engine *e, struct pawl_error *out)
{
	struct devices *dv = e->devices;
	u32 i;

	for (i = 0; i < dv->ndev; i++)
		if (device_lost(&dv->d[i]))
			return lost_out(&dv->d[i], out);
	return 0;
}

struct all {
	struct devices *dv;
	u32 n;
	u64 upto[MAX_LANES];
};

static bool all_over(void *arg)
{
	struct all *a = arg;
	u32 i;

	for (i = 0; i < a->n; i++)
		if (lane_state(&a->dv->lanes[i], a->upto[i]) == LANE_PENDING)
			return false;
	return true;
}

/* Until all that is in the streams now is over. */
int device_wait_all(struct thread *t, s64 timeout_ns, bool help)
{
	struct pawl_engine *e = t->e;
	struct devices *dv = e->devices;
	struct all a;
	u32 i;
	int rc;

	a.dv = dv;
	a.n = load_acquire(&dv->nlanes);
	for (i = 0; i < a.n; i++) {
		struct lane *l = &dv->lanes[i];

		a.upto[i] = load_acquire(&l->issued);
		if (lane_state(l, a.upto[i]) != LANE_PENDING)
			continue;
		(void)!lane_mark(l, a.upto[i]);
		lane_want(l, a.upto[i]);
		lane_poll(l);
	}
	if (all_over(&a))
		return 0;
	if (!timeout_ns)
		return -ETIMEDOUT;
	store_relaxed(&t->waits_device, 1);
	fetch_add_seq_cst(&dv->nwait, 1);	/* CORE-D7 <-> CORE-D8 */
	store_release(&dv->poke, 1);
	reaper_wake(e);
	rc = exec_wait(e->x, &t->ex, all_over, &a, timeout_ns, help);
	store_relaxed(&t->waits_device, 0);
	fetch_add_seq_cst(&dv->nwait, -1u);
	return rc;
}

/* --- the reaper --- */

static void lane_fired(void *arg)
{
	struct lane *l = arg;
	struct pawl_engine *e = l->d->user;

	store_release(&l->fired, 1);	/* DEVICE-N1 <-> DEVICE-N2 */
	reaper_wake(e);
}

/* Ops that were parked since, oldest first, behind those that are kept. */
static void reap_new(struct pawl_engine *e)
{
	struct devices *dv = e->devices;
	u32 opi = xchg_acq_rel(&dv->parked, 0), first = 0, next;	/* CORE-D6 <-> CORE-D5 */
	u32 last = opi;

	if (!opi)
		return;
	for (; opi; opi = next) {
		next = op_of(e, opi)->wait;
		op_of(e, opi)->wait = first;
		first = opi;
	}
	if (dv->kept)
		op_of(e, dv->last)->wait = first;
	else
		dv->kept = first;
	dv->last = last;
}

static void reap_ready(struct thread *t)
{
	struct pawl_engine *e = t->e;
	struct devices *dv = e->devices;
	u32 opi = dv->kept, next, before = 0;

	for (; opi; opi = next) {
		struct op *op = op_of(e, opi);
		struct ask a = { 0 };

		next = op->wait;
		if (op->dev >= DEV_FIRST && !(op->flags & OP_WAITER))
			a.except = dv->rows[op->dev - DEV_FIRST].d->ops;
		ask(e, op, &a);
		if (a.pending) {
			before = opi;
			continue;
		}
		if (before)
			op_of(e, before)->wait = next;
		else
			dv->kept = next;
		if (!next)
			dv->last = before;
		if (op->flags & OP_WAITER)
			waiter_granted(t, op, opi);
		else
			exec_push(op_queue(e, op), &t->ex, opi, op->prio,
				  op->prop == PAWL_DELETE_VAR ? EXEC_FRONT : 0);
	}
}

/*
 * Ask the lanes in which something is wanted.  Others ask too, and may be the first to know:
 * what counts is what this thread has not seen yet.
 */
static void reap_poll(struct devices *dv)
{
	u32 i, n = load_acquire(&dv->nlanes);

	for (i = 0; i < n; i++) {
		struct lane *l = &dv->lanes[i];
		u64 seen;

		if (lane_wanted(l))
			lane_poll(l);
		/* Of a lost device nothing more will come: that is news once. */
		seen = lane_wanted(l) && device_lost(l->d) ? ~0ull : load_acquire(&l->done);
		if (seen != dv->seen[i]) {
			dv->seen[i] = seen;
			dv->news = true;
		}
	}
}

static bool reaper_news(void *arg)
{
	struct devices *dv = arg;

	reap_poll(dv);
	return dv->news || load_acquire(&dv->parked) || load_acquire(&dv->poke) ||
	       load_acquire(&dv->stop);
}

/* Tell the threads that wait for all devices, if there may be something new. */
static void reap_waiters(struct pawl_engine *e)
{
	u32 i, n;

	smp_mb();	/* CORE-D8 <-> CORE-D7 */
	if (!load_relaxed(&e->devices->nwait))
		return;
	n = load_acquire(&e->used_slots);
	for (i = 0; i < n; i++)
		if (load_relaxed(&thread_of(e, i)->waits_device))
			exec_unpark(e->x, &thread_of(e, i)->ex);
}

/* Until something happens: spin, then sleep with the device's promise to call. */
static void reaper_wait(struct thread *t)
{
	struct pawl_engine *e = t->e;
	struct devices *dv = e->devices;
	u32 i, n = load_acquire(&dv->nlanes);
	s64 timeout = -1, soon;

	if (!exec_wait(e->x, &t->ex, reaper_news, dv, (s64)e->cfg.spin_ns, false))
		return;
	for (i = 0; i < n; i++) {
		struct lane *l = &dv->lanes[i];

		/* Who wants something of a lost device has been told. */
		if (!lane_wanted(l) || device_lost(l->d))
			continue;
		/* A device that is lost does not call.  No promise at all: look often. */
		soon = lane_notify(l, lane_fired) ? 100000 : 10000000;
		if (timeout < 0 || soon < timeout)
			timeout = soon;
	}
	exec_wait(e->x, &t->ex, reaper_news, dv, timeout, false);
}

static void *reaper_main(void *arg)
{
	struct pawl_engine *e = arg;
	struct devices *dv = e->devices;
	struct thread *t;
	char name[16];

	snprintf(name, sizeof(name), "%s-devices", e->cfg.name);
	os_thread_name(name);
	if (e->cfg.thread_start)
		e->cfg.thread_start(e->cfg.user, name);
	t = thread_enter(e);
	if (t) {
		store_release(&dv->reaper, t);	/* CORE-D9 <-> CORE-D10 */
		while (!load_acquire(&dv->stop) || load_acquire(&dv->parked) || dv->kept) {
			store_relaxed(&dv->poke, 0);
			smp_mb();	/* CORE-D8 <-> CORE-D7: what was wanted before the poke */
			reap_poll(dv);
			dv->news = false;
			reap_new(e);
			reap_ready(t);
			reap_waiters(e);
			flight_check(t);
			reaper_wait(t);
		}
	} else {
		dv->thread_rc = thread_last.code;
		store_release(&dv->stop, 2);
	}
	if (e->cfg.thread_stop)
		e->cfg.thread_stop(e->cfg.user, name);
	return NULL;
}

/* --- life --- */

static const struct device_ops *ops_of_kind(u32 kind)
{
	switch (kind) {
#ifndef PAWL_MODEL
#ifdef CONFIG_DEVICE_CUDA
	case PAWL_CUDA:
		return &device_cuda;
#endif
#ifdef CONFIG_DEVICE_FAKE
	case PAWL_FAKE:
		return &device_fake;
#endif
#endif
	}
	return NULL;
}

/* The place of op.device among the rows, DEV_FIRST and up; 0: this engine has no such thing. */
u32 device_row(struct pawl_engine *e, struct pawl_device name)
{
	struct devices *dv = e->devices;
	u32 i, n = dv ? load_acquire(&dv->nrows) : 0;	/* CORE-D12 <-> CORE-D11 */

	for (i = 0; i < n; i++)
		if (dv->rows[i].name.kind == name.kind && dv->rows[i].name.id == name.id)
			return DEV_FIRST + i;
	return 0;
}

static struct dev_row *row_get(struct pawl_engine *e, struct pawl_device name, const char *who)
{
	u32 row = device_row(e, name);

	if (row)
		return &e->devices->rows[row - DEV_FIRST];
	err(-ENODEV, "%s: no device of kind %u, number %u in this engine (config.devices)", who,
	    name.kind, name.id);
	return NULL;
}

static int lane_add(struct devices *dv, struct device *d, void *stream, int priority, bool eager,
		    u32 *id)
{
	struct lane *l = &dv->lanes[dv->nlanes];
	int rc = lane_init(l, d, dv->nlanes, dv->max_lanes, stream, priority);

	if (rc)
		return rc;
	l->eager = eager;
	*id = dv->nlanes;
	store_release(&dv->nlanes, dv->nlanes + 1);	/* CORE-D11 <-> CORE-D12 */
	return 0;
}

static int row_lanes(struct pawl_engine *e, struct dev_row *row)
{
	struct devices *dv = e->devices;
	u32 i, id;
	int rc = 0;

	row->first = dv->nlanes;
	for (i = 0; !rc && i < (u32)e->cfg.device_streams; i++)
		rc = lane_add(dv, row->d, NULL, 0, false, &id);
	row->n = i;
	if (!rc)
		rc = lane_add(dv, row->d, NULL, 100, false, &row->prio);
	/* What is copied is used by other streams: each copy has its event. */
	if (!rc)
		rc = lane_add(dv, row->d, NULL, 0, true, &row->in);
	if (!rc)
		rc = lane_add(dv, row->d, NULL, 0, true, &row->out);
	return rc;
}

static int row_queues(struct pawl_engine *e, u32 i)
{
	static const char *const what[4] = { "g", "gp", "gi", "go" };
	struct exec_queue **r = &e->routes[(DEV_FIRST + i) * 8], *q[4];
	u32 k, p, workers = e->cfg.workers ? (u32)e->cfg.device_workers : 0;
	char name[16];
	int rc;

	for (k = 0; k < 4; k++) {
		if (k && e->kind == PAWL_NAIVE) {
			q[k] = q[0];
			continue;
		}
		snprintf(name, sizeof(name), "%s%u", what[k], i);
		/* Its own threads issue a device's work; others may if there are none. */
		rc = exec_queue_add(e->x, name, k ? (workers ? 1 : 0) : workers, !workers, &q[k]);
		if (rc)
			return rc;
	}
	for (p = 0; p < 8; p++)
		r[p] = q[0];
	r[PAWL_GPU_PRIORITIZED] = q[1];
	r[PAWL_COPY_TO_DEVICE] = q[2];
	r[PAWL_COPY_FROM_DEVICE] = q[3];
	return 0;
}

static u32 used_in;	/* A: process that used a driver; its children may not */

static int process_check(const char *who)
{
	u32 none = 0, pid = (u32)getpid();

	if (cas_acq_rel_acquire(&used_in, &none, pid) || none == pid)
		return 0;
	return err(-EOWNERDEAD, "%s: devices belong to the parent of this process", who);
}

int devices_check(const struct pawl_config *c)
{
	u32 i, j;

	if (!c->ndevices)
		return 0;
	if (!c->devices)
		return err(-EINVAL, "engine_create: config.devices is NULL, ndevices is %u",
			   c->ndevices);
	for (i = 0; i < c->ndevices; i++) {
		if (!ops_of_kind(c->devices[i].kind) || c->devices[i].id >= ADOPTED_ID)
			return err(-EINVAL, "engine_create: config.devices[%u] is of kind %u, number %u",
				   i, c->devices[i].kind, c->devices[i].id);
		for (j = 0; j < i; j++)
			if (c->devices[j].kind == c->devices[i].kind &&
			    c->devices[j].id == c->devices[i].id)
				return err(-EINVAL, "engine_create: config.devices[%u] is there twice", i);
	}
	return 0;
}

/* Open the devices; the executor exists, and no op does. */
int devices_create(struct pawl_engine *e, const struct pawl_device *list)
{
	u32 i, n = e->cfg.ndevices, lanes = n * ((u32)e->cfg.device_streams + 3) + MAX_ADOPTED;
	struct devices *dv;
	int rc;

	if (!n)
		return 0;
	rc = process_check("engine_create");
	if (rc)
		return rc;
	dv = aligned_alloc(CACHELINE, (sizeof(*dv) + CACHELINE - 1) / CACHELINE * CACHELINE);
	if (!dv)
		return err(-ENOMEM, "engine_create: no memory for devices");
	memset(dv, 0, sizeof(*dv));
	e->devices = dv;
	dv->max_lanes = lanes;
	dv->lanes = aligned_alloc(CACHELINE, lanes * sizeof(*dv->lanes));
	if (!dv->lanes)
		return err(-ENOMEM, "engine_create: no memory for streams");
	memset(dv->lanes, 0, lanes * sizeof(*dv->lanes));
	for (i = 0; i < n; i++) {
		struct dev_row *row = &dv->rows[i];

		row->name = list[i];
		row->d = &dv->d[i];
		rc = device_open(ops_of_kind(list[i].kind), list[i].id, row->d);
		row->d->user = e;
		dv->ndev = i + 1;
		if (!rc)
			rc = row_lanes(e, row);
		if (!rc)
			rc = row_queues(e, i);
		if (rc)
			return rc;
		dv->nrows = i + 1;
	}
	e->special |= SPECIAL_DEVICES;
	return 0;
}

/* The thread that waits for devices, so that no other does. */
int devices_start(struct pawl_engine *e)
{
	struct devices *dv = e->devices;
	int rc;

	if (!dv || e->kind == PAWL_NAIVE)
		return 0;
	rc = os_thread_create(&dv->thread, reaper_main, e);
	if (rc)
		return err(-EAGAIN, "engine_create: no thread for devices: %s", strerror(rc));
	dv->has_thread = true;
	while (!load_acquire(&dv->reaper) && load_acquire(&dv->stop) != 2)
		os_thread_yield();
	return dv->thread_rc;
}

/* Nothing is in flight.  The reaper is told, and ends. */
void devices_stop(struct pawl_engine *e)
{
	struct devices *dv = e->devices;

	if (!dv || !dv->has_thread)
		return;
	store_release(&dv->stop, 1);
	reaper_wake(e);
	os_thread_join(dv->thread);
	dv->has_thread = false;
}

void devices_free(struct pawl_engine *e)
{
	struct devices *dv = e->devices;
	u32 i;

	if (!dv)
		return;
	for (i = 0; dv->lanes && i < dv->nlanes; i++)
		lane_fini(&dv->lanes[i]);
	for (i = 0; i < dv->ndev; i++)
		device_close(&dv->d[i]);
	free(dv->lanes);
	free(dv);
	e->devices = NULL;
}

/* --- for users --- */

int pawl_device_count(int kind)
{
	const struct device_ops *ops = ops_of_kind((u32)kind);
	int n, rc = process_check("device_count");

	if (rc)
		return rc;
	if (!ops)
		return err(-ENOSYS, "device_count: this library is built without devices of kind %d",
			   kind);
	rc = ops->count(&n);
	return rc ? rc : n;
}
PAWL_EXPORT(pawl_device_count);

int pawl_device_info(struct pawl_device device, struct pawl_device_info *out)
{
	const struct device_ops *ops = ops_of_kind(device.kind);
	int rc = process_check("device_info");
	struct device_info i;

	if (rc)
		return rc;
	if (!out || out->size != sizeof(*out))
		return err(-EINVAL, "device_info: size is %zu, this library has %zu",
			   out ? out->size : 0, sizeof(*out));
	if (!ops)
		return err(-ENOSYS, "device_info: this library is built without devices of kind %u",
			   device.kind);
	rc = ops->info(device.id, &i);
	if (rc)
		return rc;
	memcpy(out->name, i.name, sizeof(out->name));
	out->memory = i.memory;
	out->memory_free = i.memory_free;
	out->major = i.major;
	out->minor = i.minor;
	out->units = i.units;
	out->driver = i.driver;
	out->runtime = i.runtime;
	return 0;
}
PAWL_EXPORT(pawl_device_info);

static int mem_call(struct pawl_engine *e, struct pawl_device device, const char *who,
		    struct device **d)
{
	struct thread *t = thread_get(e);
	struct dev_row *row;

	if (unlikely(!t))
		return thread_last.code;
	row = row_get(e, device, who);
	if (!row)
		return -ENODEV;
	*d = row->d;
	return 0;
}

int pawl_device_alloc(struct pawl_engine *e, struct pawl_device device, size_t bytes, void **out)
{
	struct device *d;
	int rc = mem_call(e, device, "device_alloc", &d);

	if (rc)
		return rc;
	if (!out)
		return err(-EINVAL, "device_alloc: out is NULL");
	return device_check(d, d->ops->alloc(d->dev, bytes, out));
}
PAWL_EXPORT(pawl_device_alloc);

int pawl_device_free(struct pawl_engine *e, struct pawl_device device, void *p)
{
	struct device *d;
	int rc = mem_call(e, device, "device_free", &d);

	return rc ? rc : device_check(d, d->ops->release(d->dev, p));
}
PAWL_EXPORT(pawl_device_free);

int pawl_host_alloc(struct pawl_engine *e, struct pawl_device device, size_t bytes, void **out)
{
	struct device *d;
	int rc = mem_call(e, device, "host_alloc", &d);

	if (rc)
		return rc;
	if (!out)
		return err(-EINVAL, "host_alloc: out is NULL");
	return device_check(d, d->ops->host_alloc(d->dev, bytes, out));
}
PAWL_EXPORT(pawl_host_alloc);

int pawl_host_free(struct pawl_engine *e, struct pawl_device device, void *p)
{
	struct device *d;
	int rc = mem_call(e, device, "host_free", &d);

	return rc ? rc : device_check(d, d->ops->host_free(d->dev, p));
}
PAWL_EXPORT(pawl_host_free);

static struct device host = { .ops = &device_cpu, .name = "cpu" };

/* NULL: a CPU. */
struct device *device_of_run(struct pawl_run *run)
{
	struct lane *l = (struct lane *)((uintptr_t)run->reserved & ~(uintptr_t)1);

	return l ? l->d : NULL;
}

static struct device *run_device(struct pawl_run *run)
{
	struct device *d = device_of_run(run);

	return d ? d : &host;
}

int pawl_run_copy(struct pawl_run *run, void *to, const void *from, size_t bytes, int dir)
{
	struct device *d = run_device(run);

	if (dir < PAWL_HOST_TO_DEVICE || dir > PAWL_HOST_TO_HOST)
		return err(-EINVAL, "run_copy: dir is %d", dir);
	return device_check(d, d->ops->copy(d->dev, run->stream, to, from, bytes,
					    (enum device_copy)dir));
}
PAWL_EXPORT(pawl_run_copy);

int pawl_run_set(struct pawl_run *run, void *to, int byte, size_t bytes)
{
	struct device *d = run_device(run);

	return device_check(d, d->ops->set(d->dev, run->stream, to, byte, bytes));
}
PAWL_EXPORT(pawl_run_set);

int pawl_run_call(struct pawl_run *run, void (*fn)(void *arg), void *arg)
{
	struct device *d = run_device(run);

	if (!fn)
		return err(-EINVAL, "run_call: fn is NULL");
	return device_check(d, d->ops->host_call(d->dev, run->stream, fn, arg));
}
PAWL_EXPORT(pawl_run_call);

int pawl_run_alloc(struct pawl_run *run, size_t bytes, void **out)
{
	struct device *d = run_device(run);

	if (!out)
		return err(-EINVAL, "run_alloc: out is NULL");
	return device_check(d, d->ops->alloc_async(d->dev, run->stream, bytes, out));
}
PAWL_EXPORT(pawl_run_alloc);

int pawl_run_free(struct pawl_run *run, void *p)
{
	struct device *d = run_device(run);

	return device_check(d, d->ops->free_async(d->dev, run->stream, p));
}
PAWL_EXPORT(pawl_run_free);

int pawl_var_delete_on(struct pawl_engine *e, pawl_var_t v, struct pawl_device device, pawl_fn fn,
		       void *arg)
{
	struct thread *t = thread_get(e);

	if (unlikely(!t))
		return thread_last.code;
	if (!row_get(e, device, "var_delete_on"))
		return -ENODEV;
	return var_delete(t, v, device, fn, arg);
}
PAWL_EXPORT(pawl_var_delete_on);

int pawl_stream_adopt(struct pawl_engine *e, struct pawl_device device, void *stream,
		      struct pawl_device *out)
{
	struct thread *t = thread_get(e);
	struct dev_row *base, *row;
	struct devices *dv;
	u32 none = 0, i, id;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	if (!out || !stream)
		return err(-EINVAL, "stream_adopt: %s is NULL", out ? "stream" : "out");
	base = row_get(e, device, "stream_adopt");
	if (!base)
		return -ENODEV;
	dv = e->devices;
	if (!cas_acq_rel_acquire(&dv->adopting, &none, 1))
		return err(-EAGAIN, "stream_adopt: another thread adopts one at this moment");
	i = dv->nrows;
	rc = i < MAX_ROWS && dv->nlanes < dv->max_lanes ? 0 :
	     err(-ENOMEM, "stream_adopt: this engine has %u streams of others already", MAX_ADOPTED);
	if (!rc)
		rc = lane_add(dv, base->d, stream, 0, false, &id);
	if (!rc) {
		row = &dv->rows[i];
		row->name.kind = device.kind;
		row->name.id = (u16)(ADOPTED_ID + i);
		row->d = base->d;
		row->first = row->prio = row->in = row->out = id;
		row->n = 1;
		memcpy(&e->routes[(DEV_FIRST + i) * 8], &e->routes[(DEV_FIRST + (base - dv->rows)) * 8],
		       8 * sizeof(*e->routes));
		store_release(&dv->nrows, i + 1);	/* CORE-D11 <-> CORE-D12 */
		*out = row->name;
	}
	store_release(&dv->adopting, 0);
	return rc;
}
PAWL_EXPORT(pawl_stream_adopt);
