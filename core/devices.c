// SPDX-License-Identifier: Apache-2.0
/*
 * The devices of an engine, which are opened and closed with it.
 *
 * Structures: a row is something that op.device can name, a device or an adopted stream, with
 * its lanes.  Rows and lanes are arrays that only grow, so an index stays valid.
 *
 * Ordering: CORE-D11 (lanes and rows, release) <-> CORE-D12 (acquire).
 *
 * Progress: blocking, like the driver, except for device_row() and device_name().
 *
 * Lifetime: that of the engine; streams are empty when they are closed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <core/devices.h>

/* Return the op.device that corresponds to an op's dev. */
struct pawl_device device_name(const struct pawl_engine *e, u32 dev)
{
	return dev < DEV_FIRST ? (struct pawl_device){ PAWL_CPU, (u16)dev } :
	       e->devices->rows[dev - DEV_FIRST].name;
}

/* The row of op.device, from DEV_FIRST up, or 0 if this engine does not have it. */
u32 device_row(struct pawl_engine *e, struct pawl_device name)
{
	struct devices *dv = e->devices;
	u32 i, n = dv ? load_acquire(&dv->nrows) : 0;	/* CORE-D12 <-> CORE-D11 */

	for (i = 0; i < n; i++)
		if (dv->rows[i].name.kind == name.kind && dv->rows[i].name.id == name.id)
			return DEV_FIRST + i;
	return 0;
}

struct dev_row *row_get(struct pawl_engine *e, struct pawl_device name, const char *who)
{
	u32 row = device_row(e, name);

	if (row)
		return &e->devices->rows[row - DEV_FIRST];
	err(-ENODEV, "%s: no device of kind %u, number %u in this engine (config.devices)", who,
	    name.kind, name.id);
	return NULL;
}

/* Add a lane to a class; the lanes of a class must be added one after the other. */
int device_lane_add(struct devices *dv, struct device *d, struct dev_class *c, void *stream,
		    int priority, bool eager)
{
	struct lane *l = &dv->lanes[dv->nlanes];
	int rc = lane_init(l, d, dv->nlanes, dv->max_lanes, stream, priority, &c->load);

	if (rc)
		return rc;
	l->eager = eager;
	if (!c->n)
		c->first = dv->nlanes;
	c->n++;
	store_release(&dv->nlanes, dv->nlanes + 1);	/* CORE-D11 <-> CORE-D12 */
	return 0;
}

static int row_lanes(struct pawl_engine *e, struct dev_row *row)
{
	struct devices *dv = e->devices;
	struct dev_class *c = row->class;
	int i, rc = 0;

	for (i = 0; !rc && i < e->cfg.device_streams; i++)
		rc = device_lane_add(dv, row->d, &c[CLASS_COMPUTE], NULL, 0, false);
	if (!rc)
		rc = device_lane_add(dv, row->d, &c[CLASS_PRIO], NULL, 100, false);
	/* Other streams use copied data, so each copy records an event. */
	if (!rc)
		rc = device_lane_add(dv, row->d, &c[CLASS_IN], NULL, 0, true);
	if (!rc)
		rc = device_lane_add(dv, row->d, &c[CLASS_OUT], NULL, 0, true);
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
		/* A device's own threads issue its work; without any, other threads may. */
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

static u32 used_in;	/* A: the process that used a driver; its children must not */

int devices_process_check(const char *who)
{
	u32 none = 0, pid = (u32)getpid();

	/* Relaxed: nothing but the number is published. */
	if (cas_relaxed(&used_in, &none, pid) || none == pid)
		return 0;
	return err(-EOWNERDEAD, "%s: devices belong to the parent of this process", who);
}

int devices_check(const struct pawl_config *c)
{
	u32 i, j;

	BUILD_BUG_ON(DEVICE_KIND_CUDA != PAWL_CUDA);
	if (!c->ndevices)
		return 0;
	if (!c->devices)
		return err(-EINVAL, "engine_create: config.devices is NULL, ndevices is %u",
			   c->ndevices);
	for (i = 0; i < c->ndevices; i++) {
		if (!device_of_kind(c->devices[i].kind) || c->devices[i].id >= ADOPTED_ID)
			return err(-EINVAL, "engine_create: config.devices[%u] is of kind %u, number %u",
				   i, c->devices[i].kind, c->devices[i].id);
		for (j = 0; j < i; j++)
			if (c->devices[j].kind == c->devices[i].kind &&
			    c->devices[j].id == c->devices[i].id)
				return err(-EINVAL, "engine_create: config.devices[%u] is named twice",
					   i);
	}
	return 0;
}

/* Open the devices.  The executor exists; no op does yet. */
int devices_create(struct pawl_engine *e, const struct pawl_device *list)
{
	u32 i, n = e->cfg.ndevices, lanes = n * ((u32)e->cfg.device_streams + 3) + MAX_ADOPTED;
	struct devices *dv;
	int rc;

	if (!n)
		return 0;
	rc = devices_process_check("engine_create");
	if (rc)
		return rc;
	dv = zalloc_lines(sizeof(*dv));
	if (!dv)
		return err(-ENOMEM, "engine_create: no memory for devices");
	e->devices = dv;
	dv->max_lanes = lanes;
	dv->most = min_u((u32)e->cfg.device_window, e->window);
	dv->lanes = zalloc_lines(lanes * sizeof(*dv->lanes));
	if (!dv->lanes)
		return err(-ENOMEM, "engine_create: no memory for streams");
	for (i = 0; i < n; i++) {
		struct dev_row *row = &dv->rows[i];

		row->name = list[i];
		row->d = &dv->d[i];
		rc = device_open(device_of_kind(list[i].kind), list[i].id, row->d);
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

/* Start the reaper, the one thread that waits for devices. */
int devices_start(struct pawl_engine *e)
{
	struct devices *dv = e->devices;
	int rc;

	if (!dv || e->kind == PAWL_NAIVE)
		return 0;
	rc = exec_os_thread_start(e->x, &dv->thread, NULL, reaper_main, e);
	if (rc)
		return err(-EAGAIN, "engine_create: no thread for devices: %s", strerror(rc));
	dv->has_thread = true;
	/* CORE-D10 <-> CORE-D9: its thread in the executor, or the error. */
	while (!load_acquire(&dv->reaper) && load_acquire(&dv->stop) != 2)
		os_thread_yield();
	/* The error's text belongs to that thread, so make another one. */
	rc = dv->thread_rc;
	return rc ? err(rc, "engine_create: the thread for devices: %s", strerror(-rc)) : 0;
}

/* Stop the reaper.  No op is in flight. */
void devices_stop(struct pawl_engine *e)
{
	struct devices *dv = e->devices;

	if (!dv || !dv->has_thread)
		return;
	store_release(&dv->stop, 1);	/* CORE-D17 <-> CORE-D18 */
	reaper_wake(e);
	exec_os_thread_join(e->x, &dv->thread);
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
