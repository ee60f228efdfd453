// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: threads that have nothing to do: look for a while, then sleep; and those
 * that wake them.
 *
 * Structures: a park word per thread (struct exec_thread.park), on which it sleeps by
 * futex.  Only its owner sets it to PARKED and back to RUNNING.  PARKED + id names the
 * group in which it sleeps, so that a waker with an old bit in its hands cannot claim it
 * for a group that it has left:
 *
 *	RUNNING -> PARKED     owner: about to sleep
 *	PARKED -> CLAIMED     a waker, for work; it counts the thread as a spinner
 *	PARKED -> NOTIFIED    exec_unpark()
 *	any -> RUNNING        owner: awake
 *
 * Groups: the workers of a queue; and all other threads that help while they
 * wait, for all drive queues together.  A group has a bitmap of the slots that sleep,
 * its number of sleepers (attn), and its number of spinners, threads that look for work.
 *
 * Ordering: no wake-up is lost.
 *
 *	pusher                                  thread that goes to sleep
 *	P1 publish the work (seq_cst)           park = PARKED; set bit
 *	   load attn (seq_cst)                  attn++
 *	                                        P2 smp_mb(); look at all queues again
 *	   attn > 0: find a bit, claim          futex wait while park == PARKED
 *
 * Bad outcome: attn read as without the sleeper, and the look misses the work.  Both
 * cannot be, whichever of "load attn" and the barrier is first in the total order: the
 * first gives way to the second.  If attn was read with the sleeper counted, then
 * its bit and park word are visible too (P9 <-> P10).
 *
 * Spinners.  A pusher that sees a spinner does not wake anybody, as long as its own
 * backlog is small.  The thread that ceases to be a spinner does so in one of three ways:
 * it found work; it goes to sleep (then it looks again, P2); its condition came true or
 * its time is over.  In the first and third, if it was the last (and in the second, if its
 * look found anything, as in the first):
 *
 *	pusher                                  last spinner
 *	P3 publish the work (seq_cst)           P4 spin-- (seq_cst)
 *	   load spin (seq_cst)                     load attn (seq_cst): nobody sleeps? over
 *	                                           smp_mb(); queue not empty? wake one
 *
 * If the pusher read spin > 0, its load is before the decrement, and the look sees
 * the work.  The woken one is counted as a spinner by its waker, so this also hands a
 * claim on, when a claimed thread leaves without taking work.  spin may
 * be one too small between the claim and its count: then somebody is woken too many.
 *
 * What this cannot do: a claim, or a spinner, that is stopped by the system
 * before it looks holds back the wake-up of others who sleep, until a push finds more
 * than BACKLOG works of its ring in front, or a waiting thread looks.  Threads that run
 * are never affected.  A waker that is stopped between its CAS and its futex call
 * holds up nobody for long: of the next wakers that find nobody else, one in LATE_EVERY
 * repeats the call.
 *
 * Progress: looking is lock-free; sleeping is blocking, that is its purpose.
 *
 * Lifetime: exec_thread objects stay as long as the executor, so a late wake-up
 * touches a live word; a thread that is woken for nothing looks and sleeps again.
 *
 * References: futex(2); Go's runtime/proc.go, "Worker thread parking/unparking".
 */
#include <stdlib.h>
#include <base/futex.h>
#include <exec/internal.h>

enum { RUNNING, CLAIMED, NOTIFIED, PARKED };	/* and above: the group's id + 1, or 0 */

#define LATE_EVERY	128u	/* failures to find a sleeper, to a repeated futex call */
#define BACKLOG		16u	/* works per spinner that a pusher leaves to spinners */

static u32 attn_sleepers(u32 attn)
{
	return attn & ~ATTN_START;
}

bool group_init(struct exec_group *g, u32 id, u32 max_threads)
{
	g->id = id;
	g->bits = calloc((max_threads + 63) / 64, sizeof(u64));
	return g->bits;
}

void group_fini(struct exec_group *g)
{
	free(g->bits);
}

static void park_wake(struct exec *x, u32 *word)
{
	fetch_add_relaxed(&x->wakes, 1);
	futex_wake(word);
}

void exec_unpark(struct exec *x, struct exec_thread *t)
{
	u32 p;

	/*
	 * EXEC-P5 <-> EXEC-P6: the caller made a condition true; either the sleeper's last
	 * look at it sees that, or we see PARKED.
	 */
	if (!BUSTED(UNPARK_NO_MB))
		smp_mb();
	p = load_relaxed(&t->park);
	if (p == RUNNING)
		return;
	if (p >= PARKED)
		cas_relaxed(&t->park, &p, NOTIFIED);
	/* CLAIMED, NOTIFIED: who set that may not have got to its futex call yet. */
	if (p != RUNNING)
		park_wake(x, &t->park);
}

/*
 * Wake one sleeper of g for work.  False: nobody sleeps.  attn is relaxed here: callers have
 * read it with seq_cst (EXEC-P10), or come from a barrier.
 */
static bool group_wake(struct exec *x, struct exec_group *g)
{
	u32 i, words = (x->max_threads + 63) / 64;
	u32 *late = NULL;

	if (!attn_sleepers(load_relaxed(&g->attn)))
		return false;
	for (i = 0; i < words; i++) {
		/* EXEC-P8 <-> EXEC-P7: whose bit that is. */
		u64 b = load_acquire(&g->bits[i]);

		for (; b; b &= b - 1) {
			u32 slot = i * 64 + (u32)__builtin_ctzll(b);
			struct exec_thread *t = load_relaxed(&x->threads[slot]);
			u32 p = load_relaxed(&t->park);

			if (p == PARKED + g->id && cas_relaxed(&t->park, &p, CLAIMED)) {
				/* Relaxed: see spin_begin(). */
				fetch_add_relaxed(&g->spin, 1);
				if (!BUSTED(CLAIM_NO_WAKE))
					park_wake(x, &t->park);
				return true;
			}
			if (p == CLAIMED || p == NOTIFIED)
				late = &t->park;
		}
	}
	/* Its waker may have been stopped on the way; mostly it has not. */
	if (!late || fetch_add_relaxed(&g->late, 1) % LATE_EVERY)
		return false;
	park_wake(x, late);
	return true;
}

/* There is work in q, and perhaps nobody looks for it.  Progress: lock-free. */
void queue_wake(struct exec_queue *q)
{
	if (!group_wake(q->x, &q->group) && load_relaxed(&q->drive))
		group_wake(q->x, &q->x->helpers);
}

/* A push found attn of one of its groups set.  Progress: lock-free, and system calls. */
void queue_attention(struct exec_queue *q, struct exec_thread *t)
{
	struct exec *x = q->x;
	bool drive = load_relaxed(&q->drive);
	s32 spin;

	if (load_relaxed(&q->group.attn) & ATTN_START)
		queue_start(q);
	/*
	 * EXEC-P1 <-> EXEC-P2: exec_push() may have looked at one of them only.
	 * EXEC-P10 <-> EXEC-P9: bits and park words of those who are counted, here and there.
	 */
	if (!attn_sleepers(load_relaxed(&q->group.attn)) &&
	    !(drive && attn_sleepers(load_seq_cst(&x->helpers.attn))))
		return;
	/* EXEC-P3 <-> EXEC-P4 */
	spin = (s32)load_seq_cst(&q->group.spin);
	if (drive)
		spin = (spin > 0 ? spin : 0) + (s32)load_seq_cst(&x->helpers.spin);
	if (spin > 0) {
		struct exec_lane *l = load_relaxed(&q->lanes[t->slot]);

		if (!l || ((load_relaxed(&l->ring.tail) - load_relaxed(&l->ring.head)) & RING_POS) <=
		    BACKLOG * (u32)spin)
			return;
	}
	queue_wake(q);
}

static struct exec_group *thread_group(struct exec *x, struct exec_thread *t)
{
	return t->queue ? &t->queue->group : &x->helpers;
}

static void spin_begin(struct exec_group *g, struct exec_thread *t)
{
	/* Relaxed: seen late, it means one wake-up more.  What counts is when it ends. */
	fetch_add_relaxed(&g->spin, 1);
	t->spinning = true;
}

/*
 * t looks no more, and perhaps nobody does: if there is work left, one sleeper is woken,
 * who does the same when he has found some.
 */
static void pass_on(struct exec *x, struct exec_thread *t)
{
	u32 i, n;

	if (t->queue) {
		struct exec_queue *q = t->queue;

		if (likely(!attn_sleepers(load_seq_cst(&q->group.attn)) &&
			   !(load_relaxed(&q->drive) && load_seq_cst(&x->helpers.attn))))
			return;
		smp_mb();
		if (!queue_empty(q))
			queue_wake(q);
		return;
	}
	n = x->nqueues;
	for (i = 0; i < n; i++) {
		struct exec_queue *q = x->queues[i];

		if (!load_relaxed(&q->drive))
			continue;
		if (likely(!attn_sleepers(load_seq_cst(&q->group.attn)) &&
			   !load_seq_cst(&x->helpers.attn)))
			continue;
		smp_mb();
		if (!queue_empty(q))
			queue_wake(q);
	}
}

static void spin_end(struct exec *x, struct exec_group *g, struct exec_thread *t)
{
	t->spinning = false;
	/* EXEC-P4 <-> EXEC-P3 */
	if ((s32)fetch_add_seq_cst(&g->spin, -1u) <= 1 && !BUSTED(NO_PASS_ON))
		pass_on(x, t);
}

/* What an idle thread waits for; AGAIN: nothing yet. */
enum { AGAIN = IDLE_DESERTED + 1 };

static bool deserted(struct exec *x, const struct idle *how)
{
	return how->relents && load_relaxed(&x->deserted);
}

static int idle_over(struct exec *x, struct exec_thread *t, const struct idle *how)
{
	if (how->cond) {
		if (how->cond(how->arg))
			return IDLE_COND;
		if (unlikely(deserted(x, how)))
			return IDLE_DESERTED;
	} else if (load_acquire(&t->queue->stop)) {
		return IDLE_STOP;
	}
	return AGAIN;
}

/*
 * Look for the budget.  Between two looks the thread leaves the producers' lines alone
 * for a while, the longer the longer nothing came; and from time to time it offers
 * its CPU to others that have something to do, the awaited one perhaps.  Not if it slept
 * for long the last time, and so will probably sleep now: Linux counts a yield as a slice
 * that was used up, and lets in a thread that yields and then sleeps milliseconds late
 * when it is woken.
 */
static int idle_spin(struct exec *x, struct exec_thread *t, const struct idle *how, u32 look,
		     u32 *work)
{
	u64 start = cycles(), yielded = start, now;
	int r;

	for (;;) {
		if (how->help && thread_hint(x, t, look)) {
			*work = thread_look(x, t, look);
			if (likely(*work))
				return IDLE_WORK;
		}
		r = idle_over(x, t, how);
		if (r != AGAIN)
			return r;
		now = cycles();
		if (t->left)
			start = now;	/* nobody would wake it for what it leaves */
		if (now - start >= x->spin)
			return AGAIN;
		if (how->deadline && exec_now_ns() >= how->deadline)
			return IDLE_TIME;
		if (t->queue)
			look |= LOOK_LEAVE;
		if (now - start > x->steal)
			look |= LOOK_DEEP;
		if (now - yielded >= x->yield && !t->rested) {
			os_thread_yield();
			yielded = cycles();
			continue;
		}
		cpu_relax();
		if (now - start > x->relax)
			cpu_relax();
		if (now - start > 4 * x->relax)
			cpu_relax();
	}
}

static int idle_park(struct exec *x, struct exec_thread *t, const struct idle *how,
		     struct exec_group *g, u32 *work)
{
	u64 bit = 1ull << (t->slot & 63);
	u64 *bits = g ? &g->bits[t->slot >> 6] : NULL;
	u32 parked = PARKED + (g ? g->id : 0);
	int r;

	lanes_rest(x, t);
	store_relaxed(&t->park, parked);
	if (g) {
		/* EXEC-P7 <-> EXEC-P8: x->threads[] before the bit. */
		fetch_or_release(bits, bit);
		/* EXEC-P9 <-> EXEC-P10: bit and park, for who sees the count. */
		fetch_add_release(&g->attn, 1);
		if (t->spinning) {
			t->spinning = false;
			fetch_add_relaxed(&g->spin, -1u);	/* EXEC-P4 <-> EXEC-P3: by the barrier */
		}
	}
	/*
	 * EXEC-P2 <-> EXEC-P1: work that was published before attn was read;
	 * EXEC-P6 <-> EXEC-P5: a condition that came true before park was read.
	 */
	if (!BUSTED(PARK_NO_MB))
		smp_mb();
	r = BUSTED(PARK_NO_COND) ? AGAIN : idle_over(x, t, how);
	if (r == AGAIN && how->help && !BUSTED(PARK_NO_LOOK) && (*work = thread_look(x, t, LOOK_DEEP)))
		r = IDLE_WORK;
	if (r == AGAIN && how->deadline && exec_now_ns() >= how->deadline)
		r = IDLE_TIME;
	if (r == AGAIN) {
		u64 start = cycles();

		count(&t->sleeps);
		do
			futex_wait(&t->park, parked, how->deadline);
		while (load_relaxed(&t->park) == parked &&
		       !(how->deadline && exec_now_ns() >= how->deadline));
		t->rested = cycles() - start > x->rest;
	}
	/*
	 * Who claimed us counted us among the spinners.  And a pusher may have left more
	 * to us, while we were one, than the one piece of work that we found: count again,
	 * so that spin_end() looks what is left and hands it on (P4).
	 */
	/* Relaxed: nothing comes with the claim; what for it came is looked at again, by P2. */
	if (xchg_relaxed(&t->park, RUNNING) == CLAIMED)
		t->spinning = true;
	else if (g && r != AGAIN)
		spin_begin(g, t);
	if (g) {
		/* Relaxed: seen late, a waker tries for nothing; the park word tells. */
		fetch_and_relaxed(bits, ~bit);
		fetch_add_relaxed(&g->attn, -1u);
	}
	return r;
}

/*
 * Nothing was there for t: wait for what `how` says.
 * Progress: blocking (its purpose).
 */
enum idle_end thread_idle(struct exec *x, struct exec_thread *t, const struct idle *how,
			  u32 *work)
{
	struct exec_group *g = how->help ? thread_group(x, t) : NULL;
	bool parked = false;
	int r;

	do {
		if (g && !t->spinning)
			spin_begin(g, t);
		/* Who was woken takes what it finds. */
		r = idle_spin(x, t, how, t->queue && !parked ? LOOK_LEAVE : 0, work);
		if (r == AGAIN) {
			parked = true;
			r = idle_park(x, t, how, g, work);
		}
	} while (r == AGAIN);
	t->left = false;
	if (!parked)
		t->rested = false;
	if (t->spinning)
		spin_end(x, g, t);
	else if (g)
		pass_on(x, t);	/* the look before sleep took one work, and there may be more */
	return (enum idle_end)r;
}
