// SPDX-License-Identifier: Apache-2.0
/*
 * Requests over HTTP/1.1: each call is a connection.
 *
 * A request in flight costs two system calls, send and recv, and its share of an epoll_pwait2.
 *
 * A server may close a connection that it kept alive while the next request is on its way.  That
 * request is sent once more, on a new connection, as the clients of HTTP do.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "client.h"

/* --- the answer --------------------------------------------------------------------- */

static int on_body(http_parser *p, const char *at, size_t n)
{
	struct call *c = p->data;
	struct thread *t = c->t;

	if (p->status_code == 200 || p->status_code == 503 || t->r->failure[0])
		return 0;
	if (!t->shown) {
		t->shown = c;
		t->nbody = 0;
	}
	if (t->shown == c) {
		if (n > BODY_SHOWN - t->nbody)
			n = BODY_SHOWN - t->nbody;
		memcpy(t->body + t->nbody, at, n);
		t->nbody += n;
	}
	return 0;
}

static int on_complete(http_parser *p)
{
	struct call *c = p->data;

	if (p->status_code / 100 == 1)	/* the answer follows */
		return 0;
	c->h1.complete = true;
	c->h1.keep = http_should_keep_alive(p);
	http_parser_pause(p, 1);
	return 0;
}

static const http_parser_settings settings = {
	.on_body = on_body,
	.on_message_complete = on_complete,
};

static void answered(struct thread *t, struct call *c, bool clean)
{
	unsigned int status = c->h1.parser.status_code;
	enum outcome what = status == 200 ? ANSWERED : status == 503 ? REFUSED : FAILED;
	char text[64];

	if (what == FAILED) {
		snprintf(text, sizeof(text), "status %u: ", status);
		load_failure(t, text, t->shown == c ? t->body : "",
			     t->shown == c ? t->nbody : 0);
	}
	c->h1.used = true;
	load_answered(t, c, what, status,
		      clean && c->h1.keep && c->h1.sent == c->request->n);
}

static void start(struct thread *t, struct call *c);
static void drop(struct thread *t, struct call *c);

/* The server closed the connection. */
static void gone(struct thread *t, struct call *c, const char *why)
{
	if (!c->h1.used || c->h1.got || !load_again(t, c)) {
		load_lost(t, c, why);
		return;
	}
	drop(t, c);
	start(t, c);
}

static void receive(struct thread *t, struct call *c)
{
	size_t used;
	ssize_t n;

	do {
		do
			n = recv(c->h1.fd, t->buf, RECV_SIZE, 0);
		while (n < 0 && errno == EINTR);
		if (n < 0) {
			if (errno == ECONNRESET)
				gone(t, c, strerror(errno));
			else if (errno != EAGAIN)
				load_lost(t, c, strerror(errno));
			return;
		}
		c->h1.got |= n > 0;
		used = http_parser_execute(&c->h1.parser, &settings, t->buf, (size_t)n);
		if (c->h1.complete) {
			/* bytes after an answer belong to no request */
			answered(t, c, n && used == (size_t)n);
			return;
		}
		if (!n && !c->h1.got) {
			gone(t, c, "the server closed the connection before the answer");
			return;
		}
		if (HTTP_PARSER_ERRNO(&c->h1.parser) != HPE_OK) {
			load_lost(t, c, n ? http_errno_description(HTTP_PARSER_ERRNO(&c->h1.parser)) :
			     "the server closed the connection inside an answer");
			return;
		}
		if (!n) {
			load_lost(t, c, "the server closed the connection before the answer");
			return;
		}
	} while (n == RECV_SIZE);
}

static bool want(struct thread *t, struct call *c, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = c };

	if (c->h1.events == events)
		return true;
	if (epoll_ctl(t->epfd, c->h1.events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->h1.fd, &e))
		return false;
	c->h1.events = events;
	return true;
}

static void transmit(struct thread *t, struct call *c)
{
	const struct request *q = c->request;
	ssize_t n;

	while (c->h1.sent < q->n) {
		n = send(c->h1.fd, q->p + c->h1.sent, q->n - c->h1.sent, MSG_NOSIGNAL);
		if (n >= 0) {
			c->h1.sent += (size_t)n;
		} else if (errno == EAGAIN) {
			if (!want(t, c, EPOLLIN | EPOLLOUT))
				load_lost(t, c, strerror(errno));
			return;
		} else if (errno == EPIPE || errno == ECONNRESET) {
			/* the server may have answered before all of the request arrived */
			n = recv(c->h1.fd, t->buf, 1, MSG_PEEK);
			if (n > 0)
				receive(t, c);
			else
				gone(t, c, n ? strerror(errno) :
				     "the server closed the connection before the answer");
			return;
		} else if (errno != EINTR) {
			load_lost(t, c, strerror(errno));
			return;
		}
	}
	if (!want(t, c, EPOLLIN))
		load_lost(t, c, strerror(errno));
}

static void start(struct thread *t, struct call *c)
{
	c->h1.sent = 0;
	c->h1.complete = c->h1.got = false;
	http_parser_init(&c->h1.parser, HTTP_RESPONSE);
	c->h1.parser.data = c;
	if (c->h1.fd < 0) {
		c->h1.events = 0;
		c->h1.used = false;
		c->h1.fd = load_connect(t->o);
		if (c->h1.fd < 0) {
			load_lost(t, c, strerror(errno));
			return;
		}
		load_opened(t);
	}
	transmit(t, c);
}

/* --- the connection ---------------------------------------------------------------- */

static void drop(struct thread *t, struct call *c)
{
	(void)t;
	if (c->h1.fd >= 0)
		close(c->h1.fd);
	c->h1.fd = -1;
}

static void event(struct thread *t, void *ptr, uint32_t events)
{
	struct call *c = ptr;

	/* an earlier event closed the connection */
	if (c->h1.fd < 0)
		return;
	if (!c->request) {
		/* idle: the server closed it, or sends bytes without a request */
		drop(t, c);
		load_closed(t, c);
	} else if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
		receive(t, c);
	} else {
		transmit(t, c);
	}
}

static int init(struct thread *t)
{
	unsigned int i;

	t->ncalls = load_part(t, t->step->rate ? t->o->connections : t->step->concurrency);
	t->calls = calloc(t->ncalls, sizeof(*t->calls));
	for (i = 0; t->calls && i < t->ncalls; i++)
		t->calls[i].h1.fd = -1;
	return t->calls ? 0 : ENOMEM;
}

static void fini(struct thread *t)
{
	unsigned int i;

	for (i = 0; t->calls && i < t->ncalls; i++)
		drop(t, &t->calls[i]);
}

const struct transport load_h1 = {
	.init = init,
	.fini = fini,
	.start = start,
	.drop = drop,
	.event = event,
};
