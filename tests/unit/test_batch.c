// SPDX-License-Identifier: Apache-2.0
/* core/batch.c: the ops of a batch join the vars together; no other push comes between them. */
#include "util.h"
#include <malloc.h>
#include <core/engine.h>

START_TEST(test_empty)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_op op = op_of_fn(nothing, NULL);

	OK(pawl_push_batch(e, &op, 0));
	OK(pawl_push_batch(e, NULL, 0));
	FAILS(pawl_push_batch(e, NULL, 1), -EINVAL, "push_batch", "ops");
	ck_assert_uint_eq(stats(e).pushed, 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_one)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_var_t v = var_new(e);
		u64 n = 0;
		struct pawl_op op = op_write(add_plain, &n, &v);

		OK(pawl_push_batch(e, &op, 1));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, 1);
		ck_assert_uint_eq(version(e, v), 1);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

START_TEST(test_no_vars)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	struct pawl_op op[10];
	u32 n = 0;
	int i;

	for (i = 0; i < 10; i++)
		op[i] = op_of_fn(i % 2 ? add_one : NULL, &n);
	OK(pawl_push_batch(e, op, 10));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 5);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The same var in all of them: they run in the order of the batch. */
START_TEST(test_same_var)
{
	int kind, w;

	for (kind = 0; kind < 3; kind++)
		for (w = 0; w < 3; w++) {
			struct pawl_engine *e = engine(kind, w);
			struct record *r = calloc(1, sizeof(*r));
			struct pawl_op op[300];
			struct note n[300];
			pawl_var_t v = var_new(e);
			u32 i;

			for (i = 0; i < 300; i++) {
				n[i] = (struct note){ r, i };
				op[i] = op_write(take_note, &n[i], &v);
			}
			OK(pawl_push_batch(e, op, 300));
			OK(pawl_wait_readable(e, v, SOON_NS, NULL));
			ck_assert_uint_eq(r->n, 300);
			for (i = 0; i < 300; i++)
				ck_assert_uint_eq(r->id[i], i);
			ck_assert_uint_eq(version(e, v), 300);
			OK(pawl_engine_destroy(e));
			free(r);
		}
}
END_TEST

/*
 * All segments of up to five accesses, after each possible state and before each possible
 * access: versions show what every op saw, and counters that reads run together and writes
 * alone.
 */
struct seen {
	u64 *data;
	u64 value;	/* version it saw, or made */
	u32 *readers, *writers;
	bool write;
};

static int see(struct pawl_run *run, void *arg)
{
	struct seen *s = arg;

	if (s->write) {
		MUST(fetch_add_relaxed(s->writers, 1) == 0);
		MUST(!load_relaxed(s->readers));
		s->value = ++*s->data;
		fetch_add_relaxed(s->writers, -1u);
	} else {
		fetch_add_relaxed(s->readers, 1);
		MUST(!load_relaxed(s->writers));
		s->value = *s->data;
		fetch_add_relaxed(s->readers, -1u);
	}
	return 0;
}

static void segment(struct pawl_engine *e, u32 mask, u32 n, u32 before, u32 after, bool hold)
{
	u64 data = 0, v_now = 0;
	u32 readers = 0, writers = 0, total = 0, i, k;
	struct seen s[12];
	struct pawl_op op[12];
	pawl_var_t v = var_new(e);
	struct gate g;

	/* before: 0 nothing, 1 a read, 2 a write, 3 a write and a read; held or over */
	if (hold && before)
		gate_push(e, &g, &v, before == 1, &v, before > 1);
	for (i = 0; i < (before == 3) + n + (after ? 2 : 0); i++, total++) {
		bool w;

		if (before == 3 && i == 0)
			w = false;
		else if (i >= (before == 3) + n)
			w = (after == 2) ^ (i > (before == 3) + n);
		else
			w = mask >> (i - (before == 3)) & 1;
		s[i] = (struct seen){ &data, 0, &readers, &writers, w };
		op[i] = w ? op_write(see, &s[i], &v) : op_read(see, &s[i], &v);
	}
	k = before == 3;
	if (k)
		OK(pawl_push(e, &op[0]));
	if (n)
		OK(pawl_push_batch(e, &op[k], n));
	for (i = k + n; i < total; i++)
		OK(pawl_push(e, &op[i]));
	if (hold && before) {
		if (before > 1)
			ck_assert_int_eq(pawl_run_one(e), 0);
		gate_open(&g);
	}
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	for (i = 0; i < total; i++) {
		v_now += s[i].write;
		ck_assert_msg(s[i].value == v_now,
			      "mask %x of %u, before %u, after %u: op %u saw %llu, not %llu", mask, n,
			      before, after, i, (unsigned long long)s[i].value,
			      (unsigned long long)v_now);
	}
	ck_assert_uint_eq(version(e, v), v_now + (hold && before > 1));
	OK(pawl_var_delete(e, v, NULL, NULL));
}

START_TEST(test_segments)
{
	u32 w, n, mask, before, after, hold;

	for (w = 0; w < 3; w += 2) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, (int)w);

		for (n = 1; n <= 5; n++)
			for (mask = 0; mask < 1u << n; mask++)
				for (before = 0; before < 4; before++)
					for (after = 0; after < 3; after++)
						for (hold = 0; hold < 2; hold++)
							segment(e, mask, n, before, after, hold);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_lt(stats(e).blocks, 1000);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* Reads of one version inside a batch run together. */
START_TEST(test_reads_share)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate g[20];
	struct pawl_op op[20];
	int i;

	memset(g, 0, sizeof(g));
	for (i = 0; i < 20; i++) {
		op[i] = (struct pawl_op)PAWL_OP_INIT;
		g[i].e = e;
		op[i].async_fn = gate_body;
		op[i].arg = &g[i];
		if (i == 10) {
			op[i].writes = &v;
			op[i].nwrites = 1;
		} else {
			op[i].reads = &v;
			op[i].nreads = 1;
		}
	}
	OK(pawl_push_batch(e, op, 20));
	while (pawl_run_one(e))
		;
	for (i = 0; i < 20; i++)
		ck_assert_uint_eq(g[i].running, i < 10);
	for (i = 0; i < 10; i++)
		gate_open(&g[i]);
	while (pawl_run_one(e))
		;
	for (i = 10; i < 20; i++)
		ck_assert_uint_eq(g[i].running, i == 10);
	gate_open(&g[10]);
	while (pawl_run_one(e))
		;
	for (i = 11; i < 20; i++) {
		ck_assert_uint_eq(g[i].running, 1);
		gate_open(&g[i]);
	}
	OK(pawl_wait_writable(e, v, 0, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Random batches over many vars, ops with more vars than fit inside, against push order. */
struct rop {
	u64 (*data)[64];
	u64 reads, writes;		/* bit masks */
	u64 want[64];
	u64 seed;
};

static int rop_body(struct pawl_run *run, void *arg)
{
	struct rop *r = arg;
	int i;

	for (i = 0; i < 64; i++) {
		if ((r->reads | r->writes) >> i & 1)
			MUST((*r->data)[i] == r->want[i]);
		if (r->writes >> i & 1)
			(*r->data)[i]++;
	}
	return 0;
}

START_TEST(test_random)
{
	u64 seed = 77;
	int round, rounds = TIMES(150);

	for (round = 0; round < rounds; round++) {
		struct pawl_engine *e = engine(round % 3, round % 4);
		u64 data[64] = { 0 }, now[64] = { 0 };
		u32 nv = 1 + (u32)(rnd(&seed) % 64), total = 200, i, k, at = 0;
		struct rop *r = calloc(total, sizeof(*r));
		struct pawl_op *op = calloc(total, sizeof(*op));
		pawl_var_t (*lists)[128] = calloc(total, sizeof(*lists));
		pawl_var_t v[64];

		for (i = 0; i < nv; i++)
			v[i] = var_new(e);
		for (i = 0; i < total; i++) {
			u32 want = (u32)(rnd(&seed) % (rnd(&seed) % 4 ? 5 : 20));

			op[i] = op_of_fn(rop_body, &r[i]);
			r[i].data = &data;
			for (k = 0; k < want; k++) {
				u32 x = (u32)(rnd(&seed) % nv);

				if (rnd(&seed) % 2)
					r[i].reads |= 1ull << x;
				else
					r[i].writes |= 1ull << x;
			}
			op[i].reads = lists[i];
			op[i].writes = lists[i] + 64;
			for (k = 0; k < nv; k++) {
				if (r[i].reads >> k & 1)
					lists[i][op[i].nreads++] = v[k];
				if (r[i].writes >> k & 1)
					lists[i][64 + op[i].nwrites++] = v[k];
				r[i].want[k] = now[k];
				now[k] += r[i].writes >> k & 1;
			}
		}
		while (at < total) {
			u32 n = 1 + (u32)(rnd(&seed) % 40);

			n = min_u(n, total - at);
			if (rnd(&seed) % 4)
				OK(pawl_push_batch(e, op + at, n));
			else
				for (i = 0; i < n; i++)
					OK(pawl_push(e, op + at + i));
			at += n;
		}
		OK(pawl_wait_all(e, SOON_NS, NULL));
		for (i = 0; i < nv; i++) {
			ck_assert_uint_eq(data[i], now[i]);
			ck_assert_uint_eq(version(e, v[i]), now[i]);
		}
		OK(pawl_engine_destroy(e));
		free(r);
		free(op);
		free(lists);
	}
}
END_TEST

START_TEST(test_10000)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	struct pawl_op *op = calloc(10000, sizeof(*op));
	pawl_var_t v[100];
	u64 n[100] = { 0 };
	int i, round;

	for (i = 0; i < 100; i++)
		v[i] = var_new(e);
	for (i = 0; i < 10000; i++)
		op[i] = op_write(add_plain, &n[i % 100], &v[i % 100]);
	for (round = 1; round <= 3; round++) {
		OK(pawl_push_batch(e, op, 10000));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		for (i = 0; i < 100; i++)
			ck_assert_uint_eq(n[i], 100u * (u32)round);
	}
	OK(pawl_engine_destroy(e));
	free(op);
}
END_TEST

/* --- atomicity --- */

/*
 * Two threads push batches over the same four vars, a third one single ops: every op takes
 * the stamp of each of its vars.  In no var does a foreign op come between two ops of a
 * batch.
 */
#define AV 4

struct atom {
	struct pawl_engine *e;
	pawl_var_t v[AV];
	u32 last[AV];		/* batch that was here last */
	u32 left[AV];		/* accesses of it still to come */
	u32 ids;		/* A */
	u32 rounds;
	u32 broken;		/* A */
};

struct atom_op {
	struct atom *a;
	u32 batch;		/* 0: a single op */
	u32 mask;
	u32 left[AV];		/* accesses of the batch to that var, after this one */
};

static int atom_body(struct pawl_run *run, void *arg)
{
	struct atom_op *o = arg;
	struct atom *a = o->a;
	int i;

	for (i = 0; i < AV; i++) {
		if (!(o->mask >> i & 1))
			continue;
		if (a->left[i] && a->last[i] != o->batch)
			fetch_add_relaxed(&a->broken, 1);
		a->last[i] = o->batch;
		a->left[i] = o->left[i];
	}
	return 0;
}

static void free_arg(void *arg, int status)
{
	free(arg);
}

static void *atom_pusher(void *arg)
{
	struct atom *a = arg;
	u64 seed = 1000 + fetch_add_relaxed(&a->ids, 1);
	u32 i, k, j;

	for (i = 0; i < a->rounds; i++) {
		u32 n = seed % 3 == 2 ? 1 : 1 + (u32)(rnd(&seed) % 6);
		u32 id = fetch_add_relaxed(&a->ids, 1), left[AV] = { 0 };
		struct pawl_op op[6];
		pawl_var_t list[6][AV];
		struct atom_op *o[6];

		for (k = 0; k < n; k++) {
			o[k] = calloc(1, sizeof(*o[k]));
			o[k]->a = a;
			o[k]->batch = id;
			o[k]->mask = 1 + (u32)(rnd(&seed) % 15);
			op[k] = op_of_fn(atom_body, o[k]);
			op[k].release = free_arg;
			op[k].writes = list[k];
			for (j = 0; j < AV; j++)
				if (o[k]->mask >> j & 1)
					list[k][op[k].nwrites++] = a->v[j];
		}
		for (k = n; k--; )
			for (j = 0; j < AV; j++)
				if (o[k]->mask >> j & 1)
					o[k]->left[j] = left[j]++;
		MUST(!(n == 1 ? pawl_push(a->e, op) : pawl_push_batch(a->e, op, n)));
	}
	return NULL;
}

START_TEST(test_atomic)
{
	struct atom a = { .e = engine(PAWL_PER_DEVICE, 2), .ids = 1,
			  .rounds = (u32)TIMES(15000) };
	pthread_t t[3];
	int i;

	for (i = 0; i < AV; i++)
		a.v[i] = var_new(a.e);
	for (i = 0; i < 3; i++)
		t[i] = spawn(atom_pusher, &a);
	for (i = 0; i < 3; i++)
		join(t[i]);
	OK(pawl_wait_all(a.e, SOON_NS, NULL));
	ck_assert_uint_eq(a.broken, 0);
	for (i = 0; i < AV; i++)
		ck_assert_uint_eq(a.left[i], 0);
	OK(pawl_engine_destroy(a.e));
}
END_TEST

/* --- all or nothing --- */

static void never_released(void *arg, int status)
{
	MUST(!"release of a refused batch");
}

START_TEST(test_all_or_nothing)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[20], gone = var_new(e), bad[20];
	struct pawl_op op[20], good[20];
	struct pawl_stats s0, s;
	u32 n = 0;
	int i, at, round;

	for (i = 0; i < 20; i++) {
		v[i] = var_new(e);
		bad[i] = i % 7 ? v[i] : gone;
	}
	OK(pawl_var_delete(e, gone, NULL, NULL));
	for (i = 0; i < 20; i++) {
		op[i] = op_write(add_one, &n, &v[i]);
		op[i].release = never_released;
		op[i].reads = v;
		op[i].nreads = (u32)i;		/* many sizes to take back */
	}
	memcpy(good, op, sizeof(op));
	s0 = stats(e);
	for (round = 0; round < 100; round++)
		for (at = 0; at < 20; at++) {
			memcpy(op, good, sizeof(op));
			switch (round % 6) {
			case 0:
				op[at].writes = &gone;
				FAILS(pawl_push_batch(e, op, 20), -ESTALE, "writes[0]");
				break;
			case 1:
				op[at].reads = bad;
				op[at].nreads = 20;
				FAILS(pawl_push_batch(e, op, 20), -ESTALE, "reads[0]");
				break;
			case 2:
				op[at].prop = 9;
				FAILS(pawl_push_batch(e, op, 20), -EINVAL, "push_batch",
				      "prop");
				break;
			case 3:
				op[at].size = 0;
				FAILS(pawl_push_batch(e, op, 20), -EINVAL, "push_batch",
				      "size");
				break;
			case 4:
				op[at].device.id = 1;
				FAILS(pawl_push_batch(e, op, 20), -ENODEV, "push_batch",
				      "device");
				break;
			default:
				op[at].nreads = 40000;
				op[at].reads = NULL;
				FAILS(pawl_push_batch(e, op, 20), -EINVAL, "reads");
			}
		}
	s = stats(e);
	ck_assert_uint_eq(s.pushed, s0.pushed);
	ck_assert_uint_le(s.ops, s0.ops + 128);
	ck_assert_uint_le(s.blocks, s0.blocks + 192);
	ck_assert_int_eq(pawl_run_one(e), 0);
	for (i = 0; i < 20; i++) {
		OK(pawl_wait_writable(e, v[i], 0, NULL));
		ck_assert_uint_eq(version(e, v[i]), 0);
	}
	ck_assert_uint_eq(n, 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_too_big)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	struct pawl_op *op = calloc(70000, sizeof(*op));
	pawl_var_t *v = calloc(33000, sizeof(*v));
	u32 n = 0;
	int i;

	c.max_ops = 1 << 16;
	e = engine_with(&c);
	for (i = 0; i < 70000; i++)
		op[i] = op_of_fn(add_one, &n);
	FAILS(pawl_push_batch(e, op, 70000), -E2BIG, "push_batch", "70000", "max_ops");
	/* Vars of all ops together: as many as one op can have. */
	for (i = 0; i < 33000; i++) {
		v[i] = var_new(e);
		op[i] = op_write(add_one, &n, &v[i]);
	}
	ck_assert_int_eq(pawl_push_batch(e, op, 33000), -E2BIG);
	ck_assert_uint_eq(n, 0);
	OK(pawl_push_batch(e, op, 32768));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 32768);
	for (i = 0; i < 32768; i += 1000)
		ck_assert_uint_eq(version(e, v[i]), 1);
	OK(pawl_engine_destroy(e));
	free(op);
	free(v);
}
END_TEST

/* Too few ops exist: nothing is pushed, and everything that was allocated is freed. */
START_TEST(test_out_of_ops)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pool_cache hoard = { 0 };
	struct pawl_engine *e;
	struct pawl_op op[64];
	pawl_var_t v;
	u32 n = 0, idx, taken[4096], k = 0;
	int i;

	c.max_ops = 64;
	c.max_vars = 64;
	c.max_threads = 1;
	e = engine_with(&c);
	v = var_new(e);
	while (k < ARRAY_SIZE(taken) && pool_get(e->pool[POOL_OP], &hoard, &idx))
		taken[k++] = idx;
	for (i = 0; i < 20; i++)	/* twenty are left */
		pool_put(e->pool[POOL_OP], &hoard, taken[--k]);
	pool_cache_flush(e->pool[POOL_OP], &hoard);
	for (i = 0; i < 64; i++)
		op[i] = op_write(add_one, &n, &v);
	FAILS(pawl_push_batch(e, op, 64), -ENOMEM, "push_batch", "max_ops");
	FAILS(pawl_push_batch(e, op, 64), -ENOMEM, "push_batch", "max_ops");
	OK(pawl_push_batch(e, op, 15));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 15);
	ck_assert_uint_eq(version(e, v), 15);
	while (k)
		pool_put(e->pool[POOL_OP], &hoard, taken[--k]);
	pool_cache_flush(e->pool[POOL_OP], &hoard);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* One op with many vars among small ones; duplicates; waits on what it wrote. */
START_TEST(test_wide_op)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t *v = calloc(5000, sizeof(*v));
	struct record *r = calloc(1, sizeof(*r));
	struct note n[4] = { { r, 0 }, { r, 1 }, { r, 2 }, { r, 3 } };
	struct pawl_op op[4];
	u32 i;

	for (i = 0; i < 5000; i++)
		v[i] = var_new(e);
	for (i = 0; i < 4; i++)
		op[i] = op_write(take_note, &n[i], &v[i * 1000]);
	op[1].writes = v;
	op[1].nwrites = 5000;
	op[1].reads = v + 1000;
	op[1].nreads = 3000;
	op[2].reads = VARS(v[7], v[7], v[2000]);
	op[2].nreads = 3;
	op[3].writes = VARS(v[2000], v[2000]);
	op[3].nwrites = 2;
	OK(pawl_push_batch(e, op, 4));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < 4; i++)
		ck_assert_uint_eq(r->id[i], i);
	ck_assert_uint_eq(version(e, v[2000]), 3);
	ck_assert_uint_eq(version(e, v[7]), 1);
	OK(pawl_engine_destroy(e));
	free(v);
	free(r);
}
END_TEST

/* Failures inside a batch propagate as between single ops. */
START_TEST(test_errors)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t a = var_new(e), b = var_new(e), c = var_new(e);
	struct pawl_op op[4];
	struct pawl_error err;
	u32 n = 0;

	op[0] = op_write(fail_io, NULL, &a);
	op[1] = op_write(add_one, &n, &b);
	op[1].reads = &a;
	op[1].nreads = 1;
	op[2] = op_write(add_one, &n, &c);
	op[3] = op_write(add_one, &n, &a);
	OK(pawl_push_batch(e, op, 4));
	ck_assert_int_eq(pawl_wait_readable(e, b, SOON_NS, &err), -EIO);
	ck_assert_str_eq(err.text, "disk on fire");
	OK(pawl_wait_readable(e, c, SOON_NS, NULL));
	ck_assert_uint_eq(n, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Properties and priorities of the single ops count. */
START_TEST(test_props)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct record *r = calloc(1, sizeof(*r));
	struct note n[6];
	struct pawl_op op[6];
	u32 i;

	for (i = 0; i < 6; i++) {
		n[i] = (struct note){ r, i };
		op[i] = op_of_fn(take_note, &n[i]);
		op[i].priority = (s32)i;
	}
	op[0].prop = PAWL_ASYNC;	/* inline, after all have their positions */
	OK(pawl_push_batch(e, op, 6));
	ck_assert_uint_eq(r->n, 1);
	ck_assert_uint_eq(r->id[0], 0);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 1; i < 6; i++)
		ck_assert_uint_eq(r->id[i], 6 - i);
	OK(pawl_engine_destroy(e));
	free(r);
}
END_TEST

/* A batch that races with the delete of one of its vars. */
struct brace {
	struct pawl_engine *e;
	pawl_var_t v[3];
	u32 go;			/* A */
	u32 ran, rel, stale;	/* A */
	int rc;
};

static int brace_body(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&((struct brace *)arg)->ran, 1);
	return 0;
}

static void brace_release(void *arg, int status)
{
	struct brace *b = arg;

	MUST(status == 0 || status == -ESTALE);
	fetch_add_relaxed(status ? &b->stale : &b->rel, 1);
}

static void *brace_pusher(void *arg)
{
	struct brace *b = arg;
	struct pawl_op op[9];
	pawl_var_t two[2] = { b->v[0], b->v[1] };
	int i;

	for (i = 0; i < 9; i++) {
		op[i] = i % 2 ? op_write(brace_body, b, &b->v[i % 3]) :
				op_read(brace_body, b, &b->v[i % 3]);
		op[i].release = brace_release;
	}
	op[4].writes = two;
	op[4].nwrites = 2;
	while (!load_acquire(&b->go))
		cpu_relax();
	b->rc = pawl_push_batch(b->e, op, 9);
	return NULL;
}

START_TEST(test_races_with_delete)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	int round, rounds = TIMES(500), i;

	for (round = 0; round < rounds; round++) {
		struct brace b = { .e = e };
		pthread_t t;

		for (i = 0; i < 3; i++)
			b.v[i] = var_new(e);
		t = spawn(brace_pusher, &b);
		nap_us(1);
		store_release(&b.go, 1);
		for (i = 0; i < round % 300; i++)
			cpu_relax();
		OK(pawl_var_delete(e, b.v[1], NULL, NULL));
		join(t);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		if (b.rc) {
			ck_assert_int_eq(b.rc, -ESTALE);
			ck_assert_uint_eq(b.ran + b.rel + b.stale, 0);
		} else {
			ck_assert_uint_eq(b.ran, b.rel);
			ck_assert_uint_eq(b.rel + b.stale, 9);
		}
		OK(pawl_var_delete(e, b.v[0], NULL, NULL));
		OK(pawl_var_delete(e, b.v[2], NULL, NULL));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The window counts the ops of a batch. */
START_TEST(test_window)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	struct pawl_op op[8];
	u32 n = 0;
	int i;

	c.window = 16;
	c.window_policy = PAWL_WINDOW_FAIL;
	e = engine_with(&c);
	for (i = 0; i < 8; i++)
		op[i] = op_of_fn(add_one, &n);
	OK(pawl_push_batch(e, op, 8));
	OK(pawl_push_batch(e, op, 8));
	FAILS(pawl_push_batch(e, op, 8), -EAGAIN, "window");
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_push_batch(e, op, 8));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 24);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* An op of a batch that runs inside the push pushes a batch: the outer one is not lost. */
struct nested {
	struct pawl_engine *e;
	pawl_var_t v;
	u32 inner, outer, last;
};

static int nested_inner(struct pawl_run *run, void *arg)
{
	struct nested *n = arg;

	/* All ops of the outer batch have their positions before those of this one. */
	MUST(n->outer == 3);
	n->inner++;
	return 0;
}

static int nested_outer(struct pawl_run *run, void *arg)
{
	struct nested *n = arg;

	MUST(!n->inner);
	n->outer++;
	return 0;
}

static int nested_push(struct pawl_run *run, void *arg)
{
	struct nested *n = arg;
	struct pawl_op ops[200];
	u32 i;

	for (i = 0; i < COUNT(ops); i++)
		ops[i] = op_write(nested_inner, n, &n->v);
	MUST(!pawl_push_batch(n->e, ops, COUNT(ops)));
	return 0;
}

static int nested_last(struct pawl_run *run, void *arg)
{
	struct nested *n = arg;

	n->last++;
	return 0;
}

START_TEST(test_batch_in_a_batch)
{
	struct nested n = { .e = engine(PAWL_PER_DEVICE, 0) };
	struct pawl_op ops[5];
	u32 i;

	n.v = var_new(n.e);
	ops[0] = op_of_fn(nested_push, &n);
	ops[0].prop = PAWL_ASYNC;
	for (i = 1; i < COUNT(ops) - 1; i++)
		ops[i] = op_write(nested_outer, &n, &n.v);
	/* It runs inside the push, too, behind the one that pushes. */
	ops[i] = op_of_fn(nested_last, &n);
	ops[i].prop = PAWL_ASYNC;
	OK(pawl_push_batch(n.e, ops, COUNT(ops)));
	ck_assert_uint_eq(n.last, 1);
	OK(pawl_wait_all(n.e, SOON_NS, NULL));
	ck_assert_uint_eq(n.outer, 3);
	ck_assert_uint_eq(n.inner, 200);
	OK(pawl_engine_destroy(n.e));
}
END_TEST

/*
 * The memory that a thread keeps for its next batch is freed with the engine, even if the
 * thread continues.  With sanitizers, where these figures do not exist, the leak check tests
 * it.
 */
START_TEST(test_destroy_frees_the_room_of_batches)
{
	enum { N = 1000, ROUNDS = 20 };
	struct pawl_op *op = calloc(N, sizeof(*op));
	size_t before = 0, after;
	int i;

	MUST(op);
	for (i = 0; i < N; i++)
		op[i] = op_of_fn(NULL, NULL);
	for (i = 0; i <= ROUNDS; i++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);

		/* after the first round the memory that all engines share exists */
		if (i == 1)
			before = mallinfo2().uordblks;
		OK(pawl_push_batch(e, op, N));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_engine_destroy(e));
	}
	after = mallinfo2().uordblks;
	/* each batch needs at least 4 bytes for each of its ops, in each of two arrays */
	ck_assert_msg(after < before + ROUNDS * N, "%zu bytes remain",
		      after - before);
	free(op);
}
END_TEST

SUITE("batch", test_empty, test_one, test_no_vars, test_same_var, test_segments,
      test_reads_share, test_random, test_10000, test_atomic, test_all_or_nothing,
      test_too_big, test_out_of_ops, test_wide_op, test_errors, test_props,
      test_races_with_delete, test_window, test_batch_in_a_batch,
      test_destroy_frees_the_room_of_batches)
