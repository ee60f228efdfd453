// SPDX-License-Identifier: Apache-2.0
/*
 * elem.c - elementwise operators, and chains of them.
 *
 * A chain runs several operators on CHUNK elements at a time, so that the intermediate results
 * stay in the L1 cache.
 */
#include <math.h>
#include <string.h>

#include "oper.h"

/* ---- one operand ------------------------------------------------------------ */

#define UNARY(name, expr) \
	WIDE static void name(int64_t n, char *const *p, const int64_t *st, const void *arg) \
	{ \
		float *o = (float *)(void *)p[0]; \
		const float *in = (const float *)(const void *)p[1]; \
		const struct attrs *a = arg; \
		const float alpha = a->alpha, beta = a->beta; \
		int64_t i, so = st[0], si = st[1]; \
		(void)alpha; \
		(void)beta; \
		if (so == 1 && si == 1) \
			for (i = 0; i < n; i++) { \
				const float x = in[i]; \
				o[i] = expr; \
			} \
		else \
			for (i = 0; i < n; i++) { \
				const float x = in[i * si]; \
				o[i * so] = expr; \
			} \
	}

/*
 * A quotient of polynomials (from Eigen), with an error of a few units in the last place.  The
 * compiler can vectorize it, unlike tanhf().
 */
static inline float tanh_of(float x)
{
	float s, p, q;

	x = clampf(x, -7.90531110763549805f, 7.90531110763549805f);
	s = x * x;
	p = -2.76076847742355e-16f * s + 2.00018790482477e-13f;
	p = p * s - 8.60467152213735e-11f;
	p = p * s + 5.12229709037114e-08f;
	p = p * s + 1.48572235717979e-05f;
	p = p * s + 6.37261928875436e-04f;
	p = p * s + 4.89352455891786e-03f;
	q = 1.19825839466702e-06f * s + 1.18534705686654e-04f;
	q = q * s + 2.26843463243900e-03f;
	q = q * s + 4.89352518554385e-03f;
	return x * p / q;
}

/* e^x = 2^n e^r by a polynomial (from Cephes), with an error of two units in the last place. */
static inline float exp_of(float x)
{
	float t, n, r, p, scale, lowest = x;
	uint32_t bits;

	x = clampf(x, -87.3f, 88.8f);
	t = x * 1.44269504088896341f + 12582912.0f;	/* n is in the lowest bits */
	n = t - 12582912.0f;
	r = x - n * 0.693359375f + n * 2.12194440e-4f;
	p = 1.9875691500e-4f * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * r * r + r + 1;
	memcpy(&bits, &t, sizeof(bits));
	bits = (bits << 23) + (126u << 23);		/* 2^(n - 1), which cannot overflow */
	memcpy(&scale, &bits, sizeof(scale));
	return lowest < -87.3f ? 0 : p * scale * 2;	/* no subnormal numbers */
}

/* As tanh_of(), with an absolute error below 1e-6. */
static inline float erf_of(float x)
{
	float s, p, q;

	x = clampf(x, -4, 4);
	s = x * x;
	p = -2.72614225801306e-10f * s + 2.77068142495902e-08f;
	p = p * s - 2.10102402082508e-06f;
	p = p * s - 5.69250639462346e-05f;
	p = p * s - 7.34990630326855e-04f;
	p = p * s - 2.95459980854025e-03f;
	p = p * s - 1.60960333262415e-02f;
	q = -1.45660718464996e-05f * s - 2.13374055278905e-04f;
	q = q * s - 1.68282697438203e-03f;
	q = q * s - 7.37332916720468e-03f;
	q = q * s - 1.42647390514189e-02f;
	return x * p / q;
}

WIDE void exp_row(int64_t n, float *out, const float *in, float less)
{
	int64_t i;

	for (i = 0; i < n; i++)
		out[i] = exp_of(in[i] - less);
}

WIDE void sigmoid_row(int64_t n, float *x)
{
	int64_t i;

	for (i = 0; i < n; i++)
		x[i] = 1 / (1 + exp_of(-x[i]));
}

WIDE void tanh_row(int64_t n, float *x)
{
	int64_t i;

	for (i = 0; i < n; i++)
		x[i] = tanh_of(x[i]);
}

UNARY(u_relu, x < 0 ? 0 : x)
UNARY(u_clip, clampf(x, alpha, beta))
UNARY(u_clip_upper, x > beta ? beta : x < alpha ? alpha : x)
UNARY(u_sigmoid, 1 / (1 + exp_of(-x)))
UNARY(u_tanh, tanh_of(x))
UNARY(u_leaky, x < 0 ? alpha * x : x)
UNARY(u_elu, x < 0 ? alpha * expm1f(x) : x)
UNARY(u_hsigmoid, clampf(alpha * x + beta, 0, 1))
UNARY(u_hswish, x * clampf(x / 6 + 0.5f, 0, 1))
UNARY(u_swish, x / (1 + exp_of(-x)))
UNARY(u_softplus, (x > 0 ? x : 0) + log1pf(expf(-fabsf(x))))
UNARY(u_softsign, x / (1 + fabsf(x)))
UNARY(u_erf, erf_of(x))
UNARY(u_exp, exp_of(x))
UNARY(u_log, logf(x))
UNARY(u_sqrt, sqrtf(x))
UNARY(u_reciprocal, 1 / x)
UNARY(u_abs, fabsf(x))
UNARY(u_neg, -x)
UNARY(u_floor, floorf(x))
UNARY(u_ceil, ceilf(x))
UNARY(u_gelu, 0.5f * x * (1 + erf_of(x * 0.70710678118654752f)))
UNARY(u_gelu_tanh, 0.5f * x * (1 + tanh_of(0.79788456080286536f * (x + 0.044715f * x * x * x))))
UNARY(u_sin, sinf(x))
UNARY(u_cos, cosf(x))
UNARY(u_sign, x > 0 ? 1 : x < 0 ? -1 : x)
UNARY(u_round, rintf(x))

static void u_not(int64_t n, char *const *p, const int64_t *st, const void *arg)
{
	int64_t i;

	for (i = 0; i < n; i++)
		p[0][i * st[0]] = !p[1][i * st[1]];
}

/* ---- two operands ----------------------------------------------------------- */

#define BINARY(name, T, O, expr) \
	static void name(int64_t n, char *const *p, const int64_t *st, const void *arg) \
	{ \
		O *o = (O *)(void *)p[0]; \
		const T *a = (const T *)(const void *)p[1]; \
		const T *b = (const T *)(const void *)p[2]; \
		int64_t i, so = st[0], sa = st[1], sb = st[2]; \
		if (so == 1 && sa == 1 && sb == 1) \
			for (i = 0; i < n; i++) { \
				const T x = a[i], y = b[i]; \
				o[i] = expr; \
			} \
		else if (so == 1 && sa == 1 && !sb) { \
			const T y = b[0]; \
			for (i = 0; i < n; i++) { \
				const T x = a[i]; \
				o[i] = expr; \
			} \
		} else if (so == 1 && !sa && sb == 1) { \
			const T x = a[0]; \
			for (i = 0; i < n; i++) { \
				const T y = b[i]; \
				o[i] = expr; \
			} \
		} else \
			for (i = 0; i < n; i++) { \
				const T x = a[i * sa], y = b[i * sb]; \
				o[i * so] = expr; \
			} \
	}

/* Integers wrap, and a division by 0 returns 0. */
#define INTEGERS(s, T, U, MINUS) \
	BINARY(add_##s, T, T, (T)((U)x + (U)y)) \
	BINARY(sub_##s, T, T, (T)((U)x - (U)y)) \
	BINARY(mul_##s, T, T, (T)((U)x * (U)y)) \
	BINARY(div_##s, T, T, !y ? 0 : MINUS ? (T)(0 - (U)x) : (T)(x / y)) \
	BINARY(max_##s, T, T, x > y ? x : y) \
	BINARY(min_##s, T, T, x < y ? x : y) \
	BINARY(eq_##s, T, uint8_t, x == y) \
	BINARY(lt_##s, T, uint8_t, x < y) \
	BINARY(gt_##s, T, uint8_t, x > y) \
	BINARY(le_##s, T, uint8_t, x <= y) \
	BINARY(ge_##s, T, uint8_t, x >= y)
INTEGERS(i32, int32_t, uint32_t, y == -1)
INTEGERS(i64, int64_t, uint64_t, y == -1)
INTEGERS(u8, uint8_t, uint32_t, false)
INTEGERS(i8, int8_t, uint32_t, y == -1)
INTEGERS(u16, uint16_t, uint32_t, false)
INTEGERS(i16, int16_t, uint32_t, y == -1)
INTEGERS(u32, uint32_t, uint32_t, false)
INTEGERS(u64, uint64_t, uint64_t, false)
BINARY(add_f64, double, double, x + y)
BINARY(sub_f64, double, double, x - y)
BINARY(mul_f64, double, double, x * y)
BINARY(div_f64, double, double, x / y)
BINARY(max_f64, double, double, x > y || x != x ? x : y)
BINARY(min_f64, double, double, x < y || x != x ? x : y)
BINARY(eq_f64, double, uint8_t, x == y)
BINARY(lt_f64, double, uint8_t, x < y)
BINARY(gt_f64, double, uint8_t, x > y)
BINARY(le_f64, double, uint8_t, x <= y)
BINARY(ge_f64, double, uint8_t, x >= y)
WIDE BINARY(add_f, float, float, x + y)
WIDE BINARY(add_relu_f, float, float, x + y < 0 ? 0 : x + y)
WIDE BINARY(sub_f, float, float, x - y)
WIDE BINARY(mul_f, float, float, x * y)
WIDE BINARY(div_f, float, float, x / y)
WIDE BINARY(pow_f, float, float, y == 2 ? x * x : powf(x, y))
WIDE BINARY(max_f, float, float, x > y || x != x ? x : y)
WIDE BINARY(min_f, float, float, x < y || x != x ? x : y)
WIDE BINARY(eq_f, float, uint8_t, x == y)
WIDE BINARY(lt_f, float, uint8_t, x < y)
WIDE BINARY(gt_f, float, uint8_t, x > y)
WIDE BINARY(le_f, float, uint8_t, x <= y)
WIDE BINARY(ge_f, float, uint8_t, x >= y)

/* ---- by operator ------------------------------------------------------------ */

#define TYPES(op) { [SERVE_FP32] = op##_f, [SERVE_FP64] = op##_f64, [SERVE_INT8] = op##_i8, \
	[SERVE_INT16] = op##_i16, [SERVE_INT32] = op##_i32, [SERVE_INT64] = op##_i64, \
	[SERVE_UINT8] = op##_u8, [SERVE_UINT16] = op##_u16, [SERVE_UINT32] = op##_u32, \
	[SERVE_UINT64] = op##_u64, [SERVE_BOOL] = op##_u8 }

static inner_fn binary_fn(unsigned int kind, enum serve_type type)
{
	static const inner_fn fn[][SERVE_BYTES] = {
		[B_ADD] = TYPES(add), [B_SUB] = TYPES(sub), [B_MUL] = TYPES(mul),
		[B_DIV] = TYPES(div), [B_POW] = { [SERVE_FP32] = pow_f }, [B_MAX] = TYPES(max),
		[B_MIN] = TYPES(min), [B_ADD_RELU] = { [SERVE_FP32] = add_relu_f },
		[B_EQUAL] = TYPES(eq), [B_LESS] = TYPES(lt), [B_GREATER] = TYPES(gt),
		[B_LESS_EQUAL] = TYPES(le), [B_GREATER_EQUAL] = TYPES(ge),
	};

	return fn[kind][type];
}

/* Types other than float32 are rare: an element at a time. */
static double of_double(const struct attrs *a, double x)
{
	double alpha = (double)a->alpha, beta = (double)a->beta;

	switch (a->kind) {
	case U_RELU:
		return x < 0 ? 0 : x;
	case U_SIGMOID:
		return 1 / (1 + exp(-x));
	case U_TANH:
		return tanh(x);
	case U_LEAKY:
		return x < 0 ? alpha * x : x;
	case U_ELU:
		return x < 0 ? alpha * expm1(x) : x;
	case U_HSIGMOID:
		x = alpha * x + beta;
		return x < 0 ? 0 : x > 1 ? 1 : x;
	case U_HSWISH:
		return x * fmin(fmax(x / 6 + 0.5, 0), 1);
	case U_SWISH:
		return x / (1 + exp(-x));
	case U_SOFTPLUS:
		return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
	case U_SOFTSIGN:
		return x / (1 + fabs(x));
	case U_ERF:
		return erf(x);
	case U_EXP:
		return exp(x);
	case U_LOG:
		return log(x);
	case U_SQRT:
		return sqrt(x);
	case U_RECIPROCAL:
		return 1 / x;
	case U_ABS:
		return fabs(x);
	case U_NEG:
		return -x;
	case U_FLOOR:
		return floor(x);
	case U_CEIL:
		return ceil(x);
	case U_GELU:
		return 0.5 * x * (1 + erf(x * 0.70710678118654752));
	case U_GELU_TANH:
		return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
	case U_SIN:
		return sin(x);
	case U_COS:
		return cos(x);
	case U_SIGN:
		return x > 0 ? 1 : x < 0 ? -1 : x;
	case U_ROUND:
		return rint(x);
	case U_TAN:
		return tan(x);
	case U_ASIN:
		return asin(x);
	case U_ACOS:
		return acos(x);
	case U_ATAN:
		return atan(x);
	case U_SINH:
		return sinh(x);
	case U_COSH:
		return cosh(x);
	case U_ASINH:
		return asinh(x);
	case U_ACOSH:
		return acosh(x);
	case U_ATANH:
		return atanh(x);
	case U_SELU:
		return beta * (x > 0 ? x : alpha * expm1(x));
	case U_CELU:
		return x < 0 ? alpha * expm1(x / alpha) : x;
	case U_THRESHOLD:
		return x > alpha ? x : 0;
	case U_SHRINK:
		return x < -alpha ? x + beta : x > alpha ? x - beta : 0;
	case U_SWISH_ALPHA:
		return x / (1 + exp(-alpha * x));
	default:
		return x;
	}
}

static void u_double(int64_t n, char *const *p, const int64_t *st, const void *arg)
{
	int64_t i;

	for (i = 0; i < n; i++)
		((double *)(void *)p[0])[i * st[0]] =
			of_double(arg, ((const double *)(const void *)p[1])[i * st[1]]);
}

/* Those that a table of float32 lacks. */
static void u_rare(int64_t n, char *const *p, const int64_t *st, const void *arg)
{
	int64_t i;

	for (i = 0; i < n; i++)
		((float *)(void *)p[0])[i * st[0]] = (float)
			of_double(arg, (double)((const float *)(const void *)p[1])[i * st[1]]);
}

struct whole {
	enum serve_type type;
	unsigned int kind;
};

static void u_whole(int64_t n, char *const *p, const int64_t *st, const void *arg)
{
	const struct whole *w = arg;
	int64_t i, x, size = (int64_t)type_size(w->type);
	bool sign = w->type == SERVE_INT8 || w->type == SERVE_INT16 || w->type == SERVE_INT32 ||
		w->type == SERVE_INT64;

	for (i = 0; i < n; i++) {
		x = load_whole(w->type, p[1] + i * st[1] * size);
		if (w->kind == U_SIGN)
			x = !x ? 0 : x < 0 && sign ? -1 : 1;
		else if (w->kind == U_NEG || (x < 0 && sign))
			x = (int64_t)(0 - (uint64_t)x);
		memcpy(p[0] + i * st[0] * size, &x, (size_t)size);	/* little endian */
	}
}

static inner_fn unary_fn(unsigned int kind)
{
	static const inner_fn fn[] = {
		[U_RELU] = u_relu, [U_CLIP] = u_clip, [U_SIGMOID] = u_sigmoid,
		[U_TANH] = u_tanh, [U_LEAKY] = u_leaky, [U_ELU] = u_elu,
		[U_HSIGMOID] = u_hsigmoid,
		[U_HSWISH] = u_hswish, [U_SWISH] = u_swish, [U_SOFTPLUS] = u_softplus,
		[U_SOFTSIGN] = u_softsign, [U_ERF] = u_erf, [U_EXP] = u_exp, [U_LOG] = u_log,
		[U_SQRT] = u_sqrt, [U_RECIPROCAL] = u_reciprocal, [U_ABS] = u_abs,
		[U_NEG] = u_neg, [U_FLOOR] = u_floor, [U_CEIL] = u_ceil, [U_NOT] = u_not,
		[U_CLIP_UPPER] = u_clip_upper, [U_GELU] = u_gelu,
		[U_GELU_TANH] = u_gelu_tanh, [U_SIN] = u_sin, [U_COS] = u_cos,
		[U_SIGN] = u_sign, [U_ROUND] = u_round,
	};

	return kind < sizeof(fn) / sizeof(fn[0]) && fn[kind] ? fn[kind] : u_rare;
}

void unary_run(const struct attrs *a, const struct view *out, const struct view *in)
{
	const struct view *v[] = { out, in };

	struct whole w = { in->type, a->kind };

	if (in->type == SERVE_FP32 || a->kind == U_NOT)
		walk(2, v, unary_fn(a->kind), a);
	else if (in->type == SERVE_FP64)
		walk(2, v, u_double, a);
	else
		walk(2, v, u_whole, &w);
}

void binary_run(unsigned int kind, const struct view *out, const struct view *a,
		const struct view *b)
{
	const struct view *v[] = { out, a, b };

	walk(3, v, binary_fn(kind, a->type), NULL);
}

/* ---- chains ----------------------------------------------------------------- */

#define CHUNK 256			/* all operands of a step fit in the L1 cache */

bool chainable(const struct node *n)
{
	return n->op == OP_UNARY || n->op == OP_BINARY || (n->op == OP_SUM && n->nin == 2);
}

static void chunks(int64_t n, char *const *p, const int64_t *st, const void *arg)
{
	const struct chain *c = arg;
	float temp[CHAIN_STEPS][CHUNK] __attribute__((aligned(64)));
	int64_t at, len, strides[3];
	unsigned int i, k;
	char *q[3];

	for (at = 0; at < n; at += len) {
		len = n - at < CHUNK ? n - at : CHUNK;
		for (i = 0; i < c->n; i++) {
			const struct chain_step *s = &c->step[i];

			for (k = 0; k < 3; k++) {
				int o = s->operand[k];

				q[k] = o < 0 ? (char *)temp[-1 - o] :
					p[o] + at * st[o] * (int64_t)sizeof(float);
				strides[k] = o < 0 ? 1 : st[o];
			}
			if (s->n->op == OP_UNARY)
				unary_fn(s->n->a.kind)(len, q, strides, &s->n->a);
			else
				binary_fn(s->n->a.kind, SERVE_FP32)(len, q, strides, NULL);
		}
	}
}

void chain_run(const struct chain *c, const struct view *out, const struct view *const *in)
{
	const struct view *v[MAX_OPERANDS] = { out };
	unsigned int i;

	for (i = 0; i < c->nin; i++)
		v[i + 1] = in[i];
	walk(c->nin + 1, v, chunks, c);
}
