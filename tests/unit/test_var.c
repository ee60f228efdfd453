// SPDX-License-Identifier: Apache-2.0
/* core/var.c and the var queue: handles, order, sharing, exclusion, versions. */
#include "util.h"
#include <core/var.h>

/* --- creation and handles --- */

START_TEST(test_create)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t a = { 0 }, b = { 0 };

	OK(pawl_var_create(e, &a));
	OK(pawl_var_create(e, &b));
	ck_assert_uint_ne(a.h, 0);
	ck_assert_uint_ne(a.h, b.h);
	ck_assert_uint_eq(version(e, a), 0);
	FAILS(pawl_var_create(e, NULL), -EINVAL, "var_create", "out");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* At some number of vars, and not below max_vars, creation says -ENOMEM; room comes back. */
START_TEST(test_create_limit)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	pawl_var_t *v = calloc(1 << 17, sizeof(*v));
	u32 n = 0, i;
	int rc;

	c.max_vars = 1000;
	c.max_ops = 1024;
	c.max_threads = 4;
	e = engine_with(&c);
	while (n < (1 << 17) && !(rc = pawl_var_create(e, &v[n])))
		n++;
	ck_assert_int_eq(rc, -ENOMEM);
	says("var_create", (const char *const[]){ "var_create", "max_vars", NULL });
	ck_assert_uint_ge(n, 1000);
	ck_assert_uint_lt(n, 1 << 17);
	for (i = 0; i < n; i++)
		OK(pawl_var_delete(e, v[i], NULL, NULL));
	for (i = 0; i < n; i++)
		OK(pawl_var_create(e, &v[i]));
	ck_assert_int_eq(pawl_var_create(e, &v[n]), -ENOMEM);
	OK(pawl_engine_destroy(e));
	free(v);
}
END_TEST

/* "vars alive at once": the limit is the one that was asked for. */
START_TEST(test_create_limit_exact)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	pawl_var_t v;
	u32 n = 0;

	c.max_vars = 1000;
	c.max_ops = 64;
	c.max_threads = 1;
	e = engine_with(&c);
	while (n < 100000 && !pawl_var_create(e, &v))
		n++;
	/* Documented as a limit; some slack for what threads keep in their caches. */
	ck_assert_uint_ge(n, 1000);
	ck_assert_uint_le(n, 1000 + 2 * 64 + 4096 + 4096);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Every kind of wrong handle, at every function that takes one. */
static void refuse(struct pawl_engine *e, pawl_var_t v, const char *what)
{
	pawl_var_t good = var_new(e), both[2] = { good, v };
	struct pawl_op op = op_of_fn(nothing, NULL);
	uint64_t n = 4711;
	pawl_graph_t o;
	u32 rel = stats(e).pushed;

	ck_assert_msg(push_write(e, nothing, NULL, v) == -ESTALE, "%s: write", what);
	says(what, (const char *const[]){ "push", NULL });
	ck_assert_msg(push_read(e, nothing, NULL, v) == -ESTALE, "%s: read", what);
	op.writes = both;
	op.nwrites = 2;
	ck_assert_msg(pawl_push(e, &op) == -ESTALE, "%s: write of two", what);
	ck_assert_msg(pawl_push_batch(e, &op, 1) == -ESTALE, "%s: batch", what);
	op.reads = both;
	op.nreads = 2;
	op.nwrites = 0;
	ck_assert_msg(pawl_push(e, &op) == -ESTALE, "%s: read of two", what);
	ck_assert_msg(pawl_graph_create(e, &op, 1, 0, &o) == -ESTALE, "%s: graph", what);
	says(what, (const char *const[]){ "graph_create", NULL });
	ck_assert_msg(pawl_var_version(e, v, &n) == -ESTALE, "%s: version", what);
	says(what, (const char *const[]){ "var_version", NULL });
	ck_assert_uint_eq(n, 4711);
	ck_assert_msg(pawl_var_error(e, v, NULL) == -ESTALE, "%s: error", what);
	says(what, (const char *const[]){ "var_error", NULL });
	ck_assert_msg(pawl_var_clear(e, v) == -ESTALE, "%s: clear", what);
	says(what, (const char *const[]){ "var_clear", NULL });
	ck_assert_msg(pawl_wait_readable(e, v, -1, NULL) == -ESTALE, "%s: readable", what);
	says(what, (const char *const[]){ "wait", NULL });
	ck_assert_msg(pawl_wait_writable(e, v, -1, NULL) == -ESTALE, "%s: writable", what);
	ck_assert_msg(pawl_var_delete(e, v, NULL, NULL) == -ESTALE, "%s: delete", what);
	/* No effect: the good var is as it was. */
	ck_assert_uint_eq(stats(e).pushed, rel);
	ck_assert_uint_eq(version(e, good), 0);
	OK(pawl_wait_writable(e, good, 0, NULL));
}

START_TEST(test_stale_zero)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);

	refuse(e, (pawl_var_t){ 0 }, "zero");
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_stale_garbage)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	const u64 bad[] = { 1, ~0ull, 0x100000001ull << 1, 0x1ffffffffull, 1ull << 32,
			    0x7fffffff00000001ull, 0x300000001ull, 0xffffffff00000001ull };
	size_t i;

	(void)var_new(e);
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		refuse(e, (pawl_var_t){ bad[i] }, "garbage");
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_stale_deleted)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);

	OK(pawl_var_delete(e, v, NULL, NULL));
	refuse(e, v, "deleted");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Its memory is another var now. */
START_TEST(test_stale_reused)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w;
	int i;

	OK(pawl_var_delete(e, v, NULL, NULL));
	for (i = 0; i < 1000; i++) {
		w = var_new(e);
		if ((u32)w.h == (u32)v.h)
			break;
	}
	ck_assert_uint_eq((u32)w.h, (u32)v.h);
	ck_assert_uint_ne(w.h, v.h);
	refuse(e, v, "reused");
	ck_assert_uint_eq(version(e, w), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * "From the place of this op on, the handle is stale": the delete waits behind a write,
 * and nobody races with anybody.
 */
START_TEST(test_stale_while_delete_waits)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate g;
	u32 n = 0;

	gate_write(e, &g, v);
	OK(pawl_var_delete(e, v, add_one, &n));
	refuse(e, v, "delete waits");
	ck_assert_uint_eq(n, 0);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_stale_other_engine)
{
	struct pawl_engine *a = engine(PAWL_PER_DEVICE, 0), *b = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = { 0 };
	int i;

	/* A var that b has no index for. */
	for (i = 0; i < 5000; i++)
		v = var_new(a);
	refuse(b, v, "other engine");
	OK(pawl_engine_destroy(a));
	OK(pawl_engine_destroy(b));
}
END_TEST

/* The same index, used as often, in each of many engines: one handle is good in one of them. */
START_TEST(test_var_of_another_engine_is_refused)
{
	struct pawl_engine *e[8];
	pawl_var_t v[COUNT(e)];
	u32 i, j;

	for (i = 0; i < COUNT(e); i++) {
		e[i] = engine(PAWL_PER_DEVICE, 0);
		v[i] = var_new(e[i]);
		ck_assert_uint_eq((u32)v[i].h, (u32)v[0].h);
	}
	for (i = 0; i < COUNT(e); i++) {
		for (j = 0; j < COUNT(e); j++) {
			if (i == j)
				continue;
			ck_assert_uint_ne(v[i].h, v[j].h);
			refuse(e[i], v[j], "other engine, same index");
		}
	}
	for (i = 0; i < COUNT(e); i++)
		OK(pawl_engine_destroy(e[i]));
}
END_TEST

/* No var was made: there is no memory behind any index. */
START_TEST(test_handle_in_an_engine_without_vars)
{
	const u64 forged[] = { 1ull << 32, 0x300000000ull, 0x100000001ull, 0x100001000ull };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	size_t i;
	u64 n;

	for (i = 0; i < COUNT(forged); i++) {
		pawl_var_t v = { forged[i] };

		FAILS(pawl_var_version(e, v, &n), -ESTALE, "var_version");
		FAILS(push_write(e, nothing, NULL, v), -ESTALE, "push");
		FAILS(pawl_wait_readable(e, v, -1, NULL), -ESTALE, "wait");
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Its generations are used up: no later var has a handle that an earlier one had. */
START_TEST(test_place_is_left_when_its_generations_end)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w;
	u32 i, first = (u32)(v.h >> 32);

	OK(pawl_var_delete(e, v, NULL, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	/* As if it had been created and deleted 2^31 - 2 times. */
	store_relaxed(&var_of(e, var_index(v))->gen, first - 3);
	for (i = 0; i < 1000; i++) {
		w = var_new(e);
		if ((u32)w.h == (u32)v.h)
			break;
	}
	ck_assert_uint_eq(w.h >> 32, first - 2);
	OK(pawl_var_delete(e, w, NULL, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < 1000; i++)
		ck_assert_uint_ne((u32)var_new(e).h, (u32)v.h);
	refuse(e, v, "the first of that place");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* 0 means that an index was never used: a generation that wraps to it is skipped. */
START_TEST(test_generations_leave_zero_out)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w;
	u32 i, k;

	OK(pawl_var_delete(e, v, NULL, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	store_relaxed(&var_of(e, var_index(v))->gen, (u32)-2);
	for (k = 0; k < 2; k++) {
		for (i = 0; i < 1000; i++) {
			w = var_new(e);
			if ((u32)w.h == (u32)v.h)
				break;
		}
		ck_assert_uint_eq(w.h >> 32, k ? 3 : (u32)-1);
		OK(pawl_var_delete(e, w, NULL, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- order --- */

START_TEST(test_fifo_of_writes)
{
	int w;

	for (w = 0; w < 4; w++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, w);
		struct record *r = calloc(1, sizeof(*r));
		struct note n[2000];
		pawl_var_t v = var_new(e);
		u32 i;

		for (i = 0; i < 2000; i++) {
			n[i] = (struct note){ r, i };
			OK(push_write(e, take_note, &n[i], v));
		}
		OK(pawl_wait_readable(e, v, SOON_NS, NULL));
		for (i = 0; i < 2000; i++)
			ck_assert_uint_eq(r->id[i], i);
		ck_assert_uint_eq(version(e, v), 2000);
		OK(pawl_engine_destroy(e));
		free(r);
	}
}
END_TEST

/* Reads do not count. */
START_TEST(test_version_counts_writes)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	struct gate g;
	int i;

	for (i = 0; i < 10; i++) {
		OK(push_read(e, nothing, NULL, v));
		OK(push_write(e, nothing, NULL, v));
		OK(push_read(e, nothing, NULL, v));
	}
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(version(e, v), 10);
	/* Completed, not pushed. */
	gate_write(e, &g, v);
	OK(push_write(e, nothing, NULL, v));
	ck_assert_uint_eq(version(e, v), 10);
	gate_open(&g);
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(version(e, v), 12);
	/* Waits are no versions, but a write that fails or is skipped is one. */
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(version(e, v), 12);
	OK(push_write(e, fail_io, NULL, v));
	OK(push_write(e, nothing, NULL, v));
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, NULL), -EIO);
	ck_assert_uint_eq(version(e, v), 14);
	FAILS(pawl_var_version(e, v, NULL), -EINVAL, "var_version", "out");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Consecutive reads share: all are inside at once, without one worker each. */
START_TEST(test_reads_share)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate g[50], w;
	int i;

	gate_write(e, &w, v);
	for (i = 0; i < 50; i++)
		gate_read(e, &g[i], v);
	ck_assert_int_eq(pawl_run_one(e), 0);
	gate_open(&w);
	while (pawl_run_one(e) == 1)
		;
	for (i = 0; i < 50; i++)
		ck_assert_uint_eq(g[i].running, 1);
	for (i = 0; i < 50; i++)
		gate_open(&g[i]);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A read behind a waiting write waits, although a read is running: writers never starve. */
START_TEST(test_writer_does_not_starve)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate r1, w, r2, r3;

	gate_read(e, &r1, v);
	ck_assert_uint_eq(r1.running, 1);
	gate_write(e, &w, v);
	gate_read(e, &r2, v);
	gate_read(e, &r3, v);
	ck_assert_int_eq(pawl_run_one(e), 0);
	ck_assert_uint_eq(w.running, 0);
	gate_open(&r1);
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_uint_eq(w.running, 1);
	ck_assert_uint_eq(r2.running, 0);
	ck_assert_int_eq(pawl_run_one(e), 0);
	gate_open(&w);
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_uint_eq(r2.running + r3.running, 2);
	gate_open(&r3);
	gate_open(&r2);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A write waits for all reads, in whatever order they end. */
START_TEST(test_write_waits_for_all_reads)
{
	u64 seed = 3;
	int round, i;

	for (round = 0; round < 50; round++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
		pawl_var_t v = var_new(e);
		struct gate r[10], w;
		bool early = round & 1;

		for (i = 0; i < 10; i++)
			gate_read(e, &r[i], v);
		if (!early)	/* some reads end before the writer names itself */
			for (i = 0; i < 5; i++)
				gate_open(&r[i]);
		gate_write(e, &w, v);
		for (i = early ? 0 : 5; i < 10; i++) {
			int k = i + (int)(rnd(&seed) % (u64)(10 - i));
			struct gate tmp;

			ck_assert_uint_eq(w.running, 0);
			tmp = r[k];
			r[k] = r[i];
			gate_open(&tmp);
		}
		pawl_run_one(e);
		ck_assert_uint_eq(w.running, 1);
		gate_open(&w);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* The three ways in which a write can find its predecessor. */
START_TEST(test_write_behind_write)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate a, b, c;

	gate_write(e, &a, v);
	gate_write(e, &b, v);
	gate_write(e, &c, v);
	ck_assert_uint_eq(a.running, 1);
	ck_assert_int_eq(pawl_run_one(e), 0);
	gate_open(&a);
	pawl_run_one(e);
	ck_assert_uint_eq(b.running, 1);
	ck_assert_uint_eq(c.running, 0);
	gate_open(&b);
	pawl_run_one(e);
	ck_assert_uint_eq(c.running, 1);
	gate_open(&c);
	ck_assert_uint_eq(version(e, v), 3);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Many readers of one version, many times: the counts are modulo, and never drift. */
START_TEST(test_many_reads_between_writes)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	pawl_var_t v = var_new(e);
	u64 n = 0;
	u32 reads = 0;
	int i, k, rounds = TIMES(40), each = 1000;

	for (i = 0; i < rounds; i++) {
		OK(push_write(e, add_plain, &n, v));
		for (k = 0; k < each; k++)
			OK(push_read(e, add_one, &reads, v));
	}
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(n, (u64)rounds);
	ck_assert_uint_eq(reads, (u32)(rounds * each));
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * More reads than the count field holds, with no write between them.  Most of them are
 * simulated as reads that joined and are complete.
 */
START_TEST(test_reads_wrap_the_count)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct var *word = var_of(e, (u32)v.h);
	const u32 skip = (u32)JOIN_MASK - 2000;
	u32 reads = 0, i;
	struct gate g;
	u64 val;

	gate_read(e, &g, v);
	val = word->word.val;
	word->word.val = word_join(val, skip);
	block_of(e, word_cur(val))->state -= skip * BLOCK_ONE;
	for (i = 0; i < 10000; i++) {
		OK(push_read(e, add_one, &reads, v));
		pawl_run_one(e);
		if (i % 50 == 0)
			FAILS(pawl_wait_writable(e, v, 0, NULL), -ETIMEDOUT, "wait");
	}
	ck_assert_uint_eq(reads, 10000);
	ck_assert_uint_lt(word_joined(word->word.val), 10000);
	OK(push_write(e, nothing, NULL, v));
	ck_assert_int_eq(pawl_run_one(e), 0);
	gate_open(&g);
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(version(e, v), 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Exclusion and sharing under real concurrency, by active counters in the bodies. */
struct shared {
	u32 readers, writer;	/* A */
	u64 value;		/* plain */
	u32 most;		/* A */
};

static int shared_read(struct pawl_run *run, void *arg)
{
	struct shared *s = arg;
	u64 before = s->value;
	u32 n = fetch_add_acq_rel(&s->readers, 1) + 1;

	MUST(!load_acquire(&s->writer));
	if (n > load_relaxed(&s->most))
		store_relaxed(&s->most, n);
	/* Seldom: on a busy machine a yield costs a slice of each other program. */
	if ((before + n) % 16 == 0)
		sched_yield();
	MUST(!load_acquire(&s->writer));
	MUST(s->value == before);
	fetch_add_acq_rel(&s->readers, -1u);
	return 0;
}

static int shared_write(struct pawl_run *run, void *arg)
{
	struct shared *s = arg;

	MUST(fetch_add_acq_rel(&s->writer, 1) == 0);
	MUST(!load_acquire(&s->readers));
	s->value++;
	MUST(!load_acquire(&s->readers));
	MUST(fetch_add_acq_rel(&s->writer, -1u) == 1);
	return 0;
}

struct pushers {
	struct pawl_engine *e;
	pawl_var_t v[4];
	struct shared s[4];
	u32 rounds, seed;
};

static void *pusher(void *arg)
{
	struct pushers *p = arg;
	u64 seed = fetch_add_relaxed(&p->seed, 1) + 1;
	u32 i;

	for (i = 0; i < p->rounds; i++) {
		u32 k = (u32)(rnd(&seed) % 4);

		if (rnd(&seed) % 4)
			MUST(!push_read(p->e, shared_read, &p->s[k], p->v[k]));
		else
			MUST(!push_write(p->e, shared_write, &p->s[k], p->v[k]));
	}
	return NULL;
}

START_TEST(test_exclusion)
{
	struct pushers p = { .e = engine(PAWL_PER_DEVICE, 3), .rounds = (u32)TIMES(10000) };
	pthread_t t[3];
	u64 writes = 0;
	int i;

	for (i = 0; i < 4; i++)
		p.v[i] = var_new(p.e);
	for (i = 0; i < 3; i++)
		t[i] = spawn(pusher, &p);
	for (i = 0; i < 3; i++)
		join(t[i]);
	OK(pawl_wait_all(p.e, SOON_NS, NULL));
	for (i = 0; i < 4; i++) {
		ck_assert_uint_eq(version(p.e, p.v[i]), p.s[i].value);
		writes += p.s[i].value;
	}
	ck_assert_uint_gt(writes, 0);
	OK(pawl_engine_destroy(p.e));
}
END_TEST

SUITE("var", test_create, test_create_limit, test_create_limit_exact, test_stale_zero,
      test_stale_garbage, test_stale_deleted, test_stale_reused, test_stale_while_delete_waits,
      test_stale_other_engine, test_var_of_another_engine_is_refused,
      test_handle_in_an_engine_without_vars, test_place_is_left_when_its_generations_end,
      test_generations_leave_zero_out, test_fifo_of_writes, test_version_counts_writes,
      test_reads_share, test_writer_does_not_starve, test_write_waits_for_all_reads,
      test_write_behind_write, test_many_reads_between_writes, test_reads_wrap_the_count,
      test_exclusion)
