// SPDX-License-Identifier: Apache-2.0
/*
 * The whole engine: nothing is replaced.  Without workers, the threads run what is ready and
 * help while they wait.  With one worker, the first push creates it, and it sleeps at the end.
 */
#include "engine.h"
#include "event.h"

#define S(...)	PROGRAM(__VA_ARGS__, .setup = engine_setup, .check = engine_check)
#define W(...)	PROGRAM(__VA_ARGS__, .setup = engine_setup_worker, .check = engine_check,	\
			.flags = MODEL_SLEEPS_OK)

#define T(...)	COMERS(__VA_ARGS__, .setup = engine_setup_few, .check = engine_check)

/* --- threads that sleep until an op is complete; nobody helps ------------------------ */

static struct pawl_engine *e;
static pawl_cq_t cq;
static pawl_ticket_t ticket;
static pawl_group_t group;
static pawl_token_t token;
static u64 data;

static void async_body(struct pawl_run *run, void *arg)
{
	data++;
	token = run->token;
}

static void sleep_setup(void)
{
	struct pawl_config c;

	pawl_config_init(&c);
	c.workers = 0;
	c.max_ops = 64;
	c.max_vars = 16;
	c.max_threads = 8;
	c.spin_ns = 0;
	if (pawl_engine_create(&c, &e))
		model_fail("create: %s", pawl_error_text());
}

/* Thread 0 has an op that it will complete. */
static void sleep_enter(u32 i)
{
	struct pawl_op d = PAWL_OP_INIT;

	if (!thread_get(e))
		model_fail("enter");
	if (!i) {
		MODEL_CHECK(!pawl_cq_create(e, &cq));
		d.async_fn = async_body;
		d.prop = PAWL_ASYNC;
		MODEL_CHECK(!pawl_group_create(e, NULL, &group));
		d.flags = PAWL_OP_CQ | PAWL_OP_TICKET | PAWL_OP_GROUP;
		d.group = group;
		d.cq = cq;
		d.ticket = &ticket;
		MODEL_CHECK(!pawl_push(e, &d));
	}
	model_forget_exit();
}

static void cq_sleep(u32 i)
{
	struct pawl_completion c;

	if (!i) {
		MODEL_CHECK(!pawl_complete(e, token, 0, NULL));
		return;
	}
	MODEL_CHECK(!pawl_cq_wait(e, cq, -1));
	MODEL_CHECK(pawl_cq_reap(e, cq, &c, 1) == 1);
	data++;
}

/*
 * Thread 0 completes two ops, and thread 2 reaps one completion.  Thread 1, which waits or
 * makes the eventfd, is notified of the other one.
 */
static pawl_token_t both[4];

static void both_body(struct pawl_run *run, void *arg)
{
	*(pawl_token_t *)arg = run->token;
}

static void cq_enter_both(u32 i)
{
	struct pawl_op d = PAWL_OP_INIT;
	u32 k;

	if (!thread_get(e))
		model_fail("enter");
	if (!i) {
		MODEL_CHECK(!pawl_cq_create(e, &cq));
		d.async_fn = both_body;
		d.prop = PAWL_ASYNC;
		d.flags = PAWL_OP_CQ;
		d.cq = cq;
		for (k = 0; k < ARRAY_SIZE(both); k++) {
			d.arg = &both[k];
			MODEL_CHECK(!pawl_push(e, &d));
		}
	}
	model_forget_exit();
}

static void cq_complete_both(void)
{
	MODEL_CHECK(!pawl_complete(e, both[0], 0, NULL));
	MODEL_CHECK(!pawl_complete(e, both[1], 0, NULL));
}

static void cq_sleep_rest(u32 i)
{
	struct pawl_completion c;

	if (!i)
		cq_complete_both();
	else if (i == 1)
		MODEL_CHECK(!pawl_cq_wait(e, cq, -1));
	else
		MODEL_CHECK(pawl_cq_reap(e, cq, &c, 1) >= 0);
}

/* Threads 0 and 2 each complete an op; one of them may be stopped. */
static void cq_complete_one(u32 i)
{
	MODEL_CHECK(!pawl_complete(e, both[i / 2], 0, NULL));
}

static void cq_sleep_stop(u32 i)
{
	if (i == 1)
		MODEL_CHECK(!pawl_cq_wait(e, cq, -1));
	else
		cq_complete_one(i);
}

/*
 * Each of them completes two ops, and one may be stopped after the other completion that it had
 * found was reaped.
 */
static void cq_sleep_late(u32 i)
{
	struct pawl_completion c;
	u32 k;

	for (k = 0; k < 2; k++)
		if (i != 1)
			MODEL_CHECK(!pawl_complete(e, both[i + k], 0, NULL));
		else
			MODEL_CHECK(!pawl_cq_wait(e, cq, -1) && pawl_cq_reap(e, cq, &c, 1) == 1);
}

static void cq_enter_fd(u32 i)
{
	cq_enter_both(i);
	if (!i)
		MODEL_CHECK(pawl_cq_fd(e, cq) == MODEL_EVENT_FD);
}

static void cq_fd_stop(u32 i)
{
	if (i != 1)
		cq_complete_one(i);
	while (i == 1 && !model_event_readable())
		cpu_relax();
}

/* All of them ask for the eventfd, and one completer may be stopped, which may have made it. */
static void cq_fd_all(u32 i)
{
	if (i != 1)
		cq_complete_one(i);
	MODEL_CHECK(pawl_cq_fd(e, cq) == MODEL_EVENT_FD);
	while (i == 1 && !model_event_readable())
		cpu_relax();
}

/* A thread waits for a queue that another thread destroys. */
static void cq_enter_gone(u32 i)
{
	if (!thread_get(e))
		model_fail("enter");
	if (!i)
		MODEL_CHECK(!pawl_cq_create(e, &cq));
	model_forget_exit();
}

static void cq_sleep_gone(u32 i)
{
	if (!i)
		MODEL_CHECK(!pawl_cq_destroy(e, cq));
	else
		MODEL_CHECK(pawl_cq_wait(e, cq, -1) == -ESTALE);
}

/* The object is reused at once for another queue, for which a thread waits. */
static void cq_sleep_again(u32 i)
{
	pawl_cq_t other;

	cq_sleep_gone(i);
	if (i)
		return;
	MODEL_CHECK(!pawl_cq_create(e, &other));
	MODEL_CHECK((u32)other.h == (u32)cq.h);
	MODEL_CHECK(pawl_cq_wait(e, other, 0) == -ETIMEDOUT);
}

static void ticket_sleep(u32 i)
{
	if (!i) {
		MODEL_CHECK(!pawl_complete(e, token, 0, NULL));
		return;
	}
	MODEL_CHECK(!pawl_ticket_wait(e, ticket, -1));
	data++;
}

static void group_sleep(u32 i)
{
	if (!i) {
		MODEL_CHECK(!pawl_complete(e, token, 0, NULL));
		return;
	}
	MODEL_CHECK(!pawl_group_wait(e, group, -1));
	data++;
}

/*
 * A thread waits for an op whose note belonged to an earlier op, for which another thread still
 * waits.
 */
static u64 second;			/* A */

static void ticket_sleep_again(u32 i)
{
	struct pawl_op d = PAWL_OP_INIT;
	struct pawl_completion c;
	pawl_ticket_t again;

	switch (i) {
	case 0:
		MODEL_CHECK(!pawl_complete(e, token, 0, NULL));
		MODEL_CHECK(pawl_cq_reap(e, cq, &c, 1) == 1);
		d.async_fn = async_body;
		d.prop = PAWL_ASYNC;
		d.flags = PAWL_OP_TICKET;
		d.ticket = &again;
		MODEL_CHECK(!pawl_push(e, &d));
		MODEL_CHECK((u32)again.h == (u32)ticket.h);
		/* The later one of threads 0 and 2 completes it. */
		if (xchg_acq_rel(&second, 1))
			MODEL_CHECK(!pawl_complete(e, token, 0, NULL));
		MODEL_CHECK(!pawl_ticket_wait(e, again, -1));
		return;
	case 1:
		MODEL_CHECK(!pawl_ticket_wait(e, ticket, -1));
		return;
	default:
		if (xchg_acq_rel(&second, 1))
			MODEL_CHECK(!pawl_complete(e, token, 0, NULL));
	}
}

/* A thread waits for a group, which another thread destroys when it is empty. */
static void group_sleep_again(u32 i)
{
	struct pawl_group_limits l = { .size = sizeof(l), .ops = 1 };
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	switch (i) {
	case 0:
		MODEL_CHECK(!pawl_complete(e, token, 0, NULL));
		return;
	case 1:
		rc = pawl_group_wait(e, group, -1);
		MODEL_CHECK(!rc || rc == -ESTALE);
		return;
	default:
		rc = pawl_group_destroy(e, group);
		MODEL_CHECK(!rc || rc == -EBUSY);
		if (rc)
			return;
		MODEL_CHECK(!pawl_group_create(e, &l, &d.group));
		MODEL_CHECK((u32)d.group.h == (u32)group.h);
		d.async_fn = async_body;
		d.prop = PAWL_ASYNC;
		d.flags = PAWL_OP_GROUP;
		MODEL_CHECK(!pawl_push(e, &d));
	}
}

/* The group has room for the cost of the op that thread 0 will complete. */
static void group_enter_cost(u32 i)
{
	struct pawl_group_limits l = { .size = sizeof(l), .cost = 1 };
	struct pawl_op d = PAWL_OP_INIT;

	if (!thread_get(e))
		model_fail("enter");
	if (!i) {
		d.async_fn = async_body;
		d.prop = PAWL_ASYNC;
		MODEL_CHECK(!pawl_group_create(e, &l, &group));
		d.flags = PAWL_OP_GROUP | PAWL_OP_COST;
		d.group = group;
		d.cost = 1;
		MODEL_CHECK(!pawl_push(e, &d));
	}
	model_forget_exit();
}

static int ends_at_once(struct pawl_run *run, void *arg)
{
	return 0;
}

/* A push that is refused counts for a moment, and then the group is destroyed. */
static void group_sleep_refused(u32 i)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	switch (i) {
	case 0:
		MODEL_CHECK(!pawl_complete(e, token, 0, NULL));
		rc = pawl_group_destroy(e, group);
		MODEL_CHECK(!rc || rc == -EBUSY);
		return;
	case 1:
		rc = pawl_group_wait(e, group, -1);
		MODEL_CHECK(!rc || rc == -ESTALE);
		return;
	default:
		d.fn = ends_at_once;
		d.prop = PAWL_ASYNC;
		d.flags = PAWL_OP_GROUP | PAWL_OP_COST;
		d.group = group;
		d.cost = 1;
		rc = pawl_push(e, &d);
		MODEL_CHECK(!rc || rc == -EAGAIN || rc == -ESTALE);
	}
}

static void interrupt_sleep(u32 i)
{
	if (!i) {
		data++;
		pawl_interrupt(e);
		return;
	}
	MODEL_CHECK(pawl_wait(e, PAWL_WAIT_GROUP | PAWL_WAIT_INTR, group.h, -1, NULL) == -EINTR);
	data++;
}

/* The op ends at the same time: an interrupt ends one wait, this one or the next. */
static pawl_var_t intr_var;
static u64 intr_rc;		/* the books: model_note() */

static void interrupt_enter(u32 i)
{
	struct pawl_op d = PAWL_OP_INIT;

	if (!thread_get(e))
		model_fail("enter");
	if (!i) {
		MODEL_CHECK(!pawl_var_create(e, &intr_var));
		d.async_fn = async_body;
		d.prop = PAWL_ASYNC;
		d.writes = &intr_var;
		d.nwrites = 1;
		MODEL_CHECK(!pawl_push(e, &d));
	}
	model_forget_exit();
}

static void interrupt_grant(u32 i)
{
	int rc;

	if (!i) {
		pawl_interrupt(e);
		MODEL_CHECK(!pawl_complete(e, token, 0, NULL));
		return;
	}
	rc = pawl_wait(e, PAWL_WAIT_READABLE | PAWL_WAIT_INTR, intr_var.h, -1, NULL);
	MODEL_CHECK(!rc || rc == -EINTR);
	model_note(&intr_rc, (u64)-rc);
	/* By the op that the first wait left behind, if it did. */
	MODEL_CHECK(!pawl_wait_readable(e, intr_var, -1, NULL));
}

static void interrupt_check(void)
{
	if (intr_rc ? load_relaxed(&e->interrupted) : !load_relaxed(&e->interrupted))
		model_fail("a wait returned %d, and %u interrupts are pending", -(int)intr_rc,
			   load_relaxed(&e->interrupted));
	/* The op that the first wait left behind, if it was granted before the second wait. */
	while (pawl_run_one(e))
		;
	MODEL_CHECK(!ops_in_flight(e));
}

#define Z(name_, what_, threads_, thread_)					\
	{ .name = name_, .what = what_, .threads = threads_, .setup = sleep_setup,	\
	  .enter = sleep_enter, .thread = thread_, .bound = 3, .seconds = 6,	\
	  .flags = MODEL_NO_TIME }

/* --- graphs: two ops between two, on vars 0 and 1 ------------------------------------------ */

static u64 nodes[4];		/* plain: how often each body ran */

static int node_body(struct pawl_run *run, void *arg)
{
	u32 i = (u32)(uintptr_t)arg;

	nodes[i]++;
	if (i == 1 || i == 2)
		model_point();
	if (i && (nodes[0] != nodes[i] || (i == 3 && (nodes[1] != nodes[i] || nodes[2] != nodes[i]))))
		model_fail("node %u runs in the wrong place", i);
	return 0;
}

static void graph_make(void)
{
	struct pawl_op d[4];
	u32 i;

	for (i = 0; i < 4; i++) {
		d[i] = (struct pawl_op)PAWL_OP_INIT;
		d[i].fn = node_body;
		d[i].arg = (void *)(uintptr_t)i;
		d[i].writes = me.var;
		d[i].nwrites = 1;
	}
	for (i = 1; i < 3; i++) {
		d[i].nwrites = 0;
		d[i].reads = me.var;
		d[i].nreads = 1;
	}
	MODEL_CHECK(!pawl_graph_create(me.e, d, 4, 0, &me.group));
}

static void graph_setup(void)
{
	engine_setup();
	graph_make();
}

static void graph_setup_worker(void)
{
	engine_setup_worker();
	graph_make();
}

static void graph_check(void)
{
	u64 v;

	while (pawl_run_one(me.e))
		;
	MODEL_CHECK(!pawl_graph_delete(me.e, me.group));
	MODEL_CHECK(!pawl_var_version(me.e, me.var[0], &v) && v == nodes[0]);
	MODEL_CHECK(nodes[3] == nodes[0] && nodes[0] == (me.nprog == 2 ? 2 : 1));
	/* The var's version is that of its launches, not of ops that the oracle knows. */
	model_note(&me.writes[0], v);
	engine_check();
}

#define N(name_, program_, threads_, bound_, setup_, ...)			\
	{ .name = name_, .what = program_, .arg = program_, .threads = threads_,	\
	  .setup = setup_, .enter = engine_enter, .thread = engine_thread,	\
	  .check = graph_check, .bound = bound_, .seconds = 6, __VA_ARGS__ }

/* --- pushers at a window of two ops, which are in flight -------------------------------- */

#define WINDOW	2u

static pawl_token_t held[WINDOW];
static u64 ended, asked, runs;

static void held_body(struct pawl_run *run, void *arg)
{
	*(pawl_token_t *)arg = run->token;
}

/* An op must be admitted only when there is room. */
static int admitted_body(struct pawl_run *run, void *arg)
{
	if (!ended)
		model_fail("an op runs while %u are in flight", WINDOW);
	model_note(&runs, runs + 1);
	return 0;
}

static int ready_body(struct pawl_run *run, void *arg)
{
	model_note(&ended, ended + 1);
	return 0;
}

/* A body that ends only after this many pushers are admitted. */
static u64 admitted;	/* A */

static int body_until(struct pawl_run *run, void *arg)
{
	while (load_acquire(&admitted) < (uintptr_t)arg)
		cpu_relax();
	model_note(&ended, ended + 1);
	return 0;
}

static void gate_config(int policy, int workers)
{
	struct pawl_config c;

	pawl_config_init(&c);
	c.workers = workers;
	c.priority_workers = workers;
	c.copy_workers = 1;
	c.window_policy = policy;
	c.window = WINDOW;
	c.max_ops = 64;
	c.max_vars = 16;
	c.max_threads = 8;
	c.spin_ns = 0;
	if (pawl_engine_create(&c, &e))
		model_fail("create: %s", pawl_error_text());
}

#define GATE_READY	100	/* instead of a policy: BLOCK, and a pusher runs what is in flight */

static void gate_setup(void)
{
	int policy = *(const int *)model_arg();

	gate_config(policy == GATE_READY ? PAWL_WINDOW_BLOCK : policy, 0);
}

static void gate_setup_worker(void)
{
	gate_config(PAWL_WINDOW_BLOCK, 1);
}

/* With GATE_READY they are ready; otherwise thread 0 completes them. */
static void gate_enter(u32 i)
{
	struct pawl_op d = PAWL_OP_INIT;
	u32 k;

	if (!thread_get(e))
		model_fail("enter");
	for (k = 0; !i && k < WINDOW; k++) {
		if (*(const int *)model_arg() == GATE_READY) {
			d.fn = ready_body;
		} else {
			d.async_fn = held_body;
			d.prop = PAWL_ASYNC;
			d.arg = &held[k];
		}
		MODEL_CHECK(!pawl_push(e, &d));
	}
	model_forget_exit();
}

static void gate_push(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	model_note(&asked, asked + 1);
	d.fn = admitted_body;
	d.prop = PAWL_ASYNC;	/* it runs inside the push */
	rc = pawl_push(e, &d);
	MODEL_CHECK(!rc || (rc == -EAGAIN && *(const int *)model_arg() == PAWL_WINDOW_FAIL));
	if (rc)
		model_note(&runs, runs + 1);
}

static void gate_thread(u32 i)
{
	u32 k;

	if (i) {
		gate_push();
		return;
	}
	for (k = 0; k < WINDOW; k++) {
		model_note(&ended, ended + 1);
		MODEL_CHECK(!pawl_complete(e, held[k], 0, NULL));
	}
}

static void gate_help(u32 i)
{
	if (i)
		gate_push();
	else
		MODEL_CHECK(pawl_run_one(e) >= 0);
}

/* The worker completes the first op, and stays in the second until a pusher is admitted. */
static void gate_enter_worker(u32 i)
{
	struct pawl_op d = PAWL_OP_INIT;
	u64 k;

	if (!thread_get(e))
		model_fail("enter");
	d.fn = body_until;
	/* The first push starts the worker, as the last thread. */
	for (k = 0; i + 1 == *(const u32 *)model_arg() && k < WINDOW; k++) {
		d.arg = (void *)(uintptr_t)k;
		MODEL_CHECK(!pawl_push(e, &d));
	}
	model_forget_exit();
}

static void gate_worker(u32 i)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.fn = body_until;
	d.arg = (void *)(uintptr_t)*(const u32 *)model_arg();
	MODEL_CHECK(!pawl_push(e, &d));
	fetch_add_release(&admitted, 1);
}

static void gate_check(void)
{
	while (pawl_run_one(e))
		;
	MODEL_CHECK(ended == WINDOW && runs == asked);
	MODEL_CHECK(!ops_in_flight(e));
}

#define G(name_, what_, threads_, bound_, thread_, policy_)				\
	{ .name = name_, .what = what_, .threads = threads_, .setup = gate_setup,	\
	  .enter = gate_enter, .thread = thread_, .check = gate_check, .bound = bound_,	\
	  .seconds = 6, .flags = MODEL_NO_TIME, .arg = &(const int){ policy_ } }

/* With weak memory a sleeper may have to check by itself: CORE-N14. */
#define GW(name_, what_, threads_, bound_)						\
	{ .name = name_, .what = what_, .threads = threads_, .setup = gate_setup_worker,	\
	  .enter = gate_enter_worker, .thread = gate_worker, .bound = bound_, .seconds = 6,	\
	  .flags = MODEL_TIME_IF_WEAK | MODEL_SLEEPS_OK, .arg = &(const u32){ threads_ } }

const struct scenario scenarios[] = {
	N("graph", "G r0 | G", 2, 2, graph_setup),
	N("graph_3", "G r0 | . | .", 3, 1, graph_setup),
	N("graph_worker", "G R0", 1, 2, graph_setup_worker, .flags = MODEL_SLEEPS_OK),
	G("gate", "a pusher sleeps until there is room", 2, 3, gate_thread, PAWL_WINDOW_BLOCK),
	G("gate_fail", "two pushers, and room comes", 3, 3, gate_thread, PAWL_WINDOW_FAIL),
	G("gate_help", "a pusher runs ops, which another thread takes, too", 2, 3, gate_help,
	  GATE_READY),
	G("gate_help_2", "two pushers run ops", 3, 2, gate_help, GATE_READY),
	GW("gate_worker", "a worker that goes on wakes a pusher at once", 1, 3),
	GW("gate_worker_2", "it wakes two pushers, each within one op", 2, 2),
	Z("cq_sleep", "a thread sleeps until a completion arrives", 2, cq_sleep),
	{ .name = "cq_sleep_rest", .what = "a thread sleeps while another one reaps some",
	  .threads = 3, .setup = sleep_setup, .enter = cq_enter_both, .thread = cq_sleep_rest,
	  .bound = 2, .seconds = 6, .flags = MODEL_NO_TIME },
	{ .name = "cq_sleep_stop", .what = "two completions, and a completer is stopped",
	  .threads = 3, .setup = sleep_setup, .enter = cq_enter_both, .thread = cq_sleep_stop,
	  .bound = 2, .seconds = 6, .flags = MODEL_NO_TIME | MODEL_FREEZE },
	{ .name = "cq_sleep_late", .what = "and two more", .threads = 3, .setup = sleep_setup,
	  .enter = cq_enter_both, .thread = cq_sleep_late, .bound = 2, .seconds = 6,
	  .flags = MODEL_NO_TIME | MODEL_FREEZE },
	{ .name = "cq_fd_stop", .what = "another thread reads the eventfd",
	  .threads = 3, .setup = sleep_setup, .enter = cq_enter_fd, .thread = cq_fd_stop,
	  .bound = 2, .seconds = 6, .flags = MODEL_NO_TIME | MODEL_FREEZE },
	{ .name = "cq_fd_all", .what = "each thread asks for the eventfd",
	  .threads = 3, .setup = sleep_setup, .enter = cq_enter_both, .thread = cq_fd_all,
	  .bound = 2, .seconds = 6, .flags = MODEL_NO_TIME | MODEL_FREEZE },
	{ .name = "cq_sleep_gone", .what = "a thread sleeps while its queue is destroyed",
	  .threads = 2, .setup = sleep_setup, .enter = cq_enter_gone, .thread = cq_sleep_gone,
	  .bound = 3, .seconds = 6, .flags = MODEL_NO_TIME },
	{ .name = "cq_sleep_again", .what = "and its object is another queue", .threads = 2,
	  .setup = sleep_setup, .enter = cq_enter_gone, .thread = cq_sleep_again,
	  .bound = 3, .seconds = 6, .flags = MODEL_NO_TIME },
	Z("ticket_sleep", "a thread sleeps until a ticket's op is complete", 2, ticket_sleep),
	Z("group_sleep", "a thread sleeps until a group is empty", 2, group_sleep),
	Z("ticket_sleep_again", "of an op whose note had another ticket", 3, ticket_sleep_again),
	Z("group_sleep_again", "a group goes, and is another one", 3, group_sleep_again),
	{ .name = "group_sleep_refused", .what = "a group goes while a push to it is refused",
	  .threads = 3, .setup = sleep_setup, .enter = group_enter_cost,
	  .thread = group_sleep_refused, .bound = 3, .seconds = 6, .flags = MODEL_NO_TIME },
	Z("interrupt_sleep", "a thread sleeps until it is interrupted", 2, interrupt_sleep),
	{ .name = "interrupt_grant", .what = "it is interrupted when the var is granted",
	  .threads = 2, .setup = sleep_setup, .enter = interrupt_enter, .thread = interrupt_grant,
	  .check = interrupt_check, .bound = 3, .seconds = 6, .flags = MODEL_NO_TIME },
	S("run_ww", "w0 | w0", 2, MODEL_ALL, 6),
	S("run_pair", "w0w1 | r0w1", 2, 3, 6),
	S("run_3", "w0 | r0 | w0", 3, 2, 6),
	S("wait_readable", "w0 R0 | w0", 2, 3, 6),
	S("wait_writable", "r0 W0 | r0", 2, 3, 6),
	S("wait_all", "w0 A | w1", 2, 3, 6),
	S("wait_all_2", "w0 A | w0 A", 2, 2, 6),
	S("prio", "p2w0 m1r0 | w0", 2, 2, 6),
	S("batch", "w0r1+r0 | w1", 2, 2, 6),
	S("delete", "d0 | w0 | r0", 3, 2, 6),
	S("delete_all", "d0 A | w0", 2, 3, 6),
	W("worker_w", "w0 W0", 1, 3, 6),
	W("worker_ww", "w0 | w0", 2, 2, 6),
	W("worker_all", "w0 r0 A", 1, 2, 6),
	W("worker_stop", "w0 S", 1, 2, 6),
	W("worker_stop_2", "w0 S | w0", 2, 2, 6),
	W("worker_destroy", "w0 X", 1, 2, 3),
	{ .name = NULL },
};
