/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies and messages in gzip or deflate (zlib), which are packed and unpacked in pieces. */
#ifndef SERVE_ZIP_H
#define SERVE_ZIP_H

#include <zlib.h>
#include "serve.h"

enum { ZIP_NONE, ZIP_GZIP, ZIP_DEFLATE, ZIP_UNKNOWN };

struct zip {
	struct text text;
	struct server *sv;
	void *owner;			/* for done */
	z_stream z;
	bool packs, gzip;
	struct buf in, out;
	size_t from;			/* where the text in `in` begins */
	size_t held;
	/* the result: 0 or an HTTP status, with a text */
	int http;
	const char *why;
	const char *type;		/* of an answer */
	char headers[128];
};

/* The encoding that a header names. */
int zip_encoding(const char *text, size_t n);
/* The encoding that an Accept-Encoding prefers to none. */
int zip_accepted(const char *text);
const char *zip_name(int encoding);
/*
 * Unpack in, or pack what it has behind `from` bytes, which the result also leaves free.  Takes
 * the buffer; returns NULL and leaves it if there is no memory.
 */
struct zip *zip_new(struct loop *l, struct buf *in, int encoding, bool packs, size_t from);
/* Do a small amount of work at once.  Returns whether that was all. */
bool zip_small(struct zip *z);
/* Do the rest as ops of the engine; then done runs on the loop. */
void zip_begin(struct zip *z, struct loop *l, void (*done)(struct text *t));
void zip_free(struct zip *z, struct loop *l);

static inline struct zip *zip_of(struct text *t)
{
	return (struct zip *)((char *)t - offsetof(struct zip, text));
}

#define ZIP_MOST	(1u << 30)	/* bytes of a text: zlib counts in 32 bits */

#endif
