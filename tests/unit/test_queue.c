/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec/queue.c and take.c: the order of takes, its bound, priorities, hand-off, batches, refused
 * memory.
 */
#include "exec_fixture.h"
#include <base/random.h>
#include "suite.h"

static u32 refuse_memory;	/* A */

int pool_commit_hook(const char *what, size_t bytes)
{
	return load_relaxed(&refuse_memory) ? -ENOMEM : 0;
}

static void note(struct fix *f, struct exec_thread *t, u32 work)
{
	u32 *log = f->user;

	u32 n = load_relaxed(&log[0]) + 1;

	log[n] = work;
	store_release(&log[0], n);
}

START_TEST(test_fifo)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	ck_assert(!exec_take(f.x, t));
	for (i = 1; i <= 10000; i++)
		exec_push(q, t, i, 0, 0);
	for (i = 1; i <= 10000; i++)
		MUST(exec_take(f.x, t) == i);
	ck_assert(!exec_take(f.x, t));
	fix_leave(&f, t);
	fix_fini(&f);
}
END_TEST

START_TEST(test_priorities)
{
	static const struct { s32 prio; u32 flags; } in[] = {
		{ 0, 0 }, { 5, 0 }, { INT32_MIN, 0 }, { -1, 0 }, { INT32_MAX, 0 },
		{ 0, EXEC_FRONT }, { 5, 0 }, { 0, 0 }, { INT32_MIN, 0 }, { 1, 0 },
		{ INT32_MAX, 0 }, { -7, EXEC_FRONT }, { -1, 0 }, { 1, 0 },
	};
	static const u32 want[] = { 6, 12, 5, 11, 2, 7, 10, 14, 1, 8, 4, 13, 3, 9 };
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	for (i = 0; i < ARRAY_SIZE(in); i++)
		exec_push(q, t, i + 1, in[i].prio, in[i].flags);
	for (i = 0; i < ARRAY_SIZE(want); i++)
		MUST(exec_take(f.x, t) == want[i]);
	ck_assert(!exec_take(f.x, t));
	ck_assert(queue_empty(q));
	fix_leave(&f, t);
	fix_fini(&f);
}
END_TEST

/*
 * Equal ops that one thread pushes as fast as possible run in the order of their pushes, also
 * on a machine with a slow clock.  There are many rounds, since reused nodes are in any order.
 */
START_TEST(test_equals)
{
	static const struct { s32 prio; u32 flags; } kind[] = {
		{ 1, 0 }, { -1, 0 }, { 0, EXEC_FRONT }, { INT32_MIN, 0 },
	};
	enum { N = 100, ROUNDS = 200 };
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t;
	u32 i, k, round;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	for (round = 0; round < ROUNDS; round++) {
		for (k = 0; k < ARRAY_SIZE(kind); k++) {
			for (i = 1; i <= N; i++)
				exec_push(q, t, i, kind[k].prio, kind[k].flags);
			for (i = 1; i <= N; i++)
				MUST(exec_take(f.x, t) == i);
		}
	}
	fix_leave(&f, t);
	fix_fini(&f);
}
END_TEST

/* A worker that is held at a gate while all are pushed. */
static u32 gate;
static u32 entered;

static void gated(struct fix *f, struct exec_thread *t, u32 work)
{
	if (work == 100000) {
		store_release(&entered, 1);
		gate_wait(&gate);
		return;
	}
	note(f, t, work);
}

static int by_key(const void *a, const void *b)
{
	s64 x = *(const s64 *)a, y = *(const s64 *)b;

	return x < y ? -1 : x > y;
}

START_TEST(test_gated_worker)
{
	enum { N = 3000 };
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t;
	u32 *log = calloc(N + 2, sizeof(u32)), i;
	s64 *keys = calloc(N, sizeof(s64));

	watchdog(30);
	srand(7);
	gate = entered = 0;
	fix_init(&f, NULL);
	f.run = gated;
	f.user = log;
	q = fix_queue(&f, "q", 1, false);
	t = fix_thread(&f);
	exec_start(f.x);
	exec_push(q, t, 100000, 0, 0);
	until(&entered, 1);
	for (i = 1; i <= N; i++) {
		s32 prio = rand() % 3 ? 0 : rand() % 2 ? rand() % 5 - 2 :
			   rand() % 2 ? INT32_MAX : INT32_MIN;
		u32 front = rand() % 20 == 0;

		exec_push(q, t, i, prio, front ? EXEC_FRONT : 0);
		keys[i - 1] = -((front ? (s64)INT32_MAX + 1 : prio) * 100000) + i;
	}
	qsort(keys, N, sizeof(s64), by_key);
	store_release(&gate, 1);
	while (load_acquire(&log[0]) < N)
		sched_yield();
	exec_stop(f.x);
	for (i = 0; i < N; i++) {
		s64 w = keys[i] % 100000;

		MUST(log[i + 1] == (u32)(w <= 0 ? w + 100000 : w));
	}
	free(log);
	free(keys);
	fix_leave(&f, t);
	fix_fini(&f);
}
END_TEST

/*
 * Producers push in turn, each after the other's push has returned; one consumer takes the work
 * of each of them in order.  On a busy machine a turn may take several time slices, so the
 * producer whose turn it is ends the test when the time has passed.
 */
#define TURNS	(SANITIZED ? 20000u : 200000u)
#define TURNS_NS	5000000000ull
#define GAME_OVER	(1u << 31)

static struct {
	struct exec_queue *q;
	u32 turn __attribute__((aligned(64)));	/* A: turns made, and GAME_OVER */
	u32 producers, turns;
	u64 end;		/* ns */
} relay;

static void relay_start(struct exec_queue *q, u32 producers, u32 turns)
{
	relay.q = q;
	relay.turn = 0;
	relay.producers = producers;
	relay.turns = turns;
	relay.end = exec_now_ns() + TURNS_NS;
}

/* Wait until it is turn n.  Returns false if the game has ended. */
static bool relay_wait(u32 n)
{
	u32 spins = 0, turn;

	while ((turn = load_acquire(&relay.turn)) != n) {
		if (turn & GAME_OVER)
			return false;
		if (++spins > 2000)
			sched_yield();
	}
	if (n < relay.turns && (n % 64 || exec_now_ns() < relay.end))
		return true;
	store_release(&relay.turn, n | GAME_OVER);
	return false;
}

/* Return whether all turns were made, and their number. */
static bool relay_over(u32 *turns)
{
	u32 turn = load_acquire(&relay.turn);

	*turns = turn & ~GAME_OVER;
	return turn & GAME_OVER;
}

struct runner {
	struct exec_thread *t;
	u32 i;
};

static void *relay_main(void *arg)
{
	struct runner *r = arg;
	u32 n;

	for (n = r->i; relay_wait(n); n += relay.producers) {
		exec_push(relay.q, r->t, n + 1, 0, 0);
		store_release(&relay.turn, n + 1);
	}
	return NULL;
}

START_TEST(test_relay)
{
	struct fix f;
	struct exec_thread *t;
	struct runner r[3];
	pthread_t p[3];
	u32 i, got = 0, last[3] = { 0 }, turns, n = _i + 2;

	watchdog(60);
	fix_init(&f, NULL);
	relay_start(fix_queue(&f, "q", 0, true), n, TURNS);
	t = fix_thread(&f);
	/* short works: the consumer takes batches */
	t->batch = EXEC_BATCH_MAX;
	for (i = 0; i < n; i++) {
		r[i].t = fix_thread(&f);
		r[i].i = i;
		MUST(!pthread_create(&p[i], NULL, relay_main, &r[i]));
	}
	while (!relay_over(&turns) || got < turns) {
		u32 w = exec_take(f.x, t);

		if (!w) {
			sched_yield();
			continue;
		}
		MUST(w > last[(w - 1) % n]);
		last[(w - 1) % n] = w;
		got++;
	}
	for (i = 0; i < n; i++)
		pthread_join(p[i], NULL);
	fix_fini(&f);
}
END_TEST

/* The same with priorities: what was pushed before and goes first is never overtaken. */
static void *mixed_main(void *arg)
{
	struct runner *r = arg;
	u32 n;

	for (n = r->i; relay_wait(n); n += relay.producers) {
		/* first the high one: a thread that sees the low one takes the high one before */
		exec_push(relay.q, r->t, 3 * n + 1, (s32)(n % 4) + 1, n % 7 ? 0 : EXEC_FRONT);
		exec_push(relay.q, r->t, 3 * n + 2, 0, 0);
		exec_push(relay.q, r->t, 3 * n + 3, -1, 0);
		store_release(&relay.turn, n + 1);
	}
	return NULL;
}

START_TEST(test_mixed)
{
	struct fix f;
	struct exec_thread *t;
	struct runner r[2];
	pthread_t p[2];
	u8 *seen = calloc(TURNS, 1);
	u32 i, got = 0, turns;

	watchdog(60);
	fix_init(&f, NULL);
	relay_start(fix_queue(&f, "q", 0, true), 2, TURNS / 4);
	t = fix_thread(&f);
	t->batch = EXEC_BATCH_MAX;
	for (i = 0; i < 2; i++) {
		r[i].t = fix_thread(&f);
		r[i].i = i;
		MUST(!pthread_create(&p[i], NULL, mixed_main, &r[i]));
	}
	while (!relay_over(&turns) || got < turns * 3) {
		u32 w = exec_take(f.x, t);

		if (!w) {
			sched_yield();
			continue;
		}
		got++;
		MUST(!seen[w]);
		seen[w] = 1;
		/*
		 * 3n+1 before 3n+2 before 3n+3; low ones in the order of their pushes; of each
		 * producer also the others
		 */
		MUST(w % 3 == 1 || seen[w - 1]);
		MUST(w % 3 != 2 || w < 7 || seen[w - 6]);
		MUST(w % 3 != 0 || w < 4 || seen[w - 3]);
	}
	for (i = 0; i < 2; i++)
		pthread_join(p[i], NULL);
	free(seen);
	fix_fini(&f);
}
END_TEST

START_TEST(test_handoff)
{
	struct fix f;
	struct exec_queue *q, *other, *hidden;
	struct exec_thread *t, *w, *u;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	other = fix_queue(&f, "other", 0, true);
	hidden = fix_queue(&f, "hidden", 0, false);
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
	t->nexts = 0;
	exec_push(q, u, 7, 0, 0);
	ck_assert_uint_eq(next(&f, t), 0);
	ck_assert_uint_eq(exec_take(f.x, t), 7);
	ck_assert_uint_eq(exec_take(f.x, t), 5);
	fix_fini(&f);
}
END_TEST

/* A hoard is stolen from last, before low work; the work of a thread that left is found. */
START_TEST(test_hoards)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *a, *b, *c;
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
	for (i = 5; i <= 8; i++)
		ck_assert_uint_eq(exec_take(f.x, a), i);
	ck_assert(!queue_empty(q));
	fix_leave(&f, b);
	b = fix_thread(&f);
	ck_assert_uint_eq(b->slot, 1);
	exec_push(q, a, 10, 2, 0);
	ck_assert_uint_eq(exec_take(f.x, b), 10);
	exec_stats(f.x, &st);
	ck_assert_uint_ge(st.stolen, 4);
	for (i = 0; exec_take(f.x, c); i++)
		;
	ck_assert(queue_empty(q));
	fix_fini(&f);
}
END_TEST

/*
 * A thread that always has its own work: the work of another thread is overtaken by at most 512
 * times the lanes times the works in front of it plus two (limits.md).
 */
START_TEST(test_bound_between_producers)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t, *other[5];
	u32 i, k, n = 100000, takes, lanes = (u32)_i + 2, front = 7;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	for (i = 0; i + 1 < lanes; i++) {
		other[i] = fix_thread(&f);
		for (k = 0; k <= front; k++)
			exec_push(q, other[i], 1 + i * 100 + k, 0, 0);
	}
	t->batch = _i % 2 ? EXEC_BATCH_MAX : 1;
	for (takes = 0, k = 0; k < (lanes - 1) * (front + 1); takes++) {
		u32 w;

		exec_push(q, t, n++, 0, 0);
		w = exec_take(f.x, t);
		if (w >= 100000)
			continue;
		k++;
		/* works in front of it, and takes until it was taken */
		ck_assert_uint_le(takes, 512 * lanes * ((w - 1) % 100 + 2));
	}
	/* what it pushed itself comes in order all the time */
	for (i = 0; i < takes; i++) {
		u32 w = exec_take(f.x, t);

		if (w)
			MUST(w >= 100000);
	}
	fix_fini(&f);
}
END_TEST

/* The same for work that a thread took in a batch and does not begin. */
START_TEST(test_bound_of_a_hoard)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t, *maker, *stopped;
	u32 i, got = 0;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	maker = fix_thread(&f);
	stopped = fix_thread(&f);
	stopped->batch = 8;
	for (i = 1; i <= 16; i++)
		exec_push(q, maker, i, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, stopped), 1);
	for (i = 0; i < 512 * 3 * (16 + 2); i++) {
		exec_push(q, t, 1000 + i, 0, 0);
		got += exec_take(f.x, t) < 1000;
	}
	ck_assert_uint_eq(got, 15);
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

/*
 * Rings cannot grow, and there is no memory for lanes: nothing is lost, and the work of each
 * producer comes in order.
 */
START_TEST(test_no_memory)
{
	enum { N = 20000 };
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t, *u;
	u8 *seen = calloc(N + 1, 1);
	u32 i, w, got = 0, last[2] = { 0 };

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	u = fix_thread(&f);
	fix_reserve(&f, N);
	if (_i) {
		exec_push(q, t, N, 0, 0);
		ck_assert_uint_eq(exec_take(f.x, t), N);
	}
	store_relaxed(&refuse_memory, 1);
	for (i = 1; i <= N; i++)
		exec_push(q, i % 10 ? t : u, i, i % 10 ? 0 : (s32)i % 3 - 1, 0);
	while ((w = exec_take(f.x, t))) {
		MUST(!seen[w]);
		seen[w] = 1;
		got++;
		if (w % 10 && w > 1)
			MUST(w > last[0]);
		if (w % 10)
			last[0] = w;
	}
	ck_assert_uint_eq(got, N);
	ck_assert(queue_empty(q));
	store_relaxed(&refuse_memory, 0);
	for (i = 1; i <= 2000; i++)
		exec_push(q, t, i, 0, 0);
	for (i = 1; i <= 2000; i++)
		ck_assert_uint_eq(exec_take(f.x, t), i);
	free(seen);
	fix_fini(&f);
}
END_TEST

/*
 * A full ring that cannot grow: further work is queued elsewhere, and taken in its turn, also
 * if the consumer takes several at once, or always has its own work.
 */
START_TEST(test_full_ring)
{
	enum { ROUNDS = 20000, WORKS = 100000 };
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *p[2], *c;
	u32 i, pushed[2] = { 0 }, taken[2] = { 0 }, outside = 0, own = 0;
	u64 seed = 11;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	p[0] = fix_thread(&f);
	p[1] = fix_thread(&f);
	c = fix_thread(&f);
	c->batch = EXEC_BATCH_MAX;
	fix_reserve(&f, 4 * WORKS);
	exec_push(q, p[0], 1, 0, 0);
	exec_push(q, p[1], 2, 0, 0);
	exec_push(q, c, 3, 0, 0);
	MUST(exec_take(f.x, c) && exec_take(f.x, c) && exec_take(f.x, c));
	store_relaxed(&refuse_memory, 1);
	for (i = 0; i < ROUNDS || taken[0] + taken[1] < pushed[0] + pushed[1]; i++) {
		u64 r = random_next(&seed);
		u32 n = r >> 8 & 63, k = r >> 7 & 1, w;

		/* by turns more is pushed than taken, and less */
		if (i < ROUNDS && (r & 7) < (i / 100 % 2 ? 3 : 5)) {
			while (n-- && pushed[k] - taken[k] < 900)
				exec_push(q, p[k], k * WORKS + pushed[k]++ % WORKS + 1, 0, 0);
			continue;
		}
		while (n--) {
			if (_i)
				exec_push(q, c, 3 * WORKS + own++ % WORKS, 0, 0);
			w = exec_take(f.x, c) - 1;
			if (w >= 2 * WORKS)
				continue;
			k = w / WORKS;
			MUST(w % WORKS == taken[k]++ % WORKS);
		}
		outside += q->n[PQ_ZERO] != 0;
	}
	ck_assert_uint_gt(outside, ROUNDS / 40);
	while (exec_take(f.x, c))
		;
	ck_assert(queue_empty(q));
	store_relaxed(&refuse_memory, 0);
	fix_fini(&f);
}
END_TEST

/* The lane of a maker, as a worker checks it. */
struct rig {
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *maker, *worker;
	struct exec_lane *lane;
	u32 work;
};

static void rig_init(struct rig *r)
{
	fix_init(&r->f, NULL);
	r->q = fix_queue(&r->f, "q", 0, true);
	r->maker = fix_thread(&r->f);
	r->worker = fix_thread(&r->f);
	r->worker->queue = r->q;
	r->work = 0;
	/* time advances only as the test says */
	r->f.x->leave_first = r->f.x->leave_most = 1u << 31;
}

static void rig_push(struct rig *r, u32 n)
{
	while (n--)
		exec_push(r->q, r->maker, ++r->work, 0, 0);
	r->lane = r->q->lanes[r->maker->slot];
}

static u32 rig_look(struct rig *r)
{
	return queue_take(r->q, r->worker, LOOK_DEEP | LOOK_LEAVE);
}

/* The time for which the lane is left alone has passed. */
static void rig_later(struct rig *r)
{
	r->lane->left = r->lane->left ? cycles() : 0;
}

START_TEST(test_short_work_stays_with_its_maker)
{
	struct rig r;
	u32 i;

	rig_init(&r);
	r.f.x->fast = UINT32_MAX;	/* a maker that takes anything is fast */
	r.f.x->judge = UINT32_MAX;
	/* the test sets the time of the next check, however slow the machine is */
	r.f.x->leave_first = r.f.x->leave_most = UINT32_MAX;
	rig_push(&r, 100);
	/* a worker that has run nothing yet takes, and so does one whose maker never takes */
	MUST(rig_look(&r) && !r.worker->left);
	r.worker->avg = 10;
	MUST(rig_look(&r) && !r.worker->left);
	MUST(exec_take(r.f.x, r.maker));
	MUST(!rig_look(&r) && r.worker->left);
	MUST(!thread_may_take(r.f.x, r.worker, LOOK_LEAVE) && r.worker->left);
	for (i = 0; i < 10; i++) {
		/* it pushes or takes: either suffices */
		if (i & 1)
			rig_push(&r, 1);
		else
			MUST(exec_take(r.f.x, r.maker));
		rig_later(&r);
		MUST(thread_may_take(r.f.x, r.worker, LOOK_LEAVE));
		MUST(!rig_look(&r) && r.worker->left);
	}
	/*
	 * a worker that sleeps, or checks for itself, takes; and work with a priority is not
	 * left
	 */
	MUST(queue_take(r.q, r.worker, LOOK_DEEP));
	exec_push(r.q, r.maker, ++r.work, 5, 0);
	ck_assert_uint_eq(rig_look(&r), r.work);
	exec_push(r.q, r.maker, ++r.work, -5, 0);
	rig_later(&r);
	MUST(rig_look(&r));
	fix_fini(&r.f);
}
END_TEST

START_TEST(test_work_of_a_slow_maker_is_taken)
{
	struct rig r;
	u32 i, n;

	rig_init(&r);
	r.worker->avg = 10;
	r.f.x->fast = UINT32_MAX;
	r.f.x->judge = UINT32_MAX;
	rig_push(&r, 200);
	MUST(exec_take(r.f.x, r.maker));
	/*
	 * it does nothing: taken at once; the next time limit depends on how often that
	 * happened
	 */
	for (i = 0; i < 10; i++) {
		MUST(!rig_look(&r) && r.worker->left);
		rig_later(&r);
		MUST(rig_look(&r) && !r.worker->left);
		n = i < LEAVE_TRIES ? i : LEAVE_TRIES;
		ck_assert_uint_gt(r.lane->left_rest - cycles(), ((u64)UINT32_MAX << n) / 2);
		ck_assert_uint_le(r.lane->left_rest - cycles(), (u64)UINT32_MAX << n);
		MUST(rig_look(&r) && !r.worker->left);
		r.lane->left_rest = 0;
	}
	/* it is slow: taken after it was measured for long enough */
	r.f.x->fast = 0;
	MUST(!rig_look(&r) && r.worker->left);
	for (i = 0; i < 5; i++) {
		MUST(exec_take(r.f.x, r.maker));
		rig_later(&r);
		MUST(!rig_look(&r) && r.worker->left);
	}
	r.f.x->judge = 0;
	MUST(exec_take(r.f.x, r.maker));
	rig_later(&r);
	MUST(rig_look(&r) && !r.worker->left);
	r.lane->left_rest = 0;
	/* long work is never left, and neither is work of unknown length */
	r.worker->avg = r.f.x->leave_avg + 1;
	MUST(rig_look(&r) && !r.worker->left);
	r.worker->avg = 0;
	MUST(rig_look(&r) && !r.worker->left);
	fix_fini(&r.f);
}
END_TEST

struct burst {
	struct exec_thread *t;
	u32 left;		/* A: below 0, counts up */
};

static void count_one(struct fix *f, struct exec_thread *t, u32 work)
{
	struct burst *b = f->user;

	if (fetch_add_relaxed(&b->left, 1) == -1u)
		exec_unpark(f->x, b->t);
}

static bool all_counted(void *arg)
{
	return load_relaxed(&((struct burst *)arg)->left) == 0;
}

/* Workers that leave work, beside a thread that waits or only pushes: all of it runs. */
START_TEST(test_bursts_of_short_work_run)
{
	struct fix_opt o = { .spin_ns = _i ? 2000 : 200000 };
	u32 i, k, n = 0, rounds = SANITIZED ? 200 : 1000;
	struct burst b = { .left = 0 };
	struct exec_queue *q;
	struct fix f;

	watchdog(100);
	fix_init(&f, &o);
	f.run = count_one;
	f.user = &b;
	q = fix_queue(&f, "q", 2, true);
	b.t = fix_thread(&f);
	exec_start(f.x);
	for (i = 0; i < rounds; i++) {
		u32 burst = 1 + i * 7 % 300;

		store_relaxed(&b.left, -burst);
		for (k = 0; k < burst; k++)
			exec_push(q, b.t, n++ % 1000 + 1, 0, 0);
		if (i % 3)
			MUST(!exec_wait(f.x, b.t, all_counted, &b, -1, EXEC_HELP));
		else
			until(&b.left, 0);
	}
	fix_fini(&f);
}
END_TEST

START_TEST(test_rotation)
{
	struct fix f;
	struct exec_queue *q[3];
	struct exec_thread *t;
	u32 i, from[3] = { 0 };

	fix_init(&f, NULL);
	for (i = 0; i < 3; i++)
		q[i] = fix_queue(&f, "q", 0, i != 1);
	t = fix_thread(&f);
	for (i = 1; i <= 300; i++)
		exec_push(q[i % 3], t, i, i % 2 ? 0 : 4, 0);
	/* it stays with one for a while */
	for (i = 0; i < 100; i++)
		from[exec_take(f.x, t) % 3]++;
	ck_assert_uint_ge(from[0], 32);
	ck_assert_uint_eq(from[1], 0);
	ck_assert_uint_ge(from[2], 32);
	for (i = 0; i < 100; i++)
		MUST(exec_take(f.x, t));
	MUST(!exec_take(f.x, t));
	ck_assert(!queue_empty(q[1]));
	fix_fini(&f);
}
END_TEST

START_TEST(test_limits)
{
	struct exec_config cfg = { .max_threads = 70000, .max_work = 10 };
	struct exec_client cl = { 0 };
	struct exec *x;
	struct fix f;
	struct exec_thread t = { 0 };
	struct exec_queue *q;
	u32 i;

	ck_assert_int_eq(exec_create(&cfg, &cl, &x), -EINVAL);
	cfg.max_threads = 10;
	cfg.max_work = 1u << 22;
	ck_assert_int_eq(exec_create(&cfg, &cl, &x), -EINVAL);
	exec_destroy(NULL);
	fix_init(&f, NULL);
	ck_assert_int_eq(exec_thread_init(f.x, &t, FIX_THREADS), -EINVAL);
	for (i = 0; i < EXEC_MAX_QUEUES; i++)
		ck_assert_int_eq(exec_queue_add(f.x, "q", 0, false, &q), 0);
	ck_assert_int_eq(exec_queue_add(f.x, "q", 0, false, &q), -EINVAL);
	fix_fini(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("exec/queue");
	TCase *tc = tcase_create("queue");

	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, test_fifo);
	tcase_add_test(tc, test_priorities);
	tcase_add_test(tc, test_equals);
	tcase_add_test(tc, test_gated_worker);
	tcase_add_loop_test(tc, test_relay, 0, 2);
	tcase_add_test(tc, test_mixed);
	tcase_add_test(tc, test_handoff);
	tcase_add_test(tc, test_next);
	tcase_add_test(tc, test_hoards);
	tcase_add_loop_test(tc, test_bound_between_producers, 0, 4);
	tcase_add_test(tc, test_bound_of_a_hoard);
	tcase_add_test(tc, test_lanes_rest);
	tcase_add_loop_test(tc, test_no_memory, 0, 2);
	tcase_add_loop_test(tc, test_full_ring, 0, 2);
	tcase_add_test(tc, test_short_work_stays_with_its_maker);
	tcase_add_test(tc, test_work_of_a_slow_maker_is_taken);
	tcase_add_loop_test(tc, test_bursts_of_short_work_run, 0, 2);
	tcase_add_test(tc, test_rotation);
	tcase_add_test(tc, test_limits);
	suite_add_tcase(s, tc);	return suite_run(s);
}
