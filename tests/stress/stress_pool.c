/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools under load: stress_pool [-s seed] [-t seconds] [-n threads] [-m objects]
 *
 * Four rounds share the time:
 *   pipe    one half of the threads gets objects, the other half puts them;
 *   ring    each thread gets objects, and puts those that its neighbour got;
 *   churn   as ring, but the threads flush, leave and return all the time;
 *   trim    as churn, and one more thread trims all the time.
 * Each object carries its owner (relaxed) and a value (plain).  They show an object that is
 * handed out twice, lost, or handed out before its last user's stores are visible.  At the end
 * of a round, all objects that were carved are in the depot.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <pool/internal.h>

#define MAX_THREADS	16u
#define SLOTS		1024u

struct thing {
	u32 idx;
	u32 owner;		/* A */
	u64 value;
	u64 pad[6];
};

/* One producer, one consumer; a slot is 0 or an object. */
struct channel {
	u32 slot[SLOTS] __cacheline_aligned;	/* A */
};

struct worker {
	pthread_t thread;
	u32 nr, me;
	u64 seed;
	u32 wr, rd;		/* next slots of the channels out and in */
	u64 got, put, refused, left;
} __cacheline_aligned;

enum { PIPE, RING, CHURN, TRIM, ROUNDS };
static const char *const round_name[] = { "pipe", "ring", "churn", "trim" };

static struct pool *pool;
static struct channel chan[MAX_THREADS];	/* chan[i]: from i to the next */
static struct worker workers[MAX_THREADS];
static u32 nthreads = 4, round_nr, producers;
static u32 stop;		/* A */

static u64 now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (u64)t.tv_sec * 1000 + (u64)t.tv_nsec / 1000000;
}

static u32 rnd(u64 *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return (u32)(*s >> 32);
}

static void bad(const char *what, u32 idx, u32 owner)
{
	fprintf(stderr, "stress_pool: %s: object %u, owner %u\n", what, idx, owner);
	abort();
}

static void ctor(void *obj, u32 idx, u32 base, void *user)
{
	struct thing *t = obj;

	if (t->idx)
		bad("built twice", idx, t->owner);
	t->idx = idx;
	t->value = (u64)idx << 32;
}

static bool get_one(struct worker *w, struct pool_cache *c)
{
	u32 *slot = &chan[w->nr].slot[w->wr % SLOTS];
	struct thing *t;
	u32 idx, owner;

	if (load_relaxed(slot))
		return false;
	t = pool_get(pool, c, &idx);
	if (!t) {
		w->refused++;
		return false;
	}
	owner = load_relaxed(&t->owner);
	if (owner || t->idx != idx || t->value >> 32 != idx)
		bad("given out, not free", idx, owner);
	store_relaxed(&t->owner, w->me);
	t->value++;
	/* STRESS-A1 <-> STRESS-A2: the object goes to the next thread. */
	store_release(slot, idx);
	w->wr++;
	w->got++;
	return true;
}

static bool put_one(struct worker *w, struct pool_cache *c, u32 from)
{
	u32 *slot = &chan[from].slot[w->rd % SLOTS];
	/* STRESS-A2 <-> STRESS-A1 */
	u32 idx = load_acquire(slot);
	struct thing *t;

	if (!idx)
		return false;
	t = pool_obj(pool, idx);
	if (load_relaxed(&t->owner) != workers[from].me || t->value >> 32 != idx)
		bad("arrived, not the sender's", idx, load_relaxed(&t->owner));
	t->value += 2;
	store_relaxed(&t->owner, 0);
	store_relaxed(slot, 0);
	pool_put(pool, c, idx);
	w->rd++;
	w->put++;
	return true;
}

/* Make some steps.  Returns false if nothing could be done. */
static bool work(struct worker *w, struct pool_cache *c, u32 from, bool gets, bool puts)
{
	u32 n = 1 + rnd(&w->seed) % 200;
	bool any = false;

	while (gets && n-- && get_one(w, c))
		any = true;
	n = 1 + rnd(&w->seed) % 200;
	while (puts && n-- && put_one(w, c, from))
		any = true;
	return any;
}

static void *body(void *arg)
{
	struct worker *w = arg;
	struct pool_cache c = { 0 };
	bool gets = round_nr != PIPE || w->nr < producers;
	bool puts = round_nr != PIPE || w->nr >= producers;
	u32 from = round_nr == PIPE ? w->nr - producers : (w->nr + nthreads - 1) % nthreads;
	u32 steps = round_nr >= CHURN ? 1 + rnd(&w->seed) % 20 : (u32)-1;

	while (steps-- && !load_relaxed(&stop))
		if (!work(w, &c, from, gets, puts))
			cpu_relax();
	pool_cache_flush(pool, &c);
	if (c.n || c.nspare)
		bad("flush", c.n, c.nspare);
	/* STRESS-B1 <-> STRESS-B2 */
	store_release(&w->left, 1);
	return NULL;
}

static u64 trims, given;

static void *trimmer(void *arg)
{
	while (!load_relaxed(&stop)) {
		struct pool_trim t = { 0 };

		while (pool_trim_step(pool, &t))
			;
		if (t.rc)
			bad("trim", 0, (u32)-t.rc);
		trims++;
		given += t.bytes;
	}
	return NULL;
}

static int start(struct worker *w)
{
	w->left = 0;
	return pthread_create(&w->thread, NULL, body, w);
}

static void run_round(u64 ms)
{
	u64 end = now_ms() + ms, got = 0, put = 0, refused = 0, lives = nthreads, t0 = now_ms();
	struct pool_cache c = { 0 };
	struct pool_stat s;
	pthread_t trim;
	u32 i, n;

	producers = nthreads / 2;
	store_relaxed(&stop, 0);
	for (i = 0; i < nthreads; i++) {
		workers[i].wr = workers[i].rd = 0;
		workers[i].got = workers[i].put = workers[i].refused = 0;
		if (start(&workers[i]))
			exit(77);
	}
	if (round_nr == TRIM && pthread_create(&trim, NULL, trimmer, NULL))
		exit(77);
	while (now_ms() < end) {
		struct timespec tick = { .tv_nsec = 200000 };

		nanosleep(&tick, NULL);
		for (i = 0; round_nr >= CHURN && i < nthreads; i++) {
			/* STRESS-B2 <-> STRESS-B1 */
			if (!load_acquire(&workers[i].left))
				continue;
			pthread_join(workers[i].thread, NULL);
			if (start(&workers[i]))
				exit(77);
			lives++;
		}
	}
	store_relaxed(&stop, 1);
	for (i = 0; i < nthreads; i++)
		pthread_join(workers[i].thread, NULL);
	if (round_nr == TRIM)
		pthread_join(trim, NULL);
	t0 = now_ms() - t0;
	/* Receive the objects that are still in the channels. */
	for (i = 0; i < nthreads; i++) {
		for (n = 0; n < SLOTS; n++)
			if (chan[i].slot[n]) {
				struct thing *t = pool_obj(pool, chan[i].slot[n]);

				t->owner = 0;
				pool_put(pool, &c, chan[i].slot[n]);
				chan[i].slot[n] = 0;
				put++;
			}
		got += workers[i].got;
		put += workers[i].put;
		refused += workers[i].refused;
	}
	pool_cache_flush(pool, &c);
	pool_stat(pool, &s);
	if (got != put)
		bad("got and put differ", (u32)got, (u32)put);
	if (pool_depot_count(pool) != s.carved || s.lost)
		bad("objects are missing", pool_depot_count(pool), s.carved);
	for (i = 1; i <= s.carved; i++) {
		const struct thing *t = pool_obj(pool, i);

		/* Without memory the object is zero. */
		if (t->owner || (t->idx != i && t->idx | t->value))
			bad("not free at the end", i, t->owner);
	}
	printf("%-5s objects=%llu ms=%llu refused=%llu threads_started=%llu carved=%u mags=%u kib=%llu\n",
	       round_name[round_nr], (unsigned long long)got, (unsigned long long)t0,
	       (unsigned long long)refused, (unsigned long long)lives, s.carved, s.mags,
	       (unsigned long long)s.bytes >> 10);
	if (round_nr == TRIM)
		printf("trims=%llu kib_given_back=%llu\n", (unsigned long long)trims,
		       (unsigned long long)given >> 10);
}

int main(int argc, char **argv)
{
	struct pool_desc d = { .name = "stress", .size = sizeof(struct thing), .max = 3000,
			       .ctor = ctor };
	struct arena *a;
	u64 seed = (u64)time(NULL), ms = 1500;
	int opt;
	u32 i;

	while ((opt = getopt(argc, argv, "s:t:n:m:")) != -1) {
		if (opt == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (opt == 't')
			ms = (u64)(strtod(optarg, NULL) * 1000);
		else if (opt == 'n')
			nthreads = (u32)strtoul(optarg, NULL, 0);
		else if (opt == 'm')
			d.max = (u32)strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	if (nthreads < 2 || nthreads > MAX_THREADS || nthreads % 2) {
		fprintf(stderr, "stress_pool: threads: 2, 4, .. %u\n", MAX_THREADS);
		return 2;
	}
	printf("stress_pool -s %llu -t %g -n %u -m %u\n", (unsigned long long)seed,
	       (double)ms / 1000, nthreads, d.max);
	fflush(stdout);
	if (arena_create("stress", &a) || arena_add(a, &d, &pool) || arena_ready(a, false))
		return 77;
	for (i = 0; i < nthreads; i++) {
		workers[i].nr = i;
		workers[i].me = i + 1;
		workers[i].seed = (seed + i) * 0x9e3779b97f4a7c15ull | 1;
	}
	for (round_nr = 0; round_nr < ROUNDS; round_nr++)
		run_round(ms / ROUNDS);
	arena_destroy(a);
	printf("PASS\n");
	return 0;
}
