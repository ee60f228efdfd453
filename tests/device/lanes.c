// SPDX-License-Identifier: Apache-2.0
/* device/lane.c by itself: what a lane says of its device when calls of the device fail. */
#include <malloc.h>
#include "../unit/util.h"
#include "fake.h"

static struct device d;
static struct lane a, c;
static u64 load[2];
static u32 called;		/* A: notices */
static struct device_ops ops;	/* of the fake device; a test may replace some */
static int left;		/* streams and events that exist */

static int stream_new(void *dev, int priority, void **stream)
{
	int rc = device_fake.stream_create(dev, priority, stream);

	left += !rc;
	return rc;
}

static int stream_end(void *dev, void *stream)
{
	left--;
	return device_fake.stream_destroy(dev, stream);
}

static int event_new(void *dev, void **event)
{
	int rc = device_fake.event_create(dev, event);

	left += !rc;
	return rc;
}

static int event_end(void *dev, void *event)
{
	left--;
	return device_fake.event_destroy(dev, event);
}

/* Two streams of a device, whose work runs when the test says so. */
static void begin(void)
{
	const struct fake_setup s = { .devices = 2, .seed = 1, .manual = true };

	fake_setup(&s);
	memset(load, 0, sizeof(load));
	called = 0;
	left = 0;
	ops = device_fake;
	ops.stream_create = stream_new;
	ops.stream_destroy = stream_end;
	ops.event_create = event_new;
	ops.event_destroy = event_end;
	OK(device_open(&ops, 0, &d));
	OK(lane_init(&a, &d, 0, 2, NULL, 0, &load[0]));
	OK(lane_init(&c, &d, 1, 2, NULL, 0, &load[1]));
}

static void end(void)
{
	lane_fini(&a);
	lane_fini(&c);
	device_close(&d);
	ck_assert_int_eq(left, 0);
}

static void work(void *arg)
{
	fetch_add_relaxed((u32 *)arg, 1);
}

static u64 issue(struct lane *l, u32 *ran)
{
	OK(device_fake.host_call(d.dev, l->stream, work, ran));
	return lane_issue(l);
}

static void notice(void *lane)
{
	fetch_add_relaxed(&called, 1);
}

START_TEST(a_stream_that_follows_a_lost_device_is_refused)
{
	struct device other;
	struct lane f;
	u32 ran = 0;
	u64 seq;

	begin();
	OK(device_open(&ops, 1, &other));
	OK(lane_init(&f, &other, 1, 2, NULL, 0, &load[1]));
	seq = issue(&a, &ran);
	fake_lose(0);
	/* this call finds that it is lost, and the next one knows it */
	FAILS(lane_follow(&c, &a, seq), -ENOTRECOVERABLE, "an earlier piece of work broke");
	ck_assert(device_lost(&d));
	FAILS(lane_follow(&c, &a, seq), -ENOTRECOVERABLE, "fake:0 is lost", "broke the device");
	ck_assert_int_eq(lane_state(&a, seq), LANE_LOST);
	/* the error on a stream of another device names the lost device */
	FAILS(lane_follow(&f, &a, seq), -ENOTRECOVERABLE, "fake:0 is lost", "broke the device");
	ck_assert(!device_lost(&other));
	ck_assert_uint_eq(ran, 0);
	lane_fini(&f);
	device_close(&other);
	end();
}
END_TEST

/* Otherwise a thread would wait forever for work that may never be known to be complete. */
START_TEST(a_device_that_does_not_answer_is_lost)
{
	u32 ran = 0;
	u64 seq;

	begin();
	seq = issue(&a, &ran);
	lane_want(&a, seq);
	lane_poll(&a);
	ck_assert_int_eq(lane_state(&a, seq), LANE_PENDING);
	fake_fail(1, -EIO);
	lane_poll(&a);
	ck_assert_int_eq(lane_state(&a, seq), LANE_LOST);
	ck_assert_str_eq(d.text, "fake:0 is lost: it does not say how far its streams are");
	end();
}
END_TEST

/* While the thread that found the loss writes its text, others do not read that. */
START_TEST(a_loss_is_told_when_its_text_is_there)
{
	begin();
	MUST(!device_lost(&d));
	store_relaxed(&d.lost, 1);
	MUST(!device_lost(&d));
	/* Another thread has the error nevertheless. */
	ck_assert_int_eq(device_check(&d, -ENOTRECOVERABLE), -ENOTRECOVERABLE);
	MUST(!d.text[0] && !device_lost(&d));
	store_relaxed(&d.lost, 0);
	ck_assert_int_eq(device_check(&d, -ENOTRECOVERABLE), -ENOTRECOVERABLE);
	MUST(device_lost(&d));
	MUST(strstr(d.text, "is lost"));
	end();
}
END_TEST

START_TEST(a_driver_that_unloads_is_the_reason_of_the_loss)
{
	u32 ran = 0;
	u64 seq;

	begin();
	seq = issue(&a, &ran);
	fake_unload();
	ck_assert_int_eq(lane_mark(&a, seq), -ENOTRECOVERABLE);
	ck_assert_str_eq(d.text, "fake:0 is lost: its driver unloads");
	ck_assert_int_eq(lane_state(&a, seq), LANE_LOST);
	end();
}
END_TEST

/* The device calls late: the thread that it would wake may have ended with the lane. */
START_TEST(no_notice_is_delivered_after_the_end_of_the_lane)
{
	struct fake_counts before, after;
	u32 ran = 0, late;
	u64 seq;

	for (late = 0; late < 2; late++) {
		begin();
		seq = issue(&a, &ran);
		lane_want(&a, seq);
		OK(lane_notify(&a, notice));
		/* one notice is pending, so this does nothing */
		OK(lane_notify(&a, notice));
		if (late) {
			/* its streams cannot be waited for, and are not tried again and again */
			fake_unload();
			fake_counts(&before);
			lane_fini(&a);
			fake_counts(&after);
			ck_assert_uint_lt(after.calls - before.calls, 10);
		}
		while (fake_step(0))
			;
		ck_assert_uint_eq(load_acquire(&called), !late);
		ck_assert_uint_eq(ran, late + 1);
		if (!late)
			lane_fini(&a);
		lane_fini(&c);
		device_close(&d);
		ck_assert_int_eq(left, 0);
	}
}
END_TEST

static u32 *watched, seen;

static void late_notice(void *lane)
{
	seen = *watched;
	fetch_add_relaxed(&called, 1);
}

/* Whichever call fails, and in whatever order the streams then run. */
START_TEST(a_notice_that_was_refused_is_asked_for_again)
{
	static u32 ran;
	u64 k, seed = 1;

	watched = &ran;
	/* a stream, an event, its record, the wait for it, the call */
	for (k = 1; k <= 5; k++) {
		begin();
		ran = 0;
		lane_want(&a, issue(&a, &ran));
		fake_fail(k, -EIO);
		FAILS(lane_notify(&a, late_notice), -EIO, "told to fail");
		OK(lane_notify(&a, late_notice));
		while (fake_step(rnd(&seed)))
			;
		ck_assert_uint_eq(load_acquire(&called), 1);
		ck_assert_uint_eq(seen, 1);
		end();
	}
	/* The same after one that came; there are a stream and an event already. */
	for (k = 1; k <= 4; k++) {
		begin();
		ran = 0;
		lane_want(&a, issue(&a, &ran));
		OK(lane_notify(&a, late_notice));
		while (fake_step(0))
			;
		lane_poll(&a);
		lane_want(&a, issue(&a, &ran));
		fake_fail(k, -EIO);
		if (lane_notify(&a, late_notice))
			OK(lane_notify(&a, late_notice));
		else
			/* no new event, so the old one is recorded again */
			ck_assert_uint_eq(k, 1);
		while (fake_step(rnd(&seed)))
			;
		ck_assert_uint_eq(load_acquire(&called), 2);
		ck_assert_uint_eq(seen, 2);
		end();
	}
}
END_TEST

START_TEST(at_most_one_notice_is_pending)
{
	struct fake_counts before, after;
	u32 ran = 0, k;

	begin();
	for (k = 1; k <= 3; k++) {
		lane_want(&a, issue(&a, &ran));
		fake_counts(&before);
		OK(lane_notify(&a, notice));
		lane_want(&a, issue(&a, &ran));
		OK(lane_notify(&a, notice));
		fake_counts(&after);
		/* the two pieces of work, and one notice */
		ck_assert_uint_eq(after.host_calls, before.host_calls + 2);
		while (fake_step(0))
			;
		ck_assert_uint_eq(load_acquire(&called), k);
		lane_poll(&a);
	}
	end();
}
END_TEST

START_TEST(a_stream_that_cannot_be_waited_for_is_polled)
{
	u32 ran = 0;
	u64 seq;

	begin();
	seq = issue(&a, &ran);
	while (fake_step(0))
		;
	fake_fail(1, -EIO);
	lane_sync(&a);
	ck_assert_int_eq(lane_state(&a, seq), LANE_DONE);
	ck_assert_uint_eq(ran, 1);
	ck_assert(!device_lost(&d));
	end();
}
END_TEST

/* The stream of c runs at once what follows work whose end the device has reported. */
START_TEST(work_that_is_complete_is_not_waited_for)
{
	struct fake_counts before, after;
	u32 ran = 0;
	u64 seq;

	begin();
	seq = issue(&a, &ran);
	lane_want(&a, seq);
	while (fake_step(0))
		;
	fake_counts(&before);
	OK(lane_follow(&c, &a, seq));
	fake_counts(&after);
	ck_assert_uint_eq(after.waits, before.waits);
	ck_assert_uint_eq(after.records, before.records);
	ck_assert_int_eq(lane_state(&a, seq), LANE_DONE);
	end();
}
END_TEST

/* The answer of the whole stream counts. */
START_TEST(work_whose_event_does_not_answer_is_known_to_be_complete)
{
	u32 ran = 0;
	u64 seq;

	begin();
	seq = issue(&a, &ran);
	OK(lane_mark(&a, seq));
	while (fake_step(0))
		;
	fake_fail(1, -EIO);
	lane_poll(&a);
	ck_assert_int_eq(lane_state(&a, seq), LANE_DONE);
	ck_assert(!device_lost(&d));
	end();
}
END_TEST

/* Without a new event the newest one is recorded again, and answers for all work before it. */
START_TEST(work_is_marked_without_a_new_event)
{
	u32 ran = 0;
	u64 first, second;

	begin();
	first = issue(&a, &ran);
	OK(lane_mark(&a, first));
	second = issue(&a, &ran);
	fake_fail(1, -EIO);
	OK(lane_mark(&a, second));
	while (fake_step(0))
		;
	lane_poll(&a);
	ck_assert_int_eq(lane_state(&a, second), LANE_DONE);
	ck_assert_uint_eq(ran, 2);
	end();
}
END_TEST

/* Let each call that it makes fail, with and without an event behind the work. */
START_TEST(a_stream_that_could_not_follow_follows_the_next_time)
{
	struct fake_counts before, after;
	u32 ran[2], k, marked;
	u64 seq, seed = 1;

	for (marked = 0; marked < 2; marked++) {
		for (k = 1; ; k++) {
			int rc;

			begin();
			ran[0] = ran[1] = 0;
			seq = issue(&a, &ran[0]);
			if (marked)
				OK(lane_mark(&a, seq));
			fake_fail(k, -EIO);
			rc = lane_follow(&c, &a, seq);
			fake_fail(0, 0);
			fake_counts(&before);
			OK(lane_follow(&c, &a, seq));
			fake_counts(&after);
			ck_assert_uint_eq(after.waits - before.waits, !!rc);
			/* now it waits, and is not made to wait again */
			OK(lane_follow(&c, &a, seq));
			fake_counts(&before);
			ck_assert_uint_eq(after.calls, before.calls);
			issue(&c, &ran[1]);
			while (fake_step(rnd(&seed)))
				ck_assert_uint_ge(ran[0], ran[1]);
			ck_assert_uint_eq(ran[1], 1);
			end();
			if (!rc && k > 2)
				break;
		}
		ck_assert_uint_eq(k, marked ? 3 : 4);
	}
}
END_TEST

/* Whichever call finds that the device is lost, the device is known to be lost from then on. */
START_TEST(each_call_of_a_lane_finds_the_loss)
{
	u32 ran, k, what, found;
	u64 seq;
	int rc;

	for (what = 0; what < 3; what++) {
		for (k = 1, found = 0; k <= 6; k++) {
			begin();
			ran = 0;
			seq = issue(&a, &ran);
			lane_want(&a, seq);
			fake_fail(k, -ENOTRECOVERABLE);
			rc = !what ? lane_mark(&a, seq) : what == 1 ? lane_follow(&c, &a, seq) :
			     lane_notify(&a, notice);
			fake_fail(0, 0);
			ck_assert(!rc || rc == -ENOTRECOVERABLE);
			ck_assert_msg(device_lost(&d) == (rc != 0), "%u, call %u: %d", what, k, rc);
			if (rc)
				ck_assert_str_eq(d.text + strlen(d.text) - 12, "told to fail");
			found += rc != 0;
			end();
		}
		ck_assert_uint_ge(found, 2);
	}
}
END_TEST

static u32 *later;

/* As if another thread queued work before this one continues. */
static int record_then_work(void *dev, void *event, void *stream)
{
	int rc = device_fake.event_record(dev, event, stream);

	issue(&a, later);
	return rc;
}

START_TEST(an_event_does_not_cover_work_that_comes_during_its_record)
{
	u32 ran = 0, late = 0;
	u64 seq;

	begin();
	ops.event_record = record_then_work;
	later = &late;
	seq = issue(&a, &ran);
	OK(lane_mark(&a, seq));
	/* the work, and the event behind it */
	MUST(fake_step(0) && fake_step(0));
	lane_poll(&a);
	ck_assert_int_eq(lane_state(&a, seq), LANE_DONE);
	ck_assert_int_eq(lane_state(&a, seq + 1), LANE_PENDING);
	ck_assert_uint_eq(late, 0);
	end();
}
END_TEST

/* As if another thread created the same event meanwhile. */
static int event_new_twice(void *dev, void **event)
{
	ops.event_create = event_new;
	OK(lane_mark(&a, load_relaxed(&a.issued)));
	return event_new(dev, event);
}

START_TEST(two_threads_that_create_an_event_keep_one)
{
	u32 ran = 0;
	u64 seq;

	begin();
	ops.event_create = event_new_twice;
	seq = issue(&a, &ran);
	OK(lane_mark(&a, seq));
	while (fake_step(0))
		;
	lane_poll(&a);
	ck_assert_int_eq(lane_state(&a, seq), LANE_DONE);
	end();
}
END_TEST

/* A stream that belongs to the caller stays. */
START_TEST(an_adopted_stream_is_given_back_as_it_was)
{
	u32 ran = 0;
	void *mine;
	u64 seq;

	begin();
	lane_fini(&a);
	OK(ops.stream_create(d.dev, 0, &mine));
	OK(lane_init(&a, &d, 0, 2, mine, 0, &load[0]));
	ck_assert_ptr_eq(a.stream, mine);
	seq = issue(&a, &ran);
	OK(lane_mark(&a, seq));
	lane_fini(&a);
	/* the streams of the other lane and of the caller */
	ck_assert_int_eq(left, 2);
	lane_fini(&c);
	OK(ops.stream_destroy(d.dev, mine));
	device_close(&d);
	ck_assert_int_eq(left, 0);
}
END_TEST

START_TEST(the_first_loss_is_the_reason)
{
	begin();
	ck_assert_int_eq(device_check(&d, 0), 0);
	ck_assert_int_eq(device_check(&d, -EIO), -EIO);
	ck_assert(!device_lost(&d));
	ck_assert_int_eq(device_check(&d, err(-ENOTRECOVERABLE, "first")), -ENOTRECOVERABLE);
	ck_assert_int_eq(device_check(&d, err(-ENOTRECOVERABLE, "second")), -ENOTRECOVERABLE);
	ck_assert_int_eq(device_check(&d, -ESHUTDOWN), -ENOTRECOVERABLE);
	ck_assert_int_eq(device_check(&d, -EIO), -EIO);
	ck_assert_str_eq(d.text, "fake:0 is lost: first");
	end();
}
END_TEST

/* A wait that fails does not tell that the stream is empty. */
START_TEST(a_lane_ends_after_its_notices_whatever_fails)
{
	struct fake_counts before, after;
	u64 calls[3];
	u32 ran = 0, k;

	for (k = 0; k < 3; k++) {
		begin();
		lane_want(&a, issue(&a, &ran));
		OK(lane_notify(&a, notice));
		while (fake_step(0))
			;
		fake_counts(&before);
		if (k == 1)
			fake_fail(1, -EIO);
		if (k == 2)
			fake_lose(0);
		lane_fini(&a);
		fake_counts(&after);
		calls[k] = after.calls - before.calls;
		lane_fini(&c);
		device_close(&d);
		ck_assert_int_eq(left, 0);
	}
	ck_assert_uint_eq(calls[1], calls[0] + 1);
	/* a device that is lost is not asked again */
	ck_assert_uint_eq(calls[2], calls[0]);
}
END_TEST

/* Every later call fails in the same way, so the poll after it knows the loss. */
START_TEST(a_wait_that_finds_the_device_lost_ends)
{
	u32 ran = 0;
	u64 seq;

	begin();
	seq = issue(&a, &ran);
	fake_fail(1, -ENOTRECOVERABLE);
	lane_sync(&a);
	ck_assert_int_eq(lane_state(&a, seq), LANE_LOST);
	ck_assert(device_lost(&d));
	end();
}
END_TEST

/* Also if each event of the ring is in use, and the first of them alone is complete. */
START_TEST(each_piece_of_work_that_is_complete_is_known)
{
	u32 ran = 0, i, was = lane_events;
	u64 seq[4];

	lane_events = COUNT(seq);
	begin();
	for (i = 0; i < COUNT(seq); i++) {
		seq[i] = issue(&a, &ran);
		OK(lane_mark(&a, seq[i]));
	}
	for (i = 0; i < COUNT(seq); i++) {
		/* the work, and the event behind it */
		MUST(fake_step(0) && fake_step(0));
		ck_assert_uint_eq(ran, i + 1);
		lane_poll(&a);
		ck_assert_int_eq(lane_state(&a, seq[i]), LANE_DONE);
		if (i + 1 < COUNT(seq))
			ck_assert_int_eq(lane_state(&a, seq[i + 1]), LANE_PENDING);
	}
	end();
	lane_events = was;
}
END_TEST

/* As if another thread found the end of later work meanwhile. */
static int query_late(void *dev, void *event)
{
	int rc = device_fake.event_query(dev, event);

	ops.event_query = device_fake.event_query;
	while (fake_step(0))
		;
	lane_poll(&a);
	return rc;
}

/* The load is exact, whichever threads find out what is complete, and in which order. */
START_TEST(each_piece_of_work_is_subtracted_once)
{
	u32 ran = 0, i;
	u64 seq = 0;

	begin();
	for (i = 0; i < 4; i++) {
		seq = issue(&a, &ran);
		OK(lane_mark(&a, seq));
		ck_assert_uint_eq(load[0], i + 1);
	}
	issue(&c, &ran);
	MUST(fake_step(0) && fake_step(0));
	ops.event_query = query_late;
	lane_poll(&a);
	ck_assert_int_eq(lane_state(&a, seq), LANE_DONE);
	ck_assert_uint_eq(load[0], 0);
	ck_assert_uint_eq(load[1], 1);
	lane_poll(&a);
	lane_sync(&a);
	lane_sync(&c);
	ck_assert(load[0] == 0 && load[1] == 0);
	ck_assert_uint_eq(ran, 5);
	end();
}
END_TEST

/* calloc() comes here (tests/Makefile). */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static bool refuse_memory;

void *__wrap_calloc(size_t n, size_t size)
{
	return refuse_memory ? NULL : __real_calloc(n, size);
}

START_TEST(a_lane_without_memory_is_refused)
{
	begin();
	lane_fini(&a);
	refuse_memory = true;
	FAILS(lane_init(&a, &d, 0, 2, NULL, 0, &load[0]), -ENOMEM, "no memory for a stream");
	refuse_memory = false;
	fake_fail(1, -EIO);
	FAILS(lane_init(&a, &d, 0, 2, NULL, 0, &load[0]), -EIO, "told to fail");
	OK(lane_init(&a, &d, 0, 2, NULL, 0, &load[0]));
	end();
}
END_TEST

/* What is known needs no call: an event that covers more, the lane itself, a loss. */
START_TEST(a_lane_asks_only_for_what_it_does_not_know)
{
	struct fake_counts before, after;
	u32 ran = 0;
	u64 seq;

	begin();
	seq = issue(&a, &ran);
	OK(lane_mark(&a, issue(&a, &ran)));
	OK(lane_follow(&c, &a, seq));
	fake_counts(&before);
	OK(lane_follow(&c, &a, seq + 1));
	OK(lane_follow(&a, &a, seq + 1));
	OK(lane_mark(&a, seq + 1));
	fake_counts(&after);
	ck_assert_uint_eq(after.calls, before.calls);
	seq = issue(&a, &ran);
	ck_assert_int_eq(device_check(&d, err(-ENOTRECOVERABLE, "gone")), -ENOTRECOVERABLE);
	lane_want(&a, seq);
	lane_poll(&a);
	OK(lane_mark(&a, seq));
	fake_counts(&before);
	ck_assert_uint_eq(after.calls + 1, before.calls);	/* the piece of work */
	end();
}
END_TEST

START_TEST(a_lane_knows_how_much_is_not_marked)
{
	u32 ran = 0;
	u64 seq;

	begin();
	issue(&a, &ran);
	OK(lane_mark(&a, issue(&a, &ran)));
	issue(&a, &ran);
	issue(&a, &ran);
	seq = issue(&a, &ran);
	ck_assert(lane_unmarked(&a, seq, 3) && !lane_unmarked(&a, seq, 4));
	/* an event that covers more is as good */
	ck_assert(!lane_unmarked(&a, 1, 1) && !lane_unmarked(&a, 2, 1));
	while (fake_step(0))
		;
	end();
}
END_TEST

START_TEST(lanes_that_ended_leave_no_memory)
{
	enum { N = 1000 };
	size_t before = 0, after;
	u32 ran = 0, i;

	for (i = 0; i < 2 * N; i++) {
		if (i == N)
			before = mallinfo2().uordblks;
		begin();
		lane_want(&a, issue(&a, &ran));
		lane_fini(&c);
		fake_fail(1, -EIO);
		FAILS(lane_init(&c, &d, 1, 2, NULL, 0, &load[1]), -EIO);
		OK(lane_init(&c, &d, 1, 2, NULL, 0, &load[1]));
		/* also if the notice was refused first */
		fake_fail(5, -EIO);
		FAILS(lane_notify(&a, notice), -EIO);
		OK(lane_notify(&a, notice));
		while (fake_step(0))
			;
		end();
	}
	after = mallinfo2().uordblks;
	ck_assert_msg(after < before + N * 8, "%zu bytes", after - before);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_stream_that_follows_a_lost_device_is_refused,
		a_device_that_does_not_answer_is_lost,
		a_loss_is_told_when_its_text_is_there, a_driver_that_unloads_is_the_reason_of_the_loss,
		no_notice_is_delivered_after_the_end_of_the_lane,
		a_notice_that_was_refused_is_asked_for_again, at_most_one_notice_is_pending,
		a_stream_that_cannot_be_waited_for_is_polled,
		work_that_is_complete_is_not_waited_for,
		work_whose_event_does_not_answer_is_known_to_be_complete,
		work_is_marked_without_a_new_event,
		a_stream_that_could_not_follow_follows_the_next_time,
		each_call_of_a_lane_finds_the_loss,
		an_event_does_not_cover_work_that_comes_during_its_record,
		two_threads_that_create_an_event_keep_one, an_adopted_stream_is_given_back_as_it_was,
		the_first_loss_is_the_reason,
		a_lane_ends_after_its_notices_whatever_fails, a_wait_that_finds_the_device_lost_ends,
		each_piece_of_work_that_is_complete_is_known,
		each_piece_of_work_is_subtracted_once, a_lane_without_memory_is_refused,
		a_lane_asks_only_for_what_it_does_not_know,
		a_lane_knows_how_much_is_not_marked, lanes_that_ended_leave_no_memory, NULL };

	return tests_run("lanes", tests);
}
