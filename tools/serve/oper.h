/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oper.h - operators that are rows of tables: ops_move.c, ops_index.c, ops_math.c, ops_attention.c.
 *
 * A row has the rule of the output's shape, the rule of the rows of a batch (rows.c) and the
 * kernel.  An operator with several outputs is a node for each of them, with its number in
 * attrs.output.  The data of all operands lies in rows, unless the row says any; then the kernel
 * must use the strides.
 */
#ifndef SERVE_OPER_H
#define SERVE_OPER_H

#include <errno.h>
#include <limits.h>

#include "graph.h"

/* For rules of shapes: the node, and where an error's text goes. */
struct ctx {
	const struct node *n;
	char *err;
	size_t errsize;
};

#define bad(c, ...) bad_shape(c, -EINVAL, __VA_ARGS__)
#define bad_shape(c, code, fmt, ...) graph_err((c)->err, (c)->errsize, code, \
	"operator %s '%s': " fmt, (c)->n->type, (c)->n->name, ##__VA_ARGS__)

/* The type of an output: that of the first input, ... */
enum { OF_FIRST, OF_SECOND, OF_THIRD, OF_ATTR, IS = 8 };	/* ..., or IS + a type */

#define BIT(type)	(1u << SERVE_##type)
#define T_INTS		(BIT(INT32) | BIT(INT64))
#define T_SMALL		(BIT(UINT8) | BIT(INT8))
#define T_NUMBERS	(BIT(FP32) | T_INTS)
#define T_REAL		(T_NUMBERS | T_SMALL | BIT(FP64))	/* for which kernels have loops */
#define T_ALL_INTS	(T_INTS | T_SMALL | BIT(UINT16) | BIT(INT16) | BIT(UINT32) | BIT(UINT64))
#define T_CASTS		((BIT(BYTES) - 1) & ~BIT(FP16))
#define T_ANY		(BIT(BYTES) - 1)

struct oper {
	const char *name;
	/*
	 * Words that are separated by spaces: NAME=NUMBER, NAME=! for one that must be given, and
	 * NAME=TEXT|TEXT..., of which the first is the default, are stored in attrs.p, in this order;
	 * NAME=~FRACTION in attrs.f; NAME[] in attrs.ints; NAME=type in attrs.to; NAME* is ignored.
	 */
	const char *attrs;
	unsigned char min, max, outputs;	/* inputs and outputs */
	unsigned char kind;
	unsigned int types;			/* of the first input: bits */
	unsigned char type[3];			/* of each output: see above */
	bool any;				/* layout of the data */
	int (*shape)(const struct ctx *c, const struct shape *const *in, struct shape *out);
	bool (*rows)(struct rows *r);		/* NULL: requests run alone */
	int (*run)(const struct node *n, const struct view *out, const struct view *const *in);
};

/* Ended by a row without a name. */
extern const struct oper opers_move[], opers_index[], opers_math[], opers_attention[];
extern const struct oper oper_lstm, oper_gru, oper_einsum, oper_centered;	/* that onnx_lower.c uses */
extern const struct oper oper_swap, oper_adaptive, oper_prelu_channels;	/* and mxnet_lower.c */

const struct oper *oper_find(const char *name);	/* NULL: there is none; ops_move.c */

/* The number of the input that has the type of the output; or -1, and the type itself. */
static inline int oper_type(const struct node *n, enum serve_type *type)
{
	unsigned int of = n->oper->type[n->a.output < 3 ? n->a.output : 0];

	*type = of >= IS ? (enum serve_type)(of - IS) : n->a.to;
	if (of >= OF_ATTR)
		return -1;
	if (of - OF_FIRST < n->nin && n->in[of - OF_FIRST] >= 0)
		return (int)of - OF_FIRST;
	/* zero points of QuantizeLinear that are left out */
	*type = n->a.has_to ? n->a.to : SERVE_UINT8;
	return -1;
}

static inline int64_t axis_of(int64_t axis, unsigned int rank)
{
	return axis < 0 ? axis + (int64_t)rank : axis;
}

static inline bool axis_ok(int64_t axis, unsigned int rank)
{
	return axis >= 0 && axis < (int64_t)rank;
}

/* Elements before an axis, along it, and behind it. */
struct span {
	int64_t outer, n, inner;
};

static inline struct span span_of(int64_t axis, unsigned int rank, const int64_t *dims)
{
	unsigned int k = (unsigned int)axis_of(axis, rank);

	return (struct span){ count(k, dims), dims[k], count(rank - k - 1, dims + k + 1) };
}

/* shape.c: numbers of an input that must be known before the run, at most so many. */
int shape_numbers(const struct ctx *c, const struct shape *in, const char *what, int64_t *out,
		  unsigned int *n, unsigned int most);
/* Broadcast in to out. */
int shape_broadcast(const struct ctx *c, struct shape *out, const struct shape *in);
/* Axes of the attribute or of input 1. */
int shape_axes(const struct ctx *c, const struct shape *const *in, unsigned int rank, bool *at,
	       bool *any);
/* The shape of the first input; and with a check of the axis in attrs.p[0]. */
int shape_same(const struct ctx *c, const struct shape *const *in, struct shape *out);
int shape_same_axis(const struct ctx *c, const struct shape *const *in, struct shape *out);
/* All inputs broadcast to each other, of one type. */
int shape_each(const struct ctx *c, const struct shape *const *in, struct shape *out);

/* rows.c: along another axis than attrs.p[0]; and in the last two dimensions. */
bool rows_axis(struct rows *r);
bool rows_last2(struct rows *r);
bool rows_first(struct rows *r);			/* only the first input's data matters */
bool rows_same_axes(struct rows *r);		/* all inputs that depend on N have rows there */

/* kernel.c: an element as a whole number, or as a real one. */
int64_t load_whole(enum serve_type type, const char *p);
void cast_run(const struct view *out, const struct view *in);
/* What shape_of() takes, from nin views; the pointer is NULL where the view is. */
void view_shapes(const struct view *const *in, unsigned int nin, struct shape *shape,
		 const struct shape **shapes);

#endif
