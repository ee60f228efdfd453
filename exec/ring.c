// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: the ready work that one thread produces for one queue.  A ring is a FIFO with one
 * producer and any number of consumers.  It grows, and a consumer may take several elements at
 * once without hiding them from the others.
 *
 * Structures: struct ring is an array of slots with monotone positions (48 bits; they wrap
 * after years, and all arithmetic is modulo).  The consumers change head; tail and the rest
 * belong to the producer.  struct hoard, one per queue and thread, holds the rest of the last
 * batch.
 *
 * A batch takes n elements by one CAS of head.  The n - 1 elements that do not run at once
 * must not be private to the taker for even an instruction, since it may be stopped:
 *
 *	taker i                                 any thread that reads the ring
 *	copy the elements to its hoard, SHUT
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
 * Ordering: labels EXEC-R* (ring) and EXEC-H* (hoard).  A slot is one word, published by an
 * exchange and polled by the consumers, so one cache line moves from producer to consumer.  A
 * thread that reads a slot which the producer has overwritten finds that head has moved: the
 * producer overwrites only what it saw head pass (R4 -> R3), and publishes the slot with
 * release (R1), so the second read of head is not older than that.
 *
 * Progress: push is wait-free except when the ring grows; take is wait-free (and may fail);
 * peek and hoard_take are lock-free.
 *
 * Lifetime: arrays stay allocated until the ring is freed, one of each size; their memory does
 * not stay.  An array that the ring no longer uses is cleared at once; a large one gives its
 * pages back.  A thread that loaded arr before may read it at any time: it finds an empty slot
 * there, and then finds arr changed.  So nothing waits for readers, and the same array can be
 * used again.  An element that such a thread still finds there is the one at that position:
 * while head has not moved, the ring has used the array for no other position.
 *
 * References: Chase and Lev, Dynamic Circular Work-Stealing Deque, SPAA 2005 (growth);
 * Giacomoni et al., FastForward, PPoPP 2008 (polling the slot, not the index).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <exec/internal.h>

#define ARRAY_MAPPED	12u	/* log2 of slots; smaller arrays are part of the heap */

static size_t array_bytes(u64 log2)
{
	return max_u(sizeof(u32) << log2, 64);
}

static bool array_mapped(u64 log2)
{
#ifdef PAWL_MODEL
	return false;
#else
	return log2 >= ARRAY_MAPPED;
#endif
}

/* The ring's array of that size, all zero.  NULL: no memory. */
static u32 *array_get(struct ring *r, u64 log2)
{
	u32 **at = &r->array[log2 - RING_FIRST];
	size_t bytes = array_bytes(log2);
	void *a;

	if (log2 > RING_LAST)
		return NULL;
	if (*at)
		return *at;
	if (pool_commit_hook("ring", bytes))
		return NULL;
	if (array_mapped(log2)) {
		a = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (a == MAP_FAILED)
			return NULL;
	} else {
		a = aligned_alloc(64, bytes);
		if (!a)
			return NULL;
		memset(a, 0, bytes);
	}
	*at = a;
	return a;
}

/* The ring does not use it any more.  Progress: wait-free, or a system call. */
static void array_clear(u32 *s, u64 log2)
{
	u64 i;

	if (array_mapped(log2) && !madvise(s, array_bytes(log2), MADV_DONTNEED))
		return;
	/* EXEC-R10 <-> EXEC-R2: arr has changed.  (The system call orders it, too.) */
	for (i = 0; i < 1ull << log2; i++)
		store_release(&s[i], 0);
}

/* The ring uses that array from now on. */
static void array_use(struct ring *r, u32 *s, u64 log2)
{
	u32 *was = r->slots;
	u64 was_log2 = r->log2;

	r->slots = s;
	r->mask = (1ull << log2) - 1;
	r->log2 = log2;
	/*
	 * EXEC-R9 <-> EXEC-R8.  seq_cst, so that the check before a sleep (EXEC-P2) does not
	 * miss an element because it reads the old array.
	 */
	(void)xchg_seq_cst(&r->arr, (u64)(uintptr_t)s | log2);
	array_clear(was, was_log2);
}

int ring_init(struct ring *r)
{
	u32 *s;

	memset(r, 0, sizeof(*r));
	s = array_get(r, RING_FIRST);
	if (!s)
		return -ENOMEM;
	r->slots = s;
	r->mask = (1u << RING_FIRST) - 1;
	r->log2 = RING_FIRST;
	r->arr = (u64)(uintptr_t)s | RING_FIRST;
	return 0;
}

void ring_fini(struct ring *r)
{
	u32 log2;

	for (log2 = RING_FIRST; log2 <= RING_LAST; log2++) {
		u32 *s = r->array[log2 - RING_FIRST];

		if (s && array_mapped(log2))
			munmap(s, array_bytes(log2));
		else
			free(s);
		r->array[log2 - RING_FIRST] = NULL;
	}
	r->slots = NULL;
}

/*
 * The producer doubles its ring.  False: no memory.
 * Progress: blocking (allocates and copies; other threads continue with the old array).
 */
bool ring_grow(struct ring *r)
{
	u64 log2 = r->log2 + 1, mask = (1ull << log2) - 1;
	u64 p, end = load_relaxed(&r->tail);
	u32 *s = array_get(r, log2);

	if (!s)
		return false;
	if (BUSTED(RING_GROW_SHORT))
		end--;
	/* r->seen was just read from head; no thread needs what is before it. */
	for (p = r->seen; p != end; p = (p + 1) & RING_POS) {
		u32 w = load_relaxed(&r->slots[p & r->mask]);

		/*
		 * EXEC-R1 <-> EXEC-R2.  arr alone does not order it: a thread that read arr when
		 * the ring had grown to this array before finds the element without R9.
		 */
		store_release(&s[p & mask], slot_word(log2, p, slot_work(w)));
	}
	array_use(r, s, log2);
	return true;
}

bool ring_reserve(struct ring *r, u32 n)
{
	u64 i;

	/* EXEC-R3 <-> EXEC-R4: as in ring_push(). */
	r->seen = ring_pos(load_acquire(&r->head));
	while (r->mask + 1 < n)
		if (!ring_grow(r))
			return false;
	/* A page fault now is none later. */
	for (i = 0; i <= r->mask; i += CACHELINE / sizeof(u32))
		page_touch(&r->slots[i]);
	return true;
}

/*
 * The producer returns to its first array, if the ring is empty.  False: it is not.
 * Progress: wait-free, and a system call.
 */
bool ring_shrink(struct ring *r)
{
	u64 tail = load_relaxed(&r->tail);
	/* EXEC-R3 <-> EXEC-R4: as in ring_push().  With a claimer the ring is not empty. */
	u64 head = load_acquire(&r->head);

	if (BUSTED(RING_SHRINK_FULL))
		head = tail;
	if (head != tail)
		return false;
	r->seen = tail;
	if (r->log2 != RING_FIRST)
		array_use(r, r->array[0], RING_FIRST);
	return true;
}

/*
 * Open the hoard of the claimer that was read in a head.
 * Progress: wait-free.
 */
void hoard_open(struct hoard *h, const u64 *head, u64 seen)
{
	/* EXEC-H5 <-> EXEC-H6: w was read while head had the claim. */
	u64 w = load_acquire(&h->word);

	if ((w & HOARD_SHUT) && load_relaxed(head) == seen)
		cas_relaxed(&h->word, &w, w & ~(u64)HOARD_SHUT);	/* continues EXEC-H1 */
}

/* The size of a batch: at most max and half of the elements; whole cache lines if possible. */
static u32 batch_size(const struct ring *r, u64 pos, u32 max)
{
	u64 there = (load_relaxed(&r->tail) - pos) & RING_POS;
	u32 n = (u32)min_u(max, (there + 1) / 2), over = (u32)(pos + n) % SLOT_LINE;

	return n > over ? n - over : n;
}

/*
 * Take up to max elements, at most half of them.  The caller runs the first (look->work); the
 * others are in its hoard, which must be empty.  Returns how many were taken; 0: head has
 * moved. Progress: wait-free.
 */
u32 ring_batch(struct ring *r, const struct ring_look *look, struct hoard *h, u32 slot, u32 max)
{
	u64 pos = ring_pos(look->head), arr = load_acquire(&r->arr);	/* EXEC-R8 <-> EXEC-R9 */
	u64 old = look->head, new, w;
	u32 n;

	max = batch_size(r, pos, max);
	/*
	 * EXEC-H4 <-> EXEC-H3: the last taker of the old contents has copied its work.  Without
	 * this order C11 lets its load return what is stored below; the model executes loads in
	 * order, so it cannot show that.
	 */
	w = load_acquire(&h->word);
	BUG_ON1(!hoard_empty(w));
	for (n = 1; n < max; n++) {
		u64 p = (pos + n) & RING_POS;
		u32 word = load_acquire(ring_slot_at(arr, p));	/* EXEC-R2 <-> EXEC-R1 */

		/* If the slot has a later lap, the CAS will fail. */
		if (!slot_holds(word, arr, p))
			break;
		store_relaxed(&h->work[n - 1], slot_work(word));
	}
	if (n == 1)
		return ring_take(r, look);
	w = ((w >> 16) + 1) << 16 | (u64)(n - 1) << 8;
	if (!BUSTED(HOARD_OPEN))
		w |= HOARD_SHUT;
	/*
	 * EXEC-H1 <-> EXEC-H2: the contents, then the word; an opener continues this release.
	 * EXEC-H6 <-> EXEC-H5: the claim of the previous batch has ended.
	 */
	store_release(&h->word, w);
	/* EXEC-R4 <-> EXEC-R3, EXEC-R7: as in ring_take(); and the hoard is filled. */
	new = ((pos + n) & RING_POS) | (u64)(slot + 1) << RING_POS_BITS;
	if (!cas_release_relaxed(&r->head, &old, new))
		return 0;
	/* Relaxed: a read-modify-write continues the release sequence of EXEC-H1. */
	cas_relaxed(&h->word, &w, w & ~(u64)HOARD_SHUT);
	/* EXEC-H7 <-> EXEC-R7: a thread that sees no claim sees the hoard open. */
	cas_release_relaxed(&r->head, &new, ring_pos(new));
	ring_waited(r, pos, n);
	return n;
}
