/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching: which accesses of a linked push are granted; the usual case is inline. */
#ifndef CORE_ATTACH_H
#define CORE_ATTACH_H

#include <core/op.h>

u32 attach_slow(struct thread *t, struct dep *d, u32 ref, u32 obi, u32 joined);
u64 attach_found(struct thread *t, struct op *op, struct dep *d, u32 j, u64 tag);
#define FOUND_DEAD (~0ull)

/*
 * Attach one access.  obi is the block that it reads or, for a write, the block before its
 * own, which `joined` readers joined.  Returns 1 if the access is granted, or 0 if another
 * thread will grant it.
 */
static inline u32 attach_block(struct thread *t, struct dep *d, u32 ref, u32 obi, u32 joined)
{
	struct pawl_engine *e = t->e;
	/* Block 0 (the var is parked) is always zero, so attach_slow() handles it. */
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
		/* All its accesses are complete, so no other thread will read it. */
		pool_put(e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], obi);
		return 1;
	}
	return attach_slow(t, d, ref, obi, joined);
}

/* attach_block() with the word that our own compare-and-swap replaced. */
static inline u32 attach_own(struct thread *t, struct dep *d, u32 ref, u64 was)
{
	/* The version is known to be complete: do not touch the block's line. */
	if (!(d->var & DEP_WRITE) && (was & FOUND_KNOWN)) {
		store_helped(&d->block, word_cur(was));
		return 1;
	}
	return attach_block(t, d, ref, word_cur(was), was & WORD_LASTW ? 0 : word_joined(was));
}

/* attach_block() with the word that had our tag. */
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
