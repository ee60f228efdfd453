/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites of engines with devices share.  Each suite runs on every kind of device
 * (backend.h); b is the one under test.
 */
#ifndef TESTS_DEVICE_FIXTURE_H
#define TESTS_DEVICE_FIXTURE_H

#include "../unit/util.h"
#include <pawl/device.h>
#include "backend.h"

static struct backend *b;	/* the one under test */
static struct pawl_device dev0, dev1;

static __unused_fn struct pawl_engine *with_devices(u32 n, int kind, int workers,
						     const struct fake_setup *fs)
{
	const struct pawl_device devs[2] = { dev0, dev1 };
	struct pawl_config c = small(kind, workers);

	b->setup(fs);
	c.devices = devs;
	c.ndevices = n;
	return engine_with(&c);
}

static __unused_fn struct pawl_engine *plain(void)
{
	const struct fake_setup fs = { .devices = 2, .seed = 1, .delay = 20 };

	return with_devices(1, PAWL_PER_DEVICE, 2, &fs);
}

/* Work on the device runs only by step_one(). */
static __unused_fn struct pawl_engine *by_hand(int workers)
{
	const struct fake_setup fs = { .devices = 2, .seed = 1, .manual = true };

	return with_devices(1, PAWL_PER_DEVICE, workers, &fs);
}

static __unused_fn u32 step_one(void)
{
	static u64 seed = 1;

	return b->step(rnd(&seed));
}

/* Let the device continue until cond() is true. */
#define steps_until(cond)	MUST(soon(({ step_one(); (cond); })))

/* From now on it continues by itself. */
static pthread_t stepper;
static u32 stepping;		/* A */

static __unused_fn void *stepper_main(void *arg)
{
	u64 seed = 99;

	while (load_acquire(&stepping))
		if (!b->step(rnd(&seed)))
			nap_us(20);
	return NULL;
}

static __unused_fn void steps_go(void)
{
	store_release(&stepping, 1);
	stepper = spawn(stepper_main, NULL);
}

static __unused_fn void done_by_hand(struct pawl_engine *e)
{
	OK(pawl_engine_destroy(e));
	store_release(&stepping, 0);
	join(stepper);
}

/* --- bodies --- */

struct cell {
	u64 v;			/* changed by the device, in order */
	u32 ran;		/* A */
	u32 nap_us;
	void *stream;		/* A: of the last body */
	struct pawl_device dev;	/* A */
	u32 seen;		/* A */
};

static __unused_fn void cell_kernel(void *arg)
{
	struct cell *c = arg;

	if (c->nap_us)
		nap_us(c->nap_us);
	c->v = c->v * 3 + 1;
	fetch_add_acq_rel(&c->ran, 1);
}

static __unused_fn int cell_body(struct pawl_run *run, void *arg)
{
	struct cell *c = arg;

	store_release(&c->stream, run->stream);
	store_release(&c->dev.kind, run->device.kind);
	store_release(&c->dev.id, run->device.id);
	return pawl_run_call(run, cell_kernel, c);
}

static __unused_fn u64 cell_after(u32 n)
{
	u64 v = 0;

	while (n--)
		v = v * 3 + 1;
	return v;
}

static __unused_fn struct pawl_op dev_op(pawl_fn fn, void *arg)
{
	struct pawl_op op = op_of_fn(fn, arg);

	op.device = dev0;
	return op;
}

static __unused_fn int push_dev(struct pawl_engine *e, pawl_fn fn, void *arg,
				const pawl_var_t *r, u32 nr, const pawl_var_t *w, u32 nw)
{
	struct pawl_op op = dev_op(fn, arg);

	op.reads = r;
	op.nreads = nr;
	op.writes = w;
	op.nwrites = nw;
	return pawl_push(e, &op);
}

static __unused_fn int cell_check(struct pawl_run *run, void *arg)
{
	struct cell *c = arg;

	MUST(!run->stream);
	store_release(&c->seen, c->v == cell_after(1) ? 7 : 8);
	return 0;
}

static __unused_fn void nap_fn(void *arg)
{
	nap_us(*(u32 *)arg);
}

/* told: tests for a kind that can be controlled, with two devices. */
static __unused_fn int devices_run(const TTest *const *any, const TTest *const *told)
{
	struct backend list[4];
	const TTest *tests[64];
	int n = backends(list), i, k, failed = 0;

	setenv("CK_FORK", "no", 1);
	for (i = 0; i < n; i++) {
		const TTest *const *t;

		if (!list[i].kind)
			continue;
		b = &list[i];
		dev0 = (struct pawl_device){ (u16)b->kind, 0 };
		dev1 = (struct pawl_device){ (u16)b->kind, 1 };
		for (t = any, k = 0; *t; t++)
			tests[k++] = *t;
		for (t = told; *t && !b->real; t++)
			tests[k++] = *t;
		tests[k] = NULL;
		failed |= tests_run(b->name, tests);
	}
	return failed;
}

#endif
