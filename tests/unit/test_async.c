// SPDX-License-Identifier: Apache-2.0
/* Asynchronous bodies: pawl_complete() ends an op once, from any thread; wrong tokens fail. */
#include "util.h"
#include <core/op.h>

static struct pawl_op op_async(pawl_async_fn fn, void *arg, const pawl_var_t *v)
{
	struct pawl_op op = PAWL_OP_INIT;

	op.async_fn = fn;
	op.arg = arg;
	op.writes = v;
	op.nwrites = v ? 1 : 0;
	return op;
}

static void in_body(struct pawl_run *run, void *arg)
{
	MUST(run->token.h);
	MUST(!pawl_complete(run->engine, run->token, *(int *)arg, NULL));
}

START_TEST(test_in_body)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_var_t v = var_new(e);
		int status = 0, i;
		struct pawl_op op = op_async(in_body, &status, &v);

		for (i = 0; i < 100; i++)
			OK(pawl_push(e, &op));
		OK(pawl_wait_readable(e, v, SOON_NS, NULL));
		ck_assert_uint_eq(version(e, v), 100);
		status = -EIO;
		OK(pawl_push(e, &op));
		ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, NULL), -EIO);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* Completed in the body, which then continues: other ops have the vars of the complete op. */
struct early {
	pawl_var_t v;
	u32 next_ran;	/* A */
};

static void early_body(struct pawl_run *run, void *arg)
{
	struct early *s = arg;

	MUST(!pawl_complete(run->engine, run->token, 0, NULL));
	/* The body no longer holds it, so waits on it are legal. */
	MUST(!pawl_wait_readable(run->engine, s->v, SOON_NS, NULL));
	MUST(!pawl_wait_writable(run->engine, s->v, SOON_NS, NULL));
	MUST(load_acquire(&s->next_ran) == 1);
	MUST(pawl_complete(run->engine, run->token, 0, NULL) == -EALREADY);
}

START_TEST(test_body_goes_on)
{
	int w;

	for (w = 0; w < 3; w++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, w);
		struct early s = { var_new(e), 0 };
		struct pawl_op op = op_async(early_body, &s, &s.v);
		struct gate g;

		gate_write(e, &g, s.v);		/* so that both are pushed before one runs */
		OK(pawl_push(e, &op));
		OK(push_write(e, add_one, &s.next_ran, s.v));
		gate_open(&g);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* An op that is not completed holds its vars, whatever its body did. */
START_TEST(test_later)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	u64 token = 0;
	struct pawl_op op = op_async(keep_token, &token, &v);
	u32 n = 0;

	OK(pawl_push(e, &op));
	OK(push_write(e, add_one, &n, v));
	ck_assert(soon(load_acquire(&token)));
	ck_assert_int_eq(pawl_wait_readable(e, v, 1000000, NULL), -ETIMEDOUT);
	ck_assert_uint_eq(load_acquire(&n), 0);
	ck_assert_uint_eq(version(e, v), 0);
	OK(pawl_complete(e, (pawl_token_t){ token }, 0, NULL));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(n, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* From a thread that the engine has never seen, before and after the body returned. */
struct meet {
	struct pawl_engine *e;
	u64 token;		/* A */
	u32 done;		/* A */
	u32 left;		/* A: the body has returned */
	bool hold;
};

static void meet_body(struct pawl_run *run, void *arg)
{
	struct meet *m = arg;
	bool hold = m->hold;

	store_release(&m->token, run->token.h);
	if (hold)
		MUST(soon(load_acquire(&m->done)));
	/* The op may have been completed meanwhile; the body may continue. */
	store_release(&m->left, 1);
}

static void *meet_completer(void *arg)
{
	struct meet *m = arg;

	MUST(soon(load_acquire(&m->token)));
	MUST(!pawl_complete(m->e, (pawl_token_t){ m->token }, 0, NULL));
	store_release(&m->done, 1);
	return NULL;
}

START_TEST(test_unknown_thread)
{
	int i, rounds = TIMES(400);

	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	u64 n = 0;

	for (i = 0; i < rounds; i++) {
		struct meet m = { .e = e, .hold = i & 1 };
		struct pawl_op op = op_async(meet_body, &m, &v);
		pthread_t t;

		OK(pawl_push(e, &op));
		OK(push_write(e, add_plain, &n, v));
		t = spawn(meet_completer, &m);
		OK(pawl_wait_readable(e, v, SOON_NS, NULL));
		ck_assert_uint_eq(n, (u64)i + 1);
		join(t);
		MUST(soon(load_acquire(&m.left)));
	}
	ck_assert_uint_lt(stats(e).threads, 20);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- what is refused --- */

START_TEST(test_twice)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u64 token = 0, old;
	struct pawl_op op = op_async(keep_token, &token, &v);
	int i;

	OK(pawl_push(e, &op));
	pawl_run_one(e);
	OK(pawl_complete(e, (pawl_token_t){ token }, 0, NULL));
	FAILS(pawl_complete(e, (pawl_token_t){ token }, 0, NULL), -EALREADY, "complete",
	      "before");
	FAILS(pawl_complete(e, (pawl_token_t){ token }, -EIO, "x"), -EALREADY, "complete");
	/* The op's memory is in use again, by all kinds of ops: still refused. */
	old = token;
	for (i = 0; i < 100; i++) {
		OK(i % 3 ? push_write(e, nothing, NULL, v) : pawl_push(e, &op));
		pawl_run_one(e);
		FAILS(pawl_complete(e, (pawl_token_t){ old }, 0, NULL), -EALREADY);
		if (i % 3 == 0) {
			OK(pawl_complete(e, (pawl_token_t){ token }, 0, NULL));
			if (i == 51)
				old = token;
		}
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Of two that complete at once, one does. */
struct duel {
	struct pawl_engine *e;
	pawl_token_t token;
	u32 go, won;		/* A */
};

static void *duelist(void *arg)
{
	struct duel *d = arg;
	int rc;

	while (!load_acquire(&d->go))
		cpu_relax();
	rc = pawl_complete(d->e, d->token, 0, NULL);
	MUST(rc == 0 || rc == -EALREADY);
	if (!rc)
		fetch_add_relaxed(&d->won, 1);
	return NULL;
}

START_TEST(test_twice_at_once)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	int i, rounds = TIMES(500);

	for (i = 0; i < rounds; i++) {
		struct duel d = { .e = e };
		u64 token = 0;
		struct pawl_op op = op_async(keep_token, &token, &v);
		pthread_t t;

		OK(pawl_push(e, &op));
		pawl_run_one(e);
		d.token.h = token;
		t = spawn(duelist, &d);
		store_release(&d.go, 1);
		duelist(&d);
		join(t);
		ck_assert_uint_eq(d.won, 1);
		ck_assert_uint_eq(version(e, v), (u64)i + 1);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_bogus)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u64 token = 0, i;
	struct pawl_op op = op_async(keep_token, &token, &v);
	const u64 bad[] = { 0, 1, 1ull << 32, ~0ull, 0x100000000ull | 0xfffff, 0xffffffff00000000ull };

	OK(pawl_push(e, &op));
	pawl_run_one(e);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		int rc = pawl_complete(e, (pawl_token_t){ bad[i] }, 0, NULL);

		ck_assert_msg(rc == -EINVAL || rc == -EALREADY || rc == -ESTALE, "%#llx: %d",
			      (unsigned long long)bad[i], rc);
		says("complete", (const char *const[]){ "complete", NULL });
	}
	FAILS(pawl_complete(e, (pawl_token_t){ 0 }, 0, NULL), -EINVAL, "complete", "token");
	/* A token with any one bit changed is refused. */
	for (i = 0; i < 64; i++) {
		int rc = pawl_complete(e, (pawl_token_t){ token ^ 1ull << i }, 0, NULL);

		ck_assert_msg(rc == -EINVAL || rc == -EALREADY || rc == -ESTALE, "bit %llu: %d",
			      (unsigned long long)i, rc);
	}
	/* A synchronous op has no token. */
	FAILS(pawl_complete(e, (pawl_token_t){ token }, 1, NULL), -EINVAL, "complete", "status", "1");
	OK(pawl_complete(e, (pawl_token_t){ token }, 0, NULL));	/* still good */
	ck_assert_uint_eq(version(e, v), 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The generation of a token wraps after 2^30 runs of one op: all of them can be completed. */
START_TEST(test_token_wraps)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u64 token = 0;
	struct pawl_op op = op_async(keep_token, &token, &v);
	u32 opi;
	int i;

	OK(pawl_push(e, &op));
	pawl_run_one(e);
	opi = (u32)token;
	OK(pawl_complete(e, (pawl_token_t){ token }, 0, NULL));
	op_of(e, opi)->token = 0xffffffffu - 5 * 4 - 3 + TOKEN_DONE;
	for (i = 0; i < 20; i++) {
		u64 before = token;

		OK(pawl_push(e, &op));
		pawl_run_one(e);
		ck_assert_uint_eq((u32)token, opi);
		ck_assert_uint_ne(token, before);
		OK(pawl_complete(e, (pawl_token_t){ token }, 0, NULL));
		FAILS(pawl_complete(e, (pawl_token_t){ token }, 0, NULL), -EALREADY);
	}
	ck_assert_uint_eq(version(e, v), 21);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The body of a synchronous op has no token. */
static int no_token(struct pawl_run *run, void *arg)
{
	MUST(!run->token.h);
	MUST(run->engine == arg);
	return 0;
}

START_TEST(test_sync_has_no_token)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[6];
	u32 i;

	for (i = 0; i < 6; i++)
		v[i] = var_new(e);
	/* Nor has it that of an asynchronous op that ran just before it, on the same stack. */
	for (i = 0; i < 8; i++) {
		struct pawl_op op = op_write(no_token, e, v);
		u64 token = 0;

		op.nwrites = i & 1 ? 6 : 1;
		op.flags = i & 2 ? PAWL_OP_NO_SKIP : 0;
		if (i & 4) {
			struct pawl_op before = op;

			before.fn = NULL;
			before.async_fn = keep_token;
			before.arg = &token;
			OK(pawl_push(e, &before));
			ck_assert_int_eq(pawl_run_one(e), 1);
			OK(pawl_complete(e, (pawl_token_t){ token }, 0, NULL));
		}
		OK(pawl_push(e, &op));
		ck_assert_int_eq(pawl_run_one(e), 1);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* release comes with the completion, on the completing thread, not with the body. */
static u32 rel_n;	/* A */
static int rel_status;

static void rel(void *arg, int status)
{
	rel_status = status;
	fetch_add_relaxed(&rel_n, 1);
}

START_TEST(test_release)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u64 token = 0;
	struct pawl_op op = op_async(keep_token, &token, &v);

	op.release = rel;
	OK(pawl_push(e, &op));
	pawl_run_one(e);
	ck_assert_uint_eq(rel_n, 0);
	OK(pawl_complete(e, (pawl_token_t){ token }, -ENOLINK, NULL));
	ck_assert_uint_eq(rel_n, 1);
	ck_assert_int_eq(rel_status, -ENOLINK);
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -ENOLINK);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Many are in flight, and several threads complete them in another order. */
#define MANY 2000

struct crowd {
	struct pawl_engine *e;
	u64 token[MANY];	/* A */
	u32 next;		/* A */
	u32 perm[MANY];
};

static void *crowd_completer(void *arg)
{
	struct crowd *c = arg;
	u32 i;

	while ((i = fetch_add_relaxed(&c->next, 1)) < MANY) {
		u64 *t = &c->token[c->perm[i]];

		MUST(soon(load_acquire(t)));
		MUST(!pawl_complete(c->e, (pawl_token_t){ *t }, 0, NULL));
	}
	return NULL;
}

START_TEST(test_many)
{
	struct crowd *c = calloc(1, sizeof(*c));
	u64 seed = 8;
	pthread_t t[2];
	u32 i;

	c->e = engine(PAWL_PER_DEVICE, 2);
	for (i = 0; i < MANY; i++)
		c->perm[i] = i;
	for (i = MANY - 1; i; i--) {
		u32 k = (u32)(rnd(&seed) % (i + 1)), x = c->perm[i];

		c->perm[i] = c->perm[k];
		c->perm[k] = x;
	}
	t[0] = spawn(crowd_completer, c);
	t[1] = spawn(crowd_completer, c);
	for (i = 0; i < MANY; i++) {
		pawl_var_t v = var_new(c->e);
		struct pawl_op op = op_async(keep_token, &c->token[i], &v);

		OK(pawl_push(c->e, &op));
	}
	OK(pawl_wait_all(c->e, SOON_NS, NULL));
	join(t[0]);
	join(t[1]);
	OK(pawl_engine_destroy(c->e));
	free(c);
}
END_TEST

struct enders {
	struct pawl_engine *e;	/* A */
	u64 token[2];		/* A */
};

static void hand_token(struct pawl_run *run, void *arg)
{
	store_release((u64 *)arg, run->token.h);
}

static void *ender_main(void *arg)
{
	struct enders *s = arg;
	pawl_token_t token = { 0 };
	u32 i;

	for (i = 0; i < 2; i++) {
		while (!token.h) {
			token.h = xchg_acq_rel(&s->token[i], 0);
			sched_yield();
		}
		MUST(!pawl_complete(load_acquire(&s->e), token, 0, NULL));
		token.h = 0;
	}
	return NULL;
}

/* Nothing but the end of its ops says that the engine may be destroyed. */
START_TEST(test_an_engine_ends_behind_the_calls_that_end_its_ops)
{
	u32 k, i;

	for (k = 0; k < 200; k++) {
		struct enders s = { .e = engine((int)(k % 3), 1 + k / 3 % 2) };
		pthread_t t = spawn(ender_main, &s);

		for (i = 0; i < 2; i++) {
			struct pawl_op op = op_async(hand_token, &s.token[i], NULL);

			OK(pawl_push(s.e, &op));
		}
		OK(pawl_engine_destroy(s.e));
		join(t);
	}
}
END_TEST

SUITE("async", test_in_body, test_body_goes_on, test_later, test_unknown_thread, test_twice,
      test_twice_at_once, test_bogus, test_token_wraps, test_sync_has_no_token, test_release,
      test_many, test_an_engine_ends_behind_the_calls_that_end_its_ops)
