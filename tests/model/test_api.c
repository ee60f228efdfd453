// SPDX-License-Identifier: Apache-2.0
/*
 * Scenarios beside push, run and wait: errors, asynchronous ops, graphs, traces, dumps and
 * statistics, ops of the naive engine, and vars that are created again.  They use the real
 * core and pools, with the executor of model_core.
 *
 * Each scenario is a few calls by two or three threads, in C.  It checks the results that are
 * known; and the weak-memory runs check every plain word of the library, of a body and of a
 * payload for races.  Handles and tokens are often passed by relaxed accesses: then the
 * engine's own edges must order what they refer to.
 */
#include <fcntl.h>
#include <unistd.h>
#include <core/error.h>
#include <core/opgroup.h>
#include <core/wait.h>
#include "event.h"
#include "model.h"

#define THREADS	3u
#define VARS	6u

struct test {
	void (*before)(void);		/* by the set-up */
	void (*thread[THREADS])(void);
	void (*check)(void);
	int kind;
	u32 window;			/* and PAWL_WINDOW_FAIL */
};

static const struct test *test;
static struct pawl_engine *e;
static pawl_var_t var[VARS];
static u64 passed;			/* A, relaxed: a handle or a token that is passed on */
static u64 runs, releases, given, dropped, turn;	/* records of the scenario:
							   model_note() */
static u64 data[VARS];			/* plain, written by bodies */
static int null_fd;

static void note(u64 *p)
{
	model_note(p, *p + 1);
}

static void run_all(void)
{
	while (pawl_run_one(e))
		;
}

static void push(pawl_fn fn, void *arg, u32 w, u32 prop)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.fn = fn;
	d.arg = arg;
	d.writes = &var[w];
	d.nwrites = 1;
	d.prop = (u16)prop;
	MODEL_CHECK(!pawl_push(e, &d));
}

/* Bodies, whose arg is the number of the var, or the code. */
static int body_ok(struct pawl_run *run, void *arg)
{
	data[(uintptr_t)arg]++;
	note(&runs);
	return 0;
}

static int body_fail(struct pawl_run *run, void *arg)
{
	return pawl_fail(run, -(int)(uintptr_t)arg, "it failed");
}

static void push_ok(u32 w)
{
	push(body_ok, (void *)(uintptr_t)w, w, PAWL_NORMAL);
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
	note(&given);
	MODEL_CHECK(x->code == code);
	if (x->payload)
		(*(u64 *)x->payload)++;
}

static void drop(void *user, void *p)
{
	note(&dropped);
	(*(u64 *)p)++;
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
	if (given != 1)
		model_fail("an error was given out %u times", (u32)given);
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
	if (given > 2)
		model_fail("two errors were given out %u times", (u32)given);
}

/* At most one call returned it; the payload went to that call, or was dropped. */
static void check_payload(void)
{
	wait_all();
	errors_exit(e);		/* the end of the engine */
	if (given > 1 || payload != 2)
		model_fail("given %u times, dropped %u times, payload %u", (u32)given,
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
	model_note(&given, 0);
}

/* It is full of errors that were returned. */
static void list_gone_before(void)
{
	push_fail(0, 5);
	take(0);
	push_fail(2, 9);
	take(2);
	model_note(&given, 0);
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
	MODEL_CHECK(given == 1);
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

/* --- completion queues and tickets ------------------------------------------------- */

static pawl_cq_t cq;
static u64 reaped, destroyed, refused, was_canceled;

static int body_cq(struct pawl_run *run, void *arg)
{
	data[(uintptr_t)arg]++;
	note(&runs);
	return 0;
}

static void cq_before(void)
{
	MODEL_CHECK(!pawl_cq_create(e, &cq));
}

/* An op on a private var that names the queue; its tag is the number of the var. */
static int cq_push(u32 w, u32 flags, pawl_ticket_t *ticket)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.fn = body_cq;
	d.arg = (void *)(uintptr_t)w;
	d.writes = &var[w];
	d.nwrites = 1;
	d.flags = (u16)flags;
	d.cq = cq;
	d.tag = w;
	d.ticket = ticket;
	return pawl_push(e, &d);
}

static void cq_push_0(void)
{
	MODEL_CHECK(!cq_push(0, PAWL_OP_CQ, NULL));
	run_all();
}

static void cq_push_1(void)
{
	MODEL_CHECK(!cq_push(1, PAWL_OP_CQ, NULL));
	run_all();
}

static void cq_push_both(void)
{
	cq_push_0();
	cq_push_1();
}

static void cq_reap_one(void)
{
	struct pawl_completion c;
	int n = pawl_cq_reap(e, cq, &c, 1);

	MODEL_CHECK(n == 0 || n == 1 || n == -EBUSY);
	if (n != 1)
		return;
	MODEL_CHECK(!c.status && c.tag < 2);
	note(&reaped);
	data[c.tag]++;		/* written by the body; the queue ordered it */
}

static void cq_reap_twice(void)
{
	cq_reap_one();
	cq_reap_one();
}

static void cq_make_fd(void)
{
	MODEL_CHECK(pawl_cq_fd(e, cq) == MODEL_EVENT_FD);
}

static void cq_fd_before(void)
{
	cq_before();
	cq_make_fd();
}

static void cq_both_before(void)
{
	cq_before();
	cq_push_both();
}

/* Completions that were not reaped are announced, and each arrives once. */
static void cq_check(void)
{
	u64 n = reaped;

	if (reaped < runs && test->thread[1] != cq_push_1)
		MODEL_CHECK(model_event_readable());
	while (reaped < runs) {
		cq_reap_one();
		MODEL_CHECK(reaped == ++n);
	}
	MODEL_CHECK(!pawl_cq_destroy(e, cq));
}

static void cq_check_all(void)
{
	u64 n = reaped;

	while (reaped < runs) {
		cq_reap_one();
		MODEL_CHECK(reaped == ++n);
	}
	MODEL_CHECK(reaped == 2 && !pawl_cq_destroy(e, cq));
}

static void cq_push_race(void)
{
	int rc = cq_push(0, PAWL_OP_CQ, NULL);

	if (rc && rc != -ESTALE)
		model_fail("push: %d", rc);
	if (rc)
		note(&refused);
	run_all();
}

static void cq_destroy(void)
{
	int rc = pawl_cq_destroy(e, cq);

	if (rc && rc != -EBUSY)
		model_fail("cq_destroy: %d", rc);
	if (!rc)
		note(&destroyed);
}

static void cq_destroy_check(void)
{
	struct pawl_completion c;

	if (destroyed)
		MODEL_CHECK(refused == 1);
	else if (!refused)
		MODEL_CHECK(pawl_cq_reap(e, cq, &c, 1) == 1);
}

/*
 * A queue with a completion is not destroyed, and may be named, although a thread tries to
 * destroy it.
 */
static void cq_used_before(void)
{
	cq_before();
	MODEL_CHECK(!cq_push(0, PAWL_OP_CQ, NULL));
	run_all();
}

static void cq_destroy_used(void)
{
	MODEL_CHECK(pawl_cq_destroy(e, cq) == -EBUSY);
}

static void cq_look(void)
{
	MODEL_CHECK(!pawl_cq_wait(e, cq, 0));
}

/* A wait may find nothing; the queue is not destroyed. */
static void cq_wait_short(void)
{
	int rc = pawl_cq_wait(e, cq, 0);

	MODEL_CHECK(!rc || rc == -ETIMEDOUT);
}

/*
 * The object of a destroyed queue becomes another queue, whose completions only its own reaper
 * receives.
 */
static void cq_again(void)
{
	struct pawl_completion c;
	pawl_cq_t other;
	int rc = pawl_cq_destroy(e, cq);

	MODEL_CHECK(!rc || rc == -EBUSY);
	if (rc)
		return;
	MODEL_CHECK(!pawl_cq_create(e, &other));
	MODEL_CHECK((u32)other.h == (u32)cq.h);
	cq.h = other.h;
	MODEL_CHECK(!cq_push(0, PAWL_OP_CQ, NULL));
	run_all();
	MODEL_CHECK(pawl_cq_reap(e, other, &c, 1) == 1);
}

static void cq_reap_old(void)
{
	pawl_cq_t old = { load_relaxed(&passed) };
	struct pawl_completion c;
	int rc = pawl_cq_reap(e, old, &c, 1);

	MODEL_CHECK(!rc || rc == -ESTALE);
}

static void cq_old_before(void)
{
	cq_before();
	passed = cq.h;
}

/* A new queue that no op names is destroyed, also while a push has the old handle. */
static void cq_make_destroy(void)
{
	pawl_cq_t other;
	int rc = pawl_cq_destroy(e, cq);

	MODEL_CHECK(!rc || rc == -EBUSY);
	if (rc)
		return;
	MODEL_CHECK(!pawl_cq_create(e, &other));
	MODEL_CHECK((u32)other.h == (u32)cq.h);
	MODEL_CHECK(!pawl_cq_destroy(e, other));
}

static void ticket_push(void)
{
	pawl_ticket_t ticket;

	MODEL_CHECK(!cq_push(0, PAWL_OP_TICKET, &ticket));
	store_release(&passed, ticket.h);	/* as engine.h requires */
	run_all();
}

static void ticket_cancel(void)
{
	pawl_ticket_t ticket = { load_acquire(&passed) };

	if (!ticket.h)
		return;
	if (!pawl_cancel(e, ticket))
		note(&was_canceled);
}

static void ticket_look(void)
{
	pawl_ticket_t ticket = { load_acquire(&passed) };

	if (ticket.h && pawl_ticket_state(e, ticket) == PAWL_TICKET_COMPLETE)
		data[0]++;	/* written by the body; the state ordered it */
}

/* An op either runs or is canceled. */
static void ticket_check(void)
{
	MODEL_CHECK(runs + was_canceled == 1);
}

/* --- the table --------------------------------------------------------------------- */

static void warm(struct thread *t)
{
	static const u32 pools[] = { POOL_OP, POOL_BLOCK, POOL_VAR, POOL_ERROR, POOL_GRAPH, POOL_NOTE,
		POOL_CQ };
	u32 i, idx;

	for (i = 0; i < ARRAY_SIZE(pools); i++) {
		struct pool *p = e->pool[pools[i]];

		if (pool_get(p, &t->cache[pools[i]], &idx))
			pool_put(p, &t->cache[pools[i]], idx);
	}
}

static void setup(void)
{
	struct pawl_config c;
	u32 i;

	test = model_arg();
	null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	pawl_config_init(&c);
	c.kind = test->kind;
	c.workers = 0;
	c.max_ops = 64;
	c.max_vars = 16;
	c.max_threads = 8;
	c.spin_ns = 0;
	c.trim_ns = 0;
	c.drop = drop;
	if (test->window) {
		c.window = test->window;
		c.window_policy = PAWL_WINDOW_FAIL;
	}
	if (pawl_engine_create(&c, &e))
		model_fail("create: %s", pawl_error_text());
	for (i = 0; i < VARS; i++)
		if (pawl_var_create(e, &var[i]))
			model_fail("var_create");
	warm(thread_get(e));
}

/* There is room for one op in the window, and no op can be run. */
static void hold(struct pawl_run *run, void *arg)
{
	store_relaxed(&passed, run->token.h);
}

/* --- groups --- */

static pawl_group_t group;

static void group_before(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .ops = 1, .tag = 1 };

	cq_before();
	l.cq = cq;
	MODEL_CHECK(!pawl_group_create(e, &l, &group));
}

static void group_push(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	d.fn = body_ok;
	d.flags = PAWL_OP_GROUP;
	d.group = group;
	rc = pawl_push(e, &d);
	MODEL_CHECK(!rc || rc == -EAGAIN || rc == -ESTALE);
	if (rc == -EAGAIN)
		note(&refused);
	run_all();
}

/* A refused push is notified: the group is empty. */
static void group_check(void)
{
	struct pawl_completion c;
	uint64_t ops;

	MODEL_CHECK(!pawl_group_count(e, group, &ops, NULL) && !ops);
	if (refused)
		MODEL_CHECK(pawl_cq_reap(e, cq, &c, 1) == 1 && c.tag == 1);
	/* A spurious completion may be left. */
	(void)!pawl_cq_reap(e, cq, &c, 1);
	MODEL_CHECK(!pawl_group_destroy(e, group));
}

/* A concurrent reaper: what it took counts. */
static void group_reap(void)
{
	struct pawl_completion c;

	if (pawl_cq_reap(e, cq, &c, 1) == 1)
		note(&reaped);
}

static void group_push_twice(void)
{
	group_push();
	group_push();
}

/* Nothing is in flight: room was reported for each refused push. */
static void room_told(const struct op_group *g)
{
	struct pawl_completion c;

	if (refused)
		MODEL_CHECK(reaped + (u64)pawl_cq_reap(e, cq, &c, 1));
	while (pawl_cq_reap(e, cq, &c, 1))
		;
	MODEL_CHECK(!load_relaxed(&g->room));
}

static void group_reap_check(void)
{
	room_told(pool_obj(e->pool[POOL_GROUP], (u32)group.h));
	MODEL_CHECK(!pawl_group_destroy(e, group));
}

/* Its op does not run meanwhile. */
static void group_push_race(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	d.fn = body_ok;
	d.flags = PAWL_OP_GROUP;
	d.group = group;
	rc = pawl_push(e, &d);
	MODEL_CHECK(!rc || rc == -ESTALE);
	/* The op has not run, so the group exists. */
	if (!rc)
		MODEL_CHECK(!pawl_group_count(e, group, NULL, NULL));
}

static void group_destroy(void)
{
	int rc = pawl_group_destroy(e, group);

	MODEL_CHECK(!rc || rc == -EBUSY);
	if (!rc)
		note(&destroyed);
}

static void group_destroy_check(void)
{
	if (!destroyed)
		MODEL_CHECK(!pawl_group_destroy(e, group));
}

/* A destroy that fails loses no room completion. */
static void group_busy_check(void)
{
	struct pawl_completion c;
	int n = pawl_cq_reap(e, cq, &c, 1);

	MODEL_CHECK(destroyed || !refused || n == 1);
}

/* A queue is named while others use the group. */
static void group_limit(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .ops = 1, .cq = cq, .tag = 1 };
	int rc = pawl_group_limit(e, group, &l);

	MODEL_CHECK(!rc || rc == -ESTALE);
}

static void group_limit_before(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .ops = 1 };

	cq_before();
	MODEL_CHECK(!pawl_group_create(e, &l, &group));
}

/* The group's note is freed with the group, otherwise the queue could not be destroyed. */
static void group_limit_check(void)
{
	struct pawl_completion c;

	if (pawl_cq_reap(e, cq, &c, 1) == 1)
		MODEL_CHECK(c.tag == 1);
	group_destroy_check();
	MODEL_CHECK(!pawl_cq_destroy(e, cq));
}

/* A limit on the cost of all ops, none of which belongs to a group. */
static void cost_before(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .cost = 1, .tag = 1 };

	cq_before();
	l.cq = cq;
	MODEL_CHECK(!pawl_group_limit(e, (pawl_group_t){ 0 }, &l));
}

static void cost_push(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	d.fn = body_ok;
	d.flags = PAWL_OP_COST;
	d.cost = 1;
	rc = pawl_push(e, &d);
	MODEL_CHECK(!rc || rc == -EAGAIN);
	if (rc)
		note(&refused);
	run_all();
}

static void cost_check(void)
{
	struct pawl_completion c;
	uint64_t cost;

	MODEL_CHECK(!pawl_group_count(e, (pawl_group_t){ 0 }, NULL, &cost) && !cost);
	if (refused)
		MODEL_CHECK(pawl_cq_reap(e, cq, &c, 1) == 1 && c.tag == 1);
}

static void cost_push_twice(void)
{
	cost_push();
	cost_push();
}

static void cost_reap_check(void)
{
	room_told(e->root);
}

/* Create a group, and pass its handle without an order to a concurrent push that names it. */
static void group_make(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .cost = 1 };
	pawl_group_t g;

	MODEL_CHECK(!pawl_group_create(e, &l, &g));
	store_relaxed(&passed, g.h);
}

static void group_push_new(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	d.fn = body_ok;
	d.flags = PAWL_OP_GROUP | PAWL_OP_COST;
	d.group.h = load_relaxed(&passed);
	d.cost = 2;

	if (!d.group.h)
		return;
	rc = pawl_push(e, &d);
	MODEL_CHECK(rc == -E2BIG || rc == -ESTALE);
}

/*
 * The object of a destroyed group becomes another group, which an old handle does not change.
 */
static void group_again(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	pawl_group_t other;
	int rc = pawl_group_destroy(e, group);

	MODEL_CHECK(!rc || rc == -EBUSY);
	if (rc)
		return;
	MODEL_CHECK(!pawl_group_create(e, NULL, &other));
	MODEL_CHECK((u32)other.h == (u32)group.h);
	d.fn = body_ok;
	d.flags = PAWL_OP_GROUP;
	d.group = other;
	note(&given);
	MODEL_CHECK(!pawl_push(e, &d));
	MODEL_CHECK(!pawl_push(e, &d));
	run_all();
	MODEL_CHECK(runs == 2);
}

static void group_cancel_old(void)
{
	int rc = pawl_group_cancel(e, group);

	MODEL_CHECK(!rc || rc == -ESTALE);
}

static void group_limit_old(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .ops = 1 };
	int rc = pawl_group_limit(e, group, &l);

	MODEL_CHECK(!rc || rc == -ESTALE);
}

static void group_none_before(void)
{
	MODEL_CHECK(!pawl_group_create(e, NULL, &group));
}

static void window_before(void)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.async_fn = hold;
	d.writes = &var[0];
	d.nwrites = 1;
	d.prop = PAWL_ASYNC;
	MODEL_CHECK(!pawl_push(e, &d));
}

static void window_push(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	d.fn = body_ok;
	d.writes = &var[0];
	d.nwrites = 1;
	rc = pawl_push(e, &d);
	MODEL_CHECK(!rc || rc == -EAGAIN);
	if (!rc)
		note(&given);
}

static void window_check(void)
{
	pawl_token_t token = { load_relaxed(&passed) };

	MODEL_CHECK(given <= 1);
	MODEL_CHECK(!pawl_complete(e, token, 0, NULL));
	run_all();
	MODEL_CHECK(runs == given);
}

/* The window is full, and the engine reports when there is room. */
static void window_room_before(void)
{
	struct pawl_group_limits l = { .size = sizeof(l), .tag = 1 };

	MODEL_CHECK(!pawl_cq_create(e, &cq));
	l.cq = cq;
	MODEL_CHECK(!pawl_group_limit(e, (pawl_group_t){ 0 }, &l));
	push_ok(0);
}

static void window_room_push(void)
{
	struct pawl_op d = PAWL_OP_INIT;
	int rc;

	d.fn = body_ok;
	d.writes = &var[1];
	d.nwrites = 1;
	d.arg = (void *)1;
	rc = pawl_push(e, &d);
	MODEL_CHECK(!rc || rc == -EAGAIN);
	if (rc)
		note(&refused);
}

static void window_room_run(void)
{
	MODEL_CHECK(pawl_run_one(e) == 1);
}

/* A push that was refused is told, although nothing more completes. */
static void window_room_check(void)
{
	struct pawl_completion c;
	int n = pawl_cq_reap(e, cq, &c, 1);

	MODEL_CHECK(n == (int)refused);
	run_all();
	MODEL_CHECK(runs == 2 - refused);
}

/* The set-up belongs to thread 0. */
static void enter(u32 i)
{
	struct thread *t = thread_get(e);

	if (!t)
		model_fail("enter");
	warm(t);
	t->next_check = test->window ? 0 : ~0ull;
	if (!i && test->before)
		test->before();
	model_forget_exit();
}

static void thread(u32 i)
{
	test->thread[i]();
	run_all();
}

static void check(void)
{
	run_all();
	if (test->check)
		test->check();
	MODEL_CHECK(!ops_in_flight(e));
}

#define T(name_, what_, threads_, bound_, seconds_, ...)			\
	{ .name = name_, .what = what_, .threads = threads_, .setup = setup,	\
	  .enter = enter, .thread = thread, .check = check, .bound = bound_,	\
	  .seconds = seconds_, .arg = &(const struct test){ __VA_ARGS__ } }

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
	T("dump", "a dump beside pushes", 3, 2, 4, .thread = { push_0, push_many, dump }),
	T("stats", "statistics beside pushes", 3, 3, 4, .thread = { push_0, push_0, stats }),
	T("var_new", "a var is made anew", 2, MODEL_ALL, 4, .before = var_gone_before,
	  .thread = { var_new, var_use_new }),
	T("var_version", "the version of a var that goes", 2, MODEL_ALL, 4, .before = var_before,
	  .thread = { var_delete_new, var_version_old }),
	T("cq_post", "two completions, and a reaper", 3, 3, 4, .before = cq_before,
	  .thread = { cq_push_0, cq_push_1, cq_reap_twice }, .check = cq_check_all),
	T("cq_fd", "an eventfd is made beside a completion", 2, MODEL_ALL, 4, .before = cq_before,
	  .thread = { cq_push_0, cq_make_fd }, .check = cq_check),
	T("cq_rest", "what is not reaped is announced", 2, MODEL_ALL, 4, .before = cq_fd_before,
	  .thread = { cq_push_both, cq_reap_twice }, .check = cq_check),
	T("cq_rest_fd", "an eventfd is made beside a reap of some", 2, MODEL_ALL, 4,
	  .before = cq_both_before, .thread = { cq_reap_one, cq_make_fd }, .check = cq_check),
	T("cq_reapers", "two reapers at once", 3, 3, 4, .before = cq_before,
	  .thread = { cq_push_both, cq_reap_twice, cq_reap_one }, .check = cq_check_all),
	T("cq_destroy", "a queue goes while an op names it", 2, MODEL_ALL, 4, .before = cq_before,
	  .thread = { cq_push_race, cq_destroy }, .check = cq_destroy_check),
	T("cq_busy", "a destroy that fails changes nothing", 3, 3, 4, .before = cq_used_before,
	  .thread = { cq_destroy_used, cq_push_1, cq_look }),
	T("cq_wait", "a wait finds what another thread reaps", 3, 3, 4, .before = cq_before,
	  .thread = { cq_push_0, cq_wait_short, cq_reap_one }),
	T("cq_again", "an old handle reaps nothing of a new queue", 2, MODEL_ALL, 4,
	  .before = cq_old_before, .thread = { cq_again, cq_reap_old }),
	T("cq_stale", "nor does it keep a new queue from being destroyed", 2, MODEL_ALL, 4,
	  .before = cq_before, .thread = { cq_make_destroy, cq_push_race }),
	T("cancel", "an op is canceled as it starts", 2, MODEL_ALL, 4,
	  .thread = { ticket_push, ticket_cancel }, .check = ticket_check),
	T("ticket", "a ticket says that its op is complete", 2, MODEL_ALL, 4,
	  .thread = { ticket_push, ticket_look }),
	T("group", "two pushes and room for one", 2, MODEL_ALL, 4, .before = group_before,
	  .thread = { group_push, group_push }, .check = group_check),
	T("group_reap", "room is reported, reaped, and wanted again", 3, 3, 4,
	  .before = group_before, .thread = { group_push_twice, group_push_twice, group_reap },
	  .check = group_reap_check),
	T("group_destroy", "a group goes while an op names it", 2, MODEL_ALL, 4,
	  .before = group_before, .thread = { group_push_race, group_destroy },
	  .check = group_destroy_check),
	T("group_busy", "a push is refused beside a destroy that fails", 3, 3, 4,
	  .before = group_before, .thread = { group_push, group_push, group_destroy },
	  .check = group_busy_check),
	T("group_note", "a queue is named beside a destroy", 2, MODEL_ALL, 4,
	  .before = group_limit_before, .thread = { group_limit, group_destroy },
	  .check = group_limit_check),
	T("group_note_late", "a queue is named beside pushes that are refused", 3, 3, 4,
	  .before = group_limit_before, .thread = { group_limit, group_push, group_push },
	  .check = group_limit_check),
	T("cost", "two pushes and room for the cost of one", 2, MODEL_ALL, 4,
	  .before = cost_before, .thread = { cost_push, cost_push }, .check = cost_check),
	T("cost_reap", "room is reported, reaped, and wanted again", 3, 3, 4,
	  .before = cost_before, .thread = { cost_push_twice, cost_push_twice, group_reap },
	  .check = cost_reap_check),
	T("group_new", "a push into a group that was just created", 2, MODEL_ALL, 4,
	  .thread = { group_make, group_push_new }),
	T("group_cancel", "an old handle cancels nothing of a new group", 2, MODEL_ALL, 4,
	  .before = group_none_before, .thread = { group_again, group_cancel_old }),
	T("group_limit", "an old handle limits nothing of a new group", 2, MODEL_ALL, 4,
	  .before = group_none_before, .thread = { group_again, group_limit_old }),
	T("window", "two threads push at the last place", 2, MODEL_ALL, 4, .before = window_before,
	  .thread = { window_push, window_push }, .check = window_check, .window = 2),
	T("window_room", "a push is refused while the last op completes", 2, MODEL_ALL, 4,
	  .before = window_room_before, .thread = { window_room_run, window_room_push },
	  .check = window_room_check, .window = 1),
	{ .name = NULL },
};
