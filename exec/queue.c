// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: run queues: ready work, spread over the threads that make it ready and those
 * that run it.
 *
 * Structures: a queue has, per thread slot and made when it is first needed, a lane: the
 * ring of the priority-0 work that the thread made ready, and its hoard.  A bitmap (map)
 * tells which lanes may have work.  Three priority queues take the rest: HIGH (above 0, and
 * EXEC_FRONT above all), LOW (below 0), and ZERO for priority 0 when a ring cannot grow.
 *
 * Order.  A thread takes from HIGH, its hoard, its own ring, the other lanes, ZERO, and LOW.
 *  - What a thread can see goes by priority: HIGH is looked at again when work of priority 0
 *    was seen, and all else when work of LOW was.
 *  - A producer's work of one priority is taken in the order in which it was pushed: a ring
 *    is a FIFO; entries of a priority queue have tickets; and a thread that has work in ZERO
 *    pushes no work to its ring (ZERO is empty before it does so again).
 *  - Between producers there is a bound instead.  At every AROUND-th take a thread looks at
 *    another lane.  If that lane has work, and nobody took any since the thread's last such
 *    look, the thread takes some.  So each running thread brings each lane that has work on
 *    by one at least, in 2 * AROUND takes for each lane that is marked, and an element with
 *    k others in front of it is taken after 2 * AROUND * lanes * (k + 2) takes of any one
 *    thread that goes on taking.
 *
 * Batches.  When recent work ran short, a thread that takes from another's ring takes more by
 * one CAS, half of what is there at most, and runs it next.  What it did not begin stays
 * visible in its hoard, and can be stolen.
 *
 * The bitmap.  A lane's bit belongs to the thread whose slot it is: nobody else sets or
 * clears it.  The thread sets it before it publishes work in its ring or its hoard, and
 * clears it only when both are empty: before it sleeps, and when it leaves.  So a lane with
 * work is always marked, whoever is stopped, and threads that went or sleep cost nothing.
 *
 * Short work stays with its maker: see lane_leave().
 *
 * Ordering: labels EXEC-Q* here, EXEC-R* and EXEC-H* in ring.h, EXEC-P* in park.c.
 *
 * Progress: at each function.  No thread waits for another one.
 *
 * Lifetime: lanes and rings stay until exec_destroy(); a lane whose thread left is
 * inherited by the next user of the slot; what is left in it is served by all.
 *
 * References: Go's runtime/proc.go (a look at the global queue every 61 ticks); Tokio's
 * scheduler; Blumofe and Leiserson, Scheduling Multithreaded Computations by Work
 * Stealing, JACM 1999.
 */
#include <stdlib.h>
#include <string.h>
#include <exec/internal.h>

#define PRIO_FRONT	((s64)INT32_MAX + 1)
#ifdef PAWL_MODEL
#define AROUND		4u	/* so that small scenarios come to it */
#else
#define AROUND		64u	/* takes per look at another lane; a power of two */
#endif
#define ORDER_SLOT	16u	/* an entry's order: ticket << 16 | slot of who pushed it */

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
	/* Relaxed: others look at it when they saw its bit. */
	store_relaxed(&q->lanes[slot], l);
	return l;
}

/* The lane of t, marked, so that all find it.  NULL: no memory.  Progress: as lane_add(). */
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
	 * Relaxed: the bit is this thread's.
	 * EXEC-Q1 <-> EXEC-Q2: a lane that is marked is complete.  seq_cst for sleepers that
	 * look again: EXEC-P1 <-> EXEC-P2.
	 */
	if (!(load_relaxed(map) & bit))
		fetch_or_seq_cst(map, bit);
	return l;
}

/* t sleeps or leaves: nobody need look at its lanes, if nothing is in them.  Progress: wait-free. */
void lanes_rest(struct exec *x, struct exec_thread *t)
{
	u64 bit = 1ull << (t->slot & 63);
	u32 i;

	for (i = 0; i < x->nqueues; i++) {
		struct exec_queue *q = x->queues[i];
		struct exec_lane *l = load_relaxed(&q->lanes[t->slot]);
		u64 *map = &q->map[t->slot >> 6];

		if (!l || !(load_relaxed(map) & bit))
			continue;
		/* A head with a claimer is not equal to tail: that hoard may have to be opened. */
		if (!BUSTED(REST_BLIND) &&
		    (load_relaxed(&l->ring.head) != load_relaxed(&l->ring.tail) ||
		     !hoard_empty(load_relaxed(&l->hoard.word))))
			continue;
		/* Relaxed: seen late, somebody looks at an empty lane. */
		fetch_and_relaxed(map, ~bit);
	}
	t->to_q = NULL;
}

/* How far behind slot `start`, d or more, the next marked lane is, cyclically; lanes(q): none. */
static inline u32 lane_next(const struct exec_queue *q, u32 start, u32 d)
{
	u32 n = q->x->words * 64;

	while (d < n) {
		u32 s = start + d < n ? start + d : start + d - n;
		/* EXEC-Q2 <-> EXEC-Q1 */
		u64 b = load_acquire(&q->map[s >> 6]) >> (s & 63);

		if (b)
			return d + (u32)__builtin_ctzll(b);
		d += 64 - (s & 63);
	}
	return n;
}

/* All marked lanes, beginning with that of slot `start`. */
#define for_each_lane(q, start, d, s, l)						\
	for (d = lane_next(q, start, 0);						\
	     d < (q)->x->words * 64 &&							\
	     (s = lane_slot(q, (start) + d), l = load_relaxed(&(q)->lanes[s]), true);	\
	     d = lane_next(q, start, d + 1))

static inline u32 lane_slot(const struct exec_queue *q, u32 s)
{
	u32 n = q->x->words * 64;

	return s < n ? s : s - n;
}

static __noinline void hoard_help(struct exec_queue *q, struct exec_lane *l, u64 head)
{
	/* Relaxed: the claim was read with acquire (EXEC-R7), and came after the lane. */
	struct exec_lane *c = load_relaxed(&q->lanes[ring_claimer(head) - 1]);

	hoard_open(&c->hoard, &l->ring.head, head);
}

/* As ring_peek().  If a batch is half done, its taker may be stopped: open its hoard. */
static inline bool lane_peek(struct exec_queue *q, struct exec_lane *l, struct ring_look *look)
{
	bool there = ring_peek(&l->ring, look);

	if (unlikely(ring_claimer(look->head)))
		hoard_help(q, l, look->head);
	return there;
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

static void pq_push(struct exec_queue *q, struct exec_thread *t, u32 k, s64 prio, u32 work)
{
	/* Relaxed: who pushes after another did reads the ticket behind that one's. */
	u64 order = fetch_add_relaxed(&q->ticket, 1) << ORDER_SLOT | t->slot;

	/*
	 * Counted first, so that an entry that is in the queue is never hidden by the count.
	 * Who knows by any edge of what this thread does later knows of both; so the count
	 * needs no order of its own.
	 */
	fetch_add_relaxed(&q->n[k], 1);
	/* There is a node (exec_create()): it is moving between other threads just now. */
	while (unlikely(!prioq_push(q->pq[k], &t->nodes, prio, order, work)))
		cpu_relax();
}

static bool pq_empty(struct exec_queue *q, u32 k)
{
	s64 prio;
	u64 order;

	return !load_relaxed(&q->n[k]) || !prioq_peek(q->pq[k], &prio, &order);
}

/*
 * Nothing of priority 0 in rings and hoards.  Hoards are last, so that a batch that moves work
 * meanwhile cannot hide it; its taker may have marked its lane after the rings were looked at.
 * Progress: lock-free.
 */
static bool lanes_empty(struct exec_queue *q)
{
	struct exec_lane *l;
	struct ring_look look;
	u32 d, s;

	for_each_lane(q, 0, d, s, l)
		if (lane_peek(q, l, &look))
			return false;
	/* Relaxed: the head that was read has the hoard as it was filled (EXEC-R7). */
	for_each_lane(q, 0, d, s, l)
		if (!hoard_empty(load_relaxed(&l->hoard.word)))
			return false;
	return true;
}

static bool nothing_above_low(struct exec_queue *q)
{
	return pq_empty(q, PQ_HIGH) && lanes_empty(q) && pq_empty(q, PQ_ZERO);
}

/* Progress: lock-free. */
bool queue_empty(struct exec_queue *q)
{
	return nothing_above_low(q) && pq_empty(q, PQ_LOW);
}

/*
 * Short work stays with its maker.
 *
 * Work that another core runs than the one that pushed it takes some ten cache lines there
 * and back.  If it runs for less time than that takes, and its maker runs work too, then a
 * worker that takes it makes both slower.  So a worker whose work ran short tries what the
 * maker does when its lane is left alone, if it is one that takes work: for LEAVE_FIRST_NS,
 * and twice as long each time up to LEAVE_MOST_NS, as long as the maker takes one piece per
 * FAST_NS (pushing included: a maker may push for a while and then run, so it is judged over
 * LEAVE_JUDGE_NS).  If the maker was slow, or neither pushed nor took anything since the last
 * look, the worker takes what is there, and does so for LEAVE_JUDGE_NS, twice that the next
 * time, and so on, before it tries again.
 *
 * What is kept in the lane is written by any worker, and is only a guess: a wrong one costs
 * time, at most LEAVE_JUDGE_NS of it.
 */
static inline bool lane_left(const struct exec_lane *l)
{
	u64 left = load_relaxed(&l->left);

	return left && (s64)(left - cycles()) > 0;
}

static bool lane_leave(struct exec_queue *q, struct exec_thread *t, struct exec_lane *l)
{
	const struct exec *x = q->x;
	u64 now = cycles(), rest = load_relaxed(&l->left_rest), own, tail, since, n;
	bool still;
	u32 step;

	own = load_relaxed(&l->ring.own);
	tail = load_relaxed(&l->ring.tail);
	if (!load_relaxed(&l->left)) {
		/* A maker that never looked for work has to be helped. */
		if (!(own + load_relaxed(&l->ring.asked)) || !t->avg || t->avg > x->leave_avg ||
		    queue_ranked(q) || (rest && (s64)(rest - now) > 0))
			return false;
		store_relaxed(&l->left_since, now);
		store_relaxed(&l->left_own, own);
		step = x->leave_first;
		goto leave;
	}
	since = now - load_relaxed(&l->left_since);
	n = own - load_relaxed(&l->left_own);
	step = (u32)min_u(2 * load_relaxed(&l->left_step), x->leave_most);
	still = own == load_relaxed(&l->left_own_last) && tail == load_relaxed(&l->left_tail);
	if (!still && n * x->fast >= since && !queue_ranked(q)) {
		store_relaxed(&l->left_since, now);
		store_relaxed(&l->left_own, own);
		store_relaxed(&l->left_tries, 0);
	} else if (still || since >= x->judge || queue_ranked(q)) {
		n = load_relaxed(&l->left_tries);
		store_relaxed(&l->left_tries, (u32)min_u(n + 1, LEAVE_TRIES));
		store_relaxed(&l->left_rest, now + ((u64)x->judge << n));
		store_relaxed(&l->left, 0);
		return false;
	}
leave:
	store_relaxed(&l->left_own_last, own);
	store_relaxed(&l->left_tail, tail);
	store_relaxed(&l->left_step, step);
	store_relaxed(&l->left, now + step);
	return true;
}

/*
 * Is there anything in q that is worth a look?  Of what a producer writes, this reads
 * one line per marked lane, the slot that comes next.  A poller stays in here until something
 * comes; queue_take() then runs as it does when there is always something, with
 * its branches predicted.  Progress: wait-free.
 */
static inline bool queue_hint(struct exec_queue *q, struct exec_thread *t, u32 how)
{
	struct exec_lane *l;
	u64 head, arr;
	u32 d, s;

	t->left = false;
	for_each_lane(q, 0, d, s, l) {
		if (unlikely((how & LOOK_LEAVE) && lane_left(l))) {
			t->left = true;
			continue;
		}
		/* Relaxed: if it is newer than the array, this look was for nothing. */
		head = load_relaxed(&l->ring.head);
		arr = load_acquire(&l->ring.arr);	/* EXEC-R8 <-> EXEC-R9 */
		if (slot_holds(load_relaxed(ring_slot_at(arr, ring_pos(head))), arr,
			       ring_pos(head)) || ring_claimer(head))
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

	if (t->queue)
		return queue_hint(t->queue, t, how);
	n = x->nqueues;
	for (i = 0; i < n; i++) {
		if (load_relaxed(&x->queues[i]->drive) && queue_hint(x->queues[i], t, how))
			return true;
	}
	return false;
}

static inline void warm(const struct exec *x, u32 work)
{
	const char *p = x->warm + (size_t)work * x->stride;

	prefetchw(p);
	prefetchw(p + 64);
}

/* The element after the one that was taken, if it is there: it comes next. */
static inline void warm_next(const struct exec *x, struct exec_lane *l, u64 pos)
{
	u64 arr = load_acquire(&l->ring.arr);	/* EXEC-R8 <-> EXEC-R9 */
	u32 w;

	/* Only on the line that is here anyway. */
	if (!(++pos & (SLOT_LINE - 1)))
		return;
	w = load_relaxed(ring_slot_at(arr, pos));
	if (slot_holds(w, arr, pos & RING_POS))
		warm(x, slot_work(w));
}

/* Some of another's ring, as it was looked at; the first is returned.  0: another took it. */
static u32 lane_take(struct exec_queue *q, struct exec_thread *t, struct exec_lane *l,
		     const struct ring_look *look)
{
	struct exec_lane *mine = t->batch > 1 ? lane_mine(q, t) : NULL;
	u32 n;

	warm(q->x, look->work);
	if (mine && hoard_empty(load_relaxed(&mine->hoard.word))) {
		n = ring_batch(&l->ring, look, &mine->hoard, t->slot, t->batch);
		if (n > 1)
			warm(q->x, load_relaxed(&mine->hoard.work[0]));
		if (n > 2)
			warm(q->x, load_relaxed(&mine->hoard.work[1]));
	} else {
		n = ring_take(&l->ring, look);
	}
	if (!n)
		return 0;
	store_relaxed(&t->stolen, load_relaxed(&t->stolen) + n);
	warm_next(q->x, l, ring_pos(look->head) + n - 1);
	return look->work;
}

/* From another's ring.  Progress: lock-free. */
static u32 take_other(struct exec_queue *q, struct exec_thread *t, u32 how)
{
	struct exec_lane *l;
	struct ring_look look;
	u32 start = t->from, d, s, w;

	for_each_lane(q, start, d, s, l) {
		if (s == t->slot)
			continue;
		if (unlikely((how & LOOK_LEAVE) && lane_left(l))) {
			t->left = true;
			continue;
		}
		while (lane_peek(q, l, &look)) {
			/* Seen in take_other(), it may have something of HIGH before it (EXEC-R2). */
			if (unlikely(load_relaxed(&q->n[PQ_HIGH])) && (w = pq_pop(q, t, PQ_HIGH)))
				return w;
			if ((how & LOOK_LEAVE) && lane_leave(q, t, l)) {
				t->left = true;
				break;
			}
			w = lane_take(q, t, l, &look);
			if (likely(w)) {
				t->from = s;
				return w;
			}
		}
	}
	return 0;
}

/* From the own ring.  Progress: lock-free. */
static inline u32 take_own(struct exec_queue *q, struct exec_lane *l)
{
	struct ring_look look;
	u32 w = ring_take_own(&l->ring);

	if (likely(w))
		return w;
	if (unlikely(ring_claimer(load_relaxed(&l->ring.head)))) {
		while (lane_peek(q, l, &look))
			if (ring_take(&l->ring, &look))
				return look.work;
	}
	store_relaxed(&l->ring.asked, load_relaxed(&l->ring.asked) + 1);
	return 0;
}

static u32 take_hoard(struct exec_queue *q, struct exec_thread *t, struct hoard *h)
{
	struct exec *x = q->x;
	u32 w = hoard_take(h), k, n;
	u64 word;

	if (unlikely(!w))
		return 0;
	word = load_relaxed(&h->word);
	k = hoard_next(word);
	n = hoard_n(word);
	/*
	 * Its own lines two ahead, and what it touches one ahead: they are another core's, and
	 * come while something runs.
	 */
	if (k + 1 < n)
		warm(x, load_relaxed(&h->work[k + 1]));
	if (k < n && x->cl.warm)
		x->cl.warm(x->cl.user, load_relaxed(&h->work[k]));
	return w;
}

static u32 steal(struct exec_queue *q, struct exec_thread *t)
{
	struct exec_lane *l;
	u32 d, s, w;

	for_each_lane(q, t->slot, d, s, l) {
		w = hoard_take(&l->hoard);
		if (w) {
			count(&t->stolen);
			return w;
		}
	}
	return 0;
}

/*
 * Of ZERO, unless who pushed it has older work in its ring.  Progress: lock-free.
 */
static __cold u32 take_zero(struct exec_queue *q, struct exec_thread *t)
{
	struct exec_lane *l;
	struct ring_look look;
	u64 order;
	s64 prio;

	if (!prioq_peek(q->pq[PQ_ZERO], &prio, &order))
		return 0;
	/* Relaxed: the lane is older than the entry. */
	l = load_relaxed(&q->lanes[order & ((1u << ORDER_SLOT) - 1)]);
	if (l && lane_peek(q, l, &look) && !BUSTED(ZERO_JUMPS))
		return 0;
	return pq_pop_seen(q, t, PQ_ZERO, prio, order);
}

/*
 * Of LOW, if there is nothing else.  *retry: what was seen was taken, or something before it
 * has come.  Progress: lock-free.
 */
static u32 take_low(struct exec_queue *q, struct exec_thread *t, bool *retry)
{
	s64 prio;
	u64 order;
	u32 w = 0;

	*retry = false;
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

/*
 * Every AROUND-th take: one other lane's turn, or that of ZERO when all lanes had theirs.
 * 0: nothing there has waited since the last such look.  Progress: lock-free.
 */
static __noinline u32 look_around(struct exec_queue *q, struct exec_thread *t)
{
	struct exec_lane *l;
	struct ring_look look;
	u64 hoard;
	u32 s, w = 0;

	s = t->around + lane_next(q, t->around, 0);
	if (s >= q->x->words * 64) {
		t->around = 0;
		return load_relaxed(&q->n[PQ_ZERO]) ? take_zero(q, t) : 0;
	}
	l = load_relaxed(&q->lanes[s]);
	if (s == t->slot)
		goto next;
	if (!lane_peek(q, l, &look))
		look.work = 0;
	hoard = load_relaxed(&l->hoard.word);	/* hoard_take() looks again */
	if (!look.work && hoard_empty(hoard))
		goto next;
	if (t->around_lane != l) {
		/* Come back to it once. */
		t->around_lane = l;
		t->around_head = look.head;
		t->around_hoard = hoard;
		return 0;
	}
	if (look.work && look.head == t->around_head && !BUSTED(NO_LOOK_AROUND))
		w = lane_take(q, t, l, &look);
	else if (hoard == t->around_hoard && !BUSTED(NO_LOOK_AROUND))
		w = hoard_take(&l->hoard);
next:
	t->around = s + 1;
	t->around_lane = NULL;
	return w;
}

/*
 * The next piece of work of q, or 0.  how: LOOK_*.
 * Progress: lock-free (a lost CAS means that another thread took something).
 */
u32 queue_take(struct exec_queue *q, struct exec_thread *t, u32 how)
{
	struct exec_lane *mine = load_relaxed(&q->lanes[t->slot]);
	bool retry;
	u32 w;

	t->from_q = q;
	t->left = false;
	do {
		if (unlikely(load_relaxed(&q->n[PQ_HIGH])) && (w = pq_pop(q, t, PQ_HIGH)))
			return w;
		if (unlikely(!(++t->takes & (AROUND - 1))) && (w = look_around(q, t)))
			return w;
		if (likely(mine)) {
			if (!hoard_empty(load_relaxed(&mine->hoard.word)) &&
			    (w = take_hoard(q, t, &mine->hoard)))
				return w;
			w = take_own(q, mine);
			if (w)
				return w;
		}
		w = take_other(q, t, how);
		if (w)
			return w;
		if (unlikely(load_relaxed(&q->n[PQ_ZERO])) && (w = take_zero(q, t)))
			return w;
		if (!(how & LOOK_DEEP) && !load_relaxed(&q->n[PQ_LOW]))
			break;
		w = steal(q, t);
		if (w || !load_relaxed(&q->n[PQ_LOW]))
			return w;
		w = take_low(q, t, &retry);
	} while (retry);
	return w;
}

/* Nobody has work in q: not worth a closer look. */
static inline bool queue_unused(struct exec_queue *q)
{
	return lane_next(q, 0, 0) == q->x->words * 64 && !load_relaxed(&q->n[PQ_HIGH]) &&
	       !load_relaxed(&q->n[PQ_ZERO]) && !load_relaxed(&q->n[PQ_LOW]);
}

/* As exec_take(). */
u32 thread_look(struct exec *x, struct exec_thread *t, u32 how)
{
	u32 i, n, k, w;

	if (t->queue)
		return queue_take(t->queue, t, how);
	/* Stay with the queue that had something for a while: its lines are here. */
	if (likely(t->from_q && (t->takes & 15) && load_relaxed(&t->from_q->drive))) {
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

	/* The usual case of a thread that runs what it made ready. */
	if (likely(q && q == t->to_q && !t->queue && (t->takes & 15) && load_relaxed(&q->drive)) &&
	    likely(!load_relaxed(&q->n[PQ_HIGH]) && ((t->takes + 1) & (AROUND - 1)) &&
		   hoard_empty(load_relaxed(&t->to->hoard.word)))) {
		w = ring_take_own(&t->to->ring);
		if (likely(w)) {
			t->takes++;
			return w;
		}
	}
	return thread_look(x, t, LOOK_DEEP);
}

/* Not to a ring that t pushes to already and that has room. */
static __noinline void push_odd(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio,
				u32 flags)
{
	if (likely(!prio && !(flags & EXEC_FRONT))) {
		/* In ZERO may be work of this thread: what it pushes later comes behind that. */
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
		pq_push(q, t, prio > 0 && !BUSTED(HIGH_IS_LOW) ? PQ_HIGH : PQ_LOW, prio, work);
	}
	smp_mb();	/* EXEC-P1 <-> EXEC-P2, in place of the exchange of ring_put() */
}

void exec_push(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio, u32 flags)
{
	BUG_ON1(!work || work > SLOT_WORK);
	/* Nothing is called on the usual way, so it saves no registers. */
	if (likely(!prio && !flags && t->to_q == q && !ring_full(&t->to->ring)))
		ring_put(&t->to->ring, work);
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

/* Does nothing that t may not overtake go before work of that priority?  Progress: lock-free. */
static __noinline bool goes_first(struct exec_queue *q, const struct exec_thread *t, s32 prio)
{
	const struct exec_lane *mine = load_relaxed(&q->lanes[t->slot]);
	s64 top;
	u64 order;

	if (load_relaxed(&q->n[PQ_HIGH]) && prioq_peek(q->pq[PQ_HIGH], &top, &order) &&
	    top >= prio)
		return false;
	if (prio > 0)
		return true;
	if (mine && !BUSTED(HANDOFF_JUMPS) &&
	    (load_relaxed(&mine->ring.head) != load_relaxed(&mine->ring.tail) ||
	     !hoard_empty(load_relaxed(&mine->hoard.word))))
		return false;
	/* The next take is one that looks around. */
	if (load_relaxed(&q->n[PQ_ZERO]) || !((t->takes + 1) & (AROUND - 1)))
		return false;
	return prio == 0 ||
	       (lanes_empty(q) && (!load_relaxed(&q->n[PQ_LOW]) ||
				   !prioq_peek(q->pq[PQ_LOW], &top, &order) || top < prio));
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
	t->takes++;
	count(&t->handed);
	return true;
}
