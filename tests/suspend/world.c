// SPDX-License-Identifier: Apache-2.0
/* See world.h. */
#include "calls.h"
#include <core/thread.h>

#define ROUND_VARS	8u
#define SPREAD		24u

struct pawl_engine *eng;

struct shared_var shared[NSHARED];
u64 sh_pushed, sh_ran;	/* A */
u64 foreign;		/* A: ops of others that a parked victim may have taken */

/* --- ops on shared vars --- */

static int sh_body(struct pawl_run *run, void *arg)
{
	u32 writes = (u32)(uintptr_t)arg, i;

	for (i = 0; writes; i++, writes >>= 1)
		if (writes & 1)
			shared[i].value++;
	fetch_add_relaxed(&sh_ran, 1);
	return 0;
}

static void sh_async(struct pawl_run *run, void *arg)
{
	sh_body(NULL, arg);
	MUST(!pawl_complete(run->engine, run->token, 0, NULL));
}

u32 sh_vars(pawl_var_t *out, u32 mask)
{
	u32 n = 0, i;

	for (i = 0; mask; i++, mask >>= 1)
		if (mask & 1)
			out[n++] = shared[i].v;
	return n;
}

struct pawl_op sh_op(pawl_var_t *vars, u32 reads, u32 writes)
{
	struct pawl_op op = op_of_fn(sh_body, (void *)(uintptr_t)writes);

	op.nreads = sh_vars(vars, reads);
	op.nwrites = sh_vars(vars + op.nreads, writes);
	op.reads = vars;
	op.writes = vars + op.nreads;
	return op;
}

void sh_count(u32 writes)
{
	u32 i;

	for (i = 0; writes; i++, writes >>= 1)
		if (writes & 1)
			fetch_add_relaxed(&shared[i].writes, 1);
	fetch_add_relaxed(&sh_pushed, 1);
}

int sh_push(u32 reads, u32 writes, s32 prio, u16 prop)
{
	pawl_var_t vars[NSHARED];
	struct pawl_op op = sh_op(vars, reads, writes);
	int rc;

	op.priority = prio;
	op.prop = prop;
	if (prop == PAWL_ASYNC) {
		op.fn = NULL;
		op.async_fn = sh_async;
	}
	rc = pawl_push(eng, &op);
	if (!rc)
		sh_count(writes);
	return rc;
}

/* Check that every op is complete, ran once, and wrote alone. */
void sh_check(void)
{
	u32 i;

	MUST(!pawl_wait_all(eng, 60000000000, NULL));
	MUST(load_acquire(&sh_ran) == load_acquire(&sh_pushed));
	for (i = 0; i < NSHARED; i++) {
		MUST(shared[i].value == load_acquire(&shared[i].writes));
		MUST(version(eng, shared[i].v) == shared[i].value);
	}
}

/* --- a completion queue and a group that victims and others share --- */

pawl_cq_t sh_cq;
pawl_group_t sh_group;
static u64 cq_posted, cq_reaped;	/* A: how many */
static u64 tags_posted, tags_reaped;	/* A: the sums of their tags */

void async_now(struct pawl_run *run, void *arg)
{
	MUST(!pawl_run_canceled(run));
	MUST(!pawl_complete(run->engine, run->token, 0, NULL));
}

/* An op that completes inside its push and reports to the shared queue. */
bool sh_post_try(u32 flags)
{
	struct pawl_op op = PAWL_OP_INIT;
	int rc;

	op.async_fn = async_now;
	op.prop = PAWL_ASYNC;
	op.flags = (uint16_t)(PAWL_OP_CQ | flags);
	op.cq = sh_cq;
	op.group.h = flags & PAWL_OP_GROUP ? sh_group.h : 0;
	op.cost = flags & PAWL_OP_COST ? 3 : 0;
	op.tag = fetch_add_relaxed(&cq_posted, 1) + 1;
	fetch_add_relaxed(&tags_posted, op.tag);
	rc = pawl_push(eng, &op);
	MUST(!rc || rc == -EAGAIN);
	if (!rc)
		return true;
	fetch_add_relaxed(&cq_posted, -1);
	fetch_add_relaxed(&tags_posted, -op.tag);
	return false;
}

void sh_post(u32 flags)
{
	MUST(sh_post_try(flags));
}

/* Only one thread reaps at a time. */
void sh_reap(u32 n)
{
	struct pawl_completion done[32];
	int rc = pawl_cq_reap(eng, sh_cq, done, n), i;

	MUST(rc >= 0 || rc == -EBUSY);
	for (i = 0; i < rc; i++) {
		MUST(!done[i].status);
		fetch_add_relaxed(&tags_reaped, done[i].tag);
	}
	if (rc > 0)
		fetch_add_relaxed(&cq_reaped, (u64)rc);
}

void sh_reap_all(void)
{
	u64 before;

	do {
		before = load_relaxed(&cq_reaped);
		sh_reap(8);
	} while (load_relaxed(&cq_reaped) != before);
}

void sh_reap_named(void)
{
	struct pawl_named_completion done;
	int rc = pawl_cq_reap_named(eng, sh_cq, &done, 1);

	MUST(rc >= 0 || rc == -EBUSY);
	if (rc > 0) {
		MUST(!done.status && !done.op);
		fetch_add_relaxed(&tags_reaped, done.tag);
		fetch_add_relaxed(&cq_reaped, 1);
	}
}

void notes_use(u32 n)
{
	while (n--)
		sh_post(n % 2 ? PAWL_OP_GROUP | PAWL_OP_COST : 0);
	sh_reap(8);
}

static void sh_cq_make(void)
{
	cq_posted = cq_reaped = tags_posted = tags_reaped = 0;
	MUST(!pawl_cq_create(eng, &sh_cq));
	MUST(!pawl_group_create(eng, NULL, &sh_group));
}

/* Each completion arrived once; the group is empty. */
static void sh_cq_end(void)
{
	u64 ops, cost;

	sh_reap_all();
	MUST(cq_posted == cq_reaped && tags_posted == tags_reaped);
	MUST(!pawl_group_count(eng, sh_group, &ops, &cost) && !ops && !cost);
	MUST(!pawl_group_destroy(eng, sh_group));
	MUST(!pawl_cq_destroy(eng, sh_cq));
}

pawl_graph_t oper, diamond;

/* One write to a var that no other thread uses. */
void sh_write_alone(pawl_fn fn)
{
	shared[20].writes++;
	shared[20].value++;
	MUST(!push_write(eng, fn, NULL, shared[20].v));
}

/* --- the world --- */

/* Reads and writes: an op, three that depend on it, one behind these, and one behind that. */
const u32 diamond_masks[DIAMOND][2] = {
	{ 0, 1 }, { 1, 2 }, { 1, 4 }, { 1, 8 }, { 0xe, 0x10 }, { 0x10, 0x20 },
};

static void graph_make(void)
{
	pawl_var_t vars[2], v[DIAMOND][NSHARED];
	struct pawl_op op = sh_op(vars, 0, 3), ops[DIAMOND];
	u32 i;

	MUST(!pawl_graph_create(eng, &op, 1, 0, &oper));
	for (i = 0; i < DIAMOND; i++)
		ops[i] = sh_op(v[i], diamond_masks[i][0], diamond_masks[i][1]);
	MUST(!pawl_graph_create(eng, ops, DIAMOND, 0, &diamond));
}

pawl_var_t feed_var[NFEED];
u64 feed_pushed[NFEED], feed_done[NFEED];	/* done: A */

static u32 born;			/* A */
static void says(void);

__thread bool is_worker;
u32 workers_armed;		/* A: the next worker is this victim; 0: none is */

static void worker_born(void *user, const char *name)
{
	is_worker = true;
	if (workers_armed)
		step_me(&victims[min_u(fetch_add_relaxed(&workers_armed, 1), VICTIMS - 1)]);
	step_unblock();
	fetch_add_relaxed(&born, 1);
}

void world_make(int workers, u64 spin_ns, u32 flags)
{
	struct pawl_config c;
	struct pawl_op op;
	u32 i, j;

	pawl_config_init(&c);
	c.workers = workers;
	c.spin_ns = spin_ns;
	c.max_ops = 1 << 18;
	c.max_vars = 1 << 17;
	c.max_threads = 64;
	c.thread_start = worker_born;
	if (flags & (F_WINDOW | F_BLOCK)) {
		c.window = 32;
		c.window_policy = flags & F_BLOCK ? PAWL_WINDOW_BLOCK : PAWL_WINDOW_FAIL;
	}
	born = 0;
	step_says = says;
	OK(pawl_engine_create(&c, &eng));
	if (flags & F_MOSTLY)
		eng->rm_reads = 0;
	if (flags & F_READY)
		MUST(pawl_ready_fd(eng) >= 0);
	/* The workers start before any thread steps: until then they block signals. */
	op = op_of_fn(nothing, NULL);
	MUST(!pawl_push(eng, &op));
	op.prop = PAWL_CPU_PRIORITIZED;
	MUST(!pawl_push(eng, &op));
	MUST(soon(load_acquire(&born) == (workers ? (u32)workers + 1 : 0)));
	memset(shared, 0, sizeof(shared));
	sh_pushed = sh_ran = 0;
	for (i = 0; i < NSHARED; i++)
		shared[i].v = var_new(eng);
	for (i = 0; i < NFEED; i++)
		feed_var[i] = var_new(eng);
	memset(feed_pushed, 0, sizeof(feed_pushed));
	memset(feed_done, 0, sizeof(feed_done));
	for (i = 0; i < OTHERS; i++) {
		others[i].nvar = NPRIVATE;
		others[i].var = calloc(NPRIVATE, sizeof(pawl_var_t));
		others[i].pushed = calloc(NPRIVATE, sizeof(u64));
		others[i].done = calloc(NPRIVATE, sizeof(u64));
		for (j = 0; j < NPRIVATE; j++)
			others[i].var[j] = var_new(eng);
	}
	graph_make();
	sh_cq_make();
}

void world_end(void)
{
	u32 i;

	MUST(!pawl_graph_delete(eng, oper) && !pawl_graph_delete(eng, diamond));
	sh_check();
	sh_cq_end();
	OK(pawl_engine_destroy(eng));
	eng = NULL;
	for (i = 0; i < OTHERS; i++) {
		free(others[i].var);
		free(others[i].pushed);
		free(others[i].done);
	}
}

/* --- rounds of the others --- */

int store_done(struct pawl_run *run, void *arg)
{
	u64 *done = arg;

	store_release(done, load_relaxed(done) + 1);
	return 0;
}

void body_async(struct pawl_run *run, void *arg)
{
	MUST(!pawl_complete(run->engine, run->token, 0, NULL));
}

/*
 * Each change of a word that a crawling victim reads delays the victim, so the others may make
 * only a limited number of such calls.
 */
s64 sh_budget;			/* A */

/* Push one op of a random kind on private vars. */
static void private_push(struct other *o)
{
	pawl_var_t *v = o->var, fresh;
	struct pawl_op op = op_of_fn(nothing, NULL), batch[3];
	u32 kind = (u32)(rnd(&o->seed) % 11);

	op.writes = v + rnd(&o->seed) % 3;
	op.nwrites = 1;
	/* All threads that use a priority queue access its head, and a delete uses one. */
	if (kind >= 8 && (load_relaxed(&sh_budget) <= 0 || fetch_add_relaxed(&sh_budget, -1) <= 0))
		kind = 0;
	switch (kind) {
	case 0:
		break;
	case 1:
		op.reads = op.writes;
		op.nreads = 1;
		op.nwrites = 0;
		break;
	case 2:
		op.nwrites = 2;
		break;
	case 3:
		op.reads = v + 5;
		op.nreads = 2;
		break;
	case 4:
		op.writes = v;
		op.nwrites = 7;
		break;
	case 5:
		batch[0] = batch[1] = batch[2] = op;
		batch[1].reads = v + 4;
		batch[1].nreads = 2;
		MUST(!pawl_push_batch(eng, batch, 3));
		return;
	case 6:
		op.fn = NULL;
		op.async_fn = body_async;
		break;
	case 7:
		op.prop = PAWL_CPU_PRIORITIZED;
		break;
	case 8:
		MUST(!pawl_var_create(eng, &fresh));
		MUST(!push_write(eng, nothing, NULL, fresh));
		MUST(!pawl_var_delete(eng, fresh, NULL, NULL));
		return;
	case 9:
		op.priority = 5;
		break;
	default:
		op.priority = -5;
	}
	MUST(!pawl_push(eng, &op));
}

void private_push_of(struct other *o, u32 n)
{
	struct pawl_op op = op_of_fn(nothing, NULL);

	op.writes = o->var;
	op.nwrites = n;
	MUST(!pawl_push(eng, &op));
}

/* Pushes on the victim's vars must return; their ops may have to wait for the victim's op. */
static void shared_pushes(struct other *o)
{
	u32 i, n = load_acquire(&sh_pushed) - load_acquire(&sh_ran) > 20000 ? 0 : 2, a, b;

	for (i = 0; i < n && load_relaxed(&sh_budget) > 0; i++) {
		fetch_add_relaxed(&sh_budget, -1);
		a = 1u << rnd(&o->seed) % 4;
		b = 1u << rnd(&o->seed) % 4;
		MUST(!sh_push(i ? a & ~b : 0, b | (i ? 0 : a), 0, 0));
	}
}

/* All private ops must complete. */
void round_strict(struct other *o)
{
	u32 i;

	for (i = 0; i < 5; i++)
		private_push(o);
	shared_pushes(o);
	for (i = 0; i < ROUND_VARS; i++)
		MUST(!pawl_wait_readable(eng, o->var[i], -1, NULL));
}

static u32 outstanding(const u64 *pushed, u64 *done, u32 n)
{
	u32 i, k = 0;

	for (i = 0; i < n; i++)
		k += pushed[i] != load_acquire(&done[i]);
	return k;
}

/* The vars from ROUND_VARS on have no incomplete op. */
static void push_idle(struct other *o, u32 n)
{
	u32 i;

	for (i = ROUND_VARS; i < n; i++) {
		if (o->pushed[i] != load_acquire(&o->done[i]))
			continue;
		o->pushed[i]++;
		MUST(!push_write(eng, store_done, &o->done[i], o->var[i]));
	}
}

/*
 * Completions: those of the queue and the group in which the victim may be stopped, and those of
 * a queue of its own.  A thread that waits for the shared queue has a time limit: another one may
 * reap what it waits for.
 */
static void round_completions(struct other *o)
{
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_completion done[2];
	pawl_ticket_t ticket;
	pawl_cq_t own;
	int n, rc;
	u64 ops;

	if (load_relaxed(&sh_budget) > 0 &&
	    load_relaxed(&cq_posted) - load_relaxed(&cq_reaped) < 1000) {
		fetch_add_relaxed(&sh_budget, -1);
		sh_post(rnd(&o->seed) % 2 ? PAWL_OP_GROUP | PAWL_OP_COST : 0);
		rc = pawl_cq_wait(eng, sh_cq, 20000);
		MUST(!rc || rc == -ETIMEDOUT || rc == -EBUSY);
		sh_reap(8);
	}
	MUST(!pawl_group_count(eng, sh_group, &ops, NULL));
	MUST(!pawl_cq_create(eng, &own));
	op.async_fn = body_async;
	op.prop = PAWL_ASYNC;	/* inside the push */
	op.flags = PAWL_OP_CQ | PAWL_OP_TICKET;
	op.cq = own;
	op.ticket = &ticket;
	MUST(!pawl_push(eng, &op) && !pawl_push(eng, &op));
	MUST(!pawl_ticket_wait(eng, ticket, -1) && !pawl_cq_wait(eng, own, -1));
	for (n = 0; n < 2; n += rc) {
		rc = pawl_cq_reap(eng, own, done, 2);
		MUST(rc > 0);
	}
	MUST(!pawl_cq_destroy(eng, own));
}

/* Wait for all ops, except one of another thread that the victim may have taken. */
void round_spread(struct other *o)
{
	push_idle(o, SPREAD);
	shared_pushes(o);
	while (outstanding(o->pushed, o->done, SPREAD) > load_acquire(&foreign))
		MUST(pawl_run_one(eng) >= 0);
	while (outstanding(feed_pushed, feed_done, NFEED) > load_acquire(&foreign))
		MUST(pawl_run_one(eng) >= 0);
}

void round_strict_cq(struct other *o)
{
	round_completions(o);
	round_strict(o);
}

void round_spread_cq(struct other *o)
{
	round_completions(o);
	round_spread(o);
}

/* The same for ops of all kinds. */
void round_mixed(struct other *o)
{
	u32 i;

	for (i = 0; i < 3; i++)
		private_push(o);
	round_spread(o);
}

/*
 * For the one remaining thread: wait for all earlier ops, except those that victims may have
 * taken, and for all new ones.  That includes reads: the next victim could take a remaining
 * read, and a write of the next round would wait for it.
 */
void round_last(struct other *o)
{
	u32 i;

	while (outstanding(o->pushed, o->done, SPREAD) > load_acquire(&foreign))
		MUST(pawl_run_one(eng) >= 0);
	round_strict(o);
	for (i = 0; i < ROUND_VARS; i++)
		MUST(!pawl_wait_writable(eng, o->var[i], -1, NULL));
	push_idle(o, SPREAD);
}

/*
 * For work that only workers run: push, without waiting or polling.  There are enough pushes to
 * wake a sleeping worker, even if the polling worker is the stopped one.
 */
void round_deaf(struct other *o)
{
	u64 want[NPRIVATE];
	u32 i, left;

	push_idle(o, NPRIVATE);
	shared_pushes(o);
	memcpy(want, o->pushed, sizeof(want));
	do {
		push_idle(o, NPRIVATE);
		for (i = left = 0; i < NPRIVATE; i++)
			left += load_acquire(&o->done[i]) < want[i];
		sched_yield();
	} while (left > load_acquire(&foreign));
}

/* Calls that may fail because something is full, but must return. */
void round_returns(struct other *o)
{
	u32 i;
	int rc;

	for (i = 0; i < 3; i++) {
		rc = push_write(eng, nothing, NULL, o->var[i]);
		MUST(!rc || rc == -EAGAIN || rc == -ENOMEM);
		MUST(pawl_run_one(eng) >= 0);
	}
}

static void says(void)
{
	struct pawl_stats st = stats(eng);
	u32 i, j;

	for (i = 0; i < OTHERS; i++)
		for (j = 0; j < NPRIVATE; j++)
			if (others[i].pushed[j] != load_acquire(&others[i].done[j]))
				fprintf(stderr, "    thread %u waits for the op on its var %u\n", i, j);
	fprintf(stderr, "    in flight %llu, shared %llu, sleeps %llu, wakes %llu\n",
		(unsigned long long)(st.pushed - st.completed),
		(unsigned long long)(load_acquire(&sh_pushed) - load_acquire(&sh_ran)),
		(unsigned long long)st.sleeps, (unsigned long long)st.wakes);
	pawl_dump(eng, 2);
}

void drain(void)
{
	while (pawl_run_one(eng) > 0)
		;
}
