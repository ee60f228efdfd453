// SPDX-License-Identifier: Apache-2.0
/*
 * An engine that ends has all its objects back, except those that something still has: whatever
 * a test has done, and whether its calls succeeded or were refused.  Programs are linked with
 * --wrap, so that threads_fini(), which is called when no op is left, checks that.  This file
 * is in an archive, so only programs with that option link it.  A test that takes objects from
 * an engine's pools itself puts them back.
 */
#include <stdio.h>
#include <core/cq.h>
#include <core/devices.h>
#include <core/error.h>
#include <core/graph.h>
#include <core/opgroup.h>

void __real_threads_fini(struct pawl_engine *e);
void __wrap_threads_fini(struct pawl_engine *e);

/* The objects that are neither in caches of threads nor in the depot. */
static u32 outside(struct pawl_engine *e, u32 p)
{
	u32 i, sum = pool_depot_count(e->pool[p]);

	for (i = 0; i < slots_used(e); i++)
		sum += thread_of(e, i)->cache[p].n + thread_of(e, i)->cache[p].nspare;
	return pool_carved(e->pool[p]) - sum;
}

static void must_be(struct pawl_engine *e, const char *what, u64 n, u64 expected)
{
	if (n == expected)
		return;
	fprintf(stderr, "An engine ends with %llu %s, and %llu are expected.\n",
		(unsigned long long)n, what, (unsigned long long)expected);
	abort();
}

static void vars_check(struct pawl_engine *e)
{
	u32 vars = 0, blocks = 0, recs = 0, refs = 0, i, n = pool_carved(e->pool[POOL_VAR]);
	u32 errors = pool_carved(e->pool[POOL_ERROR]), held;

	for (i = 1; i <= n; i++) {
		const struct var *v = var_of(e, i);
		u32 bi = word_cur(load_relaxed(&v->word.val)), gen = load_relaxed(&v->gen);
		u32 rec = load_relaxed(&var_side_of(e, i)->rec);

		if (!(gen & 1)) {
			/* Its generations have ended. */
			vars += gen && gen_is_last(e, gen);
			continue;
		}
		vars++;
		blocks += bi != 0;
		refs += bi && load_relaxed(&block_of(e, bi)->err);
		/* A record has the index of the next one behind the number of its write. */
		for (; rec; rec = load_relaxed((u32 *)pool_obj(e->pool[POOL_DEVREC], rec) + 2))
			recs++;
	}
	must_be(e, "vars", outside(e, POOL_VAR), vars);
	must_be(e, "blocks", outside(e, POOL_BLOCK), blocks);
	must_be(e, "records of pending work", outside(e, POOL_DEVREC), recs);
	/* The engine itself holds the spare error. */
	refs++;
	for (i = 0; i < FIRST_ERRS; i++)
		refs += load_relaxed(&e->first_err[i]) != 0;
	for (i = 1, held = 0; i <= errors; i++)
		held += load_relaxed(&error_of(e, i)->refs);
	must_be(e, "references to errors", held, refs);
	must_be(e, "errors", outside(e, POOL_ERROR),
		1 + (load_relaxed(&e->special) >> SPECIAL_ERROR_SHIFT));
}

/* No op waits for room, or has been given some that it does not use. */
static void streams_check(struct pawl_engine *e)
{
	u32 i, j;

	if (!e->devices)
		return;
	for (i = 0; i < load_relaxed(&e->devices->nrows); i++) {
		for (j = 0; j < CLASSES; j++) {
			const struct dev_class *c = &e->devices->rows[i].class[j];

			must_be(e, "ops with room in streams", load_relaxed(&c->coming), 0);
			must_be(e, "ops without room in streams", load_relaxed(&c->held), 0);
		}
	}
}

void __wrap_threads_fini(struct pawl_engine *e)
{
	u32 i, n, groups = 1, graphs = 0, cqs = 0;
	u64 notes = 0;

	/* First, because threads that end at this moment free what they have. */
	__real_threads_fini(e);
	/* pawl_engine_create() has failed. */
	if (!e->spare_error)
		return;
	streams_check(e);
	must_be(e, "ops", outside(e, POOL_OP), 0);
	for (i = POOL_EXT0; i < POOLS; i++)
		must_be(e, "chunks of accesses", outside(e, i), 0);
	vars_check(e);
	n = pool_carved(e->pool[POOL_CQ]);
	for (i = 1; i <= n; i++) {
		struct cq *q = pool_obj(e->pool[POOL_CQ], i);
		u64 life = load_relaxed(&q->life);

		cqs += life >> 32 & 1;
		/* Completions that were not reaped, and those of room in groups. */
		notes += life & (CQ_REAPING - 1);
	}
	must_be(e, "completions", outside(e, POOL_NOTE), notes);
	must_be(e, "queues", outside(e, POOL_CQ), cqs);
	n = pool_carved(e->pool[POOL_GROUP]);
	for (i = 1; i <= n; i++) {
		struct op_group *g = pool_obj(e->pool[POOL_GROUP], i);

		groups += load_relaxed(&g->life) >> 32 & 1;
	}
	must_be(e, "groups", outside(e, POOL_GROUP), groups);
	n = pool_carved(e->pool[POOL_GRAPH]);
	for (i = 1; i <= n; i++) {
		struct graph *g = pool_obj(e->pool[POOL_GRAPH], i);
		u32 gen = load_relaxed(&g->gen);

		graphs += gen && gen_is_last(e, gen);
	}
	must_be(e, "graphs", outside(e, POOL_GRAPH), graphs);
}
