// SPDX-License-Identifier: Apache-2.0
/*
 * The errors that the manual pages promise: each call is refused with the errno of its page,
 * nothing has changed, and the same call succeeds once its cause is gone.  tests/contracts.py
 * compares the pages with the tests.  Errors that the system causes: test_contract_system.c;
 * those of devices: tests/device/contract.c.
 */
#include "util.h"
#include "child.h"
#include <core/cq.h>
#include <core/engine.h>
#include <pawl/device.h>

/* Handles of nothing: none, deleted, and of another engine. */
enum { NONE, DELETED, FOREIGN, NO_INDEX, NO_SUCH, NEVER_USED, HANDLES };

/* Handles that no call returned: without a number, with one beyond all, of no generation. */
#define MADE_UP(bad)							\
	do {								\
		(bad)[NO_INDEX].h = 1ull << 32;				\
		(bad)[NO_SUCH].h = 1ull << 32 | 0xfffffff0u;		\
		(bad)[NEVER_USED].h = 2ull << 32 | 1;			\
	} while (0)

START_TEST(test_a_var_that_is_none_is_refused_by_every_call)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0), *other = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e), bad[HANDLES] = { { 0 } };
	struct pawl_error err;
	struct pawl_op op = op_write(nothing, NULL, &w);
	pawl_graph_t g;
	u64 n;
	u32 i;

	bad[DELETED] = var_new(e);
	OK(pawl_var_delete(e, bad[DELETED], NULL, NULL));
	bad[FOREIGN] = var_new(other);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	MADE_UP(bad);
	for (i = 0; i < HANDLES; i++) {
		op.writes = &bad[i];
		REFUSED(e, pawl_push(e, &op), -ESTALE, "writes[0]");
		REFUSED(e, pawl_push_batch(e, &op, 1), -ESTALE, "writes[0]");
		REFUSED(e, pawl_graph_create(e, &op, 1, 0, &g), -ESTALE, "writes[0]");
		REFUSED(e, pawl_var_version(e, bad[i], &n), -ESTALE, "var_version");
		REFUSED(e, pawl_var_error(e, bad[i], &err), -ESTALE, "var_error");
		REFUSED(e, pawl_var_clear(e, bad[i]), -ESTALE, "var_clear");
		REFUSED(e, pawl_var_take(e, bad[i], &err), -ESTALE, "var_take");
		REFUSED(e, pawl_wait_readable(e, bad[i], 0, &err), -ESTALE, "wait");
		REFUSED(e, pawl_wait_writable(e, bad[i], 0, &err), -ESTALE, "wait");
		REFUSED(e, pawl_wait(e, PAWL_WAIT_READABLE, bad[i].h, 0, &err), -ESTALE, "wait");
		REFUSED(e, pawl_var_delete(e, bad[i], NULL, NULL), -ESTALE, "var");
	}
	op.writes = &v;
	OK(pawl_push(e, &op));
	OK(pawl_push_batch(e, &op, 1));
	OK(pawl_wait_readable(e, v, SOON_NS, &err));
	OK(pawl_wait_writable(e, v, SOON_NS, &err));
	OK(pawl_wait(e, PAWL_WAIT_READABLE, v.h, SOON_NS, &err));
	OK(pawl_var_version(e, v, &n));
	ck_assert_uint_eq(n, 2);
	OK(pawl_var_error(e, v, &err));
	OK(pawl_var_take(e, v, &err));
	OK(pawl_var_clear(e, v));
	OK(pawl_graph_create(e, &op, 1, 0, &g));
	OK(pawl_var_delete(e, v, NULL, NULL));
	/* A launch finds that the var has gone. */
	REFUSED(e, pawl_graph_push(e, g, NULL), -ESTALE, "graph_push");
	OK(pawl_engine_destroy(other));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_graph_that_is_none_is_refused_by_every_call)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0), *other = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), theirs = var_new(other);
	struct pawl_op op = op_write(nothing, NULL, &v);
	pawl_graph_t good, bad[HANDLES] = { { 0 } };
	u32 i;

	OK(pawl_graph_create(e, &op, 1, PAWL_GRAPH_CAPTURE, &good));
	OK(pawl_graph_create(e, &op, 1, PAWL_GRAPH_CAPTURE, &bad[DELETED]));
	OK(pawl_graph_delete(e, bad[DELETED]));
	op.writes = &theirs;
	OK(pawl_graph_create(other, &op, 1, PAWL_GRAPH_CAPTURE, &bad[FOREIGN]));
	MADE_UP(bad);
	for (i = 0; i < HANDLES; i++) {
		REFUSED(e, pawl_graph_push(e, bad[i], NULL), -ESTALE, "graph_push");
		REFUSED(e, pawl_graph_refresh(e, bad[i]), -ESTALE, "graph_refresh");
		REFUSED(e, pawl_graph_delete(e, bad[i]), -ESTALE, "graph_delete");
	}
	OK(pawl_graph_push(e, good, NULL));
	OK(pawl_graph_refresh(e, good));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(version(e, v), 1);
	OK(pawl_graph_delete(e, good));
	OK(pawl_engine_destroy(other));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_queue_that_is_none_is_refused_by_every_call)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0), *other = engine(PAWL_PER_DEVICE, 0);
	struct pawl_group_limits lim = { .size = sizeof(lim), .ops = 1 };
	struct pawl_op op = op_of_fn(nothing, NULL);
	pawl_cq_t good, bad[HANDLES] = { { 0 } };
	struct pawl_completion c;
	struct pawl_named_completion named;
	pawl_group_t g, h;
	u32 i;

	OK(pawl_cq_create(e, &good));
	OK(pawl_cq_create(e, &bad[DELETED]));
	OK(pawl_cq_destroy(e, bad[DELETED]));
	OK(pawl_cq_create(other, &bad[FOREIGN]));
	OK(pawl_group_create(e, NULL, &g));
	op.flags = PAWL_OP_CQ;
	MADE_UP(bad);
	for (i = 0; i < HANDLES; i++) {
		op.cq = bad[i];
		REFUSED(e, pawl_push(e, &op), -ESTALE, "cq");
		REFUSED(e, pawl_cq_reap(e, bad[i], &c, 1), -ESTALE, "cq_reap");
		REFUSED(e, pawl_cq_reap_named(e, bad[i], &named, 1), -ESTALE, "cq_reap");
		REFUSED(e, pawl_cq_wait(e, bad[i], 0), -ESTALE, "cq_wait");
		REFUSED(e, pawl_cq_fd(e, bad[i]), -ESTALE, "cq_fd");
		REFUSED(e, pawl_cq_destroy(e, bad[i]), -ESTALE, "cq_destroy");
		if (i == NONE)
			continue;	/* there it means no queue */
		lim.cq = bad[i];
		REFUSED(e, pawl_group_create(e, &lim, &h), -ESTALE, "cq");
		REFUSED(e, pawl_group_limit(e, g, &lim), -ESTALE, "cq");
	}
	op.cq = lim.cq = good;
	OK(pawl_group_create(e, &lim, &h));
	OK(pawl_group_limit(e, g, &lim));
	ck_assert_int_ge(pawl_cq_fd(e, good), 0);
	OK(pawl_push(e, &op));
	OK(pawl_cq_wait(e, good, SOON_NS));
	ck_assert_int_eq(pawl_cq_reap(e, good, &c, 1), 1);
	ck_assert_int_eq(pawl_cq_reap_named(e, good, &named, 1), 0);
	REFUSED(e, pawl_cq_wait(e, good, 0), -ETIMEDOUT, "cq_wait");
	OK(pawl_group_destroy(e, h));
	OK(pawl_group_destroy(e, g));
	OK(pawl_cq_destroy(e, good));
	OK(pawl_engine_destroy(other));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_group_that_is_none_is_refused_by_every_call)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0), *other = engine(PAWL_PER_DEVICE, 0);
	struct pawl_group_limits lim = { .size = sizeof(lim), .ops = 1 };
	struct pawl_op op = op_of_fn(nothing, NULL);
	pawl_group_t good, bad[HANDLES] = { { 0 } };
	u64 ops, cost;
	u32 i;

	OK(pawl_group_create(e, NULL, &good));
	OK(pawl_group_create(e, NULL, &bad[DELETED]));
	OK(pawl_group_destroy(e, bad[DELETED]));
	OK(pawl_group_create(other, NULL, &bad[FOREIGN]));
	op.flags = PAWL_OP_GROUP;
	MADE_UP(bad);
	for (i = DELETED; i < HANDLES; i++) {	/* {0} is the engine */
		op.group = bad[i];
		REFUSED(e, pawl_push(e, &op), -ESTALE, "group");
		REFUSED(e, pawl_group_count(e, bad[i], &ops, &cost), -ESTALE, "group_count");
		REFUSED(e, pawl_group_cancel(e, bad[i]), -ESTALE, "group_cancel");
		REFUSED(e, pawl_group_limit(e, bad[i], &lim), -ESTALE, "group_limit");
		REFUSED(e, pawl_group_wait(e, bad[i], 0), -ESTALE, "group_wait");
		REFUSED(e, pawl_group_destroy(e, bad[i]), -ESTALE, "group_destroy");
	}
	op.group = good;
	OK(pawl_push(e, &op));
	OK(pawl_group_limit(e, good, &lim));
	REFUSED(e, pawl_push(e, &op), -EAGAIN, "limit");
	OK(pawl_group_count(e, good, &ops, &cost));
	ck_assert_uint_eq(ops, 1);
	REFUSED(e, pawl_group_destroy(e, good), -EBUSY, "group_destroy");
	OK(pawl_group_wait(e, good, SOON_NS));
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_group_cancel(e, good));
	OK(pawl_group_destroy(e, good));
	OK(pawl_engine_destroy(other));
	OK(pawl_engine_destroy(e));
}
END_TEST

static bool yes(void *user)
{
	return true;
}

static bool no(void *user)
{
	return false;
}

START_TEST(test_a_bad_argument_is_named_and_the_corrected_call_succeeds)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0), *list[1] = { e }, *none[1] = { 0 };
	struct pawl_engine *busy = engine(PAWL_PER_DEVICE, 1), *out;
	struct pawl_group_limits lim = { .size = sizeof(lim), .low = 100 };
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_queue_stats qs = { .size = 1 };
	struct pawl_stats s = { .size = 1 };
	const struct pawl_device cpu = { PAWL_CPU, 0 }, nine = { PAWL_CPU, 9 };
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_write(nothing, NULL, &v);
	struct pawl_completion done;
	struct pawl_named_completion named;
	pawl_graph_t plain, captured;
	pawl_group_t g;
	pawl_cq_t cq;
	u64 n;

	REFUSED(e, pawl_var_create(e, NULL), -EINVAL, "out");
	OK(pawl_var_create(e, &v));
	REFUSED(e, pawl_var_version(e, v, NULL), -EINVAL, "out");
	OK(pawl_var_version(e, v, &n));
	op.prop = 99;
	REFUSED(e, pawl_push(e, &op), -EINVAL, "prop");
	REFUSED(e, pawl_push_batch(e, &op, 1), -EINVAL, "prop");
	REFUSED(e, pawl_push_batch(e, NULL, 1), -EINVAL, "ops");
	REFUSED(e, pawl_graph_create(e, &op, 1, 0, &plain), -EINVAL, "prop");
	op.prop = PAWL_NORMAL;
	op.device = nine;
	REFUSED(e, pawl_push(e, &op), -ENODEV, "9");
	REFUSED(e, pawl_push_batch(e, &op, 1), -ENODEV, "9");
	REFUSED(e, pawl_graph_create(e, &op, 1, 0, &plain), -ENODEV, "9");
	op.device = cpu;
	OK(pawl_push(e, &op));
	OK(pawl_push_batch(e, &op, 1));
	OK(pawl_graph_create(e, &op, 1, 0, &plain));
	REFUSED(e, pawl_graph_refresh(e, plain), -EINVAL, "graph_refresh");
	OK(pawl_graph_create(e, &op, 1, PAWL_GRAPH_CAPTURE, &captured));
	OK(pawl_graph_refresh(e, captured));
	REFUSED(e, pawl_graph_push(e, plain, &(struct pawl_launch){ .size = 1 }), -EINVAL, "size");
	REFUSED(e, pawl_graph_push(e, plain, LAUNCH(0, nine)), -ENODEV, "9");
	OK(pawl_graph_push(e, plain, LAUNCH(0, cpu)));

	REFUSED(e, pawl_cq_create(e, NULL), -EINVAL, "out");
	OK(pawl_cq_create(e, &cq));
	REFUSED(e, pawl_cq_reap(e, cq, NULL, 1), -EINVAL, "out");
	REFUSED(e, pawl_cq_reap_named(e, cq, NULL, 1), -EINVAL, "out");
	OK(pawl_cq_reap(e, cq, &done, 1));
	OK(pawl_cq_reap_named(e, cq, &named, 1));
	REFUSED(e, pawl_group_create(e, &lim, &g), -EINVAL, "low");
	lim.low = 99;
	REFUSED(e, pawl_group_create(e, &lim, NULL), -EINVAL, "out");
	OK(pawl_group_create(e, &lim, &g));
	lim.low = 100;
	REFUSED(e, pawl_group_limit(e, g, &lim), -EINVAL, "low");
	lim.low = 0;
	lim.cq = cq;
	OK(pawl_group_limit(e, g, &lim));
	OK(pawl_cq_create(e, &lim.cq));
	REFUSED(e, pawl_group_limit(e, g, &lim), -EBUSY, "cq");
	lim.cq = cq;
	OK(pawl_group_limit(e, g, &lim));

	REFUSED(e, pawl_wait(e, 99, 0, 0, NULL), -EINVAL, "wait");
	OK(pawl_wait(e, PAWL_WAIT_ALL, 0, SOON_NS, NULL));
	REFUSED(e, pawl_run_until(e, NULL, NULL, 0), -EINVAL, "done");
	REFUSED(e, pawl_run_until(e, no, NULL, 0), -ETIMEDOUT, "run_until");
	OK(pawl_run_until(e, yes, NULL, 0));
	REFUSED(busy, pawl_ready_fd(busy), -EINVAL, "workers");
	ck_assert_int_ge(pawl_ready_fd(e), 0);
	REFUSED(e, pawl_stats(e, &s), -EINVAL, "size");
	s.size = sizeof(s);
	OK(pawl_stats(e, &s));
	REFUSED(e, pawl_queue_stats(e, cpu, PAWL_NORMAL, &qs), -EINVAL, "size");
	qs.size = sizeof(qs);
	REFUSED(e, pawl_queue_stats(e, cpu, 99, &qs), -EINVAL, "prop");
	REFUSED(e, pawl_queue_stats(e, nine, PAWL_NORMAL, &qs), -ENODEV, "9");
	OK(pawl_queue_stats(e, cpu, PAWL_NORMAL, &qs));
	REFUSED(e, pawl_prometheus(none, 1, NULL, 0), -EINVAL, "engines[0]");
	REFUSED(e, pawl_prometheus(list, 1, NULL, 1), -EINVAL, "buf");
	ck_assert_int_gt(pawl_prometheus(list, 1, NULL, 0), 0);
	REFUSED(e, pawl_watch(e, -1, NULL, NULL), -EINVAL, "threshold_ns");
	OK(pawl_watch(e, 0, NULL, NULL));
	c.cpu_devices = 65;
	REFUSED(e, pawl_engine_create(&c, &out), -EINVAL, "cpu_devices");
	c.cpu_devices = 1;
	OK(pawl_engine_create(&c, &out));
	OK(pawl_engine_destroy(out));
	OK(pawl_engine_destroy(busy));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Each field that has a flag, set without it, and with it. */
START_TEST(test_a_field_without_its_flag_is_refused)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op good = op_write(nothing, NULL, &v), op;
	struct pawl_launch how, plain = { .size = sizeof(plain) };
	struct pawl_completion c[4];
	pawl_group_t group;
	pawl_ticket_t ticket;
	pawl_graph_t g, bad;
	pawl_cq_t cq;
	u32 i;

	OK(pawl_graph_create(e, &good, 1, 0, &g));
	OK(pawl_cq_create(e, &cq));
	OK(pawl_group_create(e, NULL, &group));
	for (i = 0; i < 6; i++) {
		static const struct {
			const char *field, *flag;
			u16 bit;
		} of[] = {
			{ "cq is set", "PAWL_OP_CQ", PAWL_OP_CQ },
			{ "tag is set", "PAWL_OP_CQ", PAWL_OP_CQ },
			{ "ticket is set", "PAWL_OP_TICKET", PAWL_OP_TICKET },
			{ "group is set", "PAWL_OP_GROUP", PAWL_OP_GROUP },
			{ "cost is set", "PAWL_OP_COST", PAWL_OP_COST },
			{ "arg_size is set", "PAWL_OP_ARG", PAWL_OP_ARG },
		};

		op = good;
		op.arg = &i;
		op.cq.h = i < 2 ? cq.h : 0;
		op.tag = i < 2;
		op.ticket = i == 2 ? &ticket : NULL;
		op.group.h = i == 3 ? group.h : 0;
		op.cost = i == 4;
		op.arg_size = i == 5 ? sizeof(i) : 0;
		/* the tag alone */
		op.cq.h = i == 1 ? 0 : op.cq.h;
		REFUSED(e, pawl_push(e, &op), -EINVAL, "push: op.", of[i].field, of[i].flag);
		REFUSED(e, pawl_push_batch(e, (struct pawl_op[]){ good, op }, 2), -EINVAL,
			"push_batch: ops[1]: op.", of[i].field, of[i].flag);
		REFUSED(e, pawl_graph_create(e, (struct pawl_op[]){ good, op }, 2, 0, &bad), -EINVAL,
			"graph_create: ops[1]: op.", of[i].field, of[i].flag);
		how = plain;
		how.cq = op.cq;
		how.tag = op.tag;
		how.ticket = op.ticket;
		how.group = op.group;
		how.cost = op.cost;
		if (i < 5)
			REFUSED(e, pawl_graph_push(e, g, &how), -EINVAL, "graph_push: how.",
				of[i].field, of[i].flag);
		op.flags = how.flags = of[i].bit;
		op.cq = how.cq = i < 2 ? cq : op.cq;
		OK(pawl_push(e, &op));
		OK(pawl_push_batch(e, &op, 1));
		how.flags = i < 5 ? how.flags : 0;
		OK(pawl_graph_push(e, g, &how));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_int_eq(pawl_cq_reap(e, cq, c, 4), i < 2 ? 3 : 0);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_cost_beyond_the_limit_is_refused_for_good_a_smaller_one_is_not)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_group_limits lim = { .size = sizeof(lim), .cost = 5 };
	pawl_var_t v = var_new(e), many[2] = { v, v };
	struct pawl_op op = op_write(nothing, NULL, &v), lots[256];
	struct pawl_launch how = { .size = sizeof(how), .flags = PAWL_OP_COST, .cost = 6 };
	pawl_graph_t g;
	u64 cost;
	u32 i;

	OK(pawl_graph_create(e, &op, 1, 0, &g));
	OK(pawl_group_limit(e, (pawl_group_t){ 0 }, &lim));
	op.flags = PAWL_OP_COST;
	op.cost = 6;
	REFUSED(e, pawl_push(e, &op), -E2BIG, "cost");
	REFUSED(e, pawl_push_batch(e, &op, 1), -E2BIG, "cost");
	/* more than sums can hold, whatever the limit is */
	op.cost = how.cost = UINT64_MAX / 4 + 1;
	REFUSED(e, pawl_push(e, &op), -EINVAL, "op.cost is 4611686018427387904");
	REFUSED(e, pawl_push_batch(e, &op, 1), -EINVAL, "cost");
	REFUSED(e, pawl_graph_push(e, g, &how), -EINVAL, "cost");
	op.cost = how.cost = 6;
	REFUSED(e, pawl_graph_push(e, g, &how), -E2BIG, "cost");
	OK(pawl_group_count(e, (pawl_group_t){ 0 }, NULL, &cost));
	ck_assert_uint_eq(cost, 0);
	op.cost = how.cost = 1;
	OK(pawl_push(e, &op));
	OK(pawl_push_batch(e, &op, 1));
	OK(pawl_graph_push(e, g, &how));
	OK(pawl_group_count(e, (pawl_group_t){ 0 }, NULL, &cost));
	ck_assert_uint_eq(cost, 3);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	op.flags = 0;
	op.cost = 0;
	op.writes = many;
	op.nwrites = 40000;
	REFUSED(e, pawl_graph_create(e, &op, 1, 0, &g), -E2BIG);
	/* each has few enough, and all of them have too many */
	op.nwrites = 20000;
	for (i = 0; i < ARRAY_SIZE(lots); i++)
		lots[i] = op;
	REFUSED(e, pawl_graph_create(e, lots, ARRAY_SIZE(lots), 0, &g), -E2BIG,
		"5120000 reads and writes");
	op.nwrites = 2;
	OK(pawl_graph_create(e, &op, 1, 0, &g));
	OK(pawl_engine_destroy(e));
}
END_TEST

static int host_thread(void *user, void *(*fn)(void *arg), void *arg, void **thread)
{
	return -EAGAIN;
}

static void host_join(void *user, void *thread)
{
}

START_TEST(test_a_configuration_that_contradicts_itself_is_refused)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e = NULL;

	c.thread_create = host_thread;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "config.thread_join is NULL");
	c.thread_create = NULL;
	c.thread_join = host_join;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "config.thread_create is NULL");
	c.thread_create = host_thread;
	c.cpu_list = "0";
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "config.cpu_list is set");
	c.cpu_list = NULL;
	c.sched_policy = SCHED_OTHER;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "config.sched_policy is set");
	c.sched_policy = -1;
	c.stack_size = 1 << 20;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "config.stack_size is set");
	c.thread_create = NULL;
	c.thread_join = NULL;
	c.sched_policy = 77;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "config.sched_policy is 77");
	c.sched_policy = -1;
	ck_assert_ptr_null(e);
	OK(pawl_engine_create(&c, &e));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_what_is_used_up_is_refused_until_one_is_given_back)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	pawl_group_t g, last;
	pawl_var_t v, w;
	u32 n = 1;
	int rc;

	c.max_ops = 64;
	c.max_vars = 64;
	c.max_threads = 2;
	e = engine_with(&c);
	v = var_new(e);
	while (!(rc = pawl_var_create(e, &w)))
		n++;
	ck_assert_uint_ge(n, 64);
	REFUSED(e, pawl_var_create(e, &w), -ENOMEM, "var_create");
	OK(pawl_var_delete(e, v, NULL, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_var_create(e, &w));
	OK(pawl_group_create(e, NULL, &g));
	while (!(rc = pawl_group_create(e, NULL, &last)))
		;
	REFUSED(e, pawl_group_create(e, NULL, &last), -ENOMEM, "group_create");
	OK(pawl_group_destroy(e, g));
	OK(pawl_group_create(e, NULL, &last));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- inside a body --- */

struct inside {
	pawl_var_t v;
	pawl_group_t g;
	pawl_ticket_t ticket;
	u32 ran;
};

static int calls_that_would_wait_for_themselves(struct pawl_run *run, void *arg)
{
	struct pawl_engine *e = run->engine;
	struct inside *in = arg;

	MUST(pawl_engine_destroy(e) == -EDEADLK);
	MUST(pawl_engine_stop(e) == -EDEADLK);
	MUST(pawl_engine_start(e) == -EDEADLK);
	MUST(pawl_thread_detach(e) == -EDEADLK);
	MUST(pawl_wait_all(e, -1, NULL) == -EDEADLK);
	MUST(pawl_wait_readable(e, in->v, -1, NULL) == -EDEADLK);
	MUST(pawl_wait_writable(e, in->v, -1, NULL) == -EDEADLK);
	MUST(pawl_group_wait(e, in->g, -1) == -EDEADLK);
	MUST(pawl_ticket_wait(e, in->ticket, -1) == -EDEADLK);
	MUST(pawl_cancel(e, in->ticket) == -EINPROGRESS);
	in->ran++;
	return 0;
}

START_TEST(test_a_wait_for_itself_is_refused_and_succeeds_after_the_body)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct inside in = { .v = var_new(e) };
	struct pawl_op op = op_write(calls_that_would_wait_for_themselves, &in, &in.v);

	OK(pawl_group_create(e, NULL, &in.g));
	op.flags = PAWL_OP_TICKET | PAWL_OP_GROUP;
	op.ticket = &in.ticket;
	op.group = in.g;
	OK(pawl_push(e, &op));
	REFUSED(e, pawl_wait_readable(e, in.v, 0, NULL), -ETIMEDOUT, "wait");
	REFUSED(e, pawl_wait_writable(e, in.v, 0, NULL), -ETIMEDOUT, "wait");
	REFUSED(e, pawl_wait_all(e, 0, NULL), -ETIMEDOUT, "wait");
	REFUSED(e, pawl_group_wait(e, in.g, 0), -ETIMEDOUT, "wait");
	REFUSED(e, pawl_ticket_wait(e, in.ticket, 0), -ETIMEDOUT, "wait");
	REFUSED(e, pawl_wait(e, PAWL_WAIT_ALL, 0, 0, NULL), -ETIMEDOUT, "wait");
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_uint_eq(in.ran, 1);
	OK(pawl_ticket_wait(e, in.ticket, 0));
	OK(pawl_group_wait(e, in.g, 0));
	OK(pawl_wait_readable(e, in.v, 0, NULL));
	OK(pawl_wait_writable(e, in.v, 0, NULL));
	OK(pawl_wait_all(e, 0, NULL));
	OK(pawl_wait(e, PAWL_WAIT_ALL, 0, 0, NULL));
	REFUSED(e, pawl_cancel(e, in.ticket), -ESTALE, "cancel");
	op.fn = nothing;
	OK(pawl_push(e, &op));
	OK(pawl_cancel(e, in.ticket));
	OK(pawl_wait_all(e, SOON_NS, NULL) == -ECANCELED ? 0 : -1);
	OK(pawl_engine_stop(e));
	OK(pawl_engine_start(e));
	OK(pawl_thread_detach(e));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_wait_without_time_checks_once_and_runs_no_body)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u32 n = 0;
	struct pawl_op op = op_write(add_one, &n, &v);
	pawl_ticket_t ticket;
	pawl_group_t g;
	pawl_cq_t cq;

	OK(pawl_group_create(e, NULL, &g));
	OK(pawl_cq_create(e, &cq));
	op.flags = PAWL_OP_TICKET | PAWL_OP_GROUP | PAWL_OP_CQ;
	op.ticket = &ticket;
	op.group = g;
	op.cq = cq;
	OK(pawl_push(e, &op));
	REFUSED(e, pawl_wait_all(e, 0, NULL), -ETIMEDOUT, "wait");
	REFUSED(e, pawl_wait_writable(e, v, 0, NULL), -ETIMEDOUT, "wait");
	REFUSED(e, pawl_ticket_wait(e, ticket, 0), -ETIMEDOUT, "ticket_wait");
	REFUSED(e, pawl_group_wait(e, g, 0), -ETIMEDOUT, "group_wait");
	REFUSED(e, pawl_cq_wait(e, cq, 0), -ETIMEDOUT, "cq_wait");
	ck_assert_uint_eq(n, 0);
	OK(pawl_cq_wait(e, cq, SOON_NS));
	ck_assert_uint_eq(n, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- another thread --- */

struct waiter {
	struct pawl_engine *e;
	pawl_cq_t cq;
	u32 done;	/* A */
};

static void *waits_for_queue(void *arg)
{
	struct waiter *w = arg;
	int rc;

	while ((rc = pawl_cq_wait(w->e, w->cq, -1)) == -EBUSY)
		;
	MUST(!rc);
	store_release(&w->done, 1);
	return NULL;
}

START_TEST(test_a_queue_has_one_waiter_and_one_reaper)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct waiter w = { .e = e };
	struct pawl_op op = op_of_fn(nothing, NULL);
	struct pawl_completion c;
	struct pawl_named_completion named;
	struct cq *q;
	pthread_t t;

	OK(pawl_cq_create(e, &w.cq));
	t = spawn(waits_for_queue, &w);
	q = pool_obj(e->pool[POOL_CQ], (u32)w.cq.h);
	MUST(soon(load_acquire(&q->waiter)));
	FAILS(pawl_cq_wait(e, w.cq, 0), -EBUSY, "cq_wait");
	op.flags = PAWL_OP_CQ;
	op.cq = w.cq;
	op.tag = 7;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	join(t);
	OK(pawl_cq_wait(e, w.cq, 0));
	/* As if another thread were stopped inside pawl_cq_reap(). */
	fetch_or_acq_rel(&q->life, CQ_REAPING);
	REFUSED(e, pawl_cq_reap(e, w.cq, &c, 1), -EBUSY, "cq_reap");
	REFUSED(e, pawl_cq_reap_named(e, w.cq, &named, 1), -EBUSY, "cq_reap");
	REFUSED(e, pawl_cq_destroy(e, w.cq), -EBUSY, "cq_destroy");
	fetch_and_acq_rel(&q->life, ~(u64)CQ_REAPING);
	REFUSED(e, pawl_cq_destroy(e, w.cq), -EBUSY, "cq_destroy");
	ck_assert_int_eq(pawl_cq_reap(e, w.cq, &c, 1), 1);
	ck_assert_uint_eq(c.tag, 7);
	ck_assert_int_eq(pawl_cq_reap_named(e, w.cq, &named, 1), 0);
	OK(pawl_cq_destroy(e, w.cq));
	OK(pawl_engine_destroy(e));
}
END_TEST

static pawl_ticket_t waited_for;

static void *waits_for_ticket(void *arg)
{
	int rc = pawl_ticket_wait(arg, waited_for, -1);

	/* The other thread may have been the first for a moment. */
	while (rc == -EBUSY)
		rc = pawl_ticket_wait(arg, waited_for, -1);
	MUST(!rc);
	return NULL;
}

START_TEST(test_a_second_wait_for_a_ticket_is_refused_and_the_first_goes_on)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_write(nothing, NULL, &v);
	struct gate g;
	pthread_t t;

	op.flags = PAWL_OP_TICKET;
	op.ticket = &waited_for;
	gate_write(e, &g, v);
	OK(pawl_push(e, &op));
	t = spawn(waits_for_ticket, e);
	MUST(soon(pawl_ticket_wait(e, waited_for, 0) == -EBUSY));
	FAILS(pawl_ticket_wait(e, waited_for, 0), -EBUSY, "ticket_wait");
	gate_open(&g);
	join(t);
	OK(pawl_ticket_wait(e, waited_for, SOON_NS));
	OK(pawl_engine_destroy(e));
}
END_TEST

static void watch_again(void *arg, const struct pawl_stalled *s)
{
	FAILS(pawl_watch(arg, 0, NULL, NULL), -EBUSY, "watch");
}

START_TEST(test_a_watch_inside_a_watch_is_refused)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct gate g;

	gate_write(e, &g, var_new(e));
	OK(pawl_watch(e, 0, NULL, NULL));
	nap_us(100);
	ck_assert_int_eq(pawl_watch(e, 0, watch_again, e), 1);
	ck_assert_int_eq(pawl_watch(e, 0, NULL, NULL), 1);
	gate_open(&g);
	OK(pawl_engine_destroy(e));
}
END_TEST

static pawl_token_t token_of_gate(struct gate *g)
{
	MUST(soon(load_acquire(&g->running)));
	return g->token;
}

START_TEST(test_a_token_completes_once)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate g;

	gate_write(e, &g, v);
	REFUSED(e, pawl_complete(e, token_of_gate(&g), 1, NULL), -EINVAL, "complete");
	REFUSED(e, pawl_complete(e, (pawl_token_t){ 0 }, 0, NULL), -EINVAL, "complete");
	REFUSED(e, pawl_wait_readable(e, v, 0, NULL), -ETIMEDOUT, "wait");
	OK(pawl_complete(e, token_of_gate(&g), 0, NULL));
	REFUSED(e, pawl_complete(e, token_of_gate(&g), 0, NULL), -EALREADY, "complete");
	OK(pawl_wait_readable(e, v, 0, NULL));
	ck_assert_uint_eq(version(e, v), 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The same index, as often used: an op is canceled, completed and waited for by its own engine. */
START_TEST(test_a_ticket_and_a_token_of_another_engine_are_refused)
{
	struct pawl_engine *e[] = { engine(PAWL_PER_DEVICE, 0), engine(PAWL_PER_DEVICE, 0) };
	pawl_ticket_t ticket[COUNT(e)];
	struct gate g[COUNT(e)];
	u32 i, ran = 0;

	for (i = 0; i < COUNT(e); i++) {
		pawl_var_t v = var_new(e[i]);
		struct pawl_op op = op_write(add_one, &ran, &v);

		gate_write(e[i], &g[i], v);
		op.flags = PAWL_OP_TICKET;
		op.ticket = &ticket[i];
		OK(pawl_push(e[i], &op));
		token_of_gate(&g[i]);
	}
	for (i = 0; i < COUNT(e); i++) {
		pawl_ticket_t theirs = ticket[!i];

		REFUSED(e[i], pawl_cancel(e[i], theirs), -ESTALE, "cancel");
		REFUSED(e[i], pawl_ticket_state(e[i], theirs), -ESTALE, "engine");
		REFUSED(e[i], pawl_ticket_wait(e[i], theirs, SOON_NS), -ESTALE, "engine");
		REFUSED(e[i], pawl_wait(e[i], PAWL_WAIT_TICKET, theirs.h, SOON_NS, NULL), -ESTALE);
		REFUSED(e[i], pawl_complete(e[i], g[!i].token, 0, NULL), -ESTALE, "engine");
		ck_assert_int_eq(pawl_ticket_state(e[i], ticket[i]), PAWL_TICKET_QUEUED);
	}
	for (i = 0; i < COUNT(e); i++) {
		OK(pawl_complete(e[i], g[i].token, 0, NULL));
		OK(pawl_ticket_wait(e[i], ticket[i], SOON_NS));
		/* Their memory is not in use, and what follows is told apart from it, too. */
		OK(pawl_trim(e[i]));
		ck_assert_int_eq(pawl_ticket_state(e[i], ticket[i]), PAWL_TICKET_COMPLETE);
	}
	ck_assert_uint_eq(load_acquire(&ran), 2);
	for (i = 0; i < COUNT(e); i++)
		OK(pawl_engine_destroy(e[i]));
}
END_TEST

START_TEST(test_a_trace_begins_once_and_is_written_after_its_end)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);

	if (pawl_trace_start(e, 8) != -ENOSYS) {
		REFUSED(e, pawl_trace_start(e, 8), -EALREADY, "trace_start");
		REFUSED(e, pawl_trace_write(e, "/dev/null"), -EBUSY, "trace_write");
		OK(pawl_trace_stop(e));
		REFUSED(e, pawl_trace_start(e, 0), -EINVAL, "trace_start");
		REFUSED(e, pawl_trace_write(e, NULL), -EINVAL, "trace_write");
		OK(pawl_trace_write(e, "/dev/null"));
		OK(pawl_trace_start(e, 8));
		OK(pawl_trace_stop(e));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_build_without_publish_says_so)
{
	if (pawl_publish(true) != -ENOSYS)
		OK(pawl_publish(true));
	OK(pawl_publish(false));
}
END_TEST

START_TEST(test_a_process_makes_one_recording_at_a_time)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	char path[64];

	snprintf(path, sizeof(path), "contract.%d.rec", (int)getpid());
	if (pawl_record_start(path) != -ENOSYS) {
		REFUSED(e, pawl_record_start(path), -EALREADY, "record");
		REFUSED(e, pawl_record_start(NULL), -EINVAL, "record");
		OK(pawl_record_stop());
		REFUSED(e, pawl_record_stop(), -EALREADY, "record");
		OK(pawl_record_start(path));
		OK(pawl_record_stop());
		unlink(path);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- threads and forks --- */

struct crowd {
	struct pawl_engine *e;
	u32 inside, leave, left;	/* A */
};

static void *attaches(void *arg)
{
	struct crowd *c = arg;

	MUST(!pawl_thread_attach(c->e));
	store_release(&c->inside, 1);
	MUST(soon(load_acquire(&c->leave)));
	MUST(!pawl_thread_detach(c->e));
	return NULL;
}

START_TEST(test_a_thread_too_many_is_refused_until_one_leaves)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct crowd crowd = { 0 };
	pawl_var_t v;
	pthread_t t;

	c.max_threads = 1;
	crowd.e = engine_with(&c);
	OK(pawl_thread_detach(crowd.e));
	t = spawn(attaches, &crowd);
	MUST(soon(load_acquire(&crowd.inside)));
	REFUSED(crowd.e, pawl_thread_attach(crowd.e), -EUSERS, "max_threads");
	REFUSED(crowd.e, pawl_var_create(crowd.e, &v), -EUSERS, "max_threads");
	REFUSED(crowd.e, pawl_engine_destroy(crowd.e), -EUSERS, "max_threads");
	store_release(&crowd.leave, 1);
	join(t);
	OK(pawl_thread_attach(crowd.e));
	OK(pawl_var_create(crowd.e, &v));
	OK(pawl_engine_destroy(crowd.e));
}
END_TEST

START_TEST(test_a_child_of_fork_is_refused_and_frees_the_engine)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pid_t pid;

	if (THREAD_SANITIZED)
		goto out;
	pid = child_fork();
	if (!pid) {
		MUST(pawl_thread_attach(e) == -EOWNERDEAD);
		MUST(pawl_thread_detach(e) == -EOWNERDEAD);
		_exit(pawl_engine_destroy(e) ? 1 : 0);
	}
	ck_assert_int_eq(child_wait(pid), 0);
	OK(pawl_thread_attach(e));
	OK(pawl_thread_detach(e));
out:
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("contract", test_a_var_that_is_none_is_refused_by_every_call,
      test_a_graph_that_is_none_is_refused_by_every_call,
      test_a_queue_that_is_none_is_refused_by_every_call,
      test_a_group_that_is_none_is_refused_by_every_call,
      test_a_bad_argument_is_named_and_the_corrected_call_succeeds,
      test_a_field_without_its_flag_is_refused,
      test_a_cost_beyond_the_limit_is_refused_for_good_a_smaller_one_is_not,
      test_a_configuration_that_contradicts_itself_is_refused,
      test_what_is_used_up_is_refused_until_one_is_given_back,
      test_a_wait_for_itself_is_refused_and_succeeds_after_the_body,
      test_a_wait_without_time_checks_once_and_runs_no_body,
      test_a_queue_has_one_waiter_and_one_reaper,
      test_a_second_wait_for_a_ticket_is_refused_and_the_first_goes_on,
      test_a_watch_inside_a_watch_is_refused, test_a_token_completes_once,
      test_a_ticket_and_a_token_of_another_engine_are_refused,
      test_a_trace_begins_once_and_is_written_after_its_end,
      test_a_build_without_publish_says_so,
      test_a_process_makes_one_recording_at_a_time,
      test_a_thread_too_many_is_refused_until_one_leaves,
      test_a_child_of_fork_is_refused_and_frees_the_engine)
