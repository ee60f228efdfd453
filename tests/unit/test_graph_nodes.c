// SPDX-License-Identifier: Apache-2.0
/* core/nodes.c, core/plan.c: the ops inside a graph. */
#include <fcntl.h>
#include "graphs.h"
#include "trap.h"
#include <core/graph.h>
#include <core/op.h>
#include <core/thread.h>

/* --- order and parallelism --- */

START_TEST(test_independent_ops_run_in_parallel)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 3);
	struct meeting m = { .want = 3 };
	pawl_var_t v = var_new(e), w = var_new(e), x = var_new(e);
	const struct pawl_op op[] = { OP(nothing, NULL, W(v)), OP(meet, &m, R(v), W(w)),
				      OP(meet, &m, R(v), W(x)), OP(meet, &m, R(v)),
				      OP(nothing, NULL, R(w, x), W(v)) };
	pawl_graph_t g = graph_new(e, op, 5);

	OK(pawl_graph_push(e, g, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(m.in, 3);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_reads_follow_writes_and_writes_follow_reads)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 2);
		pawl_var_t v = var_new(e), w = var_new(e);
		u32 clock = 0, i;
		struct place p[7];
		/* The third names v twice: as a write. */
		const struct pawl_op op[] = {
			OP(note_place, &p[0], W(v)), OP(note_place, &p[1], R(v)),
			OP(note_place, &p[2], R(v), W(w)), OP(note_place, &p[3], R(v), W(v)),
			OP(note_place, &p[4], R(v)), OP(note_place, &p[5], W(w)),
			OP(note_place, &p[6], R(v, v)) };
		pawl_graph_t g = graph_new(e, op, 7);

		for (i = 0; i < 7; i++)
			p[i].clock = &clock;
		for (i = 0; i < 50; i++) {
			clock = 0;
			OK(pawl_graph_push(e, g, NULL));
			OK(pawl_wait_readable(e, v, SOON_NS, NULL));
			ck_assert_uint_eq(clock, 7);
			ck_assert(p[0].at == 1 && p[1].at < p[3].at && p[2].at < p[3].at);
			ck_assert(p[3].at < p[4].at && p[3].at < p[6].at && p[2].at < p[5].at);
		}
		OK(pawl_graph_delete(e, g));
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* A body that is stopped keeps only those that depend on it from running. */
START_TEST(test_a_stopped_body_delays_only_what_depends_on_it)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	pawl_var_t v = var_new(e), w = var_new(e), out = var_new(e);
	struct plug p = { 0 };
	u32 behind = 0, beside = 0, i;
	struct pawl_op op[12] = { OP(plug_body, &p, W(v)), OP(add_one, &behind, R(v)) };
	pawl_graph_t g;

	for (i = 2; i < 11; i++)
		op[i] = (struct pawl_op)OP(add_one, &beside, .writes = &w, .nwrites = 1);
	op[i] = (struct pawl_op)OP(add_one, &behind, R(v, w), W(out));
	g = graph_new(e, op, 12);
	OK(pawl_graph_push(e, g, NULL));
	MUST(soon(load_acquire(&beside) == 9 && load_acquire(&p.in)));
	ck_assert_uint_eq(load_relaxed(&behind), 0);
	ck_assert_int_eq(pawl_wait_readable(e, out, 0, NULL), -ETIMEDOUT);
	plug_out(&p);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert(behind == 2 && beside == 9);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A graph of n ops is n steps of a host that runs them. */
START_TEST(test_a_host_runs_one_body_at_a_time)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u64 n = 0;
	struct pawl_op op[5];
	pawl_graph_t g;
	u32 i;

	for (i = 0; i < 5; i++)
		op[i] = (struct pawl_op)OP(add_plain, &n, .writes = &v, .nwrites = 1);
	g = graph_new(e, op, 5);
	OK(pawl_graph_push(e, g, NULL));
	for (i = 1; i <= 5; i++) {
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_uint_eq(n, i);
		ck_assert_uint_eq(version(e, v), i == 5);
	}
	ck_assert_int_eq(pawl_run_one(e), 0);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Bodies are queued as their launch: on its device, by its property, with its priority. */
START_TEST(test_bodies_are_queued_as_their_launch)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_queue_stats s = { .size = sizeof(s) };
	const struct pawl_device second = { PAWL_CPU, 1 };
	struct pawl_op op[4], behind;
	struct pawl_engine *e;
	u32 clock = 0, i;
	struct place p[5];
	pawl_graph_t g;

	c.cpu_devices = 2;
	e = engine_with(&c);
	for (i = 0; i < 5; i++)
		p[i] = (struct place){ &clock, 0 };
	for (i = 0; i < 4; i++)
		op[i] = (struct pawl_op)OP(note_place, &p[i], .prop = PAWL_COPY_TO_DEVICE);
	g = graph_new(e, op, 4);
	behind = op_of_fn(note_place, &p[4]);
	behind.prop = PAWL_COPY_TO_DEVICE;
	behind.device = second;
	behind.priority = 1;
	OK(pawl_push(e, &behind));
	OK(pawl_graph_push(e, g, LAUNCH(2, second)));
	ck_assert_int_eq(pawl_run_one(e), 1);
	OK(pawl_queue_stats(e, second, PAWL_COPY_TO_DEVICE, &s));
	ck_assert_uint_eq(s.depth, 4);
	while (pawl_run_one(e))
		;
	ck_assert_uint_eq(p[4].at, 5);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- random graphs against a serial interpreter --- */

#define RND_OPS		40
#define RND_VARS	6

struct rnd_op {
	u64 *mem;		/* of the launch */
	u32 id, nr, nw;
	u8 r[2], w[2];
};

static void rnd_work(const struct rnd_op *o, u64 *mem)
{
	u64 x = o->id * 0x9e3779b97f4a7c15ull;
	u32 i;

	for (i = 0; i < o->nr; i++)
		x = (x ^ mem[o->r[i]]) * 0xff51afd7ed558ccdull;
	for (i = 0; i < o->nw; i++)
		mem[o->w[i]] = (mem[o->w[i]] ^ x) * 0xc4ceb9fe1a85ec53ull + i;
}

static int rnd_body(struct pawl_run *run, void *arg)
{
	const struct rnd_op *o = arg;

	rnd_work(o, o->mem);
	return 0;
}

START_TEST(test_random_graphs_give_what_their_ops_in_order_give)
{
	u64 seed = 12345;
	int round;

	for (round = 0; round < TIMES(300); round++) {
		struct pawl_engine *e = engine(round % 3, round & 4 ? 2 : 1);
		u32 n = 2 + (u32)(rnd(&seed) % (RND_OPS - 1)), i, j, k;
		struct rnd_op o[2][RND_OPS];
		struct pawl_op op[RND_OPS];
		pawl_var_t v[RND_OPS][4], var[2][RND_VARS];
		u64 mem[2][RND_VARS] = { { 0 } }, want[RND_VARS] = { 0 };
		void *args[2][RND_OPS];
		struct pawl_launch l = launch_init();
		pawl_graph_t g;

		for (i = 0; i < n; i++) {
			struct rnd_op *x = &o[0][i];

			*x = (struct rnd_op){ .mem = mem[0], .id = i, .nr = (u32)(rnd(&seed) % 3),
					      .nw = (u32)(rnd(&seed) % 3) };
			for (j = 0; j < x->nr; j++)
				v[i][j] = SLOT(x->r[j] = (u8)(rnd(&seed) % RND_VARS));
			for (j = 0; j < x->nw; j++)
				v[i][2 + j] = SLOT(x->w[j] = (u8)(rnd(&seed) % RND_VARS));
			op[i] = (struct pawl_op)OP(rnd_body, x, .reads = v[i], .nreads = x->nr,
						   .writes = v[i] + 2, .nwrites = x->nw);
			o[1][i] = *x;
			o[1][i].mem = mem[1];
		}
		/* So that all slots are named. */
		op[0].reads = VARS(SLOT(0), SLOT(1), SLOT(2), SLOT(3), SLOT(4), SLOT(5));
		op[0].nreads = RND_VARS;
		g = graph_new(e, op, n);
		for (k = 0; k < 2; k++) {
			for (i = 0; i < RND_VARS; i++)
				var[k][i] = var_new(e);
			for (i = 0; i < n; i++)
				args[k][i] = &o[k][i];
		}
		for (k = 0; k < 6; k++) {
			l.vars = var[k % 2];
			l.nvars = RND_VARS;
			l.args = args[k % 2];
			l.nargs = n;
			OK(pawl_graph_push(e, g, &l));
		}
		OK(pawl_graph_delete(e, g));
		for (k = 0; k < 3; k++)
			for (i = 0; i < n; i++)
				rnd_work(&o[0][i], want);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		for (i = 0; i < RND_VARS; i++)
			ck_assert_msg(mem[0][i] == want[i] && mem[1][i] == want[i], "round %d", round);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* --- asynchronous nodes --- */

START_TEST(test_a_write_waits_for_an_unfinished_read)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u64 token = 0;
	u32 ran = 0;
	struct pawl_op op[2] = { OP(NULL, &token, R(v), .async_fn = keep_token),
				 OP(add_one, &ran, W(v)) };
	pawl_graph_t g = graph_new(e, op, 2);

	OK(pawl_graph_push(e, g, NULL));
	while (pawl_run_one(e))
		;
	ck_assert(token && !ran);
	OK(pawl_complete(e, (pawl_token_t){ token }, 0, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 1);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_asynchronous_nodes)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	u64 token[2] = { 0 };
	u32 ran = 0, not = 0;
	struct pawl_op op[4] = { OP(NULL, &token[0], W(v), .async_fn = keep_token, .name = "later"),
				 OP(NULL, &token[1], W(w), .async_fn = keep_token),
				 OP(add_one, &ran, R(v)), OP(add_one, &not, R(v), W(w)) };
	pawl_graph_t g = graph_new(e, op, 4);
	struct pawl_error err;

	OK(pawl_graph_push(e, g, NULL));
	while (pawl_run_one(e))
		;
	ck_assert(token[0] && token[1] && token[0] != token[1]);
	OK(pawl_complete(e, (pawl_token_t){ token[0] }, 0, NULL));
	ck_assert_int_eq(pawl_complete(e, (pawl_token_t){ token[0] }, 0, NULL), -EALREADY);
	while (pawl_run_one(e))
		;
	ck_assert(ran == 1 && not == 0);
	OK(pawl_complete(e, (pawl_token_t){ token[1] }, -EIO, "no answer"));
	ck_assert_int_eq(pawl_wait_readable(e, w, SOON_NS, &err), -EIO);
	ck_assert_str_eq(err.text, "no answer");
	ck_assert_uint_eq(not, 0);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

#if CAN_TRAP
static struct pawl_engine *runs_on;

static void run_what_is_ready(void)
{
	while (pawl_run_one(runs_on))
		;
}
#endif

/* Another thread runs the nodes behind it as soon as they are ready: the launch ends once. */
START_TEST(test_a_launch_may_end_while_a_node_of_it_is_completed)
{
#if CAN_TRAP
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u64 token = 0;
	u32 ran = 0, k, n = 0, meanwhile = 0;
	struct pawl_op op[2] = { OP(NULL, &token, W(v), .async_fn = keep_token),
				 OP(add_one, &ran, W(v)) };
	pawl_graph_t g = graph_new(e, op, 2);
	int rc;

	runs_on = e;
	elsewhere_begin(run_what_is_ready);
	for (k = 0; !k || trap.stops; k += SANITIZED ? 29 : 5) {
		OK(pawl_graph_push(e, g, NULL));
		run_what_is_ready();
		trap_after(k, rc = pawl_complete(e, (pawl_token_t){ token }, 0, NULL));
		OK(rc);
		meanwhile += ran == ++n;
		run_what_is_ready();
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(ran, n);
		ck_assert_uint_eq(version(e, v), n);
		ck_assert_uint_eq(stats(e).pushed, n);
		ck_assert_uint_eq(stats(e).completed, n);
	}
	ck_assert_uint_gt(meanwhile, 0);
	elsewhere_end();
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
#endif
}
END_TEST

/* Others may have counted all sinks by then, and end the launch. */
START_TEST(test_only_the_last_sink_ends_a_launch)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u64 token = 0;
	u32 ran = 0;
	struct pawl_op op[2] = { OP(NULL, &token, W(v), .async_fn = keep_token),
				 OP(add_one, &ran, W(v)) };
	pawl_graph_t g = graph_new(e, op, 2);
	struct launch *l;

	OK(pawl_graph_push(e, g, NULL));
	ck_assert_int_eq(pawl_run_one(e), 1);
	l = op_of(e, (u32)token)->arg;
	ck_assert_uint_eq(l->left, 1);
	store_relaxed(&l->left, 0);
	OK(pawl_complete(e, (pawl_token_t){ token }, 0, NULL));
	ck_assert_uint_eq(stats(e).completed, 0);
	store_relaxed(&l->left, 1);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 1);
	ck_assert_uint_eq(stats(e).completed, 1);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

static bool token_kept(void *arg)
{
	return load_acquire((u64 *)arg);
}

/* A thread that has run some of the last nodes continues with an asynchronous one. */
START_TEST(test_an_asynchronous_node_beside_others_is_the_last)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	u64 token = 0;
	u32 ran = 0, i;
	struct pawl_op op[4] = { OP(nothing, NULL, W(SLOT(0))), OP(add_one, &ran, R(SLOT(0))),
				 OP(add_one, &ran, R(SLOT(0))),
				 OP(NULL, &token, R(SLOT(0)), .async_fn = keep_token) };
	pawl_graph_t g = graph_new(e, op, 4);
	struct pawl_launch l = launch_init();

	l.nvars = 1;
	for (i = 1; i <= 20; i++) {
		l.vars = VARS(var_new(e));
		token = 0;
		OK(pawl_graph_push(e, g, &l));
		OK(pawl_run_until(e, token_kept, &token, SOON_NS));
		FAILS(pawl_wait(e, PAWL_WAIT_ALL, 0, 0, NULL), -ETIMEDOUT);
		OK(pawl_complete(e, (pawl_token_t){ token }, 0, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(ran, 2 * i);
		ck_assert_uint_eq(version(e, l.vars[0]), 1);
	}
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- limits, traces and other ops --- */

/* More nodes become ready at once than the engine has ops. */
START_TEST(test_more_ready_nodes_than_ops)
{
	int workers;

	for (workers = 0; workers < 3; workers++) {
		struct pawl_config c = small(PAWL_PER_DEVICE, workers);
		struct pawl_engine *e;
		static struct pawl_op op[4096];
		pawl_var_t v, w;
		pawl_graph_t g;
		u32 ran = 0, i;

		c.max_ops = 64;
		c.max_threads = 8;
		e = engine_with(&c);
		ck_assert_uint_lt(e->pool[POOL_OP]->max, 2000);
		v = var_new(e);
		w = var_new(e);
		op[0] = (struct pawl_op)OP(add_one, &ran, W(v));
		for (i = 1; i < 4095; i++)
			op[i] = (struct pawl_op)OP(add_one, &ran, .reads = &v, .nreads = 1);
		op[i] = (struct pawl_op)OP(add_one, &ran, W(v, w));
		g = graph_new(e, op, 4096);
		for (i = 1; i <= 5; i++) {
			OK(pawl_graph_push(e, g, NULL));
			OK(pawl_wait_readable(e, w, SOON_NS, NULL));
			ck_assert_uint_eq(ran, i * 4096);
		}
		OK(pawl_graph_delete(e, g));
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* Ops without bodies order others. */
START_TEST(test_an_op_without_a_body)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	u32 clock = 0;
	struct place p[3] = { { &clock, 0 }, { &clock, 0 }, { &clock, 0 } };
	const struct pawl_op op[] = { OP(note_place, &p[0], W(SLOT(0))),
				      OP(note_place, &p[1], W(SLOT(1))),
				      OP(NULL, NULL, W(SLOT(0), SLOT(1))),
				      OP(note_place, &p[2], R(SLOT(1))) };
	pawl_graph_t g = graph_new(e, op, 4);
	struct pawl_launch l = launch_init();

	l.nvars = 2;
	l.vars = VARS({ 0 }, { 0 });
	OK(pawl_graph_push(e, g, &l));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(p[2].at, 3);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The body and its name, in the order in which they ran. */
START_TEST(test_traces_show_the_bodies)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	const struct pawl_op op[] = { OP(nothing, NULL, W(v), .name = "first"),
				      OP(nothing, NULL, R(v), .name = "second"),
				      OP(nothing, NULL, R(v), .name = "third") };
	pawl_graph_t g = graph_new(e, op, 3);
	char path[] = "/tmp/pawl-graph-XXXXXX", text[8192] = "";
	int fd = mkstemp(path);
	ssize_t n;

	MUST(fd >= 0);
	if (pawl_trace_start(e, 100) != -ENOSYS) {
		OK(pawl_graph_push(e, g, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_trace_stop(e));
		OK(pawl_trace_write(e, path));
		n = read(fd, text, sizeof(text) - 1);
		MUST(n > 0);
		ck_assert(strstr(text, "\"first\"") && strstr(text, "\"second\"") &&
			  strstr(text, "\"third\""));
	}
	close(fd);
	unlink(path);
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

struct dumper {
	struct pawl_engine *e;
	u32 dumps, stop;	/* A */
};

static void *dump_until_stop(void *arg)
{
	struct dumper *d = arg;
	int fd = open("/dev/null", O_WRONLY);

	MUST(fd >= 0);
	while (!load_relaxed(&d->stop)) {
		MUST(!pawl_dump(d->e, fd));
		fetch_add_relaxed(&d->dumps, 1);
	}
	close(fd);
	return NULL;
}

/* A dump reads ops that other threads make at the same time; for the thread sanitizer. */
START_TEST(test_dumps_beside_launches)
{
	struct dumper d = { engine(PAWL_PER_DEVICE, 0), 0, 0 };
	struct pawl_op op[8];
	u64 token[8] = { 0 };
	pawl_graph_t g;
	pthread_t t;
	u32 i, k, seen;

	for (i = 0; i < 8; i++)
		op[i] = (struct pawl_op)OP(NULL, &token[i], .async_fn = keep_token);
	g = graph_new(d.e, op, 8);
	t = spawn(dump_until_stop, &d);
	for (k = 0; k < 100; k++) {
		OK(pawl_graph_push(d.e, g, NULL));
		while (pawl_run_one(d.e))
			;
		seen = load_relaxed(&d.dumps);
		MUST(soon(load_relaxed(&d.dumps) - seen > 1));
		for (i = 0; i < 8; i++)
			OK(pawl_complete(d.e, (pawl_token_t){ token[i] }, 0, NULL));
	}
	OK(pawl_wait_all(d.e, SOON_NS, NULL));
	store_relaxed(&d.stop, 1);
	join(t);
	OK(pawl_graph_delete(d.e, g));
	OK(pawl_engine_destroy(d.e));
}
END_TEST

struct other_op {
	struct pawl_engine *e;
	pawl_var_t v;
	u32 ran, late;
};

static int push_behind(struct pawl_run *run, void *arg)
{
	struct other_op *b = arg;

	MUST(!push_write(b->e, add_one, &b->ran, b->v));
	return 0;
}

static void wait_behind(void *arg, int status)
{
	struct other_op *b = arg;

	b->late += !!pawl_wait_readable(b->e, b->v, SOON_NS, NULL);
}

/*
 * The thread that ends a launch has taken no other op, so a release function of the graph can
 * wait for an op that was ready before.
 */
START_TEST(test_the_end_of_a_launch_delays_no_other_op)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct other_op b = { .e = e, .v = var_new(e) };
	pawl_var_t v = var_new(e);
	struct pawl_op op[3] = { OP(nothing, NULL, W(v)), OP(nothing, NULL, R(v)),
				 OP(push_behind, &b, R(v)) };
	pawl_graph_t g;
	u32 i;

	op[2].release = wait_behind;
	for (i = 0; i < 200; i++)
		OK(push_write(e, nothing, NULL, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < 100 && !b.late; i++) {
		g = graph_new(e, op, 3);
		OK(pawl_graph_push(e, g, NULL));
		OK(pawl_graph_delete(e, g));
		OK(pawl_wait_all(e, SOON_NS, NULL));
	}
	ck_assert_uint_eq(b.late, 0);
	ck_assert_uint_eq(b.ran, 100);
	OK(pawl_engine_destroy(e));
}
END_TEST

static int wait_inside(struct pawl_run *run, void *arg)
{
	struct other_op *b = arg;
	struct thread *t = thread_get(b->e);
	u32 nexts = t->ex.nexts;
	struct pawl_op op = op_write(add_one, &b->ran, &b->v);
	u64 since = t->ex.since;

	/* With this priority it precedes the other nodes. */
	op.priority = 1;
	MUST(!pawl_push(b->e, &op));
	MUST(!pawl_wait_readable(b->e, b->v, SOON_NS, NULL));
	b->late += t->ex.nexts != nexts || (nexts && t->ex.since != since);
	return 0;
}

/* Bodies that wait, and run other bodies meanwhile, count towards their caller's limit. */
START_TEST(test_nested_waits_do_not_extend_a_run)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct other_op b[12];
	pawl_var_t v = var_new(e);
	struct pawl_op op[12] = { OP(nothing, NULL, W(v)) };
	pawl_graph_t g;
	u32 i;

	for (i = 1; i < 12; i++) {
		b[i] = (struct other_op){ .e = e, .v = var_new(e) };
		op[i] = (struct pawl_op)OP(wait_inside, &b[i], .reads = &v, .nreads = 1);
	}
	g = graph_new(e, op, 12);
	for (i = 0; i < 200; i++)
		OK(push_write(e, nothing, NULL, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < 100; i++) {
		OK(pawl_graph_push(e, g, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
	}
	for (i = 1; i < 12; i++) {
		ck_assert_uint_eq(b[i].ran, 100);
		ck_assert_uint_eq(b[i].late, 0);
	}
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

struct long_body {
	struct pawl_engine *e;
	pawl_var_t v;		/* of the other op */
	u32 *clock, at;
	u32 *other;		/* when the other op ran; NULL: another body pushes it */
};

/* Longer than a thread stays with a launch. */
static int long_body(struct pawl_run *run, void *arg)
{
	struct long_body *b = arg;

	b->at = ++*b->clock;
	if (b->other)
		MUST(!push_write(b->e, add_one, b->other, b->v));
	usleep(100);
	return 0;
}

/* Ops that come while a launch has long bodies do not wait for its end. */
START_TEST(test_other_ops_run_between_long_bodies)
{
	int chain;

	for (chain = 0; chain < 2; chain++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
		pawl_var_t v = var_new(e), w = var_new(e);
		struct long_body b[8];
		struct pawl_op op[8];
		u32 clock = 0, i;
		pawl_graph_t g;

		for (i = 0; i < 8; i++) {
			b[i] = (struct long_body){ .e = e, .v = w, .clock = &clock };
			op[i] = (struct pawl_op)OP(long_body, &b[i], .reads = &v, .nreads = 1);
			if (!i || chain)
				op[i] = (struct pawl_op)OP(long_body, &b[i], .writes = &v,
							   .nwrites = 1);
		}
		b[0].other = &clock;
		g = graph_new(e, op, 8);
		OK(pawl_graph_push(e, g, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(clock, 9);
		ck_assert_uint_le(b[2].at, 4);
		/* the other op counted, before the sixth body */
		ck_assert_uint_eq(b[5].at, 7);
		OK(pawl_graph_delete(e, g));
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

SUITE("graph_nodes", test_independent_ops_run_in_parallel,
      test_reads_follow_writes_and_writes_follow_reads,
      test_a_stopped_body_delays_only_what_depends_on_it, test_a_host_runs_one_body_at_a_time,
      test_bodies_are_queued_as_their_launch,
      test_random_graphs_give_what_their_ops_in_order_give,
      test_a_write_waits_for_an_unfinished_read, test_asynchronous_nodes,
      test_a_launch_may_end_while_a_node_of_it_is_completed,
      test_only_the_last_sink_ends_a_launch,
      test_an_asynchronous_node_beside_others_is_the_last,
      test_more_ready_nodes_than_ops, test_an_op_without_a_body, test_traces_show_the_bodies,
      test_dumps_beside_launches, test_the_end_of_a_launch_delays_no_other_op,
      test_nested_waits_do_not_extend_a_run, test_other_ops_run_between_long_bodies)
