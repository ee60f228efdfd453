// SPDX-License-Identifier: Apache-2.0
/* core/wait.c: waits on vars and for all, with limits, from many threads. */
#include "util.h"
#include <core/engine.h>
#include <core/thread.h>
#include <core/wait.h>

#define MS 1000000ll

START_TEST(test_nothing_to_wait_for)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_var_t v = var_new(e);
		struct pawl_error err = { .code = 7 };
		const s64 times[] = { -1, 0, 1, MS };
		size_t i;

		for (i = 0; i < ARRAY_SIZE(times); i++) {
			OK(pawl_wait_readable(e, v, times[i], &err));
			ck_assert_int_eq(err.code, 0);
			OK(pawl_wait_writable(e, v, times[i], &err));
			OK(pawl_wait_all(e, times[i], &err));
			ck_assert_int_eq(err.code, 0);
		}
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* readable: all earlier writes are complete; reads do not matter. */
START_TEST(test_readable)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate w, r;
	u32 n = 0;

	gate_write(e, &w, v);
	FAILS(pawl_wait_readable(e, v, 0, NULL), -ETIMEDOUT, "wait");
	FAILS(pawl_wait_readable(e, v, 2 * MS, NULL), -ETIMEDOUT, "wait");
	gate_open(&w);
	OK(pawl_wait_readable(e, v, 0, NULL));
	gate_read(e, &r, v);
	OK(pawl_wait_readable(e, v, 0, NULL));
	OK(pawl_wait_readable(e, v, -1, NULL));
	/* A write behind the read: pushed before the wait, so waited for. */
	OK(push_write(e, add_one, &n, v));
	FAILS(pawl_wait_readable(e, v, 0, NULL), -ETIMEDOUT);
	gate_open(&r);
	OK(pawl_wait_readable(e, v, -1, NULL));
	ck_assert_uint_eq(n, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* writable: all earlier reads are complete, too. */
START_TEST(test_writable)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate r[3];
	int i;

	for (i = 0; i < 3; i++)
		gate_read(e, &r[i], v);
	for (i = 0; i < 3; i++) {
		FAILS(pawl_wait_writable(e, v, 0, NULL), -ETIMEDOUT, "wait");
		FAILS(pawl_wait_writable(e, v, MS, NULL), -ETIMEDOUT, "wait");
		gate_open(&r[i]);
	}
	OK(pawl_wait_writable(e, v, -1, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_all)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct gate g;

	gate_write(e, &g, var_new(e));
	FAILS(pawl_wait_all(e, 0, NULL), -ETIMEDOUT, "wait_all");
	FAILS(pawl_wait_all(e, 2 * MS, NULL), -ETIMEDOUT, "wait_all");
	gate_open(&g);
	OK(pawl_wait_all(e, 0, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* "0: only look": no op is run, however ready it is. */
START_TEST(test_zero_only_looks)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u32 n = 0;

	OK(push_write(e, add_one, &n, v));
	OK(push_read(e, add_one, &n, v));
	ck_assert_int_eq(pawl_wait_readable(e, v, 0, NULL), -ETIMEDOUT);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(pawl_wait_writable(e, v, 0, NULL), -ETIMEDOUT);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(pawl_wait_all(e, 0, NULL), -ETIMEDOUT);
	ck_assert_uint_eq(n, 0);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A wait is for what was pushed before it, not for what comes later. */
struct later {
	struct pawl_engine *e;
	pawl_var_t v;
	u32 waiting, done;	/* A */
	bool write;
};

static void *later_waiter(void *arg)
{
	struct later *l = arg;

	store_release(&l->waiting, 1);
	MUST(!(l->write ? pawl_wait_writable : pawl_wait_readable)(l->e, l->v, -1, NULL));
	store_release(&l->done, 1);
	return NULL;
}

START_TEST(test_not_for_later_pushes)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct gate g, h;
	int i;

	for (i = 0; i < 2; i++) {
		struct pawl_engine *e = engine_with(&c);
		struct later l = { .e = e, .v = var_new(e), .write = i };
		pthread_t t;

		gate_write(e, &g, l.v);
		t = spawn(later_waiter, &l);
		MUST(soon(load_acquire(&l.waiting)));
		/*
		 * The wait has its position when the thread sleeps; what it pushes is counted
		 * before.
		 */
		MUST(soon(stats(e).sleeps >= 1));
		gate_write(e, &h, l.v);
		gate_open(&g);
		ck_assert(soon(load_acquire(&l.done)));
		join(t);
		ck_assert_int_eq(pawl_wait_readable(e, l.v, 0, NULL), -ETIMEDOUT);
		MUST(soon(h.running || pawl_run_one(e) >= 0));
		pawl_run_one(e);
		gate_open(&h);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/*
 * The limit holds although ready work never ends.  Never is after so many ops: more than there is
 * time for in the few ms of the limits, whatever else the machine does.
 */
#define ENDLESS	2000000u

struct endless {
	pawl_var_t v;
	u32 stop, n;	/* A */
};

static int endless_body(struct pawl_run *run, void *arg)
{
	struct endless *c = arg;

	if (fetch_add_relaxed(&c->n, 1) < ENDLESS && !load_acquire(&c->stop))
		MUST(!push_write(run->engine, endless_body, c, c->v));
	return 0;
}

static bool never(void *arg)
{
	return false;
}

START_TEST(test_limit_while_helping)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct endless c = { .v = var_new(e) };
	pawl_var_t v = var_new(e);
	struct gate g;

	gate_write(e, &g, v);
	OK(push_write(e, endless_body, &c, c.v));
	ck_assert_int_eq(pawl_wait_readable(e, v, 10 * MS, NULL), -ETIMEDOUT);
	ck_assert_msg(c.n <= ENDLESS, "wait_readable() came back when the work ended");
	ck_assert_int_eq(pawl_run_until(e, never, NULL, 10 * MS), -ETIMEDOUT);
	ck_assert_msg(c.n <= ENDLESS, "run_until() came back when the work ended");
	ck_assert_int_eq(pawl_wait_all(e, 10 * MS, NULL), -ETIMEDOUT);
	ck_assert_msg(c.n <= ENDLESS, "wait_all() came back when the work ended");
	store_release(&c.stop, 1);
	gate_open(&g);
	OK(pawl_engine_destroy(e));
}
END_TEST

static int longer_than(struct pawl_run *run, void *arg)
{
	u64 end = exec_now_ns() + *(u64 *)arg;

	while (exec_now_ns() < end)
		sched_yield();
	return 0;
}

/* The time passes while the waiting thread runs the last op: nothing is in flight afterwards. */
START_TEST(test_the_last_op_ends_a_wait_after_its_time)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u64 ns = MS + 1;
	u32 i;

	for (i = 0; i < 10; i++) {
		OK(push_write(e, longer_than, &ns, v));
		OK(pawl_wait_all(e, MS, NULL));
		OK(push_write(e, longer_than, &ns, v));
		OK(pawl_wait_readable(e, v, MS, NULL));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- which threads are woken --- */

/*
 * Each waiter sleeps for its own var.  Opening one gate lets one go; the others stay, and
 * are not even woken (nobody pushes work meanwhile, and they may not help).
 */
struct sleeper {
	struct pawl_engine *e;
	pawl_var_t v;
	u32 done;	/* A */
};

static void *sleeper(void *arg)
{
	struct sleeper *s = arg;

	MUST(!pawl_wait_readable(s->e, s->v, -1, NULL));
	store_release(&s->done, 1);
	return NULL;
}

START_TEST(test_wakes_only_its_waiter)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct sleeper s[8];
	struct gate g[8];
	pthread_t t[8];
	u64 sleeps;
	int i, k;

	c.spin_ns = 0;
	s[0].e = engine_with(&c);
	for (i = 0; i < 8; i++) {
		s[i] = (struct sleeper){ s[0].e, var_new(s[0].e), 0 };
		gate_write(s[i].e, &g[i], s[i].v);
		t[i] = spawn(sleeper, &s[i]);
	}
	MUST(soon(stats(s[0].e).sleeps >= 8));
	sleeps = stats(s[0].e).sleeps;
	for (i = 0; i < 8; i++) {
		gate_open(&g[i]);
		ck_assert(soon(load_acquire(&s[i].done)));
		for (k = i + 1; k < 8; k++)
			ck_assert_uint_eq(load_acquire(&s[k].done), 0);
	}
	for (i = 0; i < 8; i++)
		join(t[i]);
	/* A thread with a spurious wake-up would have slept again. */
	ck_assert_uint_le(stats(s[0].e).sleeps, sleeps + 8);
	OK(pawl_engine_destroy(s[0].e));
}
END_TEST

/*
 * The last op that ends is that of a wait.  Its thread runs a body meanwhile, and after it nobody
 * else looks for those that wait for all.
 */
static void *waits_to_read(void *arg)
{
	struct later *l = arg;

	MUST(!pawl_wait_readable(l->e, l->v, -1, NULL));
	MUST(soon(load_acquire(&l->done)));	/* a thread that leaves looks, too */
	return NULL;
}

static void *waits_for_all(void *arg)
{
	struct later *l = arg;

	MUST(!pawl_wait(l->e, PAWL_WAIT_ALL | PAWL_WAIT_NO_HELP, 0, -1, NULL));
	store_release(&l->done, 1);
	return NULL;
}

START_TEST(test_the_end_of_a_wait_wakes_a_wait_for_all)
{
	struct later l = { .e = engine(PAWL_PER_DEVICE, 0) };
	struct plug p = { 0 };
	pthread_t t[2];
	struct gate g;

	l.v = var_new(l.e);
	gate_write(l.e, &g, l.v);
	OK(push_write(l.e, plug_body, &p, var_new(l.e)));
	t[0] = spawn(waits_to_read, &l);
	MUST(soon(load_acquire(&p.in)));
	t[1] = spawn(waits_for_all, &l);
	MUST(soon(stats(l.e).sleeps >= 1));
	gate_open(&g);
	plug_out(&p);
	join(t[0]);
	join(t[1]);
	OK(pawl_engine_destroy(l.e));
}
END_TEST

/* Whichever call of this thread ends the last op, the thread that waits for all comes back. */
static bool ran_once(void *n)
{
	return load_acquire((u32 *)n);
}

START_TEST(test_every_call_that_ends_the_last_op_wakes_a_wait_for_all)
{
	struct later l = { .e = engine(PAWL_PER_DEVICE, 0) };
	pawl_token_t token;
	u32 how, n;

	l.v = var_new(l.e);
	for (how = 0; how < 6; how++) {
		u64 sleeps = stats(l.e).sleeps;
		struct pawl_op op = PAWL_OP_INIT;
		pthread_t t;

		n = 0;
		l.done = 0;
		if (how == 5) {
			op.async_fn = keep_token;
			op.arg = &token;
			op.prop = PAWL_ASYNC;
			OK(pawl_push(l.e, &op));
		} else {
			OK(push_write(l.e, add_one, &n, l.v));
		}
		t = spawn(waits_for_all, &l);
		MUST(soon(stats(l.e).sleeps > sleeps));
		switch (how) {
		case 0:
			ck_assert_int_eq(pawl_run_one(l.e), 1);
			break;
		case 1:
			OK(pawl_run_until(l.e, ran_once, &n, SOON_NS));
			break;
		case 2:
			OK(pawl_wait_readable(l.e, l.v, SOON_NS, NULL));
			break;
		case 3:
			OK(pawl_wait_writable(l.e, l.v, SOON_NS, NULL));
			break;
		case 4:
			OK(pawl_wait_all(l.e, SOON_NS, NULL));
			break;
		case 5:
			OK(pawl_complete(l.e, token, 0, NULL));
		}
		ck_assert_msg(soon(load_acquire(&l.done)), "after call %u", how);
		join(t);
	}
	OK(pawl_engine_destroy(l.e));
}
END_TEST

/* Many threads wait for the same var, and for all. */
struct crowd {
	struct pawl_engine *e;
	pawl_var_t v;
	u32 n, done;	/* A */
};

static void *crowd_thread(void *arg)
{
	struct crowd *c = arg;
	u32 i = fetch_add_relaxed(&c->n, 1);

	if (i % 3 == 0)
		MUST(!pawl_wait_readable(c->e, c->v, SOON_NS, NULL));
	else if (i % 3 == 1)
		MUST(!pawl_wait_writable(c->e, c->v, SOON_NS, NULL));
	else
		MUST(!pawl_wait_all(c->e, SOON_NS, NULL));
	fetch_add_relaxed(&c->done, 1);
	return NULL;
}

START_TEST(test_many_waiters)
{
	int round, help;

	for (round = 0; round < TIMES(40); round++)
		for (help = 0; help < 2; help++) {
			struct pawl_config cfg = small(PAWL_PER_DEVICE, 1);
			struct crowd c = { 0 };
			struct gate g;
			pthread_t t[9];
			int i;

			c.e = engine_with(&cfg);
			c.v = var_new(c.e);
			gate_write(c.e, &g, c.v);
			for (i = 0; i < 9; i++)
				t[i] = spawn(crowd_thread, &c);
			MUST(soon(load_acquire(&c.n) == 9));
			ck_assert_uint_eq(load_acquire(&c.done), 0);
			gate_open(&g);
			for (i = 0; i < 9; i++)
				join(t[i]);
			ck_assert_uint_eq(c.done, 9);
			OK(pawl_engine_destroy(c.e));
		}
}
END_TEST

/*
 * Waits for all while others push: each comes back at a moment when nothing is in flight.  There
 * are many such moments, and nobody promises that a waiter sees one of them; so the pushes do
 * have an end.
 */
struct busy {
	struct pawl_engine *e;
	pawl_var_t v;
	u32 stop, waits;	/* A */
};

static void *busy_pusher(void *arg)
{
	struct busy *b = arg;
	int i;

	for (i = 0; i < TIMES(50000) && !load_acquire(&b->stop); i++) {
		MUST(!push_write(b->e, nothing, NULL, b->v));
		MUST(!pawl_wait_readable(b->e, b->v, SOON_NS, NULL));
	}
	return NULL;
}

static void *busy_waiter(void *arg)
{
	struct busy *b = arg;
	int i;

	for (i = 0; i < 20; i++) {
		MUST(!pawl_wait_all(b->e, SOON_NS, NULL));
		fetch_add_relaxed(&b->waits, 1);
	}
	return NULL;
}

START_TEST(test_wait_all_while_pushing)
{
	struct busy b = { .e = engine(PAWL_PER_DEVICE, 1) };
	pthread_t p, w[2];

	b.v = var_new(b.e);
	p = spawn(busy_pusher, &b);
	w[0] = spawn(busy_waiter, &b);
	w[1] = spawn(busy_waiter, &b);
	join(w[0]);
	join(w[1]);
	store_release(&b.stop, 1);
	join(p);
	ck_assert_uint_eq(b.waits, 40);
	OK(pawl_engine_destroy(b.e));
}
END_TEST

/* What the ops wrote is seen after the wait (the thread sanitizer checks the edge). */
START_TEST(test_waits_publish)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	struct pawl_engine *e;
	pawl_var_t v, w;
	u64 a = 0, b = 0;
	int i;

	e = engine_with(&c);
	v = var_new(e);
	w = var_new(e);
	for (i = 1; i <= TIMES(2000); i++) {
		OK(push_write(e, add_plain, &a, v));
		OK(push_write(e, add_plain, &b, w));
		switch (i % 3) {
		case 0:
			OK(pawl_wait_readable(e, v, SOON_NS, NULL));
			OK(pawl_wait_readable(e, w, SOON_NS, NULL));
			break;
		case 1:
			OK(pawl_wait_writable(e, w, SOON_NS, NULL));
			OK(pawl_wait_writable(e, v, SOON_NS, NULL));
			break;
		default:
			OK(pawl_wait_all(e, SOON_NS, NULL));
		}
		ck_assert_uint_eq(a, (u64)i);
		ck_assert_uint_eq(b, (u64)i);
		a += 0;		/* a plain access, because this thread has the var now */
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A waiting thread helps: with no worker at all everything runs on it. */
static int mark_thread(struct pawl_run *run, void *arg)
{
	MUST(pthread_equal(*(pthread_t *)arg, pthread_self()));
	return 0;
}

START_TEST(test_waits_help)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	pthread_t self = pthread_self();
	int i;

	for (i = 0; i < 50; i++) {
		OK(push_write(e, mark_thread, &self, v));
		OK(push_write(e, mark_thread, &self, w));
	}
	OK(pawl_wait_readable(e, v, -1, NULL));
	OK(pawl_wait_writable(e, w, -1, NULL));
	OK(pawl_wait_all(e, -1, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_no_help)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	pawl_var_t v;
	struct plug p;
	u32 n = 0;

	e = engine_with(&c);
	v = var_new(e);
	plug_in(e, &p, PAWL_NORMAL);
	OK(push_write(e, add_one, &n, v));
	ck_assert_int_eq(pawl_wait_readable(e, v, 5 * MS, NULL), -ETIMEDOUT);
	ck_assert_int_eq(pawl_wait_all(e, 5 * MS, NULL), -ETIMEDOUT);
	ck_assert_uint_eq(load_acquire(&n), 0);
	plug_out(&p);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(stats(e).helped, 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A var that is deleted while a thread waits for it: the wait came first. */
struct doomed {
	struct pawl_engine *e;
	pawl_var_t v;
	int rc;
	u32 done;	/* A */
};

static void *doomed_waiter(void *arg)
{
	struct doomed *d = arg;

	d->rc = pawl_wait_readable(d->e, d->v, SOON_NS, NULL);
	store_release(&d->done, 1);
	return NULL;
}

START_TEST(test_delete_under_a_waiter)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct doomed d = { 0 };
	struct gate g;
	pthread_t t;
	u32 n = 0;

	d.e = engine_with(&c);
	d.v = var_new(d.e);
	gate_write(d.e, &g, d.v);
	t = spawn(doomed_waiter, &d);
	MUST(soon(stats(d.e).sleeps >= 1));	/* it has its place */
	OK(pawl_var_delete(d.e, d.v, add_one, &n));
	gate_open(&g);
	ck_assert(soon(load_acquire(&d.done)));
	join(t);
	ck_assert_int_eq(d.rc, 0);
	while (pawl_run_one(d.e))
		;
	ck_assert_uint_eq(n, 1);
	OK(pawl_engine_destroy(d.e));
}
END_TEST

static int (*const wait_for[])(struct pawl_engine *, pawl_var_t, int64_t, struct pawl_error *) = {
	pawl_wait_readable, pawl_wait_writable,
};

/*
 * A wait that finds no op helps until there is one, and what it runs may delete its var: it is
 * refused, and needs no op.
 */
struct vanishing {
	pawl_var_t v, held;
	struct gate g, extra;
	bool write;
	int rc;
};

/* Completing the gate leaves an op for the delete. */
static int delete_it(struct pawl_run *run, void *arg)
{
	struct vanishing *x = arg;

	MUST(!pawl_complete(run->engine, x->extra.token, 0, NULL));
	MUST(!pawl_var_delete(run->engine, x->v, NULL, NULL));
	return 0;
}

static int wait_without_op(struct pawl_run *run, void *arg)
{
	struct pawl_op op = op_of_fn(delete_it, arg);
	struct pawl_engine *e = run->engine;
	struct vanishing *x = arg;

	MUST(!pawl_push(e, &op));
	while (ops_in_flight(e) < e->pool[POOL_OP]->max)
		MUST(!push_write(e, nothing, NULL, x->held));
	x->rc = wait_for[x->write](e, x->v, SOON_NS, NULL);
	return 0;
}

static void wait_whose_var_vanishes(bool write)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct vanishing x = { .write = write };
	struct pawl_engine *e;
	struct thread *t;
	struct gate held;
	struct pawl_op op = op_of_fn(wait_without_op, &x);

	c.max_ops = 64;
	c.max_threads = 1;
	e = engine_with(&c);
	x.v = var_new(e);
	x.held = var_new(e);
	gate_write(e, &x.g, x.v);
	gate_write(e, &held, x.held);
	OK(gate_push(e, &x.extra, NULL, 0, NULL, 0));
	OK(pawl_push(e, &op));
	MUST(pawl_run_one(e));
	ck_assert_int_eq(x.rc, -ESTALE);
	gate_open(&x.g);
	gate_open(&held);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	t = thread_get(e);
	pool_cache_flush(e->pool[POOL_OP], &t->cache[POOL_OP]);
	ck_assert_uint_eq(pool_depot_count(e->pool[POOL_OP]), pool_carved(e->pool[POOL_OP]));
	OK(pawl_engine_destroy(e));
}

START_TEST(test_a_wait_whose_var_vanishes_keeps_no_op)
{
	wait_whose_var_vanishes(false);
	wait_whose_var_vanishes(true);
}
END_TEST

SUITE("wait", test_nothing_to_wait_for, test_readable, test_writable, test_all,
      test_zero_only_looks, test_not_for_later_pushes, test_limit_while_helping,
      test_the_last_op_ends_a_wait_after_its_time, test_wakes_only_its_waiter,
      test_the_end_of_a_wait_wakes_a_wait_for_all,
      test_every_call_that_ends_the_last_op_wakes_a_wait_for_all, test_many_waiters,
      test_wait_all_while_pushing, test_waits_publish, test_waits_help, test_no_help,
      test_delete_under_a_waiter, test_a_wait_whose_var_vanishes_keeps_no_op)
