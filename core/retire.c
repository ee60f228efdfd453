// SPDX-License-Identifier: Apache-2.0
/*
 * Run and retire: run an op's body, release its accesses, and grant its successors.
 *
 * A release is one read-modify-write per access.  A write sets DONE, drops its hold and takes
 * the list of waiting readers in one addition; a read drops its hold.  The thread that brings
 * a closed block to zero grants its successor and frees the block.
 *
 * Ordering:
 *   CORE-R1 (write's addition, acq_rel) <-> CORE-A2, CORE-A3: data to readers; list
 *   CORE-R2 (any addition, acq_rel)     <-> CORE-A1, CORE-A3: data to the next writer
 *   CORE-V1 (version, release)          <-> CORE-V2: of this var, or of a later one
 *   CORE-W2 (last grant, acquire)       <-> CORE-W1, CORE-W2
 *   CORE-C1 (token CAS, acquire)        <-> CORE-C2 (arming, release): exactly one completes
 *
 * Progress: wait-free, bounded by the accesses that are released, apart from the pools and the
 * queue of priorities, which are lock-free, and from bodies and release functions.
 *
 * Lifetime: after its addition an access no longer owns its block, unless it brought it to
 * zero; the op is freed when all its accesses are released.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <core/admit.h>
#include <core/cq.h>
#include <core/device.h>
#include <core/devices.h>
#include <core/error.h>
#include <core/graph.h>
#include <core/opgroup.h>
#include <core/readmostly.h>
#include <core/record.h>
#include <core/retire.h>
#include <core/trace.h>
#include <core/wait.h>

/* Grant n accesses of a waiting op.  Returns true if no others remain. */
static bool op_grant(struct op *op, u32 n)
{
	/* If only these accesses are left, no other thread will touch the counter. */
	if (load_acquire(&op->wait) == n)	/* CORE-W2 <-> CORE-W1 */
		return true;
	return fetch_add_acq_rel(&op->wait, -n) == n;	/* CORE-W2 <-> CORE-W2 */
}

/*
 * Ops that one completion made ready, oldest first, linked by op->wait, which is then unused.
 * This completion has also granted n accesses of `op`, not yet subtracted from its op->wait.
 */
struct ready {
	u32 head, tail;
	u32 op, n;
};

static inline void ready_add(struct thread *t, struct ready *r, struct op *op, u32 opi)
{
	if (unlikely(op->flags & OP_WAITER)) {
		waiter_granted(t, op, opi);
		return;
	}
	store_relaxed(&op->wait, 0);
	if (r->head)
		store_relaxed(&op_of(t->e, r->tail)->wait, opi);
	else
		r->head = opi;
	r->tail = opi;
}

/* The op is ready: return it if this thread may run it at once, otherwise queue it. */
static inline u32 ready_one(struct thread *t, struct op *op, u32 opi)
{
	if (likely(op->prop != PAWL_DELETE_VAR))
		return exec_handoff(op_queue(t->e, op), &t->ex, opi, op->prio) ? opi : 0;
	queue_op(t, op, opi);
	return 0;
}

/* Several ops are ready: the first of the highest rank as ready_one(); queue the others. */
static __noinline u32 ready_several(struct thread *t, struct ready *r)
{
	struct pawl_engine *e = t->e;
	u32 opi = r->head, best = opi, behind, run;
	struct op *op = op_of(e, opi);
	s64 rank;

	for (rank = op_rank(op); (opi = op->wait); ) {
		op = op_of(e, opi);
		if (op_rank(op) > rank) {
			rank = op_rank(op);
			best = opi;
		}
	}
	op = op_of(e, best);
	behind = op->wait;	/* once it is queued it may complete and be freed */
	/* Before the others are queued, since they must not go before it. */
	run = ready_one(t, op, best);
	for (opi = r->head; opi; ) {
		u32 cur = opi;

		if (cur == best) {
			opi = behind;
			continue;
		}
		op = op_of(e, cur);
		opi = op->wait;
		queue_op(t, op, cur);
	}
	return run;
}

/* Queue the ready ops, apart from the one to run next on this thread.  Returns that, or 0. */
static inline u32 ready_end(struct thread *t, struct ready *r)
{
	if (!r->head)
		return 0;
	return r->head == r->tail ? ready_one(t, op_of(t->e, r->head), r->head) :
	       ready_several(t, r);
}

/* Subtract the granted accesses that ready.n counts. */
static inline void grants_end(struct thread *t, struct ready *r)
{
	struct op *op = op_of(t->e, r->op);

	if (r->n && op_grant(op, r->n))
		ready_add(t, r, op, r->op);
	r->n = 0;
}

/*
 * This thread brought b to zero: pass its error on, free it, and grant the writer behind it.
 * With `gather`, a constant, grants of one op are added up, and the caller calls grants_end().
 */
static __always_inline_fn void grant_succ(struct thread *t, struct block *b, u32 bi, u64 s,
					  struct ready *r, bool gather)
{
	struct pawl_engine *e = t->e;
	u32 opi, succ = load_relaxed(&b->succ);
	struct dep *d = dep_of(e, succ, &opi);
	struct op *op = op_of(e, opi);

	if (BUSTED(ERROR_STOPS))
		s &= ~BLOCK_ERR;
	store_relaxed(&block_of(e, d->block)->err, s & BLOCK_ERR ? b->err : 0);
	if (!BUSTED(BLOCK_LEAK))
		version_end(t, b, bi);
	if (!gather) {
		if (op_grant(op, 1))
			ready_add(t, r, op, opi);
		return;
	}
	if (r->op != opi)
		grants_end(t, r);
	r->op = opi;
	r->n++;
}

/* Grant the readers that wait for a version, oldest first. */
static void grant_readers(struct thread *t, u32 ref, struct ready *r)
{
	struct pawl_engine *e = t->e;
	u32 opi, after, first = 0;
	struct dep *d;

	for (; ref; ref = after) {
		d = dep_of(e, ref, &opi);
		after = load_relaxed(&d->link);
		prefetchw(op_of(e, opi));	/* its wait counter, in the second pass */
		store_helped(&d->link, first);
		first = ref;
	}
	for (ref = first; ref; ref = after) {
		struct op *op;

		d = dep_of(e, ref, &opi);
		after = load_relaxed(&d->link);	/* before the op can complete */
		op = op_of(e, opi);
		if (op_grant(op, 1))
			ready_add(t, r, op, opi);
	}
}

/* A deleting write completes: free the var.  No access can be behind it. */
static void var_end(struct thread *t, struct dep *d)
{
	struct pawl_engine *e = t->e;
	u32 vi = d->var & ~DEP_WRITE;
	struct var *v = var_of(e, vi);
	struct block *b = block_of(e, d->block);

	if (b->err)
		error_put(t, b->err);
	block_free(t, d->block);
	if (unlikely(var_side_of(e, vi)->rec))
		device_var_end(t, var_side_of(e, vi));
	/* Relaxed: the next user comes after pool_put(), and CORE-V1 orders what it does. */
	store_relaxed(&v->gen, gen_dead(d->gen));
	if (BUSTED(SAME_GEN))
		store_relaxed(&v->gen, d->gen);
	if (!gen_is_last(e, gen_dead(d->gen)))
		pool_put(e->pool[POOL_VAR], &t->cache[POOL_VAR], vi);
}

/* Before a write's completion: store the write's error, or none, in its block. */
static __cold void block_poison(struct thread *t, struct block *b, u32 error)
{
	if (b->err == error)
		return;
	if (b->err)
		error_put(t, b->err);
	store_relaxed(&b->err, error);
	if (error)
		error_get(t->e, error);
}

/*
 * Release all accesses.  error poisons the written vars if it is not 0; the caller holds a
 * reference.  plain is a constant: the op is op_plain() and there is no error.  Returns the op
 * to run next on this thread, or 0.
 */
static __always_inline_fn u32 release_all(struct thread *t, struct op *op, u32 error,
					  bool plain)
{
	struct pawl_engine *e = t->e;
	u32 n = op->ndeps, j, slow = plain ? 0 : op->flags & OP_SLOW_END;
	struct ready ready = { 0 };
	u64 done = BLOCK_DONE - BLOCK_ONE + (error ? BLOCK_ERR : 0);
	struct dep *deps = plain ? op->deps : op_deps(e, op, n, op->ext);

	for (j = 0; j < n; j++) {
		struct dep *d = &deps[j];
		u32 bi = d->block;
		struct block *b = block_of(e, bi);
		u64 s, early = 0;
		u32 list;

		/* The access was left out: its var was deleted during the push. */
		if (unlikely(slow && dep_dead(d)))
			continue;
		if (d->var & DEP_WRITE) {
			struct var_side *side = var_side_of(e, d->var & ~DEP_WRITE);

			if (BUSTED(VERSION_MISSED))
				slow |= OP_NO_COUNT;
			if (likely(!(slow & OP_NO_COUNT)))
				/* CORE-V1 <-> CORE-V2 */
				store_release(&side->version, side->version + 1);
			if (unlikely(slow & OP_DELETE)) {
				var_end(t, d);
				continue;
			}
			if (!plain && unlikely(b->err | error))
				block_poison(t, b, error);
			if (BUSTED(LIST_LOST))
				early = load_relaxed(&b->state);
			s = fetch_add_acq_rel(&b->state, done);	/* CORE-R1 <-> CORE-A2, CORE-A3 */
			list = block_list(s);
			if (BUSTED(LIST_LOST))
				list = block_list(early);
			if (list) {
				if (!plain)
					grants_end(t, &ready);
				grant_readers(t, list, &ready);
			}
			s += done;
		} else {
			/* Read-mostly mode, or 0 (the var is parked), in one comparison. */
			if (unlikely(bi - 1 >= RM_BASE - 1)) {
				bi = bi ? rm_leave(t, bi - RM_BASE, 1) : 0;
				if (!bi && d->block)
					continue;
				b = version_of(e, d->var, bi);
			}
			/* CORE-R2 <-> CORE-A1, CORE-A3 */
			s = fetch_add_acq_rel(&b->state, -BLOCK_ONE) - BLOCK_ONE;
		}
		BUG_ON2(!(s & BLOCK_DONE));
		if ((s & BLOCK_CLOSED) && !block_count(s))
			grant_succ(t, b, bi, s, &ready, !plain);
	}
	if (!plain)
		grants_end(t, &ready);
	return ready_end(t, &ready);
}

/* Drop the hold that covered all fast readers of a version (readmostly.c). */
void hold_put(struct thread *t, u32 bi)
{
	struct block *b = block_of(t->e, bi);
	struct ready ready = { 0 };
	u32 budget = alone_begin(t);
	/* CORE-R2 <-> CORE-A1, CORE-A3 */
	u64 s = fetch_add_acq_rel(&b->state, -BLOCK_ONE) - BLOCK_ONE;

	if ((s & BLOCK_CLOSED) && !block_count(s))
		grant_succ(t, b, bi, s, &ready, false);
	ready_end(t, &ready);
	alone_end(t, budget);
}

u32 retire(struct thread *t, struct op *op, u32 error)
{
	return release_all(t, op, error, false);
}

/*
 * Return the first error that poisons a var of the op, of its reads first, or 0.
 * Progress: wait-free.
 */
static u32 op_inherited(struct pawl_engine *e, struct op *op)
{
	struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u32 pass, j;

	for (pass = 0; pass < 2; pass++) {
		for (j = 0; j < op->ndeps; j++) {
			bool write = deps[j].var & DEP_WRITE;
			struct block *b = block_of(e, dep_version(e, deps[j].block));

			if (write != (bool)pass || !deps[j].block)
				continue;
			if ((write || (load_relaxed(&b->state) & BLOCK_ERR)) && b->err &&
			    error_alive(e, b->err))
				return b->err;
		}
	}
	return 0;
}

/*
 * The op inherits this error, which op_inherited() found when the op was about to start.  It is
 * the op's own from then on: another thread may report or clear it meanwhile, and an op that was
 * skipped because of it must not end as if its body had run.
 */
static __cold void inherit(struct thread *t, struct op *op, u32 error)
{
	if (BUSTED(INHERITED_TWICE))
		error = error_alive(t->e, error) ? error : 0;
	if (!error)
		return;
	if (op->flags & OP_ERR)
		error_put(t, op->err);	/* a message, and then success */
	error_get(t->e, error);
	op->err = error;
	store_helped16(&op->flags, (u16)((op->flags & ~OP_ERR) | OP_INHERITS));
}

/* The error that poisons the vars that the op writes, with a reference, or 0. */
static __cold u32 finish_error(struct thread *t, struct op *op, int *status)
{
	struct pawl_engine *e = t->e;

	if (*status < 0) {
		count(&t->failed);
		if (!(op->flags & OP_ERR))
			op_err_set(t, op, error_make(t, *status, op_name(op), NULL));
		error_publish(t, op->err, *status);
		return op->err;
	}
	if (op->flags & OP_INHERITS) {
		*status = error_of(e, op->err)->code;
		return op->err;
	}
	error_put(t, op->err);	/* a message, and then success */
	return 0;
}

/* The op still holds its vars, so a release function must not wait for them, like a body. */
static __noinline void finish_release(struct thread *t, struct op *op, u32 opi, int status)
{
	struct frame f;

	frame_push(t, &f, op, opi);
	(op->flags & OP_NOTE ? note_release(t->e, op) : op->release)(op->arg, status);
	frame_pop(t, &f);
}

/*
 * The op's body has returned or was skipped; status is 0 or a negative errno.  Completes the
 * op and frees it.  Returns the op to run next on this thread, or 0.
 */
__noinline u32 finish_op(struct thread *t, struct op *op, u32 opi, int status)
{
	struct pawl_engine *e = t->e;
	u32 special = load_relaxed(&e->special), error = 0, next;
	u32 owner = op->owner, waiter = op->flags & OP_WAITER;
	u32 note = op->flags & OP_NOTE ? op->note : 0;
	const char *name = note ? op_name(op) : NULL;

	if (unlikely(status < 0 || (op->flags & (OP_ERR | OP_INHERITS))))
		error = finish_error(t, op, &status);
	PROBE4(end, t->ex.id, opi, status, t->ex.slot);
	if (unlikely(special & SPECIAL_TRACING))
		trace_event(t, TRACE_END, op, opi);
	if (unlikely(special & SPECIAL_RECORDING))
		record_end(t, op, opi, op->flags & OP_STALE ? -ESTALE : status);
	if (op->flags & OP_RELEASE) {
		finish_release(t, op, opi, op->flags & OP_STALE ? -ESTALE : status);
		if (BUSTED(RELEASE_TWICE))
			finish_release(t, op, opi, status);
	}
	if (!waiter && !(note && note_reaped(e, note)))
		room_free(t, 1);
	next = retire(t, op, error);
	if (unlikely(error))
		error_put(t, error);
	if (unlikely(op->flags & OP_GRAPH))
		graph_end(t, op);
	status = op->flags & OP_STALE ? -ESTALE : status;
	op_free(t, op, opi);
	if (unlikely(note))
		note_end(t, note, name, status);
	completed(t);
	if (unlikely((special & SPECIAL_NAIVE) && !waiter)) {
		/* CORE-N7 <-> CORE-N8: the push returns and sees the data. */
		fetch_add_release(&thread_of(e, owner)->naive_pending, -1u);
		exec_unpark(e->x, &thread_of(e, owner)->ex);
	}
	return next;
}

/*
 * Prefetch together the lines that release_all() changes one after the other.  With `next`, a
 * constant, also the first op that waits for a version that the op writes: another thread has
 * written it.
 */
static __always_inline_fn void warm_deps(struct pawl_engine *e, struct op *op, bool next)
{
	u32 n = load_relaxed(&op->ndeps), j, ref, opi;

	if (n > INLINE_DEPS)
		return;
	for (j = 0; j < n; j++) {
		u32 vi = load_relaxed(&op->deps[j].var), bi = load_relaxed(&op->deps[j].block);
		struct block *b = block_of(e, bi);

		if (vi & DEP_WRITE) {
			prefetchw(b);
			prefetchw(var_side_of(e, vi & ~DEP_WRITE));
			if (!next)
				continue;
			ref = block_list(load_relaxed(&b->state));
			if (!ref)
				ref = load_relaxed(&b->succ);
			dep_of(e, ref, &opi);
			if (ref)
				prefetchw(op_of(e, opi));
		} else if (bi < RM_BASE) {
			prefetchw(b);
		}
	}
}

/*
 * Some time before the op runs.  It may be freed already; then the prefetch is useless.
 * Progress: wait-free.
 */
void op_warm(void *user, u32 work)
{
	warm_deps(user, op_of(user, work), false);
}

/* Run an asynchronous body.  Its completer owns the op from here on, and may have freed it. */
void run_async(struct thread *t, struct frame *f, struct op *op, u32 opi, pawl_async_fn fn,
	       void *arg)
{
	u32 gen = ((load_relaxed(&op->token) >> 2) + 1) & 0x3fffffff;

	gen += !gen;	/* a token is never 0 */
	f->run.token.h = (u64)gen << 32 | opi;
	store_release(&op->token, gen << 2 | TOKEN_ARMED);	/* CORE-C2 <-> CORE-C1 */
	PROBE4(start, t->ex.id, opi, fn, t->ex.slot);
	fn(&f->run, arg);
	if (BUSTED(ASYNC_EARLY))
		pawl_complete(t->e, f->run.token, 0, NULL);
	if (unlikely(f->run.reserved))
		device_end(t, NULL, &f->run);
	frame_pop(t, f);
}

static __noinline u32 run_end(struct thread *t, struct frame *f, struct op *op, u32 opi,
			      int status)
{
	if (unlikely(status > 0))
		status = pawl_fail(&f->run, -EPROTO,
				   "the body returned %d, not 0 or a negative errno", status);
	return finish_op(t, op, opi, status);
}

/*
 * Complete the op without its body, with the error that it inherits if it has no other one.  A
 * trace and a recording still get its place.
 */
static u32 skip_op(struct thread *t, struct op *op, u32 opi, u32 error, int status)
{
	u32 special = load_relaxed(&t->e->special);

	if (error && !status)
		inherit(t, op, error);
	if (unlikely(special & SPECIAL_TRACING))
		trace_event(t, op->fn || status || op->flags & OP_STALE ? TRACE_SKIP : TRACE_BEGIN, op,
			    opi);
	if (unlikely(special & SPECIAL_RECORDING))
		record_begin(t, op, opi);
	return finish_op(t, op, opi, status);
}

/* All ops were canceled: must this one not start?  One that a device made room for has started. */
static bool cancel_begin(struct thread *t, struct op *op, u32 opi)
{
	if ((op->flags & (OP_STALE | OP_WAITER | OP_DELETE)) || !op_canceled(t->e, opi) ||
	    (op->dev >= DEV_FIRST && load_relaxed(&op->wait) == OP_ROOM))
		return false;
	op_err_set(t, op, error_make(t, -ECANCELED, op_name(op),
				     "the op was canceled before it started"));
	return true;
}

/* Slow path of run_op(): the op or the engine needs special handling. */
static __noinline u32 run_slow(struct thread *t, struct op *op, u32 opi)
{
	struct pawl_engine *e = t->e;
	u32 special = load_relaxed(&e->special), error = 0, none = OP_STALE | OP_WAITER;
	bool skip;
	struct frame f;
	int status;

	if (op->flags & OP_NODE)
		return node_run(t, op, opi);
	warm_deps(e, op, true);
	if (unlikely(special & SPECIAL_POISONED))
		error = op_inherited(e, op);
	skip = error && !(op->flags & OP_NO_SKIP);
	if (BUSTED(NO_SKIPPING))
		skip = false;
	if (unlikely(op->flags & OP_ASK)) {
		status = note_begin(t, op, !skip && !(op->flags & OP_STALE));
		if (unlikely(status))
			return skip_op(t, op, opi, 0, status);
	}
	if (unlikely(special & SPECIAL_CANCELED) && !skip && cancel_begin(t, op, opi))
		return skip_op(t, op, opi, 0, -ECANCELED);
	if (BUSTED(STALE_RUNS))
		none = OP_WAITER;
	if (unlikely(!op->fn || (op->flags & none))) {
		status = 0;
		if ((special & SPECIAL_DEVICES) && !(op->flags & (OP_STALE | OP_WAITER)))
			status = device_order(t, op, opi);
		return status == DEVICE_PARKED ? 0 : skip_op(t, op, opi, error, status);
	}
	if (unlikely(skip)) {
		count(&t->skipped);
		return skip_op(t, op, opi, error, 0);
	}
	frame_push(t, &f, op, opi);
	if (unlikely(special & SPECIAL_DEVICES)) {
		status = device_begin(t, op, opi, &f.run);
		if (status) {
			frame_pop(t, &f);
			return status == DEVICE_PARKED ? 0 : skip_op(t, op, opi, 0, status);
		}
	}
	if (unlikely(special & SPECIAL_RECORDING))
		record_begin(t, op, opi);
	if (unlikely(error))
		f.run.status = error_of(e, error)->code;
	if (unlikely(special & SPECIAL_TRACING))
		trace_event(t, TRACE_BEGIN, op, opi);
	if (unlikely(error) && (op->flags & OP_ASYNC || op->fn == nodes_fn))
		inherit(t, op, error);
	if (unlikely(op->flags & OP_ASYNC)) {
		u32 gen = op_gen(op);

		run_async(t, &f, op, opi, op->async_fn, op->arg);
		if (unlikely(special & SPECIAL_TRACING))
			trace_return(t, opi, gen, 0);
		return 0;
	}
	if (op->fn == nodes_fn) {
		frame_pop(t, &f);
		return nodes_begin(t, op, opi, f.run.status);
	}
	PROBE4(start, t->ex.id, opi, op->fn, t->ex.slot);
	status = op->fn(&f.run, op->arg);
	if (unlikely(f.run.reserved))
		device_end(t, op, &f.run);
	frame_pop(t, &f);
	/* The op still holds its vars, and so the error exists. */
	if (unlikely(error) && !status)
		inherit(t, op, error);
	return run_end(t, &f, op, opi, status);
}

/*
 * Does the op need only its body and what `extra` names?  If `special` is 0, it also inherits
 * no error, and none of its blocks refers to one (error.c).
 */
static __always_inline_fn bool op_plain(u32 special, const struct op *op, u32 extra)
{
	return !(special | (op->flags & ~(OP_NAMED | extra)) | (op->ndeps > INLINE_DEPS)) && op->fn;
}

/*
 * run_slow() and finish_op() without what a plain op does not need.  `except` is a constant: the
 * op is plain except for its note (OP_NOTE) or its release function (OP_RELEASE).
 */
static __always_inline_fn u32 run_plain(struct thread *t, struct op *op, u32 opi, u32 except)
{
	bool noted = except == OP_NOTE;
	u32 note = noted ? op->note : 0, next;
	const char *name = noted ? op_name(op) : NULL;
	struct frame f;
	int status;

	warm_deps(t->e, op, true);
	if (noted && (op->flags & OP_ASK)) {
		status = note_begin(t, op, true);
		if (unlikely(status))
			return skip_op(t, op, opi, 0, status);
	}
	frame_push(t, &f, op, opi);
	PROBE4(start, t->ex.id, opi, op->fn, t->ex.slot);
	status = op->fn(&f.run, op->arg);
	if (except == OP_RELEASE && likely(!(status | (op->flags & OP_ERR)))) {
		PROBE4(end, t->ex.id, opi, 0, t->ex.slot);
		/* It still holds its vars, and the frame says so: see finish_release(). */
		op->release(op->arg, 0);
		if (BUSTED(RELEASE_TWICE))
			op->release(op->arg, 0);
		frame_pop(t, &f);
	} else {
		frame_pop(t, &f);
		if (unlikely(status | (op->flags & OP_ERR)))
			return run_end(t, &f, op, opi, status);
		PROBE4(end, t->ex.id, opi, 0, t->ex.slot);
	}
	if (!noted || !note_reaped(t->e, note))
		room_free(t, 1);
	next = release_all(t, op, 0, true);
	pool_put(t->e->pool[POOL_OP], &t->cache[POOL_OP], opi);
	if (noted)
		note_end(t, note, name, 0);
	completed(t);
	return next;
}

/* Run a ready op on this thread.  Returns the op to run next, or 0. */
static __always_inline_fn u32 run_op(struct thread *t, struct op *op, u32 opi)
{
	/* Read once: an op that is plain except for its note must have one. */
	u32 special = load_relaxed(&t->e->special);

	if (likely(op_plain(special, op, 0)))
		return run_plain(t, op, opi, 0);
	if (op_plain(special, op, OP_RELEASE))
		return run_plain(t, op, opi, OP_RELEASE);
	return op_plain(special, op, OP_NOTE | OP_ASK) ? run_plain(t, op, opi, OP_NOTE) :
	       run_slow(t, op, opi);
}

/* Run one op; queue what it makes ready. */
void run_alone(struct thread *t, struct op *op, u32 opi)
{
	u32 budget = alone_begin(t);

	run_op(t, op, opi);
	alone_end(t, budget);
}

/* Called by the executor: run an op, and then those that it makes ready. */
void run_work(void *user, struct exec_thread *ex, u32 work)
{
	struct thread *t = container_of(ex, struct thread, ex);

	do {
		work = run_op(t, op_of(t->e, work), work);
	} while (work);
}

static int token_complete(struct thread *t, pawl_token_t token, int status, const char *text,
			  void *payload)
{
	struct pawl_engine *e = t->e;
	u32 opi = (u32)token.h, gen = (u32)(token.h >> 32), want = gen << 2 | TOKEN_ARMED;
	bool armed;
	u32 budget;
	struct op *op;

	if (status > 0)
		return err(-EINVAL, "complete: status is %d, not 0 or a negative errno", status);
	if (!opi || opi > pool_carved(e->pool[POOL_OP]) || !gen || gen >> 30)
		return err(-EINVAL, "complete: %#llx is no token", (unsigned long long)token.h);
	op = op_of(e, opi);
	/* CORE-C1 <-> CORE-C2 */
	armed = cas_acquire_relaxed(&op->token, &want, gen << 2 | TOKEN_DONE);
	if (BUSTED(TOKEN_TWICE))
		armed = true;
	if (!armed && gen_foreign(e, gen, want >> 2, GEN_TOKEN))
		return err(-ESTALE, "complete: a token of another engine");
	if (!armed)
		return err(-EALREADY, "complete: this run was completed before");
	if (unlikely(status < 0 && (text || payload)))
		op_err_set(t, op, error_make(t, status, op_name(op), text));
	if (unlikely(payload)) {
		if (status < 0)
			error_payload(e, op->err, payload);
		else
			payload_drop(e, payload);
	}
	if (unlikely(op->dev >= DEV_FIRST))
		device_async_end(t, op);
	budget = alone_begin(t);
	if (unlikely(op->flags & OP_NODE))
		node_complete(t, op, opi, status);
	else
		finish_op(t, op, opi, status);
	alone_end(t, budget);
	/* A release function may have pushed. */
	if (unlikely(load_relaxed(&t->naive_pending)))
		wait_naive(t);
	flight_check(t);
	return 0;
}

/* With the op's end pawl_engine_destroy() in another thread may begin; it waits for this call. */
static int complete(struct pawl_engine *e, pawl_token_t token, int status, const char *text,
		    void *payload)
{
	struct thread *t = thread_get(e);
	u32 outer;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	outer = load_relaxed(&t->completing);
	store_relaxed(&t->completing, 1);
	rc = token_complete(t, token, status, text, payload);
	if (!outer)
		store_release(&t->completing, 0);	/* CORE-N23 <-> CORE-N24 */
	return rc;
}

int pawl_complete(struct pawl_engine *e, pawl_token_t token, int status, const char *text)
{
	return complete(e, token, status, text, NULL);
}
PAWL_EXPORT(pawl_complete);

int pawl_complete_with(struct pawl_engine *e, pawl_token_t token, int status, const char *text,
		       void *payload)
{
	int rc = complete(e, token, status, text, payload);

	if (rc)
		payload_drop(e, payload);
	return rc;
}
PAWL_EXPORT(pawl_complete_with);

static int fail(struct pawl_run *run, int code, const char *text, void *payload)
{
	struct frame *f = container_of(run, struct frame, run);
	struct op *op;

	/* An asynchronous op passes its message to pawl_complete(), and may be complete. */
	if (code >= 0 || run->token.h) {
		payload_drop(run->engine, payload);
		return code;
	}
	op = op_of(run->engine, f->op);
	/* Other nodes share the launch's op, so a node keeps the message in its carrier. */
	if (unlikely(op->flags & OP_GRAPH) && op->fn == nodes_fn)
		op = node_carrier(run);
	op_err_set(f->t, op, error_make(f->t, code, op_name(op), text));
	if (payload)
		error_payload(run->engine, op->err, payload);
	return code;
}

int pawl_fail(struct pawl_run *run, int code, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return fail(run, code, text, NULL);
}
PAWL_EXPORT(pawl_fail);

int pawl_fail_with(struct pawl_run *run, int code, const char *text, void *payload)
{
	return fail(run, code, text, payload);
}
PAWL_EXPORT(pawl_fail_with);
