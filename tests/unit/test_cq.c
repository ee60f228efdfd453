// SPDX-License-Identifier: Apache-2.0
/* Completion queues, tickets and deadlines behave as engine.h says. */
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include "util.h"
#include "trap.h"
#include <core/cq.h>

static int ok_body(struct pawl_run *run, void *arg)
{
	if (arg)
		fetch_add_relaxed((u32 *)arg, 1);
	return 0;
}

static int fail_body(struct pawl_run *run, void *arg)
{
	return pawl_fail(run, -EIO, "the disk is gone");
}

static pawl_cq_t cq_new(struct pawl_engine *e)
{
	pawl_cq_t cq;

	OK(pawl_cq_create(e, &cq));
	return cq;
}

static struct pawl_op op_cq(pawl_fn fn, void *arg, const pawl_var_t *v, pawl_cq_t cq, u64 tag)
{
	struct pawl_op op = PAWL_OP_INIT;

	op.fn = fn;
	op.arg = arg;
	op.writes = v;
	op.nwrites = v ? 1 : 0;
	op.flags = PAWL_OP_CQ;
	op.cq = cq;
	op.tag = tag;
	return op;
}

static bool readable(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, 0) == 1;
}

/* A var whose newest write does not complete until the test says so. */
static pawl_token_t held;

static void hold_body(struct pawl_run *run, void *arg)
{
	held = run->token;
}

static void hold(struct pawl_engine *e, const pawl_var_t *v)
{
	struct pawl_op op = PAWL_OP_INIT;

	op.async_fn = hold_body;
	op.writes = v;
	op.nwrites = 1;
	op.prop = PAWL_ASYNC;
	OK(pawl_push(e, &op));
	MUST(held.h);
}

START_TEST(test_a_completion_arrives_after_the_vars_are_released)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	pawl_cq_t cq = cq_new(e);
	struct pawl_completion c;
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_cq(ok_body, NULL, &v, cq, 0);
	int i, n;

	for (i = 0; i < TIMES(5000); i++) {
		op.tag = (u64)i;
		OK(pawl_push(e, &op));
		OK(pawl_cq_wait(e, cq, SOON_NS));
		n = pawl_cq_reap(e, cq, &c, 1);
		ck_assert_int_eq(n, 1);
		ck_assert_uint_eq(c.tag, (u64)i);
		ck_assert_int_eq(c.status, 0);
		/* No wait: the var is free already. */
		OK(pawl_wait_writable(e, v, 0, NULL));
	}
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 0);
	OK(pawl_cq_destroy(e, cq));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_completion_names_its_op)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_cq_t cq = cq_new(e);
	struct pawl_named_completion c[3];
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_cq(fail_io, NULL, &v, cq, 0);
	struct gate g;

	/* One that fails and one that is skipped; the last has no name. */
	gate_write(e, &g, v);
	op.name = "fails";
	OK(pawl_push(e, &op));
	op.name = "skipped";
	op.tag = 1;
	OK(pawl_push(e, &op));
	op.name = NULL;
	OK(pawl_push(e, &op));
	gate_open(&g);
	FAILS(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	ck_assert_int_eq(pawl_cq_reap_named(e, cq, c, 3), 3);
	ck_assert_str_eq(c[0].op, "fails");
	ck_assert_str_eq(c[1].op, "skipped");
	ck_assert(!c[2].op);
	ck_assert(!c[0].tag && c[1].tag == 1 && c[0].status == -EIO && c[1].status == -EIO);
	OK(pawl_cq_destroy(e, cq));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_status_is_the_error_that_the_op_ended_with)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_cq_t cq = cq_new(e);
		pawl_var_t v = var_new(e);
		struct pawl_op bad = op_cq(fail_body, NULL, &v, cq, 1);
		struct pawl_op next = op_cq(ok_body, NULL, &v, cq, 2);
		struct pawl_op empty = op_cq(NULL, NULL, NULL, cq, 3);
		struct pawl_completion c[4];

		OK(pawl_push(e, &bad));
		OK(pawl_push(e, &next));
		OK(pawl_push(e, &empty));
		ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
		/* All completions were posted before the wait for all returned. */
		ck_assert_int_eq(pawl_cq_reap(e, cq, c, 4), 3);
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(c[i].status, c[i].tag == 3 ? 0 : -EIO);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

START_TEST(test_a_refused_push_does_not_arrive)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_cq_t cq = cq_new(e);
	struct pawl_completion c;
	pawl_var_t gone = var_new(e), v = var_new(e);
	pawl_var_t many[5] = { v, var_new(e), var_new(e), var_new(e), var_new(e) };
	struct pawl_op ops[2] = { op_cq(ok_body, NULL, &v, cq, 1), op_cq(ok_body, NULL, &gone, cq, 2) };
	int again;

	OK(pawl_var_delete(e, gone, NULL, NULL));
	FAILS(pawl_push(e, &ops[1]), -ESTALE);
	FAILS(pawl_push_batch(e, ops, 2), -ESTALE);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 0);
	/* Nothing of them remains, otherwise this would be -EBUSY. */
	OK(pawl_cq_destroy(e, cq));
	FAILS(pawl_push(e, &ops[0]), -ESTALE, "op.cq");
	/* Also of one that has more vars than there is room for in an op. */
	ops[0].writes = many;
	ops[0].nwrites = 5;
	FAILS(pawl_push(e, &ops[0]), -ESTALE, "op.cq");
	FAILS(pawl_cq_create(e, NULL), -EINVAL, "out");
	/* Its handle does not name the next queue, which has the same object, either. */
	for (again = 0; again < 2; again++) {
		FAILS(pawl_push(e, &ops[0]), -ESTALE, "op.cq");
		FAILS(pawl_cq_reap(e, cq, &c, 1), -ESTALE);
		FAILS(pawl_cq_wait(e, cq, 0), -ESTALE);
		FAILS(pawl_cq_fd(e, cq), -ESTALE);
		FAILS(pawl_cq_destroy(e, cq), -ESTALE);
		if (!again)
			ck_assert_uint_eq((u32)cq_new(e).h, (u32)cq.h);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_queue_with_completions_to_come_is_not_destroyed)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_cq_t cq = cq_new(e);
	struct pawl_completion c;
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_cq(ok_body, NULL, &v, cq, 7);

	hold(e, &v);
	OK(pawl_push(e, &op));
	FAILS(pawl_cq_destroy(e, cq), -EBUSY);
	FAILS(pawl_cq_wait(e, cq, 0), -ETIMEDOUT);
	OK(pawl_complete(e, held, 0, NULL));
	OK(pawl_cq_wait(e, cq, SOON_NS));
	FAILS(pawl_cq_destroy(e, cq), -EBUSY);
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 1);
	OK(pawl_cq_destroy(e, cq));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_the_fd_is_readable_until_the_queue_is_empty)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_cq_t cq = cq_new(e), late[2] = { cq_new(e), cq_new(e) };
	struct pawl_completion c[8];
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_cq(ok_body, NULL, &v, cq, 0);
	int fd = pawl_cq_fd(e, cq), i;

	memset(c, 0xff, sizeof(c));
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pawl_cq_fd(e, cq), fd);
	ck_assert(!readable(fd));
	for (i = 0; i < 6; i++) {
		op.tag = (u64)i;
		OK(pawl_push(e, &op));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert(readable(fd));
	for (i = 0; i < 6; i += 2) {
		ck_assert(readable(fd));
		ck_assert_int_eq(pawl_cq_reap(e, cq, c, 2), 2);
		ck_assert_uint_eq(c[0].tag, (u64)i);
		ck_assert_uint_eq(c[1].tag, (u64)i + 1);
		ck_assert(!c[0].reserved && !c[1].reserved);
	}
	ck_assert(!readable(fd));	/* emptied by a reap that found nothing new */
	/* A check that finds nothing leaves it clear, and so does one that takes all at once. */
	ck_assert_int_eq(pawl_cq_reap(e, cq, c, 8), 0);
	ck_assert(!readable(fd));
	OK(pawl_push(e, &op));
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert(readable(fd));
	ck_assert_int_eq(pawl_cq_reap(e, cq, c, 2), 2);
	ck_assert(!readable(fd));

	/* An fd that is made when something has arrived already says so, also if a reap left it. */
	for (i = 0; i < 2; i++) {
		op.cq = late[i];
		OK(pawl_push(e, &op));
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_int_eq(pawl_cq_reap(e, late[i], c, (u32)i), i);
		fd = pawl_cq_fd(e, late[i]);
		ck_assert(readable(fd));
		ck_assert_int_eq(pawl_cq_reap(e, late[i], c, 8), 2 - i);
		ck_assert(!readable(fd));
	}
	/* Nor is that of a destroyed queue, and of the next one in its place. */
	for (i = 0; i < 2; i++) {
		OK(pawl_cq_destroy(e, late[1]));
		ck_assert(!readable(fd));
		late[1] = cq_new(e);
		ck_assert(!readable(pawl_cq_fd(e, late[1])));
	}
	OK(pawl_engine_destroy(e));
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);	/* closed with the engine */
}
END_TEST

#define PUSHERS	3
#define QUEUES	2
#define EACH	TIMES(20000)

struct storm {
	struct pawl_engine *e;
	pawl_cq_t cq[QUEUES];
	u32 seen[PUSHERS][160000 / 8];	/* by the reaper of the queue */
};

static struct storm storm;

static void *storm_push(void *arg)
{
	u64 me = (u64)(uintptr_t)arg;
	pawl_var_t v = var_new(storm.e);
	struct pawl_op op = op_cq(ok_body, NULL, &v, storm.cq[0], 0);
	u64 i;

	for (i = 0; i < (u64)EACH; i++) {
		op.cq = storm.cq[i % QUEUES];
		op.tag = me << 32 | i;
		MUST(!pawl_push(storm.e, &op));
	}
	return NULL;
}

/* A thread that sleeps in epoll only, as a host's loop does. */
static void *storm_reap(void *arg)
{
	pawl_cq_t cq = storm.cq[(uintptr_t)arg];
	int ep = epoll_create1(0), fd = pawl_cq_fd(storm.e, cq), n, i;
	struct epoll_event ev = { .events = EPOLLIN };
	struct pawl_completion c[16];
	u64 got = 0, all = (u64)EACH / QUEUES * PUSHERS;

	MUST(ep >= 0 && fd >= 0);
	MUST(!epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
	while (got < all) {
		MUST(epoll_wait(ep, &ev, 1, (int)SOON_MS) == 1);
		n = pawl_cq_reap(storm.e, cq, c, 16);
		MUST(n >= 0);
		for (i = 0; i < n; i++) {
			MUST(!c[i].status);
			storm.seen[c[i].tag >> 32][(u32)c[i].tag]++;
		}
		got += (u64)n;
	}
	close(ep);
	return NULL;
}

START_TEST(test_each_completion_arrives_once_in_an_epoll_loop)
{
	pthread_t push[PUSHERS], reap[QUEUES];
	uintptr_t i;
	int k;

	memset(&storm, 0, sizeof(storm));
	storm.e = engine(PAWL_PER_DEVICE, 2);
	for (i = 0; i < QUEUES; i++)
		storm.cq[i] = cq_new(storm.e);
	for (i = 0; i < QUEUES; i++)
		MUST(!pthread_create(&reap[i], NULL, storm_reap, (void *)i));
	for (i = 0; i < PUSHERS; i++)
		MUST(!pthread_create(&push[i], NULL, storm_push, (void *)i));
	for (i = 0; i < PUSHERS; i++)
		pthread_join(push[i], NULL);
	for (i = 0; i < QUEUES; i++)
		pthread_join(reap[i], NULL);
	for (i = 0; i < PUSHERS; i++)
		for (k = 0; k < EACH; k++)
			ck_assert_uint_eq(storm.seen[i][k], 1);
	for (i = 0; i < QUEUES; i++)
		OK(pawl_cq_destroy(storm.e, storm.cq[i]));
	OK(pawl_engine_destroy(storm.e));
}
END_TEST

static void *wait_for_queue(void *arg)
{
	/* Without a timeout, at whose end it would find by itself that the queue is gone. */
	int rc = pawl_wait(storm.e, PAWL_WAIT_CQ | PAWL_WAIT_NO_HELP, storm.cq[0].h, -1, NULL);

	store_release((u32 *)arg, 1);
	return (void *)(intptr_t)rc;
}

static struct cq *cq_obj(void)
{
	return pool_obj(storm.e->pool[POOL_CQ], (u32)storm.cq[0].h);
}

START_TEST(test_destroying_a_queue_wakes_a_thread_that_waits_for_it)
{
	pthread_t thread;
	pawl_cq_t next;
	u32 woken = 0;
	u64 waiter;
	void *rc;

	storm.e = engine(PAWL_PER_DEVICE, 1);
	storm.cq[0] = cq_new(storm.e);
	MUST(!pthread_create(&thread, NULL, wait_for_queue, &woken));
	ck_assert(soon((waiter = load_acquire(&cq_obj()->waiter))));
	ck_assert(soon(!exec_wanted(&thread_of(storm.e, (u32)waiter - 1)->ex)));
	FAILS(pawl_cq_wait(storm.e, storm.cq[0], SOON_NS), -EBUSY);
	OK(pawl_cq_destroy(storm.e, storm.cq[0]));
	/* No thread waits for the next queue, although the thread may still leave this one. */
	next = cq_new(storm.e);
	ck_assert_uint_eq((u32)next.h, (u32)storm.cq[0].h);
	FAILS(pawl_cq_wait(storm.e, next, 0), -ETIMEDOUT);
	ck_assert(soon(load_acquire(&woken)));
	pthread_join(thread, &rc);
	ck_assert_int_eq((int)(intptr_t)rc, -ESTALE);
	OK(pawl_engine_destroy(storm.e));
}
END_TEST

static void *sleep_for_queue(void *arg)
{
	/* Without a timeout, at whose end it would find the completion by itself. */
	MUST(!pawl_wait(storm.e, PAWL_WAIT_CQ | PAWL_WAIT_NO_HELP, storm.cq[0].h, -1, NULL));
	store_release((u32 *)arg, 1);
	return NULL;
}

START_TEST(test_a_reap_that_leaves_completions_wakes_a_thread_that_waits)
{
	struct pawl_op op;
	struct pawl_completion c;
	pthread_t thread;
	struct exec_thread *ex;
	u32 woken = 0;
	u64 waiter;
	int i;

	storm.e = engine(PAWL_PER_DEVICE, 0);
	storm.cq[0] = cq_new(storm.e);
	MUST(!pthread_create(&thread, NULL, sleep_for_queue, &woken));
	ck_assert(soon((waiter = load_acquire(&cq_obj()->waiter))));
	ex = &thread_of(storm.e, (u32)waiter - 1)->ex;
	ck_assert(soon(!exec_wanted(ex)));
	/* The waiter misses both completions, as if they were queued before it began. */
	store_relaxed(&cq_obj()->waiter, 0);
	for (i = 0; i < 2; i++) {
		op = op_cq(ok_body, NULL, NULL, storm.cq[0], 1);
		OK(pawl_push(storm.e, &op));
		ck_assert_int_eq(pawl_run_one(storm.e), 1);
	}
	store_relaxed(&cq_obj()->waiter, waiter);
	ck_assert_int_eq(pawl_cq_reap(storm.e, storm.cq[0], &c, 1), 1);
	ck_assert(soon(load_acquire(&woken)));
	pthread_join(thread, NULL);
	OK(pawl_engine_destroy(storm.e));
}
END_TEST

START_TEST(test_an_op_whose_deadline_has_passed_never_starts)
{
	int kind;

	for (kind = 0; kind < 2; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_cq_t cq = cq_new(e);
		pawl_var_t v = var_new(e);
		u32 ran = 0;
		struct pawl_op late = op_cq(ok_body, &ran, &v, cq, 1);
		struct pawl_op early = op_cq(ok_body, &ran, &v, cq, 2);
		struct pawl_completion c[2];
		struct pawl_error why;

		late.flags |= PAWL_OP_DEADLINE;
		late.deadline_ns = 1;		/* long past */
		OK(pawl_push(e, &late));
		ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, &why), -ETIMEDOUT);
		ck_assert_ptr_nonnull(strstr(why.text, "deadline"));
		early.flags |= PAWL_OP_DEADLINE;
		early.deadline_ns = INT64_MAX;
		OK(pawl_push(e, &early));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(ran, 1);
		ck_assert_int_eq(pawl_cq_reap(e, cq, c, 2), 2);
		ck_assert_int_eq(c[0].status, -ETIMEDOUT);
		ck_assert_int_eq(c[1].status, 0);
		late.deadline_ns = -1;
		FAILS(pawl_push(e, &late), -EINVAL, "deadline_ns");
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

static struct ending {
	struct pawl_engine *e;
	pawl_ticket_t ticket;
	int state, cancel, status;
} ending;

static void cancel_in_release(void *arg, int status)
{
	ending.status = status;
	ending.state = pawl_ticket_state(ending.e, ending.ticket);
	ending.cancel = pawl_cancel(ending.e, ending.ticket);
}

/* Whatever keeps an op from starting: while it ends, it is QUEUED, and a cancel comes too late. */
START_TEST(test_an_op_that_will_not_start_is_never_running)
{
	static const struct { bool poisoned, late, group; int status; } row[] = {
		{ .poisoned = true, .status = -EIO },
		{ .late = true, .status = -ETIMEDOUT },
		{ .group = true, .status = -ECANCELED },
		{ .poisoned = true, .late = true, .status = -ETIMEDOUT },
	};
	u32 i, body;

	for (i = 0; i < 2 * ARRAY_SIZE(row); i++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
		pawl_var_t v = var_new(e);
		u32 ran = 0, k = i / 2;
		struct pawl_op op = op_write(i % 2 ? add_one : NULL, &ran, &v);

		ending = (struct ending){ .e = e };
		op.release = cancel_in_release;
		op.flags = PAWL_OP_TICKET | PAWL_OP_DEADLINE | PAWL_OP_GROUP;
		op.ticket = &ending.ticket;
		op.deadline_ns = row[k].late ? 1 : INT64_MAX;
		OK(pawl_group_create(e, NULL, &op.group));
		if (row[k].poisoned)
			OK(push_write(e, fail_io, NULL, v));
		OK(pawl_push(e, &op));
		if (row[k].group)
			OK(pawl_group_cancel(e, op.group));
		for (body = 0; body < 3; body++)
			pawl_run_one(e);
		ck_assert_uint_eq(ran, 0);
		ck_assert_int_eq(ending.status, row[k].status);
		ck_assert_int_eq(ending.state, PAWL_TICKET_QUEUED);
		ck_assert_int_eq(ending.cancel, -ESTALE);
		ck_assert_int_eq(pawl_ticket_state(e, ending.ticket), PAWL_TICKET_COMPLETE);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

START_TEST(test_a_canceled_op_ends_once_and_its_error_flows)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_cq_t cq = cq_new(e);
	pawl_var_t v = var_new(e), w = var_new(e);
	u32 ran = 0;
	pawl_ticket_t ticket = { 0 };
	struct pawl_op op = op_cq(ok_body, &ran, &v, cq, 1),
		       behind = op_cq(ok_body, &ran, &w, cq, 2);
	struct pawl_completion c[3];

	op.flags |= PAWL_OP_TICKET;
	FAILS(pawl_push(e, &op), -EINVAL, "ticket");
	op.ticket = &ticket;
	behind.reads = &v;
	behind.nreads = 1;
	hold(e, &v);
	OK(pawl_push(e, &op));
	OK(pawl_push(e, &behind));
	ck_assert_int_eq(pawl_ticket_state(e, ticket), PAWL_TICKET_QUEUED);
	FAILS(pawl_ticket_wait(e, ticket, 0), -ETIMEDOUT);
	OK(pawl_cancel(e, ticket));
	OK(pawl_cancel(e, ticket));
	OK(pawl_complete(e, held, 0, NULL));
	OK(pawl_ticket_wait(e, ticket, SOON_NS));
	ck_assert_int_eq(pawl_ticket_state(e, ticket), PAWL_TICKET_COMPLETE);
	FAILS(pawl_cancel(e, ticket), -ESTALE);
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -ECANCELED);
	ck_assert_int_eq(pawl_cq_reap(e, cq, c, 3), 2);
	ck_assert_int_eq(c[0].status, -ECANCELED);
	ck_assert_int_eq(c[1].status, -ECANCELED);
	ck_assert_uint_eq(ran, 0);
	/* Forged ones. */
	ck_assert_int_eq(pawl_ticket_state(e, (pawl_ticket_t){ 0 }), PAWL_TICKET_COMPLETE);
	FAILS(pawl_ticket_state(e, (pawl_ticket_t){ ~0ull }), -ESTALE);
	FAILS(pawl_cancel(e, (pawl_ticket_t){ 1ull << 32 | 0xffffff }), -ESTALE);
	OK(pawl_ticket_wait(e, ticket, 0));
	OK(pawl_engine_destroy(e));
}
END_TEST

struct ended {
	u32 ran, released;
	int status;
};

static int ended_body(struct pawl_run *run, void *arg)
{
	((struct ended *)arg)->ran++;
	return 0;
}

static void ended_async(struct pawl_run *run, void *arg)
{
	((struct ended *)arg)->ran++;
}

static void ended_release(void *arg, int status)
{
	((struct ended *)arg)->released++;
	((struct ended *)arg)->status = status;
}

/* Whatever the op has, also while the engine traces, and while an error is not reported. */
START_TEST(test_every_kind_of_op_can_be_stopped_before_it_starts)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_cq_t cq = cq_new(e);
	pawl_var_t v[6], other = var_new(e);
	u32 k;

	for (k = 0; k < 6; k++)
		v[k] = var_new(e);
	for (k = 0; k < 36; k++) {
		u32 shape = k % 6, late = k / 6 % 2, mode = k / 12;
		int code = late ? -ETIMEDOUT : -ECANCELED;
		struct ended x = { 0 };
		struct pawl_op op = op_cq(ended_body, &x, v, cq, k);
		struct pawl_completion c;
		pawl_ticket_t ticket;
		bool traced;

		op.flags |= PAWL_OP_TICKET | PAWL_OP_DEADLINE;
		op.ticket = &ticket;
		op.deadline_ns = late ? 1 : INT64_MAX;
		op.release = shape == 1 ? ended_release : NULL;
		op.nwrites = shape == 2 ? 6 : 1;
		op.async_fn = shape == 3 ? ended_async : NULL;
		op.prop = shape == 4 ? PAWL_NO_SKIP : PAWL_NORMAL;
		op.fn = shape == 3 || shape == 5 ? NULL : ended_body;
		traced = mode == 1 && !pawl_trace_start(e, 64);
		if (mode == 2) {
			OK(push_write(e, fail_body, NULL, other));
			ck_assert_int_eq(pawl_run_one(e), 1);
		}
		OK(pawl_push(e, &op));
		if (!late)
			OK(pawl_cancel(e, ticket));
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_int_eq(pawl_ticket_state(e, ticket), PAWL_TICKET_COMPLETE);
		ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 1);
		ck_assert_msg(c.tag == k && c.status == code, "%u: %d", k, c.status);
		ck_assert_uint_eq(x.ran, 0);
		ck_assert_uint_eq(x.released, shape == 1);
		ck_assert_int_eq(x.status, shape == 1 ? code : 0);
		ck_assert_int_eq(pawl_wait_readable(e, v[shape == 2 ? 5 : 0], SOON_NS, NULL), code);
		if (traced)
			OK(pawl_trace_stop(e));
		ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), mode == 2 ? -EIO : 0);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

static struct {
	u32 started, asked_twice;
	pawl_ticket_t ticket;
	int wait;
} run;

static int patient_body(struct pawl_run *r, void *arg)
{
	run.wait = pawl_ticket_wait(r->engine, run.ticket, 0);
	store_release(&run.started, 1);
	while (!pawl_run_canceled(r))
		sched_yield();
	MUST(pawl_run_canceled(r) == -ECANCELED);
	MUST(soon(load_acquire(&run.asked_twice)));
	return -EINTR;
}

START_TEST(test_a_running_body_can_ask_whether_it_was_canceled)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_cq(patient_body, NULL, &v, (pawl_cq_t){ 0 }, 0);

	memset(&run, 0, sizeof(run));
	op.flags = PAWL_OP_TICKET;
	op.ticket = &run.ticket;
	OK(pawl_push(e, &op));
	ck_assert(soon(load_acquire(&run.started)));
	ck_assert_int_eq(run.wait, -EDEADLK);
	ck_assert_int_eq(pawl_ticket_state(e, run.ticket), PAWL_TICKET_RUNNING);
	FAILS(pawl_cancel(e, run.ticket), -EINPROGRESS);
	/* Nor does it help to ask again. */
	FAILS(pawl_cancel(e, run.ticket), -EINPROGRESS);
	store_release(&run.asked_twice, 1);
	/* The body's result is the answer. */
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, NULL), -EINTR);
	OK(pawl_engine_destroy(e));
}
END_TEST

static u32 releases;

static void release(void *arg, int status)
{
	releases++;
	MUST(status == *(int *)arg);
}

START_TEST(test_release_and_completion_both_come)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_cq_t cq = cq_new(e);
	pawl_var_t many[20];
	struct pawl_completion c;
	struct pawl_op op;
	int status = -EIO, i;

	for (i = 0; i < 20; i++)
		many[i] = var_new(e);
	op = op_cq(fail_body, &status, many, cq, 5);
	op.nwrites = 20;
	op.release = release;
	releases = 0;
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_uint_eq(releases, 1);
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 1);
	ck_assert_int_eq(c.status, -EIO);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* An asynchronous body that completes its own op and waits for the next op of that object. */
struct next_op {
	int completed, ticket_wait, group_wait;
	pawl_group_t group;
	u32 ran;
};

static void next_body(struct pawl_run *r, void *arg)
{
	struct next_op *n = arg;
	struct pawl_op op = PAWL_OP_INIT;
	pawl_ticket_t ticket;

	n->completed = pawl_complete(r->engine, r->token, 0, NULL);
	op.fn = ok_body;
	op.arg = &n->ran;
	op.flags = PAWL_OP_TICKET | PAWL_OP_GROUP;
	op.ticket = &ticket;
	op.group = n->group;
	MUST(!pawl_push(r->engine, &op));
	n->ticket_wait = pawl_ticket_wait(r->engine, ticket, SOON_NS);
	MUST(!pawl_push(r->engine, &op));
	n->group_wait = pawl_group_wait(r->engine, n->group, SOON_NS);
}

START_TEST(test_a_body_that_completed_its_op_waits_for_the_next_user_of_the_object)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct next_op n = { .ran = 0 };
	struct pawl_op op = PAWL_OP_INIT;
	pawl_ticket_t ticket;

	OK(pawl_group_create(e, NULL, &n.group));
	op.async_fn = next_body;
	op.arg = &n;
	op.prop = PAWL_ASYNC;
	op.flags = PAWL_OP_TICKET | PAWL_OP_GROUP;
	op.ticket = &ticket;
	op.group = n.group;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(n.completed);
	OK(n.ticket_wait);
	OK(n.group_wait);
	ck_assert_uint_eq(n.ran, 2);
	OK(pawl_group_destroy(e, n.group));
	OK(pawl_engine_destroy(e));
}
END_TEST

static struct op_note *note_of_ticket(struct pawl_engine *e, pawl_ticket_t ticket)
{
	return pool_obj(e->pool[POOL_NOTE], (u32)ticket.h);
}

/* An op has what its own description asks for, and nothing of the op before in the same note. */
START_TEST(test_what_one_op_asked_for_is_not_kept_for_the_next)
{
	static const u16 flags[] = { PAWL_OP_CQ, PAWL_OP_TICKET, PAWL_OP_DEADLINE, PAWL_OP_GROUP,
				     PAWL_OP_COST };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_cq_t cq = cq_new(e);
	pawl_ticket_t ticket, before;
	struct pawl_completion c;
	uint64_t ops, cost;
	u32 ran = 0, i;
	struct pawl_op all = op_cq(ok_body, &ran, NULL, cq, 99), one;
	pawl_group_t g;

	OK(pawl_group_create(e, NULL, &g));
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		all.flags |= flags[i];
		all.arg = &ran;
	}
	all.deadline_ns = 1;
	all.ticket = &before;
	all.group = g;
	all.cost = 7;
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		ran = 0;
		OK(pawl_push(e, &all));
		OK(pawl_cancel(e, before));
		OK(pawl_group_cancel(e, g));
		ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -ECANCELED);
		ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 1);
		ck_assert(c.tag == 99 && c.status == -ECANCELED && !ran);
		one = op_cq(ok_body, &ran, NULL, cq, 5);
		one.flags = flags[i];
		one.deadline_ns = INT64_MAX;
		one.ticket = &ticket;
		one.group = g;
		one.cost = 3;
		without_strays(&one);
		OK(pawl_push(e, &one));
		FAILS(pawl_cancel(e, before), -ESTALE);
		ck_assert_int_eq(pawl_ticket_state(e, before), PAWL_TICKET_COMPLETE);
		OK(pawl_group_count(e, g, &ops, &cost));
		ck_assert(ops == (flags[i] == PAWL_OP_GROUP) && cost == 0);
		OK(pawl_group_count(e, (pawl_group_t){ 0 }, NULL, &cost));
		ck_assert_uint_eq(cost, flags[i] == PAWL_OP_COST ? 3 : 0);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(ran, 1);
		c.tag = 5;
		ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), flags[i] == PAWL_OP_CQ);
		ck_assert(c.tag == 5 && (flags[i] != PAWL_OP_CQ || !c.status));
		OK(pawl_group_count(e, (pawl_group_t){ 0 }, &ops, &cost));
		ck_assert(!ops && !cost);
	}
	OK(pawl_group_destroy(e, g));
	OK(pawl_cq_destroy(e, cq));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Tickets of one note are counted to the end and begin again, and none is 0. */
START_TEST(test_no_ticket_is_zero)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_ticket_t ticket, first;
	struct pawl_op op = op_cq(ok_body, NULL, NULL, (pawl_cq_t){ 0 }, 0);
	u32 i;

	op.flags = PAWL_OP_TICKET;
	op.ticket = &first;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	store_relaxed(&note_of_ticket(e, first)->state, (NOTE_GEN_MASK - 2) << NOTE_GEN_SHIFT);
	op.ticket = &ticket;
	for (i = 0; i < 5; i++) {
		OK(pawl_push(e, &op));
		ck_assert_uint_eq((u32)ticket.h, (u32)first.h);
		ck_assert_uint_eq(ticket.h >> 32, i < 2 ? NOTE_GEN_MASK - 1 + i : i - 1);
		ck_assert_int_eq(pawl_ticket_state(e, ticket), PAWL_TICKET_QUEUED);
		FAILS(pawl_ticket_wait(e, ticket, 0), -ETIMEDOUT, "not complete after 0 ns");
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_int_eq(pawl_ticket_state(e, ticket), PAWL_TICKET_COMPLETE);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

static int late_body(struct pawl_run *r, void *arg)
{
	MUST(!pawl_run_canceled(r));
	/* As if time had passed. */
	note_of_ticket(r->engine, *(pawl_ticket_t *)arg)->deadline = 1;
	MUST(pawl_run_canceled(r) == -ETIMEDOUT);
	MUST(pawl_cancel(r->engine, *(pawl_ticket_t *)arg) == -EINPROGRESS);
	MUST(pawl_run_canceled(r) == -ECANCELED);
	return 0;
}

/* An asynchronous body that is complete, and the next op of its note is canceled. */
static void complete_body(struct pawl_run *r, void *arg)
{
	struct pawl_op next = op_cq(ok_body, NULL, NULL, (pawl_cq_t){ 0 }, 0);
	pawl_ticket_t ticket;

	MUST(!pawl_complete(r->engine, r->token, 0, NULL));
	next.flags = PAWL_OP_TICKET;
	next.ticket = &ticket;
	MUST(!pawl_push(r->engine, &next));
	MUST((u32)ticket.h == (u32)((pawl_ticket_t *)arg)->h);
	MUST(!pawl_cancel(r->engine, ticket));
	MUST(!pawl_run_canceled(r));
}

START_TEST(test_a_body_can_ask_whether_it_is_late)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_ticket_t ticket;
	struct pawl_op op = op_cq(late_body, &ticket, NULL, (pawl_cq_t){ 0 }, 0);

	op.flags = PAWL_OP_TICKET | PAWL_OP_DEADLINE;
	op.ticket = &ticket;
	op.deadline_ns = INT64_MAX;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	/* 0 is a deadline, too. */
	op.deadline_ns = 0;
	OK(pawl_push(e, &op));
	FAILS(pawl_wait_all(e, SOON_NS, NULL), -ETIMEDOUT, "the op's deadline passed");
	op.deadline_ns = INT64_MAX;
	OK(pawl_push(e, &op));
	OK(pawl_cancel(e, ticket));
	FAILS(pawl_wait_all(e, SOON_NS, NULL), -ECANCELED, "the op was canceled");
	op.flags = PAWL_OP_TICKET;
	op.deadline_ns = 0;
	op.fn = NULL;
	op.async_fn = complete_body;
	op.prop = PAWL_ASYNC;
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -ECANCELED);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* It neither blocks a reap nor outlives an exec(); a size that is none is refused. */
START_TEST(test_the_descriptor_of_a_queue)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_cq_t cq = cq_new(e);
	struct pawl_completion c;
	int fd = pawl_cq_fd(e, cq);

	ck_assert_int_ge(fd, 0);
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
	FAILS(pawl_cq_reap(e, cq, &c, UINT32_MAX), -EINVAL, "n is 4294967295");
	FAILS(pawl_cq_reap(e, cq, &c, 1u << 31), -EINVAL, "n is 2147483648");
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, INT32_MAX), 0);
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 0), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* As many as the pool has room for now, so that the last one is among them. */
START_TEST(test_the_descriptors_are_closed_with_the_engine)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	static int fd[CQ_BOUNDED + 1];
	u32 n = 0, i;
	pawl_cq_t cq;

	do {
		cq = cq_new(e);
		fd[n] = pawl_cq_fd(e, cq);
		ck_assert_int_ge(fd[n], 0);
	} while ((u32)cq.h < pool_carved(e->pool[POOL_CQ]) && ++n < CQ_BOUNDED);
	OK(pawl_engine_destroy(e));
	for (i = 0; i <= n; i++)
		ck_assert_int_eq(fcntl(fd[i], F_GETFD), -1);
}
END_TEST

#if CAN_TRAP
static struct {
	struct pawl_engine *e;
	pawl_cq_t cq;
	int fd;
} maker;

static void make_now(void)
{
	maker.fd = pawl_cq_fd(maker.e, maker.cq);
}

static u32 open_files(void)
{
	u32 n = 0;
	int fd;

	for (fd = 0; fd < 2048; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}
#endif

/* Wherever one thread is inside the call, another one gets the same descriptor. */
START_TEST(test_two_threads_get_one_descriptor)
{
#if CAN_TRAP
	u32 before, k;
	int fd;

	maker.e = engine(PAWL_PER_DEVICE, 0);
	elsewhere_begin(make_now);
	before = open_files();
	/* Fewer than the descriptors that a process may have. */
	for (k = 0; (!k || trap.stops) && k < 400; k++) {
		maker.cq = cq_new(maker.e);
		trap_after(k, fd = pawl_cq_fd(maker.e, maker.cq));
		ck_assert_int_ge(fd, 0);
		ck_assert(!trap.stops || maker.fd == fd);
		ck_assert_int_eq(pawl_cq_fd(maker.e, maker.cq), fd);
	}
	ck_assert_uint_gt(k, 10);
	ck_assert_uint_eq(open_files(), before + k);
	elsewhere_end();
	OK(pawl_engine_destroy(maker.e));
#endif
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cq");
	TCase *tc = tcase_create("cq");

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, test_a_completion_arrives_after_the_vars_are_released);
	tcase_add_test(tc, test_a_completion_names_its_op);
	tcase_add_test(tc, test_status_is_the_error_that_the_op_ended_with);
	tcase_add_test(tc, test_a_refused_push_does_not_arrive);
	tcase_add_test(tc, test_a_queue_with_completions_to_come_is_not_destroyed);
	tcase_add_test(tc, test_the_fd_is_readable_until_the_queue_is_empty);
	tcase_add_test(tc, test_each_completion_arrives_once_in_an_epoll_loop);
	tcase_add_test(tc, test_destroying_a_queue_wakes_a_thread_that_waits_for_it);
	tcase_add_test(tc, test_a_reap_that_leaves_completions_wakes_a_thread_that_waits);
	tcase_add_test(tc, test_an_op_whose_deadline_has_passed_never_starts);
	tcase_add_test(tc, test_an_op_that_will_not_start_is_never_running);
	tcase_add_test(tc, test_a_canceled_op_ends_once_and_its_error_flows);
	tcase_add_test(tc, test_every_kind_of_op_can_be_stopped_before_it_starts);
	tcase_add_test(tc, test_a_running_body_can_ask_whether_it_was_canceled);
	tcase_add_test(tc, test_release_and_completion_both_come);
	tcase_add_test(tc,
		       test_a_body_that_completed_its_op_waits_for_the_next_user_of_the_object);
	tcase_add_test(tc, test_what_one_op_asked_for_is_not_kept_for_the_next);
	tcase_add_test(tc, test_no_ticket_is_zero);
	tcase_add_test(tc, test_a_body_can_ask_whether_it_is_late);
	tcase_add_test(tc, test_the_descriptor_of_a_queue);
	tcase_add_test(tc, test_the_descriptors_are_closed_with_the_engine);
	tcase_add_test(tc, test_two_threads_get_one_descriptor);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
