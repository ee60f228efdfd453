// SPDX-License-Identifier: Apache-2.0
/*
 * host_loop - an engine without threads: the program's own loop runs the ops.
 *
 * With workers = 0 the engine starts no thread.  The program runs ready ops itself: one at a
 * time between the other work of its loop, or until a condition is true.  While no op is ready
 * the loop sleeps in poll(); a descriptor becomes readable when an op is ready.
 */
#include <pawl/engine.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>

static int steps;

static int step(struct pawl_run *run, void *arg)
{
	(void)run;
	(void)arg;
	steps++;
	return 0;
}

static bool enough(void *arg)
{
	(void)arg;
	return steps == 8;
}

int main(void)
{
	struct pawl_config cfg;
	struct pawl_engine *e;
	struct pawl_op op = PAWL_OP_INIT;
	struct pollfd fd = { .events = POLLIN };
	pawl_var_t v;
	int i, n;

	pawl_config_init(&cfg);
	cfg.workers = 0;
	if (pawl_engine_create(&cfg, &e) || pawl_var_create(e, &v))
		goto err;
	op.fn = step;
	op.writes = &v;
	op.nwrites = 1;
	for (i = 0; i < 8; i++)
		if (pawl_push(e, &op))
			goto err;

	fd.fd = pawl_ready_fd(e);
	if (fd.fd < 0)
		goto err;
	/* One turn of the program's loop: run one op, then do other work. */
	for (i = 0; i < 4; i++) {
		if (poll(&fd, 1, -1) < 0)
			return 1;
		n = pawl_run_one(e);
		if (n < 0)
			goto err;
		printf("turn %d: ran %d\n", i, n);
	}
	/* Or run ready ops until enough() returns true. */
	if (pawl_run_until(e, enough, NULL, -1))
		goto err;
	printf("%d\n", steps);
	return pawl_engine_destroy(e) || steps != 8;
err:
	fprintf(stderr, "host_loop: %s\n", pawl_error_text());
	return 1;
}
