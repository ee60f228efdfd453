// SPDX-License-Identifier: Apache-2.0
/*
 * Bulk: consecutive small pushes of one thread become one op.
 *
 * Purpose: MXNet's bulk mode.  While a thread's size is n > 1, its pushes that are
 * synchronous, normal and of priority 0 gather, as long as they are for one engine and one
 * device.  The op that they become reads and writes the vars of all of them, runs their
 * functions in order, and skips those behind the first that fails.
 *
 * Structures: one struct mx_bulk per thread that has set a size: the functions as a list, and
 * their vars in an array without duplicates, with a hash table for look-ups.  A bulk is pushed
 * when it contains n functions or BULK_VARS vars; before any other push, wait, delete or query
 * of its thread; when the thread ends; and when the thread stops the engine or any thread
 * frees it.  A thread that frees an engine finds the bulks of other threads in a list of the
 * process.  It skips those of the engine's own workers, which push them when they end; the
 * engine waits for that.
 *
 * The word `state` determines which thread may access the other fields, and names the engine
 * while the bulk is not empty:
 *
 *	FREE -> EMPTY		a thread takes the object
 *	EMPTY -> FILLED		its thread, with the first function
 *	FILLED -> PUSHING	its thread, or a thread that frees the engine; the one that
 *				succeeds pushes the bulk
 *	PUSHING -> EMPTY	the same thread
 *	EMPTY -> FREE		the thread has ended
 *
 * Ordering: COMPAT-B1 (state stored, release) <-> COMPAT-B2 (state taken, acquire): the
 * contents come before their push, and the push before the engine is freed.
 *
 * Progress: that of pawl_push().  The end of a thread or an engine waits for another thread
 * that is pushing the same bulk.
 *
 * Lifetime: an accepted function is run, or its release is called.  The push of a bulk is
 * refused if a var was deleted in between, or if there is no memory for it; then each
 * function's release is called, and the thread's next wait returns the error.
 */
#include <pthread.h>
#include <stdlib.h>
#include <base/thread.h>
#include <compat/engine.h>

#define BULK_MAX	64u
#define BULK_VARS	256u
#define BULK_HASH	(2 * BULK_VARS)

enum { BULK_FREE, BULK_EMPTY, BULK_FILLED, BULK_PUSHING, BULK_MASK = 3 };

struct mx_bulk {
	ck_stack_entry_t link;	/* I: list of the process */
	u64 state;		/* A: engine | BULK_* */
	u32 n;			/* functions */
	struct pawl_mx_engine *worker;	/* the engine whose worker the thread is, or NULL */
	struct pawl_device dev;
	struct mx_call *first, **last;
	u32 nvars;
	struct { u64 h; bool write; } var[BULK_VARS];
	u16 hash[BULK_HASH];	/* position in var + 1 */
};

static ck_stack_t bulks;		/* all */
CK_STACK_CONTAINER(struct mx_bulk, link, bulk_of)
static __thread struct mx_bulk *mine;
__thread bool mx_bulk_used;
static __thread int size;
static __thread bool pushing;		/* pushes inside bodies that run now do not gather */
static __thread int lost;		/* the error of a refused bulk, until a wait reports it */
static __thread struct pawl_mx_engine *works_for;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool have_key;

static int bulk_run(struct pawl_run *run, void *arg)
{
	struct mx_call *c;
	int rc = 0;

	for (c = arg; c && !rc; c = c->next) {
		rc = mx_run_sync(run, c);
		if (BUSTED(MX_BULK_GOES_ON))
			rc = 0;
	}
	return rc;
}

static void bulk_release(void *arg, int status)
{
	struct mx_call *c = arg, *next;

	for (; c; c = next) {
		next = c->next;
		mx_call_release(c, status);
	}
}

static struct pawl_mx_engine *bulk_engine(u64 state)
{
	return (struct pawl_mx_engine *)(uintptr_t)(state & ~(u64)BULK_MASK);
}

static u64 bulk_state(struct pawl_mx_engine *e, u64 st)
{
	return (u64)(uintptr_t)e | st;
}

/* Push a bulk for e, which this thread has set to PUSHING. */
static int bulk_push(struct mx_bulk *b, struct pawl_mx_engine *e)
{
	struct pawl_op d = PAWL_OP_INIT;
	bool was = pushing;
	pawl_var_t vars[BULK_VARS];
	u32 r = 0, w = b->nvars, i;
	int rc;

	for (i = 0; i < b->nvars; i++)
		vars[b->var[i].write ? --w : r++].h = b->var[i].h;
	d.fn = bulk_run;
	d.arg = b->first;
	d.release = bulk_release;
	d.name = b->n == 1 ? b->first->name : "ImperativeBulk";
	d.device = b->dev;
	d.reads = vars;
	d.nreads = r;
	d.writes = vars + r;
	d.nwrites = b->nvars - r;
	b->n = 0;
	b->nvars = 0;
	memset(b->hash, 0, sizeof(b->hash));
	pushing = true;
	rc = pawl_push(mx_pe(e), &d);
	if (unlikely(rc)) {
		mx_err_pawl(rc);
		/* A drop may push and delete: that does not gather, either. */
		bulk_release(d.arg, rc);
	}
	pushing = was;
	store_release(&b->state, BULK_EMPTY);	/* COMPAT-B1 <-> COMPAT-B2 */
	return rc;
}

/* True: the caller must push it.  False: another thread has pushed it, and that is visible. */
static bool bulk_take(struct mx_bulk *b, struct pawl_mx_engine *e)
{
	u64 st = bulk_state(e, BULK_FILLED);

	/* COMPAT-B2 <-> COMPAT-B1 */
	while (!cas_acq_rel_acquire(&b->state, &st, bulk_state(e, BULK_PUSHING))) {
		if (st != bulk_state(e, BULK_PUSHING))
			return false;
		os_thread_yield();
		st = bulk_state(e, BULK_FILLED);
	}
	return true;
}

void mx_bulk_flush_slow(void)
{
	struct pawl_mx_engine *e = bulk_engine(load_relaxed(&mine->state));
	int rc;

	if (!e || pushing)
		return;
	rc = bulk_take(mine, e) ? bulk_push(mine, e) : 0;
	if (unlikely(rc) && !lost)
		lost = rc;
}

int mx_bulk_lost(void)
{
	int rc;

	mx_bulk_flush();
	if (likely(!lost))
		return 0;
	rc = lost;
	lost = 0;
	return mx_err(rc, "the push of what was gathered before (bulk) was refused: error %d", rc);
}

/* Push everything that threads gathered for e, except for its running workers. */
static void engine_flush(struct pawl_mx_engine *e)
{
	ck_stack_entry_t *i = load_acquire(&bulks.head);	/* COMPAT-B2 <-> COMPAT-B1 */

	mx_bulk_flush();
	for (; i; i = i->next) {
		struct mx_bulk *b = bulk_of(i);

		/* COMPAT-B2 <-> COMPAT-B1 */
		if (bulk_engine(load_acquire(&b->state)) == e && b->worker != e &&
		    bulk_take(b, e))
			(void)!bulk_push(b, e);
	}
}

int mx_bulk_end(struct pawl_mx_engine *e)
{
	int i, rc;

	/*
	 * The first stop joins the workers, which push the bulks that bodies gathered on them;
	 * the second one runs these.  Bodies that a stop runs gather on this thread.
	 */
	for (i = 0; i < 2 || (mine && bulk_engine(load_relaxed(&mine->state)) == e); i++) {
		engine_flush(e);
		rc = pawl_engine_stop(mx_pe(e));
		if (rc)
			return rc;
	}
	return 0;
}

/* --- gathering --- */

static u32 hash_slot(const struct mx_bulk *b, u64 h)
{
	u32 i = (u32)((h * 0x9e3779b97f4a7c15ull) >> 55);

	BUILD_BUG_ON(BULK_HASH != 1u << 9);
	while (b->hash[i] && b->var[b->hash[i] - 1].h != h)
		i = (i + 1) % BULK_HASH;
	return i;
}

static void var_add(struct mx_bulk *b, pawl_var_t v, bool write)
{
	u32 i = hash_slot(b, v.h);

	if (!b->hash[i]) {
		b->var[b->nvars].h = v.h;
		b->var[b->nvars].write = false;
		b->hash[i] = (u16)++b->nvars;
	}
	b->var[b->hash[i] - 1].write |= write;
}

static bool vars_alive(struct pawl_engine *pe, const pawl_var_t *v, u32 n)
{
	uint64_t version;
	u32 i;

	for (i = 0; i < n; i++)
		if (pawl_var_version(pe, v[i], &version))
			return false;
	return true;
}

bool mx_bulk_wants(struct pawl_mx_engine *e, const struct pawl_mx_op *op,
		   const struct pawl_op *d)
{
	struct mx_bulk *b = mine;
	struct pawl_mx_engine *for_e;

	if (size < 2 || pushing || !op->sync || d->prop != PAWL_NORMAL || d->flags ||
	    op->priority || op->nreads + op->nwrites > BULK_VARS || e->kind == PAWL_MX_NAIVE ||
	    mx_hooks.aggregating())
		return false;
	/* The push itself then refuses the op. */
	if (!vars_alive(mx_pe(e), d->reads, d->nreads) ||
	    !vars_alive(mx_pe(e), d->writes, d->nwrites))
		return false;
	for_e = bulk_engine(load_acquire(&b->state));	/* COMPAT-B2 <-> COMPAT-B1 */
	if (for_e &&
	    (for_e != e || b->dev.kind != d->device.kind || b->dev.id != d->device.id ||
	     b->nvars + d->nreads + d->nwrites > BULK_VARS))
		mx_bulk_flush_slow();
	return true;
}

void mx_bulk_add(struct pawl_mx_engine *e, struct mx_call *c, const struct pawl_op *d)
{
	struct mx_bulk *b = mine;
	u32 i;

	if (!b->n) {
		b->dev = d->device;
		b->last = &b->first;
	}
	c->next = NULL;
	*b->last = c;
	b->last = &c->next;
	b->n++;
	for (i = 0; i < d->nreads; i++)
		var_add(b, d->reads[i], false);
	for (i = 0; i < d->nwrites; i++)
		var_add(b, d->writes[i], true);
	store_release(&b->state, bulk_state(e, BULK_FILLED));	/* COMPAT-B1 <-> COMPAT-B2 */
	if (b->n >= min_u((u32)size, BULK_MAX))
		mx_bulk_flush_slow();
}

/* --- threads --- */

/* The thread ends: push the ops that it gathered. */
static void thread_ends(void *arg)
{
	struct mx_bulk *b = arg;

	/*
	 * In a child, a thread can have the stack and the value of one that was ending at the fork:
	 * glibc does not clear that.
	 */
	if (b != mine)
		return;
	if (!BUSTED(MX_BULK_LOST))
		mx_bulk_flush_slow();
	mine = NULL;
	mx_bulk_used = false;
	size = 0;
	store_release(&b->state, BULK_FREE);	/* COMPAT-B1 <-> COMPAT-B2 */
}

static void key_make(void)
{
	have_key = !pthread_key_create(&key, thread_ends);
}

static struct mx_bulk *bulk_new(void)
{
	ck_stack_entry_t *i;
	struct mx_bulk *b;
	u64 st;

	pthread_once(&once, key_make);
	if (!have_key)
		return NULL;
	for (i = load_acquire(&bulks.head); i; i = i->next) {	/* COMPAT-B2 <-> COMPAT-B1 */
		b = bulk_of(i);
		st = BULK_FREE;
		/* COMPAT-B2 <-> COMPAT-B1 */
		if (cas_acq_rel_acquire(&b->state, &st, BULK_EMPTY))
			break;
	}
	if (!i) {
		b = calloc(1, sizeof(*b));
		if (!b)
			return NULL;
		b->state = BULK_EMPTY;
		ck_stack_push_upmc(&bulks, &b->link);	/* COMPAT-B1 <-> COMPAT-B2 */
	}
	b->worker = works_for;
	/* A thread without a notice of its end cannot gather. */
	if (pthread_setspecific(key, b)) {
		store_release(&b->state, BULK_FREE);	/* COMPAT-B1 <-> COMPAT-B2 */
		return NULL;
	}
	return b;
}

void mx_bulk_worker(struct pawl_mx_engine *e)
{
	works_for = e;
}

bool mx_bulk_works(void)
{
	return works_for;
}

void mx_bulk_fork_child(void)
{
	ck_stack_entry_t *i;

	/* Other threads and their bulks belong to the parent. */
	CK_STACK_FOREACH(&bulks, i) {
		struct mx_bulk *b = bulk_of(i);

		b->n = 0;
		b->nvars = 0;
		memset(b->hash, 0, sizeof(b->hash));
		store_relaxed(&b->state, b == mine ? BULK_EMPTY : BULK_FREE);
	}
	if (mine)
		mine->worker = NULL;
	works_for = NULL;
}

int pawl_mx_bulk_size(struct pawl_mx_engine *e)
{
	return e->kind == PAWL_MX_NAIVE || mx_hooks.aggregating() ? 0 : size;
}
PAWL_EXPORT(pawl_mx_bulk_size);

int pawl_mx_set_bulk_size(struct pawl_mx_engine *e, int n)
{
	int was = size;

	if (!mx_pe(e))
		return mx_bad_engine();
	if (e->kind == PAWL_MX_NAIVE)
		return 0;
	if (n > 1 && !mine) {
		mine = bulk_new();
		mx_bulk_used = mine;
		if (!mine)
			return mx_err(-ENOMEM, "set_bulk_size: no memory");
	}
	if (was != n)
		mx_bulk_flush();
	size = n < 0 ? 0 : n;
	return was;
}
PAWL_EXPORT(pawl_mx_set_bulk_size);
