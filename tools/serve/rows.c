// SPDX-License-Identifier: Apache-2.0
/*
 * rows.c - whether requests may share a run of a slot: is each row of the outputs computed from
 * the same row of the inputs alone?
 *
 * A value is CONSTANT if it does not depend on the data of the inputs, or it has the rows along
 * one of its axes, as equal blocks of consecutive elements, or the rows are MIXED.  The answer
 * may be false for a model whose rows do not meet; then its requests run one by one.
 */
#include <stdlib.h>
#include <string.h>

#include "slot.h"

enum { CONSTANT = -1, MIXED = -2 };

struct rows {
	const struct serve_slot *s;
	int64_t n;
	int *axis;				/* of each value */
	const struct node *node;
	const struct shape *in[MAX_INPUTS];	/* of the node; NULL: left out */
	int at[MAX_INPUTS];
	const struct shape *out;
};

/* Has the data the same elements for each row, if an operator uses it beside rows on this axis? */
static bool repeats(const struct rows *r, const struct shape *sh, int axis)
{
	int64_t outer, len, i, k;
	const char *p = sh->data;

	if (axis < 0 || sh->dims[axis] == 1)
		return true;
	if (!p || sh->dims[axis] % r->n)
		return false;
	outer = count((unsigned int)axis, sh->dims);
	len = count(sh->rank - (unsigned int)axis, sh->dims + axis) / r->n *
		(int64_t)type_size(sh->type);
	for (i = 0; i < outer; i++, p += r->n * len)
		for (k = 1; k < r->n; k++)
			if (memcmp(p, p + k * len, (size_t)len))
				return false;
	return true;
}

/* Operands whose last axes correspond: all that have rows have them on the same axis. */
static int aligned_axis(const struct rows *r, unsigned int n)
{
	int axis = CONSTANT, k;
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (!r->in[i] || r->at[i] < 0)
			continue;
		k = r->at[i] + (int)r->out->rank - (int)r->in[i]->rank;
		if ((axis >= 0 && k != axis) || r->in[i]->dims[r->at[i]] != r->out->dims[k])
			return MIXED;
		axis = k;
	}
	for (i = 0; i < n; i++)
		if (r->in[i] && r->at[i] < 0 &&
		    !repeats(r, r->in[i], axis + (int)r->in[i]->rank - (int)r->out->rank))
			return MIXED;
	return axis;
}

/* The same elements in the same order, with other dimensions. */
static int reshaped(const struct rows *r)
{
	int64_t before = count((unsigned int)r->at[0], r->in[0]->dims), n = 1;
	unsigned int i;

	for (i = 0; i < r->out->rank && n <= before; n *= r->out->dims[i++])
		if (n == before && r->out->dims[i] % r->n == 0)
			return (int)i;
	return MIXED;
}

static int product(const struct rows *r)
{
	const struct shape *x = r->in[0], *w = r->in[1];
	int k, axis = CONSTANT, i;

	for (i = 0; i < 2; i++) {
		const struct shape *in = r->in[i];

		if (r->at[i] < 0)
			continue;
		/* not along the axis of the sums */
		if (r->at[i] == (int)in->rank - (i ? 2 : 1))
			return MIXED;
		k = r->at[i] + (int)r->out->rank - (int)in->rank;
		if (axis >= 0 && axis != k)
			return MIXED;
		axis = k;
	}
	/* the other operand has one matrix for all rows, unless the rows are those of a matrix */
	if (axis < (int)r->out->rank - 2)
		for (i = 0; i < 2; i++)
			if (r->at[i] < 0 &&
			    !repeats(r, r->in[i], axis + (int)r->in[i]->rank - (int)r->out->rank))
				return MIXED;
	if (axis >= (int)r->out->rank - 2 && r->at[0] >= 0 && r->at[1] >= 0)
		return MIXED;
	return x->rank > 1 && w->rank > 1 ? axis : MIXED;
}

static int gathered(const struct rows *r)
{
	int64_t a = r->node->a.axis;
	int axis = (int)(a < 0 ? a + (int64_t)r->in[0]->rank : a);

	if (r->at[0] >= 0 && r->at[1] >= 0)
		return MIXED;
	if (r->at[1] >= 0)
		return axis + r->at[1];
	return r->at[0] == axis ? MIXED : r->at[0] < axis ? r->at[0] :
		r->at[0] - 1 + (int)r->in[1]->rank;
}

/* Only the first input has rows, along axis k. */
static int first_input(const struct rows *r, int k)
{
	const struct node *n = r->node;
	const struct attrs *a = &n->a;
	int64_t first[SERVE_RANK], by[SERVE_RANK], pads[2 * SERVE_RANK];
	int axis = (int)(a->axis < 0 ? a->axis + (int64_t)r->in[0]->rank : a->axis);
	unsigned int rank = r->in[0]->rank;
	bool gone[SERVE_RANK];
	int i, less = 0;

	switch (n->op) {
	case OP_UNARY: case OP_CAST: case OP_IDENTITY:
		return k;
	case OP_CONV: case OP_DECONV: case OP_POOL: case OP_GLOBAL_POOL: case OP_LRN:
	case OP_RESIZE:
		return k ? MIXED : 0;
	case OP_NORM: case OP_AFFINE:
		return k == 1 ? MIXED : k;
	case OP_GEMM:
		if (a->trans_a)
			return k == 1 ? 0 : MIXED;
		return k < (int)rank - 1 ? k : MIXED;
	case OP_LOOKUP:
		return k < (int)rank - 1 ? k + (int)r->out->rank - (int)rank : MIXED;
	case OP_SOFTMAX:
		return (a->flat ? k >= axis : k == axis) ? MIXED : k;
	case OP_RESHAPE: case OP_FLATTEN: case OP_SQUEEZE: case OP_UNSQUEEZE:
		return reshaped(r);
	case OP_TRANSPOSE:
		for (i = 0; i < (int)rank; i++)
			if ((a->has_ints ? a->ints[i] : (int)rank - 1 - i) == k)
				return i;
		return MIXED;
	case OP_SLICE:
		slice_of(n, r->in, first, by);
		return first[k] || by[k] != 1 || r->in[0]->dims[k] != r->out->dims[k] ? MIXED : k;
	case OP_PAD:
		pads_of(n, r->in, pads);
		return pads[k] || pads[(unsigned int)k + rank] ? MIXED : k;
	case OP_EXPAND:
		return aligned_axis(r, 1);
	case OP_REDUCE:
		reduced_of(n, r->in, gone);
		for (i = 0; i < k; i++)
			less += gone[i] && r->out->rank < rank;
		return gone[k] ? MIXED : k - less;
	default:
		return MIXED;
	}
}

static int axis_of_output(struct rows *r, const struct node *n)
{
	unsigned int i, others = 0;
	bool any = false;

	r->node = n;
	r->out = &r->s->shape[n->out];
	if (r->out->data)
		return CONSTANT;
	for (i = 0; i < n->nin; i++) {
		r->in[i] = n->in[i] < 0 ? NULL : &r->s->shape[n->in[i]];
		r->at[i] = n->in[i] < 0 ? CONSTANT : r->axis[n->in[i]];
		if (r->at[i] == MIXED)
			return MIXED;
		any = any || r->at[i] >= 0;
		others += i && r->at[i] >= 0;
	}
	if (!any)
		return CONSTANT;
	switch (n->op) {
	case OP_BINARY: case OP_SUM: case OP_WHERE:
		return aligned_axis(r, n->nin);
	case OP_CONCAT: {
		int64_t a = n->a.axis < 0 ? n->a.axis + (int64_t)r->out->rank : n->a.axis;
		int k = aligned_axis(r, n->nin);

		return k == (int)a ? MIXED : k;
	}
	case OP_MATMUL:
		return product(r);
	case OP_GATHER:
		return gathered(r);
	default:
		return others ? MIXED : first_input(r, r->at[0]);
	}
}

int slot_rows(struct serve_slot *s)
{
	const struct graph *g = s->g;
	struct rows r = { .s = s };
	unsigned int i;

	s->apart = true;
	if (!g->m.batch || s->shape[g->in[0]].dims[0] == 1)
		return 0;
	r.n = s->shape[g->in[0]].dims[0];
	r.axis = malloc((g->nvalues + 1) * sizeof(*r.axis));
	if (!r.axis)
		return slot_no_memory(s);
	for (i = 0; i < g->nvalues; i++)
		r.axis[i] = CONSTANT;
	for (i = 0; i < g->m.ninputs; i++)
		r.axis[g->in[i]] = 0;
	for (i = 0; i < g->nnodes; i++)
		r.axis[g->node[i].out] = axis_of_output(&r, &g->node[i]);
	for (i = 0; i < g->m.noutputs; i++)
		s->apart = s->apart && !r.axis[g->out[i]];
	free(r.axis);
	return 0;
}
