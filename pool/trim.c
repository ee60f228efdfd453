/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trim returns memory to the system if all objects in it are free, and the same for
 * magazines. The memory is zero when it is used again.
 *
 * Structures: a range is cut into slabs of whole pages, each with a power of two of things
 * (objects or magazines).  A trim moves the things of the depot to a bitmap, one bit each;
 * they are loose then.  After that it visits the slabs.  A slab with all its bits set is
 * claimed, its memory is freed by madvise(MADV_DONTNEED), and it is pushed on the stack of
 * vacant slabs.  The things of other slabs return to the depot.  Any thread may take loose
 * things (loose_take()), so no thread finds a pool exhausted because of a trim, and other
 * threads can use or finish everything that a stopped trim leaves behind.
 *
 * Ordering: POOL-B1 <-> POOL-B2: a bit hands a thing over, as a magazine does; all changes of a
 * word of bits are read-modify-writes.  POOL-B3 <-> POOL-B4: a thread that sees that bits were
 * set sees the bits.  POOL-M1 <-> POOL-M2 hand over vacant slabs.
 *
 * Progress: lock-free, and system calls.  A thread that stops in a trim holds what it took from
 * one magazine, or a run of slabs of SLAB_MAX bytes.  No thread waits for it.
 *
 * Lifetime: the addresses stay valid, so a reader with a stale index may read at any time: the
 * old object, zeros, or a later object.  No grace period is needed, because all such readers
 * treat zero as "no object", and the generations of an object continue from the largest value
 * in its slab (pool_desc.last, slab.base).  A late store would be harmful, but no thread
 * stores to a free object, and a late compare-and-swap expects a value from an earlier life of
 * the object, which never occurs again.  A pool for which this is not true sets
 * pool_desc.keep.
 */
#include <errno.h>
#include <sys/mman.h>

#include <pool/internal.h>

#define STEP_MAGS	16u	/* magazines that a step empties */
#define STEP_SLABS	16u	/* slabs that a step checks */

enum { TRIM_BEGIN, TRIM_DEPOT, TRIM_OBJS, TRIM_EMPTY, TRIM_MAGS };

/* Choose the size of slabs: whole pages, if that is possible. */
void slabs_shape(struct slabs *sl, u32 size, u32 n)
{
	size_t page = slab_page();
	size_t low = size & -(size_t)size;
	u32 shift = 0;

	while (low << shift < page)
		shift++;
	while (shift && (size_t)size << shift > SLAB_MAX)
		shift--;
	while (1u << shift < SLAB_LEAST && (size_t)size << (shift + 1) <= SLAB_MAX)
		shift++;
	sl->size = size;
	sl->end = n + 1;
	sl->shift = shift;
	sl->count = (n >> shift) + 1;
}

static inline u64 *bits_of(const struct slabs *sl, u32 i)
{
	u32 in = i & ((1u << sl->shift) - 1);

	return &slab_at(sl, slab_of(sl, i))->bits[in / 64];
}

static inline u64 bit_of(const struct slabs *sl, u32 i)
{
	return 1ull << ((i & ((1u << sl->shift) - 1)) % 64);
}

/* The value of word w of slab s if all its bits are set. */
static u64 word_full(const struct slabs *sl, u32 s, u32 w)
{
	u32 from = ((s - 1) << sl->shift) + w * 64;
	u32 n = slab_end(sl, s) > from ? (u32)min_u(slab_end(sl, s) - from, 64u) : 0;
	u64 bits = n == 64 ? ~0ull : (1ull << n) - 1;

	return from ? bits : bits & ~1ull;	/* there is no thing 0 */
}

/* Make things of the caller loose, so that any thread may take them.  Progress: wait-free. */
static void loosen(struct slabs *sl, const u32 *idx, u32 n)
{
	u32 i = 0;

	while (i < n) {
		u64 *word = bits_of(sl, idx[i]), bits = 0;

		for (; i < n && bits_of(sl, idx[i]) == word; i++)
			bits |= bit_of(sl, idx[i]);
		fetch_or_release(word, bits);	/* POOL-B1 <-> POOL-B2 */
	}
	fetch_add_release(&sl->loosed, 1);	/* POOL-B3 <-> POOL-B4 */
}

/* Store the indexes of the things of these bits, of word w of slab s. */
static u32 bits_out(const struct slabs *sl, u32 s, u32 w, u64 bits, u32 *dst)
{
	u32 first = ((s - 1) << sl->shift) + w * 64, n = 0;

	for (; bits; bits &= bits - 1)
		dst[n++] = first + (u32)__builtin_ctzll(bits);
	return n;
}

/* Take up to `most` loose things.  0: none.  Progress: lock-free. */
u32 loose_take(struct slabs *sl, u32 *dst, u32 most)
{
	u64 loosed = load_acquire(&sl->loosed);	/* POOL-B4 <-> POOL-B3 */
	u64 seen = load_relaxed(&sl->seen);
	u32 s, w, words = slab_words(sl), end;

	if (likely(loosed == seen))
		return 0;
	/* Memory that was never committed holds no loose objects. */
	end = (u32)(load_relaxed(&sl->side.committed) / slab_stride(sl));
	for (s = 1; s < end && s <= sl->count; s++) {
		for (w = 0; w < words; w++) {
			u64 *word = &slab_at(sl, s)->bits[w];
			u64 was = load_relaxed(word), rest;
			u32 n;

			while (was) {
				for (n = 0, rest = was; rest && n < most; n++)
					rest &= rest - 1;
				/* POOL-B2 <-> POOL-B1 */
				if (cas_acquire_relaxed(word, &was, rest))
					return bits_out(sl, s, w, was & ~rest, dst);
			}
		}
	}
	/* The next call need not search, unless more bits are set. */
	cas_relaxed(&sl->seen, &seen, loosed);
	return 0;
}

/* For checks: count the loose things while no thread uses the pool. */
u32 loose_count(const struct slabs *sl)
{
	u32 s, w, sum = 0, end = (u32)(load_relaxed(&sl->side.committed) / slab_stride(sl));

	for (s = 1; s < end && s <= sl->count; s++)
		for (w = 0; w < slab_words(sl); w++)
			sum += (u32)__builtin_popcountll(load_relaxed(&slab_at(sl, s)->bits[w]));
	return sum;
}

/* Take a vacant slab; 0: none.  Progress: lock-free. */
u32 slab_pop(struct slabs *sl)
{
	u32 s = stack_pop(&sl->vacant, sl->side.start, slab_stride(sl));

	if (s)
		fetch_add_relaxed(&sl->nvacant, slab_from(sl, s) - slab_end(sl, s));
	return s;
}

static void slab_push(struct slabs *sl, u32 s)
{
	fetch_add_relaxed(&sl->nvacant, slab_end(sl, s) - slab_from(sl, s));
	stack_push(&sl->vacant, sl->side.start, slab_stride(sl), s);
}

/* Undo the claim of the first `words` words of a slab. */
static void slab_unclaim(struct slabs *sl, u32 s, u32 words)
{
	u32 w;

	/* Relaxed: the things did not change; this continues loosen()'s release sequence. */
	for (w = 0; w < words; w++)
		fetch_or_relaxed(&slab_at(sl, s)->bits[w], word_full(sl, s, w));
	fetch_add_release(&sl->loosed, 1);	/* POOL-B3 <-> POOL-B4 */
}

/* Claim a slab if all of it is free.  Things from `carved` on were never handed out. */
static bool slab_claim(struct slabs *sl, u32 s, u32 carved)
{
	u32 w, words = slab_words(sl);
	u64 *bits = slab_at(sl, s)->bits;

	/* If a slab has one thing, the first slab has none. */
	if (slab_end(sl, s) > carved || slab_from(sl, s) >= slab_end(sl, s))
		return false;
	for (w = 0; w < words; w++) {
		if (BUSTED(SLAB_EARLY))
			break;
		if (load_relaxed(&bits[w]) != word_full(sl, s, w))
			return false;
	}
	for (w = 0; w < words; w++) {
		u64 was = word_full(sl, s, w);

		if (BUSTED(SLAB_EARLY))
			was = load_relaxed(&bits[w]);
		/* POOL-B2 <-> POOL-B1 */
		if (!cas_acquire_relaxed(&bits[w], &was, (u64)0)) {
			slab_unclaim(sl, s, w);
			return false;
		}
	}
	return true;
}

/* Return the loose things of a slab to the depot; *n in hand[] do not fill a magazine yet. */
static void slab_gather(struct pool_full *f, struct slabs *sl, u32 s, u32 *hand, u32 *n)
{
	u32 w, i, k, words = slab_words(sl), out[64];

	for (w = 0; w < words; w++) {
		u64 *word = &slab_at(sl, s)->bits[w];

		if (!load_relaxed(word))
			continue;
		/* POOL-B2 <-> POOL-B1 */
		k = bits_out(sl, s, w, xchg_acquire(word, (u64)0), out);
		for (i = 0; i < k; i++) {
			if (sl == &f->mag_slabs) {
				mag_push(f, &f->empty, out[i]);
				continue;
			}
			hand[(*n)++] = out[i];
			if (*n == f->p.mag) {
				mag_put(f, &f->full, hand, *n);
				*n = 0;
			}
		}
	}
}

/* The largest generation in a slab that the caller owns; see pool_desc.last. */
static u32 slab_last(struct pool_full *f, const struct slabs *sl, u32 s)
{
	u32 i, base = 0;

	if (BUSTED(BASE_FORGOTTEN))
		return 0;
	if (!f->last || sl != &f->objs)
		return 0;
	for (i = slab_from(sl, s); i < slab_end(sl, s); i++)
		base = (u32)max_u(base, f->last(pool_obj(&f->p, i), i, f->user));
	return base;
}

/* Free the memory of the n claimed slabs from s on.  Progress: a system call. */
static int slabs_vacate(struct pool_full *f, struct slabs *sl, u32 s, u32 n, u64 *bytes)
{
	size_t page = slab_page(), all = sl->range->bytes;
	size_t from = round_up_to(((size_t)(s - 1) << sl->shift) * sl->size, page);
	size_t to = min_u(((size_t)(s - 1 + n) << sl->shift) * sl->size, all) / page * page;
	u32 i;
	int rc;

	for (i = s; i < s + n; i++)
		slab_at(sl, i)->base = slab_last(f, sl, i);
	rc = from < to ? pool_commit_hook(HOOK_TRIM, to - from) : 0;
	if (!rc && from < to && madvise(sl->range->start + from, to - from, MADV_DONTNEED))
		rc = -errno;
	if (rc) {
		/* The pages may be locked, for example: keep the slabs. */
		for (i = s; i < s + n; i++)
			slab_unclaim(sl, i, slab_words(sl));
		return rc;
	}
	for (i = s; i < s + n; i++)
		slab_push(sl, i);
	*bytes += from < to ? to - from : 0;
	return 0;
}

/*
 * The next slabs: free the memory of those that can be claimed, and gather the other things.
 * The step ends when it has made a system call.
 */
static void sweep(struct pool_full *f, struct slabs *sl, u32 carved, struct pool_trim *t)
{
	size_t bytes = (size_t)sl->size << sl->shift;
	u32 most = (u32)max_u(SLAB_MAX / bytes, 1u);
	u32 spare = (u32)((t->spare + bytes - 1) / bytes);
	u32 last = (carved - 1) >> sl->shift;	/* later slabs were never used */
	u32 end = (u32)min_u(t->at + STEP_SLABS, last + 2), s = t->at, n = 0, i;
	u32 hand[POOL_MAG], in_hand = 0;

	/* No thing was ever made, and so nothing may be committed, not even for slab 1. */
	if (carved == 1)
		end = s = last + 2;
	while (s < end && !n) {
		while (s > spare && n < most && s + n < end && !t->rc &&
		       slab_claim(sl, s + n, carved))
			n++;
		if (n)
			t->rc = slabs_vacate(f, sl, s, n, &t->bytes);
		for (i = 0; i < (t->rc ? n : 0); i++)
			slab_gather(f, sl, s + i, hand, &in_hand);
		s += n;
		if (n < most && s < end)
			slab_gather(f, sl, s++, hand, &in_hand);
	}
	if (in_hand)
		partial_put(f, hand, in_hand);
	t->at = s > last + 1 ? sl->count + 1 : s;
}

/* Make the contents of some magazines of the depot loose.  False: there are no more. */
static bool depot_loosen(struct pool_full *f, struct pool_trim *t)
{
	u32 idx[POOL_MAG], k, n;

	for (k = 0; k < STEP_MAGS; k++) {
		/* A limit, because other threads continue to put objects. */
		if (!t->left)
			return false;
		t->left--;
		n = mag_take(f, &f->full, idx);
		if (!n)
			n = mag_take(f, &f->partial, idx);
		if (!n)
			return false;
		loosen(&f->objs, idx, n);
	}
	return true;
}

/* Make some empty magazines loose.  False: there are no more. */
static bool empty_loosen(struct pool_full *f, struct pool_trim *t)
{
	u32 idx[STEP_MAGS], n;

	for (n = 0; n < STEP_MAGS && t->left; n++, t->left--) {
		idx[n] = mag_pop(f, &f->empty);
		if (!idx[n])
			break;
	}
	loosen(&f->mag_slabs, idx, n);
	return n == STEP_MAGS && t->left;
}

/* Progress: lock-free, and a system call. */
bool pool_trim_step(struct pool *p, struct pool_trim *t)
{
	struct pool_full *f = pool_full(p);

	switch (t->phase) {
	case TRIM_BEGIN:
		if (!p->base || !f->objs.count)
			return false;
		t->left = load_relaxed(&f->mag_carved);
		t->at = 1;
		t->phase = TRIM_DEPOT;
		return true;
	case TRIM_DEPOT:
		t->phase += !depot_loosen(f, t);
		return true;
	case TRIM_OBJS:
		sweep(f, &f->objs, load_relaxed(&f->carved), t);
		if (t->at <= f->objs.count)
			return true;
		t->left = load_relaxed(&f->mag_carved);
		t->at = 1;
		t->phase = TRIM_EMPTY;
		return f->mag_slabs.count;
	case TRIM_EMPTY:
		t->phase += !empty_loosen(f, t);
		return true;
	default:
		sweep(f, &f->mag_slabs, load_relaxed(&f->mag_carved), t);
		return t->at <= f->mag_slabs.count;
	}
}
