// SPDX-License-Identifier: Apache-2.0
/*
 * The answers of a connection of HTTP/1.1: their heads, and their compression.
 *
 * The head is written when the body is known, into the room that is left in front of it.
 */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "conn.h"

#define ZIP_LEAST	1024u		/* bytes of an answer that is compressed */

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

bool zip_ended(struct conn *c, struct zip *z)
{
	c->request_pending--;
	if (c->state != CONN_DEAD)
		return true;
	zip_free(z, c->loop);
	conn_close(c);
	return false;
}

void zip_begun(struct conn *c, struct zip *z, void (*done)(struct text *t))
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
