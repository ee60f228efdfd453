// SPDX-License-Identifier: Apache-2.0
/* pawl_wait() with its flags, and pawl_interrupt(). */
#include <signal.h>
#include <sys/syscall.h>
#include "util.h"
#include "trap.h"
#include <core/wait.h>

static struct pawl_engine *e;
static pawl_var_t v;
static u64 waits_for;		/* the handle */
static pawl_token_t held;
static u32 ran, waiting;
static struct thread *waiter;

static void hold_body(struct pawl_run *run, void *arg)
{
	held = run->token;
}

static int count_body(struct pawl_run *run, void *arg)
{
	ran++;
	return 0;
}

/* An engine in which a wait for v does not end by itself. */
static void held_engine(int workers)
{
	struct pawl_op op = PAWL_OP_INIT;

	e = engine(PAWL_PER_DEVICE, workers);
	v = var_new(e);
	op.async_fn = hold_body;
	op.prop = PAWL_ASYNC;
	op.writes = &v;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	waits_for = v.h;
}

static void held_end(void)
{
	OK(pawl_complete(e, held, 0, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}

static void *wait_intr(void *arg)
{
	int rc;

	waiter = thread_get(e);
	store_release(&waiting, 1);
	rc = pawl_wait(e, (u32)(uintptr_t)arg | PAWL_WAIT_INTR, waits_for, SOON_NS, NULL);
	MUST(rc != -EINTR || strstr(pawl_error_text(), ": interrupted"));
	return (void *)(intptr_t)rc;
}

static int interrupted_by(u32 what, void (*interrupt)(pthread_t))
{
	pthread_t t;
	void *rc;

	waiting = 0;
	MUST(!pthread_create(&t, NULL, wait_intr, (void *)(uintptr_t)what));
	MUST(soon(load_acquire(&waiting)));
	/* Asleep, so that a signal arrives while it sleeps. */
	MUST(soon(load_relaxed(&waiter->waits_interrupt) &&
		  load_relaxed(&waiter->ex.park) > 2));
	interrupt(t);
	pthread_join(t, &rc);
	return (int)(intptr_t)rc;
}

static void by_call(pthread_t t)
{
	pawl_interrupt(e);
}

static void on_signal(int sig)
{
}

static void on_signal_call(int sig)
{
	pawl_interrupt(e);
}

static void handle(void (*handler)(int), int flags)
{
	struct sigaction a = { .sa_handler = handler, .sa_flags = flags };

	MUST(!sigaction(SIGUSR1, &a, NULL));
}

/* Until it arrives while the thread is in the system call. */
static void by_signal(pthread_t t)
{
	while (load_relaxed(&waiter->waits_interrupt)) {
		MUST(!pthread_kill(t, SIGUSR1));
		nap_us(1000);
	}
}

static void by_one_signal(pthread_t t)
{
	MUST(!pthread_kill(t, SIGUSR1));
}

START_TEST(test_an_interrupt_ends_each_kind_of_wait)
{
	held_engine(1);
	ck_assert_int_eq(interrupted_by(PAWL_WAIT_READABLE, by_call), -EINTR);
	ck_assert_int_eq(interrupted_by(PAWL_WAIT_WRITABLE | PAWL_WAIT_NO_HELP, by_call),
			 -EINTR);
	ck_assert_int_eq(interrupted_by(PAWL_WAIT_ALL, by_call), -EINTR);
	/* Each ended one wait, and none is left for the next. */
	FAILS(pawl_wait(e, PAWL_WAIT_READABLE | PAWL_WAIT_INTR, v.h, 1000000, NULL),
	      -ETIMEDOUT);
	held_end();
}
END_TEST

START_TEST(test_an_interrupt_ends_waits_for_a_ticket_a_queue_and_a_group)
{
	struct pawl_group_limits one = { .size = sizeof(one), .ops = 1 };
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_completion c;
	struct waits { u32 what; u64 h; } kind[4];
	pawl_ticket_t ticket;
	pawl_cq_t cq;
	u32 i;

	held_engine(1);
	OK(pawl_cq_create(e, &cq));
	OK(pawl_group_create(e, &one, &op.group));
	op.fn = count_body;
	op.writes = &v;
	op.nwrites = 1;
	op.flags = PAWL_OP_CQ | PAWL_OP_TICKET | PAWL_OP_GROUP;
	op.cq = cq;
	op.ticket = &ticket;
	OK(pawl_push(e, &op));
	waits_for = ticket.h;
	ck_assert_int_eq(interrupted_by(PAWL_WAIT_TICKET, by_call), -EINTR);
	waits_for = cq.h;
	ck_assert_int_eq(interrupted_by(PAWL_WAIT_CQ, by_call), -EINTR);
	waits_for = op.group.h;
	ck_assert_int_eq(interrupted_by(PAWL_WAIT_GROUP, by_call), -EINTR);
	ck_assert_int_eq(interrupted_by(PAWL_WAIT_ROOM, by_call), -EINTR);
	kind[0] = (struct waits){ PAWL_WAIT_TICKET, ticket.h };
	kind[1] = (struct waits){ PAWL_WAIT_CQ, cq.h };
	kind[2] = (struct waits){ PAWL_WAIT_GROUP, op.group.h };
	kind[3] = (struct waits){ PAWL_WAIT_ROOM, op.group.h };
	/* the op is as it was, and the waits can be repeated */
	ck_assert_int_eq(pawl_ticket_state(e, ticket), 1);
	FAILS(pawl_ticket_wait(e, ticket, 0), -ETIMEDOUT);
	FAILS(pawl_cq_wait(e, cq, 0), -ETIMEDOUT);
	OK(pawl_complete(e, held, 0, NULL));
	/* None of these reports an error of an op. */
	for (i = 0; i < COUNT(kind); i++) {
		struct pawl_error out = { .code = -EIO, .payload = &out };

		OK(pawl_wait(e, kind[i].what, kind[i].h, SOON_NS, &out));
		ck_assert(!out.code && !out.payload);
	}
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 1);
	OK(pawl_group_wait(e, op.group, SOON_NS));
	OK(pawl_group_destroy(e, op.group));
	OK(pawl_cq_destroy(e, cq));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_an_interrupt_before_the_wait_is_not_lost)
{
	held_engine(1);
	pawl_interrupt(e);
	pawl_interrupt(e);
	/* A wait that may not be interrupted does not consume it. */
	FAILS(pawl_wait(e, PAWL_WAIT_READABLE, v.h, 1000000, NULL), -ETIMEDOUT);
	FAILS(pawl_wait(e, PAWL_WAIT_READABLE | PAWL_WAIT_INTR, v.h, -1, NULL), -EINTR,
	      "interrupted");
	FAILS(pawl_wait(e, PAWL_WAIT_READABLE | PAWL_WAIT_INTR, v.h, 1000000, NULL),
	      -ETIMEDOUT);
	FAILS(pawl_wait(e, 99, 0, 0, NULL), -EINVAL, "what");
	OK(pawl_complete(e, held, 0, NULL));
	OK(pawl_wait(e, PAWL_WAIT_READABLE | PAWL_WAIT_INTR, v.h, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_signal_handler_ends_a_wait)
{
	held_engine(1);
	handle(on_signal, 0);
	ck_assert_int_eq(interrupted_by(PAWL_WAIT_READABLE, by_signal), -EINTR);
	/* By the call it does not depend on where the signal arrives, nor on SA_RESTART. */
	handle(on_signal_call, SA_RESTART);
	ck_assert_int_eq(interrupted_by(PAWL_WAIT_ALL, by_one_signal), -EINTR);
	held_end();
}
END_TEST

static u32 handled;

static void on_signal_count(int sig)
{
	fetch_add_relaxed(&handled, 1);
}

/* Several while it sleeps, and then what it waits for. */
static void by_signals_and_completion(pthread_t t)
{
	u32 i;

	for (i = 0; i < 5; i++) {
		MUST(!pthread_kill(t, SIGUSR1));
		/* The thread sanitizer calls the handler when the thread no longer sleeps. */
		if (!THREAD_SANITIZED)
			MUST(soon(load_relaxed(&handled) > i));
		nap_us(1000);	/* it may be asleep again, or not yet: both must go on */
	}
	MUST(!pawl_complete(e, held, 0, NULL));
}

START_TEST(test_a_handler_with_sa_restart_does_not_end_a_wait)
{
#ifdef SYS_futex_waitv
	if (syscall(SYS_futex_waitv, NULL, 0, 0, NULL, CLOCK_MONOTONIC) < 0 && errno == ENOSYS)
		return;
	held_engine(1);
	handle(on_signal_count, SA_RESTART);
	ck_assert_int_eq(interrupted_by(PAWL_WAIT_READABLE, by_signals_and_completion), 0);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
#endif
}
END_TEST

/* The flags of a wait count during a recording, too. */
START_TEST(test_a_wait_without_help_runs_nothing)
{
	struct pawl_op op = PAWL_OP_INIT;
	char *path = temp_path();
	bool recorded;
	int turn;

	for (turn = 0; turn < 2; turn++) {
		recorded = turn && !pawl_record_start(path);
		ran = 0;
		e = engine(PAWL_PER_DEVICE, 0);
		v = var_new(e);
		op.fn = count_body;
		op.writes = &v;
		op.nwrites = 1;
		OK(pawl_push(e, &op));
		FAILS(pawl_wait(e, PAWL_WAIT_READABLE | PAWL_WAIT_NO_HELP, v.h, 1000000, NULL),
		      -ETIMEDOUT);
		FAILS(pawl_wait(e, PAWL_WAIT_ALL | PAWL_WAIT_NO_HELP, 0, 1000000, NULL),
		      -ETIMEDOUT);
		pawl_interrupt(e);
		FAILS(pawl_wait(e, PAWL_WAIT_READABLE | PAWL_WAIT_NO_HELP | PAWL_WAIT_INTR, v.h,
				SOON_NS, NULL), -EINTR);
		ck_assert_uint_eq(ran, 0);
		OK(pawl_wait(e, PAWL_WAIT_READABLE, v.h, SOON_NS, NULL));
		ck_assert_uint_eq(ran, 1);
		if (recorded)
			OK(pawl_record_stop());
		OK(pawl_engine_destroy(e));
	}
	unlink(path);
}
END_TEST

#if CAN_TRAP
static void fail_now(void)
{
	MUST(!pawl_complete(e, held, -EIO, "disk on fire"));
}
#endif

/*
 * The op may end while its wait is interrupted: this wait or the next one returns the error,
 * once.
 */
START_TEST(test_an_interrupted_wait_keeps_the_error)
{
#if CAN_TRAP
	u32 what = PAWL_WAIT_READABLE, k, ended[2];
	long all;
	struct pawl_op op = PAWL_OP_INIT;
	int rc;

	held_engine(0);
	op.async_fn = hold_body;
	op.prop = PAWL_ASYNC;
	op.writes = &v;
	op.nwrites = 1;
	elsewhere_begin(fail_now);
	fail_now();
	FAILS(pawl_wait(e, what, v.h, SOON_NS, NULL), -EIO, "disk");
	for (; what <= PAWL_WAIT_WRITABLE; what++) {
		ended[0] = ended[1] = 0;
		/* The first call counts the instructions. */
		for (k = 0, all = LONG_MAX; k <= 20; k++) {
			OK(pawl_push(e, &op));
			pawl_interrupt(e);
			trap_after(k ? all * (k - 1) / 20 : all,
				   rc = pawl_wait(e, what | PAWL_WAIT_INTR, v.h, SOON_NS, NULL));
			all = k ? all : trap.ran;
			if (!trap.stops)
				fail_now();
			ended[rc == -EINTR]++;
			/* It is used up by the wait that it ends, and by no other. */
			ck_assert_uint_eq(load_relaxed(&e->interrupted), rc != -EINTR);
			if (rc == -EINTR)
				FAILS(pawl_wait(e, what, v.h, SOON_NS, NULL), -EIO, "disk");
			else
				ck_assert_int_eq(rc, -EIO);
			OK(pawl_wait_all(e, SOON_NS, NULL));
		}
		ck_assert(ended[0] && ended[1]);
	}
	elsewhere_end();
	OK(pawl_engine_destroy(e));
#endif
}
END_TEST

SUITE("interrupt", test_an_interrupt_ends_each_kind_of_wait,
      test_an_interrupt_ends_waits_for_a_ticket_a_queue_and_a_group,
      test_an_interrupt_before_the_wait_is_not_lost, test_a_signal_handler_ends_a_wait,
      test_a_handler_with_sa_restart_does_not_end_a_wait,
      test_a_wait_without_help_runs_nothing, test_an_interrupted_wait_keeps_the_error)
