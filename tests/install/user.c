// SPDX-License-Identifier: Apache-2.0
/* A user's program, as C and as C++: ops on one var run in their order. */
#include <pawl/engine.h>
#include <pawl/version.h>
#include <stdio.h>
#include <string.h>

static int next_number(struct pawl_run *run, void *arg)
{
	int *number = (int *)arg;

	(void)run;
	*number = *number * 2 + 1;
	return 0;
}

int main(void)
{
	struct pawl_engine *engine;
	struct pawl_op op = PAWL_OP_INIT;
	pawl_var_t var;
	int i, number = 0;

	if (strcmp(pawl_version(), PAWL_VERSION_STRING)) {
		fprintf(stderr, "header %s, library %s\n", PAWL_VERSION_STRING, pawl_version());
		return 1;
	}
	if (pawl_engine_create(NULL, &engine) || pawl_var_create(engine, &var))
		goto err;
	op.fn = next_number;
	op.arg = &number;
	op.writes = &var;
	op.nwrites = 1;
	for (i = 0; i < 16; i++)
		if (pawl_push(engine, &op))
			goto err;
	if (pawl_wait_readable(engine, var, -1, NULL))
		goto err;
	if (number != 0xffff) {
		fprintf(stderr, "0x%x instead of 0xffff\n", number);
		return 1;
	}
	if (pawl_engine_destroy(engine))
		goto err;
	printf("pawl %s\n", pawl_version());
	return 0;
err:
	fprintf(stderr, "%s\n", pawl_error_text());
	return 1;
}
