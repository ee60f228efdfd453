/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec/take.c: which work a thread takes, of its own and of others: hand-off, hoards, turns of
 * producers, late work of lower priorities, lanes at rest.  Short work: test_leave.c.
 */
#include <poll.h>
#include "exec_fixture.h"
#include "suite.h"
#include "trap.h"

START_TEST(test_handoff)
{
	struct fix f;
	struct exec_queue *q, *other, *hidden;
	struct exec_thread *t, *w, *u;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	other = fix_queue(&f, "other", 0, true);
	hidden = fix_queue(&f, "hidden", 1, false);
	t = fix_thread(&f);
	w = fix_thread(&f);
	u = fix_thread(&f);
	w->queue = other;

	ck_assert(exec_handoff(q, t, 1, 0));
	ck_assert(exec_handoff(q, t, 1, -5));
	ck_assert(exec_handoff(q, t, 1, 5));
	/* not served by t; by a worker of another queue */
	ck_assert(!exec_handoff(hidden, t, 1, 0));
	ck_assert(!exec_handoff(q, w, 2, 0));
	/* work of another thread goes before low work */
	ck_assert(exec_handoff(q, t, 4, 0));
	ck_assert(!exec_handoff(q, t, 3, -1));
	ck_assert_uint_eq(exec_take(f.x, t), 2);
	ck_assert_uint_eq(exec_take(f.x, t), 3);
	exec_push(q, t, 2, 0, 0);
	ck_assert(exec_handoff(other, w, 3, 0));
	ck_assert_uint_eq(exec_take(f.x, w), 0);
	/* 2 is in its ring: equals go after it, the higher may go */
	ck_assert(exec_handoff(q, t, 4, 1));
	ck_assert(!exec_handoff(q, t, 5, 0));
	ck_assert(!exec_handoff(q, t, 6, -1));
	ck_assert_uint_eq(exec_take(f.x, t), 2);
	ck_assert_uint_eq(exec_take(f.x, t), 5);
	/* 6 with -1 is left */
	ck_assert(exec_handoff(q, t, 7, 0));
	ck_assert(!exec_handoff(q, t, 8, -1));
	ck_assert(!exec_handoff(q, t, 9, -2));
	ck_assert_uint_eq(exec_take(f.x, t), 6);
	ck_assert_uint_eq(exec_take(f.x, t), 8);
	ck_assert_uint_eq(exec_take(f.x, t), 9);
	/* high ones */
	exec_push(q, u, 10, 3, 0);
	ck_assert(!exec_handoff(q, t, 11, 0));
	ck_assert(!exec_handoff(q, t, 12, 3));
	ck_assert(exec_handoff(q, t, 13, 4));
	exec_push(q, u, 14, 0, EXEC_FRONT);
	ck_assert(!exec_handoff(q, t, 15, INT32_MAX));
	ck_assert_uint_eq(exec_take(f.x, t), 14);
	ck_assert_uint_eq(exec_take(f.x, t), 15);
	ck_assert_uint_eq(exec_take(f.x, t), 10);
	ck_assert_uint_eq(exec_take(f.x, t), 12);
	ck_assert_uint_eq(exec_take(f.x, t), 11);
	/* the budget */
	t->budget = 0;
	ck_assert(!exec_handoff(q, t, 16, 0));
	t->budget = 1;
	ck_assert_uint_eq(exec_take(f.x, t), 16);
	ck_assert(exec_handoff(q, t, 17, 0));
	ck_assert(!exec_handoff(q, t, 18, 0));
	ck_assert_uint_eq(exec_take(f.x, t), 18);
	/* what it took in a batch goes first, also if only low work follows */
	u->batch = 8;
	exec_push(q, t, 19, 0, 0);
	exec_push(q, t, 20, 0, 0);
	exec_push(q, t, 21, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, u), 19);
	ck_assert(!exec_handoff(q, u, 22, 0));
	t->budget = EXEC_UNLIMITED;
	ck_assert_uint_eq(exec_take(f.x, t), 21);
	ck_assert(exec_handoff(q, t, 23, 0));
	ck_assert(!exec_handoff(q, t, 24, -1));
	ck_assert_uint_eq(exec_take(f.x, u), 20);
	ck_assert_uint_eq(exec_take(f.x, u), 22);
	ck_assert_uint_eq(exec_take(f.x, u), 24);
	ck_assert_uint_eq(exec_take(f.x, u), 0);
	w->queue = NULL;
	fix_fini(&f);
}
END_TEST

static u32 next(struct fix *f, struct exec_thread *t)
{
	u32 work = exec_look(t);

	t->check = t->takes + 100;	/* not the take that reads the clock */
	return work && exec_next(f->x, t, work) ? work : 0;
}

/* The pieces of its own work that a thread takes before it returns to its caller. */
START_TEST(test_next)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t, *u;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	u = fix_thread(&f);
	exec_push_more(q, t, 1, 0, 0);
	exec_push_more(q, t, 2, 0, 0);
	exec_push_more(q, t, 3, 0, 0);
	exec_push_more(q, t, 4, 0, 0);
	exec_push_more(q, t, 5, -1, 0);
	exec_pushed(q, t);
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	/* recent work may have been long, so nothing; then it was short */
	ck_assert_uint_eq(next(&f, t), 0);
	t->batch = 2;
	t->nexts = 0;
	ck_assert_uint_eq(next(&f, t), 2);
	t->budget = 0;
	ck_assert_uint_eq(next(&f, t), 0);
	t->budget = 1;
	t->nexts = 0;
	ck_assert_uint_eq(next(&f, t), 3);
	ck_assert_uint_eq(t->budget, 0);
	t->budget = EXEC_UNLIMITED;
	/* not before work of a higher priority, nor instead of another thread's work */
	exec_push(q, u, 6, 1, 0);
	ck_assert_uint_eq(next(&f, t), 0);
	ck_assert_uint_eq(exec_take(f.x, t), 6);
	t->nexts = 0;
	ck_assert_uint_eq(next(&f, t), 4);
	ck_assert_uint_eq(next(&f, t), 0);
	/* nor after the maximum number of pieces in one run */
	exec_push(q, t, 8, 0, 0);
	t->nexts = 16;
	ck_assert_uint_eq(next(&f, t), 0);
	ck_assert_uint_eq(exec_take(f.x, t), 8);
	/* nor a piece other than its caller read, nor for long */
	exec_push(q, t, 9, 0, 0);
	t->nexts = 0;
	ck_assert(!exec_next(f.x, t, 8));
	t->nexts = 1;
	t->since = 0;
	ck_assert_uint_eq(next(&f, t), 0);
	ck_assert_uint_eq(exec_take(f.x, t), 9);
	/* the time counts from the first of them, whenever the last run was */
	f.x->next = 1ull << 40;
	t->since = cycles() - (2ull << 40);
	t->nexts = 0;
	exec_push(q, t, 11, 0, 0);
	exec_push(q, t, 12, 0, 0);
	ck_assert_uint_eq(next(&f, t), 11);
	ck_assert_uint_eq(next(&f, t), 12);
	ck_assert_uint_eq(t->nexts, 2);
	ck_assert_uint_eq(t->budget, EXEC_UNLIMITED);
	t->nexts = 0;
	exec_push(q, u, 7, 0, 0);
	ck_assert_uint_eq(next(&f, t), 0);
	ck_assert_uint_eq(exec_take(f.x, t), 7);
	ck_assert_uint_eq(exec_take(f.x, t), 5);
	fix_fini(&f);
}
END_TEST

/* A thread takes 16 more pieces in one run, if they are short, and then returns to its caller. */
START_TEST(test_next_takes_so_many_pieces)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	t->batch = 2;
	f.x->next = 1ull << 50;
	for (i = 1; i <= 30; i++)
		exec_push(q, t, i, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	t->nexts = 0;
	for (i = 2; i <= 30 && next(&f, t); i++)
		;
	ck_assert_uint_eq(i, 2 + 16);
	ck_assert_uint_eq(t->nexts, 16);
	/* The time since the first one is checked after that one, 2, 4 and 8. */
	for (i = 1; i < 16; i++) {
		t->nexts = i;
		t->since = cycles() - (2ull << 50);
		ck_assert(!next(&f, t) == !(i & (i - 1)));
		if (exec_look(t) == 30)
			break;
	}
	fix_fini(&f);
}
END_TEST

/* A turn is over after the time of x->next, from the moment on that the caller read. */
START_TEST(test_a_turn_is_over_after_its_time)
{
	struct fix f;

	fix_init(&f, NULL);
	f.x->next = 1ull << 50;
	ck_assert(!exec_turn_over(f.x, cycles()));
	ck_assert(!exec_turn_over(f.x, cycles() - (1ull << 49)));
	ck_assert(exec_turn_over(f.x, cycles() - (2ull << 50)));
	fix_fini(&f);
}
END_TEST

/* New low work goes before work that is lower still, and after what is as high. */
START_TEST(test_low_work_is_handed_over_before_lower_work)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	exec_push(q, t, 1, -5, 0);
	ck_assert(exec_handoff(q, t, 2, -4));
	ck_assert(!exec_handoff(q, t, 3, -5));
	ck_assert(!exec_handoff(q, t, 4, -6));
	ck_assert(exec_handoff(q, t, 5, INT32_MAX));
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	ck_assert_uint_eq(exec_take(f.x, t), 3);
	ck_assert_uint_eq(exec_take(f.x, t), 4);
	fix_fini(&f);
}
END_TEST

/* A queue that waiting threads no longer serve: one that took from it before leaves it, too. */
START_TEST(test_a_queue_that_is_no_longer_served)
{
	struct exec_queue *q, *other;
	struct exec_thread *t;
	struct fix f;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	other = fix_queue(&f, "other", 0, true);
	t = fix_thread(&f);
	for (i = 1; i <= 3; i++)
		exec_push(q, t, i, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	ck_assert_uint_eq(exec_take(f.x, t), 2);
	q->drive = 0;
	t->batch = 2;
	for (i = 0; i < 20; i++)
		ck_assert(!exec_take(f.x, t) && !next(&f, t));
	ck_assert(!thread_may_take(f.x, t, LOOK_DEEP));
	ck_assert(!exec_handoff(q, t, 4, 0));
	exec_push(other, t, 5, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 5);
	/* Its worker takes all. */
	t->queue = q;
	ck_assert_uint_eq(exec_take(f.x, t), 3);
	ck_assert_uint_eq(exec_take(f.x, t), 4);
	t->queue = NULL;
	fix_fini(&f);
}
END_TEST

/* A hoard is stolen from last, before low work; the work of a thread that left is found. */
START_TEST(test_hoards)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *a, *b, *c;
	struct exec_queue_stats qs;
	struct exec_stats st;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	a = fix_thread(&f);
	b = fix_thread(&f);
	c = fix_thread(&f);
	for (i = 1; i <= 8; i++)
		exec_push(q, a, i, 0, 0);
	exec_push(q, a, 9, -1, 0);
	b->batch = 4;
	ck_assert_uint_eq(exec_take(f.x, b), 1);
	/* 2, 3, 4 are in b's hoard */
	exec_queue_stats(q, &qs);
	ck_assert_uint_eq(qs.depth, 8);
	ck_assert_uint_eq(qs.pushed, 9);
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.stolen, 4);
	ck_assert_uint_eq(b->stolen, 4);
	for (i = 5; i <= 8; i++)
		ck_assert_uint_eq(exec_take(f.x, a), i);
	ck_assert(!queue_empty(q));
	fix_leave(&f, b);
	b = fix_thread(&f);
	ck_assert_uint_eq(b->slot, 1);
	exec_push(q, a, 10, 2, 0);
	ck_assert_uint_eq(exec_take(f.x, b), 10);
	/* c steals what b does not begin: it counts again */
	for (i = 3; i; i--) {
		exec_queue_stats(q, &qs);
		ck_assert_uint_eq(qs.depth, i + 1);
		ck_assert_uint_eq(exec_take(f.x, c), 5 - i);
		ck_assert_uint_eq(c->stolen, 4 - i);
	}
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.stolen, 4 + 3);
	ck_assert_uint_eq(exec_take(f.x, c), 9);
	exec_queue_stats(q, &qs);
	ck_assert_uint_eq(qs.depth, 0);
	ck_assert_uint_eq(qs.pushed, 10);
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.stolen, 4 + 3);
	ck_assert(queue_empty(q));
	fix_fini(&f);
}
END_TEST

/* A thread continues with the lane from which it took, whatever other threads have pushed. */
START_TEST(test_a_thread_stays_with_the_lane_that_it_took_from)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t, *a, *b;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	a = fix_thread(&f);
	b = fix_thread(&f);
	exec_push(q, b, 1, 0, 0);
	exec_push(q, b, 2, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	exec_push(q, a, 3, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 2);
	ck_assert_uint_eq(exec_take(f.x, t), 3);
	fix_fini(&f);
}
END_TEST

/* A batch of another thread has not ended: the owner of the ring still takes from it first. */
START_TEST(test_own_work_comes_first_beside_a_batch)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t, *u;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	u = fix_thread(&f);
	t = fix_thread(&f);
	exec_push(q, u, 10, 0, 0);
	for (i = 1; i <= 3; i++)
		exec_push(q, t, i, 0, 0);
	/* as ring_batch() does, up to its last step; the hoard of u is empty by now */
	q->lanes[t->slot]->ring.head |= (u64)(u->slot + 1) << RING_POS_BITS;
	t->from = u->slot;
	for (i = 1; i <= 3; i++)
		ck_assert_uint_eq(exec_take(f.x, t), i);
	ck_assert_uint_eq(exec_take(f.x, t), 10);
	fix_fini(&f);
}
END_TEST

/* A poller that does not steal yet does not see a hoard; one that does takes all of it. */
START_TEST(test_a_poller_that_may_steal_sees_a_hoard)
{
	struct exec_queue_stats st;
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *a, *b, *c;
	u32 i, sum = 0;
	u64 waits = 0;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	a = fix_thread(&f);
	b = fix_thread(&f);
	c = fix_thread(&f);
	for (i = 1; i <= 8; i++)
		exec_push(q, a, i, 0, 0);
	b->batch = 4;
	ck_assert_uint_eq(exec_take(f.x, b), 1);
	/* One of the four was to be measured. */
	exec_queue_stats(q, &st);
	for (i = 0; i < ARRAY_SIZE(st.wait); i++)
		waits += st.wait[i];
	ck_assert_uint_ge(waits, 1);
	for (i = 5; i <= 8; i++)
		ck_assert_uint_eq(exec_take(f.x, a), i);
	ck_assert(!thread_may_take(f.x, c, 0));
	for (i = 0; i < 3; i++) {
		ck_assert(thread_may_take(f.x, c, LOOK_DEEP));
		sum += exec_take(f.x, c);
	}
	ck_assert_uint_eq(sum, 2 + 3 + 4);
	ck_assert(!thread_may_take(f.x, c, LOOK_DEEP));
	fix_fini(&f);
}
END_TEST

/* A taker that is stopped before it opens its hoard, behind a moved head: a poller opens it. */
START_TEST(test_a_poller_sees_a_batch_that_is_not_open)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *a, *b, *c;
	struct exec_lane *l;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	a = fix_thread(&f);
	b = fix_thread(&f);
	c = fix_thread(&f);
	exec_push(q, a, 1, 0, 0);
	exec_push(q, a, 2, 0, 0);
	l = lane_mine(q, b);
	/* as ring_batch() does */
	l->hoard.work[0] = 2;
	l->hoard.word = 1 << 16 | HOARD_SHUT | 1 << 8;
	q->lanes[a->slot]->ring.head = 2 | (u64)(b->slot + 1) << RING_POS_BITS;
	for (i = 0; i < 2; i++) {
		ck_assert(thread_may_take(f.x, c, i ? LOOK_DEEP : 0));
		ck_assert(!queue_empty(q));
	}
	ck_assert_uint_eq(exec_take(f.x, c), 2);
	ck_assert_uint_eq(exec_take(f.x, c), 0);
	ck_assert(queue_empty(q));
	fix_fini(&f);
}
END_TEST

/* What a batch copied counts only if it was taken: another thread was faster here. */
START_TEST(test_a_batch_that_took_nothing_is_not_queued)
{
	struct exec_queue_stats st;
	struct ring_look look;
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *a, *b, *c;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	a = fix_thread(&f);
	b = fix_thread(&f);
	c = fix_thread(&f);
	for (i = 1; i <= 8; i++)
		exec_push(q, a, i, 0, 0);
	MUST(ring_peek(&q->lanes[a->slot]->ring, &look));
	ck_assert_uint_eq(exec_take(f.x, c), 1);
	ck_assert_uint_eq(ring_batch(&q->lanes[a->slot]->ring, &look, &lane_mine(q, b)->hoard,
				     b->slot, 4), 0);
	for (i = 2; i <= 8; i++) {
		exec_queue_stats(q, &st);
		ck_assert_uint_eq(st.depth, 9 - i);
		ck_assert_uint_eq(exec_take(f.x, c), i);
	}
	exec_queue_stats(q, &st);
	ck_assert_uint_eq(st.depth, 0);
	ck_assert_uint_eq(st.pushed, 8);
	ck_assert(queue_empty(q) && !thread_may_take(f.x, c, LOOK_DEEP));
	/* The lane rests, and the next batch is as any other. */
	lanes_unmark_empty(f.x, b);
	ck_assert_uint_eq(q->map[0] & 1u << b->slot, 0);
	for (i = 1; i <= 8; i++)
		exec_push(q, a, i, 0, 0);
	b->batch = 4;
	for (i = 1; i <= 8; i++)
		ck_assert_uint_eq(exec_take(f.x, b), i);
	ck_assert(queue_empty(q));
	fix_fini(&f);
}
END_TEST

START_TEST(test_a_poller_sees_work_of_each_queue_that_it_serves)
{
	struct exec_queue *q[3];
	struct exec_thread *t, *u;
	struct fix f;
	u32 i;

	fix_init(&f, NULL);
	for (i = 0; i < 3; i++)
		q[i] = fix_queue(&f, "q", i == 1, i != 1);
	t = fix_thread(&f);
	u = fix_thread(&f);
	for (i = 0; i < 3; i++) {
		exec_push(q[i], u, 1 + i, 0, 0);
		ck_assert(thread_may_take(f.x, t, 0) == (i != 1));
		ck_assert_uint_eq(exec_take(f.x, t), i != 1 ? 1 + i : 0);
		if (i == 1) {
			t->queue = q[1];
			ck_assert(thread_may_take(f.x, t, 0));
			ck_assert_uint_eq(exec_take(f.x, t), 2);
			exec_push(q[0], u, 4, 0, 0);
			ck_assert(!thread_may_take(f.x, t, LOOK_DEEP) && !exec_take(f.x, t));
			t->queue = NULL;
			ck_assert_uint_eq(exec_take(f.x, t), 4);
		}
		exec_push(q[i], u, 5, _i - 1, 0);
		t->queue = q[i];
		ck_assert(thread_may_take(f.x, t, 0));
		ck_assert_uint_eq(thread_take(f.x, t, 0), 5);
		t->queue = NULL;
	}
	fix_fini(&f);
}
END_TEST

/*
 * Producers that always have more: a thread, which may be one of them itself, takes one piece of
 * each in turn, so a piece behind k others of its producer waits for k + 1 pieces of each.
 */
START_TEST(test_no_producer_waits_longer_than_for_one_body_of_each)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t, *maker[6];
	u32 i, k, w, n = (u32)_i % 4 + 2, got[6] = { 0 };
	bool own = _i % 8 < 4, hand = _i >= 16;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	/* also where their slots are at both sides of the first 64 */
	for (i = 0; _i % 16 >= 8 && i < 62; i++)
		fix_thread(&f);
	t = fix_thread(&f);
	for (i = 0; i < n; i++)
		maker[i] = i || !own ? fix_thread(&f) : t;
	t->batch = _i % 2 ? EXEC_BATCH_MAX : 1;
	takes_are_turns(&f);
	for (i = 0; i < n; i++)
		for (k = 0; k < 100; k++)
			exec_push(q, maker[i], 1 + i + 10 * k, 0, 0);
	for (i = 0; i < 90 * n; i++) {
		w = exec_take(f.x, t) - 1;
		/* a piece that runs has a successor, of this thread */
		if (hand && own)
			MUST(!exec_handoff(q, t, 1000, 0));
		if (w == 999)
			continue;
		MUST(w / 10 == got[w % 10] || t->batch > 1);
		got[w % 10]++;
		for (k = 0; k < n; k++)
			MUST(!own || hand || t->batch > 1 || got[k] + 1 >= got[w % 10]);
	}
	for (k = 1; k < n; k++)
		ck_assert_uint_ge(got[k], 40);
	fix_fini(&f);
}
END_TEST

/* Short work: within its turn a thread stays at a lane, its own or another one. */
START_TEST(test_a_thread_stays_at_a_lane_for_its_turn)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t, *u;
	u32 i, w;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	u = fix_thread(&f);
	for (i = 1; i <= 100; i++) {
		exec_push(q, t, i, 0, 0);
		exec_push(q, u, 100 + i, 0, 0);
	}
	for (i = 1; i <= 40; i++)
		ck_assert_uint_eq(exec_take(f.x, t), i);
	for (i = 0; i < 4; i++) {
		u32 k, at[2] = { 41, 101 };

		/* The turn ends: the other lane has one. */
		t->check = t->takes + 1;
		t->began = cycles() - 2 * FIX_NEVER;
		for (k = 0; k < 10; k++) {
			w = exec_take(f.x, t);
			ck_assert_uint_eq(w, at[!(i % 2)] + i / 2 * 10 + k);
		}
	}
	fix_fini(&f);
}
END_TEST

/* The clock is read at each take while work is long, and rarely when it is short. */
START_TEST(test_the_clock_is_read_as_often_as_the_work_is_long)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t;
	u32 i, reads = 0;
	u64 was = 0;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	f.x->check = FIX_NEVER;
	for (i = 1; i <= 2000; i++) {
		exec_push(q, t, i, 0, 0);
		ck_assert_uint_eq(exec_take(f.x, t), i);
		reads += t->clock != was;
		was = t->clock;
	}
	ck_assert_uint_lt(reads, 2000 / 16);
	/* Now each takes long: after the next reading all are read. */
	f.x->check = 0;
	for (reads = 0, i = 1; i <= 200; i++) {
		exec_push(q, t, i, 0, 0);
		ck_assert_uint_eq(exec_take(f.x, t), i);
		reads += t->clock != was;
		was = t->clock;
	}
	ck_assert_uint_ge(reads, 200 - STEP_ALONE);
	fix_fini(&f);
}
END_TEST

/* A chain of hand-overs ends with the turn, if other work is queued, whatever its priority. */
START_TEST(test_a_chain_of_hand_overs_leaves_others_their_turn)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t, *u;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	u = fix_thread(&f);
	takes_are_turns(&f);
	for (i = 1; i <= 1000; i++)
		ck_assert(exec_handoff(q, t, i, 0));
	ck_assert_uint_eq(t->budget, EXEC_UNLIMITED);
	exec_push(q, u, 1001, _i - 1, 0);
	ck_assert(!exec_handoff(q, t, 1002, 0));
	ck_assert_uint_eq(exec_take(f.x, t), _i ? 1001 : 1002);
	ck_assert_uint_eq(exec_take(f.x, t), _i ? 1002 : 1001);
	f.x->turn = FIX_NEVER;
	exec_push(q, u, 1003, 0, 0);
	for (i = 1; i <= 1000; i++)
		ck_assert(exec_handoff(q, t, i, 0));
	fix_fini(&f);
}
END_TEST

/* Work that a thread took in a batch and does not begin has turns, too. */
START_TEST(test_a_hoard_has_turns)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t, *maker, *stopped;
	u32 i, w, got = 0;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	maker = fix_thread(&f);
	stopped = fix_thread(&f);
	stopped->batch = 8;
	for (i = 1; i <= 16; i++)
		exec_push(q, maker, i, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, stopped), 1);
	takes_are_turns(&f);
	for (i = 0; i < 3 * 16; i++) {
		exec_push(q, t, 1000 + i, 0, 0);
		w = exec_take(f.x, t);
		got += w < 1000;
	}
	ck_assert_uint_eq(got, 15);
	fix_fini(&f);
}
END_TEST

/* A waiting thread serves several queues: each has turns. */
START_TEST(test_queues_have_turns)
{
	struct fix f;
	struct exec_queue *q[3];
	struct exec_thread *t;
	u32 i, k, got[3] = { 0 };

	fix_init(&f, NULL);
	for (k = 0; k < 3; k++)
		q[k] = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	takes_are_turns(&f);
	for (k = 0; k < 3; k++)
		for (i = 0; i < 100; i++)
			exec_push(q[k], t, 1 + k, 0, 0);
	for (i = 0; i < 90; i++)
		got[exec_take(f.x, t) - 1]++;
	for (k = 0; k < 3; k++)
		ck_assert_uint_ge(got[k], 25);
	fix_fini(&f);
}
END_TEST

/* The time for which a lower priority waits has passed n times. */
static void later(struct fix *f, struct exec_queue *q, u32 n)
{
	while (n--) {
		q->late = cycles();
		q->late_since -= f->x->late;
		f->t[0].check = f->t[0].takes + 1;
		f->t[0].late = 0;
		if (n)
			MUST(exec_take(f->x, &f->t[0]));
	}
}

/*
 * Work of a lower priority goes later, not never: while there always is work of a higher one, it
 * is taken when it has waited for so long.  Nothing is taken before, nor ever when that is off.
 */
START_TEST(test_lower_priorities_go_later_not_never)
{
	static const s32 of[] = { 7, 3, 0, -2, -5 };
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t, *u;
	u32 i, k, w, high = 0, low, n = 1, seen = 0;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	u = fix_thread(&f);
	t->queue = q;
	t->idle = 0;
	f.x->late = _i ? 1ull << 40 : 0;
	q->late = cycles() + (1ull << 40);
	q->late_since = cycles();
	for (k = 0; k < 5; k++)
		for (i = 0; i < 3; i++)
			exec_push(q, u, 1 + k * 10 + i, of[k], 0);
	for (i = 0; i < 1000; i++) {
		exec_push(q, t, 1000, 9, 0);
		ck_assert_uint_eq(exec_take(f.x, t), 1000);
	}
	for (i = 0; i < 40; i++) {
		exec_push(q, t, 1000, 9, 0);
		exec_push(q, t, 1000, 9, 0);
		later(&f, q, n);
		w = exec_take(f.x, t);
		if (w == 1000) {
			high++;
			continue;
		}
		/* the oldest of its priority, and each priority in its turn */
		low = w - 1;
		ck_assert_uint_eq(low, seen % 5 * 10 + seen / 5);
		seen++;
	}
	ck_assert_uint_eq(seen, _i ? 15 : 0);
	ck_assert_uint_eq(high, 40 - seen);
	t->queue = NULL;
	fix_fini(&f);
}
END_TEST

/* What has just become ready is not late: a thread that was idle has kept nothing waiting. */
START_TEST(test_new_work_of_a_lower_priority_is_not_late)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	t->queue = _i < 2 ? q : NULL;
	t->idle = 0;
	f.x->late = 1ull << 40;
	q->late_since = cycles() - (1ull << 50);
	for (i = 0; i < 4; i++)
		exec_push(q, t, 10 + i, _i % 2, 0);
	exec_push(q, t, 20, _i % 2 - 1, 0);
	/* It was idle until now; or it is the host's thread, which was elsewhere. */
	if (_i < 2)
		t->idle = cycles();
	ck_assert_uint_eq(exec_take(f.x, t), 10);
	/* That was the first mark since the work was pushed, this is the second, */
	q->late = cycles();
	q->late_since = cycles() - f.x->late / 3;
	t->check = t->takes + 1;
	ck_assert_uint_eq(exec_take(f.x, t), 20);
	for (i = 1; i < 4; i++)
		ck_assert_uint_eq(exec_take(f.x, t), 10 + i);
	t->queue = NULL;
	fix_fini(&f);
}
END_TEST

/* Late work takes no more time than the other work. */
START_TEST(test_late_work_takes_half_of_the_time)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t;
	u64 now;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	t->queue = q;
	t->idle = 0;
	f.x->late = 1ull << 40;
	for (i = 0; i < 4; i++) {
		exec_push(q, t, 10 + i, 0, 0);
		exec_push(q, t, 20 + i, -1, 0);
	}
	q->late_since = cycles() - (1ull << 50);
	ck_assert_uint_eq(exec_take(f.x, t), 20);
	/* It took 2^39 cycles. */
	t->clock -= 1ull << 39;
	t->late = t->clock;
	now = cycles();
	ck_assert_uint_eq(exec_take(f.x, t), 10);
	ck_assert_int_ge((s64)(q->late - now), 1ll << 39);
	ck_assert_int_lt((s64)(q->late - now), 1ll << 40);
	t->queue = NULL;
	fix_fini(&f);
}
END_TEST

/* No thread checks the lane of a thread that sleeps or has left, unless it holds work. */
START_TEST(test_lanes_rest)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *a, *b;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	a = fix_thread(&f);
	b = fix_thread(&f);
	for (i = 0; i < 3; i++) {
		exec_push(q, a, 1, 0, 0);
		exec_push(q, a, 2, 0, 0);
		ck_assert_uint_eq(q->map[0] & 1, 1);
		lanes_unmark_empty(f.x, a);
		ck_assert_uint_eq(q->map[0] & 1, 1);	/* there is work */
		ck_assert_uint_eq(exec_take(f.x, a), 1);
		ck_assert_uint_eq(exec_take(f.x, b), 2);
		lanes_unmark_empty(f.x, a);
		ck_assert_uint_eq(q->map[0] & 1, 0);
		ck_assert(queue_empty(q));
	}
	/* what is in its hoard is work, too */
	for (i = 1; i <= 8; i++)
		exec_push(q, a, i, 0, 0);
	b->batch = 4;
	ck_assert_uint_eq(exec_take(f.x, b), 1);
	lanes_unmark_empty(f.x, b);
	ck_assert_uint_eq(q->map[0], 3);
	fix_leave(&f, a);
	fix_leave(&f, b);
	ck_assert_uint_eq(q->map[0], 3);
	a = fix_thread(&f);
	for (i = 0; i < 7; i++)
		MUST(exec_take(f.x, a));
	ck_assert(queue_empty(q));
	fix_leave(&f, a);
	ck_assert_uint_eq(q->map[0], 2);	/* b's slot has no thread; its next one rests */
	b = fix_thread(&f);
	b = fix_thread(&f);
	fix_leave(&f, b);
	ck_assert_uint_eq(q->map[0], 0);
	fix_fini(&f);
}
END_TEST

#if CAN_TRAP
static struct {
	struct exec_queue *q;
	struct exec_thread *t;
	s32 prio;
	u32 pushes;
} pusher;

static void push_now(void)
{
	exec_push(pusher.q, pusher.t, 1, pusher.prio, 0);
	pusher.pushes++;
}

static bool readable(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, 0) == 1;
}

/*
 * Whenever a thread pushes while another one looks for work in vain: that one finds the work,
 * or else the descriptor is readable.  Without anything ready it counts as one sleeper.
 */
START_TEST(test_a_push_at_any_moment_of_a_look)
{
	struct exec_thread *t;
	u32 k, w, found = 0;
	struct fix f;
	int fd;

	fix_init(&f, NULL);
	pusher.q = fix_queue(&f, "q", 0, true);
	pusher.t = fix_thread(&f);
	pusher.prio = -_i;
	t = fix_thread(&f);
	fd = exec_ready_fd(f.x);
	MUST(fd >= 0 && readable(fd) && !exec_take_ready(f.x, t));
	trap_init(push_now);
	for (k = 0; !k || trap.stops; k += _i ? 5 : 23) {
		pusher.pushes = 0;
		trap_after(k, w = exec_take_ready(f.x, t));
		MUST(w <= pusher.pushes);
		MUST(!pusher.pushes || readable(fd));
		MUST(w + exec_take_ready(f.x, t) == pusher.pushes);
		MUST(!exec_take_ready(f.x, t) && !readable(fd));
		MUST(f.x->helpers.attn == 1 && !f.x->ready_written);
		found += w;
	}
	MUST(found);
	fix_fini(&f);
}
END_TEST

/* What is pushed while a thread takes: 1, and then 2, which goes after it. */
static struct {
	struct exec_queue *q;
	struct exec_thread *t, *taker;
	s32 prio[2];
	u32 flags, took;
} late;

static void push_two(void)
{
	late.took = exec_take(late.q->x, late.taker);
	exec_push(late.q, late.t, 1, late.prio[0], late.flags);
	exec_push(late.q, late.t, 2, late.prio[1], 0);
}

/*
 * Another thread takes what is queued, and pushes more, at any moment of a take: a later piece
 * that goes after an earlier one is not taken before it.
 */
START_TEST(test_order_of_what_is_pushed_during_a_take)
{
	static const struct { s32 queued, prio[2]; u32 flags; } of[] = {
		{ 0, { 1, 0 }, 0 }, { -1, { 0, -1 }, 0 }, { -1, { 1, -1 }, 0 },
		{ 1, { 2, 1 }, 0 }, { 0, { 0, INT32_MAX }, EXEC_FRONT }, { -2, { 0, -2 }, 0 },
	};
	struct exec_thread *t;
	u32 k, w, rest, seen[4] = { 0 };
	struct fix f;

	fix_init(&f, NULL);
	late.q = fix_queue(&f, "q", 0, true);
	late.t = fix_thread(&f);
	late.taker = fix_thread(&f);
	memcpy(late.prio, of[_i].prio, sizeof(late.prio));
	late.flags = of[_i].flags;
	t = fix_thread(&f);
	trap_init(push_two);
	for (k = 0; !k || trap.stops; k += 11) {
		exec_push(late.q, late.t, 3, of[_i].queued, 0);
		late.took = 0;
		trap_after(k, w = exec_take(f.x, t));
		MUST(w != 2);
		seen[w]++;
		rest = w + late.took;
		while ((w = exec_take(f.x, late.taker)))
			rest += w;
		MUST(rest == (trap.stops ? 6 : 3));
	}
	MUST(seen[3] && seen[1] && !late.q->n[PQ_HIGH] && !late.q->n[PQ_LOW]);
	fix_fini(&f);
}
END_TEST
#endif

int main(void)
{
	Suite *s = suite_create("exec/take");
	TCase *tc = tcase_create("take");

	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, test_handoff);
	tcase_add_test(tc, test_next);
	tcase_add_test(tc, test_next_takes_so_many_pieces);
	tcase_add_test(tc, test_a_turn_is_over_after_its_time);
	tcase_add_test(tc, test_low_work_is_handed_over_before_lower_work);
	tcase_add_test(tc, test_a_queue_that_is_no_longer_served);
	tcase_add_test(tc, test_hoards);
	tcase_add_test(tc, test_a_thread_stays_with_the_lane_that_it_took_from);
	tcase_add_test(tc, test_own_work_comes_first_beside_a_batch);
	tcase_add_test(tc, test_a_poller_that_may_steal_sees_a_hoard);
	tcase_add_test(tc, test_a_poller_sees_a_batch_that_is_not_open);
	tcase_add_test(tc, test_a_batch_that_took_nothing_is_not_queued);
	tcase_add_loop_test(tc, test_a_poller_sees_work_of_each_queue_that_it_serves, 0, 3);
	tcase_add_loop_test(tc, test_no_producer_waits_longer_than_for_one_body_of_each, 0, 32);
	tcase_add_test(tc, test_a_thread_stays_at_a_lane_for_its_turn);
	tcase_add_test(tc, test_the_clock_is_read_as_often_as_the_work_is_long);
	tcase_add_loop_test(tc, test_a_chain_of_hand_overs_leaves_others_their_turn, 0, 3);
	tcase_add_test(tc, test_a_hoard_has_turns);
	tcase_add_test(tc, test_queues_have_turns);
	tcase_add_loop_test(tc, test_lower_priorities_go_later_not_never, 0, 2);
	tcase_add_loop_test(tc, test_new_work_of_a_lower_priority_is_not_late, 0, 4);
	tcase_add_test(tc, test_late_work_takes_half_of_the_time);
	tcase_add_test(tc, test_lanes_rest);
#if CAN_TRAP
	/* A sanitizer's instructions are many. */
	if (!SANITIZED) {
		tcase_add_loop_test(tc, test_a_push_at_any_moment_of_a_look, 0, 2);
		tcase_add_loop_test(tc, test_order_of_what_is_pushed_during_a_take, 0, 6);
	}
#endif
	suite_add_tcase(s, tc);
	return suite_run(s);
}
