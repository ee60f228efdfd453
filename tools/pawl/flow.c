// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a large recording op by op, in its serial order.
 *
 * The events of all threads are merged by their times.  An op is given out when it has ended, and
 * when all ops that precede it were given out: those before it in its thread, the body that pushed
 * it, and those with earlier positions on its vars.  Of several such ops the one that was pushed
 * first is next, as in rec_order().
 *
 * Clocks of threads may differ a little, and a processor may read its clock early.  So an op is not
 * given out until the merge is SLACK behind its end; what contradicts the order nevertheless is
 * left to rec_order(), which does not depend on times.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <core/record_format.h>

#include "flow_events.h"
#include "flow_vars.h"
#include "slurp.h"

#define SLACK		1000000u	/* ns */
#define INDEX_MAX	(1u << 24)	/* of an op: at most so many are in flight */

uint64_t flow_min = 4u << 20;

/* An op from its first event until it is given out, and as long as others refer to it. */
struct fop {
	struct fop *next, **prev;	/* in flight with the same index; *prev is this one */
	struct fop *later;		/* pushed by the same thread */
	struct rec_op o;
	uint32_t number, refs;
	bool known;			/* its push was read */
	bool out;			/* given out */
	bool parent_node, outer_node;	/* they are launches, by a body of theirs */
	struct fop *parent;		/* body in which it was pushed */
	struct fop *outer;		/* body in which it began */
	uint32_t events;		/* before the push */
	struct rec_access *accesses;
	struct flow_var **vars;
	uint64_t *versions;		/* of a begin before the push: nversions */
	uint64_t nversions;
	struct rec_node *nodes;
	uint32_t *succ;
	size_t nnodes, capnodes, nsucc, capsucc;
};

struct line {				/* of events: a thread in an engine */
	struct line_events in;
	uint32_t nops, first_op;
	const char **names;
	size_t nnames, capnames;
	struct body {
		struct fop *op;
		bool node;
	} *stack;
	size_t depth, capstack;
	struct rec_wait *waits;		/* pending */
	size_t nwaits, capwaits;
	struct fop *head, *tail;	/* pushed, not given out */
	struct fop *others;		/* at the end: those that did not begin */
};

struct name {
	struct name *next;
	char text[];
};

struct flow {
	struct reader rd;
	struct recording r, one;
	int fd;
	struct line *lines;
	struct line **heap;		/* by the time of their event */
	size_t nheap;
	struct flow_vars vars;
	struct name *names[256];
	struct indexes {		/* of an engine: by the index of ops */
		struct slot {
			struct fop *ops;	/* in flight */
			uint32_t gen;		/* that of the last push, + 1 */
		} *slots;
		uint32_t n;
	} *indexes;
	struct fop *blocker;		/* nothing is given out before it is */
	bool end;
	uint64_t now, place, undone, writes;
	const struct flow_sink *sink;
	void *ctx;
};

static int grow(struct flow *f, void *p, size_t n, size_t *cap, size_t size)
{
	return reader_grow(&f->rd, p, n, cap, size);
}

static uint64_t ns_of(const struct flow *f, uint64_t cycles)
{
	const struct reader *rd = &f->rd;
	uint64_t d = cycles - rd->cycles0;

	if (cycles < rd->cycles0)
		return 0;
	if (rd->cycles1 <= rd->cycles0 || rd->ns1 <= rd->ns0)
		return d;
	return (uint64_t)((unsigned __int128)d * (rd->ns1 - rd->ns0) / (rd->cycles1 - rd->cycles0));
}

/* --- ops --- */

/* The ops in flight with this index, and its last generation. */
static int slot_of(struct flow *f, uint32_t engine, uint32_t index, struct slot **out)
{
	struct indexes *x = &f->indexes[engine];
	uint32_t size = index < 512 ? 1024 : 2 * index, i;
	struct fop *o;
	void *q;

	if (index >= INDEX_MAX)
		return DIFFERS;
	if (index >= x->n) {
		q = realloc(x->slots, size * sizeof(*x->slots));
		if (!q)
			return reader_no_memory(&f->rd);
		x->slots = q;
		memset(x->slots + x->n, 0, (size - x->n) * sizeof(*x->slots));
		for (i = 0; i < x->n; i++) {
			o = x->slots[i].ops;
			if (o)
				o->prev = &x->slots[i].ops;
		}
		x->n = size;
	}
	*out = &x->slots[index];
	return 0;
}

static struct fop *op_find(const struct slot *s, uint32_t gen)
{
	struct fop *o = s->ops;

	while (o && o->o.gen != gen)
		o = o->next;
	return o;
}

static void op_drop(struct fop *o)
{
	struct fop *next;

	for (; o && !--o->refs; o = next) {
		next = o->outer;
		op_drop(o->parent);
		free(o->accesses);
		free(o->vars);
		free(o->versions);
		free(o->nodes);
		free(o->succ);
		free(o);
	}
}

static struct fop *op_ref(struct fop *o)
{
	o->refs++;
	return o;
}

/* The op of an event; a new one if it is not in flight. */
static int op_of(struct flow *f, uint32_t engine, uint32_t index, uint32_t gen, struct fop **out)
{
	struct slot *s;
	struct fop *o;
	int rc = slot_of(f, engine, index, &s);

	if (rc)
		return rc;
	o = *out = op_find(s, gen);
	if (o)
		return 0;
	/* It was pushed, and given out or refused. */
	if (s->gen > gen)
		return DIFFERS;
	o = *out = calloc(1, sizeof(*o));
	if (!o)
		return reader_no_memory(&f->rd);
	o->refs = 1;
	o->o = (struct rec_op){ .engine = engine, .index = index, .gen = gen, .name = "",
				.runner = REC_NONE, .parent = REC_NONE };
	o->next = s->ops;
	o->prev = &s->ops;
	if (o->next)
		o->next->prev = &o->next;
	s->ops = o;
	return 0;
}

static void op_remove(struct fop *o)
{
	uint32_t j;

	*o->prev = o->next;
	if (o->next)
		o->next->prev = o->prev;
	for (j = 0; o->vars && j < o->o.naccesses; j++)
		o->vars[j]->refs--;
	op_drop(o);
}

/* --- what events do --- */

static const char *name_of(struct flow *f, const unsigned char *text, size_t len)
{
	uint32_t h = 5381;
	struct name *n, **list;
	size_t i;

	for (i = 0; i < len; i++)
		h = h * 33 ^ text[i];
	list = &f->names[(h ^ h >> 8) & 255];
	for (n = *list; n; n = n->next)
		if (!strncmp(n->text, (const char *)text, len) && !n->text[len])
			return n->text;
	n = malloc(sizeof(*n) + len + 1);
	if (!n)
		return NULL;
	memcpy(n->text, text, len);
	n->text[len] = 0;
	n->next = *list;
	*list = n;
	return n->text;
}

static int on_name(struct flow *f, struct line *l, const struct event *e)
{
	int rc = grow(f, &l->names, l->nnames, &l->capnames, sizeof(*l->names));

	if (rc)
		return rc;
	l->names[l->nnames] = name_of(f, e->list, (size_t)e->n);
	return l->names[l->nnames++] ? 0 : reader_no_memory(&f->rd);
}

/* Drop bodies from the stack that turned out to be none of this thread, or have ended. */
static struct body *stack_top(struct line *l)
{
	struct body *b;

	for (; l->depth; op_drop(b->op)) {
		b = &l->stack[l->depth - 1];
		if (b->node || !(b->op->o.launch || b->op->o.ended || b->op->o.async))
			return b;
		l->depth--;
	}
	return NULL;
}

static int stack_push(struct flow *f, struct line *l, struct fop *o, bool node)
{
	int rc = grow(f, &l->stack, l->depth, &l->capstack, sizeof(*l->stack));

	if (!rc)
		l->stack[l->depth++] = (struct body){ op_ref(o), node };
	return rc;
}

/* A body of this thread ended, and with it what is above, which began in a wait of it. */
static int stack_pop(struct flow *f, struct line *l, struct fop *o, bool node)
{
	size_t i = l->depth;

	while (i && (l->stack[i - 1].op != o || l->stack[i - 1].node != node))
		i--;
	if (!i && reader_missed(&f->rd, l->depth))
		return DIFFERS;
	while (i && l->depth >= i)
		op_drop(l->stack[--l->depth].op);
	return 0;
}

/* The op has its accesses and their versions. */
static int positions(struct fop *o)
{
	uint32_t j;
	int rc = 0;

	if (o->nversions != o->o.naccesses)
		return DIFFERS;
	for (j = 0; !rc && j < o->o.naccesses; j++) {
		struct rec_access *a = &o->accesses[j];

		a->placed = o->versions[j];
		a->version = a->placed ? o->versions[j] - 1 : 0;
		if (a->placed)
			rc = flow_slot_add(o->vars[j], a->version, a->write);
	}
	free(o->versions);
	o->versions = NULL;
	return rc;
}

static int on_push(struct flow *f, struct line *l, const struct event *e)
{
	struct event_in in = { e->list, l->in.buf + l->in.n, false };
	uint64_t var = 0, v, i;
	struct slot *slot;
	struct body *b;
	struct fop *o;
	int rc;

	rc = op_of(f, l->in.s->engine, e->index, e->gen, &o);
	if (rc)
		return rc;
	slot = &f->indexes[l->in.s->engine].slots[e->index];
	if (o->known || e->name > l->nnames || slot->gen > e->gen || e->gen == UINT32_MAX ||
	    l->nops == REC_NONE - 1 || f->r.nops == REC_NONE - 1)
		return DIFFERS;
	slot->gen = e->gen + 1;
	o->known = true;
	o->number = l->first_op + l->nops++;
	f->r.nops++;
	o->o.thread = l->in.s->thread;
	o->o.push = ns_of(f, e->time);
	o->o.name = e->name ? l->names[e->name - 1] : "";
	o->o.priority = (int32_t)e->prio;
	o->o.prop = (uint16_t)(e->prop & ~(unsigned int)REC_PROP_ENDS);
	o->o.ends = e->prop & REC_PROP_ENDS;
	o->o.device_kind = (uint16_t)e->device_kind;
	o->o.device = (uint16_t)e->device;
	o->o.async = e->kind & REC_PUSH_ASYNC;
	o->o.more = e->kind & REC_PUSH_MORE;
	o->o.empty = e->kind & REC_PUSH_EMPTY;
	o->accesses = calloc(e->n + 1, sizeof(*o->accesses));
	o->vars = calloc(e->n + 1, sizeof(struct flow_var *));
	if (!o->accesses || !o->vars)
		return reader_no_memory(&f->rd);
	for (i = 0; i < e->n; i++) {
		v = event_number(&in);
		var += v >> 1;
		if (i && !(v >> 1))
			return DIFFERS;
		rc = flow_var_of(&f->vars, l->in.s->engine, var, event_number(&in), &o->vars[i]);
		if (rc)
			return rc;
		o->accesses[i].write = v & 1;
		o->accesses[i].var = o->vars[i]->number;
		o->vars[i]->refs++;
		o->o.naccesses++;
		f->writes += v & 1;
	}
	f->r.naccesses += e->n;
	b = stack_top(l);
	if (b) {
		o->parent = op_ref(b->op);
		o->parent_node = b->node;
	}
	if (l->head)
		l->tail->later = op_ref(o);
	else
		l->head = op_ref(o);
	l->tail = o;
	return o->o.begun ? positions(o) : 0;
}

static int on_undo(struct flow *f, struct line *l, const struct event *e)
{
	struct fop *o, *prev = NULL, *k;
	struct slot *slot;
	int rc = slot_of(f, l->in.s->engine, e->index, &slot);

	if (rc)
		return rc;
	o = op_find(slot, e->gen);
	if (!o) {
		f->r.foreign++;
		return slot->gen > e->gen ? DIFFERS : 0;
	}
	if (!o->known || o->o.begun || o->o.ended || o->o.launch || o->o.thread != l->in.s->thread)
		return DIFFERS;
	for (k = l->head; k && k != o; k = k->later)
		prev = k;
	if (!k)
		return DIFFERS;
	*(prev ? &prev->later : &l->head) = o->later;
	if (l->tail == o)
		l->tail = prev;
	o->later = NULL;
	if (f->blocker == o)
		f->blocker = NULL;
	f->undone++;
	op_drop(o);
	op_remove(o);
	return 0;
}

static int on_node(struct flow *f, struct line *l, const struct event *e, struct fop *o)
{
	struct event_in in = { e->list, l->in.buf + l->in.n, false };
	bool end = (e->kind & REC_KIND) == REC_END;
	struct rec_node *n;
	uint64_t i;
	int rc;

	if (e->number > UINT32_MAX || e->name > l->nnames)
		return DIFFERS;
	rc = grow(f, &o->nodes, o->nnodes, &o->capnodes, sizeof(*o->nodes));
	if (rc)
		return rc;
	o->o.launch = true;
	n = &o->nodes[o->nnodes++];
	*n = (struct rec_node){ .number = (uint32_t)e->number, .runner = l->in.s->thread, .begun = !end,
				.ended = end, .status = (int32_t)e->status, .succ = o->nsucc,
				.nsucc = (uint32_t)e->n, .name = "" };
	n->begin = n->end = ns_of(f, e->time);
	n->async = !end && e->kind & REC_BEGIN_ASYNC;
	n->skipped = !end && e->kind & REC_BEGIN_SKIPPED;
	if (e->name)
		n->name = l->names[e->name - 1];
	for (i = 0; i < e->n; i++) {
		rc = grow(f, &o->succ, o->nsucc, &o->capsucc, sizeof(*o->succ));
		if (rc)
			return rc;
		o->succ[o->nsucc++] = (uint32_t)event_number(&in);
	}
	if (end)
		return stack_pop(f, l, o, true);
	return n->async ? 0 : stack_push(f, l, o, true);
}

static int on_begin(struct flow *f, struct line *l, const struct event *e, struct fop *o)
{
	struct event_in in = { e->list, l->in.buf + l->in.n, false };
	struct body *b = stack_top(l);
	uint64_t i;
	int rc;

	if (o->o.begun)
		return DIFFERS;
	o->o.begun = true;
	o->o.begin = ns_of(f, e->time);
	o->o.runner = l->in.s->thread;
	o->versions = malloc((e->n + 1) * sizeof(*o->versions));
	if (!o->versions)
		return reader_no_memory(&f->rd);
	o->nversions = e->n;
	for (i = 0; i < e->n; i++)
		o->versions[i] = event_number(&in);
	if (b) {
		o->outer = op_ref(b->op);
		o->outer_node = b->node;
	}
	rc = o->known ? positions(o) : 0;
	return rc || o->o.async || o->o.launch ? rc : stack_push(f, l, o, false);
}

static int on_end(struct flow *f, struct line *l, const struct event *e, struct fop *o)
{
	int rc;

	if (o->o.ended)
		return DIFFERS;
	rc = stack_pop(f, l, o, false);
	if (rc)
		return rc;
	o->o.ended = true;
	o->o.end = ns_of(f, e->time);
	o->o.status = (int32_t)e->status;
	return 0;
}

static int on_wait(struct flow *f, struct line *l, const struct event *e)
{
	struct flow_var *v = NULL;
	int rc = grow(f, &l->waits, l->nwaits, &l->capwaits, sizeof(*l->waits));

	if (!rc && e->kind >> 3)
		rc = flow_var_of(&f->vars, l->in.s->engine, e->var, e->vargen, &v);
	if (rc || f->r.nwaits == REC_NONE - 1)
		return rc ? rc : DIFFERS;
	f->r.nwaits++;
	l->waits[l->nwaits++] = (struct rec_wait){
		.engine = l->in.s->engine, .thread = l->in.s->thread, .var = v ? v->number : REC_NONE,
		.write = e->kind >> 3 == 2, .begin = ns_of(f, e->time),
		.after = l->nops ? l->first_op + l->nops - 1 : REC_NONE };
	return 0;
}

static void on_waited(struct flow *f, struct line *l, const struct event *e)
{
	struct rec_wait *w;

	if (!l->nwaits)
		return;
	w = &l->waits[--l->nwaits];
	w->ended = true;
	w->end = ns_of(f, e->time);
	w->status = (int32_t)e->status;
	if (f->sink->wait)
		f->sink->wait(f->ctx, w);
}

static int on_event(struct flow *f, struct line *l)
{
	const struct event *e = &l->in.ev;
	struct fop *o;
	int rc;

	switch (e->kind & REC_KIND) {
	case REC_NAME:
		return on_name(f, l, e);
	case REC_PUSH:
		return on_push(f, l, e);
	case REC_UNDO:
		return on_undo(f, l, e);
	case REC_WAIT:
		return on_wait(f, l, e);
	case REC_WAITED:
		on_waited(f, l, e);
		return 0;
	}
	rc = op_of(f, l->in.s->engine, e->index, e->gen, &o);
	if (rc)
		return rc;
	o->events += !o->known;
	if ((e->kind & REC_KIND) == REC_BEGIN)
		return e->kind & REC_BEGIN_NODE ? on_node(f, l, e, o) : on_begin(f, l, e, o);
	return e->kind & REC_END_NODE ? on_node(f, l, e, o) : on_end(f, l, e, o);
}

/* --- the order --- */

/* The op in whose body this one was pushed: a launch only by a body of it. */
static struct fop *parent_of(const struct fop *o)
{
	struct fop *p = o->parent;
	bool node = o->parent_node;

	for (; p && (!p->known || (!node && (p->o.launch || p->o.async))); p = p->outer)
		node = p->outer_node;
	return p;
}

static bool is_next(const struct fop *o)
{
	const struct fop *p = parent_of(o);
	uint32_t j;

	if (p && !p->out)
		return false;
	for (j = 0; j < o->o.naccesses; j++)
		if (o->accesses[j].placed &&
		    !flow_slot_first(o->vars[j], o->accesses[j].version, o->accesses[j].write))
			return false;
	return true;
}

/* Give out the first op of the line. */
static int give(struct flow *f, struct line *l)
{
	struct fop *o = l->head, *p = parent_of(o);
	struct flow_op out = { &f->one, o->vars, o->number, f->place++ };
	uint32_t j;
	size_t i;
	int rc;

	if (o->o.ended && o->o.end < o->o.begin)
		o->o.end = o->o.begin;
	if (p)
		o->o.parent = p->number;
	if (rec_nodes_join(o->nodes, &o->nnodes))
		return DIFFERS;
	for (i = 0; i < o->nnodes; i++)
		o->nodes[i].op = 0;
	o->o.nnodes = (uint32_t)o->nnodes;
	f->r.nnodes += o->nnodes;
	f->one.ops = &o->o;
	f->one.accesses = o->accesses;
	f->one.naccesses = o->o.naccesses;
	f->one.nodes = o->nodes;
	f->one.nnodes = o->nnodes;
	f->one.succ = o->succ;
	rc = f->sink->op ? f->sink->op(f->ctx, &out) : 0;
	for (j = 0; j < o->o.naccesses; j++)
		if (o->accesses[j].placed)
			flow_slot_remove(o->vars[j], o->accesses[j].version, o->accesses[j].write);
	o->out = true;
	l->head = o->later;
	o->later = NULL;
	op_drop(o->parent);
	o->parent = NULL;
	op_drop(o);
	op_remove(o);
	return rc;
}

/* Give out all ops that are known to be next. */
static int give_out(struct flow *f)
{
	size_t i, n = f->rd.nstreams;
	struct line *l, *tried;
	struct fop *o = f->blocker;
	int rc = 0;

	if (o && !f->end && (!o->o.begun || !o->o.ended || o->o.end + SLACK > f->now))
		return 0;
	for (;;) {
		f->blocker = NULL;
		/* Try the first of each line, beginning with the oldest. */
		for (tried = NULL;; tried = l) {
			for (l = NULL, i = 0; i < n; i++) {
				struct line *k = &f->lines[i];

				if (k->head && (!l || k->head->o.push < l->head->o.push) &&
				    (!tried || k->head->o.push > tried->head->o.push ||
				     (k->head->o.push == tried->head->o.push && k > tried)))
					l = k;
			}
			if (!l)
				return 0;
			o = l->head;
			if (!f->end && (!o->o.begun || !o->o.ended || o->o.end + SLACK > f->now)) {
				f->blocker = o;
				return 0;
			}
			if (is_next(o))
				break;
		}
		rc = give(f, l);
		if (rc)
			return rc;
	}
}

/* All events were read: what did not begin follows. */
static int finish(struct flow *f)
{
	struct line *l, *end = f->lines + f->rd.nstreams;
	struct fop *o, *next, **begun, **other;
	struct indexes *x;
	size_t i;
	int rc;

	for (x = f->indexes; x < f->indexes + f->r.nengines; x++)
		for (i = 0; i < x->n; i++)
			for (o = x->slots[i].ops; o; o = o->next)
				f->r.foreign += o->known ? 0 : o->events;
	f->end = true;
	for (l = f->lines; l < end; l++) {
		o = l->head;
		for (begun = &l->head, other = &l->others; o; o = next) {
			next = o->later;
			if (o->o.ended && !o->o.begun) {
				if (f->r.ended && !f->r.lost)
					return DIFFERS;
				o->o.ended = false;
			}
			*(o->o.begun ? begun : other) = o;
			*(o->o.begun ? &begun : &other) = &o->later;
		}
		*begun = *other = NULL;
	}
	rc = give_out(f);
	for (l = f->lines; l < end && !rc; l++) {
		rc = l->head ? DIFFERS : 0;
		if (!rc) {
			l->head = l->others;
			l->others = NULL;
		}
	}
	if (!rc)
		rc = give_out(f);
	for (l = f->lines; l < end && !rc; l++) {
		rc = l->head ? DIFFERS : 0;
		for (i = 0; i < l->nwaits && !rc && f->sink->wait; i++)
			f->sink->wait(f->ctx, &l->waits[i]);
	}
	return rc;
}

/* --- runs --- */

static void heap_down(struct flow *f, size_t i)
{
	struct line *l = f->heap[i];
	size_t c;

	for (; (c = 2 * i + 1) < f->nheap; i = c) {
		if (c + 1 < f->nheap && f->heap[c + 1]->in.ev.time < f->heap[c]->in.ev.time)
			c++;
		if (f->heap[c]->in.ev.time >= l->in.ev.time)
			break;
		f->heap[i] = f->heap[c];
	}
	f->heap[i] = l;
}

/* Free what a run has. */
static void run_end(struct flow *f)
{
	struct fop *o, *next;
	struct indexes *x;
	struct line *l;
	size_t i;

	for (l = f->lines; l < f->lines + f->rd.nstreams; l++) {
		for (i = 0; i < 2; i++)
			for (o = i ? l->others : l->head; o; o = next) {
				next = o->later;
				op_drop(o);
			}
		while (l->depth)
			op_drop(l->stack[--l->depth].op);
		free(l->in.buf);
		free(l->names);
		free(l->stack);
		free(l->waits);
		*l = (struct line){ .in.s = l->in.s, .nops = l->nops };
	}
	for (x = f->indexes; x && x < f->indexes + f->r.nengines; x++) {
		for (i = 0; i < x->n; i++)
			for (o = x->slots[i].ops; o; o = next) {
				next = o->next;
				op_drop(o->parent);
				o->parent = NULL;
				op_drop(o);
			}
		free(x->slots);
	}
	flow_vars_free(&f->vars);
	free(f->indexes);
	f->indexes = NULL;
	f->blocker = NULL;
}

int flow_run(struct flow *f, const struct flow_sink *sink, void *ctx)
{
	uint32_t first = 0;
	struct line *l;
	bool some;
	size_t i;
	int rc = 0;

	f->sink = sink;
	f->ctx = ctx;
	f->end = false;
	f->now = f->place = f->undone = f->writes = f->nheap = 0;
	f->r.nops = f->r.naccesses = f->r.nnodes = f->r.nwaits = 0;
	f->r.foreign = 0;
	f->indexes = calloc(f->r.nengines + 1, sizeof(*f->indexes));
	f->vars = (struct flow_vars){ .sink = sink, .ctx = ctx };
	if (!f->indexes)
		rc = -ENOMEM;
	for (l = f->lines; l < f->lines + f->rd.nstreams; l++) {
		l->first_op = first;
		first += l->nops;
		l->nops = 0;
	}
	for (l = f->lines; l < f->lines + f->rd.nstreams && !rc; l++) {
		rc = events_open(&f->rd, &l->in, &some);
		if (!rc && some)
			f->heap[f->nheap++] = l;
	}
	for (i = f->nheap; i-- && !rc;)
		heap_down(f, i);
	while (f->nheap && !rc) {
		l = f->heap[0];
		f->now = ns_of(f, l->in.ev.time);
		rc = on_event(f, l);
		if (!rc)
			rc = events_next(&f->rd, &l->in, &some);
		if (!some)
			f->heap[0] = f->heap[--f->nheap];
		if (f->nheap)
			heap_down(f, 0);
		if (!rc)
			rc = give_out(f);
	}
	if (!rc)
		rc = finish(f);
	f->r.nvars = f->vars.known;
	run_end(f);
	return rc;
}

/* If it is a compressed recording, copy its contents to a file without a name. */
static int unpack(const char *path, int fd)
{
	unsigned char buf[1 << 16];
	gzFile in = gzopen(path, "rb");
	FILE *to = in && gzread(in, buf, 4) == 4 && get_le32(buf) == REC_MAGIC ? tmpfile() : NULL;
	int n, rc = to && !gzrewind(in) ? 0 : -1;

	while (!rc && (n = gzread(in, buf, sizeof(buf))) != 0)
		rc = n < 0 || fwrite(buf, 1, (size_t)n, to) != (size_t)n ? -1 : 0;
	if (in && gzclose_r(in) != Z_OK)
		rc = -1;
	if (to && (fflush(to) || (!rc && dup2(fileno(to), fd) < 0)))
		rc = -1;
	if (to)
		fclose(to);
	return rc;
}

int flow_open(const char *path, struct flow **out)
{
	struct flow *f = calloc(1, sizeof(*f));
	unsigned char magic[4];
	struct stat st;
	size_t i;
	int rc = 1;

	*out = f;
	if (!f)
		return -ENOMEM;
	f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (f->fd >= 0 && !fstat(f->fd, &st) && S_ISREG(st.st_mode) && pread(f->fd, magic, 2, 0) == 2 &&
	    magic[0] == 0x1f && magic[1] == 0x8b && unpack(path, f->fd))
		goto out;
	if (f->fd < 0 || fstat(f->fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < flow_min ||
	    pread(f->fd, magic, 4, 0) != 4 || get_le32(magic) != REC_MAGIC)
		goto out;
	f->rd = (struct reader){ .name = path, .r = &f->r, .fd = f->fd };
	f->r.format = "pawl";
	f->r.bytes = (uint64_t)st.st_size;
	rc = reader_chunks(&f->rd, NULL, (size_t)st.st_size);
	if (rc)
		goto out;
	f->r.threads = (uint32_t)f->rd.nstreams;
	f->r.length = f->rd.ns1 > f->rd.ns0 ? f->rd.ns1 - f->rd.ns0 : 0;
	f->lines = calloc(f->rd.nstreams + 1, sizeof(*f->lines));
	f->heap = calloc(f->rd.nstreams + 1, sizeof(struct line *));
	if (!f->lines || !f->heap)
		rc = -ENOMEM;
	for (i = 0; !rc && i < f->rd.nstreams; i++)
		f->lines[i].in.s = &f->rd.streams[i];
out:
	if (rc) {
		flow_close(f);
		*out = NULL;
	}
	return rc && rc != -ENOMEM ? 1 : rc;
}

void flow_close(struct flow *f)
{
	struct name *n, *next;
	size_t i;

	if (f->fd >= 0)
		close(f->fd);
	for (i = 0; i < f->rd.nstreams; i++)
		free(f->rd.streams[i].pieces);
	for (i = 0; i < 256; i++)
		for (n = f->names[i]; n; n = next) {
			next = n->next;
			free(n);
		}
	free(f->rd.streams);
	free(f->rd.scratch);
	free(f->lines);
	free(f->heap);
	free(f->r.engines);
	free(f);
}

const struct recording *flow_info(const struct flow *f)
{
	return &f->r;
}

void flow_counts(const struct flow *f, uint64_t *undone, uint64_t *writes)
{
	*undone = f->undone;
	*writes = f->writes;
}
