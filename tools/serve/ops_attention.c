// SPDX-License-Identifier: Apache-2.0
/*
 * ops_attention.c - Attention of ONNX, from operator set 23 on: a row of a table (oper.h).
 *
 * A row of the result is computed over blocks of keys: what was summed is scaled when a block has
 * a greater score, so that scores need no memory of their own.  A row whose keys are all masked
 * is 0.
 */
#include <math.h>
#include <string.h>

#include "oper.h"
#include "rows.h"

enum { Q, K, V, MASK, PAST_K, PAST_V, LENGTHS };	/* inputs */
enum { CAUSAL, KV_HEADS, Q_HEADS, QK_MODE, PRECISION, LEFT, RIGHT };	/* attrs.p */
enum { SCALE, SOFTCAP };				/* attrs.f */
#define BLOCK 128

struct sizes {
	int64_t batch, heads, kv_heads, rows, past, keys, width, v_width;	/* keys: with the past */
};

static int heads_of(const struct ctx *c, const struct shape *in, int64_t given, int64_t *heads,
		    int64_t *rows, int64_t *width)
{
	if (in->type != SERVE_FP32)
		return bad_shape(c, -ENOTSUP, "this type");
	if (in->rank == 4 && !given) {
		*heads = in->dims[1];
		*rows = in->dims[2];
		*width = in->dims[3];
		return *heads ? 0 : bad(c, "no heads");
	}
	if (in->rank != 3 || given < 1 || in->dims[2] % given)
		return bad(c, "%u dimensions, %lld heads", in->rank, (long long)given);
	*heads = given;
	*rows = in->dims[1];
	*width = in->dims[2] / given;
	return 0;
}

static const struct shape *given(const struct ctx *c, const struct shape *const *in, unsigned int i)
{
	return i < c->n->nin ? in[i] : NULL;
}

static int past_of(const struct ctx *c, const struct shape *const *in, struct sizes *z)
{
	const struct shape *k = given(c, in, PAST_K), *v = given(c, in, PAST_V);
	const struct shape *n = given(c, in, LENGTHS);

	z->past = 0;
	if (!k != !v)
		return bad(c, "past_key without past_value");
	if (n && (k || n->type != SERVE_INT64 || n->rank != 1 || n->dims[0] != z->batch))
		return bad(c, "nonpad_kv_seqlen");
	if (!k)
		return 0;
	if (k->type != SERVE_FP32 || v->type != SERVE_FP32 || k->rank != 4 || v->rank != 4 ||
	    k->dims[0] != z->batch || v->dims[0] != z->batch || k->dims[1] != z->kv_heads ||
	    v->dims[1] != z->kv_heads || k->dims[2] != v->dims[2] || k->dims[3] != z->width ||
	    v->dims[3] != z->v_width)
		return bad(c, "the past does not fit");
	z->past = k->dims[2];
	return 0;
}

static int sizes_of(const struct ctx *c, const struct shape *const *in, struct sizes *z)
{
	const struct attrs *a = &c->n->a;
	const struct shape *mask = given(c, in, MASK);
	int64_t heads, rows, width, fits[4];
	unsigned int i, k;
	int rc;

	z->batch = in[Q]->dims[0];
	rc = heads_of(c, in[Q], a->p[Q_HEADS], &z->heads, &z->rows, &z->width);
	if (!rc)
		rc = heads_of(c, in[K], a->p[KV_HEADS], &z->kv_heads, &z->keys, &width);
	if (!rc)
		rc = heads_of(c, in[V], a->p[KV_HEADS], &heads, &rows, &z->v_width);
	if (rc)
		return rc;
	if (width != z->width || heads != z->kv_heads || rows != z->keys || in[K]->rank != in[Q]->rank ||
	    in[K]->dims[0] != z->batch || in[V]->dims[0] != z->batch || z->heads % z->kv_heads)
		return bad(c, "queries, keys and values do not fit");
	rc = past_of(c, in, z);
	if (rc)
		return rc;
	z->keys += z->past;
	if (z->keys > INT_MAX || a->p[LEFT] < -1 || a->p[RIGHT] < -1)
		return bad(c, "a window or a number of keys out of range");
	if (a->p[PRECISION] != 1)
		return bad_shape(c, -ENOTSUP, "a softmax_precision other than float32");
	/* versions of ONNX differ in what 1 and 2 are, and in what softcap does to 0 */
	if (a->output == 3 && a->p[QK_MODE] != 3 && (a->p[QK_MODE] || a->f[SOFTCAP] > 0))
		return bad_shape(c, -ENOTSUP, "qk_matmul_output_mode");
	if (!mask)
		return 0;
	fits[0] = z->batch;
	fits[1] = z->heads;
	fits[2] = z->rows;
	if ((mask->type != SERVE_BOOL && mask->type != SERVE_FP32) || !mask->rank || mask->rank > 4 ||
	    mask->dims[mask->rank - 1] > z->keys)
		return bad(c, "the mask");
	for (i = 0; i + 1 < mask->rank; i++) {
		k = 4 - mask->rank + i;
		if (mask->dims[i] != 1 && mask->dims[i] != fits[k])
			return bad(c, "the mask has %lld in dimension %u", (long long)mask->dims[i], i);
	}
	return 0;
}

/* Outputs: the result, keys and values with the past, scores. */
static int shape_attention(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	struct sizes z;
	int rc = sizes_of(c, in, &z);
	unsigned int o = c->n->a.output;

	if (rc)
		return rc;
	out->rank = 4;
	out->dims[0] = z.batch;
	out->dims[1] = o == 1 || o == 2 ? z.kv_heads : z.heads;
	out->dims[2] = o == 1 || o == 2 ? z.keys : z.rows;
	out->dims[3] = o == 1 ? z.width : o == 3 ? z.keys : z.v_width;
	if (!o && in[Q]->rank == 3) {
		out->rank = 3;
		out->dims[1] = z.rows;
		out->dims[2] = z.heads * z.v_width;
	}
	return 0;
}

/* [batch, heads, rows, width] of what may be [batch, rows, heads * width]. */
static struct view by_heads(const struct view *v, int64_t heads)
{
	struct view w = *v;
	int64_t width;

	if (v->rank == 4)
		return w;
	width = v->dims[2] / heads;
	w.rank = 4;
	w.dims[1] = heads;
	w.dims[2] = v->dims[1];
	w.dims[3] = width;
	w.strides[1] = width;
	w.strides[2] = v->strides[1];
	w.strides[3] = 1;
	return w;
}

struct run {
	struct sizes z;
	struct view q, k, v, pk, pv, mask;
	const int64_t *lengths;			/* of the keys of each element of the batch, or NULL */
	bool has_mask;
	const struct attrs *a;
	float scale;
	/* of one row */
	int64_t b, h, row;
};

static float *at(const struct view *v, int64_t b, int64_t h, int64_t row)
{
	return (float *)(void *)v->data + b * v->strides[0] + h * v->strides[1] + row * v->strides[2];
}

static const float *key_at(const struct run *r, const struct view *past, const struct view *v, int64_t t)
{
	int64_t h = r->h / (r->z.heads / r->z.kv_heads);

	return t < r->z.past ? at(past, r->b, h, t) : at(v, r->b, h, t - r->z.past);
}

WIDE static float dot(int64_t n, const float *x, const float *y)
{
	float s[16] = { 0 }, sum = 0;
	int64_t i, k;

	for (i = 0; i + 16 <= n; i += 16)
		for (k = 0; k < 16; k++)
			s[k] += x[i + k] * y[i + k];
	for (; i < n; i++)
		sum += x[i] * y[i];
	for (k = 0; k < 16; k++)
		sum += s[k];
	return sum;
}

WIDE static void add_row(int64_t n, float *to, const float *x, float by)
{
	int64_t i;

	for (i = 0; i < n; i++)
		to[i] += x[i] * by;
}

WIDE static void scale_row(int64_t n, float *to, float by)
{
	int64_t i;

	for (i = 0; i < n; i++)
		to[i] *= by;
}

/* What is added to the score of a key; -INFINITY: it is masked. */
static float masked(const struct run *r, int64_t t)
{
	const struct view *m = &r->mask;
	int64_t before = r->lengths ? r->lengths[r->b] - r->z.rows : r->z.past, p = before + r->row, i;
	const int64_t pos[4] = { r->b, r->h, r->row, t };
	unsigned int k;

	if ((r->a->p[CAUSAL] && t > p) || (r->lengths && t >= r->lengths[r->b]) ||
	    (r->a->p[LEFT] >= 0 && p - t > r->a->p[LEFT]) ||
	    (r->a->p[RIGHT] >= 0 && t - p > r->a->p[RIGHT]))
		return -INFINITY;
	if (!r->has_mask)
		return 0;
	if (t >= m->dims[m->rank - 1])
		return -INFINITY;
	for (k = 0, i = 0; k < m->rank; k++)
		i += m->dims[k] == 1 ? 0 : pos[4 - m->rank + k] * m->strides[k];
	if (m->type == SERVE_BOOL)
		return m->data[i] ? 0 : -INFINITY;
	return ((const float *)(const void *)m->data)[i];
}

/* The scores of keys from t on; returns the greatest, -INFINITY if all are masked. */
static float scores(const struct run *r, int64_t t, int64_t n, bool plain, float *to)
{
	const float *q = at(&r->q, r->b, r->h, r->row);
	float cap = r->a->f[SOFTCAP], most = -INFINITY;
	int64_t i;

	for (i = 0; i < n; i++) {
		float more = plain ? 0 : masked(r, t + i), x;

		if (isinf(more) && more < 0) {
			to[i] = more;
			continue;
		}
		x = dot(r->z.width, q, key_at(r, &r->pk, &r->k, t + i)) * r->scale;
		if (cap > 0)
			x = tanhf(x / cap) * cap;
		to[i] = x + more;
		most = to[i] > most || to[i] != to[i] ? to[i] : most;
	}
	return most;
}

static void one_row(const struct run *r, float *out)
{
	float s[BLOCK], most = -INFINITY, now;
	double sum = 0;
	int64_t t, i, n;

	memset(out, 0, (size_t)r->z.v_width * sizeof(*out));
	for (t = 0; t < r->z.keys; t += BLOCK) {
		n = r->z.keys - t < BLOCK ? r->z.keys - t : BLOCK;
		now = scores(r, t, n, false, s);
		if (isinf(now) && now < 0)
			continue;
		if (!(now <= most)) {
			float by = expf(most - now);

			scale_row(r->z.v_width, out, by);
			sum *= (double)by;
			most = now;
		}
		exp_row(n, s, s, most);
		for (i = 0; i < n; i++) {
			sum += (double)s[i];
			if (s[i] != 0)
				add_row(r->z.v_width, out, key_at(r, &r->pv, &r->v, t + i), s[i]);
		}
	}
	if (sum > 0 || sum != sum)
		scale_row(r->z.v_width, out, (float)(1 / sum));
}

static void softmax_row(const struct run *r, float *out)
{
	float most = scores(r, 0, r->z.keys, false, out);
	double sum = 0;
	int64_t i;

	if (isinf(most) && most < 0) {
		memset(out, 0, (size_t)r->z.keys * sizeof(*out));
		return;
	}
	exp_row(r->z.keys, out, out, most);
	for (i = 0; i < r->z.keys; i++)
		sum += (double)out[i];
	scale_row(r->z.keys, out, (float)(1 / sum));
}

/* The past, then what is new. */
static void join(const struct run *r, const struct view *out, const struct view *past,
		 const struct view *fresh)
{
	struct view o = *out, f = *fresh;

	if (r->z.past) {
		o.dims[2] = r->z.past;
		view_copy(&o, past);
	}
	o.dims[2] = f.dims[2];
	o.data += r->z.past * out->strides[2] * (int64_t)sizeof(float);
	if (count(4, o.dims))
		view_copy(&o, &f);
}

static int run_attention(const struct node *n, const struct view *out, const struct view *const *in)
{
	struct ctx c = { n, NULL, 0 };
	struct shape shape[MAX_INPUTS];
	const struct shape *shapes[MAX_INPUTS] = { NULL };
	struct run r = { .a = &n->a };
	struct view o;
	int rc;

	view_shapes(in, n->nin, shape, shapes);
	rc = sizes_of(&c, shapes, &r.z);
	if (rc)
		return rc;
	r.q = by_heads(in[Q], r.z.heads);
	r.k = by_heads(in[K], r.z.kv_heads);
	r.v = by_heads(in[V], r.z.kv_heads);
	if (r.z.past) {
		r.pk = *in[PAST_K];
		r.pv = *in[PAST_V];
	}
	if (shapes[MASK] && n->nin > MASK) {
		r.mask = *in[MASK];
		r.has_mask = true;
	}
	if (n->nin > LENGTHS && shapes[LENGTHS])
		r.lengths = (const int64_t *)(const void *)in[LENGTHS]->data;
	r.scale = n->a.f[SCALE] != 0 ? n->a.f[SCALE] : 1 / sqrtf((float)r.z.width);
	if (n->a.output == 1 || n->a.output == 2) {
		join(&r, out, n->a.output == 1 ? &r.pk : &r.pv, n->a.output == 1 ? &r.k : &r.v);
		return 0;
	}
	o = by_heads(out, r.z.heads);
	for (r.b = 0; r.b < r.z.batch; r.b++)
		for (r.h = 0; r.h < r.z.heads; r.h++)
			for (r.row = 0; r.row < r.z.rows; r.row++) {
				float *to = at(&o, r.b, r.h, r.row);

				if (!n->a.output)
					one_row(&r, to);
				else if (n->a.p[QK_MODE])
					softmax_row(&r, to);
				else
					scores(&r, 0, r.z.keys, true, to);
			}
	return 0;
}

/* The rows are the batch; a mask may be the same for all of it. */
static bool rows_attention(struct rows *r)
{
	unsigned int i;

	for (i = 0; i < r->node->nin; i++) {
		if (!r->at[i])
			continue;
		if (i == MASK && row_plain(r, i)) {
			if (r->in[i]->rank == 4 && r->in[i]->dims[0] != 1)
				return false;
			continue;
		}
		if (r->at[i]->state != AXIS || r->at[i]->axis || r->at[i]->k != r->at[0]->k ||
		    (i == MASK && r->in[i]->rank != 4))
			return false;
	}
	return row_along(r, 0, r->at[0]->k);
}

const struct oper opers_attention[] = {
	{ "Attention", "is_causal=0 kv_num_heads=0 q_num_heads=0 qk_matmul_output_mode=0"
		" softmax_precision=1 left_window_size=-1 right_window_size=-1 scale=~0 softcap=~0",
		3, 7, 4, 0, BIT(FP32), { 0 }, false, shape_attention, rows_attention, run_attention },
	{ 0 }
};
