// SPDX-License-Identifier: Apache-2.0
/*
 * on_twin.c - the calls of pawl that pawl serve makes, implemented on tests/bench/twin: the
 * same server on an engine with mutexes.
 *
 * This file adds what the twin lacks: graphs, whose launches push each op, with an atomic status,
 * so that ops after a failure, a cancel or a deadline are skipped, and a count of the ops that
 * have not ended; and a queue of completions with a mutex, as is usual in such programs.  It
 * ignores the priorities of runs.
 *
 * A graph is that of a slot, which has one launch at a time.  An op that is pushed alone has no
 * vars: the plan of a slot.
 */
#include <errno.h>
#include <pawl/engine.h>
#include <pthread.h>
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

/* pawl top cannot look into it. */
int pawl_publish(bool on)
{
	(void)on;
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

/* ---- vars, completions ---- */

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

/* ---- ops ---- */

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

int pawl_push_batch(struct pawl_engine *e, const struct pawl_op *ops, size_t n)
{
	struct alone *a = n == 1 ? malloc(sizeof(*a)) : NULL;

	if (!a)
		return -ENOMEM;
	*a = (struct alone){ e, *ops };
	twin_push_async(e->twin, body_alone, &a, sizeof(a), NULL, 0, NULL, 0, TWIN_NORMAL, 0);
	return 0;
}

/* ---- graphs ---- */

/* Slot 0 is the weights, a var of each launch; the others are vars of the graph. */
struct graph {
	struct pawl_engine *e;
	struct node *node;
	struct twin_var **slot;
	size_t n;
	unsigned int nslots;
	struct pawl_launch how;		/* the launch */
	int status;			/* why its ops are skipped, or 0 */
	size_t left;			/* ops that have not ended */
};

struct node {
	struct graph *g;
	pawl_fn fn;
	void *arg;
	unsigned int *slot;		/* nr read and nw written, each once */
	unsigned int nr, nw;
};

struct run {
	struct pawl_run run;
	struct graph *g;
};

static struct graph *graph_of(pawl_graph_t g)
{
	return (struct graph *)(uintptr_t)g.h;
}

int pawl_run_canceled(const struct pawl_run *run)
{
	const struct graph *g = ((const struct run *)run)->g;
	int status = __atomic_load_n(&g->status, __ATOMIC_RELAXED);
	struct timespec ts;

	if (status || !(g->how.flags & PAWL_OP_DEADLINE))
		return status;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec > g->how.deadline_ns ? -ETIMEDOUT : 0;
}

static void set_status(struct graph *g, int status)
{
	int none = 0;

	__atomic_compare_exchange_n(&g->status, &none, status, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
}

int pawl_cancel(struct pawl_engine *e, pawl_ticket_t ticket)
{
	(void)e;
	set_status((struct graph *)(uintptr_t)ticket.h, -ECANCELED);
	return -EINPROGRESS;
}

/* The graph exists until its last op has posted. */
static void body(void *closure, struct twin_done done)
{
	struct node *nd;
	struct graph *g;
	struct run run;
	int status;

	memcpy(&nd, closure, sizeof(nd));
	g = nd->g;
	run = (struct run){ .g = g };
	status = __atomic_load_n(&g->status, __ATOMIC_RELAXED);
	if (!status)
		status = nd->fn(&run.run, nd->arg);
	if (status)
		set_status(g, status);
	twin_done(done, 0);
	if (__atomic_fetch_sub(&g->left, 1, __ATOMIC_ACQ_REL) == 1)
		post(g->e, g->how.tag, __atomic_load_n(&g->status, __ATOMIC_RELAXED));
}

static unsigned int slot_of(pawl_var_t v)
{
	return (unsigned int)(v.h - PAWL_SLOT_0);
}

/* The twin needs each var once, as a write if one of the accesses is a write. */
static unsigned int distinct(unsigned int *to, unsigned int n, const pawl_var_t *from,
			     unsigned int nfrom)
{
	unsigned int i, k, first = n;

	for (i = 0; i < nfrom; i++) {
		for (k = 0; k < n && to[k] != slot_of(from[i]); k++)
			;
		if (k == n)
			to[n++] = slot_of(from[i]);
	}
	return n - first;
}

int pawl_graph_delete(struct pawl_engine *e, pawl_graph_t h)
{
	struct graph *g = graph_of(h);
	size_t i;

	for (i = 0; g->node && i < g->n; i++)
		free(g->node[i].slot);
	for (i = 1; g->slot && i < g->nslots; i++)
		twin_var_delete(e->twin, g->slot[i]);
	free(g->node);
	free(g->slot);
	free(g);
	return 0;
}

int pawl_graph_create(struct pawl_engine *e, const struct pawl_op *ops, size_t n,
		      unsigned int flags, pawl_graph_t *out)
{
	struct graph *g = calloc(1, sizeof(*g));
	unsigned int k, most = 0;
	size_t i;

	(void)flags;
	if (!g)
		return -ENOMEM;
	out->h = (uintptr_t)g;
	g->e = e;
	g->n = n;
	g->node = calloc(n, sizeof(*g->node));
	for (i = 0; g->node && i < n; i++) {
		const struct pawl_op *op = &ops[i];
		struct node *nd = &g->node[i];

		if (op->nreads + op->nwrites > MAX_ACCESS)
			break;
		nd->g = g;
		nd->fn = op->fn;
		nd->arg = op->arg;
		nd->slot = calloc(op->nreads + op->nwrites + 1, sizeof(*nd->slot));
		if (!nd->slot)
			break;
		nd->nw = distinct(nd->slot, 0, op->writes, op->nwrites);
		nd->nr = distinct(nd->slot, nd->nw, op->reads, op->nreads);
		for (k = 0; k < nd->nw + nd->nr; k++)
			most = nd->slot[k] > most ? nd->slot[k] : most;
	}
	g->slot = calloc(most + 1, sizeof(*g->slot));
	if (!g->node || !g->slot || i < n) {
		pawl_graph_delete(e, *out);
		return -ENOMEM;
	}
	g->nslots = most + 1;
	for (k = 1; k < g->nslots; k++)
		g->slot[k] = twin_var_new(e->twin);
	return 0;
}

int pawl_graph_push(struct pawl_engine *e, pawl_graph_t h, const struct pawl_launch *how)
{
	struct twin_var *v[MAX_ACCESS];
	struct graph *g = graph_of(h);
	unsigned int k;
	size_t i;

	/* a cancel may have come after the launch before */
	__atomic_store_n(&g->status, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&g->left, g->n, __ATOMIC_RELAXED);
	g->how = *how;
	g->slot[0] = var_of(how->vars[0]);
	how->ticket->h = (uintptr_t)g;
	for (i = 0; i < g->n; i++) {
		struct node *nd = &g->node[i];

		for (k = 0; k < nd->nw + nd->nr; k++)
			v[k] = g->slot[nd->slot[k]];
		twin_push_async(e->twin, body, &nd, sizeof(nd), v + nd->nw, nd->nr, v, nd->nw,
				TWIN_NORMAL, 0);
	}
	return 0;
}
