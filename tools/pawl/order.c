// SPDX-License-Identifier: Apache-2.0
/* Finds a serial order of a recording's ops: a topological order of their dependencies. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "record.h"
#include "slurp.h"

struct order {
	const struct recording *r;
	uint32_t *degree;	/* edges from ops that are not in the order yet */
	size_t *first;		/* op -> its edges */
	uint32_t *to;
	size_t nto;
	uint32_t *heap;
	size_t nheap;
};

/* An access with its op, to be sorted by place. */
struct place {
	uint32_t var, op;
	bool write;
	uint64_t version;
};

static int place_cmp(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->var != y->var)
		return x->var < y->var ? -1 : 1;
	if (x->version != y->version)
		return x->version < y->version ? -1 : 1;
	/* The reads of a version precede the write that ends it. */
	if (x->write != y->write)
		return x->write ? 1 : -1;
	return x->op < y->op ? -1 : x->op > y->op;
}

/* Ops that did not begin come after all ops that did. */
static bool op_before(const struct recording *r, uint32_t a, uint32_t b)
{
	const struct rec_op *x = &r->ops[a], *y = &r->ops[b];

	if (x->begun != y->begun)
		return x->begun;
	return x->push != y->push ? x->push < y->push : a < b;
}

static void heap_put(struct order *o, uint32_t op)
{
	size_t i = o->nheap++, up;

	for (; i; i = up) {
		up = (i - 1) / 2;
		if (!op_before(o->r, op, o->heap[up]))
			break;
		o->heap[i] = o->heap[up];
	}
	o->heap[i] = op;
}

static uint32_t heap_get(struct order *o)
{
	uint32_t top = o->heap[0], last = o->heap[--o->nheap];
	size_t i = 0, c;

	for (; (c = 2 * i + 1) < o->nheap; i = c) {
		if (c + 1 < o->nheap && op_before(o->r, o->heap[c + 1], o->heap[c]))
			c++;
		if (!op_before(o->r, o->heap[c], last))
			break;
		o->heap[i] = o->heap[c];
	}
	o->heap[i] = last;
	return top;
}

/* Called in two passes: the first counts the edges of each op, the second stores them. */
static void edge(struct order *o, uint32_t from, uint32_t to)
{
	if (from == to || o->r->ops[from].undone || o->r->ops[to].undone)
		return;
	if (!o->to) {
		o->first[from + 1]++;
		o->degree[to]++;
	} else {
		o->to[o->first[from]++] = to;
	}
	o->nto++;
}

static int edges(struct order *o, const struct place *p, size_t n, char *err, size_t errlen)
{
	const struct recording *r = o->r;
	uint32_t begun = REC_NONE, other = REC_NONE;	/* previous op: begun, not begun */
	const struct rec_op *prev = NULL;
	size_t i, w = SIZE_MAX, reads = 0;	/* of the present var: last write; first read since */

	o->nto = 0;
	for (i = 0; i < r->nops; i++) {
		const struct rec_op *x = &r->ops[i];

		/* Ops are stored thread by thread. */
		if (prev && (prev->thread != x->thread || prev->engine != x->engine))
			begun = other = REC_NONE;
		prev = x;
		if (x->undone)
			continue;
		/* On each var, ops that did not begin come after all ops that did. */
		if (begun != REC_NONE)
			edge(o, begun, (uint32_t)i);
		if (other != REC_NONE && !x->begun)
			edge(o, other, (uint32_t)i);
		if (x->parent != REC_NONE)
			edge(o, x->parent, (uint32_t)i);
		*(x->begun ? &begun : &other) = (uint32_t)i;
	}
	for (i = 0; i < r->nedges; i++)
		edge(o, r->edges[i].before, r->edges[i].after);
	for (i = 0; i < n; i++) {
		size_t k;

		if (!i || p[i].var != p[i - 1].var) {
			w = SIZE_MAX;
			reads = i;
		}
		if (!p[i].write) {
			if (w != SIZE_MAX)
				edge(o, p[w].op, p[i].op);
			continue;
		}
		if (w != SIZE_MAX && p[w].version == p[i].version)
			return file_err(err, errlen, -EBADMSG,
					"var %u.%u of engine %u: ops %u and %u both wrote version %" PRIu64,
					r->vars[p[i].var].index, r->vars[p[i].var].gen,
					r->vars[p[i].var].engine, p[w].op, p[i].op, p[i].version + 1);
		if (reads == i && w != SIZE_MAX)
			edge(o, p[w].op, p[i].op);
		for (k = reads; k < i; k++)
			edge(o, p[k].op, p[i].op);
		w = i;
		reads = i + 1;
	}
	return 0;
}

int rec_order(const struct recording *r, uint32_t *out, size_t *n, char *err, size_t errlen)
{
	struct order o = { .r = r };
	struct place *p = calloc(r->naccesses + 1, sizeof(*p));
	size_t i, j, np = 0, alive = 0;
	int rc = 0;

	*n = 0;
	o.degree = calloc(r->nops + 1, sizeof(*o.degree));
	o.first = calloc(r->nops + 2, sizeof(*o.first));
	o.heap = calloc(r->nops + 1, sizeof(*o.heap));
	if (!p || !o.degree || !o.first || !o.heap) {
		rc = file_err(err, errlen, -ENOMEM, "no memory for the order of %zu ops",
			      r->nops);
		goto out;
	}
	for (i = 0; i < r->nops; i++) {
		alive += !r->ops[i].undone;
		for (j = 0; j < r->ops[i].naccesses; j++) {
			const struct rec_access *a = &r->accesses[r->ops[i].access + j];

			if (a->placed && !r->ops[i].undone)
				p[np++] = (struct place){ a->var, (uint32_t)i, a->write,
							  a->version };
		}
	}
	qsort(p, np, sizeof(*p), place_cmp);
	rc = edges(&o, p, np, err, errlen);
	if (rc)
		goto out;
	for (i = 1; i <= r->nops; i++)
		o.first[i] += o.first[i - 1];
	o.to = calloc(o.nto + 1, sizeof(*o.to));
	if (!o.to) {
		rc = file_err(err, errlen, -ENOMEM, "no memory for %zu edges", o.nto);
		goto out;
	}
	rc = edges(&o, p, np, err, errlen);
	/* Storing the edges advanced each start to the start of the next op's edges. */
	for (i = 0; i < r->nops; i++)
		if (!o.degree[i] && !r->ops[i].undone)
			heap_put(&o, (uint32_t)i);
	while (o.nheap) {
		uint32_t op = heap_get(&o);

		out[(*n)++] = op;
		for (i = op ? o.first[op - 1] : 0; i < o.first[op]; i++)
			if (!--o.degree[o.to[i]])
				heap_put(&o, o.to[i]);
	}
	if (*n != alive) {
		for (i = 0; !o.degree[i]; i++)
			;
		rc = file_err(err, errlen, -EBADMSG,
			      "no serial order: %zu ops wait for each other, among them op %zu (\"%s\")",
			      alive - *n, i, r->ops[i].name);
	}
out:
	free(p);
	free(o.degree);
	free(o.first);
	free(o.to);
	free(o.heap);
	return rc;
}
