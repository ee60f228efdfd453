/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of the reader of recordings: chunks.c, and the events in them, record.c. */
#ifndef PAWL_READER_H
#define PAWL_READER_H

#include "record.h"

/* The chunks of one thread in one engine, one after the other. */
struct stream {
	uint32_t engine, thread, chunks;
	unsigned char *data;
	size_t len, cap;
	struct piece {
		size_t at;	/* in data */
		uint64_t file;	/* in the file */
	} *pieces;
	size_t npieces, capp;
	size_t first_op, nops;	/* its pushes */
};

struct reader {
	const char *name;
	int fd;			/* of the file, unless it is in memory: streams have no data */
	unsigned char *scratch;
	struct recording *r;
	struct stream *streams;
	size_t nstreams, caps;
	struct mark {		/* ops with bodies: launches */
		uint32_t engine, index, gen;
	} *marks;
	size_t nmarks, capmarks;
	size_t capops, capacc, capvars, capwaits, capeng, capnodes, capsucc;
	uint32_t *ophash, *varhash;
	size_t ophash_size, varhash_size;
	uint64_t cycles0, cycles1, ns0, ns1;
	uint64_t missed;	/* see reader_missed() */
	char *err;
	size_t errlen;
};

/* -EBADMSG, with the text and the position in the file. */
int reader_bad(struct reader *rd, uint64_t at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int reader_no_memory(struct reader *rd);
/* Room for one more in an array. */
int reader_grow(struct reader *rd, void **p, size_t n, size_t *cap, size_t size);
/*
 * Check all chunks, and collect the events of each thread; if data is NULL, only where they are in
 * the file.
 */
int reader_chunks(struct reader *rd, const unsigned char *data, size_t len);
/*
 * A body that ended was not among the `depth` open ones of its thread.  Is that so often, and are
 * they so many, that the file was made for it?
 */
static inline bool reader_missed(struct reader *rd, size_t depth)
{
	rd->missed += depth > 64 ? depth : 0;
	return rd->missed > 1000000000;
}

/* Join the begin and the end of each body of a launch.  Returns 0, or 1 + the index of a second one. */
uint64_t rec_nodes_join(struct rec_node *nodes, size_t *n);

#endif
