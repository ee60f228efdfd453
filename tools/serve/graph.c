// SPDX-License-Identifier: Apache-2.0
/*
 * graph.c - loading a model: memory of the graph, constants, and merged operators.
 *
 * Blocking: it allocates and reads files.
 */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <base/atomic.h>
#include "oper.h"
#include "ort.h"

static u64 limit = (u64)4 << 30;		/* A */

void serve_model_limit(uint64_t bytes)
{
	store_relaxed(&limit, bytes);
}

void *aligned(size_t bytes)
{
	if (bytes > load_relaxed(&limit))
		return NULL;
	/* A vector's width more, for kernels that read whole vectors. */
	return aligned_alloc(64, (bytes + 127) & ~(size_t)63);
}

/* Grow an array by doubling: every power of two, from 16. */
static void *grown(void *array, unsigned int n, size_t size)
{
	if (n && (n < 16 || (n & (n - 1))))
		return array;
	return realloc(array, (n < 16 ? 16 : 2 * (size_t)n) * size);
}

int graph_value(struct graph *g, const char *name, size_t len)
{
	struct value *v = grown(g->value, g->nvalues, sizeof(*v));

	if (!v)
		return -ENOMEM;
	g->value = v;
	v += g->nvalues;
	memset(v, 0, sizeof(*v));
	v->producer = -1;
	v->name = strndup(name, len);
	if (!v->name)
		return -ENOMEM;
	return (int)g->nvalues++;
}

struct node *graph_node(struct graph *g, enum op op, const char *type, const char *name,
			unsigned int nin)
{
	struct node *n = grown(g->node, g->nnodes, sizeof(*n));
	unsigned int i;

	if (!n)
		return NULL;
	g->node = n;
	n += g->nnodes;
	memset(n, 0, sizeof(*n));
	n->op = op;
	n->type = type;
	n->nin = nin;
	n->name = strdup(name);
	n->in = calloc(nin ? nin : 1, sizeof(*n->in));
	if (!n->name || !n->in) {
		free(n->name);
		free(n->in);
		return NULL;
	}
	for (i = 0; i < nin; i++)
		n->in[i] = -1;
	n->out = -1;
	n->a.group = 1;
	for (i = 0; i < 2; i++)
		n->a.kernel[i] = n->a.stride[i] = n->a.dilation[i] = 1;
	g->nnodes++;
	return n;
}

static int give_data(struct graph *g, struct value *v)
{
	size_t bytes;

	if (dims_bytes(v->type, v->rank, v->dims, &bytes) || g->m.bytes > g->limit ||
	    bytes > g->limit - g->m.bytes)
		return refuse(g, -EINVAL, "constant '%s' is too large", v->name);
	v->data = aligned(bytes);
	if (!v->data)
		return refuse(g, -ENOMEM, "no memory for constant '%s'", v->name);
	g->m.bytes += bytes;
	return 0;
}

int graph_const(struct graph *g, const char *name, enum serve_type type, unsigned int rank,
		const int64_t *dims)
{
	int v = graph_value(g, name, strlen(name)), rc;

	if (v < 0)
		return refuse(g, v, "no memory");
	g->value[v].type = type;
	g->value[v].rank = rank;
	memcpy(g->value[v].dims, dims, rank * sizeof(*dims));
	rc = give_data(g, &g->value[v]);
	return rc ? rc : v;
}

/* ---- what blocks a model ----------------------------------------------------- */

#define MOST_BLOCKED 20000

static bool same_blocker(const struct blocker *a, const char *what, const char *why)
{
	return !strcmp(a->what, what) && !strcmp(a->why, why);
}

int graph_block(struct graph *g, const char *what, const char *node, const char *fmt, ...)
{
	struct blocker *b;
	char text[512];
	unsigned int i;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (i = g->nblocked; i-- > 0 && !strcmp(g->blocked[i].node, node); )
		if (same_blocker(&g->blocked[i], what, text))
			return -ENOTSUP;
	b = g->nblocked < MOST_BLOCKED ? grown(g->blocked, g->nblocked, sizeof(*b)) : NULL;
	if (!b)
		return -ENOTSUP;
	g->blocked = b;
	b += g->nblocked;
	*b = (struct blocker){ strdup(what), strdup(node), strdup(text) };
	if (b->what && b->node && b->why) {
		g->nblocked++;
	} else {
		free(b->what);
		free(b->node);
		free(b->why);
	}
	return -ENOTSUP;
}

/* Add to a text, as far as there is room. */
static void __attribute__((format(printf, 4, 5)))
add(char *to, size_t size, size_t *at, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(*at < size ? to + *at : NULL, *at < size ? size - *at : 0, fmt, ap);
	va_end(ap);
	*at += n > 0 ? (size_t)n : 0;
}

/* One thing, with those that have it: at most so many of their names. */
static void add_blocker(const struct graph *g, unsigned int i, unsigned int names, size_t *at)
{
	const struct blocker *b = &g->blocked[i];
	unsigned int k, n = 0;

	add(g->err, g->errsize, at, "%s", b->what);
	for (k = i; k < g->nblocked; k++)
		if (*g->blocked[k].node && same_blocker(&g->blocked[k], b->what, b->why) &&
		    n++ < names)
			add(g->err, g->errsize, at, "%s '%s'", n == 1 ? "" : ",",
			    g->blocked[k].node);
	if (n > names)
		add(g->err, g->errsize, at, " and %u more", n - names);
	if (*b->why)
		add(g->err, g->errsize, at, ": %s", b->why);
}

/* All that blocks it as the error, with the names of as many nodes as there is room for. */
static int blocked(struct graph *g)
{
	static const unsigned int most[] = { UINT_MAX, 8, 2, 1 };
	unsigned int round, i, k;
	char *copy;
	size_t at;

	for (round = 0, at = g->errsize; round < 4 && at >= g->errsize; round++) {
		at = 0;
		add(g->err, g->errsize, &at, "%s: pawl lacks", g->file);
		for (i = 0; i < g->nblocked; i++) {
			for (k = 0; !same_blocker(&g->blocked[k], g->blocked[i].what,
						  g->blocked[i].why); k++)
				;
			if (k < i)
				continue;
			add(g->err, g->errsize, &at, i ? "; " : " ");
			add_blocker(g, i, most[round], &at);
		}
	}
	/* names come from the file */
	copy = strdup(g->err);
	if (copy)
		file_err(g->err, g->errsize, 0, "%s", copy);
	free(copy);
	return -ENOTSUP;
}

/* ---- constants -------------------------------------------------------------- */

static int fold(struct graph *g, struct node *n)
{
	struct shape shape[MAX_INPUTS], os;
	const struct shape *shapes[MAX_INPUTS] = { NULL };	/* those left out, too */
	struct view view[MAX_INPUTS], ov;
	const struct view *views[MAX_INPUTS] = { NULL };
	struct value *out;
	unsigned int i;
	char text[256];
	int rc;

	if (!kernel_has(n->op))
		return 0;
	for (i = 0; i < n->nin; i++) {
		const struct value *v;

		shapes[i] = NULL;
		views[i] = NULL;
		if (n->in[i] < 0)
			continue;
		v = &g->value[n->in[i]];
		if (!v->data)
			return 0;
		shape[i] = (struct shape){ .type = v->type, .rank = v->rank, .data = v->data };
		memcpy(shape[i].dims, v->dims, sizeof(v->dims));
		view_of(&view[i], v->type, v->rank, v->dims, false, v->data);
		shapes[i] = &shape[i];
		views[i] = &view[i];
	}
	rc = shape_of(n, shapes, &os, text, sizeof(text));
	if (rc)
		return refuse(g, rc, "%s", text);
	out = &g->value[n->out];
	out->type = os.type;
	out->rank = os.rank;
	memcpy(out->dims, os.dims, sizeof(os.dims));
	rc = give_data(g, out);
	if (rc)
		return rc;
	view_of(&ov, os.type, os.rank, os.dims, false, out->data);
	rc = kernel_run(n, &ov, views);
	return rc ? refuse(g, rc, "operator %s '%s': its constant input is out of range",
			   n->type, n->name) :
		    0;
}

/* ---- merged operators ------------------------------------------------------- */

/* How often each value is used, an output of the model counting twice. */
static unsigned int *uses_of(const struct graph *g)
{
	/* and room for the constants that a pass adds */
	unsigned int *uses = calloc(g->nvalues + 4 * (size_t)g->nnodes + 1, sizeof(*uses)), i,
		     k;

	if (!uses)
		return NULL;
	for (i = 0; i < g->nnodes; i++)
		for (k = 0; k < g->node[i].nin; k++)
			if (g->node[i].in[k] >= 0)
				uses[g->node[i].in[k]]++;
	for (i = 0; i < g->m.noutputs; i++)
		uses[g->out[i]] += 2;
	return uses;
}

static const float *floats(const struct graph *g, int v)
{
	return v >= 0 && g->value[v].type == SERVE_FP32 ? g->value[v].data : NULL;
}

/* Make node n's output what a node before it computes: n is no longer needed. */
static void take_output(struct graph *g, struct node *before, struct node *n)
{
	before->out = n->out;
	g->value[n->out].producer = (int)(before - g->node);
	n->out = -1;
	n->nin = 0;
}

/* Weights times k and bias times k plus b, per output channel; k and b may be NULL. */
static int scale_conv(struct graph *g, struct node *conv, const unsigned int *uses,
		      const float *k, const float *b)
{
	struct value w = g->value[conv->in[1]];
	int64_t c, i, channels = w.dims[0], each = count(w.rank - 1, w.dims + 1);
	const float *old;
	float *new;
	int v;

	if (k) {
		v = conv->in[1];
		if (uses[v] > 1)
			v = graph_const(g, w.name, SERVE_FP32, w.rank, w.dims);
		if (v < 0)
			return v;
		new = g->value[v].data;
		old = w.data;
		for (c = 0; c < channels; c++)
			for (i = 0; i < each; i++)
				new[c * each + i] = old[c * each + i] * k[c];
		conv->in[1] = v;
	}
	v = graph_const(g, conv->name, SERVE_FP32, 1, &channels);
	if (v < 0)
		return v;
	new = g->value[v].data;
	old = floats(g, conv->in[2]);
	for (c = 0; c < channels; c++)
		new[c] = (old ? old[c] : 0) * (k ? k[c] : 1) + (b ? b[c] : 0);
	conv->in[2] = v;
	return 0;
}

static bool conv_constant(const struct graph *g, const struct node *n)
{
	return n->op == OP_CONV && floats(g, n->in[1]) && g->value[n->in[1]].rank > 2 &&
		(n->in[2] < 0 || (floats(g, n->in[2]) && g->value[n->in[2]].rank == 1 &&
				  g->value[n->in[2]].dims[0] == g->value[n->in[1]].dims[0])) &&
		!n->a.act;
}

/* A batch normalization with constants becomes a factor and a term per channel. */
static int constant_norm(struct graph *g, struct node *n)
{
	const float *p[5];
	int64_t channels, c;
	float *k, *b;
	int i, kv, bv;

	for (i = 1; i < 5; i++) {
		p[i] = floats(g, n->in[i]);
		if (!p[i] || g->value[n->in[i]].rank != 1 ||
		    g->value[n->in[i]].dims[0] != g->value[n->in[1]].dims[0])
			return 0;
	}
	channels = g->value[n->in[1]].dims[0];
	kv = graph_const(g, n->name, SERVE_FP32, 1, &channels);
	bv = kv < 0 ? kv : graph_const(g, n->name, SERVE_FP32, 1, &channels);
	if (bv < 0)
		return bv;
	k = g->value[kv].data;
	b = g->value[bv].data;
	for (c = 0; c < channels; c++) {
		k[c] = p[1][c] / sqrtf(p[4][c] + n->a.eps);
		b[c] = p[2][c] - p[3][c] * k[c];
	}
	n->op = OP_AFFINE;
	n->nin = 3;
	n->in[1] = kv;
	n->in[2] = bv;
	return 0;
}

/*
 * A product or sum with one constant per channel, [C, 1, 1] or [1, C, 1, 1]: returns the
 * constant and sets *x to the other input.
 */
static const float *per_channel(const struct graph *g, const struct node *n, int64_t channels,
				int *x)
{
	int i;

	for (i = 0; i < 2; i++) {
		const float *f = floats(g, n->in[i]);
		const struct value *v = &g->value[n->in[i]];
		unsigned int lead = v->rank == 4 ? 1 : 0;

		if (f && (v->rank == 3 || v->rank == 4) &&
		    v->dims[0] == (lead ? 1 : channels) && v->dims[lead] == channels &&
		    v->dims[lead + 1] == 1 && v->dims[lead + 2] == 1 &&
		    !g->value[n->in[1 - i]].data) {
			*x = n->in[1 - i];
			return f;
		}
	}
	return NULL;
}

static struct node *producer(const struct graph *g, int v)
{
	return v >= 0 && g->value[v].producer >= 0 ? &g->node[g->value[v].producer] : NULL;
}

static int merge_scale(struct graph *g, struct node *n, const unsigned int *uses)
{
	struct node *before;
	const float *f;
	int i, x, rc;

	if (n->op == OP_AFFINE) {
		before = producer(g, n->in[0]);
		if (!before || uses[n->in[0]] != 1 || !conv_constant(g, before) ||
		    g->value[before->in[1]].dims[0] != g->value[n->in[1]].dims[0])
			return 0;
		rc = scale_conv(g, before, uses, floats(g, n->in[1]), floats(g, n->in[2]));
		if (!rc)
			take_output(g, before, n);
		return rc;
	}
	if (n->op != OP_BINARY || (n->a.kind != B_ADD && n->a.kind != B_MUL))
		return 0;
	for (i = 0; i < 2; i++) {
		int64_t channels, c;

		before = producer(g, n->in[i]);
		if (!before || uses[n->in[i]] != 1 ||
		    (before->op != OP_AFFINE && !conv_constant(g, before)) || before->a.act)
			continue;
		/* in three dimensions these constants are along another axis */
		if (before->op == OP_AFFINE && g->value[before->in[0]].rank != 4)
			continue;
		channels = g->value[before->in[1]].dims[0];
		f = per_channel(g, n, channels, &x);
		if (!f || x != n->in[i])
			continue;
		if (before->op == OP_CONV) {
			if (g->value[before->in[1]].rank != 4)
				continue;
			rc = scale_conv(g, before, uses, n->a.kind == B_MUL ? f : NULL,
					n->a.kind == B_ADD ? f : NULL);
			if (rc)
				return rc;
		} else {
			/* its own constants: constant_norm() made them */
			float *k = g->value[before->in[1]].data,
			      *b = g->value[before->in[2]].data;

			for (c = 0; c < channels; c++) {
				if (n->a.kind == B_MUL) {
					k[c] *= f[c];
					b[c] *= f[c];
				} else {
					b[c] += f[c];
				}
			}
		}
		take_output(g, before, n);
		return 0;
	}
	return 0;
}

static void merge_act(struct graph *g, struct node *n, const unsigned int *uses)
{
	struct node *before, *s;
	int i;

	if (n->op == OP_BINARY && n->a.kind == B_MUL) {
		/* x * sigmoid(x) */
		for (i = 0; i < 2; i++) {
			s = producer(g, n->in[i]);
			if (!s || s->op != OP_UNARY || s->a.kind != U_SIGMOID ||
			    uses[n->in[i]] != 1 || s->in[0] != n->in[1 - i])
				continue;
			n->op = OP_UNARY;
			n->a.kind = U_SWISH;
			n->in[0] = s->in[0];
			n->nin = 1;
			s->nin = 0;
			before = producer(g, n->in[0]);
			/* that was the second use */
			if (before && before->op == OP_CONV && uses[n->in[0]] == 2 &&
			    !before->a.act && prim_fuses(U_SWISH)) {
				before->a.act = U_SWISH;
				take_output(g, before, n);
			}
			return;
		}
		return;
	}
	if (n->op != OP_UNARY)
		return;
	before = producer(g, n->in[0]);
	if (!before || uses[n->in[0]] != 1 || before->a.act)
		return;
	if ((before->op == OP_BINARY || (before->op == OP_SUM && before->nin == 2)) &&
	    before->a.kind == B_ADD && n->a.kind == U_RELU) {
		before->a.kind = B_ADD_RELU;
		take_output(g, before, n);
		return;
	}
	if (before->op == OP_AFFINE ? n->a.kind != U_RELU :
	    (before->op != OP_CONV && before->op != OP_GEMM) || !prim_fuses(n->a.kind) ||
	    /* oneDNN refuses such bounds */
	    (n->a.kind == U_CLIP && !(n->a.alpha <= n->a.beta)))
		return;
	before->a.act = n->a.kind;
	before->a.act_alpha = n->a.alpha;
	before->a.act_beta = n->a.beta;
	take_output(g, before, n);
}

/* Are the constants consecutive integers along the last axis?  Sets *first. */
static bool counts_up(const struct value *v, int64_t n, int64_t *first)
{
	int64_t i, x;

	if (!v->data || !v->rank || v->dims[v->rank - 1] != n || count(v->rank, v->dims) != n ||
	    (v->type != SERVE_INT32 && v->type != SERVE_INT64))
		return false;
	for (i = 0; i < n; i++) {
		x = v->type == SERVE_INT32 ? ((const int32_t *)v->data)[i] :
			((const int64_t *)v->data)[i];
		if (!i)
			*first = x;
		if (x < *first || x - *first != i)
			return false;
	}
	return true;
}

/* A product of (x == 0, x == 1, ...), cast to floats, and a matrix is a lookup of its rows. */
static void merge_lookup(struct graph *g, struct node *n, const unsigned int *uses)
{
	const float *w = n->op == OP_MATMUL ? floats(g, n->in[1]) : NULL;
	struct node *cast = w ? producer(g, n->in[0]) : NULL, *eq;
	const struct value *c;
	int64_t i, first = 0;

	if (!cast || cast->op != OP_CAST || cast->a.to != SERVE_FP32 || uses[n->in[0]] != 1 ||
	    g->value[n->in[1]].rank != 2)
		return;
	eq = producer(g, cast->in[0]);
	if (!eq || eq->op != OP_BINARY || eq->a.kind != B_EQUAL || uses[cast->in[0]] != 1)
		return;
	/* in the product, zero times infinity would be a NaN */
	for (i = 0; i < count(2, g->value[n->in[1]].dims); i++)
		if (!isfinite(w[i]))
			return;
	for (i = 0; i < 2; i++) {
		c = &g->value[eq->in[i]];
		if (c->rank < 2 || !counts_up(c, g->value[n->in[1]].dims[0], &first))
			continue;
		n->op = OP_LOOKUP;
		n->rows = rows_lookup;
		n->in[0] = eq->in[1 - i];
		n->a.axis = first;
		n->a.nints = c->rank;
		return;
	}
}

/* A product with constant weights is OP_GEMM; a sum with a constant row after it: its bias. */
static void merge_gemm(struct graph *g, struct node *n, const unsigned int *uses)
{
	struct node *before;
	int i, *in;

	if (n->op == OP_MATMUL && floats(g, n->in[1]) && g->value[n->in[1]].rank == 2) {
		in = realloc(n->in, 3 * sizeof(*in));
		if (!in)
			return;
		in[2] = -1;
		n->in = in;
		n->nin = 3;
		n->op = OP_GEMM;
		n->rows = rows_gemm;
		return;
	}
	if (n->op != OP_BINARY || n->a.kind != B_ADD)
		return;
	for (i = 0; i < 2; i++) {
		const struct value *b = &g->value[n->in[i]], *w;

		before = producer(g, n->in[1 - i]);
		if (!floats(g, n->in[i]) || b->rank != 1 || !before || before->op != OP_GEMM ||
		    before->in[2] >= 0 || before->a.act || uses[n->in[1 - i]] != 1 ||
		    !floats(g, before->in[1]))
			continue;
		w = &g->value[before->in[1]];
		if (w->rank != 2 || w->dims[before->a.trans_b ? 0 : 1] != b->dims[0])
			continue;
		before->in[2] = n->in[i];
		take_output(g, before, n);
		return;
	}
}

/* Drop nodes that no output depends on, and data that no node uses. */
static int sweep(struct graph *g)
{
	bool *live = calloc(g->nvalues + 1, sizeof(*live));
	unsigned int i, k, n = 0;

	if (!live)
		return -ENOMEM;
	for (i = 0; i < g->m.noutputs; i++)
		live[g->out[i]] = true;
	for (i = g->nnodes; i-- > 0; ) {
		struct node *nd = &g->node[i];

		if (nd->out < 0 || !live[nd->out] || g->value[nd->out].data) {
			nd->out = -1;
			continue;
		}
		for (k = 0; k < nd->nin; k++)
			if (nd->in[k] >= 0)
				live[nd->in[k]] = true;
	}
	for (i = 0; i < g->nnodes; i++) {
		if (g->node[i].out < 0) {
			free(g->node[i].name);
			free(g->node[i].in);
			continue;
		}
		g->value[g->node[i].out].producer = (int)n;
		g->node[n++] = g->node[i];
	}
	g->nnodes = n;
	g->m.bytes = 0;
	for (i = 0; i < g->nvalues; i++) {
		struct value *v = &g->value[i];

		if (!live[i]) {
			free(v->data);
			v->data = NULL;
		}
		if (v->data)
			g->m.bytes += (size_t)count(v->rank, v->dims) * type_size(v->type);
	}
	free(live);
	return 0;
}

static int pass(struct graph *g, int (*fn)(struct graph *, struct node *, const unsigned int *),
		void (*sure)(struct graph *, struct node *, const unsigned int *))
{
	unsigned int *uses = NULL, i;
	int rc = 0;

	/* Counted anew at the start only: a pass only makes counts smaller. */
	uses = uses_of(g);
	if (!uses)
		return refuse(g, -ENOMEM, "no memory");
	for (i = 0; i < g->nnodes && !rc; i++) {
		/* values that a pass adds belong to one node */
		if (g->node[i].out < 0)
			continue;
		if (fn)
			rc = fn(g, &g->node[i], uses);
		else
			sure(g, &g->node[i], uses);
	}
	free(uses);
	return rc;
}

/* The type that an operator returns, which no shape changes. */
static enum serve_type type_of(const struct graph *g, const struct node *n)
{
	enum serve_type type;
	int of;

	switch (n->op) {
	case OP_TABLE:
		of = oper_type(n, &type);
		return of < 0 ? type : g->value[n->in[of]].type;
	case OP_SHAPE:
		return SERVE_INT64;
	case OP_FILL:
	case OP_CAST:
		return n->a.to;
	case OP_BINARY:
		return n->a.kind >= B_EQUAL ? SERVE_BOOL : g->value[n->in[0]].type;
	default:
		return g->value[n->in[n->op == OP_WHERE]].type;
	}
}

/* The number of its dimensions, if all shapes have that; 0: unknown. */
static unsigned int rank_of(const struct graph *g, const struct node *n)
{
	unsigned int rank = 0, i, k;

	switch (n->op) {
	case OP_CONV: case OP_DECONV:
		return g->value[n->in[1]].rank;
	case OP_RESHAPE:
		return n->nin < 2 ? n->a.nints : g->value[n->in[1]].data ?
			(unsigned int)count(g->value[n->in[1]].rank, g->value[n->in[1]].dims) : 0;
	case OP_POOL: case OP_GLOBAL_POOL: case OP_NORM: case OP_LRN: case OP_UNARY: case OP_CAST: case OP_CONCAT: case OP_IDENTITY:
	case OP_TRANSPOSE: case OP_PAD: case OP_RESIZE: case OP_SOFTMAX: case OP_ROW_NORM:
		return g->value[n->in[0]].rank;
	case OP_BINARY: case OP_SUM:
		for (i = 0; i < n->nin; i++) {
			const struct value *v = &g->value[n->in[i]];

			k = v->rank;
			if (!k && !v->data)
				return 0;
			rank = k > rank ? k : rank;
		}
		return rank;
	default:
		return 0;
	}
}

int graph_finish(struct graph *g)
{
	struct serve_model *m = &g->m;
	unsigned int i, k;
	cpu_set_t cpus;
	int rc;

	for (i = 0; i < m->ninputs; i++)
		g->value[g->in[i]].rank = g->in_io[i].rank;
	for (i = 0; i < g->nnodes; i++) {
		struct value *out = &g->value[g->node[i].out];

		out->producer = (int)i;
		for (k = 0; k < g->node[i].nin; k++)
			if (g->node[i].in[k] >= 0 && g->value[g->node[i].in[k]].unknown)
				out->unknown = true;
		if (out->unknown)
			continue;
		out->type = type_of(g, &g->node[i]);
		out->rank = rank_of(g, &g->node[i]);
		rc = fold(g, &g->node[i]);
		/* graph_guess() notes what is not supported */
		if (rc && (rc != -ENOTSUP || out->data))
			return rc;
	}
	/* The answer has as many bytes as the type in the file says. */
	for (i = 0; i < m->noutputs; i++)
		if (!g->value[g->out[i]].unknown &&
		    g->value[g->out[i]].type != g->out_io[i].type)
			return refuse(g, -EINVAL, "output '%s' does not have the type that the "
				      "file says", g->out_io[i].name);
	g->guessed = graph_guess(g);
	if (g->nblocked)
		return blocked(g);
	rc = sweep(g);
	for (i = 0; i < g->nnodes && !rc; i++)
		if (g->node[i].op == OP_NORM)
			rc = constant_norm(g, &g->node[i]);
	if (!rc)
		rc = pass(g, merge_scale, NULL);
	if (!rc)
		rc = sweep(g);
	if (!rc)
		rc = pass(g, NULL, merge_lookup);
	if (!rc)
		rc = pass(g, NULL, merge_gemm);
	if (!rc)
		rc = sweep(g);
	if (!rc)
		rc = pass(g, NULL, merge_act);
	if (!rc)
		rc = sweep(g);
	if (rc)
		return rc;
	m->inputs = g->in_io;
	m->outputs = g->out_io;
	m->batch = m->ninputs > 0;
	for (i = 0; i < m->ninputs; i++)
		m->batch = m->batch && g->in_io[i].rank && g->in_io[i].dims[0] == -1;
	for (i = 0; i < m->noutputs; i++)
		m->batch = m->batch && g->out_io[i].rank && g->out_io[i].dims[0] == -1;
	g->tiles =
		sched_getaffinity(0, sizeof(cpus), &cpus) ? 1 : (unsigned int)CPU_COUNT(&cpus);
	if (g->tiles > 8)
		g->tiles = 8;
	return 0;
}

/* ---- the front's calls ------------------------------------------------------ */

void serve_model_free(struct serve_model *m)
{
	struct graph *g = (struct graph *)m;
	unsigned int i;

	if (!m)
		return;
	for (i = 0; i < g->nnodes; i++) {
		packed_free(g->node[i].packed);
		free(g->node[i].name);
		free(g->node[i].in);
	}
	for (i = 0; i < g->nvalues; i++) {
		free(g->value[i].name);
		free(g->value[i].data);
	}
	for (i = 0; i < g->nblocked; i++) {
		free(g->blocked[i].what);
		free(g->blocked[i].node);
		free(g->blocked[i].why);
	}
	free(g->blocked);
	ort_free(g->ort);
	free(g->node);
	free(g->value);
	free(g->file);
	free((char *)(uintptr_t)m->name);
	free(g);
}

struct graph *graph_new(const char *name, const char *file, int64_t version, char *err,
			size_t errsize)
{
	struct graph *g = calloc(1, sizeof(*g));

	if (g) {
		g->m.name = strdup(name);
		g->file = strdup(file);
		g->m.version = version;
		g->limit = load_relaxed(&limit);
		g->err = err;
		g->errsize = errsize;
	}
	if (!g || !g->m.name || !g->file) {
		if (g)
			serve_model_free(&g->m);
		graph_err(err, errsize, -ENOMEM, "%s: no memory", file);
		return NULL;
	}
	return g;
}

/* ---- loading ----------------------------------------------------------------- */

/* The files of a version. */
struct files {
	char path[4096], params[4096];
	bool onnx;
};

static int model_path(const char *dir, const char *name, char *path, size_t size)
{
	return (size_t)snprintf(path, size, "%s/%s", dir, name) < size && !access(path, F_OK);
}

static int find_files(const char *dir, struct files *f, char *err, size_t errsize)
{
	struct stat st;

	f->onnx = !stat(dir, &st) && S_ISREG(st.st_mode);
	if (f->onnx)
		snprintf(f->path, sizeof(f->path), "%s", dir);
	else
		f->onnx = model_path(dir, "model.onnx", f->path, sizeof(f->path));
	if (!f->onnx && (!model_path(dir, "model-symbol.json", f->path, sizeof(f->path)) ||
			 !model_path(dir, "model-0000.params", f->params, sizeof(f->params))))
		return graph_err(
			err, errsize, -ENOENT,
			"%s: neither model.onnx nor model-symbol.json and model-0000.params",
			dir);
	return 0;
}

/* Read the model for pawl.  *out may exist after an error, too. */
static int load_native(const struct files *f, const char *name, int64_t version,
		       struct graph **out, char *err, size_t errsize)
{
	void *data = NULL, *more = NULL;
	size_t len, more_len = 0;
	struct graph *g = NULL;
	int rc;

	*out = NULL;
	rc = file_slurp(f->path, f->onnx ? (size_t)2 << 30 : (size_t)64 << 20, &data, &len, err,
			errsize);
	if (!rc && !f->onnx)
		rc = file_slurp(f->params, (size_t)4 << 30, &more, &more_len, err, errsize);
	if (rc) {
		free(data);
		return rc == -EFBIG ? -EINVAL : rc;
	}
	*out = g = graph_new(name, f->path, version, err, errsize);
	if (!g)
		rc = -ENOMEM;
	else
		rc = f->onnx ? onnx_parse(g, data, len) :
			       mxnet_parse(g, data, len, more, more_len);
	free(data);
	free(more);
	if (!rc)
		rc = graph_finish(g);
	if (!rc) {
		g->m.platform = f->onnx ? "onnx" : "mxnet";
		g->m.backend = "native";
	}
	return rc;
}

/* Let onnxruntime serve what the reader has refused with the text in err, or is not to serve. */
static int load_ort(const struct files *f, struct graph **native, const struct serve_how *how,
		    int native_rc, char *err, size_t errsize)
{
	struct graph *g;
	char why[1024], *text;
	size_t at;
	int rc;

	if (!f->onnx)
		return native_rc ? native_rc :
			graph_err(err, errsize, -ENOTSUP, "%s: onnxruntime runs files of ONNX only",
				  f->path);
	if (!*native || !(*native)->readable)
		return native_rc ? native_rc :
			graph_err(err, errsize, -EINVAL, "%s: it cannot be read", f->path);
	g = graph_new((*native)->m.name, f->path, (*native)->m.version, why, sizeof(why));
	if (!g)
		return graph_err(err, errsize, -ENOMEM, "%s: no memory", f->path);
	rc = ort_load(g, *native, how);
	if (!rc) {
		serve_model_free(&(*native)->m);
		*native = g;
		return 0;
	}
	serve_model_free(&g->m);
	if (!native_rc && how->backend == BACKEND_AUTO)
		return 0;		/* it runs here for some sizes, perhaps */
	text = strncmp(why, f->path, strlen(f->path)) || !native_rc ? why :
		why + strlen(f->path) + 2;
	at = native_rc ? strnlen(err, errsize) : 0;
	if (at > errsize * 3 / 4)
		at = errsize * 3 / 4;
	graph_err(err + at, errsize - at, rc,
		  rc == -ENOENT ? "%s%s.  With onnxruntime (pip install onnxruntime; "
		  "--onnxruntime=PATH) the server runs such models" : "%s%s", at ? "; " : "", text);
	return rc == -ENOENT ? -ENOTSUP : rc;
}

int serve_model_load(const char *dir, const char *name, int64_t version,
		     const struct serve_how *how, struct serve_model **out, char *err,
		     size_t errsize)
{
	struct graph *g;
	struct files f;
	int rc;

	rc = find_files(dir, &f, err, errsize);
	if (rc)
		return rc;
	rc = load_native(&f, name, version, &g, err, errsize);
	if (how->backend == BACKEND_ONNXRUNTIME ||
	    (how->backend == BACKEND_AUTO && (rc ? rc != -ENOMEM : f.onnx && !g->guessed)))
		rc = load_ort(&f, &g, how, rc, err, errsize);
	if (rc) {
		if (g)
			serve_model_free(&g->m);
		return rc;
	}
	g->err = NULL;
	g->errsize = 0;
	*out = &g->m;
	return 0;
}
