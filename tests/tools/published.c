// SPDX-License-Identifier: Apache-2.0
/*
 * published [stuck|away]: a program with two engines, of which the first pushes ops until it is
 * killed.  stuck: the first op does not end, and three ops wait for it.  away: likewise, but no
 * thread waits in the engine.  It writes a line when it has begun.
 */
#include <pawl/engine.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int work(struct pawl_run *run, void *arg)
{
	(void)run;
	usleep(*(useconds_t *)arg);
	return 0;
}

int main(int argc, char **argv)
{
	static useconds_t us = 100, hour = 3600000000u;
	struct pawl_op op = { .size = sizeof(op), .fn = work, .arg = &us, .nwrites = 1, .name = "step" };
	struct pawl_engine *e, *other;
	struct pawl_config cfg;
	pawl_var_t v;

	pawl_config_init(&cfg);
	cfg.workers = 1;
	cfg.name = "other";
	if (pawl_engine_create(NULL, &e) || pawl_engine_create(&cfg, &other) || pawl_var_create(e, &v)) {
		fprintf(stderr, "published: %s\n", pawl_error_text());
		return 1;
	}
	op.writes = &v;
	if (argc > 1) {
		op.arg = &hour;
		op.name = "stuck";
		if (pawl_push(e, &op))
			return 1;
		op.arg = &us;
		op.name = "step";
	}
	if (pawl_push(e, &op) || pawl_push(e, &op) || pawl_push(e, &op))
		return 1;
	puts("begun");
	fflush(stdout);
	if (argc > 1 && !strcmp(argv[1], "away"))
		pause();
	while (!pawl_wait_all(e, -1, NULL) && !pawl_push(e, &op))
		;
	return 1;
}
