/* SPDX-License-Identifier: Apache-2.0 */
/* h2.h - what h2.c and call.c share: a connection of HTTP/2, and its calls. */
#ifndef SERVE_H2_H
#define SERVE_H2_H

#include <nghttp2/nghttp2.h>

#include "grpc.h"
#include "zip.h"

struct h2 {
	nghttp2_session *session;
	struct call *calls;
	unsigned int ncalls;
	uint64_t used_ns, received_ns, wrote_ns;
	bool in_flush, again, used, noticed, goaway, pinged;
	bool settled;			/* the client's preface and SETTINGS have arrived */
};

void h2_mark(struct conn *c);		/* it has something to send at the end of the turn */

struct call *call_new(struct conn *c, int32_t id);
void call_free(struct call *k);
void call_closed(struct call *k);	/* the stream is closed, for any reason */
void call_answers_wait(struct call *k);	/* note what of its answers is not sent */
/* A request that is not a call of gRPC is answered with a status of HTTP. */
void call_refuse_http(struct call *k, const char *status);
/* Messages: bytes arrive, those that wait are taken, the client has sent all. */
int call_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
	      void *arg);
void call_pump(struct call *k);
void call_remote_end(struct call *k);
void call_stream_ends(struct call *k);	/* end a call with any number of messages, if it can */

#endif
