// SPDX-License-Identifier: Apache-2.0
/*
 * fork(): the child goes on with the engines, vars and operators of its parent.
 *
 * Purpose: MXNet's data loaders fork, and its engine lives on in the child, with
 * MXNET_MP_WORKER_NTHREADS workers.  libpawl's does not: it has no threads there, and what
 * other threads had in hand is lost.  But a var of this layer is an object that holds
 * pawl's handle, so the child makes new engines and gives every var and operator a new
 * handle.
 *
 * Before the fork the process's engine is stopped, as MXNet's is, so that the child sees
 * data at rest; from inside a body that cannot be, and the child starts with what there is.
 * Versions go on; a poisoned var is poisoned in the child too, with the text of its error.
 *
 * Lifetime: runs on the forking thread; in the child no other exists.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <base/thread.h>
#include <compat/engine.h>

/* An error that a var has at the fork. */
struct snap {
	struct snap *next;
	struct pawl_mx_var *var;
	int code;
	char text[160];
};

static struct snap *snaps;
static bool stopped;
static u32 handlers;	/* A: 0: not registered, 1: somebody does it now, 2: they are there */

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
	/* Without memory for the text the child has the code at least. */
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
	/* Runs that were in flight are the parent's. */
	store_relaxed(&o->call->refs, 1);
	mx_opr_make(o);
}

static int fail_again(struct pawl_run *run, void *arg)
{
	struct snap *s = arg;

	return pawl_fail_with(run, s->code, s->text, NULL);
}

/* The op that poisons is no version of the var. */
static void poison(struct snap *s)
{
	struct pawl_op op = PAWL_OP_INIT;
	pawl_var_t h = { s->var->h };

	op.fn = fail_again;
	op.arg = s;
	op.writes = &h;
	op.nwrites = 1;
	op.prop = PAWL_ASYNC;	/* ready: inside the push */
	op.name = "fork";
	s->var->snap_code = 0;
	if (!pawl_push(mx_pe(s->var->engine), &op))
		s->var->base--;
	else
		store_relaxed(&s->var->h, 0);	/* rather refused than taken for good */
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
	struct pawl_mx_engine *e;
	struct snap *s;

	mx_bulk_forget();
	for (e = mx_engines; e; e = e->next) {
		if (!e->pe)
			continue;
		pawl_engine_destroy(e->pe);	/* forgets it */
		store_relaxed(&e->pe, NULL);
		if (mx_engine_make(e, true)) {
			fprintf(stderr, "pawl_mx: no engine after fork: %s\n", pawl_mx_last_error());
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

/* After an engine of libpawl was made: its own child handler goes first. */
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
	/* What could not be had is asked for again by the next engine. */
	store_relaxed(&handlers, rc ? 0 : 2);
	return rc ? mx_err(-ENOMEM, "engine create: no memory for a fork handler") : 0;
}
