// SPDX-License-Identifier: Apache-2.0
/*
 * Trace: the last events of every thread, written as Chrome trace JSON.
 *
 * Structures: one ring per thread, which its owner writes with plain stores.  An event names its
 * op by index and generation (op_gen()), and a body of a launch by those of the launch and its
 * number in the graph, so the events of one op are found whatever else was overwritten.  An op of
 * which an event is missing is not shown.  The end of a body is part of the record of its begin,
 * if its thread had no other event in between: one cache line less per op.
 *
 * Dependency arrows: a begin has the accesses of its op, and for each how many writes of the var
 * were complete, which is its exact place among the accesses of the var.  The end of a body of a
 * launch has the bodies that wait for it.  pawl_trace_write() computes the arrows from these, so
 * nothing is computed while ops run, and no arrow is false because events were overwritten: the
 * write that a read follows is in the rings or the arrow is missing, which is counted.
 *
 * What the viewer gets: a body is a slice of its thread.  An asynchronous op and a launch may
 * overlap with anything, so they are async events; of the former the call of its function is a
 * slice.  An arrow begins and ends at a slice: at the first body of a launch, or the last one.
 *
 * Ordering and lifetime: `tracing` says which threads own the rings.  While it is a size, each
 * thread owns its ring; start and write set it to TRACE_WRITING and then own all of them.  A
 * thread may be inside an event at that moment.  Therefore an event is an RCU read section,
 * and start and write wait for a grace period: earlier events are then complete and visible,
 * and later sections see that tracing is off.  Start frees the rings of the last trace.
 *   CORE-X1 (tracing has a size, release) <-> CORE-X2 (event): a thread has no old ring
 *   CORE-X3 (end of start or write, release) <-> CORE-X4 (start, write): their changes of the
 *   rings
 *   CORE-X5 (flag, acq_rel) <-> CORE-X5: of a start and a stop at once the later one sees what
 *   the other one did to `tracing`
 *
 * Progress: an event is wait-free, except for a thread's first, which allocates.  Start and
 * write are blocking (grace period, allocation, file).  Stop is lock-free.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <base/name.h>
#include <core/op.h>
#include <core/trace.h>

#define TRACE_DEPS	3u	/* accesses in one record */
#define TRACE_SUCC	10u
#define TRACE_WRITING	(~0ull)	/* engine.tracing: the last trace is being written */
/*
 * A viewer identifies a track by process and thread, and takes a thread whose number is that of
 * its process for the main thread, and 0 for the idle one.  The kernel's numbers end at 2^22, so
 * these are no other thread's.
 */
#define TRACE_TID	5000000u

enum { TRACE_ASYNC = 1, TRACE_LAUNCH = 2 };

struct trace_dep {
	u32 var;		/* index | DEP_WRITE */
	u32 gen;		/* 0: the access has no place */
	u32 version;		/* completed writes of the var */
};

struct trace_rec {
	u64 time;		/* cycles() */
	u32 op, gen;
	u32 node;		/* 1 + its number in the launch, or 0 */
	u8 kind;		/* enum trace_kind */
	u8 flags;		/* TRACE_ASYNC, TRACE_LAUNCH */
	u16 n;			/* accesses, or successors, which continue in the next records */
	union {
		const char *name;	/* push */
		struct {		/* begin */
			struct trace_dep deps[TRACE_DEPS];
			u32 took;	/* 1 + time until its end, or 0: its end is another record */
		};
		u32 succ[TRACE_SUCC];	/* end of a body of a launch */
	};
};

BUILD_BUG_ON(sizeof(struct trace_rec) != CACHELINE);

struct trace_buf {
	u64 pos;		/* records so far */
	u64 events;		/* records other than TRACE_MORE so far */
	u64 last;		/* time of the last one */
	u64 open;		/* position of a begin ... */
	u64 open_next;		/* ... and of the record behind it and its accesses, or 0 */
	u32 size;		/* I: a power of two */
	u32 slot;		/* I */
	ck_stack_entry_t link;	/* I: list of the engine */
	struct trace_rec rec[] __cacheline_aligned;
};

CK_STACK_CONTAINER(struct trace_buf, link, buf_of)

static __noinline struct trace_buf *trace_buf_new(struct thread *t, u64 size)
{
	struct pawl_engine *e = t->e;
	struct trace_buf *b;

	/* No record is read before it was written. */
	b = aligned_alloc(CACHELINE, sizeof(*b) + size * sizeof(b->rec[0]));
	if (!b) {
		fetch_add_relaxed(&e->trace_lost, 1);
		return NULL;
	}
	memset(b, 0, sizeof(*b));
	b->size = (u32)size;
	b->slot = t->slot;
	store_relaxed(&t->trace, b);
	/* The list is read only after a grace period. */
	ck_stack_push_upmc(&e->trace_bufs, &b->link);
	return b;
}

/* Call it in a read section. */
static inline struct trace_buf *trace_buf_get(struct thread *t)
{
	u64 size = load_acquire(&t->e->tracing);	/* CORE-X2 <-> CORE-X1 */
	struct trace_buf *b;

	if (unlikely(!size || size == TRACE_WRITING))
		return NULL;
	b = load_relaxed(&t->trace);
	return likely(b) ? b : trace_buf_new(t, size);
}

static inline struct trace_rec *rec_at(struct trace_buf *b, u64 pos)
{
	return &b->rec[pos & (b->size - 1)];
}

/* Times of a thread ascend, also if the clocks of the processors differ. */
static inline u64 time_new(struct trace_buf *b)
{
	u64 now = cycles();

	b->events++;
	b->last = now > b->last ? now : b->last + 1;
	return b->last;
}

static inline struct trace_rec *rec_new(struct trace_buf *b, enum trace_kind k, u32 op, u32 gen,
					u32 node)
{
	struct trace_rec *r = rec_at(b, b->pos++);

	r->time = time_new(b);
	r->op = op;
	r->gen = gen;
	r->node = node;
	r->kind = (u8)k;
	r->flags = 0;
	r->n = 0;
	return r;
}

static struct trace_rec *rec_more(struct trace_buf *b)
{
	struct trace_rec *r = rec_at(b, b->pos++);

	r->kind = TRACE_MORE;
	return r;
}

static void deps_keep(struct pawl_engine *e, struct trace_buf *b, struct trace_rec *r,
		      struct op *op)
{
	const struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u32 i, k;

	r->n = op->ndeps;
	r->took = 0;
	b->open = b->pos - 1;
	for (i = 0, k = 0; i < op->ndeps; i++, k++) {
		u32 var = deps[i].var & ~DEP_WRITE;

		if (k == TRACE_DEPS) {
			r = rec_more(b);
			k = 0;
		}
		/* The var was deleted during the push: the access has no place. */
		r->deps[k] = (struct trace_dep){ deps[i].var,
			op->flags & OP_STALE && dep_dead(&deps[i]) ? 0 : deps[i].gen,
			(u32)load_relaxed(&var_side_of(e, var)->version) };
	}
	b->open_next = b->pos;
}

/* A body ends.  Is its begin the last event of its thread?  Then it is complete. */
static inline bool rec_close(struct trace_buf *b, u32 op, u32 gen)
{
	struct trace_rec *r = rec_at(b, b->open);
	u64 took;

	if (!b->open_next || b->open_next != b->pos || b->pos - b->open > b->size ||
	    r->op != op || r->gen != gen || r->took)
		return false;
	took = time_new(b) - r->time;
	if (took >= UINT32_MAX) {
		b->events--;
		return false;
	}
	r->took = (u32)took + 1;
	return true;
}

void trace_event(struct thread *t, enum trace_kind k, struct op *op, u32 opi)
{
	u32 gen = op_gen(op);
	struct trace_buf *b;
	struct trace_rec *r;

	if (op->flags & OP_WAITER)
		return;
	if (k == TRACE_END)
		gen = op_gen_begun(op);
	pool_rcu_lock();
	b = trace_buf_get(t);
	if (unlikely(!b) || (k == TRACE_END && rec_close(b, opi, gen)))
		goto out;
	r = rec_new(b, k, opi, gen, 0);
	if (k == TRACE_PUSH) {
		bool launch = op->flags & OP_GRAPH && (op->fn == nodes_fn || op->fn == group_run);

		r->name = launch ? "launch" : op_name(op);
		r->flags = op->flags & OP_ASYNC ? TRACE_ASYNC : 0;
		if (launch && op->fn == nodes_fn)
			r->flags = TRACE_LAUNCH;
	} else if (k == TRACE_BEGIN || k == TRACE_SKIP) {
		deps_keep(t->e, b, r, op);
	}
out:
	pool_rcu_unlock();
}

void trace_node(struct thread *t, enum trace_kind k, const struct launch *l, u32 node)
{
	const struct node *nd = &l->plan->node[node];
	struct trace_buf *b;
	struct trace_rec *r;
	u32 i, j;

	pool_rcu_lock();
	b = trace_buf_get(t);
	if (unlikely(!b))
		goto out;
	r = rec_new(b, k, l->op, op_gen(op_of(t->e, l->op)), node + 1);
	if (k == TRACE_PUSH) {
		r->name = nd->name;
		r->flags = nd->async ? TRACE_ASYNC : 0;
	} else if (k == TRACE_END) {
		r->n = (u16)nd->nsucc;
		for (i = 0, j = 0; i < nd->nsucc; i++, j++) {
			if (j == TRACE_SUCC) {
				r = rec_more(b);
				j = 0;
			}
			r->succ[j] = l->plan->succ[nd->succ + i] + 1;
		}
	}
out:
	pool_rcu_unlock();
}

void trace_return(struct thread *t, u32 opi, u32 gen, u32 node)
{
	struct trace_buf *b;

	pool_rcu_lock();
	b = trace_buf_get(t);
	if (likely(b))
		rec_new(b, TRACE_RETURN, opi, gen, node);
	pool_rcu_unlock();
}

/*
 * Take ownership of the rings; on success no thread writes an event any more.  -EALREADY:
 * another call owns them.  In a child of fork() grace periods may be impossible (pool/rcu.c),
 * which *gone reports: then rings are not freed, and an event that is being written may be
 * read in part.
 */
static int rings_take(struct pawl_engine *e, bool *gone)
{
	u64 off = 0;

	/* CORE-X4 <-> CORE-X3, CORE-X1 */
	if (!cas_acquire_relaxed(&e->tracing, &off, TRACE_WRITING))
		return -EALREADY;
	*gone = pool_rcu_wait();
	return 0;
}

static void bufs_free(ck_stack_entry_t *b)
{
	ck_stack_entry_t *next;

	for (; b; b = next) {
		next = b->next;
		free(buf_of(b));
	}
}

/* Free the rings of the last trace. */
static void rings_drop(struct pawl_engine *e, bool gone)
{
	ck_stack_entry_t *b = ck_stack_batch_pop_upmc(&e->trace_bufs);
	u32 i, n = slots_used(e);

	for (i = 0; i < n; i++)
		store_relaxed(&thread_of(e, i)->trace, NULL);
	if (gone)
		bufs_free(b);
}

static bool trace_runs(const struct pawl_engine *e)
{
	u64 size = load_relaxed(&e->tracing);

	return size && size != TRACE_WRITING;
}

/*
 * A trace began or ended: set or clear the flag for which ops check.  Another thread may change
 * both at the same moment.  Each checks after its change of the flag, and the thread whose change
 * is the last one sees what the others did before theirs, so the flag says whether a trace runs.
 * Progress: lock-free.
 */
static void trace_flag(struct pawl_engine *e)
{
	bool runs;

	do {
		runs = trace_runs(e);
		if (runs)	/* CORE-X5 <-> CORE-X5 */
			fetch_or_acq_rel(&e->special, SPECIAL_TRACING);
		else		/* CORE-X5 <-> CORE-X5 */
			fetch_and_acq_rel(&e->special, ~(u32)SPECIAL_TRACING);
		if (BUSTED(TRACE_FLAG_ONCE))
			return;
	} while (runs != trace_runs(e));
}

int pawl_trace_start(struct pawl_engine *e, unsigned int n)
{
	u64 size = 64;
	bool gone;

	if (!n || n > 1u << 24)
		return err(-EINVAL, "trace_start: %u events per thread, not in 1..2^24", n);
	while (size < n)
		size *= 2;
	if (rings_take(e, &gone))
		return err(-EALREADY, "trace_start: a trace is running, or being written");
	rings_drop(e, gone);
	store_relaxed(&e->trace_lost, 0);
	e->trace_base = exec_now_ns();
	e->trace_cycles = cycles();
	e->trace_rate = 0;
	/* CORE-X1 <-> CORE-X2, CORE-X4 */
	store_release(&e->tracing, size);
	trace_flag(e);
	return 0;
}
PAWL_EXPORT(pawl_trace_start);

int pawl_trace_stop(struct pawl_engine *e)
{
	u64 was = load_relaxed(&e->tracing);

	/*
	 * While the trace is being written it is stopped already.  Relaxed: a
	 * read-modify-write continues the release sequence of CORE-X1.
	 */
	if (was != TRACE_WRITING)
		cas_relaxed(&e->tracing, &was, 0);
	trace_flag(e);
	return 0;
}
PAWL_EXPORT(pawl_trace_stop);

/* --- the file --- */

static void json_string(FILE *f, const char *s)
{
	char text[NAME_ROOM];
	u32 c;

	fputc('"', f);
	while (*s) {
		c = name_next(&s);
		/* Perfetto takes a quote behind a backslash for a part of the string. */
		if (c == '\\' && !*s) {
			fputs("\\u005c", f);
			continue;
		}
		if (c == '"' || c == '\\')
			fputc('\\', f);
		fwrite(text, 1, name_put(text, c), f);
	}
	fputc('"', f);
}

struct trace_ev {
	struct trace_buf *b;
	u64 pos;
};

/* One op, or one body of a launch. */
struct trace_op {
	const struct trace_rec *push, *begin, *ret, *end;
	struct trace_ev at_begin, at_end;
	u64 ended;		/* time of its end, if there is one */
	u32 ops;		/* of a launch: it and its bodies, which follow it */
	bool refused;
};

struct trace_arrow {
	const struct trace_op *from, *to;
};

/* An access in the order of its var. */
struct trace_place {
	u32 var, gen, version;
	u32 op;
	bool write;
};

/* What is being written. */
struct trace_out {
	struct pawl_engine *e;
	FILE *f;
	u32 slots;
	struct trace_ev *ev;
	struct trace_op *ops;
	u32 *order;		/* the ops, in the order of their pushes */
	struct trace_place *places;
	struct trace_arrow *arrows;
	size_t nev, nops, nplaces, narrows, cap_places, cap_arrows;
	u64 lost, incomplete, missing;
};

static const struct trace_rec *ev_rec(const struct trace_ev *v)
{
	return rec_at(v->b, v->pos);
}

static int cmp(u64 a, u64 b)
{
	return a < b ? -1 : a > b;
}

static int ev_cmp(const void *a, const void *b)
{
	const struct trace_rec *x = ev_rec(a), *y = ev_rec(b);

	return x->op != y->op ? cmp(x->op, y->op) : x->gen != y->gen ? cmp(x->gen, y->gen) :
	       x->node != y->node ? cmp(x->node, y->node) : cmp(x->time, y->time);
}

static int place_cmp(const void *a, const void *b)
{
	const struct trace_place *x = a, *y = b;

	/* The reads of a version precede the write that ends it. */
	return x->var != y->var ? cmp(x->var, y->var) : x->gen != y->gen ? cmp(x->gen, y->gen) :
	       x->version != y->version ? cmp(x->version, y->version) :
	       x->write != y->write ? cmp(x->write, y->write) : cmp(x->op, y->op);
}

/* Is the record also that of the op's end? */
static bool has_end(const struct trace_rec *r)
{
	return (r->kind == TRACE_BEGIN || r->kind == TRACE_SKIP) && !r->node && r->took;
}

static u64 op_time(const struct trace_op *o)
{
	return o->push ? o->push->time : ~0ull;
}

static int order_cmp(const void *a, const void *b, void *ops)
{
	const struct trace_op *o = ops;
	u32 x = *(const u32 *)a, y = *(const u32 *)b;
	int rc = cmp(op_time(&o[x]), op_time(&o[y]));

	return rc ? rc : cmp(x, y);
}

static bool is_async(const struct trace_op *o)
{
	return o->push->flags & (TRACE_ASYNC | TRACE_LAUNCH);
}

/* It is in the trace with its name and times, and ran. */
static bool is_shown(const struct trace_op *o)
{
	return o->push && o->begin && o->begin->kind == TRACE_BEGIN && o->end;
}

/* Its thread shows a slice. */
static bool is_slice(const struct trace_op *o)
{
	return is_shown(o) && !(o->push->flags & TRACE_LAUNCH) &&
	       (!(o->push->flags & TRACE_ASYNC) || o->ret);
}

/* The slice at which an arrow to the op ends, or from which one begins.  NULL: there is none. */
static const struct trace_op *slice_of(const struct trace_op *o, bool first)
{
	const struct trace_op *best = NULL, *i;

	if (!o->push || !(o->push->flags & TRACE_LAUNCH))
		return is_slice(o) ? o : NULL;
	for (i = o + 1; i < o + o->ops; i++)
		if (is_slice(i) && (!best || (first ? i->begin->time < best->begin->time :
					      i->ended > best->ended)))
			best = i;
	return best;
}

/* Make room for one more in an array. */
static int room(void **p, size_t n, size_t *cap, size_t size)
{
	size_t want = *cap ? *cap * 2 : 1024;
	void *q;

	if (n < *cap)
		return 0;
	q = realloc(*p, want * size);
	if (!q)
		return -ENOMEM;
	*p = q;
	*cap = want;
	return 0;
}

/* An arrow between two ops, one of which may not be shown. */
static int arrow(struct trace_out *o, const struct trace_op *from, const struct trace_op *to)
{
	from = slice_of(from, false);
	to = slice_of(to, true);
	if (!from || !to || to->begin->time < from->begin->time) {
		o->missing++;
		return 0;
	}
	if (room((void **)&o->arrows, o->narrows, &o->cap_arrows, sizeof(*o->arrows)))
		return -ENOMEM;
	o->arrows[o->narrows++] = (struct trace_arrow){ from, to };
	return 0;
}

static int places_add(struct trace_out *o, u32 op)
{
	const struct trace_ev *v = &o->ops[op].at_begin;
	u32 i, n = o->ops[op].begin->n;

	for (i = 0; i < n; i++) {
		const struct trace_dep *d = &rec_at(v->b, v->pos + i / TRACE_DEPS)->deps[i % TRACE_DEPS];

		if (!d->gen)
			continue;
		if (room((void **)&o->places, o->nplaces, &o->cap_places, sizeof(*o->places)))
			return -ENOMEM;
		o->places[o->nplaces++] = (struct trace_place){ d->var & ~DEP_WRITE, d->gen, d->version,
			op, d->var & DEP_WRITE };
	}
	return 0;
}

/* Arrows along the vars: from the last write, or from the reads since then. */
static int var_arrows(struct trace_out *o)
{
	const struct trace_place *p = o->places, *end = p + o->nplaces;
	const struct trace_place *var = p, *w = NULL, *reads = p, *i, *k;
	int rc = 0;

	if (o->nplaces)
		qsort(o->places, o->nplaces, sizeof(*p), place_cmp);
	for (i = p; i < end && !rc; i++) {
		if (i == p || i->var != i[-1].var || i->gen != i[-1].gen) {
			var = reads = i;
			w = NULL;
		} else if (i->version != i[-1].version) {
			reads = i;
		}
		if (w && w->version + 1 != i->version)
			w = NULL;
		if (i->write && reads != i) {
			for (k = reads; k < i && !rc; k++)
				rc = arrow(o, &o->ops[k->op], &o->ops[i->op]);
		} else if (w) {
			rc = arrow(o, &o->ops[w->op], &o->ops[i->op]);
		} else if (i->version != var->version) {
			/* What the trace has of the var begins before the write that is not there. */
			o->missing++;
		}
		if (i->write)
			w = i;
	}
	return rc;
}

/* Arrows from a body of a launch to those that wait for it. */
static int node_arrows(struct trace_out *o, const struct trace_op *launch, const struct trace_op *from)
{
	const struct trace_op *to;
	u32 i, n = from->end && from->end->kind == TRACE_END ? from->end->n : 0;
	int rc = 0;

	for (i = 0; i < n && !rc; i++) {
		u32 node = rec_at(from->at_end.b, from->at_end.pos + i / TRACE_SUCC)->succ[i % TRACE_SUCC];
		u32 lo = 0, hi = launch->ops, mid;

		/* They are sorted by their numbers. */
		while (lo < hi) {
			mid = (lo + hi) / 2;
			to = launch + mid;
			if ((to->end ? to->end : to->begin ? to->begin : to->push)->node < node)
				lo = mid + 1;
			else
				hi = mid;
		}
		to = launch + lo;
		if (lo == launch->ops)
			o->missing++;
		else
			rc = arrow(o, from, to);
	}
	return rc;
}

/* Collect the events of each op. */
static int ops_collect(struct trace_out *o)
{
	struct trace_op *op = NULL, *base = NULL;
	const struct trace_rec *last = NULL;
	size_t i;

	o->ops = calloc(o->nev + 1, sizeof(*o->ops));
	o->order = calloc(o->nev + 1, sizeof(*o->order));
	if (!o->ops || !o->order)
		return -ENOMEM;
	if (o->nev)
		qsort(o->ev, o->nev, sizeof(*o->ev), ev_cmp);
	for (i = 0; i < o->nev; i++) {
		const struct trace_rec *r = ev_rec(&o->ev[i]);
		bool same = last && r->op == last->op && r->gen == last->gen;

		if (!same || r->node != last->node) {
			op = &o->ops[o->nops];
			o->order[o->nops] = (u32)o->nops;
			o->nops++;
			if (!same)
				base = op;
			base->ops++;
		}
		last = r;
		if (r->kind == TRACE_PUSH) {
			op->push = r;
		} else if (r->kind == TRACE_REFUSED) {
			op->refused = true;
		} else if (r->kind == TRACE_RETURN) {
			op->ret = r;
		} else if (r->kind == TRACE_END) {
			op->end = r;
			op->at_end = o->ev[i];
			op->ended = r->time;
		} else {
			op->begin = r;
			op->at_begin = o->ev[i];
			if (has_end(r)) {
				op->end = r;
				op->ended = r->time + r->took - 1;
			}
		}
	}
	if (o->nops)
		qsort_r(o->order, o->nops, sizeof(*o->order), order_cmp, o->ops);
	return 0;
}

static int arrows_make(struct trace_out *o)
{
	struct trace_op *op, *i;
	int rc = 0;

	for (op = o->ops; op < o->ops + o->nops && !rc; op++) {
		if (!op->push || !op->begin || !op->end)
			o->incomplete += !op->refused;
		/* Also of an op that is not shown: the arrows to it and from it count as missing. */
		if (op->begin && !op->refused)
			rc = places_add(o, (u32)(op - o->ops));
		for (i = op; i < op + op->ops && !rc; i++)
			rc = node_arrows(o, op, i);
	}
	return rc ? rc : var_arrows(o);
}

/* Nanoseconds since the trace began. */
static u64 out_ns(const struct trace_out *o, u64 time)
{
	u64 from = o->e->trace_cycles;

	return time > from ? (u64)((double)(time - from) * o->e->trace_rate) : 0;
}

static void out_ts(const struct trace_out *o, const struct trace_op *op, u64 time)
{
	fprintf(o->f, ",\"pid\":1,\"tid\":%u,\"ts\":%.3f", TRACE_TID + op->at_begin.b->slot,
		(double)out_ns(o, time) / 1e3);
}

static void slice_write(const struct trace_out *o, const struct trace_op *op, const char *name,
			u64 end)
{
	u64 from = out_ns(o, op->begin->time);

	fprintf(o->f, ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":",
		is_async(op) ? "start" : "op");
	json_string(o->f, name);
	out_ts(o, op, op->begin->time);
	fprintf(o->f, ",\"dur\":%.3f", (double)(out_ns(o, end) - from) / 1e3);
}

static void op_write(const struct trace_out *o, const struct trace_op *op, size_t order)
{
	const char *name = op->push->name ? op->push->name : "op";
	u64 queued = out_ns(o, op->begin->time) - out_ns(o, op->push->time);
	bool launch = op->push->flags & TRACE_LAUNCH;
	char start[256];

	/* The clocks of two processors may differ. */
	if (op->begin->time < op->push->time)
		queued = 0;
	if (is_async(op)) {
		if (op->ret) {
			snprintf(start, sizeof(start), "start %s", name);
			slice_write(o, op, start, op->ret->time);
			fputc('}', o->f);
		}
		fprintf(o->f, ",\n{\"ph\":\"b\",\"cat\":\"%s\",\"id\":%zu,\"name\":",
			launch ? "launch" : "async", order);
		json_string(o->f, name);
		out_ts(o, op, op->begin->time);
	} else {
		slice_write(o, op, name, op->ended);
	}
	fprintf(o->f, ",\"args\":{\"queued_us\":%.3f,\"order\":%zu}}", (double)queued / 1e3, order);
	if (!is_async(op))
		return;
	fprintf(o->f, ",\n{\"ph\":\"e\",\"cat\":\"%s\",\"id\":%zu,\"name\":",
		launch ? "launch" : "async", order);
	json_string(o->f, name);
	out_ts(o, op, op->ended > op->begin->time ? op->ended : op->begin->time);
	fputc('}', o->f);
}

static void arrow_write(const struct trace_out *o, const struct trace_arrow *a, size_t id)
{
	fprintf(o->f, ",\n{\"ph\":\"s\",\"cat\":\"dep\",\"name\":\"dep\",\"id\":%zu", id);
	out_ts(o, a->from, a->from->begin->time);
	fprintf(o->f, "},\n{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"dep\",\"name\":\"dep\","
		"\"id\":%zu", id);
	out_ts(o, a->to, a->to->begin->time);
	fputc('}', o->f);
}

static void out_write(const struct trace_out *o)
{
	size_t i;
	u32 slot;

	/* a string: a number of JSON has 53 bits */
	fprintf(o->f, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"base_ns\":\"%" PRIu64 "\","
		"\"events_lost\":%" PRIu64 ",\"ops_incomplete\":%" PRIu64 ",\"arrows_missing\":%"
		PRIu64 "},\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\","
		"\"args\":{\"name\":\"pawl", o->e->trace_base, o->lost, o->incomplete, o->missing);
	if (o->lost)
		fprintf(o->f, ", %" PRIu64 " events lost", o->lost);
	fputs("\"}}", o->f);
	for (slot = 0; slot < o->slots; slot++)
		fprintf(o->f, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_name\","
			"\"args\":{\"name\":\"pawl thread %u\"}}", TRACE_TID + slot, slot);
	for (i = 0; i < o->nops; i++)
		if (is_shown(&o->ops[o->order[i]]))
			op_write(o, &o->ops[o->order[i]], i);
	for (i = 0; i < o->narrows; i++)
		arrow_write(o, &o->arrows[i], i + 1);
	fputs("\n]}\n", o->f);
}

/* Collect the events of all rings. */
static int rings_read(struct trace_out *o)
{
	ck_stack_entry_t *i, *list = load_relaxed(&o->e->trace_bufs.head);
	size_t cap = 0;

	for (i = list; i; i = i->next)
		cap += min_u(buf_of(i)->pos, (u64)buf_of(i)->size);
	o->ev = calloc(cap + 1, sizeof(*o->ev));
	if (!o->ev)
		return -ENOMEM;
	o->lost = load_relaxed(&o->e->trace_lost);
	for (i = list; i; i = i->next) {
		struct trace_buf *b = buf_of(i);
		u64 pos = b->pos, at = pos > b->size ? pos - b->size : 0;

		o->lost += b->events;
		for (; at < pos && o->nev < cap; at++) {
			if (rec_at(b, at)->kind == TRACE_MORE)
				continue;
			o->ev[o->nev++] = (struct trace_ev){ b, at };
			o->lost -= has_end(rec_at(b, at));
		}
	}
	o->lost -= o->nev;
	return 0;
}

/* path NULL: the file is fd, which is closed. */
static int trace_file(struct pawl_engine *e, const char *path, int fd)
{
	u64 ns = exec_now_ns() - e->trace_base, count = cycles() - e->trace_cycles;
	struct trace_out o = { .e = e, .slots = slots_used(e) };
	int rc = rings_read(&o);

	/* Measured once, so that all files of a trace are the same. */
	if (e->trace_rate == 0)
		e->trace_rate = count ? (double)ns / (double)count : 1;
	if (!rc)
		rc = ops_collect(&o);
	if (!rc)
		rc = arrows_make(&o);
	if (rc) {
		err(rc, "trace_write: no memory for %zu events", o.nev);
		goto out;
	}
	o.f = path ? fopen(path, "w") : fdopen(fd, "w");
	if (!o.f) {
		rc = err(-errno, "trace_write: %s: %s", path ? path : "fd", strerror(errno));
		goto out;
	}
	fd = -1;
	out_write(&o);
	if (ferror(o.f) | fclose(o.f))
		rc = err(-errno, "trace_write: %s: %s", path ? path : "fd", strerror(errno));
out:
	if (fd >= 0)
		close(fd);
	free(o.ev);
	free(o.ops);
	free(o.order);
	free(o.places);
	free(o.arrows);
	return rc;
}

static int trace_out(struct pawl_engine *e, const char *path, int fd)
{
	bool gone;
	int rc;

	if (rings_take(e, &gone)) {
		if (fd >= 0)
			close(fd);
		return err(-EBUSY, "trace_write: the trace is still running");
	}
	rc = trace_file(e, path, fd);
	/* CORE-X3 <-> CORE-X4 */
	store_release(&e->tracing, 0);
	return rc;
}

int trace_write_fd(struct pawl_engine *e, int fd)
{
	return trace_out(e, NULL, fd);
}

int pawl_trace_write(struct pawl_engine *e, const char *path)
{
	return path ? trace_out(e, path, -1) : err(-EINVAL, "trace_write: path is NULL");
}
PAWL_EXPORT(pawl_trace_write);

void trace_exit(struct pawl_engine *e)
{
	bufs_free(ck_stack_batch_pop_npsc(&e->trace_bufs));
}
