// SPDX-License-Identifier: Apache-2.0
/*
 * Vars: creation, and queries.  Deletion is an op (push.c, var_end() in retire.c).
 *
 * Ordering: CORE-V2 (generation, acquire) <-> CORE-V3 (generation of a new var), and
 * CORE-V2 (version, acquire) <-> CORE-V1 (version: here and in retire.c).
 * CORE-V4 (vars of a thread, release) <-> CORE-V5 (park.c, acquire): the var can be parked.
 * CORE-V6 (state of version 0, release) <-> CORE-A3 (wait.c, and here): the block is another
 * var's now.  CORE-V7 (word, release) <-> CORE-L4: the word is another var's now.
 *
 * Progress: creation and queries are lock-free (pools, and the retries of var_error_get()).
 *
 * Lifetime: a var's memory is a var for the life of the engine; the generation in the handle
 * shows whether it is the same var.
 */
#include <core/error.h>

int pawl_var_create(struct pawl_engine *e, pawl_var_t *out)
{
	struct thread *t = thread_get(e);
	struct block *b;
	struct var *v;
	u32 vi, bi, gen;

	if (unlikely(!t))
		return thread_last.code;
	if (!out)
		return err(-EINVAL, "var_create: out is NULL");
	if (!pool_get(e->pool[POOL_VAR], &t->cache[POOL_VAR], &vi))
		return err(-ENOMEM, "var_create: %u vars exist (config.max_vars)", e->cfg.max_vars);
	b = pool_get(e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], &bi);
	/* A var without a block refers to block 0, which is mapped only if others exist. */
	if (unlikely(!b && !pool_carved(e->pool[POOL_BLOCK]))) {
		pool_put(e->pool[POOL_VAR], &t->cache[POOL_VAR], vi);
		return err(-ENOMEM, "var_create: no memory for blocks");
	}
	if (likely(b)) {
		/*
		 * Version 0 is complete and has no holds.  CORE-V6 <-> CORE-A3: a thread may
		 * read this block by the old word of another var, and must then find that the
		 * word has changed.
		 */
		store_release(&b->state, BLOCK_DONE);
		store_relaxed(&b->err, 0);
		store_relaxed(&b->var, vi);
	}
	v = var_of(e, vi);
	store_release(&var_side_of(e, vi)->version, 0);	/* CORE-V1 <-> CORE-V2 */
	/* CORE-V7 <-> CORE-L4: a thread that still reads the var that was here is refused. */
	store_release(&v->word.val, likely(b) ? word_make(bi, bi, 0, 0) : WORD_PARKED);
	/* With the value of the old word it does no harm, since that is DELETED. */
	store_relaxed(&v->word.tag, tag_make(t->slot, ++t->seq, TAG_SIMPLE | TAG_KNOWN));
	gen = gen_alive(e, load_relaxed(&v->gen));
	store_release(&v->gen, gen);	/* CORE-V3 <-> CORE-V2 */
	store_release(&t->vars, t->vars + 1);	/* CORE-V4 <-> CORE-V5 */
	BUG_ON1(!(gen & 1));
	out->h = (u64)gen << 32 | vi;
	return 0;
}
PAWL_EXPORT(pawl_var_create);

int pawl_var_version(struct pawl_engine *e, pawl_var_t v, uint64_t *out)
{
	struct thread *t = thread_get(e);
	u32 vi = var_index(v);

	if (unlikely(!t))
		return thread_last.code;
	if (!out)
		return err(-EINVAL, "var_version: out is NULL");
	if (var_check(t, v))
		return err(-ESTALE, "var_version: no var, or it was deleted");
	*out = load_acquire(&var_side_of(e, vi)->version);	/* CORE-V2 <-> CORE-V1 */
	/* With the version of a later var, that var's generation is visible, too. */
	if (load_relaxed(&var_of(e, vi)->gen) != (u32)(v.h >> 32))
		return err(-ESTALE, "var_version: the var was deleted meanwhile");
	return 0;
}
PAWL_EXPORT(pawl_var_version);

/*
 * Return the error of the newest complete version, with a reference, or 0; also 0 while two or
 * more writes wait behind that version.  It takes a reference only if the object has one, and
 * then checks that the block still belongs to this var and names the error.
 */
static u32 var_error_get(struct thread *t, u32 vi, u32 gen)
{
	struct pawl_engine *e = t->e;
	struct var *v = var_of(e, vi);
	struct pair w;
	struct block *b;
	struct error *x;
	u32 i, idx, refs;

	for (;;) {
		w = word_snapshot(v);
		if (load_relaxed(&v->gen) != gen)
			return 0;
		/* The newest version, or the one before it while that one is not done. */
		for (i = 0, idx = 0; i < 2; i++) {
			u64 s;

			b = block_of(e, i ? word_prev(w.val) : word_cur(w.val));
			s = load_acquire(&b->state);	/* CORE-A3 <-> CORE-R1, CORE-V6 */
			/*
			 * Relaxed: it is not vi any more only if the block was freed, because
			 * the write behind this version was granted or the var was deleted or
			 * parked; then 0 is right, until that write is complete.
			 */
			if ((s & BLOCK_DONE) && load_relaxed(&b->var) == vi) {
				idx = s & BLOCK_ERR ? load_relaxed(&b->err) : 0;
				break;
			}
		}
		if (!idx || idx > pool_carved(e->pool[POOL_ERROR])) {
			if (load_relaxed(&v->word.tag) == w.tag)
				return 0;
			continue;
		}
		x = error_of(e, idx);
		refs = load_relaxed(&x->refs);
		/*
		 * CORE-E7 <-> CORE-E6: the checks below come after it.  If the memory belongs
		 * to another error by now, they find that the var has changed.
		 */
		while (refs && !cas_acq_rel_relaxed(&x->refs, &refs, refs + 1))
			;
		if (!refs)
			continue;	/* it was freed at this moment */
		if (load_relaxed(&v->word.tag) == w.tag && load_relaxed(&b->var) == vi &&
		    load_relaxed(&b->err) == idx)
			return idx;
		error_put(t, idx);
	}
}

/*
 * The common part of calls about a var's error.  On success (0) *tp is the calling thread and
 * *error the error, with a reference, or 0.
 */
static int var_error_begin(struct pawl_engine *e, pawl_var_t v, const char *who,
			   struct thread **tp, u32 *error)
{
	struct thread *t = *tp = thread_get(e);
	u32 vi = var_index(v);

	*error = 0;
	if (unlikely(!t))
		return thread_last.code;
	if (var_check(t, v))
		return err(-ESTALE, "%s: no var, or it was deleted", who);
	if (load_relaxed(&e->special) & SPECIAL_POISONED)
		*error = var_error_get(t, vi, (u32)(v.h >> 32));
	return 0;
}

int pawl_var_error(struct pawl_engine *e, pawl_var_t v, struct pawl_error *out)
{
	struct thread *t;
	u32 error;
	int rc;

	error_none(out);
	rc = var_error_begin(e, v, "var_error", &t, &error);
	if (!error)
		return rc;
	if (error_alive(e, error)) {
		error_fill(e, error, out);
		rc = error_of(e, error)->code;
	}
	error_put(t, error);
	return rc;
}
PAWL_EXPORT(pawl_var_error);

int pawl_var_clear(struct pawl_engine *e, pawl_var_t v)
{
	struct thread *t;
	u32 error;
	int rc = var_error_begin(e, v, "var_clear", &t, &error);

	if (error) {
		error_drop(t, error);
		error_put(t, error);
	}
	return rc;
}
PAWL_EXPORT(pawl_var_clear);

int pawl_var_take(struct pawl_engine *e, pawl_var_t v, struct pawl_error *out)
{
	struct thread *t;
	u32 error;
	int rc;

	error_none(out);
	rc = var_error_begin(e, v, "var_take", &t, &error);
	if (error) {
		rc = error_take(t, error, out);
		error_put(t, error);
	}
	return rc;
}
PAWL_EXPORT(pawl_var_take);
