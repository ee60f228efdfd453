// SPDX-License-Identifier: Apache-2.0
/* The payload that a program attaches to an error is returned once, or dropped once. */
#include "util.h"
#include <core/engine.h>
#include <core/error.h>

static u32 dropped;		/* A: sum of payloads that were not delivered */

static void drop_it(void *user, void *payload)
{
	MUST(user == &dropped);
	fetch_add_relaxed(&dropped, (u32)(uintptr_t)payload);
}

static struct pawl_engine *payload_engine(int kind)
{
	struct pawl_config cfg;
	struct pawl_engine *e;

	pawl_config_init(&cfg);
	cfg.kind = kind;
	cfg.workers = 2;
	cfg.user = &dropped;
	cfg.drop = drop_it;
	MUST(!pawl_engine_create(&cfg, &e));
	store_relaxed(&dropped, 0);
	return e;
}

static int fail_loaded(struct pawl_run *run, void *arg)
{
	return pawl_fail_with(run, -EIO, "loaded", arg);
}

START_TEST(test_payload_given_once)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = payload_engine(kind);
		pawl_var_t a = var_new(e), b = var_new(e), c = var_new(e);
		struct pawl_op op = op_of_fn(fail_loaded, (void *)7);
		struct pawl_error err;

		op.writes = VARS(a, b);
		op.nwrites = 2;
		OK(pawl_push(e, &op));
		op = op_of_fn(nothing, NULL);
		op.reads = &a;
		op.nreads = 1;
		op.writes = &c;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		/* It was returned with the error. */
		ck_assert_int_eq(pawl_wait_readable(e, c, SOON_NS, &err), -EIO);
		ck_assert_ptr_eq(err.payload, (void *)7);
		ck_assert_str_eq(err.text, "loaded");
		/* Once. */
		err.payload = &err;
		OK(pawl_wait_readable(e, a, SOON_NS, &err));
		ck_assert_ptr_null(err.payload);
		err.payload = &err;
		OK(pawl_wait_all(e, SOON_NS, &err));
		ck_assert_ptr_null(err.payload);
		/* By a wait for all. */
		OK(push_write(e, fail_loaded, (void *)5, a));
		ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
		ck_assert_ptr_eq(err.payload, (void *)5);
		OK(pawl_engine_destroy(e));
		ck_assert_uint_eq(load_relaxed(&dropped), 0);
	}
}
END_TEST

START_TEST(test_var_take)
{
	struct pawl_engine *e = payload_engine(PAWL_PER_DEVICE);
	pawl_var_t a = var_new(e), b = var_new(e);
	struct pawl_error err;
	struct gate g;

	OK(pawl_var_take(e, a, &err));
	OK(push_write(e, fail_loaded, (void *)3, a));
	/* Reading an error does not take it. */
	MUST(soon(pawl_var_error(e, a, &err) == -EIO));
	ck_assert_ptr_null(err.payload);
	ck_assert_int_eq(pawl_var_take(e, a, &err), -EIO);
	ck_assert_ptr_eq(err.payload, (void *)3);
	ck_assert_str_eq(err.text, "loaded");
	OK(pawl_var_take(e, a, &err));
	ck_assert_ptr_null(err.payload);
	OK(pawl_var_error(e, a, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	/* Without waiting. */
	gate_write(e, &g, b);
	OK(pawl_var_take(e, b, &err));
	gate_open(&g);
	OK(pawl_var_delete(e, b, NULL, NULL));
	ck_assert_int_eq(pawl_var_take(e, b, &err), -ESTALE);
	OK(pawl_engine_destroy(e));
	ck_assert_uint_eq(load_relaxed(&dropped), 0);
}
END_TEST

static int succeed_loaded(struct pawl_run *run, void *arg)
{
	MUST(pawl_fail_with(run, -EIO, "not so bad", arg) == -EIO);
	return 0;
}

static int fail_loaded_twice(struct pawl_run *run, void *arg)
{
	MUST(pawl_fail_with(run, -EIO, "first", (void *)100) == -EIO);
	MUST(pawl_fail_with(run, 0, "no failure", (void *)1000) == 0);
	return pawl_fail_with(run, -EIO, "second", arg);
}

/* A payload that is not delivered is passed to config.drop, exactly once. */
START_TEST(test_payload_dropped)
{
	struct pawl_engine *e = payload_engine(PAWL_PER_DEVICE);
	pawl_var_t a = var_new(e), b = var_new(e), c = var_new(e);
	struct pawl_error err;

	OK(push_write(e, succeed_loaded, (void *)1, a));
	OK(pawl_wait_readable(e, a, SOON_NS, NULL));
	ck_assert_uint_eq(load_relaxed(&dropped), 1);
	OK(push_write(e, fail_loaded_twice, (void *)2, a));
	ck_assert_int_eq(pawl_wait_readable(e, a, SOON_NS, &err), -EIO);
	ck_assert_ptr_eq(err.payload, (void *)2);
	ck_assert_uint_eq(load_relaxed(&dropped), 1101);
	/* A wait that has no room for it, and a clear. */
	OK(push_write(e, fail_loaded, (void *)3, a));
	ck_assert_int_eq(pawl_wait_readable(e, a, SOON_NS, NULL), -EIO);
	ck_assert_uint_eq(load_relaxed(&dropped), 1104);
	OK(push_write(e, fail_loaded, (void *)4, a));
	MUST(soon(pawl_var_error(e, a, NULL)));
	OK(pawl_var_clear(e, a));
	ck_assert_uint_eq(load_relaxed(&dropped), 1108);
	/*
	 * Two failures: the wait for all returns one; the other is dropped with its error
	 * object.
	 */
	OK(push_write(e, fail_loaded, (void *)5, b));
	OK(push_write(e, fail_loaded, (void *)6, c));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	MUST(err.payload == (void *)5 || err.payload == (void *)6);
	OK(pawl_engine_destroy(e));
	ck_assert_uint_eq(load_relaxed(&dropped), 1108 + 11 - (u32)(uintptr_t)err.payload);
}
END_TEST

static int fail_silently(struct pawl_run *run, void *arg)
{
	return pawl_fail_with(run, -EIO, NULL, arg);
}

/* An asynchronous op has its message and its payload from who completes it. */
static void fail_async(struct pawl_run *run, void *arg)
{
	MUST(pawl_fail_with(run, -EIO, "not this", (void *)4000) == -EIO);
	MUST(pawl_fail(run, -EIO, "nor this") == -EIO);
	store_release((u64 *)arg, run->token.h);
}

START_TEST(test_an_asynchronous_body_keeps_no_message)
{
	struct pawl_engine *e = payload_engine(PAWL_PER_DEVICE);
	pawl_var_t v = var_new(e);
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_error err;
	u64 token;
	int i;

	op.async_fn = fail_async;
	op.arg = &token;
	op.prop = PAWL_ASYNC;
	op.writes = &v;
	op.nwrites = 1;
	for (i = 0; i < 3; i++) {
		OK(pawl_push(e, &op));
		ck_assert_uint_eq(load_relaxed(&dropped), 4000 * ((u32)i + 1));
		OK(pawl_complete(e, (pawl_token_t){ token }, i ? -EPIPE : 0, i & 1 ? "this" : NULL));
		ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, &err), i ? -EPIPE : 0);
		if (i)
			ck_assert_str_eq(err.text, i & 1 ? "this" : strerror(EPIPE));
		ck_assert_ptr_null(err.payload);
	}
	OK(pawl_engine_destroy(e));
	ck_assert_uint_eq(load_relaxed(&dropped), 12000);
}
END_TEST

START_TEST(test_payload_async)
{
	struct pawl_engine *e = payload_engine(PAWL_PER_DEVICE);
	pawl_var_t a = var_new(e), b = var_new(e);
	struct pawl_error err;
	struct gate g;

	gate_write(e, &g, a);
	OK(pawl_complete_with(e, g.token, -EPIPE, "late", (void *)9));
	ck_assert_int_eq(pawl_complete_with(e, g.token, -EPIPE, "again", (void *)10),
			 -EALREADY);
	ck_assert_uint_eq(load_relaxed(&dropped), 10);
	ck_assert_int_eq(pawl_wait_readable(e, a, SOON_NS, &err), -EPIPE);
	ck_assert_ptr_eq(err.payload, (void *)9);
	ck_assert_str_eq(err.text, "late");
	/* With success it belongs to no error, nor to one of an earlier op. */
	gate_write(e, &g, b);
	OK(pawl_complete_with(e, g.token, 0, "fine", (void *)20));
	ck_assert_uint_eq(load_relaxed(&dropped), 30);
	/* Without a text it has that of the code, and with one it needs no payload. */
	gate_write(e, &g, b);
	OK(pawl_complete_with(e, g.token, -EPIPE, NULL, (void *)1000));
	ck_assert_int_eq(pawl_wait_readable(e, b, SOON_NS, &err), -EPIPE);
	ck_assert_ptr_eq(err.payload, (void *)1000);
	ck_assert_str_eq(err.text, strerror(EPIPE));
	ck_assert_str_eq(err.op, "gate");
	gate_write(e, &g, b);
	OK(pawl_complete_with(e, g.token, -EPIPE, "only a text", NULL));
	ck_assert_int_eq(pawl_wait_readable(e, b, SOON_NS, &err), -EPIPE);
	ck_assert_ptr_null(err.payload);
	ck_assert_str_eq(err.text, "only a text");
	OK(push_write(e, fail_silently, (void *)2000, b));
	ck_assert_int_eq(pawl_wait_readable(e, b, SOON_NS, &err), -EIO);
	ck_assert_ptr_eq(err.payload, (void *)2000);
	ck_assert_str_eq(err.text, strerror(EIO));
	ck_assert_uint_eq(load_relaxed(&dropped), 30);
	/* Left in a var at the end. */
	gate_write(e, &g, a);
	OK(pawl_complete_with(e, g.token, -EPIPE, NULL, (void *)40));
	OK(pawl_engine_destroy(e));
	ck_assert_uint_eq(load_relaxed(&dropped), 70);
}
END_TEST

/* As many errors as were ever made at once: each poisons its var, and none is forgotten. */
START_TEST(test_every_error_has_its_payload)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	u32 i = 0;

	c.user = &dropped;
	c.drop = drop_it;
	e = engine_with(&c);
	store_relaxed(&dropped, 0);
	do {
		pawl_var_t v = var_new(e);

		OK(push_write(e, fail_loaded, (void *)1, v));
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_int_eq(pawl_var_error(e, v, NULL), -EIO);
		/* Until all errors that have memory are in use; the engine itself has one. */
	} while (pool_carved(e->pool[POOL_ERROR]) > ++i + 1);
	ck_assert_uint_eq(load_relaxed(&dropped), 0);
	OK(pawl_engine_destroy(e));
	ck_assert_uint_eq(load_relaxed(&dropped), i);
}
END_TEST

SUITE("payload", test_payload_given_once, test_var_take, test_payload_dropped,
      test_an_asynchronous_body_keeps_no_message, test_payload_async,
      test_every_error_has_its_payload)
