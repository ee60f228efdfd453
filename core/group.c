// SPDX-License-Identifier: Apache-2.0
/*
 * Launches on a device: the bodies of a graph run as one, and what they queue is captured.
 *
 * Purpose: a graph of small ops that is pushed repeatedly costs one op, and on a device with
 * capture one launch of the driver: the work that the bodies queue is captured once and
 * replayed.
 *
 * Structures: a graph with PAWL_GRAPH_CAPTURE keeps at most one captured graph of the device.
 * The first launch is plain, so that bodies can do one-time work in it.  The second captures, on
 * a stream that belongs to no lane, since other threads may record events in the lane
 * meanwhile.  Later ones replay what was captured on the lane that they have.
 * pawl_graph_refresh() and a push to another device start over.  What cannot be captured always
 * runs plainly.
 *
 * Ordering: CORE-GR1 (the capture's owner, CAS) <-> CORE-GR2 (release): the fields of the
 * capture.  Launches may overlap; one that finds the capture in use runs the bodies.
 *
 * Progress: that of the bodies and the driver.
 *
 * Lifetime: until the graph's last launch is complete; the driver keeps captured work that still
 * runs.
 */
#include <stdlib.h>
#include <base/err.h>
#include <core/device.h>
#include <core/graph.h>
#include <device/device.h>

struct capture {
	u32 fresh;		/* A: incremented by pawl_graph_refresh() */
	u32 busy;		/* A: a launch owns the fields below */
	u32 seen;		/* value of fresh at the last launch */
	u32 runs;		/* plain launches since then */
	bool never;		/* this device cannot capture it */
	struct device *d;	/* of the captured work and of the launches */
	void *graph;		/* the captured work */
	void *stream;		/* for the capture */
};

/* Run the bodies until one fails. */
static int group_bodies(const struct launch *l, struct pawl_run *run)
{
	u32 i;
	int rc = 0;

	for (i = 0; !rc && i < l->plan->n; i++) {
		const struct node *nd = &l->plan->node[i];

		if (!nd->fn)
			continue;
		rc = nd->fn(run, node_arg(l, i));
		if (unlikely(rc > 0))
			rc = pawl_fail(run, -EPROTO, "%s returned %d, not 0 or a negative errno",
				       nd->name ? nd->name : "a body", rc);
	}
	return rc;
}

static void capture_drop(struct capture *g)
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
static int capture_make(struct capture *g, const struct launch *l, struct pawl_run *run)
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
	rc = group_bodies(l, run);
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
static int capture_run(struct capture *g, const struct launch *l, struct device *d,
		       struct pawl_run *run)
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
		rc = capture_make(g, l, run);
	if (rc)
		return rc;
	if (!g->graph) {
		g->runs++;
		return 1;
	}
	rc = device_check(d, d->ops->graph_launch(d->dev, run->stream, g->graph));
	return rc ? pawl_fail(run, rc, "%s", err_text()) : 0;
}

int group_run(struct pawl_run *run, void *arg)
{
	struct device *d = device_of_run(run);
	struct launch *l = arg;
	struct capture *g = l->plan->capture;
	u32 none = 0;
	int rc = 1;

	/* CORE-GR1 <-> CORE-GR2 */
	if (d && g && cas_acquire_relaxed(&g->busy, &none, 1)) {
		rc = capture_run(g, l, d, run);
		store_release(&g->busy, 0);	/* CORE-GR2 <-> CORE-GR1 */
	}
	return rc > 0 ? group_bodies(l, run) : rc;
}

struct capture *capture_new(void)
{
	return calloc(1, sizeof(struct capture));
}

/* The graph has ended. */
void capture_free(struct capture *c)
{
	if (c)
		capture_drop(c);
	free(c);
}

void capture_refresh(struct capture *c)
{
	fetch_add_relaxed(&c->fresh, 1);
}
