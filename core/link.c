// SPDX-License-Identifier: Apache-2.0
/*
 * Linking: a push takes its place in all its vars at one point in time.
 *
 * Purpose: for concurrent pushes X and Y that share vars, X is before Y in all of
 * them or behind in all of them.
 *
 * Structures: the pushing thread's descriptor (op, phase, records) and the var words.
 *   1. The owner publishes: status = {number, LINKING}.
 *   2. In the order of var indexes, each word is overwritten by a CAS that brings
 *      the push's tag.  Whoever finds a word tagged by a push that is still LINKING
 *      helps it to the end first; so nobody is ever behind a push that is not in all
 *      its places.  The sorted order bounds the depth of helping: the push that is
 *      helped on var v only needs vars above v.
 *   3. The status goes to COMMITTED: the push's place in all FIFOs is fixed.  If the owner
 *      made every link itself it knows all that it needs, and says FINISHED at once.
 *   4. Until the owner has attached (attach.c) and says FINISHED, whoever overwrites
 *      one of its tags first leaves the word's value in the owner's record.
 * A push with one var is the CAS of its word and nothing else.
 *
 * Ordering: each var word is read acquire and changed acq_rel.
 *   CORE-L3 (word CAS)           <-> CORE-L4 (word read): block contents, and the push that
 *                                the tag names: whoever looks at a push came by a word
 *   CORE-L9 (fields of a later push, op.h) <-> CORE-L10 (read by helpers)
 *   CORE-L5 (record)             <-> CORE-L6 (owner's read, attach.c): by the word
 *   CORE-L7 (commit CAS)         <-> CORE-L2 (status read by helpers)
 *   CORE-L8 (finish, release)    <-> CORE-L2
 *   CORE-K1 (KNOWN, with the word) <-> CORE-K2: the data of the write that is known to be done
 *
 * Why a dep is linked at most once: a linker reads the word (tag is not ours), then
 * looks at the status again.  If the push had been linked here and overwritten, the
 * overwriter had first seen it COMMITTED, so the second look fails.  If it is LINKING,
 * it was not linked here when the word was read, and the CAS succeeds only on that
 * very word, since tags never repeat.
 *
 * Progress: lock-free.  A failed CAS means that another push took a place; a help
 * completes another push.  Nothing waits for a stopped thread: what it left
 * unfinished is finished for it, or recorded for it.
 *
 * Lifetime: helpers read descriptors, ops and deps that may belong to the next push
 * already; every value read is validated by the status before it is used.  Not too old:
 * the word was read before (CORE-L4).  Not too new: each field is read acquire and written
 * release (CORE-L10), so the status that is read after it shows that the push is over.  The
 * look at the status itself needs no order.
 */
#include <core/link.h>
#include <core/readmostly.h>

/* A word whose two halves belong together: equal tags around the value prove it. */
struct pair word_snapshot(struct var *v)
{
	struct pair w;
	u64 tag;

	/* CORE-L4 <-> CORE-L3: also, the value is no older than the tag (attach_found()). */
	w.tag = load_acquire(&v->word.tag);
	for (;;) {
		w.val = load_acquire(&v->word.val);
		tag = load_acquire(&v->word.tag);
		if (likely(tag == w.tag))
			break;
		w.tag = tag;
	}
#ifdef __SANITIZE_THREAD__
	__tsan_acquire(&v->word);
#endif
	return w;
}

static enum phase tag_phase(struct pawl_engine *e, u64 tag)
{
	u64 st;

	if (tag & TAG_SIMPLE)
		return PHASE_FINISHED;
	/*
	 * CORE-L2 <-> CORE-L7, CORE-L8: our own places, which come after this, are behind
	 * those of the push on every var.  What its fields say came with the word.
	 */
	st = load_acquire(&thread_of(e, tag_slot(tag))->d.status);
	return st >> 2 == tag_seq(tag) ? (enum phase)(st & 3) : PHASE_FINISHED;
}

/*
 * Where the push with status st keeps its record of var vi.  NULL: that push is over, or has no
 * such access.  op, n and ext must be of one push, or the cell would be outside of its chunk: they
 * are, if the push still has that status afterwards, because its op cannot end before it is
 * FINISHED (push_several(); the link list of a batch goes when the batch is FINISHED).
 */
u64 *desc_cell(struct pawl_engine *e, const struct desc *d, u64 st, u32 vi)
{
	u32 opi = load_acquire(&d->op), n, ext, j;	/* CORE-L10 <-> CORE-L9 */
	struct dep *deps;
	struct op *op;

	if (load_relaxed(&d->status) != st)
		return NULL;
	op = op_of(e, opi);
	n = load_acquire(&op->ndeps);	/* CORE-L10 <-> CORE-L9 */
	ext = load_acquire(&op->ext);	/* CORE-L10 <-> CORE-L9 */
	if (load_relaxed(&d->status) != st)
		return NULL;
	BUG_ON1(n > INLINE_DEPS && (n > ext_cap(ext >> 30) || !(ext & 0x3fffffffu)));
	deps = op_deps(e, op, n, ext);
	for (j = 0; j < n; j++)
		if ((load_relaxed(&deps[j].var) & ~DEP_WRITE) == vi)
			return desc_rec(e, (struct desc *)(uintptr_t)d, n, ext, j);
	return NULL;
}

/*
 * The word of var vi, tagged by a committed push, is about to be overwritten: its
 * owner may still need the value.  All who get here for one (push, var) have the same
 * value, so the first one suffices.  A wrong cell does no harm: it does not have the tag.
 */
static __cold void record(struct thread *t, u64 tag, u32 vi, u64 val)
{
	struct pawl_engine *e = t->e;
	u64 want, *rec;

	tag &= ~TAG_KNOWN;
	rec = desc_cell(e, &thread_of(e, tag_slot(tag))->d,
			status_make(tag_seq(tag), PHASE_COMMITTED), vi);
	if (!rec)
		return;
	/* CORE-L5 <-> CORE-L6: the word that is changed after this carries it (CORE-L3). */
	want = rec_empty(tag);
	while (!cas_relaxed(rec, &want, rec_value(val)))
		/* The owner may be about to announce what was linked for it. */
		if (want != rec_empty(tag) && want != rec_announced(tag))
			return;
	count(&t->records);
}

/*
 * Link dep j of the push `tag`, which has the record *rec.  False: the push is over linking.
 * *found: the value that our CAS replaced (and FOUND_KNOWN), else 0 (a helper linked it, or
 * the var is deleted).
 */
static bool link_dep(struct thread *t, const struct desc *d, struct dep *dep, u64 *rec, u64 tag,
		     bool batch, bool del, u64 *found)
{
	struct pawl_engine *e = t->e;
	u64 st = status_make(tag_seq(tag), PHASE_LINKING);
	u32 vi = load_acquire(&dep->var);	/* CORE-L10 <-> CORE-L9 */
	u32 gen = load_acquire(&dep->gen);	/* CORE-L10 <-> CORE-L9 */
	u32 nb = load_acquire(&dep->block);	/* CORE-L10 <-> CORE-L9 */
	/* CORE-L10 <-> CORE-L9 */
	u32 add = batch ? load_acquire(&dep->link) : !(vi & DEP_WRITE);
	bool write = vi & DEP_WRITE, fast = !write && d == &t->d, tried = !fast;
	u64 ended = 0;
	struct var *v;

	*found = 0;
	vi &= ~DEP_WRITE;
	if (load_relaxed(&d->status) != st)
		return false;
	v = var_of(e, vi);
	for (;;) {
		struct pair w = word_snapshot(v), new;

		if (tag_same(w.tag, tag))
			return true;
		/* the second look: after the word, CORE-L4 */
		if (load_relaxed(&d->status) != st && !BUSTED(NO_SECOND_LOOK))
			return false;
		/*
		 * Deleted while we pushed: the word of a deleted var never changes until
		 * its generation has, so all helpers agree to leave this dep out.  Whose word
		 * it is, is in sight with the word (pawl_var_create()).
		 */
		if ((w.val & WORD_DELETED) || load_relaxed(&v->gen) != gen)
			return true;
		if (unlikely(tag_is_rm(w.tag)) && w.tag != ended) {
			u64 c = load_acquire(rec);	/* CORE-M5 <-> CORE-M6 */

			if (!write && rec_is_linked(c))
				return true;
			if (fast && !(w.tag & RM_TAG_CLOSED)) {
				struct rm_push p = { tag, rec, &d->status };

				*found = rm_read(t, v, gen, add, &p);
				if (*found)
					return true;
				/* Once: a helper may have revoked it, and would again. */
				fast = false;
				continue;
			}
			/* A helper links it as any other: then the owner shall not. */
			if (c == rec_announced(tag))
				cas_relaxed(rec, &c, rec_empty(tag));
			else
				ended = rm_end(t, v, vi, w);
			continue;
		}
		switch (tag_is_rm(w.tag) ? PHASE_FINISHED : tag_phase(e, w.tag)) {
		case PHASE_LINKING:
			if (BUSTED(NO_HELP))
				break;
			if (BUSTED(WAIT_NOT_HELP))
				cpu_relax();
			else
				link_help(t, w.tag & ~TAG_KNOWN);
			continue;
		case PHASE_COMMITTED:
			if (!BUSTED(NO_RECORD))
				record(t, w.tag, vi, w.val);
			break;
		case PHASE_FINISHED:
			if (!write && !tried && rm_wanted(t, &w)) {
				rm_begin(t, v, vi, w);
				tried = true;
				continue;
			}
			break;
		}
		new.tag = tag | (write ? 0 : known(e, &w));
		new.val = write ? word_write(w.val, nb, add, del) : word_join(w.val, add);
		if (pair_cas_acq_rel(&v->word, &w, new)) {	/* CORE-L3 <-> CORE-L4 */
			BUG_ON1(write && word_cur(w.val) == nb);
			*found = found_make(w.val, new.tag);
			return true;
		}
	}
}

/* Finish the linking of somebody's push. */
__cold void link_help(struct thread *t, u64 tag)
{
	struct pawl_engine *e = t->e;
	struct desc *d = &thread_of(e, tag_slot(tag))->d;
	u64 st = status_make(tag_seq(tag), PHASE_LINKING), found;
	u32 opi = load_acquire(&d->op), n, ext, flags, j;	/* CORE-L10 <-> CORE-L9 */
	struct dep *deps;
	struct op *op;

	if (load_relaxed(&d->status) != st)
		return;
	op = op_of(e, opi);
	n = load_acquire(&op->ndeps);		/* CORE-L10 <-> CORE-L9 */
	ext = load_acquire(&op->ext);		/* CORE-L10 <-> CORE-L9 */
	flags = load_acquire(&op->flags);	/* CORE-L10 <-> CORE-L9 */
	if (load_relaxed(&d->status) != st)
		return;
	BUG_ON1(n > INLINE_DEPS && (n > ext_cap(ext >> 30) || !(ext & 0x3fffffffu)));
	deps = op_deps(e, op, n, ext);
	for (j = 0; j < n; j++)
		if (!link_dep(t, d, &deps[j], desc_rec(e, d, n, ext, j), tag, flags & OP_BATCH,
			      flags & OP_DELETE, &found))
			return;
	if (cas_release_relaxed(&d->status, &st,	/* CORE-L7 <-> CORE-L2 */
				status_make(tag_seq(tag), PHASE_COMMITTED)))
		count(&t->helps);
}

/*
 * link_simple() at a word that is in somebody's hands, or with a deletion.
 */
int link_simple_slow(struct thread *t, struct op *op, u64 tag, u64 *found)
{
	struct pawl_engine *e = t->e;
	struct dep *dep = &op->deps[0];
	u32 vi = dep->var & ~DEP_WRITE;
	bool write = dep->var & DEP_WRITE, del = op->flags & OP_DELETE;
	struct var *v = var_of(e, vi);
	bool tried = false;
	u64 ended = 0;

	for (;;) {
		struct pair w = word_snapshot(v), new;

		if (unlikely((w.val & WORD_DELETED) || load_relaxed(&v->gen) != dep->gen) &&
		    !BUSTED(NO_GEN))
			return -ESTALE;
		if (tag_is_rm(w.tag) && w.tag != ended) {
			*found = write || (w.tag & RM_TAG_CLOSED) ? 0 :
				 rm_read(t, v, dep->gen, 1, NULL);
			if (*found)
				return 0;
			if (write || (w.tag & RM_TAG_CLOSED))
				ended = rm_end(t, v, vi, w);
			continue;
		}
		switch (tag_is_rm(w.tag) ? PHASE_FINISHED : tag_phase(e, w.tag)) {
		case PHASE_LINKING:
			link_help(t, w.tag & ~TAG_KNOWN);
			continue;
		case PHASE_COMMITTED:
			record(t, w.tag, vi, w.val);
			break;
		case PHASE_FINISHED:
			if (!write && !tried && rm_wanted(t, &w)) {
				rm_begin(t, v, vi, w);
				tried = true;
				continue;
			}
			break;
		}
		new.tag = tag | (write ? 0 : known(e, &w));
		new.val = write ? word_write(w.val, dep->block, 0, del) : word_join(w.val, 1);
		if (pair_cas_acq_rel(&v->word, &w, new)) {	/* CORE-L3 <-> CORE-L4 */
			*found = found_make(w.val, new.tag);
			return 0;
		}
	}
}

/*
 * The owner's deps from j on, one of which link_quick() could not link: a read in read-mostly mode is
 * as usual, too.  Returns the first that is not, or n.
 */
static __noinline u32 link_some(struct thread *t, struct op *op, u64 tag, u32 j, u64 *found)
{
	u64 st = status_make(tag_seq(tag), PHASE_LINKING);
	u32 n = op->ndeps;

	for (; j < n; j++) {
		struct dep *dep = &op->deps[j];
		u32 vi = dep->var;
		struct var *v = var_of(t->e, vi & ~DEP_WRITE);
		struct rm_push p = { tag, &t->d.rec[j], &t->d.status };

		if (link_quick(t, v, dep, tag, vi & DEP_WRITE, &found[j], &t->d.status, st))
			continue;
		found[j] = vi & DEP_WRITE ? 0 : rm_read(t, v, dep->gen, 1, &p);
		if (!found[j])
			break;
	}
	return j;
}

/*
 * An op (or batch) with several vars.  found[j]: for the first INLINE_DEPS deps that this
 * thread linked itself, else 0.  After it the place is fixed.  0: this thread linked all of
 * them and found[] says all, so nobody needs to record for it: the push is FINISHED.  Else
 * the push's tag; it is COMMITTED, and the caller says FINISHED when it has attached.
 */
u64 link_op(struct thread *t, struct op *op, u32 opi, u64 *found)
{
	struct pawl_engine *e = t->e;
	u32 n = op->ndeps, special = op->flags & (OP_BATCH | OP_DELETE), own, j;
	u64 seq = ++t->seq, tag = tag_make(t->slot, seq, 0), st, ignored;
	struct dep *deps = op_deps(e, op, n, op->ext);
	struct desc *d = &t->d;
	u64 *rec = n <= INLINE_DEPS ? d->rec : ext_recs(ext_of(e, op->ext), op->ext >> 30);

	for (j = 0; j < n; j++)
		store_relaxed(&rec[j], rec_empty(tag));
	store_helped(&d->op, opi);
	st = status_make(seq, PHASE_LINKING);
	/*
	 * Whoever finds the tag in a word sees this, and all before it (CORE-L3); who goes through
	 * the descriptors finds no word.
	 */
	store_release(&d->status, st);	/* CORE-M7 <-> CORE-M8 */
	j = 0;
	if (likely(n <= INLINE_DEPS && !special)) {
		for (; j < n; j++) {
			u32 vi = deps[j].var;

			if (unlikely(!link_quick(t, var_of(e, vi & ~DEP_WRITE), &deps[j], tag,
						 vi & DEP_WRITE, &found[j], &d->status, st))) {
				j = link_some(t, op, tag, j, found);
				break;
			}
		}
	}
	/* From the first that was not as usual. */
	for (own = j; j < n; j++) {
		u64 *f = j < INLINE_DEPS ? &found[j] : &ignored;

		if (!link_dep(t, d, &deps[j], &rec[j], tag, special & OP_BATCH, special & OP_DELETE, f))
			break;	/* helped to the end */
		own += !!*f;
	}
	if (likely(own == n && n <= INLINE_DEPS)) {
		store_release(&d->status, status_make(seq, PHASE_FINISHED));	/* CORE-L8 <-> CORE-L2 */
		return 0;
	}
	for (; j < n && j < INLINE_DEPS; j++)
		found[j] = 0;
	/* CORE-L7 <-> CORE-L2; if a helper did it, its places are in sight now. */
	cas_acq_rel_acquire(&d->status, &st, status_make(seq, PHASE_COMMITTED));
	return tag;
}
