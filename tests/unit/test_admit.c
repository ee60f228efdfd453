// SPDX-License-Identifier: Apache-2.0
/*
 * core/admit.c: a push waits for, or is refused, room in the window and objects of the pools.
 */
#include "util.h"
#include <core/admit.h>
#include <core/wait.h>

/* Refuses fresh memory while it is set. */
static u32 refuse;	/* A */

int pool_commit_hook(const char *what, size_t bytes)
{
	return load_relaxed(&refuse) ? -ENOMEM : 0;
}

static struct pawl_config window(int workers, u32 n, int policy)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, workers);

	c.window = n;
	c.window_policy = policy;
	return c;
}

/* Bodies that wait for a word. */
static int until_set(struct pawl_run *run, void *arg)
{
	MUST(soon(load_acquire((u32 *)arg)));
	return 0;
}

/* --- the window --- */

/* Several pushers at the limit: never one too many is admitted. */
struct race {
	struct pawl_engine *e;
	pthread_barrier_t *bar;
	u32 rounds, in;		/* in: A */
};

static void *race_main(void *arg)
{
	struct race *r = arg;
	pawl_var_t v = var_new(r->e);
	u32 i;

	for (i = 0; i < r->rounds; i++) {
		pthread_barrier_wait(r->bar);
		if (!push_write(r->e, nothing, NULL, v))
			fetch_add_relaxed(&r->in, 1);
		if (!push_write(r->e, nothing, NULL, v))
			fetch_add_relaxed(&r->in, 1);
		pthread_barrier_wait(r->bar);
	}
	return NULL;
}

START_TEST(test_failing_window_is_exact_with_several_pushers)
{
	struct pawl_config c = window(0, 4, PAWL_WINDOW_FAIL);
	pthread_barrier_t bar;
	struct race r = { engine_with(&c), &bar, TIMES(20000), 0 };
	pthread_t t[3];
	u32 i;

	MUST(!pthread_barrier_init(&bar, NULL, 4));
	for (i = 0; i < 3; i++)
		t[i] = spawn(race_main, &r);
	for (i = 0; i < r.rounds; i++) {
		store_relaxed(&r.in, 0);
		pthread_barrier_wait(&bar);
		pthread_barrier_wait(&bar);
		MUST(load_relaxed(&r.in) <= 4);
		while (pawl_run_one(r.e))
			;
	}
	for (i = 0; i < 3; i++)
		join(t[i]);
	OK(pawl_engine_destroy(r.e));
}
END_TEST

/*
 * One worker, which has completed some ops, is in a body that waits for the pusher: there is
 * room, and the pusher is admitted, however little room there is.
 */
static void blocked(u32 before)
{
	struct pawl_config c = window(1, 32, PAWL_WINDOW_BLOCK);
	struct pawl_engine *e;
	u32 go = 0, n = 0, i;
	pawl_var_t v;

	e = engine_with(&c);
	v = var_new(e);
	for (i = 0; i < before; i++)
		OK(push_write(e, add_one, &n, v));
	OK(push_write(e, until_set, &go, v));
	/* Push until the window is full, and one more. */
	for (i = before + 1; i < 33; i++)
		OK(push_write(e, add_one, &n, v));
	store_release(&go, 1);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 32);
	/* It waits no longer: completions have no thread to wake. */
	ck_assert_uint_eq(load_relaxed(&e->nflight), 0);
	OK(pawl_engine_destroy(e));
}

START_TEST(test_blocked_pusher_goes_on_when_there_is_room)
{
	u32 before;

	for (before = 1; before < 30; before++)
		blocked(before);
}
END_TEST

/* Completes ops of another thread, and then pushes until the window is full. */
struct runner {
	struct pawl_engine *e;
	pawl_var_t held;
	u32 runs, ran, fill, most;	/* ran, fill: A */
};

static void *runner_main(void *arg)
{
	struct runner *r = arg;
	u32 i;

	for (i = 0; i < r->runs;)
		i += (u32)pawl_run_one(r->e);
	MUST(soon(load_acquire(&r->fill)));
	for (i = 0; i < 512; i++) {
		MUST(!push_write(r->e, nothing, NULL, r->held));
		r->most = max_u(r->most, (u32)ops_in_flight(r->e));
	}
	return NULL;
}

static bool waits_at_the_window(const struct pawl_engine *e)
{
	struct thread *t;
	u32 i;

	for_each_live(e, t, i)
		if (load_relaxed(&t->waits_flight))
			return true;
	return false;
}

/* Without workers a push at the window runs ops, and goes on when these have made room. */
START_TEST(test_a_helping_push_goes_on_with_little_room)
{
	struct pawl_config c = window(0, 256, PAWL_WINDOW_BLOCK);
	struct pawl_engine *e = engine_with(&c);
	pawl_var_t v = var_new(e);
	u32 n = 0, i, ready = 30;
	struct gate g;

	/* Those behind the gate cannot be run. */
	gate_write(e, &g, v);
	for (i = 0; i < ready; i++)
		OK(push_write(e, add_one, &n, var_new(e)));
	for (i = 0; !load_relaxed(&n); i++)
		OK(push_write(e, nothing, NULL, v));
	ck_assert_uint_le(n, ready);
	ck_assert_uint_ge(i, 256 - 2 * ready);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, ready);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Ops that a thread completed for others give it no room beyond the window later. */
START_TEST(test_completing_for_others_gives_no_more_room)
{
	struct pawl_config c = window(0, 256, PAWL_WINDOW_BLOCK);
	struct runner r = { .e = engine_with(&c), .runs = 1000 };
	pawl_var_t v = var_new(r.e);
	pawl_token_t token;
	struct pawl_op op;
	pthread_t t;
	u32 i;

	r.held = var_new(r.e);
	t = spawn(runner_main, &r);
	for (i = 0; i < r.runs; i++) {
		OK(push_write(r.e, add_one, &r.ran, v));
		if (i % 50 == 49)
			MUST(soon(!ops_in_flight(r.e)));
	}
	op = op_write(NULL, &token, &r.held);
	op.async_fn = keep_token;
	OK(pawl_push(r.e, &op));
	ck_assert_int_eq(pawl_run_one(r.e), 1);
	for (i = 0; i < 100; i++)
		OK(push_write(r.e, nothing, NULL, r.held));
	store_release(&r.fill, 1);
	MUST(soon(waits_at_the_window(r.e)));
	OK(pawl_complete(r.e, token, 0, NULL));
	join(t);
	/* an eighth for each of the two pushers */
	ck_assert_uint_le(r.most, 256 + 2 * 32);
	OK(pawl_wait_all(r.e, SOON_NS, NULL));
	OK(pawl_engine_destroy(r.e));
}
END_TEST

/* Another thread has filled the window with ops that wait behind the body that pushes. */
struct nest {
	pawl_var_t v;
	u32 pushes, full, n;	/* full: A */
};

static int push_when_full(struct pawl_run *run, void *arg)
{
	struct nest *s = arg;
	u32 i;

	MUST(soon(load_acquire(&s->full)));
	for (i = 0; i < s->pushes; i++)
		MUST(!push_write(run->engine, add_one, &s->n, s->v));
	return 0;
}

START_TEST(test_body_pushes_at_a_full_window)
{
	int policy;

	for (policy = PAWL_WINDOW_BLOCK; policy <= PAWL_WINDOW_BLOCK; policy++) {
		struct pawl_config c = window(1, 8, policy);
		struct nest s = { .pushes = 100 };
		struct pawl_engine *e;
		pawl_var_t v;
		u32 i;

		e = engine_with(&c);
		v = var_new(e);
		s.v = var_new(e);
		OK(push_write(e, push_when_full, &s, v));
		for (i = 0; i < 7; i++)
			OK(push_write(e, nothing, NULL, v));
		store_release(&s.full, 1);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(s.n, 100);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

static int push_batch_body(struct pawl_run *run, void *arg)
{
	struct nest *s = arg;
	struct pawl_op op[16];
	u32 i;

	for (i = 0; i < s->pushes; i++)
		op[i] = op_write(add_one, &s->n, &s->v);
	MUST(!pawl_push_batch(run->engine, op, s->pushes));
	return 0;
}

START_TEST(test_body_pushes_a_batch_of_the_windows_size)
{
	int w, policy;

	for (w = 0; w < 3; w++) {
		for (policy = PAWL_WINDOW_BLOCK; policy <= PAWL_WINDOW_BLOCK; policy++) {
			struct pawl_config c = window(w, 16, policy);
			struct pawl_engine *e = engine_with(&c);
			struct nest s = { .v = var_new(e), .pushes = 16 };

			OK(push_write(e, push_batch_body, &s, var_new(e)));
			OK(pawl_wait_all(e, SOON_NS, NULL));
			ck_assert_uint_eq(s.n, 16);
			OK(pawl_engine_destroy(e));
		}
	}
}
END_TEST

/* It waits until nothing is in flight; with a window that fails it can never succeed. */
START_TEST(test_batch_larger_than_the_window)
{
	int policy;

	for (policy = PAWL_WINDOW_FAIL; policy <= PAWL_WINDOW_BLOCK; policy++) {
		struct pawl_config c = window(1, 8, policy);
		struct pawl_engine *e = engine_with(&c);
		pawl_var_t v = var_new(e);
		struct pawl_op op[20];
		u32 n = 0, i;

		for (i = 0; i < 20; i++)
			op[i] = op_write(add_one, &n, &v);
		for (i = 0; i < 5; i++)
			OK(push_write(e, add_one, &n, v));
		if (policy == PAWL_WINDOW_FAIL) {
			FAILS(pawl_push_batch(e, op, 20), -E2BIG, "window");
		} else {
			OK(pawl_push_batch(e, op, 20));
			OK(pawl_push_batch(e, op, 20));
		}
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, policy == PAWL_WINDOW_FAIL ? 5 : 45);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* --- queues without a thread that serves them --- */

START_TEST(test_blocked_pusher_helps_where_nobody_serves)
{
	struct pawl_config c = window(1, 64, PAWL_WINDOW_BLOCK);
	struct pawl_engine *e;
	struct pawl_op op;
	pawl_var_t v;
	u32 n = 0, i;

	c.priority_workers = 0;
	e = engine_with(&c);
	v = var_new(e);
	op = op_write(add_one, &n, &v);
	op.prop = PAWL_CPU_PRIORITIZED;
	for (i = 0; i < 500; i++)
		OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 500);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_blocked_pusher_helps_a_stopped_engine)
{
	struct pawl_config c = window(2, 64, PAWL_WINDOW_BLOCK);
	struct pawl_engine *e = engine_with(&c);
	pawl_var_t v = var_new(e);
	u32 n = 0, i;

	OK(push_write(e, add_one, &n, v));
	OK(pawl_engine_stop(e));
	for (i = 0; i < 500; i++)
		OK(push_write(e, add_one, &n, v));
	OK(pawl_engine_start(e));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 501);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- pools --- */

struct large {
	struct pawl_engine *e;
	pawl_var_t *v;
	u32 nv, total, n;
	struct gate *g;
	u32 most;
};

static struct pawl_op large_op(struct large *l)
{
	struct pawl_op op = op_of_fn(add_one, &l->n);

	op.writes = l->v;
	op.nwrites = 1;
	op.reads = l->v + 1;
	op.nreads = l->nv - 1;
	return op;
}

/* When the pool is used up, and only then, the first op ends. */
static void *opener(void *arg)
{
	struct large *l = arg;

	MUST(soon(stats(l->e).pushed > l->most));
	gate_open(l->g);
	return NULL;
}

static void large_begin(struct large *l, struct gate *g, u32 vars, u64 max_ops, int workers,
			int policy)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, workers);
	u32 i;

	c.window_policy = policy;
	c.max_ops = max_ops;
	l->e = engine_with(&c);
	l->v = calloc(vars, sizeof(*l->v));
	l->nv = vars;
	l->n = 0;
	l->g = g;
	for (i = 0; i < vars; i++)
		l->v[i] = var_new(l->e);
	gate_write(l->e, g, l->v[0]);
	l->most = l->e->pool[vars > 256 ? POOL_EXT2 : vars > 16 ? POOL_EXT1 : POOL_EXT0]->max;
}

static void large_end(struct large *l)
{
	OK(pawl_wait_all(l->e, SOON_NS, NULL));
	OK(pawl_engine_destroy(l->e));
	free(l->v);
}

START_TEST(test_large_ops_wait_for_chunks)
{
	const u32 vars[] = { 5, 20, 300 };
	u32 i, k, w, most;

	for (w = 0; w < 2; w++) {
		for (i = 0; i < COUNT(vars); i++) {
			struct large l;
			struct gate g;
			pthread_t t;

			if (SANITIZED && vars[i] < 300)
				continue;
			large_begin(&l, &g, vars[i], SANITIZED ? 1 << 16 : 1 << 18, (int)w,
				    PAWL_WINDOW_BLOCK);
			most = l.most + TIMES(1000);
			t = spawn(opener, &l);
			for (k = 0; k < most; k++) {
				struct pawl_op op = large_op(&l);

				OK(pawl_push(l.e, &op));
			}
			join(t);
			OK(pawl_wait_all(l.e, SOON_NS, NULL));
			ck_assert_uint_eq(l.n, most);
			large_end(&l);
		}
	}
}
END_TEST

/* With a window that fails: the pool's size, -EAGAIN, and room again. */
START_TEST(test_large_ops_fail_as_the_window)
{
	struct large l;
	struct gate g;
	struct pawl_op op;
	u32 k;

	large_begin(&l, &g, 300, 1 << 16, 0, PAWL_WINDOW_FAIL);
	op = large_op(&l);
	for (k = 0; k < l.most; k++)
		OK(pawl_push(l.e, &op));
	FAILS(pawl_push(l.e, &op), -EAGAIN, "pool");
	gate_open(&g);
	OK(pawl_wait_all(l.e, SOON_NS, NULL));
	OK(pawl_push(l.e, &op));
	large_end(&l);
	ck_assert_uint_eq(l.n, l.most + 1);
}
END_TEST

/* Objects that idle threads once used are available to others. */
static void *one_large(void *arg)
{
	struct large *l = arg;
	struct pawl_op op = large_op(l);

	op.writes = NULL;
	op.nwrites = 0;
	MUST(!pawl_push(l->e, &op));
	MUST(pawl_run_one(l->e) == 1);
	fetch_add_acq_rel(&l->total, 1);
	MUST(soon(load_acquire(&l->total) == 1000));
	return NULL;
}

/* The pool has 64 objects of that size. */
static void idle_threads(u32 vars, u32 max_ops)
{
	struct large l = { 0 };
	pthread_t t[40];
	struct pawl_op op;
	struct gate g;
	u32 k;

	large_begin(&l, &g, vars, max_ops, 0, PAWL_WINDOW_FAIL);
	ck_assert_uint_eq(l.most, 64);
	for (k = 0; k < COUNT(t); k++) {
		t[k] = spawn(one_large, &l);
		MUST(soon(load_acquire(&l.total) == k + 1));
	}
	op = large_op(&l);
	for (k = 0; k < l.most; k++)
		OK(pawl_push(l.e, &op));
	store_release(&l.total, 1000);
	for (k = 0; k < COUNT(t); k++)
		join(t[k]);
	gate_open(&g);
	large_end(&l);
}

START_TEST(test_idle_threads_do_not_starve_large_ops)
{
	idle_threads(100, 1 << 11);
	idle_threads(300, 1 << 16);
}
END_TEST

/* A wait needs an op, too; it is not refused because of ops that others have in flight. */
START_TEST(test_waits_pass_the_window)
{
	struct pawl_config c = window(0, 8, PAWL_WINDOW_FAIL);
	struct pawl_engine *e = engine_with(&c);
	pawl_var_t v = var_new(e);
	u32 n = 0, i;

	for (i = 0; i < 8; i++)
		OK(push_write(e, add_one, &n, v));
	FAILS(push_write(e, add_one, &n, v), -EAGAIN, "window");
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(n, 8);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The system refuses memory: at once, without a wait, and without effect. */
START_TEST(test_refused_memory_is_told_at_once)
{
	int kind;

	for (kind = PAWL_POOLED; kind <= PAWL_NAIVE; kind++) {
		struct pawl_config c = small(kind, 0);
		struct pawl_engine *e;
		struct pawl_op op[6];
		pawl_var_t v[6];
		u32 n = 0, i;

		c.window_policy = PAWL_WINDOW_BLOCK;
		e = engine_with(&c);
		for (i = 0; i < 6; i++) {
			v[i] = var_new(e);
			op[i] = op_write(add_one, &n, &v[i]);
			OK(push_write(e, add_one, &n, v[i]));
		}
		OK(pawl_wait_all(e, SOON_NS, NULL));
		store_relaxed(&refuse, 1);
		/* The op that takes six places at once needs a chunk. */
		FAILS(pawl_push_batch(e, op, 6), -ENOMEM);
		ck_assert_uint_eq(stats(e).pushed, stats(e).completed);
		OK(pawl_push(e, &op[0]));
		store_relaxed(&refuse, 0);
		OK(pawl_push_batch(e, op, 6));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, 13);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* The same for the memory of a launch, after a pool was empty: no completion frees it. */
START_TEST(test_refused_memory_of_a_launch_is_told_at_once)
{
	struct pawl_op op[2] = { PAWL_OP_INIT, PAWL_OP_INIT }, some;
	pawl_graph_t graph;
	struct large l;
	struct gate g;
	u32 k;

	large_begin(&l, &g, 300, 1 << 16, 0, PAWL_WINDOW_FAIL);
	OK(pawl_graph_create(l.e, op, 2, 0, &graph));
	some = large_op(&l);
	for (k = 0; k < l.most; k++)
		OK(pawl_push(l.e, &some));
	FAILS(pawl_push(l.e, &some), -EAGAIN, "pool");
	store_relaxed(&refuse, 1);
	FAILS(pawl_graph_push(l.e, graph, NULL), -ENOMEM, "graph_push", "memory");
	store_relaxed(&refuse, 0);
	OK(pawl_graph_push(l.e, graph, NULL));
	OK(pawl_graph_delete(l.e, graph));
	gate_open(&g);
	large_end(&l);
}
END_TEST

/* --- bodies --- */

/* Push one, wait for it, recurse. */
struct deep {
	pawl_var_t v[301];
	u32 id[301];
	u32 n;			/* A */
};

static struct deep *dp;

static int recurse(struct pawl_run *run, void *arg)
{
	u32 i = *(u32 *)arg;

	fetch_add_relaxed(&dp->n, 1);
	if (i == 300)
		return 0;
	MUST(!push_write(run->engine, recurse, &dp->id[i + 1], dp->v[i + 1]));
	MUST(!pawl_wait_readable(run->engine, dp->v[i + 1], -1, NULL));
	return 0;
}

START_TEST(test_recursion_deeper_than_threads_help)
{
	int w;
	u32 i;

	dp = calloc(1, sizeof(*dp));
	for (w = 0; w < 4; w++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, w);

		dp->n = 0;
		for (i = 0; i <= 300; i++) {
			dp->v[i] = var_new(e);
			dp->id[i] = i;
		}
		OK(push_write(e, recurse, &dp->id[0], dp->v[0]));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(dp->n, 301);
		OK(pawl_engine_destroy(e));
	}
	free(dp);
}
END_TEST

/* Each pushes the next one, which runs inside the push, but not on one stack. */
static u32 chain_left;
static pawl_var_t chain_var[2];

static int chain(struct pawl_run *run, void *arg)
{
	struct pawl_op op;

	if (!--chain_left)
		return 0;
	op = op_write(chain, NULL, &chain_var[chain_left & 1]);
	op.writes = NULL;
	op.nwrites = 0;
	op.prop = PAWL_ASYNC;
	MUST(!pawl_push(run->engine, &op));
	return 0;
}

START_TEST(test_chain_of_inline_pushes_is_bounded)
{
	int w;

	for (w = 0; w < 3; w++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, w);
		struct pawl_op op = op_of_fn(chain, NULL);

		chain_left = TIMES(200000);
		op.prop = PAWL_ASYNC;
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(chain_left, 0);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

static int set(struct pawl_run *run, void *arg)
{
	store_release((u32 *)arg, 1);
	return 0;
}

/* The inline op waits for the other one, which an idle worker runs meanwhile. */
START_TEST(test_batch_queues_before_it_runs_inline)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_op op[2];
	u32 go = 0;

	op[0] = op_write(until_set, &go, &v);
	op[0].prop = PAWL_ASYNC;
	op[1] = op_write(set, &go, &w);
	OK(pawl_push_batch(e, op, 2));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A pool is empty; other threads' ops take an object and free it between this thread's tries. */
START_TEST(test_a_push_that_others_overtake_tries_again)
{
	struct pawl_config c = window(0, 64, PAWL_WINDOW_BLOCK);
	struct pawl_engine *e = engine_with(&c);
	struct thread *t = thread_get(e);
	pawl_var_t v = var_new(e);
	struct pool *p = e->pool[POOL_EXT0];
	u64 idle = 0;
	u32 i;

	p->max = pool_carved(p);
	t->lacks = POOL_EXT0;
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(admit_again(t, &idle), 0);
		/* The other thread's op, which was in flight when this thread tried again. */
		OK(push_write(e, nothing, NULL, v));
		ck_assert_int_eq(pawl_run_one(e), 1);
	}
	ck_assert_int_eq(admit_again(t, &idle), 0);
	/* Nothing was pushed since: there is nothing to wait for. */
	ck_assert_int_eq(admit_again(t, &idle), -ENOMEM);
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("admit", test_failing_window_is_exact_with_several_pushers,
      test_blocked_pusher_goes_on_when_there_is_room,
      test_a_helping_push_goes_on_with_little_room,
      test_completing_for_others_gives_no_more_room, test_body_pushes_at_a_full_window,
      test_body_pushes_a_batch_of_the_windows_size, test_batch_larger_than_the_window,
      test_blocked_pusher_helps_where_nobody_serves,
      test_blocked_pusher_helps_a_stopped_engine, test_large_ops_wait_for_chunks,
      test_large_ops_fail_as_the_window, test_idle_threads_do_not_starve_large_ops,
      test_waits_pass_the_window, test_refused_memory_is_told_at_once,
      test_refused_memory_of_a_launch_is_told_at_once,
      test_recursion_deeper_than_threads_help, test_chain_of_inline_pushes_is_bounded,
      test_batch_queues_before_it_runs_inline, test_a_push_that_others_overtake_tries_again)
