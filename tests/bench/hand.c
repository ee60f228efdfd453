// SPDX-License-Identifier: Apache-2.0
/*
 * hand.c - the cost of an op that one core pushes and another runs, without an engine.
 *
 * It moves what any dependency engine of this kind moves if pushes come from any thread at any
 * time: the op, with its body and argument; a word per var, changed by a compare-and-swap; a
 * block per write, which the op's end completes by an addition and the next write of the var
 * checks; a slot of a ring; and what the body writes.  1024 vars take turns, as in indep, and
 * 128 ops are in flight.  Nothing is allocated, checked or counted, no thread sleeps, and
 * there is one pusher and one worker.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

#define VARS	1024u
#define WINDOW	128u
#define SLOTS	256u		/* a power of two, more than WINDOW */
#define OPS	512u
#define REPORT	16u		/* ops between two reports of the number of complete ones */
#define LINE	__attribute__((aligned(64)))

struct hand_op {
	void (*fn)(void *arg);
	void *arg;
	uint32_t block;
} LINE;

struct hand_cell {
	uint64_t value;
} LINE;

struct hand {
	struct hand_op op[OPS];
	struct hand_cell cell[VARS], word[VARS];
	struct {
		uint64_t state, unused[3];
	} block[VARS + 1] LINE;
	uint64_t slot[SLOTS] LINE;	/* lap << 32 | op */
	uint64_t over LINE;		/* number of complete ops, as last reported */
	uint64_t n LINE;
};

static void hand_body(void *arg)
{
	uint64_t *v = arg;

	*v = *v * 31 + 7;
}

static uint64_t hand_lap(uint64_t i)
{
	return (i / SLOTS + 1) << 32;
}

static void *hand_worker(void *arg)
{
	struct hand *h = arg;
	uint64_t i, w;

	bench_pin_self(1);
	for (i = 0; i < h->n; i++) {
		struct hand_op *op;

		do
			w = __atomic_load_n(&h->slot[i % SLOTS], __ATOMIC_ACQUIRE);
		while (w >> 32 != hand_lap(i) >> 32);
		op = &h->op[(uint32_t)w];
		op->fn(op->arg);
		__atomic_fetch_add(&h->block[op->block].state, 1, __ATOMIC_ACQ_REL);
		if (i % REPORT == REPORT - 1)
			__atomic_store_n(&h->over, i + 1, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&h->over, h->n, __ATOMIC_RELEASE);
	return NULL;
}

static void hand_push(struct hand *h, uint32_t *newest, uint32_t *spare, uint64_t i)
{
	struct hand_op *op = &h->op[i % OPS];
	uint32_t v = i % VARS, before = newest[v];
	uint64_t was = __atomic_load_n(&h->word[v].value, __ATOMIC_ACQUIRE);

	op->fn = hand_body;
	op->arg = &h->cell[v].value;
	op->block = *spare;
	__atomic_store_n(&h->block[*spare].state, 0, __ATOMIC_RELAXED);
	__atomic_compare_exchange_n(&h->word[v].value, &was, was + 1, false, __ATOMIC_ACQ_REL,
				    __ATOMIC_ACQUIRE);
	newest[v] = *spare;
	/* VARS exceeds WINDOW: the write before is complete. */
	if (!__atomic_load_n(&h->block[before].state, __ATOMIC_ACQUIRE))
		bench_die("hand: an op is late");
	*spare = before;
	__atomic_exchange_n(&h->slot[i % SLOTS], hand_lap(i) | i % OPS, __ATOMIC_SEQ_CST);
}

void measure_hand(const struct measure *m)
{
	struct hand *h = aligned_alloc(64, sizeof(*h));
	uint32_t newest[VARS], spare = VARS, v;
	uint64_t i, seen = 0, t0;
	pthread_t worker;

	if (!h)
		bench_die("out of memory");
	if (bench_cpu(0) == bench_cpu(1)) {
		printf("{\"test\":\"hand\",\"unsupported\":true}\n");
		free(h);
		return;
	}
	memset(h, 0, sizeof(*h));
	for (v = 0; v < VARS; v++) {
		newest[v] = v;
		h->block[v].state = 1;
	}
	h->n = m->ops;
	bench_opts.pin = true;
	bench_pin_self(0);
	if (pthread_create(&worker, NULL, hand_worker, h))
		bench_die("no thread");
	t0 = bench_now();
	for (i = 0; i < h->n; i++) {
		while (i - seen >= WINDOW)
			seen = __atomic_load_n(&h->over, __ATOMIC_ACQUIRE);
		hand_push(h, newest, &spare, i);
	}
	pthread_join(worker, NULL);
	printf("{\"test\":\"hand\",\"ns\":%.1f}\n",
	       (double)(bench_now() - t0) * bench_tick_ns / (double)h->n);
	free(h);
}
