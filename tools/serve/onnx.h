/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files that read ONNX share; see onnx.c. */
#ifndef SERVE_ONNX_H
#define SERVE_ONNX_H

#include "build.h"
#include <generated/onnx.pb-c.h>

/* Values by name: a hash table with open addresses. */
struct names {
	struct graph *g;
	int *slot;				/* value + 1 */
	size_t size;
};

struct def;
struct reader {
	struct site s;
	struct names names;
	const Onnx__NodeProto *np;
	const struct def *def;
};

/* onnx.c */
int *onnx_find(struct names *t, const char *name);	/* where value + 1 is, or will be */
int onnx_define(struct names *t, const char *name);	/* a new value; no other has its name */
int onnx_tensor(struct graph *g, const Onnx__TensorProto *t, int v);

/* onnx_ext.c */
static inline bool onnx_is_external(const Onnx__TensorProto *t)
{
	return t->n_external_data || (t->has_data_location && t->data_location);
}
/* Read the data of a tensor from a file beside the model; to is NULL: check that it is there. */
int onnx_external(struct graph *g, const Onnx__TensorProto *t, size_t bytes, void *to);
/* Check all tensors of a model that have their data in other files. */
int onnx_check_external(struct graph *g, const Onnx__ModelProto *m);

/* onnx_ops.c */
int onnx_node(struct reader *r);
/* An error of the node; what is not supported is noted, too. */
int onnx_refuse(struct reader *r, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
const Onnx__AttributeProto *onnx_attr(const struct reader *r, const char *name);
/* The values of the first n inputs, -1 for one that is left out; the first ones must be there. */
int onnx_inputs(struct reader *r, unsigned int n, unsigned int must, int *in);
/* The window of a convolution, or of its transpose. */
int onnx_window(struct reader *r, struct node *n);

/* onnx_lower.c: read an operator that consists of others; -ENOENT: it is none */
int onnx_lower(struct reader *r);

#endif
