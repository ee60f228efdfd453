// SPDX-License-Identifier: Apache-2.0
/*
 * window.c - operators whose elements depend on neighbours: pooling, scaling, and normalization
 * over channels.  As in kernel.c, the data may lie in rows or with the channels last.
 */
#include <float.h>
#include <math.h>

#include "graph.h"

/* Height and width of a view with one or two spatial axes. */
struct plane {
	int64_t n, c, h, w, sn, sc, sh, sw;
};

static struct plane plane(const struct view *v)
{
	struct plane p = { v->dims[0], v->dims[1], 1, v->dims[v->rank - 1], v->strides[0],
			   v->strides[1], 0, v->strides[v->rank - 1] };

	if (v->rank == 4) {
		p.h = v->dims[2];
		p.sh = v->strides[2];
	}
	return p;
}

WIDE void pool_run(const struct attrs *attrs, const struct view *out, const struct view *in)
{
	struct plane o = plane(out), x = plane(in);
	struct attrs a = *attrs;
	int64_t top, left, n, h, w, i, j, c;

	if (in->rank == 3) {	/* one row */
		a.kernel[1] = a.kernel[0];
		a.stride[1] = a.stride[0];
		a.dilation[1] = a.dilation[0];
		a.pad[1] = a.pad[0];
		a.pad[3] = a.pad[2];
		a.kernel[0] = a.stride[0] = a.dilation[0] = 1;
		a.pad[0] = a.pad[2] = 0;
	}
	window(&a, 0, x.h, o.h, &top);
	window(&a, 1, x.w, o.w, &left);
	for (n = 0; n < o.n; n++)
		for (h = 0; h < o.h; h++)
			for (w = 0; w < o.w; w++) {
				float *y = (float *)(void *)out->data + n * o.sn + h * o.sh +
					w * o.sw;
				int64_t seen = 0, h0 = h * a.stride[0] - top;
				int64_t w0 = w * a.stride[1] - left, eh, ew;
				float by;

				for (c = 0; c < o.c; c++)
					y[c * o.sc] = a.mx_max ? -FLT_MAX :
						a.max_pool ? -INFINITY : 0;
				for (i = 0; i < a.kernel[0]; i++)
					for (j = 0; j < a.kernel[1]; j++) {
						int64_t ih = h0 + i * a.dilation[0];
						int64_t iw = w0 + j * a.dilation[1];
						const float *p;

						if (ih < 0 || iw < 0 || ih >= x.h || iw >= x.w)
							continue;
						seen++;
						p = (const float *)(const void *)in->data +
							n * x.sn + ih * x.sh + iw * x.sw;
						if (a.mx_max)
							for (c = 0; c < o.c; c++) {
								float f = p[c * x.sc];

								y[c * o.sc] = f > y[c * o.sc] ?
									f : y[c * o.sc];
							}
						else if (a.max_pool && o.sc == 1 && x.sc == 1)
							for (c = 0; c < o.c; c++)
								y[c] = p[c] > y[c] ||
									p[c] != p[c] ?
									p[c] : y[c];
						else if (a.max_pool)
							for (c = 0; c < o.c; c++) {
								float f = p[c * x.sc];

								if (f > y[c * o.sc] || f != f)
									y[c * o.sc] = f;
							}
						else if (o.sc == 1 && x.sc == 1)
							for (c = 0; c < o.c; c++)
								y[c] += p[c];
						else
							for (c = 0; c < o.c; c++)
								y[c * o.sc] += p[c * x.sc];
					}
				if (a.max_pool)
					continue;
				/* The padding counts, but not what lies beyond it. */
				eh = h0 + (a.kernel[0] - 1) * a.dilation[0] + 1;
				ew = w0 + (a.kernel[1] - 1) * a.dilation[1] + 1;
				if (a.count_pad && a.round != ROUND_SAME &&
				    (a.auto_pad == PAD_GIVEN || a.auto_pad == PAD_VALID)) {
					int64_t bh = x.h + a.pad[2], bw = x.w + a.pad[3];

					seen = ((eh > bh ? bh : eh) - h0 + a.dilation[0] - 1) /
						a.dilation[0];
					seen *= ((ew > bw ? bw : ew) - w0 + a.dilation[1] - 1) /
						a.dilation[1];
				} else if (a.count_pad) {
					seen = a.kernel[0] * a.kernel[1];
				}
				by = seen > 0 ? 1 / (float)seen : 0;
				for (c = 0; c < o.c; c++)
					y[c * o.sc] *= by;
			}
}

/* The position in the input of a pixel of the output. */
static float source(const struct attrs *a, int64_t i, int64_t in, int64_t out, float scale)
{
	switch (a->coord) {
	case COORD_ALIGN:
		return out > 1 ? (float)i * (float)(in - 1) / (float)(out - 1) : 0;
	case COORD_ASYMMETRIC:
		return (float)i / scale;
	case COORD_PYTORCH:
		return out > 1 ? ((float)i + 0.5f) / scale - 0.5f : 0;
	default:
		return ((float)i + 0.5f) / scale - 0.5f;
	}
}

static int64_t within(float x, int64_t n)
{
	return x < 0 ? 0 : x > (float)(n - 1) ? n - 1 : (int64_t)x;
}

static int64_t nearest(const struct attrs *a, float x, int64_t n, float scale)
{
	float half = floorf(x) + 0.5f;

	/* scales are rounded, so a position that is meant to be a half may not be one */
	if (fabsf(x - half) < 1e-6f)
		x = a->nearest == NEAR_PREFER_CEIL || a->nearest == NEAR_PREFER_FLOOR ? half : x;
	switch (a->nearest) {
	case NEAR_SIMPLE:
		return within(scale < 1 ? ceilf(x) : floorf(x), n);
	case NEAR_FLOOR:
		return within(floorf(x), n);
	case NEAR_CEIL:
		return within(ceilf(x), n);
	case NEAR_PREFER_CEIL:
		return within(roundf(x), n);
	default:
		return within(ceilf(x - 0.5f), n);
	}
}

/* The weights of four pixels around a position, the first of which is floor(x) - 1. */
static void cubic(const struct attrs *a, float x, int64_t n, int64_t *at, float *by)
{
	float t = x - floorf(x), k = a->alpha, sum = 0;
	float d[] = { 1 + t, t, 1 - t, 2 - t };
	int64_t first = (int64_t)floorf(clampf(x, -65536, 131072)) - 1, i;

	for (i = 0; i < 4; i++) {
		by[i] = i == 0 || i == 3 ? ((k * d[i] - 5 * k) * d[i] + 8 * k) * d[i] - 4 * k :
			((k + 2) * d[i] - (k + 3)) * d[i] * d[i] + 1;
		at[i] = first + i;
		if (a->inside && (at[i] < 0 || at[i] >= n))
			by[i] = 0;
		at[i] = at[i] < 0 ? 0 : at[i] >= n ? n - 1 : at[i];
		sum += by[i];
	}
	for (i = 0; i < 4 && a->inside; i++)
		by[i] /= sum;
}

void resize_run(const struct attrs *a, const struct view *out, const struct view *const *in)
{
	struct plane o = plane(out), x = plane(in[0]);
	float sh = (float)o.h / (float)x.h, sw = (float)o.w / (float)x.w;
	int64_t n, h, w, c;

	/* as onnxruntime does, also if the scales are a little more than 1 */
	if (o.h == x.h && o.w == x.w) {
		view_copy(out, in[0]);
		return;
	}
	if (a->keep_scale) {
		sh = ((const float *)(const void *)in[1]->data)[2];
		sw = ((const float *)(const void *)in[1]->data)[3];
	}
	for (n = 0; n < o.n; n++)
		for (h = 0; h < o.h; h++)
			for (w = 0; w < o.w; w++) {
				float fh = source(a, h, x.h, o.h, sh);
				float fw = source(a, w, x.w, o.w, sw);
				const float *p = (const float *)(const void *)in[0]->data +
					n * x.sn;
				float *y = (float *)(void *)out->data + n * o.sn + h * o.sh +
					w * o.sw;

				if (a->linear) {
					int64_t h0, h1, w0, w1;
					float dh, dw;

					fh = clampf(fh, 0, (float)(x.h - 1));
					fw = clampf(fw, 0, (float)(x.w - 1));
					h0 = within(floorf(fh), x.h);
					w0 = within(floorf(fw), x.w);
					h1 = h0 + 1 < x.h ? h0 + 1 : h0;
					w1 = w0 + 1 < x.w ? w0 + 1 : w0;
					dh = fh - (float)h0;
					dw = fw - (float)w0;
					h0 *= x.sh;
					h1 *= x.sh;
					w0 *= x.sw;
					w1 *= x.sw;
					for (c = 0; c < o.c; c++, p += x.sc, y += o.sc)
						*y = (1 - dh) * ((1 - dw) * p[h0 + w0] +
								 dw * p[h0 + w1]) +
							dh * ((1 - dw) * p[h1 + w0] +
							      dw * p[h1 + w1]);
					continue;
				}
				if (a->cubic) {
					int64_t ah[4], aw[4], i, j;
					float bh[4], bw[4];

					cubic(a, fh, x.h, ah, bh);
					cubic(a, fw, x.w, aw, bw);
					for (c = 0; c < o.c; c++, p += x.sc, y += o.sc) {
						float sum = 0;

						for (i = 0; i < 4; i++) {
							float row = 0;

							for (j = 0; j < 4; j++)
								row += bw[j] * p[ah[i] * x.sh +
										 aw[j] * x.sw];
							sum += bh[i] * row;
						}
						*y = sum;
					}
					continue;
				}
				p += nearest(a, fh, x.h, sh) * x.sh +
					nearest(a, fw, x.w, sw) * x.sw;
				for (c = 0; c < o.c; c++)
					y[c * o.sc] = p[c * x.sc];
			}
}

void lrn_run(const struct attrs *a, const struct view *out, const struct view *in)
{
	int64_t before = (a->size - 1) / 2, behind = a->size - 1 - before, n, h, w, c, k;
	int64_t channels = in->dims[1], si = in->strides[1], so = out->strides[1];

	for (n = 0; n < in->dims[0]; n++)
		for (h = 0; h < in->dims[2]; h++)
			for (w = 0; w < in->dims[3]; w++) {
				const float *x = (const float *)(const void *)in->data +
					n * in->strides[0] + h * in->strides[2] +
					w * in->strides[3];
				float *y = (float *)(void *)out->data + n * out->strides[0] +
					h * out->strides[2] + w * out->strides[3];

				for (c = 0; c < channels; c++) {
					int64_t from = c < before ? 0 : c - before;
					int64_t to = c + behind < channels ? c + behind :
						channels - 1;
					float sum = 0;

					for (k = from; k <= to; k++)
						sum += x[k * si] * x[k * si];
					sum = a->bias + a->alpha / (float)a->size * sum;
					/* the usual exponent, without a call of powf() */
					y[c * so] = x[c * si] / (a->beta == 0.75f ?
						sqrtf(sum) * sqrtf(sqrtf(sum)) :
						powf(sum, a->beta));
				}
			}
}
