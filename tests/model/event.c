// SPDX-License-Identifier: Apache-2.0
/*
 * An eventfd of the model: a counter that one thread increments and another clears.  The
 * scheduler may switch at every access, and all accesses have one order, as the kernel's lock
 * provides.
 */
#include <base/atomic.h>
#include "event.h"

static u64 event;	/* A */

int model_eventfd(void)
{
	return MODEL_EVENT_FD;
}

ssize_t model_write(int fd, const void *from, size_t n)
{
	if (fd != MODEL_EVENT_FD)
		return (write)(fd, from, n);
	fetch_add_seq_cst(&event, 1);
	return (ssize_t)n;
}

ssize_t model_read(int fd, void *to, size_t n)
{
	u64 sum;

	if (fd != MODEL_EVENT_FD)
		return (read)(fd, to, n);
	sum = xchg_seq_cst(&event, 0);
	*(u64 *)to = sum;
	return sum ? (ssize_t)n : -1;
}

bool model_event_readable(void)
{
	return load_seq_cst(&event);
}
