// SPDX-License-Identifier: Apache-2.0
/*
 * core/graph.c: launches: several in flight, with other vars and arguments, as ops with tickets,
 * deadlines and groups, and what is released at their end.
 */
#include "graphs.h"

/* Many launches of one graph in flight, from several threads: its vars exclude them. */
struct pusher {
	struct pawl_engine *e;
	pawl_graph_t g;
	u32 n;
};

static void *push_many(void *arg)
{
	struct pusher *p = arg;
	u32 i;

	for (i = 0; i < p->n; i++)
		MUST(!pawl_graph_push(p->e, p->g, NULL));
	return NULL;
}

START_TEST(test_launches_in_flight_are_ordered_by_data)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	pawl_var_t v = var_new(e), w = var_new(e);
	u64 a = 0, b = 0;
	const struct pawl_op op[] = { OP(add_plain, &a, W(v)), OP(add_plain, &b, W(w)),
				      OP(add_plain, &a, R(w), W(v)), OP(add_plain, &b, R(v), W(w)) };
	pawl_graph_t g = graph_new(e, op, 4);
	struct pusher p = { e, g, TIMES(2000) };
	pthread_t t[2] = { spawn(push_many, &p), spawn(push_many, &p) };

	join(t[0]);
	join(t[1]);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(a, 4ull * p.n);
	ck_assert_uint_eq(b, 4ull * p.n);
	ck_assert_uint_eq(version(e, v), 2ull * p.n);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- launches with other vars and arguments --- */

START_TEST(test_slots_are_other_vars_in_each_launch)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e), in = var_new(e);
	u64 a = 0, b = 0;
	const struct pawl_op op[] = { OP(add_plain, &a, R(in), W(SLOT(1))),
				      OP(add_plain, &b, R(SLOT(1)), W(SLOT(0))) };
	pawl_graph_t g = graph_new(e, op, 2);
	struct pawl_launch l = launch_init();
	struct gate gate;

	gate_write(e, &gate, v);
	l.nvars = 2;
	l.vars = VARS(v, var_new(e));
	OK(pawl_graph_push(e, g, &l));		/* behind the gate */
	l.vars = VARS(w, var_new(e));
	OK(pawl_graph_push(e, g, &l));		/* not */
	while (pawl_run_one(e))
		;
	ck_assert(a == 1 && b == 1);
	ck_assert_uint_eq(version(e, w), 1);
	gate_open(&gate);
	while (pawl_run_one(e))
		;
	ck_assert(a == 2 && b == 2);
	ck_assert_uint_eq(version(e, v), 2);
	ck_assert_uint_eq(version(e, in), 0);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A slot is an access of the launch: a write if an op writes it, otherwise a read. */
START_TEST(test_a_slot_is_read_or_written)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	u32 n = 0, ops;

	for (ops = 1; ops <= 2; ops++) {
		const struct pawl_op op[] = { OP(add_one, &n, R(SLOT(0)), W(SLOT(1))),
					      OP(add_one, &n, R(SLOT(0), SLOT(1))) };
		pawl_graph_t g = graph_new(e, op, ops);
		struct pawl_launch l = launch_init();
		struct gate gate;

		l.nvars = 2;
		l.vars = VARS(v, w);
		n = 0;
		gate_read(e, &gate, v);		/* another reader: they run together */
		OK(pawl_graph_push(e, g, &l));
		while (pawl_run_one(e))
			;
		ck_assert_uint_eq(n, ops);
		gate_open(&gate);
		gate_write(e, &gate, v);	/* a writer: it is behind that */
		OK(pawl_graph_push(e, g, &l));
		ck_assert_int_eq(pawl_run_one(e), 0);
		gate_open(&gate);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		gate_read(e, &gate, w);		/* what it writes is not read meanwhile */
		OK(pawl_graph_push(e, g, &l));
		ck_assert_int_eq(pawl_run_one(e), 0);
		gate_open(&gate);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, 3 * ops);
		ck_assert_uint_eq(version(e, v), ops);	/* of the gates */
		ck_assert_uint_eq(version(e, w), 3 * ops);
		OK(pawl_graph_delete(e, g));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A graph of one op has slots and arguments, too. */
START_TEST(test_one_op_with_slots_and_arguments)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	const struct pawl_op op = OP(add_plain, NULL, W(SLOT(0)));
	pawl_graph_t g = graph_new(e, &op, 1);
	struct pawl_launch l = launch_init();
	pawl_var_t v[3];
	u64 n[3] = { 0 };
	u32 i;

	l.nvars = l.nargs = 1;
	for (i = 0; i < 3; i++) {
		v[i] = var_new(e);
		l.vars = &v[i];
		l.args = (void *[]){ &n[i] };
		OK(pawl_graph_push(e, g, &l));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < 3; i++)
		ck_assert(n[i] == 1 && version(e, v[i]) == 1);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* {0} in the place of a slot: data of the launch alone. */
START_TEST(test_a_private_slot_orders_one_launch_only)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	struct meeting m = { .want = 2 };
	u32 clock = 0;
	struct place p[2] = { { &clock, 0 }, { &clock, 0 } };
	const struct pawl_op op[] = { OP(note_place, &p[0], W(SLOT(0))), OP(meet, &m, W(SLOT(0))),
				      OP(note_place, &p[1], R(SLOT(0))) };
	pawl_graph_t g = graph_new(e, op, 3);
	struct pawl_launch l = launch_init();
	struct place q[2] = { { &clock, 0 }, { &clock, 0 } };

	l.nvars = 1;
	l.vars = VARS({ 0 });
	OK(pawl_graph_push(e, g, &l));
	l.nargs = 3;
	l.args = (void *[]){ &q[0], &m, &q[1] };
	OK(pawl_graph_push(e, g, &l));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(clock, 4);
	ck_assert(p[0].at < p[1].at && q[0].at < q[1].at);
	/* The arguments of a launch are not those of the next one. */
	OK(pawl_graph_push(e, g, &l));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert(q[0].at == 5 && q[1].at == 6);
	l.nargs = 0;
	l.args = NULL;
	OK(pawl_graph_push(e, g, &l));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert(p[0].at == 7 && p[1].at == 8);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_bad_launches_are_refused)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e), gone = var_new(e);
	const struct pawl_op op[] = { OP(nothing, NULL, W(SLOT(0)), R(w)),
				      OP(nothing, NULL, W(SLOT(2))) };
	pawl_graph_t g = graph_new(e, op, 2), captured;
	struct pawl_launch l = launch_init();
	struct pawl_op d[2] = { OP(nothing, NULL), OP(nothing, NULL) };
	void *args[3] = { NULL };

	OK(pawl_var_delete(e, gone, NULL, NULL));
	FAILS(pawl_graph_push(e, g, NULL), -EINVAL, "graph_push", "3 slots");
	l.nvars = 3;
	FAILS(pawl_graph_push(e, g, &l), -EINVAL, "graph_push", "0 vars", "3 slots");
	l.vars = VARS(v, { 0 }, v);
	FAILS(pawl_graph_push(e, g, &l), -EINVAL, "graph_push", "twice");
	l.vars = VARS(w, { 0 }, v);
	FAILS(pawl_graph_push(e, g, &l), -EINVAL, "graph_push", "names, too");
	l.vars = VARS(v, { 0 }, gone);
	FAILS(pawl_graph_push(e, g, &l), -ESTALE, "graph_push", "how.vars[2]");
	l.vars = VARS(v, { 0 }, SLOT(0));
	FAILS(pawl_graph_push(e, g, &l), -ESTALE, "graph_push", "how.vars[2]");
	l.vars = VARS(v, gone, { 0 });		/* no op names slot 1 */
	l.nargs = 1;
	FAILS(pawl_graph_push(e, g, &l), -EINVAL, "graph_push", "args", "2 ops");
	l.args = args;
	FAILS(pawl_graph_push(e, g, &l), -EINVAL, "graph_push", "1 args", "2 ops");
	l.nargs = 0;
	FAILS(pawl_graph_push(e, g, &l), -EINVAL, "graph_push", "0 args", "2 ops");
	l.args = NULL;
	l.flags = PAWL_OP_NO_SKIP;
	FAILS(pawl_graph_push(e, g, &l), -EINVAL, "graph_push", "how.flags is 0x1");
	l.flags = 0;
	l.reserved = 1;
	FAILS(pawl_graph_push(e, g, &l), -EINVAL, "graph_push", "how.reserved is 1");
	l.reserved = 0;
	OK(pawl_graph_push(e, g, &l));
	/* Nothing of the refused ones is left. */
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(version(e, v), 1);
	OK(pawl_graph_delete(e, g));
	/* What a captured graph does not have. */
	OK(pawl_graph_create(e, d, 2, PAWL_GRAPH_CAPTURE, &captured));
	l = launch_init();
	l.args = args;
	l.nargs = 2;
	FAILS(pawl_graph_push(e, captured, &l), -EINVAL, "graph_push", "captured");
	OK(pawl_graph_delete(e, captured));
	d[1].fn = NULL;
	d[1].async_fn = gate_body;
	FAILS(pawl_graph_create(e, d, 2, PAWL_GRAPH_CAPTURE, &captured), -EINVAL, "ops[1]",
	      "asynchronous", "captured");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- completions, tickets, deadlines, groups --- */

START_TEST(test_a_launch_has_a_ticket_a_deadline_a_queue_and_a_group)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u32 ran = 0;
	const struct pawl_op op[] = { OP(add_one, &ran, W(v)), OP(add_one, &ran, W(v)) };
	pawl_graph_t g = graph_new(e, op, 2);
	struct pawl_launch l = launch_init();
	struct pawl_completion c;
	pawl_ticket_t ticket;
	pawl_group_t group;
	struct gate gate;
	uint64_t count;
	pawl_cq_t cq;

	OK(pawl_cq_create(e, &cq));
	OK(pawl_group_create(e, NULL, &group));
	l.flags = PAWL_OP_CQ | PAWL_OP_TICKET | PAWL_OP_GROUP;
	l.cq = cq;
	l.tag = 7;
	l.ticket = &ticket;
	l.group = group;
	gate_write(e, &gate, v);
	OK(pawl_graph_push(e, g, &l));
	ck_assert_int_eq(pawl_ticket_state(e, ticket), PAWL_TICKET_QUEUED);
	OK(pawl_group_count(e, group, &count, NULL));
	ck_assert_uint_eq(count, 1);
	OK(pawl_cancel(e, ticket));
	gate_open(&gate);
	while (pawl_run_one(e))
		;
	ck_assert_uint_eq(ran, 0);
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 1);
	ck_assert(c.tag == 7 && c.status == -ECANCELED);
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, NULL), -ECANCELED);
	/* A deadline that has passed. */
	l.flags |= PAWL_OP_DEADLINE;
	l.deadline_ns = 1;
	l.tag = 8;
	OK(pawl_graph_push(e, g, &l));
	OK(pawl_ticket_wait(e, ticket, SOON_NS));
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 1);
	ck_assert(c.tag == 8 && c.status == -ETIMEDOUT && !ran);
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, NULL), -ETIMEDOUT);
	/* And one that runs, before its deadline: it is complete when both bodies are over. */
	l.deadline_ns = INT64_MAX;
	l.tag = 9;
	OK(pawl_graph_push(e, g, &l));
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_int_eq(pawl_ticket_state(e, ticket), PAWL_TICKET_RUNNING);
	FAILS(pawl_cancel(e, ticket), -EINPROGRESS, "started");
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 0);
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_int_eq(pawl_ticket_state(e, ticket), PAWL_TICKET_COMPLETE);
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 1);
	ck_assert(c.tag == 9 && c.status == 0 && ran == 2);
	OK(pawl_group_destroy(e, group));
	/* A note that cannot be had: nothing of the launch is left. */
	FAILS(pawl_graph_push(e, g, &l), -ESTALE, "group");
	OK(pawl_cq_destroy(e, cq));
	FAILS(pawl_graph_push(e, g, &l), -ESTALE, "cq");
	OK(pawl_wait_writable(e, v, 0, NULL));
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Each of them alone keeps a launch from starting. */
START_TEST(test_a_launch_that_must_not_start)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u32 ran = 0, n, i;
	const struct pawl_op op[] = { OP(add_one, &ran, W(v)), OP(add_one, &ran, W(v)) };
	pawl_ticket_t ticket;
	pawl_group_t group;

	OK(pawl_group_create(e, NULL, &group));
	for (n = 1; n <= 2; n++) {
		pawl_graph_t g = graph_new(e, op, n);

		for (i = 0; i < 6; i++) {
			struct pawl_launch l = launch_init();

			l.flags = i % 3 == 0 ? PAWL_OP_TICKET : i % 3 == 1 ? PAWL_OP_DEADLINE :
				  PAWL_OP_GROUP;
			l.ticket = &ticket;
			l.deadline_ns = i < 3 ? 1 : INT64_MAX;
			l.group = group;
			without_strays(&l);
			ran = 0;
			OK(pawl_graph_push(e, g, &l));
			if (i == 0)
				OK(pawl_cancel(e, ticket));
			if (i == 2)
				OK(pawl_group_cancel(e, group));
			ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, NULL),
					 i >= 3 ? 0 : i == 1 ? -ETIMEDOUT : -ECANCELED);
			ck_assert_uint_eq(ran, i < 3 ? 0 : n);
		}
		OK(pawl_graph_delete(e, g));
	}
	OK(pawl_group_destroy(e, group));
	OK(pawl_engine_destroy(e));
}
END_TEST

struct asked {
	pawl_ticket_t ticket;
	pawl_var_t v;
	int canceled, readable, all;
};

static int ask(struct pawl_run *run, void *arg)
{
	struct asked *a = arg;

	(void)pawl_cancel(run->engine, a->ticket);
	a->canceled = pawl_run_canceled(run);
	a->readable = pawl_wait_readable(run->engine, a->v, 0, NULL);
	a->all = pawl_wait_all(run->engine, 0, NULL);
	return 0;
}

/* What a body asks about its op is about the launch, also in the second body. */
START_TEST(test_a_body_asks_about_its_launch)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct asked a = { .v = var_new(e) };
	pawl_var_t w = var_new(e);
	const struct pawl_op op[] = { OP(nothing, NULL, W(a.v)), OP(ask, &a, W(w), R(a.v)) };
	pawl_graph_t g = graph_new(e, op, 2);
	struct pawl_launch l = launch_init();

	l.flags = PAWL_OP_TICKET;
	l.ticket = &a.ticket;
	OK(pawl_graph_push(e, g, &l));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_int_eq(a.canceled, -ECANCELED);
	ck_assert_int_eq(a.readable, -EDEADLK);
	ck_assert_int_eq(a.all, -EDEADLK);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- limits --- */

START_TEST(test_a_launch_counts_as_one_op)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	pawl_var_t v;
	u32 ran = 0, i;
	struct pawl_op op[20];
	pawl_graph_t g;

	c.window = 2;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	v = var_new(e);
	for (i = 0; i < 20; i++)
		op[i] = (struct pawl_op)OP(add_one, &ran, .reads = &v, .nreads = 1);
	g = graph_new(e, op, 20);
	OK(pawl_graph_push(e, g, NULL));
	OK(pawl_graph_push(e, g, NULL));
	FAILS(pawl_graph_push(e, g, NULL), -EAGAIN, "window");
	ck_assert_uint_eq(stats(e).pushed - stats(e).completed, 2);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 40);
	ck_assert_uint_eq(stats(e).completed, 2);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A launch that is refused for lack of an op frees what it has allocated, and nothing else. */
START_TEST(test_a_launch_that_finds_no_op_frees_none)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_op op[2] = { OP(nothing, NULL), OP(nothing, NULL) }, held;
	struct pawl_launch l = launch_init();
	pawl_ticket_t ticket;
	struct pawl_engine *e;
	struct gate gate;
	pawl_graph_t g;
	pawl_var_t v;
	int rc, i;

	c.max_ops = 64;
	c.max_threads = 2;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	e->window = UINT32_MAX;		/* so that the pool is what is used up */
	v = var_new(e);
	held = op_read(nothing, NULL, &v);
	op[0].reads = &v;
	op[0].nreads = 1;
	g = graph_new(e, op, 2);
	/* The graph's only launch has been used, and never began. */
	l.flags = PAWL_OP_TICKET;
	l.ticket = &ticket;
	OK(pawl_graph_push(e, g, &l));
	OK(pawl_cancel(e, ticket));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -ECANCELED);
	gate_write(e, &gate, v);
	while (!(rc = pawl_push(e, &held)))
		;
	ck_assert_int_eq(rc, -EAGAIN);
	for (i = 0; i < 3; i++) {
		FAILS(pawl_graph_push(e, g, NULL), -EAGAIN, "pool op");
		FAILS(pawl_push(e, &held), -EAGAIN, "pool op");
	}
	gate_open(&gate);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_graph_push(e, g, NULL));
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* If the engine may wait, it runs other ops until the launch has what it needs. */
START_TEST(test_a_launch_waits_for_an_op)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_op op[2];
	struct pawl_engine *e;
	u32 ran = 0, n, i;
	pawl_graph_t g;

	c.max_ops = 64;
	c.max_threads = 2;
	e = engine_with(&c);
	e->window = UINT32_MAX;		/* so that the pool is what is used up */
	op[0] = op[1] = (struct pawl_op)OP(add_one, &ran);
	for (n = 1; n <= 2; n++) {
		g = graph_new(e, op, n);
		ran = 0;
		for (i = 0; i < e->pool[POOL_OP]->max * 2; i++)
			OK(pawl_graph_push(e, g, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(ran, i * n);
		OK(pawl_graph_delete(e, g));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- lifetime --- */

static void count_release(void *arg, int status)
{
	MUST(!status);
	fetch_add_acq_rel((u32 *)arg, 1);
}

START_TEST(test_deleted_while_launches_are_in_flight)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u32 n = 0, i;
	const struct pawl_op op[] = { OP(nothing, &n, W(v), .release = count_release),
				      OP(nothing, &n, W(v), .release = count_release) };
	pawl_graph_t g = graph_new(e, op, 2);

	for (i = 0; i < 3; i++)
		OK(pawl_graph_push(e, g, NULL));
	OK(pawl_graph_delete(e, g));
	for (i = 0; i < 6; i++) {
		ck_assert_uint_eq(n, 0);
		ck_assert_int_eq(pawl_run_one(e), 1);
	}
	ck_assert_uint_eq(n, 2);
	ck_assert_uint_eq(version(e, v), 3);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A release at the end of the last launch is like one of an op: it waits neither for room ... */
START_TEST(test_a_release_pushes_at_a_full_window)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct again a = { 0 };
	struct pawl_op op[2] = { OP(nothing, &a, .release = release_pushes),
				 OP(nothing, &a, .release = release_pushes) };
	pawl_graph_t g;

	c.window = 1;
	c.window_policy = PAWL_WINDOW_BLOCK;
	a.e = engine_with(&c);
	a.v = var_new(a.e);
	g = graph_new(a.e, op, 2);
	OK(pawl_graph_push(a.e, g, NULL));
	OK(pawl_graph_delete(a.e, g));
	OK(pawl_wait_all(a.e, SOON_NS, NULL));
	ck_assert_uint_eq(a.n, 2);
	OK(pawl_engine_destroy(a.e));
}
END_TEST

/* ... nor for all ops, of which its own is one. */
static struct pawl_engine *waited;

static void release_waits(void *arg, int status)
{
	*(int *)arg = pawl_wait_all(waited, -1, NULL);
}

START_TEST(test_a_release_does_not_wait_for_its_own_launch)
{
	int rc = 0;
	struct pawl_op op = OP(nothing, &rc, .release = release_waits);
	pawl_graph_t g;

	waited = engine(PAWL_PER_DEVICE, 0);
	g = graph_new(waited, &op, 1);
	OK(pawl_graph_push(waited, g, NULL));
	OK(pawl_graph_delete(waited, g));
	OK(pawl_wait_all(waited, SOON_NS, NULL));
	ck_assert_int_eq(rc, -EDEADLK);
	OK(pawl_engine_destroy(waited));
}
END_TEST

SUITE("graph_launch", test_launches_in_flight_are_ordered_by_data,
      test_slots_are_other_vars_in_each_launch, test_a_slot_is_read_or_written,
      test_one_op_with_slots_and_arguments,
      test_a_private_slot_orders_one_launch_only, test_bad_launches_are_refused,
      test_a_launch_has_a_ticket_a_deadline_a_queue_and_a_group,
      test_a_launch_that_must_not_start, test_a_body_asks_about_its_launch, test_a_launch_counts_as_one_op,
      test_a_launch_that_finds_no_op_frees_none, test_a_launch_waits_for_an_op,
      test_deleted_while_launches_are_in_flight, test_a_release_pushes_at_a_full_window,
      test_a_release_does_not_wait_for_its_own_launch)
