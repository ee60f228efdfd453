// SPDX-License-Identifier: Apache-2.0
/*
 * A connection: HTTP/1.1 by the library http-parser.
 *
 * Requests of a connection are answered one after the other.  Requests that a client sends
 * before the answer to an earlier one wait, one buffer of them in the server and the rest in
 * the socket.  The descriptor is registered once, edge-triggered, so a request costs two system
 * calls: recv and send.  The body of a request is received into the buffer that the parser of
 * the tensors reads.
 *
 * A client sends the same head again and again.  If a head equals the last one of its connection
 * byte for byte, what the parser said of that one still holds, and the parser begins behind it.
 *
 * If a client shuts down its side while its request is in work, the request is canceled,
 * because the server cannot distinguish a shutdown from a close.
 *
 * http-parser is more lenient than servers in front of this one may be: frame.c is strict.
 *
 * A connection does a bounded amount of work in a turn of its loop, so that a client that never
 * stops sending does not keep the loop from the others.
 *
 * All of this runs on the loop of the connection.
 */

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve.h"
#include "zip.h"

#define SCRATCH		65536u
#define LINGER_NS	2000000000u
#define ZIP_LEAST	1024u		/* bytes of an answer that is compressed */
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

/* --- the parser's callbacks ---------------------------------------------------- */

static void begin(struct conn *c)
{
	c->complete = false;
	c->refused = 0;
	c->in_request = c->used = true;
	c->first_ns = c->loop->now;
	conn_timer(c, TIMER_READ);
}

static int on_begin(http_parser *p)
{
	struct conn *c = p->data;

	c->nurl = c->nfield = c->nvalue = c->nhead = 0;
	c->in_value = c->want_continue = false;
	c->encoding = c->accepts = ZIP_NONE;
	c->site = SITE_UNKNOWN;
	*c->host = *c->origin = *c->traceparent = 0;
	c->headed = false;
	c->hosts = c->encodings = 0;
	c->authorized = !c->loop->token[c->admin];
	c->secrets = c->loop->secrets;
	c->json_length = -1;
	begin(c);
	return 0;
}

static int refuse(struct conn *c, int http, const char *why)
{
	c->refused = http;
	c->refused_why = why;
	http_parser_pause(&c->parser, 1);
	return 0;
}

static int on_url(http_parser *p, const char *at, size_t n)
{
	struct conn *c = p->data;

	if (n >= sizeof(c->url) - c->nurl)
		return refuse(c, 414, "the URL is too long");
	memcpy(c->url + c->nurl, at, n);
	c->nurl += (unsigned int)n;
	return 0;
}

/* Equality in a time that depends on the lengths alone. */
static bool same_secret(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b), i;
	unsigned char diff = n != m;

	for (i = 0; i < n; i++)
		diff |= (unsigned char)(a[i] ^ b[m ? i % m : 0]);
	return !diff;
}

bool conn_authorized(struct conn *c, const char *authorization)
{
	const char *token = c->loop->token[c->admin];

	return !token || (!strncasecmp(authorization, "Bearer ", 7) &&
			  same_secret(authorization + 7, token));
}

/* A header is complete. */
static int header(struct conn *c)
{
	char *end;

	if (!c->in_value)
		return 0;
	c->in_value = false;
	/* longer ones than are known here */
	if (c->nfield >= sizeof(c->field)) {
		c->nfield = c->nvalue = 0;
		return 0;
	}
	c->field[c->nfield] = 0;
	if (c->nvalue < sizeof(c->value))
		c->value[c->nvalue] = 0;
	else
		c->value[0] = 0;
	c->nfield = c->nvalue = 0;
	if (!strcasecmp(c->field, "Host")) {
		/* each client sends it */
		if (c->hosts++)
			return refuse(c, 400, "more than one Host");
		memcpy(c->host, c->value, sizeof(c->host) - 1);
		c->host[sizeof(c->host) - 1] = 0;
	} else if (!strcasecmp(c->field, "Inference-Header-Content-Length")) {
		errno = 0;
		c->json_length = strtoll(c->value, &end, 10);
		if (end == c->value || *end || c->json_length < 0 || errno)
			return refuse(c, 400,
				      "Unable to parse Inference-Header-Content-Length");
	} else if (!strcasecmp(c->field, "Expect")) {
		if (strcasecmp(c->value, "100-continue"))
			return refuse(c, 417, "only 100-continue is expected");
		c->want_continue = true;
	} else if (!strcasecmp(c->field, "Transfer-Encoding")) {
		if (c->encodings++ || strcasecmp(c->value, "chunked"))
			return refuse(c, 400, "the only Transfer-Encoding is chunked, once");
	} else if (!strcasecmp(c->field, "Content-Encoding")) {
		/* one that comes twice is a list of two */
		c->encoding = (unsigned char)(c->encoding ? ZIP_UNKNOWN :
			zip_encoding(c->value, strlen(c->value)));
	} else if (!strcasecmp(c->field, "Accept-Encoding")) {
		c->accepts = (unsigned char)zip_accepted(c->value);
	} else if (!strcasecmp(c->field, "Sec-Fetch-Site")) {
		c->site = strcasecmp(c->value, "same-origin") && strcasecmp(c->value, "none") ?
			SITE_OTHER : SITE_SAME;
	} else if (!strcasecmp(c->field, "Origin")) {
		snprintf(c->origin, sizeof(c->origin), "%.63s",
			 *c->value ? c->value : "null");
	} else if (!strcasecmp(c->field, "traceparent")) {
		snprintf(c->traceparent, sizeof(c->traceparent), "%.*s", TRACEPARENT - 1,
			 c->value);
	} else if (!strcasecmp(c->field, "Authorization")) {
		c->authorized = conn_authorized(c, c->value);
	}
	return 0;
}

/* Fields behind a chunked body say nothing about the request. */
static bool is_trailer(const http_parser *p)
{
	return p->flags & F_TRAILING;
}

static int on_field(http_parser *p, const char *at, size_t n)
{
	struct conn *c = p->data;

	if (is_trailer(p) || header(c) || c->refused)
		return 0;
	/* http-parser permits it, and a proxy may see another header than it does */
	if (memchr(at, ' ', n))
		return refuse(c, 400, "a space in the name of a header");
	if (n > sizeof(c->field) - c->nfield)
		n = sizeof(c->field) - c->nfield;
	memcpy(c->field + c->nfield, at, n);
	c->nfield += (unsigned int)n;
	return 0;
}

static int on_value(http_parser *p, const char *at, size_t n)
{
	struct conn *c = p->data;

	if (is_trailer(p))
		return 0;
	c->in_value = true;
	if (n > sizeof(c->value) - c->nvalue)
		n = sizeof(c->value) - c->nvalue;
	memcpy(c->value + c->nvalue, at, n);
	c->nvalue += (unsigned int)n;
	return 0;
}

static void hold(struct conn *c, size_t n)
{
	mem_hold(c->loop->sv, &c->held, n);
}

static bool body_known(const http_parser *p)
{
	return !(p->flags & F_CHUNKED) && p->content_length != UINT64_MAX;
}

/* The head is known: what depends on more than its text. */
static int headed(struct conn *c)
{
	const http_parser *p = &c->parser;
	uint64_t n = body_known(p) ? p->content_length : 0;

	if (!c->authorized && (n || p->flags & F_CHUNKED))
		return refuse(c, 401, "a bearer token is required");
	if (n > load_relaxed(&c->loop->sv->cfg.max_body))
		return refuse(c, 413, "the body is too large");
	if (c->encoding == ZIP_UNKNOWN)
		return refuse(c, 415, "Content-Encoding is not gzip or deflate");
	if (n && !buf_room(c->loop, &c->body, n + 1))
		return refuse(c, 503, "out of memory");
	if (c->want_continue && (n || p->flags & F_CHUNKED))
		/* the answer before it was sent, so these bytes have room */
		(void)!send(c->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25,
			    MSG_NOSIGNAL | MSG_DONTWAIT);
	return 0;
}

/* The parser pauses, so that feed() can keep the head. */
static int on_headers(http_parser *p)
{
	struct conn *c = p->data;

	header(c);
	if (c->refused)
		return 0;
	c->url[c->nurl] = 0;
	c->headed = true;
	http_parser_pause(p, 1);
	if (p->http_major != 1 || p->http_minor > 1)
		return refuse(c, 505, "the versions of HTTP are 1.0 and 1.1");
	if (!c->hosts && p->http_minor)
		return refuse(c, 400, "Host is missing");
	if (c->encodings && !p->http_minor)
		return refuse(c, 400, "HTTP/1.0 has no Transfer-Encoding");
	return headed(c);
}

static int on_body(http_parser *p, const char *at, size_t n)
{
	struct conn *c = p->data;

	if (!mem_room(c->loop->sv, c->held, c->body.n + n))
		return refuse(c, 503, "too many requests and answers are in memory");
	hold(c, c->body.n + n);
	if (c->body.p && at == c->body.p + c->body.n) {
		c->body.n += n;		/* received in place */
		return 0;
	}
	if (c->body.n + n > load_relaxed(&c->loop->sv->cfg.max_body))
		return refuse(c, 413, "the body is too large");
	if (!buf_room(c->loop, &c->body, c->body.n + n + 1))
		return refuse(c, 503, "out of memory");
	return buf_add(c->loop, &c->body, at, n) ? 0 : -1;
}

static int on_complete(http_parser *p)
{
	struct conn *c = p->data;

	c->complete = true;
	http_parser_pause(p, 1);
	return 0;
}

static const http_parser_settings settings = {
	.on_message_begin = on_begin,
	.on_url = on_url,
	.on_header_field = on_field,
	.on_header_value = on_value,
	.on_headers_complete = on_headers,
	.on_body = on_body,
	.on_message_complete = on_complete,
};

/* --- answers ------------------------------------------------------------------- */

static const char *reason(int http)
{
	switch (http) {
	case 200: return "OK";
	case 400: return "Bad Request";
	case 401: return "Unauthorized";
	case 403: return "Forbidden";
	case 404: return "Not Found";
	case 405: return "Method Not Allowed";
	case 408: return "Request Timeout";
	case 413: return "Content Too Large";
	case 414: return "URI Too Long";
	case 415: return "Unsupported Media Type";
	case 417: return "Expectation Failed";
	case 431: return "Request Header Fields Too Large";
	case 500: return "Internal Server Error";
	case 505: return "HTTP Version Not Supported";
	default: return "Service Unavailable";
	}
}

/* Continue in the next turn. */
static void yield(struct conn *c)
{
	struct loop *l = c->loop;

	if (c->yields)
		return;
	c->yields = true;
	c->again_next = l->again;
	l->again = c;
}

static void conn_send(struct conn *c)
{
	size_t sent = 0, most;
	ssize_t n;

	while (c->out_at < c->out.n) {
		/* a client that reads as fast as this loop sends does not keep it */
		if (sent >= TURN_SEND) {
			yield(c);
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

bool out_begin(struct conn *c)
{
	if (!buf_room(c->loop, &c->out, HEAD_ROOM + 512)) {
		conn_close(c);
		return false;
	}
	c->out.n = HEAD_ROOM;
	return true;
}

static char *before(char *p, const char *text)
{
	size_t n = strlen(text);

	return memcpy(p - n, text, n);
}

void out_end(struct conn *c, int http, const char *type, const char *headers)
{
	char *body = c->out.p + HEAD_ROOM, *p = body;
	size_t n = c->out.n - HEAD_ROOM;

	if (load_relaxed(&c->loop->sv->closing) || c->loop->draining)
		c->keep = false;
	/* The head is written backwards from the body; it is much shorter than HEAD_ROOM. */
	p = before(p, "\r\n");
	if (!c->keep)
		p = before(p, "Connection: close\r\n");
	else if (c->parser.http_minor == 0)
		p = before(p, "Connection: keep-alive\r\n");
	if (headers)
		p = before(p, headers);
	p = before(p, "\r\n");
	p = before(js_digits(p, n), "Content-Length: ");
	if (type)
		p = before(before(before(p, "\r\n"), type), "Content-Type: ");
	p = before(before(p, "\r\n"), reason(http));
	p = before(js_digits(before(p, " "), (uint64_t)http), "HTTP/1.1 ");
	if (c->parser.method == HTTP_HEAD)
		c->out.n = HEAD_ROOM;	/* the client would take a body as the next answer */
	c->out_at = HEAD_ROOM - (size_t)(body - p);
	buf_put(c->loop, &c->body);
	hold(c, c->out.n);
	c->in_request = false;
	c->state = CONN_WRITING;
	conn_timer(c, TIMER_WRITE);
	conn_send(c);
}

void conn_answer(struct conn *c, int http, const char *type, const char *text, size_t n)
{
	if (!out_begin(c))
		return;
	if (!buf_add(c->loop, &c->out, text, n)) {
		conn_close(c);
		return;
	}
	out_end(c, http, type, NULL);
}

static void zipped(struct conn *c, struct zip *z)
{
	struct buf in = z->in;

	z->in = (struct buf){ 0 };
	buf_put(c->loop, z->http ? &z->out : &in);
	c->out = z->http ? in : z->out;
	z->out = (struct buf){ 0 };
	/* without memory it goes as it is */
	if (!z->http)
		sprintf(z->headers + strlen(z->headers), "Content-Encoding: %s\r\n",
			zip_name(z->gzip ? ZIP_GZIP : ZIP_DEFLATE));
	out_end(c, 200, z->type, z->headers);
	zip_free(z, c->loop);
}

/* What remains when an op has packed or unpacked for c.  Returns false if c has disconnected. */
static bool zip_ended(struct conn *c, struct zip *z)
{
	c->request_pending--;
	if (c->state != CONN_DEAD)
		return true;
	zip_free(z, c->loop);
	conn_close(c);
	return false;
}

static void zip_begun(struct conn *c, struct zip *z, void (*done)(struct text *t))
{
	z->owner = c;
	c->state = CONN_BUSY;
	c->request_pending++;
	zip_begin(z, c->loop, done);
}

static void answer_zipped(struct text *t)
{
	struct zip *z = zip_of(t);
	struct conn *c = z->owner;

	if (!zip_ended(c, z))
		return;
	zipped(c, z);
	conn_continue(c);
}

void out_zip(struct conn *c, const char *type, const char *headers)
{
	size_t n = c->out.n - HEAD_ROOM;
	struct zip *z = NULL;

	hold(c, 0);
	if (c->accepts && n >= ZIP_LEAST && n < ZIP_MOST && c->parser.method != HTTP_HEAD)
		z = zip_new(c->loop, &c->out, c->accepts, true, HEAD_ROOM);
	if (!z) {
		out_end(c, 200, type, headers);
		return;
	}
	z->type = type;
	snprintf(z->headers, sizeof(z->headers) / 2, "%s", headers);
	if (zip_small(z))
		zipped(c, z);
	else
		zip_begun(c, z, answer_zipped);
}

void conn_error(struct conn *c, int http, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!out_begin(c))
		return;
	if (!buf_printf(c->loop, &c->out, "{\"error\":") ||
	    !buf_json(c->loop, &c->out, text) || !buf_add(c->loop, &c->out, "}", 1)) {
		conn_close(c);
		return;
	}
	out_end(c, http, "application/json", http == 503 ? "Retry-After: 1\r\n" :
		http == 401 ? "WWW-Authenticate: Bearer\r\n" : NULL);
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
		yield(c);
	return c->yields;
}

/*
 * Most clients send the same head with each request.  If p begins with the last one, all that
 * was read from it still holds.  Returns its length without the last byte, or 0.
 */
static size_t repeated(struct conn *c, const char *p, size_t n)
{
	if (!c->nhead || c->secrets != c->loop->secrets || n <= c->nhead || memcmp(p, c->head, c->nhead) || p[c->nhead] != '\n')
		return 0;
	c->parser = c->behind;
	begin(c);
	headed(c);
	return c->nhead;
}

/* The body of the request has arrived, and is not compressed any more. */
static void serve(struct conn *c)
{
	if (c->body.p)
		c->body.p[c->body.n] = 0;
	route(c);
}

static void unzipped(struct conn *c, struct zip *z)
{
	int http = z->http;

	if (http) {
		conn_error(c, http, "%s", z->why);
	} else {
		c->body = z->out;
		z->out = (struct buf){ 0 };
		hold(c, c->body.n);
	}
	zip_free(z, c->loop);
	if (!http)
		serve(c);
}

static void body_unzipped(struct text *t)
{
	struct zip *z = zip_of(t);
	struct conn *c = z->owner;

	if (!zip_ended(c, z))
		return;
	unzipped(c, z);
	if (c->state != CONN_BUSY)
		conn_continue(c);
}

static void begin_request(struct conn *c)
{
	struct zip *z;

	if (!c->encoding || !c->body.n) {
		serve(c);
		return;
	}
	hold(c, 0);
	z = zip_new(c->loop, &c->body, c->encoding, false, 0);
	if (!z)
		conn_error(c, 503, "out of memory");
	else if (zip_small(z))
		unzipped(c, z);
	else
		zip_begun(c, z, body_unzipped);
}

/* Parse p, as far as requests can be begun. */
static void feed(struct conn *c, const char *p, size_t n)
{
	enum http_errno err;
	size_t used;
	bool first, head;

	while (n && c->state == CONN_READING && !c->yields) {
		first = !c->in_request;
		used = first ? repeated(c, p, n) : 0;
		if (first) {
			frame_begin(c);
			c->headed = used;
			/* else an empty line in front of a request may be cut in two */
			if (used)
				c->last = p[used - 1];
		}
		head = !c->headed;
		if (!used) {
			used = http_parser_execute(&c->parser, &settings, p, n);
			err = HTTP_PARSER_ERRNO(&c->parser);
			if (!c->refused && (err == HPE_OK || err == HPE_PAUSED) &&
			    !(head ? frame_lines(c, p, used) :
				     frame_chunks(c, p, used)))
				refuse(c, 400, "the framing of the request is not that of HTTP/1.1");
		}
		err = HTTP_PARSER_ERRNO(&c->parser);
		if (err == HPE_PAUSED)
			http_parser_pause(&c->parser, 0);
		if (c->refused) {
			add_relaxed(&c->loop->sv->requests, 1);
			c->keep = false;
			conn_error(c, c->refused, "%s", c->refused_why);
			return;
		}
		if (err != HPE_OK && err != HPE_PAUSED) {
			add_relaxed(&c->loop->sv->requests, 1);
			c->keep = false;
			conn_error(c, err == HPE_HEADER_OVERFLOW ? 431 : 400, "%s",
				   http_errno_description(err));
			return;
		}
		if (first && err == HPE_PAUSED && used <= sizeof(c->head)) {
			memcpy(c->head, p, used);
			c->nhead = (unsigned int)used;
			c->behind = c->parser;
		}
		p += used;
		n -= used;
		if (!c->complete)
			continue;
		c->complete = false;
		c->keep = http_should_keep_alive(&c->parser) &&
			c->parser.method != HTTP_CONNECT;
		add_relaxed(&c->loop->sv->requests, 1);
		conn_timer(c, TIMER_BUSY);
		begin_request(c);
		conn_spent(c, 0);
	}
	if (n && c->state != CONN_DEAD && c->state != CONN_LINGER &&
	    !buf_add(c->loop, &c->rest, p, n))
		conn_close(c);
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
			feed(c, to, (size_t)n);
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
		feed(c, b.p, b.n);
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
