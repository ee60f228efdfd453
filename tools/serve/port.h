/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to a thread of the server.  Any thread posts, the owner runs them, in the order in
 * which each thread posted them.  A message is part of the object that it is about, so nothing
 * is allocated.
 *
 * Progress: port_post() is lock-free and makes a system call only if the port was empty, and
 * none for a message to the own thread.  port_run() takes all messages with one exchange.
 */
#ifndef SERVE_PORT_H
#define SERVE_PORT_H

#include <base/atomic.h>

/* Counters that order nothing. */
#define add_relaxed(p, n) ((void)fetch_add_relaxed((p), (n)))

struct msg {
	struct msg *next;
	void (*fn)(struct msg *m);
	void *arg;
};

struct port {
	struct msg *head;		/* A: the newest first */
	struct msg *own, **own_tail;	/* O: from the owner itself, the oldest first */
	int efd;			/* I */
};

extern __thread struct port *this_port;

int port_init(struct port *p);
void port_fini(struct port *p);
void port_post(struct port *p, struct msg *m);
/* Run all messages: when efd is readable, and in each turn of the owner for its own. */
void port_run(struct port *p);
void port_clear(struct port *p);	/* efd was readable */

static inline void port_send(struct port *p, struct msg *m, void (*fn)(struct msg *), void *arg)
{
	m->fn = fn;
	m->arg = arg;
	port_post(p, m);
}

#endif
