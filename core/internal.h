/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structures of the core; layer 4, inside core only.
 *
 * Field legend: I set at creation; O only its owner thread (or the one thread that
 * owns the object at that time); A atomic, any thread; S owner writes, others read
 * (relaxed, statistics); H owner writes before publishing, helpers read and validate.
 */
#ifndef CORE_INTERNAL_H
#define CORE_INTERNAL_H

#if !defined(PAWL_LAYER) || (PAWL_LAYER != 4 && !defined(PAWL_TEST_INTERNAL))
#error "core/internal.h is inside core"
#endif

#include <stdlib.h>
#include <string.h>
#include <pawl/engine.h>
#include <pawl/version.h>
#include <base/atomic.h>
#include <base/bug.h>
#include <base/err.h>
#include <base/export.h>
#include <pool/pool.h>
#include <exec/exec.h>
#include <core/state.h>

/*
 * Vars lie in groups of four: four lines with one word each, then one line with the
 * four versions, so that a completion, which counts the version, does not touch the
 * line on which pushes compete.  80 bytes a var.
 */
struct var {
	struct pair word;	/* A */
	u32 gen;		/* A: odd while alive; the handle carries it */
	u32 unused[11];
};

struct var_side {
	u64 version;		/* completer of a write (they are ordered); others read */
	u32 rec;		/* A: what devices have still to do, or 0: pending.c */
	u32 unused;
};

#define VAR_GROUP	4u
#define VAR_SIZE	80u

BUILD_BUG_ON(sizeof(struct var) != 64);
BUILD_BUG_ON(sizeof(struct var) + sizeof(struct var_side) != VAR_SIZE);
BUILD_BUG_ON(VAR_GROUP * sizeof(struct var_side) != sizeof(struct var));

/* One version of a var: the write that makes it and the reads that see it. */
struct block {
	u64 state;		/* A: state.h */
	u32 succ;		/* next writer's ref; written by it before CLOSED */
	u32 err;		/* error that the write inherited, then its own (ERR) */
	u32 var;		/* A: whose version it is; 0: nobody's */
	u32 unused[3];
};

BUILD_BUG_ON(sizeof(struct block) != 32);

#define DEP_WRITE	0x80000000u

/* One access of an op. */
struct dep {
	u32 var;		/* H: index | DEP_WRITE */
	u32 block;		/* H: write: its new block; read: the one it joined, or
				 * RM_BASE + the rm that counts it */
	u32 link;		/* next waiting reader; in a batch's link list: readers that join */
	u32 gen;		/* H: generation of the var */
};

/*
 * The owner's writes to fields that a helper of an earlier push may still read (H, and a dep's
 * link): who reads the new value finds that the earlier push is over.
 */
static inline void help_set(u32 *field, u32 v)
{
	store_release(field, v);	/* CORE-L9 <-> CORE-L10 */
}

static inline void help_set16(u16 *field, u32 v)
{
	store_release(field, (u16)v);	/* CORE-L9 <-> CORE-L10 */
}

static inline void dep_set(struct dep *d, u32 var, u32 block, u32 link, u32 gen)
{
	help_set(&d->var, var);
	help_set(&d->block, block);
	help_set(&d->link, link);
	help_set(&d->gen, gen);
}

static inline void dep_copy(struct dep *to, const struct dep *from)
{
	dep_set(to, from->var, from->block, from->link, from->gen);
}

enum {
	OP_ASYNC = 1 << 0,
	OP_NO_SKIP = 1 << 1,
	OP_DELETE = 1 << 2,	/* ends its var */
	OP_WAITER = 1 << 3,	/* a waiting thread, not a body */
	OP_BATCH = 1 << 4,	/* link list of a batch; never runs */
	OP_STALE = 1 << 5,	/* lost a var during its push: does not run */
	OP_NO_COUNT = 1 << 6,	/* its write is not a version (wait writable) */
	OP_INLINE = 1 << 7,	/* its property says where it runs: dispatch() looks closer */
	OP_NAMED = 1 << 8,	/* these fields of it are set */
	OP_RELEASE = 1 << 9,
	OP_OPER = 1 << 10,
	OP_ERR = 1 << 11,
	OP_NOTE = 1 << 12,	/* cq.c: release is in its note */
};


/* Flags for which ending an op is more than usual. */
#define OP_ODD_END	(OP_DELETE | OP_STALE | OP_NO_COUNT)

/*
 * The first line is all that most ops with one var or two need; of the second, what the
 * flags do not name holds what an earlier op left there.
 */
struct op {
	union {
		pawl_fn fn;
		pawl_async_fn async_fn;
	};
	void *arg;
	u32 wait;		/* A: accesses not granted, plus one while the push goes on */
	s32 prio;
	u16 flags;
	u16 ndeps;		/* H */
	u8 prop;
	u8 dev;
	u16 owner;		/* pushing or waiting thread's slot */
	struct dep deps[INLINE_DEPS];
	union {
		pawl_release_fn release;	/* OP_RELEASE */
		u32 note;			/* OP_NOTE */
	};
	const char *name;	/* OP_NAMED */
	u32 token;		/* A: generation << 2 | TOKEN_*; survives reuse */
	u32 err;		/* OP_ERR: error of its own (message kept by pawl_fail) */
	u32 oper;		/* OP_OPER: operator it is a run of */
	u32 ext;		/* H: chunk of deps if ndeps > INLINE_DEPS; class in [31:30] */
};

BUILD_BUG_ON(sizeof(struct op) != 128);
BUILD_BUG_ON(offsetof(struct op, deps) != 32);

static inline void op_err_set(struct op *op, u32 error)
{
	op->err = error;
	help_set16(&op->flags, op->flags | OP_ERR);
}

/* For traces and messages; whoever looks from outside may find an earlier op's. */
static inline const char *op_name(const struct op *op)
{
	return load_relaxed(&op->flags) & OP_NAMED ? load_relaxed(&op->name) : NULL;
}

enum { TOKEN_NONE = 0, TOKEN_ARMED = 1, TOKEN_DONE = 2, TOKEN_MASK = 3 };

/* Accesses of an op with more than INLINE_DEPS: header, deps, then records. */
struct ext {
	u32 op;			/* A: who owns it; a dump may look at any time */
	u32 unused[15];
	struct dep deps[];
};

#define EXT_CLASSES	4u

#ifdef PAWL_MODEL
#define FIRST_ERRS	2u	/* two ops fill it */
#else
#define FIRST_ERRS	16u
#endif

struct error {
	u64 seq;		/* I: order of failing */
	u32 refs;		/* A */
	u32 gone;		/* A: given out or cleared */
	u32 epoch;		/* I: of the engine's wait-alls */
	s32 code;		/* I */
	char op[48];
	char text[160];
	void *payload;		/* A: the program's, until it is handed over or dropped */
};

BUILD_BUG_ON(sizeof(struct error) % 16);

/* A reusable operator. */
struct oper {
	u32 refs;		/* A: runs in flight, plus one until deleted */
	u32 gen;		/* A: odd while alive */
	pawl_fn fn;
	pawl_async_fn async_fn;
	void *arg;
	pawl_release_fn release;
	const char *name;
	struct dep *deps;	/* I: template, sorted; malloc */
	u32 ndeps;
	u16 flags;
	u8 prop;
	u8 dev;
	u64 unused[2];
};

/* What a thread pushes with more than one var: others read it to help. */
struct desc {
	u64 status;		/* A: push number << 2 | phase */
	u32 op;			/* H */
	u32 unused;
	u64 rec[INLINE_DEPS];	/* A: rec_empty() or rec_value() */
};

/* A var in read-mostly mode: readmostly.c. */
struct rm {
	u64 state;		/* A: epoch and phase */
	u32 block;		/* A: the version that is read; written by who takes the rm */
	u32 unused;
};

/* What a thread has to do with an rm: its part of two sums, modulo 2^32. */
struct rm_row {
	u32 in;			/* S: reads that its pushes began */
	u32 out;		/* S release: reads that it completed, or took back */
};

/* A body on the stack of this thread. */
struct frame {
	struct pawl_run run;	/* first: pawl_fail() gets from it to the frame */
	struct frame *up;
	struct thread *t;
	u32 op;
};

/* What an op has that names a completion queue, a deadline or a ticket. */
struct op_note {
	u64 tag;
	u64 deadline;		/* CLOCK_MONOTONIC, ns; NOTE_NEVER */
	pawl_release_fn release;
	u64 waiter;		/* A: generation << 32 | slot + 1 of a thread that waits; or 0 */
	u32 state;		/* A: generation << 3 | NOTE_* */
	u32 cq;			/* its queue, or 0 */
	u32 next;		/* A: in a queue */
	s32 status;
};

enum { NOTE_QUEUED = 1, NOTE_RUNNING = 2, NOTE_PHASE = 3, NOTE_CANCELED = 4 };
#define NOTE_GEN_SHIFT	3
#define NOTE_GEN_MASK	((1u << 29) - 1)
#define NOTE_NEVER	UINT64_MAX

#define CQ_MAX		1024u

/* A completion queue. */
struct cq {
	u32 head __cacheline_aligned;	/* A: the newest note that was posted, or 0 */
	u32 signalled;		/* A: the eventfd was written, and not cleared since */
	u32 fd;			/* A: the eventfd + 1, or 0; kept until the engine goes */
	u32 waiter;		/* A: slot + 1 of a thread that waits, or 0 */

	u32 gen __cacheline_aligned;	/* A: odd while it exists */
	u32 named;		/* A: ops that name it, whose completions were not reaped */
	u32 reaping;		/* A: a thread reaps */
	u32 ready;		/* A, written by the reaper: taken from the stack, oldest first */
};

enum {
	POOL_OP, POOL_BLOCK, POOL_VAR, POOL_ERROR, POOL_OPER, POOL_DEVREC, POOL_NOTE, POOL_CQ,
	POOL_EXT0, POOL_EXT1, POOL_EXT2, POOL_EXT3, POOLS
};

struct trace_buf;

/* A place of a wait that timed out. */
struct given_up {
	u32 op, token, var, gen, block;
};

/* A thread's part in an engine. */
struct thread {
	struct desc d __cacheline_aligned;

	struct exec_thread ex __cacheline_aligned;

	struct pawl_engine *e __cacheline_aligned;	/* I */
	u32 slot;		/* I */
	u32 depth;		/* O: bodies on the stack */
	u32 lacks;		/* O: the pool that was empty */
	bool deep;		/* O: counted in the engine's deep */
	u64 seq;		/* O: push number, grows over all users of the slot */
	u32 var_limit;		/* O: var indexes below are carved */
	u32 waits_device;	/* A: the thread waits for all devices */
	u64 next_check;		/* O: pushed count up to which the window is not looked at */
	struct frame *frame;	/* O */
	struct trace_buf *trace;	/* A */
	struct batch_scratch *scratch;	/* O */
	struct given_up *given_up;	/* O */
	u32 ngiven_up, given_up_cap;	/* O */

	/* Written by the owner at every op, read by waits for all. */
	u64 pushed __cacheline_aligned;	/* S release; of the slot's user: thread_leave() */
	u64 completed;		/* S release */
	u64 failed, skipped, inlined, records, helps;	/* S */
	u32 naive_pending;	/* A: naive: ops pushed by this thread and not over */
	u32 running;		/* S: op whose body is innermost on its stack, for dumps */
	u64 waits_flight;	/* A: 1 + most ops in flight that the thread waits for, or 0 */

	struct pool_cache cache[POOLS] __cacheline_aligned;
};

enum {
	SPECIAL_POISONED = 1,	/* an error was ever made: look for inherited ones */
	SPECIAL_TRACING = 2,
	SPECIAL_NAIVE = 4,
	SPECIAL_DEVICES = 8,	/* the engine has devices: what is pending there must be over */
	SPECIAL_RECORDING = 16,
};

/* What threads that left did: counters of struct thread. */
struct gone {
	u64 pushed, completed, failed, skipped, inlined, records, helps;	/* A */
};

struct pawl_engine {
	/* Read by every call. */
	u64 id;			/* I: never repeats in a process */
	u32 gen_first;		/* I: even; handles' generations begin behind it: gen_next() */
	char *ops, *blocks, *vars;	/* I: where these pools begin */
	char *threads;		/* I: array of struct thread */
	struct rm_row *rm_rows;	/* I: [slot * RM_MAX + rm] */
	struct rm *rms;		/* I: [RM_MAX] */
	struct pool *pool[POOLS];	/* I */
	struct exec *x;		/* I */
	u32 fork_gen;		/* I */
	u32 kind;		/* I */
	u32 window, policy;	/* I */
	u32 fewest;		/* I: workers of the queue that has the fewest */
	u32 warm;		/* I: ops in flight beyond which a push helps, if it may */
	u32 stopped;		/* A */
	bool unserved;		/* I: some queue has no workers */
	bool help;		/* I */
	u32 special;		/* A: SPECIAL_*: what ordinary ops need not look for */
	u32 gate;		/* A: completions that pushers at the window still need, or 0 */
	u32 max_threads;	/* I */
	u32 ndev;		/* I */
	u32 rm_reads;		/* I: RM_READS; less in tests */
	struct exec_queue **routes;	/* I: [dev * 8 + prop] */
	struct devices *devices;	/* I: NULL if there are only CPUs */
	/* A: error.c: epoch of waits for all; errors of it that were made, and given out */
	u64 err_state __cacheline_aligned;
	u32 first_err[FIRST_ERRS];	/* A: the first errors since then that are not given out */
	u64 err_seq;		/* A: errors so far */
	u32 spare_error;	/* I: for when no error object is left */
	u32 used_slots __cacheline_aligned;	/* A: slots below were used */
	u32 deep;		/* A: threads that wait in bodies HELP_DEPTH deep */
	u32 nflight;		/* A: threads that wait for ops in flight to become few, or none */
	u32 changing;		/* A, futex: a thread starts or joins workers */
	u64 free_slots;		/* A: stack of left slots, tagged */
	u64 tracing;		/* A: events per thread, or 0 */
	struct pawl_config cfg;	/* I */
	struct arena *arena;	/* I */
	u64 trace_base;		/* A: ns */
	u64 trace_order;	/* A: pushes traced */
	struct trace_buf *trace_bufs;	/* A */
	struct slot_entry *slots;	/* I: one per slot */
	u64 *live;		/* A: a bit per slot: a thread has it */
	struct gone gone;	/* A */
	struct rec_engine *record;	/* A: its part in the recording, or NULL */
	struct pawl_engine *next;	/* record.c: of the process */
};

static inline struct thread *thread_of(const struct pawl_engine *e, u32 slot)
{
	return (struct thread *)(e->threads + (size_t)slot * sizeof(struct thread));
}

static inline struct op *op_of(const struct pawl_engine *e, u32 idx)
{
	return (struct op *)(void *)(e->ops + (size_t)idx * sizeof(struct op));
}

static inline struct block *block_of(const struct pawl_engine *e, u32 idx)
{
	return (struct block *)(void *)(e->blocks + (size_t)idx * sizeof(struct block));
}

static inline struct var *var_of(const struct pawl_engine *e, u32 idx)
{
	/* idx / 4 lines of sides come before it */
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

static inline struct error *error_of(const struct pawl_engine *e, u32 idx)
{
	return pool_obj(e->pool[POOL_ERROR], idx);
}

static inline u32 ext_cap(u32 class)
{
#ifdef PAWL_MODEL
	return 5 + class;	/* ops with 5 vars and with 6 use different classes */
#else
	return 16u << (4 * class - (class == 3));	/* 16, 256, 4096, 32768 */
#endif
}

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

/* A push's record of dep j. */
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
	u32 class, lin, cap;
	struct ext *x;

	if (likely(!(ref & REF_EXT))) {
		*opi = ref >> 2;
		return &op_of(e, *opi)->deps[ref & 3];
	}
	class = (ref >> REF_CLASS_SHIFT) & 3;
	lin = ref & ((1u << REF_CLASS_SHIFT) - 1);
	cap = ext_cap(class);
	x = pool_obj(e->pool[POOL_EXT0 + class], lin / cap);
	*opi = load_relaxed(&x->op);
	return &x->deps[lin % cap];
}

/* The first slot from `slot` on that a thread has; max_threads: none. */
static inline u32 live_next(const struct pawl_engine *e, u32 slot)
{
	u32 i = slot / 64, words = (e->max_threads + 63) / 64;
	u64 b;

	for (; i < words; i++, slot = i * 64) {
		/* CORE-N10 <-> CORE-N9: who is not there any more has added what he counted. */
		b = load_acquire(&e->live[i]) >> (slot % 64);
		if (b)
			return slot + (u32)__builtin_ctzll(b);
	}
	return e->max_threads;
}

/* For all threads that are in the engine.  Progress: wait-free. */
#define for_each_live(e, t, i)							\
	for ((i) = live_next(e, 0);						\
	     (i) < (e)->max_threads && ((t) = thread_of(e, i));			\
	     (i) = live_next(e, (i) + 1))

/* A counter of the owner that others only read. */
static inline void count(u64 *c)
{
	store_relaxed(c, load_relaxed(c) + 1);
}

/* Zeroed, on lines of its own; NULL: no memory. */
static inline void *zalloc_lines(size_t size)
{
	void *p = aligned_alloc(CACHELINE, (size + CACHELINE - 1) / CACHELINE * CACHELINE);

	return p ? memset(p, 0, size) : NULL;
}

/* thread.c */
extern u32 pawl_fork_gen;
struct thread *thread_enter(struct pawl_engine *e);	/* NULL: err() is set */
void thread_leave(struct thread *t);
int threads_init(struct pawl_engine *e);
int fork_check(void);
void threads_fini(struct pawl_engine *e);
void threads_forget(struct pawl_engine *e);
struct thread_tls {
	u64 id;			/* of the engine that this thread called last; 0: none */
	struct thread *t;	/* its part there */
	int code;		/* why thread_get() gave NULL */
};

extern __thread struct thread_tls thread_last;

/* The calling thread's part in e; NULL: see thread_last.code. */
static inline struct thread *thread_get(struct pawl_engine *e)
{
	if (likely(thread_last.id == e->id))
		return thread_last.t;
	return thread_enter(e);
}

/* op.c */
int var_check_slow(struct thread *t, pawl_var_t h);

/*
 * Generations of handles: odd while the var (or operator) is alive.  Each engine counts from a
 * number of its own, so that another engine's handle is refused, and a place is not used
 * again when it has come round to that number: no handle is ever good for two vars.  0 is
 * left out, because it says that the place was never used.
 */
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

/* 0, or -ESTALE.  CORE-V2 <-> CORE-V3. */
static inline int var_check(struct thread *t, pawl_var_t h)
{
	u32 i = var_index(h), gen = (u32)(h.h >> 32);
	struct var *v;

	/* An index that is not carved has no memory; the limit only grows. */
	if (unlikely(i >= t->var_limit))
		return var_check_slow(t, h);
	v = var_of(t->e, i);
	/* Its delete op may be pushed and not over. */
	return likely((gen & 1) && load_acquire(&v->gen) == gen &&
		      !(load_relaxed(&v->word.val) & WORD_DELETED)) ? 0 : -ESTALE;
}


/* NULL: max_ops exist.  Without accesses; the rest is as an earlier op left it. */
static inline struct op *op_new(struct thread *t, u32 *idx)
{
	struct pawl_engine *e = t->e;
	u32 opi = pool_get_idx(e->pool[POOL_OP], &t->cache[POOL_OP], e->ops, sizeof(struct op));
	struct op *op = op_of(e, opi);

	if (unlikely(!opi))
		return NULL;
	*idx = opi;
	help_set16(&op->ndeps, 0);
	op->owner = (u16)t->slot;
	return op;
}

void ext_put(struct thread *t, u32 ext);

/* The op's memory may be looked at by helpers with a stale view: they validate. */
static inline void op_free(struct thread *t, struct op *op, u32 idx)
{
	if (unlikely(op->ndeps > INLINE_DEPS))
		ext_put(t, op->ext);
	pool_put(t->e->pool[POOL_OP], &t->cache[POOL_OP], idx);
}

int op_bad(struct pawl_engine *e, const struct pawl_op *d, const char *who);

/* Property, flags and device in one: 0 for a normal op of the first CPU. */
static inline u64 op_where(const struct pawl_op *d)
{
	u64 where;

	memcpy(&where, (const char *)d + offsetof(struct pawl_op, prop), sizeof(where));
	return where;
}

BUILD_BUG_ON(offsetof(struct pawl_op, flags) != offsetof(struct pawl_op, prop) + 2);
BUILD_BUG_ON(offsetof(struct pawl_op, device) != offsetof(struct pawl_op, prop) + 4);
BUILD_BUG_ON(sizeof(struct pawl_device) != 4);

/* Everything but the vars. */
static inline int op_check(struct pawl_engine *e, const struct pawl_op *d, const char *who)
{
	if (likely(d && d->size == sizeof(*d) && !(d->fn && d->async_fn) &&
		   (!op_where(d) || (d->prop <= PAWL_NO_SKIP && !d->flags &&
				     d->device.kind == PAWL_CPU && d->device.id < e->ndev)) &&
		   (d->reads || !d->nreads) && (d->writes || !d->nwrites)))
		return 0;
	return op_bad(e, d, who);
}

int op_fill_many(struct thread *t, struct op *op, u32 opi, const struct pawl_op *d);
int op_deps_copy(struct thread *t, struct op *op, u32 opi, const struct dep *from, u32 n);
u32 deps_sort(struct dep *deps, u32 n);
int deps_from(struct thread *t, struct dep *out, const struct pawl_op *d, u32 *n,
	      const char *who);
int op_blocks(struct thread *t, struct op *op);
void blocks_put(struct thread *t, const struct dep *deps, u32 n);

/* The block that a write will make; NULL: out of blocks. */
static inline struct block *dep_block(struct thread *t, struct dep *d)
{
	struct pawl_engine *e = t->e;
	u32 bi = pool_get_idx(e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], e->blocks,
			      sizeof(struct block));
	struct block *b = block_of(e, bi);

	if (unlikely(!bi))
		return NULL;
	help_set(&d->block, bi);
	/* Stale readers of the recycled block may look: atomic, no order. */
	store_relaxed(&b->state, BLOCK_ONE);
	store_relaxed(&b->err, 0);
	store_relaxed(&b->var, d->var & ~DEP_WRITE);
	return b;
}

int ext_get(struct thread *t, u32 n, u32 opi, u32 *ext);

/* Among ops that are ready. */
static inline s64 op_rank(const struct op *op)
{
	return op->prop == PAWL_DELETE_VAR ? (s64)1 << 32 : op->prio;
}

static inline struct exec_queue *op_queue(struct pawl_engine *e, const struct op *op)
{
	return e->routes[op->dev * 8u + op->prop];
}

/* A ready op that has a body, to its queue. */
static inline void queue_op(struct thread *t, struct op *op, u32 opi)
{
	exec_push(op_queue(t->e, op), &t->ex, opi, op->prio,
		  op->prop == PAWL_DELETE_VAR ? EXEC_FRONT : 0);
}

/* link.c: take the places */
int link_simple_slow(struct thread *t, struct op *op, u64 tag, u64 *found);
u64 link_op(struct thread *t, struct op *op, u32 opi, u64 *found);
void link_help(struct thread *t, u64 tag);
u64 *desc_cell(struct pawl_engine *e, const struct desc *d, u64 st, u32 vi);
struct pair word_snapshot(struct var *v);

/* readmostly.c: vars that many threads read and nobody writes */
struct rm_push {
	u64 tag;		/* of the push */
	u64 *cell;		/* its record of this access; NULL: it has one var */
	const u64 *status;	/* of its descriptor */
};

u64 rm_read(struct thread *t, struct var *v, u32 gen, u32 n, const struct rm_push *p);
void rm_begin(struct thread *t, struct var *v, u32 vi, struct pair w);
u64 rm_end(struct thread *t, struct var *v, u32 vi, struct pair w);
u32 rm_leave(struct thread *t, u32 i, u32 n);
u32 rm_reading(const struct pawl_engine *e, u32 i);

static inline struct rm_row *rm_row(const struct pawl_engine *e, u32 slot, u32 i)
{
	return &e->rm_rows[(size_t)slot * RM_MAX + i];
}

/* The version that a dep reads or makes; its op holds it. */
static inline u32 dep_version(const struct pawl_engine *e, u32 block)
{
	return likely(block < RM_BASE) ? block : load_relaxed(&e->rms[block - RM_BASE].block);
}

/*
 * Is it worth it to read this version without a word about it?  Then many have read it, the
 * last one was another thread, and nothing is to be done for its push.
 */
static inline bool rm_wanted(const struct thread *t, const struct pair *w)
{
	return (w->tag & TAG_KNOWN) && !(w->val & (WORD_LASTW | WORD_DELETED)) &&
	       tag_slot(w->tag) != t->slot &&
	       word_joined(w->val) >= t->e->rm_reads +
	       t->e->rm_reads * load_relaxed(&t->e->used_slots) / RM_READS;
}

static inline void block_free(struct thread *t, u32 bi)
{
	store_relaxed(&block_of(t->e, bi)->var, 0);
	pool_put(t->e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], bi);
}

/* attach.c: find out what is granted */
u32 attach_slow(struct thread *t, struct dep *d, u32 ref, u32 obi, u32 joined);
u64 attach_found(struct thread *t, struct op *op, struct dep *d, u32 j, u64 tag);
#define FOUND_DEAD (~0ull)

/*
 * Attach one access.  obi: the block it reads, or that stands before the one it makes;
 * joined: how many readers joined that.  1: granted now; 0: somebody will grant it.
 */
static inline u32 attach_block(struct thread *t, struct dep *d, u32 ref, u32 obi, u32 joined)
{
	struct pawl_engine *e = t->e;
	struct block *ob = block_of(e, obi);
	u64 s = load_acquire(&ob->state);	/* CORE-A3 <-> CORE-R1, CORE-R2 */

	if (BUSTED(GRANT_EARLY))
		joined = 0;
	if (!(d->var & DEP_WRITE)) {
		help_set(&d->block, obi);
		if (likely(s & BLOCK_DONE))
			return 1;
	} else if (likely((s & (BLOCK_DONE | BLOCK_ERR)) == BLOCK_DONE &&
			  ((block_count(s) + joined) & JOIN_MASK) == 0)) {
		/* Over and done with, and nobody else will look at it. */
		pool_put(e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], obi);
		return 1;
	}
	return attach_slow(t, d, ref, obi, joined);
}

/* With the word as it was before our own link. */
static inline u32 attach_own(struct thread *t, struct dep *d, u32 ref, u64 was)
{
	/* A reader of a version that is known to be there leaves the block's line alone. */
	if (!(d->var & DEP_WRITE) && (was & FOUND_KNOWN)) {
		help_set(&d->block, word_cur(was));
		return 1;
	}
	return attach_block(t, d, ref, word_cur(was), was & WORD_LASTW ? 0 : word_joined(was));
}

/* With the word as it was with our tag on it. */
static inline u32 attach_word(struct thread *t, struct dep *d, u32 ref, u64 val)
{
	if (d->var & DEP_WRITE)
		return attach_block(t, d, ref, word_prev(val), word_joined(val));
	if (unlikely(word_cur(val) >= RM_BASE)) {
		help_set(&d->block, word_cur(val));
		return 1;
	}
	return attach_block(t, d, ref, word_cur(val), 0);
}

/* admit.c */
#define HELP_DEPTH 64u		/* nested bodies after which a waiting body only waits */
int admit_slow(struct thread *t, u32 n);
void admit_undo(struct thread *t, u32 n);
int admit_again(struct thread *t, bool *tried, bool wait);
int lack(struct thread *t, u32 pool, const char *what);
void gate_pass(struct thread *t);

/*
 * The places of n ops in the window.  0: they are counted as pushed, and admit_undo() gives
 * them back.
 */
static inline int admit(struct thread *t, u32 n)
{
	u64 pushed = t->pushed + n;

	if (unlikely(pushed > t->next_check))
		return admit_slow(t, n);
	/* CORE-N1 <-> CORE-N4: before the op can complete; see ops_in_flight(). */
	store_release(&t->pushed, pushed);
	return 0;
}

/* push.c; the hot ones are inline in there */
int push_op(struct thread *t, struct op *op, u32 opi);
void push_undo(struct thread *t, struct op *op);
void dispatch(struct thread *t, struct op *op, u32 opi);
int op_fill(struct thread *t, struct op *op, u32 opi, const struct pawl_op *d, u32 flags);
int var_delete(struct thread *t, pawl_var_t v, struct pawl_device dev, pawl_fn fn, void *arg);

/* What an op is by its property and flags. */
static inline u16 prop_flags(const struct pawl_op *d)
{
	return (d->prop == PAWL_NO_SKIP || d->flags & PAWL_OP_NO_SKIP ? OP_NO_SKIP : 0) |
	       (d->prop == PAWL_ASYNC || d->prop == PAWL_DELETE_VAR ? OP_INLINE : 0);
}

/* retire.c */
/*
 * Around a completion by a thread that will not go on with what it makes ready: all of
 * it is queued, in order.
 */
static inline u32 alone_begin(struct thread *t)
{
	u32 budget = t->ex.budget;

	t->ex.budget = 0;
	return budget;
}

static inline void alone_end(struct thread *t, u32 budget)
{
	t->ex.budget = budget;
}

void run_work(void *user, struct exec_thread *ex, u32 work);
void op_warm(void *user, u32 work);
u32 finish_op(struct thread *t, struct op *op, u32 opi, int status);
bool grant(struct op *op);
void hold_put(struct thread *t, u32 bi);

/*
 * The files of core/devices.h.  An op's dev is the number of a CPU device, or DEV_FIRST + the row of what
 * op.device names.
 */
#define DEV_FIRST	64u
#define DEV_ROWS	(DEV_FIRST + 80u)
#define DEVICE_PARKED	1
#define DEVICE_QUEUED	2		/* issue.c: the same, in its queue */
int devices_check(const struct pawl_config *c);
int devices_create(struct pawl_engine *e, const struct pawl_device *list);
int devices_start(struct pawl_engine *e);
void devices_stop(struct pawl_engine *e);
void devices_free(struct pawl_engine *e);
u32 device_row(struct pawl_engine *e, struct pawl_device name);
int device_begin(struct thread *t, struct op *op, u32 opi, struct pawl_run *run);
void device_end(struct thread *t, struct op *op, struct pawl_run *run);
void device_async_end(struct thread *t, struct op *op);
int device_order(struct thread *t, struct op *op, u32 opi);
void device_var_end(struct thread *t, struct var_side *side);
bool device_busy(struct pawl_engine *e, u32 vi, bool write);
bool device_wait_parks(struct thread *t, struct op *op, u32 opi);
int device_wait_error(struct thread *t, struct op *op, struct pawl_error *out);
int device_lost_any(struct pawl_engine *e, struct pawl_error *out);
int device_wait_all(struct thread *t, s64 timeout_ns, enum exec_help help);
u32 device_rec_size(void);
struct pawl_device device_name(const struct pawl_engine *e, u32 dev);
struct device;
struct device *device_of_run(struct pawl_run *run);

static inline u32 op_device(struct pawl_engine *e, struct pawl_device name)
{
	return likely(name.kind == PAWL_CPU) ? name.id : device_row(e, name);
}

/* wait.c */
int wait_body(struct thread *t, bool (*cond)(void *arg), void *arg, s64 timeout_ns);
void waiter_granted(struct thread *t, struct op *op, u32 opi);
void run_alone(struct thread *t, struct op *op, u32 opi);
u32 retire(struct thread *t, struct op *op, u32 error);
int var_bad(const char *who, const char *list, u32 i, pawl_var_t v);
u64 ops_in_flight(struct pawl_engine *e);
u64 ops_pushed(struct pawl_engine *e);
void wait_flight_begin(struct thread *t, u64 limit);
void wait_flight_end(struct thread *t);
void flight_check(struct thread *t);
void wait_exit(struct thread *t);
int wait_none(struct thread *t, s64 timeout_ns, enum exec_help help);
int wait_naive(struct thread *t);
void engine_idle(void *user, struct exec_thread *ex);

/* error.c */
u32 error_make(struct thread *t, int code, const char *op, const char *text);
void error_payload(struct pawl_engine *e, u32 idx, void *payload);
void payload_drop(struct pawl_engine *e, void *payload);
void errors_exit(struct pawl_engine *e);
void error_publish(struct thread *t, u32 idx, int code);
void error_drop(struct pawl_engine *e, u32 idx);
int error_take(struct thread *t, u32 idx, struct pawl_error *out);
u32 op_inherited(struct pawl_engine *e, struct op *op);
int error_take_all(struct thread *t, struct pawl_error *out);
void error_get(struct pawl_engine *e, u32 idx);
void error_put(struct thread *t, u32 idx);
bool error_alive(struct pawl_engine *e, u32 idx);
void error_fill(struct pawl_engine *e, u32 idx, struct pawl_error *out);

static inline void error_none(struct pawl_error *out)
{
	if (out) {
		out->code = 0;
		out->payload = NULL;
	}
}

/* cq.c */
int note_fill(struct thread *t, struct op *op, u32 opi, const struct pawl_op *d);
void note_undo(struct thread *t, struct op *op);
pawl_release_fn note_release(struct pawl_engine *e, const struct op *op);
int note_begin(struct thread *t, struct op *op);
void note_end(struct thread *t, u32 idx, int status);
void cqs_exit(struct pawl_engine *e);

/* oper.c */
void oper_put(struct thread *t, u32 idx);
bool oper_hold(struct pawl_engine *e, pawl_oper_t h, u32 *idx, pawl_fn *fn, void **arg);
void opers_exit(struct thread *t);

/* batch.c */
void batch_exit(struct thread *t);

/* trace.c */
enum trace_kind { TRACE_PUSH, TRACE_BEGIN, TRACE_END, TRACE_DEP };
#ifdef CONFIG_TRACE
void trace_event(struct thread *t, enum trace_kind k, u32 opi, const char *name, u64 id);
void trace_exit(struct pawl_engine *e);
#else
static inline void trace_event(struct thread *t, enum trace_kind k, u32 opi,
			       const char *name, u64 id)
{
}
static inline void trace_exit(struct pawl_engine *e)
{
}
#endif

/* record.c; the model's builds have no files */
#if defined(CONFIG_RECORD) && !defined(PAWL_MODEL)
int record_engine(struct pawl_engine *e);
void record_engine_end(struct pawl_engine *e);
void record_push(struct thread *t, struct op *op, u32 opi, bool more);
void record_undo(struct thread *t, struct op *op, u32 opi);
void record_begin(struct thread *t, struct op *op, u32 opi);
void record_end(struct thread *t, struct op *op, u32 opi, int status);
void record_wait(struct thread *t, u32 what, pawl_var_t v);
void record_waited(struct thread *t, int status);
#else
static inline int record_engine(struct pawl_engine *e)
{
	return 0;
}
static inline void record_engine_end(struct pawl_engine *e)
{
}
static inline void record_push(struct thread *t, struct op *op, u32 opi, bool more)
{
}
static inline void record_undo(struct thread *t, struct op *op, u32 opi)
{
}
static inline void record_begin(struct thread *t, struct op *op, u32 opi)
{
}
static inline void record_end(struct thread *t, struct op *op, u32 opi, int status)
{
}
static inline void record_wait(struct thread *t, u32 what, pawl_var_t v)
{
}
static inline void record_waited(struct thread *t, int status)
{
}
#endif

#endif
