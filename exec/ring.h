/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ready work of one producer, in order, that any thread may take; layer 3, inside exec only.
 * Which calls may run concurrently on one ring (- free, X excluded):
 *
 *             push  peek  take  batch
 *   push       X     -     -     -         only the owner of the ring pushes
 *   peek             -     -     -
 *   take                   -     -
 *   batch                        -         only the owner of a hoard fills it
 */
#ifndef EXEC_RING_H
#define EXEC_RING_H

#if !defined(PAWL_LAYER) || (PAWL_LAYER != 3 && !defined(PAWL_TEST_INTERNAL))
#error "exec/ring.h is inside exec"
#endif

#include <base/atomic.h>
#include <base/bug.h>
#include <exec/waits.h>

#ifdef PAWL_MODEL
#define RING_FIRST	1u	/* few, so that small scenarios wrap and grow */
#else
#define RING_FIRST	8u	/* log2 of the slots that a ring begins with */
#endif
#define RING_LAST	21u	/* log2 of the most slots */
#define RING_POS_BITS	48u
#define RING_POS	((1ull << RING_POS_BITS) - 1)
#define HOARD_MAX	64u

/*
 * A slot is one word of 32 bits, so that one cache line with sixteen of them moves from the
 * producer to the consumer, once.  The word, with these accessors only:
 *
 *   31    23   22  21    20    0
 *   [  0   ][ odd, even ][ work ]      0: empty, at any position
 *
 * odd and even distinguish position p from the previous and the next position in the same slot:
 * the one that bit log2(slots) of p names is set.  So a consumer that waits for p polls the
 * slot, and does not read the producer's tail.
 */
#define SLOT_WORK_BITS	21u
#define SLOT_WORK	((1u << SLOT_WORK_BITS) - 1)
#define SLOT_LINE	16u	/* slots on a line */

struct ring {
	/*
	 * A: position of the oldest element; in the bits above, from a batch until its hoard is
	 * opened, the claimer: the slot + 1 of the thread that took the batch.
	 */
	u64 head __cacheline_aligned;
	u64 arr;		/* A: address of the slots | log2 of their number */

	u64 tail __cacheline_aligned;	/* S: next position */
	u64 own;		/* S: elements that the producer took itself */
	u64 empty;		/* S: how often the producer found no element */
	u64 seen;		/* O: a position that head is known to have reached */
	u32 *slots;		/* O: the slots that arr names */
	u64 mask;		/* O */
	u64 log2;		/* O */
	/* O: by log2 - RING_FIRST, those allocated; zero, except the current one (arr) */
	u32 *array[RING_LAST - RING_FIRST + 1];

	struct waits waits __cacheline_aligned;	/* of what other threads took, or the producer */
};

/*
 * Work that a thread took from another's ring by one move of its head.  The work is always
 * visible to every thread: before the move in the ring, after it here.
 */
struct hoard {
	u64 word __cacheline_aligned;	/* A: generation << 16 | SHUT | n << 8 | next */
	u32 work[HOARD_MAX] __cacheline_aligned;	/* A */
};

#define HOARD_SHUT	0x8000u	/* the batch has not taken effect, and may never do so */

static inline u32 hoard_n(u64 w)
{
	return (w >> 8) & 0x7f;
}

static inline u32 hoard_next(u64 w)
{
	return w & 0x7f;
}

static inline bool hoard_empty(u64 w)
{
	return (w & HOARD_SHUT) || hoard_next(w) == hoard_n(w);
}

static inline u64 ring_pos(u64 head)
{
	return head & RING_POS;
}

static inline u32 ring_claimer(u64 head)
{
	return (u32)(head >> RING_POS_BITS);
}

static inline u32 *ring_slot_at(u64 arr, u64 pos)
{
	return (u32 *)(uintptr_t)(arr & ~63ull) + (pos & ((1ull << (arr & 63)) - 1));
}

static inline bool slot_holds(u32 word, u64 arr, u64 pos)
{
	return word >> (SLOT_WORK_BITS + (pos >> (arr & 63) & 1)) & 1;
}

static inline u32 slot_word(u64 arr, u64 pos, u32 work)
{
	return 1u << (SLOT_WORK_BITS + (pos >> (arr & 63) & 1)) | work;
}

static inline u32 slot_work(u32 word)
{
	return word & SLOT_WORK;
}

/* The oldest element, as ring_peek() found it. */
struct ring_look {
	u64 head;		/* the value that a take expects */
	u32 work;
};

int ring_init(struct ring *r);
void ring_fini(struct ring *r);
bool ring_grow(struct ring *r) __cold;
/* The producer makes room for n elements, in memory.  False: no memory.  Blocking (allocates). */
bool ring_reserve(struct ring *r, u32 n) __cold;
bool ring_shrink(struct ring *r) __cold;
u32 ring_batch(struct ring *r, const struct ring_look *look, struct hoard *h, u32 slot,
	       u32 max);
void hoard_open(struct hoard *h, const u64 *head, u64 seen);

/* All slots are in use, as far as the producer knows. */
static inline bool ring_full(const struct ring *r)
{
	u64 most = r->mask;

	if (BUSTED(RING_OVERRUN))
		most++;
	return ((load_relaxed(&r->tail) - r->seen) & RING_POS) > most;
}

/* Has the next push a sample? */
static inline bool ring_put_sampled(const struct ring *r)
{
	return wait_due(load_relaxed(&r->tail));
}

/* ring_push() to a ring that is not full, without a sample.  Progress: wait-free. */
static inline void ring_put(struct ring *r, u32 work)
{
	u64 p = load_relaxed(&r->tail);

	/*
	 * EXEC-R1 <-> EXEC-R2: the element, and everything that made it ready.  A reader that
	 * finds it instead of an older element also finds that head has moved.  seq_cst for
	 * EXEC-P1 <-> EXEC-P2: the load of attn comes after it.
	 */
	(void)xchg_seq_cst(&r->slots[p & r->mask], slot_word(r->log2, p, work));
	store_relaxed(&r->tail, (p + 1) & RING_POS);	/* an estimate, for batch_size() */
}

/* ring_put() for a caller that executes a barrier before it checks for sleepers. */
static inline void ring_put_more(struct ring *r, u32 work)
{
	u64 p = load_relaxed(&r->tail);

	/* EXEC-R1 <-> EXEC-R2, as in ring_put() */
	store_release(&r->slots[p & r->mask], slot_word(r->log2, p, work));
	store_relaxed(&r->tail, (p + 1) & RING_POS);
}

/*
 * Publish work at the tail.  Returns false, without any effect, if the ring is full and memory
 * is exhausted.  Progress: wait-free, except that growth allocates and copies.
 */
static inline bool ring_push(struct ring *r, u32 work)
{
	if (unlikely(ring_full(r))) {
		/*
		 * EXEC-R3 <-> EXEC-R4: the threads that moved head have copied what they took.
		 * A batch reads slots before it moves head: without this order C11 lets its
		 * loads return what will be written here.  (The model executes loads in order,
		 * so it cannot show that.)
		 */
		r->seen = ring_pos(load_acquire(&r->head));
		if (ring_full(r) && !ring_grow(r))
			return false;
	}
	if (unlikely(ring_put_sampled(r)))
		wait_begin(&r->waits, wait_pos_key(load_relaxed(&r->tail)));
	ring_put(r, work);
	return true;
}

/*
 * Read the oldest element.  Returns false if the ring was empty at some time during the call.
 * If look->head has a claimer, the caller must first open the claimer's hoard.
 * Progress: lock-free (it repeats only if a thread has taken something, or the ring has grown
 * or shrunk).
 */
static inline bool ring_peek(struct ring *r, struct ring_look *look)
{
	u64 head, pos, arr;
	bool moved;
	u32 w;

	for (;;) {
		/*
		 * EXEC-R7 <-> EXEC-R4, EXEC-H7: an array at least as new as the one from which
		 * the element before pos was taken; the hoard of the claimer as it was filled;
		 * and if there is no claimer, the last claimer's hoard as it was opened.
		 */
		head = load_acquire(&r->head);
		pos = ring_pos(head);
		/* EXEC-R8 <-> EXEC-R9: the slots as ring_grow() copied them. */
		arr = load_acquire(&r->arr);
		/* EXEC-R2 <-> EXEC-R1; EXEC-R2 <-> EXEC-R10: cleared? Then arr is another. */
		w = load_acquire(ring_slot_at(arr, pos));
		look->head = head;
		/* If it belongs to another position, head has moved (EXEC-R3, EXEC-R1). */
		moved = load_relaxed(&r->head) != head;
		if (BUSTED(RING_NO_RECHECK))
			moved = false;
		if (unlikely(moved))
			continue;
		look->work = slot_work(w);
		if (likely(slot_holds(w, arr, pos)))
			return true;
		if (BUSTED(RING_OLD_ARRAY))
			return false;
		if (likely(load_relaxed(&r->arr) == arr))
			return false;
	}
}

/* n elements from pos on were taken: the sample, if one of them has it. */
static inline void ring_waited(struct ring *r, u64 pos, u32 n)
{
	u64 at = pos + ((WAIT_FIRST - pos) & (WAIT_EVERY - 1));

	if (unlikely(at - pos < n))
		wait_end(&r->waits, wait_pos_key(at), (at + 1) & RING_POS);
}

/* Take the element that ring_peek() found.  False: head has moved.  Progress: wait-free. */
static inline bool ring_take(struct ring *r, const struct ring_look *look)
{
	u64 old = look->head;

	/* EXEC-R4 <-> EXEC-R3, EXEC-R7: the copy is made; the next taker sees this array. */
	if (!cas_release_relaxed(&r->head, &old, (ring_pos(look->head) + 1) & RING_POS))
		return false;
	ring_waited(r, ring_pos(look->head), 1);
	return true;
}

/*
 * The producer itself takes the oldest element.  It knows its slots and its tail, and a stale
 * head makes the compare-and-swap fail.  Returns 0 if there is none, if another thread is
 * taking a batch, if the element may have a sample and `sampled` is false, or if `wanted` is
 * not 0 and is another element.
 * Progress: lock-free.
 */
static inline u32 ring_take_wanted(struct ring *r, bool sampled, u32 wanted)
{
	u64 head = load_relaxed(&r->head);
	u32 work;

	do {
		if (head == load_relaxed(&r->tail) || unlikely(ring_claimer(head)) ||
		    (!sampled && unlikely(wait_due(head))))
			return 0;
		work = slot_work(load_relaxed(&r->slots[head & r->mask]));
		if (wanted && work != wanted)
			return 0;
		/* EXEC-R4 <-> EXEC-R3, EXEC-R7 */
	} while (unlikely(!cas_release_relaxed(&r->head, &head, (head + 1) & RING_POS)));
	store_relaxed(&r->own, load_relaxed(&r->own) + 1);
	if (sampled)
		ring_waited(r, head, 1);
	return work;
}

static inline u32 ring_take_own(struct ring *r, bool sampled)
{
	return ring_take_wanted(r, sampled, 0);
}

/* Take the next piece of work from a hoard; 0: none.  Any thread.  Progress: lock-free. */
static inline u32 hoard_take(struct hoard *h)
{
	u64 w = load_acquire(&h->word);		/* EXEC-H2 <-> EXEC-H1 */

	while (!hoard_empty(w)) {
		u32 work = load_relaxed(&h->work[hoard_next(w)]);

		/*
		 * EXEC-H3 <-> EXEC-H4: the copy is made before the owner may write again.
		 * Acquire is for the failure; the value that is replaced was read with acquire.
		 */
		if (cas_acq_rel_acquire(&h->word, &w, w + 1))
			return work;
	}
	return 0;
}

#endif
