// SPDX-License-Identifier: Apache-2.0
/*
 * Operators and batches on devices, and their capture.
 */
#include "fixture.h"

START_TEST(operators_and_batches)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct pawl_op ops[4];
	struct cell c = { 0 };
	pawl_oper_t oper;
	u32 i;

	for (i = 0; i < 4; i++) {
		ops[i] = dev_op(cell_body, &c);
		ops[i].writes = &v;
		ops[i].nwrites = 1;
	}
	OK(pawl_oper_create(e, &ops[0], &oper));
	for (i = 0; i < 5; i++)
		OK(pawl_oper_push(e, oper, 0, dev0));
	FAILS(pawl_oper_push(e, oper, 0, (struct pawl_device){ dev0.kind, 99 }), -ENODEV);
	OK(pawl_push_batch(e, ops, 4));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(c.v, cell_after(9));
	OK(pawl_oper_delete(e, oper));
	OK(pawl_engine_destroy(e));
}
END_TEST

static int count_body(struct pawl_run *run, void *arg)
{
	struct cell *c = arg;

	fetch_add_relaxed(&c->seen, 1);
	return pawl_run_call(run, cell_kernel, c);
}

/* Pushed again and again, it becomes one launch; the bodies are called no more. */
START_TEST(a_batch_is_captured)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e), w = var_new(e);
	struct fake_counts before, after;
	struct cell c = { 0 }, d = { 0 };
	struct pawl_op ops[4];
	pawl_oper_t many, one;
	u32 i;

	for (i = 0; i < 4; i++) {
		ops[i] = dev_op(count_body, i & 1 ? &d : &c);
		ops[i].writes = i & 1 ? &w : &v;
		ops[i].nwrites = 1;
	}
	OK(pawl_oper_create_many(e, ops, 4, &many));
	if (b->counts)
		b->counts(&before);
	for (i = 0; i < 10; i++) {
		OK(pawl_oper_push(e, many, 0, dev0));
		/* Something else in between, on one of the vars. */
		OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(c.v, cell_after(30));
	ck_assert_uint_eq(d.v, cell_after(20));
	ck_assert_uint_eq(c.seen + d.seen, 8);
	if (b->counts) {
		b->counts(&after);
		ck_assert_uint_eq(after.launches - before.launches, 9);
	}
	/* It has changed: the bodies run twice more. */
	OK(pawl_oper_refresh(e, many));
	for (i = 0; i < 5; i++)
		OK(pawl_oper_push(e, many, 0, dev0));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(c.seen + d.seen, 16);
	ck_assert_uint_eq(d.v, cell_after(30));
	/* On a CPU the bodies run each time. */
	OK(pawl_oper_push(e, many, 0, (struct pawl_device){ PAWL_CPU, 0 }));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(d.v, cell_after(32));
	OK(pawl_oper_delete(e, many));
	FAILS(pawl_oper_refresh(e, many), -ESTALE);
	OK(pawl_oper_create(e, &ops[0], &one));
	FAILS(pawl_oper_refresh(e, one), -EINVAL);
	OK(pawl_oper_delete(e, one));
	FAILS(pawl_oper_create_many(e, ops, 0, &one), -EINVAL);
	ops[2].device.kind = PAWL_CPU;
	FAILS(pawl_oper_create_many(e, ops, 4, &one), -EINVAL, "ops[2]");
	OK(pawl_engine_destroy(e));
}
END_TEST

static void async_nothing(struct pawl_run *run, void *arg)
{
}

static void nothing_released(void *arg, int status)
{
}

static void count_op(struct pawl_op *op, struct cell *c, const pawl_var_t *v)
{
	*op = dev_op(count_body, c);
	op->writes = v;
	op->nwrites = 1;
}

/* Push n times; so many bodies ran, and so many graphs were launched. */
static void again(struct pawl_engine *e, const struct pawl_op *ops, u32 nops, pawl_oper_t *kept,
		  u32 n, u32 bodies, u32 launched)
{
	struct cell *c = ops[0].arg, *d = ops[1].arg;
	u32 seen = c->seen + d->seen, ran = c->ran + d->ran, i;
	struct fake_counts before, after;

	if (b->counts)
		b->counts(&before);
	for (i = 0; i < n; i++)
		OK(pawl_push_again(e, ops, nops, kept));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(c->seen + d->seen - seen, bodies);
	ck_assert_uint_eq(c->ran + d->ran - ran, nops * n);
	if (!b->counts)
		return;
	b->counts(&after);
	ck_assert_uint_eq(after.launches - before.launches, launched);
}

/* As long as the batch is the same, in every part of it. */
START_TEST(a_batch_pushed_again_is_captured)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e), w = var_new(e), x = var_new(e);
	struct cell c = { 0 }, d = { 0 };
	pawl_oper_t kept = { 0 }, was;
	struct pawl_op ops[3];
	u32 i;

	for (i = 0; i < 3; i++)
		count_op(&ops[i], i & 1 ? &d : &c, i & 1 ? &w : &v);
	/* Once by the bodies, once captured. */
	again(e, ops, 3, &kept, 10, 6, 9);
	was = kept;
	ops[0].priority = 7;
	again(e, ops, 3, &kept, 2, 0, 2);
	ck_assert(kept.h == was.h);
	/* An argument, a var, a body, a property, the number of ops: each is another batch. */
	ops[2].arg = &d;
	again(e, ops, 3, &kept, 3, 6, 2);
	ck_assert(kept.h != was.h);
	FAILS(pawl_oper_refresh(e, was), -ESTALE);
	ops[2].writes = &x;
	again(e, ops, 3, &kept, 3, 6, 2);
	ck_assert_uint_eq(version(e, x), 3);
	ops[2].reads = &v;
	ops[2].nreads = 1;
	again(e, ops, 3, &kept, 3, 6, 2);
	ops[2].reads = &w;
	again(e, ops, 3, &kept, 3, 6, 2);
	ops[2].nwrites = 0;
	again(e, ops, 3, &kept, 3, 6, 2);
	ops[2].nwrites = 1;
	again(e, ops, 3, &kept, 3, 6, 2);
	ops[2].fn = cell_body;
	again(e, ops, 3, &kept, 3, 4, 2);
	for (i = 0; i < 3; i++)
		ops[i].prop = PAWL_GPU_PRIORITIZED;
	again(e, ops, 3, &kept, 3, 4, 2);
	again(e, ops, 2, &kept, 3, 4, 2);
	/* What the bodies do has changed, and only the program knows. */
	OK(pawl_oper_refresh(e, kept));
	again(e, ops, 2, &kept, 3, 4, 2);
	/* On a CPU the bodies run each time. */
	ops[0].device = ops[1].device = (struct pawl_device){ PAWL_CPU, 0 };
	again(e, ops, 2, &kept, 3, 6, 0);
	ck_assert_uint_eq(version(e, v), 12 + 11 * 3);
	OK(pawl_oper_delete(e, kept));
	/* It was deleted: a new one. */
	OK(pawl_push_again(e, ops, 2, &kept));
	OK(pawl_oper_delete(e, kept));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(a_batch_that_cannot_be_pushed_again)
{
	struct pawl_engine *e = plain();
	struct cell c = { 0 }, d = { 0 };
	pawl_oper_t kept = { 0 }, was;
	pawl_var_t v = var_new(e);
	struct pawl_op ops[2];

	count_op(&ops[0], &c, &v);
	count_op(&ops[1], &d, &v);
	FAILS(pawl_push_again(e, ops, 2, NULL), -EINVAL, "kept");
	FAILS(pawl_push_again(e, NULL, 2, &kept), -EINVAL, "no ops");
	FAILS(pawl_push_again(e, ops, 0, &kept), -EINVAL, "no ops");
	ck_assert(!kept.h);
	OK(pawl_push_again(e, ops, 2, &kept));
	was = kept;
	ops[1].release = nothing_released;
	FAILS(pawl_push_again(e, ops, 2, &kept), -EINVAL, "ops[1]", "release");
	ops[1].release = NULL;
	ops[1].device.kind = PAWL_CPU;
	FAILS(pawl_push_again(e, ops, 2, &kept), -EINVAL, "ops[1]");
	ops[1].device = dev1;
	FAILS(pawl_push_again(e, ops, 2, &kept), -ENODEV);
	ops[1].device = dev0;
	ops[1].async_fn = async_nothing;
	FAILS(pawl_push_again(e, ops, 2, &kept), -EINVAL);
	ops[1].async_fn = NULL;
	ops[1].flags = 1;
	FAILS(pawl_push_again(e, ops, 2, &kept), -EINVAL, "flags");
	ops[1].flags = 0;
	ops[1].writes = NULL;
	FAILS(pawl_push_again(e, ops, 2, &kept), -EINVAL);
	ops[1].writes = &v;
	ops[0].size = 3;
	FAILS(pawl_push_again(e, ops, 2, &kept), -EINVAL, "size");
	ops[0].size = sizeof(ops[0]);
	/* What was refused has changed nothing. */
	ck_assert(kept.h == was.h);
	OK(pawl_push_again(e, ops, 2, &kept));
	ck_assert(kept.h == was.h);
	OK(pawl_var_delete(e, v, NULL, NULL));
	FAILS(pawl_push_again(e, ops, 2, &kept), -ESTALE);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(c.ran, 2);
	OK(pawl_oper_delete(e, kept));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A body that fails, at the first run and in the capture. */
static int fail_at(struct pawl_run *run, void *arg)
{
	u32 n = fetch_add_relaxed((u32 *)arg, 1);

	return n == 0 || n == 2 ? pawl_fail(run, -EIO, "run %u", n) : 0;
}

START_TEST(a_batch_whose_body_fails)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct pawl_op ops[2] = { dev_op(fail_at, NULL), dev_op(NULL, NULL) };
	struct cell c = { 0 };
	pawl_oper_t many;
	u32 n = 0, i;

	ops[0].arg = &n;
	ops[1].fn = cell_body;
	ops[1].arg = &c;
	ops[1].writes = &v;
	ops[1].nwrites = 1;
	OK(pawl_oper_create_many(e, ops, 2, &many));
	for (i = 0; i < 6; i++) {
		int rc;

		OK(pawl_oper_push(e, many, 0, dev0));
		rc = pawl_wait_readable(e, v, SOON_NS, NULL);
		ck_assert_int_eq(rc, load_relaxed(&n) == 1 || (i && load_relaxed(&n) == 3 && rc) ? -EIO : 0);
	}
	OK(pawl_oper_delete(e, many));
	(void)!pawl_wait_all(e, SOON_NS, NULL);
	ck_assert_uint_ge(c.v, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

int main(void)
{
	const TTest *const any[] = {
		operators_and_batches, a_batch_is_captured, a_batch_whose_body_fails,
		a_batch_pushed_again_is_captured, a_batch_that_cannot_be_pushed_again, NULL };
	const TTest *const told[] = {
		NULL };

	return devices_run(any, told);
}
