// SPDX-License-Identifier: Apache-2.0
/*
 * The whole engine: nothing is replaced.  Without workers, the threads run what is ready and
 * help while they wait; with one, it is created by the first push and sleeps at the end.
 */
#include "engine.h"

#define S(...)	PROGRAM(__VA_ARGS__, .setup = engine_setup, .check = engine_check)
#define W(...)	PROGRAM(__VA_ARGS__, .setup = engine_setup_worker, .check = engine_check,	\
			.flags = MODEL_SLEEPS_OK)

#define T(...)	COMERS(__VA_ARGS__, .setup = engine_setup_few, .check = engine_check)

/* --- threads that sleep until an op is complete; nobody helps ------------------------ */

static struct pawl_engine *e;
static pawl_cq_t cq;
static pawl_ticket_t ticket;
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
	c.no_help = true;
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
		d.flags = PAWL_OP_CQ | PAWL_OP_TICKET;
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

static void ticket_sleep(u32 i)
{
	if (!i) {
		MODEL_CHECK(!pawl_complete(e, token, 0, NULL));
		return;
	}
	MODEL_CHECK(!pawl_ticket_wait(e, ticket, -1));
	data++;
}

#define Z(name_, what_, thread_)						\
	{ .name = name_, .what = what_, .threads = 2, .setup = sleep_setup,	\
	  .enter = sleep_enter, .thread = thread_, .bound = 3, .seconds = 6,	\
	  .flags = MODEL_NO_TIME }

const struct scenario scenarios[] = {
	Z("cq_sleep", "a thread sleeps until a completion arrives", cq_sleep),
	Z("ticket_sleep", "a thread sleeps until a ticket's op is complete", ticket_sleep),
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
