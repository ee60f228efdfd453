// SPDX-License-Identifier: Apache-2.0
/*
 * graph - several ops described once and pushed many times.
 *
 * Each push, a launch, is one op with the vars of all ops.  Inside it the bodies run as their
 * data allows; here the second reads what the first writes.  With PAWL_GRAPH_CAPTURE, a device
 * that supports it captures the work that the bodies queue at the second push, and later pushes
 * replay that work.  Here, on a CPU, the bodies run each time.
 */
#include <pawl/engine.h>
#include <stdio.h>

static double weight = 0.5, hidden, loss = 1;

static int forward(struct pawl_run *run, void *arg)
{
	(void)run;
	(void)arg;
	hidden = weight * 2;
	return 0;
}

static int backward(struct pawl_run *run, void *arg)
{
	(void)run;
	(void)arg;
	loss = 4 - hidden;
	weight += loss / 4;
	return 0;
}

int main(void)
{
	struct pawl_engine *e;
	pawl_var_t w, h;
	pawl_graph_t train;
	int i;

	if (pawl_engine_create(NULL, &e) || pawl_var_create(e, &w) || pawl_var_create(e, &h))
		goto err;

	const struct pawl_op ops[] = {
		{ sizeof(ops[0]), .fn = forward, .reads = &w, .nreads = 1, .writes = &h,
		  .nwrites = 1, .name = "forward" },
		{ sizeof(ops[0]), .fn = backward, .reads = &h, .nreads = 1, .writes = &w,
		  .nwrites = 1, .name = "backward" },
	};

	if (pawl_graph_create(e, ops, 2, PAWL_GRAPH_CAPTURE, &train))
		goto err;
	for (i = 0; i < 40; i++)
		if (pawl_graph_push(e, train, NULL))
			goto err;
	/* Deletion takes effect after the last run. */
	if (pawl_graph_delete(e, train) || pawl_wait_readable(e, w, -1, NULL))
		goto err;
	printf("%.3f\n", weight);
	return pawl_engine_destroy(e) || weight < 1.999 || weight > 2.001;
err:
	fprintf(stderr, "graph: %s\n", pawl_error_text());
	return 1;
}
