// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: creation and destruction of the executor, its worker threads, and threads that wait.
 *
 * Structures: struct exec owns the queues; a queue's workers are created on the first push
 * after exec_start(), or by exec_start() if the client wants that (eager).  Its run word:
 *
 *	STOPPED -> ARMED      exec_start(); the next push sees ATTN_START
 *	ARMED -> STARTING     one pusher, by CAS; it creates the threads
 *	STARTING -> UP        the same pusher
 *	ARMED -> STOPPED      exec_stop()
 *	UP -> STOPPED         exec_stop(), after the workers were joined
 *
 * Ordering: work that was published before ATTN_START is visible to exec_start(), which then
 * starts the workers itself, as a sleeper does that finds work (EXEC-P1, P2).
 *
 * Progress: creating and joining threads is blocking.  While one pusher creates them, other
 * threads continue to push; if it fails, waiting threads can run the work.
 *
 * Lifetime: exec_destroy() stops the workers; the caller ensures that no other thread uses the
 * executor.
 *
 * References: pthread_create(3), sched_setaffinity(2).
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <base/futex.h>
#include <exec/internal.h>

struct worker {
	struct exec_queue *q;	/* I */
	struct exec_thread *t;	/* A: NULL until the worker has entered */
	u32 i;			/* I */
};

__attribute__((weak)) int exec_worker_hook(const char *queue, u32 i)
{
	return 0;
}

/* q has lost its workers, or will have some again: tell the threads that serve such queues. */
static __cold void drive_change(struct exec_queue *q, u32 drive)
{
	struct exec *x = q->x;
	struct exec_thread *t;
	u32 i;

	store_relaxed(&q->drive, drive);
	fetch_add_release(&x->driven, 1);	/* EXEC-W13 <-> EXEC-W14 */
	if (!(drive & DRIVE_BARE))
		return;
	/* EXEC-P2 <-> EXEC-P1: earlier pushers saw the old value.  (As the barriers below.) */
	smp_mb();
	if (!queue_empty(q))
		queue_wake(q);
	/* Threads that sleep in no group must serve it now. */
	for (i = 0; i < slots_end(x); i++) {
		t = load_relaxed(&x->threads[i]);	/* as in queue_stop() */
		if (t)
			exec_unpark(x, t);	/* EXEC-P5 <-> EXEC-P6 */
	}
}

/*
 * n workers of q could not be created, or enter() refused them.  If q has no worker at all,
 * waiting threads and the host serve it.
 */
static __cold void workers_missing(struct exec_queue *q, u32 n, u32 error)
{
	store_relaxed(&q->x->error, error);
	if (fetch_add_relaxed(&q->missing, n) + n != q->workers)
		return;
	store_relaxed(&q->again, exec_now_ns() + AGAIN_NS);
	/* Relaxed: a later push tries again, queue_again(). */
	fetch_or_relaxed(&q->group.attn, ATTN_START);
	drive_change(q, q->drive_set | DRIVE_BARE | DRIVE_FAILED);
}

/* Run one piece of work, and at every SAMPLE_EVERY-th measure how long it runs. */
static __noinline void exec_run(struct exec *x, struct exec_thread *t, u32 work)
{
	u64 c, handed;

	store_relaxed(&t->nexts, 0);
	if (likely(++t->tick & (SAMPLE_EVERY - 1))) {
		x->cl.run(x->cl.user, t, work);
		return;
	}
	handed = load_relaxed(&t->handed);
	c = cycles();
	x->cl.run(x->cl.user, t, work);
	c = (cycles() - c) / (load_relaxed(&t->handed) - handed + t->nexts + 1);
	run_measured(x, t, c);
}

static void worker_loop(struct exec *x, struct exec_queue *q, struct exec_thread *t)
{
	const struct idle how = { .help = true };
	u32 w;

	while (!load_acquire(&q->stop)) {	/* EXEC-W6 <-> EXEC-W5 */
		w = queue_take(q, t, LOOK_DEEP | LOOK_LEAVE);
		if (!w) {
			if (x->cl.idle)
				x->cl.idle(x->cl.user, t);
			if (thread_idle(x, t, &how, &w) != IDLE_WORK)
				break;
		}
		exec_run(x, t, w);
		store_relaxed(&t->nexts, NEXTS_IDLE);
	}
}

/*
 * Is a worker of q, other than t, neither inside work nor inside a wait?  It sleeps, searches, has
 * not begun yet, or was woken, also from a wait inside work, and goes on when it has a CPU.
 * Relaxed: the caller decides nothing by a state that is newer than a millisecond.
 * Progress: wait-free.
 */
bool worker_idle(struct exec_queue *q, const struct exec_thread *t)
{
	u32 begun = load_relaxed(&q->missing), i;

	/* They leave instead. */
	if (load_relaxed(&q->stop))
		return false;
	for (i = 0; i < q->workers; i++) {
		/* EXEC-W15 <-> EXEC-W1: its NEXTS_IDLE. */
		const struct exec_thread *w = load_acquire(&q->args[i].t);

		if (!w)
			continue;
		begun++;
		if (w != t && (load_relaxed(&w->nexts) == NEXTS_IDLE || thread_woken(w)))
			return true;
	}
	return begun < q->workers;
}

/*
 * Progress: wait-free.  A worker is inside a run from just after its take until what the work made
 * ready is queued, however late the system runs it.
 */
bool exec_queue_works(struct exec_queue *q)
{
	struct exec_queue_stats qs;
	u32 i;

	exec_queue_stats(q, &qs);
	if (qs.depth)
		return true;
	/* Workers that leave give their threads to others. */
	if (load_relaxed(&q->stop))
		return false;
	for (i = 0; i < q->workers; i++) {
		/* EXEC-W15 <-> EXEC-W1: its NEXTS_IDLE. */
		const struct exec_thread *w = load_acquire(&q->args[i].t);

		if (w && load_relaxed(&w->nexts) != NEXTS_IDLE)
			return true;
	}
	return false;
}

static void worker_pin(struct exec *x)
{
	cpu_set_t set;
	int cpu;

	if (!x->ncpus)
		return;
	cpu = x->cpus[fetch_add_relaxed(&x->cpu_turn, 1) % x->ncpus];
	if (cpu < 0 || cpu >= CPU_SETSIZE)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	/* If the CPU does not exist, the worker stays unpinned. */
	(void)!sched_setaffinity(0, sizeof(set), &set);
}

/* The worker has entered, or it will not: exec_start() may wait for that. */
static void worker_settled(struct exec *x)
{
	if (!x->eager)
		return;
	fetch_add_release(&x->settled, 1);	/* EXEC-W11 <-> EXEC-W12 */
	futex_wake(&x->settled);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct exec_queue *q = w->q;
	struct exec *x = q->x;
	struct exec_thread *t;
	char name[64];
	int room;

	/* At most 15 characters: shorten the queue's name. */
	room = 15 - snprintf(name, sizeof(name), "%s--%u", x->name, w->i);
	snprintf(name, sizeof(name), "%s-%.*s-%u", x->name, room > 0 ? room : 0, q->name, w->i);
	name[15] = 0;
	os_thread_name(name);
	worker_pin(x);
	if (x->cl.thread_start)
		x->cl.thread_start(x->cl.user2, name);
	t = x->cl.enter(x->cl.user);
	if (t) {
		t->queue = q;
		store_relaxed(&t->nexts, NEXTS_IDLE);
		/*
		 * EXEC-W1 <-> EXEC-W2 by EXEC-P6: exec_stop() sees the thread, or it sees stop.
		 * EXEC-W1 <-> EXEC-W15: the state of the thread.
		 */
		store_release(&w->t, t);
		worker_settled(x);
		worker_loop(x, q, t);
		t->queue = NULL;
		if (x->cl.leave)
			x->cl.leave(x->cl.user, t);
	} else {
		workers_missing(q, 1, EAGAIN);
		worker_settled(x);
	}
	if (x->cl.thread_stop)
		x->cl.thread_stop(x->cl.user2, name);
	return NULL;
}

int exec_os_thread_start(struct exec *x, struct exec_os_thread *t, const cpu_set_t *cpus,
			 void *(*fn)(void *arg), void *arg)
{
	struct os_thread_attr attr = x->attr;
	sigset_t before;
	int rc;

	if (x->cl.thread_create) {
		os_signals_block(&before);
		rc = x->cl.thread_create(x->cl.user2, fn, arg, &t->host);
		os_signals_restore(&before);
		return rc < 0 ? -rc : rc;
	}
	if (cpus)
		attr.cpus = cpus;
	return os_thread_start(&t->os, &attr, fn, arg);
}

void exec_os_thread_join(struct exec *x, struct exec_os_thread *t)
{
	if (x->cl.thread_create)
		x->cl.thread_join(x->cl.user2, t->host);
	else
		os_thread_join(t->os);
}

static int worker_create(struct exec_queue *q, u32 i)
{
	int rc = exec_worker_hook(q->name, i);

	q->args[i].q = q;
	q->args[i].i = i;
	store_relaxed(&q->args[i].t, NULL);
	return rc ? rc : exec_os_thread_start(q->x, &q->threads[i], q->cpus, worker_main,
					      &q->args[i]);
}

/*
 * No worker of q could be created: may the caller try again?  Then it has the queue to itself, as
 * the first one that starts it.  Progress: blocking: it joins threads that were refused a slot.
 */
static __cold bool queue_again(struct exec_queue *q)
{
	u32 old = RUN_UP, i;

	if (!(load_relaxed(&q->drive) & DRIVE_FAILED) || exec_now_ns() < load_relaxed(&q->again))
		return false;
	/* EXEC-W3 <-> EXEC-W4 */
	if (!cas_acquire_relaxed(&q->run, &old, RUN_STARTING))
		return false;
	if (!(load_relaxed(&q->drive) & DRIVE_FAILED)) {
		store_release(&q->run, RUN_UP);		/* EXEC-W4 <-> EXEC-W3 */
		return false;
	}
	for (i = 0; i < load_relaxed(&q->alive); i++)
		exec_os_thread_join(q->x, &q->threads[i]);
	store_relaxed(&q->alive, 0);
	store_relaxed(&q->missing, 0);
	drive_change(q, q->drive_set);
	return true;
}

/*
 * The first thread that calls this creates the workers.  Later calls have no effect, unless none
 * could be created.
 */
void queue_start(struct exec_queue *q)
{
	u32 old = RUN_ARMED, i;
	int rc = 0;

	/* EXEC-W3 <-> EXEC-W4 */
	if (!cas_acquire_relaxed(&q->run, &old, RUN_STARTING) &&
	    (old != RUN_UP || !queue_again(q)))
		return;
	/* Relaxed: a pusher that no longer sees it relies on the workers' first check. */
	fetch_and_relaxed(&q->group.attn, ~ATTN_START);
	for (i = 0; i < q->workers; i++) {
		rc = worker_create(q, i);
		if (rc)
			break;
	}
	store_relaxed(&q->alive, i);
	if (rc)
		workers_missing(q, q->workers - i, (u32)rc);
	store_release(&q->run, RUN_UP);		/* EXEC-W4 <-> EXEC-W3 */
}

void exec_slot_freed(struct exec *x)
{
	u32 i;

	for (i = 0; i < x->nqueues; i++) {
		struct exec_queue *q = x->queues[i];

		if (likely(!(load_relaxed(&q->drive) & DRIVE_FAILED)))
			continue;
		store_relaxed(&q->again, 0);
		if (!queue_empty(q))
			queue_start(q);
	}
}

int exec_worker_error(struct exec *x)
{
	return -(int)load_relaxed(&x->error);
}

/* Wait until n more workers than `before` have settled. */
static void workers_await(struct exec *x, u32 before, u32 n)
{
	/* EXEC-W12 <-> EXEC-W11: what they allocated and counted. */
	u32 now = load_acquire(&x->settled);

	while (now - before < n) {
		futex_wait(&x->settled, now, 0);
		now = load_acquire(&x->settled);	/* EXEC-W12 <-> EXEC-W11 */
	}
}

void exec_start(struct exec *x)
{
	u32 before = load_relaxed(&x->settled), n = 0, i;

	store_relaxed(&x->error, 0);
	for (i = 0; i < x->nqueues; i++) {
		struct exec_queue *q = x->queues[i];

		/* Relaxed: only a stop sets STOPPED, and callers serialize start and stop. */
		if (!q->workers || load_relaxed(&q->run) != RUN_STOPPED)
			continue;
		drive_change(q, q->drive_set);
		store_relaxed(&q->missing, 0);
		store_relaxed(&q->stop, 0);
		store_release(&q->run, RUN_ARMED);	/* EXEC-W4 <-> EXEC-W3 */
		/* EXEC-W7 <-> EXEC-W8: a thread that sees this sees ARMED. */
		fetch_or_release(&q->group.attn, ATTN_START);
		smp_mb();	/* EXEC-P2 <-> EXEC-P1 */
		if (!x->eager && queue_empty(q))
			continue;
		queue_start(q);
		n += load_relaxed(&q->alive);
	}
	if (x->eager)
		workers_await(x, before, n);
}

static void queue_stop(struct exec *x, struct exec_queue *q)
{
	u32 old = RUN_ARMED, i, alive;

	if (!q->workers)
		return;
	/*
	 * EXEC-W3 <-> EXEC-W4: what another thread wrote if it created the workers.  (The
	 * barrier below would be enough, but plain data is handed over by an access, not by a
	 * fence.)
	 */
	if (cas_acquire(&q->run, &old, RUN_STOPPED)) {
		/* Relaxed: a pusher that still sees it finds that run is not ARMED. */
		fetch_and_relaxed(&q->group.attn, ~ATTN_START);
		return;
	}
	/* A pusher is creating the workers. */
	while (old == RUN_STARTING) {
		os_thread_yield();
		old = load_acquire(&q->run);		/* EXEC-W3 <-> EXEC-W4, as above */
	}
	if (old != RUN_UP)
		return;
	store_release(&q->stop, 1);	/* EXEC-W5 <-> EXEC-W6: what the caller did before */
	/* EXEC-W2 <-> EXEC-W1, and EXEC-P5 <-> EXEC-P6 for workers that are about to sleep. */
	smp_mb();
	alive = load_relaxed(&q->alive);
	for (i = 0; i < alive; i++) {
		/* Relaxed: exec_unpark()'s barrier orders what follows. */
		struct exec_thread *t = load_relaxed(&q->args[i].t);

		if (BUSTED(STOP_NO_WAKE))
			continue;
		if (t)
			exec_unpark(x, t);
	}
	for (i = 0; i < alive; i++)
		exec_os_thread_join(x, &q->threads[i]);
	store_relaxed(&q->alive, 0);
	/* Relaxed: the client orders the next start after this; pushers act on ARMED only. */
	store_relaxed(&q->run, RUN_STOPPED);
}

void exec_stop(struct exec *x)
{
	u32 i;

	for (i = 0; i < x->nqueues; i++) {
		struct exec_queue *q = x->queues[i];

		queue_stop(x, q);
		if (!(load_relaxed(&q->drive) & DRIVE_BARE))
			drive_change(q, q->drive_set | DRIVE_BARE);
	}
}

/* A waiting thread checks its condition again after this many hand-offs. */
#define WAIT_BUDGET	64u

void wait_run(struct exec *x, struct exec_thread *t, u32 work, u32 most)
{
	u32 budget = t->budget, nexts = t->nexts;
	u64 since = t->since;

	count(&t->helped);
	t->budget = most;
	exec_run(x, t, work);
	/* The wait may be inside a piece of work, whose run continues afterwards. */
	t->budget = budget;
	store_relaxed(&t->nexts, nexts);
	t->since = since;
}

/* As a worker that has run out of work. */
static void wait_idle(struct exec *x, struct exec_thread *t, bool *ran)
{
	if (*ran && x->cl.idle)
		x->cl.idle(x->cl.user, t);
	*ran = false;
}

/* Is there a queue of this kind? */
bool serves_any(struct exec *x, u32 serves)
{
	u32 i;

	for (i = 0; i < x->nqueues; i++)
		if (load_relaxed(&x->queues[i]->drive) & serves)
			return true;
	return false;
}

/* As exec_wait(), for the queues that t serves. */
static int wait_serve(struct exec *x, struct exec_thread *t, struct idle *how, bool once)
{
	u32 most = how->deadline ? 0 : WAIT_BUDGET, w;
	bool ran = false;
	int rc = 0;

	for (;;) {
		/* EXEC-W14 <-> EXEC-W13: later changes change the number again. */
		how->driven = load_acquire(&x->driven);
		how->help = (t->serves & DRIVE_HELP) || serves_any(x, t->serves);
		/* From then on it serves what others of its group serve. */
		if (unlikely(how->help && t->serves == DRIVE_FAILED))
			t->serves = DRIVE_BARE;
		w = how->help ? exec_take(x, t) : 0;
		if (!w) {
			wait_idle(x, t, &ran);
			rc = -ETIMEDOUT;
			if (once)
				break;
			switch (thread_idle(x, t, how, &w)) {
			case IDLE_WORK:
				break;
			case IDLE_COND:
				return 0;
			case IDLE_INTR:
				return -EINTR;
			case IDLE_DRIVEN:
				continue;
			default:
				return rc;
			}
		}
		wait_run(x, t, w, most);
		ran = true;
		rc = 0;
		if (how->cond(how->arg))
			break;
		rc = -ETIMEDOUT;
		if (once || (how->deadline && exec_now_ns() >= how->deadline))
			break;
	}
	wait_idle(x, t, &ran);
	return rc;
}

int exec_wait(struct exec *x, struct exec_thread *t, bool (*cond)(void *arg), void *arg,
	      s64 timeout_ns, u32 help)
{
	static const u32 serves[] = { [EXEC_FAILED] = DRIVE_FAILED, [EXEC_BARE] = DRIVE_BARE,
				      [EXEC_HELP] = DRIVE_HELP | DRIVE_BARE };
	struct idle how = { .cond = cond, .arg = arg, .intr = help & EXEC_INTR,
			    .polls = help & EXEC_POLL };
	u32 before = t->serves;
	int rc;

	if (cond(arg))
		return 0;
	if (timeout_ns > 0)
		how.deadline = exec_now_ns() + (u64)timeout_ns;
	t->serves = serves[help & EXEC_HELPS];
	rc = wait_serve(x, t, &how, !timeout_ns);
	t->serves = before;
	return rc;
}

int exec_create(const struct exec_config *cfg, const struct exec_client *cl, struct exec **out)
{
	struct exec *x;
	int rc;

	if (cfg->max_work > SLOT_WORK + 1)
		return err(-EINVAL, "exec: max_work %u", cfg->max_work);
	if (!cfg->max_threads || cfg->max_threads > UINT16_MAX)
		return err(-EINVAL, "exec: max_threads %u", cfg->max_threads);
	x = pool_commit_hook("exec", sizeof(*x)) ? NULL : aligned_alloc(CACHELINE, sizeof(*x));
	if (!x)
		return err(-ENOMEM, "exec: no memory");
	memset(x, 0, sizeof(*x));
	x->cl = *cl;
	x->warm = (const char *)x;	/* until exec_set_warm() */
	x->id = cfg->id;
	x->max_threads = cfg->max_threads;
	x->words = 1;
	x->attr = cfg->attr;
	x->eager = cfg->eager;
	/* Cap it so that adding it to the current time cannot overflow. */
	x->look_ns = cl->look ? min_u(cfg->look_ns, (u64)INT64_MAX / 2) : 0;
	x->tidy_ns = cl->tidy ? min_u(cfg->tidy_ns, (u64)INT64_MAX / 2) : 0;
	policy_init(x, cfg);
	snprintf(x->name, sizeof(x->name), "%s", cfg->name ? cfg->name : "exec");
	x->threads = calloc(cfg->max_threads, sizeof(*x->threads));
	if (!x->threads || !group_init(&x->helpers, 1, cfg->max_threads) ||
	    !group_init(&x->servants, 2, cfg->max_threads))
		goto no_memory;
	if (cfg->ncpus) {
		x->cpus = calloc(cfg->ncpus, sizeof(*x->cpus));
		if (!x->cpus)
			goto no_memory;
		memcpy(x->cpus, cfg->cpus, cfg->ncpus * sizeof(*x->cpus));
		x->ncpus = cfg->ncpus;
	}
	rc = prioq_pool_add(cfg->arena, cfg->max_work, cfg->max_threads, cfg->works->mag,
			    &x->nodes);
	if (rc)
		goto out;
	/* With a node for each piece of work, and those that threads hold, a push cannot fail. */
	pool_follow(cfg->works, x->nodes, x->nodes->max - cfg->max_work);
	*out = x;
	return 0;

no_memory:
	rc = err(-ENOMEM, "exec: no memory for %u threads and %u ops", cfg->max_threads,
		 cfg->max_work);
out:
	exec_destroy(x);
	return rc;
}

void exec_set_warm(struct exec *x, const char *base, u32 stride)
{
	x->warm = base;
	x->stride = stride;
}

static void queue_destroy(struct exec_queue *q)
{
	u32 i;

	for (i = 0; q->lanes && i < q->x->max_threads; i++) {
		if (!q->lanes[i])
			continue;
		ring_fini(&q->lanes[i]->ring);
		free(q->lanes[i]);
	}
	for (i = 0; i < PQS; i++) {
		if (q->pq[i])
			prioq_destroy(q->pq[i]);
	}
	group_fini(&q->group);
	group_fini(&q->reserve);
	free(q->lanes);
	free(q->map);
	free(q->threads);
	free(q->args);
	free(q);
}

void exec_destroy(struct exec *x)
{
	u32 i;

	if (!x)
		return;
	for (i = 0; i < x->nqueues; i++)
		queue_stop(x, x->queues[i]);
	for (i = 0; i < x->nqueues; i++)
		queue_destroy(x->queues[i]);
	group_fini(&x->helpers);
	group_fini(&x->servants);
	if (x->ready_fd)
		close((int)x->ready_fd - 1);
	free(x->threads);
	free(x->cpus);
	free(x);
}

static size_t map_bytes(const struct exec *x)
{
	return (x->max_threads + 511) / 512 * CACHELINE;
}

int exec_queue_add(struct exec *x, const char *name, u32 workers, bool drive,
		   struct exec_queue **out)
{
	struct exec_queue *q;
	u32 i;

	if (x->nqueues == EXEC_MAX_QUEUES)
		return err(-EINVAL, "exec: more than %u queues", EXEC_MAX_QUEUES);
	q = pool_commit_hook("queue", sizeof(*q)) ? NULL : aligned_alloc(CACHELINE, sizeof(*q));
	if (!q)
		return err(-ENOMEM, "queue %s: no memory", name);
	memset(q, 0, sizeof(*q));
	q->x = x;
	q->workers = workers;
	q->number = x->nqueues;
	q->drive_set = drive ? DRIVE_HELP : 0;
	q->drive = q->drive_set | (workers ? 0 : DRIVE_BARE);
	q->late = q->late_since = cycles();
	q->late_prio = INT64_MAX;
	snprintf(q->name, sizeof(q->name), "%s", name);
	q->lanes = calloc(x->max_threads, sizeof(*q->lanes));
	q->map = aligned_alloc(CACHELINE, map_bytes(x));
	q->threads = calloc(workers + 1, sizeof(*q->threads));
	q->args = calloc(workers + 1, sizeof(*q->args));
	if (!q->lanes || !q->map || !q->threads || !q->args ||
	    !group_init(&q->group, 3 + 2 * x->nqueues, x->max_threads) ||
	    !group_init(&q->reserve, 4 + 2 * x->nqueues, x->max_threads))
		goto out;
	memset(q->map, 0, map_bytes(x));
	for (i = 0; i < PQS; i++) {
		if (prioq_create(x->nodes, &q->pq[i])) {
			q->pq[i] = NULL;
			goto out;
		}
	}
	x->queues[x->nqueues++] = q;
	*out = q;
	return 0;
out:
	queue_destroy(q);
	return err(-ENOMEM, "queue %s: no memory", name);
}

void exec_queue_cpus(struct exec_queue *q, const cpu_set_t *cpus)
{
	q->cpus = cpus;
}

int exec_thread_init(struct exec *x, struct exec_thread *t, u32 slot)
{
	u32 words = 1;

	if (slot >= x->max_threads)
		return -EINVAL;
	/* Before its first mark, with the order of marks: EXEC-P1 <-> EXEC-P2. */
	while (words <= slot / 64 && !cas_seq_cst(&x->words, &words, slot / 64 + 1))
		;
	t->queue = NULL;
	t->serves = DRIVE_HELP | DRIVE_BARE;
	t->slot = slot;
	t->id = x->id;
	t->budget = EXEC_UNLIMITED;
	t->tick = 0;
	t->avg = 0;
	t->batch = 1;
	store_relaxed(&t->nexts, 0);
	t->turn = slot;
	t->from_q = t->to_q = NULL;
	t->to = NULL;
	t->from = t->around_hoard = slot;
	t->around = slot + 1;
	t->hoarded = NULL;
	t->takes = t->mode = 0;
	t->check = t->step = 1;
	t->calm = 0;
	t->step_most = STEP_ALONE;
	t->clock = t->began = cycles();
	t->idle = t->clock + 1;	/* until now it has kept nothing waiting */
	t->late = 0;
	t->left = false;
	t->spinning = false;
	t->rested = false;
	t->naps = false;
	t->against = 0;
	t->woke = false;
	t->slow_yields = t->crowded = 0;
	t->trims = load_relaxed(&x->trims);
	t->nodes.seed = slot * 0x9e3779b97f4a7c15ull + 1;
	/*
	 * EXEC-W9 <-> EXEC-W10: its counters, which its creator set to zero.
	 * EXEC-P7 <-> EXEC-P8: its park word.
	 */
	store_release(&x->threads[slot], t);
	return 0;
}

void exec_thread_fini(struct exec *x, struct exec_thread *t)
{
	lanes_leave(x, t);
	pool_cache_flush(x->nodes, &t->nodes.nodes);
}

void exec_stats(struct exec *x, struct exec_stats *s)
{
	u32 i, k;

	memset(s, 0, sizeof(*s));
	for (i = 0; i < slots_end(x); i++) {
		/* EXEC-W10 <-> EXEC-W9 */
		struct exec_thread *t = load_acquire(&x->threads[i]);

		if (!t)
			continue;
		s->stolen += load_relaxed(&t->stolen);
		s->handed += load_relaxed(&t->handed);
		s->helped += load_relaxed(&t->helped);
		s->sleeps += load_relaxed(&t->sleeps);
	}
	s->wakes = load_relaxed(&x->wakes);
	for (i = 0; i < x->nqueues; i++) {
		struct exec_queue *q = x->queues[i];

		s->workers += load_relaxed(&q->alive);
		for (k = 0; k < slots_end(x); k++) {
			/* EXEC-Q4 <-> EXEC-Q3 */
			struct exec_lane *l = load_acquire(&q->lanes[k]);

			if (l)
				s->bytes += sizeof(*l) +
					    (sizeof(u32) << (load_relaxed(&l->ring.arr) & 63));
		}
	}
}
