/* SPDX-License-Identifier: Apache-2.0 */
/* exec/take.c: short work is left to the thread that makes it, if that thread takes it. */
#include "exec_fixture.h"
#include "suite.h"

/* The lane of a maker, as a worker checks it. */
struct rig {
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *maker, *worker;
	struct exec_lane *lane;
	u32 work;
};

static void rig_init(struct rig *r)
{
	fix_init(&r->f, NULL);
	r->q = fix_queue(&r->f, "q", 0, true);
	r->maker = fix_thread(&r->f);
	r->worker = fix_thread(&r->f);
	r->worker->queue = r->q;
	r->work = 0;
	/* time advances only as the test says */
	r->f.x->leave_first = r->f.x->leave_most = 1u << 31;
}

static void rig_push(struct rig *r, u32 n)
{
	while (n--)
		exec_push(r->q, r->maker, ++r->work, 0, 0);
	r->lane = r->q->lanes[r->maker->slot];
}

static u32 rig_look(struct rig *r)
{
	return queue_take(r->q, r->worker, LOOK_DEEP | LOOK_LEAVE);
}

/* The time for which the lane is left alone has passed. */
static void rig_later(struct rig *r)
{
	r->lane->left = r->lane->left ? cycles() : 0;
}

START_TEST(test_short_work_stays_with_its_maker)
{
	struct exec_thread *other;
	struct rig r;
	u32 i;

	rig_init(&r);
	other = fix_thread(&r.f);
	r.f.x->fast = UINT32_MAX;	/* a maker that takes anything is fast */
	r.f.x->judge = UINT32_MAX;
	/* the test sets the time of the next check, however slow the machine is */
	r.f.x->leave_first = r.f.x->leave_most = UINT32_MAX;
	rig_push(&r, 100);
	/* a worker that has run nothing yet takes, and so does one whose maker never takes */
	MUST(rig_look(&r) && !r.worker->left);
	r.worker->avg = 10;
	MUST(rig_look(&r) && !r.worker->left);
	MUST(exec_take(r.f.x, r.maker));
	MUST(!rig_look(&r) && r.worker->left);
	MUST(!thread_may_take(r.f.x, r.worker, LOOK_LEAVE) && r.worker->left);
	for (i = 0; i < 10; i++) {
		/* it pushes or takes: either suffices */
		if (i & 1)
			rig_push(&r, 1);
		else
			MUST(exec_take(r.f.x, r.maker));
		rig_later(&r);
		MUST(thread_may_take(r.f.x, r.worker, LOOK_LEAVE));
		MUST(!rig_look(&r) && r.worker->left);
		r.worker->left = false;
		MUST(!rig_look(&r) && r.worker->left);
		MUST(!thread_may_take(r.f.x, r.worker, LOOK_LEAVE) && r.worker->left);
	}
	/* the lane of another maker is checked all the same */
	exec_push(r.q, other, ++r.work, 0, 0);
	MUST(thread_may_take(r.f.x, r.worker, LOOK_LEAVE) && r.worker->left);
	ck_assert_uint_eq(rig_look(&r), r.work);
	MUST(!rig_look(&r) && r.worker->left);
	/*
	 * a worker that sleeps, or checks for itself, takes; and work with a priority is not
	 * left
	 */
	MUST(queue_take(r.q, r.worker, LOOK_DEEP));
	exec_push(r.q, r.maker, ++r.work, 5, 0);
	ck_assert_uint_eq(rig_look(&r), r.work);
	exec_push(r.q, r.maker, ++r.work, -5, 0);
	rig_later(&r);
	MUST(rig_look(&r));
	fix_fini(&r.f);
}
END_TEST

/* A maker that takes, or tried to, needs no help. */
START_TEST(test_work_of_a_maker_that_takes_it_is_left)
{
	static const struct { u32 pushes, takes; } of[] = { { 0, 0 }, { 1, 1 }, { 1, 2 }, { 2, 3 } };
	u32 i, k, equal = 0;

	for (k = 0; k < ARRAY_SIZE(of); k++) {
		struct rig r;

		rig_init(&r);
		r.worker->avg = 10;
		rig_push(&r, of[k].pushes);
		for (i = 0; i < of[k].takes; i++)
			exec_take(r.f.x, r.maker);
		rig_push(&r, 10);
		ck_assert_uint_eq(r.lane->ring.own, of[k].pushes);
		equal += k && r.lane->ring.own == r.lane->ring.empty;
		ck_assert(!rig_look(&r) == (k > 0));
		ck_assert(r.worker->left == (k > 0));
		fix_fini(&r.f);
	}
	ck_assert_uint_ge(equal, 1);
}
END_TEST

struct judges {
	struct rig *r;
	struct exec_thread *t;
	u32 rounds;
	u32 turn, done;		/* A */
};

static void look_in_turn(struct rig *r, struct exec_thread *t)
{
	queue_take(r->q, t, LOOK_DEEP | LOOK_LEAVE);
}

static void wait_turn(u32 *turn, u32 i)
{
	u32 spins = 0;

	while (load_acquire(turn) != i)
		if (!(++spins % 1024))
			os_thread_yield();
}

static void *second_judge(void *arg)
{
	struct judges *j = arg;
	u32 i;

	for (i = 1; i <= j->rounds; i++) {
		wait_turn(&j->turn, i);
		look_in_turn(j->r, j->t);
		store_release(&j->done, i);
	}
	return NULL;
}

/* Two workers check a lane at the same moment: the second must not find the maker idle. */
START_TEST(test_one_worker_judges_a_maker)
{
	struct rig r;
	struct judges j = { .r = &r, .rounds = BRIEF ? 2000 : 20000 };
	pthread_t t;
	u64 began;
	u32 i;

	rig_init(&r);
	r.f.x->fast = UINT32_MAX;
	r.f.x->judge = UINT32_MAX;
	r.f.x->leave_first = r.f.x->leave_most = UINT32_MAX;
	r.worker->avg = 10;
	j.t = fix_thread(&r.f);
	j.t->queue = r.q;
	j.t->avg = 10;
	MUST(!pthread_create(&t, NULL, second_judge, &j));
	rig_push(&r, 10);
	for (i = 1; i <= j.rounds; i++) {
		rig_push(&r, 1);
		r.work = 0;
		MUST(exec_take(r.f.x, r.maker));
		rig_later(&r);
		began = cycles();
		store_release(&j.turn, i);
		look_in_turn(&r, r.worker);
		wait_turn(&j.done, i);
		/* unless one of them was stopped for so long that the lane is due again */
		if (cycles() - began < UINT32_MAX / 2)
			MUST(r.worker->left && j.t->left && !r.lane->left_rest);
		r.lane->left_rest = r.lane->left_tries = 0;
	}
	MUST(!pthread_join(t, NULL));
	fix_fini(&r.f);
}
END_TEST

START_TEST(test_work_of_a_slow_maker_is_taken)
{
	struct rig r;
	u32 i, n;

	rig_init(&r);
	r.worker->avg = 10;
	r.f.x->fast = UINT32_MAX;
	r.f.x->judge = UINT32_MAX;
	rig_push(&r, 200);
	MUST(exec_take(r.f.x, r.maker));
	/*
	 * it does nothing: taken at once; the next time limit depends on how often that
	 * happened
	 */
	for (i = 0; i < 10; i++) {
		MUST(!rig_look(&r) && r.worker->left);
		rig_later(&r);
		MUST(rig_look(&r) && !r.worker->left);
		n = i < LEAVE_TRIES ? i : LEAVE_TRIES;
		ck_assert_uint_gt(r.lane->left_rest - cycles(), ((u64)UINT32_MAX << n) / 2);
		ck_assert_uint_le(r.lane->left_rest - cycles(), (u64)UINT32_MAX << n);
		MUST(rig_look(&r) && !r.worker->left);
		r.lane->left_rest = 0;
	}
	/* it is slow: taken after it was measured for long enough */
	r.f.x->fast = 0;
	MUST(!rig_look(&r) && r.worker->left);
	for (i = 0; i < 5; i++) {
		MUST(exec_take(r.f.x, r.maker));
		rig_later(&r);
		MUST(!rig_look(&r) && r.worker->left);
	}
	r.f.x->judge = 0;
	MUST(exec_take(r.f.x, r.maker));
	rig_later(&r);
	MUST(rig_look(&r) && !r.worker->left);
	r.lane->left_rest = 0;
	/* long work is never left, and neither is work of unknown length */
	r.worker->avg = r.f.x->leave_avg + 1;
	MUST(rig_look(&r) && !r.worker->left);
	r.worker->avg = 0;
	MUST(rig_look(&r) && !r.worker->left);
	fix_fini(&r.f);
}
END_TEST

/* Also if another thread had taken all when it tried. */
START_TEST(test_work_of_a_maker_that_tried_to_take_it_is_left)
{
	struct rig r;

	rig_init(&r);
	r.worker->avg = 10;
	rig_push(&r, 2);
	MUST(rig_look(&r) && rig_look(&r));
	ck_assert_uint_eq(exec_take(r.f.x, r.maker), 0);
	ck_assert_uint_eq(r.lane->ring.own, 0);
	rig_push(&r, 1);
	MUST(!rig_look(&r) && r.worker->left);
	fix_fini(&r.f);
}
END_TEST

/* After each check of a fast maker's lane the next one is twice as far away, up to a limit. */
START_TEST(test_a_fast_maker_is_checked_less_and_less_often)
{
	static const u32 steps[] = { 1000, 2000, 4000, 5000, 5000 };
	struct rig r;
	u32 i, round;

	rig_init(&r);
	r.worker->avg = 10;
	r.f.x->fast = UINT32_MAX;
	r.f.x->judge = UINT32_MAX;
	r.f.x->leave_first = 1000;
	r.f.x->leave_most = 5000;
	rig_push(&r, 100);
	for (round = 0; round < 2; round++) {
		MUST(exec_take(r.f.x, r.maker));
		for (i = 0; i < ARRAY_SIZE(steps); i++) {
			MUST(!rig_look(&r) && r.worker->left);
			ck_assert_uint_eq(r.lane->left_step, steps[i]);
			MUST(exec_take(r.f.x, r.maker));
			rig_later(&r);
			/* However slow the machine is, it took enough. */
			r.lane->left_own -= 1u << 20;
		}
		/* A later trial begins with the first step again. */
		r.lane->left = 0;
	}
	fix_fini(&r.f);
}
END_TEST

/*
 * A maker is measured from the first look on, by what it took since then, until it was found to
 * be fast: then a new measurement begins, and its failures before do not count any more.
 */
START_TEST(test_a_maker_is_measured_since_it_was_fast)
{
	struct rig r;
	u32 i, work;
	u64 since;

	rig_init(&r);
	r.worker->avg = 10;
	r.f.x->fast = 1u << 31;
	r.f.x->judge = UINT32_MAX;
	rig_push(&r, 5000);
	MUST(exec_take(r.f.x, r.maker));
	since = cycles();
	MUST(!rig_look(&r) && r.worker->left);
	ck_assert_uint_ge(r.lane->left_since, since);
	ck_assert_uint_eq(r.lane->left_own, 1);
	r.lane->left_tries = 3;
	/* It takes 1000 pieces in the time of 256, but only one of them since the last look. */
	for (i = 0; i < 999; i++)
		MUST(exec_take(r.f.x, r.maker));
	r.f.x->judge = 1u << 31;
	r.lane->left_since = cycles() - (1ull << 39);
	r.lane->left_own_last = r.lane->ring.own;
	MUST(exec_take(r.f.x, r.maker));
	rig_later(&r);
	since = cycles();
	MUST(!rig_look(&r) && r.worker->left);
	ck_assert_uint_ge(r.lane->left_since, since);
	ck_assert_uint_eq(r.lane->left_own, 1001);
	ck_assert_uint_eq(r.lane->left_tries, 0);
	/* It is slow: the measurement goes on, unless this thread is stopped until its end. */
	r.f.x->judge = UINT32_MAX;
	r.f.x->fast = 0;
	r.lane->left_tries = 2;
	MUST(exec_take(r.f.x, r.maker));
	rig_later(&r);
	since = r.lane->left_since = cycles() - 1;
	work = rig_look(&r);
	if (cycles() - since < UINT32_MAX) {
		MUST(!work && r.worker->left);
		ck_assert_uint_eq(r.lane->left_since, since);
		ck_assert_uint_eq(r.lane->left_own, 1001);
		ck_assert_uint_eq(r.lane->left_tries, 2);
	}
	fix_fini(&r.f);
}
END_TEST

/* Work with a priority, above 0 or below, is not left behind a lane: with it all of it is taken. */
START_TEST(test_no_work_is_left_beside_work_with_a_priority)
{
	struct rig r;
	u32 begun;

	for (begun = 0; begun < 2; begun++) {
		rig_init(&r);
		r.worker->avg = 10;
		r.f.x->fast = UINT32_MAX;
		r.f.x->judge = UINT32_MAX;
		rig_push(&r, 100);
		MUST(exec_take(r.f.x, r.maker));
		if (begun) {
			MUST(!rig_look(&r) && r.worker->left);
			/* The maker is fast, and does something. */
			MUST(exec_take(r.f.x, r.maker));
			rig_later(&r);
		}
		exec_push(r.q, r.maker, 1000, -5, 0);
		MUST(rig_look(&r) && !r.worker->left);
		ck_assert(!r.lane->left);
		fix_fini(&r.f);
	}
}
END_TEST

/* A worker that has left work, which its maker then took, has nothing to come back for. */
START_TEST(test_a_worker_forgets_work_that_is_gone)
{
	struct rig r;

	rig_init(&r);
	r.worker->avg = 10;
	rig_push(&r, 2);
	MUST(exec_take(r.f.x, r.maker));
	MUST(!rig_look(&r) && r.worker->left);
	r.lane->left = cycles() + (1ull << 40);
	MUST(!thread_may_take(r.f.x, r.worker, LOOK_LEAVE) && r.worker->left);
	MUST(exec_take(r.f.x, r.maker));
	r.lane->left = 0;
	MUST(!thread_may_take(r.f.x, r.worker, LOOK_LEAVE) && !r.worker->left);
	fix_fini(&r.f);
}
END_TEST

struct burst {
	struct exec_thread *t;
	u32 left;		/* A: below 0, counts up */
};

static void count_one(struct fix *f, struct exec_thread *t, u32 work)
{
	struct burst *b = f->user;

	if (fetch_add_relaxed(&b->left, 1) == -1u)
		exec_unpark(f->x, b->t);
}

static bool all_counted(void *arg)
{
	return load_relaxed(&((struct burst *)arg)->left) == 0;
}

/* Workers that leave work, beside a thread that waits or only pushes: all of it runs. */
START_TEST(test_bursts_of_short_work_run)
{
	struct fix_opt o = { .spin_ns = _i ? 2000 : 200000 };
	u32 i, k, n = 0, rounds = BRIEF ? 200 : 1000;
	struct burst b = { .left = 0 };
	struct exec_queue *q;
	struct fix f;

	watchdog(100);
	fix_init(&f, &o);
	f.run = count_one;
	f.user = &b;
	q = fix_queue(&f, "q", 2, true);
	b.t = fix_thread(&f);
	exec_start(f.x);
	for (i = 0; i < rounds; i++) {
		u32 burst = 1 + i * 7 % 300;

		store_relaxed(&b.left, -burst);
		for (k = 0; k < burst; k++)
			exec_push(q, b.t, n++ % 1000 + 1, 0, 0);
		if (i % 3)
			MUST(!exec_wait(f.x, b.t, all_counted, &b, -1, EXEC_HELP));
		else
			until(&b.left, 0);
	}
	fix_fini(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("exec/leave");
	TCase *tc = tcase_create("leave");

	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, test_short_work_stays_with_its_maker);
	tcase_add_test(tc, test_work_of_a_maker_that_takes_it_is_left);
	tcase_add_test(tc, test_one_worker_judges_a_maker);
	tcase_add_test(tc, test_work_of_a_slow_maker_is_taken);
	tcase_add_test(tc, test_work_of_a_maker_that_tried_to_take_it_is_left);
	tcase_add_test(tc, test_a_fast_maker_is_checked_less_and_less_often);
	tcase_add_test(tc, test_a_maker_is_measured_since_it_was_fast);
	tcase_add_test(tc, test_no_work_is_left_beside_work_with_a_priority);
	tcase_add_test(tc, test_a_worker_forgets_work_that_is_gone);
	tcase_add_loop_test(tc, test_bursts_of_short_work_run, 0, 2);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
