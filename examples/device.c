// SPDX-License-Identifier: Apache-2.0
/*
 * device - ops on a CUDA device, or on the CPU if there is no such device.
 *
 * The body of an op on a device queues work on a stream and returns at once.  If the next op
 * depends on that work, the engine makes the stream of that op wait for it.  The only thread
 * of the host that waits is the one that calls pawl_wait_readable().
 */
#include <pawl/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 4096

static char in[BYTES], out[BYTES];
static void *there;		/* memory of the device: the data of the var */

static int upload(struct pawl_run *run, void *arg)
{
	(void)arg;
	return pawl_run_copy(run, there, in, BYTES, PAWL_HOST_TO_DEVICE);
}

static int blank(struct pawl_run *run, void *arg)
{
	(void)arg;
	return pawl_run_set(run, there, '.', BYTES / 2);
}

static int download(struct pawl_run *run, void *arg)
{
	(void)arg;
	return pawl_run_copy(run, out, there, BYTES, PAWL_DEVICE_TO_HOST);
}

int main(void)
{
	struct pawl_device dev = { PAWL_CPU, 0 }, cuda = { PAWL_CUDA, 0 };
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_config cfg;
	struct pawl_engine *e;
	pawl_var_t data, result;

	pawl_config_init(&cfg);
	if (pawl_device_count(PAWL_CUDA) > 0) {
		cfg.devices = &cuda;
		cfg.ndevices = 1;
		dev = cuda;
	}
	if (pawl_engine_create(&cfg, &e) || pawl_var_create(e, &data) ||
	    pawl_var_create(e, &result))
		goto err;
	/* A CPU device has no separate memory. */
	if (dev.kind == PAWL_CPU)
		there = malloc(BYTES);
	else if (pawl_device_alloc(e, dev, BYTES, &there))
		goto err;
	if (!there)
		return 1;
	memset(in, '#', BYTES);
	op.device = dev;
	op.writes = &data;
	op.nwrites = 1;

	op.fn = upload;
	op.prop = PAWL_COPY_TO_DEVICE;
	if (pawl_push(e, &op))
		goto err;
	op.fn = blank;
	op.prop = PAWL_NORMAL;
	if (pawl_push(e, &op))
		goto err;
	op.fn = download;
	op.prop = PAWL_COPY_FROM_DEVICE;
	op.reads = &data;
	op.nreads = 1;
	op.writes = &result;
	if (pawl_push(e, &op))
		goto err;

	if (pawl_wait_readable(e, result, -1, NULL))
		goto err;
	if (dev.kind == PAWL_CPU)
		free(there);
	else if (pawl_device_free(e, dev, there))
		goto err;
	printf("%s: %c%c\n", dev.kind == PAWL_CUDA ? "cuda" : "cpu", out[0], out[BYTES - 1]);
	return pawl_engine_destroy(e) || out[0] != '.' || out[BYTES - 1] != '#';
err:
	fprintf(stderr, "device: %s\n", pawl_error_text());
	return 1;
}
