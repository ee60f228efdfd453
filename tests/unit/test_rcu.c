/* SPDX-License-Identifier: Apache-2.0 */
/* pool/rcu.c: sections, deferred functions, grace periods, threads that end, fork. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <pool/pool.h>

#include "child.h"
#include "must.h"
#include "suite.h"

#define FORKS	(THREAD_SANITIZED ? 20 : 200)
#define ALIVE	0x616c697665ull
#define DEAD	0x64656164ull

struct item {
	struct rcu_defer d;
	u64 magic;		/* plain: a grace period orders its end */
	u64 nr;
};

static u64 ran;			/* A */
static u64 order[16];
static u32 norder;		/* A */

static void count(struct rcu_defer *d)
{
	struct item *i = container_of(d, struct item, d);

	u32 k = fetch_add_relaxed(&norder, 1);

	if (k < ARRAY_SIZE(order))
		order[k] = i->nr;
	fetch_add_relaxed(&ran, 1);
	i->magic = DEAD;
	free(i);
}

static struct item *item(u64 nr)
{
	struct item *i = calloc(1, sizeof(*i));

	if (!i)
		abort();
	i->magic = ALIVE;
	i->nr = nr;
	return i;
}

static void nap(long ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

static void fresh(void)
{
	pool_rcu_reclaim();
	ran = 0;
	norder = 0;
}

START_TEST(test_order)
{
	u32 i;

	fresh();
	/* There is nothing to do, so they return. */
	ck_assert(pool_rcu_reclaim());
	ck_assert(pool_rcu_wait());
	for (i = 0; i < 10; i++)
		pool_rcu_defer(&item(i)->d, count);
	ck_assert_uint_eq(ran, 0);
	pool_rcu_reclaim();
	ck_assert_uint_eq(ran, 10);
	for (i = 0; i < 10; i++)
		ck_assert_uint_eq(order[i], i);
}
END_TEST

START_TEST(test_nested)
{
	u32 i;

	fresh();
	for (i = 0; i < 100; i++) {
		pool_rcu_lock();
		pool_rcu_lock();
		pool_rcu_defer(&item(i)->d, count);
		pool_rcu_unlock();
		pool_rcu_lock();
		pool_rcu_unlock();
		ck_assert_uint_eq(ran, i);
		pool_rcu_unlock();
		pool_rcu_reclaim();
		ck_assert_uint_eq(ran, i + 1);
	}
}
END_TEST

static void again(struct rcu_defer *d)
{
	fetch_add_relaxed(&ran, 1);
	pool_rcu_defer(d, count);
}

START_TEST(test_defer_in_function)
{
	fresh();
	pool_rcu_defer(&item(1)->d, again);
	pool_rcu_reclaim();
	ck_assert_uint_eq(ran, 1);
	pool_rcu_reclaim();
	ck_assert_uint_eq(ran, 2);
}
END_TEST

/* A reader is inside: a reclaim waits, inner unlocks do not let it go. */
static u32 reader_in, reader_go, reclaim_done;

static void *slow_reader(void *arg)
{
	pool_rcu_lock();
	pool_rcu_lock();
	store_release(&reader_in, 1);
	while (!load_acquire(&reader_go))
		nap(1);
	pool_rcu_unlock();
	nap(20);
	if (load_acquire(&reclaim_done) || load_relaxed(&ran))
		abort();
	pool_rcu_unlock();
	return arg;
}

/* Start it, and wait until it is inside its section. */
static pthread_t slow_reader_begin(void)
{
	pthread_t r;

	reader_in = reader_go = reclaim_done = 0;
	ck_assert_int_eq(pthread_create(&r, NULL, slow_reader, NULL), 0);
	while (!load_acquire(&reader_in))
		nap(1);
	return r;
}

static void *do_reclaim(void *arg)
{
	pool_rcu_reclaim();
	store_release(&reclaim_done, 1);
	return arg;
}

START_TEST(test_waits_for_reader)
{
	pthread_t r, b;

	fresh();
	r = slow_reader_begin();
	pool_rcu_defer(&item(1)->d, count);
	ck_assert_int_eq(pthread_create(&b, NULL, do_reclaim, NULL), 0);
	nap(30);
	ck_assert_uint_eq(load_acquire(&reclaim_done), 0);
	ck_assert_uint_eq(load_relaxed(&ran), 0);
	/* defer does not wait meanwhile, and a second reclaim covers it. */
	pool_rcu_defer(&item(2)->d, count);
	store_release(&reader_go, 1);
	pthread_join(r, NULL);
	pthread_join(b, NULL);
	pool_rcu_reclaim();
	ck_assert_uint_eq(ran, 2);
}
END_TEST

static void *short_reader(void *arg)
{
	pool_rcu_lock();
	pool_rcu_unlock();
	return arg;
}

static void *no_reader(void *arg)
{
	pool_rcu_defer(&item(0)->d, count);
	return arg;
}

/* Grace periods do not wait for threads that have ended. */
START_TEST(test_thread_exit)
{
	pthread_t t[8];
	u32 i, k;

	fresh();
	for (k = 0; k < 30; k++) {
		for (i = 0; i < 8; i++)
			ck_assert_int_eq(pthread_create(&t[i], NULL,
							i & 1 ? short_reader : no_reader, NULL), 0);
		for (i = 0; i < 8; i++)
			pthread_join(t[i], NULL);
		pool_rcu_reclaim();
		ck_assert_uint_eq(ran, 4 * (k + 1));
	}
}
END_TEST

/* A key whose destructor enters a section after ours has run, or before. */
static pthread_key_t late_key;

static void late(void *arg)
{
	pool_rcu_lock();
	pool_rcu_unlock();
}

static void *late_reader(void *arg)
{
	pool_rcu_lock();
	pool_rcu_unlock();
	pthread_setspecific(late_key, &late_key);
	return arg;
}

START_TEST(test_late_lock)
{
	pthread_t t;
	u32 k;

	fresh();
	pool_rcu_lock();
	pool_rcu_unlock();
	ck_assert_int_eq(pthread_key_create(&late_key, late), 0);
	for (k = 0; k < 10; k++) {
		ck_assert_int_eq(pthread_create(&t, NULL, late_reader, NULL), 0);
		pthread_join(t, NULL);
		pool_rcu_defer(&item(k)->d, count);
		pool_rcu_reclaim();
		ck_assert_uint_eq(ran, k + 1);
	}
	pthread_key_delete(late_key);
}
END_TEST

static void late_slow(void *arg)
{
	slow_reader(arg);
}

/* A reclaim waits for such a section as for any other. */
START_TEST(test_waits_for_a_reader_in_a_later_destructor)
{
	pthread_t t, b;

	fresh();
	pool_rcu_lock();
	pool_rcu_unlock();
	ck_assert_int_eq(pthread_key_create(&late_key, late_slow), 0);
	reader_in = reader_go = reclaim_done = 0;
	ck_assert_int_eq(pthread_create(&t, NULL, late_reader, NULL), 0);
	while (!load_acquire(&reader_in))
		nap(1);
	pool_rcu_defer(&item(1)->d, count);
	ck_assert_int_eq(pthread_create(&b, NULL, do_reclaim, NULL), 0);
	nap(20);
	ck_assert_uint_eq(load_acquire(&reclaim_done), 0);
	store_release(&reader_go, 1);
	pthread_join(t, NULL);
	pthread_join(b, NULL);
	ck_assert_uint_eq(ran, 1);
	pthread_key_delete(late_key);
}
END_TEST

/*
 * Readers follow a pointer that a writer changes all the time; what they see must be
 * alive as long as they are inside.  Two threads reclaim against each other.
 */
static struct item *current;	/* A */
static u32 stop;		/* A */
static u64 sections, bad;	/* A */

static void *age_reader(void *arg)
{
	while (!load_relaxed(&stop)) {
		struct item *i;
		u32 k;

		pool_rcu_lock();
		i = load_acquire(&current);
		for (k = 0; k < 20; k++)
			if (i->magic != ALIVE)
				fetch_add_relaxed(&bad, 1);
		pool_rcu_unlock();
		fetch_add_relaxed(&sections, 1);
	}
	return arg;
}

static void *age_reclaim(void *arg)
{
	while (!load_relaxed(&stop))
		pool_rcu_reclaim();
	return arg;
}

START_TEST(test_no_early_end)
{
	pthread_t t[4];
	u64 n = 0;
	time_t end;
	u32 i;

	fresh();
	stop = 0;
	bad = sections = 0;
	store_release(&current, item(0));
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, i < 2 ? age_reader : age_reclaim,
						NULL), 0);
	end = time(NULL) + 1;
	while (time(NULL) <= end && n < 20000) {
		struct item *old = xchg_acq_rel(&current, item(++n));

		pool_rcu_defer(&old->d, count);
		if (n % 64 == 0)
			pool_rcu_reclaim();
		if (n % 512 == 0)
			nap(1);
	}
	store_relaxed(&stop, 1);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	pool_rcu_reclaim();
	ck_assert_uint_eq(bad, 0);
	ck_assert_uint_eq(ran, n);
	ck_assert_uint_gt(sections, 0);
	free(current);
}
END_TEST

/* The thread that takes a deferred function runs it: none is lost, none runs twice. */
static void *defer_and_reclaim(void *arg)
{
	u32 i;

	for (i = 0; i < 300; i++) {
		pool_rcu_defer(&item(i)->d, count);
		pool_rcu_reclaim();
	}
	return arg;
}

START_TEST(test_reclaims_together)
{
	pthread_t t[4];
	u32 i;

	fresh();
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, defer_and_reclaim, NULL), 0);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(ran, 1200);
}
END_TEST

static void in_child(int (*fn)(void))
{
	pid_t pid = child_fork();

	if (!pid)
		_exit(fn());
	ck_assert_int_eq(child_wait(pid), 0);
}

/* The child of a process with no other reader: all works. */
static int child_alone(void)
{
	pthread_t t;

	pool_rcu_lock();
	pool_rcu_unlock();
	pool_rcu_defer(&item(1)->d, count);
	if (pthread_create(&t, NULL, short_reader, NULL))
		return 2;
	pthread_join(t, NULL);
	return !pool_rcu_reclaim() || !pool_rcu_wait() || ran != 1;
}

START_TEST(test_fork_alone)
{
	fresh();
	in_child(child_alone);
	pool_rcu_lock();
	pool_rcu_unlock();
	in_child(child_alone);
	/* a grace period of the parent counts no reader */
	ck_assert(pool_rcu_wait());
	in_child(child_alone);
}
END_TEST

/* Readers that ended do not count: the child of a process that had some reclaims. */
START_TEST(test_fork_after_readers)
{
	pthread_t t;
	u32 i;

	fresh();
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(pthread_create(&t, NULL, short_reader, NULL), 0);
		pthread_join(t, NULL);
		in_child(child_alone);
	}
}
END_TEST

/* The child of a process with a reader inside a section: it leaks, and does not hang. */
static int child_orphan(void)
{
	pool_rcu_lock();
	pool_rcu_lock();
	pool_rcu_unlock();
	pool_rcu_unlock();
	pool_rcu_defer(&item(1)->d, count);
	pool_rcu_reclaim();
	if (ran)
		return 3;
	/* Nor does the next one, and both say so. */
	return pool_rcu_reclaim() || pool_rcu_wait() || ran != 0;
}

START_TEST(test_fork_orphan)
{
	pthread_t r;

	fresh();
	pool_rcu_lock();
	pool_rcu_unlock();
	r = slow_reader_begin();
	in_child(child_orphan);
	store_release(&reader_go, 1);
	pthread_join(r, NULL);
	/* The parent is as before. */
	pool_rcu_defer(&item(1)->d, count);
	pool_rcu_reclaim();
	ck_assert_uint_eq(ran, 1);
}
END_TEST

/* The child of a thread that was inside two sections, while another one was: it leaves both. */
static int child_leaves(void)
{
	pool_rcu_unlock();
	pool_rcu_lock();
	pool_rcu_unlock();
	pool_rcu_unlock();
	return child_orphan();
}

START_TEST(test_fork_inside_sections)
{
	pthread_t r;

	fresh();
	r = slow_reader_begin();
	pool_rcu_lock();
	pool_rcu_lock();
	in_child(child_leaves);
	pool_rcu_unlock();
	pool_rcu_unlock();
	store_release(&reader_go, 1);
	pthread_join(r, NULL);
	pool_rcu_defer(&item(1)->d, count);
	pool_rcu_reclaim();
	ck_assert_uint_eq(ran, 1);
}
END_TEST

/* A child that threads start in: those do not register either. */
static int child_orphan_threads(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, short_reader, NULL))
		return 2;
	pthread_join(t, NULL);
	return child_orphan();
}

START_TEST(test_fork_orphan_threads)
{
	pthread_t r;

	fresh();
	r = slow_reader_begin();
	in_child(child_orphan_threads);
	store_release(&reader_go, 1);
	pthread_join(r, NULL);
}
END_TEST

/*
 * Forks while other threads begin, end and reclaim: liburcu's mutexes may be taken at that
 * moment, and a child that took one then would wait for good.  The child neither allocates nor
 * frees, nor does what it may find deferred: see child.h.
 */
static struct item childs, parents;

static void count_only(struct rcu_defer *d)
{
	fetch_add_relaxed(&ran, 1);
}

static void *exits(void *arg)
{
	pthread_exit(arg);
}

static void child_over(void)
{
	_exit(0);
}

static int child_any(void)
{
	CHILD_AT("its first section");
	pool_rcu_lock();
	pool_rcu_unlock();
	CHILD_AT("defer");
	pool_rcu_defer(&childs.d, count_only);
	CHILD_AT("reclaim");
	pool_rcu_reclaim();
	CHILD_AT("another section");
	pool_rcu_lock();
	pool_rcu_unlock();
	CHILD_AT("the end of its thread");
	/* a sanitizer's part of it takes locks that other threads held when the child began */
	if (SANITIZED)
		return 0;
	MUST(!atexit(child_over));
	pthread_exit(NULL);
}

static void *begin_and_end(void *arg)
{
	pthread_t t;

	while (!load_relaxed(&stop)) {
		if (pthread_create(&t, NULL, short_reader, NULL))
			abort();
		pthread_join(t, NULL);
	}
	return arg;
}

static void *defer_until_stop(void *arg)
{
	/* No other thread reclaims: it has run, and is free, when reclaim returns. */
	while (!load_relaxed(&stop)) {
		pool_rcu_defer(&parents.d, count_only);
		pool_rcu_reclaim();
	}
	return arg;
}

START_TEST(test_fork_in_between)
{
	pthread_t t[3];
	u32 i;

	fresh();
	/* What pthread_exit() loads must be there before the children. */
	ck_assert_int_eq(pthread_create(&t[0], NULL, exits, NULL), 0);
	pthread_join(t[0], NULL);
	/* Half of the children are of a thread that is registered. */
	if (_i) {
		pool_rcu_lock();
		pool_rcu_unlock();
	}
	stop = 0;
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, i ? begin_and_end : defer_until_stop,
						NULL), 0);
	for (i = 0; i < FORKS; i++)
		in_child(child_any);
	store_relaxed(&stop, 1);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	fresh();
	pool_rcu_defer(&item(1)->d, count);
	pool_rcu_reclaim();
	ck_assert_uint_eq(ran, 1);
}
END_TEST

/*
 * No key is left in the process: sections register one by one.  In a process that has
 * not used RCU yet, hence first of all tests.
 */
static int child_no_key(void)
{
	pthread_t t;
	pthread_key_t key;
	u32 k;

	while (!pthread_key_create(&key, NULL))
		;
	for (k = 0; k < 10; k++) {
		pool_rcu_lock();
		pool_rcu_lock();
		pool_rcu_unlock();
		pool_rcu_unlock();
		if (pthread_create(&t, NULL, short_reader, NULL))
			return 2;
		pthread_join(t, NULL);
		pool_rcu_defer(&item(k)->d, count);
		pool_rcu_reclaim();
		if (ran != k + 1)
			return 3;
	}
	return 0;
}

START_TEST(test_no_key)
{
	in_child(child_no_key);
}
END_TEST

/* Without a key, the only thread forks inside two sections: its child leaves them, and reclaims. */
static int leaves_and_reclaims(void)
{
	pool_rcu_unlock();
	pool_rcu_unlock();
	pool_rcu_defer(&item(1)->d, count);
	return !pool_rcu_reclaim() || ran != 1;
}

/* The same beside another reader: the child leaves them, and reclaims nothing. */
static int leaves_and_leaks(void)
{
	pool_rcu_unlock();
	pool_rcu_unlock();
	return child_orphan();
}

static int child_no_key_forks(void)
{
	pthread_key_t key;
	pthread_t r;
	u32 i;

	while (!pthread_key_create(&key, NULL))
		;
	fresh();
	reader_in = reader_go = reclaim_done = 0;
	for (i = 0; i < 2; i++) {
		pid_t pid;

		if (i && pthread_create(&r, NULL, slow_reader, NULL))
			return 2;
		while (i && !load_acquire(&reader_in))
			nap(1);
		pool_rcu_lock();
		pool_rcu_lock();
		pid = child_fork();
		if (!pid)
			_exit(i ? leaves_and_leaks() : leaves_and_reclaims());
		if (child_wait(pid))
			return 3 + (int)i;
		pool_rcu_unlock();
		pool_rcu_unlock();
	}
	store_release(&reader_go, 1);
	pthread_join(r, NULL);
	return 0;
}

START_TEST(test_no_key_fork_inside_sections)
{
	in_child(child_no_key_forks);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rcu");
	TCase *t = tcase_create("rcu"), *fork = tcase_create("fork");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_no_key);
	tcase_add_test(t, test_order);
	tcase_add_test(t, test_nested);
	tcase_add_test(t, test_defer_in_function);
	tcase_add_test(t, test_waits_for_reader);
	tcase_add_test(t, test_thread_exit);
	tcase_add_test(t, test_late_lock);
	tcase_add_test(t, test_waits_for_a_reader_in_a_later_destructor);
	tcase_add_test(t, test_no_early_end);
	tcase_add_test(t, test_reclaims_together);
	suite_add_tcase(s, t);
	/* An emulator may be unable to fork beside threads: CK_EXCLUDE_TAGS=fork */
	tcase_set_tags(fork, "fork");
	tcase_set_timeout(fork, 60);
	/* As test_no_key, before this process uses RCU. */
	tcase_add_test(fork, test_no_key_fork_inside_sections);
	tcase_add_test(fork, test_fork_alone);
	tcase_add_test(fork, test_fork_after_readers);
	tcase_add_test(fork, test_fork_orphan);
	tcase_add_test(fork, test_fork_inside_sections);
	tcase_add_loop_test(fork, test_fork_in_between, 0, 2);
	/* The thread sanitizer does not let such a child start threads. */
	if (!THREAD_SANITIZED)
		tcase_add_test(fork, test_fork_orphan_threads);
	suite_add_tcase(s, fork);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
