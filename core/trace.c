// SPDX-License-Identifier: Apache-2.0
/*
 * Trace: the last events of every thread, written as Chrome trace JSON.
 *
 * Structures: one ring per thread, written by its owner with plain stores and a
 * released position.  An op's events carry its run number (thread and count), so that
 * a push, a begin and an end of one op are found again although memory is reused.
 *
 * Dependency arrows: when an op is pushed it looks at what stands in its vars; the
 * arrow is drawn when both ends are in the rings: from the end of the op that last
 * wrote a var (or, for a write, of the readers since) to the begin of this op.  The
 * writer works this out from the recorded accesses, not while ops run.
 *
 * Lifetime: a start with other sizes drops the rings of the last trace.  A thread may
 * just be writing to its ring (it saw the trace running), so an event is an RCU read
 * section, and the rings are freed a grace period later.  CORE-X5 <-> CORE-X6.
 *
 * Progress: an event is wait-free, but for a thread's first; start blocks (allocation,
 * grace period); write blocks on its file.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <core/internal.h>

#define TRACE_DEPS 6u
#define TRACE_WRITING (~0ull)	/* engine.tracing: the last trace is being written */

struct trace_rec {
	u64 time;		/* ns */
	u32 op;
	u16 kind;		/* enum trace_kind */
	u16 ndeps;		/* of a push */
	const char *name;
	u64 order;		/* of a push: place among all pushes */
	u32 deps[TRACE_DEPS];	/* var | DEP_WRITE */
};

struct trace_buf {
	struct rcu_defer rcu;
	u64 pos;		/* A: events so far */
	u32 size;		/* I: a power of two */
	u32 slot;		/* I */
	struct trace_buf *next;	/* I: of the engine */
	struct trace_rec rec[];
};

static struct trace_buf *trace_buf_get(struct thread *t)
{
	struct pawl_engine *e = t->e;
	struct trace_buf *b = load_acquire(&t->trace);	/* CORE-X6 <-> CORE-X5 */
	u64 size = load_relaxed(&e->tracing);

	if (b || !size || size == TRACE_WRITING)
		return b;
	b = calloc(1, sizeof(*b) + size * sizeof(b->rec[0]));
	if (!b)
		return NULL;	/* this thread's events are missing; the engine goes on */
	b->size = (u32)size;
	b->slot = t->slot;
	b->next = load_relaxed(&e->trace_bufs);
	/* CORE-X1 <-> CORE-X2 */
	while (!cas_acq_rel_relaxed(&e->trace_bufs, &b->next, b))
		;
	store_release(&t->trace, b);
	return b;
}

void trace_event(struct thread *t, enum trace_kind k, u32 opi, const char *name, u64 id)
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
	store_release(&b->pos, b->pos + 1);	/* CORE-X3 <-> CORE-X4 */
out:
	pool_rcu_unlock();
}

static void buf_free(struct rcu_defer *d)
{
	free(container_of(d, struct trace_buf, rcu));
}

/* No trace runs: forget the rings.  Some threads may not have noticed that it ended. */
static void bufs_drop(struct pawl_engine *e)
{
	struct trace_buf *b = xchg_acq_rel(&e->trace_bufs, NULL), *next;	/* CORE-X5 <-> CORE-X6 */
	u32 i;

	for (i = 0; i < load_acquire(&e->used_slots); i++)
		(void)xchg_acq_rel(&thread_of(e, i)->trace, NULL);
	for (; b; b = next) {
		next = b->next;
		pool_rcu_defer(&b->rcu, buf_free);
	}
	(void)pool_rcu_reclaim();
}

int pawl_trace_start(struct pawl_engine *e, unsigned int n)
{
	u64 size = 64, off = 0;

	if (!n || n > 1u << 24)
		return err(-EINVAL, "trace_start: %u events per thread, not in 1..2^24", n);
	while (size < n)
		size *= 2;
	if (!cas_acq_rel_acquire(&e->tracing, &off, TRACE_WRITING))
		return err(-EALREADY, "trace_start: a trace is running, or being written");
	bufs_drop(e);
	store_release(&e->tracing, size);
	store_relaxed(&e->trace_base, exec_now_ns());
	fetch_or_acq_rel(&e->special, SPECIAL_TRACING);
	return 0;
}
PAWL_EXPORT(pawl_trace_start);

int pawl_trace_stop(struct pawl_engine *e)
{
	u64 was = load_acquire(&e->tracing);

	fetch_and_acq_rel(&e->special, ~(u32)SPECIAL_TRACING);
	/* Not while it is being written: then it was stopped before. */
	if (was != TRACE_WRITING)
		cas_acq_rel_acquire(&e->tracing, &was, 0);
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

/* One op as the trace saw it. */
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
	fprintf(f, ",\n{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"dep\",\"name\":\"dep\",\"id\":%" PRIu64
		",\"pid\":1,\"tid\":%u,\"ts\":%.3f}", *id, to->tid,
		(double)(to->begin - base) / 1e3);
}

/* Arrows along the vars, in push order: after the last write, or the reads since. */
static int arrows(struct pawl_engine *e, FILE *f, struct trace_op *ops, size_t n)
{
	u32 nvars = pool_carved(e->pool[POOL_VAR]) + 1;
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

static int trace_json(struct pawl_engine *e, FILE *f, struct trace_ev *ev, size_t n)
{
	u32 nops = pool_carved(e->pool[POOL_OP]) + 1, i;
	struct trace_op *ops = calloc(n + 1, sizeof(*ops));
	u32 *cur = calloc(nops, sizeof(*cur));
	size_t k, m = 0;
	int rc = ops && cur ? 0 : -ENOMEM;

	if (rc)
		goto out;
	qsort(ev, n, sizeof(*ev), ev_cmp);
	fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
	      "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"pawl\"}}", f);
	for (i = 0; i < load_acquire(&e->used_slots); i++)
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
			continue;	/* its push is not in the rings any more */
		o = &ops[cur[r->op] - 1];
		if (r->kind == TRACE_BEGIN) {
			o->begin = r->time;
			o->tid = ev[k].slot;
			continue;
		}
		o->end = r->time;
		if (o->begin) {
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
	rc = arrows(e, f, ops, m);
	fputs("\n]}\n", f);
out:
	free(ops);
	free(cur);
	return rc;
}

int pawl_trace_write(struct pawl_engine *e, const char *path)
{
	struct trace_buf *b;
	struct trace_ev *ev = NULL;
	u64 off = 0;
	size_t n = 0, cap = 0;
	FILE *f;
	int rc;

	if (!path)
		return err(-EINVAL, "trace_write: path is NULL");
	if (!cas_acq_rel_acquire(&e->tracing, &off, TRACE_WRITING))
		return err(-EBUSY, "trace_write: the trace is still running");
	for (b = load_acquire(&e->trace_bufs); b; b = b->next)	/* CORE-X2 <-> CORE-X1 */
		cap += min_u(load_acquire(&b->pos), (u64)b->size);	/* CORE-X4 <-> CORE-X3 */
	ev = calloc(cap + 1, sizeof(*ev));
	if (!ev) {
		store_release(&e->tracing, 0);
		return err(-ENOMEM, "trace_write: no memory for %zu events", cap);
	}
	for (b = load_acquire(&e->trace_bufs); b; b = b->next) {
		u64 pos = load_acquire(&b->pos), i = pos > b->size ? pos - b->size : 0;

		for (; i < pos && n < cap; i++) {
			struct trace_rec *r = &b->rec[i & (b->size - 1)];

			if (r->time >= e->trace_base)
				ev[n++] = (struct trace_ev){ r, b->slot };
		}
	}
	f = fopen(path, "w");
	if (!f) {
		rc = err(-errno, "trace_write: %s: %s", path, strerror(errno));
		store_release(&e->tracing, 0);
		free(ev);
		return rc;
	}
	rc = trace_json(e, f, ev, n);
	if (rc)
		err(rc, "trace_write: no memory");
	if (fclose(f) && !rc)
		rc = err(-errno, "trace_write: %s: %s", path, strerror(errno));
	store_release(&e->tracing, 0);
	free(ev);
	return rc;
}
PAWL_EXPORT(pawl_trace_write);

void trace_exit(struct pawl_engine *e)
{
	struct trace_buf *b = e->trace_bufs, *next;

	for (; b; b = next) {
		next = b->next;
		free(b);
	}
}
