// SPDX-License-Identifier: Apache-2.0
/* exec/ready.c: the descriptor of an engine whose ops an event loop runs. */
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include "util.h"
#include "trap.h"
#include <core/engine.h>
#include <exec/internal.h>

static u32 ran;

static int count_body(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&ran, 1);
	return 0;
}

static void push(struct pawl_engine *e, const pawl_var_t *v)
{
	struct pawl_op op = PAWL_OP_INIT;

	op.fn = count_body;
	op.writes = v;
	op.nwrites = 1;
	MUST(!pawl_push(e, &op));
}

static bool readable(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, 0) == 1;
}

static int fd_of(struct pawl_engine *e)
{
	int fd = pawl_ready_fd(e);

	MUST(fd >= 0);
	return fd;
}

START_TEST(test_the_fd_is_readable_until_nothing_is_ready)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	int fd, i;

	push(e, &v);
	/* Made when something is ready already. */
	fd = fd_of(e);
	ck_assert_int_eq(fd_of(e), fd);
	ck_assert(readable(fd));
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert(readable(fd));
	ck_assert_int_eq(pawl_run_one(e), 0);
	ck_assert(!readable(fd));

	/* One op per turn of a loop. */
	push(e, &v);
	push(e, &w);
	for (i = 0; i < 2; i++) {
		ck_assert(readable(fd));
		ck_assert_int_eq(pawl_run_one(e), 1);
	}
	ck_assert_int_eq(pawl_run_one(e), 0);
	ck_assert_int_eq(pawl_run_one(e), 0);
	ck_assert(!readable(fd));
	OK(pawl_engine_destroy(e));
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
}
END_TEST

/* It does not block its readers, and no program that the host starts inherits it. */
START_TEST(test_flags_of_the_fd)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	int fd = fd_of(e);

	ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The descriptor counts as one sleeper while a push has to write it, and only then. */
static void armed(struct pawl_engine *e, bool yes)
{
	ck_assert_uint_eq(e->x->ready_armed, yes);
	ck_assert_uint_eq(e->x->helpers.attn, yes);
	ck_assert_uint_eq(!e->x->ready_written, !readable(fd_of(e)));
}

START_TEST(test_a_push_writes_it_once_until_nothing_is_ready)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[20];
	u32 i, k;
	u64 sum;

	for (i = 0; i < COUNT(v); i++)
		v[i] = var_new(e);
	fd_of(e);
	armed(e, false);
	for (k = 0; k < 3; k++) {
		ck_assert_int_eq(pawl_run_one(e), 0);
		armed(e, true);
		ck_assert_int_eq(pawl_run_one(e), 0);
		armed(e, true);
		for (i = 0; i < COUNT(v); i++) {
			push(e, &v[i]);
			armed(e, false);
		}
		ck_assert_uint_eq(e->x->ready_written, 1);
		/* Another reader took what was written; the count is of what it took. */
		if (k == 1) {
			MUST(write(fd_of(e), &(u64){ 2 }, sizeof(u64)) == sizeof(u64));
			e->x->ready_written += 2;
		}
		for (i = 0; i < COUNT(v); i++) {
			ck_assert_int_eq(pawl_run_one(e), 1);
			ck_assert(readable(fd_of(e)));
		}
	}
	ck_assert_int_eq(pawl_run_one(e), 0);
	armed(e, true);
	ck_assert(read(fd_of(e), &sum, sizeof(sum)) < 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

#if CAN_TRAP
static struct pawl_engine *both;
static int other_fd;

static void ask_too(void)
{
	other_fd = pawl_ready_fd(both);
}

static u32 open_fds(void)
{
	u32 n = 0;
	int fd;

	for (fd = 0; fd < 1000; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Threads that ask for it at once get the same one, and no other stays open. */
START_TEST(test_two_threads_ask_for_it)
{
	u32 before, k, stops = 1;
	int fd;

	elsewhere_begin(ask_too);
	for (k = 0; stops; k++) {
		both = engine(PAWL_PER_DEVICE, 0);
		other_fd = -1;
		before = open_fds();
		trap_after(k, fd = pawl_ready_fd(both));
		stops = trap.stops;
		MUST(fd >= 0 && (!stops || other_fd == fd));
		MUST(open_fds() == before + 1 && readable(fd));
		OK(pawl_engine_destroy(both));
		MUST(open_fds() == before);
	}
	ck_assert_uint_gt(k, 20);
	elsewhere_end();
}
END_TEST
#endif

START_TEST(test_a_priority_and_what_a_wait_runs)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_op op = PAWL_OP_INIT;
	pawl_var_t v = var_new(e);
	int fd = fd_of(e);

	ck_assert_int_eq(pawl_run_one(e), 0);
	op.fn = count_body;
	op.writes = &v;
	op.nwrites = 1;
	op.prop = PAWL_CPU_PRIORITIZED;
	op.priority = 3;
	OK(pawl_push(e, &op));
	ck_assert(readable(fd));
	/* Another thread, or a wait, may run it; then the loop finds nothing. */
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_int_eq(pawl_run_one(e), 0);
	ck_assert(!readable(fd));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_only_engines_without_workers_have_one)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);

	FAILS(pawl_ready_fd(e), -EINVAL, "workers");
	OK(pawl_engine_destroy(e));
	e = engine(PAWL_NAIVE, 0);
	FAILS(pawl_ready_fd(e), -EINVAL, "NAIVE");
	OK(pawl_engine_destroy(e));
	e = engine(PAWL_POOLED, 0);
	ck_assert(readable(fd_of(e)));
	OK(pawl_engine_destroy(e));
}
END_TEST

#define PUSHERS	3
#define LOOPS	2
#define EACH	TIMES(20000)

static struct pawl_engine *storm;

static void *storm_push(void *arg)
{
	pawl_var_t v = var_new(storm);
	int i;

	for (i = 0; i < EACH; i++) {
		push(storm, &v);
		/* Turns from empty to not empty, not one burst. */
		if (!(i % 8))
			sched_yield();
	}
	return NULL;
}

/* Threads that sleep in epoll only.  One runs all that is ready, one an op per turn. */
static void *storm_loop(void *arg)
{
	int ep = epoll_create1(0), fd = fd_of(storm), rc;
	struct epoll_event ev = { .events = EPOLLIN };
	uint64_t end = now_ms() + SOON_MS;

	MUST(ep >= 0);
	MUST(!epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
	while (load_relaxed(&ran) < (u32)EACH * PUSHERS) {
		/* The other loop may have run the last one, so check the count again. */
		MUST(now_ms() < end);
		if (epoll_wait(ep, &ev, 1, 20) != 1)
			continue;
		do
			rc = pawl_run_one(storm);
		while (rc && !arg);
		MUST(rc >= 0);
	}
	close(ep);
	return NULL;
}

START_TEST(test_no_op_is_lost_in_two_epoll_loops)
{
	pthread_t p[PUSHERS], l[LOOPS];
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	uintptr_t i;

	/* Pushers run nothing. */
	c.window_policy = PAWL_WINDOW_BLOCK;
	ran = 0;
	storm = engine_with(&c);
	for (i = 0; i < LOOPS; i++)
		MUST(!pthread_create(&l[i], NULL, storm_loop, (void *)i));
	for (i = 0; i < PUSHERS; i++)
		MUST(!pthread_create(&p[i], NULL, storm_push, NULL));
	for (i = 0; i < PUSHERS; i++)
		pthread_join(p[i], NULL);
	for (i = 0; i < LOOPS; i++)
		pthread_join(l[i], NULL);
	ck_assert_uint_eq(ran, (u32)EACH * PUSHERS);
	OK(pawl_engine_destroy(storm));
}
END_TEST

static void *ping(void *arg)
{
	pawl_var_t v = var_new(storm);
	u32 i;

	for (i = 1; i <= 2000; i++) {
		push(storm, &v);
		MUST(soon(load_relaxed(&ran) == i));
	}
	return NULL;
}

/* Each op alone, so that one wake-up that is lost stops the loop. */
START_TEST(test_no_op_is_lost_in_an_epoll_loop)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(0), rc;
	pthread_t p;

	ran = 0;
	storm = engine(PAWL_PER_DEVICE, 0);
	MUST(ep >= 0 && !epoll_ctl(ep, EPOLL_CTL_ADD, fd_of(storm), &ev));
	MUST(!pthread_create(&p, NULL, ping, NULL));
	while (load_relaxed(&ran) < 2000) {
		MUST(epoll_wait(ep, &ev, 1, (int)SOON_MS) == 1);
		while ((rc = pawl_run_one(storm)))
			MUST(rc == 1);
	}
	pthread_join(p, NULL);
	close(ep);
	OK(pawl_engine_destroy(storm));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ready");
	TCase *tc = tcase_create("ready");

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, test_the_fd_is_readable_until_nothing_is_ready);
	tcase_add_test(tc, test_flags_of_the_fd);
	tcase_add_test(tc, test_a_push_writes_it_once_until_nothing_is_ready);
#if CAN_TRAP
	/* A sanitizer's instructions are many. */
	if (!SANITIZED)
		tcase_add_test(tc, test_two_threads_ask_for_it);
#endif
	tcase_add_test(tc, test_a_priority_and_what_a_wait_runs);
	tcase_add_test(tc, test_only_engines_without_workers_have_one);
	tcase_add_test(tc, test_no_op_is_lost_in_an_epoll_loop);
	tcase_add_test(tc, test_no_op_is_lost_in_two_epoll_loops);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
