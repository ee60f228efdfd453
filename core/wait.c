// SPDX-License-Identifier: Apache-2.0
/*
 * Waits.
 *
 * A wait on a var takes its place in the var as a read (readable) or as a write that
 * makes no version (writable), with no body: whoever grants it wakes the waiting
 * thread, and that one only.  The thread then gives its place up.  A wait that times
 * out leaves its place to whoever grants it.
 *
 * Ordering:
 *   CORE-G1 (granter's CAS on the token, release) <-> CORE-G2 (waiter's read)
 *   CORE-N2 (completed, release) <-> CORE-N3 (sum, acquire), CORE-N1 <-> CORE-N4
 *   CORE-N9 <-> CORE-N10, CORE-N11 <-> CORE-N12: of threads that left (live_leave())
 *
 * All over: `completed` of all threads is summed first, then `pushed`.  An op counted
 * in completed was pushed before, and its push is seen by the later sum; so if the
 * sums are equal, every op whose push was counted was over at the first sum.
 *
 *      waiter                              last completer
 *      nflight++                           completed++
 *      PARKED, smp_mb()  (exec/park.c)     smp_mb()
 *      sums: not over -> sleep             nflight?  sums: over -> unpark
 *
 * Bad outcome: both look before both write.  The barriers, here and before a sleeper's last
 * look, forbid it (CORE-N5 <-> CORE-N6, EXEC-P6).  The check costs a completer nothing while
 * it has more to run: the last completion is followed by an idle edge.
 *
 * Progress: blocking by purpose; meanwhile the thread runs ready ops.
 */
#include <stdlib.h>
#include <core/admit.h>
#include <core/device.h>
#include <core/error.h>
#include <core/push.h>
#include <core/readmostly.h>
#include <core/record.h>
#include <core/retire.h>
#include <core/wait.h>
#include <core/record_format.h>

/* The slot in a var that a wait kept when it timed out. */
struct given_up {
	u32 op, token, var, gen, block;
};

/*
 * A body that waits more than HELP_DEPTH bodies deep leaves ready ops to others, so that the
 * stack does not grow without need: unless all workers that could run them wait so as well.
 * Then the last one that came goes on helping, however deep.
 */
static enum exec_help deep_begin(struct thread *t)
{
	struct pawl_engine *e = t->e;

	if (fetch_add_relaxed(&e->deep, 1) + 1 < e->fewest && !exec_worker_error(e->x))
		return EXEC_WAIT;
	t->deep = true;
	return EXEC_HELP;
}

static enum exec_help wait_helps(struct thread *t)
{
	/* Should no worker come to a queue, nobody else would run what is in it. */
	return t->e->help || t->depth ? EXEC_HELP : EXEC_HELP_DESERTED;
}

/* A wait that may be inside a body. */
int wait_body(struct thread *t, bool (*cond)(void *arg), void *arg, s64 timeout_ns)
{
	struct pawl_engine *e = t->e;
	int rc;

	if (likely(t->depth < HELP_DEPTH || t->deep))
		return exec_wait(e->x, &t->ex, cond, arg, timeout_ns, wait_helps(t));
	rc = exec_wait(e->x, &t->ex, cond, arg, timeout_ns, deep_begin(t));
	t->deep = false;
	fetch_add_relaxed(&e->deep, -1u);
	return rc;
}

/* Does a body on this thread's stack hold the var? */
static bool held_here(struct thread *t, u32 vi)
{
	struct pawl_engine *e = t->e;
	struct frame *f;
	u32 j;

	for (f = t->frame; f; f = f->up) {
		struct op *op = op_of(e, f->op);
		struct dep *deps;

		/* An asynchronous op may have been completed by its own body. */
		if (f->run.token.h &&
		    load_relaxed(&op->token) != ((u32)(f->run.token.h >> 32) << 2 | TOKEN_ARMED))
			continue;
		deps = op_deps(e, op, op->ndeps, op->ext);
		for (j = 0; j < op->ndeps; j++)
			if ((deps[j].var & ~DEP_WRITE) == vi)
				return true;
	}
	return false;
}

/* A place that a waiting thread took is granted. */
void waiter_granted(struct thread *t, struct op *op, u32 opi)
{
	struct pawl_engine *e = t->e;
	u32 owner = op->owner, tok = load_relaxed(&op->token);

	if (unlikely(load_relaxed(&e->special) & SPECIAL_DEVICES) && device_wait_parks(t, op, opi))
		return;
	/*
	 * The owner may give up, or come back (given_up_reuse()), at this moment.  If it gave up, the
	 * op goes to its next user behind us, and behind the owner's last look at it.
	 */
	while (!cas_acq_rel_acquire(&op->token, &tok,	/* CORE-G1 <-> CORE-G2, both ways */
				    (tok & ~3u) | TOKEN_DONE))
		;
	if ((tok & TOKEN_MASK) == TOKEN_ARMED) {
		if (owner != t->slot)
			exec_unpark(e->x, &thread_of(e, owner)->ex);
		return;
	}
	/* Nobody waits any more: an op without a body. */
	if (!BUSTED(GIVEN_UP_STAYS))
		exec_push(op_queue(e, op), &t->ex, opi, op->prio, 0);
}

static bool granted(void *arg)
{
	struct op *op = arg;

	return (load_acquire(&op->token) & TOKEN_MASK) == TOKEN_DONE;	/* CORE-G2 <-> CORE-G1 */
}

/* 1: nothing to wait for and no error; 0: look closer; -EBUSY: it is not over; -ESTALE. */
static int var_poll(struct thread *t, u32 vi, u32 gen, bool write)
{
	struct pawl_engine *e = t->e;
	struct var *v = var_of(e, vi);
	struct pair w = word_snapshot(v);
	u32 joined = w.val & WORD_LASTW ? 0 : word_joined(w.val);
	u64 s;

	/* Instead of the hold of those who are counted elsewhere, themselves. */
	if (tag_is_rm(w.tag) && !(w.tag & RM_TAG_CLOSED))
		joined += rm_reading(e, rm_tag_index(w.tag)) - 1;

	/* Whose word it is, is in sight with the word (pawl_var_create()). */
	if ((w.val & WORD_DELETED) || load_relaxed(&v->gen) != gen)
		return err(-ESTALE, "wait: the var was deleted");
	s = load_acquire(&block_of(e, word_cur(w.val))->state);	/* CORE-A3 <-> CORE-R1 */
	if (unlikely(load_relaxed(&e->special) & SPECIAL_DEVICES) && device_busy(e, vi, write))
		s &= ~BLOCK_DONE;
	/* The block was that var's if the word, after it, still says so. */
	if (load_relaxed(&v->word.tag) != w.tag)
		return 0;
	if (!(s & BLOCK_DONE) || (write && ((block_count(s) + joined) & JOIN_MASK)))
		return -EBUSY;
	return !(s & BLOCK_ERR);
}

/*
 * A place that an earlier wait of this thread gave up on the same var: it serves again, so that
 * polling with a timeout does not fill the var with places.  Returns the op, or 0.  *newest:
 * nothing was pushed to the var since, so it is all that there is to wait for.
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
		/* Granted meanwhile, or another op by now: the token tells. */
		if (!cas_relaxed(&op->token, &tok, (tok & ~3u) | TOKEN_ARMED))
			return 0;
		return opi;
	}
	return 0;
}

/* Remember the place; without memory for that, a later wait takes another one. */
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

/* The thread leaves; its places stay with whoever grants them. */
void wait_exit(struct thread *t)
{
	free(t->given_up);
	t->given_up = NULL;
	t->ngiven_up = t->given_up_cap = 0;
}

/* Take a place in the var.  NULL: *rc. */
static struct op *wait_push(struct thread *t, pawl_var_t h, u32 vi, u32 *opi, bool write, int *rc)
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
	store_relaxed(&op->token, ((op->token >> 2) + 1) << 2 | TOKEN_ARMED);
	/* CORE-N1 <-> CORE-N4; the window does not count for waits. */
	store_release(&t->pushed, t->pushed + 1);
	if (push_op(t, op, *opi)) {
		push_undo(t, op);
		op_free(t, op, *opi);
		admit_undo(t, 1);
		*rc = err(-ESTALE, "wait: the var was deleted meanwhile");
		return NULL;
	}
	return op;
}

/*
 * The place was granted, and goes.  take: the var's error is the caller's; an error that stays
 * is inherited by what was pushed behind the place.
 */
static int wait_end(struct thread *t, struct op *op, u32 opi, bool write, bool take,
		    struct pawl_error *out)
{
	struct pawl_engine *e = t->e;
	struct block *b = block_of(e, dep_version(e, op->deps[0].block));
	/* As the grant found it, which is over. */
	u32 error = write || (load_relaxed(&b->state) & BLOCK_ERR) ? b->err : 0, budget;
	int rc = take && error ? error_take(t, error, out) : 0;

	if (unlikely(load_relaxed(&e->special) & SPECIAL_DEVICES) && take && !rc)
		rc = device_wait_error(t, op, out);
	budget = alone_begin(t);
	/* A write without an error would end the error that stays. */
	retire(t, op, write && !take ? error : 0);
	alone_end(t, budget);
	op_free(t, op, opi);
	store_release(&t->completed, t->completed + 1);	/* CORE-N2 <-> CORE-N3 */
	flight_check(t);
	return rc;
}

static int wait_var(struct pawl_engine *e, pawl_var_t h, s64 timeout_ns, struct pawl_error *out,
		    bool write)
{
	struct thread *t = thread_get(e);
	u64 end = timeout_ns > 0 ? exec_now_ns() + (u64)timeout_ns : 0, now;
	bool tried = false, newest = true;
	u32 vi = var_index(h), opi, tok;
	s64 left = timeout_ns;
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
	if (t->frame && held_here(t, vi))
		return err(-EDEADLK, "wait: the var is held by the op that waits for it");
	if (rc == -EBUSY && !left)
		return err(-ETIMEDOUT, "wait: not over");

	newest = true;
	opi = given_up_reuse(t, vi, (u32)(h.h >> 32), write, &newest);
	op = op_of(e, opi);
	if (!opi) {
		while (!(op = wait_push(t, h, vi, &opi, write, &rc)))
			if (rc != -ENOMEM || admit_again(t, &tried, true))
				return rc;
	}
	tok = load_relaxed(&op->token) & ~3u;
	/* Once it is given up it may be gone: what is needed of it, now. */
	d.var = op->deps[0].var;
	d.gen = op->deps[0].gen;
	d.block = op->deps[0].block;
	d.link = 0;
	if (!granted(op)) {
		/* No time: var_poll() was overtaken by a push.  No body runs here then. */
		rc = left ? wait_body(t, granted, op, left) : -ETIMEDOUT;
		if (rc) {
			u32 want = tok | TOKEN_ARMED;

			/* The grant may come at this very moment: then CORE-G2 <-> CORE-G1. */
			if (cas_acq_rel_acquire(&op->token, &want, tok | TOKEN_NONE)) {
				give_up(t, opi, tok, &d);
				return err(rc, "wait: not over after %lld ns", (long long)timeout_ns);
			}
		}
	}
	rc = wait_end(t, op, opi, write, newest, out);
	if (newest)
		return rc;
	/* That was the place of an earlier wait.  What was pushed behind it is still to come. */
	if (end) {
		now = exec_now_ns();
		left = now < end ? (s64)(end - now) : 0;
	}
	goto again;
}

static int wait_all(struct pawl_engine *e, s64 timeout_ns, struct pawl_error *out);

static __cold int wait_recorded(struct pawl_engine *e, pawl_var_t v, s64 timeout_ns,
				struct pawl_error *out, u32 what)
{
	struct thread *t = thread_get(e);
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	record_wait(t, what, v);
	rc = what == REC_WAIT_ALL ? wait_all(e, timeout_ns, out) :
	     wait_var(e, v, timeout_ns, out, what == REC_WAIT_WRITABLE);
	record_waited(t, rc);
	return rc;
}

int pawl_wait_readable(struct pawl_engine *e, pawl_var_t v, int64_t timeout_ns,
		       struct pawl_error *out)
{
	if (unlikely(load_relaxed(&e->special) & SPECIAL_RECORDING))
		return wait_recorded(e, v, timeout_ns, out, REC_WAIT_READABLE);
	return wait_var(e, v, timeout_ns, out, false);
}
PAWL_EXPORT(pawl_wait_readable);

int pawl_wait_writable(struct pawl_engine *e, pawl_var_t v, int64_t timeout_ns,
		       struct pawl_error *out)
{
	if (unlikely(load_relaxed(&e->special) & SPECIAL_RECORDING))
		return wait_recorded(e, v, timeout_ns, out, REC_WAIT_WRITABLE);
	return wait_var(e, v, timeout_ns, out, true);
}
PAWL_EXPORT(pawl_wait_writable);

/* Pushed so far; a little more while threads leave.  Progress: wait-free. */
u64 ops_pushed(struct pawl_engine *e)
{
	struct thread *t;
	u64 sum = 0;
	u32 i;

	for_each_live(e, t, i)
		sum += load_acquire(&t->pushed);	/* CORE-N4 <-> CORE-N1, CORE-N10 <-> CORE-N9 */
	/* After the slots: of threads that left meanwhile (live_leave()). */
	return sum + load_relaxed(&e->gone.pushed);
}

static u64 sum_completed(struct pawl_engine *e)
{
	/* Before the slots.  CORE-N12 <-> CORE-N11 */
	u64 sum = load_acquire(&e->gone.completed);
	struct thread *t;
	u32 i;

	for_each_live(e, t, i)
		sum += load_acquire(&t->completed);	/* CORE-N3 <-> CORE-N2 */
	return sum;
}

/* Never 0 while an op of whose push the caller knows is in flight.  Progress: wait-free. */
u64 ops_in_flight(struct pawl_engine *e)
{
	u64 pushed = BUSTED(SUMS_SWAPPED) ? ops_pushed(e) : 0, done = sum_completed(e);

	/* Slots are looked for again: whose op was completed is there, too. */
	return (BUSTED(SUMS_SWAPPED) ? pushed : ops_pushed(e)) - done;
}

/* This thread is going to wait until at most `limit` ops are in flight. */
void wait_flight_begin(struct thread *t, u64 limit)
{
	store_relaxed(&t->waits_flight, limit + 1);
	/* CORE-N5 <-> CORE-N6: the barrier is the one before the last look (EXEC-P6). */
	fetch_add_relaxed(&t->e->nflight, 1);
}

void wait_flight_end(struct thread *t)
{
	fetch_add_relaxed(&t->e->nflight, -1u);
	store_relaxed(&t->waits_flight, 0);
	/* Others may wait for the same. */
	flight_check(t);
}

/*
 * After completions: wake who waits for few ops in flight, or none.  Called when this
 * thread has nothing more to run, and every now and then while it has.
 */
void flight_check(struct thread *t)
{
	flight_wake(t, UINT64_MAX);
}

/* As flight_check(), and wake also all that wait until at most `limit` or more are in flight. */
void flight_wake(struct thread *t, u64 limit)
{
	struct pawl_engine *e = t->e;
	struct thread *w;
	u64 flight;
	u32 i;

	if (!BUSTED(FLIGHT_NO_MB))
		smp_mb();	/* CORE-N6 <-> CORE-N5 */
	if (likely(!load_relaxed(&e->nflight)) || BUSTED(FLIGHT_FORGOTTEN))
		return;
	flight = min_u(ops_in_flight(e), limit);
	for_each_live(e, w, i)
		if (load_relaxed(&w->waits_flight) > flight)
			exec_unpark(e->x, &w->ex);
}

void engine_idle(void *user, struct exec_thread *ex)
{
	flight_check(container_of(ex, struct thread, ex));
}

static bool none_in_flight(void *arg)
{
	return !ops_in_flight(arg);
}

/* Until no op is in flight. */
int wait_none(struct thread *t, s64 timeout_ns, enum exec_help help)
{
	struct pawl_engine *e = t->e;
	int rc;

	if (!ops_in_flight(e))
		return 0;
	if (!timeout_ns)
		return -ETIMEDOUT;
	wait_flight_begin(t, 0);
	rc = exec_wait(e->x, &t->ex, none_in_flight, e, timeout_ns, help);
	wait_flight_end(t);
	return rc;
}

static int wait_all(struct pawl_engine *e, s64 timeout_ns, struct pawl_error *out)
{
	struct thread *t = thread_get(e);
	s64 left = timeout_ns, end;
	int rc;

	error_none(out);
	if (unlikely(!t))
		return thread_last.code;
	if (t->depth)
		return err(-EDEADLK, "wait_all: from inside an op, which is not over");
	end = timeout_ns > 0 && e->devices ? (s64)exec_now_ns() + timeout_ns : 0;
	rc = wait_none(t, timeout_ns, wait_helps(t));
	if (!rc && e->devices) {
		if (end)
			left = end > (s64)exec_now_ns() ? end - (s64)exec_now_ns() : 0;
		rc = device_wait_all(t, left, wait_helps(t));
	}
	if (rc)
		return err(rc, "wait_all: ops are in flight after %lld ns", (long long)timeout_ns);
	rc = error_take_all(t, out);
	return rc || !e->devices ? rc : device_lost_any(e, out);
}

int pawl_wait_all(struct pawl_engine *e, int64_t timeout_ns, struct pawl_error *out)
{
	if (unlikely(load_relaxed(&e->special) & SPECIAL_RECORDING))
		return wait_recorded(e, (pawl_var_t){ 0 }, timeout_ns, out, REC_WAIT_ALL);
	return wait_all(e, timeout_ns, out);
}
PAWL_EXPORT(pawl_wait_all);

static bool naive_over(void *arg)
{
	struct thread *t = arg;

	return !load_acquire(&t->naive_pending);	/* CORE-N8 <-> CORE-N7 */
}

/*
 * Naive engine: the push that is not inside a body runs what is ready until all that
 * this thread pushed, from here or from bodies, is over.
 */
int wait_naive(struct thread *t)
{
	struct pawl_engine *e = t->e;

	if (!t->depth && !BUSTED(NAIVE_EARLY)) {
		exec_wait(e->x, &t->ex, naive_over, t, -1, EXEC_HELP);
		flight_check(t);
	}
	return 0;
}

int pawl_run_one(struct pawl_engine *e)
{
	struct thread *t = thread_get(e);
	u32 work;

	if (unlikely(!t))
		return thread_last.code;
	work = exec_take_ready(e->x, &t->ex);
	if (!work)
		return 0;
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
	rc = exec_wait(e->x, &t->ex, done, user, timeout_ns, EXEC_HELP);
	flight_check(t);
	return rc ? err(rc, "run_until: not done after %lld ns", (long long)timeout_ns) : 0;
}
PAWL_EXPORT(pawl_run_until);
