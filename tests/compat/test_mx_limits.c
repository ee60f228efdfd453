/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays, resources and the profiler where something is missing: elements, an engine, room in
 * libpawl's queues, memory for a trace.  Calls of pawl_push() and pawl_trace_start() go through
 * this file (--wrap).
 */
#include "mx_meanwhile.h"
#include "mx_profile.h"
#include <pthread.h>
#include <stdbool.h>
#include <sys/syscall.h>

int __real_pawl_push(struct pawl_engine *e, const struct pawl_op *op);
int __wrap_pawl_push(struct pawl_engine *e, const struct pawl_op *op);

static bool refuses;		/* each push */

int __wrap_pawl_push(struct pawl_engine *e, const struct pawl_op *op)
{
	return refuses ? -ENOSPC : __real_pawl_push(e, op);
}

int __real_pawl_trace_start(struct pawl_engine *e, unsigned int events);
int __wrap_pawl_trace_start(struct pawl_engine *e, unsigned int events);

static int no_trace;		/* what each start of a trace returns, if not 0 */

int __wrap_pawl_trace_start(struct pawl_engine *e, unsigned int events)
{
	return no_trace ? no_trace : __real_pawl_trace_start(e, events);
}

static __thread void (*at_the_clock)(void);	/* called once, by this thread */

int clock_gettime(clockid_t id, struct timespec *t)
{
	void (*call)(void) = at_the_clock;

	memset(t, 0, sizeof(*t));
	at_the_clock = NULL;
	if (call)
		call();
	return (int)syscall(SYS_clock_gettime, id, t);
}

static struct pawl_mx_context cpu_number(int id)
{
	return (struct pawl_mx_context){ PAWL_MX_CPU, id };
}

/* --- no elements --- */

static NDArrayHandle empty_array(void)
{
	const int64_t shape[] = { 0, 5 };
	NDArrayHandle nd = NULL;

	OK(MXNDArrayCreateEx64(shape, 2, PAWL_MX_CPU_PINNED, 3, 1, 4, &nd));
	return nd;
}

START_TEST(test_an_array_of_no_elements_has_all_properties)
{
	NDArrayHandle nd[2];
	const int64_t *ls;
	const uint32_t *us;
	const int *is;
	uint32_t un;
	int n, m, i;
	void *p;

	nd[0] = empty_array();
	OK(MXShallowCopyNDArray(nd[0], &nd[1]));
	for (i = 0; i < 2; i++) {
		OK(MXNDArrayGetShape(nd[i], &un, &us));
		ck_assert(un == 2 && us[0] == 0 && us[1] == 5);
		OK(MXNDArrayGetShapeEx(nd[i], &n, &is));
		ck_assert(n == 2 && is[0] == 0 && is[1] == 5);
		OK(MXNDArrayGetShapeEx64(nd[i], &n, &ls));
		ck_assert(n == 2 && ls[0] == 0 && ls[1] == 5);
		OK(MXNDArrayGetDType(nd[i], &n));
		ck_assert_int_eq(n, 4);
		OK(MXNDArrayGetContext(nd[i], &n, &m));
		ck_assert(n == PAWL_MX_CPU_PINNED && m == 3);
		OK(MXNDArrayGetStorageType(nd[i], &n));
		ck_assert_int_eq(n, 0);
		OK(MXNDArrayGetData(nd[i], &p));
		ck_assert_ptr_nonnull(p);
		ck_assert_ptr_nonnull(pawl_mx_nd_var(nd[i]));
		ck_assert_ptr_eq(pawl_mx_nd_var(nd[i]), pawl_mx_nd_var(nd[0]));
	}
	OK(MXNDArrayFree(nd[0]));
	OK(MXNDArrayFree(nd[1]));
}
END_TEST

START_TEST(test_waits_for_an_array_of_no_elements_wait)
{
	NDArrayHandle nd = empty_array();
	pthread_t t;
	int i;

	waiter = (pid_t)syscall(SYS_gettid);
	for (i = 0; i < 2; i++) {
		holds = released = 0;
		OK(MXEnginePushAsyncND(hold, NULL, NULL, &cpu, NULL, 0, &nd, 1, NULL, 0, "w", false));
		ck_assert(soon(is_held));
		ck_assert(!pthread_create(&t, NULL, releases, NULL));
		OK(i ? MXNDArrayWaitToWrite(nd) : MXNDArrayWaitToRead(nd));
		ck_assert_int_eq(GET(&released), 1);
		pthread_join(t, NULL);
	}
	OK(MXNDArrayFree(nd));
}
END_TEST

START_TEST(test_one_dimension_needs_its_size)
{
	NDArrayHandle nd = floats(3), out = NULL;

	FAILS(MXNDArrayCreate(NULL, 1, PAWL_MX_CPU, 0, 0, &out), "the shape is NULL");
	FAILS(MXNDArrayCreateEx64(NULL, 1, PAWL_MX_CPU, 0, 0, 0, &out), "the shape is NULL");
	FAILS(MXNDArrayReshape(nd, 1, NULL, &out), "reshape to 1 dimensions");
	ck_assert_ptr_null(out);
	OK(MXNDArrayFree(nd));
}
END_TEST

/* --- no engine --- */

START_TEST(test_calls_that_need_the_engine_say_why_there_is_none)
{
	static const char text[] = "unknown engine type 'Missing'";
	const uint32_t shape[] = { 2 };
	struct pawl_mx_resource r;
	NDArrayHandle nd = NULL;

	OK(pawl_mx_engine_free(pawl_mx_engine_get()));
	ck_assert(!setenv("MXNET_ENGINE_TYPE", "Missing", 1));
	FAILS(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 0, &nd), text);
	FAILS(MXNDArrayWaitAll(), text);
	REFUSED(-ENODEV, pawl_mx_resource_get(cpu, PAWL_MX_RANDOM, &r), text);
	FAILS(MXRandomSeedContext(1, PAWL_MX_CPU, 0), text);
	FAILS(MXSetProfilerState(1), text);
	FAILS(MXSetProfilerState(0), text);
	FAILS(MXDumpProfile(0), text);
	FAILS(MXDumpProfile(1), text);
	ck_assert_ptr_null(nd);
	/* these need none, and make none */
	OK(MXRandomSeed(1));
	OK(MXProfilePause(0));
	OK(MXSetProfilerConfig(0, NULL, NULL));
	ck_assert(!setenv("MXNET_ENGINE_TYPE", "NaiveEngine", 1));
	OK(MXRandomSeed(2));
	OK(MXNDArrayCreateNone(&nd));
	OK(MXNDArrayWaitToRead(nd));
	OK(MXNDArrayFree(nd));
	ck_assert(!unsetenv("MXNET_ENGINE_TYPE"));
	ck_assert_int_eq(pawl_mx_engine_kind(pawl_mx_engine_get()), PAWL_MX_PER_DEVICE);
	OK(MXNDArrayWaitAll());
}
END_TEST

/* --- no room --- */

static void seeds_and_refuses(void)
{
	OK(MXRandomSeed(8));
	refuses = true;
}

/* And what they have taken is used again. */
START_TEST(test_calls_whose_op_is_refused_say_it)
{
	NDArrayHandle a = floats(1), b = floats(1);
	struct pawl_mx_resource r, same;
	float x = 4, y = 0;

	OK(pawl_mx_resource_get(cpu, PAWL_MX_RANDOM, &r));
	OK(MXNDArraySyncCopyFromCPU(b, &x, 1));
	refuses = true;
	FAILS(MXNDArraySyncCopyFromCPU(a, &x, 1), "");
	FAILS(pawl_mx_nd_copy(b, a, 0), "");
	FAILS(MXNDArraySyncCopyFromNDArray(a, b, -1), "");
	FAILS(MXRandomSeed(7), "");
	FAILS(MXRandomSeedContext(7, PAWL_MX_CPU, 0), "");
	refuses = false;
	ck_assert(version(a) == 0 && pawl_mx_var_version(r.var) == 0);
	OK(MXNDArraySyncCopyFromNDArray(a, b, -1));
	OK(MXNDArraySyncCopyToCPU(a, &y, 1));
	ck_assert(y == 4 && version(a) == 1);
	/* a new context that cannot be seeded is not returned, but a later request finds it */
	meanwhile = seeds_and_refuses;
	REFUSED(-ENODEV, pawl_mx_resource_get(cpu_number(5), PAWL_MX_RANDOM, &r), "");
	refuses = false;
	ck_assert_ptr_null(meanwhile);
	OK(pawl_mx_resource_get(cpu_number(5), PAWL_MX_RANDOM, &r));
	OK(pawl_mx_resource_get(cpu_number(5), PAWL_MX_RANDOM, &same));
	ck_assert_ptr_eq(r.var, same.var);
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(b));
	OK(MXNDArrayWaitAll());
}
END_TEST

/* The refused sizes leave the space as it is; none of them is tried. */
START_TEST(test_the_largest_space)
{
	static const size_t sizes[] = { SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 64, SIZE_MAX - 64, SIZE_MAX };
	struct pawl_mx_resource r;
	char text[64];
	void *space;
	size_t i;

	OK(pawl_mx_resource_get(cpu, PAWL_MX_TEMP_SPACE, &r));
	space = pawl_mx_resource_space(&r, 100);
	ck_assert_ptr_nonnull(space);
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		ck_assert_ptr_null(pawl_mx_resource_space(&r, sizes[i]));
		snprintf(text, sizeof(text), "temporary space of %zu bytes", sizes[i]);
		ck_assert_str_eq(MXGetLastError(), text);
		ck_assert_ptr_eq(pawl_mx_resource_space(&r, 100), space);
	}
}
END_TEST

/* --- seeds --- */

START_TEST(test_each_generator_of_a_context_is_seeded)
{
	struct pawl_mx_resource r[3];
	int i, k;

	ck_assert(!setenv("MXNET_CPU_PARALLEL_RAND_COPY", "3", 1));
	for (i = 0; i < 3; i++) {
		OK(pawl_mx_resource_get(cpu_number(6), PAWL_MX_PARALLEL_RANDOM, &r[i]));
		for (k = 0; k < i; k++)
			ck_assert(r[k].var != r[i].var && r[k].id != r[i].id);
	}
	ck_assert(!unsetenv("MXNET_CPU_PARALLEL_RAND_COPY"));
	for (k = 1; k < 4; k++) {
		if (k & 1)
			OK(MXRandomSeed(k));
		else
			OK(MXRandomSeedContext(k, PAWL_MX_CPU, 6));
		OK(MXNDArrayWaitAll());
		for (i = 0; i < 3; i++)
			ck_assert_uint_eq(pawl_mx_var_version(r[i].var), (uint64_t)k);
	}
}
END_TEST

static void another_seed(void) { OK(MXRandomSeed(3)); }

static void a_seed_and_later_another(void)
{
	OK(MXRandomSeed(2));
	at_the_clock = another_seed;
}

static void numbers(void *run, void *arg)
{
	struct { struct pawl_mx_resource r; uint64_t got[2]; } *n = arg;

	n->got[0] = pawl_mx_resource_random(&n->r);
	n->got[1] = pawl_mx_resource_random(&n->r);
}

/*
 * A new context is given the seed that was set while it was made, and the one that is set while
 * that is being done.  On the naive engine the ops that set them run in the pushes, and the
 * profiler asks for the time before each.
 */
START_TEST(test_a_new_context_has_the_last_of_several_seeds)
{
	const char *key = "aggregate_stats", *on = "1", *off = "0";
	struct { struct pawl_mx_resource r; uint64_t got[2]; } first, second;
	struct pawl_mx_resource r;

	OK(pawl_mx_engine_free(pawl_mx_engine_get()));
	ck_assert(!setenv("MXNET_ENGINE_TYPE", "NaiveEngine", 1));
	OK(MXSetProfilerConfig(1, &key, &on));
	OK(MXSetProfilerState(1));
	OK(MXRandomSeed(1));
	meanwhile = a_seed_and_later_another;
	OK(pawl_mx_resource_get(cpu_number(7), PAWL_MX_PARALLEL_RANDOM, &first.r));
	ck_assert(!meanwhile && !at_the_clock);
	OK(MXEnginePushSync(numbers, &first, NULL, &cpu, NULL, 0, &first.r.var, 1, NULL, 0, "n"));
	OK(MXRandomSeed(3));
	second.r = first.r;
	OK(MXEnginePushSync(numbers, &second, NULL, &cpu, NULL, 0, &second.r.var, 1, NULL, 0, "n"));
	ck_assert(!memcmp(first.got, second.got, sizeof(first.got)));
	OK(pawl_mx_resource_get(cpu_number(7), PAWL_MX_RANDOM, &r));
	OK(MXSetProfilerState(0));
	OK(MXSetProfilerConfig(1, &key, &off));
	OK(pawl_mx_engine_free(pawl_mx_engine_get()));
	ck_assert(!unsetenv("MXNET_ENGINE_TYPE"));
}
END_TEST

/* --- traces --- */

static struct pawl_engine *pawl(void)
{
	return pawl_mx_engine_pawl(pawl_mx_engine_get());
}

/* Does the library have traces?  None may be running. */
static bool has_traces(void)
{
	int rc = pawl_trace_start(pawl(), 64);

	if (!rc)
		OK(pawl_trace_stop(pawl()));
	return rc != -ENOSYS;
}

static void op(const char *name)
{
	OK(MXEnginePushSync(body, NULL, NULL, &cpu, NULL, 0, NULL, 0, NULL, 0, name));
	OK(MXNDArrayWaitAll());
}

static bool is_counted(void)
{
	const char *text;

	OK(MXAggregateProfileStatsPrint(&text, 1));
	op("counted");
	OK(MXAggregateProfileStatsPrint(&text, 1));
	return strstr(text, "\ncounted ") != NULL;
}

static bool file_has(const char *what)
{
	static char text[1 << 16];
	FILE *f = fopen(path, "r");
	size_t n;

	ck_assert_ptr_nonnull(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	return strstr(text, what) != NULL;
}

START_TEST(test_a_start_without_a_trace_is_refused_and_the_profiler_stays_off)
{
	set_up("1");
	no_trace = -ENOMEM;
	FAILS(MXSetProfilerState(1), "");
	ck_assert(!is_counted());
	/* while it is off a stop, and a pause, need no trace */
	OK(MXSetProfilerState(0));
	FAILS(MXSetProfilerState(1), "");
	no_trace = 0;
	OK(MXSetProfilerState(1));
	ck_assert(is_counted());
	OK(MXProfilePause(1));
	/* while it is on a start needs none, and ends the pause */
	no_trace = -ENOMEM;
	OK(MXSetProfilerState(1));
	no_trace = 0;
	ck_assert(is_counted());
	OK(MXSetProfilerState(0));
	/* the sums need no trace in a build that has none, and one that runs is taken */
	no_trace = -ENOSYS;
	OK(MXSetProfilerState(1));
	ck_assert(is_counted());
	OK(MXSetProfilerState(0));
	no_trace = -EALREADY;
	OK(MXSetProfilerState(1));
	ck_assert(is_counted());
	no_trace = 0;
	OK(MXSetProfilerState(0));
	set_up("0");
}
END_TEST

/* Whatever the profiler was told before, and not if there is no trace. */
START_TEST(test_the_environment_starts_the_profiler_of_each_engine)
{
	int i;

	set_up("1");
	OK(pawl_mx_engine_free(pawl_mx_engine_get()));
	ck_assert(!setenv("MXNET_PROFILER_AUTOSTART", "1", 1));
	for (i = 0; i < 4; i++) {
		no_trace = i == 1 ? -ENOMEM : 0;
		ck_assert_int_eq(is_counted(), i != 1);
		no_trace = 0;
		OK(MXSetProfilerState(i == 3));
		if (i == 2)
			OK(MXProfilePause(1));
		OK(pawl_mx_engine_free(pawl_mx_engine_get()));
	}
	ck_assert(!unsetenv("MXNET_PROFILER_AUTOSTART"));
	OK(MXSetProfilerState(0));
	set_up("0");
}
END_TEST

/* The program's own trace goes on. */
START_TEST(test_a_dump_stops_no_trace_but_the_profilers)
{
	int i;

	if (!has_traces())
		return;
	set_up("0");
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(pawl_trace_start(pawl(), 64), 0);
		op("mine");
		FAILS(MXDumpProfile(i), "the trace is still running");
		ck_assert_int_eq(pawl_trace_start(pawl(), 64), -EALREADY);
		OK(pawl_trace_stop(pawl()));
	}
}
END_TEST

/* If it was the last dump, what it could not write is there for another one. */
START_TEST(test_a_last_dump_that_fails_can_be_repeated)
{
	const char *key = "filename", *nowhere = "/nowhere/profile.json";
	ProfileHandle event;

	if (!has_traces())
		return;
	set_up("0");
	OK(MXProfileCreateEvent("an event", &event));
	OK(MXSetProfilerState(1));
	op("an op");
	OK(MXProfileDurationStart(event));
	OK(MXProfileDurationStop(event));
	OK(MXSetProfilerConfig(1, &key, &nowhere));
	FAILS(MXDumpProfile(1), nowhere);
	set_up("0");
	OK(MXDumpProfile(1));
	ck_assert(file_has("\"an op\"") && file_has("\"an event\""));
	/* and then it is not */
	OK(MXDumpProfile(1));
	ck_assert(!file_has("\"an event\""));
	OK(MXProfileDestroyHandle(event));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		test_an_array_of_no_elements_has_all_properties,
		test_waits_for_an_array_of_no_elements_wait, test_one_dimension_needs_its_size,
		test_calls_that_need_the_engine_say_why_there_is_none,
		test_calls_whose_op_is_refused_say_it, test_the_largest_space,
		test_each_generator_of_a_context_is_seeded,
		test_a_new_context_has_the_last_of_several_seeds,
		test_a_start_without_a_trace_is_refused_and_the_profiler_stays_off,
		test_the_environment_starts_the_profiler_of_each_engine,
		test_a_dump_stops_no_trace_but_the_profilers,
		test_a_last_dump_that_fails_can_be_repeated, NULL
	};
	int failed;

	close(mkstemp(path));
	failed = suite_run("mx_limits", tests, 50);
	unlink(path);
	return failed;
}
