// SPDX-License-Identifier: Apache-2.0
/*
 * Fault points of the engine; see fault.c.
 */
#include "fault.h"
#include <fcntl.h>

const char fault_program[] = "fault_points";

static void async_body(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&((struct world *)arg)->ran, 1);
	CHECK(!pawl_complete(run->engine, run->token, 0, NULL), "%s: complete: %s", where,
	      pawl_error_text());
}

static void released(void *arg, int status)
{
	fetch_add_relaxed(&((struct world *)arg)->released, 1);
}

/* --- scenarios --- */

static void create_kind(int kind, bool prefault)
{
	struct world w = { 0 };
	int cpus[1] = { 0 };

	cfg.kind = kind;
	cfg.prefault = prefault;
	cfg.cpus = cpus;
	cfg.ncpus = 1;
	if (prefault) {
		cfg.max_ops = 256;
		cfg.max_vars = 256;
	}
	arm(ALL);
	if (TRY(pawl_engine_create(&cfg, &w.e))) {
		CHECK(!w.e, "%s: refused, and an engine", where);
		disarm();
		CHECK(!pawl_engine_create(&cfg, &w.e), "%s: create afterwards: %s", where,
		      pawl_error_text());
	}
	disarm();
	world_check(&w);
}

static void sc_create(void)
{
	create_kind(PAWL_PER_DEVICE, false);
}

static void sc_create_pooled(void)
{
	create_kind(PAWL_POOLED, false);
}

static void sc_create_naive(void)
{
	create_kind(PAWL_NAIVE, false);
}

static void sc_create_prefault(void)
{
	create_kind(PAWL_PER_DEVICE, true);
}

/* What the environment wants of an engine and cannot have does not refuse the engine. */
static void sc_environment(void)
{
	char folder[80], trace[80];

	snprintf(folder, sizeof(folder), "%s.d", path);
	snprintf(trace, sizeof(trace), "%s.json", path);
	CHECK(!setenv("PAWL_PUBLISH", folder, 1) && !setenv("PAWL_TRACE", trace, 1), "%s: setenv", where);
	create_kind(PAWL_PER_DEVICE, false);
	rmdir(folder);
	unlink(trace);
}

/*
 * Something that the process needs once and that was refused is requested again by the next
 * engine.
 */
static void sc_key_again(void)
{
	struct world w = { 0 };

	arm(1u << THREAD);
	if (TRY(pawl_engine_create(&cfg, &w.e))) {
		disarm();
		CHECK(!pawl_engine_create(&cfg, &w.e), "%s: create again: %s", where,
		      pawl_error_text());
	}
	disarm();
	world_check(&w);
}

/* The whole life of an engine, with faults throughout. */
static void sc_life(void)
{
	struct world w = { 0 };
	struct pawl_op op;

	arm(ALL);
	if (TRY(pawl_engine_create(&cfg, &w.e))) {
		disarm();
		world_make(&w);
		world_check(&w);
		return;
	}
	world_vars(&w, 4);
	if (w.nv == 4) {
		op = op_on(&w, 0, 2, 2);
		op.flags |= PAWL_OP_COST;
		op.cost = 1;
		push(&w, &op);
		TRY(pawl_wait_readable(w.e, w.v[3], -1, NULL));
	}
	TRY(pawl_wait_all(w.e, -1, NULL));
	if (!TRY(pawl_engine_destroy(w.e))) {
		CHECK(w.ran == w.accepted, "%s: %u accepted, %u ran", where, w.accepted, w.ran);
		disarm();
		return;
	}
	disarm();
	world_check(&w);
}

static void sc_var(void)
{
	struct world w = { 0 };
	pawl_var_t v;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 3000; i++)
		if (!TRY(pawl_var_create(w.e, &v)) && i % 2 &&
		    !TRY(pawl_var_delete(w.e, v, body, &w)))
			w.accepted++;
	disarm();
	world_check(&w);
}

static void sc_push(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 2000; i++) {
		op = op_on(&w, i % 16, i % 3, 1 + i % 2);
		op.priority = i % 10 ? 0 : (int)i;
		op.prop = (u16)(i % 8 == 5 ? 0 : i % 8);
		op.release = i % 5 ? NULL : released;
		push(&w, &op);
	}
	disarm();
	world_check(&w);
}

/* Ops that wait for each other: nothing is reused before it is complete. */
static void sc_pile(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	struct gate g;
	u32 i;

	world_make(&w);
	gate_write(w.e, &g, w.v[0]);
	arm(ALL);
	for (i = 0; i < 3000; i++) {
		op = op_on(&w, 0, i % 2, 1 + i % 4);
		op.priority = i % 3 ? 0 : -(int)i;
		push(&w, &op);
	}
	disarm();
	gate_open(&g);
	world_check(&w);
}

static void sc_wide(void)
{
	static pawl_var_t v[20000];
	static const u32 sizes[] = { 5, 16, 17, 256, 257, 4096, 4097, 20000 };
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	for (i = 0; i < ARRAY_SIZE(v); i++)
		CHECK(!pawl_var_create(w.e, &v[i]), "%s: var: %s", where, pawl_error_text());
	arm(ALL);
	for (i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
		op = op_of_fn(body, &w);
		op.reads = v;
		op.nreads = i % 2 ? sizes[i / 2] / 2 : 0;
		op.writes = v + op.nreads;
		op.nwrites = sizes[i / 2] - op.nreads;
		push(&w, &op);
	}
	disarm();
	world_check(&w);
}

static void sc_batch(void)
{
	static struct pawl_op ops[700];
	struct world w = { 0 };
	u32 i, n;

	world_make(&w);
	for (i = 0; i < ARRAY_SIZE(ops); i++)
		ops[i] = op_on(&w, i % 24, i % 3, 1 + i % 7);
	arm(ALL);
	for (n = 1; n <= ARRAY_SIZE(ops); n = n * 3 + 1)
		if (!TRY(pawl_push_batch(w.e, ops, n)))
			w.accepted += n;
	disarm();
	world_check(&w);
}

static void sc_oper(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	pawl_graph_t o;
	u32 i, k, ends = 0;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 20; i++) {
		op = op_on(&w, i, i % 4, i % 9);
		op.release = released;
		if (TRY(pawl_graph_create(w.e, &op, 1, 0, &o)))
			continue;
		ends++;
		for (k = 0; k < 5; k++)
			if (!TRY(pawl_graph_push(w.e, o, LAUNCH((int)k - 2, { 0, 0 }))))
				w.accepted++;
		CHECK(!TRY(pawl_graph_delete(w.e, o)), "%s: delete: %s", where,
		      pawl_error_text());
	}
	disarm();
	world_check(&w);
	CHECK(w.released == ends, "%s: %u graphs, %u released", where, ends, w.released);
}

static void sc_waits(void)
{
	struct world w = { 0 };
	struct gate g;
	u32 i;

	world_make(&w);
	gate_write(w.e, &g, w.v[0]);
	for (i = 1; i < 40; i++) {
		struct pawl_op op = op_on(&w, 0, 0, i % 20 + 1);

		push(&w, &op);
	}
	arm(ALL);
	for (i = 0; i < 20; i++) {
		int rc = pawl_wait_readable(w.e, w.v[i], 1000, NULL);

		CHECK(rc == -ETIMEDOUT || rc == -ENOMEM, "%s: wait: %d %s", where, rc,
		      pawl_error_text());
		rc = pawl_wait_writable(w.e, w.v[i], 1000, NULL);
		CHECK(rc == -ETIMEDOUT || rc == -ENOMEM, "%s: wait: %d %s", where, rc,
		      pawl_error_text());
	}
	CHECK(pawl_wait_all(w.e, 1000, NULL) == -ETIMEDOUT, "%s: wait for all", where);
	gate_open(&g);
	TRY(pawl_wait_writable(w.e, w.v[0], SOON_NS, NULL));
	disarm();
	world_check(&w);
}

static int bad_body(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&((struct world *)arg)->ran, 1);
	return pawl_fail(run, -EIO, "as it should");
}

/* Failed ops: an error is reported even without memory for it. */
static void sc_errors(void)
{
	struct pawl_error x = { 0 };
	struct world w = { 0 };
	struct pawl_op op;
	u32 i, failed = 0;
	int rc;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 300; i++) {
		u32 was = w.accepted;

		op = op_on(&w, i % 60, 0, 1);
		op.fn = bad_body;
		op.prop = PAWL_NO_SKIP;
		push(&w, &op);
		failed += w.accepted - was;
	}
	rc = pawl_wait_all(w.e, -1, &x);
	CHECK(failed ? rc == -EIO || rc == -ENOMEM : !rc, "%s: %u ops failed, wait says %d", where,
	      failed, rc);
	CHECK(x.count == failed, "%s: %u ops failed, %u counted", where, failed, x.count);
	disarm();
	world_check(&w);
}

static void sc_async(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 300; i++) {
		op = op_on(&w, i % 16, 1, 1);
		op.fn = NULL;
		op.async_fn = async_body;
		op.prop = i % 2 ? PAWL_ASYNC : PAWL_NORMAL;
		push(&w, &op);
	}
	disarm();
	world_check(&w);
}

/* First calls of other threads, and what they leave behind. */
static void *visitor(void *arg)
{
	struct world *w = arg;
	struct pawl_op op = op_on(w, 0, 1, 1);
	u32 i;

	for (i = 0; i < 3; i++)
		if (!tried("pawl_push (first call)", pawl_push(w->e, &op)))
			fetch_add_relaxed(&w->accepted, 1);
	op.name = NULL;
	tried("pawl_wait_readable", pawl_wait_readable(w->e, w->v[1], SOON_NS, NULL));
	return NULL;
}

static void sc_threads(void)
{
	struct world w = { 0 };
	pthread_t t;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 4; i++) {
		/* The thread belongs to the test, not to the library. */
		CHECK(!thread_for_sure(&t, visitor, &w), "%s: no thread", where);
		pthread_join(t, NULL);
	}
	disarm();
	world_check(&w);
}

static void sc_stop_start(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 3; i++) {
		op = op_on(&w, i, 1, 1);
		push(&w, &op);
		TRY(pawl_engine_stop(w.e));
		push(&w, &op);
		TRY(pawl_engine_start(w.e));
		push(&w, &op);
		op.prop = PAWL_CPU_PRIORITIZED;
		push(&w, &op);
		op.prop = PAWL_COPY_TO_DEVICE;
		push(&w, &op);
		TRY(pawl_wait_all(w.e, SOON_NS, NULL));
	}
	disarm();
	world_check(&w);
}

static void sc_trace(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 2; i++) {
		int rc = TRY(pawl_trace_start(w.e, 64u << i));

		if (rc == -ENOSYS)
			break;
		op = op_on(&w, i, 1, 1);
		push(&w, &op);
		TRY(pawl_wait_all(w.e, SOON_NS, NULL));
		TRY(pawl_trace_stop(w.e));
		TRY(pawl_trace_write(w.e, path));
	}
	disarm();
	world_check(&w);
}

static void sc_record(void)
{
	struct world w = { 0 };
	struct pawl_engine *e;
	struct pawl_op op;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 2; i++) {
		if (TRY(pawl_record_start(path)) == -ENOSYS)
			break;
		op = op_on(&w, i, 1, 1);
		push(&w, &op);
		if (!TRY(pawl_engine_create(&cfg, &e)))
			CHECK(!TRY(pawl_engine_destroy(e)), "%s: destroy: %s", where,
			      pawl_error_text());
		TRY(pawl_wait_all(w.e, SOON_NS, NULL));
		TRY(pawl_record_stop());
	}
	disarm();
	/* Whatever failed in the last call, the next one works. */
	pawl_record_stop();
	CHECK(i < 2 || !pawl_record_start(path), "%s: start afterwards: %s", where,
	      pawl_error_text());
	CHECK(i < 2 || !pawl_record_stop(), "%s: stop afterwards: %s", where,
	      pawl_error_text());
	world_check(&w);
}

static void sc_dump(void)
{
	struct world w = { 0 };
	struct pawl_stats s = { .size = sizeof(s) };
	struct pawl_op op;
	struct gate g;
	int fd = open_for_sure("/dev/null", O_WRONLY);
	int rc;
	u32 i;

	world_make(&w);
	gate_write(w.e, &g, w.v[0]);
	for (i = 0; i < 20; i++) {
		op = op_on(&w, 0, i % 2, 2);
		push(&w, &op);
	}
	arm(ALL);
	/* It may run in a signal handler, so it leaves no message. */
	rc = pawl_dump(w.e, fd);
	CHECK(rc <= 0 && rc > -4096, "%s: pawl_dump: %d", where, rc);
	TRY(pawl_stats(w.e, &s));
	disarm();
	close(fd);
	gate_open(&g);
	world_check(&w);
}

/* At the limit of ops in flight, with and without workers. */
static void sc_window(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	cfg.window = 64;
	cfg.workers = 0;
	world_make(&w);
	arm(ALL);
	for (i = 0; i < 1000; i++) {
		op = op_on(&w, i % 8, i % 2, 1);
		push(&w, &op);
	}
	disarm();
	world_check(&w);
}

static void sc_destroy(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	for (i = 0; i < 100; i++) {
		op = op_on(&w, i % 8, i % 2, 1);
		push(&w, &op);
	}
	arm(ALL | 1u << FUTEX);
	if (TRY(pawl_engine_destroy(w.e))) {
		disarm();
		world_check(&w);
		return;
	}
	disarm();
	CHECK(w.ran == w.accepted, "%s: %u accepted, %u ran", where, w.accepted, w.ran);
}

static bool granted_never(void *arg)
{
	return false;
}

/* Sleepers with spurious wake-ups. */
static void sc_sleep(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	cfg.spin_ns = 0;
	world_make(&w);
	arm(1u << FUTEX);
	for (i = 0; i < 5; i++) {
		op = op_on(&w, i, 1, 1);
		push(&w, &op);
		CHECK(!pawl_wait_readable(w.e, w.v[i + 1], SOON_NS, NULL), "%s: %s", where,
		      pawl_error_text());
		CHECK(pawl_run_until(w.e, granted_never, NULL, 100000) == -ETIMEDOUT,
		      "%s: until", where);
	}
	disarm();
	world_check(&w);
}

const struct scenario scenarios[] = {
	{ "create", sc_create, 0, 0 },
	{ "create_pooled", sc_create_pooled, 0, 0 },
	{ "create_naive", sc_create_naive, 0, 0 },
	{ "create_prefault", sc_create_prefault, 0, 0 },
	{ "environment", sc_environment, 0, 0 },
	{ "key_again", sc_key_again, 0, 0 },
	{ "life", sc_life, 0, 0 },
	{ "var", sc_var, 0, 0 },
	{ "push", sc_push, 0, 0 },
	{ "pile", sc_pile, 0, 0 },
	{ "wide", sc_wide, 0, 0 },
	{ "batch", sc_batch, 0, 0 },
	{ "oper", sc_oper, 0, 0 },
	{ "waits", sc_waits, 0, 0 },
	{ "errors", sc_errors, 0, 0 },
	{ "async", sc_async, 0, 0 },
	{ "threads", sc_threads, 0, 0 },
	{ "stop_start", sc_stop_start, 0, 0 },
	{ "trace", sc_trace, 0, 0 },
	{ "record", sc_record, 0, 0 },
	{ "dump", sc_dump, 0, 0 },
	{ "window", sc_window, 0, 0 },
	{ "destroy", sc_destroy, 20, 0 },
	{ "sleep", sc_sleep, 12, 0 },
	{ NULL, NULL, 0, 0 },
};
