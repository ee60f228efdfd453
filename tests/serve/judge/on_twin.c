// SPDX-License-Identifier: Apache-2.0
/*
 * on_twin.c - the calls of pawl that pawl serve makes, implemented on tests/bench/twin: the
 * same server on an engine with mutexes.
 *
 * This file adds what the twin lacks: an atomic status per group, so that ops after a failure,
 * a cancel or a deadline are skipped; and a queue of completions with a mutex, as is usual in
 * such programs.  It ignores the priorities of runs.
 *
 * A group is a slot, which has one run at a time.  The last op of a run, which has no body,
 * depends on all others.  An op without a group is alone, and has no vars: the plan of a slot.
 */
#include <errno.h>
#include <pawl/engine.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "../../bench/twin/twin.h"

#define MAX_ACCESS 512		/* vars of an op */
#define CQ_SIZE 4096		/* runs in flight are fewer */

struct group {
	struct pawl_engine *e;
	int status;		/* of the run: 0, or why its ops are skipped */
	unsigned int running;	/* last ops of runs that have not ended */
};

struct pawl_engine {
	struct twin_engine *twin;
	pthread_mutex_t lock;	/* of the completions */
	struct pawl_completion done[CQ_SIZE];
	unsigned int head, tail;
	int fd;
};

void pawl_config_init_size(struct pawl_config *cfg, size_t size)
{
	memset(cfg, 0, size);
	cfg->size = size;
	cfg->workers = 1;
}

int pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out)
{
	struct pawl_engine *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->fd = -1;
	pthread_mutex_init(&e->lock, NULL);
	e->twin = twin_create(cfg->workers, NULL);
	*out = e;
	return 0;
}

int pawl_engine_destroy(struct pawl_engine *e)
{
	if (!e)
		return 0;
	twin_destroy(e->twin);
	pthread_mutex_destroy(&e->lock);
	if (e->fd >= 0)
		close(e->fd);
	free(e);
	return 0;
}

int pawl_thread_detach(struct pawl_engine *e)
{
	(void)e;
	return 0;
}

const char *pawl_error_text(void)
{
	return "the twin";
}

const char *pawl_version(void)
{
	return "twin";
}

int pawl_prometheus(struct pawl_engine *const *engines, unsigned int n, char *buf, size_t size)
{
	(void)engines;
	(void)n;
	if (size)
		*buf = 0;
	return 0;
}

/* The twin has no traces. */
int pawl_trace_start(struct pawl_engine *e, unsigned int events_per_thread)
{
	(void)e;
	(void)events_per_thread;
	return -ENOTSUP;
}

int pawl_trace_stop(struct pawl_engine *e)
{
	(void)e;
	return -ENOTSUP;
}

int pawl_trace_write(struct pawl_engine *e, const char *path)
{
	(void)e;
	(void)path;
	return -ENOTSUP;
}

int pawl_fail(struct pawl_run *run, int code, const char *fmt, ...)
{
	va_list ap;

	(void)run;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return code;
}

/* ---- vars, completions, groups ---- */

static struct twin_var *var_of(pawl_var_t v)
{
	return (struct twin_var *)(uintptr_t)v.h;
}

int pawl_var_create(struct pawl_engine *e, pawl_var_t *out)
{
	out->h = (uintptr_t)twin_var_new(e->twin);
	return 0;
}

int pawl_var_delete(struct pawl_engine *e, pawl_var_t v, pawl_fn fn, void *arg)
{
	(void)fn;
	(void)arg;
	twin_var_delete(e->twin, var_of(v));
	return 0;
}

/* Errors stay in the group. */
int pawl_var_clear(struct pawl_engine *e, pawl_var_t v)
{
	(void)e;
	(void)v;
	return 0;
}

int pawl_cq_create(struct pawl_engine *e, pawl_cq_t *out)
{
	(void)e;
	out->h = 1;
	return 0;
}

int pawl_cq_fd(struct pawl_engine *e, pawl_cq_t cq)
{
	(void)cq;
	if (e->fd < 0)
		e->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return e->fd < 0 ? -errno : e->fd;
}

int pawl_cq_reap(struct pawl_engine *e, pawl_cq_t cq, struct pawl_completion *out,
		 unsigned int n)
{
	unsigned int i;
	eventfd_t count;

	(void)cq;
	pthread_mutex_lock(&e->lock);
	for (i = 0; i < n && e->tail != e->head; i++)
		out[i] = e->done[e->tail++ % CQ_SIZE];
	if (i && e->tail == e->head && e->fd >= 0)
		eventfd_read(e->fd, &count);
	pthread_mutex_unlock(&e->lock);
	return (int)i;
}

/* Called only for the engine without workers, whose ops the calling thread runs. */
int pawl_cq_wait(struct pawl_engine *e, pawl_cq_t cq, int64_t timeout_ns)
{
	(void)cq;
	(void)timeout_ns;
	while (twin_run_one(e->twin))
		;
	return 0;
}

static void post(struct pawl_engine *e, uint64_t tag, int status)
{
	pthread_mutex_lock(&e->lock);
	if (e->head - e->tail == CQ_SIZE)
		abort();	/* runs in flight are fewer */
	e->done[e->head % CQ_SIZE] = (struct pawl_completion){ tag, status, 0 };
	if (e->head++ == e->tail && e->fd >= 0)
		eventfd_write(e->fd, 1);
	pthread_mutex_unlock(&e->lock);
}

static struct group *group_of(pawl_group_t g)
{
	return (struct group *)(uintptr_t)g.h;
}

int pawl_group_create(struct pawl_engine *e, const struct pawl_group_limits *limits,
		      pawl_group_t *out)
{
	struct group *g = calloc(1, sizeof(*g));

	(void)limits;
	if (g)
		g->e = e;
	out->h = (uintptr_t)g;
	return g ? 0 : -ENOMEM;
}

int pawl_group_cancel(struct pawl_engine *e, pawl_group_t group)
{
	int none = 0;

	(void)e;
	__atomic_compare_exchange_n(&group_of(group)->status, &none, -ECANCELED, false,
				    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return 0;
}

/* The completion of a run arrives just before its last op has ended. */
int pawl_group_wait(struct pawl_engine *e, pawl_group_t group, int64_t timeout_ns)
{
	(void)e;
	(void)timeout_ns;
	while (__atomic_load_n(&group_of(group)->running, __ATOMIC_ACQUIRE))
		sched_yield();
	return 0;
}

int pawl_group_destroy(struct pawl_engine *e, pawl_group_t group)
{
	(void)e;
	if (__atomic_load_n(&group_of(group)->running, __ATOMIC_ACQUIRE))
		return -EBUSY;
	free(group_of(group));
	return 0;
}

/* ---- ops ---- */

static void set_status(struct group *g, int status)
{
	int none = 0;

	__atomic_compare_exchange_n(&g->status, &none, status, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
}

static bool too_late(const struct pawl_op *op)
{
	struct timespec ts;

	if (!(op->flags & PAWL_OP_DEADLINE))
		return false;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec > op->deadline_ns;
}

/* The op is in the slot, which outlives its run. */
static void body(void *closure, struct twin_done done)
{
	const struct pawl_op *op;
	struct group *g;
	uint64_t tag;
	int status;

	memcpy(&op, closure, sizeof(op));
	g = group_of(op->group);
	status = __atomic_load_n(&g->status, __ATOMIC_RELAXED);
	if (op->fn) {
		if (!status)
			status = too_late(op) ? -ETIMEDOUT : op->fn(NULL, op->arg);
		if (status)
			set_status(g, status);
		twin_done(done, 0);
		return;
	}
	tag = op->tag;
	op->release(op->arg, status);
	twin_done(done, 0);
	post(g->e, tag, status);
	__atomic_fetch_sub(&g->running, 1, __ATOMIC_RELEASE);
}

struct alone {
	struct pawl_engine *e;
	struct pawl_op op;
};

static void body_alone(void *closure, struct twin_done done)
{
	struct alone *a;
	int status;

	memcpy(&a, closure, sizeof(a));
	status = a->op.fn(NULL, a->op.arg);
	twin_done(done, 0);
	post(a->e, a->op.tag, status);
	free(a);
}

static int push_alone(struct pawl_engine *e, const struct pawl_op *from)
{
	struct alone *a = malloc(sizeof(*a));

	if (!a)
		return -ENOMEM;
	*a = (struct alone){ e, *from };
	twin_push_async(e->twin, body_alone, &a, sizeof(a), NULL, 0, NULL, 0, TWIN_NORMAL, 0);
	return 0;
}

/* The twin needs each var once, as a write if one of the accesses is a write. */
static unsigned int distinct(struct twin_var **to, unsigned int n, const pawl_var_t *from,
			     unsigned int nfrom)
{
	unsigned int i, k, first = n;

	for (i = 0; i < nfrom; i++) {
		for (k = 0; k < n && to[k] != var_of(from[i]); k++)
			;
		if (k == n)
			to[n++] = var_of(from[i]);
	}
	return n - first;
}

int pawl_push_batch(struct pawl_engine *e, const struct pawl_op *ops, size_t n)
{
	struct twin_var *v[MAX_ACCESS];
	unsigned int nw, nr;
	size_t i;

	if (n == 1 && !(ops[0].flags & PAWL_OP_GROUP))
		return push_alone(e, &ops[0]);
	for (i = 0; i < n; i++)
		if (ops[i].nreads + ops[i].nwrites > MAX_ACCESS)
			return -ENOTSUP;
	/* a cancel may have come after the run before */
	__atomic_store_n(&group_of(ops[0].group)->status, 0, __ATOMIC_RELAXED);
	__atomic_fetch_add(&group_of(ops[0].group)->running, 1, __ATOMIC_RELAXED);
	for (i = 0; i < n; i++) {
		const struct pawl_op *op = &ops[i];

		nw = distinct(v, 0, op->writes, op->nwrites);
		nr = distinct(v, nw, op->reads, op->nreads);
		twin_push_async(e->twin, body, &op, sizeof(op), v + nw, nr, v, nw, TWIN_NORMAL,
				0);
	}
	return 0;
}
