/* SPDX-License-Identifier: Apache-2.0 */
/* What the layers of a network compute, by OpenBLAS. */
#ifndef PAWL_NET_H
#define PAWL_NET_H

#include "model.h"

/* Once, before the first layer: BLAS starts no threads of its own. */
void net_init(void);
/* What multiplies matrices here, for reports. */
const char *net_gemm(void);

/*
 * One layer on a batch: in is [batch][in_dim], out is [batch][out_dim], both row by
 * row.  weight and bias are arguments, not l->weight and l->bias, because a caller
 * that swaps weights keeps the live ones elsewhere; they are not looked at unless
 * the layer has them.  in == out is allowed but for LAYER_FC.  Touches nothing but
 * its arguments, so any number may run at once.
 *
 * Built with PAWL_PLAIN_GEMM it multiplies in plain C, so that a sanitizer sees the
 * accesses that BLAS's assembly hides from it.
 */
void layer_forward(const struct layer *l, const float *weight, const float *bias,
		   const float *in, float *out, int batch);

#endif
