// SPDX-License-Identifier: Apache-2.0
/*
 * Bodies and messages in gzip or deflate.
 *
 * A few kilobytes can unpack to megabytes, so ops of the engine do what takes long, in pieces
 * (text.c).  The result counts as memory of bodies and answers while it grows, and it is refused
 * when it exceeds max_body, whatever the size of what arrived.
 *
 * Ownership: that of a text.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "zip.h"

#define SMALL_IN	4096u		/* bytes that the loop itself packs or unpacks, */
#define SMALL_OUT	TEXT_MIN	/*   to at most so many */
#define LEAST		1024u		/* bytes of room for the next part of the result */
#define PIECE		65536u		/* bytes of the result between two looks at the clock */

int zip_encoding(const char *text, size_t n)
{
	if ((n == 4 && !strncasecmp(text, "gzip", 4)) ||
	    (n == 6 && !strncasecmp(text, "x-gzip", 6)))
		return ZIP_GZIP;
	if (n == 7 && !strncasecmp(text, "deflate", 7))
		return ZIP_DEFLATE;
	return !n || (n == 8 && !strncasecmp(text, "identity", 8)) ? ZIP_NONE : ZIP_UNKNOWN;
}

const char *zip_name(int encoding)
{
	return encoding == ZIP_GZIP ? "gzip" : "deflate";
}

/* A list of encodings, each with parameters; one with q=0 is not accepted. */
int zip_accepted(const char *text)
{
	bool accepted[ZIP_UNKNOWN + 1] = { false };
	const char *end, *q;
	size_t n;

	for (; *text; text = *end ? end + 1 : end) {
		text += strspn(text, " \t");
		end = text + strcspn(text, ",");
		n = strcspn(text, ",; \t");
		q = memchr(text, '=', (size_t)(end - text));
		/* 0, 0.0, ... */
		if (!q || q + 1 + strspn(q + 1, " 0.") < end)
			accepted[zip_encoding(text, n)] = true;
	}
	return accepted[ZIP_GZIP] ? ZIP_GZIP : accepted[ZIP_DEFLATE] ? ZIP_DEFLATE : ZIP_NONE;
}

struct zip *zip_new(struct loop *l, struct buf *in, int encoding, bool packs, size_t from)
{
	int bits = encoding == ZIP_GZIP ? 15 + 16 : 15, rc;
	struct zip *z = calloc(1, sizeof(*z));

	if (!z)
		return NULL;
	if (!buf_room(NULL, &z->out, from + LEAST)) {
		free(z);
		return NULL;
	}
	rc = packs ? deflateInit2(&z->z, Z_BEST_SPEED, Z_DEFLATED, bits, 8,
				  Z_DEFAULT_STRATEGY) :
		     inflateInit2(&z->z, bits);
	if (rc != Z_OK) {
		buf_put(NULL, &z->out);
		free(z);
		return NULL;
	}
	z->sv = l->sv;
	z->packs = packs;
	z->gzip = encoding == ZIP_GZIP;
	z->in = *in;
	*in = (struct buf){ 0 };
	z->from = z->out.n = from;
	z->z.next_in = (unsigned char *)z->in.p + from;
	z->z.avail_in = (unsigned int)(z->in.n - from);
	mem_hold(z->sv, &z->held, z->in.n);
	return z;
}

void zip_free(struct zip *z, struct loop *l)
{
	if (z->packs)
		deflateEnd(&z->z);
	else
		inflateEnd(&z->z);
	buf_put(l, &z->in);
	buf_put(l, &z->out);
	mem_hold(z->sv, &z->held, 0);
	free(z);
}

static int failed(struct zip *z, int http, const char *why)
{
	z->http = http;
	z->why = why;
	return 0;
}

/* Returns 0, or -EAGAIN if there is more: it is late, or the result has this size. */
static int work(struct zip *z, uint64_t until, size_t most)
{
	uint64_t limit = load_relaxed(&z->sv->cfg.max_body);
	size_t n = z->out.n, room;
	int rc;

	for (;;) {
		if (z->out.cap < n + LEAST &&
		    !buf_room(NULL, &z->out, n + LEAST + (n > z->in.n ? n : z->in.n)))
			return failed(z, 503, "out of memory");
		room = z->out.cap - n - 1; /* a byte remains for the end of the text */
		if (room > PIECE)
			room = PIECE;
		z->z.next_out = (unsigned char *)z->out.p + n;
		z->z.avail_out = (unsigned int)room;
		rc = z->packs ? deflate(&z->z, Z_FINISH) : inflate(&z->z, Z_NO_FLUSH);
		n += room - z->z.avail_out;
		z->out.n = n;
		if (!z->packs && n > limit)
			return failed(z, 413, "the body is too large");
		if (!mem_room(z->sv, z->held, z->in.n + n))
			return failed(z, 503, "too many requests and answers are in memory");
		mem_hold(z->sv, &z->held, z->in.n + n);
		/* a file of gzip may have several parts */
		if (rc == Z_STREAM_END && z->gzip && !z->packs && z->z.avail_in)
			rc = inflateReset(&z->z);
		else if (rc == Z_STREAM_END)
			return z->z.avail_in ?
				failed(z, 400, "the compressed body has bytes behind its end") : 0;
		if (rc == Z_MEM_ERROR)
			return failed(z, 503, "out of memory");
		if (rc != Z_OK || (!z->packs && !z->z.avail_in && z->z.avail_out))
			return failed(z, 400, rc == Z_DATA_ERROR || rc == Z_NEED_DICT ?
				      "the body is not what its encoding says" :
				      "the compressed body is not complete");
		if (n >= most || now_ns() >= until)
			return -EAGAIN;
	}
}

bool zip_small(struct zip *z)
{
	return z->in.n - z->from <= SMALL_IN && !work(z, UINT64_MAX, SMALL_OUT);
}

static int step(struct text *t, uint64_t until)
{
	return work(zip_of(t), until, SIZE_MAX);
}

void zip_begin(struct zip *z, struct loop *l, void (*done)(struct text *t))
{
	text_begin(&z->text, l, step, done);
}
