/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linking: a push takes its position in the queues of its vars.  The usual case is inline;
 * link.c has the protocol and the rest.
 */
#ifndef CORE_LINK_H
#define CORE_LINK_H

#include <core/op.h>

/* Deps whose words the linker remembers, so that a push that needed no help needs no records. */
#ifdef PAWL_MODEL
#define LINK_FOUND	5u	/* so that small scenarios have more */
#else
#define LINK_FOUND	64u
#endif

int link_simple_slow(struct thread *t, struct op *op, u64 tag, u64 *found);
u64 link_few(struct thread *t, struct op *op, u32 opi, u64 *found);
u64 link_op(struct thread *t, struct op *op, u32 opi, u64 *found);
void link_help(struct thread *t, u64 tag);
enum phase tag_phase(struct pawl_engine *e, u64 tag);
u64 *desc_cell(struct pawl_engine *e, const struct desc *d, u64 st, u32 vi);

/*
 * TAG_KNOWN if a reader that joins w may set it, else 0.  The block remains cur until the word
 * changes, so what is true before a successful CAS is still true at the CAS.
 */
static inline u64 tag_known(struct pawl_engine *e, const struct pair *w)
{
	if (BUSTED(KNOWN_EARLY))
		return TAG_KNOWN;
	if (likely(w->tag & TAG_KNOWN))	/* CORE-K2 <-> CORE-K1 by CORE-L4 */
		return TAG_KNOWN;
	/* CORE-A3 <-> CORE-R1, and our CAS passes it on: CORE-K1 <-> CORE-K2 by CORE-L3. */
	return load_acquire(&block_of(e, word_cur(w->val))->state) & BLOCK_DONE ? TAG_KNOWN : 0;
}

/*
 * True if the push that tagged a word needs neither help nor a record, without reading its
 * descriptor: it has one var, or it is this thread's own (an earlier one, or the one that is
 * being linked).
 */
static inline bool tag_quick(const struct thread *t, u64 tag)
{
	return (tag & TAG_SIMPLE) || tag_slot(tag) == t->slot;
}

/*
 * The usual case of a thread's own push: one read, one CAS, which fails if the two halves do
 * not belong together.  Returns false if the slow path is needed.
 */
static __always_inline_fn bool link_quick(struct thread *t, struct var *v,
					  const struct dep *dep, u64 tag, bool write,
					  u64 *found, const u64 *status, u64 linking)
{
	/* CORE-L4 <-> CORE-L3 */
	struct pair w = { load_acquire(&v->word.tag), load_acquire(&v->word.val) };
	struct pair new;

	/* The word has our own tag already if another thread helped. */
	if (unlikely(!tag_quick(t, w.tag) || tag_same(w.tag, tag) || (w.val & WORD_DELETED) ||
		     load_relaxed(&v->gen) != dep->gen))
		return false;
	if (write) {
		new.tag = tag;
		new.val = word_write(w.val, dep->block, 0, false);
	} else {
		new.tag = tag | tag_known(t->e, &w);
		new.val = word_join(w.val, 1);
		/*
		 * Every RM_READS readers, let the slow path check whether several threads read
		 * the var.  Pushes over several vars get there anyway, since tag_quick() is
		 * false.
		 */
		if (!status && unlikely(!(new.val & RM_SAMPLE)) && tag_slot(w.tag) != t->slot)
			return false;
	}
	/* the second look: after the word, CORE-L4 */
	if (BUSTED(NO_SECOND_LOOK))
		status = NULL;
	if (status && unlikely(load_relaxed(status) != linking))
		return false;
	*found = found_make(w.val, new.tag);
	if (!pair_cas_acq_rel(&v->word, &w, new))	/* CORE-L3 <-> CORE-L4 */
		return false;
	BUG_ON1(write && word_cur(*found) == word_cur(new.val));
	return true;
}

/*
 * Link an op with one var; *found is the value that the word had.  Returns -ESTALE if the var
 * was deleted: then nothing happened.  The caller owns the op.  Progress: lock-free (a failed
 * CAS means that another push succeeded).
 */
static __always_inline_fn int link_simple(struct thread *t, struct op *op, u64 *found)
{
	struct dep *dep = &op->deps[0];
	struct var *v = var_of(t->e, dep->var & ~DEP_WRITE);
	u64 tag = tag_make(t->slot, ++t->seq, TAG_SIMPLE);

	if (likely(!(op->flags & OP_DELETE) &&
		   link_quick(t, v, dep, tag, dep->var & DEP_WRITE, found, NULL, 0)))
		return 0;
	return link_simple_slow(t, op, tag, found);
}

#endif
