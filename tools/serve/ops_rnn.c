// SPDX-License-Identifier: Apache-2.0
/*
 * ops_rnn.c - the recurrent part of LSTM and GRU, for one direction.
 *
 * onnx_lower.c makes the product of all inputs and the weights one matrix product, so a step is
 * left with the product of the state.  Inputs: that product [T, B, G * H], the transposed weights
 * of the state [H, G * H], the bias [2 * G * H], the first state and the first cells [B, H]; all
 * but the first two may be left out.  The output [T + 2, B, H] has the states, then the last
 * state, then the cells (GRU: what it needs while it runs).  attrs.p[0]: from the last step to the
 * first; p[1]: linear_before_reset.
 */
#include <string.h>

#include "oper.h"
#include "rows.h"

#define BLOCK 64			/* elements of the state that are computed together */
enum { LSTM = 4, GRU = 3 };

static int shape_rnn(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0], *r = in[1];
	int64_t gates = c->n->oper->kind, h;
	unsigned int i;

	if (x->rank != 3 || r->rank != 2 || r->type != SERVE_FP32 || r->dims[1] != x->dims[2] ||
	    r->dims[1] != gates * r->dims[0])
		return bad(c, "weights of %lld by %lld", (long long)r->dims[0], (long long)r->dims[1]);
	h = r->dims[0];
	if (c->n->nin > 2 && in[2] &&
	    (in[2]->type != SERVE_FP32 || in[2]->rank != 1 || in[2]->dims[0] != 2 * gates * h))
		return bad(c, "the bias does not have %lld elements", (long long)(2 * gates * h));
	for (i = 3; i < c->n->nin; i++)
		if (in[i] && (in[i]->type != SERVE_FP32 || in[i]->rank != 2 ||
			      in[i]->dims[0] != x->dims[1] || in[i]->dims[1] != h))
			return bad(c, "the first state is not %lld by %lld", (long long)x->dims[1],
				   (long long)h);
	out->rank = 3;
	out->dims[0] = x->dims[0] + 2;
	out->dims[1] = x->dims[1];
	out->dims[2] = h;
	return 0;
}

/* One step of one row: state and weights, in blocks of the gates. */
struct rnn {
	int64_t h, width;			/* and that of all gates */
	const float *x, *r, *bias, *state;	/* bias may be NULL */
};

/* to = x + bias of the input (and of the state) + state * weights, of n elements of gate g. */
WIDE static void gate(const struct rnn *s, int64_t g, int64_t from, int64_t n, const float *state,
		      bool inputs, bool biased, float *to)
{
	int64_t at = g * s->h + from, i, k;

	for (i = 0; i < n; i++)
		to[i] = (inputs ? s->x[at + i] + (s->bias ? s->bias[at + i] : 0) : 0) +
			(biased && s->bias ? s->bias[s->width + at + i] : 0);
	if (n == BLOCK)
		for (k = 0; k < s->h; k++) {
			const float *w = s->r + k * s->width + at;
			float by = state[k];

			for (i = 0; i < BLOCK; i++)
				to[i] += by * w[i];
		}
	else
		for (k = 0; k < s->h; k++) {
			const float *w = s->r + k * s->width + at;

			for (i = 0; i < n; i++)
				to[i] += state[k] * w[i];
		}
}

static void lstm_step(const struct rnn *s, float *cell, float *out)
{
	float in[BLOCK], o[BLOCK], f[BLOCK], c[BLOCK];
	int64_t from, i, n;

	for (from = 0; from < s->h; from += BLOCK) {
		n = s->h - from < BLOCK ? s->h - from : BLOCK;
		gate(s, 0, from, n, s->state, true, true, in);
		gate(s, 1, from, n, s->state, true, true, o);
		gate(s, 2, from, n, s->state, true, true, f);
		gate(s, 3, from, n, s->state, true, true, c);
		sigmoid_row(n, in);
		sigmoid_row(n, o);
		sigmoid_row(n, f);
		tanh_row(n, c);
		for (i = 0; i < n; i++) {
			c[i] = f[i] * cell[from + i] + in[i] * c[i];
			cell[from + i] = c[i];
		}
		tanh_row(n, c);
		for (i = 0; i < n; i++)
			out[from + i] = o[i] * c[i];
	}
}

static void gru_step(const struct rnn *s, bool linear_first, float *reset, float *out)
{
	float z[BLOCK], r[BLOCK], h[BLOCK], t[BLOCK];
	int64_t from, i, n;

	for (from = 0; from < s->h && !linear_first; from += BLOCK) {
		n = s->h - from < BLOCK ? s->h - from : BLOCK;
		gate(s, 1, from, n, s->state, true, true, r);
		sigmoid_row(n, r);
		for (i = 0; i < n; i++)
			reset[from + i] = r[i] * s->state[from + i];
	}
	for (from = 0; from < s->h; from += BLOCK) {
		n = s->h - from < BLOCK ? s->h - from : BLOCK;
		gate(s, 0, from, n, s->state, true, true, z);
		sigmoid_row(n, z);
		if (linear_first) {
			gate(s, 1, from, n, s->state, true, true, r);
			sigmoid_row(n, r);
			gate(s, 2, from, n, s->state, false, true, t);
			for (i = 0; i < n; i++) {
				int64_t at = 2 * s->h + from + i;

				h[i] = s->x[at] + (s->bias ? s->bias[at] : 0) + r[i] * t[i];
			}
		} else {
			gate(s, 2, from, n, reset, true, true, h);
		}
		tanh_row(n, h);
		for (i = 0; i < n; i++)
			out[from + i] = (1 - z[i]) * h[i] + z[i] * s->state[from + i];
	}
}

static int run_rnn(const struct node *n, const struct view *out, const struct view *const *in)
{
	int64_t steps = in[0]->dims[0], batch = out->dims[1], h = out->dims[2], t, b, at;
	float *y = (float *)(void *)out->data, *last = y + steps * batch * h;
	float *cells = last + batch * h;
	const float *x = (const float *)(const void *)in[0]->data;
	struct rnn s = {
		.h = h, .width = n->oper->kind * h,
		.r = (const float *)(const void *)in[1]->data,
		.bias = n->nin > 2 && in[2] ? (const float *)(const void *)in[2]->data : NULL,
	};
	size_t bytes = (size_t)(batch * h) * sizeof(*y);

	memset(last, 0, 2 * bytes);
	if (n->nin > 3 && in[3])
		memcpy(last, in[3]->data, bytes);
	if (n->nin > 4 && in[4])
		memcpy(cells, in[4]->data, bytes);
	for (t = 0; t < steps; t++) {
		at = n->a.p[0] ? steps - 1 - t : t;
		for (b = 0; b < batch; b++) {
			float *to = y + (at * batch + b) * h;

			s.x = x + (at * batch + b) * s.width;
			s.state = !t ? last + b * h : to + (n->a.p[0] ? 1 : -1) * batch * h;
			if (n->oper->kind == LSTM)
				lstm_step(&s, cells + b * h, to);
			else
				gru_step(&s, n->a.p[1], cells + b * h, to);
		}
	}
	if (steps)
		memcpy(last, y + (n->a.p[0] ? 0 : steps - 1) * batch * h, bytes);
	return 0;
}

/* The rows are the batch, the second axis; weights are the same for all. */
static bool rows_rnn(struct rows *r)
{
	unsigned int i;

	if (r->at[0]->state != AXIS || r->at[0]->axis != 1 || !row_plain(r, 1) || !row_plain(r, 2))
		return false;
	for (i = 3; i < r->node->nin; i++)
		if (r->at[i] && (r->at[i]->state != AXIS || r->at[i]->axis ||
				 r->at[i]->k != r->at[0]->k))
			return false;
	return row_along(r, 1, r->at[0]->k);
}

const struct oper oper_lstm = { "LSTM", "", 2, 5, 1, LSTM, BIT(FP32), { 0 }, false, shape_rnn, rows_rnn,
	run_rnn };
const struct oper oper_gru = { "GRU", "", 2, 5, 1, GRU, BIT(FP32), { 0 }, false, shape_rnn, rows_rnn,
	run_rnn };
