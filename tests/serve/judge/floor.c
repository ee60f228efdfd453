// SPDX-License-Identifier: Apache-2.0
/*
 * floor PORT START=FILE... - shows the least that an answer over HTTP/1.1 costs: one thread
 * with an epoll answers each request with the contents of a file.
 *
 * The first START with which a request begins selects the file, which has a complete answer
 * with its head.  Apart from that only the Content-Length of a request is read, to find its
 * end.  SIGTERM ends the program.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "framing.h"

#define REQUEST_MAX	(1u << 20)
#define ANSWER_MAX	65536u
#define ANSWERS		16
#define EVENTS		64

struct answer {
	const char *start;
	char *text;
	size_t n;
};

struct conn {
	int fd;
	size_t n;		/* bytes of a request that has not ended */
	char text[REQUEST_MAX];
};

static struct answer answers[ANSWERS];
static int nanswers;

static void die(const char *what)
{
	fprintf(stderr, "floor: %s: %s\n", what, errno ? strerror(errno) : "not good");
	exit(1);
}

static void read_answer(char *arg)
{
	struct answer *a = &answers[nanswers++];
	char *path = strchr(arg, '=');
	FILE *f;

	if (!path)
		die(arg);
	*path++ = 0;
	a->start = arg;
	a->text = malloc(ANSWER_MAX);
	f = fopen(path, "re");
	if (!f || !a->text)
		die(path);
	a->n = fread(a->text, 1, ANSWER_MAX, f);
	fclose(f);
}

/* Returns false if the connection has ended. */
static int serve(struct conn *c)
{
	ssize_t got = recv(c->fd, c->text + c->n, sizeof(c->text) - c->n, 0);
	size_t n;
	int i;

	if (got <= 0)
		return got < 0 && errno == EAGAIN;
	c->n += (size_t)got;
	while ((n = message_length(c->text, c->n))) {
		for (i = 0; i < nanswers && (strlen(answers[i].start) > n ||
		     memcmp(c->text, answers[i].start, strlen(answers[i].start))); i++)
			;
		/* the socket's buffer has room if the client reads its answers */
		if (i == nanswers || send(c->fd, answers[i].text, answers[i].n,
					  MSG_NOSIGNAL) != (ssize_t)answers[i].n)
			return 0;
		c->n -= n;
		memmove(c->text, c->text + n, c->n);
	}
	return c->n < sizeof(c->text);
}

static void accept_one(int epfd, int listener)
{
	int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct conn *c = fd < 0 ? NULL : malloc(sizeof(*c));
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };

	if (!c)
		die("accept");
	c->fd = fd;
	c->n = 0;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &e))
		die("epoll_ctl");
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct epoll_event ev[EVENTS] = { { .events = EPOLLIN } };
	int one = 1, epfd = epoll_create1(EPOLL_CLOEXEC), i, n;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (argc < 3 || argc > ANSWERS + 2)
		die("usage: floor PORT START=FILE...");
	for (i = 2; i < argc; i++)
		read_answer(argv[i]);
	at.sin_port = htons((uint16_t)atoi(argv[1]));
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 4096) ||
	    epoll_ctl(epfd, EPOLL_CTL_ADD, listener, ev))
		die("listen");
	for (;;) {
		n = epoll_wait(epfd, ev, EVENTS, -1);
		for (i = 0; i < n; i++) {
			struct conn *c = ev[i].data.ptr;

			if (!c) {
				accept_one(epfd, listener);
			} else if (!serve(c)) {
				close(c->fd);
				free(c);
			}
		}
	}
}
