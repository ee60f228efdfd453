/* SPDX-License-Identifier: Apache-2.0 */
/* exec/queue.c: exact order, priorities, hand-off, batches, memory that is refused. */
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
 * Equals that one thread pushes as fast as it can run in the order of their pushes, also on a
 * machine whose clock is slower than that.  Many rounds: nodes that come back lie in any order.
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
 * Producers that push in turn, each after the other's push ended; one consumer.  Where
 * other programs want the CPUs, a turn may take a time slice of each of them: the one
 * whose turn it is ends the game when its time is over.
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

/* Wait until it is turn n.  False: the game is over. */
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

/* Have all turns been made, and how many? */
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
	u32 i, want = 1, turns, n = _i + 2;

	watchdog(60);
	fix_init(&f, NULL);
	relay_start(fix_queue(&f, "q", 0, true), n, TURNS);
	t = fix_thread(&f);
	/* short works: the consumer takes batches, and the order is exact nevertheless */
	t->batch = EXEC_BATCH_MAX;
	for (i = 0; i < n; i++) {
		r[i].t = fix_thread(&f);
		r[i].i = i;
		MUST(!pthread_create(&p[i], NULL, relay_main, &r[i]));
	}
	while (!relay_over(&turns) || want <= turns) {
		u32 w = exec_take(f.x, t);

		if (!w) {
			sched_yield();
			continue;
		}
		MUST(w == want);
		want++;
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
		/* first the high one: whoever sees the low one must take the high one before */
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
		/* 3n+1 before 3n+2 before 3n+3; and all higher ones of earlier turns */
		MUST(w % 3 == 1 || seen[w - 1]);
		MUST(w % 3 != 2 || w < 4 || seen[w - 3]);
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
	ck_assert(exec_handoff(other, w, 3, 0));
	ck_assert_uint_eq(exec_take(f.x, w), 0);
	/* 2 is in q: equals go after it, the higher may go */
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
	/* what another thread took in a batch is still queued */
	u->batch = 8;
	exec_push(q, t, 19, 0, 0);
	exec_push(q, t, 20, 0, 0);
	exec_push(q, t, 21, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, u), 19);
	t->budget = EXEC_UNLIMITED;
	ck_assert_uint_eq(exec_take(f.x, t), 21);
	ck_assert(!exec_handoff(q, t, 22, 0));
	ck_assert_uint_eq(exec_take(f.x, u), 20);
	ck_assert_uint_eq(exec_take(f.x, u), 22);
	ck_assert_uint_eq(exec_take(f.x, u), 0);
	w->queue = NULL;
	fix_fini(&f);
}
END_TEST

/* A hoard is stolen from last, before LOW; a thread that left is inherited. */
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
	ck_assert(!queue_take(q, c, false) || true);
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

/* With two priorities queued by a batch's limit: other rings are not overtaken. */
START_TEST(test_batch_limit)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *a, *b, *c;
	u32 i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	a = fix_thread(&f);
	b = fix_thread(&f);
	c = fix_thread(&f);
	c->batch = EXEC_BATCH_MAX;
	exec_push(q, a, 1000, 0, 0);
	exec_push(q, b, 1001, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, c), 1000);
	ck_assert_uint_eq(exec_take(f.x, c), 1001);
	for (i = 1; i <= 600; i++) {
		struct timespec ts = { 0, 0 };
		u64 end = cycles() + 200;

		exec_push(q, (i / 5) % 2 ? a : b, i, 0, 0);
		while (cycles() < end)
			;
		(void)ts;
	}
	for (i = 1; i <= 600; i++)
		MUST(exec_take(f.x, c) == i);
	fix_fini(&f);
}
END_TEST

/* Rings cannot grow, nodes cannot be made: nothing is lost. */
START_TEST(test_no_memory)
{
	enum { N = 20000 };
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *t, *u;
	u8 *seen = calloc(N + 1, 1);
	u32 i, w, got = 0, last = 0;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	u = fix_thread(&f);
	exec_push(q, t, N, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), N);
	if (_i) {
		/* nodes there are, so that the order holds */
		for (i = 1; i < 1000; i++)
			exec_push(q, t, i, -1, 0);
		for (i = 1; i < 1000; i++)
			ck_assert_uint_eq(exec_take(f.x, t), i);
	}
	store_relaxed(&refuse_memory, 1);
	for (i = 1; i <= (_i ? 500 : N); i++)
		exec_push(q, i % 10 ? t : u, i, _i || i % 10 ? 0 : (s32)i % 3 - 1, 0);
	while ((w = exec_take(f.x, t))) {
		MUST(!seen[w]);
		seen[w] = 1;
		got++;
		if (_i)
			MUST(w == ++last);
	}
	ck_assert_uint_eq(got, _i ? 500 : N);
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

/* Does the ring of t have the turn? */
static bool has_turn(const struct exec_queue *q, const struct exec_thread *t)
{
	return (q->turn & 0x1ffff) == (u64)(t->slot + 1) << 1;
}

static void pass_ns(u64 ns)
{
	u64 end = exec_now_ns() + ns;

	while (exec_now_ns() < end)
		;
}

/*
 * Stamps: a ring keeps its turn while no other is pushed to, long turns stay turns, and
 * short ones bring the clock; the order is exact before, at and after the change.
 */
START_TEST(test_turns)
{
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *a, *b, *c;
	u32 i, pushed = 0, taken = 0;
	u64 turn, seed = 3;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	a = fix_thread(&f);
	b = fix_thread(&f);
	c = fix_thread(&f);
	c->batch = EXEC_BATCH_MAX;
	exec_push(q, a, ++pushed, 0, 0);
	turn = q->turn;
	for (i = 0; i < 1000; i++)
		exec_push(q, a, ++pushed, 0, 0);
	ck_assert(has_turn(q, a));
	ck_assert_uint_eq(q->turn, turn);
	/* priorities have no part in it */
	exec_push(q, b, 20000, 1, 0);
	ck_assert_uint_eq(q->turn, turn);
	ck_assert_uint_eq(exec_take(f.x, c), 20000);
	/* how fast this machine is must not matter: no turn is short, then all are */
	f.x->turn_short = 0;
	for (i = 0; i < 100; i++) {
		struct exec_thread *t = i & 1 ? a : b;

		exec_push(q, t, ++pushed, 0, 0);
		ck_assert(has_turn(q, t));
		exec_push(q, t, ++pushed, 0, 0);
		if (i > 50)
			MUST(exec_take(f.x, c) == ++taken);
	}
	f.x->turn_short = INT64_MAX;
	for (i = 0; i < TURN_FAST; i++) {
		MUST(!(q->turn & 1));
		exec_push(q, i & 1 ? a : b, ++pushed, 0, 0);
	}
	MUST(q->turn & 1);
	turn = q->turn;
	for (i = 0; i < 300; i++) {
		exec_push(q, random_next(&seed) & 1 ? a : b, ++pushed, 0, 0);
		pass_ns(100);	/* longer than the unit of stamps */
	}
	ck_assert_uint_eq(q->turn, turn);
	while (taken < pushed)
		MUST(exec_take(f.x, c) == ++taken);
	ck_assert_uint_eq(exec_take(f.x, c), 0);
	fix_fini(&f);
}
END_TEST

/*
 * A full ring that cannot grow: what is pushed goes elsewhere, and comes in its turn, also
 * where who takes it takes several at once.
 */
START_TEST(test_full_ring)
{
	enum { ROUNDS = 20000, WORKS = 10000 };
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *a, *b, *c;
	u32 i, pushed = 0, taken = 0, outside = 0;
	u64 seed = 11;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	a = fix_thread(&f);
	b = fix_thread(&f);
	c = fix_thread(&f);
	c->batch = EXEC_BATCH_MAX;
	/* rings, and nodes for what finds no place in them */
	exec_push(q, a, 1, 0, 0);
	exec_push(q, b, 2, 0, 0);
	MUST(exec_take(f.x, c) == 1 && exec_take(f.x, c) == 2);
	for (i = 1; i <= 1000; i++)
		exec_push(q, i & 1 ? a : b, i, -1, 0);
	for (i = 1; i <= 1000; i++)
		MUST(exec_take(f.x, i & 1 ? a : b));
	store_relaxed(&refuse_memory, 1);
	for (i = 0; i < ROUNDS; i++) {
		u64 r = random_next(&seed);
		u32 n = r >> 8 & 63;

		/* by turns more is pushed than taken, and less */
		if ((r & 7) < (i / 100 % 2 ? 3 : 5)) {
			while (n-- && pushed - taken < 900)
				exec_push(q, r & 128 ? a : b, pushed++ % WORKS + 1, 0, 0);
		} else {
			while (n-- && taken < pushed)
				MUST(exec_take(f.x, c) == taken++ % WORKS + 1);
		}
		outside += q->n[PQ_ZERO] != 0;
		MUST(!q->late || !(u32)q->late);
	}
	ck_assert_uint_gt(outside, ROUNDS / 20);
	while (taken < pushed)
		MUST(exec_take(f.x, c) == taken++ % WORKS + 1);
	ck_assert(queue_empty(q));
	store_relaxed(&refuse_memory, 0);
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
	for (i = 0; i < 100; i++)
		from[exec_take(f.x, t) % 3]++;
	ck_assert_uint_eq(from[0], 50);
	ck_assert_uint_eq(from[1], 0);
	ck_assert_uint_eq(from[2], 50);
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
	tcase_add_test(tc, test_hoards);
	tcase_add_test(tc, test_batch_limit);
	tcase_add_loop_test(tc, test_no_memory, 0, 2);
	tcase_add_test(tc, test_turns);
	tcase_add_test(tc, test_full_ring);
	tcase_add_test(tc, test_rotation);
	tcase_add_test(tc, test_limits);
	suite_add_tcase(s, tc);	return suite_run(s);
}
