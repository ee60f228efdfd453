// SPDX-License-Identifier: Apache-2.0
/*
 * core/push.c, op.c, link.c: what a push checks, in which order it links, and when it runs the
 * op.
 */
#include "util.h"
#include "trap.h"
#include <core/link.h>
#include <core/op.h>
#include <core/thread.h>

/* --- what is refused --- */

START_TEST(test_refuse_size)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_op op = op_of_fn(nothing, NULL);

	op.size = 0;
	FAILS(pawl_push(e, &op), -EINVAL, "push", "op.size", "0");
	op.size = 1 << 20;	/* no struct will be as long, and it is not read */
	FAILS(pawl_push(e, &op), -EINVAL, "push", "op.size");
	FAILS(pawl_push(e, NULL), -EINVAL, "push", "size");
	OK(pawl_engine_destroy(e));
}
END_TEST

static void async_nothing(struct pawl_run *run, void *arg)
{
	MUST(!pawl_complete(run->engine, run->token, 0, NULL));
}

START_TEST(test_refuse_two_bodies)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_op op = op_of_fn(nothing, NULL);

	op.async_fn = async_nothing;
	FAILS(pawl_push(e, &op), -EINVAL, "push", "fn", "async_fn");
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_refuse_prop)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_op op = op_of_fn(nothing, NULL);

	op.prop = 8;
	FAILS(pawl_push(e, &op), -EINVAL, "push", "op.prop", "8");
	op.prop = 65535;
	FAILS(pawl_push(e, &op), -EINVAL, "push", "op.prop", "65535");
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_refuse_flags)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_op op = op_of_fn(nothing, NULL);

	op.flags = 128;
	FAILS(pawl_push(e, &op), -EINVAL, "push", "op.flags", "80");
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_refuse_null_lists)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_op op = op_of_fn(nothing, NULL);

	op.nreads = 3;
	FAILS(pawl_push(e, &op), -EINVAL, "push", "op.reads", "3");
	op.nreads = 0;
	op.nwrites = 2;
	FAILS(pawl_push(e, &op), -EINVAL, "push", "op.writes", "2");
	op.reads = VARS(var_new(e), var_new(e), var_new(e));
	op.nreads = 3;
	FAILS(pawl_push(e, &op), -EINVAL, "push", "op.writes", "2");
	op.nreads = 0;
	FAILS(pawl_push(e, &op), -EINVAL, "push", "op.writes", "2");
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_refuse_stale_names_the_place)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), gone = var_new(e), wide[20];
	struct pawl_op op = op_of_fn(nothing, NULL), two[2] = { op, op };
	char place[32];
	pawl_graph_t g;
	u32 i, n;

	OK(pawl_var_delete(e, gone, NULL, NULL));
	op.reads = VARS(v, v, gone);
	op.nreads = 3;
	FAILS(pawl_push(e, &op), -ESTALE, "push", "reads[2]", "deleted");
	op.nreads = 0;
	op.writes = VARS(v, gone);
	op.nwrites = 2;
	FAILS(pawl_push(e, &op), -ESTALE, "push", "writes[1]", "deleted");
	op.writes = VARS({ 0 });
	op.nwrites = 1;
	FAILS(pawl_push(e, &op), -ESTALE, "push", "writes[0]", "no var");
	/* In each place of each number of vars. */
	for (n = 1; n <= 6; n++) {
		for (i = 0; i < n * n; i++) {
			pawl_var_t list[6] = { v, v, v, v, v, v };

			list[i % n] = gone;
			op.reads = list;
			op.nreads = i / n;
			op.writes = list + op.nreads;
			op.nwrites = n - op.nreads;
			snprintf(place, sizeof(place), "op.%s[%u]",
				 i % n < op.nreads ? "reads" : "writes",
				 i % n < op.nreads ? i % n : i % n - op.nreads);
			FAILS(pawl_push(e, &op), -ESTALE, "push", place);
			FAILS(pawl_push_batch(e, &op, 1), -ESTALE, "push", place);
			FAILS(pawl_graph_create(e, &op, 1, 0, &g), -ESTALE, "graph_create", place);
		}
	}
	op.nreads = 0;
	/* Also in a long list, and in a batch. */
	for (i = 0; i < COUNT(wide) - 1; i++)
		wide[i] = v;
	wide[i] = gone;
	op.writes = wide;
	op.nwrites = COUNT(wide);
	FAILS(pawl_push(e, &op), -ESTALE, "push", "writes[19]", "deleted");
	two[1] = op;
	FAILS(pawl_push_batch(e, two, 2), -ESTALE, "push", "writes[19]", "deleted");
	op.reads = wide;
	op.nreads = COUNT(wide);
	FAILS(pawl_push(e, &op), -ESTALE, "push", "reads[19]", "deleted");
	two[1] = op;
	FAILS(pawl_push_batch(e, two, 2), -ESTALE, "push", "reads[19]", "deleted");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A refused push has no effect: no position, no body, no release, no op left behind. */
static void never_released(void *arg, int status)
{
	MUST(!"release of a refused push");
}

START_TEST(test_refused_has_no_effect)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e), gone = var_new(e);
	pawl_var_t list[3] = { v, w, gone };
	struct pawl_op op = op_of_fn(nothing, NULL);
	struct pawl_stats s0, s;
	int i;

	OK(pawl_var_delete(e, gone, NULL, NULL));
	op.release = never_released;
	op.writes = list;
	op.nwrites = 3;
	s0 = stats(e);
	for (i = 0; i < 10000; i++)
		ck_assert_int_eq(pawl_push(e, &op), -ESTALE);
	s = stats(e);
	ck_assert_uint_eq(s.pushed, s0.pushed);
	ck_assert_uint_le(s.ops, s0.ops + 128);
	ck_assert_uint_le(s.blocks, s0.blocks + 128);
	ck_assert_int_eq(pawl_run_one(e), 0);
	OK(pawl_wait_writable(e, v, 0, NULL));
	OK(pawl_wait_writable(e, w, 0, NULL));
	OK(pawl_wait_all(e, 0, NULL));
	ck_assert_uint_eq(version(e, v), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- numbers of vars --- */

START_TEST(test_no_vars)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		struct pawl_op op = PAWL_OP_INIT;
		u32 n = 0;

		op.fn = add_one;
		op.arg = &n;
		OK(pawl_push(e, &op));
		op.fn = NULL;	/* nothing at all */
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, 1);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* An op without a body orders. */
START_TEST(test_no_body)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct gate g;
	u32 n = 0;
	struct pawl_op op = PAWL_OP_INIT;

	gate_write(e, &g, v);
	op.reads = &v;
	op.nreads = 1;
	op.writes = &w;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	OK(push_write(e, add_one, &n, w));
	ck_assert_int_eq(pawl_run_one(e), 0);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(version(e, w), 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * Ops of every size take all their positions: a gate on each single var delays the op, and the
 * op then holds each of the vars.
 */
static void check_size(struct pawl_engine *e, const pawl_var_t *v, u32 n, u32 nreads)
{
	struct pawl_op op = op_of_fn(NULL, NULL);
	const u32 probe[] = { 0, n / 2, nreads ? nreads - 1 : 0, nreads < n ? nreads : 0, n - 1 };
	u64 before, after;
	struct gate g, h;
	size_t i;

	op.reads = v;
	op.nreads = nreads;
	op.writes = v + nreads;
	op.nwrites = n - nreads;
	for (i = 0; i < ARRAY_SIZE(probe); i++) {
		u32 k = probe[i], ran = 0;

		before = version(e, v[k]);
		gate_write(e, &g, v[k]);
		op.fn = add_one;
		op.arg = &ran;
		OK(pawl_push(e, &op));
		ck_assert_int_eq(pawl_run_one(e), 0);
		gate_open(&g);
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_uint_eq(ran, 1);
		after = version(e, v[k]);
		ck_assert_uint_eq(after - before, k < nreads ? 1 : 2);

		/* The other way round: the op exists, and no other. */
		OK(gate_push(e, &h, op.reads, op.nreads, op.writes, op.nwrites));
		ck_assert_uint_eq(h.running, 1);
		ran = 0;
		OK(push_write(e, add_one, &ran, v[k]));
		ck_assert_int_eq(pawl_run_one(e), 0);
		ck_assert_int_eq(pawl_wait_writable(e, v[k], 0, NULL), -ETIMEDOUT);
		gate_open(&h);
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_uint_eq(ran, 1);
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
}

START_TEST(test_sizes)
{
	const u32 sizes[] = { 1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 300, 4096, 4097, 5000 };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t *v = calloc(5000, sizeof(*v));
	size_t i;
	u32 k;

	for (k = 0; k < 5000; k++)
		v[k] = var_new(e);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		if (SANITIZED && sizes[i] > 300)
			break;
		check_size(e, v, sizes[i], 0);
		check_size(e, v, sizes[i], sizes[i]);
		check_size(e, v, sizes[i], sizes[i] / 2);
		check_size(e, v, sizes[i], sizes[i] - 1);
	}
	OK(pawl_engine_destroy(e));
	free(v);
}
END_TEST

START_TEST(test_size_largest)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t *v = calloc(32769, sizeof(*v));
	struct pawl_op op;
	u64 n = 0;
	u32 i;

	for (i = 0; i < 32769; i++)
		v[i] = var_new(e);
	op = op_of_fn(add_plain, &n);
	op.writes = v;
	op.nwrites = 32768;
	for (i = 0; i < 3; i++)
		OK(pawl_push(e, &op));
	op.reads = v;
	op.nreads = 10000;
	op.writes = v + 10000;
	op.nwrites = 22768;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 4);
	ck_assert_uint_eq(version(e, v[0]), 3);
	ck_assert_uint_eq(version(e, v[9999]), 3);
	ck_assert_uint_eq(version(e, v[10000]), 4);
	ck_assert_uint_eq(version(e, v[32767]), 4);
	/* One more is too many, all as writes, as reads, and mixed. */
	op.nreads = 0;
	op.writes = v;
	op.nwrites = 32769;
	FAILS(pawl_push(e, &op), -E2BIG, "push", "32769", "32768");
	op.nwrites = 0;
	op.reads = v;
	op.nreads = 32769;
	FAILS(pawl_push(e, &op), -E2BIG, "push");
	op.nreads = 32768;
	op.writes = v + 32768;
	op.nwrites = 1;
	FAILS(pawl_push(e, &op), -E2BIG, "push");
	/* Counts whose sum wraps. */
	op.nreads = UINT32_MAX;
	op.nwrites = 5;
	FAILS(pawl_push(e, &op), -E2BIG, "push");
	op.nreads = 1u << 31;
	op.nwrites = 1u << 31;
	FAILS(pawl_push(e, &op), -E2BIG, "push");
	ck_assert_uint_eq(version(e, v[0]), 3);
	ck_assert_uint_eq(version(e, v[32768]), 0);
	OK(pawl_engine_destroy(e));
	free(v);
}
END_TEST

/* Too many huge ops at once: refused without effect, and there is room again later. */
START_TEST(test_huge_ops_limit)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	pawl_var_t *v = calloc(5000, sizeof(*v));
	struct pawl_engine *e;
	struct pawl_op op;
	u32 n = 0, i, pushed;
	int rc = 0;

	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	for (i = 0; i < 5000; i++)
		v[i] = var_new(e);
	op = op_of_fn(add_one, &n);
	op.reads = v;
	op.nreads = 5000;
	for (pushed = 0; pushed < 10000 && !(rc = pawl_push(e, &op)); pushed++)
		;
	ck_assert_int_eq(rc, -EAGAIN);
	says("push", (const char *const[]){ "push", "32768", NULL });
	ck_assert_uint_eq(pushed, c.max_ops / 8192);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, pushed);
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, pushed + 1);
	OK(pawl_engine_destroy(e));
	free(v);
}
END_TEST

/* Out of blocks in the middle of an op: everything that was allocated is freed. */
START_TEST(test_out_of_blocks)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	pawl_var_t *v = calloc(3000, sizeof(*v));
	struct pawl_op op;
	struct gate g;
	u32 n = 0, i, pushed = 0;
	int rc = 0, round;

	c.max_ops = 64;
	c.max_vars = 3000;
	c.max_threads = 2;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	for (i = 0; i < 3000; i++)
		v[i] = var_new(e);
	op = op_of_fn(add_one, &n);
	op.writes = v;
	op.nwrites = 3000;
	for (round = 0; round < 3; round++) {
		u32 before = n;

		gate_write(e, &g, v[0]);
		for (pushed = 0; pushed < 60 && !(rc = pawl_push(e, &op)); pushed++)
			;
		ck_assert_int_eq(rc, -EAGAIN);
		says("push", (const char *const[]){ "push", "block", NULL });
		/* The same with two vars: until the last block, and one by one. */
		gate_open(&g);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, before + pushed);
	}
	OK(pawl_engine_destroy(e));
	free(v);
}
END_TEST

/* --- the same var more than once --- */

START_TEST(test_duplicates)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_var_t a = var_new(e), b = var_new(e);
		struct pawl_op op;
		u64 n = 0;

		/* Twice among the writes. */
		op = op_of_fn(add_plain, &n);
		op.writes = VARS(a, a);
		op.nwrites = 2;
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(version(e, a), 1);
		/* Twice among the reads. */
		op.nwrites = 0;
		op.reads = VARS(a, a, a);
		op.nreads = 3;
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(version(e, a), 1);
		/* Read and written: a write. */
		op.reads = VARS(a, b);
		op.nreads = 2;
		op.writes = VARS(a);
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(version(e, a), 2);
		ck_assert_uint_eq(version(e, b), 0);
		/* Many of few. */
		op.reads = VARS(a, b, a, b, a, b, a, b, a, b);
		op.nreads = 10;
		op.writes = VARS(b, b, b, b, b, b, b, b, b, b, b);
		op.nwrites = 11;
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(version(e, a), 2);
		ck_assert_uint_eq(version(e, b), 1);
		ck_assert_uint_eq(n, 4);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* A write wins over a read: it is alone, wherever the read stands in the lists. */
START_TEST(test_duplicate_write_wins)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t a = var_new(e), b = var_new(e), c = var_new(e);
	struct gate r, rw;

	OK(gate_push(e, &r, VARS(a), 1, NULL, 0));
	OK(gate_push(e, &rw, VARS(b, a, c), 3, VARS(c, a), 2));
	ck_assert_int_eq(pawl_run_one(e), 0);
	ck_assert_uint_eq(rw.running, 0);
	gate_open(&r);
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_uint_eq(rw.running, 1);
	ck_assert_int_eq(pawl_wait_readable(e, a, 0, NULL), -ETIMEDOUT);
	ck_assert_int_eq(pawl_wait_readable(e, c, 0, NULL), -ETIMEDOUT);
	OK(pawl_wait_readable(e, b, 0, NULL));
	ck_assert_int_eq(pawl_wait_writable(e, b, 0, NULL), -ETIMEDOUT);
	gate_open(&rw);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Five names of two vars end up inside the op itself, five of five do not: both work. */
START_TEST(test_duplicates_shrink)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[40];
	struct pawl_op op;
	u64 n = 0, pushed = 0;
	u32 i, k;

	for (i = 0; i < 40; i++)
		v[i] = var_new(e);
	for (k = 1; k <= 40; k++) {
		pawl_var_t list[80];

		for (i = 0; i < 80; i++)
			list[i] = v[i % k];
		op = op_of_fn(add_plain, &n);
		op.writes = list;
		op.nwrites = 40;
		op.reads = list + 40;
		op.nreads = 40;
		OK(pawl_push(e, &op));
		OK(pawl_push(e, &op));
		pushed += 2;
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, pushed);
		for (i = 0; i < 40; i++)
			ck_assert_uint_eq(version(e, v[i]), i < k ? 2 * (k - i) : 0);
	}
	for (i = 0; i < 40; i++)
		OK(pawl_wait_writable(e, v[i], 0, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- release --- */

struct rel {
	u32 n;		/* A */
	int status;
	u32 body;	/* A */
	uint64_t version;
	struct pawl_engine *e;
	pawl_var_t v;
};

static void rel_called(void *arg, int status)
{
	struct rel *r = arg;

	r->status = status;
	r->version = version(r->e, r->v);
	fetch_add_relaxed(&r->n, 1);
}

static int rel_body(struct pawl_run *run, void *arg)
{
	struct rel *r = arg;

	MUST(!r->n);
	fetch_add_relaxed(&r->body, 1);
	return 0;
}

static int rel_fails(struct pawl_run *run, void *arg)
{
	rel_body(run, arg);
	return -EPIPE;
}

START_TEST(test_release)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct rel r = { .e = e, .v = v };
	struct pawl_op op = op_write(rel_body, &r, &v);

	op.release = rel_called;
	OK(pawl_push(e, &op));
	ck_assert_uint_eq(r.n, 0);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(r.n, 1);
	ck_assert_int_eq(r.status, 0);
	ck_assert_uint_eq(r.version, 0);	/* before its vars are released */
	/* failed */
	r = (struct rel){ .e = e, .v = v };
	op.fn = rel_fails;
	OK(pawl_push(e, &op));
	pawl_run_one(e);
	ck_assert_uint_eq(r.n, 1);
	ck_assert_int_eq(r.status, -EPIPE);
	/* skipped */
	r = (struct rel){ .e = e, .v = v };
	OK(pawl_push(e, &op));
	pawl_run_one(e);
	ck_assert_uint_eq(r.n, 1);
	ck_assert_uint_eq(r.body, 0);
	ck_assert_int_eq(r.status, -EPIPE);
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EPIPE);
	/* no body */
	r = (struct rel){ .e = e, .v = v };
	op.fn = NULL;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(r.n, 1);
	ck_assert_int_eq(r.status, 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* release may push: it is outside the body, but the op is not over yet. */
START_TEST(test_release_pushes)
{
	int kind;

	for (kind = 0; kind < 2; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		struct again a = { e, var_new(e), 0 };
		struct pawl_op op = op_write(nothing, &a, &a.v);

		op.release = release_pushes;
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(a.n, 1);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* --- pushes from bodies --- */

struct tree {
	u32 n;		/* A */
	u32 depth;
	pawl_var_t v;
};

static int tree_body(struct pawl_run *run, void *arg)
{
	struct tree *t = arg;
	u32 d = fetch_add_relaxed(&t->n, 1);

	if (d < 200) {
		MUST(!push_write(run->engine, tree_body, t, t->v));
		MUST(!push_read(run->engine, tree_body, t, t->v));
		MUST(!push_write(run->engine, tree_body, t, var_new(run->engine)));
	}
	return 0;
}

START_TEST(test_push_inside_bodies)
{
	int kind, w;

	for (kind = 0; kind < 3; kind++)
		for (w = 0; w < 4; w++) {
			struct pawl_engine *e = engine(kind, w);
			struct tree t = { 0, 0, var_new(e) };

			OK(push_write(e, tree_body, &t, t.v));
			OK(pawl_wait_all(e, SOON_NS, NULL));
			ck_assert_uint_eq(t.n, 1 + 3 * 200);
			OK(pawl_engine_destroy(e));
		}
}
END_TEST

/* --- atomicity over several vars, under load --- */

struct pair_count {
	struct pawl_engine *e;
	pawl_var_t v[8];
	u64 count[8];
	u64 sum[8];
	u32 thread;
	u32 rounds;
};

struct pair_op {
	struct pair_count *p;
	u8 a, b;
};

static int pair_body(struct pawl_run *run, void *arg)
{
	struct pair_op *o = arg;

	o->p->count[o->a]++;
	o->p->count[o->b]++;
	return 0;
}

static struct pair_op pair_ops[8][8];

static void *pair_pusher(void *arg)
{
	struct pair_count *p = arg;
	u64 seed = fetch_add_relaxed(&p->thread, 1);
	u32 i;

	for (i = 0; i < p->rounds; i++) {
		u32 a = (u32)(rnd(&seed) % 8), b = (u32)(rnd(&seed) % 7);
		pawl_var_t v[2];
		struct pawl_op op;

		b += b >= a;
		v[0] = p->v[a];
		v[1] = p->v[b];
		op = op_of_fn(pair_body, &pair_ops[a][b]);
		op.writes = v;
		op.nwrites = 2;
		MUST(!pawl_push(p->e, &op));
	}
	return NULL;
}

START_TEST(test_concurrent_pairs)
{
	struct pair_count p = { .e = engine(PAWL_PER_DEVICE, 2), .rounds = (u32)TIMES(20000) };
	pthread_t t[3];
	u64 total = 0;
	int i, k;

	for (i = 0; i < 8; i++) {
		p.v[i] = var_new(p.e);
		for (k = 0; k < 8; k++)
			pair_ops[i][k] = (struct pair_op){ &p, (u8)i, (u8)k };
	}
	for (i = 0; i < 3; i++)
		t[i] = spawn(pair_pusher, &p);
	for (i = 0; i < 3; i++)
		join(t[i]);
	OK(pawl_wait_all(p.e, SOON_NS, NULL));
	for (i = 0; i < 8; i++) {
		ck_assert_uint_eq(p.count[i], version(p.e, p.v[i]));
		total += p.count[i];
	}
	ck_assert_uint_eq(total, 2ull * 3 * p.rounds);
	OK(pawl_engine_destroy(p.e));
}
END_TEST

/* The same with ops of more vars than fit inside an op, and with reads among them. */
struct wide {
	struct pawl_engine *e;
	pawl_var_t v[24];
	u64 count[24];
	u32 inside[24];		/* A: -1: a writer, else readers */
	u32 thread, rounds;
};

struct wide_op {
	struct wide *w;
	u32 reads, writes;	/* bit masks */
};

static int wide_body(struct pawl_run *run, void *arg)
{
	struct wide_op *o = arg;
	struct wide *w = o->w;
	int i;

	for (i = 0; i < 24; i++) {
		if (o->writes >> i & 1) {
			MUST(xchg_acq_rel(&w->inside[i], ~0u) == 0);
			w->count[i]++;
		} else if (o->reads >> i & 1) {
			MUST(fetch_add_acq_rel(&w->inside[i], 1) < 1000);
		}
	}
	for (i = 0; i < 24; i++) {
		if (o->writes >> i & 1)
			MUST(xchg_acq_rel(&w->inside[i], 0) == ~0u);
		else if (o->reads >> i & 1)
			fetch_add_acq_rel(&w->inside[i], -1u);
	}
	return 0;
}

static void free_arg(void *arg, int status)
{
	free(arg);
}

static void *wide_pusher(void *arg)
{
	struct wide *w = arg;
	u64 seed = 100 + fetch_add_relaxed(&w->thread, 1);
	u32 i, k;

	for (i = 0; i < w->rounds; i++) {
		struct wide_op *o = malloc(sizeof(*o));
		pawl_var_t r[24], x[24];
		struct pawl_op op = op_of_fn(wide_body, o);

		*o = (struct wide_op){ w, (u32)rnd(&seed) & 0xffffff, (u32)rnd(&seed) & 0xffffff };
		if (i % 3 == 0)
			o->writes &= (u32)rnd(&seed) & (u32)rnd(&seed);
		if (i % 4 == 1)
			o->reads &= (u32)rnd(&seed) & (u32)rnd(&seed) & (u32)rnd(&seed);
		for (k = 0; k < 24; k++) {
			if (o->reads >> k & 1)
				r[op.nreads++] = w->v[k];
			if (o->writes >> k & 1)
				x[op.nwrites++] = w->v[k];
		}
		op.reads = r;
		op.writes = x;
		op.release = free_arg;
		MUST(!pawl_push(w->e, &op));
	}
	return NULL;
}

START_TEST(test_concurrent_wide)
{
	struct wide w = { .e = engine(PAWL_PER_DEVICE, 2), .rounds = (u32)TIMES(5000) };
	pthread_t t[3];
	int i;

	for (i = 0; i < 24; i++)
		w.v[i] = var_new(w.e);
	for (i = 0; i < 3; i++)
		t[i] = spawn(wide_pusher, &w);
	for (i = 0; i < 3; i++)
		join(t[i]);
	OK(pawl_wait_all(w.e, SOON_NS, NULL));
	for (i = 0; i < 24; i++)
		ck_assert_uint_eq(w.count[i], version(w.e, w.v[i]));
	OK(pawl_engine_destroy(w.e));
}
END_TEST

/*
 * Where a thread looks for the record of a push, although the push ends meanwhile and its op's
 * memory has an op with another number of accesses: nowhere, or among those of the push.
 */
#if CAN_TRAP
#define HELPED_VAR 77

static struct {
	struct desc d;
	struct op *op;
	u32 n[2], ext[2];	/* of the push, and of the later one */
} helped;

static void helped_is(u32 which)
{
	u32 n = helped.n[which], j;
	struct dep *deps = n <= INLINE_DEPS ? helped.op->deps : NULL;

	if (!deps)
		deps = ext_of(thread_last.t->e, helped.ext[which])->deps;
	for (j = 0; j < n; j++)
		store_relaxed(&deps[j].var, j == n / 2 ? HELPED_VAR : 1000 + j);
	helped.op->ndeps = (u16)n;
	helped.op->ext = n <= INLINE_DEPS ? 0 : helped.ext[which];
	store_relaxed(&helped.d.status, status_make(1 + which, PHASE_LINKING));
}

static void helped_ends(void)
{
	helped_is(1);
}

static void help(struct pawl_engine *e, u32 n, u32 later)
{
	struct thread *t = thread_get(e);
	u64 st = status_make(1, PHASE_LINKING), *cell, *first;
	u32 opi, k, i, found = 0, none = 0;

	helped.op = op_new(t, &opi);
	store_relaxed(&helped.d.op, opi);
	helped.n[0] = n;
	helped.n[1] = later;
	for (i = 0; i < 2; i++)
		if (helped.n[i] > INLINE_DEPS)
			OK(ext_get(t, helped.n[i], opi, &helped.ext[i]));
	for (k = 0; !k || trap.stops; k += SANITIZED ? 7 : 1) {
		helped_is(0);
		first = desc_rec(e, &helped.d, n, helped.ext[0], 0);
		trap_after(k, cell = desc_cell(e, &helped.d, st, HELPED_VAR));
		MUST(!cell || (cell >= first && cell < first + n));
		found += cell != NULL;
		none += !cell;
	}
	ck_assert(found && none);
	for (i = 0; i < 2; i++)
		if (helped.n[i] > INLINE_DEPS)
			ext_put(t, helped.ext[i]);
	helped.op->ndeps = 0;
	op_free(t, helped.op, opi);
}
#endif

START_TEST(test_a_record_is_of_the_push_that_is_helped)
{
#if CAN_TRAP
	static const u32 sizes[] = { 2, 5, 17 };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	u32 i;

	trap_init(helped_ends);
	for (i = 0; i < COUNT(sizes) * COUNT(sizes); i++)
		help(e, sizes[i / COUNT(sizes)], sizes[i % COUNT(sizes)]);
	OK(pawl_engine_destroy(e));
#endif
}
END_TEST

/* At rest each var holds one block, and nothing else is held: no leak. */
START_TEST(test_no_leak_at_rest)
{
	struct wide w = { .e = engine(PAWL_PER_DEVICE, 0), .rounds = 3000 };
	struct thread *t;
	u32 i, blocks, ops;

	for (i = 0; i < 24; i++)
		w.v[i] = var_new(w.e);
	wide_pusher(&w);
	OK(pawl_wait_all(w.e, SOON_NS, NULL));
	t = thread_get(w.e);
	blocks = pool_carved(w.e->pool[POOL_BLOCK]);
	ops = pool_carved(w.e->pool[POOL_OP]);
	for (i = 0; i < POOLS; i++)
		pool_cache_flush(w.e->pool[i], &t->cache[i]);
	ck_assert_uint_eq(pool_depot_count(w.e->pool[POOL_BLOCK]), blocks - 24);
	ck_assert_uint_eq(pool_depot_count(w.e->pool[POOL_OP]), ops);
	ck_assert_uint_eq(pool_depot_count(w.e->pool[POOL_EXT0]),
			  pool_carved(w.e->pool[POOL_EXT0]));
	ck_assert_uint_eq(pool_depot_count(w.e->pool[POOL_EXT1]),
			  pool_carved(w.e->pool[POOL_EXT1]));
	OK(pawl_engine_destroy(w.e));
}
END_TEST

SUITE("push", test_refuse_size, test_refuse_two_bodies, test_refuse_prop, test_refuse_flags,
      test_refuse_null_lists, test_refuse_stale_names_the_place, test_refused_has_no_effect,
      test_no_vars, test_no_body, test_sizes, test_size_largest, test_huge_ops_limit,
      test_out_of_blocks, test_duplicates, test_duplicate_write_wins, test_duplicates_shrink,
      test_release, test_release_pushes, test_push_inside_bodies, test_concurrent_pairs,
      test_concurrent_wide, test_a_record_is_of_the_push_that_is_helped, test_no_leak_at_rest)
