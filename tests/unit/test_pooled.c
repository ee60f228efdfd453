// SPDX-License-Identifier: Apache-2.0
/* The pooled engine has one pool of workers for all devices, and one for copies. */
#include "util.h"

/* All properties but the copies wait for the one pool; the copies do not. */
START_TEST(test_one_pool_one_lane)
{
	struct pawl_config c = small(PAWL_POOLED, 1);
	struct pawl_engine *e;
	struct plug p;
	u32 pool = 0, lane = 0;
	int k;

	c.cpu_devices = 4;
	e = engine_with(&c);
	plug_in(e, &p, PAWL_NORMAL);
	for (k = 0; k < 8; k++) {
		bool copy = k == PAWL_COPY_FROM_DEVICE || k == PAWL_COPY_TO_DEVICE;
		struct pawl_op op = op_of_fn(add_one, copy ? &lane : &pool);

		if (k == PAWL_ASYNC)
			continue;
		op.prop = (u16)k;
		op.device.id = (u16)(k % 4);
		OK(pawl_push(e, &op));
	}
	ck_assert(soon(load_acquire(&lane) == 2));
	ck_assert_uint_eq(load_acquire(&pool), 0);
	plug_out(&p);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(pool, 5);
	ck_assert_uint_eq(stats(e).workers, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* "workers: in all", however many devices. */
START_TEST(test_workers_in_all)
{
	struct pawl_config c = small(PAWL_POOLED, 3);
	struct pawl_engine *e;
	u32 n = 0, d;

	c.cpu_devices = 5;
	e = engine_with(&c);
	for (d = 0; d < 5; d++) {
		struct pawl_op op = op_of_fn(add_one, &n);

		op.device.id = (u16)d;
		OK(pawl_push(e, &op));
	}
	ck_assert(soon(stats(e).workers == 3));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 5);
	OK(pawl_engine_destroy(e));
	/* per device: each its own */
	c.kind = PAWL_PER_DEVICE;
	e = engine_with(&c);
	for (d = 0; d < 5; d++) {
		struct pawl_op op = op_of_fn(add_one, &n);

		op.device.id = (u16)d;
		OK(pawl_push(e, &op));
	}
	ck_assert(soon(stats(e).workers == 15));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Priorities count across devices and properties of the pool. */
START_TEST(test_priority)
{
	struct pawl_config c = small(PAWL_POOLED, 1);
	struct record *r = calloc(1, sizeof(*r));
	struct pawl_engine *e;
	struct note n[60];
	struct plug p;
	u32 i;

	c.cpu_devices = 3;
	e = engine_with(&c);
	plug_in(e, &p, PAWL_NORMAL);
	for (i = 0; i < 60; i++) {
		const u16 props[] = { PAWL_NORMAL, PAWL_CPU_PRIORITIZED, PAWL_GPU_PRIORITIZED,
				      PAWL_NO_SKIP };
		struct pawl_op op = op_of_fn(take_note, &n[i]);

		n[i] = (struct note){ r, i };
		op.priority = (s32)(i * 7 % 60);
		op.prop = props[i % 4];
		op.device.id = (u16)(i % 3);
		OK(pawl_push(e, &op));
	}
	plug_out(&p);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < 60; i++)
		ck_assert_uint_eq(r->id[i] * 7 % 60, 59 - i);
	OK(pawl_engine_destroy(e));
	free(r);
}
END_TEST

/* A delete is not run inline; it goes first in the pool. */
START_TEST(test_delete_goes_first)
{
	struct pawl_config c = small(PAWL_POOLED, 1);
	struct record *r = calloc(1, sizeof(*r));
	struct note n[4] = { { r, 0 }, { r, 1 }, { r, 2 }, { r, 3 } };
	struct pawl_engine *e;
	struct plug p;

	e = engine_with(&c);
	plug_in(e, &p, PAWL_NORMAL);
	OK(push_write(e, take_note, &n[1], var_new(e)));
	OK(push_write(e, take_note, &n[2], var_new(e)));
	OK(pawl_var_delete(e, var_new(e), take_note, &n[0]));
	ck_assert_uint_eq(load_acquire(&r->n), 0);
	plug_out(&p);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(r->id[0], 0);
	ck_assert_uint_eq(r->id[1], 1);
	ck_assert_uint_eq(r->id[2], 2);
	OK(pawl_engine_destroy(e));
	free(r);
}
END_TEST

SUITE("pooled", test_one_pool_one_lane, test_workers_in_all, test_priority,
      test_delete_goes_first)
