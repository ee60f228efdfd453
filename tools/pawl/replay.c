// SPDX-License-Identifier: Apache-2.0
/*
 * pawl replay: push a recorded workload again, and check that its order is kept.
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
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd.h"
#include "replay.h"
#include "slurp.h"

#define MAX_VARS (1u << 26)
#define WRITER (1u << 24)

struct play_var {
	pawl_var_t v;
	bool alive;
	uint32_t last;		/* the last op on it */
	uint64_t writes;	/* accessed only by holders of the var */
	atomic_uint holders;	/* readers, plus WRITER for a writer */
};

struct play_op {
	struct play *p;
	uint32_t op;
	uint32_t seen;		/* runs */
	size_t edge, nedges;	/* in p->edges */
	/*
	 * Edges that no access implies need vars: one that an op writes and those behind it read, or
	 * one that those before an op read and it writes, if many are before it.
	 */
	pawl_var_t out, in;
	bool many;
	atomic_bool over;
};

struct play_node {
	struct play *p;
	const struct rec_node *n;
	atomic_bool begun;
};

/* A graph that replays launches of the same form. */
struct play_graph {
	const struct rec_op *like;	/* NULL: unused */
	pawl_graph_t g;
};

#define GRAPHS 16u
#define MANY 1024u		/* ops with a var of their own */

struct play {
	const struct recording *r;
	const struct replay_options *opt;
	struct play_var *vars;
	struct play_op *ops;	/* by number in the recording */
	struct play_node *nodes;	/* as in the recording */
	struct play_graph graphs[GRAPHS];
	unsigned int next_graph;
	uint64_t *expect;	/* by access */
	const struct rec_edge **edges;	/* from the ops that must be complete before, op by op */
	const struct rec_edge **aside;	/* to ops with many before them, from op to op */
	size_t *first_aside;
	uint32_t number;	/* of this replay in the process */
	atomic_uint threads;	/* that ran bodies */
	atomic_uint_fast64_t ran, bodies, checked, edges_checked, wrong;
	atomic_flag told;
	char first[160];
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void wrong(struct play *p, uint32_t op, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void wrong(struct play *p, uint32_t op, const char *fmt, ...)
{
	char text[96];
	va_list ap;

	atomic_fetch_add(&p->wrong, 1);
	if (atomic_flag_test_and_set(&p->told))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(p->first, sizeof(p->first), "op %" PRIu32 " (\"%.40s\"): %s", op,
		 p->r->ops[op].name, text);
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

static int body(struct pawl_run *run, void *arg)
{
	struct play_op *po = arg;
	struct play *p = po->p;
	const struct rec_op *o = &p->r->ops[po->op];
	uint64_t checked = 0;
	uint32_t i, was;
	size_t k;

	(void)run;
	thread_count(p);
	for (i = 0; i < o->naccesses; i++) {
		const struct rec_access *a = &p->r->accesses[o->access + i];
		struct play_var *v = &p->vars[a->var];

		was = atomic_fetch_add_explicit(&v->holders, a->write ? WRITER : 1,
						memory_order_relaxed);
		if (was >= (a->write ? 1 : WRITER))
			wrong(p, po->op, "var %" PRIu32 " is held by another", a->var);
		checked++;
		if (v->writes != p->expect[o->access + i])
			wrong(p, po->op,
			      "var %" PRIu32 " has version %" PRIu64 ", not %" PRIu64, a->var,
			      v->writes, p->expect[o->access + i]);
	}
	for (k = 0; k < po->nedges; k++)
		if (!atomic_load_explicit(&p->ops[p->edges[po->edge + k]->before].over,
					  memory_order_relaxed))
			wrong(p, po->op, "op %" PRIu32 " is not over",
			      p->edges[po->edge + k]->before);
	if (po->seen++)
		wrong(p, po->op, "runs again");
	if (p->opt->speed > 0 && o->ended && !o->launch)
		spend(p->opt, o->end - o->begin);
	for (i = 0; i < o->naccesses; i++) {
		const struct rec_access *a = &p->r->accesses[o->access + i];
		struct play_var *v = &p->vars[a->var];

		if (a->write)
			v->writes++;
		atomic_fetch_sub_explicit(&v->holders, a->write ? WRITER : 1, memory_order_relaxed);
	}
	atomic_store_explicit(&po->over, true, memory_order_relaxed);
	atomic_fetch_add_explicit(&p->ran, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&p->checked, checked, memory_order_relaxed);
	atomic_fetch_add_explicit(&p->edges_checked, po->nedges, memory_order_relaxed);
	return 0;
}

/* A body of a launch: those that wait for it have not begun. */
static int node_body(struct pawl_run *run, void *arg)
{
	struct play_node *pn = arg;
	struct play *p = pn->p;
	const struct rec_node *n = pn->n, *to;
	const struct rec_op *o = &p->r->ops[n->op];
	uint32_t k;

	(void)run;
	thread_count(p);
	if (atomic_exchange_explicit(&pn->begun, true, memory_order_relaxed))
		wrong(p, n->op, "body %" PRIu32 " runs again", n->number);
	if (p->opt->speed > 0 && n->ended && !n->skipped)
		spend(p->opt, n->end - n->begin);
	for (k = 0; k < n->nsucc; k++) {
		to = rec_node_find(p->r, o, p->r->succ[n->succ + k]);
		if (to && to > n && atomic_load_explicit(&p->nodes[to - p->r->nodes].begun,
							 memory_order_relaxed))
			wrong(p, n->op, "body %" PRIu32 " did not wait for %" PRIu32, to->number,
			      n->number);
	}
	atomic_fetch_add_explicit(&p->bodies, 1, memory_order_relaxed);
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

/* Compute the version that each access must see in the serial order. */
static int expect(struct play *p, const uint32_t *order, size_t n, char *err, size_t errlen)
{
	const struct recording *r = p->r;
	uint64_t *writes = calloc(r->nvars + 1, sizeof(*writes));
	size_t *count = calloc(r->nops + 1, sizeof(*count)), i;
	uint32_t j;

	if (!writes || !count) {
		free(writes);
		free(count);
		return file_err(err, errlen, -ENOMEM, "no memory");
	}
	for (i = 0; i < n; i++) {
		const struct rec_op *o = &r->ops[order[i]];

		for (j = 0; j < o->naccesses; j++) {
			const struct rec_access *a = &r->accesses[o->access + j];

			p->vars[a->var].last = order[i];
			p->expect[o->access + j] = writes[a->var];
			writes[a->var] += a->write;
		}
	}
	for (i = 0; i < r->nedges; i++)
		p->ops[r->edges[i].after].nedges++;
	for (i = 1; i < r->nops; i++)
		p->ops[i].edge = p->ops[i - 1].edge + p->ops[i - 1].nedges;
	for (i = 0; i < r->nedges; i++) {
		uint32_t to = r->edges[i].after;

		p->edges[p->ops[to].edge + count[to]++] = &r->edges[i];
		p->ops[to].many |= told(p, &r->edges[i]) && count[to] > MANY;
	}
	/* 1: the op needs such a var, which it gets when it is pushed */
	for (i = 0; i < r->nedges; i++)
		if (told(p, &r->edges[i]) && !p->ops[r->edges[i].after].many)
			p->ops[r->edges[i].before].out.h = 1;
	for (i = 0; i < r->nedges; i++)
		if (told(p, &r->edges[i]) && p->ops[r->edges[i].after].many)
			p->first_aside[r->edges[i].before + 1]++;
	for (i = 1; i <= r->nops; i++)
		p->first_aside[i] += p->first_aside[i - 1];
	memset(count, 0, r->nops * sizeof(*count));
	for (i = 0; i < r->nedges; i++) {
		uint32_t from = r->edges[i].before;

		if (told(p, &r->edges[i]) && p->ops[r->edges[i].after].many)
			p->aside[p->first_aside[from] + count[from]++] = &r->edges[i];
	}
	free(writes);
	free(count);
	return 0;
}

/* The accesses of an op that is pushed. */
struct list {
	pawl_var_t *v;
	size_t cap;
	size_t reads, writes;	/* from the front, and from the back */
};

static void list_add(struct list *l, pawl_var_t v, bool write)
{
	if (write)
		l->v[l->cap - ++l->writes] = v;
	else
		l->v[l->reads++] = v;
}

/* The vars of edges that no access implies.  Each edge is said once. */
static int edges_list(struct play *p, struct pawl_engine *e, uint32_t op, struct list *l)
{
	struct play_op *po = &p->ops[op], *other;
	bool out = false;
	size_t k;
	int rc = 0;

	for (k = 0; k < po->nedges && !po->many; k++)
		if (told(p, p->edges[po->edge + k]))
			list_add(l, p->ops[p->edges[po->edge + k]->before].out, false);
	if (po->many)
		list_add(l, po->in, true);
	for (k = p->first_aside[op]; k < p->first_aside[op + 1] && !rc; k++) {
		other = &p->ops[p->aside[k]->after];
		if (!other->in.h)
			rc = pawl_var_create(e, &other->in);
		list_add(l, other->in, false);
	}
	out = po->out.h == 1;
	if (out && !rc)
		rc = pawl_var_create(e, &po->out);
	if (out)
		list_add(l, po->out, true);
	return rc;
}

static bool same_form(const struct recording *r, const struct rec_op *a, const struct rec_op *b)
{
	uint32_t i;

	if (a->naccesses != b->naccesses || a->nnodes != b->nnodes || a->prop != b->prop)
		return false;
	for (i = 0; i < a->naccesses; i++)
		if (r->accesses[a->access + i].write != r->accesses[b->access + i].write)
			return false;
	for (i = 0; i < a->nnodes; i++) {
		const struct rec_node *x = &r->nodes[a->node + i], *y = &r->nodes[b->node + i];

		if (x->number != y->number || x->nsucc != y->nsucc || x->async != y->async ||
		    (x->nsucc && memcmp(&r->succ[x->succ], &r->succ[y->succ],
					x->nsucc * sizeof(r->succ[0]))))
			return false;
	}
	return true;
}

/*
 * A graph with the form of the launch.  Its slots: first the vars of the launch, which one op more
 * names, whose body makes the checks; then one per body, which that body writes and those that wait
 * for it read.
 */
static int graph_create(struct play *p, struct pawl_engine *e, const struct rec_op *o,
			pawl_graph_t *g)
{
	const struct recording *r = p->r;
	uint32_t n = o->nnodes, i, k, reads = 0, writes = 0;
	struct pawl_op *ops = calloc(n + 1, sizeof(*ops));
	pawl_var_t *vars = calloc(o->naccesses + 1, sizeof(*vars)), *slots;
	pawl_var_t **in = calloc(n + 1, sizeof(*in));
	size_t edges = 0;
	int rc = -ENOMEM;

	for (i = 0; i < n; i++)
		edges += r->nodes[o->node + i].nsucc;
	slots = calloc(n + edges + 1, sizeof(*slots));
	if (!ops || !vars || !in || !slots)
		goto out;
	for (i = 0; i < o->naccesses; i++) {
		if (r->accesses[o->access + i].write)
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
		const struct rec_node *from = &r->nodes[o->node + i % n];

		if (i == n)
			for (k = 0, edges = n; k < n; edges += ops[k].nreads, ops[k].nreads = 0, k++)
				ops[k].reads = in[k] = &slots[edges];
		for (k = 0; k < from->nsucc; k++) {
			const struct rec_node *to = rec_node_find(r, o, r->succ[from->succ + k]);
			size_t at;

			if (!to || to <= from)
				continue;
			at = (size_t)(to - &r->nodes[o->node]);
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
		ops[i].name = r->nodes[o->node + i].name;
		if (r->nodes[o->node + i].async)
			ops[i].async_fn = async_node;
		else
			ops[i].fn = node_body;
	}
	rc = pawl_graph_create(e, ops, n + 1, 0, g);
out:
	free(ops);
	free(vars);
	free(slots);
	free(in);
	return rc;
}

/* Push a launch whose vars are in l. */
static int launch(struct play *p, struct pawl_engine *e, uint32_t op, const struct list *l)
{
	const struct rec_op *o = &p->r->ops[op];
	struct pawl_launch how = { .size = sizeof(how), .priority = o->priority };
	pawl_var_t *vars = calloc(o->naccesses + o->nnodes + 1, sizeof(*vars));
	void **args = calloc(o->nnodes + 1, sizeof(*args));
	struct play_graph *g = NULL;
	uint32_t i, reads = 0, writes = 0;
	int rc = vars && args ? 0 : -ENOMEM;

	for (i = 0; i < GRAPHS && !g; i++)
		if (p->graphs[i].like && same_form(p->r, p->graphs[i].like, o))
			g = &p->graphs[i];
	if (!rc && !g) {
		g = &p->graphs[p->next_graph++ % GRAPHS];
		if (g->like)
			rc = pawl_graph_delete(e, g->g);
		g->like = NULL;
		if (!rc)
			rc = graph_create(p, e, o, &g->g);
		if (!rc)
			g->like = o;
	}
	for (i = 0; !rc && i < o->naccesses; i++)
		vars[i] = p->r->accesses[o->access + i].write ? l->v[l->cap - ++writes] :
			  l->v[reads++];
	for (i = 0; !rc && i < o->nnodes; i++)
		args[i] = &p->nodes[o->node + i];
	if (!rc) {
		args[o->nnodes] = &p->ops[op];
		how.vars = vars;
		how.nvars = o->naccesses + o->nnodes;
		how.args = args;
		how.nargs = o->nnodes + 1;
		how.device.id = o->device_kind == PAWL_CPU ? o->device : 0;
		rc = pawl_graph_push(e, g->g, &how);
	}
	free(vars);
	free(args);
	return rc;
}

static int push(struct play *p, struct pawl_engine *e, uint32_t op, struct list *l, char *err,
		size_t errlen)
{
	const struct rec_op *o = &p->r->ops[op];
	struct pawl_op d = PAWL_OP_INIT;
	struct play_var *v = NULL;
	uint32_t i;
	int rc = 0;

	l->reads = l->writes = 0;
	for (i = 0; i < o->naccesses && !rc; i++) {
		const struct rec_access *a = &p->r->accesses[o->access + i];

		v = &p->vars[a->var];
		if (!v->alive)
			rc = pawl_var_create(e, &v->v);
		v->alive = true;
		list_add(l, v->v, a->write);
	}
	if (!rc && p->r->ntold)
		rc = edges_list(p, e, op, l);
	if (rc)
		return file_err(err, errlen, rc, "op %" PRIu32 ": %s", op, pawl_error_text());
	d.arg = &p->ops[op];
	d.reads = l->v;
	d.nreads = (unsigned int)l->reads;
	d.writes = l->v + l->cap - l->writes;
	d.nwrites = (unsigned int)l->writes;
	d.priority = o->priority;
	d.prop = o->prop <= PAWL_NO_SKIP ? o->prop : PAWL_NORMAL;
	d.device.id = o->device_kind == PAWL_CPU ? o->device : 0;
	d.name = o->name;
	if (o->async)
		d.async_fn = async_body;
	else
		d.fn = body;
	/* In a truncated file an op that did not begin may follow; then it is a plain write. */
	if (o->launch && o->nnodes)
		rc = launch(p, e, op, l);
	else if (o->ends && l->writes == 1 && !l->reads && v->last == op)
		rc = pawl_var_delete(e, v->v, body, d.arg);
	else
		rc = pawl_push(e, &d);
	return rc ? file_err(err, errlen, rc, "op %" PRIu32 " (\"%.40s\"): %s", op, o->name,
			     pawl_error_text()) : 0;
}

static int engine_for(const struct recording *r, const struct replay_options *opt,
		      struct pawl_engine **e, char *err, size_t errlen)
{
	struct pawl_config c;
	uint32_t devices = 1;
	size_t i, vars = r->nvars;
	int rc;

	for (i = 0; i < r->nops; i++)
		if (r->ops[i].device_kind == PAWL_CPU && r->ops[i].device >= devices)
			devices = r->ops[i].device + 1u;
	pawl_config_init(&c);
	c.kind = opt->kind;
	if (opt->workers >= 0)
		c.workers = opt->workers;
	c.cpu_devices = devices;
	if (r->ntold)
		vars += r->nops;	/* one per op at most: its own, or that of those before it */
	c.max_vars = vars < 1024 ? 1024 : vars < MAX_VARS ? (unsigned int)vars : MAX_VARS;
	c.name = "replay";
	rc = pawl_engine_create(&c, e);
	return rc ? file_err(err, errlen, rc, "%s", pawl_error_text()) : 0;
}

int replay_run(const struct recording *r, const uint32_t *order, size_t n,
	       const struct replay_options *opt, struct replay_result *result, char *err,
	       size_t errlen)
{
	static uint32_t replays;
	struct play p = { .r = r, .opt = opt, .told = ATOMIC_FLAG_INIT, .number = ++replays };
	struct pawl_engine *e = NULL;
	struct list list = { 0 };
	uint64_t begin;
	size_t i;
	int rc, rc2;

	memset(result, 0, sizeof(*result));
	for (i = 0; i < r->nops; i++)
		if (r->ops[i].naccesses > list.cap)
			list.cap = r->ops[i].naccesses;
	list.cap += 2 + 2 * r->ntold;
	p.vars = calloc(r->nvars + 1, sizeof(*p.vars));
	p.ops = calloc(r->nops + 1, sizeof(*p.ops));
	p.nodes = calloc(r->nnodes + 1, sizeof(*p.nodes));
	p.expect = calloc(r->naccesses + 1, sizeof(*p.expect));
	p.edges = calloc(r->nedges + 1, sizeof(*p.edges));
	p.aside = calloc(r->nedges + 1, sizeof(*p.aside));
	p.first_aside = calloc(r->nops + 2, sizeof(*p.first_aside));
	list.v = calloc(list.cap, sizeof(*list.v));
	if (!p.vars || !p.ops || !p.nodes || !p.expect || !p.edges || !p.aside || !p.first_aside || !list.v) {
		rc = file_err(err, errlen, -ENOMEM, "no memory for %zu ops", r->nops);
		goto out;
	}
	for (i = 0; i < r->nops; i++) {
		p.ops[i].p = &p;
		p.ops[i].op = (uint32_t)i;
	}
	for (i = 0; i < r->nnodes; i++) {
		p.nodes[i].p = &p;
		p.nodes[i].n = &r->nodes[i];
	}
	rc = expect(&p, order, n, err, errlen);
	if (!rc)
		rc = engine_for(r, opt, &e, err, errlen);
	if (rc)
		goto out;
	begin = now_ns();
	for (i = 0; i < n && !rc; i++)
		rc = push(&p, e, order[i], &list, err, errlen);
	/* -w N: those threads and no other one, unless the property of an op asks for one. */
	rc2 = pawl_wait(e, PAWL_WAIT_ALL | (opt->workers > 0 ? PAWL_WAIT_NO_HELP : 0), 0, -1, NULL);
	if (!rc && rc2)
		rc = file_err(err, errlen, rc2, "%s", pawl_error_text());
	result->ns = now_ns() - begin;
	rc2 = pawl_engine_destroy(e);
	if (!rc && rc2)
		rc = file_err(err, errlen, rc2, "%s", pawl_error_text());
	if (!rc && p.ran != n)
		wrong(&p, 0, "%" PRIuFAST64 " bodies ran for %zu ops", p.ran, n);
	if (!rc && p.bodies != r->nnodes)
		wrong(&p, 0, "%" PRIuFAST64 " bodies of launches ran, not %zu", p.bodies, r->nnodes);
	result->ops = p.ran;
	result->bodies = p.bodies;
	result->accesses = p.checked;
	result->edges = p.edges_checked;
	result->threads = p.threads;
	result->wrong = p.wrong;
	snprintf(result->first, sizeof(result->first), "%s", p.first);
out:
	free(p.vars);
	free(p.ops);
	free(p.nodes);
	free(p.expect);
	free(p.edges);
	free(p.aside);
	free(p.first_aside);
	free(list.v);
	return rc;
}

/* --- the command --- */

static const char help[] =
"Usage: pawl replay [OPTION]... FILE\n"
"Push a recorded workload on an engine, in the serial order of the recording, and check\n"
"that every body finds its vars in the same versions. FILE: a recording (PAWL_RECORD), a\n"
"WfFormat instance, or a trace of PyTorch or Chrome; the last two may be compressed.\n\n"
"  -w, --workers=N    N threads run the bodies, with 0 the one that pushes (default: as many\n"
"                     as processors, among them the one that pushes)\n"
"  -e, --engine=KIND  per-device (default), pooled or naive\n"
"  -s, --speed=X      bodies take their recorded time divided by X, as time on a processor;\n"
"                     0: none (default)\n"
"      --sleep        bodies sleep for that time instead of keeping a processor busy\n"
"  -r, --repeat=N     replay N times (1)\n"
"  -h, --help         print this\n";

enum { OPT_SLEEP = 256 };

static const struct option options[] = {
	{ "workers", required_argument, NULL, 'w' },
	{ "engine", required_argument, NULL, 'e' },
	{ "speed", required_argument, NULL, 's' },
	{ "sleep", no_argument, NULL, OPT_SLEEP },
	{ "repeat", required_argument, NULL, 'r' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static int number(const char *self, const char *name, double min, double max, double *out)
{
	char *end;

	errno = 0;
	*out = strtod(optarg, &end);
	if (end == optarg || *end || errno || !(*out >= min && *out <= max)) {
		fprintf(stderr, "%s: %s: '%s' is not a number in %g..%g\n", self, name, optarg, min,
			max);
		return -1;
	}
	return 0;
}

static int replay_times(const char *self, const char *path, const struct replay_options *opt,
			unsigned int times)
{
	struct replay_result res;
	struct recording r;
	uint32_t *order;
	char err[256];
	size_t n;
	int rc = 0;

	if (workload_open(path, &r, &order, &n, err, sizeof(err))) {
		fprintf(stderr, "%s: %s\n", self, err);
		return STATUS_FAILED;
	}
	if (r.covered > 0 && r.covered < .9)
		fprintf(stderr, "%s: %s: warning: the ops cover %.1f %% of the time of the trace\n", self,
			path, r.covered * 100);
	for (; !rc && times; times--) {
		rc = replay_run(&r, order, n, opt, &res, err, sizeof(err));
		if (rc)
			break;
		printf("%s: %" PRIu64 " ops, %zu vars, %" PRIu64 " accesses", r.format, res.ops,
		       r.nvars, res.accesses);
		if (r.nnodes)
			printf(", %" PRIu64 " bodies of launches", res.bodies);
		if (r.nedges)
			printf(", %" PRIu64 " parents", res.edges);
		printf(" in %.3f ms on %u ", (double)res.ns / 1e6, res.threads);
		if (opt->workers > 0)
			printf("of %d ", opt->workers);
		printf("thread%s: ", res.threads == 1 && opt->workers <= 1 ? "" : "s");
		if (res.wrong) {
			printf("%" PRIu64 " out of order; first: %s\n", res.wrong, res.first);
			rc = 1;
		} else {
			printf("order kept\n");
		}
	}
	if (rc < 0)
		fprintf(stderr, "%s: %s: %s\n", self, path, err);
	free(order);
	rec_free(&r);
	return rc ? STATUS_FAILED : STATUS_OK;
}

int cmd_replay(int argc, char **argv)
{
	static const char *const kinds[] = { "per-device", "pooled", "naive" };
	struct replay_options o = { .workers = -1 };
	double v, times = 1;
	int c, bad = 0;

	optind = 1;
	while (!bad && (c = getopt_long(argc, argv, "w:e:s:r:h", options, NULL)) != -1) {
		switch (c) {
		case 'w':
			bad = number(argv[0], "--workers", 0, 1024, &v);
			o.workers = (int)v;
			break;
		case 'e':
			for (o.kind = 0; o.kind < 3 && strcmp(optarg, kinds[o.kind]); o.kind++)
				;
			bad = o.kind == 3;
			if (bad)
				fprintf(stderr, "%s: --engine: '%s' is not per-device, pooled or naive\n",
					argv[0], optarg);
			break;
		case 's':
			bad = number(argv[0], "--speed", 0, 1e9, &o.speed);
			break;
		case OPT_SLEEP:
			o.sleep = true;
			break;
		case 'r':
			bad = number(argv[0], "--repeat", 1, 1e6, &times);
			break;
		case 'h':
			fputs(help, stdout);
			return STATUS_OK;
		default:
			bad = 1;
		}
	}
	if (!bad && optind != argc - 1) {
		fprintf(stderr, "%s: %s\n", argv[0], optind == argc ? "which file?" : "one file");
		bad = 1;
	}
	if (bad) {
		fprintf(stderr, "Try '%s --help'.\n", argv[0]);
		return STATUS_USAGE;
	}
	return replay_times(argv[0], argv[optind], &o, (unsigned int)times);
}
