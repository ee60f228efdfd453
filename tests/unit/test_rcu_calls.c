/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool/rcu.c: how often it calls which function of liburcu, and forks in the middle of each call.
 *
 * The linker redirects the library's calls of liburcu to this file (tests/Makefile).
 */
#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <pool/pool.h>

#include "child.h"
#include "must.h"
#include "suite.h"

enum { REGISTER, UNREGISTER, SYNCHRONIZE, CALLS };

static u32 calls[CALLS];	/* A */
static u32 stop_in;		/* the call in which the stopped thread waits for leave */
static bool stop_before;	/* it waits before the call's work, else after it */
static __thread bool stops;	/* this thread is the stopped one */
static u32 inside, leave;	/* A: the stopped thread waits; it may return */

static void nap(void)
{
	struct timespec ms = { .tv_nsec = 1000000 };

	nanosleep(&ms, NULL);
}

static void call(u32 which, void (*real)(void))
{
	fetch_add_relaxed(&calls[which], 1);
	if (!stops || which != stop_in) {
		real();
		return;
	}
	if (!stop_before)
		real();
	store_release(&inside, 1);
	while (!load_acquire(&leave))
		nap();
	if (stop_before)
		real();
}

#define REDIRECTED(name, which)		\
	void __real_##name(void);	\
	void __wrap_##name(void);	\
	void __wrap_##name(void)	\
	{				\
		call(which, __real_##name); \
	}

REDIRECTED(urcu_memb_register_thread, REGISTER)
REDIRECTED(urcu_memb_unregister_thread, UNREGISTER)
REDIRECTED(urcu_memb_synchronize_rcu, SYNCHRONIZE)

/* Were there exactly so many calls since the last time?  Start to count again. */
static bool called(u32 registers, u32 unregisters, u32 synchronizes)
{
	bool ok = load_relaxed(&calls[REGISTER]) == registers &&
		  load_relaxed(&calls[UNREGISTER]) == unregisters &&
		  load_relaxed(&calls[SYNCHRONIZE]) == synchronizes;
	u32 i;

	for (i = 0; i < CALLS; i++)
		store_relaxed(&calls[i], 0);
	return ok;
}

static u32 ran;			/* A */

static void count(struct rcu_defer *d)
{
	fetch_add_relaxed(&ran, 1);
}

static void section(void)
{
	pool_rcu_lock();
	pool_rcu_unlock();
}

static void *short_reader(void *arg)
{
	section();
	return arg;
}

static void *stopped_reader(void *arg)
{
	stops = true;
	section();
	return arg;
}

static void *stopped_waiter(void *arg)
{
	stops = true;
	MUST(pool_rcu_wait());
	return arg;
}

/* The child of a process whose other threads are stopped inside liburcu does not call it. */
static int child_without_liburcu(void)
{
	static struct rcu_defer d;

	called(0, 0, 0);
	store_relaxed(&ran, 0);
	CHILD_AT("sections");
	pool_rcu_lock();
	section();
	pool_rcu_unlock();
	CHILD_AT("reclaim");
	pool_rcu_defer(&d, count);
	if (pool_rcu_reclaim() || pool_rcu_wait() || load_relaxed(&ran))
		return 2;
	return called(0, 0, 0) ? 0 : 3;
}

/* If all other threads were outside liburcu, everything works in the child. */
static int child_with_liburcu(void)
{
	static struct rcu_defer d;

	store_relaxed(&ran, 0);
	CHILD_AT("sections");
	section();
	CHILD_AT("reclaim");
	pool_rcu_defer(&d, count);
	return !pool_rcu_reclaim() || !pool_rcu_wait() || load_relaxed(&ran) != 1;
}

static void in_child(int (*fn)(void))
{
	pid_t pid = child_fork();

	if (!pid)
		_exit(fn());
	ck_assert_int_eq(child_wait(pid), 0);
}

/*
 * The child cannot know whether the stopped thread is about to take liburcu's mutex or has just
 * released it.  In the first of these tests, the process uses RCU for the first time, with a wait.
 */
START_TEST(test_a_fork_inside_a_call_of_liburcu)
{
	static const u32 order[] = { SYNCHRONIZE, REGISTER, UNREGISTER };
	pthread_t t;

	stop_in = order[_i / 2];
	stop_before = _i % 2;
	inside = leave = 0;
	ck_assert_int_eq(pthread_create(&t, NULL, stop_in == SYNCHRONIZE ? stopped_waiter :
					stopped_reader, NULL), 0);
	while (!load_acquire(&inside))
		nap();
	in_child(child_without_liburcu);
	store_release(&leave, 1);
	pthread_join(t, NULL);
	in_child(child_with_liburcu);
	section();
	in_child(child_with_liburcu);
}
END_TEST

/* One grace period is enough for all deferred functions.  Without any, none is needed. */
START_TEST(test_one_grace_period_per_reclaim)
{
	static struct rcu_defer d[10];
	u32 i;

	ran = 0;
	called(0, 0, 0);
	ck_assert(pool_rcu_reclaim());
	ck_assert(called(0, 0, 0));
	for (i = 0; i < ARRAY_SIZE(d); i++)
		pool_rcu_defer(&d[i], count);
	ck_assert(called(0, 0, 0));
	ck_assert(pool_rcu_reclaim());
	ck_assert(called(0, 0, 1));
	ck_assert_uint_eq(ran, ARRAY_SIZE(d));
	ck_assert(pool_rcu_reclaim());
	ck_assert(called(0, 0, 0));
	ck_assert(pool_rcu_wait());
	ck_assert(called(0, 0, 1));
}
END_TEST

static void *reader_of_many_sections(void *arg)
{
	u32 i;

	called(0, 0, 0);
	for (i = 0; i < 3; i++) {
		pool_rcu_lock();
		section();
		pool_rcu_unlock();
	}
	MUST(called(1, 0, 0));
	return arg;
}

static void *no_reader(void *arg)
{
	static struct rcu_defer d;

	pool_rcu_defer(&d, count);
	MUST(pool_rcu_reclaim() && pool_rcu_wait());
	return arg;
}

/* The first section of a thread registers it, once, until the thread ends. */
START_TEST(test_registrations_of_threads)
{
	pthread_t t;

	ck_assert_int_eq(pthread_create(&t, NULL, reader_of_many_sections, NULL), 0);
	pthread_join(t, NULL);
	ck_assert(called(0, 1, 0));
	ck_assert_int_eq(pthread_create(&t, NULL, no_reader, NULL), 0);
	pthread_join(t, NULL);
	ck_assert(called(0, 0, 2));
}
END_TEST

static int child_without_key(void)
{
	pthread_key_t key;
	u32 i;

	while (!pthread_key_create(&key, NULL))
		;
	called(0, 0, 0);
	for (i = 0; i < 3; i++) {
		pool_rcu_lock();
		section();
		section();
		if (!called(1, 0, 0))
			return 2;
		pool_rcu_unlock();
		if (!called(0, 1, 0))
			return 3;
	}
	return 0;
}

/* Without a key, a thread is registered for the length of each outermost section. */
START_TEST(test_registrations_without_a_key)
{
	in_child(child_without_key);
}
END_TEST

#if !THREAD_SANITIZED
static __thread bool no_values;	/* there is no memory for this thread's values of keys */

int __real_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value);

int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
	return no_values ? ENOMEM : __real_pthread_setspecific(key, value);
}

static void *reader_without_value(void *arg)
{
	u32 i;

	called(0, 0, 0);
	no_values = true;
	for (i = 0; i < 3; i++) {
		section();
		MUST(called(1, 1, 0));
	}
	/* As soon as there is memory for the value, the thread stays registered. */
	no_values = false;
	section();
	section();
	MUST(called(1, 0, 0));
	return arg;
}

START_TEST(test_registrations_without_memory_for_the_value_of_a_key)
{
	pthread_t t;

	ck_assert_int_eq(pthread_create(&t, NULL, reader_without_value, NULL), 0);
	pthread_join(t, NULL);
	ck_assert(called(0, 1, 0));
	ck_assert(pool_rcu_wait());
	in_child(child_with_liburcu);
}
END_TEST
#endif

/* A child that must not call liburcu ends its threads without it, too. */
static int child_ends_threads(void)
{
	pthread_t t;
	int rc = child_without_liburcu();

	CHILD_AT("a thread");
	if (rc || pthread_create(&t, NULL, short_reader, NULL))
		return rc ? rc : 4;
	pthread_join(t, NULL);
	return called(0, 0, 0) ? 0 : 5;
}

START_TEST(test_threads_of_a_child_of_a_stopped_process)
{
	pthread_t t;

	section();
	stop_in = SYNCHRONIZE;
	stop_before = true;
	inside = leave = 0;
	ck_assert_int_eq(pthread_create(&t, NULL, stopped_waiter, NULL), 0);
	while (!load_acquire(&inside))
		nap();
	in_child(child_ends_threads);
	store_release(&leave, 1);
	pthread_join(t, NULL);
}
END_TEST

static void *idle_reader(void *arg)
{
	section();
	store_release(&inside, 1);
	while (!load_acquire(&leave))
		nap();
	return arg;
}

/* The child of a child that forked inside a section. */
static int child_of_child(void)
{
	pool_rcu_unlock();
	return child_without_liburcu();
}

static int child_forks(void)
{
	pid_t pid;
	int rc;

	pool_rcu_lock();
	pid = child_fork();
	if (!pid)
		_exit(child_of_child());
	rc = child_wait(pid);
	pool_rcu_unlock();
	return rc ? 6 : child_without_liburcu();
}

/* A child that must not call liburcu stays one, as its children do. */
START_TEST(test_a_child_of_a_child_beside_a_reader)
{
	pthread_t t;

	inside = leave = 0;
	ck_assert_int_eq(pthread_create(&t, NULL, idle_reader, NULL), 0);
	while (!load_acquire(&inside))
		nap();
	in_child(child_forks);
	store_release(&leave, 1);
	pthread_join(t, NULL);
}
END_TEST

static int child_leaves_and_forks(void)
{
	pid_t pid;

	pool_rcu_unlock();
	pool_rcu_unlock();
	pid = child_fork();
	if (!pid)
		_exit(child_with_liburcu());
	return child_wait(pid) ? 7 : child_with_liburcu();
}

/* The only thread forks inside sections: its child leaves them, and has all of RCU. */
START_TEST(test_the_only_reader_forks_inside_sections)
{
	pool_rcu_lock();
	pool_rcu_lock();
	in_child(child_leaves_and_forks);
	pool_rcu_unlock();
	pool_rcu_unlock();
	ck_assert(pool_rcu_wait());
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rcu_calls");
	TCase *t = tcase_create("calls"), *fork = tcase_create("fork");

	/* An emulator may be unable to fork beside threads: CK_EXCLUDE_TAGS=fork */
	tcase_set_tags(fork, "fork");
	tcase_set_timeout(fork, 60);
	/* This test must come before the process uses RCU. */
	tcase_add_test(fork, test_registrations_without_a_key);
	tcase_add_loop_test(fork, test_a_fork_inside_a_call_of_liburcu, 0, 6);
	/* The thread sanitizer does not let such a child start threads. */
	if (!THREAD_SANITIZED)
		tcase_add_test(fork, test_threads_of_a_child_of_a_stopped_process);
	tcase_add_test(fork, test_a_child_of_a_child_beside_a_reader);
	tcase_add_test(fork, test_the_only_reader_forks_inside_sections);
	suite_add_tcase(s, fork);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_one_grace_period_per_reclaim);
	tcase_add_test(t, test_registrations_of_threads);
#if !THREAD_SANITIZED
	tcase_add_test(t, test_registrations_without_memory_for_the_value_of_a_key);
#endif
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
