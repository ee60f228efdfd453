/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structures of the pools, which arena.c, magazine.c, trim.c and stat.c share.
 *
 * Field legend:
 *   I  set before the object is shared, never changed afterwards
 *   O  the owner: the thread that took the magazine or slab off its stack
 *   A  atomic, any thread
 */
#ifndef POOL_INTERNAL_H
#define POOL_INTERNAL_H

#if (!defined(PAWL_LAYER) || PAWL_LAYER != 1) && !defined(PAWL_TEST_INTERNAL)
#error "pool/internal.h is for layer 1 alone"
#endif

#include <pool/pool.h>

/*
 * The head of a stack of magazines: the index of the first one (0: none) and a tag that every
 * change increments.  Only these accessors know the layout.
 *
 * ABA: a thread that stops between its load of the head and its CAS is misled only if the tag
 * wraps meanwhile, after 2^36 moves of a magazine (4 * 10^12 objects), and the thread continues
 * at exactly that value.
 */
#define MAG_IDX_BITS	28
#define MAG_IDX_MAX	((1u << MAG_IDX_BITS) - 1)

static inline u32 head_idx(u64 head)
{
	return (u32)head & MAG_IDX_MAX;
}

static inline u64 head_next(u64 head, u32 idx)
{
	u64 tag = head >> MAG_IDX_BITS;

	if (!BUSTED(POOL_ABA))
		tag++;
	return tag << MAG_IDX_BITS | idx;
}

/* The first field of everything on a stack.  A late reader may find a later value, or zero. */
struct link {
	u32 next;		/* A: the index of the one below, while on a stack */
};

/* Type-stable: the memory of a magazine holds one until the arena is destroyed. */
struct pool_mag {
	struct link link;
	u32 n;			/* O: objects in it */
	u32 idx[POOL_MAG];	/* O: the one at n - 1 is handed out first */
} __cacheline_aligned;

/* A part of the arena, committed from its start on. */
struct arena_range {
	char *start;		/* I */
	size_t bytes;		/* I: at most; a multiple of the page */
	u64 committed;		/* A: bytes from start that are readable and writable */
	u64 mapped;		/* A: bytes from start that are mapped */
};

/*
 * Magazines that are committed beyond those that full magazines need: a thread inside a slow
 * path holds at most two, or a slab in a trim.  If more threads are inside, more magazines are
 * committed as needed.
 */
#define POOL_MAG_SPARE		1024u
/* Two in the slow path and one partial for each of the 2047 threads that an engine can have. */
#define POOL_MAG_SPARE_MAX	8192u
/* A trim does not free the magazines of a pool that has fewer than this. */
#ifdef PAWL_MODEL
#define POOL_MAGS_TRIM		1u
#else
#define POOL_MAGS_TRIM		8192u
#endif

/* The largest number of bytes that one thread claims at once, to free them. */
#ifdef PAWL_MODEL
#define SLAB_MAX		512u
#define SLAB_LEAST		2u	/* objects, if they are that small */
#else
#define SLAB_MAX		65536u
#define SLAB_LEAST		64u
#endif

struct slab {
	struct link link;
	u32 base;		/* O: the largest pool_desc.last() of its objects */
	u64 bits[];		/* A: slab_words() */
};

/*
 * A range of objects, or of magazines ("things"), cut into slabs of whole pages.  A trim frees
 * the memory of a slab when everything in it is free.  A bit per thing is set while the thing
 * is loose, that is, free and in no magazine.  See trim.c.
 */
struct slabs {
	struct arena_range *range;	/* I: the things */
	struct arena_range side;	/* the slabs; slab 0 is not used */
	u32 size;		/* I: bytes of a thing */
	u32 end;		/* I: things are 1 .. end - 1 */
	u32 shift;		/* I: log2 of the number of things in a slab */
	u32 count;		/* I: number of slabs; 0: their memory is never freed */
	u64 vacant;		/* A: stack of slabs whose memory was freed */
	u32 nvacant;		/* A: things in them */
	u32 unused;
	u64 loosed;		/* A: how often bits were set */
	u64 seen;		/* A: the value of loosed when a search found no bit */
};

struct pool_full {
	struct pool p;		/* I; must be first */
	struct arena *arena;	/* I */
	struct pool_full *next;	/* I: of the arena */
	struct pool_mag *mags;	/* I: mags[0] is not used */
	u32 nmags;		/* I: indexes 1 .. nmags */
	u32 group;		/* I: objects that are committed together */
	bool lazy;		/* I */
	void (*ctor)(void *obj, u32 idx, u32 base, void *user);	/* I */
	u32 (*last)(void *obj, u32 idx, void *user);	/* I */
	void *user;		/* I */
	struct pool_full *with;	/* I: pool_follow(); NULL: none */
	u32 extra;		/* I */
	char name[24];		/* I */

	struct arena_range obj;	/* the objects */
	struct arena_range mag;	/* the magazines */
	struct slabs objs, mag_slabs;

	/*
	 * A thread that moves a magazine changes two of these stacks, one after the other.  On
	 * one cache line, its second change needs no transfer.
	 */
	u64 full __cacheline_aligned;	/* A: magazines with p.mag objects */
	u64 empty;		/* A: magazines without objects */
	u64 partial;		/* A: magazines with fewer, from threads that left */
	u32 carved;		/* A: index of the next object that was never handed out */
	u32 mag_carved;		/* A: index of the next magazine that was never used */
	u64 lost;		/* A: objects dropped for lack of a magazine: must stay 0 */
};

struct arena {
	char *base;		/* I: after arena_ready(); NULL before */
	u32 place;		/* I: its place + 1, and ranges grow there; 0: all of it is reserved */
	u64 bytes;		/* A: mapped */
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

static inline size_t slab_stride(const struct slabs *sl)
{
	return sizeof(struct slab) + slab_words(sl) * sizeof(u64);
}

static inline struct slab *slab_at(const struct slabs *sl, u32 s)
{
	return (struct slab *)(void *)(sl->side.start + s * slab_stride(sl));
}

/* The slab of thing i. */
static inline u32 slab_of(const struct slabs *sl, u32 i)
{
	return (i >> sl->shift) + 1;
}

/* The first thing of slab s, 1 .. count; slab_end() is behind the last. */
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

/* Make the first `need` bytes of r usable.  Returns 0 or -ENOMEM. */
int arena_commit(struct arena *a, struct arena_range *r, size_t need);
/* Commit the objects below `end`, and the magazines that can hold them. */
int pool_commit(struct pool_full *f, u32 end);
/* Commit the magazines below `end`. */
int mags_commit(struct pool_full *f, u32 end);

/* magazine.c; a stack holds things that begin with a struct link, at base + index * size */
void stack_push(u64 *head, void *base, size_t size, u32 i);
u32 stack_pop(u64 *head, void *base, size_t size);
u32 mag_take(struct pool_full *f, u64 *head, u32 *dst);
void mag_put(struct pool_full *f, u64 *head, const u32 *idx, u32 n);
void partial_put(struct pool_full *f, const u32 *idx, u32 n);

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

/* Where the system may refuse; see pool_commit_hook() in pool.h. */
#define HOOK_RESERVE	"reserve"
#define HOOK_PLACE	"place"	/* a simulator: does it let ranges grow? */
#define HOOK_COMMIT	"commit"
#define HOOK_TRIM	"trim"

#endif
