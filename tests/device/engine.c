// SPDX-License-Identifier: Apache-2.0
/*
 * Engines with devices: bodies and their streams, waits, ops on CPUs that follow a device,
 * deletion, configurations, fork.
 */
#include <malloc.h>
#include "fixture.h"
#include "../unit/child.h"

START_TEST(a_body_gets_its_stream)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct cell c = { 0 };

	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_ptr_nonnull(c.stream);
	ck_assert_int_eq(c.dev.kind, b->kind);
	ck_assert_int_eq(c.dev.id, 0);
	ck_assert_uint_eq(load_acquire(&c.ran), 1);
	ck_assert_uint_eq(version(e, v), 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(a_wait_is_for_the_work_not_for_the_body)
{
	struct pawl_engine *e = by_hand(1);
	pawl_var_t v = var_new(e);
	struct cell c = { 0 };
	u32 i;

	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	MUST(soon(version(e, v) == 1 && stats(e).completed == 1));
	/* No op is in flight: a wait for all is one for the device alone. */
	for (i = 0; i < 3; i++) {
		static const u32 what[] = { PAWL_WAIT_ALL, PAWL_WAIT_READABLE, PAWL_WAIT_WRITABLE };

		pawl_interrupt(e);
		FAILS(pawl_wait(e, what[i] | PAWL_WAIT_INTR, i ? v.h : 0, SOON_NS, NULL), -EINTR,
		      "interrupted");
	}
	FAILS(pawl_wait_readable(e, v, 0, NULL), -ETIMEDOUT);
	FAILS(pawl_wait_readable(e, v, 2000000, NULL), -ETIMEDOUT);
	FAILS(pawl_wait_writable(e, v, 1000000, NULL), -ETIMEDOUT);
	FAILS(pawl_wait_all(e, 0, NULL), -ETIMEDOUT);
	FAILS(pawl_wait_all(e, 2000000, NULL), -ETIMEDOUT);
	ck_assert_uint_eq(load_acquire(&c.ran), 0);
	steps_go();
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(load_acquire(&c.ran), 1);
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	done_by_hand(e);
}
END_TEST

/* The library's clock is ahead of the system's. */
static u64 ahead;		/* A */

u64 __real_exec_now_ns(void);
u64 __wrap_exec_now_ns(void);

u64 __wrap_exec_now_ns(void)
{
	return __real_exec_now_ns() + load_relaxed(&ahead);
}

#define HOUR_NS	3600000000000ll

static int takes_an_hour(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&ahead, (u64)HOUR_NS);
	return 0;
}

/* The time that the ops took is not there for the work on the device a second time. */
START_TEST(a_wait_for_all_has_its_time_once)
{
	struct pawl_engine *e = by_hand(0);
	pawl_var_t v = var_new(e);
	struct cell c = { 0 };

	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	while (pawl_run_one(e))
		;
	OK(push_write(e, takes_an_hour, NULL, var_new(e)));
	FAILS(pawl_wait_all(e, HOUR_NS - 1, NULL), -ETIMEDOUT);
	ck_assert_uint_eq(load_relaxed(&ahead), HOUR_NS);
	ck_assert_uint_eq(load_acquire(&c.ran), 0);
	store_relaxed(&ahead, 0);
	steps_go();
	OK(push_write(e, nothing, NULL, var_new(e)));
	OK(pawl_wait_all(e, INT64_MAX, NULL));	/* a limit like others */
	ck_assert_uint_eq(load_acquire(&c.ran), 1);
	done_by_hand(e);
}
END_TEST

/* No other op has needed an event behind the work. */
START_TEST(a_look_again_and_again_ends)
{
	struct pawl_engine *e = by_hand(1);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct cell c = { 0 };

	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	MUST(soon(version(e, v) == 1));
	steps_until(pawl_wait_readable(e, v, 0, NULL) == 0);
	ck_assert_uint_eq(load_acquire(&c.ran), 1);
	OK(push_dev(e, cell_body, &c, &v, 1, &w, 1));
	MUST(soon(version(e, w) == 1));
	steps_until(pawl_wait_writable(e, v, 0, NULL) == 0);
	ck_assert_uint_eq(load_acquire(&c.ran), 2);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* No slot is free for the thread that issues the device's ops: the waiting thread does. */
START_TEST(no_place_for_a_worker)
{
	const struct fake_setup fs = { .devices = 2, .seed = 1, .delay = 20 };
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	struct cell cell = { 0 };
	pawl_var_t v;
	u32 i;

	b->setup(&fs);
	c.devices = &dev0;
	c.ndevices = 1;
	c.max_threads = 3;	/* this one, the devices' own, the CPU's worker */
	e = engine_with(&c);
	v = var_new(e);
	OK(push_write(e, nothing, NULL, v));
	MUST(soon(version(e, v) == 1));
	for (i = 0; i < 5; i++)
		OK(push_dev(e, cell_body, &cell, NULL, 0, &v, 1));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(cell.v, cell_after(5));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* With one worker: an op that must wait for the device does not occupy the worker. */
START_TEST(no_worker_waits_for_the_device)
{
	struct pawl_engine *e = by_hand(1);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct cell c = { 0 };
	u32 ran = 0, i;

	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	for (i = 0; i < 10; i++)
		OK(push_read(e, cell_check, &c, v));
	for (i = 0; i < 100; i++)
		OK(push_write(e, add_one, &ran, w));
	MUST(soon(load_acquire(&ran) == 100));
	ck_assert_uint_eq(load_acquire(&c.seen), 0);
	steps_until(load_acquire(&c.ran));
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(load_acquire(&c.seen), 7);
	done_by_hand(e);
}
END_TEST

static int free_on_device(struct pawl_run *run, void *arg)
{
	MUST(run->stream);
	return pawl_run_free(run, arg);
}

struct fill {
	unsigned char *p;
	u32 nap;
	unsigned char seen;
};

static int fill_body(struct pawl_run *run, void *arg)
{
	struct fill *f = arg;
	int rc = pawl_run_call(run, nap_fn, &f->nap);

	return rc ? rc : pawl_run_set(run, f->p, 0x42, 1 << 16);
}

static int fetch_body(struct pawl_run *run, void *arg)
{
	struct fill *f = arg;

	return pawl_run_copy(run, &f->seen, f->p + 65535, 1, PAWL_DEVICE_TO_HOST);
}

/* Freed after the last use, and without a wait of the host. */
START_TEST(delete_on_a_device_is_in_stream_order)
{
	struct pawl_engine *e = plain();
	u32 i;

	for (i = 0; i < 20; i++) {
		pawl_var_t v = var_new(e), w = var_new(e);
		struct fill f = { .nap = 500 };
		struct pawl_op op;

		OK(pawl_device_alloc(e, dev0, 1 << 16, (void **)&f.p));
		OK(push_dev(e, fill_body, &f, NULL, 0, &v, 1));
		op = dev_op(fetch_body, &f);
		op.prop = PAWL_COPY_FROM_DEVICE;
		op.reads = &v;
		op.nreads = 1;
		op.writes = &w;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		OK(pawl_var_delete_on(e, v, dev0, free_on_device, f.p));
		FAILS(push_read(e, nothing, NULL, v), -ESTALE);
		OK(pawl_wait_readable(e, w, SOON_NS, NULL));
		ck_assert_uint_eq(f.seen, 0x42);
		OK(pawl_wait_all(e, SOON_NS, NULL));
	}
	FAILS(pawl_var_delete_on(e, var_new(e), (struct pawl_device){ 9, 9 }, NULL, NULL),
	      -ENODEV);
	OK(pawl_engine_destroy(e));
}
END_TEST

static int is_over(struct pawl_run *run, void *arg)
{
	struct cell *c = arg;

	MUST(!run->stream && load_acquire(&c->ran) == 1);
	store_release(&c->seen, 77);
	return 0;
}

/* The plain delete runs on the host, when the device no longer uses the data. */
START_TEST(delete_waits_for_the_device)
{
	struct pawl_engine *e = by_hand(1);
	pawl_var_t v = var_new(e);
	struct cell c = { 0 };

	OK(push_dev(e, cell_body, &c, &v, 1, NULL, 0));
	OK(pawl_var_delete(e, v, is_over, &c));
	nap_us(2000);
	ck_assert_uint_eq(load_acquire(&c.seen), 0);
	steps_until(load_acquire(&c.ran));
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(load_acquire(&c.seen), 77);
	done_by_hand(e);
}
END_TEST

/* An op without a body also orders work that the device has not done yet. */
START_TEST(an_op_without_a_body_orders)
{
	struct pawl_engine *e = by_hand(1);
	pawl_var_t v = var_new(e), w = var_new(e), x = var_new(e);
	struct cell c = { 0 };
	struct pawl_op op;
	u32 ran = 0;

	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	op = op_read(NULL, NULL, &v);
	op.writes = &w;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	OK(push_dev(e, NULL, NULL, &w, 1, &x, 1));
	OK(push_read(e, add_one, &ran, x));
	nap_us(2000);
	ck_assert_uint_eq(load_acquire(&ran), 0);
	steps_until(load_acquire(&c.ran));
	steps_until(load_acquire(&ran));
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	done_by_hand(e);
}
END_TEST

struct later {
	struct pawl_engine *e;
	pawl_token_t token;
	u32 armed;		/* A */
	struct cell cell;
};

static void later_body(struct pawl_run *run, void *arg)
{
	struct later *l = arg;

	MUST(run->stream);
	MUST(!pawl_run_call(run, cell_kernel, &l->cell));
	l->token = run->token;
	store_release(&l->armed, 1);
}

START_TEST(an_asynchronous_body)
{
	struct pawl_engine *e = by_hand(1);
	pawl_var_t v = var_new(e);
	struct later l = { .e = e };
	struct pawl_op op = PAWL_OP_INIT;
	u32 ran = 0;

	op.async_fn = later_body;
	op.arg = &l;
	op.device = dev0;
	op.writes = &v;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	OK(push_read(e, add_one, &ran, v));
	MUST(soon(load_acquire(&l.armed)));
	nap_us(1000);
	ck_assert_uint_eq(version(e, v), 0);
	OK(pawl_complete(e, l.token, 0, NULL));
	ck_assert_uint_eq(version(e, v), 1);
	nap_us(1000);
	ck_assert_uint_eq(load_acquire(&ran), 0);
	steps_until(load_acquire(&l.cell.ran));
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 1);
	done_by_hand(e);
}
END_TEST

START_TEST(an_asynchronous_body_as_a_graph)
{
	struct pawl_engine *e = by_hand(1);
	struct later l = { .e = e };
	struct pawl_op op = PAWL_OP_INIT, op2[2];
	pawl_graph_t g;

	op.async_fn = later_body;
	op.arg = &l;
	op.device = dev0;
	/* Several bodies run in one go, on a device. */
	op2[0] = op2[1] = op;
	FAILS(pawl_graph_create(e, op2, 2, 0, &g), -EINVAL, "ops[0] is asynchronous");
	op2[0].device = op2[1].device = (struct pawl_device){ PAWL_CPU, 0 };
	OK(pawl_graph_create(e, op2, 2, 0, &g));
	REFUSED(e, pawl_graph_push(e, g, LAUNCH(0, dev0)), -EINVAL, "graph_push", "asynchronous");
	OK(pawl_graph_delete(e, g));
	OK(pawl_graph_create(e, &op, 1, 0, &g));
	OK(pawl_graph_push(e, g, NULL));
	MUST(soon(load_acquire(&l.armed)));
	OK(pawl_complete(e, l.token, 0, NULL));
	steps_until(load_acquire(&l.cell.ran));
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_graph_delete(e, g));
	done_by_hand(e);
}
END_TEST

/* Engines whose device ops are issued by the waiting thread, and at once. */
START_TEST(other_kinds_of_engines)
{
	static const struct { int kind, workers; } k[] = {
		{ PAWL_PER_DEVICE, 0 }, { PAWL_POOLED, 2 }, { PAWL_POOLED, 0 }, { PAWL_NAIVE, 0 } };
	const struct fake_setup fs = { .devices = 2, .seed = 3, .delay = 80 };
	u32 i, j;

	for (i = 0; i < ARRAY_SIZE(k); i++) {
		struct pawl_engine *e = with_devices(1, k[i].kind, k[i].workers, &fs);
		pawl_var_t v = var_new(e);
		struct cell c = { 0 };
		u32 ran = 0;

		for (j = 0; j < 10; j++) {
			OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
			OK(push_read(e, add_one, &ran, v));
		}
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(c.v, cell_after(10));
		ck_assert_uint_eq(ran, 10);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* A body that waits for another op of its device. */
static int nested_body(struct pawl_run *run, void *arg)
{
	pawl_var_t v;
	struct cell *c = arg;
	struct pawl_op op = dev_op(cell_body, c);

	MUST(!pawl_var_create(run->engine, &v));
	op.writes = &v;
	op.nwrites = 1;
	MUST(!pawl_push(run->engine, &op));
	MUST(!pawl_wait_readable(run->engine, v, SOON_NS, NULL));
	return 0;
}

START_TEST(bodies_may_push_and_wait)
{
	const struct fake_setup fs = { .devices = 2, .seed = 3 };
	const struct pawl_device devs[1] = { dev0 };
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct cell cells[5] = { { 0 } };
	struct pawl_engine *e;
	u32 i;

	b->setup(&fs);
	c.devices = devs;
	c.ndevices = 1;
	c.device_streams = 2;
	e = engine_with(&c);
	for (i = 0; i < 5; i++)
		OK(push_dev(e, nested_body, &cells[i], NULL, 0, NULL, 0));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < 5; i++)
		ck_assert_uint_eq(cells[i].ran, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(memory_and_what_it_is)
{
	struct pawl_device_info i = { .size = sizeof(i) };
	struct pawl_engine *e = plain();
	struct device_info is;
	void *p;

	ck_assert_int_ge(pawl_device_count(b->kind), 1);
	FAILS(pawl_device_count(77), -ENOSYS);
	OK(pawl_device_info(dev0, &i));
	OK(b->ops->info(0, &is));
	ck_assert_uint_gt(strlen(i.name), 0);
	ck_assert_str_eq(i.name, is.name);
	ck_assert_uint_eq(i.memory, is.memory);
	ck_assert(i.major == is.major && i.minor == is.minor && i.units == is.units);
	ck_assert(i.driver == is.driver && i.runtime == is.runtime);
	if (!b->real)	/* of which others use some */
		ck_assert_uint_eq(i.memory_free, is.memory_free);
	FAILS(pawl_device_info((struct pawl_device){ (u16)b->kind, 200 }, &i), -ENODEV);
	i.size = 1;
	FAILS(pawl_device_info(dev0, &i), -EINVAL, "size");
	OK(pawl_device_alloc(e, dev0, 1000, &p));
	OK(pawl_device_free(e, dev0, p));
	OK(pawl_host_alloc(e, dev0, 1000, &p));
	OK(pawl_host_free(e, dev0, p));
	FAILS(pawl_device_alloc(e, dev1, 1000, &p), -ENODEV, "config.devices");
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * Memory that an op allocates, uses and frees on its stream; and the arguments of these calls.
 */
static u32 no_time;

struct memory {
	void *p;
	char from[64], to[64];
};

static int memory_body(struct pawl_run *run, void *arg)
{
	struct memory *m = arg;

	MUST(pawl_run_alloc(run, sizeof(m->from), NULL) == -EINVAL);
	MUST(pawl_run_call(run, NULL, NULL) == -EINVAL);
	MUST(!pawl_run_call(run, nap_fn, &no_time));
	MUST(pawl_run_copy(run, m->to, m->from, 1, PAWL_HOST_TO_HOST + 1) == -EINVAL);
	MUST(pawl_run_copy(run, m->to, m->from, 1, -1) == -EINVAL);
	MUST(!pawl_run_alloc(run, sizeof(m->from), &m->p));
	MUST(!pawl_run_copy(run, m->p, m->from, sizeof(m->from), PAWL_HOST_TO_DEVICE));
	MUST(!pawl_run_set(run, m->p, 'x', 8));
	MUST(!pawl_run_copy(run, m->to, m->p, sizeof(m->to), PAWL_DEVICE_TO_HOST));
	return pawl_run_free(run, m->p);
}

START_TEST(an_op_has_memory_of_its_own)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct memory m = { .from = "overwritten, but for this" };
	void *p;

	OK(push_dev(e, memory_body, &m, NULL, 0, &v, 1));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_str_eq(m.to, "xxxxxxxxten, but for this");
	FAILS(pawl_device_alloc(e, dev0, 1, NULL), -EINVAL, "out");
	FAILS(pawl_host_alloc(e, dev0, 1, NULL), -EINVAL, "out");
	OK(pawl_host_alloc(e, dev0, 1, &p));
	OK(pawl_host_free(e, dev0, p));
	OK(pawl_engine_destroy(e));
}
END_TEST

static int memory_on_cpu(struct pawl_run *run, void *arg)
{
	struct memory *m = arg;
	struct cell c = { 0 };
	int rc = memory_body(run, m);

	MUST(!strcmp(m->to, "xxxxxxxxten, but for this"));
	MUST(!pawl_run_call(run, cell_kernel, &c) && c.ran == 1);
	return rc;
}

/* The same body may run on a CPU, where each call is complete when it returns. */
START_TEST(an_op_on_a_cpu_has_memory_of_its_own)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct memory m = { .from = "overwritten, but for this" };

	OK(push_write(e, memory_on_cpu, &m, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(version(e, v), 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A program's struct from a newer header, followed by other memory. */
START_TEST(info_of_a_newer_program)
{
	struct {
		struct pawl_device_info old;
		u64 unknown[2];
		u64 others;
	} d = { .unknown = { 1, 1 }, .others = 0x1234567887654321ull };
	const struct fake_setup fs = { .devices = 1 };

	b->setup(&fs);
	d.old.size = (size_t)((char *)&d.others - (char *)&d);
	OK(pawl_device_info(dev0, &d.old));
	ck_assert_uint_eq(d.old.size, (size_t)((char *)&d.others - (char *)&d));
	ck_assert(d.old.name[0] && !d.unknown[0] && !d.unknown[1]);
	ck_assert_uint_eq(d.others, 0x1234567887654321ull);
	d.old.size = 0;
	FAILS(pawl_device_info(dev0, &d.old), -EINVAL, "device_info", "size");
}
END_TEST

START_TEST(bad_configurations)
{
	const struct fake_setup fs = { .devices = 2 };
	struct pawl_device devs[3] = { dev0, dev0, { (u16)b->kind, 99 } };
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	struct pawl_op op;

	b->setup(&fs);
	c.ndevices = 2;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "config.devices");
	c.devices = devs;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "twice");
	c.devices = &devs[2];
	c.ndevices = 1;
	FAILS(pawl_engine_create(&c, &e), -ENODEV, "99");
	devs[2].id = 255;
	FAILS(pawl_engine_create(&c, &e), -ENODEV, "255");
	devs[2].id = 256;	/* where the names of adopted streams begin */
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "number 256");
	devs[2].kind = 12;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "kind 12");
	c.ndevices = 17;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "ndevices");
	c.devices = devs;
	c.ndevices = 1;
	c.device_streams = 0;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "device_streams");
	c.ndevices = 0;
	c.device_streams = 16;
	e = engine_with(&c);
	op = dev_op(nothing, NULL);
	FAILS(pawl_push(e, &op), -ENODEV, "kind");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Two devices with one number: what is meant for one is neither issued nor refused as the other. */
START_TEST(devices_of_two_kinds)
{
	const struct fake_setup fs = { .devices = 1, .seed = 3 };
	struct pawl_device devs[4];
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct backend list[4];
	int n = backends(list), i;
	struct cell cell = { 0 };
	struct pawl_engine *e;
	struct pawl_op op;
	pawl_var_t v;

	for (i = 0; i < n; i++) {
		if (!list[i].kind)
			continue;
		list[i].setup(&fs);
		devs[c.ndevices++] = (struct pawl_device){ (u16)list[i].kind, 0 };
	}
	c.devices = devs;
	e = engine_with(&c);
	v = var_new(e);
	for (i = 0; i < 10; i++) {
		op = dev_op(cell_body, &cell);
		op.device = devs[(u32)i % c.ndevices];
		op.writes = &v;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		MUST(soon(version(e, v) == (u64)i + 1));
		ck_assert_uint_eq(load_acquire(&cell.dev.kind), op.device.kind);
	}
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(cell.v, cell_after(10));
	op.device = (struct pawl_device){ 99, 0 };
	FAILS(pawl_push(e, &op), -ENODEV);
	OK(pawl_engine_destroy(e));
}
END_TEST

static struct pawl_engine *naive;

static void *naive_pushes(void *arg)
{
	u32 cell = 0, i;

	for (i = 0; i < (u32)TIMES(400); i++) {
		struct pawl_op op = dev_op(add_one, &cell);

		MUST(!pawl_push(naive, &op));
		MUST(load_relaxed(&cell) == i + 1);	/* it ran inside the push */
	}
	return NULL;
}

/* However little work the streams may have: a naive engine has no thread that makes room. */
START_TEST(naive_pushes_of_several_threads_end)
{
	const struct fake_setup fs = { .devices = 1, .delay = 5 };
	struct pawl_config c = small(PAWL_NAIVE, 0);
	pthread_t t[3];
	u32 window, i;

	c.devices = &dev0;
	c.ndevices = 1;
	for (window = 1; window <= 3; window++) {
		b->setup(&fs);
		c.device_window = window;
		naive = engine_with(&c);
		for (i = 0; i < 3; i++)
			t[i] = spawn(naive_pushes, NULL);
		for (i = 0; i < 3; i++)
			join(t[i]);
		OK(pawl_wait_all(naive, SOON_NS, NULL));
		OK(pawl_engine_destroy(naive));
	}
}
END_TEST

/* Also one that could not be created, because its second device is none. */
START_TEST(an_engine_that_ended_leaves_no_memory)
{
	enum { N = 12 };
	const struct fake_setup fs = { .devices = 1, .manual = true };
	struct pawl_device devs[2] = { dev0, { dev0.kind, 99 } };
	struct pawl_config c = small(PAWL_NAIVE, 0);
	struct pawl_engine *e;
	size_t before = 0, after;
	u32 i;

	b->setup(&fs);
	c.devices = devs;
	for (i = 0; i < 2 * N; i++) {
		if (i == N)
			before = mallinfo2().uordblks + mallinfo2().hblkhd;
		c.ndevices = 2;
		FAILS(pawl_engine_create(&c, &e), -ENODEV, "99");
		c.ndevices = 1;
		e = engine_with(&c);
		OK(pawl_engine_destroy(e));
	}
	after = mallinfo2().uordblks + mallinfo2().hblkhd;
	ck_assert_msg(after < before + N * 4096, "%zu bytes", after - before);
}
END_TEST

static u32 made;
static u32 started, stopped, watching;	/* A */

static void starts(void *user, const char *name)
{
	fetch_add_relaxed(&started, 1);
	if (!strcmp(name, "pawl-devices"))
		fetch_add_relaxed(&watching, 1);
}

static void stops(void *user, const char *name)
{
	fetch_add_relaxed(&stopped, 1);
	if (!strcmp(name, "pawl-devices"))
		fetch_add_relaxed(&watching, 16);
}

static int makes(void *user, void *(*fn)(void *arg), void *arg, void **thread)
{
	made++;
	return pthread_create((pthread_t *)thread, NULL, fn, arg);
}

static void joins(void *user, void *thread)
{
	pthread_join((pthread_t)thread, NULL);
}

/* What engine_create says of max_threads is right with devices, too. */
START_TEST(all_threads_have_a_place)
{
	const struct fake_setup fs = { .devices = 2 };
	const struct pawl_device devs[2] = { dev0, dev1 };
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	unsigned int need = 0;
	struct pawl_engine *e;
	const char *tells;

	made = started = stopped = watching = 0;
	b->setup(&fs);
	c.name = "pawl";
	c.devices = devs;
	c.ndevices = 2;
	c.device_workers = 3;
	c.start_workers = true;
	c.thread_create = makes;
	c.thread_join = joins;
	c.thread_start = starts;
	c.thread_stop = stops;
	c.max_threads = 3;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "max_threads is 3", "the workers need");
	tells = strstr(pawl_error_text(), "need ");
	ck_assert_int_eq(sscanf(tells, "need %u", &need), 1);
	c.max_threads = need - 1;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "max_threads");
	c.max_threads = need;
	e = engine_with(&c);
	/* and the thread that creates it */
	ck_assert_uint_eq(made + 1, need);
	OK(pawl_engine_destroy(e));
	ck_assert_uint_eq(load_acquire(&started), made);
	ck_assert_uint_eq(load_acquire(&stopped), made);
	ck_assert_uint_eq(load_acquire(&watching), 17);
	/* Without workers only the thread that waits for devices exists; no thread runs bodies. */
	made = started = stopped = 0;
	c.workers = 0;
	c.max_threads = 1;
	FAILS(pawl_engine_create(&c, &e), -EUSERS, "engine_create", "the thread for devices");
	ck_assert_uint_eq(made, 1);
	ck_assert(load_acquire(&started) == 1 && load_acquire(&stopped) == 1);
	c.max_threads = 2;
	e = engine_with(&c);
	ck_assert_uint_eq(made, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

static struct pawl_queue_stats queue_of(struct pawl_engine *e, struct pawl_device of, u32 prop)
{
	struct pawl_queue_stats s = { .size = sizeof(s) };

	OK(pawl_queue_stats(e, of, prop, &s));
	return s;
}

/* In an engine without workers, ops stay in their queues until the wait. */
START_TEST(each_queue_of_a_device_has_a_name_and_counts)
{
	static const struct { u16 prop; const char *name; } q[] = {
		{ PAWL_NORMAL, "g1" }, { PAWL_GPU_PRIORITIZED, "gp1" },
		{ PAWL_COPY_TO_DEVICE, "gi1" }, { PAWL_COPY_FROM_DEVICE, "go1" } };
	const struct fake_setup fs = { .devices = 2, .seed = 1 };
	struct pawl_engine *e = with_devices(2, PAWL_PER_DEVICE, 0, &fs);
	struct pawl_op op = dev_op(nothing, NULL);
	struct pawl_queue_stats s;
	u32 i, k;

	op.device = dev1;
	for (i = 0; i < ARRAY_SIZE(q); i++) {
		op.prop = q[i].prop;
		for (k = 0; k <= i; k++)
			OK(pawl_push(e, &op));
	}
	for (i = 0; i < ARRAY_SIZE(q); i++) {
		s = queue_of(e, dev1, q[i].prop);
		ck_assert_str_eq(s.name, q[i].name);
		ck_assert_uint_eq(s.depth, i + 1);
		ck_assert_uint_eq(s.pushed, i + 1);
		ck_assert_uint_eq(s.workers, 0);
		ck_assert_uint_eq(queue_of(e, dev0, q[i].prop).pushed, 0);
	}
	/* the properties of CPUs are in the first one */
	ck_assert_str_eq(queue_of(e, dev1, PAWL_CPU_PRIORITIZED).name, "g1");
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(queue_of(e, dev1, PAWL_NORMAL).depth, 0);
	s.size = sizeof(s);
	FAILS(pawl_queue_stats(e, (struct pawl_device){ dev0.kind, 2 }, 0, &s), -ENODEV);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The child has no devices; those of the parent continue. */
START_TEST(a_child_never_touches_the_device)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct cell c = { 0 };
	u64 calls;
	pid_t pid;

	workers_up(e, 2);
	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	calls = b->calls();
	pid = child_fork();
	if (!pid) {
		struct pawl_op op = dev_op(cell_body, &c);
		void *p;
		int bad = 0;

		bad |= pawl_push(e, &op) != -EOWNERDEAD;
		bad |= pawl_device_count(b->kind) != -EOWNERDEAD;
		bad |= pawl_device_alloc(e, dev0, 8, &p) != -EOWNERDEAD;
		bad |= pawl_wait_all(e, 0, NULL) != -EOWNERDEAD;
		bad |= pawl_engine_destroy(e) != 0;
		_exit(bad || b->calls() != calls);
	}
	ck_assert_int_eq(child_wait(pid), 0);
	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

int main(void)
{
	const TTest *const any[] = {
		a_body_gets_its_stream, no_place_for_a_worker,
		delete_on_a_device_is_in_stream_order, other_kinds_of_engines,
		bodies_may_push_and_wait, memory_and_what_it_is, an_op_has_memory_of_its_own,
		an_op_on_a_cpu_has_memory_of_its_own, NULL };
	const TTest *const told[] = {
		a_wait_is_for_the_work_not_for_the_body, a_wait_for_all_has_its_time_once,
		a_look_again_and_again_ends, naive_pushes_of_several_threads_end,
		no_worker_waits_for_the_device, delete_waits_for_the_device,
		an_op_without_a_body_orders, an_asynchronous_body, an_asynchronous_body_as_a_graph,
		info_of_a_newer_program, bad_configurations, devices_of_two_kinds,
		an_engine_that_ended_leaves_no_memory, all_threads_have_a_place,
		each_queue_of_a_device_has_a_name_and_counts, a_child_never_touches_the_device,
		NULL };

	return devices_run(any, told);
}
