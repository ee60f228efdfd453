// SPDX-License-Identifier: Apache-2.0
/*
 * libuv's loop waits for the descriptors of an engine: a completion queue's, and that of an
 * engine without workers, whose ops run on the loop's thread.
 */
#if !__has_include(<uv.h>)
#include <stdio.h>

int main(void)
{
	puts("libuv is not installed (Debian: libuv1-dev)");
	return 77;
}
#else
#include <uv.h>
#include "util.h"

#define PUSHERS	2
#define EACH	((u64)TIMES(20000))

static struct pawl_engine *e;
static pawl_cq_t cq;
static u32 ran, on_loop;
static u64 got, wakes;
static pthread_t loop_thread;
static u8 seen[PUSHERS][160000 / 8];

static int body(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&ran, 1);
	if (pthread_equal(pthread_self(), loop_thread))
		fetch_add_relaxed(&on_loop, 1);
	return 0;
}

static void *pusher(void *arg)
{
	pawl_var_t v = var_new(e);
	struct pawl_op op = PAWL_OP_INIT;
	u64 me = (u64)(uintptr_t)arg, i;

	op.fn = body;
	op.writes = &v;
	op.nwrites = 1;
	op.flags = cq.h ? PAWL_OP_CQ : 0;
	op.cq = cq;
	for (i = 0; i < EACH; i++) {
		op.tag = cq.h ? me << 32 | i : 0;
		MUST(!pawl_push(e, &op));
		if (!(i % 8))
			sched_yield();
	}
	return NULL;
}

static void on_completions(uv_poll_t *h, int status, int events)
{
	struct pawl_completion c[16];
	int n = pawl_cq_reap(e, cq, c, 16), i;

	MUST(!status && n >= 0);
	wakes++;
	for (i = 0; i < n; i++)
		MUST(!c[i].status && !seen[c[i].tag >> 32][(u32)c[i].tag]++);
	got += (u64)n;
	if (got == EACH * PUSHERS)
		uv_stop(h->loop);
}

static void on_ready(uv_poll_t *h, int status, int events)
{
	int rc;

	MUST(!status);
	wakes++;
	while ((rc = pawl_run_one(e)))
		MUST(rc == 1);
	if (load_relaxed(&ran) == EACH * PUSHERS)
		uv_stop(h->loop);
}

static void too_late(uv_timer_t *h)
{
	MUST(!"nothing comes any more");
}

static void loop_run(int fd, uv_poll_cb cb)
{
	pthread_t p[PUSHERS];
	uv_poll_t poll;
	uv_timer_t timer;
	uv_loop_t loop;
	uintptr_t i;

	loop_thread = pthread_self();
	MUST(fd >= 0);
	MUST(!uv_loop_init(&loop));
	MUST(!uv_poll_init(&loop, &poll, fd));
	MUST(!uv_poll_start(&poll, UV_READABLE, cb));
	MUST(!uv_timer_init(&loop, &timer));
	MUST(!uv_timer_start(&timer, too_late, SOON_MS, 0));
	for (i = 0; i < PUSHERS; i++)
		MUST(!pthread_create(&p[i], NULL, pusher, (void *)i));
	uv_run(&loop, UV_RUN_DEFAULT);
	for (i = 0; i < PUSHERS; i++)
		pthread_join(p[i], NULL);
	uv_close((uv_handle_t *)&poll, NULL);
	uv_close((uv_handle_t *)&timer, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	MUST(!uv_loop_close(&loop));
}

START_TEST(test_each_completion_arrives_once_in_a_libuv_loop)
{
	e = engine(PAWL_PER_DEVICE, 2);
	OK(pawl_cq_create(e, &cq));
	loop_run(pawl_cq_fd(e, cq), on_completions);
	ck_assert_uint_eq(got, EACH * PUSHERS);
	ck_assert_uint_eq(load_relaxed(&on_loop), 0);
	ck_assert_uint_le(wakes, 2 * EACH * PUSHERS + 2);
	OK(pawl_cq_destroy(e, cq));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_no_op_is_lost_in_a_libuv_loop)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);

	/* Pushers run nothing. */
	c.window_policy = PAWL_WINDOW_BLOCK;
	cq.h = 0;
	ran = on_loop = 0;
	wakes = 0;
	e = engine_with(&c);
	loop_run(pawl_ready_fd(e), on_ready);
	ck_assert_uint_eq(load_relaxed(&ran), EACH * PUSHERS);
	ck_assert_uint_eq(load_relaxed(&on_loop), EACH * PUSHERS);
	/* It does not spin: each time, the descriptor was written by a push, or by itself. */
	ck_assert_uint_le(wakes, 2 * EACH * PUSHERS + 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("libuv");
	TCase *tc = tcase_create("libuv");

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, test_each_completion_arrives_once_in_a_libuv_loop);
	tcase_add_test(tc, test_no_op_is_lost_in_a_libuv_loop);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
#endif
