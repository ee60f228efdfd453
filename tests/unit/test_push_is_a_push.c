// SPDX-License-Identifier: Apache-2.0
/*
 * A push is a push: it runs no other op's body and waits for none, whatever else is ready.
 *
 * The only worker of the engine stays in a body, and behind it many ops are ready.  Each call
 * that makes ops ready is made in that state, by the host and by a body.
 */
#include "util.h"
#include <core/thread.h>

#define READY	3000u		/* more ops than any backlog that a cache could hold */

struct busy {
	struct pawl_engine *e;
	pawl_var_t v, held;
	pawl_token_t token;
	pawl_graph_t graph;
	pawl_group_t group;
	pawl_cq_t cq;
	pthread_t pusher;
	u32 ran, foreign;	/* A: bodies, and those of them on the pusher's thread */
	struct plug plug;
};

static int ready_body(struct pawl_run *run, void *arg)
{
	struct busy *b = arg;

	fetch_add_relaxed(&b->ran, 1);
	if (pthread_equal(pthread_self(), b->pusher))
		fetch_add_relaxed(&b->foreign, 1);
	return 0;
}

static void async_body(struct pawl_run *run, void *arg)
{
	((struct busy *)arg)->token = run->token;
}

static void push_op(struct busy *b)
{
	OK(push_write(b->e, ready_body, b, b->v));
}

static void push_batch(struct busy *b)
{
	struct pawl_op op[3];
	u32 i;

	for (i = 0; i < COUNT(op); i++)
		op[i] = op_write(ready_body, b, &b->v);
	OK(pawl_push_batch(b->e, op, COUNT(op)));
}

static void push_graph(struct busy *b)
{
	OK(pawl_graph_push(b->e, b->graph, NULL));
}

static void push_delete(struct busy *b)
{
	OK(pawl_var_delete(b->e, var_new(b->e), NULL, NULL));
}

/* Its own body runs inside the push; what it makes ready does not. */
static void push_async(struct busy *b)
{
	struct pawl_op op = op_write(NULL, b, &b->held);

	op.async_fn = async_body;
	op.prop = PAWL_ASYNC;
	OK(pawl_push(b->e, &op));
	op = op_write(ready_body, b, &b->held);
	OK(pawl_push(b->e, &op));
	OK(pawl_complete(b->e, b->token, 0, NULL));
}

static void cancel_group(struct busy *b)
{
	struct pawl_op op = op_write(ready_body, b, &b->v);

	op.flags = PAWL_OP_GROUP;
	op.group = b->group;
	OK(pawl_push(b->e, &op));
	OK(pawl_group_cancel(b->e, b->group));
}

static const struct {
	void (*call)(struct busy *b);
	const char *name;
} pushes[] = {
	{ push_op, "push" }, { push_batch, "batch" }, { push_graph, "graph" },
	{ push_delete, "delete" }, { push_async, "async, complete" }, { cancel_group, "group" },
};

static void busy_begin(struct busy *b, struct pawl_config *c)
{
	struct pawl_op op[2];
	u32 i;

	memset(b, 0, sizeof(*b));
	b->e = engine_with(c);
	b->pusher = pthread_self();
	b->v = var_new(b->e);
	b->held = var_new(b->e);
	for (i = 0; i < COUNT(op); i++)
		op[i] = op_write(ready_body, b, &b->v);
	OK(pawl_graph_create(b->e, op, COUNT(op), 0, &b->graph));
	OK(pawl_group_create(b->e, NULL, &b->group));
	plug_in(b->e, &b->plug, PAWL_NORMAL);
	for (i = 0; i < READY; i++)
		OK(push_write(b->e, ready_body, b, var_new(b->e)));
}

static void busy_end(struct busy *b)
{
	ck_assert_uint_eq(load_acquire(&b->ran), 0);
	plug_out(&b->plug);
	pawl_wait_all(b->e, SOON_NS, NULL);
	ck_assert_uint_ge(b->ran, READY);
	ck_assert_uint_eq(b->foreign, 0);
	ck_assert_uint_eq(stats(b->e).helped, 0);
	OK(pawl_engine_destroy(b->e));
}

START_TEST(test_a_push_runs_no_other_op)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct busy b;
	u32 i;

	c.max_ops = 1 << 14;
	c.max_vars = 1 << 14;
	busy_begin(&b, &c);
	for (i = 0; i < COUNT(pushes); i++) {
		pushes[i].call(&b);
		ck_assert_msg(!load_acquire(&b.ran), "%s", pushes[i].name);
	}
	busy_end(&b);
}
END_TEST

/* The body of one engine pushes to another one, whose window is full and whose pool is empty. */
struct two {
	struct pawl_engine *other;
	pawl_var_t v;
	u32 pushed;
	int rc;		/* A: of the push that was refused */
};

static int push_until_refused(struct pawl_run *run, void *arg)
{
	struct two *w = arg;
	int rc;

	while (!(rc = push_write(w->other, nothing, NULL, w->v)))
		w->pushed++;
	store_release(&w->rc, rc);
	return 0;
}

START_TEST(test_a_push_in_a_body_never_waits)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1), d = small(PAWL_PER_DEVICE, 1);
	u32 same;

	d.window = 8;
	d.max_ops = 256;
	d.max_threads = 8;
	for (same = 0; same < 2; same++) {
		struct pawl_engine *e = engine_with(same ? &d : &c);
		struct two w = { .other = same ? e : engine_with(&d) };
		struct gate g;

		w.v = var_new(w.other);
		gate_write(w.other, &g, w.v);
		OK(push_write(e, push_until_refused, &w, var_new(e)));
		OK(pawl_wait(e, same ? PAWL_WAIT_READABLE : PAWL_WAIT_ALL,
			     same ? var_new(e).h : 0, SOON_NS, NULL));
		MUST(soon(load_acquire(&w.rc)));
		ck_assert_int_eq(w.rc, -EAGAIN);
		ck_assert_uint_ge(w.pushed, 256 - 8);
		gate_open(&g);
		OK(pawl_wait_all(w.other, SOON_NS, NULL));
		if (!same)
			OK(pawl_engine_destroy(w.other));
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* --- a wait ends when it should, and runs what it waits for --- */

static void wait_limited(struct busy *b, u32 k)
{
	static const u32 what[] = { PAWL_WAIT_READABLE, PAWL_WAIT_WRITABLE, PAWL_WAIT_ALL,
				    PAWL_WAIT_CQ, PAWL_WAIT_TICKET, PAWL_WAIT_GROUP };
	struct pawl_op op = op_write(ready_body, b, &b->v);
	pawl_ticket_t ticket;
	u64 h;

	op.flags = PAWL_OP_TICKET | PAWL_OP_GROUP;
	op.ticket = &ticket;
	op.group = b->group;
	OK(pawl_push(b->e, &op));
	h = k < 2 ? b->v.h : k == 2 ? 0 : k == 3 ? b->cq.h : k == 4 ? ticket.h : b->group.h;
	ck_assert_int_eq(pawl_wait(b->e, what[k], h, 1000000, NULL), -ETIMEDOUT);
}

START_TEST(test_a_wait_with_a_limit_runs_nothing)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct busy b;
	u32 k;

	c.max_ops = 1 << 14;
	c.max_vars = 1 << 14;
	busy_begin(&b, &c);
	OK(pawl_cq_create(b.e, &b.cq));
	for (k = 0; k < 6; k++) {
		wait_limited(&b, k);
		ck_assert_msg(!load_acquire(&b.ran), "wait %u", k);
	}
	busy_end(&b);
}
END_TEST

/* It is next in the thread's own ring, and the only worker is busy. */
START_TEST(test_a_wait_without_a_limit_runs_what_it_waits_for)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	pawl_ticket_t ticket;
	struct pawl_op op;
	struct busy b;
	u32 k, i, n;

	for (k = 0; k < 4; k++) {
		memset(&b, 0, sizeof(b));
		b.e = engine_with(&c);
		b.pusher = pthread_self();
		b.v = var_new(b.e);
		OK(pawl_group_create(b.e, NULL, &b.group));
		plug_in(b.e, &b.plug, PAWL_NORMAL);
		op = op_write(ready_body, &b, &b.v);
		op.flags = PAWL_OP_TICKET | PAWL_OP_GROUP;
		op.ticket = &ticket;
		op.group = b.group;
		n = k == 3 ? 1 : 2;	/* the op before one with a ticket has none */
		for (i = 0; i < n; i++)
			OK(pawl_push(b.e, &op));
		if (k < 2)
			OK((k ? pawl_wait_writable : pawl_wait_readable)(b.e, b.v, -1, NULL));
		else if (k == 2)
			OK(pawl_group_wait(b.e, b.group, -1));
		else
			OK(pawl_ticket_wait(b.e, ticket, -1));
		ck_assert_uint_eq(load_acquire(&b.ran), n);
		ck_assert_uint_eq(b.foreign, n);
		plug_out(&b.plug);
		OK(pawl_wait_all(b.e, SOON_NS, NULL));
		ck_assert_uint_eq(b.ran, n);
		OK(pawl_engine_destroy(b.e));
	}
}
END_TEST

SUITE("push_is_a_push", test_a_push_runs_no_other_op, test_a_push_in_a_body_never_waits,
      test_a_wait_with_a_limit_runs_nothing, test_a_wait_without_a_limit_runs_what_it_waits_for)
