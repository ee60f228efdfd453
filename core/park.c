// SPDX-License-Identifier: Apache-2.0
/*
 * Parking: a var that no op uses gives up its block, so that an engine can have more vars than
 * blocks.
 *
 * The word of a var names two blocks, with 21 bits each, so blocks are scarce; vars are not.
 * When no block is free for a write, block_reclaim() visits the vars in turn.  It parks each
 * var whose newest version is complete and has no error and no reader: a compare-and-swap
 * stores block 0 in the var's word, and the block is freed.
 *
 * The version of a parked var is struct var.home, a block that only this var uses.  It is DONE,
 * so that a reader is granted at once, and it counts the readers that complete, as any block
 * does.  The next write gives the var a block again.  When the readers before that write are
 * complete, the home is reset instead of freed (version_end()), so it is DONE with a count of 0
 * when the var is parked again.
 *
 * To other threads parking looks like a completed write with one var: it stores a word with a
 * new tag, and only if the push that the old tag names is FINISHED.  If the compare-and-swap
 * succeeds, the word has not changed since it was read.  So its number of readers was exact
 * when the state of the block was read, and the check is that of attach_block(): all accesses
 * of the version are complete.
 *
 * If a call has parked none, the next one need not visit the vars before an op completes or a
 * var is created, since nothing else makes a var one that can be parked.
 *
 * Ordering: CORE-A3 (state) <-> CORE-R1, CORE-R2: what the ops of the version did is visible
 * here, and by the change of the word, CORE-L3 <-> CORE-L4, to the next op.
 * CORE-V5 (vars created, acquire) <-> CORE-V4: the vars that are visited.
 *
 * Progress: lock-free; a call visits each var at most once.
 */
#include <core/link.h>
#include <core/wait.h>

#define PARK_STEP	256u	/* distance between the first vars of concurrent calls */
#define PARK_ENOUGH	64u	/* a call frees at most so many blocks */

/*
 * Park a var if nothing uses it.  Reading the generation before and after the word excludes a
 * var that is being created: the old word of this index is DELETED, and reading the new word
 * makes the new generation visible, see pawl_var_create().
 */
static bool var_park(struct thread *t, u32 vi)
{
	struct pawl_engine *e = t->e;
	struct var *v = var_of(e, vi);
	u32 gen = load_relaxed(&v->gen), bi, joined;
	struct pair w, new;
	u64 s;

	if (!(gen & 1))
		return false;
	w = word_snapshot(v);
	bi = word_cur(w.val);
	if (!bi || (w.val & WORD_DELETED) || load_relaxed(&v->gen) != gen || tag_is_rm(w.tag) ||
	    tag_phase(e, w.tag) != PHASE_FINISHED)
		return false;
	joined = w.val & WORD_LASTW ? 0 : word_joined(w.val);
	s = load_acquire(&block_of(e, bi)->state);	/* CORE-A3 <-> CORE-R1, CORE-R2 */
	if (BUSTED(PARK_EARLY))
		joined = -block_count(s);
	if ((s & (BLOCK_DONE | BLOCK_ERR)) != BLOCK_DONE || ((block_count(s) + joined) & JOIN_MASK))
		return false;
	new.tag = tag_make(t->slot, ++t->seq, TAG_SIMPLE | TAG_KNOWN);
	new.val = WORD_PARKED;
	if (!pair_cas_acq_rel(&v->word, &w, new))	/* CORE-L3 <-> CORE-L4 */
		return false;
	block_free(t, bi);
	return true;
}

/* A number, not 0, that changes when an op completes or a var is created. */
static u64 park_changes(struct pawl_engine *e)
{
	u32 s, n = slots_used(e);
	u64 sum = ops_completed(e) + 1;

	for (s = 0; s < n; s++)
		sum += load_acquire(&thread_of(e, s)->vars);	/* CORE-V5 <-> CORE-V4 */
	return sum;
}

/* Park some vars.  Progress: lock-free. */
static void vars_park(struct thread *t)
{
	struct pawl_engine *e = t->e;
	/* Before the visits: what changes meanwhile may be missed by them. */
	u64 changes = park_changes(e);
	u32 vars = pool_carved(e->pool[POOL_VAR]), freed = 0, n;
	u32 at;

	if (changes == load_relaxed(&e->park_vain))
		return;
	/* Concurrent calls begin at different vars.  vars is not 0: the caller has one. */
	at = fetch_add_relaxed(&e->park_next, PARK_STEP) % vars;
	for (n = 0; n < vars && freed < PARK_ENOUGH; n++) {
		freed += var_park(t, at + 1);
		at = at + 1 < vars ? at + 1 : 0;
	}
	/* The next call begins here; a lost update does no harm. */
	store_relaxed(&e->park_next, at);
	if (!freed)
		store_relaxed(&e->park_vain, changes);
}

/* No block is free: park some vars.  Returns a block, or 0. */
__cold u32 block_reclaim(struct thread *t)
{
	struct pawl_engine *e = t->e;

	vars_park(t);
	/* Try even if this call has freed none: another thread may have. */
	return pool_get_idx(e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], e->blocks,
			    sizeof(struct block));
}
