// SPDX-License-Identifier: Apache-2.0
/*
 * tickets - ops that are watched and canceled one by one.
 *
 * A ticket names one push: the program can query its state, wait for it, and cancel it.  An op
 * that was canceled before it started, or whose deadline has passed, never starts.  A body
 * that runs is not stopped; it polls pawl_run_canceled() and decides when to end.
 */
#include <errno.h>
#include <pawl/engine.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

static atomic_bool started;

static int search(struct pawl_run *run, void *arg)
{
	struct timespec nap = { .tv_nsec = 100000 };
	int rc;

	(void)arg;
	atomic_store_explicit(&started, true, memory_order_release);
	while (!(rc = pawl_run_canceled(run)))
		nanosleep(&nap, NULL);
	return rc;
}

int main(void)
{
	struct pawl_op op = PAWL_OP_INIT;
	pawl_ticket_t running, queued, late;
	struct pawl_error why;
	struct timespec now;
	struct pawl_engine *e;
	pawl_var_t v, other;
	int rc;

	if (pawl_engine_create(NULL, &e) || pawl_var_create(e, &v) || pawl_var_create(e, &other))
		goto err;
	op.fn = search;
	op.writes = &v;
	op.nwrites = 1;
	op.flags = PAWL_OP_TICKET;
	op.ticket = &running;
	if (pawl_push(e, &op))
		goto err;
	op.ticket = &queued;	/* behind the first one, on the same var */
	if (pawl_push(e, &op))
		goto err;
	op.writes = &other;
	op.flags |= PAWL_OP_DEADLINE;
	op.ticket = &late;
	clock_gettime(CLOCK_MONOTONIC, &now);
	op.deadline_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	if (pawl_push(e, &op))
		goto err;
	while (!atomic_load_explicit(&started, memory_order_acquire))
		;

	/* pawl_interrupt() would be called by a signal handler, or by another thread. */
	pawl_interrupt(e);
	rc = pawl_wait(e, PAWL_WAIT_TICKET | PAWL_WAIT_INTR | PAWL_WAIT_NO_HELP, running.h, -1, NULL);
	printf("interrupted: %d, state %d\n", rc == -EINTR, pawl_ticket_state(e, running));
	if (rc != -EINTR || pawl_ticket_state(e, running) != PAWL_TICKET_RUNNING)
		return 1;
	if (pawl_cancel(e, queued) || pawl_cancel(e, running) != -EINPROGRESS)
		return 1;
	if (pawl_ticket_wait(e, running, -1) || pawl_ticket_wait(e, queued, -1) ||
	    pawl_ticket_wait(e, late, -1))
		goto err;
	/* The ops ended as if their bodies had failed. */
	rc = pawl_wait_readable(e, v, -1, &why);
	printf("%s\n", why.text);
	if (rc != -ECANCELED || pawl_wait_readable(e, other, -1, &why) != -ETIMEDOUT)
		return 1;
	printf("%s\n", why.text);
	return pawl_engine_destroy(e) != 0;
err:
	fprintf(stderr, "tickets: %s\n", pawl_error_text());
	return 1;
}
