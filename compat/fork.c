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

static struct snap *snaps;
static bool stopped;
static u32 handlers;	/* A: 0: not registered, 1: being registered, 2: registered */

static void snap_var(void *obj, void *arg)
{
	struct pawl_mx_var *v = obj;
	pawl_var_t h = { load_acquire(&v->h) };
	struct pawl_engine *pe = h.h ? mx_pe(v->engine) : NULL;
	struct pawl_error err = { 0 };
	struct snap *s;

	v->snap_code = 0;
	if (!pe)
		return;
	v->snap = 0;
	pawl_var_version(pe, h, &v->snap);
	v->snap += v->base;
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

static void fork_prepare(void)
{
	struct pawl_mx_engine *e = mx_engine_shared();

	mx_bulk_flush();
	stopped = e && mx_pe(e) && !pawl_engine_stop(mx_pe(e));
	mx_pool_each(MX_VARS, snap_var, NULL);
}

static void fork_parent(void)
{
	struct pawl_mx_engine *e = mx_engine_shared();

	if (stopped)
		pawl_engine_start(mx_pe(e));
	snaps_free();
}

static void revive_var(void *obj, void *arg)
{
	struct pawl_mx_var *v = obj;
	pawl_var_t h;

	if (!v->h || v->engine != arg)
		return;
	v->base = v->snap;
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

	mx_bulk_fork_child();
	mx_profile_fork_child();
	CK_STACK_FOREACH(&mx_engines, i) {
		struct pawl_mx_engine *e = mx_engine_of(i);

		if (!e->pe)
			continue;
		pawl_engine_destroy(e->pe);	/* only drops the parent's engine */
		store_relaxed(&e->pe, NULL);
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

/* Call it after the first engine of libpawl exists: libpawl's child handler must run first. */
int mx_fork_setup(void)
{
	u32 was = 0;
	int rc;

	while (!cas_relaxed(&handlers, &was, 1)) {
		if (was == 2)
			return 0;
		was = 0;
		os_thread_yield();
	}
	rc = pthread_atfork(fork_prepare, fork_parent, fork_child);
	/* On failure the next engine tries again. */
	store_relaxed(&handlers, rc ? 0 : 2);
	return rc ? mx_err(-ENOMEM, "engine create: no memory for a fork handler") : 0;
}
