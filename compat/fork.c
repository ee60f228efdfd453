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
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void snap_var(void *obj, void *arg)
{
	struct pawl_mx_var *v = obj;
	pawl_var_t h = { load_acquire(&v->h) };
	struct pawl_engine *pe = h.h ? mx_pe(v->engine) : NULL;
	struct pawl_error err = { 0 };
	struct snap *s;

	if (!pe)
		return;
	v->snap = 0;
	pawl_var_version(pe, h, &v->snap);
	v->snap += v->base;
	if (!pawl_var_error(pe, h, &err) || !err.code)
		return;
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
	if (!pawl_push(mx_pe(s->var->engine), &op))
		s->var->base--;
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
	snaps_free();
}

static void fork_register(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* After an engine of libpawl was made: its own child handler goes first. */
void mx_fork_setup(void)
{
	pthread_once(&fork_once, fork_register);
}
