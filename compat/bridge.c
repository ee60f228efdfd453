// SPDX-License-Identifier: Apache-2.0
/*
 * MXNet's engine on <pawl/engine.h>: ops, operators, vars, waits.
 *
 * Purpose: the implementation behind all of libpawl_mx's interfaces; see <pawl/mx_bridge.h>.
 *
 * Structures: a var and an operator are small objects, to which programs have pointers.  They
 * hold pawl's handle, which changes after a fork (compat/fork.c).
 *
 * Ordering: COMPAT-H1 (handle stored, release) <-> COMPAT-H2 (a fork, and the delete of an
 * operator, acquire): the object's fields.  Otherwise as the pawl calls below.
 *
 * Progress: as the pawl calls below.
 *
 * Lifetime: the objects keep their type until the process exits (compat/pool.c), so a stale
 * pointer is refused, or refers to a newer object.
 */
#include <alloca.h>
#include <stdlib.h>
#include <compat/engine.h>

#define VARS_ON_STACK	256u

/* --- ops --- */

int mx_bad_engine(void)
{
	return mx_err(-EOWNERDEAD, "this engine does not exist any more");
}

static __always_inline_fn int op_check(const struct pawl_mx_op *op)
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

static int mx_ctx_device(struct pawl_mx_engine *e, struct pawl_mx_context ctx,
			 struct pawl_device *dev)
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
		if (ctx.dev_id < 0 || (u32)ctx.dev_id >= e->gpus)
			return mx_err(-ENODEV, "GPU is not enabled: gpu(%d); the engine has %u (PAWL_MX_GPUS)",
				      ctx.dev_id, e->gpus);
		dev->kind = PAWL_CUDA;
		dev->id = (u16)ctx.dev_id;
		return 0;
	}
	return mx_err(-EINVAL, "device type %d is unknown", ctx.dev_type);
}

int mx_ctx_cpu(struct pawl_mx_engine *e, struct pawl_mx_context ctx, struct pawl_device *dev)
{
	int rc = mx_ctx_device(e, ctx, dev);

	if (!rc && dev->kind != PAWL_CPU)
		rc = mx_err(-ENODEV, "gpu(%d): arrays and resources are supported on CPUs only",
			    ctx.dev_id);
	return rc;
}

static __always_inline_fn int vars_of(struct pawl_mx_engine *e, struct pawl_mx_var *const *vars,
				      size_t n, const char *what, pawl_var_t *out)
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

/* MXNet has one queue for CPUs that obeys priorities, and on a GPU all but the normal one. */
static inline int priority_of(const struct pawl_mx_engine *e, struct pawl_device device, u16 prop,
			      int priority)
{
	bool obeyed = device.kind == PAWL_CPU ? prop == PAWL_CPU_PRIORITIZED :
		      prop == PAWL_GPU_PRIORITIZED || prop == PAWL_COPY_TO_DEVICE ||
		      prop == PAWL_COPY_FROM_DEVICE;

	return e->kind == PAWL_MX_PER_DEVICE && obeyed ? priority : 0;
}

/* The description in pawl's terms, without the body.  vars: room for all of them. */
static __always_inline_fn int op_fill(struct pawl_mx_engine *e, const struct pawl_mx_op *op,
				      pawl_var_t *vars, struct pawl_op *d)
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
	d->prop = (u16)op->prop;
	d->priority = priority_of(e, d->device, d->prop, op->priority);
	d->flags = op->wait ? PAWL_OP_NO_SKIP : 0;
	return rc;
}

static __always_inline_fn void op_body(struct mx_call *c, struct pawl_op *d)
{
	if (c->form == MX_SYNC)
		d->fn = mx_run_sync;
	else
		d->async_fn = mx_run_async;
	d->arg = c;
	d->release = mx_call_release;
	d->name = c->name;
}

/*
 * In the naive kind an op is complete when its push returns, and the pusher receives its
 * error, as from MXNet's; from inside a body it is the outermost push that does.
 */
static int naive_told(struct pawl_mx_engine *e, const struct pawl_op *d, void **exception)
{
	struct pawl_engine *pe = mx_pe(e);
	struct pawl_error err = { 0 };
	int rc = pawl_wait_all(pe, 0, &err);
	u32 i;

	/* Ops of other threads are in flight.  The body may have deleted vars that it writes. */
	if (rc == -ETIMEDOUT)
		for (i = 0; !err.code && i < d->nwrites; i++)
			rc = pawl_var_take(pe, d->writes[i], &err);
	return err.code ? mx_told(rc, &err, exception) : 0;
}

static int push_filled(struct pawl_mx_engine *e, const struct pawl_mx_op *op, pawl_var_t *vars,
		       void **exception)
{
	struct pawl_op d = PAWL_OP_INIT;
	struct pawl_engine *pe = mx_pe(e);
	struct mx_call *c = NULL;
	int rc = pe ? op_check(op) : mx_bad_engine();

	if (!rc)
		rc = op_fill(e, op, vars, &d);
	if (!rc) {
		c = mx_call_new(e, op);
		if (!c)
			rc = -ENOMEM;
	}
	if (unlikely(rc)) {
		if (op->drop) {
			op->drop(op->arg);
			if (BUSTED(MX_DROP_TWICE))
				op->drop(op->arg);
		}
		return rc;
	}
	op_body(c, &d);
	if (unlikely(mx_bulk_used)) {
		if (mx_bulk_wants(e, op, &d)) {
			mx_bulk_add(e, c, &d);
			return 0;
		}
		mx_bulk_flush();
	}
	rc = pawl_push(pe, &d);
	if (unlikely(rc)) {
		mx_err_pawl(rc);
		mx_call_put(c);
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

/* A graph of one op for it, in the current engine. */
int mx_opr_make(struct pawl_mx_opr *o)
{
	u32 n = o->nreads + o->nwrites;
	pawl_var_t *vars = malloc((n + 1) * sizeof(*vars));
	struct pawl_mx_op op = { 0 };
	struct pawl_op d = PAWL_OP_INIT;
	pawl_graph_t h;
	int rc;

	if (!vars)
		return mx_err(-ENOMEM, "new operator: no memory");
	op.ctx = o->call->ctx;
	op.reads = o->vars;
	op.nreads = o->nreads;
	op.writes = o->vars + o->nreads;
	op.nwrites = o->nwrites;
	op.prop = o->prop;
	op.wait = o->wait;
	rc = op_fill(o->engine, &op, vars, &d);
	if (!rc) {
		op_body(o->call, &d);
		rc = pawl_graph_create(mx_pe(o->engine), &d, 1, 0, &h);
		if (rc)
			mx_err_pawl(rc);
		else
			store_release(&o->h, h.h);	/* COMPAT-H1 <-> COMPAT-H2 */
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
	int rc = mx_pe(e) ? op_check(op) : mx_bad_engine();

	if (!rc && n > 1u << 20)
		rc = mx_err(-E2BIG, "new operator: %zu vars", n);
	if (!rc) {
		c = mx_call_new(e, op);
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
		o->prop = (u16)op->prop;
		o->wait = op->wait;
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
		mx_call_put(c);
	else if (op->drop)
		op->drop(op->arg);
	return rc;
}
PAWL_EXPORT(pawl_mx_opr_new);

int pawl_mx_opr_push(struct pawl_mx_engine *e, struct pawl_mx_opr *o,
		     struct pawl_mx_context ctx, int priority, void **exception)
{
	struct pawl_op d = PAWL_OP_INIT;
	pawl_var_t *writes = NULL;
	pawl_graph_t h;
	u32 i;
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
	if (unlikely(e->kind == PAWL_MX_NAIVE)) {
		/* Copied, because a body may delete the operator. */
		d.nwrites = o->nwrites;
		d.writes = writes = malloc((d.nwrites + 1) * sizeof(*writes));
		if (!writes)
			return mx_err(-ENOMEM, "push: no memory");
		for (i = 0; i < d.nwrites; i++)
			writes[i].h = load_relaxed(&o->vars[o->nreads + i]->h);
	}
	mx_bulk_flush();
	rc = pawl_graph_push(mx_pe(e), h, &(struct pawl_launch){
		.size = sizeof(struct pawl_launch), .device = d.device,
		.priority = priority_of(e, d.device, o->prop, priority) });
	if (rc)
		mx_err_pawl(rc);
	else if (unlikely(writes))
		rc = naive_told(e, &d, exception);
	free(writes);
	return rc;
}
PAWL_EXPORT(pawl_mx_opr_push);

int pawl_mx_opr_delete(struct pawl_mx_engine *e, struct pawl_mx_opr *o)
{
	struct pawl_mx_var **vars;
	struct pawl_engine *pe;
	pawl_graph_t h;
	int rc;

	if (!o)
		return mx_err(-EINVAL, "delete operator: it is NULL");
	h.h = o->engine == e ? xchg_acquire(&o->h, 0) : 0;	/* COMPAT-H2 <-> COMPAT-H1 */
	if (!h.h)
		return mx_err(-ESTALE, "delete operator: it was deleted, or is of another engine");
	vars = o->vars;
	mx_bulk_flush();
	pe = mx_pe(e);
	rc = pe ? pawl_graph_delete(pe, h) : mx_bad_engine();
	free(vars);
	mx_pool_put(MX_OPRS, o);
	return rc && pe ? mx_err_pawl(rc) : rc;
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
		return mx_bad_engine();
	rc = pawl_var_create(pe, &h);
	if (rc)
		return mx_err_pawl(rc);
	v = mx_pool_get(MX_VARS);
	if (!v) {
		pawl_var_delete(pe, h, NULL, NULL);
		return mx_err(-ENOMEM, "new variable: no memory");
	}
	store_relaxed(&v->engine, e);
	store_relaxed(&v->base, 0);
	store_release(&v->h, h.h);	/* COMPAT-H1 <-> COMPAT-H2 */
	*out = v;
	return 0;
}
PAWL_EXPORT(pawl_mx_var_new);

/* The delete op: no op is queued behind it, and no other thread uses the var. */
static int run_delete(struct pawl_run *run, void *arg)
{
	struct mx_call *c = arg;
	int rc = 0;

	if (c->fn.sync)
		rc = mx_run_sync(run, c);
	store_relaxed(&c->var->h, 0);
	mx_pool_put(MX_VARS, c->var);
	mx_call_put(c);
	return rc;
}

int pawl_mx_var_delete(struct pawl_mx_engine *e, struct pawl_mx_var *v,
		       struct pawl_mx_context ctx, pawl_mx_sync_fn fn, void *arg,
		       void (*drop)(void *arg))
{
	struct pawl_mx_op op = { .sync = fn, .arg = arg, .drop = drop, .ctx = ctx,
				 .prop = PAWL_DELETE_VAR };
	struct mx_call *c = NULL;
	pawl_var_t h = { 0 };
	const char *name;
	int rc = 0;

	if (!v || v->engine != e || !mx_pe(e))
		rc = mx_err(-EINVAL, "delete variable: it is %s",
			    v ? "of another engine" : "NULL");
	else
		h.h = load_relaxed(&v->h);
	if (!rc) {
		c = mx_call_new(e, &op);
		rc = c ? 0 : -ENOMEM;
	}
	if (rc) {
		if (drop)
			drop(arg);
		return rc;
	}
	c->var = v;
	name = mx_hooks.delete_name ? mx_hooks.delete_name() : NULL;
	c->timed = name;
	c->name = name ? mx_name(name) : "DeleteVariable";
	mx_bulk_flush();
	rc = pawl_var_delete(mx_pe(e), h, run_delete, c);
	if (rc) {
		mx_err_pawl(rc);
		mx_call_put(c);
	}
	return rc;
}
PAWL_EXPORT(pawl_mx_var_delete);

uint64_t pawl_mx_var_version(struct pawl_mx_var *v)
{
	pawl_var_t h = { load_relaxed(&v->h) };
	struct pawl_engine *pe;
	uint64_t n = 0;

	mx_bulk_flush();
	pe = mx_pe(v->engine);	/* NULL: the engine was freed */
	return v->base + (!pe || pawl_var_version(pe, h, &n) ? 0 : n);
}
PAWL_EXPORT(pawl_mx_var_version);

/* --- waits --- */

/*
 * With one worker one op runs at a time, so a wait runs ops only inside a body, and in the naive
 * kind, where no other thread does.
 */
int mx_wait(struct pawl_mx_engine *e, unsigned int what, uint64_t h, int64_t ns,
	    struct pawl_error *err)
{
	if (!mx_bulk_works() && e->kind != PAWL_MX_NAIVE)
		what |= PAWL_WAIT_NO_HELP;
	return pawl_wait(mx_pe(e), what, h, ns, err);
}

typedef int (*wait_fn)(struct pawl_mx_engine *e, pawl_var_t v, struct pawl_error *err);

static int wait_on(struct pawl_mx_engine *e, struct pawl_mx_var *v, void **exception,
		   wait_fn fn)
{
	struct pawl_error err = { 0 };
	pawl_var_t h;
	int rc;

	if (exception)
		*exception = NULL;
	if (!v || v->engine != e || !mx_pe(e))
		return mx_err(-EINVAL, "wait: the variable is %s",
			      v ? "of another engine" : "NULL");
	mx_bulk_flush();
	h.h = load_relaxed(&v->h);
	rc = mx_told(fn(e, h, &err), &err, exception);
	/* After the wait: what was pushed besides is complete then. */
	return rc ? rc : mx_bulk_lost();
}

static int wait_readable(struct pawl_mx_engine *e, pawl_var_t v, struct pawl_error *err)
{
	return mx_wait(e, PAWL_WAIT_READABLE, v.h, -1, err);
}

static int wait_writable(struct pawl_mx_engine *e, pawl_var_t v, struct pawl_error *err)
{
	return mx_wait(e, PAWL_WAIT_WRITABLE, v.h, -1, err);
}

static int take(struct pawl_mx_engine *e, pawl_var_t v, struct pawl_error *err)
{
	return pawl_var_take(mx_pe(e), v, err);
}

int pawl_mx_wait_var(struct pawl_mx_engine *e, struct pawl_mx_var *v, void **exception)
{
	return wait_on(e, v, exception, wait_readable);
}
PAWL_EXPORT(pawl_mx_wait_var);

int pawl_mx_wait_write(struct pawl_mx_engine *e, struct pawl_mx_var *v, void **exception)
{
	return wait_on(e, v, exception, wait_writable);
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
	int rc;

	if (exception)
		*exception = NULL;
	if (!mx_pe(e))
		return mx_bad_engine();
	mx_bulk_flush();
	rc = mx_told(mx_wait(e, PAWL_WAIT_ALL, 0, -1, &err), &err, exception);
	return rc ? rc : mx_bulk_lost();
}
PAWL_EXPORT(pawl_mx_wait_all);

/* --- room --- */

/* It is a call's, so that an op needs one object: see pawl_mx_op.in_room. */
void *pawl_mx_room_get(void)
{
	struct mx_call *c = mx_pool_get(MX_CALLS);

	return c ? c->room : NULL;
}
PAWL_EXPORT(pawl_mx_room_get);

void pawl_mx_room_put(void *room)
{
	mx_pool_put(MX_CALLS, container_of(room, struct mx_call, room));
}
PAWL_EXPORT(pawl_mx_room_put);
