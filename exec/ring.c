// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: the ready work that one thread produces for one queue: a FIFO with one
 * producer and any number of consumers, that grows, and from which a consumer may
 * take several at once without hiding them from the others.
 *
 * Structures: struct ring, an array of slots with monotone positions (48 bits; they
 * wrap after years, and all arithmetic is modulo).  head belongs to the consumers,
 * tail and the rest to the producer.  struct hoard, one per (queue, thread): the rest
 * of the last batch.
 *
 * A batch takes n elements by one CAS of head.  The n - 1 that are not run at once
 * must not be private to the taker for even an instruction, since it may be stopped:
 *
 *	taker i                                 anybody who looks at the ring
 *	copy the works into its hoard, SHUT
 *	CAS head {p} -> {p + n, claimer i}
 *	                                        head has a claimer: read hoard i; SHUT?
 *	                                        head still the same? then CAS its word
 *	                                        SHUT -> open
 *	CAS the hoard's word SHUT -> open
 *	CAS head {p + n, i} -> {p + n}
 *
 * While head is {p + n, i}, taker i is between its first and its last step (a head with
 * that position and claimer never comes back), so a SHUT word read between two equal
 * readings of head is the one of this batch; its generation makes the CAS exact.
 *
 * Ordering: labels EXEC-R* (ring) and EXEC-H* (hoard).  A slot is one word,
 * published by an exchange and polled as such: one line moves from producer to consumer.  Who
 * reads a slot that the producer has overwritten finds head moved: the producer
 * overwrites only what it saw head pass (R4 -> R3), and publishes the slot with release
 * (R1), so the second look at head is not older than that.
 *
 * Progress: push wait-free but for growth; take wait-free (may fail), peek and
 * hoard_take lock-free.
 *
 * Lifetime: an outgrown array is read by who loaded arr before; it is never written
 * again, and what it says about a position that head has not reached stays true.
 * It is kept until the ring goes: the sizes of all old arrays of a ring sum up
 * to less than the present one, so keeping them is bounded, and RCU here would cost
 * every look a store and a registration.
 *
 * References: Chase and Lev, Dynamic Circular Work-Stealing Deque, SPAA 2005 (growth);
 * Giacomoni et al., FastForward, PPoPP 2008 (polling the slot, not the index).
 */
#include <stdlib.h>
#include <string.h>
#include <exec/internal.h>

static u32 *array_new(u64 slots, struct ring_array *prev)
{
	size_t bytes = sizeof(struct ring_array) + slots * sizeof(u32);
	struct ring_array *a;

	if (pool_commit_hook("ring", bytes))
		return NULL;
	a = aligned_alloc(64, bytes);
	if (!a)
		return NULL;
	memset(a, 0, bytes);
	a->prev = prev;
	return (u32 *)(void *)(a + 1);
}

static struct ring_array *array_of(u32 *slots)
{
	return (struct ring_array *)(void *)slots - 1;
}

int ring_init(struct ring *r)
{
	u32 *s = array_new(1u << RING_FIRST, NULL);

	if (!s)
		return -ENOMEM;
	r->slots = s;
	r->mask = (1u << RING_FIRST) - 1;
	r->log2 = RING_FIRST;
	r->head = r->tail = r->seen = 0;
	r->arr = (u64)(uintptr_t)s | RING_FIRST;
	return 0;
}

void ring_fini(struct ring *r)
{
	struct ring_array *a, *prev;

	if (!r->slots)
		return;
	for (a = array_of(r->slots); a; a = prev) {
		prev = a->prev;
		free(a);
	}
	r->slots = NULL;
}

/*
 * The producer doubles its ring.  False: no memory.
 * Progress: blocking (allocates and copies; others go on with the old array).
 */
bool ring_grow(struct ring *r)
{
	u64 log2 = r->log2 + 1, mask = (1ull << log2) - 1;
	u64 p, tail = load_relaxed(&r->tail);
	u32 *s = array_new(mask + 1, array_of(r->slots));

	if (!s)
		return false;
	/* r->seen was read from head just now; what is before it is of no use to anybody. */
	for (p = r->seen; p != tail - BUSTED(RING_GROW_SHORT); p = (p + 1) & RING_POS) {
		u32 w = load_relaxed(&r->slots[p & r->mask]);

		store_relaxed(&s[p & mask], slot_word(log2, p, slot_work(w)));
	}
	/* The others hold nothing at the positions that they will have next. */
	for (; ((p - r->seen) & RING_POS) <= mask; p = (p + 1) & RING_POS)
		store_relaxed(&s[p & mask], slot_word(log2, p, 0) ^ SLOT_LAP);
	r->slots = s;
	r->mask = mask;
	r->log2 = log2;
	/*
	 * EXEC-R9 <-> EXEC-R8.  seq_cst, so that a sleeper who looks again (EXEC-P2) does
	 * not miss an element because it looks for it in the old array.
	 */
	(void)xchg_seq_cst(&r->arr, (u64)(uintptr_t)s | log2);
	return true;
}

/*
 * Open the hoard of the claimer that was seen in a head.
 * Progress: wait-free.
 */
void hoard_open(struct hoard *h, const u64 *head, u64 seen)
{
	u64 w = load_acquire(&h->word);

	/* EXEC-H5 <-> EXEC-H6: w was read while the claim stood; acquire keeps that order. */
	if ((w & HOARD_SHUT) && load_relaxed(head) == seen)
		cas_relaxed(&h->word, &w, w & ~(u64)HOARD_SHUT);	/* goes on with EXEC-H1 */
}

/* How many to take, up to max: half of what is there, and whole lines where that is possible. */
static u32 batch_size(const struct ring *r, u64 pos, u32 max)
{
	u64 there = (load_relaxed(&r->tail) - pos) & RING_POS;
	u32 n = (u32)min_u(max, (there + 1) / 2), over = (u32)(pos + n) % SLOT_LINE;

	return n > over ? n - over : n;
}

/*
 * Take up to max elements, half of what is there at most; the first is the caller's
 * (look->work), the others are in its hoard, which was empty.  How many; 0: head moved.
 * Progress: wait-free.
 */
u32 ring_batch(struct ring *r, const struct ring_look *look, struct hoard *h, u32 slot, u32 max)
{
	u64 pos = ring_pos(look->head), arr = load_acquire(&r->arr);	/* EXEC-R8 <-> EXEC-R9 */
	u64 old = look->head, new, w;
	u32 n;

	max = batch_size(r, pos, max);
	/*
	 * EXEC-H4 <-> EXEC-H3: the last taker of the old contents has copied its work.  Without
	 * it C11 lets his load give what is stored below; the model, whose loads are executed
	 * in order, cannot show that.
	 */
	w = load_acquire(&h->word);
	BUG_ON1(!hoard_empty(w));
	for (n = 1; n < max; n++) {
		u64 p = (pos + n) & RING_POS;
		u32 word = load_acquire(ring_slot_at(arr, p));	/* EXEC-R2 <-> EXEC-R1 */

		/* A later lap does no harm: the CAS will fail. */
		if (!slot_holds(word, arr, p))
			break;
		store_relaxed(&h->work[n - 1], slot_work(word));
	}
	if (n == 1)
		return ring_take(r, look);
	w = ((w >> 16) + 1) << 16 | (BUSTED(HOARD_OPEN) ? 0 : HOARD_SHUT) | (u64)(n - 1) << 8;
	/*
	 * EXEC-H1 <-> EXEC-H2: the works, then the word; those who open it go on with this.
	 * EXEC-H6 <-> EXEC-H5: the claim of the batch before has ended.
	 */
	store_release(&h->word, w);
	/* EXEC-R4 <-> EXEC-R3, EXEC-R7: as ring_take(); and the hoard is filled. */
	new = ((pos + n) & RING_POS) | (u64)(slot + 1) << RING_POS_BITS;
	if (!cas_release_relaxed(&r->head, &old, new))
		return 0;
	/* Relaxed: a read-modify-write goes on with the release of EXEC-H1. */
	cas_relaxed(&h->word, &w, w & ~(u64)HOARD_SHUT);
	/* EXEC-H7 <-> EXEC-R7: who sees no claim sees the hoard open. */
	cas_release_relaxed(&r->head, &new, ring_pos(new));
	return n;
}
