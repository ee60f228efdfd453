// SPDX-License-Identifier: Apache-2.0
/*
 * The watchdog: reports bodies that have run for a long time, asynchronous ops that have been
 * incomplete for a long time, and queues with ready ops from which no thread took one for a
 * long time.
 *
 * A host calls pawl_watch() periodically.  An op stores no time: each call compares the state
 * with that of the last call, and remembers since when it has not changed.  So an op pays
 * nothing, and a time counts from the first call that found the state.
 *
 * The next op in the same object must not be mistaken for the one before.  A body is the same
 * if its slot still belongs to the same thread, the thread has completed nothing since and begun
 * no body of a graph, and the op's token has not changed (an asynchronous run changes it).  The token of an asynchronous op
 * has a generation.  Both are checked again after everything about the op was read, and before
 * it is reported.  While an op holds its vars, the number of ops behind it can only grow.
 *
 * Progress: bounded by the number of threads, ops and queues so far, and by the callback;
 * allocates at the first call.  It only reads what other threads write, and delays none.
 */
#include <sys/mman.h>
#include <base/name.h>
#include <core/readmostly.h>
#include <core/retire.h>
#include <core/watch.h>

#define BEHIND_MAX	1000u	/* ops behind one op that are counted */
#define NAMES		16u	/* reports in a row with names of their own */
#define NAME_TEXT	256u

/* The state that the last call found; all zero before the first. */
struct watch_thread {
	u64 completed, since;	/* O: the owner is the thread in a call */
	u32 op, token, user;	/* O */
};

struct watch_op {
	u64 since;		/* O */
	u32 token;		/* O */
};

struct watch_queue {
	u64 since, taken;	/* O */
};

struct watch {
	u32 busy;		/* A: a thread is in a call */
	u32 names;		/* O */
	char name[NAMES][NAME_TEXT];	/* O: what a host may print, of names that it may not */
	size_t bytes;		/* I */
	struct watch_queue *queues;	/* I: [number] */
	struct watch_op *ops;	/* I: [index] */
	struct watch_thread threads[];	/* I: [slot] */
};

/* One call. */
struct look {
	struct pawl_engine *e;
	struct watch *w;
	u64 now, threshold;
	pawl_watch_fn fn;
	void *arg;
	int found;
};

static u32 queues_count(struct exec *x)
{
	u32 n = 0;

	while (exec_queue_at(x, n))
		n++;
	return n;
}

/* Reserve memory for all possible threads, queues and ops; pages are committed when touched. */
static struct watch *watch_new(struct pawl_engine *e)
{
	size_t threads = e->max_threads * sizeof(struct watch_thread);
	size_t queues = queues_count(e->x) * sizeof(struct watch_queue);
	size_t ops = (e->pool[POOL_OP]->max + 1) * sizeof(struct watch_op);
	size_t bytes = sizeof(struct watch) + threads + queues + ops;
	struct watch *w = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);

	if (w == MAP_FAILED)
		return NULL;
	w->bytes = bytes;
	w->queues = (void *)((char *)w->threads + threads);
	w->ops = (void *)((char *)w->queues + queues);
	return w;
}

/* Return a watch of the engine, allocated on the first call, or NULL for lack of memory. */
static struct watch *watch_get(struct pawl_engine *e, struct watch **of)
{
	struct watch *w = load_acquire(of), *none = NULL;	/* CORE-J2 <-> CORE-J1 */

	if (w)
		return w;
	w = watch_new(e);
	if (!w)
		return NULL;
	/* CORE-J1 <-> CORE-J2: publish the pointers; a failed exchange is CORE-J2. */
	if (cas_acq_rel_acquire(of, &none, w))
		return w;
	munmap(w, w->bytes);
	return none;
}

void watch_exit(struct pawl_engine *e)
{
	struct watch *w[] = { load_relaxed(&e->watch), load_relaxed(&e->watch_published) };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(w); i++)
		if (w[i])
			munmap(w[i], w[i]->bytes);
}

/* Return the time since `since`, or 0 if it is below the threshold. */
static u64 look_long(const struct look *l, u64 since)
{
	u64 ns = l->now - since;

	return ns && ns >= l->threshold ? ns : 0;
}

/*
 * Is this a block, or an rm, that exists?  If not, the op that named it is complete, and its
 * memory contains the argument of another (arg_fill()).
 */
static bool block_exists(struct pawl_engine *e, u32 bi)
{
	return bi && (bi <= pool_carved(e->pool[POOL_BLOCK]) ||
		      (bi >= RM_BASE && bi < RM_BASE + RM_MAX));
}

/* A read of a parked var has block 0, and so has an access left out, with generation 0. */
static bool reads_parked(const struct dep *d, u32 var, u32 bi)
{
	return !bi && !(var & DEP_WRITE) && load_helped(&d->gen);
}

/*
 * Return how many ops wait on this var behind the holder of block bi: the readers of its
 * version, if it is being written, then the next writer, its readers, and so on.
 */
static u64 behind(struct pawl_engine *e, u32 vi, u32 bi, bool write)
{
	struct var *v = var_of(e, vi);
	u64 n = 0, val;
	u32 opi, steps;

	for (steps = 0; steps < BEHIND_MAX && n < BEHIND_MAX; steps++) {
		struct block *b = version_of(e, vi, bi);
		u64 s = load_acquire(&b->state);	/* CORE-R2 <-> CORE-A1 */

		if (!(s & BLOCK_CLOSED)) {
			/* The newest version: its readers are counted in the var's word. */
			val = load_relaxed(&v->word.val);
			if (write && word_cur(val) == bi && !(val & WORD_LASTW))
				n += word_joined(val);
			break;
		}
		if (write && block_count(s))
			n += block_count(s) - 1;
		n++;
		bi = load_helped(&dep_of(e, load_relaxed(&b->succ), &opi)->block);
		if (!block_exists(e, bi))
			break;
		bi = dep_version(e, bi);
		write = true;
	}
	return min_u(n, (u64)BEHIND_MAX);
}

/* Find the var of the op with the most ops behind it. */
static void look_vars(struct pawl_engine *e, u32 opi, struct pawl_stalled *s)
{
	struct op *op = op_of(e, opi);
	u32 n = load_helped(&op->ndeps), ext = load_helped(&op->ext), j;
	struct dep *deps;
	u64 most = 0;

	/* The object may be another op by now, and n and ext may belong to different ops. */
	if (n > INLINE_DEPS && (n > ext_cap(ext >> 30) || (ext & 0x3fffffffu) >
				pool_carved(e->pool[POOL_EXT0 + (ext >> 30)])))
		return;
	deps = op_deps(e, op, n, ext);
	for (j = 0; j < n; j++) {
		u32 var = load_helped(&deps[j].var), vi = var & ~DEP_WRITE;
		u32 bi = load_helped(&deps[j].block);
		u64 k;

		if ((!block_exists(e, bi) && !reads_parked(&deps[j], var, bi)) ||
		    vi > pool_carved(e->pool[POOL_VAR]))
			continue;
		k = behind(e, vi, dep_version(e, bi), var & DEP_WRITE);
		if (s->var.h && k <= most)
			continue;
		most = k;
		s->var.h = (u64)load_helped(&deps[j].gen) << 32 | vi;
	}
	s->behind = most;
}

/* The name of an op, as a host may print it: most names are that. */
static const char *look_name(struct look *l, u32 opi)
{
	const char *name = op_name(op_of(l->e, opi));
	char *text;

	if (!name || name_fine(name))
		return name;
	text = l->w->name[l->w->names++ % NAMES];
	name_copy(text, NAME_TEXT, name);
	return text;
}

static void report(struct look *l, const struct pawl_stalled *s)
{
	l->found++;
	if (l->fn)
		l->fn(l->arg, s);
}

static struct watch_thread thread_now(struct pawl_engine *e, struct thread *t)
{
	/* CORE-N3 <-> CORE-N2: read the count first, then the running op. */
	struct watch_thread n = { .completed = load_acquire(&t->completed) };

	/* The bodies of a launch complete nothing, except for the last one. */
	n.completed += load_relaxed(&t->nodes);
	n.user = load_relaxed(&t->user);
	n.op = load_relaxed(&t->running);
	if (n.op)
		n.token = load_relaxed(&op_of(e, n.op)->token);
	return n;
}

static bool thread_same(const struct watch_thread *a, const struct watch_thread *b)
{
	return a->op == b->op && a->token == b->token && a->completed == b->completed &&
	       a->user == b->user;
}

static void look_thread(struct look *l, u32 slot)
{
	struct thread *t = thread_of(l->e, slot);
	struct watch_thread *was = &l->w->threads[slot], now = thread_now(l->e, t);
	struct pawl_stalled s = { .size = sizeof(s), .what = PAWL_STALLED_BODY, .thread = slot };

	if (!now.op || !thread_same(was, &now)) {
		*was = now;
		was->since = l->now;
		return;
	}
	s.ns = look_long(l, was->since);
	if (!s.ns)
		return;
	s.name = look_name(l, now.op);
	look_vars(l->e, now.op, &s);
	now = thread_now(l->e, t);
	if (thread_same(was, &now))
		report(l, &s);
}

static void look_async(struct look *l, u32 opi)
{
	struct op *op = op_of(l->e, opi);
	struct watch_op *was = &l->w->ops[opi];
	u32 token = load_relaxed(&op->token);
	struct pawl_stalled s = { .size = sizeof(s), .what = PAWL_STALLED_ASYNC };

	if ((token & TOKEN_MASK) != TOKEN_ARMED || (load_relaxed(&op->flags) & OP_WAITER))
		return;
	if (was->token != token) {
		was->token = token;
		was->since = l->now;
		return;
	}
	s.ns = look_long(l, was->since);
	if (!s.ns)
		return;
	s.thread = load_relaxed(&op->owner);
	s.name = look_name(l, opi);
	look_vars(l->e, opi, &s);
	if (load_relaxed(&op->token) == token)
		report(l, &s);
}

static void look_queue(struct look *l, u32 i, struct exec_queue *q)
{
	struct watch_queue *was = &l->w->queues[i];
	struct pawl_stalled s = { .size = sizeof(s), .what = PAWL_STALLED_QUEUE };
	struct exec_queue_stats qs;
	u64 taken;

	exec_queue_stats(q, &qs);
	taken = qs.pushed - qs.depth;
	/* The time counts from the first call that found an op in the queue. */
	if (!qs.depth || taken != was->taken || !was->since) {
		was->taken = taken;
		was->since = qs.depth ? l->now : 0;
		return;
	}
	s.ns = look_long(l, was->since);
	if (!s.ns)
		return;
	s.name = qs.name;
	s.behind = qs.depth;
	report(l, &s);
}

static int watch_look(struct pawl_engine *e, struct watch **of, u64 threshold, pawl_watch_fn fn,
		      void *arg)
{
	struct look l = { .e = e, .threshold = threshold, .fn = fn, .arg = arg };
	struct exec_queue *q;
	u32 i, n;

	l.w = watch_get(e, of);
	if (!l.w)
		return err(-ENOMEM, "watch: no memory");
	if (xchg_acquire(&l.w->busy, 1))	/* CORE-J4 <-> CORE-J3 */
		return err(-EBUSY, "watch: another call is in progress");
	l.now = exec_now_ns();
	n = slots_used(e);
	for (i = 0; i < n; i++)
		look_thread(&l, i);
	n = pool_carved(e->pool[POOL_OP]);
	for (i = 1; i <= n; i++)
		look_async(&l, i);
	for (i = 0; (q = exec_queue_at(e->x, i)); i++)
		look_queue(&l, i, q);
	store_release(&l.w->busy, 0);		/* CORE-J3 <-> CORE-J4: the recorded state */
	return l.found;
}

int watch_published(struct pawl_engine *e, pawl_watch_fn fn, void *arg)
{
	return watch_look(e, &e->watch_published, 0, fn, arg);
}

int pawl_watch(struct pawl_engine *e, int64_t threshold_ns, pawl_watch_fn fn, void *arg)
{
	if (threshold_ns < 0)
		return err(-EINVAL, "watch: threshold_ns is %lld", (long long)threshold_ns);
	return watch_look(e, &e->watch, (u64)threshold_ns, fn, arg);
}
PAWL_EXPORT(pawl_watch);
