// SPDX-License-Identifier: Apache-2.0
/*
 * elem.c - elementwise operators, and chains of them.
 *
 * A chain runs several operators on CHUNK elements at a time, so that the intermediate results
 * stay in the L1 cache.
 */
#include <math.h>
#include <string.h>

#include "graph.h"

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
#define INTEGERS(s, T, U) \
	BINARY(add_##s, T, T, (T)((U)x + (U)y)) \
	BINARY(sub_##s, T, T, (T)((U)x - (U)y)) \
	BINARY(mul_##s, T, T, (T)((U)x * (U)y)) \
	BINARY(div_##s, T, T, !y ? 0 : y == -1 ? (T)(0 - (U)x) : x / y) \
	BINARY(max_##s, T, T, x > y ? x : y) \
	BINARY(min_##s, T, T, x < y ? x : y) \
	BINARY(eq_##s, T, uint8_t, x == y) \
	BINARY(lt_##s, T, uint8_t, x < y) \
	BINARY(gt_##s, T, uint8_t, x > y) \
	BINARY(le_##s, T, uint8_t, x <= y) \
	BINARY(ge_##s, T, uint8_t, x >= y)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(i64, int64_t, uint64_t)
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

	return fn[kind];
}

static inner_fn binary_fn(unsigned int kind, enum serve_type type)
{
	static const inner_fn fn[][3] = {
		[B_ADD] = { add_f, add_i32, add_i64 }, [B_SUB] = { sub_f, sub_i32, sub_i64 },
		[B_MUL] = { mul_f, mul_i32, mul_i64 }, [B_DIV] = { div_f, div_i32, div_i64 },
		[B_POW] = { pow_f, NULL, NULL }, [B_MAX] = { max_f, max_i32, max_i64 },
		[B_MIN] = { min_f, min_i32, min_i64 }, [B_ADD_RELU] = { add_relu_f, NULL, NULL },
		[B_EQUAL] = { eq_f, eq_i32, eq_i64 },
		[B_LESS] = { lt_f, lt_i32, lt_i64 }, [B_GREATER] = { gt_f, gt_i32, gt_i64 },
		[B_LESS_EQUAL] = { le_f, le_i32, le_i64 },
		[B_GREATER_EQUAL] = { ge_f, ge_i32, ge_i64 },
	};

	return fn[kind][type == SERVE_FP32 ? 0 : type == SERVE_INT32 ? 1 : 2];
}

void unary_run(const struct attrs *a, const struct view *out, const struct view *in)
{
	const struct view *v[] = { out, in };

	walk(2, v, unary_fn(a->kind), a);
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
