// SPDX-License-Identifier: Apache-2.0
/*
 * A connection: HTTP/2 by the library nghttp2, for gRPC.
 *
 * A stream is a call (call.c).  Bytes are received into the loop's buffer, where nghttp2 reads
 * frames.  Answers are copied from the buffer of their call, as flow control permits, into the
 * buffer that is sent.  A turn of the loop sends at its end, so that the answers of one run
 * share a system call.
 *
 * Flow control: a message of at most max_body is received at once, because it can be answered
 * only when it is complete; max_memory bounds all messages together.
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "h2.h"

#define RECEIVE		32768u		/* at most SCRATCH */
#define OUT_MAX		(256u << 10)	/* bytes that wait for the socket */
#define STREAMS		128		/* of a connection; max_memory does not count them */
#define WINDOW		(1u << 20)	/* of a stream */
#define CONN_WINDOW	(16u << 20)
/* Calls that a client may reset at once, and per second; more than that is an attack. */
#define RESETS		10000
#define RESETS_SECOND	1000

void h2_mark(struct conn *c)
{
	struct loop *l = c->loop;

	if (c->h2->in_flush || c->state == CONN_DEAD)
		return;
	c->h2->in_flush = true;
	c->flush_next = l->flush;
	l->flush = c;
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
		call_refuse_http(k, "405");
	else if (!k->is_grpc)
		call_refuse_http(k, "415");
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
		call_remote_end(k);
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
		call_answers_wait(k);
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
				call_pump(k);
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
		h2_mark(c);
	}
}

void h2_event(struct conn *c, uint32_t events)
{
	if (events & EPOLLOUT && c->state == CONN_READING)
		h2_mark(c);
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
	h2_mark(c);
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
	h2_mark(c);
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
			call_stream_ends(k);
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
		h2_mark(c);
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
		nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, call_data);
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
