// SPDX-License-Identifier: Apache-2.0
/*
 * device_memory - memory on a CUDA device: pinned, temporary, freed in the order of a stream.
 *
 * Without a CUDA device the bodies run on the CPU, where a stream is the body itself.
 */
#include <pawl/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 65536

static char *host;		/* pinned: the device copies from and to it by itself */
static void *there;
static int called;

static void on_stream(void *arg)
{
	*(int *)arg += 1;
}

/* A temporary copy lives on the stream between the work that needs it. */
static int twice(struct pawl_run *run, void *arg)
{
	void *temp;
	int rc;

	(void)arg;
	rc = pawl_run_alloc(run, BYTES, &temp);
	if (rc)
		return rc;
	rc = pawl_run_copy(run, there, host, BYTES, PAWL_HOST_TO_DEVICE);
	if (!rc)
		rc = pawl_run_copy(run, temp, there, BYTES, PAWL_DEVICE_TO_DEVICE);
	if (!rc)
		rc = pawl_run_set(run, there, 0, BYTES);
	if (!rc)
		rc = pawl_run_copy(run, host, temp, BYTES, PAWL_DEVICE_TO_HOST);
	if (!rc)
		rc = pawl_run_call(run, on_stream, &called);
	pawl_run_free(run, temp);
	return rc;
}

/* The first op on the var, and the last one, which the stream runs behind all that use it. */
static int make(struct pawl_run *run, void *arg)
{
	(void)arg;
	return pawl_run_alloc(run, BYTES, &there);
}

static int release(struct pawl_run *run, void *arg)
{
	(void)arg;
	return pawl_run_free(run, there);
}

int main(void)
{
	struct pawl_device dev = { PAWL_CPU, 0 }, cuda = { PAWL_CUDA, 0 };
	struct pawl_device_info info = { .size = sizeof(info) };
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_config cfg;
	struct pawl_engine *e;
	pawl_graph_t graph;
	pawl_var_t v;

	pawl_config_init(&cfg);
	if (pawl_device_count(PAWL_CUDA) > 0 && !pawl_device_info(cuda, &info)) {
		cfg.devices = &cuda;
		cfg.ndevices = 1;
		dev = cuda;
	}
	if (pawl_engine_create(&cfg, &e) || pawl_var_create(e, &v))
		goto err;
	if (dev.kind == PAWL_CPU)
		host = malloc(BYTES);
	else if (pawl_host_alloc(e, dev, BYTES, (void **)&host))
		goto err;
	if (!host)
		return 1;
	memset(host, '#', BYTES);
	op.fn = make;
	op.device = dev;
	op.writes = &v;
	op.nwrites = 1;
	if (pawl_push(e, &op))
		goto err;
	op.fn = twice;
	/* Captured at the second push where the device can; refresh when pointers have changed. */
	if (pawl_graph_create(e, &op, 1, PAWL_GRAPH_CAPTURE, &graph) ||
	    pawl_graph_push(e, graph, NULL) || pawl_graph_push(e, graph, NULL) ||
	    pawl_graph_refresh(e, graph) || pawl_graph_push(e, graph, NULL))
		goto err;
	if (pawl_graph_delete(e, graph))
		goto err;
	if (dev.kind == PAWL_CPU ? pawl_var_delete(e, v, release, NULL) :
	    pawl_var_delete_on(e, v, dev, release, NULL))
		goto err;
	if (pawl_wait_all(e, -1, NULL))
		goto err;
	printf("%s: %c%c, called %d times\n", dev.kind == PAWL_CPU ? "cpu" : info.name, host[0],
	       host[BYTES - 1], called);
	if (host[0] != '#' || host[BYTES - 1] != '#' || !called)
		return 1;
	if (dev.kind == PAWL_CPU)
		free(host);
	else if (pawl_host_free(e, dev, host))
		goto err;
	return pawl_engine_destroy(e) != 0;
err:
	fprintf(stderr, "device_memory: %s\n", pawl_error_text());
	return 1;
}
