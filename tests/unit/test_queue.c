/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec/queue.c: the order of a producer, priorities, several queues, refused memory.
 */
#include "exec_fixture.h"
#include <base/random.h>
#include "suite.h"

static u32 refuse_memory;	/* A */
static const char *refuse_what;	/* NULL: any */

int pool_commit_hook(const char *what, size_t bytes)
{
	return load_relaxed(&refuse_memory) && (!refuse_what || !strcmp(what, refuse_what)) ?
	       -ENOMEM : 0;
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
	struct exec_queue_stats st;
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
	exec_queue_stats(q, &st);
	ck_assert_uint_eq(st.pushed, 10000);
	ck_assert_uint_eq(st.depth, 10000);
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
	u32 i, form;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	/* one by one, several at once, and both in turn */
	for (form = 0; form < 3; form++) {
		for (i = 0; i < ARRAY_SIZE(in); i++)
			if (form == 1 || form + i % 2 == 3)
				exec_push_more(q, t, i + 1, in[i].prio, in[i].flags);
			else
				exec_push(q, t, i + 1, in[i].prio, in[i].flags);
		exec_pushed(q, t);
		for (i = 0; i < ARRAY_SIZE(want); i++)
			MUST(exec_take(f.x, t) == want[i]);
		ck_assert(!exec_take(f.x, t));
		ck_assert(queue_empty(q));
	}
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
#define TURNS	(BRIEF ? 10000u : 60000u)
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

/* A thread that has reserved its rings pushes to each queue without memory, in order. */
START_TEST(test_reserved_rings_need_no_memory)
{
	enum { N = 1000 };
	struct exec_queue *q[3];
	struct exec_thread *t;
	struct fix f;
	u32 i, k;

	fix_init(&f, NULL);
	for (k = 0; k < 3; k++)
		q[k] = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	fix_reserve(&f, 3 * N);
	store_relaxed(&refuse_memory, 1);
	ck_assert_int_eq(exec_thread_reserve(f.x, t, N), -ENOMEM);
	store_relaxed(&refuse_memory, 0);
	ck_assert_int_eq(exec_thread_reserve(f.x, t, N), 0);
	store_relaxed(&refuse_memory, 1);
	/* What is there suffices, and no more is to be had. */
	ck_assert_int_eq(exec_thread_reserve(f.x, t, N), 0);
	ck_assert_int_eq(exec_thread_reserve(f.x, t, 4 * N), -ENOMEM);
	for (k = 0; k < 3; k++) {
		for (i = 1; i <= N; i++)
			exec_push(q[k], t, i, 0, 0);
		ck_assert_uint_eq(q[k]->n[PQ_ZERO], 0);
		for (i = 1; i <= N; i++)
			MUST(exec_take(f.x, t) == i);
	}
	store_relaxed(&refuse_memory, 0);
	fix_fini(&f);
}
END_TEST

/*
 * A full ring that cannot grow: further work is queued elsewhere, and taken in its turn, also
 * if the consumer takes several at once, or always has its own work.
 */
START_TEST(test_full_ring)
{
	enum { ROUNDS = SANITIZED ? 2500 : 20000, WORKS = 100000 };
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
	takes_are_turns(&f);
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

/* What found its thread's ring full is taken after the ring, whichever slot the thread has. */
START_TEST(test_work_beyond_a_full_ring_is_taken_after_the_ring)
{
	enum { OTHER = 998, OWN, N = 300 };
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *p, *c;
	u32 next = 1, w, i;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	for (i = 0; i < (u32)_i; i++)
		fix_thread(&f);
	p = fix_thread(&f);
	c = fix_thread(&f);
	fix_reserve(&f, OWN);
	takes_are_turns(&f);
	exec_push(q, p, 1, 0, 0);
	MUST(exec_take(f.x, c) == 1);
	exec_push(q, c, OWN, 0, 0);
	store_relaxed(&refuse_memory, 1);
	for (i = 1; i <= N; i++)
		exec_push(q, p, i, 0, 0);
	ck_assert_uint_gt(q->n[PQ_ZERO], 0);
	/* Another thread's new work does not go before it. */
	ck_assert(!exec_handoff(q, fix_thread(&f), OTHER, 0));
	while (next <= N) {
		w = exec_take(f.x, c);
		if (w == OWN)
			exec_push(q, c, OWN, 0, 0);
		else if (w != OTHER)
			MUST(w == next++);
	}
	store_relaxed(&refuse_memory, 0);
	fix_fini(&f);
}
END_TEST

/*
 * The lanes of all slots are found by all others: those at the ends of a word of the bitmap and
 * of its words, and those before the first slot that the taker looks at.
 */
START_TEST(test_work_of_each_slot_is_found_from_each_slot)
{
	static const u32 slots[] = { 0, 1, 62, 63, 64, 65, 79, 80 };
	enum { N = ARRAY_SIZE(slots) };
	struct exec_thread *t[FIX_THREADS], *a, *b, *c;
	struct exec_queue_stats st;
	struct exec_queue *q;
	u32 i, k, n, w, sum;
	struct fix f;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	for (i = 0; i < FIX_THREADS; i++)
		t[i] = fix_thread(&f);
	for (i = 0; i < N * N; i++) {
		a = t[slots[i / N]];
		b = t[slots[i % N]];
		c = t[slots[(i + 1) % N]];
		/* No other lane is marked, and no queue is where b looks first. */
		for (k = 0; k < FIX_THREADS; k++)
			lanes_unmark_empty(f.x, t[k]);
		b->from_q = NULL;
		exec_push(q, a, 1, 0, 0);
		ck_assert(thread_may_take(f.x, b, 0) && !queue_empty(q));
		ck_assert_uint_eq(exec_take(f.x, b), 1);
		/* Each of them makes some, and one takes all. */
		for (k = 0; k < N; k++)
			exec_push(q, t[slots[k]], 1u << k, 0, 0);
		for (k = sum = 0; k < N; k++)
			sum += exec_take(f.x, b);
		ck_assert_uint_eq(sum, (1u << N) - 1);
		ck_assert(queue_empty(q) && !exec_take(f.x, b));
		/* What another one has taken and not begun. */
		b->batch = 4;
		for (k = 1; k <= 8; k++)
			exec_push(q, a, k, 0, 0);
		for (k = sum = 0; k < 8; k++) {
			w = exec_take(f.x, k ? c : b);
			MUST(w);
			sum += w;
		}
		b->batch = 1;
		ck_assert_uint_eq(sum, 36);
		ck_assert(queue_empty(q) && !thread_may_take(f.x, c, LOOK_DEEP));
		exec_queue_stats(q, &st);
		ck_assert_uint_eq(st.depth, 0);
		/* The mark of a lane is of its slot alone. */
		n = a->slot;
		ck_assert(q->map[n / 64] >> n % 64 & 1);
		lanes_unmark_empty(f.x, a);
		ck_assert(!(q->map[n / 64] >> n % 64 & 1));
		n = a == b ? c->slot : b->slot;
		if (t[n] != a)
			ck_assert(q->map[n / 64] >> n % 64 & 1);
	}
	for (i = 0; i < FIX_THREADS; i++)
		fix_leave(&f, t[i]);
	ck_assert(!q->map[0] && !q->map[1]);
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
		q[i] = fix_queue(&f, "q", i == 1, i != 1);
	t = fix_thread(&f);
	for (i = 1; i <= 300; i++)
		exec_push(q[i % 3], t, i, i % 2 ? 0 : 4, 0);
	takes_are_turns(&f);
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
	static const struct { u32 threads, work; const char *says; } of[] = {
		{ 0, 10, "max_threads 0" }, { 65536, 10, "max_threads 65536" },
		{ 10, (1u << 21) + 1, "max_work 2097153" }, { 65535, 1u << 21, NULL },
	};
	struct exec_config cfg = { 0 };
	struct exec_client cl = { 0 };
	struct pool_desc d = { .name = "work", .size = 16, .max = 10 };
	struct arena *a;
	struct exec *x;
	struct fix f;
	struct exec_thread t = { 0 };
	struct exec_queue *q;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(of); i++) {
		cfg.max_threads = of[i].threads;
		cfg.max_work = of[i].work;
		ck_assert_int_eq(arena_create("limits", &a), 0);
		ck_assert_int_eq(arena_add(a, &d, &cfg.works), 0);
		cfg.arena = a;
		ck_assert_int_eq(exec_create(&cfg, &cl, &x), of[i].says ? -EINVAL : 0);
		if (of[i].says)
			ck_assert_ptr_nonnull(strstr(err_text(), of[i].says));
		else
			exec_destroy(x);
		arena_destroy(a);
	}
	exec_destroy(NULL);
	fix_init(&f, NULL);
	ck_assert_int_eq(exec_thread_init(f.x, &t, FIX_THREADS), -EINVAL);
	for (i = 0; i < EXEC_MAX_QUEUES; i++)
		ck_assert_int_eq(exec_queue_add(f.x, "q", 0, false, &q), 0);
	ck_assert_int_eq(exec_queue_add(f.x, "q", 0, false, &q), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err_text(), "256 queues"));
	ck_assert_ptr_nonnull(exec_queue_at(f.x, EXEC_MAX_QUEUES - 1));
	ck_assert_ptr_null(exec_queue_at(f.x, EXEC_MAX_QUEUES));
	fix_fini(&f);
}
END_TEST

/* Whatever threads keep for their next pushes, each piece of work can be pushed. */
START_TEST(test_a_push_needs_no_memory_whatever_threads_keep)
{
	enum { WORKS = 4096 };
	struct fix_opt o = { .max_work = WORKS };
	struct exec_thread *t[FIX_THREADS];
	struct exec_queue *q;
	struct fix f;
	u32 i, k;

	watchdog(60);
	fix_init(&f, &o);
	q = fix_queue(&f, "q", 0, true);
	for (i = 0; i < FIX_THREADS; i++)
		t[i] = fix_thread(&f);
	fix_reserve(&f, WORKS);
	store_relaxed(&refuse_memory, 1);
	/* Each keeps what it has freed, of what the first one has allocated. */
	for (i = 1; i < FIX_THREADS; i++) {
		for (k = 1; k <= 3 * POOL_MAG; k++)
			exec_push(q, t[0], k, 1, 0);
		for (k = 1; k <= 3 * POOL_MAG; k++)
			MUST(exec_take(f.x, t[i]) == k);
	}
	for (k = 1; k <= WORKS; k++)
		exec_push(q, t[0], k, 1, 0);
	for (k = 1; k <= WORKS; k++)
		MUST(exec_take(f.x, t[k % FIX_THREADS]) == k);
	/* A thread that leaves keeps nothing. */
	for (i = 0; i < FIX_THREADS; i++)
		fix_leave(&f, t[i]);
	ck_assert_uint_eq(pool_depot_count(f.x->nodes), pool_carved(f.x->nodes));
	store_relaxed(&refuse_memory, 0);
	fix_fini(&f);
}
END_TEST

/* A thread with work of its own in one queue takes that of another queue, too. */
START_TEST(test_own_work_leaves_other_queues_their_turn)
{
	struct exec_queue *q[3];
	struct exec_thread *t, *u;
	struct fix f;
	u32 i, k, w;

	fix_init(&f, NULL);
	for (i = 0; i < 3; i++)
		q[i] = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	u = fix_thread(&f);
	takes_are_turns(&f);
	for (k = 0; k < 3; k++) {
		for (i = 0; i < 3; i++)
			if (i != k)
				exec_push(q[i], u, 1 + i, 0, 0);
		for (i = w = 0; w < 2; i++) {
			MUST(i < 200);
			exec_push(q[k], t, 10, 0, 0);
			w += exec_take(f.x, t) < 10;
		}
		while (exec_take(f.x, t))
			;
		for (i = 0; i < 3; i++)
			ck_assert(queue_empty(q[i]));
	}
	fix_fini(&f);
}
END_TEST

/* A lane whose ring has no memory is not made, and leaves nothing behind. */
START_TEST(test_a_lane_without_a_ring_is_freed)
{
	struct exec_thread *t;
	size_t before;
	struct fix f;
	u32 i;

	fix_init(&f, NULL);
	fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	refuse_what = "ring";
	store_relaxed(&refuse_memory, 1);
	/* The allocator keeps some memory itself, but not each time. */
	for (i = 0; ; i++) {
		MUST(i < 20);
		before = heap_used();
		ck_assert_int_eq(exec_thread_reserve(f.x, t, 1), -ENOMEM);
		if (heap_used() == before)
			break;
	}
	store_relaxed(&refuse_memory, 0);
	refuse_what = NULL;
	ck_assert_int_eq(exec_thread_reserve(f.x, t, 1), 0);
	fix_fini(&f);
}
END_TEST

/* An executor frees all of its memory. */
START_TEST(test_memory_of_an_executor_goes_back)
{
	static const int cpus[64] = { 0 };
	struct fix_opt o = { .cpus = cpus, .ncpus = ARRAY_SIZE(cpus), .max_work = 1000 };
	struct exec_queue *q;
	struct exec_thread *t;
	size_t before;
	u32 i, k, n;

	for (i = 0; ; i++) {
		struct fix f;

		MUST(i < 20);
		before = heap_used();
		fix_init(&f, &o);
		for (n = 0; n < 3; n++) {
			q = fix_queue(&f, "q", n, true);
			t = fix_thread(&f);
			/* small arrays, which are on the heap, and a larger one */
			for (k = 1; k < 300; k++)
				exec_push(q, t, k, 0, 0);
			exec_push(q, t, k, 1, 0);
		}
		fix_fini(&f);
		if (heap_used() == before)
			break;
	}
}
END_TEST

static u64 measured(struct exec_queue *q)
{
	struct exec_queue_stats st;
	u64 n = 0;
	u32 i;

	exec_queue_stats(q, &st);
	for (i = 0; i < ARRAY_SIZE(st.wait); i++)
		n += st.wait[i];
	return n;
}

/* The number of bits of the time; the last one is for all that is longer. */
START_TEST(test_buckets_of_waits)
{
	u32 k, at;

	ck_assert_uint_eq(wait_bucket(0), 0);
	for (k = 1; k <= 64; k++) {
		at = k < WAIT_BUCKETS ? k : 39;
		ck_assert_uint_eq(wait_bucket(1ull << (k - 1)), at);
		ck_assert_uint_eq(wait_bucket(UINT64_MAX >> (64 - k)), at);
	}
}
END_TEST

/* The first and then one in 128 is measured, and counts for all since the last one. */
START_TEST(test_waits_are_measured_whatever_the_priority)
{
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u32 i, k, n;
	s64 prio;
	u64 start, ns;
	struct exec_queue_stats st;

	for (prio = -1; prio <= 1; prio++) {
		fix_init(&f, NULL);
		q = fix_queue(&f, "q", 0, true);
		t = fix_thread(&f);
		for (i = 0; i < 300; i++) {
			exec_push(q, t, 1, prio, 0);
			ck_assert_uint_eq(exec_take(f.x, t), 1);
			ck_assert_uint_eq(measured(q), i / 128 * 128 + 1);
		}
		/*
		 * One of many that are queued is measured.  It counts for those since the last
		 * one, and where work has a priority also for those that are behind it.
		 */
		n = prio ? 434 - 257 : 128;
		exec_queue_stats(q, &st);
		ns = st.wait_ns;
		start = exec_now_ns();
		for (i = 300; i < 384 + 50; i++)
			exec_push(q, t, i, prio, 0);
		nanosleep(&(struct timespec){ .tv_nsec = 1100000 }, NULL);
		for (i = 300; i < 384 + 50; i++) {
			ck_assert_uint_eq(measured(q), i <= 384 ? 257 : 257 + n);
			ck_assert_uint_eq(exec_take(f.x, t), i);
		}
		start = exec_now_ns() - start;
		exec_queue_stats(q, &st);
		ck_assert_uint_ge(st.wait_ns - ns, n * 1050000ull);
		ck_assert_uint_le((st.wait_ns - ns) / n, start / 20 * 21 + 1000);
		/* 2^20 ns are a little more than a millisecond, which is in bucket 20 or 21. */
		for (k = 20, ns = 0; k < ARRAY_SIZE(st.wait); k++)
			ns += st.wait[k];
		ck_assert_uint_ge(ns, n);
		fix_fini(&f);
	}
}
END_TEST

/* A trim frees the memory that the rings of each queue have for a long backlog. */
static void rings_grow(struct fix *f, struct exec_queue **q, struct exec_thread *t)
{
	u32 i, k;

	for (i = 0; i < 3; i++) {
		for (k = 1; k <= 2000; k++)
			exec_push(q[i], t, k, 0, 0);
		ck_assert_uint_gt(q[i]->lanes[t->slot]->ring.mask, 1000);
	}
	for (k = 1; k <= 6000; k++)
		MUST(exec_take(f->x, t));
}

/* The memory of lanes is that of their rings, as large as they are now, and of the rest. */
static void check_bytes(struct fix *f, struct exec_queue **q, u32 lanes)
{
	struct exec_stats st;
	u64 bytes = 0;
	u32 i, k, n = 0;

	for (i = 0; i < 3; i++)
		for (k = 0; k < FIX_THREADS; k++) {
			struct exec_lane *l = q[i]->lanes[k];

			bytes += l ? sizeof(*l) + 4 * (l->ring.mask + 1) : 0;
			n += l != NULL;
		}
	ck_assert_uint_eq(n, lanes);
	exec_stats(f->x, &st);
	ck_assert_uint_eq(st.bytes, bytes);
}

static void rings_small(struct exec_queue **q, u32 slot)
{
	u32 i;

	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(q[i]->lanes[slot]->ring.log2, RING_FIRST);
}

START_TEST(test_trim_gives_back_the_rings_of_all_queues)
{
	struct exec_queue *q[3];
	struct exec_thread *t, *u;
	struct fix f;
	u32 i, k;

	fix_init(&f, NULL);
	for (i = 0; i < 3; i++)
		q[i] = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	u = fix_thread(&f);
	check_bytes(&f, q, 0);
	rings_grow(&f, q, t);
	check_bytes(&f, q, 3);
	rings_grow(&f, q, u);
	check_bytes(&f, q, 6);
	exec_trim(f.x, t);
	check_bytes(&f, q, 6);
	rings_small(q, t->slot);
	/* Another thread does the same when it pushes to a queue that is not its last one. */
	exec_push(q[0], u, 1, 0, 0);
	rings_small(q, u->slot);
	ck_assert_uint_eq(exec_take(f.x, u), 1);
	/* A ring that is not empty keeps its memory until it is; the others do not. */
	for (i = 0; i < 3; i++) {
		rings_grow(&f, q, u);
		exec_push(q[i], u, 7, 0, 0);
		exec_trim(f.x, u);
		for (k = 0; k < 3; k++)
			ck_assert((q[k]->lanes[u->slot]->ring.log2 == RING_FIRST) == (k != i));
		ck_assert_uint_eq(exec_take(f.x, u), 7);
		exec_push(q[(i + 1) % 3], u, 8, 0, 0);
		rings_small(q, u->slot);
		ck_assert_uint_eq(exec_take(f.x, u), 8);
	}
	/* A thread that leaves needs none. */
	rings_grow(&f, q, u);
	fix_leave(&f, u);
	rings_small(q, u->slot);
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
	tcase_add_loop_test(tc, test_no_memory, 0, 2);
	tcase_add_test(tc, test_reserved_rings_need_no_memory);
	tcase_add_loop_test(tc, test_full_ring, 0, 2);
	tcase_add_loop_test(tc, test_work_beyond_a_full_ring_is_taken_after_the_ring, 0, 3);
	tcase_add_test(tc, test_work_of_each_slot_is_found_from_each_slot);
	tcase_add_test(tc, test_rotation);
	tcase_add_test(tc, test_limits);
	tcase_add_test(tc, test_own_work_leaves_other_queues_their_turn);
	tcase_add_test(tc, test_a_lane_without_a_ring_is_freed);
	tcase_add_test(tc, test_memory_of_an_executor_goes_back);
	tcase_add_test(tc, test_a_push_needs_no_memory_whatever_threads_keep);
	tcase_add_test(tc, test_waits_are_measured_whatever_the_priority);
	tcase_add_test(tc, test_buckets_of_waits);
	tcase_add_test(tc, test_trim_gives_back_the_rings_of_all_queues);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
