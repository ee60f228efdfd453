// SPDX-License-Identifier: Apache-2.0
/*
 * Pools, the priority queue, run queues, and sleeping: each structure alone, by small
 * programs, one part per thread:
 *
 *   pool     g  get an object            p  put the object that was got first
 *            f  flush the cache        m  trim
 *            s  a late thread changes the object that was put last, by its old word
 *   queues   0..9, -1..-9, F   push with that priority, or to the front        t  take
 *            k  peek (prioq)     l  take what is below priority 5 (prioq)     m  trim     !  announce that this thread is here     ?  wait for that
 *            z  what a thread does to its lanes before it sleeps
 *   ring     +  push    t  take    k  peek; a ring that is full at first never becomes empty
 *            b  take a batch, and the contents of the hoard   o  peek, and take from the hoard
 *   sleep    +  push work, P of priority 1        w  wait until all work ran, and help   v  without helping
 *            b  wait, and serve queues without workers         f  only those whose workers failed
 *            .  wait for a time, and help    S  stop the workers, s start them    u  wake thread 0
 *            c  wait for u, h and help       t  take work and run it         Q  statistics
 *            r  as t, for a thread that reads the ready descriptor
 *   rcu      r  read     d  remove an object and defer its end     e  reclaim
 *
 * Queues: the history (which calls returned before which began) must have an order in which
 * each take returns what an exact priority queue would return; in a run queue, the first piece
 * of its producer among those with the highest priority.
 */
#include <exec/internal.h>
#include <exec/prioq.h>
#include <pool/internal.h>
#include "event.h"
#include "model.h"

#define THREADS		4u
#define OBJECTS		32u
#define CALLS		16u
#define GROWTH_MAX	(3 * 4096u)	/* of a range, at once */

#define RING_FULL	4u	/* elements of a ring that begins full; 8 with batches */

enum kind { POOL, RCU, PRIOQ, RING, QUEUE, LOOSE, SLEEP };

struct program {
	enum kind kind;
	const char *text;
	u32 batch;		/* number of works taken at once */
	u32 threads;
	u32 taker;		/* the thread that takes the remaining work at the end */
	u32 tall;		/* 1: each thread's first node has two levels; 2: all nodes */
	u32 meet;		/* this work and the next one must run at the same time */
	u32 inside;		/* so many pieces of work wait, inside, for the next one */
	u32 workers;
	bool empty;		/* another queue, without work, comes before the queue */
	bool far;		/* slots in other words of a bitmap, the last thread's first */
	bool bare;		/* threads begin without lanes and nodes */
	bool no_memory;		/* and receive none */
	u32 nodes;		/* additional ones of thread 0 */
	bool no_threads;	/* no worker can be created */
	bool own;		/* waiting threads may not take from the queue */
	bool stopped;		/* workers are not started before the search */
	bool grows;		/* the objects' range extends its mapping, in single pages */
	u32 tidy;		/* ns that a worker sleeps before it tidies */
	bool ready;		/* the queue has a ready descriptor, which announces
				   remaining work */
	const char *before;	/* calls by thread 0 before the search */
};

static struct program pg;
static const char *part[THREADS];
static struct arena *arena;
static struct pool *pool;
static struct pool_cache cache[THREADS + 1];
static u64 owner[OBJECTS + 1];
static u64 data[OBJECTS + 1];
static u64 lives[OBJECTS + 1];	/* the object's generation when it was last read */
static struct prioq *pq;
static struct prioq_cache pqc[THREADS + 1];
static u64 seed_tall;
static struct exec *x;
static struct exec_queue *q;
static struct exec_thread xt[THREADS + 4];
static u64 slots;

/* History of a queue: the calls, their results, and which calls had returned before. */
struct call {
	u64 push, work, rank, before, over, clock, who;
};
static struct call call[2 * CALLS];
static u64 ncalls;
static u64 works, ran[CALLS + 1], goal;
static u64 input[CALLS + 1], output[CALLS + 1];	/* plain data that the work publishes */
static u64 nran;		/* A */
static struct ring ring;
static struct hoard hoard;	/* of thread 0 */
static u32 flag, began[CALLS];
static u64 told;		/* plain data that the flag publishes */
static u64 stopping;		/* plain data that the stopping thread wrote before */
static u64 order_of[CALLS + 1], call_of[CALLS + 1];
static u32 page_open;		/* A: the system call that opens the page of the objects has
				   returned */
static bool searching_now;	/* the set-up has ended */

/* Requests that the kernel may refuse: see the program. */
int pool_commit_hook(const char *what, size_t bytes)
{
	if (!strcmp(what, HOOK_PLACE))
		return pg.grows;
	/* Only as much as is necessary. */
	if (pg.grows && searching_now && bytes > GROWTH_MAX)
		return -ENOMEM;
	return pg.no_memory && searching_now ? -ENOMEM : 0;
}

int exec_worker_hook(const char *queue, u32 i)
{
	return pg.no_threads ? EAGAIN : 0;
}

int model_mprotect(void *p, size_t n)
{
	const struct pool_full *f = pool ? pool_full(pool) : NULL;

	if (f && (char *)p >= f->obj.start && (char *)p < f->obj.start + f->obj.bytes)
		store_relaxed(&page_open, 1);
	return 0;
}

static u64 mapping = 4096;	/* A: the bytes of the objects' range that the kernel has mapped */

/* The kernel knows the newest value. */
static u64 mapping_now(void)
{
	return fetch_add_relaxed(&mapping, 0);
}

void *model_mremap(void *p, size_t from, size_t to)
{
	const struct pool_full *f = pool ? pool_full(pool) : NULL;
	u64 had = from;

	if (!f || p != f->obj.start || cas_seq_cst(&mapping, &had, (u64)to))
		return p;
	errno = from > had ? EFAULT : ENOMEM;
	return MAP_FAILED;
}

int model_mincore(void *p, size_t n, unsigned char *in)
{
	*in = 0;
	return (char *)p + n <= pool_full(pool)->obj.start + mapping_now() ? 0 : -1;
}

static u32 call_begin(u32 who, u32 push, u32 work, s64 rank)
{
	u32 i = (u32)model_note(&ncalls, ncalls + 1), k;
	u64 before = 0;

	model_note(&call[i].push, push);
	model_note(&call[i].who, who);
	model_note(&call[i].work, work);
	model_note(&call[i].rank, (u64)rank);
	/* With weak memory, the orders of the accesses define "before". */
	for (k = 0; k < i; k++)
		if (call[k].over && model_knows(call[k].clock))
			before |= 1ull << k;
	model_note(&call[i].before, before);
	return i;
}

static void call_end(u32 i, u32 work)
{
	model_note(&call[i].work, work);
	model_note(&call[i].over, 1);
	model_note(&call[i].clock, model_clock());
}

#define LIMIT		100	/* above the ranks of all works */

/*
 * Return which of the n pushes, ordered by time, a take of what is below `limit` may return, if it
 * returned `work`; n if none.
 */
static u32 taken(const u32 *order, u32 n, u64 work, s64 limit)
{
	u32 at, k;

	for (at = 0; at < n && call[order[at]].work != work; at++)
		;
	for (k = 0; at < n && k < n; k++) {
		const struct call *a = &call[order[at]], *b = &call[order[k]];

		if ((s64)a->rank >= limit)
			return n;
		if ((s64)b->rank >= limit)
			continue;
		if ((s64)b->rank > (s64)a->rank ||
		    (k < at && b->rank == a->rank && (pg.kind == PRIOQ || b->who == a->who)))
			return n;
	}
	return at;
}

/*
 * Search for an order. push 2 is a peek; done: the calls that have taken effect; order: the
 * pushes among them, by time.
 */
static bool search(u64 done, const u32 *order, u32 n, bool empties)
{
	u32 i, k, at, below, next[2 * CALLS];

	if (done == (1ull << ncalls) - 1)
		return true;
	for (i = 0; i < ncalls; i++) {
		struct call *c = &call[i];

		if ((done & 1ull << i) || (c->before & ~done))
			continue;
		if (c->push == 1) {
			memcpy(next, order, n * sizeof(*next));
			next[n] = i;
			if (search(done | 1ull << i, next, n + 1, empties))
				return true;
			continue;
		}
		at = c->work ? taken(order, n, c->work, (s64)c->rank) : n;
		for (k = below = 0; k < n; k++)
			below += (s64)call[order[k]].rank < (s64)c->rank;
		if (!c->work) {
			if ((!below || !empties) && search(done | 1ull << i, order, n, empties))
				return true;
		} else if (at < n && c->push == 2) {
			if (search(done | 1ull << i, order, n, empties))
				return true;
		} else if (at < n) {
			for (k = 0; k < n; k++)
				if (k != at)
					next[k - (k > at)] = order[k];
			if (search(done | 1ull << i, next, n - 1, empties))
				return true;
		}
	}
	return false;
}

static bool has_begun(void *arg)
{
	return load_acquire((u32 *)arg);
}

/* Wait for the next piece of work, which may be queued behind this one. */
static void run_inside(struct exec_thread *t, u32 work)
{
	struct exec_inside in = { .x = x, .t = t, .queue = q, .takes = true };
	struct exec_thread *other;
	u32 i;

	store_release(&began[work], 1);
	smp_mb();	/* a thread that is not there yet has not read it */
	for (i = 0; i < x->max_threads; i++) {
		other = load_acquire(&x->threads[i]);
		if (other)
			exec_unpark(x, other);
	}
	if (work <= pg.inside)
		exec_wait_inside(x, t, has_begun, &began[work + 1], -1, 0, &in);
}

static void run_work(void *user, struct exec_thread *t, u32 work)
{
	u32 i;

	if (model_note(&ran[work], 1))
		model_fail("work %u runs twice", work);
	model_point();
	if (pg.inside)
		run_inside(t, work);
	if (pg.meet) {
		u32 other = 2 * pg.meet + 1 - work;

		store_release(&began[work], 1);
		while (work - pg.meet < 2 && !load_acquire(&began[other]))
			cpu_relax();
	}
	if (input[work] != work)
		model_fail("work %u came without its data", work);
	output[work] = work;
	fetch_add_acq_rel(&nran, 1);
	for (i = 0; i < pg.threads; i++)
		exec_unpark(x, &xt[i]);
}

static struct exec_thread *enter(void *user)
{
	u32 slot = (u32)model_note(&slots, slots + 1);

	/* To the executor the memory of the work appears to be fresh. */
	xt[slot].park = 0;
	xt[slot].stolen = xt[slot].sleeps = 0;
	if (exec_thread_init(x, &xt[slot], slot))
		model_fail("exec_thread_init");
	xt[slot].batch = pg.batch ? pg.batch : 1;
	return &xt[slot];
}

static void leave(void *user, struct exec_thread *t)
{
	if (stopping != 1)
		model_fail("a worker leaves, and does not see what was before the stop");
}

/* An object's first word: generation << 1, plus 1 while it is allocated. */
static u32 thing_last(void *obj, u32 idx, void *user)
{
	return (u32)(load_relaxed((u64 *)obj) >> 1);
}

static void thing_again(void *obj, u32 idx, u32 base, void *user)
{
	if (base)
		store_relaxed((u64 *)obj, (u64)base << 1);
}

/* Two steps, unless the worker is wanted. */
static bool tidy(void *user, struct exec_thread *t)
{
	return !exec_wanted(t) && !exec_wanted(t);
}

static void setup(void)
{
	struct pool_desc d = { .name = "p", .size = 64, .max = OBJECTS, .ctor = thing_again,
			       .last = thing_last };
	struct exec_client cl = { .run = run_work, .enter = enter, .leave = leave, .tidy = tidy };
	struct exec_config cfg = { .max_threads = 8, .max_work = 64, .spin_ns = 0, .name = "m" };
	const char *s;
	u32 n = 0;
	struct pool *nodes;

	pg = *(const struct program *)model_arg();
	part[n++] = pg.text;
	for (s = pg.text; *s; s++)
		if (*s == '|')
			part[n++] = s + 1;
		else if (*s == '+' || *s == 'P' || *s == 'm')
			goal++;
	if (pg.grows)
		d.max = 511;
	if (pg.far)
		cfg.max_threads *= 64;
	if (arena_create("m", &arena) || arena_add(arena, &d, &pool))
		model_fail("arena");
	if (pg.kind == PRIOQ) {
		if (prioq_pool_add(arena, 64, 8, POOL_MAG, &nodes) || prioq_create(nodes, &pq))
			model_fail("prioq");
	} else if (pg.kind == RING) {
		ring_init(&ring);
		for (; works < (pg.batch ? 2 * RING_FULL : RING_FULL); works++)
			ring_push(&ring, (u32)works + 1);
	} else if (pg.kind > RING) {
		cfg.arena = arena;
		cfg.works = pool;
		cfg.tidy_ns = pg.tidy;
		if (exec_create(&cfg, &cl, &x) ||
		    (pg.empty && exec_queue_add(x, "e", 0, true, &q)) ||
		    exec_queue_add(x, "q", pg.workers, !pg.own, &q))
			model_fail("exec");
	}
	if (arena_ready(arena, false))
		model_fail("arena_ready");
	pg.threads = n;
	if (pg.kind > RING && !pg.stopped)
		exec_start(x);
	if (pg.ready && exec_ready_fd(x) < 0)
		model_fail("exec_ready_fd");
	slots = THREADS;
}

/* --- pool ------------------------------------------------------------------- */

static void pool_trim(void)
{
	struct pool_trim t = { 0 };

	while (pool_trim_step(pool, &t))
		;
	if (t.rc)
		model_fail("trim: %d", t.rc);
}

static void pool_thread(u32 i)
{
	u32 got[8], n = 0, first = 0;
	u64 word[8], old;
	const char *s;

	for (s = part[i]; *s && *s != '|'; s++) {
		if (*s == 'g') {
			if (!pool_get(pool, &cache[i], &got[n]))
				model_fail("the pool is empty");
			if (!load_relaxed(&page_open))
				model_fail("object %u is in a page that is not open", got[n]);
			if (model_note(&owner[got[n]], i + 1))
				model_fail("object %u was given out twice", got[n]);
			data[got[n]] = i;	/* plain: a race shows a missing edge */
			old = load_relaxed((u64 *)pool_obj(pool, got[n]));
			if ((old & 1) || old >> 1 < lives[got[n]])
				model_fail("object %u begins a life that it had", got[n]);
			word[n] = old + 3;
			model_note(&lives[got[n]], word[n] >> 1);
			store_relaxed((u64 *)pool_obj(pool, got[n]), word[n]);
			n++;
		} else if (*s == 'p') {
			u32 idx = got[first++];

			if (data[idx] != i)
				model_fail("object %u was changed by another", idx);
			if (load_relaxed((u64 *)pool_obj(pool, idx)) != word[first - 1])
				model_fail("object %u was changed by one who is late", idx);
			store_relaxed((u64 *)pool_obj(pool, idx), word[first - 1] - 1);
			model_note(&owner[idx], 0);
			pool_put(pool, &cache[i], idx);
		} else if (*s == 'f') {
			pool_cache_flush(pool, &cache[i]);
		} else if (*s >= '1' && *s <= '9') {
			struct arena_range *r = &pool_full(pool)->obj;
			u64 pages = (u64)(*s - '0') * 4096;

			if (arena_commit(arena, r, pages))
				model_fail("no memory for %c pages", *s);
			if (mapping_now() < pages || load_relaxed(&r->committed) < pages)
				model_fail("%c pages are not mapped", *s);
		} else if (*s == 'm') {
			pool_trim();
		} else if (*s == 's') {
			old = word[first - 1];
			if (cas_relaxed((u64 *)pool_obj(pool, got[first - 1]), &old, ~0ull))
				model_fail("a change of object %u that is late",
					   got[first - 1]);
		}
	}
}

static void pool_check(void)
{
	u32 i, held = 0, n;

	for (i = 1; i <= OBJECTS; i++)
		held += owner[i] != 0;
	for (i = 0; i < THREADS; i++)
		held += cache[i].n + cache[i].nspare;
	n = pool_depot_count(pool);
	if (pg.grows && load_relaxed(&pool_full(pool)->obj.mapped) != load_relaxed(&mapping))
		model_fail("the length of a mapping is unknown");
	if (n == UINT32_MAX || n + held != pool_carved(pool))
		model_fail("%u objects in the depot, %u with threads, %u carved", n, held,
			   pool_carved(pool));
}

/* --- queues ------------------------------------------------------------------ */

static void queue_call(u32 i, const char **s)
{
	s64 prio = 0, got;
	u32 work, c, flags = 0;
	bool minus = **s == '-';

	if (**s == ' ')
		return;
	if (**s == '!') {
		store_release(&flag, 1);
		return;
	}
	if (**s == '?') {
		while (!load_acquire(&flag))
			cpu_relax();
		return;
	}
	if (**s == 'k') {
		u64 order;

		c = call_begin(i, 2, 0, LIMIT);
		work = 0;
		if (prioq_peek(pq, &got, &order)) {
			for (work = 1; work <= works; work++)
				if (order_of[work] == order &&
				    call[call_of[work]].rank == (u64)got)
					break;
			if (work > works)
				model_fail("a peek gives what never was there");
		}
		call_end(c, work);
		return;
	}
	if (**s == 'm') {
		exec_trim(x, &xt[i]);
		return;
	}
	if (**s == 'z') {
		lanes_unmark_empty(x, &xt[i]);
		return;
	}
	if (**s == 't' || **s == 'l') {
		got = **s == 'l' ? 5 : LIMIT;
		c = call_begin(i, 0, 0, got);
		work = pg.kind != PRIOQ ? exec_take(x, &xt[i]) :
			**s == 't' ? prioq_pop(pq, &pqc[i], &got) :
			prioq_pop_below(pq, &pqc[i], &got, UINT64_MAX);
		if (work && input[work] != work)
			model_fail("work %u came without its data", work);
		if (work)
			input[work] = 0;	/* only this thread uses it */
		call_end(c, work);
		return;
	}
	*s += minus;
	if (**s == 'F') {
		flags = EXEC_FRONT;
		prio = LIMIT - 1;
	} else {
		prio = **s - '0';
		prio = minus ? -prio : prio;
	}
	work = (u32)model_note(&works, works + 1) + 1;
	input[work] = work;
	c = call_begin(i, 1, work, prio);
	if (pg.kind != PRIOQ) {
		exec_push(q, &xt[i], work, flags ? 0 : (s32)prio, flags);
	} else {
		u64 order = model_stamp_next();

		if (pg.tall == 2)
			pqc[i].seed = seed_tall;
		model_note(&order_of[work], order);
		model_note(&call_of[work], c);
		if (!prioq_push(pq, &pqc[i], prio, order, work))
			model_fail("no node");
	}
	call_end(c, work);
}

static void queue_thread(u32 i)
{
	const char *s;

	for (s = part[i]; *s && *s != '|'; s++)
		queue_call(i, &s);
}

/* This take found nothing: fail if some work was available all the time. */
static void none_hidden(u32 empty)
{
	u32 i, k;

	for (i = 0; i < ncalls; i++) {
		if (call[i].push != 1 || !(call[empty].before & 1ull << i) ||
		    (s64)call[i].rank >= (s64)call[empty].rank)
			continue;
		for (k = 0; k < ncalls; k++)
			if (!call[k].push && call[k].work == call[i].work &&
			    (call[k].before & 1ull << empty))
				model_fail("a take did not find work %u", (u32)call[i].work);
	}
}

static void queue_check(void)
{
	u64 seen = 0;
	u32 i, work, none[1];
	s64 prio;

	do {
		u32 c = call_begin(pg.taker, 0, 0, LIMIT);

		work = pg.kind == PRIOQ ? prioq_pop(pq, &pqc[0], &prio) :
			exec_take(x, &xt[pg.taker]);
		call_end(c, work);
	} while (work);
	for (i = 0; i < ncalls; i++) {
		if (call[i].push || !call[i].work)
			continue;	/* `taken` has the results of takes */
		if (seen & 1ull << call[i].work)
			model_fail("work %u was taken twice", (u32)call[i].work);
		seen |= 1ull << call[i].work;
	}
	if ((u32)__builtin_popcountll(seen) != works)
		model_fail("work was lost: %llx of %u", (unsigned long long)seen, (u32)works);
	for (i = 0; i < ncalls; i++)
		if (!call[i].push && !call[i].work)
			none_hidden(i);
	if (pg.kind != LOOSE && !search(0, none, 0, pg.kind == PRIOQ))
		model_fail("no order explains what was taken");
}

/* The height that new_height() in exec/prioq.c will choose next. */
static u32 height(u64 seed)
{
	u64 z = seed + 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	z ^= z >> 31;
	return 1 + (u32)__builtin_ctzll(z | 1ull << 40) / 2;
}

/* The nodes that thread 0 needs if there is no memory for more. */
static void take_nodes(void)
{
	u32 idx[CALLS], n;

	for (n = 0; n < pg.nodes; n++)
		if (!pool_get(x->nodes, &xt[0].nodes.nodes, &idx[n]))
			model_fail("no node");
	while (n)
		pool_put(x->nodes, &xt[0].nodes.nodes, idx[--n]);
}

static void enter_thread(u32 i)
{
	const char *s;
	u64 seed;
	u32 idx;

	if (pg.kind == POOL && !i && pg.before) {
		part[0] = pg.before;
		pool_thread(0);
		part[0] = pg.text;
	}
	if (pg.kind == PRIOQ) {
		/* Allocated nodes, and seeds that choose one level and two. */
		pqc[i].seed = i;
		while (pg.tall && height(pqc[i].seed) != 2)
			pqc[i].seed++;
		seed = seed_tall = pqc[i].seed;
		if (!prioq_push(pq, &pqc[i], 0, 0, 1) || !prioq_pop(pq, &pqc[i], &(s64){ 0 }))
			model_fail("warm");
		pqc[i].seed = seed;
	} else if (pg.kind > RING) {
		if (exec_thread_init(x, &xt[i], pg.far ? (pg.threads - 1 - i) * 64 : i))
			model_fail("exec_thread_init");
		xt[i].batch = pg.batch ? pg.batch : 1;
		xt[i].nodes.seed = i;
		if (!pg.bare) {
			if (!lane_mine(q, &xt[i]))
				model_fail("lane");
			if (!pool_get(x->nodes, &xt[i].nodes.nodes, &idx))
				model_fail("warm");
			pool_put(x->nodes, &xt[i].nodes.nodes, idx);
			if (!i)
				take_nodes();
		}
	}
	if (pg.kind >= PRIOQ && i + 1 == pg.threads)
		for (s = pg.before; s && *s; s++)
			queue_call(0, &s);
	searching_now = i + 1 == pg.threads;
}

/* --- one ring ------------------------------------------------------------------ */

static void ring_ran(u32 work)
{
	if (model_note(&ran[work % CALLS], work))
		model_fail("taken twice");
}

static void ring_look_at(struct ring_look *look)
{
	if (!ring_peek(&ring, look))
		model_fail("a full ring looks empty");
	if (ring_claimer(look->head))
		hoard_open(&hoard, &ring.head, look->head);
}

static void ring_batches(void)
{
	struct ring_look look;
	u32 work, n;

	do {
		while ((work = hoard_take(&hoard)))
			ring_ran(work);
		ring_look_at(&look);
		n = ring_batch(&ring, &look, &hoard, 0, pg.batch);
	} while (!n);
	ring_ran(look.work);
}

static void ring_thread(u32 i)
{
	struct ring_look look;
	const char *s;
	u32 work;

	for (s = part[i]; *s && *s != '|'; s++) {
		if (*s == '+') {
			if (!ring_push(&ring, (u32)model_note(&works, works + 1) + 1))
				model_fail("the ring is full");
		} else if (*s == 't' || *s == 'k') {
			do
				ring_look_at(&look);
			while (*s == 't' && !ring_take(&ring, &look));
			if (*s == 't')
				ring_ran(look.work);
		} else if (*s == 'b') {
			ring_batches();
		} else if (*s == 'o') {
			ring_look_at(&look);
			work = hoard_take(&hoard);
			if (work)
				ring_ran(work);
		}
	}
}

static void ring_check(void)
{
	struct ring_look look;
	u32 n = 0, i;

	while ((i = hoard_take(&hoard)))
		ring_ran(i);
	for (i = 0; i <= CALLS; i++)
		n += ran[i] != 0;
	while (ring_peek(&ring, &look)) {
		if (look.work != n + 1)
			model_fail("element %u comes as number %u", look.work, n + 1);
		n++;
		if (!ring_take(&ring, &look))
			model_fail("take");
	}
	if (n != works)
		model_fail("%u elements of %u", n, (u32)works);
}

/* --- sleeping ------------------------------------------------------------------ */

static bool all_ran(void *arg)
{
	return load_acquire(&nran) == goal;
}

static bool flag_set(void *arg)
{
	return load_acquire(&flag);
}

static void sleep_thread(u32 i)
{
	struct exec_stats stats;
	const char *s;
	u32 work;

	for (s = part[i]; *s && *s != '|'; s++) {
		switch (*s) {
		case '+':
		case 'P':
			work = (u32)model_note(&works, works + 1) + 1;
			input[work] = work;
			exec_push(q, &xt[i], work, *s == 'P', 0);
			break;
		case 'm':
			work = (u32)model_note(&works, works + 1) + 1;
			input[work] = work;
			exec_push_more(q, &xt[i], work, 0, 0);
			break;
		case 'e':
			exec_pushed(q, &xt[i]);
			break;
		case 'w':
		case 'v':
		case 'b':
		case 'f':
			exec_wait(x, &xt[i], all_ran, NULL, -1,
				  *s == 'w' ? EXEC_HELP : *s == 'b' ? EXEC_BARE :
				  *s == 'f' ? EXEC_FAILED : EXEC_WAIT);
			for (work = 1; work <= goal; work++)
				if (output[work] != work)
					model_fail("work %u ran, and its output is not there", work);
			break;
		case '.':
			exec_wait(x, &xt[i], flag_set, NULL, 1000, true);
			break;
		case 'S':
			stopping = 1;
			exec_stop(x);
			break;
		case 's':
			exec_start(x);
			break;
		case 't':
		case 'r':
			work = *s == 'r' ? exec_take_ready(x, &xt[i]) : exec_take(x, &xt[i]);
			if (work)
				run_work(NULL, &xt[i], work);
			break;
		case 'Q':
			exec_stats(x, &stats);
			break;
		case 'u':
			told = 1;
			store_release(&flag, 1);
			exec_unpark(x, &xt[0]);
			break;
		case 'c':
		case 'h':
			exec_wait(x, &xt[i], flag_set, NULL, -1, *s == 'h');
			if (!told)
				model_fail("the flag is there without its data");
			break;
		}
	}
}

static void sleep_check(void)
{
	u32 work;

	if (pg.ready && nran != goal && !model_event_readable())
		model_fail("%u works ran of %u, and the descriptor is not readable", (u32)nran,
			   (u32)goal);
	while ((work = pg.ready ? exec_take_ready(x, &xt[0]) : exec_take(x, &xt[0])))
		run_work(NULL, &xt[0], work);
	if (pg.ready && model_event_readable())
		model_fail("the descriptor is readable, and no work is left");
	if (nran != goal)
		model_fail("%u works ran of %u", (u32)nran, (u32)goal);
}

/* --- rcu ------------------------------------------------------------------------- */

static struct rcu_object {
	struct rcu_defer rcu;
	u64 value;		/* plain */
} object[4];
static u64 shared[4];		/* A: address of an object, until it is removed */
static u64 removed;

static void object_end(struct rcu_defer *d)
{
	container_of(d, struct rcu_object, rcu)->value = 0;
}

static void rcu_thread(u32 i)
{
	const char *s;
	u32 k;

	for (s = part[i]; *s && *s != '|'; s++) {
		if (*s == 'r') {
			pool_rcu_lock();
			for (k = 0; k < 2; k++) {
				struct rcu_object *o = (void *)(uintptr_t)load_acquire(&shared[k]);

				if (o && o->value != 7)
					model_fail("a reader has an object that is gone");
			}
			pool_rcu_unlock();
		} else if (*s == 'd') {
			k = (u32)model_note(&removed, removed + 1);
			object[k].value = 7;
			store_release(&shared[k], (u64)(uintptr_t)&object[k]);
			(void)xchg_acq_rel(&shared[k], 0);
			pool_rcu_defer(&object[k].rcu, object_end);
		} else if (*s == 'e') {
			pool_rcu_reclaim();
		}
	}
}

static void rcu_check(void)
{
	u32 k;

	pool_rcu_reclaim();
	for (k = 0; k < removed; k++)
		if (object[k].value)
			model_fail("object %u was deferred, and is not gone", k);
}

#define S(name_, kind_, text_, fn, threads_, bound_, seconds_, ...)		\
	{ .name = name_, .what = text_, .threads = threads_, .setup = setup,	\
	  .enter = enter_thread, .thread = fn##_thread, .check = fn##_check,	\
	  .bound = bound_, .seconds = seconds_,					\
	  .arg = &(const struct program){ .kind = kind_, .text = text_, __VA_ARGS__ } }
/* With workers, which sleep at the end. */
#define W(name_, kind_, text_, fn, threads_, bound_, seconds_, ...)		\
	{ .name = name_, .what = text_, .threads = threads_, .setup = setup,	\
	  .enter = enter_thread, .thread = fn##_thread, .check = fn##_check,	\
	  .bound = bound_, .seconds = seconds_, .flags = MODEL_SLEEPS_OK,	\
	  .arg = &(const struct program){ .kind = kind_, .text = text_, __VA_ARGS__ } }

const struct scenario scenarios[] = {
	S("pool", POOL, "ggpp | ggpp", pool, 2, MODEL_ALL, 6),
	S("pool_flush", POOL, "ggppf | gpf", pool, 2, MODEL_ALL, 6),
	S("pool_3", POOL, "gpf | gpf | gpf", pool, 3, MODEL_ALL, 6),
	S("pool_carve", POOL, "ggg | ggg", pool, 2, MODEL_ALL, 6),
	S("pool_grow", POOL, "2 | 3", pool, 2, MODEL_ALL, 6, .grows = true),
	S("pool_grow_twice", POOL, "24 | 3", pool, 2, MODEL_ALL, 6, .grows = true),
	S("pool_grow_3", POOL, "2 | 3 | 3", pool, 3, MODEL_ALL, 6, .grows = true),
	S("pool_trim", POOL, "gpfm gpf | gpf", pool, 2, MODEL_ALL, 6),
	S("pool_trim_2", POOL, "m | gp", pool, 2, MODEL_ALL, 6, .before = "gggpppf"),
	S("pool_trims", POOL, "m g | m g", pool, 2, 3, 6, .before = "gggpppf"),
	S("pool_trim_late", POOL, "gpfsss | m gpf", pool, 2, 3, 6, .before = "gpf"),
	S("pool_trim_bits", POOL, "gpfm | gg", pool, 2, 3, 3, .before = "gpfm"),
	S("pool_trim_two", POOL, "gpfm | mgg", pool, 2, 2, 3, .before = "gpfm"),
	S("pool_trim_some", POOL, "gpfm | mgg", pool, 2, 2, 3, .before = "gggpp"),
	S("pool_stack", POOL, "g | gpf | g", pool, 3, MODEL_ALL, 6, .before = "gggpfpfpf"),
	S("prioq_push", PRIOQ, "1 t | 2 t", queue, 2, MODEL_ALL, 6),
	S("prioq_equal", PRIOQ, "1 1 | t t", queue, 2, MODEL_ALL, 6),
	S("prioq_reuse", PRIOQ, "3 | t 2", queue, 2, MODEL_ALL, 6, .before = "51"),
	S("prioq_reuse_2", PRIOQ, "t | t 2 t", queue, 2, MODEL_ALL, 6, .before = "511"),
	S("prioq_3", PRIOQ, "1 | 2 t | t", queue, 3, MODEL_ALL, 6),
	S("prioq_3x2", PRIOQ, "1 t | 1 t | 2 t", queue, 3, 3, 6),
	S("prioq_tall", PRIOQ, "1 t | 2 t", queue, 2, 4, 6, .tall = 1),
	S("prioq_tall_2", PRIOQ, "t 2 | t", queue, 2, MODEL_ALL, 6, .tall = 1, .before = "1"),
	S("ring_wrap", RING, "k | t | t+", ring, 3, MODEL_ALL, 6),
	S("ring_grow", RING, "+t | kt", ring, 2, MODEL_ALL, 6),
	S("ring", QUEUE, "0 0 | t t", queue, 2, MODEL_ALL, 6),
	S("ring_2", QUEUE, "0 t | 0 t", queue, 2, MODEL_ALL, 6),
	S("ring_3", QUEUE, "0 0 | t | t", queue, 3, MODEL_ALL, 6),
	S("ring_3x2", QUEUE, "0 0 | t t | 0 t", queue, 3, 3, 6),
	S("queue_prio", QUEUE, "0 1 | t t", queue, 2, MODEL_ALL, 6),
	S("queue_front", QUEUE, "0 F | -1 t", queue, 2, MODEL_ALL, 6),
	S("queue_low", QUEUE, "-1 0 | t t", queue, 2, MODEL_ALL, 6),
	S("queue_prio_3", QUEUE, "0 1 | t t | 1", queue, 3, 3, 6),
	S("queue_low_3", QUEUE, "-1 0 | t | -2 t", queue, 3, 3, 6),
	S("prioq_tall_3", PRIOQ, "t | t 2 | 3 t", queue, 3, 3, 6, .tall = 1, .before = "12"),
	S("prioq_tall_4", PRIOQ, "3 | t 1 t | t", queue, 3, 3, 6, .tall = 1, .before = "24"),
	S("batch_3", LOOSE, "t t t | t t | t 0", queue, 3, 3, 6, .batch = 4, .before = "00000"),
	S("batch_again", LOOSE, "t t | t t t | 0 0", queue, 3, 2, 6, .batch = 3, .before = "0000"),
	S("batch", LOOSE, "0 0 0 0 | t t | t", queue, 3, 3, 6, .batch = 4),
	S("batch_2", LOOSE, "0 0 0 t | t t", queue, 2, MODEL_ALL, 6, .batch = 4),
	S("park", SLEEP, "c | u", sleep, 2, MODEL_ALL, 6),
	S("park_time", SLEEP, ". | u", sleep, 2, MODEL_ALL, 6),
	S("park_help", SLEEP, "+w | w", sleep, 2, MODEL_ALL, 6),
	S("park_help_2", SLEEP, "w | +w", sleep, 2, MODEL_ALL, 6),
	S("park_push", SLEEP, "w | +", sleep, 2, MODEL_ALL, 6),
	S("park_push_2", SLEEP, "w | ++", sleep, 2, MODEL_ALL, 6),
	S("park_more", SLEEP, "w | +me", sleep, 2, MODEL_ALL, 6),
	S("park_more_3", SLEEP, "w | w | +me", sleep, 3, 3, 6),
	S("park_push_3", SLEEP, "w | w | ++", sleep, 3, 3, 6),
	S("park_meet", SLEEP, "w | w | ++", sleep, 3, 3, 6, .meet = 1),
	S("park_meet_2", SLEEP, "w | +w | +", sleep, 3, 3, 6, .meet = 1),
	S("park_meet_queues", SLEEP, "w | w | ++", sleep, 3, 3, 6, .meet = 1, .empty = 1),
	S("park_3", SLEEP, "w | w | +w", sleep, 3, 3, 6),
	S("park_3x2", SLEEP, "+w | +w | w", sleep, 3, 3, 6),
	W("worker", SLEEP, "+v", sleep, 1, MODEL_ALL, 6, .workers = 1),
	W("worker_prio", SLEEP, "PPv", sleep, 1, MODEL_ALL, 6, .workers = 1),
	S("park_prio", SLEEP, "w | P", sleep, 2, MODEL_ALL, 6),
	W("worker_2", SLEEP, "+v | +v", sleep, 2, 3, 6, .workers = 1),
	W("worker_1x2", SLEEP, "++v", sleep, 1, MODEL_ALL, 6, .workers = 1),
	W("worker_tidy", SLEEP, "+v", sleep, 1, MODEL_ALL, 6, .workers = 1, .tidy = 1),
	W("worker_tidy_2", SLEEP, "+v | +v", sleep, 2, 3, 6, .workers = 1, .tidy = 1),
	W("worker_tidy_stop", SLEEP, "+S | +", sleep, 2, 3, 6, .workers = 1, .tidy = 1),
	W("workers_meet", SLEEP, "++v", sleep, 1, 3, 6, .workers = 2, .meet = 1),
	W("workers_2", SLEEP, "++v", sleep, 1, 3, 6, .workers = 2),
	W("worker_stop", SLEEP, "+S", sleep, 1, MODEL_ALL, 6, .workers = 1),
	W("worker_stop_2", SLEEP, "+S | +", sleep, 2, 3, 6, .workers = 1),
	S("rcu", RCU, "rr | de", rcu, 2, MODEL_ALL, 6),
	S("rcu_2", RCU, "r | d | de", rcu, 3, MODEL_ALL, 6),
	S("prioq_peek", PRIOQ, "k k | t 2", queue, 2, MODEL_ALL, 6, .before = "51"),
	S("prioq_peek_2", PRIOQ, "k | t 2 t", queue, 2, MODEL_ALL, 6, .before = "511"),
	S("prioq_snip", PRIOQ, "1 | t | t | t", queue, 4, 2, 6, .before = "5"),
	S("prioq_tall_5", PRIOQ, "3 | t 1 t", queue, 2, MODEL_ALL, 6, .tall = 1, .before = "24"),
	S("prioq_tall_6", PRIOQ, "1 t | t 2 t", queue, 2, MODEL_ALL, 6, .tall = 1),
	S("ring_new_array", RING, "+tttt | k", ring, 2, MODEL_ALL, 6),
	S("ring_grow_2", QUEUE, "0 0 0 | t t", queue, 2, MODEL_ALL, 6),
	S("ring_grow_3", QUEUE, "0 0 0 | t t | t", queue, 3, 3, 6),
	S("shrink", QUEUE, "0 m 0 | t t", queue, 2, MODEL_ALL, 6, .before = "000ttt"),
	S("shrink_2", QUEUE, "t m 0 0 0 | t t", queue, 2, MODEL_ALL, 6, .before = "000tt"),
	S("shrink_3", QUEUE, "m 0 | t t | t", queue, 3, 3, 6, .before = "000tt"),
	S("shrink_batch", LOOSE, "m 0 0 0 m | t t t", queue, 2, MODEL_ALL, 6, .batch = 4,
	  .before = "000t"),
	S("shrink_later", QUEUE, "t 0 0 0 | m t", queue, 2, MODEL_ALL, 6, .before = "000tt"),
	S("hoard", RING, "bb | oo", ring, 2, MODEL_ALL, 6, .batch = 2),
	S("hoard_3", RING, "bb | tt", ring, 2, MODEL_ALL, 6, .batch = 2),
	S("hoard_2", RING, "bb | o | t", ring, 3, MODEL_ALL, 6, .batch = 2),
	S("prioq_tall_7", PRIOQ, "t 3 t | t 4 t", queue, 2, MODEL_ALL, 6, .tall = 2, .before = "54"),
	S("prioq_reuse_3", PRIOQ, "5 | t 5 t", queue, 2, MODEL_ALL, 6, .before = "55"),
	S("prioq_tall_8", PRIOQ, "t 5 t | t 5 t", queue, 2, MODEL_ALL, 6, .tall = 2, .before = "55"),
	W("workers_pass", SLEEP, "+++v", sleep, 1, 3, 6, .workers = 2, .meet = 2),
	W("workers_pass_2", SLEEP, "+++v | w", sleep, 2, 2, 6, .workers = 1, .meet = 2),
	W("worker_leave", SLEEP, "h | +u+v", sleep, 2, 3, 6, .workers = 1),
	S("lane", SLEEP, "w | +", sleep, 2, MODEL_ALL, 6, .bare = true),
	S("lane_2", QUEUE, "0 | 0 | t t", queue, 3, 3, 6, .bare = true),
	S("batch_tail", QUEUE, "0 ? 0 0 | 0 ! | t t t", queue, 3, 2, 6, .batch = 4, .taker = 2),
	S("batch_refill", LOOSE, "0 0 0 0 0 0 | t t t t | t t t", queue, 3, 2, 6, .batch = 4),
	S("batch_early", LOOSE, "0 0 0 | t t t", queue, 2, MODEL_ALL, 6, .batch = 4),
	S("batch_meet", SLEEP, "w | w | +++", sleep, 3, 2, 6, .batch = 4, .meet = 1),
	S("park_grow", SLEEP, "w | +++ | tt", sleep, 3, 3, 6),
	S("park_leave", SLEEP, "h | w | u+", sleep, 3, 3, 6),
	W("workers_help", SLEEP, "+ | + | w", sleep, 3, 2, 6, .workers = 1, .meet = 1),
	W("worker_start", SLEEP, "s | +v", sleep, 2, 3, 6, .workers = 1, .stopped = true),
	W("worker_again", SLEEP, "+Ss | + | w", sleep, 3, 2, 6, .workers = 1),
	W("worker_again_2", SLEEP, "+Ss | +v", sleep, 2, 3, 6, .workers = 1),
	W("worker_stats", SLEEP, "+Q | +v", sleep, 2, 3, 6, .workers = 1),
	S("worker_fail", SLEEP, "+w | +w", sleep, 2, MODEL_ALL, 6, .workers = 1, .own = true,
	  .no_threads = true),
	S("worker_fail_2", SLEEP, "+ | + | w | w", sleep, 4, 2, 6, .workers = 1, .own = true,
	  .no_threads = true, .meet = 1),
	S("bare_kinds", SLEEP, "b | w | ++", sleep, 3, 3, 6, .meet = 1),
	S("fail_wait", SLEEP, "+ | + | f | b", sleep, 4, 2, 6, .workers = 1, .own = true,
	  .no_threads = true, .meet = 1),
	S("bare_stop", SLEEP, "b | S+", sleep, 2, 3, 6, .workers = 1, .own = true),
	W("inside", SLEEP, "+++v", sleep, 1, 2, 6, .workers = 2, .own = true, .inside = 2),
	W("inside_2", SLEEP, "+ | +v", sleep, 2, 2, 6, .workers = 1, .own = true, .inside = 1),
	S("around", QUEUE, "0 t 0 t 0 t 0 t | 0 0 | 0", queue, 3, 2, 6),
	S("around_2", LOOSE, "0 t 0 t 0 t 0 t 0 t | t t", queue, 2, 3, 6, .batch = 3,
	  .before = "0000"),
	S("park_rest", SLEEP, "+v | w", sleep, 2, MODEL_ALL, 6),
	S("park_rest_2", SLEEP, "+v | +v | w", sleep, 3, 2, 6),
	S("own", QUEUE, "0 0 t t | t 0 t", queue, 2, MODEL_ALL, 6),
	S("own_batch", LOOSE, "0 0 0 t t t | t t", queue, 2, MODEL_ALL, 6, .batch = 4),
	S("batch_far", LOOSE, "t t z | t | t", queue, 3, 2, 6, .batch = 4, .before = "0000",
	  .bare = true, .far = true, .taker = 1),
	S("own_3", QUEUE, "0 t 0 t | 0 t | t t", queue, 3, 3, 6),
	S("zero", QUEUE, "0 0 0 | t t", queue, 2, MODEL_ALL, 6, .nodes = 3, .no_memory = true),
	S("zero_2", QUEUE, "0 0 0 | 0 | t t", queue, 3, 3, 6, .nodes = 3, .no_memory = true,
	  .taker = 2),
	S("zero_prio", QUEUE, "0 0 1 0 | t t", queue, 2, MODEL_ALL, 6, .nodes = 4,
	  .no_memory = true),
	S("zero_batch", QUEUE, "0 ? 0 0 | t t t ! t t t", queue, 2, MODEL_ALL, 6, .nodes = 4,
	  .no_memory = true, .batch = 4, .taker = 1, .before = "0000"),
	S("zero_seen", QUEUE, "0 0 0 t t t 0 0 0 | t", queue, 2, MODEL_ALL, 6, .nodes = 4,
	  .no_memory = true),
	S("zero_next", QUEUE, "0 0 0 0 t t ! t | ? t", queue, 2, MODEL_ALL, 6, .nodes = 4,
	  .no_memory = true),
	S("ready", SLEEP, "r | +", sleep, 2, MODEL_ALL, 6, .ready = true),
	S("ready_2", SLEEP, "rr | ++", sleep, 2, MODEL_ALL, 6, .ready = true),
	S("ready_3", SLEEP, "rr | rr | ++", sleep, 3, 3, 6, .ready = true),
	S("ready_3x2", SLEEP, "rr | + | +", sleep, 3, 3, 6, .ready = true),
	S("ready_prio", SLEEP, "r | P", sleep, 2, MODEL_ALL, 6, .ready = true),
	S("ready_wait", SLEEP, "r | w | +", sleep, 3, 3, 6, .ready = true),
	S("ready_leave", SLEEP, "h | r | u+", sleep, 3, 3, 6, .ready = true),
	S("prioq_below", PRIOQ, "l | t 2 l", queue, 2, MODEL_ALL, 6, .before = "511"),
	S("prioq_below_2", PRIOQ, "l | l 3 | 2 t", queue, 3, 3, 6, .before = "61"),
	S("prioq_below_3", PRIOQ, "3 l | l t", queue, 2, MODEL_ALL, 6, .tall = 2, .before = "64"),
	S("prioq_below_4", PRIOQ, "5 | l 5 l", queue, 2, MODEL_ALL, 6, .before = "54"),
	{ .name = NULL },
};
