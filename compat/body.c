// SPDX-License-Identifier: Apache-2.0
/*
 * Bodies: how they run and complete, and what a wait reports about them.
 *
 * Structures: struct mx_call holds a body until it runs.  An on_complete is three words, the
 * last of which is pawl's token.  The token detects a second call without an access to memory
 * that may be freed.
 *
 * Ordering: COMPAT-C1 (reference dropped) <-> COMPAT-C1 of the other holder: the body has
 *   returned, or the op is complete, before the argument is dropped.
 *
 * Progress: that of the body and of pawl_complete().
 *
 * Lifetime: mx_call.refs counts the op (or operator), and with `keep` also running bodies.
 * Without `keep` the argument is dropped when the op completes, as in MXNet: a body that calls
 * on_complete must not use its argument after that.
 */
#include <stdio.h>
#include <compat/engine.h>

struct mx_call *mx_call_new(struct pawl_mx_engine *e, const struct pawl_mx_op *op)
{
	struct mx_call *c = op->in_room ? container_of(op->arg, struct mx_call, room) :
			    mx_pool_get(MX_CALLS);

	if (unlikely(!c)) {
		mx_err(-ENOMEM, "push: no memory");
		return NULL;
	}
	c->engine = e;
	if (op->sync) {
		c->form = MX_SYNC;
		c->fn.sync = op->sync;
	} else if (op->async) {
		c->form = MX_ASYNC;
		c->fn.async = op->async;
	} else {
		c->form = MX_ASYNC_START;
		c->fn.async_start = op->async_start;
	}
	c->arg = op->arg;
	c->drop = op->drop;
	c->keep = op->keep;
	c->ctx = op->ctx;
	c->name = mx_name(op->name);
	c->prop = (u8)op->prop;
	c->fixed = true;
	c->timed = op->timed;
	c->in_room = op->in_room;
	c->task = NULL;
	store_relaxed(&c->refs, 1);
	return c;
}

void mx_call_put(struct mx_call *c)
{
	bool in_room;

	if (fetch_add_acq_rel(&c->refs, -1u) != 1)	/* COMPAT-C1 <-> COMPAT-C1 */
		return;
	in_room = c->in_room;
	if (c->drop)
		c->drop(c->arg);
	if (!in_room)
		mx_pool_put(MX_CALLS, c);
}

/* An operator's call may have several runs at once, and ends with the operator. */
void mx_call_release(void *arg, int status)
{
	struct mx_call *c = arg;

	if (unlikely(c->task))
		mx_hooks.end(c->task);
	mx_call_put(c);
}

static void call_run(const struct mx_call *c, const struct pawl_run *run, struct mx_frame *f)
{
	memset(f, 0, sizeof(*f));
	f->run.ctx = c->ctx;
	if (!c->fixed) {
		f->run.ctx.dev_type = run->device.kind == PAWL_CPU ? PAWL_MX_CPU : PAWL_MX_GPU;
		f->run.ctx.dev_id = run->device.id;
	}
	f->run.stream = run->stream;
}

/* After NotifyShutdown() only deletes run. */
static bool shut_down(const struct mx_call *c)
{
	return unlikely(load_relaxed(&c->engine->shutdown)) && c->prop != PAWL_DELETE_VAR;
}

static inline void *task_begin(const struct mx_call *c)
{
	return likely(!c->timed && !mx_profile_aggregating()) ? NULL : mx_hooks.begin(c->name);
}

int mx_run_sync(struct pawl_run *run, void *arg)
{
	struct mx_call *c = arg;
	char text[MX_TEXT];
	void *exception = NULL;
	struct mx_frame f;
	void *task;

	if (shut_down(c))
		return 0;
	call_run(c, run, &f);
	f.pawl = run;
	task = task_begin(c);
	if (unlikely(mx_catch_body(MX_SYNC, c->fn, &f.run, NULL, NULL, c->arg, &exception, text,
				   sizeof(text))))
		f.status = pawl_fail_with(run, -EIO, text, exception);
	if (unlikely(task))
		mx_hooks.end(task);
	return f.status;
}

static void on_complete(struct pawl_mx_engine *e, void *param, const void *error)
{
	pawl_token_t token = { (u64)(uintptr_t)param };
	struct pawl_engine *pe = mx_pe(e);
	char text[MX_TEXT];
	void *exception;
	int rc;

	/* A second call, after the end of the engine. */
	if (unlikely(!pe))
		return;
	if (likely(!error)) {
		rc = pawl_complete(pe, token, 0, NULL);
	} else {
		exception = mx_exception_of(error, text, sizeof(text));
		rc = -EIO;
		if (BUSTED(MX_ERROR_LOST))
			rc = 0;
		rc = pawl_complete_with(pe, token, rc, text, exception);
	}
	if (unlikely(rc && e->info))
		fprintf(stderr, "on_complete: %s\n", pawl_error_text());
}

/* On a CPU on_start has nothing to wait for. */
static void on_start(struct pawl_mx_engine *e, void *param, const void *error)
{
}

void mx_run_async(struct pawl_run *run, void *arg)
{
	struct mx_call *c = arg;
	struct pawl_mx_engine *e = c->engine;
	pawl_token_t token = run->token;
	struct pawl_mx_callback start = { on_start, e, (void *)(uintptr_t)token.h };
	struct pawl_mx_callback done = { on_complete, e, (void *)(uintptr_t)token.h };
	struct pawl_engine *pe = run->engine;
	bool keep = c->keep;
	char text[MX_TEXT];
	void *exception = NULL;
	const char *name = c->name;
	struct mx_frame f;
	void *task;

	if (shut_down(c)) {
		pawl_complete(pe, token, 0, NULL);
		return;
	}
	call_run(c, run, &f);
	if (BUSTED(MX_ARG_EARLY))
		keep = false;
	if (keep)
		fetch_add_relaxed(&c->refs, 1);
	task = task_begin(c);
	if (unlikely(task) && c->fixed) {
		c->task = task;	/* until the op is complete */
		task = NULL;
	}
	/* Without keep the call may be freed when this returns. */
	if (unlikely(mx_catch_body(c->form, c->fn, &f.run, &start, &done, c->arg, &exception,
				   text, sizeof(text))) &&
	    pawl_complete_with(pe, token, -EIO, text, exception) && e->info)
		fprintf(stderr, "%s failed after on_complete, so no wait reports it: %s\n",
			name ? name : "an op", text);
	if (unlikely(task))
		mx_hooks.end(task);
	if (keep)
		mx_call_put(c);
}

void pawl_mx_fail(void *run, const char *text)
{
	struct mx_frame *f = container_of(run, struct mx_frame, run);

	if (f->pawl)
		f->status = pawl_fail_with(f->pawl, -EIO, text ? text : "failed", NULL);
}
PAWL_EXPORT(pawl_mx_fail);

int pawl_mx_complete(const void *on_complete, const char *text)
{
	const struct pawl_mx_callback *cb = on_complete;
	struct pawl_engine *pe;
	pawl_token_t token;
	int rc;

	if (!cb)
		return mx_err(-EINVAL, "complete: on_complete is NULL");
	pe = mx_pe(cb->engine);
	if (!pe)
		return mx_bad_engine();
	token.h = (u64)(uintptr_t)cb->param;
	rc = pawl_complete(pe, token, text ? -EIO : 0, text);
	return rc ? mx_err_pawl(rc) : 0;
}
PAWL_EXPORT(pawl_mx_complete);

/* --- errors --- */

void mx_payload_drop(void *user, void *payload)
{
	mx_exception_free(payload);
}

void pawl_mx_exception_free(void *exception)
{
	mx_exception_free(exception);
}
PAWL_EXPORT(pawl_mx_exception_free);

/* The result of a wait: sets the full text of its error, and *exception if wanted. */
int mx_told(int rc, struct pawl_error *err, void **exception)
{
	char text[MX_TEXT];

	if (exception)
		*exception = NULL;
	if (!rc)
		return 0;
	if (!err->code)
		return mx_err_pawl(rc);
	if (err->payload)
		mx_exception_what(err->payload, text, sizeof(text));
	mx_err(rc, "%s", err->payload ? text : err->text);
	if (exception)
		*exception = err->payload;
	else if (err->payload)
		mx_exception_free(err->payload);
	return rc;
}
