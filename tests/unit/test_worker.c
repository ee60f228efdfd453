/* SPDX-License-Identifier: Apache-2.0 */
/* exec/worker.c: creation and end of workers, names, pinning, errors, statistics. */
#include <dirent.h>
#include <base/clock.h>
#include "exec_fixture.h"
#include "suite.h"

static u32 fail_from = UINT32_MAX;	/* A: workers from this number on cannot be created */

int exec_worker_hook(const char *queue, u32 i)
{
	return i >= load_relaxed(&fail_from) ? EAGAIN : 0;
}

static bool ran_all(void *arg)
{
	u32 *w = arg;

	return load_acquire(&w[0]) >= w[1];
}

START_TEST(test_life)
{
	struct exec_queue *q, *idle;
	struct exec_thread *t;
	struct exec_stats st;
	struct fix f;
	u32 ran = 0, i;

	watchdog(60);
	fix_init(&f, NULL);
	f.run = count_work;
	f.user = &ran;
	q = fix_queue(&f, "q", 2, false);
	idle = fix_queue(&f, "idle", 2, false);
	t = fix_thread(&f);
	/* before start: queued, no worker */
	exec_push(q, t, 1, 0, 0);
	ck_assert_uint_eq(f.starts, 0);
	exec_start(f.x);
	/* work was there: they are started at once; the other queue has none */
	until(&ran, 1);
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.workers, 2);
	exec_start(f.x);
	for (i = 0; i < 100; i++)
		exec_push(q, t, 1, 0, 0);
	until(&ran, 101);
	exec_stop(f.x);
	exec_stop(f.x);
	ck_assert_uint_eq(f.starts, 2);
	ck_assert_uint_eq(f.stops, 2);
	ck_assert_uint_eq(f.enters, 2);
	ck_assert_uint_eq(f.leaves, 2);
	ck_assert_uint_ge(f.idles, 1);
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.workers, 0);
	/* stopped: kept */
	exec_push(q, t, 1, 0, 0);
	exec_push(q, t, 2, -3, 0);
	usleep(2000);
	ck_assert_uint_eq(ran, 101);
	exec_start(f.x);
	until(&ran, 103);
	ck_assert_int_eq(exec_worker_error(f.x), 0);
	exec_push(idle, t, 1, 0, 0);
	until(&ran, 104);
	ck_assert_uint_eq(f.x->helpers.attn, 0);
	fix_leave(&f, t);
	fix_fini(&f);
	ck_assert_uint_eq(f.starts, f.stops);
}
END_TEST

static char names[8][16];
static u32 cpu_of[8];
static u32 nnames;

static void note_name(struct fix *f, struct exec_thread *t, u32 work)
{
	u32 i = fetch_add_acq_rel(&nnames, 1);
	static const int faults[] = {
		SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT,
	};
	sigset_t set, open;
	u32 k;
	int sig;

	MUST(i < 8);
	pthread_getname_np(pthread_self(), names[i], 16);
	cpu_of[i] = (u32)sched_getcpu();
	/* crashes in a body are reported by a handler; all other signals are the program's */
	sigemptyset(&open);
	for (k = 0; k < ARRAY_SIZE(faults); k++)
		sigaddset(&open, faults[k]);
	pthread_sigmask(SIG_SETMASK, NULL, &set);
	/* the C library has its own signals between these and the real-time ones */
	for (sig = 1; sig <= SIGRTMAX; sig++)
		if (sig != SIGKILL && sig != SIGSTOP && (sig <= SIGSYS || sig >= SIGRTMIN))
			MUST(sigismember(&set, sig) != sigismember(&open, sig));
	while (load_acquire(&nnames) < 2)
		sched_yield();
}

START_TEST(test_names_and_cpus)
{
	static const int cpus[] = { 0 };
	struct fix_opt o = { .spin_ns = 1000, .cpus = cpus, .ncpus = 1 };
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u32 i;

	watchdog(60);
	nnames = 0;
	fix_init(&f, &o);
	f.run = note_name;
	q = fix_queue(&f, _i ? "averylongnameindeed" : "q", 2, false);
	t = fix_thread(&f);
	exec_start(f.x);
	exec_push(q, t, 1, 0, 0);
	exec_push(q, t, 2, 0, 0);
	until(&nnames, 2);
	exec_stop(f.x);
	for (i = 0; i < 2; i++) {
		u32 k = (u32)(names[i][strlen(names[i]) - 1] - '0');
		char want[32];

		snprintf(want, sizeof(want), _i ? "t-averylongna-%u" : "t-q-%u", k);
		ck_assert_str_eq(names[i], want);
		ck_assert_uint_eq(cpu_of[i], 0);
	}
	fix_fini(&f);
}
END_TEST

/* Start and stop while work arrives: all of it runs once. */
static struct {
	struct fix *f;
	struct exec_queue *q;
	u32 pushed;		/* A */
	u32 stop;		/* A */
} feed;

static void *feeder(void *arg)
{
	struct exec_thread *t = fix_thread(feed.f);
	u32 n = 0;

	while (!load_acquire(&feed.stop)) {
		n++;
		exec_push(feed.q, t, n % 1000 + 1, n % 16 ? 0 : (s32)(n % 5) - 2, 0);
		store_release(&feed.pushed, n);
		if (n % 64 == 0)
			usleep(50);
	}
	fix_leave(feed.f, t);
	return NULL;
}

START_TEST(test_start_stop)
{
	struct exec_thread *t;
	u32 ran[2] = { 0 };
	struct fix f;
	pthread_t p;
	u32 i;

	watchdog(100);
	fix_init(&f, NULL);
	f.run = count_work;
	f.user = ran;
	feed.f = &f;
	feed.q = fix_queue(&f, "q", 2, true);
	feed.pushed = feed.stop = 0;
	t = fix_thread(&f);
	MUST(!pthread_create(&p, NULL, feeder, NULL));
	for (i = 0; i < (BRIEF ? 100u : 1000u); i++) {
		exec_start(f.x);
		if (i % 3 == 0)
			usleep(i % 200);
		exec_stop(f.x);
		ck_assert_uint_eq(f.starts, f.stops);
	}
	exec_start(f.x);
	store_release(&feed.stop, 1);
	pthread_join(p, NULL);
	ran[1] = feed.pushed;
	MUST(!exec_wait(f.x, t, ran_all, ran, 30000000000ll, true));
	exec_stop(f.x);
	ck_assert_uint_eq(ran[0], feed.pushed);
	ck_assert(queue_empty(feed.q));
	fix_fini(&f);
}
END_TEST

START_TEST(test_create_fails)
{
	struct exec_queue_stats qs;
	struct exec_queue *q;
	struct exec_thread *t;
	struct exec_stats st;
	u32 ran[2] = { 0 }, i;
	struct fix f;

	watchdog(60);
	fix_init(&f, NULL);
	f.run = count_work;
	f.user = ran;
	q = fix_queue(&f, "q", 3, false);
	t = fix_thread(&f);
	/* some */
	store_relaxed(&fail_from, 1);
	exec_start(f.x);
	for (i = 1; i <= 10; i++)
		exec_push(q, t, i, 0, 0);
	until(&ran[0], 10);
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.workers, 1);
	exec_queue_stats(q, &qs);
	ck_assert_uint_eq(qs.workers, 1);
	ck_assert_int_eq(exec_worker_error(f.x), -EAGAIN);
	/* the one that there is serves the queue alone */
	ck_assert(!(load_relaxed(&q->drive) & DRIVE_FAILED));
	exec_push(q, t, 1, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 0);
	until(&ran[0], 11);
	ran[0] = 10;
	exec_stop(f.x);
	/* none: the waiting thread runs the work */
	store_relaxed(&fail_from, 0);
	exec_start(f.x);
	for (i = 1; i <= 10; i++)
		exec_push(q, t, i, 0, 0);
	ck_assert_uint_eq(ran[0], 10);
	ran[1] = 20;
	ck_assert_int_eq(exec_wait(f.x, t, ran_all, ran, 10000000000ll, true), 0);
	ck_assert(load_relaxed(&q->drive) & DRIVE_FAILED);
	exec_stop(f.x);
	/* and then they can be created again; threads that only wait need not help */
	store_relaxed(&fail_from, UINT32_MAX);
	exec_start(f.x);
	ck_assert(!(load_relaxed(&q->drive) & DRIVE_FAILED));
	ck_assert_int_eq(exec_worker_error(f.x), 0);
	for (i = 1; i <= 10; i++)
		exec_push(q, t, i, 0, 0);
	until(&ran[0], 30);
	ck_assert_uint_eq(exec_take(f.x, t), 0);
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.workers, 3);
	exec_queue_stats(q, &qs);
	ck_assert_uint_eq(qs.workers, 3);
	exec_stop(f.x);
	exec_queue_stats(q, &qs);
	ck_assert_uint_eq(qs.workers, 0);
	fix_fini(&f);
}
END_TEST

/* Workers that find no slot do not exist; also where only they may take. */
static void enter_refused(bool drive)
{
	struct exec_queue *q;
	struct exec_thread *t;
	u32 ran[2] = { 0, 5 }, i;
	struct fix f;

	watchdog(60);
	fix_init(&f, NULL);
	f.run = count_work;
	f.user = ran;
	f.refuse = true;
	q = fix_queue(&f, "q", 2, drive);
	t = fix_thread(&f);
	exec_start(f.x);
	for (i = 1; i <= 5; i++)
		exec_push(q, t, i, 0, 0);
	ck_assert_int_eq(exec_wait(f.x, t, ran_all, ran, 10000000000ll, true), 0);
	exec_stop(f.x);
	ck_assert_int_eq(exec_worker_error(f.x), -EAGAIN);
	/* Pushes more than a millisecond apart tried again. */
	ck_assert_uint_ge(f.starts, 2);
	ck_assert_uint_eq(f.stops, f.starts);
	ck_assert_uint_eq(f.leaves, 0);
	/* with room they serve it again, alone */
	f.refuse = false;
	ran[0] = 0;
	exec_start(f.x);
	for (i = 1; i <= 5; i++)
		exec_push(q, t, i, 0, 0);
	if (!drive)
		ck_assert_uint_eq(exec_take(f.x, t), 0);
	until(&ran[0], 5);
	exec_stop(f.x);
	fix_fini(&f);
}

START_TEST(test_enter_refused)
{
	enter_refused(true);
	enter_refused(false);
}
END_TEST

/* A thread that only waits begins to run work when no other thread will. */
static void *deserted_main(void *arg)
{
	struct fix *f = arg;
	u32 *ran = f->user;

	MUST(!exec_wait(f->x, fix_thread(f), ran_all, ran, 20000000000ll, EXEC_FAILED));
	return NULL;
}

static bool never(void *arg)
{
	return false;
}

static void count_pushed(struct fix *f, struct exec_thread *t, u32 work)
{
	MUST(work);
	count_work(f, t, work);
}

START_TEST(test_deserted)
{
	struct exec_queue *q;
	struct exec_thread *t;
	u32 ran[2] = { 0, 5 }, i, turn;
	pthread_t waiter;
	struct fix f;

	watchdog(60);
	for (turn = 0; turn < 2; turn++) {
		fix_init(&f, NULL);
		f.run = count_pushed;
		f.user = ran;
		/* They cannot be created, or they are created and find no slot. */
		store_relaxed(&fail_from, turn ? UINT32_MAX : 0);
		f.refuse = turn;
		q = fix_queue(&f, "q", 2, false);
		t = fix_thread(&f);
		ran[0] = 0;
		exec_start(f.x);
		f.used++;	/* a slot that no thread had yet hides no waiter */
		ck_assert_int_eq(pthread_create(&waiter, NULL, deserted_main, &f), 0);
		usleep(20000);	/* most times it sleeps by now */
		for (i = 1; i <= 5; i++)
			exec_push(q, t, i, 0, 0);
		ck_assert_int_eq(pthread_join(waiter, NULL), 0);
		/* A wait that relents still ends in time. */
		ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 1000000, EXEC_FAILED),
				 -ETIMEDOUT);
		exec_stop(f.x);
		fix_fini(&f);
	}
	store_relaxed(&fail_from, UINT32_MAX);
}
END_TEST

/* Two workers are made for the first of many pushers only. */
static void *first_main(void *arg)
{
	struct exec_thread *t = fix_thread(feed.f);

	while (!load_acquire(&feed.stop))
		sched_yield();
	exec_push(feed.q, t, 1, 0, 0);
	fix_leave(feed.f, t);
	return NULL;
}

START_TEST(test_first_push)
{
	struct fix f;
	u32 r, i, ran = 0;
	pthread_t p[4];

	watchdog(60);
	fix_init(&f, NULL);
	f.run = count_work;
	f.user = &ran;
	feed.f = &f;
	feed.q = fix_queue(&f, "q", 2, false);
	for (r = 1; r <= 100; r++) {
		feed.stop = 0;
		for (i = 0; i < 4; i++)
			MUST(!pthread_create(&p[i], NULL, first_main, NULL));
		exec_start(f.x);
		store_release(&feed.stop, 1);
		until(&ran, 4 * r);
		for (i = 0; i < 4; i++)
			pthread_join(p[i], NULL);
		exec_stop(f.x);
		ck_assert_uint_eq(f.starts, 2 * r);
		ck_assert_uint_eq(f.stops, 2 * r);
	}
	fix_fini(&f);
}
END_TEST

/* A worker that waits inside a piece of work runs others of its queue meanwhile. */
static void nested(struct fix *f, struct exec_thread *t, u32 work)
{
	u32 *w = f->user;

	if (work == 1)
		MUST(!exec_wait(f->x, t, ran_all, w, 10000000000ll, true));
	else
		fetch_add_acq_rel(&w[0], 1);
	if (work == 1)
		store_release(&w[2], 1);
}

START_TEST(test_nested)
{
	struct exec_queue *q;
	struct exec_thread *t;
	u32 w[3] = { 0, 50, 0 }, i;
	struct fix f;

	watchdog(60);
	fix_init(&f, NULL);
	f.run = nested;
	f.user = w;
	q = fix_queue(&f, "q", 1, false);
	t = fix_thread(&f);
	exec_start(f.x);
	exec_push(q, t, 1, 0, 0);
	for (i = 0; i < 50; i++) {
		exec_push(q, t, 2, 0, 0);
		if (i % 10 == 0)
			usleep(200);
	}
	until(&w[2], 1);
	fix_fini(&f);
}
END_TEST

/* Both clocks, at one moment: not where the thread lost its CPU between them. */
static void clocks_now(u64 *t, u64 *c)
{
	u64 limit = 100 * exec_cycles_per_us();

	do {
		*c = cycles();
		*t = exec_now_ns();
	} while (cycles() - *c > limit);
}

START_TEST(test_clock)
{
	u64 us = exec_cycles_per_us(), t0, c0, c, t;
	u32 i;

	ck_assert_uint_ge(us, 1);
	watchdog(60);
	clocks_now(&t0, &c0);
	usleep(20000);
	clocks_now(&t, &c);
	t -= t0;
	c -= c0;
	ck_assert_uint_ge(t, 20000000);
	ck_assert(c * 1000 / us > t / 100 * 97 && c * 1000 / us < t / 100 * 103);
	/* The rate is measured once. */
	t0 = exec_now_ns();
	for (i = 0; i < 10000; i++)
		MUST(exec_cycles_per_us() == us);
	ck_assert_uint_lt(exec_now_ns() - t0, 1000000000);
	ck_assert_uint_eq(ns_to_cycles(2500, 1000000), 2500000);
	ck_assert_uint_eq(ns_to_cycles(2500, 999), 2497);
}
END_TEST

/* A deadline has passed from its own nanosecond on, however old the last tick of the timer is. */
START_TEST(test_a_deadline_has_passed_between_ticks)
{
	u64 tick = clock_coarse_ns(), now;
	u32 ticks = 0;

	watchdog(60);
	while (ticks < 3) {
		now = exec_now_ns();
		MUST(exec_late(now));
		MUST(exec_late(1));
		MUST(!exec_late(now + 3600000000000ull) && !exec_late(UINT64_MAX));
		if (clock_coarse_ns() != tick) {
			tick = clock_coarse_ns();
			ticks++;
		}
	}
}
END_TEST

/* A slot that no thread had yet hides none of the others. */
START_TEST(test_stats_count_threads_behind_an_unused_slot)
{
	struct exec_queue *q;
	struct exec_thread *t;
	struct exec_stats st;
	struct fix f;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	f.used++;
	t = fix_thread(&f);
	ck_assert(exec_handoff(q, t, 1, 0));
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.handed, 1);
	fix_fini(&f);
}
END_TEST

/* A thread in a slot that another one had begins as the first one did. */
START_TEST(test_a_used_slot_is_as_a_new_one)
{
	struct exec_thread *t, *u, was;
	struct exec_queue *q;
	struct fix f;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	u = fix_thread(&f);
	was = *t;
	exec_push(q, t, 1, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	t->budget = t->tick = t->avg = t->nexts = t->against = t->slow_yields = t->crowded = 1;
	t->batch = 8;
	t->turn = t->from = t->around = t->around_hoard = t->mode = t->step = t->calm = 2;
	t->late = 3;
	t->left = t->naps = t->woke = t->rested = t->spinning = true;
	t->queue = q;
	fix_leave(&f, t);
	exec_trim(f.x, u);
	ck_assert_ptr_eq(fix_thread(&f), t);
	ck_assert_uint_eq(t->trims, 1);
#define SAME(field) ck_assert_msg(t->field == was.field, #field)
	ck_assert_uint_eq(t->id, 7);
	SAME(slot);
	SAME(queue);
	SAME(spinning);
	SAME(budget);
	SAME(tick);
	SAME(avg);
	SAME(batch);
	SAME(nexts);
	SAME(turn);
	SAME(to_q);
	SAME(from_q);
	SAME(from);
	SAME(takes);
	SAME(around);
	SAME(around_hoard);
	SAME(hoarded);
	SAME(mode);
	SAME(step);
	SAME(step_most);
	SAME(calm);
	SAME(late);
	ck_assert_int_ge((s64)(t->began - was.began), 0);
	SAME(left);
	SAME(naps);
	SAME(against);
	SAME(woke);
	SAME(slow_yields);
	SAME(crowded);
	SAME(rested);
#undef SAME
	fix_fini(&f);
}
END_TEST

static u32 pinned[4];		/* A: workers on CPU 0, on CPU 1, on any, all */
static u32 cpus_all;

static void note_cpus(struct fix *f, struct exec_thread *t, u32 work)
{
	cpu_set_t set;
	u32 k = 2;

	MUST(!sched_getaffinity(0, sizeof(set), &set));
	if (CPU_COUNT(&set) == 1)
		k = CPU_ISSET(0, &set) ? 0 : 1;
	else
		MUST((u32)CPU_COUNT(&set) == cpus_all);
	fetch_add_relaxed(&pinned[k], 1);
	fetch_add_acq_rel(&pinned[3], 1);
	gate_wait(f->user);
}

/* Workers are pinned to the CPUs in turn; one whose CPU does not exist is not pinned. */
START_TEST(test_workers_are_pinned_in_turn)
{
	int cpus[] = { 0, -1, CPU_SETSIZE, 1, 1 };
	struct fix_opt o = { .spin_ns = 1000, .cpus = cpus, .ncpus = ARRAY_SIZE(cpus) };
	struct exec_queue *q;
	struct exec_thread *t;
	u32 gate = 0, i, n = ARRAY_SIZE(cpus) + 1;
	cpu_set_t mine;
	struct fix f;

	MUST(!sched_getaffinity(0, sizeof(mine), &mine));
	cpus_all = (u32)CPU_COUNT(&mine);
	if (!CPU_ISSET(0, &mine) || !CPU_ISSET(1, &mine))
		return;
	watchdog(60);
	memset(pinned, 0, sizeof(pinned));
	fix_init(&f, &o);
	cpus[3] = 0;	/* they were copied */
	f.run = note_cpus;
	f.user = &gate;
	q = fix_queue(&f, "q", n, false);
	t = fix_thread(&f);
	exec_start(f.x);
	for (i = 1; i <= n; i++)
		exec_push(q, t, i, 0, 0);
	until(&pinned[3], n);
	/* the sixth begins again */
	ck_assert_uint_eq(pinned[0], 2);
	ck_assert_uint_eq(pinned[1], 2);
	ck_assert_uint_eq(pinned[2], 2);
	store_release(&gate, 1);
	fix_fini(&f);
}
END_TEST

/* A start that waits for its workers also counts those that are refused. */
START_TEST(test_an_eager_start_ends_when_workers_are_refused)
{
	struct fix_opt o = { .eager = true };
	struct exec_queue *q[2];
	struct exec_stats st;
	u32 i, ran = 0;
	struct fix f;

	watchdog(60);
	fix_init(&f, &o);
	f.run = count_work;
	f.user = &ran;
	q[0] = fix_queue(&f, "q", 2, false);
	q[1] = fix_queue(&f, "r", 1, false);
	for (i = 0; i < 4; i++) {
		f.refuse = i % 2;
		exec_start(f.x);
		ck_assert_int_eq(exec_worker_error(f.x), i % 2 ? -EAGAIN : 0);
		ck_assert_uint_eq(!!(load_relaxed(&q[0]->drive) & DRIVE_FAILED), i % 2);
		ck_assert_uint_eq(load_relaxed(&f.enters), 3 * (i / 2 + 1));
		exec_stats(f.x, &st);
		ck_assert_uint_eq(st.workers, 3);
		exec_stop(f.x);
	}
	ck_assert(queue_empty(q[0]) && queue_empty(q[1]));
	fix_fini(&f);
}
END_TEST

#define RUN_CYCLES	100000u

/* Runs that long, and with what it took and was handed in between. */
static void takes_long(struct fix *f, struct exec_thread *t, u32 work)
{
	u64 start = cycles();

	t->nexts += work / 100;
	t->handed += work % 100;
	while (cycles() - start < RUN_CYCLES)
		cpu_relax();
	count_work(f, t, work);
}

/* The average is of a single piece; from it follows how many a thread takes at once. */
START_TEST(test_average_time_of_a_piece)
{
	static const u32 works[] = { 1, 9, 900, 908, 3 };
	u32 ran[2] = { 0 }, i, n;
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u64 all;

	fix_init(&f, NULL);
	f.run = takes_long;
	f.user = ran;
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	f.x->batch = 10 * RUN_CYCLES;
	for (i = 0; i < ARRAY_SIZE(works); i++) {
		n = works[i] / 100 + works[i] % 100 + 1;
		t->tick = SAMPLE_EVERY - 1;
		t->avg = 0;
		t->nexts = 5;	/* of the last run */
		ran[1] = ran[0] + 1;
		all = cycles();
		exec_push(q, t, works[i], 0, 0);
		ck_assert_int_eq(exec_wait(f.x, t, ran_all, ran, -1, EXEC_HELP), 0);
		all = cycles() - all;
		ck_assert_uint_ge(t->avg, RUN_CYCLES / n);
		ck_assert_uint_le(t->avg, all / n);
		ck_assert_uint_eq(t->batch, max_u(min_u(10 * RUN_CYCLES / (t->avg + 1),
							EXEC_BATCH_MAX), 1));
	}
	/* Only one run in so many is measured, and counts for a quarter. */
	n = t->avg = 1u << 28;
	all = 0;
	for (i = 1; i <= SAMPLE_EVERY; i++) {
		ck_assert_uint_eq(t->avg, n);
		all = cycles();
		ran[1] = ran[0] + 1;
		exec_push(q, t, 1, 0, 0);
		ck_assert_int_eq(exec_wait(f.x, t, ran_all, ran, -1, EXEC_HELP), 0);
	}
	all = cycles() - all;
	ck_assert_uint_ge(t->avg, n / 4 * 3 + RUN_CYCLES / 2 / 4);
	ck_assert_uint_le(t->avg, n / 4 * 3 + all / 4);
	ck_assert_uint_eq(t->batch, 1);
	fix_fini(&f);
}
END_TEST

/* Each piece makes another one ready. */
static void runs_on(struct fix *f, struct exec_thread *t, u32 work)
{
	u32 *w = f->user;

	exec_push(f->x->queues[0], t, 1, 0, 0);
	fetch_add_acq_rel(&w[0], 1);
}

/* A wait ends in time, or when its condition is true, although there is always work. */
START_TEST(test_work_without_end_does_not_prolong_a_wait)
{
	u32 ran[2] = { 0, UINT32_MAX };
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u64 start;

	watchdog(60);
	fix_init(&f, NULL);
	f.run = runs_on;
	f.user = ran;
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	exec_push(q, t, 1, 0, 0);
	start = exec_now_ns();
	ck_assert_int_eq(exec_wait(f.x, t, ran_all, ran, 2000000, EXEC_HELP), -ETIMEDOUT);
	ck_assert_uint_ge(exec_now_ns() - start, 2000000);
	ck_assert_uint_ge(ran[0], 1);
	/* What ran is told to the client when the wait ends, however it does. */
	ck_assert_uint_eq(f.idles, 1);
	ran[1] = ran[0] + 3;
	ck_assert_int_eq(exec_wait(f.x, t, ran_all, ran, 60000000000ll, EXEC_HELP), 0);
	ck_assert_uint_eq(ran[0], ran[1]);
	ck_assert_uint_eq(f.idles, 2);
	ran[1] = UINT32_MAX;
	ck_assert_int_eq(exec_wait(f.x, t, ran_all, ran, 0, EXEC_HELP), -ETIMEDOUT);
	ck_assert_uint_eq(f.idles, 3);
	fix_fini(&f);
}
END_TEST

/* As work that took more with exec_next(). */
static void takes_next(struct fix *f, struct exec_thread *t, u32 work)
{
	t->since = cycles();
	count_work(f, t, work);
}

/* What a piece of work may still hand over and take, after a wait inside it that ran others. */
START_TEST(test_a_wait_inside_work_keeps_its_budget)
{
	struct exec_queue *q;
	struct exec_thread *t;
	u32 ran[2] = { 0, 1 };
	struct fix f;

	fix_init(&f, NULL);
	f.run = takes_next;
	f.user = ran;
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	t->budget = 5;
	t->nexts = 3;
	t->since = 7;
	exec_push(q, t, 1, 0, 0);
	ck_assert_int_eq(exec_wait(f.x, t, ran_all, ran, -1, EXEC_HELP), 0);
	ck_assert_uint_eq(ran[0], 1);
	ck_assert_uint_eq(t->budget, 5);
	ck_assert_uint_eq(t->nexts, 3);
	ck_assert_uint_eq(t->since, 7);
	fix_fini(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("exec/worker");
	TCase *tc = tcase_create("worker");

	tcase_set_timeout(tc, 110);
	tcase_add_test(tc, test_life);
	tcase_add_loop_test(tc, test_names_and_cpus, 0, 2);
	tcase_add_test(tc, test_start_stop);
	tcase_add_test(tc, test_create_fails);
	tcase_add_test(tc, test_enter_refused);
	tcase_add_test(tc, test_deserted);
	tcase_add_test(tc, test_first_push);
	tcase_add_test(tc, test_nested);
	tcase_add_test(tc, test_a_deadline_has_passed_between_ticks);
	tcase_add_test(tc, test_stats_count_threads_behind_an_unused_slot);
	tcase_add_test(tc, test_a_used_slot_is_as_a_new_one);
	tcase_add_test(tc, test_workers_are_pinned_in_turn);
	tcase_add_test(tc, test_an_eager_start_ends_when_workers_are_refused);
	tcase_add_test(tc, test_average_time_of_a_piece);
	tcase_add_test(tc, test_work_without_end_does_not_prolong_a_wait);
	tcase_add_test(tc, test_a_wait_inside_work_keeps_its_budget);
	/* each process measures once */
	tcase_add_loop_test(tc, test_clock, 0, 5);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
