// SPDX-License-Identifier: Apache-2.0
/* core/nodes.c: errors of the ops inside a graph. */
#include "graphs.h"

static int fail_silently(struct pawl_run *run, void *arg)
{
	return -EIO;
}

static int too_much(struct pawl_run *run, void *arg)
{
	return 7;
}

START_TEST(test_an_error_stops_what_depends_on_it)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	pawl_var_t v = var_new(e), w = var_new(e), x = var_new(e);
	u32 ran = 0, not = 0, round;
	struct pawl_op op[] = { OP(add_one, &ran, W(v)), OP(fail_io, NULL, W(w), .name = "culprit"),
				OP(add_one, &ran, R(v)), OP(add_one, &not, R(w), W(x)),
				OP(add_one, &not, R(v, x)), OP(add_one, &ran, W(v)) };
	struct pawl_error err;
	pawl_graph_t g;

	for (round = 0; round < 2; round++) {
		if (round) {
			op[1].fn = too_much;
			op[1].name = NULL;
		}
		g = graph_new(e, op, 6);
		ran = not = 0;
		OK(pawl_graph_push(e, g, NULL));
		ck_assert_int_eq(pawl_wait_readable(e, x, SOON_NS, &err), round ? -EPROTO : -EIO);
		ck_assert_str_eq(err.op, round ? "" : "culprit");
		ck_assert(strstr(err.text, round ? "returned 7" : "disk on fire"));
		/* The last one follows a reader of v that did not run. */
		ck_assert(ran == 2 && not == 0);
		ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), 0);
		OK(pawl_graph_delete(e, g));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Two errors: one is the launch's, and no object is left of the other. */
START_TEST(test_one_of_two_errors_is_reported)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	const struct pawl_op op[] = { OP(fail_io, TEXT("one"), W(v)), OP(fail_io, TEXT("two")),
				      OP(fail_io, TEXT("three"), R(v)) };
	pawl_graph_t g = graph_new(e, op, 3);
	struct pawl_error err;

	OK(pawl_graph_push(e, g, NULL));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	ck_assert_str_eq(err.text, "one");
	ck_assert_uint_eq(err.count, 1);
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	OK(pawl_graph_delete(e, g));
	/* The error that was reported goes with the next write. */
	OK(push_write(e, nothing, NULL, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(load_relaxed(&e->special) >> SPECIAL_ERROR_SHIFT, 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

static int see_status(struct pawl_run *run, void *arg)
{
	*(int *)arg = run->status;
	return 0;
}

START_TEST(test_no_skip_sees_the_error_of_its_predecessors)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	int behind = 1, beside = 1;
	const struct pawl_op op[] = { OP(fail_io, NULL, W(v), .flags = PAWL_OP_NO_SKIP),
				      OP(see_status, &beside, W(w), .flags = PAWL_OP_NO_SKIP),
				      OP(see_status, &behind, R(v), .flags = PAWL_OP_NO_SKIP) };
	pawl_graph_t g = graph_new(e, op, 3);

	OK(pawl_graph_push(e, g, NULL));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	ck_assert(behind == -EIO && beside == 0);
	/* And what its vars had from outside. */
	OK(pawl_var_clear(e, v));
	OK(push_write(e, fail_io, NULL, w));
	OK(pawl_graph_push(e, g, NULL));
	while (pawl_run_one(e))
		;
	ck_assert(beside == -EIO);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A message without a failure is dropped. */
static int only_say(struct pawl_run *run, void *arg)
{
	pawl_fail(run, -EIO, "almost failed");
	return see_status(run, arg);
}

/* Although nothing is counted along a chain, an error reaches all nodes behind. */
START_TEST(test_an_error_in_a_chain)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	int before = 1, next = 1, after = 1;
	struct pawl_error err;
	u32 round;

	for (round = 0; round < 4; round++) {
		bool skip = round % 2;
		u16 flags = skip ? 0 : PAWL_OP_NO_SKIP;
		const struct pawl_op op[] = { OP(only_say, &before, W(v), .flags = flags),
					      OP(round < 2 ? fail_io : fail_silently, NULL, W(v),
						 .flags = flags),
					      OP(see_status, &next, W(v), .flags = flags),
					      OP(see_status, &after, W(v), .flags = flags) };
		pawl_graph_t g = graph_new(e, op, 4);

		OK(pawl_graph_push(e, g, NULL));
		ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
		ck_assert(!strstr(err.text, "almost"));
		ck_assert_int_eq(before, 0);
		ck_assert_int_eq(next, skip ? 1 : -EIO);
		ck_assert_int_eq(after, skip ? 1 : -EIO);
		OK(pawl_graph_delete(e, g));
		before = next = after = 1;
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* An op that runs in spite of an error passes it on: the same with and without a graph. */
START_TEST(test_an_error_passes_through_ops_that_are_not_skipped)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e), x = var_new(e);
	int first, second, third, i;
	u64 token = 0;
	const struct pawl_op op[] = {
		OP(fail_io, NULL, W(v), .flags = PAWL_OP_NO_SKIP),
		OP(see_status, &first, R(v), W(w), .flags = PAWL_OP_NO_SKIP),
		OP(see_status, &second, R(w), W(x), .flags = PAWL_OP_NO_SKIP),
		OP(NULL, &token, R(x), W(w), .flags = PAWL_OP_NO_SKIP, .async_fn = keep_token),
		OP(see_status, &third, R(w), W(v), .flags = PAWL_OP_NO_SKIP) };
	pawl_graph_t g = graph_new(e, op, 5);
	int graph;

	for (graph = 0; graph < 2; graph++) {
		first = second = third = 1;
		for (i = 0; i < 5 && !graph; i++)
			OK(pawl_push(e, &op[i]));
		if (graph)
			OK(pawl_graph_push(e, g, NULL));
		while (pawl_run_one(e))
			;
		OK(pawl_complete(e, (pawl_token_t){ token }, 0, NULL));
		ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
		ck_assert_int_eq(first, -EIO);
		ck_assert_int_eq(second, -EIO);
		ck_assert_int_eq(third, -EIO);
	}
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Whichever node fails, along a chain and beside others, its launch has its name and text. */
START_TEST(test_an_error_names_its_node)
{
	enum { N = 8 };
	static const char *const names[N] = { "a", "b", "c", "d", "e", "f", "g", "h" };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op op[N];
	struct pawl_error err;
	u32 chain, text, i, k, ran;
	pawl_graph_t g;

	for (i = 0; i < 200; i++)
		OK(push_write(e, nothing, NULL, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < 2 * 2 * N * 10; i++) {
		k = i % N;
		chain = i / N % 2;
		text = i / N / 2 % 2;
		for (u32 j = 0; j < N; j++) {
			op[j] = (struct pawl_op)OP(add_one, &ran, .name = names[j]);
			op[j].reads = op[j].writes = &v;
			op[j].nwrites = chain || !j;
			op[j].nreads = !op[j].nwrites;
		}
		op[k].fn = text ? fail_io : fail_silently;
		op[k].arg = TEXT(names[N - 1 - k]);
		g = graph_new(e, op, N);
		ran = 0;
		OK(pawl_graph_push(e, g, NULL));
		ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
		ck_assert_str_eq(err.op, names[k]);
		if (text)
			ck_assert_str_eq(err.text, names[N - 1 - k]);
		ck_assert_uint_eq(ran, chain ? k : k ? N - 1 : 0);
		/* Nothing of it is left in the next launch. */
		op[k].fn = add_one;
		op[k].arg = &ran;
		OK(pawl_graph_delete(e, g));
		OK(pawl_var_clear(e, v));
		g = graph_new(e, op, N);
		OK(pawl_graph_push(e, g, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_graph_delete(e, g));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

static int fails_once(struct pawl_run *run, void *arg)
{
	return fetch_add_relaxed((u32 *)arg, 1) ? 0 : pawl_fail(run, -EIO, "the first time");
}

/* The memory of a launch that failed is used again, and the next one succeeds. */
START_TEST(test_a_launch_after_one_that_failed_succeeds)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u32 n = 0, ran = 0, i;
	const struct pawl_op op[] = { OP(fails_once, &n, W(v)), OP(add_one, &ran, R(v)),
				      OP(add_one, &ran, R(v)) };
	pawl_graph_t g = graph_new(e, op, 3);

	for (i = 0; i < 4; i++) {
		OK(pawl_graph_push(e, g, NULL));
		ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, NULL), i ? 0 : -EIO);
		ck_assert_uint_eq(ran, 2 * i);
	}
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A node behind several others is skipped if any of them failed, in whatever order they end. */
START_TEST(test_a_node_behind_several_follows_the_one_that_failed)
{
	enum { N = 4 };
	int workers;

	for (workers = 0; workers < 2; workers++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, workers);
		pawl_var_t v[N + 1];
		u32 ran, not, i, k;
		struct pawl_op op[N + 2];
		pawl_graph_t g;

		for (i = 0; i <= N; i++)
			v[i] = var_new(e);
		for (k = 0; k < N; k++) {
			for (i = 0; i < N; i++)
				op[i] = (struct pawl_op)OP(i == k ? fail_silently : add_one, &ran,
							   .writes = &v[i], .nwrites = 1);
			op[N] = (struct pawl_op)OP(add_one, &not, .reads = v, .nreads = N,
						   .writes = &v[N], .nwrites = 1);
			op[N + 1] = (struct pawl_op)OP(add_one, &not, .reads = &v[N], .nreads = 1);
			g = graph_new(e, op, N + 2);
			ran = not = 0;
			OK(pawl_graph_push(e, g, NULL));
			ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
			ck_assert_uint_eq(ran, N - 1);
			ck_assert_uint_eq(not, 0);
			OK(pawl_graph_delete(e, g));
			for (i = 0; i <= N; i++)
				OK(pawl_var_clear(e, v[i]));
		}
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

#define FAN	4000

/* Also nodes that wait for an object, because the pool of ops is used up, are skipped. */
START_TEST(test_an_error_reaches_nodes_that_wait_for_an_object)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	static struct pawl_op op[FAN];
	struct pawl_engine *e;
	u32 ran = 0, i;
	pawl_graph_t g;
	pawl_var_t v;

	c.max_ops = 64;
	c.max_threads = 2;
	e = engine_with(&c);
	ck_assert_uint_lt(e->pool[POOL_OP]->max, FAN / 2);
	v = var_new(e);
	op[0] = (struct pawl_op)OP(fail_io, NULL, .writes = &v, .nwrites = 1);
	for (i = 1; i < FAN; i++)
		op[i] = (struct pawl_op)OP(add_one, &ran, .reads = &v, .nreads = 1);
	g = graph_new(e, op, FAN);
	OK(pawl_graph_push(e, g, NULL));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	ck_assert_uint_eq(ran, 0);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

static int fail_otherwise(struct pawl_run *run, void *arg)
{
	(void)pawl_fail(run, -EIO, "the text");
	return -EDOM;
}

/* A body sets a message with one code and returns another: the second counts. */
START_TEST(test_the_code_is_what_the_body_returns)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	const struct pawl_op op[] = { OP(fail_otherwise, NULL, W(v)), OP(nothing, NULL) };
	pawl_graph_t g = graph_new(e, op, 2);
	struct pawl_error err;
	int graph;

	for (graph = 0; graph < 2; graph++) {
		OK(graph ? pawl_graph_push(e, g, NULL) : pawl_push(e, &op[0]));
		ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, &err), -EDOM);
		ck_assert_int_eq(err.code, -EDOM);
		ck_assert_str_eq(err.text, "the text");
	}
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_poisoned_var_skips_the_launch)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	u32 ran = 0;
	const struct pawl_op op[] = { OP(add_one, &ran, R(v)), OP(add_one, &ran, W(w)) };
	pawl_graph_t g = graph_new(e, op, 2);

	OK(push_write(e, fail_io, NULL, v));
	OK(pawl_graph_push(e, g, NULL));
	ck_assert_int_eq(pawl_wait_readable(e, w, SOON_NS, NULL), -EIO);
	ck_assert_uint_eq(ran, 0);
	OK(pawl_graph_push(e, g, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 2);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("graph_errors", test_an_error_stops_what_depends_on_it,
      test_one_of_two_errors_is_reported, test_no_skip_sees_the_error_of_its_predecessors,
      test_an_error_in_a_chain, test_an_error_passes_through_ops_that_are_not_skipped,
      test_an_error_names_its_node, test_a_launch_after_one_that_failed_succeeds,
      test_a_node_behind_several_follows_the_one_that_failed,
      test_an_error_reaches_nodes_that_wait_for_an_object,
      test_the_code_is_what_the_body_returns, test_a_poisoned_var_skips_the_launch)
