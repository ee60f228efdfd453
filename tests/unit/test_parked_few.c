// SPDX-License-Identifier: Apache-2.0
/*
 * core/park.c with far fewer blocks than vars: every var is parked repeatedly, while several
 * threads push, wait, delete and query at random.
 *
 * Each op checks that it runs after exactly those ops that its thread pushed to the same vars
 * before it, that no write runs at the same time, and that two vars which only the same ops
 * write are equal.  The data is plain, so a race detector finds a missing order.
 */
#include <fcntl.h>
#include "util.h"
#include <core/link.h>

#define PUSHERS	4u
#define NVARS	240u
#define PAIRS	16u		/* vars 2i and 2i + 1 below this are written by the same ops */
#define POISON	12u		/* vars whose writes may fail */
#define MORTAL	8u		/* vars that are deleted and replaced */
#define MOST	6u		/* vars of one op */

struct data {
	pawl_var_t v;
	u64 sum[2];		/* plain: equal except while it is written */
	u32 by[PUSHERS];	/* plain: writes by the ops of each thread */
	u32 dead;		/* plain */
	struct data *next;
};

struct world {
	struct pawl_engine *e;
	struct data d[NVARS];
	pawl_var_t poison[POISON];
	struct data *mortal[MORTAL];	/* A */
	u64 bad, ran, released, pushed;	/* A */
	u64 lacking;			/* A: bodies whose push failed for lack of blocks */
	u32 rounds;
	int fd;
};

struct look {
	struct world *w;
	struct data *d[MOST];
	u32 by[MOST];			/* how many writes of its thread are before it */
	u32 n, nr, me;
	bool mortal, pushes;
	pawl_var_t v[MOST];
};

struct pusher {
	struct world *w;
	u32 me;
	u64 seed;
	u32 wrote[NVARS];		/* writes of d[i] that this thread has pushed */
	u64 version[NVARS];
	struct data *gone;		/* data of vars that it replaced */
};

static int look(struct pawl_run *run, void *arg)
{
	struct look *l = arg;
	struct world *w = l->w;
	u64 bad = 0;
	u32 i;

	for (i = 0; i < l->n; i++) {
		struct data *d = l->d[i];

		bad += d->sum[0] != d->sum[1];
		bad += d->dead;
		if (!l->mortal)
			bad += d->by[l->me] != l->by[i];
		if (d < w->d + PAIRS && d >= w->d && i + 1 < l->n && l->d[i + 1] == d + 1 &&
		    !((d - w->d) & 1) && (i >= l->nr) == (i + 1 >= l->nr))
			bad += d->sum[0] != d[1].sum[0];
	}
	for (i = l->nr; i < l->n; i++) {
		l->d[i]->sum[0]++;
		l->d[i]->by[l->me]++;
		l->d[i]->sum[1]++;
	}
	if (l->pushes) {
		u32 ignored = 0;
		int rc = push_write(w->e, nothing, &ignored, w->d[NVARS - 1].v);

		MUST(!rc || rc == -ENOMEM || rc == -EAGAIN);
		fetch_add_relaxed(&w->lacking, (u64)!!rc);
	}
	if (bad)
		fetch_add_relaxed(&w->bad, bad);
	fetch_add_relaxed(&w->ran, 1);
	return 0;
}

static void look_free(void *arg, int status)
{
	struct look *l = arg;

	fetch_add_relaxed(&l->w->released, 1);
	free(l);
}

static void add(struct look *l, struct data *d)
{
	u32 i;

	for (i = 0; i < l->n; i++)
		if (l->d[i] == d)
			return;
	l->v[l->n] = d->v;
	l->d[l->n++] = d;
}

/* A random op; its reads come first. */
static struct pawl_op random_op(struct pusher *p, bool mortal)
{
	struct look *l = calloc(1, sizeof(*l));
	struct world *w = p->w;
	struct pawl_op op = PAWL_OP_INIT;
	u32 n = 1 + (u32)rnd(&p->seed) % (MOST / 2), nr = (u32)rnd(&p->seed) % (n + 1), i;

	MUST(l);
	l->w = w;
	l->me = p->me;
	l->mortal = mortal;
	l->pushes = !mortal && !(rnd(&p->seed) % 64);
	for (i = 0; i < n; i++) {
		u32 k = (u32)rnd(&p->seed) % (NVARS - 1);

		if (i == nr)
			l->nr = l->n;
		if (mortal) {
			add(l, load_acquire(&w->mortal[k % MORTAL]));
		} else if (k < PAIRS) {
			/* Both or neither, so that no op reads one and writes the other. */
			u32 had = l->n;

			add(l, &w->d[k & ~1u]);
			if (l->n > had)
				add(l, &w->d[k | 1u]);
		} else {
			add(l, &w->d[k]);
		}
	}
	if (nr == n)
		l->nr = l->n;
	for (i = 0; i < l->n && !mortal; i++) {
		u32 k = (u32)(l->d[i] - w->d);

		l->by[i] = p->wrote[k];
		p->wrote[k] += i >= l->nr;
	}
	op.fn = look;
	op.arg = l;
	op.release = look_free;
	op.reads = l->v;
	op.nreads = l->nr;
	op.writes = l->v + l->nr;
	op.nwrites = l->n - l->nr;
	op.priority = (int)(rnd(&p->seed) % 3);
	return op;
}

/* Retry until there is room; the ops in flight may use all blocks. */
static int push_some(struct pusher *p, const struct pawl_op *op, size_t n)
{
	int rc;

	do {
		rc = n == 1 ? pawl_push(p->w->e, op) : pawl_push_batch(p->w->e, op, n);
		if (rc == -EAGAIN)
			pawl_run_one(p->w->e);
	} while (rc == -EAGAIN);
	if (!rc)
		fetch_add_relaxed(&p->w->pushed, n);
	return rc;
}

/* Replace this var, and delete it after the ops that use it. */
static int bury(struct pawl_run *run, void *arg)
{
	struct data *d = arg;

	MUST(d->sum[0] == d->sum[1] && !d->dead);
	d->dead = 1;
	return 0;
}

static struct data *born(struct world *w)
{
	struct data *d = calloc(1, sizeof(*d));

	MUST(d);
	d->v = var_new(w->e);
	return d;
}

static void replace(struct pusher *p)
{
	struct world *w = p->w;
	struct data *d = born(w), *was;
	int rc;

	was = xchg_acq_rel(&w->mortal[rnd(&p->seed) % MORTAL], d);
	do
		rc = pawl_var_delete(w->e, was->v, bury, was);
	while (rc == -EAGAIN);
	MUST(!rc);
	was->next = p->gone;
	p->gone = was;
}

static void poison(struct pusher *p)
{
	struct world *w = p->w;
	pawl_var_t v = w->poison[rnd(&p->seed) % POISON];
	int rc;

	switch (rnd(&p->seed) % 4) {
	case 0:
		rc = push_write(w->e, fail_io, NULL, v);
		MUST(!rc || rc == -EAGAIN);
		break;
	case 1:
		rc = pawl_var_take(w->e, v, NULL);
		MUST(!rc || rc == -EIO);
		break;
	case 2:
		rc = pawl_wait_readable(w->e, v, (s64)(rnd(&p->seed) % 2) * 10000, NULL);
		MUST(!rc || rc == -EIO || rc == -ETIMEDOUT || rc == -EAGAIN);
		break;
	default:
		MUST(!pawl_var_clear(w->e, v));
		rc = push_write(w->e, nothing, NULL, v);
		MUST(!rc || rc == -EAGAIN);
	}
}

static void waits(struct pusher *p)
{
	struct world *w = p->w;
	u32 k = (u32)rnd(&p->seed) % (NVARS - 1);
	s64 ns = rnd(&p->seed) % 2 ? -1 : (s64)(rnd(&p->seed) % 3) * 10000;
	u64 n;
	int rc;

	rc = rnd(&p->seed) % 2 ? pawl_wait_readable(w->e, w->d[k].v, ns, NULL) :
	     pawl_wait_writable(w->e, w->d[k].v, ns, NULL);
	MUST(!rc || (rc == -ETIMEDOUT && ns >= 0) || rc == -EAGAIN);
	n = version(w->e, w->d[k].v);
	MUST(n >= p->version[k]);
	p->version[k] = n;
	if (rc)
		return;
	/* What this thread pushed is complete. */
	if (w->d[k].by[p->me] != p->wrote[k])
		fetch_add_relaxed(&w->bad, 1);
	MUST(n >= p->wrote[k]);
}

static void *push_all(void *arg)
{
	struct pusher *p = arg;
	struct world *w = p->w;
	struct pawl_op op[3];
	u32 i, k;

	for (i = 0; i < w->rounds; i++) {
		switch (rnd(&p->seed) % 32) {
		case 0:
			for (k = 0; k < 3; k++)
				op[k] = random_op(p, false);
			MUST(!push_some(p, op, 3));
			break;
		case 1:
		case 2:
			waits(p);
			break;
		case 3:
			replace(p);
			break;
		case 4:
			poison(p);
			break;
		case 5:
			op[0] = random_op(p, true);
			if (push_some(p, op, 1))
				free(op[0].arg);	/* its vars were deleted */
			break;
		case 6:
			if (!(rnd(&p->seed) % 16))
				pawl_trim(w->e);
			else if (!(rnd(&p->seed) % 16))
				MUST(!pawl_dump(w->e, w->fd));
			else
				pawl_watch(w->e, 0, NULL, NULL);
			break;
		default:
			op[0] = random_op(p, false);
			MUST(!push_some(p, op, 1));
		}
		if (i % 3 == p->me % 3)
			pawl_run_one(w->e);
	}
	return NULL;
}

static u32 parked_vars(struct world *w)
{
	u32 i, n = 0;

	for (i = 0; i < NVARS; i++)
		n += !word_cur(word_snapshot(var_of(w->e, var_index(w->d[i].v))).val);
	return n;
}

static void few(int policy, u32 rm_reads, u64 seed)
{
	static struct world w;
	static struct pusher p[PUSHERS];
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	struct data *d, *next;
	pthread_t t[PUSHERS];
	u64 versions = 0;
	u32 i, k;

	memset(&w, 0, sizeof(w));
	memset(p, 0, sizeof(p));
	c.max_ops = 256;
	c.max_vars = 256;
	c.max_threads = 16;
	c.window = 64;
	c.window_policy = policy;
	c.trim_ns = 0;
	w.e = engine_with(&c);
	w.e->rm_reads = rm_reads;
	/* The threads' caches may hold 112 of them. */
	w.e->pool[POOL_BLOCK]->max = 200;
	w.rounds = (u32)TIMES(12000);
	w.fd = open("/dev/null", O_WRONLY);
	for (i = 0; i < NVARS; i++)
		w.d[i].v = var_new(w.e);
	for (i = 0; i < POISON; i++)
		w.poison[i] = var_new(w.e);
	for (i = 0; i < MORTAL; i++)
		w.mortal[i] = born(&w);
	for (i = 0; i < PUSHERS; i++) {
		p[i].w = &w;
		p[i].me = i;
		p[i].seed = seed + i;
		t[i] = spawn(push_all, &p[i]);
	}
	for (i = 0; i < PUSHERS; i++)
		join(t[i]);
	/* Errors of writes that no call has returned are returned here. */
	k = (u32)-pawl_wait_all(w.e, SOON_NS, NULL);
	ck_assert(!k || k == EIO);
	ck_assert_uint_eq(w.bad, 0);
	ck_assert_uint_eq(w.released, w.pushed);
	ck_assert_uint_gt(parked_vars(&w), 0);
	for (i = 0; i < NVARS - 1; i++) {
		u64 n = 0;

		for (k = 0; k < PUSHERS; k++) {
			ck_assert_uint_eq(w.d[i].by[k], p[k].wrote[i]);
			n += p[k].wrote[i];
		}
		ck_assert_uint_eq(version(w.e, w.d[i].v), n);
		ck_assert_uint_eq(w.d[i].sum[0], n);
		versions += n;
	}
	ck_assert_uint_gt(versions, w.rounds);
	for (i = 0; i < NVARS; i++)
		OK(pawl_var_delete(w.e, w.d[i].v, NULL, NULL));
	for (i = 0; i < MORTAL; i++) {
		OK(pawl_var_delete(w.e, w.mortal[i]->v, bury, w.mortal[i]));
		w.mortal[i]->next = p[0].gone;
		p[0].gone = w.mortal[i];
	}
	pawl_wait_all(w.e, SOON_NS, NULL);
	for (i = 0; i < PUSHERS; i++)
		for (d = p[i].gone; d; d = next) {
			ck_assert(d->dead);
			next = d->next;
			free(d);
		}
	close(w.fd);
	OK(pawl_engine_destroy(w.e));
}

START_TEST(test_many_reads)
{
	few(PAWL_WINDOW_BLOCK, 64, 1);
}
END_TEST

START_TEST(test_block)
{
	few(PAWL_WINDOW_BLOCK, 0, 101);
}
END_TEST

START_TEST(test_fail)
{
	few(PAWL_WINDOW_FAIL, 0, 201);
}
END_TEST

SUITE("parked_few", test_many_reads, test_block, test_fail)
