// SPDX-License-Identifier: Apache-2.0
/*
 * Engines without workers: pawl_run_one() and pawl_run_until() run the ops, called from one
 * thread, from many threads, and from bodies.
 */
#include "util.h"
#include <core/cq.h>
#include <core/thread.h>

/* Everything runs on the only thread. */
START_TEST(test_single_thread)
{
	int kind;

	for (kind = PAWL_PER_DEVICE; kind <= PAWL_POOLED; kind++) {
		struct pawl_engine *e = engine(kind, 0);
		pawl_var_t v[10];
		u64 n[10] = { 0 }, seed = 1;
		int i, k;

		for (k = 0; k < 10; k++)
			v[k] = var_new(e);
		for (i = 0; i < 5000; i++) {
			k = (int)(rnd(&seed) % 10);
			OK(push_write(e, add_plain, &n[k], v[k]));
			if (i % 7 == 0)
				ck_assert_int_ge(pawl_run_one(e), 0);
		}
		while (pawl_run_one(e) == 1)
			;
		OK(pawl_wait_all(e, 0, NULL));
		for (k = 0; k < 10; k++)
			ck_assert_uint_eq(n[k], version(e, v[k]));
		ck_assert_uint_eq(stats(e).workers, 0);
		ck_assert_uint_eq(stats(e).sleeps, 0);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* Several host threads are the workers. */
struct hosts {
	struct pawl_engine *e;
	u32 stop;	/* A */
	u32 ran;	/* A */
	u64 n;
	pawl_var_t v;
	bool until;
};

static bool hosts_done(void *arg)
{
	return load_acquire(&((struct hosts *)arg)->stop);
}

static void *host(void *arg)
{
	struct hosts *h = arg;

	if (h->until) {
		MUST(!pawl_run_until(h->e, hosts_done, h, SOON_NS));
		return NULL;
	}
	while (!load_acquire(&h->stop)) {
		int rc = pawl_run_one(h->e);

		MUST(rc == 0 || rc == 1);
		if (rc)
			fetch_add_relaxed(&h->ran, 1);
		else
			sched_yield();
	}
	return NULL;
}

START_TEST(test_many_hosts)
{
	int until;

	for (until = 0; until < 2; until++) {
		struct hosts h = { .e = engine(PAWL_PER_DEVICE, 0), .until = until };
		int i, rounds = TIMES(10000);
		pthread_t t[3];
		u32 shared = 0;

		h.v = var_new(h.e);
		for (i = 0; i < 3; i++)
			t[i] = spawn(host, &h);
		for (i = 0; i < rounds; i++) {
			OK(push_write(h.e, add_plain, &h.n, h.v));
			OK(push_read(h.e, nothing, NULL, h.v));
			OK(push_write(h.e, add_one, &shared, var_new(h.e)));
		}
		OK(pawl_wait_all(h.e, SOON_NS, NULL));
		store_release(&h.stop, 1);
		/* run_until() checks when something happens, so let something happen. */
		OK(push_read(h.e, nothing, NULL, h.v));
		OK(push_read(h.e, nothing, NULL, h.v));
		OK(push_read(h.e, nothing, NULL, h.v));
		for (i = 0; i < 3; i++)
			join(t[i]);
		OK(pawl_wait_all(h.e, SOON_NS, NULL));
		ck_assert_uint_eq(h.n, (u64)rounds);
		ck_assert_uint_eq(shared, (u32)rounds);
		OK(pawl_engine_destroy(h.e));
	}
}
END_TEST

/* run_one() inside a body. */
struct inside {
	pawl_var_t v;
	u32 n;		/* A */
	int rc;
};

static int runs_one(struct pawl_run *run, void *arg)
{
	struct inside *s = arg;

	MUST(!push_write(run->engine, add_one, &s->n, s->v));
	s->rc = pawl_run_one(run->engine);
	return 0;
}

START_TEST(test_run_one_inside_body)
{
	int kind;

	for (kind = 0; kind < 2; kind++) {
		struct pawl_engine *e = engine(kind, 0);
		struct inside s = { var_new(e), 0, -1 };

		OK(push_write(e, runs_one, &s, var_new(e)));
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_int_eq(s.rc, 1);
		ck_assert_uint_eq(s.n, 1);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* Helping and workers together. */
static bool reached(void *arg)
{
	return load_acquire((u32 *)arg) >= 1000;
}

START_TEST(test_host_beside_workers)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	u32 n = 0;
	int i;

	for (i = 0; i < 1000; i++)
		OK(push_write(e, add_one, &n, var_new(e)));
	OK(pawl_run_until(e, reached, &n, SOON_NS));
	ck_assert_uint_eq(load_relaxed(&n), 1000);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A stopped engine is driven by the host like one without workers. */
START_TEST(test_host_drives_stopped_engine)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	const int props[] = { PAWL_NORMAL, PAWL_CPU_PRIORITIZED, PAWL_COPY_TO_DEVICE,
			      PAWL_COPY_FROM_DEVICE };
	u32 n = 0;
	size_t i;

	OK(pawl_engine_stop(e));
	for (i = 0; i < ARRAY_SIZE(props); i++) {
		struct pawl_op op = op_of_fn(add_one, &n);

		op.prop = (u16)props[i];
		OK(pawl_push(e, &op));
	}
	for (i = 1; i <= ARRAY_SIZE(props); i++) {
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_uint_eq(n, i);
	}
	ck_assert_int_eq(pawl_run_one(e), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- one op, or until something is true --- */

START_TEST(test_run_one)
{
	int kind;

	for (kind = PAWL_PER_DEVICE; kind <= PAWL_POOLED; kind++) {
		struct pawl_engine *e = engine(kind, 0);
		pawl_var_t v = var_new(e);
		u64 n = 0;
		u64 i;

		ck_assert_int_eq(pawl_run_one(e), 0);
		for (i = 0; i < 3; i++)
			OK(push_write(e, add_plain, &n, v));
		for (i = 1; i <= 3; i++) {
			ck_assert_int_eq(pawl_run_one(e), 1);
			ck_assert_uint_eq(n, i);	/* one, not its successors */
		}
		ck_assert_int_eq(pawl_run_one(e), 0);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

START_TEST(test_run_one_all_queues)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	u32 n = 0, d, p;

	c.cpu_devices = 3;
	e = engine_with(&c);
	for (d = 0; d < 3; d++)
		for (p = PAWL_NORMAL; p <= PAWL_NO_SKIP; p++) {
			struct pawl_op op = op_of_fn(add_one, &n);

			if (p == PAWL_ASYNC || p == PAWL_DELETE_VAR)
				continue;	/* inline */
			op.prop = (u16)p;
			op.device.id = (u16)d;
			OK(pawl_push(e, &op));
		}
	for (d = 0; d < 18; d++)
		ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_int_eq(pawl_run_one(e), 0);
	ck_assert_uint_eq(n, 18);
	OK(pawl_engine_destroy(e));
}
END_TEST

static bool is_five(void *user)
{
	return load_acquire((u32 *)user) >= 5;
}

static bool never(void *user)
{
	return false;
}

START_TEST(test_run_until)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u32 n = 0;
	int i;

	for (i = 0; i < 10; i++)
		OK(push_write(e, add_one, &n, v));
	OK(pawl_run_until(e, is_five, &n, SOON_NS));
	ck_assert_uint_ge(n, 5);
	FAILS(pawl_run_until(e, never, NULL, 1000000), -ETIMEDOUT, "run_until");
	ck_assert_uint_eq(n, 10);
	FAILS(pawl_run_until(e, never, NULL, 0), -ETIMEDOUT, "run_until");
	FAILS(pawl_run_until(e, NULL, NULL, 0), -EINVAL, "run_until", "done");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The timeout has passed at once, but an op that this call ran made done() true. */
START_TEST(test_run_until_without_time_looks_after_the_op)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	u32 n = 4;

	OK(push_write(e, add_one, &n, var_new(e)));
	OK(pawl_run_until(e, is_five, &n, 0));
	ck_assert_uint_eq(n, 5);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* done() is true already: nothing runs. */
static bool always(void *user)
{
	return true;
}

START_TEST(test_run_until_at_once)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	u32 n = 0;

	OK(push_write(e, add_one, &n, var_new(e)));
	OK(pawl_run_until(e, always, NULL, -1));
	ck_assert_uint_eq(n, 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * A thread in run_until() runs the last op; another one in wait_all() must be woken, although
 * the first one continues to wait for something else.
 */
struct until {
	struct pawl_engine *e;
	u32 all_rc_set, until_in;
	int all_rc;
};

static void *wait_all_thread(void *arg)
{
	struct until *u = arg;

	u->all_rc = pawl_wait_all(u->e, SOON_NS, NULL);
	store_release(&u->all_rc_set, 1);
	return NULL;
}

/* The same, and then it wakes a thread that waits for it inside the engine, by a push. */
static void *wait_all_and_tell(void *arg)
{
	struct until *u = arg;

	wait_all_thread(arg);
	MUST(!push_write(u->e, nothing, NULL, var_new(u->e)));
	return NULL;
}

static bool until_cond(void *user)
{
	struct until *u = user;

	return load_acquire(&u->all_rc_set);
}

START_TEST(test_run_until_tells_wait_all)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct until u = { 0 };
	pthread_t t;
	u32 n = 0;

	c.spin_ns = 0;
	u.e = engine_with(&c);
	OK(push_write(u.e, add_one, &n, var_new(u.e)));
	t = spawn(wait_all_and_tell, &u);
	nap_us(20000);			/* most likely it sleeps now */
	ck_assert_msg(!pawl_run_until(u.e, until_cond, &u, SOON_NS),
		      "wait_all() sleeps although nothing is in flight");
	join(t);
	ck_assert_int_eq(u.all_rc, 0);
	ck_assert_uint_eq(n, 1);
	OK(pawl_engine_destroy(u.e));
}
END_TEST

/* The same for a push that makes room in the window, and is refused afterwards. */
START_TEST(test_refused_push_tells_wait_all)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_var gone;
	struct until u = { 0 };
	pthread_t t;
	pawl_var_t v;
	u32 n = 0;
	int i;

	c.spin_ns = 0;
	c.window = 4;
	c.window_policy = PAWL_WINDOW_BLOCK;
	u.e = engine_with(&c);
	v = var_new(u.e);
	gone = var_new(u.e);
	OK(pawl_var_delete(u.e, gone, NULL, NULL));
	for (i = 0; i < 4; i++)
		OK(push_write(u.e, add_one, &n, v));
	t = spawn(wait_all_thread, &u);
	nap_us(20000);
	/* The push is refused; no thread may stay asleep that waits for the ops that it ran. */
	for (i = 0; i < 8; i++)
		ck_assert_int_eq(push_write(u.e, nothing, NULL, gone), -ESTALE);
	while (pawl_run_one(u.e))
		;
	ck_assert_msg(soon(load_acquire(&u.all_rc_set)), "wait_all() sleeps on");
	join(t);
	ck_assert_int_eq(u.all_rc, 0);
	OK(pawl_engine_destroy(u.e));
}
END_TEST

/* The last op ends inside a call: a thread that waits for all sleeps, and must be woken. */
struct last {
	struct pawl_engine *e;
	struct thread *waiter;	/* A */
	u32 woken;		/* A */
	pthread_t t;
	pawl_token_t token;
};

static void *waits_for_all(void *arg)
{
	struct last *w = arg;

	store_release(&w->waiter, thread_get(w->e));
	/* Without a timeout, at whose end it would find by itself that nothing is in flight. */
	MUST(!pawl_wait(w->e, PAWL_WAIT_ALL | PAWL_WAIT_NO_HELP, 0, -1, NULL));
	store_release(&w->woken, 1);
	return NULL;
}

static void waiter_asleep(struct last *w)
{
	w->t = spawn(waits_for_all, w);
	MUST(soon(load_acquire(&w->waiter)));
	MUST(soon(load_relaxed(&w->waiter->waits_flight) == 1 && !exec_wanted(&w->waiter->ex)));
}

static int last_body(struct pawl_run *run, void *arg)
{
	waiter_asleep(arg);
	return 0;
}

static void last_async(struct pawl_run *run, void *arg)
{
	((struct last *)arg)->token = run->token;
}

static bool waiter_known(void *arg)
{
	return load_acquire(&((struct last *)arg)->waiter);
}

enum {
	PUSH_INLINE, PUSH_NAIVE, COMPLETE, RUN_ONE, RUN_UNTIL, READABLE, CQ, TICKET, GROUP, CALLS
};

START_TEST(test_every_call_that_ends_the_last_op_tells_wait_all)
{
	u32 call;

	for (call = 0; call < CALLS; call++) {
		int kind = call == PUSH_NAIVE ? PAWL_NAIVE : PAWL_PER_DEVICE;
		struct pawl_config c = small(kind, 0);
		struct last w = { 0 };
		struct pawl_op op = op_of_fn(last_body, &w);
		struct pawl_completion done;
		pawl_ticket_t ticket;
		pawl_var_t v;

		c.spin_ns = 0;
		w.e = engine_with(&c);
		v = var_new(w.e);
		op.writes = &v;
		op.nwrites = 1;
		op.flags = PAWL_OP_CQ | PAWL_OP_TICKET | PAWL_OP_GROUP;
		op.ticket = &ticket;
		OK(pawl_cq_create(w.e, &op.cq));
		OK(pawl_group_create(w.e, NULL, &op.group));
		if (call == PUSH_INLINE || call == COMPLETE)
			op.prop = PAWL_ASYNC;
		if (call == COMPLETE) {
			op.fn = NULL;
			op.async_fn = last_async;
		}
		OK(pawl_push(w.e, &op));
		if (call == COMPLETE) {
			waiter_asleep(&w);
			OK(pawl_complete(w.e, w.token, 0, NULL));
		} else if (call == RUN_ONE) {
			ck_assert_int_eq(pawl_run_one(w.e), 1);
		} else if (call == RUN_UNTIL) {
			OK(pawl_run_until(w.e, waiter_known, &w, SOON_NS));
		} else if (call == READABLE) {
			OK(pawl_wait_readable(w.e, v, SOON_NS, NULL));
		} else if (call == CQ) {
			OK(pawl_cq_wait(w.e, op.cq, SOON_NS));
		} else if (call == TICKET) {
			OK(pawl_ticket_wait(w.e, ticket, SOON_NS));
		} else if (call == GROUP) {
			OK(pawl_group_wait(w.e, op.group, SOON_NS));
		}
		ck_assert_msg(soon(load_acquire(&w.woken)), "wait_all() sleeps on: %u", call);
		join(w.t);
		ck_assert_int_eq(pawl_cq_reap(w.e, op.cq, &done, 1), 1);
		OK(pawl_engine_destroy(w.e));
	}
}
END_TEST

SUITE("caller", test_single_thread, test_many_hosts, test_run_one_inside_body,
      test_host_beside_workers, test_host_drives_stopped_engine, test_run_one,
      test_run_one_all_queues, test_run_until, test_run_until_without_time_looks_after_the_op,
      test_run_until_at_once, test_run_until_tells_wait_all, test_refused_push_tells_wait_all,
      test_every_call_that_ends_the_last_op_tells_wait_all)
