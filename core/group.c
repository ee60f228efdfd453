// SPDX-License-Identifier: Apache-2.0
/*
 * Groups: several ops that run as one, and their capture on devices.
 *
 * Purpose: a graph of small ops that is pushed repeatedly costs one op, and on a device with
 * capture one launch: the work that the bodies queue is captured once and replayed.
 *
 * Structures: an op (for graph.c) whose vars are those of all the ops and whose body runs
 * all their bodies.  It keeps at most one captured graph of the device.  The first run is
 * plain, so that bodies can do one-time work in it.  The second run captures, on a stream that
 * belongs to no lane, since other threads may record events in the lane meanwhile.  Later runs
 * launch what was captured on the lane that they have.  pawl_graph_refresh() and a push to
 * another device start over.  A group that cannot be captured always runs plainly.
 *
 * Ordering: CORE-GR1 (the capture's owner, CAS) <-> CORE-GR2 (release): the fields of the
 * capture.  Runs of a group may overlap; a run that finds the capture in use runs the bodies.
 *
 * Progress: that of the bodies and the driver.
 *
 * Lifetime: until the graph's last run is complete; the driver keeps captured work that still
 * runs.
 */
#include <stdlib.h>
#include <string.h>
#include <core/device.h>
#include <core/graph.h>
#include <core/sizes.h>
#include <device/device.h>

/* One of the ops, without its vars. */
struct group_op {
	pawl_fn fn;
	void *arg;
	pawl_release_fn release;
	const char *name;
};

struct group {
	u32 n;			/* I */
	bool capture;		/* I: the bodies need not run each time */
	u32 fresh;		/* A: incremented by pawl_graph_refresh() */
	u32 busy;		/* A: a run owns the fields below */
	u32 seen;		/* value of fresh at the last run */
	u32 runs;		/* plain runs since then */
	bool never;		/* this device cannot capture it */
	struct device *d;	/* of the captured work and of the runs */
	void *graph;		/* the captured work */
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

static void capture_drop(struct group *g)
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

/* Capture the work if possible.  Returns an error if a body failed; then no work was run. */
static int capture_make(struct group *g, struct pawl_run *run)
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

/* Launch the captured work; capture it first if needed.  Returns 1 to run the bodies instead. */
static int capture_run(struct group *g, struct device *d, struct pawl_run *run)
{
	/* Relaxed: a run that must see a refresh was pushed after it. */
	u32 fresh = load_relaxed(&g->fresh);
	int rc = 0;

	if (BUSTED(GRAPH_STALE))
		fresh = g->seen;
	if (g->seen != fresh || g->d != d) {
		capture_drop(g);
		g->seen = fresh;
		g->d = d;
	}
	if (!g->graph && !g->never && g->runs)
		rc = capture_make(g, run);
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
	if (d && g->capture && cas_acquire_relaxed(&g->busy, &none, 1)) {
		rc = capture_run(g, d, run);
		store_release(&g->busy, 0);	/* CORE-GR2 <-> CORE-GR1 */
	}
	return rc > 0 ? group_bodies(g, run) : rc;
}

/* The graph has ended. */
static void group_release(void *arg, int status)
{
	struct group *g = arg;
	u32 i;

	capture_drop(g);
	for (i = 0; i < g->n; i++)
		if (g->ops[i].release)
			g->ops[i].release(g->ops[i].arg, status);
	free(g);
}

static void vars_copy(pawl_var_t **to, const pawl_var_t *from, size_t n)
{
	if (n)
		memcpy(*to, from, n * sizeof(*from));
	*to += n;
}

/* The ops were checked one by one. */
static int group_check(const struct pawl_op *ops, size_t n, size_t *nr, size_t *nw)
{
	size_t i;

	*nr = *nw = 0;
	for (i = 0; i < n; i++) {
		const struct pawl_op *op = op_at(ops, i);

		if (op->async_fn)
			return err(-EINVAL, "graph_create: ops[%zu] is asynchronous", i);
		if (op->device.kind != ops[0].device.kind ||
		    op->device.id != ops[0].device.id || op->prop != ops[0].prop ||
		    op->flags != ops[0].flags)
			return err(-EINVAL, "graph_create: ops[%zu] has another device, prop or flags",
				   i);
		*nr += op->nreads;
		*nw += op->nwrites;
	}
	return *nr + *nw > 65535 ? err(-E2BIG, "graph_create: %zu accesses", *nr + *nw) : 0;
}

int group_new(const struct pawl_op *ops, size_t n, bool capture, struct pawl_op *all)
{
	pawl_var_t *vars, *r, *w;
	size_t nr, nw, i;
	struct group *g;
	int rc;

	rc = group_check(ops, n, &nr, &nw);
	if (rc)
		return rc;
	g = calloc(1, sizeof(*g) + n * sizeof(g->ops[0]));
	vars = calloc(nr + nw + 1, sizeof(*vars));
	if (!g || !vars) {
		free(g);
		free(vars);
		return err(-ENOMEM, "graph_create: no memory for %zu ops", n);
	}
	g->n = (u32)n;
	g->capture = capture;
	r = vars;
	w = vars + nr;
	for (i = 0; i < n; i++) {
		const struct pawl_op *op = op_at(ops, i);

		g->ops[i] = (struct group_op){ op->fn, op->arg, op->release, op->name };
		vars_copy(&r, op->reads, op->nreads);
		vars_copy(&w, op->writes, op->nwrites);
	}
	all->fn = group_run;
	all->arg = g;
	all->release = group_release;
	all->reads = vars;
	all->nreads = (u32)nr;
	all->writes = vars + nr;
	all->nwrites = (u32)nw;
	all->priority = ops[0].priority;
	all->prop = ops[0].prop;
	all->flags = ops[0].flags;
	all->device = ops[0].device;
	all->name = ops[0].name;
	return 0;
}

bool group_refresh(pawl_fn fn, void *arg)
{
	struct group *g = arg;

	if (fn != group_run || !g->capture)
		return false;
	fetch_add_relaxed(&g->fresh, 1);
	return true;
}
