// SPDX-License-Identifier: Apache-2.0
/* core/trace.c: the last events of every thread as Chrome trace JSON. */
#include "util.h"
#include <sys/stat.h>
#include <base/clock.h>
#include <core/engine.h>
#include <core/trace.h>

#ifdef CONFIG_TRACE

static char path[] = "/tmp/pawl-test-trace-XXXXXX";

static char *slurp(void)
{
	FILE *f = fopen(path, "r");
	char *text;
	long n;

	ck_assert_ptr_nonnull(f);
	fseek(f, 0, SEEK_END);
	n = ftell(f);
	rewind(f);
	text = calloc((size_t)n + 1, 1);
	ck_assert_uint_eq(fread(text, 1, (size_t)n, f), (size_t)n);
	fclose(f);
	return text;
}

static u32 times(const char *text, const char *what)
{
	u32 n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

/* Balanced, all strings closed, one top-level object: enough of JSON to be read. */
static void check_json(const char *s)
{
	char stack[64];
	int depth = 0, tops = 0;
	bool string = false;

	for (; *s; s++) {
		if (string) {
			if (*s == '\\')
				s++;
			else if (*s == '"')
				string = false;
			ck_assert_int_ge((unsigned char)*s, 0x20);
			continue;
		}
		switch (*s) {
		case '"':
			string = true;
			break;
		case '{':
		case '[':
			ck_assert_int_lt(depth, 60);
			tops += !depth;
			stack[depth++] = *s == '{' ? '}' : ']';
			break;
		case '}':
		case ']':
			ck_assert_int_gt(depth, 0);
			ck_assert_int_eq(stack[--depth], *s);
			break;
		case ',':
			ck_assert(s[1] && !strchr("]},", s[1]));
			break;
		}
	}
	ck_assert_int_eq(depth, 0);
	ck_assert_int_eq(tops, 1);
	ck_assert(!string);
}

static void temp(void)
{
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

/* The trace as it is written to a file. */
static char *written(struct pawl_engine *e)
{
	char *text;

	temp();
	OK(pawl_trace_write(e, path));
	text = slurp();
	unlink(path);
	return text;
}

static int push_named(struct pawl_engine *e, pawl_fn fn, const pawl_var_t *v, const char *name)
{
	struct pawl_op op = op_write(fn, NULL, v);

	op.name = name;
	return pawl_push(e, &op);
}

START_TEST(test_events)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_var_t v = var_new(e);
		struct pawl_op batch[2];
		char *text;
		int i;

		OK(push_named(e, nothing, &v, "too early"));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_trace_start(e, 1000));
		for (i = 0; i < 10; i++)
			OK(push_named(e, nothing, &v, "conv"));
		for (i = 0; i < 2; i++) {
			batch[i] = op_write(nothing, NULL, &v);
			batch[i].name = "batched";
		}
		OK(pawl_push_batch(e, batch, 2));
		OK(push_named(e, nothing, &v, "odd \"name\"\\\n\xc3\xa9"));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_trace_stop(e));
		OK(push_named(e, nothing, &v, "too late"));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		text = written(e);
		check_json(text);
		ck_assert_uint_eq(times(text, "\"name\":\"conv\""), 10);
		ck_assert_uint_eq(times(text, "\"name\":\"batched\""), 2);
		ck_assert_uint_eq(times(text, "\"ph\":\"X\""), 13);
		ck_assert_uint_eq(times(text, "odd \\\"name\\\"\\\\\\u000a\xc3\xa9\""), 1);
		ck_assert_uint_eq(times(text, "too"), 0);
		/* A chain of thirteen: twelve arrows, two ends each. */
		ck_assert_uint_eq(times(text, "\"ph\":\"s\""), 12);
		ck_assert_uint_eq(times(text, "\"ph\":\"f\""), 12);
		free(text);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* Each body of a graph, along a chain and beside others, from its push to its end. */
START_TEST(test_bodies_of_a_graph)
{
	enum { N = 6 };
	static const char *const names[N] = { "n0", "n1", "n2", "n3", "n4", "n5" };
	int chain;
	u32 i;

	for (chain = 0; chain < 2; chain++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
		pawl_var_t v = var_new(e), w = var_new(e);
		struct pawl_op op[N];
		char *text, what[32];
		pawl_graph_t g;

		for (i = 0; i < N; i++) {
			op[i] = chain || !i ? op_write(nothing, NULL, &v) : op_read(nothing, NULL, &v);
			op[i].name = names[i];
		}
		OK(pawl_graph_create(e, op, N, 0, &g));
		OK(pawl_trace_start(e, 1000));
		OK(push_named(e, nothing, &w, "before"));
		for (i = 0; i < 3; i++)
			OK(pawl_graph_push(e, g, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_trace_stop(e));
		text = written(e);
		check_json(text);
		for (i = 0; i < N; i++) {
			snprintf(what, sizeof(what), "\"name\":\"%s\"", names[i]);
			/* A launch has the name of its first op. */
			ck_assert_uint_eq(times(text, what), i ? 3 : 6);
		}
		ck_assert_uint_eq(times(text, "\"ph\":\"X\""), 3 * (N + 1) + 1);
		ck_assert_uint_eq(times(text, "\"queued_us\""), 3 * (N + 1) + 1);
		free(text);
		OK(pawl_graph_delete(e, g));
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* Arrows along the data: write to reads, reads to the next write. */
START_TEST(test_arrows)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	char *text;

	OK(pawl_trace_start(e, 100));
	OK(push_write(e, nothing, NULL, v));
	OK(push_read(e, nothing, NULL, v));
	OK(push_read(e, nothing, NULL, v));
	OK(push_write(e, nothing, NULL, v));
	OK(push_write(e, nothing, NULL, w));	/* apart */
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_trace_stop(e));
	text = written(e);
	check_json(text);
	ck_assert_uint_eq(times(text, "\"ph\":\"X\""), 5);
	ck_assert_uint_eq(times(text, "\"ph\":\"s\""), 4);
	free(text);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Of the first vars of an op, and of the first readers of a version. */
START_TEST(test_arrows_are_limited)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[9];
	struct pawl_op op = op_of_fn(nothing, NULL);
	char *text;
	u32 i;

	for (i = 0; i < 9; i++)
		v[i] = var_new(e);
	op.writes = v;
	op.nwrites = 9;
	OK(pawl_trace_start(e, 100));
	OK(pawl_push(e, &op));
	OK(pawl_push(e, &op));		/* 6 arrows */
	for (i = 0; i < 11; i++)
		OK(push_read(e, nothing, NULL, v[0]));	/* 11 */
	OK(push_write(e, nothing, NULL, v[0]));		/* 8 */
	OK(push_write(e, nothing, NULL, v[0]));		/* 1 */
	OK(push_read(e, nothing, NULL, v[8]));		/* none */
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_trace_stop(e));
	text = written(e);
	check_json(text);
	ck_assert_uint_eq(times(text, "\"ph\":\"s\""), 6 + 11 + 8 + 1);
	ck_assert_uint_eq(times(text, "\"ph\":\"f\""), 6 + 11 + 8 + 1);
	free(text);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* An op that did not end, one that did not begin, and some whose push is not in the rings. */
START_TEST(test_ops_that_are_there_in_part)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct gate g;
	char *text;
	u32 i;

	gate_write(e, &g, w);
	OK(pawl_trace_start(e, 1000));
	gate_open(&g);		/* of an op that was pushed before */
	OK(push_named(e, nothing, &v, "whole"));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 1; i <= pool_carved(e->pool[POOL_OP]); i++) {
		trace_event(thread_get(e), TRACE_BEGIN, i, "late");
		trace_event(thread_get(e), TRACE_END, i, "late");
	}
	gate_write(e, &g, v);
	for (i = 0; i < 2; i++)
		OK(push_named(e, nothing, &v, "behind"));
	OK(pawl_trace_stop(e));
	text = written(e);
	check_json(text);
	ck_assert_uint_eq(times(text, "\"whole\""), 1);
	ck_assert_uint_eq(times(text, "\"ph\":\"X\""), 1);
	ck_assert_uint_eq(times(text, "\"ph\":\"s\""), 1);	/* to the gate */
	free(text);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The ring has the end of an op, but no longer its begin: it has no slice, and so no arrow. */
START_TEST(test_an_op_whose_begin_is_overwritten)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	char *text;
	u32 i;

	OK(pawl_trace_start(e, 4096));
	OK(push_named(e, nothing, &v, "half"));
	for (i = 1; i <= pool_carved(e->pool[POOL_OP]); i++)
		trace_event(thread_get(e), TRACE_END, i, "half");
	OK(push_named(e, nothing, &v, "whole"));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_trace_stop(e));
	text = written(e);
	check_json(text);
	ck_assert_uint_eq(times(text, "\"half\""), 0);
	ck_assert_uint_eq(times(text, "\"whole\""), 1);
	ck_assert_uint_eq(times(text, "\"ph\":\"X\""), 1);
	ck_assert_uint_eq(times(text, "\"cat\":\"dep\""), 0);
	free(text);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_refused)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	char *text;

	FAILS(pawl_trace_start(e, 0), -EINVAL, "trace_start", "0");
	FAILS(pawl_trace_start(e, UINT_MAX), -EINVAL, "trace_start");
	OK(pawl_trace_stop(e));
	OK(pawl_trace_start(e, 100));
	OK(push_named(e, nothing, &v, "before"));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	/* Refused, and without effect on what was recorded. */
	FAILS(pawl_trace_start(e, 100), -EALREADY, "trace_start");
	ck_assert_int_lt(pawl_trace_write(e, "/tmp/x"), 0);
	OK(pawl_trace_stop(e));
	FAILS(pawl_trace_write(e, NULL), -EINVAL, "trace_write", "path");
	FAILS(pawl_trace_write(e, "/no/such/folder/trace"), -ENOENT, "trace_write",
	      "/no/such/folder");
	text = written(e);
	ck_assert_uint_eq(times(text, "\"before\""), 1);
	free(text);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Nothing recorded: still a file that can be read. */
START_TEST(test_empty)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	char *text;

	text = written(e);
	check_json(text);
	ck_assert_uint_eq(times(text, "\"ph\":\"X\""), 0);
	free(text);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* More events than the ring holds: the last ones are there. */
START_TEST(test_ring_wraps)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	char *text;
	int i;

	OK(pawl_trace_start(e, 64));
	for (i = 0; i < 1000; i++) {
		OK(push_named(e, nothing, &v, "old"));
		pawl_run_one(e);
	}
	for (i = 0; i < 10; i++) {
		OK(push_named(e, nothing, &v, "new"));
		pawl_run_one(e);
	}
	OK(push_named(e, nothing, &v, "waits"));
	OK(pawl_trace_stop(e));
	text = written(e);
	check_json(text);
	ck_assert_uint_eq(times(text, "\"new\""), 10);
	/* Three events each, and the last push: 64. */
	ck_assert_uint_eq(times(text, "\"old\""), 11);
	ck_assert_uint_eq(times(text, "\"waits\""), 0);
	free(text);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A second trace has what it was told to keep, and nothing of the first. */
START_TEST(test_again)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	char *text;
	int i;

	OK(pawl_trace_start(e, 10));
	OK(push_named(e, nothing, &v, "first"));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_trace_stop(e));
	OK(pawl_trace_start(e, 3000));
	for (i = 0; i < 900; i++)
		OK(push_named(e, nothing, &v, "second"));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_trace_stop(e));
	text = written(e);
	check_json(text);
	ck_assert_uint_eq(times(text, "\"first\""), 0);
	ck_assert_uint_eq(times(text, "\"name\":\"second\""), 900);
	free(text);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Started and stopped while threads push and workers run. */
struct busy {
	struct pawl_engine *e;
	pawl_var_t v[4];
	u32 stop;	/* A */
	u32 ids;	/* A */
};

static void *busy_pusher(void *arg)
{
	struct busy *b = arg;
	u64 seed = fetch_add_relaxed(&b->ids, 1);

	while (!load_acquire(&b->stop)) {
		struct pawl_op op = op_of_fn(nothing, NULL);

		op.writes = b->v;
		op.nwrites = 1 + (u32)(rnd(&seed) % 4);
		op.name = "busy";
		MUST(!pawl_push(b->e, &op));
		if (rnd(&seed) % 64 == 0)
			MUST(!pawl_wait_readable(b->e, b->v[0], SOON_NS, NULL));
	}
	return NULL;
}

START_TEST(test_under_load)
{
	struct busy b = { .e = engine(PAWL_PER_DEVICE, 2) };
	pthread_t t[2];
	char *text;
	int i;

	for (i = 0; i < 4; i++)
		b.v[i] = var_new(b.e);
	for (i = 0; i < 2; i++)
		t[i] = spawn(busy_pusher, &b);
	for (i = 0; i < 20; i++) {
		OK(pawl_trace_start(b.e, 256));
		nap_us(1000);
		OK(pawl_trace_stop(b.e));
	}
	store_release(&b.stop, 1);
	for (i = 0; i < 2; i++)
		join(t[i]);
	OK(pawl_wait_all(b.e, SOON_NS, NULL));
	text = written(b.e);
	check_json(text);
	free(text);
	OK(pawl_engine_destroy(b.e));
}
END_TEST

static void *writes(void *e)
{
	MUST(!pawl_trace_write(e, path));
	return NULL;
}

/* The write is in progress until its file, a pipe, has a reader. */
START_TEST(test_a_stop_during_a_write_does_not_end_the_write)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	char text[8192];
	pthread_t t;
	FILE *f;

	OK(pawl_trace_start(e, 100));
	OK(push_named(e, nothing, &v, "kept"));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_trace_stop(e));
	temp();
	unlink(path);
	MUST(!mkfifo(path, 0600));
	t = spawn(writes, e);
	ck_assert(soon(load_relaxed(&e->tracing)));
	OK(pawl_trace_stop(e));
	FAILS(pawl_trace_start(e, 100), -EALREADY, "trace_start", "being written");
	FAILS(pawl_trace_write(e, "/dev/null"), -EBUSY, "trace_write");
	OK(push_named(e, nothing, &v, "late"));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	fclose(f);
	join(t);
	unlink(path);
	check_json(text);
	ck_assert_uint_eq(times(text, "\"kept\""), 1);
	ck_assert_uint_eq(times(text, "\"late\""), 0);
	OK(pawl_trace_start(e, 100));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- the numbers --- */

static int naps(struct pawl_run *run, void *arg)
{
	nap_us(2000);
	return 0;
}

static void *runs_one(void *e)
{
	MUST(pawl_run_one(e) == 1);
	return NULL;
}

struct slice {
	unsigned int tid;
	double ts, dur, queued;
	unsigned long long order;
};

static struct slice slice_of(const char *text, const char *name)
{
	struct slice s;
	char key[64];
	const char *p;

	snprintf(key, sizeof(key), "\"name\":\"%s\",\"pid\":1,", name);
	p = strstr(text, key);
	ck_assert_msg(p != NULL, "no %s in %s", key, text);
	ck_assert_int_eq(sscanf(p + strlen(key), "\"tid\":%u,\"ts\":%lf,\"dur\":%lf,\"args\":"
				"{\"queued_us\":%lf,\"order\":%llu}}", &s.tid, &s.ts, &s.dur,
				&s.queued, &s.order), 5);
	return s;
}

/* Two ops of a var, the second of which runs on another thread. */
START_TEST(test_times_threads_and_order)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct slice a, b;
	unsigned long long base;
	u64 before, after, all;
	char *text, key[128];

	OK(pawl_thread_attach(e));
	before = clock_ns();
	OK(pawl_trace_start(e, 100));
	after = clock_ns();
	OK(push_named(e, naps, &v, "one"));
	OK(push_named(e, naps, &v, NULL));
	nap_us(2000);
	ck_assert_int_eq(pawl_run_one(e), 1);
	join(spawn(runs_one, e));
	all = clock_ns() - before;
	OK(pawl_trace_stop(e));
	text = written(e);
	check_json(text);
	ck_assert_int_eq(sscanf(text, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"base_ns\":"
				"\"%llu\"}", &base), 1);
	ck_assert(before <= base && base <= after);
	a = slice_of(text, "one");
	b = slice_of(text, "op");
	ck_assert_uint_eq(a.order, 0);
	ck_assert_uint_eq(b.order, 1);
	ck_assert_uint_eq(a.tid, 0);
	ck_assert_uint_eq(b.tid, 1);
	ck_assert(a.dur >= 2000 && b.dur >= 2000 && a.queued >= 2000);
	ck_assert(b.queued >= 4000 && b.queued >= a.dur);
	ck_assert(a.queued <= a.ts && b.queued <= b.ts && b.ts >= a.ts + a.dur);
	ck_assert(b.ts + b.dur <= (double)all / 1e3);
	/* The arrow goes from slice to slice. */
	snprintf(key, sizeof(key), "\"ph\":\"s\",\"cat\":\"dep\",\"name\":\"dep\",\"id\":1,"
		 "\"pid\":1,\"tid\":0,\"ts\":%.3f}", a.ts);
	ck_assert_uint_eq(times(text, key), 1);
	snprintf(key, sizeof(key), "\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"dep\",\"name\":\"dep\","
		 "\"id\":1,\"pid\":1,\"tid\":1,\"ts\":%.3f}", b.ts);
	ck_assert_uint_eq(times(text, key), 1);
	ck_assert_uint_eq(times(text, "\"name\":\"pawl thread "), 2);
	ck_assert_uint_eq(times(text, "\"tid\":1,\"name\":\"thread_name\",\"args\":"
				"{\"name\":\"pawl thread 1\"}"), 1);
	free(text);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A write reads the rings and leaves them as they are; a full disk is reported. */
START_TEST(test_a_trace_is_written_as_often_as_asked)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	char *one, *two;

	OK(pawl_trace_start(e, 1u << 24));	/* the most; no event, no memory */
	OK(pawl_trace_stop(e));
	FAILS(pawl_trace_start(e, (1u << 24) + 1), -EINVAL, "trace_start");
	OK(pawl_trace_start(e, 100));
	OK(push_named(e, nothing, &v, "kept"));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_trace_stop(e));
	one = written(e);
	if (!access("/dev/full", W_OK))
		FAILS(pawl_trace_write(e, "/dev/full"), -ENOSPC, "trace_write", "/dev/full");
	two = written(e);
	ck_assert_str_eq(one, two);
	free(one);
	free(two);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Neither a second trace, nor a write that fails, nor the end of the engine. */
START_TEST(test_traces_leave_no_memory)
{
	size_t before;
	u32 i, k;

	temp();
	/* The allocator keeps some memory itself, but not each time. */
	for (i = 0; ; i++) {
		struct pawl_engine *e;
		pawl_var_t v;

		MUST(i < 100);
		before = heap_used();
		e = engine(PAWL_PER_DEVICE, 0);
		v = var_new(e);
		for (k = 0; k < 3; k++) {
			OK(pawl_trace_start(e, 1000));
			OK(push_named(e, nothing, &v, "op"));
			OK(pawl_wait_all(e, SOON_NS, NULL));
			OK(pawl_trace_stop(e));
		}
		OK(pawl_trace_write(e, path));
		FAILS(pawl_trace_write(e, "/no/such/folder/trace"), -ENOENT, "trace_write");
		OK(pawl_engine_destroy(e));
		if (i && heap_used() <= before)
			break;
	}
	unlink(path);
}
END_TEST

SUITE("trace", test_events, test_bodies_of_a_graph, test_arrows, test_arrows_are_limited,
      test_ops_that_are_there_in_part, test_an_op_whose_begin_is_overwritten, test_refused,
      test_empty, test_ring_wraps, test_again, test_under_load,
      test_a_stop_during_a_write_does_not_end_the_write, test_times_threads_and_order,
      test_a_trace_is_written_as_often_as_asked, test_traces_leave_no_memory)

#else

START_TEST(test_not_there)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);

	ck_assert_int_eq(pawl_trace_start(e, 10), -ENOSYS);
	ck_assert_int_eq(pawl_trace_stop(e), -ENOSYS);
	ck_assert_int_eq(pawl_trace_write(e, "/tmp/x"), -ENOSYS);
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("trace", test_not_there)

#endif
