// SPDX-License-Identifier: Apache-2.0
/* core/trace.c: the last events of every thread as Chrome trace JSON. */
#include "util.h"
#include <sys/stat.h>
#include <base/clock.h>
#include <core/engine.h>

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
		OK(push_named(e, nothing, &v, "odd \"name\"\\\n\x7f\xc3\xa9\xff\xed\xa0\x80" "\xc2\x9b"));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_trace_stop(e));
		OK(push_named(e, nothing, &v, "too late"));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		text = written(e);
		check_json(text);
		ck_assert_uint_eq(times(text, "\"name\":\"conv\""), 10);
		ck_assert_uint_eq(times(text, "\"name\":\"batched\""), 2);
		ck_assert_uint_eq(times(text, "\"ph\":\"X\""), 13);
		ck_assert_uint_eq(times(text, "odd \\\"name\\\"\\\\\\u000a\\u007f\xc3\xa9"
				       "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\\u009b\""), 1);
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
			ck_assert_uint_eq(times(text, what), 3);
		}
		ck_assert_uint_eq(times(text, "\"ph\":\"X\""), 3 * N + 1);
		ck_assert_uint_eq(times(text, "\"queued_us\""), 3 * (N + 1) + 1);
		/* A launch is no body, and overlaps with others. */
		ck_assert_uint_eq(times(text, "\"ph\":\"b\",\"cat\":\"launch\""), 3);
		ck_assert_uint_eq(times(text, "\"ph\":\"e\",\"cat\":\"launch\""), 3);
		/* Inside a launch, and from one to the next. */
		ck_assert_uint_eq(times(text, "\"ph\":\"s\""), 3 * (N - 1) + 2);
		ck_assert_uint_eq(times(text, "\"arrows_missing\":0"), 1);
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

static int completes(struct pawl_run *run, void *arg)
{
	pawl_token_t *token = arg;

	return pawl_complete(run->engine, *token, 0, NULL);
}

static void keeps_token(struct pawl_run *run, void *arg)
{
	*(pawl_token_t *)arg = run->token;
}

/* They overlap, and each is over when it was completed. */
START_TEST(test_asynchronous_ops_are_not_slices)
{
	enum { N = 5 };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[N], w[N];
	pawl_token_t token[N];
	char *text, key[64];
	u32 i;

	OK(pawl_trace_start(e, 1000));
	for (i = 0; i < N; i++) {
		struct pawl_op op = PAWL_OP_INIT;

		v[i] = var_new(e);
		op.async_fn = keeps_token;
		op.arg = &token[i];
		op.writes = &v[i];
		op.nwrites = 1;
		op.name = "io";
		OK(pawl_push(e, &op));
		OK(push_read(e, nothing, NULL, v[i]));
	}
	while (pawl_run_one(e) == 1)
		;
	for (i = 0; i < N; i++) {
		struct pawl_op op = op_write(completes, &token[i], &w[i]);

		w[i] = var_new(e);
		op.name = "completes";
		OK(pawl_push(e, &op));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_trace_stop(e));
	text = written(e);
	check_json(text);
	ck_assert_uint_eq(times(text, "\"ph\":\"b\",\"cat\":\"async\""), N);
	ck_assert_uint_eq(times(text, "\"ph\":\"e\",\"cat\":\"async\""), N);
	ck_assert_uint_eq(times(text, "\"name\":\"start io\""), N);
	ck_assert_uint_eq(times(text, "\"ph\":\"X\",\"cat\":\"op\""), 2 * N);
	/* From the call of its function. */
	ck_assert_uint_eq(times(text, "\"ph\":\"s\""), N);
	for (i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "\"cat\":\"async\",\"id\":%u,", 2 * i);
		ck_assert_uint_eq(times(text, key), 2);
	}
	free(text);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A program whose arrows are known: ops of one thread, in the order of their pushes. */
struct told {
	char name[16];
	u64 begin, end;		/* of its body */
	u32 shown;
};

struct teller {
	struct told *op;
	u8 *arrow;		/* [from * n + to]: how many are due */
	bool *over;		/* [from * n + to]: two writes with nothing but reads between them */
	u32 n, due;
};

static int tells(struct pawl_run *run, void *arg)
{
	struct told *o = arg;

	o->begin = clock_ns();
	o->end = clock_ns();
	return 0;
}

static void due(struct teller *t, u32 from, u32 to)
{
	t->arrow[from * t->n + to]++;
	t->due++;
}

/* Push ops on vars that come and go, so that the same indexes mean other vars. */
static void tell(struct pawl_engine *e, struct teller *t, u64 seed, bool fast)
{
	enum { VARS = 20 };
	struct { pawl_var_t v; u32 write, nreads; u32 *reads; } var[VARS];
	u32 i, j, k, n;

	for (i = 0; i < VARS; i++) {
		var[i].v = var_new(e);
		var[i].write = var[i].nreads = 0;
		var[i].reads = calloc(t->n, sizeof(u32));
	}
	for (i = 0; i < t->n; i++) {
		pawl_var_t r[VARS], w[VARS];
		struct pawl_op op = op_of_fn(tells, &t->op[i]);
		bool all = rnd(&seed) % 16 == 0;

		snprintf(t->op[i].name, sizeof(t->op[i].name), "op %u", i);
		for (j = 0; j < VARS; j++) {
			if (!all && rnd(&seed) % 8)
				continue;
			if (rnd(&seed) % 3) {
				if (var[j].write)
					due(t, var[j].write - 1, i);
				var[j].reads[var[j].nreads++] = i;
				r[op.nreads++] = var[j].v;
				continue;
			}
			for (k = 0; k < var[j].nreads; k++)
				due(t, var[j].reads[k], i);
			if (var[j].write)
				t->over[(var[j].write - 1) * t->n + i] = true;
			if (!var[j].nreads && var[j].write)
				due(t, var[j].write - 1, i);
			var[j].write = i + 1;
			var[j].nreads = 0;
			w[op.nwrites++] = var[j].v;
		}
		op.reads = r;
		op.writes = w;
		op.name = t->op[i].name;
		OK(pawl_push(e, &op));
		if (fast && rnd(&seed) % 4)
			continue;
		n = (u32)(rnd(&seed) % VARS);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_var_delete(e, var[n].v, NULL, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		var[n].v = var_new(e);
		var[n].write = var[n].nreads = 0;
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < VARS; i++)
		free(var[i].reads);
}

/* Compare the trace with what happened.  Returns the number of arrows. */
static u32 check_told(struct teller *t, const char *text, u64 base, bool lost)
{
	const char *p;
	u32 arrows = 0, i;

	for (p = text; (p = strstr(p, "\"ph\":\"X\"")); p++) {
		const char *name = strstr(p, "\"name\":\"op ");
		unsigned int tid;
		double ts, dur;
		struct told *o;

		if (!name || name > strchr(p, '\n'))
			continue;	/* the delete of a var */
		ck_assert_int_eq(sscanf(name, "\"name\":\"op %u\",\"pid\":1,\"tid\":%u,\"ts\":%lf,"
					"\"dur\":%lf", &i, &tid, &ts, &dur), 4);
		ck_assert_uint_lt(i, t->n);
		o = &t->op[i];
		ck_assert_uint_eq(o->shown++, 0);
		/* Two clocks, which differ by less than this. */
		ck_assert(ts * 1e3 <= (double)(o->begin - base) + 1e6);
		ck_assert((ts + dur) * 1e3 >= (double)(o->end - base) - 1e6);
	}
	/* An arrow is known by the times of its slices: each thread begins one at a time. */
	for (p = text; (p = strstr(p, "\"ph\":\"s\"")); p++) {
		unsigned int id, tid, tid2, from = ~0u, to = ~0u;
		char ts[32], ts2[32], key[96];
		const char *q;

		ck_assert_int_eq(sscanf(p, "\"ph\":\"s\",\"cat\":\"dep\",\"name\":\"dep\",\"id\":%u,"
					"\"pid\":1,\"tid\":%u,\"ts\":%31[0-9.]},\n{\"ph\":\"f\",\"bp\":"
					"\"e\",\"cat\":\"dep\",\"name\":\"dep\",\"id\":%*u,\"pid\":1,"
					"\"tid\":%u,\"ts\":%31[0-9.]}", &id, &tid, ts, &tid2, ts2), 5);
		snprintf(key, sizeof(key), "\",\"pid\":1,\"tid\":%u,\"ts\":%s,\"dur\"", tid, ts);
		q = strstr(text, key);
		ck_assert_ptr_nonnull(q);
		while (q[-1] != '"')
			q--;
		arrows += sscanf(q, "op %u", &from) == 1;
		snprintf(key, sizeof(key), "\",\"pid\":1,\"tid\":%u,\"ts\":%s,\"dur\"", tid2, ts2);
		q = strstr(text, key);
		ck_assert_ptr_nonnull(q);
		while (q[-1] != '"')
			q--;
		if (sscanf(q, "op %u", &to) != 1) {
			arrows -= from != ~0u;
			continue;
		}
		if (from == ~0u)
			continue;
		/* Of reads between two writes that were lost nothing tells. */
		if (lost && !t->arrow[from * t->n + to] && t->over[from * t->n + to])
			continue;
		ck_assert_msg(t->arrow[from * t->n + to]--, "a false arrow from %u to %u", from, to);
	}
	return arrows;
}

/* All of it if the rings have room, and nothing else if they wrapped. */
START_TEST(test_a_trace_tells_what_happened)
{
	u32 mode, i, arrows, shown;

	for (mode = 0; mode < 4; mode++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, mode ? 2 : 0);
		struct teller t = { .n = 300 };
		unsigned long long base, lost, incomplete, missing;
		char *text, key[64];

		t.op = calloc(t.n, sizeof(*t.op));
		t.arrow = calloc((size_t)t.n * t.n, 1);
		t.over = calloc((size_t)t.n * t.n, 1);
		OK(pawl_trace_start(e, mode & 2 ? 128 : 16384));
		tell(e, &t, mode + 1, mode);
		OK(pawl_trace_stop(e));
		text = written(e);
		check_json(text);
		ck_assert_int_eq(sscanf(text, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"base_ns\":"
					"\"%llu\",\"events_lost\":%llu,\"ops_incomplete\":%llu,"
					"\"arrows_missing\":%llu}", &base, &lost, &incomplete, &missing), 4);
		arrows = check_told(&t, text, base, lost);
		for (i = 0, shown = 0; i < t.n; i++)
			shown += t.op[i].shown;
		if (mode & 2) {
			ck_assert_uint_gt(lost, 0);
			ck_assert_uint_lt(shown, t.n);
			snprintf(key, sizeof(key), "\"pawl, %llu events lost\"", lost);
			ck_assert_uint_eq(times(text, key), 1);
		} else {
			ck_assert(!lost && !incomplete && !missing);
			ck_assert_uint_eq(shown, t.n);
			ck_assert_uint_eq(arrows, t.due);
		}
		free(text);
		free(t.op);
		free(t.arrow);
		free(t.over);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* An op that did not end, one that did not begin, and one that was pushed before. */
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
	gate_write(e, &g, v);
	for (i = 0; i < 2; i++)
		OK(push_named(e, nothing, &v, "behind"));
	OK(pawl_trace_stop(e));
	text = written(e);
	check_json(text);
	ck_assert_uint_eq(times(text, "\"whole\""), 1);
	ck_assert_uint_eq(times(text, "\"ph\":\"X\""), 1);
	/* No viewer could draw an arrow to a slice that is not there. */
	ck_assert_uint_eq(times(text, "\"ph\":\"s\""), 0);
	ck_assert_uint_eq(times(text, "\"events_lost\":0,\"ops_incomplete\":4,\"arrows_missing\":1}"), 1);
	free(text);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
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
	/* Two records each, of which one has the begin and the end, and the last push: 64. */
	ck_assert_uint_eq(times(text, "\"old\""), 21);
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
				"\"%llu\"", &base), 1);
	ck_assert(before <= base && base <= after);
	a = slice_of(text, "one");
	b = slice_of(text, "op");
	ck_assert_uint_eq(a.order, 0);
	ck_assert_uint_eq(b.order, 1);
	/* No thread of the program has these numbers, and no process. */
	ck_assert_uint_gt(a.tid, 1u << 22);
	ck_assert_uint_eq(b.tid, a.tid + 1);
	ck_assert(a.dur >= 2000 && b.dur >= 2000 && a.queued >= 2000);
	ck_assert(b.queued >= 4000 && b.queued >= a.dur);
	ck_assert(a.queued <= a.ts && b.queued <= b.ts && b.ts >= a.ts + a.dur);
	ck_assert(b.ts + b.dur <= (double)all / 1e3);
	/* The arrow goes from slice to slice. */
	snprintf(key, sizeof(key), "\"ph\":\"s\",\"cat\":\"dep\",\"name\":\"dep\",\"id\":1,"
		 "\"pid\":1,\"tid\":%u,\"ts\":%.3f}", a.tid, a.ts);
	ck_assert_uint_eq(times(text, key), 1);
	snprintf(key, sizeof(key), "\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"dep\",\"name\":\"dep\","
		 "\"id\":1,\"pid\":1,\"tid\":%u,\"ts\":%.3f}", b.tid, b.ts);
	ck_assert_uint_eq(times(text, key), 1);
	ck_assert_uint_eq(times(text, "\"name\":\"pawl thread "), 2);
	snprintf(key, sizeof(key), "\"tid\":%u,\"name\":\"thread_name\",\"args\":"
		 "{\"name\":\"pawl thread 1\"}", b.tid);
	ck_assert_uint_eq(times(text, key), 1);
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

SUITE("trace", test_events, test_bodies_of_a_graph, test_arrows, test_asynchronous_ops_are_not_slices,
      test_a_trace_tells_what_happened, test_ops_that_are_there_in_part, test_refused,
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
