/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of freed objects of libpawl_mx is given back, also without a leak checker. */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <pawl/engine.h>
#include <mxnet/c_api.h>
#include "../sanitized.h"

#define ARRAYS 20000
#define OK(call) do {								\
		if (call) {							\
			fprintf(stderr, "%s:%d:F: %s: %s\n", __FILE__, __LINE__, #call,	\
				MXGetLastError());				\
			abort();						\
		}								\
	} while (0)
#define REFUSED(call) do {							\
		if (!(call)) {							\
			fprintf(stderr, "%s:%d:F: %s is accepted\n", __FILE__, __LINE__, #call);	\
			abort();						\
		}								\
	} while (0)

static void arrays(int n)
{
	NDArrayHandle nd;
	int i;

	for (i = 0; i < n; i++) {
		const int64_t shape[] = { 2, i % 4 };	/* also of no elements */

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

static void *prints(void *arg)
{
	const char *text;

	OK(MXAggregateProfileStatsPrintEx(&text, 0, 1, 0, 0));
	return NULL;
}

static void a_thread_that_has_printed_leaves_no_memory(void)
{
	enum { THREADS = 200 };
	size_t before = 0;
	pthread_t t;
	int i;

	for (i = 0; i < 2 * THREADS; i++) {
		if (i == THREADS)
			before = mallinfo2().uordblks;
		OK(pthread_create(&t, NULL, prints, NULL));
		OK(pthread_join(t, NULL));
	}
	if (mallinfo2().uordblks > before + THREADS * 100) {
		fprintf(stderr, "%s:%d:F: the tables of threads leave memory\n", __FILE__, __LINE__);
		abort();
	}
}

static void nothing(void *run, void *arg) { }

/* Vars and operators that end are used again, with what they had. */
static void a_deleted_operator_leaves_no_memory(void)
{
	enum { OPERATORS = 20000 };
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	struct pawl_mx_var *v;
	struct pawl_mx_op op = { .sync = nothing, .ctx = { PAWL_MX_CPU, 0 }, .writes = &v, .nwrites = 1 };
	struct pawl_mx_opr *opr;
	size_t before = 0, after;
	int i;

	for (i = 0; i < 2 * OPERATORS; i++) {
		if (i == OPERATORS)
			before = mallinfo2().uordblks + mallinfo2().hblkhd;
		OK(pawl_mx_var_new(e, &v));
		OK(pawl_mx_opr_new(e, &op, &opr));
		OK(pawl_mx_opr_push(e, opr, op.ctx, 0, NULL));
		OK(pawl_mx_opr_delete(e, opr));
		OK(pawl_mx_var_delete(e, v, op.ctx, NULL, NULL, NULL));
		if (i % 100 == 99)
			OK(MXNDArrayWaitAll());
	}
	after = mallinfo2().uordblks + mallinfo2().hblkhd;
	if (after > before + OPERATORS * 8) {
		fprintf(stderr, "%s:%d:F: %d operators left %zu bytes\n", __FILE__, __LINE__, OPERATORS,
			after - before);
		abort();
	}
}

static void an_op_with_long_lists_leaves_no_memory(void)
{
	enum { OPS = 4000, ARRAYS_OF_IT = 100, VARS_OF_IT = 300 };
	static const struct pawl_mx_context cpu = { PAWL_MX_CPU, 0 };
	const int64_t shape[] = { 2, 3 };
	struct pawl_mx_var *vars[VARS_OF_IT];
	NDArrayHandle nd, list[ARRAYS_OF_IT];
	size_t before = 0, after;
	int i;

	OK(MXNDArrayCreateEx64(shape, 2, PAWL_MX_CPU, 0, 0, 0, &nd));
	for (i = 0; i < ARRAYS_OF_IT; i++)
		list[i] = nd;
	for (i = 0; i < VARS_OF_IT; i++)
		vars[i] = pawl_mx_nd_var(nd);
	for (i = 0; i < 2 * OPS; i++) {
		if (i == OPS)
			before = mallinfo2().uordblks;
		OK(MXEnginePushSyncND(nothing, NULL, NULL, &cpu, list, ARRAYS_OF_IT, NULL, 0, NULL, 0,
				      NULL));
		OK(MXEnginePushSync(nothing, NULL, NULL, &cpu, vars, VARS_OF_IT, NULL, 0, NULL, 0,
				    NULL));
		if (i % 100 == 99)
			OK(MXNDArrayWaitAll());
	}
	after = mallinfo2().uordblks;
	if (after > before + OPS * 100) {
		fprintf(stderr, "%s:%d:F: %d ops left %zu bytes\n", __FILE__, __LINE__, OPS,
			after - before);
		abort();
	}
	OK(MXNDArrayFree(nd));
}

static void async_nothing(void *run, void *on_complete, void *arg)
{
	OK(pawl_mx_complete(on_complete, NULL));
}

/* Ops of each kind, which the profiler measures, and what the program names itself. */
static void measured(struct pawl_mx_engine *e, int n)
{
	struct pawl_mx_op op = { .ctx = { PAWL_MX_CPU, 0 }, .name = "measured" };
	struct pawl_mx_opr *opr[2];
	ProfileHandle event;
	int i;

	OK(MXProfileCreateEvent("event", &event));
	op.sync = nothing;
	OK(pawl_mx_opr_new(e, &op, &opr[0]));
	op.sync = NULL;
	op.async = async_nothing;
	OK(pawl_mx_opr_new(e, &op, &opr[1]));
	for (i = 0; i < n; i++) {
		op.sync = i % 2 ? nothing : NULL;
		op.async = i % 2 ? NULL : async_nothing;
		OK(pawl_mx_push(e, &op, NULL));
		OK(pawl_mx_opr_push(e, opr[i % 2], op.ctx, 0, NULL));
		OK(MXProfileDurationStart(event));
		OK(MXProfileDurationStop(event));
		if (i % 100 == 99) {
			OK(pawl_mx_wait_all(e, NULL));
			/* what no dump writes goes with the next start */
			OK(MXSetProfilerState(0));
			OK(MXSetProfilerState(1));
		}
	}
	OK(pawl_mx_opr_delete(e, opr[0]));
	OK(pawl_mx_opr_delete(e, opr[1]));
	OK(pawl_mx_wait_all(e, NULL));
	OK(MXProfileDestroyHandle(event));
}

static void measured_ops_leave_no_memory(void)
{
	enum { OPS = 10000 };
	const char *key = "aggregate_stats", *on = "1", *off = "0";
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	size_t before, after;

	OK(MXSetProfilerConfig(1, &key, &on));
	OK(MXSetProfilerState(1));
	measured(e, OPS / 10);
	before = mallinfo2().uordblks + mallinfo2().hblkhd;
	measured(e, OPS);
	after = mallinfo2().uordblks + mallinfo2().hblkhd;
	if (after > before + 40 * OPS) {
		fprintf(stderr, "%s:%d:F: %d measured ops left %zu bytes\n", __FILE__, __LINE__,
			2 * OPS, after - before);
		abort();
	}
	OK(MXSetProfilerState(0));
	OK(MXSetProfilerConfig(1, &key, &off));
}

static ProfileHandle domain;	/* is never freed */

/* What a program names, also while the profiler is off. */
static void profiling_objects(int n)
{
	ProfileHandle o;
	int i;

	for (i = 0; i < n; i++) {
		OK(MXProfileCreateTask(domain, "task", &o));
		OK(MXProfileDestroyHandle(o));
		OK(MXProfileCreateFrame(domain, "frame", &o));
		OK(MXProfileDestroyHandle(o));
		OK(MXProfileCreateEvent("event", &o));
		OK(MXProfileDestroyHandle(o));
		OK(MXProfileCreateCounter(domain, "counter", &o));
		OK(MXProfileDestroyHandle(o));
		OK(MXProfileSetMarker(domain, "marker", "task"));
	}
}

static void destroyed_objects_leave_no_memory(void)
{
	enum { OBJECTS = 2000 };
	size_t before;

	OK(MXProfileCreateDomain("domain", &domain));
	profiling_objects(OBJECTS / 10);
	before = mallinfo2().uordblks;
	profiling_objects(OBJECTS);
	if (mallinfo2().uordblks > before + OBJECTS * 8) {
		fprintf(stderr, "%s:%d:F: destroyed objects leave memory\n", __FILE__, __LINE__);
		abort();
	}
	/* a domain is not destroyed */
	OK(MXProfileDestroyHandle(domain));
	profiling_objects(1);
}

/* Each of these calls fails, whatever it has allocated until then. */
static void refused_calls(struct pawl_mx_engine *e, struct pawl_mx_var *gone, NDArrayHandle nd)
{
	static const struct pawl_mx_context cpu = { PAWL_MX_CPU, 0 }, gpu = { PAWL_MX_GPU, 0 };
	struct pawl_mx_var *vars[300] = { gone };
	const int64_t shape[] = { 2, 3 };
	struct pawl_mx_op op = { .sync = nothing, .ctx = cpu, .writes = vars, .nwrites = 1 };
	NDArrayHandle list[100], out;
	struct pawl_mx_resource r;
	struct pawl_mx_opr *opr;
	int i;

	for (i = 0; i < 99; i++)
		list[i] = nd;
	list[99] = NULL;
	REFUSED(pawl_mx_push(e, &op, NULL));
	REFUSED(pawl_mx_opr_new(e, &op, &opr));
	op.nwrites = 300;
	REFUSED(pawl_mx_push(e, &op, NULL));
	REFUSED(pawl_mx_opr_new(e, &op, &opr));
	REFUSED(MXEnginePushSyncND(nothing, NULL, NULL, &cpu, list, 100, NULL, 0, NULL, 0, NULL));
	REFUSED(MXEnginePushSyncND(nothing, NULL, NULL, &cpu, NULL, 0, list, 100, NULL, 0, NULL));
	REFUSED(MXEnginePushSyncND(nothing, NULL, NULL, &gpu, list, 99, NULL, 0, NULL, 0, NULL));
	REFUSED(pawl_mx_var_delete(e, gone, cpu, nothing, NULL, NULL));
	REFUSED(MXNDArrayCreateEx64(shape, 2, PAWL_MX_GPU, 0, 0, 0, &out));
	REFUSED(MXNDArrayCreateEx64(shape, 2, PAWL_MX_CPU, 0, 0, 99, &out));
	REFUSED(MXNDArraySlice(nd, 0, 99, &out));
	REFUSED(MXNDArrayAt(nd, 99, &out));
	REFUSED(MXNDArrayReshape(nd, 1, (int[]){ 99 }, &out));
	REFUSED(MXNDArraySyncCopyFromCPU(nd, list, 1));
	REFUSED(pawl_mx_resource_get(gpu, PAWL_MX_RANDOM, &r));
	REFUSED(MXProfileCreateEvent(NULL, &out));
}

static void a_refused_call_leaves_no_memory(void)
{
	enum { CALLS = 1500 };
	const int64_t shape[] = { 2, 3 };
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	struct pawl_mx_var *gone;
	NDArrayHandle nd;
	size_t before = 0, after;
	int i;

	OK(MXNDArrayCreateEx64(shape, 2, PAWL_MX_CPU, 0, 0, 0, &nd));
	OK(pawl_mx_var_new(e, &gone));
	OK(pawl_mx_var_delete(e, gone, (struct pawl_mx_context){ PAWL_MX_CPU, 0 }, NULL, NULL, NULL));
	OK(MXNDArrayWaitAll());
	for (i = 0; i < 2 * CALLS; i++) {
		if (i == CALLS)
			before = mallinfo2().uordblks;
		refused_calls(e, gone, nd);
	}
	after = mallinfo2().uordblks;
	if (after > before + CALLS * 8) {
		fprintf(stderr, "%s:%d:F: %d refused calls of each kind left %zu bytes\n", __FILE__,
			__LINE__, CALLS, after - before);
		abort();
	}
	OK(MXNDArrayFree(nd));
}

static void a_space_that_grows_leaves_no_memory(void)
{
	enum { SPACES = 1000, MORE = 100 };
	struct pawl_mx_resource r;
	size_t before, after;
	int i;

	OK(pawl_mx_resource_get((struct pawl_mx_context){ PAWL_MX_CPU, 0 }, PAWL_MX_TEMP_SPACE, &r));
	before = mallinfo2().uordblks;
	for (i = 1; i <= SPACES; i++)
		OK(!pawl_mx_resource_space(&r, (size_t)(i * MORE)));
	after = mallinfo2().uordblks;
	if (after > before + 2 * SPACES * MORE) {
		fprintf(stderr, "%s:%d:F: a space of %d bytes left %zu bytes\n", __FILE__, __LINE__,
			SPACES * MORE, after - before);
		abort();
	}
}

int main(void)
{
	if (THREAD_SANITIZED) {
		printf("one thread, whose memory the sanitizer does not count\n");
		return 77;
	}
	a_space_that_grows_leaves_no_memory();
	a_deleted_operator_leaves_no_memory();
	measured_ops_leave_no_memory();
	destroyed_objects_leave_no_memory();
	a_printed_table_of_the_profiler_leaves_no_memory();
	a_thread_that_has_printed_leaves_no_memory();
	an_op_with_long_lists_leaves_no_memory();
	a_refused_call_leaves_no_memory();
	a_freed_array_leaves_no_memory();
	return 0;
}
