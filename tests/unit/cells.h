/* SPDX-License-Identifier: Apache-2.0 */
/* Random reads and writes of a few vars by four threads, which check what they read. */
#ifndef TESTS_UNIT_CELLS_H
#define TESTS_UNIT_CELLS_H

#include "util.h"

#define SHARED	4u

struct cells {
	struct pawl_engine *e;
	pawl_var_t v[SHARED];
	u64 data[SHARED][2];		/* plain: equal, except while it is written */
	u64 seed, bad, writes;		/* A: bad, writes */
	u32 rounds;
};

struct access {
	struct cells *c;
	u32 reads, writes;		/* masks */
};

static int look_and_write(struct pawl_run *run, void *arg)
{
	struct access *a = arg;
	struct cells *c = a->c;
	u64 bad = 0, first = 0;
	u32 i, n = 0;

	for (i = 0; i < SHARED; i++) {
		if (!((a->reads | a->writes) & 1u << i))
			continue;
		bad += c->data[i][0] != c->data[i][1];
		/* 0 and 1 are written by the same ops alone. */
		if (i < 2)
			bad += n++ && c->data[i][0] != first;
		if (i < 2)
			first = c->data[i][0];
	}
	for (i = 0; i < SHARED; i++) {
		if (!(a->writes & 1u << i))
			continue;
		c->data[i][0]++;
		c->data[i][1]++;
		fetch_add_relaxed(&c->writes, 1);
	}
	if (bad)
		fetch_add_relaxed(&c->bad, bad);
	free(a);
	return 0;
}

static struct pawl_op cells_op(struct cells *c, u64 *seed, pawl_var_t *v)
{
	struct access *a = malloc(sizeof(*a));
	struct pawl_op op = PAWL_OP_INIT;
	u32 i, nr = 0, nw = 0;

	a->c = c;
	a->reads = (u32)random_next(seed) & (SHARED * SHARED - 1);
	a->writes = random_next(seed) % 8 ? 0 : (u32)random_next(seed) & (SHARED * SHARED - 1);
	if (a->writes & 3)
		a->writes |= 3;
	a->reads &= ~a->writes;
	for (i = 0; i < SHARED; i++)
		if (a->reads & 1u << i)
			v[nr++] = c->v[i];
	for (i = 0; i < SHARED; i++)
		if (a->writes & 1u << i)
			v[nr + nw++] = c->v[i];
	op.fn = look_and_write;
	op.arg = a;
	op.reads = v;
	op.nreads = nr;
	op.writes = v + nr;
	op.nwrites = nw;
	return op;
}

static void *cells_pusher(void *arg)
{
	struct cells *c = arg;
	u64 seed = fetch_add_relaxed(&c->seed, 1);
	struct pawl_op op[3];
	pawl_var_t v[3][SHARED];
	u32 i, k;

	for (i = 0; i < c->rounds; i++) {
		switch (random_next(&seed) % 16) {
		case 0:
			for (k = 0; k < 3; k++)
				op[k] = cells_op(c, &seed, v[k]);
			OK(pawl_push_batch(c->e, op, 3));
			break;
		case 1:
			OK(pawl_wait_readable(c->e, c->v[i % SHARED], -1, NULL));
			break;
		case 2:
			pawl_wait_writable(c->e, c->v[i % SHARED], 0, NULL);
			break;
		default:
			op[0] = cells_op(c, &seed, v[0]);
			OK(pawl_push(c->e, &op[0]));
		}
		if (i % 4)
			pawl_run_one(c->e);
	}
	return NULL;
}

/* c->e, rounds and seed are set. */
static void cells_run(struct cells *c)
{
	pthread_t t[4];
	u64 versions = 0;
	u32 i;

	for (i = 0; i < SHARED; i++)
		c->v[i] = var_new(c->e);
	for (i = 0; i < 4; i++)
		t[i] = spawn(cells_pusher, c);
	for (i = 0; i < 4; i++)
		join(t[i]);
	OK(pawl_wait_all(c->e, SOON_NS, NULL));
	ck_assert_uint_eq(c->bad, 0);
	for (i = 0; i < SHARED; i++)
		versions += version(c->e, c->v[i]);
	ck_assert_uint_eq(versions, c->writes);
	ck_assert_uint_gt(versions, 0);
}

#endif
