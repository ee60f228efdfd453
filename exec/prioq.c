// SPDX-License-Identifier: Apache-2.0
/*
 * An exact priority queue: a skip list with recycled nodes.
 *
 * Purpose: the run queue for work with a priority.  The order is exact: the higher priority
 * first, then the smaller `order`.  The queue is linearizable and lock-free.  Its only memory
 * is the nodes of a type-stable pool, which are reused at once, without RCU or hazard pointers.
 *
 * Structures: level 0 is a sorted list of all entries; level l + 1 has a quarter of the entries
 * of level l.  The key is (rank, order, index of the node).  rank is the inverted priority, so
 * the smaller rank goes first, and the index makes the keys of linked nodes unique.  A level is
 * a list as in Harris and Michael.  Each link is one word, with these accessors only:
 *
 *   63          29  28   27          0
 *   [    tag     ][mark][    index    ]     index 0: end of the list
 *
 * A life of a node is the time from its allocation to its return to the pool.  A marked word
 * means that the node which holds the word is removed; the word does not change again in this
 * life.  The tag belongs to the word, not to the node that it names: every change except the
 * mark increments it, and a new life continues with the last tag of the previous one.  So a
 * link never has the same unmarked value twice.
 *
 *   push  links level 0 (the entry is queued), then levels 1 .. h - 1
 *   pop   takes the first entry, or the first below a priority: marks its level 0 (the popper
 *         owns the entry), then its levels 1 .. h - 1
 *   The last of the two (`hold`) walks to the key again, which unlinks the node on all levels,
 *   and frees it.  The pusher does not hold a node with one level, because it does not access
 *   the node after it is queued.
 *
 * Proof sketch.  "x is in level l": a walk along level l from the head comes to x.
 *  1. A node enters level l once in a life, by the pusher's CAS on its predecessor, and
 *     leaves it by a CAS on its predecessor (snip), after its word l was marked.  So while
 *     x's word l is unmarked, and x was linked in this life, x is in level l.
 *  2. A CAS on pred's word l from w, w unmarked, succeeds only if the word did not change
 *     since w was read, because of the tag.  Hence pred is in the same life and not removed,
 *     and its successor is still the same node in the same life, because that node could
 *     leave level l only by a change of this word.
 *  3. A step from pred to x, where w = pred's word l: read x's word l and key, then
 *     read pred's word again.  If it is still w, x was in level l all the time in between
 *     (2), so it was not recycled: its key and its word belong to this life.  If x is
 *     unmarked, the same now holds for x as for pred before: induction from the head, which
 *     is never removed.  If x is marked, it is snipped; its word does not change, so its
 *     successor cannot leave before it does.  If the word is not w, the walk starts again.
 *  4. A step down, from level l to l - 1 at pred: read the word l - 1, then word l again.
 *     If that is still w, pred is in this life, and it was linked in l - 1 before it was
 *     in l.  If the word l - 1 is unmarked, pred is in level l - 1 (1).  If it is marked,
 *     pred is being removed: mark its word l for the popper (by CAS from w: tags), and
 *     start again.
 *  5. Hence a walk to key k that ends on level l found, at one instant, a node in level l
 *     with a smaller key (or the head) whose successor is unmarked and not smaller.  The
 *     levels are sorted, by 2 and because the keys of linked nodes do not change.  So a
 *     removed node with key k, with all its words marked and no pusher that still links it,
 *     is in no level when the walk ends, and never will be in this life: it may be recycled.
 *  6. A pop that found x first and unmarked at t1, and marked it at t2, may have been
 *     overtaken by a push of y in front of x.  Let it take effect at the last instant of
 *     [t1, t2] at which x was first.  From then to t2 x is not first, so no thread takes or
 *     returns it, and no thread finds the queue empty: what is first at any instant was not
 *     popped before.  A push takes effect when level 0 is linked; a peek and an unsuccessful
 *     pop take effect when the head's word (or the first node's word) was read between two
 *     equal reads of the head's word.
 *
 * Ordering: EXEC-S1 <-> EXEC-S2: all changes of a link to another node release, and all reads
 * of links that are followed acquire; a thread that reaches a node sees at least the life in
 * which it was linked.  A mark is relaxed: it does not change the target of the link, and as a
 * read-modify-write it continues the release sequence of the link; S5 makes it visible in time
 * to the other holder.  No change needs to acquire: the value that it replaces was read with
 * acquire before, and the tag ensures that it is the same.  EXEC-S3 <-> EXEC-S4: the key and
 * the words of a new life are written with release and read with acquire.  A late walk that
 * reads one of them synchronizes with the new owner, so it sees what happened before the node
 * was recycled, also that pred's word changed; so the second read of pred's word may be
 * relaxed:
 *
 *      walk                                 others
 *      w = pred->next (S2)                  snip x: pred->next = w' (S1)
 *      ..                                   free x, allocate x
 *      rank = x->rank (S4)       <-----     x->rank = new (S3)
 *      pred->next again: w' or later
 *
 * EXEC-S5 <-> EXEC-S6: `hold`; the last holder sees what the other one did.
 *
 * Progress: all three calls are lock-free.  A walk starts again only when a word that it had
 * read changed, that is, another thread's CAS succeeded.  Without interference a push makes at
 * most 2h - 1 successful CAS for its links, and a pop at most h marks; each link is snipped
 * once.  A thread that stops anywhere holds at most one node, and what its cache holds.
 *
 * Lifetime: the pusher owns a node from pool_get() to the CAS on level 0, then the queue and
 * both holders do, and after the last walk the pool.  A stale reader may read it in any state
 * and detects that as 2 to 4 say.  ABA: a thread that stops between the read of a word and its
 * CAS is misled only if the tag wraps meanwhile, after 2^35 changes of this word, and the
 * thread continues at exactly that value.
 *
 * Cost: push O(log n) expected, also at the end of many equal keys; pop O(1), and a walk along
 * the front for one node in four.  All poppers contend for one word: exact order does not scale
 * with the number of poppers.
 *
 * References: Pugh, "Skip lists", CACM 33(6), 1990; Harris, "A pragmatic implementation
 * of non-blocking linked-lists", DISC 2001; Michael, "High performance dynamic lock-free
 * hash tables and list-based sets", SPAA 2002 (tags); Fraser, "Practical lock-freedom",
 * UCAM-CL-TR-579, 2004; Lotan and Shavit, "Skiplist-based concurrent priority queues",
 * IPDPS 2000.
 */
#include <stdlib.h>
#include <string.h>

#include <base/err.h>
#include <base/random.h>
#include <exec/prioq.h>

#define LEVELS		13u	/* 4^13 entries; a node is two lines */
#define BELOW_MOST	16u	/* priorities that one prioq_pop_below() checks */

#define LINK_IDX	((u64)PRIOQ_NODES_MAX)
#define LINK_MARK	(LINK_IDX + 1)
#define LINK_TAG	(LINK_MARK << 1)	/* the increment of the tag */

/* hold: the number of threads that may still change the node's links, and its height. */
#define HOLD_ONE	1u
#define HOLD_PARTIES	3u
#define HOLD_HEIGHT	8u	/* shift */

/*
 * Field legend:
 *   A  atomic; any thread reads it, also in a later life of the node
 *   O  the pusher until the node is queued, then its popper
 */
struct prioq_node {
	u64 rank;		/* A: smaller first */
	u64 order;		/* A */
	u32 work;		/* O */
	u32 hold;		/* A; the height does not change in a life */
	u64 next[LEVELS];	/* A: links; 0 .. 4 are on the line of the key */
};

struct prioq {
	struct prioq_node head __cacheline_aligned;	/* its links only */
	/* Read by all threads and rarely changed: not on the head's lines. */
	struct pool *nodes __cacheline_aligned;		/* I */
	u32 top;		/* A: no node has more than top + 1 levels; only grows */
};

BUILD_BUG_ON((LINK_IDX & (LINK_IDX + 1)) != 0);
BUILD_BUG_ON(sizeof(struct prioq_node) != 128);
BUILD_BUG_ON(offsetof(struct prioq_node, next) != 24);
BUILD_BUG_ON(LEVELS > 16);		/* new_height() */

struct key {
	u64 rank;
	u64 order;
	u32 idx;
};

/* The result of a walk: on each level, the last node before the key, and its link. */
struct path {
	struct prioq_node *pred[LEVELS];
	u64 link[LEVELS];
};

static inline u32 link_idx(u64 w)
{
	return (u32)(w & LINK_IDX);
}

static inline bool link_marked(u64 w)
{
	return w & LINK_MARK;
}

/* The value that follows w in the same word: the next tag, no mark. */
static inline u64 link_next(u64 w, u32 idx)
{
	u64 tag = w & ~(LINK_TAG - 1);

	if (!BUSTED(PRIOQ_ABA))
		tag += LINK_TAG;
	return tag | idx;
}

static inline u64 rank_of(s64 prio)
{
	return ~((u64)prio ^ 1ull << 63);
}

static inline s64 prio_of(u64 rank)
{
	return (s64)(~rank ^ 1ull << 63);
}

static inline struct prioq_node *node(const struct prioq *q, u32 idx)
{
	return pool_obj(q->nodes, idx);
}

/* A random height: one node in four is on the next level too.  Progress: wait-free. */
static u32 new_height(struct prioq_cache *c)
{
	u64 z = random_next(&c->seed);
	u32 h = 1 + (u32)__builtin_ctzll(z | 1ull << 40) / 2;

	return (u32)min_u(h, LEVELS);
}

/* Progress: wait-free. */
static bool node_before(const struct prioq_node *x, u32 idx, const struct key *k)
{
	/* EXEC-S4 <-> EXEC-S3: if it is of a later life, the caller sees the changed link. */
	u64 v = load_acquire(&x->rank);

	if (v != k->rank)
		return v < k->rank;
	v = load_acquire(&x->order);	/* EXEC-S4 <-> EXEC-S3 */
	if (v != k->order)
		return v < k->order;
	return idx < k->idx;
}

/*
 * Walk from the head to k on all levels down to `low`, and unlink marked nodes on the
 * way.  k's own node, if it is linked, must be marked on the levels down to low.
 * Progress: lock-free.
 */
static void walk(struct prioq *q, const struct key *k, u32 low, struct path *p)
{
	struct prioq_node *pred, *x;
	u64 w, below, next;
	bool before;
	u32 l;

again:
	pred = &q->head;
	l = load_relaxed(&q->top);
	w = load_acquire(&pred->next[l]);	/* EXEC-S2 <-> EXEC-S1 */
	for (;;) {
		/* Here pred was in level l with the link w, unmarked. */
		while (link_idx(w)) {
			x = node(q, link_idx(w));
			/* EXEC-S2 <-> EXEC-S1; EXEC-S4 <-> EXEC-S3 */
			next = load_acquire(&x->next[l]);
			before = node_before(x, link_idx(w), k);
			/* Relaxed: after two acquires, see Ordering. */
			if (unlikely(load_relaxed(&pred->next[l]) != w))
				goto again;
			if (unlikely(link_marked(next))) {
				next = link_next(w, link_idx(next));
				/* EXEC-S1 <-> EXEC-S2: x is out of level l. */
				if (!cas_release_relaxed(&pred->next[l], &w, next))
					goto again;
				w = next;
				continue;
			}
			if (!before)
				break;
			pred = x;
			w = next;
		}
		p->pred[l] = pred;
		p->link[l] = w;
		if (l == low)
			return;

		/* EXEC-S2 <-> EXEC-S1; EXEC-S4 <-> EXEC-S3 */
		below = load_acquire(&pred->next[l - 1]);
		/* The head is never removed, so it needs no second check. */
		if (pred != &q->head) {
			if (unlikely(load_relaxed(&pred->next[l]) != w))
				goto again;
			if (unlikely(link_marked(below))) {
				/* The popper has not marked this level yet.  Relaxed. */
				cas_relaxed(&pred->next[l], &w, w | LINK_MARK);
				goto again;
			}
		}
		l--;
		w = below;
	}
}

/*
 * One holder no longer needs x; x is removed, or the other holder will remove it.  low: 0, or 1
 * if the caller itself unlinked level 0.  Progress: lock-free.
 * Lifetime: the second holder frees the node; the caller must not access x afterwards.
 */
static void node_release(struct prioq *q, struct prioq_cache *c, struct prioq_node *x,
			 const struct key *k, u32 low)
{
	struct path p;

	/* EXEC-S5 <-> EXEC-S6: the links and marks of the first, then the walk of the last. */
	if ((fetch_add_acq_rel(&x->hold, -HOLD_ONE) & HOLD_PARTIES) != HOLD_ONE)
		return;
	if (!BUSTED(PRIOQ_NO_WALK))
		walk(q, k, low, &p);
	pool_put(q->nodes, &c->nodes, k->idx);
}

/* For a node that is higher than all before it.  Progress: lock-free. */
static __noinline void top_raise(struct prioq *q, u32 top)
{
	u32 old = load_relaxed(&q->top);

	/*
	 * Relaxed: it precedes the node's links, so a thread that has the node sees it; any
	 * other walk that starts lower is slower, not wrong.
	 */
	while (old < top && !cas_relaxed(&q->top, &old, top))
		;
}

/*
 * Link levels 1 .. h - 1 of x, which is queued; p is the path to it.  Its popper may mark it
 * concurrently.  Progress: lock-free.
 */
static void link_upper(struct prioq *q, struct prioq_node *x, u32 h, const struct key *k,
		       struct path *p)
{
	u64 own, w;
	u32 l;

	for (l = 1; l < h; l++) {
		for (;;) {
			own = load_relaxed(&x->next[l]);
			w = p->link[l];
			/*
			 * Only a mark can interfere.  Relaxed: x is not in level l yet, and a
			 * late walk synchronizes by EXEC-S3.
			 */
			if (link_marked(own) ||
			    !cas_relaxed(&x->next[l], &own, link_next(own, link_idx(w))))
				return;
			/* EXEC-S1 <-> EXEC-S2 */
			if (likely(cas_release_relaxed(&p->pred[l]->next[l], &w,
						       link_next(w, k->idx))))
				break;
			walk(q, k, l, p);
		}
	}
}

/* Progress: lock-free; a system call when the pool grows. */
bool prioq_push(struct prioq *q, struct prioq_cache *c, s64 prio, u64 order, u32 work)
{
	struct key k = { .rank = rank_of(prio), .order = order };
	struct prioq_node *x;
	struct path p;
	u64 own, w;
	u32 h, l;

	BUG_ON1(!work);
	x = pool_get(q->nodes, &c->nodes, &k.idx);
	if (unlikely(!x))
		return false;
	h = new_height(c);
	if (unlikely(h - 1 > load_relaxed(&q->top)))
		top_raise(q, h - 1);

	/* EXEC-S3 <-> EXEC-S4: a new life, for threads that still read the old one. */
	store_release(&x->rank, k.rank);
	store_release(&x->order, k.order);	/* EXEC-S3 <-> EXEC-S4 */
	x->work = work;
	store_relaxed(&x->hold, h << HOLD_HEIGHT | (h > 1 ? 2 * HOLD_ONE : HOLD_ONE));
	for (l = 1; l < h; l++)	/* EXEC-S3 <-> EXEC-S4 */
		store_release(&x->next[l], link_next(load_relaxed(&x->next[l]), 0));
	own = load_relaxed(&x->next[0]);
	do {
		walk(q, &k, 0, &p);
		w = p.link[0];
		own = link_next(own, link_idx(w));
		store_release(&x->next[0], own);	/* EXEC-S3 <-> EXEC-S4 */
		/* EXEC-S1 <-> EXEC-S2: the node, then the link to it. */
	} while (unlikely(!cas_release_relaxed(&p.pred[0]->next[0], &w, link_next(w, k.idx))));

	if (h > 1) {
		link_upper(q, x, h, &k, &p);
		node_release(q, c, x, &k, 0);
	}
	return true;
}

/*
 * Return the first unmarked node, the head's link *w to it, and its link *own, all of one
 * instant; NULL: the queue is empty.  *rank and *order are of the same life; both pointers may
 * be NULL.  On entry *w is the head's link, loaded with acquire.  Progress: lock-free.
 */
static inline struct prioq_node *first(struct prioq *q, u64 *w, u64 *own, u64 *rank, u64 *order)
{
	u64 *head = &q->head.next[0];
	struct prioq_node *x;
	u64 now;

	while (link_idx(*w)) {
		x = node(q, link_idx(*w));
		/* EXEC-S4 <-> EXEC-S3 */
		if (rank) {
			*rank = load_acquire(&x->rank);
			*order = load_acquire(&x->order);	/* EXEC-S4 <-> EXEC-S3 */
		}
		*own = load_acquire(&x->next[0]);	/* also EXEC-S2 <-> EXEC-S1 */
		now = load_acquire(head);		/* EXEC-S2 <-> EXEC-S1 */
		if (unlikely(now != *w)) {
			*w = now;
			continue;
		}
		if (likely(!link_marked(*own)))
			return x;
		now = link_next(*w, link_idx(*own));
		/*
		 * EXEC-S1 <-> EXEC-S2, and EXEC-S2 <-> EXEC-S1 when it fails.  (When not: *w
		 * was read with acquire.)
		 */
		if (cas_acq_rel_acquire(head, w, now))
			*w = now;
	}
	return NULL;
}

/*
 * The caller marked x, which *p's level-0 link named, and so owns it: unlink it, and return its
 * work.  own: x's link before the mark.  Progress: lock-free.
 */
static inline u32 take_out(struct prioq *q, struct prioq_cache *c, struct prioq_node *x, u64 own,
			   u64 *from, u64 w, s64 *prio)
{
	struct path p;
	struct key k;
	u32 h, l, work;
	bool out;

	k.idx = link_idx(w);
	k.rank = load_relaxed(&x->rank);
	k.order = load_relaxed(&x->order);
	h = load_relaxed(&x->hold) >> HOLD_HEIGHT;
	work = x->work;
	*prio = prio_of(k.rank);
	/* EXEC-S1 <-> EXEC-S2: out of level 0, if the link to x has not changed. */
	out = cas_release_relaxed(from, &w, link_next(w, link_idx(own)));
	if (likely(h == 1)) {
		if (unlikely(!out))
			walk(q, &k, 0, &p);
		pool_put(q->nodes, &c->nodes, k.idx);
		return work;
	}
	for (l = h - 1; l; l--) {
		own = load_relaxed(&x->next[l]);
		/* Its pusher may link it, and a walk may mark it.  Relaxed: a mark. */
		while (!link_marked(own) &&
		       !cas_relaxed(&x->next[l], &own, own | LINK_MARK))
			;
	}
	/* EXEC-S6 <-> EXEC-S5 */
	node_release(q, c, x, &k, out ? 1 : 0);
	return work;
}

/*
 * Remove the first entry; with order, only if it has *prio and *order.  It is marked by a CAS
 * on a tagged word of the life in which the key was read, so the key is right.
 * Progress: lock-free.
 */
static inline u32 pop(struct prioq *q, struct prioq_cache *c, s64 *prio, const u64 *order)
{
	struct prioq_node *x;
	u64 w, own, rank = 0, at = 0;

	do {
		w = load_acquire(&q->head.next[0]);	/* EXEC-S2 <-> EXEC-S1 */
		x = first(q, &w, &own, order ? &rank : NULL, &at);
		if (!x || (order && (rank != rank_of(*prio) || at != *order)))
			return 0;
		/* The caller owns x then.  Relaxed: a mark. */
	} while (unlikely(!cas_relaxed(&x->next[0], &own, own | LINK_MARK)));
	return take_out(q, c, x, own, &q->head.next[0], w, prio);
}

/*
 * As a walk ends at a node that is in level 0 and unmarked (5), that entry is the first of its
 * priority then.  Its key and link are read between two equal readings of the link to it (3), so
 * the CAS on it is exact as in pop().  Progress: lock-free.
 */
u32 prioq_pop_below(struct prioq *q, struct prioq_cache *c, s64 *prio, u64 before)
{
	struct key k = { .rank = rank_of(*prio - 1) };
	struct prioq_node *x;
	struct path p;
	u64 w, own, rank, order;
	u32 n = 0;

	while (n < BELOW_MOST) {
		walk(q, &k, 0, &p);
		w = p.link[0];
		if (!link_idx(w)) {
			*prio = INT64_MIN;
			return 0;
		}
		x = node(q, link_idx(w));
		rank = load_acquire(&x->rank);		/* EXEC-S4 <-> EXEC-S3 */
		order = load_acquire(&x->order);	/* EXEC-S4 <-> EXEC-S3 */
		own = load_acquire(&x->next[0]);	/* EXEC-S2 <-> EXEC-S1, EXEC-S4 <-> EXEC-S3 */
		/* Relaxed: after three acquires, see Ordering. */
		if (unlikely(load_relaxed(&p.pred[0]->next[0]) != w || link_marked(own)))
			continue;
		if (order >= before) {
			*prio = prio_of(rank);
			k = (struct key){ rank, UINT64_MAX, UINT32_MAX };
			n++;
			continue;
		}
		/* The caller owns x then.  Relaxed: a mark. */
		if (likely(cas_relaxed(&x->next[0], &own, own | LINK_MARK)))
			return take_out(q, c, x, own, &p.pred[0]->next[0], w, prio);
	}
	return 0;
}

/* Progress: lock-free. */
u32 prioq_pop(struct prioq *q, struct prioq_cache *c, s64 *prio)
{
	return pop(q, c, prio, NULL);
}

/* Progress: lock-free. */
u32 prioq_pop_this(struct prioq *q, struct prioq_cache *c, s64 prio, u64 order)
{
	return pop(q, c, &prio, &order);
}

/* Progress: lock-free; wait-free when the queue is empty. */
bool prioq_peek(struct prioq *q, s64 *prio, u64 *order)
{
	u64 w = load_acquire(&q->head.next[0]);	/* EXEC-S2 <-> EXEC-S1 */
	u64 own, rank;

	if (!first(q, &w, &own, &rank, order))
		return false;
	*prio = prio_of(rank);
	return true;
}

/* Progress: blocking (memory allocation). */
int prioq_pool_add(struct arena *a, u32 max_work, u32 max_threads, u32 mag, struct pool **out)
{
	/*
	 * A cache holds two magazines, and a flush holds another; a thread inside push or pop
	 * holds a node whose work may be queued elsewhere already.
	 */
	u64 max = max_work + (u64)max_threads * (3 * mag + 1);
	/* Nodes must not become zero: a walk would take a zero link for the end of the list. */
	struct pool_desc d = { .name = "prioq", .size = sizeof(struct prioq_node), .keep = true,
			       .mag = mag };

	if (max > PRIOQ_NODES_MAX)
		return err(-EINVAL, "priority queue: %u pieces of work are too many", max_work);
	d.max = (u32)max;
	return arena_add(a, &d, out);
}

/* Progress: blocking (memory allocation). */
int prioq_create(struct pool *nodes, struct prioq **out)
{
	struct prioq *q = NULL;

	if (!pool_commit_hook("alloc", sizeof(*q)))
		q = aligned_alloc(CACHELINE, sizeof(*q));
	if (!q)
		return err(-ENOMEM, "priority queue: no memory");
	memset(q, 0, sizeof(*q));
	q->nodes = nodes;
	*out = q;
	return 0;
}

/* Progress: blocking (memory allocation).  Lifetime: no thread uses q any more. */
void prioq_destroy(struct prioq *q)
{
	free(q);
}
