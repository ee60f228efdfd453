// SPDX-License-Identifier: Apache-2.0
/*
 * Trace: the last events of every thread, written as Chrome trace JSON.
 *
 * Structures: one ring per thread, which its owner writes with plain stores.  Events carry the
 * index of their op, which connects the push, begin and end of one op.
 *
 * Dependency arrows: a push event stores the accesses of its op.  pawl_trace_write() computes
 * the arrows from them, so nothing is computed while ops run.  An arrow goes from the op that
 * last wrote a var (or, for a write, from the readers since then) to this op, if both are in the
 * rings.  A viewer finds the op of either end by its begin.
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
#include <core/op.h>
#include <core/trace.h>

#define TRACE_DEPS 6u
#define TRACE_WRITING (~0ull)	/* engine.tracing: the last trace is being written */

struct trace_rec {
	u64 time;		/* ns */
	u32 op;
	u16 kind;		/* enum trace_kind */
	u16 ndeps;		/* for a push */
	const char *name;
	u64 order;		/* for a push: position among all pushes */
	u32 deps[TRACE_DEPS];	/* var | DEP_WRITE */
};

struct trace_buf {
	u64 pos;		/* events so far */
	u32 size;		/* I: a power of two */
	u32 slot;		/* I */
	ck_stack_entry_t link;	/* I: list of the engine */
	struct trace_rec rec[];
};

CK_STACK_CONTAINER(struct trace_buf, link, buf_of)

/* Call it in a read section. */
static struct trace_buf *trace_buf_get(struct thread *t)
{
	struct pawl_engine *e = t->e;
	u64 size = load_acquire(&e->tracing);	/* CORE-X2 <-> CORE-X1 */
	struct trace_buf *b;

	if (!size || size == TRACE_WRITING)
		return NULL;
	b = load_relaxed(&t->trace);
	if (b)
		return b;
	b = calloc(1, sizeof(*b) + size * sizeof(b->rec[0]));
	if (!b)
		return NULL;	/* the trace lacks this thread's events */
	b->size = (u32)size;
	b->slot = t->slot;
	store_relaxed(&t->trace, b);
	/* The list is read only after a grace period. */
	ck_stack_push_upmc(&e->trace_bufs, &b->link);
	return b;
}

void trace_event(struct thread *t, enum trace_kind k, u32 opi, const char *name)
{
	struct pawl_engine *e = t->e;
	struct trace_buf *b;
	struct trace_rec *r;
	u32 i;

	pool_rcu_lock();
	b = trace_buf_get(t);
	if (!b)
		goto out;
	r = &b->rec[b->pos & (b->size - 1)];
	r->time = exec_now_ns();
	r->op = opi;
	r->kind = (u16)k;
	r->name = name;
	r->ndeps = 0;
	r->order = 0;
	if (k == TRACE_PUSH) {
		struct op *op = op_of(e, opi);
		struct dep *deps = op_deps(e, op, op->ndeps, op->ext);

		r->order = fetch_add_relaxed(&e->trace_order, 1);
		for (i = 0; i < op->ndeps && i < TRACE_DEPS; i++)
			r->deps[i] = deps[i].var;
		r->ndeps = (u16)i;
	}
	b->pos++;
out:
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
	u32 i, n = load_relaxed(&e->used_slots);

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
	e->trace_base = exec_now_ns();
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

static void json_string(FILE *f, const char *s)
{
	fputc('"', f);
	for (; s && *s; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', f);
		if ((unsigned char)*s >= 0x20)
			fputc(*s, f);
		else
			fprintf(f, "\\u%04x", (unsigned char)*s);
	}
	fputc('"', f);
}

/* One op in the trace. */
struct trace_op {
	const struct trace_rec *push;
	u64 begin, end;
	u32 tid;
};

struct trace_ev {
	const struct trace_rec *r;
	u32 slot;
};

static int ev_cmp(const void *a, const void *b)
{
	const struct trace_ev *x = a, *y = b;

	if (x->r->time != y->r->time)
		return x->r->time < y->r->time ? -1 : 1;
	return (int)x->r->kind - (int)y->r->kind;
}

static int op_cmp(const void *a, const void *b)
{
	const struct trace_op *x = a, *y = b;

	return x->push->order < y->push->order ? -1 : x->push->order > y->push->order;
}

static void arrow(FILE *f, u64 base, const struct trace_op *from, const struct trace_op *to,
		  u64 *id)
{
	if (!from->end || !to->begin || to->begin < from->begin)
		return;
	++*id;
	fprintf(f, ",\n{\"ph\":\"s\",\"cat\":\"dep\",\"name\":\"dep\",\"id\":%" PRIu64
		",\"pid\":1,\"tid\":%u,\"ts\":%.3f}", *id, from->tid,
		(double)(from->begin - base) / 1e3);
	fprintf(f,
		",\n{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"dep\",\"name\":\"dep\",\"id\":%" PRIu64
		",\"pid\":1,\"tid\":%u,\"ts\":%.3f}",
		*id, to->tid, (double)(to->begin - base) / 1e3);
}

/* Arrows along the vars, in push order: from the last write, or from the reads since then. */
static int arrows(struct pawl_engine *e, FILE *f, struct trace_op *ops, size_t n, u32 nvars)
{
	struct last { u32 write, nreads, reads[8]; } *last = calloc(nvars, sizeof(*last));
	u64 id = 0;
	size_t i;
	u32 j, k;

	if (!last)
		return -ENOMEM;
	qsort(ops, n, sizeof(*ops), op_cmp);
	for (i = 0; i < n; i++) {
		for (j = 0; j < ops[i].push->ndeps; j++) {
			u32 v = ops[i].push->deps[j];
			struct last *l = &last[v & ~DEP_WRITE];

			if (!(v & DEP_WRITE)) {
				if (l->write)
					arrow(f, e->trace_base, &ops[l->write - 1], &ops[i], &id);
				if (l->nreads < ARRAY_SIZE(l->reads))
					l->reads[l->nreads++] = (u32)i + 1;
				continue;
			}
			for (k = 0; k < l->nreads; k++)
				arrow(f, e->trace_base, &ops[l->reads[k] - 1], &ops[i], &id);
			if (!l->nreads && l->write)
				arrow(f, e->trace_base, &ops[l->write - 1], &ops[i], &id);
			l->write = (u32)i + 1;
			l->nreads = 0;
		}
	}
	free(last);
	return 0;
}

/* Bounds of the numbers in the events. */
struct trace_bounds {
	u32 ops, vars, slots;
};

static int trace_json(struct pawl_engine *e, FILE *f, struct trace_ev *ev, size_t n,
		      const struct trace_bounds *most)
{
	struct trace_op *ops = calloc(n + 1, sizeof(*ops));
	u32 *cur = calloc(most->ops, sizeof(*cur)), i;
	size_t k, m = 0;
	int rc = ops && cur ? 0 : -ENOMEM;

	if (rc)
		goto out;
	qsort(ev, n, sizeof(*ev), ev_cmp);
	/* a string: a number of JSON has 53 bits */
	fprintf(f, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"base_ns\":\"%" PRIu64 "\"},"
		"\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\","
		"\"args\":{\"name\":\"pawl\"}}", e->trace_base);
	for (i = 0; i < most->slots; i++)
		fprintf(f, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_name\","
			"\"args\":{\"name\":\"pawl thread %u\"}}", i, i);
	for (k = 0; k < n; k++) {
		const struct trace_rec *r = ev[k].r;
		struct trace_op *o;

		if (r->kind == TRACE_PUSH) {
			ops[m] = (struct trace_op){ .push = r };
			cur[r->op] = (u32)++m;
			continue;
		}
		if (!cur[r->op])
			continue;	/* its push was overwritten */
		o = &ops[cur[r->op] - 1];
		if (r->kind == TRACE_BEGIN) {
			o->begin = r->time;
			o->tid = ev[k].slot;
			continue;
		}
		if (o->begin) {
			o->end = r->time;
			fputs(",\n{\"ph\":\"X\",\"cat\":\"op\",\"name\":", f);
			json_string(f, r->name ? r->name : "op");
			fprintf(f, ",\"pid\":1,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,"
				"\"args\":{\"queued_us\":%.3f,\"order\":%" PRIu64 "}}", o->tid,
				(double)(o->begin - e->trace_base) / 1e3,
				(double)(o->end - o->begin) / 1e3,
				(double)(o->begin - o->push->time) / 1e3, o->push->order);
		}
		cur[r->op] = 0;
	}
	rc = arrows(e, f, ops, m, most->vars);
	fputs("\n]}\n", f);
out:
	free(ops);
	free(cur);
	return rc;
}

/* Collect the events of all rings.  Returns 0 or -ENOMEM. */
static int rings_read(struct pawl_engine *e, struct trace_ev **ev, size_t *n)
{
	ck_stack_entry_t *i, *list = load_relaxed(&e->trace_bufs.head);
	size_t cap = 0;

	for (i = list; i; i = i->next)
		cap += min_u(buf_of(i)->pos, (u64)buf_of(i)->size);
	*n = 0;
	*ev = calloc(cap + 1, sizeof(**ev));
	if (!*ev)
		return err(-ENOMEM, "trace_write: no memory for %zu events", cap);
	for (i = list; i; i = i->next) {
		struct trace_buf *b = buf_of(i);
		u64 pos = b->pos, at = pos > b->size ? pos - b->size : 0;

		for (; at < pos && *n < cap; at++)
			(*ev)[(*n)++] = (struct trace_ev){ &b->rec[at & (b->size - 1)], b->slot };
	}
	return 0;
}

static int trace_file(struct pawl_engine *e, const char *path, struct trace_ev *ev, size_t n)
{
	const struct trace_bounds most = { pool_carved(e->pool[POOL_OP]) + 1,
		pool_carved(e->pool[POOL_VAR]) + 1, load_relaxed(&e->used_slots) };
	FILE *f = fopen(path, "w");
	int rc;

	if (!f)
		return err(-errno, "trace_write: %s: %s", path, strerror(errno));
	rc = trace_json(e, f, ev, n, &most);
	if (rc)
		err(rc, "trace_write: no memory");
	if (fclose(f) && !rc)
		rc = err(-errno, "trace_write: %s: %s", path, strerror(errno));
	return rc;
}

int pawl_trace_write(struct pawl_engine *e, const char *path)
{
	struct trace_ev *ev;
	size_t n;
	bool gone;
	int rc;

	if (!path)
		return err(-EINVAL, "trace_write: path is NULL");
	if (rings_take(e, &gone))
		return err(-EBUSY, "trace_write: the trace is still running");
	rc = rings_read(e, &ev, &n);
	if (!rc) {
		rc = trace_file(e, path, ev, n);
		free(ev);
	}
	/* CORE-X3 <-> CORE-X4 */
	store_release(&e->tracing, 0);
	return rc;
}
PAWL_EXPORT(pawl_trace_write);

void trace_exit(struct pawl_engine *e)
{
	bufs_free(ck_stack_batch_pop_npsc(&e->trace_bufs));
}
