// SPDX-License-Identifier: Apache-2.0
/*
 * The priority queue makes progress while a thread is stopped.
 *
 * A push, pop or peek is stopped after each of its instructions in turn (by the trap flag); the
 * signal handler then makes the calls of the other threads on the same queue.  In another test
 * signals stop a thread under load.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>
#include "prioq_fixture.h"
#include "trap.h"

static void sched_point(void)
{
}

static struct {
	struct rig r;
	struct prioq_cache other;	/* the cache of the other threads */
	u32 count[64];			/* how often each of works 1 .. 15 is queued */
} st;

#if CAN_TRAP

/*
 * The calls of other threads while the victim is stopped: they find the queue empty and full,
 * pop everything, and reuse the nodes at once, at higher and lower priorities.
 */
static void others(void)
{
	struct ent e[64];
	s64 prio, last = INT64_MAX, first_prio;
	u64 order;
	u32 n = 0, i, w;

	for (i = 0; i < 2; i++) {
		if (prioq_peek(st.r.q, &first_prio, &order) !=
		    !!(w = prioq_pop(st.r.q, &st.other, &prio)))
			abort();
		if (w) {
			if (prio != first_prio)
				abort();
			e[n] = (struct ent){ prio, 100 + n, w };
			n++;
		}
	}
	for (i = 0; i < 6; i++)
		if (!prioq_push(st.r.q, &st.other, i % 3 * 10, i, 20 + i))
			abort();
	while ((w = prioq_pop(st.r.q, &st.other, &prio))) {
		if (prio > last || n == ARRAY_SIZE(e))
			abort();
		last = prio;
		if (w >= 20)
			continue;
		e[n] = (struct ent){ prio, 200 + n, w };
		n++;
	}
	if (prioq_peek(st.r.q, &prio, &order))
		abort();
	for (i = 0; i < n; i++)
		if (!prioq_push(st.r.q, &st.other, e[i].prio, e[i].order, e[i].work))
			abort();
}

static void refill(struct prioq_cache *c, u32 n)
{
	s64 prio;

	while (prioq_pop(st.r.q, c, &prio))
		;
	memset(st.count, 0, sizeof(st.count));
	for (u32 i = 1; i <= n; i++) {
		MUST(prioq_push(st.r.q, c, i % 4 * 10 + 5, i, i));
		st.count[i]++;
	}
}

/*
 * _i: height of what is pushed, 0: pop, 5: peek; for queues of 0, 1 and 8 entries.
 * A trap takes long, so it is one instruction in three, for each case another one;
 * PRIOQ_FULL: all.
 */
START_TEST(test_stopped)
{
	static const u32 fill[] = { 0, 1, 8 };
	struct prioq_cache c = { .seed = 1 };
	struct op push = { PUSH, 0, (u32)_i };
	u64 seed = _i && _i < 5 ? seed_for(&push, 1) : 1, order = 0;
	u32 w, total = 0;
	long k, step;
	s64 prio;

	st.r = rig_make(1000);
	st.other.seed = 99;
	trap_init(others);
	for (u32 f = 0; f < ARRAY_SIZE(fill); f++) {
		/* With a sanitizer there are many more instructions. */
		step = getenv("PRIOQ_FULL") ? 1 : SANITIZED ? 23 : _i % 5 == 0 && !BRIEF ? 1 : 3;
		for (k = ((long)f + _i) % step;; k += step) {
			refill(&c, fill[f]);
			c.seed = seed;
			w = 0;
			if (_i == 0)
				trap_after(k, w = prioq_pop(st.r.q, &c, &prio));
			else if (_i == 5)
				trap_after(k, prioq_peek(st.r.q, &prio, &order));
			else
				trap_after(k, prioq_push(st.r.q, &c, 15, 1000, 15));
			total += trap.stops;
			if (_i && _i < 5)
				st.count[15]++;
			if (w)
				st.count[w]--;
			/* Nothing was lost or popped twice, and the order is right. */
			check_structure(st.r.q);
			for (s64 last = INT64_MAX; (w = prioq_pop(st.r.q, &c, &prio));
			     last = prio) {
				MUST(prio <= last);
				MUST(w < 16);
				MUST(st.count[w] == 1);
				st.count[w]--;
			}
			for (w = 0; w < 16; w++)
				MUST(st.count[w] == 0);
			if (!trap.stops)
				break;
			if (SANITIZED && k > 100)
				step = 23 + k / 50;
		}
	}
	MUST(total > 20);
	if (getenv("PRIOQ_VERBOSE"))
		printf("stopped, kind %d: %u instructions\n", _i, total);
	pool_cache_flush(st.r.pool, &c.nodes);
	pool_cache_flush(st.r.pool, &st.other.nodes);
	MUST(pool_depot_count(st.r.pool) == pool_carved(st.r.pool));
	rig_break(&st.r);
}
END_TEST

#endif /* CAN_TRAP */

/* A thread under load is stopped by a signal at random instants; two others continue. */
static struct {
	u64 ops[3];		/* A */
	u32 parked, release, stop;	/* A */
} pk;

static void on_park(int sig)
{
	store_release(&pk.parked, 1);
	while (!load_acquire(&pk.release))
		usleep(20);	/* a yield would take the slices of all others */
	store_release(&pk.parked, 0);
}

static void *parkee(void *arg)
{
	u32 id = (u32)(uintptr_t)arg;
	struct prioq_cache c = { .seed = id };
	u64 seed = id;
	s64 prio;

	while (!load_relaxed(&pk.stop)) {
		prioq_push(st.r.q, &c, (s64)(random_next(&seed) % 3), cycles(), id + 1);
		prioq_push(st.r.q, &c, (s64)(random_next(&seed) % 3), cycles(), id + 1);
		prioq_pop(st.r.q, &c, &prio);
		prioq_pop(st.r.q, &c, &prio);
		fetch_add_relaxed(&pk.ops[id], 1);
		if (id)
			sched_yield();
	}
	pool_cache_flush(st.r.pool, &c.nodes);
	return NULL;
}

START_TEST(test_parked)
{
	struct sigaction sa = { .sa_handler = on_park };
	struct timespec nap = { 0, 0 };
	u64 seed = 5, from[3], end, limit;
	pthread_t t[3];
	u32 i, points = 0;
	s64 prio;

	st.r = rig_make(10000);
	sigaction(SIGUSR1, &sa, NULL);
	for (i = 0; i < 3; i++)
		MUST(pthread_create(&t[i], NULL, parkee, (void *)(uintptr_t)i) == 0);
	/*
	 * All of them are in their loop, where no lock is taken.  A thread that starts takes
	 * those of the C library and of the sanitizer: stopped there it stops the others.
	 */
	for (i = 0; i < 3; i++)
		while (!load_relaxed(&pk.ops[i]))
			sched_yield();
	end = clock_ns() + 400000000ull;
	while (clock_ns() < end || points < 10) {
		nap.tv_nsec = (long)(random_next(&seed) % 50000);
		nanosleep(&nap, NULL);
		store_release(&pk.release, 0);
		MUST(pthread_kill(t[0], SIGUSR1) == 0);
		while (!load_acquire(&pk.parked))
			usleep(20);
		for (i = 1; i < 3; i++)
			from[i] = load_relaxed(&pk.ops[i]);
		limit = clock_ns() + patience_ms(60000) * 1000000ull;
		for (i = 1; i < 3; i++)
			while (load_relaxed(&pk.ops[i]) < from[i] + 20) {
				ck_assert_msg(clock_ns() < limit, "stalled at point %u",
					      points);
				usleep(20);
			}
		points++;
		store_release(&pk.release, 1);
		while (load_acquire(&pk.parked))
			usleep(20);
	}
	store_release(&pk.stop, 1);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	for (struct prioq_cache c = { .seed = 1 };;) {
		if (prioq_pop(st.r.q, &c, &prio))
			continue;
		pool_cache_flush(st.r.pool, &c.nodes);
		break;
	}
	if (getenv("PRIOQ_VERBOSE"))
		printf("parked at %u points\n", points);
	MUST(pool_depot_count(st.r.pool) == pool_carved(st.r.pool));
	rig_break(&st.r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("prioq_stop");
	TCase *tc = tcase_create("progress");

	tcase_set_timeout(tc, 60);
#if CAN_TRAP
	tcase_add_loop_test(tc, test_stopped, 0, 6);
#endif
	tcase_add_test(tc, test_parked);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
