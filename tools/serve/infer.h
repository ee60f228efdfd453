/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Infer requests of all protocols: the checks of a request's content, and its life.  parse.c
 * reads JSON, and grpc_infer.c messages of protobuf.
 */
#ifndef SERVE_INFER_H
#define SERVE_INFER_H

#include "serve.h"

#define NAMES 8

/* A request while it is read. */
struct parse {
	struct loop *l;			/* NULL: an op of the engine reads, without its buffers */
	struct request *r;
	const struct serve_model *m;
	struct js j;
	const char *body_end, *binary;	/* where the next binary tensor begins */
	size_t held;			/* bytes of the request that another object has noted */
	uint32_t given;			/* inputs read */
	bool outputs_given, binary_default;
	uint32_t binary_set;		/* outputs whose form was requested */
	unsigned int ninputs;
	struct js_str names[NAMES];	/* of the first inputs, for a message */
	/* the data of inputs, which are converted when the rest was read */
	const char *data[MAX_IO];
	unsigned int input;		/* that is converted now */
	struct sink {
		enum serve_type type;
		char *to;
		uint64_t left;		/* elements */
		unsigned int depth;	/* of arrays; 0: not begun */
	} sink;
	bool has_read;
	char *err;
	size_t size;
	int http;
};

/* Record an error unless one is recorded already.  Both return false. */
bool infer_failed(struct parse *p, int http, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same with status 400 and with the id before the text, as Triton writes it. */
bool infer_refused(struct parse *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Called before and after the members of a request are read. */
void infer_start(struct parse *p);
bool infer_complete(struct parse *p);
/*
 * Check an input, and set the shape and the bytes of its tensor, but not its data.  many: it
 * has more dimensions than s can hold.  Returns its number, or -1.
 */
int infer_input(struct parse *p, const struct js_str *name, const struct js_str *type,
		const struct serve_shape *s, bool many);
/* The bytes of a tensor of this shape, of BYTES the least; false if there are too many. */
bool infer_shape_bytes(const struct serve_shape *s, enum serve_type type, uint64_t *bytes);
/* Check a requested output.  Returns its number, or -1. */
int infer_output(struct parse *p, const struct js_str *name);
/*
 * Whether the data of a tensor has the size that its shape says; of BYTES, whether it has as many
 * elements, which sets the bytes of the tensor.
 */
bool infer_size(struct parse *p, unsigned int input, const void *data, uint64_t bytes);
/* Allocate a buffer for the data of a tensor, and note its memory. */
bool infer_buffer(struct parse *p, unsigned int input, uint64_t bytes);
void infer_timeout(struct request *r, uint64_t us);
void infer_priority(struct request *r, uint64_t priority);

/*
 * Parse a request of HTTP in pieces.  The first returns 0 or an HTTP status.  The second works
 * until about the given time and returns -EAGAIN, or ends and returns 0; then p->http is 0 or the
 * status, with a text in err.
 */
int infer_parse_begin(struct parse *p, struct loop *l, struct request *r,
		      const struct serve_model *m, const char *body, size_t n, int64_t json_length,
		      char *err, size_t size);
int infer_parse_step(struct parse *p, uint64_t until);

/* Create a request of version v that begins now.  Returns NULL if there is no memory. */
struct request *infer_new(struct loop *l, struct version *v);
/* Send it to loop 0.  done runs on this loop when it is complete. */
void infer_submit(struct request *r, void (*done)(struct msg *));
/* The client has disconnected or canceled; done still runs. */
void infer_cancel(struct request *r);
/* At the beginning of done: returns whether this was the last message. */
static inline bool infer_is_last(struct request *r)
{
	return !--r->pending;
}

/* The status of HTTP for a request that failed. */
int infer_http(const struct request *r);
/*
 * The outputs were read from the time begin on: return the slot, count the request, and drop
 * the reference to the version.  gone: the client has disconnected.
 */
void infer_end(struct request *r, int http, bool gone, uint64_t begin);
/* The bytes of the request's rows of output i. */
const char *infer_rows(const struct request *r, unsigned int i, size_t *bytes);
/* The size of dimension k of output i. */
int64_t infer_dim(const struct request *r, unsigned int i, unsigned int k);

#endif
