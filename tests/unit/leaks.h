/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of an engine in which nothing may be left over: whatever its calls did, and however
 * they were refused, each object is free or belongs to something that the program still has.
 */
#ifndef TESTS_UNIT_LEAKS_H
#define TESTS_UNIT_LEAKS_H

#include "util.h"
#include <core/cq.h>
#include <core/graph.h>
#include <core/opgroup.h>
#include <core/var.h>

/* Objects that are neither in the depot nor in a thread's cache. */
static inline u32 in_use(struct pawl_engine *e, u32 p)
{
	u32 i, n = pool_depot_count(e->pool[p]);

	ck_assert_uint_ne(n, UINT32_MAX);
	for (i = 0; i < e->max_threads; i++)
		n += thread_of(e, i)->cache[p].n + thread_of(e, i)->cache[p].nspare;
	return pool_carved(e->pool[p]) - n;
}

static inline void in_use_is(struct pawl_engine *e, u32 p, u64 want)
{
	struct pool_stat s;

	pool_stat(e->pool[p], &s);
	ck_assert_msg(in_use(e, p) == want, "pool %s: %u objects are in use, of %llu", s.name,
		      in_use(e, p), (unsigned long long)want);
}

static inline void nothing_left(struct pawl_engine *e)
{
	u64 vars = 0, blocks = 0, graphs = 0, groups = 1, queues = 0, notes = 0, life;
	u32 i;

	for (i = 1; i <= pool_carved(e->pool[POOL_VAR]); i++) {
		if (!(var_of(e, i)->gen & 1))
			continue;
		vars++;
		blocks += word_cur(load_relaxed(&var_of(e, i)->word.val)) != 0;
	}
	for (i = 1; i <= pool_carved(e->pool[POOL_GRAPH]); i++)
		graphs += graph_of(e, i)->gen & 1;
	for (i = 1; i <= pool_carved(e->pool[POOL_GROUP]); i++) {
		life = ((struct op_group *)pool_obj(e->pool[POOL_GROUP], i))->life;
		ck_assert_uint_eq(life_ops(life), 0);
		groups += life >> 32 & 1;
	}
	/* A note for each completion that was not reaped, and for each that a group has. */
	for (i = 1; i <= pool_carved(e->pool[POOL_CQ]); i++) {
		life = ((struct cq *)pool_obj(e->pool[POOL_CQ], i))->life;
		queues += life >> 32 & 1;
		notes += (u32)life;
	}
	in_use_is(e, POOL_OP, 0);
	for (i = POOL_EXT0; i <= POOL_EXT3; i++)
		in_use_is(e, i, 0);
	in_use_is(e, POOL_VAR, vars);
	in_use_is(e, POOL_BLOCK, blocks);
	in_use_is(e, POOL_ERROR, 1 + (e->special >> SPECIAL_ERROR_SHIFT));
	in_use_is(e, POOL_GRAPH, graphs);
	in_use_is(e, POOL_GROUP, groups);
	in_use_is(e, POOL_CQ, queues);
	in_use_is(e, POOL_NOTE, notes);
}

/* Destroy an engine that no other thread uses, and from which nothing has leaked. */
static inline void engine_end(struct pawl_engine *e)
{
	OK(pawl_engine_stop(e));
	nothing_left(e);
	OK(pawl_engine_destroy(e));
}

#endif
