// SPDX-License-Identifier: Apache-2.0
/* The naive engine: every op runs inside its push. */
#include "util.h"
#include <core/engine.h>
#include <core/thread.h>

START_TEST(test_runs_inside_push)
{
	struct pawl_engine *e = engine(PAWL_NAIVE, 4);	/* workers do not matter */
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_op op;
	u64 n = 0;
	int p;

	for (p = PAWL_NORMAL; p <= PAWL_NO_SKIP; p++) {
		op = op_of_fn(add_plain, &n);
		op.prop = (u16)p;
		op.priority = p * 1000 - 4000;
		op.reads = &v;
		op.nreads = 1;
		op.writes = &w;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		ck_assert_uint_eq(n, (u64)p + 1);
		ck_assert_uint_eq(version(e, w), (u64)p + 1);
	}
	ck_assert_uint_eq(stats(e).workers, 0);
	OK(pawl_wait_all(e, 0, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

static int same_thread(struct pawl_run *run, void *arg)
{
	MUST(pthread_equal(*(pthread_t *)arg, pthread_self()));
	return 0;
}

START_TEST(test_on_the_caller)
{
	struct pawl_engine *e = engine(PAWL_NAIVE, 2);
	pthread_t self = pthread_self();
	int i;

	for (i = 0; i < 100; i++)
		OK(push_write(e, same_thread, &self, var_new(e)));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The push blocks until an asynchronous body was completed. */
struct late {
	struct pawl_engine *e;
	u64 token;	/* A */
	u32 before;	/* A: completion began */
};

static void late_body(struct pawl_run *run, void *arg)
{
	store_release(&((struct late *)arg)->token, run->token.h);
}

static void *late_thread(void *arg)
{
	struct late *l = arg;

	MUST(soon(load_acquire(&l->token)));
	nap_us(3000);
	store_release(&l->before, 1);
	MUST(!pawl_complete(l->e, (pawl_token_t){ l->token }, 0, NULL));
	return NULL;
}

START_TEST(test_async_blocks_the_push)
{
	struct late l = { .e = engine(PAWL_NAIVE, 0) };
	struct pawl_op op = PAWL_OP_INIT;
	pawl_var_t v = var_new(l.e);
	pthread_t t = spawn(late_thread, &l);

	op.async_fn = late_body;
	op.arg = &l;
	op.writes = &v;
	op.nwrites = 1;
	OK(pawl_push(l.e, &op));
	ck_assert_uint_eq(load_acquire(&l.before), 1);
	ck_assert_uint_eq(version(l.e, v), 1);
	join(t);
	OK(pawl_engine_destroy(l.e));
}
END_TEST

/* Errors reach the var, and waits return them; everything else is as in the other engines. */
START_TEST(test_errors)
{
	struct pawl_engine *e = engine(PAWL_NAIVE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_op op = op_of_fn(nothing, NULL);
	struct pawl_error err;
	u32 n = 0;

	OK(push_write(e, fail_io, NULL, v));
	ck_assert_int_eq(pawl_var_error(e, v, NULL), -EIO);
	op.fn = add_one;
	op.arg = &n;
	op.reads = &v;
	op.nreads = 1;
	op.writes = &w;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(pawl_wait_readable(e, w, 0, &err), -EIO);
	ck_assert_str_eq(err.text, "disk on fire");
	OK(pawl_wait_all(e, 0, &err));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A body pushes: these ops are complete when the outermost push returns. */
struct inner {
	pawl_var_t v;
	u32 n;		/* A */
	u32 depth;
};

static int inner_body(struct pawl_run *run, void *arg)
{
	struct inner *s = arg;

	if (fetch_add_relaxed(&s->n, 1) < 100)
		MUST(!push_write(run->engine, inner_body, s, s->v));
	return 0;
}

START_TEST(test_nested)
{
	struct pawl_engine *e = engine(PAWL_NAIVE, 0);
	struct inner s = { var_new(e), 0, 0 };

	OK(push_write(e, inner_body, &s, s.v));	/* the same var: behind its own op */
	ck_assert_uint_eq(s.n, 101);
	ck_assert_uint_eq(version(e, s.v), 101);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* release may push too. */
START_TEST(test_release_pushes)
{
	struct pawl_engine *e = engine(PAWL_NAIVE, 0);
	struct again a = { e, var_new(e), 0 };
	struct pawl_op op = op_write(nothing, &a, &a.v);

	alarm(20);		/* a push that waits for the op around it would never end */
	op.release = release_pushes;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(a.n, 1);
	alarm(0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * Several threads: each op runs on the thread that pushed it, also inside a wait of its body, and is
 * complete when its push returns; writes exclude.
 */
struct team {
	struct pawl_engine *e;
	pawl_var_t v[3];
	u64 n[3];
	u32 ids;	/* A */
	u32 rounds;
};

struct step {
	struct team *t;
	pthread_t self;
	pawl_var_t own;
	u32 k;
	u32 ran;	/* A */
};

static int step_body(struct pawl_run *run, void *arg)
{
	struct step *s = arg;

	MUST(pthread_equal(s->self, pthread_self()));
	sched_yield();		/* the others push meanwhile */
	s->t->n[s->k]++;
	s->t->n[(s->k + 1) % 3]++;
	if (s->own.h) {
		MUST(!push_write(run->engine, same_thread, &s->self, s->own));
		MUST(!pawl_wait_readable(run->engine, s->own, s->k ? -1 : SOON_NS, NULL));
	}
	store_release(&s->ran, 1);
	return 0;
}

static void *team_thread(void *arg)
{
	struct team *t = arg;
	u64 seed = fetch_add_relaxed(&t->ids, 1);
	pawl_var_t own = var_new(t->e);
	u32 i;

	for (i = 0; i < t->rounds; i++) {
		struct step s = { t, pthread_self(), i % 2 ? own : (pawl_var_t){ 0 },
				  (u32)(rnd(&seed) % 3), 0 };
		pawl_var_t two[2] = { t->v[s.k], t->v[(s.k + 1) % 3] };
		struct pawl_op op = op_of_fn(step_body, &s);

		op.writes = two;
		op.nwrites = 2;
		MUST(!pawl_push(t->e, &op));
		MUST(load_acquire(&s.ran));	/* it is on our stack */
	}
	return NULL;
}

START_TEST(test_a_push_runs_its_own_ops_and_no_others)
{
	struct team t = { .e = engine(PAWL_NAIVE, 0), .rounds = (u32)TIMES(5000) };
	pthread_t th[3];
	int i;

	for (i = 0; i < 3; i++)
		t.v[i] = var_new(t.e);
	for (i = 0; i < 3; i++)
		th[i] = spawn(team_thread, &t);
	for (i = 0; i < 3; i++)
		join(th[i]);
	ck_assert_uint_eq(t.n[0] + t.n[1] + t.n[2], 6ull * t.rounds);
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(version(t.e, t.v[i]), t.n[i]);
	OK(pawl_engine_destroy(t.e));
}
END_TEST

START_TEST(test_delete)
{
	struct pawl_engine *e = engine(PAWL_NAIVE, 0);
	u32 n = 0;
	int i;

	for (i = 0; i < 1000; i++) {
		pawl_var_t v = var_new(e);

		OK(push_write(e, nothing, NULL, v));
		OK(pawl_var_delete(e, v, add_one, &n));
		ck_assert_uint_eq(n, (u32)i + 1);
		ck_assert_int_eq(push_read(e, nothing, NULL, v), -ESTALE);
	}
	ck_assert_uint_lt(stats(e).vars, 200);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A push waits for what its thread has pushed: a batch that was refused is not part of that. */
START_TEST(test_a_refused_batch_is_not_waited_for)
{
	enum { EACH = 10000 };
	struct pawl_engine *e = engine(PAWL_NAIVE, 0);
	pawl_var_t *v = calloc(4 * EACH, sizeof(*v)), mine = var_new(e);
	struct pawl_op ops[4];
	u32 n = 0, i;

	MUST(v);
	for (i = 0; i < 4 * EACH; i++)
		v[i] = var_new(e);
	for (i = 0; i < 4; i++) {
		ops[i] = op_write(add_one, &n, v + i * EACH);
		ops[i].nwrites = EACH;
	}
	REFUSED(e, pawl_push_batch(e, ops, 4), -E2BIG, "40000 vars");
	OK(push_write(e, add_one, &n, mine));
	ck_assert_uint_eq(n, 1);
	OK(pawl_push_batch(e, ops, 3));
	ck_assert_uint_eq(n, 4);
	OK(pawl_engine_destroy(e));
	free(v);
}
END_TEST

/* Nor does it wait for a wait that its thread has given up. */
struct held {
	struct pawl_engine *e;
	pawl_var_t v;
	struct gate g;
};

static void *holder(void *arg)
{
	struct held *h = arg;

	gate_write(h->e, &h->g, h->v);	/* returns when the gate is opened */
	return NULL;
}

START_TEST(test_a_wait_that_timed_out_is_no_push)
{
	struct held h = { .e = engine(PAWL_NAIVE, 0) };
	struct thread *me = thread_get(h.e);
	pthread_t t;

	h.v = var_new(h.e);
	t = spawn(holder, &h);
	MUST(soon(load_acquire(&h.g.running)));
	FAILS(pawl_wait_readable(h.e, h.v, 1000, NULL), -ETIMEDOUT);
	FAILS(pawl_wait_writable(h.e, h.v, 1000, NULL), -ETIMEDOUT);
	gate_open(&h.g);
	join(t);
	OK(pawl_wait_all(h.e, SOON_NS, NULL));
	ck_assert_uint_eq(load_acquire(&me->naive_pending), 0);
	OK(pawl_engine_destroy(h.e));
}
END_TEST

START_TEST(test_operator_and_batch)
{
	struct pawl_engine *e = engine(PAWL_NAIVE, 0);
	pawl_var_t v = var_new(e);
	u64 n = 0;
	struct pawl_op op = op_write(add_plain, &n, &v), ops[3] = { op, op, op };
	pawl_graph_t o;

	OK(pawl_graph_create(e, &op, 1, 0, &o));
	OK(pawl_graph_push(e, o, NULL));
	ck_assert_uint_eq(n, 1);
	OK(pawl_push_batch(e, ops, 3));
	ck_assert_uint_eq(n, 4);
	OK(pawl_graph_delete(e, o));
	/* waits, stop and start: nothing to do */
	OK(pawl_wait_readable(e, v, 0, NULL));
	OK(pawl_wait_writable(e, v, 0, NULL));
	OK(pawl_engine_stop(e));
	OK(pawl_engine_start(e));
	ck_assert_int_eq(pawl_run_one(e), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("naive", test_runs_inside_push, test_on_the_caller, test_async_blocks_the_push,
      test_errors, test_nested, test_release_pushes,
      test_a_push_runs_its_own_ops_and_no_others, test_delete,
      test_a_refused_batch_is_not_waited_for, test_a_wait_that_timed_out_is_no_push,
      test_operator_and_batch)
