// SPDX-License-Identifier: Apache-2.0
/* Computes the layers of a network; see net.h. */

#include <math.h>
#include <stddef.h>
#include <string.h>

#ifndef PAWL_PLAIN_GEMM
#include <cblas.h>
#endif

#include "net.h"

#ifdef PAWL_PLAIN_GEMM
void net_init(void)
{
}

const char *net_gemm(void)
{
	return "plain C";
}

static void fc_forward(const struct layer *l, const float *weight, const float *bias,
		       const float *in, float *out, int batch)
{
	int row, j, k;

	for (row = 0; row < batch; row++, in += l->in_dim) {
		const float *w = weight;

		for (j = 0; j < l->out_dim; j++) {
			float sum = l->bias ? bias[j] : 0;

			for (k = 0; k < l->in_dim; k++)
				sum += in[k] * *w++;
			*out++ = sum;
		}
	}
}
#else
void net_init(void)
{
	/* The engine's threads are the parallelism. */
	openblas_set_num_threads(1);
}

const char *net_gemm(void)
{
	return openblas_get_config();
}

static void fc_forward(const struct layer *l, const float *weight, const float *bias,
		       const float *in, float *out, int batch)
{
	size_t dim = (size_t)l->out_dim, row;

	if (l->bias)
		for (row = 0; row < (size_t)batch; row++)
			memcpy(out + row * dim, bias, dim * sizeof(*out));
	/* With beta 0, the old contents of out are not read. */
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, batch, l->out_dim, l->in_dim,
		    1, in, l->in_dim, weight, l->in_dim, l->bias ? 1 : 0, out, l->out_dim);
}
#endif

static void act_forward(enum layer_act act, const float *in, float *out, size_t n)
{
	size_t i;

	switch (act) {
	case ACT_RELU:
		for (i = 0; i < n; i++)
			out[i] = in[i] < 0 ? 0 : in[i];
		break;
	case ACT_SIGMOID:
		for (i = 0; i < n; i++)
			out[i] = 1 / (1 + expf(-in[i]));
		break;
	case ACT_TANH:
		for (i = 0; i < n; i++)
			out[i] = tanhf(in[i]);
		break;
	case ACT_SOFTRELU:
		/* log(1 + e^x), without computing e^x for a large x. */
		for (i = 0; i < n; i++)
			out[i] = (in[i] > 0 ? in[i] : 0) + log1pf(expf(-fabsf(in[i])));
		break;
	case ACT_SOFTSIGN:
		for (i = 0; i < n; i++)
			out[i] = in[i] / (1 + fabsf(in[i]));
		break;
	}
}

static void softmax_forward(float temperature, const float *in, float *out, size_t dim)
{
	float max = in[0], sum = 0;
	size_t i;

	for (i = 1; i < dim; i++)
		max = in[i] > max ? in[i] : max;
	for (i = 0; i < dim; i++) {
		out[i] = expf((in[i] - max) / temperature);	/* at most 1 */
		sum += out[i];
	}
	for (i = 0; i < dim; i++)
		out[i] /= sum;
}

void layer_forward(const struct layer *l, const float *weight, const float *bias,
		   const float *in, float *out, int batch)
{
	size_t dim = (size_t)l->out_dim, row;

	switch (l->kind) {
	case LAYER_FC:
		fc_forward(l, weight, bias, in, out, batch);
		break;
	case LAYER_ACT:
		act_forward(l->act, in, out, (size_t)batch * dim);
		break;
	case LAYER_SOFTMAX:
		for (row = 0; row < (size_t)batch; row++)
			softmax_forward(l->temperature, in + row * dim, out + row * dim, dim);
		break;
	}
}
