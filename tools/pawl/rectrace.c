// SPDX-License-Identifier: Apache-2.0
/* pawl record trace: the bodies of a workload as a trace of Chrome. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "out.h"
#include "reccmd.h"

/* One event of Chrome's trace format; ts and dur are microseconds. */
static void event(struct out *out, const char *sep, char ph, const char *cat, const char *name,
		  uint32_t engine, uint32_t thread, uint64_t ns)
{
	out_print(out, "%s\n{\"ph\":\"%c\",\"cat\":\"%s\",\"name\":", sep, ph, cat);
	out_json(out, *name ? name : "op");
	/* no process and no thread of the kernel has such a number */
	out_print(out, ",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"ts\":", engine + 1, 5000000 + thread);
	out_fixed(out, ns, 3);
}

static void slice_end(struct out *out, uint64_t ns, uint32_t op)
{
	out_print(out, ",\"dur\":");
	out_fixed(out, ns, 3);
	out_print(out, ",\"args\":{\"op\":%" PRIu32 "}}", op);
}

/* Where an arrow begins or ends: at the slice of a body. */
struct slice {
	uint32_t engine, runner;
	uint64_t begin, end;
};

/* That of an op, or of the last or the first body of a launch.  Returns false if there is none. */
static bool slice_of(const struct recording *r, const struct rec_op *o, bool first, struct slice *s)
{
	bool found = !o->launch && o->ended && !o->async;
	uint32_t i;

	*s = (struct slice){ o->engine, o->runner == REC_NONE ? o->thread : o->runner, o->begin, o->end };
	for (i = 0; o->launch && i < o->nnodes; i++) {
		const struct rec_node *n = &r->nodes[o->node + i];

		if (!n->ended || n->skipped || n->async ||
		    (found && !(first ? n->begin < s->begin : n->end > s->end)))
			continue;
		*s = (struct slice){ o->engine, n->runner, n->begin, n->end };
		found = true;
	}
	return found;
}

/* Returns false if it would lead back, because the one before was asynchronous or the clocks differ. */
static bool arrow(struct out *out, const struct slice *from, const struct slice *to, uint64_t id)
{
	if (to->begin < from->begin)
		return false;
	event(out, ",", 's', "dep", "dep", from->engine, from->runner, from->begin);
	out_print(out, ",\"id\":%" PRIu64 "}", id);
	event(out, ",", 'f', "dep", "dep", to->engine, to->runner, to->begin);
	out_print(out, ",\"id\":%" PRIu64 ",\"bp\":\"e\"}", id);
	return true;
}

/* An op where an arrow begins. */
struct from {
	uint64_t place;
	bool has;		/* a slice */
	struct slice s;
};

struct froms {
	struct from *f;
	size_t n, cap;
};

/* The last write of a var, and the reads since then. */
struct trail {
	bool wrote;
	struct from write;
	struct froms reads;
	uint64_t dropped;	/* reads */
};

struct chrome {
	struct out out;
	struct source *s;
	const char *sep;
	uint64_t id, missing;
	size_t kept;		/* reads of all vars */
	struct froms to_here;	/* of the present op */
};

/* So many reads are remembered for arrows to the writes behind them. */
#define READS_MAX ((size_t)1 << 18)

static int from_add(struct froms *l, const struct from *f)
{
	struct from *q;

	if (l->n == l->cap) {
		q = realloc(l->f, (l->cap ? 2 * l->cap : 4) * sizeof(*q));
		if (!q)
			return -ENOMEM;
		l->f = q;
		l->cap = l->cap ? 2 * l->cap : 4;
	}
	l->f[l->n++] = *f;
	return 0;
}

static int from_cmp(const void *a, const void *b)
{
	uint64_t x = ((const struct from *)a)->place, y = ((const struct from *)b)->place;

	return x < y ? -1 : x > y;
}

static void trail_free(void *ctx, struct flow_var *v)
{
	struct chrome *c = ctx;
	struct trail *t = v->user;

	if (t) {
		c->kept -= t->reads.n;
		free(t->reads.f);
	}
	free(t);
	v->user = NULL;
}

/* The last write, or the reads since then, precede an access. */
static int trail_access(struct chrome *c, struct flow_var *v, bool write, const struct from *self)
{
	struct trail *t = v->user;
	size_t i;
	int rc = 0;

	if (!t)
		v->user = t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	if (t->wrote && (!write || (!t->reads.n && !t->dropped)))
		rc = from_add(&c->to_here, &t->write);
	if (!write && c->kept == READS_MAX) {
		t->dropped++;
		return rc;
	}
	if (!write) {
		c->kept++;
		return rc ? rc : from_add(&t->reads, self);
	}
	for (i = 0; i < t->reads.n && !rc; i++)
		rc = from_add(&c->to_here, &t->reads.f[i]);
	c->missing += t->dropped;
	c->kept -= t->reads.n;
	free(t->reads.f);
	*t = (struct trail){ .wrote = true, .write = *self };
	return rc;
}

/* Arrows to the op from those that precede it on its vars, and that the source names. */
static int arrows(struct chrome *c, const struct flow_op *op)
{
	const struct recording *r = op->one, *mem = &c->s->mem;
	const struct rec_op *o = &r->ops[0];
	struct from self = { .place = op->place }, other;
	struct slice to;
	bool has = slice_of(r, o, true, &to);
	uint32_t j;
	size_t k;
	int rc = 0;

	self.has = slice_of(r, o, false, &self.s);
	c->to_here.n = 0;
	for (j = 0; j < o->naccesses && !rc; j++)
		rc = trail_access(c, op->vars[j], r->accesses[j].write, &self);
	for (k = mem->nedges ? c->s->edge[op->number] : 0;
	     mem->nedges && k < c->s->edge[op->number + 1] && !rc; k++) {
		uint32_t before = mem->edges[c->s->edge_of[k]].before;

		other.place = c->s->place[before];
		other.has = slice_of(mem, &mem->ops[before], false, &other.s);
		rc = from_add(&c->to_here, &other);
	}
	if (c->to_here.n)
		qsort(c->to_here.f, c->to_here.n, sizeof(*c->to_here.f), from_cmp);
	for (k = 0; k < c->to_here.n && !rc; k++) {
		const struct from *f = &c->to_here.f[k];

		if (k && f[-1].place == f->place)
			continue;
		if (f->has && has && arrow(&c->out, &f->s, &to, c->id + 1))
			c->id++;
		else
			c->missing++;
	}
	return rc;
}

/* Arrows between the bodies of a launch. */
static void node_arrows(struct chrome *c, const struct recording *r, const struct rec_op *o)
{
	const struct rec_node *next;
	struct slice from, to;
	uint32_t i, k;

	for (i = 0; i < o->nnodes; i++) {
		const struct rec_node *b = &r->nodes[i];

		from = (struct slice){ o->engine, b->runner, b->begin, b->end };
		for (k = 0; k < b->nsucc; k++) {
			next = rec_node_find(r, o, r->succ[b->succ + k]);
			if (next)
				to = (struct slice){ o->engine, next->runner, next->begin, next->end };
			if (next && b->ended && next->ended && !b->skipped && !next->skipped &&
			    !b->async && !next->async && arrow(&c->out, &from, &to, c->id + 1))
				c->id++;
			else
				c->missing++;
		}
	}
}

/* Bodies are slices of their threads; asynchronous ones and launches are async events. */
static int chrome_op(void *ctx, const struct flow_op *op)
{
	struct chrome *c = ctx;
	struct out *out = &c->out;
	const struct rec_op *o = &op->one->ops[0];
	const char *cat = o->launch ? "launch" : "async", *name = o->launch ? cat : o->name;
	uint32_t runner = o->runner == REC_NONE ? o->thread : o->runner, i;

	if (o->ended && !o->launch && !o->async) {
		event(out, c->sep, 'X', "op", name, o->engine, runner, o->begin);
		slice_end(out, o->end - o->begin, op->number);
		c->sep = ",";
	} else if (o->ended) {
		event(out, c->sep, 'b', cat, name, o->engine, runner, o->begin);
		out_print(out, ",\"id\":%" PRIu32 "}", op->number);
		event(out, ",", 'e', cat, name, o->engine, runner, o->end);
		out_print(out, ",\"id\":%" PRIu32 "}", op->number);
		c->sep = ",";
	}
	for (i = 0; i < o->nnodes; i++) {
		const struct rec_node *k = &op->one->nodes[i];

		if (!k->ended || k->skipped)
			continue;
		event(out, c->sep, k->async ? 'b' : 'X', "op", k->name, o->engine, k->runner, k->begin);
		c->sep = ",";
		if (k->async) {
			out_print(out, ",\"id\":\"%" PRIu32 ".%" PRIu32 "\"}", op->number, k->number);
			event(out, ",", 'e', "op", k->name, o->engine, k->runner, k->end);
			out_print(out, ",\"id\":\"%" PRIu32 ".%" PRIu32 "\"}", op->number, k->number);
		} else {
			slice_end(out, k->end - k->begin, op->number);
		}
	}
	node_arrows(c, op->one, o);
	return arrows(c, op);
}

int record_trace(struct source *s)
{
	static const struct flow_sink sink = { .op = chrome_op, .gone = trail_free };
	struct chrome c = { .s = s, .sep = "", .out.f = stdout };
	int rc;

	out_print(&c.out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
	rc = source_run(s, &sink, &c, NULL);
	out_print(&c.out, "\n],\"otherData\":{\"arrows_missing\":%" PRIu64 "}}\n", c.missing);
	out_flush(&c.out);
	free(c.to_here.f);
	return rc;
}
