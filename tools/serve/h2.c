// SPDX-License-Identifier: Apache-2.0
/*
 * A connection: HTTP/2 by the library nghttp2, for gRPC.
 *
 * A stream is a call.  Bytes are received into the loop's buffer, where nghttp2 reads frames,
 * and are copied once, into the message that arrives.  Answers are written into the buffer of
 * their call, and from there, as flow control permits, into the buffer that is sent.  A turn of
 * the loop sends at its end, so that the answers of one run share a system call.
 *
 * Flow control: a message of at most max_body is received at once, because it can be answered
 * only when it is complete; max_memory bounds all messages together.  A call with many messages
 * has limits on the messages in work and on the answers that the client has not read; beyond
 * them its window stays closed.
 *
 * A call is canceled if its client resets it, or if its connection closes.
 *
 * Times: a client that sends or reads a byte now and then is as slow as one that does not.  So
 * the time for a message counts from its first byte, that for answers from the moment at which
 * they began to wait, and that for the socket from the moment at which its buffer was empty.
 *
 * No callback of nghttp2 closes the connection: nghttp2 must not be freed while it runs.
 */

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "grpc.h"
#include "zip.h"

#define RECEIVE		32768u		/* at most SCRATCH */
#define OUT_MAX		(256u << 10)	/* bytes that wait for the socket */
#define STREAMS		128		/* of a connection; max_memory does not count them */
#define WINDOW		(1u << 20)	/* of a stream */
#define CONN_WINDOW	(16u << 20)
#define IN_WORK		128		/* messages of one call */
/* Calls that a client may reset at once, and per second; more than that is an attack. */
#define RESETS		10000
#define RESETS_SECOND	1000
#define UNREAD_MAX	(1u << 20)	/* bytes of unread answers that stop a call's input */

struct h2 {
	nghttp2_session *session;
	struct call *calls;
	unsigned int ncalls;
	uint64_t used_ns, received_ns, wrote_ns;
	bool in_flush, again, used, noticed, goaway, pinged;
	bool settled;			/* the client's preface and SETTINGS have arrived */
};

static void mark(struct conn *c)
{
	struct loop *l = c->loop;

	if (c->h2->in_flush || c->state == CONN_DEAD)
		return;
	c->h2->in_flush = true;
	c->flush_next = l->flush;
	l->flush = c;
}

/* --- calls --------------------------------------------------------------------- */

static struct call *call_new(struct conn *c, int32_t id)
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

static void call_free(struct call *k)
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
static void call_closed(struct call *k)
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
static void answers_wait(struct call *k)
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
	mark(k->c);
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
		answers_wait(k);
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
	mark(k->c);
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
static void refuse_http(struct call *k, const char *status)
{
	nghttp2_nv head = nv(":status", status, true);

	k->answered = k->ended = true;
	nghttp2_submit_response(k->c->h2->session, k->id, &head, 1, NULL);
}

/* --- messages that arrive -------------------------------------------------------- */

/* The end of a call with any number of messages. */
static void stream_ends(struct call *k)
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
static void pump(struct call *k)
{
	struct loop *l = k->c->loop;
	struct buf b = k->rest;
	size_t at = 0;

	if (!b.n) {
		stream_ends(k);
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
	stream_ends(k);
	mark(k->c);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
		   size_t n, void *arg)
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

static void remote_end(struct call *k)
{
	k->remote_end = true;
	if (k->ended)
		return;
	if (k->method->stream)
		stream_ends(k);
	else if (k->nprefix < 5 || k->body.n < k->length)
		call_end(k, GRPC_INVALID_ARGUMENT, "the message is not complete");
	else
		run(k);
}

/* --- headers --------------------------------------------------------------------- */

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct conn *c = arg;
	struct call *k;

	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	k = call_new(c, frame->hd.stream_id);
	if (!k)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, k);
	return 0;
}

/* grpc-timeout: at most eight digits, and a unit. */
static bool timeout(struct call *k, const char *p, size_t n)
{
	static const char units[] = "HMSmun";
	static const uint64_t ns[] = { 3600000000000u, 60000000000u, 1000000000u, 1000000u,
				       1000u, 1u };
	const char *unit = n > 1 && n <= 9 ? memchr(units, p[n - 1], 6) : NULL;
	uint64_t v = 0, most;
	size_t i;

	for (i = 0; unit && i < n - 1; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(p[i] - '0');
	}
	if (!unit)
		return false;
	/* clients write "none" as all the hours that they can express */
	most = UINT64_MAX / 4 / ns[unit - units];
	k->deadline_ns = k->c->loop->now + (v < most ? v : most) * ns[unit - units];
	return true;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
		     const uint8_t *field, size_t nfield, const uint8_t *value, size_t nvalue,
		     uint8_t flags, void *arg)
{
	struct call *k = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	struct conn *c = arg;
	const char *name = (const char *)field, *v = (const char *)value;
	char text[320];

	(void)flags;
	if (!k || k->has_request)
		return 0;
	k->header_bytes += (unsigned int)(nfield + nvalue + 32);
	if (k->header_bytes > c->loop->sv->cfg.max_header)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
#define IS(what) (nfield == sizeof(what) - 1 && !memcmp(name, what, sizeof(what) - 1))
	if (IS(":path")) {
		k->method = grpc_method(v, nvalue);
	} else if (IS(":method")) {
		k->post = nvalue == 4 && !memcmp(v, "POST", 4);
	} else if (IS("content-type")) {
		k->is_grpc = nvalue >= 16 && !memcmp(v, "application/grpc", 16) &&
			(nvalue == 16 || v[16] == ';' || v[16] == '+');
	} else if (IS("grpc-encoding")) {
		k->encoding = (unsigned char)zip_encoding(v, nvalue);
	} else if (IS("grpc-timeout")) {
		if (!timeout(k, v, nvalue))
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	} else if (IS("traceparent") && nvalue < sizeof(k->traceparent)) {
		memcpy(k->traceparent, v, nvalue);
		k->traceparent[nvalue] = 0;
	} else if (IS("authorization") && nvalue < sizeof(text)) {
		memcpy(text, v, nvalue);
		text[nvalue] = 0;
		k->authorized = conn_authorized(c, text);
	}
#undef IS
	return 0;
}

static void headers_end(struct call *k)
{
	k->has_request = true;
	add_relaxed(&k->c->loop->sv->requests, 1);
	if (k->ended)
		return;			/* the headers took too long */
	if (!k->post)
		refuse_http(k, "405");
	else if (!k->is_grpc)
		refuse_http(k, "415");
	else if (!k->method)
		call_end(k, GRPC_UNIMPLEMENTED, "no call of this server has this name");
	else if (!k->authorized && !k->method->open)
		call_end(k, GRPC_UNAUTHENTICATED, "a bearer token is required");
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct call *k = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	struct conn *c = arg;

	if (frame->hd.type == NGHTTP2_SETTINGS)
		c->h2->settled = true;
	if (!k || k->closed ||
	    (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS && !k->has_request)
		headers_end(k);
	if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		remote_end(k);
	return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t error, void *arg)
{
	struct call *k = nghttp2_session_get_stream_user_data(session, id);

	(void)error, (void)arg;
	if (k)
		call_closed(k);
	return 0;
}

/* --- output ------------------------------------------------------------------------ */

static ssize_t on_send(nghttp2_session *session, const uint8_t *p, size_t n, int flags,
		       void *arg)
{
	struct conn *c = arg;

	(void)session, (void)flags;
	if (c->out.n >= OUT_MAX)
		return NGHTTP2_ERR_WOULDBLOCK;
	return buf_add(c->loop, &c->out, (const char *)p, n) ? (ssize_t)n :
							       NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
			size_t n, nghttp2_data_source *source, void *arg)
{
	struct call *k = source->ptr;
	struct conn *c = arg;
	struct loop *l = c->loop;

	(void)session, (void)frame;
	if (c->out.n >= OUT_MAX)
		return NGHTTP2_ERR_WOULDBLOCK;
	/* the library adds no padding, because no callback asks for it */
	if (!buf_room(l, &c->out, c->out.n + 9 + n))
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	memcpy(c->out.p + c->out.n, head, 9);
	memcpy(c->out.p + c->out.n + 9, k->out.p + k->out_at, n);
	c->out.n += 9 + n;
	k->out_at += n;
	if (k->unsent > n)
		k->unsent -= n;
	else
		answers_wait(k);
	if (k->out_at == k->out.n) {
		buf_put(l, &k->out);
		k->out_at = 0;
		mem_hold(l->sv, &k->out_held, 0);
		c->h2->again = true;
	}
	return 0;
}

/* The status was sent, so a client that still sends messages can stop. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct call *k = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	struct conn *c = arg;

	if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	add_relaxed(&c->loop->sv->answers, 1);
	if (k && !k->remote_end)
		nghttp2_submit_rst_stream(session, 0, k->id, NGHTTP2_NO_ERROR);
	return 0;
}

/* Returns false if the socket's buffer is full, or the connection is closed. */
static bool send_out(struct conn *c)
{
	ssize_t n;

	while (c->out_at < c->out.n) {
		n = send(c->fd, c->out.p + c->out_at, c->out.n - c->out_at, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return false;
		if (n < 0) {
			conn_close(c);
			return false;
		}
		c->out_at += (size_t)n;
	}
	c->out.n = c->out_at = 0;
	c->h2->wrote_ns = c->loop->clock;
	return true;
}

static void flush(struct conn *c)
{
	struct h2 *h = c->h2;
	struct call *k, *next;

	/* not before the first call: its client would wait before it connects again */
	if (load_relaxed(&c->loop->sv->closing) && !h->noticed && h->used) {
		h->noticed = true;
		nghttp2_submit_shutdown_notice(h->session);
	}
	while (send_out(c)) {
		h->again = false;
		if (nghttp2_session_send(h->session)) {
			conn_close(c);
			return;
		}
		for (k = h->again ? h->calls : NULL; k; k = next) {
			next = k->next;
			if (!k->closed && k->rest.n)
				pump(k);
		}
		if (!c->out.n)
			break;
	}
	if (c->state == CONN_DEAD)
		return;
	mem_hold(c->loop->sv, &c->held, c->out.n);
	if (c->out.n)
		return;
	buf_put(c->loop, &c->out);
	if (nghttp2_session_want_read(h->session) || nghttp2_session_want_write(h->session))
		return;
	/* With unread input, a close at once could discard what was sent. */
	shutdown(c->fd, SHUT_WR);
	c->state = CONN_LINGER;
	c->readable = true;
	conn_timer(c, TIMER_LINGER);
}

void h2_flush(struct loop *l)
{
	struct conn *c;

	while ((c = l->flush)) {
		l->flush = c->flush_next;
		c->h2->in_flush = false;
		if (c->state == CONN_READING)
			flush(c);
		if (c->state != CONN_DEAD)
			h2_continue(c);
	}
}

/* --- the connection ---------------------------------------------------------------- */

void h2_continue(struct conn *c)
{
	struct loop *l = c->loop;
	ssize_t n;

	while (c->readable && (c->state == CONN_READING || c->state == CONN_LINGER) &&
	       c->out.n < OUT_MAX && !c->yields && !conn_spent(c, 0)) {
		n = recv(c->fd, l->scratch, RECEIVE, 0);
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
		if ((size_t)n < RECEIVE && !c->eof)
			c->readable = false;
		if (c->state == CONN_LINGER)
			continue;
		c->h2->received_ns = l->clock;
		c->h2->pinged = false;
		if (nghttp2_session_mem_recv(c->h2->session, (uint8_t *)l->scratch,
					     (size_t)n) < 0) {
			conn_close(c);
			return;
		}
		mark(c);
	}
}

void h2_event(struct conn *c, uint32_t events)
{
	if (events & EPOLLOUT && c->state == CONN_READING)
		mark(c);
	h2_continue(c);
}

static void go_away(struct conn *c)
{
	struct h2 *h = c->h2;

	if (h->goaway)
		return;
	h->goaway = h->noticed = true;
	nghttp2_submit_goaway(h->session, 0,
			      nghttp2_session_get_last_proc_stream_id(h->session),
			      NGHTTP2_NO_ERROR, NULL, 0);
	mark(c);
}

/*
 * End what took too long; returns false if nothing did.  Without act, only say so: what has
 * arrived is read before a timeout is decided.
 */
static bool expire(struct conn *c, bool act)
{
	const struct config *cfg = &c->loop->sv->cfg;
	uint64_t read_ns = load_relaxed(&cfg->read_ns), write_ns = load_relaxed(&cfg->write_ns);
	uint64_t idle_ns = load_relaxed(&cfg->idle_ns);
	uint64_t clock = c->loop->clock, now = c->loop->now;
	struct h2 *h = c->h2;
	bool any = false;
	struct call *k;

	if ((c->out.n && clock - h->wrote_ns >= write_ns) ||
	    (!h->settled && clock - h->used_ns >= read_ns) ||
	    (h->ncalls && clock - h->received_ns >= idle_ns + read_ns)) {
		if (act)
			conn_close(c);
		return true;
	}
	for (k = h->calls; k; k = k->next) {
		bool late = !k->ended && clock - k->read_ns >= read_ns &&
			(k->method && k->method->stream ? k->nprefix && !k->rest.n :
							  !k->remote_end);

		if (k->closed)
			continue;
		/* requests in work have this deadline, too */
		if (!k->ended && !k->pending && k->deadline_ns && now >= k->deadline_ns) {
			any = true;
			if (act)
				call_end(k, GRPC_DEADLINE_EXCEEDED, "Deadline Exceeded");
		} else if (late) {
			any = true;
			if (act)
				call_end(k, GRPC_DEADLINE_EXCEEDED,
					 "the request took too long");
		} else if (k->answered && k->out.n && clock - k->sent_ns >= write_ns) {
			any = true;
			if (act)
				nghttp2_submit_rst_stream(h->session, 0, k->id, NGHTTP2_CANCEL);
		}
	}
	if (!h->ncalls && clock - h->used_ns >= idle_ns) {
		any = true;
		if (act)
			go_away(c);
	}
	return any;
}

void h2_tick(struct conn *c)
{
	struct h2 *h = c->h2;

	if (expire(c, false)) {
		c->readable = true;
		if (send_out(c))
			h2_continue(c);
		/* what it still has to read is not late */
		if (c->state == CONN_DEAD || c->yields)
			return;
		expire(c, true);
		if (c->state == CONN_DEAD)
			return;
	}
	if (c->loop->draining)
		h2_drain(c);
	/* h is no more if the drain has read the end of the connection */
	if (c->state == CONN_DEAD)
		return;
	/* a client that still exists answers the ping */
	if (h->ncalls && c->loop->clock - h->received_ns >=
	    load_relaxed(&c->loop->sv->cfg.idle_ns)) {
		if (!h->pinged)
			nghttp2_submit_ping(h->session, 0, NULL);
		h->pinged = true;
	}
	mark(c);
}

void h2_drain(struct conn *c)
{
	struct call *k;

	/* a new connection has two seconds for its first call */
	c->readable = true;
	h2_continue(c);
	if (c->state != CONN_READING || c->yields ||
	    (!c->h2->used && c->loop->clock - c->h2->used_ns < 2000000000u))
		return;
	for (k = c->h2->calls; k; k = k->next)
		if (k->has_request && k->method && k->method->stream)
			stream_ends(k);
		else if (k->health && !k->ended && !k->closed)
			call_end(k, GRPC_UNAVAILABLE, "the server is stopping");
	go_away(c);
}

bool h2_cancel(struct conn *c)
{
	struct call *k;
	bool control = false;

	for (k = c->h2->calls; k; k = k->next)
		control = control || (k->control && !k->closed);
	for (k = c->h2->calls; k && control; k = k->next)
		if (!k->control && !k->closed)
			nghttp2_submit_rst_stream(c->h2->session, 0, k->id, NGHTTP2_CANCEL);
	if (control)
		mark(c);
	return control;
}

void h2_told(struct loop *l)
{
	struct conn *c;
	struct call *k;

	for (c = l->timer_head[TIMER_H2]; c; c = c->next)
		for (k = c->h2->calls; k; k = k->next)
			if (k->health)
				grpc_health(k);
}

int h2_open(struct conn *c)
{
	const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS },
		{ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, c->loop->sv->cfg.max_header },
	};
	nghttp2_session_callbacks *cb = NULL;
	nghttp2_option *option = NULL;
	struct h2 *h = calloc(1, sizeof(*h));
	int rc;

	if (!h)
		return -ENOMEM;
	c->h2 = h;
	h->used_ns = h->received_ns = h->wrote_ns = c->loop->clock;
	rc = nghttp2_session_callbacks_new(&cb) || nghttp2_option_new(&option);
	if (!rc) {
		nghttp2_session_callbacks_set_send_callback(cb, on_send);
		nghttp2_session_callbacks_set_send_data_callback(cb, on_send_data);
		nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin);
		nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
		nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
		nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_sent);
		nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
		nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
		nghttp2_option_set_no_auto_window_update(option, 1);
		/* closed streams are not kept for their priorities */
		nghttp2_option_set_no_closed_streams(option, 1);
		/* nghttp2's defaults are 1000 and 33 */
		nghttp2_option_set_stream_reset_rate_limit(option, RESETS, RESETS_SECOND);
		rc = nghttp2_session_server_new2(&h->session, cb, c, option);
	}
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(cb);
	if (!rc)
		rc = nghttp2_submit_settings(h->session, 0, settings,
					     sizeof(settings) / sizeof(settings[0])) ||
			nghttp2_session_set_local_window_size(h->session, 0, 0, CONN_WINDOW);
	return rc ? -ENOMEM : 0;
}

void h2_closed(struct conn *c)
{
	struct call *k, *next;

	for (k = c->h2->calls; k; k = next) {
		next = k->next;
		if (!k->closed)
			call_closed(k);
	}
	nghttp2_session_del(c->h2->session);
	c->h2->session = NULL;
}

void h2_free(struct conn *c)
{
	struct conn **at = &c->loop->flush;

	if (c->h2->in_flush) {
		while (*at != c)
			at = &(*at)->flush_next;
		*at = c->flush_next;
	}
	nghttp2_session_del(c->h2->session);
	free(c->h2);
	c->h2 = NULL;
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
		pump(k);
	}
}
