// SPDX-License-Identifier: Apache-2.0
/* compat/bulk.c: what threads have gathered when they end, or when the engine does. */
#include "mx_bulk.h"
#include <malloc.h>

struct leaver {
	struct pawl_mx_engine *e;
	struct pawl_mx_var *v;
	unsigned int n, gathered, go, spin;
};

static void *leaver(void *arg)
{
	struct leaver *l = arg;
	unsigned int i;

	MUST(pawl_mx_set_bulk_size(l->e, 100) == 0);
	for (i = 0; i < 5; i++)
		MUST(!push(l->e, add_one, &l->n, l->v));
	ADD(&l->gathered, 1);
	for (i = 0; i < l->spin; i++)
		__asm__ volatile("");
	while (!GET(&l->go))
		nap_us(50);
	return NULL;
}

START_TEST(test_thread_ends)
{
	struct leaver l = { .e = engine(), .go = 1 };
	unsigned int i, rounds = 300;
	size_t before = 0;

	l.v = var_new(l.e);
	for (i = 0; i < rounds; i++) {
		if (i == rounds / 2) {
			OK(pawl_mx_wait_var(l.e, l.v, NULL));
			before = mallinfo2().uordblks;
		}
		join(spawn(leaver, &l));
	}
	OK(pawl_mx_wait_var(l.e, l.v, NULL));
	/* threads that come one after the other use the same memory */
	ck_assert_uint_lt(mallinfo2().uordblks, before + rounds / 2 * 1000);
	ck_assert_uint_eq(l.n, 5 * rounds);
	OK(pawl_mx_engine_free(l.e));
}
END_TEST

struct late {
	pthread_key_t key;
	struct pawl_mx_engine *e;
	struct pawl_mx_var *v;
	unsigned int n, turns;
};

/*
 * Destructors run in up to four turns; in this one's second the thread's bulk has ended, with
 * its size.  What it pushes then leaves the library in the third and the fourth, in which the
 * thread sanitizer has ended the thread already: there it pushes in its first turn.
 */
enum { LATE_TURNS = THREAD_SANITIZED ? 1 : 2 };

static void pushes_late(void *arg)
{
	struct late *l = arg;
	uint64_t before;

	if (++l->turns < LATE_TURNS) {
		MUST(!pthread_setspecific(l->key, l));
		return;
	}
	MUST(!pawl_mx_bulk_size(l->e) && !push(l->e, add_one, &l->n, l->v));
	before = pushed(l->e);
	MUST(!pawl_mx_set_bulk_size(l->e, 100) && !push(l->e, add_one, &l->n, l->v));
	MUST(pushed(l->e) == before);
}

static void *late(void *arg)
{
	struct late *l = arg;

	MUST(pawl_mx_set_bulk_size(l->e, 100) == 0);
	MUST(!pthread_setspecific(l->key, l));
	MUST(!push(l->e, add_one, &l->n, l->v));
	return NULL;
}

/* A destructor of a thread's data may push and gather, also after the library's own destructor. */
START_TEST(test_a_destructor_pushes)
{
	struct late l = { .e = engine() };

	l.v = var_new(l.e);
	ck_assert(!pthread_key_create(&l.key, pushes_late));
	join(spawn(late, &l));
	ck_assert_uint_eq(l.turns, LATE_TURNS);
	OK(pawl_mx_wait_var(l.e, l.v, NULL));
	ck_assert_uint_eq(l.n, 3);
	pthread_key_delete(l.key);
	OK(pawl_mx_engine_free(l.e));
}
END_TEST

static void takes_a_bulk(void *run, void *arg)
{
	MUST(pawl_mx_set_bulk_size(arg, 100) >= 0);
}

/*
 * The engine ends while another thread has gathered functions and goes on living: what was
 * accepted runs.  The bulk's memory belonged to a worker before, and the bulks of workers are
 * skipped.
 */
START_TEST(test_engine_ends_first)
{
	struct leaver l = { .e = engine() };
	pthread_t t;

	l.v = var_new(l.e);
	OK(push(l.e, takes_a_bulk, l.e, l.v));
	OK(pawl_mx_wait_all(l.e, NULL));
	OK(pawl_mx_engine_stop(l.e, NULL));
	OK(pawl_mx_engine_start(l.e));
	t = spawn(leaver, &l);
	until(&l.gathered, 1);
	OK(pawl_mx_engine_free(l.e));
	ck_assert_uint_eq(l.n, 5);
	PUT(&l.go, 1);
	join(t);
	ck_assert_uint_eq(l.n, 5);
}
END_TEST

/* A body of the engine's own worker, while another thread frees the engine. */
struct worker {
	struct pawl_mx_engine *e;
	struct pawl_mx_var *v;
	unsigned int n, in;
	uint64_t others;	/* that were pushed meanwhile */
};

static void gathers_and_looks(void *run, void *arg)
{
	struct worker *w = arg;
	uint64_t before;
	int i;

	MUST(pawl_mx_set_bulk_size(w->e, 100) == 0);
	MUST(!push(w->e, add_one, &w->n, w->v));
	before = pushed(w->e);
	PUT(&w->in, 1);
	/* First the thread pushes what it gathered itself. */
	for (i = 0; i < 600000 && pushed(w->e) == before; i++)
		nap_us(100);
	nap_us(20000);
	w->others = pushed(w->e) - before;
	MUST(!push(w->e, add_one, &w->n, w->v));
}

/* The worker may gather at any moment, so only it pushes what it has. */
START_TEST(test_a_worker_keeps_its_bulk_when_the_engine_is_freed)
{
	struct worker w = { .e = engine() };
	struct leaver before = { .e = w.e, .v = var_new(w.e), .go = 1 };

	/* the worker's bulk reuses the memory of this thread's */
	join(spawn(leaver, &before));
	OK(pawl_mx_wait_all(w.e, NULL));
	w.v = var_new(w.e);
	OK(push(w.e, gathers_and_looks, &w, var_new(w.e)));
	until(&w.in, 1);
	OK(pawl_mx_set_bulk_size(w.e, 100));
	OK(push(w.e, add_one, &w.n, var_new(w.e)));
	OK(pawl_mx_engine_free(w.e));
	ck_assert_uint_eq(w.n, 3);
	ck_assert_uint_eq(w.others, 1);
}
END_TEST

/* A thread that has gathered ends while its engine is freed: one of them pushes. */
START_TEST(test_bulk_of_leaving_thread)
{
	unsigned int i, j;

	for (i = 0; i < 200; i++) {
		struct leaver l = { .e = engine(), .go = 1, .spin = (i * 7) % 1500 };
		pthread_t t[3];

		l.v = var_new(l.e);
		for (j = 0; j < 3; j++)
			t[j] = spawn(leaver, &l);
		until(&l.gathered, 3);
		OK(pawl_mx_engine_free(l.e));
		ck_assert_uint_eq(GET(&l.n), 15);
		for (j = 0; j < 3; j++)
			join(t[j]);
	}
}
END_TEST

/* --- bodies that gather --- */

static void gather_body(void *run, void *arg)
{
	struct leaver *l = arg;
	int i;

	MUST(pawl_mx_set_bulk_size(l->e, 4) >= 0);
	for (i = 0; i < 10; i++)
		MUST(!push(l->e, add_one, &l->n, l->v));
	MUST(pawl_mx_set_bulk_size(l->e, 0) == 4);
}

START_TEST(test_inside_body)
{
	struct leaver l = { .e = engine() };

	l.v = var_new(l.e);
	OK(push(l.e, gather_body, &l, var_new(l.e)));
	OK(pawl_mx_wait_all(l.e, NULL));
	ck_assert_uint_eq(l.n, 10);
	OK(pawl_mx_engine_free(l.e));
}
END_TEST

/*
 * The engine is freed while bodies gather, on workers and on the freeing thread: it leaves
 * their bulks alone while they run, and all that they gathered runs.
 */
static void gather_late(void *run, void *arg)
{
	struct leaver *l = arg;
	int i;

	MUST(pawl_mx_set_bulk_size(l->e, 100) >= 0);
	PUT(&l->gathered, 1);
	for (i = 0; i < 50; i++) {
		MUST(!push(l->e, add_one, &l->n, l->v));
		nap_us(20);
	}
}

START_TEST(test_bodies_gather_while_the_engine_ends)
{
	int i;

	for (i = 0; i < 60; i++) {
		struct leaver l = { .e = engine() };

		/* A body of the round before may have run on this thread. */
		ck_assert_int_ge(pawl_mx_set_bulk_size(l.e, 0), 0);
		l.v = var_new(l.e);
		OK(push(l.e, gather_late, &l, var_new(l.e)));
		OK(push(l.e, gather_late, &l, var_new(l.e)));
		until(&l.gathered, 1);
		OK(pawl_mx_engine_free(l.e));
		ck_assert_uint_eq(l.n, 100);
	}
}
END_TEST

struct chain {
	struct pawl_mx_engine *e;
	struct pawl_mx_var *v;
	unsigned int left, in;
};

static void gathers_the_next(void *run, void *arg)
{
	struct chain *c = arg;

	PUT(&c->in, 1);
	MUST(pawl_mx_set_bulk_size(c->e, 100) >= 0);
	if (c->left && --c->left)
		MUST(!push(c->e, gathers_the_next, c, c->v));
}

/* What gathers while the engine ends, on its worker and on the thread that frees it, runs. */
START_TEST(test_what_bodies_gather_at_the_end_gathers_in_turn)
{
	struct chain c = { .e = engine(), .left = 10 };

	c.v = var_new(c.e);
	OK(push(c.e, gathers_the_next, &c, c.v));
	until(&c.in, 1);
	OK(pawl_mx_engine_free(c.e));
	ck_assert_uint_eq(c.left, 0);
}
END_TEST

/* Threads that begin take no bulk in which others have something. */
START_TEST(test_each_thread_has_a_bulk_of_its_own)
{
	struct leaver l = { .e = engine() };
	pthread_t t[5];
	unsigned int i;

	l.v = var_new(l.e);
	for (i = 0; i < 5; i++) {
		t[i] = spawn(leaver, &l);
		until(&l.gathered, i + 1);
	}
	PUT(&l.go, 1);
	for (i = 0; i < 5; i++)
		join(t[i]);
	OK(pawl_mx_wait_all(l.e, NULL));
	ck_assert_uint_eq(l.n, 25);
	OK(pawl_mx_engine_free(l.e));
}
END_TEST

/* The drop of a refused function may free another engine, for which another thread has gathered. */
struct refusal {
	struct pawl_mx_engine *e, *other;
	struct pawl_mx_var *v, *gone;
	unsigned int n, drops;
};

static void frees_and_pushes(void *arg)
{
	struct refusal *r = arg;
	int i;

	MUST(!pawl_mx_engine_free(r->other));
	/* which does not gather, as everywhere in a drop */
	for (i = 0; i < 3; i++)
		MUST(!push(r->e, add_one, &r->n, r->v));
	ADD(&r->drops, 1);
}

static void *deletes_gone(void *arg)
{
	struct refusal *r = arg;

	MUST(!pawl_mx_var_delete(r->e, r->gone, cpu, NULL, NULL, NULL));
	return NULL;
}

START_TEST(test_the_drop_of_a_refused_function_frees_another_engine)
{
	struct refusal r = { .e = engine(), .other = engine() };
	struct leaver l = { .e = r.other };
	struct pawl_mx_op op = op_on(nothing, &r, &r.gone);
	pthread_t t;

	r.v = var_new(r.e);
	r.gone = var_new(r.e);
	l.v = var_new(l.e);
	t = spawn(leaver, &l);
	until(&l.gathered, 1);
	op.drop = frees_and_pushes;
	OK(pawl_mx_set_bulk_size(r.e, 10));
	OK(pawl_mx_push(r.e, &op, NULL));
	join(spawn(deletes_gone, &r));
	ck_assert_int_eq(pawl_mx_wait_all(r.e, NULL), -ESTALE);
	ck_assert(r.drops == 1 && GET(&l.n) == 5);
	OK(pawl_mx_wait_all(r.e, NULL));
	ck_assert_uint_eq(r.n, 3);
	PUT(&l.go, 1);
	join(t);
	ck_assert_int_eq(pawl_mx_set_bulk_size(r.e, 0), 10);
	OK(pawl_mx_engine_free(r.e));
}
END_TEST

SUITE("mx_bulk_ends", 120, test_thread_ends, test_a_destructor_pushes, test_engine_ends_first,
      test_a_worker_keeps_its_bulk_when_the_engine_is_freed, test_bulk_of_leaving_thread,
      test_inside_body, test_bodies_gather_while_the_engine_ends,
      test_what_bodies_gather_at_the_end_gathers_in_turn,
      test_each_thread_has_a_bulk_of_its_own,
      test_the_drop_of_a_refused_function_frees_another_engine)
