// SPDX-License-Identifier: Apache-2.0
/*
 * Streams of engines with devices: which stream an op uses, which streams wait for which, and
 * the limit of work on a stream.
 */
#include <core/devices.h>
#include "fixture.h"

/* One stream: no wait for an event; ops of another kind have another stream. */
START_TEST(a_chain_stays_in_one_stream)
{
	static const u16 kinds[] = { PAWL_NORMAL, PAWL_COPY_TO_DEVICE, PAWL_COPY_FROM_DEVICE,
				     PAWL_GPU_PRIORITIZED, PAWL_NORMAL };
	enum { N = 100 };
	struct pawl_engine *e = by_hand(2);
	pawl_var_t v = var_new(e);
	struct fake_counts before, after;
	struct cell c = { 0 };
	void *first, *last = NULL;
	struct pawl_op op = dev_op(cell_body, &c);
	u32 i, k;

	op.writes = &v;
	op.nwrites = 1;
	for (k = 0; k < ARRAY_SIZE(kinds); k++) {
		op.prop = kinds[k];
		first = NULL;
		for (i = 0; i < N; i++) {
			OK(pawl_push(e, &op));
			MUST(soon(version(e, v) == k * N + i + 1));
			if (!first)
				b->counts(&before);
			first = first ? first : load_acquire(&c.stream);
			ck_assert_ptr_eq(load_acquire(&c.stream), first);
		}
		b->counts(&after);
		ck_assert_uint_eq(after.waits - before.waits, 0);
		/* Behind a copy there is one, since an op in another stream will need it. */
		ck_assert_uint_eq(after.records - before.records,
				  k == 1 || k == 2 ? N - 1 : 0);
		ck_assert_ptr_ne(first, last);
		last = first;
	}
	steps_go();
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(c.v, cell_after(ARRAY_SIZE(kinds) * N));
	done_by_hand(e);
}
END_TEST

START_TEST(a_chain_on_the_second_device_stays_in_one_stream)
{
	const struct fake_setup fs = { .devices = 2, .seed = 1, .manual = true };
	struct pawl_engine *e;
	struct cell c = { 0 };
	struct pawl_op op = dev_op(cell_body, &c);
	void *first = NULL;
	pawl_var_t v;
	u32 i;

	if (b->real && pawl_device_count(b->kind) < 2)
		return;
	e = with_devices(2, PAWL_PER_DEVICE, 2, &fs);
	v = var_new(e);
	op.device = dev1;
	op.writes = &v;
	op.nwrites = 1;
	for (i = 0; i < 20; i++) {
		OK(pawl_push(e, &op));
		MUST(soon(version(e, v) == i + 1));
		first = first ? first : load_acquire(&c.stream);
		ck_assert_ptr_eq(load_acquire(&c.stream), first);
	}
	steps_go();
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
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
			ck_assert_ptr_ne(load_acquire(&r[i].stream),
					 load_acquire(&r[j].stream));
	/* The next writer is behind all of them. */
	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	MUST(soon(version(e, v) == 2));
	while (step_one())
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
		op.prop = (const u16[]){ PAWL_COPY_FROM_DEVICE, PAWL_COPY_TO_DEVICE,
					 PAWL_NORMAL }[i];
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

/* The maximum of an engine: a chain uses all streams in turn. */
START_TEST(sixteen_devices)
{
	enum { N = 16, ROUNDS = 3 };
	const struct fake_setup fs = { .devices = N, .seed = 1, .manual = true };
	struct pawl_config cfg = small(PAWL_PER_DEVICE, 1);
	struct pawl_device devs[N];
	struct cell c = { 0 };
	struct pawl_engine *e;
	pawl_var_t v;
	u32 i;

	for (i = 0; i < N; i++)
		devs[i] = (struct pawl_device){ dev0.kind, (u16)i };
	b->setup(&fs);
	cfg.devices = devs;
	cfg.ndevices = N;
	cfg.device_streams = 2;
	e = engine_with(&cfg);
	v = var_new(e);
	for (i = 0; i < ROUNDS * N; i++) {
		struct pawl_op op = dev_op(cell_body, &c);

		op.device = devs[i % N];
		op.writes = &v;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		MUST(soon(version(e, v) == i + 1));
		ck_assert_uint_eq(load_acquire(&c.dev.id), i % N);
	}
	/* Everything was issued, and nothing has run. */
	ck_assert_uint_eq(load_acquire(&c.ran), 0);
	steps_go();
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(c.v, cell_after(ROUNDS * N));
	done_by_hand(e);
}
END_TEST

START_TEST(an_adopted_stream)
{
	struct pawl_engine *e = plain();
	struct pawl_device mine, none;
	pawl_var_t v = var_new(e);
	struct cell c = { 0 };
	struct pawl_op op;
	void *dev, *stream;
	u32 i;

	/* A stream of another library on the same device. */
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
	for (i = 1; i < 64; i++)
		OK(pawl_stream_adopt(e, dev0, stream, &mine));
	FAILS(pawl_stream_adopt(e, dev0, stream, &none), -ENOMEM, "64");
	op.device = mine;
	OK(pawl_push(e, &op));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(c.v, cell_after(21));
	OK(pawl_engine_destroy(e));
	if (dev) {
		OK(b->ops->stream_destroy(dev, stream));
		b->ops->close(dev);
	}
}
END_TEST

START_TEST(an_adopted_stream_is_of_its_device)
{
	const struct fake_setup fs = { .devices = 2, .seed = 5 };
	struct pawl_engine *e = with_devices(2, PAWL_PER_DEVICE, 1, &fs);
	struct pawl_queue_stats s = { .size = sizeof(s) };
	struct pawl_device mine;
	pawl_var_t v = var_new(e);
	struct cell c = { 0 }, d = { 0 };
	struct pawl_op op = dev_op(cell_body, &c);
	u32 i;

	op.writes = &v;
	op.nwrites = 1;
	op.device = dev1;
	OK(pawl_push(e, &op));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	OK(pawl_stream_adopt(e, dev1, c.stream, &mine));
	op.device = mine;
	OK(pawl_push(e, &op));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert(c.dev.kind == mine.kind && c.dev.id == mine.id && mine.id >= ADOPTED_ID);
	/* whatever kind of op it is */
	for (op.prop = 0; op.prop <= PAWL_NO_SKIP; op.prop++) {
		OK(pawl_push(e, &op));
		OK(pawl_wait_readable(e, v, SOON_NS, NULL));
		ck_assert_uint_eq(load_acquire(&c.dev.id), mine.id);
		OK(push_dev(e, cell_body, &d, NULL, 0, NULL, 0));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	op.prop = PAWL_NORMAL;
	d.ran = 0;
	OK(pawl_queue_stats(e, mine, PAWL_NORMAL, &s));
	ck_assert_str_eq(s.name, "g1");
	b->lose(1);
	/* the first one finds it, and the engine fails the second one */
	for (i = 0; i < 2; i++) {
		v = var_new(e);
		OK(pawl_push(e, &op));
		FAILS(pawl_wait_readable(e, v, SOON_NS, NULL), -ENOTRECOVERABLE, i ? ":1 is lost" : "");
	}
	v = var_new(e);
	OK(push_dev(e, cell_body, &d, NULL, 0, &v, 1));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(d.ran, 1);
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

static u32 all_seen(const struct cell *c, u32 n)
{
	u32 i, sum = 0;

	for (i = 0; i < n; i++)
		sum += load_acquire(&c[i].seen);
	return sum;
}

static u32 all_ran(const struct cell *c, u32 n)
{
	u32 i, sum = 0;

	for (i = 0; i < n; i++)
		sum += load_acquire(&c[i].ran);
	return sum;
}

/*
 * The number of ops in the streams of a device is limited; further ops are issued when some of
 * these are complete, and count for the window until then.
 */
START_TEST(work_in_streams_is_bounded)
{
	enum { ROOM = 8, WINDOW = 16, N = 3 * WINDOW };
	struct pawl_engine *e = with_room(ROOM, WINDOW, PAWL_WINDOW_FAIL);
	struct cell c[N] = { { 0 } };
	pawl_var_t v = var_new(e);
	u32 pushed, issued, over;

	/* Half of them a chain. */
	for (pushed = 0; pushed < N; pushed++) {
		int rc = pushed & 1 ? push_dev(e, seen_body, &c[1], NULL, 0, &v, 1) :
			 push_dev(e, seen_body, &c[pushed], NULL, 0, NULL, 0);

		if (rc) {
			FAILS(rc, -EAGAIN, "window");
			break;
		}
		/* It continues as long as there is room. */
		MUST(pushed >= ROOM || soon(all_seen(c, N) == pushed + 1));
	}
	nap_us(20000);
	issued = all_seen(c, N);
	ck_assert_uint_ge(issued, ROOM);
	ck_assert_uint_le(issued, ROOM + 1);
	ck_assert_uint_ge(pushed, WINDOW);
	ck_assert_uint_le(pushed, issued + WINDOW);
	/* As the device progresses the others follow, and the limit holds. */
	do {
		step_one();
		over = all_ran(c, N);
		issued = all_seen(c, N);
		MUST(issued <= over + ROOM + 1);	/* one is on its way */
	} while (over < pushed);
	OK(push_dev(e, seen_body, &c[1], NULL, 0, &v, 1));
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	done_by_hand(e);
}
END_TEST

/* A finished launch that no thread has asked the device about does not count as work. */
START_TEST(a_push_that_needs_a_reap_fails_beside_a_device_too)
{
	enum { WINDOW = 4, N = 64 };
	struct pawl_engine *e = with_room(2, WINDOW, PAWL_WINDOW_BLOCK);
	struct cell c[N] = { { 0 } };
	struct pawl_completion out[N];
	pawl_cq_t cq;
	u32 pushed;
	int rc = 0, n;

	OK(pawl_cq_create(e, &cq));
	steps_go();
	for (pushed = 0; pushed < N; pushed++) {
		struct pawl_op op = dev_op(seen_body, &c[pushed]);

		op.flags = PAWL_OP_CQ;
		op.cq = cq;
		rc = pawl_push(e, &op);
		if (rc)
			break;
	}
	FAILS(rc, -EAGAIN, "reap");
	OK(pawl_wait_all(e, SOON_NS, NULL));
	n = pawl_cq_reap(e, cq, out, N);
	ck_assert_int_eq(n, (int)pushed);
	OK(push_dev(e, seen_body, &c[0], NULL, 0, NULL, 0));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	done_by_hand(e);
}
END_TEST

START_TEST(work_in_streams_is_bounded_by_the_window_too)
{
	enum { WINDOW = 4, MORE = 3, N = WINDOW + MORE };
	struct pawl_engine *e = with_room(512, WINDOW, PAWL_WINDOW_FAIL);
	struct dev_class *k = &e->devices->rows[0].class[CLASS_COMPUTE];
	struct cell c[N] = { { 0 } };
	u32 i;

	for (i = 0; i < N; i++) {
		OK(push_dev(e, seen_body, &c[i], NULL, 0, NULL, 0));
		MUST(soon(all_seen(c, N) + load_relaxed(&k->held) == i + 1));
	}
	ck_assert_uint_eq(all_seen(c, N), WINDOW);
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(all_ran(c, N), N);
	done_by_hand(e);
}
END_TEST

/*
 * A released op counts against the bound from then on, even if its thread issues it much
 * later.
 */
START_TEST(work_in_streams_is_bounded_while_an_op_is_on_its_way)
{
	struct pawl_engine *e = with_room(1, 0, PAWL_WINDOW_BLOCK);
	struct dev_class *k = &e->devices->rows[0].class[CLASS_COMPUTE];
	struct plug s = { 0 };
	struct cell c[3] = { { 0 } };
	struct pawl_op op = dev_op(plug_body, &s);
	u32 i;

	OK(push_dev(e, cell_body, &c[0], NULL, 0, NULL, 0));
	MUST(soon(load_acquire(&c[0].stream) && load_acquire(&k->load) == 1));
	for (i = 0; i < 3; i++)
		OK(push_dev(e, seen_body, &c[i], NULL, 0, NULL, 0));
	MUST(soon(load_relaxed(&k->held) == 3));
	/* The only thread that could issue them is stopped, on a stream of another class. */
	OK(pawl_stream_adopt(e, dev0, c[0].stream, &op.device));
	OK(pawl_push(e, &op));
	MUST(soon(load_acquire(&s.in)));
	steps_until(load_relaxed(&k->held) < 3);
	plug_out(&s);
	MUST(soon(all_seen(c, 3) == 1));
	ck_assert_uint_eq(load_relaxed(&k->held), 2);
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	done_by_hand(e);
}
END_TEST

/*
 * A released op that finds all streams taken by bodies keeps its room until it gets one; and then
 * the room is another op's.
 */
START_TEST(an_op_that_finds_all_streams_taken_keeps_its_room)
{
	const struct fake_setup fs = { .devices = 1, .seed = 1, .manual = true };
	struct pawl_config conf = small(PAWL_PER_DEVICE, 1);
	struct cell c[4] = { { 0 } };
	struct plug s = { 0 };
	struct pawl_engine *e;
	struct dev_class *k;
	u32 turn;

	b->setup(&fs);
	conf.devices = &dev0;
	conf.ndevices = 1;
	conf.device_streams = 1;
	conf.device_workers = 2;
	conf.device_window = 2;
	e = engine_with(&conf);
	k = &e->devices->rows[0].class[CLASS_COMPUTE];
	OK(push_dev(e, seen_body, &c[0], NULL, 0, NULL, 0));
	OK(push_dev(e, seen_body, &c[1], NULL, 0, NULL, 0));
	MUST(soon(load_acquire(&k->load) == 2));
	OK(push_dev(e, plug_body, &s, NULL, 0, NULL, 0));
	MUST(soon(load_relaxed(&k->held) == 1));
	OK(push_dev(e, seen_body, &c[2], NULL, 0, NULL, 0));
	MUST(soon(load_relaxed(&k->held) == 2));
	/* The first body holds the only stream, unless the other one was faster. */
	steps_until(load_acquire(&s.in));
	turn = load_relaxed(&k->turn);
	steps_until(load_acquire(&c[2].seen) || load_relaxed(&k->turn) - turn > 2);
	plug_out(&s);
	MUST(soon(load_acquire(&c[2].seen)));
	steps_until(!load_relaxed(&k->coming) && load_acquire(&c[2].ran));
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

/* CUDA's numbers are the other way round: the smallest of its range is the most urgent. */
START_TEST(the_stream_for_prioritized_ops_is_the_most_urgent)
{
	struct pawl_engine *e;
	struct pawl_op op;
	struct cell c = { 0 };

	if (!b->urgent)
		return;
	e = plain();
	op = dev_op(cell_body, &c);
	op.prop = PAWL_GPU_PRIORITIZED;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_int_eq(b->urgent(), -5);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Ops that wait for room are ordered by priority. */
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
		MUST(soon(load_relaxed(&e->devices->rows[0].class[CLASS_COMPUTE].held) == i + 1));
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

/* What is on its streams never ends, so there will be no room. */
START_TEST(ops_that_wait_for_room_end_with_their_device)
{
	enum { ROOM = 2, N = 6 };
	struct pawl_engine *e = with_room(ROOM, 0, PAWL_WINDOW_BLOCK);
	struct dev_class *held = &e->devices->rows[0].class[CLASS_COMPUTE];
	struct cell c[N] = { { 0 } };
	struct pawl_op op;
	u32 i;

	for (i = 0; i < N; i++) {
		op = dev_op(seen_body, &c[i]);
		op.flags = i == N - 1 ? PAWL_OP_NO_SKIP : 0;
		OK(pawl_push(e, &op));
	}
	MUST(soon(load_relaxed(&held->held) == N - ROOM));
	ck_assert_uint_eq(all_seen(c, N), ROOM);
	b->lose(0);
	FAILS(pawl_wait_all(e, SOON_NS, NULL), -ENOTRECOVERABLE, "lost");
	/* only the one that is never skipped, which may have something to free */
	ck_assert_uint_eq(all_seen(c, N), ROOM + 1);
	ck_assert_uint_eq(load_acquire(&c[N - 1].seen), 1);
	ck_assert_uint_eq(all_ran(c, N), 0);
	ck_assert_uint_eq(load_relaxed(&held->held), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A thread that waits for the first op need not wait for later ones, however many follow. */
START_TEST(events_in_use_are_not_recorded_again)
{
	enum { N = 300 };
	struct pawl_engine *e;
	static struct cell c[N];
	u32 ran = 0, i;
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
	while (pawl_wait_readable(e, v[0], 0, NULL) == -ETIMEDOUT)
		b->step(0);
	ck_assert_uint_le(all_ran(c, N), 2);
	/* That op waits, too: the device does not continue. */
	MUST(soon(load_acquire(&ran)));
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	done_by_hand(e);
}
END_TEST

/*
 * An event is recorded between two ops in one stream if something may wait for the first alone:
 * unless the second writes all that the first has used.
 */
START_TEST(an_event_ends_what_others_may_wait_for)
{
	static const struct { u32 first, second, reads; } use[] = {
		{ 1, 1, 0 }, { 2, 3, 0 }, { LANE_TIP, LANE_TIP, 0 },
		{ 1, 0, 1 }, { 2, 1, 0 }, { 2, 1, 1 }, { LANE_TIP + 1, LANE_TIP, 0 } };
	const struct fake_setup fs = { .devices = 1, .seed = 1, .manual = true };
	struct pawl_config config = small(PAWL_PER_DEVICE, 1);
	pawl_var_t v[LANE_TIP + 1];
	struct fake_counts before, after;
	struct pawl_engine *e;
	struct cell c[2];
	u32 i, k;

	b->setup(&fs);
	config.devices = &dev0;
	config.ndevices = 1;
	config.device_streams = 1;
	e = engine_with(&config);
	for (i = 0; i < COUNT(use); i++) {
		memset(c, 0, sizeof(c));
		for (k = 0; k < COUNT(v); k++)
			v[k] = var_new(e);
		OK(push_dev(e, cell_body, &c[0], NULL, 0, v, use[i].first));
		MUST(soon(version(e, v[0]) == 1));
		b->counts(&before);
		OK(push_dev(e, cell_body, &c[1], v + use[i].second, use[i].reads, v,
			    use[i].second));
		MUST(soon(load_acquire(&c[1].stream)));
		b->counts(&after);
		ck_assert_msg(after.records - before.records == (i >= 3), "case %u: %llu", i,
			      (unsigned long long)(after.records - before.records));
		steps_until(load_acquire(&c[1].ran));
	}
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	done_by_hand(e);
}
END_TEST

/* More streams have read a var than one record of its pending work holds. */
START_TEST(a_write_waits_for_readers_in_many_streams)
{
	enum { N = 30 };
	const struct fake_setup fs = { .devices = 1, .seed = 1, .manual = true };
	struct pawl_config config = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	static struct cell c[N];
	struct cell last = { 0 };
	pawl_var_t v;
	u32 turn, i;

	b->setup(&fs);
	config.devices = &dev0;
	config.ndevices = 1;
	config.device_streams = N;
	e = engine_with(&config);
	v = var_new(e);
	for (turn = 0; turn < 2; turn++) {
		memset(c, 0, sizeof(c));
		for (i = 0; i < N; i++)
			OK(push_dev(e, cell_body, &c[i], &v, 1, NULL, 0));
		for (i = 0; i < N; i++)
			MUST(soon(load_acquire(&c[i].stream)));
		/* The work runs only by step_one(). */
		while (all_ran(c, N) < N) {
			ck_assert_int_eq(pawl_wait_writable(e, v, 0, NULL), -ETIMEDOUT);
			step_one();
		}
		OK(push_dev(e, cell_body, &last, NULL, 0, &v, 1));
		steps_until(load_acquire(&last.ran) == turn + 1);
	}
	OK(pawl_var_delete_on(e, v, dev0, cell_body, &last));
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	/* Its records are used again, each for one var. */
	for (i = 0; i < 4; i++) {
		v = var_new(e);
		OK(push_dev(e, cell_body, &last, NULL, 0, &v, 1));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	done_by_hand(e);
}
END_TEST

/* The work of a var that was deleted in stream order is pending, and nothing of another var. */
START_TEST(a_new_var_knows_nothing_of_a_deleted_one)
{
	struct pawl_engine *e = by_hand(1);
	struct cell c = { 0 }, freed = { 0 }, r = { 0 };
	pawl_var_t v = var_new(e), w = var_new(e);

	OK(push_dev(e, cell_body, &c, NULL, 0, &v, 1));
	OK(pawl_var_delete_on(e, v, dev0, cell_body, &freed));
	MUST(soon(stats(e).completed == 2));
	OK(push_dev(e, cell_body, &r, &w, 1, NULL, 0));
	MUST(soon(stats(e).completed == 3));
	/* Only a write of the var has to wait for its reader. */
	OK(pawl_wait_readable(e, w, 0, NULL));
	ck_assert_int_eq(pawl_wait_writable(e, w, 0, NULL), -ETIMEDOUT);
	ck_assert(!load_acquire(&c.ran) && !load_acquire(&freed.ran) && !load_acquire(&r.ran));
	steps_go();
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert(c.ran == 1 && freed.ran == 1 && r.ran == 1);
	done_by_hand(e);
}
END_TEST

int main(void)
{
	const TTest *const any[] = {
		two_devices, an_adopted_stream, NULL };
	const TTest *const told[] = {
		a_chain_stays_in_one_stream,
		a_chain_on_the_second_device_stays_in_one_stream, readers_spread_over_streams, sixteen_devices,
		a_write_waits_for_readers_in_many_streams,
		a_new_var_knows_nothing_of_a_deleted_one, an_event_ends_what_others_may_wait_for,
		copies_have_streams_of_their_own, work_in_streams_is_bounded,
		a_push_that_needs_a_reap_fails_beside_a_device_too,
		work_in_streams_is_bounded_by_the_window_too,
		work_in_streams_is_bounded_while_an_op_is_on_its_way,
		an_op_that_finds_all_streams_taken_keeps_its_room,
		the_stream_for_prioritized_ops_is_the_most_urgent, held_ops_keep_their_priority,
		ops_that_wait_for_room_end_with_their_device, an_adopted_stream_is_of_its_device,
		events_in_use_are_not_recorded_again, NULL };

	return devices_run(any, told);
}
