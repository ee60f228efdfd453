// SPDX-License-Identifier: Apache-2.0
/* The threads that make histories concurrently, and the clock that they share. */
#include "lin.h"

static u64 stamps;		/* A */

u64 stamp(bool timed, u64 not)
{
	return timed ? fetch_add_seq_cst(&stamps, 1) + 1 : not;
}

struct maker maker[THREADS];
struct run run;
static u32 round_go, round_in, round_left;	/* A */
static void (*round_fn)(struct maker *m);	/* what each thread does */

static void spin_until(u32 *word, u32 value)
{
	u32 n = 0;

	while (load_acquire(word) != value) {
		cpu_relax();
		if (++n % 64 == 0)
			sched_yield();
	}
}

static void *maker_main(void *arg)
{
	struct maker *m = arg;
	u32 gen = 0;

	for (;;) {
		spin_until(&round_go, ++gen);
		if (!round_fn)
			return NULL;
		if (m->id < run.threads) {
			/* All threads begin at once, so that their calls overlap. */
			fetch_add_acq_rel(&round_in, 1);
			spin_until(&round_in, run.threads);
			round_fn(m);
		}
		fetch_add_acq_rel(&round_left, 1);
	}
}

void round_run(void (*fn)(struct maker *))
{
	round_fn = fn;
	store_relaxed(&round_in, 0);
	store_relaxed(&round_left, 0);
	store_release(&round_go, ++run.gen);
	spin_until(&round_left, THREADS);
}

void makers_start(void)
{
	u32 i;

	run.gen = 0;
	store_relaxed(&round_go, 0);
	for (i = 0; i < THREADS; i++) {
		maker[i].id = i;
		MUST(!pthread_create(&maker[i].thread, NULL, maker_main, &maker[i]));
	}
}

void makers_stop(void)
{
	u32 i;

	round_fn = NULL;
	store_release(&round_go, ++run.gen);
	for (i = 0; i < THREADS; i++)
		pthread_join(maker[i].thread, NULL);
}

void round_shape(u64 *seed)
{
	u32 i;

	run.threads = 2 + (u32)(random_next(seed) % (THREADS - 1));
	run.calls = 2 + (u32)(random_next(seed) % (run.threads == 2 ? 5 : 3));
	run.timed = random_next(seed) % 2;
	run.prios = 1 + (u32)(random_next(seed) % 3);
	run.peeks = random_next(seed) % 2;
	store_relaxed(&run.works, 1);
	store_relaxed(&stamps, 0);
	for (i = 0; i < THREADS; i++) {
		maker[i].seed = random_next(seed);
		maker[i].n = 0;
	}
}

struct call *call_begin(struct maker *m, u8 kind)
{
	struct call *c = &m->call[m->n++];
	u32 wait = (u32)(random_next(&m->seed) % 64);

	memset(c, 0, sizeof(*c));
	c->thread = (u8)m->id;
	c->kind = kind;
	while (wait--)
		cpu_relax();
	c->inv = stamp(run.timed, 0);
	return c;
}

void call_end(struct call *c)
{
	c->res = stamp(run.timed, ~0ull);
}

/* The calls of all threads, and the position at which the emptying continues. */
void gather(struct history *h, bool fifo)
{
	u32 i, k;

	h->n = 0;
	h->fifo = fifo;
	for (i = 0; i < run.threads; i++)
		for (k = 0; k < maker[i].n; k++)
			h->call[h->n++] = maker[i].call[k];
}

/* Made by the main thread after all others, so they follow every call in any order. */
struct call *main_call(struct history *h, u8 kind)
{
	struct call *c = &h->call[h->n++];
	u32 i;

	MUST(h->n <= CALLS);
	memset(c, 0, sizeof(*c));
	c->thread = THREADS;
	c->kind = kind;
	c->inv = ~0ull - 1;
	c->res = ~0ull;
	for (i = 0; i + 1 < h->n; i++)
		if (h->call[i].thread < THREADS && h->call[i].res == ~0ull)
			h->call[i].res = ~0ull - 2;
	return c;
}
