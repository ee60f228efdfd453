// SPDX-License-Identifier: Apache-2.0
/*
 * mxnet_lower.c - operators of MXNet that are read as others: those that differ from ONNX's in
 * the order of what they read, and recurrent layers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mxnet.h"

static struct attrs plain(void)
{
	struct attrs a = { .group = 1 };
	unsigned int i;

	for (i = 0; i < 2; i++)
		a.kernel[i] = a.stride[i] = a.dilation[i] = 1;
	return a;
}

static int unary(struct mx *m, enum unary kind, float alpha, float beta, int in)
{
	struct attrs a = plain();

	a.kind = kind;
	a.alpha = alpha;
	a.beta = beta;
	return build1(&m->s, OP_UNARY, m->op, rows_each, &a, in);
}

/* ---- indices ---------------------------------------------------------------------------- */

/* Indices are float32, and those out of range the first or the last. */
static int embedding(struct mx *m, const int *in)
{
	const struct value *w = &m->s.g->value[in[1]];
	struct attrs a = plain();
	int to[2];

	if (!w->data || w->rank != 2)
		return refuse_node(m, -ENOTSUP, "a weight that is not one of the file");
	if (mx_bool(m, "sparse_grad", false))
		m->bad = "sparse_grad";
	to[0] = in[1];
	to[1] = build_cast(&m->s, SERVE_INT64,
			   unary(m, U_CLIP, 0, (float)(w->dims[0] - 1), in[0]));
	return to[1] < 0 ? to[1] : build(&m->s, OP_GATHER, "Gather", rows_gather, &a, to, 2);
}

static int arg(struct mx *m, const char *oper, int in)
{
	struct attrs a = plain();
	int v;

	if (!mx_attr(m, "axis") || mx_is(m, "axis", "None"))
		return refuse_node(m, -ENOTSUP, "no axis");
	a.p[0] = mx_int(m, "axis", 0);
	a.p[1] = mx_bool(m, "keepdims", false);
	v = build_oper(&m->s, oper_find(oper), &a, &in, 1);
	return build_cast(&m->s, SERVE_FP32, v);
}

/* ---- shapes ------------------------------------------------------------------------------ */

static int pad(struct mx *m, int in)
{
	int64_t width[2 * SERVE_RANK];
	int n = mx_tuple(m, "pad_width", width, 2 * SERVE_RANK), i;
	struct attrs a = plain();

	a.kind = mx_is(m, "mode", "constant") ? PAD_CONSTANT : mx_is(m, "mode", "edge") ? PAD_EDGE :
		PAD_REFLECT;
	if (n < 2 || n % 2 || (a.kind == PAD_REFLECT && !mx_is(m, "mode", "reflect")))
		return refuse_node(m, -ENOTSUP, "attribute pad_width or mode");
	a.alpha = (float)mx_number(m, "constant_value", 0);
	a.nints = (unsigned int)n / 2;
	for (i = 0; i < n / 2; i++) {
		a.ints[i] = width[2 * i];
		a.more[i] = width[2 * i + 1];
	}
	return build1(&m->s, OP_PAD, "Pad", rows_pad, &a, in);
}

static int up_sampling(struct mx *m, int in)
{
	const int64_t four = 4;
	struct attrs a = plain();
	float scale[4] = { 1, 1, 0, 0 };
	int to[3] = { in, -1, -1 };

	scale[2] = scale[3] = (float)mx_int(m, "scale", 1);
	if (!mx_is(m, "sample_type", "nearest") || mx_int(m, "num_args", 1) != 1)
		return refuse_node(m, -ENOTSUP, "sample_type or num_args");
	a.coord = COORD_ASYMMETRIC;
	a.nearest = NEAR_FLOOR;
	a.keep_scale = true;
	to[1] = graph_const(m->s.g, m->s.where, SERVE_FP32, 1, &four);
	if (to[1] < 0)
		return to[1];
	memcpy(m->s.g->value[to[1]].data, scale, sizeof(scale));
	return build(&m->s, OP_RESIZE, "Resize", rows_resize, &a, to, 3);
}

static int slice_channel(struct mx *m, int in, int *out)
{
	int64_t n = mx_int(m, "num_outputs", 0), axis = mx_int(m, "axis", 1), i;
	bool squeeze = mx_bool(m, "squeeze_axis", false);
	struct attrs a = plain();

	if (n < 1 || n > MAX_IO)
		return refuse_node(m, -ENOTSUP, "%lld outputs", (long long)n);
	a.p[0] = axis;
	a.p[1] = -1;
	a.outputs = (unsigned int)n;
	for (i = 0; i < n; i++) {
		a.output = (unsigned int)i;
		out[i] = build_oper(&m->s, oper_find("Split"), &a, &in, 1);
		if (squeeze)
			out[i] = build_squeeze(&m->s, false, out[i], &axis, 1);
		if (out[i] < 0)
			return out[i];
	}
	return (int)n;
}

static int slice_axis(struct mx *m, int in)
{
	const char *end = mx_attr(m, "end");

	if (!mx_attr(m, "axis") || !mx_attr(m, "begin"))
		return refuse_node(m, -EINVAL, "no axis or begin");
	return build_slice(&m->s, in, mx_int(m, "axis", 0), mx_int(m, "begin", 0),
			   !end || !strcmp(end, "None") ? INT64_MAX : mx_int(m, "end", 0));
}

static int swap_axis(struct mx *m, int in)
{
	struct attrs a = plain();

	a.p[0] = mx_int(m, "dim1", 0);
	a.p[1] = mx_int(m, "dim2", 0);
	return build_oper(&m->s, &oper_swap, &a, &in, 1);
}

static int batch_dot(struct mx *m, const int *in)
{
	static const char *const names[] = { "transpose_a", "transpose_b" };
	static const int64_t turned[] = { 0, 2, 1 };
	int v[2], i;

	for (i = 0; i < 2; i++)
		v[i] = mx_bool(m, names[i], false) ? build_transpose(&m->s, in[i], turned, 3) : in[i];
	return build_matmul(&m->s, v[0], v[1]);
}

/* ---- layers -------------------------------------------------------------------------------- */

static int layer_norm(struct mx *m, const int *in)
{
	struct attrs a = plain();

	a.kind = N_LAYER;
	a.axis = mx_int(m, "axis", -1);
	a.eps = (float)mx_number(m, "eps", 1e-5);
	a.flat = true;
	if (a.axis != -1 || mx_bool(m, "output_mean_var", false))
		return refuse_node(m, -ENOTSUP, "axis or output_mean_var");
	return build(&m->s, OP_ROW_NORM, "LayerNorm", rows_softmax, &a, in, 3);
}

static int group_norm(struct mx *m, bool instance, const int *in)
{
	struct attrs a = plain();

	a.f[0] = (float)mx_number(m, "eps", instance ? 1e-3 : 1e-5);
	a.p[0] = mx_int(m, "num_groups", 1);
	if (!instance && mx_bool(m, "output_mean_var", false))
		return refuse_node(m, -ENOTSUP, "output_mean_var");
	return build_oper(&m->s, oper_find(instance ? "InstanceNormalization" : "GroupNormalization"),
			  &a, in, 3);
}

static int adaptive(struct mx *m, int in)
{
	struct attrs a = plain();
	int n = mx_tuple(m, "output_size", a.p, 2);

	if (n < 0)
		return refuse_node(m, -ENOTSUP, "attribute output_size");
	if (n < 2)
		a.p[1] = a.p[0] = n ? a.p[0] : 1;
	return build_oper(&m->s, &oper_adaptive, &a, &in, 1);
}

/* LeakyReLU with its slope as an input, one for each channel. */
static int prelu(struct mx *m, const int *in)
{
	struct attrs a = plain();

	if (!mx_is(m, "act_type", "prelu"))
		return refuse_node(m, -ENOTSUP, "act_type %s", mx_attr(m, "act_type") ?
				   mx_attr(m, "act_type") : "");
	return build_oper(&m->s, &oper_prelu_channels, &a, in, 2);
}

/* ---- recurrent layers ------------------------------------------------------------------------ */

struct rnn {
	struct mx *m;
	const struct oper *o;
	int64_t gates, h, at;			/* at: in the array of parameters */
	int64_t layers, ways;
	int params;
};

/*
 * How many parameters there are, if the file has them: one array, or several that are joined.
 * depth: nodes behind v that were followed.
 */
static int64_t parameters(const struct mx *m, int v, unsigned int depth)
{
	const struct graph *g = m->s.g;
	int64_t sum = 0, more;
	unsigned int i, k;

	if (g->value[v].data)
		return count(g->value[v].rank, g->value[v].dims);
	for (i = 0; i < g->nnodes && g->node[i].out != v; i++)
		;
	if (i == g->nnodes || depth > 4 || (depth > 1 && g->node[i].op == OP_CONCAT) ||
	    (g->node[i].op != OP_CONCAT && g->node[i].op != OP_RESHAPE && g->node[i].op != OP_IDENTITY))
		return -1;
	for (k = 0; k < g->node[i].nin; k++) {
		more = parameters(m, g->node[i].in[k], depth + 1);
		if (more < 0)
			return -1;
		sum += more;
	}
	return sum;
}

/* The gates in the order of ONNX, of the next rows of the parameters. */
static int next(struct rnn *r, int64_t width)
{
	static const int64_t lstm[] = { 0, 3, 1, 2 }, gru[] = { 1, 0, 2 };
	const int64_t *order = r->gates == 4 ? lstm : gru;
	int64_t rows = r->gates * r->h, n = width ? rows * width : rows, dims[2] = { rows, width };
	struct site *s = &r->m->s;
	int v, part[4], i;

	v = build_reshape(s, build_slice(s, r->params, 0, r->at, r->at + n), dims, width ? 2 : 1);
	r->at += n;
	for (i = 0; i < r->gates; i++)
		part[i] = build_slice(s, v, 0, order[i] * r->h, (order[i] + 1) * r->h);
	return build_concat(s, part, (unsigned int)r->gates, 0);
}

/* A layer's first state, of one direction. */
static int state(struct rnn *r, int v, int64_t which)
{
	static const int64_t first[] = { 0 };
	struct site *s = &r->m->s;

	return build_squeeze(s, false, build_slice(s, v, 0, which, which + 1), first, 1);
}

/* The shape of an input of the model, if the file does not say it. */
static void input_shape(struct mx *m, int v, int64_t d0, int64_t d2)
{
	struct graph *g = m->s.g;
	unsigned int i;

	for (i = 0; i < g->m.ninputs; i++)
		if (g->in[i] == v && !g->in_io[i].rank) {
			g->in_io[i].rank = 3;
			g->in_io[i].dims[0] = d0;
			g->in_io[i].dims[1] = -1;
			g->in_io[i].dims[2] = d2;
		}
}

static int recurrent(struct mx *m, const int *in, unsigned int nin, int *out)
{
	static const int64_t turned[] = { 1, 0 };
	struct rnn r = { .m = m };
	bool lstm = mx_is(m, "mode", "lstm"), keep = mx_bool(m, "state_outputs", false);
	int64_t all, width, l, d, k, bytes, n;
	int w[64][2], b[64][2], part[2], last[64], cells[64], x = in[0];
	struct site *s = &m->s;

	r.o = lstm ? &oper_lstm : &oper_gru;
	r.gates = lstm ? 4 : 3;
	r.h = mx_int(m, "state_size", 0);
	r.layers = mx_int(m, "num_layers", 0);
	r.ways = mx_bool(m, "bidirectional", false) ? 2 : 1;
	r.params = in[1];
	if ((!lstm && !mx_is(m, "mode", "gru")) || nin != (lstm ? 4u : 3u) ||
	    mx_bool(m, "use_sequence_length", false) || mx_int(m, "projection_size", 0) ||
	    mx_attr(m, "lstm_state_clip_min"))
		return refuse_node(m, -ENOTSUP, "mode, projection, clip, or lengths");
	if (r.h < 1 || r.h > 65536 || r.layers < 1 || r.layers > 32)
		return refuse_node(m, -EINVAL, "state_size or num_layers");
	n = r.layers * r.ways;
	bytes = r.gates * r.h;
	all = parameters(m, in[1], 0);
	if (all < 0)
		return refuse_node(m, -ENOTSUP, "parameters that the file does not have");
	/* what is left is the width of the input */
	all -= n * 2 * bytes + n * bytes * r.h + (r.layers - 1) * r.ways * bytes * r.h * r.ways;
	if (all < 1 || all % (bytes * r.ways))
		return refuse_node(m, -EINVAL, "the number of parameters");
	width = all / (bytes * r.ways);
	input_shape(m, in[0], -1, width);
	for (l = 2; l < nin; l++)
		input_shape(m, in[l], n, r.h);
	for (l = k = 0; l < r.layers; l++)
		for (d = 0; d < r.ways; d++, k++) {
			w[k][0] = next(&r, l ? r.h * r.ways : width);
			w[k][1] = next(&r, r.h);
		}
	for (k = 0; k < n; k++) {
		b[k][0] = next(&r, 0);
		b[k][1] = next(&r, 0);
	}
	for (l = k = 0; l < r.layers; l++) {
		for (d = 0; d < r.ways; d++, k++) {
			struct attrs a = { .group = 1, .p = { d, 1 } };
			int to[5] = { -1, -1, -1, -1, -1 }, y;

			to[0] = build_matmul(s, x, build_transpose(s, w[k][0], turned, 2));
			to[1] = build_transpose(s, w[k][1], turned, 2);
			to[2] = build_concat(s, b[k], 2, 0);
			to[3] = state(&r, in[2], k);
			if (lstm)
				to[4] = state(&r, in[3], k);
			y = build_oper(s, r.o, &a, to, lstm ? 5 : 4);
			part[d] = build_slice(s, y, 0, 0, -2);
			last[k] = build_slice(s, y, 0, -2, -1);
			cells[k] = build_slice(s, y, 0, -1, INT64_MAX);
			if (part[d] < 0)
				return part[d];
		}
		x = r.ways == 1 ? part[0] : build_concat(s, part, 2, 2);
	}
	out[0] = x;
	if (!keep)
		return 1;
	out[1] = build_concat(s, last, (unsigned int)n, 0);
	if (lstm)
		out[2] = build_concat(s, cells, (unsigned int)n, 0);
	return lstm ? 3 : 2;
}

/* ---- the table --------------------------------------------------------------------------------- */

enum lowered { EMBEDDING, ARGMAX, ARGMIN, PAD, UP, SPLIT, SLICE_AXIS, SWAP, DOT, LAYER, INSTANCE, GROUP,
	       ADAPTIVE, PRELU, RNN, PARAMS, SQUARE, RSQRT, STACK, SQUEEZE };

int mxnet_lower(struct mx *m, const int *in, unsigned int nin, int *out)
{
	static const struct {
		const char *name;
		enum lowered kind;
		unsigned int min, max;
	} rows[] = {
		{ "Embedding", EMBEDDING, 2, 2 }, { "GroupNorm", GROUP, 3, 3 },
		{ "InstanceNorm", INSTANCE, 3, 3 }, { "LayerNorm", LAYER, 3, 3 },
		{ "LeakyReLU", PRELU, 2, 2 }, { "Pad", PAD, 1, 1 }, { "RNN", RNN, 3, 5 },
		{ "SliceChannel", SPLIT, 1, 1 }, { "SwapAxis", SWAP, 1, 1 }, { "UpSampling", UP, 1, 1 },
		{ "_contrib_AdaptiveAvgPooling2D", ADAPTIVE, 1, 1 },
		{ "_rnn_param_concat", PARAMS, 1, MAX_INPUTS }, { "argmax", ARGMAX, 1, 1 },
		{ "argmin", ARGMIN, 1, 1 }, { "batch_dot", DOT, 2, 2 }, { "pad", PAD, 1, 1 },
		{ "rsqrt", RSQRT, 1, 1 }, { "slice_axis", SLICE_AXIS, 1, 1 }, { "split", SPLIT, 1, 1 },
		{ "square", SQUARE, 1, 1 }, { "squeeze", SQUEEZE, 1, 1 },
		{ "stack", STACK, 1, MAX_INPUTS }, { "swapaxes", SWAP, 1, 1 },
	};
	int64_t axes[SERVE_RANK];
	unsigned int i, k;
	int more[MAX_INPUTS], n;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]) && strcmp(rows[i].name, m->op); i++)
		;
	if (i == sizeof(rows) / sizeof(rows[0]))
		return -ENOENT;
	if (nin < rows[i].min || nin > rows[i].max)
		return refuse_node(m, -EINVAL, "%u inputs", nin);
	switch (rows[i].kind) {
	case EMBEDDING:
		*out = embedding(m, in);
		break;
	case ARGMAX:
	case ARGMIN:
		*out = arg(m, rows[i].kind == ARGMAX ? "ArgMax" : "ArgMin", in[0]);
		break;
	case PAD:
		*out = pad(m, in[0]);
		break;
	case UP:
		*out = up_sampling(m, in[0]);
		break;
	case SPLIT:
		return slice_channel(m, in[0], out);
	case SLICE_AXIS:
		*out = slice_axis(m, in[0]);
		break;
	case SWAP:
		*out = swap_axis(m, in[0]);
		break;
	case DOT:
		*out = batch_dot(m, in);
		break;
	case LAYER:
		*out = layer_norm(m, in);
		break;
	case INSTANCE:
	case GROUP:
		*out = group_norm(m, rows[i].kind == INSTANCE, in);
		break;
	case ADAPTIVE:
		*out = adaptive(m, in[0]);
		break;
	case PRELU:
		*out = prelu(m, in);
		break;
	case RNN:
		return recurrent(m, in, nin, out);
	case PARAMS:
		*out = build_concat(&m->s, in, nin, mx_int(m, "dim", 0));
		break;
	case SQUARE:
		*out = build_times(&m->s, in[0], in[0]);
		break;
	case RSQRT:
		*out = unary(m, U_RECIPROCAL, 0, 0, unary(m, U_SQRT, 0, 0, in[0]));
		break;
	case STACK:
		axes[0] = mx_int(m, "axis", 0);
		for (k = 0; k < nin; k++)
			more[k] = build_squeeze(&m->s, true, in[k], axes, 1);
		*out = build_concat(&m->s, more, nin, axes[0]);
		break;
	case SQUEEZE:
		n = mx_tuple(m, "axis", axes, SERVE_RANK);
		if (n < 1)
			return refuse_node(m, -ENOTSUP, "attribute axis");
		*out = build_squeeze(&m->s, false, in[0], axes, (unsigned int)n);
		break;
	}
	return *out < 0 ? *out : 1;
}
