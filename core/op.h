/* SPDX-License-Identifier: Apache-2.0 */
/* Ops and their accesses: from a description to an op, and from an op to its queue. */
#ifndef CORE_OP_H
#define CORE_OP_H

#include <core/var.h>

#define DEP_WRITE	0x80000000u

/* One access of an op. */
struct dep {
	u32 var;		/* H: index | DEP_WRITE */
	u32 block;		/* H: of a write, the new block; of a read, the block that it
				 * joined, or RM_BASE + the rm that counts it */
	u32 link;		/* next waiting reader; in a batch's link list, number of readers */
	u32 gen;		/* H: generation of the var */
};

/*
 * Store a field that a helper of an earlier push may still read (H, and a dep's link): a
 * helper that reads the new value also finds that the earlier push is FINISHED.
 */
static inline void store_helped(u32 *field, u32 v)
{
	store_release(field, v);	/* CORE-L9 <-> CORE-L10 */
}

static inline void store_helped16(u16 *field, u32 v)
{
	store_release(field, (u16)v);	/* CORE-L9 <-> CORE-L10 */
}

static inline void store_helped64(u64 *fields, u64 v)
{
	store_release(fields, v);	/* CORE-L9 <-> CORE-L10 */
}

/* Read such a field of another thread's push.  CORE-L10 <-> CORE-L9 */
#define load_helped(field)	load_acquire(field)

static inline void dep_set(struct dep *d, u32 var, u32 block, u32 link, u32 gen)
{
	store_helped(&d->var, var);
	store_helped(&d->block, block);
	store_helped(&d->link, link);
	store_helped(&d->gen, gen);
}

/* The push left the access out, because its var was deleted meanwhile. */
static inline bool dep_dead(const struct dep *d)
{
	return !load_relaxed(&d->block) && !load_relaxed(&d->gen);
}

static inline void dep_kill(struct dep *d)
{
	store_helped(&d->block, 0);
	store_helped(&d->gen, 0);
}

static inline void dep_copy(struct dep *to, const struct dep *from)
{
	dep_set(to, from->var, from->block, from->link, from->gen);
}

enum {
	OP_ASYNC = 1 << 0,
	OP_NO_SKIP = 1 << 1,
	OP_DELETE = 1 << 2,	/* deletes its var */
	OP_WAITER = 1 << 3,	/* a waiting thread, not a body */
	OP_BATCH = 1 << 4,	/* link list of a batch; never runs */
	OP_STALE = 1 << 5,	/* a var was deleted during its push: it does not run */
	OP_NO_COUNT = 1 << 6,	/* its write is not a version (wait writable) */
	OP_INLINE = 1 << 7,	/* its property says where it runs: dispatch_slow() */
	OP_NAMED = 1 << 8,	/* from here on: this field is set */
	OP_RELEASE = 1 << 9,
	OP_GRAPH = 1 << 10,
	OP_ERR = 1 << 11,
	OP_NOTE = 1 << 12,	/* cq.c: release is in its note */
	OP_ASK = 1 << 13,	/* its note says whether it may start */
	OP_NODE = 1 << 14,	/* carries a node of a launch; it has no vars: nodes.c */
	OP_INHERITS = 1 << 15,	/* op.err is an error of its vars: inherit() */
};

/* Flags of a description. */
#define OP_FLAGS_KNOWN	(PAWL_OP_NO_SKIP | PAWL_OP_NOTES | PAWL_OP_ARG)

/* Flags that need the slow path of a completion. */
#define OP_SLOW_END	(OP_DELETE | OP_STALE | OP_NO_COUNT)

/*
 * Most ops with one var or two need the first line only.  In the second, fields that the flags
 * do not name have the values of an earlier op.
 */
struct op {
	union {
		pawl_fn fn;
		pawl_async_fn async_fn;
	};
	void *arg;		/* A: node_take() may read it in an op of another thread */
	u32 wait;		/* A: accesses not granted, plus one during some pushes */
	s32 prio;
	u16 flags;
	u16 ndeps;		/* H */
	u8 prop;
	u8 dev;
	u16 owner;		/* A: pushing or waiting thread's slot; written by op_new() alone */
	struct dep deps[INLINE_DEPS];
	union {
		pawl_release_fn release;	/* OP_RELEASE */
		u32 note;			/* OP_NOTE */
	};
	const char *name;	/* OP_NAMED */
	u32 token;		/* A: generation << 2 | TOKEN_*; kept when the op is freed */
	u32 err;		/* OP_ERR: its own error (pawl_fail(), pawl_complete());
				 * OP_INHERITS: that of its vars; one of the two */
	u32 graph;		/* OP_GRAPH: the graph that it launches; OP_NODE: the node */
	u32 ext;		/* H: chunk of deps if ndeps > INLINE_DEPS; class in [31:30] */
};

BUILD_BUG_ON(sizeof(struct op) != 128);
BUILD_BUG_ON(offsetof(struct op, deps) != 32);


/* For traces and messages.  A caller that does not own the op may get an earlier op's name. */
static inline const char *op_name(const struct op *op)
{
	return load_relaxed(&op->flags) & OP_NAMED ? load_relaxed(&op->name) : NULL;
}

enum { TOKEN_NONE = 0, TOKEN_ARMED = 1, TOKEN_DONE = 2, TOKEN_MASK = 3 };

/* What with its index identifies an op in a trace or a recording; never 0 there. */
static inline u32 op_gen(const struct op *op)
{
	return load_relaxed(&op->token) >> 2;
}

/* The push of an op that is traced or recorded.  An asynchronous run advances it once more. */
static inline void op_gen_next(struct op *op)
{
	u32 gen = op_gen(op) + 1;

	if (unlikely(gen >= 0x3ffffffeu))
		gen = 1;
	store_relaxed(&op->token, gen << 2 | TOKEN_NONE);
}

/* op_gen() when the op began. */
static inline u32 op_gen_begun(const struct op *op)
{
	u32 token = load_relaxed(&op->token);

	return (token >> 2) - ((op->flags & OP_ASYNC) && (token & TOKEN_MASK) == TOKEN_DONE);
}

/* A chunk, the accesses of an op with more than INLINE_DEPS: header, deps, then records. */
struct ext {
	u32 op;			/* A: its op; a dump may read it at any time */
	u32 unused[15];
	struct dep deps[];
};

#define EXT_CLASSES	4u

static inline struct op *op_of(const struct pawl_engine *e, u32 idx)
{
	return (struct op *)(void *)(e->ops + (size_t)idx * sizeof(struct op));
}

#ifdef PAWL_MODEL
static inline u32 ext_cap(u32 class)
{
	return 5 + class;	/* ops with 5 vars and with 6 use different classes */
}

/* The chunk of an access, which is numbered across all chunks of the class. */
static inline u32 ext_chunk(u32 class, u32 lin)
{
	return lin / ext_cap(class);
}
#else
static inline u32 ext_log2(u32 class)
{
	return 4 + 4 * class - (class == 3);	/* 16, 256, 4096, 32768 */
}

static inline u32 ext_cap(u32 class)
{
	return 1u << ext_log2(class);
}

static inline u32 ext_chunk(u32 class, u32 lin)
{
	return lin >> ext_log2(class);
}
#endif

static inline struct ext *ext_of(const struct pawl_engine *e, u32 ext)
{
	return pool_obj(e->pool[POOL_EXT0 + (ext >> 30)], ext & 0x3fffffffu);
}

static inline struct dep *op_deps(const struct pawl_engine *e, struct op *op, u32 n, u32 ext)
{
	return likely(n <= INLINE_DEPS) ? op->deps : ext_of(e, ext)->deps;
}

static inline u64 *ext_recs(struct ext *x, u32 class)
{
	return (u64 *)(void *)(x->deps + ext_cap(class));
}

/* Where a push keeps its record of dep j. */
static inline u64 *desc_rec(const struct pawl_engine *e, struct desc *d, u32 n, u32 ext, u32 j)
{
	return n <= INLINE_DEPS ? &d->rec[j] : &ext_recs(ext_of(e, ext), ext >> 30)[j];
}

static inline u32 dep_ref(u32 opi, u32 n, u32 ext, u32 j)
{
	if (likely(n <= INLINE_DEPS))
		return opi << 2 | j;
	return REF_EXT | (ext >> 30) << REF_CLASS_SHIFT |
	       ((ext & 0x3fffffffu) * ext_cap(ext >> 30) + j);
}

static inline struct dep *dep_of(const struct pawl_engine *e, u32 ref, u32 *opi)
{
	u32 class, lin, chunk;
	struct ext *x;

	if (likely(!(ref & REF_EXT))) {
		*opi = ref >> 2;
		return &op_of(e, *opi)->deps[ref & 3];
	}
	class = (ref >> REF_CLASS_SHIFT) & 3;
	lin = ref & ((1u << REF_CLASS_SHIFT) - 1);
	chunk = ext_chunk(class, lin);
	x = pool_obj(e->pool[POOL_EXT0 + class], chunk);
	*opi = load_relaxed(&x->op);
	return &x->deps[lin - chunk * ext_cap(class)];
}

void ext_put(struct thread *t, u32 ext);
int ext_get(struct thread *t, u32 n, u32 opi, u32 *ext);

/* A new op without accesses; other fields are undefined.  Returns NULL if max_ops exist. */
static inline struct op *op_new(struct thread *t, u32 *idx)
{
	struct pawl_engine *e = t->e;
	u32 opi = pool_get_idx(e->pool[POOL_OP], &t->cache[POOL_OP], e->ops, sizeof(struct op));
	struct op *op = op_of(e, opi);

	if (unlikely(!opi))
		return NULL;
	*idx = opi;
	store_helped16(&op->ndeps, 0);
	/* Atomic: a dump may read it, of an earlier op. */
	store_relaxed(&op->owner, (u16)t->slot);
	return op;
}

/* Helpers with a stale view may still read the op's memory; they validate what they read. */
static inline void op_free(struct thread *t, struct op *op, u32 idx)
{
	if (unlikely(op->ndeps > INLINE_DEPS))
		ext_put(t, op->ext);
	pool_put(t->e->pool[POOL_OP], &t->cache[POOL_OP], idx);
}

int op_bad(struct pawl_engine *e, const struct pawl_op *d, const char *who);

/* Property, flags and device in one word: 0 for a normal op of the first CPU. */
static inline u64 op_where(const struct pawl_op *d)
{
	u64 where;

	memcpy(&where, (const char *)d + offsetof(struct pawl_op, prop), sizeof(where));
	return where;
}

BUILD_BUG_ON(offsetof(struct pawl_op, flags) != offsetof(struct pawl_op, prop) + 2);
BUILD_BUG_ON(offsetof(struct pawl_op, device) != offsetof(struct pawl_op, prop) + 4);
BUILD_BUG_ON(sizeof(struct pawl_device) != 4);

BUILD_BUG_ON(offsetof(struct op, release) != offsetof(struct op, deps) + 4 * sizeof(struct dep));
BUILD_BUG_ON(PAWL_ARG_ROOM(4) != sizeof(pawl_release_fn) || INLINE_DEPS != 4);

/* How many of the bytes for accesses and an argument the other members take. */
static inline u64 op_arg_beside(const struct pawl_op *d)
{
	return ((u64)d->nreads + d->nwrites) * sizeof(struct dep) +
	       (d->release || d->flags & PAWL_OP_NOTES ? sizeof(pawl_release_fn) : 0);
}

/* Has the described op room for a copy of its argument behind its accesses? */
static inline bool op_arg_fits(const struct pawl_op *d)
{
	return op_arg_beside(d) + d->arg_size <= PAWL_ARG_ROOM(0) && (d->arg || !d->arg_size);
}

/* op_where() of an op that has nothing but these flags. */
#define WHERE_FLAGS(f) ((u64)(f) << (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 32 : 16))

void op_stamp(struct pawl_engine *e, u32 opi);
bool op_extras_right(struct pawl_engine *e, const struct pawl_op *d);
bool op_strays(const struct pawl_op *d);
int op_stray(const struct pawl_op *d, const char *who, const char *of);

/* Check everything except the vars. */
static inline int op_check(struct pawl_engine *e, const struct pawl_op *d, const char *who)
{
	/* All fields at once: most ops have none of those that need a flag. */
	if (likely(d && d->size == sizeof(*d) && !(d->fn && d->async_fn) &&
		   (!(op_where(d) | d->cq.h | d->tag | (u64)(uintptr_t)d->ticket | d->group.h |
		      d->cost | d->arg_size) || op_extras_right(e, d)) &&
		   (d->reads || !d->nreads) && (d->writes || !d->nwrites)))
		return 0;
	return op_bad(e, d, who);
}

/* Flags that follow from the property and the caller's flags. */
static inline u16 prop_flags(const struct pawl_op *d)
{
	return (d->prop == PAWL_NO_SKIP || d->flags & PAWL_OP_NO_SKIP ? OP_NO_SKIP : 0) |
	       (d->prop == PAWL_ASYNC || d->prop == PAWL_DELETE_VAR ? OP_INLINE : 0);
}

int op_fill_many(struct thread *t, struct op *op, u32 opi, const struct pawl_op *d);
int op_deps_copy(struct thread *t, struct op *op, u32 opi, const struct dep *from, u32 n);
u32 deps_sort(struct dep *deps, u32 n);
int deps_from(struct thread *t, struct dep *out, const struct pawl_op *d, u32 *n,
	      const char *who);
int op_blocks(struct thread *t, struct op *op);
void blocks_put(struct thread *t, const struct dep *deps, u32 n);

/* Get the block that a write will make.  Returns NULL if there is none. */
static inline struct block *dep_block(struct thread *t, struct dep *d)
{
	struct pawl_engine *e = t->e;
	u32 bi = pool_get_idx(e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], e->blocks,
			      sizeof(struct block));
	struct block *b;

	if (unlikely(!bi)) {
		bi = block_reclaim(t);
		if (!bi)
			return NULL;
	}
	b = block_of(e, bi);
	store_helped(&d->block, bi);
	/* Threads with a stale view may read the recycled block: atomic, no order. */
	store_relaxed(&b->state, BLOCK_ONE);
	store_relaxed(&b->err, 0);
	store_relaxed(&b->var, d->var & ~DEP_WRITE);
	return b;
}

/* Order among ready ops: higher first. */
static inline s64 op_rank(const struct op *op)
{
	return op->prop == PAWL_DELETE_VAR ? (s64)1 << 32 : op->prio;
}

static inline struct exec_queue *op_queue(struct pawl_engine *e, const struct op *op)
{
	return e->routes[op->dev * 8u + op->prop];
}

/* Queue a ready op. */
static inline void queue_op(struct thread *t, struct op *op, u32 opi)
{
	exec_push(op_queue(t->e, op), &t->ex, opi, op->prio,
		  op->prop == PAWL_DELETE_VAR ? EXEC_FRONT : 0);
}

/* queue_op() for one of several ops; the caller calls exec_pushed() after the last one. */
static inline void queue_op_more(struct thread *t, struct op *op, u32 opi)
{
	exec_push_more(op_queue(t->e, op), &t->ex, opi, op->prio,
		       op->prop == PAWL_DELETE_VAR ? EXEC_FRONT : 0);
}

#endif
