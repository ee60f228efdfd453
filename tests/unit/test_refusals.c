// SPDX-License-Identifier: Apache-2.0
/* Errors of calls when something is used up, in use, or wrong, that no other suite names. */
#include "util.h"
#include <sys/mman.h>
#include <sys/resource.h>

START_TEST(test_queues_are_used_up)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_completion c;
	pawl_cq_t cq;
	u32 i;

	OK(pawl_cq_create(e, &cq));
	FAILS(pawl_cq_reap(e, cq, NULL, 1), -EINVAL, "cq_reap", "out");
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 0);
	for (i = 1; i < 1024; i++)
		OK(pawl_cq_create(e, &cq));
	FAILS(pawl_cq_create(e, &cq), -ENOMEM, "cq_create");
	OK(pawl_cq_destroy(e, cq));
	OK(pawl_cq_create(e, &cq));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_groups_are_used_up)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	pawl_group_t g;
	int rc, i = 0;

	c.max_ops = 64;
	c.max_threads = 2;
	e = engine_with(&c);
	while (!(rc = pawl_group_create(e, NULL, &g)) && i < 1 << 20)
		i++;
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert_int_ge(i, 64);
	FAILS(pawl_group_create(e, NULL, &g), -ENOMEM, "group_create");
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_no_descriptor_is_left)
{
	struct rlimit was, none = { 0, 0 };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_cq_t cq;

	OK(pawl_cq_create(e, &cq));
	OK(getrlimit(RLIMIT_NOFILE, &was));
	none.rlim_max = was.rlim_max;
	OK(setrlimit(RLIMIT_NOFILE, &none));
	FAILS(pawl_cq_fd(e, cq), -EMFILE, "cq_fd");
	FAILS(pawl_ready_fd(e), -EMFILE, "ready_fd");
	OK(setrlimit(RLIMIT_NOFILE, &was));
	ck_assert_int_ge(pawl_cq_fd(e, cq), 0);
	ck_assert_int_ge(pawl_ready_fd(e), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A wait for a ticket: from inside the op, and beside another thread's. */
static pawl_ticket_t ticket;

static int waits_for_itself(struct pawl_run *run, void *arg)
{
	*(int *)arg = pawl_ticket_wait(run->engine, ticket, -1);
	return 0;
}

static void *waits(void *arg)
{
	int rc;

	while ((rc = pawl_ticket_wait(arg, ticket, -1)) == -EBUSY)
		;
	MUST(!rc);
	return NULL;
}

START_TEST(test_a_ticket_has_one_waiter)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	struct pawl_op op;
	struct gate g;
	int inside = 0, rc;
	pthread_t t;

	op = op_write(waits_for_itself, &inside, &v);
	op.flags = PAWL_OP_TICKET;
	op.ticket = &ticket;
	gate_write(e, &g, v);
	OK(pawl_push(e, &op));
	t = spawn(waits, e);
	/* Now and then this thread is the first. */
	while ((rc = pawl_wait(e, PAWL_WAIT_TICKET | PAWL_WAIT_NO_HELP, ticket.h, 1000, NULL)) ==
	       -ETIMEDOUT)
		;
	ck_assert_int_eq(rc, -EBUSY);
	FAILS(pawl_ticket_wait(e, ticket, 0), -EBUSY, "ticket_wait");
	gate_open(&g);
	join(t);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_int_eq(inside, -EDEADLK);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_every_push_is_refused_at_the_window)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	pawl_graph_t g;
	pawl_var_t v;
	struct pawl_op op;
	u32 n = 0;

	c.window = 1;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	v = var_new(e);
	op = op_write(add_one, &n, &v);
	OK(pawl_graph_create(e, &op, 1, 0, &g));
	OK(pawl_push(e, &op));
	FAILS(pawl_push(e, &op), -EAGAIN, "window");
	FAILS(pawl_push_batch(e, &op, 1), -EAGAIN, "window");
	FAILS(pawl_graph_push(e, g, NULL), -EAGAIN, "window");
	FAILS(pawl_var_delete(e, v, NULL, NULL), -EAGAIN, "window");
	/* None of them had an effect. */
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_int_eq(pawl_run_one(e), 0);
	ck_assert_uint_eq(n, 1);
	OK(pawl_graph_push(e, g, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_push_batch(e, &op, 1));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_var_delete(e, v, NULL, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_running_trace_is_not_written)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	int rc = pawl_trace_start(e, 64);

	if (rc == -ENOSYS) {
		OK(pawl_engine_destroy(e));
		return;
	}
	OK(rc);
	FAILS(pawl_trace_write(e, "/dev/null"), -EBUSY, "trace_write");
	OK(pawl_trace_stop(e));
	OK(pawl_trace_write(e, "/dev/null"));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Locked pages cannot be given back.  Skipped if the system does not permit to lock any. */
START_TEST(test_locked_pages_are_not_trimmed)
{
	struct pawl_engine *e;
	pawl_var_t v[1000];
	u32 n = 0, i;

	if (SANITIZED)
		return;
	e = engine(PAWL_PER_DEVICE, 0);
	for (i = 0; i < COUNT(v); i++)
		v[i] = var_new(e);
	for (i = 0; i < COUNT(v); i++)
		OK(push_write(e, add_one, &n, v[i]));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < COUNT(v); i++)
		OK(pawl_var_delete(e, v[i], NULL, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	if (!mlockall(MCL_CURRENT)) {
		FAILS(pawl_trim(e), -EINVAL);
		OK(munlockall());
	}
	OK(pawl_trim(e));
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("refusals", test_queues_are_used_up, test_groups_are_used_up, test_no_descriptor_is_left,
      test_a_ticket_has_one_waiter, test_every_push_is_refused_at_the_window,
      test_a_running_trace_is_not_written, test_locked_pages_are_not_trimmed)
