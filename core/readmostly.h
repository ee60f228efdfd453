/* SPDX-License-Identifier: Apache-2.0 */
/* Read-mostly mode: vars that many threads read and no thread writes. */
#ifndef CORE_READMOSTLY_H
#define CORE_READMOSTLY_H

#include <core/var.h>

/* A var in read-mostly mode: readmostly.c. */
struct rm {
	u64 state;		/* A: epoch and phase */
	u32 block;		/* A: the version that is read */
	u32 unused;
};

/* A push over several vars, for a read that it announces. */
struct rm_push {
	u64 tag;
	u64 *cell;		/* its record of this access */
	const u64 *status;	/* of its descriptor */
};

u64 rm_read(struct thread *t, struct var *v, u32 gen, u32 n, const struct rm_push *p);
void rm_begin(struct thread *t, struct var *v, u32 vi, struct pair w);
u64 rm_end(struct thread *t, struct var *v, u32 vi, struct pair w);
u32 rm_leave(struct thread *t, u32 i, u32 n);
u32 rm_reading(const struct pawl_engine *e, u32 i);

static inline struct rm_row *rm_row(struct thread *t, u32 i)
{
	return &((struct rm_row *)(void *)(t + 1))[i];
}

/* The version that a dep reads or makes; its op holds it. */
static inline u32 dep_version(const struct pawl_engine *e, u32 block)
{
	return likely(block < RM_BASE) ? block : load_relaxed(&e->rms[block - RM_BASE].block);
}

/*
 * Is read-mostly mode worth its cost for this version?  If so, many ops have read it, the last
 * one was pushed by another thread, and that push needs neither help nor a record.
 */
static inline bool rm_wanted(const struct thread *t, const struct pair *w)
{
	return (w->tag & TAG_KNOWN) && !(w->val & (WORD_LASTW | WORD_DELETED)) &&
	       word_cur(w->val) &&
	       tag_slot(w->tag) != t->slot &&
	       word_joined(w->val) >= t->e->rm_reads +
	       t->e->rm_reads * slots_used(t->e) / RM_READS;
}

#endif
