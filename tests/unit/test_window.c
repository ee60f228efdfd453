// SPDX-License-Identifier: Apache-2.0
/* config.window: what a push does at the limit of ops in flight, by policy. */
#include "util.h"
#include <poll.h>
#include <core/thread.h>

START_TEST(test_window_fail)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	pawl_var_t v;
	u32 n = 0, accepted = 0, i;

	c.window = 16;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	v = var_new(e);
	for (i = 0; i < 100; i++) {
		int rc = push_write(e, add_one, &n, v);

		if (rc) {
			ck_assert_int_eq(rc, -EAGAIN);
			says("push", (const char *const[]){ "push", "window", "16", NULL });
			break;
		}
		accepted++;
	}
	ck_assert_uint_eq(accepted, 16);
	/* Refused without effect, and there is room again when one is complete. */
	ck_assert_int_eq(pawl_run_one(e), 1);
	OK(push_write(e, add_one, &n, v));
	ck_assert_int_eq(push_write(e, add_one, &n, v), -EAGAIN);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 17);
	ck_assert_uint_eq(version(e, v), 17);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_window_fail_small)
{
	u32 w;

	for (w = 1; w < 10; w++) {
		struct pawl_config c = small(PAWL_PER_DEVICE, 0);
		struct pawl_engine *e;
		u32 n = 0, accepted = 0;

		c.window = w;
		c.window_policy = PAWL_WINDOW_FAIL;
		e = engine_with(&c);
		while (accepted < 100 && !push_write(e, add_one, &n, var_new(e)))
			accepted++;
		ck_assert_uint_eq(accepted, w);
		OK(pawl_engine_destroy(e));
		ck_assert_uint_eq(n, w);
	}
}
END_TEST

/* Without workers a push at the window runs ops, so that a program cannot hang. */
START_TEST(test_window_default_zero_workers)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	u64 n = 0;
	pawl_var_t v;
	int i;

	c.window = 8;
	e = engine_with(&c);
	v = var_new(e);
	for (i = 0; i < 500; i++)
		OK(push_write(e, add_plain, &n, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 500);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_window_block)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	u64 n = 0;
	pawl_var_t v;
	int i, rounds = TIMES(20000);

	c.window = 16;
	c.window_policy = PAWL_WINDOW_BLOCK;
	e = engine_with(&c);
	v = var_new(e);
	for (i = 0; i < rounds; i++) {
		OK(push_write(e, add_plain, &n, v));
		/* A push may run ops while the engine is stopped, and no longer. */
		if (i == rounds / 2) {
			OK(pawl_wait_all(e, SOON_NS, NULL));
			OK(pawl_engine_stop(e));
			OK(pawl_engine_start(e));
		}
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, (u64)rounds);
	ck_assert_uint_eq(stats(e).helped, 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A body that pushes more than the window holds, with the only worker: it must help. */
struct flood {
	pawl_var_t v;
	u64 n;
};

static int flood_body(struct pawl_run *run, void *arg)
{
	struct flood *f = arg;
	int i;

	for (i = 0; i < 200; i++)
		MUST(!push_write(run->engine, add_plain, &f->n, f->v));
	return 0;
}

START_TEST(test_window_block_inside_body)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	struct flood f = { { 0 }, 0 };

	c.window = 8;
	c.window_policy = PAWL_WINDOW_BLOCK;
	e = engine_with(&c);
	f.v = var_new(e);
	OK(push_write(e, flood_body, &f, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(f.n, 200);
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * The window belongs to the engine: it does not matter which thread pushed the ops in flight.
 */
static void *push_refused(void *arg)
{
	struct pawl_engine *e = arg;

	MUST(push_write(e, nothing, NULL, var_new(e)) == -EAGAIN);
	MUST(pawl_run_one(e) == 1);
	MUST(!push_write(e, nothing, NULL, var_new(e)));
	MUST(push_write(e, nothing, NULL, var_new(e)) == -EAGAIN);
	return NULL;
}

START_TEST(test_window_is_the_engines)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;

	c.window = 16;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	while (!push_write(e, nothing, NULL, var_new(e)))
		;
	join(spawn(push_refused, e));
	ck_assert_int_eq(push_write(e, nothing, NULL, var_new(e)), -EAGAIN);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Policies that wait keep the number of ops near the window, whichever thread pushes. */
static void *herd_pusher(void *arg)
{
	int i;

	for (i = 0; i < TIMES(3000); i++) {
		struct pawl_stats s;

		MUST(!push_write(arg, nothing, NULL, var_new(arg)));
		s = stats(arg);
		MUST(s.pushed >= s.completed);
	}
	return NULL;
}

START_TEST(test_window_of_many_threads)
{
	int policy;

	for (policy = PAWL_WINDOW_BLOCK; policy <= PAWL_WINDOW_BLOCK; policy++) {
		struct pawl_config c = small(PAWL_PER_DEVICE, policy == PAWL_WINDOW_BLOCK);
		struct pawl_engine *e;
		pthread_t t[3];
		int i;

		c.window = 64;
		c.window_policy = policy;
		e = engine_with(&c);
		for (i = 0; i < 3; i++)
			t[i] = spawn(herd_pusher, e);
		for (i = 0; i < 3; i++)
			join(t[i]);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		/* the window, an eighth of it per thread, and two magazines for each of five */
		ck_assert_uint_le(stats(e).ops, 64 + 3 * 8 + 5 * 2 * 64);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* A thread whose slot another one had before, which pushed more. */
static void *pushes(void *arg)
{
	struct pawl_engine *e = arg;
	pawl_var_t v = var_new(e);
	u32 i;

	for (i = 0; i < 200; i++) {
		MUST(!push_write(e, nothing, NULL, v));
		MUST(stats(e).pushed - stats(e).completed <= 8 + 1);
	}
	return NULL;
}

START_TEST(test_window_of_threads_one_after_the_other)
{
	int policy, i;

	for (policy = PAWL_WINDOW_BLOCK; policy <= PAWL_WINDOW_BLOCK; policy++) {
		struct pawl_config c = small(PAWL_PER_DEVICE, 0);
		struct pawl_engine *e;

		c.window = 8;
		c.window_policy = policy;
		e = engine_with(&c);
		for (i = 0; i < 3; i++)
			join(spawn(pushes, e));
		ck_assert_uint_eq(stats(e).threads, 2);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

static pawl_cq_t cq_new(struct pawl_engine *e, u32 low)
{
	struct pawl_group_limits l = { .size = sizeof(l), .tag = 77, .low = low };

	OK(pawl_cq_create(e, &l.cq));
	OK(pawl_group_limit(e, (pawl_group_t){ 0 }, &l));
	return l.cq;
}

/* Once for any number of refused pushes, when 25 percent of the window are in flight. */
START_TEST(test_window_room_is_reported_at_low_water)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_completion done[4];
	struct pawl_engine *e;
	pawl_cq_t cq;
	int turn, i;

	c.window = 8;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	cq = cq_new(e, 25);
	for (turn = 0; turn < 3; turn++) {
		while (!push_write(e, nothing, NULL, var_new(e)))
			;
		FAILS(push_write(e, nothing, NULL, var_new(e)), -EAGAIN, "config.window");
		ck_assert_int_eq(pawl_cq_reap(e, cq, done, 4), 0);
		FAILS(pawl_wait(e, PAWL_WAIT_ROOM | PAWL_WAIT_NO_HELP, 0, 0, NULL), -ETIMEDOUT);
		for (i = 0; i < 5; i++)
			ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_int_eq(pawl_cq_reap(e, cq, done, 4), 0);
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_int_eq(pawl_cq_reap(e, cq, done, 4), 1);
		ck_assert_uint_eq(done[0].tag, 77);
		ck_assert_int_eq(done[0].status, 0);
		OK(pawl_wait(e, PAWL_WAIT_ROOM | PAWL_WAIT_NO_HELP, 0, 0, NULL));
	}
	/* It had room: nothing was refused, nothing is reported. */
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_int_eq(pawl_cq_reap(e, cq, done, 4), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The same if the push was refused because a pool is empty, below the window. */
START_TEST(test_room_is_reported_after_a_pool_was_used_up)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	pawl_var_t five[5], names[300];
	struct pawl_completion done;
	struct pawl_engine *e;
	struct pawl_op op;
	u32 most, i;
	pawl_cq_t cq;

	c.max_ops = 1 << 14;
	c.window = 20;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	cq = cq_new(e, 25);
	for (i = 0; i < 5; i++)
		five[i] = var_new(e);
	/* The number of names decides which pool it uses. */
	for (i = 0; i < COUNT(names); i++)
		names[i] = five[i % 5];
	op = op_of_fn(nothing, NULL);
	op.reads = names;
	op.nreads = COUNT(names);
	most = e->pool[POOL_EXT2]->max;
	ck_assert_uint_lt(most, c.window);
	for (i = 0; i < most; i++)
		OK(pawl_push(e, &op));
	FAILS(pawl_push(e, &op), -EAGAIN, "pool");
	ck_assert_int_eq(pawl_cq_reap(e, cq, &done, 1), 0);
	FAILS(pawl_wait(e, PAWL_WAIT_ROOM | PAWL_WAIT_NO_HELP, 0, 0, NULL), -ETIMEDOUT);
	for (; i > 5; i--) {
		ck_assert_int_eq(pawl_cq_reap(e, cq, &done, 1), 0);
		ck_assert_int_eq(pawl_run_one(e), 1);
	}
	ck_assert_int_eq(pawl_cq_reap(e, cq, &done, 1), 1);
	ck_assert_uint_eq(done.tag, 77);
	OK(pawl_wait(e, PAWL_WAIT_ROOM | PAWL_WAIT_NO_HELP, 0, 0, NULL));
	OK(pawl_push(e, &op));
	OK(pawl_engine_destroy(e));
}
END_TEST

static int until_refused(struct pawl_run *run, void *arg)
{
	u32 *refused = arg;

	MUST(soon(load_acquire(refused)));
	return 0;
}

/* A loop that sleeps until the queue's descriptor is readable continues after each refusal. */
static void room_in_event_loop(u32 window)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	u32 refused = 0, rounds = (u32)TIMES(20000), i;
	struct pawl_completion done;
	struct pawl_engine *e;
	struct pollfd fd;
	pawl_var_t v[4];
	u64 n[4] = { 0 };
	pawl_cq_t cq;
	int rc;

	c.window = window;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	cq = cq_new(e, 0);
	fd = (struct pollfd){ .fd = pawl_cq_fd(e, cq), .events = POLLIN };
	ck_assert_int_ge(fd.fd, 0);
	for (i = 0; i < 4; i++)
		v[i] = var_new(e);
	/* it fills the window however fast the workers are */
	OK(push_write(e, until_refused, &refused, v[0]));
	for (i = 0; i < rounds; i++) {
		while ((rc = push_write(e, add_plain, &n[i % 4], v[i % 4])) == -EAGAIN) {
			store_release(&refused, 1);
			ck_assert_int_eq(poll(&fd, 1, (int)(SOON_NS / 1000000)), 1);
			ck_assert_int_eq(pawl_cq_reap(e, cq, &done, 1), 1);
			ck_assert_uint_eq(done.tag, 77);
		}
		OK(rc);
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n[0] + n[1] + n[2] + n[3], rounds);
	ck_assert_uint_eq(refused, 1);
	OK(pawl_engine_destroy(e));
}

START_TEST(test_no_window_room_is_lost_in_an_event_loop)
{
	room_in_event_loop(1);
	room_in_event_loop(2);
	room_in_event_loop(16);
}
END_TEST

/* The same by PAWL_WAIT_ROOM of the engine, by several threads that do not help. */
static void *wait_for_room(void *arg)
{
	struct pawl_engine *e = arg;
	pawl_var_t v = var_new(e);
	int i, rc;

	for (i = 0; i < TIMES(5000); i++) {
		while ((rc = push_write(e, nothing, NULL, v)) == -EAGAIN)
			MUST(!pawl_wait(e, PAWL_WAIT_ROOM | PAWL_WAIT_NO_HELP, 0, SOON_NS, NULL));
		MUST(!rc);
	}
	return NULL;
}

START_TEST(test_threads_wait_for_room_in_the_window)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	pthread_t t[3];
	u32 i;

	c.window = 4;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	for (i = 0; i < COUNT(t); i++)
		t[i] = spawn(wait_for_room, e);
	for (i = 0; i < COUNT(t); i++)
		join(t[i]);
	ck_assert_uint_eq(stats(e).helped, 0);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A body's own op is in flight, so it does not wait for others. */
static int body_wants_room(struct pawl_run *run, void *arg)
{
	return pawl_wait(run->engine, PAWL_WAIT_ROOM, 0, SOON_NS, NULL);
}

START_TEST(test_a_body_does_not_wait_for_the_window)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;

	c.window = 1;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	OK(push_write(e, body_wants_room, NULL, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* It waits for the cost, though.  A wait for all that runs the body is still woken after it. */
struct cost_wait {
	struct gate g;
	struct thread *t;	/* A: the thread that waits for all, when the body has ended */
};

static int body_wants_cost(struct pawl_run *run, void *arg)
{
	struct cost_wait *w = arg;

	MUST(pawl_wait(run->engine, PAWL_WAIT_ROOM, 0, 1000, NULL) == -ETIMEDOUT);
	store_release(&w->t, thread_get(run->engine));
	return 0;
}

static void *open_behind(void *arg)
{
	struct cost_wait *w = arg;

	MUST(soon(load_acquire(&w->t)));
	/* 1 + the number of ops in flight for which it waits; none, for a wait for all. */
	MUST(soon(load_relaxed(&w->t->waits_flight) == 1));
	gate_open(&w->g);
	return NULL;
}

START_TEST(test_a_wait_for_all_is_woken_after_a_body_that_waited_for_room)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_group_limits l = { .size = sizeof(l), .cost = 2 };
	struct pawl_op op = op_of_fn(NULL, NULL);
	struct cost_wait w = { .g.e = e };
	pthread_t t;

	OK(pawl_group_limit(e, (pawl_group_t){ 0 }, &l));
	op.async_fn = gate_body;
	op.arg = &w.g;
	op.flags = PAWL_OP_COST;
	op.cost = 2;
	OK(pawl_push(e, &op));
	op = op_of_fn(body_wants_cost, &w);
	OK(pawl_push(e, &op));
	t = spawn(open_behind, &w);
	OK(pawl_wait_all(e, -1, NULL));
	join(t);
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("window", test_window_fail, test_window_fail_small,
      test_window_default_zero_workers, test_window_block, test_window_block_inside_body,
      test_window_is_the_engines, test_window_of_many_threads,
      test_window_of_threads_one_after_the_other,
      test_window_room_is_reported_at_low_water,
      test_room_is_reported_after_a_pool_was_used_up,
      test_no_window_room_is_lost_in_an_event_loop, test_threads_wait_for_room_in_the_window,
      test_a_body_does_not_wait_for_the_window,
      test_a_wait_for_all_is_woken_after_a_body_that_waited_for_room)
