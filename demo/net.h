/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the layers of a network with OpenBLAS. */
#ifndef PAWL_NET_H
#define PAWL_NET_H

#include "model.h"

/* Call it once, before the first layer: it keeps BLAS from starting its own threads. */
void net_init(void);
/* The name of the matrix multiplication, for reports. */
const char *net_gemm(void);

/*
 * Compute one layer on a batch: in is [batch][in_dim], out is [batch][out_dim], both
 * row-major.  weight and bias are arguments, not l->weight and l->bias, because a caller that
 * swaps weights keeps the live ones elsewhere; they are used only if the layer has them.
 * in == out is allowed except for LAYER_FC.  It accesses only its arguments, so any number of
 * calls may run concurrently.
 *
 * Built with PAWL_PLAIN_GEMM it multiplies in plain C, because a sanitizer does not see the
 * accesses of BLAS's assembly.
 */
void layer_forward(const struct layer *l, const float *weight, const float *bias,
		   const float *in, float *out, int batch);

#endif
