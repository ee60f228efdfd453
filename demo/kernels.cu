// SPDX-License-Identifier: Apache-2.0
/*
 * The layers of pawl infer on CUDA: products by cuBLAS, the rest by kernels.  This is a
 * separate library, pawl-cuda.so, so that the pawl command does not depend on CUDA.
 */
#include <cstdio>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include "model.h"

__global__ static void spread_bias(float *out, const float *bias, int n, int dim)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = bias[i % dim];
}

__global__ static void activate(int act, const float *in, float *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float x;

	if (i >= n)
		return;
	x = in[i];
	switch (act) {
	case ACT_RELU:
		out[i] = x < 0 ? 0 : x;
		break;
	case ACT_SIGMOID:
		out[i] = 1 / (1 + expf(-x));
		break;
	case ACT_TANH:
		out[i] = tanhf(x);
		break;
	case ACT_SOFTRELU:
		out[i] = (x > 0 ? x : 0) + log1pf(expf(-fabsf(x)));
		break;
	case ACT_SOFTSIGN:
		out[i] = x / (1 + fabsf(x));
		break;
	}
}

/* One thread per row, since rows are short. */
__global__ static void softmax(float temperature, const float *in, float *out, int rows, int dim)
{
	int row = blockIdx.x * blockDim.x + threadIdx.x;
	float max, sum = 0;

	if (row >= rows)
		return;
	in += row * dim;
	out += row * dim;
	max = in[0];
	for (int i = 1; i < dim; i++)
		max = in[i] > max ? in[i] : max;
	for (int i = 0; i < dim; i++) {
		out[i] = expf((in[i] - max) / temperature);
		sum += out[i];
	}
	for (int i = 0; i < dim; i++)
		out[i] /= sum;
}

static int failed(char *why, size_t len, const char *what, const char *text)
{
	snprintf(why, len, "%s: %s", what, text);
	return -1;
}

/* One handle per thread that runs bodies; it is kept until the process ends. */
static cublasHandle_t handle(cublasStatus_t *rc)
{
	static thread_local cublasHandle_t h;

	*rc = CUBLAS_STATUS_SUCCESS;
	if (!h) {
		*rc = cublasCreate(&h);
		if (*rc == CUBLAS_STATUS_SUCCESS)
			*rc = cublasSetMathMode(h, CUBLAS_PEDANTIC_MATH);
	}
	return h;
}

/* out = in * weight^T + bias, all row-major; the column-major cuBLAS sees them transposed. */
static cublasStatus_t fc(const float *weight, const float *bias, const float *in, float *out,
			 int batch, int in_dim, int out_dim, cudaStream_t s)
{
	const float one = 1, beta = bias ? 1 : 0;
	int n = batch * out_dim;
	cublasStatus_t rc;
	cublasHandle_t h = handle(&rc);

	if (rc != CUBLAS_STATUS_SUCCESS)
		return rc;
	if (bias)
		spread_bias<<<(n + 127) / 128, 128, 0, s>>>(out, bias, n, out_dim);
	rc = cublasSetStream(h, s);
	if (rc != CUBLAS_STATUS_SUCCESS)
		return rc;
	return cublasSgemm(h, CUBLAS_OP_T, CUBLAS_OP_N, out_dim, batch, in_dim, &one, weight, in_dim,
			   in, in_dim, &beta, out, out_dim);
}

extern "C" int pawl_cuda_layer(int kind, int act, float temperature, const float *weight,
			       const float *bias, const float *in, float *out, int batch,
			       int in_dim, int out_dim, void *stream, char *why, size_t len)
{
	cudaStream_t s = (cudaStream_t)stream;
	int n = batch * out_dim;
	cublasStatus_t rc;
	cudaError_t e;

	switch (kind) {
	case LAYER_FC:
		rc = fc(weight, bias, in, out, batch, in_dim, out_dim, s);
		if (rc != CUBLAS_STATUS_SUCCESS)
			return failed(why, len, "cuBLAS", cublasGetStatusString(rc));
		break;
	case LAYER_ACT:
		activate<<<(n + 127) / 128, 128, 0, s>>>(act, in, out, n);
		break;
	case LAYER_SOFTMAX:
		softmax<<<(batch + 63) / 64, 64, 0, s>>>(temperature, in, out, batch, out_dim);
		break;
	}
	e = cudaGetLastError();
	return e == cudaSuccess ? 0 : failed(why, len, "kernel", cudaGetErrorString(e));
}
