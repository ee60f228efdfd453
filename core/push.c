// SPDX-License-Identifier: Apache-2.0
/*
 * Push: take one op from the caller's description into the queues of its vars, and to a run
 * queue if nothing is before it.
 *
 * The path of an op begins here.  admit.c reserves what it needs, op.c makes it from the
 * description, link.c gives it its position in the queue of each var, attach.c finds out which
 * accesses are granted, exec runs it, and retire.c completes it and grants its successors.
 *
 * Ordering:
 *   CORE-W1 (wait counter, release) <-> CORE-W2 (last grant, acquire): the thread that makes
 *   the op ready sees what the other threads attached and granted.
 *
 * Progress: lock-free (link.c); admit.c blocks where the configuration says so.
 */
#include <core/admit.h>
#include <core/attach.h>
#include <core/cq.h>
#include <core/device.h>
#include <core/link.h>
#include <core/push.h>
#include <core/record.h>
#include <core/retire.h>
#include <core/trace.h>
#include <core/wait.h>

#define INLINE_DEPTH	64u

/* Slow path of dispatch(): the op is a waiter, or its property says where it runs. */
static __noinline void dispatch_slow(struct thread *t, struct op *op, u32 opi)
{
	struct pawl_engine *e = t->e;

	if (op->flags & OP_WAITER) {
		waiter_granted(t, op, opi);
		return;
	}
	/* An inline run may push an inline op, and so on: bound the stack. */
	if (e->kind != PAWL_NAIVE && op->dev < DEV_FIRST && t->depth < INLINE_DEPTH &&
	    (op->prop == PAWL_ASYNC || e->kind == PAWL_PER_DEVICE)) {
		count(&t->inlined);
		/* Its successors are queued, so that workers find them. */
		run_alone(t, op, opi);
		flight_check(t);
		return;
	}
	queue_op(t, op, opi);
}

/* The op is ready: run it inline if its property says so, otherwise queue it. */
__always_inline_fn void dispatch(struct thread *t, struct op *op, u32 opi)
{
	if (unlikely(op->flags & (OP_WAITER | OP_INLINE)))
		dispatch_slow(t, op, opi);
	else
		exec_push(op_queue(t->e, op), &t->ex, opi, op->prio, 0);
}

/*
 * push_op() for an op with several accesses.  few is a constant: there are no more than
 * INLINE_DEPS.  found is memory for INLINE_DEPS or LINK_FOUND.
 */
static __always_inline_fn int push_deps(struct thread *t, struct op *op, u32 opi, u64 *found,
					bool few)
{
	u32 n = op->ndeps, left = n, granted = 0, hold = 0, dead = 0, j, ext = few ? 0 : op->ext;
	struct dep *deps = few ? op->deps : ext_of(t->e, ext)->deps;
	u64 tag;

	if (BUSTED(RUN_EARLY))
		left--;
	store_relaxed(&op->wait, left);
	tag = few ? link_few(t, op, opi, found) : link_op(t, op, opi, found);
	if (likely(!tag)) {
		for (j = 0; j < n; j++)
			granted += attach_own(t, &deps[j], dep_ref(opi, few ? 1 : n, ext, j),
					      found[j]);
		goto attached;
	}
	/*
	 * Until the push is FINISHED, other threads read the op to record for it, so it must
	 * not complete before: one more in the counter.
	 */
	hold = 1;
	if (BUSTED(RECORD_REUSED))
		hold = 0;
	store_relaxed(&op->wait, left + hold);
	for (j = 0; j < n; j++) {
		u32 ref = dep_ref(opi, few ? 1 : n, ext, j);
		u64 val;

		if (likely((few || j < LINK_FOUND) && found[j])) {
			granted += attach_own(t, &deps[j], ref, found[j]);
			continue;
		}
		val = attach_found(t, op, &deps[j], j, tag);
		if (unlikely(val == FOUND_DEAD)) {
			/* The var was deleted meanwhile: leave the access out, do not run. */
			if (deps[j].var & DEP_WRITE)
				block_free(t, deps[j].block);
			dep_kill(&deps[j]);
			store_helped16(&op->flags, op->flags | OP_STALE);
			dead++;
			granted++;
			continue;
		}
		granted += attach_word(t, &deps[j], ref, val);
	}
	/*
	 * CORE-L8 <-> CORE-L2: the links, and the reads of the records, come before it.  No
	 * failure without the release is known: a thread that reads FINISHED then changes a
	 * word, and the compare-and-swap of a stale word fails.
	 */
	store_release(&t->d.status, status_make(t->seq, PHASE_FINISHED));
	if (unlikely(dead == n)) {
		/* It is in no queue: refuse it as if it had never been pushed. */
		store_helped16(&op->flags, op->flags & (u16)~OP_STALE);
		return -ESTALE;
	}
attached:
	/*
	 * The counter still contains what was granted here, which keeps the op from running
	 * before all accesses are attached.  If that is nothing, the op may already run on
	 * another thread.  If that is everything, no other thread knows the op.
	 */
	if (granted == n ||	/* CORE-W1 <-> CORE-W2 */
	    (granted + hold &&
	     fetch_add_acq_rel(&op->wait, -(granted + hold)) == granted + hold))
		dispatch(t, op, opi);
	return 0;
}

static __noinline int push_many(struct thread *t, struct op *op, u32 opi)
{
	u64 found[LINK_FOUND];

	return push_deps(t, op, opi, found, false);
}

/* push_op() for an op with several accesses, or with none. */
static __noinline int push_several(struct thread *t, struct op *op, u32 opi)
{
	u64 found[INLINE_DEPS];

	if (likely(op->ndeps - 1u < INLINE_DEPS))
		return push_deps(t, op, opi, found, true);
	if (op->ndeps)
		return push_many(t, op, opi);
	store_relaxed(&op->wait, 0);
	dispatch(t, op, opi);
	return 0;
}

/*
 * Link the op into the queues of its vars and attach it; the wait counter starts at its
 * number of accesses.  Returns -ESTALE if the push is refused: then nothing happened, and the
 * op still belongs to the caller.
 */
__always_inline_fn int push_op(struct thread *t, struct op *op, u32 opi)
{
	u64 found;
	int rc;

	if (unlikely(op->ndeps != 1))
		return push_several(t, op, opi);
	store_relaxed(&op->wait, 1);
	rc = link_simple(t, op, &found);
	/* If it is attached and not granted, another thread owns it from here on. */
	if (likely(!rc) && attach_own(t, &op->deps[0], dep_ref(opi, 1, 0, 0), found)) {
		store_relaxed(&op->wait, 0);
		dispatch(t, op, opi);
	}
	return rc;
}

/* Free the block of a refused push with one var; push_deps() frees those of several. */
void push_undo(struct thread *t, struct op *op)
{
	if (op->ndeps == 1 && (op->deps[0].var & DEP_WRITE))
		block_free(t, op->deps[0].block);
}

/* op_fill() for one access, the usual case. */
static __always_inline_fn int fill_one(struct thread *t, struct op *op, const struct pawl_op *d)
{
	u32 w = d->nwrites ? DEP_WRITE : 0;
	pawl_var_t h = w ? d->writes[0] : d->reads[0];
	u32 vi = var_index(h);

	if (unlikely(var_check(t, h)))
		return var_bad("push", w ? "writes" : "reads", 0, h);
	store_helped(&op->deps[0].var, vi | w);
	store_helped(&op->deps[0].gen, (u32)(h.h >> 32));
	if (w) {
		/* attach_block() will read the newest block, right after a locked access. */
		prefetchw(block_of(t->e, word_cur(load_relaxed(&var_of(t->e, vi)->word.val))));
		if (unlikely(!dep_block(t, &op->deps[0])))
			return err_pool_empty(t, POOL_BLOCK, "push: out of blocks (max_vars, max_ops)");
	}
	store_helped16(&op->ndeps, 1);
	return 0;
}

/* Prefetch the second line of the next op; op_new() has prefetched the first. */
static inline void op_ahead(struct thread *t)
{
	const struct pool_cache *c = &t->cache[POOL_OP];

	if (likely(c->n >= 4))
		prefetchw((char *)op_of(t->e, c->cur[c->n - 4]) + 64);
}

static inline void key_order(u64 *a, u64 *b)
{
	u64 x = *a, y = *b;

	*a = min_u(x, y);
	*b = max_u(x, y);
}

BUILD_BUG_ON(INLINE_DEPS != 4);

/* Sort four keys.  It has no branch: vars come in no order that could be predicted. */
static inline void keys_sort(u64 *key)
{
	key_order(&key[0], &key[1]);
	key_order(&key[2], &key[3]);
	key_order(&key[0], &key[2]);
	key_order(&key[1], &key[3]);
	key_order(&key[1], &key[2]);
}

/*
 * op_fill() for n accesses: sort them by var index, one per var (a write wins), and get the
 * blocks of the writes.  On error nothing is kept.  n is a constant, so that the loops are
 * unrolled and the keys stay in registers.
 */
static __always_inline_fn int fill_n(struct thread *t, struct op *op, const struct pawl_op *d,
				     const u32 n)
{
	/* var << 33 | generation << 1 | write: a write sorts last, unused keys behind it */
	u64 key[INLINE_DEPS + 1] = { ~0ull, ~0ull, ~0ull, ~0ull, ~0ull };
	struct dep *dep = op->deps;
	u32 nr = d->nreads, i, vi;

#pragma GCC unroll 4
	for (i = 0; i < n; i++) {
		bool w = i >= nr;
		pawl_var_t h = w ? d->writes[i - nr] : d->reads[i];

		if (unlikely(var_check(t, h)))
			return var_bad("push", w ? "writes" : "reads", w ? i - nr : i, h);
		/* The handle's halves, swapped; an index has far less than 31 bits. */
		key[i] = h.h << 33 | h.h >> 31 | w;
	}
	if (n > 2)
		op_ahead(t);
	if (!BUSTED(NO_SORT))
		keys_sort(key);
#pragma GCC unroll 4
	for (i = 0; i < n; i++) {
		bool again = key[i] >> 33 == key[i + 1] >> 33;
		u32 w = key[i] & 1 ? DEP_WRITE : 0;
		struct var *v;

		if (BUSTED(NAMED_TWICE))
			again = false;
		/* The next key names the same var, and is a write if any of them is. */
		if (unlikely(again))
			continue;
		vi = (u32)(key[i] >> 33);
		v = var_of(t->e, vi);
		store_helped(&dep->var, vi | w);
		store_helped(&dep->gen, (u32)(key[i] >> 1));
		/* attach_block() will read the newest block, right after a locked access. */
		if (w || !(load_relaxed(&v->word.tag) & TAG_KNOWN))
			prefetchw(block_of(t->e, word_cur(load_relaxed(&v->word.val))));
		if (w && unlikely(!dep_block(t, dep))) {
			blocks_put(t, op->deps, (u32)(dep - op->deps));
			return err_pool_empty(t, POOL_BLOCK, "push: out of blocks (max_vars, max_ops)");
		}
		dep++;
	}
	store_helped16(&op->ndeps, (u16)(dep - op->deps));
	return 0;
}

static __noinline int fill_two(struct thread *t, struct op *op, const struct pawl_op *d)
{
	return fill_n(t, op, d, 2);
}

static __noinline int fill_three(struct thread *t, struct op *op, const struct pawl_op *d)
{
	return fill_n(t, op, d, 3);
}

static __noinline int fill_four(struct thread *t, struct op *op, const struct pawl_op *d)
{
	return fill_n(t, op, d, 4);
}

/*
 * Copy the caller's argument behind the op's accesses, op_arg_fits().  Returns the copy.
 * Helpers of earlier pushes may still read this memory as accesses.  Progress: wait-free.
 */
static __noinline void *arg_fill(struct op *op, const struct pawl_op *d)
{
	const char *from = d->arg;
	u64 *to = (u64 *)(void *)&op->deps[op->ndeps], rest = 0;
	u32 words = d->arg_size / (u32)sizeof(*to), i;

	if (BUSTED(ARG_NOT_COPIED))
		return d->arg;
	for (i = 0; i < words; i++) {
		u64 word;

		memcpy(&word, from + i * sizeof(word), sizeof(word));
		store_helped64(&to[i], word);
	}
	if (d->arg_size % sizeof(*to)) {
		memcpy(&rest, from + i * sizeof(rest), d->arg_size % sizeof(rest));
		store_helped64(&to[i], rest);
	}
	return to;
}

/* Undo op_fill() after its accesses were filled in.  Returns rc. */
static __cold int op_unfill(struct thread *t, struct op *op, int rc)
{
	blocks_put(t, op_deps(t->e, op, op->ndeps, op->ext), op->ndeps);
	if (op->ndeps > INLINE_DEPS)
		ext_put(t, op->ext);
	store_helped16(&op->ndeps, 0);
	return rc;
}

/* Fill a new op from a checked description; on error the op is as op_new() made it. */
__always_inline_fn int op_fill(struct thread *t, struct op *op, u32 opi, const struct pawl_op *d,
			       u32 flags)
{
	u64 total = (u64)d->nreads + d->nwrites;
	void *arg = d->arg;
	int rc;

	if (total == 1)
		rc = fill_one(t, op, d);
	else if (total == 2)
		rc = fill_two(t, op, d);
	else if (total == 3)
		rc = fill_three(t, op, d);
	else if (total == 4)
		rc = fill_four(t, op, d);
	else
		rc = total ? op_fill_many(t, op, opi, d) : 0;
	if (unlikely(rc))
		return rc;
	op->fn = d->fn;
	if (unlikely(d->async_fn)) {
		op->async_fn = d->async_fn;
		flags |= OP_ASYNC;
	}
	if (d->release) {
		store_relaxed(&op->release, d->release);	/* atomic: has_ticket() */
		flags |= OP_RELEASE;
	}
	if (d->name) {
		store_relaxed(&op->name, d->name);
		flags |= OP_NAMED;
	}
	op->prop = 0;
	op->dev = 0;
	if (unlikely(op_where(d))) {
		if (d->flags & PAWL_OP_ARG)
			arg = arg_fill(op, d);
		if (op_where(d) & ~WHERE_FLAGS(PAWL_OP_NOTES | PAWL_OP_ARG)) {
			flags |= prop_flags(d);
			op->prop = (u8)d->prop;
			op->dev = (u8)op_device(t->e, d->device);
		}
		if (d->flags & PAWL_OP_NOTES) {
			rc = note_fill(t, op, d);
			if (unlikely(rc))
				return op_unfill(t, op, rc);
			flags |= OP_NOTE | (d->flags & NOTE_ASKS ? OP_ASK : 0);
		}
	}
	store_helped16(&op->flags, (u16)flags);
	store_relaxed(&op->arg, arg);
	op->prio = d->priority;
	return 0;
}

/* The engine traces, records, or is naive. */
static __cold void push_special(struct thread *t, struct op *op, u32 opi)
{
	u32 special = load_relaxed(&t->e->special);

	if (special & SPECIAL_EVENTS)
		op_gen_next(op);
	if (special & SPECIAL_TRACING)
		trace_event(t, TRACE_PUSH, op, opi);
	if (special & SPECIAL_RECORDING)
		record_push(t, op, opi, false);
	if (special & SPECIAL_CANCELED)
		op_stamp(t->e, opi);
	if (special & SPECIAL_NAIVE)
		fetch_add_relaxed(&t->naive_pending, 1);
}

/* push_op() refused the op: undo everything. */
static __cold int push_refused(struct thread *t, struct op *op, u32 opi)
{
	if (load_relaxed(&t->e->special) & SPECIAL_TRACING)
		trace_event(t, TRACE_REFUSED, op, opi);
	if (load_relaxed(&t->e->special) & SPECIAL_RECORDING)
		record_undo(t, op, opi);
	push_undo(t, op);
	if (op->flags & OP_NOTE)
		note_undo(t, op);
	op_free(t, op, opi);
	completed(t);
	admit_undo(t, 1);
	if (t->e->kind == PAWL_NAIVE)
		fetch_add_relaxed(&t->naive_pending, -1u);
	return err(-ESTALE, "push: a var was deleted by another thread meanwhile");
}

/* The description is bad, or a pool is empty: keep nothing.  Returns 1 for an empty pool. */
static __cold int push_undone(struct thread *t, u32 opi, int rc)
{
	if (opi)
		pool_put(t->e->pool[POOL_OP], &t->cache[POOL_OP], opi);
	admit_undo(t, 1);
	return rc == -ENOMEM ? 1 : rc;
}

/* Returns 1 if a pool is empty; then nothing is kept. */
static __always_inline_fn int push_try(struct thread *t, const struct pawl_op *d, u32 flags)
{
	struct pawl_engine *e = t->e;
	struct op *op;
	u32 opi = 0;
	int rc;

	rc = admit(t, 1);
	if (unlikely(rc))
		return rc;
	op = op_new(t, &opi);
	rc = likely(op) ? op_fill(t, op, opi, d, flags) : err_pool_empty(t, POOL_OP, "push: max_ops exist");
	if (unlikely(rc))
		return push_undone(t, opi, rc);
	if (unlikely(load_relaxed(&e->special)))
		push_special(t, op, opi);
	PROBE4(push, t->ex.id, opi, d->name, t->ex.slot);
	count_pushed(t, 1);
	if (unlikely(push_op(t, op, opi)))
		return push_refused(t, op, opi);
	return unlikely(e->kind == PAWL_NAIVE) ? wait_naive(t) : 0;
}

static __cold int push_retry(struct thread *t, const struct pawl_op *d, u32 flags)
{
	u64 idle = 0;
	int rc;

	do {
		rc = admit_again(t, &idle);
		if (!rc)
			rc = push_try(t, d, flags);
	} while (rc > 0);
	return rc;
}

static __always_inline_fn int push_one(struct thread *t, const struct pawl_op *d, u32 flags)
{
	int rc = push_try(t, d, flags);

	return likely(rc <= 0) ? rc : push_retry(t, d, flags);
}

int pawl_push(struct pawl_engine *e, const struct pawl_op *d)
{
	struct thread *t = thread_get(e);
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	rc = op_check(e, d, "push");
	if (unlikely(rc))
		return rc;
	return push_one(t, d, 0);
}
PAWL_EXPORT(pawl_push);

int var_delete(struct thread *t, pawl_var_t v, struct pawl_device dev, pawl_fn fn, void *arg)
{
	struct pawl_op d = PAWL_OP_INIT;

	if (unlikely(var_check(t, v)))
		return err(-ESTALE, "var_delete: v is %s", v.h ?
			   "a var that was deleted before, or of another engine" : "no var");
	d.device = dev;
	d.fn = fn;
	d.arg = arg;
	d.writes = &v;
	d.nwrites = 1;
	d.prop = PAWL_DELETE_VAR;
	d.name = "DeleteVariable";
	return push_one(t, &d, OP_DELETE | OP_NO_SKIP);
}

int pawl_var_delete(struct pawl_engine *e, pawl_var_t v, pawl_fn fn, void *arg)
{
	struct thread *t = thread_get(e);

	return likely(t) ? var_delete(t, v, (struct pawl_device){ PAWL_CPU, 0 }, fn, arg) :
	       thread_last.code;
}
PAWL_EXPORT(pawl_var_delete);
