// SPDX-License-Identifier: Apache-2.0
/*
 * Linking: a push takes its position in the queues of all its vars at one point in time.
 *
 * Purpose: if concurrent pushes X and Y share vars, X is before Y in all of them, or behind Y
 * in all of them.
 *
 * Structures: the pushing thread's descriptor (op, phase, records) and the var words.
 *   1. The owner publishes status = {number, LINKING}.
 *   2. In the order of var indexes, a CAS overwrites each word and gives it the push's tag.
 *      A thread that finds a word with the tag of a push that is still LINKING first helps
 *      that push to its end, so no push gets behind one that is only linked in part.  The
 *      sorted order bounds the depth of helping: a push that is helped on var v needs only
 *      vars above v.
 *   3. The status becomes COMMITTED, which fixes the push's position in all queues.  If the
 *      owner made every link itself, it needs no records, and sets FINISHED at once.
 *   4. Until the owner has attached (attach.c) and set FINISHED, a thread that overwrites one
 *      of its tags first stores the word's value in the owner's record.
 * For a push with one var, the CAS of the word is all of this.
 *
 * Ordering: each var word is read acquire and changed acq_rel.
 *   CORE-L3 (word CAS)           <-> CORE-L4 (word read): block contents, and the push that
 *                                the tag names: threads find a push only through a word
 *   CORE-L9 (fields of a later push, store_helped()) <-> CORE-L10 (helpers, load_helped())
 *   CORE-L5 (record)             <-> CORE-L6 (owner's read, attach.c): by the word
 *   CORE-L7 (commit CAS)         <-> CORE-L2 (status read by helpers)
 *   CORE-L8 (finish, release)    <-> CORE-L2
 *   CORE-K1 (KNOWN, with the word) <-> CORE-K2: the data of the completed write
 *
 * Why a dep is linked at most once: a linker reads the word, whose tag is not that of the push,
 * and then the status, a second time (the second look).  If the push had been linked here and
 * overwritten, the thread that overwrote it would have seen it COMMITTED before, and so does
 * the second look.  If the status is LINKING, the push was not linked here when the word was
 * read, and the CAS succeeds only on that very word, since tags never repeat.
 *
 * Progress: lock-free.  A failed CAS means that another push was linked, and helping completes
 * another push.  No thread waits for one that is stopped: other threads finish its push, or
 * record for it.
 *
 * Lifetime: helpers read descriptors, ops and deps that may already belong to the next push, so
 * they validate every value by the status before they use it.  A value is not too old, because
 * the word was read before (CORE-L4).  If it is too new, the status that is read after it shows
 * that the push is FINISHED, because each field is stored release and loaded acquire (CORE-L9,
 * CORE-L10).  The load of the status itself needs no order.
 */
#include <core/link.h>
#include <core/readmostly.h>

/*
 * Read a word whose two halves belong together, which equal tags before and after the value
 * prove.  Progress: lock-free (another tag means that another push was linked).
 */
struct pair word_snapshot(struct var *v)
{
	struct pair w;
	u64 tag;

	/* CORE-L4 <-> CORE-L3: also, the value is no older than the tag (attach_found()). */
	w.tag = load_acquire(&v->word.tag);
	for (;;) {
		w.val = load_acquire(&v->word.val);	/* CORE-L4 <-> CORE-L3, CORE-V7 */
		tag = load_acquire(&v->word.tag);	/* CORE-L4 <-> CORE-L3 */
		if (likely(tag == w.tag))
			break;
		w.tag = tag;
	}
#ifdef __SANITIZE_THREAD__
	__tsan_acquire(&v->word);
#endif
	return w;
}

enum phase tag_phase(struct pawl_engine *e, u64 tag)
{
	u64 st;

	if (tag & TAG_SIMPLE)
		return PHASE_FINISHED;
	/*
	 * CORE-L2 <-> CORE-L7, CORE-L8: our own links, which come after this, are behind those
	 * of the push on every var.  Its fields became visible with the word.
	 */
	st = load_acquire(&thread_of(e, tag_slot(tag))->d.status);
	return st >> 2 == tag_seq(tag) ? (enum phase)(st & 3) : PHASE_FINISHED;
}

/*
 * Return where the push with status st keeps its record of var vi, or NULL if that push is
 * FINISHED or has no such access.  op, n and ext must be of one push, otherwise the cell would
 * be outside of its chunk.  They are if the push still has that status afterwards, because its
 * op cannot complete before it is FINISHED (push_deps(); the link list of a batch is freed
 * after the batch is FINISHED).  Progress: wait-free, bounded by the accesses.
 */
u64 *desc_cell(struct pawl_engine *e, const struct desc *d, u64 st, u32 vi)
{
	u32 opi = load_helped(&d->op), n, ext, j;
	struct dep *deps;
	struct op *op;

	if (load_relaxed(&d->status) != st)
		return NULL;
	op = op_of(e, opi);
	n = load_helped(&op->ndeps);
	ext = load_helped(&op->ext);
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
 * The word of var vi has the tag of a committed push and is about to be overwritten, but the
 * owner may still need its value.  All threads that get here for one (push, var) have the same
 * value, so the first record suffices.  A wrong cell does no harm: it does not have the tag.
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
	/* CORE-L5 <-> CORE-L6 by CORE-L3: the change of the word, after this, publishes it. */
	want = rec_empty(tag);
	while (!cas_relaxed(rec, &want, rec_value(val)))
		/* The owner may be announcing a read that a helper linked for it. */
		if (want != rec_empty(tag) && want != rec_announced(tag))
			return;
	count(&t->records);
}

/*
 * Link a dep of the push `tag`, whose record of it is *rec.  Returns false if the push is not
 * LINKING any more.  *found is the value that our CAS replaced (with FOUND_KNOWN), or 0 if
 * another thread linked the dep or the var is deleted.
 */
static bool link_dep(struct thread *t, const struct desc *d, struct dep *dep, u64 *rec, u64 tag,
		     bool batch, bool del, u64 *found)
{
	struct pawl_engine *e = t->e;
	u64 st = status_make(tag_seq(tag), PHASE_LINKING);
	u32 vi = load_helped(&dep->var);
	u32 gen = load_helped(&dep->gen);
	u32 nb = load_helped(&dep->block);
	u32 add = batch ? load_helped(&dep->link) : !(vi & DEP_WRITE);
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
		bool linking = load_relaxed(&d->status) == st;

		if (BUSTED(NO_SECOND_LOOK))
			linking = true;
		if (!linking)
			return false;
		/*
		 * The var was deleted during the push.  The word of a deleted var does not
		 * change before its generation has, so all helpers agree to leave this dep out.
		 * Reading the word also makes v->gen visible; see pawl_var_create().
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
				/* Try once: a helper may have revoked it, and would again. */
				fast = false;
				continue;
			}
			/* Link it like any other dep; the owner must not announce it again. */
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
		new.tag = tag | (write ? 0 : tag_known(e, &w));
		new.val = write ? word_write(w.val, nb, add, del) : word_join(w.val, add);
		if (pair_cas_acq_rel(&v->word, &w, new)) {	/* CORE-L3 <-> CORE-L4 */
			BUG_ON1(write && word_cur(w.val) == nb);
			*found = found_make(w.val, new.tag);
			return true;
		}
	}
}

/* Help the push `tag` to its end.  Progress: lock-free, as for the push's owner. */
__cold void link_help(struct thread *t, u64 tag)
{
	struct pawl_engine *e = t->e;
	struct desc *d = &thread_of(e, tag_slot(tag))->d;
	u64 st = status_make(tag_seq(tag), PHASE_LINKING), found;
	u32 opi = load_helped(&d->op), n, ext, flags, j;
	struct dep *deps;
	struct op *op;

	if (load_relaxed(&d->status) != st)
		return;
	op = op_of(e, opi);
	n = load_helped(&op->ndeps);
	ext = load_helped(&op->ext);
	flags = load_helped(&op->flags);
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
 * Slow path of link_simple(): the word has the tag of an unfinished push or of read-mostly
 * mode, or the op deletes the var.  Progress: lock-free.
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
		bool gone = (w.val & WORD_DELETED) || load_relaxed(&v->gen) != dep->gen;

		if (BUSTED(NO_GEN))
			gone = false;
		if (unlikely(gone))
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
		new.tag = tag | (write ? 0 : tag_known(e, &w));
		new.val = write ? word_write(w.val, dep->block, 0, del) : word_join(w.val, 1);
		if (pair_cas_acq_rel(&v->word, &w, new)) {	/* CORE-L3 <-> CORE-L4 */
			*found = found_make(w.val, new.tag);
			return 0;
		}
	}
}

/*
 * Link the owner's deps from j on, the first of which link_quick() could not link.  A read in
 * read-mostly mode is fast, too.  Returns the first dep that needs the slow path, or n.
 */
static __noinline u32 link_some(struct thread *t, struct dep *deps, u64 *rec, u64 tag, u32 j, u32 n,
				u64 *found)
{
	u64 st = status_make(tag_seq(tag), PHASE_LINKING);

	for (; j < n; j++) {
		struct dep *dep = &deps[j];
		u32 vi = dep->var;
		struct var *v = var_of(t->e, vi & ~DEP_WRITE);
		struct rm_push p = { tag, &rec[j], &t->d.status };

		if (link_quick(t, v, dep, tag, vi & DEP_WRITE, &found[j], &t->d.status, st))
			continue;
		found[j] = vi & DEP_WRITE ? 0 : rm_read(t, v, dep->gen, 1, &p);
		if (!found[j])
			break;
	}
	return j;
}

/*
 * Link an op (or batch) with several vars; afterwards its position in all queues is fixed.
 * found[j], for the first LINK_FOUND deps, is what link_dep() found if this thread linked the
 * dep itself, else 0.  Returns 0 if this thread linked all deps and found[] is complete: then
 * no records are needed, and the push is FINISHED.  Otherwise returns the push's tag: it is
 * COMMITTED, and the caller sets FINISHED after it has attached.  few is a constant: it is no
 * batch, and has no more than INLINE_DEPS vars.  Progress: lock-free.
 */
static __always_inline_fn u64 link_deps(struct thread *t, struct op *op, u32 opi, u64 *found,
					bool few)
{
	struct pawl_engine *e = t->e;
	u32 n = op->ndeps, batch = few ? 0 : op->flags & OP_BATCH, own, j;
	u32 most = few ? n : (u32)min_u(n, LINK_FOUND);
	u64 seq = ++t->seq, tag = tag_make(t->slot, seq, 0), st, ignored;
	bool inside = few || n <= INLINE_DEPS;
	struct dep *deps = inside ? op->deps : ext_of(e, op->ext)->deps;
	struct desc *d = &t->d;
	u64 *rec = inside ? d->rec : ext_recs(ext_of(e, op->ext), op->ext >> 30);

	for (j = 0; j < n; j++)
		store_relaxed(&rec[j], rec_empty(tag));
	store_helped(&d->op, opi);
	st = status_make(seq, PHASE_LINKING);
	/*
	 * A thread that finds the tag in a word sees this, and all before it (CORE-L3).  The
	 * release is for one that goes through the descriptors and has found no word.
	 */
	store_release(&d->status, st);	/* CORE-M7 <-> CORE-M8 */
	j = 0;
	for (; j < most && !batch; j++) {
		u32 vi = deps[j].var;

		if (unlikely(!link_quick(t, var_of(e, vi & ~DEP_WRITE), &deps[j], tag, vi & DEP_WRITE,
					 &found[j], &d->status, st))) {
			j = link_some(t, deps, rec, tag, j, most, found);
			break;
		}
	}
	/* Resume with the first dep that the fast path could not link. */
	for (own = j; j < n; j++) {
		u64 *f = j < most ? &found[j] : &ignored;

		if (!link_dep(t, d, &deps[j], &rec[j], tag, batch, false, f))
			break;	/* a helper has finished the push */
		own += !!*f;
	}
	if (likely(own == n && most == n)) {
		/* CORE-L8 <-> CORE-L2 */
		store_release(&d->status, status_make(seq, PHASE_FINISHED));
		return 0;
	}
	for (; j < most; j++)
		found[j] = 0;
	/* CORE-L7 <-> CORE-L2; if a helper did it, its links are visible now. */
	cas_acq_rel_acquire(&d->status, &st, status_make(seq, PHASE_COMMITTED));
	return tag;
}

u64 link_few(struct thread *t, struct op *op, u32 opi, u64 *found)
{
	return link_deps(t, op, opi, found, true);
}

u64 link_op(struct thread *t, struct op *op, u32 opi, u64 *found)
{
	return link_deps(t, op, opi, found, false);
}
