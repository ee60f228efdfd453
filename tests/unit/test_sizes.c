// SPDX-License-Identifier: Apache-2.0
/* core/sizes.c: structs from programs built with newer, older or wrong headers. */
#include "util.h"
#include <core/engine.h>
#include <core/sizes.h>

/*
 * A struct of a newer header, with fields that this library does not know, followed by other
 * memory.
 */
#define NEWER(name, type)				\
	struct name {					\
		struct type old;			\
		u64 unknown[2];				\
		u64 others;				\
	}
NEWER(newer_config, pawl_config);
NEWER(newer_stats, pawl_stats);

struct newer_op {
	struct pawl_op old;
	u64 unknown[2];
};

#define OTHERS		0x1234567887654321ull
#define SIZE(s)		offsetof(struct s, others)

static struct newer_op newer(struct pawl_op op)
{
	struct newer_op n = { .old = op };

	n.old.size = sizeof(n);
	return n;
}

START_TEST(test_newer_config)
{
	struct newer_config c = { .others = OTHERS };
	struct pawl_engine *e;
	char where[64];
	size_t i;

	pawl_config_init_size(&c.old, SIZE(newer_config));
	ck_assert_uint_eq(c.old.size, SIZE(newer_config));
	ck_assert_uint_eq(c.old.max_ops, 1 << 18);
	ck_assert(!c.unknown[0] && !c.unknown[1] && c.others == OTHERS);
	c.old.workers = 0;
	OK(pawl_engine_create(&c.old, &e));
	OK(pawl_engine_destroy(e));
	/* Every byte counts, up to the last one of the size. */
	for (i = 0; i < sizeof(c.unknown); i++) {
		((char *)c.unknown)[i] = 1;
		snprintf(where, sizeof(where), "byte %zu is not 0", sizeof(c.old) + i);
		FAILS(pawl_engine_create(&c.old, &e), -EINVAL, "engine_create", "config.size",
		      where);
		ck_assert_ptr_null(e);
		((char *)c.unknown)[i] = 0;
	}
}
END_TEST

START_TEST(test_longest_config)
{
	static union {
		struct pawl_config c;
		char byte[4096];
	} u;
	struct pawl_engine *e;

	pawl_config_init_size(&u.c, sizeof(u));
	u.c.workers = 0;
	OK(pawl_engine_create(&u.c, &e));
	OK(pawl_engine_destroy(e));
	u.byte[4095] = 1;
	FAILS(pawl_engine_create(&u.c, &e), -EINVAL, "config.size", "byte 4095 is not 0");
	u.byte[4095] = 0;
	u.c.size++;
	FAILS(pawl_engine_create(&u.c, &e), -EINVAL, "config.size", "more than 4096");
}
END_TEST

/* What the function of the macro's name writes: the first release's fields. */
START_TEST(test_config_of_first_release)
{
	struct pawl_engine *e;
	struct pawl_config c;
	union {
		struct pawl_config c;
		u8 byte[sizeof(struct pawl_config) + 64];
	} u;
	size_t i;

	memset(&u, 0xa5, sizeof(u));
	(pawl_config_init)(&u.c);
	ck_assert_uint_eq(u.c.size, CONFIG_SIZE_0);
	for (i = CONFIG_SIZE_0; i < sizeof(u); i++)
		ck_assert_uint_eq(u.byte[i], 0xa5);
	pawl_config_init(&c);
	u.c.size = c.size;
	ck_assert(!memcmp(&u.c, &c, CONFIG_SIZE_0));
	u.c.size = CONFIG_SIZE_0;
	u.c.workers = 0;
	OK(pawl_engine_create(&u.c, &e));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_newer_op)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	u64 n = 0;
	struct newer_op op = newer(op_write(add_plain, &n, &v));
	pawl_graph_t oper;

	OK(pawl_push(e, &op.old));
	OK(pawl_graph_create(e, &op.old, 1, 0, &oper));
	OK(pawl_graph_push(e, oper, NULL));
	OK(pawl_graph_delete(e, oper));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 2);
	op.unknown[1] = 1;
	FAILS(pawl_push(e, &op.old), -EINVAL, "push", "op.size");
	FAILS(pawl_graph_create(e, &op.old, 1, 0, &oper), -EINVAL, "graph_create", "op.size");
	/* The other fields are checked, too. */
	op.unknown[1] = 0;
	op.old.prop = 99;
	FAILS(pawl_push(e, &op.old), -EINVAL, "op.prop");
	op.old.prop = PAWL_NORMAL;
	op.old.size = OP_SIZE_0 - 1;
	FAILS(pawl_push(e, &op.old), -EINVAL, "op.size");
	op.old.size = (size_t)-8;
	FAILS(pawl_push(e, &op.old), -EINVAL, "op.size");
	FAILS(pawl_push(e, NULL), -EINVAL, "op");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A struct of the first release: later fields neither exist nor are read. */
START_TEST(test_older_op)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	u64 n = 0;
	struct pawl_op op = op_write(add_plain, &n, &v);

	op.size = OP_SIZE_0;
	memset((char *)&op + OP_SIZE_0, 0xff, sizeof(op) - OP_SIZE_0);
	OK(pawl_push(e, &op));
	OK(pawl_push_batch(e, &op, 1));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 2);
	op.flags = PAWL_OP_CQ;
	FAILS(pawl_push(e, &op), -EINVAL, "push", "op.size", "op.flags");
	op.flags = PAWL_OP_TICKET;
	FAILS(pawl_push_batch(e, &op, 1), -EINVAL, "push_batch", "op.size", "op.flags");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The step from one to the next is the program's size. */
START_TEST(test_newer_arrays)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v[3] = { var_new(e), var_new(e), var_new(e) };
	u64 n[3] = { 0 };
	struct newer_op ops[3];
	pawl_graph_t many;
	int i;

	for (i = 0; i < 3; i++)
		ops[i] = newer(op_write(add_plain, &n[i], &v[i]));
	OK(pawl_push_batch(e, &ops[0].old, 3));
	OK(pawl_graph_create(e, &ops[0].old, 3, PAWL_GRAPH_CAPTURE, &many));
	OK(pawl_graph_push(e, many, NULL));
	OK(pawl_graph_delete(e, many));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(n[i], 2);
	ops[2].unknown[0] = 1;
	FAILS(pawl_push_batch(e, &ops[0].old, 3), -EINVAL, "push_batch", "op.size");
	FAILS(pawl_graph_create(e, &ops[0].old, 3, PAWL_GRAPH_CAPTURE, &many), -EINVAL,
	      "op.size");
	/* Nothing is read with a step that is no size. */
	ops[0].old.size = (size_t)1 << 40;
	FAILS(pawl_push_batch(e, &ops[0].old, 3), -EINVAL, "op.size");
	FAILS(pawl_graph_create(e, &ops[0].old, 3, PAWL_GRAPH_CAPTURE, &many), -EINVAL,
	      "op.size");
	ck_assert_uint_eq(stats(e).failed, 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_newer_launch)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	struct {
		struct pawl_launch old;
		u64 unknown[2];
	} l = { .old = { .size = sizeof(l) } };
	struct pawl_op op = op_of_fn(nothing, NULL);
	pawl_graph_t g;

	OK(pawl_graph_create(e, &op, 1, 0, &g));
	OK(pawl_graph_push(e, g, &l.old));
	l.unknown[1] = 1;
	FAILS(pawl_graph_push(e, g, &l.old), -EINVAL, "launch.size", "is not 0");
	l.old.size = LAUNCH_SIZE_0 - 1;
	FAILS(pawl_graph_push(e, g, &l.old), -EINVAL, "launch.size");
	l.old.size = (size_t)1 << 40;
	FAILS(pawl_graph_push(e, g, &l.old), -EINVAL, "launch.size");
	OK(pawl_graph_delete(e, g));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(stats(e).pushed, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Of whatever length: the fields inside are used, and no byte behind it is. */
START_TEST(test_a_launch_of_any_size)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t slot = (pawl_var_t)PAWL_SLOT(0), v = var_new(e);
	struct pawl_op plain = op_of_fn(nothing, NULL), slots = op_write(add_plain, NULL, &slot);
	struct {
		struct pawl_launch how;
		u64 unknown[3];
	} l;
	struct pawl_completion c;
	pawl_graph_t g, h;
	pawl_cq_t cq;
	u64 n = 0;
	size_t size;
	void *arg = &n;

	OK(pawl_cq_create(e, &cq));
	OK(pawl_graph_create(e, &plain, 1, 0, &g));
	OK(pawl_graph_create(e, &slots, 1, 0, &h));
	for (size = LAUNCH_SIZE_0; size <= sizeof(l.how); size += 8) {
		memset(&l, 0xff, sizeof(l));
		memset(&l, 0, size);
		l.how.size = size;
		OK(pawl_graph_push(e, g, &l.how));
	}
	for (size = offsetof(struct pawl_launch, cq); size <= sizeof(l); size += 8) {
		memset(&l, 0xff, sizeof(l));
		memset(&l, 0, size);
		l.how.size = size;
		l.how.vars = &v;
		l.how.args = &arg;
		l.how.nvars = l.how.nargs = 1;
		if (size > offsetof(struct pawl_launch, tag)) {
			l.how.flags = PAWL_OP_CQ;
			l.how.cq = cq;
			l.how.tag = size;
		}
		n = 0;
		OK(pawl_graph_push(e, h, &l.how));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, 1);
		ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), l.how.flags != 0);
		ck_assert(!l.how.flags || c.tag == size);
	}
	OK(pawl_graph_delete(e, g));
	OK(pawl_graph_delete(e, h));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_newer_limits)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct {
		struct pawl_group_limits old;
		u64 unknown[100];
	} l = { .old = { .size = sizeof(l), .ops = 1 } };
	struct pawl_op op = op_of_fn(nothing, NULL);

	op.flags = PAWL_OP_GROUP;
	OK(pawl_group_create(e, &l.old, &op.group));
	OK(pawl_push(e, &op));
	FAILS(pawl_push(e, &op), -EAGAIN, "ops of the group");
	l.old.ops = 2;
	OK(pawl_group_limit(e, op.group, &l.old));
	OK(pawl_push(e, &op));
	FAILS(pawl_push(e, &op), -EAGAIN, "ops of the group");
	l.unknown[99] = 1;
	FAILS(pawl_group_limit(e, op.group, &l.old), -EINVAL, "limits.size", "is not 0");
	FAILS(pawl_group_create(e, &l.old, &op.group), -EINVAL, "limits.size", "is not 0");
	l.old.size = sizeof(l.old) - 1;
	FAILS(pawl_group_limit(e, op.group, &l.old), -EINVAL, "limits.size");
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* What is written: as long as the program's struct, zero where nothing is known. */
START_TEST(test_newer_results)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	struct newer_stats s = { .unknown = { 1, 1 }, .others = OTHERS };
	struct pawl_op op = op_of_fn(nothing, NULL);

	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	s.old.size = SIZE(newer_stats);
	OK(pawl_stats(e, &s.old));
	ck_assert_uint_eq(s.old.size, SIZE(newer_stats));
	ck_assert_uint_eq(s.old.pushed, 1);
	ck_assert(!s.unknown[0] && !s.unknown[1] && s.others == OTHERS);
	s.old.size = STATS_SIZE_0 - 8;
	FAILS(pawl_stats(e, &s.old), -EINVAL, "stats", "size");
	s.old.size = (size_t)1 << 40;
	FAILS(pawl_stats(e, &s.old), -EINVAL, "stats", "size");
	FAILS(pawl_stats(e, NULL), -EINVAL, "stats");
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("sizes", test_newer_config, test_longest_config, test_config_of_first_release,
      test_newer_op, test_older_op, test_newer_arrays, test_newer_launch,
      test_a_launch_of_any_size, test_newer_limits, test_newer_results)
