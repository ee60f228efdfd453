// SPDX-License-Identifier: Apache-2.0
/* Waits inside bodies: deadlocks, help, nesting, across queues. */
#include "util.h"
#include <core/admit.h>
#include <core/thread.h>

struct inner {
	pawl_var_t own_r, own_w, other;
	int rc[8];
};

static int inner_body(struct pawl_run *run, void *arg)
{
	struct inner *b = arg;
	struct pawl_engine *e = run->engine;

	b->rc[0] = pawl_wait_readable(e, b->own_w, -1, NULL);
	MUST(strstr(pawl_error_text(), "held"));
	b->rc[1] = pawl_wait_writable(e, b->own_w, -1, NULL);
	b->rc[2] = pawl_wait_writable(e, b->own_r, -1, NULL);
	b->rc[3] = pawl_wait_all(e, -1, NULL);
	MUST(strstr(pawl_error_text(), "inside an op"));
	b->rc[4] = pawl_wait_readable(e, b->own_w, 0, NULL);
	b->rc[5] = pawl_wait_readable(e, b->own_r, -1, NULL);
	b->rc[6] = pawl_wait_readable(e, b->other, -1, NULL);
	b->rc[7] = pawl_wait_writable(e, b->other, -1, NULL);
	return 0;
}

START_TEST(test_inside_deadlk)
{
	int kind, w;

	for (kind = 0; kind < 3; kind++)
		for (w = 0; w < 2; w++) {
			struct pawl_engine *e = engine(kind, w);
			struct inner b = { var_new(e), var_new(e), var_new(e), { 0 } };
			struct pawl_op op = op_of_fn(inner_body, &b);

			op.reads = &b.own_r;
			op.nreads = 1;
			op.writes = &b.own_w;
			op.nwrites = 1;
			OK(pawl_push(e, &op));
			OK(pawl_wait_all(e, SOON_NS, NULL));
			ck_assert_int_eq(b.rc[0], -EDEADLK);
			ck_assert_int_eq(b.rc[1], -EDEADLK);
			ck_assert_int_eq(b.rc[2], -EDEADLK);
			ck_assert_int_eq(b.rc[3], -EDEADLK);
			ck_assert_int_eq(b.rc[4], -EDEADLK);
			/* Only reads hold it: it is readable. */
			ck_assert_int_eq(b.rc[5], 0);
			ck_assert_int_eq(b.rc[6], 0);
			ck_assert_int_eq(b.rc[7], 0);
			OK(pawl_engine_destroy(e));
		}
}
END_TEST

/*
 * The ops on a thread's stack, of which the inner one is complete before its body returns: what
 * the outer one holds is still held, and what the inner one held is not.
 */
struct stacked {
	pawl_var_t outer, inner;
	int rc[3];
};

static void complete_then_wait(struct pawl_run *run, void *arg)
{
	struct stacked *b = arg;

	b->rc[0] = pawl_wait_readable(run->engine, b->inner, -1, NULL);
	MUST(!pawl_complete(run->engine, run->token, 0, NULL));
	b->rc[1] = pawl_wait_readable(run->engine, b->outer, -1, NULL);
	b->rc[2] = pawl_wait_readable(run->engine, b->inner, SOON_NS, NULL);
}

static int run_inner(struct pawl_run *run, void *arg)
{
	MUST(pawl_run_one(run->engine) == 1);
	return 0;
}

START_TEST(test_inside_an_op_that_is_complete)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct stacked b = { var_new(e), var_new(e), { 0 } };
	struct pawl_op op = PAWL_OP_INIT;

	OK(push_write(e, run_inner, NULL, b.outer));
	op.async_fn = complete_then_wait;
	op.arg = &b;
	op.writes = &b.inner;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_int_eq(b.rc[0], -EDEADLK);
	ck_assert_int_eq(b.rc[1], -EDEADLK);
	ck_assert_int_eq(b.rc[2], 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* With more vars than fit inside an op. */
static int wide_inner(struct pawl_run *run, void *arg)
{
	pawl_var_t *v = arg;
	int i;

	for (i = 0; i < 30; i++) {
		MUST(pawl_wait_writable(run->engine, v[i], -1, NULL) == -EDEADLK);
		MUST(pawl_wait_readable(run->engine, v[i], -1, NULL) == (i < 15 ? 0 : -EDEADLK));
	}
	return 0;
}

START_TEST(test_inside_deadlk_wide)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v[30];
	struct pawl_op op = op_of_fn(wide_inner, v);
	int i;

	for (i = 0; i < 30; i++)
		v[i] = var_new(e);
	op.reads = v;
	op.nreads = 15;
	op.writes = v + 15;
	op.nwrites = 15;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A body waits for what it has pushed, and for what others have; one worker, and none. */
struct nest {
	pawl_var_t v, w;
	u64 n;
	u32 done;	/* A */
	struct pawl_engine *e;
};

static int nest_body(struct pawl_run *run, void *arg)
{
	struct nest *b = arg;
	int i;

	for (i = 0; i < 10; i++)
		MUST(!push_write(run->engine, add_plain, &b->n, b->v));
	MUST(!pawl_wait_readable(run->engine, b->v, SOON_NS, NULL));
	MUST(b->n >= 10);
	MUST(!push_read(run->engine, nothing, NULL, b->v));
	MUST(!pawl_wait_writable(run->engine, b->v, SOON_NS, NULL));
	fetch_add_relaxed(&b->done, 1);
	return 0;
}

START_TEST(test_inside_waits_help)
{
	int kind, w, help;

	for (kind = 0; kind < 3; kind++)
		for (w = 0; w < 3; w++)
			for (help = 0; help < 2; help++) {
				struct pawl_config c = small(kind, w);
				struct pawl_engine *e;
				struct nest b = { .n = 0 };

				/* Inside a body it always helps; outside, with no worker, it must. */
				e = engine_with(&c);
				b.v = var_new(e);
				b.w = var_new(e);
				OK(push_write(e, nest_body, &b, b.w));
				OK(pawl_wait_readable(e, b.w, SOON_NS, NULL));
				ck_assert_uint_eq(b.done, 1);
				ck_assert_uint_eq(b.n, 10);
				OK(pawl_engine_destroy(e));
			}
}
END_TEST

/* Bodies that wait for bodies that wait, deeper than the engine nests. */
#define DEEP	74u

struct deep {
	pawl_var_t v[DEEP];
	u32 done;	/* A */
};

struct deep_op {
	struct deep *d;
	int level;
};

static struct deep_op deep_ops[DEEP];

static int deep_body(struct pawl_run *run, void *arg)
{
	struct deep_op *o = arg;

	if (o->level + 1 < (int)DEEP) {
		MUST(!push_write(run->engine, deep_body, o + 1, o->d->v[o->level + 1]));
		MUST(!pawl_wait_readable(run->engine, o->d->v[o->level + 1], SOON_NS, NULL));
	}
	fetch_add_relaxed(&o->d->done, 1);
	return 0;
}

START_TEST(test_inside_waits_nest)
{
	int w, i;

	for (w = 0; w < 2; w++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, w);
		struct deep d = { .done = 0 };

		for (i = 0; i < (int)DEEP; i++) {
			d.v[i] = var_new(e);
			deep_ops[i] = (struct deep_op){ &d, i };
		}
		OK(push_write(e, deep_body, &deep_ops[0], d.v[0]));
		/* the only worker continues to help, however deep, also if no other thread does */
		OK(pawl_wait(e, PAWL_WAIT_READABLE | (w ? PAWL_WAIT_NO_HELP : 0), d.v[0].h, SOON_NS,
			     NULL));
		ck_assert_uint_eq(d.done, DEEP);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* The only worker waits in a body for an op of another queue, and that one for its queue. */
struct cross {
	pawl_var_t a, b;
	u32 n;		/* A */
};

static int cross_inner(struct pawl_run *run, void *arg)
{
	struct cross *c = arg;

	MUST(!push_write(run->engine, add_one, &c->n, c->b));	/* normal queue */
	MUST(!pawl_wait_readable(run->engine, c->b, SOON_NS, NULL));
	return 0;
}

static int cross_outer(struct pawl_run *run, void *arg)
{
	struct cross *c = arg;
	struct pawl_op op = op_write(cross_inner, c, &c->a);

	op.prop = PAWL_CPU_PRIORITIZED;
	MUST(!pawl_push(run->engine, &op));
	MUST(!pawl_wait_readable(run->engine, c->a, SOON_NS, NULL));
	MUST(load_acquire(&c->n) == 1);
	return 0;
}

START_TEST(test_inside_waits_across_queues)
{
	int w;

	for (w = 0; w < 2; w++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, w);
		struct cross c = { var_new(e), var_new(e), 0 };
		pawl_var_t v = var_new(e);

		OK(push_write(e, cross_outer, &c, v));
		OK(pawl_wait_readable(e, v, SOON_NS, NULL));
		ck_assert_uint_eq(c.n, 1);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

SUITE("wait_inside", test_inside_deadlk, test_inside_an_op_that_is_complete,
      test_inside_deadlk_wide, test_inside_waits_help, test_inside_waits_nest,
      test_inside_waits_across_queues)
