// SPDX-License-Identifier: Apache-2.0
/*
 * MXNet's profiler calls on pawl's trace, and its table of sums per operator name.
 *
 * Purpose: state 1 starts the trace of the process's engine, and a dump writes it as Chrome
 * JSON.  With aggregate_stats the times of all bodies with the same name are summed.
 *
 * Structures: a hash table of names that only grows (names are interned, so pointers are
 * compared).  Its numbers are separate counters, so a table printed while ops run may be
 * inconsistent by those ops.
 *
 * Progress: lock-free for ops.  Only one thread at a time may make the calls themselves.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <compat/engine.h>
#include <pawl/mx_c_api.h>

#define ENTRIES		4096u
#define TRACE_EVENTS	65536u

struct entry {
	const char *name;	/* A: interned */
	u64 count, total, min, max;	/* A: ns */
};

static struct entry entries[ENTRIES];
static u32 running, aggregate, paused;	/* A */
static char filename[1024] = "profile.json";

bool mx_profile_aggregating(void)
{
	return load_relaxed(&aggregate) && load_relaxed(&running) && !load_relaxed(&paused);
}

static struct entry *entry_of(const char *name)
{
	u32 i = (u32)(((u64)(uintptr_t)name * 0x9e3779b97f4a7c15ull) >> 52), n;

	for (n = 0; n < ENTRIES; n++, i = (i + 1) % ENTRIES) {
		const char *was = load_acquire(&entries[i].name);

		if (!was) {
			if (cas_acq_rel_acquire(&entries[i].name, &was, name))
				return &entries[i];
		}
		if (was == name)
			return &entries[i];
	}
	return NULL;
}

static void keep_least(u64 *to, u64 v)
{
	u64 was = load_relaxed(to);

	/* 0 means that there is no value yet. */
	while ((!was || v < was) && !cas_relaxed(to, &was, v))
		;
}

static void keep_most(u64 *to, u64 v)
{
	u64 was = load_relaxed(to);

	while (v > was && !cas_relaxed(to, &was, v))
		;
}

static u64 now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000ull + (u64)ts.tv_nsec;
}

/* An op that is being timed; allocated from the pool. */
struct task {
	const char *name;
	u64 begin;
};

void *mx_profile_begin(const char *name)
{
	struct task *t = pawl_mx_room_get();

	if (t) {
		t->name = name;
		t->begin = now();
	}
	return t;
}

void mx_profile_end(void *task)
{
	const struct task *t = task;
	u64 ns = now() - t->begin;
	struct entry *x = entry_of(t->name ? t->name : "unnamed");

	pawl_mx_room_put(task);
	if (!x)
		return;
	ns += !ns;
	fetch_add_relaxed(&x->count, 1);
	fetch_add_relaxed(&x->total, ns);
	keep_least(&x->min, ns);
	keep_most(&x->max, ns);
}

/* --- the trace --- */

static struct pawl_engine *traced(void)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();

	return e ? mx_pe(e) : NULL;
}

static int trace_on(void)
{
	struct pawl_engine *pe = traced();
	int rc;

	if (!pe)
		return -1;
	rc = pawl_trace_start(pe, TRACE_EVENTS);
	/* In a build without traces the sums still work. */
	return rc && rc != -EALREADY && rc != -ENOSYS ? mx_err_pawl(rc), -1 : 0;
}

/* Apply the environment's settings when the process's engine is created. */
void mx_profile_engine(struct pawl_mx_engine *e)
{
	if (mx_env_int("MXNET_PROFILER_AUTOSTART", 0) &&
	    !pawl_trace_start(mx_pe(e), TRACE_EVENTS))
		store_relaxed(&running, 1);
}

static int set_key(const char *key, const char *val)
{
	static const char *const known[] = {
		"profile_all", "profile_symbolic", "profile_imperative", "profile_memory",
		"profile_api", "continuous_dump", "dump_period", "profile_process",
	};
	size_t i;

	if (!strcmp(key, "filename")) {
		if (strlen(val) >= sizeof(filename))
			return mx_err(-1, "profiler: the file name is too long");
		strcpy(filename, val);
		return 0;
	}
	if (!strcmp(key, "aggregate_stats")) {
		store_relaxed(&aggregate, !strcmp(val, "1") || !strcmp(val, "true") ||
			      !strcmp(val, "True"));
		return 0;
	}
	/* These select what to record; here it is always ops. */
	for (i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(key, known[i]))
			return 0;
	return mx_err(-1, "profiler: %s is no parameter", key);
}

static int bad_process(int profile_process)
{
	return profile_process ? mx_err(-1, "profiler: there is no server process") : 0;
}

int MXSetProcessProfilerConfig(int num_params, const char *const *keys, const char *const *vals,
			       KVStoreHandle kvstore)
{
	int i;

	if (num_params < 0 || (num_params && (!keys || !vals)))
		return mx_err(-1, "profiler: %d parameters, or no list of them", num_params);
	for (i = 0; i < num_params; i++)
		if (!keys[i] || !vals[i] || set_key(keys[i], vals[i]))
			return keys[i] && vals[i] ? -1 : mx_err(-1, "profiler: parameter %d is NULL", i);
	return 0;
}
PAWL_EXPORT(MXSetProcessProfilerConfig);

int MXSetProfilerConfig(int num_params, const char *const *keys, const char *const *vals)
{
	return MXSetProcessProfilerConfig(num_params, keys, vals, NULL);
}
PAWL_EXPORT(MXSetProfilerConfig);

int MXSetProcessProfilerState(int state, int profile_process, KVStoreHandle kvstore)
{
	struct pawl_engine *pe = traced();

	if (bad_process(profile_process) || !pe)
		return -1;
	if (state != 0 && state != 1)
		return mx_err(-1, "profiler: state %d", state);
	if (state) {
		if (!load_relaxed(&running) && trace_on())
			return -1;
	} else if (load_relaxed(&running)) {
		pawl_trace_stop(pe);
	}
	store_relaxed(&running, (u32)state);
	return 0;
}
PAWL_EXPORT(MXSetProcessProfilerState);

int MXSetProfilerState(int state)
{
	return MXSetProcessProfilerState(state, 0, NULL);
}
PAWL_EXPORT(MXSetProfilerState);

/* Write the events since the start or the last dump. */
int MXDumpProcessProfile(int finished, int profile_process, KVStoreHandle kvstore)
{
	struct pawl_engine *pe = traced();
	u32 on = load_relaxed(&running);
	int rc;

	if (bad_process(profile_process) || !pe)
		return -1;
	if (on)
		pawl_trace_stop(pe);
	rc = pawl_trace_write(pe, filename);
	if (finished)
		store_relaxed(&running, 0);
	else if (on)
		trace_on();
	return rc ? mx_err_pawl(rc), -1 : 0;
}
PAWL_EXPORT(MXDumpProcessProfile);

int MXDumpProfile(int finished)
{
	return MXDumpProcessProfile(finished, 0, NULL);
}
PAWL_EXPORT(MXDumpProfile);

int MXProcessProfilePause(int pause, int profile_process, KVStoreHandle kvstore)
{
	if (bad_process(profile_process))
		return -1;
	store_relaxed(&paused, !!pause);
	return 0;
}
PAWL_EXPORT(MXProcessProfilePause);

int MXProfilePause(int pause)
{
	return MXProcessProfilePause(pause, 0, NULL);
}
PAWL_EXPORT(MXProfilePause);

/* --- the table --- */

struct text {
	char *s;
	size_t n, cap;
};

static __thread struct text *printed;
static pthread_key_t printed_key;
static pthread_once_t printed_once = PTHREAD_ONCE_INIT;
static bool have_printed_key;

static void printed_free(void *arg)
{
	struct text *t = arg;

	free(t->s);
	free(t);
	printed = NULL;
}

static void printed_key_make(void)
{
	have_printed_key = !pthread_key_create(&printed_key, printed_free);
}

/* The calling thread's buffer, kept until its next print. */
static struct text *text_new(void)
{
	pthread_once(&printed_once, printed_key_make);
	if (!printed && have_printed_key) {
		printed = calloc(1, sizeof(*printed));
		if (printed && pthread_setspecific(printed_key, printed))
			printed_free(printed);
	}
	if (printed)
		printed->n = 0;
	return printed;
}

static __printf(2, 3) void add(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	for (;;) {
		va_start(ap, fmt);
		n = vsnprintf(t->s ? t->s + t->n : NULL, t->cap - t->n, fmt, ap);
		va_end(ap);
		if (n >= 0 && t->n + (size_t)n < t->cap)
			break;
		char *s = n < 0 ? NULL : realloc(t->s, 2 * (t->n + (size_t)n) + 1024);

		if (!s)
			return;
		t->s = s;
		t->cap = 2 * (t->n + (size_t)n) + 1024;
	}
	t->n += (size_t)n;
}

struct row {
	const char *name;
	u64 count, total, min, max;
};

static int sort_column, sort_up;

static u64 column(const struct row *r)
{
	const u64 all[] = { r->total, r->total / r->count, r->min, r->max, r->count };

	return all[sort_column];
}

static int by_column(const void *a, const void *b)
{
	u64 x = column(a), y = column(b);
	int way = x < y ? -1 : x > y;

	return sort_up ? way : -way;
}

static u32 rows_take(struct row *rows, bool reset)
{
	u32 i, n = 0;

	for (i = 0; i < ENTRIES; i++) {
		struct entry *x = &entries[i];
		struct row *r = &rows[n];

		r->name = load_acquire(&x->name);
		r->count = load_relaxed(&x->count);
		r->total = load_relaxed(&x->total);
		r->min = load_relaxed(&x->min);
		r->max = load_relaxed(&x->max);
		if (!r->name || !r->count)
			continue;
		n++;
		if (!reset)
			continue;
		store_relaxed(&x->count, 0);
		store_relaxed(&x->total, 0);
		store_relaxed(&x->min, 0);
		store_relaxed(&x->max, 0);
	}
	return n;
}

static void print_table(struct text *t, const struct row *rows, u32 n)
{
	u32 i;

	add(t, "\nProfile Statistics:\n\toperator\n%-40s %14s %14s %14s %14s %14s\n", "Name",
	    "Total Count", "Time (ms)", "Min Time (ms)", "Max Time (ms)", "Avg Time (ms)");
	for (i = 0; i < n; i++)
		add(t, "%-40s %14llu %14.4f %14.4f %14.4f %14.4f\n", rows[i].name,
		    (unsigned long long)rows[i].count, (double)rows[i].total / 1e6,
		    (double)rows[i].min / 1e6, (double)rows[i].max / 1e6,
		    (double)rows[i].total / (double)rows[i].count / 1e6);
}

static void print_json(struct text *t, const struct row *rows, u32 n)
{
	const char *c;
	u32 i;

	add(t, "{\"Time\": {\"operator\": {");
	for (i = 0; i < n; i++) {
		add(t, "%s\"", i ? ", " : "");
		for (c = rows[i].name; *c; c++)
			add(t, *c == '"' || *c == '\\' ? "\\%c" : (unsigned char)*c < ' ' ? "?" : "%c",
			    *c);
		add(t, "\": {\"Count\": %llu, \"Total\": %.4f, \"Min\": %.4f, \"Max\": %.4f, \"Avg\": %.4f}",
		    (unsigned long long)rows[i].count, (double)rows[i].total / 1e6,
		    (double)rows[i].min / 1e6, (double)rows[i].max / 1e6,
		    (double)rows[i].total / (double)rows[i].count / 1e6);
	}
	add(t, "}}, \"Unit\": {\"Time\": \"ms\"}}");
}

int MXAggregateProfileStatsPrintEx(const char **out_str, int reset, int format, int sort_by,
				   int ascending)
{
	struct row *rows;
	struct text *t;
	u32 n;

	if (!out_str)
		return mx_err(-1, "profiler: out_str is NULL");
	if (format < 0 || format > 1 || sort_by < 0 || sort_by > 4)
		return mx_err(-1, "profiler: format %d, sort_by %d", format, sort_by);
	rows = calloc(ENTRIES, sizeof(*rows));
	t = rows ? text_new() : NULL;
	if (!t) {
		free(rows);
		return mx_err(-1, "profiler: no memory");
	}
	n = rows_take(rows, reset);
	sort_column = sort_by;
	sort_up = ascending;
	qsort(rows, n, sizeof(*rows), by_column);
	(format ? print_json : print_table)(t, rows, n);
	free(rows);
	*out_str = t->s;
	return t->s ? 0 : mx_err(-1, "profiler: no memory");
}
PAWL_EXPORT(MXAggregateProfileStatsPrintEx);

int MXAggregateProfileStatsPrint(const char **out_str, int reset)
{
	return MXAggregateProfileStatsPrintEx(out_str, reset, 0, 0, 0);
}
PAWL_EXPORT(MXAggregateProfileStatsPrint);
