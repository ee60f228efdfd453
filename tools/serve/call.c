// SPDX-License-Identifier: Apache-2.0
/*
 * A call of gRPC, which is a stream of HTTP/2 (h2.c): its messages and its answers.
 *
 * The data of a call is copied once, into the message that arrives.  Answers are written into
 * the buffer of their call, from which h2.c sends them as flow control permits.  A call with
 * many messages has limits on the messages in work and on the answers that the client has not
 * read; beyond them its window stays closed.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h2.h"

#define IN_WORK		128		/* messages of one call */
#define UNREAD_MAX	(1u << 20)	/* bytes of unread answers that stop a call's input */

/* --- calls --------------------------------------------------------------------- */

struct call *call_new(struct conn *c, int32_t id)
{
	struct loop *l = c->loop;
	struct call *k = l->free_calls;

	if (k)
		l->free_calls = k->next;
	else
		k = malloc(sizeof(*k));
	if (!k)
		return NULL;
	memset(k, 0, sizeof(*k));
	k->c = c;
	k->id = id;
	k->authorized = !l->token[TOKEN_INFER];
	k->read_ns = l->clock;
	k->next = c->h2->calls;
	if (k->next)
		k->next->prev = k;
	c->h2->calls = k;
	c->h2->ncalls++;
	c->h2->used = true;
	return k;
}

void call_free(struct call *k)
{
	struct conn *c = k->c;
	struct loop *l = c->loop;

	if (k->prev)
		k->prev->next = k->next;
	else
		c->h2->calls = k->next;
	if (k->next)
		k->next->prev = k->prev;
	c->h2->ncalls--;
	c->h2->used_ns = l->clock;
	k->next = l->free_calls;
	l->free_calls = k;
}

/* The stream is closed, for any reason. */
void call_closed(struct call *k)
{
	struct loop *l = k->c->loop;

	k->closed = true;
	buf_put(l, &k->body);
	buf_put(l, &k->rest);
	buf_put(l, &k->out);
	mem_hold(l->sv, &k->held, 0);
	mem_hold(l->sv, &k->out_held, 0);
	grpc_cancel(k);
	if (!k->pending)
		call_free(k);
}

static nghttp2_nv nv(const char *name, const char *value, bool constant)
{
	return (nghttp2_nv){
		(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
		strlen(value), (uint8_t)(NGHTTP2_NV_FLAG_NO_COPY_NAME |
					 (constant ? NGHTTP2_NV_FLAG_NO_COPY_VALUE : 0)) };
}

/* The status of a call and its text, encoded as gRPC requires. */
static size_t status_nv(nghttp2_nv *to, int status, const char *why, char *text, size_t size)
{
	static const char *const number[] = { "0", "1", "2", "3", "4", "5", "6", "7", "8", "9",
					      "10", "11", "12", "13", "14", "15", "16" };
	size_t n = 0;

	to[0] = nv("grpc-status", number[status], true);
	if (!why)
		return 1;
	for (; *why && n + 4 < size; why++) {
		unsigned char ch = (unsigned char)*why;

		if (ch >= 0x20 && ch < 0x7f && ch != '%')
			text[n++] = (char)ch;
		else
			n += (size_t)sprintf(text + n, "%%%02X", ch);
	}
	text[n] = 0;
	to[1] = nv("grpc-message", text, false);
	return 2;
}

static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
			   uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct call *k = source->ptr;
	size_t n = k->out.n - k->out_at;
	nghttp2_nv trailer[2];
	char text[256];

	(void)buf, (void)arg;
	if (!n && !k->ended) {
		k->deferred = true;
		return NGHTTP2_ERR_DEFERRED;
	}
	if (n)
		*flags |= NGHTTP2_DATA_FLAG_NO_COPY;
	if (n > length)
		return (ssize_t)length;
	if (k->ended) {
		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		if (nghttp2_submit_trailer(session, id, trailer,
					   status_nv(trailer, k->status, k->why, text,
						     sizeof(text))))
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	}
	return (ssize_t)n;
}

/* The client has the time of write_timeout for the answers that wait now. */
void call_answers_wait(struct call *k)
{
	k->sent_ns = k->c->loop->clock;
	k->unsent = k->out.n - k->out_at;
}

/* Begin the answer, or continue it. */
static void call_wake(struct call *k)
{
	nghttp2_data_provider from = { .source.ptr = k, .read_callback = read_answer };
	nghttp2_session *session = k->c->h2->session;
	nghttp2_nv head[] = { nv(":status", "200", true),
			      nv("content-type", "application/grpc", true) };

	if (!k->answered) {
		k->answered = true;
		if (nghttp2_submit_response(session, k->id, head, 2, &from))
			nghttp2_submit_rst_stream(session, 0, k->id, NGHTTP2_INTERNAL_ERROR);
	} else if (k->deferred) {
		k->deferred = false;
		nghttp2_session_resume_data(session, k->id);
	}
	h2_mark(k->c);
}

bool call_send(struct call *k, const ProtobufCMessage *m)
{
	struct loop *l = k->c->loop;
	size_t n = protobuf_c_message_get_packed_size(m);
	uint8_t *to;

	if (k->closed || k->ended)
		return true;
	if (k->out_at && k->out_at >= k->out.n - k->out_at) {
		memmove(k->out.p, k->out.p + k->out_at, k->out.n - k->out_at);
		k->out.n -= k->out_at;
		k->out_at = 0;
	}
	if (n > UINT32_MAX || !buf_room(l, &k->out, k->out.n + 5 + n))
		return false;
	to = (uint8_t *)k->out.p + k->out.n;
	to[0] = 0;
	to[1] = (uint8_t)(n >> 24);
	to[2] = (uint8_t)(n >> 16);
	to[3] = (uint8_t)(n >> 8);
	to[4] = (uint8_t)n;
	k->out.n += 5 + protobuf_c_message_pack(m, to + 5);
	if (!k->unsent)
		call_answers_wait(k);
	mem_hold(l->sv, &k->out_held, k->out.n);
	call_wake(k);
	return true;
}

void call_end(struct call *k, int status, const char *why)
{
	char text[3 * 1024];
	nghttp2_nv head[5];
	size_t n = 2;

	if (k->closed || k->ended)
		return;
	k->ended = true;
	k->status = status;
	k->why = why;
	if (k->answered) {
		call_wake(k);
		return;
	}
	if (!status) {
		call_wake(k);		/* a stream without answers */
		return;
	}
	/* headers and trailers in one block */
	k->answered = true;
	head[0] = nv(":status", "200", true);
	head[1] = nv("content-type", "application/grpc", true);
	if (status == GRPC_UNIMPLEMENTED)
		head[n++] = nv("grpc-accept-encoding", "identity,deflate,gzip", true);
	n += status_nv(head + n, status, why, text, sizeof(text));
	if (nghttp2_submit_response(k->c->h2->session, k->id, head, n, NULL))
		nghttp2_submit_rst_stream(k->c->h2->session, 0, k->id, NGHTTP2_INTERNAL_ERROR);
	h2_mark(k->c);
}

void call_fail(struct call *k, int status, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	call_end(k, status, text);
	k->why = NULL;
}

/* A request that is not a call of gRPC is answered with a status of HTTP. */
void call_refuse_http(struct call *k, const char *status)
{
	nghttp2_nv head = nv(":status", status, true);

	k->answered = k->ended = true;
	nghttp2_submit_response(k->c->h2->session, k->id, &head, 1, NULL);
}

/* --- messages that arrive -------------------------------------------------------- */

/* The end of a call with any number of messages. */
void call_stream_ends(struct call *k)
{
	if (k->ended || k->closed || k->pending || k->rest.n)
		return;
	if (k->remote_end && k->nprefix)
		call_end(k, GRPC_INVALID_ARGUMENT, "the last message is not complete");
	else if (k->remote_end)
		call_end(k, GRPC_OK, NULL);
	else if (k->c->loop->draining)
		call_end(k, GRPC_UNAVAILABLE, "the server is stopping");
}

static void deliver(struct call *k, struct buf *body)
{
	struct loop *l = k->c->loop;

	mem_hold(l->sv, &k->held, body->n + k->rest.n);
	k->method->run(k, body);
	buf_put(l, body);
	mem_hold(l->sv, &k->held, k->rest.n);
}

/* A message is unpacked, or cannot be. */
static void unzipped(struct call *k, struct zip *z)
{
	struct loop *l = k->c->loop;

	if (z->http) {
		call_end(k, z->http == 400 ? GRPC_INTERNAL : GRPC_RESOURCE_EXHAUSTED, z->why);
	} else {
		mem_hold(l->sv, &z->held, 0);
		deliver(k, &z->out);
	}
	zip_free(z, l);
}

static void message_unzipped(struct text *t)
{
	struct zip *z = zip_of(t);
	struct call *k = z->owner;
	struct loop *l = k->c->loop;

	if (k->closed || k->ended)
		zip_free(z, l);
	else
		unzipped(k, z);
	call_done(k);
}

static void run(struct call *k)
{
	struct loop *l = k->c->loop;
	struct buf body = k->body;
	struct zip *z;

	k->body = (struct buf){ 0 };
	k->nprefix = 0;
	k->c->work++;
	if (!k->prefix[0]) {
		deliver(k, &body);
		return;
	}
	mem_hold(l->sv, &k->held, k->rest.n);
	z = zip_new(l, &body, k->encoding, false, 0);
	if (!z) {
		buf_put(l, &body);
		call_end(k, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	} else if (zip_small(z)) {
		unzipped(k, z);
	} else {
		z->owner = k;
		k->pending++;
		k->c->request_pending++;
		zip_begin(z, l, message_unzipped);
	}
}

/* Take bytes up to the end of a message.  Returns their number. */
static size_t take(struct call *k, const uint8_t *p, size_t n)
{
	struct loop *l = k->c->loop;
	uint64_t most = load_relaxed(&l->sv->cfg.max_body);
	size_t part = 0, at = 0;

	if (!k->nprefix)
		k->read_ns = l->clock;
	while (k->nprefix < 5 && at < n)
		k->prefix[k->nprefix++] = p[at++];
	if (k->nprefix < 5)
		return at;
	if (!k->body.cap) {
		k->length = (size_t)k->prefix[1] << 24 | (size_t)k->prefix[2] << 16 |
			    (size_t)k->prefix[3] << 8 | k->prefix[4];
		if (k->prefix[0] && (k->encoding == ZIP_UNKNOWN || k->encoding == ZIP_NONE)) {
			call_end(k, k->encoding ? GRPC_UNIMPLEMENTED : GRPC_INTERNAL,
				 k->encoding ? "grpc-encoding is not gzip or deflate" :
					       "a compressed message without grpc-encoding");
			return n;
		}
		if (k->length > most) {
			call_fail(k, GRPC_RESOURCE_EXHAUSTED,
				  "the message is too large: %zu bytes, and at most %llu",
				  k->length, (unsigned long long)most);
			return n;
		}
		if (!buf_room(l, &k->body, k->length + 1)) {
			call_end(k, GRPC_RESOURCE_EXHAUSTED, "out of memory");
			return n;
		}
	}
	part = k->length - k->body.n;
	if (part > n - at)
		part = n - at;
	if (!mem_room(l->sv, k->held, k->held + part)) {
		call_end(k, GRPC_RESOURCE_EXHAUSTED,
			 "too many requests and answers are in memory");
		return n;
	}
	memcpy(k->body.p + k->body.n, p + at, part);
	k->body.n += part;
	mem_hold(l->sv, &k->held, k->body.n + k->rest.n);
	if (k->body.n == k->length && k->method->stream)
		run(k);
	return at + part;
}

static bool may_take(const struct call *k)
{
	return k->pending < IN_WORK && k->out.n - k->out_at < UNREAD_MAX;
}

/* Take the bytes that wait. */
void call_pump(struct call *k)
{
	struct loop *l = k->c->loop;
	struct buf b = k->rest;
	size_t at = 0;

	if (!b.n) {
		call_stream_ends(k);
		return;
	}
	while (at < b.n && may_take(k) && !k->ended)
		at += take(k, (uint8_t *)b.p + at, b.n - at);
	if (k->ended)
		at = b.n;
	if (at) {
		/* while the window was closed, the client could not send the rest of a message */
		k->read_ns = l->clock;
		nghttp2_session_consume_stream(k->c->h2->session, k->id, at);
	}
	memmove(b.p, b.p + at, b.n - at);
	k->rest.n -= at;
	if (!k->rest.n)
		buf_put(l, &k->rest);
	mem_hold(l->sv, &k->held, k->body.n + k->rest.n);
	call_stream_ends(k);
	h2_mark(k->c);
}

int call_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
	      void *arg)
{
	struct call *k = nghttp2_session_get_stream_user_data(session, id);
	struct conn *c = arg;
	size_t at = 0;

	(void)flags;
	nghttp2_session_consume_connection(session, n);
	if (!k || k->ended) {
		nghttp2_session_consume_stream(session, id, n);
		return 0;
	}
	while (at < n && !k->ended && !k->rest.n && (!k->method->stream || may_take(k))) {
		if (!k->method->stream && k->body.cap && k->body.n == k->length) {
			call_end(k, GRPC_INVALID_ARGUMENT, "more than one message");
			break;
		}
		at += take(k, p + at, n - at);
	}
	if (k->ended)
		at = n;
	nghttp2_session_consume_stream(session, id, at);
	if (at == n)
		return 0;
	if (!mem_room(c->loop->sv, k->held, k->held + n - at) ||
	    !buf_add(c->loop, &k->rest, (const char *)p + at, n - at))
		call_end(k, GRPC_RESOURCE_EXHAUSTED,
			 "too many requests and answers are in memory");
	mem_hold(c->loop->sv, &k->held, k->body.n + k->rest.n);
	return 0;
}

void call_remote_end(struct call *k)
{
	k->remote_end = true;
	if (k->ended)
		return;
	if (k->method->stream)
		call_stream_ends(k);
	else if (k->nprefix < 5 || k->body.n < k->length)
		call_end(k, GRPC_INVALID_ARGUMENT, "the message is not complete");
	else
		run(k);
}

void call_done(struct call *k)
{
	struct conn *c = k->c;

	k->pending--;
	c->request_pending--;
	if (k->closed) {
		if (!k->pending)
			call_free(k);
		if (c->state == CONN_DEAD)
			conn_close(c);
	} else if (k->method->stream) {
		call_pump(k);
	}
}
