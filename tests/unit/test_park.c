/* SPDX-License-Identifier: Apache-2.0 */
/* exec/park.c: threads sleep and are woken; claims are passed on; deadlines end a sleep. */
#include "exec_fixture.h"
#include "suite.h"

#define CYCLES	(BRIEF ? 10000u : 40000u)

static void store_work(struct fix *f, struct exec_thread *t, u32 work)
{
	store_release((u32 *)f->user, work);
}

/* An executor whose work runs run(), with one queue and a thread that pushes to it. */
static struct exec_thread *fix_one_queue(struct fix *f, const struct fix_opt *o,
					 void (*run)(struct fix *, struct exec_thread *, u32),
					 void *user, u32 workers, bool drive,
					 struct exec_queue **q)
{
	fix_init(f, o);
	f->run = run;
	f->user = user;
	*q = fix_queue(f, "q", workers, drive);
	return fix_thread(f);
}

/* Each piece of work finds its worker asleep, or on the way to sleep, or back. */
START_TEST(test_sleep_wake)
{
	struct fix_opt o = { .spin_ns = 0 };
	struct exec_stats st;
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u32 done = 0, i;

	watchdog(60);
	t = fix_one_queue(&f, &o, store_work, &done, 1, _i, &q);
	exec_start(f.x);
	for (i = 1; i <= CYCLES; i++) {
		u64 end = cycles() + (i % 16) * 1500;

		exec_push(q, t, i, i % 5 ? 0 : i % 3 ? -1 : 1, 0);
		until(&done, i);
		while (cycles() < end)
			cpu_relax();
	}
	exec_stats(f.x, &st);
	ck_assert_uint_gt(st.sleeps, CYCLES / 20);
	ck_assert_uint_gt(st.wakes, CYCLES / 20);
	fix_fini(&f);
}
END_TEST

/* Bursts for several workers: all of it runs, whichever of them sleep. */
static void add_work(struct fix *f, struct exec_thread *t, u32 work)
{
	fetch_add_relaxed((u32 *)f->user, 1);
}

START_TEST(test_bursts)
{
	struct fix_opt o = { .spin_ns = _i ? 3000 : 0 };
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u32 done = 0, i, k, sum = 0;

	watchdog(60);
	t = fix_one_queue(&f, &o, add_work, &done, 3, false, &q);
	exec_start(f.x);
	for (i = 1; i <= CYCLES / 10; i++) {
		u64 end = cycles() + (i % 8) * 2000;

		for (k = 0; k < i % 7 + 1; k++)
			exec_push(q, t, k + 1, 0, 0);
		sum += k;
		until(&done, sum);
		while (cycles() < end)
			cpu_relax();
	}
	fix_fini(&f);
}
END_TEST

/* Long works that wait for each other: every push must get its own worker. */
static u32 meeting;

static void meet(struct fix *f, struct exec_thread *t, u32 work)
{
	u32 round = fetch_add_acq_rel(&meeting, 1) / 4, steps = 0;

	while (load_acquire(&meeting) < 4 * round + 4)
		wait_step(&steps);
}

START_TEST(test_all_needed)
{
	struct fix_opt o = { .spin_ns = _i ? 200000 : 0 };
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u32 i, k;

	watchdog(60);
	meeting = 0;
	fix_init(&f, &o);
	f.run = meet;
	q = fix_queue(&f, "q", 4, false);
	t = fix_thread(&f);
	exec_start(f.x);
	for (i = 0; i < 500; i++) {
		for (k = 1; k <= 4; k++)
			exec_push(q, t, k, 0, 0);
		until(&meeting, 4 * i + 4);
		if (i % 10 == 0)
			usleep(300);
	}
	fix_fini(&f);
}
END_TEST

struct waiter {
	struct fix *f;
	struct exec_thread *t;
	u32 want;		/* A */
	u32 value;		/* A */
	u32 seen;		/* A */
	bool help;
};

static bool reached(void *arg)
{
	struct waiter *w = arg;

	return load_acquire(&w->value) >= w->want;
}

static void *wait_main(void *arg)
{
	struct waiter *w = arg;
	u32 i;

	for (i = 1; i <= CYCLES; i++) {
		w->want = i;
		MUST(!exec_wait(w->f->x, w->t, reached, w, i % 3 ? -1 : 60000000000ll, w->help));
		store_release(&w->seen, i);
	}
	return NULL;
}

/* exec_unpark() against a waiter that sleeps at once. */
START_TEST(test_unpark)
{
	struct fix_opt o = { .spin_ns = 0 };
	struct waiter w = { .help = _i };
	struct fix f;
	pthread_t p;
	u32 i;

	watchdog(60);
	fix_init(&f, &o);
	fix_queue(&f, "q", 0, true);
	w.f = &f;
	w.t = fix_thread(&f);
	exec_unpark(f.x, w.t);	/* no thread is parked: nothing happens */
	MUST(!pthread_create(&p, NULL, wait_main, &w));
	for (i = 1; i <= CYCLES; i++) {
		u64 end = cycles() + (i % 16) * 1500;

		while (cycles() < end)
			cpu_relax();
		store_release(&w.value, i);
		exec_unpark(f.x, w.t);
		until(&w.seen, i);
		if (i % 100 == 0)
			exec_unpark(f.x, w.t);
	}
	pthread_join(p, NULL);
	exec_unpark(f.x, w.t);
	fix_fini(&f);
}
END_TEST

static bool never(void *arg)
{
	return false;
}

static bool flag_set(void *arg)
{
	return load_acquire((u32 *)arg);
}

START_TEST(test_deadline)
{
	struct fix_opt o = { .spin_ns = _i ? 100000 : 0 };
	struct exec_thread *t;
	struct fix f;
	u32 yes = 1;
	u64 start;

	watchdog(60);
	fix_init(&f, &o);
	fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	ck_assert_int_eq(exec_wait(f.x, t, flag_set, &yes, 0, true), 0);
	ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 0, true), -ETIMEDOUT);
	start = exec_now_ns();
	ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 20000000, true), -ETIMEDOUT);
	ck_assert_uint_ge(exec_now_ns() - start, 20000000);
	start = exec_now_ns();
	ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 20000000, false), -ETIMEDOUT);
	ck_assert_uint_ge(exec_now_ns() - start, 20000000);
	ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 1, true), -ETIMEDOUT);
	ck_assert_uint_eq(f.x->helpers.attn, 0);
	ck_assert_uint_eq(f.x->helpers.spin, 0);
	fix_fini(&f);
}
END_TEST

static bool five_ran(void *arg)
{
	return load_acquire((u32 *)arg) == 5;
}

START_TEST(test_helping)
{
	struct exec_queue *q, *own;
	struct exec_thread *t;
	struct exec_stats st;
	struct fix f;
	u32 ran = 0, i;
	u64 sleeps;

	watchdog(60);
	fix_init(&f, NULL);
	f.run = count_work;
	f.user = &ran;
	q = fix_queue(&f, "q", 0, true);
	own = fix_queue(&f, "own", 1, false);
	t = fix_thread(&f);
	for (i = 1; i <= 5; i++)
		exec_push(q, t, i, 0, 0);
	exec_push(own, t, 6, 0, 0);
	/* timeout 0: one check of the condition and of the queues */
	ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 0, true), -ETIMEDOUT);
	ck_assert_uint_eq(ran, 1);
	ck_assert_uint_eq(f.idles, 1);
	ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 100000000, false), -ETIMEDOUT);
	ck_assert_uint_eq(ran, 1);
	/* A wait that ran nothing tells the client nothing. */
	ck_assert_uint_eq(f.idles, 1);
	ck_assert_int_eq(exec_wait(f.x, t, flag_set, &ran, -1, true), 0);
	ck_assert_uint_eq(ran, 1);
	ck_assert_int_eq(exec_wait(f.x, t, five_ran, &ran, -1, true), 0);
	exec_stats(f.x, &st);
	sleeps = st.sleeps;
	/* Then it sleeps, unless the thread gets no CPU for the whole time. */
	do {
		ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 100000000, true), -ETIMEDOUT);
		exec_stats(f.x, &st);
	} while (st.sleeps == sleeps);
	ck_assert_uint_eq(ran, 5);
	ck_assert_uint_eq(st.helped, 5);
	fix_fini(&f);
}
END_TEST

/*
 * A waiter is claimed for work, but its condition came true, and it leaves without
 * taking it: another sleeper must be woken.
 */
struct helper {
	struct fix *f;
	struct exec_thread *t;
	u32 go;			/* A: the condition */
	u32 left;		/* A */
};

static void *helper_main(void *arg)
{
	struct helper *h = arg;

	MUST(!exec_wait(h->f->x, h->t, flag_set, &h->go, -1, true));
	store_release(&h->left, 1);
	return NULL;
}

START_TEST(test_pass_on)
{
	struct fix_opt o = { .spin_ns = _i % 2 ? 2000 : 0 };
	struct exec_queue *q[2];
	struct exec_thread *t;
	struct fix f;
	u32 ran = 0, i, r;

	watchdog(100);
	/* Two queues: the work is in either of them, and the other one is empty. */
	t = fix_one_queue(&f, &o, count_work, &ran, 0, true, &q[0]);
	q[1] = fix_queue(&f, "r", 0, true);
	for (r = 1; r <= (BRIEF ? 100u : 500u); r++) {
		struct helper h[3];
		pthread_t p[3];

		for (i = 0; i < 3; i++) {
			h[i] = (struct helper){ .f = &f, .t = fix_thread(&f) };
			MUST(!pthread_create(&p[i], NULL, helper_main, &h[i]));
		}
		if (r % 2) {
			while ((load_relaxed(&f.x->helpers.attn)) != 3)
				sched_yield();
		}
		/* two conditions come true while the work is pushed: the third one runs it */
		store_release(&h[0].go, 1);
		exec_push(q[r / 2 % 2], t, r, 0, 0);
		store_release(&h[1].go, 1);
		exec_unpark(f.x, h[0].t);
		exec_unpark(f.x, h[1].t);
		until(&ran, r);
		store_release(&h[2].go, 1);
		exec_unpark(f.x, h[2].t);
		for (i = 0; i < 3; i++) {
			pthread_join(p[i], NULL);
			fix_leave(&f, h[i].t);
		}
		MUST(f.x->helpers.attn == 0 && f.x->helpers.spin == 0);
	}
	fix_fini(&f);
}
END_TEST

/* Pushes to both queues while its thread is the only one that polls, and then ends its wait. */
struct last_poller {
	struct exec_queue *q[2];
	struct exec_thread *pusher;
	u32 sleepers, calls;
};

static bool push_and_end(void *arg)
{
	struct last_poller *l = arg;

	/* The first call is before the thread polls. */
	if (++l->calls < 2)
		return false;
	if (l->sleepers == 2)
		exec_push(l->q[0], l->pusher, 2, 0, 0);
	exec_push(l->q[1], l->pusher, 2, 0, 0);
	return true;
}

/*
 * The last poller that leaves wakes a sleeper of each queue that it has served, also if no thread
 * sleeps for the first queue.
 */
START_TEST(test_pass_on_of_two_queues)
{
	struct fix_opt o = { .spin_ns = 0 };
	struct last_poller l = { .sleepers = 2 - (u32)_i };
	struct exec_stats st;
	struct fix f;
	u32 ran = 0;
	u64 wakes;

	watchdog(60);
	l.pusher = fix_one_queue(&f, &o, count_work, &ran, 1 - (u32)_i, true,
				 &l.q[0]);
	l.q[1] = fix_queue(&f, "r", 1, true);
	exec_start(f.x);
	if (l.sleepers == 2)
		exec_push(l.q[0], l.pusher, 1, 0, 0);
	exec_push(l.q[1], l.pusher, 1, 0, 0);
	until(&ran, l.sleepers);
	/* A sleep is counted after the last check of the queue. */
	do {
		sched_yield();
		exec_stats(f.x, &st);
	} while (load_relaxed(&l.q[0]->group.attn) != l.sleepers - 1 || st.sleeps < l.sleepers ||
		 load_relaxed(&l.q[1]->group.attn) != 1);
	wakes = st.wakes;
	ck_assert_int_eq(exec_wait(f.x, fix_thread(&f), push_and_end, &l, -1, true), 0);
	until(&ran, 2 * l.sleepers);
	exec_stats(f.x, &st);
	/* A worker that was about to sleep finds the work itself. */
	ck_assert_uint_le(st.wakes, wakes + l.sleepers);
	fix_fini(&f);
}
END_TEST

/* A waker that is stopped before its futex call: the next push repeats it. */
START_TEST(test_stopped_waker)
{
	struct fix_opt o = { .spin_ns = 0 };
	struct exec_queue *q;
	struct exec_thread *t, *w;
	struct fix f;
	u32 done = 0, p, i;

	watchdog(60);
	t = fix_one_queue(&f, &o, store_work, &done, 1, false, &q);
	exec_start(f.x);
	exec_push(q, t, 1, 0, 0);
	until(&done, 1);
	w = &f.t[1];
	while (load_relaxed(&w->park) <= 2)
		sched_yield();
	usleep(20000);
	/* as group_wake(), up to its CAS; or as exec_unpark() */
	p = load_relaxed(&w->park);
	MUST(cas_relaxed(&w->park, &p, _i ? 2 : 1));
	usleep(1000);
	/* one of the next 128 pushes repeats the call */
	for (i = 2; i <= 140; i++)
		exec_push(q, t, i, 0, 0);
	until(&done, 140);
	exec_stop(f.x);
	/* the spinner that the stopped waker did not count */
	ck_assert_int_eq((s32)q->group.spin, _i ? 0 : -1);
	ck_assert_uint_eq(q->group.attn, 0);
	fix_fini(&f);
}
END_TEST

/* As long as a thread polls, a pusher leaves it 16 pieces of work before it wakes another. */
START_TEST(test_a_poller_is_left_so_much_work)
{
	struct fix_opt o = { .spin_ns = 0 };
	struct exec_stats st;
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u32 done = 0, i;
	u64 wakes;

	watchdog(60);
	t = fix_one_queue(&f, &o, store_work, &done, 1, false, &q);
	exec_start(f.x);
	exec_push(q, t, 1, 0, 0);
	until(&done, 1);
	while (load_relaxed(&f.t[1].park) <= 2)
		sched_yield();
	exec_stats(f.x, &st);
	wakes = st.wakes;
	fetch_add_relaxed(&q->group.spin, 1);
	for (i = 2; i <= 1 + 16; i++)
		exec_push(q, t, i, 0, 0);
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.wakes, wakes);
	t->woke = false;
	exec_push(q, t, i, 0, 0);
	ck_assert(t->woke);
	until(&done, i);
	fetch_add_relaxed(&q->group.spin, -1u);
	fix_fini(&f);
}
END_TEST

/* A worker whose waker is stopped, and that this push need not repeat: a helper is woken, too. */
START_TEST(test_a_stopped_waker_of_a_worker_hides_no_helper)
{
	struct fix_opt o = { .spin_ns = 0 };
	struct exec_queue *q;
	struct exec_thread *t, *w;
	struct helper h;
	struct fix f;
	pthread_t p;
	u32 done = 0;

	watchdog(60);
	t = fix_one_queue(&f, &o, store_work, &done, 1, true, &q);
	exec_start(f.x);
	exec_push(q, t, 1, 0, 0);
	until(&done, 1);
	w = &f.t[1];
	while (load_relaxed(&w->park) <= 2)
		sched_yield();
	h = (struct helper){ &f, fix_thread(&f), 0, 0 };
	MUST(!pthread_create(&p, NULL, helper_main, &h));
	while (load_relaxed(&h.t->park) <= 2)
		sched_yield();
	/* as group_wake(), up to its CAS; a push in LATE_EVERY repeats the call */
	store_relaxed(&w->park, 1);
	store_relaxed(&q->group.late, 1);
	exec_push(q, t, 2, 0, 0);
	until(&done, 2);
	store_release(&h.go, 1);
	exec_unpark(f.x, h.t);
	pthread_join(p, NULL);
	fix_fini(&f);
}
END_TEST

/* A slot's bit may be seen before the thread that set it: others behind it are woken. */
START_TEST(test_a_bit_without_a_thread_hides_no_sleeper)
{
	struct fix_opt o = { .spin_ns = 0 };
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u32 done = 0;

	watchdog(60);
	t = fix_one_queue(&f, &o, store_work, &done, 1, false, &q);
	f.used++;	/* a slot between those of this thread and of the worker */
	exec_start(f.x);
	exec_push(q, t, 1, 0, 0);
	until(&done, 1);
	while (load_relaxed(&f.t[2].park) <= 2)
		sched_yield();
	ck_bitmap_set(q->group.bits, 1);
	exec_push(q, t, 2, 0, 0);
	until(&done, 2);
	fix_fini(&f);
}
END_TEST

/* An old bit of a thread that sleeps elsewhere by now: the worker is woken, not the thread. */
START_TEST(test_a_bit_of_another_group_hides_no_sleeper)
{
	struct fix_opt o = { .spin_ns = 0 };
	struct exec_queue *q;
	struct exec_thread *t, *w;
	struct helper h;
	struct fix f;
	pthread_t p;
	u32 done = 0;

	watchdog(60);
	t = fix_one_queue(&f, &o, store_work, &done, 1, false, &q);
	h = (struct helper){ &f, fix_thread(&f), 0, 0 };
	w = &f.t[2];
	exec_start(f.x);
	exec_push(q, t, 1, 0, 0);
	until(&done, 1);
	while (load_relaxed(&w->park) <= 2)
		sched_yield();
	MUST(!pthread_create(&p, NULL, helper_main, &h));
	while (load_relaxed(&h.t->park) <= 2)
		sched_yield();
	ck_bitmap_set(q->group.bits, h.t->slot);
	exec_push(q, t, 2, 0, 0);
	until(&done, 2);
	ck_assert_uint_eq(load_relaxed(&h.t->park), 3 + f.x->helpers.id);
	store_release(&h.go, 1);
	exec_unpark(f.x, h.t);
	pthread_join(p, NULL);
	fix_fini(&f);
}
END_TEST

/* A long-sleeping worker tidies until it is wanted, and does so again later. */
static u32 tidies, tidy_done;	/* A */

static bool tidy_until_wanted(void *user, struct exec_thread *t)
{
	fetch_add_acq_rel(&tidies, 1);
	while (!exec_wanted(t))
		sched_yield();
	return false;
}

START_TEST(test_tidying_worker_comes_at_once)
{
	struct fix_opt o = { .spin_ns = 0, .tidy_ns = 1000, .tidy = tidy_until_wanted };
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u32 done = 0, i, was;

	watchdog(60);
	tidies = 0;
	t = fix_one_queue(&f, &o, store_work, &done, 1, _i, &q);
	exec_start(f.x);
	for (i = 1; i < 200; i++) {
		/*
		 * This must precede the push: after it, the worker may have begun to tidy
		 * again.
		 */
		was = load_acquire(&tidies);
		exec_push(q, t, i, 0, 0);
		until(&done, i);
		/* The worker is inside the call, and only a waker ends it. */
		while (load_acquire(&tidies) == was)
			sched_yield();
	}
	/* exec_stop() ends it, too. */
	fix_fini(&f);
	ck_assert_uint_gt(tidies, 197);
}
END_TEST

static bool tidy_twice(void *user, struct exec_thread *t)
{
	if (fetch_add_acq_rel(&tidies, 1) < 1)
		return false;
	store_release(&tidy_done, 1);
	return true;
}

/* Called again after false; and never called without a time, or if that is without end. */
START_TEST(test_tidy_is_asked_until_done)
{
	static const u64 times[] = { 0, 1000, UINT64_MAX };
	struct fix_opt o = { .spin_ns = 0, .tidy_ns = times[_i], .tidy = tidy_twice };
	struct exec_stats st;
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u32 done = 0;

	watchdog(60);
	tidies = tidy_done = 0;
	t = fix_one_queue(&f, &o, store_work, &done, 1, false, &q);
	exec_start(f.x);
	exec_push(q, t, 1, 0, 0);
	if (_i == 1)
		until(&tidy_done, 1);
	until(&done, 1);
	do {
		usleep(1000);
		exec_stats(f.x, &st);
	} while (!st.sleeps);
	exec_stop(f.x);
	ck_assert(_i == 1 ? tidies >= 2 : !tidies);
	fix_fini(&f);
}
END_TEST

/*
 * A thread whose idle times are long sleeps at once, and polls again when they are short,
 * although it sleeps meanwhile.  A sleep is longer than a polling time of 1 us, which comes
 * before it, and shorter than one of an hour.
 */
struct idler {
	struct fix *f;
	struct exec_thread *t;
	u32 value;		/* A */
};

static bool idler_may_end(void *arg)
{
	return load_acquire(&((struct idler *)arg)->value);
}

static void *idler_main(void *arg)
{
	struct idler *w = arg;

	MUST(!exec_wait(w->f->x, w->t, idler_may_end, w, -1, EXEC_WAIT));
	return NULL;
}

/* One wait; the condition becomes true when the thread sleeps, if `sleeps`. */
static void idler_wait(struct idler *w, bool sleeps)
{
	struct exec_stats st;
	pthread_t id;
	u64 before;

	exec_stats(w->f->x, &st);
	before = st.sleeps;
	store_relaxed(&w->value, 0);
	MUST(!pthread_create(&id, NULL, idler_main, w));
	while (sleeps && st.sleeps == before) {
		sched_yield();
		exec_stats(w->f->x, &st);
	}
	store_release(&w->value, 1);
	if (sleeps)
		exec_unpark(w->f->x, w->t);
	pthread_join(id, NULL);
	exec_stats(w->f->x, &st);
	ck_assert_uint_eq(st.sleeps, before + sleeps);
}

START_TEST(test_polling_in_vain)
{
	struct fix_opt o = { .spin_ns = 1000 };
	struct idler w;
	struct fix f;
	u64 hour, before;
	u32 i;

	watchdog(60);
	hour = 3600000000ull * exec_cycles_per_us();
	fix_init(&f, &o);
	w = (struct idler){ .f = &f, .t = fix_thread(&f) };
	for (i = 0; i < NAP_AFTER; i++) {
		ck_assert(!w.t->naps);
		idler_wait(&w, true);
	}
	ck_assert(w.t->naps);
	/* It would poll until the watchdog ends the test. */
	f.x->spin = f.x->yield = hour;
	for (i = 0; i < NAP_AFTER; i++) {
		ck_assert(w.t->naps);
		idler_wait(&w, true);
	}
	ck_assert(!w.t->naps);
	idler_wait(&w, false);
	/* A wait whose condition relies on polling polls in any case. */
	w.t->naps = true;
	before = w.t->sleeps;
	ck_assert_int_eq(exec_wait(f.x, w.t, never, NULL, 1000000, EXEC_WAIT | EXEC_POLL),
			 -ETIMEDOUT);
	ck_assert_uint_eq(w.t->sleeps, before);
	fix_fini(&f);
}
END_TEST

/* It is woken at once, and the system runs it late. */
struct late_waiter {
	struct fix *f;
	struct exec_thread *t;
	u32 woken;		/* A */
	u64 at;			/* A: cycles() after that */
};

/* Polling would have been enough until it was woken, but not until now. */
static bool woken_and_late(void *arg)
{
	struct late_waiter *w = arg;

	if (!load_acquire(&w->woken))
		return false;
	while (!load_acquire(&w->at))
		sched_yield();
	w->f->x->spin = w->at - w->t->idle;
	while (cycles() - w->t->idle < 2 * w->f->x->spin)
		cpu_relax();
	return true;
}

static void *late_main(void *arg)
{
	struct late_waiter *w = arg;

	MUST(!exec_wait(w->f->x, w->t, woken_and_late, w, -1, EXEC_WAIT));
	return NULL;
}

START_TEST(test_an_idle_time_ends_when_the_thread_is_woken)
{
	struct fix_opt o = { .spin_ns = 1000 };
	struct late_waiter w;
	pthread_t id;
	struct fix f;
	u32 i;

	watchdog(60);
	fix_init(&f, &o);
	w = (struct late_waiter){ .f = &f, .t = fix_thread(&f) };
	w.t->naps = true;
	for (i = 0; i < NAP_AFTER; i++) {
		ck_assert(w.t->naps);
		w.woken = 0;
		w.at = 0;
		MUST(!pthread_create(&id, NULL, late_main, &w));
		while (load_relaxed(&w.t->park) <= 2)
			sched_yield();
		usleep(2000);	/* most times it sleeps by now */
		store_release(&w.woken, 1);
		exec_unpark(f.x, w.t);
		store_release(&w.at, cycles());
		pthread_join(id, NULL);
	}
	ck_assert(!w.t->naps);
	fix_fini(&f);
}
END_TEST

static u64 yields;		/* A */
static bool slow;		/* a yield takes long */

int __real_sched_yield(void);
int __wrap_sched_yield(void);

/* sched_yield() comes here (tests/Makefile). */
int __wrap_sched_yield(void)
{
	u64 start = exec_now_ns();

	fetch_add_relaxed(&yields, 1);
	while (slow && exec_now_ns() - start < 2 * SLOW_YIELD_NS)
		;
	return slow ? 0 : __real_sched_yield();
}

/* The thread waits until it is about to sleep, or has yielded three times. */
static bool sleeps_or_yields(void *arg)
{
	return !exec_wanted(arg) || yields == 3;
}

static u64 yields_before_sleep(struct fix *f, struct exec_thread *t, u32 how)
{
	yields = 0;
	MUST(!exec_wait(f->x, t, sleeps_or_yields, t, -1, EXEC_WAIT | how));
	return yields;
}

START_TEST(test_a_thread_sleeps_after_a_slow_yield)
{
	struct fix_opt o = { .spin_ns = 1000 };
	struct exec_thread *t;
	struct fix f;
	u32 n, i;

	watchdog(60);
	fix_init(&f, &o);
	t = fix_thread(&f);
	f.x->spin = 3600000000ull * exec_cycles_per_us();
	f.x->yield = 0;
	slow = true;
	/* Each sleeps once: after one slow yield, then three times, then seven times ... */
	for (n = 1; n <= 7; n = 2 * n + 1) {
		ck_assert_uint_eq(yields_before_sleep(&f, t, 0), 1);
		for (i = 1; i < n; i++) {
			ck_assert_uint_eq(t->crowded, n - i);
			ck_assert_uint_eq(yields_before_sleep(&f, t, 0), 0);
		}
		ck_assert_uint_eq(t->crowded, 0);
	}
	for (i = 0; i < 10; i++) {
		t->crowded = 0;
		ck_assert_uint_eq(yields_before_sleep(&f, t, 0), 1);
	}
	ck_assert_uint_eq(t->crowded, CROWDED - 1);
	/* A wait whose condition relies on polling yields in any case. */
	ck_assert_uint_eq(yields_before_sleep(&f, t, EXEC_POLL), 3);
	slow = false;
	fix_fini(&f);
}
END_TEST

static bool ten_calls(void *arg)
{
	return ++*(u32 *)arg >= 10;
}

START_TEST(test_a_thread_that_woke_another_yields_first)
{
	struct fix_opt o = { .spin_ns = 1000 };
	struct exec_thread *t;
	struct fix f;
	u32 i, calls;

	watchdog(60);
	fix_init(&f, &o);
	t = fix_thread(&f);
	f.x->spin = f.x->yield = 3600000000ull * exec_cycles_per_us();
	/* No thread would wake it if it slept after a yield on a busy machine. */
	f.x->slow_yield = f.x->spin;
	for (i = 0; i < 4; i++) {
		calls = 0;
		yields = 0;
		t->woke = i % 2;
		MUST(!exec_wait(f.x, t, ten_calls, &calls, -1, EXEC_WAIT));
		ck_assert_uint_eq(yields, i % 2);
		ck_assert(!t->woke);
	}
	fix_fini(&f);
}
END_TEST

static bool yielded_once(void *arg)
{
	return yields >= 1;
}

/* After a long sleep a thread polls without a yield, until it was idle without a sleep. */
START_TEST(test_a_thread_that_slept_long_does_not_yield)
{
	struct fix_opt o = { .spin_ns = 1000 };
	struct exec_thread *t;
	struct fix f;
	u64 hour, sleeps;
	u32 i, calls;

	watchdog(60);
	fix_init(&f, &o);
	t = fix_thread(&f);
	hour = 3600000000ull * exec_cycles_per_us();
	f.x->spin = f.x->slow_yield = hour;
	f.x->yield = 0;
	for (i = 0; i < 4; i++) {
		f.x->rest = i % 2 ? 0 : hour;
		t->naps = true;
		sleeps = t->sleeps;
		while (t->sleeps == sleeps)
			MUST(exec_wait(f.x, t, never, NULL, 1000000, EXEC_WAIT) == -ETIMEDOUT);
		t->naps = false;
		yields = calls = 0;
		MUST(!exec_wait(f.x, t, ten_calls, &calls, -1, EXEC_WAIT));
		ck_assert(i % 2 ? !yields : yields > 0);
		yields = calls = 0;
		MUST(!exec_wait(f.x, t, ten_calls, &calls, -1, EXEC_WAIT));
		ck_assert_uint_gt(yields, 0);
	}
	/* A yield that was short halves how often it sleeps instead. */
	t->slow_yields = 7;
	t->crowded = 0;
	yields = 0;
	MUST(!exec_wait(f.x, t, yielded_once, NULL, -1, EXEC_WAIT));
	ck_assert_uint_eq(t->slow_yields, 3);
	ck_assert_uint_eq(t->crowded, 3);
	fix_fini(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("exec/park");
	TCase *tc = tcase_create("park");

	tcase_set_timeout(tc, 110);
	tcase_add_loop_test(tc, test_sleep_wake, 0, 2);
	tcase_add_loop_test(tc, test_bursts, 0, 2);
	tcase_add_loop_test(tc, test_all_needed, 0, 2);
	tcase_add_loop_test(tc, test_unpark, 0, 2);
	tcase_add_loop_test(tc, test_deadline, 0, 2);
	tcase_add_test(tc, test_helping);
	tcase_add_loop_test(tc, test_pass_on, 0, 2);
	tcase_add_loop_test(tc, test_pass_on_of_two_queues, 0, 2);
	tcase_add_loop_test(tc, test_stopped_waker, 0, 2);
	tcase_add_test(tc, test_a_poller_is_left_so_much_work);
	tcase_add_test(tc, test_a_stopped_waker_of_a_worker_hides_no_helper);
	tcase_add_test(tc, test_a_bit_without_a_thread_hides_no_sleeper);
	tcase_add_test(tc, test_a_bit_of_another_group_hides_no_sleeper);
	tcase_add_loop_test(tc, test_tidying_worker_comes_at_once, 0, 2);
	tcase_add_loop_test(tc, test_tidy_is_asked_until_done, 0, 3);
	tcase_add_test(tc, test_polling_in_vain);
	tcase_add_test(tc, test_an_idle_time_ends_when_the_thread_is_woken);
	tcase_add_test(tc, test_a_thread_sleeps_after_a_slow_yield);
	tcase_add_test(tc, test_a_thread_that_woke_another_yields_first);
	tcase_add_test(tc, test_a_thread_that_slept_long_does_not_yield);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
