// SPDX-License-Identifier: Apache-2.0
/*
 * Scenarios beside push, run and wait: errors, asynchronous ops, graphs, traces, dumps and
 * statistics, ops of the naive engine, and vars that are created again.
 */
#include <core/error.h>
#include <core/wait.h>
#include "api.h"

static u64 releases, turn;		/* records of the scenario: model_note() */

/* Its arg is the code. */
static int body_fail(struct pawl_run *run, void *arg)
{
	return pawl_fail(run, -(int)(uintptr_t)arg, "it failed");
}

static void push_fail(u32 w, u32 code)
{
	push(body_fail, (void *)(uintptr_t)code, w, PAWL_NORMAL);
	run_all();
}

/* --- errors ------------------------------------------------------------------- */

/* The thread that makes a payload writes it, and so does the thread that receives it. */
static u64 payload;

static void got(int code, struct pawl_error *x)
{
	if (!code)
		return;
	note(&count_given);
	MODEL_CHECK(x->code == code);
	if (x->payload)
		(*(u64 *)x->payload)++;
}

static void wait_all(void)
{
	struct pawl_error x;

	got(pawl_wait_all(e, -1, &x), &x);
}

static void take(u32 i)
{
	struct pawl_error x;

	got(pawl_var_take(e, var[i], &x), &x);
}

static void take_0(void)
{
	take(0);
}

static void clear_0(void)
{
	MODEL_CHECK(!pawl_var_clear(e, var[0]));
}

static void readable(u32 i)
{
	struct pawl_error x;

	got(pawl_wait_readable(e, var[i], -1, &x), &x);
}

static void readable_0(void)
{
	readable(0);
}

static void failed_before(void)
{
	push_fail(0, 5);
}

static void fail_0(void)
{
	push_fail(0, 5);
}

/* Do what a failed op does, without an op: so no other edge leads from it to a wait for all. */
static void publish(void)
{
	struct thread *t = thread_get(e);
	u32 x = error_make(t, -7, NULL, NULL);

	error_publish(t, x, -7);
	error_put(t, x);
}

static int body_payload(struct pawl_run *run, void *arg)
{
	payload++;
	return pawl_fail_with(run, -5, NULL, &payload);
}

static void fail_payload(void)
{
	push(body_payload, NULL, 0, PAWL_NORMAL);
	run_all();
}

/* One error: exactly one call returns it. */
static void check_once(void)
{
	wait_all();
	if (count_given != 1)
		model_fail("an error was given out %u times", (u32)count_given);
}

static u64 inherited_status;

static void inherited_end(void *arg, int status)
{
	model_note(&inherited_status, (u64)(s64)status);
}

/* An op behind the one that failed. */
static void push_behind(void)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.fn = body_ok;
	d.arg = (void *)1;
	d.release = inherited_end;
	d.reads = &var[0];
	d.nreads = 1;
	d.writes = &var[1];
	d.nwrites = 1;
	MODEL_CHECK(!pawl_push(e, &d));
	run_all();
}

/* Its status says whether its body ran. */
static void inherited_check(void)
{
	if ((int)(s64)inherited_status != (runs ? 0 : -5))
		model_fail("the op ran %u times and ended with %d", (u32)runs,
			   (int)(s64)inherited_status);
}

static void publish_wait(void)
{
	publish();
	wait_all();
}

/* Two errors: two calls return them, or one returns the first and the count of both. */
static void check_twice(void)
{
	wait_all();
	if (count_given > 2)
		model_fail("two errors were given out %u times", (u32)count_given);
}

/* At most one call returned it; the payload went to that call, or was dropped. */
static void check_payload(void)
{
	wait_all();
	errors_exit(e);		/* the end of the engine */
	if (count_given > 1 || payload != 2)
		model_fail("given %u times, dropped %u times, payload %u", (u32)count_given,
			   (u32)dropped, (u32)payload);
}

/* Drop the last reference, and use the object again at once, without a switch. */
static void reuse_error(void)
{
	wait_all();
	push_ok(0);
	push(body_fail, (void *)7, 1, PAWL_NORMAL);
	readable(1);
}

/* An object that was used before; and the list of first errors has one free slot. */
static void list_before(void)
{
	push_fail(0, 5);
	take_0();
	wait_all();
	push_ok(0);
	run_all();
	push_fail(2, 9);
	model_note(&count_given, 0);
}

/* It is full of errors that were returned. */
static void list_gone_before(void)
{
	push_fail(0, 5);
	take(0);
	push_fail(2, 9);
	take(2);
	model_note(&count_given, 0);
}

static void list_first(void)
{
	push_fail(0, 5);
	model_note(&turn, 1);
}

static void list_second(void)
{
	u64 second = turn;

	push_fail(1, 7);
	if (second)
		model_note(&turn, 2);
}

static void list_check(void)
{
	u32 i, idx, kept = 0;

	for (i = 0; i < FIRST_ERRS; i++) {
		idx = load_relaxed(&e->first_err[i]);
		kept |= idx ? 1u << -error_of(e, idx)->code : 0;
	}
	if (turn == 2 && !(kept & 1u << 5))
		model_fail("an error that nobody was given went from the list for another one");
	MODEL_CHECK(kept & 1u << 9);
}

/* --- asynchronous ops ------------------------------------------------------------ */

static void body_async(struct pawl_run *run, void *arg)
{
	data[0]++;
	store_relaxed(&passed, run->token.h);
}

static void push_async(void)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.async_fn = body_async;
	d.writes = var;
	d.nwrites = 1;
	MODEL_CHECK(!pawl_push(e, &d));
	run_all();
}

static void complete(void)
{
	pawl_token_t t = { load_relaxed(&passed) };
	int rc = t.h ? pawl_complete(e, t, -5, "it failed") : -EALREADY;

	if (!rc)
		note(&runs);
	MODEL_CHECK(!rc || rc == -EALREADY);
	run_all();
}

static void push_async_behind(void)
{
	push_async();
	push(body_ok, NULL, 0, PAWL_NO_SKIP);
	run_all();
}

static void complete_check(void)
{
	complete();
	wait_all();
	MODEL_CHECK(count_given == 1);
	MODEL_CHECK(!ops_in_flight(e));
}

static int body_naive(struct pawl_run *run, void *arg)
{
	++*(u64 *)arg;
	return 0;
}

static void naive_push(void)
{
	u64 before = data[1 + model_self()];

	push(body_naive, &data[1 + model_self()], 0, PAWL_NORMAL);
	if (data[1 + model_self()] != before + 1)
		model_fail("a push of the naive engine is over before its op");
}

static void body_naive_async(struct pawl_run *run, void *arg)
{
	store_release(&passed, run->token.h);
}

static void naive_async(void)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.async_fn = body_naive_async;
	d.writes = var;
	d.nwrites = 1;
	MODEL_CHECK(!pawl_push(e, &d));
	if (data[1] != 1)
		model_fail("a push of the naive engine is over before its op is complete");
}

static void naive_complete(void)
{
	while (!load_acquire(&passed))
		cpu_relax();
	data[1] = 1;
	complete();
}

/* --- graphs ------------------------------------------------------------------- */

static u64 out_of[THREADS];

static int body_graph(struct pawl_run *run, void *arg)
{
	out_of[model_self() % THREADS]++;
	note(&runs);
	return 0;
}

static void graph_release(void *arg, int status)
{
	u64 sum = out_of[0] + out_of[1] + out_of[2];

	note(&releases);
	if (sum != runs)
		model_fail("%u runs, and their graph's end sees %u", (u32)runs, (u32)sum);
}

static void graph_make(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	pawl_graph_t o;

	d.fn = body_graph;
	d.release = graph_release;
	d.reads = var;
	d.nreads = 1;
	d.name = "graph";
	MODEL_CHECK(!pawl_graph_create(e, &d, 1, 0, &o));
	store_relaxed(&passed, o.h);
}

static void graph_push(void)
{
	pawl_graph_t o = { load_relaxed(&passed) };
	int rc = o.h ? pawl_graph_push(e, o, NULL) : 0;

	MODEL_CHECK(!rc || rc == -ESTALE);
	run_all();
}

static void graph_delete(void)
{
	pawl_graph_t o = { load_relaxed(&passed) };

	if (o.h && !pawl_graph_delete(e, o))
		note(&turn);
}

/* Another graph existed before, and its memory is used again. */
static void graph_before(void)
{
	graph_make();
	graph_push();
	graph_delete();
	run_all();
	model_note(&runs, 0);
	model_note(&releases, 0);
	model_note(&turn, 0);
	memset(out_of, 0, sizeof(out_of));
	passed = 0;
}

static void graph_before_live(void)
{
	graph_before();
	graph_make();
}

static void graph_push_delete(void)
{
	graph_push();
	graph_delete();
}

static void graph_make_push(void)
{
	graph_make();
	graph_push();
}

static void graph_check(void)
{
	graph_delete();
	MODEL_CHECK(turn == 1);
	MODEL_CHECK(releases == 1);
}

/*
 * A graph with two asynchronous ops, which threads 0 and 1 complete.  It is pushed, and both have
 * begun, before the threads start.
 *
 *	node	behind	finds
 *	0, 1		(asynchronous)
 *	2, 5	0	data[0]
 *	3	0, 1	data[0], data[1]
 *	4	1	data[1]
 *	6	2, 5	data[2], data[5]
 *
 * A reader of var 0, which the last launch writes, finds what all of them did.
 */
#define NODES	7u
#define SLOT(i)	((pawl_var_t)PAWL_SLOT(i))

static u64 node_tokens[2], node_runs[NODES];
static int node_status[NODES];
static const u32 node_behind[NODES] = { [2] = 1, [5] = 1, [3] = 3, [4] = 2, [6] = 0x24 };
static u64 node_data[NODES];		/* plain */

static void node_later(struct pawl_run *run, void *arg)
{
	node_tokens[(uintptr_t)arg] = run->token.h;
}

static int node_body(struct pawl_run *run, void *arg)
{
	u32 i = (u32)(uintptr_t)arg, k;

	for (k = 0; k < NODES; k++)
		if ((node_behind[i] & 1u << k) && !node_data[k])
			model_fail("node %u runs before node %u", i, k);
	node_data[i] = 1;
	node_status[i] = run->status;
	note(&node_runs[i]);
	return 0;
}

static int nodes_reader(struct pawl_run *run, void *arg)
{
	u32 i;

	for (i = 2; i < NODES; i++)
		if (!node_data[i])
			model_fail("a reader behind the launch comes before node %u", i);
	note(&runs);
	return 0;
}

/* Node i writes slot i, and reads the slots of those before it. */
static void nodes_push(u16 flags)
{
	struct pawl_op d[NODES], r = PAWL_OP_INIT;
	pawl_var_t w[NODES], in[NODES][NODES], none[NODES] = { { 0 } };
	struct pawl_launch l = { .size = sizeof(l), .vars = none, .nvars = NODES };
	pawl_graph_t g;
	u32 i, k;

	for (i = 0; i < NODES; i++) {
		d[i] = (struct pawl_op)PAWL_OP_INIT;
		d[i].arg = (void *)(uintptr_t)i;
		d[i].flags = flags;
		if (i < 2)
			d[i].async_fn = node_later;
		else
			d[i].fn = node_body;
		w[i] = SLOT(i);
		d[i].writes = &w[i];
		d[i].nwrites = 1;
		d[i].reads = in[i];
		for (k = 0; k < NODES; k++)
			if (node_behind[i] & 1u << k)
				in[i][d[i].nreads++] = SLOT(k);
	}
	none[6] = var[0];
	MODEL_CHECK(!pawl_graph_create(e, d, NODES, 0, &g));
	MODEL_CHECK(!pawl_graph_push(e, g, &l));
	MODEL_CHECK(!pawl_graph_delete(e, g));
	r.fn = nodes_reader;
	r.reads = var;
	r.nreads = 1;
	MODEL_CHECK(!pawl_push(e, &r));
	run_all();
	MODEL_CHECK(node_tokens[0] && node_tokens[1]);
}

static void nodes_before(void)
{
	nodes_push(0);
}

static void nodes_before_no_skip(void)
{
	nodes_push(PAWL_OP_NO_SKIP);
}

/* The pool of ops is empty: ready nodes wait on the stack of their launch. */
static void nodes_before_empty(void)
{
	struct thread *t = thread_get(e);
	u32 idx;

	nodes_before();
	while (pool_get(e->pool[POOL_OP], &t->cache[POOL_OP], &idx))
		;
}

static void node_done(u32 i, int status)
{
	pawl_token_t token = { node_tokens[i] };

	node_data[i] = 1;
	MODEL_CHECK(!pawl_complete(e, token, status, NULL));
	run_all();
}

static void node_done_0(void)
{
	node_done(0, 0);
}

static void node_done_1(void)
{
	node_done(1, 0);
}

static void node_fail_0(void)
{
	node_done(0, -EIO);
}

static void node_fail_1(void)
{
	node_done(1, -EIO);
}

static void nodes_check(void)
{
	u32 i;

	for (i = 2; i < NODES; i++)
		MODEL_CHECK(node_runs[i] == 1);
	MODEL_CHECK(runs == 1);
}

static void nodes_failed_check(void)
{
	struct pawl_error err;

	MODEL_CHECK(node_runs[4] == 1);
	MODEL_CHECK(!node_runs[2] && !node_runs[3] && !node_runs[5] && !node_runs[6] && !runs);
	MODEL_CHECK(pawl_var_take(e, var[0], &err) == -EIO);
}

/* One of two errors is the launch's, and each node behind either of them sees it. */
static void nodes_no_skip_check(void)
{
	struct pawl_error err;
	u32 i;

	for (i = 2; i < NODES; i++)
		MODEL_CHECK(node_runs[i] == 1 && node_status[i] == -EIO);
	MODEL_CHECK(!runs);
	MODEL_CHECK(pawl_var_take(e, var[0], &err) == -EIO);
}

/* --- traces, dumps, statistics ----------------------------------------------------- */

static void trace_start(void)
{
	int rc = pawl_trace_start(e, 64);

	MODEL_CHECK(!rc || rc == -EALREADY);
}

static void trace_write(void)
{
	int rc = pawl_trace_write(e, "/dev/null");

	MODEL_CHECK(!rc || rc == -EBUSY);
}

static void push_0(void)
{
	push_ok(0);
	run_all();
}

static void push_0_twice(void)
{
	push_ok(0);
	push_ok(0);
	run_all();
}

static void trace_again(void)
{
	MODEL_CHECK(!pawl_trace_stop(e));
	trace_start();
}

static void trace_stop_write(void)
{
	MODEL_CHECK(!pawl_trace_stop(e));
	trace_write();
}

static void trace_stopped_before(void)
{
	trace_start();
	push_0();
	MODEL_CHECK(!pawl_trace_stop(e));
}

/* Freed rings are recognized by their remaining contents. */
static void trace_check(void)
{
	push_0();
	trace_stop_write();
}

static void trace_stop(void)
{
	MODEL_CHECK(!pawl_trace_stop(e));
}

/* Ops check for a trace if and only if one runs. */
static void trace_flag_check(void)
{
	if (!load_relaxed(&e->tracing) == !!(load_relaxed(&e->special) & SPECIAL_TRACING))
		model_fail("tracing %u, special %u", (u32)load_relaxed(&e->tracing),
			   load_relaxed(&e->special));
}

static void dump(void)
{
	MODEL_CHECK(!pawl_dump(e, null_fd));
}

/* An op behind a write, with more vars than fit in the op itself. */
static void push_many(void)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.reads = var;
	d.nreads = VARS;
	MODEL_CHECK(!pawl_push(e, &d));
	run_all();
}

static void stats(void)
{
	struct pawl_stats s = { .size = sizeof(s) };

	MODEL_CHECK(!pawl_stats(e, &s));
	if (s.completed > s.pushed)
		model_fail("%u ops are over, and %u were pushed", (u32)s.completed, (u32)s.pushed);
}

/* --- vars ------------------------------------------------------------------------ */

/* Var 0 has had five writes, and is deleted. */
static void var_before(void)
{
	u32 i;

	for (i = 0; i < 5; i++)
		push_0();
	passed = var[0].h;
}

static void var_gone_before(void)
{
	var_before();
	MODEL_CHECK(!pawl_var_delete(e, var[0], NULL, NULL));
	run_all();
	passed = 0;
}

static void var_new(void)
{
	pawl_var_t v;

	MODEL_CHECK(!pawl_var_create(e, &v));
	store_relaxed(&passed, v.h);
}

static void var_use_new(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	pawl_var_t v = { load_relaxed(&passed) };
	u64 n = 0;
	int rc;

	if (!v.h)
		return;
	/*
	 * A handle that is passed by relaxed accesses may arrive too early; then it is refused.
	 */
	rc = pawl_var_version(e, v, &n);
	if (n || (rc && rc != -ESTALE))
		model_fail("a new var: %d, version %u", rc, (u32)n);
	d.fn = body_ok;
	d.writes = &v;
	d.nwrites = 1;
	rc = pawl_push(e, &d);
	MODEL_CHECK(!rc || rc == -ESTALE);
	run_all();
}

static int body_new(struct pawl_run *run, void *arg)
{
	MODEL_CHECK(!pawl_var_create(e, &var[0]));
	push_ok(0);
	return 0;
}

/*
 * Without a switch, so that no fence of an idle thread is between the end of the var and the
 * new one.
 */
static void var_delete_new(void)
{
	push_ok(0);
	push_ok(1);
	MODEL_CHECK(!pawl_var_delete(e, var[0], NULL, NULL));
	push(body_new, NULL, 1, PAWL_NORMAL);
	push_ok(1);
	MODEL_CHECK(!pawl_wait_readable(e, var[1], -1, NULL));
}

static void var_version_old(void)
{
	pawl_var_t v = { load_relaxed(&passed) };
	u64 n = 0;
	int rc = pawl_var_version(e, v, &n);

	/* The deletion is also a write. */
	if (rc ? rc != -ESTALE : n < 5)
		model_fail("the var that was: %d, version %u", rc, (u32)n);
}

const struct scenario scenarios[] = {
	T("take_all", "an error is taken from a var, and by a wait for all", 2, MODEL_ALL, 2,
	  .before = failed_before, .thread = { take_0, wait_all }, .check = check_once),
	T("all_all", "two waits for all, an op fails", 3, 3, 4,
	  .thread = { fail_0, wait_all, wait_all }, .check = check_once),
	T("all_back", "an error after the wait for all began", 3, 3, 4, .before = failed_before,
	  .thread = { publish, wait_all, wait_all }),
	T("all_take", "two waits for all, and an error that is taken", 3, 3, 4,
	  .before = failed_before, .thread = { take_0, wait_all, publish_wait },
	  .check = check_twice),
	T("take_take", "a wait and a take", 2, MODEL_ALL, 2,
	  .thread = { fail_0, readable_0 }, .check = check_once),
	T("inherits", "an error is cleared while an op inherits it", 2, MODEL_ALL, 2,
	  .before = failed_before, .thread = { push_behind, clear_0 }, .check = inherited_check),
	T("payload", "a payload goes to one, or is dropped", 3, 2, 4,
	  .thread = { fail_payload, take_0, wait_all }, .check = check_payload),
	T("payload_clear", "cleared, or given", 3, 2, 4,
	  .thread = { fail_payload, take_0, clear_0 }, .check = check_payload),
	T("error_reuse", "an error's memory is used again", 2, MODEL_ALL, 4,
	  .before = failed_before, .thread = { take_0, reuse_error }),
	T("error_list", "the list of first errors is full", 2, MODEL_ALL, 4,
	  .before = list_before, .thread = { list_first, list_second }, .check = list_check),
	T("error_room", "an error takes the place of one that was given out", 2, MODEL_ALL, 4,
	  .before = list_gone_before, .thread = { publish, wait_all }, .check = check_once),
	T("complete", "two threads complete an op", 3, 3, 4,
	  .thread = { push_async, complete, complete }, .check = complete_check),
	T("complete_behind", "an op behind an asynchronous one", 2, MODEL_ALL, 4,
	  .thread = { push_async_behind, complete }, .check = complete_check),
	T("naive", "a push is over with its op", 2, MODEL_ALL, 4,
	  .thread = { naive_push, naive_push }, .kind = PAWL_NAIVE),
	T("naive_async", "a push is over when another thread has completed its op", 2, MODEL_ALL, 4,
	  .thread = { naive_async, naive_complete }, .kind = PAWL_NAIVE),
	T("graph_new", "a graph is made, used and deleted", 2, MODEL_ALL, 4,
	  .before = graph_before, .thread = { graph_make_push, graph_push }, .check = graph_check),
	T("graph_delete", "deleted while others push it", 3, 3, 4, .before = graph_before_live,
	  .thread = { graph_push_delete, graph_push, graph_delete }, .check = graph_check),
	T("graph_nodes", "two threads end the nodes of a launch", 2, MODEL_ALL, 4,
	  .before = nodes_before, .thread = { node_done_0, node_done_1 }, .check = nodes_check),
	T("graph_rest", "ready nodes find no carrier", 2, MODEL_ALL, 4,
	  .before = nodes_before_empty, .thread = { node_done_0, node_done_1 },
	  .check = nodes_check),
	T("graph_fails", "a node of a launch fails", 2, MODEL_ALL, 4,
	  .before = nodes_before, .thread = { node_fail_0, node_done_1 },
	  .check = nodes_failed_check),
	T("graph_fails_twice", "two nodes of a launch fail, and the others run", 2, MODEL_ALL, 4,
	  .before = nodes_before_no_skip, .thread = { node_fail_0, node_fail_1 },
	  .check = nodes_no_skip_check),
	T("trace_again", "a trace is stopped and started beside pushes", 2, MODEL_ALL, 4,
	  .before = trace_start, .thread = { push_0_twice, trace_again }, .check = trace_check),
	T("trace_write", "a trace is written beside pushes", 2, MODEL_ALL, 4,
	  .before = trace_start, .thread = { push_0_twice, trace_stop_write },
	  .check = trace_check),
	T("trace_both", "written, and started anew", 3, 3, 4, .before = trace_stopped_before,
	  .thread = { trace_write, trace_start, push_0 }, .check = trace_check),
	T("trace_flag", "a trace is started and stopped at once", 2, MODEL_ALL, 2,
	  .thread = { trace_start, trace_stop }, .check = trace_flag_check),
	T("trace_flags", "stopped and started while another one stops it", 2, MODEL_ALL, 4,
	  .before = trace_start, .thread = { trace_again, trace_stop },
	  .check = trace_flag_check),
	T("dump", "a dump beside pushes", 3, 2, 4, .thread = { push_0, push_many, dump }),
	T("stats", "statistics beside pushes", 3, 3, 4, .thread = { push_0, push_0, stats }),
	T("var_new", "a var is made anew", 2, MODEL_ALL, 4, .before = var_gone_before,
	  .thread = { var_new, var_use_new }),
	T("var_version", "the version of a var that goes", 2, MODEL_ALL, 4, .before = var_before,
	  .thread = { var_delete_new, var_version_old }),
	{ .name = NULL },
};
