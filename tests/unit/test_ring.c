/* SPDX-License-Identifier: Apache-2.0 */
/* exec/ring.c: order, wrap, growth, batches and hoards, thieves. */
#include <sys/mman.h>
#include <sys/resource.h>
#include "exec_fixture.h"
#include "suite.h"
#include "trap.h"

static bool refuse_memory;

int pool_commit_hook(const char *what, size_t bytes)
{
	return load_relaxed(&refuse_memory) ? -ENOMEM : 0;
}

static bool locked_memory;

int __real_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice);

static size_t given_back;

/* The pages of memory that is locked cannot be given back. */
int __wrap_madvise(void *at, size_t bytes, int advice)
{
	if (!load_relaxed(&locked_memory)) {
		given_back += advice == MADV_DONTNEED ? bytes : 0;
		return __real_madvise(at, bytes, advice);
	}
	errno = EINVAL;
	return -1;
}

static u32 take(struct ring *r)
{
	struct ring_look look;

	while (ring_peek(r, &look)) {
		if (ring_take(r, &look))
			return look.work;
	}
	return 0;
}

static struct ring *ring_new(void)
{
	struct exec_lane *l = aligned_alloc(CACHELINE, sizeof(*l));

	MUST(l);
	memset(l, 0, sizeof(*l));
	MUST(!ring_init(&l->ring));
	return &l->ring;
}

static void ring_gone(struct ring *r)
{
	ring_fini(r);
	free(container_of(r, struct exec_lane, ring));
}

START_TEST(test_layout)
{
	ck_assert_uint_eq(offsetof(struct ring, array), CACHELINE + 56);
	ck_assert_uint_eq(offsetof(struct ring, tail), CACHELINE);
	ck_assert_uint_eq(offsetof(struct hoard, work), CACHELINE);
}
END_TEST

START_TEST(test_slot)
{
	u64 pos, arr;

	for (arr = RING_FIRST; arr < 20; arr++) {
		for (pos = 0; pos < 5u << arr; pos += 1 + pos / 7) {
			u32 w = slot_word(arr, pos, 77);

			MUST(slot_holds(w, arr, pos));
			MUST(!slot_holds(w, arr, pos + (1ull << arr)));
			MUST(pos < 1ull << arr || !slot_holds(w, arr, pos - (1ull << arr)));
			MUST(slot_work(w) == 77);
		}
		for (pos = 0; pos < 5u << arr; pos += 1 + pos / 7)
			MUST(!slot_holds(0, arr, pos));
	}
}
END_TEST

START_TEST(test_sequential)
{
	struct ring *r = ring_new();
	struct ring_look look;
	u32 i;

	ck_assert(!ring_peek(r, &look));
	for (i = 1; i <= 100; i++)
		MUST(ring_push(r, i));
	for (i = 1; i <= 100; i++) {
		MUST(ring_peek(r, &look));
		MUST(look.work == i);
		MUST(ring_take(r, &look));
		MUST(!ring_take(r, &look));
	}
	ck_assert(!ring_peek(r, &look));
	ring_gone(r);
}
END_TEST

START_TEST(test_wrap)
{
	struct ring *r = ring_new();
	u64 arr = r->arr;
	u32 in = 0, out = 0, k;

	for (k = 0; k < 200000; k++) {
		u32 n = k % 7 + (k % 100 == 0) * 200;

		for (; n && in - out < 256; n--, in++)
			MUST(ring_push(r, in % 1000000 + 1));
		n = k % 5 + (k % 100 == 50) * 250;
		while (n-- && out < in)
			MUST(take(r) == out++ % 1000000 + 1);
	}
	while (out < in)
		MUST(take(r) == out++ % 1000000 + 1);
	ck_assert(r->arr == arr);
	ring_gone(r);
}
END_TEST

START_TEST(test_position_wrap)
{
	struct ring *r = ring_new();
	u32 i, k, out = 0;

	r->head = r->tail = r->seen = RING_POS - 300;
	for (i = 0; i < 2000; i++) {
		MUST(ring_push(r, i + 1));
		if (i % 3)
			MUST(take(r) == ++out);
	}
	for (k = out; k < 2000; k++)
		MUST(take(r) == k + 1);
	MUST(!take(r));
	MUST(r->head < 3000 && r->tail == r->head);
	ring_gone(r);
}
END_TEST

START_TEST(test_grow)
{
	struct ring *r = ring_new();
	u32 i, out = 0;

	for (i = 0; i < 100000; i++) {
		MUST(ring_push(r, i + 1));
		if (i % 4 == 0)
			MUST(take(r) == ++out);
	}
	ck_assert_uint_eq(r->mask + 1, 131072);
	while (out < 100000)
		MUST(take(r) == ++out);
	MUST(!take(r));
	ring_gone(r);
}
END_TEST

/* Growth in any lap: slots that were not used yet hold nothing. */
START_TEST(test_grow_in_a_lap)
{
	u32 before, i;

	for (before = 0; before < 2100; before += 50) {
		struct ring *r = ring_new();

		for (i = 1; i <= before; i++) {
			MUST(ring_push(r, i));
			MUST(take(r) == i);
		}
		for (; i <= before + 300; i++)
			MUST(ring_push(r, i));
		ck_assert_uint_eq(r->mask + 1, 512);
		for (i = before + 1; i <= before + 300; i++)
			MUST(take(r) == i);
		for (; i <= before + 3000; i++) {
			MUST(!take(r));
			MUST(ring_push(r, i));
			MUST(take(r) == i);
		}
		ring_gone(r);
	}
}
END_TEST

/*
 * Back to the first array and up again, in any lap of each, also in locked memory; all arrays but
 * one are zero.
 */
START_TEST(test_shrink)
{
	struct ring *r = ring_new();
	u32 round, i, n, in = 0, out = 0, k;
	u64 arr = r->arr;
	size_t bytes;

	locked_memory = _i;
	for (round = 0; round < 60; round++) {
		n = 1u << (round * 7 % 15);
		for (i = 0; i < n + round; i++)
			MUST(ring_push(r, ++in));
		while (out < in)
			MUST(take(r) == ++out);
		/* an array of several pages returns them to the system */
		bytes = sizeof(*r->slots) << r->log2;
		given_back = 0;
		MUST(ring_shrink(r) && r->arr == arr);
		MUST(locked_memory || given_back == (bytes < 16384 ? 0 : bytes));
		MUST(!take(r));
		for (k = 0; k < ARRAY_SIZE(r->array); k++)
			for (i = 0; r->array[k] && i < 1u << (k + RING_FIRST); i++)
				MUST(!r->array[k][i] || !k);
	}
	ring_gone(r);
}
END_TEST

START_TEST(test_shrink_keeps_elements)
{
	struct ring *r = ring_new();
	u32 i;

	for (i = 1; i <= 600; i++)
		MUST(ring_push(r, i));
	for (i = 1; i < 600; i++) {
		MUST(!ring_shrink(r));
		MUST(take(r) == i);
	}
	ck_assert(!ring_shrink(r));
	MUST(take(r) == 600);
	ck_assert(ring_shrink(r));
	ring_gone(r);
}
END_TEST

START_TEST(test_grow_fails)
{
	struct ring *r = ring_new();
	u32 i;

	store_relaxed(&refuse_memory, true);
	for (i = 1; i <= 256; i++)
		MUST(ring_push(r, i));
	MUST(!ring_push(r, 257));
	MUST(!ring_push(r, 257));
	MUST(take(r) == 1);
	MUST(ring_push(r, 257));
	MUST(!ring_push(r, 258));
	store_relaxed(&refuse_memory, false);
	MUST(ring_push(r, 258));
	for (i = 2; i <= 258; i++)
		MUST(take(r) == i);
	ring_gone(r);
}
END_TEST

/* Neither its reads nor its writes of the slots are page faults later. */
START_TEST(test_a_reserved_ring_has_its_pages)
{
	struct ring *r = ring_new();
	struct rusage before, after;
	u32 i, n = 1u << 16;

	MUST(ring_reserve(r, n));
	getrusage(RUSAGE_SELF, &before);
	for (i = 1; i <= n; i++)
		MUST(ring_push(r, i));
	getrusage(RUSAGE_SELF, &after);
	ck_assert_int_lt(after.ru_minflt - before.ru_minflt, (long)(n * sizeof(u32) / 4096 / 2));
	for (i = 1; i <= n; i++)
		MUST(take(r) == i);
	ring_gone(r);
}
END_TEST

/* A ring grows to 2^21 slots and no further, and frees all its arrays. */
START_TEST(test_largest)
{
	struct ring *r = ring_new();
	u32 i;

	MUST(ring_reserve(r, 1u << RING_LAST));
	MUST(r->log2 == RING_LAST && r->array[RING_LAST - RING_FIRST]);
	MUST(!ring_grow(r) && !ring_reserve(r, (1u << RING_LAST) + 1));
	MUST(ring_push(r, 1) && take(r) == 1);
	ring_fini(r);
	for (i = RING_FIRST; i <= RING_LAST; i++)
		MUST(!r->array[i - RING_FIRST]);
	ring_gone(r);
}
END_TEST

START_TEST(test_batch)
{
	struct ring *r = ring_new();
	struct hoard *h = &container_of(r, struct exec_lane, ring)->hoard;
	struct ring_look look;
	u32 i;

	for (i = 1; i <= 100; i++)
		MUST(ring_push(r, i));
	MUST(ring_peek(r, &look));
	/* at most what was asked for */
	MUST(ring_batch(r, &look, h, 5, 8) == 8 && look.work == 1);
	MUST(ring_claimer(r->head) == 0);
	for (i = 2; i <= 8; i++)
		MUST(hoard_take(h) == i);
	MUST(!hoard_take(h));
	/* half of what is there, up to the end of a line: 46, to position 54, gives 40, to 48 */
	MUST(ring_peek(r, &look));
	MUST(ring_batch(r, &look, h, 5, 64) == 40 && look.work == 9);
	for (i = 10; i <= 48; i++)
		MUST(hoard_take(h) == i);
	/* a part of a line where there is no more */
	MUST(ring_peek(r, &look));
	MUST(ring_batch(r, &look, h, 5, 3) == 3 && look.work == 49);
	MUST(hoard_take(h) == 50 && hoard_take(h) == 51 && !hoard_take(h));
	/* a head that moved: nothing is taken, nothing is in the hoard */
	MUST(ring_peek(r, &look));
	MUST(take(r) == 52);
	MUST(!ring_batch(r, &look, h, 5, 64));
	MUST(hoard_empty(h->word) && !hoard_take(h));
	for (i = 53; i <= 100; i++)
		MUST(take(r) == i);
	/* one that is alone */
	MUST(ring_push(r, 101) && ring_peek(r, &look));
	MUST(ring_batch(r, &look, h, 5, 64) == 1 && look.work == 101 && !hoard_take(h));
	ring_gone(r);
}
END_TEST

/* One in WAIT_EVERY elements has a sample, also one that is not the first of its batch. */
START_TEST(test_a_sample_inside_a_batch)
{
	struct ring *r = ring_new();
	struct hoard *h = &container_of(r, struct exec_lane, ring)->hoard;
	struct ring_look look;
	u64 first;
	u32 i;

	for (i = 0; i < WAIT_EVERY - 3; i++)
		MUST(ring_push(r, i + 1) && take(r) == i + 1);
	ck_assert_uint_eq(r->waits.upto, 1);
	for (i = 0; i < 100; i++)
		MUST(ring_push(r, i + 1));
	ck_assert(r->waits.sample);
	first = r->waits.sum;
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	/* two before it, then those that it is among */
	MUST(ring_peek(r, &look) && ring_batch(r, &look, h, 5, 2) == 2);
	ck_assert(r->waits.sample);
	MUST(hoard_take(h) == 2);
	MUST(ring_peek(r, &look) && ring_batch(r, &look, h, 5, 64) > 1);
	ck_assert(!r->waits.sample);
	ck_assert_uint_eq(r->waits.upto, WAIT_EVERY + 1);
	/* Each element since the last sample counts with the time of this one. */
	ck_assert_uint_ge(r->waits.sum - first, WAIT_EVERY * 900000ull);
	while (hoard_take(h) || take(r))
		;
	ring_gone(r);
}
END_TEST

/* The producer takes from its own ring, and sees nothing while a batch is half done. */
START_TEST(test_take_own)
{
	struct ring *r = ring_new();
	u32 i;

	MUST(!ring_take_own(r, true));
	for (i = 1; i <= 1000; i++) {
		MUST(ring_push(r, 2 * i) && ring_push(r, 2 * i + 1));
		MUST(ring_take_own(r, true) == 2 * i);
		MUST((i & 1 ? take(r) : ring_take_own(r, true)) == 2 * i + 1);
	}
	MUST(!ring_take_own(r, true));
	ck_assert_uint_eq(r->own, 1500);
	MUST(ring_push(r, 1));
	r->head |= 6ull << RING_POS_BITS;
	MUST(!ring_take_own(r, true));
	ring_gone(r);
}
END_TEST

/* The taker is stopped between its two steps: the next one opens its hoard. */
START_TEST(test_batch_stopped)
{
	struct ring *r = ring_new();
	struct hoard *h = &container_of(r, struct exec_lane, ring)->hoard;
	struct ring_look look;
	u64 head;
	u32 i;

	for (i = 1; i <= 10; i++)
		MUST(ring_push(r, i));
	/* By hand, as ring_batch() does it. */
	h->work[0] = 2;
	h->work[1] = 3;
	h->word = 1 << 16 | HOARD_SHUT | 2 << 8;
	r->head = 3 | 6ull << RING_POS_BITS;
	MUST(!hoard_take(h));
	MUST(ring_peek(r, &look) && ring_claimer(look.head) == 6 && look.work == 4);
	head = look.head;
	/* with another head than the one that was seen: nothing */
	hoard_open(h, &r->head, head + 1);
	MUST(!hoard_take(h));
	hoard_open(h, &r->head, head);
	MUST(hoard_take(h) == 2);
	hoard_open(h, &r->head, head);
	MUST(ring_take(r, &look));
	MUST(hoard_take(h) == 3 && !hoard_take(h));
	MUST(ring_claimer(r->head) == 0);
	ring_gone(r);
}
END_TEST

#if CAN_TRAP

static struct {
	struct ring *r;
	struct hoard *h;
	u32 seen[11];		/* how often each was taken */
	u32 n;
} stopped;

static void got(u32 w)
{
	if (!w || w >= ARRAY_SIZE(stopped.seen) || stopped.seen[w]++)
		abort();
	stopped.n++;
}

/* The other threads take all that they find, as lane_peek() does. */
static void take_all(void)
{
	struct ring_look look;
	bool there;
	u32 w;

	do {
		there = ring_peek(stopped.r, &look);
		if (ring_claimer(look.head))
			hoard_open(stopped.h, &stopped.r->head, look.head);
		while ((w = hoard_take(stopped.h)))
			got(w);
		if (there && ring_take(stopped.r, &look))
			got(look.work);
	} while (there);
	/* All are there, or all but the one that the taker runs itself. */
	if (stopped.n < 9)
		abort();
}

/* Wherever the taker of a batch is stopped, no other element is out of the others' reach. */
START_TEST(test_batch_stopped_anywhere)
{
	struct ring_look look;
	u32 n, k, w, total = 0;

	trap_init(take_all);
	for (k = 0; !k || trap.stops; k += SANITIZED ? 7 : 1) {
		stopped.r = ring_new();
		stopped.h = &container_of(stopped.r, struct exec_lane, ring)->hoard;
		memset(stopped.seen, 0, sizeof(stopped.seen));
		stopped.n = 0;
		for (w = 1; w <= 10; w++)
			MUST(ring_push(stopped.r, w));
		MUST(ring_peek(stopped.r, &look));
		trap_after(k, n = ring_batch(stopped.r, &look, stopped.h, 5, 8));
		if (n)
			got(look.work);
		take_all();
		MUST(stopped.n == 10);
		total += trap.stops;
		ring_gone(stopped.r);
	}
	ck_assert_uint_gt(total, 20);
}
END_TEST

#endif

#define THIEVES	3
#define ITEMS	(BRIEF ? 60000u : 600000u)

static struct {
	struct ring *r;
	u32 *seen;		/* A: how often each was taken */
	u32 done;		/* A */
	bool batches;
} hunt;

/* Works are numbers of 20 bits; 600,000 of them fit. */
static void *thief(void *arg)
{
	u32 slot = *(u32 *)arg, last = 0;
	struct exec_lane *l = aligned_alloc(CACHELINE, sizeof(*l));
	struct ring_look look;

	MUST(l);
	memset(l, 0, sizeof(*l));
	for (;;) {
		bool over = load_acquire(&hunt.done);
		u32 w = hoard_take(&l->hoard);

		if (!w) {
			if (!ring_peek(hunt.r, &look)) {
				if (over)
					break;
				usleep(20);
				continue;
			}
			if (hunt.batches ? !ring_batch(hunt.r, &look, &l->hoard, slot, 16) :
					   !ring_take(hunt.r, &look))
				continue;
			w = look.work;
		}
		/* FIFO as seen by one consumer */
		MUST(w > last);
		last = w;
		fetch_add_relaxed(&hunt.seen[w], 1);
	}
	free(l);
	return NULL;
}

START_TEST(test_thieves)
{
	pthread_t p[THIEVES];
	u32 slots[THIEVES], i;

	watchdog(60);
	hunt.r = ring_new();
	hunt.done = 0;
	hunt.batches = _i;
	hunt.seen = calloc(ITEMS + 1, sizeof(u32));
	for (i = 0; i < THIEVES; i++) {
		slots[i] = i;
		MUST(!pthread_create(&p[i], NULL, thief, &slots[i]));
	}
	for (i = 1; i <= ITEMS; i++) {
		MUST(ring_push(hunt.r, i));
		if (i % 64 == 0)
			ring_shrink(hunt.r);
		if (i % 5000 == 0)
			sched_yield();
	}
	store_release(&hunt.done, 1);
	for (i = 0; i < THIEVES; i++)
		pthread_join(p[i], NULL);
	for (i = 1; i <= ITEMS; i++)
		MUST(hunt.seen[i] == 1);
	free(hunt.seen);
	ring_gone(hunt.r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("exec/ring");
	TCase *tc = tcase_create("ring");

	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, test_layout);
	tcase_add_test(tc, test_slot);
	tcase_add_test(tc, test_sequential);
	tcase_add_test(tc, test_wrap);
	tcase_add_test(tc, test_position_wrap);
	tcase_add_test(tc, test_grow);
	tcase_add_test(tc, test_grow_in_a_lap);
	tcase_add_loop_test(tc, test_shrink, 0, 2);
	tcase_add_test(tc, test_shrink_keeps_elements);
	tcase_add_test(tc, test_grow_fails);
	if (!SANITIZED)	/* whose own memory has faults */
		tcase_add_test(tc, test_a_reserved_ring_has_its_pages);
	tcase_add_test(tc, test_largest);
	tcase_add_test(tc, test_batch);
	tcase_add_test(tc, test_a_sample_inside_a_batch);
	tcase_add_test(tc, test_take_own);
	tcase_add_test(tc, test_batch_stopped);
#if CAN_TRAP
	tcase_add_test(tc, test_batch_stopped_anywhere);
#endif
	tcase_add_loop_test(tc, test_thieves, 0, 2);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
