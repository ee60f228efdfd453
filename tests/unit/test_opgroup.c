// SPDX-License-Identifier: Apache-2.0
/* core/opgroup.c: counts, limits, room, cancelling and deadlines of groups. */
#include "util.h"
#include "trap.h"
#include <core/opgroup.h>

static u32 ran;

static int ok_body(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&ran, 1);
	return 0;
}

/* An op whose completion the test decides. */
#define HELD	64
static pawl_token_t held[HELD];
static u32 nheld;

static void hold_body(struct pawl_run *run, void *arg)
{
	held[fetch_add_relaxed(&nheld, 1)] = run->token;
}

static struct pawl_op op_of_group(pawl_group_t g, u64 cost)
{
	struct pawl_op op = PAWL_OP_INIT;

	op.fn = ok_body;
	op.flags = PAWL_OP_GROUP | (cost ? PAWL_OP_COST : 0);
	op.group = g;
	op.cost = cost;
	return op;
}

static struct pawl_op held_op(pawl_group_t g, u64 cost)
{
	struct pawl_op op = op_of_group(g, cost);

	op.fn = NULL;
	op.async_fn = hold_body;
	op.prop = PAWL_ASYNC;
	return op;
}

static void let_go(struct pawl_engine *e)
{
	MUST(nheld);
	OK(pawl_complete(e, held[--nheld], 0, NULL));
}

static struct pawl_group_limits limits(u64 ops, u64 cost)
{
	struct pawl_group_limits l = { .size = sizeof(l), .ops = ops, .cost = cost };

	return l;
}

static pawl_group_t group_new(struct pawl_engine *e, const struct pawl_group_limits *l)
{
	pawl_group_t g;

	OK(pawl_group_create(e, l, &g));
	return g;
}

static void counts(struct pawl_engine *e, pawl_group_t g, u64 ops, u64 cost)
{
	uint64_t o, c;

	OK(pawl_group_count(e, g, &o, &c));
	ck_assert_uint_eq(o, ops);
	ck_assert_uint_eq(c, cost);
}

START_TEST(test_a_push_beyond_a_limit_is_refused)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	struct pawl_group_limits l = limits(2, 100);
	pawl_group_t g = group_new(e, &l), other = group_new(e, NULL);
	struct pawl_op small_op = held_op(g, 10), big = held_op(g, 90),
		       none = held_op(other, 500);
	struct pawl_op pair[2] = { small_op, small_op }, asks = op_of_fn(ok_body, NULL);
	struct pawl_completion c;
	pawl_ticket_t ticket;
	int i;

	OK(pawl_push(e, &small_op));
	FAILS(pawl_push(e, &(struct pawl_op){ 0 }), -EINVAL);
	big.cost = 101;
	FAILS(pawl_push(e, &big), -E2BIG, "cost");
	big.cost = 91;
	FAILS(pawl_push(e, &big), -EAGAIN, "cost of the group");
	/* All or nothing. */
	FAILS(pawl_push_batch(e, pair, 2), -EAGAIN, "ops of the group");
	counts(e, g, 1, 10);
	big.cost = 90;
	OK(pawl_push(e, &big));
	FAILS(pawl_push(e, &small_op), -EAGAIN, "ops of the group");
	counts(e, g, 2, 100);
	OK(pawl_push(e, &none));
	counts(e, (pawl_group_t){ 0 }, 3, 600);
	while (nheld)
		let_go(e);
	counts(e, g, 0, 0);
	OK(pawl_push(e, &small_op));
	let_go(e);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	counts(e, (pawl_group_t){ 0 }, 0, 0);
	/* An op in the slot of one that had a group and a cost has neither. */
	asks.flags = PAWL_OP_TICKET;
	asks.ticket = &ticket;
	for (i = 0; i < 3; i++)
		OK(pawl_push(e, &asks));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	counts(e, (pawl_group_t){ 0 }, 0, 0);
	counts(e, g, 0, 0);
	counts(e, other, 0, 0);

	/* The engine's limit counts the ops of all groups; its queue reports room when one ends. */
	l = limits(0, 50);
	OK(pawl_cq_create(e, &l.cq));
	l.tag = 78;
	OK(pawl_group_limit(e, (pawl_group_t){ 0 }, &l));
	none.cost = 45;
	OK(pawl_push(e, &none));
	FAILS(pawl_push(e, &small_op), -EAGAIN, "cost of the engine");
	counts(e, g, 0, 0);
	ck_assert_int_eq(pawl_cq_reap(e, l.cq, &c, 1), 0);
	let_go(e);
	ck_assert_int_eq(pawl_cq_reap(e, l.cq, &c, 1), 1);
	ck_assert_uint_eq(c.tag, 78);
	OK(pawl_push(e, &small_op));
	let_go(e);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_room_is_reported_once_at_low_water)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	struct pawl_group_limits l = limits(4, 0);
	struct pawl_completion c[8];
	struct pawl_op op;
	pawl_group_t g;
	pawl_cq_t cq;
	int i, turn;

	OK(pawl_cq_create(e, &cq));
	/* The completion of an op with another status, whose memory that of the room has later. */
	op = op_of_fn(fail_io, NULL);
	op.flags = PAWL_OP_CQ;
	op.cq = cq;
	OK(pawl_push(e, &op));
	FAILS(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	ck_assert_int_eq(pawl_cq_reap(e, cq, c, 8), 1);
	ck_assert_int_eq(c[0].status, -EIO);
	l.cq = cq;
	l.tag = 77;
	l.low = 25;
	g = group_new(e, &l);
	FAILS(pawl_cq_destroy(e, cq), -EBUSY);
	op = held_op(g, 0);
	for (turn = 0; turn < 3; turn++) {
		for (i = 0; i < 4; i++)
			OK(pawl_push(e, &op));
		ck_assert_int_eq(pawl_cq_reap(e, cq, c, 8), 0);
		FAILS(pawl_push(e, &op), -EAGAIN);
		FAILS(pawl_push(e, &op), -EAGAIN);
		for (i = 0; i < 2; i++) {
			let_go(e);
			ck_assert_int_eq(pawl_cq_reap(e, cq, c, 8), 0);
		}
		let_go(e);
		FAILS(pawl_group_destroy(e, g), -EBUSY);
		let_go(e);
		FAILS(pawl_group_destroy(e, g), -EBUSY, "room");
		ck_assert_int_eq(pawl_cq_reap(e, cq, c, 8), 1);
		ck_assert_uint_eq(c[0].tag, 77);
		ck_assert_int_eq(c[0].status, 0);
	}
	/* If room is wanted again before the completion is reaped, it arrives again. */
	for (turn = 0; turn < 2; turn++) {
		for (i = 0; i < 4; i++)
			OK(pawl_push(e, &op));
		FAILS(pawl_push(e, &op), -EAGAIN);
		for (i = 0; i < 4; i++)
			let_go(e);
	}
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(pawl_cq_reap(e, cq, c, 1), 1);
		ck_assert_uint_eq(c[0].tag, 77);
	}
	ck_assert_int_eq(pawl_cq_reap(e, cq, c, 1), 0);
	OK(pawl_group_destroy(e, g));
	OK(pawl_cq_destroy(e, cq));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_who_reaps_a_completion_may_push_the_next_op)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	struct pawl_group_limits l = limits(1, 0);
	pawl_group_t g = group_new(e, &l);
	struct pawl_op op = op_of_group(g, 0);
	struct pawl_completion c;
	int i;

	op.flags |= PAWL_OP_CQ;
	OK(pawl_cq_create(e, &op.cq));
	for (i = 0; i < TIMES(5000); i++) {
		OK(pawl_push(e, &op));
		OK(pawl_cq_wait(e, op.cq, SOON_NS));
		ck_assert_int_eq(pawl_cq_reap(e, op.cq, &c, 1), 1);
	}
	/* A thread that has waited for the group finds all completions in the queue. */
	for (i = 0; i < TIMES(5000); i++) {
		OK(pawl_push(e, &op));
		OK(pawl_group_wait(e, g, SOON_NS));
		ck_assert_int_eq(pawl_cq_reap(e, op.cq, &c, 1), 1);
	}
	OK(pawl_group_destroy(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_canceled_group_does_not_start)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_group_t g = group_new(e, NULL), other = group_new(e, NULL);
	pawl_var_t v[3] = { var_new(e), var_new(e), var_new(e) };
	struct pawl_op gate = held_op(other, 0), op = op_of_group(g, 0), free_op;
	int i;

	ran = 0;
	gate.writes = v;
	gate.nwrites = 1;
	OK(pawl_push(e, &gate));
	op.reads = v;
	op.nreads = 1;
	op.nwrites = 1;
	for (i = 1; i < 3; i++) {
		op.writes = &v[i];
		OK(pawl_push(e, &op));
	}
	free_op = op;
	free_op.group = other;
	FAILS(pawl_group_wait(e, g, 0), -ETIMEDOUT);
	OK(pawl_group_cancel(e, g));
	/* Neither the other group nor a later push is canceled. */
	free_op.nwrites = 0;
	OK(pawl_push(e, &free_op));
	op.nwrites = 0;
	OK(pawl_push(e, &op));
	let_go(e);
	OK(pawl_group_wait(e, g, SOON_NS));
	OK(pawl_group_wait(e, other, SOON_NS));
	ck_assert_uint_eq(ran, 2);
	ck_assert_int_eq(pawl_wait_readable(e, v[1], SOON_NS, NULL), -ECANCELED);
	OK(pawl_group_destroy(e, g));
	FAILS(pawl_group_cancel(e, g), -ESTALE);
	FAILS(pawl_group_wait(e, g, 0), -ESTALE);
	FAILS(pawl_group_count(e, g, NULL, NULL), -ESTALE);
	FAILS(pawl_group_destroy(e, g), -ESTALE);
	FAILS(pawl_group_limit(e, g, NULL), -ESTALE);
	FAILS(pawl_push(e, &op), -ESTALE, "op.group");
	FAILS(pawl_group_create(e, NULL, NULL), -EINVAL);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Ops of every kind, behind the op that holds the var; those that are not canceled count. */
static void all_kinds(struct pawl_engine *e, pawl_group_t g, pawl_var_t v, pawl_graph_t graph)
{
	struct pawl_op op[3] = { op_read(add_one, &ran, &v), op_read(add_one, &ran, &v),
				 op_of_group(g, 0) };

	op[1].flags = PAWL_OP_NO_SKIP;
	op[2].reads = &v;
	op[2].nreads = 1;
	OK(pawl_push(e, &op[0]));
	OK(pawl_push(e, &op[1]));
	OK(pawl_push(e, &op[2]));
	OK(pawl_push_batch(e, op, 3));
	OK(pawl_graph_push(e, graph, NULL));
}

static u32 deleted;

START_TEST(test_canceling_the_engine_stops_all_that_has_not_started)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	pawl_group_t g = group_new(e, NULL);
	struct pawl_op of_graph = op_read(add_one, &ran, &v);
	struct pawl_error err;
	pawl_graph_t graph;
	struct gate gate;
	u32 i;

	ran = deleted = 0;
	OK(pawl_graph_create(e, &of_graph, 1, 0, &graph));
	for (i = 0; i < 3; i++) {
		/* What is pushed after the first two is not affected. */
		if (i == 2) {
			all_kinds(e, g, v, graph);
			OK(pawl_wait_all(e, SOON_NS, NULL));
			ck_assert_uint_eq(load_relaxed(&ran), 7);
		}
		gate_write(e, &gate, v);
		all_kinds(e, g, v, graph);
		/* A var is deleted all the same. */
		if (i == 2)
			OK(pawl_var_delete(e, v, add_one, &deleted));
		OK(pawl_group_cancel(e, (pawl_group_t){ 0 }));
		gate_open(&gate);
		ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -ECANCELED);
		ck_assert_uint_eq(err.count, 7);
	}
	ck_assert_uint_eq(deleted, 1);
	ck_assert_uint_eq(load_relaxed(&ran), 7);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_the_deadline_of_a_group)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	struct pawl_group_limits l = limits(0, 0);
	pawl_var_t v = var_new(e);
	pawl_group_t g;
	struct pawl_op op;

	ran = 0;
	l.deadline_ns = 1;
	g = group_new(e, &l);
	op = op_of_group(g, 0);
	op.writes = &v;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, NULL), -ETIMEDOUT);
	l.deadline_ns = INT64_MAX;
	OK(pawl_group_limit(e, g, &l));
	OK(pawl_push(e, &op));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 1);
	l.deadline_ns = -1;
	FAILS(pawl_group_limit(e, g, &l), -EINVAL, "deadline");
	l.deadline_ns = 0;
	l.low = 100;
	FAILS(pawl_group_limit(e, g, &l), -EINVAL, "low");
	l = limits(1, 0);
	FAILS(pawl_group_limit(e, (pawl_group_t){ 0 }, &l), -EINVAL, "window");
	l.cq.h = 12345;
	FAILS(pawl_group_create(e, &l, &g), -ESTALE, "cq");
	OK(pawl_engine_destroy(e));
}
END_TEST

static struct {
	struct pawl_engine *e;
	pawl_group_t g;
	u32 state;
	int rc;
} w;

static int asks_body(struct pawl_run *run, void *arg)
{
	struct pawl_group_limits l = limits(0, 0);
	int *said = arg;

	said[0] = pawl_run_canceled(run);
	l.deadline_ns = 1;
	MUST(!pawl_group_limit(w.e, w.g, &l));
	said[1] = pawl_run_canceled(run);
	MUST(!pawl_group_cancel(w.e, w.g));
	said[2] = pawl_run_canceled(run);
	return 0;
}

START_TEST(test_a_body_can_ask_whether_its_group_was_canceled)
{
	struct pawl_op op;
	int said[3];

	w.e = engine(PAWL_PER_DEVICE, 0);
	w.g = group_new(w.e, NULL);
	op = op_of_group(w.g, 0);
	op.fn = asks_body;
	op.arg = said;
	OK(pawl_push(w.e, &op));
	OK(pawl_wait_all(w.e, SOON_NS, NULL));
	ck_assert(said[0] == 0 && said[1] == -ETIMEDOUT && said[2] == -ECANCELED);
	OK(pawl_group_destroy(w.e, w.g));
	OK(pawl_engine_destroy(w.e));
}
END_TEST

static int wait_in_body(struct pawl_run *run, void *arg)
{
	w.rc = pawl_group_wait(w.e, w.g, -1);
	/* It may wait for room, which other ops of the group make. */
	MUST(pawl_wait(w.e, PAWL_WAIT_ROOM, w.g.h, 1000, NULL) == -ETIMEDOUT);
	let_go(w.e);
	MUST(!pawl_wait(w.e, PAWL_WAIT_ROOM, w.g.h, SOON_NS, NULL));
	return 0;
}

START_TEST(test_a_body_does_not_wait_for_its_own_group)
{
	struct pawl_group_limits l = limits(2, 0);
	struct pawl_op op;

	w.e = engine(PAWL_PER_DEVICE, 1);
	w.g = group_new(w.e, &l);
	op = held_op(w.g, 0);
	OK(pawl_push(w.e, &op));
	op = op_of_group(w.g, 0);
	op.fn = wait_in_body;
	OK(pawl_push(w.e, &op));
	OK(pawl_group_wait(w.e, w.g, SOON_NS));
	ck_assert_int_eq(w.rc, -EDEADLK);
	OK(pawl_engine_destroy(w.e));
}
END_TEST

/* A thread that waits for a group, and its innermost wait. */
static struct thread *waiter;

static int wait_for_inner(struct pawl_run *run, void *arg)
{
	MUST(!pawl_group_wait(w.e, *(pawl_group_t *)arg, -1));
	store_release(&w.state, 2);
	return 0;
}

static void *wait_for_outer(void *arg)
{
	waiter = thread_get(w.e);
	store_release(&w.state, 1);
	/* Without a timeout, at whose end it would find the group empty by itself. */
	MUST(!pawl_group_wait(w.e, w.g, -1));
	store_release(&w.state, 3);
	return NULL;
}

/* Asleep until something wakes it. */
static bool sleeps_after(u32 state)
{
	return load_acquire(&w.state) == state && load_relaxed(&waiter->waits_group) &&
	       !exec_wanted(&waiter->ex);
}

START_TEST(test_a_wait_is_woken_after_a_body_that_waited_for_another_group)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	pawl_group_t inner;
	struct pawl_op op;
	pthread_t t;

	c.spin_ns = 0;
	w.e = engine_with(&c);
	w.state = 0;
	w.g = group_new(w.e, NULL);
	inner = group_new(w.e, NULL);
	op = held_op(inner, 0);
	OK(pawl_push(w.e, &op));
	op = held_op(w.g, 0);
	OK(pawl_push(w.e, &op));
	op = op_of_fn(wait_for_inner, &inner);
	OK(pawl_push(w.e, &op));
	t = spawn(wait_for_outer, NULL);
	ck_assert(soon(sleeps_after(1)));
	OK(pawl_complete(w.e, held[0], 0, NULL));
	ck_assert(soon(sleeps_after(2)));
	OK(pawl_complete(w.e, held[1], 0, NULL));
	nheld = 0;
	ck_assert(soon(load_acquire(&w.state) == 3));
	join(t);
	OK(pawl_engine_destroy(w.e));
}
END_TEST

static void *wait_for_room(void *arg)
{
	waiter = thread_get(w.e);
	store_release(&w.state, 1);
	MUST(!pawl_wait(w.e, PAWL_WAIT_ROOM, w.g.h, -1, NULL));
	store_release(&w.state, 2);
	return NULL;
}

/* For a thread that waits, and for a host that was refused: of a group, and of the engine. */
START_TEST(test_a_higher_limit_is_room)
{
	struct pawl_config cfg = small(PAWL_PER_DEVICE, 0);
	struct pawl_group_limits l;
	struct pawl_completion c;
	struct pawl_op op;
	pthread_t t;
	int all;

	cfg.spin_ns = 0;
	for (all = 0; all < 2; all++) {
		w.e = engine_with(&cfg);
		w.state = 0;
		w.g = all ? (pawl_group_t){ 0 } : group_new(w.e, NULL);
		l = limits(0, 10);
		OK(pawl_cq_create(w.e, &l.cq));
		OK(pawl_group_limit(w.e, w.g, &l));
		op = held_op(w.g, 10);
		op.flags &= all ? PAWL_OP_COST : PAWL_OP_COST | PAWL_OP_GROUP;
		OK(pawl_push(w.e, &op));
		FAILS(pawl_push(w.e, &op), -EAGAIN, "cost");
		t = spawn(wait_for_room, NULL);
		ck_assert(soon(sleeps_after(1)));
		ck_assert_int_eq(pawl_cq_reap(w.e, l.cq, &c, 1), 0);
		OK(pawl_group_limit(w.e, w.g, &(struct pawl_group_limits){ .size = sizeof(l),
									   .cost = 20 }));
		ck_assert_int_eq(pawl_cq_reap(w.e, l.cq, &c, 1), 1);
		ck_assert(soon(load_acquire(&w.state) == 2));
		join(t);
		let_go(w.e);
		OK(pawl_engine_destroy(w.e));
	}
}
END_TEST

#define THREADS	4
#define EACH	TIMES(20000)

/* Push until there is no room, wait until there is. */
static void *storm(void *arg)
{
	struct pawl_op op = op_of_group(w.g, 3);
	int i, rc;

	for (i = 0; i < EACH; i++) {
		while ((rc = pawl_push(w.e, &op)) == -EAGAIN)
			MUST(!pawl_wait(w.e, PAWL_WAIT_ROOM | (i & 1 ? PAWL_WAIT_NO_HELP : 0), w.g.h,
					SOON_NS, NULL));
		MUST(!rc);
	}
	return NULL;
}

START_TEST(test_nobody_waits_for_room_for_good)
{
	struct pawl_group_limits l = limits(8, 20);
	pthread_t t[THREADS];
	int i;

	ran = 0;
	w.e = engine(PAWL_PER_DEVICE, 2);
	w.g = group_new(w.e, &l);
	for (i = 0; i < THREADS; i++)
		MUST(!pthread_create(&t[i], NULL, storm, NULL));
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	OK(pawl_group_wait(w.e, w.g, SOON_NS));
	ck_assert_uint_eq(ran, (u32)(THREADS * EACH));
	counts(w.e, w.g, 0, 0);
	OK(pawl_group_destroy(w.e, w.g));
	OK(pawl_engine_destroy(w.e));
}
END_TEST

/* The same by room completions. */
START_TEST(test_no_room_completion_is_lost)
{
	struct pawl_group_limits l = limits(5, 0);
	struct pawl_completion c[8];
	pawl_cq_t cq;
	struct pawl_op op;
	int i, rc;

	ran = 0;
	w.e = engine(PAWL_PER_DEVICE, 2);
	OK(pawl_cq_create(w.e, &cq));
	l.cq = cq;
	w.g = group_new(w.e, &l);
	op = op_of_group(w.g, 0);
	for (i = 0; i < EACH; i++) {
		while ((rc = pawl_push(w.e, &op)) == -EAGAIN) {
			OK(pawl_wait(w.e, PAWL_WAIT_CQ | PAWL_WAIT_NO_HELP, cq.h, SOON_NS,
				     NULL));
			/* 2 if room was wanted again by a push whose second try found some */
			MUST(pawl_cq_reap(w.e, cq, c, 8) >= 1);
		}
		OK(rc);
	}
	OK(pawl_group_wait(w.e, w.g, SOON_NS));
	ck_assert_uint_eq(ran, (u32)EACH);
	OK(pawl_engine_destroy(w.e));
}
END_TEST

/* A limit of 0 is none, and NULL sets all fields to 0. */
START_TEST(test_limits_are_taken_back)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_group_limits l = limits(1, 5);
	pawl_group_t g;
	struct pawl_op op;
	u32 turn, i;

	l.deadline_ns = 1;
	g = group_new(e, &l);
	op = op_of_group(g, 5);
	for (turn = 0; turn < 2; turn++) {
		ran = 0;
		OK(pawl_push(e, &op));
		FAILS(pawl_push(e, &op), -EAGAIN, "ops of the group");
		(void)!pawl_wait_all(e, SOON_NS, NULL);
		ck_assert_uint_eq(ran, 0);
		OK(pawl_group_limit(e, g, turn ? NULL : &(struct pawl_group_limits){ .size = sizeof(l) }));
		for (i = 0; i < 10; i++)
			OK(pawl_push(e, &op));
		counts(e, g, 10, 50);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(ran, 10);
		OK(pawl_group_limit(e, g, &l));
	}
	/* The engine has neither of these. */
	l = limits(0, 0);
	l.deadline_ns = 1;
	FAILS(pawl_group_limit(e, (pawl_group_t){ 0 }, &l), -EINVAL, "no deadline");
	OK(pawl_group_destroy(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Costs as large as a limit, of a group and of the engine, and as large as any may be. */
START_TEST(test_a_cost_may_be_the_limit)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	const u64 most[] = { 1, 100, 1ull << 60, UINT64_MAX / 4 };
	struct pawl_group_limits l;
	struct pawl_completion c;
	pawl_group_t g;
	struct pawl_op op;
	u32 i, all;

	for (i = 0; i < ARRAY_SIZE(most); i++) {
		for (all = 0; all < 2; all++) {
			l = limits(0, 2 * most[i]);
			OK(pawl_cq_create(e, &l.cq));
			g = group_new(e, all ? NULL : &l);
			if (all && i)
				l.cq.h = 0;
			if (all)
				OK(pawl_group_limit(e, (pawl_group_t){ 0 }, &l));
			op = held_op(g, most[i]);
			OK(pawl_push(e, &op));
			OK(pawl_push(e, &op));
			FAILS(pawl_push(e, &op), -EAGAIN, all ? "cost of the engine" : "cost of the group");
			op.cost = 1;
			FAILS(pawl_push(e, &op), -EAGAIN);
			counts(e, g, 2, 2 * most[i]);
			if (!all)
				ck_assert_int_eq(pawl_cq_reap(e, l.cq, &c, 1), 0);
			/* Half of the limit, whatever its size, is the low-water mark. */
			let_go(e);
			if (!all)
				ck_assert_int_eq(pawl_cq_reap(e, l.cq, &c, 1), 1);
			OK(pawl_wait(e, PAWL_WAIT_ROOM, all ? 0 : g.h, 0, NULL));
			let_go(e);
			counts(e, g, 0, 0);
			counts(e, (pawl_group_t){ 0 }, 0, 0);
			/* One that is the limit, and one that is more. */
			l = limits(0, most[i]);
			OK(pawl_group_limit(e, all ? (pawl_group_t){ 0 } : g, &l));
			op.cost = most[i];
			OK(pawl_push(e, &op));
			let_go(e);
			op.cost = most[i] + 1;
			FAILS(pawl_push(e, &op), op.cost > UINT64_MAX / 4 ? -EINVAL : -E2BIG, "op.cost");
			/* Without a group it counts for the engine alone. */
			op = held_op(g, most[i]);
			op.flags = PAWL_OP_COST;
			op.group.h = 0;
			OK(pawl_push(e, &op));
			counts(e, (pawl_group_t){ 0 }, 1, most[i]);
			counts(e, g, 0, 0);
			let_go(e);
			counts(e, (pawl_group_t){ 0 }, 0, 0);
			OK(pawl_group_limit(e, (pawl_group_t){ 0 }, NULL));
			OK(pawl_group_destroy(e, g));
		}
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The object of a group that was destroyed is used again: nothing of the first one is left. */
START_TEST(test_a_group_in_the_place_of_another_one_is_new)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_group_limits l = limits(1, 5);
	pawl_group_t g, first = { 0 };
	struct pawl_completion c;
	struct pawl_op op;
	u32 round, i;

	OK(pawl_cq_create(e, &l.cq));
	for (round = 0; round < 4; round++) {
		l.deadline_ns = round == 2 ? 1 : 0;
		l.low = 10;
		g = group_new(e, &l);
		first = round ? first : g;
		ck_assert_uint_eq((u32)g.h, (u32)first.h);
		ck_assert(!round || g.h != first.h);
		op = round == 2 ? op_of_group(g, 5) : held_op(g, 5);
		OK(pawl_push(e, &op));
		FAILS(pawl_push(e, &op), -EAGAIN);
		OK(pawl_group_cancel(e, g));
		if (round == 2)
			(void)!pawl_wait_all(e, SOON_NS, NULL);
		else
			let_go(e);
		ck_assert_int_eq(pawl_cq_reap(e, l.cq, &c, 1), 1);
		OK(pawl_group_destroy(e, g));
		/* One without limits. */
		g = group_new(e, NULL);
		ck_assert_uint_eq((u32)g.h, (u32)first.h);
		op = op_of_group(g, 7);
		ran = 0;
		for (i = 0; i < 3; i++)
			OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(ran, 3);
		ck_assert_int_eq(pawl_cq_reap(e, l.cq, &c, 1), 0);
		/* It can be canceled, and that concerns no later group. */
		OK(pawl_push(e, &op));
		OK(pawl_group_cancel(e, g));
		ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -ECANCELED);
		ck_assert_uint_eq(ran, 3);
		counts(e, g, 0, 0);
		OK(pawl_group_destroy(e, g));
		FAILS(pawl_group_cancel(e, first), -ESTALE);
	}
	OK(pawl_cq_destroy(e, l.cq));
	OK(pawl_engine_destroy(e));
}
END_TEST

static u32 refusing;		/* A */

int pool_commit_hook(const char *what, size_t bytes)
{
	return load_acquire(&refusing) ? -ENOMEM : 0;
}

/* A queue is not in use for a group that has no memory for its completion. */
START_TEST(test_limits_without_memory_keep_no_queue)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_group_limits l = limits(0, 5);
	pawl_group_t g = group_new(e, NULL), none = { 0 };
	u32 all;

	for (all = 0; all < 2; all++) {
		OK(pawl_cq_create(e, &l.cq));
		store_release(&refusing, 1);
		FAILS(pawl_group_limit(e, all ? none : g, &l), -ENOMEM, "no memory for a completion");
		store_release(&refusing, 0);
		OK(pawl_cq_destroy(e, l.cq));
	}
	OK(pawl_cq_create(e, &l.cq));
	OK(pawl_group_limit(e, g, &l));
	OK(pawl_group_destroy(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Also an op without a group makes room in the engine, for a thread and for a host. */
START_TEST(test_an_op_without_a_group_makes_room)
{
	struct pawl_config cfg = small(PAWL_PER_DEVICE, 0);
	struct pawl_group_limits l = limits(0, 10);
	struct pawl_completion c;
	struct pawl_op op;
	pthread_t t;
	u32 cq;

	cfg.spin_ns = 0;
	for (cq = 0; cq < 2; cq++) {
		w.e = engine_with(&cfg);
		w.state = 0;
		w.g = (pawl_group_t){ 0 };
		OK(pawl_cq_create(w.e, &l.cq));
		OK(pawl_group_limit(w.e, w.g, &l));
		op = held_op(w.g, 10);
		op.flags = PAWL_OP_COST | (cq ? PAWL_OP_CQ : 0);
		op.cq = l.cq;
		without_strays(&op);
		OK(pawl_push(w.e, &op));
		FAILS(pawl_push(w.e, &op), -EAGAIN, "cost of the engine");
		t = spawn(wait_for_room, NULL);
		ck_assert(soon(sleeps_after(1)));
		let_go(w.e);
		ck_assert(soon(load_acquire(&w.state) == 2));
		join(t);
		ck_assert_int_eq(pawl_cq_reap(w.e, l.cq, &c, 1), 1);
		ck_assert_int_eq(pawl_cq_reap(w.e, l.cq, &c, 1), cq);
		counts(w.e, w.g, 0, 0);
		OK(pawl_engine_destroy(w.e));
	}
}
END_TEST

static int wait_for_window(struct pawl_run *run, void *arg)
{
	/* A body's pushes do not wait at the window either. */
	return pawl_wait(run->engine, PAWL_WAIT_ROOM, 0, 0, NULL);
}

/* Without limits the engine has room when half of the window is free. */
START_TEST(test_room_in_the_window)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_op op = held_op((pawl_group_t){ 0 }, 0), body = op_of_fn(wait_for_window, NULL);
	struct pawl_engine *e;
	u32 i;

	c.window = 4;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	op.flags = 0;
	for (i = 0; i < 3; i++)
		OK(pawl_push(e, &op));
	OK(pawl_push(e, &body));
	FAILS(pawl_push(e, &op), -EAGAIN, "window");
	FAILS(pawl_wait(e, PAWL_WAIT_ROOM | PAWL_WAIT_NO_HELP, 0, 0, NULL), -ETIMEDOUT,
	      "group_wait: the time has passed");
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_uint_eq(stats(e).failed, 0);
	FAILS(pawl_wait(e, PAWL_WAIT_ROOM, 0, 0, NULL), -ETIMEDOUT);
	let_go(e);
	OK(pawl_wait(e, PAWL_WAIT_ROOM, 0, 0, NULL));
	let_go(e);
	let_go(e);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

#if CAN_TRAP
static struct {
	struct pawl_engine *e;
	pawl_group_t g;
	int rc;
} destroyer;

static void destroy_now(void)
{
	destroyer.rc = pawl_group_destroy(destroyer.e, destroyer.g);
}
#endif

/* Wherever one thread is inside the call, another one's is refused, or destroys the group. */
START_TEST(test_two_threads_destroy_a_group)
{
#if CAN_TRAP
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	u32 k, rounds = 0, busy = 0, stale[2] = { 0, 0 };
	int rc;

	destroyer.e = e;
	elsewhere_begin(destroy_now);
	for (k = 0; !k || trap.stops; k += SANITIZED ? 3 : 1) {
		OK(pawl_group_create(e, NULL, &destroyer.g));
		trap_after(k, rc = pawl_group_destroy(e, destroyer.g));
		if (!trap.stops) {
			OK(rc);
			break;
		}
		ck_assert_int_eq(!rc + !destroyer.rc, 1);
		rounds++;
		busy += rc + destroyer.rc == -EBUSY;
		stale[!rc] += rc + destroyer.rc == -ESTALE;
		ck_assert_int_eq(pawl_group_destroy(e, destroyer.g), -ESTALE);
	}
	elsewhere_end();
	ck_assert(busy && stale[0] && stale[1]);
	ck_assert_uint_eq(busy + stale[0] + stale[1], rounds);
	OK(pawl_engine_destroy(e));
#endif
}
END_TEST

/* -EAGAIN would be a promise that the same batch can succeed later. */
START_TEST(test_a_batch_that_can_never_fit_is_too_big)
{
	static const struct {
		u64 ops, cost, all;		/* limits: of the group, of the engine on costs */
		u32 n;				/* ops in the batch */
		u64 each;			/* cost */
		int rc;
	} row[] = {
		{ 4, 0, 0, 4, 0, 0 },	{ 4, 0, 0, 5, 0, -E2BIG },	{ 1, 0, 0, 5, 1, -E2BIG },
		{ 0, 8, 0, 4, 2, 0 },	{ 0, 8, 0, 5, 2, -E2BIG },	{ 0, 0, 8, 4, 2, 0 },
		{ 0, 0, 8, 5, 2, -E2BIG },
		{ 0, UINT64_MAX, 0, 5, GROUP_COST_MAX, -E2BIG },
		{ 5, 10, 10, 5, 2, 0 },
	};
	u32 i, k, busy;

	for (i = 0; i < 2 * ARRAY_SIZE(row); i++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
		struct pawl_group_limits l = limits(row[i / 2].ops, row[i / 2].cost);
		struct pawl_group_limits all = limits(0, row[i / 2].all);
		pawl_group_t g = group_new(e, &l);
		struct pawl_op op[5], first = held_op(g, row[i / 2].each);
		int rc;

		busy = i % 2;	/* is an op of the group in flight? */
		OK(pawl_group_limit(e, (pawl_group_t){ 0 }, &all));
		for (k = 0; k < 5; k++)
			op[k] = op_of_group(g, row[i / 2].each);
		nheld = 0;
		if (busy)
			OK(pawl_push(e, &first));
		rc = pawl_push_batch(e, op, row[i / 2].n);
		ck_assert_msg(rc == (row[i / 2].rc ? row[i / 2].rc : busy ? -EAGAIN : 0),
			      "row %u: %d, %s", i, rc, pawl_error_text());
		if (busy)
			let_go(e);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		counts(e, g, 0, 0);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

START_TEST(test_the_queue_of_a_group_can_be_named_again)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_group_limits l = limits(1, 0);
	struct pawl_completion c;
	struct pawl_op op;
	pawl_cq_t other;
	pawl_group_t g;
	u32 i;

	OK(pawl_cq_create(e, &l.cq));
	OK(pawl_cq_create(e, &other));
	g = group_new(e, &l);
	op = held_op(g, 0);
	for (i = 0; i < 3; i++) {
		l.ops = i + 1;
		l.tag = i;
		OK(pawl_group_limit(e, g, &l));
		nheld = 0;
		while (!pawl_push(e, &op))
			;
		ck_assert_uint_eq(nheld, i + 1);
		while (nheld)
			let_go(e);
		ck_assert_int_eq(pawl_cq_reap(e, l.cq, &c, 1), 1);
		ck_assert_uint_eq(c.tag, i);
	}
	l.cq = other;
	FAILS(pawl_group_limit(e, g, &l), -EBUSY);
	OK(pawl_group_destroy(e, g));
	OK(pawl_cq_destroy(e, other));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Without a limit the sum ends at 64 bits, and a limit may be the largest number. */
START_TEST(test_the_sum_of_costs_does_not_wrap)
{
	static const u64 most[] = { 0, UINT64_MAX, UINT64_MAX - 1, 3 * GROUP_COST_MAX };
	u32 i;

	for (i = 0; i < 2 * ARRAY_SIZE(most); i++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
		struct pawl_group_limits l = limits(0, most[i / 2]);
		pawl_group_t g = group_new(e, &l);
		struct pawl_op op = held_op(g, GROUP_COST_MAX);
		u32 fit = most[i / 2] == 3 * GROUP_COST_MAX ? 3 : 4;

		if (i % 2)
			op.flags &= (u16)~PAWL_OP_GROUP;	/* it counts for the engine alone */
		without_strays(&op);
		nheld = 0;
		while (nheld < 9 && !pawl_push(e, &op))
			;
		ck_assert_uint_eq(nheld, i % 2 ? 4 : fit);
		counts(e, i % 2 ? (pawl_group_t){ 0 } : g, nheld, nheld * GROUP_COST_MAX);
		FAILS(pawl_push(e, &op), -EAGAIN, "cost");
		/* A lower limit than the sum refuses, too, until the sum is below it. */
		l.cost = op.cost;
		OK(pawl_group_limit(e, g, &l));
		FAILS(pawl_push(e, &op), -EAGAIN, "cost");
		while (nheld)
			let_go(e);
		OK(pawl_push(e, &op));
		let_go(e);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("opgroup");
	TCase *tc = tcase_create("opgroup");

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, test_a_push_beyond_a_limit_is_refused);
	tcase_add_test(tc, test_room_is_reported_once_at_low_water);
	tcase_add_test(tc, test_who_reaps_a_completion_may_push_the_next_op);
	tcase_add_test(tc, test_a_canceled_group_does_not_start);
	tcase_add_test(tc, test_the_deadline_of_a_group);
	tcase_add_test(tc, test_canceling_the_engine_stops_all_that_has_not_started);
	tcase_add_test(tc, test_a_body_can_ask_whether_its_group_was_canceled);
	tcase_add_test(tc, test_a_body_does_not_wait_for_its_own_group);
	tcase_add_test(tc, test_a_wait_is_woken_after_a_body_that_waited_for_another_group);
	tcase_add_test(tc, test_a_higher_limit_is_room);
	tcase_add_test(tc, test_nobody_waits_for_room_for_good);
	tcase_add_test(tc, test_no_room_completion_is_lost);
	tcase_add_test(tc, test_limits_are_taken_back);
	tcase_add_test(tc, test_a_cost_may_be_the_limit);
	tcase_add_test(tc, test_a_group_in_the_place_of_another_one_is_new);
	tcase_add_test(tc, test_limits_without_memory_keep_no_queue);
	tcase_add_test(tc, test_an_op_without_a_group_makes_room);
	tcase_add_test(tc, test_room_in_the_window);
	tcase_add_test(tc, test_two_threads_destroy_a_group);
	tcase_add_test(tc, test_a_batch_that_can_never_fit_is_too_big);
	tcase_add_test(tc, test_the_queue_of_a_group_can_be_named_again);
	tcase_add_test(tc, test_the_sum_of_costs_does_not_wrap);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
