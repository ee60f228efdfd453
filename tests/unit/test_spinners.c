/* SPDX-License-Identifier: Apache-2.0 */
/* exec/park.c: whom a push wakes beside pollers, repeated wake-ups, and what waits leave behind. */
#include "exec_fixture.h"
#include "suite.h"

static bool flag_set(void *arg)
{
	return load_acquire((u32 *)arg);
}

static bool never(void *arg)
{
	return false;
}

/* A thread that waits until its flag is set. */
struct waiter {
	struct fix *f;
	struct exec_thread *t;
	u32 help;
	u32 go;			/* A: the condition */
	pthread_t id;
};

static void *waiter_main(void *arg)
{
	struct waiter *w = arg;

	MUST(!exec_wait(w->f->x, w->t, flag_set, &w->go, -1, w->help));
	return NULL;
}

/* Returns when the thread sleeps, or is about to. */
static void waiter_start(struct waiter *w, struct fix *f, u32 help)
{
	*w = (struct waiter){ .f = f, .t = fix_thread(f), .help = help };
	MUST(!pthread_create(&w->id, NULL, waiter_main, w));
	while (exec_wanted(w->t))
		usleep(20);
}

static void waiter_end(struct waiter *w)
{
	store_release(&w->go, 1);
	exec_unpark(w->f->x, w->t);
	pthread_join(w->id, NULL);
}

/* How many pieces a thread pushes before it wakes another one, or 100. */
static u32 left_to_pollers(struct fix *f, struct exec_queue *q, struct exec_thread *t)
{
	u32 n;

	/* Not of a ring that another thread empties meanwhile. */
	for (n = 0; n < 100; n++) {
		t->woke = false;
		exec_push(q, t, 1, 0, 0);
		if (t->woke)
			break;
	}
	while (exec_take(f->x, t))
		;
	return n;
}

/*
 * Of a queue that waiting threads serve, a push leaves 16 pieces to each of them that polls, and to
 * each worker that polls.  A worker that was not counted yet does not take one from the others.
 */
START_TEST(test_pollers_of_both_kinds_are_left_work)
{
	static const struct { u32 workers, helpers, left; } of[] = {
		{ 0, 0, 0 }, { 0, 1, 16 }, { 1, 0, 16 }, { 1, 1, 32 }, { 2, 1, 48 },
		{ -1u, 1, 16 }, { -1u, 2, 32 }, { -1u, 0, 0 }, { 1, -1u, 0 },
	};
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	/* As if a thread slept that no bit names. */
	f.x->helpers.attn = 1;
	for (i = 0; i < ARRAY_SIZE(of); i++) {
		q->group.spin = of[i].workers;
		f.x->helpers.spin = of[i].helpers;
		ck_assert_uint_eq(left_to_pollers(&f, q, t), of[i].left);
	}
	/* Pollers of other queues count only where they serve this one. */
	q->drive = 0;
	q->group.attn = 1;
	t->queue = q;
	f.x->helpers.spin = 1;
	q->group.spin = 0;
	ck_assert_uint_eq(left_to_pollers(&f, q, t), 0);
	q->group.spin = 1;
	ck_assert_uint_eq(left_to_pollers(&f, q, t), 16);
	/* Nothing sleeps: nothing is woken. */
	q->group.attn = 0;
	q->group.spin = 0;
	ck_assert_uint_eq(left_to_pollers(&f, q, t), 100);
	t->queue = NULL;
	f.x->helpers.attn = f.x->helpers.spin = 0;
	fix_fini(&f);
}
END_TEST

/* A waker that was stopped before its system call: exec_unpark() makes the call. */
START_TEST(test_unpark_repeats_the_call_of_a_stopped_waker)
{
	struct fix_opt o = { .spin_ns = 0 };
	struct exec_stats st;
	struct waiter w;
	struct fix f;
	u64 wakes;
	u32 p;

	watchdog(60);
	fix_init(&f, &o);
	fix_queue(&f, "q", 0, true);
	waiter_start(&w, &f, EXEC_HELP);
	usleep(2000);	/* most times it sleeps by now */
	/* as group_wake() or exec_unpark(), up to its CAS */
	p = load_relaxed(&w.t->park);
	MUST(cas_relaxed(&w.t->park, &p, (u32)_i));
	if (_i == 1)
		fetch_add_relaxed(&f.x->helpers.spin, 1);
	store_release(&w.go, 1);
	exec_stats(f.x, &st);
	wakes = st.wakes;
	exec_unpark(f.x, w.t);
	pthread_join(w.id, NULL);
	exec_stats(f.x, &st);
	ck_assert_uint_le(st.wakes, wakes + 1);
	ck_assert_uint_eq(f.x->helpers.attn, 0);
	ck_assert_uint_eq(f.x->helpers.spin, 0);
	/* It is awake: there is nothing to do. */
	wakes = st.wakes;
	exec_unpark(f.x, w.t);
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.wakes, wakes);
	fix_fini(&f);
}
END_TEST

static u32 tidies;	/* A */

static bool tidy(void *user, struct exec_thread *t)
{
	fetch_add_relaxed(&tidies, 1);
	return false;
}

/* Only workers tidy when they have slept for long; other threads come back to their callers. */
START_TEST(test_a_waiting_thread_does_not_tidy)
{
	struct fix_opt o = { .spin_ns = 0, .tidy_ns = 1000, .tidy = tidy };
	struct exec_thread *t;
	struct fix f;
	u64 sleeps;
	u32 help;

	watchdog(60);
	tidies = 0;
	fix_init(&f, &o);
	fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	for (help = 0; help < 2; help++) {
		sleeps = t->sleeps;
		while (t->sleeps == sleeps)
			ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 3000000,
						   help ? EXEC_HELP : EXEC_WAIT), -ETIMEDOUT);
	}
	ck_assert_uint_eq(tidies, 0);
	fix_fini(&f);
}
END_TEST

/* A wait that only its time has ended says nothing about how long the thread will be idle. */
START_TEST(test_a_timeout_is_no_idle_time)
{
	struct fix_opt o = { .spin_ns = 1000 };
	struct exec_thread *t;
	struct fix f;
	u64 sleeps;
	u32 i;

	watchdog(60);
	fix_init(&f, &o);
	t = fix_thread(&f);
	for (i = 0; i < 2 * NAP_AFTER; i++) {
		sleeps = t->sleeps;
		while (t->sleeps == sleeps)
			MUST(exec_wait(f.x, t, never, NULL, 1000000, EXEC_WAIT) == -ETIMEDOUT);
		ck_assert(!t->naps && !t->against);
	}
	fix_fini(&f);
}
END_TEST

/* A thread that only waits is counted neither as a sleeper nor as a poller of any queue. */
START_TEST(test_a_thread_that_only_waits_is_not_woken_for_work)
{
	struct fix_opt o = { .spin_ns = 0 };
	struct exec_stats st;
	struct exec_queue *q;
	struct exec_thread *t;
	struct waiter w;
	struct fix f;

	watchdog(60);
	fix_init(&f, &o);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	waiter_start(&w, &f, EXEC_WAIT);
	ck_assert_uint_eq(f.x->helpers.attn, 0);
	ck_assert_uint_eq(f.x->helpers.spin, 0);
	exec_push(q, t, 1, 0, 0);
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.wakes, 0);
	ck_assert(!exec_wanted(w.t));
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	waiter_end(&w);
	ck_assert_uint_eq(f.x->helpers.spin, 0);
	fix_fini(&f);
}
END_TEST

/* Work that the last poller, a worker, leaves behind it is for the sleepers of either kind. */
START_TEST(test_a_worker_that_found_work_wakes_a_thread_for_the_rest)
{
	const struct idle how = { .help = true };
	struct fix_opt o = { .spin_ns = 1000 };
	u32 ran = 0, work = 0, pollers;
	struct exec_queue *q, *other;
	struct exec_thread *t, *worker;
	struct exec_stats st;
	struct waiter w;
	struct fix f;

	watchdog(60);
	fix_init(&f, &o);
	f.run = count_work;
	f.user = &ran;
	other = fix_queue(&f, "other", 0, true);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	worker = fix_thread(&f);
	worker->queue = q;
	waiter_start(&w, &f, EXEC_HELP);
	until(&f.x->helpers.attn, 1);
	for (pollers = 2; pollers; pollers--) {
		/* As if so many workers polled: a push wakes no other thread. */
		q->group.spin = pollers;
		exec_push(q, t, 1, 0, 0);
		exec_push(q, t, 2, 0, 0);
		q->group.spin = pollers - 1;
		exec_stats(f.x, &st);
		ck_assert_uint_eq(st.wakes, 0);
		ck_assert_int_eq(thread_idle(f.x, worker, &how, &work), IDLE_WORK);
		ck_assert_uint_eq(work, 1);
		ck_assert_uint_eq(q->group.spin, pollers - 1);
		ck_assert(!worker->spinning);
		exec_stats(f.x, &st);
		ck_assert_uint_eq(st.wakes, pollers == 1);
		if (pollers == 2)
			ck_assert_uint_eq(exec_take(f.x, worker), 2);
	}
	until(&ran, 1);
	ck_assert(queue_empty(q) && queue_empty(other));
	waiter_end(&w);
	worker->queue = NULL;
	fix_fini(&f);
}
END_TEST

/* At the last check before the thread sleeps there are two pieces, and it is left both of them. */
static struct {
	struct fix *f;
	struct exec_queue *q;
	struct exec_thread *pusher;
	u32 calls;
	u32 second_ran;		/* A */
} last_check;

static bool push_at_the_last_check(void *arg)
{
	/* Before the wait, while it polls, and before it sleeps. */
	if (++last_check.calls == 3) {
		fetch_add_relaxed(&last_check.f->x->helpers.spin, 1);
		exec_push(last_check.q, last_check.pusher, 1, 0, 0);
		exec_push(last_check.q, last_check.pusher, 2, 0, 0);
		fetch_add_relaxed(&last_check.f->x->helpers.spin, -1u);
	}
	return load_acquire(&last_check.second_ran);
}

static void first_needs_second(struct fix *f, struct exec_thread *t, u32 work)
{
	if (work == 2)
		store_release(&last_check.second_ran, 1);
	else
		until(&last_check.second_ran, 1);
}

START_TEST(test_a_thread_that_finds_work_before_it_sleeps_wakes_one_for_the_rest)
{
	struct fix_opt o = { .spin_ns = 0 };
	struct exec_thread *t;
	struct waiter w;
	struct fix f;

	watchdog(60);
	fix_init(&f, &o);
	f.run = first_needs_second;
	last_check.f = &f;
	last_check.q = fix_queue(&f, "q", 0, true);
	last_check.pusher = fix_thread(&f);
	last_check.calls = last_check.second_ran = 0;
	t = fix_thread(&f);
	waiter_start(&w, &f, EXEC_HELP);
	until(&f.x->helpers.attn, 1);
	ck_assert_int_eq(exec_wait(f.x, t, push_at_the_last_check, NULL, -1, EXEC_HELP), 0);
	ck_assert_uint_ge(last_check.calls, 4);
	waiter_end(&w);
	ck_assert_uint_eq(f.x->helpers.attn, 0);
	ck_assert_uint_eq(f.x->helpers.spin, 0);
	fix_fini(&f);
}
END_TEST

/* Several pieces that are pushed at once wake a sleeper with the first, or at the end. */
START_TEST(test_several_pieces_wake_a_sleeper)
{
	struct fix_opt o = { .spin_ns = 0 };
	struct exec_queue *q;
	struct exec_thread *t;
	u32 ran = 0, i;
	struct waiter w;
	struct fix f;

	watchdog(60);
	fix_init(&f, &o);
	f.run = count_work;
	f.user = &ran;
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	/* The first push to a queue does not take the short way. */
	exec_push(q, t, 1, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	if (_i) {
		waiter_start(&w, &f, EXEC_HELP);
		until(&f.x->helpers.attn, 1);
		exec_push_more(q, t, 1, 0, 0);
		until(&ran, 1);		/* without exec_pushed() */
	} else {
		/* As if it had begun to sleep after the last push and had not seen it. */
		exec_push_more(q, t, 1, 0, 0);
		f.x->helpers.attn = 1;
		exec_pushed(q, t);
		ck_assert(t->woke);
		f.x->helpers.attn = 0;
		ck_assert_uint_eq(exec_take(f.x, t), 1);
		waiter_start(&w, &f, EXEC_HELP);
	}
	for (i = ran + 1; i < 20; i++) {
		exec_push_more(q, t, 1, 0, 0);
		exec_pushed(q, t);
		until(&ran, i);
	}
	waiter_end(&w);
	fix_fini(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("exec/spinners");
	TCase *tc = tcase_create("spinners");

	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, test_pollers_of_both_kinds_are_left_work);
	tcase_add_loop_test(tc, test_unpark_repeats_the_call_of_a_stopped_waker, 1, 3);
	tcase_add_test(tc, test_a_waiting_thread_does_not_tidy);
	tcase_add_test(tc, test_a_timeout_is_no_idle_time);
	tcase_add_test(tc, test_a_thread_that_only_waits_is_not_woken_for_work);
	tcase_add_test(tc, test_a_worker_that_found_work_wakes_a_thread_for_the_rest);
	tcase_add_test(tc, test_a_thread_that_finds_work_before_it_sleeps_wakes_one_for_the_rest);
	tcase_add_loop_test(tc, test_several_pieces_wake_a_sleeper, 0, 2);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
