// SPDX-License-Identifier: Apache-2.0
/*
 * fork(): the child continues to use the engines, vars and operators of its parent.
 *
 * Purpose: MXNet's data loaders fork, and MXNet's engine works in the child too, with
 * MXNET_MP_WORKER_NTHREADS workers.  An engine of libpawl does not: it has no threads in the
 * child, and ops that other threads were running are lost.  But a var of this layer is an
 * object that holds pawl's handle, so the child creates new engines and gives every var and
 * operator a new handle.
 *
 * Before the fork the process's engine is stopped, as MXNet's is, so that the data are
 * consistent in the child.  A fork from inside a body cannot stop the engine; the child then
 * has the data as they are.  Version numbers continue; a poisoned var is poisoned in the child
 * too, with the text of its error.
 *
 * Other threads may fork, and create and free engines, at the same time.  A lock is held from
 * the snapshot of the vars until the fork has returned.  A thread that frees an engine marks it
 * under this lock, and a fork does not use a marked engine.  No thread waits for ops while it
 * holds the lock, so the engine is stopped before the lock is taken, and stopped again if the
 * end of another fork has started it meanwhile.
 *
 * Lifetime: this code runs on the forking thread, the only thread of the child.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <base/thread.h>
#include <compat/engine.h>

/* The error of a var at the fork. */
struct snap {
	struct snap *next;
	struct pawl_mx_var *var;
	int code;
	char text[160];
};

static u32 fork_lock;
static struct snap *snaps;		/* W(fork_lock) */
static struct pawl_mx_engine *stopped;	/* W(fork_lock): to be started after the fork, or NULL */
static u32 starting;	/* A: forks that are starting the engine again */
static u32 starts;	/* A: forks that have started it again */
static u32 handlers;	/* A: the handlers are registered, perhaps twice */
static __thread u32 forking;	/* O: nested handlers, if they are registered twice */
static __thread bool locked;	/* O: this thread has fork_lock until its fork returns */

void mx_fork_ending(struct pawl_mx_engine *e, bool ending)
{
	/* A handler of the program may call this between the handlers here. */
	bool locks = !locked;

	if (locks)
		mx_lock(&fork_lock);
	e->ending = ending;
	if (locks)
		mx_unlock(&fork_lock);
}

static void snap_var(void *obj, void *arg)
{
	struct pawl_mx_var *v = obj;
	pawl_var_t h = { load_acquire(&v->h) };	/* COMPAT-H2 <-> COMPAT-H1 */
	struct pawl_mx_engine *e = h.h ? load_relaxed(&v->engine) : NULL;
	struct pawl_engine *pe = e && !e->ending ? mx_pe(e) : NULL;
	struct pawl_error err = { 0 };
	struct snap *s;

	v->snap_code = 0;
	if (!pe)
		return;
	v->snap = 0;
	pawl_var_version(pe, h, &v->snap);
	v->snap += load_relaxed(&v->base);
	if (!pawl_var_error(pe, h, &err) || !err.code)
		return;
	/* Without memory for the text the child still has the code. */
	v->snap_code = err.code;
	s = malloc(sizeof(*s));
	if (!s)
		return;
	s->var = v;
	s->code = err.code;
	memcpy(s->text, err.text, sizeof(s->text));
	s->next = snaps;
	snaps = s;
}

static void snaps_free(void)
{
	struct snap *s;

	while ((s = snaps)) {
		snaps = s->next;
		free(s);
	}
}

/* Take the lock with the process's engine stopped. */
static void stop_and_lock(void)
{
	struct pawl_mx_engine *e;
	u32 before;

	for (;;) {
		before = load_acquire(&starts);	/* COMPAT-F2 <-> COMPAT-F1 */
		e = mx_engine_shared();
		if (e && (!mx_pe(e) || pawl_engine_stop(mx_pe(e))))
			e = NULL;
		mx_lock(&fork_lock);
		/* COMPAT-F2 <-> COMPAT-F1: no fork is starting it, or has started it since. */
		if (!e || (!load_acquire(&starting) && load_acquire(&starts) == before))
			break;
		mx_unlock(&fork_lock);
		os_thread_yield();
	}
	stopped = e;
	locked = true;
}

static void fork_prepare(void)
{
	if (forking++)
		return;
	mx_bulk_flush();
	stop_and_lock();
	mx_pool_each(MX_VARS, snap_var, NULL);
}

static void fork_parent(void)
{
	struct pawl_mx_engine *e = stopped;

	if (--forking)
		return;
	snaps_free();
	if (e)
		fetch_add_relaxed(&starting, 1);
	locked = false;
	mx_unlock(&fork_lock);
	if (!e)
		return;
	if (mx_pe(e))	/* a handler of the program may have freed it */
		pawl_engine_start(mx_pe(e));
	fetch_add_release(&starts, 1);		/* COMPAT-F1 <-> COMPAT-F2 */
	fetch_add_release(&starting, -1u);	/* COMPAT-F1 <-> COMPAT-F2 */
}

static void revive_var(void *obj, void *arg)
{
	struct pawl_mx_var *v = obj;
	pawl_var_t h;

	if (!v->h || v->engine != arg)
		return;
	store_relaxed(&v->base, v->snap);
	store_relaxed(&v->h, pawl_var_create(mx_pe(v->engine), &h) ? 0 : h.h);
}

static void revive_opr(void *obj, void *arg)
{
	struct pawl_mx_opr *o = obj;

	if (!o->h || o->engine != arg)
		return;
	store_relaxed(&o->h, 0);
	/* Runs in flight belong to the parent. */
	store_relaxed(&o->call->refs, 1);
	mx_opr_make(o);
}

static int fail_again(struct pawl_run *run, void *arg)
{
	struct snap *s = arg;

	return pawl_fail_with(run, s->code, s->text, NULL);
}

/* The op that poisons the var does not count as a version. */
static void poison(struct snap *s)
{
	struct pawl_op op = PAWL_OP_INIT;
	pawl_var_t h = { s->var->h };

	op.fn = fail_again;
	op.arg = s;
	op.writes = &h;
	op.nwrites = 1;
	op.prop = PAWL_ASYNC;	/* it is ready at once, so it runs inside the push */
	op.name = "fork";
	s->var->snap_code = 0;
	if (!pawl_push(mx_pe(s->var->engine), &op))
		s->var->base--;
	else
		store_relaxed(&s->var->h, 0);	/* a refused var is better than wrong data */
}

static void poison_var(void *obj, void *arg)
{
	struct pawl_mx_var *v = obj;
	struct snap s = { .var = v, .code = v->snap_code,
			  .text = "an op failed before the fork, which had no memory for its text" };

	if (s.code && v->h && v->engine->pe)
		poison(&s);
}

static void fork_child(void)
{
	ck_stack_entry_t *i;
	struct snap *s;

	if (--forking)
		return;
	store_relaxed(&fork_lock, 0);
	locked = false;
	store_relaxed(&starting, 0);
	mx_bulk_fork_child();
	mx_profile_fork_child();
	CK_STACK_FOREACH(&mx_engines, i) {
		struct pawl_mx_engine *e = mx_engine_of(i);

		if (!e->pe)
			continue;
		pawl_engine_destroy(e->pe);	/* only drops the parent's engine */
		store_relaxed(&e->pe, NULL);
		if (e->ending) {
			/* the thread that ended it does not exist in the child */
			e->ending = false;
			/* Relaxed: the child has one thread. */
			fetch_add_relaxed(&e->ends, 1);
			store_relaxed(&e->used, 0);
			continue;
		}
		if (mx_engine_make(e, true)) {
			fprintf(stderr, "pawl_mx: no engine after fork: %s\n",
				pawl_mx_last_error());
			continue;
		}
		mx_pool_each(MX_VARS, revive_var, e);
		mx_pool_each(MX_OPRS, revive_opr, e);
	}
	for (s = snaps; s; s = s->next)
		if (s->var->h && s->var->engine->pe)
			poison(s);
	mx_pool_each(MX_VARS, poison_var, NULL);
	snaps_free();
}

/*
 * Call it after the first engine of libpawl exists: libpawl's child handler must run first.  If
 * two threads both register the handlers, those registered last act, after both of libpawl's.
 */
int mx_fork_setup(void)
{
	if (load_relaxed(&handlers))
		return 0;
	/* On failure the next engine tries again. */
	if (pthread_atfork(fork_prepare, fork_parent, fork_child))
		return mx_err(-ENOMEM, "engine create: no memory for a fork handler");
	store_relaxed(&handlers, 1);
	return 0;
}
