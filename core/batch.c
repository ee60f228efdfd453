// SPDX-License-Identifier: Apache-2.0
/*
 * Batches: n ops that are linked at one point in time.
 *
 * Structures: for every var of the batch its accesses form a segment:
 *
 *     R0 reads | W1 reads | W2 reads | ... | Wm reads
 *
 * The R0 reads join the var's current block, and W1 becomes its successor.  Everything behind
 * W1 is linked before other threads can see it, without atomic operations: the reads of Wi
 * wait in its block's list, and Wi+1 is the successor of Wi's closed block.  The batch is then
 * linked by one push of an op that never runs (OP_BATCH), with one dep per var: "R0 readers
 * join; the newest block is Wm's".  The readers of Wm are part of its block's count from the
 * start, since the word counts only the readers that join later.
 *
 * So a batch costs one CAS per var, not per access, and uses the same code for linking, helping
 * and recording as single pushes (link.c), at no cost for these.
 *
 * Progress: lock-free, as link.c.  The calling thread's scratch memory is allocated by the C
 * library, and grows with the largest batch.
 */
#include <stdlib.h>
#include <string.h>
#include <core/admit.h>
#include <core/attach.h>
#include <core/batch.h>
#include <core/cq.h>
#include <core/link.h>
#include <core/opgroup.h>
#include <core/push.h>
#include <core/record.h>
#include <core/trace.h>
#include <core/wait.h>
#include <core/sizes.h>
#include <core/sort.h>

/* One access in the batch. */
struct acc {
	u32 var;		/* without DEP_WRITE */
	u32 op;			/* position in the batch */
	u32 ref;
	u32 dep;		/* position in the op */
};

struct batch_scratch {
	size_t nops, naccs;
	u32 *ops;		/* op indexes */
	u32 *granted;		/* accesses granted, by op */
	struct acc *accs;
};

void batch_exit(struct thread *t)
{
	if (!t->scratch)
		return;
	free(t->scratch->ops);
	free(t->scratch->granted);
	free(t->scratch->accs);
	free(t->scratch);
	t->scratch = NULL;
}

static int scratch_grow(struct thread *t, size_t nops, size_t naccs)
{
	struct batch_scratch *s = t->scratch;
	void *p;

	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return err(-ENOMEM, "push_batch: no memory");
		t->scratch = s;
	}
	if (nops > s->nops) {
		p = realloc(s->ops, nops * sizeof(*s->ops));
		if (!p)
			return err(-ENOMEM, "push_batch: no memory for %zu ops", nops);
		s->ops = p;
		p = realloc(s->granted, nops * sizeof(*s->granted));
		if (!p)
			return err(-ENOMEM, "push_batch: no memory for %zu ops", nops);
		s->granted = p;
		s->nops = nops;
	}
	if (naccs > s->naccs) {
		p = realloc(s->accs, naccs * sizeof(*s->accs));
		if (!p)
			return err(-ENOMEM, "push_batch: no memory for %zu accesses", naccs);
		s->accs = p;
		s->naccs = naccs;
	}
	return 0;
}

static bool acc_less(const void *accs, u32 i, u32 j)
{
	const struct acc *a = accs;

	return a[i].var != a[j].var ? a[i].var < a[j].var : a[i].op < a[j].op;
}

static void acc_swap(void *accs, u32 i, u32 j)
{
	struct acc *a = accs, tmp = a[i];

	a[i] = a[j];
	a[j] = tmp;
}

static struct dep *acc_dep(struct pawl_engine *e, const struct acc *a)
{
	u32 opi;

	return dep_of(e, a->ref, &opi);
}

/* Link the accesses behind the first write of a segment; no other thread sees them yet. */
static void segment_link(struct thread *t, struct acc *a, u32 n, struct dep *link)
{
	struct pawl_engine *e = t->e;
	u32 bi = 0, joins = 0, write = 0, i;
	struct block *b = NULL;

	for (i = 0; i < n; i++) {
		struct dep *d = acc_dep(e, &a[i]);

		if (d->var & DEP_WRITE) {
			if (b) {
				/* Atomic: a thread with a stale word may read the block. */
				store_relaxed(&b->succ, a[i].ref);
				store_relaxed(&b->state, b->state | BLOCK_CLOSED);
			}
			bi = d->block;
			b = block_of(e, bi);
			write = DEP_WRITE;
		} else if (b) {
			store_helped(&d->block, bi);
			store_helped(&d->link, block_list(b->state));
			store_relaxed(&b->state,
				      block_with_list(b->state, a[i].ref) + BLOCK_ONE);
		} else {
			joins++;
		}
	}
	dep_set(link, a[0].var | write, bi, joins, acc_dep(e, &a[0])->gen);
}

/*
 * Attach the R0 reads and the first write to the blocks that the var had before.  If the var
 * was deleted meanwhile (FOUND_DEAD), the whole segment is left out: its accesses count as
 * granted, and its ops do not run.
 */
static void segment_attach(struct thread *t, struct acc *a, u32 n, u64 val, u32 *granted)
{
	struct pawl_engine *e = t->e;
	u32 i;

	for (i = 0; i < n; i++) {
		u32 opi = t->scratch->ops[a[i].op];
		struct dep *d = acc_dep(e, &a[i]);
		bool write = d->var & DEP_WRITE;

		if (unlikely(val == FOUND_DEAD)) {
			if (write)
				block_free(t, d->block);
			dep_kill(d);
			store_helped16(&op_of(e, opi)->flags, op_of(e, opi)->flags | OP_STALE);
			granted[a[i].op]++;
			continue;
		}
		if (write) {
			/* `val` names the block before this write. */
			granted[a[i].op] += attach_word(t, d, a[i].ref, val);
			return;
		}
		if (unlikely(word_cur(val) >= RM_BASE)) {
			store_helped(&d->block, word_cur(val));
			granted[a[i].op]++;
			continue;
		}
		granted[a[i].op] += attach_block(t, d, a[i].ref, val & WORD_LASTW ?
						 word_prev(val) : word_cur(val), 0);
	}
}

/* Allocate the op that links the batch: it has one access per segment. */
static int batch_op(struct thread *t, u32 naccs, u32 *bopi)
{
	struct acc *accs = t->scratch->accs;
	struct op *bop = op_new(t, bopi);
	u32 i, ext, nseg = 0;
	int rc;

	if (!bop)
		return err_pool_empty(t, POOL_OP, "push_batch: max_ops exist");
	sort_array(accs, naccs, acc_less, acc_swap);
	for (i = 0; i < naccs; i++)
		nseg += !i || accs[i].var != accs[i - 1].var;
	if (nseg > INLINE_DEPS) {
		rc = ext_get(t, nseg, *bopi, &ext);
		if (rc) {
			op_free(t, bop, *bopi);
			return rc;
		}
		store_helped(&bop->ext, ext);
	}
	store_helped16(&bop->ndeps, (u16)nseg);
	store_helped16(&bop->flags, OP_BATCH);
	return 0;
}

#define RUN_LAST (~0u)		/* in granted: the op is ready, and runs inside the push */

/* Link and dispatch a batch for which everything is allocated: this cannot fail. */
static void batch_push(struct thread *t, u32 nops, u32 naccs, u32 bopi)
{
	struct pawl_engine *e = t->e;
	struct batch_scratch *s = t->scratch;
	u32 i, j, k, nseg, *granted = s->granted, special = load_relaxed(&e->special);
	struct op *bop = op_of(e, bopi);
	struct dep *links;
	u64 tag, found[LINK_FOUND];

	nseg = bop->ndeps;
	memset(granted, 0, nops * sizeof(*granted));
	links = op_deps(e, bop, nseg, bop->ext);
	for (i = 0, k = 0; i < naccs; i = j, k++) {
		for (j = i + 1; j < naccs && s->accs[j].var == s->accs[i].var; j++)
			;
		segment_link(t, &s->accs[i], j - i, &links[k]);
	}
	for (i = 0; i < nops; i++) {
		struct op *op = op_of(e, s->ops[i]);

		store_relaxed(&op->wait, op->ndeps + 1);
		if (unlikely(special & SPECIAL_EVENTS))
			op_gen_next(op);
		if (unlikely(special & SPECIAL_TRACING))
			trace_event(t, TRACE_PUSH, op, s->ops[i]);
		if (unlikely(special & SPECIAL_CANCELED))
			op_stamp(e, s->ops[i]);
		if (unlikely(special & SPECIAL_RECORDING))
			record_push(t, op, s->ops[i], i + 1 < nops);
	}
	if (nseg) {
		tag = link_op(t, bop, bopi, found);
		for (i = 0, k = 0; i < naccs; i = j, k++) {
			u64 val;

			for (j = i + 1; j < naccs && s->accs[j].var == s->accs[i].var; j++)
				;
			if (k < LINK_FOUND && found[k])
				val = links[k].var & DEP_WRITE ?
				      word_write(found[k], links[k].block, links[k].link,
						 false) :
				      word_join(found[k], links[k].link);
			else
				val = attach_found(t, bop, &links[k], k, tag);
			segment_attach(t, &s->accs[i], j - i, val, granted);
		}
		/* CORE-L8 <-> CORE-L2: as in push.c */
		store_release(&t->d.status, status_make(t->seq, PHASE_FINISHED));
	}
	/* A body that runs inside dispatch() may push a batch, with its own scratch memory. */
	if (!BUSTED(BATCH_NESTED))
		t->scratch = NULL;
	for (i = 0; i < nops; i++) {
		struct op *op = op_of(e, s->ops[i]);
		u32 g = granted[i];
		bool last;

		/* CORE-W1 <-> CORE-W2 */
		if (g != op->ndeps && fetch_add_acq_rel(&op->wait, -(g + 1)) != g + 1)
			continue;
		last = op->flags & OP_INLINE;
		if (BUSTED(BATCH_INLINE_FIRST))
			last = false;
		/* Bodies run inside the push after the other ops are queued for the workers. */
		if (last)
			granted[i] = RUN_LAST;
		else
			dispatch(t, op, s->ops[i]);
	}
	for (i = 0; i < nops; i++)
		if (granted[i] == RUN_LAST)
			dispatch(t, op_of(e, s->ops[i]), s->ops[i]);
	if (!BUSTED(BATCH_NESTED))
		batch_exit(t);
	t->scratch = s;
	op_free(t, bop, bopi);
}

/* Free the ops of a batch that cannot be pushed. */
static void batch_undo(struct thread *t, u32 n)
{
	struct pawl_engine *e = t->e;
	u32 i;

	for (i = 0; i < n; i++) {
		struct op *op = op_of(e, t->scratch->ops[i]);
		struct dep *deps = op_deps(e, op, op->ndeps, op->ext);

		blocks_put(t, deps, op->ndeps);
		if (op->flags & OP_NOTE)
			note_undo(t, op);
		op_free(t, op, t->scratch->ops[i]);
	}
}

/*
 * Allocate what the batch needs, and push it.  Returns 1 if a pool is empty; after a failure
 * nothing stays allocated.
 */
static int batch_try(struct thread *t, const struct pawl_op *ops, u32 n)
{
	struct pawl_engine *e = t->e;
	u32 i, j, k = 0, bopi = 0;
	int rc;

	rc = admit(t, n);
	if (unlikely(rc))
		return rc;
	for (i = 0; i < n; i++) {
		struct op *op = op_new(t, &t->scratch->ops[i]);
		u32 opi = t->scratch->ops[i];

		if (!op) {
			rc = err_pool_empty(t, POOL_OP, "push_batch: max_ops exist");
			goto undo;
		}
		rc = op_fill(t, op, opi, op_at(ops, i), 0);
		if (rc) {
			err_field(rc, "push_batch: ops[%u]: op", i);
			op_free(t, op, opi);
			if (rc == -EAGAIN && group_never(e, ops, n, op_at(ops, i)))
				rc = err(-E2BIG, "push_batch: the ops of a group, or their costs, "
					 "are beyond its limit or that of the engine");
			goto undo;
		}
		PROBE4(push, t->ex.id, opi, op_at(ops, i)->name, t->ex.slot);
		for (j = 0; j < op->ndeps; j++, k++) {
			struct dep *d = &op_deps(e, op, op->ndeps, op->ext)[j];

			t->scratch->accs[k] = (struct acc){ d->var & ~DEP_WRITE, i,
				dep_ref(opi, op->ndeps, op->ext, j), j };
		}
	}
	rc = batch_op(t, k, &bopi);
	if (rc)
		goto undo;
	if (e->kind == PAWL_NAIVE)
		fetch_add_relaxed(&t->naive_pending, n);
	count_pushed(t, n);
	batch_push(t, n, k, bopi);
	return e->kind == PAWL_NAIVE ? wait_naive(t) : 0;

undo:
	batch_undo(t, i);
	admit_undo(t, n);
	return rc == -ENOMEM ? 1 : rc;
}

int pawl_push_batch(struct pawl_engine *e, const struct pawl_op *ops, size_t n)
{
	struct thread *t = thread_get(e);
	size_t i, naccs = 0;
	u64 idle = 0;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	if (!n)
		return 0;
	if (!ops)
		return err(-EINVAL, "push_batch: ops is NULL");
	if (n > e->cfg.max_ops)
		return err(-E2BIG, "push_batch: %zu ops, config.max_ops is %u", n, e->cfg.max_ops);
	for (i = 0; i < n; i++) {
		const struct pawl_op *d = op_at(ops, i);

		rc = op_check(e, d, "push_batch");
		if (rc)
			return err_field(rc, "push_batch: ops[%zu]: op", i);
		naccs += (size_t)d->nreads + d->nwrites;
	}
	if (naccs > UINT32_MAX)
		return err(-E2BIG, "push_batch: %zu accesses", naccs);
	do {
		rc = scratch_grow(t, n, naccs);
		if (!rc)
			rc = batch_try(t, ops, (u32)n);
		if (rc > 0) {
			rc = admit_again(t, &idle);
			if (rc)
				break;
			rc = 1;
		}
	} while (rc > 0);
	return rc;
}
PAWL_EXPORT(pawl_push_batch);
