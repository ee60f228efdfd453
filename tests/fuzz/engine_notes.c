// SPDX-License-Identifier: Apache-2.0
/*
 * Completion queues, tickets, deadlines, groups, interrupts; threads that attach and detach.
 *
 * The oracles: each op that names a queue arrives there once, complete, with the status of its
 * release; an op whose cancel returned 0 never runs and ends with -ECANCELED; a push is refused
 * if and only if the model's count of the group is at its limit; a group that refused a push
 * reports that it has room; an interrupt ends one wait.
 */
#include "engine.h"

#define ROOM_TAG	(1ull << 32)
#define LATER		(INT64_MAX / 2)

/* No body runs and no other thread works, so each op that was released has ended altogether. */
static bool exact(void)
{
	return w->det && !w->depth;
}

static bool in_flight_of(const struct func *f, u32 g)
{
	return f->group == g + 1 && !f->dropped && w->node[f->node].state == PLACED &&
	       !func_over(f);
}

static void group_model(u32 g, u64 *ops, u64 *cost)
{
	u32 i;

	*ops = *cost = 0;
	for (i = 0; i < w->nfuncs; i++)
		if (in_flight_of(&w->func[i], g)) {
			++*ops;
			*cost += w->func[i].cost;
		}
}

static void group_make(u32 g)
{
	struct pawl_group_limits l = { .size = sizeof(l) };
	struct group *gr = &w->group[g];

	/* One of them has limits. */
	if (g) {
		l.ops = gr->max_ops = 3;
		l.cost = gr->max_cost = 6;
		l.cq = w->queue[0].h;
		l.tag = ROOM_TAG;
	}
	GOOD(!pawl_group_create(w->e, g ? &l : NULL, &gr->h));
}

void notes_begin(void)
{
	u32 i;

	for (i = 0; i < QUEUES; i++)
		GOOD(!pawl_cq_create(w->e, &w->queue[i].h));
	for (i = 0; i < GROUPS; i++)
		group_make(i);
}

/* What else a description says; f is the op's function. */
void describe_notes(struct pawl_op *op, struct func *f)
{
	u8 b = byte(), c = byte();

	if (b & 1) {
		f->queue = 1 + (b >> 1 & 1);
		op->flags |= PAWL_OP_CQ;
		op->cq = w->queue[f->queue - 1].h;
		op->tag = f->id;
	}
	if (b & 4) {
		op->flags |= PAWL_OP_TICKET;
		op->ticket = &f->ticket;
	}
	if (b & 8) {
		op->flags |= PAWL_OP_DEADLINE;
		f->late = w->errors && b & 16;
		op->deadline_ns = f->late ? 1 : LATER;
	}
	if (b & 32) {
		f->group = 1 + (c & 1);
		op->flags |= PAWL_OP_GROUP;
		op->group = w->group[f->group - 1].h;
	}
	if (b & 64) {
		f->cost = c >> 1 & 3;
		op->flags |= PAWL_OP_COST;
		op->cost = f->cost;
	}
}

/* The notes of a launch.  With errors none that could end it before its bodies run. */
void launch_notes(struct pawl_launch *how, struct func *f)
{
	struct pawl_op op = PAWL_OP_INIT;

	describe_notes(&op, f);
	if (w->errors) {
		op.flags &= ~(unsigned int)(PAWL_OP_TICKET | PAWL_OP_GROUP | PAWL_OP_DEADLINE);
		op.ticket = NULL;
		op.group.h = 0;
		op.deadline_ns = 0;
		f->group = 0;
		f->late = false;
	}
	how->flags = op.flags;
	how->cq = op.cq;
	how->tag = op.tag;
	how->deadline_ns = op.deadline_ns;
	how->ticket = op.ticket;
	how->group = op.group;
	how->cost = op.cost;
}

/* Are these ops, which are not placed yet, beyond the limit of their group? */
enum full notes_full(u32 first, u32 n)
{
	u64 ops, cost;
	u32 g, i;

	for (g = 0; g < GROUPS; g++) {
		bool full = false, named = false;

		if (!w->group[g].max_ops)
			continue;
		group_model(g, &ops, &cost);
		for (i = first; i < first + n; i++) {
			if (w->func[i].group != g + 1)
				continue;
			named = true;
			cost += w->func[i].cost;
			full |= ++ops > w->group[g].max_ops ||
				(w->func[i].cost && cost > w->group[g].max_cost);
		}
		/* Ops may complete, or be pushed, before this one is counted. */
		if (named && (!exact() || w->blocks))
			return MAYBE_FULL;
		if (full)
			return FULL;
	}
	return NOT_FULL;
}

/* A push was refused because of its group: there will be a report. */
void notes_refused(void)
{
	w->group[1].refused = true;
	total_refused++;
}

static void arrived(u32 q, const struct pawl_completion *c)
{
	struct func *f;

	if (c->tag == ROOM_TAG) {
		GOOD(!q && !c->status);
		w->group[1].refused = false;
		return;
	}
	GOOD(c->tag < w->nfuncs);
	f = &w->func[c->tag];
	if (f->queue != q + 1 || f->dropped || w->node[f->node].state != PLACED)
		fuzz_broken("func %u arrives in queue %u, and was not pushed with it", f->id, q);
	total_arrived++;
	if (f->arrived++)
		fuzz_broken("func %u arrives twice", f->id);
	/* A launch has no release: the model compares. */
	if (f->oper)
		f->status = c->status;
	if (!func_over(f) || c->status != f->status)
		fuzz_broken("func %u arrives with %d; over %d, with %d", f->id, c->status,
			    func_over(f), f->status);
}

static u32 reap(u32 q, u32 n)
{
	struct pawl_completion done[8];
	int rc = pawl_cq_reap(w->e, w->queue[q].h, done, n), i;

	GOOD(rc >= 0 && rc <= (int)n);
	for (i = 0; i < rc; i++)
		arrived(q, &done[i]);
	return (u32)rc;
}

/* Complete ops that name the queue and were not reaped; all: also those that are in flight. */
static u32 unreaped(u32 q, bool all)
{
	u32 i, n = 0;

	for (i = 0; i < w->nfuncs; i++) {
		struct func *f = &w->func[i];

		n += f->queue == q + 1 && !f->dropped && !f->arrived &&
		     w->node[f->node].state == PLACED && (all || func_over(f));
	}
	return n;
}

void do_queue(void)
{
	u8 b = byte();
	u32 q = b & 1, ready;
	u64 h = w->queue[q].h.h;
	int rc;

	switch (b >> 1 & 3) {
	case 0:
	case 1:
		ready = exact() ? unreaped(q, false) : 0;
		rc = (int)reap(q, 1 + (b >> 3 & 7));
		GOOD(!ready || rc);
		return;
	case 2:
		ready = exact() ? unreaped(q, false) : 0;
		rc = pawl_cq_wait(w->e, w->queue[q].h, b >> 3 & 1);
		/* A body that the wait ran may have destroyed it. */
		if (rc == -ESTALE && w->queue[q].h.h != h)
			return;
		GOOD(rc == 0 || rc == -ETIMEDOUT || (rc == -EBUSY && w->depth));
		GOOD(!ready || !rc);
		return;
	default:
		/* The other one is named by a group. */
		ready = unreaped(1, true);
		rc = pawl_cq_destroy(w->e, w->queue[1].h);
		if (rc)
			GOOD(rc == -EBUSY && (ready || w->depth));
		else
			GOOD(!ready);
		if (rc)
			return;
		GOOD(pawl_cq_destroy(w->e, w->queue[1].h) == -ESTALE);
		GOOD(pawl_cq_wait(w->e, w->queue[1].h, 0) == -ESTALE);
		GOOD(!pawl_cq_create(w->e, &w->queue[1].h));
	}
}

static bool own_frame(const struct func *f)
{
	u32 i;

	for (i = 0; i < me->nframes; i++)
		if (me->frame[i] == f->node)
			return true;
	return false;
}

static struct func *ticket_pick(u8 b)
{
	u32 i, k = b & 7;
	struct func *f = NULL;

	for (i = w->nfuncs; i--; ) {
		if (!w->func[i].ticket.h || w->func[i].dropped ||
		    w->node[w->func[i].node].state != PLACED)
			continue;
		f = &w->func[i];
		if (!k--)
			break;
	}
	return f;
}

static bool began(const struct func *f)
{
	return f->ran || f->stage;
}

void do_ticket(void)
{
	u8 b = byte();
	struct func *f = ticket_pick(b);
	bool over, block;
	int rc;

	if (!f)
		return;
	over = func_over(f);
	switch (b >> 3 & 3) {
	case 0:
		rc = pawl_ticket_state(w->e, f->ticket);
		if (rc == PAWL_TICKET_COMPLETE)
			GOOD(func_over(f));
		else if (rc == PAWL_TICKET_QUEUED)
			GOOD(!w->det || !began(f));
		else
			GOOD(rc == PAWL_TICKET_RUNNING && (!w->det || began(f) || over));
		GOOD(!exact() || (rc == PAWL_TICKET_COMPLETE) == over);
		return;
	case 1:
	case 2:
		/* A canceled op fails, which the model follows in these inputs. */
		if (!w->errors)
			return;
		rc = pawl_cancel(w->e, f->ticket);
		total_canceled += !rc;
		if (!rc)
			store_release(&f->canceled, 1);
		else if (rc == -ESTALE)
			GOOD(load_acquire(&f->released));
		else
			GOOD(rc == -EINPROGRESS && (!w->det || f->ran || over));
		GOOD(!exact() || (rc == -ESTALE) == over);
		return;
	default:
		block = b & 32 && !w->depth;
		if (block)
			auto_begin();
		rc = pawl_ticket_wait(w->e, f->ticket, block ? -1 : 0);
		if (block)
			auto_end();
		if (rc == -EDEADLK || rc == -EBUSY)
			GOOD(rc == -EDEADLK ? own_frame(f) : w->depth);
		else if (rc)
			GOOD(rc == -ETIMEDOUT && !block && !(exact() && over));
		else
			GOOD(func_over(f));
	}
}

static void group_cancel(u32 g)
{
	u32 i;

	/* Which ops have started is known only without workers. */
	if (!w->errors || !w->det)
		return;
	GOOD(!pawl_group_cancel(w->e, w->group[g].h));
	for (i = 0; i < w->nfuncs; i++) {
		struct func *f = &w->func[i];

		if (in_flight_of(f, g) && !f->ran)
			f->group_canceled = true;
	}
}

static void group_wait(u32 g, bool block, u32 what)
{
	u32 i, before = w->nfuncs;
	u64 h = w->group[g].h.h;
	int rc;

	if (block)
		auto_begin();
	rc = pawl_wait(w->e, what, h, block ? -1 : 0, NULL);
	if (block)
		auto_end();
	if (rc == -ESTALE && w->group[g].h.h != h)
		return;
	if (rc) {
		GOOD(rc == -ETIMEDOUT ? !block : rc == -EDEADLK && me->depth);
		return;
	}
	for (i = 0; i < before && what == PAWL_WAIT_GROUP; i++)
		if (in_flight_of(&w->func[i], g))
			fuzz_broken("a wait for group %u returned before func %u was over", g, i);
}

void do_group(void)
{
	u8 b = byte();
	u32 g = b & 1;
	struct group *gr = &w->group[g];
	struct pawl_group_limits l = { .size = sizeof(l) };
	u64 ops, cost, n, c;
	int rc;

	group_model(g, &ops, &cost);
	switch (b >> 1 & 7) {
	case 0:
		GOOD(!pawl_group_count(w->e, gr->h, &n, &c));
		GOOD(!exact() || (n == ops && c == cost));
		return;
	case 1:
	case 2:
		group_cancel(g);
		return;
	case 3:
		group_wait(g, false, PAWL_WAIT_GROUP);
		return;
	case 4:
		group_wait(g, !w->depth, PAWL_WAIT_GROUP);
		return;
	case 5:
		group_wait(g, !w->depth, PAWL_WAIT_ROOM);
		return;
	case 6:
		if (!g)
			return;
		l.ops = gr->max_ops = 1 + (b >> 4 & 7);
		l.cost = gr->max_cost = 4 + (b >> 6);
		GOOD(!pawl_group_limit(w->e, gr->h, &l));
		return;
	default:
		rc = pawl_group_destroy(w->e, gr->h);
		if (rc) {
			/* Or its report is not reaped. */
			GOOD(rc == -EBUSY && (ops || g || w->depth || !w->det));
			return;
		}
		/* Again: with workers they may have ended meanwhile. */
		group_model(g, &ops, &cost);
		GOOD(!ops);
		GOOD(pawl_group_count(w->e, gr->h, &n, NULL) == -ESTALE);
		GOOD(pawl_group_cancel(w->e, gr->h) == -ESTALE);
		gr->refused = false;
		group_make(g);
	}
}

/* Interrupts; the slots of threads. */
void do_thread(void)
{
	u8 b = byte();

	switch (b & 3) {
	case 0:
	case 1:
		pawl_interrupt(w->e);
		w->interrupted = true;
		return;
	case 2:
		GOOD(!pawl_thread_attach(w->e));
		return;
	default:
		GOOD(pawl_thread_detach(w->e) == (me->depth ? -EDEADLK : 0));
	}
}

static void held_body(struct pawl_run *run, void *arg)
{
	store_release((u64 *)arg, run->token.h);
}

/* An interrupt that no wait has consumed ends this one; and no other does. */
static void last_interrupt(void)
{
	struct pawl_op op = PAWL_OP_INIT;
	u64 token = 0;
	pawl_var_t v;
	int rc;

	if (w->naive)
		return;
	GOOD(!pawl_var_create(w->e, &v));
	op.async_fn = held_body;
	op.arg = &token;
	op.prop = PAWL_ASYNC;
	op.writes = &v;
	op.nwrites = 1;
	GOOD(!pawl_push(w->e, &op) && token);
	rc = pawl_wait(w->e, PAWL_WAIT_READABLE | PAWL_WAIT_INTR, v.h,
		       w->interrupted ? -1 : 1000, NULL);
	if (rc != (w->interrupted ? -EINTR : -ETIMEDOUT))
		fuzz_broken("a wait returned %d, and an interrupt was%s pending", rc,
			    w->interrupted ? "" : " not");
	GOOD(!pawl_complete(w->e, (pawl_token_t){ token }, 0, NULL));
	/* The op that the wait left behind is in the window. */
	quiesce();
	GOOD(!pawl_var_delete(w->e, v, NULL, NULL));
	quiesce();
}

/* Everything that was pushed is complete. */
void notes_end(void)
{
	u64 n, c;
	u32 i;

	for (i = 0; i < GROUPS; i++) {
		GOOD(!pawl_group_wait(w->e, w->group[i].h, -1));
		GOOD(!pawl_group_count(w->e, w->group[i].h, &n, &c) && !n && !c);
	}
	for (i = 0; i < QUEUES; i++) {
		while (reap(i, 4))
			;
		n = unreaped(i, true);
		if (n)
			fuzz_broken("%u ops did not arrive in queue %u", (u32)n, i);
	}
	if (w->group[1].refused)
		fuzz_broken("a group refused a push, and did not report that it has room");
	for (i = 0; i < GROUPS; i++)
		GOOD(!pawl_group_destroy(w->e, w->group[i].h));
	for (i = 0; i < QUEUES; i++)
		GOOD(!pawl_cq_destroy(w->e, w->queue[i].h));
	last_interrupt();
}
