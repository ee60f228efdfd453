// SPDX-License-Identifier: Apache-2.0
/*
 * bench-ck [ROUNDS]: the library's structures beside concurrencykit's, as a table for design.md.
 *
 * Each row runs ours and ck's in turns, ROUNDS times (default 9), and prints the medians.  The
 * sources with the library's static functions are included; the rest comes from its archive.
 */
#define PAWL_TEST_INTERNAL
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ck_bitmap.h>
#include <ck_ec.h>
#include <ck_hs.h>
#include <ck_ring.h>
#include <ck_stack.h>
#include <exec/take.c>
#include <pool/internal.h>
#include <compat/error.c>

#define N		(1u << 18)	/* operations of a measurement */
#define SLOTS		256u
#define ROUNDS_MAX	99

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static u64 sink;	/* keeps results in use */

/* --- two threads do the same, or two things -------------------------------- */

struct duty {
	void (*fn)(u32 who);
	u32 who;
};

static u32 at_start;	/* A */

static void *duty_main(void *arg)
{
	const struct duty *d = arg;

	fetch_add_acq_rel(&at_start, 1);
	while (load_acquire(&at_start) < 2)
		cpu_relax();
	d->fn(d->who);
	return NULL;
}

static double both(void (*a)(u32), void (*b)(u32))
{
	struct duty d[2] = { { a, 0 }, { b, 1 } };
	pthread_t t;
	double start;

	at_start = 0;
	if (pthread_create(&t, NULL, duty_main, &d[1]))
		abort();
	start = now_ns();
	duty_main(&d[0]);
	pthread_join(t, NULL);
	return (now_ns() - start) / N;
}

/* --- rings ------------------------------------------------------------------ */

struct word { u32 w; };
CK_RING_PROTOTYPE(word, word)

static struct ring ours;
static struct hoard hoard;
static ck_ring_t theirs __cacheline_aligned;
static struct word theirs_slots[N] __cacheline_aligned;
static bool barrier;

static void rings_begin(void)
{
	ring_fini(&ours);
	if (ring_init(&ours))
		abort();
	ck_ring_init(&theirs, 1024);
	memset(&hoard, 0, sizeof(hoard));
}

static inline void ck_put(u32 work)
{
	struct word w = { work };

	while (!CK_RING_ENQUEUE_SPMC(word, &theirs, theirs_slots, &w))
		cpu_relax();
	if (barrier)
		smp_mb();	/* as ring_put(): the load of `attn` comes after it */
}

static double ring_self_ours(void)
{
	double start;
	u32 i, k;

	rings_begin();
	start = now_ns();
	for (i = 0; i < N; i += 64) {
		for (k = 1; k <= 64; k++)
			ring_push(&ours, k);
		for (k = 0; k < 64; k++)
			sink += ring_take_own(&ours, true);
	}
	return (now_ns() - start) / N;
}

static double ring_self_ck(void)
{
	double start;
	struct word w;
	u32 i, k;

	rings_begin();
	start = now_ns();
	for (i = 0; i < N; i += 64) {
		for (k = 1; k <= 64; k++)
			ck_put(k);
		for (k = 0; k < 64; k++)
			if (CK_RING_DEQUEUE_SPMC(word, &theirs, theirs_slots, &w))
				sink += w.w;
	}
	return (now_ns() - start) / N;
}

/* At most 1024 elements, as in ck's ring: checked once per 64, since ours reads head when full. */
static void ours_producer(u32 who)
{
	u32 i;

	for (i = 0; i < N; i++) {
		while (!(i % 64) && ((ours.tail - ring_pos(load_acquire(&ours.head))) &
				     RING_POS) > 1024 - 64)
			cpu_relax();
		ring_push(&ours, 1);
	}
}

static void ours_consumer(u32 who)
{
	struct ring_look look;
	u32 n = 0;

	while (n < N) {
		if (ring_peek(&ours, &look))
			n += ring_take(&ours, &look);
		else
			cpu_relax();
	}
}

static void ours_batcher(u32 who)
{
	struct ring_look look;
	u32 n = 0;

	while (n < N) {
		if (ring_peek(&ours, &look) && ring_batch(&ours, &look, &hoard, 0, 32)) {
			n++;
			while (hoard_take(&hoard))
				n++;
		} else {
			cpu_relax();
		}
	}
}

static void ck_producer(u32 who)
{
	u32 i;

	for (i = 0; i < N; i++)
		ck_put(1);
}

static void ck_consumer(u32 who)
{
	struct word w;
	u32 n = 0;

	while (n < N) {
		if (CK_RING_DEQUEUE_SPMC(word, &theirs, theirs_slots, &w))
			n++;
		else
			cpu_relax();
	}
}

static double ring_two_ours(void)
{
	rings_begin();
	return both(ours_producer, ours_consumer);
}

static double ring_batch_ours(void)
{
	rings_begin();
	return both(ours_producer, ours_batcher);
}

static double ring_two_ck(void)
{
	rings_begin();
	return both(ck_producer, ck_consumer);
}

/* --- the bitmap of lanes ------------------------------------------------------ */

static struct exec bx = { .words = SLOTS / 64, .max_threads = SLOTS };
static u64 bmap[SLOTS / 64];
static struct exec_queue bq = { .x = &bx, .map = bmap };
static CK_BITMAP_INSTANCE(SLOTS) cmap;
static u32 marked;	/* the only marked lane; SLOTS: none */

static void maps_begin(void)
{
	memset(bmap, 0, sizeof(bmap));
	CK_BITMAP_INIT(&cmap, SLOTS, false);
	if (marked < SLOTS) {
		bmap[marked / 64] = 1ull << marked % 64;
		CK_BITMAP_SET(&cmap, marked);
	}
}

static double scan_ours(void)
{
	double start;
	u32 i;

	maps_begin();
	start = now_ns();
	for (i = 0; i < N; i++)
		sink += lane_next(&bq, SLOTS, i % SLOTS, 0);
	return (now_ns() - start) / N;
}

/* The same search with ck's iterator, which begins at 0: its fields are set to the start. */
static u32 ck_next(u32 from)
{
	ck_bitmap_iterator_t it = { .n_block = from / 32, .n_limit = SLOTS / 32 };
	u32 bit;

	it.cache = ck_pr_load_uint(&cmap.content.map[it.n_block]) & ~0u << from % 32;
	if (!CK_BITMAP_NEXT(&cmap, &it, &bit)) {
		CK_BITMAP_ITERATOR_INIT(&it, &cmap);
		if (!CK_BITMAP_NEXT(&cmap, &it, &bit))
			return SLOTS;
	}
	ck_pr_fence_load();
	return bit;
}

static double scan_ck(void)
{
	double start;
	u32 i;

	maps_begin();
	start = now_ns();
	for (i = 0; i < N; i++)
		sink += ck_next(i % SLOTS);
	return (now_ns() - start) / N;
}

static double mark_ours(void)
{
	double start;
	u32 i;

	start = now_ns();
	for (i = 0; i < N; i++) {
		fetch_or_release(&bmap[1], 1ull << (i & 63));
		fetch_and_relaxed(&bmap[1], ~(1ull << (i & 63)));
	}
	return (now_ns() - start) / N;
}

static double mark_ck(void)
{
	double start;
	u32 i;

	start = now_ns();
	for (i = 0; i < N; i++) {
		CK_BITMAP_SET(&cmap, 64 + (i & 63));
		CK_BITMAP_RESET(&cmap, 64 + (i & 63));
	}
	return (now_ns() - start) / N;
}

/* --- event counts: what a push pays while no thread sleeps --------------------- */

static struct exec_group group;
static ck_ec32_t count_ec __cacheline_aligned;
static u64 published[2][8] __cacheline_aligned;

static int no_time(const struct ck_ec_ops *o, struct timespec *ts)
{
	return -1;
}

static void no_wait(const struct ck_ec_wait_state *s, const uint32_t *p, uint32_t v,
		    const struct timespec *ts)
{
}

static void no_wake(const struct ck_ec_ops *o, const uint32_t *p)
{
}

static const struct ck_ec_ops ops = { .gettime = no_time, .wait32 = no_wait, .wake32 = no_wake };
static const struct ck_ec_mode many = { .ops = &ops, .single_producer = false };

static void ours_notify(u32 who)
{
	u32 i;

	for (i = 0; i < N; i++) {
		(void)xchg_seq_cst(&published[who][0], i);
		if (load_seq_cst(&group.attn))
			abort();
	}
}

static void ck_notify(u32 who)
{
	u32 i;

	for (i = 0; i < N; i++) {
		store_release(&published[who][0], i);
		ck_ec32_inc(&count_ec, &many);
	}
}

static double alone(void (*fn)(u32))
{
	double start = now_ns();

	fn(0);
	return (now_ns() - start) / N;
}

static double notify_ours(void)
{
	return alone(ours_notify);
}

static double notify_ck(void)
{
	return alone(ck_notify);
}

static double notify_two_ours(void)
{
	return both(ours_notify, ours_notify);
}

static double notify_two_ck(void)
{
	return both(ck_notify, ck_notify);
}

/* --- stacks of free things ------------------------------------------------------ */

#define THINGS	64u

static struct thing {
	struct link link;
	ck_stack_entry_t entry;
} __attribute__((aligned(64))) things[THINGS];
static u64 head_ours __cacheline_aligned;
static ck_stack_t head_ck __attribute__((aligned(64)));

static void stacks_begin(void)
{
	u32 i;

	head_ours = 0;
	ck_stack_init(&head_ck);
	for (i = 1; i < THINGS; i++) {
		stack_push(&head_ours, things, sizeof(things[0]), i);
		ck_stack_push_mpmc(&head_ck, &things[i].entry);
	}
}

static void ours_stack(u32 who)
{
	u32 i;

	for (i = 0; i < N; i++)
		stack_push(&head_ours, things, sizeof(things[0]),
			   stack_pop(&head_ours, things, sizeof(things[0])));
}

static void ck_stacks(u32 who)
{
	u32 i;

	for (i = 0; i < N; i++)
		ck_stack_push_mpmc(&head_ck, ck_stack_pop_mpmc(&head_ck));
}

static double stack_ours(void)
{
	stacks_begin();
	return alone(ours_stack);
}

static double stack_ck(void)
{
	stacks_begin();
	return alone(ck_stacks);
}

static double stack_two_ours(void)
{
	stacks_begin();
	return both(ours_stack, ours_stack);
}

static double stack_two_ck(void)
{
	stacks_begin();
	return both(ck_stacks, ck_stacks);
}

/* A list that only grows, which another thread takes whole: push alone. */
static double list_ours(void)
{
	static ck_stack_entry_t *head;
	double start = now_ns();
	u32 i;

	for (i = 0; i < N; i++) {
		ck_stack_entry_t *n = &things[i % THINGS].entry;

		n->next = load_relaxed(&head);
		while (!cas_release_relaxed(&head, &n->next, n))
			;
	}
	return (now_ns() - start) / N;
}

static double list_ck(void)
{
	double start = now_ns();
	u32 i;

	for (i = 0; i < N; i++)
		ck_stack_push_upmc(&head_ck, &things[i % THINGS].entry);
	return (now_ns() - start) / N;
}

/* --- sets ------------------------------------------------------------------------ */

static void *hs_malloc(size_t n)
{
	return malloc(n);
}

static void hs_free(void *p, size_t n, bool defer)
{
	free(p);
}

static struct ck_malloc memory = { .malloc = hs_malloc, .free = hs_free };
#define NAMES	64u
static char names[NAMES][24];
static ck_hs_t name_set;

static unsigned long name_hash(const void *p, unsigned long seed)
{
	u32 hash = 2166136261u;
	const char *s;

	for (s = p; *s; s++)
		hash = (hash ^ (unsigned char)*s) * 16777619u;
	return hash;
}

static bool name_same(const void *a, const void *b)
{
	return !strcmp(a, b);
}

static void names_begin(void)
{
	u32 i;

	if (!ck_hs_init(&name_set, CK_HS_MODE_SPMC | CK_HS_MODE_OBJECT, name_hash, name_same,
			&memory, 1024, 0))
		abort();
	for (i = 0; i < NAMES; i++) {
		snprintf(names[i], sizeof(names[i]), "operator_name_%u", i);
		name_keep(names[i]);
		ck_hs_put(&name_set, CK_HS_HASH(&name_set, name_hash, names[i]), names[i]);
	}
}

static double name_ours(void)
{
	double start = now_ns();
	u32 i;

	for (i = 0; i < N; i++)
		sink += (u64)(uintptr_t)name_keep(names[i % NAMES]);
	return (now_ns() - start) / N;
}

static double name_ck(void)
{
	double start = now_ns();
	u32 i;

	for (i = 0; i < N; i++)
		sink += (u64)(uintptr_t)ck_hs_get(&name_set,
			CK_HS_HASH(&name_set, name_hash, names[i % NAMES]), names[i % NAMES]);
	return (now_ns() - start) / N;
}

/* The vars of a bulk: 16 are found or added, 4 times each, and the set is emptied. */
#define VARS	16u
static u16 set[512];
static u64 set_var[256];

static inline unsigned long var_hash(const void *p, unsigned long seed)
{
	return (u64)(uintptr_t)p * 0x9e3779b97f4a7c15ull >> 32;
}

/* As hash_slot() and var_add() of compat/bulk.c. */
static void set_add(u32 *n, u64 h)
{
	u32 i = (u32)(h * 0x9e3779b97f4a7c15ull >> 55);

	while (set[i] && set_var[set[i] - 1] != h)
		i = (i + 1) % 512;
	if (!set[i]) {
		set_var[*n] = h;
		set[i] = (u16)++*n;
	}
}

static double set_ours(void)
{
	double start = now_ns();
	u32 i, k, n;

	for (i = 0; i < N; i += 4 * VARS) {
		n = 0;
		for (k = 0; k < 4 * VARS; k++)
			set_add(&n, 0x10000 + 64 * (k % VARS));
		sink += n;
		memset(set, 0, sizeof(set));
	}
	return (now_ns() - start) / N;
}

static double set_ck(void)
{
	static ck_hs_t hs;
	double start;
	u32 i, k;

	if (!ck_hs_init(&hs, CK_HS_MODE_SPMC | CK_HS_MODE_DIRECT, var_hash, NULL, &memory, 64, 0))
		abort();
	start = now_ns();
	for (i = 0; i < N; i += 4 * VARS) {
		for (k = 0; k < 4 * VARS; k++) {
			void *p = (void *)(uintptr_t)(0x10000 + 64 * (k % VARS));

			ck_hs_put(&hs, CK_HS_HASH(&hs, var_hash, p), p);
		}
		sink += ck_hs_count(&hs);
		ck_hs_reset(&hs);
	}
	start = (now_ns() - start) / N;
	ck_hs_destroy(&hs);
	return start;
}

/* ----------------------------------------------------------------------------------- */

static int rounds = 9;

static int cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void row(const char *what, double (*a)(void), double (*b)(void))
{
	double x[ROUNDS_MAX], y[ROUNDS_MAX];
	int i;

	for (i = 0; i < rounds; i++) {
		x[i] = a();
		y[i] = b();
	}
	qsort(x, (size_t)rounds, sizeof(*x), cmp);
	qsort(y, (size_t)rounds, sizeof(*y), cmp);
	printf("| %s | %.1f | %.1f | %.2f |\n", what, x[rounds / 2], y[rounds / 2],
	       y[rounds / 2] / x[rounds / 2]);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		rounds = atoi(argv[1]);
	if (rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "usage: %s [rounds, 1..%d]\n", argv[0], ROUNDS_MAX);
		return 2;
	}
	puts("| ns per operation, median | ours | ck | ck / ours |\n| --- | --- | --- | --- |");
	row("ring, one thread", ring_self_ours, ring_self_ck);
	barrier = true;
	row("ring, one thread; ck with a barrier", ring_self_ours, ring_self_ck);
	row("ring, two threads; ck with a barrier", ring_two_ours, ring_two_ck);
	row("ring, two threads, ours in batches; ck with a barrier", ring_batch_ours, ring_two_ck);
	marked = 200;
	row("lanes: find the only one of 256", scan_ours, scan_ck);
	marked = SLOTS;
	row("lanes: find none of 256", scan_ours, scan_ck);
	row("sleepers: set and clear a bit", mark_ours, mark_ck);
	row("publish, no sleeper, one thread", notify_ours, notify_ck);
	row("publish, no sleeper, two threads", notify_two_ours, notify_two_ck);
	row("free stack: pop and push, one thread", stack_ours, stack_ck);
	row("free stack: pop and push, two threads", stack_two_ours, stack_two_ck);
	row("list that grows: push", list_ours, list_ck);
	names_begin();
	row("names of ops: find", name_ours, name_ck);
	row("vars of a bulk: add", set_ours, set_ck);
	return sink == 1;
}
