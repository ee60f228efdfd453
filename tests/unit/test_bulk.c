// SPDX-License-Identifier: Apache-2.0
/* core/bulk.c: consecutive small pushes gather into one op. */
#include "util.h"
#include <core/internal.h>

START_TEST(test_size)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);

	ck_assert_int_eq(pawl_bulk_size(e, 0), 0);	/* off by default */
	ck_assert_int_eq(pawl_bulk_size(e, 10), 0);
	ck_assert_int_eq(pawl_bulk_size(e, 20), 10);
	ck_assert_int_eq(pawl_bulk_size(e, 1), 20);
	ck_assert_int_eq(pawl_bulk_size(e, 0), 1);
	ck_assert_int_eq(pawl_bulk_size(e, 0), 0);
	FAILS(pawl_bulk_size(e, -1), -EINVAL, "bulk_size", "-1");
	ck_assert_int_eq(pawl_bulk_size(e, 0), 0);
	OK(pawl_bulk_flush(e));				/* nothing there */
	OK(pawl_engine_destroy(e));
}
END_TEST

static void *other_thread_size(void *arg)
{
	struct pawl_engine *e = arg;
	u32 n = 0;

	MUST(pawl_bulk_size(e, 0) == 0);
	MUST(!push_write(e, add_one, &n, var_new(e)));
	MUST(pawl_run_one(e) == 1);
	MUST(n == 1);
	return NULL;
}

START_TEST(test_size_is_per_thread)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0), *f = engine(PAWL_PER_DEVICE, 0);

	ck_assert_int_eq(pawl_bulk_size(e, 10), 0);
	join(spawn(other_thread_size, e));
	ck_assert_int_eq(pawl_bulk_size(f, 0), 0);	/* and per engine */
	ck_assert_int_eq(pawl_bulk_size(e, 10), 10);
	OK(pawl_engine_destroy(e));
	OK(pawl_engine_destroy(f));
}
END_TEST

/* n gathered: pushed as one op. */
START_TEST(test_full)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u64 n = 0;
	int size, i;

	for (size = 2; size <= 10; size++) {
		u64 before;

		n = 0;
		OK(pawl_bulk_size(e, size) < 0);
		before = stats(e).pushed;
		for (i = 0; i < size - 1; i++)
			OK(push_write(e, add_plain, &n, v));
		ck_assert_int_eq((int)(load_relaxed(&thread_get(e)->pushed) - before), 0);
		OK(push_write(e, add_plain, &n, v));
		ck_assert_uint_eq(load_relaxed(&thread_get(e)->pushed) - before, 1);
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_uint_eq(n, (u64)size);
		ck_assert_int_eq(pawl_run_one(e), 0);
	}
	/* One op: one version. */
	ck_assert_uint_eq(version(e, v), 9);
	OK(pawl_bulk_size(e, 0) < 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A large size: nothing goes before it is full or flushed. */
START_TEST(test_full_large)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	const int sizes[] = { 63, 64, 65, 100, 1000 };
	u64 n;
	size_t s;
	int i;

	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		pawl_var_t v = var_new(e);

		n = 0;
		OK(pawl_bulk_size(e, sizes[s]) < 0);
		for (i = 0; i < sizes[s]; i++)
			OK(push_write(e, add_plain, &n, v));
		OK(pawl_bulk_flush(e));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, (u64)sizes[s]);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* In order, whatever the vars. */
START_TEST(test_order)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	struct record *r = calloc(1, sizeof(*r));
	struct note n[1000];
	pawl_var_t v = var_new(e), w = var_new(e);
	u32 i;

	OK(pawl_bulk_size(e, 7) < 0);
	for (i = 0; i < 1000; i++) {
		struct pawl_op op = op_of_fn(take_note, &n[i]);

		n[i] = (struct note){ r, i };
		op.reads = i % 3 ? &w : &v;
		op.nreads = 1;
		op.writes = i % 3 == 2 ? &v : i % 3 == 1 ? VARS(v, w) : &v;
		op.nwrites = i % 3 == 1 ? 2 : 1;
		OK(pawl_push(e, &op));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(r->n, 1000);
	for (i = 0; i < 1000; i++)
		ck_assert_uint_eq(r->id[i], i);
	OK(pawl_engine_destroy(e));
	free(r);
}
END_TEST

/* --- what flushes --- */

static struct pawl_engine *be;
static pawl_var_t bv, bw;
static u32 bran;
static pawl_oper_t boper;

static void gather(void)
{
	int i;

	bran = 0;
	for (i = 0; i < 3; i++)
		MUST(!push_write(be, add_one, &bran, bv));
}

static bool gathered_only(void)
{
	return load_relaxed(&thread_get(be)->bulk) && !bran &&
	       load_relaxed(&thread_get(be)->pushed) == load_relaxed(&thread_get(be)->completed);
}

static void pushed_now(const char *what)
{
	u32 ran;

	while (pawl_run_one(be))	/* would flush by itself: look at the count first */
		;
	ran = bran;
	ck_assert_msg(ran == 3, "%s: %u of 3 ran", what, ran);
}

/* The push of the bulk must be in the thread's count before run_one() is called. */
#define FLUSHES(call)								\
	do {									\
		u64 pushed_;							\
		gather();							\
		ck_assert_msg(gathered_only(), "%s: not gathered", #call);	\
		pushed_ = load_relaxed(&thread_get(be)->pushed);		\
		(void)(call);							\
		ck_assert_msg(load_relaxed(&thread_get(be)->pushed) > pushed_,	\
			      "%s does not flush", #call);			\
		pushed_now(#call);						\
	} while (0)

static bool yes(void *arg)
{
	return true;
}

static int push_prop(int prop, s32 prio)
{
	struct pawl_op op = op_write(nothing, NULL, &bw);

	op.prop = (u16)prop;
	op.priority = prio;
	return pawl_push(be, &op);
}

static void async_keep(struct pawl_run *run, void *arg)
{
	MUST(!pawl_complete(run->engine, run->token, 0, NULL));
}

static int push_async(void)
{
	struct pawl_op op = op_write(NULL, NULL, &bw);

	op.async_fn = async_keep;
	return pawl_push(be, &op);
}

static int push_device(u32 d)
{
	struct pawl_op op = op_write(nothing, NULL, &bw);

	op.device.id = (u16)d;
	return pawl_push(be, &op);
}

static int push_batch(void)
{
	struct pawl_op op[2] = { op_write(nothing, NULL, &bw), op_write(nothing, NULL, &bw) };

	return pawl_push_batch(be, op, 2);
}

static void flush_setup(void)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_op op;

	c.cpu_devices = 2;
	be = engine_with(&c);
	bv = var_new(be);
	bw = var_new(be);
	op = op_write(nothing, NULL, &bw);
	OK(pawl_oper_create(be, &op, &boper));
	OK(pawl_bulk_size(be, 10) < 0);
}

START_TEST(test_flush_points)
{
	pawl_var_t gone;
	uint64_t ver;
	int p;

	flush_setup();
	FLUSHES(pawl_bulk_flush(be));
	/* any other push */
	FLUSHES(push_prop(PAWL_NORMAL, 1));
	FLUSHES(push_prop(PAWL_NORMAL, -1));
	for (p = 1; p <= PAWL_NO_SKIP; p++)
		FLUSHES(push_prop(p, 0));
	FLUSHES(push_async());
	FLUSHES(push_batch());
	FLUSHES(pawl_oper_push(be, boper, 0, (struct pawl_device){ 0, 0 }));
	gone = var_new(be);
	FLUSHES(pawl_var_delete(be, gone, NULL, NULL));
	/* another device: that push itself is gathered then */
	gather();
	OK(push_device(1));
	ck_assert_uint_eq(thread_get(be)->pushed - thread_get(be)->completed, 1);
	pushed_now("device");
	/* waits */
	FLUSHES(pawl_wait_readable(be, bw, 0, NULL));
	FLUSHES(pawl_wait_writable(be, bw, 0, NULL));
	FLUSHES(pawl_wait_all(be, 0, NULL));
	FLUSHES(pawl_run_one(be));
	FLUSHES(pawl_run_until(be, yes, NULL, 0));
	/* queries */
	FLUSHES(pawl_var_version(be, bv, &ver));
	FLUSHES(pawl_var_error(be, bv, NULL));
	FLUSHES(pawl_var_clear(be, bv));
	OK(pawl_oper_delete(be, boper));
	OK(pawl_engine_destroy(be));
}
END_TEST

/* Statistics look and change nothing, whichever engine the thread used last. */
START_TEST(test_stats_leave_it)
{
	flush_setup();
	gather();
	ck_assert_uint_eq(stats(be).pushed, 0);
	OK(pawl_wait_all(be, SOON_NS, NULL));
	ck_assert_uint_eq(stats(be).pushed, 1);
	OK(pawl_oper_delete(be, boper));
	OK(pawl_engine_destroy(be));
}
END_TEST

/* "When the size changes". */
START_TEST(test_flush_by_size)
{
	flush_setup();
	FLUSHES(pawl_bulk_size(be, 0));
	ck_assert_int_eq(pawl_bulk_size(be, 10), 0);
	FLUSHES(pawl_bulk_size(be, 2));
	ck_assert_int_eq(pawl_bulk_size(be, 10), 2);
	FLUSHES(pawl_bulk_size(be, 1));
	ck_assert_int_eq(pawl_bulk_size(be, 10), 1);
	FLUSHES(pawl_bulk_size(be, 20));
	OK(pawl_oper_delete(be, boper));
	OK(pawl_engine_destroy(be));
}
END_TEST

START_TEST(test_flush_by_stop_and_destroy)
{
	flush_setup();
	gather();
	OK(pawl_engine_stop(be));
	ck_assert_uint_eq(bran, 3);
	gather();
	OK(pawl_oper_delete(be, boper));
	OK(pawl_engine_destroy(be));
	ck_assert_uint_eq(bran, 3);
}
END_TEST

/* --- what is not gathered --- */

START_TEST(test_not_gathered)
{
	int kind;

	/* naive: at once, as always */
	for (kind = PAWL_POOLED; kind <= PAWL_NAIVE; kind++) {
		struct pawl_engine *e = engine(kind, 0);
		pawl_var_t v = var_new(e);
		u32 n = 0;

		OK(pawl_bulk_size(e, 10) < 0);
		OK(push_write(e, add_one, &n, v));
		ck_assert_uint_eq(n, kind == PAWL_NAIVE);
		OK(pawl_wait_readable(e, v, SOON_NS, NULL));
		ck_assert_uint_eq(n, 1);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* --- threads that end --- */

struct leaver {
	struct pawl_engine *e;
	pawl_var_t v;
	u32 n;		/* A */
	u32 gathered, go;	/* A */
};

static void *leaver(void *arg)
{
	struct leaver *l = arg;
	int i;

	MUST(pawl_bulk_size(l->e, 100) == 0);
	for (i = 0; i < 5; i++)
		MUST(!push_write(l->e, add_one, &l->n, l->v));
	store_release(&l->gathered, 1);
	while (!load_acquire(&l->go))
		nap_us(50);
	return NULL;
}

START_TEST(test_thread_ends)
{
	int i, rounds = TIMES(300);
	struct leaver l = { .e = engine(PAWL_PER_DEVICE, 1), .go = 1 };

	l.v = var_new(l.e);
	for (i = 0; i < rounds; i++)
		join(spawn(leaver, &l));
	OK(pawl_wait_readable(l.e, l.v, SOON_NS, NULL));
	ck_assert_uint_eq(l.n, 5u * (u32)rounds);
	OK(pawl_engine_destroy(l.e));
}
END_TEST

/* The engine ends while another thread, alive, has gathered: accepted is accepted. */
START_TEST(test_engine_ends_first)
{
	struct leaver l = { .e = engine(PAWL_PER_DEVICE, 1) };
	pthread_t t;

	l.v = var_new(l.e);
	t = spawn(leaver, &l);
	MUST(soon(load_acquire(&l.gathered)));
	OK(pawl_engine_destroy(l.e));
	ck_assert_uint_eq(l.n, 5);
	store_release(&l.go, 1);
	join(t);
	ck_assert_uint_eq(l.n, 5);
}
END_TEST

/* --- errors --- */

static u32 rels;
static int rel_status;

static void count_release(void *arg, int status)
{
	rels++;
	rel_status = status;
}

START_TEST(test_failure_skips_the_rest)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_error err;
	u32 before = 0, after = 0;
	struct pawl_op op;

	rels = 0;
	OK(pawl_bulk_size(e, 10) < 0);
	op = op_write(add_one, &before, &v);
	op.release = count_release;
	OK(pawl_push(e, &op));
	op = op_write(fail_io, NULL, &v);
	op.release = count_release;
	OK(pawl_push(e, &op));
	op = op_write(add_one, &after, &w);
	op.release = count_release;
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_wait_readable(e, w, SOON_NS, &err), -EIO);
	ck_assert_str_eq(err.text, "disk on fire");
	ck_assert_uint_eq(before, 1);
	ck_assert_uint_eq(after, 0);
	ck_assert_uint_eq(rels, 3);
	ck_assert_int_eq(rel_status, -EIO);
	OK(pawl_engine_destroy(e));
}
END_TEST

static int ninety_nine(struct pawl_run *run, void *arg)
{
	return 99;
}

START_TEST(test_positive_return)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_error err;
	struct pawl_op op = op_write(ninety_nine, NULL, &v);

	OK(pawl_bulk_size(e, 10) < 0);
	op.name = "joker";
	OK(push_write(e, nothing, NULL, v));
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, &err), -EPROTO);
	ck_assert_ptr_nonnull(strstr(err.text, "99"));
	ck_assert_ptr_nonnull(strstr(err.text, "joker"));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A push that is refused is refused at once, and the others are not spoiled by it. */
START_TEST(test_refused_in_between)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), gone = var_new(e);
	struct pawl_op op = op_write(nothing, NULL, &v);
	u32 n = 0;

	OK(pawl_var_delete(e, gone, NULL, NULL));
	OK(pawl_bulk_size(e, 10) < 0);
	OK(push_write(e, add_one, &n, v));
	FAILS(push_write(e, add_one, &n, gone), -ESTALE, "push", "writes[0]");
	FAILS(push_read(e, add_one, &n, gone), -ESTALE, "push", "reads[0]");
	op.prop = 77;
	FAILS(pawl_push(e, &op), -EINVAL, "op.prop");
	OK(push_write(e, add_one, &n, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A var is deleted by another thread while it waits in a bulk: release tells, once each. */
struct killer {
	struct pawl_engine *e;
	pawl_var_t v;
};

static void *killer(void *arg)
{
	struct killer *k = arg;

	MUST(!pawl_var_delete(k->e, k->v, NULL, NULL));
	return NULL;
}

START_TEST(test_var_dies_in_the_bulk)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct killer k = { e, var_new(e) };
	pawl_var_t v = var_new(e);
	u32 n = 0;
	int i;

	rels = 0;
	OK(pawl_bulk_size(e, 10) < 0);
	for (i = 0; i < 4; i++) {
		pawl_var_t both[2] = { v, k.v };
		struct pawl_op op = op_of_fn(add_one, &n);

		op.writes = both;
		op.nwrites = i < 2 ? 1 : 2;
		op.release = count_release;
		OK(pawl_push(e, &op));
	}
	join(spawn(killer, &k));
	pawl_bulk_flush(e);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(rels, 4);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(rel_status, -ESTALE);
	OK(push_write(e, add_one, &n, v));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(n, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* More vars than a bulk holds, and than it holds in all. */
START_TEST(test_many_vars)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t *v = calloc(3000, sizeof(*v));
	struct pawl_op op;
	u64 n = 0;
	u32 i;

	for (i = 0; i < 3000; i++)
		v[i] = var_new(e);
	OK(pawl_bulk_size(e, 50) < 0);
	for (i = 0; i < 40; i++) {
		op = op_of_fn(add_plain, &n);
		op.reads = v + 1;
		op.nreads = (i * 61) % 2000;
		op.writes = v;
		op.nwrites = 1 + (i * 97) % 1500;
		OK(pawl_push(e, &op));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 40);
	OK(pawl_engine_destroy(e));
	free(v);
}
END_TEST

/* Bulk inside bodies: the worker's thread gathers like any other. */
static int gather_body(struct pawl_run *run, void *arg)
{
	struct leaver *l = arg;
	int i;

	MUST(pawl_bulk_size(run->engine, 4) >= 0);
	for (i = 0; i < 10; i++)
		MUST(!push_write(run->engine, add_one, &l->n, l->v));
	MUST(pawl_bulk_size(run->engine, 0) == 4);
	return 0;
}

START_TEST(test_inside_body)
{
	int w;

	for (w = 0; w < 3; w++) {
		struct leaver l = { .e = engine(PAWL_PER_DEVICE, w) };

		l.v = var_new(l.e);
		OK(push_write(l.e, gather_body, &l, var_new(l.e)));
		OK(pawl_wait_all(l.e, SOON_NS, NULL));
		ck_assert_uint_eq(l.n, 10);
		OK(pawl_engine_destroy(l.e));
	}
}
END_TEST

/* A body leaves with something gathered: it is not lost when the worker goes. */
static int gather_and_leave(struct pawl_run *run, void *arg)
{
	struct leaver *l = arg;

	MUST(pawl_bulk_size(run->engine, 100) >= 0);
	MUST(!push_write(run->engine, add_one, &l->n, l->v));
	return 0;
}

START_TEST(test_worker_leaves_with_a_bulk)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct leaver l = { 0 };

	c.no_help = true;
	l.e = engine_with(&c);
	l.v = var_new(l.e);
	OK(push_write(l.e, gather_and_leave, &l, var_new(l.e)));
	OK(pawl_wait_all(l.e, SOON_NS, NULL));
	OK(pawl_engine_destroy(l.e));
	ck_assert_uint_eq(l.n, 1);
}
END_TEST

/*
 * The engine is destroyed while bodies gather, on workers and on the destroying thread: it left
 * their bulks alone while they ran, and all that they gathered runs.
 */
static int gather_late(struct pawl_run *run, void *arg)
{
	struct leaver *l = arg;
	int i;

	MUST(pawl_bulk_size(run->engine, 100) >= 0);
	store_release(&l->gathered, 1);
	for (i = 0; i < 50; i++) {
		MUST(!push_write(run->engine, add_one, &l->n, l->v));
		nap_us(20);
	}
	return 0;
}

START_TEST(test_bodies_gather_while_the_engine_ends)
{
	int i, w, rounds = TIMES(60);

	for (i = 0; i < rounds; i++) {
		for (w = 0; w < 3; w++) {
			struct leaver l = { .e = engine(PAWL_PER_DEVICE, w) };

			l.v = var_new(l.e);
			OK(push_write(l.e, gather_late, &l, var_new(l.e)));
			OK(push_write(l.e, gather_late, &l, var_new(l.e)));
			MUST(!w || soon(load_acquire(&l.gathered)));
			OK(pawl_engine_destroy(l.e));
			ck_assert_uint_eq(l.n, 100);
		}
	}
}
END_TEST

SUITE("bulk", test_size, test_size_is_per_thread, test_full, test_full_large, test_order,
      test_flush_points, test_stats_leave_it, test_flush_by_size,
      test_flush_by_stop_and_destroy, test_not_gathered, test_thread_ends,
      test_engine_ends_first, test_failure_skips_the_rest, test_positive_return,
      test_refused_in_between, test_var_dies_in_the_bulk, test_many_vars, test_inside_body,
      test_worker_leaves_with_a_bulk, test_bodies_gather_while_the_engine_ends)
