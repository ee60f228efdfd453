/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of libpawl_mx with bad arguments: each fails with a message and changes nothing.  The
 * test includes only installed headers.
 */
#include "mx_test.h"
#include <limits.h>
#include <pthread.h>

static NDArrayHandle array(int ndim, int64_t a, int64_t b, int dtype)
{
	const int64_t shape[] = { a, b };
	NDArrayHandle nd = NULL;

	OK(MXNDArrayCreateEx64(shape, ndim, PAWL_MX_CPU, 0, 0, dtype, &nd));
	return nd;
}

START_TEST(test_properties_need_an_array_and_room_for_the_answer)
{
	NDArrayHandle nd = array(1, 4, 0, 0), out = NULL;
	const int64_t *ls = NULL;
	const uint32_t *us = NULL;
	const int *is = NULL;
	uint32_t un = 7;
	void *p = NULL;
	int n = 7, m = 7;

	FAILS(MXNDArrayGetShape(NULL, &un, &us), "array handle is NULL");
	FAILS(MXNDArrayGetShape(nd, NULL, &us), "out is NULL");
	FAILS(MXNDArrayGetShape(nd, &un, NULL), "out is NULL");
	FAILS(MXNDArrayGetShapeEx(NULL, &n, &is), "array handle is NULL");
	FAILS(MXNDArrayGetShapeEx(nd, NULL, &is), "out is NULL");
	FAILS(MXNDArrayGetShapeEx(nd, &n, NULL), "out is NULL");
	FAILS(MXNDArrayGetShapeEx64(NULL, &n, &ls), "array handle is NULL");
	FAILS(MXNDArrayGetShapeEx64(nd, NULL, &ls), "out is NULL");
	FAILS(MXNDArrayGetShapeEx64(nd, &n, NULL), "out is NULL");
	FAILS(MXNDArrayGetData(NULL, &p), "array handle is NULL");
	FAILS(MXNDArrayGetData(nd, NULL), "out is NULL");
	FAILS(MXNDArrayGetDType(NULL, &n), "array handle is NULL");
	FAILS(MXNDArrayGetDType(nd, NULL), "out is NULL");
	FAILS(MXNDArrayGetContext(NULL, &n, &m), "array handle is NULL");
	FAILS(MXNDArrayGetContext(nd, NULL, &m), "out is NULL");
	FAILS(MXNDArrayGetContext(nd, &n, NULL), "out is NULL");
	FAILS(MXNDArrayGetStorageType(NULL, &n), "array handle is NULL");
	FAILS(MXNDArrayGetStorageType(nd, NULL), "out is NULL");
	FAILS(MXShallowCopyNDArray(NULL, &out), "array handle is NULL");
	FAILS(MXShallowCopyNDArray(nd, NULL), "out is NULL");
	FAILS(MXNDArrayCreateNone(NULL), "out is NULL");
	ck_assert_ptr_null(pawl_mx_nd_var(NULL));
	ck_assert(un == 7 && n == 7 && m == 7 && !us && !is && !ls && !p && !out);
	OK(MXNDArrayFree(nd));
}
END_TEST

START_TEST(test_an_array_without_memory_has_no_properties)
{
	NDArrayHandle none;
	int n = 7, m = 7;

	OK(MXNDArrayCreateNone(&none));
	OK(MXNDArrayGetDType(none, &n));
	ck_assert_int_eq(n, -1);
	OK(MXNDArrayGetStorageType(none, &n));
	ck_assert_int_eq(n, -1);
	OK(MXNDArrayGetContext(none, &n, &m));
	ck_assert(n == 0 && m == 0);
	ck_assert_ptr_null(pawl_mx_nd_var(none));
	OK(MXNDArrayFree(none));
}
END_TEST

START_TEST(test_views_stay_inside_the_array)
{
	const int64_t five[5] = { 1, 1, 1, 1, 1 }, many[64] = { 1 };
	int dims[] = { 3, -1 }, twice[] = { -1, -1 }, none[] = { 0, -1 }, third[] = { 3, 2, 0 };
	int many_elements[] = { INT_MAX, INT_MAX, INT_MAX };
	const int64_t too_many[] = { 1ll << 60 };
	NDArrayHandle nd = array(2, 3, 2, 0), scalar = array(0, 0, 0, 0), empty = array(1, 0, 0, 0);
	NDArrayHandle out = NULL, view;
	const int64_t *shape;
	int n;

	FAILS(MXNDArraySlice64(NULL, 0, 1, &out), "array handle is NULL");
	FAILS(MXNDArraySlice64(nd, 0, 1, NULL), "out is NULL");
	FAILS(MXNDArraySlice64(nd, -1, 1, &out), "slice -1:1 of 3");
	FAILS(MXNDArraySlice64(nd, 2, 1, &out), "slice 2:1 of 3");
	FAILS(MXNDArraySlice64(nd, 0, 4, &out), "slice 0:4 of 3");
	FAILS(MXNDArraySlice64(scalar, 0, 0, &out), "slice 0:0 of -1");
	FAILS(MXNDArrayAt64(NULL, 0, &out), "array handle is NULL");
	FAILS(MXNDArrayAt64(nd, 0, NULL), "out is NULL");
	FAILS(MXNDArrayAt64(nd, -1, &out), "index -1 of 3");
	FAILS(MXNDArrayAt64(nd, 3, &out), "index 3 of 3");
	FAILS(MXNDArrayAt64(scalar, 0, &out), "index 0 of -1");
	FAILS(MXNDArrayReshape(NULL, 2, dims, &out), "array handle is NULL");
	FAILS(MXNDArrayReshape(nd, -1, dims, &out), "reshape to -1 dimensions");
	FAILS(MXNDArrayReshape(nd, 2, twice, &out), "dimension 1 is -1");
	FAILS(MXNDArrayReshape(nd, 3, many_elements, &out), "dimension 2 is 2147483647");
	/* 0 keeps a dimension, and there is no third one */
	FAILS(MXNDArrayReshape(nd, 3, third, &out), "6 elements to 0");
	FAILS(MXNDArrayCreateEx64(too_many, 1, PAWL_MX_CPU, 0, 1, 0, &out), "dimension 0");
	FAILS(MXNDArrayCreateEx64(five, -1, PAWL_MX_CPU, 0, 0, 0, &out), "-1 dimensions");
	FAILS(MXNDArrayCreateEx64(many, 64, PAWL_MX_CPU, 0, 0, 0, &out), "64 dimensions");
	ck_assert_ptr_null(out);

	OK(MXNDArraySlice64(empty, 0, 0, &view));
	OK(MXNDArrayGetShapeEx64(view, &n, &shape));
	ck_assert(n == 1 && shape[0] == 0);
	OK(MXNDArrayFree(view));
	/* 0 keeps a dimension, and -1 means the rest, which an empty array does not have */
	OK(MXNDArrayReshape(empty, 2, none, &view));
	OK(MXNDArrayGetShapeEx64(view, &n, &shape));
	ck_assert(n == 2 && shape[0] == 0 && shape[1] == 0);
	OK(MXNDArrayFree(view));
	OK(MXNDArrayFree(empty));
	OK(MXNDArrayFree(scalar));
	OK(MXNDArrayFree(nd));
}
END_TEST

START_TEST(test_copies_need_two_arrays_of_one_form)
{
	NDArrayHandle a = array(1, 2, 0, 0), b = array(1, 3, 0, 0), c = array(2, 1, 2, 0);
	NDArrayHandle ints = array(1, 2, 0, 4);
	float in[] = { 1, 2 }, out[] = { 0, 0 };

	OK(MXNDArraySyncCopyFromCPU(a, in, 2));
	FAILS(MXNDArraySyncCopyFromCPU(NULL, in, 2), "array handle is NULL");
	FAILS(MXNDArraySyncCopyFromCPU(a, NULL, 2), "2 elements at NULL, the array has 2");
	FAILS(MXNDArraySyncCopyToCPU(NULL, out, 2), "array handle is NULL");
	FAILS(MXNDArraySyncCopyFromNDArray(NULL, a, -1), "array handle is NULL");
	FAILS(MXNDArraySyncCopyFromNDArray(a, NULL, -1), "array handle is NULL");
	FAILS(MXNDArraySyncCopyFromNDArray(a, a, 0), "no part 0");
	FAILS(MXNDArraySyncCopyFromNDArray(a, b, -1), "shapes are not the same");
	FAILS(MXNDArraySyncCopyFromNDArray(a, c, -1), "shapes are not the same");
	FAILS(MXNDArraySyncCopyFromNDArray(a, ints, -1), "type 4 to type 0");
	FAILS(MXNDArraySyncCopyFromCPU(a, in, 3), "3 elements, the array has 2");
	FAILS(MXNDArraySyncCopyFromCPU(a, NULL, 3), "3 elements at NULL, the array has 2");
	FAILS(MXNDArraySyncCopyToCPU(a, NULL, 1), "1 elements at NULL, the array has 2");
	FAILS(MXNDArraySyncCopyFromCPU(a, in, 1), "1 elements, the array has 2");
	FAILS(MXNDArraySyncCopyToCPU(a, out, 1), "1 elements, the array has 2");
	FAILS(MXNDArraySyncCopyToCPU(a, out, 3), "3 elements, the array has 2");
	FAILS(MXNDArraySyncCopyFromCPU(a, in, 0), "0 elements, the array has 2");
	FAILS(MXNDArraySyncCopyToCPU(a, NULL, 0), "0 elements at NULL, the array has 2");
	/* a copy onto itself does nothing */
	OK(MXNDArraySyncCopyFromNDArray(a, a, -1));
	OK(MXNDArraySyncCopyToCPU(a, out, 2));
	ck_assert(!memcmp(in, out, sizeof(in)));
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(b));
	OK(MXNDArrayFree(c));
	OK(MXNDArrayFree(ints));
}
END_TEST

static int dropped;

static void nothing(void *run, void *arg) { }
static void async_nothing(void *run, void *on_complete, void *arg) { }
static void start_nothing(void *run, void *on_start, void *on_complete, void *arg) { }
static void drop(void *arg) { __atomic_add_fetch(&dropped, 1, __ATOMIC_SEQ_CST); }

/* A push and a new operator refuse the same, with and without a drop. */
static void refused(struct pawl_mx_engine *e, struct pawl_mx_op *op, int rc, const char *text)
{
	struct pawl_mx_opr *opr = NULL;
	int before = dropped;

	op->drop = drop;
	REFUSED(rc, pawl_mx_push(e, op, NULL), text);
	ck_assert_int_eq(dropped, before + 1);
	REFUSED(rc, pawl_mx_opr_new(e, op, &opr), text);
	ck_assert_int_eq(dropped, before + 2);
	op->drop = NULL;
	REFUSED(rc, pawl_mx_push(e, op, NULL), text);
	REFUSED(rc, pawl_mx_opr_new(e, op, &opr), text);
	ck_assert_int_eq(dropped, before + 2);
	ck_assert_ptr_null(opr);
}

START_TEST(test_a_refused_op_has_no_effect_but_its_drop)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	struct pawl_mx_var *v, *gone, *null = NULL;
	struct pawl_mx_op op = { .ctx = cpu };
	struct pawl_mx_opr *opr = NULL;
	int i;

	OK(pawl_mx_var_new(e, &v));
	OK(pawl_mx_var_new(e, &gone));
	OK(pawl_mx_var_delete(e, gone, cpu, NULL, NULL, NULL));
	OK(pawl_mx_wait_all(e, NULL));
	refused(e, &op, -EINVAL, "the function is NULL");
	op.async = async_nothing;
	op.async_start = start_nothing;
	refused(e, &op, -EINVAL, "more than one function");
	op.sync = nothing;
	refused(e, &op, -EINVAL, "more than one function");
	op.async = NULL;
	refused(e, &op, -EINVAL, "more than one function");
	op.async_start = NULL;
	op.prop = -1;
	refused(e, &op, -EINVAL, "property -1 is unknown");
	op.prop = PAWL_NO_SKIP + 1;
	refused(e, &op, -EINVAL, "property 8 is unknown");
	op.prop = 99;
	refused(e, &op, -EINVAL, "property 99 is unknown");
	op.prop = PAWL_NORMAL;
	op.nreads = 1;
	refused(e, &op, -EINVAL, "list of const vars is NULL");
	op.nwrites = 1;		/* of two lists it is the first */
	refused(e, &op, -EINVAL, "list of const vars is NULL");
	op.nwrites = 0;
	op.reads = &null;
	refused(e, &op, -EINVAL, "const var 0 is NULL");
	op.reads = &gone;
	refused(e, &op, -ESTALE, "const var 0 was deleted");
	op.reads = &v;
	op.nwrites = 1;
	refused(e, &op, -EINVAL, "list of mutable vars is NULL");
	op.writes = &null;
	refused(e, &op, -EINVAL, "mutable var 0 is NULL");
	op.writes = &gone;
	refused(e, &op, -ESTALE, "mutable var 0 was deleted");
	op.writes = &v;
	dropped = 0;
	op.nreads = (size_t)1 << 33;
	REFUSED(-ENOMEM, pawl_mx_push(e, &op, NULL), "no memory for 8589934593 vars");
	op.drop = drop;
	REFUSED(-ENOMEM, pawl_mx_push(e, &op, NULL), "no memory for 8589934593 vars");
	ck_assert_int_eq(dropped, 1);
	op.nreads = (1u << 20) + 1;
	REFUSED(-E2BIG, pawl_mx_opr_new(e, &op, &opr), "new operator: 1048578 vars");
	op.nreads = 1u << 20;
	REFUSED(-E2BIG, pawl_mx_opr_new(e, &op, &opr), "new operator: 1048577 vars");
	op.nreads = 0;
	op.nwrites = (1u << 20) + 1;
	REFUSED(-E2BIG, pawl_mx_opr_new(e, &op, &opr), "new operator: 1048577 vars");
	ck_assert_int_eq(dropped, 4);
	ck_assert_ptr_null(opr);
	op.nwrites = 1;
	op.ctx.dev_id = -1;
	REFUSED(-EINVAL, pawl_mx_push(e, &op, NULL), "device id -1");
	op.ctx.dev_type = PAWL_MX_GPU;
	REFUSED(-ENODEV, pawl_mx_push(e, &op, NULL), "GPU is not enabled");
	ck_assert_int_eq(dropped, 6);
	for (i = 0; i < 8; i++) {
		op.ctx = (struct pawl_mx_context){ i, i == PAWL_MX_GPU ? 0 : -1 };
		if (i == PAWL_MX_CPU || i == PAWL_MX_CPU_PINNED || i == PAWL_MX_CPU_SHARED)
			REFUSED(-EINVAL, pawl_mx_push(e, &op, NULL), "device id -1");
		else if (i == PAWL_MX_GPU)
			REFUSED(-ENODEV, pawl_mx_push(e, &op, NULL), "gpu(0); the engine has 0 ");
		else
			REFUSED(-EINVAL, pawl_mx_push(e, &op, NULL), "is unknown");
	}
	dropped = 0;
	REFUSED(-EINVAL, pawl_mx_var_delete(e, NULL, cpu, nothing, NULL, drop), "it is NULL");
	ck_assert_int_eq(dropped, 1);
	REFUSED(-EINVAL, pawl_mx_wait_var(e, NULL, NULL), "the variable is NULL");
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(pawl_mx_var_version(v), 0);
	op.ctx = cpu;
	op.drop = NULL;
	OK(pawl_mx_opr_new(e, &op, &opr));
	REFUSED(-EINVAL, pawl_mx_opr_push(e, opr, (struct pawl_mx_context){ 9, 0 }, 0, NULL),
		"device type 9 is unknown");
	OK(pawl_mx_opr_delete(e, opr));
	OK(pawl_mx_var_delete(e, v, cpu, NULL, NULL, NULL));
}
END_TEST

/* Its memory is kept, so a program that still has the pointer is told so. */
START_TEST(test_a_freed_engine_refuses_every_call)
{
	struct pawl_mx_op op = { .sync = nothing, .drop = drop, .ctx = cpu };
	struct pawl_mx_engine *e, *again;
	struct pawl_mx_var *v, *w = NULL;
	struct pawl_mx_opr *opr, *other = NULL;
	void *exception = &op;

	dropped = 0;
	OK(pawl_mx_engine_free(NULL));
	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	OK(pawl_mx_var_new(e, &v));
	op.writes = &v;
	op.nwrites = 1;
	OK(pawl_mx_opr_new(e, &op, &opr));
	OK(pawl_mx_opr_push(e, opr, cpu, 0, NULL));
	OK(pawl_mx_wait_all(e, NULL));
	OK(pawl_mx_engine_free(e));
	ck_assert_int_eq(dropped, 1);
	REFUSED(-EOWNERDEAD, pawl_mx_push(e, &op, &exception), "does not exist any more");
	ck_assert_ptr_null(exception);
	ck_assert_int_eq(dropped, 2);
	REFUSED(-EOWNERDEAD, pawl_mx_opr_new(e, &op, &other), "does not exist any more");
	ck_assert_int_eq(dropped, 3);
	exception = &op;
	REFUSED(-ESTALE, pawl_mx_opr_push(e, opr, cpu, 0, &exception), "the operator was deleted");
	ck_assert_ptr_null(exception);
	REFUSED(-EOWNERDEAD, pawl_mx_var_new(e, &w), "does not exist any more");
	REFUSED(-EINVAL, pawl_mx_var_delete(e, v, cpu, nothing, NULL, drop), "delete variable");
	ck_assert_int_eq(dropped, 4);
	exception = &op;
	REFUSED(-EINVAL, pawl_mx_wait_var(e, v, &exception), "wait: the variable is");
	ck_assert_ptr_null(exception);
	exception = &op;
	REFUSED(-EOWNERDEAD, pawl_mx_wait_all(e, &exception), "does not exist any more");
	ck_assert_ptr_null(exception);
	REFUSED(-EOWNERDEAD, pawl_mx_set_bulk_size(e, 8), "does not exist any more");
	exception = &op;
	REFUSED(-EOWNERDEAD, pawl_mx_engine_stop(e, &exception), "does not exist any more");
	ck_assert_ptr_null(exception);
	REFUSED(-EOWNERDEAD, pawl_mx_engine_start(e), "does not exist any more");
	ck_assert_uint_eq(pawl_mx_var_version(v), 0);
	OK(pawl_mx_engine_free(e));
	ck_assert(!w && !other && !pawl_mx_engine_pawl(e));
	/* a new engine in its place has neither its operators nor its vars */
	OK(pawl_mx_engine_create(PAWL_MX_NAIVE, &again));
	ck_assert_ptr_eq(again, e);
	REFUSED(-ESTALE, pawl_mx_wait_var(again, v, NULL), "var");
	REFUSED(-ESTALE, pawl_mx_var_delete(again, v, cpu, nothing, NULL, drop), "var");
	REFUSED(-ESTALE, pawl_mx_push(again, &op, NULL), "var");
	ck_assert_int_eq(dropped, 6);
	REFUSED(-ESTALE, pawl_mx_opr_push(again, opr, cpu, 0, NULL), "graph");
	REFUSED(-ESTALE, pawl_mx_opr_delete(again, opr), "graph");
	OK(pawl_mx_engine_free(again));
	REFUSED(-EOWNERDEAD, pawl_mx_set_bulk_size(again, 8), "does not exist any more");
	/* the process's engine: the next call creates it again */
	e = pawl_mx_engine_get();
	OK(pawl_mx_engine_free(e));
	again = pawl_mx_engine_get();
	ck_assert_ptr_nonnull(again);
	OK(pawl_mx_var_new(again, &v));
	OK(pawl_mx_push(again, &op, NULL));
	OK(pawl_mx_wait_all(again, NULL));
	ck_assert_uint_eq(pawl_mx_var_version(v), 1);
}
END_TEST

/* While its delete waits for the ops before it; the refused one has no effect but its drop. */
START_TEST(test_a_var_is_deleted_once)
{
	struct pawl_mx_op op = { .async = hold, .ctx = cpu, .nwrites = 1 };
	struct pawl_mx_engine *e;
	struct pawl_mx_opr *opr;
	struct pawl_mx_var *v;

	dropped = holds = ran = 0;
	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	OK(pawl_mx_var_new(e, &v));
	op.writes = &v;
	OK(pawl_mx_push(e, &op, NULL));
	ck_assert(soon(is_held));
	OK(pawl_mx_var_delete(e, v, cpu, body, NULL, drop));
	ck_assert_int_eq(dropped, 0);
	REFUSED(-ESTALE, pawl_mx_var_delete(e, v, cpu, body, NULL, drop), "var");
	ck_assert_int_eq(dropped, 1);
	REFUSED(-ESTALE, pawl_mx_push(e, &op, NULL), "var");
	op.drop = drop;
	REFUSED(-ESTALE, pawl_mx_push(e, &op, NULL), "var");
	ck_assert_int_eq(dropped, 2);
	REFUSED(-ESTALE, pawl_mx_opr_new(e, &op, &opr), "var");
	ck_assert_int_eq(dropped, 3);
	REFUSED(-ESTALE, pawl_mx_wait_var(e, v, NULL), "var");
	REFUSED(-ESTALE, pawl_mx_wait_write(e, v, NULL), "var");
	REFUSED(-ESTALE, pawl_mx_var_throw(e, v, NULL), "var");
	hold_done.callback(hold_done.engine, hold_done.param, NULL);
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert(ran == 1 && dropped == 4);
	OK(pawl_mx_engine_free(e));
}
END_TEST

static void stops(void *run, void *arg)
{
	struct pawl_mx_engine *e = arg;

	if (!pawl_mx_engine_stop(e, NULL) && !pawl_mx_engine_start(e))
		__atomic_add_fetch(&dropped, 1, __ATOMIC_SEQ_CST);
}

START_TEST(test_a_stop_from_a_body_has_no_effect)
{
	struct pawl_mx_op op = { .sync = stops, .ctx = cpu };
	struct pawl_mx_engine *e;

	dropped = 0;
	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	op.arg = e;
	OK(pawl_mx_push(e, &op, NULL));
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_int_eq(dropped, 1);
	OK(pawl_mx_push(e, &op, NULL));
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_int_eq(dropped, 2);
	OK(pawl_mx_engine_free(e));
}
END_TEST

static char free_says[256];

static void frees(void *run, void *arg)
{
	int rc;

	pawl_mx_set_last_error("none");
	rc = pawl_mx_engine_free(arg);
	snprintf(free_says, sizeof(free_says), "%s", pawl_mx_last_error());
	__atomic_store_n(&dropped, rc, __ATOMIC_SEQ_CST);
}

/* The body is inside the engine, so it stays: also as the process's engine. */
START_TEST(test_an_engine_is_not_freed_from_its_body)
{
	struct pawl_mx_op op = { .sync = frees, .ctx = cpu };
	struct pawl_mx_engine *e[2];
	int i;

	e[0] = pawl_mx_engine_get();
	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e[1]));
	for (i = 0; i < 2; i++) {
		dropped = 0;
		op.arg = e[i];
		OK(pawl_mx_push(e[i], &op, NULL));
		OK(pawl_mx_wait_all(e[i], NULL));
		ck_assert_int_eq(dropped, -EDEADLK);
		ck_assert_msg(strstr(free_says, "engine_stop: ") == free_says, "%s", free_says);
	}
	ck_assert_ptr_eq(pawl_mx_engine_get(), e[0]);
	OK(pawl_mx_engine_free(e[1]));
}
END_TEST

static void fails_without_text(void *run, void *arg)
{
	pawl_mx_fail(run, NULL);
}

/* The text is for synchronous bodies; an asynchronous one fails by its completion. */
static void fails_async(void *run, void *on_complete, void *arg)
{
	pawl_mx_fail(run, "not this way");
	pawl_mx_complete(on_complete, NULL);
}

/* An empty text is an error, too.  Its argument is there until it returns, with keep alone. */
static void fails_with_nothing(void *run, void *on_complete, void *keep)
{
	int before = GET(&dropped);

	if (pawl_mx_complete(on_complete, "") || GET(&dropped) != before + !keep)
		abort();
}

START_TEST(test_the_argument_of_a_body_lives_until_its_completion_or_its_end)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	struct pawl_mx_op op = { .async = fails_with_nothing, .ctx = cpu, .drop = drop };
	int i;

	dropped = 0;
	for (i = 0; i < 300; i++) {
		op.keep = i & 1;
		op.arg = op.keep ? &op : NULL;
		OK(pawl_mx_push(e, &op, NULL));
		ck_assert_int_eq(pawl_mx_wait_all(e, NULL), -EIO);
		OK(pawl_mx_engine_stop(e, NULL));	/* the body has returned */
		OK(pawl_mx_engine_start(e));
		ck_assert_int_eq(GET(&dropped), i + 1);
	}
}
END_TEST

START_TEST(test_a_body_fails_without_a_text)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	struct pawl_mx_op op = { .sync = fails_without_text, .ctx = cpu, .nwrites = 1 };
	struct pawl_mx_var *v;

	OK(pawl_mx_var_new(e, &v));
	op.writes = &v;
	OK(pawl_mx_push(e, &op, NULL));
	REFUSED(-EIO, pawl_mx_wait_var(e, v, NULL), "failed");
	op.sync = NULL;
	op.async = fails_async;
	OK(pawl_mx_push(e, &op, NULL));
	OK(pawl_mx_wait_var(e, v, NULL));
	OK(pawl_mx_var_delete(e, v, cpu, NULL, NULL, NULL));
}
END_TEST

static void *pushes_held(void *arg)
{
	const struct pawl_mx_op op = { .async = hold, .ctx = cpu };

	return pawl_mx_push(arg, &op, NULL) ? arg : NULL;
}

/* Also while an op of another thread is in flight, so that a wait for all would not end. */
START_TEST(test_a_naive_push_returns_the_error_of_its_own_op)
{
	struct pawl_mx_op op = { .sync = fails_without_text, .ctx = cpu, .nwrites = 2 };
	struct pawl_mx_var *v[2];
	struct pawl_mx_engine *e;
	void *refusing = &op;
	pthread_t t;

	OK(pawl_mx_engine_create(PAWL_MX_NAIVE, &e));
	OK(pawl_mx_var_new(e, &v[0]));
	OK(pawl_mx_var_new(e, &v[1]));
	op.writes = v;
	holds = 0;
	REFUSED(-EIO, pawl_mx_push(e, &op, NULL), "failed");
	ck_assert(!pthread_create(&t, NULL, pushes_held, e));
	ck_assert(soon(is_held));
	REFUSED(-EIO, pawl_mx_push(e, &op, NULL), "failed");
	op.sync = nothing;
	OK(pawl_mx_push(e, &op, NULL));
	ck_assert_uint_eq(pawl_mx_var_version(v[1]), 3);
	hold_done.callback(hold_done.engine, hold_done.param, NULL);
	ck_assert(!pthread_join(t, &refusing));
	ck_assert_ptr_null(refusing);
	OK(pawl_mx_wait_all(e, NULL));
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* The array keeps the failure until it is reported, and a copy of it fails with it. */
START_TEST(test_a_copy_of_failed_data_fails)
{
	NDArrayHandle a = array(1, 2, 0, 0), b = array(1, 2, 0, 0);
	struct pawl_mx_var *v = pawl_mx_nd_var(a);
	float in[] = { 1, 2 }, out[] = { 7, 7 };

	OK(MXEnginePushSync(fails_without_text, NULL, NULL, &cpu, NULL, 0, &v, 1, NULL, 0, NULL));
	FAILS(MXNDArraySyncCopyFromCPU(a, in, 2), "failed");
	OK(MXNDArraySyncCopyFromCPU(a, in, 2));
	OK(MXEnginePushSync(fails_without_text, NULL, NULL, &cpu, NULL, 0, &v, 1, NULL, 0, NULL));
	FAILS(MXNDArraySyncCopyFromNDArray(b, a, -1), "failed");
	/* and so does one to an array whose data have failed */
	OK(MXEnginePushSyncND(fails_without_text, NULL, NULL, &cpu, NULL, 0, &b, 1, NULL, 0, NULL));
	FAILS(MXNDArraySyncCopyFromNDArray(b, a, -1), "failed");
	OK(MXNDArraySyncCopyFromNDArray(b, a, -1));
	OK(MXEnginePushSync(fails_without_text, NULL, NULL, &cpu, NULL, 0, &v, 1, NULL, 0, NULL));
	FAILS(MXNDArraySyncCopyToCPU(a, out, 2), "failed");
	ck_assert(out[0] == 7 && out[1] == 7);
	OK(MXNDArraySyncCopyToCPU(a, out, 2));
	ck_assert(!memcmp(in, out, sizeof(in)));
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(b));
}
END_TEST

/* Two views of one array share its var, so the copy is one write of it. */
START_TEST(test_views_that_overlap_are_copied_as_if_they_did_not)
{
	NDArrayHandle nd = array(1, 5, 0, 0), low, high;
	float in[] = { 1, 2, 3, 4, 5 }, out[5];

	OK(MXNDArraySyncCopyFromCPU(nd, in, 5));
	OK(MXNDArraySlice(nd, 0, 4, &low));
	OK(MXNDArraySlice(nd, 1, 5, &high));
	OK(MXNDArraySyncCopyFromNDArray(high, low, -1));
	OK(MXNDArraySyncCopyToCPU(nd, out, 5));
	ck_assert(out[0] == 1 && out[1] == 1 && out[2] == 2 && out[4] == 4);
	ck_assert_uint_eq(pawl_mx_var_version(pawl_mx_nd_var(nd)), 2);
	OK(MXNDArrayFree(low));
	OK(MXNDArrayFree(high));
	OK(MXNDArrayFree(nd));
}
END_TEST

START_TEST(test_an_operator_belongs_to_one_engine)
{
	struct pawl_mx_engine *e, *other;
	struct pawl_mx_op op = { .sync = nothing, .ctx = cpu };
	struct pawl_mx_opr *opr;

	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &other));
	OK(pawl_mx_opr_new(e, &op, &opr));
	REFUSED(-ESTALE, pawl_mx_opr_delete(other, opr), "of another engine");
	/* the failed call left it unchanged */
	OK(pawl_mx_opr_push(e, opr, cpu, 0, NULL));
	OK(pawl_mx_opr_delete(e, opr));
	REFUSED(-ESTALE, pawl_mx_opr_delete(e, opr), "delete operator: it was deleted");
	REFUSED(-ESTALE, pawl_mx_opr_push(e, opr, cpu, 0, NULL), "push: the operator was deleted");
	OK(pawl_mx_engine_free(other));
	OK(pawl_mx_engine_free(e));
}
END_TEST

START_TEST(test_an_operator_whose_var_was_deleted_is_refused)
{
	struct pawl_mx_op op = { .sync = nothing, .ctx = cpu, .nwrites = 1 };
	struct pawl_mx_engine *e;
	struct pawl_mx_opr *opr;
	struct pawl_mx_var *v;

	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	OK(pawl_mx_var_new(e, &v));
	op.writes = &v;
	OK(pawl_mx_opr_new(e, &op, &opr));
	OK(pawl_mx_var_delete(e, v, cpu, NULL, NULL, NULL));
	REFUSED(-ESTALE, pawl_mx_opr_push(e, opr, cpu, 0, NULL), "graph_push");
	OK(pawl_mx_opr_delete(e, opr));
	OK(pawl_mx_engine_free(e));
}
END_TEST

static void on_cpu3(void *run, void *param)
{
	const struct pawl_mx_run *r = run;

	if (r->ctx.dev_type == PAWL_MX_CPU && r->ctx.dev_id == 3)
		ADD(&ran, 1);
}

static void note_context(void *run, void *param)
{
	const struct pawl_mx_run *r = run;

	if (!r->stream && !r->aux_stream && !r->is_bulk)
		*(struct pawl_mx_context *)param = r->ctx;
}

static void note_context_async(void *run, void *on_complete, void *param)
{
	note_context(run, param);
	pawl_mx_complete(on_complete, NULL);
}

/* Whatever the object of the op was used for before. */
START_TEST(test_a_body_gets_the_context_of_its_push_or_its_delete)
{
	static const int types[] = { PAWL_MX_CPU, PAWL_MX_CPU_PINNED, PAWL_MX_CPU_SHARED };
	struct pawl_mx_op op = { .nwrites = 1 }, as_opr = { .sync = nothing, .ctx = cpu };
	struct pawl_mx_context ctx, got[3];
	struct pawl_mx_engine *e;
	struct pawl_mx_opr *opr;
	struct pawl_mx_var *v;
	int i, k;

	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	op.writes = &v;
	for (i = 0; i < 40; i++) {
		ctx = (struct pawl_mx_context){ types[i % 3], i };
		memset(got, 0, sizeof(got));
		OK(pawl_mx_opr_new(e, &as_opr, &opr));
		OK(pawl_mx_opr_push(e, opr, cpu, 0, NULL));
		OK(pawl_mx_opr_delete(e, opr));
		OK(pawl_mx_wait_all(e, NULL));
		OK(pawl_mx_var_new(e, &v));
		op.ctx = ctx;
		op.sync = note_context;
		op.async = NULL;
		op.arg = &got[0];
		OK(pawl_mx_push(e, &op, NULL));
		op.sync = NULL;
		op.async = note_context_async;
		op.arg = &got[1];
		OK(pawl_mx_push(e, &op, NULL));
		OK(pawl_mx_var_delete(e, v, ctx, note_context, &got[2], NULL));
		OK(pawl_mx_wait_all(e, NULL));
		for (k = 0; k < 3; k++)
			ck_assert(got[k].dev_type == ctx.dev_type && got[k].dev_id == ctx.dev_id);
	}
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* An operator is not bound to a context: each push names one. */
START_TEST(test_the_context_of_a_new_operator_does_not_count)
{
	struct pawl_mx_op op = { .sync = on_cpu3, .ctx = { 77, -1 } };
	struct pawl_mx_engine *e;
	struct pawl_mx_opr *opr;

	ran = 0;
	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	OK(pawl_mx_opr_new(e, &op, &opr));
	OK(pawl_mx_opr_push(e, opr, (struct pawl_mx_context){ PAWL_MX_CPU, 3 }, 0, NULL));
	OK(pawl_mx_opr_push(e, opr, cpu, 0, NULL));
	OK(pawl_mx_opr_delete(e, opr));
	OK(pawl_mx_engine_free(e));
	ck_assert_int_eq(ran, 1);
}
END_TEST

/* Objects of freed engines are used again, whatever was said to them. */
START_TEST(test_an_engine_runs_ops_after_another_was_shut_down)
{
	struct pawl_mx_op op = { .sync = body, .ctx = cpu };
	struct pawl_mx_engine *e;
	int i;

	ran = 0;
	for (i = 0; i < 3; i++) {
		OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
		OK(pawl_mx_push(e, &op, NULL));
		OK(pawl_mx_wait_all(e, NULL));
		ck_assert_int_eq(ran, i + 1);
		OK(pawl_mx_engine_shutdown(e));
		OK(pawl_mx_push(e, &op, NULL));
		OK(pawl_mx_engine_free(e));
		ck_assert_int_eq(ran, i + 1);
	}
}
END_TEST

START_TEST(test_resources)
{
	struct pawl_mx_resource r;
	void *space;

	REFUSED(-EINVAL, pawl_mx_resource_get(cpu, PAWL_MX_RANDOM, NULL), "out is NULL");
	REFUSED(-EINVAL, pawl_mx_resource_get(cpu, -1, &r), "type -1");
	REFUSED(-EINVAL, pawl_mx_resource_get(cpu, 99, &r), "type 99");
	OK(pawl_mx_resource_get(cpu, PAWL_MX_TEMP_SPACE, &r));
	space = pawl_mx_resource_space(&r, 100);
	ck_assert_ptr_nonnull(space);
	pawl_mx_set_last_error("none");
	ck_assert_ptr_null(pawl_mx_resource_space(&r, SIZE_MAX));
	ck_assert_ptr_nonnull(strstr(MXGetLastError(), "temporary space of"));
	/* its earlier contents are unchanged */
	ck_assert_ptr_eq(pawl_mx_resource_space(&r, 100), space);
	ck_assert_ptr_eq(pawl_mx_resource_space(&r, 0), space);
	/* the next one of the context; no bytes are a space, too */
	OK(pawl_mx_resource_get(cpu, PAWL_MX_TEMP_SPACE, &r));
	ck_assert_ptr_nonnull(pawl_mx_resource_space(&r, 0));
#if !SANITIZED	/* whose malloc() does not return */
	pawl_mx_set_last_error("none");
	ck_assert_ptr_null(pawl_mx_resource_space(&r, SIZE_MAX / 2));
	ck_assert_ptr_nonnull(strstr(MXGetLastError(), "no memory for"));
	space = pawl_mx_resource_space(&r, 8);
	ck_assert_ptr_nonnull(space);
	memset(space, 1, 8);
#endif
}
END_TEST

START_TEST(test_profiler)
{
	char longer[8192];
	const char *keys[] = { "filename", NULL }, *vals[] = { longer, "1" };
	const char *key[] = { "profile_all" }, *val[] = { NULL }, *text = NULL;

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	FAILS(MXSetProfilerConfig(-1, keys, vals), "-1 parameters");
	FAILS(MXSetProfilerConfig(1, NULL, vals), "no list of them");
	FAILS(MXSetProfilerConfig(1, keys, NULL), "no list of them");
	FAILS(MXSetProfilerConfig(1, keys, vals), "file name is too long");
	FAILS(MXSetProfilerConfig(1, keys + 1, vals + 1), "parameter 0 is NULL");
	FAILS(MXSetProfilerConfig(1, key, val), "parameter 0 is NULL");
	FAILS(MXSetProcessProfilerState(1, 1, NULL), "no server process");
	FAILS(MXDumpProcessProfile(1, 1, NULL), "no server process");
	FAILS(MXProcessProfilePause(1, 1, NULL), "no server process");
	FAILS(MXSetProfilerState(2), "state 2");
	FAILS(MXAggregateProfileStatsPrint(NULL, 0), "out_str is NULL");
	FAILS(MXAggregateProfileStatsPrintEx(&text, 0, 2, 0, 0), "profiler: ");
	FAILS(MXAggregateProfileStatsPrintEx(&text, 0, -1, 0, 0), "profiler: ");
	FAILS(MXAggregateProfileStatsPrintEx(&text, 0, 0, 5, 0), "profiler: ");
	FAILS(MXAggregateProfileStatsPrintEx(&text, 0, 0, -1, 0), "profiler: ");
	ck_assert_ptr_null(text);
}
END_TEST

SUITE("mx_refused", 50, test_properties_need_an_array_and_room_for_the_answer,
      test_an_array_without_memory_has_no_properties, test_views_stay_inside_the_array,
      test_copies_need_two_arrays_of_one_form, test_a_refused_op_has_no_effect_but_its_drop,
      test_a_freed_engine_refuses_every_call, test_a_var_is_deleted_once,
      test_a_stop_from_a_body_has_no_effect,
      test_an_engine_is_not_freed_from_its_body, test_a_body_fails_without_a_text,
      test_the_argument_of_a_body_lives_until_its_completion_or_its_end,
      test_a_naive_push_returns_the_error_of_its_own_op, test_a_copy_of_failed_data_fails,
      test_views_that_overlap_are_copied_as_if_they_did_not,
      test_an_operator_belongs_to_one_engine,
      test_an_operator_whose_var_was_deleted_is_refused,
      test_a_body_gets_the_context_of_its_push_or_its_delete,
      test_the_context_of_a_new_operator_does_not_count,
      test_an_engine_runs_ops_after_another_was_shut_down, test_resources, test_profiler)
