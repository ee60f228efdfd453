// SPDX-License-Identifier: Apache-2.0
/* Engines with devices on which something fails: bodies, the device, and each of its calls. */
#include "fixture.h"

static int fail_on_device(struct pawl_run *run, void *arg)
{
	return pawl_fail(run, -EIO, "no such kernel");
}

START_TEST(a_failed_body_poisons)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_error x;
	struct cell c = { 0 };
	u32 ran = 0;

	OK(push_dev(e, fail_on_device, NULL, NULL, 0, &v, 1));
	OK(push_dev(e, cell_body, &c, &v, 1, &w, 1));
	OK(push_read(e, add_one, &ran, w));
	/* Until the read has ended, too: it could run when the error has been returned. */
	FAILS(pawl_wait_writable(e, w, SOON_NS, &x), -EIO, "no such kernel");
	ck_assert_str_eq(x.text, "no such kernel");
	ck_assert_uint_eq(load_acquire(&c.ran) + load_acquire(&ran), 0);
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(a_lost_device_says_so_along_the_data)
{
	struct pawl_engine *e;
	pawl_var_t v, w, x;
	struct cell c = { 0 };
	struct pawl_error err;
	u32 ran = 0, k;

	if (!b->lose)
		return;
	e = by_hand(2);
	v = var_new(e);
	w = var_new(e);
	x = var_new(e);
	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	MUST(soon(version(e, v) == 1));
	/* Parked before it is lost. */
	{
		struct pawl_op op = op_read(add_one, &ran, &v);

		op.writes = &w;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
	}
	nap_us(1000);
	b->lose(0);
	FAILS(pawl_wait_readable(e, v, SOON_NS, &err), -ENOTRECOVERABLE, "lost");
	ck_assert_int_eq(err.code, -ENOTRECOVERABLE);
	FAILS(pawl_wait_readable(e, v, SOON_NS, NULL), -ENOTRECOVERABLE, "lost");
	FAILS(pawl_wait_readable(e, w, SOON_NS, NULL), -ENOTRECOVERABLE, "lost");
	/* So does one behind an op without a body, on the host and on the device. */
	for (k = 0; k < 2; k++) {
		struct pawl_op op = k ? dev_op(NULL, NULL) : op_of_fn(NULL, NULL);
		pawl_var_t y = var_new(e);

		op.name = "order";
		op.reads = &v;
		op.nreads = 1;
		op.writes = &y;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		FAILS(pawl_wait_readable(e, y, SOON_NS, &err), -ENOTRECOVERABLE, "lost");
		ck_assert_str_eq(err.op, "order");
	}
	/* A later op on that device fails; unrelated ops run. */
	OK(push_dev(e, cell_body, &c, NULL, 0, &x, 1));
	FAILS(pawl_wait_readable(e, x, SOON_NS, &err), -ENOTRECOVERABLE, "lost");
	OK(push_write(e, add_one, &ran, var_new(e)));
	FAILS(pawl_wait_all(e, SOON_NS, &err), -ENOTRECOVERABLE, "lost");
	ck_assert_uint_eq(load_acquire(&ran), 1);
	ck_assert_uint_eq(load_acquire(&c.ran), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(a_wait_names_the_device_that_is_lost)
{
	const struct fake_setup fs = { .devices = 2, .seed = 1, .manual = true };
	struct pawl_engine *e = with_devices(2, PAWL_PER_DEVICE, 2, &fs);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_error x;
	struct cell c = { 0 }, d = { 0 };
	struct pawl_op op = dev_op(cell_body, &c);
	u64 calls;
	u32 i;

	op.device = dev1;
	op.writes = &v;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	MUST(soon(version(e, v) == 1));
	b->lose(1);
	for (i = 0; i < 2; i++) {
		memset(&x, 'x', sizeof(x));
		FAILS(i ? pawl_wait_all(e, SOON_NS, &x) : pawl_wait_readable(e, v, SOON_NS, &x),
		      -ENOTRECOVERABLE, ":1 is lost: ");
		ck_assert_int_eq(x.code, -ENOTRECOVERABLE);
		ck_assert_uint_eq(x.count, 1);
		ck_assert_str_eq(x.text, pawl_error_text());
		ck_assert_str_eq(x.op, "");
		ck_assert_ptr_null(x.payload);
	}
	/* No thread queries the lost device any more, although its work is not complete. */
	calls = b->calls();
	nap_us(20000);
	ck_assert_uint_lt(b->calls() - calls, 20);
	/* the other one is not lost */
	steps_go();
	OK(push_dev(e, cell_body, &d, NULL, 0, &w, 1));
	OK(pawl_wait_readable(e, w, SOON_NS, NULL));
	ck_assert_uint_eq(load_acquire(&d.ran), 1);
	done_by_hand(e);
}
END_TEST

/* The calls of a body, and then those for memory, which need none. */
enum {
	COPY, SET, CALL, ALLOC, FREE, OF_BODIES,
	DEVICE_ALLOC = OF_BODIES, DEVICE_FREE, HOST_ALLOC, HOST_FREE, CALLS
};

struct finder {
	u32 which;
	char told[sizeof(((struct pawl_error *)0)->text)];
};

static void find_loss(struct pawl_engine *e, struct pawl_run *run, struct finder *f)
{
	static char to[8], from[8];
	static u32 none;
	void *p = NULL;
	int rc = 0;

	b->fail_call(1, true);
	switch (f->which) {
	case COPY:
		rc = pawl_run_copy(run, to, from, sizeof(to), PAWL_HOST_TO_HOST);
		break;
	case SET:
		rc = pawl_run_set(run, to, 0, sizeof(to));
		break;
	case CALL:
		rc = pawl_run_call(run, nap_fn, &none);
		break;
	case ALLOC:
		rc = pawl_run_alloc(run, 8, &p);
		break;
	case FREE:
		rc = pawl_run_free(run, NULL);
		break;
	case DEVICE_ALLOC:
		rc = pawl_device_alloc(e, dev0, 8, &p);
		break;
	case DEVICE_FREE:
		rc = pawl_device_free(e, dev0, NULL);
		break;
	case HOST_ALLOC:
		rc = pawl_host_alloc(e, dev0, 8, &p);
		break;
	case HOST_FREE:
		rc = pawl_host_free(e, dev0, NULL);
		break;
	}
	MUST(rc == -ENOTRECOVERABLE && !p);
	snprintf(f->told, sizeof(f->told), "%s", pawl_error_text());
}

static int find_body(struct pawl_run *run, void *arg)
{
	find_loss(run->engine, run, arg);
	return 0;
}

/* The engine knows it from then on, with the reason that the call gave. */
START_TEST(whichever_call_finds_the_loss_the_engine_knows_it)
{
	struct finder f;
	u32 i;

	for (i = 0; i < CALLS; i++) {
		struct pawl_engine *e = by_hand(1);

		f.which = i;
		if (i < OF_BODIES) {
			OK(push_dev(e, find_body, &f, NULL, 0, NULL, 0));
			FAILS(pawl_wait_all(e, SOON_NS, NULL), -ENOTRECOVERABLE, "lost", f.told);
		} else {
			find_loss(e, NULL, &f);
			FAILS(pawl_wait_all(e, 0, NULL), -ENOTRECOVERABLE, "lost", f.told);
		}
		ck_assert_uint_gt(strlen(f.told), 0);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

static int status_body(struct pawl_run *run, void *arg)
{
	store_release((s32 *)arg, run->status);
	return 0;
}

/* On the host and on the lost device itself: it may free what the data refers to. */
START_TEST(an_op_that_is_never_skipped_runs_after_a_loss)
{
	struct pawl_engine *e;
	struct cell c = { 0 };
	pawl_var_t v[3], w;
	s32 host = 1, device = 1;
	struct pawl_op op;
	u32 ran = 0, k;

	if (!b->lose)
		return;
	e = by_hand(2);
	for (k = 0; k < 3; k++)
		v[k] = var_new(e);
	w = var_new(e);
	OK(push_dev(e, cell_body, &c, NULL, 0, v, 3));
	MUST(soon(version(e, v[2]) == 1));
	op = op_write(status_body, &host, v + 1);
	op.nwrites = 2;
	op.reads = VARS(v[0], w);
	op.nreads = 2;
	op.flags = PAWL_OP_NO_SKIP;
	OK(pawl_push(e, &op));
	nap_us(1000);
	b->lose(0);
	MUST(soon(load_acquire(&host) != 1));
	/* the engine knows it now */
	op = dev_op(status_body, &device);
	op.writes = &w;
	op.nwrites = 1;
	op.flags = PAWL_OP_NO_SKIP;
	OK(pawl_push(e, &op));
	(void)!pawl_wait_all(e, SOON_NS, NULL);
	ck_assert_int_eq(load_acquire(&host), -ENOTRECOVERABLE);
	ck_assert_int_eq(load_acquire(&device), -ENOTRECOVERABLE);
	/* the op on the host has written the data, which no lost work concerns any more */
	FAILS(pawl_wait_readable(e, v[0], SOON_NS, NULL), -ENOTRECOVERABLE, "lost");
	for (k = 1; k < 3; k++) {
		OK(push_write(e, add_one, &ran, v[k]));
		OK(pawl_wait_readable(e, v[k], SOON_NS, NULL));
	}
	ck_assert_uint_eq(ran, 2);
	(void)!pawl_wait_all(e, SOON_NS, NULL);
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * It waits for what another device still does with its data, and then runs with the loss as its
 * status; leaks.c finds errors that nothing refers to.
 */
START_TEST(after_a_loss_it_waits_for_the_other_device)
{
	const struct fake_setup fs = { .devices = 2, .seed = 1, .manual = true };
	struct cell c = { 0 }, d = { 0 };
	struct pawl_engine *e;
	pawl_var_t v, w;
	s32 status = 1;
	struct pawl_op op;

	if (!b->lose)
		return;
	e = with_devices(2, PAWL_PER_DEVICE, 2, &fs);
	v = var_new(e);
	w = var_new(e);
	op = dev_op(cell_body, &d);
	op.device = dev1;
	op.writes = &w;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	MUST(soon(version(e, v) == 1 && version(e, w) == 1));
	b->lose(0);
	FAILS(pawl_wait_readable(e, v, SOON_NS, NULL), -ENOTRECOVERABLE, "lost");
	op = dev_op(status_body, &status);
	op.writes = VARS(v, w);
	op.nwrites = 2;
	op.flags = PAWL_OP_NO_SKIP;
	OK(pawl_push(e, &op));
	nap_us(1000);
	ck_assert_int_eq(load_acquire(&status), 1);
	steps_until(load_acquire(&status) != 1);
	ck_assert_int_eq(load_acquire(&status), -ENOTRECOVERABLE);
	ck_assert_uint_eq(load_acquire(&d.ran), 1);
	(void)!pawl_wait_all(e, SOON_NS, NULL);
	OK(pawl_engine_destroy(e));
}
END_TEST

static int free_after(struct pawl_run *run, void *arg)
{
	struct cell *c = arg;

	/* Either the work is complete, or the stream is ordered after it. */
	MUST(run->stream);
	return pawl_run_call(run, cell_kernel, c);
}

/* A delete whose stream cannot be ordered after the last use waits for it. */
START_TEST(a_delete_is_in_order_whatever_fails)
{
	u64 calls = 0, k;

	for (k = 1; k < 40; k++) {
		struct pawl_engine *e = by_hand(1);
		pawl_var_t v = var_new(e);
		struct cell c = { 0 }, d = { 0 };
		struct pawl_op op;

		op = dev_op(cell_body, &c);
		op.prop = PAWL_COPY_TO_DEVICE;
		op.writes = &v;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		MUST(soon(version(e, v) == 1));
		b->fail_call(k, false);
		OK(pawl_var_delete_on(e, v, dev0, free_after, &d));
		for (calls = 0; calls < 100000 && !load_acquire(&d.ran); calls++) {
			step_one();
			MUST(!load_acquire(&d.ran) || load_acquire(&c.ran));
			if (calls > 100)
				nap_us(20);
			if (calls > 100 && pawl_wait_all(e, 0, NULL) != -ETIMEDOUT)
				break;	/* the body's own call failed */
		}
		b->fail_call(0, false);
		ck_assert_uint_eq(load_acquire(&c.ran), 1);
		steps_go();
		(void)!pawl_wait_all(e, SOON_NS, NULL);
		done_by_hand(e);
	}
}
END_TEST

/* The naive engine waits after each op, and continues if it may not. */
START_TEST(a_naive_engine_whose_calls_fail)
{
	const struct fake_setup fs = { .devices = 1, .seed = 2 };
	u64 k;

	for (k = 1; k < 30; k++) {
		struct pawl_engine *e = with_devices(1, PAWL_NAIVE, 0, &fs);
		pawl_var_t v = var_new(e);
		struct cell c = { 0 };
		u32 ran = 0, i;
		int told = 0;

		b->fail_call(k, false);
		for (i = 0; i < 3; i++) {
			OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
			OK(push_read(e, add_one, &ran, v));
			told |= pawl_wait_readable(e, v, SOON_NS, NULL);
		}
		told |= pawl_wait_all(e, SOON_NS, NULL);
		b->fail_call(0, false);
		if (!told) {
			ck_assert_uint_eq(c.v, cell_after(3));
			ck_assert_uint_eq(ran, 3);
		}
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

START_TEST(the_driver_unloads_first)
{
	struct pawl_engine *e;
	struct cell c = { 0 };
	pawl_var_t v;

	if (!b->unload)
		return;
	e = plain();
	v = var_new(e);
	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	b->unload();
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * A program that uses everything, in which call number k of the device fails.  Whichever call
 * that is, each wait ends, and either an error is reported or the results are right.
 */
static int scenario(u64 k, bool gone, u64 *calls)
{
	const struct fake_setup fs = { .devices = 2, .seed = k };
	const struct pawl_device devs[1] = { dev0 };
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	pawl_graph_t many = { 0 };
	struct pawl_engine *e;
	pawl_var_t v, w, x;
	/* What the device has begun when it is lost may still end. */
	static struct cell a, d;
	u32 ran = 0, i;
	u64 first;
	int rc, told = 0;

	b->setup(&fs);
	memset(&a, 0, sizeof(a));
	memset(&d, 0, sizeof(d));
	c.devices = devs;
	c.ndevices = 1;
	c.device_streams = 3;
	c.spin_ns = 0;		/* so that a notice is requested */
	first = b->calls();
	if (k)
		b->fail_call(k, gone);
	rc = pawl_engine_create(&c, &e);
	if (rc) {
		ck_assert_uint_gt(strlen(pawl_error_text()), 0);
		return 1;
	}
	v = var_new(e);
	w = var_new(e);
	x = var_new(e);
	{
		struct pawl_op op = dev_op(cell_body, &a);

		op.writes = &v;
		op.nwrites = 1;
		OK(pawl_graph_create(e, &op, 1, PAWL_GRAPH_CAPTURE, &many));
	}
	for (i = 0; i < 4; i++) {
		struct pawl_op op = dev_op(cell_body, &d);

		OK(pawl_graph_push(e, many, NULL));
		op.reads = &v;
		op.nreads = 1;
		op.writes = &w;
		op.nwrites = 1;
		op.prop = i & 1 ? PAWL_COPY_FROM_DEVICE : PAWL_NORMAL;
		OK(pawl_push(e, &op));
		op = op_of_fn(add_one, &ran);
		op.reads = &w;
		op.nreads = 1;
		op.writes = &x;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		rc = pawl_wait_readable(e, w, SOON_NS, NULL);
		MUST(rc != -ETIMEDOUT);
		told |= rc;
	}
	if (many.h)
		OK(pawl_graph_delete(e, many));
	rc = pawl_wait_all(e, SOON_NS, NULL);
	if (rc == -ETIMEDOUT) {
		fprintf(stderr, "call %llu\n", (unsigned long long)k);
		pawl_dump(e, 2);
	}
	MUST(rc != -ETIMEDOUT);
	told |= rc;
	if (!told) {
		ck_assert_uint_eq(a.v, cell_after(4));
		ck_assert_uint_eq(d.v, cell_after(4));
		ck_assert_uint_eq(ran, 4);
	}
	OK(pawl_engine_destroy(e));
	*calls = b->calls() - first;
	return !!told;
}

START_TEST(every_call_fails_once)
{
	u64 calls = 0, most, k, told = 0;

	if (!b->fail_call)
		return;
	ck_assert_int_eq(scenario(0, false, &calls), 0);
	most = calls + calls / 4;
	for (k = 1; k <= most; k += SANITIZED ? 5 : 1)
		told += (u64)scenario(k, false, &calls);
	ck_assert_uint_gt(told, 0);
	for (k = 1, told = 0; k <= most; k += SANITIZED ? 7 : 1)
		told += (u64)scenario(k, true, &calls);
	ck_assert_uint_gt(told, 0);
}
END_TEST

int main(void)
{
	const TTest *const any[] = {
		a_failed_body_poisons, a_lost_device_says_so_along_the_data,
		an_op_that_is_never_skipped_runs_after_a_loss,
		after_a_loss_it_waits_for_the_other_device,
		the_driver_unloads_first, every_call_fails_once, NULL };
	const TTest *const told[] = {
		a_wait_names_the_device_that_is_lost,
		whichever_call_finds_the_loss_the_engine_knows_it,
		a_delete_is_in_order_whatever_fails, a_naive_engine_whose_calls_fail, NULL };

	return devices_run(any, told);
}
