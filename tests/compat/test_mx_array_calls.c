/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each call on an array waits for, when the memory of arrays is allocated, and the shapes
 * that they can have.
 */
#include "mx_test.h"
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/syscall.h>

/* --- waits --- */

/* Those that return when something is done: what was pushed to the array before comes first. */
enum { READ, WRITE, CHECK, FROM_CPU, TO_CPU, FROM_ARRAY, FROM_THIS, ALL, CALLS };

static int call_that_waits(int call, NDArrayHandle nd, NDArrayHandle other, float *data)
{
	switch (call) {
	case READ:
		return MXNDArrayWaitToRead(nd);
	case WRITE:
		return MXNDArrayWaitToWrite(nd);
	case CHECK:
		return MXNDArraySyncCheckFormat(nd, false);
	case FROM_CPU:
		return MXNDArraySyncCopyFromCPU(nd, data, 1);
	case TO_CPU:
		return MXNDArraySyncCopyToCPU(nd, data, 1);
	case FROM_ARRAY:
		return MXNDArraySyncCopyFromNDArray(nd, other, -1);
	case FROM_THIS:
		return MXNDArraySyncCopyFromNDArray(other, nd, -1);
	}
	return MXNDArrayWaitAll();
}

START_TEST(test_synchronous_calls_wait_for_the_ops_before_them)
{
	static const bool for_readers[CALLS] = {
		[WRITE] = true, [CHECK] = true, [FROM_CPU] = true, [FROM_ARRAY] = true, [ALL] = true,
	};
	NDArrayHandle a = floats(1), b = floats(1);
	float x, seven = 7, got;
	int call, writes;
	pthread_t t;

	waiter = (pid_t)syscall(SYS_gettid);
	for (call = 0; call < CALLS; call++) {
		for (writes = 0; writes < 2; writes++) {
			x = 3;
			OK(MXNDArraySyncCopyFromCPU(a, &x, 1));
			OK(MXNDArraySyncCopyFromCPU(b, &seven, 1));
			holds = released = 0;
			OK(MXEnginePushAsyncND(hold, NULL, NULL, &cpu, &a, !writes, &a, writes, NULL,
					       0, "held", false));
			ck_assert(soon(is_held));
			if (writes || for_readers[call]) {
				ck_assert(!pthread_create(&t, NULL, releases, NULL));
				x = 5;
				OK(call_that_waits(call, a, b, &x));
				ck_assert_msg(GET(&released), "call %d, op %d", call, writes);
				pthread_join(t, NULL);
			} else {
				OK(call_that_waits(call, a, b, &x));
				releases_now();
			}
			/* and a copy is there */
			OK(MXNDArraySyncCopyToCPU(call == FROM_THIS ? b : a, &got, 1));
			ck_assert(got == (call == FROM_CPU ? 5 : call == FROM_ARRAY ? 7 : 3));
			ck_assert(call != TO_CPU || x == 3);
		}
	}
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(b));
}
END_TEST

/* --- memory --- */

#if !SANITIZED	/* whose aligned_alloc() is not replaced */
/* Counts the calls for such an array's memory; the first one makes another call meanwhile. */
enum { ODD = 5003, ODD_BYTES = (ODD * 4 + 63) / 64 * 64 };
static int allocated;
static NDArrayHandle asked_meanwhile;
static bool no_memory;

void *aligned_alloc(size_t align, size_t n)
{
	NDArrayHandle nd = asked_meanwhile;
	void *p = NULL, *q;

	if (n == ODD_BYTES) {
		ck_assert_uint_eq(align, 64);
		ADD(&allocated, 1);
		asked_meanwhile = NULL;
		if (nd)
			OK(MXNDArrayGetData(nd, &q));
		if (no_memory)
			return NULL;
	}
	return posix_memalign(&p, align, n) ? NULL : p;
}

/* Likewise for the lists of this thread's ops. */
static __thread size_t list_bytes;
static int lists, drops;

void *malloc(size_t n)
{
	if (n && n == list_bytes) {
		lists++;
		if (no_memory)
			return NULL;
	}
	return memalign(16, n);
}

static void count_drop(void *param)
{
	ADD(&drops, 1);
}

/* Up to 64 arrays, or 256 vars, are on the stack. */
START_TEST(test_long_lists_need_memory_without_which_they_are_refused)
{
	static const int lengths[][2] = {
		{ 64, 0 }, { 0, 64 }, { 32, 32 }, { 63, 1 }, { 65, 0 }, { 0, 65 }, { 32, 33 },
		{ 1, 64 }, { 40, 40 }, { 256, 0 }, { 128, 128 }, { 1, 255 }, { 257, 0 }, { 0, 257 },
		{ 128, 129 }, { 200, 200 },
	};
	enum { MOST = 400, LENGTHS = sizeof(lengths) / sizeof(*lengths) };
	struct pawl_mx_var *vars[MOST];
	NDArrayHandle a = floats(1), nds[MOST];
	int i, k, refused, dropped = 0;
	char text[64];

	for (i = 0; i < MOST; i++) {
		nds[i] = a;
		vars[i] = pawl_mx_nd_var(a);
	}
	drops = 0;
	for (k = 0; k < 4 * LENGTHS; k++) {
		const int r = lengths[k / 4][0], w = lengths[k / 4][1], of_vars = k / 2 % 2;
		const bool stack = r + w <= (of_vars ? 256 : 64);

		if (!of_vars && r + w > 256)
			continue;	/* two lists */
		lists = 0;
		list_bytes = (size_t)(r + w) * (of_vars ? sizeof(pawl_var_t) : sizeof(void *));
		no_memory = k % 2;
		if (of_vars)
			refused = MXEnginePushSync(body, NULL, count_drop, &cpu, vars, r, vars + r, w,
						   NULL, 0, NULL);
		else
			refused = MXEnginePushSyncND(body, NULL, count_drop, &cpu, nds, r, nds + r, w,
						     NULL, 0, NULL);
		list_bytes = 0;
		ck_assert_int_eq(lists, !stack);
		ck_assert_int_eq(refused, no_memory && !stack ? -1 : 0);
		no_memory = false;
		if (refused) {
			if (of_vars)
				snprintf(text, sizeof(text), "push: no memory for %d vars", r + w);
			else
				snprintf(text, sizeof(text), "no memory for %d + %d vars", r, w);
			ck_assert_str_eq(MXGetLastError(), text);
		}
		OK(MXNDArrayWaitAll());
		ck_assert_int_eq(drops, ++dropped);
	}
	OK(MXNDArrayFree(a));
}
END_TEST

static void use_first(int how, NDArrayHandle nd, float *data)
{
	NDArrayHandle to;
	void *p;

	switch (how) {
	case 0:
		OK(MXNDArrayGetData(nd, &p));
		ck_assert_ptr_nonnull(p);
		break;
	case 1:
		OK(MXNDArraySyncCopyFromCPU(nd, data, ODD));
		break;
	case 2:
		OK(MXNDArraySyncCopyToCPU(nd, data, ODD));
		break;
	default:
		OK(MXNDArraySlice(nd, 1, 3, &to));
		OK(MXNDArraySyncCopyFromCPU(to, data, 2));
		OK(MXNDArrayFree(to));
	}
}

START_TEST(test_memory_is_allocated_with_its_array_or_when_it_is_first_used)
{
	static float data[ODD];
	const uint32_t shape[] = { ODD };
	NDArrayHandle nd, view;
	int how, delay, i;

	for (how = 0; how < 4; how++) {
		for (delay = 0; delay < 2; delay++) {
			allocated = 0;
			if (how % 2)
				OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, delay, &nd));
			else
				OK(MXNDArrayCreateEx(shape, 1, PAWL_MX_CPU, 0, delay, 0, &nd));
			OK(MXShallowCopyNDArray(nd, &view));
			OK(MXEnginePushSyncND(body, NULL, NULL, &cpu, NULL, 0, &view, 1, NULL, 0, "b"));
			OK(MXNDArrayWaitToRead(nd));
			ck_assert_int_eq(allocated, !delay);
			for (i = 0; i < 2; i++) {
				use_first(how, i ? nd : view, data);
				ck_assert_int_eq(allocated, 1);
			}
			OK(MXNDArrayFree(view));
			OK(MXNDArrayFree(nd));
		}
	}
}
END_TEST

START_TEST(test_memory_that_another_thread_was_faster_to_allocate_is_freed)
{
	const uint32_t shape[] = { ODD };
	NDArrayHandle nd;
	size_t before = 0;
	void *p, *q;
	int i;

	for (i = 0; i < 200; i++) {
		if (i == 100)
			before = mallinfo2().uordblks;
		OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 1, &nd));
		allocated = 0;
		asked_meanwhile = nd;
		OK(MXNDArrayGetData(nd, &p));
		OK(MXNDArrayGetData(nd, &q));
		ck_assert(p == q && allocated == 2);
		OK(MXNDArrayFree(nd));
		OK(MXNDArrayWaitAll());
	}
	ck_assert_uint_lt(mallinfo2().uordblks, before + 50 * ODD_BYTES);
}
END_TEST

static uint64_t vars_made(void)
{
	struct pawl_stats s = { .size = sizeof(s) };

	OK(pawl_stats(pawl_mx_engine_pawl(pawl_mx_engine_get()), &s));
	return s.vars;
}

/* The arrays are as before, and nothing that the call has taken is lost. */
START_TEST(test_calls_without_memory_for_an_array_are_refused)
{
	static const char text[] = "no memory for an array of 20012 bytes";
	static float data[ODD];
	const uint32_t shape[] = { ODD };
	NDArrayHandle nd, full, other = NULL;
	size_t before = 0;
	uint64_t vars = 0;
	void *p = NULL;
	int i;

	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 1, &nd));
	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 0, &full));
	no_memory = true;
	for (i = 0; i < 4000; i++) {
		if (i == 1000) {
			before = mallinfo2().uordblks;
			vars = vars_made();
		}
		FAILS(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 0, &other), text);
		FAILS(MXNDArrayGetData(nd, &p), text);
		FAILS(MXNDArraySyncCopyFromCPU(nd, data, ODD), text);
		FAILS(MXNDArraySyncCopyToCPU(nd, data, ODD), text);
		FAILS(MXNDArraySyncCopyFromNDArray(nd, full, -1), text);
		FAILS(MXNDArraySyncCopyFromNDArray(full, nd, -1), text);
	}
	ck_assert_uint_lt(mallinfo2().uordblks, before + 100000);
	ck_assert_uint_lt(vars_made(), vars + 1000);
	ck_assert(!other && !p && !version(nd) && !version(full));
	no_memory = false;
	data[ODD - 1] = 5;
	OK(MXNDArraySyncCopyFromCPU(nd, data, ODD));
	OK(MXNDArraySyncCopyFromNDArray(full, nd, -1));
	data[ODD - 1] = 0;
	OK(MXNDArraySyncCopyToCPU(full, data, ODD));
	ck_assert(data[ODD - 1] == 5);
	OK(MXNDArrayFree(nd));
	OK(MXNDArrayFree(full));
}
END_TEST
#define MEMORY_TESTS								\
	test_long_lists_need_memory_without_which_they_are_refused,		\
	test_calls_without_memory_for_an_array_are_refused,			\
	test_memory_is_allocated_with_its_array_or_when_it_is_first_used,	\
	test_memory_that_another_thread_was_faster_to_allocate_is_freed,
#else
#define MEMORY_TESTS
#endif

/* --- shapes --- */

START_TEST(test_an_array_has_at_most_32_dimensions)
{
	int64_t wide[33];
	uint32_t narrow[33];
	int dims[33], n, k, i;
	NDArrayHandle nd[6];
	const int64_t *ls;
	const uint32_t *us;
	const int *is;
	uint32_t un;

	for (i = 0; i < 33; i++)
		wide[i] = narrow[i] = dims[i] = i % 16 == 7 ? 3 : 1;
	OK(MXNDArrayCreateEx64(wide, 32, PAWL_MX_CPU, 0, 0, 0, &nd[0]));
	OK(MXNDArrayCreateEx(narrow, 32, PAWL_MX_CPU, 0, 0, 0, &nd[1]));
	OK(MXNDArrayCreate(narrow, 32, PAWL_MX_CPU, 0, 0, &nd[2]));
	OK(MXNDArrayReshape(nd[0], 32, dims, &nd[3]));
	OK(MXShallowCopyNDArray(nd[3], &nd[4]));
	OK(MXNDArraySlice(nd[4], 0, 1, &nd[5]));
	for (k = 0; k < 6; k++) {
		OK(MXNDArrayGetShape(nd[k], &un, &us));
		OK(MXNDArrayGetShapeEx(nd[k], &n, &is));
		ck_assert(un == 32 && n == 32);
		OK(MXNDArrayGetShapeEx64(nd[k], &n, &ls));
		ck_assert_int_eq(n, 32);
		for (i = 0; i < 32; i++)
			ck_assert(us[i] == narrow[i] && is[i] == dims[i] && ls[i] == wide[i]);
		/* the lists are inside the array's object */
		ck_assert((const char *)(us + 32) <= (char *)nd[k] + malloc_usable_size(nd[k]));
	}
	OK(MXNDArraySyncCopyFromNDArray(nd[5], nd[1], -1));
	FAILS(MXNDArrayCreateEx64(wide, 33, PAWL_MX_CPU, 0, 0, 0, &nd[0]), "33 dimensions, at most 32");
	FAILS(MXNDArrayCreateEx(narrow, 33, PAWL_MX_CPU, 0, 0, 0, &nd[0]), "33 dimensions, at most 32");
	FAILS(MXNDArrayCreate(narrow, 33, PAWL_MX_CPU, 0, 0, &nd[0]), "33 dimensions, at most 32");
	FAILS(MXNDArrayReshape(nd[0], 33, dims, &nd[1]), "reshape to 33 dimensions");
	for (k = 0; k < 6; k++)
		OK(MXNDArrayFree(nd[k]));
}
END_TEST

/* Each has the elements of its array: no more, no fewer. */
START_TEST(test_what_an_array_can_be_reshaped_to)
{
	static const struct {
		int ndim, dims[3], want;	/* want: what -1 becomes, or -2: refused */
	} shapes[] = {
		{ 1, { 6 }, 0 }, { 1, { -1 }, 6 }, { 2, { 2, -1 }, 3 }, { 2, { -1, 2 }, 3 },
		{ 3, { -1, 1, 6 }, 1 }, { 2, { 0, -1 }, 3 }, { 2, { -1, 0 }, 2 }, { 2, { 0, 0 }, 0 },
		{ 1, { 5 }, -2 }, { 1, { 7 }, -2 }, { 2, { 4, -1 }, -2 }, { 2, { -1, 5 }, -2 },
		{ 2, { 7, -1 }, -2 }, { 1, { 0 }, -2 }, { 3, { 0, 0, 0 }, -2 }, { 3, { 3, 0, -1 }, -2 },
		{ 1, { -2 }, -2 }, { 2, { -1, -6 }, -2 }, { 0, { 0 }, -2 },
	};
	const uint32_t shape[] = { 2, 3 };
	NDArrayHandle nd, one, view;
	const int64_t *ls;
	int dims[3], i, k, n;

	OK(MXNDArrayCreate(shape, 2, PAWL_MX_CPU, 0, 0, &nd));
	for (i = 0; i < (int)(sizeof(shapes) / sizeof(*shapes)); i++) {
		memcpy(dims, shapes[i].dims, sizeof(dims));
		if (shapes[i].want == -2) {
			FAILS(MXNDArrayReshape(nd, shapes[i].ndim, dims, &view), "reshape: ");
			continue;
		}
		OK(MXNDArrayReshape(nd, shapes[i].ndim, dims, &view));
		OK(MXNDArrayGetShapeEx64(view, &n, &ls));
		ck_assert_int_eq(n, shapes[i].ndim);
		for (k = 0; k < n; k++)
			ck_assert(ls[k] == (dims[k] == -1 ? shapes[i].want :
					    dims[k] ? dims[k] : (int)shape[k]));
		OK(MXNDArrayFree(view));
	}
	/* one element is a scalar, too */
	OK(MXNDArrayAt(nd, 1, &view));
	OK(MXNDArrayAt(view, 2, &one));
	OK(MXNDArrayFree(view));
	OK(MXNDArrayReshape(one, 0, NULL, &view));
	OK(MXNDArrayGetShapeEx64(view, &n, &ls));
	ck_assert_int_eq(n, 0);
	OK(MXNDArrayFree(view));
	OK(MXNDArrayFree(one));
	OK(MXNDArrayFree(nd));
}
END_TEST

START_TEST(test_the_largest_array_and_one_without_memory)
{
	const int64_t most[] = { 1, (1ll << 58) - 1 }, more[] = { 2, 1ll << 57 };
	const int64_t odd[] = { 1ll << 58, 0 };
	NDArrayHandle nd;
	const int64_t *ls;
	const uint32_t *us;
	uint32_t un;
	int n;

	OK(MXNDArrayCreateEx64(most, 2, PAWL_MX_CPU, 0, 1, 1, &nd));
	OK(MXNDArrayGetShapeEx64(nd, &n, &ls));
	ck_assert(n == 2 && ls[0] == 1 && ls[1] == most[1]);
	OK(MXNDArrayFree(nd));
	FAILS(MXNDArrayCreateEx64(more, 2, PAWL_MX_CPU, 0, 1, 1, &nd), "dimension 1");
	FAILS(MXNDArrayCreateEx64(odd, 2, PAWL_MX_CPU, 0, 1, 1, &nd), "dimension 0");
	OK(MXNDArrayCreateNone(&nd));
	OK(MXNDArrayGetShape(nd, &un, &us));
	ck_assert_uint_eq(un, 0);
	OK(MXNDArrayGetShapeEx64(nd, &n, &ls));
	ck_assert_int_eq(n, -1);
	OK(MXNDArrayFree(nd));
}
END_TEST

SUITE("mx_array_calls", 50, test_synchronous_calls_wait_for_the_ops_before_them, MEMORY_TESTS
      test_an_array_has_at_most_32_dimensions, test_what_an_array_can_be_reshaped_to,
      test_the_largest_array_and_one_without_memory)
