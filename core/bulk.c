// SPDX-License-Identifier: Apache-2.0
/*
 * Bulk: consecutive small pushes of one thread become one op.
 *
 * The functions and the union of their vars gather in the calling thread's bulk_state.
 * It is pushed when full, before anything else that the thread asks of the engine
 * (so program order holds), when the thread ends, and when the engine stops waiting
 * for threads (destroy).  The op runs the functions in order; after the first failure
 * the others are skipped, and the error poisons all written vars.
 *
 * Progress: as pawl_push().  The state is the thread's own.
 */
#include <stdlib.h>
#include <core/internal.h>

#define BULK_VARS 1024u

struct bulk_state {
	u32 size;		/* 0, 1: off */
	u32 idx;		/* bulk object being filled, or 0 */
	struct pawl_device dev;
	u32 nreads, nwrites;
	pawl_var_t reads[BULK_VARS], writes[BULK_VARS];
};

static struct bulk *bulk_of(struct pawl_engine *e, u32 idx)
{
	return pool_obj(e->pool[POOL_BULK], idx);
}

int bulk_run(struct pawl_run *run, void *arg)
{
	struct bulk *b = arg;
	int rc = 0;
	u32 i;

	for (i = 0; i < b->n; i++) {
		struct bulk_fn *f = &b->fns[i];

		if ((!rc || BUSTED(BULK_GOES_ON)) && f->fn) {
			rc = f->fn(run, f->arg);
			if (rc > 0)
				rc = pawl_fail(run, -EPROTO, "%s returned %d, not 0 or a negative errno",
					       f->name ? f->name : "a body", rc);
		}
	}
	return rc;
}

/* Over, ran or not: every function's release, and the object goes back. */
static void bulk_release(void *arg, int status)
{
	struct bulk *b = arg;
	struct thread *t = thread_get(b->e);
	u32 i;

	for (i = 0; i < b->n; i++)
		if (b->fns[i].release)
			b->fns[i].release(b->fns[i].arg, status);
	pool_put(t->e->pool[POOL_BULK], &t->cache[POOL_BULK],
		 pool_idx(t->e->pool[POOL_BULK], b));
}

int bulk_flush(struct thread *t)
{
	struct bulk_state *s = t->bulk;
	struct pawl_op d = PAWL_OP_INIT;
	u64 next_check;
	struct bulk *b;
	int rc;

	if (!s || !s->idx)
		return 0;
	b = bulk_of(t->e, s->idx);
	s->idx = 0;
	d.fn = bulk_run;
	d.arg = b;
	d.release = bulk_release;
	d.reads = s->reads;
	d.nreads = s->nreads;
	d.writes = s->writes;
	d.nwrites = s->nwrites;
	d.device = s->dev;
	d.name = b->n == 1 ? b->fns[0].name : "ImperativeBulk";
	s->nreads = 0;
	s->nwrites = 0;
	/* Its pushes were accepted: the window does not refuse them now. */
	next_check = t->next_check;
	t->next_check = ~0ull;
	rc = push_one(t, &d, 0);
	t->next_check = next_check;
	if (rc)
		bulk_release(b, rc);	/* a var is gone: nothing of the bulk can run */
	return rc;
}

/*
 * A push while bulk is on.  1: gathered; 0: push it as usual (the bulk went first);
 * negative: refused.
 */
int bulk_add(struct thread *t, const struct pawl_op *d)
{
	struct pawl_engine *e = t->e;
	struct bulk_state *s = t->bulk;
	struct bulk *b;
	u32 i;

	if (s->size < 2 || d->async_fn || d->prop != PAWL_NORMAL || d->flags ||
	    d->priority || d->nreads > BULK_VARS || d->nwrites > BULK_VARS || e->kind == PAWL_NAIVE) {
		bulk_flush(t);
		return 0;
	}
	for (i = 0; i < d->nreads; i++)
		if (var_check(t, d->reads[i]))
			return err(-ESTALE, "push: op.reads[%u] is no var, or it was deleted", i);
	for (i = 0; i < d->nwrites; i++)
		if (var_check(t, d->writes[i]))
			return err(-ESTALE, "push: op.writes[%u] is no var, or it was deleted", i);
	if (s->idx && (s->dev.id != d->device.id || s->dev.kind != d->device.kind ||
		       s->nreads + d->nreads > BULK_VARS || s->nwrites + d->nwrites > BULK_VARS))
		bulk_flush(t);
	if (!s->idx) {
		b = pool_get(e->pool[POOL_BULK], &t->cache[POOL_BULK], &s->idx);
		if (!b) {
			s->idx = 0;
			return 0;
		}
		b->n = 0;
		b->e = e;
		s->dev = d->device;
	}
	b = bulk_of(e, s->idx);
	b->fns[b->n++] = (struct bulk_fn){ d->fn, d->arg, d->release, d->name };
	for (i = 0; i < d->nreads; i++)
		s->reads[s->nreads++] = d->reads[i];
	for (i = 0; i < d->nwrites; i++)
		s->writes[s->nwrites++] = d->writes[i];
	/* If it is refused as a whole, every release of it has been called. */
	if (b->n >= min_u(s->size, BULK_MAX))
		bulk_flush(t);
	return 1;
}

int pawl_bulk_size(struct pawl_engine *e, int n)
{
	struct thread *t = thread_get(e);
	int was;

	if (unlikely(!t))
		return thread_last.code;
	if (n < 0)
		return err(-EINVAL, "bulk_size: %d", n);
	if (!t->bulk) {
		if (n < 2)
			return 0;
		t->bulk = calloc(1, sizeof(*t->bulk));
		if (!t->bulk)
			return err(-ENOMEM, "bulk_size: no memory");
	}
	was = (int)t->bulk->size;
	if (was != n)
		bulk_flush(t);
	t->bulk->size = (u32)n;
	return was;
}
PAWL_EXPORT(pawl_bulk_size);

int pawl_bulk_flush(struct pawl_engine *e)
{
	struct thread *t = thread_get(e);

	return likely(t) ? bulk_flush(t) : thread_last.code;
}
PAWL_EXPORT(pawl_bulk_flush);

/* The thread leaves: what it gathered is pushed, not lost.  True: there was something. */
bool bulk_exit(struct thread *t)
{
	bool any = t->bulk && t->bulk->idx;

	if (any && !BUSTED(BULK_LOST))
		bulk_flush(t);
	free(t->bulk);
	t->bulk = NULL;
	return any;
}
