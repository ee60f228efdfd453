// SPDX-License-Identifier: Apache-2.0
/*
 * Errors: counted objects that propagate along data.
 *
 * A failed op makes one; the blocks that it wrote, and those of all ops that are skipped
 * because of it, hold references.  It is reported once: the first wait (or clear) that gets it
 * sets `gone`, and from then on it poisons nothing, wherever it has spread.  A wait for all
 * starts a new epoch, which ends older errors too.
 *
 * A payload belongs to the object: one exchange decides which thread reports or drops it.
 *
 * engine.special counts the objects, so that ops check for inherited errors only while one
 * exists.  An op that inherits an error sees a count above 0 by coherence alone: the count was
 * raised before the error was published, and is lowered after the last reference, one of which
 * the op's block or the version that it reads holds until the op releases it (CORE-E3,
 * CORE-R2).
 *
 * Ordering: an error is written before the block's DONE (CORE-R1) publishes it.
 *   CORE-E1 (engine's list of first errors, CAS) <-> CORE-E2 (exchange by wait-all)
 *   CORE-E4 (reported, and counted, CAS) <-> CORE-E5 (epoch ended by wait-all, CAS): gone
 *   CORE-E8 (exchange by wait-all) <-> CORE-E9 (list, CAS): the epoch has ended
 *   CORE-E3 (reference dropped, acq_rel) <-> CORE-E3 of the others: last reads before reuse
 *   CORE-E6 (first reference, release) <-> CORE-E7 (another one, acquire): it is a new error
 * A thread that reads an error has passed one of these edges.  The words that decide which
 * thread reports it (`gone`, the payload, the counts of the epoch) are relaxed: each is changed
 * by read-modify-writes alone, and publishes nothing.
 *
 * Progress: lock-free.  As many error objects may exist as ops and vars together; without one,
 * a failed op poisons with a shared object that says so.
 */
#include <stdio.h>
#include <string.h>
#include <core/error.h>

/*
 * engine.err_state: tag is the epoch, the number of waits for all that reported errors.  It
 * never repeats: if it wrapped, a reported error that still poisons a var would be alive again
 * (24 bits wrap after seconds).  val: of this epoch's errors, [63:32] the number that were
 * reported or cleared, [31:0] the number that were made; they saturate.  tag and val change
 * together, so that the thread that ends an epoch knows which errors were reported before, and
 * none is reported later.
 */
#define ERR_COUNT_MASK	0xffffffffull
#define ERR_MADE	1ull
#define ERR_GIVEN	(ERR_COUNT_MASK + 1)

static u64 err_made(struct pair state)
{
	return state.val & ERR_COUNT_MASK;
}

static u64 err_given(struct pair state)
{
	return state.val >> 32;
}

/* The two halves may not belong together; the compare-and-swap proves that they do. */
static struct pair err_state(const struct pawl_engine *e)
{
	return (struct pair){ load_relaxed(&e->err_state.tag),
			      load_relaxed(&e->err_state.val) };
}

/*
 * The caller has set `gone`.  False: the epoch has ended, and the thread that ended it reports
 * x.
 */
static bool error_given(struct pawl_engine *e, const struct error *x)
{
	struct pair was = err_state(e), new;
	u64 epoch = load_relaxed(&x->epoch);

	do {
		if (was.tag != epoch)
			return false;
		new = was;
		if (err_given(was) != ERR_COUNT_MASK)
			new.val += ERR_GIVEN;
	} while (!pair_cas_acq_rel(&e->err_state, &was, new));	/* CORE-E4 <-> CORE-E5 */
	return true;
}

/* False if the error was reported or cleared.  Progress: wait-free. */
bool error_alive(struct pawl_engine *e, u32 idx)
{
	struct error *x = error_of(e, idx);

	return !load_relaxed(&x->gone) &&
	       load_relaxed(&x->epoch) == load_relaxed(&e->err_state.tag);
}

void payload_drop(struct pawl_engine *e, void *payload)
{
	if (payload && e->cfg.drop) {
		thread_last.callbacks++;
		e->cfg.drop(e->cfg.user, payload);
		thread_last.callbacks--;
	}
}

/* Set an error's payload, which may be NULL, and drop the one it had.  Progress: wait-free. */
void error_payload(struct pawl_engine *e, u32 idx, void *payload)
{
	struct error *x = error_of(e, idx);

	/* The spare error is shared, so it has no payload. */
	if (idx == e->spare_error)
		payload_drop(e, payload);
	else if (payload || load_relaxed(&x->payload))
		payload_drop(e, xchg_relaxed(&x->payload, payload));
}

/* The engine ends: drop the payloads of errors that were never reported. */
void errors_exit(struct pawl_engine *e)
{
	u32 i, n = pool_carved(e->pool[POOL_ERROR]);

	for (i = 1; i <= n; i++)
		error_payload(e, i, NULL);
}

void error_get(struct pawl_engine *e, u32 idx)
{
	fetch_add_relaxed(&error_of(e, idx)->refs, 1);
}

void error_put(struct thread *t, u32 idx)
{
	struct pawl_engine *e = t->e;

	if (fetch_add_acq_rel(&error_of(e, idx)->refs, -1u) == 1) {	/* CORE-E3 <-> CORE-E3 */
		error_payload(e, idx, NULL);
		if (!BUSTED(POISON_STAYS))
			fetch_add_relaxed(&e->special, -SPECIAL_ERROR);
		pool_put(e->pool[POOL_ERROR], &t->cache[POOL_ERROR], idx);
	}
}

/* Remove the error from the list, if it is there.  The caller has a reference. */
static void error_unkeep(struct thread *t, u32 idx)
{
	u32 i, was;

	for (i = 0; i < FIRST_ERRS; i++) {
		was = idx;
		if (load_relaxed(&t->e->first_err[i]) == idx &&
		    cas_relaxed(&t->e->first_err[i], &was, 0)) {
			error_put(t, idx);
			return;
		}
	}
}

/*
 * Store the error in a slot of the list, which then has a reference.  Returns false if the slot
 * is not free.  The caller has another reference.
 */
static bool error_store(struct thread *t, u32 idx, u32 *slot)
{
	struct pawl_engine *e = t->e;
	u32 none = 0;

	/* CORE-E1 <-> CORE-E2 */
	/* CORE-E9 <-> CORE-E8 */
	if (!cas_acq_rel_relaxed(slot, &none, idx))
		return false;
	/* If the slot was emptied before that, the next wait for all may not check the list. */
	if (load_relaxed(&e->err_state.tag) != load_relaxed(&error_of(e, idx)->epoch))
		error_unkeep(t, idx);
	return true;
}

/* Keep the error for the next wait for all, if there is room. */
static void error_keep(struct thread *t, u32 idx)
{
	struct pawl_engine *e = t->e;
	u32 i;

	for (i = 0; i < FIRST_ERRS; i++) {
		if (load_relaxed(&e->first_err[i]))
			continue;
		error_get(e, idx);
		if (error_store(t, idx, &e->first_err[i]))
			return;
		error_put(t, idx);
	}
}

/*
 * Make an error that no other thread knows yet.  The caller gets a reference.
 * Progress: lock-free.
 */
u32 error_make(struct thread *t, int code, const char *op, const char *text)
{
	struct pawl_engine *e = t->e;
	struct error *x;
	u32 idx;

	BUILD_BUG_ON((1u << OPS_BITS) + (1u << ERROR_BITS) >= 1u << (32 - SPECIAL_ERROR_SHIFT));
	x = pool_get(e->pool[POOL_ERROR], &t->cache[POOL_ERROR], &idx);
	if (!x) {
		idx = e->spare_error;
		fetch_or_relaxed(&e->special, SPECIAL_SPARE);
		error_get(e, idx);
		return idx;
	}
	fetch_add_relaxed(&e->special, SPECIAL_ERROR);
	x->code = code;
	snprintf(x->op, sizeof(x->op), "%s", op ? op : "");
	snprintf(x->text, sizeof(x->text), "%s", text ? text : strerror(-code));
	/*
	 * CORE-E6 <-> CORE-E7: a thread may still want the error that was in this memory
	 * before.  With a reference to this one it also sees that the block has changed.
	 */
	store_release(&x->refs, 1);
	return idx;
}

/* The op failed with this error: count it for the next wait for all.  Progress: lock-free. */
void error_publish(struct thread *t, u32 idx, int code)
{
	struct pawl_engine *e = t->e;
	struct error *x = error_of(e, idx);
	struct pair state = err_state(e), new;

	/* Count it in its own epoch, whatever waits do at this moment. */
	do {
		new = state;
		if (err_made(state) != ERR_COUNT_MASK)
			new.val += ERR_MADE;
		if (BUSTED(ERROR_COUNTED_TWICE))
			new.val += ERR_MADE;
		/* CORE-E4: it needs no order; 16 bytes have acq_rel alone. */
	} while (!pair_cas_acq_rel(&e->err_state, &state, new));
	if (idx != e->spare_error)
		x->code = code;
	store_relaxed(&x->seq, fetch_add_relaxed(&e->err_seq, 1));
	store_relaxed(&x->epoch, state.tag);
	store_relaxed(&x->gone, 0);
	error_keep(t, idx);
}

/* Clear the error, unless it was reported. */
void error_drop(struct thread *t, u32 idx)
{
	struct error *x = error_of(t->e, idx);

	if (BUSTED(CLEAR_IGNORED))
		return;
	if (xchg_relaxed(&x->gone, 1) || !error_given(t->e, x))
		return;
	error_payload(t->e, idx, NULL);
	error_unkeep(t, idx);
}

void error_fill(struct pawl_engine *e, u32 idx, struct pawl_error *out)
{
	struct error *x = error_of(e, idx);

	if (!out)
		return;
	out->code = x->code;
	out->count = 1;
	out->payload = NULL;
	memcpy(out->op, x->op, sizeof(out->op));
	memcpy(out->text, x->text, sizeof(out->text));
}

static int error_out(struct pawl_engine *e, u32 idx, struct pawl_error *out)
{
	struct error *x = error_of(e, idx);

	error_fill(e, idx, out);
	if (out && load_relaxed(&x->payload))
		out->payload = xchg_relaxed(&x->payload, NULL);
	else
		error_payload(e, idx, NULL);
	if (x->op[0])
		return err(x->code, "op %s failed: %s", x->op, x->text);
	return err(x->code, "an op failed: %s", x->text);
}

/*
 * Report the error, unless it was reported.  Returns its code, or 0.  The caller holds a
 * reference.  Progress: lock-free.
 */
int error_take(struct thread *t, u32 idx, struct pawl_error *out)
{
	struct error *x = error_of(t->e, idx);
	bool ours = error_alive(t->e, idx) && !xchg_relaxed(&x->gone, 1) && error_given(t->e, x);

	if (BUSTED(ERROR_AGAIN))
		ours = true;
	if (!ours)
		return 0;
	error_unkeep(t, idx);
	return error_out(t->e, idx, out);
}

/*
 * Keep an error of an epoch after ours for the next wait for all, maybe in another slot.
 * Release, because the thread that takes it there may not have taken what was in its first slot
 * after we did.
 */
static void error_back(struct thread *t, u32 idx)
{
	bool stored = false;
	u32 i;

	error_get(t->e, idx);
	for (i = 0; i < FIRST_ERRS && !stored; i++)
		stored = error_store(t, idx, &t->e->first_err[i]);
	error_put(t, idx);
	if (!stored)
		error_put(t, idx);
}

/*
 * For a wait for all: end the epoch and report its first error that was not reported.
 * Progress: lock-free.
 */
int error_take_all(struct thread *t, struct pawl_error *out)
{
	struct pawl_engine *e = t->e;
	u32 kept[FIRST_ERRS], i, n = 0, best = 0;
	struct pair state = err_state(e), next;
	u64 failed, given;
	int code = 0;

	if (out)
		memset(out, 0, sizeof(*out));
	/* The thread that ends the epoch gets its count, and so all its failures. */
	do {
		if (!err_made(state))
			return 0;
		next = (struct pair){ state.tag + 1, 0 };
	} while (!pair_cas_acq_rel(&e->err_state, &state, next));	/* CORE-E5 <-> CORE-E4 */
	failed = err_made(state);
	given = err_given(state);
	for (i = 0; i < FIRST_ERRS; i++) {
		/* CORE-E2 <-> CORE-E1 */
		/* CORE-E8 <-> CORE-E9 */
		kept[n] = xchg_acq_rel(&e->first_err[i], 0);
		if (kept[n])
			n++;
	}
	for (i = 0; i < n; i++) {
		struct error *x = error_of(e, kept[i]);

		/* If it is gone and not counted, the thread that set that is too late. */
		if (load_relaxed(&x->epoch) == state.tag &&
		    (!given || !load_relaxed(&x->gone)) &&
		    (!best || load_relaxed(&x->seq) < load_relaxed(&error_of(e, best)->seq)))
			best = kept[i];
	}
	if (best) {
		store_relaxed(&error_of(e, best)->gone, 1);
		code = error_out(e, best, out);
	} else if (failed > given) {
		/* More ops failed than errors are kept, and the kept ones were reported. */
		code = err(-EIO, "%llu ops failed; their errors were not kept",
			   (unsigned long long)(failed - given));
		if (out) {
			out->code = code;
			snprintf(out->text, sizeof(out->text), "%s", err_text());
		}
	}
	for (i = 0; i < n; i++) {
		if (load_relaxed(&error_of(e, kept[i])->epoch) > state.tag)
			error_back(t, kept[i]);
		else
			error_put(t, kept[i]);
	}
	if (out && code)
		out->count = (unsigned int)failed;
	return code;
}
