// SPDX-License-Identifier: Apache-2.0
/* core/wait.c: waits that timed out, and what they left in the queues of their vars. */
#include <malloc.h>
#include "util.h"
#include <core/op.h>
#include <core/thread.h>

#define MS 1000000ll

/* The library's clock is ahead of the system's. */
static u64 ahead;		/* A */

u64 __real_exec_now_ns(void);
u64 __wrap_exec_now_ns(void);

u64 __wrap_exec_now_ns(void)
{
	return __real_exec_now_ns() + load_relaxed(&ahead);
}

static int (*const wait_for[])(struct pawl_engine *, pawl_var_t, int64_t, struct pawl_error *) = {
	pawl_wait_readable, pawl_wait_writable,
};

/* Polling does not fill the queue with positions: of one var, and of many in turn. */
static void poll_loop(int nvars, bool write, s64 timeout)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[64];
	struct gate g[64];
	struct pawl_stats s0, s;
	u32 n = 0;
	int i, k, rounds = 3000 / nvars + 300;

	for (k = 0; k < nvars; k++) {
		v[k] = var_new(e);
		if (write)
			gate_read(e, &g[k], v[k]);
		else
			gate_write(e, &g[k], v[k]);
	}
	s0 = stats(e);
	for (i = 0; i < rounds; i++)
		for (k = 0; k < nvars; k++)
			ck_assert_int_eq((write ? pawl_wait_writable : pawl_wait_readable)
					 (e, v[k], timeout, NULL), -ETIMEDOUT);
	s = stats(e);
	ck_assert_msg(s.ops <= s0.ops + 128, "%d vars: %llu ops, after %d polls %llu", nvars,
		      (unsigned long long)s0.ops, rounds * nvars, (unsigned long long)s.ops);
	ck_assert_uint_le(s.pushed - s0.pushed, 3u * (u32)nvars);
	/* Abandoned positions do not disturb later calls. */
	for (k = 0; k < nvars; k++) {
		OK(push_write(e, add_one, &n, v[k]));
		gate_open(&g[k]);
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, (u32)nvars);
	OK(pawl_engine_destroy(e));
}

START_TEST(test_polling_one)
{
	poll_loop(1, false, 1);
	poll_loop(1, true, 1);
	poll_loop(1, false, 0);
	poll_loop(1, true, 0);
}
END_TEST

START_TEST(test_polling_few)
{
	poll_loop(8, false, 1);
	poll_loop(8, true, 1);
}
END_TEST

START_TEST(test_polling_many)
{
	poll_loop(40, false, 1);
	poll_loop(40, true, 1);
}
END_TEST

static int opens_gate(struct pawl_run *run, void *arg)
{
	gate_open(arg);
	return 0;
}

/*
 * A reader was pushed after the wait gave up: the old position is before it, and is not used.
 */
START_TEST(test_writable_waits_for_a_later_reader)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate w, r;

	gate_write(e, &w, v);
	FAILS(pawl_wait_writable(e, v, 1000, NULL), -ETIMEDOUT, "wait");
	gate_read(e, &r, v);
	/* This wait runs what ends the write, and then the reader's body, which holds the var. */
	OK(push_write(e, opens_gate, &w, var_new(e)));
	FAILS(pawl_wait_writable(e, v, 20000000, NULL), -ETIMEDOUT, "wait");
	MUST(load_acquire(&r.running));
	gate_open(&r);
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Polls with pushes in between leave the position of the first one on each var, and no other. */
START_TEST(test_polls_between_pushes_leave_one_place)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[3] = { var_new(e), var_new(e), var_new(e) };
	struct pawl_stats s = { .size = sizeof(s) };
	struct gate g[3];
	u64 n[3] = { 0 };
	u32 i;

	for (i = 0; i < 3; i++)
		gate_write(e, &g[i], v[i]);
	for (i = 0; i < 600; i++) {
		FAILS(pawl_wait_writable(e, v[i % 3], 1, NULL), -ETIMEDOUT, "wait");
		OK(push_write(e, add_plain, &n[i % 3], v[i % 3]));
	}
	OK(pawl_stats(e, &s));
	ck_assert_uint_le(s.pushed - s.completed, 600 + 2 * 3);
	for (i = 0; i < 3; i++) {
		gate_open(&g[i]);
		OK(pawl_wait_writable(e, v[i], SOON_NS, NULL));
		ck_assert_uint_eq(n[i], 200);
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Polling, and then a wait: the abandoned position is used again. */
START_TEST(test_polling_then_waiting)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	int i, k, rounds = TIMES(300);

	for (i = 0; i < rounds; i++) {
		pawl_var_t v = var_new(e);
		struct gate g;
		u64 n = 0;

		gate_write(e, &g, v);
		for (k = 0; k < i % 4; k++)
			ck_assert_int_eq(pawl_wait_readable(e, v, 1, NULL), -ETIMEDOUT);
		OK(push_write(e, add_plain, &n, v));
		for (k = 0; k < i % 3; k++)
			ck_assert_int_eq(pawl_wait_writable(e, v, 1, NULL), -ETIMEDOUT);
		gate_open(&g);
		OK(pawl_wait_readable(e, v, SOON_NS, NULL));
		ck_assert_uint_eq(n, 1);
		OK(pawl_wait_writable(e, v, SOON_NS, NULL));
		ck_assert_uint_eq(version(e, v), 2);
		OK(pawl_var_delete(e, v, NULL, NULL));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* As the header says, a writable wait has the position of a write, also after its timeout. */
START_TEST(test_timed_out_writable_keeps_its_place)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate a, b;

	gate_read(e, &a, v);
	ck_assert_int_eq(pawl_wait_writable(e, v, MS, NULL), -ETIMEDOUT);
	gate_read(e, &b, v);
	pawl_run_one(e);
	ck_assert(!b.running);
	gate_open(&a);
	while (!b.running)
		ck_assert_int_eq(pawl_run_one(e), 1);
	gate_open(&b);
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(version(e, v), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

struct late_end {
	struct gate g;
	int status;
	u32 seconds;		/* that the body takes */
};

#define SECOND	1000000000ull

static int takes_seconds(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&ahead, *(u32 *)arg * SECOND);
	return 0;
}

static int ends_late(struct pawl_run *run, void *arg)
{
	struct late_end *l = arg;

	takes_seconds(run, &l->seconds);
	MUST(!pawl_complete(run->engine, l->g.token, l->status, l->status ? "disk" : NULL));
	return 0;
}

/*
 * A wait uses the position of an earlier one, and then waits for the write behind it: in what is
 * left of its time, if it has a limit.  The first body that it runs ends the write before that
 * position; after the one that ends when the time has passed it runs nothing more.
 */
START_TEST(test_a_wait_from_an_earlier_position_has_its_time_once)
{
	static const struct { s64 limit; u32 seconds[2]; int status, ran; } how[] = {
		{ 1000, { 1100, 0 }, 0, 0 }, { 1000, { 500, 600 }, 0, 1 },
		{ 1000, { 500, 400 }, 0, 2 }, { 1000, { 500, 400 }, -EIO, 2 },
		{ -1, { 500, 600 }, 0, 2 }, { -1, { 500, 600 }, -EIO, 2 },
	};
	u32 i, write;

	for (i = 0; i < 2 * COUNT(how); i++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
		struct late_end l = { .status = how[i / 2].status,
				      .seconds = how[i / 2].seconds[0] };
		u32 seconds = how[i / 2].seconds[1], behind = 0, other = 0;
		pawl_var_t v = var_new(e);
		u64 was = ahead;

		write = i % 2;
		gate_write(e, &l.g, v);
		FAILS(wait_for[write](e, v, 1, NULL), -ETIMEDOUT);
		OK(push_write(e, add_one, &behind, v));
		OK(push_write(e, ends_late, &l, var_new(e)));
		OK(push_write(e, takes_seconds, &seconds, var_new(e)));
		OK(push_write(e, add_one, &other, var_new(e)));
		ck_assert_int_eq(wait_for[write](e, v, how[i / 2].limit * (s64)SECOND, NULL),
				 how[i / 2].ran < 2 ? -ETIMEDOUT : l.status);
		ck_assert_uint_eq(ahead - was, (l.seconds + (how[i / 2].ran ? seconds : 0)) * SECOND);
		ck_assert_uint_eq(other, how[i / 2].ran == 2);
		ck_assert_uint_eq(behind, how[i / 2].ran == 2 && !l.status);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(wait_for[write](e, v, 0, NULL));
		OK(pawl_engine_destroy(e));
	}
	store_relaxed(&ahead, 0);
}
END_TEST

/*
 * The op of a wait that timed out ends without a body, whatever its object was before; then it
 * gets no property or place from that op, either.
 */
START_TEST(test_the_op_of_a_wait_is_that_of_no_op_before)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_op op = PAWL_OP_INIT;
	u32 i, k, n = 0, waiting;
	struct pawl_engine *e;
	pawl_var_t v[2];
	struct gate g;

	c.cpu_devices = 2;
	e = engine_with(&c);
	v[0] = var_new(e);
	v[1] = var_new(e);
	for (i = 0; i < 6; i++) {
		op = op_write(add_one, &n, &v[1]);
		op.name = "before";
		op.priority = 7;
		op.prop = PAWL_COPY_TO_DEVICE;
		op.device.id = 1;
		for (k = 0; k < 300; k++)
			OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		gate_write(e, &g, v[0]);
		FAILS(wait_for[i % 2](e, v[0], 1, NULL), -ETIMEDOUT);
		for (k = 1, waiting = 0; k <= pool_carved(e->pool[POOL_OP]); k++) {
			struct op *o = op_of(e, k);

			if (!(o->flags & OP_WAITER) ||
			    o->deps[0].var != ((u32)v[0].h | (i % 2 ? DEP_WRITE : 0)) ||
			    (load_relaxed(&o->token) & TOKEN_MASK) != TOKEN_NONE)
				continue;
			waiting++;
			ck_assert_str_eq(o->name, "wait");
			ck_assert(!o->fn && !o->prio && !o->prop && !o->dev);
		}
		ck_assert_uint_ge(waiting, 1);
		gate_open(&g);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, 300 * (i + 1));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A timed-out wait, then the var goes, then its memory is another var. */
START_TEST(test_given_up_place_outlives_nothing)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	int i;

	for (i = 0; i < 500; i++) {
		pawl_var_t v = var_new(e);
		struct gate g;

		gate_write(e, &g, v);
		ck_assert_int_eq((i & 1 ? pawl_wait_readable : pawl_wait_writable)(e, v, 1, NULL),
				 -ETIMEDOUT);
		OK(pawl_var_delete(e, v, NULL, NULL));
		ck_assert_int_eq(pawl_wait_readable(e, v, 1, NULL), -ESTALE);
		gate_open(&g);
		while (pawl_run_one(e))
			;
		OK(pawl_wait_all(e, 0, NULL));
	}
	ck_assert_uint_lt(stats(e).ops, 300);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* What a thread remembers of its waits is freed with the engine, even if it continues. */
START_TEST(test_destroy_frees_what_is_known_of_waits)
{
	enum { N = 300, ROUNDS = 10 };
	size_t before = 0, after;
	u32 i, k;

	for (i = 0; i <= ROUNDS; i++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
		pawl_var_t v[N];
		struct gate g;

		/* after the first round the memory that all engines share exists */
		if (i == 1)
			before = mallinfo2().uordblks;
		for (k = 0; k < N; k++)
			v[k] = var_new(e);
		MUST(!gate_push(e, &g, NULL, 0, v, N));
		for (k = 0; k < N; k++)
			FAILS(pawl_wait_readable(e, v[k], 1, NULL), -ETIMEDOUT);
		gate_open(&g);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_engine_destroy(e));
	}
	after = mallinfo2().uordblks;
	/* more than 16 bytes for each wait */
	ck_assert_msg(after < before + ROUNDS * N * 16 / 2, "%zu bytes remain", after - before);
}
END_TEST

SUITE("wait_again", test_polling_one, test_polling_few, test_polling_many,
      test_writable_waits_for_a_later_reader, test_polls_between_pushes_leave_one_place,
      test_polling_then_waiting, test_timed_out_writable_keeps_its_place,
      test_a_wait_from_an_earlier_position_has_its_time_once,
      test_the_op_of_a_wait_is_that_of_no_op_before, test_given_up_place_outlives_nothing,
      test_destroy_frees_what_is_known_of_waits)
