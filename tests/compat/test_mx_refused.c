/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of libpawl_mx with bad arguments: each fails with a message and changes nothing.  The
 * test includes only installed headers.
 */
#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <pawl/engine.h>
#include <mxnet/c_api.h>

#define OK(call) do {								\
		int rc_ = (call);						\
										\
		ck_assert_msg(!rc_, "%s: %d %s", #call, rc_, MXGetLastError());	\
	} while (0)
#define REFUSED(rc, call, text) do {						\
		pawl_mx_set_last_error("none");					\
		ck_assert_int_eq(call, rc);					\
		ck_assert_msg(strstr(MXGetLastError(), text) != NULL,		\
			      "\"%s\" is not in: %s", text, MXGetLastError());	\
	} while (0)
#define FAILS(call, text) REFUSED(-1, call, text)

static const struct pawl_mx_context cpu = { PAWL_MX_CPU, 0 };

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
	int dims[] = { 3, -1 }, twice[] = { -1, -1 }, none[] = { 0, -1 };
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
static void drop(void *arg) { __atomic_add_fetch(&dropped, 1, __ATOMIC_SEQ_CST); }

START_TEST(test_a_refused_op_has_no_effect_but_its_drop)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	struct pawl_mx_var *v, *null = NULL;
	struct pawl_mx_op op = { .drop = drop, .ctx = cpu };
	struct pawl_mx_opr *opr = NULL;

	OK(pawl_mx_var_new(e, &v));
	REFUSED(-EINVAL, pawl_mx_push(e, &op, NULL), "the function is NULL");
	op.sync = nothing;
	op.async = async_nothing;
	REFUSED(-EINVAL, pawl_mx_push(e, &op, NULL), "more than one function");
	op.async = NULL;
	op.prop = -1;
	REFUSED(-EINVAL, pawl_mx_push(e, &op, NULL), "property -1 is unknown");
	op.prop = 99;
	REFUSED(-EINVAL, pawl_mx_push(e, &op, NULL), "property 99 is unknown");
	op.prop = PAWL_NORMAL;
	op.nreads = 1;
	REFUSED(-EINVAL, pawl_mx_push(e, &op, NULL), "list of const vars is NULL");
	op.reads = &null;
	REFUSED(-EINVAL, pawl_mx_push(e, &op, NULL), "const var 0 is NULL");
	op.reads = &v;
	op.nwrites = 1;
	REFUSED(-EINVAL, pawl_mx_push(e, &op, NULL), "list of mutable vars is NULL");
	op.writes = &null;
	REFUSED(-EINVAL, pawl_mx_push(e, &op, NULL), "mutable var 0 is NULL");
	ck_assert_int_eq(dropped, 8);
	op.writes = &v;
	op.nreads = (1u << 20) + 1;
	REFUSED(-E2BIG, pawl_mx_opr_new(e, &op, &opr), "new operator: 1048578 vars");
	ck_assert_int_eq(dropped, 9);
	ck_assert_ptr_null(opr);
	REFUSED(-EINVAL, pawl_mx_var_delete(e, NULL, cpu, nothing, NULL, drop), "it is NULL");
	ck_assert_int_eq(dropped, 10);
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(pawl_mx_var_version(v), 0);
	OK(pawl_mx_var_delete(e, v, cpu, NULL, NULL, NULL));
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
	OK(pawl_mx_engine_free(other));
	OK(pawl_mx_engine_free(e));
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

int main(void)
{
	const TTest *const tests[] = {
		test_properties_need_an_array_and_room_for_the_answer,
		test_an_array_without_memory_has_no_properties,
		test_views_stay_inside_the_array, test_copies_need_two_arrays_of_one_form,
		test_a_refused_op_has_no_effect_but_its_drop,
		test_an_operator_belongs_to_one_engine, test_resources, test_profiler,
	};
	Suite *s = suite_create("mx_refused");
	TCase *tc = tcase_create("mx_refused");
	SRunner *r;
	unsigned int i;
	int failed;

	tcase_set_timeout(tc, 50);
	for (i = 0; i < sizeof(tests) / sizeof(*tests); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
