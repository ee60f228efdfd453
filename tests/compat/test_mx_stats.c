/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the profiler of the C interface promises beside the contents of one table: the whole
 * text of tables, sums of several threads, times, when it is on, its parameters, and a full
 * disk.
 */
#include "mx_profile.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* The calling thread's clock is ahead by so many seconds. */
static __thread int ahead;

int clock_gettime(clockid_t id, struct timespec *t)
{
	long rc;

	memset(t, 0, sizeof(*t));
	rc = syscall(SYS_clock_gettime, id, t);
	t->tv_sec += ahead;
	return (int)rc;
}

static const char *json(int reset)
{
	const char *text;

	OK(MXAggregateProfileStatsPrintEx(&text, reset, 1, 0, 0));
	return text;
}

static void has(const char *text, const char *what)
{
	ck_assert_msg(strstr(text, what) != NULL, "no %s in:\n%s", what, text);
}

static void has_no(const char *text, const char *what)
{
	ck_assert_msg(!strstr(text, what), "%s is in:\n%s", what, text);
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

static struct pawl_engine *pawl(void)
{
	return pawl_mx_engine_pawl(pawl_mx_engine_get());
}

/* Of the library's trace: -ENOSYS without traces, and then no test of it fails. */
static bool traces(void)
{
	int rc = pawl_trace_start(pawl(), 64);

	if (!rc)
		OK(pawl_trace_stop(pawl()));
	return rc != -ENOSYS;
}

static bool trace_is_on(void)
{
	int rc = pawl_trace_start(pawl(), 64);

	if (!rc)
		OK(pawl_trace_stop(pawl()));
	return rc == -EALREADY;
}

static void nothing(void *run, void *arg) { }

static void op(const char *name)
{
	OK(MXEnginePushSync(nothing, NULL, NULL, &cpu, NULL, 0, NULL, 0, NULL, 0, name));
	OK(MXNDArrayWaitAll());
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void nap(long ms)
{
	const struct timespec t = { 0, ms * 1000000 };

	nanosleep(&t, NULL);
}

/* The numbers of a row: Count, Total, Min, Max, Avg. */
static void row_of(const char *text, const char *name, double row[5])
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

#define HEAD									\
	"Name                          Total Count        Time (ms)    Min Time (ms)"	\
	"    Max Time (ms)    Avg Time (ms)\n"					\
	"----                          -----------        ---------    -------------"	\
	"    -------------    -------------\n"

START_TEST(test_the_whole_text_of_tables)
{
	static const char empty[] = "\nProfile Statistics:\n\tNote the difference in units for "
		"different entries.\n\n";
	static const char table[] = "\nProfile Statistics:\n\tNote the difference in units for "
		"different entries.\n"
		"first\n=================\n" HEAD
		"zero                                    2           5.0000           0.0000"
		"           5.0000           2.5000\n"
		"q\"b\\c                                   1           1.5000           1.5000"
		"           1.5000           0.0000\n"
		"caf\xc3\xa9\tx                                 3           0.5000           0.2500"
		"           0.7500           0.2500\n"
		"\nsecond \"d\"\n=================\n" HEAD
		"last                                    2           0.0000           0.0000"
		"           9.0000           4.5000\n"
		"\nsecond \"d\",instant_marker\n=================\n" HEAD "\n";
	static const char as_json[] = "{\"Time\": {\"first\": {"
		"\"zero\": {\"Count\": 2, \"Total\": 5.0000, \"Min\": 0.0000, \"Max\": 5.0000, "
		"\"Avg\": 2.5000}, "
		"\"q\\\"b\\\\c\": {\"Count\": 1, \"Total\": 1.5000, \"Min\": 1.5000, "
		"\"Max\": 1.5000, \"Avg\": 0.0000}, "
		"\"caf\xc3\xa9?x\": {\"Count\": 3, \"Total\": 0.5000, \"Min\": 0.2500, "
		"\"Max\": 0.7500, \"Avg\": 0.2500}}, "
		"\"second \\\"d\\\"\": {\"last\": {\"Count\": 2, \"Total\": 0.0000, \"Min\": 0.0000, "
		"\"Max\": 9.0000, \"Avg\": 4.5000}}, \"second \\\"d\\\",instant_marker\": {}}, "
		"\"Memory\": {}, \"Unit\": {\"Time\": \"ms\", \"Memory\": \"kB\"}}";
	static const struct { const char *name; int values[4]; } counters[] = {
		{ "caf\xc3\xa9\tx", { 250, 750, 500, -1 } }, { "zero", { 0, 5000, -1 } },
		{ "q\"b\\c", { 1500, -1 } }, { "last", { 9000, 0, -1 } },
	};
	ProfileHandle first, second, counter;
	const char *text;
	size_t i;
	int k;

	set_up("1");
	json(1);
	OK(MXAggregateProfileStatsPrint(&text, 0));
	ck_assert_str_eq(text, empty);
	ck_assert_str_eq(json(0), "{\"Time\": {}, \"Memory\": {}, \"Unit\": {\"Time\": \"ms\", "
			 "\"Memory\": \"kB\"}}");
	first = domain_new("first");
	second = domain_new("second \"d\"");
	OK(MXSetProfilerState(1));
	for (i = 0; i < 4; i++) {
		OK(MXProfileCreateCounter(i < 3 ? first : second, counters[i].name, &counter));
		for (k = 0; counters[i].values[k] >= 0; k++)
			OK(MXProfileSetCounter(counter, (uint64_t)counters[i].values[k]));
		OK(MXProfileDestroyHandle(counter));
	}
	OK(MXProfileSetMarker(second, "unseen", "task"));
	/* of each domain the greatest total is the first, unless another order is asked for */
	OK(MXAggregateProfileStatsPrint(&text, 0));
	ck_assert_str_eq(text, table);
	ck_assert_str_eq(json(0), as_json);
	OK(MXAggregateProfileStatsPrint(&text, 1));
	ck_assert_str_eq(text, table);
	OK(MXAggregateProfileStatsPrint(&text, 0));
	ck_assert_str_eq(text, empty);
	/* ops have a heading of their own */
	op("an op");
	has(json(1), "{\"Time\": {\"operator\": {\"an op\": {\"Count\": 1, ");
	OK(MXSetProfilerState(0));
	set_up("0");
}
END_TEST

enum { THREADS = 4, TIMES = 5000 };

static ProfileHandle shared_counter, shared_domain;
static pthread_barrier_t together;

static void *adds(void *arg)
{
	const uint64_t me = (uint64_t)(uintptr_t)arg;
	ProfileHandle own;
	int i;

	OK(MXProfileCreateCounter(shared_domain, "values", &own));
	pthread_barrier_wait(&together);
	/* it counts although the profiler is off */
	for (i = 0; i < 200 * TIMES; i++)
		OK(MXProfileAdjustCounter(shared_counter, 2));
	pthread_barrier_wait(&together);
	if (!me)
		OK(MXSetProfilerState(1));
	pthread_barrier_wait(&together);
	for (i = 0; i < TIMES; i++) {
		OK(MXProfileAdjustCounter(shared_counter, 2));
		/* each less than all before, and each more than all before */
		OK(MXProfileSetCounter(own, 1000000 - (uint64_t)i * THREADS - me));
		OK(MXProfileSetCounter(own, 1000000 + (uint64_t)i * THREADS + me));
	}
	OK(MXProfileDestroyHandle(own));
	return NULL;
}

/* None of the values that threads report at once is lost. */
START_TEST(test_threads_that_add_at_once)
{
	pthread_t t[THREADS];
	double row[5];
	const char *text;
	int i;

	set_up("1");
	shared_domain = domain_new("shared");
	OK(MXProfileCreateCounter(shared_domain, "sum", &shared_counter));
	ck_assert(!pthread_barrier_init(&together, NULL, THREADS));
	for (i = 0; i < THREADS; i++)
		ck_assert(!pthread_create(&t[i], NULL, adds, (void *)(uintptr_t)i));
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	pthread_barrier_destroy(&together);
	OK(MXProfileAdjustCounter(shared_counter, 0));
	text = json(1);
	row_of(text, "sum", row);
	ck_assert(row[0] == THREADS * TIMES + 1);
	ck_assert(row[1] == 402 * THREADS * TIMES / 1e3 && row[3] == row[1]);
	ck_assert(row[2] == (400 * THREADS * TIMES + 2) / 1e3);
	row_of(text, "values", row);
	ck_assert(row[0] == 2 * THREADS * TIMES);
	ck_assert(row[2] == (1000000 - THREADS * TIMES + 1) / 1e3);
	ck_assert(row[3] == (1000000 + THREADS * TIMES - 1) / 1e3);
	OK(MXSetProfilerState(0));
	OK(MXProfileDestroyHandle(shared_counter));
	set_up("0");
}
END_TEST

static void slow(void *run, void *arg)
{
	nap(3);
}

static void spend(ProfileHandle duration, long ms)
{
	OK(MXProfileDurationStart(duration));
	nap(ms);
	OK(MXProfileDurationStop(duration));
}

/* A time is that between the calls, in milliseconds: each start begins another one. */
START_TEST(test_times_are_milliseconds)
{
	ProfileHandle domain = domain_new("timed"), o[3];
	static const char *const names[] = { "a task", "a frame", "an event" };
	double from, all, row[5];
	const char *text;
	int i, k;

	set_up("1");
	OK(MXProfileCreateTask(domain, names[0], &o[0]));
	OK(MXProfileCreateFrame(domain, names[1], &o[1]));
	OK(MXProfileCreateEvent(names[2], &o[2]));
	OK(MXSetProfilerState(1));
	for (i = 0; i < 3; i++) {
		spend(o[i], 1);
		nap(10);
		json(1);
		from = now_ms();
		for (k = 0; k < 2; k++)
			spend(o[i], 2);
		all = now_ms() - from;
		text = json(1);
		row_of(text, names[i], row);
		ck_assert(row[0] == 2 && row[1] >= 4 && row[1] <= all + 0.001);
		/* also when seconds are many */
		OK(MXProfileDurationStart(o[i]));
		ahead = 5000;
		OK(MXProfileDurationStop(o[i]));
		ahead = 0;
		row_of(json(1), names[i], row);
		ck_assert(row[0] == 1 && row[1] >= 5e6 && row[1] < 5.1e6);
	}
	from = now_ms();
	OK(MXEnginePushSync(slow, NULL, NULL, &cpu, NULL, 0, NULL, 0, NULL, 0, "slow"));
	OK(MXNDArrayWaitAll());
	all = now_ms() - from;
	row_of(json(1), "slow", row);
	ck_assert(row[0] == 1 && row[1] >= 3 && row[1] <= all + 0.001);
	OK(MXSetProfilerState(0));
	for (i = 0; i < 3; i++)
		OK(MXProfileDestroyHandle(o[i]));
	set_up("0");
}
END_TEST

/* Ops and what the program names are added up, and gathered, as the state says. */
START_TEST(test_when_the_profiler_is_on)
{
	const struct { int state, pause, dump, on; } steps[] = {
		{ -1, -1, -1, 0 }, { 1, -1, -1, 1 }, { 1, -1, -1, 1 }, { -1, 1, -1, 0 },
		{ -1, -1, 0, 0 }, { -1, 0, -1, 1 }, { -1, -1, 0, 1 }, { 0, -1, -1, 0 },
		{ -1, 0, -1, 0 }, { 0, -1, -1, 0 }, { 1, -1, -1, 1 }, { -1, -1, 1, 0 },
		{ -1, -1, 0, 0 }, { -1, 1, -1, 0 }, { 1, -1, -1, 1 }, { 0, -1, -1, 0 },
	};
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	ProfileHandle domain = domain_new("state"), counter;
	bool has_traces = traces();
	const char *text;
	int traced = 0;
	size_t i;

	set_up("1");
	OK(MXProfileCreateCounter(domain, "counter", &counter));
	OK(MXEngineSetBulkSize(10, NULL));
	for (i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		if (steps[i].state >= 0) {
			OK(MXSetProfilerState(steps[i].state));
			traced = steps[i].state;
		}
		if (steps[i].pause >= 0)
			OK(MXProfilePause(steps[i].pause));
		if (steps[i].dump >= 0 && has_traces) {
			OK(MXDumpProfile(steps[i].dump));
			traced = traced && !steps[i].dump;
		} else if (steps[i].dump == 1) {
			OK(MXSetProfilerState(0));
		}
		op("an op");
		OK(MXProfileAdjustCounter(counter, 1));
		ck_assert_int_eq(pawl_mx_bulk_size(e), steps[i].on ? 0 : 10);
		text = json(1);
		if (steps[i].on) {
			has(text, "\"an op\": {\"Count\": 1,");
			has(text, "\"counter\": {\"Count\": 1,");
		} else {
			has_no(text, "\"an op\"");
			has_no(text, "\"counter\"");
		}
		ck_assert(!has_traces || trace_is_on() == traced);
	}
	OK(MXEngineSetBulkSize(0, NULL));
	OK(MXProfileDestroyHandle(counter));
	set_up("0");
}
END_TEST

/* A second start changes nothing; after a stop nothing is traced. */
START_TEST(test_a_start_while_it_runs_keeps_the_trace)
{
	ProfileHandle event;
	char *text;
	double ts;
	const char *at;

	if (!traces())
		return;
	set_up("0");
	OK(MXProfileCreateEvent("caf\xc3\xa9 event", &event));
	OK(MXSetProfilerState(1));
	op("an early op");
	nap(5);
	spend(event, 1);
	nap(2);
	OK(MXSetProfilerState(1));
	op("a later op");
	OK(MXSetProfilerState(0));
	op("an op that is too late");
	OK(MXDumpProfile(1));
	text = slurp();
	has(text, "\"an early op\"");
	has(text, "\"a later op\"");
	has_no(text, "too late");
	at = strstr(text, "{\"ph\":\"B\",\"cat\":\"event\",\"name\":\"caf\xc3\xa9 event\",\"pid\":1,");
	ck_assert(at && strstr(at, "{\"ph\":\"E\",\"cat\":\"event\",\"name\":\"caf\xc3\xa9 event\""));
	at = strstr(at, "\"ts\":");
	ck_assert(at && sscanf(at, "\"ts\":%lf", &ts) == 1 && ts >= 5000);
	free(text);
	OK(MXProfileDestroyHandle(event));
}
END_TEST

START_TEST(test_parameters)
{
	static const char *const known[] = {
		"profile_all", "profile_symbolic", "profile_imperative", "profile_memory",
		"profile_api", "continuous_dump", "dump_period", "profile_process",
	};
	static const struct { const char *value; int on; } aggregates[] = {
		{ "1", 1 }, { "0", 0 }, { "true", 1 }, { "false", 0 }, { "True", 1 }, { "False", 0 },
		{ "1", 1 }, { "", 0 },
	};
	const char *key, *val = "1";
	char name[1025];
	struct stat st;
	size_t i;

	OK(MXSetProfilerConfig(0, NULL, NULL));
	for (i = 0; i < sizeof(known) / sizeof(*known); i++) {
		char longer[64];

		OK(MXSetProfilerConfig(1, &known[i], &val));
		snprintf(longer, sizeof(longer), "%s_", known[i]);
		key = longer;
		FAILS(MXSetProfilerConfig(1, &key, &val), longer);
	}
	OK(MXSetProfilerState(1));
	key = "aggregate_stats";
	for (i = 0; i < sizeof(aggregates) / sizeof(*aggregates); i++) {
		OK(MXSetProfilerConfig(1, &key, &aggregates[i].value));
		json(1);
		op("an op");
		ck_assert_int_eq(strstr(json(1), "\"an op\"") != NULL, aggregates[i].on);
	}
	if (traces()) {
		char was[512], dir[] = "/tmp/pawl-mx-XXXXXX";

		/* the file's name, unless another is set */
		ck_assert(getcwd(was, sizeof(was)) && mkdtemp(dir) && !chdir(dir));
		OK(MXDumpProfile(0));
		ck_assert(!unlink("profile.json") && !chdir(was) && !rmdir(dir));
		/* a name of 1023 characters is not too long */
		memcpy(name, path, sizeof(path) - 1);
		memmove(name + sizeof(name) - sizeof(path), path, sizeof(path));
		for (i = 0; i + sizeof(path) < sizeof(name); i++)
			name[i] = '/';
		key = "filename";
		val = name + 1;
		ck_assert_uint_eq(strlen(val), 1023);
		OK(MXSetProfilerConfig(1, &key, &val));
		ck_assert(!truncate(path, 0));
		OK(MXDumpProfile(0));
		ck_assert(!stat(path, &st) && st.st_size > 0);
		val = name;
		FAILS(MXSetProfilerConfig(1, &key, &val), "too long");
		/* and the name is that before */
		ck_assert(!truncate(path, 0));
		OK(MXDumpProfile(0));
		ck_assert(!stat(path, &st) && st.st_size > 0);
	}
	OK(MXSetProfilerState(0));
	set_up("0");
}
END_TEST

/* There is room for the trace itself, but not for all events of objects. */
START_TEST(test_a_disk_that_is_full)
{
	ProfileHandle event;
	struct rlimit was, small;
	struct stat st;
	char *text, *at;
	int i, n = 0;

	if (!traces())
		return;
	set_up("0");
	OK(MXProfileCreateEvent("event", &event));
	OK(MXSetProfilerState(1));
	OK(MXDumpProfile(0));
	ck_assert(!stat(path, &st) && !getrlimit(RLIMIT_FSIZE, &was));
	for (i = 0; i < 200; i++)
		spend(event, 0);
	small = was;
	small.rlim_cur = (rlim_t)st.st_size + 1000;
	signal(SIGXFSZ, SIG_IGN);
	ck_assert(!setrlimit(RLIMIT_FSIZE, &small));
	pawl_mx_set_last_error("none");
	i = MXDumpProfile(0);
	ck_assert(!setrlimit(RLIMIT_FSIZE, &was));
	ck_assert_int_eq(i, -1);
	has(MXGetLastError(), path);
	has(MXGetLastError(), "large");
	/* the next dump has what is new */
	spend(event, 0);
	OK(MXDumpProfile(1));
	text = slurp();
	for (at = text; (at = strstr(at, "{\"ph\":\"E\"")); at++)
		n++;
	ck_assert_int_eq(n, 1);
	free(text);
	OK(MXProfileDestroyHandle(event));
}
END_TEST

/* A dump has as many events of objects as the documentation says. */
START_TEST(test_how_many_events_a_dump_has)
{
	enum { MOST = 65536 };
	ProfileHandle counter, domain;
	char *line = NULL;
	size_t room = 0;
	int i, n = 0;
	FILE *f;

	if (!traces())
		return;
	set_up("0");
	domain = domain_new("many");
	OK(MXProfileCreateCounter(domain, "counter", &counter));
	OK(MXSetProfilerState(1));
	for (i = 0; i < MOST + 10; i++)
		OK(MXProfileSetCounter(counter, (uint64_t)i));
	OK(MXDumpProfile(1));
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	while (getline(&line, &room, f) >= 0)
		n += strstr(line, "{\"ph\":\"C\"") != NULL;
	ck_assert_int_eq(n, MOST);
	fclose(f);
	free(line);
	OK(MXProfileDestroyHandle(counter));
}
END_TEST

/* Without events of objects nothing is inserted, so the file may be a pipe. */
START_TEST(test_a_dump_into_a_pipe)
{
	const char *key = "filename", *name;
	char to[32], text[4096];
	int ends[2];

	if (!traces())
		return;
	ck_assert(!pipe(ends));
	snprintf(to, sizeof(to), "/proc/self/fd/%d", ends[1]);
	name = to;
	OK(MXSetProfilerConfig(1, &key, &name));
	OK(MXSetProfilerState(1));
	OK(MXDumpProfile(1));
	ck_assert(read(ends[0], text, sizeof(text)) > 4);
	close(ends[0]);
	close(ends[1]);
	set_up("0");
}
END_TEST

static int thread_ids[2];

static void *dumps(void *arg)
{
	PUT(&thread_ids[0], (int)syscall(SYS_gettid));
	OK(MXDumpProfile(1));
	return NULL;
}

static void *configures(void *arg)
{
	PUT(&thread_ids[1], (int)syscall(SYS_gettid));
	set_up("0");
	return NULL;
}

/* Do all threads that have begun sleep? */
static int they_sleep(void)
{
	int i, asleep = 0;

	for (i = 0; i < 2; i++) {
		char name[64], state = 0;
		FILE *f;

		snprintf(name, sizeof(name), "/proc/self/task/%d/stat", GET(&thread_ids[i]));
		f = GET(&thread_ids[i]) ? fopen(name, "r") : NULL;
		if (!f)
			continue;
		asleep += fscanf(f, "%*d (%*[^)]) %c", &state) == 1 && state == 'S';
		fclose(f);
	}
	return asleep;
}

static int both_sleep(void)
{
	return they_sleep() == 2;
}

/* One that waits for another call of the profiler goes on when that has ended. */
START_TEST(test_calls_of_the_profiler_take_turns)
{
	char dir[] = "/tmp/pawl-mx-XXXXXX", fifo[64], text[4096];
	const char *key = "filename", *name = fifo;
	pthread_t t[2];
	int fd;

	if (!traces())
		return;
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(fifo, sizeof(fifo), "%s/trace", dir);
	ck_assert(!mkfifo(fifo, 0600));
	OK(MXSetProfilerConfig(1, &key, &name));
	OK(MXSetProfilerState(1));
	thread_ids[0] = thread_ids[1] = 0;
	/* it waits for a reader */
	ck_assert(!pthread_create(&t[0], NULL, dumps, NULL));
	ck_assert(soon(they_sleep));
	ck_assert(!pthread_create(&t[1], NULL, configures, NULL));
	ck_assert(soon(both_sleep));
	fd = open(fifo, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	while (read(fd, text, sizeof(text)) > 0)
		;
	close(fd);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	ck_assert(!unlink(fifo) && !rmdir(dir));
}
END_TEST

static pthread_key_t late_key;
static int late_turns;

static void prints_late(void *arg)
{
	const char *text;

	OK(MXAggregateProfileStatsPrintEx(&text, 0, 1, 0, 0));
	has(text, "\"kB\"}}");
	if (!late_turns++)
		ck_assert(!pthread_setspecific(late_key, &late_key));
}

static void *ends_late(void *arg)
{
	const char *text;

	ck_assert(!pthread_setspecific(late_key, &late_key));
	OK(MXAggregateProfileStatsPrint(&text, 0));
	return NULL;
}

/* Its buffer is returned when it ends, but its destructors may print after that. */
START_TEST(test_a_thread_prints_while_it_ends)
{
	pthread_t t;

	json(0);
	/* glibc calls them in the order in which the keys were made */
	ck_assert(!pthread_key_create(&late_key, prints_late));
	ck_assert(!pthread_create(&t, NULL, ends_late, NULL));
	pthread_join(t, NULL);
	ck_assert_int_eq(late_turns, 2);
	pthread_key_delete(late_key);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		/* the first one: no file is named yet */
		test_parameters, test_the_whole_text_of_tables, test_when_the_profiler_is_on,
		test_threads_that_add_at_once, test_times_are_milliseconds,
		test_a_start_while_it_runs_keeps_the_trace, test_a_disk_that_is_full,
		test_how_many_events_a_dump_has, test_a_dump_into_a_pipe,
		test_calls_of_the_profiler_take_turns, test_a_thread_prints_while_it_ends, NULL
	};
	int failed;

	close(mkstemp(path));
	failed = suite_run("mx_stats", tests, 50);
	unlink(path);
	return failed;
}
