/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slow paths of get and put: magazines between a thread's cache and the depot.
 *
 * Purpose: a thread touches shared memory once per p->mag objects, and objects that
 * another thread frees come back in batches.
 *
 * Structures: the depot is three stacks of magazines per pool: full, partial (left
 * by threads that went) and empty.  A stack is one word, {tag, index of the first};
 * magazines are linked by index and never leave their array.  A cache holds `cur`,
 * and a `spare` that is full or absent, so a thread that works around a border of a
 * magazine does not go to the depot each time.  Objects that were never given out
 * are carved, one magazine's worth at a time, by one CAS on a counter.
 *
 * Ordering: POOL-M1 <-> POOL-M2 (push of a magazine, pop): who pops sees the
 * magazine's contents, and the objects as the threads that put them left them.  All
 * changes of a head are read-modify-writes, so an acquire of any later head
 * synchronizes with every push before it.
 *
 * Progress: lock-free.  A failed CAS means that another thread's succeeded.  A
 * thread that stops inside holds at most two magazines and what its cache holds;
 * nobody waits for them.
 *
 * Lifetime: an object that was put may be given out at once, to any thread.  Who
 * still reads it must find out by a tag in the object.  ABA on the heads: see
 * head_next().  LIFO: the objects that were put last go out first.
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
		/* Relaxed: who reads a stale next fails its CAS, by the tag. */
		store_relaxed(&link_at(base, size, i)->next, head_idx(old));
		/* POOL-M1 <-> POOL-M2: contents of i, then i on the stack. */
	} while (!cas_release_relaxed(head, &old, head_next(old, i)));
}

/* 0: the stack is empty.  Lifetime: the caller owns what it gets.  Progress: lock-free. */
u32 stack_pop(u64 *head, void *base, size_t size)
{
	/* POOL-M2 <-> POOL-M1, here and by the failing CAS. */
	u64 old = load_acquire(head);
	u32 i;

	do {
		i = head_idx(old);
		if (!i)
			return 0;
		/*
		 * i may be another thread's by now, or its memory zero: then next is of no use,
		 * and the CAS fails.
		 */
	} while (!cas_acq_rel_acquire(head, &old,
				      head_next(old, load_relaxed(&link_at(base, size, i)->next))));
	return i;
}

/* Magazines whose memory was given back: one of them, and the others for whoever comes. */
static u32 mag_again(struct pool_full *f)
{
	u32 s = slab_pop(&f->mag_slabs), first, m;

	if (!s)
		return 0;
	first = slab_from(&f->mag_slabs, s);
	for (m = slab_end(&f->mag_slabs, s) - 1; m > first; m--)
		mag_push(f, &f->empty, m);
	return first;
}

/* An empty magazine; 0 when there can be none.  Progress: lock-free. */
static u32 mag_new(struct pool_full *f)
{
	u32 m = mag_pop(f, &f->empty);

	if (m || loose_take(&f->mag_slabs, &m, 1))
		return m;
	m = mag_again(f);
	if (m)
		return m;
	m = load_relaxed(&f->mag_carved);
	do {
		if (m > f->nmags ||
		    arena_commit(f->arena, &f->mag, (size_t)(m + 1) * sizeof(struct pool_mag)))
			return mag_pop(f, &f->empty);
	} while (!cas_relaxed(&f->mag_carved, &m, m + 1));
	return m;
}

/* Put n objects on the stack as one magazine.  Progress: lock-free. */
void mag_give(struct pool_full *f, u64 *head, const u32 *idx, u32 n)
{
	u32 m = mag_new(f);

	if (unlikely(!m)) {
		/* mags_needed() says that this cannot be; drop them rather than corrupt. */
		BUG_ON1(!m);
		fetch_add_relaxed(&f->lost, n);
		return;
	}
	memcpy(f->mags[m].idx, idx, n * sizeof(*idx));
	f->mags[m].n = n;
	mag_push(f, head, m);
}

/* Move a magazine from the stack to dst; 0: none there.  Progress: lock-free. */
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

/* Objects of memory that is zero.  The last in the array goes out first: ascending addresses. */
static u32 fresh(struct pool_full *f, u32 *dst, u32 from, u32 end, u32 base)
{
	u32 i;

	for (i = from; i < end; i++) {
		dst[end - 1 - i] = i;
		if (f->ctor)
			f->ctor(pool_obj(&f->p, i), i, base, f->user);
	}
	return end - from;
}

/* Objects whose memory was given back.  Progress: lock-free, and page faults. */
static u32 carve_again(struct pool_full *f, u32 *dst)
{
	u32 s = slab_pop(&f->objs), more[POOL_MAG], from, end, at, n, base;

	if (!s)
		return 0;
	from = slab_from(&f->objs, s);
	end = slab_end(&f->objs, s);
	base = f->objs.slab[s].base;
	/* What does not go into the cache is for whoever comes. */
	for (at = (u32)min_u(from + f->p.mag, end); at < end; at += n) {
		n = fresh(f, more, at, (u32)min_u(at + f->p.mag, end), base);
		if (n == f->p.mag)
			mag_give(f, &f->full, more, n);
		else
			partial_give(f, more, n);
	}
	return fresh(f, dst, from, (u32)min_u(from + f->p.mag, end), base);
}

/*
 * Objects that were never given out.  They are committed before they are counted, so
 * a failure loses none.  Their memory is zero until ctor.
 * Progress: lock-free, and a system call when the pool grows.
 */
static u32 carve(struct pool_full *f, u32 *dst)
{
	u32 from = load_relaxed(&f->carved);
	u32 end;

	if (!f->p.base)
		return 0;
	do {
		if (from > f->p.max)
			return 0;
		/* Batches end on multiples: small objects of two threads share no line. */
		end = min_u(from / f->p.mag * f->p.mag + f->p.mag - 1, f->p.max) + 1;
		if (pool_commit(f, end))
			return 0;
		/* Relaxed: the numbers alone change hands; the limit is POOL-C1's. */
	} while (!cas_relaxed(&f->carved, &from, end - BUSTED(CARVE_OVERLAP)));
	return fresh(f, dst, from, end, 0);
}

/*
 * Up to a magazine of objects, from wherever there are any.  While a trim moves them about,
 * they may be missed in each place and be in another one: then somebody put them there.
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
			n = carve_again(f, dst);
		if (!n)
			n = carve(f, dst);
	} while (unlikely(!n) && (head_idx(load_relaxed(&f->full)) |
				  head_idx(load_relaxed(&f->partial))));
	return n;
}

/* Progress: lock-free; a system call when the pool grows. */
u32 pool_slow_get(struct pool *p, struct pool_cache *c)
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
void pool_slow_put(struct pool *p, struct pool_cache *c, u32 idx)
{
	struct pool_full *f = pool_full(p);

	BUG_ON1(c->n != p->mag);
	/* The older magazine goes: it has less in this core's cache. */
	if (c->nspare) {
		mag_give(f, &f->full, c->spare, c->nspare);
		store_relaxed(&c->puts, c->puts + c->nspare);
	}
	memcpy(c->spare, c->cur, p->mag * sizeof(c->cur[0]));
	c->nspare = p->mag;
	c->cur[0] = idx;
	c->n = 1;
}

/*
 * The rest of a cache, fewer than a magazine: fill up the partial magazine that is
 * there, so that there is one for all threads that went, not one for each.
 * Progress: lock-free.
 */
void partial_give(struct pool_full *f, const u32 *idx, u32 n)
{
	u32 m = mag_pop(f, &f->partial);
	struct pool_mag *mag = &f->mags[m];
	u32 k;

	if (!m) {
		mag_give(f, &f->partial, idx, n);
		return;
	}
	k = (u32)min_u(n, f->p.mag - mag->n);
	memcpy(mag->idx + mag->n, idx, k * sizeof(*idx));
	mag->n += k;
	mag_push(f, mag->n == f->p.mag ? &f->full : &f->partial, m);
	if (n > k)
		mag_give(f, &f->partial, idx + k, n - k);
}

/* Progress: lock-free.  Lifetime: as if all objects in the cache were put. */
void pool_cache_flush(struct pool *p, struct pool_cache *c)
{
	struct pool_full *f = pool_full(p);

	store_relaxed(&c->puts, c->puts + c->nspare + c->n);
	if (c->nspare)
		mag_give(f, &f->full, c->spare, c->nspare);
	if (c->n == p->mag)
		mag_give(f, &f->full, c->cur, c->n);
	else if (c->n && !BUSTED(POOL_LEAK))
		partial_give(f, c->cur, c->n);
	if (!BUSTED(POOL_TWICE))
		c->n = 0;
	c->nspare = 0;
}
