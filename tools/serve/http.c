// SPDX-License-Identifier: Apache-2.0
/*
 * The requests of a connection of HTTP/1.1, read by the library http-parser.
 *
 * A client sends the same head again and again.  If a head equals the last one of its
 * connection byte for byte, what the parser said of that one still holds, and the parser begins
 * behind it.
 *
 * http-parser is more lenient than servers in front of this one may be: frame.c is strict.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "conn.h"

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

/* --- requests ------------------------------------------------------------------ */

/*
 * Most clients send the same head with each request.  If p begins with the last one, all that
 * was read from it still holds.  Returns its length without the last byte, or 0.
 */
static size_t repeated(struct conn *c, const char *p, size_t n)
{
	if (!c->nhead || c->secrets != c->loop->secrets || n <= c->nhead ||
	    memcmp(p, c->head, c->nhead) || p[c->nhead] != '\n')
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

void http_feed(struct conn *c, const char *p, size_t n)
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
