// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: a run queue holds ready work, spread over the threads that make it ready and those
 * that run it.  Here: its lanes, pushing, hand-off, statistics; taking is in take.c.
 *
 * Structures: a queue has a lane per thread slot, created when first needed: the ring with the
 * priority-0 work that the thread made ready, and the thread's hoard.  A bitmap (map) marks the
 * lanes that may have work.  Three priority queues hold the rest: HIGH (above 0, and EXEC_FRONT
 * above all), LOW (below 0), and ZERO for priority 0 when a ring cannot grow.
 *
 * The bitmap.  Only the thread of a slot sets or clears the bit of its lane.  The thread sets
 * it before it publishes work in its ring or its hoard, and clears it only when both are
 * empty: before it sleeps, and when it leaves.  So a lane with work is always marked, also
 * while any thread is stopped, and threads that have left or sleep cost nothing.
 *
 * Ordering: labels EXEC-Q* here and in take.c, EXEC-R* and EXEC-H* in ring.h, EXEC-P* in park.c.
 *
 * Progress: stated at each function.  No thread waits for another one.
 *
 * Lifetime: lanes and rings exist until exec_destroy().  The next user of a slot inherits the
 * lane of a thread that left; until then all threads serve what is left in it.
 */
#include <stdlib.h>
#include <string.h>
#include <exec/internal.h>

#define PRIO_FRONT	((s64)INT32_MAX + 1)

/* Out of line: it runs once in many takes.  Progress: wait-free. */
__noinline void wait_taken(struct waits *w, u64 sample, u64 upto)
{
	u64 spent = ((cycles() >> 2) - (sample >> WAIT_KEY_BITS)) & (UINT64_MAX >> WAIT_KEY_BITS);
	u64 ns = spent * 4000 / exec_cycles_per_us();
	u64 n = (upto - load_relaxed(&w->upto)) & RING_POS,
	    *bucket = &w->bucket[wait_bucket(ns)];

	store_relaxed(&w->upto, upto);
	store_relaxed(&w->sum, load_relaxed(&w->sum) + n * ns);
	store_relaxed(bucket, load_relaxed(bucket) + n);
	/* EXEC-T1 <-> EXEC-T2: the taker of the next sample adds to these sums. */
	store_release(&w->sample, 0);
}

/* NULL: no memory.  Progress: blocking (allocates), once per queue and slot. */
static __cold struct exec_lane *lane_add(struct exec_queue *q, u32 slot)
{
	struct exec_lane *l;

	if (pool_commit_hook("lane", sizeof(*l)))
		return NULL;
	l = aligned_alloc(CACHELINE, sizeof(*l));
	if (!l)
		return NULL;
	memset(l, 0, sizeof(*l));
	if (ring_init(&l->ring)) {
		free(l);
		return NULL;
	}
	/* EXEC-Q3 <-> EXEC-Q4.  (Consumers read it after its bit.) */
	store_release(&q->lanes[slot], l);
	return l;
}

int exec_thread_reserve(struct exec *x, struct exec_thread *t, u32 ready)
{
	u32 i;

	for (i = 0; i < x->nqueues; i++) {
		struct exec_lane *l = load_relaxed(&x->queues[i]->lanes[t->slot]);

		if (!l)
			l = lane_add(x->queues[i], t->slot);
		if (!l || !ring_reserve(&l->ring, ready))
			return -ENOMEM;
	}
	return 0;
}

/* Return the lane of t, which is then marked.  NULL: no memory.  Progress: as lane_add(). */
struct exec_lane *lane_mine(struct exec_queue *q, struct exec_thread *t)
{
	struct exec_lane *l = load_relaxed(&q->lanes[t->slot]);
	u64 *map = &q->map[t->slot >> 6], bit = 1ull << (t->slot & 63);

	if (unlikely(!l)) {
		l = lane_add(q, t->slot);
		if (!l)
			return NULL;
	}
	/*
	 * Relaxed: only this thread changes the bit.
	 * EXEC-Q1 <-> EXEC-Q2: a marked lane is initialized.  seq_cst for the check before a
	 * sleep: EXEC-P1 <-> EXEC-P2.
	 */
	if (!(load_relaxed(map) & bit))
		fetch_or_seq_cst(map, bit);
	return l;
}

/* t sleeps or leaves: clear the marks of its empty lanes.  Progress: wait-free. */
void lanes_unmark_empty(struct exec *x, struct exec_thread *t)
{
	u64 bit = 1ull << (t->slot & 63);
	u32 i;

	for (i = 0; i < x->nqueues; i++) {
		struct exec_queue *q = x->queues[i];
		struct exec_lane *l = load_relaxed(&q->lanes[t->slot]);
		u64 *map = &q->map[t->slot >> 6];
		bool holds;

		if (!l || !(load_relaxed(map) & bit))
			continue;
		/* EXEC-R7 <-> EXEC-H7: makes the mark of a batch's lane visible. */
		holds = lane_holds(l, load_acquire(&l->ring.head));
		if (BUSTED(REST_BLIND))
			holds = false;
		if (holds)
			continue;
		/*
		 * EXEC-Q5 <-> EXEC-Q2: a thread that finds the bit cleared finds the mark of
		 * the lane to which a batch moved the work.  With the old bit it checks an
		 * empty lane.
		 */
		fetch_and_release(map, ~bit);
	}
	t->to_q = NULL;
}

/*
 * The rings of t that are empty give their memory back.  False: some are not empty.
 * Progress: wait-free, and system calls.
 */
static bool lanes_shrink(struct exec *x, struct exec_thread *t)
{
	bool all = true;
	u32 i;

	for (i = 0; i < x->nqueues; i++) {
		/* Relaxed: only the slot's thread makes its lanes. */
		struct exec_lane *l = load_relaxed(&x->queues[i]->lanes[t->slot]);

		if (l && !ring_shrink(&l->ring))
			all = false;
	}
	return all;
}

/* There was a trim.  Progress: as lanes_shrink(). */
static __cold __noinline void lanes_trim(struct exec *x, struct exec_thread *t)
{
	u64 trims = load_relaxed(&x->trims);

	if (lanes_shrink(x, t))
		t->trims = trims;
}

void exec_trim(struct exec *x, struct exec_thread *t)
{
	/* Relaxed: the other threads do the same when they come to read it. */
	fetch_add_relaxed(&x->trims, 1);
	lanes_trim(x, t);
}

void lanes_leave(struct exec *x, struct exec_thread *t)
{
	lanes_unmark_empty(x, t);
	lanes_shrink(x, t);
}

static void pq_push(struct exec_queue *q, struct exec_thread *t, u32 k, s64 prio, u32 work)
{
	/* Relaxed: a later push draws a later ticket. */
	u64 ticket = fetch_add_relaxed(&q->ticket[k], 1),
	    order = ticket << ORDER_SLOT | t->slot;

	if (wait_due(ticket))
		wait_begin_shared(&q->waits[k], work);
	/*
	 * The count goes first, so that it never hides a queued entry.  A thread that
	 * synchronizes with what this thread does later sees both; so the count needs no order.
	 */
	fetch_add_relaxed(&q->n[k], 1);
	/* A node exists (exec_create()); if the push fails, other threads are moving it. */
	while (unlikely(!prioq_push(q->pq[k], &t->nodes, prio, order, work)))
		cpu_relax();
}

/* exec_push() without its fast path, a ring of t that has room and that t last pushed to. */
static __noinline void push_slow(struct exec_queue *q, struct exec_thread *t, u32 work,
				 s32 prio, u32 flags)
{
	u32 k;

	if (unlikely(load_relaxed(&q->x->trims) != t->trims))
		lanes_trim(q->x, t);
	if (likely(!prio && !(flags & EXEC_FRONT))) {
		/* Work of this thread in ZERO goes before what it pushes later. */
		if (t->to_q != q && likely(!load_relaxed(&q->n[PQ_ZERO]))) {
			t->to = lane_mine(q, t);
			t->to_q = t->to ? q : NULL;
		}
		if (likely(t->to_q == q) && likely(ring_push(&t->to->ring, work)))
			return;
		if (t->to_q == q)
			t->to_q = NULL;
		pq_push(q, t, PQ_ZERO, 0, work);
	} else if (flags & EXEC_FRONT) {
		pq_push(q, t, PQ_HIGH, PRIO_FRONT, work);
	} else {
		k = prio > 0 ? PQ_HIGH : PQ_LOW;
		if (BUSTED(HIGH_IS_LOW))
			k = PQ_LOW;
		pq_push(q, t, k, prio, work);
	}
	smp_mb();	/* EXEC-P1 <-> EXEC-P2, instead of the exchange of ring_put() */
}

/* May the fast path push the work?  It calls no function, so it saves no registers. */
static inline bool push_quick(const struct exec_queue *q, const struct exec_thread *t, s32 prio,
			      u32 flags)
{
	return likely(!prio && !flags && t->to_q == q && !ring_full(&t->to->ring) &&
		      !ring_put_sampled(&t->to->ring));
}

/* t has pushed to q: wake a sleeping thread, if any. */
static __always_inline_fn void push_wake(struct exec_queue *q, struct exec_thread *t)
{
	/*
	 * EXEC-P1 <-> EXEC-P2: see park.c; also for drive: see drive_change().
	 * EXEC-W8 <-> EXEC-W7: with ATTN_START, ARMED.
	 */
	if (unlikely(load_seq_cst(&q->group.attn)) || unlikely(drive_attn(q, load_seq_cst(&q->drive))))
		queue_start_or_wake(q, t);
}

void exec_push(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio, u32 flags)
{
	BUG_ON1(!work || work > SLOT_WORK);
	PROBE4(ready, t->id, work, t->slot, q->number);
	if (push_quick(q, t, prio, flags))
		ring_put(&t->to->ring, work);
	else
		push_slow(q, t, work, prio, flags);
	push_wake(q, t);
}

void exec_push_more(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio, u32 flags)
{
	/* If a thread sleeps already, wake it now instead of in exec_pushed(). */
	if (unlikely(!push_quick(q, t, prio, flags) || load_relaxed(&q->group.attn) ||
		     drive_attn(q, load_relaxed(&q->drive)))) {
		exec_push(q, t, work, prio, flags);
		return;
	}
	PROBE4(ready, t->id, work, t->slot, q->number);
	ring_put_more(&t->to->ring, work);
}

void exec_pushed(struct exec_queue *q, struct exec_thread *t)
{
	smp_mb();	/* EXEC-P1 <-> EXEC-P2, instead of the exchange of ring_put() */
	push_wake(q, t);
}

/* Progress: lock-free. */
bool exec_handoff(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio)
{
	/* The edges that made `work` ready make all earlier pushes visible here. */
	if (!t->budget || !thread_serves(t, q) || !thread_goes_first(q, t, prio)) {
		exec_push(q, t, work, prio, 0);
		return false;
	}
	if (t->budget != EXEC_UNLIMITED)
		t->budget--;
	t->takes++;
	count(&t->handed);
	PROBE4(ready, t->id, work, t->slot, q->number);
	return true;
}

static void waits_add(struct exec_queue_stats *s, const struct waits *w)
{
	u32 i;

	s->wait_ns += load_relaxed(&w->sum);
	for (i = 0; i < WAIT_BUCKETS; i++)
		s->wait[i] += load_relaxed(&w->bucket[i]);
}

/* Progress: wait-free. */
void exec_queue_stats(struct exec_queue *q, struct exec_queue_stats *s)
{
	u32 i, k;

	BUILD_BUG_ON(ARRAY_SIZE(s->wait) != WAIT_BUCKETS);
	memset(s, 0, sizeof(*s));
	s->name = q->name;
	s->number = q->number;
	s->workers = load_relaxed(&q->alive);
	for (i = 0; i < slots_end(q->x); i++) {
		/* EXEC-Q4 <-> EXEC-Q3 */
		struct exec_lane *l = load_acquire(&q->lanes[i]);
		u64 head, tail, hoard;

		if (!l)
			continue;
		/* A taker may be ahead of the tail that its producer stores. */
		head = ring_pos(load_relaxed(&l->ring.head));
		tail = load_relaxed(&l->ring.tail);
		hoard = load_relaxed(&l->hoard.word);
		s->pushed += tail;
		s->depth += (s64)((tail - head) << (64 - RING_POS_BITS)) > 0 ?
			    (tail - head) & RING_POS : 0;
		s->depth += hoard_empty(hoard) ? 0 : hoard_n(hoard) - hoard_next(hoard);
		waits_add(s, &l->ring.waits);
	}
	for (k = 0; k < PQS; k++) {
		s->pushed += load_relaxed(&q->ticket[k]);
		s->depth += load_relaxed(&q->n[k]);
		waits_add(s, &q->waits[k]);
	}
}

const char *exec_name(const struct exec *x)
{
	return x->name;
}

struct exec_queue *exec_queue_at(struct exec *x, u32 i)
{
	return i < x->nqueues ? x->queues[i] : NULL;
}
