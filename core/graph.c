// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs: ops described once and pushed many times.
 *
 * A push of a graph is a launch: one op with the vars of all the graph's ops (plan.c), which
 * takes its positions as any op does.  When it is granted, nodes.c runs the bodies, or, on a
 * device, group.c.  Each launch has a struct launch, from a stack of its graph: memory is
 * allocated when more launches are in flight than ever before, and freed when the graph ends.
 *
 * A launch holds a reference to its graph until it is complete.  Deletion drops the first
 * reference.  The graph is freed with its last reference.
 *
 * Ordering: CORE-O1 (last reference, acq_rel) <-> CORE-O1 of the others: release()
 * sees what all launches did.  CORE-O2 (created, release) <-> CORE-O3 (reference, acquire).
 * CORE-O4 (stack of launches, acq_rel) <-> CORE-O4: the memory of a launch changes hands.
 *
 * Progress: a push is lock-free, as pawl_push() is; all threads that push a graph share one
 * counter and one stack.
 */
#include <stdlib.h>
#include <core/admit.h>
#include <core/cq.h>
#include <core/device.h>
#include <core/graph.h>
#include <core/link.h>
#include <core/push.h>
#include <core/record.h>
#include <core/sizes.h>
#include <core/trace.h>
#include <core/wait.h>

BUILD_BUG_ON(sizeof(struct graph) % 16);
BUILD_BUG_ON(sizeof(struct launch) % 16);

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

static void graph_put(struct thread *t, u32 idx)
{
	struct pawl_engine *e = t->e;
	struct graph *g = graph_of(e, idx);
	struct plan *p;
	struct launch *l, *next;
	u32 refs, i;

	refs = fetch_add_acq_rel(&g->refs, -1u);	/* CORE-O1 <-> CORE-O1 */
	if (BUSTED(GRAPH_EARLY))
		refs--;
	if (refs != 1)
		return;
	p = g->plan;
	for (l = (struct launch *)(uintptr_t)load_relaxed(&g->free.val); l; l = next) {
		next = load_relaxed(&l->next);
		free(l);
	}
	g->plan = NULL;
	for (i = 0; i < p->n; i++) {
		if (!p->node[i].release)
			continue;
		thread_last.callbacks++;
		p->node[i].release(p->node[i].arg, 0);
		thread_last.callbacks--;
	}
	plan_free(p);
	if (!gen_is_last(e, load_relaxed(&g->gen)))
		pool_put(e->pool[POOL_GRAPH], &t->cache[POOL_GRAPH], idx);
}

/* The memory of a launch.  NULL: no memory.  Progress: blocking (allocates). */
static __cold struct launch *launch_new(const struct plan *p)
{
	size_t wait = (p->n * sizeof(u32) + 15) & ~(size_t)15;
	struct launch *l;

	if (pool_commit_hook("launch", sizeof(*l)))
		return NULL;
	l = zalloc_lines(sizeof(*l) + wait + p->n * sizeof(void *) + 16 +
			 (p->nslots ? p->ndeps + p->nslots : 0) * sizeof(struct dep));
	if (l)
		l->plan = p;
	return l;
}

static void **launch_args(struct launch *l)
{
	size_t wait = (l->plan->n * sizeof(u32) + 15) & ~(size_t)15;

	/* l->wait begins inside the structure, where pointers are not aligned. */
	return (void **)(void *)((char *)(l + 1) + wait);
}

/* Where the accesses of a launch with slots are sorted. */
static struct dep *launch_deps(struct launch *l)
{
	return (struct dep *)(void *)(launch_args(l) + l->plan->n + (l->plan->n & 1));
}

/* Progress: lock-free; allocates when more launches are in flight than ever before. */
static struct launch *launch_get(struct graph *g)
{
	/*
	 * CORE-O4 <-> CORE-O4: to read next.  The tag is read first, with acquire: with a newer tag,
	 * an old value that is the first launch once more would be taken with its old next.
	 */
	u64 tag = load_acquire(&g->free.tag);
	struct pair was = { tag, load_acquire(&g->free.val) }, now;	/* CORE-O4 <-> CORE-O4 */
	struct launch *l;

	do {
		l = (struct launch *)(uintptr_t)was.val;
		if (unlikely(!l))
			return launch_new(g->plan);
		/* Another thread may have taken it; it is a launch of this graph all the same. */
		now = (struct pair){ was.tag + 1, (uintptr_t)load_relaxed(&l->next) };
		if (BUSTED(LAUNCH_ABA))
			now.tag = was.tag;
	} while (!pair_cas_acq_rel(&g->free, &was, now));	/* CORE-O4 <-> CORE-O4 */
	return l;
}

/* Progress: lock-free. */
static void launch_put(struct graph *g, struct launch *l)
{
	struct pair was = { load_relaxed(&g->free.tag), load_relaxed(&g->free.val) }, now;

	do {
		store_relaxed(&l->next, (struct launch *)(uintptr_t)was.val);
		now = (struct pair){ was.tag + 1, (uintptr_t)l };
		if (BUSTED(LAUNCH_ABA))
			now.tag = was.tag;
	} while (!pair_cas_acq_rel(&g->free, &was, now));	/* CORE-O4 <-> CORE-O4 */
}

/* A launch that was pushed is complete, whether it started or not. */
void graph_end(struct thread *t, struct op *op)
{
	struct graph *g = graph_of(t->e, op->graph);
	struct launch *l;

	if (!g->plan->whole) {
		l = op->arg;
		if (l->carrier)
			op_free(t, op_of(t->e, l->carrier), l->carrier);
		launch_put(g, l);
	}
	/* The op still counts, so a release function of the graph must not wait for it. */
	t->depth++;
	graph_put(t, op->graph);
	t->depth--;
}

int pawl_graph_create(struct pawl_engine *e, const struct pawl_op *ops, size_t n,
		      unsigned int flags, pawl_graph_t *out)
{
	struct thread *t = thread_get(e);
	struct plan *p;
	struct graph *g;
	u32 idx, gen;
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
	rc = plan_make(t, ops, n, flags & PAWL_GRAPH_CAPTURE, &p);
	if (rc)
		return rc;
	g = pool_get(e->pool[POOL_GRAPH], &t->cache[POOL_GRAPH], &idx);
	if (!g) {
		plan_free(p);
		return err(-ENOMEM, "graph_create: too many graphs");
	}
	g->plan = p;
	store_relaxed(&g->free.val, 0);
	gen = gen_alive(e, load_relaxed(&g->gen));
	store_relaxed(&g->gen, gen);
	store_release(&g->refs, 1);	/* CORE-O2 <-> CORE-O3 */
	out->h = (u64)gen << 32 | idx;
	return 0;
}
PAWL_EXPORT(pawl_graph_create);

/* The accesses of a launch whose graph has slots, sorted in l. */
static int slots_fill(struct thread *t, struct launch *l, const struct pawl_launch *how, u32 *n)
{
	const struct plan *p = l->plan;
	struct dep *deps = launch_deps(l);
	u32 i, k;

	for (k = 0; k < p->ndeps; k++)
		dep_copy(&deps[k], &p->deps[k]);
	for (i = 0; i < p->nslots; i++) {
		pawl_var_t v = how->vars[i];

		/* {0}: nothing outside this launch has the slot. */
		if (p->slots[i] == SLOT_UNUSED || !v.h)
			continue;
		if (unlikely(var_check(t, v)))
			return err(-ESTALE, "graph_push: how.vars[%u] is a var that was deleted, or "
				   "of another engine", i);
		dep_set(&deps[k++], var_index(v) | (p->slots[i] == SLOT_WRITE ? DEP_WRITE : 0), 0,
			0, (u32)(v.h >> 32));
	}
	*n = deps_sort(deps, k);
	return *n == k ? 0 : err(-EINVAL, "graph_push: how.vars names a var twice, or one that an "
				 "op of the graph names, too");
}

static int deps_check(struct thread *t, const struct plan *p)
{
	u32 j;

	for (j = 0; j < p->ndeps; j++) {
		pawl_var_t v = { (u64)p->deps[j].gen << 32 | (p->deps[j].var & ~DEP_WRITE) };

		if (unlikely(var_check(t, v)))
			return err(-ESTALE, "graph_push: one of its vars was deleted");
	}
	return 0;
}

/* What of how needs a note, as the description of an op. */
static struct pawl_op how_op(const struct pawl_launch *how)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.flags = (u16)how->flags;
	d.cq = how->cq;
	d.tag = how->tag;
	d.deadline_ns = how->deadline_ns;
	d.ticket = how->ticket;
	d.group = how->group;
	d.cost = how->cost;
	return d;
}

/* It is reserved as for a push. */
static int launch_note(struct thread *t, struct op *op, const struct pawl_launch *how)
{
	struct pawl_op d = how_op(how);
	int rc = note_fill(t, op, &d);

	return rc ? err_field(rc, "graph_push: how") : 0;
}

/* Fill a new op; on error the caller frees the op, and nothing else is kept. */
static int launch_fill(struct thread *t, struct op *op, u32 opi, const struct graph *g,
		       struct launch *l, const struct pawl_launch *how)
{
	const struct plan *p = g->plan;
	u32 flags = p->flags, n = p->ndeps;
	int rc = deps_check(t, p);

	if (!rc && unlikely(p->nslots))
		rc = slots_fill(t, l, how, &n);
	if (!rc)
		rc = op_deps_copy(t, op, opi, p->nslots ? launch_deps(l) : p->deps, n);
	if (rc)
		return rc;
	if (unlikely(how->flags)) {
		rc = launch_note(t, op, how);
		if (rc) {
			blocks_put(t, op_deps(t->e, op, n, op->ext), n);
			return rc;
		}
		flags |= OP_NOTE | (how->flags & NOTE_ASKS ? OP_ASK : 0);
	}
	store_helped16(&op->flags, (u16)flags);
	store_relaxed(&op->name, p->name);
	op->prio = how->priority;
	op->prop = p->prop;
	op->dev = (u8)op_device(t->e, how->device);
	if (p->whole) {
		op->fn = p->node[0].fn;
		if (p->async)
			op->async_fn = p->node[0].async_fn;
		store_relaxed(&op->arg, how->args ? how->args[0] : p->node[0].arg);
		return 0;
	}
	op->fn = op->dev < DEV_FIRST ? nodes_fn : group_run;
	store_relaxed(&op->arg, l);
	l->args = NULL;
	if (how->args)
		l->args = memcpy(launch_args(l), how->args, p->n * sizeof(how->args[0]));
	return 0;
}

/*
 * Reserve what a launch has beside its op.  Returns 1 if a pool is empty.  Memory of the C library
 * is different: no completion frees it.
 */
static int launch_reserve(struct thread *t, struct graph *g, struct launch **l)
{
	const struct plan *p = g->plan;

	*l = NULL;
	if (p->whole && !p->nslots)
		return 0;
	*l = launch_get(g);
	if (!*l)
		return err(-ENOMEM, "graph_push: no memory for another launch in flight");
	(*l)->carrier = 0;
	if (p->whole || op_new(t, &(*l)->carrier))
		return 0;
	err_pool_empty(t, POOL_OP, "graph_push: max_ops exist");
	return 1;
}

static void launch_unreserve(struct thread *t, struct graph *g, struct launch *l)
{
	if (!l)
		return;
	if (l->carrier)
		op_free(t, op_of(t->e, l->carrier), l->carrier);
	launch_put(g, l);
}

/*
 * Push one launch of a graph to which the caller has a reference.  Returns 1 if a pool is
 * empty; after a failure nothing stays allocated.
 */
static int graph_try(struct thread *t, struct graph *g, u32 idx, const struct pawl_launch *how)
{
	struct pawl_engine *e = t->e;
	struct launch *l;
	struct op *op;
	u32 opi, special;
	int rc;

	rc = admit(t, 1);
	if (unlikely(rc))
		return rc;
	rc = launch_reserve(t, g, &l);
	if (rc)
		goto out;
	op = op_new(t, &opi);
	if (!op) {
		err_pool_empty(t, POOL_OP, "graph_push: max_ops exist");
		rc = 1;
		goto out;
	}
	rc = launch_fill(t, op, opi, g, l, how);
	if (rc) {
		rc = rc == -ENOMEM ? 1 : rc;
		goto out_op;
	}
	if (unlikely(l && g->plan->whole)) {
		/* The op needed it for its slots only. */
		launch_put(g, l);
		l = NULL;
	}
	op->graph = idx;
	special = load_relaxed(&e->special);
	if (unlikely(special & SPECIAL_EVENTS))
		op_gen_next(op);
	if (unlikely(special & SPECIAL_TRACING))
		trace_event(t, TRACE_PUSH, op, opi);
	if (unlikely(special & SPECIAL_RECORDING))
		record_push(t, op, opi, false);
	if (unlikely(e->kind == PAWL_NAIVE))
		fetch_add_relaxed(&t->naive_pending, 1);
	PROBE4(push, t->ex.id, opi, op_name(op), t->ex.slot);
	if (unlikely(special & SPECIAL_CANCELED))
		op_stamp(e, opi);
	count_pushed(t, 1);
	rc = push_op(t, op, opi);
	if (rc) {
		completed(t);
		if (load_relaxed(&e->special) & SPECIAL_TRACING)
			trace_event(t, TRACE_REFUSED, op, opi);
		if (load_relaxed(&e->special) & SPECIAL_RECORDING)
			record_undo(t, op, opi);
		push_undo(t, op);
		if (op->flags & OP_NOTE)
			note_undo(t, op);
		if (e->kind == PAWL_NAIVE)
			fetch_add_relaxed(&t->naive_pending, -1u);
		rc = err(-ESTALE, "graph_push: one of its vars was deleted");
		goto out_op;
	}
	return e->kind == PAWL_NAIVE ? wait_naive(t) : 0;

out_op:
	op_free(t, op, opi);
out:
	launch_unreserve(t, g, l);
	admit_undo(t, 1);
	return rc;
}

/*
 * Check how, which may be of an older header: then *copy is it with all fields.  Returns an
 * error, or 0 and what to use in *how.
 */
static int how_check(struct pawl_engine *e, const struct pawl_launch **how,
		     struct pawl_launch *copy)
{
	const struct pawl_launch *h = *how;
	struct pawl_op d;
	int rc;

	if (unlikely(h->size != sizeof(*h))) {
		rc = size_check("launch", h, LAUNCH_SIZE_0, sizeof(*h));
		if (rc)
			return rc;
		memset(copy, 0, sizeof(*copy));
		memcpy(copy, h, min_u(h->size, sizeof(*copy)));
		*how = h = copy;
	}
	if (h->flags & ~PAWL_OP_NOTES || h->reserved)
		return err(-EINVAL, "graph_push: how.flags is %#x, known is %#x; how.reserved is %u",
			   h->flags, PAWL_OP_NOTES, h->reserved);
	d = how_op(h);
	if (unlikely(op_strays(&d)))
		return op_stray(&d, "graph_push", "how");
	if (h->device.kind == PAWL_CPU ? h->device.id >= e->ndev : !device_row(e, h->device))
		return err(-ENODEV, "graph_push: no device %u:%u", h->device.kind, h->device.id);
	return 0;
}

/* Does how fit the graph? */
static int how_fits(const struct plan *p, const struct pawl_launch *how)
{
	if (how->nvars != p->nslots || (p->nslots && !how->vars))
		return err(-EINVAL, "graph_push: how has %u vars, the graph has %u slots",
			   how->vars ? how->nvars : 0, p->nslots);
	if (how->nargs ? !how->args || how->nargs != p->n : how->args != NULL)
		return err(-EINVAL, "graph_push: how has %u args, the graph has %u ops",
			   how->args ? how->nargs : 0, p->n);
	if (how->args && p->capture)
		return err(-EINVAL, "graph_push: how has args, and the graph is captured");
	if (p->async && !p->whole && how->device.kind != PAWL_CPU)
		return err(-EINVAL, "graph_push: an op is asynchronous, and on a device the bodies "
			   "run in one go");
	return 0;
}

int pawl_graph_push(struct pawl_engine *e, pawl_graph_t h, const struct pawl_launch *how)
{
	struct thread *t = thread_get(e);
	struct pawl_launch copy;
	u64 idle = 0;
	struct graph *g;
	u32 idx = 0;
	int rc = 0;

	if (unlikely(!t))
		return thread_last.code;
	if (how)
		rc = how_check(e, &how, &copy);
	if (rc)
		return rc;
	g = graph_get(e, h, &idx);
	if (!g) {
		if (idx)
			graph_put(t, idx);
		return err(-ESTALE, "graph_push: no graph, or it was deleted");
	}
	if (!how) {
		copy = (struct pawl_launch){ .size = sizeof(copy), .priority = g->plan->prio,
					     .device = g->plan->device };
		how = &copy;
	}
	rc = how_fits(g->plan, how);
	if (!rc) {
		while ((rc = graph_try(t, g, idx, how)) > 0) {
			rc = admit_again(t, &idle);
			if (rc)
				break;
		}
	}
	/* A launch keeps the reference until it is complete. */
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
	else if (!g->plan->capture)
		rc = err(-EINVAL, "graph_refresh: the graph was created without PAWL_GRAPH_CAPTURE");
	else
		capture_refresh(g->plan->capture);
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
