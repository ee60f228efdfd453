// SPDX-License-Identifier: Apache-2.0
/*
 * shape.c - the type and the shape of what an operator returns.
 *
 * Shapes come from a client's request and attributes from a file, so all of it is checked here,
 * and the kernels rely on it.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "oper.h"

int dims_bytes(enum serve_type type, unsigned int rank, const int64_t *dims, size_t *bytes)
{
	int64_t n = (int64_t)type_size(type);
	unsigned int i;
	bool zero = false;

	if (!n || rank > SERVE_RANK)
		return -EINVAL;
	for (i = 0; i < rank; i++) {
		if (dims[i] < 0 || dims[i] > INT_MAX)
			return -EINVAL;
		if (!dims[i])
			zero = true;
		else if (n > MAX_BYTES / dims[i])
			return -EINVAL;
		else
			n *= dims[i];
	}
	*bytes = zero ? 0 : (size_t)n;
	return 0;
}

/* An input that holds sizes or axes must be known before the run. */
int shape_numbers(const struct ctx *c, const struct shape *in, const char *what, int64_t *out,
		  unsigned int *n, unsigned int most)
{
	int64_t i, len;

	if (!in->data)
		return bad_shape(c, -ENOTSUP, "%s depends on the data of the input", what);
	len = count(in->rank, in->dims);
	if (in->rank > 1 || len > most)
		return bad(c, "%s has %lld elements", what, (long long)len);
	for (i = 0; i < len; i++)
		if (in->type == SERVE_INT64)
			out[i] = ((const int64_t *)in->data)[i];
		else if (in->type == SERVE_INT32)
			out[i] = ((const int32_t *)in->data)[i];
		else
			return bad(c, "%s is not of whole numbers", what);
	*n = (unsigned int)len;
	return 0;
}

int shape_broadcast(const struct ctx *c, struct shape *out, const struct shape *in)
{
	struct shape r = *out;
	unsigned int i;

	r.rank = in->rank > out->rank ? in->rank : out->rank;
	for (i = 0; i < r.rank; i++) {
		int64_t a = i < out->rank ? out->dims[out->rank - 1 - i] : 1;
		int64_t b = i < in->rank ? in->dims[in->rank - 1 - i] : 1;

		if (a != b && a != 1 && b != 1)
			return bad(c, "sizes %lld and %lld do not match", (long long)a,
				   (long long)b);
		r.dims[r.rank - 1 - i] = a == 1 ? b : a;
	}
	*out = r;
	return 0;
}

/* The number of windows along an axis; and where the first begins. */
static int64_t windows(const struct attrs *a, unsigned int i, int64_t in)
{
	int64_t span = (a->kernel[i] - 1) * a->dilation[i] + 1, s = a->stride[i];
	int64_t room = in + a->pad[i] + a->pad[i + 2] - span, n;

	if (a->auto_pad == PAD_SAME_UPPER || a->auto_pad == PAD_SAME_LOWER ||
	    a->round == ROUND_SAME)
		return (in + s - 1) / s;
	if (a->auto_pad == PAD_VALID)
		room = in - span;
	if (room < 0)
		return 0;
	n = (a->round == ROUND_FLOOR ? room : room + s - 1) / s + 1;
	/* A window that begins behind the data and its first padding is none. */
	if (a->round == ROUND_CEIL_IN && (n - 1) * s >= in + a->pad[i])
		n--;
	return n;
}

void window(const struct attrs *a, unsigned int i, int64_t in, int64_t out, int64_t *before)
{
	int64_t span = (a->kernel[i] - 1) * a->dilation[i] + 1;
	int64_t pads = (out - 1) * a->stride[i] + span - in;

	if (pads < 0)
		pads = 0;
	switch (a->auto_pad) {
	case PAD_GIVEN:
		*before = a->pad[i];
		break;
	case PAD_SAME_UPPER:
		*before = pads / 2;
		break;
	case PAD_SAME_LOWER:
		*before = pads - pads / 2;
		break;
	case PAD_VALID:
		*before = 0;
		break;
	}
}

static int check_window(const struct ctx *c, const struct attrs *a, unsigned int spatial)
{
	unsigned int i;

	for (i = 0; i < spatial; i++)
		if (a->kernel[i] < 1 || a->kernel[i] > 4096 || a->stride[i] < 1 ||
		    a->stride[i] > 4096 || a->dilation[i] < 1 || a->dilation[i] > 4096 ||
		    a->pad[i] < 0 || a->pad[i] > 65536 || a->pad[i + 2] < 0 ||
		    a->pad[i + 2] > 65536 || a->out_pad[i] < 0 || a->out_pad[i] > 4096)
			return bad(c, "kernel, stride, dilation or pads out of range");
	return 0;
}

static int spatial_sizes(const struct ctx *c, const struct attrs *a, unsigned int spatial,
			 const struct shape *x, struct shape *out)
{
	unsigned int i;

	for (i = 0; i < spatial; i++) {
		int64_t span = (a->kernel[i] - 1) * a->dilation[i] + 1;

		if (!x->dims[2 + i])
			return bad(c, "an empty input");
		if (c->n->op == OP_DECONV)
			out->dims[2 + i] = (x->dims[2 + i] - 1) * a->stride[i] + span +
				a->out_pad[i] - a->pad[i] - a->pad[i + 2];
		else
			out->dims[2 + i] = windows(a, i, x->dims[2 + i]);
		if (out->dims[2 + i] < 1)
			return bad(c, "the window is larger than the input");
	}
	return 0;
}

static int float32(const struct ctx *c, const struct shape *in)
{
	return in->type == SERVE_FP32 ? 0 :
		bad_shape(c, -ENOTSUP, "only float32 is computed");
}

static int conv(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	struct attrs own = c->n->a, *a = &own;
	const struct shape *x = in[0], *w = in[1];
	bool deconv = c->n->op == OP_DECONV;
	unsigned int i, spatial;
	int64_t oc, ic;
	int rc;

	rc = float32(c, x);
	if (!rc)
		rc = float32(c, w);
	if (rc)
		return rc;
	if (x->rank < 3 || x->rank > 4 || w->rank != x->rank)
		return bad_shape(c, -ENOTSUP, "%u dimensions, weights with %u", x->rank,
				 w->rank);
	spatial = x->rank - 2;
	if (a->spatial && a->spatial != spatial)
		return bad(c, "a window of %u dimensions", a->spatial);
	for (i = 0; i < spatial; i++) {
		/* 0: the file says it with the weights alone */
		if (!a->kernel[i])
			a->kernel[i] = w->dims[2 + i];
		if (a->kernel[i] != w->dims[2 + i])
			return bad(c, "the kernel's size differs from the weights'");
	}
	rc = check_window(c, a, spatial);
	if (rc)
		return rc;
	if (a->group < 1 || a->group > 65536)
		return bad(c, "%lld groups", (long long)a->group);
	ic = deconv ? w->dims[0] : w->dims[1] * a->group;
	oc = deconv ? w->dims[1] * a->group : w->dims[0];
	if (ic != x->dims[1] || ic % a->group || oc % a->group || !oc || !ic)
		return bad(c, "%lld channels, and the weights are for %lld in %lld groups",
			   (long long)x->dims[1], (long long)ic, (long long)a->group);
	if (in[2] && (in[2]->type != SERVE_FP32 || in[2]->rank != 1 || in[2]->dims[0] != oc))
		return bad(c, "the bias does not have %lld elements", (long long)oc);
	out->type = SERVE_FP32;
	out->rank = x->rank;
	out->dims[0] = x->dims[0];
	out->dims[1] = oc;
	return spatial_sizes(c, a, spatial, x, out);
}

static int pool(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct attrs *a = &c->n->a;
	const struct shape *x = in[0];
	unsigned int i, spatial;
	int rc;

	rc = float32(c, x);
	if (rc)
		return rc;
	if (x->rank < 3 || x->rank > 4 || (a->spatial && a->spatial != x->rank - 2))
		return bad_shape(c, -ENOTSUP, "%u dimensions", x->rank);
	spatial = x->rank - 2;
	*out = *x;
	if (c->n->op == OP_GLOBAL_POOL) {
		for (i = 0; i < spatial; i++) {
			if (!x->dims[2 + i])
				return bad(c, "an empty input");
			out->dims[2 + i] = 1;
		}
		return 0;
	}
	rc = check_window(c, a, spatial);
	if (rc)
		return rc;
	return spatial_sizes(c, a, spatial, x, out);
}

static int gemm(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct attrs *a = &c->n->a;
	const struct shape *x = in[0], *w = in[1];
	int64_t k, n;
	int rc;

	rc = float32(c, x);
	if (!rc)
		rc = float32(c, w);
	if (rc)
		return rc;
	if (x->rank < 2 || w->rank != 2 || (a->trans_a && x->rank != 2))
		return bad(c, "%u and %u dimensions", x->rank, w->rank);
	*out = *x;
	k = x->dims[a->trans_a ? 0 : x->rank - 1];
	if (a->trans_a)
		out->dims[0] = x->dims[1];
	n = w->dims[a->trans_b ? 0 : 1];
	if (k != w->dims[a->trans_b ? 1 : 0])
		return bad(c, "rows of %lld elements, and the weights have %lld", (long long)k,
			   (long long)w->dims[a->trans_b ? 1 : 0]);
	out->dims[out->rank - 1] = n;
	if (in[2] && (in[2]->type != SERVE_FP32 || in[2]->rank != 1 || in[2]->dims[0] != n))
		return bad(c, "the bias does not have %lld elements", (long long)n);
	return 0;
}

static int matmul(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	struct shape x = *in[0], w = *in[1];
	int64_t m, n;
	int rc;

	rc = float32(c, &x);
	if (!rc)
		rc = float32(c, &w);
	if (rc)
		return rc;
	if (x.rank < 2 || w.rank < 2 || x.rank > 6 || w.rank > 6)
		return bad_shape(c, -ENOTSUP, "%u and %u dimensions", x.rank, w.rank);
	if (x.dims[x.rank - 1] != w.dims[w.rank - 2])
		return bad(c, "sizes %lld and %lld do not match",
			   (long long)x.dims[x.rank - 1], (long long)w.dims[w.rank - 2]);
	m = x.dims[x.rank - 2];
	n = w.dims[w.rank - 1];
	x.rank -= 2;
	w.rank -= 2;
	rc = shape_broadcast(c, &x, &w);
	if (rc)
		return rc;
	*out = x;
	out->dims[out->rank++] = m;
	out->dims[out->rank++] = n;
	return 0;
}

/* Each row of the input has one number, or as many as the table has rows. */
static int lookup(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0], *w = in[1];
	int64_t each = x->rank ? x->dims[x->rank - 1] : 1;
	unsigned int rank = x->rank > c->n->a.nints ? x->rank : c->n->a.nints, i;

	if ((x->type != SERVE_INT32 && x->type != SERVE_INT64) ||
	    (each != 1 && each != w->dims[0]))
		return bad(c, "the last size is %lld, and not 1 or %lld", (long long)each,
			   (long long)w->dims[0]);
	out->type = SERVE_FP32;
	out->rank = rank;
	for (i = 0; i + 1 < rank; i++)
		out->dims[i] = i + x->rank < rank ? 1 : x->dims[i + x->rank - rank];
	out->dims[rank - 1] = w->dims[1];
	return 0;
}

static int concat(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	int64_t axis = axis_of(c->n->a.axis, in[0]->rank);
	unsigned int i, k;

	*out = *in[0];
	if (!axis_ok(axis, out->rank))
		return bad(c, "axis %lld", (long long)c->n->a.axis);
	for (i = 1; i < c->n->nin; i++) {
		if (in[i]->rank != out->rank || in[i]->type != out->type)
			return bad(c, "inputs of different type or rank");
		for (k = 0; k < out->rank; k++)
			if (k != (unsigned int)axis && in[i]->dims[k] != out->dims[k])
				return bad(c, "inputs differ in dimension %u", k);
		out->dims[axis] += in[i]->dims[axis];
		if (out->dims[axis] > INT_MAX)
			return bad(c, "too large");
	}
	return 0;
}

static int slice(const struct ctx *c, const struct shape *const *in, struct shape *out,
		 int64_t *first, int64_t *by)
{
	const struct attrs *a = &c->n->a;
	int64_t start[SERVE_RANK], end[SERVE_RANK], axes[SERVE_RANK], step[SERVE_RANK];
	bool seen[SERVE_RANK] = { false };
	unsigned int n = a->nints, m, i;
	int rc = 0;

	*out = *in[0];
	for (i = 0; i < out->rank; i++) {
		first[i] = 0;
		by[i] = 1;
	}
	if (c->n->nin > 1) {
		rc = shape_numbers(c, in[1], "starts", start, &n, SERVE_RANK);
		if (!rc)
			rc = shape_numbers(c, in[2], "ends", end, &m, SERVE_RANK);
		if (!rc && m != n)
			rc = bad(c, "%u starts and %u ends", n, m);
		for (i = 0; i < n; i++) {
			axes[i] = i;
			step[i] = 1;
		}
		if (!rc && in[3]) {
			rc = shape_numbers(c, in[3], "axes", axes, &m, SERVE_RANK);
			if (!rc && m != n)
				rc = bad(c, "%u axes", m);
		}
		if (!rc && in[4]) {
			rc = shape_numbers(c, in[4], "steps", step, &m, SERVE_RANK);
			if (!rc && m != n)
				rc = bad(c, "%u steps", m);
		}
		if (rc)
			return rc;
	} else {
		memcpy(start, a->ints, sizeof(start));
		memcpy(end, a->more, sizeof(end));
		memcpy(axes, a->steps, sizeof(axes));
		for (i = 0; i < n; i++)
			step[i] = 1;
	}
	for (i = 0; i < n; i++) {
		int64_t k = axis_of(axes[i], in[0]->rank), d, s = step[i], b = start[i],
			e = end[i];

		if (!axis_ok(k, in[0]->rank) || seen[k] || !s || s < -INT_MAX || s > INT_MAX)
			return bad(c, "axis %lld, step %lld", (long long)axes[i], (long long)s);
		seen[k] = true;
		/* for ONNX this is the last element, and for onnxruntime the one before the first */
		if (s < 0 && (e == INT_MAX || e == INT64_MAX))
			return bad_shape(c, -ENOTSUP, "an end of INT_MAX with a negative step");
		d = in[0]->dims[k];
		b = b < 0 ? b + d : b;
		e = e < 0 && e > INT64_MIN + d ? e + d : e;
		if (s > 0) {
			b = b < 0 ? 0 : b > d ? d : b;
			e = e < 0 ? 0 : e > d ? d : e;
			out->dims[k] = e > b ? (e - b + s - 1) / s : 0;
		} else {
			b = b < 0 ? 0 : b;
			b = b > d - 1 ? d - 1 : b;
			e = e < -1 ? -1 : e > d - 1 ? d - 1 : e;
			out->dims[k] = b > e ? (b - e - s - 1) / -s : 0;
		}
		first[k] = b;
		by[k] = s;
	}
	return 0;
}

static int reshape(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct attrs *a = &c->n->a;
	const struct shape *x = in[0];
	int64_t want[SERVE_RANK], total = count(x->rank, x->dims), n = 1;
	unsigned int len = a->nints, i;
	int guess = -1, rc;

	if (c->n->nin > 1) {
		rc = shape_numbers(c, in[1], "the shape", want, &len, SERVE_RANK);
		if (rc)
			return rc;
	} else {
		memcpy(want, a->ints, sizeof(want));
	}
	out->type = x->type;
	out->rank = len;
	for (i = 0; i < len; i++) {
		int64_t d = want[i];

		if (d == 0 && !a->zero_copy) {
			if (i >= x->rank)
				return bad(c, "0 in dimension %u of an input of %u", i,
					   x->rank);
			d = x->dims[i];
		}
		if (d < -1 || d > INT_MAX || (d == -1 && guess >= 0))
			return bad(c, "size %lld", (long long)d);
		if (d == -1)
			guess = (int)i;
		else if (d && n > MAX_BYTES / d)
			return bad(c, "too large");
		else
			n *= d;
		out->dims[i] = d;
	}
	if (guess >= 0) {
		if (!n || total % n)
			return bad(c, "%lld elements in rows of %lld", (long long)total,
				   (long long)n);
		out->dims[guess] = total / n;
	} else if (n != total) {
		return bad(c, "%lld elements into %lld", (long long)total, (long long)n);
	}
	return 0;
}

int shape_axes(const struct ctx *c, const struct shape *const *in, unsigned int rank,
	       bool *at, bool *any)
{
	const struct attrs *a = &c->n->a;
	int64_t axes[SERVE_RANK], k;
	unsigned int n = a->nints, i;
	int rc;

	memset(at, 0, SERVE_RANK * sizeof(*at));
	memcpy(axes, a->ints, sizeof(axes));
	if (c->n->nin > 1 && in[1]) {
		rc = shape_numbers(c, in[1], "axes", axes, &n, SERVE_RANK);
		if (rc)
			return rc;
	}
	for (i = 0; i < n; i++) {
		k = axis_of(axes[i], rank);
		if (!axis_ok(k, rank) || at[k])
			return bad(c, "axis %lld", (long long)axes[i]);
		at[k] = true;
	}
	*any = n > 0;
	return 0;
}

static int squeeze(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0];
	bool at[SERVE_RANK], any;
	unsigned int i, k = 0;
	int rc;

	out->type = x->type;
	if (c->n->op == OP_UNSQUEEZE) {
		unsigned int extra = c->n->a.nints;
		int64_t axes[SERVE_RANK];

		if (c->n->nin > 1) {
			rc = shape_numbers(c, in[1], "axes", axes, &extra, SERVE_RANK);
			if (rc)
				return rc;
		}
		if (x->rank + extra > SERVE_RANK)
			return bad(c, "too many dimensions");
		out->rank = x->rank + extra;
		rc = shape_axes(c, in, out->rank, at, &any);
		if (rc)
			return rc;
		for (i = 0; i < out->rank; i++)
			out->dims[i] = at[i] ? 1 : x->dims[k++];
		return 0;
	}
	rc = shape_axes(c, in, x->rank, at, &any);
	if (rc)
		return rc;
	for (i = 0; i < x->rank; i++) {
		if (at[i] && x->dims[i] != 1)
			return bad(c, "dimension %u is %lld, not 1", i, (long long)x->dims[i]);
		if (any ? !at[i] : x->dims[i] != 1)
			out->dims[k++] = x->dims[i];
	}
	out->rank = k;
	return 0;
}

static int reduce(const struct ctx *c, const struct shape *const *in, struct shape *out,
		  bool *at)
{
	const struct shape *x = in[0];
	bool any;
	unsigned int i, k = 0;
	int rc;

	if (x->type != SERVE_FP32 && x->type != SERVE_INT32 && x->type != SERVE_INT64)
		return bad_shape(c, -ENOTSUP, "this type");
	if ((c->n->a.kind == R_MEAN || c->n->a.kind >= R_L2) && x->type != SERVE_FP32)
		return bad_shape(c, -ENOTSUP, "this type");
	rc = shape_axes(c, in, x->rank, at, &any);
	if (rc)
		return rc;
	out->type = x->type;
	for (i = 0; i < x->rank; i++) {
		bool gone = any ? at[i] : !c->n->a.flat;

		at[i] = gone;
		/* the extremes of no numbers are infinities, and their mean is 0 */
		if (gone && !x->dims[i] && (c->n->a.kind == R_MAX || c->n->a.kind == R_MIN) && x->type != SERVE_FP32)
			return bad(c, "an empty input");
		if (!gone)
			out->dims[k++] = x->dims[i];
		else if (c->n->a.keep)
			out->dims[k++] = 1;
	}
	if (!k && c->n->a.mx_one)
		out->dims[k++] = 1;
	out->rank = k;
	return 0;
}

/* Pads in front of and behind each dimension: input 1, for the axes of input 3, or attributes. */
static int pad(const struct ctx *c, const struct shape *const *in, struct shape *out,
	       int64_t *p)
{
	const struct attrs *a = &c->n->a;
	int64_t given[2 * SERVE_RANK], axes[SERVE_RANK], k, d;
	unsigned int n = 2 * a->nints, m, i;
	bool seen[SERVE_RANK] = { false };
	int rc;

	*out = *in[0];
	m = out->rank;
	for (i = 0; i < m; i++)
		axes[i] = i;
	if (c->n->nin > 1) {
		rc = shape_numbers(c, in[1], "pads", given, &n, 2 * SERVE_RANK);
		if (!rc && c->n->nin > 3 && in[3])
			rc = shape_numbers(c, in[3], "axes", axes, &m, SERVE_RANK);
		if (rc)
			return rc;
		if (c->n->nin > 2 && in[2] &&
		    (in[2]->type != in[0]->type || count(in[2]->rank, in[2]->dims) != 1))
			return bad(c, "the value");
	} else {
		memcpy(given, a->ints, a->nints * sizeof(*p));
		memcpy(given + a->nints, a->more, a->nints * sizeof(*p));
	}
	if (n != 2 * m)
		return bad(c, "%u pads for %u dimensions", n, m);
	/* the attribute value is a float32 */
	if (a->alpha != 0 && in[0]->type != SERVE_FP32)
		return bad_shape(c, -ENOTSUP, "this type");
	memset(p, 0, 2 * SERVE_RANK * sizeof(*p));
	for (i = 0; i < m; i++) {
		int64_t before = given[i], behind = given[i + m];

		k = axis_of(axes[i], out->rank);
		if (!axis_ok(k, out->rank) || seen[k])
			return bad(c, "axis %lld", (long long)axes[i]);
		seen[k] = true;
		d = in[0]->dims[k];
		if (before < -INT_MAX || before > INT_MAX || behind < -INT_MAX || behind > INT_MAX)
			return bad(c, "pads out of range");
		if (a->kind != PAD_CONSTANT && (before < 0 || behind < 0))
			return bad_shape(c, -ENOTSUP, "negative pads");
		if (a->kind != PAD_CONSTANT && (before || behind) &&
		    (!d || (a->kind == PAD_REFLECT && (before >= d || behind >= d)) ||
		     (a->kind == PAD_WRAP && (before > d || behind > d))))
			return bad(c, "pads of %lld and %lld for %lld elements", (long long)before,
				   (long long)behind, (long long)d);
		/* what is cut off in front must exist, and what is cut off behind */
		if (d + (before < 0 ? before : 0) + (behind < 0 ? behind : 0) < 0)
			return bad(c, "more is cut off than there is");
		p[k] = before;
		p[k + out->rank] = behind;
		out->dims[k] += before + behind;
	}
	return 0;
}

static int resize(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct attrs *a = &c->n->a;
	const struct shape *x = in[0], *s = a->keep_scale ? in[1] : in[2];
	int64_t sizes[SERVE_RANK];
	unsigned int n, i;
	int rc;

	rc = float32(c, x);
	if (rc)
		return rc;
	if (x->rank != 4)
		return bad_shape(c, -ENOTSUP, "%u dimensions", x->rank);
	*out = *x;
	out->data = NULL;
	if (!s)
		return bad(c, "neither scales nor sizes");
	if (a->keep_scale) {
		if (!s->data || s->type != SERVE_FP32 || s->rank != 1 || s->dims[0] != x->rank)
			return bad_shape(c, -ENOTSUP, "scales that are not four known numbers");
		for (i = 0; i < x->rank; i++) {
			float f = ((const float *)s->data)[i];

			if (!(f > 0 && f <= 65536))
				return bad(c, "scale %g", (double)f);
			out->dims[i] = (int64_t)floorf((float)x->dims[i] * f);
		}
	} else {
		rc = shape_numbers(c, s, "sizes", sizes, &n, SERVE_RANK);
		if (rc)
			return rc;
		if (n != x->rank)
			return bad(c, "%u sizes", n);
		memcpy(out->dims, sizes, n * sizeof(*sizes));
	}
	if (out->dims[0] != x->dims[0] || out->dims[1] != x->dims[1])
		return bad_shape(c, -ENOTSUP, "batch or channels are resized");
	for (i = 2; i < 4; i++)
		if (out->dims[i] < 1 || out->dims[i] > 65536 || x->dims[i] < 1)
			return bad(c, "size %lld", (long long)out->dims[i]);
	return 0;
}

static int elementwise(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	unsigned int i, first = c->n->op == OP_WHERE ? 1 : 0;
	int rc;

	*out = *in[first];
	for (i = first + 1; i < c->n->nin; i++) {
		if (in[i]->type != in[first]->type)
			return bad(c, "inputs of different types");
		rc = shape_broadcast(c, out, in[i]);
		if (rc)
			return rc;
	}
	if (first) {
		if (in[0]->type != SERVE_BOOL)
			return bad(c, "a condition that is not bool");
		return shape_broadcast(c, out, in[0]);
	}
	if (!((c->n->a.kind == B_POW || c->n->a.kind == B_ADD_RELU ? BIT(FP32) :
	       T_ALL_INTS | BIT(FP32) | BIT(FP64) | (c->n->a.kind == B_EQUAL ? BIT(BOOL) : 0)) >>
	      out->type & 1))
		return bad_shape(c, -ENOTSUP, "this type");
	if (c->n->op == OP_BINARY && c->n->a.kind >= B_EQUAL)
		out->type = SERVE_BOOL;
	return 0;
}

static int unary(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct attrs *a = &c->n->a;

	*out = *in[0];
	if (!((a->kind == U_NOT ? BIT(BOOL) : a->kind == U_ABS || a->kind == U_NEG ||
	       a->kind == U_SIGN ? T_ALL_INTS | BIT(FP32) | BIT(FP64) :
	       a->kind == U_CLIP ? BIT(FP32) : BIT(FP32) | BIT(FP64)) >> out->type & 1))
		return bad_shape(c, -ENOTSUP, "this type");
	return 0;
}

int shape_same(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	out->rank = in[0]->rank;
	memcpy(out->dims, in[0]->dims, sizeof(out->dims));
	return 0;
}

int shape_same_axis(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	if (!axis_ok(axis_of(c->n->a.p[0], in[0]->rank), in[0]->rank))
		return bad(c, "axis %lld", (long long)c->n->a.p[0]);
	return shape_same(c, in, out);
}

int shape_each(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	unsigned int i;
	int rc = 0;

	shape_same(c, in, out);
	for (i = 1; i < c->n->nin && !rc; i++)
		rc = in[i]->type != in[0]->type ? bad(c, "inputs of different types") :
			shape_broadcast(c, out, in[i]);
	return rc;
}

static int by_op(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct attrs *a = &c->n->a;
	const struct shape *x = in[0];
	unsigned int i, n;
	int64_t k, m;
	int rc;

	switch (c->n->op) {
	case OP_CONV:
	case OP_DECONV:
		return conv(c, in, out);
	case OP_POOL:
	case OP_GLOBAL_POOL:
		return pool(c, in, out);
	case OP_GEMM:
		return gemm(c, in, out);
	case OP_MATMUL:
		return matmul(c, in, out);
	case OP_LOOKUP:
		return lookup(c, in, out);
	case OP_NORM:
		*out = *x;
		if (x->rank < 2)
			return bad(c, "%u dimensions", x->rank);
		for (i = 0; i < 5; i++) {
			rc = float32(c, in[i]);
			if (rc)
				return rc;
			if (i && (in[i]->rank != 1 || in[i]->dims[0] != x->dims[1]))
				return bad(c, "input %u does not have %lld elements", i,
					   (long long)x->dims[1]);
		}
		return 0;
	case OP_LRN:
		*out = *x;
		if (x->rank != 4 || a->size < 1 || a->size > 4096)
			return bad(c, "%u dimensions, size %lld", x->rank, (long long)a->size);
		return float32(c, x);
	case OP_ROW_NORM: {
		struct shape all;

		*out = *x;
		k = axis_of(a->axis, x->rank);
		if (!axis_ok(k, x->rank))
			return bad(c, "axis %lld", (long long)a->axis);
		for (i = 0; i < c->n->nin; i++) {
			rc = in[i] ? float32(c, in[i]) : 0;
			if (rc || !i || !in[i])
				continue;
			/* they repeat in front of the axis */
			all = *x;
			all.rank = x->rank - (unsigned int)k;
			memcpy(all.dims, x->dims + k, all.rank * sizeof(*all.dims));
			m = count(all.rank, all.dims);
			rc = in[i]->rank > all.rank ?
				bad_shape(c, -ENOTSUP, "input %u has %u dimensions", i, in[i]->rank) :
				shape_broadcast(c, &all, in[i]);
			if (!rc && count(all.rank, all.dims) != m)
				return bad(c, "input %u is larger than a row", i);
			if (rc)
				return rc;
		}
		return rc;
	}
	case OP_SOFTMAX:
		*out = *x;
		if (!axis_ok(axis_of(a->axis, x->rank), x->rank))
			return bad(c, "axis %lld", (long long)a->axis);
		return float32(c, x);
	case OP_UNARY:
		return unary(c, in, out);
	case OP_BINARY:
	case OP_SUM:
	case OP_WHERE:
		return elementwise(c, in, out);
	case OP_CAST:
		*out = *x;
		out->type = a->to;
		/* from float16, as weights are */
		return T_CASTS >> a->to & 1 && T_ANY >> x->type & 1 ? 0 :
			bad_shape(c, -ENOTSUP, "this type");
	case OP_CONCAT:
		return concat(c, in, out);
	case OP_SLICE: {
		int64_t first[SERVE_RANK], by[SERVE_RANK];

		return slice(c, in, out, first, by);
	}
	case OP_RESHAPE:
		return reshape(c, in, out);
	case OP_FLATTEN:
		k = axis_of(a->axis, x->rank);
		if (k < 0 || k > (int64_t)x->rank)
			return bad(c, "axis %lld", (long long)a->axis);
		out->type = x->type;
		out->rank = 2;
		out->dims[0] = count((unsigned int)k, x->dims);
		out->dims[1] = count(x->rank - (unsigned int)k, x->dims + k);
		return 0;
	case OP_SQUEEZE:
	case OP_UNSQUEEZE:
		return squeeze(c, in, out);
	case OP_IDENTITY:
		*out = *x;
		return 0;
	case OP_TRANSPOSE:
		*out = *x;
		if (a->has_ints && a->nints != x->rank)
			return bad(c, "%u axes for %u dimensions", a->nints, x->rank);
		for (i = 0, m = 0; i < x->rank; i++) {
			k = a->has_ints ? a->ints[i] : x->rank - 1 - i;
			if (!axis_ok(k, x->rank) || (m & (int64_t)1 << k))
				return bad(c, "axis %lld", (long long)k);
			m |= (int64_t)1 << k;
			out->dims[i] = x->dims[k];
		}
		return 0;
	case OP_EXPAND: {
		struct shape to = { .rank = 0 };

		*out = *x;
		rc = shape_numbers(c, in[1], "the shape", to.dims, &to.rank, SERVE_RANK);
		return rc ? rc : shape_broadcast(c, out, &to);
	}
	case OP_PAD: {
		int64_t p[2 * SERVE_RANK];

		return pad(c, in, out, p);
	}
	case OP_GATHER:
		k = axis_of(a->axis, x->rank);
		if (!axis_ok(k, x->rank) || x->rank - 1 + in[1]->rank > SERVE_RANK)
			return bad(c, "axis %lld", (long long)a->axis);
		if (in[1]->type != SERVE_INT32 && in[1]->type != SERVE_INT64)
			return bad(c, "indices that are not whole numbers");
		out->type = x->type;
		for (i = 0, n = 0; i < (unsigned int)k; i++)
			out->dims[n++] = x->dims[i];
		for (i = 0; i < in[1]->rank; i++)
			out->dims[n++] = in[1]->dims[i];
		for (i = (unsigned int)k + 1; i < x->rank; i++)
			out->dims[n++] = x->dims[i];
		out->rank = n;
		return 0;
	case OP_SHAPE:
		out->type = SERVE_INT64;
		out->rank = 1;
		out->dims[0] = shape_range(a, x->rank, &i);
		return 0;
	case OP_FILL:
		out->type = a->to;
		return shape_numbers(c, in[0], "the shape", out->dims, &out->rank, SERVE_RANK);
	case OP_RESIZE:
		return resize(c, in, out);
	case OP_REDUCE: {
		bool at[SERVE_RANK];

		return reduce(c, in, out, at);
	}
	case OP_TABLE:
		if (!(c->n->oper->types >> x->type & 1))
			return bad_shape(c, -ENOTSUP, "this type");
		rc = oper_type(c->n, &out->type);
		if (rc >= 0)
			out->type = in[rc]->type;
		return c->n->oper->shape(c, in, out);
	case OP_AFFINE:
		*out = *x;
		if (x->rank < 2 || x->dims[1] != in[1]->dims[0])
			return bad(c, "the input does not have %lld channels",
				   (long long)in[1]->dims[0]);
		return float32(c, x);
	}
	return bad(c, "no shape");
}

int shape_of(const struct node *n, const struct shape *const *in, struct shape *out, char *err,
	     size_t errsize)
{
	struct ctx c = { n, err, errsize };
	size_t bytes;
	int rc;

	memset(out, 0, sizeof(*out));
	rc = by_op(&c, in, out);
	out->data = NULL;
	out->owned = false;
	if (!rc && dims_bytes(out->type, out->rank, out->dims, &bytes))
		rc = bad(&c, "the output is too large");
	return rc;
}

/* The same once more for the kernels; the shapes were checked. */
void slice_of(const struct node *n, const struct shape *const *in, int64_t *first, int64_t *by)
{
	struct ctx c = { n, NULL, 0 };
	struct shape out;

	slice(&c, in, &out, first, by);
}

void reduced_of(const struct node *n, const struct shape *const *in, bool *gone)
{
	struct ctx c = { n, NULL, 0 };
	struct shape out;

	reduce(&c, in, &out, gone);
}

void pads_of(const struct node *n, const struct shape *const *in, int64_t *pads)
{
	struct ctx c = { n, NULL, 0 };
	struct shape out;

	pad(&c, in, &out, pads);
}
