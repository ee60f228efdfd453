// SPDX-License-Identifier: Apache-2.0
/* Errors of calls when something is used up, in use, or wrong, that no other suite names. */
#include "util.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <core/thread.h>
#include <core/var.h>

START_TEST(test_queues_are_used_up)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_completion c;
	pawl_cq_t cq;
	u32 i;

	OK(pawl_cq_create(e, &cq));
	FAILS(pawl_cq_reap(e, cq, NULL, 1), -EINVAL, "cq_reap", "out");
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), 0);
	for (i = 1; i < 1 << 20; i++)
		OK(pawl_cq_create(e, &cq));
	FAILS(pawl_cq_create(e, &cq), -ENOMEM, "cq_create");
	OK(pawl_cq_destroy(e, cq));
	OK(pawl_cq_create(e, &cq));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_groups_are_used_up)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	pawl_group_t g;
	int rc, i = 0;

	c.max_ops = 64;
	c.max_threads = 2;
	e = engine_with(&c);
	while (!(rc = pawl_group_create(e, NULL, &g)) && i < 1 << 21)
		i++;
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert_int_ge(i, 64);
	FAILS(pawl_group_create(e, NULL, &g), -ENOMEM, "group_create");
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_no_descriptor_is_left)
{
	struct rlimit was, none = { 0, 0 };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_cq_t cq;
	int fd;

	OK(pawl_cq_create(e, &cq));
	OK(getrlimit(RLIMIT_NOFILE, &was));
	none.rlim_max = was.rlim_max;
	OK(setrlimit(RLIMIT_NOFILE, &none));
	FAILS(pawl_cq_fd(e, cq), -EMFILE, "cq_fd");
	FAILS(pawl_ready_fd(e), -EMFILE, "ready_fd");
	OK(setrlimit(RLIMIT_NOFILE, &was));
	fd = pawl_cq_fd(e, cq);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_ge(pawl_ready_fd(e), 0);
	/* The engine closes that of a queue which was destroyed, too. */
	OK(pawl_cq_destroy(e, cq));
	OK(pawl_engine_destroy(e));
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
}
END_TEST

/* A wait for a ticket: from inside the op, and beside another thread's. */
static pawl_ticket_t ticket;

static int waits_for_itself(struct pawl_run *run, void *arg)
{
	*(int *)arg = pawl_ticket_wait(run->engine, ticket, -1);
	return 0;
}

static void *waits(void *arg)
{
	int rc;

	while ((rc = pawl_ticket_wait(arg, ticket, -1)) == -EBUSY)
		;
	MUST(!rc);
	return NULL;
}

START_TEST(test_a_ticket_has_one_waiter)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	struct pawl_op op;
	struct gate g;
	int inside = 0, rc;
	pthread_t t;

	op = op_write(waits_for_itself, &inside, &v);
	op.flags = PAWL_OP_TICKET;
	op.ticket = &ticket;
	gate_write(e, &g, v);
	OK(pawl_push(e, &op));
	t = spawn(waits, e);
	/* Now and then this thread is the first. */
	while ((rc = pawl_wait(e, PAWL_WAIT_TICKET | PAWL_WAIT_NO_HELP, ticket.h, 1000, NULL)) ==
	       -ETIMEDOUT)
		;
	ck_assert_int_eq(rc, -EBUSY);
	FAILS(pawl_ticket_wait(e, ticket, 0), -EBUSY, "ticket_wait");
	gate_open(&g);
	join(t);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_int_eq(inside, -EDEADLK);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_every_push_is_refused_at_the_window)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	pawl_graph_t g;
	pawl_var_t v;
	struct pawl_op op;
	u32 n = 0;

	c.window = 1;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	v = var_new(e);
	op = op_write(add_one, &n, &v);
	OK(pawl_graph_create(e, &op, 1, 0, &g));
	OK(pawl_push(e, &op));
	FAILS(pawl_push(e, &op), -EAGAIN, "window");
	FAILS(pawl_push_batch(e, &op, 1), -EAGAIN, "window");
	FAILS(pawl_graph_push(e, g, NULL), -EAGAIN, "window");
	FAILS(pawl_var_delete(e, v, NULL, NULL), -EAGAIN, "window");
	/* None of them had an effect. */
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_int_eq(pawl_run_one(e), 0);
	ck_assert_uint_eq(n, 1);
	OK(pawl_graph_push(e, g, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_push_batch(e, &op, 1));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_var_delete(e, v, NULL, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- a push that is refused keeps nothing --- */

/*
 * How many objects of each pool are in use, so that a leak is reported at its push; leaks.c would
 * find it at the end of the engine.  Only this thread uses the engine.
 */
static void in_use(struct pawl_engine *e, u32 n[POOLS])
{
	struct thread *t = thread_get(e);
	u32 i;

	for (i = 0; i < POOLS; i++) {
		pool_cache_flush(e->pool[i], &t->cache[i]);
		n[i] = pool_carved(e->pool[i]) - pool_depot_count(e->pool[i]);
	}
}

struct bad {
	pawl_var_t var;			/* that was deleted */
	pawl_cq_t cq;
	pawl_group_t ops, cost, gone;	/* full, and destroyed */
};

#define BAD_KINDS 12u

/* Make something about the op bad that is found late.  Returns the error. */
static int make_bad(struct pawl_op *op, const struct bad *b, u32 kind)
{
	op->flags |= PAWL_OP_GROUP;
	switch (kind) {
	case 0:
		op->group = b->ops;
		return -EAGAIN;
	case 1:
		op->group = b->cost;
		op->flags |= PAWL_OP_COST;
		return -EAGAIN;
	case 2:
		op->group = (pawl_group_t){ 0 };	/* the engine */
		op->flags |= PAWL_OP_COST;
		op->cost = 100;
		return -EAGAIN;
	case 3:
		op->group = b->gone;
		return -ESTALE;
	case 4:
		op->group = b->cost;
		op->flags |= PAWL_OP_COST;
		op->cost = 11;
		return -E2BIG;
	case 5:
		op->flags |= PAWL_OP_COST;
		op->cost = UINT64_MAX;
		return -EINVAL;
	case 6:
		op->ticket = NULL;
		return -EINVAL;
	case 7:
		op->deadline_ns = -1;
		return -EINVAL;
	case 8:
		op->cq = b->cq;
		return -ESTALE;
	case 9:
		op->nreads += !op->nreads;
		((pawl_var_t *)(uintptr_t)op->reads)[op->nreads - 1] = b->var;
		return -ESTALE;
	case 10:
		op->nwrites += !op->nwrites;
		((pawl_var_t *)(uintptr_t)op->writes)[op->nwrites - 1] = b->var;
		return -ESTALE;
	default:
		op->nreads = 32768;
		op->nwrites = 1;
		return -E2BIG;
	}
}

START_TEST(test_a_refused_push_keeps_nothing)
{
	static const u32 sizes[][2] = {
		{ 1, 0 }, { 0, 1 }, { 1, 1 }, { 1, 2 }, { 2, 2 }, { 1, 4 }, { 9, 1 }, { 299, 1 } };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_group_limits l = { .size = sizeof(l), .ops = 1 };
	pawl_var_t *reads = calloc(32768, sizeof(*reads)), own[10], writes[4];
	struct pawl_op op[2], good = PAWL_OP_INIT;
	u32 before[POOLS], after[POOLS], kind, size, i;
	pawl_token_t token[2];
	pawl_ticket_t t[2];
	struct bad b;
	pawl_cq_t cq;

	for (i = 0; i < COUNT(own); i++)
		own[i] = var_new(e);
	b.var = var_new(e);
	OK(pawl_var_delete(e, b.var, NULL, NULL));
	OK(pawl_cq_create(e, &b.cq));
	OK(pawl_cq_destroy(e, b.cq));
	OK(pawl_cq_create(e, &cq));
	OK(pawl_group_create(e, &l, &b.ops));
	OK(pawl_group_create(e, NULL, &b.gone));
	OK(pawl_group_destroy(e, b.gone));
	l = (struct pawl_group_limits){ .size = sizeof(l), .cost = 10 };
	OK(pawl_group_create(e, &l, &b.cost));
	l.cost = 100;
	OK(pawl_group_limit(e, (pawl_group_t){ 0 }, &l));
	/* One op fills both groups. */
	good.async_fn = keep_token;
	good.arg = &token[0];
	good.prop = PAWL_ASYNC;
	good.flags = PAWL_OP_GROUP | PAWL_OP_COST;
	good.group = b.ops;
	OK(pawl_push(e, &good));
	good.arg = &token[1];
	good.group = b.cost;
	good.cost = 10;
	OK(pawl_push(e, &good));
	in_use(e, before);
	for (kind = 0; kind < BAD_KINDS; kind++) {
		for (size = 0; size < COUNT(sizes); size++) {
			int code;

			for (i = 0; i < 32768; i++)
				reads[i] = own[i % 9];
			for (i = 0; i < 4; i++)
				writes[i] = own[9 - i];
			op[1] = op_of_fn(nothing, NULL);
			op[1].flags = PAWL_OP_CQ | PAWL_OP_TICKET | PAWL_OP_DEADLINE;
			op[1].cq = cq;
			op[1].ticket = &t[1];
			op[1].deadline_ns = INT64_MAX;
			op[1].reads = reads;
			op[1].nreads = sizes[size][0];
			op[1].writes = writes;
			op[1].nwrites = sizes[size][1];
			/* The op before it in a batch, which is good. */
			op[0] = op[1];
			op[0].ticket = &t[0];
			op[0].reads = own;
			op[0].nreads = 9;
			op[0].writes = own;
			op[0].nwrites = 5;
			op[1].cost = 1;
			code = make_bad(&op[1], &b, kind);
			without_strays(&op[1]);
			REFUSED(e, pawl_push(e, &op[1]), code);
			REFUSED(e, pawl_push_batch(e, op, 2), code);
			in_use(e, after);
			for (i = 0; i < POOLS; i++)
				ck_assert_msg(after[i] == before[i],
					      "pool %u: %u, then %u; %u, %u", i, before[i],
					      after[i], kind, size);
		}
	}
	/* Nor are they counted by a group or a queue. */
	for (i = 0; i < 2; i++)
		OK(pawl_complete(e, token[i], 0, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_group_destroy(e, b.ops));
	OK(pawl_group_destroy(e, b.cost));
	OK(pawl_cq_destroy(e, cq));
	OK(pawl_engine_destroy(e));
	free(reads);
}
END_TEST

/*
 * Whichever objects are missing, a push is refused or succeeds; leaks.c finds what it keeps.
 * All but `left` of the pool are taken away meanwhile.
 */
struct shortage {
	struct pawl_engine *e;
	struct pawl_op op[7];		/* with so many vars */
	pawl_graph_t graph[7], single[7];
	pawl_cq_t cq;
	u32 ran, refused;
};

static void one_try(struct shortage *s, int rc)
{
	struct pawl_completion done;

	if (rc) {
		ck_assert_msg(rc == -EAGAIN || rc == -ENOMEM, "%d: %s", rc, pawl_error_text());
		s->refused++;
	}
	while (pawl_run_one(s->e))
		;
	while (pawl_cq_reap(s->e, s->cq, &done, 1))
		;
}

static u32 all_pushes(struct shortage *s)
{
	struct pawl_launch how = { .size = sizeof(how), .flags = PAWL_OP_CQ, .cq = s->cq };
	struct pawl_op pair[2];
	u32 i;
	int rc, as;

	s->refused = 0;
	for (i = 0; i < COUNT(s->op); i++) {
		rc = pawl_push(s->e, &s->op[i]);
		one_try(s, rc);
		/* a graph of one op needs the same */
		as = pawl_graph_push(s->e, s->single[i], &how);
		one_try(s, as);
		ck_assert_msg(as == rc, "%u vars: %d as an op, %d as a graph", i, rc, as);
		pair[0] = s->op[i];
		pair[1] = s->op[6 - i];
		one_try(s, pawl_push_batch(s->e, pair, 2));
		one_try(s, pawl_graph_push(s->e, s->graph[i], NULL));
	}
	return s->refused;
}

START_TEST(test_a_push_without_objects_keeps_nothing)
{
	static const u32 pools[] = { POOL_OP, POOL_BLOCK, POOL_NOTE, POOL_EXT0 };
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pool_cache hoard = { 0 };
	struct shortage s = { 0 };
	u32 taken[4096], i, k, left, before;
	struct pawl_op twice[2];
	struct thread *t;
	pawl_var_t v[6];
	struct pool *p;

	c.max_ops = 64;
	c.max_vars = 64;
	c.max_threads = 1;
	c.window_policy = PAWL_WINDOW_FAIL;
	s.e = engine_with(&c);
	t = thread_get(s.e);
	OK(pawl_cq_create(s.e, &s.cq));
	for (i = 0; i < 6; i++)
		v[i] = var_new(s.e);
	for (i = 0; i < COUNT(s.op); i++) {
		s.op[i] = op_write(add_one, &s.ran, v);
		s.op[i].nwrites = i;
		twice[0] = twice[1] = s.op[i];
		OK(pawl_graph_create(s.e, twice, 2, 0, &s.graph[i]));
		OK(pawl_graph_create(s.e, twice, 1, 0, &s.single[i]));
		s.op[i].flags = PAWL_OP_CQ;
		s.op[i].cq = s.cq;
	}
	ck_assert_uint_eq(all_pushes(&s), 0);
	for (i = 0; i < COUNT(pools); i++) {
		for (left = 0; left < 6; left++) {
			p = s.e->pool[pools[i]];
			pool_cache_flush(p, &t->cache[pools[i]]);
			for (k = 0; k < COUNT(taken) && pool_get(p, &hoard, &taken[k]); k++)
				;
			/* Vars that no op uses give up their blocks. */
			while (pools[i] == POOL_BLOCK && k < COUNT(taken) &&
			       (taken[k] = block_reclaim(t)))
				k++;
			ck_assert_uint_lt(k, COUNT(taken));
			before = k;
			while (before - k < left)
				pool_put(p, &hoard, taken[--k]);
			pool_cache_flush(p, &hoard);
			all_pushes(&s);
			ck_assert(left || s.refused);
			while (k)
				pool_put(p, &hoard, taken[--k]);
			pool_cache_flush(p, &hoard);
			ck_assert_uint_eq(all_pushes(&s), 0);
		}
	}
	for (i = 0; i < COUNT(s.op); i++) {
		OK(pawl_graph_delete(s.e, s.graph[i]));
		OK(pawl_graph_delete(s.e, s.single[i]));
	}
	OK(pawl_cq_destroy(s.e, s.cq));
	OK(pawl_engine_destroy(s.e));
}
END_TEST

START_TEST(test_a_running_trace_is_not_written)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	int rc = pawl_trace_start(e, 64);

	if (rc == -ENOSYS) {
		OK(pawl_engine_destroy(e));
		return;
	}
	OK(rc);
	FAILS(pawl_trace_write(e, "/dev/null"), -EBUSY, "trace_write");
	OK(pawl_trace_stop(e));
	OK(pawl_trace_write(e, "/dev/null"));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Locked pages cannot be given back.  Skipped if the system does not permit to lock any. */
START_TEST(test_locked_pages_are_not_trimmed)
{
	struct pawl_engine *e;
	pawl_var_t v[1000];
	u32 n = 0, i;

	if (SANITIZED)
		return;
	e = engine(PAWL_PER_DEVICE, 0);
	for (i = 0; i < COUNT(v); i++)
		v[i] = var_new(e);
	for (i = 0; i < COUNT(v); i++)
		OK(push_write(e, add_one, &n, v[i]));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < COUNT(v); i++)
		OK(pawl_var_delete(e, v[i], NULL, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	if (!mlockall(MCL_CURRENT)) {
		FAILS(pawl_trim(e), -EINVAL);
		OK(munlockall());
	}
	OK(pawl_trim(e));
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("refusals", test_queues_are_used_up, test_groups_are_used_up, test_no_descriptor_is_left,
      test_a_ticket_has_one_waiter, test_every_push_is_refused_at_the_window,
      test_a_refused_push_keeps_nothing, test_a_push_without_objects_keeps_nothing,
      test_a_running_trace_is_not_written, test_locked_pages_are_not_trimmed)
