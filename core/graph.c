// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs: ops described once and pushed many times.
 *
 * Each push makes one op from the sorted accesses of the graph's ops and holds a
 * reference until it is complete.  Deletion drops the first reference, and the last run
 * ends the graph, also one without vars.
 *
 * Ordering: CORE-O1 (last reference, acq_rel) <-> CORE-O1 of the others: release()
 * sees what all runs did.  CORE-O2 (created, release) <-> CORE-O3 (reference, acquire).
 *
 * Progress: push lock-free as pawl_push(); all threads that push a graph share one counter.
 */
#include <stdlib.h>
#include <core/admit.h>
#include <core/device.h>
#include <core/graph.h>
#include <core/link.h>
#include <core/push.h>
#include <core/record.h>
#include <core/sizes.h>
#include <core/trace.h>
#include <core/wait.h>

static struct graph *graph_of(struct pawl_engine *e, u32 idx)
{
	return pool_obj(e->pool[POOL_GRAPH], idx);
}

/* A reference for the caller, if the handle is alive. */
static struct graph *graph_get(struct pawl_engine *e, pawl_graph_t h, u32 *idx)
{
	u32 i = (u32)h.h, gen = (u32)(h.h >> 32), refs;
	struct graph *g;

	if (!i || i > pool_carved(e->pool[POOL_GRAPH]) || !(gen & 1))
		return NULL;
	g = graph_of(e, i);
	refs = load_relaxed(&g->refs);
	do {
		if (!refs)
			return NULL;
	} while (!cas_acquire_relaxed(&g->refs, &refs, refs + 1));	/* CORE-O3 <-> CORE-O2 */
	*idx = i;
	/* The reference may be to the next user of the memory. */
	return load_relaxed(&g->gen) == gen ? g : NULL;
}

void graph_put(struct thread *t, u32 idx)
{
	struct pawl_engine *e = t->e;
	struct graph *g = graph_of(e, idx);
	u32 refs;

	refs = fetch_add_acq_rel(&g->refs, -1u);	/* CORE-O1 <-> CORE-O1 */
	if (BUSTED(GRAPH_EARLY))
		refs--;
	if (refs != 1)
		return;
	if (g->release) {
		thread_last.callbacks++;
		g->release(g->arg, 0);
		thread_last.callbacks--;
	}
	free(g->deps);
	g->deps = NULL;
	if (!gen_is_last(e, load_relaxed(&g->gen)))
		pool_put(e->pool[POOL_GRAPH], &t->cache[POOL_GRAPH], idx);
}

/* A graph of one op. */
static int graph_new(struct thread *t, const struct pawl_op *d, pawl_graph_t *out)
{
	struct pawl_engine *e = t->e;
	struct dep *deps = NULL;
	u32 idx, n = 0, gen;
	struct graph *g;
	int rc = 0;

	if ((u64)d->nreads + d->nwrites > ext_cap(EXT_CLASSES - 1))
		return err(-E2BIG, "graph_create: %u reads and %u writes", d->nreads, d->nwrites);
	if (d->nreads + d->nwrites) {
		deps = calloc((size_t)d->nreads + d->nwrites, sizeof(*deps));
		if (!deps)
			return err(-ENOMEM, "graph_create: no memory for its vars");
		rc = deps_from(t, deps, d, &n, "graph_create");
	}
	g = rc ? NULL : pool_get(e->pool[POOL_GRAPH], &t->cache[POOL_GRAPH], &idx);
	if (!g) {
		free(deps);
		return rc ? rc : err(-ENOMEM, "graph_create: too many graphs");
	}
	g->fn = d->fn;
	g->async_fn = d->async_fn;
	g->arg = d->arg;
	g->release = d->release;
	g->name = d->name;
	g->deps = deps;
	g->ndeps = n;
	g->flags = (d->async_fn ? OP_ASYNC : 0) | prop_flags(d);
	g->prop = (u8)d->prop;
	g->dev = (u8)op_device(e, d->device);
	g->prio = d->priority;
	gen = gen_alive(e, load_relaxed(&g->gen));
	store_relaxed(&g->gen, gen);
	store_release(&g->refs, 1);	/* CORE-O2 <-> CORE-O3 */
	out->h = (u64)gen << 32 | idx;
	return 0;
}

static int graph_op_check(struct pawl_engine *e, const struct pawl_op *op, size_t i)
{
	int rc = op_check(e, op, "graph_create");

	/* These flags describe one push, and a graph keeps no descriptions of its ops. */
	if (!rc && (op->flags & (PAWL_OP_NOTES | PAWL_OP_ARG)))
		rc = err(-EINVAL, "graph_create: ops[%zu].flags is %#x, known is %#x", i, op->flags,
			 PAWL_OP_NO_SKIP);
	return rc;
}

int pawl_graph_create(struct pawl_engine *e, const struct pawl_op *ops, size_t n,
		      unsigned int flags, pawl_graph_t *out)
{
	struct thread *t = thread_get(e);
	struct pawl_op all = PAWL_OP_INIT;
	size_t i;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	if (!ops || !out)
		return err(-EINVAL, "graph_create: %s is NULL", ops ? "out" : "ops");
	if (!n || n > GRAPH_MAX)
		return err(-EINVAL, "graph_create: n is %zu, not in 1..%u", n, GRAPH_MAX);
	if (flags & ~PAWL_GRAPH_CAPTURE)
		return err(-EINVAL, "graph_create: flags is %#x, known is %#x", flags,
			   PAWL_GRAPH_CAPTURE);
	for (i = 0; i < n; i++) {
		rc = graph_op_check(e, op_at(ops, i), i);
		if (rc)
			return rc;
	}
	if (n == 1 && !flags)
		return graph_new(t, ops, out);
	rc = group_new(ops, n, flags & PAWL_GRAPH_CAPTURE, &all);
	if (rc)
		return rc;
	rc = graph_new(t, &all, out);
	free((void *)all.reads);	/* the graph has copied them */
	if (rc)
		free(all.arg);
	return rc;
}
PAWL_EXPORT(pawl_graph_create);

/*
 * Push one run of a graph to which the caller has a reference.  Returns 1 if a pool is empty;
 * after a failure nothing stays allocated.
 */
static int graph_try(struct thread *t, struct graph *g, u32 idx, int priority, u32 dev)
{
	struct pawl_engine *e = t->e;
	struct op *op;
	u32 opi, j;
	int rc;

	rc = admit(t, 1);
	if (unlikely(rc))
		return rc;
	for (j = 0; j < g->ndeps; j++) {
		pawl_var_t v = { (u64)g->deps[j].gen << 32 | (g->deps[j].var & ~DEP_WRITE) };

		if (unlikely(var_check(t, v))) {
			rc = err(-ESTALE, "graph_push: one of its vars was deleted");
			goto out;
		}
	}
	op = op_new(t, &opi);
	if (!op) {
		rc = err_pool_empty(t, POOL_OP, "graph_push: max_ops exist");
		goto out;
	}
	rc = op_deps_copy(t, op, opi, g->deps, g->ndeps);
	if (rc)
		goto out_op;
	op->fn = g->fn;
	if (g->flags & OP_ASYNC)
		op->async_fn = g->async_fn;
	store_helped16(&op->flags, g->flags | OP_GRAPH | (g->name ? OP_NAMED : 0));
	op->arg = g->arg;
	store_relaxed(&op->name, g->name);
	op->prio = priority;
	op->prop = g->prop;
	op->dev = (u8)dev;
	op->graph = idx;
	if (unlikely(load_relaxed(&e->special) & SPECIAL_TRACING))
		trace_event(t, TRACE_PUSH, opi, g->name, 0);
	if (unlikely(load_relaxed(&e->special) & SPECIAL_RECORDING))
		record_push(t, op, opi, false);
	if (unlikely(e->kind == PAWL_NAIVE))
		fetch_add_relaxed(&t->naive_pending, 1);
	PROBE4(push, t->ex.id, opi, g->name, t->ex.slot);
	rc = push_op(t, op, opi);
	if (rc) {
		if (load_relaxed(&e->special) & SPECIAL_RECORDING)
			record_undo(t, op, opi);
		push_undo(t, op);
		if (e->kind == PAWL_NAIVE)
			fetch_add_relaxed(&t->naive_pending, -1u);
		rc = err(-ESTALE, "graph_push: one of its vars was deleted");
		goto out_op;
	}
	return e->kind == PAWL_NAIVE ? wait_naive(t) : 0;

out_op:
	op_free(t, op, opi);
out:
	admit_undo(t, 1);
	return rc == -ENOMEM ? 1 : rc;
}

int pawl_graph_push(struct pawl_engine *e, pawl_graph_t h, const struct pawl_launch *how)
{
	struct thread *t = thread_get(e);
	bool tried = false;
	struct graph *g;
	u32 idx = 0, dev;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	if (how && unlikely(how->size != sizeof(*how))) {
		rc = size_check("launch", how, LAUNCH_SIZE_0, sizeof(*how));
		if (rc)
			return rc;
	}
	if (how && (how->device.kind == PAWL_CPU ? how->device.id >= e->ndev :
		    !device_row(e, how->device)))
		return err(-ENODEV, "graph_push: no device %u:%u", how->device.kind, how->device.id);
	g = graph_get(e, h, &idx);
	if (!g) {
		if (idx)
			graph_put(t, idx);
		return err(-ESTALE, "graph_push: no graph, or it was deleted");
	}
	dev = how ? op_device(e, how->device) : g->dev;
	while ((rc = graph_try(t, g, idx, how ? how->priority : g->prio, dev)) > 0) {
		rc = admit_again(t, &tried, false);
		if (rc)
			break;
	}
	/* A run keeps the reference until it is complete. */
	if (unlikely(rc))
		graph_put(t, idx);
	return rc;
}
PAWL_EXPORT(pawl_graph_push);

int pawl_graph_refresh(struct pawl_engine *e, pawl_graph_t h)
{
	struct thread *t = thread_get(e);
	struct graph *g;
	u32 idx = 0;
	int rc = 0;

	if (unlikely(!t))
		return thread_last.code;
	g = graph_get(e, h, &idx);
	if (!g)
		rc = err(-ESTALE, "graph_refresh: no graph, or it was deleted");
	else if (!group_refresh(g->fn, g->arg))
		rc = err(-EINVAL, "graph_refresh: the graph was created without PAWL_GRAPH_CAPTURE");
	if (idx)
		graph_put(t, idx);
	return rc;
}
PAWL_EXPORT(pawl_graph_refresh);

int pawl_graph_delete(struct pawl_engine *e, pawl_graph_t h)
{
	struct thread *t = thread_get(e);
	u32 idx = 0, gen = (u32)(h.h >> 32);
	struct graph *g;

	if (unlikely(!t))
		return thread_last.code;
	g = graph_get(e, h, &idx);
	/* Relaxed: the CAS decides between two threads that delete; graph_put() orders. */
	if (!g || !cas_relaxed(&g->gen, &gen, gen_dead(gen))) {
		if (idx)
			graph_put(t, idx);
		return err(-ESTALE, "graph_delete: no graph, or it was deleted before");
	}
	graph_put(t, idx);	/* of this call */
	graph_put(t, idx);	/* of pawl_graph_create() */
	return 0;
}
PAWL_EXPORT(pawl_graph_delete);

/* The engine is destroyed: free the graphs that were not deleted. */
void graphs_exit(struct thread *t)
{
	struct pawl_engine *e = t->e;
	u32 i, n = pool_carved(e->pool[POOL_GRAPH]);

	for (i = 1; i <= n; i++)
		if (load_relaxed(&graph_of(e, i)->gen) & 1)
			graph_put(t, i);
}
