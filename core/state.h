/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packed words of the var queue; no other file knows their bits.
 *
 * Var word (struct pair), changed only by pair_cas_acq_rel(), and every change
 * brings a tag that was never there before:
 *
 *   tag  [63:53] slot of the pushing thread  [52:2] its push number  [1] KNOWN  [0] SIMPLE
 *   val  [63] DELETED  [62] LASTW  [61:42] joined  [41:21] prev  [20:0] cur
 *
 *   cur     block of the last write that was linked
 *   prev    the block before it
 *   joined  LASTW clear: number of readers that joined cur;
 *           LASTW set: number of readers that had joined prev when cur replaced it (frozen)
 *   cur 0   the var is parked: its version is struct var.home (park.c)
 *   SIMPLE  the op has one var: it needs no help
 *   KNOWN   the thread that stored the word saw cur DONE: a reader that joins need not
 *           touch the block.  It is no part of the push's identity (tag_same())
 *
 * While a var is in read-mostly mode (readmostly.c) the slot is RM_SLOT, which no thread has,
 * KNOWN is set, and the rest names the mode:
 *
 *   tag  [63:53] RM_SLOT  [52:13] epoch  [12:3] index of the rm  [2] closed  [1] KNOWN  [0] 0
 *
 * Block state (u64), one per version, changed by read-modify-writes:
 *
 *   [63:44] count   holds minus completions: starts at 1 (the write itself), plus
 *                   the readers that a batch added; every completion subtracts 1; the
 *                   next writer adds the readers that joined and sets CLOSED.  Modulo
 *                   2^20: the value has no meaning until the block is CLOSED; then it is
 *                   exact (fewer than 2^20 ops exist).
 *   [43:12] list    newest waiting reader (reference of a dep), or 0
 *   [2] ERR  [1] CLOSED  [0] DONE
 *
 * DONE is set once, by the write's completion, which takes the list in the same
 * step.  Exactly one thread makes the count of a CLOSED block 0, and sees that.
 */
#ifndef CORE_STATE_H
#define CORE_STATE_H

#include <base/atomic.h>
#include <base/bug.h>

#define VAR_BITS	26
#define ERROR_BITS	20
#define BLOCK_BITS	21
#define JOIN_BITS	20
#define OPS_BITS	20
#define SLOT_BITS	11

#define BLOCK_MASK	((1ull << BLOCK_BITS) - 1)
#define JOIN_MASK	((1ull << JOIN_BITS) - 1)

#define WORD_PREV_SHIFT	BLOCK_BITS
#define WORD_JOIN_SHIFT	(2 * BLOCK_BITS)
#define WORD_LASTW	(1ull << 62)
#define WORD_DELETED	(1ull << 63)

/* The word of a parked var.  Not 0: that means that the access is not linked (link_dep()). */
#define WORD_PARKED	WORD_LASTW

BUILD_BUG_ON(2 * BLOCK_BITS + JOIN_BITS != 62);

static inline u32 word_cur(u64 v)
{
	return (u32)(v & BLOCK_MASK);
}

static inline u32 word_prev(u64 v)
{
	return (u32)((v >> WORD_PREV_SHIFT) & BLOCK_MASK);
}

static inline u32 word_joined(u64 v)
{
	return (u32)((v >> WORD_JOIN_SHIFT) & JOIN_MASK);
}

static inline u64 word_make(u32 cur, u32 prev, u32 joined, u64 flags)
{
	return (u64)cur | (u64)prev << WORD_PREV_SHIFT |
	       (joined & JOIN_MASK) << WORD_JOIN_SHIFT | flags;
}

/* n readers join cur. */
static inline u64 word_join(u64 v, u32 n)
{
	const u64 blocks = (1ull << WORD_JOIN_SHIFT) - 1;
	u64 had = v & WORD_LASTW ? v & blocks : v;

	/* A carry out of the count is masked off, and so are the flags. */
	return (had + ((u64)n << WORD_JOIN_SHIFT)) & (JOIN_MASK << WORD_JOIN_SHIFT | blocks);
}

/* Block nb replaces cur, after n more readers joined cur. */
static inline u64 word_write(u64 v, u32 nb, u32 n, bool del)
{
	u32 had = v & WORD_LASTW ? 0 : word_joined(v);

	return word_make(nb, word_cur(v), had + n, WORD_LASTW | (del ? WORD_DELETED : 0));
}

/*
 * What a linker found in a word that it changed: the value and, in the bit of DELETED (a
 * deleted word is never changed), whether its own new tag has KNOWN.
 */
#define FOUND_KNOWN	WORD_DELETED

#define TAG_SIMPLE	1ull
#define TAG_KNOWN	2ull
#define TAG_SEQ_BITS	51
#define TAG_SEQ_MASK	((1ull << TAG_SEQ_BITS) - 1)

BUILD_BUG_ON(SLOT_BITS + TAG_SEQ_BITS + 2 != 64);

static inline u64 tag_make(u32 slot, u64 seq, u64 simple)
{
	return (u64)slot << 53 | seq << 2 | simple;
}

static inline u32 tag_slot(u64 tag)
{
	return (u32)(tag >> 53);
}

static inline u64 tag_seq(u64 tag)
{
	return (tag >> 2) & TAG_SEQ_MASK;
}

/*
 * Read-mostly mode.  config.max_threads is smaller than RM_SLOT.  For a read in this mode, the
 * dep, and what its linker found, have RM_BASE + the index of the rm instead of a block.
 */
#ifdef PAWL_MODEL
#define RM_MAX		2u
#else
#define RM_MAX		1024u
#endif
#define RM_SLOT		((1u << SLOT_BITS) - 1)
#define RM_BASE		((1u << BLOCK_BITS) - RM_MAX)
#define RM_EPOCH_MASK	((1ull << 40) - 1)
#define RM_TAG_CLOSED	4ull
/* Number of reads of a version after which the mode is worth its cost, plus one per slot. */
#define RM_READS	64u
/* A mask of the word: link_quick() checks once in this many readers of a version. */
#define RM_SAMPLE	((u64)(RM_READS - 1) << WORD_JOIN_SHIFT)

/* State of an rm: epoch << 2 | phase. */
enum rm_phase {
	RM_FREE = 0,
	RM_OPEN = 1,		/* a var uses it, or is about to */
	RM_CLOSING = 2,		/* the thread that finds no fast reader left frees it */
};

BUILD_BUG_ON(RM_MAX > 1u << 10);

static inline u64 rm_state(u64 epoch, enum rm_phase ph)
{
	return (epoch & RM_EPOCH_MASK) << 2 | (u64)ph;
}

static inline u64 rm_tag(u64 epoch, u32 i)
{
	return (u64)RM_SLOT << 53 | (epoch & RM_EPOCH_MASK) << 13 | (u64)i << 3 | TAG_KNOWN;
}

static inline bool tag_is_rm(u64 tag)
{
	return tag >> 53 == RM_SLOT;
}

static inline u64 rm_tag_epoch(u64 tag)
{
	return (tag >> 13) & RM_EPOCH_MASK;
}

static inline u32 rm_tag_index(u64 tag)
{
	return (u32)(tag >> 3) & (RM_MAX - 1);
}

static inline u64 found_make(u64 val, u64 new_tag)
{
	return val | (new_tag & TAG_KNOWN) << 62;
}

BUILD_BUG_ON(TAG_KNOWN << 62 != FOUND_KNOWN);

/* Is it the tag of this push, apart from KNOWN? */
static inline bool tag_same(u64 word_tag, u64 tag)
{
	return (word_tag & ~TAG_KNOWN) == tag;
}

/*
 * Records: the value of a word while it had the tag of a push that is committed but not
 * attached.  The kinds are never equal: an empty cell has bit 0 and the tag of the push; one
 * that announces a read (readmostly.c) also has bit 1.
 */
static inline u64 rec_empty(u64 tag)
{
	return tag | 1;
}

static inline u64 rec_value(u64 val)
{
	return val << 1;	/* without DELETED: a deleted word is never overwritten */
}

static inline bool rec_is_value(u64 rec)
{
	return !(rec & 1);
}

static inline u64 rec_word(u64 rec)
{
	return rec >> 1;
}

/* A read in read-mostly mode: announced by its push, then linked with this rm. */
static inline u64 rec_announced(u64 tag)
{
	return tag | 3;
}

static inline u64 rec_linked(u32 rm)
{
	return rec_value(RM_BASE + rm);
}

static inline bool rec_is_linked(u64 rec)
{
	return rec_is_value(rec) && word_cur(rec_word(rec)) >= RM_BASE;
}

#define BLOCK_DONE	1ull
#define BLOCK_CLOSED	2ull
#define BLOCK_ERR	4ull
#define BLOCK_LIST_SHIFT 12
#define BLOCK_LIST_MASK	(0xffffffffull << BLOCK_LIST_SHIFT)
#define BLOCK_COUNT_SHIFT 44
#define BLOCK_ONE	(1ull << BLOCK_COUNT_SHIFT)

BUILD_BUG_ON(BLOCK_COUNT_SHIFT + JOIN_BITS != 64);
BUILD_BUG_ON(BLOCK_LIST_SHIFT + 32 != BLOCK_COUNT_SHIFT);

static inline u32 block_list(u64 s)
{
	return (u32)(s >> BLOCK_LIST_SHIFT);
}

static inline u64 block_with_list(u64 s, u32 ref)
{
	return (s & ~BLOCK_LIST_MASK) | (u64)ref << BLOCK_LIST_SHIFT;
}

static inline u32 block_count(u64 s)
{
	return (u32)(s >> BLOCK_COUNT_SHIFT);
}

/* Descriptor status: push number and phase. */
enum phase {
	PHASE_FINISHED = 0,	/* or no such push: it needs nothing */
	PHASE_LINKING = 1,	/* it is being linked: a thread that meets its tag helps */
	PHASE_COMMITTED = 2,	/* it is linked: a thread that overwrites its tag records */
};

static inline u64 status_make(u64 seq, enum phase ph)
{
	return seq << 2 | (u64)ph;
}

/*
 * Reference to one access of one op, 32 bits, never 0.  For a dep inside the op: [21:2] op,
 * [1:0] position.  For one in a chunk: [31] 1, [30:29] class, [28:0] chunk * capacity +
 * position.
 */
#define REF_EXT		0x80000000u
#define REF_CLASS_SHIFT	29
#define INLINE_DEPS	4u

#endif
