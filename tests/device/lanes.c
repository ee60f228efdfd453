// SPDX-License-Identifier: Apache-2.0
/* device/lane.c by itself: what a lane says of its device when calls of the device fail. */
#include <malloc.h>
#include "../unit/util.h"
#include "fake.h"

static struct device d;
static struct lane a, c;
static u64 load[2];
static u32 called;		/* A: notices */

/* Two streams of a device, whose work runs when the test says so. */
static void begin(void)
{
	const struct fake_setup s = { .devices = 1, .seed = 1, .manual = true };

	fake_setup(&s);
	memset(load, 0, sizeof(load));
	called = 0;
	OK(device_open(&device_fake, 0, &d));
	OK(lane_init(&a, &d, 0, 2, NULL, 0, &load[0]));
	OK(lane_init(&c, &d, 1, 2, NULL, 0, &load[1]));
}

static void end(void)
{
	lane_fini(&a);
	lane_fini(&c);
	device_close(&d);
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
	u32 ran = 0;
	u64 seq;

	begin();
	seq = issue(&a, &ran);
	fake_lose(0);
	/* this call finds that it is lost, and the next one knows it */
	FAILS(lane_follow(&c, &a, seq), -ENOTRECOVERABLE, "an earlier piece of work broke");
	ck_assert(device_lost(&d));
	FAILS(lane_follow(&c, &a, seq), -ENOTRECOVERABLE, "fake:0 is lost", "broke the device");
	ck_assert_int_eq(lane_state(&a, seq), LANE_LOST);
	ck_assert_uint_eq(ran, 0);
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
			/* its streams cannot be waited for */
			fake_unload();
			lane_fini(&a);
		}
		while (fake_step(0))
			;
		ck_assert_uint_eq(load_acquire(&called), !late);
		ck_assert_uint_eq(ran, late + 1);
		if (!late)
			lane_fini(&a);
		lane_fini(&c);
		device_close(&d);
	}
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

/* A wait that fails does not tell that the stream is empty. */
START_TEST(a_lane_ends_after_its_notices_whatever_fails)
{
	struct fake_counts before, after;
	u64 calls[2];
	u32 ran = 0, k;

	for (k = 0; k < 2; k++) {
		begin();
		lane_want(&a, issue(&a, &ran));
		OK(lane_notify(&a, notice));
		while (fake_step(0))
			;
		fake_counts(&before);
		if (k)
			fake_fail(1, -EIO);
		lane_fini(&a);
		fake_counts(&after);
		calls[k] = after.calls - before.calls;
		lane_fini(&c);
		device_close(&d);
	}
	ck_assert_uint_eq(calls[1], calls[0] + 1);
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
	OK(lane_init(&a, &d, 0, 2, NULL, 0, &load[0]));
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
		a_driver_that_unloads_is_the_reason_of_the_loss,
		no_notice_is_delivered_after_the_end_of_the_lane,
		a_stream_that_cannot_be_waited_for_is_polled,
		work_that_is_complete_is_not_waited_for,
		work_whose_event_does_not_answer_is_known_to_be_complete,
		work_is_marked_without_a_new_event,
		a_lane_ends_after_its_notices_whatever_fails, a_wait_that_finds_the_device_lost_ends,
		each_piece_of_work_that_is_complete_is_known, a_lane_without_memory_is_refused,
		a_lane_knows_how_much_is_not_marked, lanes_that_ended_leave_no_memory, NULL };

	return tests_run("lanes", tests);
}
