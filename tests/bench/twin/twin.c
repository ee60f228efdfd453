// SPDX-License-Identifier: Apache-2.0
/* twin.c - vars, pushes, completion, waits.  See twin.h for what and why. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct twin_engine {
	struct twin_pool oprs, blocks, accesses, vars;
	struct twin_queue ready;
	int pending;			/* atomic: ops in flight */
	pthread_mutex_t finished_lock;
	pthread_cond_t finished;
	int error;			/* the first since the last wait for all */
	pthread_mutex_t start_lock;	/* threads start with the first ready op */
	bool started;
	int lane_refs;			/* atomic: the lane is looked up as a shared pointer */
	int workers;
	void (*worker_start)(int index);
	pthread_t *threads;
};

struct worker {
	struct twin_engine *e;
	int index;
};

static void complete(struct twin_engine *e, struct twin_block *b, int error);

/* ---- running ---- */

static bool has_error(const struct twin_opr *opr, int *error)
{
	struct twin_var **v;

	for (v = opr->reads.begin; v != opr->reads.end; v++)
		if ((*error = __atomic_load_n(&(*v)->error, __ATOMIC_RELAXED)))
			return true;
	for (v = opr->writes.begin; v != opr->writes.end; v++)
		if ((*error = __atomic_load_n(&(*v)->error, __ATOMIC_RELAXED)))
			return true;
	return false;
}

static void execute(struct twin_engine *e, struct twin_block *b)
{
	struct twin_done done = { complete, e, b };
	struct twin_opr *opr = b->opr;
	int error;

	if (has_error(opr, &error) && !opr->wait) {
		twin_done(done, error);
		return;
	}
	opr->fn.body(opr->fn.heap ? opr->fn.heap : opr->fn.small, done);
}

static void *worker(void *arg)
{
	struct worker *w = arg;
	struct twin_engine *e = w->e;
	void *block;

	if (e->worker_start)
		e->worker_start(w->index);
	free(w);
	while (twin_queue_pop(&e->ready, &block, true))
		execute(e, block);
	return NULL;
}

bool twin_run_one(struct twin_engine *e)
{
	void *block;

	if (!twin_queue_pop(&e->ready, &block, false))
		return false;
	execute(e, block);
	return true;
}

static void start_workers(struct twin_engine *e)
{
	struct worker *w;
	int i;

	pthread_mutex_lock(&e->start_lock);
	for (i = 0; !e->started && i < e->workers; i++) {
		w = twin_alloc(sizeof(*w));
		w->e = e;
		w->index = i;
		if (pthread_create(&e->threads[i], NULL, worker, w))
			abort();
	}
	__atomic_store_n(&e->started, true, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&e->start_lock);
}

static void dispatch(struct twin_engine *e, struct twin_block *b, bool pusher)
{
	enum twin_prop prop = b->opr->prop;

	if (pusher && prop != TWIN_NORMAL) {
		execute(e, b);
		return;
	}
	/* the lazy array of lanes hands out a counted reference, dropped after the push */
	__atomic_add_fetch(&e->lane_refs, 1, __ATOMIC_RELAXED);
	if (!__atomic_load_n(&e->started, __ATOMIC_ACQUIRE))
		start_workers(e);
	if (prop == TWIN_DELETE_VAR)
		twin_queue_push_front(&e->ready, b);
	else
		twin_queue_push(&e->ready, b);
	__atomic_sub_fetch(&e->lane_refs, 1, __ATOMIC_ACQ_REL);
}

/* One access granted.  True: it was the last that the op waited for. */
static bool granted(struct twin_block *b)
{
	return __atomic_sub_fetch(&b->wait, 1, __ATOMIC_ACQ_REL) == 0;
}

/* ---- vars ---- */

static void append_read(struct twin_engine *e, struct twin_var *v, struct twin_block *b)
{
	pthread_mutex_lock(&v->lock);
	if (!v->pending) {
		v->reads++;
		/* cannot be the last: the push still holds one */
		granted(b);
	} else {
		struct twin_access *a = twin_pool_new(&e->accesses);

		a->next = NULL;
		a->block = NULL;
		a->write = false;
		v->head->next = a;
		v->head->block = b;
		v->head = a;
	}
	pthread_mutex_unlock(&v->lock);
}

static void append_write(struct twin_engine *e, struct twin_var *v, struct twin_block *b)
{
	/* taken before the lock: a pool's mutex is not held inside a var's here */
	struct twin_access *a = twin_pool_new(&e->accesses);

	a->next = NULL;
	a->block = NULL;
	a->write = false;
	pthread_mutex_lock(&v->lock);
	v->head->next = a;
	v->head->block = b;
	v->head->write = true;
	if (!v->pending) {
		v->pending = v->head;
		if (!v->reads) {
			v->reads = WRITE_GRANTED;
			granted(b);
		}
	}
	v->head = a;
	pthread_mutex_unlock(&v->lock);
}

static void complete_read(struct twin_engine *e, struct twin_var *v)
{
	struct twin_block *next = NULL;

	pthread_mutex_lock(&v->lock);
	if (--v->reads == 0 && v->pending) {
		next = v->pending->block;
		v->reads = WRITE_GRANTED;
	}
	pthread_mutex_unlock(&v->lock);
	if (next && granted(next))
		dispatch(e, next, false);
}

/* True if the var is to go. */
static bool complete_write(struct twin_engine *e, struct twin_var *v)
{
	struct twin_access *old, *a, *end, *next;
	struct twin_block *write = NULL;
	bool deleted;

	pthread_mutex_lock(&v->lock);
	old = v->pending;
	v->version++;
	v->reads = 0;
	deleted = v->deleted;
	if (deleted) {
		twin_pool_delete(&e->accesses, old);
		twin_pool_delete(&e->accesses, v->head);
		pthread_mutex_unlock(&v->lock);
		return true;
	}
	/* all reads up to the next write */
	end = old->next;
	while (end != v->head && !end->write) {
		v->reads++;
		end = end->next;
	}
	if (end == v->head) {
		v->pending = NULL;
	} else {
		v->pending = end;
		if (!v->reads) {
			v->reads = WRITE_GRANTED;
			write = end->block;
		}
	}
	/* old->next may be the head, which a push fills as soon as the lock is gone */
	a = old->next;
	pthread_mutex_unlock(&v->lock);

	twin_pool_delete(&e->accesses, old);
	if (write) {
		if (granted(write))
			dispatch(e, write, false);
		return false;
	}
	for (; a != end; a = next) {
		next = a->next;
		if (granted(a->block))
			dispatch(e, a->block, false);
		twin_pool_delete(&e->accesses, a);
	}
	return false;
}

struct twin_var *twin_var_new(struct twin_engine *e)
{
	struct twin_var *v = twin_pool_new(&e->vars);

	memset(v, 0, sizeof(*v));
	pthread_mutex_init(&v->lock, NULL);
	v->head = twin_pool_new(&e->accesses);
	memset(v->head, 0, sizeof(*v->head));
	return v;
}

/* ---- ops ---- */

static void vec_init(struct twin_vec *vec, struct twin_var *const *vars, size_t n)
{
	vec->begin = NULL;
	if (n) {
		vec->begin = twin_alloc(n * sizeof(*vars));
		memcpy(vec->begin, vars, n * sizeof(*vars));
	}
	vec->end = vec->begin + n;
}

static struct twin_opr *opr_new(struct twin_engine *e, twin_body body, const void *closure,
				size_t size)
{
	struct twin_opr *opr = twin_pool_new(&e->oprs);

	memset(opr, 0, sizeof(*opr));
	opr->fn.body = body;
	if (size > sizeof(opr->fn.small))
		opr->fn.heap = twin_alloc(size);
	memcpy(opr->fn.heap ? opr->fn.heap : opr->fn.small, closure, size);
	return opr;
}

static void opr_delete(struct twin_engine *e, struct twin_opr *opr)
{
	free(opr->fn.heap);
	free(opr->reads.begin);
	free(opr->writes.begin);
	twin_pool_delete(&e->oprs, opr);
}

static void complete(struct twin_engine *e, struct twin_block *b, int error)
{
	struct twin_opr *opr = b->opr;
	struct twin_var **v;
	int left;

	for (v = opr->reads.begin; v != opr->reads.end; v++)
		complete_read(e, *v);
	for (v = opr->writes.begin; v != opr->writes.end; v++) {
		if (error)
			__atomic_store_n(&(*v)->error, error, __ATOMIC_RELAXED);
		if (complete_write(e, *v)) {
			pthread_mutex_destroy(&(*v)->lock);
			twin_pool_delete(&e->vars, *v);
		}
	}
	pthread_mutex_lock(&e->finished_lock);
	if (error && !e->error)
		e->error = error;
	left = __atomic_sub_fetch(&e->pending, 1, __ATOMIC_ACQ_REL);
	pthread_mutex_unlock(&e->finished_lock);
	if (!left)
		pthread_cond_broadcast(&e->finished);
	if (opr->temporary)
		opr_delete(e, opr);
	twin_pool_delete(&e->blocks, b);
}

static void push(struct twin_engine *e, struct twin_opr *opr, int priority)
{
	struct twin_block *b = twin_pool_new(&e->blocks);
	struct twin_var **v;

	b->opr = opr;
	b->engine = e;
	b->priority = priority;
	b->wait = (int)(opr->reads.end - opr->reads.begin) +
		  (int)(opr->writes.end - opr->writes.begin) + 1;
	__atomic_add_fetch(&e->pending, 1, __ATOMIC_ACQ_REL);
	/* var by var: here two pushers can each come first on one of two vars */
	for (v = opr->reads.begin; v != opr->reads.end; v++)
		append_read(e, *v, b);
	for (v = opr->writes.begin; v != opr->writes.end; v++)
		append_write(e, *v, b);
	if (granted(b))
		dispatch(e, b, true);
}

void twin_push_async(struct twin_engine *e, twin_body body, const void *closure, size_t size,
		     struct twin_var *const *reads, size_t nreads,
		     struct twin_var *const *writes, size_t nwrites,
		     enum twin_prop prop, int priority)
{
	struct twin_opr *opr = opr_new(e, body, closure, size);

	vec_init(&opr->reads, reads, nreads);
	vec_init(&opr->writes, writes, nwrites);
	opr->prop = prop;
	opr->temporary = true;
	push(e, opr, priority);
}

static void delete_body(void *closure, struct twin_done done)
{
	struct twin_var *v;

	memcpy(&v, closure, sizeof(v));
	pthread_mutex_lock(&v->lock);
	v->deleted = true;
	pthread_mutex_unlock(&v->lock);
	twin_done(done, 0);
}

void twin_var_delete(struct twin_engine *e, struct twin_var *v)
{
	twin_push_async(e, delete_body, &v, sizeof(v), NULL, 0, &v, 1, TWIN_DELETE_VAR, 0);
}

/* ---- waits ---- */

struct waiter {
	struct twin_engine *e;
	bool *done;
};

static void wait_body(void *closure, struct twin_done done)
{
	struct waiter w;

	memcpy(&w, closure, sizeof(w));
	pthread_mutex_lock(&w.e->finished_lock);
	*w.done = true;
	pthread_mutex_unlock(&w.e->finished_lock);
	pthread_cond_broadcast(&w.e->finished);
	twin_done(done, 0);
}

/* An op that reads the var, in the queue like any other. */
int twin_wait_for_var(struct twin_engine *e, struct twin_var *v)
{
	bool done = false, idle;
	struct waiter w = { e, &done };
	struct twin_opr *opr;

	pthread_mutex_lock(&v->lock);
	idle = !v->pending;
	pthread_mutex_unlock(&v->lock);
	if (!idle) {
		opr = opr_new(e, wait_body, &w, sizeof(w));
		vec_init(&opr->reads, &v, 1);
		opr->temporary = true;
		opr->wait = true;
		push(e, opr, 0);
		pthread_mutex_lock(&e->finished_lock);
		while (!done)
			pthread_cond_wait(&e->finished, &e->finished_lock);
		pthread_mutex_unlock(&e->finished_lock);
	}
	return __atomic_exchange_n(&v->error, 0, __ATOMIC_RELAXED);
}

int twin_wait_for_all(struct twin_engine *e)
{
	int error;

	pthread_mutex_lock(&e->finished_lock);
	while (__atomic_load_n(&e->pending, __ATOMIC_ACQUIRE))
		pthread_cond_wait(&e->finished, &e->finished_lock);
	error = e->error;
	e->error = 0;
	pthread_mutex_unlock(&e->finished_lock);
	return error;
}

/* ---- life ---- */

struct twin_engine *twin_create(int workers, void (*worker_start)(int index))
{
	struct twin_engine *e = twin_alloc(sizeof(*e));

	memset(e, 0, sizeof(*e));
	twin_pool_init(&e->oprs, sizeof(struct twin_opr));
	twin_pool_init(&e->blocks, sizeof(struct twin_block));
	twin_pool_init(&e->accesses, sizeof(struct twin_access));
	twin_pool_init(&e->vars, sizeof(struct twin_var));
	twin_queue_init(&e->ready);
	pthread_mutex_init(&e->finished_lock, NULL);
	pthread_mutex_init(&e->start_lock, NULL);
	pthread_cond_init(&e->finished, NULL);
	e->workers = workers;
	e->worker_start = worker_start;
	e->threads = twin_alloc((size_t)workers * sizeof(*e->threads));
	return e;
}

/* Unlike the original it drains first: a benchmark wants its ops run. */
void twin_destroy(struct twin_engine *e)
{
	int i;

	twin_wait_for_all(e);
	twin_queue_kill(&e->ready);
	for (i = 0; e->started && i < e->workers; i++)
		pthread_join(e->threads[i], NULL);
	twin_queue_finish(&e->ready);
	twin_pool_finish(&e->oprs);
	twin_pool_finish(&e->blocks);
	twin_pool_finish(&e->accesses);
	twin_pool_finish(&e->vars);
	pthread_mutex_destroy(&e->finished_lock);
	pthread_mutex_destroy(&e->start_lock);
	pthread_cond_destroy(&e->finished);
	free(e->threads);
	free(e);
}
