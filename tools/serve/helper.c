// SPDX-License-Identifier: Apache-2.0
/*
 * A helper: a thread for work that takes much longer than a request.  It loads and frees
 * versions, and frees the memory of large slots.  It runs the messages that it receives.
 *
 * The load of a version uses as much CPU time as thousands of requests.  When all CPUs are
 * busy, each thread that wakes for a request would wait some milliseconds until the load has
 * used its slice, and a request wakes three or four threads.  helper_yield() shortens these
 * waits in two ways, neither of which is sufficient alone:
 *
 *	nice 10: a thread that wakes has used less than its share, so it runs at once.
 *	a slice of 100 us: while other threads wait, the load runs no longer than that.  Linux
 *	before 6.12 ignores it.
 *
 * On a CPU where another thread never sleeps, a load then takes ten times as long as alone.
 * With SCHED_IDLE it would take 300 times as long, and with nice 19 70 times, for the same
 * latencies of requests.
 */

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "serve.h"

#define YIELD_NICE	10
#define YIELD_SLICE_NS	100000u

/* Linux's struct sched_attr, which some C libraries lack. */
struct attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

void helper_yield(struct msg *m)
{
	struct helper *h = m->arg;
	struct attr a = { .size = sizeof(a) };
	int nice;

	/* A thread with a real-time policy has no nice value and no slice. */
	if (h->yields || sched_getscheduler(0) != SCHED_OTHER)
		return;
	h->yields = true;
	errno = 0;
	nice = getpriority(PRIO_PROCESS, 0);
	if (!errno)
		setpriority(PRIO_PROCESS, 0, nice + YIELD_NICE);
	if (syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0))
		return;
	a.size = sizeof(a);
	a.runtime = YIELD_SLICE_NS;
	syscall(SYS_sched_setattr, 0, &a, 0);
}

static void trim(struct msg *m)
{
	struct helper *h = m->arg;
	/* who finds 0 may use the message again */
	u32 what = xchg_acq_rel(&h->sv->trims, 0);

	if (what & TRIM_CACHE)
		serve_cache_empty();
	malloc_trim(0);
}

void helper_trim(struct server *sv, u32 what)
{
	if (!fetch_or_acq_rel(&sv->trims, what))
		port_send(&sv->loader.port, &sv->loader.trim, trim, &sv->loader);
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
	unsigned int i;

	this_port = &h->port;
	while (!h->leaves) {
		poll(&fd, 1, -1);
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
