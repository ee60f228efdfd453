// SPDX-License-Identifier: Apache-2.0
/*
 * Imports traces as ops with vars.
 *
 * PyTorch's execution traces (schema 1.0 and 1.1): an operator that contains no other one, or only such
 * as allocate, view, fill or copy tensors, is an op, and the storage of a tensor is a var.  The operator writes the arguments that its
 * schema marks with "!", and results in a storage of their own.  A result that shares the
 * storage of an argument is a view and counts as a read.  Times are in traces to which those of a
 * profiler were added; kernels of a GPU then belong to the operator that launched them.
 *
 * Traces of Chrome, among them those of torch.profiler (Kineto) and of pawl: a slice, one event
 * or its begin and its end, is an op, see slices_choose().  They have no data, so the ops of a
 * thread follow each other, and an arrow is a dependence.  In a trace of pawl only the arrows are,
 * because its threads take what is ready.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "import.h"

/* --- PyTorch execution traces --- */

/* Add the accesses of the tensors in a value, which may be nested lists. */
static int tensors(struct import *im, const json_t *v, bool write, bool output,
		   const json_t *args, json_t *note)
{
	char name[64];
	size_t i;
	int rc = 0;

	if (!json_is_array(v))
		return 0;
	if (json_array_size(v) == 6 && json_is_integer(json_array_get(v, 0)) &&
	    json_is_string(json_array_get(v, 5))) {
		json_int_t storage = json_integer_value(json_array_get(v, 1));

		if (storage > 0)
			snprintf(name, sizeof(name), "s%" JSON_INTEGER_FORMAT, storage);
		else
			snprintf(name, sizeof(name), "t%" JSON_INTEGER_FORMAT,
				 json_integer_value(json_array_get(v, 0)));
		if (note && json_object_set_new(note, name, json_true()))
			return import_oom(im);
		if (output)
			write = !json_object_get(args, name);
		return import_access(im, name, write);
	}
	for (i = 0; !rc && i < json_array_size(v); i++)
		rc = tensors(im, json_array_get(v, i), write, output, args, note);
	return rc;
}

/* Does the schema mark argument i (counting those with values) as written? */
static bool written(const char *schema, size_t i)
{
	const char *p = strchr(schema, '(');
	int depth = 0;
	size_t arg = 0;
	bool star = false, mark = false;

	for (p = p ? p + 1 : ""; *p; p++) {
		if (*p == '(' || *p == '[') {
			depth++;
		} else if ((*p == ')' || *p == ']') && depth) {
			depth--;
		} else if ((*p == ',' || *p == ')') && !depth) {
			if (!star && arg++ == i)
				return mark;
			if (*p == ')')
				break;
			star = mark = false;
		} else if (*p == '!') {
			mark = true;
		} else if (*p == '*' && !depth) {
			star = true;
		}
	}
	return false;
}

/* Schema 1.0 has the lists themselves, 1.1 has them under "values". */
static const json_t *values(const json_t *node, const char *key)
{
	const json_t *v = json_object_get(node, key);

	return json_is_object(v) ? json_object_get(v, "values") : v;
}

static const char *schema_of(const json_t *node)
{
	const char *s = json_string_value(json_object_get(node, "op_schema")), *name;
	const json_t *attrs = json_object_get(node, "attrs");
	size_t i;

	for (i = 0; !s && i < json_array_size(attrs); i++) {
		const json_t *a = json_array_get(attrs, i);

		name = json_string_value(json_object_get(a, "name"));
		if (name && !strcmp(name, "op_schema"))
			s = json_string_value(json_object_get(a, "value"));
	}
	return s ? s : "";
}

/* A field of a node, or an attribute: generations differ. */
static const json_t *field(const json_t *node, const char *key)
{
	const json_t *f = json_object_get(node, key), *attrs = json_object_get(node, "attrs");
	size_t i;

	for (i = 0; !f && i < json_array_size(attrs); i++) {
		const json_t *a = json_array_get(attrs, i);
		const char *name = json_string_value(json_object_get(a, "name"));

		if (name && !strcmp(name, key))
			f = json_object_get(a, "value");
	}
	return f;
}

static json_int_t parent_of(const json_t *node)
{
	const json_t *p = json_object_get(node, "ctrl_deps");

	return json_integer_value(p ? p : json_object_get(node, "parent"));
}

static int node_cmp(const void *a, const void *b)
{
	json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "id"));
	json_int_t y = json_integer_value(json_object_get(*(json_t *const *)b, "id"));

	return x < y ? -1 : x > y;
}

/* A node of the trace. */
struct node {
	json_int_t id;
	size_t parent;		/* its place, or NONE */
	size_t child, next;	/* places in the order of ids, or NONE */
	uint32_t depth;		/* 1 + that of its parent */
	json_int_t correlation;	/* of a kernel and its launch, or 0 */
	double seconds;		/* measured, or 0 */
	double kernels;		/* of the kernels of an op */
	bool light;		/* it only allocates, views, fills or copies, or is no operator */
	bool kernel;		/* ran on a GPU */
	bool call;		/* of the GPU's runtime */
	bool operator;
	bool op;
};

#define NONE SIZE_MAX
#define DEEPEST 10000u		/* so that a walk from a node to its root is short */

/* Does the operator only allocate, view, fill or copy tensors? */
static bool is_light(const char *name)
{
	static const char *const names[] = {
		"_conj", "_reshape_alias", "_to_copy", "_unsafe_view", "alias", "as_strided", "as_strided_",
		"chunk", "clone", "contiguous", "copy_", "detach", "detach_", "diagonal", "empty",
		"empty_like", "empty_strided", "expand", "expand_as", "fill_", "flatten", "full", "lift_fresh",
		"movedim", "narrow", "new_empty", "new_empty_strided", "new_zeros", "ones", "permute",
		"reshape", "resize_", "resolve_conj", "resolve_neg", "select", "set_", "slice", "split",
		"squeeze", "squeeze_", "swapaxes", "t", "to", "transpose", "transpose_", "unbind", "unflatten",
		"unfold", "unsqueeze", "unsqueeze_", "view", "view_as", "zero_", "zeros", "zeros_like",
	};
	size_t i;

	if (!strncmp(name, "aten::", 6))
		name += 6;
	else if (strncmp(name, "detach", 6))
		return false;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

static double number_of(const json_t *node, const char *key)
{
	return json_number_value(field(node, key));
}

static const char *text_of(const json_t *text)
{
	const char *s = json_string_value(text);

	return s ? s : "";
}

/* What does not fit correlates with nothing. */
static json_int_t correlation_of(double v)
{
	return v > -9e18 && v < 9e18 ? (json_int_t)v : 0;
}

static struct node node_make(const char *name, const char *cat, double us)
{
	struct node n = { .parent = NONE, .child = NONE, .next = NONE, .seconds = us > 0 ? us / 1e6 : 0 };

	n.kernel = !strcmp(cat, "kernel") || !strncmp(cat, "gpu_mem", 7);
	n.operator = !n.kernel && !strncmp(name, "aten::", 6);
	n.call = !strncmp(cat, "cuda", 4);
	n.light = n.kernel || n.call || is_light(name);
	return n;
}

static void node_read(struct node *n, const json_t *json)
{
	double us = number_of(json, "inclusive_dur");

	*n = node_make(text_of(json_object_get(json, "name")), text_of(field(json, "cat")),
		       us > 0 ? us : number_of(json, "dur"));
	n->id = json_integer_value(json_object_get(json, "id"));
	n->correlation = correlation_of(number_of(json, "correlation"));
	n->operator |= !n->kernel && *schema_of(json);
}

static size_t node_find(const struct node *nodes, size_t n, json_int_t id)
{
	size_t lo = 0, hi = n, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (nodes[mid].id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && nodes[lo].id == id ? lo : NONE;
}

/* Visit the nodes below the roots, a parent before (down) or behind its children (up). */
static void tree_walk(struct node *nodes, size_t n, void (*down)(struct node *nodes, size_t i),
		      void (*up)(struct node *nodes, size_t i))
{
	size_t root, i;

	for (root = 0; root < n; root++) {
		if (nodes[root].parent != NONE)
			continue;
		for (i = root;;) {
			down(nodes, i);
			if (nodes[i].child != NONE) {
				i = nodes[i].child;
				continue;
			}
			for (up(nodes, i); i != root && nodes[i].next == NONE; up(nodes, i))
				i = nodes[i].parent;
			if (i == root)
				break;
			i = nodes[i].next;
		}
	}
}

static void nothing(struct node *nodes, size_t i)
{
	(void)nodes, (void)i;
}

/* The children of a node are done: it is an op if none of them computes. */
static void choose(struct node *nodes, size_t i)
{
	bool light = true;
	size_t k;

	for (k = nodes[i].child; k != NONE; k = nodes[k].next)
		light = light && nodes[k].light;
	/* Without children it is what the trace says; a range of a program is no operator. */
	nodes[i].op = nodes[i].child == NONE ? !nodes[i].kernel : light && nodes[i].operator;
	nodes[i].light = nodes[i].light && light;
}

/* What an op contains is no op.  A kernel counts for the op around it. */
static void spread(struct node *nodes, size_t i)
{
	size_t p = nodes[i].parent;

	if (p == NONE)
		return;
	if (nodes[p].op || nodes[p].kernels < 0) {
		nodes[i].op = false;
		nodes[i].kernels = -1;
	}
}

static int correlation_cmp(const void *a, const void *b)
{
	const struct node *x = *(struct node *const *)a, *y = *(struct node *const *)b;

	return x->correlation < y->correlation ? -1 : x->correlation > y->correlation;
}

/* Move each kernel to the node that launched it, which has the same correlation. */
static int kernels_move(struct import *im, struct node *nodes, size_t n)
{
	struct node **launch = calloc(n + 1, sizeof(*launch)), **found;
	size_t i, m = 0;

	if (!launch)
		return import_oom(im);
	for (i = 0; i < n; i++)
		if (nodes[i].correlation && !nodes[i].kernel)
			launch[m++] = &nodes[i];
	qsort(launch, m, sizeof(*launch), correlation_cmp);
	for (i = 0; i < n; i++) {
		const struct node *key = &nodes[i];

		if (!key->kernel || !key->correlation)
			continue;
		found = bsearch(&key, launch, m, sizeof(*launch), correlation_cmp);
		if (found)
			nodes[i].parent = (size_t)(*found - nodes);
	}
	free(launch);
	return 0;
}

static void deepen(struct node *nodes, size_t i)
{
	nodes[i].depth = 1 + (nodes[i].parent == NONE ? 0 : nodes[nodes[i].parent].depth);
}

/* The parents are known: link the children of each node. */
static int tree_link(struct import *im, struct node *nodes, size_t n)
{
	int rc = kernels_move(im, nodes, n);
	size_t i, p;

	for (i = n; !rc && i-- > 0;) {
		p = nodes[i].parent;
		if (p == NONE)
			continue;
		nodes[i].next = nodes[p].child;
		nodes[p].child = i;
	}
	if (!rc)
		tree_walk(nodes, n, deepen, nothing);
	for (i = 0; !rc && i < n; i++)
		if (!nodes[i].depth || nodes[i].depth > DEEPEST)
			rc = import_refuse(im, nodes[i].depth ? "nests more than 10000 deep" :
					   "nodes contain each other", NULL);
	return rc;
}

static int tree_make(struct import *im, const json_t **sorted, struct node *nodes, size_t n)
{
	size_t i, p;

	for (i = 0; i < n; i++) {
		p = node_find(nodes, n, parent_of(sorted[i]));
		nodes[i].parent = p == i ? NONE : p;
	}
	return tree_link(im, nodes, n);
}

/* How much of the measured time belongs to ops: of kernels, if there are any, or of operators. */
static void cover(struct recording *r, struct node *nodes, size_t n)
{
	double kernels = 0, all = 0, ops_kernels = 0, ops = 0;
	size_t i, p;

	for (i = 0; i < n; i++) {
		if (nodes[i].kernel) {
			kernels += nodes[i].seconds;
			for (p = nodes[i].parent; p != NONE && !nodes[p].op; p = nodes[p].parent)
				;
			if (p != NONE) {
				nodes[p].kernels += nodes[i].seconds;
				ops_kernels += nodes[i].seconds;
			}
			continue;
		}
		ops += nodes[i].op ? nodes[i].seconds : 0;
		for (p = nodes[i].parent; p != NONE && !nodes[p].operator; p = nodes[p].parent)
			;
		all += nodes[i].operator && p == NONE ? nodes[i].seconds : 0;
	}
	if (kernels > 0)
		r->covered = ops_kernels / kernels;
	else
		r->covered = all > 0 ? ops < all ? ops / all : 1 : -1;
}

static void ops_choose(struct node *nodes, size_t n)
{
	tree_walk(nodes, n, nothing, choose);
	tree_walk(nodes, n, spread, nothing);
}

/*
 * What launches kernels itself, and contains operators that are ops, or is no operator, is an op
 * with these kernels alone.
 */
static void launchers_choose(struct recording *r, struct node *nodes, size_t n)
{
	size_t i, p;

	for (i = 0; i < n; i++) {
		nodes[i].kernels = 0;
		if (!nodes[i].kernel || !(nodes[i].seconds > 0) || nodes[i].parent == NONE)
			continue;
		for (p = nodes[i].parent; p != NONE && !nodes[p].op; p = nodes[p].parent)
			;
		if (p != NONE)
			continue;
		for (p = nodes[i].parent; nodes[p].call && nodes[p].parent != NONE; p = nodes[p].parent)
			;
		nodes[p].op = true;
	}
	cover(r, nodes, n);
}

static int node_add(struct import *im, const json_t *node, double seconds)
{
	const char *name = json_string_value(json_object_get(node, "name"));
	const json_t *in = values(node, "inputs"), *out = values(node, "outputs");
	const char *schema = schema_of(node);
	json_t *args = json_object();
	size_t i, had = im->r->naccesses;
	int rc;

	rc = args ? import_op(im, name ? name : "", seconds, 0) : import_oom(im);
	for (i = 0; !rc && i < json_array_size(in); i++)
		rc = tensors(im, json_array_get(in, i), written(schema, i), false, NULL, args);
	for (i = 0; !rc && i < json_array_size(out); i++)
		rc = tensors(im, json_array_get(out, i), false, true, args, NULL);
	json_decref(args);
	/* Without tensors it is not an op. */
	if (!rc && im->r->naccesses == had)
		im->r->nops--;
	return rc;
}

int import_pytorch(struct import *im, const json_t *root)
{
	const json_t *list = json_object_get(root, "nodes");
	size_t n = json_array_size(list), i;
	const json_t **sorted = calloc(n + 1, sizeof(json_t *));
	struct node *nodes = calloc(n + 1, sizeof(*nodes));
	int rc = sorted && nodes ? 0 : import_oom(im);

	for (i = 0; !rc && i < n; i++) {
		sorted[i] = json_array_get(list, i);
		if (!json_is_integer(json_object_get(sorted[i], "id")))
			rc = import_refuse(im, "a node without an id", NULL);
	}
	if (!rc) {
		qsort(sorted, n, sizeof(*sorted), node_cmp);
		for (i = 0; i < n; i++)
			node_read(&nodes[i], sorted[i]);
		for (i = 1; !rc && i < n; i++)
			if (nodes[i].id == nodes[i - 1].id)
				rc = import_refuse(im, "two nodes of one id", NULL);
	}
	if (!rc)
		rc = tree_make(im, sorted, nodes, n);
	if (!rc) {
		ops_choose(nodes, n);
		launchers_choose(im->r, nodes, n);
	}
	for (i = 0; !rc && i < n; i++) {
		size_t before = im->r->nops;

		if (!nodes[i].op)
			continue;
		rc = node_add(im, sorted[i], nodes[i].kernels > 0 ? nodes[i].kernels :
			      nodes[i].seconds);
		nodes[i].op = im->r->nops > before;	/* without tensors it is none */
	}
	cover(im->r, nodes, rc ? 0 : n);
	free(sorted);
	free(nodes);
	im->r->format = "pytorch-et";
	return rc;
}

/* --- traces of Chrome --- */

/* A slice of a track, which is a thread or a stream of a GPU.  Sorted, its node has the same place. */
struct slice {
	const char *name, *cat;
	double ts, end;		/* us */
	json_int_t correlation;
	uint32_t track;
	uint32_t op;		/* its number in the recording, or REC_NONE; while open, what is around it */
};

/* An end of an arrow. */
struct flow {
	const char *cat, *id;	/* its name; or "" and a number */
	double number, ts;
	uint32_t track;
	bool begin;
	size_t place;		/* in the file */
};

struct chrome {
	struct import *im;
	json_t *tracks;		/* names -> numbers */
	struct slice *slices;
	struct node *nodes;
	struct flow *flows;
	uint32_t *open;		/* of each track: the innermost slice without an end, or REC_NONE */
	size_t n, cap, nflows, capflows, nopen, capopen;
	bool pawl;		/* pawl's own: arrows are its only order */
};

static int slice_cmp(const void *a, const void *b)
{
	const struct slice *x = a, *y = b;

	return x->track != y->track ? (x->track < y->track ? -1 : 1) :
	       x->ts < y->ts || x->ts > y->ts ? (x->ts < y->ts ? -1 : 1) :
	       x->end < y->end || x->end > y->end ? (x->end > y->end ? -1 : 1) : 0;
}

static int start_cmp(const void *a, const void *b, void *slices)
{
	const struct slice *s = slices, *x = &s[*(const size_t *)a], *y = &s[*(const size_t *)b];

	return x->ts < y->ts ? -1 : x->ts > y->ts ? 1 : x < y ? -1 : x > y;
}

/* A name of what an event belongs to: numbers and texts are both allowed. */
static void name_add(char *out, size_t size, const json_t *v)
{
	size_t n = strlen(out);

	if (json_is_string(v))
		snprintf(out + n, size - n, "/%.60s", json_string_value(v));
	else
		snprintf(out + n, size - n, "/%.17g", json_number_value(v));
}

/* The number of the event's track; UINT32_MAX without memory. */
static uint32_t track_of(struct chrome *c, const json_t *event)
{
	char name[160] = "";
	const json_t *known;
	size_t n;

	name_add(name, sizeof(name), json_object_get(event, "pid"));
	name_add(name, sizeof(name), json_object_get(event, "tid"));
	known = json_object_get(c->tracks, name);
	n = json_object_size(c->tracks);
	if (known)
		return (uint32_t)json_integer_value(known);
	return json_object_set_new(c->tracks, name, json_integer((json_int_t)n)) ? UINT32_MAX :
	       (uint32_t)n;
}

struct chrome *chrome_open(struct import *im)
{
	struct chrome *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->im = im;
	c->tracks = json_object();
	return c;
}

void chrome_close(struct chrome *c)
{
	if (!c)
		return;
	json_decref(c->tracks);
	free(c->slices);
	free(c->nodes);
	free(c->flows);
	free(c->open);
	free(c);
}

bool chrome_empty(const struct chrome *c)
{
	return !c->n && !c->nflows;
}

static bool is_time(double us)
{
	return us > -1e15 && us < 1e15;
}

static int slice_read(struct chrome *c, const json_t *e, double ts, double dur, uint32_t track)
{
	int rc = import_room(c->im, (void **)&c->slices, c->n, &c->cap, sizeof(*c->slices));

	if (!rc)
		c->slices[c->n++] = (struct slice){
			.name = import_name(c->im, text_of(json_object_get(e, "name"))),
			.cat = import_name(c->im, text_of(json_object_get(e, "cat"))),
			.ts = ts, .end = ts + dur, .track = track, .op = REC_NONE,
			.correlation = correlation_of(json_number_value(
				json_object_get(json_object_get(e, "args"), "correlation"))),
		};
	return rc;
}

/* A slice of two events.  It is open until its end is read. */
static int slice_begin(struct chrome *c, const json_t *e, double ts, uint32_t track)
{
	int rc = 0;

	while (!rc && c->nopen <= track) {
		rc = import_room(c->im, (void **)&c->open, c->nopen, &c->capopen, sizeof(*c->open));
		if (!rc)
			c->open[c->nopen++] = REC_NONE;
	}
	if (!rc)
		rc = slice_read(c, e, ts, -1, track);
	if (rc)
		return rc;
	c->slices[c->n - 1].op = c->open[track];
	c->open[track] = (uint32_t)c->n - 1;
	return 0;
}

static void slice_end(struct chrome *c, double ts, uint32_t track)
{
	uint32_t i = track < c->nopen ? c->open[track] : REC_NONE;

	if (i == REC_NONE) {
		c->im->r->nonsense++;
		return;
	}
	c->open[track] = c->slices[i].op;
	c->slices[i].op = REC_NONE;
	c->slices[i].end = ts;
}

/* Drop the slices without an end, and those that end before they begin. */
static void slices_close(struct chrome *c)
{
	size_t i, n = 0;

	for (i = 0; i < c->n; i++)
		if (c->slices[i].end >= c->slices[i].ts)
			c->slices[n++] = c->slices[i];
	for (i = 0; i < n; i++)
		c->slices[i].op = REC_NONE;
	c->im->r->nonsense += c->n - n;
	c->n = n;
}

static int flow_read(struct chrome *c, const json_t *e, double ts, uint32_t track, bool begin)
{
	const json_t *id = json_object_get(e, "id");
	int rc = import_room(c->im, (void **)&c->flows, c->nflows, &c->capflows, sizeof(*c->flows));

	if (rc)
		return rc;
	c->flows[c->nflows] = (struct flow){
		.cat = import_name(c->im, text_of(json_object_get(e, "cat"))),
		.id = import_name(c->im, text_of(id)), .number = json_number_value(id), .ts = ts,
		.track = track, .begin = begin, .place = c->nflows };
	c->nflows++;
	return 0;
}

int chrome_event(struct chrome *c, const json_t *e)
{
	const char *ph = text_of(json_object_get(e, "ph"));
	const json_t *at = json_object_get(e, "ts"), *took = json_object_get(e, "dur");
	double ts = json_number_value(at), dur = json_number_value(took);
	uint32_t track;

	if (!*ph || ph[1] || !strchr("XBEsf", *ph))
		return 0;
	if (!json_is_number(at) || !is_time(ts) ||
	    (*ph == 'X' && took && !(json_is_number(took) && dur >= 0 && is_time(dur)))) {
		c->im->r->nonsense++;
		return 0;
	}
	track = track_of(c, e);
	if (track == UINT32_MAX || c->n >= REC_NONE - 1)
		return import_oom(c->im);
	switch (*ph) {
	case 'X':
		return slice_read(c, e, ts, dur, track);
	case 'B':
		return slice_begin(c, e, ts, track);
	case 'E':
		slice_end(c, ts, track);
		return 0;
	default:
		return flow_read(c, e, ts, track, *ph == 's');
	}
}

/* What contains a slice on its track is its parent, and what launched a kernel that of the kernel. */
static int slices_nest(struct chrome *c)
{
	size_t i, open = NONE;

	for (i = 0; i < c->n; i++) {
		const struct slice *s = &c->slices[i];
		struct node *node = &c->nodes[i];

		*node = node_make(s->name, s->cat, s->end - s->ts);
		node->correlation = s->correlation;
		while (open != NONE && (c->slices[open].track != s->track || c->slices[open].end <= s->ts ||
					c->slices[open].end < s->end))
			open = c->nodes[open].parent;
		if (node->kernel)
			continue;
		node->parent = open;
		open = i;
	}
	return tree_link(c->im, c->nodes, c->n);
}

/*
 * Which slices are ops?  In a trace of torch.profiler the operators, as in an execution trace; in
 * one of pawl the bodies, without what they contain; else those that contain no other.
 */
static void slices_choose(struct chrome *c)
{
	bool operators = false;
	size_t i;

	for (i = 0; i < c->n; i++) {
		c->nodes[i].operator |= !strcmp(c->slices[i].cat, "cpu_op");
		operators |= c->nodes[i].operator;
	}
	ops_choose(c->nodes, c->n);
	for (i = 0; i < c->n && operators; i++)
		c->nodes[i].op &= c->nodes[i].operator;
	for (i = 0; i < c->n && c->pawl; i++) {
		const char *cat = c->slices[i].cat;

		c->nodes[i].op = !strcmp(cat, "op") || !strcmp(cat, "start");
		if (c->nodes[i].parent != NONE)
			c->nodes[c->nodes[i].parent].seconds -= (c->slices[i].end - c->slices[i].ts) / 1e6;
	}
	launchers_choose(c->im->r, c->nodes, c->n);
	if (!operators)
		c->im->r->covered = 0;		/* it has nothing but ops */
}

/* The ops in the order of their starts.  Those of a track follow each other. */
static int slices_add(struct chrome *c)
{
	size_t *order = calloc(c->n + 1, sizeof(*order)), i, n = 0;
	int rc = order ? 0 : import_oom(c->im);
	char track[32];

	for (i = 0; !rc && i < c->n; i++)
		if (c->nodes[i].op)
			order[n++] = i;
	if (n)
		qsort_r(order, n, sizeof(*order), start_cmp, c->slices);
	for (i = 0; !rc && i < n; i++) {
		const struct node *node = &c->nodes[order[i]];

		c->slices[order[i]].op = (uint32_t)c->im->r->nops;
		snprintf(track, sizeof(track), "thread%" PRIu32, c->slices[order[i]].track);
		rc = import_op(c->im, c->slices[order[i]].name,
			       node->kernels > 0 ? node->kernels : node->seconds, 0);
		if (!rc && !c->pawl)
			rc = import_access(c->im, track, true);
	}
	free(order);
	return rc;
}

/* The op that runs on the track of an end of an arrow at its time, or REC_NONE. */
static uint32_t op_at(struct chrome *c, const struct flow *f)
{
	struct slice key = { .track = f->track, .ts = f->ts, .end = -1 };
	size_t lo = 0, hi = c->n, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (slice_cmp(&c->slices[mid], &key) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || c->slices[lo - 1].track != key.track)
		return REC_NONE;
	for (lo--; lo != NONE && (c->slices[lo].op == REC_NONE || c->slices[lo].end < key.ts);)
		lo = c->nodes[lo].parent;
	return lo == NONE ? REC_NONE : c->slices[lo].op;
}

/* Texts are kept once each, so that equal ones have one address. */
static int flow_cmp(const void *a, const void *b)
{
	const struct flow *x = a, *y = b;

	return x->cat != y->cat ? (x->cat < y->cat ? -1 : 1) :
	       x->id != y->id ? (x->id < y->id ? -1 : 1) :
	       x->number < y->number || x->number > y->number ? (x->number < y->number ? -1 : 1) :
	       x->begin != y->begin ? (x->begin ? -1 : 1) :
	       x->place < y->place ? -1 : x->place > y->place;
}

static int edge_cmp(const void *a, const void *b)
{
	const struct rec_edge *x = a, *y = b;

	return x->after != y->after ? (x->after < y->after ? -1 : 1) :
	       x->before != y->before ? (x->before < y->before ? -1 : 1) : 0;
}

/* An arrow from one op to a later one is a dependence.  Of two begins the last one counts. */
static int flows_read(struct chrome *c)
{
	struct recording *r = c->im->r;
	uint32_t from = REC_NONE, op;
	size_t i, n;
	int rc = 0;

	if (c->nflows)
		qsort(c->flows, c->nflows, sizeof(*c->flows), flow_cmp);
	for (i = 0; !rc && i < c->nflows; i++) {
		const struct flow *f = &c->flows[i], *last = f - 1;

		if (!i || f->cat != last->cat || f->id != last->id || f->number < last->number ||
		    f->number > last->number)
			from = REC_NONE;
		op = op_at(c, f);
		if (op == REC_NONE)
			continue;
		if (f->begin) {
			from = op;
		} else if (from < op) {
			rc = import_room(c->im, (void **)&r->edges, r->nedges, &c->im->capedges,
					 sizeof(*r->edges));
			if (!rc)
				r->edges[r->nedges++] = (struct rec_edge){ from, op };
		}
	}
	if (rc || !r->nedges)
		return rc;
	qsort(r->edges, r->nedges, sizeof(*r->edges), edge_cmp);
	for (i = 0, n = 0; i < r->nedges; i++)
		if (!n || edge_cmp(&r->edges[n - 1], &r->edges[i]))
			r->edges[n++] = r->edges[i];
	r->nedges = n;
	r->told = calloc(n, sizeof(*r->told));
	if (!r->told)
		return import_oom(c->im);
	memset(r->told, true, n * sizeof(*r->told));
	r->ntold = n;
	return 0;
}

int import_chrome(struct chrome *c, const json_t *root)
{
	int rc = 0;

	c->pawl = json_object_get(json_object_get(root, "otherData"), "arrows_missing");
	slices_close(c);
	if (c->n)
		qsort(c->slices, c->n, sizeof(*c->slices), slice_cmp);
	c->nodes = calloc(c->n + 1, sizeof(*c->nodes));
	rc = c->nodes ? slices_nest(c) : import_oom(c->im);
	if (!rc) {
		slices_choose(c);
		rc = slices_add(c);
	}
	if (!rc)
		rc = flows_read(c);
	c->im->r->format = "chrome";
	return rc;
}
