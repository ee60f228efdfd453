// SPDX-License-Identifier: Apache-2.0
/*
 * A small NDArray: dense memory on a CPU context, with a var.
 *
 * Structures: a chunk is the memory and its var; its references are the arrays that use it.
 * An array is a shape, a type and an offset.  A handle points to a pointer to the array:
 * in C this is the first field of the array itself, in C++ the only field of an object, so
 * both are valid handles (<pawl/mx_engine.hpp>).
 *
 * Ordering: COMPAT-A1 (memory of a delayed chunk, CAS) <-> COMPAT-A2 (memory found).
 *   COMPAT-A3 (chunk's reference dropped) <-> COMPAT-A3 of the others: all ops that they
 *   pushed come before the delete op.
 *
 * Lifetime: the last reference pushes the var's delete op, which frees the memory after all
 * ops that were pushed before.
 */
#include <stdlib.h>
#include <compat/engine.h>
#include <compat/ndarray.h>
#include <pawl/mx_c_api.h>

struct chunk {
	u32 refs;		/* A */
	struct pawl_mx_engine *engine;	/* I */
	struct pawl_mx_var *var;	/* I */
	struct pawl_mx_context ctx;	/* I */
	size_t bytes;		/* I */
	void *data;		/* A: NULL until it is needed, if delayed */
};

struct nd {
	struct nd *self;	/* the field that a handle points to */
	struct chunk *chunk;	/* NULL: no memory */
	int ndim;
	int dtype;
	size_t offset;		/* bytes */
	size_t size;		/* elements */
	int64_t *shape;		/* three copies, one for each width that callers use */
	int *shape32;
	uint32_t *ushape32;
};

static struct nd *nd_of(NDArrayHandle handle)
{
	struct nd *nd = handle ? *(struct nd **)handle : NULL;

	if (!nd)
		mx_err(-1, "the array handle is NULL");
	return nd;
}

/* Like nd_of(), for an array that must have memory. */
static struct nd *nd_some(NDArrayHandle handle)
{
	struct nd *nd = nd_of(handle);

	if (nd && !nd->chunk) {
		mx_err(-1, "the array is none");
		return NULL;
	}
	return nd;
}

static size_t type_size(int dtype)
{
	/* float32, float64, float16, uint8, int32, int8, int64, bool, int16, uint16, uint32,
	   uint64, bfloat16 */
	static const unsigned char sizes[] = { 4, 8, 2, 1, 4, 1, 8, 1, 2, 2, 4, 8, 2 };

	return dtype >= 0 && dtype < (int)ARRAY_SIZE(sizes) ? sizes[dtype] : 0;
}

/* --- chunks --- */

static void chunk_free(struct chunk *c)
{
	free(load_relaxed(&c->data));
	free(c);
}

static void chunk_delete(void *run, void *arg)
{
	chunk_free(arg);
}

static void chunk_put(struct chunk *c)
{
	/* If the delete is refused for lack of memory, the data stay: ops may use them. */
	if (fetch_add_acq_rel(&c->refs, -1u) == 1)	/* COMPAT-A3 <-> COMPAT-A3 */
		pawl_mx_var_delete(c->engine, c->var, c->ctx, chunk_delete, c, NULL);
}

static void *chunk_data(struct chunk *c)
{
	void *p = load_acquire(&c->data), *new;	/* COMPAT-A2 <-> COMPAT-A1 */
	size_t room = (c->bytes + 63) & ~(size_t)63;

	if (p)
		return p;
	new = aligned_alloc(64, room ? room : 64);
	if (!new) {
		mx_err(-1, "no memory for an array of %zu bytes", c->bytes);
		return NULL;
	}
	if (cas_acq_rel_acquire(&c->data, &p, new))	/* COMPAT-A1 <-> COMPAT-A2 */
		return new;
	free(new);
	return p;
}

static struct chunk *chunk_new(struct pawl_mx_context ctx, size_t bytes, bool delay)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	struct pawl_device dev;
	struct chunk *c;

	if (!e || mx_ctx_cpu(e, ctx, &dev))
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c) {
		mx_err(-1, "no memory for an array");
		return NULL;
	}
	c->refs = 1;
	c->engine = e;
	c->ctx = ctx;
	c->bytes = bytes;
	if ((!delay && !chunk_data(c)) || pawl_mx_var_new(e, &c->var)) {
		chunk_free(c);
		return NULL;
	}
	return c;
}

static char *nd_data(struct nd *nd)
{
	char *p = chunk_data(nd->chunk);

	return p ? p + nd->offset : NULL;
}

static size_t nd_bytes(const struct nd *nd)
{
	return nd->size * type_size(nd->dtype);
}

/* --- shapes --- */

/* Create an array with this shape, still without memory. */
static struct nd *nd_new(const int64_t *shape, int ndim, int dtype)
{
	struct nd *nd;
	size_t size = 1;
	int i;

	if (ndim < 0 || ndim > MX_NDIM) {
		mx_err(-1, "%d dimensions, at most %d", ndim, MX_NDIM);
		return NULL;
	}
	if (!type_size(dtype)) {
		mx_err(-1, "type %d is unknown", dtype);
		return NULL;
	}
	for (i = 0; i < ndim; i++) {
		if (shape[i] < 0 || __builtin_mul_overflow(size, (size_t)shape[i], &size) ||
		    size > SIZE_MAX / 64) {
			mx_err(-1, "dimension %d of the shape is %lld", i, (long long)shape[i]);
			return NULL;
		}
	}
	nd = calloc(1, sizeof(*nd) + (size_t)ndim * 16);
	if (!nd) {
		mx_err(-1, "no memory for an array");
		return NULL;
	}
	nd->self = nd;
	nd->ndim = ndim;
	nd->dtype = dtype;
	nd->size = size;
	nd->shape = (int64_t *)(void *)(nd + 1);
	nd->shape32 = (int *)(void *)(nd->shape + ndim);
	nd->ushape32 = (uint32_t *)(void *)(nd->shape32 + ndim);
	for (i = 0; i < ndim; i++) {
		nd->shape[i] = shape[i];
		nd->shape32[i] = (int)shape[i];
		nd->ushape32[i] = (uint32_t)shape[i];
	}
	return nd;
}

/* Create another array on the memory of this one. */
static int nd_view(struct nd *of, const int64_t *shape, int ndim, size_t skip,
		   NDArrayHandle *out)
{
	struct nd *nd = nd_new(shape, ndim, of->dtype);

	if (!nd)
		return -1;
	nd->chunk = of->chunk;
	nd->offset = of->offset + skip * type_size(of->dtype);
	fetch_add_relaxed(&nd->chunk->refs, 1);
	*out = nd;
	return 0;
}

static int bad_out(const void *out)
{
	return out ? 0 : mx_err(-1, "out is NULL");
}

/* --- create, free --- */

int MXNDArrayCreateNone(NDArrayHandle *out)
{
	struct nd *nd;

	if (bad_out(out))
		return -1;
	nd = nd_new(NULL, 0, 0);
	if (!nd)
		return -1;
	nd->size = 0;
	*out = nd;
	return 0;
}
PAWL_EXPORT(MXNDArrayCreateNone);

int MXNDArrayCreateEx64(const int64_t *shape, int ndim, int dev_type, int dev_id,
			int delay_alloc, int dtype, NDArrayHandle *out)
{
	struct pawl_mx_context ctx = { dev_type, dev_id };
	struct nd *nd;

	if (bad_out(out))
		return -1;
	if (ndim > 0 && !shape)
		return mx_err(-1, "the shape is NULL");
	nd = nd_new(shape, ndim, dtype);
	if (!nd)
		return -1;
	nd->chunk = chunk_new(ctx, nd_bytes(nd), delay_alloc);
	if (!nd->chunk) {
		free(nd);
		return -1;
	}
	*out = nd;
	return 0;
}
PAWL_EXPORT(MXNDArrayCreateEx64);

int MXNDArrayCreateEx(const uint32_t *shape, uint32_t ndim, int dev_type, int dev_id,
		      int delay_alloc, int dtype, NDArrayHandle *out)
{
	int64_t wide[MX_NDIM];
	uint32_t i;

	if (ndim > MX_NDIM)
		return mx_err(-1, "%u dimensions, at most %d", ndim, MX_NDIM);
	for (i = 0; shape && i < ndim; i++)
		wide[i] = shape[i];
	return MXNDArrayCreateEx64(shape ? wide : NULL, (int)ndim, dev_type, dev_id, delay_alloc,
				   dtype, out);
}
PAWL_EXPORT(MXNDArrayCreateEx);

int MXNDArrayCreate(const uint32_t *shape, uint32_t ndim, int dev_type, int dev_id,
		    int delay_alloc, NDArrayHandle *out)
{
	return MXNDArrayCreateEx(shape, ndim, dev_type, dev_id, delay_alloc, 0, out);
}
PAWL_EXPORT(MXNDArrayCreate);

/* handle: the result of a create or a view call, not the address of a C++ object. */
int MXNDArrayFree(NDArrayHandle handle)
{
	struct nd *nd = nd_of(handle);

	if (!nd)
		return -1;
	if (nd->chunk)
		chunk_put(nd->chunk);
	free(nd);
	return 0;
}
PAWL_EXPORT(MXNDArrayFree);

/* --- properties --- */

struct pawl_mx_var *pawl_mx_nd_var(void *handle)
{
	struct nd *nd = handle ? *(struct nd **)handle : NULL;

	return nd && nd->chunk ? nd->chunk->var : NULL;
}
PAWL_EXPORT(pawl_mx_nd_var);

int MXNDArrayGetShape(NDArrayHandle handle, uint32_t *out_dim, const uint32_t **out_pdata)
{
	struct nd *nd = nd_of(handle);

	if (!nd || bad_out(out_dim) || bad_out(out_pdata))
		return -1;
	*out_dim = (uint32_t)nd->ndim;
	*out_pdata = nd->ushape32;
	return 0;
}
PAWL_EXPORT(MXNDArrayGetShape);

/* As in MXNet, an array created by MXNDArrayCreateNone() has -1 dimensions here. */
int MXNDArrayGetShapeEx(NDArrayHandle handle, int *out_dim, const int **out_pdata)
{
	struct nd *nd = nd_of(handle);

	if (!nd || bad_out(out_dim) || bad_out(out_pdata))
		return -1;
	*out_dim = nd->chunk ? nd->ndim : -1;
	*out_pdata = nd->shape32;
	return 0;
}
PAWL_EXPORT(MXNDArrayGetShapeEx);

int MXNDArrayGetShapeEx64(NDArrayHandle handle, int *out_dim, const int64_t **out_pdata)
{
	struct nd *nd = nd_of(handle);

	if (!nd || bad_out(out_dim) || bad_out(out_pdata))
		return -1;
	*out_dim = nd->chunk ? nd->ndim : -1;
	*out_pdata = nd->shape;
	return 0;
}
PAWL_EXPORT(MXNDArrayGetShapeEx64);

int MXNDArrayGetData(NDArrayHandle handle, void **out_pdata)
{
	struct nd *nd = nd_of(handle);

	if (!nd || bad_out(out_pdata))
		return -1;
	*out_pdata = nd->chunk ? nd_data(nd) : NULL;
	return nd->chunk && !*out_pdata ? -1 : 0;
}
PAWL_EXPORT(MXNDArrayGetData);

int MXNDArrayGetDType(NDArrayHandle handle, int *out_dtype)
{
	struct nd *nd = nd_of(handle);

	if (!nd || bad_out(out_dtype))
		return -1;
	*out_dtype = nd->chunk ? nd->dtype : -1;
	return 0;
}
PAWL_EXPORT(MXNDArrayGetDType);

int MXNDArrayGetContext(NDArrayHandle handle, int *out_dev_type, int *out_dev_id)
{
	struct nd *nd = nd_of(handle);

	if (!nd || bad_out(out_dev_type) || bad_out(out_dev_id))
		return -1;
	*out_dev_type = nd->chunk ? nd->chunk->ctx.dev_type : 0;
	*out_dev_id = nd->chunk ? nd->chunk->ctx.dev_id : 0;
	return 0;
}
PAWL_EXPORT(MXNDArrayGetContext);

int MXNDArrayGetStorageType(NDArrayHandle handle, int *out_storage_type)
{
	struct nd *nd = nd_of(handle);

	if (!nd || bad_out(out_storage_type))
		return -1;
	*out_storage_type = nd->chunk ? 0 : -1;	/* dense, or undefined */
	return 0;
}
PAWL_EXPORT(MXNDArrayGetStorageType);

/* --- views --- */

int MXNDArraySlice64(NDArrayHandle handle, int64_t begin, int64_t end, NDArrayHandle *out)
{
	struct nd *nd = nd_some(handle);
	int64_t shape[MX_NDIM];

	if (!nd || bad_out(out))
		return -1;
	if (!nd->ndim || begin < 0 || begin > end || end > nd->shape[0])
		return mx_err(-1, "slice %lld:%lld of %lld", (long long)begin, (long long)end,
			      nd->ndim ? (long long)nd->shape[0] : -1ll);
	memcpy(shape, nd->shape, (size_t)nd->ndim * sizeof(*shape));
	shape[0] = end - begin;
	return nd_view(nd, shape, nd->ndim,
		       nd->shape[0] ? nd->size / (size_t)nd->shape[0] * (size_t)begin : 0, out);
}
PAWL_EXPORT(MXNDArraySlice64);

int MXNDArraySlice(NDArrayHandle handle, uint32_t begin, uint32_t end, NDArrayHandle *out)
{
	return MXNDArraySlice64(handle, begin, end, out);
}
PAWL_EXPORT(MXNDArraySlice);

int MXNDArrayAt64(NDArrayHandle handle, int64_t idx, NDArrayHandle *out)
{
	struct nd *nd = nd_some(handle);
	int64_t one = 1;

	if (!nd || bad_out(out))
		return -1;
	if (!nd->ndim || idx < 0 || idx >= nd->shape[0])
		return mx_err(-1, "index %lld of %lld", (long long)idx,
			      nd->ndim ? (long long)nd->shape[0] : -1ll);
	/* As in MXNet, an element of a one-dimensional array is an array with one element. */
	return nd_view(nd, nd->ndim > 1 ? nd->shape + 1 : &one, nd->ndim > 1 ? nd->ndim - 1 : 1,
		       nd->size / (size_t)nd->shape[0] * (size_t)idx, out);
}
PAWL_EXPORT(MXNDArrayAt64);

int MXNDArrayAt(NDArrayHandle handle, uint32_t idx, NDArrayHandle *out)
{
	return MXNDArrayAt64(handle, idx, out);
}
PAWL_EXPORT(MXNDArrayAt);

int MXNDArrayReshape(NDArrayHandle handle, int ndim, int *dims, NDArrayHandle *out)
{
	struct nd *nd = nd_some(handle);
	int64_t shape[MX_NDIM];
	size_t known = 1;
	int i, open = -1;

	if (!nd || bad_out(out))
		return -1;
	if (ndim < 0 || ndim > MX_NDIM || (ndim && !dims))
		return mx_err(-1, "reshape to %d dimensions", ndim);
	for (i = 0; i < ndim; i++) {
		shape[i] = dims[i] == 0 && i < nd->ndim ? nd->shape[i] : dims[i];
		if (shape[i] == -1 && open < 0)
			open = i;
		else if (shape[i] < 0 ||
			 __builtin_mul_overflow(known, (size_t)shape[i], &known))
			return mx_err(-1, "reshape: dimension %d is %d", i, dims[i]);
	}
	if (open >= 0) {
		shape[open] = known ? (int64_t)(nd->size / known) : 0;
		known *= (size_t)shape[open];
	}
	if (known != nd->size)
		return mx_err(-1, "reshape: %zu elements to %zu", nd->size, known);
	return nd_view(nd, shape, ndim, 0, out);
}
PAWL_EXPORT(MXNDArrayReshape);

int MXShallowCopyNDArray(NDArrayHandle src, NDArrayHandle *out)
{
	struct nd *nd = nd_of(src);

	if (!nd || bad_out(out))
		return -1;
	return nd->chunk ? nd_view(nd, nd->shape, nd->ndim, 0, out) : MXNDArrayCreateNone(out);
}
PAWL_EXPORT(MXShallowCopyNDArray);

/* --- copies --- */

struct copy {
	void *to;
	const void *from;
	size_t bytes;
};

static void copy_body(void *run, void *arg)
{
	struct copy *c = arg;

	if (c->bytes)
		memmove(c->to, c->from, c->bytes);	/* two views may overlap */
}

static int copy_push(struct nd *to, const void *from, size_t bytes,
		     struct pawl_mx_var *from_var, int prop, int priority, const char *name)
{
	struct copy *c = pawl_mx_room_get();
	struct pawl_mx_op op = { .sync = copy_body, .arg = c, .drop = pawl_mx_room_put,
				 .prop = prop, .priority = priority, .name = name,
				 .ctx = to->chunk->ctx, .writes = &to->chunk->var, .nwrites = 1,
				 .reads = &from_var, .nreads = !!from_var };

	if (!c)
		return mx_err(-1, "no memory for a copy");
	c->to = nd_data(to);
	c->from = from;
	c->bytes = bytes;
	if (!c->to) {
		pawl_mx_room_put(c);
		return -1;
	}
	return pawl_mx_push(to->chunk->engine, &op, NULL) ? -1 : 0;
}

int MXNDArraySyncCopyFromCPU(NDArrayHandle handle, const void *data, size_t size)
{
	struct nd *nd = nd_some(handle);

	if (!nd)
		return -1;
	if (size != nd->size || (size && !data))
		return mx_err(-1, "memory size does not match: %zu elements%s, the array has %zu",
			      size, data ? "" : " at NULL", nd->size);
	if (copy_push(nd, data, nd_bytes(nd), NULL, PAWL_NORMAL, 0, "SyncCopyCPU2CPU"))
		return -1;
	return pawl_mx_wait_var(nd->chunk->engine, nd->chunk->var, NULL) ? -1 : 0;
}
PAWL_EXPORT(MXNDArraySyncCopyFromCPU);

int MXNDArraySyncCopyToCPU(NDArrayHandle handle, void *data, size_t size)
{
	struct nd *nd = nd_some(handle);
	const char *from;

	if (!nd)
		return -1;
	if (size != nd->size || (size && !data))
		return mx_err(-1, "memory size does not match: %zu elements%s, the array has %zu",
			      size, data ? "" : " at NULL", nd->size);
	if (pawl_mx_wait_var(nd->chunk->engine, nd->chunk->var, NULL))
		return -1;
	from = nd_data(nd);
	if (!from)
		return -1;
	if (size)
		memcpy(data, from, nd_bytes(nd));
	return 0;
}
PAWL_EXPORT(MXNDArraySyncCopyToCPU);

int pawl_mx_nd_copy(void *from_handle, void *to_handle, int priority)
{
	struct nd *from = nd_some(from_handle), *to = nd_some(to_handle);
	struct pawl_mx_context a, b;
	const char *data;
	int prop = PAWL_NORMAL;

	if (!from || !to)
		return -1;
	if (from->ndim != to->ndim ||
	    memcmp(from->shape, to->shape, (size_t)to->ndim * sizeof(*to->shape)))
		return mx_err(-1, "copy: the shapes are not the same");
	if (from->dtype != to->dtype)
		return mx_err(-1, "copy: type %d to type %d", from->dtype, to->dtype);
	if (from->chunk == to->chunk && from->offset == to->offset)
		return 0;
	data = nd_data(from);
	if (!data)
		return -1;
	a = from->chunk->ctx;
	b = to->chunk->ctx;
	if (a.dev_type != b.dev_type || a.dev_id != b.dev_id)
		prop = PAWL_COPY_TO_DEVICE;
	return copy_push(to, data, nd_bytes(to),
			 from->chunk == to->chunk ? NULL : from->chunk->var, prop, priority,
			 prop ? "CopyTo" : "CopyCPU2CPU");
}
PAWL_EXPORT(pawl_mx_nd_copy);

int MXNDArraySyncCopyFromNDArray(NDArrayHandle dst, const NDArrayHandle src, const int i)
{
	struct chunk *c;

	if (i >= 0)
		return mx_err(-1, "a dense array has no part %d", i);
	if (pawl_mx_nd_copy(src, dst, 0))
		return -1;
	c = nd_of(dst)->chunk;
	return pawl_mx_wait_var(c->engine, c->var, NULL) ? -1 : 0;
}
PAWL_EXPORT(MXNDArraySyncCopyFromNDArray);

/* --- waits --- */

int MXNDArrayWaitToRead(NDArrayHandle handle)
{
	struct nd *nd = nd_of(handle);

	if (!nd)
		return -1;
	return nd->chunk && pawl_mx_wait_var(nd->chunk->engine, nd->chunk->var, NULL) ? -1 : 0;
}
PAWL_EXPORT(MXNDArrayWaitToRead);

int MXNDArraySyncCheckFormat(NDArrayHandle handle, const bool full_check)
{
	return MXNDArrayWaitToWrite(handle);
}
PAWL_EXPORT(MXNDArraySyncCheckFormat);

int MXNDArrayWaitToWrite(NDArrayHandle handle)
{
	struct nd *nd = nd_of(handle);

	if (!nd)
		return -1;
	return nd->chunk && pawl_mx_wait_write(nd->chunk->engine, nd->chunk->var, NULL) ? -1 : 0;
}
PAWL_EXPORT(MXNDArrayWaitToWrite);

int MXNDArrayWaitAll(void)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();

	return e && !pawl_mx_wait_all(e, NULL) ? 0 : -1;
}
PAWL_EXPORT(MXNDArrayWaitAll);
