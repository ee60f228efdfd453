// SPDX-License-Identifier: Apache-2.0
/*
 * event_loop - a program that sleeps in epoll until ops are complete.
 *
 * Ops name a completion queue and a tag.  The queue has a file descriptor that is readable
 * while the queue has completions, so any event loop can watch it: epoll as here, libuv,
 * asyncio.  One op has a deadline that has passed: it never runs, and its completion has the
 * status -ETIMEDOUT.
 */
#include <errno.h>
#include <pawl/engine.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define REQUESTS 100

static unsigned int answers[REQUESTS];

static int serve(struct pawl_run *run, void *arg)
{
	(void)run;
	*(unsigned int *)arg += 1;
	return 0;
}

int main(void)
{
	struct pawl_completion c[16];
	struct epoll_event ev = { .events = EPOLLIN };
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_engine *e;
	pawl_var_t v[REQUESTS];
	pawl_cq_t cq;
	unsigned int served = 0, late = 0;
	int ep = epoll_create1(EPOLL_CLOEXEC), i, n;

	if (pawl_engine_create(NULL, &e) || pawl_cq_create(e, &cq) || pawl_cq_fd(e, cq) < 0)
		goto err;
	if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, pawl_cq_fd(e, cq), &ev)) {
		perror("event_loop: epoll");
		return 1;
	}
	op.fn = serve;
	op.nwrites = 1;
	for (i = 0; i < REQUESTS; i++) {
		op.arg = &answers[i];
		op.writes = &v[i];
		op.cq = cq;
		op.tag = (uint64_t)i;
		op.flags = PAWL_OP_CQ;
		op.deadline_ns = 0;		/* a field without its flag is 0 */
		if (i == 7) {
			op.flags |= PAWL_OP_DEADLINE;
			op.deadline_ns = 1;	/* CLOCK_MONOTONIC: long ago */
		}
		if (pawl_var_create(e, &v[i]) || pawl_push(e, &op))
			goto err;
	}

	while (served + late < REQUESTS) {
		if (epoll_wait(ep, &ev, 1, -1) < 0 && errno != EINTR)
			return 1;
		while ((n = pawl_cq_reap(e, cq, c, 16)) > 0) {
			for (i = 0; i < n; i++) {
				if (c[i].status == -ETIMEDOUT)
					late++;
				else if (!c[i].status && answers[c[i].tag] == 1)
					served++;
			}
		}
		if (n < 0)
			goto err;
	}
	printf("%u served, %u too late\n", served, late);
	close(ep);
	return pawl_cq_destroy(e, cq) || pawl_engine_destroy(e) || late != 1;
err:
	fprintf(stderr, "event_loop: %s\n", pawl_error_text());
	return 1;
}
