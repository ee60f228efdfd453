// SPDX-License-Identifier: Apache-2.0
/*
 * pool.so: connections of HTTP/1.1 for loadgen.py; in Python they would be slower than the
 * server.
 *
 * Each connection has one request in flight, always the same bytes, and the caller's token for
 * it; further tokens wait.  One thread calls all functions except pool_wake().
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "framing.h"

#define CONNECTIONS	64
#define ANSWER_MAX	65536u

struct conn {
	int fd;
	uint64_t token;
	size_t n;		/* bytes of the answer */
	char text[ANSWER_MAX];
};

struct pool {
	int epfd, wake, port;
	const char *request;
	size_t n;
	struct conn conns[CONNECTIONS];
	struct conn *idle[CONNECTIONS];
	int nidle;
	uint64_t *waiting;	/* from first to last */
	size_t first, last, cap;
};

int pool_open(struct pool **out, int port, const char *request, size_t n);
int pool_send(struct pool *p, const uint64_t *tokens, size_t n);
int pool_poll(struct pool *p, int timeout_ms, uint64_t *tokens, int max, int *failed);
void pool_wake(struct pool *p);

static int connect_one(struct pool *p, struct conn *c)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)p->port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };
	int one = 1;

	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		return -errno;
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(c->fd, (struct sockaddr *)&at, sizeof(at)) ||
	    epoll_ctl(p->epfd, EPOLL_CTL_ADD, c->fd, &e))
		return -errno;
	p->idle[p->nidle++] = c;
	return 0;
}

int pool_open(struct pool **out, int port, const char *request, size_t n)
{
	struct pool *p = calloc(1, sizeof(*p));
	struct epoll_event e = { .events = EPOLLIN };
	int i, rc;

	if (!p)
		return -ENOMEM;
	*out = p;
	p->port = port;
	p->request = request;
	p->n = n;
	p->epfd = epoll_create1(EPOLL_CLOEXEC);
	p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (epoll_ctl(p->epfd, EPOLL_CTL_ADD, p->wake, &e))
		return -errno;
	for (i = 0; i < CONNECTIONS; i++) {
		rc = connect_one(p, &p->conns[i]);
		if (rc)
			return rc;
	}
	return 0;
}

void pool_wake(struct pool *p)
{
	eventfd_write(p->wake, 1);
}

/* Assign waiting tokens to idle connections.  Broken connections are found later. */
static void start(struct pool *p)
{
	size_t at;
	ssize_t n;

	while (p->nidle && p->first < p->last) {
		struct conn *c = p->idle[--p->nidle];

		c->token = p->waiting[p->first++];
		c->n = 0;
		for (at = 0; at < p->n; at += (size_t)n) {
			n = send(c->fd, p->request + at, p->n - at, MSG_NOSIGNAL);
			if (n < 0)
				break;
		}
	}
}

int pool_send(struct pool *p, const uint64_t *tokens, size_t n)
{
	size_t kept = p->last - p->first, cap = p->cap ? p->cap : 1024;
	uint64_t *to;

	if (p->last + n > p->cap) {
		while (cap < kept + n)
			cap *= 2;
		memmove(p->waiting, p->waiting + p->first, kept * sizeof(*to));
		to = realloc(p->waiting, cap * sizeof(*to));
		if (!to)
			return -ENOMEM;
		p->waiting = to;
		p->first = 0;
		p->last = kept;
		p->cap = cap;
	}
	memcpy(p->waiting + p->last, tokens, n * sizeof(*tokens));
	p->last += n;
	start(p);
	return 0;
}

/* Returns true if the request of c has ended. */
static int receive(struct pool *p, struct conn *c, int *failed)
{
	ssize_t n = recv(c->fd, c->text + c->n, ANSWER_MAX - c->n, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n > 0) {
		c->n += (size_t)n;
		if (!message_length(c->text, c->n) && c->n < ANSWER_MAX)
			return 0;
		*failed += strncmp(c->text, "HTTP/1.1 200 ", 13) != 0;
		p->idle[p->nidle++] = c;
		return 1;
	}
	(*failed)++;
	close(c->fd);
	connect_one(p, c);
	return 1;
}

/* Wait for answers.  Returns the number of tokens whose requests have ended. */
int pool_poll(struct pool *p, int timeout_ms, uint64_t *tokens, int max, int *failed)
{
	struct epoll_event ev[CONNECTIONS + 1];
	eventfd_t count;
	int i, n, done = 0;

	n = epoll_wait(p->epfd, ev, max < CONNECTIONS ? max : CONNECTIONS, timeout_ms);
	*failed = 0;
	for (i = 0; i < n; i++) {
		struct conn *c = ev[i].data.ptr;

		if (!c)
			eventfd_read(p->wake, &count);
		else if (receive(p, c, failed))
			tokens[done++] = c->token;
	}
	start(p);
	return done;
}
