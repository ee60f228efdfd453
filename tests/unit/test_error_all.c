// SPDX-License-Identifier: Apache-2.0
/* Errors of an engine: pawl_wait_all() returns each error once and keeps none forever. */
#include "util.h"
#include <core/thread.h>

#define MS 1000000ll

START_TEST(test_all_first_and_count)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_error err;
	char text[10][32];
	u32 ran = 0;
	int i;

	for (i = 0; i < 10; i++) {
		pawl_var_t v = var_new(e);

		snprintf(text[i], sizeof(text[i]), "failure %d", i);
		OK(push_write(e, fail_io, text[i], v));
		OK(push_write(e, add_one, &ran, v));	/* skipped: not counted */
	}
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	ck_assert_int_eq(err.code, -EIO);
	ck_assert_str_eq(err.text, "failure 0");
	ck_assert_uint_eq(err.count, 10);
	ck_assert_uint_eq(ran, 0);
	says("wait_all", (const char *const[]){ "failure 0", NULL });
	OK(pawl_wait_all(e, SOON_NS, &err));
	ck_assert_int_eq(err.code, 0);
	ck_assert_uint_eq(err.count, 0);
	/* The next one counts from here. */
	OK(push_write(e, fail_io, text[3], var_new(e)));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	ck_assert_uint_eq(err.count, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* "then forgets all errors": also on vars. */
START_TEST(test_all_forgets)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[5];
	u32 ran = 0;
	int i;

	for (i = 0; i < 5; i++) {
		v[i] = var_new(e);
		OK(push_write(e, fail_io, NULL, v[i]));
	}
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	for (i = 0; i < 5; i++) {
		OK(pawl_var_error(e, v[i], NULL));
		OK(push_write(e, add_one, &ran, v[i]));
		OK(pawl_wait_readable(e, v[i], SOON_NS, NULL));
	}
	ck_assert_uint_eq(ran, 5);
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * An error that a wait for all counted, but did not return, still poisons nothing however many
 * such waits follow: their number never repeats.
 */
START_TEST(test_counted_errors_never_return)
{
	static const u32 bits[] = { 16, 20, 24, 32, 40, 63 };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_error err;
	u32 i, ran = 0;

	OK(push_write(e, fail_io, NULL, v));
	OK(push_write(e, fail_io, NULL, w));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	ck_assert_uint_eq(err.count, 2);
	OK(pawl_var_error(e, w, NULL));
	for (i = 0; i < ARRAY_SIZE(bits); i++) {
		store_relaxed(&e->err_state.tag, 1ull << bits[i]);
		OK(pawl_var_error(e, w, NULL));
	}
	OK(push_write(e, add_one, &ran, w));
	OK(pawl_wait_all(e, SOON_NS, &err));
	ck_assert_uint_eq(ran, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A wait that timed out took nothing. */
START_TEST(test_all_timed_out_keeps)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_error err;
	struct gate g;

	gate_write(e, &g, var_new(e));
	OK(push_write(e, fail_io, NULL, var_new(e)));
	while (pawl_run_one(e))
		;
	ck_assert_int_eq(pawl_wait_all(e, MS, &err), -ETIMEDOUT);
	gate_open(&g);
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	ck_assert_uint_eq(err.count, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* An error that another call returned is not returned again; any other one is. */
START_TEST(test_all_gives_what_is_left)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_error err;
	pawl_var_t v[40];
	char text[40][32];
	int taken, i;

	/* 40 failures, the first `taken` of which are taken by waits on their vars. */
	for (taken = 0; taken <= 40; taken += 5) {
		for (i = 0; i < 40; i++) {
			v[i] = var_new(e);
			snprintf(text[i], sizeof(text[i]), "failure %d", i);
			OK(push_write(e, fail_io, text[i], v[i]));
			while (pawl_run_one(e))
				;
		}
		for (i = 0; i < taken; i++)
			ck_assert_int_eq(pawl_wait_readable(e, v[i], SOON_NS, NULL), -EIO);
		if (taken == 40) {
			OK(pawl_wait_all(e, SOON_NS, &err));
			continue;
		}
		ck_assert_msg(pawl_wait_all(e, SOON_NS, &err) == -EIO,
			      "%d of 40 were taken, and the others are forgotten", taken);
		if (taken < 16)
			ck_assert_str_eq(err.text, text[taken]);
		for (i = 0; i < 40; i++) {
			OK(pawl_var_error(e, v[i], NULL));
			OK(pawl_var_delete(e, v[i], NULL, NULL));
		}
	}
	/* The first failure that is left, also if a later one uses the slot of an earlier one. */
	for (i = 0; i < 3; i++) {
		v[i] = var_new(e);
		OK(push_write(e, fail_io, text[i], v[i]));
		while (pawl_run_one(e))
			;
		if (i == 1)
			ck_assert_int_eq(pawl_var_take(e, v[0], NULL), -EIO);
	}
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	ck_assert_str_eq(err.text, "failure 1");
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_1000_failures)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	struct pawl_error err;
	int i, round;

	for (round = 0; round < 3; round++) {
		for (i = 0; i < 1000; i++)
			OK(push_write(e, fail_io, NULL, var_new(e)));
		ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
		ck_assert_uint_eq(err.count, 1000);
		ck_assert_uint_eq(stats(e).failed, 1000u * (u32)(round + 1));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* 20 fail, and the 16 that are kept are returned: the text counts the others. */
START_TEST(test_text_counts_what_was_not_given)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_error err;
	pawl_var_t v[20];
	u32 i;

	for (i = 0; i < COUNT(v); i++) {
		v[i] = var_new(e);
		OK(push_write(e, fail_io, NULL, v[i]));
	}
	/* In the order of their failures. */
	while (pawl_run_one(e) > 0)
		;
	for (i = 0; i < 16; i++) {
		memset(&err, 0xff, sizeof(err));
		ck_assert_int_eq(i & 1 ? pawl_var_take(e, v[i], &err) :
				 pawl_wait_readable(e, v[i], SOON_NS, &err), -EIO);
		ck_assert(err.code == -EIO && err.count == 1 && !err.payload && !err.op[0]);
		/* It is returned once, whatever else is asked about it. */
		OK(pawl_var_take(e, v[i], NULL));
		OK(pawl_var_clear(e, v[i]));
		OK(pawl_var_clear(e, v[i]));
		OK(pawl_wait_readable(e, v[i], 0, NULL));
	}
	memset(&err, 0xff, sizeof(err));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	ck_assert_msg(!strncmp(err.text, "4 ops failed", 12), "the text is: %s", err.text);
	ck_assert_str_eq(err.text, pawl_error_text());
	ck_assert(err.code == -EIO && err.count == 20 && !err.payload && !err.op[0]);
	OK(pawl_wait_all(e, SOON_NS, &err));
	ck_assert(!err.code && !err.count);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Errors do not increase memory. */
START_TEST(test_errors_are_reused)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_op op = op_of_fn(nothing, NULL);
	int i;

	op.reads = &v;
	op.nreads = 1;
	op.writes = &w;
	op.nwrites = 1;
	for (i = 0; i < TIMES(20000); i++) {
		OK(push_write(e, fail_io, NULL, v));
		OK(pawl_push(e, &op));
		while (pawl_run_one(e))
			;
		switch (i % 4) {
		case 0:
			ck_assert_int_eq(pawl_wait_readable(e, w, SOON_NS, NULL), -EIO);
			break;
		case 1:
			ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
			break;
		case 2:
			OK(pawl_var_clear(e, v));
			break;
		default:
			ck_assert_int_eq(pawl_wait_writable(e, v, SOON_NS, NULL), -EIO);
		}
	}
	ck_assert_uint_lt(pool_carved(e->pool[POOL_ERROR]), 400);
	OK(pawl_engine_destroy(e));
}
END_TEST

static void drop_one(void *user, void *payload)
{
	MUST(payload == user);
	++*(u32 *)user;
}

static int fail_with_payload(struct pawl_run *run, void *arg)
{
	return pawl_fail_with(run, -EIO, NULL, arg);
}

/* Out of error objects: the failure is still a failure, for the var and for all. */
START_TEST(test_exhaustion)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pool_cache hoard = { 0 };
	struct pawl_engine *e;
	struct pawl_error err;
	pawl_var_t v, w;
	struct pool *p;
	u32 taken[4096], k = 0, idx, ran = 0, drops = 0;

	c.max_ops = 64;
	c.max_vars = 64;
	c.max_threads = 1;
	c.user = &drops;
	c.drop = drop_one;
	e = engine_with(&c);
	p = e->pool[POOL_ERROR];
	v = var_new(e);
	w = var_new(e);
	pool_cache_flush(p, &thread_get(e)->cache[POOL_ERROR]);
	while (k < COUNT(taken) && pool_get(p, &hoard, &idx))
		taken[k++] = idx;
	OK(push_write(e, fail_io, NULL, v));
	OK(push_write(e, add_one, &ran, v));
	ck_assert_int_lt(pawl_wait_readable(e, v, SOON_NS, &err), 0);
	ck_assert_int_lt(err.code, 0);
	ck_assert_str_ne(err.text, "");
	ck_assert_uint_eq(ran, 0);
	OK(pawl_wait_readable(e, v, SOON_NS, &err));
	OK(pawl_wait_all(e, SOON_NS, &err));
	/* and by a wait for all; a payload cannot be stored, so it is dropped */
	OK(push_write(e, fail_with_payload, &drops, w));
	OK(push_write(e, add_one, &ran, w));
	ck_assert_int_lt(pawl_wait_all(e, SOON_NS, &err), 0);
	ck_assert_uint_eq(err.count, 1);
	ck_assert_ptr_null(err.payload);
	ck_assert_uint_eq(drops, 1);
	ck_assert_uint_eq(ran, 0);
	OK(push_write(e, add_one, &ran, w));
	OK(pawl_wait_all(e, SOON_NS, &err));
	ck_assert_uint_eq(ran, 1);
	while (k)
		pool_put(p, &hoard, taken[--k]);
	pool_cache_flush(p, &hoard);
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * Several threads wait for all while ops fail: every failure is in exactly one count,
 * none is swallowed between two waits.
 */
struct tally {
	struct pawl_engine *e;
	u32 stop;		/* A */
	u32 counted;		/* A */
};

static void *tally_waiter(void *arg)
{
	struct tally *t = arg;
	struct pawl_error err;
	int rc;

	while (!load_acquire(&t->stop)) {
		rc = pawl_wait_all(t->e, SOON_NS, &err);
		MUST(rc == 0 || rc == -EIO);
		if (rc)
			fetch_add_relaxed(&t->counted, err.count);
		else
			MUST(!err.count);
	}
	return NULL;
}

START_TEST(test_every_failure_is_counted)
{
	struct tally t = { .e = engine(PAWL_PER_DEVICE, 1) };
	int i, total = TIMES(20000);
	struct pawl_error err;
	pthread_t w[2];

	w[0] = spawn(tally_waiter, &t);
	w[1] = spawn(tally_waiter, &t);
	for (i = 0; i < total; i++) {
		struct pawl_op op = op_of_fn(fail_io, NULL);

		OK(pawl_push(t.e, &op));
		if (i % 64 == 63)
			nap_us(20);
	}
	while (stats(t.e).completed != stats(t.e).pushed)
		sched_yield();
	store_release(&t.stop, 1);
	join(w[0]);
	join(w[1]);
	if (pawl_wait_all(t.e, SOON_NS, &err))
		t.counted += err.count;
	ck_assert_uint_eq(t.counted, (u32)total);
	OK(pawl_engine_destroy(t.e));
}
END_TEST

SUITE("error_all", test_all_first_and_count, test_all_forgets, test_counted_errors_never_return,
      test_all_timed_out_keeps, test_all_gives_what_is_left, test_1000_failures,
      test_text_counts_what_was_not_given, test_errors_are_reused, test_exhaustion,
      test_every_failure_is_counted)
