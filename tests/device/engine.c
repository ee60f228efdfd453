// SPDX-License-Identifier: Apache-2.0
/*
 * Engines with devices: what is promised in pawl/device.h, on every kind of device.
 */
#include <signal.h>
#include "../unit/util.h"
#include <pawl/device.h>
#include "backend.h"

static struct backend list[4];
static struct backend *b;	/* the one under test */
static struct pawl_device dev0, dev1;

static struct pawl_engine *with_devices(u32 n, int kind, int workers, const struct fake_setup *fs)
{
	const struct pawl_device devs[2] = { dev0, dev1 };
	struct pawl_config c = small(kind, workers);

	b->setup(fs);
	c.devices = devs;
	c.ndevices = n;
	return engine_with(&c);
}

static struct pawl_engine *plain(void)
{
	const struct fake_setup fs = { .devices = 2, .seed = 1, .delay = 20 };

	return with_devices(1, PAWL_PER_DEVICE, 2, &fs);
}

/* Nothing moves on the device but by steps(). */
static struct pawl_engine *by_hand(int workers)
{
	const struct fake_setup fs = { .devices = 2, .seed = 1, .manual = true };

	return with_devices(1, PAWL_PER_DEVICE, workers, &fs);
}

static u64 steps_seed = 1;

/* Let the device go on until cond() holds. */
#define steps_until(cond)							\
	MUST(soon(({ b->step(rnd(&steps_seed)); (cond); })))

/* From now on it goes on by itself. */
static pthread_t stepper;
static u32 stepping;		/* A */

static void *stepper_main(void *arg)
{
	u64 seed = 99;

	while (load_acquire(&stepping))
		if (!b->step(rnd(&seed)))
			nap_us(20);
	return NULL;
}

static void steps_go(void)
{
	store_release(&stepping, 1);
	stepper = spawn(stepper_main, NULL);
}

static void done_by_hand(struct pawl_engine *e)
{
	OK(pawl_engine_destroy(e));
	store_release(&stepping, 0);
	join(stepper);
}

/* --- bodies --- */

struct cell {
	u64 v;			/* changed by the device, one after the other */
	u32 ran;		/* A */
	u32 nap_us;
	void *stream;		/* A: of the last body */
	struct pawl_device dev;	/* A */
	u32 seen;		/* A */
};

static void cell_kernel(void *arg)
{
	struct cell *c = arg;

	if (c->nap_us)
		nap_us(c->nap_us);
	c->v = c->v * 3 + 1;
	fetch_add_acq_rel(&c->ran, 1);
}

static int cell_body(struct pawl_run *run, void *arg)
{
	struct cell *c = arg;

	store_release(&c->stream, run->stream);
	store_release(&c->dev.kind, run->device.kind);
	store_release(&c->dev.id, run->device.id);
	return pawl_run_call(run, cell_kernel, c);
}

static u64 cell_after(u32 n)
{
	u64 v = 0;

	while (n--)
		v = v * 3 + 1;
	return v;
}

static struct pawl_op dev_op(pawl_fn fn, void *arg)
{
	struct pawl_op op = op_of_fn(fn, arg);

	op.device = dev0;
	return op;
}

static int push_dev(struct pawl_engine *e, pawl_fn fn, void *arg, const pawl_var_t *r, u32 nr,
		    const pawl_var_t *w, u32 nw)
{
	struct pawl_op op = dev_op(fn, arg);

	op.reads = r;
	op.nreads = nr;
	op.writes = w;
	op.nwrites = nw;
	return pawl_push(e, &op);
}

static int cell_check(struct pawl_run *run, void *arg)
{
	struct cell *c = arg;

	MUST(!run->stream);
	store_release(&c->seen, c->v == cell_after(1) ? 7 : 8);
	return 0;
}

/* --- tests --- */

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

	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	MUST(soon(version(e, v) == 1));
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

/* Nobody else has asked for an event behind the work. */
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

/* No place is left for the thread that issues the device's ops: who waits does. */
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

/* With one worker: an op that must wait for the device does not keep it. */
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

/* One stream: no event at all. */
START_TEST(a_chain_stays_in_one_stream)
{
	enum { N = 200 };
	struct pawl_engine *e = by_hand(2);
	pawl_var_t v = var_new(e);
	struct fake_counts before, after;
	struct cell c = { 0 };
	void *first = NULL;
	u32 i;

	b->counts(&before);
	for (i = 0; i < N; i++) {
		OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
		MUST(soon(version(e, v) == i + 1));
		first = first ? first : load_acquire(&c.stream);
		ck_assert_ptr_eq(load_acquire(&c.stream), first);
	}
	b->counts(&after);
	ck_assert_uint_eq(after.waits - before.waits, 0);
	ck_assert_uint_eq(after.records - before.records, 0);
	steps_go();
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(c.v, cell_after(N));
	done_by_hand(e);
}
END_TEST

/* Readers of one var run beside each other, and do not wait for each other. */
START_TEST(readers_spread_over_streams)
{
	enum { N = 8 };
	struct pawl_engine *e = by_hand(2);
	pawl_var_t v = var_new(e), w[N];
	struct cell c = { 0 }, r[N] = { { 0 } };
	u32 i, j;

	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	for (i = 0; i < N; i++) {
		w[i] = var_new(e);
		OK(push_dev(e, cell_body, &r[i], &v, 1, &w[i], 1));
	}
	for (i = 0; i < N; i++)
		MUST(soon(version(e, w[i]) == 1));
	for (i = 0; i < N; i++)
		for (j = 0; j < i; j++)
			ck_assert_ptr_ne(load_acquire(&r[i].stream), load_acquire(&r[j].stream));
	/* The next writer is behind all of them. */
	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	MUST(soon(version(e, v) == 2));
	while (b->step(rnd(&steps_seed)))
		for (i = 0; i < N && load_acquire(&c.ran) == 2; i++)
			ck_assert_uint_eq(load_acquire(&r[i].ran), 1);
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(c.ran, 2);
	done_by_hand(e);
}
END_TEST

/* An upload does not stand behind a download. */
START_TEST(copies_have_streams_of_their_own)
{
	struct pawl_engine *e = by_hand(2);
	pawl_var_t v[3] = { var_new(e), var_new(e), var_new(e) };
	struct cell c[3] = { { 0 } };
	struct pawl_op op;
	u32 i;

	for (i = 0; i < 3; i++) {
		op = dev_op(cell_body, &c[i]);
		op.writes = &v[i];
		op.nwrites = 1;
		op.prop = (const u16[]){ PAWL_COPY_FROM_DEVICE, PAWL_COPY_TO_DEVICE, PAWL_NORMAL }[i];
		OK(pawl_push(e, &op));
		MUST(soon(version(e, v[i]) == 1));
	}
	ck_assert_ptr_ne(load_acquire(&c[0].stream), load_acquire(&c[1].stream));
	ck_assert_ptr_ne(load_acquire(&c[0].stream), load_acquire(&c[2].stream));
	ck_assert_ptr_ne(load_acquire(&c[1].stream), load_acquire(&c[2].stream));
	steps_go();
	done_by_hand(e);
}
END_TEST

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
	FAILS(pawl_wait_readable(e, w, SOON_NS, &x), -EIO, "no such kernel");
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
	u32 ran = 0;

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
	/* A later op there fails; what has nothing to do with it runs. */
	OK(push_dev(e, cell_body, &c, NULL, 0, &x, 1));
	FAILS(pawl_wait_readable(e, x, SOON_NS, &err), -ENOTRECOVERABLE, "lost");
	OK(push_write(e, add_one, &ran, var_new(e)));
	FAILS(pawl_wait_all(e, SOON_NS, &err), -ENOTRECOVERABLE, "lost");
	ck_assert_uint_eq(load_acquire(&ran), 1);
	ck_assert_uint_eq(load_acquire(&c.ran), 0);
	OK(pawl_engine_destroy(e));
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

static void nap_fn(void *arg)
{
	nap_us(*(u32 *)arg);
}

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
	FAILS(pawl_var_delete_on(e, var_new(e), (struct pawl_device){ 9, 9 }, NULL, NULL), -ENODEV);
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

/* The plain delete runs on the host, when the device is done with the data. */
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

/* An op without a body orders what the device has not done yet, too. */
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

START_TEST(operators_batches_and_bulks)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct pawl_op ops[4];
	struct cell c = { 0 };
	pawl_oper_t oper;
	u32 i;

	for (i = 0; i < 4; i++) {
		ops[i] = dev_op(cell_body, &c);
		ops[i].writes = &v;
		ops[i].nwrites = 1;
	}
	OK(pawl_oper_create(e, &ops[0], &oper));
	for (i = 0; i < 5; i++)
		OK(pawl_oper_push(e, oper, 0, dev0));
	FAILS(pawl_oper_push(e, oper, 0, (struct pawl_device){ dev0.kind, 99 }), -ENODEV);
	OK(pawl_push_batch(e, ops, 4));
	ck_assert_int_eq(pawl_bulk_size(e, 4), 0);
	for (i = 0; i < 6; i++)
		OK(pawl_push(e, &ops[0]));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(c.v, cell_after(15));
	OK(pawl_oper_delete(e, oper));
	OK(pawl_engine_destroy(e));
}
END_TEST

static int count_body(struct pawl_run *run, void *arg)
{
	struct cell *c = arg;

	fetch_add_relaxed(&c->seen, 1);
	return pawl_run_call(run, cell_kernel, c);
}

/* Pushed again and again, it becomes one launch; the bodies are called no more. */
START_TEST(a_batch_is_captured)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e), w = var_new(e);
	struct fake_counts before, after;
	struct cell c = { 0 }, d = { 0 };
	struct pawl_op ops[4];
	pawl_oper_t many, one;
	u32 i;

	for (i = 0; i < 4; i++) {
		ops[i] = dev_op(count_body, i & 1 ? &d : &c);
		ops[i].writes = i & 1 ? &w : &v;
		ops[i].nwrites = 1;
	}
	OK(pawl_oper_create_many(e, ops, 4, &many));
	if (b->counts)
		b->counts(&before);
	for (i = 0; i < 10; i++) {
		OK(pawl_oper_push(e, many, 0, dev0));
		/* Something else in between, on one of the vars. */
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
	/* It has changed: the bodies run twice more. */
	OK(pawl_oper_refresh(e, many));
	for (i = 0; i < 5; i++)
		OK(pawl_oper_push(e, many, 0, dev0));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(c.seen + d.seen, 16);
	ck_assert_uint_eq(d.v, cell_after(30));
	/* On a CPU the bodies run each time. */
	OK(pawl_oper_push(e, many, 0, (struct pawl_device){ PAWL_CPU, 0 }));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(d.v, cell_after(32));
	OK(pawl_oper_delete(e, many));
	FAILS(pawl_oper_refresh(e, many), -ESTALE);
	OK(pawl_oper_create(e, &ops[0], &one));
	FAILS(pawl_oper_refresh(e, one), -EINVAL);
	OK(pawl_oper_delete(e, one));
	FAILS(pawl_oper_create_many(e, ops, 0, &one), -EINVAL);
	ops[2].device.kind = PAWL_CPU;
	FAILS(pawl_oper_create_many(e, ops, 4, &one), -EINVAL, "ops[2]");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A body that fails, at the first run and in the capture. */
static int fail_at(struct pawl_run *run, void *arg)
{
	u32 n = fetch_add_relaxed((u32 *)arg, 1);

	return n == 0 || n == 2 ? pawl_fail(run, -EIO, "run %u", n) : 0;
}

START_TEST(a_batch_whose_body_fails)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct pawl_op ops[2] = { dev_op(fail_at, NULL), dev_op(NULL, NULL) };
	struct cell c = { 0 };
	pawl_oper_t many;
	u32 n = 0, i;

	ops[0].arg = &n;
	ops[1].fn = cell_body;
	ops[1].arg = &c;
	ops[1].writes = &v;
	ops[1].nwrites = 1;
	OK(pawl_oper_create_many(e, ops, 2, &many));
	for (i = 0; i < 6; i++) {
		int rc;

		OK(pawl_oper_push(e, many, 0, dev0));
		rc = pawl_wait_readable(e, v, SOON_NS, NULL);
		ck_assert_int_eq(rc, load_relaxed(&n) == 1 || (i && load_relaxed(&n) == 3 && rc) ? -EIO : 0);
	}
	OK(pawl_oper_delete(e, many));
	(void)!pawl_wait_all(e, SOON_NS, NULL);
	ck_assert_uint_ge(c.v, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Engines whose device ops are issued by whoever waits, and at once. */
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

START_TEST(two_devices)
{
	const struct fake_setup fs = { .devices = 2, .seed = 5, .delay = 40 };
	struct pawl_engine *e;
	struct cell c = { 0 };
	pawl_var_t v;
	u32 i;

	if (b->real && pawl_device_count(b->kind) < 2)
		return;
	e = with_devices(2, PAWL_PER_DEVICE, 2, &fs);
	v = var_new(e);
	for (i = 0; i < 100; i++) {
		struct pawl_op op = dev_op(cell_body, &c);

		op.device = i & 1 ? dev1 : dev0;
		op.writes = &v;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
	}
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(c.v, cell_after(100));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(an_adopted_stream)
{
	struct pawl_engine *e = plain();
	struct pawl_device mine;
	pawl_var_t v = var_new(e);
	struct cell c = { 0 };
	struct pawl_op op;
	void *dev, *stream;
	u32 i;

	/* A stream of somebody else's on the same device. */
	if (b->kind == 1 || b->real) {
		OK(b->ops->open(0, &dev));
		OK(b->ops->stream_create(dev, 0, &stream));
	} else {
		OK(push_dev(e, cell_body, &c, NULL, 0, NULL, 0));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		stream = c.stream;
		dev = NULL;
	}
	memset(&c, 0, sizeof(c));
	OK(pawl_stream_adopt(e, dev0, stream, &mine));
	ck_assert_int_eq(mine.kind, b->kind);
	for (i = 0; i < 20; i++) {
		op = dev_op(cell_body, &c);
		op.device = i % 3 ? mine : dev0;
		op.writes = &v;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		MUST(soon(version(e, v) == i + 1));
		if (i % 3)
			ck_assert_ptr_eq(load_acquire(&c.stream), stream);
	}
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(c.v, cell_after(20));
	FAILS(pawl_stream_adopt(e, dev0, NULL, &mine), -EINVAL);
	FAILS(pawl_stream_adopt(e, (struct pawl_device){ 7, 7 }, stream, &mine), -ENODEV);
	OK(pawl_engine_destroy(e));
	if (dev) {
		OK(b->ops->stream_destroy(dev, stream));
		b->ops->close(dev);
	}
}
END_TEST

START_TEST(memory_and_what_it_is)
{
	struct pawl_device_info i = { .size = sizeof(i) };
	struct pawl_engine *e = plain();
	void *p;

	ck_assert_int_ge(pawl_device_count(b->kind), 1);
	FAILS(pawl_device_count(77), -ENOSYS);
	OK(pawl_device_info(dev0, &i));
	ck_assert_uint_gt(strlen(i.name), 0);
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

/* The child has no devices; the parent's go on. */
START_TEST(a_child_never_touches_the_device)
{
	struct pawl_engine *e = plain();
	pawl_var_t v = var_new(e);
	struct cell c = { 0 };
	int status;
	u64 calls;
	pid_t pid;

	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	calls = b->calls();
	pid = fork();
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
	MUST(pid > 0 && waitpid(pid, &status, 0) == pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

static struct pawl_engine *with_room(u32 room, u32 window, int policy)
{
	const struct fake_setup fs = { .devices = 1, .seed = 1, .manual = true };
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);

	b->setup(&fs);
	c.devices = &dev0;
	c.ndevices = 1;
	c.device_window = room;
	c.window = window;
	c.window_policy = policy;
	return engine_with(&c);
}

static int seen_body(struct pawl_run *run, void *arg)
{
	struct cell *c = arg;

	fetch_add_acq_rel(&c->seen, 1);
	return pawl_run_call(run, cell_kernel, c);
}

/*
 * So many ops in the streams of a device; others are issued when some of these are over, and
 * count for the window until then.
 */
START_TEST(work_in_streams_is_bounded)
{
	enum { ROOM = 8, WINDOW = 16 };
	struct pawl_engine *e = with_room(ROOM, WINDOW, PAWL_WINDOW_FAIL);
	struct cell one = { 0 }, c[3 * WINDOW] = { { 0 } };
	pawl_var_t v = var_new(e);
	u32 pushed = 0, issued, over, i;

	/* Half of them a chain. */
	for (i = 0; i < 3 * WINDOW; i++) {
		int rc;

		/* It goes on as long as there is room. */
		if (pushed < ROOM)
			nap_us(2000);
		rc = i & 1 ? push_dev(e, seen_body, &one, NULL, 0, &v, 1) :
		     push_dev(e, seen_body, &c[i], NULL, 0, NULL, 0);
		if (rc) {
			FAILS(rc, -EAGAIN, "window");
			break;
		}
		pushed++;
	}
	nap_us(20000);
	for (i = 0, issued = load_acquire(&one.seen); i < 3 * WINDOW; i++)
		issued += load_acquire(&c[i].seen);
	ck_assert_uint_le(issued, ROOM + 1);
	ck_assert_uint_ge(issued, ROOM);
	ck_assert_uint_ge(pushed, WINDOW);
	ck_assert_uint_le(pushed, issued + WINDOW);
	/* As the device goes on the others come, never more at once. */
	do {
		b->step(rnd(&steps_seed));
		for (i = 0, over = load_acquire(&one.ran); i < 3 * WINDOW; i++)
			over += load_acquire(&c[i].ran);
		for (i = 0, issued = load_acquire(&one.seen); i < 3 * WINDOW; i++)
			issued += load_acquire(&c[i].seen);
		MUST(issued <= over + ROOM + 1);
	} while (over < pushed);
	OK(push_dev(e, seen_body, &one, NULL, 0, &v, 1));
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	done_by_hand(e);
}
END_TEST

static u32 nap_none;
static u32 order_of[8], order_n;	/* A */

static int order_body(struct pawl_run *run, void *arg)
{
	/* One thread issues them. */
	order_of[load_relaxed(&order_n) & 7] = *(u32 *)arg;
	fetch_add_acq_rel(&order_n, 1);
	return pawl_run_call(run, nap_fn, &nap_none);
}

/* Ops that wait for room go by priority. */
START_TEST(held_ops_keep_their_priority)
{
	static u32 ids[4] = { 0, 1, 2, 3 };
	static const int prio[4] = { 0, -1, 5, 0 };
	struct pawl_engine *e = with_room(1, 0, PAWL_WINDOW_BLOCK);
	struct cell c = { 0 };
	struct pawl_op op;
	u32 i;

	store_release(&order_n, 0);
	OK(push_dev(e, seen_body, &c, NULL, 0, NULL, 0));
	MUST(soon(load_acquire(&c.seen)));
	for (i = 0; i < 4; i++) {
		op = dev_op(order_body, &ids[i]);
		op.priority = prio[i];
		OK(pawl_push(e, &op));
		nap_us(2000);	/* so that it is held before the next one comes */
	}
	ck_assert_uint_eq(load_acquire(&order_n), 0);
	steps_until(load_acquire(&order_n) == 4);
	ck_assert_uint_eq(order_of[0], 2);
	ck_assert_uint_eq(order_of[1], 0);
	ck_assert_uint_eq(order_of[2], 3);
	ck_assert_uint_eq(order_of[3], 1);
	steps_go();
	done_by_hand(e);
}
END_TEST

/* However much comes behind: whoever waits for the first of it need not wait for the rest. */
START_TEST(events_in_use_are_not_recorded_again)
{
	enum { N = 300 };
	struct pawl_engine *e;
	static struct cell c[N];
	u32 ran = 0, over, i;
	pawl_var_t v[N];
	struct pawl_op op;

	lane_events = 8;
	e = with_room(2 * N, 0, PAWL_WINDOW_BLOCK);
	lane_events = LANE_EVENTS;
	memset(c, 0, sizeof(c));
	for (i = 0; i < N; i++) {
		v[i] = var_new(e);
		op = dev_op(cell_body, &c[i]);
		op.prop = PAWL_COPY_TO_DEVICE;
		op.writes = &v[i];
		op.nwrites = 1;
		OK(pawl_push(e, &op));
	}
	for (i = 0; i < N; i++)
		MUST(soon(version(e, v[i]) == 1));
	OK(push_read(e, add_one, &ran, v[0]));
	do {
		nap_us(500);
		if (!load_acquire(&ran))
			b->step(0);
	} while (!load_acquire(&ran));
	for (i = 0, over = 0; i < N; i++)
		over += load_acquire(&c[i].ran);
	ck_assert_uint_le(over, N / 10);
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	done_by_hand(e);
}
END_TEST

static int free_after(struct pawl_run *run, void *arg)
{
	struct cell *c = arg;

	/* In order or not at all: it is over, or the stream is behind it. */
	MUST(run->stream);
	return pawl_run_call(run, cell_kernel, c);
}

/* A delete whose stream cannot be put behind the last use waits for that. */
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
			b->step(rnd(&steps_seed));
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

/* The naive engine waits after each op, and goes on if it may not. */
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
 * A piece of everything, in which call number k of the device fails.  Whatever that was:
 * each wait ends, an error is told, or the results are right.
 */
static int scenario(u64 k, bool gone, u64 *calls)
{
	const struct fake_setup fs = { .devices = 2, .seed = k };
	const struct pawl_device devs[1] = { dev0 };
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	pawl_oper_t many = { 0 };
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
	c.spin_ns = 0;		/* so that the device is asked to call back */
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
		OK(pawl_oper_create_many(e, &op, 1, &many));
	}
	for (i = 0; i < 4; i++) {
		struct pawl_op op = dev_op(cell_body, &d);

		OK(pawl_oper_push(e, many, 0, dev0));
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
		OK(pawl_oper_delete(e, many));
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
	const TTest *const tests[] = {
		a_body_gets_its_stream, readers_spread_over_streams, a_failed_body_poisons,
		a_lost_device_says_so_along_the_data, delete_on_a_device_is_in_stream_order,
		operators_batches_and_bulks, a_batch_is_captured, a_batch_whose_body_fails,
		other_kinds_of_engines, bodies_may_push_and_wait,
		two_devices, an_adopted_stream, no_place_for_a_worker, memory_and_what_it_is,
		bad_configurations,
		the_driver_unloads_first, every_call_fails_once,
		/* these need a device that can be told what to do */
		a_wait_is_for_the_work_not_for_the_body, a_look_again_and_again_ends, no_worker_waits_for_the_device,
		a_chain_stays_in_one_stream, copies_have_streams_of_their_own,
		delete_waits_for_the_device, an_op_without_a_body_orders, an_asynchronous_body,
		a_child_never_touches_the_device, work_in_streams_is_bounded,
		held_ops_keep_their_priority, events_in_use_are_not_recorded_again,
		a_delete_is_in_order_whatever_fails, a_naive_engine_whose_calls_fail, NULL };
	static const TTest *real[ARRAY_SIZE(tests)];
	int n = backends(list), i, j, k, failed = 0, kinds = 0;

	setenv("CK_FORK", "no", 1);
	for (i = 0; i < n; i++) {
		if (!list[i].kind)
			continue;
		kinds++;
		b = &list[i];
		dev0 = (struct pawl_device){ (u16)b->kind, 0 };
		dev1 = (struct pawl_device){ (u16)b->kind, 1 };
		for (j = k = 0; tests[j]; j++) {
			if (b->real && (tests[j] == readers_spread_over_streams ||
					tests[j] == bad_configurations))
				continue;
			if (b->real && tests[j] == a_wait_is_for_the_work_not_for_the_body)
				break;
			real[k++] = tests[j];
		}
		real[k] = NULL;
		failed |= tests_run(b->name, real);
	}
	if (!kinds) {
		printf("no kind of device is built in\n");
		return 77;
	}
	return failed;
}
