// SPDX-License-Identifier: Apache-2.0
/*
 * push_wait - the smallest program: ops that read and write data, and a wait.
 *
 * A var is a tag for a piece of data.  An op names the vars that it reads and writes.  The
 * two ops that set a and b share no var, so they may run at the same time; the op that adds
 * them reads both and runs after them.
 *
 *	cc push_wait.c $(pkg-config --cflags --libs pawl)
 */
#include <pawl/engine.h>
#include <stdio.h>

static int a, b, sum;

static int set(struct pawl_run *run, void *arg)
{
	(void)run;
	*(int *)arg = 21;
	return 0;
}

static int add(struct pawl_run *run, void *arg)
{
	(void)run;
	*(int *)arg = a + b;
	return 0;
}

int main(void)
{
	struct pawl_engine *e;
	pawl_var_t va, vb, vsum;
	int i;

	if (pawl_engine_create(NULL, &e) || pawl_var_create(e, &va) || pawl_var_create(e, &vb) ||
	    pawl_var_create(e, &vsum))
		goto err;

	const pawl_var_t both[] = { va, vb };
	const struct pawl_op ops[] = {
		{ sizeof(struct pawl_op), .fn = set, .arg = &a, .writes = &va, .nwrites = 1 },
		{ sizeof(struct pawl_op), .fn = set, .arg = &b, .writes = &vb, .nwrites = 1 },
		{ sizeof(struct pawl_op), .fn = add, .arg = &sum, .reads = both, .nreads = 2,
		  .writes = &vsum, .nwrites = 1 },
	};

	for (i = 0; i < 3; i++)
		if (pawl_push(e, &ops[i]))
			goto err;
	/* All writes of vsum that were pushed before are complete when this returns. */
	if (pawl_wait_readable(e, vsum, -1, NULL))
		goto err;
	printf("%d\n", sum);
	/* Destroying an engine waits for its ops and frees everything, vars too. */
	return pawl_engine_destroy(e) || sum != 42;
err:
	fprintf(stderr, "push_wait: %s\n", pawl_error_text());
	return 1;
}
