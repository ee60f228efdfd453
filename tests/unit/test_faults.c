// SPDX-License-Identifier: Apache-2.0
/*
 * The known faults of MXNet's engine (Documentation/mxnet.md) do not occur.  F12 and F13
 * concern devices and are tested in tests/device; only their copies on a CPU are tested here.
 */
#include "util.h"
#include "child.h"
#include <core/thread.h>

#define MS 1000000ll

/*
 * F1.  The original appends an op to its vars one by one.  Two threads that push ops on
 * the same two vars can get in between each other, so that each op is first on one var
 * and second on the other, and neither ever runs; in the same var order too.
 */
struct f1 {
	struct pawl_engine *e;
	pawl_var_t v[2];
	u64 n[2];
	u32 ids;	/* A */
	u32 rounds;
	bool opposite;
};

static int f1_body(struct pawl_run *run, void *arg)
{
	struct f1 *f = arg;

	f->n[0]++;
	f->n[1]++;
	return 0;
}

static void *f1_pusher(void *arg)
{
	struct f1 *f = arg;
	bool turn = fetch_add_relaxed(&f->ids, 1) & 1 && f->opposite;
	pawl_var_t list[2] = { f->v[turn], f->v[!turn] };
	u32 i;

	for (i = 0; i < f->rounds; i++) {
		struct pawl_op op = op_of_fn(f1_body, f);

		op.writes = list;
		op.nwrites = 2;
		MUST(!pawl_push(f->e, &op));
	}
	return NULL;
}

START_TEST(test_F1_two_pushers_share_two_vars)
{
	int opposite, i;

	for (opposite = 0; opposite < 2; opposite++) {
		struct f1 f = { .e = engine(PAWL_PER_DEVICE, 2), .opposite = opposite,
				.rounds = (u32)TIMES(50000) };
		pthread_t t[2];

		f.v[0] = var_new(f.e);
		f.v[1] = var_new(f.e);
		for (i = 0; i < 2; i++)
			t[i] = spawn(f1_pusher, &f);
		for (i = 0; i < 2; i++)
			join(t[i]);
		OK(pawl_wait_all(f.e, SOON_NS, NULL));
		for (i = 0; i < 2; i++) {
			ck_assert_uint_eq(f.n[i], 2ull * f.rounds);
			ck_assert_uint_eq(version(f.e, f.v[i]), 2ull * f.rounds);
		}
		OK(pawl_engine_destroy(f.e));
	}
}
END_TEST

/*
 * F2.  The same var twice among the mutable ones, or const and mutable at once: the
 * original's op waits for itself (it checks only when built for debugging).  Here a var
 * named twice is one access, and a write wins.
 */
START_TEST(test_F2_same_var_twice)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_var_t v = var_new(e), w = var_new(e);
		struct pawl_op op;
		u64 n = 0;

		op = op_of_fn(add_plain, &n);
		op.writes = VARS(v, w, v, v);
		op.nwrites = 4;
		OK(pawl_push(e, &op));
		op.reads = VARS(w, v);
		op.nreads = 2;
		OK(pawl_push(e, &op));
		op.writes = &w;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, 3);
		ck_assert_uint_eq(version(e, v), 2);
		ck_assert_uint_eq(version(e, w), 3);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/*
 * F3.  The original's WaitForVar is an op in the CPU's queue: from inside an op, with one
 * worker, it waits for the worker that it occupies; it is late by whatever is queued in
 * front; and each end of any op wakes all who wait for anything.
 */
struct f3 {
	struct pawl_engine *e;
	pawl_var_t v;
	u64 n;
	u32 done;	/* A */
};

static int f3_body(struct pawl_run *run, void *arg)
{
	struct f3 *f = arg;

	MUST(!push_write(run->engine, add_plain, &f->n, f->v));
	MUST(!pawl_wait_readable(run->engine, f->v, SOON_NS, NULL));
	MUST(f->n == 1);
	return 0;
}

START_TEST(test_F3_wait_inside_op_with_one_worker)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	struct f3 f = { 0 };
	pawl_var_t w;

	e = engine_with(&c);
	f.v = var_new(e);
	w = var_new(e);
	OK(push_write(e, f3_body, &f, w));
	OK(pawl_wait_readable(e, w, SOON_NS, NULL));
	ck_assert_uint_eq(f.n, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The worker is busy, and a thousand ops are in front: a wait for a var that is ready. */
START_TEST(test_F3_wait_does_not_queue)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	pawl_var_t v;
	struct plug p;
	struct gate g;
	u32 n = 0;
	int i;

	e = engine_with(&c);
	v = var_new(e);
	gate_write(e, &g, v);
	plug_in(e, &p, PAWL_NORMAL);
	for (i = 0; i < 1000; i++)
		OK(push_write(e, add_one, &n, var_new(e)));
	gate_open(&g);
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(load_acquire(&n), 0);		/* none of them had to run for it */
	plug_out(&p);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 1000);
	OK(pawl_engine_destroy(e));
}
END_TEST

static void *f3_sleeper(void *arg)
{
	struct f3 *f = arg;

	MUST(!pawl_wait_readable(f->e, f->v, -1, NULL));
	store_release(&f->done, 1);
	return NULL;
}

static u64 sleeps_of(struct pawl_engine *e, u32 slot)
{
	return load_relaxed(&thread_of(e, slot)->ex.sleeps);
}

START_TEST(test_F3_ends_wake_only_their_waiter)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct f3 f = { 0 };
	struct gate g;
	pthread_t t;
	u64 before;
	u32 n = 0;
	int i;

	c.spin_ns = 0;
	f.e = engine_with(&c);
	f.v = var_new(f.e);
	gate_write(f.e, &g, f.v);
	t = spawn(f3_sleeper, &f);
	MUST(soon(stats(f.e).sleeps >= 1));
	nap_us(5000);
	/* Other vars' ops end, with the engine idle in between. */
	before = sleeps_of(f.e, 1) + sleeps_of(f.e, 0);
	for (i = 0; i < 50; i++) {
		OK(push_write(f.e, add_one, &n, var_new(f.e)));
		MUST(soon(load_acquire(&n) == (u32)i + 1));
	}
	/* The sleeper's slot is 1, or 0 was it: neither slept again. */
	ck_assert_uint_eq(sleeps_of(f.e, 1) + sleeps_of(f.e, 0), before);
	ck_assert_uint_eq(load_acquire(&f.done), 0);
	gate_open(&g);
	join(t);
	ck_assert_uint_eq(f.done, 1);
	OK(pawl_engine_destroy(f.e));
}
END_TEST

/*
 * F4.  The original's list of exceptions grows without a lock, and clearing one races
 * with the ops that read it.  Here: workers fail at once, while others take and clear
 * (the sanitizers watch), and no failure is lost.
 */
struct f4 {
	struct pawl_engine *e;
	pawl_var_t v[4];
	u32 stop;	/* A */
};

static void *f4_clearer(void *arg)
{
	struct f4 *f = arg;
	u32 i = 0;

	while (!load_acquire(&f->stop)) {
		pawl_var_t v = f->v[i++ % 4];
		struct pawl_error err;
		int rc = i % 3 ? pawl_var_error(f->e, v, &err) :
			 i % 2 ? pawl_var_clear(f->e, v) :
				 pawl_wait_readable(f->e, v, 1000, &err);

		MUST(rc == 0 || rc == -EIO || rc == -ETIMEDOUT);
	}
	return NULL;
}

START_TEST(test_F4_errors_from_many_threads)
{
	struct f4 f = { .e = engine(PAWL_PER_DEVICE, 3) };
	int i, rounds = TIMES(20000);
	struct pawl_error err;
	pthread_t t;

	for (i = 0; i < 4; i++)
		f.v[i] = var_new(f.e);
	t = spawn(f4_clearer, &f);
	for (i = 0; i < rounds; i++)
		OK(push_write(f.e, i % 3 ? nothing : fail_io, NULL, f.v[i % 4]));
	store_release(&f.stop, 1);
	join(t);
	pawl_wait_all(f.e, SOON_NS, NULL);
	/* All at once, without taking any: all are counted. */
	for (i = 0; i < 1000; i++)
		OK(push_write(f.e, fail_io, NULL, var_new(f.e)));
	ck_assert_int_eq(pawl_wait_all(f.e, SOON_NS, &err), -EIO);
	ck_assert_uint_eq(err.count, 1000);
	OK(pawl_engine_destroy(f.e));
}
END_TEST

/*
 * F5.  An error raised after on_complete touches a freed op in the original, and completes
 * it twice.  Here the second completion is refused, with whatever status.
 */
static void f5_body(struct pawl_run *run, void *arg)
{
	pawl_var_t *v = arg;
	pawl_token_t t = run->token;

	MUST(!pawl_complete(run->engine, t, 0, NULL));
	/* The op is another one's by now. */
	MUST(!push_write(run->engine, nothing, NULL, *v));
	MUST(pawl_complete(run->engine, t, -EIO, "too late") == -EALREADY);
	MUST(pawl_complete(run->engine, t, 0, NULL) == -EALREADY);
	pawl_fail(run, -EIO, "too late as well");
}

START_TEST(test_F5_error_after_completion)
{
	int w, i;

	for (w = 0; w < 2; w++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, w);
		pawl_var_t v = var_new(e);
		struct pawl_op op = PAWL_OP_INIT;

		op.async_fn = f5_body;
		op.arg = &v;
		op.writes = &v;
		op.nwrites = 1;
		for (i = 0; i < 200; i++)
			OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		/* the last body may be between its completion and its push */
		ck_assert(soon(version(e, v) == 400));
		ck_assert_uint_eq(stats(e).failed, 0);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/*
 * F7.  The original's Stop kills the queues, so that what is in them is dropped and a wait
 * for it never ends; its destructor does not drain.
 */
START_TEST(test_F7_stop_and_destroy_drain)
{
	int kind, i;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 2);
		pawl_var_t v = var_new(e);
		u64 n = 0;

		for (i = 0; i < 3000; i++)
			OK(push_write(e, add_plain, &n, v));
		OK(pawl_engine_stop(e));
		ck_assert_uint_eq(n, 3000);
		for (i = 0; i < 3000; i++)
			OK(push_write(e, add_plain, &n, v));
		/* a wait on a stopped engine ends */
		OK(pawl_wait_readable(e, v, SOON_NS, NULL));
		ck_assert_uint_eq(n, 6000);
		OK(pawl_engine_start(e));
		for (i = 0; i < 3000; i++)
			OK(push_write(e, add_plain, &n, v));
		OK(pawl_engine_destroy(e));
		ck_assert_uint_eq(n, 9000);
	}
}
END_TEST

/*
 * F8.  The original's naive engine counts the version of a var that DeleteVariable has just
 * freed.  Here (and under the address sanitizer): the memory is given to the next var,
 * whose version is its own.
 */
START_TEST(test_F8_naive_delete)
{
	struct pawl_engine *e = engine(PAWL_NAIVE, 0);
	int i;

	for (i = 0; i < 1000; i++) {
		pawl_var_t v = var_new(e);

		ck_assert_uint_eq(version(e, v), 0);
		OK(push_write(e, nothing, NULL, v));
		ck_assert_uint_eq(version(e, v), 1);
		OK(pawl_var_delete(e, v, nothing, NULL));
		v = var_new(e);
		ck_assert_uint_eq(version(e, v), 0);
		OK(pawl_var_delete(e, v, NULL, NULL));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * F9.  A fork from a worker leaves the child with an engine without threads, whose calls
 * hang.  Here the child's calls are refused, destroy is safe, and a new engine works.
 */
static int f9_body(struct pawl_run *run, void *arg)
{
	pid_t pid = child_fork();

	if (!pid) {
		struct pawl_engine *mine = NULL;
		struct pawl_op op = op_of_fn(nothing, NULL);
		u32 n = 0;

		if (pawl_push(run->engine, &op) != -EOWNERDEAD)
			_exit(1);
		if (pawl_wait_all(run->engine, -1, NULL) != -EOWNERDEAD)
			_exit(2);
		if (pawl_engine_create(NULL, &mine))
			_exit(3);
		if (push_write(mine, add_one, &n, var_new(mine)) ||
		    pawl_wait_all(mine, SOON_NS, NULL) || n != 1)
			_exit(4);
		if (pawl_engine_destroy(mine))
			_exit(5);
		if (pawl_engine_destroy(run->engine))
			_exit(6);
		_exit(0);
	}
	*(int *)arg = child_wait(pid);
	return 0;
}

START_TEST(test_F9_fork_from_a_worker)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	int status = -1;
	u32 n = 0;

	if (THREAD_SANITIZED)
		return;		/* it does not let such a child make threads */
	e = engine_with(&c);
	workers_up(e, 1);
	OK(push_write(e, f9_body, &status, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "the child: %#x", status);
	OK(push_write(e, add_one, &n, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * F10.  DeleteOperator is an op on the operator's vars; with no vars it runs at once in the
 * original, and frees the operator under a run that is in flight.
 */
struct f10 {
	u32 in, out;	/* A */
	u32 released;	/* A */
};

static int f10_body(struct pawl_run *run, void *arg)
{
	struct f10 *f = arg;

	store_release(&f->in, 1);
	MUST(soon(load_acquire(&f->out)));
	MUST(!load_acquire(&f->released));
	return 0;
}

static void f10_release(void *arg, int status)
{
	fetch_add_relaxed(&((struct f10 *)arg)->released, 1);
}

START_TEST(test_F10_delete_operator_in_flight)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	struct f10 f = { 0 };
	struct pawl_op op = op_of_fn(f10_body, &f);
	pawl_graph_t o;

	e = engine_with(&c);
	op.release = f10_release;
	OK(pawl_graph_create(e, &op, 1, 0, &o));
	OK(pawl_graph_push(e, o, NULL));
	OK(pawl_graph_push(e, o, NULL));
	MUST(soon(load_acquire(&f.in)));
	OK(pawl_graph_delete(e, o));
	ck_assert_uint_eq(load_acquire(&f.released), 0);
	store_release(&f.out, 1);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(f.released, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * F11.  The original ignores priority in its normal queues, and orders equal priorities by
 * chance.  Here each queue is exact; more in test_priority.c.
 */
START_TEST(test_F11_priority_in_normal_queue)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct record *r = calloc(1, sizeof(*r));
	struct pawl_engine *e;
	struct note n[300];
	struct plug p;
	u32 i;

	e = engine_with(&c);
	plug_in(e, &p, PAWL_NORMAL);
	for (i = 0; i < 300; i++) {
		struct pawl_op op = op_of_fn(take_note, &n[i]);

		n[i] = (struct note){ r, i };
		op.priority = (s32)(i % 3) - 1;
		OK(pawl_push(e, &op));
	}
	plug_out(&p);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < 300; i++)
		ck_assert_uint_eq(r->id[i], 3 * (i % 100) + 2 - i / 100);
	OK(pawl_engine_destroy(e));
	free(r);
}
END_TEST

/* F12 as far as a CPU has it: one direction's copies do not wait for the other's. */
START_TEST(test_F12_copy_directions_are_apart)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	struct pawl_op op;
	struct plug p;
	u32 n = 0;

	e = engine_with(&c);
	plug_in(e, &p, PAWL_COPY_FROM_DEVICE);
	op = op_of_fn(add_one, &n);
	op.prop = PAWL_COPY_TO_DEVICE;
	OK(pawl_push(e, &op));
	ck_assert(soon(load_acquire(&n) == 1));
	plug_out(&p);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("faults", test_F1_two_pushers_share_two_vars, test_F2_same_var_twice,
      test_F3_wait_inside_op_with_one_worker, test_F3_wait_does_not_queue,
      test_F3_ends_wake_only_their_waiter, test_F4_errors_from_many_threads,
      test_F5_error_after_completion,
      test_F7_stop_and_destroy_drain, test_F8_naive_delete, test_F9_fork_from_a_worker,
      test_F10_delete_operator_in_flight, test_F11_priority_in_normal_queue,
      test_F12_copy_directions_are_apart)
