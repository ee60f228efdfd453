// SPDX-License-Identifier: Apache-2.0
/* ops_move.c - operators that move, repeat and make elements: rows of a table (oper.h). */
#include <math.h>
#include <string.h>

#include "oper.h"
#include "rows.h"

/* ---- Split: one node per output, a slice of the input ---------------------------- */

static int split_sizes(const struct ctx *c, const struct shape *const *in, int64_t *from,
		       int64_t *size)
{
	const struct attrs *a = &c->n->a;
	const struct shape *x = in[0];
	int64_t sizes[MAX_IO], sum = 0, each, d;
	unsigned int n = a->nints, i;
	int rc = 0;

	if (!axis_ok(axis_of(a->p[0], x->rank), x->rank))
		return bad(c, "axis %lld", (long long)a->p[0]);
	d = x->dims[axis_of(a->p[0], x->rank)];
	memcpy(sizes, a->ints, sizeof(a->ints));
	if (c->n->nin > 1 && in[1])
		rc = shape_numbers(c, in[1], "split", sizes, &n, MAX_IO);
	if (rc)
		return rc;
	if (!n) {
		if (a->p[1] >= 0 && a->p[1] != a->outputs)
			return bad(c, "num_outputs is %lld", (long long)a->p[1]);
		each = (d + a->outputs - 1) / a->outputs;
		if (a->p[1] < 0 && d % a->outputs)
			return bad(c, "%lld in %u parts", (long long)d, a->outputs);
		*from = each * a->output < d ? each * a->output : d;
		*size = d - *from < each ? d - *from : each;
		return 0;
	}
	if (n != a->outputs)
		return bad(c, "%u sizes for %u outputs", n, a->outputs);
	for (i = 0; i < n; i++) {
		if (sizes[i] < 0 || sizes[i] > d - sum)
			return bad(c, "size %lld of %lld", (long long)sizes[i], (long long)d);
		if (i == a->output) {
			*from = sum;
			*size = sizes[i];
		}
		sum += sizes[i];
	}
	return sum == d ? 0 : bad(c, "the sizes do not add up to %lld", (long long)d);
}

static int shape_split(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	int64_t from, size;
	int rc = split_sizes(c, in, &from, &size);

	if (rc)
		return rc;
	out->rank = in[0]->rank;
	memcpy(out->dims, in[0]->dims, sizeof(out->dims));
	out->dims[axis_of(c->n->a.p[0], out->rank)] = size;
	return 0;
}

static int run_split(const struct node *n, const struct view *out, const struct view *const *in)
{
	struct ctx c = { n, NULL, 0 };
	struct shape shape[2];
	const struct shape *shapes[2];
	struct view v = *in[0];
	int64_t from = 0, size = 0, k = axis_of(n->a.p[0], v.rank);

	view_shapes(in, n->nin, shape, shapes);
	split_sizes(&c, shapes, &from, &size);
	v.dims[k] = size;
	v.data += from * v.strides[k] * (int64_t)type_size(v.type);
	view_copy(out, &v);
	return 0;
}

/* ---- Tile ------------------------------------------------------------------------- */

static int shape_tile(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	int64_t times[SERVE_RANK];
	unsigned int n, i;
	int rc = shape_numbers(c, in[1], "repeats", times, &n, SERVE_RANK);

	if (rc)
		return rc;
	if (n != in[0]->rank)
		return bad(c, "%u repeats of %u dimensions", n, in[0]->rank);
	out->rank = n;
	for (i = 0; i < n; i++) {
		if (times[i] < 0 || times[i] > INT_MAX)
			return bad(c, "repeated %lld times", (long long)times[i]);
		out->dims[i] = in[0]->dims[i] * times[i];
	}
	return 0;
}

static int run_tile(const struct node *n, const struct view *out, const struct view *const *in)
{
	struct view o = *out, x = *in[0];
	unsigned int i;
	int64_t times[SERVE_RANK], at[SERVE_RANK] = { 0 }, k;
	size_t size = type_size(o.type);

	if (!count(o.rank, o.dims))
		return 0;
	/* one element along an axis is broadcast */
	for (i = 0; i < o.rank; i++) {
		times[i] = x.dims[i] == 1 ? 1 : o.dims[i] / x.dims[i];
		o.dims[i] /= times[i];
	}
	for (;;) {
		view_copy(&o, &x);
		for (i = o.rank; i-- > 0; ) {
			k = o.dims[i] * o.strides[i] * (int64_t)size;
			o.data += k;
			if (++at[i] < times[i])
				break;
			o.data -= k * times[i];
			at[i] = 0;
		}
		if (i == UINT_MAX)
			return 0;
	}
}

static bool rows_tile(struct rows *r)
{
	int64_t times[SERVE_RANK], slope[SERVE_RANK];
	int at, i, n;

	if (r->at[0]->state != AXIS)
		return false;
	n = row_numbers(r, 1, times, slope, SERVE_RANK);
	at = r->at[0]->axis;
	for (i = 0; i < n; i++)
		if (slope[i])
			return false;
	return n > at && times[at] == 1 && row_along(r, at, r->at[0]->k);
}

/* ---- triangles, blocks of pixels -------------------------------------------------- */

static int shape_trilu(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	int64_t k;
	unsigned int n;
	int rc;

	if (in[0]->rank < 2)
		return bad(c, "%u dimensions", in[0]->rank);
	if (c->n->nin > 1 && in[1]) {
		rc = shape_numbers(c, in[1], "k", &k, &n, 1);
		if (rc)
			return rc;
		if (n != 1)
			return bad(c, "no k");
	}
	return shape_same(c, in, out);
}

static int run_trilu(const struct node *n, const struct view *out, const struct view *const *in)
{
	int64_t k = n->nin > 1 && in[1] ? load_whole(in[1]->type, in[1]->data) : 0;
	int64_t h = out->dims[out->rank - 2], w = out->dims[out->rank - 1], i, keep, zero, end;
	int64_t rows = count(out->rank - 1, out->dims);
	size_t size = type_size(out->type);
	char *o = out->data;

	k = k < -h ? -h : k > w ? w : k;
	memcpy(o, in[0]->data, (size_t)(rows * w) * size);
	for (i = 0; i < rows; i++, o += (size_t)w * size) {
		/* upper: columns from row + k on; lower: up to row + k */
		keep = i % h + k + (n->a.p[0] ? 0 : 1);
		keep = keep < 0 ? 0 : keep > w ? w : keep;
		zero = n->a.p[0] ? 0 : keep;
		end = n->a.p[0] ? keep : w;
		memset(o + (size_t)zero * size, 0, (size_t)(end - zero) * size);
	}
	return 0;
}

enum { TO_SPACE, TO_DEPTH };

static int shape_blocks(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0];
	int64_t b = c->n->a.p[0];

	if (x->rank != 4 || b < 1 || b > 4096)
		return bad(c, "%u dimensions, blocksize %lld", x->rank, (long long)b);
	if (c->n->oper->kind == TO_SPACE ? x->dims[1] % (b * b) : x->dims[2] % b || x->dims[3] % b)
		return bad(c, "no multiple of the blocks");
	out->rank = 4;
	out->dims[0] = x->dims[0];
	if (c->n->oper->kind == TO_SPACE) {
		out->dims[1] = x->dims[1] / (b * b);
		out->dims[2] = x->dims[2] * b;
		out->dims[3] = x->dims[3] * b;
	} else {
		out->dims[1] = x->dims[1] * b * b;
		out->dims[2] = x->dims[2] / b;
		out->dims[3] = x->dims[3] / b;
	}
	return 0;
}

static int run_blocks(const struct node *n, const struct view *out, const struct view *const *in)
{
	bool crd = n->a.p[1] == 1, space = n->oper->kind == TO_SPACE;
	const struct view *big = space ? out : in[0], *deep = space ? in[0] : out;
	int64_t b = n->a.p[0], c = big->dims[1], y, x, k;
	struct view v = *big, d = *deep;
	size_t size = type_size(out->type);

	/* for each pixel of a block, its channels: DCR has the pixel first, CRD the channel */
	for (y = 0; y < b; y++)
		for (x = 0; x < b; x++) {
			v.dims[2] = deep->dims[2];
			v.dims[3] = deep->dims[3];
			v.strides[2] = big->strides[2] * b;
			v.strides[3] = big->strides[3] * b;
			v.data = big->data + (y * big->strides[2] + x * big->strides[3]) *
				(int64_t)size;
			d.dims[1] = c;
			k = y * b + x;
			d.strides[1] = deep->strides[1] * (crd ? b * b : 1);
			d.data = deep->data + (crd ? k : k * c) * deep->strides[1] * (int64_t)size;
			if (space)
				view_copy(&v, &d);
			else
				view_copy(&d, &v);
		}
	return 0;
}

static int shape_reverse(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct attrs *a = &c->n->a;

	/* time_axis and batch_axis */
	if (in[0]->rank < 2 || a->p[0] < 0 || a->p[0] > 1 || a->p[1] != 1 - a->p[0])
		return bad(c, "axes %lld and %lld", (long long)a->p[0], (long long)a->p[1]);
	if (in[1]->type != SERVE_INT64 || in[1]->rank != 1 || in[1]->dims[0] != in[0]->dims[a->p[1]])
		return bad(c, "lengths");
	return shape_same(c, in, out);
}

static int run_reverse(const struct node *n, const struct view *out, const struct view *const *in)
{
	int64_t t, b, steps = out->dims[n->a.p[0]], batch = out->dims[n->a.p[1]], len, from;
	int64_t st = out->strides[n->a.p[0]], sb = out->strides[n->a.p[1]];
	size_t size = type_size(out->type);
	size_t bytes = (size_t)count(out->rank - 2, out->dims + 2) * size;

	for (b = 0; b < batch; b++) {
		len = ((const int64_t *)(const void *)in[1]->data)[b];
		if (len < 0 || len > steps)
			return -EINVAL;
		for (t = 0; t < steps; t++) {
			from = t < len ? len - 1 - t : t;
			memcpy(out->data + (size_t)(t * st + b * sb) * size,
			       in[0]->data + (size_t)(from * st + b * sb) * size, bytes);
		}
	}
	return 0;
}

static bool rows_reverse(struct rows *r)
{
	return r->at[0]->state == AXIS && r->at[0]->axis == r->node->a.p[1] &&
		(row_plain(r, 1) ? false : r->at[1]->state == AXIS && r->at[1]->k == r->at[0]->k) &&
		row_along(r, r->at[0]->axis, r->at[0]->k);
}

/* ---- elements from nothing ----------------------------------------------------------- */

static int range_of(const struct ctx *c, const struct shape *const *in, int64_t *n)
{
	double v[3];
	int64_t w[3], k;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		if (!in[i]->data)
			return bad_shape(c, -ENOTSUP, "its bounds depend on the data of the input");
		if (in[i]->type != in[0]->type || count(in[i]->rank, in[i]->dims) != 1)
			return bad(c, "input %u is not one number of this type", i);
		switch (in[0]->type) {
		case SERVE_FP32:
			v[i] = (double)*(const float *)in[i]->data;
			break;
		case SERVE_FP64:
			v[i] = *(const double *)in[i]->data;
			break;
		default:
			w[i] = load_whole(in[0]->type, in[i]->data);
			/* sizes, not numbers at the ends of their range */
			if (w[i] > (int64_t)1 << 52 || w[i] < -((int64_t)1 << 52))
				return bad(c, "input %u is out of range", i);
			v[i] = (double)w[i];
		}
	}
	if (!(v[2] < 0 || v[2] > 0))
		return bad(c, "a step of 0");
	v[0] = in[0]->type == SERVE_FP32 ? (double)((float)v[1] - (float)v[0]) : v[1] - v[0];
	v[0] = ceil(v[0] / v[2]);
	if (!(v[0] <= INT_MAX))
		return bad(c, "too many numbers");
	k = v[0] > 0 ? (int64_t)v[0] : 0;
	*n = k;
	return 0;
}

static int shape_range_op(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	out->rank = 1;
	return range_of(c, in, &out->dims[0]);
}

static int run_range(const struct node *n, const struct view *out, const struct view *const *in)
{
	int64_t i, all = out->dims[0];

	for (i = 0; i < all; i++)
		switch (out->type) {
		case SERVE_FP32:
			((float *)(void *)out->data)[i] = *(const float *)(const void *)in[0]->data +
				(float)i * *(const float *)(const void *)in[2]->data;
			break;
		case SERVE_FP64:
			((double *)(void *)out->data)[i] = *(const double *)(const void *)in[0]->data +
				(double)i * *(const double *)(const void *)in[2]->data;
			break;
		case SERVE_INT32:
			((int32_t *)(void *)out->data)[i] = (int32_t)(
				(uint32_t)*(const int32_t *)(const void *)in[0]->data + (uint32_t)i *
				(uint32_t)*(const int32_t *)(const void *)in[2]->data);
			break;
		default:
			((int64_t *)(void *)out->data)[i] = (int64_t)(
				(uint64_t)*(const int64_t *)(const void *)in[0]->data + (uint64_t)i *
				(uint64_t)*(const int64_t *)(const void *)in[2]->data);
		}
	return 0;
}

static int shape_eye(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	if (in[0]->rank != 2)
		return bad(c, "%u dimensions", in[0]->rank);
	if (!c->n->a.has_to)
		out->type = in[0]->type;
	if (out->type != SERVE_FP32 && out->type != SERVE_FP64 && out->type != SERVE_INT32 &&
	    out->type != SERVE_INT64)
		return bad_shape(c, -ENOTSUP, "this type");
	out->rank = 2;
	memcpy(out->dims, in[0]->dims, sizeof(out->dims));
	return 0;
}

static int run_eye(const struct node *n, const struct view *out, const struct view *const *in)
{
	static const float f = 1;
	static const double d = 1;
	static const int64_t l = 1;	/* little endian */
	const void *one = out->type == SERVE_FP32 ? (const void *)&f : out->type == SERVE_FP64 ?
		(const void *)&d : &l;
	size_t size = type_size(out->type);
	int64_t i, k = n->a.p[0], h = out->dims[0], w = out->dims[1];

	k = k < -h ? -h : k > w ? w : k;
	memset(out->data, 0, (size_t)(h * w) * size);
	for (i = 0; i < h; i++)
		if (i + k >= 0 && i + k < w)
			memcpy(out->data + (size_t)(i * w + i + k) * size, one, size);
	return 0;
}

static int shape_size(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	out->rank = 0;
	return 0;
}

static int run_size(const struct node *n, const struct view *out, const struct view *const *in)
{
	*(int64_t *)(void *)out->data = count(in[0]->rank, in[0]->dims);
	return 0;
}

/* ---- OneHot ---------------------------------------------------------------------------- */

static int shape_one_hot(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	int64_t axis = axis_of(c->n->a.p[0], in[0]->rank + 1);
	float f;
	unsigned int i, k;

	if (in[0]->rank >= SERVE_RANK || !axis_ok(axis, in[0]->rank + 1))
		return bad(c, "axis %lld", (long long)c->n->a.p[0]);
	if (!in[1]->data)
		return bad_shape(c, -ENOTSUP, "depth depends on the data of the input");
	if (count(in[1]->rank, in[1]->dims) != 1 || in[2]->rank != 1 || in[2]->dims[0] != 2)
		return bad(c, "depth or values");
	out->rank = in[0]->rank + 1;
	for (i = k = 0; i < out->rank; i++) {
		if (i != (unsigned int)axis) {
			out->dims[i] = in[0]->dims[k++];
			continue;
		}
		if (in[1]->type == SERVE_FP32) {
			f = *(const float *)in[1]->data;
			out->dims[i] = f >= 1 && f < 1e9f ? (int64_t)f : -1;
		} else if (T_ALL_INTS >> in[1]->type & 1) {
			out->dims[i] = load_whole(in[1]->type, in[1]->data);
		} else {
			return bad_shape(c, -ENOTSUP, "this type of depth");
		}
		if (out->dims[i] < 1 || out->dims[i] > INT_MAX)
			return bad(c, "depth");
	}
	return 0;
}

static int run_one_hot(const struct node *n, const struct view *out, const struct view *const *in)
{
	struct span s = span_of(n->a.p[0], out->rank, out->dims);
	size_t size = type_size(out->type);
	const struct view off = { out->type, 0, { 0 }, { 0 }, in[2]->data };
	int64_t i, k, at;

	view_copy(out, &off);
	for (i = 0; i < s.outer; i++)
		for (k = 0; k < s.inner; k++) {
			const char *p = in[0]->data + (i * s.inner + k) *
				(int64_t)type_size(in[0]->type);
			float f;

			at = 0;
			if (in[0]->type == SERVE_FP32) {
				memcpy(&f, p, sizeof(f));
				at = f > -1e9f && f < 1e9f ? (int64_t)f : INT_MAX;
			} else {
				at = load_whole(in[0]->type, p);
			}
			at = at < 0 ? at + s.n : at;
			if (at >= 0 && at < s.n)
				memcpy(out->data + (size_t)((i * s.n + at) * s.inner + k) * size,
				       in[2]->data + size, size);
		}
	return 0;
}

static bool rows_one_hot(struct rows *r)
{
	int axis = row_axis(r->node->a.p[0], r->out->rank), at;

	if (!row_first_alone(r))
		return false;
	at = r->at[0]->axis;
	return row_along(r, at < axis ? at : at + 1, r->at[0]->k);
}

/* ---- NonZero of what the plan knows ---------------------------------------------------- */

static bool is_zero(const char *p, size_t size, bool real)
{
	size_t i;

	for (i = 0; i < size; i++)
		if (p[i] && !(real && i + 1 == size && (unsigned char)p[i] == 0x80))
			return false;
	return true;
}

static int shape_non_zero(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0];
	size_t size = type_size(x->type);
	int64_t i, n, found = 0;
	bool real = x->type == SERVE_FP32 || x->type == SERVE_FP64 || x->type == SERVE_FP16;

	if (!x->data)
		return bad_shape(c, -ENOTSUP, "the shape depends on the data of the input");
	n = count(x->rank, x->dims);
	for (i = 0; i < n; i++)
		found += !is_zero((const char *)x->data + (size_t)i * size, size, real);
	out->rank = 2;
	out->dims[0] = x->rank ? x->rank : 1;
	out->dims[1] = found;
	return 0;
}

static int run_non_zero(const struct node *nd, const struct view *out, const struct view *const *in)
{
	const struct view *x = in[0];
	size_t size = type_size(x->type);
	int64_t i, n = count(x->rank, x->dims), at = 0, left;
	int64_t *o = (int64_t *)(void *)out->data;
	bool real = x->type == SERVE_FP32 || x->type == SERVE_FP64 || x->type == SERVE_FP16;
	unsigned int k;

	for (i = 0; i < n; i++) {
		if (is_zero(x->data + (size_t)i * size, size, real))
			continue;
		for (k = x->rank, left = i; k-- > 0; left /= x->dims[k])
			o[k * out->dims[1] + at] = left % x->dims[k];
		if (!x->rank)
			o[at] = 0;
		at++;
	}
	return 0;
}

/* ---- two axes exchanged: p --------------------------------------------------------------- */

static int shape_swap(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	int64_t x = axis_of(c->n->a.p[0], in[0]->rank), y = axis_of(c->n->a.p[1], in[0]->rank);

	if (!axis_ok(x, in[0]->rank) || !axis_ok(y, in[0]->rank))
		return bad(c, "axes %lld and %lld", (long long)c->n->a.p[0], (long long)c->n->a.p[1]);
	shape_same(c, in, out);
	out->dims[x] = in[0]->dims[y];
	out->dims[y] = in[0]->dims[x];
	return 0;
}

static int run_swap(const struct node *n, const struct view *out, const struct view *const *in)
{
	int64_t x = axis_of(n->a.p[0], out->rank), y = axis_of(n->a.p[1], out->rank);
	struct view v = *in[0];

	v.dims[x] = in[0]->dims[y];
	v.dims[y] = in[0]->dims[x];
	v.strides[x] = in[0]->strides[y];
	v.strides[y] = in[0]->strides[x];
	view_copy(out, &v);
	return 0;
}

static bool rows_swap(struct rows *r)
{
	int x = row_axis(r->node->a.p[0], r->out->rank), y = row_axis(r->node->a.p[1], r->out->rank), at;

	if (!row_first_alone(r))
		return false;
	at = r->at[0]->axis;
	return row_along(r, at == x ? y : at == y ? x : at, r->at[0]->k);
}

const struct oper oper_swap = { "SwapAxis", "", 1, 1, 1, 0, T_ANY, { 0 }, true, shape_swap, rows_swap,
	run_swap };

const struct oper opers_move[] = {
	{ "DepthToSpace", "blocksize=! mode=DCR|CRD", 1, 1, 1, TO_SPACE, T_ANY, { 0 }, true,
		shape_blocks, rows_images, run_blocks },
	{ "EyeLike", "k=0 dtype=type", 1, 1, 1, 0, T_ANY, { OF_ATTR }, false,
		shape_eye, NULL, run_eye },
	{ "NonZero", "", 1, 1, 1, 0, T_ANY, { IS + SERVE_INT64 }, false,
		shape_non_zero, NULL, run_non_zero },
	{ "OneHot", "axis=-1", 3, 3, 1, 0, T_ALL_INTS | BIT(FP32), { OF_THIRD }, false,
		shape_one_hot, rows_one_hot, run_one_hot },
	{ "Range", "", 3, 3, 1, 0, T_NUMBERS | BIT(FP64), { 0 }, false,
		shape_range_op, NULL, run_range },
	{ "ReverseSequence", "time_axis=0 batch_axis=1", 2, 2, 1, 0, T_ANY, { 0 }, false,
		shape_reverse, rows_reverse, run_reverse },
	{ "Size", "", 1, 1, 1, 0, T_ANY, { IS + SERVE_INT64 }, false, shape_size, NULL, run_size },
	{ "SpaceToDepth", "blocksize=! mode=DCR|CRD", 1, 1, 1, TO_DEPTH, T_ANY, { 0 }, true,
		shape_blocks, rows_images, run_blocks },
	{ "Split", "axis=0 num_outputs=-1 split[]", 1, 2, MAX_IO, 0, T_ANY, { 0 }, true,
		shape_split, rows_axis, run_split },
	{ "Tile", "", 2, 2, 1, 0, T_ANY, { 0 }, false, shape_tile, rows_tile, run_tile },
	{ "Trilu", "upper=1", 1, 2, 1, 0, T_ANY, { 0 }, false, shape_trilu, rows_last2, run_trilu },
	{ 0 }
};

const struct oper *oper_find(const char *name)
{
	static const struct oper *const tables[] = { opers_move, opers_index, opers_math, opers_attention };
	const struct oper *o;
	unsigned int i;

	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (o = tables[i]; o->name; o++)
			if (!strcmp(o->name, name))
				return o;
	return NULL;
}
