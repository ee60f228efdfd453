// SPDX-License-Identifier: Apache-2.0
/* See calls.h. */
#include "calls.h"
#include <core/thread.h>

#define HELD		21u	/* the shared var for which a body waits */

/* --- what a victim does --- */

static struct gate gate;
static u32 gate_closed;		/* A */

/* Empty the caches, so that the next get of each pool uses the depot. */
static void caches_flush(struct victim *v)
{
	struct thread *t = thread_enter(eng);
	u32 i;

	for (i = 0; i < POOLS; i++)
		pool_cache_flush(eng->pool[i], &t->cache[i]);
}

/* Empty the depot, too, so that the next get returns an object that was never used. */
static u32 *stash;
static u32 stashed;

static void depot_drain(struct victim *v)
{
	static const u32 pools[] = { POOL_OP, POOL_BLOCK };
	struct thread *t = thread_enter(eng);
	u32 i;

	if (!stash)
		stash = calloc(1u << 20, sizeof(*stash));
	for (i = 0; i < 2; i++) {
		struct pool *p = eng->pool[pools[i]];
		struct pool_cache *c = &t->cache[pools[i]];

		while (c->n || c->nspare || pool_depot_count(p)) {
			MUST(pool_get(p, c, &stash[stashed]));
			MUST(++stashed < 1u << 20);
		}
	}
}

/* Fill the caches, so that the next put of each pool uses the depot. */
static void caches_fill(struct victim *v)
{
	static const u32 pools[] = { POOL_OP, POOL_BLOCK };
	struct thread *t = thread_enter(eng);
	struct pool_cache *from;
	u32 i, idx;

	from = calloc(1, sizeof(*from));
	MUST(!sh_push(0, 3, 0, 0));
	for (i = 0; i < 2; i++) {
		struct pool *p = eng->pool[pools[i]];
		struct pool_cache *c = &t->cache[pools[i]];

		while (c->n != p->mag || c->nspare != p->mag) {
			MUST(pool_get(p, from, &idx));
			pool_put(p, c, idx);
		}
		pool_cache_flush(p, from);
	}
	free(from);
}

static void op_w1(struct victim *v) { MUST(!sh_push(0, 1, 0, 0)); }
static void op_r1(struct victim *v) { MUST(!sh_push(1, 0, 0, 0)); }
static void op_w2(struct victim *v) { MUST(!sh_push(0, 3, 0, 0)); }
static void op_rw3(struct victim *v) { MUST(!sh_push(1, 6, 0, 0)); }
static void op_w7(struct victim *v) { MUST(!sh_push(0x11, 0x6e, 0, 0)); }
static void op_w20(struct victim *v) { MUST(!sh_push(0x1f, 0xfffe0, 0, 0)); }
static void op_none(struct victim *v) { MUST(!sh_push(0, 0, 0, 0)); }
static void op_high(struct victim *v) { MUST(!sh_push(0, 1, 7, 0)); }
static void op_low(struct victim *v) { MUST(!sh_push(0, 2, -7, 0)); }
static void op_async(struct victim *v) { MUST(!sh_push(0, 3, 0, PAWL_ASYNC)); }
static void op_run(struct victim *v) { MUST(pawl_run_one(eng) >= 0); }

static void op_batch(struct victim *v)
{
	static const u32 masks[4][2] = { { 0, 3 }, { 1, 8 }, { 0, 6 }, { 7, 0 } };
	pawl_var_t vars[4][4];
	struct pawl_op op[4];
	u32 i;

	for (i = 0; i < 4; i++)
		op[i] = sh_op(vars[i], masks[i][0], masks[i][1]);
	MUST(!pawl_push_batch(eng, op, 4));
	for (i = 0; i < 4; i++)
		sh_count(masks[i][1]);
}

static void op_life(struct victim *v)
{
	pawl_var_t x;

	MUST(!pawl_var_create(eng, &x));
	MUST(!push_read(eng, nothing, NULL, x));
	MUST(!pawl_var_delete(eng, x, NULL, NULL));
}

static void op_oper(struct victim *v)
{
	MUST(!pawl_graph_push(eng, oper, NULL));
	sh_count(3);
}

static void op_diamond(struct victim *v)
{
	u32 i;

	MUST(!pawl_graph_push(eng, diamond, NULL));
	for (i = 0; i < DIAMOND; i++)
		sh_count(diamond_masks[i][1]);
}

static void op_diamond_wait(struct victim *v)
{
	op_diamond(v);
	MUST(!pawl_wait_readable(eng, shared[5].v, -1, NULL));
}

/* The wait runs ready ops, perhaps those of others. */
static void op_wait(struct victim *v)
{
	MUST(!sh_push(0, 3, 0, 0));
	MUST(!pawl_wait_readable(eng, shared[0].v, -1, NULL));
}

static void op_wait_writable(struct victim *v)
{
	MUST(!sh_push(2, 1, 0, 0));
	MUST(!pawl_wait_writable(eng, shared[1].v, -1, NULL));
}

static void op_look(struct victim *v)
{
	u64 n;
	int rc = pawl_wait_all(eng, 0, NULL);

	MUST(!rc || rc == -ETIMEDOUT);
	MUST(!pawl_var_version(eng, shared[0].v, &n));
	MUST(pawl_var_error(eng, shared[0].v, NULL) == 0);
}

/* Once. */
void gate_open_now(void)
{
	if (xchg_acq_rel(&gate_closed, 0))
		MUST(!pawl_complete(eng, gate.token, 0, NULL));
}

static void op_complete(struct victim *v) { gate_open_now(); }

/* Push an op that fails on a private var, and take its error. */
static void fail_now(struct pawl_run *run, void *arg)
{
	MUST(!pawl_complete(run->engine, run->token, -EIO, "as it should"));
}

static void op_fail(struct victim *v)
{
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_error err = { 0 };
	pawl_var_t x[2];

	MUST(!pawl_var_create(eng, &x[0]) && !pawl_var_create(eng, &x[1]));
	op.async_fn = fail_now;
	op.writes = x;
	op.nwrites = 1;
	op.prop = PAWL_ASYNC;	/* inside the push */
	MUST(!pawl_push(eng, &op));
	/* Push an op that is skipped and passes the error on. */
	op.reads = &x[0];
	op.nreads = 1;
	op.writes = &x[1];
	MUST(!pawl_push(eng, &op));
	MUST(pawl_var_take(eng, x[1], &err) == -EIO && err.code == -EIO);
	MUST(!pawl_var_clear(eng, x[0]));
	MUST(!pawl_var_delete(eng, x[0], NULL, NULL) && !pawl_var_delete(eng, x[1], NULL, NULL));
}

/* A completion queue, and an op with a ticket that reports to it. */
static void op_cq(struct victim *v)
{
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_completion done;
	pawl_ticket_t ticket;
	pawl_cq_t cq;

	MUST(!pawl_cq_create(eng, &cq));
	op.async_fn = body_async;
	op.prop = PAWL_ASYNC;	/* inside the push */
	op.flags = PAWL_OP_CQ | PAWL_OP_TICKET;
	op.cq = cq;
	op.ticket = &ticket;
	MUST(!pawl_push(eng, &op));
	MUST(pawl_ticket_state(eng, ticket) == PAWL_TICKET_COMPLETE);
	MUST(pawl_cancel(eng, ticket));
	MUST(pawl_cq_reap(eng, cq, &done, 1) == 1 && !done.status);
	MUST(!pawl_cq_destroy(eng, cq));
}

static void op_post(struct victim *v) { sh_post(0); }
static void op_post_group(struct victim *v) { sh_post(PAWL_OP_GROUP | PAWL_OP_COST); }
static void op_reap(struct victim *v) { sh_reap(2); }
static void op_reap_named(struct victim *v) { sh_reap_named(); }

static void pre_posted(struct victim *v)
{
	u32 i;

	for (i = 0; i < 3; i++)
		sh_post(0);
}

/* A queue with a descriptor, which is written and cleared. */
static pawl_cq_t fd_cq;

static void pre_cq_fd(struct victim *v)
{
	MUST(!pawl_cq_create(eng, &fd_cq));
}

static void op_cq_fd(struct victim *v)
{
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_completion done;
	u32 i;

	MUST(pawl_cq_fd(eng, fd_cq) >= 0);
	op.async_fn = async_now;
	op.prop = PAWL_ASYNC;
	op.flags = PAWL_OP_CQ;
	op.cq = fd_cq;
	MUST(!pawl_push(eng, &op) && !pawl_push(eng, &op));
	/* The rest keeps it readable. */
	for (i = 0; i < 2; i++)
		MUST(pawl_cq_reap(eng, fd_cq, &done, 1) == 1);
	MUST(pawl_cq_reap(eng, fd_cq, &done, 1) == 0);
	MUST(!pawl_cq_destroy(eng, fd_cq));
}

/* An op that stays in flight until the token is completed. */
static void async_held(struct pawl_run *run, void *arg)
{
	*(pawl_token_t *)arg = run->token;
}

static struct pawl_op op_held(pawl_token_t *token, pawl_var_t *x)
{
	struct pawl_op op = PAWL_OP_INIT;

	op.async_fn = async_held;
	op.arg = token;
	op.prop = PAWL_ASYNC;	/* inside the push */
	op.writes = x;
	op.nwrites = x ? 1 : 0;
	return op;
}

/* An op whose deadline has passed; its error is taken. */
static void op_deadline(struct victim *v)
{
	struct pawl_op op;
	struct pawl_error err = { 0 };
	pawl_ticket_t ticket;
	pawl_token_t token;
	pawl_var_t x;

	MUST(!pawl_var_create(eng, &x));
	op = op_held(&token, &x);
	op.flags = PAWL_OP_DEADLINE | PAWL_OP_TICKET;
	op.ticket = &ticket;
	op.deadline_ns = 1;
	MUST(!pawl_push(eng, &op));
	MUST(!pawl_ticket_wait(eng, ticket, 0));
	MUST(pawl_var_take(eng, x, &err) == -ETIMEDOUT);
	MUST(!pawl_var_delete(eng, x, NULL, NULL));
}

/* An op that is canceled behind one that runs, and one that is canceled too late. */
static void op_cancel(struct victim *v)
{
	pawl_ticket_t first, second;
	struct pawl_error err = { 0 };
	pawl_token_t token;
	struct pawl_op op;
	pawl_var_t x;

	MUST(!pawl_var_create(eng, &x));
	op = op_held(&token, &x);
	op.flags = PAWL_OP_TICKET;
	op.ticket = &first;
	MUST(!pawl_push(eng, &op));
	op.ticket = &second;
	MUST(!pawl_push(eng, &op));
	MUST(pawl_cancel(eng, first) == -EINPROGRESS && !pawl_cancel(eng, second));
	MUST(pawl_ticket_state(eng, second) == PAWL_TICKET_QUEUED);
	MUST(pawl_ticket_wait(eng, second, 0) == -ETIMEDOUT);
	MUST(!pawl_complete_with(eng, token, 0, NULL, NULL));
	MUST(!pawl_ticket_wait(eng, second, -1));
	MUST(pawl_var_take(eng, x, &err) == -ECANCELED);
	MUST(!pawl_var_delete(eng, x, NULL, NULL));
}

/* A group: a push beyond its limit, cancel, the report that there is room, the end. */
static void op_group(struct victim *v)
{
	struct pawl_group_limits l = { .size = sizeof(l), .ops = 1, .tag = 9 };
	struct pawl_completion done;
	pawl_token_t token;
	pawl_group_t g;
	struct pawl_op op = op_held(&token, NULL);
	u64 ops;

	MUST(!pawl_cq_create(eng, &l.cq));
	MUST(!pawl_group_create(eng, &l, &g));
	op.flags = PAWL_OP_GROUP | PAWL_OP_COST;
	op.group = g;
	op.cost = 2;
	MUST(!pawl_push(eng, &op));
	MUST(pawl_push(eng, &op) == -EAGAIN);
	MUST(!pawl_group_count(eng, g, &ops, NULL) && ops == 1);
	MUST(!pawl_group_cancel(eng, g));
	MUST(pawl_group_wait(eng, g, 0) == -ETIMEDOUT);
	MUST(pawl_group_destroy(eng, g) == -EBUSY);
	MUST(!pawl_complete(eng, token, 0, NULL));
	MUST(!pawl_group_wait(eng, g, -1));
	MUST(pawl_cq_reap(eng, l.cq, &done, 1) == 1 && done.tag == 9);
	fd_cq = l.cq;
	l.cq.h = 0;
	l.ops = 2;
	MUST(!pawl_group_limit(eng, g, &l));
	MUST(!pawl_group_destroy(eng, g));
	MUST(!pawl_cq_destroy(eng, fd_cq));
}

/* Waits for the shared queue, and for a ticket and a group, that give up. */
static void op_wait_notes(struct victim *v)
{
	pawl_ticket_t ticket;
	pawl_token_t token;
	struct pawl_op op = op_held(&token, NULL);
	int rc;

	op.flags = PAWL_OP_GROUP | PAWL_OP_TICKET;
	op.group = sh_group;
	op.ticket = &ticket;
	MUST(!pawl_push(eng, &op));
	rc = pawl_cq_wait(eng, sh_cq, 2000);
	MUST(!rc || rc == -ETIMEDOUT || rc == -EBUSY);
	MUST(pawl_ticket_wait(eng, ticket, 2000) == -ETIMEDOUT);
	MUST(pawl_group_wait(eng, sh_group, 2000) == -ETIMEDOUT);
	MUST(!pawl_complete(eng, token, 0, NULL));
	MUST(!pawl_ticket_wait(eng, ticket, -1));
}

/* A wait that is interrupted, and runs no op. */
static void op_interrupt(struct victim *v)
{
	pawl_token_t token;
	pawl_var_t x;
	struct pawl_op op;
	int rc;

	MUST(!pawl_var_create(eng, &x));
	op = op_held(&token, &x);
	MUST(!pawl_push(eng, &op));
	pawl_interrupt(eng);
	rc = pawl_wait(eng, PAWL_WAIT_READABLE | PAWL_WAIT_INTR | PAWL_WAIT_NO_HELP, x.h, 2000, NULL);
	MUST(rc == -EINTR || rc == -ETIMEDOUT);
	MUST(!pawl_complete(eng, token, 0, NULL));
	MUST(!pawl_var_delete(eng, x, NULL, NULL));
}

/* Bodies that fail; another thread may run them. */
static int body_fail(struct pawl_run *run, void *arg)
{
	return arg ? pawl_fail_with(run, -EIO, "as it should", NULL) :
		     pawl_fail(run, -EIO, "as it should");
}

static bool run_until_done(void *arg)
{
	return true;
}

static void op_fail_body(struct victim *v)
{
	struct pawl_error err = { 0 };
	pawl_var_t x;

	MUST(!pawl_var_create(eng, &x));
	MUST(!push_write(eng, body_fail, NULL, x));
	MUST(pawl_wait_writable(eng, x, -1, &err) == -EIO);
	MUST(!push_write(eng, body_fail, &err, x));
	MUST(pawl_wait_readable(eng, x, -1, &err) == -EIO);
	MUST(!pawl_run_until(eng, run_until_done, NULL, 0));
	MUST(!pawl_var_delete(eng, x, NULL, NULL));
}

/* Counts; a graph that has nothing to capture. */
static void op_counts(struct victim *v)
{
	struct pawl_queue_stats qs = { .size = sizeof(qs) };
	struct pawl_stats st = { .size = sizeof(st) };

	MUST(!pawl_stats(eng, &st));
	MUST(!pawl_queue_stats(eng, (struct pawl_device){ PAWL_CPU, 0 }, PAWL_NORMAL, &qs));
	MUST(pawl_graph_refresh(eng, oper) == -EINVAL);
}

static void op_trim(struct victim *v)
{
	MUST(!pawl_trim(eng));
}

static void op_ready_fd(struct victim *v)
{
	MUST(pawl_ready_fd(eng) >= 0);
	MUST(pawl_run_one(eng) >= 0);
}

/* Read-mostly mode: its begin, reads of one and of several vars, a write that ends it. */
void mostly_read(struct victim *v)
{
	u32 i;

	for (i = 0; i < 3; i++)
		MUST(!sh_push(15, 1u << 20, 0, 0));
}

static void pre_mostly(struct victim *v)
{
	mostly_read(v);
	drain();
}

static void pre_mostly_run(struct victim *v)
{
	mostly_read(v);
	drain();
	op_r1(v);
}

static void op_r3(struct victim *v) { MUST(!sh_push(7, 1 << 20, 0, 0)); }
static void op_w3(struct victim *v) { MUST(!sh_push(8, 7, 0, 0)); }

/* A wait that times out, and one that uses its position again. */
static void op_give_up(struct victim *v)
{
	u32 i;

	for (i = 0; i < 2; i++) {
		int rc = pawl_wait_readable(eng, shared[0].v, 2000, NULL);

		MUST(!rc || rc == -ETIMEDOUT);
		rc = pawl_wait_writable(eng, shared[1].v, 2000, NULL);
		MUST(!rc || rc == -ETIMEDOUT);
	}
}

/* Delete a var for which readers and a writer wait. */
static void op_delete(struct victim *v)
{
	pawl_var_t x, two[2];
	struct pawl_op op = op_of_fn(nothing, NULL);

	MUST(!pawl_var_create(eng, &x));
	two[0] = x;
	two[1] = shared[3].v;
	op.reads = two;
	op.nreads = 2;
	MUST(!pawl_push(eng, &op));
	MUST(!push_write(eng, nothing, NULL, x));
	MUST(!push_read(eng, nothing, NULL, x));
	MUST(!pawl_var_delete(eng, x, nothing, NULL));
	MUST(push_read(eng, nothing, NULL, x) == -ESTALE);
}

static void op_refused(struct victim *v)
{
	int rc = sh_push(0, 3, 0, 0);

	MUST(!rc || rc == -EAGAIN);
}

/* Before the stop: the state that the op finds. */
static void pre_one(struct victim *v) { op_w2(v); }
static void pre_prio(struct victim *v) { op_high(v); op_high(v); op_low(v); }
static void pre_low(struct victim *v) { op_low(v); op_low(v); }

void gate_hold(u32 mask)
{
	pawl_var_t vars[NSHARED];
	u32 i, n = sh_vars(vars, mask);

	MUST(!gate_push(eng, &gate, NULL, 0, vars, n));
	drain();
	MUST(soon(load_acquire(&gate.running)));
	for (i = 0; i < NSHARED; i++) {
		if (!(mask >> i & 1))
			continue;
		fetch_add_relaxed(&shared[i].writes, 1);
		shared[i].value++;
	}
	store_release(&gate_closed, 1);
}

/* Hold vars 0 and 1, and push a reader and a writer behind, which no victim delays. */
static void pre_gate(struct victim *v)
{
	gate_push(eng, &gate, NULL, 0, (pawl_var_t[]){ shared[0].v, shared[1].v }, 2);
	fetch_add_relaxed(&shared[0].writes, 1);
	fetch_add_relaxed(&shared[1].writes, 1);
	MUST(soon(load_acquire(&gate.running)));
	shared[0].value++;
	shared[1].value++;
	MUST(!sh_push(1, 0, 0, 0));
	MUST(!sh_push(1, 0, 0, 0));
	MUST(!sh_push(0, 3, 0, 0));
	MUST(!sh_push(1, 0, 3, 0));
	store_release(&gate_closed, 1);
}

/*
 * While the victim is stopped, another thread opens the gate.  The ops that were pushed behind
 * it before the victim's call must complete.
 */
static u64 gate_limit;

static void pre_behind(struct victim *v)
{
	u64 n;

	MUST(!pawl_var_version(eng, shared[0].v, &n));
	pre_gate(v);
	store_release(&gate_limit, n + 2);	/* the gate, and the writer behind it */
}

static void round_behind(struct other *o)
{
	u64 n;

	gate_open_now();
	do {
		MUST(pawl_run_one(eng) >= 0);
		MUST(!pawl_var_version(eng, shared[0].v, &n));
	} while (n < load_acquire(&gate_limit));
	round_strict(o);
}

/* As after many short runs, so that a take from another thread's ring takes a batch. */
static void pre_feed(struct victim *v)
{
	thread_enter(eng)->ex.batch = 16;
}

void feeder(void)
{
	u32 i;

	for (i = 0; i < NFEED; i++) {
		if (feed_pushed[i] != load_acquire(&feed_done[i]))
			continue;
		feed_pushed[i]++;
		MUST(!push_write(eng, store_done, &feed_done[i], feed_var[i]));
	}
}

static void pre_window(struct victim *v)
{
	u32 i;

	for (i = 0; i < 40; i++)
		if (sh_push(0, 1, 0, 0))
			break;
}

static void pre_asleep(struct victim *v)
{
	nap_us(80);
}

static u32 bodies_inside;	/* A: bodies that wait */

static int body_waits(struct pawl_run *run, void *arg)
{
	store_release(&bodies_inside, 1);
	MUST(!pawl_wait_readable(run->engine, shared[HELD].v, -1, NULL));
	store_release(&bodies_inside, 0);
	return 0;
}

/* The only worker is in a body that waits, until the gate is opened after the victim's call. */
static void pre_inside(struct victim *v)
{
	struct pawl_op op = op_of_fn(body_waits, NULL);

	MUST(soon(!load_acquire(&bodies_inside)));
	MUST(!gate_push(eng, &gate, NULL, 0, &shared[HELD].v, 1));
	fetch_add_relaxed(&shared[HELD].writes, 1);
	shared[HELD].value++;
	store_release(&gate_closed, 1);
	MUST(!pawl_push(eng, &op));
	MUST(soon(load_acquire(&bodies_inside)));
	pre_asleep(v);
}

/* Completions that nobody reaped fill the window. */
static void pre_unreaped(struct victim *v)
{
	sh_reap_all();
	drain();
	while (sh_post_try(0))
		;
}

static void op_reap_all(struct victim *v) { sh_reap(32); }

const struct call calls[] = {
	{ "push 1 write", NULL, op_w1, round_strict, F_BUSY | F_ANY, NULL },
	{ "push 1 read", NULL, op_r1, round_strict, F_BUSY | F_ANY, NULL },
	{ "push 2 writes", NULL, op_w2, round_strict, F_BUSY | F_ANY, NULL },
	{ "push read, 2 writes", NULL, op_rw3, round_strict, F_BUSY | F_ANY, NULL },
	{ "push 7", NULL, op_w7, round_strict, F_BUSY | F_ANY, NULL },
	{ "push 20", NULL, op_w20, round_strict, F_ANY, NULL },
	{ "push none", NULL, op_none, round_strict, F_ANY, NULL },
	{ "push high", NULL, op_high, round_strict, F_BUSY | F_ANY, NULL },
	{ "push low", NULL, op_low, round_strict, F_BUSY | F_ANY, NULL },
	{ "push async", NULL, op_async, round_strict, F_ANY, NULL },
	{ "push batch", NULL, op_batch, round_strict, F_BUSY | F_ANY, NULL },
	{ "push graph", NULL, op_oper, round_strict, F_ANY, NULL },
	{ "push graph of 6", NULL, op_diamond, round_strict, F_BUSY | F_ANY, "pawl_graph_push" },
	{ "run graph of 6", NULL, op_diamond_wait, round_spread, F_TAKES | F_ANY | F_WAITS,
	  "node_run" },
	{ "push behind, 1", pre_behind, op_w1, round_behind, 0, NULL },
	{ "push behind, 2", pre_behind, op_w2, round_behind, 0, NULL },
	{ "push behind, 3", pre_behind, op_rw3, round_behind, 0, NULL },
	{ "push, caches empty", caches_flush, op_w2, round_strict, 0, NULL },
	{ "push, depot empty", depot_drain, op_w2, round_strict, 0, NULL },
	{ "run, caches full", caches_fill, op_run, round_spread, F_TAKES, NULL },
	{ "run own", pre_one, op_run, round_spread, F_BUSY | F_TAKES | F_ANY, NULL },
	{ "run high", pre_prio, op_run, round_spread, F_BUSY | F_TAKES | F_ANY, NULL },
	{ "run low", pre_low, op_run, round_spread, F_BUSY | F_TAKES | F_ANY, NULL },
	{ "run nothing", NULL, op_run, round_spread, F_BUSY | F_TAKES | F_ANY, NULL },
	{ "run batch", pre_feed, op_run, round_spread, F_TAKES | F_FEED, NULL },
	{ "complete", pre_gate, op_complete, round_strict, 0, NULL },
	{ "create, delete", NULL, op_life, round_strict, F_BUSY | F_ANY, NULL },
	{ "look", NULL, op_look, round_strict, F_BUSY | F_ANY, NULL },
	{ "wait", NULL, op_wait, round_spread, F_BUSY | F_TAKES | F_ANY | F_WAITS, NULL },
	{ "wait writable", NULL, op_wait_writable, round_spread, F_TAKES | F_ANY | F_WAITS,
	  NULL },
	{ "push, window full", pre_window, op_refused, round_returns, F_WINDOW, NULL },
	{ "reap, window full", pre_unreaped, op_reap_all, round_returns, F_WINDOW,
	  "pawl_cq_reap" },
	{ "reap, window full, pushes block", pre_unreaped, op_reap_all, round_returns, F_BLOCK,
	  "pawl_cq_reap" },
	{ "push, wake", pre_asleep, op_w1, round_deaf, F_WORKERS, NULL },
	{ "push high, wake", pre_asleep, op_high, round_deaf, F_WORKERS, NULL },
	{ "push, wake the only one", pre_asleep, op_w1, round_deaf, F_WORKER, NULL },
	{ "push while its body waits", pre_inside, op_w1, round_deaf, F_WORKER, NULL },
	{ "complete, wake", pre_gate, op_complete, round_deaf, F_WORKERS, NULL },
	{ "fail, skip, take", NULL, op_fail, round_strict, F_BUSY, NULL },
	{ "completion queue, ticket", NULL, op_cq, round_strict, F_BUSY | F_ANY, NULL },
	{ "delete behind others", NULL, op_delete, round_strict, F_BUSY | F_ANY, NULL },
	{ "completion", NULL, op_post, round_strict_cq, F_BUSY | F_ANY, "note_end" },
	{ "completion in a group", NULL, op_post_group, round_strict_cq, F_BUSY | F_ANY,
	  "group_leave" },
	{ "reap", pre_posted, op_reap, round_strict_cq, F_BUSY | F_ANY, "pawl_cq_reap" },
	{ "reap with a name", pre_posted, op_reap_named, round_strict_cq, F_BUSY | F_ANY,
	  "pawl_cq_reap_named" },
	{ "queue with a descriptor", pre_cq_fd, op_cq_fd, round_strict_cq, 0, "pawl_cq_fd" },
	{ "deadline", NULL, op_deadline, round_strict_cq, F_BUSY, "note_begin" },
	{ "cancel", NULL, op_cancel, round_spread_cq, F_BUSY | F_TAKES | F_WAITS,
	  "pawl_cancel" },
	{ "group", NULL, op_group, round_strict_cq, F_BUSY, "pawl_group_limit" },
	{ "wait for notes, give up", NULL, op_wait_notes, round_spread_cq, F_TAKES | F_WAITS,
	  "ticket_wait" },
	{ "interrupt", NULL, op_interrupt, round_strict_cq, F_BUSY, "pawl_interrupt" },
	{ "fail in a body", NULL, op_fail_body, round_spread, F_TAKES | F_WAITS, NULL },
	{ "counts", NULL, op_counts, round_strict, F_BUSY, "pawl_queue_stats" },
	{ "trim", caches_flush, op_trim, round_spread, F_READY | F_TAKES, "pawl_trim" },
	{ "run, ready descriptor", pre_one, op_ready_fd, round_spread, F_READY | F_TAKES,
	  "exec_take_ready" },
	{ "push, ready descriptor", op_run, op_w1, round_spread, F_READY | F_TAKES,
	  "ready_wake" },
	{ "read, read-mostly", pre_mostly, op_r1, round_strict, F_MOSTLY | F_BUSY, "rm_read" },
	{ "read 3, read-mostly", pre_mostly, op_r3, round_strict, F_MOSTLY | F_BUSY,
	  "rm_read" },
	{ "write, read-mostly", pre_mostly, op_w3, round_strict, F_MOSTLY | F_BUSY, "rm_end" },
	{ "run, read-mostly", pre_mostly_run, op_run, round_spread, F_MOSTLY | F_TAKES,
	  "rm_leave" },
	{ "wait, give up", pre_gate, op_give_up, round_spread, F_TAKES | F_WAITS, NULL },
};

BUILD_BUG_ON(ARRAY_SIZE(calls) != NCALLS);

const struct call *call_named(const char *name)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(calls) && strcmp(calls[i].name, name); i++)
		;
	MUST(i < ARRAY_SIZE(calls));
	return &calls[i];
}

const struct call *call_random(u64 *seed, u32 without)
{
	const struct call *c;

	do
		c = &calls[rnd(seed) % ARRAY_SIZE(calls)];
	while (!(c->flags & F_ANY) || (c->flags & without));
	return c;
}

u32 stop_loops;	/* A */

void job_loop(struct victim *v)
{
	while (!load_acquire(&stop_loops)) {
		const struct call *c = call_random(&v->seed, 0);

		if (load_acquire(&sh_pushed) - load_acquire(&sh_ran) > 2000)
			MUST(pawl_run_one(eng) >= 0);
		else
			c->op(v);
	}
}
