/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Insides of the pools: what arena.c, magazine.c and stat.c share.
 *
 * Field legend:
 *   I  set before the object is shared, never changed afterwards
 *   O  the owner: whoever took the magazine off its stack
 *   A  atomic, any thread
 */
#ifndef POOL_INTERNAL_H
#define POOL_INTERNAL_H

#if (!defined(PAWL_LAYER) || PAWL_LAYER != 1) && !defined(PAWL_TEST_INTERNAL)
#error "pool/internal.h is for layer 1 alone"
#endif

#include <pool/pool.h>

/*
 * The head of a stack of magazines: the index of the first one (0: none) and a tag
 * that every change increments.  Index and tag are in these accessors only.
 *
 * ABA: a thread that stops between its load of the head and its CAS is fooled only
 * if the tag comes round meanwhile: 2^36 moves of a magazine, that is 4 * 10^12
 * objects, and it must wake at that very value.
 */
#define MAG_IDX_BITS	28
#define MAG_IDX_MAX	((1u << MAG_IDX_BITS) - 1)

static inline u32 head_idx(u64 head)
{
	return (u32)head & MAG_IDX_MAX;
}

static inline u64 head_next(u64 head, u32 idx)
{
	return ((head >> MAG_IDX_BITS) + !BUSTED(POOL_ABA)) << MAG_IDX_BITS | idx;
}

/* Type-stable: a magazine stays one until the arena goes, so `next` may be read late. */
struct pool_mag {
	u32 next;		/* A: the magazine below, while on a stack */
	u32 n;			/* O: objects in it */
	u32 idx[POOL_MAG];	/* O: the one at n - 1 goes out first */
} __cacheline_aligned;

/*
 * A part of the reservation, committed from its start on.
 */
struct arena_range {
	char *start;		/* I */
	size_t bytes;		/* I: reserved; a multiple of the page */
	u64 committed;		/* A: bytes from start that are readable and writable */
};

/*
 * Threads that are inside a slow path at once without fresh memory for magazines:
 * each holds two at most.  More may be, then magazines are committed as needed.
 */
#define POOL_MAG_SPARE		1024u
#define POOL_MAG_SPARE_MAX	131072u

struct pool_full {
	struct pool p;		/* I; must be first */
	struct arena *arena;	/* I */
	struct pool_full *next;	/* I: of the arena */
	struct pool_mag *mags;	/* I: mags[0] is not used */
	u32 nmags;		/* I: indexes 1 .. nmags */
	void (*ctor)(void *obj, u32 idx, void *user);	/* I */
	void *user;		/* I */
	struct pool_full *with;	/* I: pool_follow(); NULL: none */
	u32 extra;		/* I */
	char name[24];		/* I */

	struct arena_range obj;	/* the objects */
	struct arena_range mag;	/* the magazines */

	/*
	 * A magazine that moves changes two of these stacks, one after the other, by
	 * the same thread; on one line the second change finds the line at hand.
	 */
	u64 full __cacheline_aligned;	/* A: magazines with p.mag objects */
	u64 empty;		/* A: magazines without objects */
	u64 partial;		/* A: magazines with fewer, left by threads that went */
	u32 carved;		/* A: next object index that was never given out */
	u32 mag_carved;		/* A: next magazine index that was never used */
	u64 lost;		/* A: objects dropped for want of a magazine: must stay 0 */
};

struct arena {
	char *base;		/* I: after arena_ready(); NULL before */
	size_t bytes;		/* I: reserved */
	u64 committed;		/* A */
	struct pool_full *pools;	/* I, in the order of arena_add() */
	struct pool_full **tail;	/* I */
	char name[24];		/* I */
};

static inline struct pool_full *pool_full(struct pool *p)
{
	return container_of(p, struct pool_full, p);
}

static inline size_t round_up_to(size_t v, size_t step)
{
	return (v + step - 1) / step * step;
}

size_t arena_page(void);
/* The first `need` bytes of r become usable.  0, -ENOMEM. */
int arena_commit(struct arena *a, struct arena_range *r, size_t need);
/* Memory for the objects below `end`, and for the magazines that can carry them. */
int pool_commit(struct pool_full *f, u32 end);

/* Wherever the kernel may refuse; see pool_commit_hook() in pool.h. */
#define HOOK_RESERVE	"reserve"
#define HOOK_COMMIT	"commit"
#define HOOK_ALLOC	"alloc"

#endif
