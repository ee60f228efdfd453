// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: a thread takes work from a run queue (queue.c), its own or that of other threads.
 *
 * Order.  A thread takes from HIGH, its hoard, its own ring, the other lanes, ZERO, and LOW.
 *  - Visible work is taken by priority: a thread that has found work of priority 0 checks HIGH
 *    again, and one that has found work in LOW checks everything else again.
 *  - A producer's work of one priority is taken in the order in which it was pushed: a ring
 *    is a FIFO; entries of a priority queue have tickets; and a thread that has work in ZERO
 *    pushes no work to its ring until ZERO is empty.
 *  - Producers have turns.  A thread that has stayed at one lane for TURN_NS goes to the next
 *    lane with work, cyclically, and stays there: look_around().  Its own lane, ZERO, and the
 *    hoards have their turns too.  So a lane with work waits for at most one turn, and what was
 *    begun in it, of each other lane and of each running thread.  With many lanes the turns are
 *    shorter, so that all of them together take ROUND_NS.
 *  - The clock is read at every take while the work is long, and the less often the shorter it
 *    is, so that it costs nothing beside work that is short: turn_check().
 *  - Work that a higher priority keeps waiting is taken when it is late: take_late().
 *
 * Batches.  When recent work was short, a thread that takes from another's ring takes several
 * elements by one CAS, at most half of them, and runs them next.  Those that it has not begun
 * stay visible in its hoard, and can be stolen.
 *
 * Short work stays with its maker: see lane_leave() in policy.h, which has all times and limits.
 *
 * Progress: stated at each function.  No thread waits for another one.
 *
 * References: Shreedhar and Varghese, Efficient Fair Queueing Using Deficit Round Robin,
 * SIGCOMM 1995; Tokio's
 * scheduler; Blumofe and Leiserson, Scheduling Multithreaded Computations by Work
 * Stealing, JACM 1999.
 */
#include <exec/internal.h>

/*
 * The end of the slots whose lanes a search visits.  Relaxed: who must see a marked lane sees the
 * larger number, too, which is older than the mark.
 */
static inline u32 lanes_end(const struct exec_queue *q)
{
	return load_relaxed(&q->x->words) * 64;
}

static inline u32 lane_slot(u32 n, u32 s)
{
	return s < n ? s : s - n;
}

/* Of n slots, the distance from `start` to the next marked lane, cyclically, d at least; n: none. */
static inline u32 lane_next(const struct exec_queue *q, u32 n, u32 start, u32 d)
{
	while (d < n) {
		u32 s = lane_slot(n, start + d);
		/* EXEC-Q2 <-> EXEC-Q1, EXEC-Q2 <-> EXEC-Q5 */
		u64 b = load_acquire(&q->map[s >> 6]) >> (s & 63);

		if (b)
			return d + (u32)__builtin_ctzll(b);
		d += 64 - (s & 63);
	}
	return n;
}

/* Visit all marked lanes, beginning with that of slot `start`. */
#define for_each_lane(q, start, d, s, l)						\
	for (u32 lanes_n = (d = 0, lanes_end(q));					\
	     (d = lane_next(q, lanes_n, start, d)) < lanes_n &&				\
	     (s = lane_slot(lanes_n, (start) + d), l = load_relaxed(&(q)->lanes[s]), true); \
	     d++)

static __noinline void hoard_help(struct exec_queue *q, struct exec_lane *l, u64 head)
{
	/* Relaxed: the claim was read with acquire (EXEC-R7); the lane was added before it. */
	struct exec_lane *c = load_relaxed(&q->lanes[ring_claimer(head) - 1]);

	hoard_open(&c->hoard, &l->ring.head, head);
}

/* ring_peek().  If a batch has not finished, its taker may be stopped: open its hoard. */
static inline bool lane_peek(struct exec_queue *q, struct exec_lane *l, struct ring_look *look)
{
	bool there = ring_peek(&l->ring, look);

	if (unlikely(ring_claimer(look->head)))
		hoard_help(q, l, look->head);
	return there;
}

static inline void pq_taken(struct exec_queue *q, u32 k, u32 work)
{
	fetch_add_relaxed(&q->n[k], -1u);
	wait_end(&q->waits[k], work, load_relaxed(&q->ticket[k]));
}

static u32 pq_pop(struct exec_queue *q, struct exec_thread *t, u32 k)
{
	s64 prio;
	u32 w = prioq_pop(q->pq[k], &t->nodes, &prio);

	if (w)
		pq_taken(q, k, w);
	return w;
}

/* Take the entry that a peek found, unless another thread took it. */
static u32 pq_pop_seen(struct exec_queue *q, struct exec_thread *t, u32 k, s64 prio, u64 order)
{
	u32 w = prioq_pop_this(q->pq[k], &t->nodes, prio, order);

	if (w)
		pq_taken(q, k, w);
	return w;
}

/*
 * Take an entry with a ticket before `until`, the oldest of the next priority below *prio that has
 * one; *prio receives its priority.
 */
static u32 pq_pop_below(struct exec_queue *q, struct exec_thread *t, u32 k, s64 *prio, u64 until)
{
	u32 w = prioq_pop_below(q->pq[k], &t->nodes, prio, until << ORDER_SLOT);

	if (w)
		pq_taken(q, k, w);
	return w;
}

static bool pq_empty(struct exec_queue *q, u32 k)
{
	s64 prio;
	u64 order;

	return !load_relaxed(&q->n[k]) || !prioq_peek(q->pq[k], &prio, &order);
}

/*
 * No ring or hoard has work.  The hoards are checked last, so that a concurrent batch, which
 * moves work from a ring to a hoard, cannot hide it; its taker may have marked its lane after
 * the rings were checked.  Progress: lock-free.
 */
static bool lanes_empty(struct exec_queue *q)
{
	struct exec_lane *l;
	struct ring_look look;
	u32 d, s;

	for_each_lane(q, 0, d, s, l)
		if (lane_peek(q, l, &look))
			return false;
	/* Relaxed: the head was read with acquire, after the hoard was filled (EXEC-R7). */
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
 * May q have work?  Of the lines that producers write, this reads one per marked lane, that of
 * the next slot.  A poller calls only this until work comes; queue_take() then runs with its
 * branches predicted as for a queue that always has work.  Progress: wait-free.
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
		/* Relaxed: if head is newer than the array, this check finds nothing. */
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

/* May q have work, also in hoards?  Progress: wait-free. */
bool queue_has(struct exec_queue *q, struct exec_thread *t)
{
	return queue_hint(q, t, LOOK_DEEP);
}

/* A number that changes whenever a thread takes work of q.  Progress: wait-free. */
u64 queue_mark(struct exec_queue *q)
{
	struct exec_lane *l;
	u64 sum = 0;
	u32 d, s, k;

	for_each_lane(q, 0, d, s, l)
		sum = 31 * sum + load_relaxed(&l->ring.head) + 7 * load_relaxed(&l->hoard.word);
	for (k = 0; k < PQS; k++)
		sum = 31 * sum + load_relaxed(&q->ticket[k]) - load_relaxed(&q->n[k]);
	return sum;
}

/* The same for all queues that t serves.  Progress: wait-free. */
bool thread_may_take(struct exec *x, struct exec_thread *t, u32 how)
{
	u32 i, n;

	if (t->queue)
		return queue_hint(t->queue, t, how);
	n = x->nqueues;
	for (i = 0; i < n; i++) {
		if (thread_serves(t, x->queues[i]) && queue_hint(x->queues[i], t, how))
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

/* Prefetch the element after the one that was taken, if it exists: it is next. */
static inline void warm_next(const struct exec *x, struct exec_lane *l, u64 pos)
{
	u64 arr = load_acquire(&l->ring.arr);	/* EXEC-R8 <-> EXEC-R9 */
	u32 w;

	/* Only if it is on the same cache line. */
	if (!(++pos & (SLOT_LINE - 1)))
		return;
	w = load_relaxed(ring_slot_at(arr, pos));
	if (slot_holds(w, arr, pos & RING_POS))
		warm(x, slot_work(w));
}

/*
 * Take one or more elements of another thread's ring, and return the first, which ring_peek()
 * found.  0: another thread took it.
 */
static u32 lane_take(struct exec_queue *q, struct exec_thread *t, struct exec_lane *l,
		     const struct ring_look *look)
{
	struct exec_lane *mine = t->batch > 1 ? lane_mine(q, t) : NULL;
	u32 n;

	warm(q->x, look->work);
	if (mine && hoard_empty(load_relaxed(&mine->hoard.word))) {
		n = ring_batch(&l->ring, look, &mine->hoard, t->slot, t->batch);
		t->hoarded = l;
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

/* Take from a lane's ring, unless its work is left to its maker.  Progress: lock-free. */
static u32 take_lane(struct exec_queue *q, struct exec_thread *t, struct exec_lane *l, u32 how)
{
	struct ring_look look;
	u32 w;

	if (unlikely((how & LOOK_LEAVE) && lane_left(l))) {
		t->left = true;
		return 0;
	}
	while (lane_peek(q, l, &look)) {
		/* Work of HIGH that was pushed before it is visible now (EXEC-R2). */
		if (unlikely(load_relaxed(&q->n[PQ_HIGH])) && !(how & LOOK_LATE) &&
		    (w = pq_pop(q, t, PQ_HIGH)))
			return w;
		if ((how & LOOK_LEAVE) && lane_leave(q, t, l)) {
			t->left = true;
			return 0;
		}
		w = lane_take(q, t, l, &look);
		if (likely(w))
			return w;
	}
	return 0;
}

/* Take from another thread's ring.  Progress: lock-free. */
static u32 take_other(struct exec_queue *q, struct exec_thread *t, u32 how)
{
	struct exec_lane *l;
	u32 start = t->from, d, s, w;

	for_each_lane(q, start, d, s, l) {
		if (s == t->slot)
			continue;
		w = take_lane(q, t, l, how);
		if (likely(w)) {
			t->from = s;
			return w;
		}
	}
	return 0;
}

/* Take from the thread's ring.  Progress: lock-free. */
static inline u32 take_own(struct exec_queue *q, struct exec_lane *l)
{
	struct ring_look look;
	u32 w = ring_take_own(&l->ring, true);
	u64 head;

	if (likely(w))
		return w;
	/* EXEC-R7 <-> EXEC-H7: if the ring is empty, the hoard of the last claimer is open. */
	head = load_acquire(&l->ring.head);
	/* Another thread's batch was in progress, and may have ended since then. */
	if (unlikely(head != load_relaxed(&l->ring.tail))) {
		while (lane_peek(q, l, &look))
			if (ring_take(&l->ring, &look))
				return look.work;
	}
	store_relaxed(&l->ring.empty, load_relaxed(&l->ring.empty) + 1);
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
	 * Prefetch the lines of the work itself two ahead, and what it touches one ahead: other
	 * cores have them, and they arrive while something runs.
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
 * Take from ZERO, unless the pusher of its first entry has older work in its ring.  Sets *retry
 * if another thread took the entry, since there may be more.  Progress: lock-free.
 */
static __cold u32 take_zero(struct exec_queue *q, struct exec_thread *t, bool *retry)
{
	struct exec_lane *l;
	struct ring_look look;
	bool older;
	u64 order;
	s64 prio;
	u32 w;

	*retry = false;
	if (!prioq_peek(q->pq[PQ_ZERO], &prio, &order))
		return 0;
	/* Relaxed: the lane is older than the entry. */
	l = load_relaxed(&q->lanes[order & ((1u << ORDER_SLOT) - 1)]);
	older = l && lane_peek(q, l, &look);
	if (BUSTED(ZERO_JUMPS))
		older = false;
	if (older)
		return 0;
	w = pq_pop_seen(q, t, PQ_ZERO, prio, order);
	*retry = !w;
	return w;
}

/*
 * Take from LOW, if there is nothing else.  *retry: another thread took the entry, or work that
 * goes before it was pushed.  Progress: lock-free.
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
	 * Everything that was pushed before the entry is visible now.  It must be this entry:
	 * another one may have been pushed after newer work of priority 0.
	 */
	if (nothing_above_low(q))
		w = pq_pop_seen(q, t, PQ_LOW, prio, order);
	*retry = !w;
	return w;
}

static u32 lanes_marked(const struct exec_queue *q)
{
	u32 i, n = 0, words = lanes_end(q) / 64;

	for (i = 0; i < words; i++)
		n += (u32)__builtin_popcountll(load_relaxed(&q->map[i]));
	return n;
}

/*
 * Note what is queued now.  Relaxed, as all of late_*: these are estimates, which one thread at
 * a time writes, the one that changes q->late.
 */
static void late_mark(struct exec_queue *q, u64 now)
{
	struct exec_lane *l;
	u32 d, s, k;

	store_relaxed(&q->late_since, now);
	for (k = 0; k < PQS; k++) {
		store_relaxed(&q->late_mark[k][1], load_relaxed(&q->late_mark[k][0]));
		store_relaxed(&q->late_mark[k][0], load_relaxed(&q->ticket[k]));
	}
	for_each_lane(q, 0, d, s, l) {
		store_relaxed(&l->late_mark[1], load_relaxed(&l->late_mark[0]));
		store_relaxed(&l->late_mark[0], load_relaxed(&l->ring.tail));
	}
}

/* Late work may be due: see take_late(). */
static __noinline void late_check(struct exec_queue *q, struct exec_thread *t, u64 now,
				  bool idled)
{
	u64 due = load_relaxed(&q->late), since = now - load_relaxed(&q->late_since);
	u64 late = q->x->late;

	/* Relaxed: it only selects the thread. */
	if ((s64)(now - due) < 0 || !cas_relaxed(&q->late, &due, now + late / 4))
		return;
	if (since >= late / 4)
		late_mark(q, now);
	/* The thread found the queue empty a moment ago. */
	if (idled)
		return;
	/* The host may have been elsewhere meanwhile, but a worker ran a piece of work so long. */
	t->late_all = t->queue && since >= late / 2;
	t->mode |= MODE_LATE;
}

/*
 * Read the clock: has the turn ended, is late work due, and when is the next reading?  That is
 * after about CHECK_NS, if the work runs as long as it did since the last one; twice as many takes
 * later after CALM readings that found short work, but at most step_most.  Progress: wait-free.
 */
static __noinline void turn_check(struct exec_queue *q, struct exec_thread *t)
{
	struct exec *x = q->x;
	u64 now = cycles(), spent = now - t->clock;
	bool idled = (s64)(t->idle - t->clock) > 0;

	t->clock = now;
	look_check(x, now);
	turn_pace(x, t, spent);
	if (idled)
		t->began = now;
	else if (now - t->began >= x->turn)
		t->mode |= MODE_OVER;
	if (unlikely(t->late)) {
		/* Late work had that much time, now the other work has as much. */
		store_relaxed(&q->late, now + (now - t->late));
		t->late = 0;
	}
	if (x->late && (s64)(now - load_relaxed(&q->late)) >= 0)
		late_check(q, t, now, idled);
}

/* Does the next take read the clock? */
static inline bool turn_due(const struct exec_thread *t)
{
	return (s32)(t->takes + 1 - t->check) >= 0;
}

/* The next hoard with work has its turn.  Sets *found if it is t's own, the next anyway. */
static u32 hoard_turn(struct exec_queue *q, struct exec_thread *t, bool *found)
{
	struct exec_lane *l;
	u32 start = t->around_hoard, d, s, w;

	for_each_lane(q, start, d, s, l) {
		if (hoard_empty(load_relaxed(&l->hoard.word)))
			continue;
		t->around_hoard = lane_slot(lanes_end(q), s + 1);
		*found = s == t->slot;
		w = *found ? 0 : hoard_take(&l->hoard);
		if (w)
			count(&t->stolen);
		return w;
	}
	return 0;
}

/*
 * The lane of slot s has its turn.  Sets *found if that is what t takes in the usual order: its
 * own ring, or what it has in its hoard of that lane's older work.
 */
static u32 lane_turn(struct exec_queue *q, struct exec_thread *t, u32 s, u32 how, bool *found)
{
	struct exec_lane *l = load_relaxed(&q->lanes[s]), *mine;
	u32 w = 0;

	mine = load_relaxed(&q->lanes[t->slot]);
	if (mine && t->hoarded == l && !hoard_empty(load_relaxed(&mine->hoard.word))) {
		*found = true;
		return 0;
	}
	if (s == t->slot) {
		*found = load_relaxed(&l->ring.head) != load_relaxed(&l->ring.tail);
		if (!*found || hoard_empty(load_relaxed(&l->hoard.word)))
			return 0;
		w = take_own(q, l);
		goto visit;
	}
	w = take_lane(q, t, l, how);
	if (!w)
		return 0;
	t->from = s;
	if (!mine || !lane_holds(mine, load_relaxed(&mine->ring.head)))
		return w;
visit:
	t->visit = s;
	t->mode |= MODE_VISIT;
	return w;
}

/*
 * A turn has ended: take from the next lane with work, from ZERO after the last one, and then
 * from a hoard.  Returns 0 if the usual order is right, or if there is nothing to take.  Looking at
 * a lane moves its lines, so a thread whose work is short looks at a few in each turn.
 * Progress: lock-free.
 */
static __noinline u32 look_around(struct exec_queue *q, struct exec_thread *t, u32 how)
{
	u32 end = lanes_end(q), lanes = lanes_marked(q), first = t->around, s, w = 0;
	struct exec_lane *mine = load_relaxed(&q->lanes[t->slot]);
	u32 looks = turn_looks(t, lanes);
	bool wrapped = false, found = false, retry;

	t->mode &= ~(u32)(MODE_OVER | MODE_VISIT);
	turn_begin(q->x, t, lanes);
	if (BUSTED(NO_LOOK_AROUND))
		return 0;
	while (!w && !found && !(wrapped && t->around > first)) {
		s = t->around < end ? t->around + lane_next(q, end, t->around, 0) : t->around;
		if (s < end) {
			t->around = s + 1;
			w = lane_turn(q, t, s, how, &found);
			if (!--looks)
				break;
		} else if (s == end || t->around < end) {
			t->around = end + 1;
			/* What is in the thread's hoard may be older. */
			if (load_relaxed(&q->n[PQ_ZERO]) &&
			    (!mine || hoard_empty(load_relaxed(&mine->hoard.word))))
				w = take_zero(q, t, &retry);
		} else {
			if (wrapped)
				break;
			wrapped = true;
			t->around = 0;
			if (!t->queue)
				t->mode |= MODE_QUEUE;
			w = hoard_turn(q, t, &found);
		}
	}
	turn_found(t, w);
	return w;
}

/* Take from the lane that has its turn, or the next one if it is empty.  Progress: lock-free. */
static u32 take_visited(struct exec_queue *q, struct exec_thread *t, u32 how)
{
	struct exec_lane *l = load_relaxed(&q->lanes[t->visit]);
	struct exec_lane *mine = load_relaxed(&q->lanes[t->slot]);
	u32 w = 0;

	/* First what it has taken of that lane in a batch: that is older. */
	if (t->hoarded == l && mine && !hoard_empty(load_relaxed(&mine->hoard.word)))
		w = take_hoard(q, t, &mine->hoard);
	/* The turn is of the queue from which the thread took before; this one may lack the lane. */
	if (!w && l)
		w = l == mine ? take_own(q, l) : take_lane(q, t, l, how);
	return w ? w : look_around(q, t, how);
}

/* Take work of priority 0.  *retry as take_zero().  Progress: lock-free. */
static __always_inline_fn u32 take_normal(struct exec_queue *q, struct exec_thread *t, u32 how,
					  bool *retry)
{
	struct exec_lane *mine = load_relaxed(&q->lanes[t->slot]);
	u32 w;

	*retry = false;
	if (unlikely(t->mode & (MODE_OVER | MODE_VISIT))) {
		w = t->mode & MODE_OVER ? look_around(q, t, how) : take_visited(q, t, how);
		if (w)
			return w;
	}
	if (likely(mine)) {
		if (!hoard_empty(load_relaxed(&mine->hoard.word)) &&
		    (w = take_hoard(q, t, &mine->hoard)))
			return w;
		w = take_own(q, mine);
		if (w)
			return w;
	}
	w = take_other(q, t, how);
	if (w || likely(!load_relaxed(&q->n[PQ_ZERO])))
		return w;
	return take_zero(q, t, retry);
}

/* Is anything queued with priority 0 that was queued at the last but one mark, or (all) now? */
static bool lanes_late(struct exec_queue *q, bool all)
{
	struct exec_lane *l;
	u32 d, s;

	for_each_lane(q, 0, d, s, l) {
		u64 head = load_relaxed(&l->ring.head);

		if (all ? head != load_relaxed(&l->ring.tail) :
		    (s64)((load_relaxed(&l->late_mark[1]) - head) << (64 - RING_POS_BITS)) > 0)
			return true;
		if (!hoard_empty(load_relaxed(&l->hoard.word)))
			return true;
	}
	return load_relaxed(&q->n[PQ_ZERO]);
}

/*
 * Take what is late of the next priority below *prio.  *prio receives its priority, or that up to
 * which there is nothing late.  Progress: lock-free.
 */
static u32 late_below(struct exec_queue *q, struct exec_thread *t, s64 *prio)
{
	u64 high = load_relaxed(&q->late_mark[PQ_HIGH][!t->late_all]);
	u64 low = load_relaxed(&q->late_mark[PQ_LOW][!t->late_all]);
	bool retry;
	u32 w;

	if (*prio > 1) {
		w = pq_pop_below(q, t, PQ_HIGH, prio, high);
		if (w || *prio != INT64_MIN)
			return w;
		*prio = 1;
	}
	if (*prio > 0) {
		*prio = 0;
		t->mode |= MODE_OVER;
		if (lanes_late(q, t->late_all) && (w = take_normal(q, t, LOOK_LATE, &retry)))
			return w;
	}
	return pq_pop_below(q, t, PQ_LOW, prio, low);
}

/*
 * Late work.  A priority is an order, and work of a lower one must not wait for ever.  Four times
 * in x->late a thread notes what is queued.  What was queued at the last but one of these times,
 * or anything if no worker read the clock for twice as long, is late, unless it has the highest
 * priority of all.  The priorities have turns, from the higher to the lower, and in each the
 * oldest work goes.  One thread at a time takes late work, one piece, and the next may be taken
 * when as much time has passed as that piece took: so other work has at least half of the
 * time of that thread, and all of the others.  Progress: lock-free.
 */
static __noinline u32 take_late(struct exec_queue *q, struct exec_thread *t)
{
	s64 top, prio, last = load_relaxed(&q->late_prio);
	u64 order;
	u32 w;

	t->mode &= ~(u32)MODE_LATE;
	if (!load_relaxed(&q->n[PQ_HIGH]) || !prioq_peek(q->pq[PQ_HIGH], &top, &order)) {
		if (!load_relaxed(&q->n[PQ_LOW]))
			return 0;
		top = 0;
		if (lanes_empty(q) && pq_empty(q, PQ_ZERO) &&
		    !prioq_peek(q->pq[PQ_LOW], &top, &order))
			return 0;
	}
	prio = last < top && last > INT64_MIN ? last : top;
	w = late_below(q, t, &prio);
	if (prio == INT64_MIN && last < top) {
		prio = top;
		w = late_below(q, t, &prio);
	}
	store_relaxed(&q->late_prio, prio);
	if (!w)
		return 0;
	t->late = t->clock;
	t->check = t->takes + 1;
	return w;
}

/*
 * Take the next piece of work of q; 0: none.  how: LOOK_*.
 * Progress: lock-free (a failed CAS means that another thread took something).
 */
u32 queue_take(struct exec_queue *q, struct exec_thread *t, u32 how)
{
	bool retry;
	u32 w;

	t->from_q = q;
	t->left = false;
	do {
		if (unlikely(turn_due(t)))
			turn_check(q, t);
		t->takes++;
		if (unlikely(t->mode & MODE_LATE) && (w = take_late(q, t)))
			return w;
		if (unlikely(load_relaxed(&q->n[PQ_HIGH])) && (w = pq_pop(q, t, PQ_HIGH)))
			return w;
		w = take_normal(q, t, how, &retry);
		if (w)
			return w;
		if (retry)
			continue;
		if (!(how & LOOK_DEEP) && !load_relaxed(&q->n[PQ_LOW]))
			return 0;
		w = steal(q, t);
		if (w || !load_relaxed(&q->n[PQ_LOW]))
			return w;
		w = take_low(q, t, &retry);
	} while (retry);
	return w;
}

static inline bool lanes_unmarked(const struct exec_queue *q)
{
	u32 n = lanes_end(q);

	return lane_next(q, n, 0, 0) == n;
}

/*
 * No lane of q is marked and its priority queues are empty.  A bitmap of several words is read
 * twice: meanwhile a batch may move work from a lane whose word is read later to a lane whose
 * word was read before.  Work moves once, so the second reading finds it.
 */
static inline bool queue_unused(struct exec_queue *q)
{
	return lanes_unmarked(q) && (lanes_end(q) == 64 || lanes_unmarked(q)) &&
	       !load_relaxed(&q->n[PQ_HIGH]) && !load_relaxed(&q->n[PQ_ZERO]) &&
	       !load_relaxed(&q->n[PQ_LOW]);
}

/* exec_take() without its fast path. */
u32 thread_take(struct exec *x, struct exec_thread *t, u32 how)
{
	u32 i, n, k, w;

	if (t->queue)
		return queue_take(t->queue, t, how);
	/* Stay with the queue that had work until each of its lanes had a turn. */
	if (likely(t->from_q && !(t->mode & MODE_QUEUE) && thread_serves(t, t->from_q))) {
		w = queue_take(t->from_q, t, how);
		if (likely(w))
			return w;
	}
	t->mode &= ~(u32)MODE_QUEUE;
	n = x->nqueues;
	for (i = 0, k = t->turn; i < n; i++, k++) {
		struct exec_queue *q;

		if (k >= n)
			k = 0;
		q = x->queues[k];
		if (queue_unused(q) || !thread_serves(t, q))
			continue;
		w = queue_take(q, t, how);
		if (w) {
			t->turn = k + 1;
			return w;
		}
	}
	return 0;
}

/*
 * The fast path of a take: t runs work that it made ready itself.  q is the queue that it last
 * took from.  Returns 0 if other work may be due first, or if `wanted` is not 0 and is not the
 * next piece.  Progress: lock-free.
 */
static __always_inline_fn u32 take_quick(struct exec_queue *q, struct exec_thread *t,
					 u32 wanted)
{
	u32 w = 0;

	if (likely(q && q == t->to_q && !t->mode && !turn_due(t) && thread_serves(t, q)) &&
	    likely(!load_relaxed(&q->n[PQ_HIGH]) &&
		   hoard_empty(load_relaxed(&t->to->hoard.word)))) {
		w = ring_take_wanted(&t->to->ring, false, wanted);
		if (likely(w))
			t->takes++;
	}
	return w;
}

u32 exec_take(struct exec *x, struct exec_thread *t)
{
	u32 w = take_quick(t->from_q, t, 0);

	return likely(w) ? w : thread_take(x, t, LOOK_DEEP);
}

u32 exec_look(const struct exec_thread *t)
{
	const struct ring *r;
	u64 head;

	if (!t->to_q)
		return 0;
	r = &t->to->ring;
	head = load_relaxed(&r->head);
	return head == load_relaxed(&r->tail) ? 0 :
	       slot_work(load_relaxed(&r->slots[head & r->mask]));
}

u32 exec_take_this(struct exec_thread *t, u32 work)
{
	/* A device's queue belongs to its own threads. */
	return load_relaxed(&t->to_q->drive) ? ring_take_wanted(&t->to->ring, true, work) : 0;
}

bool exec_turn_over(const struct exec *x, u64 since)
{
	return cycles() - since > x->next;
}

bool exec_next(struct exec *x, struct exec_thread *t, u32 work)
{
	u32 n = t->nexts;
	u64 now;

	if (!t->budget || !next_pays(t, n))
		return false;
	/* Pieces may be longer than the sampled ones: check the time after 1, 2, 4 and 8. */
	if (!(n & (n - 1))) {
		now = cycles();
		if (!n)
			t->since = now;
		else if (now - t->since > x->next)
			return false;
	}
	if (unlikely(!take_quick(t->from_q, t, work)))
		return false;
	store_relaxed(&t->nexts, n + 1);
	if (t->budget != EXEC_UNLIMITED)
		t->budget--;
	return true;
}

/*
 * Has other queued work its turn before what t makes ready?  Out of line: the caller has read
 * that the clock is due, or that a turn has ended.  Progress: lock-free.
 */
static __noinline bool turn_of_others(struct exec_queue *q, struct exec_thread *t)
{
	if (turn_due(t))
		turn_check(q, t);
	if (!(t->mode & (MODE_OVER | MODE_LATE)))
		return false;
	if (!queue_empty(q))
		return true;
	t->mode &= ~(u32)(MODE_OVER | MODE_LATE);
	t->began = t->clock;
	return false;
}

/* May t run new work of this priority before all that is queued?  Progress: lock-free. */
bool thread_goes_first(struct exec_queue *q, struct exec_thread *t, s32 prio)
{
	const struct exec_lane *mine = load_relaxed(&q->lanes[t->slot]);
	s64 top;
	u64 order;
	bool own;

	if (unlikely(turn_due(t) || t->mode) && turn_of_others(q, t))
		return false;
	if (load_relaxed(&q->n[PQ_HIGH]) && prioq_peek(q->pq[PQ_HIGH], &top, &order) &&
	    top >= prio)
		return false;
	if (prio > 0)
		return true;
	own = mine && lane_holds(mine, load_relaxed(&mine->ring.head));
	if (BUSTED(HANDOFF_JUMPS))
		own = false;
	if (own || load_relaxed(&q->n[PQ_ZERO]))
		return false;
	return prio == 0 ||
	       (lanes_empty(q) && (!load_relaxed(&q->n[PQ_LOW]) ||
				   !prioq_peek(q->pq[PQ_LOW], &top, &order) || top < prio));
}
