// SPDX-License-Identifier: Apache-2.0
/* The calls of pawl load outside the measurement: one connection for each, blocking. */

#include <errno.h>
#include <http_parser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "load.h"

#define BODY_MAX (64u << 20)

struct answer {
	char *body;
	size_t n;
	bool complete, failed;
};

static int on_body(http_parser *p, const char *at, size_t n)
{
	struct answer *a = p->data;
	char *body = n < BODY_MAX - a->n ? realloc(a->body, a->n + n + 1) : NULL;

	if (!body) {
		a->failed = true;
		return 1;
	}
	a->body = body;
	memcpy(body + a->n, at, n);
	a->n += n;
	body[a->n] = 0;
	return 0;
}

static int on_complete(http_parser *p)
{
	((struct answer *)p->data)->complete = p->status_code / 100 != 1;
	return 0;
}

static int complain(const struct options *o, const char *why)
{
	fprintf(stderr, "%s: %s: %s\n", LOAD_SELF, o->authority, why);
	return -1;
}

static int connect_to(const struct sockaddr *addr, socklen_t len, uint64_t wait_ns)
{
	struct timeval tv = { .tv_sec = (time_t)(wait_ns / 1000000000u),
			      .tv_usec = (suseconds_t)(wait_ns % 1000000000u / 1000) };
	int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	if (!connect(fd, addr, len))
		return fd;
	close(fd);
	return -1;
}

int load_connect(const struct options *o)
{
	int one = 1, fd = socket(o->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (!connect(fd, (const struct sockaddr *)&o->addr, o->addr_len) ||
	    errno == EINPROGRESS)
		return fd;
	close(fd);
	return -1;
}

int load_http_resolve(struct options *o)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list, *i;
	int rc = getaddrinfo(o->host, o->port, &hints, &list), fd = -1;

	if (rc)
		return complain(o, rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
	for (i = list; i && fd < 0; i = i->ai_next) {
		fd = connect_to(i->ai_addr, i->ai_addrlen, o->wait_ns);
		if (fd >= 0) {
			memcpy(&o->addr, i->ai_addr, i->ai_addrlen);
			o->addr_len = i->ai_addrlen;
		}
	}
	rc = errno;
	freeaddrinfo(list);
	if (fd < 0)
		return complain(o, strerror(rc));
	close(fd);
	return 0;
}

static const char *exchange(int fd, const char *head, size_t n, http_parser *p, uint64_t end)
{
	static const http_parser_settings settings = {
		.on_body = on_body,
		.on_message_complete = on_complete,
	};
	struct answer *a = p->data;
	char buf[16384];
	ssize_t k;

	for (; n; head += k, n -= (size_t)k) {
		k = send(fd, head, n, MSG_NOSIGNAL);
		if (k < 0)
			return errno == EAGAIN ? "no answer" : strerror(errno);
	}
	do {
		k = recv(fd, buf, sizeof(buf), 0);
		if (k < 0)
			return errno == EAGAIN ? "no answer" : strerror(errno);
		/* one that arrives byte by byte never reaches the limit of a recv */
		if (load_now() > end)
			return "no answer";
		http_parser_execute(p, &settings, buf, (size_t)k);
		if (a->failed)
			return "the answer is too long";
		if (!a->complete && HTTP_PARSER_ERRNO(p) != HPE_OK)
			return "the answer is not HTTP";
		if (!a->complete && !k)
			return "the server closed the connection before the answer";
	} while (!a->complete);
	return NULL;
}

int load_http_get(const struct options *o, const char *path, int *status, char **body,
		  size_t *n)
{
	struct answer a = { 0 };
	http_parser parser;
	const char *why;
	char *head = NULL;
	int fd, k;

	k = asprintf(&head, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n", path,
		     o->authority, o->headers ? o->headers : "");
	if (k < 0)
		return complain(o, strerror(ENOMEM));
	fd = connect_to((const struct sockaddr *)&o->addr, o->addr_len, o->wait_ns);
	http_parser_init(&parser, HTTP_RESPONSE);
	parser.data = &a;
	why = fd < 0 ? strerror(errno) : exchange(fd, head, (size_t)k, &parser,
							 load_now() + o->wait_ns);
	if (fd >= 0)
		close(fd);
	free(head);
	if (why) {
		free(a.body);
		return complain(o, why);
	}
	*status = (int)parser.status_code;
	*body = a.body;
	*n = a.n;
	return 0;
}
