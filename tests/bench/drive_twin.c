// SPDX-License-Identifier: Apache-2.0
/* drive_twin.c - the mutex twin for pawl bench --vs. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "twin/twin.h"

struct drive {
	struct twin_engine *eng;
	uint32_t nvars;
	struct twin_var *vars[];
};

struct closure {
	void (*body)(void *arg);
	void *arg;
};

static void *create(unsigned int pushers, unsigned int workers, uint32_t vars)
{
	struct drive *d = calloc(1, sizeof(*d) + vars * sizeof(d->vars[0]));

	(void)pushers;
	if (!d)
		abort();
	d->eng = twin_create((int)workers, NULL);
	while (d->nvars < vars)
		d->vars[d->nvars++] = twin_var_new(d->eng);
	return d;
}

static void run(void *closure, struct twin_done done)
{
	struct closure c;

	memcpy(&c, closure, sizeof(c));
	c.body(c.arg);
	twin_done(done, 0);
}

static void push(void *e, uint32_t var, void (*body)(void *arg), void *arg)
{
	struct closure c = { body, arg };
	struct drive *d = e;

	twin_push_async(d->eng, run, &c, sizeof(c), NULL, 0, &d->vars[var], 1, TWIN_NORMAL, 0);
}

static void destroy(void *e)
{
	struct drive *d = e;

	while (d->nvars)
		twin_var_delete(d->eng, d->vars[--d->nvars]);
	twin_wait_for_all(d->eng);
	twin_destroy(d->eng);
	free(d);
}

const struct bench_driver bench_driver = {
	.version = BENCH_DRIVER_VERSION, .name = "twin", .create = create, .push = push,
	.destroy = destroy,
};
