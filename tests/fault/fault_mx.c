// SPDX-License-Identifier: Apache-2.0
/*
 * Fault points of libpawl_mx (see fault.c): memory and threads are refused to its engines,
 * vars, pushes, operators, arrays, and to the child of a fork.
 *
 * Whether a push is accepted or refused, its arguments are released once; a body runs once if
 * the push was accepted.  What the library keeps until the process ends (lists of small
 * objects, names, the process's engine) is also kept in a run without faults.
 */
#include "fault.h"
#include <pawl/mx_c_api.h>

const char fault_program[] = "fault_mx";

#define NVARS 40u

static const struct pawl_mx_context cpu = { PAWL_MX_CPU, 0 };
static struct {
	struct pawl_mx_engine *e;
	struct pawl_mx_var *v[NVARS];
	u32 nv;
	u32 pushed, accepted;
	u32 ran, dropped;	/* A */
} m;

static void count(void *run, void *arg)
{
	fetch_add_relaxed(&m.ran, 1);
}

static void count_async(void *run, void *done, void *arg)
{
	fetch_add_relaxed(&m.ran, 1);
	CHECK(!pawl_mx_complete(done, NULL), "%s: complete: %s", where, pawl_mx_last_error());
}

static void count_start(void *run, void *start, void *done, void *arg)
{
	count_async(run, done, arg);
}

static void fail_sync(void *run, void *arg)
{
	fetch_add_relaxed(&m.ran, 1);
	pawl_mx_fail(run, "as it should");
}

static void dropped(void *arg)
{
	CHECK(arg == &m, "%s: another's argument is dropped", where);
	fetch_add_relaxed(&m.dropped, 1);
}

static void mx_vars(void)
{
	while (m.nv < NVARS && !TRY(pawl_mx_var_new(m.e, &m.v[m.nv])))
		m.nv++;
}

static void mx_begin(void)
{
	fault_text = pawl_mx_last_error;
	setenv("MXNET_CPU_WORKER_NTHREADS", "2", 1);
	memset(&m, 0, sizeof(m));
	pawl_mx_set_last_error("none");	/* the buffer for a thread's text is kept */
}

static void mx_make(int kind)
{
	disarm();
	CHECK(!pawl_mx_engine_create(kind, &m.e), "%s: create: %s", where,
	      pawl_mx_last_error());
}

static void push_one(u32 i, u32 nr, u32 nw)
{
	struct pawl_mx_op op = { .arg = &m, .drop = dropped, .ctx = cpu };
	char name[16];

	snprintf(name, sizeof(name), "op%u", i % 20);
	op.name = i % 3 ? name : NULL;
	switch (i % 3) {
	case 0:
		op.sync = count;
		break;
	case 1:
		op.async = count_async;
		break;
	default:
		op.async_start = count_start;
	}
	op.keep = i % 4 == 1;
	op.wait = i % 5 == 1;
	op.prop = i % 7 == 6 ? PAWL_CPU_PRIORITIZED : PAWL_NORMAL;
	op.reads = m.v;
	op.nreads = nr;
	op.writes = m.v + nr;
	op.nwrites = nw;
	m.pushed++;
	if (!TRY(pawl_mx_push(m.e, &op, NULL)))
		m.accepted++;
}

/*
 * With keep an argument may go a little after its op was over: when the body is off the stack.
 */
static bool all_dropped(void)
{
	u32 i;

	for (i = 0; i < 20000 && load_relaxed(&m.dropped) != m.pushed; i++)
		usleep(1000);
	return m.dropped == m.pushed;
}

static void mx_check(void)
{
	u32 i;

	disarm();
	CHECK(!pawl_mx_wait_all(m.e, NULL), "%s: wait: %s", where, pawl_mx_last_error());
	CHECK(m.ran == m.accepted, "%s: %u accepted, %u ran", where, m.accepted, m.ran);
	CHECK(all_dropped(), "%s: %u pushed, %u dropped", where, m.pushed, m.dropped);
	mx_vars();
	CHECK(m.nv == NVARS, "%s: no vars afterwards: %s", where, pawl_mx_last_error());
	for (i = 0; i < 60; i++)
		push_one(i, i % 20, i % 3);
	CHECK(!pawl_mx_wait_all(m.e, NULL), "%s: wait afterwards: %s", where,
	      pawl_mx_last_error());
	CHECK(m.accepted == m.ran && all_dropped(),
	      "%s: afterwards %u accepted, %u ran, %u pushed, %u dropped", where, m.accepted, m.ran,
	      m.pushed, m.dropped);
	for (i = 0; i < NVARS; i++)
		CHECK(!pawl_mx_var_delete(m.e, m.v[i], cpu, NULL, NULL, NULL), "%s: delete: %s",
		      where, pawl_mx_last_error());
	if (!pawl_mx_engine_free(m.e))
		return;
	/* The shared engine of the process. */
	CHECK(!pawl_mx_wait_all(m.e, NULL), "%s: wait at the end: %s", where,
	      pawl_mx_last_error());
}

/* --- scenarios --- */

static void create(int kind)
{
	mx_begin();
	arm(ALL);
	if (TRY(pawl_mx_engine_create(kind, &m.e)))
		mx_make(kind);
	mx_check();
}

static void sc_create(void) { create(PAWL_MX_PER_DEVICE); }
static void sc_create_naive(void) { create(PAWL_MX_NAIVE); }
static void sc_create_pooled(void) { create(PAWL_MX_POOLED); }

static void sc_get(void)
{
	mx_begin();
	arm(ALL);
	m.e = pawl_mx_engine_get();
	if (!m.e) {
		CHECK(pawl_mx_last_error()[0], "%s: no engine, and no message", where);
		disarm();
		m.e = pawl_mx_engine_get();
		CHECK(m.e, "%s: get afterwards: %s", where, pawl_mx_last_error());
	}
	mx_check();
}

static void sc_vars(void)
{
	struct pawl_mx_var *v;
	u32 i;

	mx_begin();
	mx_make(PAWL_MX_PER_DEVICE);
	arm(ALL);
	for (i = 0; i < 1500; i++) {
		if (TRY(pawl_mx_var_new(m.e, &v)))
			continue;
		m.pushed++;
		if (!TRY(pawl_mx_var_delete(m.e, v, cpu, count, &m, dropped)))
			m.accepted++;
		else
			break;	/* it is unchanged */
	}
	mx_check();
}

static void sc_push(void)
{
	u32 i;

	mx_begin();
	mx_make(PAWL_MX_PER_DEVICE);
	mx_vars();
	arm(ALL);
	for (i = 0; i < 1500; i++)
		push_one(i, i % 9, i % 3 + (i % 50 == 7 ? 25 : 0));
	mx_check();
}

/* More vars than the stack has room for: their list is allocated. */
static void sc_wide(void)
{
	struct pawl_mx_var *wide[300];
	struct pawl_mx_op op = { .sync = count, .arg = &m, .drop = dropped, .ctx = cpu,
				 .reads = wide, .nreads = COUNT(wide) };
	u32 i;

	mx_begin();
	mx_make(PAWL_MX_PER_DEVICE);
	for (i = 0; i < COUNT(wide); i++)
		CHECK(!pawl_mx_var_new(m.e, &wide[i]), "%s: %s", where, pawl_mx_last_error());
	arm(ALL);
	for (i = 0; i < 3; i++) {
		m.pushed++;
		if (!TRY(pawl_mx_push(m.e, &op, NULL)))
			m.accepted++;
	}
	disarm();
	m.pushed++;
	m.accepted++;
	CHECK(!pawl_mx_push(m.e, &op, NULL), "%s: wide: %s", where, pawl_mx_last_error());
	mx_check();
}

static void sc_bulk(void)
{
	u32 i;

	mx_begin();
	mx_make(PAWL_MX_PER_DEVICE);
	mx_vars();
	arm(ALL);
	TRY(pawl_mx_set_bulk_size(m.e, 15));
	for (i = 0; i < 200; i++)
		push_one(3 * i, 1, 1);
	disarm();
	/* What was gathered may be lost with its drops called: errors.md. */
	pawl_mx_wait_all(m.e, NULL);
	CHECK(all_dropped(), "%s: %u pushed, %u dropped", where, m.pushed, m.dropped);
	m.accepted = m.ran;
	CHECK(pawl_mx_set_bulk_size(m.e, 0) >= 0, "%s: bulk off", where);
	mx_check();
}

static void sc_opr(void)
{
	struct pawl_mx_op op = { .sync = count, .arg = &m, .drop = dropped, .ctx = cpu };
	struct pawl_mx_opr *o;
	u32 i, k;

	mx_begin();
	mx_make(PAWL_MX_PER_DEVICE);
	mx_vars();
	arm(ALL);
	for (i = 0; i < 10; i++) {
		op.reads = m.v;
		op.nreads = i % 4;
		op.writes = m.v + i % 4;
		op.nwrites = i;
		m.pushed++;
		if (TRY(pawl_mx_opr_new(m.e, &op, &o)))
			continue;
		for (k = 0; k < 5; k++)
			if (!TRY(pawl_mx_opr_push(m.e, o, cpu, (int)k, NULL)))
				m.accepted++;
		CHECK(!TRY(pawl_mx_opr_delete(m.e, o)), "%s: delete: %s", where,
		      pawl_mx_last_error());
	}
	mx_check();
}

/* Arrays: their values are right, or a call returned an error. */
static void sc_nd(void)
{
	const uint32_t shape[] = { 4, 3 };
	float in[12], back[12];
	NDArrayHandle a, b, c;
	u32 i, k;
	bool good;

	mx_begin();
	m.e = pawl_mx_engine_get();
	CHECK(m.e, "%s: get: %s", where, pawl_mx_last_error());
	arm(ALL);
	for (i = 0; i < 8; i++) {
		a = b = c = NULL;
		for (k = 0; k < 12; k++)
			in[k] = (float)(i * 12 + k);
		good = !TRY(MXNDArrayCreate(shape, 2, PAWL_MX_CPU, 0, (int)i % 2, &a));
		good = good && !TRY(MXNDArraySyncCopyFromCPU(a, in, 12));
		good = good && !TRY(MXNDArrayCreateEx(shape, 2, PAWL_MX_CPU, 1, 1, 0, &b));
		good = good && !TRY(pawl_mx_nd_copy(a, b, 0));
		good = good && !TRY(MXNDArraySlice(b, 1, 3, &c));
		good = good && !TRY(MXNDArraySyncCopyToCPU(c, back, 6));
		CHECK(!good || !memcmp(back, in + 3, 24), "%s: other values come back", where);
		if (c)
			CHECK(!TRY(MXNDArrayFree(c)), "%s: free: %s", where,
			      pawl_mx_last_error());
		if (b)
			CHECK(!TRY(MXNDArrayFree(b)), "%s: free: %s", where,
			      pawl_mx_last_error());
		if (a)
			CHECK(!TRY(MXNDArrayFree(a)), "%s: free: %s", where,
			      pawl_mx_last_error());
	}
	disarm();
	CHECK(!MXNDArrayWaitAll(), "%s: wait: %s", where, pawl_mx_last_error());
	mx_check();
}

/* An op on more arrays than the stack has room for. */
static void sc_nd_list(void)
{
	NDArrayHandle a, list[80];
	u32 i;

	mx_begin();
	m.e = pawl_mx_engine_get();
	CHECK(m.e, "%s: get: %s", where, pawl_mx_last_error());
	CHECK(!MXNDArrayCreate(&(uint32_t){ 1 }, 1, PAWL_MX_CPU, 0, 0, &a), "%s: array: %s", where,
	      pawl_mx_last_error());
	for (i = 0; i < COUNT(list); i++)
		list[i] = a;
	arm(ALL);
	for (i = 0; i < 3; i++) {
		m.pushed++;
		if (!TRY(MXEnginePushSyncND(count, &m, dropped, &cpu, list, 0, list, COUNT(list),
					    NULL, 0, "list")))
			m.accepted++;
	}
	CHECK(!TRY(MXNDArrayFree(a)), "%s: free: %s", where, pawl_mx_last_error());
	mx_check();
}

static void text_whole(const char *text, bool json)
{
	static const char *const begins[] = { "\nProfile Statistics:", "{\"Time\": {" };
	static const char *const ends[] = { "\n\n", "\"kB\"}}" };
	size_t n = text ? strlen(text) : 0, tail = strlen(ends[json]);

	CHECK(n > tail && !strncmp(text, begins[json], strlen(begins[json])) &&
	      !strcmp(text + n - tail, ends[json]), "%s: the table is not whole: %s", where,
	      text ? text : "NULL");
}

/* Times are summed and traced: a table or a trace is whole, or a call returned an error. */
static void sc_profile(void)
{
	const char *keys[] = { "filename", "aggregate_stats" }, *vals[] = { path, "1" };
	const char *text;
	ProfileHandle domain = NULL, task, counter, event;
	int i;

	mx_begin();
	m.e = pawl_mx_engine_get();
	CHECK(m.e, "%s: get: %s", where, pawl_mx_last_error());
	mx_vars();
	CHECK(!MXSetProfilerConfig(2, keys, vals), "%s: config: %s", where, pawl_mx_last_error());
	arm(ALL);
	TRY(MXSetProfilerState(1));
	for (i = 0; i < 20; i++)
		push_one((u32)i, 1, 1);
	if (!TRY(MXProfileCreateDomain("domain", &domain))) {
		if (!TRY(MXProfileCreateTask(domain, "task", &task))) {
			TRY(MXProfileDurationStart(task));
			TRY(MXProfileDurationStop(task));
			CHECK(!TRY(MXProfileDestroyHandle(task)), "%s: task", where);
		}
		if (!TRY(MXProfileCreateCounter(domain, "counter", &counter))) {
			TRY(MXProfileSetCounter(counter, 7));
			CHECK(!TRY(MXProfileDestroyHandle(counter)), "%s: counter", where);
		}
		TRY(MXProfileSetMarker(domain, "marker", "thread"));
	}
	if (!TRY(MXProfileCreateEvent("event", &event))) {
		TRY(MXProfileDurationStart(event));
		TRY(MXProfileDurationStop(event));
		CHECK(!TRY(MXProfileDestroyHandle(event)), "%s: event", where);
	}
	TRY(pawl_mx_wait_all(m.e, NULL));
	for (i = 0; i < 2; i++)
		if (!TRY(MXAggregateProfileStatsPrintEx(&text, 0, i, 0, 0)))
			text_whole(text, i);
	for (i = 0; i < 2; i++)
		TRY(MXDumpProfile(i));
	disarm();
	free(domain);	/* as in MXNet it is never freed, and other points leave none */
	CHECK(!MXSetProfilerState(0), "%s: off: %s", where, pawl_mx_last_error());
	CHECK(!MXDumpProfile(1), "%s: dump: %s", where, pawl_mx_last_error());
	mx_check();
}

static void sc_resource(void)
{
	struct pawl_mx_resource r;
	int i;

	mx_begin();
	m.e = pawl_mx_engine_get();
	CHECK(m.e, "%s: get: %s", where, pawl_mx_last_error());
	arm(ALL);
	for (i = 0; i < 6; i++)
		if (!TRY(pawl_mx_resource_get(cpu, i % 3, &r)) &&
		    r.type == PAWL_MX_TEMP_SPACE && !pawl_mx_resource_space(&r, 1000))
			CHECK(pawl_mx_last_error()[0], "%s: no space, and no message", where);
	TRY(MXRandomSeed(5));
	TRY(MXRandomSeedContext(6, PAWL_MX_CPU, 0));
	TRY(MXRandomSeedContext(7, PAWL_MX_CPU, 1));
	mx_check();
}

/* --- what refused calls leave: nothing, and the next call succeeds --- */

/* What the library keeps from its first calls on is there: names, and room for a text. */
static void mx_warm(void)
{
	struct pawl_mx_var *v;
	u32 i;

	mx_begin();
	m.e = pawl_mx_engine_get();
	CHECK(m.e, "%s: get: %s", where, pawl_mx_last_error());
	mx_vars();
	for (i = 0; i < 20; i++)
		push_one(i, 1, 1);
	CHECK(!pawl_mx_var_new(m.e, &v) && !pawl_mx_var_delete(m.e, v, cpu, NULL, NULL, NULL),
	      "%s: var: %s", where, pawl_mx_last_error());
	CHECK(pawl_var_delete(pawl_mx_engine_pawl(m.e), (pawl_var_t){ 0 }, NULL, NULL),
	      "%s: no error", where);
	CHECK(!pawl_mx_wait_all(m.e, NULL), "%s: wait: %s", where, pawl_mx_last_error());
	watched = true;
}

static void sc_context(void)
{
	struct pawl_mx_context ctx = cpu;
	struct pawl_mx_resource r;
	struct pawl_mx_var *v;
	s64 before;
	u32 n;
	int rc;

	mx_warm();
	/* Vars come by the hundred.  Behind the first context five are left. */
	for (before = allocations(); allocations() == before; )
		CHECK(!pawl_mx_var_new(m.e, &v), "%s: %s", where, pawl_mx_last_error());
	for (before = allocations(), n = 0; allocations() == before; n++)
		CHECK(!pawl_mx_var_new(m.e, &v), "%s: %s", where, pawl_mx_last_error());
	while (n-- > 12)
		CHECK(!pawl_mx_var_new(m.e, &v), "%s: %s", where, pawl_mx_last_error());
	CHECK(!pawl_mx_resource_get(ctx, 0, &r), "%s: %s", where, pawl_mx_last_error());
	for (ctx.dev_id = 1; ctx.dev_id < 6; ctx.dev_id++) {
		before = allocations();
		arm(ALL);
		rc = TRY(pawl_mx_resource_get(ctx, ctx.dev_id % 3, &r));
		disarm();
		CHECK(!pawl_mx_wait_all(m.e, NULL), "%s: wait: %s", where, pawl_mx_last_error());
		CHECK(!rc || allocations() == before, "%s: %lld allocations are left", where,
		      (long long)(allocations() - before));
		CHECK(!pawl_mx_resource_get(ctx, PAWL_MX_RANDOM, &r) &&
		      !MXRandomSeedContext(1, ctx.dev_type, ctx.dev_id) &&
		      !pawl_mx_wait_var(m.e, r.var, NULL) && pawl_mx_var_version(r.var) == 1,
		      "%s: the context afterwards: %s", where, pawl_mx_last_error());
	}
	mx_check();
}

static void profile_warm(void)
{
	const char *keys[] = { "filename", "aggregate_stats" }, *vals[] = { path, "1" };
	const char *text;
	int i;

	mx_warm();
	CHECK(!MXSetProfilerConfig(2, keys, vals), "%s: config: %s", where, pawl_mx_last_error());
	for (i = 0; i < 2; i++)
		CHECK(!MXAggregateProfileStatsPrintEx(&text, 0, i, 0, 0), "%s: table: %s", where,
		      pawl_mx_last_error());
}

static void *prints(void *arg)
{
	const char *text;
	int i;

	watched = true;
	arm(ALL);
	for (i = 0; i < 2; i++)
		if (!TRY(MXAggregateProfileStatsPrintEx(&text, 0, i, 0, 0)))
			text_whole(text, i);
	disarm();
	for (i = 0; i < 2; i++) {
		CHECK(!MXAggregateProfileStatsPrintEx(&text, 0, i, 0, 0),
		      "%s: the next table: %s", where, pawl_mx_last_error());
		text_whole(text, i);
	}
	return NULL;
}

/* Neither does the end of the thread that printed. */
static void sc_table(void)
{
	s64 before;
	pthread_t t;
	u32 i;

	profile_warm();
	CHECK(!MXSetProfilerState(1), "%s: on: %s", where, pawl_mx_last_error());
	for (i = 0; i < 60; i++)
		push_one(i, 1, 1);
	CHECK(!pawl_mx_wait_all(m.e, NULL), "%s: wait: %s", where, pawl_mx_last_error());
	before = allocations();
	CHECK(!thread_for_sure(&t, prints, NULL), "%s: no thread", where);
	pthread_join(t, NULL);
	CHECK(allocations() == before, "%s: %lld allocations are left", where,
	      (long long)(allocations() - before));
	CHECK(!MXSetProfilerState(0), "%s: off: %s", where, pawl_mx_last_error());
	mx_check();
}

static void add_events(ProfileHandle event, int n)
{
	for (; n; n--)
		CHECK(!MXProfileDurationStart(event) && !MXProfileDurationStop(event),
		      "%s: event: %s", where, pawl_mx_last_error());
}

/* A dump without an error has all events, and one with an error keeps none of them. */
static void sc_dump(void)
{
	enum { EVENTS = 5 };
	char *text = NULL, *at;
	ProfileHandle event;
	size_t room = 0;
	s64 before;
	u32 fired;
	int rc, n;
	FILE *f;

	profile_warm();
	if (pawl_trace_write(pawl_mx_engine_pawl(m.e), path) != -ENOSYS) {
		CHECK(!MXProfileCreateEvent("event", &event) && !MXSetProfilerState(1), "%s: on: %s",
		      where, pawl_mx_last_error());
		add_events(event, 1);
		/* no other thread makes a call that fails */
		CHECK(!MXDumpProfile(0) && !pawl_mx_engine_stop(m.e, NULL), "%s: dump: %s", where,
		      pawl_mx_last_error());
		before = allocations();
		add_events(event, EVENTS);
		fired = out->fired;
		arm(ALL);
		rc = TRY(MXDumpProfile(0));
		disarm();
		CHECK(rc || out->fired == fired, "%s: the dump does not say it", where);
		if (!rc) {
			f = fopen(path, "r");
			CHECK(f && getdelim(&text, &room, 0, f) > 4, "%s: no trace", where);
			for (n = 0, at = text; (at = strstr(at, "{\"ph\":\"E\"")); at++)
				n++;
			CHECK(n == EVENTS && !strcmp(text + strlen(text) - 4, "\n]}\n"),
			      "%s: %d events, or no end: %s", where, n, text);
			fclose(f);
		}
		CHECK(!MXSetProfilerState(0) && !MXSetProfilerState(1) && !MXDumpProfile(0),
		      "%s: the next dump: %s", where, pawl_mx_last_error());
		CHECK(allocations() <= before, "%s: %lld allocations are left", where,
		      (long long)(allocations() - before));
		CHECK(!MXSetProfilerState(0) && !MXProfileDestroyHandle(event) &&
		      !pawl_mx_engine_start(m.e), "%s: off: %s", where, pawl_mx_last_error());
		free(text);
	}
	mx_check();
}

static void sc_objects(void)
{
	ProfileHandle domain, o;
	s64 before;
	int kind, round, rc;

	profile_warm();
	CHECK(!MXSetProfilerState(1) && !MXProfileCreateDomain("domain", &domain), "%s: on: %s",
	      where, pawl_mx_last_error());
	for (round = 0; round < 2; round++) {
		for (kind = 0; kind < 6; kind++) {
			o = NULL;
			before = allocations();
			if (round)
				arm(ALL);
			rc = TRY(kind == 0 ? MXProfileCreateTask(domain, "name", &o) :
				 kind == 1 ? MXProfileCreateFrame(domain, "name", &o) :
				 kind == 2 ? MXProfileCreateEvent("name", &o) :
				 kind == 3 ? MXProfileCreateCounter(domain, "name", &o) :
				 kind == 4 ? MXProfileSetMarker(domain, "name", "task") :
				 MXProfileCreateDomain("domain", &o));
			disarm();
			CHECK(!rc || !o, "%s: a refused object", where);
			if (kind == 5)
				free(o);
			else if (o)
				CHECK(!MXProfileDestroyHandle(o), "%s: destroy", where);
			/* in the first round their names stay, and a marker's record */
			CHECK(!round || allocations() - before <= (kind == 4 && !rc),
			      "%s: object %d: %lld allocations are left", where, kind,
			      (long long)(allocations() - before));
		}
	}
	CHECK(!MXSetProfilerState(0), "%s: off: %s", where, pawl_mx_last_error());
	free(domain);
	mx_check();
}

/* A failed op's var stays poisoned in the child, memory or not. */
static void child(void)
{
	struct pawl_mx_op op = { .sync = count, .arg = &m, .drop = dropped, .ctx = cpu };
	u32 ran = m.ran, i, good = 0;
	int rc;

	alarm(50);
	rc = TRY(pawl_mx_wait_var(m.e, m.v[0], NULL));
	CHECK(rc, "%s: the child takes a failed op's data for good", where);
	for (i = 1; i < 5; i++) {
		op.writes = &m.v[i];
		op.nwrites = 1;
		if (!TRY(pawl_mx_push(m.e, &op, NULL)))
			good++;
	}
	rc = TRY(pawl_mx_wait_all(m.e, NULL));
	disarm();
	CHECK(rc || m.ran - ran == good, "%s: %u accepted in the child, %u ran", where, good,
	      m.ran - ran);
	_exit(0);
}

static void sc_fork(void)
{
	struct pawl_mx_op op = { .sync = fail_sync, .arg = &m, .drop = dropped, .ctx = cpu };
	int status;
	pid_t pid;

	mx_begin();
	m.e = pawl_mx_engine_get();
	CHECK(m.e, "%s: get: %s", where, pawl_mx_last_error());
	mx_vars();
	op.writes = m.v;
	op.nwrites = 1;
	m.pushed++;
	CHECK(!pawl_mx_push(m.e, &op, NULL), "%s: push: %s", where, pawl_mx_last_error());
	m.accepted++;
	arm(ALL);
	pid = fork();
	if (!pid)
		child();
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid, "%s: no child", where);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "%s",
	      out->text[0] ? out->text : "the child ended badly");
	disarm();
	CHECK(pawl_mx_wait_var(m.e, m.v[0], NULL), "%s: the parent was not told", where);
	mx_check();
}

static void *visitor(void *arg)
{
	struct pawl_mx_op op = { .sync = count, .arg = &m, .drop = dropped, .ctx = cpu };

	op.writes = m.v;
	op.nwrites = 1;
	m.pushed++;
	if (!TRY(pawl_mx_push(m.e, &op, NULL)))
		m.accepted++;
	tried("a bad call",
	      pawl_mx_push(m.e, &(struct pawl_mx_op){ .sync = count, .nreads = 1 }, NULL));
	/* Whether or not there was memory for that text, there is for the next one. */
	spared = true;
	CHECK(pawl_mx_push(m.e, &(struct pawl_mx_op){ .ctx = cpu }, NULL) == -EINVAL &&
	      !strcmp(pawl_mx_last_error(), "push: the function is NULL"), "%s: another text: %s",
	      where, pawl_mx_last_error());
	spared = false;
	return NULL;
}

static void sc_threads(void)
{
	pthread_t t;
	u32 i;

	mx_begin();
	mx_make(PAWL_MX_PER_DEVICE);
	mx_vars();
	arm(ALL);
	for (i = 0; i < 3; i++) {
		CHECK(!thread_for_sure(&t, visitor, NULL), "%s: no thread", where);
		pthread_join(t, NULL);
	}
	mx_check();
}

/*
 * The number of workers that started makes a difference: libpawl keeps an entry for each
 * thread.
 */
const struct scenario scenarios[] = {
	{ "create", sc_create, 150, 8 },
	{ "create_naive", sc_create_naive, 0, 0 },
	{ "create_pooled", sc_create_pooled, 0, 20 },
	{ "get", sc_get, 0, 20 },
	{ "vars", sc_vars, 0, 8 },
	{ "push", sc_push, 0, 8 },
	{ "wide", sc_wide, 0, 8 },
	{ "bulk", sc_bulk, 0, 8 },
	{ "opr", sc_opr, 0, 8 },
	{ "nd", sc_nd, 0, 20 },
	{ "nd_list", sc_nd_list, 0, 20 },
	{ "profile", sc_profile, 0, 40 },
	{ "resource", sc_resource, 0, 20 },
	{ "context", sc_context, 0, 20 },
	{ "table", sc_table, 0, 20 },
	{ "dump", sc_dump, 0, 40 },
	{ "objects", sc_objects, 0, 40 },
	{ "fork", sc_fork, 150, 20 },
	{ "threads", sc_threads, 0, 8 },
	{ NULL, NULL, 0, 0 },
};
