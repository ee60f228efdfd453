// SPDX-License-Identifier: Apache-2.0
/* compat/bulk.c: consecutive small pushes of a thread are gathered into one op. */
#include "mx_bulk.h"

/* --- what gathers --- */

START_TEST(test_full)
{
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_var *v = var_new(e);
	unsigned int n;
	int size, i;

	for (size = 2; size <= 10; size++) {
		uint64_t before = pushed(e);

		n = 0;
		ck_assert_int_ge(pawl_mx_set_bulk_size(e, size), 0);
		for (i = 0; i < size - 1; i++)
			OK(push(e, add_one, &n, v));
		ck_assert_uint_eq(pushed(e) - before, 0);
		OK(push(e, add_one, &n, v));
		ck_assert_uint_eq(pushed(e) - before, 1);
		OK(pawl_mx_wait_all(e, NULL));
		ck_assert_uint_eq(n, (unsigned int)size);
	}
	/* One op: one version. */
	ck_assert_uint_eq(pawl_mx_var_version(v), 9);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* A large size: at most 64 gather, and none is lost. */
START_TEST(test_full_large)
{
	struct pawl_mx_engine *e = engine();
	const int sizes[] = { 63, 64, 65, 100, 1000 };
	size_t s;
	int i;

	for (s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		struct pawl_mx_var *v = var_new(e);
		unsigned int n = 0;

		ck_assert_int_ge(pawl_mx_set_bulk_size(e, sizes[s]), 0);
		for (i = 0; i < sizes[s]; i++)
			OK(push(e, add_one, &n, v));
		OK(pawl_mx_wait_all(e, NULL));
		ck_assert_uint_eq(n, (unsigned int)sizes[s]);
		ck_assert_uint_eq(pawl_mx_var_version(v), (unsigned int)(sizes[s] + 63) / 64);
	}
	OK(pawl_mx_engine_free(e));
}
END_TEST

struct note {
	unsigned int *next, id;
	unsigned int *seen;
};

static void take_note(void *run, void *arg)
{
	struct note *n = arg;

	n->seen[(*n->next)++] = n->id;
}

/* In order, whatever the vars. */
START_TEST(test_order)
{
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_var *v = var_new(e), *w = var_new(e), *both[2] = { v, w };
	static struct note n[1000];
	static unsigned int seen[1000], next;
	unsigned int i;

	ck_assert_int_ge(pawl_mx_set_bulk_size(e, 7), 0);
	for (i = 0; i < 1000; i++) {
		struct pawl_mx_op op = op_on(take_note, &n[i], i % 3 == 2 ? &v : both);

		n[i] = (struct note){ &next, i, seen };
		op.nwrites = i % 3 == 1 ? 2 : 1;
		op.reads = i % 3 ? &w : &v;
		op.nreads = 1;
		OK(pawl_mx_push(e, &op, NULL));
	}
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(next, 1000);
	for (i = 0; i < 1000; i++)
		ck_assert_uint_eq(seen[i], i);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* What is gathered waits for the data that it reads, as for those that it writes. */
START_TEST(test_a_bulk_waits_for_what_it_reads)
{
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_var *read[2] = { var_new(e), var_new(e) }, *w = var_new(e), *x = var_new(e);
	unsigned int open = 0, n = 0, later = 0, i;
	struct pawl_mx_op op = op_on(gate, &open, &read[1]);

	/* on another worker than that of the bulk */
	op.prop = PAWL_COPY_TO_DEVICE;
	OK(pawl_mx_push(e, &op, NULL));
	ck_assert_int_ge(pawl_mx_set_bulk_size(e, 2), 0);
	for (i = 0; i < 2; i++) {
		op = op_on(add_one, &n, &w);
		op.reads = &read[i];
		op.nreads = 1;
		OK(pawl_mx_push(e, &op, NULL));
	}
	/* what the worker of the bulk gets after it */
	OK(push(e, add_one, &later, x));
	OK(pawl_mx_wait_var(e, x, NULL));
	ck_assert_uint_eq(later, 1);
	ck_assert_uint_eq(GET(&n), 0);
	PUT(&open, 1);
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(n, 2);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* It runs in the context of its functions, whose worker is not that of other contexts. */
START_TEST(test_a_bulk_runs_in_its_context)
{
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_var *v = var_new(e), *w = var_new(e);
	unsigned int open = 0, n = 0, i;

	OK(push(e, gate, &open, v));
	ck_assert_int_ge(pawl_mx_set_bulk_size(e, 2), 0);
	for (i = 0; i < 4; i++) {
		struct pawl_mx_op op = op_on(add_one, &n, &w);

		op.ctx = cpu1;
		OK(pawl_mx_push(e, &op, NULL));
	}
	until(&n, 4);
	ck_assert_uint_eq(GET(&open), 0);
	PUT(&open, 1);
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(pawl_mx_var_version(w), 2);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* One that a function writes is written, whatever the others do with it, before or after. */
START_TEST(test_a_bulk_writes_what_one_of_its_functions_writes)
{
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_var *v = var_new(e), *w = var_new(e), *x = var_new(e);
	unsigned int n = 0, i;

	ck_assert_int_ge(pawl_mx_set_bulk_size(e, 10), 0);
	for (i = 0; i < 2; i++) {
		struct pawl_mx_op op = op_on(add_one, &n, i ? &v : &w);

		op.reads = i ? (struct pawl_mx_var *[]){ w, x } : (struct pawl_mx_var *[]){ v, x };
		op.nreads = 2;
		OK(pawl_mx_push(e, &op, NULL));
	}
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(n, 2);
	ck_assert_uint_eq(pawl_mx_var_version(v), 1);
	ck_assert_uint_eq(pawl_mx_var_version(w), 1);
	ck_assert_uint_eq(pawl_mx_var_version(x), 0);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/*
 * Ops of five accesses, gathered while nothing runs: the union of what they name, without
 * duplicates, is what an op needs, so that all of them are accepted, and run.
 */
/* Whatever vars come together: their places in the table of a bulk are as good as random. */
START_TEST(test_a_bulk_has_any_256_vars)
{
	enum { VARS = 4000, ROUNDS = 100 };
	struct pawl_mx_engine *e = engine();
	static struct pawl_mx_var *v[VARS];
	static unsigned int writes[VARS];
	unsigned int n = 0, i, k, r, seed = 1;

	for (i = 0; i < VARS; i++)
		v[i] = var_new(e);
	ck_assert_int_ge(pawl_mx_set_bulk_size(e, 64), 0);
	for (r = 0; r < ROUNDS; r++) {
		bool chosen[VARS] = { false };

		for (i = 0; i < 64; i++) {
			struct pawl_mx_var *on[4];
			struct pawl_mx_op op = op_on(add_one, &n, on);
			unsigned int at[4];

			for (k = 0; k < 4; k++) {
				at[k] = (unsigned int)rand_r(&seed) % VARS;
				on[k] = v[at[k]];
			}
			op.reads = on + 1;
			op.nreads = 3;
			OK(pawl_mx_push(e, &op, NULL));
			writes[at[0]] += !chosen[at[0]];
			chosen[at[0]] = true;
		}
		OK(pawl_mx_wait_all(e, NULL));
		ck_assert_uint_eq(n, 64 * (r + 1));
	}
	for (i = 0; i < VARS; i++)
		ck_assert_uint_eq(pawl_mx_var_version(v[i]), writes[i]);
	OK(pawl_mx_engine_free(e));
}
END_TEST

START_TEST(test_bulk_keeps_every_accepted_op)
{
	enum { VARS = 1000, OPS = SANITIZED ? 30000 : 200000 };
	struct pawl_mx_engine *e = engine();
	static struct pawl_mx_var *v[VARS];
	unsigned int open = 0, n = 0, i, k;

	for (i = 0; i < VARS; i++) {
		v[i] = var_new(e);
		OK(push(e, gate, &open, v[i]));
	}
	dropped = 0;
	ck_assert_int_ge(pawl_mx_set_bulk_size(e, 64), 0);
	for (i = 0; i < OPS; i++) {
		struct pawl_mx_var *on[5];
		struct pawl_mx_op op = op_on(add_one, &n, on);

		for (k = 0; k < 5; k++)
			on[k] = v[(5 * i + k * (i % 7)) % VARS];
		op.reads = on + 1;
		op.nreads = 4;
		OK(pawl_mx_push(e, &op, NULL));
	}
	PUT(&open, 1);
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(n, OPS);
	ck_assert_uint_eq(GET(&dropped), OPS + VARS);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* More vars in one push than a bulk holds, and than it holds in all. */
START_TEST(test_many_vars)
{
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_var **v = calloc(3000, sizeof(*v));
	unsigned int n = 0, i;

	for (i = 0; i < 3000; i++)
		v[i] = var_new(e);
	ck_assert_int_ge(pawl_mx_set_bulk_size(e, 50), 0);
	for (i = 0; i < 40; i++) {
		struct pawl_mx_op op = op_on(add_one, &n, v);

		op.reads = v + 1;
		op.nreads = (i * 61) % (i % 3 ? 100 : 2000);
		op.nwrites = 1 + (i * 97) % (i % 2 ? 120 : 1500);
		OK(pawl_mx_push(e, &op, NULL));
	}
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(n, 40);
	OK(pawl_mx_engine_free(e));
	free(v);
}
END_TEST

/* 256 different vars are one op, and what has more goes alone. */
START_TEST(test_as_many_vars_as_there_is_room_for)
{
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_var *v[257];
	unsigned int n = 0, i, split;

	for (i = 0; i < 257; i++)
		v[i] = var_new(e);
	ck_assert_int_ge(pawl_mx_set_bulk_size(e, 50), 0);
	for (i = 256; i <= 257; i++) {
		for (split = 0; split < i; split += 51) {
			struct pawl_mx_op op = op_on(add_one, &n, v);
			uint64_t before = pushed(e);

			op.nwrites = split;
			if (split)
				OK(pawl_mx_push(e, &op, NULL));
			op.reads = v + split;
			op.nreads = i - split;
			op.nwrites = 0;
			OK(pawl_mx_push(e, &op, NULL));
			/* the second op does not gather, or not with the first one */
			ck_assert_uint_eq(pushed(e) - before, i - 256);
			OK(pawl_mx_wait_all(e, NULL));
			ck_assert_uint_eq(pushed(e) - before, i > 256 && split ? 2 : 1);
		}
	}
	ck_assert_uint_eq(n, 2 * 11);
	ck_assert_uint_eq(pawl_mx_var_version(v[0]), 2 * 5);
	ck_assert_uint_eq(pawl_mx_var_version(v[256]), 0);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/*
 * The size belongs to the thread, for all its engines; each engine receives what was pushed to
 * it.
 */
static void *other_thread(void *arg)
{
	struct pawl_mx_engine *e = arg;
	unsigned int n = 0;

	MUST(pawl_mx_bulk_size(e) == 0);
	MUST(!push(e, add_one, &n, var_new(e)));
	MUST(!pawl_mx_wait_all(e, NULL));
	MUST(n == 1);
	return NULL;
}

START_TEST(test_threads_and_engines)
{
	struct pawl_mx_engine *e = engine(), *f = engine();
	struct pawl_mx_var *v = var_new(e), *w = var_new(f);
	unsigned int n = 0, m = 0, i;

	ck_assert_int_eq(pawl_mx_set_bulk_size(e, 10), 0);
	join(spawn(other_thread, e));
	ck_assert_int_eq(pawl_mx_bulk_size(f), 10);
	for (i = 0; i < 30; i++) {
		OK(push(e, add_one, &n, v));
		OK(push(e, add_one, &n, v));
		OK(push(f, add_one, &m, w));
	}
	OK(pawl_mx_wait_all(e, NULL));
	OK(pawl_mx_wait_all(f, NULL));
	ck_assert_uint_eq(n, 60);
	ck_assert_uint_eq(m, 30);
	ck_assert_int_eq(pawl_mx_set_bulk_size(f, -5), 10);
	ck_assert_int_eq(pawl_mx_bulk_size(e), 0);
	OK(pawl_mx_engine_free(e));
	OK(pawl_mx_engine_free(f));
}
END_TEST

/* --- what flushes --- */

static struct pawl_mx_engine *be;
static struct pawl_mx_var *bv, *bw;
static struct pawl_mx_opr *bo;
static unsigned int bran;

static void gather(void)
{
	int i;

	bran = 0;
	for (i = 0; i < 3; i++)
		MUST(!push(be, add_one, &bran, bv));
}

#define FLUSHES(call)								\
	do {									\
		uint64_t pushed_ = pushed(be);					\
		gather();							\
		ck_assert_msg(pushed(be) == pushed_, "%s: not gathered", #call);	\
		(void)(call);							\
		ck_assert_msg(pushed(be) > pushed_, "%s does not flush", #call);	\
		/* Nor is it the wait that flushes. */				\
		until(&bran, 3);						\
		OK(pawl_mx_wait_all(be, NULL));					\
	} while (0)

static int push_prop(int prop, int priority)
{
	struct pawl_mx_op op = op_on(nothing, NULL, &bw);

	op.prop = prop;
	op.priority = priority;
	return pawl_mx_push(be, &op, NULL);
}

static int push_async(void)
{
	struct pawl_mx_op op = op_on(NULL, NULL, &bw);

	op.async = at_once;
	return pawl_mx_push(be, &op, NULL);
}

static int push_cpu1(void)
{
	struct pawl_mx_op op = op_on(nothing, NULL, &bw);

	op.ctx = cpu1;
	return pawl_mx_push(be, &op, NULL);
}

static int push_waiting(void)
{
	struct pawl_mx_op op = op_on(nothing, NULL, &bw);

	op.wait = true;
	return pawl_mx_push(be, &op, NULL);
}

/* More vars than a bulk may have. */
static int push_wide(void)
{
	struct pawl_mx_var *many[257];
	struct pawl_mx_op op = op_on(nothing, NULL, many);
	unsigned int i;
	int rc;

	for (i = 0; i < 257; i++)
		many[i] = var_new(be);
	op.nwrites = 257;
	rc = pawl_mx_push(be, &op, NULL);
	for (i = 0; i < 257; i++)
		MUST(!pawl_mx_var_delete(be, many[i], cpu, NULL, NULL, NULL));
	return rc;
}

START_TEST(test_flush_points)
{
	struct pawl_mx_engine *naive;
	struct pawl_mx_op op;
	unsigned int n = 0;
	struct pawl_mx_var *gone;
	uint64_t before;
	int p;

	be = engine();
	bv = var_new(be);
	bw = var_new(be);
	gone = var_new(be);
	op = op_on(nothing, NULL, &bw);
	OK(pawl_mx_opr_new(be, &op, &bo));
	ck_assert_int_ge(pawl_mx_set_bulk_size(be, 10), 0);
	/* any other push */
	FLUSHES(push_prop(PAWL_NORMAL, 1));
	FLUSHES(push_prop(PAWL_NORMAL, -1));
	for (p = 1; p <= PAWL_NO_SKIP; p++)
		if (p != PAWL_DELETE_VAR)
			FLUSHES(push_prop(p, 0));
	FLUSHES(push_async());
	FLUSHES(push_waiting());
	FLUSHES(push_wide());
	FLUSHES(push_cpu1());
	/* of a naive engine, which does not gather itself */
	OK(pawl_mx_engine_create(PAWL_MX_NAIVE, &naive));
	ck_assert_int_eq(pawl_mx_set_bulk_size(naive, 5), 0);
	ck_assert_int_eq(pawl_mx_bulk_size(naive), 0);
	FLUSHES(push(naive, add_one, &n, var_new(naive)));
	ck_assert_uint_eq(n, 1);
	OK(push(naive, add_one, &n, var_new(naive)));
	ck_assert_uint_eq(n, 2);
	OK(pawl_mx_engine_free(naive));
	FLUSHES(pawl_mx_opr_push(be, bo, cpu, 0, NULL));
	FLUSHES(pawl_mx_var_delete(be, gone, cpu, NULL, NULL, NULL));
	/* waits and questions */
	FLUSHES(pawl_mx_wait_var(be, bw, NULL));
	FLUSHES(pawl_mx_wait_write(be, bw, NULL));
	FLUSHES(pawl_mx_wait_all(be, NULL));
	FLUSHES(pawl_mx_var_throw(be, bv, NULL));
	FLUSHES(pawl_mx_var_version(bv));
	FLUSHES(pawl_mx_opr_delete(be, bo));
	/* another size */
	FLUSHES(pawl_mx_set_bulk_size(be, 0));
	ck_assert_int_eq(pawl_mx_set_bulk_size(be, 10), 0);
	FLUSHES(pawl_mx_set_bulk_size(be, 20));
	/* the same one does not: a program may set it before each push */
	before = pushed(be);
	gather();
	ck_assert_int_eq(pawl_mx_set_bulk_size(be, 20), 20);
	ck_assert_uint_eq(pushed(be), before);
	OK(pawl_mx_wait_all(be, NULL));
	/* the engine's stop, and its end */
	gather();
	OK(pawl_mx_engine_stop(be, NULL));
	ck_assert_uint_eq(bran, 3);
	gather();
	OK(pawl_mx_engine_free(be));
	ck_assert_uint_eq(bran, 3);
}
END_TEST

static void note_bran(void *run, void *arg)
{
	PUT((unsigned int *)arg, GET(&bran));
}

static void note_bran_async(void *run, void *on_complete, void *arg)
{
	note_bran(run, arg);
	at_once(run, on_complete, arg);
}

/* What follows on the same var runs after what was gathered on it; so does the var's delete. */
START_TEST(test_what_was_gathered_runs_before_what_follows)
{
	struct pawl_mx_op op = { .ctx = cpu, .nwrites = 1 };
	unsigned int seen, open, way;
	struct pawl_mx_opr *opr;

	be = engine();
	for (way = 0; way < 5; way++) {
		bv = var_new(be);
		op.writes = &bv;
		op.arg = &seen;
		op.sync = note_bran;
		op.async = NULL;
		OK(pawl_mx_opr_new(be, &op, &opr));
		seen = 99;
		/* so that nothing runs before all is pushed */
		open = 0;
		OK(push(be, gate, &open, bv));
		ck_assert_int_eq(pawl_mx_set_bulk_size(be, 10), 0);
		gather();
		switch (way) {
		case 0:
			OK(pawl_mx_opr_push(be, opr, cpu, 0, NULL));
			break;
		case 1:
			op.sync = NULL;
			op.async = note_bran_async;
			OK(pawl_mx_push(be, &op, NULL));
			break;
		case 2:
			op.priority = 1;
			OK(pawl_mx_push(be, &op, NULL));
			op.priority = 0;
			break;
		case 3:
			op.ctx = cpu1;
			OK(pawl_mx_push(be, &op, NULL));
			op.ctx = cpu;
			break;
		default:
			OK(pawl_mx_var_delete(be, bv, cpu, note_bran, &seen, NULL));
		}
		ck_assert_int_eq(pawl_mx_set_bulk_size(be, 0), 10);
		PUT(&open, 1);
		OK(pawl_mx_wait_all(be, NULL));
		ck_assert_msg(seen == 3, "%u ran before what follows, in way %u", seen, way);
		OK(pawl_mx_opr_delete(be, opr));
	}
	OK(pawl_mx_engine_free(be));
}
END_TEST

/* --- errors --- */

START_TEST(test_failure_skips_the_rest)
{
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_var *v = var_new(e), *w = var_new(e);
	unsigned int before = 0, after = 0;

	dropped = 0;
	ck_assert_int_ge(pawl_mx_set_bulk_size(e, 10), 0);
	OK(push(e, add_one, &before, v));
	OK(push(e, fails, NULL, v));
	OK(push(e, add_one, &after, w));
	ck_assert_int_ne(pawl_mx_wait_var(e, w, NULL), 0);
	ck_assert_str_eq(pawl_mx_last_error(), "disk on fire");
	ck_assert_uint_eq(before, 1);
	ck_assert_uint_eq(after, 0);
	ck_assert_uint_eq(dropped, 3);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* A refused push is refused at once, and does not affect the others. */
START_TEST(test_refused_in_between)
{
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_var *v = var_new(e), *gone = var_new(e), *held = var_new(e);
	unsigned int n = 0, open = 0;
	struct pawl_mx_op op = op_on(add_one, &n, &held);

	/* Its delete waits: the object is still the var's, but it is stale. */
	OK(push(e, gate, &open, gone));
	OK(pawl_mx_var_delete(e, gone, cpu, NULL, NULL, NULL));
	ck_assert_int_ge(pawl_mx_set_bulk_size(e, 10), 0);
	OK(push(e, add_one, &n, v));
	ck_assert_int_eq(push(e, add_one, &n, gone), -ESTALE);
	op.reads = &gone;
	op.nreads = 1;
	ck_assert_int_eq(pawl_mx_push(e, &op, NULL), -ESTALE);
	OK(push(e, add_one, &n, held));
	PUT(&open, 1);
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(n, 2);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* Another thread deletes a var that waits in a bulk: drop is called, and a wait reports it. */
struct killer {
	struct pawl_mx_engine *e;
	struct pawl_mx_var *v;
};

static void *killer(void *arg)
{
	struct killer *k = arg;

	MUST(!pawl_mx_var_delete(k->e, k->v, cpu, NULL, NULL, NULL));
	return NULL;
}

static void var_dies(bool wait_all)
{
	struct pawl_mx_engine *e = engine();
	struct killer k = { e, var_new(e) };
	struct pawl_mx_var *v = var_new(e), *both[2] = { v, k.v };
	unsigned int n = 0, i;
	char says[100];

	snprintf(says, sizeof(says), "gathered before (bulk) was refused: error %d", -ESTALE);
	dropped = 0;
	ck_assert_int_ge(pawl_mx_set_bulk_size(e, 10), 0);
	for (i = 0; i < 4; i++) {
		struct pawl_mx_op op = op_on(add_one, &n, both);

		op.nwrites = i < 2 ? 1 : 2;
		OK(pawl_mx_push(e, &op, NULL));
	}
	join(spawn(killer, &k));
	REFUSED(-ESTALE, wait_all ? pawl_mx_wait_all(e, NULL) : pawl_mx_wait_var(e, v, NULL), says);
	ck_assert_uint_eq(dropped, 4);
	ck_assert_uint_eq(n, 0);
	OK(pawl_mx_wait_var(e, v, NULL));
	OK(pawl_mx_wait_all(e, NULL));
	OK(push(e, add_one, &n, v));
	OK(pawl_mx_wait_var(e, v, NULL));
	ck_assert_uint_eq(n, 1);
	OK(pawl_mx_engine_free(e));
}

START_TEST(test_var_dies_in_the_bulk)
{
	var_dies(true);
	var_dies(false);
}
END_TEST

/* A wait that has the failure of an op to report leaves that of the bulk to the next wait. */
START_TEST(test_no_failure_hides_another)
{
	struct pawl_mx_engine *e = engine();
	struct killer k = { e, var_new(e) };
	struct pawl_mx_var *w = var_new(e);
	unsigned int n = 0, i;

	for (i = 0; i < 2; i++) {
		k.v = var_new(e);
		OK(push(e, fails, NULL, w));
		ck_assert_int_eq(pawl_mx_set_bulk_size(e, 10), 0);
		OK(push(e, add_one, &n, k.v));
		join(spawn(killer, &k));
		REFUSED(-EIO, i ? pawl_mx_wait_all(e, NULL) : pawl_mx_wait_var(e, w, NULL),
			"disk on fire");
		REFUSED(-ESTALE, i ? pawl_mx_wait_var(e, w, NULL) : pawl_mx_wait_all(e, NULL), "(bulk)");
		OK(pawl_mx_wait_all(e, NULL));
		ck_assert_int_eq(pawl_mx_set_bulk_size(e, 0), 10);
	}
	ck_assert_uint_eq(n, 0);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* What belongs to a refused function, such as an array, is deleted by its drop. */
struct owner {
	struct killer k;
	struct pawl_mx_var *v, *owned;
	unsigned int n, drops;
};

static void drops_owned(void *arg)
{
	struct owner *o = arg;

	MUST(!pawl_mx_var_delete(o->k.e, o->owned, cpu, NULL, NULL, NULL));
	MUST(!push(o->k.e, add_one, &o->n, o->v));
	ADD(&o->drops, 1);
}

static void gather_owned(struct owner *o)
{
	struct pawl_mx_op op = op_on(nothing, o, &o->k.v);

	op.drop = drops_owned;
	o->k.v = var_new(o->k.e);
	o->owned = var_new(o->k.e);
	MUST(pawl_mx_set_bulk_size(o->k.e, 10) >= 0);
	MUST(!pawl_mx_push(o->k.e, &op, NULL));
	join(spawn(killer, &o->k));
}

static void *gathers_and_ends(void *arg)
{
	gather_owned(arg);
	return NULL;
}

START_TEST(test_the_drop_of_a_refused_function_uses_the_engine)
{
	struct owner o = { .k.e = engine() };

	o.v = var_new(o.k.e);
	gather_owned(&o);
	ck_assert_int_eq(pawl_mx_wait_all(o.k.e, NULL), -ESTALE);
	/* what the drop has pushed is lost by no wait */
	OK(pawl_mx_wait_all(o.k.e, NULL));
	ck_assert(o.drops == 1 && o.n == 1);
	/* also at the end of a thread, and of the engine */
	join(spawn(gathers_and_ends, &o));
	ck_assert_uint_eq(o.drops, 2);
	OK(pawl_mx_wait_all(o.k.e, NULL));
	ck_assert_uint_eq(o.n, 2);
	gather_owned(&o);
	OK(pawl_mx_engine_free(o.k.e));
	ck_assert(o.drops == 3 && o.n == 3);
}
END_TEST

SUITE("mx_bulk", 120, test_full, test_full_large, test_order,
      test_a_bulk_waits_for_what_it_reads, test_a_bulk_runs_in_its_context,
      test_a_bulk_writes_what_one_of_its_functions_writes, test_a_bulk_has_any_256_vars, test_bulk_keeps_every_accepted_op,
      test_many_vars, test_as_many_vars_as_there_is_room_for, test_threads_and_engines,
      test_flush_points, test_what_was_gathered_runs_before_what_follows,
      test_no_failure_hides_another, test_failure_skips_the_rest, test_refused_in_between,
      test_var_dies_in_the_bulk, test_the_drop_of_a_refused_function_uses_the_engine)
