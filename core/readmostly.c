// SPDX-License-Identifier: Apache-2.0
/*
 * Read-mostly mode: when many threads read a var that no thread writes, a reader touches no
 * cache line that other readers write.
 *
 * Structures: the word of such a var has a tag that names an rm (struct rm), and does not
 * change while the mode lasts.  One hold on the version, counted in the word as a reader,
 * covers all fast readers.  They are counted elsewhere: for each rm, each thread has the number
 * of reads that its pushes began (in) and that it completed (out), on its own cache lines.  The
 * number of readers is the sum of all in minus the sum of all out, modulo 2^32.
 *
 * An rm is FREE, OPEN for an epoch, CLOSING, and FREE again:
 *   - A reader that finds a version that many ops have read, the last one pushed by another
 *     thread, takes a free rm and stores the tag in the word (rm_begin()).
 *   - A fast reader counts itself, then checks whether the tag is still the same (rm_read()).
 *     If not, it takes its count back and links like any other access.
 *   - A thread that must change the word first closes the mode by setting a bit of the tag;
 *     from then on readers link as usual (rm_end()).  Then the word may be changed as usual.
 *   - A thread that finds the rm CLOSING and no reader left frees the rm and drops the hold,
 *     like a reader that completes (rm_leave(), rm_drain()).  So a write waits for all fast
 *     readers.
 *
 * A push with several vars is linked at one point in time, but a fast reader leaves no tag by
 * which other threads could find its push.  So it announces the read in its record of the
 * access before it checks the tag, and then changes the record to linked if it still is
 * announced.  A thread that closes the mode goes through all pushes that are LINKING: it
 * revokes an announced read, and helps a push with a linked read to its end.  Only then may the
 * word be changed.  This makes no circle: a read is announced after all accesses to vars below
 * are linked, so such a push only needs vars above this one, like any push that is helped.
 *
 *      reader                              closing thread
 *      in++, record = announced            tag = closed
 *      barrier (CORE-M1)                   barrier (CORE-M2)
 *      tag is the same: linked             records; later: sums
 *
 *      completing thread                   closing thread
 *      out++                               state = CLOSING
 *      barrier (CORE-M3)                   barrier (CORE-M4)
 *      state is CLOSING: sums              sums
 *
 * Bad outcome in both: each reads before the other has written.  The barriers forbid it.
 *
 * Ordering:
 *   CORE-M5 (a record is read)       <-> CORE-M6 (linked, CAS): the count that belongs to it
 *   CORE-M7 (LINKING, link.c)        <-> CORE-M8: the push that is found in its descriptor
 *   CORE-M9 (out, release)           <-> CORE-M10: what a reader did, to the writer behind it;
 *                                        and its in, so that the later sum contains it
 *   CORE-M11 (state, release)        <-> CORE-M12: the rm's block, and the check of the records
 *
 * Why a sum of 0 is exact: all out are read before all in, so the difference is at least the
 * number of readers at the time between; and after the mode is closed, each read that begins is
 * taken back.
 *
 * Progress: reading and completing are wait-free, with a sum over all slots while the rm is
 * closing; rm_end() is lock-free, and helps each push once.
 *
 * Lifetime: any var may use a free rm.  Epochs distinguish its uses: a tag names one, and the
 * state changes only from that epoch.  The counts are not reset.  A thread that is stopped
 * between counting a read and completing it, or taking it back, delays the next writer of that
 * var, or of a var that uses the rm later.
 */
#include <core/link.h>
#include <core/readmostly.h>
#include <core/retire.h>

#define RM_PROBES 4u		/* number of rms that are tried for a var */

/* The number of reads of rm i that are not complete.  Progress: wait-free. */
u32 rm_reading(const struct pawl_engine *e, u32 i)
{
	u32 s, n = slots_used(e), sum = 0;

	for (s = 0; s < n; s++)
		sum -= load_acquire(&rm_row(thread_of(e, s), i)->out);	/* CORE-M10 <-> CORE-M9 */
	/* Relaxed: visible with the reads that were completed (CORE-M10). */
	n = slots_used(e);
	for (s = 0; s < n; s++)
		sum += load_relaxed(&rm_row(thread_of(e, s), i)->in);
	return sum;
}

/* If rm i is CLOSING and has no reader, free it and return the block of its hold; else 0. */
static __noinline u32 rm_drain(struct pawl_engine *e, u32 i)
{
	struct rm *rm = &e->rms[i];
	u64 st = load_acquire(&rm->state);	/* CORE-M12 <-> CORE-M11 */
	u32 bi;

	if ((st & 3) != RM_CLOSING)
		return 0;
	smp_mb();	/* CORE-M4 <-> CORE-M3 */
	bi = load_relaxed(&rm->block);
	if (rm_reading(e, i))
		return 0;
	/* CORE-M11 <-> CORE-M12: the next thread that takes it writes its block. */
	if (!cas_release_relaxed(&rm->state, &st, st - RM_CLOSING + RM_FREE))
		return 0;
	if (BUSTED(RM_HOLD_KEPT))
		return 0;
	return bi;
}

/*
 * n reads that are counted in rm i are complete.  Returns the block of which the caller must
 * drop a hold, or 0.  Progress: wait-free.
 */
u32 rm_leave(struct thread *t, u32 i, u32 n)
{
	struct rm_row *row = rm_row(t, i);

	store_release(&row->out, row->out + n);	/* CORE-M9 <-> CORE-M10 */
	smp_mb();	/* CORE-M3 <-> CORE-M4 */
	if (BUSTED(RM_UNSEEN))
		return 0;
	if (likely((load_relaxed(&t->e->rms[i].state) & 3) != RM_CLOSING))
		return 0;
	return rm_drain(t->e, i);
}

/* Take the count of n reads back. */
static __cold void rm_take_back(struct thread *t, u32 i, u32 n)
{
	u32 bi = rm_leave(t, i, n);

	if (bi)
		hold_put(t, bi);
}

/*
 * n readers join v if it is in read-mostly mode; p is NULL for a push with one var.  Returns
 * what a linker would have found, or 0: link it as usual.  Progress: wait-free.
 */
u64 rm_read(struct thread *t, struct var *v, u32 gen, u32 n, const struct rm_push *p)
{
	u64 tag = load_acquire(&v->word.tag), want;	/* CORE-L4 <-> CORE-L3 */
	u32 i = rm_tag_index(tag);
	struct rm_row *row;

	if (!tag_is_rm(tag) || (tag & RM_TAG_CLOSED))
		return 0;
	/* the second look: after the word, as in link_dep() */
	if (p && load_relaxed(p->status) != status_make(tag_seq(p->tag), PHASE_LINKING))
		return 0;
	row = rm_row(t, i);
	store_relaxed(&row->in, row->in + n);
	if (p) {
		want = rec_empty(p->tag);
		if (!cas_relaxed(p->cell, &want, rec_announced(p->tag))) {
			rm_take_back(t, i, n);
			return 0;
		}
		smp_mb_after_rmw();	/* CORE-M1 <-> CORE-M2 */
	} else {
		if (!BUSTED(RM_NO_MB))
			smp_mb();	/* CORE-M1 <-> CORE-M2 */
	}
	if (likely(load_relaxed(&v->word.tag) == tag && load_relaxed(&v->gen) == gen)) {
		if (!p)
			return FOUND_KNOWN | (RM_BASE + i);
		want = rec_announced(p->tag);
		if (cas_release_relaxed(p->cell, &want, rec_linked(i)))	/* CORE-M6 <-> CORE-M5 */
			return FOUND_KNOWN | (RM_BASE + i);
	} else if (p) {
		want = rec_announced(p->tag);
		cas_relaxed(p->cell, &want, rec_empty(p->tag));
	}
	rm_take_back(t, i, n);
	return 0;
}

/* Start the mode for var vi if its word is still w and an rm is free.  Progress: wait-free. */
__cold void rm_begin(struct thread *t, struct var *v, u32 vi, struct pair w)
{
	struct pawl_engine *e = t->e;
	u32 k, i, j = word_joined(w.val) + 1;
	struct pair new;
	struct rm *rm;
	u64 st, epoch;

	for (k = 0; k < RM_PROBES; k++) {
		i = (vi + k) % RM_MAX;
		rm = &e->rms[i];
		st = load_relaxed(&rm->state);
		epoch = (st >> 2) + 1;
		/* CORE-M12 <-> CORE-M11: the last user's reads of the block come before. */
		if ((st & 3) != RM_FREE || !cas_acquire_relaxed(&rm->state, &st,
								rm_state(epoch, RM_OPEN)))
			continue;
		store_relaxed(&rm->block, word_cur(w.val));
		new.tag = rm_tag(epoch, i);
		new.val = word_make(word_cur(w.val), word_prev(w.val), j, 0);
		if (!pair_cas_acq_rel(&v->word, &w, new))	/* CORE-L3 <-> CORE-L4 */
			/* CORE-M11 <-> CORE-M12: no other thread knows this epoch. */
			store_release(&rm->state, rm_state(epoch, RM_FREE));
		return;
	}
}

/* If the push in d is LINKING: revoke its fast read of var vi, or help it to its end. */
static void rm_revoke(struct thread *t, struct desc *d, u32 slot, u32 vi)
{
	u64 st = load_acquire(&d->status), tag, *cell, c;	/* CORE-M8 <-> CORE-M7 */

	if ((st & 3) != PHASE_LINKING)
		return;
	cell = desc_cell(t->e, d, st, vi);
	if (!cell)
		return;
	tag = tag_make(slot, st >> 2, 0);
	c = load_acquire(cell);		/* CORE-M5 <-> CORE-M6 */
	if (c == rec_announced(tag) && cas_relaxed(cell, &c, rec_empty(tag)))
		return;
	if (rec_is_linked(c))
		link_help(t, tag);
}

/*
 * End read-mostly mode of var vi, whose word is w.  Returns the tag of a word that may be
 * changed now, or 0: read the word again.  Progress: lock-free.
 */
__cold u64 rm_end(struct thread *t, struct var *v, u32 vi, struct pair w)
{
	struct pawl_engine *e = t->e;
	u32 i = rm_tag_index(w.tag), s, n, bi;
	u64 st = rm_state(rm_tag_epoch(w.tag), RM_OPEN);
	struct pair new = { w.tag | RM_TAG_CLOSED, w.val };

	/* CORE-L3 <-> CORE-L4 */
	if (!(w.tag & RM_TAG_CLOSED) && !pair_cas_acq_rel(&v->word, &w, new))
		return 0;
	smp_mb();	/* CORE-M2 <-> CORE-M1 */
	n = slots_used(e);
	if (BUSTED(RM_NO_REVOKE))
		n = 0;
	for (s = 0; s < n; s++)
		rm_revoke(t, &thread_of(e, s)->d, s, vi);
	/* CORE-M11 <-> CORE-M12 */
	cas_release_relaxed(&e->rms[i].state, &st, st - RM_OPEN + RM_CLOSING);
	bi = rm_drain(e, i);
	if (bi)
		hold_put(t, bi);
	return new.tag;
}
