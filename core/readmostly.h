/* SPDX-License-Identifier: Apache-2.0 */
/* Read-mostly mode: vars that many threads read and no thread writes. */
#ifndef CORE_READMOSTLY_H
#define CORE_READMOSTLY_H

#include <core/var.h>

/* A var in read-mostly mode: readmostly.c. */
struct rm {
	u64 state;		/* A: epoch and phase */
	u32 block;		/* A: the version that is read; written by who takes the rm */
	u32 unused;
};

/* What a thread has to do with an rm: its part of two sums, modulo 2^32. */
struct rm_row {
	u32 in;			/* S: reads that its pushes began */
	u32 out;		/* S release: reads that it completed, or took back */
};

struct rm_push {
	u64 tag;		/* of the push */
	u64 *cell;		/* its record of this access; NULL: it has one var */
	const u64 *status;	/* of its descriptor */
};

u64 rm_read(struct thread *t, struct var *v, u32 gen, u32 n, const struct rm_push *p);
void rm_begin(struct thread *t, struct var *v, u32 vi, struct pair w);
u64 rm_end(struct thread *t, struct var *v, u32 vi, struct pair w);
u32 rm_leave(struct thread *t, u32 i, u32 n);
u32 rm_reading(const struct pawl_engine *e, u32 i);

static inline struct rm_row *rm_row(const struct pawl_engine *e, u32 slot, u32 i)
{
	return &e->rm_rows[(size_t)slot * RM_MAX + i];
}

/* The version that a dep reads or makes; its op holds it. */
static inline u32 dep_version(const struct pawl_engine *e, u32 block)
{
	return likely(block < RM_BASE) ? block : load_relaxed(&e->rms[block - RM_BASE].block);
}

/*
 * Is it worth it to read this version without a word about it?  Then many have read it, the
 * last one was another thread, and nothing is to be done for its push.
 */
static inline bool rm_wanted(const struct thread *t, const struct pair *w)
{
	return (w->tag & TAG_KNOWN) && !(w->val & (WORD_LASTW | WORD_DELETED)) &&
	       tag_slot(w->tag) != t->slot &&
	       word_joined(w->val) >= t->e->rm_reads +
	       t->e->rm_reads * load_relaxed(&t->e->used_slots) / RM_READS;
}

#endif
