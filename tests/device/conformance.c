// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of struct device_ops (device/device.h): the same tests for every kind of device.
 * backend.h has what depends on the kind.
 */
#include <malloc.h>
#include <signal.h>
#include "../unit/util.h"
#include "backend.h"

static struct backend list[4];
static struct backend *b;	/* the one under test */
static const struct device_ops *o;
static void *dev;

static void begin(u64 seed, u32 delay)
{
	const struct fake_setup s = { .devices = 2, .seed = seed, .delay = delay };

	b->setup(&s);
	OK(o->open(0, &dev));
}

static void end(void)
{
	o->close(dev);
	dev = NULL;
}

/* Work that the host can observe: a host call that records when it ran. */
struct mark {
	u32 *clock;
	u32 at;			/* A */
	u32 nap_us;
};

static void mark_fn(void *arg)
{
	struct mark *m = arg;

	if (m->nap_us)
		nap_us(m->nap_us);
	store_release(&m->at, fetch_add_acq_rel(m->clock, 1) + 1);
}

static void put_mark(void *stream, struct mark *m, u32 *clock, u32 nap)
{
	m->clock = clock;
	m->at = 0;
	m->nap_us = nap;
	OK(o->host_call(dev, stream, mark_fn, m));
}

START_TEST(counts_and_names)
{
	struct device_info i;
	int n = -1, k;

	begin(1, 0);
	OK(o->count(&n));
	ck_assert_int_ge(n, 1);
	for (k = 0; k < n; k++) {
		OK(o->info(k, &i));
		ck_assert_uint_gt(strlen(i.name), 0);
		ck_assert_uint_gt(i.memory, 0);
	}
	FAILS(o->info(n, &i), -ENODEV);
	FAILS(o->info(-1, &i), -ENODEV);
	end();
	FAILS(o->open(4711, &dev), -ENODEV);
	FAILS(o->open(-1, &dev), -ENODEV);
}
END_TEST

/* Of the CPU everything is known, and all its calls are complete when they return. */
START_TEST(the_cpu_is_what_the_system_says)
{
	enum { N = 100 };
	struct device_info i;
	u64 page = (u64)sysconf(_SC_PAGESIZE);
	size_t before = 0;
	void *s, *ev, *p[3];
	u32 k;

	if (b->kind || o != &device_cpu)
		return;
	memset(&i, 0xff, sizeof(i));
	OK(o->info(0, &i));
	ck_assert_str_eq(i.name, "host");
	ck_assert_uint_eq(i.memory, (u64)sysconf(_SC_PHYS_PAGES) * page);
	ck_assert(i.memory_free > page * 16 && i.memory_free <= i.memory && i.memory_free % page == 0);
	ck_assert_int_eq(i.units, sysconf(_SC_NPROCESSORS_ONLN));
	ck_assert(!i.major && !i.minor && !i.driver && !i.runtime);
	for (k = 0; k < 2 * N; k++) {
		if (k == N)
			before = mallinfo2().uordblks;
		begin(1, 0);
		OK(o->stream_create(dev, 0, &s));
		OK(o->event_create(dev, &ev));
		OK(o->alloc(dev, 100, &p[0]));
		OK(o->host_alloc(dev, 100, &p[1]));
		OK(o->alloc_async(dev, s, 100, &p[2]));
		OK(o->event_record(dev, ev, s));
		OK(o->event_query(dev, ev));
		OK(o->release(dev, p[0]));
		OK(o->host_free(dev, p[1]));
		OK(o->free_async(dev, s, p[2]));
		OK(o->event_destroy(dev, ev));
		OK(o->stream_destroy(dev, s));
		end();
	}
	ck_assert_uint_lt(mallinfo2().uordblks, before + N * 8);
}
END_TEST

START_TEST(memory)
{
	enum { N = 4096 };
	unsigned char *up, *down;
	void *p, *q, *stream;
	int i;

	begin(2, 5);
	OK(o->use(dev));
	OK(o->stream_create(dev, 0, &stream));
	OK(o->host_alloc(dev, N, (void **)&up));
	OK(o->host_alloc(dev, N, (void **)&down));
	OK(o->alloc(dev, N, &p));
	OK(o->alloc_async(dev, stream, N, &q));
	for (i = 0; i < N; i++)
		up[i] = (unsigned char)(i * 7);
	OK(o->copy(dev, stream, p, up, N, DEVICE_H2D));
	OK(o->copy(dev, stream, q, p, N, DEVICE_D2D));
	OK(o->set(dev, stream, q, 0x5a, 16));
	OK(o->copy(dev, stream, down, q, N, DEVICE_D2H));
	OK(o->free_async(dev, stream, q));
	OK(o->stream_sync(dev, stream));
	for (i = 0; i < N; i++)
		ck_assert_int_eq(down[i], i < 16 ? 0x5a : (unsigned char)(i * 7));
	OK(o->copy(dev, stream, down, up, N, DEVICE_H2H));
	OK(o->stream_sync(dev, stream));
	ck_assert_mem_eq(up, down, N);
	OK(o->release(dev, p));
	OK(o->release(dev, NULL));
	OK(o->host_free(dev, up));
	OK(o->host_free(dev, down));
	OK(o->stream_destroy(dev, stream));
	end();
}
END_TEST

START_TEST(memory_of_no_bytes_and_of_too_many)
{
	void *p;

	begin(12, 0);
	OK(o->alloc(dev, 0, &p));
	OK(o->release(dev, p));
	if (!SANITIZED) {	/* whose malloc() does not return */
		FAILS(o->alloc(dev, (size_t)1 << 62, &p), -ENOMEM, "memory");
		FAILS(o->host_alloc(dev, (size_t)1 << 62, &p), -ENOMEM, "memory");
	}
	end();
}
END_TEST

START_TEST(a_stream_is_in_order)
{
	enum { N = 100 };
	struct mark m[N];
	u32 clock = 0, i;
	void *stream;

	begin(3, 20);
	OK(o->stream_create(dev, 1, &stream));
	for (i = 0; i < N; i++)
		put_mark(stream, &m[i], &clock, 0);
	OK(o->stream_sync(dev, stream));
	OK(o->stream_query(dev, stream));
	for (i = 0; i < N; i++)
		ck_assert_uint_eq(load_acquire(&m[i].at), i + 1);
	OK(o->stream_destroy(dev, stream));
	end();
}
END_TEST

START_TEST(an_event_orders_streams)
{
	u32 i, clock;
	void *a, *c, *ev;

	for (i = 0; i < 50; i++) {
		struct mark first, second;

		clock = 0;
		begin(100 + i, 30);
		OK(o->stream_create(dev, 0, &a));
		OK(o->stream_create(dev, 0, &c));
		OK(o->event_create(dev, &ev));
		put_mark(a, &first, &clock, 200);
		OK(o->event_record(dev, ev, a));
		OK(o->stream_wait(dev, c, ev));
		put_mark(c, &second, &clock, 0);
		OK(o->stream_sync(dev, c));
		ck_assert_uint_eq(load_acquire(&first.at), 1);
		ck_assert_uint_eq(load_acquire(&second.at), 2);
		OK(o->event_query(dev, ev));
		OK(o->event_destroy(dev, ev));
		OK(o->stream_destroy(dev, a));
		OK(o->stream_destroy(dev, c));
		end();
	}
}
END_TEST

START_TEST(an_event_that_was_never_recorded_is_over)
{
	struct mark m;
	void *s, *ev;
	u32 clock = 0;

	begin(4, 0);
	OK(o->stream_create(dev, 0, &s));
	OK(o->event_create(dev, &ev));
	OK(o->event_query(dev, ev));
	OK(o->stream_wait(dev, s, ev));
	put_mark(s, &m, &clock, 0);
	OK(o->stream_sync(dev, s));
	ck_assert_uint_eq(load_acquire(&m.at), 1);
	OK(o->event_destroy(dev, ev));
	OK(o->stream_destroy(dev, s));
	end();
}
END_TEST

/*
 * A wait is for the newest record at the time of the call: a later record does not change that.
 */
START_TEST(an_event_is_recorded_again)
{
	u32 i;

	for (i = 0; i < 30; i++) {
		struct mark first, third, fourth;
		void *a, *c, *ev;
		u32 clock = 0;

		begin(200 + i, 30);
		OK(o->stream_create(dev, 0, &a));
		OK(o->stream_create(dev, 0, &c));
		OK(o->event_create(dev, &ev));
		put_mark(a, &first, &clock, 100);
		OK(o->event_record(dev, ev, a));
		OK(o->stream_wait(dev, c, ev));
		put_mark(c, &third, &clock, 0);
		put_mark(a, &fourth, &clock, 100);
		OK(o->event_record(dev, ev, a));
		OK(o->stream_sync(dev, c));
		ck_assert_uint_ne(load_acquire(&first.at), 0);
		ck_assert_uint_lt(load_acquire(&first.at), load_acquire(&third.at));
		OK(o->stream_sync(dev, a));
		OK(o->event_query(dev, ev));
		ck_assert_uint_lt(load_acquire(&first.at), load_acquire(&fourth.at));
		OK(o->event_destroy(dev, ev));
		OK(o->stream_destroy(dev, a));
		OK(o->stream_destroy(dev, c));
		end();
	}
}
END_TEST

START_TEST(queries_tell_when_it_is_over)
{
	struct mark m;
	void *s, *ev;
	u32 clock = 0;
	int rc;

	begin(5, 0);
	OK(o->stream_create(dev, 0, &s));
	OK(o->event_create(dev, &ev));
	put_mark(s, &m, &clock, 2000);
	OK(o->event_record(dev, ev, s));
	while ((rc = o->event_query(dev, ev)) == -EBUSY)
		ck_assert(o->stream_query(dev, s) == -EBUSY || load_acquire(&m.at));
	OK(rc);
	ck_assert_uint_eq(load_acquire(&m.at), 1);
	OK(o->stream_sync(dev, s));
	OK(o->stream_query(dev, s));
	OK(o->event_destroy(dev, ev));
	OK(o->stream_destroy(dev, s));
	end();
}
END_TEST

/* free_async() frees the memory when the stream reaches it, not before. */
START_TEST(memory_goes_in_stream_order)
{
	enum { N = 1024 };
	unsigned char *down;
	struct mark m;
	u32 clock = 0, i;
	void *s, *p;

	begin(6, 20);
	OK(o->stream_create(dev, 0, &s));
	OK(o->host_alloc(dev, N, (void **)&down));
	for (i = 0; i < 50; i++) {
		OK(o->alloc_async(dev, s, N, &p));
		put_mark(s, &m, &clock, i < 3 ? 500 : 0);
		OK(o->set(dev, s, p, (int)i, N));
		OK(o->copy(dev, s, down, p, N, DEVICE_D2H));
		OK(o->free_async(dev, s, p));
		OK(o->stream_sync(dev, s));
		ck_assert_uint_eq(down[0], i);
		ck_assert_uint_eq(down[N - 1], i);
	}
	OK(o->host_free(dev, down));
	OK(o->stream_destroy(dev, s));
	end();
}
END_TEST

/* Calls from several threads, on the same streams and the same event. */
struct crowd {
	void *s[2], *ev;
	u64 ran;		/* A */
};

static void crowd_fn(void *arg)
{
	fetch_add_relaxed((u64 *)arg, 1);
}

static void *crowd_main(void *arg)
{
	struct crowd *c = arg;
	u32 i;

	for (i = 0; i < 200; i++) {
		MUST(!o->host_call(dev, c->s[i & 1], crowd_fn, &c->ran));
		MUST(!o->event_record(dev, c->ev, c->s[i & 1]));
		MUST(!o->stream_wait(dev, c->s[~i & 1], c->ev));
		MUST(o->event_query(dev, c->ev) != -EIO);
	}
	return NULL;
}

START_TEST(calls_from_many_threads)
{
	struct crowd c = { 0 };
	pthread_t t[4];
	u32 i;

	begin(7, 1);
	for (i = 0; i < 2; i++)
		OK(o->stream_create(dev, 0, &c.s[i]));
	OK(o->event_create(dev, &c.ev));
	for (i = 0; i < 4; i++)
		t[i] = spawn(crowd_main, &c);
	for (i = 0; i < 4; i++)
		join(t[i]);
	for (i = 0; i < 2; i++)
		OK(o->stream_sync(dev, c.s[i]));
	ck_assert_uint_eq(load_acquire(&c.ran), 800);
	OK(o->event_query(dev, c.ev));
	OK(o->event_destroy(dev, c.ev));
	for (i = 0; i < 2; i++)
		OK(o->stream_destroy(dev, c.s[i]));
	end();
}
END_TEST

START_TEST(a_graph_is_run_as_often_as_it_is_launched)
{
	void *s, *other, *graph = NULL;
	u64 ran = 0;
	u32 i;

	if (!o->capture_begin)
		return;
	begin(8, 10);
	OK(o->stream_create(dev, 0, &s));
	OK(o->stream_create(dev, 0, &other));
	OK(o->capture_begin(dev, s));
	for (i = 0; i < 3; i++)
		OK(o->host_call(dev, s, crowd_fn, &ran));
	OK(o->capture_end(dev, s, &graph));
	OK(o->stream_sync(dev, s));
	ck_assert_uint_eq(load_acquire(&ran), 0);
	for (i = 0; i < 5; i++)
		OK(o->graph_launch(dev, i & 1 ? other : s, graph));
	OK(o->graph_destroy(dev, graph));
	OK(o->host_call(dev, s, crowd_fn, &ran));
	OK(o->stream_sync(dev, s));
	OK(o->stream_sync(dev, other));
	ck_assert_uint_eq(load_acquire(&ran), 16);
	OK(o->stream_destroy(dev, s));
	OK(o->stream_destroy(dev, other));
	end();
}
END_TEST

/* A call with an injected failure returns an error with a text, and the next call works. */
START_TEST(each_call_fails_in_turn)
{
	struct mark m;
	void *s, *ev, *p;
	u32 clock = 0, k;

	if (!b->fail_call)
		return;
	begin(9, 0);
	OK(o->stream_create(dev, 0, &s));
	OK(o->event_create(dev, &ev));
	OK(o->alloc(dev, 64, &p));
	for (k = 0; k < 7; k++) {
		int rc = 0, want = b->kind == 1 ? -EINVAL : -EIO;

		b->fail_call(1, false);
		switch (k) {
		case 0:
			rc = o->event_record(dev, ev, s);
			break;
		case 1:
			rc = o->stream_wait(dev, s, ev);
			break;
		case 2:
			rc = o->event_query(dev, ev);
			break;
		case 3:
			rc = o->host_call(dev, s, mark_fn, &m);
			break;
		case 4:
			rc = o->copy(dev, s, p, p, 1, DEVICE_D2D);
			break;
		case 5:
			rc = o->set(dev, s, p, 0, 1);
			break;
		case 6:
			rc = o->stream_query(dev, s);
			break;
		}
		ck_assert_msg(rc == want, "call %u: %d", k, rc);
		ck_assert_uint_gt(strlen(pawl_error_text()), 0);
		put_mark(s, &m, &clock, 0);
		OK(o->stream_sync(dev, s));
		ck_assert_uint_eq(load_acquire(&m.at), k + 1);
	}
	OK(o->release(dev, p));
	OK(o->event_destroy(dev, ev));
	OK(o->stream_destroy(dev, s));
	end();
}
END_TEST

START_TEST(a_lost_device_stays_lost)
{
	struct mark m;
	void *s, *ev;
	u32 clock = 0;

	if (!b->lose)
		return;
	begin(10, 0);
	OK(o->stream_create(dev, 0, &s));
	OK(o->event_create(dev, &ev));
	b->lose(0);
	FAILS(o->host_call(dev, s, mark_fn, &m), -ENOTRECOVERABLE);
	FAILS(o->event_record(dev, ev, s), -ENOTRECOVERABLE);
	FAILS(o->stream_sync(dev, s), -ENOTRECOVERABLE);
	FAILS(o->event_query(dev, ev), -ENOTRECOVERABLE);
	ck_assert_uint_eq(clock, 0);
	(void)!o->event_destroy(dev, ev);
	(void)!o->stream_destroy(dev, s);
	end();
}
END_TEST

START_TEST(a_driver_that_unloads_says_so)
{
	void *s;

	if (!b->unload)
		return;
	begin(11, 0);
	OK(o->stream_create(dev, 0, &s));
	b->unload();
	FAILS(o->stream_sync(dev, s), -ESHUTDOWN);
	FAILS(o->stream_destroy(dev, s), -ESHUTDOWN);
	end();
}
END_TEST

START_TEST(no_driver_no_device)
{
	const struct fake_setup s = { .devices = 0 };
	int n = -1;

	if (b->real)
		return;
	b->setup(&s);
	FAILS(o->count(&n), -ENODEV);
	ck_assert_int_eq(n, 0);
	FAILS(o->open(0, &dev), -ENODEV);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		counts_and_names, the_cpu_is_what_the_system_says, memory, memory_of_no_bytes_and_of_too_many,
		a_stream_is_in_order, an_event_orders_streams,
		an_event_that_was_never_recorded_is_over, an_event_is_recorded_again,
		queries_tell_when_it_is_over, memory_goes_in_stream_order,
		calls_from_many_threads, a_graph_is_run_as_often_as_it_is_launched,
		each_call_fails_in_turn, a_lost_device_stays_lost,
		a_driver_that_unloads_says_so, no_driver_no_device, NULL };
	int n = backends(list), i, failed = 0;

	/* CUDA does not survive a fork. */
	setenv("CK_FORK", "no", 1);
	for (i = 0; i < n; i++) {
		b = &list[i];
		o = b->ops;
		failed |= tests_run(b->name, tests);
	}
	return failed;
}
