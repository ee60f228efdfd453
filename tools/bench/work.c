// SPDX-License-Identifier: Apache-2.0
/* work.c - the op lists, their serial answers, and the check. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "work.h"

#define INDEP_VARS	1024
#define READERS		8
#define RANDOM_VARS	1000
#define STENCIL_WIDTH	64
#define MPUSH_VARS	8

double bench_tick_ns = 1;
struct bench_cell *bench_cells;
uint32_t bench_grain;
uint64_t bench_stamp;
__thread const struct bench_op *bench_pushing;
uint32_t bench_watched, bench_in_push;

static enum bench_body_kind watched_kind;	/* what BODY_WATCH does in addition */
static uint64_t rnd_state;

/* splitmix64: the same list everywhere for the same seed */
static uint64_t rnd(void)
{
	uint64_t z = (rnd_state += BENCH_HASH);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint32_t rnd_below(uint32_t n)
{
	return (uint32_t)(((rnd() >> 32) * n) >> 32);
}

/* BODY_WATCH.  Returns what the body does in addition. */
static __attribute__((noinline)) enum bench_body_kind look(const struct bench_op *op)
{
	__atomic_fetch_add(&bench_watched, 1, __ATOMIC_RELAXED);
	if (bench_pushing == op)
		__atomic_fetch_add(&bench_in_push, 1, __ATOMIC_RELAXED);
	return watched_kind;
}

void bench_body_slow(struct bench_op *op)
{
	enum bench_body_kind kind = (enum bench_body_kind)op->kind;
	uint64_t x = op->c;
	uint32_t i;

	if (__builtin_expect(kind == BODY_WATCH, 0))
		kind = look(op);
	switch (kind) {
	case BODY_HASH:
		bench_hash(op);
		break;
	case BODY_GRAIN:
		bench_hash(op);
		for (i = 0; i < bench_grain; i++) {
			x = x * BENCH_HASH + 1;
			__asm__ volatile("" : "+r"(x));
		}
		break;
	case BODY_STAMP:
		__atomic_store_n(&bench_stamp, bench_now(), __ATOMIC_RELEASE);
		break;
	case BODY_ORDER:
		bench_hash(op);
		for (i = 0; i < op->nw; i++) {
			struct bench_cell *cell = &bench_cells[op->v[op->nr + i]];

			/* atomic only for the watchdog, which reads it at any time */
			op->pos[i] = cell->writes;
			__atomic_store_n(&cell->writes, op->pos[i] + 1, __ATOMIC_RELAXED);
		}
		break;
	default:
		bench_die("unknown body");
	}
}

static uint64_t mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void work_clock(void)
{
	struct timespec ts = { 0, 20000000 };
	uint64_t n0 = mono_ns(), t0 = bench_now();

	while (nanosleep(&ts, &ts))
		;
	bench_tick_ns = (double)(mono_ns() - n0) / (double)(bench_now() - t0);
}

/* The shortest of some tries: the loop without disturbance. */
uint32_t work_turns(uint32_t ns)
{
	struct bench_cell cell = { .v = 0 }, *cells = bench_cells;
	struct bench_op op = { .kind = BODY_GRAIN, .nw = 1 };
	const uint32_t turns = 100000, grain = bench_grain;
	uint64_t best = UINT64_MAX, t0;
	int i;

	bench_cells = &cell;
	bench_grain = turns;
	for (i = 0; i < 20; i++) {
		t0 = bench_now();
		bench_body(&op);
		t0 = bench_now() - t0;
		best = t0 < best ? t0 : best;
	}
	bench_cells = cells;
	bench_grain = grain;
	return (uint32_t)(ns * (double)turns / ((double)best * bench_tick_ns));
}

static struct bench_op *add(struct work *w, unsigned int nr, unsigned int nw,
			    uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	struct bench_op *op = &w->ops[w->n++];

	op->nr = (uint8_t)nr;
	op->nw = (uint8_t)nw;
	op->c = (uint32_t)rnd();
	op->v[0] = a;
	op->v[1] = b;
	op->v[2] = c;
	op->v[3] = d;
	return op;
}

static void make_chain(struct work *w, uint32_t n)
{
	w->nvars = 1;
	while (w->n < n)
		add(w, 0, 1, 0, 0, 0, 0);
}

static void make_indep(struct work *w, uint32_t n)
{
	w->nvars = INDEP_VARS;
	while (w->n < n)
		add(w, 0, 1, w->n % INDEP_VARS, 0, 0, 0);
}

static void make_readers(struct work *w, uint32_t n)
{
	uint32_t i;

	w->nvars = 1 + READERS;
	while (w->n < n) {
		add(w, 0, 1, 0, 0, 0, 0);
		for (i = 0; i < READERS && w->n < n; i++)
			add(w, 1, 1, 0, 1 + i, 0, 0);
	}
}

static void make_random(struct work *w, uint32_t n)
{
	uint32_t a, b, c;

	w->nvars = RANDOM_VARS;
	while (w->n < n) {
		a = rnd_below(RANDOM_VARS);
		do
			b = rnd_below(RANDOM_VARS);
		while (b == a);
		do
			c = rnd_below(RANDOM_VARS);
		while (c == a || c == b);
		add(w, 2, 1, a, b, c, 0);
	}
}

/* The ends are open: the first and the last column read two, the others three. */
static void make_stencil(struct work *w, uint32_t n)
{
	uint32_t x, t, from, to;

	w->nvars = 2 * STENCIL_WIDTH;
	for (t = 0; w->n < n; t++) {
		from = t % 2 * STENCIL_WIDTH;
		to = STENCIL_WIDTH - from;
		for (x = 0; x < STENCIL_WIDTH && w->n < n; x++) {
			if (x == 0)
				add(w, 2, 1, from, from + 1, to, 0);
			else if (x == STENCIL_WIDTH - 1)
				add(w, 2, 1, from + x - 1, from + x, to + x, 0);
			else
				add(w, 3, 1, from + x - 1, from + x, from + x + 1, to + x);
		}
	}
}

static uint32_t tile(uint32_t i, uint32_t j)
{
	return i * (i + 1) / 2 + j;
}

static uint32_t cholesky_ops(uint32_t t)
{
	/* potrf t, trsm and syrk t(t-1)/2 each, gemm t(t-1)(t-2)/6 */
	return t + t * (t - 1) + t * (t - 1) * (t - 2) / 6;
}

static void make_cholesky(struct work *w, uint32_t n)
{
	uint32_t t = 1, i, j, k;

	while (cholesky_ops(t + 1) <= n)
		t++;
	w->nvars = tile(t, 0);
	for (k = 0; k < t; k++) {
		add(w, 0, 1, tile(k, k), 0, 0, 0);
		for (i = k + 1; i < t; i++)
			add(w, 1, 1, tile(k, k), tile(i, k), 0, 0);
		for (i = k + 1; i < t; i++) {
			add(w, 1, 1, tile(i, k), tile(i, i), 0, 0);
			for (j = k + 1; j < i; j++)
				add(w, 2, 1, tile(i, k), tile(j, k), tile(i, j), 0);
		}
	}
}

static const struct {
	const char *name;
	void (*make)(struct work *w, uint32_t n);
} shapes[] = {
	{ "chain", make_chain },	{ "indep", make_indep },
	{ "readers", make_readers },	{ "random", make_random },
	{ "stencil", make_stencil },	{ "cholesky", make_cholesky },
};

static struct work *work_alloc(const char *name, uint32_t n, uint64_t seed)
{
	struct work *w = calloc(1, sizeof(*w));

	if (!w)
		bench_die("out of memory");
	w->name = name;
	w->ops = calloc(n, sizeof(*w->ops));
	if (!w->ops)
		bench_die("out of memory");
	rnd_state = seed;
	return w;
}

static void work_cells(struct work *w)
{
	bench_cells = aligned_alloc(64, w->nvars * sizeof(*bench_cells));
	w->answer = calloc(w->nvars, sizeof(*w->answer));
	if (!bench_cells || !w->answer)
		bench_die("out of memory");
	work_reset(w);
}

static void serial_answer(struct work *w, uint32_t (*order)(void *, uint32_t), void *arg)
{
	uint32_t i;

	work_reset(w);
	for (i = 0; i < w->n; i++)
		bench_hash(&w->ops[order ? order(arg, i) : i]);
	for (i = 0; i < w->nvars; i++)
		w->answer[i] = bench_cells[i].v;
	work_reset(w);
}

struct work *work_make(const char *shape, uint32_t n, uint64_t seed)
{
	struct work *w;
	size_t s;

	for (s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
		if (strcmp(shapes[s].name, shape))
			continue;
		w = work_alloc(shapes[s].name, n, seed);
		shapes[s].make(w, n);
		work_cells(w);
		serial_answer(w, NULL, NULL);
		return w;
	}
	return NULL;
}

struct work *work_make_mpush(uint32_t n, unsigned int pushers, uint64_t seed)
{
	struct work *w = work_alloc("mpush", n, seed);
	uint32_t a, b;

	w->nvars = MPUSH_VARS;
	while (w->n < n) {
		struct bench_op *op;

		a = rnd_below(MPUSH_VARS);
		do
			b = rnd_below(MPUSH_VARS);
		while (b == a);
		op = add(w, 0, 2, a, b, 0, 0);
		op->kind = BODY_ORDER;
		/* in blocks: pusher p pushes ops [p n / pushers, (p + 1) n / pushers) */
		op->pusher = (uint8_t)((uint64_t)(w->n - 1) * pushers / n);
	}
	work_cells(w);
	return w;
}

void work_free(struct work *w)
{
	if (!w)
		return;
	free(bench_cells);
	bench_cells = NULL;
	free(w->answer);
	free(w->ops);
	free(w);
}

void work_reset(struct work *w)
{
	uint32_t i;

	for (i = 0; i < w->nvars; i++) {
		bench_cells[i].v = i;
		bench_cells[i].writes = 0;
	}
}

void work_set_kind(struct work *w, enum bench_body_kind kind)
{
	uint32_t i;

	for (i = 0; i < w->n; i++)
		w->ops[i].kind = (uint8_t)kind;
}

void work_watch(struct work *w)
{
	watched_kind = (enum bench_body_kind)w->ops[0].kind;
	work_set_kind(w, BODY_WATCH);
}

uint32_t work_check(const struct work *w)
{
	uint32_t i;

	for (i = 0; i < w->nvars; i++)
		if (bench_cells[i].v != w->answer[i])
			return i + 1;
	return 0;
}

static uint32_t nth(void *arg, uint32_t i)
{
	return ((uint32_t *)arg)[i];
}

/*
 * Every op noted which write of each of its two vars it was.  The run was right if
 * these notes are a serial order: all places taken once, no cycle between the vars
 * (a topological sort reaches every op), the pushers' own orders kept, and the
 * cells hold what that serial order gives.
 */
const char *work_check_mpush(struct work *w, unsigned int pushers)
{
	uint32_t *at[MPUSH_VARS], count[MPUSH_VARS] = { 0 }, next[MPUSH_VARS] = { 0 };
	uint32_t last[MPUSH_VARS], *order, done = 0, i, v;
	uint64_t got[MPUSH_VARS];
	const char *bad = NULL;
	unsigned int p, k;
	bool moved;

	for (i = 0; i < w->n; i++)
		for (k = 0; k < 2; k++)
			count[w->ops[i].v[k]]++;
	order = malloc(w->n * sizeof(*order));
	for (v = 0; v < MPUSH_VARS; v++) {
		got[v] = bench_cells[v].v;
		at[v] = malloc((count[v] + 1) * sizeof(*at[v]));
		if (!at[v] || !order)
			bench_die("out of memory");
		memset(at[v], 0xff, (count[v] + 1) * sizeof(*at[v]));
		if (bench_cells[v].writes != count[v])
			bad = "an op did not run, or ran twice";
	}
	for (i = 0; !bad && i < w->n; i++)
		for (k = 0; k < 2; k++) {
			v = w->ops[i].v[k];
			if (w->ops[i].pos[k] >= count[v] ||
			    at[v][w->ops[i].pos[k]] != UINT32_MAX)
				bad = "two ops wrote one var at once";
			else
				at[v][w->ops[i].pos[k]] = i;
		}
	for (p = 0; !bad && p < pushers; p++) {
		memset(last, 0, sizeof(last));
		for (i = 0; i < w->n; i++)
			for (k = 0; w->ops[i].pusher == p && k < 2; k++) {
				v = w->ops[i].v[k];
				if (w->ops[i].pos[k] + 1 <= last[v])
					bad = "a pusher's ops ran in another order";
				last[v] = w->ops[i].pos[k] + 1;
			}
	}
	do {
		moved = false;
		for (v = 0; !bad && v < MPUSH_VARS; v++)
			while (next[v] < count[v]) {
				const struct bench_op *op = &w->ops[at[v][next[v]]];

				/* first in line on both of its vars? */
				if (op->pos[0] != next[op->v[0]] ||
				    op->pos[1] != next[op->v[1]])
					break;
				order[done++] = at[v][next[v]];
				next[op->v[0]]++;
				next[op->v[1]]++;
				moved = true;
			}
	} while (moved);
	if (!bad && done != w->n)
		bad = "the order on one var contradicts that on another";
	if (!bad) {
		serial_answer(w, nth, order);
		if (memcmp(got, w->answer, sizeof(got)))
			bad = "the result is not that of the order it reports";
	}
	for (v = 0; v < MPUSH_VARS; v++)
		free(at[v]);
	free(order);
	return bad;
}
