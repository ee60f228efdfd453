// SPDX-License-Identifier: Apache-2.0
/* core/error.c: errors propagate along data, and each is returned once. */
#include "util.h"
#include <core/thread.h>

/* --- how they travel --- */

START_TEST(test_fail_poisons_what_it_writes)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_var_t a = var_new(e), b = var_new(e), c = var_new(e), d = var_new(e);
		struct pawl_op op = op_of_fn(fail_io, NULL);
		struct pawl_error err;

		op.reads = VARS(a, b);
		op.nreads = 2;
		op.writes = VARS(c, d);
		op.nwrites = 2;
		op.name = "burner";
		OK(pawl_push(e, &op));
		OK(pawl_wait_readable(e, a, SOON_NS, NULL));	/* read: nothing passes on */
		OK(pawl_wait_readable(e, b, SOON_NS, NULL));
		ck_assert_int_eq(pawl_wait_writable(e, a, SOON_NS, NULL), 0);
		ck_assert_int_eq(pawl_wait_writable(e, c, SOON_NS, &err), -EIO);
		ck_assert_int_eq(err.code, -EIO);
		ck_assert_str_eq(err.op, "burner");
		ck_assert_str_eq(err.text, "disk on fire");
		says("wait", (const char *const[]){ "burner", "disk on fire", NULL });
		OK(pawl_wait_readable(e, d, SOON_NS, NULL));	/* the same error, already
								   returned */
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* From var to var, through any number of ops; the ops in between are skipped. */
START_TEST(test_chain)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v[20];
	struct pawl_error err;
	u32 ran = 0;
	int i;

	for (i = 0; i < 20; i++)
		v[i] = var_new(e);
	OK(push_write(e, fail_io, NULL, v[0]));
	for (i = 1; i < 20; i++) {
		struct pawl_op op = op_of_fn(add_one, &ran);

		op.reads = &v[i - 1];
		op.nreads = 1;
		op.writes = &v[i];
		op.nwrites = 1;
		OK(pawl_push(e, &op));
	}
	ck_assert_int_eq(pawl_wait_readable(e, v[19], SOON_NS, &err), -EIO);
	ck_assert_str_eq(err.text, "disk on fire");
	ck_assert_uint_eq(ran, 0);
	ck_assert_uint_eq(stats(e).skipped, 19);
	ck_assert_uint_eq(stats(e).failed, 1);
	/* After it was returned once it is cleared wherever it spread. */
	for (i = 0; i < 20; i++) {
		OK(pawl_var_error(e, v[i], NULL));
		OK(pawl_wait_readable(e, v[i], SOON_NS, NULL));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	/* And everything works again. */
	OK(push_write(e, add_one, &ran, v[10]));
	OK(pawl_wait_readable(e, v[10], SOON_NS, NULL));
	ck_assert_uint_eq(ran, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A write after a failed write inherits too, until the error is taken. */
START_TEST(test_same_var)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u32 ran = 0;
	int i;

	OK(push_write(e, fail_io, NULL, v));
	for (i = 0; i < 5; i++) {
		OK(push_write(e, add_one, &ran, v));
		OK(push_read(e, add_one, &ran, v));
	}
	while (pawl_run_one(e))
		;
	ck_assert_uint_eq(ran, 0);
	ck_assert_uint_eq(stats(e).skipped, 10);
	ck_assert_uint_eq(version(e, v), 6);
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, NULL), -EIO);
	OK(push_read(e, add_one, &ran, v));
	OK(push_write(e, add_one, &ran, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Reads pass nothing on: a failed op that only reads poisons no var, but is counted. */
START_TEST(test_failed_read)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_error err;
	u32 ran = 0;

	OK(push_read(e, fail_io, NULL, v));
	OK(push_write(e, add_one, &ran, v));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 1);
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	ck_assert_uint_eq(err.count, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The first among its reads, then among its writes, is inherited. */
START_TEST(test_first_is_inherited)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[2] = { var_new(e), var_new(e) }, out = var_new(e);
	struct pawl_op op = op_of_fn(nothing, NULL);
	struct pawl_error err;
	u32 i;

	/* Whichever of the vars was created first. */
	for (i = 0; i < 2; i++) {
		OK(push_write(e, fail_io, TEXT("of the write"), v[!i]));
		OK(push_write(e, fail_io, TEXT("of the read"), v[i]));
		while (pawl_run_one(e))
			;
		op.reads = &v[i];
		op.nreads = 1;
		op.writes = VARS(v[!i], out);
		op.nwrites = 2;
		OK(pawl_push(e, &op));
		ck_assert_int_eq(pawl_wait_readable(e, out, SOON_NS, &err), -EIO);
		ck_assert_str_eq(err.text, "of the read");
		ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A body of PAWL_NO_SKIP runs and sees the error; what it writes stays poisoned. */
static int see_status(struct pawl_run *run, void *arg)
{
	*(int *)arg = run->status;
	return 0;
}

START_TEST(test_no_skip)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_var_t v = var_new(e), w = var_new(e);
		struct pawl_op op;
		int status = 1;

		op = op_write(see_status, &status, &w);
		op.prop = PAWL_NO_SKIP;
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_int_eq(status, 0);
		OK(push_write(e, fail_io, NULL, v));
		op.reads = &v;
		op.nreads = 1;
		OK(pawl_push(e, &op));
		ck_assert_int_eq(pawl_wait_readable(e, w, SOON_NS, NULL), -EIO);
		ck_assert_int_eq(status, -EIO);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* The flag does it with every property, in a push and in a graph; without it they skip. */
START_TEST(test_no_skip_flag)
{
	u32 kind, prop, flags;

	for (kind = 0; kind < 3; kind++)
		for (prop = PAWL_NORMAL; prop < PAWL_NO_SKIP; prop++)
			for (flags = 0; flags <= PAWL_OP_NO_SKIP; flags++) {
				struct pawl_engine *e = engine((int)kind, 1);
				pawl_var_t v = var_new(e);
				int pushed = 1, run = 1;
				struct pawl_op op = op_write(see_status, &pushed, &v);
				pawl_graph_t o;

				OK(push_write(e, fail_io, NULL, v));
				op.prop = (u16)prop;
				op.flags = (u16)flags;
				OK(pawl_push(e, &op));
				op.arg = &run;
				OK(pawl_graph_create(e, &op, 1, 0, &o));
				OK(pawl_graph_push(e, o, NULL));
				OK(pawl_graph_delete(e, o));
				ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
				ck_assert_int_eq(pushed, flags ? -EIO : 1);
				ck_assert_int_eq(run, flags ? -EIO : 1);
				OK(pawl_engine_destroy(e));
			}
}
END_TEST

/* An own failure of such a body replaces the inherited one. */
START_TEST(test_no_skip_fails_itself)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_write(fail_io, TEXT("second"), &v);
	struct pawl_error err;

	OK(push_write(e, fail_io, TEXT("first"), v));
	op.prop = PAWL_NO_SKIP;
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, &err), -EIO);
	ck_assert_str_eq(err.text, "second");
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	ck_assert_str_eq(err.text, "first");
	ck_assert_uint_eq(err.count, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* An op that runs although its var is poisoned, and meanwhile the error is cleared. */
struct inheriting {
	pawl_var_t v;
	int seen;
	u64 token;
};

static int clear_inside(struct pawl_run *run, void *arg)
{
	struct inheriting *x = arg;

	x->seen = run->status;
	MUST(!pawl_var_clear(run->engine, x->v));
	return 0;
}

static int clear_inside_message(struct pawl_run *run, void *arg)
{
	pawl_fail(run, -ENOENT, "a message, and then success");
	return clear_inside(run, arg);
}

static void clear_later(struct pawl_run *run, void *arg)
{
	struct inheriting *x = arg;

	x->seen = run->status;
	x->token = run->token.h;
}

/* It ends as it began, in a push, in a launch, and in the nodes of a launch. */
START_TEST(test_what_an_op_inherits_is_decided_once)
{
	static const struct { pawl_fn fn; pawl_async_fn async; u32 nodes; int end, status; } row[] = {
		{ clear_inside, NULL, 0, 0, -EIO },
		{ clear_inside_message, NULL, 0, 0, -EIO },
		{ NULL, clear_later, 0, 0, -EIO },
		{ NULL, clear_later, 0, -EPIPE, -EPIPE },
		{ clear_inside, NULL, 1, 0, -EIO },
		{ NULL, clear_later, 1, 0, -EIO },
		{ clear_inside, NULL, 2, 0, -EIO },
		{ clear_inside_message, NULL, 2, 0, -EIO },
		{ NULL, clear_later, 2, 0, -EIO },
		{ NULL, clear_later, 2, -EPIPE, -EPIPE },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(row); i++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
		pawl_var_t v = var_new(e), w = var_new(e);
		struct inheriting x = { .v = v, .seen = 1 };
		struct pawl_launch how = { .size = sizeof(how), .flags = PAWL_OP_CQ };
		struct pawl_op op[2] = { op_write(row[i].fn, &x, &w), op_read(nothing, NULL, &w) };
		struct pawl_completion c;
		pawl_graph_t g;

		op[0].async_fn = row[i].async;
		op[0].reads = &v;
		op[0].nreads = 1;
		op[0].flags = PAWL_OP_NO_SKIP;
		op[1].flags = PAWL_OP_NO_SKIP;
		OK(pawl_cq_create(e, &how.cq));
		OK(push_write(e, fail_io, NULL, v));
		if (row[i].nodes) {
			OK(pawl_graph_create(e, op, row[i].nodes, 0, &g));
			OK(pawl_graph_push(e, g, &how));
		} else {
			op[0].flags |= PAWL_OP_CQ;
			op[0].cq = how.cq;
			OK(pawl_push(e, op));
		}
		while (pawl_run_one(e))
			;
		if (row[i].async) {
			OK(pawl_var_clear(e, v));
			OK(pawl_complete(e, (pawl_token_t){ x.token }, row[i].end, NULL));
			while (pawl_run_one(e))
				;
		}
		ck_assert_msg(x.seen == -EIO, "row %u: the body saw %d", i, x.seen);
		ck_assert_int_eq(pawl_cq_reap(e, how.cq, &c, 1), 1);
		ck_assert_msg(c.status == row[i].status, "row %u: the op ended with %d", i, c.status);
		ck_assert_int_eq(pawl_wait_readable(e, w, SOON_NS, NULL), row[i].end);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* --- pawl_fail() and the value returned --- */

static int fail_code(struct pawl_run *run, void *arg)
{
	return *(int *)arg;
}

START_TEST(test_no_message)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op named = op_of_fn(fail_io, NULL);
	int code = -ENOSPC;
	struct pawl_error err;

	/* Nothing is left of an error that was reported before. */
	named.name = "earlier";
	OK(pawl_push(e, &named));
	FAILS(pawl_wait_all(e, SOON_NS, &err), -EIO, "op earlier failed: disk on fire");
	ck_assert_str_eq(err.op, "earlier");
	OK(push_write(e, fail_code, &code, v));
	FAILS(pawl_wait_readable(e, v, SOON_NS, &err), -ENOSPC, "an op failed: ");
	ck_assert_int_eq(err.code, -ENOSPC);
	ck_assert_str_eq(err.op, "");
	ck_assert_str_eq(err.text, strerror(ENOSPC));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_positive_return)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_error err;
	int code = 42;

	OK(push_write(e, fail_code, &code, v));
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, &err), -EPROTO);
	ck_assert_ptr_nonnull(strstr(err.text, "42"));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A message, and then success: no failure, not counted, nothing kept. */
static int fail_and_succeed(struct pawl_run *run, void *arg)
{
	pawl_fail(run, -EIO, "never mind");
	return 0;
}

START_TEST(test_fail_then_success)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_error err;

	OK(push_write(e, fail_and_succeed, NULL, v));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	OK(pawl_wait_all(e, SOON_NS, &err));
	ck_assert_int_eq(err.code, 0);
	ck_assert_uint_eq(stats(e).failed, 0);
	/* And the count of a real one is not spoiled by it. */
	OK(push_write(e, fail_and_succeed, NULL, v));
	OK(push_write(e, fail_io, NULL, v));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	ck_assert_uint_eq(err.count, 1);
	ck_assert_str_eq(err.text, "disk on fire");
	OK(pawl_engine_destroy(e));
}
END_TEST

static int fail_twice(struct pawl_run *run, void *arg)
{
	pawl_fail(run, -EIO, "first %d", 1);
	return pawl_fail(run, -ENXIO, "second %s", "two");
}

START_TEST(test_fail_twice)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_error err;

	OK(push_write(e, fail_twice, NULL, var_new(e)));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -ENXIO);
	ck_assert_str_eq(err.text, "second two");
	ck_assert_uint_eq(err.count, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The message is for the error that is returned. */
static int fail_other_code(struct pawl_run *run, void *arg)
{
	pawl_fail(run, -EIO, "the message");
	return -EINVAL;
}

static void keep_status(void *arg, int status)
{
	((int *)arg)[0] = status;
}

START_TEST(test_fail_other_code)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	int status = 0;
	struct pawl_op op = op_write(fail_other_code, &status, &v);
	struct pawl_error err;

	op.release = keep_status;
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, &err), -EINVAL);
	ck_assert_int_eq(err.code, -EINVAL);
	ck_assert_str_eq(err.text, "the message");
	ck_assert_int_eq(status, -EINVAL);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Long names and messages are cut, not overrun. */
static int fail_long(struct pawl_run *run, void *arg)
{
	return pawl_fail(run, -EIO, "%0500d", 7);
}

START_TEST(test_long_texts)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_write(fail_long, NULL, &v);
	struct pawl_error err;

	op.name = "a-name-that-is-longer-than-the-forty-eight-bytes-of-the-field";
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, &err), -EIO);
	ck_assert_uint_eq(strlen(err.op), sizeof(err.op) - 1);
	ck_assert_uint_eq(strlen(err.text), sizeof(err.text) - 1);
	ck_assert_int_eq(strncmp(err.op, op.name, 47), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A body fails after it waited for, and ran, other ops on its stack: its own message. */
static int fail_late(struct pawl_run *run, void *arg)
{
	pawl_var_t *v = arg;

	pawl_fail(run, -EIO, "the outer one");
	MUST(!push_write(run->engine, fail_io, NULL, *v));
	MUST(pawl_wait_readable(run->engine, *v, SOON_NS, NULL) == -EIO);
	return -EIO;
}

START_TEST(test_fail_nested)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_error err;

	OK(push_write(e, fail_late, &v, w));
	ck_assert_int_eq(pawl_wait_readable(e, w, SOON_NS, &err), -EIO);
	ck_assert_str_eq(err.text, "the outer one");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- given once --- */

START_TEST(test_given_once)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_op op = op_of_fn(fail_io, NULL);
	struct pawl_error err;

	op.writes = VARS(v, w);
	op.nwrites = 2;
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, &err), -EIO);
	OK(pawl_wait_readable(e, v, SOON_NS, &err));
	ck_assert_int_eq(err.code, 0);
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	OK(pawl_wait_readable(e, w, SOON_NS, NULL));
	OK(pawl_wait_all(e, SOON_NS, &err));
	ck_assert_int_eq(err.code, 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Of many threads that wait, exactly one gets it. */
struct takers {
	struct pawl_engine *e;
	pawl_var_t v[4];
	u32 n, got, in;		/* A */
};

static void *taker(void *arg)
{
	struct takers *t = arg;
	u32 i = fetch_add_relaxed(&t->n, 1);
	int rc;

	fetch_add_relaxed(&t->in, 1);
	while (load_acquire(&t->in) < 4)
		sched_yield();
	if (i == 3)
		rc = pawl_wait_writable(t->e, t->v[3], SOON_NS, NULL);
	else
		rc = pawl_wait_readable(t->e, t->v[i], SOON_NS, NULL);
	MUST(rc == 0 || rc == -EIO);
	if (rc)
		fetch_add_relaxed(&t->got, 1);
	return NULL;
}

START_TEST(test_given_to_one_thread)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	int round, i, rounds = TIMES(300);

	for (round = 0; round < rounds; round++) {
		struct takers t = { .e = e };
		struct pawl_op op = op_of_fn(fail_io, NULL);
		pthread_t th[4];

		for (i = 0; i < 4; i++)
			t.v[i] = var_new(e);
		op.writes = t.v;
		op.nwrites = 4;
		OK(pawl_push(e, &op));
		for (i = 0; i < 4; i++)
			th[i] = spawn(taker, &t);
		for (i = 0; i < 4; i++)
			join(th[i]);
		ck_assert_uint_eq(t.got, 1);
		for (i = 0; i < 4; i++)
			OK(pawl_var_delete(e, t.v[i], NULL, NULL));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- look and clear --- */

START_TEST(test_var_error)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_error err = { .code = 5 };
	struct pawl_op never;
	pawl_token_t held;
	struct gate g;
	u32 ran = 0;
	int i;

	OK(pawl_var_error(e, v, &err));
	ck_assert_int_eq(err.code, 0);
	OK(push_write(e, fail_io, NULL, v));
	OK(pawl_var_error(e, v, &err));		/* without waiting */
	pawl_run_one(e);
	for (i = 0; i < 3; i++) {		/* without clearing */
		ck_assert_int_eq(pawl_var_error(e, v, &err), -EIO);
		ck_assert_int_eq(err.code, -EIO);
		ck_assert_str_eq(err.text, "disk on fire");
		ck_assert_int_eq(pawl_var_error(e, v, NULL), -EIO);
	}
	/* While a write waits behind readers of that version. */
	never = op_read(NULL, &held, &v);
	never.async_fn = keep_token;
	never.prop = PAWL_ASYNC;
	never.flags = PAWL_OP_NO_SKIP;
	OK(pawl_push(e, &never));
	OK(push_write(e, add_one, &ran, v));
	ck_assert_int_eq(pawl_var_error(e, v, &err), -EIO);
	ck_assert_str_eq(err.text, "disk on fire");
	ck_assert_int_eq(pawl_var_take(e, v, NULL), -EIO);
	OK(pawl_var_error(e, v, NULL));
	OK(pawl_complete(e, held, 0, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 1);
	/* While a write is under way: what poisons the var now. */
	gate_write(e, &g, v);
	OK(pawl_var_error(e, v, NULL));
	gate_open(&g);
	OK(push_write(e, add_one, &ran, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The memory of a version that was replaced may be one of another var, which fails. */
START_TEST(test_var_error_is_not_that_of_another_var)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w;
	u32 i;

	OK(push_write(e, fail_io, NULL, var_new(e)));
	ck_assert_int_eq(pawl_run_one(e), 1);
	for (i = 0; i < 10; i++) {
		struct gate g;

		w = var_new(e);
		gate_write(e, &g, v);
		OK(push_write(e, fail_io, NULL, w));
		ck_assert_int_eq(pawl_run_one(e), 1);
		OK(pawl_var_error(e, v, NULL));
		OK(pawl_var_take(e, v, NULL));
		OK(pawl_var_clear(e, v));
		ck_assert_int_eq(pawl_var_error(e, w, NULL), -EIO);
		gate_open(&g);
		OK(pawl_var_error(e, v, NULL));
	}
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_var_clear)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_op op = op_of_fn(nothing, NULL);
	u32 ran = 0;

	OK(pawl_var_clear(e, v));	/* nothing to clear */
	OK(push_write(e, fail_io, NULL, v));
	op.reads = &v;
	op.nreads = 1;
	op.writes = &w;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	while (pawl_run_one(e))
		;
	ck_assert_int_eq(pawl_var_error(e, w, NULL), -EIO);
	/* Cleared where it arrived, it is also cleared where it came from. */
	OK(pawl_var_clear(e, w));
	OK(pawl_var_error(e, v, NULL));
	OK(pawl_var_error(e, w, NULL));
	OK(push_write(e, add_one, &ran, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Cleared after a reader was pushed: the reader runs if it had not begun. */
START_TEST(test_clear_lets_pushed_ops_run)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u32 ran = 0;

	OK(push_write(e, fail_io, NULL, v));
	OK(push_read(e, add_one, &ran, v));
	ck_assert_int_eq(pawl_run_one(e), 1);
	OK(pawl_var_clear(e, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- asynchronous, and from other threads --- */

static void *complete_failed(void *arg)
{
	void **a = arg;

	MUST(!pawl_complete(a[0], *(pawl_token_t *)a[1], -ECONNRESET, a[2]));
	return NULL;
}

START_TEST(test_async_message)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_error err;
	pawl_token_t token;
	char text[16] = "peer gone";
	void *args[3] = { e, &token, text };
	u32 ran = 0;

	op.async_fn = keep_token;
	op.arg = &token;
	op.writes = &v;
	op.nwrites = 1;
	op.name = "recv";
	OK(pawl_push(e, &op));
	OK(push_write(e, add_one, &ran, v));
	ck_assert_int_eq(pawl_run_one(e), 1);
	join(spawn(complete_failed, args));
	memset(text, 'x', sizeof(text) - 1);	/* it was copied */
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, &err), -ECONNRESET);
	ck_assert_str_eq(err.text, "peer gone");
	ck_assert_str_eq(err.op, "recv");
	ck_assert_uint_eq(ran, 0);
	/* without a message */
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_run_one(e), 1);
	args[2] = NULL;
	join(spawn(complete_failed, args));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -ECONNRESET);
	ck_assert_str_eq(err.text, strerror(ECONNRESET));
	ck_assert_uint_eq(err.count, 2);	/* since the last wait for all, returned or
						   not */
	OK(pawl_engine_destroy(e));
}
END_TEST

/* An asynchronous op that is skipped needs no completion. */
START_TEST(test_async_skipped)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op op = PAWL_OP_INIT;
	pawl_token_t token = { 0 };
	int status = 0;

	op.async_fn = keep_token;
	op.arg = &token;
	op.writes = &v;
	op.nwrites = 1;
	OK(push_write(e, fail_io, NULL, v));
	OK(pawl_push(e, &op));
	op.arg = &status;
	op.release = keep_status;
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, NULL), -EIO);
	ck_assert_uint_eq(token.h, 0);
	ck_assert_int_eq(status, -EIO);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Failures from many workers at once, read and cleared meanwhile. */
struct storm {
	struct pawl_engine *e;
	pawl_var_t v[8];
	u32 stop;	/* A */
};

static void *storm_reader(void *arg)
{
	struct storm *s = arg;
	struct pawl_error err;
	u64 seed = 5;

	while (!load_acquire(&s->stop)) {
		pawl_var_t v = s->v[rnd(&seed) % 8];
		int rc;

		switch (rnd(&seed) % 4) {
		case 0:
			rc = pawl_var_error(s->e, v, &err);
			break;
		case 1:
			rc = pawl_var_clear(s->e, v);
			break;
		case 2:
			rc = pawl_wait_readable(s->e, v, 1000, &err);
			break;
		default:
			rc = pawl_wait_all(s->e, 0, &err);
		}
		MUST(rc == 0 || rc == -EIO || rc == -ETIMEDOUT);
	}
	return NULL;
}

START_TEST(test_storm)
{
	struct storm s = { .e = engine(PAWL_PER_DEVICE, 2) };
	int i, rounds = TIMES(20000);
	u64 seed = 9;
	pthread_t t;

	for (i = 0; i < 8; i++)
		s.v[i] = var_new(s.e);
	t = spawn(storm_reader, &s);
	for (i = 0; i < rounds; i++) {
		pawl_var_t r[2] = { s.v[rnd(&seed) % 8], s.v[rnd(&seed) % 8] };
		pawl_var_t w[2] = { s.v[rnd(&seed) % 8], s.v[rnd(&seed) % 8] };
		struct pawl_op op = op_of_fn(rnd(&seed) % 3 ? nothing : fail_io, NULL);

		op.reads = r;
		op.nreads = 2;
		op.writes = w;
		op.nwrites = 2;
		op.prop = rnd(&seed) % 5 ? PAWL_NORMAL : PAWL_NO_SKIP;
		OK(pawl_push(s.e, &op));
	}
	store_release(&s.stop, 1);
	join(t);
	pawl_wait_all(s.e, SOON_NS, NULL);
	OK(pawl_wait_all(s.e, SOON_NS, NULL));
	ck_assert_uint_eq(stats(s.e).completed, stats(s.e).pushed);
	OK(pawl_engine_destroy(s.e));
}
END_TEST

/* At rest, with all vars deleted, no error object is in use except the spare one. */
START_TEST(test_no_leak)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pool *p = e->pool[POOL_ERROR];
	struct thread *t = thread_get(e);
	pawl_var_t v[10];
	u64 seed = 4;
	int i;

	for (i = 0; i < 10; i++)
		v[i] = var_new(e);
	for (i = 0; i < 2000; i++) {
		pawl_var_t a = v[rnd(&seed) % 10], b = v[rnd(&seed) % 10];
		struct pawl_op op = op_of_fn(rnd(&seed) % 4 ? nothing : fail_io, NULL);

		op.reads = &a;
		op.nreads = 1;
		op.writes = &b;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		if (i % 3 == 0)
			while (pawl_run_one(e))
				;
		if (i % 17 == 0)
			pawl_wait_readable(e, a, SOON_NS, NULL);
		if (i % 90 == 0)
			pawl_wait_all(e, SOON_NS, NULL);
	}
	for (i = 0; i < 10; i++)
		OK(pawl_var_delete(e, v[i], NULL, NULL));
	pawl_wait_all(e, SOON_NS, NULL);
	pool_cache_flush(p, &t->cache[POOL_ERROR]);
	ck_assert_uint_eq(pool_depot_count(p), pool_carved(p) - 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* An op that failed on v, and one that inherits its error for w. */
static void fail_two(struct pawl_engine *e, pawl_var_t v, pawl_var_t w)
{
	struct pawl_op op = op_of_fn(nothing, NULL);

	OK(push_write(e, fail_io, NULL, v));
	op.reads = &v;
	op.nreads = 1;
	op.writes = &w;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	while (pawl_run_one(e))
		;
	ck_assert_uint_eq(load_relaxed(&e->special), SPECIAL_ERROR);
}

/*
 * Ops use the path without checks again when the last version with an error is overwritten or
 * deleted, whichever call returned the error, also without a wait for all.
 */
START_TEST(test_plain_path_returns)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	u32 how;

	ck_assert_uint_eq(load_relaxed(&e->special), 0);
	for (how = 0; how < 5; how++) {
		fail_two(e, v, w);
		if (how == 0)
			OK(pawl_var_clear(e, w));
		else if (how == 1)
			ck_assert_int_eq(pawl_var_take(e, v, NULL), -EIO);
		else if (how == 2)
			ck_assert_int_eq(pawl_wait_readable(e, w, SOON_NS, NULL), -EIO);
		else if (how == 3)
			ck_assert_int_eq(pawl_wait_writable(e, v, SOON_NS, NULL), -EIO);
		else
			ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
		OK(push_write(e, nothing, NULL, v));
		while (pawl_run_one(e))
			;
		ck_assert_uint_eq(load_relaxed(&e->special), SPECIAL_ERROR);
		if (how < 4)
			OK(push_write(e, nothing, NULL, w));
		else
			OK(pawl_var_delete(e, w, NULL, NULL));
		while (pawl_run_one(e))
			;
		ck_assert_uint_eq(load_relaxed(&e->special), 0);
	}
	/* A message, and then success. */
	OK(push_write(e, fail_and_succeed, NULL, v));
	while (pawl_run_one(e))
		;
	ck_assert_uint_eq(load_relaxed(&e->special), 0);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

static int fails_gate(struct pawl_run *run, void *arg)
{
	struct gate *g = arg;

	MUST(!pawl_complete(g->e, g->token, -EIO, "disk on fire"));
	return 0;
}

/*
 * The position that an earlier wait left in the queue does not consume the error, whatever op is
 * behind it.
 */
START_TEST(test_an_old_place_keeps_the_error)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate w;
	u32 n = 0, i, behind = 0;
	int rc;

	/* A wait of either kind, then another of either kind, with an op between or not. */
	for (i = 0; i < 8; i++) {
		gate_write(e, &w, v);
		rc = i & 1 ? pawl_wait_readable(e, v, 1, NULL) : pawl_wait_writable(e, v, 1, NULL);
		ck_assert_int_eq(rc, -ETIMEDOUT);
		if (i & 4)
			OK(push_write(e, add_one, &n, v));
		behind += i >> 2;
		OK(push_write(e, fails_gate, &w, var_new(e)));
		FAILS(pawl_wait(e, i & 2 ? PAWL_WAIT_READABLE : PAWL_WAIT_WRITABLE, v.h, SOON_NS, NULL),
		      -EIO, "disk");
		ck_assert_uint_eq(n, 0);
		ck_assert_uint_eq(stats(e).skipped, behind);
		OK(pawl_wait_all(e, SOON_NS, NULL));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("error", test_fail_poisons_what_it_writes, test_chain, test_same_var, test_failed_read,
      test_first_is_inherited, test_no_skip, test_no_skip_flag, test_no_skip_fails_itself,
      test_what_an_op_inherits_is_decided_once,
      test_no_message, test_positive_return, test_fail_then_success, test_fail_twice,
      test_fail_other_code, test_long_texts, test_fail_nested, test_given_once,
      test_given_to_one_thread, test_var_error, test_var_error_is_not_that_of_another_var,
      test_var_clear, test_clear_lets_pushed_ops_run, test_async_message, test_async_skipped,
      test_storm, test_no_leak, test_plain_path_returns, test_an_old_place_keeps_the_error)
