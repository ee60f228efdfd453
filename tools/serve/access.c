// SPDX-License-Identifier: Apache-2.0
/*
 * The access log: a line for one in access_log infer requests, with what finds it again at its
 * client.  The loop copies numbers and names; the thread of the log makes the text (log.c).
 */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "serve.h"

/* Where the connection comes from; "" if that is a socket of this machine, or closed. */
static void peer(int fd, char *to, size_t size)
{
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} a = { .sa = { .sa_family = AF_UNSPEC } };
	socklen_t len = sizeof(a);
	char text[INET6_ADDRSTRLEN] = "";

	if (fd < 0 || getpeername(fd, &a.sa, &len))
		return;
	if (a.sa.sa_family == AF_INET &&
	    inet_ntop(AF_INET, &a.in.sin_addr, text, sizeof(text)))
		snprintf(to, size, "%s:%u", text, ntohs(a.in.sin_port));
	else if (a.sa.sa_family == AF_INET6 &&
		 inet_ntop(AF_INET6, &a.in6.sin6_addr, text, sizeof(text)))
		snprintf(to, size, "[%s]:%u", text, ntohs(a.in6.sin6_port));
}

void access_note(struct loop *l, const struct conn *c, const char *traceparent,
		 const struct request *r, const char *model, int64_t version, int http)
{
	unsigned int every = load_relaxed(&l->sv->cfg.access_log);
	const struct slot *s = r ? r->slot : NULL;
	struct access *a;
	size_t n;

	if (!every || l->accesses++ % every)
		return;
	a = log_access_begin();
	if (!a)
		return;
	a->protocol = c->h2 ? "grpc" : "http";
	peer(c->fd, a->client, sizeof(a->client));
	snprintf(a->traceparent, sizeof(a->traceparent), "%s", traceparent);
	snprintf(a->model, sizeof(a->model), "%s", model);
	a->version = version;
	a->status = http;
	if (r) {
		n = r->id.n < sizeof(a->id) ? r->id.n : sizeof(a->id) - 1;
		if (n)
			memcpy(a->id, r->id.p, n);
		a->rows = r->rows;
		a->total_ns = now_ns() - r->first_ns;
	}
	if (s) {
		a->queue_ns = s->start_ns - r->arrival_ns;
		a->compute_ns = s->done_ns - s->launched_ns;
	}
	log_access(a);
}
