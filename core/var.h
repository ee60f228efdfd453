/* SPDX-License-Identifier: Apache-2.0 */
/* Vars, their versions (blocks), and handles. */
#ifndef CORE_VAR_H
#define CORE_VAR_H

#include <core/thread.h>

/* One version of a var: the write that makes it and the reads that see it. */
struct block {
	u64 state;		/* A: state.h */
	u32 succ;		/* reference of the next writer, stored before CLOSED */
	u32 err;		/* error that the write inherited; with ERR, its own */
	u32 var;		/* A: the var whose version it is, or 0 */
	u32 unused[3];
};

BUILD_BUG_ON(sizeof(struct block) != 32);

/*
 * Vars are laid out in groups of four: four lines with one word each, then one line with the
 * four versions.  So a completion, which counts the version, does not touch the line on which
 * pushes compete, and a var takes 80 bytes.
 */
struct var {
	struct pair word;	/* A */
	u32 gen;		/* A: odd while alive; the handle carries it */
	u32 unused[3];
	struct block home;	/* the version while the var is parked: park.c */
};

struct var_side {
	u64 version;		/* written by completions of writes, which are ordered */
	u32 rec;		/* A: record of pending device work (pending.c), or 0 */
	u32 unused;
};

#define VAR_GROUP	4u
#define VAR_SIZE	80u

BUILD_BUG_ON(sizeof(struct var) != 64);
BUILD_BUG_ON(sizeof(struct var) + sizeof(struct var_side) != VAR_SIZE);
BUILD_BUG_ON(VAR_GROUP * sizeof(struct var_side) != sizeof(struct var));

static inline struct block *block_of(const struct pawl_engine *e, u32 idx)
{
	return (struct block *)(void *)(e->blocks + (size_t)idx * sizeof(struct block));
}

static inline struct var *var_of(const struct pawl_engine *e, u32 idx)
{
	/* idx / 4 lines of struct var_side come before it */
	return (struct var *)(void *)(e->vars +
			      ((size_t)idx + idx / VAR_GROUP) * sizeof(struct var));
}

static inline struct var_side *var_side_of(const struct pawl_engine *e, u32 idx)
{
	return (struct var_side *)(void *)(e->vars +
				   ((size_t)(idx | (VAR_GROUP - 1)) + 1 + idx / VAR_GROUP) *
				   sizeof(struct var) +
				   (idx % VAR_GROUP) * sizeof(struct var_side));
}

/* The block of a version of var vi; 0 is the var's own. */
static inline struct block *version_of(const struct pawl_engine *e, u32 vi, u32 bi)
{
	return likely(bi) ? block_of(e, bi) : &var_of(e, vi)->home;
}

/*
 * Generations of handles.  Each engine counts from its own number, so that another engine's
 * handle is refused.  Those of vars, graphs, queues and groups are odd while the object is
 * alive; 0 is left out, because it means that the index was never used.  An index of a var or
 * a graph whose generation has come round to the first number is not used again, so no handle
 * is ever valid for two of them.  Tickets and tokens have fewer bits (GEN_*): their objects get
 * the first number when their memory is new.
 */
#define GEN_TICKET	3u	/* a generation has 32 bits less this many */
#define GEN_TOKEN	2u
#define GEN_NEAR	65536u

static inline u32 gen_first(const struct pawl_engine *e, u32 less)
{
	return e->gen_first >> less;
}

/* How many generations ago was the first? */
static inline u32 gen_age(const struct pawl_engine *e, u32 gen, u32 less)
{
	return (gen - gen_first(e, less)) & (~0u >> less);
}

/*
 * Is a handle with this generation of another engine?  Only if the object has not come near to it:
 * own, its generation, may be an older one for a thread that reads it without order.  It is 0 if
 * the memory is not in use; then no handle is found out.
 */
static inline bool gen_foreign(const struct pawl_engine *e, u32 gen, u32 own, u32 less)
{
	return own && gen_age(e, gen, less) > gen_age(e, own, less) + GEN_NEAR;
}

static inline u32 gen_alive(const struct pawl_engine *e, u32 gen)
{
	return (gen ? gen : e->gen_first) + 1;
}

static inline u32 gen_dead(u32 alive)
{
	return alive + 1 ? alive + 1 : 2;
}

static inline bool gen_is_last(const struct pawl_engine *e, u32 dead)
{
	return unlikely(dead == e->gen_first);
}

static inline u32 var_index(pawl_var_t h)
{
	return (u32)h.h;
}

int var_bad(const char *who, const char *list, u32 i, pawl_var_t v);
int var_check_slow(struct thread *t, pawl_var_t h);

/* Returns 0 or -ESTALE, without a message.  CORE-V2 <-> CORE-V3.  Progress: wait-free. */
static inline int var_check(struct thread *t, pawl_var_t h)
{
	u32 i = var_index(h), gen = (u32)(h.h >> 32);
	struct var *v;

	/* An index that was never carved has no memory; the limit only grows. */
	if (unlikely(i >= t->var_limit))
		return var_check_slow(t, h);
	v = var_of(t->e, i);
	/* Its deletion may be pushed and not complete. */
	return likely((gen & 1) && load_acquire(&v->gen) == gen &&
		      !(load_relaxed(&v->word.val) & WORD_DELETED)) ? 0 : -ESTALE;
}

static inline void block_free(struct thread *t, u32 bi)
{
	store_relaxed(&block_of(t->e, bi)->var, 0);
	pool_put(t->e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], bi);
}

/* The version b of a var is no longer needed: all its accesses are complete. */
static inline void version_end(struct thread *t, struct block *b, u32 bi)
{
	if (likely(bi))
		block_free(t, bi);
	else
		/* No thread uses it until the var is parked again: relaxed. */
		store_relaxed(&b->state, BLOCK_DONE);
}

struct pair word_snapshot(struct var *v);
u32 block_reclaim(struct thread *t);

#endif
