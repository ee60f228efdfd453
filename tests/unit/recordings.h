/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: in files, and in memory, where a test changes their chunks and events. */
#ifndef TESTS_UNIT_RECORDINGS_H
#define TESTS_UNIT_RECORDINGS_H

#include "util.h"
#include <core/record_format.h>
#include <tools/pawl/record.h>
#include <tools/pawl/slurp.h>

/* What the reader says of an error. */
static __unused_fn char text[256];

static inline void load(const char *path, struct recording *r)
{
	int rc = workload_load(path, r, text, sizeof(text));

	ck_assert_msg(!rc, "%s", text);
}

/* The serial order of a recording, which must have one; to be freed. */
static inline u32 *order_of(const struct recording *r, size_t *n)
{
	u32 *order = calloc(r->nops + 1, sizeof(*order));
	int rc = rec_order(r, order, n, text, sizeof(text));

	ck_assert_msg(!rc, "%s", text);
	return order;
}

/* Return the bytes of a file, and remove it. */
static inline unsigned char *contents(const char *path, size_t *len)
{
	char err[256];
	void *data;

	ck_assert_msg(!file_slurp(path, SIZE_MAX, &data, len, err, sizeof(err)), "%s", err);
	unlink(path);
	return data;
}

/* A recording in memory, of so many ops and vars. */
static inline unsigned char *sample_of(size_t *len, u32 nops, u32 nvars)
{
	char *path = temp_path();
	struct pawl_engine *e;
	pawl_var_t v[600];
	struct pawl_op op;
	u32 i;

	OK(pawl_record_start(path));
	e = engine(PAWL_PER_DEVICE, 1);
	for (i = 0; i < nvars; i++)
		v[i] = var_new(e);
	for (i = 0; i < nops; i++) {
		op = op_of_fn(i == 5 ? fail_io : nothing, NULL);
		op.reads = v;
		op.nreads = 1 + i % 2;
		op.writes = &v[2 + i % (nvars - 2)];
		op.nwrites = 1;
		op.name = i % 3 ? "op" : NULL;
		op.priority = i % 4 ? 0 : -3;
		OK(pawl_push(e, &op));
		if (i % 4 == 3)
			pawl_wait_readable(e, v[2], -1, NULL);
	}
	pawl_wait_all(e, -1, NULL);
	OK(pawl_engine_destroy(e));
	OK(pawl_record_stop());
	return contents(path, len);
}

/* Write a file. */
static inline void write_file(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "wb");

	MUST(f && fwrite(data, 1, len, f) == len && !fclose(f));
}

static inline unsigned char *sample(size_t *len)
{
	return sample_of(len, 12, 3);
}

/* The bytes of a chunk with its header. */
static inline size_t chunk_size(const unsigned char *head)
{
	return REC_HEAD + ((get_le32(head + 8) + 7) & ~7u);
}

/* Recompute the checksums of the changed bytes. */
static inline void seal(unsigned char *data, size_t len)
{
	size_t at = 0;

	while (len - at >= REC_HEAD) {
		size_t n = chunk_size(data + at);
		u64 sum;

		if (n > len - at)
			return;
		sum = htole64(rec_sum(data + at + REC_HEAD, n - REC_HEAD));
		memcpy(data + at + 40, &sum, 8);
		sum = htole64(rec_sum(data + at, REC_HEAD - 8));
		memcpy(data + at + 48, &sum, 8);
		at += n;
	}
}

/* The chunk of a kind that is number n of it, or NULL. */
static inline unsigned char *chunk(unsigned char *data, size_t len, u32 kind, u32 n)
{
	size_t at = 0;

	while (len - at >= REC_HEAD) {
		if (get_le32(data + at + 4) == kind && !n--)
			return data + at;
		at += chunk_size(data + at);
	}
	return NULL;
}

static inline void set_bytes(unsigned char *head, u32 bytes)
{
	bytes = htole32(bytes);
	memcpy(head + 8, &bytes, 4);
}

/*
 * A recording whose only events are these, at time 0: data becomes its start, its engine, a chunk
 * of events, and its end, unless the file is cut before it.
 */
static inline size_t with_events(unsigned char *data, size_t len, const void *events, u32 n,
				 bool ended)
{
	unsigned char *head = chunk(data, len, REC_CHUNK_EVENTS, 0);
	const unsigned char *at = chunk(data, len, REC_CHUNK_END, 0);
	unsigned char end[256];
	size_t room = len, size;

	MUST(head && at);
	size = chunk_size(at);
	MUST(size <= sizeof(end));
	memcpy(end, at, size);
	set_bytes(head, 8 + n);
	len = (size_t)(head - data) + chunk_size(head);
	MUST(len + size <= room);
	memset(head + REC_HEAD, 0, chunk_size(head) - REC_HEAD);
	memcpy(head + REC_HEAD + 8, events, n);
	if (ended) {
		memcpy(data + len, end, size);
		len += size;
	}
	seal(data, len);
	return len;
}

static inline void put64(unsigned char *to, u64 v)
{
	v = htole64(v);
	memcpy(to, &v, 8);
}

/* The recording lasts 4 s, and the clock counts 2000 cycles in them; the events are of thread 7. */
static inline void set_heads(unsigned char *data, size_t len)
{
	unsigned char *head = chunk(data, len, REC_CHUNK_EVENTS, 0);
	size_t at;

	head[16] = 7;
	put64(head + REC_HEAD, 1000);
	for (at = 0; at < len; at += chunk_size(data + at)) {
		put64(data + at + 24, at ? 3000 : 1000);
		put64(data + at + 32, at ? 4000005000 : 5000);
	}
	seal(data, len);
}

/* The events of a thread in an engine; time: of the clock that set_heads() describes. */
struct stream {
	u32 engine, thread;
	u64 time;
	u32 n;
	const unsigned char *events;
};

/* A recording of so many engines with these events, to be freed. */
static inline unsigned char *with_streams(const struct stream *s, u32 n, u32 engines,
					  size_t *len)
{
	unsigned char *from = sample(len), *data, *p, *head;
	static const u32 kinds[] = { REC_CHUNK_START, REC_CHUNK_ENGINE, REC_CHUNK_EVENTS,
				     REC_CHUNK_END };
	const u32 times[] = { 1, engines, n, 1 };
	u32 i, k, number, room = 0;

	for (i = 0; i < n; i++)
		room += s[i].n;
	p = data = calloc(1, *len + (n + engines) * 512 + room);
	MUST(data);
	for (k = 0; k < COUNT(kinds); k++) {
		head = chunk(from, *len, kinds[k], 0);
		for (i = 0; i < times[k]; i++, p += chunk_size(p)) {
			memcpy(p, head, k == 2 ? REC_HEAD : chunk_size(head));
			number = htole32(k == 2 ? s[i].engine : i);
			memcpy(p + 12, &number, 4);
			if (k != 2)
				continue;
			number = htole32(s[i].thread);
			memcpy(p + 16, &number, 4);
			set_bytes(p, 8 + s[i].n);
			put64(p + REC_HEAD, s[i].time);
			memcpy(p + REC_HEAD + 8, s[i].events, s[i].n);
		}
	}
	*len = (size_t)(p - data);
	for (p = data; p < data + *len; p += chunk_size(p)) {
		put64(p + 24, p > data ? 3000 : 1000);
		put64(p + 32, p > data ? 4000005000 : 5000);
	}
	seal(data, *len);
	free(from);
	return data;
}

/* Op 2.1 with an access of var 1, its begin, its end, and that it was refused. */
#define PUSH	REC_PUSH, 0, 4, 2, 0, 1, 3, 0
#define BEGIN	REC_BEGIN, 0, 4, 2, 1, 1
#define END	REC_END, 0, 2, 1
#define UNDO	REC_UNDO, 2, 1
#define EVENTS(...)	{ __VA_ARGS__ }, sizeof((unsigned char[]){ __VA_ARGS__ })

#endif
