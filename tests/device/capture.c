// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs on devices, and their capture; batches.
 */
#include "fixture.h"

START_TEST(graphs_and_batches)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct pawl_op ops[4];
	struct cell c = { 0 };
	pawl_graph_t g;
	u32 i;

	for (i = 0; i < 4; i++) {
		ops[i] = dev_op(cell_body, &c);
		ops[i].writes = &v;
		ops[i].nwrites = 1;
	}
	OK(pawl_graph_create(e, &ops[0], 1, 0, &g));
	for (i = 0; i < 5; i++)
		OK(pawl_graph_push(e, g, NULL));
	FAILS(pawl_graph_push(e, g, LAUNCH(0, { dev0.kind, 99 })), -ENODEV);
	OK(pawl_push_batch(e, ops, 4));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(c.v, cell_after(9));
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

static int count_body(struct pawl_run *run, void *arg)
{
	struct cell *c = arg;

	fetch_add_relaxed(&c->seen, 1);
	return pawl_run_call(run, cell_kernel, c);
}

/* A graph that is pushed repeatedly becomes one launch, and its bodies are no longer called. */
START_TEST(a_graph_is_captured)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e), w = var_new(e);
	struct fake_counts before, after;
	struct cell c = { 0 }, d = { 0 };
	struct pawl_op ops[4];
	pawl_graph_t many, one;
	u32 i;

	for (i = 0; i < 4; i++) {
		ops[i] = dev_op(count_body, i & 1 ? &d : &c);
		ops[i].writes = i & 1 ? &w : &v;
		ops[i].nwrites = 1;
	}
	OK(pawl_graph_create(e, ops, 4, PAWL_GRAPH_CAPTURE, &many));
	if (b->counts)
		b->counts(&before);
	for (i = 0; i < 10; i++) {
		OK(pawl_graph_push(e, many, NULL));
		/* Push another op in between, on one of the vars. */
		OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(c.v, cell_after(30));
	ck_assert_uint_eq(d.v, cell_after(20));
	ck_assert_uint_eq(c.seen + d.seen, 8);
	if (b->counts) {
		b->counts(&after);
		ck_assert_uint_eq(after.launches - before.launches, 9);
	}
	/* After a refresh the bodies run twice more. */
	OK(pawl_graph_refresh(e, many));
	for (i = 0; i < 5; i++)
		OK(pawl_graph_push(e, many, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(c.seen + d.seen, 16);
	ck_assert_uint_eq(d.v, cell_after(30));
	/* On a CPU the bodies run each time. */
	OK(pawl_graph_push(e, many, LAUNCH(0, { PAWL_CPU, 0 })));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(d.v, cell_after(32));
	OK(pawl_graph_delete(e, many));
	FAILS(pawl_graph_refresh(e, many), -ESTALE);
	OK(pawl_graph_create(e, &ops[0], 1, 0, &one));
	FAILS(pawl_graph_refresh(e, one), -EINVAL);
	OK(pawl_graph_delete(e, one));
	FAILS(pawl_graph_create(e, ops, 0, PAWL_GRAPH_CAPTURE, &one), -EINVAL, "n is 0");
	ops[2].device.kind = PAWL_CPU;
	FAILS(pawl_graph_create(e, ops, 4, PAWL_GRAPH_CAPTURE, &one), -EINVAL, "ops[2]");
	/* An asynchronous op must be the only one. */
	ops[1].fn = NULL;
	ops[1].async_fn = keep_token;
	FAILS(pawl_graph_create(e, ops, 2, 0, &one), -EINVAL, "ops[1]", "asynchronous", "one go");
	FAILS(pawl_graph_create(e, &ops[1], 1, PAWL_GRAPH_CAPTURE, &one), -EINVAL, "captured");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Without the flag the bodies run each time, also in a graph of one op; with it that is captured. */
START_TEST(only_what_may_be_captured)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct cell c = { 0 };
	struct pawl_op ops[2];
	pawl_graph_t g;
	u32 i, k;

	for (i = 0; i < 2; i++) {
		ops[i] = dev_op(count_body, &c);
		ops[i].writes = &v;
		ops[i].nwrites = 1;
	}
	for (k = 1; k <= 4; k++) {
		u32 n = 1 + k % 2, seen = c.seen, ran = c.ran;

		OK(pawl_graph_create(e, ops, n, k < 3 ? 0 : PAWL_GRAPH_CAPTURE, &g));
		for (i = 0; i < 5; i++)
			OK(pawl_graph_push(e, g, NULL));
		if (k < 3)
			FAILS(pawl_graph_refresh(e, g), -EINVAL, "PAWL_GRAPH_CAPTURE");
		OK(pawl_graph_delete(e, g));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(c.ran - ran, 5 * n);
		ck_assert_uint_eq(c.seen - seen, k < 3 ? 5 * n : 2 * n);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* An op without a body between other ops of the graph: the later ones run, captured or not. */
START_TEST(a_graph_with_an_op_without_a_body)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct cell c = { 0 };
	struct pawl_op ops[3] = { dev_op(count_body, &c), dev_op(NULL, NULL), dev_op(count_body, &c) };
	pawl_graph_t g;
	u32 i;

	for (i = 0; i < 3; i++) {
		ops[i].writes = &v;
		ops[i].nwrites = 1;
	}
	OK(pawl_graph_create(e, ops, 3, PAWL_GRAPH_CAPTURE, &g));
	for (i = 0; i < 5; i++)
		OK(pawl_graph_push(e, g, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(c.v, cell_after(10));
	ck_assert_uint_eq(c.seen, 4);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A body that fails, at the first run and in the capture. */
static int fail_at(struct pawl_run *run, void *arg)
{
	u32 n = fetch_add_relaxed((u32 *)arg, 1);

	return n == 0 || n == 2 ? pawl_fail(run, -EIO, "run %u", n) : 0;
}

START_TEST(a_graph_whose_body_fails)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct pawl_op ops[2] = { dev_op(fail_at, NULL), dev_op(NULL, NULL) };
	struct cell c = { 0 };
	pawl_graph_t many;
	u32 n = 0, i;

	ops[0].arg = &n;
	ops[1].fn = cell_body;
	ops[1].arg = &c;
	ops[1].writes = &v;
	ops[1].nwrites = 1;
	OK(pawl_graph_create(e, ops, 2, PAWL_GRAPH_CAPTURE, &many));
	for (i = 0; i < 6; i++) {
		int rc;

		OK(pawl_graph_push(e, many, NULL));
		rc = pawl_wait_readable(e, v, SOON_NS, NULL);
		ck_assert_int_eq(rc, load_relaxed(&n) == 1 || (i && load_relaxed(&n) == 3 && rc) ? -EIO : 0);
	}
	OK(pawl_graph_delete(e, many));
	(void)!pawl_wait_all(e, SOON_NS, NULL);
	ck_assert_uint_ge(c.v, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

static int returns_seven(struct pawl_run *run, void *arg)
{
	return 7;
}

START_TEST(a_graph_whose_body_returns_nonsense)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct pawl_op op = dev_op(returns_seven, NULL);
	pawl_graph_t g;
	u32 i;

	op.writes = &v;
	op.nwrites = 1;
	op.name = "odd";
	OK(pawl_graph_create(e, &op, 1, PAWL_GRAPH_CAPTURE, &g));
	for (i = 0; i < 4; i++) {
		OK(pawl_graph_push(e, g, NULL));
		FAILS(pawl_wait_readable(e, v, SOON_NS, NULL), -EPROTO, "odd returned 7");
	}
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* What was captured on one device is not launched on another one. */
START_TEST(a_captured_graph_on_another_device)
{
	const struct fake_setup fs = { .devices = 2, .seed = 1, .delay = 20 };
	struct pawl_engine *e = with_devices(2, PAWL_PER_DEVICE, 1, &fs);
	pawl_var_t v = var_new(e);
	struct cell c = { 0 };
	struct pawl_op op = dev_op(count_body, &c);
	pawl_graph_t g;
	u32 i;

	op.writes = &v;
	op.nwrites = 1;
	OK(pawl_graph_create(e, &op, 1, PAWL_GRAPH_CAPTURE, &g));
	for (i = 0; i < 12; i++) {
		OK(pawl_graph_push(e, g, LAUNCH(0, i / 4 % 2 ? dev1 : dev0)));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(c.v, cell_after(i + 1));
		/* On each device it runs once, and is captured once. */
		ck_assert_uint_eq(c.seen, i / 4 * 2 + (i % 4 ? 2 : 1));
	}
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

static struct {
	struct cell c;
	void *stream[8];	/* of each run */
	u32 n;
} runs;

/* The work that it queues cannot be captured: the next call of the driver ends the capture. */
static int uncapturable(struct pawl_run *run, void *arg)
{
	int rc = pawl_run_call(run, cell_kernel, &runs.c);

	MUST(runs.n < 8);
	runs.stream[runs.n++] = run->stream;
	if (run->stream != runs.stream[0])
		b->fail_call(1, false);
	return rc;
}

/* A capture that fails: then the bodies run on the op's own stream, in order, now and later. */
START_TEST(a_capture_that_fails)
{
	const struct fake_setup fs = { .devices = 1, .seed = 1, .delay = 20 };
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	struct pawl_op op;
	pawl_graph_t g;
	pawl_var_t v;
	u32 i;

	b->setup(&fs);
	c.devices = &dev0;
	c.ndevices = 1;
	c.device_streams = 1;
	e = engine_with(&c);
	v = var_new(e);
	op = dev_op(uncapturable, NULL);
	op.writes = &v;
	op.nwrites = 1;
	memset(&runs, 0, sizeof(runs));
	OK(pawl_graph_create(e, &op, 1, PAWL_GRAPH_CAPTURE, &g));
	for (i = 1; i <= 3; i++) {
		OK(pawl_graph_push(e, g, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(runs.c.v, cell_after(i));
	}
	/* The second launch has tried. */
	ck_assert_uint_eq(runs.n, 4);
	ck_assert_ptr_ne(runs.stream[1], runs.stream[0]);
	ck_assert_ptr_eq(runs.stream[2], runs.stream[0]);
	ck_assert_ptr_eq(runs.stream[3], runs.stream[0]);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A body of which the test says what its n-th run does. */
enum { NOTHING, FAILS_ITSELF, CAPTURE_BREAKS, BREAKS_ALL, LOSES };

static struct {
	struct cell c;
	u32 n, at, what;
} plan;

static int planned(struct pawl_run *run, void *arg)
{
	u32 n = ++plan.n;
	int rc;

	if (n != plan.at)
		return pawl_run_call(run, cell_kernel, &plan.c);
	switch (plan.what) {
	case FAILS_ITSELF:
		return pawl_fail(run, -EDOM, "run %u", n);
	case CAPTURE_BREAKS:
		rc = pawl_run_call(run, cell_kernel, &plan.c);
		b->fail_call(1, false);
		return rc;
	case BREAKS_ALL:
		b->fail_call(1, false);
		rc = pawl_run_call(run, cell_kernel, &plan.c);
		MUST(rc);
		b->fail_call(1, false);
		return rc;
	case LOSES:
		b->fail_call(1, true);
		break;
	}
	return pawl_run_call(run, cell_kernel, &plan.c);
}

static int launch_and_wait(struct pawl_engine *e, pawl_graph_t g)
{
	OK(pawl_graph_push(e, g, NULL));
	return pawl_wait_all(e, SOON_NS, NULL);
}

/*
 * The second launch captures.  The error of a body is the launch's; if the driver refuses, the
 * body runs once more.  After a refresh the graph is captured again, whatever was before.  In
 * the end nothing is left of what the driver had for it.
 */
START_TEST(what_ends_a_capture)
{
	const struct fake_setup fs = { .devices = 1, .seed = 1, .delay = 20 };
	/* how often the body runs in the second launch, and in the third; the result of the second */
	static const struct { u32 second, third; int rc; } want[] = {
		[NOTHING] = { 1, 0, 0 }, [FAILS_ITSELF] = { 1, 1, -EDOM },
		[CAPTURE_BREAKS] = { 2, 1, 0 }, [BREAKS_ALL] = { 2, 1, 0 },
		[LOSES] = { 1, 0, -ENOTRECOVERABLE } };
	int handles = b->handles ? b->handles() : 0, rc;
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(want); i++) {
		struct pawl_engine *e = with_devices(1, PAWL_PER_DEVICE, 1, &fs);
		struct pawl_op op = dev_op(planned, NULL);
		pawl_var_t v = var_new(e);
		u64 ran = 0;
		pawl_graph_t g;

		op.writes = &v;
		op.nwrites = 1;
		memset(&plan, 0, sizeof(plan));
		plan.at = 2;
		plan.what = i;
		OK(pawl_graph_create(e, &op, 1, PAWL_GRAPH_CAPTURE, &g));
		OK(launch_and_wait(e, g));
		ck_assert_uint_eq(plan.n, 1);
		rc = launch_and_wait(e, g);
		ck_assert_msg(rc == want[i].rc, "%u: %d, %s", i, rc, pawl_error_text());
		ck_assert_msg(plan.n == 1 + want[i].second, "%u: %u runs", i, plan.n);
		if (i != LOSES) {
			OK(launch_and_wait(e, g));
			ck_assert_uint_eq(plan.n, 1 + want[i].second + want[i].third);
			ran = plan.c.ran;
			ck_assert_uint_eq(ran, want[i].rc ? 2 : 3);
			for (k = 0; k < 12; k++) {
				if (k % 4 == 0)
					OK(pawl_graph_refresh(e, g));
				plan.n = k % 4 ? plan.n : 10;
				OK(launch_and_wait(e, g));
				ck_assert_uint_eq(plan.n, k % 4 ? 12 : 11);
				ck_assert_uint_eq(plan.c.ran, ran + k + 1);
			}
		}
		OK(pawl_graph_delete(e, g));
		OK(pawl_engine_destroy(e));
		ck_assert_msg(!b->handles || b->handles() == handles, "%u: %d, then %d handles", i,
			      handles, b->handles ? b->handles() : 0);
	}
}
END_TEST

/* The launch of what was captured says which call failed, and that the device is lost. */
START_TEST(a_captured_graph_on_a_device_that_is_lost)
{
	const struct fake_setup fs = { .devices = 1, .seed = 1, .delay = 20 };
	struct pawl_engine *e = with_devices(1, PAWL_PER_DEVICE, 1, &fs);
	struct pawl_op op = dev_op(cell_body, NULL);
	struct pawl_error err = { 0 };
	struct cell c = { 0 };
	pawl_var_t v = var_new(e);
	pawl_graph_t g;
	u32 i;

	op.arg = &c;
	op.writes = &v;
	op.nwrites = 1;
	OK(pawl_graph_create(e, &op, 1, PAWL_GRAPH_CAPTURE, &g));
	for (i = 0; i < 3; i++)
		OK(launch_and_wait(e, g));
	/* The first call is `use`.  On the fake device no later one fails. */
	if (b->kind == FAKE_KIND)
		fake_fail(2, -ESHUTDOWN);
	else
		b->fail_call(2, true);
	OK(pawl_graph_push(e, g, NULL));
	FAILS(pawl_wait_readable(e, v, SOON_NS, &err), -ENOTRECOVERABLE);
	ck_assert_msg(strstr(err.text, "graph_launch") || strstr(err.text, "GraphLaunch"), "%s",
		      err.text);
	FAILS(pawl_wait_all(e, SOON_NS, NULL), -ENOTRECOVERABLE, ":0 is lost: ");
	ck_assert_uint_eq(c.v, cell_after(3));
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

int main(void)
{
	const TTest *const any[] = {
		graphs_and_batches, a_graph_is_captured, a_graph_whose_body_fails,
		a_graph_with_an_op_without_a_body, only_what_may_be_captured,
		a_graph_whose_body_returns_nonsense, NULL };
	const TTest *const told[] = {
		a_capture_that_fails, a_captured_graph_on_another_device, what_ends_a_capture,
		a_captured_graph_on_a_device_that_is_lost, NULL };

	return devices_run(any, told);
}
