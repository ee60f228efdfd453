// SPDX-License-Identifier: Apache-2.0
/* The chunks of a recording: the first half of the reader (record.c). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <core/record_format.h>

#include "reader.h"
#include "slurp.h"

#define CHUNK_MAX ((size_t)1 << 20)

int reader_bad(struct reader *rd, uint64_t at, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return file_err(rd->err, rd->errlen, -EBADMSG, "%s: offset %" PRIu64 ": %s", rd->name,
			at, text);
}

int reader_no_memory(struct reader *rd)
{
	return file_err(rd->err, rd->errlen, -ENOMEM, "%s: no memory", rd->name);
}

int reader_grow(struct reader *rd, void **p, size_t n, size_t *cap, size_t size)
{
	size_t want = *cap ? *cap * 2 : 64;
	void *q;

	if (n < *cap)
		return 0;
	q = want > SIZE_MAX / size ? NULL : realloc(*p, want * size);
	if (!q)
		return reader_no_memory(rd);
	*p = q;
	*cap = want;
	return 0;
}

/* --- chunks --- */

static struct stream *stream_of(struct reader *rd, uint32_t engine, uint32_t thread)
{
	size_t i;

	for (i = 0; i < rd->nstreams; i++)
		if (rd->streams[i].engine == engine && rd->streams[i].thread == thread)
			return &rd->streams[i];
	if (reader_grow(rd, (void **)&rd->streams, rd->nstreams, &rd->caps, sizeof(*rd->streams)))
		return NULL;
	rd->streams[rd->nstreams] = (struct stream){ .engine = engine, .thread = thread };
	return &rd->streams[rd->nstreams++];
}

static int text_get(const unsigned char **p, const unsigned char *end, char *out, size_t size)
{
	size_t n;

	if (*p == end || (size_t)(end - *p) < 1 + (size_t)**p)
		return -1;
	n = *(*p)++;
	snprintf(out, size, "%.*s", (int)n, (const char *)*p);
	*p += n;
	return 0;
}

static int chunk_start(struct reader *rd, const unsigned char *p, uint32_t bytes, uint64_t at)
{
	const unsigned char *end = p + bytes;
	struct recording *r = rd->r;

	if (bytes < 16)
		return reader_bad(rd, at, "the start has %u bytes", bytes);
	r->version = get_le32(p);
	if (r->version < REC_VERSION_OLD || r->version > REC_VERSION)
		return reader_bad(rd, at, "version %u of the format, this program reads %u to %u", r->version,
			   REC_VERSION_OLD, REC_VERSION);
	r->pid = get_le32(p + 4);
	r->started = (int64_t)get_le64(p + 8);
	p += 16;
	if (text_get(&p, end, r->library, sizeof(r->library)) ||
	    text_get(&p, end, r->program, sizeof(r->program)))
		return reader_bad(rd, at, "a text of the start does not end");
	return 0;
}

static int chunk_engine(struct reader *rd, const unsigned char *p, uint32_t bytes,
			uint32_t number, uint64_t at)
{
	const unsigned char *end = p + bytes;
	struct recording *r = rd->r;
	struct rec_engine *e;

	if (bytes < 28)
		return reader_bad(rd, at, "an engine has %u bytes", bytes);
	if (number != r->nengines)
		return reader_bad(rd, at, "engine %u after %zu others", number, r->nengines);
	if (reader_grow(rd, (void **)&r->engines, r->nengines, &rd->capeng, sizeof(*r->engines)))
		return -ENOMEM;
	e = &r->engines[r->nengines++];
	e->number = number;
	e->kind = get_le32(p);
	e->workers = get_le32(p + 4);
	e->devices = get_le32(p + 16);
	p += 28;
	if (text_get(&p, end, e->name, sizeof(e->name)))
		return reader_bad(rd, at, "the name of engine %u does not end", number);
	return 0;
}

static int chunk_events(struct reader *rd, const unsigned char *p, uint32_t bytes,
			const unsigned char *head, uint64_t at)
{
	uint32_t engine = get_le32(head + 12), thread = get_le32(head + 16);
	uint32_t number = get_le32(head + 20);
	struct stream *s;
	void *q;

	if (engine >= rd->r->nengines)
		return reader_bad(rd, at, "events of engine %u, of which nothing was said", engine);
	s = stream_of(rd, engine, thread);
	if (!s)
		return -ENOMEM;
	if (number != s->chunks)
		return reader_bad(rd, at, "chunk %u of thread %u of engine %u, expected %u", number, thread,
			   engine, s->chunks);
	s->chunks++;
	if (reader_grow(rd, (void **)&s->pieces, s->npieces, &s->capp, sizeof(*s->pieces)))
		return -ENOMEM;
	s->pieces[s->npieces++] = (struct piece){ s->len, at + REC_HEAD };
	if (p && s->len + bytes > s->cap) {
		s->cap = 2 * s->cap > s->len + bytes ? 2 * s->cap : s->len + bytes;
		q = realloc(s->data, s->cap);
		if (!q)
			return reader_no_memory(rd);
		s->data = q;
	}
	if (p && bytes)
		memcpy(s->data + s->len, p, bytes);
	s->len += bytes;
	return 0;
}

/* n bytes of the file at this offset.  In a file a chunk has the size of a buffer, or a little more. */
static const unsigned char *bytes_at(struct reader *rd, const unsigned char *data, size_t at, size_t n)
{
	size_t got = 0;
	ssize_t k;

	if (data)
		return data + at;
	if (n > CHUNK_MAX)
		return NULL;
	if (!rd->scratch)
		rd->scratch = malloc(CHUNK_MAX);
	while (rd->scratch && got < n) {
		k = pread(rd->fd, rd->scratch + got, n - got, (off_t)(at + got));
		if (k <= 0)
			return NULL;
		got += (size_t)k;
	}
	return rd->scratch;
}

int reader_chunks(struct reader *rd, const unsigned char *data, size_t len)
{
	struct recording *r = rd->r;
	unsigned char head[REC_HEAD];
	size_t at = 0, padded;
	uint32_t type, bytes;
	int rc = 0;

	for (; !rc && at < len; at += REC_HEAD + padded) {
		const unsigned char *h = bytes_at(rd, data, at, len - at < REC_HEAD ? len - at : REC_HEAD);

		if (!h)
			return reader_bad(rd, at, "it cannot be read");
		if (len - at >= 4 && get_le32(h) != REC_MAGIC)
			return at ? reader_bad(rd, at, "no chunk begins here") :
				    file_err(rd->err, rd->errlen, -EBADMSG,
					     "%s: not a recording", rd->name);
		if (r->ended)
			return reader_bad(rd, at, "something after the end");
		if (len - at < REC_HEAD)
			break;
		if (rec_sum(h, REC_HEAD - 8) != get_le64(h + REC_HEAD - 8))
			return reader_bad(rd, at, "the header of a chunk is damaged");
		memcpy(head, h, REC_HEAD);
		type = get_le32(head + 4);
		bytes = get_le32(head + 8);
		padded = ((size_t)bytes + 7) & ~(size_t)7;
		if (len - at - REC_HEAD < padded)
			break;
		h = bytes_at(rd, data, at + REC_HEAD, padded);
		if (!h)
			return reader_bad(rd, at, "its contents cannot be read");
		if (rec_sum(h, padded) != get_le64(head + 40))
			return reader_bad(rd, at, "the contents of a chunk are damaged");
		if ((type == REC_CHUNK_START) != !at)
			return reader_bad(rd, at, at ? "a second start" : "no start");
		rd->cycles1 = get_le64(head + 24);
		rd->ns1 = get_le64(head + 32);
		if (!at) {
			rd->cycles0 = rd->cycles1;
			rd->ns0 = rd->ns1;
		}
		switch (type) {
		case REC_CHUNK_START:
			rc = chunk_start(rd, h, bytes, at);
			break;
		case REC_CHUNK_ENGINE:
			rc = chunk_engine(rd, h, bytes, get_le32(head + 12), at);
			break;
		case REC_CHUNK_EVENTS:
			rc = chunk_events(rd, data ? h : NULL, bytes, head, at);
			break;
		case REC_CHUNK_END:
			if (bytes < 8)
				return reader_bad(rd, at, "the end has %u bytes", bytes);
			r->lost = get_le64(h);
			r->ended = true;
			break;
		default:
			return reader_bad(rd, at, "a chunk of type %u", type);
		}
		r->chunks++;
		r->whole = at + REC_HEAD + padded;
	}
	if (rc)
		return rc;
	if (!r->chunks)
		return file_err(rd->err, rd->errlen, -EBADMSG,
				"%s: %zu bytes: not a recording, or nothing of it", rd->name, len);
	return 0;
}
