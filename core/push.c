// SPDX-License-Identifier: Apache-2.0
/*
 * Push: one op from the caller's description to its place in the vars, and to a run
 * queue if nothing stands before it.
 *
 * Here the path of an op begins: op.c describes it, link.c takes its places, attach.c
 * finds what is granted, exec runs it, retire.c ends it and lets the next ones go.
 *
 * Ordering:
 *   CORE-W1 (wait counter, release) <-> CORE-W2 (last grant, acquire): what was
 *   attached before, by whoever comes last.
 *
 * Progress: lock-free (link.c); window_wait() blocks where the configuration says so.
 */
#include <core/internal.h>

/*
 * Take the places and attach.  0: everything is on its way.  -ESTALE: nothing happened,
 * the op still belongs to the caller.  The op's wait counter starts at its accesses
 * plus one; the plus one is ours and keeps it from running before all are attached.
 */
int push_op(struct thread *t, struct op *op, u32 opi)
{
	struct pawl_engine *e = t->e;
	u64 found[INLINE_DEPS], tag;
	u32 n = op->ndeps, granted = 0, dead = 0, j;
	struct dep *deps;
	int rc;

	/* CORE-N1 <-> CORE-N2: before the op can complete; see ops_in_flight(). */
	store_release(&t->pushed, t->pushed + 1);
	if (n == 1) {
		op->wait = 1;
		rc = link_simple(t, op, &found[0]);
		if (unlikely(rc)) {
			store_release(&t->pushed, t->pushed - 1);
			return rc;
		}
		/* Once it is attached and not granted, it is no longer ours. */
		if (attach_own(t, &op->deps[0], dep_ref(opi, 1, 0, 0), found[0])) {
			op->wait = 0;
			dispatch(t, op, opi);
		}
		return 0;
	}
	op->wait = n + 1;
	if (!n) {
		dispatch(t, op, opi);
		return 0;
	}
	deps = op_deps(e, op, n, op->ext);
	tag = link_op(t, op, opi, found);
	for (j = 0; j < n; j++) {
		u32 ref = dep_ref(opi, n, op->ext, j);
		u64 val;

		if (likely(j < INLINE_DEPS && found[j])) {
			granted += attach_own(t, &deps[j], ref, found[j]);
			continue;
		}
		val = attach_found(t, op, &deps[j], j, tag);
		if (unlikely(val == FOUND_DEAD)) {
			/* Deleted under us: this access never was; the op will not run. */
			if (deps[j].var & DEP_WRITE)
				block_free(t, deps[j].block);
			store_relaxed(&deps[j].block, 0);
			store_relaxed(&op->flags, op->flags | OP_STALE);
			dead++;
			granted++;
			continue;
		}
		granted += attach_word(t, &deps[j], ref, val);
	}
	store_release(&t->d.status, status_make(t->seq, PHASE_FINISHED));
	if (unlikely(dead == n)) {
		/* It is in no queue at all: as if it had never been pushed. */
		op->flags &= (u16)~OP_STALE;
		store_release(&t->pushed, t->pushed - 1);
		return -ESTALE;
	}
	/* All granted here: nobody else has ever touched the counter. */
	if (granted == n || fetch_add_acq_rel(&op->wait, -(granted + 1)) == granted + 1)	/* CORE-W1 <-> CORE-W2 */
		dispatch(t, op, opi);
	return 0;
}

/* The block of a refused push with one var (of several vars: push_op() did it). */
void push_undo(struct thread *t, struct op *op)
{
	if (op->ndeps == 1 && (op->deps[0].var & DEP_WRITE))
		block_free(t, op->deps[0].block);
}

/* A ready op of this push: inline where its property says so, else to its queue. */
void dispatch(struct thread *t, struct op *op, u32 opi)
{
	struct pawl_engine *e = t->e;

	if (unlikely(op->flags & OP_WAITER)) {
		waiter_granted(t, op, opi);
		return;
	}
	if (unlikely(op->prop == PAWL_ASYNC || op->prop == PAWL_DELETE_VAR) &&
	    e->kind != PAWL_NAIVE &&
	    (op->prop == PAWL_ASYNC || e->kind == PAWL_PER_DEVICE)) {
		count(&t->inlined);
		/* Successors of an inline run belong to the queues. */
		run_alone(t, op, opi);
		flight_check(t);
		return;
	}
	exec_push(op_queue(e, op), &t->ex, opi, op->prio,
		  op->prop == PAWL_DELETE_VAR ? EXEC_FRONT : 0);
}

struct in_flight { struct pawl_engine *e; u64 limit; };

static bool below_limit(void *arg)
{
	struct in_flight *f = arg;

	return ops_in_flight(f->e) <= f->limit;
}

/*
 * The window: look at the number of ops in flight once in a while (at each push if the
 * policy is to fail), and make room for n more as the policy says.
 */
__cold int window_wait(struct thread *t, u32 n)
{
	struct pawl_engine *e = t->e;
	struct in_flight f = { e, e->window > n ? e->window - n : 0 };
	/* The pools have room for what all threads may push between two looks. */
	u32 step = min_u(e->window / 8, POOL_MAG);

	if (e->policy == PAWL_WINDOW_FAIL)
		return below_limit(&f) ? 0 :
		       err(-EAGAIN, "push: %u ops are in flight (config.window)", e->window);
	if (!below_limit(&f)) {
		f.limit -= f.limit / 4;
		wait_flight_begin(t, f.limit);
		/* A waiting body would keep a worker from making room. */
		exec_wait(e->x, &t->ex, below_limit, &f, -1,
			  e->policy == PAWL_WINDOW_HELP || t->depth);
		wait_flight_end(t);
	}
	t->next_check = t->pushed + max_u(step, 1u);
	return 0;
}

/*
 * The accesses of a description, in the order of var indexes, one per var (a write
 * wins), with the blocks of the writes.  On error nothing is kept.
 */
static inline int fill_few(struct thread *t, struct op *op, const struct pawl_op *d)
{
	u32 nr = d->nreads, total = nr + d->nwrites, n = 0, i, j, vi;

	for (i = 0; i < total; i++) {
		u32 w = i >= nr ? DEP_WRITE : 0;
		pawl_var_t h = w ? d->writes[i - nr] : d->reads[i];

		if (unlikely(var_check(t, h, &vi))) {
			blocks_put(t, op->deps, n);
			return var_bad("push", w ? "writes" : "reads", w ? i - nr : i, h);
		}
		for (j = n; j && (op->deps[j - 1].var & ~DEP_WRITE) > vi && !BUSTED(NO_SORT); j--)
			;
		if (unlikely(j && (op->deps[j - 1].var & ~DEP_WRITE) == vi)) {
			/* Named before: reads come first, so this can only add the write. */
			if (!w || (op->deps[j - 1].var & DEP_WRITE))
				continue;
			j--;
		} else {
			u32 k;

			for (k = n++; k > j; k--)
				dep_copy(&op->deps[k], &op->deps[k - 1]);
			store_relaxed(&op->deps[j].gen, (u32)(h.h >> 32));
			/* Attaching will look at the newest block, after a locked access. */
			prefetchw(block_of(t->e, word_cur(load_relaxed(&var_of(t->e, vi)->word.val))));
		}
		store_relaxed(&op->deps[j].var, vi);
		if (w) {
			if (unlikely(!dep_block(t, &op->deps[j]))) {
				blocks_put(t, op->deps, n);
				return err(-ENOMEM, "push: out of blocks (max_vars, max_ops)");
			}
			store_relaxed(&op->deps[j].var, vi | DEP_WRITE);
		}
	}
	store_relaxed(&op->ndeps, (u16)n);
	return 0;
}

/* A checked description into a new op; on error the op is as op_new() made it. */
int op_fill(struct thread *t, struct op *op, u32 opi, const struct pawl_op *d)
{
	int rc;

	/* A sum that wraps is not small in both parts. */
	if (likely(d->nreads <= INLINE_DEPS && d->nreads + d->nwrites <= INLINE_DEPS))
		rc = fill_few(t, op, d);
	else
		rc = op_fill_many(t, op, opi, d);
	if (unlikely(rc))
		return rc;
	op->fn = d->fn;
	if (unlikely(d->async_fn)) {
		op->async_fn = d->async_fn;
		store_relaxed(&op->flags, OP_ASYNC);
	}
	if (unlikely(d->prop == PAWL_NO_SKIP))
		store_relaxed(&op->flags, op->flags | OP_NO_SKIP);
	op->arg = d->arg;
	op->release = d->release;
	op->name = d->name;
	op->prio = d->priority;
	op->prop = (u8)d->prop;
	op->dev = (u8)d->device.id;
	return 0;
}

static __cold void push_special(struct thread *t, u32 opi, const char *name)
{
	u32 special = load_relaxed(&t->e->special);

	if (special & SPECIAL_TRACING)
		trace_event(t, TRACE_PUSH, opi, name, 0);
	if (special & SPECIAL_NAIVE)
		fetch_add_relaxed(&t->naive_pending, 1);
}

/* A refused push: nothing happened. */
static __cold int push_refused(struct thread *t, struct op *op, u32 opi)
{
	push_undo(t, op);
	op_free(t, op, opi);
	if (t->e->kind == PAWL_NAIVE)
		fetch_add_relaxed(&t->naive_pending, -1u);
	return err(-ESTALE, "push: a var was deleted by another thread meanwhile");
}

int push_one(struct thread *t, const struct pawl_op *d, u32 flags)
{
	struct pawl_engine *e = t->e;
	struct op *op;
	u32 opi;
	int rc;

	if (unlikely(t->pushed >= t->next_check)) {
		rc = window_wait(t, 1);
		if (rc)
			return rc;
	}
	op = op_new(t, &opi);
	if (unlikely(!op))
		return err(-ENOMEM, "push: %u ops exist (config.max_ops)", e->cfg.max_ops);
	rc = op_fill(t, op, opi, d);
	if (unlikely(rc)) {
		pool_put(e->pool[POOL_OP], &t->cache[POOL_OP], opi);
		return rc;
	}
	if (unlikely(flags))
		store_relaxed(&op->flags, (u16)(op->flags | flags));
	if (unlikely(load_relaxed(&e->special)))
		push_special(t, opi, d->name);
	if (unlikely(push_op(t, op, opi)))
		return push_refused(t, op, opi);
	return unlikely(e->kind == PAWL_NAIVE) ? wait_naive(t) : 0;
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
	if (unlikely(t->bulk)) {
		rc = bulk_add(t, d);
		if (rc)
			return rc < 0 ? rc : 0;
	}
	return push_one(t, d, 0);
}
PAWL_EXPORT(pawl_push);

int pawl_var_delete(struct pawl_engine *e, pawl_var_t v, pawl_fn fn, void *arg)
{
	struct thread *t = thread_get(e);
	struct pawl_op d = PAWL_OP_INIT;

	if (unlikely(!t))
		return thread_last.code;
	if (t->bulk)
		bulk_flush(t);
	d.fn = fn;
	d.arg = arg;
	d.writes = &v;
	d.nwrites = 1;
	d.prop = PAWL_DELETE_VAR;
	d.name = "DeleteVariable";
	return push_one(t, &d, OP_DELETE | OP_NO_SKIP);
}
PAWL_EXPORT(pawl_var_delete);
