/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of gRPC: a stream of HTTP/2 that carries messages.  h2.c has the frames, call.c the flow
 * control and the status; grpc.c and grpc_infer.c interpret the messages.  All of it runs on
 * the loop of the connection.
 */
#ifndef SERVE_GRPC_H
#define SERVE_GRPC_H

#include <protobuf-c/protobuf-c.h>
#include "serve.h"

enum {
	GRPC_OK = 0,
	GRPC_CANCELLED = 1,
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_NOT_FOUND = 5,
	GRPC_PERMISSION_DENIED = 7,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
	GRPC_UNAUTHENTICATED = 16,
};

struct method {
	const char *name;
	/* A message has arrived.  The caller frees what remains in body. */
	void (*run)(struct call *k, struct buf *body);
	bool open;			/* needs no token */
	bool stream;			/* any number of messages */
};

struct call {
	struct conn *c;
	struct call *next, *prev;	/* of the connection; next: the loop's free list */
	int32_t id;			/* of the stream */
	const struct method *method;
	uint64_t deadline_ns;		/* 0: none */
	uint64_t read_ns, sent_ns;	/* since when the server waits for the client */
	size_t unsent;			/* bytes of answers that wait since sent_ns */
	unsigned int header_bytes;
	bool post, is_grpc, authorized;
	char traceparent[TRACEPARENT];
	unsigned char encoding;		/* of messages with that flag (zip.h) */
	bool has_request;		/* all headers have arrived */
	bool remote_end;		/* the client sends no further messages */
	bool closed;			/* the stream is closed */
	bool answered;			/* headers of the answer are submitted */
	bool deferred;			/* HTTP/2 waits for more of the answer */
	bool canceled;			/* its requests are canceled */
	bool ended;			/* no further answers; the status follows them */
	int status;
	const char *why;		/* a constant: the text of a status after answers */
	/* the message that arrives */
	uint8_t prefix[5];
	unsigned int nprefix;
	size_t length;
	struct buf body, rest;		/* rest: waits for work to end */
	size_t held;
	/* answers, as they go over the wire */
	struct buf out;
	size_t out_at, out_held;
	/* the last status that a Watch of the health sent; HEALTH_NONE: it is none */
	enum { HEALTH_NONE, HEALTH_UNKNOWN, HEALTH_SERVING, HEALTH_NOT_SERVING } health;
	/* in work */
	struct request *requests;
	struct control *control;
	struct msg control_done;
	unsigned int pending;		/* requests and control calls */
};

/* --- what grpc.c calls (call.c) --- */

/* Send a message.  Returns false if there is no memory. */
bool call_send(struct call *k, const ProtobufCMessage *m);
/* End the call with this status; what was sent before arrives before it. */
void call_end(struct call *k, int status, const char *why);
/* The same with a formatted text.  No message may have been sent before. */
void call_fail(struct call *k, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A request or control call of k is complete; k may be freed. */
void call_done(struct call *k);

/* --- what h2.c calls --- */

/* The method of a path, or NULL. */
const struct method *grpc_method(const char *path, size_t n);
void grpc_cancel(struct call *k);	/* cancel its requests */
void grpc_health(struct call *k);	/* a Watch sends the health if it has changed */

/* --- the memory of a message (grpc.c) --- */

#define ARENA_FIRST	(64u << 10)

struct chunk {
	struct chunk *next;
	uint64_t data[];
};

/* One per loop.  It is empty between messages. */
struct arena {
	ProtobufCAllocator allocator;
	struct server *sv;
	struct chunk *more;
	size_t held, left;	/* bytes of more, and bytes that are still permitted */
	bool full;
	char *at, *end;
	uint64_t first[ARENA_FIRST / 8];
};

/* Returns an empty arena for a message of n bytes, or NULL if there is no memory. */
struct arena *arena_begin(struct loop *l, size_t n);
void *arena_alloc(void *arena, size_t n);	/* NULL: limit, or no memory */
void arena_end(struct arena *a);

/* --- what the calls share (grpc.c) --- */

#define GRPC_UNREADABLE "failed to parse the request message"

struct refusal {
	int status;
	char text[1024];
};

/* The version that is served, or NULL with the reason. */
struct version *grpc_find(struct call *k, char *name, char *version, struct refusal *why);
/* Read the whole message into an arena; end the call, and return NULL, if it is invalid. */
void *grpc_unpack(struct call *k, const struct buf *body,
		  const ProtobufCMessageDescriptor *type, struct arena **a);
void grpc_reflect(struct call *k, struct buf *body);	/* grpc.reflection (reflect.c) */
/* The text for an answer: bytes that are not UTF-8 would make the answer unreadable. */
char *grpc_clean(char *text);
int grpc_status(int http);
/* ModelInfer and ModelStreamInfer (grpc_infer.c). */
void grpc_infer(struct call *k, struct buf *body);

#endif
