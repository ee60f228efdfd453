// SPDX-License-Identifier: Apache-2.0
/* build.c - nodes of operators that consist of others: build.h. */
#include <string.h>

#include "build.h"

int build(struct site *s, enum op op, const char *type, bool (*rows)(struct rows *),
	  const struct attrs *a, const int *in, unsigned int nin)
{
	struct node *n;
	unsigned int i;
	int v;

	for (i = 0; i < nin; i++)
		if (in[i] < -1)
			return in[i];
	v = graph_value(s->g, s->where, strlen(s->where));
	n = v < 0 ? NULL : graph_node(s->g, op, type, s->where, nin);
	if (!n)
		return refuse(s->g, -ENOMEM, "no memory");
	n->a = *a;
	n->rows = rows;
	memcpy(n->in, in, nin * sizeof(*in));
	n->out = v;
	return v;
}

int build_oper(struct site *s, const struct oper *o, const struct attrs *a, const int *in,
	       unsigned int nin)
{
	int v = build(s, OP_TABLE, o->name, o->rows, a, in, nin);

	if (v >= 0)
		s->g->node[s->g->nnodes - 1].oper = o;
	return v;
}

int build1(struct site *s, enum op op, const char *type, bool (*rows)(struct rows *),
	   const struct attrs *a, int in)
{
	return in < 0 ? in : build(s, op, type, rows, a, &in, 1);
}

int build_transpose(struct site *s, int in, const int64_t *perm, unsigned int n)
{
	struct attrs a = { .group = 1, .has_ints = true, .nints = n };

	memcpy(a.ints, perm, n * sizeof(*perm));
	return build1(s, OP_TRANSPOSE, "Transpose", rows_transpose, &a, in);
}

int build_squeeze(struct site *s, bool adds, int in, const int64_t *axes, unsigned int n)
{
	struct attrs a = { .group = 1, .nints = n };

	if (!n)
		return in;
	memcpy(a.ints, axes, n * sizeof(*axes));
	return build1(s, adds ? OP_UNSQUEEZE : OP_SQUEEZE, adds ? "Unsqueeze" : "Squeeze",
		      rows_squeeze, &a, in);
}

int build_reshape(struct site *s, int in, const int64_t *dims, unsigned int n)
{
	struct attrs a = { .group = 1, .nints = n };

	memcpy(a.ints, dims, n * sizeof(*dims));
	return build1(s, OP_RESHAPE, "Reshape", rows_reshape, &a, in);
}

int build_slice(struct site *s, int in, int64_t axis, int64_t from, int64_t to)
{
	struct attrs a = { .group = 1, .nints = 1, .ints = { from }, .more = { to },
			   .steps = { axis } };

	return build1(s, OP_SLICE, "Slice", rows_slice, &a, in);
}

int build_concat(struct site *s, const int *in, unsigned int n, int64_t axis)
{
	struct attrs a = { .group = 1, .axis = axis };

	return build(s, OP_CONCAT, "Concat", rows_concat, &a, in, n);
}

int build_matmul(struct site *s, int x, int y)
{
	struct attrs a = { .group = 1 };
	int in[2] = { x, y };

	return x < 0 ? x : y < 0 ? y : build(s, OP_MATMUL, "MatMul", rows_matmul, &a, in, 2);
}

int build_cast(struct site *s, enum serve_type to, int in)
{
	struct attrs a = { .group = 1, .to = to };

	return build1(s, OP_CAST, "Cast", rows_each, &a, in);
}

int build_binary(struct site *s, enum binary kind, int x, int y)
{
	static const char *const names[] = { [B_ADD] = "Add", [B_SUB] = "Sub", [B_MUL] = "Mul",
					     [B_DIV] = "Div" };
	struct attrs a = { .group = 1, .kind = kind };
	int in[2] = { x, y };

	return x < 0 ? x : y < 0 ? y : build(s, OP_BINARY, names[kind], rows_each, &a, in, 2);
}

int build_number(struct site *s, float f)
{
	int v = graph_const(s->g, s->where, SERVE_FP32, 0, NULL);

	if (v >= 0)
		*(float *)s->g->value[v].data = f;
	return v;
}

int build_whole(struct site *s, const int64_t *w, unsigned int n)
{
	const int64_t dims[] = { n };
	int v = graph_const(s->g, s->where, SERVE_INT64, 1, dims);

	if (v >= 0)
		memcpy(s->g->value[v].data, w, n * sizeof(*w));
	return v;
}
