// SPDX-License-Identifier: Apache-2.0
/* core/graph.c: the memory of graphs and of their launches, and what is left when they end. */
#include <malloc.h>
#include "graphs.h"
#include <core/graph.h>

static void count_release(void *arg, int status)
{
	MUST(!status);
	fetch_add_acq_rel((u32 *)arg, 1);
}

/* Launches of all forms, several in flight, and some that are refused. */
static void live(struct pawl_engine *e, const pawl_var_t *v, pawl_var_t gone, u32 nops,
		 u32 nslots, unsigned int flags)
{
	struct pawl_launch l = launch_init();
	pawl_var_t w[4][4];
	struct pawl_op op[4];
	u32 n = 0, ends = 0, i;
	void *args[4] = { &n, &n, &n, &n };
	pawl_ticket_t ticket;
	pawl_graph_t g;

	for (i = 0; i < nops; i++) {
		memcpy(w[i], v, 3 * sizeof(*v));
		w[i][3] = SLOT(i);
		op[i] = (struct pawl_op)OP(add_one, i ? &n : &ends, .writes = w[i],
					   .nwrites = i < nslots ? 4 : 3);
		op[i].release = i ? NULL : count_release;
	}
	OK(pawl_graph_create(e, op, nops, flags, &g));
	l.nvars = nslots;
	l.vars = nslots ? v + 3 : NULL;
	l.nargs = flags ? 0 : nops;
	l.args = flags ? NULL : args;
	for (i = 0; i < 3; i++)
		OK(pawl_graph_push(e, g, &l));
	if (nslots) {
		l.vars = VARS(gone, gone);
		FAILS(pawl_graph_push(e, g, &l), -ESTALE);
		l.vars = v + 3;
	}
	l.flags = PAWL_OP_CQ;	/* without one */
	FAILS(pawl_graph_push(e, g, &l), -ESTALE, "how.cq");
	/* One that never begins. */
	l.flags = PAWL_OP_TICKET;
	l.ticket = &ticket;
	OK(pawl_graph_push(e, g, &l));
	OK(pawl_cancel(e, ticket));
	(void)!pawl_wait_all(e, SOON_NS, NULL);
	for (i = 0; i < 3; i++)
		OK(pawl_var_clear(e, v[i]));
	/* After the delete, in the last launch. */
	l.flags = 0;
	l.ticket = NULL;
	OK(pawl_graph_push(e, g, &l));
	OK(pawl_graph_delete(e, g));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n + ends, 4 * nops + 1);
}

static size_t heap(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

static const char *refused;	/* A: what no memory is given for, or NULL */

int pool_commit_hook(const char *what, size_t bytes)
{
	const char *no = load_acquire(&refused);

	return no && !strcmp(what, no) ? -ENOMEM : 0;
}

START_TEST(test_graphs_that_ended_leave_no_memory)
{
	enum { N = 64 };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[5], gone = var_new(e);
	size_t before = 0;
	u32 form, i;

	OK(pawl_var_delete(e, gone, NULL, NULL));
	for (i = 0; i < 5; i++)
		v[i] = var_new(e);
	for (form = 0; form < 12; form++) {
		u32 nops = form < 6 ? 1 : 3, nslots = form % 3;
		unsigned int flags = form / 3 % 2 ? PAWL_GRAPH_CAPTURE : 0;

		if (nslots > nops)
			continue;
		for (i = 0; i < 2 * N; i++) {
			if (i == N)
				before = heap();
			live(e, v, gone, nops, nslots, flags);
		}
		ck_assert_msg(heap() < before + N * 16, "form %u: %zu bytes", form,
			      heap() - before);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Nor do launches of a graph that lives on: only as many remain as were in flight at a time. */
START_TEST(test_launches_that_ended_are_used_again)
{
	enum { N = 200 };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), gone = var_new(e), two[2] = { v, gone };
	struct pawl_op op[2] = { OP(nothing, NULL, W(SLOT(0))), OP(nothing, NULL, W(SLOT(0))) };
	struct pawl_launch l = launch_init();
	size_t before = 0;
	pawl_graph_t g;
	u32 nops, i, k;

	OK(pawl_var_delete(e, gone, NULL, NULL));
	l.nvars = 1;
	for (nops = 1; nops <= 2; nops++) {
		g = graph_new(e, op, nops);
		for (i = 0; i < 2 * N; i++) {
			if (i == N)
				before = heap();
			for (k = 0; k < 4; k++) {
				int rc;

				l.vars = &two[k % 2];
				rc = pawl_graph_push(e, g, &l);
				ck_assert_int_eq(rc, k % 2 ? -ESTALE : 0);
			}
			OK(pawl_wait_all(e, SOON_NS, NULL));
		}
		ck_assert_msg(heap() < before + N * 16, "%u ops: %zu bytes", nops,
			      heap() - before);
		OK(pawl_graph_delete(e, g));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* What a call has allocated before it finds that there is no memory. */
START_TEST(test_a_call_without_memory_keeps_none)
{
	enum { N = 64 };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_op op[2] = { OP(nothing, NULL), OP(nothing, NULL) };
	pawl_graph_t g = { 0 };
	size_t before = 0;
	u32 i, push;

	for (push = 0; push < 2; push++) {
		store_release(&refused, push ? "launch" : "commit");
		for (i = 0; i < 2 * N; i++) {
			if (i == N)
				before = heap();
			if (push)
				REFUSED(e, pawl_graph_push(e, g, NULL), -ENOMEM, "graph_push");
			else
				REFUSED(e, pawl_graph_create(e, op, 2, 0, &g), -ENOMEM,
					"graph_create");
		}
		ck_assert_msg(heap() < before + N * 16, "%zu bytes", heap() - before);
		store_release(&refused, NULL);
		if (!push)
			g = graph_new(e, op, 2);
	}
	OK(pawl_graph_push(e, g, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

#define MANY	400

/* Each launch has room for its own words, arguments, vars and slots, in any proportion. */
START_TEST(test_a_launch_has_room_for_what_it_names)
{
	/* ops, vars, slots */
	static const u32 sizes[][3] = { { 1, MANY, 1 }, { 2, MANY, 1 }, { 2, 1, MANY },
					{ 1, 1, MANY }, { 3, MANY, MANY }, { MANY, 1, 1 },
					{ 33, 33, 33 }, { 7, 0, 3 }, { MANY, 0, MANY } };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	static pawl_var_t vars[MANY], slots[MANY], mine[3][MANY];
	static struct pawl_op op[MANY];
	static void *args[3][MANY];
	static u32 n[3][MANY];
	struct pawl_launch l = launch_init();
	pawl_graph_t g;
	u32 s, i, k;

	for (i = 0; i < MANY; i++) {
		vars[i] = var_new(e);
		slots[i] = SLOT(i);
		for (k = 0; k < 3; k++) {
			mine[k][i] = var_new(e);
			args[k][i] = &n[k][i];
		}
	}
	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		for (i = 0; i < sizes[s][0]; i++)
			op[i] = (struct pawl_op)OP(add_one, NULL, .reads = vars,
						   .nreads = sizes[s][1], .writes = slots,
						   .nwrites = sizes[s][2]);
		g = graph_new(e, op, sizes[s][0]);
		l.nvars = sizes[s][2];
		l.nargs = sizes[s][0];
		memset(n, 0, sizeof(n));
		/* Three in flight: one with too little room would write into the next one. */
		for (i = 1; i <= 4; i++) {
			for (k = 0; k < 3; k++) {
				l.vars = mine[k];
				l.args = args[k];
				OK(pawl_graph_push(e, g, &l));
			}
			OK(pawl_wait_all(e, SOON_NS, NULL));
			for (k = 0; k < 3 * sizes[s][0]; k++)
				ck_assert_uint_eq(n[k % 3][k / 3], i);
		}
		for (i = 0; i < 3 * sizes[s][2]; i++)
			ck_assert_uint_ge(version(e, mine[i % 3][i / 3]), 4);
		OK(pawl_graph_delete(e, g));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The object of a graph that was deleted is used again; nothing of the first graph is left. */
START_TEST(test_a_graph_in_the_place_of_another_one_is_new)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	u32 n[2] = { 0, 0 }, ends[2] = { 0, 0 }, place = 0, round, i;
	static struct pawl_op op[100];
	pawl_graph_t g;

	for (round = 0; round < 6; round++) {
		u32 many = round & 1 ? 100 : 2;

		for (i = 0; i < many; i++)
			op[i] = (struct pawl_op)OP(add_one, &n[round & 1]);
		op[0].arg = &ends[round & 1];
		op[0].release = count_release;
		g = graph_new(e, op, many);
		place += !round ? (u32)g.h : 0;
		ck_assert_uint_eq((u32)g.h, place);
		memset(n, 0, sizeof(n));
		memset(ends, 0, sizeof(ends));
		for (i = 0; i < 3; i++)
			OK(pawl_graph_push(e, g, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_graph_delete(e, g));
		ck_assert_uint_eq(n[round & 1], 3 * (many - 1));
		ck_assert_uint_eq(ends[round & 1], 4);
		ck_assert(!n[~round & 1] && !ends[~round & 1]);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Its generations are used up: no later graph has a handle that an earlier one had. */
START_TEST(test_a_place_is_left_when_its_generations_end)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	const struct pawl_op op = OP(nothing, NULL);
	pawl_graph_t first = graph_new(e, &op, 1), g;
	u32 i;

	OK(pawl_graph_delete(e, first));
	/* As if it had been created and deleted 2^31 - 2 times. */
	store_relaxed(&graph_of(e, (u32)first.h)->gen, (u32)(first.h >> 32) - 3);
	g = graph_new(e, &op, 1);
	ck_assert_uint_eq((u32)g.h, (u32)first.h);
	ck_assert_uint_eq(g.h >> 32, (u32)(first.h >> 32) - 2);
	OK(pawl_graph_delete(e, g));
	for (i = 0; i < 1000; i++) {
		g = graph_new(e, &op, 1);
		ck_assert_uint_ne((u32)g.h, (u32)first.h);
	}
	FAILS(pawl_graph_push(e, first, NULL), -ESTALE);
	OK(pawl_engine_destroy(e));
}
END_TEST

static struct pawl_engine *engine_left;

static void release_leaves(void *arg, int status)
{
	*(int *)arg = pawl_thread_detach(engine_left);
}

/* At the delete, and at the end of the last launch: the engine's calls are on the stack. */
START_TEST(test_a_release_does_not_detach_its_thread)
{
	struct pawl_op op = OP(nothing, NULL, .release = release_leaves);
	pawl_graph_t g;
	int rc, pushed;

	engine_left = engine(PAWL_PER_DEVICE, 0);
	op.arg = &rc;
	for (pushed = 0; pushed < 2; pushed++) {
		rc = 0;
		g = graph_new(engine_left, &op, 1);
		if (pushed)
			OK(pawl_graph_push(engine_left, g, NULL));
		OK(pawl_graph_delete(engine_left, g));
		OK(pawl_wait_all(engine_left, SOON_NS, NULL));
		ck_assert_int_eq(rc, -EDEADLK);
	}
	OK(pawl_thread_detach(engine_left));
	OK(pawl_engine_destroy(engine_left));
}
END_TEST

/* The largest graph, of which each op runs; one more op is refused (test_graph.c). */
START_TEST(test_a_graph_of_32768_ops)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	static struct pawl_op op[32768];
	pawl_graph_t g;
	u32 n = 0, i;

	for (i = 0; i < ARRAY_SIZE(op); i++)
		op[i] = (struct pawl_op)OP(add_one, &n);
	g = graph_new(e, op, ARRAY_SIZE(op));
	OK(pawl_graph_push(e, g, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, ARRAY_SIZE(op));
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("graph_life", test_graphs_that_ended_leave_no_memory,
      test_launches_that_ended_are_used_again, test_a_call_without_memory_keeps_none,
      test_a_launch_has_room_for_what_it_names,
      test_a_graph_in_the_place_of_another_one_is_new,
      test_a_place_is_left_when_its_generations_end, test_a_release_does_not_detach_its_thread,
      test_a_graph_of_32768_ops)
