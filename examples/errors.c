// SPDX-License-Identifier: Apache-2.0
/*
 * errors - what happens when a body fails.
 *
 * A body that returns a negative errno poisons the vars that it writes.  Ops that read or
 * write a poisoned var do not run, and the vars that they write are poisoned too.  A wait on
 * one of these vars returns the error with its message, once, and clears it on all of them.
 * An op with PAWL_OP_NO_SKIP runs anyway and finds the error in run->status.
 */
#include <errno.h>
#include <pawl/engine.h>
#include <stdio.h>

static int load(struct pawl_run *run, void *arg)
{
	return pawl_fail(run, -ENOENT, "no weights in %s", (const char *)arg);
}

static int compute(struct pawl_run *run, void *arg)
{
	(void)run;
	*(int *)arg = 1;	/* never runs */
	return 0;
}

static int clean_up(struct pawl_run *run, void *arg)
{
	*(int *)arg = run->status;
	return 0;
}

int main(void)
{
	struct pawl_engine *e;
	struct pawl_error why;
	pawl_var_t weights, answer;
	char file[] = "model.bin";
	int computed = 0, seen = 0, rc;

	if (pawl_engine_create(NULL, &e) || pawl_var_create(e, &weights) ||
	    pawl_var_create(e, &answer))
		goto err;
	if (pawl_push(e, &(struct pawl_op){ sizeof(struct pawl_op), .fn = load, .arg = file,
					    .writes = &weights, .nwrites = 1, .name = "load" }) ||
	    pawl_push(e, &(struct pawl_op){ sizeof(struct pawl_op), .fn = compute, .arg = &computed,
					    .reads = &weights, .nreads = 1,
					    .writes = &answer, .nwrites = 1, .name = "compute" }) ||
	    pawl_push(e, &(struct pawl_op){ sizeof(struct pawl_op), .fn = clean_up, .arg = &seen,
					    .reads = &answer, .nreads = 1,
					    .flags = PAWL_OP_NO_SKIP, .name = "clean_up" }))
		goto err;
	rc = pawl_wait_writable(e, answer, -1, &why);
	printf("%s: %s (%d)\n", why.op, why.text, why.code);
	if (rc != -ENOENT || computed || seen != -ENOENT)
		return 1;
	/* The wait above reported and cleared the error, so this one finds none. */
	if (pawl_wait_all(e, -1, NULL))
		goto err;
	return pawl_engine_destroy(e) != 0;
err:
	fprintf(stderr, "errors: %s\n", pawl_error_text());
	return 1;
}
