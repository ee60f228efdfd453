// SPDX-License-Identifier: Apache-2.0
/*
 * Views of views, the room of arrays and temporary spaces in memory, which shapes are equal, and
 * the names of copies.
 */
#include "mx_test.h"
#include <stdbool.h>

static void *data_of(NDArrayHandle nd)
{
	void *p = NULL;

	OK(MXNDArrayGetData(nd, &p));
	return p;
}

/* An array of one-byte elements whose memory is not allocated until it is used. */
static NDArrayHandle bytes(int ndim, int64_t a, int64_t b)
{
	const int64_t shape[] = { a, b };
	NDArrayHandle nd = NULL;

	OK(MXNDArrayCreateEx64(shape, ndim, PAWL_MX_CPU, 0, 1, 3, &nd));
	return nd;
}

/* --- memory --- */

#if !SANITIZED	/* whose aligned_alloc() is not replaced */
static size_t asked_align, asked;
static bool refuses;

void *aligned_alloc(size_t align, size_t n)
{
	void *p = NULL;

	asked_align = align;
	asked = n;
	return refuses || posix_memalign(&p, align, n) ? NULL : p;
}

/* The standard wants a multiple of the alignment, and none of the bytes is missing. */
static void has_asked_for(size_t n)
{
	ck_assert_uint_eq(asked_align, 64);
	ck_assert_uint_eq(asked % 64, 0);
	ck_assert_uint_ge(asked, n ? n : 1);
	ck_assert_uint_lt(asked, n + 64 + !n);
}

START_TEST(test_a_view_of_memory_that_cannot_be_had_has_no_address)
{
	NDArrayHandle nd = bytes(2, 4, 100), view = NULL;
	void *p = &nd;

	OK(MXNDArraySlice(nd, 1, 3, &view));
	refuses = true;
	FAILS(MXNDArrayGetData(view, &p), "no memory for an array of 400 bytes");
	refuses = false;
	OK(MXNDArrayGetData(view, &p));
	ck_assert_ptr_eq(p, (char *)data_of(nd) + 100);
	OK(MXNDArrayFree(view));
	OK(MXNDArrayFree(nd));
}
END_TEST

START_TEST(test_memory_has_room_for_each_byte_and_its_address_is_a_multiple_of_64)
{
	static const size_t sizes[] = { 0, 1, 2, 62, 63, 64, 65, 66, 127, 128, 129, 191, 192, 193 };
	NDArrayHandle nd;
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		nd = bytes(1, (int64_t)sizes[i], 0);
		asked = asked_align = 1;
		ck_assert_uint_eq((uintptr_t)data_of(nd) % 64, 0);
		has_asked_for(sizes[i]);
		OK(MXNDArrayFree(nd));
	}
}
END_TEST

/* It grows only when it must: what fits into the last one stays. */
START_TEST(test_a_space_has_room_for_each_byte_and_grows_only_when_it_must)
{
	static const size_t sizes[] = { 0, 1, 64, 65, 128, 127, 1, 0, 129, 192, 191, 193, 1000, 4096 };
	struct pawl_mx_resource r;
	size_t room = 0, i;
	void *p = NULL, *q;

	OK(pawl_mx_resource_get(cpu, PAWL_MX_TEMP_SPACE, &r));
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		asked = 0;
		q = pawl_mx_resource_space(&r, sizes[i]);
		ck_assert(q && (uintptr_t)q % 64 == 0);
		if (p && sizes[i] <= room) {
			ck_assert(!asked && p == q);
			continue;
		}
		has_asked_for(sizes[i]);
		room = asked;
		p = q;
	}
}
END_TEST
#define MEMORY_TESTS								\
	test_a_view_of_memory_that_cannot_be_had_has_no_address,		\
	test_memory_has_room_for_each_byte_and_its_address_is_a_multiple_of_64,	\
	test_a_space_has_room_for_each_byte_and_grows_only_when_it_must,
#else
#define MEMORY_TESTS
#endif

/* --- views --- */

/* Each kind of view of a view that does not begin with the array. */
START_TEST(test_a_view_of_a_view_begins_where_that_does)
{
	const int64_t shape[] = { 4, 3, 2 };
	int dims[] = { 3, 2 }, flat[] = { -1 };
	NDArrayHandle nd, at, slice, again, copy, of_again, of_copy;
	char *p;

	OK(MXNDArrayCreateEx64(shape, 3, PAWL_MX_CPU, 0, 0, 4, &nd));
	p = data_of(nd);
	OK(MXNDArrayAt(nd, 2, &at));
	ck_assert_ptr_eq(data_of(at), p + 2 * 6 * 4);
	OK(MXNDArrayReshape(at, 2, dims, &again));
	ck_assert_ptr_eq(data_of(again), p + 2 * 6 * 4);
	OK(MXNDArraySlice(again, 1, 3, &slice));
	ck_assert_ptr_eq(data_of(slice), p + (2 * 6 + 2) * 4);
	OK(MXShallowCopyNDArray(slice, &copy));
	ck_assert_ptr_eq(data_of(copy), p + (2 * 6 + 2) * 4);
	OK(MXNDArrayReshape(copy, 1, flat, &of_copy));
	ck_assert_ptr_eq(data_of(of_copy), p + (2 * 6 + 2) * 4);
	OK(MXNDArrayAt(of_copy, 3, &of_again));
	ck_assert_ptr_eq(data_of(of_again), p + (2 * 6 + 2 + 3) * 4);
	/* the array and all views but the last may go */
	OK(MXNDArrayFree(nd));
	OK(MXNDArrayFree(at));
	OK(MXNDArrayFree(slice));
	OK(MXNDArrayFree(again));
	OK(MXNDArrayFree(copy));
	OK(MXNDArrayFree(of_copy));
	OK(MXNDArrayWaitAll());
	ck_assert_ptr_eq(data_of(of_again), p + (2 * 6 + 2 + 3) * 4);
	OK(MXNDArrayFree(of_again));
}
END_TEST

/* The calls with 32 bits have no sign. */
START_TEST(test_a_view_may_begin_beyond_the_largest_int)
{
	NDArrayHandle nd = bytes(1, 4000000000, 0), slice, at;
	const int64_t *shape;
	int n;

	OK(MXNDArraySlice(nd, 3000000000u, 3900000000u, &slice));
	OK(MXNDArrayGetShapeEx64(slice, &n, &shape));
	ck_assert(n == 1 && shape[0] == 900000000);
	OK(MXNDArrayAt(nd, 3999999999u, &at));
	OK(MXNDArrayGetShapeEx64(at, &n, &shape));
	ck_assert(n == 1 && shape[0] == 1);
	FAILS(MXNDArrayAt(nd, 4000000000u, &at), "index 4000000000 of 4000000000");
	FAILS(MXNDArraySlice(nd, 0, 4000000001u, &at), "slice 0:4000000001 of 4000000000");
	OK(MXNDArrayFree(slice));
	OK(MXNDArrayFree(at));
	OK(MXNDArrayFree(nd));
}
END_TEST

/* --- shapes --- */

START_TEST(test_a_negative_dimension_is_refused_also_of_an_empty_array)
{
	static const int64_t shapes[][2] = { { 0, -2 }, { -2, 0 }, { 0, INT64_MIN } };
	NDArrayHandle nd = NULL;
	char text[64];
	int i;

	for (i = 0; i < 3; i++) {
		snprintf(text, sizeof(text), "dimension %d of the shape is %lld", i != 1,
			 (long long)shapes[i][i != 1]);
		FAILS(MXNDArrayCreateEx64(shapes[i], 2, PAWL_MX_CPU, 0, 1, 0, &nd), text);
	}
	ck_assert_ptr_null(nd);
}
END_TEST

/* Also if the shorter one is the begin of the other, or they have as many elements. */
START_TEST(test_copies_need_the_same_number_of_dimensions)
{
	NDArrayHandle nd[] = { bytes(1, 3, 0), bytes(2, 3, 2), bytes(2, 3, 1), bytes(2, 1, 3),
			       bytes(0, 0, 0), bytes(1, 1, 0), bytes(1, 6, 0) };
	enum { ARRAYS = sizeof(nd) / sizeof(*nd) };
	int i, k;

	for (i = 0; i < ARRAYS; i++) {
		for (k = 0; k < ARRAYS; k++) {
			if (i == k)
				OK(pawl_mx_nd_copy(nd[i], nd[k], 0));
			else
				FAILS(pawl_mx_nd_copy(nd[i], nd[k], 0),
				      "copy: the shapes are not the same");
		}
	}
	for (i = 0; i < ARRAYS; i++) {
		ck_assert_uint_eq(version(nd[i]), 0);
		OK(MXNDArrayFree(nd[i]));
	}
}
END_TEST

/* As that of a C++ object whose array was taken. */
START_TEST(test_a_handle_of_no_array_is_refused)
{
	void *nothing = NULL, *p = &nothing;
	NDArrayHandle nd = floats(1);
	float x = 1;

	ck_assert_ptr_null(pawl_mx_nd_var(&nothing));
	FAILS(MXNDArrayFree(&nothing), "the array handle is NULL");
	FAILS(MXNDArrayGetData(&nothing, &p), "the array handle is NULL");
	FAILS(MXNDArrayWaitToRead(&nothing), "the array handle is NULL");
	FAILS(MXNDArrayWaitToWrite(&nothing), "the array handle is NULL");
	FAILS(MXNDArraySyncCopyFromCPU(&nothing, &x, 1), "the array handle is NULL");
	FAILS(pawl_mx_nd_copy(nd, &nothing, 0), "the array handle is NULL");
	FAILS(pawl_mx_nd_copy(&nothing, nd, 0), "the array handle is NULL");
	p = &nothing;
	FAILS(MXEnginePushSyncND(body, NULL, NULL, &cpu, &p, 1, NULL, 0, NULL, 0, NULL),
	      "const array 0 is none");
	OK(MXNDArrayFree(nd));
}
END_TEST

/* --- names --- */

/* Only ops that are pushed from now on are in the profiler's table. */
static void profile(bool on)
{
	const char *key = "aggregate_stats", *val = on ? "1" : "0", *text;

	OK(MXNDArrayWaitAll());
	OK(MXAggregateProfileStatsPrint(&text, 1));
	OK(MXSetProfilerConfig(1, &key, &val));
	OK(MXSetProfilerState(on));
}

static int count_of(const char *name)
{
	char key[64];
	const char *text, *at;
	int n = 0;

	OK(MXAggregateProfileStatsPrintEx(&text, 0, 1, 0, 0));
	snprintf(key, sizeof(key), "\"%s\": {\"Count\": ", name);
	at = strstr(text, key);
	ck_assert(!at || sscanf(at + strlen(key), "%d", &n) == 1);
	return n;
}

START_TEST(test_copies_and_deletes_have_names)
{
	NDArrayHandle a = floats(1), b = floats(1);
	float x = 1;

	profile(true);
	OK(MXNDArraySyncCopyFromCPU(a, &x, 1));
	OK(MXNDArraySyncCopyToCPU(a, &x, 1));
	ck_assert(count_of("SyncCopyCPU2CPU") == 1 && !count_of("CopyCPU2CPU"));
	OK(MXNDArraySyncCopyFromNDArray(b, a, -1));
	ck_assert(count_of("SyncCopyCPU2CPU") == 1 && count_of("CopyCPU2CPU") == 1);
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(b));
	OK(MXNDArrayWaitAll());
	ck_assert_int_eq(count_of("DeleteVariable"), 2);
	profile(false);
}
END_TEST

SUITE("mx_views", 100, MEMORY_TESTS test_a_view_of_a_view_begins_where_that_does,
      test_a_view_may_begin_beyond_the_largest_int,
      test_a_negative_dimension_is_refused_also_of_an_empty_array,
      test_copies_need_the_same_number_of_dimensions, test_a_handle_of_no_array_is_refused,
      test_copies_and_deletes_have_names)
