// SPDX-License-Identifier: Apache-2.0
/*
 * kernels.c - which library computes the layers of a network: oneDNN in its blocked layout and
 * in NHWC, XNNPACK without a thread pool, OpenBLAS with im2col.
 *
 * One thread; layers of resnet50 and mobilenet with one image.  Each round times all libraries
 * in turn, and the table has the median of the rounds in microseconds.  The program stands in
 * front of malloc() and of the calls that take locks, and counts what one run of a layer makes
 * of them.
 *
 *	make bench-serve-kernels
 */
#include <cblas.h>
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xnnpack.h>

#define ROUNDS 15

extern void omp_set_num_threads(int n);

/* One thread runs layers; others, if a library makes any, may not count. */
static _Thread_local long mallocs, locks;

void *__libc_malloc(size_t size);
void *malloc(size_t size)
{
	mallocs++;
	return __libc_malloc(size);
}

#define LOCK(name, type) \
	int name(type *l) \
	{ \
		static int (*real)(type *l); \
		if (!real) \
			*(void **)&real = dlsym(RTLD_NEXT, #name); \
		locks++; \
		return real(l); \
	}
LOCK(pthread_mutex_lock, pthread_mutex_t)
LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)

static const struct layer {
	const char *name;
	int ic, hw, oc, k, stride, pad, groups;
} layers[] = {
	{ "7x7/2 3>64 @224", 3, 224, 64, 7, 2, 3, 1 },
	{ "1x1 64>256 @56", 64, 56, 256, 1, 1, 0, 1 },
	{ "3x3 64>64 @56", 64, 56, 64, 3, 1, 1, 1 },
	{ "3x3 128>128 @28", 128, 28, 128, 3, 1, 1, 1 },
	{ "1x1 1024>256 @14", 1024, 14, 256, 1, 1, 0, 1 },
	{ "3x3 256>256 @14", 256, 14, 256, 3, 1, 1, 1 },
	{ "3x3 512>512 @7", 512, 7, 512, 3, 1, 1, 1 },
	{ "1x1 2048>512 @7", 2048, 7, 512, 1, 1, 0, 1 },
	{ "3x3 24>24 @56", 24, 56, 24, 3, 1, 1, 1 },
	{ "dw3x3 64 @112", 64, 112, 64, 3, 1, 1, 64 },
	{ "dw3x3 512 @14", 512, 14, 512, 3, 1, 1, 512 },
	{ "fc 2048>1000", 2048, 1, 1000, 1, 1, 0, 1 },
};

enum { BLOCKED, NHWC, XNN, BLAS, NKINDS };
static const char *const kinds[] = { "onednn", "onednn-nhwc", "xnnpack", "openblas" };

struct run {
	dnnl_primitive_t prim;
	dnnl_exec_arg_t args[5];
	int nargs;
	xnn_operator_t op;
	float *in, *out, *w, *bias, *cols;
	double us[ROUNDS];
	long mallocs, locks;
};

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void *need(void *p)
{
	if (!p)
		abort();
	return p;
}

static void ok(int rc, const char *what)
{
	if (rc) {
		fprintf(stderr, "kernels: %s: %d\n", what, rc);
		exit(1);
	}
}
#define OK(call) ok(call, #call)

static float *array(size_t n)
{
	float *p = need(aligned_alloc(64, (n * sizeof(float) + 4096) & ~(size_t)63));
	size_t i;

	for (i = 0; i < n + 64 / sizeof(float); i++)
		p[i] = (float)(i % 17) / 17 - 0.4f;
	return p;
}

static int out_hw(const struct layer *l)
{
	return (l->hw + 2 * l->pad - l->k) / l->stride + 1;
}

static dnnl_memory_t memory(const dnnl_memory_desc_t *md)
{
	dnnl_memory_t m;

	OK(dnnl_memory_create(&m, md, engine, array(dnnl_memory_desc_get_size(md) / 4)));
	return m;
}

static void prepare_dnnl(const struct layer *l, struct run *r, dnnl_format_tag_t tag)
{
	dnnl_dims_t id = { 1, l->ic, l->hw, l->hw }, od = { 1, l->oc, out_hw(l), out_hw(l) };
	dnnl_dims_t wd = { l->oc, l->ic, l->k, l->k }, bd = { l->oc };
	dnnl_dims_t gd = { l->groups, l->oc / l->groups, l->ic / l->groups, l->k, l->k };
	dnnl_dims_t st = { l->stride, l->stride }, pad = { l->pad, l->pad };
	dnnl_memory_desc_t in, out, w, b;
	dnnl_convolution_desc_t cd;
	dnnl_primitive_desc_t pd;
	dnnl_primitive_attr_t attr;

	OK(dnnl_memory_desc_init_by_tag(&in, 4, id, dnnl_f32, tag));
	OK(dnnl_memory_desc_init_by_tag(&out, 4, od, dnnl_f32, tag));
	if (l->groups > 1)
		OK(dnnl_memory_desc_init_by_tag(&w, 5, gd, dnnl_f32, dnnl_format_tag_any));
	else
		OK(dnnl_memory_desc_init_by_tag(&w, 4, wd, dnnl_f32, dnnl_format_tag_any));
	OK(dnnl_memory_desc_init_by_tag(&b, 1, bd, dnnl_f32, dnnl_x));
	OK(dnnl_convolution_forward_desc_init(&cd, dnnl_forward_inference,
					      dnnl_convolution_direct, &in, &w, &b, &out, st,
					      pad, pad));
	OK(dnnl_primitive_attr_create(&attr));
	OK(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
	OK(dnnl_primitive_desc_create(&pd, &cd, attr, engine, NULL));
	if (getenv("VERBOSE")) {
		const char *s;

		dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &s);
		printf("%s: %s\n", l->name, s);
	}
	OK(dnnl_primitive_create(&r->prim, pd));
#define ARG(kind, md) r->args[r->nargs++] = (dnnl_exec_arg_t){ kind, memory(md) }
	ARG(DNNL_ARG_SRC, dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0));
	ARG(DNNL_ARG_DST, dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0));
	ARG(DNNL_ARG_WEIGHTS, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
	ARG(DNNL_ARG_BIAS, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 1));
	ARG(DNNL_ARG_SCRATCHPAD, dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
}

static void prepare(const struct layer *l, struct run *r, int kind)
{
	size_t o = (size_t)out_hw(l) * (size_t)out_hw(l);
	size_t icg = (size_t)(l->ic / l->groups), kk = (size_t)(l->k * l->k);

	if (kind == BLOCKED || kind == NHWC) {
		prepare_dnnl(l, r, kind == NHWC ? dnnl_nhwc : dnnl_format_tag_any);
		return;
	}
	r->in = array((size_t)(l->ic * l->hw * l->hw));
	r->out = array((size_t)l->oc * o);
	r->w = array((size_t)l->oc * icg * kk);
	r->bias = array((size_t)l->oc);
	if (kind == BLAS) {
		r->cols = array(icg * kk * o);
		return;
	}
	OK(xnn_create_convolution2d_nhwc_f32(
		(unsigned int)l->pad, (unsigned int)l->pad, (unsigned int)l->pad,
		(unsigned int)l->pad, (unsigned int)l->k, (unsigned int)l->k,
		(unsigned int)l->stride, (unsigned int)l->stride, 1, 1, (unsigned int)l->groups,
		icg, (size_t)(l->oc / l->groups), (size_t)l->ic, (size_t)l->oc, r->w, r->bias,
		-1e30f, 1e30f, 0, &r->op));
	OK(xnn_setup_convolution2d_nhwc_f32(r->op, 1, (size_t)l->hw, (size_t)l->hw, r->in,
					    r->out, NULL));
}

static void blas(const struct layer *l, struct run *r)
{
	int o = out_hw(l), icg = l->ic / l->groups, ocg = l->oc / l->groups, g, c, y, x, i, j;
	const float *b = r->in;

	for (g = 0; g < l->groups; g++) {
		const float *in = r->in + g * icg * l->hw * l->hw;
		float *col = r->cols;

		for (c = 0; c < icg && l->k > 1; c++)
			for (i = 0; i < l->k; i++)
				for (j = 0; j < l->k; j++)
					for (y = 0; y < o; y++)
						for (x = 0; x < o; x++) {
							int h = y * l->stride + i - l->pad;
							int w = x * l->stride + j - l->pad;

							*col++ = h < 0 || w < 0 || h >= l->hw ||
								w >= l->hw ? 0 :
								in[(c * l->hw + h) * l->hw + w];
						}
		b = l->k > 1 ? r->cols : in;
		cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, ocg, o * o,
			    icg * l->k * l->k, 1, r->w + g * ocg * icg * l->k * l->k,
			    icg * l->k * l->k, b, o * o, 0, r->out + g * ocg * o * o, o * o);
	}
}

static void execute(const struct layer *l, struct run *r, int kind)
{
	if (kind == BLAS)
		blas(l, r);
	else if (kind == XNN)
		OK(xnn_run_operator(r->op, NULL));
	else
		OK(dnnl_primitive_execute(r->prim, stream, r->nargs, r->args));
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(void)
{
	unsigned int i, k, n, round;
	double sum[NKINDS] = { 0 };

	omp_set_num_threads(1);
	openblas_set_num_threads(1);
	OK(dnnl_engine_create(&engine, dnnl_cpu, 0));
	OK(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
	OK(xnn_initialize(NULL));
	printf("%-18s %8s", "layer, us", "MFLOP");
	for (k = 0; k < NKINDS; k++)
		printf(" %12s", kinds[k]);
	printf("   malloc, lock calls of a run\n");
	for (i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
		const struct layer *l = &layers[i];
		double flop =
			2.0 * out_hw(l) * out_hw(l) * l->oc * l->k * l->k * l->ic / l->groups;
		unsigned int times = flop < 2e7 ? 20 : 4;
		struct run *r = need(calloc(NKINDS, sizeof(*r)));

		for (k = 0; k < NKINDS; k++) {
			prepare(l, &r[k], (int)k);
			execute(l, &r[k], (int)k);
			r[k].mallocs = mallocs;
			r[k].locks = locks;
			execute(l, &r[k], (int)k);
			r[k].mallocs = mallocs - r[k].mallocs;
			r[k].locks = locks - r[k].locks;
		}
		for (round = 0; round < ROUNDS; round++)
			for (k = 0; k < NKINDS; k++) {
				double start = now();

				for (n = 0; n < times; n++)
					execute(l, &r[k], (int)k);
				r[k].us[round] = (now() - start) / times;
			}
		printf("%-18s %8.1f", l->name, flop / 1e6);
		for (k = 0; k < NKINDS; k++) {
			qsort(r[k].us, ROUNDS, sizeof(double), by_value);
			printf(" %12.1f", r[k].us[ROUNDS / 2]);
			sum[k] += r[k].us[ROUNDS / 2];
		}
		for (k = 0; k < NKINDS; k++)
			printf(" %ld,%ld", r[k].mallocs, r[k].locks);
		printf("\n");
		fflush(stdout);
	}
	printf("%-18s %8s", "sum", "");
	for (k = 0; k < NKINDS; k++)
		printf(" %12.1f", sum[k]);
	printf("\n");
	return 0;
}
