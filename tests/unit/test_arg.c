// SPDX-License-Identifier: Apache-2.0
/* PAWL_OP_ARG: the engine keeps a copy of a small argument inside the op. */
#include "util.h"

#define ROOM_MAX 72u

struct copied {
	u8 byte[ROOM_MAX];
};

static u32 ran, released;	/* A */
static u8 want[ROOM_MAX];	/* the bytes that the copy must have */
static u32 want_size;
static void *seen[4];

static bool is_copy(const void *arg)
{
	return !((uintptr_t)arg & 15) && !memcmp(arg, want, want_size);
}

static int body_compares(struct pawl_run *run, void *arg)
{
	MUST(is_copy(arg));
	fetch_add_relaxed(&ran, 1);
	return 0;
}

static void release_compares(void *arg, int status)
{
	MUST(is_copy(arg));
	fetch_add_relaxed(&released, 1);
}

static void want_random(u64 *seed, u32 size)
{
	u32 i;

	for (i = 0; i < size; i++)
		want[i] = (u8)rnd(seed);
	want_size = size;
}

static struct pawl_op op_with(pawl_fn fn, const void *arg, u32 size)
{
	struct pawl_op op = op_of_fn(fn, (void *)(uintptr_t)arg);

	op.flags = PAWL_OP_ARG;
	op.arg_size = size;
	return op;
}

/* Every size that has room, with every number of vars: the caller's memory is free at once. */
START_TEST(test_copy_is_what_the_body_gets)
{
	int kind;

	for (kind = PAWL_PER_DEVICE; kind <= PAWL_NAIVE; kind++) {
		struct pawl_engine *e = engine(kind, 2);
		pawl_var_t v[4] = { var_new(e), var_new(e), var_new(e), var_new(e) };
		u32 n, size, batch, pushed = 0;
		u64 seed = 7;
		struct gate g;

		store_relaxed(&ran, 0);
		for (n = 0; n <= 4; n++) {
			for (size = 0; size <= PAWL_ARG_ROOM(n); size++) {
				for (batch = 0; batch < 2; batch++) {
					struct copied c;
					struct pawl_op op = op_with(body_compares, &c, size);
					bool held = n && kind != PAWL_NAIVE;

					want_random(&seed, size);
					memcpy(c.byte, want, sizeof(c.byte));
					if (held)
						gate_write(e, &g, v[n - 1]);
					op.reads = v;
					op.nreads = n / 2;
					op.writes = v + n / 2;
					op.nwrites = n - n / 2;
					OK(batch ? pawl_push_batch(e, &op, 1) : pawl_push(e, &op));
					memset(&c, 0xee, sizeof(c));
					if (held)
						gate_open(&g);
					OK(pawl_wait_all(e, SOON_NS, NULL));
					pushed++;
				}
			}
		}
		ck_assert_uint_eq(load_relaxed(&ran), pushed);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* A var that is named twice leaves its room free, and does not make less of it. */
START_TEST(test_copy_with_a_var_named_twice)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t a = var_new(e);
	struct copied c;
	struct pawl_op op = op_with(body_compares, &c, PAWL_ARG_ROOM(4));
	u64 seed = 3;

	store_relaxed(&ran, 0);
	want_random(&seed, op.arg_size);
	memcpy(&c, want, sizeof(want));
	op.reads = VARS(a, a, a);
	op.nreads = 3;
	op.writes = &a;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(load_relaxed(&ran), 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* release gets the copy, also if the body does not run: skipped, canceled, too late. */
START_TEST(test_copy_reaches_release)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t a = var_new(e);
	struct copied c;
	struct pawl_op op = op_with(body_compares, &c, PAWL_ARG_ROOM(1) - 8);
	pawl_ticket_t ticket;
	u64 seed = 5;
	struct gate g;

	store_relaxed(&ran, 0);
	store_relaxed(&released, 0);
	want_random(&seed, op.arg_size);
	memcpy(&c, want, sizeof(want));
	op.writes = &a;
	op.nwrites = 1;
	op.release = release_compares;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(load_relaxed(&released), 1);

	OK(push_write(e, fail_io, NULL, a));
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	ck_assert_uint_eq(load_relaxed(&released), 2);

	gate_write(e, &g, a);
	op.flags |= PAWL_OP_TICKET;
	op.ticket = &ticket;
	OK(pawl_push(e, &op));
	memset(&c, 0, sizeof(c));
	OK(pawl_cancel(e, ticket));
	gate_open(&g);
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -ECANCELED);
	ck_assert_uint_eq(load_relaxed(&released), 3);

	memcpy(&c, want, sizeof(want));
	op.flags = PAWL_OP_ARG | PAWL_OP_DEADLINE;
	op.ticket = NULL;
	op.deadline_ns = 1;
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -ETIMEDOUT);
	ck_assert_uint_eq(load_relaxed(&released), 4);
	ck_assert_uint_eq(load_relaxed(&ran), 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

static pawl_token_t async_token;
static u32 async_began;		/* A */

static void async_keeps(struct pawl_run *run, void *arg)
{
	seen[0] = arg;
	async_token = run->token;
	store_release(&async_began, 1);
}

/* The copy of an asynchronous op exists until it is complete, not until its body returns. */
START_TEST(test_copy_until_completion)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t a = var_new(e), b = var_new(e);
	struct copied c;
	struct pawl_op op = op_with(NULL, &c, PAWL_ARG_ROOM(1));
	u64 seed = 11;
	u32 i;

	store_relaxed(&async_began, 0);
	want_random(&seed, op.arg_size);
	memcpy(&c, want, sizeof(want));
	op.async_fn = async_keeps;
	op.writes = &a;
	op.nwrites = 1;
	OK(pawl_push(e, &op));
	memset(&c, 0, sizeof(c));
	MUST(soon(load_acquire(&async_began)));
	/* Ops that could take its memory, if it were free. */
	for (i = 0; i < 1000; i++)
		OK(push_write(e, nothing, NULL, b));
	OK(pawl_wait_readable(e, b, SOON_NS, NULL));
	MUST(is_copy(seen[0]));
	OK(pawl_complete(e, async_token, 0, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_bad_args)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v[5] = { var_new(e), var_new(e), var_new(e), var_new(e), var_new(e) };
	struct copied c = { { 0 } };
	struct pawl_op op = op_with(nothing, &c, 1);
	pawl_ticket_t ticket;
	pawl_graph_t g;
	u32 n;

	op.writes = v;
	for (n = 0; n <= 5; n++) {
		op.nwrites = n;
		op.arg_size = PAWL_ARG_ROOM(n);
		if (n <= 4)
			OK(pawl_push(e, &op));
		else
			FAILS(pawl_push(e, &op), -E2BIG, "push", "op.arg_size is 0", "5 vars");
		op.arg_size++;
		FAILS(pawl_push(e, &op), -E2BIG, "push", "op.arg_size", "vars");
		FAILS(pawl_push_batch(e, &op, 1), -E2BIG, "push_batch", "op.arg_size");
		if (n > 4)
			continue;
		op.arg_size = PAWL_ARG_ROOM(n);
		op.release = release_compares;
		FAILS(pawl_push(e, &op), -E2BIG, "op.arg_size", "op.release");
		op.release = NULL;
		op.flags |= PAWL_OP_TICKET;
		op.ticket = &ticket;
		FAILS(pawl_push(e, &op), -E2BIG, "op.arg_size", "op.flags");
		op.arg_size -= 8;
		OK(pawl_push(e, &op));
		op.flags = PAWL_OP_ARG;
		op.ticket = NULL;
	}
	op.nwrites = 1;
	op.arg_size = 8;
	FAILS(pawl_graph_create(e, &op, 1, 0, &g), -EINVAL, "graph_create", "flags");
	op.arg = NULL;
	FAILS(pawl_push(e, &op), -EINVAL, "op.arg", "op.arg_size");
	op.arg_size = 0;
	OK(pawl_push(e, &op));
	op.arg = &c;
	op.arg_size = 8;
	op.size = offsetof(struct pawl_op, arg_size);
	FAILS(pawl_push(e, &op), -EINVAL, "op.size", "op.flags");
	op.flags = PAWL_OP_TICKET;	/* which that size has */
	op.ticket = &ticket;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- other threads read the memory of ops that were freed --- */

#define VARS_SHARED 4u

struct pushers {
	struct pawl_engine *e;
	pawl_var_t v[VARS_SHARED];
	u64 sum[VARS_SHARED];	/* written under its var */
	u32 times;
};

struct add {
	u64 *to, check;
	u32 fill[8];
};

static int body_adds(struct pawl_run *run, void *arg)
{
	const struct add *a = arg;

	MUST(a->check == ~(u64)(uintptr_t)a->to);
	++*a->to;
	return 0;
}

static void *push_many(void *arg)
{
	struct pushers *p = arg;
	u64 seed = (u64)(uintptr_t)&seed;
	u32 i, n, k;

	for (i = 0; i < p->times; i++) {
		pawl_var_t named[4];
		struct add a;
		struct pawl_op op = op_with(body_adds, &a, 0);

		memset(&a, 0xff, sizeof(a));	/* no handle, no index, no reference */
		k = (u32)rnd(&seed) % VARS_SHARED;
		a.to = &p->sum[k];
		a.check = ~(u64)(uintptr_t)a.to;
		/* All of its room, so that what an earlier op had there is overwritten. */
		n = 1 + (u32)rnd(&seed) % 3;
		op.arg_size = min_u((u32)sizeof(a), PAWL_ARG_ROOM(n));
		named[0] = p->v[k];
		named[1] = p->v[(k + 1) % VARS_SHARED];
		named[2] = p->v[(k + 2) % VARS_SHARED];
		op.writes = named;
		op.nwrites = 1;
		op.reads = named + 1;
		op.nreads = n - 1;
		MUST(!pawl_push(p->e, &op));
	}
	return NULL;
}

/* Helpers read accesses where there may be the argument of a later op. */
START_TEST(test_readers_of_freed_ops)
{
	struct pushers p = { .e = engine(PAWL_PER_DEVICE, 2), .times = TIMES(40000) };
	u64 sum = 0;
	pthread_t t[2];
	u32 i;

	for (i = 0; i < VARS_SHARED; i++)
		p.v[i] = var_new(p.e);
	for (i = 0; i < 2; i++)
		t[i] = spawn(push_many, &p);
	for (i = 0; i < 2; i++)
		join(t[i]);
	OK(pawl_wait_all(p.e, SOON_NS, NULL));
	for (i = 0; i < VARS_SHARED; i++)
		sum += p.sum[i];
	ck_assert_uint_eq(sum, 2ull * p.times);
	OK(pawl_engine_destroy(p.e));
}
END_TEST

/*
 * Rounds of three ops on one worker: the first has four accesses, and lasts until the watchdog
 * has seen it twice; the second pushes the third, which gets the memory of the first, with an
 * argument where the first had three of its accesses.
 */
struct rounds {
	struct pawl_engine *e;
	pawl_var_t v[4];
	u32 watched;		/* A: calls of the watchdog */
	u32 left;		/* A */
};

struct third {
	struct rounds *r;
	u8 fill[48];
};

static int body_first(struct pawl_run *run, void *arg);

static int body_third(struct pawl_run *run, void *arg)
{
	struct rounds *r = ((struct third *)arg)->r;
	struct pawl_op op = op_write(body_first, r, r->v);

	op.nwrites = 4;
	if (fetch_add_relaxed(&r->left, -1u) != 1)
		MUST(!pawl_push(r->e, &op));
	return 0;
}

static int body_second(struct pawl_run *run, void *arg)
{
	struct rounds *r = arg;
	struct third third = { .r = r };
	struct pawl_op op = op_with(body_third, &third, sizeof(third));

	memset(third.fill, 0xff, sizeof(third.fill));
	op.writes = r->v;
	op.nwrites = 1;
	MUST(!pawl_push(r->e, &op));
	return 0;
}

static int body_first(struct pawl_run *run, void *arg)
{
	struct rounds *r = arg;
	u32 was = load_relaxed(&r->watched);

	MUST(!push_write(r->e, body_second, r, r->v[0]));
	/* Not a yield: on a busy machine each would take as long as the slices of all others. */
	while (load_relaxed(&r->watched) - was < 2)
		nap_us(20);
	return 0;
}

START_TEST(test_watch_of_reused_ops)
{
	struct rounds r = { .e = engine(PAWL_PER_DEVICE, 1), .left = TIMES(4000) };
	struct pawl_op op = op_of_fn(body_first, &r);
	u32 i;

	for (i = 0; i < 4; i++)
		r.v[i] = var_new(r.e);
	op.writes = r.v;
	op.nwrites = 4;
	OK(pawl_push(r.e, &op));
	while (load_relaxed(&r.left)) {
		MUST(pawl_watch(r.e, 1, NULL, NULL) >= 0);
		fetch_add_relaxed(&r.watched, 1);
	}
	OK(pawl_wait_all(r.e, SOON_NS, NULL));
	OK(pawl_engine_destroy(r.e));
}
END_TEST

SUITE("arg", test_copy_is_what_the_body_gets, test_copy_with_a_var_named_twice,
      test_copy_reaches_release, test_copy_until_completion, test_bad_args,
      test_readers_of_freed_ops, test_watch_of_reused_ops)
