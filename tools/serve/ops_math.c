// SPDX-License-Identifier: Apache-2.0
/* ops_math.c - operators that compute: rows of a table (oper.h). */
#include <math.h>
#include <string.h>

#include "oper.h"
#include "rows.h"

/* ---- element by element --------------------------------------------------------------- */

enum { LOGIC_AND, LOGIC_OR, LOGIC_XOR, BITS_AND, BITS_OR, BITS_XOR, SHIFT, MOD, BITS_NOT, IS_NAN, IS_INF };

struct each {
	enum serve_type type;
	unsigned int kind;
	int64_t how;
};

/* All whole numbers as those of 64 bits, whose lowest bits are the result. */
static uint64_t of_two(const struct each *e, int64_t x, int64_t y)
{
	bool small = e->type == SERVE_UINT8 || e->type == SERVE_UINT16 || e->type == SERVE_UINT32 ||
		e->type == SERVE_UINT64;
	int64_t r;

	switch (e->kind) {
	case LOGIC_AND:
		return x && y;
	case LOGIC_OR:
		return x || y;
	case LOGIC_XOR:
		return !x != !y;
	case BITS_AND:
		return (uint64_t)(x & y);
	case BITS_OR:
		return (uint64_t)(x | y);
	case BITS_XOR:
		return (uint64_t)(x ^ y);
	case SHIFT:
		return y < 0 || y >= 8 * (int64_t)type_size(e->type) ? 0 : e->how ?
			(uint64_t)x >> y : (uint64_t)x << y;
	default:
		if (!y)
			return 0;
		if (small)
			return (uint64_t)x % (uint64_t)y;
		if (y == -1)
			return 0;
		r = x % y;
		/* the sign is that of the divisor, or with fmod that of x */
		return (uint64_t)(r && !e->how && (r < 0) != (y < 0) ? r + y : r);
	}
}

static void each_two(int64_t n, char *const *p, const int64_t *st, const void *arg)
{
	const struct each *e = arg;
	size_t size = type_size(e->type);
	char *o = p[0];
	const char *x = p[1], *y = p[2];
	int64_t i, step = (int64_t)size;

	for (i = 0; i < n; i++, o += st[0] * step, x += st[1] * step, y += st[2] * step) {
		if (e->type == SERVE_FP32) {
			float a, b;

			memcpy(&a, x, sizeof(a));
			memcpy(&b, y, sizeof(b));
			a = fmodf(a, b);
			memcpy(o, &a, sizeof(a));
		} else {
			uint64_t r = of_two(e, load_whole(e->type, x), load_whole(e->type, y));

			memcpy(o, &r, size);	/* little endian */
		}
	}
}

static void each_one(int64_t n, char *const *p, const int64_t *st, const void *arg)
{
	const struct each *e = arg;
	int64_t i, size = (int64_t)type_size(e->type);
	const char *x = p[1];
	char *o = p[0];

	for (i = 0; i < n; i++, x += st[1] * size) {
		double d;
		float f;
		uint64_t l;

		if (e->kind == BITS_NOT) {
			l = ~(uint64_t)load_whole(e->type, x);
			memcpy(o + i * st[0] * size, &l, (size_t)size);
			continue;
		}
		memcpy(&d, x, e->type == SERVE_FP64 ? sizeof(d) : 0);
		if (e->type == SERVE_FP32) {
			memcpy(&f, x, sizeof(f));
			d = (double)f;
		}
		/* how: 1: negative, 2: positive infinity */
		o[i * st[0]] = e->kind == IS_NAN ? d != d :
			(d == (double)INFINITY && (e->how & 2)) || (d == -(double)INFINITY && (e->how & 1));
	}
}

static int run_each(const struct node *n, const struct view *out, const struct view *const *in)
{
	struct each e = { in[0]->type, n->oper->kind, n->a.p[0] };
	const struct view *v[] = { out, in[0], n->nin > 1 ? in[1] : NULL };

	if (e.kind == IS_INF)
		e.how = (n->a.p[0] ? 1 : 0) | (n->a.p[1] ? 2 : 0);
	if (n->nin > 1)
		walk(3, v, each_two, &e);
	else
		walk(2, v, each_one, &e);
	return 0;
}

static int shape_mod(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	if (in[0]->type == SERVE_FP32 && !c->n->a.p[0])
		return bad(c, "fmod is 0 for fractions");
	return shape_each(c, in, out);
}

static void prelu1(int64_t n, char *const *p, const int64_t *st, const void *arg)
{
	float *o = (float *)(void *)p[0];
	const float *x = (const float *)(const void *)p[1];
	const float *k = (const float *)(const void *)p[2];
	int64_t i;

	if (st[0] == 1 && st[1] == 1 && st[2] <= 1 && st[2] >= 0)
		for (i = 0; i < n; i++)
			o[i] = x[i] < 0 ? x[i] * k[st[2] ? i : 0] : x[i];
	else
		for (i = 0; i < n; i++)
			o[i * st[0]] = x[i * st[1]] < 0 ? x[i * st[1]] * k[i * st[2]] : x[i * st[1]];
}

static int shape_prelu(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	int rc = shape_each(c, in, out);

	if (!rc && (out->rank != in[0]->rank ||
		    memcmp(out->dims, in[0]->dims, out->rank * sizeof(*out->dims))))
		return bad(c, "the slope is larger than the input");
	return rc;
}

static int run_prelu(const struct node *n, const struct view *out, const struct view *const *in)
{
	const struct view *v[] = { out, in[0], in[1] };

	walk(3, v, prelu1, NULL);
	return 0;
}

/* A slope for each channel, or one. */
static int shape_prelu_channels(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	if (in[0]->rank < 2 || in[1]->type != SERVE_FP32 || in[1]->rank != 1 ||
	    (in[1]->dims[0] != 1 && in[1]->dims[0] != in[0]->dims[1]))
		return bad(c, "the slopes do not fit the channels");
	return shape_same(c, in, out);
}

static int run_prelu_channels(const struct node *n, const struct view *out, const struct view *const *in)
{
	struct view k = *in[1];
	const struct view *v[] = { out, in[0], &k };
	unsigned int i;

	k.rank = out->rank;
	for (i = 0; i < k.rank; i++) {
		k.dims[i] = i == 1 ? in[1]->dims[0] : 1;
		k.strides[i] = i == 1;
	}
	walk(3, v, prelu1, NULL);
	return 0;
}

const struct oper oper_prelu_channels = { "LeakyReLU", "", 2, 2, 1, 0, BIT(FP32), { 0 }, true,
	shape_prelu_channels, rows_channels, run_prelu_channels };

/* ---- the mean of each of so many parts of a picture: p ------------------------------------ */

static int shape_adaptive(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	unsigned int i;

	shape_same(c, in, out);
	if (out->rank != 4)
		return bad(c, "%u dimensions", out->rank);
	for (i = 0; i < 2; i++) {
		if (c->n->a.p[i] < 1 || c->n->a.p[i] > 65536 || !in[0]->dims[2 + i])
			return bad(c, "output_size %lld", (long long)c->n->a.p[i]);
		out->dims[2 + i] = c->n->a.p[i];
	}
	return 0;
}

static int run_adaptive(const struct node *n, const struct view *out, const struct view *const *in)
{
	int64_t h = in[0]->dims[2], w = in[0]->dims[3], oh = out->dims[2], ow = out->dims[3];
	int64_t planes = out->dims[0] * out->dims[1], p, y, x, i, k;
	const float *from = (const float *)(const void *)in[0]->data;
	float *to = (float *)(void *)out->data;

	for (p = 0; p < planes; p++, from += h * w)
		for (y = 0; y < oh; y++)
			for (x = 0; x < ow; x++) {
				int64_t y0 = y * h / oh, y1 = ((y + 1) * h + oh - 1) / oh;
				int64_t x0 = x * w / ow, x1 = ((x + 1) * w + ow - 1) / ow;
				double sum = 0;

				for (i = y0; i < y1; i++)
					for (k = x0; k < x1; k++)
						sum += (double)from[i * w + k];
				*to++ = (float)(sum / (double)((y1 - y0) * (x1 - x0)));
			}
	return 0;
}

const struct oper oper_adaptive = { "AdaptiveAvgPooling2D", "", 1, 1, 1, 0, BIT(FP32), { 0 }, false,
	shape_adaptive, rows_images, run_adaptive };

static int run_cast_like(const struct node *n, const struct view *out, const struct view *const *in)
{
	cast_run(out, in[0]);
	return 0;
}

static int shape_cast_like(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	if (!(T_CASTS >> out->type & 1))
		return bad_shape(c, -ENOTSUP, "this type");
	return shape_same(c, in, out);
}

/* ---- normalization --------------------------------------------------------------------- */

/* p[0]: groups; f[0]: epsilon.  kind: each channel is a group. */
static int shape_group_norm(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0];
	unsigned int i;

	if (x->rank < 3)
		return bad(c, "%u dimensions", x->rank);
	if (!c->n->oper->kind && (c->n->a.p[0] < 1 || x->dims[1] % c->n->a.p[0]))
		return bad(c, "%lld channels in %lld groups", (long long)x->dims[1],
			   (long long)c->n->a.p[0]);
	for (i = 1; i < 3; i++)
		if (in[i]->type != SERVE_FP32 || in[i]->rank != 1 ||
		    (in[i]->dims[0] != x->dims[1] &&
		     (c->n->oper->kind || in[i]->dims[0] != c->n->a.p[0])))
			return bad(c, "input %u does not have %lld elements", i, (long long)x->dims[1]);
	return shape_same(c, in, out);
}

WIDE static void scale_row(int64_t n, float *y, const float *x, float by, float plus)
{
	int64_t i;

	for (i = 0; i < n; i++)
		y[i] = x[i] * by + plus;
}

WIDE static void moments(int64_t n, const float *x, double *sum, double *square)
{
	double s[8] = { 0 }, q[8] = { 0 }, d;
	int64_t i, k;

	for (i = 0; i + 8 <= n; i += 8)
		for (k = 0; k < 8; k++) {
			d = (double)x[i + k];
			s[k] += d;
			q[k] += d * d;
		}
	for (; i < n; i++) {
		d = (double)x[i];
		s[0] += d;
		q[0] += d * d;
	}
	*sum = *square = 0;
	for (k = 0; k < 8; k++) {
		*sum += s[k];
		*square += q[k];
	}
}

static int run_group_norm(const struct node *n, const struct view *out, const struct view *const *in)
{
	const float *x = (const float *)(const void *)in[0]->data;
	const float *scale = (const float *)(const void *)in[1]->data;
	const float *shift = (const float *)(const void *)in[2]->data;
	float *y = (float *)(void *)out->data;
	int64_t channels = out->dims[1], groups = n->oper->kind ? channels : n->a.p[0];
	int64_t pixels = count(out->rank - 2, out->dims + 2), b, g, c;
	int64_t each = groups ? channels / groups : 0, len = each * pixels;

	for (b = 0; b < out->dims[0] && len; b++)
		for (g = 0; g < groups; g++, x += len, y += len) {
			double sum, square, mean, by;

			moments(len, x, &sum, &square);
			mean = sum / (double)len;
			square = square / (double)len - mean * mean;
			by = 1 / sqrt((square > 0 ? square : 0) + (double)n->a.f[0]);
			for (c = 0; c < each; c++) {
				int64_t at = in[1]->dims[0] == channels ? g * each + c : g;
				int64_t at2 = in[2]->dims[0] == channels ? g * each + c : g;
				double k = by * (double)scale[at];

				scale_row(pixels, y + c * pixels, x + c * pixels, (float)k,
					  (float)((double)shift[at2] - mean * k));
			}
		}
	return 0;
}

/* p: axis, p */
static int shape_lp_norm(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	if (c->n->a.p[1] != 1 && c->n->a.p[1] != 2)
		return bad(c, "p is %lld", (long long)c->n->a.p[1]);
	return shape_same_axis(c, in, out);
}

static int run_lp_norm(const struct node *n, const struct view *out, const struct view *const *in)
{
	struct span s = span_of(n->a.p[0], out->rank, out->dims);
	const float *x = (const float *)(const void *)in[0]->data;
	float *y = (float *)(void *)out->data;
	int64_t i, j, k, at;
	double sum;

	for (i = 0; i < s.outer; i++)
		for (k = 0; k < s.inner; k++) {
			sum = 0;
			for (j = 0; j < s.n; j++) {
				double d = (double)x[(i * s.n + j) * s.inner + k];

				sum += n->a.p[1] == 1 ? fabs(d) : d * d;
			}
			sum = n->a.p[1] == 1 ? sum : sqrt(sum);
			for (j = 0; j < s.n; j++) {
				at = (i * s.n + j) * s.inner + k;
				y[at] = sum > 0 ? (float)((double)x[at] / sum) : 0;
			}
		}
	return 0;
}

static int run_hardmax(const struct node *n, const struct view *out, const struct view *const *in)
{
	struct span s = span_of(n->a.p[0], out->rank, out->dims);
	const float *x = (const float *)(const void *)in[0]->data;
	float *y = (float *)(void *)out->data;
	int64_t i, j, k, best;

	memset(y, 0, (size_t)(s.outer * s.n * s.inner) * sizeof(*y));
	for (i = 0; i < s.outer && s.n; i++)
		for (k = 0; k < s.inner; k++) {
			best = 0;
			for (j = 1; j < s.n; j++)
				if (x[(i * s.n + j) * s.inner + k] > x[(i * s.n + best) * s.inner + k])
					best = j;
			y[(i * s.n + best) * s.inner + k] = 1;
		}
	return 0;
}

/* ---- quantization: one scale, or one for each element of an axis ---------------------- */

/* p: axis, block_size.  Inputs: data, scales, zero points, which may be left out. */
static int shape_quantize(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0], *s = in[1], *z = c->n->nin > 2 ? in[2] : NULL;
	bool de = c->n->oper->kind;
	int64_t axis = axis_of(c->n->a.p[0], x->rank);

	if (s->type != SERVE_FP32)
		return bad_shape(c, -ENOTSUP, "scales of this type");
	if (c->n->a.p[1])
		return bad_shape(c, -ENOTSUP, "block_size");
	if (count(s->rank, s->dims) != 1 || s->rank > 1) {
		if (s->rank != 1 || !axis_ok(axis, x->rank) || s->dims[0] != x->dims[axis])
			return bad(c, "scales do not fit axis %lld", (long long)c->n->a.p[0]);
	}
	if (z && (z->rank > 1 || count(z->rank, z->dims) != count(s->rank, s->dims)))
		return bad(c, "zero points do not fit the scales");
	if (z && de && z->type != x->type)
		return bad(c, "zero points of another type");
	if (!de && out->type != SERVE_UINT8 && out->type != SERVE_INT8)
		return bad_shape(c, -ENOTSUP, "this type");
	return shape_same(c, in, out);
}

#define QUANTIZE(T, LOW, HIGH) do { \
	T *o = (T *)(void *)p[0]; \
	const float *x = (const float *)(const void *)p[1], *by = (const float *)(const void *)p[2]; \
	for (i = 0; i < n; i++) { \
		float y = rintf(x[i * st[1]] / by[i * st[2]]) + \
			(float)(p[3] ? ((const T *)(const void *)p[3])[i * st[3]] : 0); \
		o[i * st[0]] = y >= HIGH ? HIGH : y > LOW ? (T)y : LOW; \
	} \
} while (0)

static void quantize1(int64_t n, char *const *p, const int64_t *st, const void *arg)
{
	int64_t i;

	if (*(const enum serve_type *)arg == SERVE_UINT8)
		QUANTIZE(uint8_t, 0, 255);
	else
		QUANTIZE(int8_t, -128, 127);
}

#define DEQUANTIZE(T) do { \
	const T *x = (const T *)(const void *)p[1]; \
	const T *z = (const T *)(const void *)p[3]; \
	for (i = 0; i < n; i++) \
		o[i * st[0]] = (float)((int64_t)x[i * st[1]] - (z ? (int64_t)z[i * st[3]] : 0)) * \
			by[i * st[2]]; \
} while (0)

static void dequantize1(int64_t n, char *const *p, const int64_t *st, const void *arg)
{
	float *o = (float *)(void *)p[0];
	const float *by = (const float *)(const void *)p[2];
	int64_t i;

	switch (*(const enum serve_type *)arg) {
	case SERVE_UINT8:
		DEQUANTIZE(uint8_t);
		break;
	case SERVE_INT8:
		DEQUANTIZE(int8_t);
		break;
	case SERVE_UINT16:
		DEQUANTIZE(uint16_t);
		break;
	case SERVE_INT16:
		DEQUANTIZE(int16_t);
		break;
	default:
		DEQUANTIZE(int32_t);
	}
}

/* Minus the zero point, of which there is one, or one for each element of the axis in p. */
static int shape_centered(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0], *z = c->n->nin > 1 ? in[1] : NULL;
	int64_t axis = axis_of(c->n->a.p[0], x->rank);

	if (z && (z->type != x->type || z->rank > 1))
		return bad_shape(c, -ENOTSUP, "zero points of this type or shape");
	if (z && count(z->rank, z->dims) != 1) {
		if (axis == INT64_MAX)
			return bad_shape(c, -ENOTSUP, "a zero point for each row");
		if (!axis_ok(axis, x->rank) || z->dims[0] != x->dims[axis])
			return bad(c, "zero points do not fit the data");
	}
	return shape_same(c, in, out);
}

/* With one scale the axis does not matter. */
static bool rows_quantize(struct rows *r)
{
	if (!row_first_alone(r))
		return false;
	return (r->node->nin < 2 || count(r->in[1]->rank, r->in[1]->dims) == 1 ||
		r->at[0]->axis != row_axis(r->node->a.p[0], r->in[0]->rank)) &&
		row_along(r, r->at[0]->axis, r->at[0]->k);
}

static int run_quantize(const struct node *n, const struct view *out, const struct view *const *in)
{
	static const float one = 1;
	bool de = n->oper->kind, centered = n->oper == &oper_centered;
	unsigned int i, k, from, rank = out->rank;
	struct view s[2];
	const struct view *v[] = { out, in[0], &s[0], &s[1] };

	/* along the axis of the data; without zero points the operand is NULL, and is not moved */
	for (i = 0; i < 2; i++) {
		from = centered ? i : 1 + i;
		s[i] = from && n->nin > from && in[from] ? *in[from] :
			(struct view){ .type = SERVE_BYTES };
		if (!from)
			s[i] = (struct view){ SERVE_FP32, 0, { 0 }, { 0 }, (char *)(uintptr_t)&one };
		if (s[i].rank == 1) {
			int64_t axis = axis_of(n->a.p[0], rank), size = s[i].dims[0];

			for (k = 0; k < rank; k++) {
				s[i].dims[k] = (int64_t)k == axis && size != 1 ? size : 1;
				s[i].strides[k] = (int64_t)k == axis ? 1 : 0;
			}
			s[i].rank = rank;
		}
	}
	walk(4, v, de ? dequantize1 : quantize1, de ? &in[0]->type : &out->type);
	return 0;
}

const struct oper oper_centered = { "MatMulInteger", "", 1, 2, 1, 1, T_SMALL, { IS + SERVE_FP32 }, true,
	shape_centered, rows_quantize, run_quantize };

/* Outputs: the data in 8 bits, its scale, and its zero point. */
static int shape_dynamic(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	if (!c->n->a.output)
		return shape_same(c, in, out);
	out->rank = 0;
	return 0;
}

WIDE static void extremes(int64_t n, const float *x, float *least, float *most)
{
	float low[8] = { 0 }, high[8] = { 0 };
	int64_t i, k;

	for (i = 0; i + 8 <= n; i += 8)
		for (k = 0; k < 8; k++) {
			low[k] = x[i + k] < low[k] ? x[i + k] : low[k];
			high[k] = x[i + k] > high[k] ? x[i + k] : high[k];
		}
	for (; i < n; i++) {
		low[0] = x[i] < low[0] ? x[i] : low[0];
		high[0] = x[i] > high[0] ? x[i] : high[0];
	}
	for (k = 1; k < 8; k++) {
		low[0] = low[k] < low[0] ? low[k] : low[0];
		high[0] = high[k] > high[0] ? high[k] : high[0];
	}
	*least = low[0];
	*most = high[0];
}

WIDE static void bytes_of(int64_t n, uint8_t *o, const float *x, float scale, float zero)
{
	int64_t i;

	for (i = 0; i < n; i++) {
		float y = rintf(x[i] / scale) + zero;

		o[i] = (uint8_t)(int32_t)(y >= 255 ? 255 : y > 0 ? y : 0);
	}
}

static int run_dynamic(const struct node *nd, const struct view *out, const struct view *const *in)
{
	const float *x = (const float *)(const void *)in[0]->data;
	int64_t n = count(in[0]->rank, in[0]->dims);
	float least, most, scale, zero;

	extremes(n, x, &least, &most);
	scale = least < most ? (most - least) / 255 : 1;
	zero = rintf(clampf(-least / scale, 0, 255));
	if (!nd->a.output)
		bytes_of(n, (uint8_t *)out->data, x, scale, zero);
	else if (nd->a.output == 1)
		*(float *)(void *)out->data = scale;
	else
		*(uint8_t *)out->data = (uint8_t)zero;
	return 0;
}

/* ---- losses: p: reduction, ignore_index; outputs: the loss, logarithms of probabilities ---- */

enum { MEAN, NONE, SUM };
enum { GIVEN, SOFTMAX };		/* kind: the input has logarithms, or they are computed */
#define NO_INDEX "-9223372036854775808"

static int shape_loss(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0], *t = in[1], *w = c->n->nin > 2 ? in[2] : NULL;
	unsigned int i;

	if (x->rank < 2 || t->rank != x->rank - 1 || !(T_INTS >> t->type & 1) || t->dims[0] != x->dims[0])
		return bad(c, "the target does not fit");
	for (i = 1; i < t->rank; i++)
		if (t->dims[i] != x->dims[i + 1])
			return bad(c, "the target does not fit");
	if (w && (w->type != SERVE_FP32 || w->rank != 1 || w->dims[0] != x->dims[1]))
		return bad(c, "the weights do not have %lld elements", (long long)x->dims[1]);
	if (c->n->a.output)
		return shape_same(c, in, out);
	if (c->n->a.p[0] == NONE) {
		out->rank = t->rank;
		memcpy(out->dims, t->dims, sizeof(out->dims));
	}
	return 0;
}

/* The logarithm of the sum of all exponentials of a row. */
static double log_sum(const float *x, struct span s)
{
	double sum = 0;
	float most = x[0];
	int64_t k;

	for (k = 1; k < s.n; k++)
		most = x[k * s.inner] > most ? x[k * s.inner] : most;
	for (k = 0; k < s.n; k++)
		sum += exp((double)(x[k * s.inner] - most));
	return (double)most + log(sum);
}

static int run_loss(const struct node *n, const struct view *out, const struct view *const *in)
{
	struct span s = span_of(1, in[0]->rank, in[0]->dims);
	const float *w = n->nin > 2 && in[2] ? (const float *)(const void *)in[2]->data : NULL;
	float *y = (float *)(void *)out->data;
	double all = 0, weights = 0, less, by, loss;
	int64_t i, k, c, at;

	for (i = 0; i < s.outer && s.n; i++)
		for (k = 0; k < s.inner; k++) {
			const float *x = (const float *)(const void *)in[0]->data + i * s.n * s.inner + k;

			less = n->oper->kind == SOFTMAX ? log_sum(x, s) : 0;
			for (c = 0; n->a.output && c < s.n; c++)
				y[(i * s.n + c) * s.inner + k] = (float)((double)x[c * s.inner] - less);
			if (n->a.output)
				continue;
			at = load_whole(in[1]->type, in[1]->data + (i * s.inner + k) *
					(int64_t)type_size(in[1]->type));
			loss = by = 0;
			if (at != n->a.p[1]) {
				if (at < 0 || at >= s.n)
					return -EINVAL;
				by = w ? (double)w[at] : 1;
				loss = by * (less - (double)x[at * s.inner]);
			}
			if (n->a.p[0] == NONE)
				y[i * s.inner + k] = (float)loss;
			all += loss;
			weights += by;
		}
	if (!n->a.output && n->a.p[0] != NONE)
		*y = (float)(n->a.p[0] == MEAN ? all / weights : all);
	return 0;
}

/* ---- Einsum: letters of the operands in ints and more, of the output in steps; p: how many ---- */

struct sums {
	unsigned int n, nout;			/* letters; the first nout are those of the output */
	int64_t letter[3 * SERVE_RANK], size[3 * SERVE_RANK];
};

static int sums_of(const struct node *nd, const unsigned int *rank, const int64_t *const *dims,
		   struct sums *s)
{
	const int64_t *terms[] = { nd->a.steps, nd->a.ints, nd->a.more }, *t;
	unsigned int i, k, m;

	memset(s, 0, sizeof(*s));
	for (i = 0; i <= nd->nin; i++) {
		t = terms[i];
		for (k = 0; k < (unsigned int)nd->a.p[i ? i - 1 : 2]; k++) {
			for (m = 0; m < s->n && s->letter[m] != t[k]; m++)
				;
			if (m == s->n) {
				s->letter[s->n] = t[k];
				s->size[s->n++] = i ? dims[i - 1][k] : -1;
			} else if (s->size[m] < 0) {
				s->size[m] = dims[i - 1][k];
			} else if (s->size[m] != dims[i - 1][k]) {
				return -EINVAL;
			}
		}
		if (!i)
			s->nout = s->n;
		else if (rank[i - 1] != (unsigned int)nd->a.p[i - 1])
			return -EINVAL;
	}
	return 0;
}

static int shape_einsum(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	unsigned int rank[2], i;
	const int64_t *dims[2];
	struct sums s;

	for (i = 0; i < c->n->nin; i++) {
		rank[i] = in[i]->rank;
		dims[i] = in[i]->dims;
		if (in[i]->type != SERVE_FP32)
			return bad_shape(c, -ENOTSUP, "this type");
		if (in[i]->rank != (unsigned int)c->n->a.p[i])
			return bad(c, "%u dimensions", in[i]->rank);
	}
	if (sums_of(c->n, rank, dims, &s))
		return bad(c, "the sizes of a letter differ");
	out->rank = s.nout;
	memcpy(out->dims, s.size, s.nout * sizeof(*out->dims));
	return 0;
}

static int run_einsum(const struct node *n, const struct view *out, const struct view *const *in)
{
	const int64_t *terms[] = { n->a.ints, n->a.more }, *dims[2] = { NULL };
	int64_t at[3 * SERVE_RANK] = { 0 }, step[2][3 * SERVE_RANK] = { { 0 } }, off[2] = { 0 }, o = 0;
	unsigned int rank[2] = { 0 }, i, k, m;
	float *y = (float *)(void *)out->data;
	struct sums s;
	double sum = 0;

	for (i = 0; i < n->nin; i++) {
		rank[i] = in[i]->rank;
		dims[i] = in[i]->dims;
	}
	if (sums_of(n, rank, dims, &s))
		return -EINVAL;
	for (i = 0; i < n->nin; i++)
		for (k = 0; k < rank[i]; k++)
			for (m = 0; m < s.n; m++)
				if (s.letter[m] == terms[i][k])
					step[i][m] += in[i]->strides[k];
	memset(y, 0, (size_t)count(out->rank, out->dims) * sizeof(*y));
	for (m = 0; m < s.n; m++)
		if (!s.size[m])
			return 0;
	for (;;) {
		float p = ((const float *)(const void *)in[0]->data)[off[0]];

		if (n->nin > 1)
			p *= ((const float *)(const void *)in[1]->data)[off[1]];
		sum += (double)p;
		for (m = s.n; m-- > 0; ) {
			for (i = 0; i < n->nin; i++)
				off[i] += step[i][m];
			if (++at[m] < s.size[m])
				break;
			for (i = 0; i < n->nin; i++)
				off[i] -= step[i][m] * s.size[m];
			at[m] = 0;
		}
		/* the letters that are summed are the last ones */
		if (m == UINT_MAX || m < s.nout) {
			y[o++] = (float)sum;
			sum = 0;
		}
		if (m == UINT_MAX)
			return 0;
	}
}

/* The rows have one letter, in each operand that has rows, and in no other; and in the output. */
static bool rows_einsum(struct rows *r)
{
	const struct attrs *a = &r->node->a;
	const int64_t *terms[] = { a->ints, a->more };
	int64_t letter = 0, k = 0;
	unsigned int i, j, times;
	int at;

	for (i = 0; i < r->node->nin; i++) {
		if (row_plain(r, i))
			continue;
		if (r->at[i]->state != AXIS || (letter && terms[i][r->at[i]->axis] != letter) ||
		    (k && r->at[i]->k != k))
			return false;
		letter = terms[i][r->at[i]->axis];
		k = r->at[i]->k;
	}
	for (i = 0; i < r->node->nin; i++) {
		for (j = times = 0; j < (unsigned int)a->p[i]; j++)
			times += terms[i][j] == letter;
		if (times != (row_plain(r, i) ? 0u : 1u))
			return false;
	}
	for (at = 0; at < a->p[2] && a->steps[at] != letter; at++)
		;
	return at < a->p[2] && row_along(r, at, k);
}

const struct oper oper_einsum = { "Einsum", "", 1, 2, 1, 0, BIT(FP32), { 0 }, false, shape_einsum,
	rows_einsum, run_einsum };

#define LOGIC(name, kind) { name, "", 2, 2, 1, kind, BIT(BOOL), { 0 }, true, shape_each, rows_each, \
	run_each }
#define BITS(name, kind, attrs) { name, attrs, 2, 2, 1, kind, T_ALL_INTS, { 0 }, true, shape_each, \
	rows_each, run_each }
const struct oper opers_math[] = {
	LOGIC("And", LOGIC_AND),
	/* what shifts of signed numbers are is not agreed */
	{ "BitShift", "direction=LEFT|RIGHT", 2, 2, 1, SHIFT,
		BIT(UINT8) | BIT(UINT16) | BIT(UINT32) | BIT(UINT64), { 0 }, true, shape_each,
		rows_each, run_each },
	BITS("BitwiseAnd", BITS_AND, ""),
	{ "BitwiseNot", "", 1, 1, 1, BITS_NOT, T_ALL_INTS, { 0 }, true, shape_same, rows_each, run_each },
	BITS("BitwiseOr", BITS_OR, ""),
	BITS("BitwiseXor", BITS_XOR, ""),
	{ "CastLike", "saturate* round_mode*", 2, 2, 1, 0, T_CASTS, { OF_SECOND }, true,
		shape_cast_like, rows_first, run_cast_like },
	{ "DequantizeLinear", "axis=1 block_size=0", 2, 3, 1, 1, T_SMALL | BIT(INT32) | BIT(INT16) |
		BIT(UINT16), { IS + SERVE_FP32 }, true, shape_quantize, rows_quantize, run_quantize },
	{ "DynamicQuantizeLinear", "", 1, 1, 3, 0, BIT(FP32),
		{ IS + SERVE_UINT8, IS + SERVE_FP32, IS + SERVE_UINT8 }, false, shape_dynamic, NULL,
		run_dynamic },
	{ "GroupNormalization", "num_groups=! epsilon=~1e-5 stash_type*", 3, 3, 1, 0, BIT(FP32), { 0 },
		false, shape_group_norm, rows_images, run_group_norm },
	{ "Hardmax", "axis=-1", 1, 1, 1, 0, BIT(FP32), { 0 }, false, shape_same_axis, rows_axis,
		run_hardmax },
	{ "InstanceNormalization", "epsilon=~1e-5", 3, 3, 1, 1, BIT(FP32), { 0 }, false,
		shape_group_norm, rows_images, run_group_norm },
	{ "IsInf", "detect_negative=1 detect_positive=1", 1, 1, 1, IS_INF, BIT(FP32) | BIT(FP64),
		{ IS + SERVE_BOOL }, true, shape_same, rows_each, run_each },
	{ "IsNaN", "", 1, 1, 1, IS_NAN, BIT(FP32) | BIT(FP64), { IS + SERVE_BOOL }, true, shape_same,
		rows_each, run_each },
	{ "LpNormalization", "axis=-1 p=2", 1, 1, 1, 0, BIT(FP32), { 0 }, false, shape_lp_norm,
		rows_axis, run_lp_norm },
	{ "Mod", "fmod=0", 2, 2, 1, MOD, T_ALL_INTS | BIT(FP32), { 0 }, true, shape_mod, rows_each,
		run_each },
	{ "NegativeLogLikelihoodLoss", "reduction=mean|none|sum ignore_index=" NO_INDEX, 2, 3, 1, GIVEN,
		BIT(FP32), { 0 }, false, shape_loss, NULL, run_loss },
	LOGIC("Or", LOGIC_OR),
	{ "PRelu", "", 2, 2, 1, 0, BIT(FP32), { 0 }, true, shape_prelu, rows_each, run_prelu },
	{ "QuantizeLinear", "axis=1 block_size=0 saturate* output_dtype=type", 2, 3, 1, 0, BIT(FP32),
		{ OF_THIRD }, true, shape_quantize, rows_quantize, run_quantize },
	{ "SoftmaxCrossEntropyLoss", "reduction=mean|none|sum ignore_index=" NO_INDEX, 2, 3, 2, SOFTMAX,
		BIT(FP32), { 0 }, false, shape_loss, NULL, run_loss },
	LOGIC("Xor", LOGIC_XOR),
	{ 0 }
};
