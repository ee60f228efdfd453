/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed object pools, the lowest layer.
 *
 * Purpose: objects named by small indexes, in memory that never changes its type
 * until the arena goes, so that a reader with a stale index reads an object of the
 * right type, or zeros, and finds out by a tag; memory stays below the cap whoever is
 * stopped.
 *
 * Structures: an arena reserves address space for all pools of one engine (sum of
 * the caps) and commits it in steps.  Each pool has a carve counter, and a depot: a
 * lock-free stack of full magazines (tagged index of the magazine).  Each thread has
 * a pool_cache per pool with two magazines; get and put touch only these until both
 * are empty (or full), then one magazine moves from or to the depot by one CAS.
 * Objects freed by another thread than the one that got them so return in batches.
 *
 * Progress: get and put wait-free but when a magazine moves, then lock-free.  The
 * commit of fresh memory is a system call (growth only).
 */
#ifndef POOL_POOL_H
#define POOL_POOL_H

#if !defined(PAWL_LAYER) || PAWL_LAYER < 1
#error "pool/pool.h is for layer 1 and above"
#endif

#include <base/atomic.h>
#include <base/bug.h>

#define POOL_MAG 64u		/* objects per magazine */

struct arena;
struct pool;

struct pool_desc {
	const char *name;
	u32 size;		/* bytes; a multiple of 16, at most 1 MiB */
	u32 max;		/* objects that may exist, by indexes 1 .. max; 0 is none */
	bool keep;		/* its memory is not given back before the arena goes */
	/*
	 * May be NULL.  The object comes from memory that is all zero: with base 0, or again
	 * after a trim.  Then base is the largest last() of objects near it.
	 */
	void (*ctor)(void *obj, u32 idx, u32 base, void *user);
	/* Of a free object: up to where its generations went that must not come again. */
	u32 (*last)(void *obj, u32 idx, void *user);
	void *user;
};

struct pool_cache {
	u32 n;			/* O: objects in cur */
	u32 nspare;		/* O: 0 or the pool's mag */
	u32 cur[POOL_MAG];	/* O */
	u32 spare[POOL_MAG];	/* O */
	/* O, read by statistics: objects that came from the depot, and went to it. */
	u64 gets, puts;
};

/* The part of a pool that the inline paths read; the rest is in internal.h. */
struct pool {
	char *base;		/* I: address of object 0 */
	u32 size;		/* I */
	u32 max;		/* I */
	u32 mag;		/* I: objects per magazine: POOL_MAG, fewer in a small pool */
};

struct pool_stat {
	const char *name;
	u32 carved;		/* objects that were ever given out */
	u32 mags;		/* magazines that were ever used */
	u32 vacant;		/* objects whose memory was given back */
	u64 bytes;		/* committed */
	u64 lost;		/* must be 0 */
};

int arena_create(const char *name, struct arena **out);
/* All pools are gone after it.  Caller: nobody uses any object. */
void arena_destroy(struct arena *a);
/* Before the first arena_ready(): declare a pool.  -ENOMEM, -EINVAL. */
int arena_add(struct arena *a, const struct pool_desc *d, struct pool **out);
/*
 * Before arena_ready(): from now on object i of p is given out only when memory is there
 * for the objects 1 .. i + extra of `with`, which is in the same arena.
 */
void pool_follow(struct pool *p, struct pool *with, u32 extra);
/* Reserve the address space and set the pools' bases; prefault commits it all. */
int arena_ready(struct arena *a, bool prefault);
u64 arena_bytes(struct arena *a);	/* committed, and not given back since */
u32 pool_carved(struct pool *p);	/* objects that were ever given out */
void pool_stat(struct pool *p, struct pool_stat *s);
/*
 * Free objects that no cache holds, for checks while nobody uses the pool: with all
 * caches flushed and all objects put, it is pool_carved().  UINT32_MAX: broken.
 */
u32 pool_depot_count(struct pool *p);

/*
 * Fault injection: a weak function that a test replaces.  It is asked before memory is
 * reserved, committed or allocated; not 0 (-ENOMEM) makes the step fail.
 */
int pool_commit_hook(const char *what, size_t bytes);

u32 pool_slow_get(struct pool *p, struct pool_cache *c);
void pool_slow_put(struct pool *p, struct pool_cache *c, u32 idx);
/* Give all objects of a cache back to the depot (thread leaves).  Lock-free. */
void pool_cache_flush(struct pool *p, struct pool_cache *c);

/*
 * Give memory of which all objects are free, and in no cache, back to the system.  Any thread,
 * any number at once; everybody else goes on meanwhile and finds every free object but for
 * 64 KiB.  One step, which is short, and a system call at most; false: that was the last one.
 */
struct pool_trim {
	u32 phase, at, left;	/* begins as zero */
	u32 spare;		/* as it began: so many bytes at the pool's start stay */
	int rc;			/* what the system said when it did not take memory */
	u64 bytes;		/* given back */
};
bool pool_trim_step(struct pool *p, struct pool_trim *t);

static inline void *pool_obj(const struct pool *p, u32 idx)
{
	return p->base + (size_t)idx * p->size;
}

static inline u32 pool_idx(const struct pool *p, const void *obj)
{
	return (u32)((size_t)((const char *)obj - p->base) / p->size);
}

/*
 * The index of an object, for who knows the pool's base and the size of its objects: no
 * multiplication, and nothing goes through memory.  0 when pool_get() gives NULL.
 */
static inline u32 pool_get_idx(struct pool *p, struct pool_cache *c, char *base, size_t size)
{
	u32 n = c->n;

	if (unlikely(!n))
		return pool_slow_get(p, c);
	c->n = --n;
	/* The next ones may be in another core's cache: ask for them before they are needed. */
	if (likely(n >= 4))
		prefetchw(base + c->cur[n - 4] * size);
	return c->cur[n];
}

/*
 * NULL when the cap is reached and the depot is empty, or memory is out.  The object
 * is as its last user left it, or zero and as ctor made it.  The caller owns it alone.
 */
static inline void *pool_get(struct pool *p, struct pool_cache *c, u32 *idx)
{
	*idx = pool_get_idx(p, c, p->base, p->size);
	return *idx ? pool_obj(p, *idx) : NULL;
}

/* Any thread, its own cache.  The caller owned the object; stale readers may still look. */
static inline void pool_put(struct pool *p, struct pool_cache *c, u32 idx)
{
	u32 n = c->n;

	if (unlikely(n == p->mag)) {
		pool_slow_put(p, c, idx);
		return;
	}
	c->cur[n] = idx;
	c->n = n + 1;
}

/*
 * RCU, for memory that is not type-stable (a trace's rings): the only
 * user of liburcu is pool/rcu.c.  Readers: any thread, between lock and unlock no
 * blocking; sections nest.  The first lock of a thread registers it with liburcu, which
 * takes a mutex, and its end unregisters it.  pool_rcu_defer() never allocates
 * and never waits: the object carries its head.  Deferred functions run inside
 * pool_rcu_reclaim() and nowhere else: there is no thread in the background, so
 * whoever defers calls it where blocking is allowed.  All of these may run at once.
 */
struct rcu_defer {
	struct rcu_defer *next;
	void (*fn)(struct rcu_defer *d);
};
void pool_rcu_lock(void);
void pool_rcu_unlock(void);
void pool_rcu_defer(struct rcu_defer *d, void (*fn)(struct rcu_defer *));
/*
 * Run all functions that were deferred before, after a grace period; but for those that
 * another thread is about to run in here.  Blocking.  Not inside a section, nor in a
 * deferred function.  False: this is a child of fork() that leaves liburcu alone, and
 * nothing deferred is ever run.
 */
bool pool_rcu_reclaim(void);
/*
 * Wait until all sections that have begun are over: what they did is seen, and sections
 * that begin later see what the caller did before.  Blocking.  False as above: nothing was
 * waited for.
 */
bool pool_rcu_wait(void);

#endif
