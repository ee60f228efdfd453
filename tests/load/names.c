/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with functions that have the names of functions inside the library.  A refused
 * push, an op that runs, and a wait would call some of them if the library did not hide its
 * names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <pawl/engine.h>

#define OWN(name)				\
	int name(void);				\
	int name(void)				\
	{					\
		puts("names: " #name "()");	\
		exit(1);			\
	}

OWN(err)
OWN(err_text)
OWN(grant)
OWN(retire)
OWN(park)
OWN(ask)
OWN(dispatch)
OWN(complete)
OWN(record)
OWN(arena_create)

static int add(struct pawl_run *run, void *arg)
{
	(void)run;
	*(int *)arg += 1;
	return 0;
}

int main(void)
{
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_engine *e;
	pawl_var_t v;
	int n = 0, i;

	if (pawl_engine_create(NULL, &e) || pawl_var_create(e, &v))
		return 2;
	op.fn = add;
	op.arg = &n;
	op.writes = &v;
	op.nwrites = 1;
	op.prop = 1000;
	if (pawl_push(e, &op) != -22 || !pawl_error_text()[0])
		return 3;
	op.prop = PAWL_NORMAL;
	for (i = 0; i < 100; i++)
		if (pawl_push(e, &op))
			return 4;
	if (pawl_wait_all(e, -1, NULL) || pawl_engine_destroy(e))
		return 5;
	return n != 100;
}
