/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long work waits in a queue, from samples; layer 3, inside exec only.
 *
 * One piece of work at a time carries a sample, the time of its push.  Its taker counts the
 * time that has passed, for all the work that was pushed since the last sample.  So a clock is
 * read, and a line changed, once in WAIT_EVERY pushes at most, and less often while the queue
 * is long.  Between a sample and the end of its count no other one begins, so the sums have
 * one writer at a time.
 *
 * Progress: wait-free.
 */
#ifndef EXEC_WAITS_H
#define EXEC_WAITS_H

#include <base/atomic.h>

#define WAIT_EVERY	128u	/* pushes; a power of two */
#define WAIT_BUCKETS	40u	/* the bucket of t ns is the number of bits of t, or the last */
/* Which positions have samples: the first, so that also a short queue has one. */
#ifdef PAWL_MODEL
#define WAIT_FIRST	(WAIT_EVERY - 1)	/* never: small scenarios do not get there */
#else
#define WAIT_FIRST	0u
#endif

struct waits {
	u64 sample;		/* A: cycles() / 4 << 21 | key of the work; 0: none */
	/* S: of the taker of a sample. */
	u64 upto;		/* work pushed up to the last sample */
	u64 sum;		/* ns */
	u64 bucket[WAIT_BUCKETS];
};

/* Which work has the sample: a number of 21 bits, not 0, that no other work has meanwhile. */
#define WAIT_KEY_BITS	21u
#define WAIT_KEY	((1u << WAIT_KEY_BITS) - 1)

static inline bool wait_due(u64 pos)
{
	return (pos & (WAIT_EVERY - 1)) == WAIT_FIRST;
}

/* The key of position pos of a ring. */
static inline u32 wait_pos_key(u64 pos)
{
	return ((u32)(pos / WAIT_EVERY) & (WAIT_KEY >> 1)) | ((WAIT_KEY >> 1) + 1);
}

/* Before the push of the work; of a ring, by its producer. */
static inline void wait_begin(struct waits *w, u32 key)
{
	if (!load_acquire(&w->sample))	/* EXEC-T2 <-> EXEC-T1 */
		store_relaxed(&w->sample, cycles() >> 2 << WAIT_KEY_BITS | key);
}

/* The same, when several threads push. */
static inline void wait_begin_shared(struct waits *w, u32 key)
{
	u64 none = 0;

	if (!load_relaxed(&w->sample))
		/* EXEC-T2 <-> EXEC-T1 */
		cas_acquire_relaxed(&w->sample, &none, cycles() >> 2 << WAIT_KEY_BITS | key);
}

static inline u32 wait_bucket(u64 ns)
{
	return ns ? (u32)min_u(64u - (u32)__builtin_clzll(ns), WAIT_BUCKETS - 1) : 0;
}

void wait_taken(struct waits *w, u64 sample, u64 upto) __cold;

/* The work was taken; `upto` pieces were pushed up to it. */
static inline void wait_end(struct waits *w, u32 key, u64 upto)
{
	u64 sample = load_relaxed(&w->sample);

	if ((sample & WAIT_KEY) == key)
		wait_taken(w, sample, upto);
}

#endif
