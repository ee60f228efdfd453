// SPDX-License-Identifier: Apache-2.0
/*
 * Calls of the profiler: the numbers that they accept, the clock that they use, how long a
 * table is valid, what a name is, and how many ops a trace has.
 */
#include "mx_profile.h"
#include <pthread.h>
#include <sys/syscall.h>

/* Of a machine whose clock of the day is set back again and again. */
int clock_gettime(clockid_t id, struct timespec *t)
{
	static int set_back;
	long rc;

	memset(t, 0, sizeof(*t));
	rc = syscall(SYS_clock_gettime, id, t);
	if (id == CLOCK_REALTIME)
		t->tv_sec -= 10 * ADD(&set_back, 1);
	return (int)rc;
}

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
static bool refuses;

void *__wrap_realloc(void *p, size_t n)
{
	return refuses ? NULL : __real_realloc(p, n);
}

static const char *json(int reset)
{
	const char *text;

	OK(MXAggregateProfileStatsPrintEx(&text, reset, 1, 0, 0));
	return text;
}

static bool has_traces(void)
{
	struct pawl_engine *pe = pawl_mx_engine_pawl(pawl_mx_engine_get());
	int rc = pawl_trace_start(pe, 64);

	if (!rc)
		OK(pawl_trace_stop(pe));
	return rc != -ENOSYS;
}

static void nothing(void *run, void *arg) { }

static void op(const char *name)
{
	OK(MXEnginePushSync(nothing, NULL, NULL, &cpu, NULL, 0, NULL, 0, NULL, 0, name));
}

static bool is_counted(const char *name)
{
	json(1);
	op(name);
	OK(MXNDArrayWaitAll());
	return strstr(json(1), name) != NULL;
}

/* A refused state changes nothing; a pause is any number but 0. */
START_TEST(test_which_numbers_are_a_state_or_a_pause)
{
	static const int bad[] = { -1, 2, 77, -2147483647 - 1 }, pauses[] = { 1, 2, -1, 256 };
	char text[32];
	int on, i;

	set_up("1");
	for (on = 0; on < 2; on++) {
		OK(MXSetProfilerState(on));
		for (i = 0; i < 4; i++) {
			snprintf(text, sizeof(text), "profiler: state %d", bad[i]);
			FAILS(MXSetProfilerState(bad[i]), text);
			ck_assert_int_eq(is_counted("state"), on);
		}
	}
	for (i = 0; i < 4; i++) {
		OK(MXProfilePause(pauses[i]));
		ck_assert(!is_counted("pause"));
		FAILS(MXProcessProfilePause(0, 1, NULL), "no server process");
		ck_assert(!is_counted("pause"));
		OK(MXProfilePause(0));
		ck_assert(is_counted("pause"));
	}
	FAILS(MXProcessProfilePause(1, -1, NULL), "no server process");
	FAILS(MXSetProcessProfilerState(0, 2, NULL), "no server process");
	ck_assert(is_counted("state"));
	OK(MXSetProfilerState(0));
	set_up("0");
}
END_TEST

START_TEST(test_times_do_not_follow_the_clock_of_the_day)
{
	ProfileHandle event;
	const char *text, *at;
	double row[2];
	int i;

	set_up("1");
	OK(MXProfileCreateEvent("short", &event));
	OK(MXSetProfilerState(1));
	json(1);
	for (i = 0; i < 10; i++) {
		OK(MXProfileDurationStart(event));
		OK(MXProfileDurationStop(event));
	}
	text = json(1);
	at = strstr(text, "\"short\": {\"Count\": 10, ");
	ck_assert(at && sscanf(at, "\"short\": {\"Count\": 10, \"Total\": %lf, \"Min\": %lf",
			       &row[0], &row[1]) == 2);
	ck_assert(row[0] < 3600e3 && row[1] <= row[0]);
	OK(MXSetProfilerState(0));
	OK(MXProfileDestroyHandle(event));
	set_up("0");
}
END_TEST

static void *prints(void *arg)
{
	ck_assert(strstr(json(0), "\"printed\": {\"Count\": 2,") != NULL);
	json(1);
	ck_assert(!strstr(json(0), "printed"));
	return NULL;
}

/* Until its thread prints again, whatever others print. */
START_TEST(test_the_table_of_a_thread_stays)
{
	const char *mine;
	char *copy;
	pthread_t t;

	set_up("1");
	OK(MXSetProfilerState(1));
	json(1);
	op("printed");
	OK(MXNDArrayWaitAll());
	mine = json(0);
	ck_assert(strstr(mine, "\"printed\": {\"Count\": 1,") != NULL);
	copy = strdup(mine);
	op("printed");
	OK(MXNDArrayWaitAll());
	ck_assert(!pthread_create(&t, NULL, prints, NULL));
	pthread_join(t, NULL);
	ck_assert_str_eq(mine, copy);
	free(copy);
	OK(MXSetProfilerState(0));
	set_up("0");
}
END_TEST

/* A task and a counter may have one name: the row is that of the last one. */
START_TEST(test_a_row_has_the_unit_of_what_had_its_name_last)
{
	ProfileHandle domain = domain_new("units"), task, counter;

	set_up("1");
	OK(MXProfileCreateTask(domain, "either", &task));
	OK(MXProfileCreateCounter(domain, "either", &counter));
	OK(MXSetProfilerState(1));
	json(1);
	OK(MXProfileDurationStart(task));
	OK(MXProfileDurationStop(task));
	json(1);
	OK(MXProfileSetCounter(counter, 2000));
	ck_assert(strstr(json(1), "\"either\": {\"Count\": 1, \"Total\": 2.0000, \"Min\": 2.0000, "
			 "\"Max\": 2.0000, \"Avg\": 0.0000}") != NULL);
	OK(MXSetProfilerState(0));
	OK(MXProfileDestroyHandle(task));
	OK(MXProfileDestroyHandle(counter));
	set_up("0");
}
END_TEST

/* A dump has what one thread did with many ops, not only the last of them. */
START_TEST(test_a_trace_has_many_ops_of_one_thread)
{
	enum { OPS = 20000 };
	char *line = NULL;
	size_t room = 0;
	int i, n = 0;
	FILE *f;

	if (!has_traces())
		return;
	set_up("0");
	OK(MXSetProfilerState(1));
	op("the first");
	for (i = 0; i < OPS; i++)
		op("one of many");
	OK(MXNDArrayWaitAll());
	OK(MXDumpProfile(1));
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	while (getline(&line, &room, f) >= 0)
		n += strstr(line, "\"the first\"") != NULL ? OPS : strstr(line, "\"one of many\"") != NULL;
	ck_assert_int_ge(n, 2 * OPS);
	fclose(f);
	free(line);
}
END_TEST

/* Of a domain 48 characters, of a marker 63, and all of what its kind appends. */
START_TEST(test_a_trace_has_the_longest_names)
{
	char name[101], want[256], *line = NULL;
	ProfileHandle domain;
	size_t room = 0;
	int n = 0;
	FILE *f;

	if (!has_traces())
		return;
	set_up("0");
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	domain = domain_new(name);
	memset(name, 'm', sizeof(name) - 1);
	OK(MXSetProfilerState(1));
	OK(MXProfileSetMarker(domain, name, "thread"));
	OK(MXDumpProfile(1));
	memset(want, 'n', 48);
	snprintf(want + 48, sizeof(want) - 48, ",instant_marker\",\"name\":\"%.63s\"", name);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	while (getline(&line, &room, f) >= 0)
		n += strstr(line, want) != NULL;
	ck_assert_int_eq(n, 1);
	fclose(f);
	free(line);
}
END_TEST

/* Names of any length, wherever the text's memory has to grow. */
START_TEST(test_a_table_has_all_of_each_name)
{
	enum { NAMES = 100, LEN = 120 };
	static char name[NAMES][LEN + 1];
	const char *text, *end = "\"kB\"}}";
	int i;

	set_up("1");
	OK(MXSetProfilerState(1));
	json(1);
	for (i = 0; i < NAMES; i++) {
		memset(name[i], 'a' + i % 26, LEN);
		name[i][i] = 'A';
		op(name[i]);
	}
	OK(MXNDArrayWaitAll());
	text = json(1);
	for (i = 0; i < NAMES; i++)
		ck_assert_ptr_nonnull(strstr(text, name[i]));
	ck_assert_str_eq(text + strlen(text) - strlen(end), end);
	OK(MXSetProfilerState(0));
	set_up("0");
}
END_TEST

/* Also one whose record's memory had another name before: those of a thread come back in lists. */
START_TEST(test_an_op_without_a_name_is_unnamed)
{
	enum { N = 500 };
	const char *text;
	int i;

	set_up("1");
	OK(MXSetProfilerState(1));
	json(1);
	for (i = 0; i < N; i++)
		op("has a name");
	OK(MXNDArrayWaitAll());
	for (i = 0; i < N; i++)
		op(NULL);
	OK(MXNDArrayWaitAll());
	text = json(1);
	ck_assert_ptr_nonnull(strstr(text, "\"has a name\": {\"Count\": 500,"));
	ck_assert_ptr_nonnull(strstr(text, "\"unnamed\": {\"Count\": 500,"));
	OK(MXSetProfilerState(0));
	set_up("0");
}
END_TEST

/* The first print of a thread needs memory for the table; later ones have it. */
static void *prints_without_memory(void *arg)
{
	const char *text = NULL;

	refuses = true;
	ck_assert_int_eq(MXAggregateProfileStatsPrint(&text, 0), -1);
	ck_assert_ptr_null(text);
	refuses = false;
	OK(MXAggregateProfileStatsPrint(&text, 0));
	ck_assert_ptr_nonnull(text);
	return NULL;
}

START_TEST(test_a_print_that_had_no_memory_does_not_spoil_the_next)
{
	pthread_t t;

	ck_assert(!pthread_create(&t, NULL, prints_without_memory, NULL));
	ck_assert(!pthread_join(t, NULL));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		test_which_numbers_are_a_state_or_a_pause,
		test_times_do_not_follow_the_clock_of_the_day, test_the_table_of_a_thread_stays,
		test_a_row_has_the_unit_of_what_had_its_name_last,
		test_a_trace_has_many_ops_of_one_thread, test_a_trace_has_the_longest_names,
		test_a_table_has_all_of_each_name, test_an_op_without_a_name_is_unnamed,
		test_a_print_that_had_no_memory_does_not_spoil_the_next, NULL
	};
	int failed;

	close(mkstemp(path));
	failed = suite_run("mx_profile_calls", tests, 50);
	unlink(path);
	return failed;
}
