/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec/take.c: which work a thread takes, of its own and of others: hand-off, hoards, turns of
 * producers, late work of lower priorities, lanes at rest.  Short work: test_leave.c.
 */
#include <poll.h>
#include "exec_fixture.h"
#include "suite.h"
#include "trap.h"

/* Of each test: an executor with a queue and the threads of slots 0, 1 and 2. */
static struct fix f;
static struct exec_queue *q;
static struct exec_thread *t, *u, *v;

static void begin(void)
{
	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	u = fix_thread(&f);
	v = fix_thread(&f);
}

static void end(void)
{
	fix_fini(&f);
}

/*
 * Time passes, n cycles of it, and the next take of each thread reads the clock.  No test depends on
 * how much time passes else: it is much less than FIX_NEVER, in which all of them count.
 */
static void pass(u64 n)
{
	u32 i;

	for (i = 0; i < f.used; i++) {
		f.t[i].clock -= n;
		f.t[i].began -= n;
		f.t[i].idle -= n;
		f.t[i].late -= f.t[i].late ? n : 0;
		f.t[i].check = f.t[i].takes + 1;
	}
	q->late -= n;
	q->late_since -= n;
}

START_TEST(test_handoff)
{
	struct exec_queue *other, *hidden;

	other = fix_queue(&f, "other", 0, true);
	hidden = fix_queue(&f, "hidden", 1, false);
	v->queue = other;

	ck_assert(exec_handoff(q, t, 1, 0));
	ck_assert(exec_handoff(q, t, 1, -5));
	ck_assert(exec_handoff(q, t, 1, 5));
	/* not served by t; by a worker of another queue */
	ck_assert(!exec_handoff(hidden, t, 1, 0));
	ck_assert(!exec_handoff(q, v, 2, 0));
	/* work of another thread goes before low work */
	ck_assert(exec_handoff(q, t, 4, 0));
	ck_assert(!exec_handoff(q, t, 3, -1));
	ck_assert_uint_eq(exec_take(f.x, t), 2);
	ck_assert_uint_eq(exec_take(f.x, t), 3);
	exec_push(q, t, 2, 0, 0);
	ck_assert(exec_handoff(other, v, 3, 0));
	ck_assert_uint_eq(exec_take(f.x, v), 0);
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
	v->queue = NULL;
}
END_TEST

static u32 next(struct exec_thread *of)
{
	u32 work = exec_look(of);

	of->check = of->takes + 100;	/* not the take that reads the clock */
	return work && exec_next(f.x, of, work) ? work : 0;
}

/* The pieces of its own work that a thread takes before it returns to its caller. */
START_TEST(test_next)
{
	exec_push_more(q, t, 1, 0, 0);
	exec_push_more(q, t, 2, 0, 0);
	exec_push_more(q, t, 3, 0, 0);
	exec_push_more(q, t, 4, 0, 0);
	exec_push_more(q, t, 5, -1, 0);
	exec_pushed(q, t);
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	/* recent work may have been long, so nothing; then it was short */
	ck_assert_uint_eq(next(t), 0);
	t->batch = 2;
	t->nexts = 0;
	ck_assert_uint_eq(next(t), 2);
	t->budget = 0;
	ck_assert_uint_eq(next(t), 0);
	t->budget = 1;
	t->nexts = 0;
	ck_assert_uint_eq(next(t), 3);
	ck_assert_uint_eq(t->budget, 0);
	t->budget = EXEC_UNLIMITED;
	/* not before work of a higher priority, nor instead of another thread's work */
	exec_push(q, u, 6, 1, 0);
	ck_assert_uint_eq(next(t), 0);
	ck_assert_uint_eq(exec_take(f.x, t), 6);
	t->nexts = 0;
	ck_assert_uint_eq(next(t), 4);
	ck_assert_uint_eq(next(t), 0);
	/* nor after the maximum number of pieces in one run */
	exec_push(q, t, 8, 0, 0);
	t->nexts = 16;
	ck_assert_uint_eq(next(t), 0);
	ck_assert_uint_eq(exec_take(f.x, t), 8);
	/* nor a piece other than its caller read, nor for long */
	exec_push(q, t, 9, 0, 0);
	t->nexts = 0;
	ck_assert(!exec_next(f.x, t, 8));
	t->nexts = 1;
	t->since = 0;
	ck_assert_uint_eq(next(t), 0);
	ck_assert_uint_eq(exec_take(f.x, t), 9);
	/* the time counts from the first of them, whenever the last run was */
	f.x->next = 1ull << 40;
	t->since = cycles() - (2ull << 40);
	t->nexts = 0;
	exec_push(q, t, 11, 0, 0);
	exec_push(q, t, 12, 0, 0);
	ck_assert_uint_eq(next(t), 11);
	ck_assert_uint_eq(next(t), 12);
	ck_assert_uint_eq(t->nexts, 2);
	ck_assert_uint_eq(t->budget, EXEC_UNLIMITED);
	t->nexts = 0;
	exec_push(q, u, 7, 0, 0);
	ck_assert_uint_eq(next(t), 0);
	ck_assert_uint_eq(exec_take(f.x, t), 7);
	ck_assert_uint_eq(exec_take(f.x, t), 5);
}
END_TEST

/* New low work goes before work that is lower still, and after what is as high. */
START_TEST(test_low_work_is_handed_over_before_lower_work)
{
	exec_push(q, t, 1, -5, 0);
	ck_assert(exec_handoff(q, t, 2, -4));
	ck_assert(!exec_handoff(q, t, 3, -5));
	ck_assert(!exec_handoff(q, t, 4, -6));
	ck_assert(exec_handoff(q, t, 5, INT32_MAX));
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	ck_assert_uint_eq(exec_take(f.x, t), 3);
	ck_assert_uint_eq(exec_take(f.x, t), 4);
}
END_TEST

/* A queue that waiting threads no longer serve: one that took from it before leaves it, too. */
START_TEST(test_a_queue_that_is_no_longer_served)
{
	struct exec_queue *other;
	u32 i;

	other = fix_queue(&f, "other", 0, true);
	for (i = 1; i <= 3; i++)
		exec_push(q, t, i, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	ck_assert_uint_eq(exec_take(f.x, t), 2);
	q->drive = 0;
	t->batch = 2;
	for (i = 0; i < 20; i++)
		ck_assert(!exec_take(f.x, t) && !next(t));
	ck_assert(!thread_may_take(f.x, t, LOOK_DEEP));
	ck_assert(!exec_handoff(q, t, 4, 0));
	exec_push(other, t, 5, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 5);
	/* Its worker takes all. */
	t->queue = q;
	ck_assert_uint_eq(exec_take(f.x, t), 3);
	ck_assert_uint_eq(exec_take(f.x, t), 4);
	t->queue = NULL;
}
END_TEST

/* A hoard is stolen from last, before low work; the work of a thread that left is found. */
START_TEST(test_hoards)
{
	struct exec_queue_stats qs;
	struct exec_stats st;
	u32 i;

	for (i = 1; i <= 8; i++)
		exec_push(q, t, i, 0, 0);
	exec_push(q, t, 9, -1, 0);
	u->batch = 4;
	ck_assert_uint_eq(exec_take(f.x, u), 1);
	/* 2, 3, 4 are in u's hoard */
	exec_queue_stats(q, &qs);
	ck_assert_uint_eq(qs.depth, 8);
	ck_assert_uint_eq(qs.pushed, 9);
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.stolen, 4);
	ck_assert_uint_eq(u->stolen, 4);
	for (i = 5; i <= 8; i++)
		ck_assert_uint_eq(exec_take(f.x, t), i);
	ck_assert(!queue_empty(q));
	fix_leave(&f, u);
	u = fix_thread(&f);
	ck_assert_uint_eq(u->slot, 1);
	exec_push(q, t, 10, 2, 0);
	ck_assert_uint_eq(exec_take(f.x, u), 10);
	/* v steals what u does not begin: it counts again */
	for (i = 3; i; i--) {
		exec_queue_stats(q, &qs);
		ck_assert_uint_eq(qs.depth, i + 1);
		ck_assert_uint_eq(exec_take(f.x, v), 5 - i);
		ck_assert_uint_eq(v->stolen, 4 - i);
	}
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.stolen, 4 + 3);
	ck_assert_uint_eq(exec_take(f.x, v), 9);
	exec_queue_stats(q, &qs);
	ck_assert_uint_eq(qs.depth, 0);
	ck_assert_uint_eq(qs.pushed, 10);
	exec_stats(f.x, &st);
	ck_assert_uint_eq(st.stolen, 4 + 3);
	ck_assert(queue_empty(q));
}
END_TEST

/* A thread continues with the lane from which it took, whatever other threads have pushed. */
START_TEST(test_a_thread_stays_with_the_lane_that_it_took_from)
{
	exec_push(q, v, 1, 0, 0);
	exec_push(q, v, 2, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	exec_push(q, u, 3, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 2);
	ck_assert_uint_eq(exec_take(f.x, t), 3);
}
END_TEST

/* A batch of another thread has not ended: the owner of the ring still takes from it first. */
START_TEST(test_own_work_comes_first_beside_a_batch)
{
	u32 i;

	exec_push(q, u, 10, 0, 0);
	for (i = 1; i <= 3; i++)
		exec_push(q, t, i, 0, 0);
	/* as ring_batch() does, up to its last step; the hoard of u is empty by now */
	q->lanes[t->slot]->ring.head |= (u64)(u->slot + 1) << RING_POS_BITS;
	t->from = u->slot;
	for (i = 1; i <= 3; i++)
		ck_assert_uint_eq(exec_take(f.x, t), i);
	ck_assert_uint_eq(exec_take(f.x, t), 10);
}
END_TEST

/* A poller that does not steal yet does not see a hoard; one that does takes all of it. */
START_TEST(test_a_poller_that_may_steal_sees_a_hoard)
{
	struct exec_queue_stats st;
	u32 i, sum = 0;
	u64 waits = 0;

	for (i = 1; i <= 8; i++)
		exec_push(q, t, i, 0, 0);
	u->batch = 4;
	ck_assert_uint_eq(exec_take(f.x, u), 1);
	/* One of the four was to be measured. */
	exec_queue_stats(q, &st);
	for (i = 0; i < ARRAY_SIZE(st.wait); i++)
		waits += st.wait[i];
	ck_assert_uint_ge(waits, 1);
	for (i = 5; i <= 8; i++)
		ck_assert_uint_eq(exec_take(f.x, t), i);
	ck_assert(!thread_may_take(f.x, v, 0));
	for (i = 0; i < 3; i++) {
		ck_assert(thread_may_take(f.x, v, LOOK_DEEP));
		sum += exec_take(f.x, v);
	}
	ck_assert_uint_eq(sum, 2 + 3 + 4);
	ck_assert(!thread_may_take(f.x, v, LOOK_DEEP));
}
END_TEST

/* A taker that is stopped before it opens its hoard, behind a moved head: a poller opens it. */
START_TEST(test_a_poller_sees_a_batch_that_is_not_open)
{
	struct exec_lane *l;
	u32 i;

	exec_push(q, t, 1, 0, 0);
	exec_push(q, t, 2, 0, 0);
	l = lane_mine(q, u);
	/* as ring_batch() does */
	l->hoard.work[0] = 2;
	l->hoard.word = 1 << 16 | HOARD_SHUT | 1 << 8;
	q->lanes[t->slot]->ring.head = 2 | (u64)(u->slot + 1) << RING_POS_BITS;
	for (i = 0; i < 2; i++) {
		ck_assert(thread_may_take(f.x, v, i ? LOOK_DEEP : 0));
		ck_assert(!queue_empty(q));
	}
	ck_assert_uint_eq(exec_take(f.x, v), 2);
	ck_assert_uint_eq(exec_take(f.x, v), 0);
	ck_assert(queue_empty(q));
}
END_TEST

/* What a batch copied counts only if it was taken: another thread was faster here. */
START_TEST(test_a_batch_that_took_nothing_is_not_queued)
{
	struct exec_queue_stats st;
	struct ring_look look;
	u32 i;

	for (i = 1; i <= 8; i++)
		exec_push(q, t, i, 0, 0);
	MUST(ring_peek(&q->lanes[t->slot]->ring, &look));
	ck_assert_uint_eq(exec_take(f.x, v), 1);
	ck_assert_uint_eq(ring_batch(&q->lanes[t->slot]->ring, &look, &lane_mine(q, u)->hoard,
				     u->slot, 4), 0);
	for (i = 2; i <= 8; i++) {
		exec_queue_stats(q, &st);
		ck_assert_uint_eq(st.depth, 9 - i);
		ck_assert_uint_eq(exec_take(f.x, v), i);
	}
	exec_queue_stats(q, &st);
	ck_assert_uint_eq(st.depth, 0);
	ck_assert_uint_eq(st.pushed, 8);
	ck_assert(queue_empty(q) && !thread_may_take(f.x, v, LOOK_DEEP));
	/* The lane rests, and the next batch is as any other. */
	lanes_unmark_empty(f.x, u);
	ck_assert_uint_eq(q->map[0] & 1u << u->slot, 0);
	for (i = 1; i <= 8; i++)
		exec_push(q, t, i, 0, 0);
	u->batch = 4;
	for (i = 1; i <= 8; i++)
		ck_assert_uint_eq(exec_take(f.x, u), i);
	ck_assert(queue_empty(q));
}
END_TEST

START_TEST(test_a_poller_sees_work_of_each_queue_that_it_serves)
{
	struct exec_queue *of[3];
	u32 i;

	for (i = 0; i < 3; i++)
		of[i] = fix_queue(&f, "q", i == 1, i != 1);
	for (i = 0; i < 3; i++) {
		exec_push(of[i], u, 1 + i, 0, 0);
		ck_assert(thread_may_take(f.x, t, 0) == (i != 1));
		ck_assert_uint_eq(exec_take(f.x, t), i != 1 ? 1 + i : 0);
		if (i == 1) {
			t->queue = of[1];
			ck_assert(thread_may_take(f.x, t, 0));
			ck_assert_uint_eq(exec_take(f.x, t), 2);
			exec_push(of[0], u, 4, 0, 0);
			ck_assert(!thread_may_take(f.x, t, LOOK_DEEP) && !exec_take(f.x, t));
			t->queue = NULL;
			ck_assert_uint_eq(exec_take(f.x, t), 4);
		}
		exec_push(of[i], u, 5, _i - 1, 0);
		t->queue = of[i];
		ck_assert(thread_may_take(f.x, t, 0));
		ck_assert_uint_eq(thread_take(f.x, t, 0), 5);
		t->queue = NULL;
	}
}
END_TEST

/*
 * Producers that always have more: a thread, which may be one of them itself, takes one piece of
 * each in turn, so a piece behind k others of its producer waits for k + 1 pieces of each.
 */
START_TEST(test_no_producer_waits_longer_than_for_one_body_of_each)
{
	struct exec_thread *maker[6];
	u32 i, k, w, n = (u32)_i % 4 + 2, got[6] = { 0 };
	bool own = _i % 8 < 4, hand = _i >= 16;

	/* also where their slots are at both sides of the first 64 */
	for (i = 0; _i % 16 >= 8 && i < 59; i++)
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
}
END_TEST

/* Within its turn a thread stays at a lane, its own or another one. */
START_TEST(test_a_thread_stays_at_a_lane_for_its_turn)
{
	u32 i, k, next_of[2] = { 1, 101 };

	for (i = 1; i <= 100; i++) {
		exec_push(q, t, i, 0, 0);
		exec_push(q, u, 100 + i, 0, 0);
	}
	for (i = 0; i < 5; i++) {
		for (k = 0; k < 20; k++)
			ck_assert_uint_eq(exec_take(f.x, t), next_of[i % 2]++);
		pass(FIX_NEVER);
	}
}
END_TEST

/* A chain of hand-overs ends with the turn, if other work is queued, whatever its priority. */
START_TEST(test_a_chain_of_hand_overs_leaves_others_their_turn)
{
	u32 i;

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
}
END_TEST

/* Work that a thread took in a batch and does not begin has turns, too. */
START_TEST(test_a_hoard_has_turns)
{
	u32 i, w, got = 0;

	v->batch = 8;
	for (i = 1; i <= 16; i++)
		exec_push(q, u, i, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, v), 1);
	takes_are_turns(&f);
	for (i = 0; i < 3 * 16; i++) {
		exec_push(q, t, 1000 + i, 0, 0);
		w = exec_take(f.x, t);
		got += w < 1000;
	}
	ck_assert_uint_eq(got, 15);
}
END_TEST

/* A waiting thread serves several queues: each has turns. */
START_TEST(test_queues_have_turns)
{
	struct exec_queue *of[3];
	u32 i, k, got[3] = { 0 };

	for (k = 0; k < 3; k++)
		of[k] = fix_queue(&f, "q", 0, true);
	takes_are_turns(&f);
	for (k = 0; k < 3; k++)
		for (i = 0; i < 100; i++)
			exec_push(of[k], t, 1 + k, 0, 0);
	for (i = 0; i < 90; i++)
		got[exec_take(f.x, t) - 1]++;
	for (k = 0; k < 3; k++)
		ck_assert_uint_ge(got[k], 25);
}
END_TEST

/*
 * Work of a lower priority goes later, not never: while there always is work of a higher one, it
 * is taken when it has waited for so long, and takes at most half of the time.  Nothing is taken
 * before, nor ever when that is off.
 */
START_TEST(test_lower_priorities_go_later_not_never)
{
	static const s32 of[] = { 7, 3, 0, -2, -5 };
	/* off; a worker that runs long work; one that runs shorter work */
	u64 late = _i ? FIX_NEVER : 0, each = _i < 2 ? FIX_NEVER : FIX_NEVER / 3;
	u32 i, k, w, seen = 0, others = 1;

	t->queue = q;
	f.x->late = late;
	for (k = 0; k < 5; k++)
		for (i = 0; i < 3; i++)
			exec_push(q, u, 1 + k * 10 + i, of[k], 0);
	for (i = 0; i < 1000; i++) {
		exec_push(q, t, 1000, 9, 0);
		ck_assert_uint_eq(exec_take(f.x, t), 1000);
	}
	for (i = 0; i < 100; i++) {
		exec_push(q, t, 1000, 9, 0);
		pass(each);
		w = exec_take(f.x, t);
		if (w == 1000) {
			others++;
			continue;
		}
		/* the oldest of its priority, and each priority in its turn */
		ck_assert_uint_eq(w - 1, seen % 5 * 10 + seen / 5);
		ck_assert_uint_ge(others, 1);
		others = 0;
		seen++;
	}
	ck_assert_uint_eq(seen, _i ? 15 : 0);
	t->queue = NULL;
}
END_TEST

/* What has just become ready is not late: a thread that was idle has kept nothing waiting. */
START_TEST(test_new_work_of_a_lower_priority_is_not_late)
{
	u32 i;

	t->queue = _i < 2 ? q : NULL;
	f.x->late = FIX_NEVER;
	pass(4 * FIX_NEVER);
	for (i = 0; i < 4; i++)
		exec_push(q, t, 10 + i, _i % 2, 0);
	exec_push(q, t, 20, _i % 2 - 1, 0);
	/* It was idle until now; or it is the host's thread, which was elsewhere. */
	if (_i < 2)
		t->idle = cycles();
	ck_assert_uint_eq(exec_take(f.x, t), 10);
	/* That was the first mark since the work was pushed, this is the second. */
	pass(FIX_NEVER / 3);
	ck_assert_uint_eq(exec_take(f.x, t), 20);
	for (i = 1; i < 4; i++)
		ck_assert_uint_eq(exec_take(f.x, t), 10 + i);
	t->queue = NULL;
}
END_TEST

/* No thread checks the lane of a thread that sleeps or has left, unless it holds work. */
START_TEST(test_lanes_rest)
{
	u32 i;

	for (i = 0; i < 3; i++) {
		exec_push(q, t, 1, 0, 0);
		exec_push(q, t, 2, 0, 0);
		ck_assert_uint_eq(q->map[0] & 1, 1);
		lanes_unmark_empty(f.x, t);
		ck_assert_uint_eq(q->map[0] & 1, 1);	/* there is work */
		ck_assert_uint_eq(exec_take(f.x, t), 1);
		ck_assert_uint_eq(exec_take(f.x, u), 2);
		lanes_unmark_empty(f.x, t);
		ck_assert_uint_eq(q->map[0] & 1, 0);
		ck_assert(queue_empty(q));
	}
	/* what is in its hoard is work, too */
	for (i = 1; i <= 8; i++)
		exec_push(q, t, i, 0, 0);
	u->batch = 4;
	ck_assert_uint_eq(exec_take(f.x, u), 1);
	lanes_unmark_empty(f.x, u);
	ck_assert_uint_eq(q->map[0], 3);
	fix_leave(&f, t);
	fix_leave(&f, u);
	ck_assert_uint_eq(q->map[0], 3);
	t = fix_thread(&f);
	for (i = 0; i < 7; i++)
		MUST(exec_take(f.x, t));
	ck_assert(queue_empty(q));
	fix_leave(&f, t);
	ck_assert_uint_eq(q->map[0], 2);	/* u's slot has no thread; its next one rests */
	u = fix_thread(&f);
	u = fix_thread(&f);
	fix_leave(&f, u);
	ck_assert_uint_eq(q->map[0], 0);
}
END_TEST

#if CAN_TRAP
static struct { s32 prio; u32 pushes; } pusher;

static void push_now(void)
{
	exec_push(q, u, 1, pusher.prio, 0);
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
	u32 k, w, found = 0;
	int fd;

	pusher.prio = -_i;
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
}
END_TEST

/* What is pushed while a thread takes: 1, and then 2, which goes after it. */
static struct {
	s32 prio[2];
	u32 flags, took;
} late;

static void push_two(void)
{
	late.took = exec_take(f.x, v);
	exec_push(q, u, 1, late.prio[0], late.flags);
	exec_push(q, u, 2, late.prio[1], 0);
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
	u32 k, w, rest, seen[4] = { 0 };

	memcpy(late.prio, of[_i].prio, sizeof(late.prio));
	late.flags = of[_i].flags;
	trap_init(push_two);
	for (k = 0; !k || trap.stops; k += 11) {
		exec_push(q, u, 3, of[_i].queued, 0);
		late.took = 0;
		trap_after(k, w = exec_take(f.x, t));
		MUST(w != 2);
		seen[w]++;
		rest = w + late.took;
		while ((w = exec_take(f.x, v)))
			rest += w;
		MUST(rest == (trap.stops ? 6 : 3));
	}
	MUST(seen[3] && seen[1] && !q->n[PQ_HIGH] && !q->n[PQ_LOW]);
}
END_TEST
#endif

int main(void)
{
	Suite *s = suite_create("exec/take");
	TCase *tc = tcase_create("take");

	tcase_set_timeout(tc, 100);
	tcase_add_checked_fixture(tc, begin, end);
	tcase_add_test(tc, test_handoff);
	tcase_add_test(tc, test_next);
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
	tcase_add_loop_test(tc, test_a_chain_of_hand_overs_leaves_others_their_turn, 0, 3);
	tcase_add_test(tc, test_a_hoard_has_turns);
	tcase_add_test(tc, test_queues_have_turns);
	tcase_add_loop_test(tc, test_lower_priorities_go_later_not_never, 0, 3);
	tcase_add_loop_test(tc, test_new_work_of_a_lower_priority_is_not_late, 0, 4);
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
