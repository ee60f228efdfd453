// SPDX-License-Identifier: Apache-2.0
/*
 * graph - several ops described once and pushed many times.
 *
 * Each push runs the ops one after the other as one op, with the vars of all of them.
 * On a device that can, the work of the bodies is captured once and replayed from then on.
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
	const struct pawl_device cpu = { PAWL_CPU, 0 };
	struct pawl_engine *e;
	pawl_var_t w, h;
	pawl_oper_t train;
	int i;

	if (pawl_engine_create(NULL, &e) || pawl_var_create(e, &w) || pawl_var_create(e, &h))
		goto err;

	const struct pawl_op ops[] = {
		{ sizeof(ops[0]), .fn = forward, .reads = &w, .nreads = 1, .writes = &h,
		  .nwrites = 1, .name = "forward" },
		{ sizeof(ops[0]), .fn = backward, .reads = &h, .nreads = 1, .writes = &w,
		  .nwrites = 1, .name = "backward" },
	};

	if (pawl_oper_create_many(e, ops, 2, &train))
		goto err;
	for (i = 0; i < 40; i++)
		if (pawl_oper_push(e, train, 0, cpu))
			goto err;
	/* Deletion takes effect after the last run. */
	if (pawl_oper_delete(e, train) || pawl_wait_readable(e, w, -1, NULL))
		goto err;
	printf("%.3f\n", weight);
	return pawl_engine_destroy(e) || weight < 1.999 || weight > 2.001;
err:
	fprintf(stderr, "graph: %s\n", pawl_error_text());
	return 1;
}
