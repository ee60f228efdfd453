// SPDX-License-Identifier: Apache-2.0
/*
 * A helper: a thread for work that takes much longer than a request.  It loads and frees
 * versions, and frees the memory of large slots.  It runs the messages that it receives.
 *
 * The load of a version uses as much CPU time as thousands of requests.  If it shares a CPU
 * with a loop and a worker, requests would wait for it, each time until it has used its slice
 * and the kernel's clock ticks, which takes up to 4 ms.  There are three remedies:
 *
 *	nice 10: threads that wake for a request have used less than their share.
 *	a slice of 100 us for the loops (loop_slice()): the kernel runs the thread whose slice
 *	ends first, so a loop that wakes interrupts the load.  Linux before 6.12 ignores it.
 *	a pause at the beginning: the loop that received the call for a load has not ended its
 *	turn yet.  It does not wake again, so the load would run until the next tick first.
 *
 * On a CPU where another thread never sleeps, a load then takes ten times as long as alone.
 * With SCHED_IDLE it would take 300 times as long, and with nice 19 70 times, for the same
 * latencies of requests.
 */

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "serve.h"

#define YIELD_NICE	10
#define LOOP_SLICE_NS	100000u
#define PAUSE_NS	100000

/* Linux's struct sched_attr, which some C libraries lack. */
struct attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

void loop_slice(void)
{
	struct attr a = { .size = sizeof(a) };

	/* A thread with a real-time policy has no slice. */
	if (sched_getscheduler(0) != SCHED_OTHER ||
	    syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0))
		return;
	a.size = sizeof(a);
	a.runtime = LOOP_SLICE_NS;
	syscall(SYS_sched_setattr, 0, &a, 0);
}

void helper_yield(struct msg *m)
{
	struct helper *h = m->arg;
	int nice;

	/* A thread with a real-time policy has no nice value. */
	if (h->yields || sched_getscheduler(0) != SCHED_OTHER)
		return;
	h->yields = true;
	errno = 0;
	nice = getpriority(PRIO_PROCESS, 0);
	if (!errno)
		setpriority(PRIO_PROCESS, 0, nice + YIELD_NICE);
}

static void leave(struct msg *m)
{
	struct helper *h = m->arg;

	h->leaves = true;
}

static void *helper_main(void *arg)
{
	struct helper *h = arg;
	struct pollfd fd = { .fd = h->port.efd, .events = POLLIN };
	const struct timespec pause = { 0, PAUSE_NS };
	unsigned int i;

	this_port = &h->port;
	while (!h->leaves) {
		poll(&fd, 1, -1);
		if (h->yields)
			nanosleep(&pause, NULL);
		port_clear(&h->port);
		port_run(&h->port);
	}
	for (i = 0; i < ENGINES; i++)
		pawl_thread_detach(h->sv->e[i]);
	return NULL;
}

int helper_start(struct helper *h, struct server *sv)
{
	pthread_t t;
	int rc;

	h->sv = sv;
	rc = port_init(&h->port);
	if (rc)
		return rc;
	rc = -pthread_create(&t, NULL, helper_main, h);
	h->started = !rc;
	if (!rc)
		h->thread = (unsigned long)t;
	return rc;
}

void helper_stop(struct helper *h)
{
	if (h->started) {
		port_send(&h->port, &h->stop, leave, h);
		pthread_join((pthread_t)h->thread, NULL);
	}
	h->started = false;
}
