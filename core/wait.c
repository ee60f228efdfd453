// SPDX-License-Identifier: Apache-2.0
/*
 * Waits.
 *
 * A wait on a var is an op without a body: a read (readable), or a write that makes no version
 * (writable).  The thread that grants it wakes the waiting thread and no other.  The waiting
 * thread then releases the access.  A wait that times out leaves its op behind; the thread that
 * grants it then completes it.  A wait that runs bodies on its stack, which wait, too, perhaps for
 * what is behind it, is ended by them when it is granted.
 *
 * Ordering:
 *   CORE-G1 (granter's CAS on the token, release) <-> CORE-G2 (waiter's read)
 *   CORE-N2 (completed, release) <-> CORE-N3 (sum, acquire), CORE-N1 <-> CORE-N4
 *   CORE-N9 <-> CORE-N10, CORE-N11 <-> CORE-N12: threads that left (live_leave())
 *
 * Wait for all: `completed` of all threads is summed first, then `pushed`.  An op that is
 * counted in completed was pushed before, and the later sum contains its push.  So if the sums
 * are equal, every op whose push was counted was complete at the first sum.
 *
 *      waiter                              last completer
 *      nflight++                           completed++
 *      PARKED, smp_mb()  (exec/park.c)     smp_mb()
 *      sums differ: sleep                  nflight?  sums are equal: unpark
 *
 * Bad outcome: both read before both have written.  The barriers, here and before a sleeper's
 * last check, forbid it (CORE-N5 <-> CORE-N6, EXEC-P6).  The check costs a completer nothing
 * while it has more to run: the last completion is followed by the edge to idle.
 *
 * Progress: blocking by purpose; meanwhile the thread runs ready ops.
 */
#include <stdlib.h>
#include <core/admit.h>
#include <core/cq.h>
#include <core/device.h>
#include <core/error.h>
#include <core/opgroup.h>
#include <core/push.h>
#include <core/readmostly.h>
#include <core/record.h>
#include <core/retire.h>
#include <core/wait.h>
#include <core/record_format.h>

#define ROOM_NS		1000000	/* a wait without an op checks the var again after this */
#define NONE_LOOK	16u	/* ops that a wait for all runs before it computes the sums again */

/* The op that a wait left behind when it timed out. */
struct given_up {
	u32 op, token, var, gen, block;
};

/*
 * Is the calling thread in a body, of any engine?  Then *in says how it waits: the queue is that of
 * the body.  A worker is in one also where the engine calls a function of the host.
 */
static bool inside(struct thread *t, struct exec_inside *in, u32 how)
{
	struct frame *f = thread_last.frame;
	struct thread *of = f ? f->t : t;
	struct pawl_engine *e = of->e;

	if (!f && !t->ex.queue)
		return false;
	memset(in, 0, sizeof(*in));
	in->x = e->x;
	in->t = &of->ex;
	in->queue = of->ex.queue;
	if (!in->queue)
		in->queue = frame_complete(f) ? e->routes[PAWL_NORMAL] : op_queue(e, op_of(e, f->op));
	in->takes = !(how & PAWL_WAIT_NO_HELP);
	return true;
}

/*
 * Which ops a wait outside bodies runs: those of queues that have no workers, since no other
 * thread may run them.  With PAWL_WAIT_NO_HELP only if workers could not be created: the program
 * does not know that.
 */
static u32 wait_helps(u32 how)
{
	return how & PAWL_WAIT_NO_HELP ? EXEC_FAILED : EXEC_BARE;
}

/* The same for a wait for all ops: any op is what it waits for. */
static u32 wait_all_helps(s64 timeout_ns, u32 how)
{
	return timeout_ns < 0 && !(how & (PAWL_WAIT_NO_HELP | PAWL_WAIT_INTR)) ? EXEC_HELP :
	       wait_helps(how);
}

/* A wait in a body, as inside() says. */
static int wait_inside(struct thread *t, bool (*cond)(void *arg), void *arg, s64 timeout_ns,
		       u32 help, struct exec_inside *in)
{
	bool naive = t->e->kind == PAWL_NAIVE ||
		     container_of(in->t, struct thread, ex)->e->kind == PAWL_NAIVE;

	return unlikely(naive && in->takes && timeout_ns) ?
	       naive_wait_inside(t, cond, arg, timeout_ns, help, in) :
	       exec_wait_inside(t->e->x, &t->ex, cond, arg, timeout_ns, help, in);
}

static s64 time_left(s64 timeout_ns, u64 end)
{
	u64 now = end ? exec_now_ns() : 0;

	return !end ? timeout_ns : now < end ? (s64)(end - now) : 0;
}

/* A wait for a var on this thread's stack. */
struct var_wait {
	struct thread *t;
	struct op *op;
	u32 opi, var;
	bool write, newest;	/* newest: it reports the var's error */
	bool ended;		/* by a wait above it on the stack, with rc */
	int rc;
	struct pawl_error *out;
	struct var_wait *below;
};

static bool granted(void *arg)
{
	struct var_wait *w = arg;

	/* CORE-G2 <-> CORE-G1 */
	return w->ended || (load_acquire(&w->op->token) & TOKEN_MASK) == TOKEN_DONE;
}

static void wait_end(struct var_wait *w);

/* A wait on the stack that is granted and has not ended.  A child of fork() has none. */
static struct var_wait *granted_below(void)
{
	struct var_wait *w = thread_last.waits;

	while (w && (w->ended || !granted(w) ||
		     w->t->e->fork_gen != load_relaxed(&pawl_fork_gen)))
		w = w->below;
	return w;
}

/* help: what it does outside bodies, and flags. */
static int wait_once(struct thread *t, bool (*cond)(void *arg), void *arg, s64 timeout_ns,
		     u32 how, u32 help, bool polls)
{
	struct exec_inside in;

	if (!inside(t, &in, how))
		return exec_wait(t->e->x, &t->ex, cond, arg, timeout_ns, help);
	in.polls = polls;
	return wait_inside(t, cond, arg, timeout_ns, help, &in);
}

struct above {
	bool (*cond)(void *arg);
	void *arg;
	bool over;
};

static bool above_over(void *arg)
{
	struct above *a = arg;

	return (a->over = a->cond(a->arg)) || granted_below();
}

/* wait_once(), with waits for vars below it on the stack. */
static __cold int wait_above(struct thread *t, bool (*cond)(void *arg), void *arg,
			     s64 timeout_ns, u32 how, u32 help, bool polls)
{
	struct above a = { cond, arg, false };
	struct var_wait *w;
	u64 end = timeout_ns > 0 ? exec_now_ns() + (u64)timeout_ns : 0;
	int rc;

	do {
		while ((w = granted_below()))
			wait_end(w);
		rc = wait_once(t, above_over, &a,
			       time_left(timeout_ns, end), how, help, polls);
	} while (!rc && !a.over);
	return rc;
}

static int wait_here(struct thread *t, bool (*cond)(void *arg), void *arg, s64 timeout_ns,
		     u32 how, u32 help, bool polls)
{
	struct var_wait *w = thread_last.waits;

	return likely(!w || (w == arg && !w->below)) ?
	       wait_once(t, cond, arg, timeout_ns, how, help, polls) :
	       wait_above(t, cond, arg, timeout_ns, how, help, polls);
}

struct intr_wait {
	struct pawl_engine *e;
	bool (*cond)(void *arg);
	void *arg;
	bool hit;
};

static bool intr_over(void *arg)
{
	struct intr_wait *w = arg;

	if (w->cond(w->arg))
		return true;
	/* CORE-I2 <-> CORE-I1: what the interrupting thread did before. */
	w->hit = load_relaxed(&w->e->interrupted) && xchg_acquire(&w->e->interrupted, 0);
	return w->hit;
}

/*
 * exec_wait() that pawl_interrupt() ends.
 *
 *	interrupting thread                     thread that goes to sleep
 *	CORE-I1 interrupted = 1, smp_mb()       waits_interrupt++, smp_mb() (exec/park.c)
 *	    read waits_interrupt: unpark        CORE-I2 read interrupted
 *
 * Bad outcome: both read before the other wrote.  The barriers forbid it.
 */
static int wait_intr(struct thread *t, bool (*cond)(void *arg), void *arg, s64 timeout_ns,
		     u32 how, u32 help)
{
	struct intr_wait w = { t->e, cond, arg, false };
	int rc;

	store_relaxed(&t->waits_interrupt, t->waits_interrupt + 1);
	rc = wait_here(t, intr_over, &w, timeout_ns, how, help | EXEC_INTR, false);
	store_relaxed(&t->waits_interrupt, t->waits_interrupt - 1);
	return w.hit ? -EINTR : rc;
}

int wait_until(struct thread *t, bool (*cond)(void *arg), void *arg, s64 timeout_ns,
	       u32 how, u32 help)
{
	if (!timeout_ns)	/* it only checks: no body runs here */
		help = EXEC_WAIT;
	if (unlikely(how & PAWL_WAIT_INTR))
		return wait_intr(t, cond, arg, timeout_ns, how, help);
	return wait_here(t, cond, arg, timeout_ns, how, help, false);
}

/*
 * Run what the wait waits for, as long as that is next in the thread's own ring.  What it makes
 * ready is queued.  Only this thread adds to its ring, so nothing comes later.
 */
static void wait_own(struct thread *t, const struct wait_for *what)
{
	u32 opi;

	while (!what->cond(what->arg) && (opi = exec_look(&t->ex)) &&
	       what->wanted(what->arg, op_of(t->e, opi)) && exec_take_this(&t->ex, opi)) {
		count(&t->ex.helped);
		run_alone(t, op_of(t->e, opi), opi);
	}
}

/* how: PAWL_WAIT_* flags. */
int wait_body(struct thread *t, const struct wait_for *what, s64 timeout_ns, u32 how)
{
	if (timeout_ns < 0 && what->wanted && !(how & (PAWL_WAIT_NO_HELP | PAWL_WAIT_INTR)) &&
	    t->e->kind != PAWL_NAIVE)
		wait_own(t, what);
	return wait_until(t, what->cond, what->arg, timeout_ns, how, wait_helps(how));
}

void pawl_interrupt(struct pawl_engine *e)
{
	struct thread *w;
	u32 i;

	store_release(&e->interrupted, 1);	/* CORE-I1 <-> CORE-I2 */
	if (!BUSTED(INTERRUPT_NO_MB))
		smp_mb();	/* CORE-I1 <-> CORE-I2 */
	for_each_live(e, w, i)
		if (load_relaxed(&w->waits_interrupt))
			exec_unpark(e->x, &w->ex);
}
PAWL_EXPORT(pawl_interrupt);

/* Does an op whose body is on this thread's stack hold the var? */
static bool held_here(struct thread *t, u32 vi)
{
	struct pawl_engine *e = t->e;
	struct frame *f;
	u32 j;

	for_each_frame(t, f) {
		struct op *op = op_of(e, f->op);
		struct dep *deps;

		if (frame_complete(f))
			continue;
		deps = op_deps(e, op, op->ndeps, op->ext);
		for (j = 0; j < op->ndeps; j++)
			if ((deps[j].var & ~DEP_WRITE) == vi)
				return true;
	}
	return false;
}

/* The op of a wait is granted: wake its thread.  Progress: lock-free. */
void waiter_granted(struct thread *t, struct op *op, u32 opi)
{
	struct pawl_engine *e = t->e;
	u32 owner = op->owner, tok = load_relaxed(&op->token);

	if (unlikely(load_relaxed(&e->special) & SPECIAL_DEVICES) &&
	    device_wait_parks(t, op, opi))
		return;
	/*
	 * The owner may give up, or reuse the op (given_up_reuse()), at this moment.  If it
	 * gave up, the next user of the op comes after us, and after the owner's last access to
	 * it.
	 */
	while (!cas_acq_rel_acquire(&op->token, &tok,	/* CORE-G1 <-> CORE-G2, both ways */
				    (tok & ~3u) | TOKEN_DONE))
		;
	if ((tok & TOKEN_MASK) == TOKEN_ARMED) {
		if (owner != t->slot)
			exec_unpark(e->x, &thread_of(e, owner)->ex);
		return;
	}
	/* No thread waits for it any more: complete it like an op without a body. */
	if (!BUSTED(GIVEN_UP_STAYS))
		exec_push(op_queue(e, op), &t->ex, opi, op->prio, 0);
}

/* An op that is ready and names the var is before the wait, which is not granted. */
static bool names_var(void *arg, const struct op *op)
{
	struct var_wait *w = arg;
	u32 n = load_relaxed(&op->ndeps), j;

	for (j = 0; j < n && n <= INLINE_DEPS; j++)
		if ((load_relaxed(&op->deps[j].var) & ~DEP_WRITE) == w->var)
			return true;
	return false;
}

/*
 * Check the var without an op.  Returns 1 if there is nothing to wait for and no error, -EBUSY
 * if there is, -ESTALE if the var was deleted, or 0 if that takes an op to find out.
 */
static int var_poll(struct thread *t, u32 vi, u32 gen, bool write)
{
	struct pawl_engine *e = t->e;
	struct var *v = var_of(e, vi);
	struct pair w = word_snapshot(v);
	u32 joined = w.val & WORD_LASTW ? 0 : word_joined(w.val);
	u64 s;

	/* Replace the hold of the fast readers by their number. */
	if (tag_is_rm(w.tag) && !(w.tag & RM_TAG_CLOSED))
		joined += rm_reading(e, rm_tag_index(w.tag)) - 1;

	/* Reading the word also makes v->gen visible; see pawl_var_create(). */
	if ((w.val & WORD_DELETED) || load_relaxed(&v->gen) != gen)
		return err(-ESTALE, "wait: the var was deleted");
	/* CORE-A3 <-> CORE-R1, CORE-R2, CORE-V6 */
	s = load_acquire(&version_of(e, vi, word_cur(w.val))->state);
	if (unlikely(load_relaxed(&e->special) & SPECIAL_DEVICES) && device_busy(e, vi, write))
		s &= ~BLOCK_DONE;
	/* The state was that of this var if the word has not changed. */
	if (load_relaxed(&v->word.tag) != w.tag)
		return 0;
	if (!(s & BLOCK_DONE) || (write && ((block_count(s) + joined) & JOIN_MASK)))
		return -EBUSY;
	return !(s & BLOCK_ERR);
}

/*
 * Reuse the op that an earlier wait of this thread left behind in the same var, so that polling
 * with a timeout does not fill the var's queue.  Returns the op, or 0.  *newest: nothing was
 * pushed to the var since, so there is nothing else to wait for.
 */
static u32 given_up_reuse(struct thread *t, u32 vi, u32 gen, bool write, bool *newest)
{
	struct pawl_engine *e = t->e;
	u32 i;

	for (i = 0; i < t->ngiven_up; i++) {
		struct given_up *g = &t->given_up[i];
		u32 opi = g->op, tok = g->token, block = g->block;
		struct op *op = op_of(e, opi);
		struct pair w;

		if (g->var != (vi | (write ? DEP_WRITE : 0)) || g->gen != gen)
			continue;
		*g = t->given_up[--t->ngiven_up];
		w = word_snapshot(var_of(e, vi));
		*newest = word_cur(w.val) == block && (!write || (w.val & WORD_LASTW));
		/* The token shows if it was granted meanwhile, or is another op now. */
		if (!cas_relaxed(&op->token, &tok, (tok & ~3u) | TOKEN_ARMED))
			return 0;
		return opi;
	}
	return 0;
}

/* Remember the op; without memory for that, a later wait makes another one. */
static void give_up(struct thread *t, u32 opi, u32 tok, const struct dep *d)
{
	struct given_up *g;
	u32 i, n, cap;

	if (t->ngiven_up == t->given_up_cap) {
		/* Drop those that were granted meanwhile. */
		for (i = 0, n = 0; i < t->ngiven_up; i++) {
			g = &t->given_up[i];
			if (load_relaxed(&op_of(t->e, g->op)->token) == g->token)
				t->given_up[n++] = *g;
		}
		t->ngiven_up = n;
	}
	if (t->ngiven_up == t->given_up_cap) {
		cap = t->given_up_cap ? 2 * t->given_up_cap : 16;
		g = realloc(t->given_up, cap * sizeof(*g));
		if (!g)
			return;
		t->given_up = g;
		t->given_up_cap = cap;
	}
	t->given_up[t->ngiven_up++] = (struct given_up){ opi, tok, d->var, d->gen, d->block };
}

/* The thread leaves; the ops that its waits left behind complete when they are granted. */
void wait_exit(struct thread *t)
{
	free(t->given_up);
	t->given_up = NULL;
	t->ngiven_up = t->given_up_cap = 0;
}

/* Push the op of a wait.  Returns NULL with the error in *rc. */
static struct op *wait_push(struct thread *t, pawl_var_t h, u32 vi, u32 *opi, bool write,
			    int *rc)
{
	struct op *op = op_new(t, opi);

	if (!op) {
		*rc = err_pool_empty(t, POOL_OP, "wait: max_ops exist");
		return NULL;
	}
	dep_set(&op->deps[0], vi | (write ? DEP_WRITE : 0), 0, 0, (u32)(h.h >> 32));
	store_helped16(&op->ndeps, 1);
	store_helped16(&op->flags, OP_WAITER | OP_NO_SKIP | OP_NAMED | (write ? OP_NO_COUNT : 0));
	op->fn = NULL;
	store_relaxed(&op->name, "wait");
	op->prio = 0;
	op->prop = PAWL_NORMAL;
	op->dev = 0;
	if (write && op_blocks(t, op)) {
		op_free(t, op, *opi);
		*rc = -ENOMEM;
		return NULL;
	}
	/* Relaxed: a thread that gave up the op's last use may try its old token, in vain. */
	store_relaxed(&op->token, ((load_relaxed(&op->token) >> 2) + 1) << 2 | TOKEN_ARMED);
	/* Waits take no room in the window. */
	count_pushed(t, 1);
	if (push_op(t, op, *opi)) {
		push_undo(t, op);
		op_free(t, op, *opi);
		completed(t);
		flight_check(t);
		*rc = err(-ESTALE, "wait: the var was deleted meanwhile");
		return NULL;
	}
	return op;
}

/*
 * The op of a wait was granted: release it.  If w->newest, report the var's error in w->rc; an
 * error that stays is inherited by the ops behind it.
 */
static void wait_end(struct var_wait *w)
{
	bool take = w->newest, write = w->write;
	struct thread *t = w->t;
	struct op *op = w->op;
	struct block *b = block_of(t->e, dep_version(t->e, op->deps[0].block));
	/* The error at the time of the grant. */
	u32 error = write || (load_relaxed(&b->state) & BLOCK_ERR) ? b->err : 0, budget;

	w->ended = true;
	w->rc = take && error ? error_take(t, error, w->out) : 0;
	if (unlikely(load_relaxed(&t->e->special) & SPECIAL_DEVICES) && take && !w->rc)
		w->rc = device_wait_error(t, op, w->out);
	budget = alone_begin(t);
	/* A write without an error would clear an error that is to stay. */
	retire(t, op, write && !take ? error : 0);
	alone_end(t, budget);
	op_free(t, op, w->opi);
	completed(t);
	flight_check(t);
}

static bool never(void *arg)
{
	return false;
}

/*
 * A wait found no object for its op.  Wait a moment for one, since the pools belong to pushes;
 * meanwhile the caller checks the var without an op.  False: no op is in flight, or the system
 * refused memory.
 */
static __cold bool wait_room(struct thread *t, s64 left, u32 how)
{
	const struct pool *p = t->e->pool[t->lacks];

	if (pool_carved(t->e->pool[t->lacks]) < p->max || !ops_in_flight(t->e))
		return false;
	wait_body(t, &(struct wait_for){ .cond = never },
		  left < 0 ? ROOM_NS : (s64)min_u((u64)left, ROOM_NS), how);
	return true;
}

static int wait_var(struct pawl_engine *e, pawl_var_t h, s64 timeout_ns, struct pawl_error *out,
		    bool write, u32 how)
{
	struct thread *t = thread_get(e);
	u64 end = timeout_ns > 0 ? exec_now_ns() + (u64)timeout_ns : 0;
	bool newest = true;
	u32 vi = var_index(h), opi, tok;
	s64 left = timeout_ns;
	struct var_wait w;
	struct dep d;
	struct op *op;
	int rc;

	error_none(out);
	if (unlikely(!t))
		return thread_last.code;
	if (var_check(t, h))
		return err(-ESTALE, "wait: no var, or it was deleted");
again:
	rc = var_poll(t, vi, (u32)(h.h >> 32), write);
	if (rc > 0 || rc == -ESTALE)
		return rc < 0 ? rc : 0;
	if (thread_last.frame && held_here(t, vi))
		return err(-EDEADLK, "wait: the var is held by the op that waits for it");
	if (rc == -EBUSY && !left)
		return err(-ETIMEDOUT, "wait: not complete");

	newest = true;
	opi = given_up_reuse(t, vi, (u32)(h.h >> 32), write, &newest);
	op = op_of(e, opi);
	if (!opi) {
		op = wait_push(t, h, vi, &opi, write, &rc);
		if (unlikely(!op)) {
			if (rc != -ENOMEM || !wait_room(t, left, how))
				return rc;
			left = time_left(timeout_ns, end);
			goto again;
		}
	}
	tok = load_relaxed(&op->token) & ~3u;
	/* Once it is given up it may be freed: copy what is needed of it. */
	d.var = op->deps[0].var;
	d.gen = op->deps[0].gen;
	d.block = op->deps[0].block;
	d.link = 0;
	rc = 0;
	w = (struct var_wait){ .t = t, .op = op, .opi = opi, .var = vi, .write = write,
			       .newest = newest, .out = out, .below = thread_last.waits };
	if (!granted(&w)) {
		thread_last.waits = &w;
		/* Timeout 0: a push overtook var_poll().  No body runs here in that case. */
		rc = left ? wait_body(t, &(struct wait_for){ granted, names_var, &w }, left, how) :
		     -ETIMEDOUT;
		thread_last.waits = w.below;
		if (w.ended) {	/* the text may be of another call by now */
			rc = w.rc ? err(w.rc, "an op failed: %s", out ? out->text : strerror(-w.rc)) :
			     rc == -EINTR ? rc : 0;
		} else if (rc) {
			u32 want = tok | TOKEN_ARMED;

			/* The grant may come at this moment: CORE-G2 <-> CORE-G1. */
			if (cas_acq_rel_acquire(&op->token, &want, tok | TOKEN_NONE)) {
				give_up(t, opi, tok, &d);
				return rc == -EINTR ? err(rc, "wait: interrupted") :
				       err(rc, "wait: not complete after %lld ns", (long long)timeout_ns);
			}
			/* The interrupt was consumed, so it ends this wait; an error stays. */
			if (rc == -EINTR)
				w.newest = false;
		}
	}
	if (!w.ended) {
		wait_end(&w);
		rc = rc == -EINTR ? rc : w.rc;
	}
	if (rc == -EINTR)
		return err(rc, "wait: interrupted");
	if (newest)
		return rc;
	/* That was the op of an earlier wait.  Wait for the ops behind it. */
	left = time_left(timeout_ns, end);
	goto again;
}

static int wait_all(struct pawl_engine *e, s64 timeout_ns, struct pawl_error *out, u32 how);

static __cold int wait_recorded(struct pawl_engine *e, pawl_var_t v, s64 timeout_ns,
				struct pawl_error *out, u32 what, u32 how)
{
	struct thread *t = thread_get(e);
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	record_wait(t, what, v);
	rc = what == REC_WAIT_ALL ? wait_all(e, timeout_ns, out, how) :
	     wait_var(e, v, timeout_ns, out, what == REC_WAIT_WRITABLE, how);
	record_waited(t, rc);
	return rc;
}

static int wait_var_any(struct pawl_engine *e, pawl_var_t v, s64 timeout_ns,
			struct pawl_error *out, bool write, u32 how)
{
	if (unlikely(load_relaxed(&e->special) & SPECIAL_RECORDING))
		return wait_recorded(e, v, timeout_ns, out,
				     write ? REC_WAIT_WRITABLE : REC_WAIT_READABLE, how);
	return wait_var(e, v, timeout_ns, out, write, how);
}

int pawl_wait_readable(struct pawl_engine *e, pawl_var_t v, int64_t timeout_ns,
		       struct pawl_error *out)
{
	return wait_var_any(e, v, timeout_ns, out, false, 0);
}
PAWL_EXPORT(pawl_wait_readable);

int pawl_wait_writable(struct pawl_engine *e, pawl_var_t v, int64_t timeout_ns,
		       struct pawl_error *out)
{
	return wait_var_any(e, v, timeout_ns, out, true, 0);
}
PAWL_EXPORT(pawl_wait_writable);

/* Ops pushed so far; the sum may be too large while threads leave.  Progress: wait-free. */
u64 ops_pushed(struct pawl_engine *e)
{
	struct thread *t;
	u64 sum = 0;
	u32 i;

	for_each_live(e, t, i)
		sum += load_acquire(&t->pushed);	/* CORE-N4 <-> CORE-N1, CORE-N10 <-> CORE-N9 */
	/* After the slots, to include threads that left meanwhile (live_leave()). */
	return sum + load_relaxed(&e->gone.pushed);
}

/* Ops completed so far.  Progress: wait-free. */
u64 ops_completed(struct pawl_engine *e)
{
	/* Before the slots (live_leave()).  CORE-N12 <-> CORE-N11 */
	u64 sum = load_acquire(&e->gone.completed);
	struct thread *t;
	u32 i;

	for_each_live(e, t, i)
		sum += load_acquire(&t->completed);	/* CORE-N3 <-> CORE-N2 */
	return sum;
}

/* The planted bug SUMS_SWAPPED. */
static inline u64 sums_swapped(struct pawl_engine *e)
{
	u64 pushed = ops_pushed(e);

	return pushed - ops_completed(e);
}

/* Never 0 while an op whose push is visible here is in flight.  Progress: wait-free. */
u64 ops_in_flight(struct pawl_engine *e)
{
	u64 done = ops_completed(e);

	if (BUSTED(SUMS_SWAPPED))
		return sums_swapped(e);
	/* It reads the slots again, to find the threads that pushed what was completed. */
	return ops_pushed(e) - done;
}

/* This thread will wait until at most `limit` ops are in flight, or (room) in the window. */
void wait_flight_begin(struct thread *t, u64 limit, bool room)
{
	store_relaxed(&t->waits_room, room);
	store_relaxed(&t->waits_flight, limit + 1);
	/* CORE-N5 <-> CORE-N6 by EXEC-P6: the barrier before the last check. */
	fetch_add_relaxed(&t->e->nflight, 1);
}

void wait_flight_end(struct thread *t)
{
	fetch_add_relaxed(&t->e->nflight, -1u);
	store_relaxed(&t->waits_flight, 0);
	/* Other threads may wait for the same. */
	flight_check(t);
}

/*
 * After completions: wake threads that wait until few ops, or none, are in flight.  Called when
 * this thread has nothing more to run, and now and then while it has.  Progress: wait-free.
 */
void flight_check(struct thread *t)
{
	flight_wake(t, UINT64_MAX);
}

/* As flight_check(), and wake also all that wait for `limit` or more ops in flight. */
void flight_wake(struct thread *t, u64 limit)
{
	struct pawl_engine *e = t->e;
	struct thread *w;
	u64 flight[2];
	u32 i;

	if (!BUSTED(FLIGHT_NO_MB))
		smp_mb();	/* CORE-N6 <-> CORE-N5 */
	if (BUSTED(FLIGHT_FORGOTTEN))
		return;
	if (likely(!load_relaxed(&e->nflight)))
		return;
	window_recheck(t);
	flight[0] = min_u(ops_in_flight(e), limit);
	flight[1] = min_u(window_flight(e), limit);
	for_each_live(e, w, i)
		if (load_relaxed(&w->waits_flight) > flight[!!load_relaxed(&w->waits_room)])
			exec_unpark(e->x, &w->ex);
}

void engine_idle(void *user, struct exec_thread *ex)
{
	flight_check(container_of(ex, struct thread, ex));
}

struct none_wait {
	struct thread *t;
	u64 ran;		/* ops and nodes that the thread ran until the last call */
	u64 next;		/* their number at which to compute the sums again */
};

/*
 * An op that a thread takes from a queue is in flight, so a thread that has just run one
 * computes the sums only now and then.  A thread that ran nothing since the last call may be
 * about to sleep.
 */
static bool none_in_flight(void *arg)
{
	struct none_wait *w = arg;
	u64 ran = w->t->completed + w->t->nodes;
	bool again = ran == w->ran || ran >= w->next;

	w->ran = ran;
	if (!again)
		return false;
	w->next = ran + NONE_LOOK;
	return !ops_in_flight(w->t->e);
}

/* Until no op is in flight. */
int wait_none(struct thread *t, s64 timeout_ns, u32 how, u32 help)
{
	struct none_wait w = { t, t->completed + t->nodes, 0 };
	struct pawl_engine *e = t->e;
	int rc;

	if (!ops_in_flight(e))
		return 0;
	if (!timeout_ns)
		return -ETIMEDOUT;
	wait_flight_begin(t, 0, false);
	rc = wait_until(t, none_in_flight, &w, timeout_ns, how, help);
	wait_flight_end(t);
	/* The last op may have completed just before the time passed. */
	return rc == -ETIMEDOUT && !ops_in_flight(e) ? 0 : rc;
}

static int wait_all(struct pawl_engine *e, s64 timeout_ns, struct pawl_error *out, u32 how)
{
	struct thread *t = thread_get(e);
	u64 end, now;
	s64 left = timeout_ns;
	int rc;

	error_none(out);
	if (unlikely(!t))
		return thread_last.code;
	if (t->depth)
		return err(-EDEADLK, "wait_all: from inside an op, which is not complete");
	end = timeout_ns > 0 && e->devices ? exec_now_ns() + (u64)timeout_ns : 0;
	rc = wait_none(t, timeout_ns, how, wait_all_helps(timeout_ns, how));
	if (!rc && e->devices) {
		now = end ? exec_now_ns() : 0;
		if (end)
			left = now < end ? (s64)(end - now) : 0;
		rc = device_wait_all(t, left, how, wait_all_helps(timeout_ns, how));
	}
	if (rc == -EINTR)
		return err(rc, "wait_all: interrupted");
	if (rc)
		return err(rc, "wait_all: ops are in flight after %lld ns", (long long)timeout_ns);
	rc = error_take_all(t, out);
	return rc || !e->devices ? rc : device_lost_any(e, out);
}

static int wait_all_any(struct pawl_engine *e, s64 timeout_ns, struct pawl_error *out, u32 how)
{
	if (unlikely(load_relaxed(&e->special) & SPECIAL_RECORDING))
		return wait_recorded(e, (pawl_var_t){ 0 }, timeout_ns, out, REC_WAIT_ALL, how);
	return wait_all(e, timeout_ns, out, how);
}

int pawl_wait_all(struct pawl_engine *e, int64_t timeout_ns, struct pawl_error *out)
{
	return wait_all_any(e, timeout_ns, out, 0);
}
PAWL_EXPORT(pawl_wait_all);

int pawl_wait(struct pawl_engine *e, unsigned int what, uint64_t h, int64_t timeout_ns,
	      struct pawl_error *out)
{
	u32 how = what & (PAWL_WAIT_NO_HELP | PAWL_WAIT_INTR);

	error_none(out);
	switch (what & ~how) {
	case PAWL_WAIT_READABLE:
	case PAWL_WAIT_WRITABLE:
		return wait_var_any(e, (pawl_var_t){ h }, timeout_ns, out,
				    (what & ~how) == PAWL_WAIT_WRITABLE, how);
	case PAWL_WAIT_ALL:
		return wait_all_any(e, timeout_ns, out, how);
	case PAWL_WAIT_CQ:
		return cq_wait(e, (pawl_cq_t){ h }, timeout_ns, how);
	case PAWL_WAIT_TICKET:
		return ticket_wait(e, (pawl_ticket_t){ h }, timeout_ns, how);
	case PAWL_WAIT_GROUP:
	case PAWL_WAIT_ROOM:
		return group_wait(e, (pawl_group_t){ h }, timeout_ns,
				  (what & ~how) == PAWL_WAIT_ROOM, how);
	}
	return err(-EINVAL, "wait: what is %#x", what);
}
PAWL_EXPORT(pawl_wait);

int pawl_run_one(struct pawl_engine *e)
{
	struct thread *t = thread_get(e);
	u32 work;

	if (unlikely(!t))
		return thread_last.code;
	work = exec_take_ready(e->x, &t->ex);
	if (!work)
		return 0;
	if (e->kind == PAWL_NAIVE)
		naive_run(e, &t->ex, work);
	else
		run_alone(t, op_of(e, work), work);
	flight_check(t);
	return 1;
}
PAWL_EXPORT(pawl_run_one);

int pawl_ready_fd(struct pawl_engine *e)
{
	int fd;

	if (e->cfg.workers || e->kind == PAWL_NAIVE)
		return err(-EINVAL, "ready_fd: %s", e->kind == PAWL_NAIVE ?
			   "config.kind is PAWL_NAIVE: ops run in their pushes" :
			   "config.workers is not 0: workers run the ops");
	fd = exec_ready_fd(e->x);
	return fd < 0 ? err(fd, "ready_fd: eventfd: %s", strerror(-fd)) : fd;
}
PAWL_EXPORT(pawl_ready_fd);

int pawl_run_until(struct pawl_engine *e, bool (*done)(void *), void *user, int64_t timeout_ns)
{
	struct thread *t = thread_get(e);
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	if (!done)
		return err(-EINVAL, "run_until: done is NULL");
	thread_last.callbacks++;
	/* In a body a push may wake an idle worker instead: call done() from time to time. */
	rc = wait_here(t, done, user, timeout_ns, 0, EXEC_HELP, true);
	thread_last.callbacks--;
	return rc ? err(rc, "run_until: not done after %lld ns", (long long)timeout_ns) : 0;
}
PAWL_EXPORT(pawl_run_until);
