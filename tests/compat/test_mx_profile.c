/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profiler of the C interface: its table, its trace, and the profiling objects, what they
 * add to both, when they record nothing, and bad handles.
 */
#include "mx_profile.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>

static const char *table(void)
{
	const char *text;

	OK(MXAggregateProfileStatsPrint(&text, 0));
	return text;
}

/* Is the library built with traces?  No trace of the engine may be running. */
static bool has_traces(struct pawl_engine *pe)
{
	int rc = pawl_trace_start(pe, 64);

	if (rc == -ENOSYS)
		return false;
	ck_assert_int_eq(rc, 0);
	pawl_trace_stop(pe);
	return true;
}

/* The position of a row, or of a heading, in the table. */
static const char *row(const char *text, const char *start)
{
	char line[128];
	const char *at;

	snprintf(line, sizeof(line), "\n%s", start);
	at = strstr(text, line);
	ck_assert_msg(at != NULL, "no line \"%s\" in:\n%s", start, text);
	return at;
}

static void has(const char *json, const char *what)
{
	ck_assert_msg(strstr(json, what) != NULL, "no %s in:\n%s", what, json);
}

static char *slurp(void)
{
	FILE *f = fopen(path, "r");
	char *s = calloc(1, 1 << 20);
	size_t n;

	ck_assert(f && s);
	n = fread(s, 1, (1 << 20) - 1, f);
	fclose(f);
	ck_assert(n > 4 && !strcmp(s + n - 4, "\n]}\n"));
	return s;
}

/* The time of the first event in JSON that begins like this, in microseconds. */
static double time_of(const char *json, const char *what)
{
	const char *at = strstr(json, what);
	double ts;

	ck_assert_msg(at != NULL, "no %s in:\n%s", what, json);
	at = strstr(at, "\"ts\":");
	ck_assert(at && sscanf(at, "\"ts\":%lf", &ts) == 1);
	return ts;
}

static void spend(ProfileHandle duration, long ms)
{
	const struct timespec t = { 0, ms * 1000000 };

	OK(MXProfileDurationStart(duration));
	nanosleep(&t, NULL);
	OK(MXProfileDurationStop(duration));
}

START_TEST(test_objects)
{
	struct pawl_engine *pe = pawl_mx_engine_pawl(pawl_mx_engine_get());
	bool traces = has_traces(pe);
	ProfileHandle domain, task, frame, event, counter;
	unsigned long long n;
	const char *text, *at;
	double total, least;
	char *json;

	set_up("1");
	domain = domain_new("Python::domain");
	OK(MXProfileCreateTask(domain, "task \"t\"", &task));
	OK(MXProfileCreateFrame(domain, "frame", &frame));
	OK(MXProfileCreateEvent("event", &event));
	OK(MXProfileCreateCounter(domain, "counter", &counter));

	/* before the start nothing is recorded, but a counter counts */
	spend(task, 1);
	OK(MXProfileSetCounter(counter, 5000));
	ck_assert(!strstr(table(), "Python::domain"));

	OK(MXSetProfilerState(1));
	spend(task, 2);
	spend(task, 1);
	spend(frame, 1);
	spend(event, 1);
	OK(MXProfileAdjustCounter(counter, 2000));
	OK(MXProfileAdjustCounter(counter, -4000));
	OK(MXProfileSetMarker(domain, "marker", "thread"));
	OK(MXProfilePause(1));
	spend(task, 1);
	OK(MXProfileSetMarker(domain, "unseen", "global"));
	OK(MXProfilePause(0));

	text = table();
	at = row(text, "Python::domain\n=================\nName ");
	at = row(at, "task \"t\" ");
	ck_assert_int_eq(sscanf(at, "\ntask \"t\" %llu %lf %lf", &n, &total, &least), 3);
	ck_assert_uint_eq(n, 2);
	ck_assert(total >= 3 && least >= 1 && least <= total / 2);
	/* of a counter: the last value, the least, the greatest, half the range; in thousands */
	at = row(text, "counter ");
	ck_assert_int_eq(sscanf(at, "\ncounter %llu %lf %lf", &n, &total, &least), 3);
	ck_assert_uint_eq(n, 2);
	ck_assert(total == 3 && least == 3);
	has(at, " 7.0000 ");
	has(at, " 2.0000\n");
	row(row(text, "Python::domain,frame\n"), "frame ");
	row(row(text, "event\n==="), "event  ");
	row(text, "Python::domain,instant_marker\n");
	ck_assert(!strstr(text, "\nmarker"));

	OK(MXAggregateProfileStatsPrintEx(&text, 0, 1, 2, 1));
	has(text, "\"Python::domain\": {\"counter\": {\"Count\": 2,");
	has(text, "\"task \\\"t\\\"\": {\"Count\": 2,");
	has(text, "\"Python::domain,instant_marker\": {}");
	ck_assert(!strstr(text, "{, "));
	if (traces) {
		OK(MXDumpProfile(0));
		json = slurp();
		has(json, "{\"ph\":\"b\",\"cat\":\"Python::domain\",\"name\":\"task \\\"t\\\"\",\"id\":");
		has(json, "{\"ph\":\"e\",\"cat\":\"Python::domain\"");
		total = time_of(json, "{\"ph\":\"b\"");
		ck_assert(total > 0 && time_of(json, "{\"ph\":\"e\"") - total >= 2000);
		has(json, "{\"ph\":\"(\",\"cat\":\"Python::domain,frame\",\"name\":\"frame\"");
		/* neither of these two has an id */
		has(json, "{\"ph\":\"B\",\"cat\":\"event\",\"name\":\"event\",\"pid\":1,");
		has(json, "\"name\":\"counter\",\"args\":{\"counter\":7000},\"pid\":1,");
		has(json, "\"args\":{\"counter\":3000}");
		has(json, "\"name\":\"marker\"");
		has(json, "\"s\":\"t\"");
		ck_assert(!strstr(json, "unseen"));
		free(json);
		/* the next dump has what is new */
		spend(event, 1);
		OK(MXDumpProfile(1));
		json = slurp();
		has(json, "\"name\":\"event\"");
		ck_assert(!strstr(json, "\"name\":\"frame\""));
		free(json);
	}
	/* This table ends a period: the next one has the least value since then. */
	OK(MXSetProfilerState(1));
	OK(MXAggregateProfileStatsPrint(&text, 1));
	OK(MXProfileSetCounter(counter, 9000));
	at = row(table(), "counter ");
	ck_assert_int_eq(sscanf(at, "\ncounter %llu %lf %lf", &n, &total, &least), 3);
	ck_assert(n == 1 && total == 9 && least == 9);
	OK(MXSetProfilerState(0));
	OK(MXProfileDestroyHandle(task));
	OK(MXProfileDestroyHandle(frame));
	OK(MXProfileDestroyHandle(event));
	OK(MXProfileDestroyHandle(counter));
	/* a domain stays */
	OK(MXProfileDestroyHandle(domain));
	OK(MXProfileCreateTask(domain, "later", &task));
	OK(MXProfileDestroyHandle(task));
	set_up("0");
}
END_TEST

/* The values that are set, so that the rows have another order by each column, both ways. */
static const char *sorted(int sort_by, int ascending, int reset)
{
	static char order[5];
	const char *text, *at[4], *last = NULL;
	int i, k, next;

	OK(MXAggregateProfileStatsPrintEx(&text, reset, reset, sort_by, ascending));
	for (i = 0; i < 4; i++) {
		const char name[] = { 's', 'o', 'r', 't', (char)('A' + i), 0 };

		at[i] = strstr(text, name);
		ck_assert_ptr_nonnull(at[i]);
	}
	for (k = 0; k < 4; k++) {
		for (i = 0, next = -1; i < 4; i++)
			if (at[i] > last && (next < 0 || at[i] < at[next]))
				next = i;
		last = at[next];
		order[k] = (char)('A' + next);
	}
	return order;
}

/* By total, average, least, greatest and count; also in JSON. */
START_TEST(test_rows_are_sorted_by_any_column)
{
	static const int values[4][5] = { { 8, 4 }, { 6, 1, 3, 1 }, { 7 }, { 5, 9, 11 } };
	static const char *const orders[2][5] = { { "DCAB", "DBAC", "CDAB", "DACB", "BDAC" },
						  { "BACD", "CABD", "BADC", "BCAD", "CADB" } };
	ProfileHandle domain = domain_new("sorted"), counter[4];
	const char *text;
	int i, k, up;

	set_up("1");
	OK(MXSetProfilerState(1));
	for (i = 0; i < 4; i++) {
		const char name[] = { 's', 'o', 'r', 't', (char)('A' + i), 0 };

		OK(MXProfileCreateCounter(domain, name, &counter[i]));
		for (k = 0; values[i][k]; k++)
			OK(MXProfileSetCounter(counter[i], (uint64_t)values[i][k] * 1000));
	}
	for (up = 0; up < 2; up++)
		for (i = 0; i < 5; i++)
			ck_assert_str_eq(sorted(i, up, 0), orders[up][i]);
	OK(MXAggregateProfileStatsPrint(&text, 0));
	has(text, "\nsortB                                   4           1.0000           1.0000"
	    "           6.0000           2.5000\n");
	ck_assert_str_eq(sorted(2, 1, 1), orders[1][2]);
	/* each number begins again, also the greatest */
	for (i = 0; i < 4; i++)
		OK(MXProfileSetCounter(counter[i], 500));
	OK(MXAggregateProfileStatsPrintEx(&text, 1, 1, 0, 0));
	for (i = 0; i < 4; i++) {
		char want[128];

		snprintf(want, sizeof(want), "\"sort%c\": {\"Count\": 1, \"Total\": 0.5000, \"Min\": "
			 "0.5000, \"Max\": 0.5000, \"Avg\": 0.0000}", 'A' + i);
		has(text, want);
		OK(MXProfileDestroyHandle(counter[i]));
	}
	OK(MXSetProfilerState(0));
	set_up("0");
}
END_TEST

/* What else is in the JSON of a time: one of the period is the total, the least and the rest. */
START_TEST(test_times_begin_again_with_a_period)
{
	ProfileHandle event;
	double row[4];
	const char *text, *at;
	int i;

	set_up("1");
	OK(MXProfileCreateEvent("periodic", &event));
	OK(MXSetProfilerState(1));
	for (i = 0; i < 2; i++)
		spend(event, 20 - 19 * i);
	OK(MXAggregateProfileStatsPrintEx(&text, 1, 1, 0, 0));
	spend(event, 1);
	OK(MXAggregateProfileStatsPrintEx(&text, 1, 1, 0, 0));
	at = strstr(text, "\"periodic\": {\"Count\": 1, ");
	ck_assert_ptr_nonnull(at);
	ck_assert_int_eq(sscanf(at, "\"periodic\": {\"Count\": 1, \"Total\": %lf, \"Min\": %lf, "
				"\"Max\": %lf, \"Avg\": %lf}", &row[0], &row[1], &row[2], &row[3]), 4);
	ck_assert(row[0] >= 1 && row[0] == row[1] && row[0] == row[2] && row[0] == row[3]);
	OK(MXSetProfilerState(0));
	OK(MXProfileDestroyHandle(event));
	set_up("0");
}
END_TEST

static void *frames(void *domain)
{
	ProfileHandle frame;

	OK(MXProfileCreateFrame(domain, "of another thread", &frame));
	spend(frame, 1);
	OK(MXProfileDestroyHandle(frame));
	return NULL;
}

/* The trace has every event as Chrome's format wants it, the oldest first. */
START_TEST(test_what_a_trace_says_of_objects)
{
	static const struct { const char *scope, *says; } scopes[] = {
		{ "global", "\"s\":\"g\"" }, { "process", "\"s\":\"p\"" }, { "thread", "\"s\":\"t\"" },
		{ "task", "\"s\":\"p\"" }, { "marker", "\"s\":\"p\"" },
	};
	struct pawl_engine *pe = pawl_mx_engine_pawl(pawl_mx_engine_get());
	ProfileHandle domain = domain_new("traced"), task, event, counter;
	struct timespec from, to;
	const int me = (int)syscall(SYS_gettid);
	char *json, *at, *end, want[128];
	pthread_t t;
	size_t i;

	if (!has_traces(pe))
		return;
	set_up("0");
	OK(MXProfileCreateTask(domain, "back\\slash", &task));
	OK(MXProfileCreateEvent("before", &event));
	OK(MXProfileCreateCounter(domain, "count", &counter));
	OK(MXSetProfilerState(1));
	spend(event, 20);
	OK(MXSetProfilerState(0));
	/* another trace, which has times of its own */
	clock_gettime(CLOCK_MONOTONIC, &from);
	OK(MXSetProfilerState(1));
	OK(MXProfileSetCounter(counter, 1));
	clock_gettime(CLOCK_MONOTONIC, &to);
	for (i = 0; i < sizeof(scopes) / sizeof(*scopes); i++)
		OK(MXProfileSetMarker(domain, scopes[i].scope, scopes[i].scope));
	spend(task, 1);
	ck_assert(!pthread_create(&t, NULL, frames, domain));
	pthread_join(t, NULL);
	OK(MXDumpProfile(1));
	json = slurp();
	ck_assert(!strstr(json, "\"before\""));
	ck_assert(time_of(json, "{\"ph\":\"C\"") <= (double)(to.tv_sec - from.tv_sec) * 1e6 +
		  (double)(to.tv_nsec - from.tv_nsec) / 1e3 + 1);
	/* nothing was added up */
	ck_assert(!strstr(table(), "\ntraced") && !strstr(table(), "\nbefore"));
	for (i = 0, end = json; i < sizeof(scopes) / sizeof(*scopes); i++) {
		snprintf(want, sizeof(want), "{\"ph\":\"n\",\"cat\":\"traced,instant_marker\",\"name\":"
			 "\"%s\",\"id\":%d,%s,\"pid\":1,\"tid\":%d,", scopes[i].scope, me,
			 scopes[i].says, me);
		at = strstr(json, want);
		ck_assert_msg(at >= end, "no %s in %s", want, end);
		end = at;
	}
	for (i = 0; i < 2; i++) {
		snprintf(want, sizeof(want), "{\"ph\":\"%c\",\"cat\":\"traced\",\"name\":\"back"
			 "\\\\slash\",\"id\":%d,\"pid\":1,\"tid\":%d,", i ? 'e' : 'b', me, me);
		at = strstr(json, want);
		ck_assert_msg(at > end, "no %s in %s", want, end);
		end = at;
	}
	for (i = 0; i < 2; i++) {
		int id, tid;

		at = strstr(json, i ? "{\"ph\":\")\"" : "{\"ph\":\"(\"");
		ck_assert(at > end);
		end = at;
		ck_assert_int_eq(sscanf(at + 10, "\"cat\":\"traced,frame\",\"name\":\"of another thread\","
					"\"id\":%d,\"pid\":1,\"tid\":%d,", &id, &tid), 2);
		ck_assert(id == tid && id != me);
	}
	free(json);
	OK(MXProfileDestroyHandle(task));
	OK(MXProfileDestroyHandle(event));
	OK(MXProfileDestroyHandle(counter));
}
END_TEST

START_TEST(test_bad_handles)
{
	unsigned int nonsense[8] = { 1 };
	ProfileHandle domain, event, counter, out;

	FAILS(MXProfileCreateDomain(NULL, &out), "NULL");
	FAILS(MXProfileCreateDomain("", &out), "empty");
	FAILS(MXProfileCreateDomain("d", NULL), "NULL");
	domain = domain_new("d");
	OK(MXProfileCreateEvent("e", &event));
	OK(MXProfileCreateCounter(domain, "c", &counter));
	FAILS(MXProfileCreateTask(NULL, "t", &out), "domain is NULL");
	FAILS(MXProfileCreateFrame(event, "t", &out), "another object");
	FAILS(MXProfileDurationStart(NULL), "NULL");
	FAILS(MXProfileDurationStart(counter), "no task, frame or event");
	FAILS(MXProfileDurationStop(event), "not started");
	FAILS(MXProfileSetCounter(event, 1), "no counter");
	FAILS(MXProfileAdjustCounter(NULL, 1), "NULL");
	FAILS(MXProfileSetMarker(domain, "m", "galaxy"), "galaxy");
	FAILS(MXProfileSetMarker(domain, "m", NULL), "scope");
	FAILS(MXProfileSetMarker(domain, NULL, "task"), "the name is NULL");
	FAILS(MXProfileSetMarker(NULL, "m", "task"), "domain is NULL");
	FAILS(MXProfileCreateCounter(event, "c", &out), "another object");
	FAILS(MXProfileDurationStop(NULL), "NULL");
	FAILS(MXProfileDurationStop(domain), "no task, frame or event");
	FAILS(MXProfileDestroyHandle(NULL), "NULL");
	FAILS(MXProfileDestroyHandle(nonsense), "no profiling object");
	OK(MXProfileDestroyHandle(event));
	OK(MXProfileDestroyHandle(counter));
}
END_TEST

static void nothing(void *run, void *arg) { }

static void op(const char *name)
{
	OK(MXEnginePushSync(nothing, NULL, NULL, &cpu, NULL, 0, NULL, 0, NULL, 0, name));
}

static unsigned long long count_of(const char *text, const char *name)
{
	char key[256];
	unsigned long long n = 0;
	const char *at;

	snprintf(key, sizeof(key), "\"%s\": {\"Count\": ", name);
	at = strstr(text, key);
	if (at)
		ck_assert_int_eq(sscanf(at + strlen(key), "%llu", &n), 1);
	return n;
}

/* Names with the same hash are different; of a long one the first 127 characters count. */
START_TEST(test_names_of_ops)
{
	char longer[200], cut[128];
	const char *text;

	memset(longer, 'n', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	memcpy(cut, longer, sizeof(cut) - 1);
	cut[sizeof(cut) - 1] = '\0';
	set_up("True");
	/* the start ends a pause */
	OK(MXProfilePause(1));
	OK(MXSetProfilerState(1));
	op("costarring");
	op("liquid");
	op("liquid");
	op("odd\tname");
	op(longer);
	op(longer);
	op(longer + 1);
	op(NULL);
	OK(MXNDArrayWaitAll());
	OK(MXAggregateProfileStatsPrintEx(&text, 1, 1, 4, 1));
	ck_assert_uint_eq(count_of(text, "costarring"), 1);
	ck_assert_uint_eq(count_of(text, "liquid"), 2);
	ck_assert_uint_eq(count_of(text, "odd?name"), 1);
	ck_assert_uint_eq(count_of(text, cut), 3);
	ck_assert_uint_eq(count_of(text, "unnamed"), 1);
	OK(MXSetProfilerState(1));	/* it runs already */
	OK(MXSetProfilerState(0));
	set_up("0");
	op("liquid");
	OK(MXNDArrayWaitAll());
	OK(MXAggregateProfileStatsPrintEx(&text, 0, 1, 4, 1));
	ck_assert_uint_eq(count_of(text, "liquid"), 0);
}
END_TEST

/* Of a domain's name 48 characters count, of another object's 63, whatever its kind appends. */
START_TEST(test_names_of_objects)
{
	char name[100], key[64];
	ProfileHandle domain, frame[3];
	const char *text;
	int i;

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	domain = domain_new(name);
	for (i = 0; i < 3; i++) {
		name[61 + i] = 'x';
		OK(MXProfileCreateFrame(domain, name, &frame[i]));
		name[61 + i] = 'n';
	}
	set_up("1");
	OK(MXSetProfilerState(1));
	for (i = 0; i < 3; i++)
		spend(frame[i], 1);
	OK(MXAggregateProfileStatsPrintEx(&text, 1, 1, 4, 1));
	OK(MXSetProfilerState(0));
	set_up("0");
	for (i = 0; i < 3; i++) {
		memset(key, 'n', 63);
		key[63] = '\0';
		if (i < 2)
			key[61 + i] = 'x';
		ck_assert_uint_eq(count_of(text, key), 1);
		OK(MXProfileDestroyHandle(frame[i]));
	}
	memset(key, 'n', 48);
	strcpy(key + 48, ",frame\"");
	has(text, key);
	memmove(key + 1, key, sizeof(key) - 1);
	ck_assert(!strstr(text, key));
}
END_TEST

/* In the trace a bulk has a name of its own, unless it is one op. */
START_TEST(test_names_of_bulks)
{
	struct pawl_engine *pe = pawl_mx_engine_pawl(pawl_mx_engine_get());
	char *json;

	if (!has_traces(pe))
		return;
	set_up("0");
	OK(MXSetProfilerState(1));
	OK(MXEngineSetBulkSize(10, NULL));
	op("alone");
	OK(MXNDArrayWaitAll());
	op("one of two");
	op("two of two");
	OK(MXEngineSetBulkSize(0, NULL));
	OK(MXNDArrayWaitAll());
	OK(MXNDArrayFree(floats(1)));
	OK(MXDumpProfile(1));
	json = slurp();
	has(json, "\"alone\"");
	has(json, "\"ImperativeBulk\"");
	has(json, "\"DeleteVariable\"");
	ck_assert(!strstr(json, "of two"));
	free(json);
}
END_TEST

/* The program may trace with libpawl itself; its trace is the profiler's. */
START_TEST(test_a_duration_from_before_the_trace_begins_with_it)
{
	struct pawl_engine *pe = pawl_mx_engine_pawl(pawl_mx_engine_get());
	ProfileHandle domain = domain_new("early"), task;
	char *json;

	if (!has_traces(pe))
		return;
	set_up("true");
	/* a dump starts none while the profiler is off */
	OK(MXDumpProfile(0));
	ck_assert_int_eq(pawl_trace_start(pe, 64), 0);
	OK(MXProfileCreateTask(domain, "tab\there", &task));
	OK(MXProfileDurationStart(task));
	OK(MXSetProfilerState(1));
	OK(MXProfileDurationStop(task));
	row(table(), "early\n===");
	OK(MXSetProfilerState(0));
	OK(MXDumpProfile(1));
	json = slurp();
	has(json, "\"name\":\"tab\\u0009here\"");
	has(json, "\"ts\":0.000}");
	free(json);
	OK(MXProfileDestroyHandle(task));
	set_up("0");
}
END_TEST

/* What could not be written is said, and the next dump is whole. */
START_TEST(test_a_dump_that_cannot_be_written)
{
	struct pawl_engine *pe = pawl_mx_engine_pawl(pawl_mx_engine_get());
	const char *keys[] = { "filename" }, *nowhere[] = { "/nowhere/profile.json" };
	char name[32];
	const char *to_pipe[] = { name };
	ProfileHandle event;
	int ends[2];
	char *json;

	if (!has_traces(pe))
		return;
	ck_assert(!pipe(ends));
	snprintf(name, sizeof(name), "/proc/self/fd/%d", ends[1]);
	set_up("0");
	OK(MXProfileCreateEvent("event", &event));
	OK(MXSetProfilerState(1));
	spend(event, 1);
	OK(MXSetProfilerConfig(1, keys, nowhere));
	FAILS(MXDumpProfile(0), "/nowhere/profile.json");
	/* and the trace goes on */
	op("after a failed dump");
	OK(MXNDArrayWaitAll());
	set_up("0");
	OK(MXDumpProfile(0));
	json = slurp();
	has(json, "\"after a failed dump\"");
	free(json);
	spend(event, 1);
	/* the events of a program's objects are inserted before the end of the file */
	OK(MXSetProfilerConfig(1, keys, to_pipe));
	spend(event, 1);
	FAILS(MXDumpProfile(0), "seek");
	set_up("0");
	spend(event, 1);
	OK(MXDumpProfile(1));
	json = slurp();
	has(json, "\"name\":\"event\"");
	free(json);
	close(ends[0]);
	close(ends[1]);
	OK(MXProfileDestroyHandle(event));
	/* the last dump turns the profiler off, written or not */
	OK(MXProfileCreateEvent("too late", &event));
	OK(MXSetProfilerState(1));
	OK(MXSetProfilerConfig(1, keys, nowhere));
	FAILS(MXDumpProfile(1), "/nowhere/profile.json");
	spend(event, 1);
	set_up("0");
	OK(MXDumpProfile(1));
	json = slurp();
	ck_assert(!strstr(json, "too late"));
	free(json);
	OK(MXProfileDestroyHandle(event));
}
END_TEST

/* Names are kept once, however many there are: more of them leave room for new ones. */
START_TEST(test_names_that_come_again_are_the_same)
{
	enum { NAMES = 2000, ROUNDS = 40 };
	const char *text;
	char name[32];
	int i;

	OK(MXEngineSetBulkSize(64, NULL));
	for (i = 0; i < NAMES * ROUNDS; i++) {
		snprintf(name, sizeof(name), "again %d", i % NAMES);
		op(name);
	}
	OK(MXEngineSetBulkSize(0, NULL));
	OK(MXNDArrayWaitAll());
	set_up("1");
	OK(MXSetProfilerState(1));
	op("not so often");
	OK(MXNDArrayWaitAll());
	OK(MXAggregateProfileStatsPrintEx(&text, 1, 1, 4, 1));
	OK(MXSetProfilerState(0));
	set_up("0");
	ck_assert_uint_eq(count_of(text, "not so often"), 1);
}
END_TEST

/* Tables and lists are bounded: what is beyond them is left out, and nothing else suffers. */
START_TEST(test_more_names_and_events_than_there_is_room_for)
{
	enum { MANY = 70000 };
	struct pawl_engine *pe = pawl_mx_engine_pawl(pawl_mx_engine_get());
	ProfileHandle domain = domain_new("many"), counter;
	bool traces = has_traces(pe);
	const char *text;
	char name[32], *json;
	size_t before;
	int i;

	if (THREAD_SANITIZED)	/* 175 000 ops of one thread */
		return;
	set_up("1");
	OK(MXProfileCreateCounter(domain, "counter", &counter));
	OK(MXSetProfilerState(1));
	op("first");
	for (i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "name %d", i);
		op(name);
		OK(MXProfileAdjustCounter(counter, 1));
	}
	op("first");
	OK(MXNDArrayWaitAll());
	OK(MXAggregateProfileStatsPrintEx(&text, 1, 1, 4, 1));
	ck_assert_uint_eq(count_of(text, "first"), 2);
	ck_assert_uint_eq(count_of(text, "counter"), MANY);
	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "name %d", i);
		ck_assert_uint_eq(count_of(text, name), 1);
	}
	ck_assert_uint_eq(count_of(text, "name 69999"), 0);
	set_up("0");
	/* nor do they need memory */
	before = mallinfo2().uordblks;
	for (i = 0; i < MANY / 2; i++) {
		snprintf(name, sizeof(name), "more %d", i);
		op(name);
	}
	OK(MXNDArrayWaitAll());
	ck_assert_uint_lt(mallinfo2().uordblks, before + MANY / 2 * 16);
	/* as many again were left out: the next trace has room all the same */
	for (i = 0; i < MANY; i++)
		OK(MXProfileSetCounter(counter, 1));
	OK(MXSetProfilerState(0));
	OK(MXSetProfilerState(1));
	OK(MXProfileSetCounter(counter, 4711));
	OK(MXSetProfilerState(0));
	if (traces) {
		OK(MXDumpProfile(1));
		json = slurp();
		has(json, "\"args\":{\"counter\":4711}");
		free(json);
	}
	OK(MXProfileDestroyHandle(counter));
}
END_TEST

/* The statistics in JSON leave markers out, and nothing else. */
START_TEST(test_markers_hide_no_other_rows)
{
	ProfileHandle domain = domain_new("marked"), event, later;
	const char *text;
	int sort, up;

	set_up("1");
	OK(MXProfileCreateTask(domain, "worked", &event));
	OK(MXProfileCreateTask(domain_new("of a later domain"), "rested", &later));
	OK(MXSetProfilerState(1));
	spend(event, 1);
	spend(later, 1);
	OK(MXProfileSetMarker(domain, "mark", "process"));
	OK(MXSetProfilerState(0));
	for (sort = 0; sort < 5; sort++) {
		for (up = 0; up < 2; up++) {
			OK(MXAggregateProfileStatsPrintEx(&text, 0, 1, sort, up));
			ck_assert_uint_eq(count_of(text, "worked"), 1);
			ck_assert_uint_eq(count_of(text, "rested"), 1);
			ck_assert(!strstr(text, "\"mark\""));
			/* whatever the column, and both ways */
			ck_assert(strstr(text, "\"marked\"") < strstr(text, "\"of a later domain\""));
		}
	}
	OK(MXProfileDestroyHandle(event));
	OK(MXProfileDestroyHandle(later));
	set_up("0");
}
END_TEST

START_TEST(test_profiler)
{
	const char *keys[] = { "filename", "profile_all", "aggregate_stats" };
	const char *vals[] = { path, "1", "1" };
	const char *odd[] = { "no_such_key", "profile_all" };
	NDArrayHandle a = floats(1);
	struct pawl_engine *pe = pawl_mx_engine_pawl(pawl_mx_engine_get());
	bool traces = has_traces(pe);
	const char *text;
	char *json;
	int i;

	OK(MXSetProfilerConfig(3, keys, vals));
	FAILS(MXSetProfilerConfig(2, odd, vals), "no_such_key");
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
	FAILS(MXAggregateProfileStatsPrintEx(&text, 0, 2, 0, 0), "format 2, sort_by 0");
	FAILS(MXAggregateProfileStatsPrintEx(&text, 0, -1, 0, 0), "format -1");
	FAILS(MXAggregateProfileStatsPrintEx(&text, 0, 0, 5, 0), "sort_by 5");
	FAILS(MXAggregateProfileStatsPrintEx(&text, 0, 1, -1, 0), "sort_by -1");
	FAILS(MXAggregateProfileStatsPrintEx(NULL, 0, 0, 0, 0), "out_str is NULL");
	OK(MXSetProfilerState(0));
	if (traces) {
		OK(MXDumpProfile(1));
		json = slurp();
		ck_assert(json[0] == '{' || json[0] == '[');
		ck_assert(strstr(json, "counted"));
		free(json);
	}
	vals[2] = "0";
	OK(MXSetProfilerConfig(3, keys, vals));
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
	NDArrayHandle a = floats(3), b = floats(3), far, pinned;
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
	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU_PINNED, 0, 0, &pinned));
	OK(pawl_mx_nd_copy(a, pinned, 0));
	OK(MXNDArrayFree(pinned));
	OK(MXNDArrayWaitAll());
	OK(MXAggregateProfileStatsPrintEx(&text, 1, 1, 0, 0));
	profile_of(text, "slow", row);
	ck_assert(row[0] == 3);
	ck_assert(row[2] >= 1 && row[2] <= row[4] && row[4] <= row[3] && row[3] <= row[1]);
	/* between devices, and on one */
	profile_of(text, "CopyTo", row);
	ck_assert(row[0] == 2);
	profile_of(text, "CopyCPU2CPU", row);
	ck_assert(row[0] == 1);
	OK(MXSetProfilerState(0));
	OK(MXSetProfilerConfig(1, keys, off));
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(b));
	OK(MXNDArrayFree(far));
}
END_TEST

START_TEST(test_small_calls)
{
	const uint32_t shape[] = { 2 };
	const float in[] = { 1, 2 };
	NDArrayHandle nd;

	OK(MXSetNumOMPThreads(1));
	FAILS(MXSetNumOMPThreads(0), "0 threads");
	OK(MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 0, &nd));
	OK(MXNDArraySyncCopyFromCPU(nd, in, 2));
	OK(MXNDArraySyncCheckFormat(nd, true));
	FAILS(MXNDArraySyncCheckFormat(NULL, false), "NULL");
	OK(MXNDArrayFree(nd));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		test_objects, test_rows_are_sorted_by_any_column,
		test_times_begin_again_with_a_period, test_what_a_trace_says_of_objects, test_bad_handles, test_markers_hide_no_other_rows, test_profiler,
		test_profiler_has_the_least_and_the_longest_time_and_names_copies_as_mxnet_does,
		test_small_calls, test_names_of_ops, test_names_of_objects, test_names_of_bulks,
		test_a_duration_from_before_the_trace_begins_with_it,
		test_a_dump_that_cannot_be_written, test_names_that_come_again_are_the_same,
		test_more_names_and_events_than_there_is_room_for, NULL
	};
	int failed;

	close(mkstemp(path));
	failed = suite_run("mx_profile", tests, 50);
	unlink(path);
	return failed;
}
