// SPDX-License-Identifier: Apache-2.0
/*
 * Launches of graphs of several ops, with the whole engine: nodes that several threads run and
 * end, launches in flight side by side and one after the other, nodes that fail, are asynchronous
 * or find no carrier, and launches that are canceled, late, or in flight when their graph is
 * deleted.
 *
 * A graph has a shape, which says for each node behind which others it is.  Launch l has its
 * own data, and writes var 0, or another one.  Checked while nodes run: each runs once, after
 * those it is behind, whose plain data it reads; all of a launch have run before what is behind
 * it; none runs after the end of its graph; in one thread, they start in order.  At rest: all
 * nodes of a launch have run, or as many as its failure allows; each launch is one version of
 * its var; the graph has the memory of all its launches, which its next launch uses; nothing
 * has leaked.
 */
#include "engine.h"

#define NODES		5u
#define LAUNCHES	6u
#define AFTER		(LAUNCHES - 1)
#define VARS		3u
#define THREADS		3u
#define SPARE		1024u
#define SLOT(i)		((pawl_var_t)PAWL_SLOT(i))

struct shape {
	u32 n;
	u8 behind[NODES];	/* masks of nodes */
	u8 fails, async;	/* masks */
	u8 waits;		/* mask, in launch 0: the body waits for var 2 */
	u8 meets;		/* mask, in launch 0: the body waits until the last node runs */
};

struct test {
	const struct shape *shape;
	void (*before)(void);	/* by thread 0, before the threads start */
	void (*thread[THREADS])(void);
	int status;		/* with which a launch may end */
	u32 ops;		/* objects in the pool of ops; 0: enough */
	u32 workers;
	s32 prio;
	bool no_skip;
	bool deletes;
	bool ordered;		/* one thread runs all nodes */
};

struct cell {
	u32 launch, node;
};

static const struct test *test;
static const struct shape *shape;
static struct cell cells[LAUNCHES][NODES];
static u64 data[LAUNCHES][NODES];		/* plain, written by the bodies */
static u64 ran[LAUNCHES][NODES], pushed[LAUNCHES], releases, allocated, canceled, taken;
						/* records: model_note() */
static u32 behind[LAUNCHES];			/* launch + 1, or 0 */
static u64 ticket, met;				/* A */
static u32 hidden[SPARE], nhidden;		/* ops that the pool lacks */

/* Counts the launches for which memory was allocated. */
int pool_commit_hook(const char *what, size_t bytes)
{
	if (!strcmp(what, "launch"))
		model_note(&allocated, allocated + 1);
	return 0;
}

static void run_all(void)
{
	while (pawl_run_one(me.e))
		;
}

/* All nodes of the launch have run. */
static void look_launch(u32 l)
{
	u32 i;

	for (i = 0; i < shape->n; i++)
		if (!ran[l][i] || !data[l][i])
			model_fail("node %u of launch %u has not run", i, l);
}

static void node_begin(const struct cell *c)
{
	u32 k;

	if (model_note(&ran[c->launch][c->node], 1))
		model_fail("node %u of launch %u runs twice", c->node, c->launch);
	if (releases)
		model_fail("node %u of launch %u runs, and its graph has ended", c->node, c->launch);
	for (k = 0; k < shape->n; k++)
		if ((shape->behind[c->node] & 1u << k) && !data[c->launch][k])
			model_fail("node %u of launch %u runs before node %u", c->node, c->launch, k);
	if (behind[c->launch])
		look_launch(behind[c->launch] - 1);
	for (k = 0; k < c->node && test->ordered; k++)
		if (!ran[c->launch][k])
			model_fail("node %u of launch %u starts before node %u", c->node, c->launch, k);
}

/* The launch of the check succeeds. */
static bool node_fails(const struct cell *c)
{
	return c->launch != AFTER && (shape->fails & 1u << c->node);
}

static bool behind_failed(const struct cell *c)
{
	return c->launch != AFTER && (shape->behind[c->node] & shape->fails);
}

static void meet(const struct cell *c)
{
	if (c->launch)
		return;
	if (c->node == shape->n - 1)
		store_release(&met, 1);
	while ((shape->meets & 1u << c->node) && !load_acquire(&met))
		cpu_relax();
}

static int node_body(struct pawl_run *run, void *arg)
{
	const struct cell *c = arg;

	node_begin(c);
	if (run->status != (behind_failed(c) ? test->status : 0))
		model_fail("node %u of launch %u has status %d", c->node, c->launch, run->status);
	model_point();
	if (shape->meets)
		meet(c);
	if (!c->launch && (shape->waits & 1u << c->node))
		MODEL_CHECK(!pawl_wait_readable(me.e, me.var[2], -1, NULL));
	data[c->launch][c->node] = 1;
	return node_fails(c) ? pawl_fail(run, -EIO, "it failed") : 0;
}

static void node_later(struct pawl_run *run, void *arg)
{
	node_begin(arg);
	store_release(&me.token, run->token.h);
}

/* The node that node_later() began, once.  Only launch 0 has such a node. */
static void complete(void)
{
	pawl_token_t token = { load_acquire(&me.token) };
	u32 i;

	if (!token.h || model_note(&taken, 1))
		return;
	for (i = 0; i < shape->n; i++)
		if (shape->async & 1u << i)
			data[0][i] = 1;
	MODEL_CHECK(!pawl_complete(me.e, token, 0, NULL));
}

/* The end of the graph: of each launch all nodes have run, or none, unless one failed. */
static void node_release(void *arg, int status)
{
	u32 l, i;

	model_note(&releases, releases + 1);
	for (l = 0; l < LAUNCHES && !test->status; l++)
		for (i = 0; i < shape->n; i++)
			if (ran[l][0] != ran[l][i] || ran[l][0] != data[l][i])
				model_fail("the graph ends before node %u of launch %u", i, l);
}

/* Node i writes slot i and reads those of the nodes that it is behind; node 0 writes a var. */
static void graph_make(void)
{
	struct pawl_op d[NODES];
	pawl_var_t w[NODES][2], r[NODES][NODES];
	u32 i, k;

	for (i = 0; i < shape->n; i++) {
		d[i] = (struct pawl_op)PAWL_OP_INIT;
		if (shape->async & 1u << i)
			d[i].async_fn = node_later;
		else
			d[i].fn = node_body;
		d[i].release = node_release;
		d[i].flags = test->no_skip ? PAWL_OP_NO_SKIP : 0;
		w[i][0] = SLOT(i);
		w[i][1] = SLOT(shape->n);
		d[i].writes = w[i];
		d[i].nwrites = i ? 1 : 2;
		d[i].reads = r[i];
		for (k = 0; k < shape->n; k++)
			if (shape->behind[i] & 1u << k)
				r[i][d[i].nreads++] = SLOT(k);
	}
	MODEL_CHECK(!pawl_graph_create(me.e, d, shape->n, 0, &me.group));
}

static int launch_as(u32 l, u32 v, struct pawl_launch how)
{
	pawl_var_t vars[NODES + 1] = { { 0 } };
	void *args[NODES];
	u32 i;
	int rc;

	for (i = 0; i < shape->n; i++)
		args[i] = &cells[l][i];
	vars[shape->n] = me.var[v];
	how.size = sizeof(how);
	how.priority = test->prio;
	how.vars = vars;
	how.nvars = shape->n + 1;
	how.args = args;
	how.nargs = shape->n;
	rc = pawl_graph_push(me.e, me.group, &how);
	MODEL_CHECK(!rc || (rc == -ESTALE && test->deletes));
	if (!rc)
		model_note(&pushed[l], 1);
	return rc;
}

static void launch(u32 l, u32 v)
{
	launch_as(l, v, (struct pawl_launch){ 0 });
}

/* Wait for the var of a launch, and run what is ready. */
static void wait_for(u32 l, u32 v)
{
	int rc = pawl_wait_readable(me.e, me.var[v], -1, NULL);

	MODEL_CHECK(!rc || rc == test->status);
	/* Another thread may have received the error. */
	if (!rc && !test->status && pushed[l])
		look_launch(l);
}

/* --- what threads do ------------------------------------------------------------------ */

static void go(void)
{
	launch(0, 0);
	run_all();
}

static void go_wait(void)
{
	launch(0, 0);
	wait_for(0, 0);
	run_all();
}

static void go_other(void)
{
	launch(2, 1);
	wait_for(2, 1);
	run_all();
}

/* The same var: the second launch begins when the first one has ended. */
static void go_two(void)
{
	launch(0, 0);
	launch(1, 0);
	wait_for(1, 0);
	run_all();
}

static void go_again(void)
{
	launch(0, 0);
	wait_for(0, 0);
	launch(1, 0);
	wait_for(1, 0);
	run_all();
}

/* A node of the first launch waits for the second one. */
static void go_waits(void)
{
	launch(0, 0);
	launch(1, 2);
	wait_for(0, 0);
	run_all();
}

/* It needs no op for the wait. */
static void go_all(void)
{
	int rc;

	launch(0, 0);
	rc = pawl_wait_all(me.e, -1, NULL);
	MODEL_CHECK(!rc || rc == test->status);
	if (!rc && pushed[0])
		look_launch(0);
	run_all();
}

/* The workers run the launches. */
static void leave(void)
{
}

static void wait_all(void)
{
	int rc = pawl_wait_all(me.e, -1, NULL);

	MODEL_CHECK(!rc || rc == test->status);
	run_all();
}

/* Two launches side by side, by one thread. */
static void go_both(void)
{
	launch(1, 1);
	launch(2, 2);
	run_all();
}

/* It waits for both. */
static void go_both_wait(void)
{
	launch(1, 1);
	launch(2, 2);
	wait_for(1, 1);
	wait_for(2, 2);
	run_all();
}

static void go_ticket(void)
{
	pawl_ticket_t mine;

	launch_as(0, 0, (struct pawl_launch){ .flags = PAWL_OP_TICKET, .ticket = &mine });
	store_release(&ticket, mine.h);
	wait_for(0, 0);
	MODEL_CHECK(pawl_ticket_wait(me.e, mine, -1) <= 0);
	MODEL_CHECK(pawl_ticket_state(me.e, mine) == PAWL_TICKET_COMPLETE);
	run_all();
}

static void cancel(void)
{
	pawl_ticket_t its = { load_acquire(&ticket) };

	if (its.h && !pawl_cancel(me.e, its))
		model_note(&canceled, 1);
	run_all();
}

static void go_deadline(void)
{
	launch_as(0, 0, (struct pawl_launch){ .flags = PAWL_OP_DEADLINE,
					      .deadline_ns = (s64)exec_now_ns() + 1 });
	wait_for(0, 0);
	run_all();
}

/* Time passes. */
static void wait_briefly(void)
{
	int rc = pawl_wait_readable(me.e, me.var[0], 1, NULL);

	MODEL_CHECK(!rc || rc == test->status);
	run_all();
}

static void complete_it(void)
{
	while (!load_acquire(&me.token))
		cpu_relax();
	complete();
	run_all();
}

static void delete(void)
{
	MODEL_CHECK(!pawl_graph_delete(me.e, me.group));
	run_all();
}

static void delete_wait(void)
{
	MODEL_CHECK(!pawl_graph_delete(me.e, me.group));
	wait_for(0, 0);
	run_all();
}

static int body_ok(struct pawl_run *run, void *arg)
{
	return 0;
}

/* Node 1 of the launch waits for this one. */
static void before_wait(void)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.fn = body_ok;
	d.writes = &me.var[2];
	d.nwrites = 1;
	MODEL_CHECK(!pawl_push(me.e, &d));
}

static void before_go(void)
{
	launch(0, 0);
}

/* Its memory and its carriers have been used. */
static void before_again(void)
{
	launch(3, 0);
	run_all();
}

/* The worker that ends the first one has queued nodes before it begins the second one. */
static void before_behind(void)
{
	launch(3, 0);
	launch(0, 0);
}

/* The memory of two launches has been used. */
static void before_stack(void)
{
	launch(3, 0);
	launch(4, 1);
	run_all();
}

/* --- set-up and check ----------------------------------------------------------------- */

static void setup(void)
{
	struct pawl_config c;
	u32 l, i;

	test = model_arg();
	shape = test->shape;
	for (l = 0; l < LAUNCHES; l++)
		for (i = 0; i < NODES; i++)
			cells[l][i] = (struct cell){ l, i };
	if (test->thread[0] == go_two || test->thread[0] == go_again)
		behind[1] = 1;
	me.nvars = VARS;
	engine_config(&c);
	c.workers = (int)test->workers;
	c.priority_workers = 0;
	engine_create(&c);
	graph_make();
}

/* Leave so many ops: they are in the cache of thread 0. */
static void ops_hide(u32 i)
{
	struct thread *t = thread_get(me.e);
	u32 k, idx;

	while (pool_get(me.e->pool[POOL_OP], &t->cache[POOL_OP], &idx)) {
		MODEL_CHECK(nhidden < SPARE);
		hidden[nhidden++] = idx;
	}
	for (k = 0; !i && k < test->ops; k++)
		pool_put(me.e->pool[POOL_OP], &t->cache[POOL_OP], hidden[--nhidden]);
}

static void enter(u32 i)
{
	engine_enter(i);
	if (test->ops)
		ops_hide(i);
	if (!i && test->before)
		test->before();
}

static void thread(u32 i)
{
	test->thread[i]();
}

static u32 launches_free(void)
{
	const struct graph *g = graph_of(me.e, (u32)me.group.h);
	const struct launch *l;
	u32 n = 0;

	for (l = (const struct launch *)(uintptr_t)load_relaxed(&g->free.val); l;
	     l = load_relaxed(&l->next))
		if (++n > allocated)
			model_fail("the stack of launches has no end");
	return n;
}

/* How many of its nodes may a launch have run? */
static void check_launch(u32 l)
{
	bool skipped = test->status && !test->no_skip;
	u32 i, n = 0, late = 0;

	for (i = 0; i < shape->n; i++) {
		n += (u32)ran[l][i];
		late |= (shape->behind[i] & (shape->fails | late)) ? 1u << i : 0;
	}
	if (shape->fails && skipped) {
		for (i = 0; i < shape->n; i++)
			MODEL_CHECK(ran[l][i] == !(late & 1u << i));
	} else if (canceled || (test->status == -ETIMEDOUT && !n)) {
		MODEL_CHECK(!n);
	} else {
		look_launch(l);
	}
}

/* At most one call received it. */
static void check_error(void)
{
	struct pawl_error x;
	int rc = pawl_var_take(me.e, me.var[0], &x);

	MODEL_CHECK(!rc || rc == test->status);
}

static void no_errors(void)
{
	(void)!pawl_wait_all(me.e, -1, NULL);
	MODEL_CHECK(!(load_relaxed(&me.e->special) >> SPECIAL_ERROR_SHIFT));
}

static void check(void)
{
	struct pawl_error x;
	u32 l, i, n = 0, most = 0;
	u64 v;

	complete();
	run_all();
	for (i = 0; i < nhidden; i++)
		pool_put(me.e->pool[POOL_OP], &thread_get(me.e)->cache[POOL_OP], hidden[i]);
	for (l = 0; l < LAUNCHES; l++)
		if (pushed[l]) {
			most++;
			check_launch(l);
		}
	check_error();
	if (!test->deletes) {
		MODEL_CHECK(launches_free() == allocated && allocated <= most);
		/* A launch uses the memory of one before. */
		most = (u32)allocated;
		if (!shape->async) {
			launch(AFTER, 0);
			run_all();
			look_launch(AFTER);
			MODEL_CHECK(!pawl_var_take(me.e, me.var[0], &x));
		}
		MODEL_CHECK(allocated == most && launches_free() == most);
		MODEL_CHECK(!pawl_graph_delete(me.e, me.group));
	}
	MODEL_CHECK(releases == shape->n);
	for (i = 0; i < VARS; i++) {
		MODEL_CHECK(!pawl_var_version(me.e, me.var[i], &v));
		n += (u32)v;
		/* The var's version is that of its launches, not of ops that the oracle knows. */
		model_note(&me.writes[i], v);
	}
	for (l = 0; l < LAUNCHES; l++)
		n -= (u32)pushed[l];
	MODEL_CHECK(n == (test->before == before_wait));
	/* The last launch wrote the var that was poisoned, so no error is left. */
	no_errors();
	engine_check();
}

static const struct shape chain = { .n = 4, .behind = { 0, 1, 2, 4 } };
static const struct shape fan = { .n = 4, .behind = { 0, 1, 1, 1 } };
static const struct shape sources = { .n = 4, .behind = { 0 } };
static const struct shape diamond = { .n = 4, .behind = { 0, 1, 1, 6 } };
static const struct shape pair = { .n = 3, .behind = { 0, 1, 1 } };
static const struct shape two = { .n = 2, .behind = { 0 } };
static const struct shape fails = { .n = 4, .behind = { 0, 0, 3, 3 }, .fails = 2 };
static const struct shape fails_both = { .n = 4, .behind = { 0, 0, 1, 2 }, .fails = 3 };
static const struct shape fails_first = { .n = 5, .behind = { 0, 1, 1, 1, 1 }, .fails = 1 };
static const struct shape async = { .n = 4, .behind = { 0, 1, 1, 6 }, .async = 1 };
static const struct shape async_middle = { .n = 4, .behind = { 0, 1, 1, 6 }, .async = 2 };
static const struct shape async_sink = { .n = 3, .behind = { 0 }, .async = 2 };
static const struct shape waits = { .n = 4, .behind = { 0, 1, 1, 6 }, .waits = 2 };
static const struct shape meets = { .n = 3, .behind = { 0, 1, 1 }, .meets = 2 };
static const struct shape two_meet = { .n = 2, .behind = { 0 }, .meets = 1 };
static const struct shape late = { .n = 5, .behind = { 0, 1, 2, 2, 2 } };
static const struct shape wide = { .n = 5, .behind = { 0, 1, 1, 1, 1 } };

#define T(name_, what_, threads_, bound_, flags_, shape_, ...)				\
	{ .name = name_, .what = what_, .threads = threads_, .setup = setup, .enter = enter,	\
	  .thread = thread, .check = check, .bound = bound_, .seconds = 6, .flags = flags_,	\
	  .arg = &(const struct test){ .shape = &shape_, __VA_ARGS__ } }

const struct scenario scenarios[] = {
	T("chain", "a chain of nodes, and a thread that takes them", 2, 3, MODEL_NO_TIME, chain,
	  .thread = { go_wait, run_all }),
	T("fan", "one node, and three behind it", 2, 3, MODEL_NO_TIME, fan,
	  .thread = { go_wait, run_all }),
	T("fan_3", "three threads run them", 3, 2, MODEL_NO_TIME, fan,
	  .thread = { go_wait, run_all, run_all }),
	T("order", "nodes that are ready together start in order", 1, 2, MODEL_NO_TIME, late,
	  .thread = { go_wait }, .ordered = true),
	T("sources", "nodes that are behind none", 2, 2, MODEL_NO_TIME, sources,
	  .thread = { go_wait, wait_all }),
	T("diamond", "two nodes between two", 2, 3, MODEL_NO_TIME, diamond,
	  .thread = { go_wait, wait_all }),
	T("diamond_3", "three threads run them", 3, 2, MODEL_NO_TIME, diamond,
	  .thread = { go_wait, run_all, wait_all }),
	T("ranked", "a launch with a priority", 2, 3, MODEL_NO_TIME, diamond,
	  .thread = { go_wait, run_all }, .prio = 1),
	T("side", "two launches side by side", 2, 3, MODEL_NO_TIME, pair,
	  .thread = { go_wait, go_other }),
	T("both", "by one thread, while another one takes nodes", 2, 2, MODEL_NO_TIME, two,
	  .thread = { go_both_wait, run_all }),
	T("two", "two launches, one behind the other", 2, 3, MODEL_NO_TIME, pair,
	  .thread = { go_two, run_all }),
	T("again", "a launch after another one, with its memory", 2, 3, MODEL_NO_TIME, two,
	  .thread = { go_again, run_all }),
	T("again_3", "beside another thread's launch", 3, 1, MODEL_NO_TIME, two,
	  .before = before_again, .thread = { go_again, go_other, run_all }),
	T("stack", "memory of launches that come and go", 2, 3, MODEL_NO_TIME, two,
	  .before = before_stack, .thread = { go, go_both }),
	T("fails", "a node fails", 2, 3, MODEL_NO_TIME, fails, .thread = { go_wait, run_all },
	  .status = -EIO),
	T("fails_both", "two nodes fail, and what is behind each of them runs", 2, 3, MODEL_NO_TIME, fails_both,
	  .thread = { go_all, wait_all }, .status = -EIO, .no_skip = true),
	T("fails_rest", "what is behind one that failed finds no carrier", 2, 3, MODEL_NO_TIME,
	  fails_first, .thread = { go_all, run_all }, .status = -EIO, .ops = 2),
	T("async", "another thread completes the first node", 2, 3, MODEL_NO_TIME, async,
	  .thread = { go_wait, complete_it }),
	T("async_middle", "or one in the middle", 2, 3, MODEL_NO_TIME, async_middle,
	  .before = before_go, .thread = { wait_all, complete_it }),
	T("async_sink", "or one of three at the end", 2, 3, MODEL_NO_TIME, async_sink,
	  .before = before_go, .thread = { wait_all, complete_it }),
	T("cancel", "a launch is canceled as it starts", 2, 3, MODEL_NO_TIME, two,
	  .thread = { go_ticket, cancel }, .status = -ECANCELED),
	T("deadline", "the deadline of a launch passes", 2, 3, 0, two,
	  .thread = { go_deadline, wait_briefly }, .status = -ETIMEDOUT),
	T("delete", "a graph is deleted as it is launched", 2, 3, MODEL_NO_TIME, pair,
	  .thread = { go_wait, delete }, .deletes = true),
	T("delete_3", "and while its launch is in flight", 3, 1, MODEL_NO_TIME, pair,
	  .before = before_go, .thread = { go_other, delete_wait, run_all }, .deletes = true),
	T("rest", "ready nodes find no carrier", 2, 3, MODEL_NO_TIME, wide,
	  .thread = { go_all, run_all }, .ops = 2),
	T("rest_some", "or some of them do", 2, 3, MODEL_NO_TIME, wide,
	  .thread = { go_all, wait_all }, .ops = 3),
	T("rest_diamond", "and others are behind them", 2, 3, MODEL_NO_TIME, diamond,
	  .thread = { go_all, wait_all }, .ops = 3),
	T("waits", "the body of a node waits, and runs other nodes", 2, 3, MODEL_NO_TIME, waits,
	  .before = before_wait, .thread = { go_wait, run_all }),
	T("waits_launch", "for another launch, whose nodes it runs", 2, 2, MODEL_NO_TIME, waits,
	  .thread = { go_waits, run_all }),
	T("meet", "two workers each run a node", 1, 2, MODEL_NO_TIME | MODEL_SLEEPS_OK, meets,
	  .thread = { go_wait }, .workers = 2),
	T("meet_again", "and one of them has queued nodes before", 1, 2,
	  MODEL_NO_TIME | MODEL_SLEEPS_OK, two_meet, .before = before_behind,
	  .thread = { leave }, .workers = 2),
	T("worker", "a worker runs the nodes", 1, 3, MODEL_NO_TIME | MODEL_SLEEPS_OK, diamond,
	  .thread = { go_wait }, .workers = 1),
	{ .name = NULL },
};
