// SPDX-License-Identifier: Apache-2.0
/*
 * onednn.c - convolution and matrix product, by oneDNN.
 *
 * A prim is one tile of an operator with its shapes.  Data of convolutions has the channels
 * last.  Constant weights are packed as oneDNN requires, once for all slots whose prims have
 * the same layout: the node has a list of them, which grows by a compare-and-swap, and is freed
 * with the model.
 *
 * oneDNN was built with OpenMP.  Each thread sets its number of OpenMP threads to one before
 * its first call, so that a prim runs on the calling thread alone.  It takes no lock.  It calls
 * malloc() for its table of arguments, seven small pieces per call, which the C library serves
 * from the cache of the thread.
 */
#include <errno.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "guard.h"

extern void omp_set_num_threads(int n);

struct packed {
	struct packed *next;
	dnnl_memory_desc_t md;
	dnnl_memory_t mem;
	void *data;
};

enum { IN, OUT, WEIGHTS, BIAS, SCRATCH, NARGS };

struct prim {
	dnnl_primitive_t prim;
	dnnl_stream_t stream;
	dnnl_memory_t mem[NARGS];		/* NULL: none; WEIGHTS: not ours if packed */
	bool packed;
	dnnl_exec_arg_t args[NARGS];
	int nargs;
	size_t in_off, out_off;			/* of the tile, in bytes */
};

#define CACHED 128				/* primitives of all models */

static dnnl_engine_t engine;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_engine(void)
{
	if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
		engine = NULL;
	/* equal layers share primitives, which can have some 300 KB of code */
	if (!getenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY"))
		dnnl_set_primitive_cache_capacity(CACHED);
}

void serve_cache_empty(void)
{
	int n;

	if (dnnl_get_primitive_cache_capacity(&n) != dnnl_success)
		return;
	dnnl_set_primitive_cache_capacity(0);
	dnnl_set_primitive_cache_capacity(n);
}

static void one_thread(void)
{
	static _Thread_local bool done;

	if (!done) {
		omp_set_num_threads(1);
		done = true;
	}
}

static int error_of(dnnl_status_t st)
{
	return st == dnnl_success ? 0 : st == dnnl_out_of_memory ? -ENOMEM :
		st == dnnl_unimplemented ? -ENOTSUP : -EINVAL;
}

#define TRY(call) do { \
		dnnl_status_t st_ = (call); \
		if (st_ != dnnl_success) \
			return error_of(st_); \
	} while (0)

/* ---- packed weights --------------------------------------------------------- */

void packed_free(struct packed *p)
{
	struct packed *next;

	for (; p; p = next) {
		next = p->next;
		dnnl_memory_destroy(p->mem);
		free(p->data);
		free(p);
	}
}

static int reorder(dnnl_memory_t from, const dnnl_memory_desc_t *from_md, dnnl_memory_t to,
		   const dnnl_memory_desc_t *to_md)
{
	dnnl_exec_arg_t args[] = { { DNNL_ARG_FROM, from }, { DNNL_ARG_TO, to } };
	dnnl_primitive_desc_t pd;
	dnnl_primitive_t prim;
	dnnl_stream_t stream;
	dnnl_status_t st;

	TRY(dnnl_reorder_primitive_desc_create(&pd, from_md, engine, to_md, engine, NULL));
	st = dnnl_primitive_create(&prim, pd);
	dnnl_primitive_desc_destroy(pd);
	TRY(st);
	st = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
	if (st == dnnl_success) {
		st = dnnl_primitive_execute(prim, stream, 2, args);
		dnnl_stream_destroy(stream);
	}
	dnnl_primitive_destroy(prim);
	return error_of(st);
}

static int pack(struct packed **list, const dnnl_memory_desc_t *plain, char *data,
		const dnnl_memory_desc_t *want, dnnl_memory_t *out)
{
	struct packed *p, *head = load_acquire(list);	/* SERVE-K1 <-> SERVE-K2 */
	dnnl_memory_t from;
	int rc;

	for (p = head; p; p = p->next)
		if (dnnl_memory_desc_equal(&p->md, want)) {
			*out = p->mem;
			return 0;
		}
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->md = *want;
	p->data = aligned(dnnl_memory_desc_get_size(want));
	rc = p->data ? error_of(dnnl_memory_create(&p->mem, want, engine, p->data)) : -ENOMEM;
	if (!rc) {
		rc = error_of(dnnl_memory_create(&from, plain, engine, data));
		if (!rc) {
			rc = reorder(from, plain, p->mem, want);
			dnnl_memory_destroy(from);
		}
	}
	if (rc) {
		if (p->mem)
			dnnl_memory_destroy(p->mem);
		free(p->data);
		free(p);
		return rc;
	}
	/* Another thread may have packed the same: then there are two, and both are freed. */
	do {
		p->next = head;
	} while (!cas_acq_rel_acquire(list, &head, p));	/* SERVE-K2 <-> SERVE-K1 */
	*out = p->mem;
	return 0;
}

/* ---- what is fused ---------------------------------------------------------- */

static const dnnl_alg_kind_t fused[] = {
	[U_RELU] = dnnl_eltwise_relu, [U_CLIP] = dnnl_eltwise_clip,
	[U_SIGMOID] = dnnl_eltwise_logistic, [U_TANH] = dnnl_eltwise_tanh,
	[U_LEAKY] = dnnl_eltwise_relu, [U_ELU] = dnnl_eltwise_elu,
	[U_HSWISH] = dnnl_eltwise_hardswish, [U_SWISH] = dnnl_eltwise_swish,
};

bool prim_fuses(enum unary act)
{
	return act < sizeof(fused) / sizeof(fused[0]) && fused[act] != dnnl_alg_kind_undef;
}

static int attributes(const struct attrs *a, dnnl_primitive_attr_t *attr)
{
	dnnl_post_ops_t ops;
	dnnl_status_t st;

	TRY(dnnl_primitive_attr_create(attr));
	st = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
	if (st == dnnl_success && a->act) {
		st = dnnl_post_ops_create(&ops);
		if (st == dnnl_success) {
			st = dnnl_post_ops_append_eltwise(ops, 1, fused[a->act],
				a->act == U_RELU ? 0 : a->act == U_SWISH ? 1 : a->act_alpha,
				a->act == U_CLIP ? a->act_beta : 0);
			if (st == dnnl_success)
				st = dnnl_primitive_attr_set_post_ops(*attr, ops);
			dnnl_post_ops_destroy(ops);
		}
	}
	if (st != dnnl_success)
		dnnl_primitive_attr_destroy(*attr);
	return error_of(st);
}

/* ---- prims ------------------------------------------------------------------ */

struct plan {
	dnnl_memory_desc_t in, out, bias, plain, any;	/* plain: the weights as they are */
	const dnnl_memory_desc_t *has_bias;
};

static int md_of(dnnl_memory_desc_t *md, const struct view *v, unsigned int rank)
{
	dnnl_dims_t dims = { 0 }, strides = { 0 };
	unsigned int i, gap = rank - v->rank;

	for (i = 0; i < rank; i++) {
		dims[i] = i < gap ? 1 : v->dims[i - gap];
		strides[i] = i < gap ? (v->rank ? v->dims[0] * v->strides[0] : 1) :
			v->strides[i - gap];
	}
	return error_of(
		dnnl_memory_desc_init_by_strides(md, (int)rank, dims, dnnl_f32, strides));
}

/* A tile of a tensor with the channels last: rows of one image, or images. */
static int tile_md(dnnl_memory_desc_t *md, const struct view *v, bool flat, bool rows,
		   int64_t first, int64_t n, size_t *off)
{
	dnnl_dims_t dims = { v->dims[0], v->dims[1], flat ? 1 : v->dims[2],
			     v->dims[flat ? 2 : 3] };

	dims[rows ? flat ? 3 : 2 : 0] = n;
	*off = (size_t)(first * (rows ? v->strides[2] : v->strides[0])) * sizeof(float);
	return error_of(dnnl_memory_desc_init_by_tag(md, 4, dims, dnnl_f32, dnnl_nhwc));
}

/*
 * One spatial dimension: oneDNN is told that it is the width, along which its kernels keep
 * several outputs in registers.  With the channels last, a width of 1 changes nothing in memory.
 */
static bool is_flat(const struct prim_spec *s)
{
	int64_t left;

	if (s->in.rank == 3)
		return true;
	if (s->n->op != OP_CONV || s->in.dims[3] != 1 || s->out.dims[3] != 1 ||
	    s->weights.dims[3] != 1)
		return false;
	window(&s->n->a, 1, 1, 1, &left);
	return !left;
}

static int plan_conv(const struct prim_spec *s, struct prim *p, struct plan *pl,
		     dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd)
{
	struct attrs own = s->n->a, *a = &own;
	bool deconv = s->n->op == OP_DECONV, flat = is_flat(s);
	unsigned int x = flat ? 0 : 1;		/* which entry of the attributes is the width */
	unsigned int r = !x;			/* which axis has the rows of the picture */
	int64_t size[] = { flat ? 1 : s->in.dims[2], s->in.dims[flat ? 2 : 3] };
	int64_t osize[] = { flat ? 1 : s->out.dims[2], s->out.dims[flat ? 2 : 3] };
	int64_t kh = flat ? 1 : s->weights.dims[2], kw = s->weights.dims[2 + x];
	dnnl_dims_t stride = { flat ? 1 : a->stride[0], a->stride[x] };
	dnnl_dims_t dilation = { flat ? 0 : a->dilation[0] - 1, a->dilation[x] - 1 };
	dnnl_dims_t before = { 0 }, behind = { 0 }, wd = { 0 }, bd = { s->out.dims[1] };
	int64_t g = a->group, oc = s->out.dims[1], ic = s->in.dims[1], first, last;
	int64_t span[] = { (kh - 1) * (dilation[0] + 1) + 1,
			   (kw - 1) * (dilation[1] + 1) + 1 };
	unsigned int i = 0;
	dnnl_convolution_desc_t cd;
	dnnl_deconvolution_desc_t dd;
	dnnl_dims_t ws = { 0 };
	int rc;

	a->kernel[0] = s->weights.dims[2];
	a->kernel[1] = s->weights.rank > 3 ? s->weights.dims[3] : 1;
	if (deconv) {
		before[0] = flat ? 0 : a->pad[0];
		before[1] = a->pad[x];
		behind[0] = flat ? 0 : a->pad[2] - a->out_pad[0];
		behind[1] = a->pad[x + 2] - a->out_pad[x];
	} else {
		if (!flat)
			window(a, 0, size[0], osize[0], &before[0]);
		window(a, x, size[1], osize[1], &before[1]);
		for (i = 0; i < 2; i++)
			behind[i] = (osize[i] - 1) * stride[i] + span[i] - size[i] - before[i];
	}
	first = s->first;
	last = s->last;
	rc = tile_md(&pl->out, &s->out, flat, s->rows, first, last - first, &p->out_off);
	if (rc)
		return rc;
	if (s->rows) {
		/* The rows that these rows depend on, and how much of the padding. */
		first = first * stride[r] - before[r];
		last = (last - 1) * stride[r] - before[r] + span[r];
		before[r] = first < 0 ? -first : 0;
		behind[r] = last > size[r] ? last - size[r] : 0;
		first = first < 0 ? 0 : first;
		last = last > size[r] ? size[r] : last;
		if (first >= last)
			return -ENOTSUP;
	}
	rc = tile_md(&pl->in, &s->in, flat, s->rows, first, last - first, &p->in_off);
	if (rc)
		return rc;
	/* Weights are [groups] output input height width; those of a deconvolution begin with
	   the input.  Strides say so. */
	i = 0;
	if (g > 1)
		wd[i++] = g;
	wd[i++] = oc / g;
	wd[i++] = ic / g;
	wd[i++] = kh;
	wd[i++] = kw;
	ws[i - 1] = 1;
	ws[i - 2] = kw;
	ws[i - 3] = deconv ? kh * kw * (oc / g) : kh * kw;
	ws[i - 4] = deconv ? kh * kw : kh * kw * (ic / g);
	if (g > 1)
		ws[0] = kh * kw * (ic / g) * (oc / g);
	TRY(dnnl_memory_desc_init_by_strides(&pl->plain, (int)i, wd, dnnl_f32, ws));
	if (s->packed)
		TRY(dnnl_memory_desc_init_by_tag(&pl->any, (int)i, wd, dnnl_f32,
						 dnnl_format_tag_any));
	else
		pl->any = pl->plain;
	if (s->bias.data) {
		TRY(dnnl_memory_desc_init_by_tag(&pl->bias, 1, bd, dnnl_f32, dnnl_x));
		pl->has_bias = &pl->bias;
	}
	if (deconv) {
		TRY(dnnl_dilated_deconvolution_forward_desc_init(&dd, dnnl_forward_inference,
			dnnl_deconvolution_direct, &pl->in, &pl->any, pl->has_bias, &pl->out,
			stride, dilation, before, behind));
		TRY(dnnl_primitive_desc_create(pd, &dd, attr, engine, NULL));
	} else {
		TRY(dnnl_dilated_convolution_forward_desc_init(
			&cd, dnnl_forward_inference, dnnl_convolution_direct, &pl->in, &pl->any,
			pl->has_bias, &pl->out, stride, dilation, before, behind));
		TRY(dnnl_primitive_desc_create(pd, &cd, attr, engine, NULL));
	}
	return 0;
}

static void swap_last(struct view *v)
{
	int64_t d = v->dims[v->rank - 1], s = v->strides[v->rank - 1];

	v->dims[v->rank - 1] = v->dims[v->rank - 2];
	v->strides[v->rank - 1] = v->strides[v->rank - 2];
	v->dims[v->rank - 2] = d;
	v->strides[v->rank - 2] = s;
}

static int plan_matmul(const struct prim_spec *s, struct prim *p, struct plan *pl,
		       dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd)
{
	struct view in = s->in, out = s->out, w = s->weights;
	unsigned int rank;
	dnnl_matmul_desc_t md;
	int rc;

	if (s->n->op == OP_GEMM || w.rank == 2) {
		/* all rows of the input in one matrix, and a part of them */
		int64_t k = in.dims[in.rank - 1], n = out.dims[out.rank - 1];
		int64_t m[] = { count(in.rank - 1, in.dims), k };
		int64_t o[] = { count(out.rank - 1, out.dims), n };

		if (s->n->a.trans_a) {
			view_of(&in, SERVE_FP32, 2, in.dims, false, in.data);
			swap_last(&in);
		} else {
			view_of(&in, SERVE_FP32, 2, m, false, in.data);
		}
		view_of(&out, SERVE_FP32, 2, o, false, out.data);
		p->in_off = (size_t)(s->first * in.strides[0]) * sizeof(float);
		p->out_off = (size_t)(s->first * out.strides[0]) * sizeof(float);
		in.dims[0] = out.dims[0] = s->last - s->first;
	}
	if (s->n->a.trans_b)
		swap_last(&w);
	rank = out.rank;
	rc = md_of(&pl->in, &in, rank);
	if (!rc)
		rc = md_of(&pl->out, &out, rank);
	if (!rc)
		rc = md_of(&pl->plain, &w, rank);
	pl->any = pl->plain;
	if (!rc && s->packed)
		rc = error_of(dnnl_memory_desc_init_by_tag(&pl->any, (int)rank, pl->plain.dims,
							   dnnl_f32, dnnl_format_tag_any));
	if (!rc && s->bias.data) {
		rc = md_of(&pl->bias, &s->bias, rank);
		pl->has_bias = &pl->bias;
	}
	if (rc)
		return rc;
	TRY(dnnl_matmul_desc_init(&md, &pl->in, &pl->any, pl->has_bias, &pl->out));
	TRY(dnnl_primitive_desc_create(pd, &md, attr, engine, NULL));
	return 0;
}

static int add(struct prim *p, int which, int arg, const dnnl_memory_desc_t *md)
{
	TRY(dnnl_memory_create(&p->mem[which], md, engine, DNNL_MEMORY_NONE));
	p->args[p->nargs++] = (dnnl_exec_arg_t){ arg, p->mem[which] };
	return 0;
}

static int fill_prim(const struct prim_spec *s, struct prim *p, const struct plan *pl,
		     dnnl_primitive_desc_t pd, size_t *scratch)
{
	const dnnl_memory_desc_t *w, *sc;
	int rc;

	w = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
	sc = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
	*scratch = dnnl_memory_desc_get_size(sc);
	rc = error_of(dnnl_primitive_create(&p->prim, pd));
	if (!rc)
		rc = error_of(
			dnnl_stream_create(&p->stream, engine, dnnl_stream_default_flags));
	if (!rc)
		rc = add(p, IN, DNNL_ARG_SRC, &pl->in);
	if (!rc)
		rc = add(p, OUT, DNNL_ARG_DST, &pl->out);
	if (!rc && s->bias.data)
		rc = add(p, BIAS, DNNL_ARG_BIAS, &pl->bias);
	if (!rc && *scratch)
		rc = add(p, SCRATCH, DNNL_ARG_SCRATCHPAD, sc);
	if (!rc && !s->packed)
		rc = add(p, WEIGHTS, DNNL_ARG_WEIGHTS, &pl->plain);
	if (!rc && s->packed) {
		rc = pack(s->packed, &pl->plain, s->weights.data, w, &p->mem[WEIGHTS]);
		if (!rc) {
			p->packed = true;
			p->args[p->nargs++] =
				(dnnl_exec_arg_t){ DNNL_ARG_WEIGHTS, p->mem[WEIGHTS] };
		}
	}
	return rc;
}

static int create(const struct prim_spec *s, struct prim **out, size_t *scratch)
{
	bool matrix = s->n->op == OP_GEMM || s->n->op == OP_MATMUL;
	struct prim *p = calloc(1, sizeof(*p));
	dnnl_primitive_attr_t attr;
	dnnl_primitive_desc_t pd;
	struct plan pl = { .has_bias = NULL };
	int rc;

	*scratch = 0;
	if (!p)
		return -ENOMEM;
	*out = p;
	if (!count(s->out.rank, s->out.dims))
		return 0;			/* nothing to compute */
	pthread_once(&once, make_engine);
	one_thread();
	rc = engine ? attributes(&s->n->a, &attr) : -ENOMEM;
	if (!rc) {
		rc = matrix ? plan_matmul(s, p, &pl, attr, &pd) :
			      plan_conv(s, p, &pl, attr, &pd);
		dnnl_primitive_attr_destroy(attr);
	}
	if (!rc) {
		rc = fill_prim(s, p, &pl, pd, scratch);
		dnnl_primitive_desc_destroy(pd);
	}
	if (rc) {
		prim_destroy(p);
		*out = NULL;
	}
	return rc;
}

struct creation {
	const struct prim_spec *s;
	struct prim **out;
	size_t *scratch;
};

static int create_guarded(void *arg)
{
	struct creation *c = arg;

	return create(c->s, c->out, c->scratch);
}

int prim_create(const struct prim_spec *s, struct prim **out, size_t *scratch)
{
	struct creation c = { s, out, scratch };
	int rc;

	*out = NULL;
	rc = guard(create_guarded, &c);
	if (rc)
		*out = NULL;
	return rc;
}

int prim_bind(struct prim *p, char *in, char *out, char *weights, char *bias, char *scratch)
{
	if (!p->prim)
		return 0;
	TRY(dnnl_memory_set_data_handle(p->mem[IN], in + p->in_off));
	TRY(dnnl_memory_set_data_handle(p->mem[OUT], out + p->out_off));
	if (p->mem[BIAS])
		TRY(dnnl_memory_set_data_handle(p->mem[BIAS], bias));
	if (p->mem[SCRATCH])
		TRY(dnnl_memory_set_data_handle(p->mem[SCRATCH], scratch));
	if (!p->packed)
		TRY(dnnl_memory_set_data_handle(p->mem[WEIGHTS], weights));
	return 0;
}

static int execute(void *arg)
{
	struct prim *p = arg;

	TRY(dnnl_primitive_execute(p->prim, p->stream, p->nargs, p->args));
	return 0;
}

int prim_run(struct prim *p)
{
	one_thread();
	if (!p->prim)
		return 0;
	return guard(execute, p);
}

void prim_destroy(struct prim *p)
{
	int i;

	if (!p)
		return;
	for (i = 0; i < NARGS; i++)
		if (p->mem[i] && (i != WEIGHTS || !p->packed))
			dnnl_memory_destroy(p->mem[i]);
	if (p->stream)
		dnnl_stream_destroy(p->stream);
	if (p->prim)
		dnnl_primitive_destroy(p->prim);
	free(p);
}
