// SPDX-License-Identifier: Apache-2.0
/*
 * MXNet's profiler calls on pawl's trace.
 *
 * Purpose: state 1 starts the trace of the process's engine, and a dump writes it as Chrome
 * JSON.  With aggregate_stats the times of all bodies with the same name are summed
 * (compat/profile_table.c).
 *
 * Progress: lock-free for ops.  The calls that control the profiler are blocking: as in MXNet,
 * a lock serializes them.
 */
#include <time.h>
#include <compat/engine.h>
#include <compat/profile.h>
#include <pawl/mx_c_api.h>

#define TRACE_EVENTS	65536u

u32 mx_profile_lock;
static u32 running, aggregate, paused;	/* A */
static u64 trace_base;		/* W(mx_profile_lock): the time at which the trace started */
static char filename[1024] = "profile.json";	/* W(mx_profile_lock) */

/* Another thread of the parent may have held the lock. */
void mx_profile_fork_child(void)
{
	store_relaxed(&mx_profile_lock, 0);
}

bool mx_profile_aggregating(void)
{
	return load_relaxed(&aggregate) && load_relaxed(&running) && !load_relaxed(&paused);
}

bool mx_profile_records(void)
{
	return load_relaxed(&running) && !load_relaxed(&paused);
}

u64 mx_profile_now(void)
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
		t->begin = mx_profile_now();
	}
	return t;
}

void mx_profile_end(void *task)
{
	const struct task *t = task;
	u64 ns = mx_profile_now() - t->begin;

	mx_stat_add(t->name ? t->name : "unnamed", MX_STAT_DURATION, ns);
	pawl_mx_room_put(task);
}

/* --- the trace --- */

static struct pawl_engine *traced(void)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();

	return e ? mx_pe(e) : NULL;
}

static int trace_on(struct pawl_engine *pe)
{
	int rc;

	mx_events_drop();
	trace_base = mx_profile_now();
	rc = pawl_trace_start(pe, TRACE_EVENTS);
	/* In a build without traces the sums still work. */
	return rc && rc != -EALREADY && rc != -ENOSYS ? mx_err_pawl(rc), -1 : 0;
}

/* The process's engine is created with MXNET_PROFILER_AUTOSTART. */
void mx_profile_engine(struct pawl_mx_engine *e)
{
	mx_lock(&mx_profile_lock);
	if (!trace_on(mx_pe(e))) {
		store_relaxed(&paused, 0);
		store_relaxed(&running, 1);
	}
	mx_unlock(&mx_profile_lock);
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
	int i, rc = 0;

	if (num_params < 0 || (num_params && (!keys || !vals)))
		return mx_err(-1, "profiler: %d parameters, or no list of them", num_params);
	mx_lock(&mx_profile_lock);
	for (i = 0; i < num_params && !rc; i++)
		rc = keys[i] && vals[i] ? set_key(keys[i], vals[i]) :
					  mx_err(-1, "profiler: parameter %d is NULL", i);
	mx_unlock(&mx_profile_lock);
	return rc;
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
	int rc = 0;

	if (bad_process(profile_process) || !pe)
		return -1;
	if (state != 0 && state != 1)
		return mx_err(-1, "profiler: state %d", state);
	mx_lock(&mx_profile_lock);
	if (!load_relaxed(&running)) {
		if (state)
			rc = trace_on(pe);
	} else if (!state) {
		pawl_trace_stop(pe);
	}
	if (!rc) {
		store_relaxed(&paused, 0);
		store_relaxed(&running, (u32)state);
	}
	mx_unlock(&mx_profile_lock);
	return rc;
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
	u32 on;
	int rc;

	if (bad_process(profile_process) || !pe)
		return -1;
	mx_lock(&mx_profile_lock);
	on = load_relaxed(&running);
	if (on)
		pawl_trace_stop(pe);
	rc = pawl_trace_write(pe, filename);
	if (rc)
		mx_err_pawl(rc);
	else
		rc = mx_events_write(filename, trace_base);
	if (finished)
		store_relaxed(&running, 0);
	else if (on)
		trace_on(pe);
	mx_unlock(&mx_profile_lock);
	return rc ? -1 : 0;
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
