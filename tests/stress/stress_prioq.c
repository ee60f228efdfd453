// SPDX-License-Identifier: Apache-2.0
/*
 * Stress of the priority queue: stress_prioq [seed [seconds]].
 *
 * Rounds of random shape, until the time has passed: pushers, poppers, and threads that do
 * both, on two queues that share their nodes, so that a node moves from one queue to the other
 * while threads walk over it.  Checked: each entry is popped once, from its queue, with its
 * priority; each popper receives the entries of one pusher and one priority in order; after a
 * round, the rest is popped in the exact order; all nodes are returned, and no more than the
 * maximum were ever made.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <base/clock.h>
#include <base/random.h>
#include <exec/prioq.h>

#define THREADS	6u
#define EACH	8192u			/* entries of one pusher in a round, at most */
#define WORKS	(THREADS * EACH + 1)
#define PRIOS	64u

#define must(cond) \
	do { \
		if (unlikely(!(cond))) \
			fail(__LINE__, #cond); \
	} while (0)

struct work {
	s64 prio;
	u64 order;
	u32 queue;
	u32 seen;			/* A: times it was popped */
};

static struct arena *arena;
static struct pool *pool;
static struct prioq *queue[2];
static struct work *work;
static pthread_barrier_t barrier;

static struct {
	u64 seed;
	u32 threads, pushers, each, prios, queues;
	bool pop_too;			/* pushers pop as well */
	u32 pushing;			/* A: pushers that are not ready */
} rd;

static u64 seed0, nrounds;
static double seconds = 2;
static u64 ops;				/* A */
static u64 stamp;			/* A: next order number */

static void fail(int line, const char *what)
{
	fprintf(stderr, "stress_prioq: line %d: %s in round %llu\n"
		"replay: tests/stress/stress_prioq %llu %g\n", line, what,
		(unsigned long long)nrounds, (unsigned long long)seed0, seconds);
	abort();
}

static void no_end(int sig)
{
	fail(__LINE__, sig == SIGALRM ? "no end" : "terminated");
}

/* Pop once; last: the last entry of each pusher and priority that this thread popped. */
static u32 pop(u32 qi, struct prioq_cache *c, u32 *last)
{
	struct work *e;
	s64 prio;
	u32 w = prioq_pop(queue[qi], c, &prio), *l;

	if (!w)
		return 0;
	must(w < WORKS);
	e = &work[w];
	must(e->queue == qi && e->prio == prio);
	must(fetch_add_relaxed(&e->seen, 1) == 0);
	l = &last[(w - 1) / EACH * PRIOS + (u64)prio % PRIOS];
	must(w > *l);
	*l = w;
	return w;
}

static void *thread(void *arg)
{
	u32 id = (u32)(uintptr_t)arg, n = 0, i;
	struct prioq_cache c = { .seed = rd.seed + id };
	u64 seed = rd.seed * THREADS + id, r, order, done = 0;
	u32 *last = calloc(THREADS * PRIOS, sizeof(*last));
	s64 prio;

	pthread_barrier_wait(&barrier);
	if (id < rd.pushers) {
		for (i = 0; i < rd.each; i++) {
			u32 w = id * EACH + i + 1;
			struct work *e = &work[w];

			r = random_next(&seed);
			e->prio = (s64)(r % rd.prios);
			/* The same priority is always in the same queue: order by pusher. */
			e->queue = (u32)(r % rd.prios % rd.queues);
			e->order = fetch_add_relaxed(&stamp, 1);
			must(prioq_push(queue[e->queue], &c, e->prio, e->order, w));
			done++;
			if (r >> 60 == 0)
				sched_yield();
			if (rd.pop_too && r >> 40 & 1)
				done += pop((u32)(r >> 41 & 1) % rd.queues, &c, last) != 0;
		}
		fetch_add_acq_rel(&rd.pushing, -1u);
	} else {
		while (n < 2) {
			r = random_next(&seed);
			/* Ready: both queues were seen empty, after the last push. */
			n = load_acquire(&rd.pushing) ? 0 : n + 1;
			for (u32 q = 0; q < rd.queues; q++) {
				if (r & 1 && prioq_peek(queue[q], &prio, &order))
					must(prio >= 0 && prio < rd.prios);
				if (pop(q, &c, last)) {
					done++;
					n = 0;
				}
			}
			if (r >> 56 == 0)
				sched_yield();
		}
	}
	fetch_add_relaxed(&ops, done);
	pool_cache_flush(pool, &c.nodes);
	free(last);
	return NULL;
}

/* No other thread is active: the rest is popped in order. */
static void drain(struct prioq_cache *c)
{
	struct work *e, *prev;
	s64 prio, peek;
	u64 order;
	u32 w;

	for (u32 q = 0; q < 2; q++) {
		prev = NULL;
		while (prioq_peek(queue[q], &peek, &order)) {
			w = prioq_pop(queue[q], c, &prio);
			must(w && w < WORKS);
			e = &work[w];
			must(e->prio == prio && prio == peek && e->order == order &&
			     e->queue == q);
			must(fetch_add_relaxed(&e->seen, 1) == 0);
			must(!prev || prev->prio > e->prio ||
			     (prev->prio == e->prio && prev->order <= e->order));
			prev = e;
			ops++;
		}
		must(!prioq_pop(queue[q], c, &prio));
	}
}

static void one_round(u64 *seed, struct prioq_cache *c)
{
	static const u32 prios[] = { 1, 2, 5, PRIOS };
	pthread_t t[THREADS];
	u32 i, j;

	rd.seed = random_next(seed);
	rd.threads = 2 + (u32)(random_next(seed) % (THREADS - 1));
	rd.pushers = 1 + (u32)(random_next(seed) % rd.threads);
	rd.each = 1 + (u32)(random_next(seed) % (random_next(seed) % 2 ? EACH : 500));
	rd.prios = prios[random_next(seed) % ARRAY_SIZE(prios)];
	rd.queues = 1 + (u32)(random_next(seed) % 2);
	rd.pop_too = random_next(seed) % 2;
	rd.pushing = rd.pushers;
	memset(work, 0, WORKS * sizeof(*work));
	must(!pthread_barrier_init(&barrier, NULL, rd.threads));
	for (i = 0; i < rd.threads; i++)
		must(!pthread_create(&t[i], NULL, thread, (void *)(uintptr_t)i));
	for (i = 0; i < rd.threads; i++)
		must(!pthread_join(t[i], NULL));
	pthread_barrier_destroy(&barrier);
	drain(c);
	for (i = 0; i < rd.pushers; i++)
		for (j = 1; j <= rd.each; j++)
			must(work[i * EACH + j].seen == 1);
	pool_cache_flush(pool, &c->nodes);
	must(pool_depot_count(pool) == pool_carved(pool));
	nrounds++;
}

int main(int argc, char **argv)
{
	struct prioq_cache c = { .seed = 0 };
	u64 seed, end;

	seed0 = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	seed = seed0;
	if (argc > 2)
		seconds = atof(argv[2]);
	end = clock_ns() + (u64)(seconds * 1e9);
	signal(SIGALRM, no_end);
	signal(SIGTERM, no_end);
	alarm((unsigned int)seconds + 300);
	work = calloc(WORKS, sizeof(*work));
	must(work && !arena_create("stress", &arena));
	must(!prioq_pool_add(arena, WORKS, THREADS + 1, POOL_MAG, &pool));
	must(!arena_ready(arena, false));
	must(!prioq_create(pool, &queue[0]) && !prioq_create(pool, &queue[1]));
	do
		one_round(&seed, &c);
	while (clock_ns() < end);
	printf("stress_prioq seed=%llu seconds=%g rounds=%llu ops=%llu nodes=%u PASS\n",
	       (unsigned long long)seed0, seconds, (unsigned long long)nrounds,
	       (unsigned long long)ops, pool_carved(pool));
	prioq_destroy(queue[0]);
	prioq_destroy(queue[1]);
	arena_destroy(arena);
	free(work);
	return 0;
}
