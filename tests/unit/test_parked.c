// SPDX-License-Identifier: Apache-2.0
/* core/park.c: vars that no op uses give up their block, and otherwise behave as before. */
#include "util.h"
#include <core/link.h>
#include "cells.h"

static bool parked(struct pawl_engine *e, pawl_var_t v)
{
	return !word_cur(word_snapshot(var_of(e, var_index(v))).val);
}

/* Park every var that can be. */
static void park_all(struct pawl_engine *e)
{
	struct thread *t = thread_get(e);
	u32 i;

	/* A call parks at least 64, if there are so many. */
	for (i = 0; i < pool_carved(e->pool[POOL_VAR]); i += 64)
		pool_put(e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], block_reclaim(t));
}

static pawl_var_t var_parked(struct pawl_engine *e)
{
	pawl_var_t v = var_new(e);

	park_all(e);
	MUST(parked(e, v));
	return v;
}

START_TEST(test_a_dump_says_that_parked_vars_are_idle)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	char text[1000] = "";
	FILE *f = tmpfile();

	MUST(f);
	/* Parked before its first write, and after it. */
	OK(push_write(e, nothing, NULL, var_parked(e)));
	OK(pawl_wait_all(e, -1, NULL));
	var_parked(e);
	OK(pawl_dump(e, fileno(f)));
	rewind(f);
	MUST(fread(text, 1, sizeof(text) - 1, f));
	fclose(f);
	ck_assert_msg(strstr(text, "\n2 vars idle\n") && !strstr(text, "var 1."), "%s", text);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_version_and_error)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u64 data = 0;

	OK(push_write(e, add_plain, &data, v));
	OK(push_write(e, add_plain, &data, v));
	OK(pawl_wait_all(e, -1, NULL));
	park_all(e);
	ck_assert(parked(e, v));
	ck_assert_uint_eq(version(e, v), 2);
	OK(pawl_var_error(e, v, NULL));
	OK(pawl_wait_readable(e, v, 0, NULL));
	OK(pawl_wait_writable(e, v, 0, NULL));
	ck_assert(parked(e, v));
	OK(push_write(e, add_plain, &data, v));
	OK(pawl_wait_readable(e, v, -1, NULL));
	ck_assert(!parked(e, v));
	ck_assert_uint_eq(version(e, v), 3);
	ck_assert_uint_eq(data, 3);
	/* A var whose write failed keeps its block and its error. */
	OK(push_write(e, fail_io, NULL, v));
	while (pawl_run_one(e))
		;
	park_all(e);
	ck_assert(!parked(e, v));
	ck_assert_int_eq(pawl_var_error(e, v, NULL), -EIO);
	ck_assert_int_eq(pawl_var_take(e, v, NULL), -EIO);
	OK(push_write(e, add_plain, &data, v));
	OK(pawl_wait_readable(e, v, -1, NULL));
	park_all(e);
	ck_assert(parked(e, v));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A var whose write or read is not complete keeps its block. */
START_TEST(test_in_use)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct gate gate, gate_w;
	u32 ran = 0;

	gate_read(e, &gate, v);
	gate_write(e, &gate_w, w);
	park_all(e);
	ck_assert(!parked(e, v));
	ck_assert(!parked(e, w));
	OK(push_write(e, add_one, &ran, v));
	OK(push_write(e, add_one, &ran, w));
	nap_us(1000);
	ck_assert_uint_eq(load_relaxed(&ran), 0);
	gate_open(&gate);
	gate_open(&gate_w);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Reads of a parked var are counted: a write, and a deletion, waits for them. */
START_TEST(test_write_waits_for_readers)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_parked(e), w, both[2];
	struct pawl_op op = PAWL_OP_INIT;
	struct gate a, b;
	u32 ran = 0, i;

	for (i = 0; i < 3; i++) {
		gate_read(e, &a, v);
		gate_read(e, &b, v);
		ck_assert(parked(e, v));
		ck_assert_int_eq(pawl_wait_writable(e, v, 0, NULL), -ETIMEDOUT);
		OK(pawl_wait_readable(e, v, 0, NULL));
		OK(push_write(e, add_one, &ran, v));
		ck_assert(!parked(e, v));
		gate_open(&b);
		nap_us(1000);
		ck_assert_uint_eq(load_relaxed(&ran), i);
		gate_open(&a);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(ran, i + 1);
		park_all(e);
		ck_assert(parked(e, v));
	}
	/* The same for an op with several vars, and for a batch. */
	w = var_parked(e);
	both[0] = v;
	both[1] = w;
	gate_push(e, &a, both, 2, NULL, 0);
	op = op_write(add_one, &ran, both);
	op.nwrites = 2;
	OK(pawl_push_batch(e, (struct pawl_op[]){ op_read(add_one, &ran, &v), op }, 2));
	ck_assert(soon(load_relaxed(&ran) == 4));
	nap_us(1000);
	ck_assert_uint_eq(load_relaxed(&ran), 4);
	gate_open(&a);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 5);
	park_all(e);
	gate_read(e, &a, v);
	OK(pawl_var_delete(e, v, add_one, &ran));
	ck_assert_int_eq(push_read(e, add_one, &ran, v), -ESTALE);
	nap_us(1000);
	ck_assert_uint_eq(load_relaxed(&ran), 5);
	gate_open(&a);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 6);
	OK(pawl_var_delete(e, w, NULL, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Readers of several threads do not put a parked var in read-mostly mode. */
static void *reads(void *arg)
{
	struct cells *c = arg;
	u32 i;

	for (i = 0; i < 300; i++)
		OK(push_read(c->e, nothing, NULL, c->v[0]));
	return NULL;
}

START_TEST(test_many_reads)
{
	struct cells c = { .e = engine(PAWL_PER_DEVICE, 2) };
	u32 ran = 0, i;
	pthread_t t[4];

	c.e->rm_reads = 0;
	c.v[0] = var_parked(c.e);
	for (i = 0; i < 4; i++)
		t[i] = spawn(reads, &c);
	for (i = 0; i < 4; i++)
		join(t[i]);
	ck_assert(parked(c.e, c.v[0]));
	OK(push_write(c.e, add_one, &ran, c.v[0]));
	OK(pawl_wait_all(c.e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 1);
	ck_assert_uint_eq(version(c.e, c.v[0]), 1);
	OK(pawl_engine_destroy(c.e));
}
END_TEST

/* The number of readers in the word wraps to 0, also in the word of a parked var. */
START_TEST(test_readers_come_round)
{
	struct pawl_engine *e;
	pawl_var_t v[2];
	u32 ran = 0, i;
	struct pawl_op op = op_write(add_one, &ran, v);
	struct gate g;

	if (SANITIZED)	/* a million ops of one thread */
		return;
	e = engine(PAWL_PER_DEVICE, 0);
	v[0] = var_new(e);
	v[1] = var_new(e);
	op.nwrites = 2;
	park_all(e);
	ck_assert(parked(e, v[0]) && parked(e, v[1]));
	gate_read(e, &g, v[0]);
	for (i = 1; i < 1u << JOIN_BITS; i++) {
		OK(push_read(e, nothing, NULL, v[0]));
		if (!(i % 1024))
			while (pawl_run_one(e))
				;
	}
	ck_assert_uint_eq(word_snapshot(var_of(e, var_index(v[0]))).val, 0);
	OK(pawl_push_batch(e, &op, 1));
	while (pawl_run_one(e))
		;
	ck_assert_uint_eq(ran, 0);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A call visits all vars, wherever it begins, also when park_next wraps. */
START_TEST(test_no_var_is_left_out)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v, first = { 0 }, last = { 0 };
	u32 i, n;

	for (i = 0; i < 300 || !last.h; i++) {
		v = var_new(e);
		first = var_index(v) == 1 ? v : first;
		last = var_index(v) == pool_carved(e->pool[POOL_VAR]) ? v : (pawl_var_t){ 0 };
	}
	MUST(first.h);
	park_all(e);
	n = pool_carved(e->pool[POOL_VAR]);
	for (i = 0; i < n + 300; i++) {
		OK(push_write(e, nothing, NULL, first));
		OK(push_write(e, nothing, NULL, last));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert(!parked(e, first) && !parked(e, last));
		store_relaxed(&e->park_next, -i);
		park_all(e);
		ck_assert_msg(parked(e, first) && parked(e, last), "%u", i);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Did a call visit all vars?  It stores a park_next below their number then. */
static bool visits(struct pawl_engine *e)
{
	struct thread *t = thread_get(e);
	u32 n = pool_carved(e->pool[POOL_VAR]);

	store_relaxed(&e->park_next, n);
	pool_put(e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], block_reclaim(t));
	return load_relaxed(&e->park_next) < n;
}

/* While no op completes and no var is created, the vars are not visited again in vain. */
START_TEST(test_visits_in_vain_are_not_repeated)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e), w;
	struct gate g;
	u64 data = 0;

	gate_write(e, &g, v);
	ck_assert(visits(e));
	ck_assert(!visits(e) && !visits(e));
	/* A var without an op can be parked at once. */
	w = var_new(e);
	ck_assert(visits(e) && parked(e, w));
	ck_assert(visits(e) && !visits(e));
	OK(push_write(e, add_plain, &data, w));
	OK(pawl_wait_writable(e, w, SOON_NS, NULL));
	ck_assert(visits(e) && parked(e, w));
	ck_assert(visits(e) && !visits(e));
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert(visits(e) && parked(e, v));
	ck_assert(visits(e) && !visits(e));
	OK(pawl_engine_destroy(e));
}
END_TEST

struct parker {
	struct pawl_engine *e;
	u64 parked;		/* A: vars that it found parked */
	u32 stop;		/* A */
};

static void *parker(void *arg)
{
	struct parker *p = arg;
	struct pawl_engine *e = p->e;
	struct thread *t = thread_get(e);
	u32 i;

	while (!load_relaxed(&p->stop)) {
		pool_put(e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], block_reclaim(t));
		for (i = 2; i <= pool_carved(e->pool[POOL_VAR]); i++)
			if (load_acquire(&var_of(e, i)->gen) & 1)
				fetch_add_relaxed(&p->parked,
						  !word_cur(word_snapshot(var_of(e, i)).val));
	}
	return NULL;
}

/* Random work, with read-mostly mode as soon as possible, while two threads park idle vars. */
START_TEST(test_parked_at_any_moment)
{
	struct cells c = { .e = engine(PAWL_PER_DEVICE, 2), .rounds = (u32)TIMES(20000), .seed = 7 };
	struct parker p = { .e = c.e };
	pthread_t t[2];
	u32 i;

	c.e->rm_reads = 0;
	var_new(c.e);	/* number 1 */
	for (i = 0; i < 2; i++)
		t[i] = spawn(parker, &p);
	cells_run(&c);
	/* At the latest now, when no op uses a var any more. */
	ck_assert(soon(load_relaxed(&p.parked) > 0));
	store_relaxed(&p.stop, 1);
	for (i = 0; i < 2; i++)
		join(t[i]);
	for (i = 0; i < SHARED; i++)
		OK(pawl_var_delete(c.e, c.v[i], NULL, NULL));
	OK(pawl_wait_all(c.e, SOON_NS, NULL));
	OK(pawl_engine_destroy(c.e));
}
END_TEST

/* The watchdog knows what waits behind a read of a parked var. */
START_TEST(test_the_watchdog_knows_parked_vars)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_stalled seen = { 0 };
	pawl_var_t v = var_parked(e);
	struct gate g;
	u32 i;

	gate_read(e, &g, v);
	for (i = 0; i < 3; i++)
		OK(push_write(e, nothing, NULL, v));
	ck_assert_int_eq(pawl_watch(e, 0, NULL, NULL), 0);
	nap_us(1000);
	ck_assert_int_eq(pawl_watch(e, 0, stalled_keep, &seen), 1);
	ck_assert_int_eq(seen.what, PAWL_STALLED_ASYNC);
	ck_assert_uint_eq(seen.var.h, v.h);
	ck_assert_uint_eq(seen.behind, 3);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("parked", test_a_dump_says_that_parked_vars_are_idle, test_version_and_error, test_in_use, test_write_waits_for_readers,
      test_many_reads, test_readers_come_round, test_no_var_is_left_out,
      test_visits_in_vain_are_not_repeated, test_parked_at_any_moment,
      test_the_watchdog_knows_parked_vars)
