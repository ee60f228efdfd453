// SPDX-License-Identifier: Apache-2.0
/*
 * A connection: its socket, its times, and its turns.  http.c has the requests of HTTP/1.1,
 * answer.c the answers to them, and h2.c the connections of HTTP/2.
 *
 * Requests of a connection are answered one after the other.  Requests that a client sends
 * before the answer to an earlier one wait, one buffer of them in the server and the rest in
 * the socket.  The descriptor is registered once, edge-triggered, so a request costs two system
 * calls: recv and send.  The body of a request is received into the buffer that the parser of
 * the tensors reads.
 *
 * If a client shuts down its side while its request is in work, the request is canceled,
 * because the server cannot distinguish a shutdown from a close.
 *
 * A connection does a bounded amount of work in a turn of its loop, so that a client that never
 * stops sending does not keep the loop from the others.
 *
 * All of this runs on the loop of the connection.
 */

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conn.h"

#define SCRATCH		65536u
#define LINGER_NS	2000000000u
#define H2_TICK_NS	1000000000u
#define MAX_ADMIN	64u		/* connections of the administrator */
#define TURN_WORK	32		/* requests, and receptions of 64 KiB, of a connection in a turn */
#define TURN_SEND	(1u << 20)	/* bytes that it sends in a turn, about */

/* --- timers: lists in order of their ends, since each list has one duration -------- */

void conn_timer(struct conn *c, int kind)
{
	const struct config *cfg = &c->loop->sv->cfg;
	const uint64_t length[TIMERS] = { load_relaxed(&cfg->idle_ns), load_relaxed(&cfg->read_ns),
		load_relaxed(&cfg->write_ns), LINGER_NS, UINT64_MAX / 2, H2_TICK_NS };
	struct loop *l = c->loop;

	if (c->timer != TIMER_NONE) {
		if (c->prev)
			c->prev->next = c->next;
		else
			l->timer_head[c->timer] = c->next;
		if (c->next)
			c->next->prev = c->prev;
		else
			l->timer_tail[c->timer] = c->prev;
	}
	c->timer = kind;
	c->next = NULL;
	if (kind == TIMER_NONE)
		return;
	c->timer_ns = l->clock + length[kind];
	c->prev = l->timer_tail[kind];
	if (c->prev)
		c->prev->next = c;
	else
		l->timer_head[kind] = c;
	l->timer_tail[kind] = c;
}

/* --- output -------------------------------------------------------------------- */

/* Continue in the next turn. */
void conn_yield(struct conn *c)
{
	struct loop *l = c->loop;

	if (c->yields)
		return;
	c->yields = true;
	c->again_next = l->again;
	l->again = c;
}

void conn_send(struct conn *c)
{
	size_t sent = 0, most;
	ssize_t n;

	while (c->out_at < c->out.n) {
		/* a client that reads as fast as this loop sends does not keep it */
		if (sent >= TURN_SEND) {
			conn_yield(c);
			return;
		}
		most = c->out.n - c->out_at;
		n = send(c->fd, c->out.p + c->out_at, most < TURN_SEND ? most : TURN_SEND,
			 MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			conn_close(c);
			return;
		}
		c->out_at += (size_t)n;
		sent += (size_t)n;
	}
	add_relaxed(&c->loop->sv->answers, 1);
	buf_put(c->loop, &c->out);
	hold(c, 0);
	if (c->keep) {
		c->state = CONN_READING;
		conn_timer(c, TIMER_IDLE);
		if (c->loop->draining && !c->rest.n)
			conn_close(c);
		return;
	}
	/* With unread input, a close at once could discard the answer. */
	buf_put(c->loop, &c->rest);
	shutdown(c->fd, SHUT_WR);
	c->state = CONN_LINGER;
	conn_timer(c, TIMER_LINGER);
	c->readable = true;
}

/* --- input --------------------------------------------------------------------- */

bool conn_spent(struct conn *c, size_t n)
{
	struct loop *l = c->loop;

	if (c->turn != l->turn) {
		c->turn = l->turn;
		c->work = 0;
	}
	c->work += 1 + (unsigned int)(n / SCRATCH);
	if (c->work > TURN_WORK)
		conn_yield(c);
	return c->yields;
}

/* Receive until the socket is empty, or a request is in work. */
static void conn_read(struct conn *c)
{
	struct loop *l = c->loop;
	size_t room = 0;
	bool direct;
	char *to;
	ssize_t n;

	while (c->readable && (c->state == CONN_READING || c->state == CONN_LINGER) &&
	       !conn_spent(c, room)) {
		/* the rest of a body of known length goes to its place */
		direct = c->state == CONN_READING && c->in_request && c->body.p &&
			body_known(&c->parser) && c->parser.content_length &&
			c->body.n + c->parser.content_length < c->body.cap;
		to = direct ? c->body.p + c->body.n : l->scratch;
		room = direct ? c->parser.content_length : SCRATCH;
		n = recv(c->fd, to, room, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			c->readable = false;
			return;
		}
		if (n <= 0) {
			conn_close(c);
			return;
		}
		/* less than room: the socket is empty, and the next byte is a new event */
		if ((size_t)n < room && !c->eof)
			c->readable = false;
		room = (size_t)n;
		if (c->state == CONN_READING)
			http_feed(c, to, (size_t)n);
	}
	if (c->eof && c->state == CONN_BUSY)
		conn_close(c);
}

void conn_continue(struct conn *c)
{
	struct buf b;

	if (c->h2) {
		h2_continue(c);
		return;
	}
	while (c->state == CONN_READING && c->rest.n && !c->yields) {
		b = c->rest;
		c->rest = (struct buf){ 0 };
		http_feed(c, b.p, b.n);
		buf_put(c->loop, &b);
	}
	conn_read(c);
}

void conn_again(struct loop *l)
{
	struct conn *c = l->again, *next;

	l->again = NULL;
	l->turn++;
	for (; c; c = next) {
		next = c->again_next;
		c->yields = false;
		if (c->state == CONN_WRITING && !c->h2)
			conn_send(c);
		if (c->state != CONN_DEAD && !c->yields)
			conn_continue(c);
		if (c->state == CONN_DEAD || (l->draining && c->state == CONN_READING &&
					      !c->h2 && !c->in_request && !c->yields))
			conn_close(c);
	}
}

void conn_event(struct conn *c, uint32_t events)
{
	if (c->state == CONN_DEAD)
		return;
	if (events & (EPOLLERR | EPOLLHUP)) {
		conn_close(c);
		return;
	}
	if (events & EPOLLIN)
		c->readable = true;
	if (events & EPOLLRDHUP)
		c->eof = c->readable = true;
	if (c->h2) {
		h2_event(c, events);
		return;
	}
	if (events & EPOLLOUT && c->state == CONN_WRITING)
		conn_send(c);
	conn_continue(c);
}

static void expire(struct conn *c)
{
	int kind = c->timer;
	uint64_t end = c->timer_ns;

	if (kind == TIMER_H2) {
		conn_timer(c, TIMER_H2);
		h2_tick(c);
		return;
	}
	if (c->yields) {
		conn_timer(c, kind);	/* it waits for the loop */
		return;
	}
	/* what has arrived or was read meanwhile: its event may still be in the kernel */
	if (kind == TIMER_IDLE || kind == TIMER_READ) {
		c->readable = true;
		conn_continue(c);
	} else if (kind == TIMER_WRITE) {
		conn_send(c);
	}
	if (c->state == CONN_DEAD || c->timer != kind || c->timer_ns != end || c->yields)
		return;
	if (kind != TIMER_READ) {
		conn_close(c);
		return;
	}
	add_relaxed(&c->loop->sv->requests, 1);
	c->keep = false;
	c->parser.http_errno = HPE_OK;
	conn_error(c, 408, "the request took too long");
	if (c->timer == TIMER_READ)
		conn_close(c);
}

void conn_tick(struct loop *l)
{
	struct conn *c;
	int kind;

	for (kind = 0; kind < TIMERS; kind++)
		while ((c = l->timer_head[kind]) && c->timer_ns <= l->clock) {
			expire(c);
			/* those that yield are at the head until their next turn */
			if (l->timer_head[kind] == c && c->yields)
				conn_timer(c, kind);
		}
}

void conn_close(struct conn *c)
{
	struct loop *l = c->loop;

	if (c->state != CONN_DEAD) {
		conn_timer(c, TIMER_NONE);
		close(c->fd);
		c->state = CONN_DEAD;
		c->fd = -1;
		buf_put(l, &c->rest);
		buf_put(l, &c->out);
		l->nconns--;
		l->nadmin -= c->admin;
		if (c->h2)
			h2_closed(c);
		else
			infer_forget(c);
	}
	if (c->r || c->request_pending || c->yields || c->buried)
		return; /* it, or its body, is in use: called again at its end */
	c->buried = true;
	if (c->h2)
		h2_free(c);
	buf_put(l, &c->body);
	hold(c, 0);
	c->dead_next = l->all_dead;
	l->all_dead = c;
}

void conn_drain(struct loop *l)
{
	struct conn *c, *next;

	/* What has arrived is answered, and new connections have a moment for their request. */
	for (c = l->timer_head[TIMER_IDLE]; c; c = next) {
		next = c->next;
		c->readable = true;
		conn_read(c);
		if (c->yields)
			continue;	/* conn_again() */
		if (c->state == CONN_READING && !c->in_request && c->used)
			conn_close(c);
		else if (c->state == CONN_READING && !c->in_request)
			conn_timer(c, TIMER_LINGER);
	}
	for (c = l->timer_head[TIMER_H2]; c; c = next) {
		next = c->next;
		h2_drain(c);
	}
}

static void refuse_connection(int fd, unsigned int kind)
{
	static const char text[] =
		"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
		"Content-Type: application/json\r\nContent-Length: 32\r\n"
		"Connection: close\r\n\r\n"
		"{\"error\":\"too many connections\"}";

	/* a client of gRPC takes a closed connection as UNAVAILABLE */
	if (kind != LISTEN_GRPC)
		(void)!send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	close(fd);
}

struct conn *conn_open(struct loop *l, int fd, unsigned int kind)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->loop = l;
	c->fd = fd;
	c->timer = TIMER_NONE;
	c->keep = true;
	c->admin = kind == LISTEN_ADMIN;
	http_parser_init(&c->parser, HTTP_REQUEST);
	c->parser.data = c;
	ev.data.ptr = c;
	if ((kind == LISTEN_GRPC && h2_open(c)) || epoll_ctl(l->ep, EPOLL_CTL_ADD, fd, &ev)) {
		if (c->h2)
			h2_free(c);
		free(c);
		return NULL;
	}
	l->nconns++;
	l->nadmin += c->admin;
	conn_timer(c, kind == LISTEN_GRPC ? TIMER_H2 : TIMER_IDLE);
	return c;
}

/* The administrator has connections and descriptors that other clients cannot use up. */
static bool has_room(const struct loop *l, unsigned int kind, int fd)
{
	const struct config *cfg = &l->sv->cfg;
	unsigned int most = (load_relaxed(&cfg->max_connections) + cfg->loops - 1) / cfg->loops;

	return kind == LISTEN_ADMIN ? l->nadmin < MAX_ADMIN :
		l->nconns - l->nadmin < most && (!cfg->free_fd || fd < cfg->free_fd);
}

void conn_accept(struct loop *l, unsigned int kind, unsigned int most)
{
	int fd, on = 1;

	while (most-- > 0) {
		fd = accept4(l->listener[kind], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			    errno == ENOMEM) {
				/* the listener stays readable: rest for a while */
				epoll_ctl(l->ep, EPOLL_CTL_DEL, l->listener[kind], NULL);
				l->listening_paused[kind] = true;
			}
			if (errno == ECONNABORTED || errno == EINTR)
				continue;
			return;
		}
		add_relaxed(&l->sv->connections, 1);
		if (!has_room(l, kind, fd)) {
			refuse_connection(fd, kind);
			continue;
		}
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		if (!conn_open(l, fd, kind))
			refuse_connection(fd, kind);
	}
}
