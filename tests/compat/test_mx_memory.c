/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of freed objects of libpawl_mx is given back, also without a leak checker. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <pawl/engine.h>
#include <mxnet/c_api.h>

#define ARRAYS 20000
#define OK(call) do {								\
		if (call) {							\
			fprintf(stderr, "%s:%d:F: %s: %s\n", __FILE__, __LINE__, #call,	\
				MXGetLastError());				\
			abort();						\
		}								\
	} while (0)

static void arrays(int n)
{
	const int64_t shape[] = { 2, 3 };
	NDArrayHandle nd;
	int i;

	for (i = 0; i < n; i++) {
		OK(MXNDArrayCreateEx64(shape, 2, PAWL_MX_CPU, 0, 0, 0, &nd));
		OK(MXNDArrayFree(nd));
		if (i % 100 == 99)
			OK(MXNDArrayWaitAll());
	}
}

static void a_freed_array_leaves_no_memory(void)
{
	size_t before, after;

	arrays(ARRAYS / 10);
	before = mallinfo2().uordblks;
	arrays(ARRAYS);
	after = mallinfo2().uordblks;
	if (after > before + ARRAYS * 8) {
		fprintf(stderr, "%s:%d:F: %d freed arrays left %zu bytes\n", __FILE__, __LINE__, ARRAYS,
			after - before);
		abort();
	}
}

static void a_printed_table_of_the_profiler_leaves_no_memory(void)
{
	const char *text;
	size_t before;
	int i;

	OK(MXAggregateProfileStatsPrintEx(&text, 0, 0, 0, 0));
	before = mallinfo2().uordblks + mallinfo2().hblkhd;
	for (i = 0; i < 100; i++)
		OK(MXAggregateProfileStatsPrintEx(&text, 0, i % 2, 0, 0));
	if (mallinfo2().uordblks + mallinfo2().hblkhd > before + 10000) {
		fprintf(stderr, "%s:%d:F: a table leaves memory\n", __FILE__, __LINE__);
		abort();
	}
}

int main(void)
{
	a_printed_table_of_the_profiler_leaves_no_memory();
	a_freed_array_leaves_no_memory();
	return 0;
}
