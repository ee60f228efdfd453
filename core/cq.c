// SPDX-License-Identifier: Apache-2.0
/*
 * Completion queues, and the notes of ops.
 *
 * Purpose: a host learns of completed ops in its own event loop, gives ops deadlines, and
 * cancels them.  What an op needs for that is in a note, a small object that only such ops
 * have: a completion queue and a tag, a deadline, a ticket.
 *
 * Structures: a queue is a stack of notes.  A completer adds a note at its head by a
 * compare-and-swap; the reaper takes all of them by an exchange and reverses their order.  The
 * push reserves the note, so a completion always has room.  The completer that finds the stack
 * empty notifies the host: it wakes the thread that waits for the queue, and writes to the
 * queue's eventfd.  Then it sets TOLD in the head.  A completer that finds the stack without
 * TOLD notifies the host, too, because the one before it may be stopped.
 *
 *	completer                               thread that goes to sleep, or makes the fd
 *	CQ1 add the note to the stack           CQ3 waiter = slot, or fd = n
 *	    smp_mb() (CORE-Q11)                     smp_mb() (CORE-Q12; exec/park.c, or here)
 *	CQ2 read waiter and fd                  CQ4 read `ready`, and the stack
 *
 * Bad outcome: CQ2 reads neither the waiter nor the fd, and CQ4 does not read the note.  The
 * two barriers forbid it.
 *
 * A reaper moves notes from the stack to `ready`.  A thread at CQ4 may read `ready` before the
 * move and the stack after it, and miss the notes; their completers may have notified no
 * thread, because that one had not stored its slot yet.  So a reaper that leaves notes notifies
 * like a completer; its CQ1 is the store to `ready`.  One that leaves none has a barrier, too,
 * before it reads the fd: a thread that makes it may have read `ready` before that store, and
 * written to an fd that the reaper must then clear.  The CQ1 of pawl_cq_destroy() is the end of
 * the generation, which CQ4 also reads.
 *
 * The reaper clears the eventfd before it takes the stack, so the completer of a note that is
 * added later writes to it again.  `written` counts the writes that have begun and are not
 * cleared: a completer increments it before the write, and a read of the eventfd returns how
 * many writes it cleared.  So `written` is not 0 while the eventfd is readable, nor while a
 * completer has yet to make it readable.  A reaper that empties the queue clears the eventfd
 * again, and so does a completer whose note was reaped before it wrote; each then checks the
 * queue once more (cq_settle()).  So when no call is in progress, the eventfd is readable if and
 * only if there is a completion to reap.
 *
 * A ticket is {generation, index} of a note.  The generation changes when an op receives a
 * ticket, so a ticket of an earlier generation names a complete op.  Without a ticket no other
 * thread cancels the op or waits for it, and its state needs no read-modify-write.
 *
 * Ordering: CORE-Q1 (note added, release) <-> CORE-Q2 (stack taken, acquire): tag, status, and
 * what the op did.  CORE-Q3 (state, release) <-> CORE-Q4 (state, acquire): a thread that finds
 * the op complete sees what it did.  CORE-Q5 (descriptor made, release) <-> CORE-Q6 (acquire).
 * CORE-Q7 (a reaper leaves, release) <-> CORE-Q8 (the next reaper, acquire).  CORE-Q9 (waiter
 * stored, release) <-> CORE-Q10 (acquire): a thread that reads the waiter of a later op of the
 * note, or of a later queue of the object, finds its own op complete, or its queue destroyed.
 *
 * The head has the number of times that the stack was taken.  So a completer that is stopped
 * before it sets TOLD does not set it in a later stack, whose completer may be stopped before
 * it has notified the host.
 *
 * Limits: a completer that is stopped between CQ1 and its signal delays what the host learns of
 * its own note until the next completion.  A thread that reaps or begins to wait finds it.
 *
 * Progress: a completion is lock-free (its compare-and-swap fails only because another
 * completion succeeded, or the stack was taken), plus a system call for an eventfd, and one
 * for a sleeping waiter, if the host was not notified since the stack was taken.  A reap is
 * wait-free, apart from the pool, and lock-free if the queue has an eventfd (cq_settle()).
 *
 * Lifetime: queues and notes are type-stable.  A completer that is stopped between CQ1 and CQ2
 * may find that its queue was destroyed and created again.  So a queue's object keeps its
 * eventfd until the engine is destroyed, and the completer clears what it wrote too late.
 *
 * References: io_uring_register_eventfd(3) (one eventfd for many completions).
 */
#include <sys/eventfd.h>
#include <unistd.h>
#include <core/admit.h>
#include <core/cq.h>
#include <core/error.h>
#include <core/opgroup.h>
#include <core/retire.h>
#include <core/wait.h>

BUILD_BUG_ON(sizeof(struct cq) % 16 || sizeof(struct op_note) % 16);

static struct cq *cq_of(struct pawl_engine *e, u32 idx)
{
	return pool_obj(e->pool[POOL_CQ], idx);
}

static struct op_note *note_of(struct pawl_engine *e, u32 idx)
{
	return pool_obj(e->pool[POOL_NOTE], idx);
}

/* The object that a handle names, or NULL.  Whether the queue exists, its life says. */
static struct cq *cq_at(struct pawl_engine *e, pawl_cq_t h)
{
	u32 i = (u32)h.h;

	return i && i <= pool_carved(e->pool[POOL_CQ]) && (h.h >> 32 & 1) ? cq_of(e, i) : NULL;
}

/* Return the queue, or NULL if it was destroyed or never was one. */
static struct cq *cq_get(struct pawl_engine *e, pawl_cq_t h)
{
	struct cq *q = cq_at(e, h);

	/* Relaxed: every field of a queue is atomic, and queues are type-stable. */
	return q && load_relaxed(&q->life) >> 32 == h.h >> 32 ? q : NULL;
}

static bool cq_ready(const struct cq *q)
{
	return load_relaxed(&q->ready) || (load_relaxed(&q->head) & CQ_NOTE);	/* CQ4 */
}

/* Make the eventfd readable.  Progress: wait-free, and a system call. */
static void cq_write(struct cq *q, int fd)
{
	u64 one = 1;

	/* Relaxed: a thread that finds the eventfd readable finds the count, too. */
	fetch_add_relaxed(&q->written, 1);
	(void)!write(fd, &one, sizeof(one));
}

/* Clear the eventfd if it may be readable.  Returns whether it was.  Progress: as cq_write(). */
static bool cq_clear(struct cq *q)
{
	u64 sum;

	if (!load_relaxed(&q->written) ||
	    read((int)load_relaxed(&q->fd) - 1, &sum, sizeof(sum)) <= 0)
		return false;
	fetch_add_relaxed(&q->written, -(u32)sum);
	return true;
}

/*
 * The eventfd was written, or the queue became empty: clear it if no completion is to be reaped.
 * A completer whose note is added before the clearing may have written already, so the queue is
 * checked again.  Progress: lock-free, and system calls.
 */
static void cq_settle(struct cq *q)
{
	if (BUSTED(CQ_STAYS_READABLE))
		return;
	do {
		smp_mb();	/* CORE-Q11 <-> CORE-Q12 */
		if (cq_ready(q) || !cq_clear(q))
			return;
		/* The note of each write that was cleared is visible: eventfd(2) has a lock. */
		if (!cq_ready(q))
			return;
		cq_write(q, (int)load_relaxed(&q->fd) - 1);
	} while (true);
}

/* Wake the thread that waits for the queue. */
static void cq_wake(struct pawl_engine *e, struct cq *q)
{
	u32 waiter = (u32)load_relaxed(&q->waiter);

	if (waiter)
		exec_unpark(e->x, &thread_of(e, waiter - 1)->ex);
}

/* Notify the host: CQ2, and after the fd was created.  Progress: as cq_settle(). */
static void cq_signal(struct pawl_engine *e, struct cq *q)
{
	int fd = (int)load_acquire(&q->fd) - 1;	/* CORE-Q6 <-> CORE-Q5 */

	cq_wake(e, q);
	if (BUSTED(CQ_NO_WRITE))
		return;
	if (fd < 0)
		return;
	cq_write(q, fd);
	/* This thread may have been stopped before that, and another one has reaped the note. */
	cq_settle(q);
}

/*
 * Notify the host of a note; head is what cq_post() stored.  Completers behind it need not do
 * that again until the stack is taken, which changes the number in the head.
 */
static __noinline void cq_tell(struct pawl_engine *e, struct cq *q, u64 head)
{
	u64 now;

	if (!BUSTED(CQ_NO_MB))
		smp_mb_after_rmw();	/* CORE-Q11 <-> CORE-Q12 */
	cq_signal(e, q);
	now = load_relaxed(&q->head);
	if (BUSTED(CQ_TOLD_ANY))
		head = now;
	/* The same number, without TOLD.  Relaxed: it only saves others the same calls. */
	while ((now ^ head) <= CQ_NOTE)
		if (cas_relaxed(&q->head, &now, now | CQ_TOLD))
			return;
}

static inline void cq_post(struct pawl_engine *e, struct cq *q, u32 idx)
{
	struct op_note *n = note_of(e, idx);
	u64 head = load_relaxed(&q->head), new;

	do {
		store_relaxed(&n->next, (u32)head);
		new = (head & ~CQ_NOTE) | idx;
	} while (!cas_release_relaxed(&q->head, &head, new));	/* CORE-Q1 <-> CORE-Q2 */
	if (BUSTED(CQ_ONE_TELLS))
		head = head & CQ_NOTE ? CQ_TOLD : 0;
	if (!(head & CQ_TOLD))
		cq_tell(e, q, new);
}

/* Subtract n completions that were reaped, or that will not arrive. */
static void cq_unname(struct cq *q, u32 n)
{
	fetch_add_relaxed(&q->life, -(u64)n);
}

/*
 * Count a completion that will arrive.  Returns the queue, or NULL if it was destroyed or never
 * was one.  Progress: lock-free (the compare-and-swap fails only if another completion was
 * counted or reaped, or a reap began).
 */
static struct cq *cq_name(struct pawl_engine *e, pawl_cq_t h)
{
	struct cq *q = cq_at(e, h);
	u64 life = q ? load_relaxed(&q->life) : 0;

	/* An addition might count in the next queue of the object, which then seems to be used. */
	do
		if (!q || life >> 32 != h.h >> 32)
			return NULL;
	while (!cas_relaxed(&q->life, &life, life + 1));
	return q;
}

/* --- notes --- */

/*
 * Fill in the note of an op that is not pushed yet, and reserve what its flags require.
 * Progress: lock-free.
 */
int note_fill(struct thread *t, struct op *op, const struct pawl_op *d)
{
	struct pawl_engine *e = t->e;
	struct cq *q = NULL;
	struct op_note *n;
	u32 idx, gen;
	int rc;

	if ((d->flags & PAWL_OP_TICKET) && !d->ticket)
		return err(-EINVAL, "push: op.ticket is NULL");
	if ((d->flags & PAWL_OP_DEADLINE) && d->deadline_ns < 0)
		return err(-EINVAL, "push: op.deadline_ns is %lld", (long long)d->deadline_ns);
	if (d->flags & PAWL_OP_CQ) {
		q = cq_name(e, d->cq);
		if (!q)
			return err(-ESTALE, "push: op.cq is no completion queue, or it was destroyed");
	}
	n = pool_get(e->pool[POOL_NOTE], &t->cache[POOL_NOTE], &idx);
	if (!n) {
		if (q)
			cq_unname(q, 1);
		return err_pool_empty(t, POOL_NOTE, "push: no memory for a completion");
	}
	store_relaxed(&n->group, 0);	/* atomic: note_is_of() */
	n->cancels = 0;
	n->cost = 0;
	rc = d->flags & (PAWL_OP_GROUP | PAWL_OP_COST) ? group_enter(t, n, d) : 0;
	if (unlikely(rc)) {
		if (q)
			cq_unname(q, 1);
		pool_put(e->pool[POOL_NOTE], &t->cache[POOL_NOTE], idx);
		return rc;
	}
	n->cq = q ? (u32)d->cq.h : 0;
	store_relaxed(&n->tag, d->flags & PAWL_OP_CQ ? d->tag : (u64)0);
	n->deadline = d->flags & PAWL_OP_DEADLINE ? (u64)d->deadline_ns : NOTE_NEVER;
	if (d->release)
		n->release = d->release;
	store_relaxed(&op->note, idx);	/* atomic: has_ticket(), note_is_of() */
	if (!(d->flags & NOTE_ASKS))
		return 0;
	gen = load_relaxed(&n->state) >> NOTE_GEN_SHIFT;
	if (!(d->flags & PAWL_OP_TICKET)) {
		/* CORE-Q3 <-> CORE-Q4, for a ticket of the op before */
		store_release(&n->state, gen << NOTE_GEN_SHIFT | NOTE_PRIVATE);
		return 0;
	}
	gen = (gen + 1) & NOTE_GEN_MASK;
	gen += !gen;	/* a ticket is never 0 */
	/*
	 * The program orders how the ticket reaches another thread.  CORE-Q3 <-> CORE-Q4: for a
	 * ticket of the op before, which is complete.
	 */
	store_release(&n->state, gen << NOTE_GEN_SHIFT | NOTE_QUEUED);
	d->ticket->h = (u64)gen << 32 | idx;
	return 0;
}

/* The state after the op is complete. */
static u32 state_end(u32 state)
{
	return state & ~(NOTE_PHASE | NOTE_CANCELED);
}

/* True if the state is that of an incomplete op whose ticket has this generation. */
static bool state_is_of(u32 state, u32 gen)
{
	u32 phase = state & NOTE_PHASE;

	return state >> NOTE_GEN_SHIFT == gen &&
	       (phase == NOTE_QUEUED || phase == NOTE_RUNNING ||
		(state & NOTE_ENDING) == NOTE_ENDING);
}

/* Undo note_fill(): the op is not pushed. */
void note_undo(struct thread *t, struct op *op)
{
	struct op_note *n = note_of(t->e, op->note);

	/* CORE-Q3 <-> CORE-Q4 */
	store_release(&n->state, state_end(load_relaxed(&n->state)));
	if (n->cq)
		cq_unname(cq_of(t->e, n->cq), 1);
	group_room(t->e, n->group, n->cost, false);
	group_leave(t, n->group, n->cost, false);
	pool_put(t->e->pool[POOL_NOTE], &t->cache[POOL_NOTE], op->note);
}

/* True if the op belongs to the group.  It may be any op, also one that is being pushed. */
bool note_is_of(struct pawl_engine *e, const struct op *op, u32 group)
{
	u32 note = load_relaxed(&op->flags) & OP_NOTE ? load_relaxed(&op->note) : 0;

	return note && note <= pool_carved(e->pool[POOL_NOTE]) &&
	       load_relaxed(&note_of(e, note)->group) == group;
}

/* Reserve the note with which a group reports that it has room again.  Returns 0 or an error. */
int note_room(struct thread *t, u32 *idx, pawl_cq_t h, u64 tag, u32 group)
{
	struct pawl_engine *e = t->e;
	struct cq *q = cq_name(e, h);
	struct op_note *n;

	if (!q)
		return err(-ESTALE, "group: limits.cq is no completion queue, or it was destroyed");
	n = pool_get(e->pool[POOL_NOTE], &t->cache[POOL_NOTE], idx);
	if (!n) {
		cq_unname(q, 1);
		return err(-ENOMEM, "group: no memory for a completion");
	}
	n->cq = (u32)h.h;
	store_relaxed(&n->tag, tag);
	n->status = 0;
	n->cost = NOTE_ROOM;
	n->name = NULL;
	store_relaxed(&n->group, group);
	return 0;
}

/*
 * True if idx is the note of a group with this queue, which then gets the tag.  The note may be
 * queued: its completion has the tag of before or the new one.
 */
bool note_room_again(struct pawl_engine *e, u32 idx, pawl_cq_t h, u64 tag)
{
	if (!idx || note_of(e, idx)->cq != (u32)h.h || !cq_get(e, h))
		return false;
	store_relaxed(&note_of(e, idx)->tag, tag);
	return true;
}

void note_room_free(struct thread *t, u32 idx)
{
	struct pawl_engine *e = t->e;

	cq_unname(cq_of(e, note_of(e, idx)->cq), 1);
	pool_put(e->pool[POOL_NOTE], &t->cache[POOL_NOTE], idx);
}

/* Progress: lock-free. */
void note_room_post(struct pawl_engine *e, u32 idx)
{
	cq_post(e, cq_of(e, note_of(e, idx)->cq), idx);
}

pawl_release_fn note_release(struct pawl_engine *e, const struct op *op)
{
	return note_of(e, op->note)->release;
}

/*
 * The op is NOTE_RUNNING from here on, or NOTE_ENDING, and a cancel fails; or it was canceled
 * before: 0 or -ECANCELED.  Progress: lock-free.
 */
static int note_start(struct op_note *n, u32 state, u32 to)
{
	do
		if (state & NOTE_CANCELED)
			return -ECANCELED;
	while (!cas_relaxed(&n->state, &state, (state & ~NOTE_PHASE) | to));
	return 0;
}

/*
 * Called before the op starts, or (starts is false) before it ends without having started.
 * Returns 0, or -ECANCELED or -ETIMEDOUT if it must not start.  A cancel that succeeded is what
 * the op ends with, whatever else would keep it from starting.  Progress: wait-free, since one
 * cancel can precede note_start().
 */
int note_begin(struct thread *t, struct op *op, bool starts)
{
	struct op_note *n = note_of(t->e, op->note);
	u32 state = load_relaxed(&n->state), phase = state & NOTE_PHASE;
	int rc;

	/* An op that a device parked comes here again; that was decided before. */
	if ((phase != NOTE_QUEUED && phase != NOTE_PRIVATE) ||
	    (state & NOTE_ENDING) == NOTE_ENDING)
		return 0;
	if (phase == NOTE_PRIVATE)
		store_release(&n->state, state_end(state));	/* CORE-Q3 <-> CORE-Q4 */
	if (n->deadline != NOTE_NEVER && exec_late(n->deadline))
		rc = -ETIMEDOUT;
	else
		rc = n->group ? group_begin(t->e, n) : 0;
	if (BUSTED(DEADLINE_IGNORED))
		rc = rc == -ETIMEDOUT ? 0 : rc;
	if (phase == NOTE_QUEUED &&
	    note_start(n, state, starts && !rc ? NOTE_RUNNING : NOTE_ENDING))
		rc = -ECANCELED;
	if (rc)
		op_err_set(t, op, error_make(t, rc, op_name(op), rc == -ECANCELED ?
					     "the op was canceled before it started" :
					     "the op's deadline passed before it started"));
	return rc;
}

/* Does the reaper of a queue free the op's room in the window, and not its completer? */
bool note_reaped(struct pawl_engine *e, u32 idx)
{
	return note_of(e, idx)->cq;
}

/* Called when the op is complete and its vars are released.  Progress: lock-free. */
void note_end(struct thread *t, u32 idx, const char *name, int status)
{
	struct pawl_engine *e = t->e;
	struct op_note *n = note_of(e, idx);
	u32 group = n->group, cq = n->cq, state = load_relaxed(&n->state);
	u64 cost = n->cost, waiter;

	if (state_is_of(state, state >> NOTE_GEN_SHIFT)) {
		/*
		 * CORE-Q3 <-> CORE-Q4, CORE-Q11 <-> CORE-Q12: a concurrent cancel fails.
		 * The exchange is seq_cst because of a waiter that is about to sleep: the
		 * pattern is CQ1 to CQ4, with the state instead of the stack.
		 */
		(void)xchg_seq_cst(&n->state, state_end(state));
		waiter = load_seq_cst(&n->waiter);	/* CORE-Q11 <-> CORE-Q12 */
		if (unlikely(waiter))
			exec_unpark(e->x, &thread_of(e, (u32)waiter - 1)->ex);
	} else if (unlikely(state & NOTE_PHASE)) {
		store_release(&n->state, state_end(state));	/* CORE-Q3 <-> CORE-Q4 */
	}
	if (group | cost)
		group_room(e, group, cost, cq);
	if (cq) {
		n->status = status;
		n->name = name;
		store_relaxed(&t->unreaped, t->unreaped + 1);
		cq_post(e, cq_of(e, cq), idx);
	} else {
		pool_put(e->pool[POOL_NOTE], &t->cache[POOL_NOTE], idx);
	}
	if (group | cost)
		group_leave(t, group, cost, cq);
}

/* --- tickets --- */

/*
 * Return the ticket's note, and its state.  NULL: the op is complete, or state is ~0 and this is
 * no ticket of the engine.
 */
static struct op_note *ticket_note(struct pawl_engine *e, pawl_ticket_t h, u32 *state)
{
	u32 i = (u32)h.h, gen = (u32)(h.h >> 32);
	struct op_note *n;

	*state = h.h ? ~0u : 0;
	if (!i || i > pool_carved(e->pool[POOL_NOTE]) || !gen || gen > NOTE_GEN_MASK)
		return NULL;
	n = note_of(e, i);
	*state = load_acquire(&n->state);	/* CORE-Q4 <-> CORE-Q3 */
	if (state_is_of(*state, gen))
		return n;
	if (gen_foreign(e, gen, *state >> NOTE_GEN_SHIFT, GEN_TICKET))
		*state = ~0u;
	return NULL;
}

int pawl_ticket_state(struct pawl_engine *e, pawl_ticket_t ticket)
{
	u32 state;

	if (!ticket_note(e, ticket, &state))
		return state != ~0u ? PAWL_TICKET_COMPLETE :
		       err(-ESTALE, "ticket_state: a ticket of another engine");
	return (state & NOTE_PHASE) == NOTE_RUNNING ? PAWL_TICKET_RUNNING : PAWL_TICKET_QUEUED;
}
PAWL_EXPORT(pawl_ticket_state);

int pawl_cancel(struct pawl_engine *e, pawl_ticket_t ticket)
{
	u32 state;
	struct op_note *n = ticket_note(e, ticket, &state);
	u32 gen = (u32)(ticket.h >> 32);

	while (n && state_is_of(state, gen) && (state & NOTE_ENDING) != NOTE_ENDING) {
		/* Relaxed: a cancel passes no data to the op. */
		if ((state & NOTE_CANCELED) ||
		    cas_relaxed(&n->state, &state, state | NOTE_CANCELED))
			return (state & NOTE_PHASE) == NOTE_QUEUED ? 0 :
			       err(-EINPROGRESS, "cancel: the op has started");
	}
	return err(-ESTALE, "cancel: the op is complete or ends without having started, or this is "
		   "no ticket of this engine");
}
PAWL_EXPORT(pawl_cancel);

/*
 * Wait.  *waiter names the thread that waits.  h is the handle;
 * each of its generations has one waiter.  Returns 0, -EBUSY if another thread waits, or as
 * wait_body().
 */
static int wait_alone(struct thread *t, u64 *waiter, u64 h, const struct wait_for *what,
		      s64 timeout_ns, u32 how)
{
	/* With the generation, since the waiter of an earlier one may not have left yet. */
	u64 me = (h & ~0xffffffffull) | (t->slot + 1);
	u64 was = load_acquire(waiter);		/* CORE-Q10 <-> CORE-Q9 */
	int rc;

	do {
		if (was && was >> 32 == h >> 32)
			return -EBUSY;
		/* If the other thread waits for a later generation, this one has ended. */
		if (what->cond(what->arg))
			return 0;
		/* CORE-Q12 <-> CORE-Q11 by EXEC-P6: CQ3, and the barrier of a sleeper. */
	} while (!cas_acq_rel_acquire(waiter, &was, me));	/* CORE-Q9 <-> CORE-Q10 */
	rc = wait_body(t, what, timeout_ns, how);
	cas_relaxed(waiter, &me, 0);
	flight_check(t);
	return rc;
}

struct ticket_wait {
	struct pawl_engine *e;
	pawl_ticket_t ticket;
};

static bool ticket_over(void *arg)
{
	struct ticket_wait *w = arg;
	u32 state;

	return !ticket_note(w->e, w->ticket, &state);
}

static bool has_ticket(void *arg, const struct op *op)
{
	struct ticket_wait *w = arg;

	return (load_relaxed(&op->flags) & OP_NOTE) &&
	       load_relaxed(&op->note) == (u32)w->ticket.h;
}

int ticket_wait(struct pawl_engine *e, pawl_ticket_t ticket, s64 timeout_ns, u32 how)
{
	struct thread *t = thread_get(e);
	struct ticket_wait w = { e, ticket };
	u32 state;
	struct frame *f;
	struct op_note *n;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	n = ticket_note(e, ticket, &state);
	if (!n)
		return state != ~0u ? 0 : err(-ESTALE, "ticket_wait: a ticket of another engine");
	for_each_frame(t, f)
		if (!frame_complete(f) && (op_of(e, f->op)->flags & OP_NOTE) &&
		    op_of(e, f->op)->note == (u32)ticket.h)
			return err(-EDEADLK, "ticket_wait: from inside the op that it waits for");
	rc = wait_alone(t, &n->waiter, ticket.h,
			&(struct wait_for){ ticket_over, has_ticket, &w }, timeout_ns, how);
	if (rc == -EBUSY)
		return err(rc, "ticket_wait: another thread waits for this op");
	if (rc == -EINTR)
		return err(rc, "ticket_wait: interrupted");
	return rc ? err(rc, "ticket_wait: not complete after %lld ns", (long long)timeout_ns) : 0;
}

int pawl_ticket_wait(struct pawl_engine *e, pawl_ticket_t ticket, int64_t timeout_ns)
{
	return ticket_wait(e, ticket, timeout_ns, 0);
}
PAWL_EXPORT(pawl_ticket_wait);

int pawl_run_canceled(const struct pawl_run *run)
{
	const struct frame *f = container_of(run, struct frame, run);
	struct pawl_engine *e = run->engine;
	struct op *op = op_of(e, f->op);
	struct op_note *n;

	if (frame_complete(f))
		return 0;
	if (unlikely(load_relaxed(&e->special) & SPECIAL_CANCELED) && op_canceled(e, f->op))
		return -ECANCELED;
	if (!(op->flags & OP_NOTE))
		return 0;
	n = note_of(e, op->note);
	if (load_relaxed(&n->state) & NOTE_CANCELED)
		return -ECANCELED;
	if (n->deadline != NOTE_NEVER && exec_late(n->deadline))
		return -ETIMEDOUT;
	return group_begin(e, n);
}
PAWL_EXPORT(pawl_run_canceled);

/* --- queues --- */

int pawl_cq_create(struct pawl_engine *e, pawl_cq_t *out)
{
	struct thread *t = thread_get(e);
	struct cq *q;
	u32 idx, gen;

	if (unlikely(!t))
		return thread_last.code;
	if (!out)
		return err(-EINVAL, "cq_create: out is NULL");
	if (!count_below(&e->ncqs, cqs_most(e)))
		return err(-ENOMEM, "cq_create: %u queues exist", cqs_most(e));
	q = pool_get(e->pool[POOL_CQ], &t->cache[POOL_CQ], &idx);
	if (!q) {
		fetch_add_relaxed(&e->ncqs, -1u);
		return err(-ENOMEM, "cq_create: no memory");
	}
	/* No other thread changes it: the destroyer found a count of 0, and no thread that reaps. */
	gen = gen_alive(e, (u32)(load_relaxed(&q->life) >> 32));
	store_release(&q->life, (u64)gen << 32);	/* CORE-Q7 <-> CORE-Q8 */
	out->h = (u64)gen << 32 | idx;
	return 0;
}
PAWL_EXPORT(pawl_cq_create);

int pawl_cq_destroy(struct pawl_engine *e, pawl_cq_t h)
{
	struct thread *t = thread_get(e);
	u64 life = h.h >> 32 << 32;
	struct cq *q;

	if (unlikely(!t))
		return thread_last.code;
	q = cq_get(e, h);
	/* CORE-Q8 <-> CORE-Q7: the last reaper has left. */
	if (q && !cas_acquire_relaxed(&q->life, &life, (u64)gen_dead((u32)(life >> 32)) << 32) &&
	    life >> 32 == h.h >> 32)
		return err(-EBUSY, "cq_destroy: a completion was not reaped or has not arrived, or "
			   "another thread is reaping the queue");
	/* Two threads destroy it at once: one of them succeeds. */
	if (!q || life >> 32 != h.h >> 32)
		return err(-ESTALE, "cq_destroy: no completion queue, or it was destroyed");
	/* A thread that waits for it returns with -ESTALE. */
	smp_mb();	/* CORE-Q11 <-> CORE-Q12 */
	cq_wake(e, q);
	pool_put(e->pool[POOL_CQ], &t->cache[POOL_CQ], (u32)h.h);
	fetch_add_relaxed(&e->ncqs, -1u);
	return 0;
}
PAWL_EXPORT(pawl_cq_destroy);

/* Take the whole stack, and return its notes as a list, the oldest first. */
static u32 cq_take(struct pawl_engine *e, struct cq *q)
{
	/* Only a reaper changes this number. */
	u64 takes = (load_relaxed(&q->head) >> CQ_TAKES_SHIFT) + 1;
	u32 idx, next, first = 0;

	cq_clear(q);
	/* CORE-Q2 <-> CORE-Q1; seq_cst keeps it behind the read of the eventfd. */
	for (idx = (u32)xchg_seq_cst(&q->head, takes << CQ_TAKES_SHIFT); idx; idx = next) {
		next = load_relaxed(&note_of(e, idx)->next);
		store_relaxed(&note_of(e, idx)->next, first);
		first = idx;
	}
	return first;
}

/* size: of one completion in out, which begins with struct pawl_completion. */
static int cq_reap(struct pawl_engine *e, pawl_cq_t h, void *out, size_t size, unsigned int n)
{
	struct thread *t = thread_get(e);
	struct cq *q;
	u32 k, idx, took = 0, ops = 0;
	u64 life;

	if (unlikely(!t))
		return thread_last.code;
	if (!out || n > INT32_MAX)
		return err(-EINVAL, "cq_reap: out is NULL, or n is %u", n);
	q = cq_get(e, h);
	life = q ? load_relaxed(&q->life) : 0;
	do {
		if (!q || life >> 32 != h.h >> 32)
			return err(-ESTALE, "cq_reap: no completion queue, or it was destroyed");
		if (life & CQ_REAPING)
			return err(-EBUSY, "cq_reap: another thread is reaping this queue");
	} while (!cas_acquire_relaxed(&q->life, &life, life | CQ_REAPING));	/* CORE-Q8 <-> CORE-Q7 */
	idx = load_relaxed(&q->ready);
	for (k = 0; k < n; k++) {
		struct pawl_named_completion *named = (void *)((char *)out + k * size);
		struct pawl_completion *c = (void *)named;
		struct op_note *note;

		if (!idx)
			idx = took = cq_take(e, q);
		if (!idx)
			break;
		note = note_of(e, idx);
		c->tag = load_relaxed(&note->tag);
		c->status = note->status;
		c->reserved = 0;
		if (size == sizeof(*named))
			named->op = note->name;
		store_relaxed(&q->ready, load_relaxed(&note->next));
		if (unlikely(note->cost == NOTE_ROOM)) {
			group_told(t, note->group);
		} else {
			pool_put(e->pool[POOL_NOTE], &t->cache[POOL_NOTE], idx);
			ops++;
		}
		idx = load_relaxed(&q->ready);
	}
	/*
	 * Notes remain, which a thread at CQ4 may have missed, and the eventfd was cleared.
	 * If an earlier call took them from the stack, it has notified.
	 */
	if (idx && took) {
		smp_mb();	/* CORE-Q11 <-> CORE-Q12 */
		cq_signal(e, q);
	}
	if (ops) {
		room_free(t, ops);
		store_relaxed(&t->unreaped, t->unreaped - ops);
	}
	fetch_add_release(&q->life, -((u64)CQ_REAPING + ops));	/* CORE-Q7 <-> CORE-Q8 */
	/*
	 * CORE-Q11 <-> CORE-Q12: a thread that makes the eventfd finds the queue empty, or it is
	 * settled here.  CORE-N6 <-> CORE-N5: a pusher that sleeps at the window, or wants a room
	 * completion, finds the room, or it is told here.
	 */
	smp_mb_after_rmw();
	if (!idx && load_relaxed(&q->fd))
		cq_settle(q);
	if (ops && load_relaxed(&e->nflight))
		flight_check(t);
	return (int)k;
}

int pawl_cq_reap(struct pawl_engine *e, pawl_cq_t h, struct pawl_completion *out,
		 unsigned int n)
{
	return cq_reap(e, h, out, sizeof(*out), n);
}
PAWL_EXPORT(pawl_cq_reap);

int pawl_cq_reap_named(struct pawl_engine *e, pawl_cq_t h, struct pawl_named_completion *out,
		       unsigned int n)
{
	return cq_reap(e, h, out, sizeof(*out), n);
}
PAWL_EXPORT(pawl_cq_reap_named);

struct cq_wait {
	struct cq *q;
	u32 gen;
};

static bool cq_wait_over(void *arg)
{
	struct cq_wait *w = arg;

	return cq_ready(w->q) || load_relaxed(&w->q->life) >> 32 != w->gen;
}

int cq_wait(struct pawl_engine *e, pawl_cq_t h, s64 timeout_ns, u32 how)
{
	struct thread *t = thread_get(e);
	struct cq_wait w = { NULL, (u32)(h.h >> 32) };
	int rc = 0;

	if (unlikely(!t))
		return thread_last.code;
	w.q = cq_get(e, h);
	if (!w.q)
		return err(-ESTALE, "cq_wait: no completion queue, or it was destroyed");
	if (!cq_wait_over(&w))
		rc = wait_alone(t, &w.q->waiter, h.h,
				&(struct wait_for){ .cond = cq_wait_over, .arg = &w }, timeout_ns,
				how);
	if (rc == -EBUSY)
		return err(rc, "cq_wait: another thread waits for this queue");
	if (!rc && load_relaxed(&w.q->life) >> 32 != w.gen)
		return err(-ESTALE, "cq_wait: the queue was destroyed meanwhile");
	if (rc == -EINTR)
		return err(rc, "cq_wait: interrupted");
	return rc ? err(rc, "cq_wait: no completion after %lld ns", (long long)timeout_ns) : 0;
}

int pawl_cq_wait(struct pawl_engine *e, pawl_cq_t h, int64_t timeout_ns)
{
	return cq_wait(e, h, timeout_ns, 0);
}
PAWL_EXPORT(pawl_cq_wait);

int pawl_cq_fd(struct pawl_engine *e, pawl_cq_t h)
{
	struct cq *q = cq_get(e, h);
	u32 none = 0;
	int fd;

	if (!q)
		return err(-ESTALE, "cq_fd: no completion queue, or it was destroyed");
	fd = (int)load_acquire(&q->fd) - 1;	/* CORE-Q6 <-> CORE-Q5 */
	if (fd < 0) {
		fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (fd < 0)
			return err(-errno, "cq_fd: eventfd: %m");
		if (!cas_acq_rel_acquire(&q->fd, &none, (u32)fd + 1)) {	/* CORE-Q5 <-> CORE-Q6; CQ3 */
			close(fd);
			fd = (int)none - 1;
		}
	}
	/* Also if another thread made it, which may have been stopped before this. */
	smp_mb();	/* CORE-Q12 <-> CORE-Q11 */
	if (cq_ready(q))
		cq_signal(e, q);
	return fd;
}
PAWL_EXPORT(pawl_cq_fd);

/* The handle of queue i, and its completions to come or to be reaped. */
u64 cq_use(struct pawl_engine *e, u32 i, u32 *n)
{
	u64 life = load_relaxed(&cq_of(e, i)->life);

	*n = (u32)life & ~CQ_REAPING;
	return life >> 32 << 32 | i;
}

/* The queue with the most completions to come or to be reaped.  Progress: wait-free. */
u64 cq_fullest(struct pawl_engine *e)
{
	u32 i, n = pool_carved(e->pool[POOL_CQ]), most = 0, k;
	u64 best = 0, h;

	for (i = 1; i <= n; i++) {
		h = cq_use(e, i, &k);
		if (k <= most)
			continue;
		most = k;
		best = h;
	}
	return best;
}

/* Close the eventfds.  The engine is being destroyed, and no thread uses its queues. */
void cqs_exit(struct pawl_engine *e)
{
	u32 i, n = pool_carved(e->pool[POOL_CQ]);

	for (i = 1; i <= n; i++)
		if (load_relaxed(&cq_of(e, i)->fd))
			close((int)load_relaxed(&cq_of(e, i)->fd) - 1);
}
