/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed object pools, the lowest layer.
 *
 * Purpose: objects are named by small indexes.  Their memory does not change its type until the
 * arena is destroyed, so a reader with a stale index reads an object of the right type, or
 * zeros, and detects that by a tag.  The memory stays below the cap, whichever thread is
 * stopped.
 *
 * Structures: an arena reserves address space for all pools of one engine (the sum of their
 * caps) and commits it in steps.  Each pool has a counter of objects ever handed out (carved),
 * and a depot: lock-free stacks of magazines.  Each thread has a pool_cache per pool with two
 * magazines.  get and put access only these until both are empty (or full); then one magazine
 * moves from or to the depot by one CAS.  So objects that another thread frees return in
 * batches.
 *
 * Progress: get and put are wait-free, except when a magazine moves; then they are lock-free.
 * Committing memory is a system call, only when the pool grows.
 */
#ifndef POOL_POOL_H
#define POOL_POOL_H

#if !defined(PAWL_LAYER) || PAWL_LAYER < 1
#error "pool/pool.h is for layer 1 and above"
#endif

#include <base/atomic.h>
#include <base/bug.h>
#if defined(__has_include) && !__has_include(<ck_stack.h>)
#error "concurrencykit's headers are missing: run make setup, or install libck-dev"
#endif
#include <ck_stack.h>

#define POOL_MAG 64u		/* objects per magazine */

struct arena;
struct pool;

struct pool_desc {
	const char *name;
	u32 size;		/* bytes; a multiple of 16, at most 1 MiB */
	u32 max;		/* the largest number of objects; indexes are 1 .. max */
	bool keep;		/* a trim does not free its memory */
	bool lazy;		/* prefault leaves it out */
	u32 mag;		/* objects per magazine, at most POOL_MAG; 0: according to max */
	/*
	 * An object may have parts anywhere in the memory of the `group` objects, a power of two,
	 * that begin with a multiple of it.  0: it has none outside its own memory.
	 */
	u32 group;
	/*
	 * Initialize an object whose memory is all zero; may be NULL.  base is 0, or if the
	 * memory was freed by a trim, the largest last() of the objects of its slab.
	 */
	void (*ctor)(void *obj, u32 idx, u32 base, void *user);
	/* The newest generation of a free object, which must not be used again. */
	u32 (*last)(void *obj, u32 idx, void *user);
	void *user;
};

struct pool_cache {
	u32 n;			/* O: objects in cur */
	u32 nspare;		/* O: 0 or the pool's mag */
	u32 cur[POOL_MAG];	/* O */
	u32 spare[POOL_MAG];	/* O */
	/* O, read by statistics: objects taken from the depot, and returned to it. */
	u64 gets, puts;
};

/* The part of a pool that the inline functions read; the rest is in internal.h. */
struct pool {
	char *base;		/* I: address of object 0 */
	u32 size;		/* I */
	u32 max;		/* I */
	u32 mag;		/* I: objects per magazine: POOL_MAG, fewer in a small pool */
};

struct pool_stat {
	const char *name;
	u32 carved;		/* objects that were ever handed out */
	u32 mags;		/* magazines that were ever used */
	u32 vacant;		/* objects whose memory was freed by a trim */
	u64 bytes;		/* committed */
	u64 lost;		/* must be 0 */
};

/* Objects per magazine of a pool of so many: both magazines of a cache are 1/16 at most. */
static inline u32 pool_mag(u32 objects)
{
	return (u32)min_u(max_u(objects / 32, 1u), POOL_MAG);
}

int arena_create(const char *name, struct arena **out);
/* Free the arena with all pools.  The caller ensures that no thread uses any object. */
void arena_destroy(struct arena *a);
/* Declare a pool, before the first arena_ready().  Returns 0, -ENOMEM or -EINVAL. */
int arena_add(struct arena *a, const struct pool_desc *d, struct pool **out);
/*
 * To be called before arena_ready().  Object i of p is then handed out only if memory is
 * committed for the objects 1 .. i + extra of `with`, which is in the same arena.
 */
void pool_follow(struct pool *p, struct pool *with, u32 extra);
/* Reserve the address space and set the pools' bases; prefault commits all of it. */
int arena_ready(struct arena *a, bool prefault);
u64 arena_space(struct arena *a);	/* of addresses, from arena_ready() on */
u64 arena_bytes(struct arena *a);	/* committed and not freed since */
u32 pool_carved(struct pool *p);	/* objects that were ever handed out */
void pool_stat(struct pool *p, struct pool_stat *s);
/*
 * For checks: the number of free objects that no cache holds.  With all caches flushed and all
 * objects put it equals pool_carved().  UINT32_MAX: the depot is corrupt.  The caller ensures
 * that no thread uses the pool.
 */
u32 pool_depot_count(struct pool *p);

/*
 * Fault injection: a weak function that a test replaces.  It is called before memory is
 * reserved, committed or allocated; a result other than 0 (-ENOMEM) makes the step fail.
 */
int pool_commit_hook(const char *what, size_t bytes);

u32 pool_get_slow(struct pool *p, struct pool_cache *c);
void pool_put_slow(struct pool *p, struct pool_cache *c, u32 idx);
/* Return all objects of a cache to the depot; for a thread that leaves.  Lock-free. */
void pool_cache_flush(struct pool *p, struct pool_cache *c);

/*
 * Free memory whose objects are all free and in no cache.  Any number of threads may call it
 * concurrently.  Other threads continue meanwhile, and find every free object except 64 KiB of
 * them.  One call makes a short step, with at most one system call; false: it was the last
 * step.
 */
struct pool_trim {
	u32 phase, at, left;	/* all 0 at first */
	u32 spare;		/* set by the caller: bytes at the pool's start to keep */
	int rc;			/* the error if the system did not free memory */
	u64 bytes;		/* freed */
};
bool pool_trim_step(struct pool *p, struct pool_trim *t);

static inline void *pool_obj(const struct pool *p, u32 idx)
{
	return p->base + (size_t)idx * p->size;
}

/*
 * pool_get() for a caller that knows the pool's base and the size of its objects: it returns
 * the index, without a multiplication.  0 where pool_get() returns NULL.
 */
static inline u32 pool_get_idx(struct pool *p, struct pool_cache *c, char *base, size_t size)
{
	u32 n = c->n;

	if (unlikely(!n))
		return pool_get_slow(p, c);
	c->n = --n;
	/* The next objects may be in another core's cache: prefetch them. */
	if (likely(n >= 4))
		prefetchw(base + c->cur[n - 4] * size);
	return c->cur[n];
}

/*
 * Allocate an object.  Its contents are as its last user left them, or zero and as ctor set
 * them.  Returns NULL if the cap is reached and the depot is empty, or memory is exhausted.
 */
static inline void *pool_get(struct pool *p, struct pool_cache *c, u32 *idx)
{
	*idx = pool_get_idx(p, c, p->base, p->size);
	return *idx ? pool_obj(p, *idx) : NULL;
}

/*
 * Free an object that the caller owns.  Any thread, with its own cache; stale readers may still
 * read the object.
 */
static inline void pool_put(struct pool *p, struct pool_cache *c, u32 idx)
{
	u32 n = c->n;

	if (unlikely(n == p->mag)) {
		pool_put_slow(p, c, idx);
		return;
	}
	c->cur[n] = idx;
	c->n = n + 1;
}

/*
 * RCU, for memory that is not type-stable (a trace's rings).  Only pool/rcu.c uses liburcu.
 * Any thread may be a reader; it must not block between lock and unlock; sections nest.  The
 * first lock of a thread registers it with liburcu, which takes a mutex, and its end
 * unregisters it.  pool_rcu_defer() never allocates and never waits, because the object
 * contains its list entry.  Deferred functions run only inside pool_rcu_reclaim(): there is no
 * background thread, so a caller of pool_rcu_defer() also calls that where it may block.  All
 * of these calls may run concurrently.
 */
struct rcu_defer {
	ck_stack_entry_t link;
	void (*fn)(struct rcu_defer *d);
};
void pool_rcu_lock(void);
void pool_rcu_unlock(void);
void pool_rcu_defer(struct rcu_defer *d, void (*fn)(struct rcu_defer *));
/*
 * Wait for a grace period and then run all functions that were deferred before the call, except
 * those that another thread is about to run in this function.  Blocking.  Not allowed inside a
 * section or a deferred function.  Returns false in a child of fork() that must not call
 * liburcu; there no deferred function ever runs.
 */
bool pool_rcu_reclaim(void);
/*
 * Wait until all sections that have begun have ended.  Their effects are visible then, and
 * sections that begin later see what the caller did before.  Blocking.  Returns false as above,
 * without waiting.
 */
bool pool_rcu_wait(void);

#endif
