// SPDX-License-Identifier: Apache-2.0
/*
 * Operators of several ops, and their capture on devices.
 *
 * Purpose: a batch of small ops that is pushed again and again costs one op, and on a
 * device that can do it one launch: what its bodies put into their stream is captured
 * once and replayed.
 *
 * Structures: an operator (oper.c) whose body runs the bodies of all, with the vars of
 * all.  Beside the list it keeps at most one captured graph.  The first run is plain, so
 * that what bodies do only once is behind them.  The second one captures, in a stream that
 * is in no lane: others may record events in the lane meanwhile.  Further runs launch
 * the graph in whatever lane they have.  pawl_oper_refresh() starts that again, and so
 * does a push to another device.  What cannot be captured is run plainly.
 *
 * Ordering: CORE-GR1 (the graph's owner, CAS) <-> CORE-GR2 (release): the fields of the
 * graph.  Runs of an operator may overlap; one that finds another at the graph runs its
 * bodies.
 *
 * Progress: as the bodies and the driver.
 *
 * Lifetime: until the operator's last run is over; the driver keeps what it still runs.
 */
#include <stdlib.h>
#include <core/internal.h>
#include <device/device.h>

struct group {
	u32 n;			/* I */
	u32 fresh;		/* A: raised by pawl_oper_refresh() */
	u32 busy;		/* A: a run looks at what follows */
	u32 seen;		/* of fresh */
	u32 runs;		/* plain ones since then */
	bool never;		/* this device cannot capture it */
	struct device *d;	/* of the graph, and of runs */
	void *graph;
	void *stream;		/* to capture in */
	struct bulk_fn fns[];	/* I */
};

/* All bodies, until one fails. */
static int group_bodies(struct group *g, struct pawl_run *run)
{
	u32 i;
	int rc = 0;

	for (i = 0; !rc && i < g->n; i++) {
		if (!g->fns[i].fn)
			continue;
		rc = g->fns[i].fn(run, g->fns[i].arg);
		if (unlikely(rc > 0))
			rc = pawl_fail(run, -EPROTO, "%s returned %d, not 0 or a negative errno",
				       g->fns[i].name ? g->fns[i].name : "a body", rc);
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

/* 0: there is a graph, or none can be had; else a body failed, and nothing was run. */
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

/* Launch it, or make it first.  1: run the bodies. */
static int graph_run(struct group *g, struct device *d, struct pawl_run *run)
{
	/* Relaxed: a run that must see it was pushed after the refresh. */
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

/* The operator is over. */
static void group_release(void *arg, int status)
{
	struct group *g = arg;
	u32 i;

	graph_drop(g);
	for (i = 0; i < g->n; i++)
		if (g->fns[i].release)
			g->fns[i].release(g->fns[i].arg, status);
	free(g);
}

static int group_check(struct pawl_engine *e, const struct pawl_op *ops, size_t n, size_t *nr,
		       size_t *nw)
{
	size_t i;
	int rc;

	*nr = *nw = 0;
	for (i = 0; i < n; i++) {
		rc = op_check(e, &ops[i], "oper_create_many");
		if (rc)
			return rc;
		if (ops[i].async_fn)
			return err(-EINVAL, "oper_create_many: ops[%zu] is asynchronous", i);
		if (ops[i].device.kind != ops[0].device.kind ||
		    ops[i].device.id != ops[0].device.id || ops[i].prop != ops[0].prop)
			return err(-EINVAL, "oper_create_many: ops[%zu] has another device or prop", i);
		*nr += ops[i].nreads;
		*nw += ops[i].nwrites;
	}
	return *nr + *nw > 65535 ? err(-E2BIG, "oper_create_many: %zu accesses", *nr + *nw) : 0;
}

int pawl_oper_create_many(struct pawl_engine *e, const struct pawl_op *ops, size_t n,
			  pawl_oper_t *out)
{
	struct thread *t = thread_get(e);
	struct pawl_op all = PAWL_OP_INIT;
	pawl_var_t *vars = NULL;
	size_t nr, nw, i, r, w;
	struct group *g;
	u32 j;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	if (!ops || !n || n > BULK_MAX * BULK_MAX)
		return err(-EINVAL, "oper_create_many: %zu ops at %p", n, (const void *)ops);
	rc = group_check(e, ops, n, &nr, &nw);
	if (rc)
		return rc;
	g = calloc(1, sizeof(*g) + n * sizeof(g->fns[0]));
	vars = calloc(nr + nw + 1, sizeof(*vars));
	if (!g || !vars) {
		free(g);
		free(vars);
		return err(-ENOMEM, "oper_create_many: no memory for %zu ops", n);
	}
	g->n = (u32)n;
	for (i = 0, r = 0, w = nr; i < n; i++) {
		g->fns[i] = (struct bulk_fn){ ops[i].fn, ops[i].arg, ops[i].release, ops[i].name };
		for (j = 0; j < ops[i].nreads; j++)
			vars[r++] = ops[i].reads[j];
		for (j = 0; j < ops[i].nwrites; j++)
			vars[w++] = ops[i].writes[j];
	}
	all.fn = group_run;
	all.arg = g;
	all.release = group_release;
	all.reads = vars;
	all.nreads = (u32)nr;
	all.writes = vars + nr;
	all.nwrites = (u32)nw;
	all.prop = ops[0].prop;
	all.device = ops[0].device;
	all.name = ops[0].name;
	rc = pawl_oper_create(e, &all, out);
	free(vars);
	if (rc)
		free(g);
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
