/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of the first release, 0.1: built with its headers, run with today's library.
 * Each struct that the library writes lies between bytes that it must not touch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pawl/engine.h>
#include <pawl/version.h>

#define GUARD		64
#define GUARDED(type, name)						\
	struct { unsigned char before[GUARD]; struct type s; unsigned char after[GUARD]; } name

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "old: %s (%s)\n", what, pawl_error_text());
	exit(1);
}

static void whole(const unsigned char *guard, const char *what)
{
	int i;

	for (i = 0; i < GUARD; i++)
		check(guard[i] == 0x5a, what);
}

#define WHOLE(name)							\
	do {								\
		whole((name).before, "written before " #name);		\
		whole((name).after, "written behind " #name);		\
	} while (0)

static int add(struct pawl_run *run, void *arg)
{
	check(run->device.kind == PAWL_CPU && !run->status, "run");
	*(int *)arg += 1;
	return 0;
}

static int fail(struct pawl_run *run, void *arg)
{
	(void)arg;
	return pawl_fail(run, -5, "made to fail");
}

int main(void)
{
	GUARDED(pawl_config, cfg);
	GUARDED(pawl_stats, stats);
	GUARDED(pawl_error, err);
	struct pawl_op ops[2] = { PAWL_OP_INIT, PAWL_OP_INIT };
	struct pawl_engine *e;
	pawl_var_t v[2];
	int n = 0, i;

	memset(&cfg, 0x5a, sizeof(cfg));
	memset(&stats, 0x5a, sizeof(stats));
	memset(&err, 0x5a, sizeof(err));
	pawl_config_init(&cfg.s);
	WHOLE(cfg);
	check(cfg.s.size == sizeof(cfg.s), "config.size");
	check(!cfg.s.drop && !cfg.s.user && cfg.s.device_window == 512, "config's defaults");
	cfg.s.workers = 1;
	check(!pawl_engine_create(&cfg.s, &e), "create");
	for (i = 0; i < 2; i++) {
		check(!pawl_var_create(e, &v[i]), "var");
		ops[i].fn = add;
		ops[i].arg = &n;
		ops[i].writes = v;
		ops[i].nwrites = 1;
		ops[i].reads = v + 1;
		ops[i].nreads = 1;
		ops[i].name = "op";
	}
	check(!pawl_push(e, &ops[0]), "push");
	check(!pawl_push_batch(e, ops, 2), "batch");
	check(!pawl_wait_readable(e, v[0], -1, &err.s), "wait");
	WHOLE(err);
	check(n == 3, "not all ops ran");

	ops[0].fn = fail;
	check(!pawl_push(e, &ops[0]), "push of an op that fails");
	check(pawl_wait_all(e, -1, &err.s) == -5, "the error of wait_all");
	WHOLE(err);
	check(err.s.code == -5 && err.s.count == 1 && !strcmp(err.s.op, "op") &&
	      !strcmp(err.s.text, "made to fail") && !err.s.payload, "the error's fields");

	stats.s.size = sizeof(stats.s);
	check(!pawl_stats(e, &stats.s), "stats");
	WHOLE(stats);
	check(stats.s.size == sizeof(stats.s) && stats.s.failed == 1 &&
	      stats.s.pushed == stats.s.completed && stats.s.threads && stats.s.bytes, "stats' fields");
	check(!pawl_engine_destroy(e), "destroy");
	printf("old: built with %s, ran with %s\n", PAWL_VERSION_STRING, pawl_version());
	return 0;
}
