// SPDX-License-Identifier: Apache-2.0
/*
 * Attaching: the owner of a committed push finds out which accesses are granted, and registers
 * the others with their blocks.
 *
 *   reader of block b   If b is DONE, it is granted.  Otherwise it joins b's list.  The
 *                       write's completion takes the list in the step that sets DONE, so
 *                       exactly one of the two grants the reader.
 *   writer behind ob    If ob is DONE, and all its readers (J of them, frozen in the word)
 *                       are complete, it is granted and frees ob.  Otherwise it stores itself
 *                       in ob->succ, then adds {J, CLOSED}.  The thread that brings the count
 *                       to zero, here or in a completion, grants the writer and frees ob.
 *
 * Ordering:
 *   CORE-A1 (writer's add, release)  <-> CORE-R2 (reader or writer reaches zero): succ
 *   CORE-A2 (reader joins, release)  <-> CORE-R1 (completion takes the list): the dep
 *   CORE-A3 (state read, acquire)    <-> CORE-R1, CORE-R2: the data of the op before
 *
 * Progress: a writer is wait-free; a reader is lock-free (its CAS fails only because another
 * reader joined, the next writer closed the block, or the block became DONE).
 */
#include <core/attach.h>

/*
 * The value of the word for dep j of this thread's committed push: the word itself while it
 * has our tag, otherwise our record.  Returns FOUND_DEAD if the dep was not linked.
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
	 * CORE-L6 <-> CORE-L5 by CORE-L4: the thread that overwrote our tag recorded before its
	 * CAS, which word_snapshot() has just acquired.
	 */
	rec = load_relaxed(desc_rec(e, &t->d, op->ndeps, op->ext, j));
	return rec_is_value(rec) ? rec_word(rec) : FOUND_DEAD;
}

/* Slow path of attach_block(): not granted so far, or there is an error to pass on. */
u32 attach_slow(struct thread *t, struct dep *dep, u32 ref, u32 obi, u32 joined)
{
	struct pawl_engine *e = t->e;
	u32 vi = dep->var & ~DEP_WRITE;
	struct block *ob = version_of(e, vi, obi);
	u64 s = load_acquire(&ob->state), add;	/* CORE-A3 <-> CORE-R1, CORE-R2 */

	if (!(dep->var & DEP_WRITE)) {
		for (;;) {
			if (s & BLOCK_DONE)
				return 1;
			store_helped(&dep->link, block_list(s));
			/*
			 * CORE-A2 <-> CORE-R1.  Acquire is for the failure, which checks DONE
			 * again: C11 allows no failure order that is stronger than the success
			 * order.
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
	/* No other thread reads ob from here on: pass its error on and free it. */
	store_relaxed(&block_of(e, dep->block)->err, s & BLOCK_ERR ? ob->err : 0);
	version_end(t, ob, obi);
	return 1;
}
