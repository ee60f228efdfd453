// SPDX-License-Identifier: Apache-2.0
/* core/engine.c: stop, start and destruction. */
#include "util.h"
#include "threads.h"

/* Ops that run may still push: all of what they push runs too. */
struct chain {
	struct pawl_engine *e;
	pawl_var_t v;
	u32 left;	/* A */
	u32 ran;	/* A */
};

static int chain_body(struct pawl_run *run, void *arg)
{
	struct chain *c = arg;
	u32 left = load_relaxed(&c->left);

	fetch_add_relaxed(&c->ran, 1);
	if (!left)
		return 0;
	store_relaxed(&c->left, left - 1);
	MUST(!push_write(c->e, chain_body, c, c->v));
	return 0;
}

START_TEST(test_destroy_while_ops_push)
{
	int kind, w;

	for (kind = 0; kind < 3; kind++)
		for (w = 0; w < 3; w++) {
			struct pawl_engine *e = engine(kind, w);
			struct chain c = { e, var_new(e), 500, 0 };

			OK(push_write(e, chain_body, &c, c.v));
			OK(pawl_engine_destroy(e));
			ck_assert_uint_eq(c.ran, 501);
		}
}
END_TEST

static int destroy_body(struct pawl_run *run, void *arg)
{
	int *rc = arg;

	rc[0] = pawl_engine_destroy(run->engine);
	rc[1] = pawl_engine_stop(run->engine);
	rc[2] = pawl_engine_start(run->engine);
	MUST(strstr(pawl_error_text(), "inside an op"));
	return 0;
}

START_TEST(test_destroy_inside_body)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		int rc[3] = { 0 };

		OK(push_write(e, destroy_body, rc, var_new(e)));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_int_eq(rc[0], -EDEADLK);
		ck_assert_int_eq(rc[1], -EDEADLK);
		ck_assert_int_eq(rc[2], -EDEADLK);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

START_TEST(test_stop_drains)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	pawl_var_t v = var_new(e);
	u64 n = 0;
	int i;

	for (i = 0; i < 1000; i++)
		OK(push_write(e, add_plain, &n, v));
	OK(pawl_engine_stop(e));
	ck_assert_uint_eq(n, 1000);
	ck_assert_uint_eq(stats(e).workers, 0);
	OK(pawl_engine_stop(e));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_stop_keeps_pushes)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	pawl_var_t v = var_new(e);
	u32 n = 0, before;
	int i;

	OK(push_write(e, add_one, &n, v));
	OK(pawl_engine_stop(e));
	before = threads_now();
	for (i = 0; i < 10; i++)
		OK(push_write(e, add_one, &n, v));
	nap_us(2000);
	ck_assert_uint_eq(load_acquire(&n), 1);
	ck_assert_uint_eq(threads_now(), before);
	/* start: the workers take what waits, without a further push */
	OK(pawl_engine_start(e));
	ck_assert(soon(load_acquire(&n) == 11));
	OK(pawl_engine_start(e));
	/* stopped, and a waiting thread runs them */
	OK(pawl_engine_stop(e));
	OK(push_write(e, add_one, &n, v));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(n, 12);
	/* destroy drains a stopped engine too */
	OK(push_write(e, add_one, &n, v));
	OK(pawl_engine_destroy(e));
	ck_assert_uint_eq(n, 13);
}
END_TEST

START_TEST(test_stop_start_many)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	pawl_var_t v = var_new(e);
	u64 n = 0;
	int i, rounds = TIMES(200);

	for (i = 0; i < rounds; i++) {
		OK(push_write(e, add_plain, &n, v));
		OK(pawl_engine_stop(e));
		ck_assert_uint_eq(n, 2 * (u64)i + 1);
		OK(push_write(e, add_plain, &n, v));
		OK(pawl_engine_start(e));
		OK(pawl_wait_readable(e, v, SOON_NS, NULL));
		ck_assert_uint_eq(n, 2 * (u64)i + 2);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_stop_naive_and_pooled)
{
	int kind;

	for (kind = PAWL_POOLED; kind <= PAWL_NAIVE; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		u32 n = 0;

		OK(push_write(e, add_one, &n, var_new(e)));
		OK(pawl_engine_stop(e));
		ck_assert_uint_eq(n, 1);
		OK(pawl_engine_start(e));
		OK(push_write(e, add_one, &n, var_new(e)));
		OK(pawl_engine_destroy(e));
		ck_assert_uint_eq(n, 2);
	}
}
END_TEST

/* Stop waits for an asynchronous op that another thread completes. */
static void *late_completer(void *arg)
{
	nap_us(3000);
	gate_open(arg);
	return NULL;
}

START_TEST(test_stop_waits_for_async)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	struct gate g;
	pthread_t t;

	gate_write(e, &g, var_new(e));
	t = spawn(late_completer, &g);
	OK(pawl_engine_stop(e));
	ck_assert_uint_eq(stats(e).completed, stats(e).pushed);
	join(t);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* All threads that call stop or start return, and the engine works afterwards. */
struct stops {
	struct pawl_engine *e;
	u32 starts;
	u32 go;			/* A */
};

static void *stop_or_start(void *arg)
{
	struct stops *s = arg;
	u32 me = fetch_add_relaxed(&s->go, 1), i, n = 0;

	for (i = 0; i < TIMES(300); i++) {
		MUST(!push_write(s->e, add_one, &n, var_new(s->e)));
		if (me < s->starts && i % 2)
			MUST(!pawl_engine_start(s->e));
		else
			MUST(!pawl_engine_stop(s->e));
	}
	MUST(!pawl_engine_start(s->e));
	MUST(!pawl_wait_all(s->e, -1, NULL));
	MUST(load_relaxed(&n) == i);
	return NULL;
}

START_TEST(test_stops_and_starts_in_several_threads)
{
	struct stops s = { 0 };
	pthread_t t[4];
	u32 i;

	for (s.starts = 0; s.starts < 4; s.starts += 2) {
		s.e = engine(PAWL_PER_DEVICE, 2);
		s.go = 0;
		for (i = 0; i < COUNT(t); i++)
			t[i] = spawn(stop_or_start, &s);
		for (i = 0; i < COUNT(t); i++)
			join(t[i]);
		OK(pawl_engine_destroy(s.e));
	}
}
END_TEST

/* A worker that ends runs the destructors of its thread's data, and those may push. */
static pthread_key_t key;

static void pushes_at_its_end(void *arg)
{
	release_pushes(arg, 0);
}

static int sets_key(struct pawl_run *run, void *arg)
{
	MUST(!pthread_setspecific(key, arg));
	return 0;
}

START_TEST(test_destroy_runs_what_its_workers_push_at_their_end)
{
	struct again a = { .e = engine(PAWL_PER_DEVICE, 1) };

	a.v = var_new(a.e);
	OK(pthread_key_create(&key, pushes_at_its_end));
	OK(push_write(a.e, sets_key, &a, a.v));
	/* The worker runs it: this thread does not help. */
	OK(pawl_wait(a.e, PAWL_WAIT_ALL | PAWL_WAIT_NO_HELP, 0, SOON_NS, NULL));
	OK(pawl_engine_destroy(a.e));
	ck_assert_uint_eq(a.n, 1);
	OK(pthread_key_delete(key));
}
END_TEST

SUITE("stop", test_destroy_while_ops_push, test_destroy_inside_body, test_stop_drains,
      test_stop_keeps_pushes, test_stop_start_many, test_stop_naive_and_pooled,
      test_stop_waits_for_async, test_stops_and_starts_in_several_threads,
      test_destroy_runs_what_its_workers_push_at_their_end)
