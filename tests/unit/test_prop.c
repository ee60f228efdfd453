// SPDX-License-Identifier: Apache-2.0
/* The properties of ops: which ops run inside their push, and to which queues the others go. */
#include "util.h"

static int on_pusher(struct pawl_run *run, void *arg)
{
	MUST(pthread_equal(*(pthread_t *)arg, pthread_self()));
	return 0;
}

/* PAWL_ASYNC: on the pushing thread if ready at the push. */
START_TEST(test_async_prop_inline)
{
	int kind;

	for (kind = 0; kind < 2; kind++) {
		struct pawl_engine *e = engine(kind, 0);
		pawl_var_t v = var_new(e);
		pthread_t self = pthread_self();
		struct pawl_op op = op_write(on_pusher, &self, &v);
		struct gate g;
		u32 n = 0;

		op.prop = PAWL_ASYNC;
		OK(pawl_push(e, &op));
		ck_assert_uint_eq(version(e, v), 1);
		ck_assert_uint_eq(stats(e).inlined, 1);
		/* Not ready: as a normal op. */
		gate_write(e, &g, v);
		op.fn = add_one;
		op.arg = &n;
		OK(pawl_push(e, &op));
		ck_assert_uint_eq(n, 0);
		gate_open(&g);
		ck_assert_uint_eq(n, 0);
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_uint_eq(n, 1);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* Successors of an inline run are queued, never run inside the push. */
START_TEST(test_inline_successors_are_queued)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate g;
	u32 n = 0;
	int i;

	gate_write(e, &g, v);
	for (i = 0; i < 3; i++)
		OK(push_write(e, add_one, &n, v));
	for (i = 0; i < 3; i++)
		OK(push_read(e, add_one, &n, v));
	gate_open(&g);		/* completion on this thread */
	ck_assert_uint_eq(n, 0);
	for (i = 1; i <= 6; i++) {
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_uint_eq(n, (u32)i);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

static int where_am_i(struct pawl_run *run, void *arg)
{
	pthread_getname_np(pthread_self(), arg, 16);
	return 0;
}

static struct pawl_engine *two_devices(int kind)
{
	struct pawl_config c = small(kind, 1);

	c.cpu_devices = 2;
	return engine_with(&c);
}

/* Return the name of the worker that runs an op with this property. */
static void push_where(struct pawl_engine *e, u32 prop, u32 device, char *name)
{
	struct pawl_op op = op_of_fn(where_am_i, name);

	op.prop = (u16)prop;
	op.device.id = (u16)device;
	OK(pawl_push(e, &op));
}

/* Each property selects its queue, as the names of the workers show. */
START_TEST(test_queues_per_device)
{
	struct pawl_engine *e = two_devices(PAWL_PER_DEVICE);
	char name[8][16], dev1[3][16];
	u32 p;

	for (p = 0; p < 8; p++)
		push_where(e, p, 0, name[p]);
	for (p = 0; p < 3; p++)
		push_where(e, p, 1, dev1[p]);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_str_eq(name[PAWL_NORMAL], name[PAWL_NO_SKIP]);
	ck_assert_str_eq(name[PAWL_NORMAL], name[PAWL_GPU_PRIORITIZED]);
	ck_assert_str_ne(name[PAWL_NORMAL], name[PAWL_CPU_PRIORITIZED]);
	ck_assert_str_ne(name[PAWL_NORMAL], name[PAWL_COPY_FROM_DEVICE]);
	ck_assert_str_ne(name[PAWL_NORMAL], name[PAWL_COPY_TO_DEVICE]);
	/* F12 is of the same kind: the two directions do not wait for each other. */
	ck_assert_str_ne(name[PAWL_COPY_FROM_DEVICE], name[PAWL_COPY_TO_DEVICE]);
	for (p = 0; p < 3; p++)
		ck_assert_str_ne(name[p], dev1[p]);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_queues_pooled)
{
	struct pawl_engine *e = two_devices(PAWL_POOLED);
	char name[8][16];
	u32 p;

	for (p = 0; p < 8; p++) {
		push_where(e, p, p & 1, name[p]);
		OK(pawl_wait_all(e, SOON_NS, NULL));
	}
	ck_assert_str_eq(name[PAWL_NORMAL], name[PAWL_NO_SKIP]);
	ck_assert_str_eq(name[PAWL_NORMAL], name[PAWL_CPU_PRIORITIZED]);
	ck_assert_str_eq(name[PAWL_NORMAL], name[PAWL_GPU_PRIORITIZED]);
	ck_assert_str_eq(name[PAWL_COPY_FROM_DEVICE], name[PAWL_COPY_TO_DEVICE]);
	ck_assert_str_ne(name[PAWL_NORMAL], name[PAWL_COPY_TO_DEVICE]);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* An op with PAWL_DELETE_VAR runs first, but its var is not deleted. */
START_TEST(test_delete_prop_keeps_var)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct record *r = calloc(1, sizeof(*r));
	struct note n[3] = { { r, 0 }, { r, 1 }, { r, 2 } };
	struct gate g;
	struct pawl_op op;

	gate_write(e, &g, v);
	op = op_write(take_note, &n[0], &v);
	op.prop = PAWL_DELETE_VAR;
	OK(pawl_push(e, &op));
	op = op_of_fn(take_note, &n[1]);
	op.priority = INT_MAX;
	OK(pawl_push(e, &op));
	OK(pawl_push(e, &op));
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(r->n, 3);
	ck_assert_uint_eq(r->id[0], 0);
	OK(push_write(e, nothing, NULL, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
	free(r);
}
END_TEST

SUITE("prop", test_async_prop_inline, test_inline_successors_are_queued, test_queues_per_device,
      test_queues_pooled, test_delete_prop_keeps_var)
