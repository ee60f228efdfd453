// SPDX-License-Identifier: Apache-2.0
/*
 * The errors that the manual pages of pawl/device.h promise: see tests/unit/test_contract.c.
 */
#include <core/devices.h>
#include <core/engine.h>
#include <pool/pool.h>
#include "fixture.h"
#include "../unit/child.h"

static u32 refusing;		/* A */

int pool_commit_hook(const char *what, size_t bytes)
{
	return load_acquire(&refusing) ? -ENOMEM : 0;
}

/* More than any machine has. */
#define TOO_MUCH	((size_t)1 << 62)

START_TEST(test_memory_of_devices_that_cannot_be_had_and_then_can)
{
	struct pawl_engine *e = plain();
	void *p = NULL;
	char none[64];

	REFUSED(e, pawl_device_alloc(e, dev1, 8, &p), -ENODEV, "device");
	REFUSED(e, pawl_host_alloc(e, dev1, 8, &p), -ENODEV, "device");
	snprintf(none, sizeof(none), "no device of kind %u, number %u in", dev1.kind, dev1.id);
	REFUSED(e, pawl_device_free(e, dev1, NULL), -ENODEV, none);
	REFUSED(e, pawl_host_free(e, dev1, NULL), -ENODEV, "device");
	REFUSED(e, pawl_device_alloc(e, dev0, 8, NULL), -EINVAL, "out");
	REFUSED(e, pawl_host_alloc(e, dev0, 8, NULL), -EINVAL, "out");
	if (!SANITIZED) {	/* whose malloc() does not return */
		REFUSED(e, pawl_device_alloc(e, dev0, TOO_MUCH, &p), -ENOMEM);
		REFUSED(e, pawl_host_alloc(e, dev0, TOO_MUCH, &p), -ENOMEM);
	}
	OK(pawl_device_alloc(e, dev0, 8, &p));
	OK(pawl_device_free(e, dev0, p));
	OK(pawl_host_alloc(e, dev0, 8, &p));
	OK(pawl_host_free(e, dev0, p));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_what_a_device_is_and_what_is_none)
{
	struct pawl_device_info i = { .size = sizeof(i) };
	struct pawl_engine *e = plain();

	REFUSED(e, pawl_device_count(77), -ENOSYS);
	REFUSED(e, pawl_device_info((struct pawl_device){ 77, 0 }, &i), -ENOSYS);
	i.size = 1;
	REFUSED(e, pawl_device_info(dev0, &i), -EINVAL, "size");
	i.size = sizeof(i);
	REFUSED(e, pawl_device_info((struct pawl_device){ (u16)b->kind, 200 }, &i), -ENODEV);
	OK(pawl_device_info(dev0, &i));
	ck_assert_int_ge(pawl_device_count(b->kind), 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_machine_without_devices_says_so)
{
	const struct fake_setup none = { .devices = 0 };
	struct pawl_engine *e;
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);

	b->setup(&none);
	FAILS(pawl_device_count(b->kind), -ENODEV);
	c.devices = &dev0;
	c.ndevices = 1;
	FAILS(pawl_engine_create(&c, &e), -ENODEV);
	ck_assert_ptr_null(e);
	e = plain();
	ck_assert_int_ge(pawl_device_count(b->kind), 1);
	OK(pawl_engine_destroy(e));
	b->setup(&none);
	c.ndevices = 0;
	OK(pawl_engine_create(&c, &e));
	OK(pawl_engine_destroy(e));
}
END_TEST

static int no_memory_body(struct pawl_run *run, void *arg)
{
	void *p;

	if (!SANITIZED)
		MUST(pawl_run_alloc(run, TOO_MUCH, &p) == -ENOMEM);
	MUST(!pawl_run_alloc(run, 8, &p));
	return pawl_run_free(run, p);
}

START_TEST(test_a_body_without_memory_may_go_on)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);

	OK(push_dev(e, no_memory_body, NULL, NULL, 0, &v, 1));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(version(e, v), 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Every call of a body on a device that is lost while the body runs. */
static int lost_body(struct pawl_run *run, void *arg)
{
	char to[8], from[8] = "";
	u32 none = 0;
	void *p = NULL;

	b->lose(0);
	b->fail_call(1, true);
	MUST(pawl_run_copy(run, to, from, sizeof(to), PAWL_HOST_TO_HOST) == -ENOTRECOVERABLE);
	MUST(pawl_run_set(run, to, 0, sizeof(to)) == -ENOTRECOVERABLE);
	MUST(pawl_run_call(run, nap_fn, &none) == -ENOTRECOVERABLE);
	MUST(pawl_run_alloc(run, sizeof(to), &p) == -ENOTRECOVERABLE);
	MUST(pawl_run_free(run, p) == -ENOTRECOVERABLE);
	return -ENOTRECOVERABLE;
}

static int alive_body(struct pawl_run *run, void *arg)
{
	static char from[8];
	static u32 none;
	void *p;

	MUST(!pawl_run_alloc(run, sizeof(from), &p));
	MUST(!pawl_run_copy(run, p, from, sizeof(from), PAWL_HOST_TO_DEVICE));
	MUST(!pawl_run_set(run, p, 0, sizeof(from)));
	MUST(!pawl_run_call(run, nap_fn, &none));
	MUST(!pawl_run_free(run, p));
	return 0;
}

START_TEST(test_every_call_on_a_lost_device_says_so_and_the_engine_goes_on)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	void *p, *q;
	u32 n = 0;

	OK(pawl_device_alloc(e, dev0, 8, &p));
	OK(push_dev(e, lost_body, NULL, NULL, 0, &v, 1));
	FAILS(pawl_wait_readable(e, v, SOON_NS, NULL), -ENOTRECOVERABLE);
	FAILS(pawl_wait_all(e, SOON_NS, NULL), -ENOTRECOVERABLE, "lost");
	REFUSED(e, pawl_device_alloc(e, dev0, 8, &q), -ENOTRECOVERABLE);
	REFUSED(e, pawl_device_free(e, dev0, p), -ENOTRECOVERABLE);
	v = var_new(e);
	OK(push_write(e, add_one, &n, v));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(n, 1);
	OK(pawl_engine_destroy(e));
	/* A new engine, as after a reset of the device. */
	e = plain();
	OK(pawl_device_alloc(e, dev0, 8, &p));
	OK(pawl_device_free(e, dev0, p));
	OK(push_dev(e, alive_body, NULL, NULL, 0, NULL, 0));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_stream_is_adopted_after_refusals)
{
	struct pawl_engine *e = plain();
	struct pawl_device mine;
	struct cell c = { 0 };
	u32 i;

	OK(push_dev(e, cell_body, &c, NULL, 0, NULL, 0));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	REFUSED(e, pawl_stream_adopt(e, dev0, NULL, &mine), -EINVAL, "stream is NULL");
	REFUSED(e, pawl_stream_adopt(e, dev0, c.stream, NULL), -EINVAL, "out is NULL");
	REFUSED(e, pawl_stream_adopt(e, dev1, c.stream, &mine), -ENODEV, "device");
	/* As if another thread were stopped inside the call. */
	store_release(&e->devices->adopting, 1);
	REFUSED(e, pawl_stream_adopt(e, dev0, c.stream, &mine), -EAGAIN, "adopt");
	store_release(&e->devices->adopting, 0);
	for (i = 0; i < 64; i++)
		OK(pawl_stream_adopt(e, dev0, c.stream, &mine));
	/* and again for the same reason */
	for (i = 0; i < 2; i++)
		REFUSED(e, pawl_stream_adopt(e, dev0, c.stream, &mine), -ENOMEM, "64");
	/* The streams that were adopted still work; another engine can adopt as many. */
	{
		struct pawl_op op = dev_op(cell_body, &c);

		op.device = mine;
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
	}
	OK(pawl_engine_destroy(e));
	e = plain();
	OK(push_dev(e, cell_body, &c, NULL, 0, NULL, 0));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_stream_adopt(e, dev0, c.stream, &mine));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_delete_on_a_device_that_is_refused_deletes_nothing)
{
	const struct fake_setup fs = { .devices = 2, .seed = 1, .delay = 20 };
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	struct cell done = { 0 };
	pawl_var_t v, w;
	struct gate g;

	b->setup(&fs);
	c.devices = &dev0;
	c.ndevices = 1;
	c.window = 1;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	v = var_new(e);
	w = var_new(e);
	REFUSED(e, pawl_var_delete_on(e, (pawl_var_t){ 0 }, dev0, cell_body, &done), -ESTALE, "var");
	REFUSED(e, pawl_var_delete_on(e, v, dev1, cell_body, &done), -ENODEV, "device");
	gate_write(e, &g, w);
	REFUSED(e, pawl_var_delete_on(e, v, dev0, cell_body, &done), -EAGAIN, "window");
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(load_acquire(&done.ran), 0);
	ck_assert_uint_eq(version(e, v), 0);
	OK(pawl_var_delete_on(e, v, dev0, cell_body, &done));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	MUST(soon(load_acquire(&done.ran) == 1));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_delete_on_a_device_without_memory_deletes_nothing)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct cell done = { 0 };

	store_release(&refusing, 1);
	REFUSED(e, pawl_var_delete_on(e, v, dev0, cell_body, &done), -ENOMEM);
	store_release(&refusing, 0);
	ck_assert_uint_eq(version(e, v), 0);
	OK(pawl_var_delete_on(e, v, dev0, cell_body, &done));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	MUST(soon(load_acquire(&done.ran) == 1));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_child_of_fork_has_no_devices)
{
	struct pawl_device_info i = { .size = sizeof(i) };
	struct pawl_engine *e = plain(), *mine;
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	pid_t pid;

	if (THREAD_SANITIZED)
		goto out;
	workers_up(e, 2);
	c.devices = &dev0;
	c.ndevices = 1;
	pid = child_fork();
	if (!pid) {
		MUST(pawl_device_count(b->kind) == -EOWNERDEAD);
		MUST(pawl_device_info(dev0, &i) == -EOWNERDEAD);
		MUST(pawl_engine_create(&c, &mine) == -EOWNERDEAD);
		_exit(pawl_engine_destroy(e) ? 1 : 0);
	}
	ck_assert_int_eq(child_wait(pid), 0);
	OK(pawl_device_info(dev0, &i));
	ck_assert_int_ge(pawl_device_count(b->kind), 1);
	OK(pawl_engine_destroy(e));
	OK(pawl_engine_create(&c, &e));
out:
	OK(pawl_engine_destroy(e));
}
END_TEST

int main(void)
{
	const TTest *const any[] = { test_a_body_without_memory_may_go_on, NULL };
	const TTest *const told[] = {
		test_memory_of_devices_that_cannot_be_had_and_then_can,
		test_what_a_device_is_and_what_is_none, test_a_machine_without_devices_says_so,
		test_a_stream_is_adopted_after_refusals,
		test_a_delete_on_a_device_that_is_refused_deletes_nothing,
		test_a_delete_on_a_device_without_memory_deletes_nothing,
		test_a_child_of_fork_has_no_devices,
		test_every_call_on_a_lost_device_says_so_and_the_engine_goes_on, NULL };

	return devices_run(any, told);
}
