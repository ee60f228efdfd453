/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - a model in memory, and what reads, checks and runs it.  Not for the front.
 *
 * The readers (onnx*.c, mxnet*.c) make nodes and values.  graph.c computes what is
 * constant and merges nodes.  shape.c computes the shapes of a run, plan.c plans its memory, slot.c
 * makes ops, and kernel.c, window.c and onednn.c compute.  rows.c finds out whether requests may
 * share a run.  Nothing of a model is changed after the load, apart from the list of packed weights
 * of a node.
 */
#ifndef PAWL_SERVE_GRAPH_H
#define PAWL_SERVE_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/atomic.h>
#include <tools/pawl/slurp.h>
#include "model.h"

#define MAX_NODES	16384
#define MAX_IO		64			/* inputs or outputs of a model */
#define MAX_BYTES	((int64_t)1 << 34)	/* of one tensor */

enum op {
	OP_CONV, OP_DECONV, OP_GEMM, OP_MATMUL, OP_POOL, OP_GLOBAL_POOL, OP_NORM, OP_LRN,
	OP_SOFTMAX, OP_UNARY, OP_BINARY, OP_SUM, OP_CAST, OP_CONCAT, OP_SLICE, OP_RESHAPE,
	OP_FLATTEN, OP_SQUEEZE, OP_UNSQUEEZE, OP_IDENTITY, OP_TRANSPOSE, OP_EXPAND, OP_PAD,
	OP_GATHER, OP_SHAPE, OP_FILL, OP_RESIZE, OP_REDUCE, OP_WHERE, OP_ROW_NORM,
	OP_AFFINE,			/* what graph.c makes of OP_NORM with constants */
	OP_LOOKUP,			/* and of a product of booleans and constants */
	OP_TABLE,			/* node.oper says what: oper.h */
};

/* OP_ROW_NORM: minus the mean, divided by the root of the variance or of the mean square. */
enum row_norm { N_LAYER, N_RMS };

/* The function of OP_UNARY, and what is applied to the result of OP_CONV and OP_GEMM. */
enum unary {
	U_NONE, U_RELU, U_CLIP, U_SIGMOID, U_TANH, U_LEAKY, U_ELU, U_HSIGMOID, U_HSWISH,
	U_SWISH, U_SOFTPLUS, U_SOFTSIGN, U_ERF, U_EXP, U_LOG, U_SQRT, U_RECIPROCAL, U_ABS,
	U_NEG, U_FLOOR, U_CEIL, U_NOT,
	U_CLIP_UPPER,			/* the upper bound first, as MXNet has it */
	U_GELU, U_GELU_TANH, U_SIN, U_COS, U_SIGN, U_ROUND,
	U_TAN, U_ASIN, U_ACOS, U_ATAN, U_SINH, U_COSH, U_ASINH, U_ACOSH, U_ATANH, U_SELU, U_CELU,
	U_THRESHOLD, U_SHRINK, U_SWISH_ALPHA,
};

enum binary {
	B_ADD, B_SUB, B_MUL, B_DIV, B_POW, B_MAX, B_MIN,
	B_ADD_RELU,			/* what graph.c makes of B_ADD with U_RELU after it */
	B_EQUAL, B_LESS, B_GREATER, B_LESS_EQUAL, B_GREATER_EQUAL,	/* these give truth values */
};
enum reduce { R_SUM, R_MEAN, R_MAX, R_MIN, R_PROD, R_L1, R_SQUARES, R_L2, R_LOG_SUM, R_LOG_SUM_EXP };
enum pad_with { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP };
enum pad_mode { PAD_GIVEN, PAD_SAME_UPPER, PAD_SAME_LOWER, PAD_VALID };
enum ceil_mode { ROUND_FLOOR, ROUND_CEIL, ROUND_CEIL_IN, ROUND_SAME };
enum coord { COORD_HALF_PIXEL, COORD_PYTORCH, COORD_ALIGN, COORD_ASYMMETRIC };
enum nearest { NEAR_PREFER_FLOOR, NEAR_PREFER_CEIL, NEAR_FLOOR, NEAR_CEIL,
	       NEAR_SIMPLE };			/* before version 11: floor, or ceil if smaller */

/* All that operators have; each uses some of it.  Sizes of windows are height, width. */
struct attrs {
	unsigned int kind;			/* enum unary, binary, reduce or pad_with */
	float alpha, beta;			/* also lower and upper bound of a clip */
	int64_t axis;
	int64_t ints[SERVE_RANK];		/* axes, a permutation, a shape, starts */
	int64_t more[SERVE_RANK], steps[SERVE_RANK];	/* ends and steps of a slice */
	unsigned int nints;
	bool has_ints;
	unsigned int spatial;			/* of the window: 1 or 2 dimensions; 0: none */
	int64_t kernel[2], stride[2], dilation[2], out_pad[2];
	int64_t pad[4];				/* top, left, bottom, right */
	enum pad_mode auto_pad;
	int64_t group;
	enum ceil_mode round;
	bool max_pool, count_pad;
	bool mx_max;				/* pooling: -FLT_MAX at least, and no NaN */
	bool trans_a, trans_b;
	bool keep;				/* dimensions of 1; reduce */
	bool mx_one;				/* reduce: at least one dimension remains */
	bool flat;				/* softmax over all axes from this one */
	bool mx_last;				/* but over the last of four */
	bool zero_copy;				/* reshape: a 0 is a size of 0 */
	float eps;
	int64_t size;				/* LRN */
	float bias;
	bool linear, cubic, inside;		/* resize; inside: no weights of pixels outside */
	enum coord coord;
	enum nearest nearest;
	bool keep_scale;			/* resize: input 1 has scales; else 2: sizes */
	enum serve_type to;
	bool has_to;
	int64_t p[8];				/* OP_TABLE: numbers and texts, in the row's order */
	float f[4];				/* and fractions */
	unsigned int output, outputs;		/* which output of the operator this is, of how many */
	enum unary act;				/* fused behind OP_CONV and OP_GEMM */
	float act_alpha, act_beta;
};

#define MAX_INPUTS 64

struct packed;
struct rows;
struct oper;

struct node {
	enum op op;
	bool (*rows)(struct rows *r);		/* its rule, below; NULL: requests run alone */
	const char *type;			/* the operator's name; static */
	const struct oper *oper;		/* of OP_TABLE */
	char *name;
	struct attrs a;
	unsigned int nin;
	int *in;				/* values; -1: an input that is left out */
	int out;
	struct packed *packed;			/* A: weights as the kernels want them */
};

/* A tensor of the graph. */
struct value {
	char *name;
	enum serve_type type;
	unsigned int rank;
	int64_t dims[SERVE_RANK];		/* of constants and inputs; -1: any */
	void *data;				/* of a constant, 64-byte aligned */
	int producer;				/* a node; -1: none */
	bool bfloat;				/* FP32 here, bfloat16 in the file */
	bool unknown;				/* since pawl lacks what computes it */
};

/* What the model needs and pawl lacks, and the node that needs it. */
struct blocker {
	char *what, *node, *why;
};

struct graph {
	struct serve_model m;			/* first: what the front sees */
	char *file;
	struct value *value;
	unsigned int nvalues;
	struct node *node;			/* each behind those it uses */
	unsigned int nnodes;
	int in[MAX_IO], out[MAX_IO];
	struct serve_io in_io[MAX_IO], out_io[MAX_IO];
	bool unstated[MAX_IO];			/* outputs whose shape the file does not state */
	int64_t opset;
	struct ort_model *ort;			/* another library runs it: then there are no nodes */
	struct blocker *blocked;		/* then it does not run here */
	unsigned int nblocked;
	bool guessed;				/* it takes one of the sizes that were tried */
	bool readable;				/* it is a file of this format, and safe to pass on */
	unsigned int tiles;			/* most tiles of an operator */
	size_t limit;				/* bytes of constants, and of a slot */
	uint64_t outside;			/* bytes of constants in other files */
	char *err;
	size_t errsize;				/* only during the load */
};

/* What a slot knows of a value: its shape, and its data, if that is known before it runs. */
struct shape {
	enum serve_type type;
	unsigned int rank;
	int64_t dims[SERVE_RANK];
	void *data;
	bool owned;				/* data is to be freed */
};

/* Data in memory: strides count elements, and 0 repeats one. */
struct view {
	enum serve_type type;
	unsigned int rank;
	int64_t dims[SERVE_RANK], strides[SERVE_RANK];
	char *data;
};

static inline size_t type_size(enum serve_type type)
{
	static const unsigned char size[] = {
		[SERVE_BOOL] = 1, [SERVE_UINT8] = 1, [SERVE_UINT16] = 2, [SERVE_UINT32] = 4,
		[SERVE_UINT64] = 8, [SERVE_INT8] = 1, [SERVE_INT16] = 2, [SERVE_INT32] = 4,
		[SERVE_INT64] = 8, [SERVE_FP16] = 2, [SERVE_FP32] = 4, [SERVE_FP64] = 8,
		[SERVE_BYTES] = 0,
	};

	return size[type];
}

/* The sizes that OP_SHAPE returns: ints[0] and more[0] are the first and the end. */
static inline unsigned int shape_range(const struct attrs *a, unsigned int rank,
				       unsigned int *first)
{
	int64_t n = (int64_t)rank, from = a->ints[0], to = a->has_ints ? a->more[0] : n;

	from = from < 0 ? from + n : from;
	to = to < 0 ? to + n : to;
	from = from < 0 ? 0 : from > n ? n : from;
	to = to < from ? from : to > n ? n : to;
	*first = (unsigned int)from;
	return (unsigned int)(to - from);
}

static inline int64_t count(unsigned int rank, const int64_t *dims)
{
	int64_t n = 1;
	unsigned int i;

	for (i = 0; i < rank; i++)
		n *= dims[i];
	return n;
}

/* graph.c */
#define graph_err file_err
#define refuse(g, code, fmt, ...) \
	graph_err((g)->err, (g)->errsize, code, "%s: " fmt, (g)->file, ##__VA_ARGS__)
void *aligned(size_t bytes);			/* 64 bytes; freed with free() */
int graph_value(struct graph *g, const char *name, size_t len);	/* a new value, or -ENOMEM */
/* A new node with nin inputs, all -1, and an output of its own; NULL without memory. */
struct node *graph_node(struct graph *g, enum op op, const char *type, const char *name,
			unsigned int nin);
/* A constant of these dimensions, with memory; -EINVAL if they are too large. */
int graph_const(struct graph *g, const char *name, enum serve_type type, unsigned int rank,
		const int64_t *dims);
/*
 * Note what blocks the model, such as "operator LSTM", its name, which may be empty, and why.
 * Returns -ENOTSUP.
 */
int graph_block(struct graph *g, const char *what, const char *node, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
int graph_finish(struct graph *g);		/* when it was read */
/* An empty graph; NULL without memory.  serve_model_free() frees it. */
struct graph *graph_new(const char *name, const char *file, int64_t version, char *err,
			size_t errsize);
int dims_bytes(enum serve_type type, unsigned int rank, const int64_t *dims, size_t *bytes);

/* onnx.c, mxnet.c: fill an empty graph from files in memory, which are not kept */
int onnx_parse(struct graph *g, const void *data, size_t len);
int mxnet_parse(struct graph *g, const void *sym, size_t sym_len, const void *par,
		size_t par_len);

int onnx_type(int32_t onnx, enum serve_type *type);	/* a number of the format; onnx.c */

/*
 * guess.c: find shapes that are not stated, and what blocks all runs.  Returns whether the model
 * takes one of the sizes that are tried.
 */
bool graph_guess(struct graph *g);

/* shape.c: the output's type and shape from those of the inputs; NULL for an input left out. */
int shape_of(const struct node *n, const struct shape *const *in, struct shape *out, char *err,
	     size_t errsize);
/* The pads of a window, of which some depend on the input's size; spatial axis 0 or 1. */
void window(const struct attrs *a, unsigned int axis, int64_t in, int64_t out, int64_t *before);

/* For the kernels, when the shapes were checked: begin and step of each axis; which axes are
 * reduced; pads before and behind. */
void slice_of(const struct node *n, const struct shape *const *in, int64_t *first, int64_t *by);
void reduced_of(const struct node *n, const struct shape *const *in, bool *gone);
void pads_of(const struct node *n, const struct shape *const *in, int64_t *pads);

/*
 * The compiler makes versions of a loop for wider vectors, and the dynamic linker selects the
 * one for the processor.  Not with sanitizers, since they are not initialized yet when the
 * linker runs the function that selects.
 */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && \
	!defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define WIDE
#endif

/* kernel.c */
bool kernel_has(enum op op);			/* kernel_run() can compute it */
int kernel_run(const struct node *n, const struct view *out, const struct view *const *in);
void view_of(struct view *v, enum serve_type type, unsigned int rank, const int64_t *dims,
	     bool channels_last, void *data);
void view_copy(const struct view *out, const struct view *in);
struct view transposed(const struct node *n, const struct view *in);	/* of OP_TRANSPOSE */

/* The innermost loop: n elements of each operand; st counts elements. */
#define MAX_OPERANDS	(CHAIN_STEPS + 2)
typedef void (*inner_fn)(int64_t n, char *const *p, const int64_t *st, const void *arg);
/*
 * Call fn for all elements of v[0], to whose dimensions the others are broadcast.  The axis
 * with the smallest stride of v[0] is the innermost.
 */
void walk(unsigned int n, const struct view *const *v, inner_fn fn, const void *arg);

/*
 * rows.c: the rules of operators, by what happens to the rows of a batch.  A rule returns
 * whether each row of the output is computed from the same row of the inputs, in the same way
 * for every number of rows.
 */
bool rows_each(struct rows *r);
bool rows_images(struct rows *r);
bool rows_channels(struct rows *r);
bool rows_softmax(struct rows *r);
bool rows_gemm(struct rows *r);
bool rows_matmul(struct rows *r);
bool rows_lookup(struct rows *r);
bool rows_concat(struct rows *r);
bool rows_transpose(struct rows *r);
bool rows_reshape(struct rows *r);
bool rows_flatten(struct rows *r);
bool rows_squeeze(struct rows *r);
bool rows_slice(struct rows *r);
bool rows_pad(struct rows *r);
bool rows_expand(struct rows *r);
bool rows_fill(struct rows *r);
bool rows_shape(struct rows *r);
bool rows_gather(struct rows *r);
bool rows_reduce(struct rows *r);
bool rows_resize(struct rows *r);

/* elem.c */
void unary_run(const struct attrs *a, const struct view *out, const struct view *in);
void binary_run(unsigned int kind, const struct view *out, const struct view *a,
		const struct view *b);
void exp_row(int64_t n, float *out, const float *in, float less);	/* exp(in - less) */
void sigmoid_row(int64_t n, float *x);
void tanh_row(int64_t n, float *x);
bool chainable(const struct node *n);		/* may join a chain, if all types are float32 */

/*
 * Float32 operators that are computed together.  The operands of a step are its output and its
 * inputs: 0 is the output of the chain, positive numbers are its inputs, and negative numbers
 * are results of other steps.
 */
#define CHAIN_STEPS	16
struct chain {
	unsigned int n, nin;
	struct chain_step {
		const struct node *n;
		int operand[3];
	} step[CHAIN_STEPS];
};
void chain_run(const struct chain *c, const struct view *out, const struct view *const *in);
/* window.c */
void pool_run(const struct attrs *a, const struct view *out, const struct view *in);
void lrn_run(const struct attrs *a, const struct view *out, const struct view *in);
void resize_run(const struct attrs *a, const struct view *out, const struct view *const *in);

static inline float clampf(float x, float low, float high)
{
	/* a NaN stays one */
	x = x < low ? low : x;
	return x > high ? high : x;
}

/* onednn.c: convolution and matrix product.  A prim is one tile of an operator with its shapes;
 * run may be called by any thread, if no other runs the same prim. */
struct prim;
struct prim_spec {
	const struct node *n;
	struct packed **packed;		/* of the node; NULL: the weights are not constant */
	/* whole; weights and bias in rows; bias.data may be NULL: none */
	struct view in, out, weights, bias;
	int64_t first, last;			/* rows, or images, of the output */
	bool rows;				/* of a single image */
};

int prim_create(const struct prim_spec *spec, struct prim **out, size_t *scratch);
/* Where the whole operands lie; scratch is for this prim alone, with 64 bytes of alignment. */
int prim_bind(struct prim *p, char *in, char *out, char *weights, char *bias, char *scratch);
bool prim_fuses(enum unary act);		/* a convolution can apply it to its result */
int prim_run(struct prim *p);
void prim_destroy(struct prim *p);
void packed_free(struct packed *p);

#endif
