// SPDX-License-Identifier: Apache-2.0
/*
 * Operators: an op described once and pushed many times.
 *
 * Each push makes an op of its own from the operator's sorted accesses and holds a
 * reference until it is over; deletion drops the first reference, and the last run
 * ends the operator (with no vars as well).
 *
 * Ordering: CORE-O1 (last reference, acq_rel) <-> CORE-O1 of the others: release()
 * sees what all runs did.  CORE-O2 (created, release) <-> CORE-O3 (reference, acquire).
 *
 * Progress: push lock-free as pawl_push(); one counter is shared by all its pushers.
 */
#include <stdlib.h>
#include <core/admit.h>
#include <core/device.h>
#include <core/link.h>
#include <core/oper.h>
#include <core/push.h>
#include <core/record.h>
#include <core/trace.h>
#include <core/wait.h>

static struct oper *oper_of(struct pawl_engine *e, u32 idx)
{
	return pool_obj(e->pool[POOL_OPER], idx);
}

/* A reference for the caller, if the handle is alive. */
static struct oper *oper_get(struct pawl_engine *e, pawl_oper_t h, u32 *idx)
{
	u32 i = (u32)h.h, gen = (u32)(h.h >> 32), refs;
	struct oper *o;

	if (!i || i > pool_carved(e->pool[POOL_OPER]) || !(gen & 1))
		return NULL;
	o = oper_of(e, i);
	refs = load_relaxed(&o->refs);
	do {
		if (!refs)
			return NULL;
	} while (!cas_acquire_relaxed(&o->refs, &refs, refs + 1));	/* CORE-O3 <-> CORE-O2 */
	*idx = i;
	/* The reference may be to the next user of the memory. */
	return load_relaxed(&o->gen) == gen ? o : NULL;
}

/* For graph.c: a reference, and what the operator runs. */
bool oper_hold(struct pawl_engine *e, pawl_oper_t h, u32 *idx, pawl_fn *fn, void **arg)
{
	struct oper *o;

	*idx = 0;
	o = oper_get(e, h, idx);
	if (o) {
		*fn = o->fn;
		*arg = o->arg;
	}
	return o;
}

void oper_put(struct thread *t, u32 idx)
{
	struct pawl_engine *e = t->e;
	struct oper *o = oper_of(e, idx);

	/* CORE-O1 <-> CORE-O1 */
	if (fetch_add_acq_rel(&o->refs, -1u) != 1 + BUSTED(OPER_EARLY))
		return;
	if (o->release)
		o->release(o->arg, 0);
	free(o->deps);
	o->deps = NULL;
	if (!gen_is_last(e, load_relaxed(&o->gen)))
		pool_put(e->pool[POOL_OPER], &t->cache[POOL_OPER], idx);
}

int pawl_oper_create(struct pawl_engine *e, const struct pawl_op *d, pawl_oper_t *out)
{
	struct thread *t = thread_get(e);
	struct dep *deps = NULL;
	u32 idx, n = 0, gen;
	struct oper *o;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	rc = op_check(e, d, "oper_create");
	if (rc)
		return rc;
	/* They belong to one push, and a push of an operator has no description. */
	if (d->flags & PAWL_OP_NOTES)
		return err(-EINVAL, "oper_create: op.flags is %#x, known is %#x", d->flags,
			   PAWL_OP_NO_SKIP);
	if (!out)
		return err(-EINVAL, "oper_create: out is NULL");
	if ((u64)d->nreads + d->nwrites > ext_cap(EXT_CLASSES - 1))
		return err(-E2BIG, "oper_create: %u reads and %u writes", d->nreads, d->nwrites);
	if (d->nreads + d->nwrites) {
		deps = calloc((size_t)d->nreads + d->nwrites, sizeof(*deps));
		if (!deps)
			return err(-ENOMEM, "oper_create: no memory for its vars");
		rc = deps_from(t, deps, d, &n, "oper_create");
	}
	o = rc ? NULL : pool_get(e->pool[POOL_OPER], &t->cache[POOL_OPER], &idx);
	if (!o) {
		free(deps);
		return rc ? rc : err(-ENOMEM, "oper_create: too many operators");
	}
	o->fn = d->fn;
	o->async_fn = d->async_fn;
	o->arg = d->arg;
	o->release = d->release;
	o->name = d->name;
	o->deps = deps;
	o->ndeps = n;
	o->flags = (d->async_fn ? OP_ASYNC : 0) | prop_flags(d);
	o->prop = (u8)d->prop;
	o->dev = (u8)op_device(e, d->device);
	gen = gen_alive(e, load_relaxed(&o->gen));
	store_relaxed(&o->gen, gen);
	store_release(&o->refs, 1);	/* CORE-O2 <-> CORE-O3 */
	out->h = (u64)gen << 32 | idx;
	return 0;
}
PAWL_EXPORT(pawl_oper_create);

/* One run of an operator that the caller holds.  1: a pool is empty; nothing is kept. */
static int oper_try(struct thread *t, struct oper *o, u32 idx, int priority, struct pawl_device dev)
{
	struct pawl_engine *e = t->e;
	struct op *op;
	u32 opi, j;
	int rc;

	rc = admit(t, 1);
	if (unlikely(rc))
		return rc;
	for (j = 0; j < o->ndeps; j++) {
		pawl_var_t v = { (u64)o->deps[j].gen << 32 | (o->deps[j].var & ~DEP_WRITE) };

		if (unlikely(var_check(t, v))) {
			rc = err(-ESTALE, "oper_push: one of its vars was deleted");
			goto out;
		}
	}
	op = op_new(t, &opi);
	if (!op) {
		rc = err_pool_empty(t, POOL_OP, "oper_push: max_ops exist");
		goto out;
	}
	rc = op_deps_copy(t, op, opi, o->deps, o->ndeps);
	if (rc)
		goto out_op;
	op->fn = o->fn;
	if (o->flags & OP_ASYNC)
		op->async_fn = o->async_fn;
	store_helped16(&op->flags, o->flags | OP_OPER | (o->name ? OP_NAMED : 0));
	op->arg = o->arg;
	store_relaxed(&op->name, o->name);
	op->prio = priority;
	op->prop = o->prop;
	op->dev = (u8)op_device(e, dev);
	op->oper = idx;
	if (unlikely(load_relaxed(&e->special) & SPECIAL_TRACING))
		trace_event(t, TRACE_PUSH, opi, o->name, 0);
	if (unlikely(load_relaxed(&e->special) & SPECIAL_RECORDING))
		record_push(t, op, opi, false);
	if (unlikely(e->kind == PAWL_NAIVE))
		fetch_add_relaxed(&t->naive_pending, 1);
	rc = push_op(t, op, opi);
	if (rc) {
		if (load_relaxed(&e->special) & SPECIAL_RECORDING)
			record_undo(t, op, opi);
		push_undo(t, op);
		if (e->kind == PAWL_NAIVE)
			fetch_add_relaxed(&t->naive_pending, -1u);
		rc = err(-ESTALE, "oper_push: one of its vars was deleted");
		goto out_op;
	}
	return e->kind == PAWL_NAIVE ? wait_naive(t) : 0;

out_op:
	op_free(t, op, opi);
out:
	admit_undo(t, 1);
	return rc == -ENOMEM ? 1 : rc;
}

int pawl_oper_push(struct pawl_engine *e, pawl_oper_t h, int priority, struct pawl_device dev)
{
	struct thread *t = thread_get(e);
	bool tried = false;
	struct oper *o;
	u32 idx = 0;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	if (dev.kind == PAWL_CPU ? dev.id >= e->ndev : !device_row(e, dev))
		return err(-ENODEV, "oper_push: no device %u:%u", dev.kind, dev.id);
	o = oper_get(e, h, &idx);
	if (!o) {
		if (idx)
			oper_put(t, idx);
		return err(-ESTALE, "oper_push: no operator, or it was deleted");
	}
	while ((rc = oper_try(t, o, idx, priority, dev)) > 0) {
		rc = admit_again(t, &tried, false);
		if (rc)
			break;
	}
	/* The run has the reference now, or there is none. */
	if (unlikely(rc))
		oper_put(t, idx);
	return rc;
}
PAWL_EXPORT(pawl_oper_push);

int pawl_oper_delete(struct pawl_engine *e, pawl_oper_t h)
{
	struct thread *t = thread_get(e);
	u32 idx = 0, gen = (u32)(h.h >> 32);
	struct oper *o;

	if (unlikely(!t))
		return thread_last.code;
	o = oper_get(e, h, &idx);
	/* The CAS decides between two who delete at once; oper_put() has the order. */
	if (!o || !cas_relaxed(&o->gen, &gen, gen_dead(gen))) {
		if (idx)
			oper_put(t, idx);
		return err(-ESTALE, "oper_delete: no operator, or it was deleted before");
	}
	oper_put(t, idx);	/* ours */
	oper_put(t, idx);	/* the first one */
	return 0;
}
PAWL_EXPORT(pawl_oper_delete);

/* The engine ends, and with it the operators that nobody deleted. */
void opers_exit(struct thread *t)
{
	struct pawl_engine *e = t->e;
	u32 i, n = pool_carved(e->pool[POOL_OPER]);

	for (i = 1; i <= n; i++)
		if (load_relaxed(&oper_of(e, i)->gen) & 1)
			oper_put(t, i);
}
