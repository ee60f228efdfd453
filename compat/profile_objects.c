// SPDX-License-Identifier: Apache-2.0
/*
 * MXNet's profiling objects: domains, tasks, frames, events, counters and markers that a
 * program names itself.
 *
 * Purpose: while the profiler runs, the reports of a program by these objects are added to the
 * sums (compat/profile_table.c), and appended to the trace when it is dumped.
 *
 * Structures: a list of records, newest first.  It has at most RECORDS_MAX; later records
 * appear only in the sums.
 *
 * Ordering: COMPAT-O1 (record pushed, release) <-> COMPAT-O2 (list taken, acquire).
 *
 * Progress: lock-free, except for the C library's allocator.
 *
 * Lifetime: an object belongs to its handle.  As in MXNet a domain is never freed, since other
 * objects refer to its name.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <base/name.h>
#include <compat/profile.h>
#include <pawl/mx_c_api.h>

#define RECORDS_MAX	65536u
#define NAME_LEN	63

enum object_kind { DOMAIN = 0x70726f66, TASK, FRAME, EVENT, COUNTER, MARKER };

struct object {
	u32 kind;		/* I: enum object_kind; 0 after it is freed */
	const char *key;	/* I: interned: domain, MX_STAT_SEP, name */
	u64 start;		/* A: time in ns, 0 while it is not started */
	u64 value;		/* A: of a counter */
};

struct record {
	ck_stack_entry_t link;
	u32 kind;
	char scope;		/* of a marker */
	u64 tid;
	const char *key;
	u64 begin;		/* ns */
	u64 end;		/* ns; of a counter the value */
};

CK_STACK_CONTAINER(struct record, link, record_of)

static ck_stack_t records;
static u32 nrecords;		/* A */

static int object_new(u32 kind, const struct object *domain, const char *suffix,
		      const char *name, ProfileHandle *out)
{
	char key[2 * NAME_LEN + 2];
	struct object *o;

	if (!name || !out)
		return mx_err(-1, "profiler: %s is NULL", name ? "out" : "the name");
	if (domain)
		snprintf(key, sizeof(key), "%s%s%c%.*s", domain->key, suffix, MX_STAT_SEP,
			 NAME_LEN, name);
	else if (kind == EVENT)
		snprintf(key, sizeof(key), "event%c%.*s", MX_STAT_SEP, NAME_LEN, name);
	else
		snprintf(key, sizeof(key), "%.*s", NAME_LEN - 15, name);
	o = calloc(1, sizeof(*o));
	if (!o)
		return mx_err(-1, "profiler: no memory");
	o->kind = kind;
	o->key = mx_name(key);
	*out = o;
	return 0;
}

/* The domain of a handle, or NULL with an error. */
static const struct object *domain_of(ProfileHandle handle)
{
	const struct object *o = handle;

	if (o && o->kind == DOMAIN)
		return o;
	mx_err(-1, "profiler: the domain is %s", o ? "another object" : "NULL");
	return NULL;
}

int MXProfileCreateDomain(const char *domain, ProfileHandle *out)
{
	if (domain && !*domain)
		return mx_err(-1, "profiler: the name of the domain is empty");
	return object_new(DOMAIN, NULL, "", domain, out);
}
PAWL_EXPORT(MXProfileCreateDomain);

int MXProfileCreateTask(ProfileHandle domain, const char *task_name, ProfileHandle *out)
{
	const struct object *d = domain_of(domain);

	return d ? object_new(TASK, d, "", task_name, out) : -1;
}
PAWL_EXPORT(MXProfileCreateTask);

int MXProfileCreateFrame(ProfileHandle domain, const char *frame_name, ProfileHandle *out)
{
	const struct object *d = domain_of(domain);

	return d ? object_new(FRAME, d, ",frame", frame_name, out) : -1;
}
PAWL_EXPORT(MXProfileCreateFrame);

int MXProfileCreateEvent(const char *event_name, ProfileHandle *out)
{
	return object_new(EVENT, NULL, "", event_name, out);
}
PAWL_EXPORT(MXProfileCreateEvent);

int MXProfileCreateCounter(ProfileHandle domain, const char *counter_name, ProfileHandle *out)
{
	const struct object *d = domain_of(domain);

	return d ? object_new(COUNTER, d, "", counter_name, out) : -1;
}
PAWL_EXPORT(MXProfileCreateCounter);

int MXProfileDestroyHandle(ProfileHandle handle)
{
	struct object *o = handle;

	if (!o)
		return mx_err(-1, "profiler: the handle to destroy is NULL");
	if (o->kind == DOMAIN)
		return 0;
	if (o->kind < TASK || o->kind > COUNTER)
		return mx_err(-1, "profiler: the handle to destroy is no profiling object");
	o->kind = 0;
	free(o);
	return 0;
}
PAWL_EXPORT(MXProfileDestroyHandle);

/* --- records --- */

static void record(u32 kind, const char *key, u64 begin, u64 end, char scope)
{
	struct record *r = NULL;

	if (fetch_add_relaxed(&nrecords, 1) < RECORDS_MAX)
		r = malloc(sizeof(*r));
	if (!r) {
		fetch_add_relaxed(&nrecords, -1u);
		return;
	}
	r->kind = kind;
	r->key = key;
	r->begin = begin;
	r->end = end;
	r->scope = scope;
	r->tid = (u64)syscall(SYS_gettid);
	ck_stack_push_upmc(&records, &r->link);	/* COMPAT-O1 <-> COMPAT-O2 */
}

static struct object *duration_of(ProfileHandle handle)
{
	struct object *o = handle;

	if (o && o->kind >= TASK && o->kind <= EVENT)
		return o;
	mx_err(-1, "profiler: the handle is %s", o ? "no task, frame or event" : "NULL");
	return NULL;
}

int MXProfileDurationStart(ProfileHandle duration_handle)
{
	struct object *o = duration_of(duration_handle);

	if (!o)
		return -1;
	store_relaxed(&o->start, mx_profile_now());
	return 0;
}
PAWL_EXPORT(MXProfileDurationStart);

int MXProfileDurationStop(ProfileHandle duration_handle)
{
	struct object *o = duration_of(duration_handle);
	u64 begin, end;

	if (!o)
		return -1;
	begin = load_relaxed(&o->start);
	if (!begin)
		return mx_err(-1, "profiler: the duration was not started");
	if (!mx_profile_records())
		return 0;
	end = mx_profile_now();
	if (mx_profile_aggregating())
		mx_stat_add(o->key, MX_STAT_DURATION, end - begin);
	record(o->kind, o->key, begin, end, 0);
	return 0;
}
PAWL_EXPORT(MXProfileDurationStop);

static struct object *counter_of(ProfileHandle handle)
{
	struct object *o = handle;

	if (o && o->kind == COUNTER)
		return o;
	mx_err(-1, "profiler: the handle is %s", o ? "no counter" : "NULL");
	return NULL;
}

static void counted(const struct object *o, u64 value)
{
	if (!mx_profile_records())
		return;
	if (mx_profile_aggregating())
		mx_stat_add(o->key, MX_STAT_COUNTER, value);
	record(COUNTER, o->key, mx_profile_now(), value, 0);
}

int MXProfileSetCounter(ProfileHandle counter_handle, uint64_t value)
{
	struct object *o = counter_of(counter_handle);

	if (!o)
		return -1;
	store_relaxed(&o->value, value);
	counted(o, value);
	return 0;
}
PAWL_EXPORT(MXProfileSetCounter);

int MXProfileAdjustCounter(ProfileHandle counter_handle, int64_t value)
{
	struct object *o = counter_of(counter_handle);

	if (!o)
		return -1;
	counted(o, fetch_add_relaxed(&o->value, (u64)value) + (u64)value);
	return 0;
}
PAWL_EXPORT(MXProfileAdjustCounter);

int MXProfileSetMarker(ProfileHandle domain, const char *instant_marker_name, const char *scope)
{
	static const struct { const char *name; char c; } scopes[] = {
		{ "global", 'g' }, { "process", 'p' }, { "thread", 't' }, { "task", 'p' },
		{ "marker", 'p' },
	};
	const struct object *d = domain_of(domain);
	ProfileHandle handle;
	struct object *o;
	size_t i;

	if (!d)
		return -1;
	for (i = 0; i < ARRAY_SIZE(scopes); i++)
		if (scope && !strcmp(scope, scopes[i].name))
			break;
	if (i == ARRAY_SIZE(scopes))
		return mx_err(-1, "profiler: %s is no scope of a marker", scope ? scope : "NULL");
	if (object_new(MARKER, d, ",instant_marker", instant_marker_name, &handle))
		return -1;
	o = handle;
	if (mx_profile_records()) {
		if (mx_profile_aggregating())
			mx_stat_add(o->key, MX_STAT_MARKER, 0);
		record(MARKER, o->key, mx_profile_now(), 0, scopes[i].c);
	}
	free(o);
	return 0;
}
PAWL_EXPORT(MXProfileSetMarker);

/* --- the trace --- */

static void json_string(FILE *f, const char *s, int n)
{
	const char *end = n < 0 ? s + strlen(s) : s + n;
	char text[NAME_ROOM];
	u32 c;

	fputc('"', f);
	while (s < end) {
		c = name_next(&s);
		/* Perfetto takes a quote behind a backslash for a part of the string. */
		if (c == '\\' && s >= end) {
			fputs("\\u005c", f);
			continue;
		}
		if (c == '"' || c == '\\')
			fputc('\\', f);
		fwrite(text, 1, name_put(text, c), f);
	}
	fputc('"', f);
}

static void event(FILE *f, const struct record *r, char phase, u64 time, u64 base)
{
	const char *sep = strchr(r->key, MX_STAT_SEP);
	const char *name = sep ? sep + 1 : r->key;

	fprintf(f, ",\n{\"ph\":\"%c\",\"cat\":", phase);
	json_string(f, r->key, sep ? (int)(sep - r->key) : -1);
	fputs(",\"name\":", f);
	json_string(f, name, -1);
	if (r->kind == TASK || r->kind == FRAME || r->kind == MARKER)
		fprintf(f, ",\"id\":%" PRIu64, r->tid);
	if (r->kind == MARKER)
		fprintf(f, ",\"s\":\"%c\"", r->scope);
	if (r->kind == COUNTER) {
		fputs(",\"args\":{", f);
		json_string(f, name, -1);
		fprintf(f, ":%" PRIu64 "}", r->end);
	}
	fprintf(f, ",\"pid\":1,\"tid\":%" PRIu64 ",\"ts\":%.3f}", r->tid,
		time > base ? (double)(time - base) / 1e3 : 0.0);
}

static void record_write(FILE *f, const struct record *r, u64 base)
{
	static const char begin[] = { [TASK - TASK] = 'b', [FRAME - TASK] = '(', [EVENT - TASK] = 'B',
				      [COUNTER - TASK] = 'C', [MARKER - TASK] = 'n' };
	static const char end[] = { [TASK - TASK] = 'e', [FRAME - TASK] = ')', [EVENT - TASK] = 'E' };

	event(f, r, begin[r->kind - TASK], r->begin, base);
	if (r->kind <= EVENT)
		event(f, r, end[r->kind - TASK], r->end, base);
}

/* Take the list, oldest first. */
static struct record *records_take(void)
{
	ck_stack_entry_t *i, *next, *list = NULL;
	u32 n = 0;

	i = ck_stack_batch_pop_upmc(&records);	/* COMPAT-O2 <-> COMPAT-O1 */
	for (; i; i = next, n++) {
		next = i->next;
		i->next = list;
		list = i;
	}
	fetch_add_relaxed(&nrecords, -n);
	return list ? record_of(list) : NULL;
}

static struct record *record_free(struct record *r)
{
	struct record *next = r->link.next ? record_of(r->link.next) : NULL;

	free(r);
	return next;
}

void mx_events_drop(void)
{
	struct record *r = records_take();

	while (r)
		r = record_free(r);
}

int mx_events_write(const char *path, u64 base)
{
	static const char tail[] = "\n]}\n";	/* of pawl_trace_write() */
	struct record *r = records_take();
	int rc = 0;
	FILE *f;

	if (!r)
		return 0;
	f = fopen(path, "r+");
	if (!f || fseek(f, -(long)(sizeof(tail) - 1), SEEK_END))
		rc = -errno;
	for (; r; r = record_free(r))
		if (!rc)
			record_write(f, r, base);
	if (!rc)
		fputs(tail, f);
	if (f && fclose(f) && !rc)
		rc = -errno;
	return rc ? mx_err(rc, "profiler: %s: %s", path, strerror(-rc)) : 0;
}
