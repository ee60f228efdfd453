// SPDX-License-Identifier: Apache-2.0
/*
 * Operators of several ops, and their capture on devices.
 *
 * Purpose: a batch of small ops that is pushed repeatedly costs one op, and on a device with
 * capture one launch: the work that the bodies queue is captured once and replayed.
 *
 * Structures: an operator (oper.c) whose vars are those of all its ops and whose body runs
 * all their bodies.  It keeps at most one captured graph.  The first run is plain, so that
 * bodies can do one-time work in it.  The second run captures, on a stream that belongs to
 * no lane, since other threads may record events in the lane meanwhile.  Later runs launch
 * the graph on the lane that they have.  pawl_oper_refresh() and a push to another device
 * start over.  An operator that cannot be captured always runs plainly.
 * pawl_push_again() keeps such an operator as long as it is called with the same ops.
 *
 * Ordering: CORE-GR1 (the graph's owner, CAS) <-> CORE-GR2 (release): the fields of the
 * graph.  Runs of an operator may overlap; a run that finds the graph in use runs the bodies.
 *
 * Progress: that of the bodies and the driver.
 *
 * Lifetime: until the operator's last run is complete; the driver keeps a graph that still
 * runs.
 */
#include <stdlib.h>
#include <string.h>
#include <core/device.h>
#include <core/oper.h>
#include <core/sizes.h>
#include <device/device.h>

/* One of the ops, without its vars. */
struct group_op {
	pawl_fn fn;
	void *arg;
	pawl_release_fn release;
	const char *name;
	u32 nreads, nwrites;
};

#define GROUP_MAX	4096u

struct group {
	u32 n;			/* I */
	u32 prop, flags;	/* I */
	pawl_var_t *vars;	/* I: first the reads, then the writes */
	u32 nreads;		/* I */
	u32 fresh;		/* A: incremented by pawl_oper_refresh() */
	u32 busy;		/* A: a run owns the fields below */
	u32 seen;		/* value of fresh at the last run */
	u32 runs;		/* plain runs since then */
	bool never;		/* this device cannot capture it */
	struct device *d;	/* of the graph and of the runs */
	void *graph;
	void *stream;		/* for the capture */
	struct group_op ops[];	/* I */
};

/* Run the bodies until one fails. */
static int group_bodies(struct group *g, struct pawl_run *run)
{
	u32 i;
	int rc = 0;

	for (i = 0; !rc && i < g->n; i++) {
		const struct group_op *f = &g->ops[i];

		if (!f->fn)
			continue;
		rc = f->fn(run, f->arg);
		if (unlikely(rc > 0))
			rc = pawl_fail(run, -EPROTO, "%s returned %d, not 0 or a negative errno",
				       f->name ? f->name : "a body", rc);
	}
	return rc;
}

static void graph_drop(struct group *g)
{
	if (!g->d)
		return;
	if (g->graph)
		(void)!g->d->ops->graph_destroy(g->d->dev, g->graph);
	if (g->stream)
		(void)!g->d->ops->stream_destroy(g->d->dev, g->stream);
	g->graph = NULL;
	g->stream = NULL;
	g->d = NULL;
	g->runs = 0;
	g->never = false;
}

/* Capture the graph if possible.  Not 0: a body failed, and no work was run. */
static int graph_make(struct group *g, struct pawl_run *run)
{
	const struct device_ops *ops = g->d->ops;
	void *dev = g->d->dev, *lane = run->stream, *graph = NULL;
	int rc, end;

	g->never = true;
	if (!ops->capture_begin ||
	    (!g->stream && ops->stream_create(dev, 0, &g->stream)) ||
	    ops->capture_begin(dev, g->stream))
		return 0;
	run->stream = g->stream;
	rc = group_bodies(g, run);
	run->stream = lane;
	end = ops->capture_end(dev, g->stream, &graph);
	if (!end && rc)
		(void)!ops->graph_destroy(dev, graph);
	if (!end && !rc) {
		g->graph = graph;
		g->never = false;
	}
	return device_lost(g->d) ? rc : end ? 0 : rc;
}

/* Launch the graph; capture it first if needed.  1: the caller must run the bodies. */
static int graph_run(struct group *g, struct device *d, struct pawl_run *run)
{
	/* Relaxed: a run that must see a refresh was pushed after it. */
	u32 fresh = load_relaxed(&g->fresh);
	int rc = 0;

	if ((g->seen != fresh && !BUSTED(GRAPH_STALE)) || g->d != d) {
		graph_drop(g);
		g->seen = fresh;
		g->d = d;
	}
	if (!g->graph && !g->never && g->runs)
		rc = graph_make(g, run);
	if (rc)
		return rc;
	if (!g->graph) {
		g->runs++;
		return 1;
	}
	return device_check(d, d->ops->graph_launch(d->dev, run->stream, g->graph));
}

static int group_run(struct pawl_run *run, void *arg)
{
	struct device *d = device_of_run(run);
	struct group *g = arg;
	u32 none = 0;
	int rc = 1;

	/* CORE-GR1 <-> CORE-GR2 */
	if (d && cas_acquire_relaxed(&g->busy, &none, 1)) {
		rc = graph_run(g, d, run);
		store_release(&g->busy, 0);	/* CORE-GR2 <-> CORE-GR1 */
	}
	return rc > 0 ? group_bodies(g, run) : rc;
}

/* The operator has ended. */
static void group_release(void *arg, int status)
{
	struct group *g = arg;
	u32 i;

	graph_drop(g);
	for (i = 0; i < g->n; i++)
		if (g->ops[i].release)
			g->ops[i].release(g->ops[i].arg, status);
	free(g->vars);
	free(g);
}

static int group_check(struct pawl_engine *e, const struct pawl_op *ops, size_t n, size_t *nr,
		       size_t *nw)
{
	size_t i;
	int rc;

	*nr = *nw = 0;
	for (i = 0; i < n; i++) {
		const struct pawl_op *op = op_at(ops, i);

		rc = op_check(e, op, "oper_create_many");
		if (rc)
			return rc;
		if (op->async_fn)
			return err(-EINVAL, "oper_create_many: ops[%zu] is asynchronous", i);
		if (op->device.kind != ops[0].device.kind ||
		    op->device.id != ops[0].device.id || op->prop != ops[0].prop ||
		    op->flags != ops[0].flags)
			return err(-EINVAL, "oper_create_many: ops[%zu] has another device, prop or flags",
				   i);
		*nr += op->nreads;
		*nw += op->nwrites;
	}
	return *nr + *nw > 65535 ? err(-E2BIG, "oper_create_many: %zu accesses", *nr + *nw) : 0;
}

static void vars_copy(pawl_var_t **to, const pawl_var_t *from, size_t n)
{
	if (n)
		memcpy(*to, from, n * sizeof(*from));
	*to += n;
}

/* Returns NULL without memory. */
static struct group *group_new(const struct pawl_op *ops, size_t n, size_t nr, size_t nw)
{
	struct group *g = calloc(1, sizeof(*g) + n * sizeof(g->ops[0]));
	pawl_var_t *vars = calloc(nr + nw + 1, sizeof(*vars)), *r = vars, *w = vars + nr;
	size_t i;

	if (!g || !vars) {
		free(g);
		free(vars);
		return NULL;
	}
	g->n = (u32)n;
	g->prop = ops[0].prop;
	g->flags = ops[0].flags;
	g->vars = vars;
	g->nreads = (u32)nr;
	for (i = 0; i < n; i++) {
		const struct pawl_op *op = op_at(ops, i);

		g->ops[i] = (struct group_op){ op->fn, op->arg, op->release, op->name,
					       op->nreads, op->nwrites };
		vars_copy(&r, op->reads, op->nreads);
		vars_copy(&w, op->writes, op->nwrites);
	}
	return g;
}

int pawl_oper_create_many(struct pawl_engine *e, const struct pawl_op *ops, size_t n,
			  pawl_oper_t *out)
{
	struct thread *t = thread_get(e);
	struct pawl_op all = PAWL_OP_INIT;
	struct group *g;
	size_t nr, nw;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	if (!ops || !n || n > GROUP_MAX)
		return err(-EINVAL, "oper_create_many: %zu ops at %p", n, (const void *)ops);
	rc = group_check(e, ops, n, &nr, &nw);
	if (rc)
		return rc;
	g = group_new(ops, n, nr, nw);
	if (!g)
		return err(-ENOMEM, "oper_create_many: no memory for %zu ops", n);
	all.fn = group_run;
	all.arg = g;
	all.release = group_release;
	all.reads = g->vars;
	all.nreads = (u32)nr;
	all.writes = g->vars + nr;
	all.nwrites = (u32)nw;
	all.prop = ops[0].prop;
	all.flags = ops[0].flags;
	all.device = ops[0].device;
	all.name = ops[0].name;
	rc = pawl_oper_create(e, &all, out);
	if (rc) {
		free(g->vars);
		free(g);
	}
	return rc;
}
PAWL_EXPORT(pawl_oper_create_many);

int pawl_oper_refresh(struct pawl_engine *e, pawl_oper_t oper)
{
	struct thread *t = thread_get(e);
	pawl_fn fn;
	void *arg;
	u32 idx;

	if (unlikely(!t))
		return thread_last.code;
	if (!oper_hold(e, oper, &idx, &fn, &arg)) {
		if (idx)
			oper_put(t, idx);
		return err(-ESTALE, "oper_refresh: no operator, or it was deleted");
	}
	if (fn == group_run)
		fetch_add_relaxed(&((struct group *)arg)->fresh, 1);
	oper_put(t, idx);
	return fn == group_run ? 0 : err(-EINVAL, "oper_refresh: not from oper_create_many()");
}
PAWL_EXPORT(pawl_oper_refresh);

static bool vars_same(const pawl_var_t **had, const pawl_var_t *now, u32 n)
{
	const pawl_var_t *was = *had;

	*had += n;
	return !n || (now && !memcmp(was, now, n * sizeof(*was)));
}

/* Would pawl_oper_create_many() make the same group of these ops, apart from the device? */
static bool group_same(const struct group *g, const struct pawl_op *ops, size_t n)
{
	const pawl_var_t *r = g->vars, *w = g->vars + g->nreads;
	size_t i;

	if (g->n != n)
		return false;
	for (i = 0; i < n; i++) {
		const struct group_op *had = &g->ops[i];
		const struct pawl_op *op = op_at(ops, i);

		if (op_size_bad(op) || op->fn != had->fn ||
		    (op->arg != had->arg && !BUSTED(AGAIN_UNSEEN)) || op->async_fn ||
		    op->release || op->flags != g->flags || op->prop != g->prop ||
		    op->nreads != had->nreads || op->nwrites != had->nwrites ||
		    op->device.kind != ops[0].device.kind || op->device.id != ops[0].device.id ||
		    !vars_same(&r, op->reads, op->nreads) || !vars_same(&w, op->writes, op->nwrites))
			return false;
	}
	return true;
}

/* Was the operator made of these ops? */
static bool oper_same(struct thread *t, pawl_oper_t oper, const struct pawl_op *ops, size_t n)
{
	bool same = false;
	pawl_fn fn;
	void *arg;
	u32 idx;

	if (oper_hold(t->e, oper, &idx, &fn, &arg))
		same = fn == group_run && group_same(arg, ops, n);
	if (idx)
		oper_put(t, idx);
	return same;
}

int pawl_push_again(struct pawl_engine *e, const struct pawl_op *ops, size_t n, pawl_oper_t *kept)
{
	struct thread *t = thread_get(e);
	pawl_oper_t oper;
	size_t i;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	if (!ops || !n || !kept)
		return err(-EINVAL, "push_again: %s", kept ? "no ops" : "kept is NULL");
	if (!kept->h || !oper_same(t, *kept, ops, n)) {
		for (i = 0; i < n; i++) {
			if (op_size_bad(op_at(ops, i)))
				return -EINVAL;
			if (op_at(ops, i)->release)
				return err(-EINVAL, "push_again: ops[%zu] has a release", i);
		}
		rc = pawl_oper_create_many(e, ops, n, &oper);
		if (rc)
			return rc;
		if (kept->h)
			(void)!pawl_oper_delete(e, *kept);	/* it may be deleted already */
		*kept = oper;
	}
	return pawl_oper_push(e, *kept, ops[0].priority, ops[0].device);
}
PAWL_EXPORT(pawl_push_again);
