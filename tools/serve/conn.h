/* SPDX-License-Identifier: Apache-2.0 */
/* conn.h - what conn.c, http.c and answer.c share: a connection of HTTP/1.1. */
#ifndef SERVE_CONN_H
#define SERVE_CONN_H

#include "serve.h"
#include "zip.h"

static inline void hold(struct conn *c, size_t n)
{
	mem_hold(c->loop->sv, &c->held, n);
}

static inline bool body_known(const http_parser *p)
{
	return !(p->flags & F_CHUNKED) && p->content_length != UINT64_MAX;
}

void conn_yield(struct conn *c);	/* continue in the next turn */
void conn_send(struct conn *c);		/* send c->out; at its end, read on or close */
/* Parse p, as far as requests can be begun; c->rest keeps what follows (http.c). */
void http_feed(struct conn *c, const char *p, size_t n);
/* Pack or unpack for c by ops; done calls zip_ended(), which is false if c has disconnected. */
void zip_begun(struct conn *c, struct zip *z, void (*done)(struct text *t));
bool zip_ended(struct conn *c, struct zip *z);

#endif
