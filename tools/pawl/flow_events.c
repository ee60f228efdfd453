// SPDX-License-Identifier: Apache-2.0
/* The events of one thread of a large recording: a chunk and a half of it is in memory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <core/record_format.h>

#include "flow_events.h"
#include "slurp.h"

uint64_t event_number(struct event_in *in)
{
	uint64_t v = 0;
	unsigned int shift = 0;
	unsigned char b;

	do {
		if (in->p == in->end) {
			in->cut = true;
			return 0;
		}
		b = *in->p++;
		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		shift += 7;
	} while (b & 0x80 && shift <= 70);
	return v;
}

static int64_t get_signed(struct event_in *in)
{
	uint64_t v = event_number(in);

	return (int64_t)(v >> 1 ^ -(v & 1));
}

static void skip(struct event_in *in, struct event *e, uint64_t each)
{
	uint64_t i;

	e->list = in->p;
	if (e->n > (uint64_t)(in->end - in->p)) {
		in->cut = true;
		return;
	}
	for (i = 0; i < e->n * each && !in->cut; i++)
		event_number(in);
}

/* The launch or op of a begin. */
static void get_op(struct event_in *in, struct event_state *st, struct event *e)
{
	e->index = st->begin_op += (uint32_t)get_signed(in);
	e->gen = st->begin_gen += (uint32_t)get_signed(in);
}

/* Read one event.  If it does not end in the buffer, in->cut is set. */
static int event_read(struct event_in *in, struct event_state *st, struct event *e)
{
	unsigned int kind = e->kind = *in->p++, what = kind & REC_KIND;

	if (what != REC_NAME && what != REC_UNDO)
		st->cycles += event_number(in);
	e->time = st->cycles;
	switch (what) {
	case REC_NAME:
		e->n = event_number(in);
		e->list = in->p;
		if (e->n > REC_NAME_MAX)
			return DIFFERS;
		if (e->n > (uint64_t)(in->end - in->p))
			in->cut = true;
		else
			in->p += e->n;
		break;
	case REC_PUSH:
		e->index = st->push_op += (uint32_t)get_signed(in);
		e->gen = st->push_gen += (uint32_t)get_signed(in);
		e->name = event_number(in);
		e->prio = kind & REC_PUSH_PRIO ? get_signed(in) : 0;
		if (kind & REC_PUSH_WHERE && in->p < in->end) {
			e->prop = *in->p++;
			e->device_kind = event_number(in);
			e->device = event_number(in);
		}
		e->n = event_number(in);
		skip(in, e, 2);
		break;
	case REC_UNDO:
		e->index = (uint32_t)event_number(in);
		e->gen = (uint32_t)event_number(in);
		break;
	case REC_BEGIN:
		get_op(in, st, e);
		if (kind & REC_BEGIN_NODE) {
			e->number = event_number(in);
			e->name = event_number(in);
			break;
		}
		st->open_op = e->index;
		st->open_gen = e->gen;
		e->n = event_number(in);
		skip(in, e, 1);
		break;
	case REC_END:
		if (kind & REC_END_NODE) {
			get_op(in, st, e);
			e->number = event_number(in);
		} else if (kind & REC_END_OPEN) {
			e->index = st->open_op;
			e->gen = st->open_gen;
			st->open_op = 0;
			if (!e->index)
				return DIFFERS;
		} else {
			e->index = (uint32_t)event_number(in);
			e->gen = (uint32_t)event_number(in);
		}
		e->status = kind & REC_END_STATUS ? get_signed(in) : 0;
		if (kind & REC_END_NODE) {
			e->n = event_number(in);
			skip(in, e, 1);
		}
		break;
	case REC_WAIT:
		if (kind >> 3 > 2)
			return DIFFERS;
		if (kind >> 3) {
			e->var = event_number(in);
			e->vargen = event_number(in);
		}
		break;
	case REC_WAITED:
		e->status = get_signed(in);
		break;
	default:
		return DIFFERS;
	}
	return 0;
}

/* Read the next chunk of the line behind what is in its buffer.  Returns false at the end. */
static int line_more(struct reader *rd, struct line_events *l, bool *more)
{
	const struct stream *s = l->s;
	size_t bytes, got = 0;
	ssize_t n;
	void *q;

	*more = l->piece < s->npieces;
	if (!*more)
		return 0;
	bytes = (l->piece + 1 < s->npieces ? s->pieces[l->piece + 1].at : s->len) - s->pieces[l->piece].at;
	if (l->at)
		memmove(l->buf, l->buf + l->at, l->n - l->at);
	l->n -= l->at;
	l->at = 0;
	if (l->n + bytes > l->cap) {
		q = realloc(l->buf, l->n + bytes);
		if (!q)
			return reader_no_memory(rd);
		l->buf = q;
		l->cap = l->n + bytes;
	}
	while (got < bytes) {
		n = pread(rd->fd, l->buf + l->n + got, bytes - got, (off_t)(s->pieces[l->piece].file + got));
		if (n <= 0)
			return DIFFERS;
		got += (size_t)n;
	}
	l->n += bytes;
	l->piece++;
	return 0;
}

/* Read the next event of the line.  *some is false at its end. */
int events_next(struct reader *rd, struct line_events *l, bool *some)
{
	bool more = true;
	int rc;

	for (;;) {
		struct event_in in = { l->buf + l->at, l->buf + l->n, false };
		struct event_state st = l->st;
		struct event e = { 0 };

		if (in.p != in.end) {
			rc = event_read(&in, &st, &e);
			if (rc && !in.cut)
				return rc;
			if (!in.cut) {
				l->at = (size_t)(in.p - l->buf);
				l->st = st;
				l->ev = e;
				*some = true;
				return 0;
			}
		}
		rc = line_more(rd, l, &more);
		if (rc)
			return rc;
		if (more)
			continue;
		*some = false;
		/* The other half of an event was in a missing chunk. */
		return l->at < l->n && rd->r->ended ? DIFFERS : 0;
	}
}

int events_open(struct reader *rd, struct line_events *l, bool *some)
{
	bool more = true;
	int rc = 0;

	*some = false;
	while (!rc && more && l->n < 8)
		rc = line_more(rd, l, &more);
	if (rc || !l->s->len)
		return rc;
	if (l->n < 8)
		return DIFFERS;
	l->st = (struct event_state){ .cycles = get_le64(l->buf) };
	l->at = 8;
	return events_next(rd, l, some);
}
