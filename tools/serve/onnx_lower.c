// SPDX-License-Identifier: Apache-2.0
/*
 * onnx_lower.c - operators of ONNX that are read as several others: LSTM, GRU, Einsum, and those
 * whose inputs are quantized.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build.h"
#include "onnx.h"

/* Let the node's output have this name; all is made for it. */
static int output(struct reader *r, unsigned int i, int v)
{
	struct attrs a = { .group = 1 };
	int out, made;

	if (v < 0)
		return v;
	out = onnx_define(&r->names, r->np->output[i]);
	if (out < 0)
		return out;
	made = build1(&r->s, OP_IDENTITY, "Identity", rows_each, &a, v);
	if (made < 0)
		return made;
	r->s.g->node[r->s.g->nnodes - 1].out = out;
	return 0;
}

static bool has_output(const struct reader *r, unsigned int i)
{
	return r->np->n_output > i && *r->np->output[i];
}

static bool is_text(const Onnx__AttributeProto *a, const char *text)
{
	return a->has_s && a->s.len == strlen(text) && !memcmp(a->s.data, text, a->s.len);
}

/* ---- LSTM and GRU ------------------------------------------------------------------- */

/* Which directions, and what of the attributes is not supported. */
static int recurrent_attrs(struct reader *r, bool lstm, bool *forward, bool *backward, bool *linear)
{
	static const char *const lstm_acts[] = { "Sigmoid", "Tanh", "Tanh" };
	static const char *const gru_acts[] = { "Sigmoid", "Tanh" };
	size_t i, k, each = lstm ? 3 : 2;

	*forward = true;
	*backward = *linear = false;
	for (i = 0; i < r->np->n_attribute; i++) {
		const Onnx__AttributeProto *a = r->np->attribute[i];
		const char *name = a->name ? a->name : "";
		bool ok = true;

		if (a->ref_attr_name && *a->ref_attr_name) {
			ok = false;
		} else if (!strcmp(name, "direction")) {
			*forward = !is_text(a, "reverse");
			*backward = !is_text(a, "forward");
			ok = is_text(a, "forward") || is_text(a, "reverse") ||
				is_text(a, "bidirectional");
		} else if (!strcmp(name, "activations")) {
			for (k = 0; k < a->n_strings && ok; k++) {
				const char *want = lstm ? lstm_acts[k % each] : gru_acts[k % each];

				ok = a->strings[k].len == strlen(want) &&
					!memcmp(a->strings[k].data, want, strlen(want));
			}
		} else if (!strcmp(name, "linear_before_reset")) {
			*linear = a->i;
			ok = !lstm;
		} else if (!strcmp(name, "input_forget") || !strcmp(name, "layout")) {
			ok = !a->i;
		} else {
			ok = !strcmp(name, "hidden_size");
		}
		if (!ok)
			return onnx_refuse(r, -ENOTSUP, "attribute '%s', or its value", name);
	}
	return 0;
}

/* Part d of a value along its first axis, which is left out. */
static int part(struct reader *r, int v, int64_t d)
{
	struct attrs a = { .group = 1 };
	int in[2] = { v, graph_const(r->s.g, r->s.where, SERVE_INT64, 0, &d) };

	if (in[1] < 0)
		return in[1];
	*(int64_t *)r->s.g->value[in[1]].data = d;
	return build(&r->s, OP_GATHER, "Gather", rows_gather, &a, in, 2);
}

static int one_way(struct reader *r, const struct oper *o, const int *in, int64_t d, bool back,
		   bool linear)
{
	static const int64_t turned[] = { 1, 0 };
	static const int from[] = { 3, 5, 6 };		/* bias, state, cells */
	struct attrs a = { .group = 1, .p = { back, linear } };
	int to[5] = { -1, -1, -1, -1, -1 };
	unsigned int i, n = 2;

	to[0] = build_matmul(&r->s, in[0], build_transpose(&r->s, part(r, in[1], d), turned, 2));
	to[1] = build_transpose(&r->s, part(r, in[2], d), turned, 2);
	if (to[0] < 0 || to[1] < 0)
		return to[0] < 0 ? to[0] : to[1];
	for (i = 0; i < 3; i++) {
		if (in[from[i]] < 0)
			continue;
		to[2 + i] = part(r, in[from[i]], d);
		if (to[2 + i] < 0)
			return to[2 + i];
		n = 3 + i;
	}
	return build_oper(&r->s, o, &a, to, n);
}

static int recurrent(struct reader *r, const struct oper *o)
{
	static const int64_t second[] = { 1 };
	bool lstm = o == &oper_lstm, way[2], linear;
	int in[8] = { -1, -1, -1, -1, -1, -1, -1, -1 }, all[2], part_of[2], rc;
	unsigned int i, k, n = 0, nin = (unsigned int)r->np->n_input;

	if (nin < 3 || nin > (lstm ? 8 : 6) || !r->np->n_output || r->np->n_output > (lstm ? 3 : 2))
		return onnx_refuse(r, -EINVAL, "%u inputs, %zu outputs", nin, r->np->n_output);
	rc = onnx_inputs(r, nin, 3, in);
	if (!rc)
		rc = recurrent_attrs(r, lstm, &way[0], &way[1], &linear);
	if (rc)
		return rc;
	if (in[4] >= 0 || in[7] >= 0)
		return onnx_refuse(r, -ENOTSUP, "sequence_lens, or peepholes");
	for (i = 0; i < 2; i++) {
		if (!way[i])
			continue;
		all[n] = one_way(r, o, in, n, i, linear);
		if (all[n] < 0)
			return all[n];
		n++;
	}
	/* all states, the last one, the cells */
	for (k = 0; k < r->np->n_output && !rc; k++) {
		if (!has_output(r, k))
			continue;
		for (i = 0; i < n; i++)
			part_of[i] = !k ? build_squeeze(&r->s, true, build_slice(&r->s, all[i], 0, 0, -2), second, 1) :
				k == 1 ? build_slice(&r->s, all[i], 0, -2, -1) : build_slice(&r->s, all[i], 0, -1, INT64_MAX);
		rc = output(r, k, n == 1 ? part_of[0] : build_concat(&r->s, part_of, 2, k ? 0 : 1));
	}
	return rc;
}

/* ---- Einsum --------------------------------------------------------------------------- */

/* Letters of a term; returns how many, or -1. */
static int letters(const char **p, int64_t *to)
{
	int n = 0;

	for (; **p && **p != ',' && **p != '-'; (*p)++) {
		if (**p == ' ')
			continue;
		if (n == SERVE_RANK || !((**p >= 'a' && **p <= 'z') || (**p >= 'A' && **p <= 'Z')))
			return -1;
		to[n++] = **p;
	}
	return n;
}

static bool has(const int64_t *list, unsigned int n, int64_t c)
{
	while (n-- > 0)
		if (list[n] == c)
			return true;
	return false;
}

static bool twice(const int64_t *list, unsigned int n)
{
	unsigned int i;

	for (i = 1; i < n; i++)
		if (has(list, i, list[i]))
			return true;
	return false;
}

/*
 * Two terms with one letter that only the output lacks: a matrix product.  What is only in x or
 * only in y is a dimension of the product too, or of 1 in the other operand; the order is
 * the output's, then what x and y have last.
 */
static int as_product(struct reader *r, const int *in, const int64_t x[], unsigned int nx,
		      const int64_t y[], unsigned int ny, const int64_t out[], unsigned int no)
{
	int64_t perm[2][SERVE_RANK + 2], gaps[2][SERVE_RANK + 2], back[SERVE_RANK + 2];
	int64_t inner = 0, m = 0, k = 0, order[SERVE_RANK + 2], dropped[2];
	unsigned int i, j, n = 0, np[2] = { 0, 0 }, ng[2] = { 0, 0 }, nd = 0;
	const int64_t *term[2] = { x, y };
	unsigned int len[2] = { nx, ny };
	int v[2];

	for (i = 0; i < nx; i++)
		if (!has(out, no, x[i])) {
			if (inner || !has(y, ny, x[i]))
				return -ENOENT;
			inner = x[i];
		}
	for (i = 0; i < ny; i++)
		if (!has(out, no, y[i]) && y[i] != inner)
			return -ENOENT;
	if (!inner)
		return -ENOENT;
	/* the last letter that only x has, and only y */
	for (i = 0; i < no; i++) {
		if (!has(y, ny, out[i]))
			m = out[i];
		if (!has(x, nx, out[i]))
			k = out[i];
	}
	for (i = 0; i < no; i++)
		if (out[i] != m && out[i] != k)
			order[n++] = out[i];
	if (n + 2 > 6 || twice(x, nx) || twice(y, ny))
		return -ENOENT;
	for (j = 0; j < 2; j++) {
		/* the batch, then [m, inner] of x, [inner, k] of y */
		order[n] = j ? inner : m;
		order[n + 1] = j ? k : inner;
		for (i = 0; i < n + 2; i++) {
			unsigned int at;

			for (at = 0; order[i] && at < len[j] && term[j][at] != order[i]; at++)
				;
			if (order[i] && at < len[j])
				perm[j][np[j]++] = at;
			else
				gaps[j][ng[j]++] = i;
		}
		if (np[j] != len[j])
			return -ENOENT;
		v[j] = build_squeeze(&r->s, true, build_transpose(&r->s, in[j], perm[j], np[j]), gaps[j], ng[j]);
	}
	v[0] = build_matmul(&r->s, v[0], v[1]);
	if (!m)
		dropped[nd++] = n;
	if (!k)
		dropped[nd++] = n + 1;
	v[0] = build_squeeze(&r->s, false, v[0], dropped, nd);
	/* to the order of the output */
	if (m)
		order[n++] = m;
	if (k)
		order[n++] = k;
	for (i = 0; i < no; i++)
		for (j = 0; j < n; j++)
			if (order[j] == out[i])
				back[i] = j;
	return no ? build_transpose(&r->s, v[0], back, no) : v[0];
}

static int einsum(struct reader *r)
{
	const Onnx__AttributeProto *e = onnx_attr(r, "equation");
	struct attrs a = { .group = 1 };
	int64_t term[2][SERVE_RANK] = { { 0 } }, out[SERVE_RANK] = { 0 };
	unsigned int nin = (unsigned int)r->np->n_input, i, k;
	char text[128];
	const char *p = text;
	int in[2], n[3] = { 0 }, rc;

	if (nin < 1 || nin > 2 || r->np->n_output != 1)
		return onnx_refuse(r, -ENOTSUP, "%u inputs", nin);
	rc = onnx_inputs(r, nin, nin, in);
	if (rc)
		return rc;
	if (!e || !e->has_s || r->np->n_attribute != 1 || e->s.len >= sizeof(text) ||
	    memchr(e->s.data, 0, e->s.len))
		return onnx_refuse(r, -ENOTSUP, "no equation, or a long one");
	memcpy(text, e->s.data, e->s.len);
	text[e->s.len] = 0;
	for (i = 0; i < nin; i++) {
		n[i] = letters(&p, term[i]);
		if (n[i] < 0 || (i + 1 < nin && *p++ != ','))
			return onnx_refuse(r, -ENOTSUP, "equation '%s'", text);
	}
	if (!strncmp(p, "->", 2)) {
		p += 2;
		n[2] = letters(&p, out);
	} else {
		/* the letters that occur once, in alphabetical order */
		for (i = 'A'; i <= 'z'; i++) {
			unsigned int times = 0;

			for (k = 0; k < SERVE_RANK; k++)
				times += (term[0][k] == i) + (term[1][k] == i);
			if (times == 1 && n[2] < SERVE_RANK)
				out[n[2]++] = i;
			else if (times == 1)
				n[2] = -1;
			if (n[2] < 0)
				break;
		}
	}
	if (*p || n[2] < 0 || twice(out, (unsigned int)n[2]))
		return onnx_refuse(r, -ENOTSUP, "equation '%s'", text);
	for (k = 0; k < (unsigned int)n[2]; k++)
		if (!has(term[0], (unsigned int)n[0], out[k]) && !has(term[1], (unsigned int)n[1], out[k]))
			return onnx_refuse(r, -EINVAL, "equation '%s'", text);
	rc = nin == 2 ? as_product(r, in, term[0], (unsigned int)n[0], term[1], (unsigned int)n[1],
				   out, (unsigned int)n[2]) : -ENOENT;
	if (rc != -ENOENT)
		return output(r, 0, rc);
	/* term by term: see ops_math.c */
	memcpy(a.ints, term[0], sizeof(a.ints));
	memcpy(a.more, term[1], sizeof(a.more));
	memcpy(a.steps, out, sizeof(a.steps));
	for (i = 0; i < 3; i++)
		a.p[i] = n[i];
	return output(r, 0, build_oper(&r->s, &oper_einsum, &a, in, nin));
}

/* ---- quantized inputs: the numbers that they mean, and float32 operators --------------------- */

static int dequantize(struct reader *r, int x, int scale, int zero, int64_t axis)
{
	struct attrs a = { .group = 1, .p = { axis } };
	int in[3] = { x, scale, zero };

	return build_oper(&r->s, oper_find("DequantizeLinear"), &a, in, zero < 0 ? 2 : 3);
}

static int quantize(struct reader *r, int x, int scale, int zero)
{
	struct attrs a = { .group = 1, .p = { 1 } };
	int in[3] = { x, scale, zero };

	return build_oper(&r->s, oper_find("QuantizeLinear"), &a, in, 3);
}

/* Minus its zero point, as float32; -1: it has none. */
static int centered(struct reader *r, int x, int zero, int64_t axis)
{
	struct attrs a = { .group = 1, .p = { axis } };
	int in[2] = { x, zero };

	return build_oper(&r->s, &oper_centered, &a, in, zero < 0 ? 1 : 2);
}

/* A convolution with the attributes of the node. */
static int conv(struct reader *r, int x, int w, int bias)
{
	int in[3] = { x, w, bias }, v, rc;
	struct attrs a = { .group = 1 };
	unsigned int i;

	if (x < 0 || w < 0 || bias < -1)
		return x < 0 ? x : w < 0 ? w : bias;
	for (i = 0; i < 2; i++)
		a.kernel[i] = a.stride[i] = a.dilation[i] = 1;
	v = build(&r->s, OP_CONV, "Conv", rows_images, &a, in, 3);
	if (v < 0)
		return v;
	rc = onnx_window(r, &r->s.g->node[r->s.g->nnodes - 1]);
	return rc ? rc : v;
}

/* Inputs: x, scale, zero point, those of w, scale and zero point of the output, a bias. */
static int quantized(struct reader *r, bool is_conv, const int *in)
{
	int x, w, bias = -1;

	x = dequantize(r, in[0], in[1], in[2], -2);
	w = dequantize(r, in[3], in[4], in[5], is_conv ? 0 : -1);
	if (!is_conv)
		return quantize(r, build_matmul(&r->s, x, w), in[6], in[7]);
	if (in[8] >= 0)
		bias = build_times(&r->s, build_times(&r->s, build_cast(&r->s, SERVE_FP32, in[8]), in[1]), in[4]);
	return quantize(r, conv(r, x, w, bias), in[6], in[7]);
}

static int integers(struct reader *r, bool is_conv, const int *in)
{
	int x = centered(r, in[0], in[2], INT64_MAX);
	int w = centered(r, in[1], in[3], is_conv ? 0 : -1);

	return build_cast(&r->s, SERVE_INT32, is_conv ? conv(r, x, w, -1) : build_matmul(&r->s, x, w));
}

static int of_integers(struct reader *r, bool is_conv, bool scales)
{
	unsigned int must = scales ? 8 : 2, most = scales ? 8 + is_conv : 4;
	unsigned int n = (unsigned int)r->np->n_input, i;
	int in[9] = { -1, -1, -1, -1, -1, -1, -1, -1, -1 }, rc;

	if (n < must || n > most || r->np->n_output != 1)
		return onnx_refuse(r, -EINVAL, "%u inputs, %zu outputs", n, r->np->n_output);
	rc = onnx_inputs(r, n, must, in);
	if (rc)
		return rc;
	for (i = 0; i < r->np->n_attribute; i++) {
		static const char window[] = " auto_pad dilations group kernel_shape pads strides ";
		char name[64];

		snprintf(name, sizeof(name), " %.60s ", r->np->attribute[i]->name ?
			 r->np->attribute[i]->name : "?");
		if (!is_conv || !strstr(window, name))
			return onnx_refuse(r, -ENOTSUP, "attribute%s", name);
	}
	return output(r, 0, scales ? quantized(r, is_conv, in) : integers(r, is_conv, in));
}

int onnx_lower(struct reader *r)
{
	static const struct {
		const char *name;
		bool conv, scales;
	} quant[] = {
		{ "ConvInteger", true, false }, { "MatMulInteger", false, false },
		{ "QLinearConv", true, true }, { "QLinearMatMul", false, true },
	};
	const char *op = r->np->op_type;
	unsigned int i;

	for (i = 0; i < sizeof(quant) / sizeof(quant[0]); i++)
		if (!strcmp(op, quant[i].name))
			return of_integers(r, quant[i].conv, quant[i].scales);
	return !strcmp(op, "LSTM") ? recurrent(r, &oper_lstm) :
		!strcmp(op, "GRU") ? recurrent(r, &oper_gru) : !strcmp(op, "Einsum") ? einsum(r) : -ENOENT;
}
