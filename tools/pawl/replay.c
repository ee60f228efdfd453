// SPDX-License-Identifier: Apache-2.0
/*
 * Pushes a recorded workload again, and checks that its order is kept.
 *
 * The check is independent of the engine.  Every var has a plain counter of writes and a
 * count of its holders.  A body checks, for each of its accesses, that the counter has the
 * value that the serial order requires, and that it is alone where it writes.  The thread
 * sanitizer also reports a race if two bodies access a plain counter without order.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "replay.h"
#include "slurp.h"

#define MAX_VARS (1u << 26)
#define WRITER (1u << 24)
#define WINDOW (1u << 16)	/* ops in flight: a large recording is not in memory */

struct play_var {
	pawl_var_t v;
	bool alive;
	uint32_t refs;		/* ops in flight, and 1 as long as later ops may name it */
	uint64_t pushed;	/* writes */
	uint64_t writes;	/* accessed only by holders of the var */
	atomic_uint holders;	/* readers, plus WRITER for a writer */
};

/* An op in flight.  Only the thread that pushes changes the lists and counts refs. */
struct play_op {
	struct play *p;
	struct play_op *prev, *next;	/* all that are in memory */
	struct play_op *done;		/* the next in p->done */
	uint32_t refs;			/* in flight, and as the form of a graph */
	uint32_t number;
	uint32_t seen;			/* runs */
	atomic_uint left;		/* bodies */
	struct rec_op o;
	struct play_var **vars;		/* by access */
	struct rec_access *accesses;	/* with the versions that they must find */
	struct play_node *nodes;
	uint32_t *succ;
};

struct play_node {
	struct play_op *po;
	struct rec_node n;
	atomic_bool begun;
};

/*
 * Of a workload with parents, by number of the op.  Edges that no access implies need vars: one that
 * an op writes and those behind it read, or one that those before an op read and it writes, if many
 * are before it.
 */
struct play_told {
	size_t edge, nedges;	/* in p->edges */
	size_t first_aside;
	pawl_var_t out, in;
	bool many;
	atomic_bool over;
};

/* A graph that replays launches of the same form. */
struct play_graph {
	struct play_op *like;	/* NULL: unused */
	pawl_graph_t g;
};

#define GRAPHS 16u
#define MANY 1024u		/* ops with a var of their own */

/* The accesses of an op that is pushed. */
struct list {
	pawl_var_t *v;
	size_t cap;
	size_t reads, writes;	/* from the front, and from the back */
};

struct play {
	struct source *s;
	const struct recording *r;
	const struct replay_options *opt;
	struct pawl_engine *e;
	struct list list;
	struct play_op *ops;		/* in memory */
	_Atomic(struct play_op *) done;	/* whose bodies have run */
	struct play_graph graphs[GRAPHS];
	unsigned int next_graph;
	uint32_t *last;			/* by var of a workload in memory: the last op on it */
	struct play_told *told;
	const struct rec_edge **edges;	/* from the ops that must be complete before, op by op */
	const struct rec_edge **aside;	/* to ops with many before them, from op to op */
	uint32_t number;	/* of this replay in the process */
	atomic_uint threads;	/* that ran bodies */
	atomic_uint_fast64_t ran, bodies, checked, edges_checked, wrong;
	uint64_t pushed, nodes, collected;
	atomic_flag said;
	char first[160];
	char err[256];
	int rc;			/* of a push */
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void wrong(struct play *p, const struct play_op *po, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void wrong(struct play *p, const struct play_op *po, const char *fmt, ...)
{
	char text[96];
	va_list ap;

	atomic_fetch_add(&p->wrong, 1);
	if (atomic_flag_test_and_set(&p->said))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (po)
		snprintf(p->first, sizeof(p->first), "op %" PRIu32 " (\"%.40s\"): %s", po->number,
			 po->o.name, text);
	else
		snprintf(p->first, sizeof(p->first), "%s", text);
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/*
 * A body needs its time on a CPU.  That clock costs a system call, so it is read when the time
 * would be over if nobody else had used the CPU.
 */
static void spend(const struct replay_options *opt, uint64_t recorded)
{
	uint64_t ns = (uint64_t)((double)recorded / opt->speed), begin, end, used = 0;

	if (opt->sleep) {
		struct timespec ts = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

		nanosleep(&ts, NULL);
		return;
	}
	for (begin = cpu_ns(); used < ns; used = cpu_ns() - begin)
		for (end = now_ns() + ns - used; now_ns() < end;)
			;
}

/* The thread runs a body of this replay. */
static void thread_count(struct play *p)
{
	static _Thread_local uint32_t last;

	if (last == p->number)
		return;
	last = p->number;
	atomic_fetch_add_explicit(&p->threads, 1, memory_order_relaxed);
}

/* A body has run.  After the last one of the op, the thread that pushes may free it. */
static void body_done(struct play_op *po)
{
	struct play *p = po->p;

	if (atomic_fetch_sub_explicit(&po->left, 1, memory_order_acq_rel) != 1)
		return;
	po->done = atomic_load_explicit(&p->done, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&p->done, &po->done, po, memory_order_release,
						      memory_order_relaxed))
		;
}

static int body(struct pawl_run *run, void *arg)
{
	struct play_op *po = arg;
	struct play *p = po->p;
	const struct rec_op *o = &po->o;
	struct play_told *told = p->told ? &p->told[po->number] : NULL;
	uint32_t i, was;
	size_t k;

	(void)run;
	thread_count(p);
	for (i = 0; i < o->naccesses; i++) {
		const struct rec_access *a = &po->accesses[i];
		struct play_var *v = po->vars[i];

		was = atomic_fetch_add_explicit(&v->holders, a->write ? WRITER : 1,
						memory_order_relaxed);
		if (was >= (a->write ? 1 : WRITER))
			wrong(p, po, "var %" PRIu32 " is held by another", a->var);
		if (v->writes != a->version)
			wrong(p, po, "var %" PRIu32 " has version %" PRIu64 ", not %" PRIu64, a->var,
			      v->writes, a->version);
	}
	for (k = 0; told && k < told->nedges; k++)
		if (!atomic_load_explicit(&p->told[p->edges[told->edge + k]->before].over,
					  memory_order_relaxed))
			wrong(p, po, "op %" PRIu32 " is not over", p->edges[told->edge + k]->before);
	if (po->seen++)
		wrong(p, po, "runs again");
	if (p->opt->speed > 0 && o->ended && !o->launch)
		spend(p->opt, o->end - o->begin);
	for (i = 0; i < o->naccesses; i++) {
		const struct rec_access *a = &po->accesses[i];
		struct play_var *v = po->vars[i];

		if (a->write)
			v->writes++;
		atomic_fetch_sub_explicit(&v->holders, a->write ? WRITER : 1, memory_order_relaxed);
	}
	if (told)
		atomic_store_explicit(&told->over, true, memory_order_relaxed);
	atomic_fetch_add_explicit(&p->ran, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&p->checked, o->naccesses, memory_order_relaxed);
	if (told)
		atomic_fetch_add_explicit(&p->edges_checked, told->nedges, memory_order_relaxed);
	body_done(po);
	return 0;
}

/* The body of the launch with this number, or NULL. */
static struct play_node *node_find(const struct play_op *po, uint32_t number)
{
	uint32_t lo = 0, hi = po->o.nnodes, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (po->nodes[mid].n.number < number)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < po->o.nnodes && po->nodes[lo].n.number == number ? &po->nodes[lo] : NULL;
}

/* A body of a launch: those that wait for it have not begun. */
static int node_body(struct pawl_run *run, void *arg)
{
	struct play_node *pn = arg, *to;
	struct play_op *po = pn->po;
	struct play *p = po->p;
	uint32_t k;

	(void)run;
	thread_count(p);
	if (atomic_exchange_explicit(&pn->begun, true, memory_order_relaxed))
		wrong(p, po, "body %" PRIu32 " runs again", pn->n.number);
	if (p->opt->speed > 0 && pn->n.ended && !pn->n.skipped)
		spend(p->opt, pn->n.end - pn->n.begin);
	for (k = 0; k < pn->n.nsucc; k++) {
		to = node_find(po, po->succ[pn->n.succ + k]);
		if (to && to > pn && atomic_load_explicit(&to->begun, memory_order_relaxed))
			wrong(p, po, "body %" PRIu32 " did not wait for %" PRIu32, to->n.number,
			      pn->n.number);
	}
	atomic_fetch_add_explicit(&p->bodies, 1, memory_order_relaxed);
	body_done(po);
	return 0;
}

static void async_node(struct pawl_run *run, void *arg)
{
	pawl_complete(run->engine, run->token, node_body(run, arg), NULL);
}

static void async_body(struct pawl_run *run, void *arg)
{
	pawl_complete(run->engine, run->token, body(run, arg), NULL);
}

/* Does no access imply this edge? */
static bool told(const struct play *p, const struct rec_edge *edge)
{
	return p->r->told && p->r->told[edge - p->r->edges];
}

/* Where the parents of each op are, and which of them need vars. */
static int told_create(struct play *p)
{
	const struct recording *r = p->r;
	size_t *count = calloc(r->nops + 1, sizeof(*count)), i;

	p->told = calloc(r->nops + 2, sizeof(*p->told));
	p->edges = calloc(r->nedges, sizeof(*p->edges));
	p->aside = calloc(r->nedges, sizeof(*p->aside));
	if (!count || !p->told || !p->edges || !p->aside) {
		free(count);
		return -ENOMEM;
	}
	for (i = 0; i < r->nedges; i++)
		p->told[r->edges[i].after].nedges++;
	for (i = 1; i < r->nops; i++)
		p->told[i].edge = p->told[i - 1].edge + p->told[i - 1].nedges;
	for (i = 0; i < r->nedges; i++) {
		uint32_t to = r->edges[i].after;

		p->edges[p->told[to].edge + count[to]++] = &r->edges[i];
		p->told[to].many |= told(p, &r->edges[i]) && count[to] > MANY;
	}
	/* 1: the op needs such a var, which it gets when it is pushed */
	for (i = 0; i < r->nedges; i++)
		if (told(p, &r->edges[i]) && !p->told[r->edges[i].after].many)
			p->told[r->edges[i].before].out.h = 1;
	for (i = 0; i < r->nedges; i++)
		if (told(p, &r->edges[i]) && p->told[r->edges[i].after].many)
			p->told[r->edges[i].before + 1].first_aside++;
	for (i = 1; i <= r->nops; i++)
		p->told[i].first_aside += p->told[i - 1].first_aside;
	memset(count, 0, r->nops * sizeof(*count));
	for (i = 0; i < r->nedges; i++) {
		uint32_t from = r->edges[i].before;

		if (told(p, &r->edges[i]) && p->told[r->edges[i].after].many)
			p->aside[p->told[from].first_aside + count[from]++] = &r->edges[i];
	}
	free(count);
	return 0;
}

static void list_add(struct list *l, pawl_var_t v, bool write)
{
	if (write)
		l->v[l->cap - ++l->writes] = v;
	else
		l->v[l->reads++] = v;
}

/* The vars of edges that no access implies.  Each edge is said once. */
static int edges_list(struct play *p, uint32_t op)
{
	struct play_told *t = &p->told[op], *other;
	size_t k;
	int rc = 0;

	for (k = 0; k < t->nedges && !t->many; k++)
		if (told(p, p->edges[t->edge + k]))
			list_add(&p->list, p->told[p->edges[t->edge + k]->before].out, false);
	if (t->many)
		list_add(&p->list, t->in, true);
	for (k = t->first_aside; k < t[1].first_aside && !rc; k++) {
		other = &p->told[p->aside[k]->after];
		if (!other->in.h)
			rc = pawl_var_create(p->e, &other->in);
		list_add(&p->list, other->in, false);
	}
	if (t->out.h == 1) {
		if (!rc)
			rc = pawl_var_create(p->e, &t->out);
		list_add(&p->list, t->out, true);
	}
	return rc;
}

/* --- launches --- */

static bool same_form(const struct play_op *a, const struct play_op *b)
{
	uint32_t i;

	if (a->o.naccesses != b->o.naccesses || a->o.nnodes != b->o.nnodes || a->o.prop != b->o.prop)
		return false;
	for (i = 0; i < a->o.naccesses; i++)
		if (a->accesses[i].write != b->accesses[i].write)
			return false;
	for (i = 0; i < a->o.nnodes; i++) {
		const struct rec_node *x = &a->nodes[i].n, *y = &b->nodes[i].n;

		if (x->number != y->number || x->nsucc != y->nsucc || x->async != y->async ||
		    (x->nsucc && memcmp(&a->succ[x->succ], &b->succ[y->succ],
					x->nsucc * sizeof(a->succ[0]))))
			return false;
	}
	return true;
}

/*
 * A graph with the form of the launch.  Its slots: first the vars of the launch, which one op more
 * names, whose body makes the checks; then one per body, which that body writes and those that wait
 * for it read.
 */
static int graph_create(const struct play_op *po, pawl_graph_t *g)
{
	const struct rec_op *o = &po->o;
	uint32_t n = o->nnodes, i, k, reads = 0, writes = 0;
	struct pawl_op *ops = calloc(n + 1, sizeof(*ops));
	pawl_var_t *vars = calloc(o->naccesses + 1, sizeof(*vars)), *slots;
	pawl_var_t **in = calloc(n + 1, sizeof(*in));
	size_t edges = 0;
	int rc = -ENOMEM;

	for (i = 0; i < n; i++)
		edges += po->nodes[i].n.nsucc;
	slots = calloc(n + edges + 1, sizeof(*slots));
	if (!ops || !vars || !in || !slots)
		goto out;
	for (i = 0; i < o->naccesses; i++) {
		if (po->accesses[i].write)
			vars[o->naccesses - ++writes] = (pawl_var_t)PAWL_SLOT(i);
		else
			vars[reads++] = (pawl_var_t)PAWL_SLOT(i);
	}
	for (i = 0; i <= n; i++) {
		ops[i] = (struct pawl_op)PAWL_OP_INIT;
		ops[i].prop = o->prop <= PAWL_NO_SKIP ? o->prop : PAWL_NORMAL;
		ops[i].device.id = o->device_kind == PAWL_CPU ? o->device : 0;
	}
	ops[n].fn = body;
	ops[n].name = o->name;
	ops[n].reads = vars;
	ops[n].nreads = reads;
	ops[n].writes = vars + reads;
	ops[n].nwrites = writes;
	/* In two passes: how many each body waits for, and which. */
	for (i = 0; i < 2 * n; i++) {
		const struct play_node *from = &po->nodes[i % n];

		if (i == n)
			for (k = 0, edges = n; k < n; edges += ops[k].nreads, ops[k].nreads = 0, k++)
				ops[k].reads = in[k] = &slots[edges];
		for (k = 0; k < from->n.nsucc; k++) {
			const struct play_node *to = node_find(po, po->succ[from->n.succ + k]);
			size_t at;

			if (!to || to <= from)
				continue;
			at = (size_t)(to - po->nodes);
			if (i >= n)
				in[at][ops[at].nreads] =
					(pawl_var_t)PAWL_SLOT(o->naccesses + i % n);
			ops[at].nreads++;
		}
	}
	for (i = 0; i < n; i++) {
		slots[i] = (pawl_var_t)PAWL_SLOT(o->naccesses + i);
		ops[i].writes = &slots[i];
		ops[i].nwrites = 1;
		ops[i].name = po->nodes[i].n.name;
		if (po->nodes[i].n.async)
			ops[i].async_fn = async_node;
		else
			ops[i].fn = node_body;
	}
	rc = pawl_graph_create(po->p->e, ops, n + 1, 0, g);
out:
	free(ops);
	free(vars);
	free(slots);
	free(in);
	return rc;
}

static void op_put(struct play *p, struct play_op *po);

/* Push a launch, whose vars are in the list. */
static int launch(struct play *p, struct play_op *po)
{
	const struct rec_op *o = &po->o;
	struct pawl_launch how = { .size = sizeof(how), .priority = o->priority };
	pawl_var_t *vars = calloc(o->naccesses + o->nnodes + 1, sizeof(*vars));
	void **args = calloc(o->nnodes + 1, sizeof(*args));
	struct play_graph *g = NULL;
	uint32_t i, reads = 0, writes = 0;
	int rc = vars && args ? 0 : -ENOMEM;

	for (i = 0; i < GRAPHS && !g; i++)
		if (p->graphs[i].like && same_form(p->graphs[i].like, po))
			g = &p->graphs[i];
	if (!rc && !g) {
		g = &p->graphs[p->next_graph++ % GRAPHS];
		if (g->like) {
			rc = pawl_graph_delete(p->e, g->g);
			op_put(p, g->like);
		}
		g->like = NULL;
		if (!rc)
			rc = graph_create(po, &g->g);
		if (!rc) {
			g->like = po;
			po->refs++;
		}
	}
	for (i = 0; !rc && i < o->naccesses; i++)
		vars[i] = po->accesses[i].write ? p->list.v[p->list.cap - ++writes] :
			  p->list.v[reads++];
	for (i = 0; !rc && i < o->nnodes; i++)
		args[i] = &po->nodes[i];
	if (!rc) {
		args[o->nnodes] = po;
		how.vars = vars;
		how.nvars = o->naccesses + o->nnodes;
		how.args = args;
		how.nargs = o->nnodes + 1;
		how.device.id = o->device_kind == PAWL_CPU ? o->device : 0;
		rc = pawl_graph_push(p->e, g->g, &how);
	}
	free(vars);
	free(args);
	return rc;
}

/* --- ops --- */

static void var_put(struct play *p, struct play_var *v)
{
	if (--v->refs)
		return;
	/* In memory, the vars end with the engine. */
	if (v->alive && p->e && p->s->flow && pawl_var_delete(p->e, v->v, NULL, NULL))
		wrong(p, NULL, "a var cannot be deleted: %s", pawl_error_text());
	free(v);
}

static void op_put(struct play *p, struct play_op *po)
{
	if (--po->refs)
		return;
	*(po->prev ? &po->prev->next : &p->ops) = po->next;
	if (po->next)
		po->next->prev = po->prev;
	free(po);
}

/* No body uses the op any more. */
static void op_end(struct play *p, struct play_op *po)
{
	uint32_t i;

	for (i = 0; i < po->o.naccesses; i++)
		if (po->vars[i])
			var_put(p, po->vars[i]);
	po->o.naccesses = 0;
	op_put(p, po);
}

/* Free the ops whose bodies have run. */
static void collect(struct play *p)
{
	struct play_op *po, *next;

	if (!atomic_load_explicit(&p->done, memory_order_relaxed))
		return;
	for (po = atomic_exchange_explicit(&p->done, NULL, memory_order_acquire); po; po = next) {
		next = po->done;
		p->collected++;
		op_end(p, po);
	}
}

/*
 * With -w N this thread runs no body, so it must not wait in a push, which may run one.  Otherwise
 * the window of the engine is as large.
 */
static void window_wait(struct play *p)
{
	static const struct timespec some = { 0, 200000 };

	if (p->opt->workers > 0 && p->pushed - p->collected >= WINDOW)
		for (; p->pushed - p->collected > WINDOW / 2; collect(p))
			nanosleep(&some, NULL);
}

/* A copy of the op, with its accesses and bodies. */
static struct play_op *op_create(struct play *p, const struct flow_op *from)
{
	const struct recording *r = from->one;
	const struct rec_op *o = &r->ops[0];
	size_t n = o->naccesses, nsucc = 0, i, k;
	struct play_op *po;

	for (i = 0; i < o->nnodes; i++)
		nsucc += r->nodes[i].nsucc;
	po = calloc(1, sizeof(*po) + n * (sizeof(po->vars[0]) + sizeof(po->accesses[0])) +
			       o->nnodes * sizeof(po->nodes[0]) + nsucc * sizeof(po->succ[0]));
	if (!po)
		return NULL;
	po->p = p;
	po->o = *o;
	po->number = from->number;
	po->refs = 1;
	atomic_init(&po->left, o->launch && o->nnodes ? o->nnodes + 1 : 1);
	po->nodes = (struct play_node *)(po + 1);
	po->accesses = (struct rec_access *)(po->nodes + o->nnodes);
	po->vars = (struct play_var **)(po->accesses + n);
	po->succ = (uint32_t *)(po->vars + n);
	if (n)
		memcpy(po->accesses, r->accesses, n * sizeof(po->accesses[0]));
	for (i = nsucc = 0; i < o->nnodes; i++) {
		struct rec_node *x = &po->nodes[i].n;

		*x = r->nodes[i];
		po->nodes[i].po = po;
		for (k = 0; k < x->nsucc; k++)
			po->succ[nsucc + k] = r->succ[x->succ + k];
		x->succ = nsucc;
		nsucc += x->nsucc;
	}
	po->next = p->ops;
	if (p->ops)
		p->ops->prev = po;
	p->ops = po;
	return po;
}

/* Name the vars of the op. */
static int vars_list(struct play *p, struct play_op *po, struct flow_var **vars)
{
	uint32_t i;
	int rc = 0;

	p->list.reads = p->list.writes = 0;
	for (i = 0; i < po->o.naccesses && !rc; i++) {
		struct rec_access *a = &po->accesses[i];
		struct play_var *v = vars[i]->user;

		if (!v) {
			v = vars[i]->user = calloc(1, sizeof(*v));
			if (!v)
				return -ENOMEM;
			v->refs = 1;
		}
		po->vars[i] = v;
		v->refs++;
		if (!v->alive)
			rc = pawl_var_create(p->e, &v->v);
		v->alive = !rc;
		a->version = v->pushed;
		v->pushed += a->write;
		list_add(&p->list, v->v, a->write);
	}
	return rc ? rc : p->told ? edges_list(p, po->number) : 0;
}

/*
 * Does the op delete the var?  In a truncated recording one that did not begin may follow; then it is
 * a plain write.
 */
static bool ends_var(const struct play *p, const struct play_op *po)
{
	if (!po->o.ends || p->list.writes != 1 || p->list.reads)
		return false;
	return p->last ? p->last[po->accesses[0].var] == po->number : p->r->ended && !p->r->lost;
}

static int op_push(struct play *p, const struct flow_op *from)
{
	const struct rec_op *o = &from->one->ops[0];
	struct pawl_op d = PAWL_OP_INIT;
	struct play_op *po;
	size_t most = o->naccesses + 2 + 2 * p->r->ntold;
	void *q;
	int rc = 0;

	collect(p);
	window_wait(p);
	if (most > p->list.cap) {
		q = realloc(p->list.v, most * sizeof(p->list.v[0]));
		if (q) {
			p->list.v = q;
			p->list.cap = most;
		}
		rc = q ? 0 : -ENOMEM;
	}
	po = rc ? NULL : op_create(p, from);
	if (!po)
		return file_err(p->err, sizeof(p->err), -ENOMEM, "no memory");
	rc = vars_list(p, po, from->vars);
	if (rc) {
		file_err(p->err, sizeof(p->err), rc, "op %" PRIu32 ": %s", from->number,
			 pawl_error_text());
		op_end(p, po);
		return rc;
	}
	d.arg = po;
	d.reads = p->list.v;
	d.nreads = (unsigned int)p->list.reads;
	d.writes = p->list.v + p->list.cap - p->list.writes;
	d.nwrites = (unsigned int)p->list.writes;
	d.priority = o->priority;
	d.prop = o->prop <= PAWL_NO_SKIP ? o->prop : PAWL_NORMAL;
	d.device.id = o->device_kind == PAWL_CPU ? o->device : 0;
	d.name = o->name;
	if (o->async)
		d.async_fn = async_body;
	else
		d.fn = body;
	if (o->launch && o->nnodes) {
		rc = launch(p, po);
	} else if (ends_var(p, po)) {
		rc = pawl_var_delete(p->e, po->vars[0]->v, body, po);
		po->vars[0]->alive = false;
	} else {
		rc = pawl_push(p->e, &d);
	}
	if (!rc) {
		p->pushed++;
		p->nodes += o->nnodes;
		return 0;
	}
	file_err(p->err, sizeof(p->err), rc, "op %" PRIu32 " (\"%.40s\"): %s", from->number, o->name,
		 pawl_error_text());
	op_end(p, po);
	return rc;
}

static int push(void *ctx, const struct flow_op *from)
{
	struct play *p = ctx;

	return p->rc = op_push(p, from);
}

static void var_gone(void *ctx, struct flow_var *v)
{
	if (v->user)
		var_put(ctx, v->user);
	v->user = NULL;
}

static int engine_for(struct play *p, uint32_t devices)
{
	struct pawl_config c;
	size_t vars = p->r->nvars;
	int rc;

	pawl_config_init(&c);
	c.kind = p->opt->kind;
	if (p->opt->workers >= 0)
		c.workers = p->opt->workers;
	c.cpu_devices = devices;
	if (p->r->ntold)
		vars += p->r->nops;	/* one per op at most: its own, or that of those before it */
	c.max_vars = vars < 1024 ? 1024 : vars < MAX_VARS ? (unsigned int)vars : MAX_VARS;
	if (p->opt->workers <= 0)
		c.window = WINDOW;
	c.name = "replay";
	rc = pawl_engine_create(&c, &p->e);
	return rc ? file_err(p->err, sizeof(p->err), rc, "%s", pawl_error_text()) : 0;
}

static void play_free(struct play *p)
{
	p->e = NULL;
	while (p->ops) {
		p->ops->refs = 1;
		op_end(p, p->ops);
	}
	free(p->list.v);
	free(p->last);
	free(p->told);
	free(p->edges);
	free(p->aside);
}

static int devices_op(void *ctx, const struct flow_op *op)
{
	const struct rec_op *o = &op->one->ops[0];
	uint32_t *devices = ctx;

	if (o->device_kind == PAWL_CPU && o->device >= *devices)
		*devices = o->device + 1u;
	return 0;
}

static void devices_again(void *ctx)
{
	(void)ctx;
}

int replay_check(struct source *s, uint32_t *devices)
{
	static const struct flow_sink sink = { .op = devices_op };

	*devices = 1;
	return source_run(s, &sink, devices, devices_again);
}

int replay_source(struct source *s, uint32_t devices, const struct replay_options *opt,
		  struct replay_result *result)
{
	static const struct flow_sink sink = { .op = push, .gone = var_gone };
	static uint32_t replays;
	struct play p = { .s = s, .r = source_info(s), .opt = opt, .said = ATOMIC_FLAG_INIT,
			  .number = ++replays };
	const struct recording *r = p.r;
	uint64_t begin;
	uint32_t j;
	size_t i;
	int rc = 0, rc2;

	memset(result, 0, sizeof(*result));
	if (!s->flow) {
		p.last = calloc(r->nvars + 1, sizeof(*p.last));
		rc = p.last ? 0 : -ENOMEM;
		for (i = 0; !rc && i < s->n; i++)
			for (j = 0; j < r->ops[s->order[i]].naccesses; j++)
				p.last[r->accesses[r->ops[s->order[i]].access + j].var] = s->order[i];
	}
	if (!rc && r->nedges)
		rc = told_create(&p);
	if (rc)
		file_err(p.err, sizeof(p.err), rc, "no memory for %zu ops", r->nops);
	else
		rc = engine_for(&p, devices);
	if (rc) {
		p.rc = rc;
		goto out;
	}
	begin = now_ns();
	rc = source_run(s, &sink, &p, NULL);
	/* -w N: those threads and no other one, unless the property of an op asks for one. */
	rc2 = pawl_wait(p.e, PAWL_WAIT_ALL | (opt->workers > 0 ? PAWL_WAIT_NO_HELP : 0), 0, -1, NULL);
	if (!rc && rc2)
		rc = file_err(s->err, s->errlen, rc2, "%s", pawl_error_text());
	result->ns = now_ns() - begin;
	collect(&p);
	rc2 = pawl_engine_destroy(p.e);
	if (!rc && rc2)
		rc = file_err(s->err, s->errlen, rc2, "%s", pawl_error_text());
	if (!rc && p.ran != p.pushed)
		wrong(&p, NULL, "%" PRIuFAST64 " bodies ran for %" PRIu64 " ops", p.ran, p.pushed);
	if (!rc && p.bodies != p.nodes)
		wrong(&p, NULL, "%" PRIuFAST64 " bodies of launches ran, not %" PRIu64, p.bodies, p.nodes);
	result->ops = p.ran;
	result->bodies = p.bodies;
	result->accesses = p.checked;
	result->edges = p.edges_checked;
	result->threads = p.threads;
	result->wrong = p.wrong;
	snprintf(result->first, sizeof(result->first), "%s", p.first);
out:
	if (p.rc)
		file_err(s->err, s->errlen, rc, "%s", p.err);
	play_free(&p);
	return rc;
}

int replay_run(const struct recording *r, const uint32_t *order, size_t n,
	       const struct replay_options *opt, struct replay_result *result, char *err,
	       size_t errlen)
{
	struct source s;
	uint32_t devices;
	int rc;

	memset(result, 0, sizeof(*result));
	rc = source_of(&s, r, order, n, err, errlen);
	if (!rc)
		rc = replay_check(&s, &devices);
	if (!rc)
		rc = replay_source(&s, devices, opt, result);
	source_close(&s);
	return rc;
}
