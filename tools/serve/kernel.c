// SPDX-License-Identifier: Apache-2.0
/*
 * kernel.c - the operators except convolution and matrix product (oneDNN), and those in elem.c
 * and window.c.
 *
 * A kernel takes views, so the data may lie in rows or with the channels last.  Most of them
 * walk over the output with one loop per axis, the innermost of which is a small function.
 * Axes that are contiguous in all operands are walked as one.  Nothing is allocated.
 */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "oper.h"

void view_of(struct view *v, enum serve_type type, unsigned int rank, const int64_t *dims,
	     bool channels_last, void *data)
{
	int64_t step = 1;
	unsigned int i;

	v->type = type;
	v->rank = rank;
	v->data = data;
	memcpy(v->dims, dims, rank * sizeof(*dims));
	if (channels_last && rank > 2) {
		v->strides[1] = 1;
		step = dims[1];
		for (i = rank - 1; i >= 2; i--) {
			v->strides[i] = step;
			step *= dims[i];
		}
		v->strides[0] = step;
		return;
	}
	for (i = rank; i-- > 0; ) {
		v->strides[i] = step;
		step *= dims[i];
	}
}

#define SQUARE 16

/* A copy of two axes, of which one is contiguous in out, and the other one in in. */
static void transpose4(int64_t rows, int64_t columns, uint32_t *out, int64_t row_out,
		       const uint32_t *in, int64_t column_in)
{
	int64_t r, c, r0, c0, rn, cn;

	for (r0 = 0; r0 < rows; r0 = rn) {
		rn = r0 + SQUARE < rows ? r0 + SQUARE : rows;
		for (c0 = 0; c0 < columns; c0 = cn) {
			cn = c0 + SQUARE < columns ? c0 + SQUARE : columns;
			for (r = r0; r < rn; r++)
				for (c = c0; c < cn; c++)
					out[r * row_out + c] = in[c * column_in + r];
		}
	}
}

static void copy4(int64_t n, char *const *p, const int64_t *st, const void *arg);

void walk(unsigned int n, const struct view *const *v, inner_fn fn, const void *arg)
{
	int64_t dims[SERVE_RANK], st[SERVE_RANK][MAX_OPERANDS], at[SERVE_RANK];
	int64_t inner[MAX_OPERANDS], len;
	size_t size[MAX_OPERANDS];
	char *p[MAX_OPERANDS];
	unsigned int rank = 0, i, j, k;
	bool square;

	for (k = 0; k < n; k++) {
		size[k] = type_size(v[k]->type);
		p[k] = v[k]->data;
	}
	for (i = 0; i < v[0]->rank; i++) {
		int64_t d = v[0]->dims[i], s[MAX_OPERANDS];

		if (!d)
			return;
		if (d == 1)
			continue;
		for (k = 0; k < n; k++) {
			unsigned int behind = v[0]->rank - i;

			s[k] = behind > v[k]->rank || v[k]->dims[v[k]->rank - behind] == 1 ? 0 :
				v[k]->strides[v[k]->rank - behind];
		}
		/* insert by the stride, the largest first */
		for (j = rank; j > 0 && st[j - 1][0] < s[0]; j--) {
			memcpy(st[j], st[j - 1], sizeof(st[j]));
			dims[j] = dims[j - 1];
		}
		memcpy(st[j], s, sizeof(s));
		dims[j] = d;
		rank++;
	}
	for (i = rank; i-- > 1; ) {
		for (k = 0; k < n && st[i - 1][k] == st[i][k] * dims[i]; k++)
			;
		if (k < n)
			continue;
		memcpy(st[i - 1], st[i], sizeof(st[i]));
		dims[i - 1] *= dims[i];
		for (j = i; j + 1 < rank; j++) {
			memcpy(st[j], st[j + 1], sizeof(st[j]));
			dims[j] = dims[j + 1];
		}
		rank--;
	}
	len = 1;
	memset(inner, 0, sizeof(inner));
	if (rank) {
		rank--;
		len = dims[rank];
		memcpy(inner, st[rank], sizeof(inner));
	}
	memset(at, 0, sizeof(at));
	square = fn == copy4 && rank && inner[0] == 1 && inner[1] > 1 && st[rank - 1][1] == 1;
	if (square)
		rank--;
	for (;;) {
		if (square)
			transpose4(dims[rank], len, (uint32_t *)(void *)p[0], st[rank][0],
				   (const uint32_t *)(const void *)p[1], inner[1]);
		else
			fn(len, p, inner, arg);
		for (i = rank; i-- > 0; ) {
			for (k = 0; k < n; k++)
				p[k] += st[i][k] * (int64_t)size[k];
			if (++at[i] < dims[i])
				break;
			for (k = 0; k < n; k++)
				p[k] -= st[i][k] * (int64_t)size[k] * dims[i];
			at[i] = 0;
		}
		if (i == UINT32_MAX)
			return;
	}
}

/* ---- copies ----------------------------------------------------------------- */

#define COPY(name, type) \
	static void name(int64_t n, char *const *p, const int64_t *st, const void *arg) \
	{ \
		type *restrict o = (type *)(void *)p[0]; \
		const type *restrict a = (const type *)(const void *)p[1]; \
		int64_t i, so = st[0], sa = st[1]; \
		if (so == 1 && sa == 1) \
			memcpy(o, a, (size_t)n * sizeof(type)); \
		else if (so == 1 && !sa) \
			for (i = 0; i < n; i++) \
				o[i] = a[0]; \
		else \
			for (i = 0; i < n; i++) \
				o[i * so] = a[i * sa]; \
	}
COPY(copy1, uint8_t)
COPY(copy2, uint16_t)
COPY(copy4, uint32_t)
COPY(copy8, uint64_t)

void view_copy(const struct view *out, const struct view *in)
{
	const struct view *v[] = { out, in };
	size_t size = type_size(out->type);

	walk(2, v, size == 1 ? copy1 : size == 2 ? copy2 : size == 4 ? copy4 : copy8, NULL);
}

struct view transposed(const struct node *n, const struct view *in)
{
	struct view v = *in;
	unsigned int i;

	for (i = 0; i < v.rank; i++) {
		unsigned int k = n->a.has_ints ? (unsigned int)n->a.ints[i] : v.rank - 1 - i;

		v.dims[i] = in->dims[k];
		v.strides[i] = in->strides[k];
	}
	return v;
}

/* ---- types and choices ----------------------------------------------------- */

/*
 * A NaN and numbers that do not fit become the smallest number of 64 or 32 bits, as the
 * processor's conversions have it, and onnxruntime.  Types of 8 bits have its lowest ones.
 */
static int64_t whole(double x, enum serve_type type)
{
	if (type == SERVE_UINT64 && x >= 0x1p63 && x < 0x1p64)
		return (int64_t)(uint64_t)x;
	if (type == SERVE_INT64 || type == SERVE_UINT64 || type == SERVE_UINT32)
		return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
	return x > -0x1p31 - 1 && x < 0x1p31 ? (int64_t)x : INT32_MIN;
}

static double load_half(const char *p)
{
	uint16_t h;
	int exponent;
	double d;

	memcpy(&h, p, sizeof(h));
	exponent = h >> 10 & 31;
	d = h & 1023;
	if (exponent == 31)
		d = d != 0 ? (double)NAN : (double)INFINITY;
	else
		d = exponent ? ldexp(d + 1024, exponent - 25) : ldexp(d, -24);
	return h >> 15 ? -d : d;
}

static double load_f(enum serve_type type, const char *p)
{
	float f;
	double d;

	if (type == SERVE_FP16)
		return load_half(p);

	if (type == SERVE_FP32) {
		memcpy(&f, p, sizeof(f));
		return (double)f;
	}
	memcpy(&d, p, sizeof(d));
	return d;
}

int64_t load_whole(enum serve_type type, const char *p)
{
	int64_t l;
	int32_t i;
	int16_t s;

	switch (type) {
	case SERVE_INT64:
	case SERVE_UINT64:		/* its bits */
		memcpy(&l, p, sizeof(l));
		return l;
	case SERVE_INT32:
		memcpy(&i, p, sizeof(i));
		return i;
	case SERVE_UINT32:
		memcpy(&i, p, sizeof(i));
		return (uint32_t)i;
	case SERVE_INT16:
		memcpy(&s, p, sizeof(s));
		return s;
	case SERVE_UINT16:
		memcpy(&s, p, sizeof(s));
		return (uint16_t)s;
	case SERVE_INT8:
		return (signed char)*p;
	default:
		return (unsigned char)*p;
	}
}

struct cast {
	enum serve_type from, to;
};

static void cast(int64_t n, char *const *p, const int64_t *st, const void *arg)
{
	const struct cast *c = arg;
	bool real = c->from == SERVE_FP32 || c->from == SERVE_FP64 || c->from == SERVE_FP16;
	bool integer = c->to != SERVE_BOOL && c->to != SERVE_FP32 && c->to != SERVE_FP64;
	size_t si = type_size(c->from), so = type_size(c->to);
	const char *in = p[1];
	char *out = p[0];
	int64_t i;

	if (c->from == SERVE_INT32 && c->to == SERVE_FP32) {
		for (i = 0; i < n; i++)
			((float *)(void *)out)[i * st[0]] =
				(float)((const int32_t *)(const void *)in)[i * st[1]];
		return;
	}
	for (i = 0; i < n; i++, in += st[1] * (int64_t)si, out += st[0] * (int64_t)so) {
		double d = real ? load_f(c->from, in) : 0;
		int64_t l = !real ? load_whole(c->from, in) : integer ? whole(d, c->to) : 0;
		int32_t i32 = (int32_t)l;
		bool big = c->from == SERVE_UINT64;
		float f = real ? (float)d : big ? (float)(uint64_t)l : (float)l;

		if (!real)
			d = big ? (double)(uint64_t)l : (double)l;
		switch (c->to) {
		case SERVE_FP32:
			memcpy(out, &f, sizeof(f));
			break;
		case SERVE_FP64:
			memcpy(out, &d, sizeof(d));
			break;
		case SERVE_INT64:
		case SERVE_UINT64:
			memcpy(out, &l, sizeof(l));
			break;
		case SERVE_INT32:
		case SERVE_UINT32:
			memcpy(out, &i32, sizeof(i32));
			break;
		case SERVE_INT16:
		case SERVE_UINT16:
			memcpy(out, &i32, 2);	/* little endian */
			break;
		case SERVE_BOOL:
			*out = real ? d != 0 : l != 0;
			break;
		default:
			*out = (char)l;
			break;
		}
	}
}

void cast_run(const struct view *out, const struct view *in)
{
	struct cast c = { in->type, out->type };
	const struct view *two[] = { out, in };

	if (in->type == out->type)
		view_copy(out, in);
	else
		walk(2, two, cast, &c);
}

#define WHERE(name, T) \
	static void name(int64_t n, char *const *p, const int64_t *st, const void *arg) \
	{ \
		T *o = (T *)(void *)p[0]; \
		const T *a = (const T *)(const void *)p[2]; \
		const T *b = (const T *)(const void *)p[3]; \
		int64_t i; \
		for (i = 0; i < n; i++) \
			o[i * st[0]] = p[1][i * st[1]] ? a[i * st[2]] : b[i * st[3]]; \
	}
WHERE(where1, uint8_t)
WHERE(where2, uint16_t)
WHERE(where4, uint32_t)
WHERE(where8, uint64_t)

/* ---- over axes -------------------------------------------------------------- */

/* The logarithm of a sum, from those of its terms. */
static double log_add(double x, double y)
{
	double most = x > y || x != x ? x : y, least = x > y || x != x ? y : x;

	return isinf(most) || most != most ? most : most + log1p(exp(least - most));
}

/* The output comes second: it repeats along the axes that are reduced. */
#define REDUCE(name, T, expr) REDUCE_AS(name, T, T, expr)
#define REDUCE_AS(name, T, wide, expr) \
	static void name(int64_t n, char *const *p, const int64_t *st, const void *arg) \
	{ \
		const T *a = (const T *)(const void *)p[0]; \
		T *o = (T *)(void *)p[1]; \
		int64_t i, sa = st[0], so = st[1]; \
		if (!so) { \
			wide x = *o; \
			for (i = 0; i < n; i++) { \
				const T y = a[i * sa]; \
				x = expr; \
			} \
			*o = (T)x; \
		} else \
			for (i = 0; i < n; i++) { \
				const T x = o[i * so], y = a[i * sa]; \
				o[i * so] = expr; \
			} \
	}
REDUCE_AS(sum_f, float, double, x + y)	/* there may be many small numbers */
REDUCE(rmax_f, float, x > y || x != x ? x : y)
REDUCE(rmin_f, float, x < y || x != x ? x : y)
REDUCE_AS(prod_f, float, double, x * y)
REDUCE_AS(l1_f, float, double, x + (y < 0 ? -y : y))
REDUCE_AS(squares_f, float, double, x + (double)y * (double)y)
REDUCE_AS(log_sum_exp_f, float, double, log_add((double)x, (double)y))
REDUCE(prod_i32, int32_t, (int32_t)((uint32_t)x * (uint32_t)y))
REDUCE(l1_i32, int32_t, (int32_t)((uint32_t)x + (y < 0 ? 0 - (uint32_t)y : (uint32_t)y)))
REDUCE(squares_i32, int32_t, (int32_t)((uint32_t)x + (uint32_t)y * (uint32_t)y))
REDUCE(prod_i64, int64_t, (int64_t)((uint64_t)x * (uint64_t)y))
REDUCE(l1_i64, int64_t, (int64_t)((uint64_t)x + (y < 0 ? 0 - (uint64_t)y : (uint64_t)y)))
REDUCE(squares_i64, int64_t, (int64_t)((uint64_t)x + (uint64_t)y * (uint64_t)y))
REDUCE(sum_i32, int32_t, (int32_t)((uint32_t)x + (uint32_t)y))
REDUCE(rmax_i32, int32_t, x > y ? x : y)
REDUCE(rmin_i32, int32_t, x < y ? x : y)
REDUCE(sum_i64, int64_t, (int64_t)((uint64_t)x + (uint64_t)y))
REDUCE(rmax_i64, int64_t, x > y ? x : y)
REDUCE(rmin_i64, int64_t, x < y ? x : y)

static void fill(const struct view *out, const void *element)
{
	struct view one = { out->type, 0, { 0 }, { 0 }, (char *)(uintptr_t)element };

	view_copy(out, &one);
}

static void reduce(unsigned int kind, const struct view *out, const struct view *in,
		   const bool *gone)
{
	static const inner_fn fn[][3] = {
		[R_SUM] = { sum_f, sum_i32, sum_i64 }, [R_MEAN] = { sum_f, NULL, NULL },
		[R_MAX] = { rmax_f, rmax_i32, rmax_i64 },
		[R_MIN] = { rmin_f, rmin_i32, rmin_i64 },
		[R_PROD] = { prod_f, prod_i32, prod_i64 }, [R_L1] = { l1_f, l1_i32, l1_i64 },
		[R_SQUARES] = { squares_f, squares_i32, squares_i64 },
		[R_L2] = { squares_f, NULL, NULL }, [R_LOG_SUM] = { sum_f, NULL, NULL },
		[R_LOG_SUM_EXP] = { log_sum_exp_f, NULL, NULL },
	};
	static const float f0 = 0, f1 = -INFINITY, f2 = INFINITY, f3 = 1;
	static const int32_t i1 = INT32_MIN, i2 = INT32_MAX;
	static const int64_t l0 = 0, l1 = INT64_MIN, l2 = INT64_MAX, l3 = 1;
	unsigned int type = in->type == SERVE_FP32 ? 0 : in->type == SERVE_INT32 ? 1 : 2, i, k;
	unsigned int row = kind == R_MAX || kind == R_LOG_SUM_EXP ? 1 : kind == R_MIN ? 2 :
		kind == R_PROD ? 3 : 0;
	struct attrs after = { .kind = kind == R_L2 ? U_SQRT : U_LOG };
	const void *start[][3] = { { &f0, &l0, &l0 }, { &f1, &i1, &l1 }, { &f2, &i2, &l2 },
				  { &f3, &l3, &l3 } };
	struct view o = *in;
	const struct view *v[] = { in, &o };
	int64_t n = 1;

	o.data = out->data;
	for (i = k = 0; i < in->rank; i++) {
		if (gone[i]) {
			n *= in->dims[i];
			o.strides[i] = 0;
			k += out->rank == in->rank;
		} else {
			o.strides[i] = out->strides[k++];
		}
	}
	fill(out, start[row][type]);
	walk(2, v, fn[kind][type], NULL);
	if (kind == R_L2 || kind == R_LOG_SUM)
		unary_run(&after, out, out);
	if (kind == R_MEAN && n) {
		const float by = (float)n;
		struct view d = { SERVE_FP32, 0, { 0 }, { 0 }, (char *)(uintptr_t)&by };

		binary_run(B_DIV, out, out, &d);
	}
}

static void softmax(const struct attrs *a, const struct view *out, const struct view *in)
{
	int64_t axis = a->axis < 0 ? a->axis + (int64_t)in->rank : a->axis;
	int64_t n, outer, inner, i, j, k;

	outer = count((unsigned int)axis, in->dims);
	n = in->dims[axis];
	inner = count(in->rank - (unsigned int)axis - 1, in->dims + axis + 1);
	if (a->mx_last && in->rank == 4) {
		n = in->dims[3];
		outer = count(3, in->dims);
		inner = 1;
	} else if (a->flat) {
		n *= inner;
		inner = 1;
	}
	for (i = 0; i < outer; i++)
		for (j = 0; j < inner; j++) {
			int64_t at = i * n * inner + j;
			const float *x = (const float *)(const void *)in->data + at;
			float *y = (float *)(void *)out->data + at;
			float most = -INFINITY, all;
			double sum = 0;		/* there may be many small numbers */

			for (k = 0; k < n; k++)
				most = x[k * inner] > most ? x[k * inner] : most;
			if (inner == 1)
				exp_row(n, y, x, most);
			else
				for (k = 0; k < n; k++)
					y[k * inner] = expf(x[k * inner] - most);
			for (k = 0; k < n; k++)
				sum += y[k * inner];
			/* a quotient may underflow to 0, whose logarithm is infinite */
			all = a->kind ? logf((float)sum) : (float)sum;
			for (k = 0; k < n; k++)
				y[k * inner] = a->kind ? x[k * inner] - most - all :
					y[k * inner] / all;
		}
}

/* One row: x * by + plus; its scale and shift come after. */
WIDE static void row_norm1(int64_t n, float *y, const float *x, float less, float by)
{
	int64_t i;

	for (i = 0; i < n; i++)
		y[i] = (x[i] - less) * by;
}

/* Rows from the axis on; each has its own mean.  All data is in rows. */
static void row_norm(const struct node *nd, const struct view *out, const struct view *const *in)
{
	const struct attrs *a = &nd->a;
	int64_t axis = a->axis < 0 ? a->axis + (int64_t)out->rank : a->axis, i, k;
	int64_t rows = count((unsigned int)axis, out->dims);
	int64_t n = count(out->rank - (unsigned int)axis, out->dims + axis);
	const float *x = (const float *)(const void *)in[0]->data;
	float *y = (float *)(void *)out->data;

	for (i = 0; i < rows; i++, x += n, y += n) {
		double sum = 0, square = 0, d;
		float mean;

		for (k = 0; k < n && a->kind == N_LAYER; k++)
			sum += (double)x[k];
		mean = n ? (float)(sum / (double)n) : 0;
		for (k = 0; k < n; k++) {
			d = (double)x[k] - (double)mean;
			square += d * d;
		}
		row_norm1(n, y, x, mean, (float)(1 / sqrt(square / (double)n + (double)a->eps)));
	}
	binary_run(B_MUL, out, out, in[1]);
	if (nd->nin > 2 && in[2])
		binary_run(B_ADD, out, out, in[2]);
}

static void norm(const struct node *nd, const struct view *out, const struct view *const *in)
{
	const float *scale = (const float *)(const void *)in[1]->data;
	const float *shift = (const float *)(const void *)in[2]->data;
	const float *mean = (const float *)(const void *)in[3]->data;
	const float *var = (const float *)(const void *)in[4]->data;
	int64_t c, channels = in[0]->dims[1];

	for (c = 0; c < channels; c++) {
		float k = scale[c] / sqrtf(var[c] + nd->a.eps), b = shift[c] - mean[c] * k;
		struct view x = *in[0], y = *out;
		struct view kv = { SERVE_FP32, 0, { 0 }, { 0 }, (char *)&k };
		struct view bv = { SERVE_FP32, 0, { 0 }, { 0 }, (char *)&b };

		x.data += c * x.strides[1] * 4;
		y.data += c * y.strides[1] * 4;
		x.dims[1] = y.dims[1] = 1;
		binary_run(B_MUL, &y, &x, &kv);
		binary_run(B_ADD, &y, &y, &bv);
	}
}

static void affine1(int64_t n, char *const *p, const int64_t *st, const void *arg)
{
	float *o = (float *)(void *)p[0];
	const float *x = (const float *)(const void *)p[1];
	const float *k = (const float *)(const void *)p[2];
	const float *b = (const float *)(const void *)p[3];
	float low = *(const float *)arg;
	int64_t i;

	if (st[0] == 1 && st[1] == 1 && st[2] == 1 && st[3] == 1)
		for (i = 0; i < n; i++) {
			float y = x[i] * k[i] + b[i];

			o[i] = y < low ? low : y;
		}
	else
		for (i = 0; i < n; i++) {
			float y = x[i * st[1]] * k[i * st[2]] + b[i * st[3]];

			o[i * st[0]] = y < low ? low : y;
		}
}

/* One factor and one term per channel, and a ReLU if it was merged. */
static void affine(const struct node *n, const struct view *out, const struct view *const *in)
{
	float low = n->a.act == U_RELU ? 0 : -INFINITY;
	struct view k = *in[1], b = *in[2];
	const struct view *v[] = { out, in[0], &k, &b };
	unsigned int i;

	k.rank = b.rank = in[0]->rank - 1;
	for (i = 1; i < k.rank; i++) {
		k.dims[i] = b.dims[i] = 1;
		k.strides[i] = b.strides[i] = 0;
	}
	walk(4, v, affine1, &low);
}

/* ---- parts ------------------------------------------------------------------ */

static void concat(const struct node *n, const struct view *out, const struct view *const *in)
{
	int64_t axis = n->a.axis < 0 ? n->a.axis + (int64_t)out->rank : n->a.axis;
	struct view part = *out;
	unsigned int i;

	for (i = 0; i < n->nin; i++) {
		part.dims[axis] = in[i]->dims[axis];
		view_copy(&part, in[i]);
		part.data += in[i]->dims[axis] * part.strides[axis] *
			(int64_t)type_size(out->type);
	}
}

static int gather(const struct node *n, const struct view *out, const struct view *x,
		  const struct view *index)
{
	int64_t axis = n->a.axis < 0 ? n->a.axis + (int64_t)x->rank : n->a.axis, i, k;
	int64_t all = count(index->rank, index->dims), inner, outer, len = x->dims[axis];
	size_t size = type_size(x->type);

	/* both in rows */
	outer = count((unsigned int)axis, x->dims);
	inner = count(x->rank - (unsigned int)axis - 1, x->dims + axis + 1) * (int64_t)size;
	for (i = 0; i < all; i++) {
		int64_t at = load_whole(index->type, index->data +
				    i * (int64_t)type_size(index->type));

		if (at < 0)
			at += len;
		if (at < 0 || at >= len)
			return -EINVAL;
		for (k = 0; k < outer; k++)
			memcpy(out->data + (k * all + i) * inner,
			       x->data + (k * len + at) * inner, (size_t)inner);
	}
	return 0;
}

/*
 * For each row of x: the sum of the table's rows k whose comparison x == axis + k is true.  If
 * a row of x has one number, that is compared for each k, so at most one comparison is true;
 * otherwise number k is compared with axis + k.
 */
static void lookup(const struct node *n, const struct view *out, const struct view *x,
		   const struct view *table)
{
	int64_t rows = table->dims[0], len = table->dims[1], all = count(x->rank, x->dims);
	int64_t each = x->rank ? x->dims[x->rank - 1] : 1, i, k, c;
	int64_t size = (int64_t)type_size(x->type);
	float *o = (float *)(void *)out->data;

	/* x and the table are stored in rows */
	for (i = 0; i < all; i += each, o += len) {
		memset(o, 0, (size_t)len * sizeof(*o));
		for (k = 0; k < each; k++) {
			uint64_t at = (uint64_t)load_whole(x->type, x->data + (i + k) * size) -
				(uint64_t)n->a.axis;
			const float *row = (const float *)(const void *)table->data;

			if (at >= (uint64_t)rows || (each > 1 && at != (uint64_t)k))
				continue;
			row += (int64_t)at * len;
			for (c = 0; c < len; c++)
				o[c] += row[c];
		}
	}
}

/* What is not cut off, then one axis after the other: slabs that are copies of others. */
static void pad(const struct node *n, const struct view *out, const struct view *const *in,
		const int64_t *pads)
{
	static const int64_t zero;
	int64_t size = (int64_t)type_size(out->type), d, k, from, before;
	struct view x = *in[0], o = *out, slab, like;
	unsigned int i;

	if (n->a.kind == PAD_CONSTANT)
		fill(out, n->nin > 2 && in[2] ? (const void *)in[2]->data :
		     n->a.alpha != 0 ? (const void *)&n->a.alpha : &zero);
	for (i = 0; i < o.rank; i++) {
		before = pads[i];
		o.data += (before > 0 ? before : 0) * o.strides[i] * size;
		x.data += (before < 0 ? -before : 0) * x.strides[i] * size;
		x.dims[i] += (before < 0 ? before : 0) +
			(pads[i + o.rank] < 0 ? pads[i + o.rank] : 0);
		o.dims[i] = x.dims[i];
	}
	view_copy(&o, &x);
	if (n->a.kind == PAD_CONSTANT)
		return;
	for (i = 0; i < o.rank; i++) {
		d = in[0]->dims[i];
		before = pads[i];
		/* o has all of the axes before, and what is given of those behind */
		o.data -= before * o.strides[i] * size;
		o.dims[i] = out->dims[i];
		slab = like = o;
		slab.dims[i] = like.dims[i] = 1;
		for (k = 0; k < o.dims[i]; k++) {
			from = k - before;
			if (from >= 0 && from < d)
				continue;
			if (n->a.kind == PAD_EDGE)
				from = from < 0 ? 0 : d - 1;
			else if (n->a.kind == PAD_WRAP)
				from += from < 0 ? d : -d;
			else
				from = from < 0 ? -from : 2 * (d - 1) - from;
			slab.data = o.data + k * o.strides[i] * size;
			like.data = o.data + (from + before) * o.strides[i] * size;
			view_copy(&slab, &like);
		}
	}
}

bool kernel_has(enum op op)
{
	return op != OP_CONV && op != OP_DECONV && op != OP_GEMM && op != OP_MATMUL;
}

void view_shapes(const struct view *const *in, unsigned int nin, struct shape *shape,
		 const struct shape **shapes)
{
	unsigned int i;

	for (i = 0; i < nin; i++) {
		shapes[i] = NULL;
		if (!in[i])
			continue;
		shape[i] = (struct shape){ .type = in[i]->type, .rank = in[i]->rank,
					   .data = in[i]->data };
		memcpy(shape[i].dims, in[i]->dims, sizeof(shape[i].dims));
		shapes[i] = &shape[i];
	}
}

int kernel_run(const struct node *n, const struct view *out, const struct view *const *in)
{
	const struct attrs *a = &n->a;
	struct shape shape[5];
	const struct shape *shapes[5] = { NULL };
	struct view v;
	unsigned int i, from, sizes;

	view_shapes(in, n->nin < 5 ? n->nin : 5, shape, shapes);
	switch (n->op) {
	case OP_POOL:
		pool_run(a, out, in[0]);
		return 0;
	case OP_GLOBAL_POOL: {
		bool gone[SERVE_RANK] = { false, false, true, true };
		struct attrs all = *a;

		if (a->mx_max) {
			for (i = 2; i < in[0]->rank; i++)
				all.kernel[i - 2] = in[0]->dims[i];
			pool_run(&all, out, in[0]);
			return 0;
		}
		reduce(a->max_pool ? R_MAX : R_MEAN, out, in[0], gone);
		return 0;
	}
	case OP_GEMM:
	case OP_MATMUL: {
		/* only of no elements: the sums are 0 */
		struct attrs act = *a;
		const float zero = 0;

		fill(out, &zero);
		if (n->nin > 2 && in[2])
			binary_run(B_ADD, out, out, in[2]);
		act.kind = a->act;
		act.alpha = a->act_alpha;
		act.beta = a->act_beta;
		if (a->act)
			unary_run(&act, out, out);
		return 0;
	}
	case OP_NORM:
		norm(n, out, in);
		return 0;
	case OP_AFFINE:
		affine(n, out, in);
		return 0;
	case OP_LRN:
		lrn_run(a, out, in[0]);
		return 0;
	case OP_ROW_NORM:
		row_norm(n, out, in);
		return 0;
	case OP_SOFTMAX:
		softmax(a, out, in[0]);
		return 0;
	case OP_UNARY:
		unary_run(a, out, in[0]);
		return 0;
	case OP_BINARY:
		binary_run(a->kind, out, in[0], in[1]);
		return 0;
	case OP_SUM:
		if (n->nin == 1)
			view_copy(out, in[0]);
		else
			binary_run(a->kind, out, in[0], in[1]);
		for (i = 2; i < n->nin; i++)
			binary_run(a->kind, out, out, in[i]);
		return 0;
	case OP_CAST:
		cast_run(out, in[0]);
		return 0;
	case OP_CONCAT:
		concat(n, out, in);
		return 0;
	case OP_SLICE: {
		int64_t first[SERVE_RANK], by[SERVE_RANK];

		slice_of(n, shapes, first, by);
		v = *in[0];
		for (i = 0; i < v.rank; i++) {
			v.dims[i] = out->dims[i];
			v.data += first[i] * v.strides[i] * (int64_t)type_size(v.type);
			v.strides[i] *= by[i];
		}
		if (count(out->rank, out->dims))
			view_copy(out, &v);
		return 0;
	}
	case OP_RESHAPE:
	case OP_FLATTEN:
	case OP_SQUEEZE:
	case OP_UNSQUEEZE:
		/* both in rows */
		memcpy(out->data, in[0]->data, (size_t)count(out->rank, out->dims) *
		       type_size(out->type));
		return 0;
	case OP_IDENTITY:
	case OP_EXPAND:
		view_copy(out, in[0]);
		return 0;
	case OP_TRANSPOSE:
		v = transposed(n, in[0]);
		view_copy(out, &v);
		return 0;
	case OP_PAD: {
		int64_t pads[2 * SERVE_RANK];

		pads_of(n, shapes, pads);
		pad(n, out, in, pads);
		return 0;
	}
	case OP_TABLE:
		return n->oper->run(n, out, in);
	case OP_GATHER:
		return gather(n, out, in[0], in[1]);
	case OP_LOOKUP:
		lookup(n, out, in[0], in[1]);
		return 0;
	case OP_SHAPE:
		sizes = shape_range(a, in[0]->rank, &from);
		for (i = 0; i < sizes; i++)
			((int64_t *)(void *)out->data)[i] = in[0]->dims[from + i];
		return 0;
	case OP_FILL:
		fill(out, a->more);
		return 0;
	case OP_RESIZE:
		resize_run(a, out, in);
		return 0;
	case OP_REDUCE: {
		bool gone[SERVE_RANK];

		reduced_of(n, shapes, gone);
		reduce(a->kind, out, in[0], gone);
		return 0;
	}
	case OP_WHERE: {
		const struct view *four[] = { out, in[0], in[1], in[2] };
		size_t size = type_size(out->type);

		walk(4, four, size == 1 ? where1 : size == 2 ? where2 : size == 4 ? where4 :
		     where8, NULL);
		return 0;
	}
	default:
		return -ENOSYS;
	}
}
