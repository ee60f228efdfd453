/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slow paths of get and put: magazines between a thread's cache and the depot.
 *
 * Purpose: a thread accesses shared memory once per p->mag objects, and objects that another
 * thread frees return in batches.
 *
 * Structures: the depot of a pool is three stacks of magazines: full, partial (from threads
 * that left) and empty.  A stack is one word, {tag, index of the first}; magazines are linked
 * by index and never leave their array.  A cache holds `cur`, and a `spare` that is full or
 * absent, so a thread that allocates and frees around the border of a magazine does not access
 * the depot each time.  Objects that were never handed out are carved: one CAS on a counter
 * takes as many as a magazine holds.
 *
 * Ordering: POOL-M1 <-> POOL-M2 (push and pop of a magazine): a thread that pops sees the
 * magazine's contents, and the objects as the threads that freed them left them.  All changes
 * of a head are read-modify-writes, so an acquire of any later head synchronizes with every
 * push before it.
 *
 * Progress: lock-free.  A failed CAS means that another thread's succeeded.  A thread that
 * stops inside holds at most two magazines and what its cache holds; no thread waits for them.
 *
 * Lifetime: a freed object may be handed out at once, to any thread.  A thread that still reads
 * it must detect that by a tag in the object.  ABA of the heads: see head_next().  The objects
 * that were freed last are handed out first.
 *
 * References: Bonwick and Adams, "Magazines and Vmem", USENIX 2001; Treiber,
 * "Systems programming: coping with parallelism", IBM RJ 5118, 1986.
 */
#include <string.h>

#include <base/err.h>
#include <pool/internal.h>

BUILD_BUG_ON(POOL_MAG > 64 || POOL_MAG < 8);
BUILD_BUG_ON(offsetof(struct pool_full, p) != 0);
BUILD_BUG_ON(offsetof(struct pool_full, full) % CACHELINE != 0);
BUILD_BUG_ON(sizeof(struct pool_mag) % CACHELINE != 0);
BUILD_BUG_ON(offsetof(struct pool_mag, link) != 0 || offsetof(struct slab, link) != 0);
/* All objects that a u32 can name, in full magazines, and the spare ones. */
BUILD_BUG_ON((1ull << 32) / POOL_MAG + 1 + POOL_MAG_SPARE_MAX > MAG_IDX_MAX);

static inline struct link *link_at(void *base, size_t size, u32 i)
{
	return (struct link *)(void *)((char *)base + i * size);
}

/* Lifetime: the caller owned i; any thread may own it afterwards.  Progress: lock-free. */
void stack_push(u64 *head, void *base, size_t size, u32 i)
{
	u64 old = load_relaxed(head);

	do {
		/* Relaxed: a thread that reads a stale next fails at its CAS, by the tag. */
		store_relaxed(&link_at(base, size, i)->next, head_idx(old));
		/* POOL-M1 <-> POOL-M2: the contents of i, then the head. */
	} while (!cas_release_relaxed(head, &old, head_next(old, i)));
}

/* 0: the stack is empty.  Lifetime: the caller owns the result.  Progress: lock-free. */
u32 stack_pop(u64 *head, void *base, size_t size)
{
	/* POOL-M2 <-> POOL-M1 */
	u64 old = load_acquire(head);
	u32 i;

	do {
		i = head_idx(old);
		if (!i)
			return 0;
		/*
		 * Another thread may own i by now, or its memory may be zero: then next is
		 * wrong, and the CAS fails.
		 */
		/* POOL-M2 <-> POOL-M1 */
	} while (!cas_acq_rel_acquire(head, &old,
				      head_next(old, load_relaxed(&link_at(base, size, i)->next))));
	return i;
}

/* Return one magazine of a slab whose memory was freed, and push the others as empty ones. */
static u32 mag_from_vacant(struct pool_full *f)
{
	u32 s = slab_pop(&f->mag_slabs), first, m;

	if (!s)
		return 0;
	first = slab_from(&f->mag_slabs, s);
	for (m = slab_end(&f->mag_slabs, s) - 1; m > first; m--)
		mag_push(f, &f->empty, m);
	return first;
}

/* Return an empty magazine; 0: none, and no memory for one.  Progress: lock-free. */
static u32 mag_new(struct pool_full *f)
{
	u32 m = mag_pop(f, &f->empty);

	if (m || loose_take(&f->mag_slabs, &m, 1))
		return m;
	m = mag_from_vacant(f);
	if (m)
		return m;
	m = load_relaxed(&f->mag_carved);
	do {
		if (m > f->nmags || mags_commit(f, m + 1))
			return mag_pop(f, &f->empty);
	} while (!cas_relaxed(&f->mag_carved, &m, m + 1));
	return m;
}

/* Put n objects on the stack as one magazine.  Progress: lock-free. */
void mag_put(struct pool_full *f, u64 *head, const u32 *idx, u32 n)
{
	u32 m = mag_new(f);

	if (unlikely(!m)) {
		/* mags_needed() excludes this.  Lose objects rather than corrupt the pool. */
		BUG_ON1(!m);
		fetch_add_relaxed(&f->lost, n);
		return;
	}
	memcpy(f->mags[m].idx, idx, n * sizeof(*idx));
	f->mags[m].n = n;
	mag_push(f, head, m);
}

/* Move the objects of a magazine to dst; 0: the stack is empty.  Progress: lock-free. */
u32 mag_take(struct pool_full *f, u64 *head, u32 *dst)
{
	u32 m = mag_pop(f, head);
	u32 n;

	if (!m)
		return 0;
	n = f->mags[m].n;
	BUG_ON1(!n || n > f->p.mag);
	memcpy(dst, f->mags[m].idx, n * sizeof(*dst));
	mag_push(f, &f->empty, m);
	return n;
}

/*
 * Initialize objects from..end - 1, whose memory is zero, and store their indexes in dst.  The
 * last in the array is handed out first, so addresses ascend.
 */
static u32 objects_init(struct pool_full *f, u32 *dst, u32 from, u32 end, u32 base)
{
	u32 i;

	for (i = from; i < end; i++) {
		dst[end - 1 - i] = i;
		if (f->ctor)
			f->ctor(pool_obj(&f->p, i), i, base, f->user);
	}
	return end - from;
}

/* Take objects of a slab whose memory was freed.  Progress: lock-free, and page faults. */
static u32 carve_vacant(struct pool_full *f, u32 *dst)
{
	u32 s = slab_pop(&f->objs), more[POOL_MAG], from, end, at, n, base;

	if (!s)
		return 0;
	from = slab_from(&f->objs, s);
	end = slab_end(&f->objs, s);
	base = slab_at(&f->objs, s)->base;
	/* Those that the cache cannot hold go to the depot. */
	for (at = (u32)min_u(from + f->p.mag, end); at < end; at += n) {
		n = objects_init(f, more, at, (u32)min_u(at + f->p.mag, end), base);
		if (n == f->p.mag)
			mag_put(f, &f->full, more, n);
		else
			partial_put(f, more, n);
	}
	return objects_init(f, dst, from, (u32)min_u(from + f->p.mag, end), base);
}

/*
 * Take objects that were never handed out.  They are committed before they are counted, so a
 * failure loses none.
 * Progress: lock-free, and a system call when the pool grows.
 */
static u32 carve(struct pool_full *f, u32 *dst)
{
	u32 from = load_relaxed(&f->carved);
	u32 end, next;

	if (!f->p.base)
		return 0;
	do {
		if (from > f->p.max)
			return 0;
		/* Batches end on multiples, so two threads' small objects share no line. */
		end = min_u(from / f->p.mag * f->p.mag + f->p.mag - 1, f->p.max) + 1;
		if (pool_commit(f, end))
			return 0;
		next = end;
		if (BUSTED(CARVE_OVERLAP))
			next--;
		/* Relaxed: only the numbers are handed over; POOL-C1 orders the memory. */
	} while (!cas_relaxed(&f->carved, &from, next));
	return objects_init(f, dst, from, end, 0);
}

/*
 * Take up to a magazine of objects from the depot.  While a trim moves objects, each of these
 * searches may miss them; if it has moved them to a magazine, the loop finds them.
 * Progress: lock-free.
 */
static u32 depot_get(struct pool_full *f, u32 *dst)
{
	u32 n;

	do {
		n = mag_take(f, &f->full, dst);
		if (!n)
			n = mag_take(f, &f->partial, dst);
		if (!n)
			n = loose_take(&f->objs, dst, f->p.mag);
		if (!n)
			n = carve_vacant(f, dst);
		if (!n)
			n = carve(f, dst);
	} while (unlikely(!n) && (head_idx(load_relaxed(&f->full)) |
				  head_idx(load_relaxed(&f->partial))));
	return n;
}

/* Progress: lock-free; a system call when the pool grows. */
u32 pool_get_slow(struct pool *p, struct pool_cache *c)
{
	struct pool_full *f = pool_full(p);
	u32 n = c->nspare;
	u32 i;

	BUG_ON1(c->n);
	if (n) {
		memcpy(c->cur, c->spare, n * sizeof(c->cur[0]));
		c->nspare = 0;
	} else {
		n = depot_get(f, c->cur);
		if (!n)
			return 0;
		store_relaxed(&c->gets, c->gets + n);
	}
	for (i = 2; i <= 4 && i <= n; i++)
		prefetchw(pool_obj(p, c->cur[n - i]));
	c->n = --n;
	return c->cur[n];
}

/* Progress: lock-free.  Never fails.  Lifetime: see pool_put(). */
void pool_put_slow(struct pool *p, struct pool_cache *c, u32 idx)
{
	struct pool_full *f = pool_full(p);

	BUG_ON1(c->n != p->mag);
	/* The older magazine goes to the depot: less of it is in this core's cache. */
	if (c->nspare) {
		mag_put(f, &f->full, c->spare, c->nspare);
		store_relaxed(&c->puts, c->puts + c->nspare);
	}
	memcpy(c->spare, c->cur, p->mag * sizeof(c->cur[0]));
	c->nspare = p->mag;
	c->cur[0] = idx;
	c->n = 1;
}

/*
 * Return n objects, fewer than a magazine.  They fill up a partial magazine if there is one, so
 * that threads which left do not leave one each.  Progress: lock-free.
 */
void partial_put(struct pool_full *f, const u32 *idx, u32 n)
{
	u32 m = mag_pop(f, &f->partial);
	struct pool_mag *mag = &f->mags[m];
	u32 k;

	if (!m) {
		mag_put(f, &f->partial, idx, n);
		return;
	}
	k = (u32)min_u(n, f->p.mag - mag->n);
	memcpy(mag->idx + mag->n, idx, k * sizeof(*idx));
	mag->n += k;
	mag_push(f, mag->n == f->p.mag ? &f->full : &f->partial, m);
	if (n > k)
		mag_put(f, &f->partial, idx + k, n - k);
}

/* Progress: lock-free.  Lifetime: as pool_put() of all objects in the cache. */
void pool_cache_flush(struct pool *p, struct pool_cache *c)
{
	struct pool_full *f = pool_full(p);

	/* A thread touches no cache that it did not use. */
	if (!(c->n | c->nspare))
		return;
	store_relaxed(&c->puts, c->puts + c->nspare + c->n);
	if (c->nspare)
		mag_put(f, &f->full, c->spare, c->nspare);
	if (c->n == p->mag)
		mag_put(f, &f->full, c->cur, c->n);
	else if (BUSTED(POOL_LEAK))
		c->n = 0;
	else if (c->n)
		partial_put(f, c->cur, c->n);
	if (!BUSTED(POOL_TWICE))
		c->n = 0;
	c->nspare = 0;
}
