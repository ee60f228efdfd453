/* SPDX-License-Identifier: Apache-2.0 */
/* exec/: work in a ring, in a hoard and in each priority queue is found, in its order. */
#include "exec_fixture.h"
#include "suite.h"
#include "trap.h"

static u32 refuse_memory;	/* A */

int pool_commit_hook(const char *what, size_t bytes)
{
	return load_relaxed(&refuse_memory) ? -ENOMEM : 0;
}

enum { IN_RING, IN_HOARD, FRONT, HIGH, ZERO, LOW, KINDS };

/* Queue one piece of work, number 1, of a kind. */
static void queue_one(struct fix *f, struct exec_queue *q, struct exec_thread *t, u32 kind)
{
	static const s32 prio[KINDS] = { [HIGH] = 1, [LOW] = -1 };
	struct exec_thread *u;

	store_relaxed(&refuse_memory, kind == ZERO);
	exec_push(q, t, kind == IN_HOARD ? 2 : 1, prio[kind], kind == FRONT ? EXEC_FRONT : 0);
	store_relaxed(&refuse_memory, 0);
	if (kind != IN_HOARD)
		return;
	/* Another thread takes two of four, and begins one. */
	exec_push(q, t, 1, 0, 0);
	exec_push(q, t, 3, 0, 0);
	exec_push(q, t, 4, 0, 0);
	u = fix_thread(f);
	u->batch = 2;
	u->queue = t->queue = q;
	MUST(exec_take(f->x, u) == 2 && exec_take(f->x, t) == 3 && exec_take(f->x, t) == 4);
	u->queue = t->queue = NULL;
}

/* A thread that helps finds work of each kind. */
START_TEST(test_each_kind_of_work_is_taken)
{
	struct exec_queue *q;
	struct exec_thread *t, *u;
	struct fix f;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	fix_reserve(&f, 10);
	queue_one(&f, q, t, (u32)_i);
	u = fix_thread(&f);
	ck_assert(thread_may_take(f.x, u, LOOK_DEEP));
	ck_assert_uint_eq(exec_take(f.x, u), 1);
	ck_assert_uint_eq(exec_take(f.x, u), 0);
	ck_assert(queue_empty(q) && !thread_may_take(f.x, u, LOOK_DEEP));
	fix_fini(&f);
}
END_TEST

/* Work of each kind is counted, is seen by a poller, and starts the workers, which run it. */
START_TEST(test_each_kind_of_work_is_seen)
{
	struct exec_queue_stats st;
	struct exec_queue *q, *other;
	struct exec_thread *t;
	struct fix f;
	u32 ran = 0;

	watchdog(60);
	fix_init(&f, NULL);
	f.run = count_work;
	f.user = &ran;
	other = fix_queue(&f, "other", 0, true);
	q = fix_queue(&f, "a queue of a long name", 1, false);
	t = fix_thread(&f);
	fix_reserve(&f, 10);
	ck_assert(queue_empty(q));
	queue_one(&f, q, t, (u32)_i);
	ck_assert(!queue_empty(q) && queue_empty(other));
	ck_assert_uint_eq(q->n[PQ_ZERO], _i == ZERO);
	exec_queue_stats(q, &st);
	ck_assert_str_eq(st.name, "a queue of a lo");
	ck_assert_uint_eq(st.number, 1);
	ck_assert_uint_eq(st.depth, 1);
	ck_assert_uint_eq(st.pushed, _i == IN_HOARD ? 4 : 1);
	ck_assert_uint_eq(st.workers, 0);
	/* This thread serves the other queue only. */
	ck_assert(!thread_may_take(f.x, t, LOOK_DEEP) && !exec_take(f.x, t));
	t->queue = q;
	ck_assert(thread_may_take(f.x, t, LOOK_DEEP));
	t->queue = NULL;
	exec_start(f.x);
	until(&ran, 1);
	exec_queue_stats(q, &st);
	ck_assert_uint_eq(st.workers, 1);
	ck_assert_uint_eq(st.depth, 0);
	exec_queue_stats(other, &st);
	ck_assert_uint_eq(st.number + st.workers + st.depth + st.pushed, 0);
	ck_assert_str_eq(st.name, "other");
	fix_fini(&f);
}
END_TEST

/* With work of each kind in a queue they run in this order, whichever thread takes them. */
START_TEST(test_order_of_the_kinds)
{
	struct exec_queue *q;
	struct exec_thread *t, *u;
	struct fix f;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	u = fix_thread(&f);
	fix_reserve(&f, 10);
	exec_push(q, t, 6, INT32_MIN, 0);
	exec_push(q, t, 5, -1, 0);
	store_relaxed(&refuse_memory, 1);
	exec_push(q, t, 4, 0, 0);
	store_relaxed(&refuse_memory, 0);
	exec_push(q, t, 3, 1, 0);
	exec_push(q, t, 2, INT32_MAX, 0);
	exec_push(q, t, 1, INT32_MIN, EXEC_FRONT);
	for (i = 1; i <= 6; i++)
		ck_assert_uint_eq(i % 2 ? exec_take(f.x, t) : queue_take(q, u, 0), i);
	ck_assert_uint_eq(exec_take(f.x, t), 0);
	fix_fini(&f);
}
END_TEST

#if CAN_TRAP
static struct {
	struct exec_thread *t;
	u32 took;
} thief;

static void take_first(void)
{
	thief.took = exec_take(fix_now->x, thief.t);
}

/* A thread finds work if there is more than another one takes at any moment of its take. */
START_TEST(test_a_take_beside_another_one_finds_work)
{
	static const s32 prio[KINDS] = { [HIGH] = 1, [LOW] = -1 };
	struct exec_queue *q;
	struct exec_thread *t, *p;
	u32 i, k, w, seen[3] = { 0 };
	struct fix f;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	p = fix_thread(&f);
	t = fix_thread(&f);
	thief.t = fix_thread(&f);
	fix_reserve(&f, 2);
	trap_init(take_first);
	for (k = 0; !k || trap.stops; k += 7) {
		store_relaxed(&refuse_memory, _i == ZERO);
		for (i = 1; i <= 2; i++)
			exec_push(q, p, i, prio[_i], _i == FRONT ? EXEC_FRONT : 0);
		store_relaxed(&refuse_memory, 0);
		thief.took = 0;
		trap_after(k, w = exec_take(f.x, t));
		MUST(w && w != thief.took);
		seen[w]++;
		MUST(w + thief.took + exec_take(f.x, t) == 3 && !exec_take(f.x, t));
	}
	MUST(seen[1] && seen[2]);
	fix_fini(&f);
}
END_TEST

static struct {
	struct exec_thread *t;
	u32 n, sum;
} rest;

static void take_the_rest(void)
{
	u32 w;

	while ((w = exec_take(fix_now->x, rest.t))) {
		rest.n++;
		rest.sum += w;
	}
}

/*
 * Wherever a thread is stopped that takes several pieces at once, another one finds all of them
 * but the one that the thread runs itself.
 */
START_TEST(test_a_batch_hides_one_piece_at_any_moment)
{
	struct exec_thread *t, *maker;
	struct exec_queue *q;
	u32 i, k, w, stops = 0;
	struct fix f;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	/* in the first slot, and in another one */
	t = fix_thread(&f);
	maker = fix_thread(&f);
	if (_i)
		t = fix_thread(&f);
	rest.t = fix_thread(&f);
	trap_init(take_the_rest);
	for (k = 0; !k || trap.stops; k += 3) {
		for (i = 1; i <= 8; i++)
			exec_push(q, maker, i, 0, 0);
		rest.n = rest.sum = 0;
		t->batch = 4;
		trap_after(k, w = exec_take(f.x, t));
		MUST(!trap.stops || rest.n >= 7);
		stops += trap.stops;
		take_the_rest();
		MUST(rest.sum + w == 36 && rest.n + !!w == 8 && queue_empty(q));
	}
	ck_assert_uint_gt(stops, 20);
	fix_fini(&f);
}
END_TEST
#endif

int main(void)
{
	Suite *s = suite_create("exec/kinds");
	TCase *tc = tcase_create("kinds");

	tcase_set_timeout(tc, 100);
	tcase_add_loop_test(tc, test_each_kind_of_work_is_taken, 0, KINDS);
	tcase_add_loop_test(tc, test_each_kind_of_work_is_seen, 0, KINDS);
	tcase_add_test(tc, test_order_of_the_kinds);
#if CAN_TRAP
	/* A sanitizer's instructions are many. */
	if (!SANITIZED) {
		tcase_add_loop_test(tc, test_a_take_beside_another_one_finds_work, FRONT,
				    KINDS);
		tcase_add_loop_test(tc, test_a_batch_hides_one_piece_at_any_moment, 0, 2);
	}
#endif
	suite_add_tcase(s, tc);
	return suite_run(s);
}
