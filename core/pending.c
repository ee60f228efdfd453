// SPDX-License-Identifier: Apache-2.0
/*
 * The work of devices that is pending on a var.
 *
 * Purpose: for the queues of its vars an op on a device is complete as soon as its body has
 * queued its work on a stream.  This file keeps the pending work of each var.  Successors
 * follow it: another stream by an event, the host by parking.
 *
 * Structures: a var that any device op has named has a record (struct devrec): the number of
 * the last write in its lane, and for each lane the highest number of a read since then.  The
 * queue of the var decides which ops may change the record: an op that writes the var is
 * alone; ops that read it only add their reads, by compare-and-swap.  A record consists of
 * one or more objects, bounded by the number of lanes.
 *
 * Ordering:
 *   CORE-D1 (a record's index in the var, CAS) <-> CORE-D2 (acquire)
 *   CORE-D3 (a number, release) <-> CORE-D4 (acquire): the lane that it names, which may be
 *   new, for concurrent readers and for queries from outside.  For successors the numbers
 *   are plain data of the version: CORE-R1, CORE-R2 <-> CORE-A3 order them.
 *
 * Progress: lock-free, apart from the driver, and apart from rec_read() without memory.
 *
 * Lifetime: records are type-stable.  A query that reads a record which now belongs to another
 * var was for a deleted var; only then its answer may be wrong.
 */
#include <core/devices.h>

#ifdef PAWL_MODEL
#define REC_READS	2u		/* so that a few readers already fill it */
#else
#define REC_READS	14u
#endif

/* The pending work of a var. */
struct devrec {
	u64 write;		/* A: lane << 48 | number, or 0 */
	u32 next;		/* A: record with more reads, or 0 */
	u32 unused;
	u64 reads[REC_READS];	/* A */
};

BUILD_BUG_ON(sizeof(struct devrec) != 16 + 8 * REC_READS);

u32 device_rec_size(void)
{
	return sizeof(struct devrec);
}

static struct devrec *rec_of(const struct pawl_engine *e, u32 idx)
{
	return pool_obj(e->pool[POOL_DEVREC], idx);
}

static u32 var_rec(const struct pawl_engine *e, u32 vi)
{
	return load_acquire(&var_side_of(e, vi)->rec);	/* CORE-D2 <-> CORE-D1 */
}

static inline enum lane_state pending_state(const struct devices *dv, u64 pending)
{
	return likely(!pending) ? LANE_DONE :
	       lane_state(lane_of(dv, pending), pending & LANE_SEQ_MASK);
}

static int dep_pending(struct pawl_engine *e, u32 vi, bool write, pending_fn fn, void *arg)
{
	struct devices *dv = e->devices;
	u32 idx = var_rec(e, vi), j;
	struct devrec *r;
	u64 w;
	int rc;

	if (likely(!idx))
		return 0;
	r = rec_of(e, idx);
	w = load_acquire(&r->write);	/* CORE-D4 <-> CORE-D3 */
	if (pending_state(dv, w) != LANE_DONE) {
		rc = fn(dv, w, arg);
		if (rc)
			return rc;
	}
	if (BUSTED(DEV_READS_FORGOTTEN))
		return 0;
	if (!write)
		return 0;
	/* CORE-D2 <-> CORE-D1 */
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

int op_pending(struct pawl_engine *e, struct op *op, pending_fn fn, void *arg)
{
	struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u32 j;
	int rc = 0;

	for (j = 0; !rc && j < op->ndeps; j++)
		if (!dep_dead(&deps[j]))
			rc = dep_pending(e, deps[j].var & ~DEP_WRITE, deps[j].var & DEP_WRITE,
					 fn, arg);
	return rc;
}

static int query_one(struct devices *dv, u64 p, void *arg)
{
	struct pending_query *a = arg;
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
		/* As early as possible, so that the event covers little other work. */
		(void)!lane_mark(l, seq);
		lane_want(l, seq);
	}
	return 0;
}

void pending_query(struct pawl_engine *e, struct op *op, struct pending_query *a)
{
	a->lost = a->pending = 0;
	op_pending(e, op, query_one, a);
}

/* Called for the op that writes the var, which has the record to itself. */
static void rec_write(struct pawl_engine *e, u32 idx, u64 p)
{
	struct devrec *r = rec_of(e, idx);
	u32 j;

	store_release(&r->write, p);	/* CORE-D3 <-> CORE-D4 */
	for (; idx; idx = load_relaxed(&r->next)) {
		r = rec_of(e, idx);
		for (j = 0; j < REC_READS; j++)
			store_release(&r->reads[j], 0);	/* CORE-D3 <-> CORE-D4 */
	}
}

/* An op that knows of the lost device writes its vars: forget the pending work. */
void forget_pending(struct pawl_engine *e, struct op *op)
{
	struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u32 j, idx;

	for (j = 0; j < op->ndeps; j++) {
		if (!(deps[j].var & DEP_WRITE) || dep_dead(&deps[j]))
			continue;
		idx = var_rec(e, deps[j].var & ~DEP_WRITE);
		if (idx)
			rec_write(e, idx, 0);
	}
}

/* The newest write of the access's var if a device op made it, else 0. */
u64 last_write(struct pawl_engine *e, const struct dep *d)
{
	u32 idx = dep_dead(d) ? 0 : var_rec(e, d->var & ~DEP_WRITE);

	/* Relaxed: the access is granted, which ordered the write before it. */
	return idx ? load_relaxed(&rec_of(e, idx)->write) : 0;
}

/* The var's record, created if needed.  0: no memory. */
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

/* Before the work is queued: ensure that all its vars have records for it. */
int recs_get(struct thread *t, struct op *op)
{
	struct dep *deps = op_deps(t->e, op, op->ndeps, op->ext);
	u32 j;

	for (j = 0; j < op->ndeps; j++)
		if (!dep_dead(&deps[j]) &&
		    !rec_get(t, &var_side_of(t->e, deps[j].var & ~DEP_WRITE)->rec))
			return err(-ENOMEM, "push: no memory for a var's pending device work");
	return 0;
}

/* Store the number in this slot of the list of reads.  False: another lane uses the slot. */
static bool read_put(struct devices *dv, u64 *place, u64 p)
{
	u64 was = load_acquire(place);	/* CORE-D4 <-> CORE-D3 */

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
			/* No memory for the number: wait until the work is complete. */
			lane_sync(l);
			return;
		}
		idx = next;
	}
}

/* The op's work is number seq of the lane: store that with its vars. */
void pending_note(struct thread *t, struct op *op, struct lane *l, u64 seq)
{
	struct pawl_engine *e = t->e;
	struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u64 p = pending_make(l, seq);
	u32 j;

	for (j = 0; j < op->ndeps; j++) {
		bool dead = dep_dead(&deps[j]);
		u32 idx = dead ? 0 : var_rec(e, deps[j].var & ~DEP_WRITE);

		if (unlikely(!dead && !idx))
			lane_sync(l);	/* no record for the number */
		if (!idx)
			continue;
		if (deps[j].var & DEP_WRITE)
			rec_write(e, idx, p);
		else
			rec_read(t, idx, l, p);
	}
}

/* The var is deleted: free its record. */
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

/*
 * A query from outside.  True: work is pending, or a device was lost.  It also requests an
 * event, so that a caller that only polls eventually sees completion.
 */
bool device_busy(struct pawl_engine *e, u32 vi, bool write)
{
	struct pending_query a = { .poll = true, .want = true };

	dep_pending(e, vi, write, query_one, &a);
	return a.pending || a.lost;
}
