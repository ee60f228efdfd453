// SPDX-License-Identifier: Apache-2.0
/*
 * The C interface as a C program uses it: pushes with arrays and deleters, bad arguments,
 * arrays and their views, copies, resources, the profiler.  Only installed headers are
 * included.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <pawl/engine.h>
#include <mxnet/c_api.h>

#define ATOMIC_ADD(p, n) __atomic_add_fetch(p, n, __ATOMIC_SEQ_CST)
#define ATOMIC_GET(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define OK(call) do {								\
		int rc_ = (call);						\
										\
		ck_assert_msg(!rc_, "%s: %d %s", #call, rc_, MXGetLastError());	\
	} while (0)
#define FAILS(call, text) do {							\
		ck_assert_int_eq(call, -1);					\
		ck_assert_msg(strstr(MXGetLastError(), text) != NULL,		\
			      "\"%s\" is not in: %s", text, MXGetLastError());	\
	} while (0)

static const struct pawl_mx_context cpu = { PAWL_MX_CPU, 0 };

static int soon(int (*done)(void))
{
	const struct timespec ms = { 0, 1000000 };
	int i;

	for (i = 0; i < 60000 && !done(); i++)
		nanosleep(&ms, NULL);
	return done();
}

static NDArrayHandle array(unsigned int n)
{
	const uint32_t shape[] = { n };
	NDArrayHandle nd = NULL;

	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 0, &nd));
	return nd;
}

static uint64_t version(NDArrayHandle nd)
{
	return pawl_mx_var_version(pawl_mx_nd_var(nd));
}

/* --- bodies --- */

static int ran, deleted;

static void body(void *run, void *param)
{
	const struct pawl_mx_run *r = run;

	ck_assert_int_eq(r->ctx.dev_type, PAWL_MX_CPU);
	ck_assert_ptr_null(r->stream);
	ATOMIC_ADD(&ran, 1);
}

static void sync_nothing(void *run, void *arg) { }

static void async_body(void *run, void *on_complete, void *param)
{
	struct pawl_mx_callback done = *(struct pawl_mx_callback *)on_complete;

	ATOMIC_ADD(&ran, 1);
	done.callback(done.engine, done.param, NULL);
}

static void on_start_body(void *run, void *on_start, void *on_complete, void *param)
{
	struct pawl_mx_callback start = *(struct pawl_mx_callback *)on_start;

	start.callback(start.engine, start.param, NULL);
	async_body(run, on_complete, param);
}

static void fail_body(void *run, void *param)
{
	pawl_mx_fail(run, param);
}

static void fail_async(void *run, void *on_complete, void *param)
{
	ck_assert_int_eq(pawl_mx_complete(on_complete, param), 0);
	ck_assert_int_lt(pawl_mx_complete(on_complete, param), 0);
}

static void deleter(void *param)
{
	ck_assert_ptr_nonnull(param);
	ATOMIC_ADD(&deleted, 1);
	free(param);
}

static void fresh(void)
{
	OK(MXNDArrayWaitAll());
	ran = deleted = 0;
}

/* --- ops --- */

/* A deleter is called once, whether the push succeeds or not. */
START_TEST(test_deleter_once)
{
	NDArrayHandle a = array(1), none, bad[] = { NULL };
	struct pawl_mx_var *var = pawl_mx_nd_var(a);
	const struct pawl_mx_context gpu = { PAWL_MX_GPU, 0 }, odd = { 4, 0 };
	const int bad_prop = 77;
	int i, n = 0;

	fresh();
	OK(MXNDArrayCreateNone(&none));
	for (i = 0; i < 10; i++) {
		OK(MXEnginePushSync(body, malloc(1), deleter, &cpu, NULL, 0, &var, 1, NULL, 0, "s"));
		OK(MXEnginePushAsync(async_body, malloc(1), deleter, &cpu, &var, 1, NULL, 0,
				     NULL, 0, NULL, false));
		OK(MXEnginePushAsyncOnStart(on_start_body, malloc(1), deleter, &cpu, &var, 1,
					    NULL, 0, NULL, 0, NULL, false));
		OK(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, &a, 1, NULL, 0, NULL, 0,
				      NULL));
		OK(MXEnginePushAsyncND(async_body, malloc(1), deleter, &cpu, NULL, 0, &a, 1,
				       NULL, 0, NULL, false));
		OK(MXEnginePushAsyncNDOnStart(on_start_body, malloc(1), deleter, &cpu, NULL, 0,
					      &a, 1, NULL, 0, NULL, true));
		OK(MXEnginePushSync(fail_body, strdup("fails"), deleter, &cpu, NULL, 0, &var, 1,
				    NULL, 0, NULL));
		/* skipped */
		OK(MXEnginePushSync(body, malloc(1), deleter, &cpu, NULL, 0, &var, 1, NULL, 0,
				    NULL));
		FAILS(MXNDArrayWaitToRead(a), "fails");
		OK(MXNDArrayWaitAll());
		n += 8;
		ck_assert_int_eq(ATOMIC_GET(&deleted), n);
		/* refused */
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &cpu, &var, -1, NULL, 0, NULL,
				       0, NULL),
		      "const vars");
		FAILS(MXEnginePushAsync(async_body, malloc(1), deleter, &cpu, NULL, 0, &var, -5,
					NULL, 0, NULL, false),
		      "mutable vars");
		FAILS(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, &a, -1, NULL, 0, NULL,
					 0, NULL),
		      "const");
		FAILS(MXEnginePushAsyncND(async_body, malloc(1), deleter, &cpu, NULL, 0, &a, -1,
					  NULL, 0, NULL, false),
		      "mutable");
		FAILS(MXEnginePushSync(body, malloc(1), deleter, NULL, NULL, 0, &var, 1, NULL,
				       0, NULL),
		      "context");
		FAILS(MXEnginePushSync(NULL, malloc(1), deleter, &cpu, NULL, 0, &var, 1, NULL,
				       0, NULL),
		      "function");
		FAILS(MXEnginePushAsync(NULL, malloc(1), deleter, &cpu, NULL, 0, &var, 1, NULL,
					0, NULL, false),
		      "function");
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &cpu, NULL, 2, &var, 1, NULL,
				       0, NULL),
		      "list of const");
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &gpu, NULL, 0, &var, 1, NULL,
				       0, NULL),
		      "GPU");
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &odd, NULL, 0, &var, 1, NULL,
				       0, NULL),
		      "device type 4");
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &cpu, bad, 1, NULL, 0, NULL, 0, NULL),
		      "const var 0 is NULL");
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &cpu, NULL, 0, &var, 1,
				       &bad_prop, 0, NULL),
		      "property 77");
		FAILS(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, bad, 1, NULL, 0, NULL,
					 0, NULL),
		      "array 0 is NULL");
		FAILS(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, NULL, 0, &none, 1,
					 NULL, 0, NULL),
		      "none");
		FAILS(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, NULL, 0, NULL, 1, NULL,
					 0, NULL),
		      "list of mutable arrays is NULL");
		n += 15;
		ck_assert_int_eq(ATOMIC_GET(&deleted), n);
	}
	ck_assert_int_eq(ran, 60);
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(none));
}
END_TEST

/* Every property, and priorities; a list that is too long for the stack. */
START_TEST(test_properties)
{
	NDArrayHandle nds[200];
	int prop, i;

	fresh();
	for (i = 0; i < 200; i++)
		nds[i] = array(1);
	for (prop = 0; prop < 8; prop++) {
		OK(MXEnginePushSyncND(body, NULL, NULL, &cpu, nds, 100, nds + 100, 100, &prop,
				      prop - 3, "p"));
		OK(MXEnginePushAsyncND(async_body, NULL, NULL, &cpu, nds, 1, nds + 1, 2, &prop,
				       0, "p", prop & 1));
	}
	OK(MXNDArrayWaitAll());
	ck_assert_int_eq(ran, 16);
	ck_assert_uint_eq(version(nds[0]), 0);
	ck_assert_uint_eq(version(nds[150]), 8);
	for (i = 0; i < 200; i++)
		OK(MXNDArrayFree(nds[i]));
}
END_TEST

START_TEST(test_async_fails)
{
	NDArrayHandle a = array(1);
	static char text[] = "it did not work out";

	OK(MXEnginePushAsyncND(fail_async, text, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, "x",
			       false));
	FAILS(MXNDArrayWaitToRead(a), text);
	OK(MXNDArrayWaitToRead(a));
	OK(MXNDArrayFree(a));
}
END_TEST

START_TEST(test_bulk_size)
{
	NDArrayHandle a = array(1);
	int was = -1, i;

	fresh();
	OK(MXEngineSetBulkSize(15, &was));
	ck_assert_int_eq(was, 0);
	for (i = 0; i < 30; i++)
		OK(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, NULL, 0, &a, 1, NULL, 0, "b"));
	OK(MXNDArrayWaitToRead(a));
	ck_assert_int_eq(ran, 30);
	ck_assert_int_eq(deleted, 30);
	ck_assert_uint_eq(version(a), 2);
	OK(MXEngineSetBulkSize(0, &was));
	ck_assert_int_eq(was, 15);
	OK(MXEngineSetBulkSize(0, NULL));
	OK(MXNDArrayFree(a));
}
END_TEST

/* Names belong to the caller, who may free them when the call returns. */
START_TEST(test_names_are_copied)
{
	NDArrayHandle a = array(1);
	char name[32];
	int i;

	fresh();
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "op%d", i % 10);
		OK(MXEnginePushSyncND(body, NULL, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, name));
		memset(name, 'x', sizeof(name) - 1);
	}
	OK(MXNDArrayFree(a));
	OK(MXNDArrayWaitAll());
	ck_assert_int_eq(ran, 100);
}
END_TEST

START_TEST(test_small_calls)
{
	int n = 0;

	OK(MXGetVersion(&n));
	ck_assert_int_eq(n, 10901);
	OK(MXGetGPUCount(&n));
	ck_assert_int_eq(n, 0);
	FAILS(MXGetVersion(NULL), "NULL");
	FAILS(MXGetGPUCount(NULL), "NULL");
}
END_TEST

/* --- arrays --- */

static int fails_with(int rc, int code, const char *text)
{
	return rc == code && strstr(pawl_mx_last_error(), text);
}

/* Each is refused with a text that says what was wrong, and has no effect. */
START_TEST(test_bad_arguments)
{
	const uint32_t shape[64] = { 1 };
	struct pawl_mx_op op = { .sync = sync_nothing, .ctx = cpu };
	struct pawl_mx_engine *e;
	struct pawl_mx_opr *opr;
	NDArrayHandle nd = array(6), other;
	int dims[64] = { 2, 3 }, bad[] = { 2, -3 };

	ck_assert(fails_with(pawl_mx_engine_create(99, &e), -EINVAL, "99"));
	ck_assert(fails_with(pawl_mx_engine_create(0, NULL), -EINVAL, "NULL"));
	e = pawl_mx_engine_get();
	ck_assert(fails_with(pawl_mx_opr_push(e, NULL, cpu, 0, NULL), -EINVAL, "NULL"));
	ck_assert(fails_with(pawl_mx_opr_delete(e, NULL), -EINVAL, "NULL"));
	ck_assert_int_eq(pawl_mx_opr_new(e, &op, &opr), 0);
	ck_assert_int_eq(pawl_mx_opr_delete(e, opr), 0);
	ck_assert(fails_with(pawl_mx_complete(NULL, NULL), -EINVAL, "NULL"));
	pawl_mx_set_last_error("a text");
	ck_assert_str_eq(MXGetLastError(), "a text");
	pawl_mx_set_last_error(NULL);
	ck_assert_str_eq(MXGetLastError(), "");
	FAILS(MXNDArrayCreate(shape, 64, PAWL_MX_CPU, 0, 0, &other), "64 dimensions");
	FAILS(MXNDArrayReshape(nd, 64, dims, &other), "64 dimensions");
	FAILS(MXNDArrayReshape(nd, 2, NULL, &other), "2 dimensions");
	FAILS(MXNDArrayReshape(nd, 2, bad, &other), "dimension 1 is -3");
	FAILS(MXNDArrayReshape(nd, 2, dims, NULL), "");
	OK(MXNDArrayReshape(nd, 2, dims, &other));
	OK(MXNDArrayFree(other));
	OK(MXNDArrayFree(nd));
}
END_TEST

START_TEST(test_array)
{
	const uint32_t shape[] = { 2, 3 };
	const uint32_t *us;
	const int64_t *ls;
	const int *is;
	float in[] = { 1, 2, 3, 4, 5, 6 }, out[6], *data;
	NDArrayHandle nd;
	void *p;
	uint32_t un;
	int n, m;

	OK(MXNDArrayCreateEx(shape, 2, PAWL_MX_CPU_PINNED, 3, 1, 0, &nd));
	OK(MXNDArrayGetShape(nd, &un, &us));
	ck_assert_uint_eq(un, 2);
	ck_assert(us[0] == 2 && us[1] == 3);
	OK(MXNDArrayGetShapeEx(nd, &n, &is));
	ck_assert(n == 2 && is[0] == 2 && is[1] == 3);
	OK(MXNDArrayGetShapeEx64(nd, &n, &ls));
	ck_assert(n == 2 && ls[0] == 2 && ls[1] == 3);
	OK(MXNDArrayGetContext(nd, &n, &m));
	ck_assert(n == PAWL_MX_CPU_PINNED && m == 3);
	OK(MXNDArrayGetDType(nd, &n));
	ck_assert_int_eq(n, 0);
	OK(MXNDArrayGetStorageType(nd, &n));
	ck_assert_int_eq(n, 0);
	OK(MXNDArraySyncCopyFromCPU(nd, in, 6));
	OK(MXNDArraySyncCopyToCPU(nd, out, 6));
	ck_assert(!memcmp(in, out, sizeof(in)));
	OK(MXNDArrayGetData(nd, &p));
	data = p;
	ck_assert(data[5] == 6 && !((uintptr_t)p & 63));
	FAILS(MXNDArraySyncCopyFromCPU(nd, in, 5), "size does not match");
	FAILS(MXNDArraySyncCopyToCPU(nd, out, 7), "size does not match");
	FAILS(MXNDArraySyncCopyToCPU(nd, NULL, 6), "NULL");
	OK(MXNDArrayFree(nd));
	FAILS(MXNDArrayFree(NULL), "NULL");
	FAILS(MXNDArrayWaitToRead(NULL), "NULL");
	FAILS(MXNDArrayCreate(shape, 2, PAWL_MX_GPU, 0, 0, &nd), "GPU");
	FAILS(MXNDArrayCreate(shape, 2, PAWL_MX_CPU, 0, 0, NULL), "out is NULL");
	FAILS(MXNDArrayCreate(NULL, 2, PAWL_MX_CPU, 0, 0, &nd), "shape is NULL");
	FAILS(MXNDArrayCreate(shape, 33, PAWL_MX_CPU, 0, 0, &nd), "33 dimensions");
	FAILS(MXNDArrayCreateEx(shape, 2, PAWL_MX_CPU, 0, 0, 99, &nd), "type 99");
}
END_TEST

START_TEST(test_array_none_and_odd)
{
	const int64_t huge[] = { 1ll << 40, 1ll << 40 }, negative[] = { -2 }, empty[] = { 0, 5 };
	NDArrayHandle nd, other;
	const int *is;
	float x = 3, y = 0;
	void *p;
	int n;

	OK(MXNDArrayCreateNone(&nd));
	OK(MXNDArrayWaitToRead(nd));
	OK(MXNDArrayWaitToWrite(nd));
	OK(MXNDArrayGetShapeEx(nd, &n, &is));
	ck_assert_int_eq(n, -1);
	OK(MXNDArrayGetData(nd, &p));
	ck_assert_ptr_null(p);
	FAILS(MXNDArraySyncCopyFromCPU(nd, &x, 1), "none");
	FAILS(MXNDArraySlice(nd, 0, 0, &other), "none");
	OK(MXShallowCopyNDArray(nd, &other));
	OK(MXNDArrayFree(other));
	OK(MXNDArrayFree(nd));
	FAILS(MXNDArrayCreateEx64(huge, 2, PAWL_MX_CPU, 0, 1, 0, &nd), "dimension 1");
	FAILS(MXNDArrayCreateEx64(negative, 1, PAWL_MX_CPU, 0, 0, 0, &nd), "-2");
	OK(MXNDArrayCreateEx64(empty, 2, PAWL_MX_CPU, 0, 0, 0, &nd));
	OK(MXNDArraySyncCopyFromCPU(nd, NULL, 0));
	OK(MXNDArraySyncCopyToCPU(nd, NULL, 0));
	OK(MXNDArrayFree(nd));
	OK(MXNDArrayCreateEx64(NULL, 0, PAWL_MX_CPU, 0, 0, 0, &nd));	/* a scalar */
	OK(MXNDArraySyncCopyFromCPU(nd, &x, 1));
	OK(MXNDArraySyncCopyToCPU(nd, &y, 1));
	ck_assert(y == 3);
	OK(MXNDArrayFree(nd));
}
END_TEST

/* Views share memory and var, and keep them when the first handle goes. */
START_TEST(test_views)
{
	const uint32_t shape[] = { 4, 3 };
	int32_t in[12], out[12], new[] = { 70, 80, 90 };
	NDArrayHandle nd, slice, at, again, flat;
	int dims[] = { 0, -1, 1 }, six[] = { 6 }, i, n;
	const int *is;

	for (i = 0; i < 12; i++)
		in[i] = i;
	OK(MXNDArrayCreateEx(shape, 2, PAWL_MX_CPU, 0, 0, 4, &nd));
	OK(MXNDArraySyncCopyFromCPU(nd, in, 12));
	OK(MXNDArraySlice(nd, 1, 3, &slice));
	OK(MXNDArrayAt(slice, 1, &at));
	ck_assert_ptr_eq(pawl_mx_nd_var(at), pawl_mx_nd_var(nd));
	OK(MXNDArrayGetShapeEx(slice, &n, &is));
	ck_assert(n == 2 && is[0] == 2 && is[1] == 3);
	OK(MXNDArrayGetShapeEx(at, &n, &is));
	ck_assert(n == 1 && is[0] == 3);
	OK(MXNDArraySyncCopyFromCPU(at, new, 3));
	OK(MXNDArrayReshape(nd, 3, dims, &again));
	OK(MXNDArrayGetShapeEx(again, &n, &is));
	ck_assert(n == 3 && is[0] == 4 && is[1] == 3 && is[2] == 1);
	FAILS(MXNDArrayReshape(nd, 1, six, &flat), "reshape");
	FAILS(MXNDArraySlice(nd, 2, 5, &flat), "slice 2:5 of 4");
	FAILS(MXNDArraySlice(nd, 3, 2, &flat), "slice");
	FAILS(MXNDArrayAt(nd, 4, &flat), "index 4 of 4");
	OK(MXNDArrayFree(nd));
	OK(MXNDArrayFree(at));
	OK(MXNDArraySyncCopyToCPU(again, out, 12));
	ck_assert(out[5] == 5 && out[6] == 70 && out[8] == 90 && out[9] == 9);
	OK(MXNDArrayFree(again));
	OK(MXNDArraySyncCopyToCPU(slice, out, 6));
	ck_assert(out[0] == 3 && out[3] == 70);
	OK(MXNDArrayFree(slice));
	OK(MXNDArrayWaitAll());
}
END_TEST

static int held;
static struct pawl_mx_callback hold_done;

static void hold(void *run, void *on_complete, void *param)
{
	hold_done = *(struct pawl_mx_callback *)on_complete;
	ATOMIC_ADD(&held, 1);
}

static int is_held(void)
{
	return ATOMIC_GET(&held);
}

static void add_one(void *run, void *param)
{
	*(float *)param += 1;
}

/* The memory stays until the ops that were pushed before the free are complete. */
START_TEST(test_free_is_an_op)
{
	NDArrayHandle a = array(1);
	void *p;

	fresh();
	held = 0;
	OK(MXNDArrayGetData(a, &p));
	OK(MXEnginePushAsyncND(hold, NULL, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, "hold", false));
	OK(MXEnginePushSyncND(add_one, p, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, "add"));
	OK(MXNDArrayFree(a));
	ck_assert(soon(is_held));
	*(float *)p = 1;	/* the sanitizer would report it */
	hold_done.callback(hold_done.engine, hold_done.param, NULL);
	OK(MXNDArrayWaitAll());
}
END_TEST

/* Copies wait for the source, and later ops for the copy. */
START_TEST(test_copies)
{
	const uint32_t shape[] = { 3 };
	float in[] = { 1, 2, 3 }, out[3];
	NDArrayHandle a = array(3), b, c = array(2), d, far;
	int i;

	held = 0;
	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 5, 1, &far));
	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 1, &b));
	OK(MXNDArrayCreateEx(shape, 1, PAWL_MX_CPU, 0, 1, 4, &d));
	OK(MXNDArraySyncCopyFromCPU(a, in, 3));
	for (i = 0; i < 2; i++) {
		NDArrayHandle to = i ? far : b;

		OK(pawl_mx_nd_copy(a, to, 0));
		OK(MXNDArraySyncCopyToCPU(to, out, 3));
		ck_assert(!memcmp(in, out, sizeof(in)));
		ck_assert_uint_eq(version(to), 1);
		OK(MXNDArraySyncCopyFromNDArray(to, a, -1));
		FAILS(MXNDArraySyncCopyFromNDArray(to, a, 0), "no part 0");
	}
	OK(pawl_mx_nd_copy(a, a, 0));		/* to itself: nothing */
	ck_assert_uint_eq(version(a), 1);
	FAILS(pawl_mx_nd_copy(a, c, 0), "shapes");
	FAILS(pawl_mx_nd_copy(a, d, 0), "type 0 to type 4");
	/* behind what writes the source */
	OK(MXEnginePushAsyncND(hold, NULL, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, "hold", false));
	OK(pawl_mx_nd_copy(a, far, 5));
	ck_assert(soon(is_held));
	ck_assert_uint_eq(version(far), 2);
	hold_done.callback(hold_done.engine, hold_done.param, NULL);
	OK(MXNDArrayWaitToRead(far));
	ck_assert_uint_eq(version(far), 3);
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(b));
	OK(MXNDArrayFree(c));
	OK(MXNDArrayFree(d));
	OK(MXNDArrayFree(far));
	OK(MXNDArrayWaitAll());
}
END_TEST

/* Many threads make, use and free arrays and views of one chunk. */
static void *churn(void *arg)
{
	NDArrayHandle shared = arg, mine, views[8];
	const uint32_t shape[] = { 8, 4 };
	float x[4] = { 0 };
	int i, k;

	for (i = 0; i < 200; i++) {
		OK(MXNDArrayCreate(shape, 2, PAWL_MX_CPU, i % 3, i & 1, &mine));
		for (k = 0; k < 8; k++) {
			OK(MXNDArrayAt(k & 1 ? mine : shared, (uint32_t)k, &views[k]));
			OK(MXEnginePushSyncND(body, NULL, NULL, &cpu, NULL, 0, &views[k], 1,
					      NULL, 0, "c"));
		}
		OK(MXNDArraySyncCopyFromCPU(views[1], x, 4));
		OK(MXNDArrayFree(mine));
		for (k = 0; k < 8; k++)
			OK(MXNDArrayFree(views[k]));
	}
	return NULL;
}

START_TEST(test_churn)
{
	const uint32_t shape[] = { 8, 4 };
	NDArrayHandle shared;
	pthread_t t[4];
	int i;

	fresh();
	OK(MXNDArrayCreate(shape, 2, PAWL_MX_CPU, 0, 0, &shared));
	for (i = 0; i < 4; i++)
		ck_assert(!pthread_create(&t[i], NULL, churn, shared));
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	OK(MXNDArrayWaitAll());
	ck_assert_int_eq(ran, 4 * 200 * 8);
	ck_assert_uint_eq(version(shared), 4 * 200 * 4);
	OK(MXNDArrayFree(shared));
	OK(MXNDArrayWaitAll());
}
END_TEST

/* --- resources --- */

struct use {
	struct pawl_mx_resource r;
	size_t size;
	uint64_t got[4];
	int inside;
};

static void use_space(void *run, void *param)
{
	struct use *u = param;
	char *p = pawl_mx_resource_space(&u->r, u->size);

	/* not atomic: the var keeps others out */
	ck_assert(p && !u->inside++);
	memset(p, 1, u->size);
	u->inside--;
}

static void use_random(void *run, void *param)
{
	struct use *u = param;
	int i;

	for (i = 0; i < 4; i++)
		u->got[i] = pawl_mx_resource_random(&u->r);
}

static void random_of(struct pawl_mx_context ctx, uint64_t out[4])
{
	struct use u;

	OK(pawl_mx_resource_get(ctx, PAWL_MX_RANDOM, &u.r));
	OK(MXEnginePushSync(use_random, &u, NULL, &ctx, NULL, 0, &u.r.var, 1, NULL, 0, "r"));
	OK(MXNDArrayWaitAll());
	memcpy(out, u.got, sizeof(u.got));
}

START_TEST(test_temp_space)
{
	struct use u[8];
	struct pawl_mx_resource bad;
	int i, k;

	memset(u, 0, sizeof(u));
	for (i = 0; i < 8; i++) {
		OK(pawl_mx_resource_get(cpu, PAWL_MX_TEMP_SPACE, &u[i].r));
		ck_assert_int_eq(u[i].r.type, PAWL_MX_TEMP_SPACE);
		u[i].size = 1 + 1000u * (unsigned int)i;
	}
	/* four per context, in turn */
	ck_assert_ptr_eq(u[0].r.var, u[4].r.var);
	ck_assert_ptr_ne(u[0].r.var, u[1].r.var);
	ck_assert_ptr_ne(u[0].r.var, u[3].r.var);
	for (k = 0; k < 50; k++)
		for (i = 0; i < 8; i++)
			OK(MXEnginePushSync(use_space, &u[i], NULL, &cpu, NULL, 0, &u[i].r.var,
					    1, NULL, 0, "t"));
	OK(MXNDArrayWaitAll());
	ck_assert_int_lt(pawl_mx_resource_get(cpu, 9, &bad), 0);
	ck_assert_int_lt(pawl_mx_resource_get((struct pawl_mx_context){ PAWL_MX_GPU, 0 }, 0, &bad), 0);
}
END_TEST

START_TEST(test_random)
{
	const struct pawl_mx_context one = { PAWL_MX_CPU, 1 };
	uint64_t a[4], b[4], c[4];

	OK(MXRandomSeed(7));
	random_of(cpu, a);
	random_of(cpu, b);
	ck_assert(memcmp(a, b, sizeof(a)));
	OK(MXRandomSeed(7));
	random_of(cpu, b);
	ck_assert(!memcmp(a, b, sizeof(a)));
	/* contexts differ, unless each is seeded by name */
	random_of(one, c);
	ck_assert(memcmp(a, c, sizeof(a)));
	OK(MXRandomSeedContext(3, PAWL_MX_CPU, 0));
	OK(MXRandomSeedContext(3, PAWL_MX_CPU, 1));
	random_of(cpu, a);
	random_of(one, b);
	ck_assert_int_eq(a[0] == b[0], a[1] == b[1]);
	FAILS(MXRandomSeedContext(3, PAWL_MX_GPU, 0), "GPU");
}
END_TEST

/* --- the profiler --- */

static char *slurp(const char *path)
{
	FILE *f = fopen(path, "r");
	char *s = calloc(1, 1 << 20);
	size_t n;

	ck_assert(f && s);
	n = fread(s, 1, (1 << 20) - 1, f);
	s[n] = '\0';
	fclose(f);
	return s;
}

/* Vars and operators of another engine: refused by everything that takes them. */
START_TEST(test_var_of_another_engine_is_refused)
{
	struct pawl_mx_engine *e, *other;
	struct pawl_mx_var *v, *foreign;
	struct pawl_mx_op op = { .sync = sync_nothing, .ctx = { PAWL_MX_CPU, 0 } };
	struct pawl_mx_opr *opr;

	ck_assert_int_eq(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e), 0);
	ck_assert_int_eq(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &other), 0);
	ck_assert_int_eq(pawl_mx_var_new(e, &v), 0);
	ck_assert_int_eq(pawl_mx_var_new(other, &foreign), 0);
	op.writes = &foreign;
	op.nwrites = 1;
	ck_assert_int_eq(pawl_mx_push(e, &op, NULL), -ESTALE);
	ck_assert(strstr(pawl_mx_last_error(), "mutable var 0"));
	op.reads = &foreign;
	op.nreads = 1;
	op.writes = &v;
	ck_assert_int_eq(pawl_mx_push(e, &op, NULL), -ESTALE);
	ck_assert_int_eq(pawl_mx_opr_new(e, &op, &opr), -ESTALE);
	ck_assert_int_eq(pawl_mx_wait_var(e, foreign, NULL), -EINVAL);
	ck_assert_int_eq(pawl_mx_wait_write(e, foreign, NULL), -EINVAL);
	ck_assert_int_eq(pawl_mx_var_delete(e, foreign, op.ctx, NULL, NULL, NULL), -EINVAL);
	op.nreads = 0;
	ck_assert_int_eq(pawl_mx_opr_new(e, &op, &opr), 0);
	ck_assert_int_eq(pawl_mx_opr_push(other, opr, op.ctx, 0, NULL), -ESTALE);
	ck_assert(strstr(pawl_mx_last_error(), "the operator was deleted, or is of another"));
	ck_assert_int_eq(pawl_mx_opr_push(e, opr, op.ctx, 0, NULL), 0);
	ck_assert_int_eq(pawl_mx_wait_all(e, NULL), 0);
	ck_assert_uint_eq(pawl_mx_var_version(v), 1);
	ck_assert_uint_eq(pawl_mx_var_version(foreign), 0);
	ck_assert_int_eq(pawl_mx_opr_delete(e, opr), 0);
	ck_assert_int_eq(pawl_mx_engine_free(e), 0);
	ck_assert_int_eq(pawl_mx_engine_free(other), 0);
}
END_TEST

START_TEST(test_profiler)
{
	char path[] = "/tmp/pawl-mx-XXXXXX";
	const char *keys[] = { "filename", "profile_all", "aggregate_stats" };
	const char *vals[] = { path, "1", "1" };
	const char *odd[] = { "no_such_key" };
	NDArrayHandle a = array(1);
	struct pawl_engine *pe = pawl_mx_engine_pawl(pawl_mx_engine_get());
	bool traces = pawl_trace_start(pe, 64) == 0;
	const char *text;
	char *json;
	int i;

	if (traces)
		pawl_trace_stop(pe);
	fresh();
	close(mkstemp(path));
	OK(MXSetProfilerConfig(3, keys, vals));
	FAILS(MXSetProfilerConfig(1, odd, vals), "no_such_key");
	FAILS(MXSetProcessProfilerState(1, 1, NULL), "server");
	FAILS(MXSetProfilerState(7), "state 7");
	OK(MXSetProfilerState(1));
	/* while it adds up, nothing is gathered */
	OK(MXEngineSetBulkSize(10, NULL));
	ck_assert_int_eq(pawl_mx_bulk_size(pawl_mx_engine_get()), 0);
	for (i = 0; i < 20; i++)
		OK(MXEnginePushSyncND(body, NULL, NULL, &cpu, NULL, 0, &a, 1, NULL, 0,
				      "counted"));
	OK(MXEnginePushAsyncND(async_body, NULL, NULL, &cpu, NULL, 0, &a, 1, NULL, 0,
			       "other \"op\"", false));
	OK(MXNDArrayWaitAll());
	ck_assert_uint_eq(version(a), 21);
	OK(MXAggregateProfileStatsPrint(&text, 0));
	ck_assert(strstr(text, "counted") && strstr(text, " 20 "));
	OK(MXProfilePause(1));
	ck_assert_int_eq(pawl_mx_bulk_size(pawl_mx_engine_get()), 10);
	OK(MXEngineSetBulkSize(0, NULL));
	OK(MXEnginePushSyncND(body, NULL, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, "counted"));
	OK(MXNDArrayWaitAll());
	OK(MXProfilePause(0));
	OK(MXAggregateProfileStatsPrintEx(&text, 1, 1, 4, 0));
	ck_assert(strstr(text, "\"counted\": {\"Count\": 20,"));
	ck_assert(strstr(text, "other \\\"op\\\""));
	OK(MXAggregateProfileStatsPrint(&text, 0));
	ck_assert(!strstr(text, "counted"));
	FAILS(MXAggregateProfileStatsPrintEx(&text, 0, 3, 0, 0), "format 3");
	OK(MXSetProfilerState(0));
	if (traces) {
		OK(MXDumpProfile(1));
		json = slurp(path);
		ck_assert(json[0] == '{' || json[0] == '[');
		ck_assert(strstr(json, "counted"));
		free(json);
	}
	vals[2] = "0";
	OK(MXSetProfilerConfig(3, keys, vals));
	unlink(path);
	OK(MXNDArrayFree(a));
}
END_TEST

static void slow(void *run, void *arg)
{
	const struct timespec ms = { 0, 1000000 };

	nanosleep(&ms, NULL);
}

/* The row of an op in the profiler's JSON: Count, Total, Min, Max, Avg, in ms. */
static void profile_of(const char *text, const char *name, double row[5])
{
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "\"%s\": {", name);
	at = strstr(text, key);
	ck_assert_msg(at != NULL, "no %s in %s", name, text);
	ck_assert_int_eq(sscanf(at + strlen(key), "\"Count\": %lf, \"Total\": %lf, \"Min\": %lf, "
				"\"Max\": %lf, \"Avg\": %lf", &row[0], &row[1], &row[2], &row[3],
				&row[4]), 5);
}

START_TEST(test_profiler_has_the_least_and_the_longest_time_and_names_copies_as_mxnet_does)
{
	const char *keys[] = { "aggregate_stats" }, *on[] = { "1" }, *off[] = { "0" };
	const uint32_t shape[] = { 3 };
	NDArrayHandle a = array(3), b = array(3), far;
	double row[5];
	const char *text;
	int i;

	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 5, 0, &far));
	OK(MXSetProfilerConfig(1, keys, on));
	OK(MXSetProfilerState(1));
	for (i = 0; i < 3; i++)
		OK(MXEnginePushSyncND(slow, NULL, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, "slow"));
	OK(pawl_mx_nd_copy(a, b, 0));
	OK(pawl_mx_nd_copy(a, far, 0));
	OK(MXNDArrayWaitAll());
	OK(MXAggregateProfileStatsPrintEx(&text, 1, 1, 0, 0));
	profile_of(text, "slow", row);
	ck_assert(row[0] == 3);
	ck_assert(row[2] >= 1 && row[2] <= row[4] && row[4] <= row[3] && row[3] <= row[1]);
	/* between devices, and on one */
	profile_of(text, "CopyTo", row);
	ck_assert(row[0] == 1);
	profile_of(text, "CopyCPU2CPU", row);
	ck_assert(row[0] == 1);
	OK(MXSetProfilerState(0));
	OK(MXSetProfilerConfig(1, keys, off));
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(b));
	OK(MXNDArrayFree(far));
}
END_TEST

/* Several threads ask first for the resources of a context: they get the same. */
static pthread_barrier_t together;
static int first_context;

static void *asks_first(void *arg)
{
	struct pawl_mx_resource r;
	struct pawl_mx_var **var = arg;
	int i;

	for (i = 0; i < 30; i++) {
		const struct pawl_mx_context ctx = { PAWL_MX_CPU, first_context + i };

		pthread_barrier_wait(&together);
		OK(pawl_mx_resource_get(ctx, PAWL_MX_RANDOM, &r));
		var[i] = r.var;
	}
	return NULL;
}

START_TEST(test_a_context_has_one_set_of_resources_whoever_asks_first)
{
	struct pawl_mx_var *var[4][30];
	pthread_t t[4];
	int i, k;

	first_context = 20;
	ck_assert_int_eq(pthread_barrier_init(&together, NULL, 4), 0);
	for (k = 0; k < 4; k++)
		ck_assert_int_eq(pthread_create(&t[k], NULL, asks_first, var[k]), 0);
	for (k = 0; k < 4; k++)
		pthread_join(t[k], NULL);
	for (i = 0; i < 30; i++)
		for (k = 1; k < 4; k++)
			ck_assert_ptr_eq(var[k][i], var[0][i]);
	pthread_barrier_destroy(&together);
}
END_TEST

/* The memory of an array with delay_alloc is allocated when it is first used. */
static NDArrayHandle delayed;

static void *asks_for_memory(void *arg)
{
	void *p = NULL;

	pthread_barrier_wait(&together);
	OK(MXNDArrayGetData(delayed, &p));
	return p;
}

START_TEST(test_an_array_has_one_memory_whoever_uses_it_first)
{
	const uint32_t shape[] = { 1000 };
	pthread_t t[4];
	void *p, *q;
	int i, k;

	ck_assert_int_eq(pthread_barrier_init(&together, NULL, 4), 0);
	for (i = 0; i < 200; i++) {
		OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 1, &delayed));
		for (k = 0; k < 4; k++)
			ck_assert_int_eq(pthread_create(&t[k], NULL, asks_for_memory, NULL), 0);
		OK(MXNDArrayGetData(delayed, &p));
		for (k = 0; k < 4; k++) {
			pthread_join(t[k], &q);
			ck_assert_ptr_eq(p, q);
		}
		OK(MXNDArrayFree(delayed));
	}
	pthread_barrier_destroy(&together);
}
END_TEST

/* A program of its own, whose op is never completed; it ends by exit(). */
#define EXIT_CHILD "PAWL_TEST_EXIT_CHILD"

static int exit_child(void)
{
	const uint32_t shape[] = { 1 };
	NDArrayHandle a;

	alarm(40);	/* which an exit that waits for the op would meet */
	return MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 0, &a) ||
	       MXEnginePushAsyncND(hold, NULL, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, "hold", false) ||
	       !soon(is_held);
}

START_TEST(test_a_program_ends_although_an_op_is_never_completed)
{
	int status = -1;
	pid_t pid;

	ck_assert_int_eq(setenv(EXIT_CHILD, "1", 1), 0);
	pid = fork();
	if (!pid) {
		/* What the op has is not freed. */
		setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
		execl("/proc/self/exe", "test_mx_capi", (char *)NULL);
		_exit(127);
	}
	ck_assert_int_eq(unsetenv(EXIT_CHILD), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* Last: nothing but deletes runs any more. */
START_TEST(test_shutdown)
{
	NDArrayHandle a = array(1);

	fresh();
	OK(MXNotifyShutdown());
	OK(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, NULL, 0, &a, 1, NULL, 0, "s"));
	OK(MXNDArrayWaitAll());
	ck_assert_int_eq(ran, 0);
	ck_assert_int_eq(deleted, 1);
	OK(MXNDArrayFree(a));
	OK(MXNDArrayWaitAll());
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		test_deleter_once, test_properties, test_async_fails, test_bulk_size,
		test_names_are_copied, test_small_calls, test_bad_arguments, test_array, test_array_none_and_odd,
		test_views, test_free_is_an_op, test_copies, test_churn, test_temp_space,
		test_random, test_var_of_another_engine_is_refused, test_profiler,
		test_profiler_has_the_least_and_the_longest_time_and_names_copies_as_mxnet_does,
		test_a_context_has_one_set_of_resources_whoever_asks_first,
		test_an_array_has_one_memory_whoever_uses_it_first,
		test_a_program_ends_although_an_op_is_never_completed, test_shutdown,
	};
	Suite *s = suite_create("mx_capi");
	TCase *tc = tcase_create("mx_capi");
	SRunner *r;
	unsigned int i;
	int failed;

	if (getenv(EXIT_CHILD))
		return exit_child();
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
