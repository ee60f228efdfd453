// SPDX-License-Identifier: Apache-2.0
/*
 * mxnet.c - reads MXNet's files: the graph as JSON, and the list of arrays.
 *
 * Both are untrusted: every count is checked against the bytes that exist, and a node may use
 * only nodes before it.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mxnet.h"

/* ---- arrays ----------------------------------------------------------------- */

static bool take(struct mx *m, void *to, size_t n)
{
	if (n > m->left)
		return false;
	memcpy(to, m->p, n);			/* little endian, as the file */
	m->p += n;
	m->left -= n;
	return true;
}

static int truncated(struct mx *m)
{
	return refuse(m->s.g, -EINVAL, "the file of arrays is damaged, or ends too early");
}

/* The head of an array, in the four forms that MXNet has written: see demo/model.c. */
static int read_array(struct mx *m, size_t index, struct array *a)
{
	uint32_t magic, storage, rank, device[2], type, d32, i;
	int64_t d;
	bool v0 = false;

	if (!take(m, &magic, 4))
		return truncated(m);
	if (magic == 0xF993FACAu || magic == 0xF993FAC9u) {
		if (!take(m, &storage, 4))
			return truncated(m);
		if (storage)
			return refuse(m->s.g, -ENOTSUP, "array %zu is sparse", index);
	} else if (magic != 0xF993FAC8u) {
		v0 = true;
	}
	rank = magic;
	if (!v0 && !take(m, &rank, 4))
		return truncated(m);
	if (rank < 1 || rank > SERVE_RANK)
		return refuse(m->s.g, -EINVAL, "array %zu has %u dimensions", index, rank);
	a->rank = rank;
	for (i = 0; i < rank; i++) {
		if (v0 ? !take(m, &d32, 4) : !take(m, &d, 8))
			return truncated(m);
		a->dims[i] = v0 ? (int64_t)d32 : d;
	}
	if (!take(m, device, 8) || !take(m, &type, 4))
		return truncated(m);
	if (type)
		return refuse(m->s.g, -ENOTSUP, "array %zu is not of float32", index);
	if (dims_bytes(SERVE_FP32, rank, a->dims, &a->bytes) || !a->bytes)
		return refuse(m->s.g, -EINVAL, "array %zu has an impossible size", index);
	if (a->bytes > m->left)
		return truncated(m);
	a->data = m->p;
	m->p += a->bytes;
	m->left -= a->bytes;
	return 0;
}

static int read_arrays(struct mx *m)
{
	uint64_t head[3], n, len, i;
	int rc;

	if (!take(m, head, sizeof(head)) || head[0] != 0x112 || head[1])
		return refuse(m->s.g, -EINVAL, "the file of arrays is not one of MXNet's");
	/* the shortest array has 24 bytes, and its name 8 */
	if (head[2] > m->left / 32)
		return truncated(m);
	m->narrays = (size_t)head[2];
	m->array = calloc(m->narrays + 1, sizeof(*m->array));
	if (!m->array)
		return refuse(m->s.g, -ENOMEM, "no memory");
	for (i = 0; i < m->narrays; i++) {
		rc = read_array(m, (size_t)i, &m->array[i]);
		if (rc)
			return rc;
	}
	if (!take(m, &n, 8) || n != m->narrays)
		return truncated(m);
	for (i = 0; i < n; i++) {
		const char *name;

		if (!take(m, &len, 8) || len > m->left)
			return truncated(m);
		name = (const char *)m->p;
		m->p += len;
		m->left -= (size_t)len;
		if (len < 4 || (memcmp(name, "arg:", 4) && memcmp(name, "aux:", 4)))
			return refuse(m->s.g, -EINVAL, "the name of array %zu", (size_t)i);
		m->array[i].name = name + 4;
		m->array[i].name_len = (size_t)len - 4;
	}
	return 0;
}

static const struct array *find_array(const struct mx *m, const char *name)
{
	size_t i, len = strlen(name);

	for (i = 0; i < m->narrays; i++)
		if (m->array[i].name_len == len && !memcmp(m->array[i].name, name, len))
			return &m->array[i];
	return NULL;
}

/* ---- attributes: texts such as "(3, 3)", "True", "0.1" ------------------------ */

const char *mx_attr(const struct mx *m, const char *key)
{
	static const char *const where[] = { "attrs", "attr", "param" };
	unsigned int i;

	for (i = 0; i < 3; i++) {
		const char *s = json_string_value(
			json_object_get(json_object_get(m->node, where[i]), key));

		if (s)
			return s;
	}
	return NULL;
}

static bool one_of(const char *s, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(s, *list))
			return true;
	return false;
}

bool mx_bool(struct mx *m, const char *key, bool other)
{
	static const char *const yes[] = { "True", "true", "1", NULL };
	static const char *const no[] = { "False", "false", "0", NULL };
	const char *s = mx_attr(m, key);

	if (!s || !strcmp(s, "None"))
		return other;
	if (!one_of(s, yes) && !one_of(s, no))
		m->bad = key;
	return one_of(s, yes);
}

double mx_number(struct mx *m, const char *key, double other)
{
	const char *s = mx_attr(m, key);
	char *end;
	double d;

	if (!s || !strcmp(s, "None"))
		return other;
	d = strtod(s, &end);
	if (end == s || *end)
		m->bad = key;
	return d;
}

int64_t mx_int(struct mx *m, const char *key, int64_t other)
{
	double d = mx_number(m, key, (double)other);

	if (d > -1e9 && d < 1e9 && d == (double)(int64_t)d)
		return (int64_t)d;
	m->bad = key;
	return 0;
}

/* The numbers of a tuple, or of one number; returns how many, or -1 for more than most. */
int mx_tuple(const struct mx *m, const char *key, int64_t *out, unsigned int most)
{
	const char *s = mx_attr(m, key);
	unsigned int n = 0;

	if (!s || !strcmp(s, "None"))
		return 0;
	for (;;) {
		char *end;
		long long v;

		s += strspn(s, " (),[]");
		if (!*s)
			return (int)n;
		v = strtoll(s, &end, 10);
		if (end == s || n == most || v > 1000000000 || v < -1000000000)
			return -1;
		out[n++] = v;
		s = end;
	}
}

bool mx_is(const struct mx *m, const char *key, const char *text)
{
	const char *s = mx_attr(m, key);

	return s && !strcmp(s, text);
}

/* ---- operators -------------------------------------------------------------- */

enum special { PLAIN, CONV, NORM, ACT, LEAKY, POOL, FC, CLIP, CONCAT, SCALAR, RSCALAR, SOFTMAX,
	       SOFTMAX_OUT, SOFTMAX_ACT, RESHAPE, TRANSPOSE, LOCAL_NORM, REDUCE, AXIS, DROPOUT };

static const struct def {
	const char *name;
	enum op op;
	bool (*rows)(struct rows *r);	/* of a batch: graph.h */
	unsigned int kind;
	enum special special;
	unsigned int min, max;
} defs[] = {
	{ "Activation", OP_UNARY, rows_each, 0, ACT, 1, 1 },
	{ "BatchNorm", OP_NORM, rows_channels, 0, NORM, 5, 5 },
	{ "BlockGrad", OP_IDENTITY, rows_each, 0, PLAIN, 1, 1 },
	{ "Concat", OP_CONCAT, rows_concat, 0, CONCAT, 1, MAX_INPUTS },
	{ "Convolution", OP_CONV, rows_images, 0, CONV, 2, 3 },
	{ "Deconvolution", OP_DECONV, rows_images, 0, CONV, 2, 3 },
	{ "Dropout", OP_IDENTITY, rows_each, 0, DROPOUT, 1, 1 },
	{ "Flatten", OP_FLATTEN, rows_flatten, 0, PLAIN, 1, 1 },
	{ "FullyConnected", OP_GEMM, rows_gemm, 0, FC, 2, 3 },
	{ "LRN", OP_LRN, rows_images, 0, LOCAL_NORM, 1, 1 },
	{ "LeakyReLU", OP_UNARY, rows_each, 0, LEAKY, 1, 1 },
	{ "Pooling", OP_POOL, rows_images, 0, POOL, 1, 1 },
	{ "Reshape", OP_RESHAPE, rows_reshape, 0, RESHAPE, 1, 1 },
	{ "SoftmaxActivation", OP_SOFTMAX, rows_softmax, 0, SOFTMAX_ACT, 1, 1 },
	{ "SoftmaxOutput", OP_SOFTMAX, rows_softmax, 0, SOFTMAX_OUT, 1, 2 },
	{ "_copy", OP_IDENTITY, rows_each, 0, PLAIN, 1, 1 },
	{ "_div_scalar", OP_BINARY, rows_each, B_DIV, SCALAR, 1, 1 },
	{ "_maximum_scalar", OP_BINARY, rows_each, B_MAX, SCALAR, 1, 1 },
	{ "_minimum_scalar", OP_BINARY, rows_each, B_MIN, SCALAR, 1, 1 },
	{ "_minus_scalar", OP_BINARY, rows_each, B_SUB, SCALAR, 1, 1 },
	{ "_mul_scalar", OP_BINARY, rows_each, B_MUL, SCALAR, 1, 1 },
	{ "_plus_scalar", OP_BINARY, rows_each, B_ADD, SCALAR, 1, 1 },
	{ "_power_scalar", OP_BINARY, rows_each, B_POW, SCALAR, 1, 1 },
	{ "_rdiv_scalar", OP_BINARY, rows_each, B_DIV, RSCALAR, 1, 1 },
	{ "_rminus_scalar", OP_BINARY, rows_each, B_SUB, RSCALAR, 1, 1 },
	{ "_rpower_scalar", OP_BINARY, rows_each, B_POW, RSCALAR, 1, 1 },
	{ "abs", OP_UNARY, rows_each, U_ABS, PLAIN, 1, 1 },
	{ "add_n", OP_SUM, rows_each, B_ADD, PLAIN, 1, MAX_INPUTS },
	{ "broadcast_add", OP_BINARY, rows_each, B_ADD, PLAIN, 2, 2 },
	{ "broadcast_div", OP_BINARY, rows_each, B_DIV, PLAIN, 2, 2 },
	{ "broadcast_maximum", OP_BINARY, rows_each, B_MAX, PLAIN, 2, 2 },
	{ "broadcast_minimum", OP_BINARY, rows_each, B_MIN, PLAIN, 2, 2 },
	{ "broadcast_mul", OP_BINARY, rows_each, B_MUL, PLAIN, 2, 2 },
	{ "broadcast_sub", OP_BINARY, rows_each, B_SUB, PLAIN, 2, 2 },
	{ "ceil", OP_UNARY, rows_each, U_CEIL, PLAIN, 1, 1 },
	{ "clip", OP_UNARY, rows_each, U_CLIP, CLIP, 1, 1 },
	{ "cos", OP_UNARY, rows_each, U_COS, PLAIN, 1, 1 },
	{ "elemwise_add", OP_BINARY, rows_each, B_ADD, PLAIN, 2, 2 },
	{ "elemwise_div", OP_BINARY, rows_each, B_DIV, PLAIN, 2, 2 },
	{ "elemwise_mul", OP_BINARY, rows_each, B_MUL, PLAIN, 2, 2 },
	{ "elemwise_sub", OP_BINARY, rows_each, B_SUB, PLAIN, 2, 2 },
	{ "erf", OP_UNARY, rows_each, U_ERF, PLAIN, 1, 1 },
	{ "exp", OP_UNARY, rows_each, U_EXP, PLAIN, 1, 1 },
	{ "expand_dims", OP_UNSQUEEZE, rows_squeeze, 0, AXIS, 1, 1 },
	{ "floor", OP_UNARY, rows_each, U_FLOOR, PLAIN, 1, 1 },
	{ "log", OP_UNARY, rows_each, U_LOG, PLAIN, 1, 1 },
	{ "log_softmax", OP_SOFTMAX, rows_softmax, 1, SOFTMAX, 1, 1 },
	{ "max", OP_REDUCE, rows_reduce, R_MAX, REDUCE, 1, 1 },
	{ "mean", OP_REDUCE, rows_reduce, R_MEAN, REDUCE, 1, 1 },
	{ "min", OP_REDUCE, rows_reduce, R_MIN, REDUCE, 1, 1 },
	{ "negative", OP_UNARY, rows_each, U_NEG, PLAIN, 1, 1 },
	{ "reciprocal", OP_UNARY, rows_each, U_RECIPROCAL, PLAIN, 1, 1 },
	{ "relu", OP_UNARY, rows_each, U_RELU, PLAIN, 1, 1 },
	{ "sigmoid", OP_UNARY, rows_each, U_SIGMOID, PLAIN, 1, 1 },
	{ "sin", OP_UNARY, rows_each, U_SIN, PLAIN, 1, 1 },
	{ "softmax", OP_SOFTMAX, rows_softmax, 0, SOFTMAX, 1, 1 },
	{ "sqrt", OP_UNARY, rows_each, U_SQRT, PLAIN, 1, 1 },
	{ "sum", OP_REDUCE, rows_reduce, R_SUM, REDUCE, 1, 1 },
	{ "tanh", OP_UNARY, rows_each, U_TANH, PLAIN, 1, 1 },
	{ "transpose", OP_TRANSPOSE, rows_transpose, 0, TRANSPOSE, 1, 1 },
};

/* A window's sizes: one or two numbers each. */
static int window_attrs(struct mx *m, struct attrs *a)
{
	static const char *const keys[] = { "kernel", "stride", "dilate", "adj" };
	int64_t *to[] = { a->kernel, a->stride, a->dilation, a->out_pad }, pad[2] = { 0 };
	unsigned int i;
	int n;

	if (!mx_attr(m, "kernel"))
		return refuse_node(m, -EINVAL, "no kernel");
	for (i = 0; i < 5; i++) {
		n = mx_tuple(m, i < 4 ? keys[i] : "pad", i < 4 ? to[i] : pad, 2);
		if (n < 0 || (n && a->spatial && (unsigned int)n != a->spatial))
			return refuse_node(m, -ENOTSUP, "attribute %s",
					   i < 4 ? keys[i] : "pad");
		if (n)
			a->spatial = (unsigned int)n;
	}
	a->pad[0] = a->pad[2] = pad[0];
	a->pad[1] = a->pad[3] = pad[1];
	return 0;
}

/* A constant of n equal numbers. */
static int constant(struct mx *m, unsigned int rank, int64_t n, float f)
{
	int v = graph_const(m->s.g, m->s.where, SERVE_FP32, rank, &n);
	int64_t i;

	for (i = 0; v >= 0 && i < (rank ? n : 1); i++)
		((float *)m->s.g->value[v].data)[i] = f;
	return v;
}

static int act_kind(const char *s)
{
	static const struct {
		const char *name;
		enum unary kind;
	} acts[] = { { "relu", U_RELU }, { "sigmoid", U_SIGMOID }, { "tanh", U_TANH },
		     { "softrelu", U_SOFTPLUS }, { "softsign", U_SOFTSIGN } };
	unsigned int i;

	for (i = 0; s && i < sizeof(acts) / sizeof(acts[0]); i++)
		if (!strcmp(acts[i].name, s))
			return (int)acts[i].kind;
	return -1;
}

/* What a fully connected layer has before it; n is the newest node, and moves. */
static int flatten_before(struct mx *m, struct node **n)
{
	struct graph *g = m->s.g;
	struct node *after, *flat;
	int v = graph_value(g, m->s.where, strlen(m->s.where));

	if (v < 0)
		return refuse(g, v, "no memory");
	after = graph_node(g, OP_GEMM, "FullyConnected", m->s.where, 3);
	if (!after)
		return refuse(g, -ENOMEM, "no memory");
	flat = after - 1;
	after->rows = flat->rows;
	after->a = flat->a;
	memcpy(after->in, flat->in, 3 * sizeof(*after->in));
	after->in[0] = v;
	after->out = flat->out;
	flat->op = OP_FLATTEN;
	flat->rows = rows_flatten;
	flat->type = "Flatten";
	flat->nin = 1;
	flat->a.axis = 1;
	flat->out = v;
	*n = after;
	return 0;
}

static int special(struct mx *m, const struct def *d, struct node *n)
{
	struct attrs *a = &n->a;
	const char *s;
	int k, v;

	switch (d->special) {
	case PLAIN:
		a->axis = 1;			/* Flatten */
		return 0;
	case CONV:
		s = mx_attr(m, "layout");
		if (s && strcmp(s, "None") && strcmp(s, "NCHW") && strcmp(s, "NCW"))
			return refuse_node(m, -ENOTSUP, "layout %s", s);
		a->group = mx_int(m, "num_group", 1);
		k = mx_tuple(m, "target_shape", a->ints, SERVE_RANK);
		if (k > 0 && a->ints[0])
			return refuse_node(m, -ENOTSUP, "target_shape");
		return window_attrs(m, a);
	case NORM:
		a->eps = (float)mx_number(m, "eps", 1e-3);
		if (mx_int(m, "axis", 1) != 1)
			return refuse_node(m, -ENOTSUP, "axis");
		if (mx_bool(m, "fix_gamma", true)) {
			const struct value *beta = &m->s.g->value[n->in[2]];

			if (!beta->data || beta->rank != 1)
				return refuse_node(m, -ENOTSUP, "beta is not constant");
			v = constant(m, 1, beta->dims[0], 1);
			if (v < 0)
				return v;
			n->in[1] = v;
		}
		return 0;
	case ACT:
		k = act_kind(mx_attr(m, "act_type"));
		if (k < 0)
			return refuse_node(m, -ENOTSUP, "act_type %s",
					   mx_attr(m, "act_type") ? mx_attr(m, "act_type") : "");
		a->kind = (unsigned int)k;
		return 0;
	case LEAKY:
		if (!mx_attr(m, "act_type") || mx_is(m, "act_type", "leaky"))
			a->kind = U_LEAKY;
		else if (mx_is(m, "act_type", "elu"))
			a->kind = U_ELU;
		else
			return refuse_node(m, -ENOTSUP, "act_type %s", mx_attr(m, "act_type"));
		a->alpha = (float)mx_number(m, "slope", 0.25);
		return 0;
	case POOL:
		s = mx_attr(m, "pool_type");
		if (s && strcmp(s, "max") && strcmp(s, "avg"))
			return refuse_node(m, -ENOTSUP, "pool_type %s", s);
		a->max_pool = a->mx_max = !s || !strcmp(s, "max");
		s = mx_attr(m, "layout");
		if (s && strcmp(s, "None") && strcmp(s, "NCHW") && strcmp(s, "NCW"))
			return refuse_node(m, -ENOTSUP, "layout %s", s);
		if (mx_bool(m, "global_pool", false)) {
			n->op = OP_GLOBAL_POOL;
			return 0;
		}
		a->count_pad = mx_bool(m, "count_include_pad", true);
		s = mx_attr(m, "pooling_convention");
		a->round = !s || !strcmp(s, "valid") ? ROUND_FLOOR :
			!strcmp(s, "full") ? ROUND_CEIL : ROUND_SAME;
		if (a->round == ROUND_SAME)
			return refuse_node(m, -ENOTSUP, "pooling_convention %s", s);
		return window_attrs(m, a);
	case FC:
		a->trans_b = true;
		return mx_bool(m, "flatten", true) ? flatten_before(m, &n) : 0;
	case CLIP:
		a->alpha = (float)mx_number(m, "a_min", -3.4e38);
		a->beta = (float)mx_number(m, "a_max", 3.4e38);
		if (a->alpha > a->beta)
			a->kind = U_CLIP_UPPER;
		return 0;
	case CONCAT:
		a->axis = mx_int(m, "dim", 1);
		return 0;
	case SCALAR:
	case RSCALAR:
		v = constant(m, 0, 1, (float)mx_number(m, "scalar", 0));
		if (v < 0)
			return v;
		n->in[1] = n->in[0];
		n->in[d->special == SCALAR] = v;
		return 0;
	case SOFTMAX:
		s = mx_attr(m, "temperature");
		if (s && strcmp(s, "None") && strtod(s, NULL) != 1)
			return refuse_node(m, -ENOTSUP, "temperature %s", s);
		if (mx_bool(m, "use_length", false))
			return refuse_node(m, -ENOTSUP, "use_length");
		s = mx_attr(m, "dtype");
		if (s && strcmp(s, "None") && strcmp(s, "float32"))
			return refuse_node(m, -ENOTSUP, "dtype %s", s);
		a->axis = mx_int(m, "axis", -1);
		return 0;
	case SOFTMAX_OUT:
		/* over the channels, all of an image, or rows; the label is not used */
		n->nin = 1;
		a->axis = 1;
		if (mx_bool(m, "multi_output", false))
			return 0;
		/* mxnet 1.9.1 computes four dimensions with another library, by rows */
		a->flat = a->mx_last = !mx_bool(m, "preserve_shape", false);
		a->axis = a->flat ? 1 : -1;
		return 0;
	case SOFTMAX_ACT:
		s = mx_attr(m, "mode");
		if (s && strcmp(s, "instance") && strcmp(s, "channel"))
			return refuse_node(m, -ENOTSUP, "mode %s", s);
		a->axis = s && !strcmp(s, "channel") ? 1 : -1;
		return 0;
	case RESHAPE:
		k = mx_tuple(m, "shape", a->ints, SERVE_RANK);
		if (k < 1 || mx_bool(m, "reverse", false))
			return refuse_node(m, -ENOTSUP, "attribute shape or reverse");
		a->nints = (unsigned int)k;
		while (k-- > 0)
			if (a->ints[k] < -1)
				return refuse_node(m, -ENOTSUP, "%lld in the shape",
						   (long long)a->ints[k]);
		return 0;
	case TRANSPOSE:
		k = mx_tuple(m, "axes", a->ints, SERVE_RANK);
		if (k < 0)
			return refuse_node(m, -ENOTSUP, "attribute axes");
		a->nints = (unsigned int)k;
		a->has_ints = k > 0;
		return 0;
	case LOCAL_NORM:
		a->alpha = (float)mx_number(m, "alpha", 1e-4);
		a->beta = (float)mx_number(m, "beta", 0.75);
		a->bias = (float)mx_number(m, "knorm", 2);
		a->size = mx_int(m, "nsize", 0);
		return a->size % 2 == 1 ? 0 :
			refuse_node(m, -EINVAL, "nsize is %lld, and not odd", (long long)a->size);
	case REDUCE:
	case AXIS:
		k = mx_tuple(m, "axis", a->ints, SERVE_RANK);
		if (k < 0 || mx_bool(m, "exclude", false) || (d->special == AXIS && k != 1))
			return refuse_node(m, -ENOTSUP, "attribute axis or exclude");
		a->nints = (unsigned int)k;
		a->keep = mx_bool(m, "keepdims", false);
		a->mx_one = true;
		return 0;
	case DROPOUT:
		return mx_is(m, "mode", "always") ? refuse_node(m, -ENOTSUP, "mode always") : 0;
	}
	return 0;
}

static int by_name(const void *key, const void *def)
{
	return strcmp(key, ((const struct def *)def)->name);
}

/* The value of entry [node, output, version]. */
static int entry(struct mx *m, json_t *e, size_t before, int *v)
{
	json_t *node = json_array_get(e, 0), *out = json_array_get(e, 1);
	json_int_t i = json_integer_value(node);

	if (!json_is_integer(node) || i < 0 || (uintmax_t)i >= before || !json_is_integer(out))
		return refuse_node(m, -EINVAL, "an input is not a node before it");
	if (json_integer_value(out) < 0 || json_integer_value(out) > m->more[i])
		return refuse_node(m, -ENOTSUP, "another output than the first is used");
	*v = m->value[i] + (int)json_integer_value(out);
	return 0;
}

/* An operator that consists of others: its outputs are values one after the other. */
static int read_lowered(struct mx *m, size_t index, json_t *list)
{
	static const struct attrs same = { .group = 1 };
	size_t i, nin = json_array_size(list);
	int in[MAX_INPUTS], out[MAX_IO], n, v, rc;

	if (nin > MAX_INPUTS)
		return refuse_node(m, -EINVAL, "%zu inputs", nin);
	for (i = 0; i < nin; i++) {
		rc = entry(m, json_array_get(list, i), index, &in[i]);
		if (rc)
			return rc;
		if (in[i] < 0)
			return refuse_node(m, -ENOTSUP, "input %zu is a label", i);
	}
	m->bad = NULL;
	n = mxnet_lower(m, in, (unsigned int)nin, out);
	if (n == -ENOENT)
		return refuse_node(m, -ENOTSUP, "this operator is not supported");
	if (n >= 0 && m->bad)
		return refuse_node(m, -EINVAL, "attribute %s", m->bad);
	for (i = 0; n > 0 && i < (size_t)n; i++) {
		v = build1(&m->s, OP_IDENTITY, "Identity", rows_each, &same, out[i]);
		if (v < 0)
			return v;
		if (!i)
			m->value[index] = v;
	}
	m->more[index] = n - 1;
	return n < 0 ? n : 0;
}

static int read_op(struct mx *m, size_t index)
{
	struct graph *g = m->s.g;
	json_t *in = json_object_get(m->node, "inputs");
	size_t i, nin = json_array_size(in);
	const struct def *d =
		bsearch(m->op, defs, sizeof(defs) / sizeof(defs[0]), sizeof(defs[0]), by_name);
	unsigned int room;
	struct node *n;
	int v, rc;

	if (!d || (d->special == LEAKY && nin == 2))
		return read_lowered(m, index, in);
	if (nin < d->min || nin > d->max)
		return refuse_node(m, -EINVAL, "%zu inputs", nin);
	room = d->special == CONV || d->special == FC ? 3 :
		d->special == SCALAR || d->special == RSCALAR ? 2 : (unsigned int)nin;
	v = graph_value(g, m->s.where, strlen(m->s.where));
	n = v < 0 ? NULL : graph_node(g, d->op, d->name, m->s.where, room);
	if (!n)
		return refuse(g, -ENOMEM, "no memory");
	n->out = m->value[index] = v;
	n->rows = d->rows;
	n->a.kind = d->kind;
	for (i = 0; i < nin; i++) {
		rc = entry(m, json_array_get(in, i), index, &n->in[i]);
		if (rc)
			return rc;
		if (n->in[i] < 0 && (d->special != SOFTMAX_OUT || !i))
			return refuse_node(m, -ENOTSUP, "input %zu is a label", i);
	}
	m->bad = NULL;
	rc = special(m, d, n);
	return rc || !m->bad ? rc : refuse_node(m, -EINVAL, "attribute %s", m->bad);
}

/* A variable: an array of the other file, a label, or an input of the model. */
static int read_variable(struct mx *m, size_t index)
{
	struct graph *g = m->s.g;
	const struct array *a = find_array(m, m->s.where);
	size_t len = strlen(m->s.where);
	struct serve_io *io;
	const char *type;
	int v, k, i;

	if (!a && len > 6 && !strcmp(m->s.where + len - 6, "_label")) {
		m->value[index] = -1;
		return 0;
	}
	if (a) {
		v = graph_const(g, m->s.where, SERVE_FP32, a->rank, a->dims);
		if (v < 0)
			return v;
		memcpy(g->value[v].data, a->data, a->bytes);
		m->value[index] = v;
		return 0;
	}
	if (g->m.ninputs == MAX_IO)
		return refuse(g, -ENOTSUP, "more than %d inputs", MAX_IO);
	/* 0 is float32, and -1 not given */
	type = mx_attr(m, "__dtype__");
	if (type && strcmp(type, "0") && strcmp(type, "-1"))
		return refuse(g, -ENOTSUP, "input '%s' has type %s, not float32", m->s.where, type);
	v = graph_value(g, m->s.where, len);
	if (v < 0)
		return refuse(g, v, "no memory");
	io = &g->in_io[g->m.ninputs];
	g->in[g->m.ninputs++] = m->value[index] = v;
	g->value[v].type = io->type = SERVE_FP32;
	io->name = g->value[v].name;
	k = mx_tuple(m, "__shape__", io->dims, SERVE_RANK);
	io->rank = k > 0 ? (unsigned int)k : 0;
	for (i = 0; i < k; i++)
		if (io->dims[i] < 1)
			io->dims[i] = -1;
	return 0;
}

/*
 * The files do not say what shape an input has.  The first operator with weights that it goes
 * through does, apart from the sizes of a picture.
 */
static int guess_input(struct mx *m, unsigned int input)
{
	struct graph *g = m->s.g;
	struct serve_io *io = &g->in_io[input];
	int v = g->in[input];
	bool flat = false;
	unsigned int i;

	for (i = 0; i < g->nnodes && !io->rank; i++) {
		const struct node *n = &g->node[i];
		const struct value *w =
			n->nin > 1 && n->in[1] >= 0 ? &g->value[n->in[1]] : NULL;

		if (!n->nin || n->in[0] != v)
			continue;
		v = n->out;
		if (n->op == OP_FLATTEN)
			flat = true;
		if (!w || !w->data)
			continue;
		if (n->op == OP_CONV && w->rank > 2) {
			io->rank = w->rank;
			io->dims[1] = w->dims[1] * n->a.group;
			io->dims[2] = io->dims[3] = -1;
		} else if (n->op == OP_NORM && w->rank == 1) {
			io->rank = 4;
			io->dims[1] = w->dims[0];
			io->dims[2] = io->dims[3] = -1;
		} else if (n->op == OP_GEMM && w->rank == 2 && flat) {
			io->rank = 2;
			io->dims[1] = w->dims[1];
		}
		io->dims[0] = -1;
	}
	if (!io->rank)
		return refuse(g, -ENOTSUP,
			      "the shape of input '%s' is unknown: give it __shape__",
			      io->name);
	return 0;
}

static int read_symbol(struct mx *m, const void *sym, size_t len)
{
	json_t *nodes, *heads;
	struct graph *g = m->s.g;
	json_error_t error;
	size_t i, n;
	int rc, v;

	m->root = json_loadb(sym, len, JSON_REJECT_DUPLICATES, &error);
	if (!m->root)
		return refuse(g, -EINVAL, "line %d: %s", error.line, error.text);
	nodes = json_object_get(m->root, "nodes");
	heads = json_object_get(m->root, "heads");
	n = json_array_size(nodes);
	if (!n || n > 4 * MAX_NODES || !json_array_size(heads) ||
	    json_array_size(heads) > MAX_IO)
		return refuse(g, -EINVAL, "no nodes, no heads, or too many of them");
	m->value = calloc(n, sizeof(*m->value));
	m->more = calloc(n, sizeof(*m->more));
	if (!m->value || !m->more)
		return refuse(g, -ENOMEM, "no memory");
	for (i = 0; i < n; i++) {
		m->node = json_array_get(nodes, i);
		m->op = json_string_value(json_object_get(m->node, "op"));
		m->s.where = json_string_value(json_object_get(m->node, "name"));
		if (!m->op || !m->s.where || !*m->s.where)
			return refuse(g, -EINVAL, "node %zu has no operator or no name", i);
		rc = strcmp(m->op, "null") ? read_op(m, i) : read_variable(m, i);
		if (rc)
			return rc;
		if (g->nnodes > MAX_NODES)
			return refuse(g, -ENOTSUP, "more than %d operators", MAX_NODES);
	}
	m->op = "heads";
	m->s.where = "";
	for (i = 0; i < json_array_size(heads); i++) {
		char name[512];
		int named;

		rc = entry(m, json_array_get(heads, i), n, &v);
		if (rc)
			return rc;
		if (v < 0)
			return refuse(g, -EINVAL, "an output is a label");
		snprintf(name, sizeof(name), "%s_output", g->value[v].name);
		named = graph_value(g, name, strlen(name));
		if (named < 0)
			return refuse(g, named, "no memory");
		g->out_io[i].name = g->value[named].name;
		g->out_io[i].type = SERVE_FP32;
		g->unstated[i] = true;
		g->out[g->m.noutputs++] = v;
	}
	for (i = 0; i < g->m.ninputs; i++) {
		rc = guess_input(m, (unsigned int)i);
		if (rc)
			return rc;
	}
	return 0;
}

int mxnet_parse(struct graph *g, const void *sym, size_t sym_len, const void *par,
		size_t par_len)
{
	struct mx m = { .s.g = g, .p = par, .left = par_len };
	int rc = read_arrays(&m);

	if (!rc)
		rc = read_symbol(&m, sym, sym_len);
	json_decref(m.root);
	free(m.array);
	free(m.value);
	free(m.more);
	return rc;
}
