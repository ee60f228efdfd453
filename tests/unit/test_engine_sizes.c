// SPDX-License-Identifier: Apache-2.0
/*
 * Engines of all sizes: each object that the configuration promises can be created and used.
 * Magazines have 1/32 of the objects of a pool, up to 64, and memory is committed magazine by
 * magazine, so sizes around multiples of 32 place every part of an object around the end of what
 * is committed.  Objects in the caches of other threads are not missing to a thread.
 */
#include "util.h"

struct size {
	unsigned int vars, ops, threads;
	bool prefault;		/* few queues and groups may exist */
};

static struct pawl_engine *engine_of(struct size s)
{
	struct pawl_config c;

	pawl_config_init(&c);
	c.workers = 0;
	c.max_vars = s.vars;
	c.max_ops = s.ops;
	c.max_threads = s.threads;
	c.window_policy = PAWL_WINDOW_FAIL;
	c.prefault = s.prefault;
	return engine_with(&c);
}

static void run_all(struct pawl_engine *e)
{
	while (pawl_run_one(e))
		;
}

/* Every var can be created, written, read, queried and deleted. */
static void use_vars(struct size s)
{
	struct pawl_engine *e = engine_of(s);
	pawl_var_t *v = calloc(s.vars, sizeof(*v));
	u32 i, ran = 0;

	MUST(v);
	for (i = 0; i < s.vars; i++) {
		OK(pawl_var_create(e, &v[i]));
		OK(push_write(e, add_one, &ran, v[i]));
		OK(push_read(e, add_one, &ran, v[i]));
		if (i % 16 == 15)
			run_all(e);
	}
	run_all(e);
	ck_assert_uint_eq(ran, 2 * s.vars);
	for (i = 0; i < s.vars; i++) {
		ck_assert_uint_eq(version(e, v[i]), 1);
		OK(pawl_var_delete(e, v[i], NULL, NULL));
		run_all(e);
	}
	free(v);
	OK(pawl_engine_destroy(e));
}

/* As many ops can be in flight, of any number of vars, and none of them is lost. */
static void use_ops(struct size s)
{
	struct pawl_engine *e = engine_of(s);
	pawl_var_t v[6];
	u32 i, n, ran = 0, most = 0;

	for (i = 0; i < 6; i++)
		v[i] = var_new(e);
	for (n = 0; n <= 6; n += 2) {
		struct pawl_op op = op_of_fn(add_one, &ran);

		op.reads = v;
		op.nreads = n;
		ran = 0;
		for (i = 0; i < s.ops; i++)
			OK(pawl_push(e, &op));
		FAILS(pawl_push(e, &op), -EAGAIN);
		run_all(e);
		ck_assert_uint_eq(ran, s.ops);
		most += ran;
	}
	ck_assert_uint_eq(stats(e).completed, most);
	OK(pawl_engine_destroy(e));
}

START_TEST(test_every_var_of_an_engine_of_any_size_works)
{
	u32 mag, i;

	for (mag = 1; mag <= 66; mag += 5) {
		const unsigned int at[] = { 32 * mag - 1, 32 * mag, 32 * mag + 1, 32 * mag + 31 };

		for (i = 0; i < ARRAY_SIZE(at); i++)
			use_vars((struct size){ at[i], 64, 1 + i, false });
	}
	for (i = 1; i < 70; i++)
		use_vars((struct size){ i, 64, 2, false });
	for (i = 0; i < 3; i++)
		use_vars((struct size){ 4095 + i, 65, 33, false });
}
END_TEST

START_TEST(test_as_many_ops_as_promised_are_in_flight_in_an_engine_of_any_size)
{
	u32 mag, i;

	for (mag = 2; mag <= 66; mag += BRIEF ? 9 : 3) {
		const unsigned int at[] = { 32 * mag, 32 * mag + 1, 32 * mag + 31 };

		for (i = 0; i < ARRAY_SIZE(at); i++)
			use_ops((struct size){ 6 + mag, at[i], 1 + i, false });
	}
}
END_TEST

/* --- what caches of other threads must not keep --- */

static struct {
	struct pawl_engine *e;
	u32 kind, share, turn, left;	/* A: turn counts phases that threads have ended */
	u32 failed;			/* A */
} few;

static int make(u32 kind, u64 *h)
{
	struct pawl_op op = op_of_fn(nothing, NULL);

	switch (kind) {
	case 0:
		return pawl_cq_create(few.e, (pawl_cq_t *)h);
	case 1:
		return pawl_group_create(few.e, NULL, (pawl_group_t *)h);
	case 2:
		return pawl_var_create(few.e, (pawl_var_t *)h);
	default:
		return pawl_graph_create(few.e, &op, 1, 0, (pawl_graph_t *)h);
	}
}

static int unmake(u32 kind, u64 h)
{
	switch (kind) {
	case 0:
		return pawl_cq_destroy(few.e, (pawl_cq_t){ h });
	case 1:
		return pawl_group_destroy(few.e, (pawl_group_t){ h });
	case 2:
		return pawl_var_delete(few.e, (pawl_var_t){ h }, NULL, NULL);
	default:
		return pawl_graph_delete(few.e, (pawl_graph_t){ h });
	}
}

/* Fill the caches, then, when all threads have, create a share of what may exist. */
static void *take_share(void *arg)
{
	u64 h[3];
	u32 i;

	for (i = 0; i < 3; i++)
		MUST(!make(few.kind, &h[i]));
	for (i = 0; i < 3; i++)
		MUST(!unmake(few.kind, h[i]));
	while (pawl_run_one(few.e))
		;
	fetch_add_acq_rel(&few.turn, 1);
	MUST(soon(load_acquire(&few.left)));
	for (i = 0; i < few.share; i++)
		if (make(few.kind, h))
			fetch_add_relaxed(&few.failed, 1);
	fetch_add_acq_rel(&few.turn, 1);
	MUST(soon(load_acquire(&few.left) == 2));
	return NULL;
}

START_TEST(test_threads_share_every_pool_to_the_last_object)
{
	static const struct { u32 kind, threads, ops, vars, all; bool exact; } row[] = {
		{ 0, 64, 64, 64, 1024, true },	/* queues */
		{ 0, 128, 1024, 64, 1024, true },
		{ 1, 64, 64, 64, 64, true },	/* groups */
		{ 1, 32, 2048, 64, 2048, true },
		{ 2, 64, 64, 64, 64, false },	/* vars */
		{ 2, 32, 64, 2048, 2048, false },
		{ 3, 64, 64, 64, 64, false },	/* graphs */
	};
	pthread_t t[128];
	u32 i, k;
	u64 h;

	for (i = 0; i < ARRAY_SIZE(row); i++) {
		few.e = engine_of((struct size){ row[i].vars, row[i].ops, row[i].threads + 1,
					       row[i].exact });
		few.kind = row[i].kind;
		few.share = row[i].all / row[i].threads;
		few.turn = few.left = few.failed = 0;
		/* One after the other: so few may exist that they do not fit at once. */
		for (k = 0; k < row[i].threads; k++) {
			t[k] = spawn(take_share, NULL);
			MUST(soon(load_acquire(&few.turn) == k + 1));
		}
		store_release(&few.left, 1);
		MUST(soon(load_acquire(&few.turn) == 2 * row[i].threads));
		ck_assert_msg(!few.failed, "row %u: %u refused", i, few.failed);
		if (row[i].exact)
			ck_assert_int_eq(make(few.kind, &h), -ENOMEM);
		store_release(&few.left, 2);
		for (k = 0; k < row[i].threads; k++)
			join(t[k]);
		OK(pawl_engine_destroy(few.e));
	}
}
END_TEST

SUITE("engine sizes", test_every_var_of_an_engine_of_any_size_works,
      test_as_many_ops_as_promised_are_in_flight_in_an_engine_of_any_size,
      test_threads_share_every_pool_to_the_last_object)
