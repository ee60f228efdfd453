// SPDX-License-Identifier: Apache-2.0
/*
 * onnx_ops.c - reads the operators of ONNX: which ones exist, and their attributes.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx.h"
#include "oper.h"

#define refuse_node onnx_refuse
#define attr onnx_attr

static const struct def {
	const char *name;
	enum op op;
	bool (*rows)(struct rows *r);	/* of a batch: graph.h */
	unsigned int kind;
	unsigned int min, max;			/* inputs */
	const char *attrs;			/* known attributes, each between spaces */
} defs[] = {
#define REDUCED " axes keepdims noop_with_empty_axes "
#define WINDOW " kernel_shape strides pads dilations auto_pad "
	{ "Abs", OP_UNARY, rows_each, U_ABS, 1, 1, "" },
	{ "Acos", OP_UNARY, rows_each, U_ACOS, 1, 1, "" },
	{ "Acosh", OP_UNARY, rows_each, U_ACOSH, 1, 1, "" },
	{ "Add", OP_BINARY, rows_each, B_ADD, 2, 2, "" },
	{ "Asin", OP_UNARY, rows_each, U_ASIN, 1, 1, "" },
	{ "Asinh", OP_UNARY, rows_each, U_ASINH, 1, 1, "" },
	{ "Atan", OP_UNARY, rows_each, U_ATAN, 1, 1, "" },
	{ "Atanh", OP_UNARY, rows_each, U_ATANH, 1, 1, "" },
	{ "AveragePool", OP_POOL, rows_images, 0, 1, 1, WINDOW " ceil_mode count_include_pad " },
	{ "BatchNormalization", OP_NORM, rows_channels, 0, 5, 5,
		" epsilon momentum spatial training_mode " },
	{ "Cast", OP_CAST, rows_each, 0, 1, 1, " to saturate " },
	{ "Ceil", OP_UNARY, rows_each, U_CEIL, 1, 1, "" },
	{ "Celu", OP_UNARY, rows_each, U_CELU, 1, 1, " alpha " },
	{ "Clip", OP_UNARY, rows_each, U_CLIP, 1, 3, " min max " },
	{ "Concat", OP_CONCAT, rows_concat, 0, 1, MAX_INPUTS, " axis " },
	{ "ConstantOfShape", OP_FILL, rows_fill, 0, 1, 1, " value " },
	{ "Conv", OP_CONV, rows_images, 0, 2, 3, WINDOW " group " },
	{ "ConvTranspose", OP_DECONV, rows_images, 0, 2, 3, WINDOW " group output_padding output_shape " },
	{ "Cos", OP_UNARY, rows_each, U_COS, 1, 1, "" },
	{ "Cosh", OP_UNARY, rows_each, U_COSH, 1, 1, "" },
	{ "Div", OP_BINARY, rows_each, B_DIV, 2, 2, "" },
	{ "Dropout", OP_IDENTITY, rows_each, 0, 1, 3, " ratio seed is_test " },
	{ "Elu", OP_UNARY, rows_each, U_ELU, 1, 1, " alpha " },
	{ "Equal", OP_BINARY, rows_each, B_EQUAL, 2, 2, "" },
	{ "Erf", OP_UNARY, rows_each, U_ERF, 1, 1, "" },
	{ "Exp", OP_UNARY, rows_each, U_EXP, 1, 1, "" },
	{ "Expand", OP_EXPAND, rows_expand, 0, 2, 2, "" },
	{ "Flatten", OP_FLATTEN, rows_flatten, 0, 1, 1, " axis " },
	{ "Floor", OP_UNARY, rows_each, U_FLOOR, 1, 1, "" },
	{ "Gather", OP_GATHER, rows_gather, 0, 2, 2, " axis " },
	{ "Gelu", OP_UNARY, rows_each, U_GELU, 1, 1, " approximate " },
	{ "Gemm", OP_GEMM, rows_gemm, 0, 2, 3, " alpha beta transA transB " },
	{ "GlobalAveragePool", OP_GLOBAL_POOL, rows_images, 0, 1, 1, "" },
	{ "GlobalMaxPool", OP_GLOBAL_POOL, rows_images, 1, 1, 1, "" },
	{ "Greater", OP_BINARY, rows_each, B_GREATER, 2, 2, "" },
	{ "GreaterOrEqual", OP_BINARY, rows_each, B_GREATER_EQUAL, 2, 2, "" },
	{ "HardSigmoid", OP_UNARY, rows_each, U_HSIGMOID, 1, 1, " alpha beta " },
	{ "HardSwish", OP_UNARY, rows_each, U_HSWISH, 1, 1, "" },
	{ "Identity", OP_IDENTITY, rows_each, 0, 1, 1, "" },
	{ "LRN", OP_LRN, rows_images, 0, 1, 1, " alpha beta bias size " },
	{ "LayerNormalization", OP_ROW_NORM, rows_softmax, N_LAYER, 2, 3,
		" axis epsilon stash_type " },
	{ "LeakyRelu", OP_UNARY, rows_each, U_LEAKY, 1, 1, " alpha " },
	{ "Less", OP_BINARY, rows_each, B_LESS, 2, 2, "" },
	{ "LessOrEqual", OP_BINARY, rows_each, B_LESS_EQUAL, 2, 2, "" },
	{ "Log", OP_UNARY, rows_each, U_LOG, 1, 1, "" },
	{ "LogSoftmax", OP_SOFTMAX, rows_softmax, 1, 1, 1, " axis " },
	{ "MatMul", OP_MATMUL, rows_matmul, 0, 2, 2, "" },
	{ "Max", OP_SUM, rows_each, B_MAX, 1, MAX_INPUTS, "" },
	{ "MaxPool", OP_POOL, rows_images, 1, 1, 1, WINDOW " ceil_mode storage_order " },
	{ "Min", OP_SUM, rows_each, B_MIN, 1, MAX_INPUTS, "" },
	{ "Mul", OP_BINARY, rows_each, B_MUL, 2, 2, "" },
	{ "Neg", OP_UNARY, rows_each, U_NEG, 1, 1, "" },
	{ "Not", OP_UNARY, rows_each, U_NOT, 1, 1, "" },
	{ "Pad", OP_PAD, rows_pad, 0, 1, 4, " mode pads value " },
	{ "Pow", OP_BINARY, rows_each, B_POW, 2, 2, "" },
	{ "RMSNormalization", OP_ROW_NORM, rows_softmax, N_RMS, 2, 2,
		" axis epsilon stash_type " },
	{ "Reciprocal", OP_UNARY, rows_each, U_RECIPROCAL, 1, 1, "" },
	{ "ReduceL1", OP_REDUCE, rows_reduce, R_L1, 1, 2, REDUCED },
	{ "ReduceL2", OP_REDUCE, rows_reduce, R_L2, 1, 2, REDUCED },
	{ "ReduceLogSum", OP_REDUCE, rows_reduce, R_LOG_SUM, 1, 2, REDUCED },
	{ "ReduceLogSumExp", OP_REDUCE, rows_reduce, R_LOG_SUM_EXP, 1, 2, REDUCED },
	{ "ReduceMax", OP_REDUCE, rows_reduce, R_MAX, 1, 2, REDUCED },
	{ "ReduceMean", OP_REDUCE, rows_reduce, R_MEAN, 1, 2, REDUCED },
	{ "ReduceMin", OP_REDUCE, rows_reduce, R_MIN, 1, 2, REDUCED },
	{ "ReduceProd", OP_REDUCE, rows_reduce, R_PROD, 1, 2, REDUCED },
	{ "ReduceSum", OP_REDUCE, rows_reduce, R_SUM, 1, 2, REDUCED },
	{ "ReduceSumSquare", OP_REDUCE, rows_reduce, R_SQUARES, 1, 2, REDUCED },
	{ "Relu", OP_UNARY, rows_each, U_RELU, 1, 1, "" },
	{ "Reshape", OP_RESHAPE, rows_reshape, 0, 2, 2, " allowzero " },
	{ "Resize", OP_RESIZE, rows_resize, 0, 1, 4, " coordinate_transformation_mode mode nearest_mode"
		" cubic_coeff_a extrapolation_value exclude_outside " },
	{ "Round", OP_UNARY, rows_each, U_ROUND, 1, 1, "" },
	{ "Selu", OP_UNARY, rows_each, U_SELU, 1, 1, " alpha gamma " },
	{ "Shape", OP_SHAPE, rows_shape, 0, 1, 1, " start end " },
	{ "Shrink", OP_UNARY, rows_each, U_SHRINK, 1, 1, " lambd bias " },
	{ "Sigmoid", OP_UNARY, rows_each, U_SIGMOID, 1, 1, "" },
	{ "Sign", OP_UNARY, rows_each, U_SIGN, 1, 1, "" },
	{ "Sin", OP_UNARY, rows_each, U_SIN, 1, 1, "" },
	{ "Sinh", OP_UNARY, rows_each, U_SINH, 1, 1, "" },
	{ "Slice", OP_SLICE, rows_slice, 0, 1, 5, " starts ends axes " },
	{ "Softmax", OP_SOFTMAX, rows_softmax, 0, 1, 1, " axis " },
	{ "Softplus", OP_UNARY, rows_each, U_SOFTPLUS, 1, 1, "" },
	{ "Softsign", OP_UNARY, rows_each, U_SOFTSIGN, 1, 1, "" },
	{ "Sqrt", OP_UNARY, rows_each, U_SQRT, 1, 1, "" },
	{ "Squeeze", OP_SQUEEZE, rows_squeeze, 0, 1, 2, " axes " },
	{ "Sub", OP_BINARY, rows_each, B_SUB, 2, 2, "" },
	{ "Sum", OP_SUM, rows_each, B_ADD, 1, MAX_INPUTS, "" },
	{ "Swish", OP_UNARY, rows_each, U_SWISH_ALPHA, 1, 1, " alpha " },
	{ "Tan", OP_UNARY, rows_each, U_TAN, 1, 1, "" },
	{ "Tanh", OP_UNARY, rows_each, U_TANH, 1, 1, "" },
	{ "ThresholdedRelu", OP_UNARY, rows_each, U_THRESHOLD, 1, 1, " alpha " },
	{ "Transpose", OP_TRANSPOSE, rows_transpose, 0, 1, 1, " perm " },
	{ "Unsqueeze", OP_UNSQUEEZE, rows_squeeze, 0, 1, 2, " axes " },
	{ "Upsample", OP_RESIZE, rows_resize, 1, 2, 2, " mode " },
	{ "Where", OP_WHERE, rows_each, 0, 3, 3, "" },
};

int onnx_refuse(struct reader *r, int code, const char *fmt, ...)
{
	char why[256], what[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	snprintf(what, sizeof(what), "operator %s", r->np->op_type);
	if (code == -ENOTSUP)
		graph_block(r->s.g, what, r->s.where, "%s", why);
	return refuse(r->s.g, code, "operator %s '%s': %s", r->np->op_type, r->s.where, why);
}

const Onnx__AttributeProto *onnx_attr(const struct reader *r, const char *name)
{
	size_t i;

	for (i = 0; i < r->np->n_attribute; i++)
		if (r->np->attribute[i]->name && !strcmp(r->np->attribute[i]->name, name))
			return r->np->attribute[i];
	return NULL;
}

static int64_t attr_int(const struct reader *r, const char *name, int64_t other)
{
	const Onnx__AttributeProto *a = attr(r, name);

	return a ? a->i : other;
}

static float attr_float(const struct reader *r, const char *name, float other)
{
	const Onnx__AttributeProto *a = attr(r, name);

	return a ? a->f : other;
}

/* The text's number in a list of texts that ends with NULL, or -ENOTSUP. */
static int attr_text(struct reader *r, const char *name, const char *const *texts,
		     int other)
{
	const Onnx__AttributeProto *a = attr(r, name);
	int i;

	if (!a)
		return other;
	for (i = 0; a->has_s && texts[i]; i++)
		if (a->s.len == strlen(texts[i]) && !memcmp(a->s.data, texts[i], a->s.len))
			return i;
	return refuse_node(r, -ENOTSUP, "attribute %s has an unknown value", name);
}

/* Whole numbers of an attribute: -1 if it is missing, how many, or an error. */
static int attr_ints(struct reader *r, const char *name, int64_t *out, unsigned int most)
{
	const Onnx__AttributeProto *a = attr(r, name);

	if (!a)
		return -1;
	if (a->n_ints > most)
		return refuse_node(r, -ENOTSUP, "attribute %s has %zu elements", name,
				   a->n_ints);
	if (a->n_ints)
		memcpy(out, a->ints, a->n_ints * sizeof(*out));
	return (int)a->n_ints;
}

static int read_window(struct reader *r, struct attrs *a)
{
	static const char *const pads[] = { "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID",
					    NULL };
	static const struct {
		const char *name;
		size_t off;
	} two[] = {
		{ "kernel_shape", offsetof(struct attrs, kernel) },
		{ "strides", offsetof(struct attrs, stride) },
		{ "dilations", offsetof(struct attrs, dilation) },
		{ "output_padding", offsetof(struct attrs, out_pad) },
	};
	int64_t four[4] = { 0 };
	unsigned int i;
	int n, mode;

	for (i = 0; i < 4; i++) {
		n = attr_ints(r, two[i].name, (int64_t *)(void *)((char *)a + two[i].off), 2);
		if (n < -1)
			return n;
		if (n >= 0 && ((a->spatial && a->spatial != (unsigned int)n) || !n))
			return refuse_node(r, -EINVAL, "attribute %s has %d elements",
					   two[i].name, n);
		if (n > 0)
			a->spatial = (unsigned int)n;
	}
	n = attr_ints(r, "pads", four, 4);
	if (n < -1)
		return n;
	if (n >= 0) {
		if ((n != 2 && n != 4) || (a->spatial && a->spatial * 2 != (unsigned int)n))
			return refuse_node(r, -EINVAL, "attribute pads has %d elements", n);
		a->spatial = (unsigned int)n / 2;
		a->pad[0] = four[0];
		a->pad[1] = n == 4 ? four[1] : 0;
		a->pad[2] = n == 4 ? four[2] : four[1];
		a->pad[3] = n == 4 ? four[3] : 0;
	}
	mode = attr_text(r, "auto_pad", pads, 0);
	if (mode < 0)
		return mode;
	a->auto_pad = (enum pad_mode)mode;
	if (a->auto_pad != PAD_GIVEN)
		memset(a->pad, 0, sizeof(a->pad));
	a->group = attr_int(r, "group", 1);
	return 0;
}

int onnx_window(struct reader *r, struct node *n)
{
	struct attrs *a = &n->a;
	int rc = read_window(r, a);

	if (rc)
		return rc;
	if (attr(r, "output_shape") || (n->op == OP_DECONV && a->auto_pad))
		return refuse_node(r, -ENOTSUP, "output_shape or auto_pad");
	/* The size of the window may only be in the weights, which a run may have. */
	if (!attr(r, "kernel_shape"))
		a->kernel[0] = a->kernel[1] = 0;
	return 0;
}

/* The value of an input that is a constant: a single number. */
static int scalar(struct reader *r, const struct node *n, unsigned int i, float *out)
{
	const struct value *v;

	if (i >= n->nin || n->in[i] < 0)
		return 0;
	v = &r->s.g->value[n->in[i]];
	if (!v->data || v->type != SERVE_FP32 || count(v->rank, v->dims) != 1)
		return refuse_node(r, -ENOTSUP, "input %u is not one constant number", i);
	*out = *(const float *)v->data;
	return 0;
}

/* A conversion of a whole product: the constant inputs times alpha and beta. */
static int scale_input(struct reader *r, struct node *n, unsigned int i, float by)
{
	struct graph *g = r->s.g;
	struct value v;
	int64_t k, len;
	int c;

	if (by == 1 || i >= n->nin || n->in[i] < 0)
		return 0;
	v = g->value[n->in[i]];
	if (!v.data || v.type != SERVE_FP32)
		return refuse_node(r, -ENOTSUP,
				   "alpha or beta with an input that is not constant");
	c = graph_const(g, v.name, SERVE_FP32, v.rank, v.dims);
	if (c < 0)
		return c;
	len = count(v.rank, v.dims);
	for (k = 0; k < len; k++)
		((float *)g->value[c].data)[k] = ((const float *)v.data)[k] * by;
	n->in[i] = c;
	return 0;
}

static int read_gemm(struct reader *r, struct node *n)
{
	struct graph *g = r->s.g;
	struct node *add;
	const struct value *c, *w;
	int v, rc, out = n->out;

	n->a.trans_a = attr_int(r, "transA", 0);
	n->a.trans_b = attr_int(r, "transB", 0);
	rc = scale_input(r, n, 1, attr_float(r, "alpha", 1));
	if (!rc)
		rc = scale_input(r, n, 2, attr_float(r, "beta", 1));
	if (rc || n->nin < 3 || n->in[2] < 0)
		return rc;
	/* One row of the weights' width is the bias; anything else is added behind. */
	c = &g->value[n->in[2]];
	w = &g->value[n->in[1]];
	if (c->data && w->data && c->rank == 1 && w->rank == 2 &&
	    c->dims[0] == w->dims[n->a.trans_b ? 0 : 1])
		return 0;
	v = graph_value(g, n->name, strlen(n->name));
	if (v < 0)
		return refuse(g, v, "no memory");
	add = graph_node(g, OP_BINARY, "Add", n->name, 2);
	if (!add)
		return refuse(g, -ENOMEM, "no memory");
	n = add - 1;
	n->out = v;
	add->rows = rows_each;
	add->a.kind = B_ADD;
	add->in[0] = v;
	add->in[1] = n->in[2];
	add->out = out;
	n->in[2] = -1;
	return 0;
}

static int read_resize(struct reader *r, struct node *n)
{
	static const char *const modes[] = { "nearest", "linear", "cubic", NULL };
	static const char *const coords[] = { "half_pixel", "pytorch_half_pixel",
					      "align_corners", "asymmetric", NULL };
	static const char *const near[] = { "round_prefer_floor", "round_prefer_ceil", "floor",
					    "ceil", NULL };
	struct attrs *a = &n->a;
	int mode = attr_text(r, "mode", modes, 0), coord, nearest, *in;
	const struct value *v;

	if (mode < 0)
		return mode;
	coord = attr_text(r, "coordinate_transformation_mode", coords, 0);
	if (coord < 0)
		return coord;
	nearest = attr_text(r, "nearest_mode", near, 0);
	if (nearest < 0)
		return nearest;
	if (n->nin < 2)
		return refuse_node(r, -EINVAL, "neither scales nor sizes");
	a->linear = mode == 1;
	a->cubic = mode == 2;
	a->alpha = attr_float(r, "cubic_coeff_a", -0.75f);
	a->inside = attr_int(r, "exclude_outside", 0);
	if (a->inside && !a->cubic)
		return refuse_node(r, -ENOTSUP, "exclude_outside");
	a->coord = (enum coord)coord;
	a->nearest = (enum nearest)nearest;
	in = calloc(3, sizeof(*in));
	if (!in)
		return refuse(r->s.g, -ENOMEM, "no memory");
	in[0] = n->in[0];
	in[1] = in[2] = -1;
	if (r->def->kind || n->nin == 2) {	/* Upsample, and Resize before version 11 */
		a->coord = COORD_ASYMMETRIC;
		a->nearest = NEAR_SIMPLE;
		in[1] = n->in[1];
	} else {
		in[1] = n->in[2];
		in[2] = n->nin > 3 ? n->in[3] : -1;
	}
	free(n->in);
	n->in = in;
	n->nin = 3;
	/* Scales that are empty are none. */
	if (in[1] >= 0) {
		v = &r->s.g->value[in[1]];
		if (v->data && !count(v->rank, v->dims))
			in[1] = -1;
	}
	a->keep_scale = in[1] >= 0;
	return 0;
}

static int read_slice(struct reader *r, struct node *n)
{
	struct attrs *a = &n->a;
	int starts, ends, axes, i, *in;

	if (n->nin > 1) {
		if (n->nin < 3 || n->in[1] < 0 || n->in[2] < 0)
			return refuse_node(r, -EINVAL, "no starts or no ends");
		in = realloc(n->in, 5 * sizeof(*in));
		if (!in)
			return refuse(r->s.g, -ENOMEM, "no memory");
		for (i = (int)n->nin; i < 5; i++)
			in[i] = -1;
		n->in = in;
		n->nin = 5;
		return 0;
	}
	starts = attr_ints(r, "starts", a->ints, SERVE_RANK);
	ends = attr_ints(r, "ends", a->more, SERVE_RANK);
	for (i = 0; i < SERVE_RANK; i++)
		a->steps[i] = i;
	axes = attr_ints(r, "axes", a->steps, SERVE_RANK);
	if (starts < 0 || starts != ends || (axes >= 0 && axes != starts) || axes < -1)
		return refuse_node(r, -EINVAL, "starts, ends and axes do not match");
	a->nints = (unsigned int)starts;
	return 0;
}

/* Is the input left out, or one constant of float32? */
static bool is_scalar(const struct reader *r, const struct node *n, unsigned int i)
{
	const struct value *v = i < n->nin && n->in[i] >= 0 ? &r->s.g->value[n->in[i]] : NULL;

	return !v || (v->data && v->type == SERVE_FP32 && count(v->rank, v->dims) == 1);
}

/* Bounds that are computed, or of another type: a maximum, then a minimum. */
static int compute_clip(struct reader *r, struct node *n)
{
	int low = n->in[1], high = n->nin > 2 ? n->in[2] : -1, out = n->out, v;
	struct node *next;

	n->op = OP_SUM;
	n->nin = 2;
	n->a.kind = low < 0 ? B_MIN : B_MAX;
	n->in[1] = low < 0 ? high : low;
	if (low < 0 || high < 0)
		return 0;
	v = graph_value(r->s.g, n->name, strlen(n->name));
	next = v < 0 ? NULL : graph_node(r->s.g, OP_SUM, "Clip", n->name, 2);
	if (!next)
		return refuse(r->s.g, -ENOMEM, "no memory");
	(next - 1)->out = v;
	next->rows = rows_each;
	next->a.kind = B_MIN;
	next->in[0] = v;
	next->in[1] = high;
	next->out = out;
	return 0;
}

static int read_clip(struct reader *r, struct node *n)
{
	int rc;

	if (!is_scalar(r, n, 1) || !is_scalar(r, n, 2))
		return compute_clip(r, n);
	n->a.alpha = attr_float(r, "min", -3.402823466e+38f);
	n->a.beta = attr_float(r, "max", 3.402823466e+38f);
	rc = scalar(r, n, 1, &n->a.alpha);
	if (!rc)
		rc = scalar(r, n, 2, &n->a.beta);
	n->nin = 1;
	return rc;
}

static int read_pad(struct reader *r, struct node *n)
{
	static const char *const modes[] = { "constant", "reflect", "edge", "wrap", NULL };
	struct attrs *a = &n->a;
	int64_t pads[2 * SERVE_RANK];
	int mode = attr_text(r, "mode", modes, 0), k;

	if (mode < 0)
		return mode;
	a->kind = (unsigned int)mode;
	a->alpha = attr_float(r, "value", 0);
	if (n->nin > 1)
		return n->in[1] >= 0 ? 0 : refuse_node(r, -EINVAL, "no pads");
	k = attr_ints(r, "pads", pads, 2 * SERVE_RANK);
	if (k < 0 || k % 2)
		return refuse_node(r, -EINVAL, "no pads");
	a->nints = (unsigned int)k / 2;
	memcpy(a->ints, pads, a->nints * sizeof(*pads));
	memcpy(a->more, pads + a->nints, a->nints * sizeof(*pads));
	return 0;
}

/* Attributes of the operator into the node.  The node is the newest one. */
static int read_attrs(struct reader *r, struct node *n)
{
	static const char *const gelus[] = { "none", "tanh", NULL };
	struct attrs *a = &n->a;
	struct graph *g = r->s.g;
	const Onnx__AttributeProto *at;
	int64_t v;
	int k;

	a->kind = r->def->kind;
	switch (n->op) {
	case OP_CONV:
	case OP_DECONV:
		return onnx_window(r, n);
	case OP_POOL:
		a->max_pool = r->def->kind;
		a->count_pad = attr_int(r, "count_include_pad", 0);
		a->round = attr_int(r, "ceil_mode", 0) ? ROUND_CEIL_IN : ROUND_FLOOR;
		if (!attr(r, "kernel_shape"))
			return refuse_node(r, -EINVAL, "no kernel_shape");
		k = read_window(r, a);
		/* onnxruntime ignores the dilations in the padding, unlike ONNX */
		if (!k && (a->dilation[0] != 1 || a->dilation[1] != 1) &&
		    (a->auto_pad == PAD_SAME_UPPER || a->auto_pad == PAD_SAME_LOWER))
			return refuse_node(r, -ENOTSUP, "auto_pad with dilations");
		return k;
	case OP_GLOBAL_POOL:
		a->max_pool = r->def->kind;
		return 0;
	case OP_GEMM:
		return read_gemm(r, n);
	case OP_NORM:
		a->eps = attr_float(r, "epsilon", 1e-5f);
		if (attr_int(r, "training_mode", 0) || !attr_int(r, "spatial", 1))
			return refuse_node(r, -ENOTSUP, "training_mode, or spatial 0");
		return 0;
	case OP_ROW_NORM:
		a->eps = attr_float(r, "epsilon", 1e-5f);
		a->axis = attr_int(r, "axis", -1);
		a->flat = true;
		return attr_int(r, "stash_type", 1) == 1 ? 0 :
			refuse_node(r, -ENOTSUP, "a stash_type other than float32");
	case OP_LRN:
		a->alpha = attr_float(r, "alpha", 1e-4f);
		a->beta = attr_float(r, "beta", 0.75f);
		a->bias = attr_float(r, "bias", 1);
		a->size = attr_int(r, "size", 0);
		/* ONNX allows an even one, but does not say on which side it is longer */
		return a->size % 2 == 1 ? 0 :
			refuse_node(r, -ENOTSUP, "size is %lld, and not odd", (long long)a->size);
	case OP_SOFTMAX:
		a->flat = g->opset < 13;
		a->axis = attr_int(r, "axis", a->flat ? 1 : -1);
		return 0;
	case OP_UNARY:
		switch (a->kind) {
		case U_CLIP:
			return read_clip(r, n);
		case U_LEAKY:
			a->alpha = attr_float(r, "alpha", 0.01f);
			return 0;
		case U_ELU:
		case U_CELU:
		case U_THRESHOLD:
		case U_SWISH_ALPHA:
			a->alpha = attr_float(r, "alpha", 1);
			return 0;
		case U_SELU:
			a->alpha = attr_float(r, "alpha", 1.67326319217681884765625f);
			a->beta = attr_float(r, "gamma", 1.05070102214813232421875f);
			return 0;
		case U_SHRINK:
			a->alpha = attr_float(r, "lambd", 0.5f);
			a->beta = attr_float(r, "bias", 0);
			return 0;
		case U_GELU:
			k = attr_text(r, "approximate", gelus, 0);
			a->kind += k > 0;
			return k < 0 ? k : 0;
		case U_HSIGMOID:
			a->alpha = attr_float(r, "alpha", 0.2f);
			a->beta = attr_float(r, "beta", 0.5f);
			return 0;
		default:
			return 0;
		}
	case OP_CAST:
		v = attr_int(r, "to", 0);
		if (v < 0 || v > 100 || onnx_type((int32_t)v, &a->to))
			return refuse_node(r, -ENOTSUP, "type %lld", (long long)v);
		return 0;
	case OP_SHAPE:
		a->ints[0] = attr_int(r, "start", 0);
		a->more[0] = attr_int(r, "end", 0);
		a->has_ints = attr(r, "end");
		return 0;
	case OP_CONCAT:
		if (!attr(r, "axis"))
			return refuse_node(r, -EINVAL, "no axis");
		a->axis = attr_int(r, "axis", 0);
		return 0;
	case OP_FLATTEN:
		a->axis = attr_int(r, "axis", 1);
		return 0;
	case OP_GATHER:
		a->axis = attr_int(r, "axis", 0);
		return 0;
	case OP_SLICE:
		return read_slice(r, n);
	case OP_RESHAPE:
		a->zero_copy = attr_int(r, "allowzero", 0);
		return 0;
	case OP_IDENTITY:
		/* The rest of Dropout's inputs do not matter: nothing is dropped. */
		if (n->nin > 2 && n->in[2] >= 0) {
			const struct value *train = &g->value[n->in[2]];

			if (!train->data || train->type != SERVE_BOOL ||
			    count(train->rank, train->dims) != 1 || *(const char *)train->data)
				return refuse_node(r, -ENOTSUP, "training_mode");
		}
		n->nin = 1;
		return 0;
	case OP_SQUEEZE:
	case OP_UNSQUEEZE:
	case OP_REDUCE:
		k = attr_ints(r, "axes", a->ints, SERVE_RANK);
		if (k < -1)
			return k;
		a->nints = k > 0 ? (unsigned int)k : 0;
		a->keep = attr_int(r, "keepdims", 1);
		a->flat = attr_int(r, "noop_with_empty_axes", 0);
		if (n->op == OP_UNSQUEEZE && k < 0 && n->nin < 2)
			return refuse_node(r, -EINVAL, "no axes");
		return 0;
	case OP_TRANSPOSE:
		k = attr_ints(r, "perm", a->ints, SERVE_RANK);
		if (k < -1)
			return k;
		a->has_ints = k >= 0;
		a->nints = k > 0 ? (unsigned int)k : 0;
		return 0;
	case OP_PAD:
		return read_pad(r, n);
	case OP_FILL:
		a->to = SERVE_FP32;
		at = attr(r, "value");
		if (at) {
			const Onnx__TensorProto *t = at->t;
			int one;

			if (!t)
				return refuse_node(r, -EINVAL, "value is not a tensor");
			one = graph_value(g, n->name, strlen(n->name));
			if (one < 0)
				return refuse(g, one, "no memory");
			k = onnx_tensor(g, t, one);
			if (k)
				return k;
			if (count(g->value[one].rank, g->value[one].dims) != 1)
				return refuse_node(r, -EINVAL,
						   "value has more than one element");
			if (g->value[one].bfloat)
				return refuse_node(r, -ENOTSUP, "a value of bfloat16");
			a->to = g->value[one].type;
			memcpy(a->more, g->value[one].data, type_size(a->to));
		}
		return 0;
	case OP_RESIZE:
		return read_resize(r, n);
	default:
		return 0;
	}
}

/*
 * Whether the operator has this attribute, and it is of the right type.  A writer may leave out a
 * value of 0.  The oldest files do not name the type.
 */
static bool attr_known(const struct def *def, const Onnx__AttributeProto *a)
{
	/* with these values they change nothing that is computed here */
	static const struct { const char *op, *name, *text; int64_t i; } idle[] = {
		{ "Resize", "antialias", NULL, 0 },
		{ "Resize", "keep_aspect_ratio_policy", "stretch", 0 },
		{ "Cast", "round_mode", "up", 0 },
	};
	static const struct {
		Onnx__AttributeProto__AttributeType type;
		const char *names;
	} types[] = {
		{ ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, " alpha beta bias cubic_coeff_a "
			"epsilon extrapolation_value gamma lambd max min momentum ratio value " },
		{ ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, " allowzero axis ceil_mode "
			"count_include_pad end exclude_outside group is_test keepdims "
			"noop_with_empty_axes saturate seed size spatial start storage_order to "
			"stash_type training_mode transA transB " },
		{ ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING,
			" approximate auto_pad coordinate_transformation_mode mode nearest_mode " },
		{ ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, " axes dilations ends "
			"kernel_shape output_padding output_shape pads perm starts strides " },
		{ ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR, " value " },
	};
	bool given[] = { a->has_f, a->has_i, a->has_s, a->n_ints, a->t };
	char name[64];
	unsigned int i;

	for (i = 0; a->name && i < sizeof(idle) / sizeof(idle[0]); i++)
		if (!strcmp(def->name, idle[i].op) && !strcmp(a->name, idle[i].name) &&
		    (idle[i].text ? a->s.len == strlen(idle[i].text) &&
		     !memcmp(a->s.data, idle[i].text, a->s.len) : a->i == idle[i].i))
			return true;
	snprintf(name, sizeof(name), " %.60s ", a->name ? a->name : "");
	if (!a->name || strlen(a->name) > 60 || strchr(a->name, ' ') ||
	    !strstr(def->attrs, name) ||
	    (a->ref_attr_name && *a->ref_attr_name))
		return false;
	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		bool typed = a->has_type && a->type;

		/* a tensor here, and a number there */
		if (!strcmp(a->name, "value") && (i == 4) != (def->op == OP_FILL))
			continue;
		if (strstr(types[i].names, name))
			return typed ? a->type == types[i].type : given[i];
	}
	return false;
}

/* Constant has its tensor in an attribute. */
static int read_constant(struct reader *r)
{
	const Onnx__NodeProto *np = r->np;
	const Onnx__AttributeProto *a = np->n_attribute == 1 ? np->attribute[0] : NULL;
	struct graph *g = r->s.g;
	int64_t dims[1] = { 0 };
	bool list;
	int v;

	if (np->n_output != 1 || !a || !a->name)
		return refuse_node(r, -EINVAL, "not one attribute and one output");
	v = onnx_define(&r->names, np->output[0]);
	if (v < 0)
		return v;
	if (!strcmp(a->name, "value") && a->t)
		return onnx_tensor(g, a->t, v);
	list = !strcmp(a->name, "value_ints") || !strcmp(a->name, "value_floats");
	if (list || !strcmp(a->name, "value_int") || !strcmp(a->name, "value_float")) {
		bool real = !strncmp(a->name, "value_float", 11);
		size_t n = !list ? 1 : real ? a->n_floats : a->n_ints;
		const void *from = list ? real ? (const void *)a->floats : a->ints :
			real ? (const void *)&a->f : &a->i;
		struct value *val;
		void *data = aligned(n * 8);

		if (!data)
			return refuse(g, -ENOMEM, "no memory");
		dims[0] = (int64_t)n;
		val = &g->value[v];
		val->type = real ? SERVE_FP32 : SERVE_INT64;
		val->rank = list ? 1 : 0;
		val->dims[0] = dims[0];
		val->data = data;
		g->m.bytes += n * type_size(val->type);
		if (n)
			memcpy(data, from, n * type_size(val->type));
		return 0;
	}
	return refuse_node(r, -ENOTSUP, "attribute %s", a->name);
}

/* ---- operators of the other tables ------------------------------------------------ */

/* One word of the row's attributes, with what the node has of it.  Sets *used. */
static int read_word(struct reader *r, struct attrs *to, const char *word, size_t len,
		     unsigned int *np, unsigned int *nf, unsigned int *used)
{
	size_t name_len = strcspn(word, "=[*"), n;
	char name[64], *texts, *text, *rest;
	const Onnx__AttributeProto *a;
	const char *value = word + name_len + 1;
	bool typed;
	int64_t i;

	snprintf(name, sizeof(name), "%.*s", (int)name_len, word);
	a = attr(r, name);
	if (a) {
		(*used)++;
		if (a->ref_attr_name && *a->ref_attr_name)
			return refuse_node(r, -ENOTSUP, "attribute '%s', or its type", name);
	}
	typed = a && a->has_type && a->type;
#define IS_TYPE(t, given) (typed ? a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##t : (given))
	if (word[name_len] == '*')
		return 0;
	if (word[name_len] == '[') {
		if (a && !IS_TYPE(INTS, a->n_ints || !a->has_i))
			return refuse_node(r, -ENOTSUP, "attribute '%s', or its type", name);
		if (a && a->n_ints > SERVE_RANK)
			return refuse_node(r, -ENOTSUP, "attribute %s has %zu elements", name,
					   a->n_ints);
		to->has_ints = a;
		to->nints = a ? (unsigned int)a->n_ints : 0;
		if (to->nints)
			memcpy(to->ints, a->ints, to->nints * sizeof(*to->ints));
		return 0;
	}
	if (*value == '~') {
		if (a && !IS_TYPE(FLOAT, a->has_f))
			return refuse_node(r, -ENOTSUP, "attribute '%s', or its type", name);
		to->f[(*nf)++] = a ? a->f : strtof(value + 1, NULL);
		return 0;
	}
	if (!strncmp(value, "type", 4)) {
		if (a && (!IS_TYPE(INT, a->has_i) || a->i < 0 || a->i > 100 ||
			  onnx_type((int32_t)a->i, &to->to)))
			return refuse_node(r, -ENOTSUP, "attribute '%s', or its type", name);
		to->has_to = a;
		if (!a)
			to->to = SERVE_FP32;
		return 0;
	}
	if (*value == '!' && !a)
		return refuse_node(r, -EINVAL, "no %s", name);
	if (*value == '!' || *value == '-' || (*value >= '0' && *value <= '9')) {
		if (a && !IS_TYPE(INT, a->has_i))
			return refuse_node(r, -ENOTSUP, "attribute '%s', or its type", name);
		to->p[(*np)++] = a ? a->i : strtoll(value, NULL, 10);
		return 0;
	}
	/* texts */
	if (!a) {
		to->p[(*np)++] = 0;
		return 0;
	}
	if (!IS_TYPE(STRING, a->has_s))
		return refuse_node(r, -ENOTSUP, "attribute '%s', or its type", name);
	texts = strndup(value, len - name_len - 1);
	if (!texts)
		return refuse(r->s.g, -ENOMEM, "no memory");
	for (i = 0, text = strtok_r(texts, "|", &rest); text; i++, text = strtok_r(NULL, "|", &rest)) {
		n = strlen(text);
		if (n == a->s.len && !memcmp(text, a->s.data, n))
			break;
	}
	to->p[(*np)++] = i;
	n = text != NULL;
	free(texts);
	return n ? 0 : refuse_node(r, -ENOTSUP, "attribute %s has an unknown value", name);
}

static int read_words(struct reader *r, const struct oper *o, struct attrs *to)
{
	unsigned int np = 0, nf = 0, used = 0;
	const char *w = o->attrs;
	size_t len, i;
	int rc = 0;

	for (w += strspn(w, " "); *w && !rc; w += len, w += strspn(w, " ")) {
		len = strcspn(w, " ");
		rc = read_word(r, to, w, len, &np, &nf, &used);
	}
	if (rc || used == r->np->n_attribute)
		return rc;
	for (i = 0; i < r->np->n_attribute; i++) {
		const char *name = r->np->attribute[i]->name ? r->np->attribute[i]->name : "";
		bool known = false;

		for (w = o->attrs; *w && !known; w += len, w += strspn(w, " ")) {
			len = strcspn(w, " ");
			known = strcspn(w, "=[*") == strlen(name) && !strncmp(w, name, strlen(name));
		}
		if (!known)
			return refuse_node(r, -ENOTSUP, "attribute '%s', or its type", name);
	}
	return refuse_node(r, -EINVAL, "an attribute twice");
}

/* A node of OP_TABLE with these inputs, whose output is value out. */
static struct node *oper_node(struct reader *r, const struct oper *o, const struct attrs *a,
			      const int *in, unsigned int nin, int out)
{
	struct node *n = graph_node(r->s.g, OP_TABLE, o->name, r->s.where, nin);

	if (!n)
		return NULL;
	n->a = *a;
	n->oper = o;
	n->rows = o->rows;
	memcpy(n->in, in, nin * sizeof(*in));
	n->out = out;
	return n;
}

int onnx_inputs(struct reader *r, unsigned int n, unsigned int must, int *in)
{
	unsigned int i;
	int v;

	for (i = 0; i < n; i++) {
		in[i] = -1;
		if (!*r->np->input[i]) {
			if (i < must)
				return refuse_node(r, -EINVAL, "input %u is left out", i);
			continue;
		}
		v = *onnx_find(&r->names, r->np->input[i]);
		if (!v)
			return refuse_node(
				r, -EINVAL,
				"input '%s' is neither an input of the model nor made before",
				r->np->input[i]);
		in[i] = v - 1;
		if (r->s.g->value[v - 1].bfloat)
			return refuse_node(r, -ENOTSUP, "a tensor of bfloat16");
	}
	return 0;
}

static int read_oper(struct reader *r, const struct oper *o)
{
	const Onnx__NodeProto *np = r->np;
	struct attrs a = { .group = 1 };
	int in[MAX_INPUTS], v, rc;
	unsigned int i, nin = (unsigned int)np->n_input;

	while (nin && !*np->input[nin - 1])
		nin--;
	if (np->n_input > MAX_INPUTS || nin < o->min || nin > o->max)
		return refuse_node(r, -EINVAL, "%zu inputs", np->n_input);
	if (!np->n_output || np->n_output > o->outputs)
		return refuse_node(r, -EINVAL, "%zu outputs", np->n_output);
	rc = onnx_inputs(r, nin, o->min, in);
	if (!rc)
		rc = read_words(r, o, &a);
	a.outputs = (unsigned int)np->n_output;
	for (i = 0; i < np->n_output && !rc; i++) {
		if (!*np->output[i])
			continue;
		v = onnx_define(&r->names, np->output[i]);
		if (v < 0)
			return v;
		a.output = i;
		if (!oper_node(r, o, &a, in, nin, v))
			return refuse(r->s.g, -ENOMEM, "no memory");
	}
	return rc;
}

static int by_name(const void *key, const void *def)
{
	return strcmp(key, ((const struct def *)def)->name);
}

int onnx_node(struct reader *r)
{
	const Onnx__NodeProto *np = r->np;
	struct graph *g = r->s.g;
	struct node *n;
	unsigned int i;
	size_t inputs = np->n_input;
	int v, rc = 0;

	r->s.where = np->name && *np->name ? np->name : np->n_output ? np->output[0] : "";
	if (!np->op_type)
		return refuse(g, -EINVAL, "a node has no operator");
	if (np->domain && *np->domain && strcmp(np->domain, "ai.onnx"))
		return refuse_node(r, -ENOTSUP, "operators of '%s' are not supported",
				   np->domain);
	if (!strcmp(np->op_type, "Constant"))
		return read_constant(r);
	r->def = bsearch(np->op_type, defs, sizeof(defs) / sizeof(defs[0]), sizeof(defs[0]),
			 by_name);
	if (!r->def) {
		rc = onnx_lower(r);
		if (rc != -ENOENT)
			return rc;
		rc = 0;
	}
	if (!r->def && oper_find(np->op_type))
		return read_oper(r, oper_find(np->op_type));
	if (!r->def)
		return refuse_node(r, -ENOTSUP, "this operator is not supported");
	while (inputs && !*np->input[inputs - 1])
		inputs--;			/* left out */
	if (inputs < r->def->min || inputs > r->def->max)
		return refuse_node(r, -EINVAL, "%zu inputs", inputs);
	for (i = 0; i < np->n_attribute; i++) {
		const char *name = np->attribute[i]->name;

		if (!attr_known(r->def, np->attribute[i]))
			rc = refuse_node(r, -ENOTSUP, "attribute '%s', or its type",
					 name ? name : "");
	}
	for (i = 1; i < np->n_output; i++)
		if (*np->output[i] && r->def->op != OP_IDENTITY)
			rc = refuse_node(r, -ENOTSUP, "more than one output");
	if (rc)
		return rc;
	if (!np->n_output)
		return refuse_node(r, -EINVAL, "no output");
	n = graph_node(g, r->def->op, r->def->name, r->s.where,
		       r->def->op == OP_CONV || r->def->op == OP_DECONV ||
				       r->def->op == OP_GEMM ?
			       3 :
			       (unsigned int)inputs);
	if (!n)
		return refuse(g, -ENOMEM, "no memory");
	n->rows = r->def->rows;
	for (i = 0; i < inputs; i++) {
		if (!*np->input[i]) {
			if (i < r->def->min || r->def->op == OP_CONCAT || r->def->op == OP_SUM)
				return refuse_node(r, -EINVAL, "input %u is left out", i);
			continue;
		}
		v = *onnx_find(&r->names, np->input[i]);
		if (!v)
			return refuse_node(
				r, -EINVAL,
				"input '%s' is neither an input of the model nor made before",
				np->input[i]);
		n->in[i] = v - 1;
		if (g->value[v - 1].bfloat && r->def->op != OP_CAST)
			rc = refuse_node(r, -ENOTSUP, "a tensor of bfloat16");
	}
	if (rc)
		return rc;
	v = onnx_define(&r->names, np->output[0]);
	if (v < 0)
		return v;
	n->out = v;
	return read_attrs(r, n);
}
