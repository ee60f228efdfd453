/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The constants of the recording format, for writers and readers; Documentation/record.md
 * describes it.  The file does not depend on the core, so any program may include it.
 */
#ifndef CORE_RECORD_FORMAT_H
#define CORE_RECORD_FORMAT_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define REC_VERSION	2u		/* greater with each new kind of event; 2: bodies of launches */
#define REC_VERSION_OLD	1u		/* the oldest that a reader of this version reads */
#define REC_MAGIC	0x43525750u	/* "PWRC" */
#define REC_HEAD	56u		/* bytes of a chunk's header */
#define REC_NAME_MAX	255u

enum rec_chunk {
	REC_CHUNK_START = 1,
	REC_CHUNK_ENGINE = 2,
	REC_CHUNK_EVENTS = 3,
	REC_CHUNK_END = 4,
};

/* The low three bits of an event's first byte; the other bits are flags. */
enum {
	REC_NAME = 1,
	REC_PUSH = 2,
	REC_UNDO = 3,
	REC_BEGIN = 4,
	REC_END = 5,
	REC_WAIT = 6,
	REC_WAITED = 7,
	REC_KIND = 7,

	REC_PUSH_PRIO = 1 << 3,		/* priority follows */
	REC_PUSH_WHERE = 1 << 4,	/* property and device follow */
	REC_PUSH_ASYNC = 1 << 5,
	REC_PUSH_MORE = 1 << 6,		/* in a batch with the thread's next push */
	REC_PUSH_EMPTY = 1 << 7,	/* no body */
	REC_PROP_ENDS = 1 << 7,		/* in the property byte: the op deletes its var */

	REC_BEGIN_NODE = 1 << 3,	/* begins a body of a launch */
	REC_BEGIN_ASYNC = 1 << 4,	/*   that is asynchronous */
	REC_BEGIN_SKIPPED = 1 << 5,	/*   that does not run, because one before it failed */

	REC_END_NODE = 1 << 5,		/* ends a body of a launch */
	REC_END_OPEN = 1 << 3,		/* ends the op that this thread began last */
	REC_END_STATUS = 1 << 4,	/* status follows */

	REC_WAIT_ALL = 0,
	REC_WAIT_READABLE = 1 << 3,
	REC_WAIT_WRITABLE = 2 << 3,
};

/*
 * A checksum over 64-bit words; n is a multiple of 8.  Each step is a bijection of the sum, so
 * any change within a single word is detected.
 */
static inline uint64_t rec_sum(const unsigned char *p, size_t n)
{
	uint64_t h = 0x70617743726563ull, w;

	for (; n; n -= 8, p += 8) {
		memcpy(&w, p, 8);
		h ^= le64toh(w);
		h = (h << 29 | h >> 35) * 0x9e3779b97f4a7c15ull;
	}
	return h;
}

#endif
