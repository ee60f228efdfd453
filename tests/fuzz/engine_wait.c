// SPDX-License-Identifier: Apache-2.0
/* Calls that wait, run ready ops, query, take errors, or stop the engine. */
#include "engine.h"

void auto_begin(void)
{
	fetch_add_seq_cst(&w->autos, 1);
	smp_mb();
	for (u32 i = 0; i < w->nfuncs; i++)
		if (load_seq_cst(&w->func[i].tstate) == 1)
			complete(&w->func[i]);
}

void auto_end(void)
{
	fetch_add_seq_cst(&w->autos, -1u);
}

static bool may_block(void)
{
	return !w->depth;
}

/* At a window that blocks, a body that pushes may wait for ops behind itself. */
bool may_push(void)
{
	return !w->blocks || may_block();
}

/* Do this first, since completions run bodies, which make calls themselves. */
bool push_begin(void)
{
	if (!(w->naive || w->blocks) || !may_block())
		return false;
	auto_begin();
	return true;
}

void push_end(bool begun)
{
	if (begun)
		auto_end();
}

u64 in_flight(void)
{
	struct pawl_stats st = { .size = sizeof(st) };

	GOOD(!pawl_stats(w->e, &st));
	return st.pushed - st.completed;
}

/* Complete everything that was pushed, without taking an error. */
void quiesce(void)
{
	auto_begin();
	for (;;) {
		int rc;

		rc = pawl_run_one(w->e);
		GOOD(rc >= 0);
		if (!rc) {
			if (!in_flight())
				break;
			sched_yield();
		}
	}
	auto_end();
}

static u32 named(const struct pawl_error *err)
{
	u32 id;

	if (sscanf(err->text, "f%u", &id) == 1 || sscanf(err->op, "f%u", &id) == 1)
		return id;
	return ~0u;
}

/* Check that all accesses (or all writes) of the slot among the first n pushes are complete. */
static void check_over(u32 s, u32 n, bool reads_too)
{
	u32 i, k;

	for (i = 0; i < n; i++) {
		struct node *nd = &w->node[w->order[i]];

		if (load_acquire(&nd->over) || nd->silent)
			continue;
		for (k = 0; k < nd->n; k++)
			if (nd->slot[k] == s && (nd->write[k] || reads_too))
				fuzz_broken("a wait for slot %u came back before node %u was over", s,
					    w->order[i]);
	}
}

static bool held(u32 s)
{
	u32 i, k;

	for (i = 0; i < me->nframes; i++) {
		struct node *nd = &w->node[me->frame[i]];

		for (k = 0; k < nd->n; k++)
			if (nd->slot[k] == s)
				return true;
	}
	return false;
}

static bool all_over(u32 n)
{
	for (u32 i = 0; i < n; i++)
		if (!load_acquire(&w->node[w->order[i]].over) && !w->node[w->order[i]].silent)
			return false;
	return true;
}

static void do_wait(bool write)
{
	struct pawl_error err = { 0 };
	u8 b = byte(), how = b >> 6;
	u16 s;
	struct slot *v;
	s64 limit = how == 0 ? 0 : how == 1 ? 1 : -1;
	u32 before, last;
	bool block;
	struct log *l;
	int rc;

	if (!w->det && w->errors)
		quiesce();
	block = limit < 0;
	if (block && !may_block()) {
		limit = 0;
		block = false;
	}
	if (block)
		auto_begin();
	s = slot_pick(b);
	v = &w->slot[s];
	before = w->norder;
	last = v->last;
	v->waits++;
	if (w->notes && how == 3)
		rc = pawl_wait(w->e, (write ? PAWL_WAIT_WRITABLE : PAWL_WAIT_READABLE) |
			       PAWL_WAIT_INTR, v->v.h, limit, &err);
	else
		rc = write ? pawl_wait_writable(w->e, v->v, limit, &err) :
			     pawl_wait_readable(w->e, v->v, limit, &err);
	v->waits--;
	if (block)
		auto_end();
	if (v->dead && rc == -ESTALE)
		return;			/* a body that the wait ran deleted it */
	if (rc == -EDEADLK) {
		GOOD(held(s));
		return;
	}
	if (rc == -EINTR) {
		/* One interrupt ends one wait. */
		GOOD(w->interrupted && !err.code);
		w->interrupted = false;
		total_interrupts++;
		v->gave_up = true;
		return;
	}
	/* Else it is the error of an op whose deadline had passed. */
	if (rc == -ETIMEDOUT && !err.code) {
		GOOD(!block);
		v->gave_up |= limit != 0;
		if (w->det && !limit && !v->gave_up && !v->waits) {
			/* An incomplete access must have been the reason. */
			u32 i, k, busy = 0;

			for (i = 0; i < before; i++) {
				struct node *nd = &w->node[w->order[i]];

				for (k = 0; k < nd->n; k++)
					busy += nd->slot[k] == s && (nd->write[k] || write) &&
						!load_acquire(&nd->over);
			}
			GOOD(busy);
		}
		return;
	}
	GOOD(rc == 0 || (err.code == rc && w->errors));
	check_over(s, before, write);
	l = note(L_TAKE, s, rc);
	l->last = last;
	/* Behind the op that an earlier wait left, it waits for what was pushed meanwhile. */
	l->count = v->gave_up ? v->last : last;
	l->by = rc ? named(&err) : ~0u;
}

void do_wait_readable(void)
{
	do_wait(false);
}

void do_wait_writable(void)
{
	do_wait(true);
}

void do_wait_all(void)
{
	struct pawl_error err = { 0 };
	u8 b = byte();
	bool block = b & 1;
	u32 before, i;
	struct log *l;
	int rc;

	if (me->depth) {
		GOOD(pawl_wait_all(w->e, b & 1 ? -1 : 0, &err) == -EDEADLK);
		return;
	}
	if (!w->det && w->errors)
		quiesce();
	block &= may_block();
	if (block)
		auto_begin();
	before = w->norder;
	rc = pawl_wait_all(w->e, block ? -1 : 0, &err);
	if (block)
		auto_end();
	/* Else it is the error of an op whose deadline had passed. */
	if (rc == -ETIMEDOUT && !err.code) {
		GOOD(!block);
		for (i = 0; w->det && i < w->nslots; i++)
			if (w->slot[i].gave_up || w->slot[i].waits)
				return;
		for (i = 0; w->det && i < before; i++)
			if (!load_acquire(&w->node[w->order[i]].over) || w->node[w->order[i]].silent)
				return;
		GOOD(!w->det || w->depth);
		return;
	}
	GOOD(rc == 0 || (err.code == rc && w->errors));
	if (!all_over(before))
		fuzz_broken("a wait for all came back before all was over");
	l = note(L_ALL, 0, rc);
	l->by = rc ? named(&err) : ~0u;
	l->count = err.count;
}

void do_run_one(void)
{
	u32 i, tokens = 0;
	int rc;

	rc = pawl_run_one(w->e);
	GOOD(rc == 0 || rc == 1);
	if (rc || !w->det || w->depth)
		return;
	for (i = 0; i < w->nfuncs; i++)
		tokens += load_acquire(&w->func[i].tstate) == 1;
	/* Nothing is ready, and nothing runs: the remaining ops wait for a completion. */
	if (!tokens && !all_over(w->norder))
		fuzz_broken("an op is lost: nothing is ready, and not all is over");
}

static bool done_now(void *arg)
{
	return ++*(u32 *)arg > 3;
}

void do_run_until(void)
{
	u32 looks = 0;
	int rc;

	rc = pawl_run_until(w->e, done_now, &looks, 0);
	GOOD(rc == 0 || rc == -ETIMEDOUT);
	GOOD(pawl_run_until(w->e, NULL, NULL, 0) == -EINVAL);
}

void do_clear(void)
{
	struct pawl_error err = { 0 };
	u8 b = byte();
	u16 s = slot_pick(b);
	struct slot *v = &w->slot[s];
	struct log *l;
	u32 i, k;
	int rc;

	if (!w->det && w->errors)
		quiesce();
	/* While writes wait, the engine chooses the version that counts. */
	for (i = 0; i < w->norder; i++) {
		struct node *nd = &w->node[w->order[i]];

		for (k = 0; k < nd->n; k++)
			if (nd->slot[k] == s && nd->write[k] && !load_acquire(&nd->over))
				return;
	}
	if (v->gave_up || v->waits)
		return;
	if (b & 64) {
		rc = pawl_var_error(w->e, v->v, &err);
		GOOD(rc <= 0 && rc == err.code && (w->errors || !rc));
	} else {
		GOOD(!pawl_var_clear(w->e, v->v));
		l = note(L_CLEAR, s, 0);
		l->last = v->last;
	}
}

void do_query(void)
{
	u8 b = byte();
	u16 s = slot_pick(b);
	struct slot *v = &w->slot[s];
	struct pawl_error err;
	u64 n = 0, before = w->det ? v->version : 0;
	int rc;

	if (b & 64) {
		rc = pawl_var_error(w->e, v->v, &err);
		GOOD(rc == 0 || (w->errors && rc == err.code));
		return;
	}
	GOOD(!pawl_var_version(w->e, v->v, &n));
	GOOD(n <= v->pushed);
	/* The rest of a release function runs between leave() and retire(). */
	if (w->det && !w->depth)
		GOOD(n == before);
}

void do_look(void)
{
	int rc;

	switch (byte() % 5) {
	case 0:
		in_flight();
		break;
	case 1:
		pawl_dump(w->e, null_fd);
		break;
	case 2:
		rc = pawl_trace_start(w->e, 64);
		GOOD(rc == (w->traced ? -EALREADY : 0) || rc == -ENOSYS);
		w->traced = true;
		GOOD(pawl_trace_start(w->e, 0) < 0);
		break;
	case 3:
		rc = pawl_trace_stop(w->e);
		GOOD(rc == 0 || rc == -ENOSYS);
		w->traced = false;
		break;
	default:
		rc = pawl_trace_write(w->e, "/dev/null");
		GOOD(rc == (w->traced ? -EBUSY : 0) || rc == -ENOSYS);
	}
}

void do_stop(void)
{
	u8 b = byte();
	u32 before;

	if (me->depth) {
		GOOD(pawl_engine_stop(w->e) == -EDEADLK && pawl_engine_start(w->e) == -EDEADLK);
		GOOD(pawl_engine_destroy(w->e) == -EDEADLK);
		return;
	}
	if (!may_block())
		return;
	if (b % 4 == 0) {
		GOOD(!pawl_engine_start(w->e));
		return;
	}
	auto_begin();
	before = w->norder;
	GOOD(!pawl_engine_stop(w->e));
	if (!all_over(before))
		fuzz_broken("the engine stopped before all was over");
	/* A thread that only waits, or is stopped by the window, would wait for workers. */
	if (b & 4 || w->blocks)
		GOOD(!pawl_engine_start(w->e));
	auto_end();
}
