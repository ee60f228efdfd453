// SPDX-License-Identifier: Apache-2.0
/*
 * Ops and waits that are parked until a device completes work, and the thread that serves them.
 *
 * Purpose: threads that run ops never wait for a device.  Ops that must wait are parked in a
 * list for one thread of the engine, the reaper.  It polls events while it spins, and after a
 * while sleeps until the device calls back (lane_notify()).  Then it moves the ops to their
 * queues, or wakes the waiting thread.
 *
 * Structures: `parked` is a stack, linked by op->wait, of ops that were parked since the
 * reaper last took it; `kept` lists those that it took, oldest first.  Device ops for which
 * the streams have no room (config.device_window) are held in one list per class of lanes,
 * and released one by one as room becomes free.
 *
 * Ordering:
 *   CORE-D5 (parked, CAS) <-> CORE-D6 (taken by the reaper, exchange)
 *   CORE-D7 (a poke, exchange, release) <-> CORE-D8 (taken by the reaper, exchange, acquire)
 *   CORE-D9 (reaper exists, release) <-> CORE-D10 (devices_start(), acquire)
 *   CORE-D17 (devices_stop(), release) <-> CORE-D18 (the reaper ends, acquire)
 *   CORE-D13 (issued, smp_mb) <-> CORE-D14 (held, smp_mb): at least one sees the other
 *
 * Progress: parking is lock-free; waits are blocking by design.
 */
#include <stdio.h>
#include <string.h>
#include <core/devices.h>
#include <core/wait.h>

void reaper_wake(struct pawl_engine *e)
{
	/* Relaxed: engine creation acquired it (CORE-D10) before any other call. */
	struct thread *r = load_relaxed(&e->devices->reaper);

	if (r)
		exec_unpark(e->x, &r->ex);
}

/* Tell the reaper of a change that reaper_news() does not notice by itself. */
void reaper_poke(struct pawl_engine *e)
{
	/*
	 * CORE-D7 <-> CORE-D8: the change comes before.  It is an exchange, so that one
	 * acquire of the last poke also acquires all earlier ones.
	 */
	xchg_release(&e->devices->poke, 1);
	reaper_wake(e);
}

/* The op cannot run yet: the reaper queues it again when that has changed. */
void op_park(struct pawl_engine *e, struct op *op, u32 opi)
{
	struct devices *dv = e->devices;
	u32 head = load_relaxed(&dv->parked);

	do
		store_relaxed(&op->wait, head);
	while (!cas_release_relaxed(&dv->parked, &head, opi));	/* CORE-D5 <-> CORE-D6 */
	reaper_wake(e);
}

/* --- waits --- */

/* A wait is granted.  True: work is pending, and the reaper will grant it again later. */
bool device_wait_parks(struct thread *t, struct op *op, u32 opi)
{
	struct pending_query a = { .poll = true, .want = true };

	pending_query(t->e, op, &a);
	if (!a.pending)
		return false;
	op_park(t->e, op, opi);
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

/* The result of a granted wait if a device was lost: 0 or the error. */
int device_wait_error(struct thread *t, struct op *op, struct pawl_error *out)
{
	struct pending_query a = { 0 };

	pending_query(t->e, op, &a);
	return likely(!a.lost) ? 0 : lost_out(lane_of(t->e->devices, a.lost)->d, out);
}

/* Report a lost device, for a wait that names no var. */
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

/* Is work up to this one pending?  Unless it is marked, no poll finds that it is complete. */
static bool lane_works(struct lane *l, u64 upto)
{
	if (lane_state(l, upto) != LANE_PENDING)
		return false;
	(void)!lane_mark(l, upto);
	lane_want(l, upto);
	lane_poll(l);
	return lane_state(l, upto) == LANE_PENDING;
}

/* Is work pending on a stream?  Progress: wait-free, linear in the number of streams. */
bool devices_work(struct pawl_engine *e)
{
	struct devices *dv = e->devices;
	u32 i, n = load_acquire(&dv->nlanes);	/* CORE-D12 <-> CORE-D11 */

	for (i = 0; i < n; i++)
		if (lane_works(&dv->lanes[i], load_relaxed(&dv->lanes[i].issued)))
			return true;
	return false;
}

/* Wait until all work that is on the streams now is complete. */
int device_wait_all(struct thread *t, s64 timeout_ns, u32 how, u32 help)
{
	struct pawl_engine *e = t->e;
	struct devices *dv = e->devices;
	struct all a;
	u32 i;
	int rc;

	a.dv = dv;
	a.n = load_acquire(&dv->nlanes);	/* CORE-D12 <-> CORE-D11 */
	for (i = 0; i < a.n; i++) {
		struct lane *l = &dv->lanes[i];

		a.upto[i] = load_relaxed(&l->issued);
		lane_works(l, a.upto[i]);
	}
	if (all_over(&a))
		return 0;
	if (!timeout_ns)
		return -ETIMEDOUT;
	store_relaxed(&t->waits_device, 1);
	/* Relaxed: the poke orders it. */
	fetch_add_relaxed(&dv->nwait, 1);
	reaper_poke(e);
	rc = wait_until(t, all_over, &a, timeout_ns, how, help);
	store_relaxed(&t->waits_device, 0);
	/* Relaxed: an old value causes a spurious wake-up at most. */
	fetch_add_relaxed(&dv->nwait, -1u);
	return rc;
}

/* --- the reaper --- */

static void lane_fired(void *arg)
{
	struct lane *l = arg;

	/*
	 * A wake-up is not enough: the completed work may be known already while later work is
	 * wanted.
	 */
	reaper_poke(l->d->user);
}

/* Append newly parked ops, oldest first, to those that are kept. */
static void reap_new(struct pawl_engine *e)
{
	struct devices *dv = e->devices;
	u32 opi = xchg_acquire(&dv->parked, 0), first = 0, next;	/* CORE-D6 <-> CORE-D5 */
	u32 last = opi;

	if (!opi)
		return;
	for (; opi; opi = next) {
		next = op_of(e, opi)->wait;
		op_of(e, opi)->wait = first;
		first = opi;
	}
	if (BUSTED(DEV_PARKED_LOST))
		dv->kept = 0;
	if (dv->kept)
		op_of(e, dv->last)->wait = first;
	else
		dv->kept = first;
	dv->last = last;
}

/* Hold a device op that waits only for room. */
static void class_hold(struct pawl_engine *e, struct op *op, u32 opi)
{
	struct dev_class *c = class_of(op_row(e->devices, op), op->prop);
	u32 before = c->tail, next = 0;

	if (before && op_rank(op_of(e, before)) < op_rank(op)) {
		before = 0;
		for (next = c->head; op_rank(op_of(e, next)) >= op_rank(op);
		     next = op_of(e, next)->wait)
			before = next;
	}
	store_relaxed(&op->wait, next);
	if (before)
		store_relaxed(&op_of(e, before)->wait, opi);
	else
		c->head = opi;
	if (!next)
		c->tail = opi;
	store_relaxed(&c->held, c->held + 1);
	e->devices->held++;
}

/* Move the first held op of a class to its queue. */
static void class_release_one(struct thread *t, struct dev_class *c)
{
	struct pawl_engine *e = t->e;
	u32 opi = c->head;
	struct op *op = op_of(e, opi);

	c->head = op->wait;
	if (!c->head)
		c->tail = 0;
	store_relaxed(&c->held, c->held - 1);
	e->devices->held--;
	fetch_add_relaxed(&c->coming, 1);
	store_relaxed(&op->wait, OP_ROOM);
	queue_op(t, op, opi);
}

/*
 * The class has no room: request notice of the next completion in its lanes.  Returns false if
 * the lanes are empty and no released op is on its way to them; then the thread that noticed
 * the last completion has yet to subtract it from the load.
 */
static bool class_wanted(struct devices *dv, struct dev_class *c)
{
	bool wanted = false;
	u32 i;

	smp_mb();	/* CORE-D14 <-> CORE-D13: held before the check */
	for (i = 0; i < c->n; i++) {
		struct lane *l = &dv->lanes[c->first + i];
		u64 next = load_relaxed(&l->done) + 1;

		if (load_relaxed(&l->issued) < next)
			continue;
		(void)!lane_mark(l, next);
		lane_want(l, next);
		wanted = true;
	}
	return wanted || load_relaxed(&c->coming);
}

/* Release the held ops of a class for which there is room. */
static void class_release(struct thread *t, const struct dev_row *row, struct dev_class *c)
{
	struct devices *dv = t->e->devices;

	while (c->head)
		if (class_room(dv, c) || device_lost(row->d) || !class_wanted(dv, c))
			class_release_one(t, c);
		else
			break;
}

static void reap_held(struct thread *t)
{
	struct devices *dv = t->e->devices;
	/* Relaxed: the row of a held op became visible with the op (CORE-D6). */
	u32 i, k, n = load_relaxed(&dv->nrows);

	for (i = 0; dv->held && i < n; i++)
		for (k = 0; k < CLASSES; k++)
			class_release(t, &dv->rows[i], &dv->rows[i].class[k]);
}

static void reap_ready(struct thread *t)
{
	struct pawl_engine *e = t->e;
	struct devices *dv = e->devices;
	u32 opi = dv->kept, next, before = 0;

	for (; opi; opi = next) {
		struct op *op = op_of(e, opi);
		bool ours = op->dev >= DEV_FIRST && !(op->flags & OP_WAITER);
		struct pending_query a = { .except = ours ? op_row(dv, op)->d->ops : NULL };

		next = op->wait;
		pending_query(e, op, &a);
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
		else if (ours)
			class_hold(e, op, opi);
		else
			queue_op(t, op, opi);
	}
	reap_held(t);
}

/*
 * Poll the lanes with wanted work.  Other threads poll too and may notice a completion first,
 * so compare with what this thread saw last.
 */
static void reap_poll(struct devices *dv)
{
	u32 i, n = load_acquire(&dv->nlanes);	/* CORE-D12 <-> CORE-D11 */

	for (i = 0; i < n; i++) {
		struct lane *l = &dv->lanes[i];
		u64 seen;

		if (lane_wanted(l))
			lane_poll(l);
		/*
		 * A lost device makes no progress; report that once.  Relaxed: code that
		 * relies on completion checks lane_state().
		 */
		seen = lane_wanted(l) && device_lost(l->d) ? ~0ull : load_relaxed(&l->done);
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
	/* Relaxed: reaper_main() reads them again with an order, or after a barrier. */
	return dv->news || load_relaxed(&dv->parked) || load_relaxed(&dv->poke) ||
	       load_relaxed(&dv->stop);
}

/* Wake the threads that wait for all devices, if there may be something new. */
static void reap_waiters(struct pawl_engine *e)
{
	u32 i, n;

	/* Relaxed: a waiter counts itself before its poke; taking the poke acquires that. */
	if (!load_relaxed(&e->devices->nwait))
		return;
	n = slots_used(e);
	if (BUSTED(DEV_WAITER_FORGOTTEN))
		n = 0;
	for (i = 0; i < n; i++)
		if (load_relaxed(&thread_of(e, i)->waits_device))
			exec_unpark(e->x, &thread_of(e, i)->ex);
}

/* Wait for something to do: spin, then sleep until the device calls. */
static void reaper_wait(struct thread *t)
{
	struct pawl_engine *e = t->e;
	struct devices *dv = e->devices;
	/* Relaxed: reaper_news() acquires this number or a newer one before lanes are used. */
	u32 i, n = load_relaxed(&dv->nlanes);
	s64 timeout = -1, soon;

	if (!exec_wait(e->x, &t->ex, reaper_news, dv, (s64)e->cfg.spin_ns,
		       EXEC_WAIT | EXEC_POLL))
		return;
	for (i = 0; i < n; i++) {
		struct lane *l = &dv->lanes[i];

		/* Waits for a lost device have been woken. */
		if (!lane_wanted(l) || device_lost(l->d))
			continue;
		/* A lost device does not call.  If the request failed, poll often. */
		soon = lane_notify(l, lane_fired) ? 100000 : 10000000;
		if (timeout < 0 || soon < timeout)
			timeout = soon;
	}
	exec_wait(e->x, &t->ex, reaper_news, dv, timeout, EXEC_WAIT);
}

void *reaper_main(void *arg)
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
		/* CORE-D18 <-> CORE-D17: thread_stop() sees everything before the stop. */
		while (!load_acquire(&dv->stop) ||
		       load_relaxed(&dv->parked) || dv->kept || dv->held) {
			/* CORE-D8 <-> CORE-D7: a store could overwrite a poke unseen. */
			xchg_acquire(&dv->poke, 0);
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
		store_release(&dv->stop, 2);	/* CORE-D9 <-> CORE-D10 */
	}
	if (e->cfg.thread_stop)
		e->cfg.thread_stop(e->cfg.user, name);
	return NULL;
}
