/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Insides of the pools: what arena.c, magazine.c, trim.c and stat.c share.
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

/* What the things on a stack begin with.  It may be read late: of another life, or zero. */
struct link {
	u32 next;		/* A: the one below, while on a stack */
};

/* Type-stable: a magazine stays one until the arena goes. */
struct pool_mag {
	struct link link;
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
 * each holds two at most, or in a trim a slab.  More may be, then magazines are committed
 * as needed.
 */
#define POOL_MAG_SPARE		1024u
#define POOL_MAG_SPARE_MAX	262144u
/* A pool with fewer magazines keeps them. */
#ifdef PAWL_MODEL
#define POOL_MAGS_TRIM		1u
#else
#define POOL_MAGS_TRIM		8192u
#endif

/* So many bytes are given back at once, and in the hands of one thread. */
#ifdef PAWL_MODEL
#define SLAB_MAX		512u
#define SLAB_LEAST		2u	/* objects, if they are that small */
#else
#define SLAB_MAX		65536u
#define SLAB_LEAST		64u
#endif

struct slab {
	struct link link;
	u32 base;		/* O: what may not be repeated in it; see pool_desc.last */
};

/*
 * A range of objects, or of magazines, as slabs: pieces of whole pages that are given back
 * to the system when all that lies in them is free.  Here are things that are free and in no
 * magazine: a bit each.  trim.c has the rest.
 */
struct slabs {
	struct arena_range *range;	/* I */
	u64 *bits;		/* I: each A */
	struct slab *slab;	/* I: slab[0] is not used */
	u32 size;		/* I: bytes of a thing */
	u32 end;		/* I: things are 1 .. end - 1 */
	u32 shift;		/* I: so many things in a slab, as a power of two */
	u32 count;		/* I: slabs; 0: they are never given back */
	u64 vacant;		/* A: slabs whose memory was given back */
	u32 nvacant;		/* A: things in them */
	u32 unused;
	u64 loosed;		/* A: how often bits were set */
	u64 seen;		/* A: that, when a look at all bits found none */
};

struct pool_full {
	struct pool p;		/* I; must be first */
	struct arena *arena;	/* I */
	struct pool_full *next;	/* I: of the arena */
	struct pool_mag *mags;	/* I: mags[0] is not used */
	u32 nmags;		/* I: indexes 1 .. nmags */
	void (*ctor)(void *obj, u32 idx, u32 base, void *user);	/* I */
	u32 (*last)(void *obj, u32 idx, void *user);	/* I */
	void *user;		/* I */
	struct pool_full *with;	/* I: pool_follow(); NULL: none */
	u32 extra;		/* I */
	char name[24];		/* I */

	struct arena_range obj;	/* the objects */
	struct arena_range mag;	/* the magazines */
	struct arena_range side;	/* what slabs need */
	struct slabs objs, mag_slabs;

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

static inline u32 slab_words(const struct slabs *sl)
{
	return sl->shift > 6 ? 1u << (sl->shift - 6) : 1;
}

/* The things in slab s, 1 .. count. */
static inline u32 slab_from(const struct slabs *sl, u32 s)
{
	return (u32)max_u((u64)(s - 1) << sl->shift, 1u);
}

static inline u32 slab_end(const struct slabs *sl, u32 s)
{
	return (u32)min_u((u64)s << sl->shift, sl->end);
}

size_t arena_page(void);

static inline size_t slab_page(void)
{
#ifdef PAWL_MODEL
	return CACHELINE;
#else
	return arena_page();
#endif
}

/* The first `need` bytes of r become usable.  0, -ENOMEM. */
int arena_commit(struct arena *a, struct arena_range *r, size_t need);
/* Memory for the objects below `end`, and for the magazines that can carry them. */
int pool_commit(struct pool_full *f, u32 end);

/* magazine.c: stacks of what begins with a struct link, at base + index * size */
void stack_push(u64 *head, void *base, size_t size, u32 i);
u32 stack_pop(u64 *head, void *base, size_t size);
u32 mag_take(struct pool_full *f, u64 *head, u32 *dst);
void mag_give(struct pool_full *f, u64 *head, const u32 *idx, u32 n);
void partial_give(struct pool_full *f, const u32 *idx, u32 n);

static inline void mag_push(struct pool_full *f, u64 *head, u32 m)
{
	stack_push(head, f->mags, sizeof(struct pool_mag), m);
}

static inline u32 mag_pop(struct pool_full *f, u64 *head)
{
	return stack_pop(head, f->mags, sizeof(struct pool_mag));
}

/* trim.c */
void slabs_shape(struct slabs *sl, u32 size, u32 n);
u32 slab_pop(struct slabs *sl);
u32 loose_take(struct slabs *sl, u32 *dst, u32 most);
u32 loose_count(const struct slabs *sl);

/* Wherever the kernel may refuse; see pool_commit_hook() in pool.h. */
#define HOOK_RESERVE	"reserve"
#define HOOK_COMMIT	"commit"
#define HOOK_ALLOC	"alloc"
#define HOOK_TRIM	"trim"

#endif
