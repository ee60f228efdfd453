// SPDX-License-Identifier: Apache-2.0
/*
 * rows.c - whether requests may share a run: is each row of the outputs computed from the same
 * row of the inputs alone, and in the same way for every number of rows?
 *
 * The number of rows, N, is a symbol here.  A value is in one of three states:
 *
 *	FIXED	neither its shape nor its data depends on the inputs.  If its data is known in
 *		the plan, each whole number in it is a + b * N, and slope has b; without slope
 *		the data is the same for each N.
 *	AXIS	one dimension is k * N, and the others are constant.  The rows lie along this
 *		axis one after the other, and each is computed from the same row of the inputs.
 *	MIXED	nothing is known.
 *
 * The rule of an operator is in the operator's row of the readers' tables.  It may use the
 * sizes of the slot that is planned, but only those that are constant, so the answer is the
 * same for every number of rows.  Values that need a rule which does not exist are MIXED, and a
 * model whose outputs are is run for one request at a time.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "oper.h"
#include "rows.h"

/* ---- what rules consist of -------------------------------------------------- */

/* Input i does not depend on N, or it is left out. */
bool row_plain(const struct rows *r, unsigned int i)
{
	return i >= r->node->nin || !r->at[i] || (r->at[i]->state == FIXED && !r->at[i]->slope);
}

bool row_plain_from(const struct rows *r, unsigned int i)
{
	for (; i < r->node->nin; i++)
		if (!row_plain(r, i))
			return false;
	return true;
}

/* The first input has rows, and the others do not depend on N. */
bool row_first_alone(const struct rows *r)
{
	return r->at[0] && r->at[0]->state == AXIS && row_plain_from(r, 1);
}

/* The output has k * N rows along this axis. */
bool row_along(struct rows *r, int axis, int64_t k)
{
	if (axis < 0 || axis >= (int)r->out->rank || k < 1 || r->out->dims[axis] != k * r->n)
		return false;
	r->to->state = AXIS;
	r->to->axis = axis;
	r->to->k = k;
	return true;
}

static bool is_whole(enum serve_type type)
{
	return type == SERVE_INT64 || type == SERVE_INT32;
}

static int64_t whole_at(enum serve_type type, const void *data, unsigned int i)
{
	return type == SERVE_INT64 ? ((const int64_t *)data)[i] : ((const int32_t *)data)[i];
}

/* Whole numbers that the plan knows, and what each grows by per row.  Returns how many, or -1. */
int row_numbers(const struct rows *r, unsigned int i, int64_t *value, int64_t *slope, int most)
{
	const struct shape *sh = i < r->node->nin ? r->in[i] : NULL;
	int k, n;

	if (!sh || r->at[i]->state != FIXED || !sh->data || !is_whole(sh->type) ||
	    sh->rank > 1 || count(sh->rank, sh->dims) > most)
		return -1;
	n = (int)count(sh->rank, sh->dims);
	for (k = 0; k < n; k++) {
		value[k] = whole_at(sh->type, sh->data, (unsigned int)k);
		slope[k] = r->at[i]->slope ?
			whole_at(sh->type, r->at[i]->slope, (unsigned int)k) : 0;
	}
	return n;
}

/* Is this number b * N, with b > 0? */
static bool is_rows(const struct rows *r, int64_t value, int64_t slope)
{
	return slope > 0 && slope <= INT_MAX && value == slope * r->n;
}

/* Does the operator only move this input's numbers, or add them up? */
static bool is_linear(const struct node *n, unsigned int i, bool has_slope)
{
	switch (n->op) {
	case OP_CONCAT:
		return true;
	case OP_BINARY:
		return n->a.kind == B_ADD || n->a.kind == B_SUB || (n->a.kind == B_MUL && has_slope);
	case OP_WHERE:
		return i > 0;
	case OP_REDUCE:
		return !i && n->a.kind == R_SUM;
	case OP_IDENTITY: case OP_CAST: case OP_GATHER: case OP_SLICE: case OP_RESHAPE:
	case OP_FLATTEN: case OP_SQUEEZE: case OP_UNSQUEEZE: case OP_TRANSPOSE: case OP_EXPAND:
		return !i;
	default:
		return false;
	}
}

/*
 * Known numbers from known numbers by an operator that is linear in those that depend on N: it
 * does to their slopes what it does to them.
 */
static bool linear(struct rows *r)
{
	const struct node *n = r->node;
	const struct view *ins[MAX_INPUTS] = { NULL };
	struct view view[MAX_INPUTS], out;
	void *zeros[MAX_INPUTS] = { NULL }, *data;
	unsigned int i, slopes = 0;
	size_t bytes;
	bool ok = r->out->data && is_whole(r->out->type);

	for (i = 0; ok && i < n->nin; i++) {
		const struct shape *sh = r->in[i];

		if (!sh)
			continue;
		ok = r->at[i]->state == FIXED && sh->data;
		if (!ok)
			break;
		slopes += r->at[i]->slope != NULL;
		data = sh->data;
		if (is_linear(n, i, r->at[i]->slope)) {
			ok = is_whole(sh->type) && !dims_bytes(sh->type, sh->rank, sh->dims, &bytes);
			data = r->at[i]->slope;
			if (ok && !data)
				data = zeros[i] = calloc(1, bytes + 1);
		} else {
			ok = !r->at[i]->slope;
		}
		ok = ok && data;
		view_of(&view[i], sh->type, sh->rank, sh->dims, false, data);
		ins[i] = &view[i];
	}
	/* a product of two numbers that depend on N is not linear */
	if (n->op == OP_BINARY && n->a.kind == B_MUL && slopes > 1)
		ok = false;
	if (ok && !dims_bytes(r->out->type, r->out->rank, r->out->dims, &bytes)) {
		r->to->slope = aligned(bytes);
		view_of(&out, r->out->type, r->out->rank, r->out->dims, false, r->to->slope);
		ok = r->to->slope && !kernel_run(n, &out, ins);
	} else {
		ok = false;
	}
	for (i = 0; i < n->nin; i++)
		free(zeros[i]);
	if (ok)
		r->to->state = FIXED;
	return ok;
}

/* Comparisons of sizes, as exporters write them before Expand: are all the same for each N? */
static bool compared(struct rows *r)
{
	const struct shape *a = r->in[0], *b = r->in[1];
	int64_t x[SERVE_RANK], y[SERVE_RANK], dx[SERVE_RANK], dy[SERVE_RANK];
	int i, nx, ny;

	if (r->node->op != OP_BINARY || r->node->a.kind != B_EQUAL || a->type != b->type)
		return false;
	nx = row_numbers(r, 0, x, dx, SERVE_RANK);
	ny = row_numbers(r, 1, y, dy, SERVE_RANK);
	if (nx < 0 || ny < 0 || (nx != ny && nx != 1 && ny != 1))
		return false;
	for (i = 0; i < nx || i < ny; i++) {
		int64_t less = x[nx == 1 ? 0 : i] - y[ny == 1 ? 0 : i];
		int64_t slope = dx[nx == 1 ? 0 : i] - dy[ny == 1 ? 0 : i];

		/* their difference is 0 for no number of rows */
		if (slope && less % slope == 0 && r->n - less / slope >= 1)
			return false;
	}
	r->to->state = FIXED;
	return true;
}

/* ---- rules ------------------------------------------------------------------ */

/* Element by element, with broadcasts: all inputs with rows have them on the same axis. */
bool rows_each(struct rows *r)
{
	int axis = -1, at;
	int64_t k = 0;
	unsigned int i;

	if (linear(r) || compared(r))
		return true;
	for (i = 0; i < r->node->nin; i++) {
		if (!r->at[i] || row_plain(r, i))
			continue;
		if (r->at[i]->state != AXIS)
			return false;
		at = r->at[i]->axis + (int)r->out->rank - (int)r->in[i]->rank;
		if (axis >= 0 && (at != axis || r->at[i]->k != k))
			return false;
		axis = at;
		k = r->at[i]->k;
	}
	/* the others repeat along it */
	for (i = 0; i < r->node->nin; i++) {
		if (!r->at[i] || r->at[i]->state == AXIS)
			continue;
		at = axis + (int)r->in[i]->rank - (int)r->out->rank;
		if (at >= 0 && r->in[i]->dims[at] != 1)
			return false;
	}
	return row_along(r, axis, k);
}

/* Images, or rows of anything, of which each is computed apart. */
bool rows_images(struct rows *r)
{
	return row_first_alone(r) && !r->at[0]->axis && row_along(r, 0, r->at[0]->k);
}

/* Channel by channel. */
bool rows_channels(struct rows *r)
{
	return row_first_alone(r) && r->at[0]->axis != 1 && row_along(r, r->at[0]->axis, r->at[0]->k);
}

bool rows_softmax(struct rows *r)
{
	const struct attrs *a = &r->node->a;
	int axis = row_axis(a->axis, r->out->rank), at;

	if (!row_first_alone(r))
		return false;
	at = r->at[0]->axis;
	return (a->flat ? at < axis : at != axis) && row_along(r, at, r->at[0]->k);
}

bool rows_gemm(struct rows *r)
{
	int at;

	if (!row_first_alone(r))
		return false;
	at = r->at[0]->axis;
	if (r->node->a.trans_a)
		return at == 1 && row_along(r, 0, r->at[0]->k);
	return at < (int)r->in[0]->rank - 1 && row_along(r, at, r->at[0]->k);
}

bool rows_matmul(struct rows *r)
{
	int rank = (int)r->out->rank, axis = -1, at, i;
	int64_t k = 0;

	for (i = 0; i < 2; i++) {
		if (row_plain(r, (unsigned int)i))
			continue;
		/* not along the axis of the sums */
		if (r->at[i]->state != AXIS ||
		    r->at[i]->axis == (int)r->in[i]->rank - (i ? 2 : 1))
			return false;
		at = r->at[i]->axis + rank - (int)r->in[i]->rank;
		/* rows of both operands: these are pairs of matrices */
		if (i && axis >= 0 && (at != axis || at >= rank - 2 || r->at[i]->k != k))
			return false;
		axis = at;
		k = r->at[i]->k;
	}
	for (i = 0; i < 2 && axis < rank - 2; i++) {
		at = axis + (int)r->in[i]->rank - rank;
		if (r->at[i]->state == FIXED && at >= 0 && r->in[i]->dims[at] != 1)
			return false;
	}
	return row_along(r, axis, k);
}

bool rows_lookup(struct rows *r)
{
	int at = r->at[0]->axis, rank = (int)r->in[0]->rank;

	return row_first_alone(r) && at < rank - 1 &&
		row_along(r, at + (int)r->out->rank - rank, r->at[0]->k);
}

bool rows_concat(struct rows *r)
{
	unsigned int i;

	if (linear(r))
		return true;
	for (i = 0; i < r->node->nin; i++)
		if (r->at[i]->state != AXIS || r->at[i]->axis != r->at[0]->axis ||
		    r->at[i]->k != r->at[0]->k)
			return false;
	return r->at[0]->axis != row_axis(r->node->a.axis, r->out->rank) &&
		row_along(r, r->at[0]->axis, r->at[0]->k);
}

bool rows_transpose(struct rows *r)
{
	const struct attrs *a = &r->node->a;
	int i, rank = (int)r->out->rank;

	if (linear(r))
		return true;
	if (!row_first_alone(r))
		return false;
	for (i = 0; i < rank; i++)
		if ((a->has_ints ? a->ints[i] : rank - 1 - i) == r->at[0]->axis)
			return row_along(r, i, r->at[0]->k);
	return false;
}

/*
 * The same elements in the same order.  If as many elements lie before the rows' axis as before
 * it in the input, and there are as many in all, the rows are the same blocks of elements.
 */
bool rows_reshape(struct rows *r)
{
	const struct attrs *a = &r->node->a;
	const struct shape *x = r->in[0];
	int64_t want[SERVE_RANK], slope[SERVE_RANK] = { 0 }, all, product = 1, k = 0;
	int i, n = (int)a->nints, axis = -1, guess = -1;

	if (linear(r))
		return true;
	if (r->at[0]->state != AXIS)
		return false;
	if (r->node->nin > 1)
		n = row_numbers(r, 1, want, slope, SERVE_RANK);
	else
		memcpy(want, a->ints, sizeof(want));
	all = count(x->rank, x->dims) / r->n;		/* elements of a row */
	for (i = 0; i < n; i++) {
		int64_t d = want[i], rows = 0;

		if (slope[i]) {
			if (!is_rows(r, d, slope[i]))
				return false;
			rows = slope[i];
		} else if (!d && !a->zero_copy) {
			if (i == r->at[0]->axis)
				rows = r->at[0]->k;
			else
				d = x->dims[i];
		} else if (d == -1) {
			guess = i;
			continue;
		}
		if (rows) {
			if (axis >= 0)
				return false;
			axis = i;
			k = rows;
			d = rows;
		}
		product *= d;
	}
	if (n < 0 || !all || !product || all % product)
		return false;
	if (axis < 0 && guess >= 0) {
		axis = guess;
		k = all / product;
	} else if (guess < 0 && all != product) {
		return false;
	}
	return axis >= 0 && count((unsigned int)axis, r->out->dims) ==
		count((unsigned int)r->at[0]->axis, x->dims) && row_along(r, axis, k);
}

bool rows_flatten(struct rows *r)
{
	const struct shape *x = r->in[0];
	int axis = row_axis(r->node->a.axis, x->rank), at, i;
	int64_t before = 1, k;

	if (linear(r))
		return true;
	if (!row_first_alone(r))
		return false;
	at = r->at[0]->axis;
	k = r->at[0]->k;
	for (i = at < axis ? 0 : axis; i < at; i++)
		before *= x->dims[i];
	for (i = at + 1; i < (at < axis ? axis : (int)x->rank); i++)
		k *= x->dims[i];
	return before == 1 && row_along(r, at < axis ? 0 : 1, k);
}

/* Dimensions of 1 are added or removed. */
bool rows_squeeze(struct rows *r)
{
	const struct attrs *a = &r->node->a;
	bool is_axis[SERVE_RANK] = { false }, adds = r->node->op == OP_UNSQUEEZE;
	unsigned int rank = adds ? r->out->rank : r->in[0]->rank;
	int64_t axes[SERVE_RANK], slope[SERVE_RANK];
	int i, n = (int)a->nints, at, to = 0, k;

	if (linear(r))
		return true;
	if (!row_first_alone(r))
		return false;
	memcpy(axes, a->ints, sizeof(axes));
	if (r->node->nin > 1 && r->in[1])
		n = row_numbers(r, 1, axes, slope, SERVE_RANK);
	/* all dimensions of 1: for one row another one than for two */
	if (n < 0 || (!n && !adds && r->at[0]->k == 1))
		return false;
	for (i = 0; i < n; i++) {
		k = row_axis(axes[i], rank);
		if (k < 0 || k >= (int)rank)
			return false;
		is_axis[k] = true;
	}
	at = r->at[0]->axis;
	if (adds) {
		for (i = 0; i < (int)rank; i++)
			if (!is_axis[i] && !at--)
				return row_along(r, i, r->at[0]->k);
		return false;
	}
	if (is_axis[at])
		return false;
	for (i = 0; i < at; i++)
		to += n ? !is_axis[i] : r->in[0]->dims[i] != 1;
	return row_along(r, to, r->at[0]->k);
}

bool rows_slice(struct rows *r)
{
	const struct attrs *a = &r->node->a;
	int64_t start[SERVE_RANK], end[SERVE_RANK], axes[SERVE_RANK], step[SERVE_RANK];
	int64_t s0[SERVE_RANK] = { 0 }, s1[SERVE_RANK] = { 0 }, none[SERVE_RANK];
	int i, n = (int)a->nints, at;

	if (linear(r))
		return true;
	if (r->at[0]->state != AXIS || !row_plain_from(r, 3))
		return false;
	for (i = 0; i < SERVE_RANK; i++) {
		axes[i] = i;
		step[i] = 1;
	}
	if (r->node->nin > 1) {
		n = row_numbers(r, 1, start, s0, SERVE_RANK);
		if (n < 0 || row_numbers(r, 2, end, s1, SERVE_RANK) != n ||
		    (r->in[3] && row_numbers(r, 3, axes, none, SERVE_RANK) != n) ||
		    (r->in[4] && row_numbers(r, 4, step, none, SERVE_RANK) != n))
			return false;
	} else {
		memcpy(start, a->ints, sizeof(start));
		memcpy(end, a->more, sizeof(end));
		memcpy(axes, a->steps, sizeof(axes));
	}
	at = r->at[0]->axis;
	for (i = 0; i < n; i++) {
		if (row_axis(axes[i], r->in[0]->rank) != at) {
			if (s0[i] || s1[i])
				return false;
			continue;
		}
		/* all of the rows' axis, for each N */
		if (start[i] || s0[i] || step[i] != 1)
			return false;
		if (s1[i] ? !is_rows(r, end[i], s1[i]) || s1[i] < r->at[0]->k : end[i] < INT_MAX)
			return false;
	}
	return row_along(r, at, r->at[0]->k);
}

bool rows_pad(struct rows *r)
{
	int64_t pads[2 * SERVE_RANK];
	int at;

	if (!row_first_alone(r))
		return false;
	at = r->at[0]->axis;
	pads_of(r->node, r->in, pads);
	return !pads[at] && !pads[at + (int)r->out->rank] && row_along(r, at, r->at[0]->k);
}

/* A shape whose numbers may depend on N: the output has rows where one of them does. */
bool rows_expand(struct rows *r)
{
	int64_t to[SERVE_RANK], slope[SERVE_RANK], k = 0;
	int i, n, at, axis = -1, gap;

	if (linear(r))
		return true;
	n = row_numbers(r, 1, to, slope, SERVE_RANK);
	if (n < 0 || r->at[0]->slope)
		return false;
	if (r->at[0]->state == AXIS) {
		axis = r->at[0]->axis + (int)r->out->rank - (int)r->in[0]->rank;
		k = r->at[0]->k;
	}
	gap = (int)r->out->rank - n;
	for (i = 0; i < n; i++) {
		at = i + gap + (int)r->in[0]->rank - (int)r->out->rank;
		if (i + gap == axis) {
			if (slope[i] ? !is_rows(r, to[i], slope[i]) || slope[i] != k : to[i] != 1)
				return false;
		} else if (slope[i]) {
			/* one element is repeated for each row */
			if (axis >= 0 || !is_rows(r, to[i], slope[i]) ||
			    (at >= 0 && r->in[0]->dims[at] != 1))
				return false;
			axis = i + gap;
			k = slope[i];
		}
	}
	return row_along(r, axis, k);
}

bool rows_fill(struct rows *r)
{
	int64_t to[SERVE_RANK], slope[SERVE_RANK];
	int i, n = row_numbers(r, 0, to, slope, SERVE_RANK), axis = -1;

	for (i = 0; i < n; i++) {
		if (!slope[i])
			continue;
		if (axis >= 0 || !is_rows(r, to[i], slope[i]))
			return false;
		axis = i;
	}
	return axis >= 0 && row_along(r, axis, slope[axis]);
}

/* The sizes of a value with rows: one of them depends on N. */
bool rows_shape(struct rows *r)
{
	const struct row *x = r->at[0];
	unsigned int first, n = shape_range(&r->node->a, r->in[0]->rank, &first);
	int64_t *slope;

	if (x->state == AXIS && (unsigned int)x->axis - first < n) {
		slope = calloc(SERVE_RANK, sizeof(*slope));
		if (!slope)
			return false;
		slope[(unsigned int)x->axis - first] = x->k;
		r->to->slope = slope;
	}
	r->to->state = FIXED;
	return true;
}

bool rows_gather(struct rows *r)
{
	int axis = row_axis(r->node->a.axis, r->in[0]->rank), at;

	if (linear(r))
		return true;
	if (row_plain(r, 0))
		return r->at[1]->state == AXIS && row_along(r, axis + r->at[1]->axis, r->at[1]->k);
	if (!row_first_alone(r))
		return false;
	at = r->at[0]->axis;
	return at != axis && row_along(r, at < axis ? at : at - 1 + (int)r->in[1]->rank, r->at[0]->k);
}

bool rows_reduce(struct rows *r)
{
	bool gone[SERVE_RANK];
	int i, at, less = 0;

	if (linear(r))
		return true;
	if (!row_first_alone(r))
		return false;
	at = r->at[0]->axis;
	reduced_of(r->node, r->in, gone);
	for (i = 0; i < at; i++)
		less += gone[i] && !r->node->a.keep;
	return !gone[at] && row_along(r, at - less, r->at[0]->k);
}

/* Pictures are scaled, but not their number. */
bool rows_resize(struct rows *r)
{
	int64_t to[SERVE_RANK], slope[SERVE_RANK] = { 0 };
	int i, n;

	if (r->at[0]->state != AXIS || r->at[0]->axis)
		return false;
	if (r->node->a.keep_scale) {
		if (!row_plain_from(r, 1) || !r->in[1]->data || ((const float *)r->in[1]->data)[0] != 1)
			return false;
	} else {
		n = row_numbers(r, 2, to, slope, SERVE_RANK);
		if (n < 1 || !is_rows(r, to[0], slope[0]) || slope[0] != r->at[0]->k)
			return false;
		for (i = 1; i < n; i++)
			if (slope[i])
				return false;
	}
	return row_along(r, 0, r->at[0]->k);
}

/* Along another axis than attrs.p[0]. */
bool rows_axis(struct rows *r)
{
	return row_first_alone(r) && r->at[0]->axis != row_axis(r->node->a.p[0], r->in[0]->rank) &&
		row_along(r, r->at[0]->axis, r->at[0]->k);
}

/* The last two dimensions are matrices. */
bool rows_last2(struct rows *r)
{
	return row_first_alone(r) && r->at[0]->axis < (int)r->in[0]->rank - 2 &&
		row_along(r, r->at[0]->axis, r->at[0]->k);
}

/* Of the others only their types matter. */
bool rows_first(struct rows *r)
{
	return r->at[0]->state == AXIS && row_along(r, r->at[0]->axis, r->at[0]->k);
}

/* All inputs have their rows along the same axis, which is not attrs.p[0]. */
bool rows_same_axes(struct rows *r)
{
	unsigned int i;

	for (i = 0; i < r->node->nin; i++)
		if (r->at[i]->state != AXIS || r->at[i]->axis != r->at[0]->axis ||
		    r->at[i]->k != r->at[0]->k)
			return false;
	return r->at[0]->axis != row_axis(r->node->a.p[0], r->in[0]->rank) &&
		row_along(r, r->at[0]->axis, r->at[0]->k);
}

/* ---- the model -------------------------------------------------------------- */

static void follow(struct rows *r, const struct node *n)
{
	unsigned int i;

	r->node = n;
	r->out = &r->s->shape[n->out];
	r->to = &r->row[n->out];
	for (i = 0; i < n->nin; i++) {
		r->in[i] = n->in[i] < 0 ? NULL : &r->s->shape[n->in[i]];
		r->at[i] = n->in[i] < 0 ? NULL : &r->row[n->in[i]];
		if (r->at[i] && r->at[i]->state == MIXED)
			return;
	}
	if (row_plain_from(r, 0)) {
		r->to->state = FIXED;
	} else if (!n->rows || !n->rows(r)) {
		free(r->to->slope);
		*r->to = (struct row){ .state = MIXED };
	}
}

int slot_rows(struct serve_slot *s)
{
	const struct graph *g = s->g;
	struct rows r = { .s = s };
	unsigned int i;

	s->apart = false;
	if (!g->m.batch)
		return 0;
	r.n = s->shape[g->in[0]].dims[0];
	/* requests without elements run alone: their rows have no place in memory */
	for (i = 0; i < g->m.ninputs; i++)
		if (s->shape[g->in[i]].dims[0] != r.n ||
		    !count(s->shape[g->in[i]].rank, s->shape[g->in[i]].dims))
			return 0;
	r.row = calloc((size_t)g->nvalues + 1, sizeof(*r.row));
	if (!r.row)
		return slot_no_memory(s);
	for (i = 0; i < g->nvalues; i++)
		if (g->value[i].data)
			r.row[i].state = FIXED;
	for (i = 0; i < g->m.ninputs; i++)
		r.row[g->in[i]] = (struct row){ .state = AXIS, .k = 1 };
	for (i = 0; i < g->nnodes; i++)
		follow(&r, &g->node[i]);
	s->apart = true;
	for (i = 0; i < g->m.noutputs; i++) {
		const struct row *out = &r.row[g->out[i]];

		s->apart = s->apart && out->state == AXIS && !out->axis && out->k == 1;
	}
	for (i = 0; i < g->nvalues; i++)
		free(r.row[i].slope);
	free(r.row);
	return 0;
}
