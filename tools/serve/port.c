// SPDX-License-Identifier: Apache-2.0
/* Messages between the threads of the server; see port.h. */

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "port.h"

__thread struct port *this_port;

int port_init(struct port *p)
{
	p->head = p->own = NULL;
	p->own_tail = &p->own;
	p->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return p->efd < 0 ? -errno : 0;
}

void port_fini(struct port *p)
{
	if (p->efd >= 0)
		close(p->efd);
	p->efd = -1;
}

void port_post(struct port *p, struct msg *m)
{
	struct msg *old;

	if (p == this_port) {
		m->next = NULL;
		*p->own_tail = m;
		p->own_tail = &m->next;
		return;
	}
	old = load_relaxed(&p->head);
	do
		m->next = old;
	while (!cas_release_relaxed(&p->head, &old, m)); /* with the exchange in port_run() */
	/* Behind the push: the owner clears the descriptor before it takes the messages. */
	if (!old)
		eventfd_write(p->efd, 1);
}

void port_clear(struct port *p)
{
	eventfd_t n;

	eventfd_read(p->efd, &n);
}

void port_run(struct port *p)
{
	struct msg *m = NULL, *next, *list;

	if (load_relaxed(&p->head)) {
		for (list = xchg_acquire(&p->head, NULL); list; list = next) {
			next = list->next;
			list->next = m;
			m = list;
		}
		for (; m; m = next) {
			next = m->next;
			m->fn(m);
		}
	}
	while (p->own) {
		m = p->own;
		p->own = m->next;
		if (!p->own)
			p->own_tail = &p->own;
		m->fn(m);
	}
}
