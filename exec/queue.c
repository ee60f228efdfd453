// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: run queues: ready work in exact order, spread over the threads that make
 * it ready and those that run it.
 *
 * Structures: a queue has, per thread slot and made when it is first needed, a lane:
 * the ring of the priority-0 work that the thread made ready, and its hoard.  Three
 * priority queues take the rest: HIGH (above 0, and EXEC_FRONT above all), LOW (below
 * 0), and ZERO for priority 0 when a ring cannot grow.  If they get no memory either,
 * there is a list that needs none (late).
 *
 * Order.  An element is before another if its push ended before the other's began. Then
 * its stamp is not larger, and smaller if it is in another ring (stamp_now(); where it is by
 * the clock, because an element takes longer to another thread than a unit), and whoever
 * sees the other one sees it too, or that it was taken.  queue_take() therefore chooses in
 * two steps: a scan finds the candidate with the smallest stamp; then, having seen the
 * candidate, it looks again at all that would go first: HIGH, the other rings, and ZERO.  A
 * push that ended before the candidate's began is visible in this second look; so if it
 * finds nothing better, the candidate is a correct choice, else what it found is the new
 * candidate, with a smaller stamp.
 *
 * Batches.  When recent works ran short, a thread that takes from a foreign ring takes
 * more by one CAS, limited to what was there before the second look and to stamps not
 * above the heads of all other rings, and runs them next; and only if there is nothing in
 * ZERO.  So what comes later is not before them: with one consumer the order stays exact.
 * With several, work of a batch waits while others run what was pushed after it: by at
 * most EXEC_BATCH - 1 places in front of each.  A hoard can be stolen from, which is done
 * last, but before LOW.
 *
 * Ordering: labels EXEC-Q* here, EXEC-R* and EXEC-H* in ring.h, EXEC-P* in park.c.
 *
 * Progress: at each function.  No thread waits for another one.
 *
 * Lifetime: lanes and rings stay until exec_destroy(); a lane whose thread left is
 * inherited by the next user of the slot, and meanwhile served by all.
 *
 * References: Documentation on run queues; the kernel's per-CPU run queues.
 */
#include <stdlib.h>
#include <string.h>
#include <exec/internal.h>

#define PRIO_FRONT	((s64)INT32_MAX + 1)

struct pick {
	struct exec_lane *lane;	/* NULL: nothing */
	struct ring_look look;
	u64 tail;		/* of lane's ring, read before the other rings were looked at */
	u64 limit;		/* no other ring's head has an earlier stamp */
};

/* EXEC-Q1 <-> EXEC-Q2: a lane in the list is complete. */
void lane_link(struct exec_queue *q, struct exec_lane *l)
{
	u32 i = fetch_add_seq_cst(&q->nlanes, 1);

	/* seq_cst for sleepers that look again: EXEC-P1 <-> EXEC-P2. */
	(void)xchg_seq_cst(&q->list[i], l);
}

/* NULL: no memory.  Progress: blocking (allocates), once per queue and slot. */
struct exec_lane *lane_add(struct exec_queue *q, u32 slot)
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
	/* Relaxed: its owner's; a helper has it from the owner's claim (EXEC-R7). */
	store_relaxed(&q->lanes[slot], l);
	lane_link(q, l);
	return l;
}

static __noinline void hoard_help(struct exec_queue *q, struct exec_lane *l, u64 head)
{
	/* Relaxed: the claim was read with acquire (EXEC-R7), and came after the lane. */
	struct exec_lane *c = load_relaxed(&q->lanes[ring_claimer(head) - 1]);

	hoard_open(&c->hoard, &l->ring.head, head);
}

/* A batch is half done: its taker may be stopped, so open its hoard. */
static inline void lane_help(struct exec_queue *q, struct exec_lane *l, u64 head)
{
	if (unlikely(ring_claimer(head)))
		hoard_help(q, l, head);
}

/*
 * Look at all rings but p->lane; keep the smallest stamp if it is below p's.  True: p
 * has changed.
 */
static __always_inline_fn bool scan(struct exec_queue *q, struct pick *p)
{
	u32 i, n = load_relaxed(&q->nlanes);
	struct exec_lane *own = p->lane;
	u64 next = p->lane ? stamp_last(p->look.stamp) : 0;

	for (i = 0; i < n; i++) {
		struct exec_lane *l = lane_at(q, i);
		struct ring_look look;

		/* NULL: nothing can have been pushed to it yet. */
		if (l == own || !l)
			continue;
		if (!ring_peek(&l->ring, &look)) {
			lane_help(q, l, look.head);
			continue;
		}
		lane_help(q, l, look.head);
		if (!p->lane || stamp_before(look.stamp, p->look.stamp)) {
			next = p->lane ? p->look.stamp : stamp_last(look.stamp);
			p->lane = l;
			p->look = look;
		} else if (stamp_before(look.stamp, next)) {
			next = look.stamp;
		}
	}
	p->limit = next;
	return p->lane != own;
}

static u32 pq_pop(struct exec_queue *q, struct exec_thread *t, u32 k)
{
	s64 prio;
	u32 w = prioq_pop(q->pq[k], &t->nodes, &prio);

	if (w)
		fetch_add_relaxed(&q->n[k], -1u);
	return w;
}

/* The entry that was looked at, unless another took it. */
static u32 pq_pop_seen(struct exec_queue *q, struct exec_thread *t, u32 k, s64 prio, u64 order)
{
	u32 w = prioq_pop_this(q->pq[k], &t->nodes, prio, order);

	if (w)
		fetch_add_relaxed(&q->n[k], -1u);
	return w;
}

/*
 * The system refuses memory for rings and nodes: work is kept in a list that needs none,
 * so that nothing is lost.  It counts as priority 0, and is taken last come first.
 * Progress: lock-free.
 */
static void late_push(struct exec_queue *q, u32 work)
{
	u64 top = load_relaxed(&q->late), new;

	fetch_add_relaxed(&q->n[PQ_ZERO], 1);
	do {
		store_relaxed(&q->x->late_next[work], (u32)top);
		new = ((top >> 32) + 1) << 32 | work;
	} while (!cas_release_relaxed(&q->late, &top, new));	/* EXEC-Q7 <-> EXEC-Q8 */
}

static u32 late_pop(struct exec_queue *q)
{
	u64 top = load_acquire(&q->late), new;

	do {
		if (!(u32)top)
			return 0;
		/* If another took it meanwhile, the next is stale, and the tag tells. */
		new = ((top >> 32) + 1) << 32 | load_relaxed(&q->x->late_next[(u32)top]);
		/*
		 * EXEC-Q8 <-> EXEC-Q7, when it fails.  When not, the load before acquired the
		 * same tagged value, and a read-modify-write goes on with the pushers' release.
		 */
	} while (!cas_acq_rel_acquire(&q->late, &top, new));
	fetch_add_relaxed(&q->n[PQ_ZERO], -1u);
	return (u32)top;
}

static void pq_push(struct exec_queue *q, struct exec_thread *t, u32 k, s64 prio, u64 order,
		    u32 work)
{
	/*
	 * Counted first, so that an entry that is in the queue is never hidden by the count.
	 * Who knows by any edge of what this thread does later knows of both; so the count
	 * needs no order of its own.
	 */
	fetch_add_relaxed(&q->n[k], 1);
	if (unlikely(!prioq_push(q->pq[k], &t->nodes, prio, order, work))) {
		fetch_add_relaxed(&q->n[k], -1u);
		if (!BUSTED(LATE_LOST))
			late_push(q, work);
	}
}

/*
 * After the rings, so that a batch that moved work meanwhile cannot hide it; and its taker's lane
 * may be newer than the look at them.  Progress: wait-free.
 */
static inline bool hoards_empty(struct exec_queue *q)
{
	u32 i, n = load_relaxed(&q->nlanes);

	/* A single lane's owner takes from no other ring. */
	for (i = 0; n > 1 && i < n; i++) {
		struct exec_lane *l = lane_at(q, i);

		/* Relaxed: the head that was read has the hoard as it was filled (EXEC-R7). */
		if (l && !hoard_empty(load_relaxed(&l->hoard.word)))
			return false;
	}
	return true;
}

/*
 * Nothing of priority 0 in rings and hoards.  own: NULL, or the caller's lane, of which it knows the
 * tail.  Progress: lock-free.
 */
static bool lanes_empty(struct exec_queue *q, const struct exec_lane *own)
{
	u32 i, n = load_relaxed(&q->nlanes);
	bool empty = true;

	for (i = 0; i < n && empty; i++) {
		struct exec_lane *l = lane_at(q, i);
		struct ring_look look;

		if (!l)
			continue;
		if (l == own) {
			look.head = load_acquire(&l->ring.head);	/* EXEC-R7 <-> EXEC-H7 */
			empty = look.head == load_relaxed(&l->ring.tail);
			continue;
		}
		empty = !ring_peek(&l->ring, &look);
		lane_help(q, l, look.head);
	}
	return empty && hoards_empty(q);
}

static bool pq_empty(struct exec_queue *q, u32 k)
{
	s64 prio;
	u64 order;

	return !load_relaxed(&q->n[k]) || !prioq_peek(q->pq[k], &prio, &order);
}

static bool nothing_above_low(struct exec_queue *q)
{
	return pq_empty(q, PQ_HIGH) && lanes_empty(q, NULL) && pq_empty(q, PQ_ZERO) &&
	       !(u32)load_relaxed(&q->late);
}

/* Progress: lock-free. */
bool queue_empty(struct exec_queue *q)
{
	return nothing_above_low(q) && pq_empty(q, PQ_LOW);
}

/*
 * Is there anything in q that is worth a look?  Of what a producer writes, this reads
 * one line per ring, the slot that comes next.  A poller stays in here until something
 * comes; queue_take() then runs as it does when there is always something, with
 * its branches predicted.  Progress: wait-free.
 */
static inline bool queue_hint(struct exec_queue *q, u32 how)
{
	u32 i, n = load_relaxed(&q->nlanes);

	for (i = 0; i < n; i++) {
		struct exec_lane *l = lane_at(q, i);
		u64 head, arr, w;

		if (!l)
			continue;
		/* Relaxed: if it is newer than the array, this look was for nothing. */
		head = load_relaxed(&l->ring.head);
		arr = load_acquire(&l->ring.arr);	/* EXEC-R8 <-> EXEC-R9 */
		w = load_relaxed(ring_slot_at(arr, ring_pos(head)));
		if (slot_holds(w, arr, ring_pos(head)) || ring_claimer(head))
			return true;
		if ((how & LOOK_DEEP) && !hoard_empty(load_relaxed(&l->hoard.word)))
			return true;
	}
	return load_relaxed(&q->n[PQ_HIGH]) | load_relaxed(&q->n[PQ_ZERO]) |
	       load_relaxed(&q->n[PQ_LOW]);
}

/* The same for all queues that t serves.  Progress: wait-free. */
bool thread_hint(struct exec *x, struct exec_thread *t, u32 how)
{
	u32 i, n;

	if (unlikely(t->left)) {
		if (t->left - cycles() <= x->leave && !queue_ranked(t->queue))
			return false;
		t->left = 0;
	}
	if (t->queue)
		return queue_hint(t->queue, how);
	n = x->nqueues;
	for (i = 0; i < n; i++) {
		if (load_relaxed(&x->queues[i]->drive) && queue_hint(x->queues[i], how))
			return true;
	}
	return false;
}

static u32 steal(struct exec_queue *q, struct exec_thread *t)
{
	u32 i, n = load_relaxed(&q->nlanes);

	for (i = 0; i < n; i++) {
		struct exec_lane *l = lane_at(q, (i + t->slot) % n);
		u32 w;

		if (l && (w = hoard_take(&l->hoard))) {
			count(&t->stolen);
			return w;
		}
	}
	return 0;
}

/*
 * Priority 0 outside the rings, if p, the head of the rings, does not go before it.
 * *retry: what was seen was taken, or something before it has come.  Progress: lock-free.
 */
static __cold u32 take_zero(struct exec_queue *q, struct exec_thread *t, const struct pick *p,
			    bool *retry)
{
	struct pick before = { .lane = NULL };
	u32 w = late_pop(q);
	u64 order;
	s64 prio;

	if (w || !prioq_peek(q->pq[PQ_ZERO], &prio, &order) ||
	    (p->lane && stamp_before(p->look.stamp, order << SLOT_STAMP)))
		return w;
	/* What is before the entry that was seen is visible now, and was not when p was chosen. */
	if (!pq_empty(q, PQ_HIGH) ||
	    (scan(q, &before) && stamp_before(before.look.stamp, order << SLOT_STAMP)))
		w = 0;
	else
		w = pq_pop_seen(q, t, PQ_ZERO, prio, order);
	*retry = !w;
	return w;
}

/* Of LOW, if there is nothing else.  *retry: as take_zero(). */
static u32 take_low(struct exec_queue *q, struct exec_thread *t, bool *retry)
{
	s64 prio;
	u64 order;
	u32 w = 0;

	if (!prioq_peek(q->pq[PQ_LOW], &prio, &order))
		return 0;
	/*
	 * What is before the entry that was seen is visible now.  Another entry than that one
	 * may come behind something of priority 0 that was pushed meanwhile.
	 */
	if (nothing_above_low(q))
		w = pq_pop_seen(q, t, PQ_LOW, prio, order);
	*retry = !w;
	return w;
}

static inline void warm(const struct exec *x, u32 work)
{
	const char *p = x->warm + (size_t)work * x->stride;

	prefetchw(p);
	prefetchw(p + 64);
}

/* The element after the one that was taken, if it is there: it comes next. */
static inline void warm_next(const struct exec *x, struct exec_lane *l,
			     const struct ring_look *look)
{
	u64 pos = ring_pos(look->head) + 1;
	u64 arr = load_acquire(&l->ring.arr), w;	/* EXEC-R8 <-> EXEC-R9 */

	/* Only on the line that is here anyway. */
	if (!(pos & 7))
		return;
	w = load_relaxed(ring_slot_at(arr, pos));
	if (slot_holds(w, arr, pos & RING_POS))
		warm(x, slot_work(w));
}

/* True: p was taken. */
static bool pick_take(struct exec_queue *q, struct exec_thread *t, struct exec_lane *mine,
		      struct pick *p)
{
	u32 n;

	if (p->lane == mine)
		return ring_take(&p->lane->ring, &p->look);
	/*
	 * What is in ZERO goes before a part of the batch, perhaps.  Relaxed: what came there
	 * before anything that is in front of p->tail is counted (EXEC-R10).
	 */
	if (t->batch > 1 && (q->workers > 1 || load_relaxed(&q->drive)) &&
	    likely(!load_relaxed(&q->n[PQ_ZERO]))) {
		if (!mine)
			mine = lane_add(q, t->slot);
		if (mine) {
			n = ring_batch(&p->lane->ring, &p->look, &mine->hoard, t->slot,
				       t->batch, p->tail, p->limit);
			store_relaxed(&t->stolen, load_relaxed(&t->stolen) + n);
			return n;
		}
	}
	if (!ring_take(&p->lane->ring, &p->look))
		return false;
	count(&t->stolen);
	return true;
}

/*
 * The usual case of a thread that runs what it made ready: nothing is in the other ring, if there
 * is one, nor in its hoard, so its own oldest is the first.  Relaxed: of what was pushed before
 * that, t knows since its own push.  0: look closer.  Progress: lock-free, as ring_peek().
 */
static inline u32 take_own(struct exec_queue *q, struct exec_thread *t)
{
	struct exec_lane *l = t->from, *other;
	struct ring_look look, over;
	u32 n;

	if (unlikely(l != t->to || t->from_q != q || t->to_q != q || !l))
		return 0;
	if (!ring_peek_own(&l->ring, &look) ||
	    unlikely(load_relaxed(&q->n[PQ_HIGH]) || load_relaxed(&q->n[PQ_ZERO])))
		return 0;
	n = load_relaxed(&q->nlanes);
	if (n > 1) {
		other = lane_at(q, lane_at(q, 0) == l);
		if (n > 2 || !other || !hoard_empty(load_relaxed(&l->hoard.word)) ||
		    ring_peek(&other->ring, &over) || ring_claimer(over.head))
			return 0;
	}
	return likely(ring_take(&l->ring, &look)) ? look.work : 0;
}

/*
 * The next piece of work of q, or 0.  how: LOOK_*.
 * Progress: lock-free (a lost CAS means that another thread took something).
 */
u32 queue_take(struct exec_queue *q, struct exec_thread *t, u32 how)
{
	struct exec *x = q->x;
	struct exec_lane *mine;
	struct pick p;
	bool retry;
	u32 w;

	w = take_own(q, t);
	if (w)
		return w;
again:
	retry = false;
	mine = load_relaxed(&q->lanes[t->slot]);	/* our own store, or the client's order */
	if (mine && !hoard_empty(load_relaxed(&mine->hoard.word))) {
		if (unlikely(load_relaxed(&q->n[PQ_HIGH])) && (w = pq_pop(q, t, PQ_HIGH)))
			return w;
		w = hoard_take(&mine->hoard);
		if (w) {
			u32 k = hoard_next(load_relaxed(&mine->hoard.word));
			u32 n = hoard_n(load_relaxed(&mine->hoard.word));

			/*
			 * Its own lines two ahead, and what it touches one ahead: they are
			 * another core's, and come while something runs.
			 */
			if (k + 1 < n)
				warm(x, load_relaxed(&mine->hoard.work[k + 1]));
			if (k < n && x->cl.warm)
				x->cl.warm(x->cl.user, load_relaxed(&mine->hoard.work[k]));
			return w;
		}
	}
	if (unlikely((how & LOOK_LEAVE) && x->leave) && worker_leaves(q, t, cycles()))
		return 0;
	p.lane = NULL;
	/* Begin with the ring that had something last: often no other needs two looks. */
	if (likely(t->from && t->from_q == q) && likely(ring_peek(&t->from->ring, &p.look))) {
		p.lane = t->from;
		p.limit = stamp_last(p.look.stamp);
		lane_help(q, p.lane, p.look.head);
	} else {
		scan(q, &p);
	}
	for (;;) {
		/* Having seen the candidate (EXEC-R2): what is before it in HIGH, */
		if (unlikely(load_relaxed(&q->n[PQ_HIGH])) && (w = pq_pop(q, t, PQ_HIGH)))
			return w;
		if (p.lane) {
			/*
			 * and in the other rings.  What comes to this one later, behind tail, may
			 * have something in front of it there that the look does not show: no
			 * batch has it.
			 */
			p.tail = load_acquire(&p.lane->ring.tail);	/* EXEC-R10 <-> EXEC-R11 */
			if (!BUSTED(ONE_RING) && load_relaxed(&q->nlanes) > 1 &&
			    unlikely(scan(q, &p)))
				continue;
		}
		if (unlikely(load_relaxed(&q->n[PQ_ZERO]))) {
			w = take_zero(q, t, &p, &retry);
			if (w)
				return w;
			if (retry)
				goto again;
		}
		if (!p.lane)
			break;
		warm(x, p.look.work);
		if (!pick_take(q, t, mine, &p))
			goto again;
		if (mine && p.lane != mine) {
			warm(x, load_relaxed(&mine->hoard.work[0]));
			warm(x, load_relaxed(&mine->hoard.work[1]));
		}
		t->from = p.lane;
		t->from_q = q;
		warm_next(x, p.lane, &p.look);
		return p.look.work;
	}
	if (likely(!(how & LOOK_DEEP) && !load_relaxed(&q->n[PQ_LOW])))
		return 0;
	w = steal(q, t);
	if (w || !load_relaxed(&q->n[PQ_LOW]))
		return w;
	w = take_low(q, t, &retry);
	if (retry)
		goto again;
	return w;
}

/* Nobody has pushed to q for a while, if ever: not worth a closer look. */
static inline bool queue_unused(struct exec_queue *q)
{
	return !load_relaxed(&q->nlanes) && !load_relaxed(&q->n[PQ_HIGH]) &&
	       !load_relaxed(&q->n[PQ_ZERO]) && !load_relaxed(&q->n[PQ_LOW]);
}

/* As exec_take(). */
u32 thread_look(struct exec *x, struct exec_thread *t, u32 how)
{
	u32 i, n, k, w;

	if (t->queue)
		return queue_take(t->queue, t, how);
	/* Stay with the queue that had something for a while: its lines are here. */
	if (likely(t->from_q && (t->tick & 15) && load_relaxed(&t->from_q->drive))) {
		w = queue_take(t->from_q, t, how);
		if (likely(w))
			return w;
	}
	n = x->nqueues;
	for (i = 0, k = t->turn; i < n; i++, k++) {
		struct exec_queue *q;

		if (k >= n)
			k = 0;
		q = x->queues[k];
		if (queue_unused(q) || !load_relaxed(&q->drive))
			continue;
		w = queue_take(q, t, how);
		if (w) {
			t->turn = k + 1;
			return w;
		}
	}
	return 0;
}

u32 exec_take(struct exec *x, struct exec_thread *t)
{
	struct exec_queue *q = t->from_q;
	u32 w;

	/* As thread_look() begins. */
	if (likely(q && !t->queue && (t->tick & 15) && load_relaxed(&q->drive))) {
		w = take_own(q, t);
		if (likely(w))
			return w;
	}
	return thread_look(x, t, LOOK_DEEP);
}

/*
 * Stamps.  One ring's elements are in order by their positions; a stamp need only tell
 * which of two rings' elements was pushed first.  So a ring has the turn, and gives all its
 * elements the turn's number, until another thread pushes and takes the next turn:
 *
 *	q->turn		number << TURN_SHIFT | (slot + 1) << 1
 *			offset << 1 | TURN_CLOCK
 *
 * If a push ended before another began, the other one reads q->turn as the first did, or
 * newer (one word; relaxed will do), so its number is not smaller; and it is equal only if
 * both read that the turn is theirs: in one ring.  A thread that loses its one CAS takes a
 * number that nobody has: it adds two, and leaves the turn to whoever won.
 *
 * Where rings take turns all the time, that line moves with each push, which is dearer than
 * to read the clock.  After TURN_FAST turns in a row that were short, the queue changes to
 * the clock for good: the stamp is the time and an offset, by which it goes on where
 * the numbers stopped.  The clock is read behind q->turn, and behind the loads that ordered
 * the pushes (cycles_ordered(); a plain reading may be taken while such a load still waits
 * for its line, and be 100 ns too early).
 */
#define TURN_SHIFT	17u
#define TURN_WHO	((1ull << TURN_SHIFT) - 1)
#define TURN_CLOCK	1ull
#define TURN_SLACK	(1ull << TURN_SHIFT)	/* a clock that is this much early is not behind a turn */

static inline u64 turn_key(u32 slot)
{
	return (u64)(slot + 1) << 1;
}

static inline u64 turn_time(const struct exec_queue *q, u64 turn)
{
	return ((turn & ~TURN_CLOCK) + (stamp_clock() >> q->stamp_shift << 1)) >> 1;
}

/* A turn for the thread with that key, or (0) for one push alone.  Progress: wait-free. */
static __noinline u64 stamp_turn(struct exec_queue *q, u64 key)
{
	u64 now = cycles(), turn = load_relaxed(&q->turn), new;
	u32 fast = 0;

	if (turn & TURN_CLOCK)
		return turn_time(q, turn);
	/*
	 * What others write here at the same time makes the guess worse, and no harm.  Signed:
	 * who took the turn while this thread waited for the line has read the clock later.
	 */
	if ((s64)(now - load_relaxed(&q->turn_at)) < (s64)q->x->turn_short)
		fast = load_relaxed(&q->turn_fast) + 1;
	store_relaxed(&q->turn_at, now);
	store_relaxed(&q->turn_fast, fast);
	new = (turn >> TURN_SHIFT) + 1;
	if (fast < TURN_FAST)
		new = new << TURN_SHIFT | key;
	else
		new = (new + TURN_SLACK - (stamp_clock() >> q->stamp_shift)) << 1 | TURN_CLOCK;
	if (cas_relaxed(&q->turn, &turn, new))
		return new & TURN_CLOCK ? turn_time(q, new) : new >> TURN_SHIFT;
	/* If that is the clock's by now, it goes forward a little: as good. */
	turn = fetch_add_relaxed(&q->turn, 2ull << TURN_SHIFT);
	return turn & TURN_CLOCK ? turn_time(q, turn) : (turn >> TURN_SHIFT) + 1;
}

static inline bool turn_is(u64 turn, u32 slot)
{
	return (turn & TURN_WHO) == turn_key(slot) || BUSTED(TURN_KEPT);
}

static inline u64 stamp_now(struct exec_queue *q, u32 slot)
{
	u64 turn = load_relaxed(&q->turn);

	if (turn_is(turn, slot))
		return turn >> TURN_SHIFT;
	return turn & TURN_CLOCK ? turn_time(q, turn) : stamp_turn(q, turn_key(slot));
}

/* t changes the queue that it pushes to. */
static __noinline struct exec_lane *lane_to(struct exec_queue *q, struct exec_thread *t)
{
	struct exec_lane *l = load_relaxed(&q->lanes[t->slot]);

	if (!l)
		l = lane_add(q, t->slot);
	t->to = l;
	t->to_q = l ? q : NULL;
	return l;
}

/* Not to a ring that t pushes to already and that has room, or not in t's turn. */
static __noinline void push_odd(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio,
				u32 flags)
{
	struct exec_lane *l = t->to;

	if (likely(!prio && !(flags & EXEC_FRONT))) {
		if (unlikely(t->to_q != q))
			l = lane_to(q, t);
		if (likely(l) && likely(ring_push(&l->ring, work, stamp_now(q, t->slot))))
			return;
		pq_push(q, t, PQ_ZERO, 0, stamp_turn(q, 0), work);
	} else if (flags & EXEC_FRONT) {
		pq_push(q, t, PQ_HIGH, PRIO_FRONT, cycles_ordered(), work);
	} else {
		pq_push(q, t, prio > 0 && !BUSTED(HIGH_IS_LOW) ? PQ_HIGH : PQ_LOW, prio,
			cycles_ordered(), work);
	}
	smp_mb();	/* EXEC-P1 <-> EXEC-P2, in place of the exchange of ring_put() */
}

void exec_push(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio, u32 flags)
{
	u64 turn = load_relaxed(&q->turn);

	BUG_ON1(!work || work > SLOT_WORK);
	/* Nothing is called on the usual way, so it saves no registers. */
	if (likely(!prio && !flags && t->to_q == q && turn_is(turn, t->slot) &&
		   !ring_full(&t->to->ring)))
		ring_put(&t->to->ring, work, turn >> TURN_SHIFT);
	else
		push_odd(q, t, work, prio, flags);
	/*
	 * EXEC-P1 <-> EXEC-P2: see park.c; drive as well: see queue_start().
	 * EXEC-W8 <-> EXEC-W7: with ATTN_START, ARMED.
	 */
	if (unlikely(load_seq_cst(&q->group.attn)) ||
	    (load_seq_cst(&q->drive) && unlikely(load_seq_cst(&q->x->helpers.attn))))
		queue_attention(q, t);
}

/* Does nothing in q go before work of that priority?  Progress: lock-free. */
static __noinline bool goes_first(struct exec_queue *q, const struct exec_thread *t, s32 prio)
{
	const struct exec_lane *own = t->to_q == q ? t->to : NULL;
	s64 top;
	u64 order;

	if (load_relaxed(&q->n[PQ_HIGH]) && prioq_peek(q->pq[PQ_HIGH], &top, &order) &&
	    top >= prio)
		return false;
	if (prio > 0)
		return true;
	if (load_relaxed(&q->n[PQ_ZERO]) || (!BUSTED(HANDOFF_JUMPS) && !lanes_empty(q, own)))
		return false;
	return prio == 0 || !load_relaxed(&q->n[PQ_LOW]) ||
	       !prioq_peek(q->pq[PQ_LOW], &top, &order) || top < prio;
}

/* Progress: lock-free. */
bool exec_handoff(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio)
{
	/* All that was pushed before is known here by the edges that made `work` ready. */
	if (!t->budget || !thread_serves(t, q) || !goes_first(q, t, prio)) {
		exec_push(q, t, work, prio, 0);
		return false;
	}
	if (t->budget != EXEC_UNLIMITED)
		t->budget--;
	count(&t->handed);
	return true;
}
