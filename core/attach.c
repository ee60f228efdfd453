// SPDX-License-Identifier: Apache-2.0
/*
 * Attaching: the owner of a committed push finds out which accesses are granted and
 * leaves word with the blocks for the others.
 *
 *   reader of block b   b DONE: granted.  Else it joins b's list; the write's
 *                       completion takes the list in the step that sets DONE, so a
 *                       reader is let in by exactly one of the two.
 *   writer behind ob    all readers of ob (J of them, frozen in the word) completed
 *                       and ob DONE: granted, ob is free.  Else: name itself in
 *                       ob->succ, then add {J, CLOSED}; whoever brings the count to
 *                       zero, here or at a completion, grants and frees ob.
 *
 * Ordering:
 *   CORE-A1 (writer's add, release)  <-> CORE-R2 (reader or writer reaches zero): succ
 *   CORE-A2 (reader joins, release)  <-> CORE-R1 (completion takes the list): the dep
 *   CORE-A3 (state read, acquire)    <-> CORE-R1, CORE-R2: the data of the op before
 *
 * Progress: writer wait-free; reader lock-free (its CAS fails only because another
 * reader joined, the writer closed, or the block became DONE).
 */
#include <core/attach.h>

/*
 * What the word held for dep j of this thread's committed push: from the word while
 * it still has our tag, else from our record.  FOUND_DEAD: never linked.
 */
u64 attach_found(struct thread *t, struct op *op, struct dep *dep, u32 j, u64 tag)
{
	struct pawl_engine *e = t->e;
	struct var *v = var_of(e, dep->var & ~DEP_WRITE);
	struct pair w = word_snapshot(v);
	u64 rec;

	if (tag_same(w.tag, tag))
		return w.val;
	/*
	 * CORE-L6 <-> CORE-L5: the overwriter recorded before the CAS that word_snapshot()
	 * has just acquired (CORE-L4).
	 */
	rec = load_relaxed(desc_rec(e, &t->d, op->ndeps, op->ext, j));
	return rec_is_value(rec) ? rec_word(rec) : FOUND_DEAD;
}

/* Not granted at the first look (attach_block()), or with an error to pass on. */
u32 attach_slow(struct thread *t, struct dep *dep, u32 ref, u32 obi, u32 joined)
{
	struct pawl_engine *e = t->e;
	struct block *ob = block_of(e, obi);
	u64 s = load_acquire(&ob->state), add;	/* CORE-A3 <-> CORE-R1, CORE-R2 */

	if (!(dep->var & DEP_WRITE)) {
		for (;;) {
			if (s & BLOCK_DONE)
				return 1;
			store_helped(&dep->link, block_list(s));
			/*
			 * CORE-A2 <-> CORE-R1.  Acquire is for the failure, which looks again:
			 * C11 has no failure order stronger than that of success.
			 */
			if (cas_acq_rel_acquire(&ob->state, &s, block_with_list(s, ref)))
				return 0;
		}
	}
	if (!((s & BLOCK_DONE) && ((block_count(s) + joined) & JOIN_MASK) == 0)) {
		add = (u64)joined << BLOCK_COUNT_SHIFT | BLOCK_CLOSED;
		store_relaxed(&ob->succ, ref);
		s = fetch_add_acq_rel(&ob->state, add) + add;	/* CORE-A1 <-> CORE-R2 */
		if (block_count(s))
			return 0;
	}
	/* Nobody else will look at ob: its error goes on, and it is free. */
	store_relaxed(&block_of(e, dep->block)->err, s & BLOCK_ERR ? ob->err : 0);
	block_free(t, obi);
	return 1;
}
