// SPDX-License-Identifier: Apache-2.0
/*
 * A connection of HTTP/2 by nghttp2, which keeps the server's limits: calls beyond its number
 * of streams wait inside nghttp2.
 *
 * Frames are collected in a buffer, so that requests sent together share a system call.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "h2.h"
#include "load.h"

#define OUT_MAX		(256u << 10)	/* bytes that wait for the socket */
#define WINDOW		(1 << 20)	/* of a stream */
#define CONN_WINDOW	(16 << 20)
#define ANSWER_MAX	(64u << 20)	/* that is kept */

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
		       uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct h2_call *k = source->ptr;
	size_t n = k->n - k->sent;

	(void)session, (void)arg;
	/* the stream was canceled */
	if (k->id != id || !k->h)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	if (n > length)
		n = length;
	memcpy(buf, k->p + k->sent, n);
	k->sent += n;
	if (k->sent == k->n)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

/* Decode grpc-message, where % and two hexadecimal digits are a byte. */
static void read_text(struct h2_call *k, const char *p, size_t n)
{
	char byte[3] = "";
	size_t i, to = 0;

	for (i = 0; i < n && to < sizeof(k->why) - 1; i++) {
		k->why[to++] = p[i];
		if (p[i] == '%' && i + 2 < n) {
			memcpy(byte, p + i + 1, 2);
			k->why[to - 1] = (char)strtoul(byte, NULL, 16);
			i += 2;
		}
	}
	k->why[to] = 0;
}

/* As the specification of gRPC says, an unknown text is the status UNKNOWN. */
static int status_of(const char *text, size_t n)
{
	enum { UNKNOWN = 2 };

	return n && n < 3 && strspn(text, "0123456789") == n ? atoi(text) : UNKNOWN;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
		     const uint8_t *field, size_t nfield, const uint8_t *value, size_t nvalue,
		     uint8_t flags, void *arg)
{
	struct h2_call *k = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	const char *name = (const char *)field, *v = (const char *)value;

	(void)flags, (void)arg;
	if (!k)
		return 0;
	/* nghttp2 terminates the values with a zero byte */
	if (nfield == 7 && !memcmp(name, ":status", 7))
		k->http = atoi(v);
	else if (nfield == 11 && !memcmp(name, "grpc-status", 11))
		k->code = status_of(v, nvalue);
	else if (nfield == 12 && !memcmp(name, "grpc-message", 12))
		read_text(k, v, nvalue);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
		   size_t n, void *arg)
{
	struct h2_call *k = nghttp2_session_get_stream_user_data(session, id);
	size_t i, cap;
	char *body;

	(void)flags, (void)arg;
	if (!k)
		return 0;
	for (i = 0; i < n && k->got + i < sizeof(k->prefix); i++)
		k->prefix[k->got + i] = p[i];
	if (k->keep) {
		cap = k->cap ? k->cap : 4096;
		while (cap < k->got + n)
			cap *= 2;
		body = cap > ANSWER_MAX ? NULL : realloc(k->body, cap);
		if (!body)
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
		k->body = body;
		k->cap = cap;
		memcpy(body + k->got, p, n);
	}
	k->got += n;
	return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t error, void *arg)
{
	struct h2_call *k = nghttp2_session_get_stream_user_data(session, id);
	struct h2 *h = arg;

	if (!k)
		return 0;
	/* nghttp2 says so of requests that it did not send because of an error, too */
	if (error == NGHTTP2_REFUSED_STREAM && !h->going &&
	    !nghttp2_session_check_request_allowed(session))
		error = NGHTTP2_PROTOCOL_ERROR;
	k->unprocessed = error == NGHTTP2_REFUSED_STREAM && h->going;
	h->calls--;
	k->h = NULL;
	h->ended(k, error);
	return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2 *h = arg;

	(void)session;
	if (frame->hd.type == NGHTTP2_GOAWAY)
		h->going = true;
	else if (frame->hd.type == NGHTTP2_SETTINGS)
		h->settled = true;
	return 0;
}

static int session_new(struct h2 *h)
{
	const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
		{ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW },
	};
	nghttp2_session_callbacks *cb = NULL;
	nghttp2_option *option = NULL;
	int rc;

	if (nghttp2_session_callbacks_new(&cb) || nghttp2_option_new(&option)) {
		nghttp2_session_callbacks_del(cb);
		return ENOMEM;
	}
	/* no call before the server's settings, which say how many it permits */
	nghttp2_option_set_peer_max_concurrent_streams(option, 0);
	nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
	rc = nghttp2_session_client_new2(&h->session, cb, h, option);
	nghttp2_session_callbacks_del(cb);
	nghttp2_option_del(option);
	if (rc)
		h->session = NULL;
	else
		rc = nghttp2_submit_settings(h->session, 0, settings, 2) ||
			nghttp2_session_set_local_window_size(h->session, 0, 0, CONN_WINDOW);
	return rc ? ENOMEM : 0;
}

int load_h2_open(struct h2 *h, const struct options *o)
{
	int rc;

	h->nout = h->out_at = 0;
	h->calls = 0;
	h->going = h->settled = false;
	h->fd = load_connect(o);
	rc = h->fd < 0 ? errno : session_new(h);
	if (rc)
		load_h2_close(h);
	return rc;
}

void load_h2_close(struct h2 *h)
{
	nghttp2_session_del(h->session);
	h->session = NULL;
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
	free(h->out);
	h->out = NULL;
	h->cap = 0;
}

bool load_h2_call(struct h2 *h, struct h2_call *k, const nghttp2_nv *head, size_t n)
{
	const nghttp2_data_provider from = { .source.ptr = k, .read_callback = on_read };

	k->sent = k->got = 0;
	k->http = 0;
	k->code = -1;
	k->unprocessed = false;
	k->why[0] = 0;
	k->h = h;
	k->id = nghttp2_submit_request(h->session, NULL, head, n, &from, k);
	if (k->id < 0) {
		k->h = NULL;
		h->going = true;
		return false;
	}
	h->calls++;
	return true;
}

void load_h2_cancel(struct h2_call *k)
{
	struct h2 *h = k->h;

	nghttp2_session_set_stream_user_data(h->session, k->id, NULL);
	nghttp2_submit_rst_stream(h->session, 0, k->id, NGHTTP2_CANCEL);
	h->calls--;
	k->h = NULL;
}

static bool collect(struct h2 *h)
{
	const uint8_t *p;
	ssize_t n = 0;
	size_t cap;
	char *out;

	while (h->nout < OUT_MAX && (n = nghttp2_session_mem_send(h->session, &p)) > 0) {
		cap = h->cap ? h->cap : 4096;
		while (cap < h->nout + (size_t)n)
			cap *= 2;
		out = cap == h->cap ? h->out : realloc(h->out, cap);
		if (!out)
			return false;
		h->out = out;
		h->cap = cap;
		memcpy(out + h->nout, p, (size_t)n);
		h->nout += (size_t)n;
	}
	return n >= 0;
}

const char *load_h2_send(struct h2 *h, bool *full)
{
	ssize_t n;

	*full = false;
	for (;;) {
		if (!collect(h))
			return "out of memory, or an error of HTTP/2";
		if (!h->nout)
			/* not after an error of HTTP/2, or a GOAWAY and the last answer */
			return nghttp2_session_want_read(h->session) ? NULL :
				"the connection cannot be used any more";
		while (h->out_at < h->nout) {
			n = send(h->fd, h->out + h->out_at, h->nout - h->out_at, MSG_NOSIGNAL);
			if (n < 0 && errno == EINTR)
				continue;
			if (n < 0 && errno == EAGAIN) {
				*full = true;
				return NULL;
			}
			if (n < 0)
				return strerror(errno);
			h->out_at += (size_t)n;
		}
		h->nout = h->out_at = 0;
	}
}

const char *load_h2_receive(struct h2 *h, char *buf, size_t size)
{
	ssize_t n;

	do {
		do
			n = recv(h->fd, buf, size, 0);
		while (n < 0 && errno == EINTR);
		if (n < 0)
			return errno == EAGAIN ? NULL : strerror(errno);
		if (!n)
			return "the server closed the connection before the answer";
		if (nghttp2_session_mem_recv(h->session, (uint8_t *)buf, (size_t)n) < 0)
			return "the answer is not HTTP/2";
	} while ((size_t)n == size);
	return NULL;
}

unsigned int load_h2_limit(const struct h2 *h)
{
	if (!h->settled)
		return UINT32_MAX;
	return nghttp2_session_get_remote_settings(h->session,
						   NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

bool load_h2_complete(const struct h2_call *k)
{
	size_t n = (size_t)k->prefix[1] << 24 | (size_t)k->prefix[2] << 16 |
		(size_t)k->prefix[3] << 8 | k->prefix[4];

	return k->got >= 5 && !k->prefix[0] && k->got == 5 + n;
}
