/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of MXNet's own model files, as save_checkpoint() writes them:
 * PREFIX-symbol.json (the graph) and PREFIX-0000.params (the arrays).
 *
 * A model is a straight chain of layers on a batch of rows.  Supported are FullyConnected,
 * Activation (relu, sigmoid, tanh, softrelu, softsign), SoftmaxOutput, softmax and Flatten;
 * any other operator is refused by name.
 */
#ifndef PAWL_MODEL_READER_H
#define PAWL_MODEL_READER_H

#include <stdbool.h>
#include <stddef.h>

enum layer_kind {
	LAYER_FC,		/* out = in * weight^T + bias */
	LAYER_ACT,
	LAYER_SOFTMAX,		/* over each row */
};

enum layer_act {
	ACT_RELU,
	ACT_SIGMOID,
	ACT_TANH,
	ACT_SOFTRELU,
	ACT_SOFTSIGN,
};

struct layer {
	enum layer_kind kind;
	enum layer_act act;	/* LAYER_ACT */
	float temperature;	/* LAYER_SOFTMAX */
	char *name;		/* of the node */
	int in_dim, out_dim;
	float *weight;		/* LAYER_FC: [out_dim][in_dim], else NULL */
	float *bias;		/* LAYER_FC: [out_dim], or NULL: no_bias */
};

struct model {
	struct layer *layers;
	int nlayers;		/* at least 1 */
	int in_dim, out_dim;	/* of the chain */
	int max_dim;		/* of any layer's input or output */
};

/*
 * Read both files.  With params NULL the first argument is MXNet's prefix of
 * PREFIX-symbol.json and PREFIX-0000.params.  Returns 0, or a negative errno with the file,
 * the position and the reason in err (may be NULL).  Any thread.
 */
int model_load(const char *symbol, const char *params, struct model **out,
	       char *err, size_t errlen);
/* The same from memory, which is not kept; the names are for messages only. */
int model_parse(const void *sym, size_t sym_len, const char *sym_name,
		const void *par, size_t par_len, const char *par_name,
		struct model **out, char *err, size_t errlen);
/* NULL is allowed. */
void model_free(struct model *m);

/*
 * Check that b's weights can replace a's in the same layers.  Returns 0, or -EINVAL with the
 * first difference in err (may be NULL).
 */
int model_same_shape(const struct model *a, const struct model *b,
		     char *err, size_t errlen);
/* Check that the model maps rows of in_dim to rows of out_dim.  Returns 0 or -EINVAL. */
int model_check_io(const struct model *m, int in_dim, int out_dim,
		   char *err, size_t errlen);

static inline size_t layer_nweight(const struct layer *l)
{
	return l->weight ? (size_t)l->out_dim * (size_t)l->in_dim : 0;
}

static inline size_t layer_nbias(const struct layer *l)
{
	return l->bias ? (size_t)l->out_dim : 0;
}

#endif
