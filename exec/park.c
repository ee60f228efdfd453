// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: threads without work poll for a while and then sleep; other threads wake them.  A
 * thread that polled in vain several times in a row sleeps at once.
 *
 * Structures: each thread has a park word (struct exec_thread.park), on which it sleeps with
 * futex(2).  Only the owner sets it to PARKED and back to RUNNING.  The value PARKED + id names
 * the group in which the thread sleeps, so that a waker that read an old bitmap cannot claim
 * the thread for a group that it has left:
 *
 *	RUNNING -> PARKED     the owner is about to sleep
 *	PARKED -> CLAIMED     a waker has work for it, and counts it as a spinner
 *	PARKED -> NOTIFIED    exec_unpark()
 *	any -> RUNNING        the owner is awake
 *
 * A group is either the workers of one queue, or all other threads that run any work while they
 * wait, for all drive queues together (helpers), or those that serve queues without workers, for
 * these (servants).  It has a bitmap of the slots that sleep, the number of
 * sleepers (attn), and the number of spinners, the threads that poll for work.
 *
 * Ordering: no wake-up is lost.
 *
 *	pusher                                  thread that goes to sleep
 *	P1 publish the work (seq_cst)           park = PARKED; set bit
 *	   load attn (seq_cst)                  attn++
 *	                                        P2 smp_mb(); check all queues again
 *	   attn > 0: find a bit, claim          futex wait while park == PARKED
 *
 * Bad outcome: the pusher reads attn without the sleeper, and the sleeper's check misses the
 * work.  In the total order either "load attn" or the barrier is first.  If the load is first,
 * the check sees the work; if the barrier is first, the load counts the sleeper.  A pusher that
 * counts the sleeper also sees its bit and its park word (P9 <-> P10).
 *
 * Spinners.  A pusher that sees a spinner wakes no thread as long as its own backlog is small.
 * A thread stops being a spinner when it has found work, when it goes to sleep (it checks
 * again, P2), or when its condition came true or its time has passed.  In the first and the
 * last case, and if the check before the sleep found work, the last spinner wakes another
 * thread:
 *
 *	pusher                                  last spinner
 *	P3 publish the work (seq_cst)           P4 spin-- (seq_cst)
 *	   load spin (seq_cst)                     load attn (seq_cst): no sleeper: done
 *	                                           smp_mb(); queue not empty? wake one
 *
 * If the pusher read spin > 0, its load precedes the decrement, and the check of the queue sees
 * the work.  A waker counts the thread that it wakes as a spinner, so a claim is passed on in
 * the same way when the claimed thread leaves without taking work.  spin may be one too small
 * between the claim and its count; then one thread too many is woken.
 *
 * Limits: a claimed thread or a spinner that the system stops before it checks the queues
 * delays the wake-up of other sleepers until a push finds more than BACKLOG pieces of work in
 * its ring, or a waiting thread checks.  Running threads are never affected.  A waker that is
 * stopped between its CAS and its futex call delays the sleeper only briefly: of the next
 * wakers that find no other sleeper, one in LATE_EVERY repeats the call.
 *
 * A worker that sleeps for long tidies (client->tidy()) without leaving its group: wakers treat
 * it as a sleeper, and it checks between two steps whether it was claimed.
 *
 * Progress: polling is lock-free; sleeping is blocking, its purpose.
 *
 * Lifetime: exec_thread objects exist as long as the executor, so a late wake-up writes to
 * valid memory; a thread that is woken for nothing checks and sleeps again.
 *
 * References: futex(2); Go's runtime/proc.go, "Worker thread parking/unparking".
 */
#include <stdlib.h>
#include <base/futex.h>
#include <exec/internal.h>

enum { RUNNING, CLAIMED, NOTIFIED, PARKED };	/* PARKED + the id of a group, or + 0 */

/* Workers that sleep. */
static u32 attn_sleepers(u32 attn)
{
	return attn & (ATTN_RESERVE - 1);
}

/* And threads that sleep in the reserve. */
static u32 attn_all(u32 attn)
{
	return attn & ~ATTN_START;
}

bool group_init(struct exec_group *g, u32 id, u32 max_threads)
{
	g->id = id;
	g->bits = malloc(ck_bitmap_size(max_threads));
	if (g->bits)
		ck_bitmap_init(g->bits, max_threads, false);
	return g->bits;
}

void group_fini(struct exec_group *g)
{
	free(g->bits);
}

static void park_wake(struct exec *x, struct exec_thread *t)
{
	fetch_add_relaxed(&x->wakes, 1);
	if (x->spin)
		store_relaxed(&t->woken, cycles());	/* an estimate: idle_ended() */
	futex_wake(&t->park);
}

void exec_unpark(struct exec *x, struct exec_thread *t)
{
	u32 p;

	/*
	 * EXEC-P5 <-> EXEC-P6: the caller made a condition true; either the sleeper's last
	 * check sees that, or this thread sees PARKED.
	 */
	if (!BUSTED(UNPARK_NO_MB))
		smp_mb();
	p = load_relaxed(&t->park);
	if (p == RUNNING)
		return;
	if (p >= PARKED)
		cas_relaxed(&t->park, &p, NOTIFIED);
	/* CLAIMED, NOTIFIED: that waker may not have reached its futex call yet. */
	if (p != RUNNING)
		park_wake(x, t);
}

/* Wake one sleeper of g for work.  Returns false if no thread sleeps. */
static bool group_wake(struct exec *x, struct exec_group *g)
{
	ck_bitmap_iterator_t it;
	struct exec_thread *late = NULL;
	u32 slot;

	/*
	 * EXEC-P1 <-> EXEC-P2, EXEC-P10 <-> EXEC-P9: of the workers and the helpers, the caller
	 * may have read the count of one group only.
	 */
	if (!attn_sleepers(load_seq_cst(&g->attn)))
		return false;
	ck_bitmap_iterator_init(&it, g->bits);
	while (ck_bitmap_next(g->bits, &it, &slot)) {
		/* EXEC-P8 <-> EXEC-P7: the park word. */
		struct exec_thread *t = load_acquire(&x->threads[slot]);
		u32 p;

		/* This thread has not seen the sleeper's count yet, so P2 will see the work. */
		if (unlikely(!t))
			continue;
		p = load_relaxed(&t->park);
		if (p == PARKED + g->id && cas_relaxed(&t->park, &p, CLAIMED)) {
			/* Relaxed: see spin_begin(). */
			fetch_add_relaxed(&g->spin, 1);
			if (!BUSTED(CLAIM_NO_WAKE))
				park_wake(x, t);
			return true;
		}
		if (p == CLAIMED || p == NOTIFIED)
			late = t;
	}
	if (g == &x->helpers && ready_wake(x))
		return true;
	/* Its waker may have been stopped before the futex call, but usually was not. */
	if (!late || fetch_add_relaxed(&g->late, 1) % LATE_EVERY)
		return false;
	park_wake(x, late);
	return true;
}

/* Work of q waits: wake one more of its workers.  Progress: lock-free. */
void queue_wake_worker(struct exec_queue *q)
{
	group_wake(q->x, &q->group);
}

/* Was t woken from a sleep, and has not run since then? */
bool thread_woken(const struct exec_thread *t)
{
	u32 p = load_relaxed(&t->park);

	return p == CLAIMED || p == NOTIFIED;
}

/* q has work, and perhaps no thread polls for it: wake one.  Progress: lock-free. */
void queue_wake(struct exec_queue *q)
{
	u32 drive;

	if (group_wake(q->x, &q->group))
		return;
	drive = load_relaxed(&q->drive);
	if (drive && group_wake(q->x, &q->x->helpers))
		return;
	if ((drive & DRIVE_BARE) && group_wake(q->x, &q->x->servants))
		return;
	group_wake(q->x, &q->reserve);
}

/*
 * A push to q found attn not 0: create the workers if there are none yet, and wake a sleeper if
 * it is needed.  Progress: lock-free, and system calls.
 */
void queue_start_or_wake(struct exec_queue *q, struct exec_thread *t)
{
	struct exec *x = q->x;
	u32 drive;
	s32 spin;

	if (load_relaxed(&q->group.attn) & ATTN_START)
		queue_start(q);
	/*
	 * EXEC-P1 <-> EXEC-P2: drive_change().  push_wake() has not read it if attn was not 0, and
	 * queue_start() may have failed on another thread, which has not seen the work.
	 */
	drive = load_seq_cst(&q->drive);
	/*
	 * exec_push() may have read only one of the two words.
	 * EXEC-P10 <-> EXEC-P9 by EXEC-P1: the bits and park words of the counted sleepers.
	 */
	if (!attn_all(load_relaxed(&q->group.attn)) && !drive_attn(q, drive))
		return;
	/* EXEC-P3 <-> EXEC-P4 */
	spin = (s32)load_seq_cst(&q->group.spin);
	if (drive)	/* EXEC-P3 <-> EXEC-P4 */
		spin = (spin > 0 ? spin : 0) + (s32)load_seq_cst(&x->helpers.spin);
	if (unlikely(drive & DRIVE_BARE))	/* EXEC-P3 <-> EXEC-P4 */
		spin = (spin > 0 ? spin : 0) + (s32)load_seq_cst(&x->servants.spin);
	if (spin > 0) {
		struct exec_lane *l = load_relaxed(&q->lanes[t->slot]);
		u64 n = l ? load_relaxed(&l->ring.tail) - load_relaxed(&l->ring.head) : 0;

		if (spinners_suffice(n & RING_POS, (u32)spin))
			return;
	}
	queue_wake(q);
	t->woke = true;
}

static struct exec_group *thread_group(struct exec *x, struct exec_thread *t)
{
	return t->queue ? &t->queue->group : t->serves & DRIVE_HELP ? &x->helpers : &x->servants;
}

static void spin_begin(struct exec_group *g, struct exec_thread *t)
{
	/* Relaxed: a late increment costs a wake-up.  Only the decrement needs an order. */
	fetch_add_relaxed(&g->spin, 1);
	t->spinning = true;
}

/*
 * t no longer polls, and perhaps no other thread does: if work is left, wake one sleeper, which
 * does the same when it has found some.
 */
static void pass_on(struct exec *x, struct exec_thread *t)
{
	u32 i, n;

	if (t->queue) {
		struct exec_queue *q = t->queue;

		/* EXEC-P4 <-> EXEC-P3 */
		if (likely(!attn_all(load_seq_cst(&q->group.attn)) &&
			   !drive_attn(q, load_relaxed(&q->drive))))
			return;
		smp_mb();	/* EXEC-P4 <-> EXEC-P3 */
		if (!queue_empty(q))
			queue_wake(q);
		return;
	}
	n = x->nqueues;
	for (i = 0; i < n; i++) {
		struct exec_queue *q = x->queues[i];
		/* EXEC-P4 <-> EXEC-P3: a pusher counts t as a spinner if it has read this. */
		u32 drive = load_seq_cst(&q->drive);

		if (!(drive & t->serves))
			continue;
		/* EXEC-P4 <-> EXEC-P3 */
		if (likely(!attn_all(load_seq_cst(&q->group.attn)) && !drive_attn(q, drive)))
			continue;
		smp_mb();	/* EXEC-P4 <-> EXEC-P3 */
		if (!queue_empty(q))
			queue_wake(q);
	}
}

static void spin_end(struct exec *x, struct exec_group *g, struct exec_thread *t)
{
	bool last;

	t->spinning = false;
	/* EXEC-P4 <-> EXEC-P3 */
	last = (s32)fetch_add_seq_cst(&g->spin, -1u) <= 1;
	if (BUSTED(NO_PASS_ON))
		last = false;
	if (last)
		pass_on(x, t);
}

/* Beside the reasons of enum idle_end: the thread is still idle. */
enum { AGAIN = IDLE_DRIVEN + 1 };

/* The reason to stop being idle, other than work; or AGAIN. */
static int idle_reason(struct exec *x, struct exec_thread *t, const struct idle *how)
{
	if (how->cond) {
		if (how->cond(how->arg))
			return IDLE_COND;
		if (unlikely(load_relaxed(&x->driven) != how->driven))
			return IDLE_DRIVEN;
	} else if (load_acquire(&t->queue->stop)) {	/* EXEC-W6 <-> EXEC-W5 */
		return IDLE_STOP;
	}
	return AGAIN;
}

/*
 * Poll for `spin` cycles.  Between two polls the thread leaves the producers'
 * cache lines alone for a while, and for longer the longer nothing came.  From time to time it
 * yields its CPU to other threads, which may be the one that it waits for; at once if it has
 * just woken one, because Linux may have queued that one behind it.  It does not yield if its
 * last sleep was long, since it will probably sleep again: Linux treats a yield as a slice that
 * was used up, and schedules a thread that yields and then sleeps milliseconds late when it is
 * woken.
 *
 * Where other programs want all CPUs, a yield gives one of them a slice of milliseconds, but a
 * sleeper that is woken runs soon.  So after a yield that took long the thread sleeps in its
 * place, the more often the more yields in a row took long.
 */
static int idle_spin(struct exec *x, struct exec_thread *t, const struct idle *how, u64 spin,
		     u32 look, u32 *work)
{
	u64 start = cycles(), now;
	u64 yielded = t->woke ? start - x->yield : start;
	int r;

	t->woke = false;
	for (;;) {
		if (unlikely(how->in)) {
			*work = inside_take(x, t, how->in);
			if (*work)
				return IDLE_WORK;
		} else if (how->help && thread_may_take(x, t, look)) {
			*work = thread_take(x, t, look);
			if (likely(*work))
				return IDLE_WORK;
		}
		r = idle_reason(x, t, how);
		if (r != AGAIN)
			return r;
		now = cycles();
		if (t->left) {
			/* No thread wakes t for the work that it left. */
			start = t->idle = now;
			spin = x->spin;
		}
		if (now - start >= spin)
			return AGAIN;
		if (how->deadline && exec_now_ns() >= how->deadline)
			return IDLE_TIME;
		if (t->queue)
			look |= LOOK_LEAVE;
		if (now - start > x->steal)
			look |= LOOK_DEEP;
		if (now - yielded >= x->yield && !t->rested) {
			if (t->crowded && !how->polls) {
				t->crowded--;
				return AGAIN;
			}
			os_thread_yield();
			yielded = cycles();
			yield_took(x, t, yielded - now);
			continue;
		}
		poll_pause(x, now - start);
	}
}

bool exec_wanted(const struct exec_thread *t)
{
	return load_relaxed(&t->park) < PARKED;
}

/*
 * The time has come: one of the threads that see it looks.  The next time is before the end of a
 * sleep that begins now.  Progress: as client->look().
 */
void look_due(struct exec *x, u64 now)
{
	u64 due = load_relaxed(&x->look);

	if (now >= due && cas_relaxed(&x->look, &due, now +
				      ns_to_cycles(exec_cycles_per_us(), x->look_ns / 2)))
		x->cl.look(x->cl.user);
}

void exec_look_now(struct exec *x)
{
	look_check(x, cycles());
}

/* The earlier of two times, of which 0 is none. */
static u64 sooner(u64 a, u64 b)
{
	return !a || (b && b < a) ? b : a;
}

/*
 * Sleep until another thread changes park, or the time has passed.  A worker that has slept for
 * tidy_ns stays in its group while it tidies, and each thread while it looks, so that it is
 * claimed as a sleeper is.
 */
static int park_sleep(struct exec *x, struct exec_thread *t, const struct idle *how, u32 parked,
		      bool watches)
{
	u64 tidy = x->tidy_ns && !how->cond ? exec_now_ns() + x->tidy_ns : 0;
	u64 until = watches ? exec_now_ns() + UNTOUCHED_NS : how->deadline;
	u64 look = x->look_ns ? exec_now_ns() + x->look_ns : 0, wake;
	int rc;

	if (how->deadline && how->deadline < until)
		until = how->deadline;
	for (;;) {
		wake = sooner(sooner(until, tidy), look);
		rc = how->intr ? futex_wait_intr(&t->park, parked, wake) :
		     futex_wait(&t->park, parked, wake);
		if (load_relaxed(&t->park) != parked)
			return AGAIN;
		if (rc && how->intr)
			return IDLE_INTR;
		if (until && exec_now_ns() >= until)
			return AGAIN;
		if (tidy && exec_now_ns() >= tidy)
			tidy = x->cl.tidy(x->cl.user, t) ? 0 : exec_now_ns() + x->tidy_ns;
		if (look && exec_now_ns() >= look) {
			exec_look_now(x);
			look = exec_now_ns() + x->look_ns;
		}
	}
}

/* Sleep until something happens, unless a last check finds a reason not to. */
static int idle_park(struct exec *x, struct exec_thread *t, const struct idle *how,
		     struct exec_group *g, u32 *work)
{
	u32 parked = PARKED + (g ? g->id : 0);
	bool watches = how->in && how->in->takes && !g;
	int r = AGAIN;

	lanes_unmark_empty(x, t);
	store_relaxed(&t->park, parked);
	if (g) {
		ck_bitmap_set(g->bits, t->slot);
		/* EXEC-P9 <-> EXEC-P10: a thread that sees the count sees bit and park. */
		fetch_add_release(&g->attn, 1);
		if (how->in)	/* EXEC-P9 <-> EXEC-P10: a push reads this word alone */
			fetch_add_release(&how->in->queue->group.attn, ATTN_RESERVE);
		if (t->spinning) {
			t->spinning = false;
			/* EXEC-P4 <-> EXEC-P3 by EXEC-P6: the barrier below */
			fetch_add_relaxed(&g->spin, -1u);
		}
	}
	/*
	 * EXEC-P2 <-> EXEC-P1: work that was published before attn was read;
	 * EXEC-P6 <-> EXEC-P5: a condition that came true before park was read.
	 */
	if (!BUSTED(PARK_NO_MB))
		smp_mb();
	if (!BUSTED(PARK_NO_COND))
		r = idle_reason(x, t, how);
	if (r == AGAIN && how->in) {
		*work = inside_take(x, t, how->in);
		if (*work)
			r = IDLE_WORK;
	} else if (r == AGAIN && how->help) {
		if (!BUSTED(PARK_NO_LOOK))
			*work = thread_take(x, t, LOOK_DEEP);
		if (*work)
			r = IDLE_WORK;
	}
	if (r == AGAIN && how->deadline && exec_now_ns() >= how->deadline)
		r = IDLE_TIME;
	/* It has seen work that it leaves to workers: it watches that. */
	if (r == AGAIN && !(g && how->in && how->in->since)) {
		u64 start = cycles();

		count(&t->sleeps);
		PROBE3(park, t->id, t->slot, t->queue ? (s32)t->queue->number : -1);
		r = park_sleep(x, t, how, parked, watches);
		PROBE3(wake, t->id, t->slot, t->queue ? (s32)t->queue->number : -1);
		t->rested = cycles() - start > x->rest;
	}
	/*
	 * A waker that claimed this thread counted it as a spinner.  Otherwise count it again:
	 * while it was a spinner, a pusher may have left it more than the one piece of work
	 * that it found, and then spin_end() wakes a thread for the rest (P4). Relaxed: the
	 * claim publishes nothing; the work was re-checked after P2.
	 */
	if (xchg_relaxed(&t->park, RUNNING) == CLAIMED)
		t->spinning = true;
	else if (g && r != AGAIN && !how->in)
		spin_begin(g, t);
	if (how->in && t->spinning) {
		/* Of the reserve no thread polls; inside_pass() passes the claim on. */
		t->spinning = false;
		if (g)
			fetch_add_relaxed(&g->spin, -1u);
	}
	if (g) {
		/* Relaxed: a waker that sees an old bit fails, because of the park word. */
		ck_bitmap_reset(g->bits, t->slot);
		fetch_add_relaxed(&g->attn, -1u);
		if (how->in)
			fetch_add_relaxed(&how->in->queue->group.attn, -ATTN_RESERVE);
	}
	return r;
}

/*
 * t found no work: wait for what `how` says.  Returns why the wait ended; *work is set for
 * IDLE_WORK.  Progress: blocking (its purpose).
 */
enum idle_end thread_idle(struct exec *x, struct exec_thread *t, const struct idle *how,
			  u32 *work)
{
	struct exec_group *g = how->help ? thread_group(x, t) : NULL;
	u64 spin = t->naps && !how->polls ? 0 : x->spin;
	bool parked = false;
	int r;

	t->idle = cycles();
	look_check(x, t->idle);
	t->check = t->takes + 1;	/* of the next work it is not known how long it runs */
	do {
		if (how->in)
			g = inside_group(x, how->in);
		else if (g && !t->spinning)
			spin_begin(g, t);
		/* A thread that was woken takes what it finds. */
		r = idle_spin(x, t, how, spin, t->queue && !parked ? LOOK_LEAVE : 0, work);
		if (r == AGAIN) {
			parked = true;
			r = idle_park(x, t, how, g, work);
		}
	} while (r == AGAIN);
	t->left = false;
	if (!parked)
		t->rested = false;
	if (r == IDLE_WORK || r == IDLE_COND)
		idle_ended(x, t, parked);
	if (t->spinning)
		spin_end(x, g, t);
	return (enum idle_end)r;
}
