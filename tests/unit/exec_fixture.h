/* SPDX-License-Identifier: Apache-2.0 */
/* An executor with a client that calls one function per piece of work; for tests of exec/. */
#ifndef TESTS_EXEC_FIXTURE_H
#define TESTS_EXEC_FIXTURE_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <exec/internal.h>

#include "hang.h"
#include "must.h"

/* Odd: behind an array of so many words is what the allocator needs, not padding. */
#define FIX_THREADS	81u
#define FIX_NEVER	(1ull << 50)	/* cycles: days */

struct fix {
	struct arena *arena;
	struct pool *works;		/* capacity: fix_reserve() */
	struct exec *x;
	struct exec_thread *t;		/* FIX_THREADS of them */
	u32 used;			/* A: slots that were ever used */
	u32 left[FIX_THREADS];		/* A: slot + 1 of workers that left, for reuse */
	void (*run)(struct fix *f, struct exec_thread *t, u32 work);
	u32 idles, enters, leaves, starts, stops;	/* A */
	bool refuse;			/* enter returns NULL */
	void *user;
};

static inline struct exec_thread *fix_thread(struct fix *f)
{
	u32 i, slot;

	for (i = 0; i < FIX_THREADS; i++) {
		if (load_relaxed(&f->left[i]) && (slot = xchg_acq_rel(&f->left[i], 0)))
			goto got;
	}
	slot = fetch_add_relaxed(&f->used, 1) + 1;
	MUST(slot <= FIX_THREADS);
got:
	MUST(!exec_thread_init(f->x, &f->t[slot - 1], slot - 1));
	return &f->t[slot - 1];
}

static inline void fix_leave(struct fix *f, struct exec_thread *t)
{
	exec_thread_fini(f->x, t);
	(void)xchg_acq_rel(&f->left[t->slot], t->slot + 1);
}

static inline void fix_run(void *user, struct exec_thread *t, u32 work)
{
	struct fix *f = user;

	f->run(f, t, work);
}

static inline struct exec_thread *fix_enter(void *user)
{
	struct fix *f = user;

	if (f->refuse)
		return NULL;
	fetch_add_relaxed(&f->enters, 1);
	return fix_thread(f);
}

static inline void fix_worker_leaves(void *user, struct exec_thread *t)
{
	struct fix *f = user;

	fetch_add_relaxed(&f->leaves, 1);
	fix_leave(f, t);
}

static inline void fix_idle(void *user, struct exec_thread *t)
{
	fetch_add_relaxed(&((struct fix *)user)->idles, 1);
}

static inline void fix_start(void *user, const char *name)
{
	fetch_add_relaxed(&((struct fix *)user)->starts, 1);
}

static inline void fix_stop(void *user, const char *name)
{
	fetch_add_relaxed(&((struct fix *)user)->stops, 1);
}

struct fix_opt {
	u64 spin_ns;
	u64 tidy_ns;
	bool (*tidy)(void *user, struct exec_thread *t);	/* user: the fixture */
	const int *cpus;
	u32 ncpus;
	u32 max_work;
	bool eager;
};

/* For a test that hangs: print the state of the last executor. */
static struct fix *fix_now;

static inline void fix_dump(void)
{
	struct exec_queue_stats qs;
	struct exec_stats s;
	char text[256];
	u32 i;
	int n;

	if (!fix_now || !fix_now->x)
		return;
	exec_stats(fix_now->x, &s);
	n = snprintf(text, sizeof(text), "executor: %u threads, %u workers entered, %u left, "
		     "stolen %llu handed %llu helped %llu sleeps %llu wakes %llu\n",
		     load_relaxed(&fix_now->used), load_relaxed(&fix_now->enters),
		     load_relaxed(&fix_now->leaves), (unsigned long long)s.stolen,
		     (unsigned long long)s.handed, (unsigned long long)s.helped,
		     (unsigned long long)s.sleeps, (unsigned long long)s.wakes);
	for (i = 0; n > 0 && write(2, text, (size_t)n) > 0 && i < fix_now->x->nqueues; i++) {
		struct exec_queue *q = fix_now->x->queues[i];

		exec_queue_stats(q, &qs);
		n = snprintf(text, sizeof(text), "queue %u %s: depth %llu, pushed %llu, "
			     "%u workers alive, attn %u, spin %u, run %u, stop %u\n", i, q->name,
			     (unsigned long long)qs.depth, (unsigned long long)qs.pushed,
			     load_relaxed(&q->alive), load_relaxed(&q->group.attn),
			     load_relaxed(&q->group.spin), load_relaxed(&q->run),
			     load_relaxed(&q->stop));
	}
}

static inline void fix_init(struct fix *f, const struct fix_opt *o)
{
	struct exec_client cl = {
		.user = f, .run = fix_run, .enter = fix_enter, .leave = fix_worker_leaves,
		.idle = fix_idle, .thread_start = fix_start, .thread_stop = fix_stop,
		.user2 = f, .tidy = o ? o->tidy : NULL,
	};
	struct exec_config cfg = {
		.max_threads = FIX_THREADS, .max_work = o && o->max_work ? o->max_work : 1u << 20,
		.spin_ns = o ? o->spin_ns : 20000, .tidy_ns = o ? o->tidy_ns : 0, .name = "t",
		.cpus = o ? o->cpus : NULL, .ncpus = o ? o->ncpus : 0, .eager = o && o->eager,
		.id = 7,
	};
	struct pool_desc d = { .name = "work", .size = 16, .max = cfg.max_work };

	memset(f, 0, sizeof(*f));
	MUST(!arena_create("test", &f->arena));
	MUST(!arena_add(f->arena, &d, &f->works));
	cfg.arena = f->arena;
	cfg.works = f->works;
	f->t = aligned_alloc(64, FIX_THREADS * sizeof(*f->t));
	MUST(f->t);
	memset(f->t, 0, FIX_THREADS * sizeof(*f->t));
	MUST(!exec_create(&cfg, &cl, &f->x));
	/* However slow the machine is, and however many lanes have work. */
	f->x->turn = FIX_NEVER;
	f->x->round = FIX_NEVER * FIX_THREADS;
	MUST(!arena_ready(f->arena, false));
	fix_now = f;
	if (&hang_says)
		hang_says = fix_dump;
}

/* Create works up to n, so that they can be pushed even if memory is refused later. */
static inline void fix_reserve(struct fix *f, u32 n)
{
	struct pool_cache *c = calloc(1, sizeof(*c));
	u32 idx = 0;

	while (idx < n)
		MUST(pool_get(f->works, c, &idx));
	free(c);
}

/*
 * Each take is the end of a turn, as after long work.  Otherwise a turn is longer than the test.
 */
static inline void takes_are_turns(struct fix *f)
{
	f->x->turn = f->x->check = 0;
}

static inline void fix_fini(struct fix *f)
{
	fix_now = NULL;
	exec_destroy(f->x);
	free(f->t);
	arena_destroy(f->arena);
}

static inline struct exec_queue *fix_queue(struct fix *f, const char *name, u32 workers,
					   bool drive)
{
	struct exec_queue *q;

	MUST(!exec_queue_add(f->x, name, workers, drive, &q));
	return q;
}

/* Work that increments *f->user. */
static inline void count_work(struct fix *f, struct exec_thread *t, u32 work)
{
	fetch_add_acq_rel((u32 *)f->user, 1);
}

/* A step of a wait, which uses little CPU time if there are many. */
static inline void wait_step(u32 *steps)
{
	/* Few yields: on a busy machine each takes as long as the slices of all others. */
	if (++*steps < 20)
		sched_yield();
	else
		usleep(50);
}

/* A gate on which work blocks until it opens. */
static inline void gate_wait(u32 *gate)
{
	u32 steps = 0;

	while (!load_acquire(gate))
		wait_step(&steps);
}

static inline void until(const u32 *word, u32 value)
{
	u32 steps = 0;

	while (load_acquire(word) != value)
		wait_step(&steps);
}

/* A test that hangs reports it, instead of waiting for its timeout. */
static inline void watchdog(unsigned int seconds)
{
	seconds = (patience_ms(seconds * 1000) + 999) / 1000;	/* alarm(0) is no limit */
	alarm(SANITIZED ? 10 * seconds : seconds);
}

#endif
