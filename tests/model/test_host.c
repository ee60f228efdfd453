// SPDX-License-Identifier: Apache-2.0
/*
 * Scenarios of what a host uses: completion queues, tickets, groups, costs, and the window.
 */
#include <core/opgroup.h>
#include <core/wait.h>
#include "api.h"

/* --- completion queues and tickets ------------------------------------------------- */

static pawl_cq_t cq;
static u64 reaped, destroyed, refused, was_canceled;

static int body_cq(struct pawl_run *run, void *arg)
{
	data[(uintptr_t)arg]++;
	note(&runs);
	return 0;
}

static void cq_before(void)
{
	MODEL_CHECK(!pawl_cq_create(e, &cq));
}

/* An op on a private var that names the queue; its tag is the number of the var. */
static int cq_push(u32 w, u32 flags, pawl_ticket_t *ticket)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.fn = body_cq;
	d.arg = (void *)(uintptr_t)w;
	d.writes = &var[w];
	d.nwrites = 1;
	d.flags = (u16)flags;
	if (flags & PAWL_OP_CQ) {
		d.cq = cq;
		d.tag = w;
	}
	d.ticket = flags & PAWL_OP_TICKET ? ticket : NULL;
	return pawl_push(e, &d);
}

static void cq_push_0(void)
{
	MODEL_CHECK(!cq_push(0, PAWL_OP_CQ, NULL));
	run_all();
}

static void cq_push_1(void)
{
	MODEL_CHECK(!cq_push(1, PAWL_OP_CQ, NULL));
	run_all();
}

static void cq_push_both(void)
{
	cq_push_0();
	cq_push_1();
}

static void cq_reap_one(void)
{
	struct pawl_completion c;
	int n = pawl_cq_reap(e, cq, &c, 1);

	MODEL_CHECK(n == 0 || n == 1 || n == -EBUSY);
	if (n != 1)
		return;
	MODEL_CHECK(!c.status && c.tag < 2);
	note(&reaped);
	data[c.tag]++;		/* written by the body; the queue ordered it */
}

static void cq_reap_twice(void)
{
	cq_reap_one();
	cq_reap_one();
}

static void cq_make_fd(void)
{
	MODEL_CHECK(pawl_cq_fd(e, cq) == MODEL_EVENT_FD);
}

static void cq_fd_before(void)
{
	cq_before();
	cq_make_fd();
}

static void cq_both_before(void)
{
	cq_before();
	cq_push_both();
}

/* Completions that were not reaped are announced, and each arrives once. */
static void cq_check(void)
{
	u64 n = reaped;

	if (reaped < runs && test->thread[1] != cq_push_1)
		MODEL_CHECK(model_event_readable());
	while (reaped < runs) {
		cq_reap_one();
		MODEL_CHECK(reaped == ++n);
	}
	MODEL_CHECK(!model_event_readable() && !pawl_cq_destroy(e, cq));
}

static void cq_check_all(void)
{
	u64 n = reaped;

	while (reaped < runs) {
		cq_reap_one();
		MODEL_CHECK(reaped == ++n);
	}
	MODEL_CHECK(reaped == 2 && !model_event_readable() && !pawl_cq_destroy(e, cq));
}

static void cq_push_race(void)
{
	int rc = cq_push(0, PAWL_OP_CQ, NULL);

	if (rc && rc != -ESTALE)
		model_fail("push: %d", rc);
	if (rc)
		note(&refused);
	run_all();
}

static void cq_destroy(void)
{
	int rc = pawl_cq_destroy(e, cq);

	if (rc && rc != -EBUSY)
		model_fail("cq_destroy: %d", rc);
	if (!rc)
		note(&destroyed);
}

static void cq_destroy_check(void)
{
	struct pawl_completion c;

	if (destroyed)
		MODEL_CHECK(refused == 1);
	else if (!refused)
		MODEL_CHECK(pawl_cq_reap(e, cq, &c, 1) == 1);
}

/*
 * A queue with a completion is not destroyed, and may be named, although a thread tries to
 * destroy it.
 */
static void cq_used_before(void)
{
	cq_before();
	MODEL_CHECK(!cq_push(0, PAWL_OP_CQ, NULL));
	run_all();
}

static void cq_destroy_used(void)
{
	MODEL_CHECK(pawl_cq_destroy(e, cq) == -EBUSY);
}

static void cq_look(void)
{
	MODEL_CHECK(!pawl_cq_wait(e, cq, 0));
}

/* A wait may find nothing; the queue is not destroyed. */
static void cq_wait_short(void)
{
	int rc = pawl_cq_wait(e, cq, 0);

	MODEL_CHECK(!rc || rc == -ETIMEDOUT);
}

/*
 * The object of a destroyed queue becomes another queue, whose completions only its own reaper
 * receives.
 */
static void cq_again(void)
{
	struct pawl_completion c;
	pawl_cq_t other;
	int rc = pawl_cq_destroy(e, cq);

	MODEL_CHECK(!rc || rc == -EBUSY);
	if (rc)
		return;
	MODEL_CHECK(!pawl_cq_create(e, &other));
	MODEL_CHECK((u32)other.h == (u32)cq.h);
	cq.h = other.h;
	MODEL_CHECK(!cq_push(0, PAWL_OP_CQ, NULL));
	run_all();
	MODEL_CHECK(pawl_cq_reap(e, other, &c, 1) == 1);
}

static void cq_reap_old(void)
{
	pawl_cq_t old = { load_relaxed(&passed) };
	struct pawl_completion c;
	int rc = pawl_cq_reap(e, old, &c, 1);

	MODEL_CHECK(!rc || rc == -ESTALE);
}

static void cq_old_before(void)
{
	cq_before();
	passed = cq.h;
}

/* A new queue that no op names is destroyed, also while a push has the old handle. */
static void cq_make_destroy(void)
{
	pawl_cq_t other;
	int rc = pawl_cq_destroy(e, cq);

	MODEL_CHECK(!rc || rc == -EBUSY);
	if (rc)
		return;
	MODEL_CHECK(!pawl_cq_create(e, &other));
	MODEL_CHECK((u32)other.h == (u32)cq.h);
	MODEL_CHECK(!pawl_cq_destroy(e, other));
}

static void ticket_push(void)
{
	pawl_ticket_t ticket;

	MODEL_CHECK(!cq_push(0, PAWL_OP_TICKET, &ticket));
	store_release(&passed, ticket.h);	/* as engine.h requires */
	run_all();
}

/* Then the note has another ticket. */
static void ticket_push_next(void)
{
	pawl_ticket_t next;

	ticket_push();
	MODEL_CHECK(!cq_push(1, PAWL_OP_TICKET, &next));
	MODEL_CHECK((u32)next.h == (u32)load_relaxed(&passed));
	run_all();
}

static void ticket_cancel(void)
{
	pawl_ticket_t ticket = { load_acquire(&passed) };

	if (!ticket.h)
		return;
	if (!pawl_cancel(e, ticket))
		note(&was_canceled);
}

static void ticket_look(void)
{
	pawl_ticket_t ticket = { load_acquire(&passed) };

	if (ticket.h && pawl_ticket_state(e, ticket) == PAWL_TICKET_COMPLETE)
		data[0]++;	/* written by the body; the state ordered it */
}

/* An op either runs or is canceled. */
static void ticket_check(void)
{
	MODEL_CHECK(runs + was_canceled == 1);
}

/* --- groups, costs and the window ------------------------------------------------ */

static pawl_group_t group;

/* There is room for one op in the window, and no op can be run. */
static void hold(struct pawl_run *run, void *arg)
{
	store_relaxed(&passed, run->token.h);
}

static void group_before(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .ops = 1, .tag = 1 };

	cq_before();
	l.cq = cq;
	MODEL_CHECK(!pawl_group_create(e, &l, &group));
}

static void group_push(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	d.fn = body_ok;
	d.flags = PAWL_OP_GROUP;
	d.group = group;
	rc = pawl_push(e, &d);
	MODEL_CHECK(!rc || rc == -EAGAIN || rc == -ESTALE);
	if (rc == -EAGAIN)
		note(&refused);
	run_all();
}

/* A refused push is notified: the group is empty. */
static void group_check(void)
{
	struct pawl_completion c;
	uint64_t ops;

	MODEL_CHECK(!pawl_group_count(e, group, &ops, NULL) && !ops);
	if (refused)
		MODEL_CHECK(pawl_cq_reap(e, cq, &c, 1) == 1 && c.tag == 1);
	/* A spurious completion may be left. */
	(void)!pawl_cq_reap(e, cq, &c, 1);
	MODEL_CHECK(!pawl_group_destroy(e, group));
}

/* A concurrent reaper: what it took counts. */
static void group_reap(void)
{
	struct pawl_completion c;

	if (pawl_cq_reap(e, cq, &c, 1) == 1)
		note(&reaped);
}

static void group_push_twice(void)
{
	group_push();
	group_push();
}

/* Nothing is in flight: room was reported for each refused push. */
static void room_told(const struct op_group *g)
{
	struct pawl_completion c;

	if (refused)
		MODEL_CHECK(reaped + (u64)pawl_cq_reap(e, cq, &c, 1));
	while (pawl_cq_reap(e, cq, &c, 1))
		;
	MODEL_CHECK(!load_relaxed(&g->room));
}

static void group_reap_check(void)
{
	room_told(pool_obj(e->pool[POOL_GROUP], (u32)group.h));
	MODEL_CHECK(!pawl_group_destroy(e, group));
}

/* Its op does not run meanwhile. */
static void group_push_race(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	d.fn = body_ok;
	d.flags = PAWL_OP_GROUP;
	d.group = group;
	rc = pawl_push(e, &d);
	MODEL_CHECK(!rc || rc == -ESTALE);
	/* The op has not run, so the group exists. */
	if (!rc)
		MODEL_CHECK(!pawl_group_count(e, group, NULL, NULL));
}

static void group_destroy(void)
{
	int rc = pawl_group_destroy(e, group);

	MODEL_CHECK(!rc || rc == -EBUSY);
	if (!rc)
		note(&destroyed);
}

static void group_destroy_check(void)
{
	if (!destroyed)
		MODEL_CHECK(!pawl_group_destroy(e, group));
}

/* A destroy that fails loses no room completion. */
static void group_busy_check(void)
{
	struct pawl_completion c;
	int n = pawl_cq_reap(e, cq, &c, 1);

	MODEL_CHECK(destroyed || !refused || n == 1);
}

/* A queue is named while others use the group. */
static void group_limit(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .ops = 1, .cq = cq, .tag = 1 };
	int rc = pawl_group_limit(e, group, &l);

	MODEL_CHECK(!rc || rc == -ESTALE);
}

static void group_limit_before(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .ops = 1 };

	cq_before();
	MODEL_CHECK(!pawl_group_create(e, &l, &group));
}

/* The group's note is freed with the group, otherwise the queue could not be destroyed. */
static void group_limit_check(void)
{
	struct pawl_completion c;

	if (pawl_cq_reap(e, cq, &c, 1) == 1)
		MODEL_CHECK(c.tag == 1);
	group_destroy_check();
	MODEL_CHECK(!pawl_cq_destroy(e, cq));
}

/* A limit on the cost of all ops, none of which belongs to a group. */
static void cost_before(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .cost = 1, .tag = 1 };

	cq_before();
	l.cq = cq;
	MODEL_CHECK(!pawl_group_limit(e, (pawl_group_t){ 0 }, &l));
}

static void cost_push(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	d.fn = body_ok;
	d.flags = PAWL_OP_COST;
	d.cost = 1;
	rc = pawl_push(e, &d);
	MODEL_CHECK(!rc || rc == -EAGAIN);
	if (rc)
		note(&refused);
	run_all();
}

static void cost_check(void)
{
	struct pawl_completion c;
	uint64_t cost;

	MODEL_CHECK(!pawl_group_count(e, (pawl_group_t){ 0 }, NULL, &cost) && !cost);
	if (refused)
		MODEL_CHECK(pawl_cq_reap(e, cq, &c, 1) == 1 && c.tag == 1);
}

static void cost_push_twice(void)
{
	cost_push();
	cost_push();
}

static void cost_reap_check(void)
{
	room_told(e->root);
}

/* Create a group, and pass its handle without an order to a concurrent push that names it. */
static void group_make(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .cost = 1 };
	pawl_group_t g;

	MODEL_CHECK(!pawl_group_create(e, &l, &g));
	store_relaxed(&passed, g.h);
}

static void group_push_new(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	d.fn = body_ok;
	d.flags = PAWL_OP_GROUP | PAWL_OP_COST;
	d.group.h = load_relaxed(&passed);
	d.cost = 2;

	if (!d.group.h)
		return;
	rc = pawl_push(e, &d);
	MODEL_CHECK(rc == -E2BIG || rc == -ESTALE);
}

/*
 * The object of a destroyed group becomes another group, which an old handle does not change.
 */
static void group_again(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	pawl_group_t other;
	int rc = pawl_group_destroy(e, group);

	MODEL_CHECK(!rc || rc == -EBUSY);
	if (rc)
		return;
	MODEL_CHECK(!pawl_group_create(e, NULL, &other));
	MODEL_CHECK((u32)other.h == (u32)group.h);
	d.fn = body_ok;
	d.flags = PAWL_OP_GROUP;
	d.group = other;
	note(&count_given);
	MODEL_CHECK(!pawl_push(e, &d));
	MODEL_CHECK(!pawl_push(e, &d));
	run_all();
	MODEL_CHECK(runs == 2);
}

static void group_cancel_old(void)
{
	int rc = pawl_group_cancel(e, group);

	MODEL_CHECK(!rc || rc == -ESTALE);
}

static void group_limit_old(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .ops = 1 };
	int rc = pawl_group_limit(e, group, &l);

	MODEL_CHECK(!rc || rc == -ESTALE);
}

static void group_none_before(void)
{
	MODEL_CHECK(!pawl_group_create(e, NULL, &group));
}

static void window_before(void)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.async_fn = hold;
	d.writes = &var[0];
	d.nwrites = 1;
	d.prop = PAWL_ASYNC;
	MODEL_CHECK(!pawl_push(e, &d));
}

static void window_push(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	d.fn = body_ok;
	d.writes = &var[0];
	d.nwrites = 1;
	rc = pawl_push(e, &d);
	MODEL_CHECK(!rc || rc == -EAGAIN);
	if (!rc)
		note(&count_given);
}

static void window_check(void)
{
	pawl_token_t token = { load_relaxed(&passed) };

	MODEL_CHECK(count_given <= 1);
	MODEL_CHECK(!pawl_complete(e, token, 0, NULL));
	run_all();
	MODEL_CHECK(runs == count_given + data[1]);
}

/* One of the two ops that fill the window may complete. */
static void window_full_before(void)
{
	window_before();
	push_ok(1);
}

static void window_push_twice(void)
{
	window_push();
	window_push();
}

static void window_run(void)
{
	MODEL_CHECK(pawl_run_one(e) == 1);
}

/* The engine reports when there is room. */
static void window_limit(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .tag = 1 };

	MODEL_CHECK(!pawl_cq_create(e, &cq));
	l.cq = cq;
	MODEL_CHECK(!pawl_group_limit(e, (pawl_group_t){ 0 }, &l));
}

static void window_room_before(void)
{
	window_limit();
	push_ok(0);
}

/* The window is full of a completion. */
static void window_reap_before(void)
{
	window_limit();
	cq_push_0();
}

static void window_room_push(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	d.fn = body_ok;
	d.writes = &var[1];
	d.nwrites = 1;
	d.arg = (void *)1;
	rc = pawl_push(e, &d);
	MODEL_CHECK(!rc || rc == -EAGAIN);
	if (rc)
		note(&refused);
}

/* A push that was refused is told, although nothing more completes. */
static void window_room_check(void)
{
	struct pawl_completion c;
	int n = pawl_cq_reap(e, cq, &c, 1);

	MODEL_CHECK(n == (int)refused);
	run_all();
	MODEL_CHECK(runs == 2 - refused);
}

const struct scenario scenarios[] = {
	T("cq_post", "two completions, and a reaper", 3, 3, 4, .before = cq_before,
	  .thread = { cq_push_0, cq_push_1, cq_reap_twice }, .check = cq_check_all),
	T("cq_fd", "an eventfd is made beside a completion", 2, MODEL_ALL, 4, .before = cq_before,
	  .thread = { cq_push_0, cq_make_fd }, .check = cq_check),
	T("cq_rest", "what is not reaped is announced", 2, MODEL_ALL, 4, .before = cq_fd_before,
	  .thread = { cq_push_both, cq_reap_twice }, .check = cq_check),
	T("cq_rest_fd", "an eventfd is made beside a reap of some", 2, MODEL_ALL, 4,
	  .before = cq_both_before, .thread = { cq_reap_one, cq_make_fd }, .check = cq_check),
	T("cq_empty_fd", "an eventfd is made while a reaper empties the queue", 2, MODEL_ALL, 4,
	  .before = cq_both_before, .thread = { cq_reap_twice, cq_make_fd }, .check = cq_check),
	T("cq_reapers", "two reapers at once", 3, 3, 4, .before = cq_before,
	  .thread = { cq_push_both, cq_reap_twice, cq_reap_one }, .check = cq_check_all),
	T("cq_destroy", "a queue goes while an op names it", 2, MODEL_ALL, 4, .before = cq_before,
	  .thread = { cq_push_race, cq_destroy }, .check = cq_destroy_check),
	T("cq_busy", "a destroy that fails changes nothing", 3, 3, 4, .before = cq_used_before,
	  .thread = { cq_destroy_used, cq_push_1, cq_look }),
	T("cq_wait", "a wait finds what another thread reaps", 3, 3, 4, .before = cq_before,
	  .thread = { cq_push_0, cq_wait_short, cq_reap_one }),
	T("cq_again", "an old handle reaps nothing of a new queue", 2, MODEL_ALL, 4,
	  .before = cq_old_before, .thread = { cq_again, cq_reap_old }),
	T("cq_stale", "nor does it keep a new queue from being destroyed", 2, MODEL_ALL, 4,
	  .before = cq_before, .thread = { cq_make_destroy, cq_push_race }),
	T("cancel", "an op is canceled as it starts", 2, MODEL_ALL, 4,
	  .thread = { ticket_push, ticket_cancel }, .check = ticket_check),
	T("ticket", "a ticket says that its op is complete", 2, MODEL_ALL, 4,
	  .thread = { ticket_push, ticket_look }),
	T("ticket_next", "also after its note has another ticket", 2, MODEL_ALL, 4,
	  .thread = { ticket_push_next, ticket_look }),
	T("group", "two pushes and room for one", 2, MODEL_ALL, 4, .before = group_before,
	  .thread = { group_push, group_push }, .check = group_check),
	T("group_reap", "room is reported, reaped, and wanted again", 3, 3, 4,
	  .before = group_before, .thread = { group_push_twice, group_push_twice, group_reap },
	  .check = group_reap_check),
	T("group_destroy", "a group goes while an op names it", 2, MODEL_ALL, 4,
	  .before = group_before, .thread = { group_push_race, group_destroy },
	  .check = group_destroy_check),
	T("group_busy", "a push is refused beside a destroy that fails", 3, 3, 4,
	  .before = group_before, .thread = { group_push, group_push, group_destroy },
	  .check = group_busy_check),
	T("group_note", "a queue is named beside a destroy", 2, MODEL_ALL, 4,
	  .before = group_limit_before, .thread = { group_limit, group_destroy },
	  .check = group_limit_check),
	T("group_note_late", "a queue is named beside pushes that are refused", 3, 3, 4,
	  .before = group_limit_before, .thread = { group_limit, group_push, group_push },
	  .check = group_limit_check),
	T("cost", "two pushes and room for the cost of one", 2, MODEL_ALL, 4,
	  .before = cost_before, .thread = { cost_push, cost_push }, .check = cost_check),
	T("cost_reap", "room is reported, reaped, and wanted again", 3, 3, 4,
	  .before = cost_before, .thread = { cost_push_twice, cost_push_twice, group_reap },
	  .check = cost_reap_check),
	T("group_new", "a push into a group that was just created", 2, MODEL_ALL, 4,
	  .thread = { group_make, group_push_new }),
	T("group_cancel", "an old handle cancels nothing of a new group", 2, MODEL_ALL, 4,
	  .before = group_none_before, .thread = { group_again, group_cancel_old }),
	T("group_limit", "an old handle limits nothing of a new group", 2, MODEL_ALL, 4,
	  .before = group_none_before, .thread = { group_again, group_limit_old }),
	T("window", "two threads push at the last place", 2, MODEL_ALL, 4, .before = window_before,
	  .thread = { window_push, window_push }, .check = window_check, .window = 2),
	T("window_leave", "room for one, which a thread frees that leaves", 2, MODEL_ALL, 4,
	  .before = window_full_before, .thread = { window_run, window_push_twice },
	  .check = window_check, .window = 2, .leaves = true),
	T("window_room", "a push is refused while the last op completes", 2, MODEL_ALL, 4,
	  .before = window_room_before, .thread = { window_run, window_room_push },
	  .check = window_room_check, .window = 1),
	T("window_reap", "a push is refused while the last completion is reaped", 2, MODEL_ALL, 4,
	  .before = window_reap_before, .thread = { cq_reap_one, window_room_push },
	  .check = window_room_check, .window = 1),
	{ .name = NULL },
};
