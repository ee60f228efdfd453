/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching: which accesses of a linked push are granted; the usual case is inline. */
#ifndef CORE_ATTACH_H
#define CORE_ATTACH_H

#include <core/op.h>

u32 attach_slow(struct thread *t, struct dep *d, u32 ref, u32 obi, u32 joined);
u64 attach_found(struct thread *t, struct op *op, struct dep *d, u32 j, u64 tag);
#define FOUND_DEAD (~0ull)

/*
 * Attach one access.  obi: the block it reads, or that stands before the one it makes;
 * joined: how many readers joined that.  1: granted now; 0: somebody will grant it.
 */
static inline u32 attach_block(struct thread *t, struct dep *d, u32 ref, u32 obi, u32 joined)
{
	struct pawl_engine *e = t->e;
	struct block *ob = block_of(e, obi);
	u64 s = load_acquire(&ob->state);	/* CORE-A3 <-> CORE-R1, CORE-R2 */

	if (BUSTED(GRANT_EARLY))
		joined = 0;
	if (!(d->var & DEP_WRITE)) {
		store_helped(&d->block, obi);
		if (likely(s & BLOCK_DONE))
			return 1;
	} else if (likely((s & (BLOCK_DONE | BLOCK_ERR)) == BLOCK_DONE &&
			  ((block_count(s) + joined) & JOIN_MASK) == 0)) {
		/* Over and done with, and nobody else will look at it. */
		pool_put(e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], obi);
		return 1;
	}
	return attach_slow(t, d, ref, obi, joined);
}

/* With the word as it was before our own link. */
static inline u32 attach_own(struct thread *t, struct dep *d, u32 ref, u64 was)
{
	/* A reader of a version that is known to be there leaves the block's line alone. */
	if (!(d->var & DEP_WRITE) && (was & FOUND_KNOWN)) {
		store_helped(&d->block, word_cur(was));
		return 1;
	}
	return attach_block(t, d, ref, word_cur(was), was & WORD_LASTW ? 0 : word_joined(was));
}

/* With the word as it was with our tag on it. */
static inline u32 attach_word(struct thread *t, struct dep *d, u32 ref, u64 val)
{
	if (d->var & DEP_WRITE)
		return attach_block(t, d, ref, word_prev(val), word_joined(val));
	if (unlikely(word_cur(val) >= RM_BASE)) {
		store_helped(&d->block, word_cur(val));
		return 1;
	}
	return attach_block(t, d, ref, word_cur(val), 0);
}

#endif
