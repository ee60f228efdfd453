// SPDX-License-Identifier: Apache-2.0
/* core/graph.c: ops described once and pushed many times. */
#include "util.h"
#include <malloc.h>
#include <core/engine.h>

START_TEST(test_create_refused)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_op op = op_of_fn(nothing, NULL), other[2] = { op, op };
	pawl_graph_t o = { 4711 };
	struct pawl_engine *e;

	c.cpu_devices = 2;
	e = engine_with(&c);
	FAILS(pawl_graph_create(e, &op, 1, 0, NULL), -EINVAL, "graph_create", "out");
	FAILS(pawl_graph_create(e, NULL, 1, 0, &o), -EINVAL, "graph_create", "ops is NULL");
	FAILS(pawl_graph_create(e, &op, 0, 0, &o), -EINVAL, "graph_create", "n is 0");
	FAILS(pawl_graph_create(e, &op, 32769, 0, &o), -EINVAL, "graph_create", "n is 32769");
	FAILS(pawl_graph_create(e, &op, 1, 6, &o), -EINVAL, "graph_create", "flags is 0x6");
	op.size = 1;
	FAILS(pawl_graph_create(e, &op, 1, 0, &o), -EINVAL, "graph_create", "size", "1");
	op.size = sizeof(op);
	op.prop = 100;
	FAILS(pawl_graph_create(e, &op, 1, 0, &o), -EINVAL, "graph_create", "prop", "100");
	op.prop = 0;
	op.flags = 2;
	FAILS(pawl_graph_create(e, &op, 1, 0, &o), -EINVAL, "graph_create", "flags", "0x2");
	op.flags = 0;
	op.device.id = 9;
	FAILS(pawl_graph_create(e, &op, 1, 0, &o), -ENODEV, "graph_create", "9");
	op.device.id = 0;
	op.nreads = 1;
	FAILS(pawl_graph_create(e, &op, 1, 0, &o), -EINVAL, "graph_create", "reads");
	op.reads = VARS({ 0 });
	FAILS(pawl_graph_create(e, &op, 1, 0, &o), -ESTALE, "graph_create", "reads[0]");
	op.nreads = 40000;
	FAILS(pawl_graph_create(e, &op, 1, 0, &o), -E2BIG, "graph_create", "40000");
	op.nreads = 0;
	/* Flags that describe one push. */
	for (op.flags = PAWL_OP_CQ; op.flags <= PAWL_OP_ARG; op.flags *= 2)
		FAILS(pawl_graph_create(e, &op, 1, 0, &o), -EINVAL, "graph_create", "ops[0].flags",
		      "known is 0x1");
	/* All ops of a graph agree with the first. */
	other[1].flags = PAWL_OP_NO_SKIP;
	FAILS(pawl_graph_create(e, other, 2, 0, &o), -EINVAL, "graph_create", "ops[1]", "flags");
	other[1] = op_of_fn(nothing, NULL);
	other[1].prop = PAWL_COPY_TO_DEVICE;
	FAILS(pawl_graph_create(e, other, 2, 0, &o), -EINVAL, "graph_create", "ops[1]", "prop");
	other[1] = op_of_fn(nothing, NULL);
	other[1].device.id = 1;
	FAILS(pawl_graph_create(e, other, 2, 0, &o), -EINVAL, "graph_create", "ops[1]", "device");
	ck_assert_uint_eq(o.h, 4711);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The limits of what a graph can name, and the first number beyond each. */
START_TEST(test_largest_graphs)
{
	enum { VARS_MAX = 32768 };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t *v = calloc(VARS_MAX + 1, sizeof(*v)), slot;
	struct pawl_op op = op_of_fn(nothing, NULL), many[129];
	pawl_graph_t g;
	u32 i;

	if (THREAD_SANITIZED)	/* minutes, of one thread */
		return;
	MUST(v);
	/* Accesses of an op, also if they are fewer vars. */
	v[0] = var_new(e);
	for (i = 1; i <= VARS_MAX; i++)
		v[i] = v[0];
	op.reads = v;
	op.nreads = VARS_MAX;
	OK(pawl_graph_create(e, &op, 1, 0, &g));
	OK(pawl_graph_push(e, g, NULL));
	OK(pawl_graph_delete(e, g));
	op.nreads = VARS_MAX + 1;
	REFUSED(e, pawl_graph_create(e, &op, 1, 0, &g), -E2BIG, "32769 reads");
	/* Accesses of all ops. */
	for (i = 0; i < 128; i++) {
		many[i] = op;
		many[i].nreads = VARS_MAX;
	}
	OK(pawl_graph_create(e, many, 128, 0, &g));
	OK(pawl_graph_delete(e, g));
	many[i] = op;
	many[i].nreads = 1;
	REFUSED(e, pawl_graph_create(e, many, 129, 0, &g), -E2BIG, "4194305 reads and writes",
		"at most 4194304");
	/* Vars and slots: as many as an op can have. */
	for (i = 1; i <= VARS_MAX; i++)
		v[i] = var_new(e);
	op.nreads = VARS_MAX;
	OK(pawl_graph_create(e, &op, 1, 0, &g));
	OK(pawl_graph_delete(e, g));
	many[0] = op;
	many[1] = op_read(nothing, NULL, &v[VARS_MAX]);
	REFUSED(e, pawl_graph_create(e, many, 2, 0, &g), -E2BIG, "32769 vars and 0 slots");
	slot = (pawl_var_t)PAWL_SLOT(0);
	many[1] = op_read(nothing, NULL, &slot);
	REFUSED(e, pawl_graph_create(e, many, 2, 0, &g), -E2BIG, "32768 vars and 1 slots");
	/* The number of a slot. */
	op = op_read(nothing, NULL, &slot);
	slot = (pawl_var_t)PAWL_SLOT(32767);
	OK(pawl_graph_create(e, &op, 1, 0, &g));
	OK(pawl_graph_delete(e, g));
	slot = (pawl_var_t)PAWL_SLOT(65534);
	REFUSED(e, pawl_graph_create(e, &op, 1, 0, &g), -E2BIG, "0 vars and 65535 slots");
	slot = (pawl_var_t)PAWL_SLOT(65535);
	REFUSED(e, pawl_graph_create(e, &op, 1, 0, &g), -ESTALE, "reads[0]");
	OK(pawl_engine_destroy(e));
	free(v);
}
END_TEST

/*
 * All memory of a graph is freed with it.  With sanitizers, where these figures do not exist, the
 * leak check tests it.
 */
START_TEST(test_a_deleted_graph_frees_its_memory)
{
	enum { N = 300, ROUNDS = 20 };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), slot = PAWL_SLOT(200);
	struct pawl_launch l = { .size = sizeof(l), .nvars = 201, .nargs = N };
	pawl_var_t *none = calloc(201, sizeof(*none));
	void **args = calloc(N, sizeof(*args));
	struct pawl_op op[N];
	size_t before = 0, after;
	pawl_graph_t g;
	u32 i, k;

	l.vars = none;
	l.args = args;
	for (i = 0; i < N; i++)
		op[i] = i % 2 ? op_write(nothing, NULL, &slot) : op_read(nothing, NULL, &v);
	for (k = 0; k <= ROUNDS; k++) {
		if (k == 1)
			before = mallinfo2().uordblks;
		OK(pawl_graph_create(e, op, N, 0, &g));
		OK(pawl_graph_push(e, g, &l));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_graph_delete(e, g));
		/* One that is refused after most of it was made, and one at the first look. */
		op[N - 1].reads = VARS({ 0 });
		op[N - 1].nreads = 1;
		ck_assert_int_eq(pawl_graph_create(e, op, N, 0, &g), -ESTALE);
		op[N - 1].nreads = 0;
		slot = (pawl_var_t)PAWL_SLOT(40000);
		ck_assert_int_eq(pawl_graph_create(e, op, N, 0, &g), -E2BIG);
		slot = (pawl_var_t)PAWL_SLOT(200);
	}
	after = mallinfo2().uordblks;
	ck_assert_msg(after < before + ROUNDS * 100, "%zu bytes remain", after - before);
	OK(pawl_engine_destroy(e));
	free(args);
	free(none);
}
END_TEST

START_TEST(test_push_and_delete)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_var_t v = var_new(e);
		u64 n = 0;
		struct pawl_op op = op_write(add_plain, &n, &v);
		pawl_graph_t o;
		int i;

		OK(pawl_graph_create(e, &op, 1, 0, &o));
		for (i = 0; i < 100; i++)
			OK(pawl_graph_push(e, o, NULL));
		OK(pawl_wait_readable(e, v, SOON_NS, NULL));
		ck_assert_uint_eq(n, 100);
		ck_assert_uint_eq(version(e, v), 100);
		OK(pawl_graph_delete(e, o));
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* Pushed again before its earlier runs are complete. */
START_TEST(test_overlapping)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_op op = PAWL_OP_INIT;
	struct gate g;
	pawl_graph_t o;
	u32 n = 0;
	int i;

	op.fn = add_one;
	op.arg = &n;
	op.reads = &v;
	op.nreads = 1;
	op.writes = &w;
	op.nwrites = 1;
	OK(pawl_graph_create(e, &op, 1, 0, &o));
	gate_write(e, &g, v);
	for (i = 0; i < 10; i++)
		OK(pawl_graph_push(e, o, NULL));
	ck_assert_int_eq(pawl_run_one(e), 0);
	gate_open(&g);
	for (i = 0; i < 10; i++)
		ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_uint_eq(n, 10);
	ck_assert_uint_eq(version(e, w), 10);
	OK(pawl_graph_delete(e, o));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The description is copied, so the caller may free its lists. */
START_TEST(test_description_is_copied)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t *list = malloc(10 * sizeof(*list)), v[10];
	struct pawl_op op = PAWL_OP_INIT;
	pawl_graph_t o;
	u64 n = 0;
	int i;

	for (i = 0; i < 10; i++)
		list[i] = v[i] = var_new(e);
	op.fn = add_plain;
	op.arg = &n;
	op.writes = list;
	op.nwrites = 10;
	op.reads = list;
	op.nreads = 5;
	OK(pawl_graph_create(e, &op, 1, 0, &o));
	memset(list, 0xff, 10 * sizeof(*list));
	free(list);
	memset(&op, 0xff, sizeof(op));
	OK(pawl_graph_push(e, o, NULL));
	OK(pawl_graph_push(e, o, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 2);
	for (i = 0; i < 10; i++)
		ck_assert_uint_eq(version(e, v[i]), 2);
	OK(pawl_graph_delete(e, o));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* release: when the last run after the delete is complete, once, with 0. */
static u32 released;	/* A */
static int released_status;

static void on_release(void *arg, int status)
{
	store_relaxed(&released_status, status);
	fetch_add_acq_rel(&released, 1);
}

static int fail_plain(struct pawl_run *run, void *arg)
{
	return -EIO;
}

START_TEST(test_release)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_write(fail_plain, NULL, &v);
	struct gate g;
	pawl_graph_t o;
	int i;

	released = 0;
	released_status = 7;
	op.release = on_release;
	OK(pawl_graph_create(e, &op, 1, 0, &o));
	gate_write(e, &g, v);
	for (i = 0; i < 5; i++)
		OK(pawl_graph_push(e, o, NULL));
	OK(pawl_graph_delete(e, o));
	gate_open(&g);
	for (i = 0; i < 5; i++) {
		ck_assert_uint_eq(released, 0);
		ck_assert_int_eq(pawl_run_one(e), 1);
	}
	ck_assert_uint_eq(released, 1);
	ck_assert_int_eq(load_relaxed(&released_status), 0);
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	/* Never pushed: at the delete. */
	released = 0;
	OK(pawl_graph_create(e, &op, 1, 0, &o));
	OK(pawl_graph_delete(e, o));
	ck_assert_uint_eq(released, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_stale)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_write(nothing, NULL, &v);
	const u64 bad[] = { 0, 1, ~0ull, 1ull << 32 | 9999, 0x100000001ull };
	pawl_graph_t o, p;
	struct gate g;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		o.h = bad[i];
		FAILS(pawl_graph_push(e, o, NULL), -ESTALE, "graph_push", "no graph");
		FAILS(pawl_graph_delete(e, o), -ESTALE, "graph_delete", "graph");
	}
	OK(pawl_graph_create(e, &op, 1, 0, &o));
	OK(pawl_graph_delete(e, o));
	FAILS(pawl_graph_push(e, o, NULL), -ESTALE, "graph_push");
	FAILS(pawl_graph_delete(e, o), -ESTALE, "graph_delete");
	/* Its memory is another graph. */
	OK(pawl_graph_create(e, &op, 1, 0, &p));
	ck_assert_uint_ne(o.h, p.h);
	FAILS(pawl_graph_push(e, o, NULL), -ESTALE);
	FAILS(pawl_graph_delete(e, o), -ESTALE);
	/* Deleted, while a run is in flight. */
	gate_write(e, &g, v);
	OK(pawl_graph_push(e, p, NULL));
	OK(pawl_graph_delete(e, p));
	FAILS(pawl_graph_push(e, p, NULL), -ESTALE);
	FAILS(pawl_graph_delete(e, p), -ESTALE);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(version(e, v), 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A call that finds the graph deleted drops its reference, so the last run releases it. */
START_TEST(test_refused_calls_keep_no_reference)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_write(nothing, NULL, &v);
	pawl_graph_t o;
	struct gate g;

	released = 0;
	op.release = on_release;
	OK(pawl_graph_create(e, &op, 1, 0, &o));
	gate_write(e, &g, v);
	OK(pawl_graph_push(e, o, NULL));
	OK(pawl_graph_delete(e, o));
	FAILS(pawl_graph_refresh(e, o), -ESTALE, "graph_refresh");
	FAILS(pawl_graph_push(e, o, NULL), -ESTALE, "graph_push");
	FAILS(pawl_graph_delete(e, o), -ESTALE, "graph_delete");
	ck_assert_uint_eq(released, 0);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(released, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_graph_of_another_engine_is_refused)
{
	struct pawl_engine *a = engine(PAWL_PER_DEVICE, 0), *b = engine(PAWL_PER_DEVICE, 0);
	struct pawl_op op = op_of_fn(nothing, NULL);
	pawl_graph_t of_a, of_b;

	OK(pawl_graph_create(a, &op, 1, 0, &of_a));
	OK(pawl_graph_create(b, &op, 1, 0, &of_b));
	ck_assert_uint_eq((u32)of_a.h, (u32)of_b.h);
	FAILS(pawl_graph_push(b, of_a, NULL), -ESTALE, "graph_push");
	FAILS(pawl_graph_delete(b, of_a), -ESTALE, "graph_delete");
	FAILS(pawl_graph_push(a, of_b, NULL), -ESTALE, "graph_push");
	OK(pawl_graph_push(a, of_a, NULL));
	OK(pawl_graph_delete(a, of_a));
	/* Its vars, too, must be of the engine in which it is made. */
	op.writes = VARS(var_new(b));
	op.nwrites = 1;
	(void)var_new(a);
	FAILS(pawl_graph_create(a, &op, 1, 0, &of_a), -ESTALE, "graph_create", "writes[0]");
	OK(pawl_engine_destroy(a));
	OK(pawl_engine_destroy(b));
}
END_TEST

START_TEST(test_push_refused)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_op op = op_of_fn(nothing, NULL);
	pawl_graph_t o;

	released = 0;
	op.writes = VARS(v, w);
	op.nwrites = 2;
	op.release = on_release;
	OK(pawl_graph_create(e, &op, 1, 0, &o));
	FAILS(pawl_graph_push(e, o, LAUNCH(0, { PAWL_CPU, 1 })), -ENODEV, "graph_push", "1");
	FAILS(pawl_graph_push(e, o, LAUNCH(0, { 3, 0 })), -ENODEV, "graph_push", "3");
	/* One of its vars is deleted. */
	OK(pawl_var_delete(e, w, NULL, NULL));
	FAILS(pawl_graph_push(e, o, NULL), -ESTALE, "graph_push", "deleted");
	FAILS(pawl_graph_push(e, o, NULL), -ESTALE, "graph_push", "deleted");
	ck_assert_uint_eq(version(e, v), 0);
	OK(pawl_wait_writable(e, v, 0, NULL));
	OK(pawl_graph_delete(e, o));
	ck_assert_uint_eq(released, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The priority and the device of each push. */
struct seen_run {
	u32 n;
	u32 order[8];
	u16 device[8];
};

static int seen_body(struct pawl_run *run, void *arg)
{
	struct seen_run *s = arg;

	s->device[s->n++] = run->device.id;
	return 0;
}

START_TEST(test_priority_and_device)
{
	struct pawl_config c = small(PAWL_POOLED, 0);
	struct pawl_engine *e;
	struct seen_run s = { 0 };
	struct pawl_op op = op_of_fn(seen_body, &s);
	pawl_graph_t o;
	u32 i;

	c.cpu_devices = 8;
	e = engine_with(&c);
	OK(pawl_graph_create(e, &op, 1, 0, &o));
	for (i = 0; i < 8; i++)
		OK(pawl_graph_push(e, o, LAUNCH((int)(i * 5 % 8) - 4, { 0, (u16)i })));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(s.n, 8);
	for (i = 0; i < 8; i++)		/* highest first: i * 5 % 8 == 7 - position */
		ck_assert_uint_eq(s.device[i] * 5 % 8, 7 - i);
	OK(pawl_graph_delete(e, o));
	/* Without a launch: those of the op. */
	op.priority = 3;
	op.device.id = 5;
	OK(pawl_graph_create(e, &op, 1, 0, &o));
	s.n = 0;
	OK(pawl_graph_push(e, o, LAUNCH(2, { 0, 1 })));
	OK(pawl_graph_push(e, o, NULL));
	OK(pawl_graph_push(e, o, LAUNCH(4, { 0, 2 })));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(s.n, 3);
	ck_assert(s.device[0] == 2 && s.device[1] == 5 && s.device[2] == 1);
	OK(pawl_graph_delete(e, o));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Asynchronous, no-skip and many vars, as in a push. */
START_TEST(test_async)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op op = PAWL_OP_INIT;
	pawl_token_t t = { 0 }, first;
	pawl_graph_t o;

	op.async_fn = keep_token;
	op.arg = &t;
	op.writes = &v;
	op.nwrites = 1;
	op.name = "later";
	OK(pawl_graph_create(e, &op, 1, 0, &o));
	OK(pawl_graph_push(e, o, NULL));
	OK(pawl_graph_push(e, o, NULL));
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_int_eq(pawl_run_one(e), 0);
	first = t;
	OK(pawl_complete(e, first, 0, NULL));
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_uint_ne(first.h, t.h);
	OK(pawl_complete(e, t, -EIO, "second run"));
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, NULL), -EIO);
	says("wait", (const char *const[]){ "later", "second run", NULL });
	OK(pawl_graph_delete(e, o));
	OK(pawl_engine_destroy(e));
}
END_TEST

static int status_of(struct pawl_run *run, void *arg)
{
	*(int *)arg = run->status;
	return 0;
}

START_TEST(test_no_skip)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	int status = 1;
	struct pawl_op op = op_write(status_of, &status, &v);
	pawl_graph_t o, p;
	u32 n = 0;

	op.prop = PAWL_NO_SKIP;
	OK(pawl_graph_create(e, &op, 1, 0, &o));
	op = op_write(add_one, &n, &v);
	OK(pawl_graph_create(e, &op, 1, 0, &p));
	OK(push_write(e, fail_io, NULL, v));
	OK(pawl_graph_push(e, p, NULL));
	OK(pawl_graph_push(e, o, NULL));
	while (pawl_run_one(e))
		;
	ck_assert_int_eq(status, -EIO);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	OK(pawl_graph_delete(e, o));
	OK(pawl_graph_delete(e, p));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_many_vars)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	const u32 sizes[] = { 0, 4, 5, 17, 300, 5000 };
	pawl_var_t *v = calloc(5000, sizeof(*v));
	u64 n = 0;
	size_t i;
	u32 k;

	for (k = 0; k < 5000; k++)
		v[k] = var_new(e);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct pawl_op op = op_of_fn(add_plain, &n);
		pawl_graph_t o;

		op.writes = v;
		op.nwrites = sizes[i];
		OK(pawl_graph_create(e, &op, 1, 0, &o));
		n = 0;
		for (k = 0; k < 5; k++) {
			OK(pawl_graph_push(e, o, NULL));
			if (!sizes[i])	/* nothing excludes them */
				OK(pawl_wait_all(e, SOON_NS, NULL));
		}
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, 5);
		OK(pawl_graph_delete(e, o));
	}
	ck_assert_uint_eq(version(e, v[0]), 25);
	ck_assert_uint_eq(version(e, v[4]), 20);
	ck_assert_uint_eq(version(e, v[4999]), 5);
	OK(pawl_engine_destroy(e));
	free(v);
}
END_TEST

/* A body deletes the graph it is a run of. */
struct suicide {
	pawl_graph_t o;
	int rc;
};

static int delete_self(struct pawl_run *run, void *arg)
{
	struct suicide *s = arg;

	s->rc = pawl_graph_delete(run->engine, s->o);
	return 0;
}

START_TEST(test_delete_inside_run)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	struct suicide s = { .rc = 1 };
	struct pawl_op op = op_of_fn(delete_self, &s);

	released = 0;
	op.release = on_release;
	OK(pawl_graph_create(e, &op, 1, 0, &s.o));
	OK(pawl_graph_push(e, s.o, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_int_eq(s.rc, 0);
	ck_assert_uint_eq(released, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Creation and deletion while others push: each push either runs or is refused. */
struct churn {
	struct pawl_engine *e;
	u64 o;			/* A: handle */
	u32 stop;		/* A */
	u32 accepted;		/* A */
	u32 ran;		/* A */
};

static void *churn_pusher(void *arg)
{
	struct churn *c = arg;

	while (!load_acquire(&c->stop)) {
		int rc = pawl_graph_push(c->e, (pawl_graph_t){ load_acquire(&c->o) }, NULL);

		MUST(rc == 0 || rc == -ESTALE);
		if (!rc)
			fetch_add_relaxed(&c->accepted, 1);
	}
	return NULL;
}

START_TEST(test_churn)
{
	struct churn c = { .e = engine(PAWL_PER_DEVICE, 1) };
	int i, rounds = TIMES(2000);
	pawl_var_t v[5];
	pthread_t t[2];

	for (i = 0; i < 5; i++)
		v[i] = var_new(c.e);
	released = 0;
	t[0] = spawn(churn_pusher, &c);
	t[1] = spawn(churn_pusher, &c);
	for (i = 0; i < rounds; i++) {
		struct pawl_op op = op_of_fn(add_one, &c.ran);
		pawl_graph_t o;

		op.release = on_release;
		op.writes = v;
		op.nwrites = (u32)i % 6;
		OK(pawl_graph_create(c.e, &op, 1, 0, &o));
		store_release(&c.o, o.h);
		if (i % 3)
			nap_us(1);
		OK(pawl_graph_delete(c.e, o));
	}
	store_release(&c.stop, 1);
	join(t[0]);
	join(t[1]);
	OK(pawl_wait_all(c.e, SOON_NS, NULL));
	ck_assert_uint_eq(load_relaxed(&c.ran), load_relaxed(&c.accepted));
	ck_assert_uint_eq(load_acquire(&released), (u32)rounds);
	ck_assert_uint_lt(pool_carved(c.e->pool[POOL_GRAPH]), 1000);
	OK(pawl_engine_destroy(c.e));
}
END_TEST

/* The engine ends with a graph that was not deleted: nothing leaks. */
START_TEST(test_engine_ends_first)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	u32 n = 0;
	struct pawl_op op = op_write(add_one, &n, &v);
	pawl_graph_t o;

	OK(pawl_graph_create(e, &op, 1, 0, &o));
	OK(pawl_graph_push(e, o, NULL));
	o.h = 0;
	OK(pawl_engine_destroy(e));
	ck_assert_uint_eq(n, 1);
}
END_TEST

SUITE("graph", test_create_refused, test_largest_graphs, test_a_deleted_graph_frees_its_memory,
      test_push_and_delete, test_overlapping, test_description_is_copied, test_release, test_stale,
      test_refused_calls_keep_no_reference, test_graph_of_another_engine_is_refused,
      test_push_refused, test_priority_and_device, test_async, test_no_skip, test_many_vars,
      test_delete_inside_run, test_churn, test_engine_ends_first)
