/* SPDX-License-Identifier: Apache-2.0 */
/*
 * h2.c: a connection of HTTP/2 to the server, by nghttp2, and unary calls of gRPC on it.
 */
#ifndef LOAD_H2_H
#define LOAD_H2_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WHY_SIZE 160

struct options;
struct h2;

struct h2_call {
	struct h2 *h;		/* NULL: no stream */
	int32_t id;
	const char *p;		/* the message with its prefix */
	size_t n, sent;
	bool keep;		/* the answer is needed, not only its size */
	/* the answer */
	int http;		/* its status, or 0 */
	int code;		/* grpc-status, or -1 */
	bool unprocessed;	/* the server said so: the connection ends */
	char why[WHY_SIZE];	/* grpc-message */
	uint8_t prefix[5];
	size_t got;		/* bytes, with the prefix */
	char *body;		/* with keep; the caller frees it */
	size_t cap;
};

struct h2 {
	nghttp2_session *session;	/* NULL: not open */
	int fd;
	unsigned int calls;
	bool going;		/* accepts no further calls */
	bool settled;		/* the settings of the server have arrived */
	char *out;
	size_t nout, out_at, cap;
	/* The stream of k has ended; k->h is NULL.  Must not close the connection. */
	void (*ended)(struct h2_call *k, uint32_t error);
	/* of the owner */
	struct h2 *next_dirty;
	bool dirty, counted;
	uint32_t events;
};

/* Begin to connect.  Returns 0 or an errno. */
int load_h2_open(struct h2 *h, const struct options *o);
void load_h2_close(struct h2 *h);
/* Begin a call, with p, n and keep of k.  Returns false without memory or a free stream. */
bool load_h2_call(struct h2 *h, struct h2_call *k, const nghttp2_nv *head, size_t n);
void load_h2_cancel(struct h2_call *k);
/*
 * Send buffered frames; *full is set if the socket accepts no more.  Returns NULL, or why the
 * connection is lost.
 */
const char *load_h2_send(struct h2 *h, bool *full);
/* Receive frames, with a buffer of size bytes.  Returns as load_h2_send(). */
const char *load_h2_receive(struct h2 *h, char *buf, size_t size);
/* The number of calls that the server permits at once. */
unsigned int load_h2_limit(const struct h2 *h);
/* Is the answer one complete message? */
bool load_h2_complete(const struct h2_call *k);

#endif
