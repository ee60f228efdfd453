// SPDX-License-Identifier: Apache-2.0
/*
 * MXNet's engine on <pawl/engine.h>: engines, vars, ops, operators, errors, waits.
 *
 * Purpose: the one implementation behind the doors; see <pawl/mx_bridge.h>.
 *
 * Structures: a var and an operator are small objects that a pointer finds; they hold
 * pawl's handle, which is another one after a fork (compat/fork.c).  A body waits in a
 * struct mx_call.  An on_complete is three words, the last of which is pawl's token: a
 * second call finds that out, and nothing that could be gone is touched.
 *
 * Ordering: COMPAT-E1 (engine published) <-> COMPAT-E2 (engine found): its fields.
 *   COMPAT-C1 (reference dropped) <-> COMPAT-C1 of the other holder: the body is off the
 *   stack, or the op is over, before the argument is dropped.
 *
 * Progress: as the pawl calls below.
 *
 * Lifetime: mx_call.refs counts the op (or operator), and with `keep` bodies on a stack.
 * Without `keep` the argument goes when the op is over, as in MXNet: a body that calls
 * on_complete must not touch its argument after that.
 */
#include <alloca.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <compat/engine.h>

#define VARS_ON_STACK	256u

struct pawl_mx_engine *mx_engines;		/* A: all, newest first */
static struct pawl_mx_engine *the_engine;	/* A: the process's */

static __thread struct { struct pawl_mx_engine *e; int size; } bulk_set;
static __thread int bulk_size;

u64 mx_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000ull + (u64)ts.tv_nsec;
}

/* --- bodies --- */

static struct mx_call *call_new(struct pawl_mx_engine *e, const struct pawl_mx_op *op)
{
	struct mx_call *c = mx_pool_get(MX_CALLS);

	if (!c) {
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
	c->var = NULL;
	store_relaxed(&c->refs, 1);
	return c;
}

static void call_put(struct mx_call *c)
{
	if (fetch_add_acq_rel(&c->refs, -1u) != 1)	/* COMPAT-C1 <-> COMPAT-C1 */
		return;
	if (c->drop)
		c->drop(c->arg);
	mx_pool_put(MX_CALLS, c);
}

static void call_release(void *arg, int status)
{
	call_put(arg);
}

static void call_run(const struct mx_call *c, const struct pawl_run *run, struct mx_frame *f)
{
	memset(f, 0, sizeof(*f));
	f->run.ctx = c->ctx;
	if (!c->fixed) {
		f->run.ctx.dev_type = PAWL_MX_CPU;
		f->run.ctx.dev_id = run->device.id;
	}
	f->run.stream = run->stream;
}

/* Another process's engine may run on in us for one body: the one that forked. */
static bool shut_down(const struct mx_call *c)
{
	return unlikely(load_relaxed(&c->engine->shutdown)) && c->prop != PAWL_DELETE_VAR;
}

static int run_sync(struct pawl_run *run, void *arg)
{
	struct mx_call *c = arg;
	char text[MX_TEXT];
	void *exception = NULL;
	struct mx_frame f;
	u64 begin = 0;

	if (shut_down(c))
		return 0;
	call_run(c, run, &f);
	f.pawl = run;
	if (unlikely(mx_profile_aggregating()))
		begin = mx_now();
	if (unlikely(mx_catch_body(MX_SYNC, c->fn, &f.run, NULL, NULL, c->arg, &exception, text,
				   sizeof(text))))
		f.status = pawl_fail_with(run, -EIO, text, exception);
	if (unlikely(begin))
		mx_profile_op(c->name, mx_now() - begin);
	return f.status;
}

void mx_on_complete(struct pawl_mx_engine *e, void *param, const void *error)
{
	pawl_token_t token = { (u64)(uintptr_t)param };
	char text[MX_TEXT];
	void *exception;
	int rc;

	if (likely(!error)) {
		rc = pawl_complete(mx_pe(e), token, 0, NULL);
	} else {
		exception = mx_exception_of(error, text, sizeof(text));
		rc = pawl_complete_with(mx_pe(e), token, -EIO, text, exception);
	}
	if (unlikely(rc && e->info))
		fprintf(stderr, "on_complete: %s\n", pawl_error_text());
}

/* On a CPU there is nothing to wait for before a body starts. */
static void on_start(struct pawl_mx_engine *e, void *param, const void *error)
{
}

static void run_async(struct pawl_run *run, void *arg)
{
	struct mx_call *c = arg;
	struct pawl_mx_engine *e = c->engine;
	pawl_token_t token = run->token;
	struct pawl_mx_callback start = { on_start, e, (void *)(uintptr_t)token.h };
	struct pawl_mx_callback done = { mx_on_complete, e, (void *)(uintptr_t)token.h };
	struct pawl_engine *pe = run->engine;
	bool keep = c->keep;
	char text[MX_TEXT];
	void *exception = NULL;
	const char *name = c->name;
	struct mx_frame f;
	u64 begin = 0;

	if (shut_down(c)) {
		pawl_complete(pe, token, 0, NULL);
		return;
	}
	call_run(c, run, &f);
	if (keep)
		fetch_add_relaxed(&c->refs, 1);
	if (unlikely(mx_profile_aggregating()))
		begin = mx_now();
	/* Without keep the call may be gone when this returns. */
	if (unlikely(mx_catch_body(c->form, c->fn, &f.run, &start, &done, c->arg, &exception,
				   text, sizeof(text))) &&
	    pawl_complete_with(pe, token, -EIO, text, exception) && e->info)
		fprintf(stderr, "%s failed after on_complete, and nobody will know: %s\n",
			name ? name : "an op", text);
	if (unlikely(begin))
		mx_profile_op(name, mx_now() - begin);
	if (keep)
		call_put(c);
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
	pawl_token_t token;
	int rc;

	if (!cb)
		return mx_err(-EINVAL, "complete: on_complete is NULL");
	token.h = (u64)(uintptr_t)cb->param;
	rc = pawl_complete(mx_pe(cb->engine), token, text ? -EIO : 0, text);
	return rc ? mx_err_pawl(rc) : 0;
}
PAWL_EXPORT(pawl_mx_complete);

/* --- what went wrong --- */

static void payload_drop(void *user, void *payload)
{
	mx_exception_free(payload);
}

void pawl_mx_exception_free(void *exception)
{
	mx_exception_free(exception);
}
PAWL_EXPORT(pawl_mx_exception_free);

/* The result of a wait, its error's text in full, and the exception for who wants it. */
static int told(int rc, struct pawl_error *err, void **exception)
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

/* --- ops --- */

static int bad_engine(void)
{
	return mx_err(-EOWNERDEAD, "this engine is gone");
}

static int op_check(const struct pawl_mx_op *op)
{
	if (!!op->sync + !!op->async + !!op->async_start != 1)
		return mx_err(-EINVAL, "push: %s",
			      op->sync || op->async || op->async_start ?
			      "more than one function" : "the function is NULL");
	if (op->prop < 0 || op->prop > PAWL_NO_SKIP)
		return mx_err(-EINVAL, "push: property %d is unknown", op->prop);
	if ((op->nreads && !op->reads) || (op->nwrites && !op->writes))
		return mx_err(-EINVAL, "push: the list of %s vars is NULL",
			      op->nreads && !op->reads ? "const" : "mutable");
	return 0;
}

int mx_ctx_device(struct pawl_mx_engine *e, struct pawl_mx_context ctx, struct pawl_device *dev)
{
	dev->kind = PAWL_CPU;
	dev->id = 0;
	switch (ctx.dev_type) {
	case PAWL_MX_CPU:
	case PAWL_MX_CPU_PINNED:
	case PAWL_MX_CPU_SHARED:
		if (ctx.dev_id < 0)
			return mx_err(-EINVAL, "device id %d", ctx.dev_id);
		dev->id = (u16)((u32)ctx.dev_id % e->devices);
		return 0;
	case PAWL_MX_GPU:
		return mx_err(-ENODEV, "GPU is not enabled: gpu(%d)", ctx.dev_id);
	}
	return mx_err(-EINVAL, "device type %d is unknown", ctx.dev_type);
}

static int vars_of(struct pawl_mx_engine *e, struct pawl_mx_var *const *vars, size_t n,
		   const char *what, pawl_var_t *out)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (!vars[i])
			return mx_err(-EINVAL, "push: %s var %zu is NULL", what, i);
		out[i].h = load_relaxed(&vars[i]->h);
		if (unlikely(!out[i].h || vars[i]->engine != e))
			return mx_err(-ESTALE, "push: %s var %zu was deleted, or is of another engine",
				      what, i);
	}
	return 0;
}

/* The description in pawl's terms, without the body.  vars: room for all of them. */
static int op_fill(struct pawl_mx_engine *e, const struct pawl_mx_op *op, pawl_var_t *vars,
		   struct pawl_op *d)
{
	int rc = mx_ctx_device(e, op->ctx, &d->device);

	if (!rc)
		rc = vars_of(e, op->reads, op->nreads, "const", vars);
	if (!rc)
		rc = vars_of(e, op->writes, op->nwrites, "mutable", vars + op->nreads);
	d->reads = vars;
	d->writes = vars + op->nreads;
	d->nreads = (u32)op->nreads;
	d->nwrites = (u32)op->nwrites;
	d->priority = op->priority;
	/* The property says which queue; only that of kNormal has a twin that never skips. */
	d->prop = (u16)(op->wait && op->prop == PAWL_NORMAL ? PAWL_NO_SKIP : op->prop);
	return rc;
}

static void op_body(struct mx_call *c, struct pawl_op *d)
{
	if (c->form == MX_SYNC)
		d->fn = run_sync;
	else
		d->async_fn = run_async;
	d->arg = c;
	d->release = call_release;
	d->name = c->name;
}

/*
 * In the naive kind an op is over when its push returns, and the pusher gets its error, as
 * from MXNet's; from inside a body it is the outermost push that does.
 */
static int naive_told(struct pawl_mx_engine *e, const struct pawl_op *d, void **exception)
{
	struct pawl_engine *pe = mx_pe(e);
	struct pawl_error err = { 0 };
	int rc = pawl_wait_all(pe, 0, &err);
	u32 i;

	for (i = 0; rc == -ETIMEDOUT && i < d->nwrites; i++) {
		rc = pawl_var_take(pe, d->writes[i], &err);
		if (rc)
			break;
		rc = -ETIMEDOUT;
	}
	return err.code ? told(rc, &err, exception) : 0;
}

static int push_filled(struct pawl_mx_engine *e, const struct pawl_mx_op *op, pawl_var_t *vars,
		       void **exception)
{
	struct pawl_op d = PAWL_OP_INIT;
	struct pawl_engine *pe = mx_pe(e);
	struct mx_call *c = NULL;
	int rc = pe ? op_check(op) : bad_engine();

	if (!rc)
		rc = op_fill(e, op, vars, &d);
	if (!rc) {
		c = call_new(e, op);
		if (!c)
			rc = -ENOMEM;
	}
	if (unlikely(rc)) {
		if (op->drop)
			op->drop(op->arg);
		return rc;
	}
	op_body(c, &d);
	if (op->sync && unlikely(bulk_set.e != e || bulk_set.size != bulk_size))
		mx_bulk_apply(e);
	rc = pawl_push(pe, &d);
	if (unlikely(rc)) {
		mx_err_pawl(rc);
		call_put(c);
		return rc;
	}
	return unlikely(e->kind == PAWL_MX_NAIVE) ? naive_told(e, &d, exception) : 0;
}

int pawl_mx_push(struct pawl_mx_engine *e, const struct pawl_mx_op *op, void **exception)
{
	size_t n = op->nreads + op->nwrites;
	pawl_var_t *vars = NULL;
	int rc;

	if (exception)
		*exception = NULL;
	if (likely(n <= VARS_ON_STACK)) {
		vars = alloca((n + 1) * sizeof(*vars));
		return push_filled(e, op, vars, exception);
	}
	if (n <= UINT32_MAX)
		vars = malloc(n * sizeof(*vars));
	if (!vars) {
		if (op->drop)
			op->drop(op->arg);
		return mx_err(-ENOMEM, "push: no memory for %zu vars", n);
	}
	rc = push_filled(e, op, vars, exception);
	free(vars);
	return rc;
}
PAWL_EXPORT(pawl_mx_push);

/* --- operators --- */

/* pawl's operator for it, in the engine of now. */
int mx_opr_make(struct pawl_mx_opr *o)
{
	u32 n = o->nreads + o->nwrites;
	pawl_var_t *vars = malloc((n + 1) * sizeof(*vars));
	struct pawl_mx_op op = { 0 };
	struct pawl_op d = PAWL_OP_INIT;
	pawl_oper_t h;
	int rc;

	if (!vars)
		return mx_err(-ENOMEM, "new operator: no memory");
	op.ctx = o->call->ctx;
	op.reads = o->vars;
	op.nreads = o->nreads;
	op.writes = o->vars + o->nreads;
	op.nwrites = o->nwrites;
	op.prop = o->prop;
	rc = op_fill(o->engine, &op, vars, &d);
	if (!rc) {
		op_body(o->call, &d);
		rc = pawl_oper_create(mx_pe(o->engine), &d, &h);
		if (rc)
			mx_err_pawl(rc);
		else
			store_relaxed(&o->h, h.h);
	}
	free(vars);
	return rc;
}

int pawl_mx_opr_new(struct pawl_mx_engine *e, const struct pawl_mx_op *op,
		    struct pawl_mx_opr **out)
{
	struct pawl_mx_opr *o = NULL;
	size_t n = op->nreads + op->nwrites;
	struct mx_call *c = NULL;
	int rc = mx_pe(e) ? op_check(op) : bad_engine();

	if (!rc && n > 1u << 20)
		rc = mx_err(-E2BIG, "new operator: %zu vars", n);
	if (!rc) {
		c = call_new(e, op);
		o = c ? mx_pool_get(MX_OPRS) : NULL;
		if (!o)
			rc = mx_err(-ENOMEM, "new operator: no memory");
	}
	if (!rc) {
		c->fixed = false;
		c->ctx.dev_type = PAWL_MX_CPU;
		c->ctx.dev_id = 0;
		o->engine = e;
		o->call = c;
		o->nreads = (u32)op->nreads;
		o->nwrites = (u32)op->nwrites;
		o->prop = (u16)(op->wait && op->prop == PAWL_NORMAL ? PAWL_NO_SKIP : op->prop);
		o->vars = malloc((n + 1) * sizeof(struct pawl_mx_var *));
		if (!o->vars)
			rc = mx_err(-ENOMEM, "new operator: no memory");
	}
	if (!rc) {
		if (op->nreads)
			memcpy(o->vars, op->reads, op->nreads * sizeof(struct pawl_mx_var *));
		if (op->nwrites)
			memcpy(o->vars + op->nreads, op->writes,
			       op->nwrites * sizeof(struct pawl_mx_var *));
		rc = mx_opr_make(o);
		if (rc)
			free(o->vars);
	}
	if (!rc) {
		*out = o;
		return 0;
	}
	if (o)
		mx_pool_put(MX_OPRS, o);
	if (c)
		call_put(c);
	else if (op->drop)
		op->drop(op->arg);
	return rc;
}
PAWL_EXPORT(pawl_mx_opr_new);

int pawl_mx_opr_push(struct pawl_mx_engine *e, struct pawl_mx_opr *o, struct pawl_mx_context ctx,
		     int priority, void **exception)
{
	struct pawl_op d = PAWL_OP_INIT;
	pawl_oper_t h;
	int rc;

	if (exception)
		*exception = NULL;
	if (!o)
		return mx_err(-EINVAL, "push: the operator is NULL");
	h.h = load_relaxed(&o->h);
	if (!h.h || o->engine != e || !mx_pe(e))
		return mx_err(-ESTALE, "push: the operator was deleted, or is of another engine");
	rc = mx_ctx_device(e, ctx, &d.device);
	if (rc)
		return rc;
	rc = pawl_oper_push(mx_pe(e), h, priority, d.device);
	if (rc)
		return mx_err_pawl(rc);
	return unlikely(e->kind == PAWL_MX_NAIVE) ? naive_told(e, &d, exception) : 0;
}
PAWL_EXPORT(pawl_mx_opr_push);

int pawl_mx_opr_delete(struct pawl_mx_engine *e, struct pawl_mx_opr *o)
{
	struct pawl_mx_var **vars;
	pawl_oper_t h;
	int rc;

	if (!o)
		return mx_err(-EINVAL, "delete operator: it is NULL");
	h.h = o->engine == e ? xchg_acq_rel(&o->h, 0) : 0;
	if (!h.h)
		return mx_err(-ESTALE, "delete operator: it was deleted, or is of another engine");
	vars = o->vars;
	rc = pawl_oper_delete(mx_pe(e), h);
	free(vars);
	mx_pool_put(MX_OPRS, o);
	return rc ? mx_err_pawl(rc) : 0;
}
PAWL_EXPORT(pawl_mx_opr_delete);

/* --- vars --- */

int pawl_mx_var_new(struct pawl_mx_engine *e, struct pawl_mx_var **out)
{
	struct pawl_engine *pe = mx_pe(e);
	struct pawl_mx_var *v;
	pawl_var_t h;
	int rc;

	if (!pe)
		return bad_engine();
	rc = pawl_var_create(pe, &h);
	if (rc)
		return mx_err_pawl(rc);
	v = mx_pool_get(MX_VARS);
	if (!v) {
		pawl_var_delete(pe, h, NULL, NULL);
		return mx_err(-ENOMEM, "new variable: no memory");
	}
	v->engine = e;
	v->base = 0;
	store_release(&v->h, h.h);
	*out = v;
	return 0;
}
PAWL_EXPORT(pawl_mx_var_new);

/* The delete op: nothing is behind it, and nobody else has the var. */
static int run_delete(struct pawl_run *run, void *arg)
{
	struct mx_call *c = arg;
	int rc = 0;

	if (c->fn.sync)
		rc = run_sync(run, c);
	store_relaxed(&c->var->h, 0);
	mx_pool_put(MX_VARS, c->var);
	call_put(c);
	return rc;
}

int pawl_mx_var_delete(struct pawl_mx_engine *e, struct pawl_mx_var *v,
		       struct pawl_mx_context ctx, pawl_mx_sync_fn fn, void *arg,
		       void (*drop)(void *arg))
{
	struct pawl_mx_op op = { .sync = fn, .arg = arg, .drop = drop, .ctx = ctx,
				 .prop = PAWL_DELETE_VAR, .name = "DeleteVariable" };
	struct mx_call *c = NULL;
	pawl_var_t h = { 0 };
	int rc = 0;

	if (!v || v->engine != e || !mx_pe(e))
		rc = mx_err(-EINVAL, "delete variable: it is %s",
			    v ? "of another engine" : "NULL");
	else
		h.h = load_relaxed(&v->h);
	if (!rc) {
		c = call_new(e, &op);
		rc = c ? 0 : -ENOMEM;
	}
	if (rc) {
		if (drop)
			drop(arg);
		return rc;
	}
	c->var = v;
	if (!fn)
		c->fn.sync = NULL;
	rc = pawl_var_delete(mx_pe(e), h, run_delete, c);
	if (rc) {
		mx_err_pawl(rc);
		call_put(c);
	}
	return rc;
}
PAWL_EXPORT(pawl_mx_var_delete);

uint64_t pawl_mx_var_version(struct pawl_mx_var *v)
{
	pawl_var_t h = { load_relaxed(&v->h) };
	uint64_t n = 0;

	return v->base + (pawl_var_version(mx_pe(v->engine), h, &n) ? 0 : n);
}
PAWL_EXPORT(pawl_mx_var_version);

/* --- waits --- */

typedef int (*wait_fn)(struct pawl_engine *pe, pawl_var_t v, int64_t ns, struct pawl_error *err);

static int wait_on(struct pawl_mx_engine *e, struct pawl_mx_var *v, void **exception, wait_fn fn)
{
	struct pawl_error err = { 0 };
	pawl_var_t h;

	if (exception)
		*exception = NULL;
	if (!v || v->engine != e || !mx_pe(e))
		return mx_err(-EINVAL, "wait: the variable is %s",
			      v ? "of another engine" : "NULL");
	h.h = load_relaxed(&v->h);
	return told(fn(mx_pe(e), h, -1, &err), &err, exception);
}

static int take(struct pawl_engine *pe, pawl_var_t v, int64_t ns, struct pawl_error *err)
{
	return pawl_var_take(pe, v, err);
}

int pawl_mx_wait_var(struct pawl_mx_engine *e, struct pawl_mx_var *v, void **exception)
{
	return wait_on(e, v, exception, pawl_wait_readable);
}
PAWL_EXPORT(pawl_mx_wait_var);

int pawl_mx_wait_write(struct pawl_mx_engine *e, struct pawl_mx_var *v, void **exception)
{
	return wait_on(e, v, exception, pawl_wait_writable);
}
PAWL_EXPORT(pawl_mx_wait_write);

int pawl_mx_var_throw(struct pawl_mx_engine *e, struct pawl_mx_var *v, void **exception)
{
	return wait_on(e, v, exception, take);
}
PAWL_EXPORT(pawl_mx_var_throw);

int pawl_mx_wait_all(struct pawl_mx_engine *e, void **exception)
{
	struct pawl_error err = { 0 };

	if (exception)
		*exception = NULL;
	if (!mx_pe(e))
		return bad_engine();
	return told(pawl_wait_all(mx_pe(e), -1, &err), &err, exception);
}
PAWL_EXPORT(pawl_mx_wait_all);

/* --- bulk --- */

/* The thread's size, in the engine that it pushes to next. */
void mx_bulk_apply(struct pawl_mx_engine *e)
{
	if (e->kind != PAWL_MX_NAIVE)
		pawl_bulk_size(mx_pe(e), mx_profile_aggregating() ? 0 : bulk_size);
	bulk_set.e = e;
	bulk_set.size = bulk_size;
}

int pawl_mx_bulk_size(struct pawl_mx_engine *e)
{
	return e->kind == PAWL_MX_NAIVE || mx_profile_aggregating() ? 0 : bulk_size;
}
PAWL_EXPORT(pawl_mx_bulk_size);

int pawl_mx_set_bulk_size(struct pawl_mx_engine *e, int size)
{
	int was = bulk_size;

	if (!mx_pe(e))
		return bad_engine();
	if (e->kind == PAWL_MX_NAIVE)
		return 0;
	bulk_size = size < 0 ? 0 : size;
	mx_bulk_apply(e);
	return was;
}
PAWL_EXPORT(pawl_mx_set_bulk_size);

void mx_bulk_forget(void)
{
	bulk_set.e = NULL;
}

/* --- room --- */

void *pawl_mx_room_get(void)
{
	struct mx_room *r = mx_pool_get(MX_ROOMS);

	return r ? r->bytes : NULL;
}
PAWL_EXPORT(pawl_mx_room_get);

void pawl_mx_room_put(void *room)
{
	mx_pool_put(MX_ROOMS, container_of(room, struct mx_room, bytes));
}
PAWL_EXPORT(pawl_mx_room_put);

/* --- engines --- */

static void worker_start(void *user, const char *name)
{
	mx_omp_set((int)(intptr_t)user);
}

/* A pawl engine for e; in the child of a fork with the workers for that. */
int mx_engine_make(struct pawl_mx_engine *e, bool child)
{
	struct pawl_config cfg;
	struct pawl_engine *pe;
	struct mx_env env;
	int rc;

	mx_env_read(&env);
	pawl_config_init(&cfg);
	cfg.kind = e->kind == PAWL_MX_NAIVE ? PAWL_NAIVE :
		   e->kind == PAWL_MX_POOLED ? PAWL_POOLED : PAWL_PER_DEVICE;
	if (e->kind == PAWL_MX_POOLED) {
		cfg.workers = 16;
		cfg.copy_workers = 1;
	} else {
		cfg.workers = child ? env.mp_workers : env.cpu_workers;
		cfg.priority_workers = env.cpu_priority_workers;
		cfg.copy_workers = env.copy_workers;
	}
	cfg.cpu_devices = MX_CPU_DEVICES;
	cfg.max_vars = 1u << 20;
	cfg.max_ops = 960000;
	cfg.max_threads = MX_THREADS;
	if (cfg.workers * (int)MX_CPU_DEVICES > (int)MX_THREADS / 2)
		cfg.cpu_devices = 1;
	e->devices = cfg.cpu_devices;
	/* One worker means one op at a time: who waits does not work, but inside a body. */
	cfg.no_help = true;
	cfg.drop = payload_drop;
	cfg.name = "pawlmx";
	cfg.thread_start = worker_start;
	cfg.user = (void *)(intptr_t)(child ? 1 : env.omp_threads);
	if (child)
		mx_omp_set(1);
	rc = pawl_engine_create(&cfg, &pe);
	if (rc)
		return mx_err_pawl(rc);
	e->info = env.info;
	store_release(&e->pe, pe);	/* COMPAT-E1 <-> COMPAT-E2 */
	return 0;
}

static struct pawl_mx_engine *engine_object(void)
{
	struct pawl_mx_engine *e = load_acquire(&mx_engines);	/* COMPAT-E2 <-> COMPAT-E1 */
	u32 unused;

	/* One that was freed, or a new one: they stay, for those who hold a stale pointer. */
	for (; e; e = e->next) {
		unused = 0;
		if (cas_acq_rel_acquire(&e->used, &unused, 1))
			return e;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->used = 1;
	e->next = load_relaxed(&mx_engines);
	while (!cas_release_relaxed(&mx_engines, &e->next, e))
		;
	return e;
}

int pawl_mx_engine_create(int kind, struct pawl_mx_engine **out)
{
	struct pawl_mx_engine *e;
	int rc;

	if (!out || kind < PAWL_MX_NAIVE || kind > PAWL_MX_PER_DEVICE)
		return mx_err(-EINVAL, "engine create: kind %d, or out is NULL", kind);
	e = engine_object();
	if (!e)
		return mx_err(-ENOMEM, "engine create: no memory");
	e->kind = (u32)kind;
	store_relaxed(&e->shutdown, 0);
	rc = mx_engine_make(e, false);
	if (rc) {
		store_release(&e->used, 0);
		return rc;
	}
	mx_fork_setup();
	*out = e;
	return 0;
}
PAWL_EXPORT(pawl_mx_engine_create);

int pawl_mx_engine_free(struct pawl_mx_engine *e)
{
	struct pawl_engine *pe = e ? load_acquire(&e->pe) : NULL;
	int rc;

	if (!pe)
		return 0;
	if (e == load_acquire(&the_engine))
		return mx_err(-EBUSY, "engine free: it is the process's");
	rc = pawl_engine_destroy(pe);
	if (rc)
		return mx_err_pawl(rc);
	if (bulk_set.e == e)
		bulk_set.e = NULL;
	store_relaxed(&e->pe, NULL);
	store_release(&e->used, 0);
	return 0;
}
PAWL_EXPORT(pawl_mx_engine_free);

struct pawl_mx_engine *mx_engine_shared(void)
{
	return load_acquire(&the_engine);
}

/*
 * The process ends: what was pushed is run, among the destructors of what came after the
 * engine.  A body that never ends must not keep the process from ending, so this gives up
 * when nothing was completed for a while.
 */
static void the_engine_drain(void)
{
	struct pawl_mx_engine *e = load_acquire(&the_engine);
	struct pawl_stats s = { .size = sizeof(s) };
	uint64_t completed = 0;

	if (!e || !mx_pe(e) || pawl_engine_start(mx_pe(e)))
		return;
	while (pawl_wait_all(mx_pe(e), MX_EXIT_NS, NULL) == -ETIMEDOUT) {
		pawl_stats(mx_pe(e), &s);
		if (s.completed == completed) {
			fprintf(stderr, "pawl_mx: the process ends with %llu ops in flight\n",
				(unsigned long long)(s.pushed - s.completed));
			return;
		}
		completed = s.completed;
	}
}

struct pawl_mx_engine *pawl_mx_engine_get(void)
{
	struct pawl_mx_engine *e = load_acquire(&the_engine), *new;
	struct mx_env env;

	if (likely(e))
		return e;
	mx_env_read(&env);
	if (env.kind < 0 || pawl_mx_engine_create(env.kind, &new))
		return NULL;
	if (!cas_acq_rel_acquire(&the_engine, &e, new)) {
		pawl_mx_engine_free(new);
		return e;
	}
	mx_profile_engine(new);
	atexit(the_engine_drain);
	return new;
}
PAWL_EXPORT(pawl_mx_engine_get);

int pawl_mx_engine_kind(struct pawl_mx_engine *e)
{
	return (int)e->kind;
}
PAWL_EXPORT(pawl_mx_engine_kind);

struct pawl_engine *pawl_mx_engine_pawl(struct pawl_mx_engine *e)
{
	return mx_pe(e);
}
PAWL_EXPORT(pawl_mx_engine_pawl);

int pawl_mx_engine_stop(struct pawl_mx_engine *e, void **exception)
{
	struct pawl_error err = { 0 };
	int rc;

	if (exception)
		*exception = NULL;
	if (!mx_pe(e))
		return bad_engine();
	rc = pawl_engine_stop(mx_pe(e));
	if (rc)
		return rc == -EDEADLK ? 0 : mx_err_pawl(rc);
	rc = pawl_wait_all(mx_pe(e), 0, &err);
	return err.code ? told(rc, &err, exception) : 0;
}
PAWL_EXPORT(pawl_mx_engine_stop);

int pawl_mx_engine_start(struct pawl_mx_engine *e)
{
	int rc;

	if (!mx_pe(e))
		return bad_engine();
	rc = pawl_engine_start(mx_pe(e));
	return rc && rc != -EDEADLK ? mx_err_pawl(rc) : 0;
}
PAWL_EXPORT(pawl_mx_engine_start);

int pawl_mx_engine_shutdown(struct pawl_mx_engine *e)
{
	store_relaxed(&e->shutdown, 1);
	return 0;
}
PAWL_EXPORT(pawl_mx_engine_shutdown);

/*
 * The library goes, after everybody's destructors, which may still have pushed: those bodies
 * find nothing alive any more, and do not run.
 */
static __attribute__((destructor)) void the_engine_exit(void)
{
	struct pawl_mx_engine *e = xchg_acq_rel(&the_engine, NULL);

	if (!e || !mx_pe(e))
		return;
	store_relaxed(&e->shutdown, 1);
	if (pawl_engine_start(mx_pe(e)) || pawl_wait_all(mx_pe(e), MX_LAST_NS, NULL) == -ETIMEDOUT)
		return;
	pawl_engine_destroy(mx_pe(e));
	store_relaxed(&e->pe, NULL);
}
