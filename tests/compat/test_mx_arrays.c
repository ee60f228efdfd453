/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of the C interface, their views, copies and memory, and the resources of a context:
 * temporary space and random numbers.
 */
#include "mx_meanwhile.h"
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

/* --- arrays --- */

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

/* What is at this byte of the array. */
static char *at_byte(NDArrayHandle nd, size_t i)
{
	void *p = NULL;

	OK(MXNDArrayGetData(nd, &p));
	return (char *)p + i;
}

/* Views and copies are in elements, whatever their type is. */
START_TEST(test_elements_of_each_type_have_its_size)
{
	static const size_t sizes[] = { 4, 8, 2, 1, 4, 1, 8, 1, 2, 2, 4, 8, 2 };
	enum { TYPES = sizeof(sizes) / sizeof(*sizes) };
	const int64_t shape[] = { 4, 3 };
	char in[12 * 8], out[12 * 8 + 1];
	NDArrayHandle nd, to, view[5];
	int type, got, i, n;
	const int64_t *ls;

	for (type = 0; type < TYPES; type++) {
		const size_t size = sizes[type];

		for (i = 0; i < (int)sizeof(in); i++)
			in[i] = (char)(i + type);
		OK(MXNDArrayCreateEx64(shape, 2, PAWL_MX_CPU, 0, type & 1, type, &nd));
		OK(MXNDArrayCreateEx64(shape, 2, PAWL_MX_CPU, 0, type & 1, type, &to));
		OK(MXNDArraySyncCopyFromCPU(nd, in, 12));
		memset(out, 77, sizeof(out));
		OK(MXNDArraySyncCopyToCPU(nd, out, 12));
		ck_assert(!memcmp(in, out, 12 * size) && out[12 * size] == 77);
		ck_assert_uint_ge(malloc_usable_size(at_byte(nd, 0)), 12 * size);
		/* rows 1 to 3; of these row 1, of which element 2, and the same as a slice */
		OK(MXNDArraySlice64(nd, 1, 4, &view[0]));
		OK(MXNDArrayAt64(view[0], 1, &view[1]));
		OK(MXNDArrayAt64(view[1], 2, &view[2]));
		OK(MXNDArraySlice64(view[1], 2, 3, &view[3]));
		OK(MXShallowCopyNDArray(view[2], &view[4]));
		ck_assert_ptr_eq(at_byte(view[0], 0), at_byte(nd, 3 * size));
		ck_assert_ptr_eq(at_byte(view[1], 0), at_byte(nd, 6 * size));
		for (i = 2; i < 5; i++) {
			ck_assert_ptr_eq(at_byte(view[i], 0), at_byte(nd, 8 * size));
			OK(MXNDArrayGetShapeEx64(view[i], &n, &ls));
			ck_assert(n == 1 && ls[0] == 1);
		}
		memset(out, 77, sizeof(out));
		OK(MXNDArraySyncCopyToCPU(view[4], out, 1));
		ck_assert(!memcmp(in + 8 * size, out, size) && out[size] == 77);
		for (i = 0; i < 5; i++) {
			OK(MXNDArrayGetDType(view[i], &got));
			ck_assert_int_eq(got, type);
			OK(MXNDArrayFree(view[i]));
		}
		OK(MXNDArraySyncCopyFromNDArray(to, nd, -1));
		OK(MXNDArrayFree(nd));
		OK(MXNDArraySyncCopyToCPU(to, out, 12));
		ck_assert(!memcmp(in, out, 12 * size));
		OK(MXNDArrayFree(to));
	}
	FAILS(MXNDArrayCreateEx64(shape, 2, PAWL_MX_CPU, 0, 0, TYPES, &nd), "type 13");
	FAILS(MXNDArrayCreateEx64(shape, 2, PAWL_MX_CPU, 0, 0, -1, &nd), "type -1");
}
END_TEST

START_TEST(test_dimensions_that_are_kept_and_long_ones)
{
	const uint32_t shape[] = { 2, 3, 4 }, longer[] = { 3000000000u };
	int dims[] = { 0, 0, 2, -1 }, n;
	NDArrayHandle nd, view;
	const int64_t *ls;

	OK(MXNDArrayCreate(shape, 3, PAWL_MX_CPU, 0, 1, &nd));
	OK(MXNDArrayReshape(nd, 4, dims, &view));
	OK(MXNDArrayGetShapeEx64(view, &n, &ls));
	ck_assert(n == 4 && ls[0] == 2 && ls[1] == 3 && ls[2] == 2 && ls[3] == 2);
	OK(MXNDArrayFree(view));
	OK(MXNDArrayFree(nd));
	OK(MXNDArrayCreateEx(longer, 1, PAWL_MX_CPU, 0, 1, 3, &nd));
	OK(MXNDArrayGetShapeEx64(nd, &n, &ls));
	ck_assert(n == 1 && ls[0] == 3000000000);
	OK(MXNDArraySlice64(nd, 2900000000, 3000000000, &view));
	OK(MXNDArrayGetShapeEx64(view, &n, &ls));
	ck_assert(n == 1 && ls[0] == 100000000);
	OK(MXNDArrayFree(view));
	OK(MXNDArrayFree(nd));
}
END_TEST

/* Other than a wait to read; neither makes a version. */
START_TEST(test_a_wait_to_write_is_for_ops_that_read_and_a_wait_to_read_is_not)
{
	NDArrayHandle a = floats(1);
	pthread_t t;
	int i;

	waiter = (pid_t)syscall(SYS_gettid);
	for (i = 0; i < 2; i++) {
		holds = released = 0;
		OK(MXEnginePushAsyncND(hold, NULL, NULL, &cpu, &a, 1, NULL, 0, NULL, 0, "reads",
				       false));
		ck_assert(soon(is_held));
		OK(MXNDArrayWaitToRead(a));
		ck_assert_int_eq(GET(&released), 0);
		ck_assert(!pthread_create(&t, NULL, releases, NULL));
		OK(i ? MXNDArraySyncCheckFormat(a, true) : MXNDArrayWaitToWrite(a));
		ck_assert_int_eq(GET(&released), 1);
		pthread_join(t, NULL);
		ck_assert_uint_eq(version(a), 0);
	}
	OK(MXNDArrayFree(a));
}
END_TEST

static int opened, runs[2], nruns;

static int is_opened(void)
{
	return GET(&opened);
}

static void until_opened(void *run, void *param)
{
	ADD(&holds, 1);
	if (!soon(is_opened))
		abort();
}

static void note(void *run, void *param)
{
	runs[ADD(&nruns, 1) - 1] = *(int *)param;
}

static void keep_the_worker_busy(int dev_id)
{
	const struct pawl_mx_context ctx = { PAWL_MX_CPU, dev_id };

	holds = opened = nruns = 0;
	OK(MXEnginePushSync(until_opened, NULL, NULL, &ctx, NULL, 0, NULL, 0, NULL, 0, "busy"));
	ck_assert(soon(is_held));
}

/* Copies of CPUs run in MXNet's normal queue, which ignores priorities. */
START_TEST(test_copies_run_in_the_order_of_their_pushes)
{
	NDArrayHandle from = floats(1), to[2] = { floats(1), floats(1) };
	int ids[2] = { 0, 1 }, i;

	keep_the_worker_busy(0);
	for (i = 0; i < 2; i++) {
		OK(pawl_mx_nd_copy(from, to[i], i));
		OK(MXEnginePushSyncND(note, &ids[i], NULL, &cpu, &to[i], 1, NULL, 0, NULL, 9, "n"));
	}
	PUT(&opened, 1);
	OK(MXNDArrayWaitAll());
	ck_assert(nruns == 2 && runs[0] == 0 && runs[1] == 1);
	OK(MXNDArrayFree(from));
	for (i = 0; i < 2; i++)
		OK(MXNDArrayFree(to[i]));
}
END_TEST

START_TEST(test_a_copy_runs_in_the_context_of_its_array)
{
	const uint32_t shape[] = { 2 };
	float in[] = { 1, 2 }, out[2] = { 0 };
	NDArrayHandle a, b;

	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 1, 0, &a));
	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 1, 0, &b));
	keep_the_worker_busy(0);
	OK(MXNDArraySyncCopyFromCPU(a, in, 2));
	OK(MXNDArraySyncCopyFromNDArray(b, a, -1));
	OK(MXNDArraySyncCopyToCPU(b, out, 2));
	ck_assert(!memcmp(in, out, sizeof(in)));
	ck_assert_int_eq(GET(&opened), 0);
	PUT(&opened, 1);
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(b));
	OK(MXNDArrayWaitAll());
}
END_TEST

/* All other workers of that context are busy. */
START_TEST(test_a_copy_between_contexts_runs_on_a_copy_queue_of_the_target)
{
	static const int busy[] = { PAWL_NORMAL, PAWL_COPY_FROM_DEVICE, PAWL_COPY_FROM_DEVICE };
	const struct pawl_mx_context to = { PAWL_MX_CPU, 2 };
	const uint32_t shape[] = { 1 };
	NDArrayHandle a = floats(1), b;
	float in = 3, out = 0;
	int i;

	holds = opened = 0;
	OK(MXNDArraySyncCopyFromCPU(a, &in, 1));
	OK(MXNDArrayCreate(shape, 1, to.dev_type, to.dev_id, 0, &b));
	for (i = 0; i < 3; i++)
		OK(MXEnginePushSync(until_opened, NULL, NULL, &to, NULL, 0, NULL, 0, &busy[i], 0, "b"));
	for (i = 0; i < 60000 && GET(&holds) < 3; i++)
		usleep(1000);
	OK(MXNDArraySyncCopyFromNDArray(b, a, -1));
	OK(MXNDArraySyncCopyToCPU(b, &out, 1));
	ck_assert(out == 3 && !GET(&opened));
	PUT(&opened, 1);
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(b));
	OK(MXNDArrayWaitAll());
}
END_TEST

static void add_one(void *run, void *param)
{
	*(float *)param += 1;
}

/* The memory stays until the ops that were pushed before the free are complete. */
START_TEST(test_free_is_an_op)
{
	NDArrayHandle a = floats(1);
	void *p;

	holds = 0;
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
	NDArrayHandle a = floats(3), b, c = floats(2), d, far;
	int i;

	holds = 0;
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

	ran = 0;
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

static pthread_barrier_t together;

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

static void numbers_of(struct pawl_mx_context ctx, int type, uint64_t out[4])
{
	struct use u;

	OK(pawl_mx_resource_get(ctx, type, &u.r));
	OK(MXEnginePushSync(use_random, &u, NULL, &ctx, NULL, 0, &u.r.var, 1, NULL, 0, "r"));
	OK(MXNDArrayWaitAll());
	memcpy(out, u.got, sizeof(u.got));
}

static void random_of(struct pawl_mx_context ctx, uint64_t out[4])
{
	numbers_of(ctx, PAWL_MX_RANDOM, out);
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
	ck_assert(!memcmp(a, b, sizeof(a)));
	/* which leaves the others alone */
	OK(MXRandomSeed(7));
	OK(MXRandomSeedContext(3, PAWL_MX_CPU, 0));
	random_of(cpu, b);
	ck_assert(!memcmp(a, b, sizeof(a)));
	random_of(one, b);
	ck_assert(!memcmp(c, b, sizeof(c)));
	FAILS(MXRandomSeedContext(3, PAWL_MX_GPU, 0), "GPU");
}
END_TEST

static void many_calls(NDArrayHandle a, NDArrayHandle b, int rounds)
{
	const uint32_t shape[] = { 2 };
	NDArrayHandle c;
	uint64_t number[4];
	int i;

	for (i = 0; i < rounds; i++) {
		OK(MXRandomSeed(i));
		OK(MXRandomSeedContext(i, PAWL_MX_CPU, 0));
		if (i % 8 == 0)
			random_of(cpu, number);
		OK(MXNDArraySyncCopyFromNDArray(a, b, -1));
		OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 0, &c));
		OK(MXNDArrayFree(c));
		if (i % 32 == 0)
			OK(MXNDArrayWaitAll());
	}
	OK(MXNDArrayWaitAll());
}

/* Whatever is called again and again, no memory is left behind. */
START_TEST(test_calls_need_no_more_memory_than_those_before)
{
	const uint32_t shape[] = { 2 };
	NDArrayHandle a, b;
	size_t used;

	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 0, &a));
	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 0, &b));
	many_calls(a, b, 200);
	used = mallinfo2().uordblks;
	many_calls(a, b, 4000);
	/* Objects are allocated by the hundred, and threads keep some. */
	ck_assert_uint_lt(mallinfo2().uordblks, used + 150000);
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(b));
	OK(MXNDArrayWaitAll());
}
END_TEST

/* splitmix64 */
static uint64_t mixed(uint64_t *x)
{
	uint64_t z = *x += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static uint64_t turned(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

/* Those of xoshiro256**, so a program that sets a seed has the same in every version. */
START_TEST(test_the_numbers_of_a_seed)
{
	const struct pawl_mx_context one = { PAWL_MX_CPU, 1 };
	uint64_t got[4], s[4], x, t;
	struct pawl_mx_resource r;
	int type, i, k;

	for (type = PAWL_MX_RANDOM; type <= PAWL_MX_PARALLEL_RANDOM; type += 2) {
		for (k = 0; k < 3; k++) {
			OK(pawl_mx_resource_get(one, type, &r));
			/* by name the device does not count */
			if (k)
				OK(MXRandomSeedContext(-k, PAWL_MX_CPU, 1));
			else
				OK(MXRandomSeed(4711));
			numbers_of(one, type, got);
			x = (uint64_t)(uint32_t)(k ? -k : 4711) * 127 + 16u * (unsigned int)r.id + !k;
			for (i = 0; i < 4; i++)
				s[i] = mixed(&x);
			for (i = 0; i < 4; i++) {
				ck_assert_uint_eq(got[i], turned(s[1] * 5, 7) * 9);
				t = s[1] << 17;
				s[2] ^= s[0];
				s[3] ^= s[1];
				s[1] ^= s[2];
				s[0] ^= s[3];
				s[2] ^= t;
				s[3] = turned(s[3], 45);
			}
		}
	}
}
END_TEST

START_TEST(test_each_context_has_its_own_resources)
{
	const struct pawl_mx_context all[] = { { PAWL_MX_CPU, 0 }, { PAWL_MX_CPU_PINNED, 0 },
					       { PAWL_MX_CPU, 16 } };
	struct pawl_mx_resource r[3][8], again;
	int c, i, k;

	for (c = 0; c < 3; c++) {
		for (i = 0; i < 6; i++) {
			const int type = i < 4 ? PAWL_MX_TEMP_SPACE :
				   i == 4 ? PAWL_MX_RANDOM : PAWL_MX_PARALLEL_RANDOM;

			OK(pawl_mx_resource_get(all[c], type, &r[c][i]));
			ck_assert_int_eq(r[c][i].type, type);
			for (k = 0; k < i; k++)
				ck_assert(r[c][k].var != r[c][i].var && r[c][k].id != r[c][i].id &&
					  r[c][k].ptr != r[c][i].ptr);
			for (k = 0; k < c; k++)
				ck_assert(r[k][i].var != r[c][i].var && r[k][i].ptr != r[c][i].ptr);
		}
		/* of the generators there is one, of the spaces four in turn */
		OK(pawl_mx_resource_get(all[c], PAWL_MX_RANDOM, &again));
		ck_assert_ptr_eq(again.var, r[c][4].var);
		OK(pawl_mx_resource_get(all[c], PAWL_MX_PARALLEL_RANDOM, &again));
		ck_assert_ptr_eq(again.var, r[c][5].var);
		OK(pawl_mx_resource_get(all[c], PAWL_MX_TEMP_SPACE, &again));
		for (i = 0; i < 4 && r[c][i].var != again.var; i++)
			;
		ck_assert_int_lt(i, 4);
	}
}
END_TEST

START_TEST(test_a_space_has_as_many_bytes_as_were_asked_for)
{
	struct pawl_mx_resource r;
	size_t size;
	void *p;

	OK(pawl_mx_resource_get((struct pawl_mx_context){ PAWL_MX_CPU, 11 }, PAWL_MX_TEMP_SPACE, &r));
	for (size = 0; size < 1000; size++) {
		p = pawl_mx_resource_space(&r, size);
		ck_assert(p && !((uintptr_t)p & 63));
		ck_assert_uint_ge(malloc_usable_size(p), size);
	}
}
END_TEST

/* Several threads ask first for the resources of a context: they get the same. */
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

static void another_seed(void)
{
	OK(MXRandomSeed(2));
}

static struct pawl_mx_resource first;

static void another_request(void)
{
	OK(pawl_mx_resource_get((struct pawl_mx_context){ PAWL_MX_CPU, 80 }, PAWL_MX_RANDOM,
				&first));
}

START_TEST(test_a_context_that_is_being_made_is_one_of_all_and_has_the_last_seed)
{
	struct pawl_mx_context ctx = { PAWL_MX_CPU, 70 };
	uint64_t got[4], want[4];
	struct pawl_mx_resource r;
	int type;

	/* each of the types has generators that are seeded */
	for (type = PAWL_MX_RANDOM; type <= PAWL_MX_PARALLEL_RANDOM; type += 2, ctx.dev_id++) {
		OK(MXRandomSeed(1));
		meanwhile = another_seed;
		numbers_of(ctx, type, got);
		ck_assert_ptr_null(meanwhile);
		OK(MXRandomSeed(2));
		numbers_of(ctx, type, want);
		ck_assert(!memcmp(got, want, sizeof(want)));
		numbers_of(ctx, type, want);
		ck_assert(memcmp(got, want, sizeof(want)));
	}
	ctx.dev_id = 80;
	meanwhile = another_request;
	OK(pawl_mx_resource_get(ctx, PAWL_MX_RANDOM, &r));
	ck_assert_ptr_null(meanwhile);
	ck_assert_ptr_eq(r.var, first.var);
}
END_TEST

struct seeder {
	int last, stop;
};

static void *seeds(void *arg)
{
	struct seeder *s = arg;

	while (!GET(&s->stop)) {
		OK(MXRandomSeed(s->last + 1));
		ADD(&s->last, 1);
	}
	return NULL;
}

START_TEST(test_a_context_that_is_made_while_seeds_are_set_has_the_last_one)
{
	enum { FIRST = 100, N = 100 };
	struct pawl_mx_resource r;
	struct seeder s = { 0 };
	uint64_t got[N][4], want[4];
	pthread_t t;
	int i;

	ck_assert_int_eq(pthread_create(&t, NULL, seeds, &s), 0);
	for (i = 0; i < N; i++) {
		while (GET(&s.last) <= i)
			sched_yield();
		OK(pawl_mx_resource_get((struct pawl_mx_context){ PAWL_MX_CPU, FIRST + i },
					PAWL_MX_RANDOM, &r));
	}
	PUT(&s.stop, 1);
	pthread_join(t, NULL);
	for (i = 0; i < N; i++)
		random_of((struct pawl_mx_context){ PAWL_MX_CPU, FIRST + i }, got[i]);
	OK(MXRandomSeed(s.last));
	for (i = 0; i < N; i++) {
		random_of((struct pawl_mx_context){ PAWL_MX_CPU, FIRST + i }, want);
		ck_assert_msg(!memcmp(got[i], want, sizeof(want)), "context %d", i);
	}
}
END_TEST

SUITE("mx_arrays", 50, test_array, test_array_none_and_odd, test_views,
      test_elements_of_each_type_have_its_size, test_dimensions_that_are_kept_and_long_ones,
      test_a_wait_to_write_is_for_ops_that_read_and_a_wait_to_read_is_not,
      test_copies_run_in_the_order_of_their_pushes, test_a_copy_runs_in_the_context_of_its_array,
      test_a_copy_between_contexts_runs_on_a_copy_queue_of_the_target,
      test_the_numbers_of_a_seed, test_calls_need_no_more_memory_than_those_before,
      test_each_context_has_its_own_resources,
      test_a_space_has_as_many_bytes_as_were_asked_for, test_free_is_an_op,
      test_copies, test_churn, test_an_array_has_one_memory_whoever_uses_it_first,
      test_temp_space, test_random, test_a_context_has_one_set_of_resources_whoever_asks_first,
      test_a_context_that_is_being_made_is_one_of_all_and_has_the_last_seed,
      test_a_context_that_is_made_while_seeds_are_set_has_the_last_one)
