// SPDX-License-Identifier: Apache-2.0
/*
 * payload - errors that carry an object, for example an exception of a language runtime.
 *
 * The object travels with the error along the data.  The call that reports the error returns
 * the object, which then belongs to the caller; config.drop receives the objects that no call
 * returned.  Errors can also be read, taken and cleared var by var.
 */
#include <errno.h>
#include <pawl/engine.h>
#include <stdio.h>
#include <stdlib.h>

struct exception {
	int line;
};

static int dropped;

static struct exception *exception_new(int line)
{
	struct exception *x = malloc(sizeof(*x));

	if (x)
		x->line = line;
	return x;
}

static void drop(void *user, void *payload)
{
	(void)user;
	free(payload);
	dropped++;
}

static int throws(struct pawl_run *run, void *arg)
{
	(void)arg;
	return pawl_fail_with(run, -EIO, "thrown in the body", exception_new(1));
}

/* An asynchronous body would pass the token to the thread that completes it. */
static void throws_later(struct pawl_run *run, void *arg)
{
	(void)arg;
	pawl_complete_with(run->engine, run->token, -EIO, "thrown later", exception_new(2));
}

static int push(struct pawl_engine *e, pawl_fn fn, pawl_async_fn async_fn, const pawl_var_t *v)
{
	return pawl_push(e, &(struct pawl_op){ sizeof(struct pawl_op), .fn = fn,
					       .async_fn = async_fn, .writes = v, .nwrites = 1 });
}

int main(void)
{
	struct pawl_config cfg;
	struct pawl_engine *e;
	struct pawl_error err;
	struct exception *x;
	pawl_var_t a, b, c;
	int line;

	pawl_config_init(&cfg);
	cfg.drop = drop;
	if (pawl_engine_create(&cfg, &e) || pawl_var_create(e, &a) || pawl_var_create(e, &b) ||
	    pawl_var_create(e, &c))
		goto err;
	if (push(e, throws, NULL, &a) || push(e, NULL, throws_later, &b) || push(e, throws, NULL, &c))
		goto err;
	if (pawl_wait_readable(e, a, -1, &err) != -EIO)
		return 1;
	x = err.payload;
	line = x ? x->line : 0;
	printf("%s: exception of line %d\n", err.text, line);
	free(x);
	/* The same without a wait, for a var whose ops are complete. */
	while (!pawl_var_error(e, b, &err) || !pawl_var_error(e, c, NULL))
		if (pawl_run_one(e) < 0)
			goto err;
	printf("%s\n", err.text);
	if (pawl_var_take(e, b, &err) != -EIO)
		return 1;
	x = err.payload;
	line += x ? x->line : 0;
	free(x);
	/* This one is not reported: drop() frees its exception. */
	if (pawl_var_clear(e, c) || pawl_wait_all(e, -1, NULL))
		goto err;
	if (pawl_var_delete(e, a, NULL, NULL) || pawl_var_delete(e, b, NULL, NULL) ||
	    pawl_var_delete(e, c, NULL, NULL))
		goto err;
	return pawl_engine_destroy(e) || line != 3 || dropped != 1;
err:
	fprintf(stderr, "payload: %s\n", pawl_error_text());
	return 1;
}
