// SPDX-License-Identifier: Apache-2.0
/*
 * The reader of recordings: their events; chunks.c reads the chunks.  Documentation/record.md
 * describes the format.
 *
 * The file is not trusted: each chunk has checksums, and each number is checked before it is
 * used, so the worst outcome is that the file is refused.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <core/record_format.h>

#include "reader.h"
#include "slurp.h"

struct cursor {
	struct reader *rd;
	struct stream *s;
	const unsigned char *p, *end;
	const unsigned char *event;	/* start of the current one */
	bool cut;			/* the stream ends inside the event */
	uint64_t cycles;
};

static uint64_t where(const struct cursor *c, const unsigned char *p)
{
	size_t at = (size_t)(p - c->s->data), i = c->s->npieces;

	while (i > 1 && c->s->pieces[i - 1].at > at)
		i--;
	return c->s->pieces[i - 1].file + at - c->s->pieces[i - 1].at;
}

static int bad_event(struct cursor *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static int bad_event(struct cursor *c, const char *fmt, ...)
{
	char text[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return reader_bad(c->rd, where(c, c->event), "thread %u of engine %u: %s", c->s->thread,
		   c->s->engine, text);
}

/* Beyond the end it returns 0 and sets c->cut. */
static uint64_t get(struct cursor *c)
{
	uint64_t v = 0;
	unsigned int shift = 0;

	for (;;) {
		unsigned char b;

		if (c->p == c->end) {
			c->cut = true;
			return 0;
		}
		b = *c->p++;
		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		shift += 7;
		if (!(b & 0x80) || shift > 70)
			return v;
	}
}

static int64_t get_signed(struct cursor *c)
{
	uint64_t v = get(c);

	return (int64_t)(v >> 1 ^ -(v & 1));
}

static uint64_t get_time(struct cursor *c)
{
	struct reader *rd = c->rd;
	uint64_t d, span = rd->cycles1 - rd->cycles0;

	c->cycles += get(c);
	d = c->cycles - rd->cycles0;
	if (c->cycles < rd->cycles0)
		return 0;
	if (rd->cycles1 <= rd->cycles0 || rd->ns1 <= rd->ns0)
		return d;
	return (uint64_t)((unsigned __int128)d * (rd->ns1 - rd->ns0) / span);
}

static size_t mix(uint32_t a, uint32_t b, uint32_t c)
{
	uint64_t h = a * 0x9e3779b97f4a7c15ull ^ b;

	h = (h ^ h >> 32) * 0x9e3779b97f4a7c15ull ^ c;
	h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull;
	return (size_t)(h ^ h >> 32);
}

static uint32_t *op_slot(struct reader *rd, uint32_t engine, uint32_t index, uint32_t gen)
{
	size_t i = mix(engine, index, gen);

	for (;; i++) {
		uint32_t *s = &rd->ophash[i & (rd->ophash_size - 1)];
		const struct rec_op *o;

		if (*s == REC_NONE)
			return s;
		o = &rd->r->ops[*s];
		if (o->index == index && o->gen == gen && o->engine == engine)
			return s;
	}
}

/* The var with this index and generation; a new one if it did not occur before. */
static int var_of(struct reader *rd, uint32_t engine, uint32_t index, uint32_t gen,
		  uint32_t *out)
{
	struct recording *r = rd->r;
	size_t i;

	if (r->nvars * 2 >= rd->varhash_size) {
		size_t size = rd->varhash_size ? rd->varhash_size * 2 : 1024, k;
		uint32_t *h = malloc(size * sizeof(*h));

		if (!h)
			return reader_no_memory(rd);
		memset(h, 0xff, size * sizeof(*h));
		for (k = 0; k < r->nvars; k++) {
			const struct rec_var *v = &r->vars[k];

			for (i = mix(v->engine, v->index, v->gen);
			     h[i & (size - 1)] != REC_NONE; i++)
				;
			h[i & (size - 1)] = (uint32_t)k;
		}
		free(rd->varhash);
		rd->varhash = h;
		rd->varhash_size = size;
	}
	for (i = mix(engine, index, gen);; i++) {
		uint32_t *s = &rd->varhash[i & (rd->varhash_size - 1)];

		if (*s != REC_NONE) {
			const struct rec_var *v = &r->vars[*s];

			if (v->index != index || v->gen != gen || v->engine != engine)
				continue;
			*out = *s;
			return 0;
		}
		if (r->nvars == REC_NONE - 1 ||
		    reader_grow(rd, (void **)&r->vars, r->nvars, &rd->capvars, sizeof(*r->vars)))
			return reader_no_memory(rd);
		r->vars[r->nvars] = (struct rec_var){ .engine = engine, .index = index, .gen = gen,
						      .first = UINT64_MAX };
		*out = *s = (uint32_t)r->nvars++;
		return 0;
	}
}

/* The state while reading a stream: names, and the numbers that others are relative to. */
struct state {
	const char **names;
	char *texts;
	size_t nnames, capnames;
	uint32_t push_op, push_gen, begin_op, begin_gen, open_op, open_gen;
	size_t next_op;		/* second pass: of the stream's pushes */
	uint32_t *stack;	/* second pass: synchronous bodies that run */
	size_t depth, capstack;
	uint32_t *wstack;	/* first pass: pending waits */
	size_t wdepth, capwstack;
};

static int get_name(struct cursor *c, struct state *st)
{
	uint64_t n = get(c);
	char *s;

	if (c->cut || n > (uint64_t)(c->end - c->p)) {
		c->cut = true;
		return 0;
	}
	if (n > REC_NAME_MAX)
		return bad_event(c, "a name of %" PRIu64 " bytes", n);
	if (reader_grow(c->rd, (void **)&st->names, st->nnames, &st->capnames, sizeof(*st->names)))
		return -ENOMEM;
	s = malloc(sizeof(void *) + (size_t)n + 1);
	if (!s)
		return reader_no_memory(c->rd);
	/* All texts are in a list that is freed with the recording. */
	memcpy(s, &c->rd->r->data[0], sizeof(void *));
	c->rd->r->data[0] = s;
	s += sizeof(void *);
	memcpy(s, c->p, (size_t)n);
	s[n] = 0;
	c->p += n;
	st->names[st->nnames++] = s;
	return 0;
}

static int get_push(struct cursor *c, struct state *st, unsigned int kind, bool first)
{
	struct reader *rd = c->rd;
	struct recording *r = rd->r;
	uint64_t time = get_time(c), name, n, i, var = 0;
	struct rec_op o = { .engine = c->s->engine, .thread = c->s->thread, .name = "",
			    .runner = REC_NONE, .parent = REC_NONE, .push = time };
	int rc;

	st->push_op += (uint32_t)get_signed(c);
	st->push_gen += (uint32_t)get_signed(c);
	o.index = st->push_op;
	o.gen = st->push_gen;
	name = get(c);
	if (kind & REC_PUSH_PRIO)
		o.priority = (int32_t)get_signed(c);
	if (kind & REC_PUSH_WHERE) {
		/* at the end get() sets c->cut */
		if (c->p < c->end) {
			o.prop = *c->p & ~REC_PROP_ENDS;
			o.ends = *c->p++ & REC_PROP_ENDS;
		}
		o.device_kind = (uint16_t)get(c);
		o.device = (uint16_t)get(c);
	}
	o.async = kind & REC_PUSH_ASYNC;
	o.more = kind & REC_PUSH_MORE;
	o.empty = kind & REC_PUSH_EMPTY;
	n = get(c);
	if (c->cut)
		return 0;
	if (n > (uint64_t)(c->end - c->p) / 2) {
		c->cut = true;
		return 0;
	}
	if (name > st->nnames)
		return bad_event(c, "name %" PRIu64 " of %zu", name, st->nnames);
	if (name)
		o.name = st->names[name - 1];
	if (!first) {
		for (i = 0; i < 2 * n; i++)
			get(c);
		if (c->cut)
			return 0;
		/* Pushed inside a body of this thread. */
		r->ops[c->s->first_op + st->next_op++].parent =
			st->depth ? st->stack[st->depth - 1] : REC_NONE;
		return 0;
	}
	o.naccesses = (uint32_t)n;
	o.access = r->naccesses;
	for (i = 0; i < n; i++) {
		uint64_t v = get(c), gen = get(c);
		struct rec_access *a;

		if (c->cut) {
			r->naccesses = o.access;
			return 0;
		}
		var += v >> 1;
		if (var > UINT32_MAX || gen > UINT32_MAX >> 1)
			return bad_event(c, "an access of var %" PRIu64, var);
		if (i && !(v >> 1))
			return bad_event(c, "var %" PRIu64 " twice in one op", var);
		rc = reader_grow(rd, (void **)&r->accesses, r->naccesses, &rd->capacc,
			  sizeof(*r->accesses));
		if (rc)
			return rc;
		a = &r->accesses[r->naccesses++];
		*a = (struct rec_access){ .write = v & 1 };
		rc = var_of(rd, c->s->engine, (uint32_t)var, (uint32_t)gen << 1 | 1, &a->var);
		if (rc)
			return rc;
	}
	if (r->nops == REC_NONE - 1)
		return bad_event(c, "too many ops");
	rc = reader_grow(rd, (void **)&r->ops, r->nops, &rd->capops, sizeof(*r->ops));
	if (rc)
		return rc;
	r->ops[r->nops++] = o;
	c->s->nops++;
	return 0;
}

static struct rec_op *find(struct cursor *c, uint32_t index, uint32_t gen)
{
	uint32_t *s = op_slot(c->rd, c->s->engine, index, gen);

	if (*s == REC_NONE) {
		c->rd->r->foreign++;
		return NULL;
	}
	return &c->rd->r->ops[*s];
}

static int get_undo(struct cursor *c, bool first)
{
	uint32_t index = (uint32_t)get(c), gen = (uint32_t)get(c);
	struct rec_op *o;

	if (c->cut || first)
		return 0;
	o = find(c, index, gen);
	if (o && (o->undone || o->begun || o->thread != c->s->thread))
		return bad_event(c, "op %u.%u was not refused", index, gen);
	if (o)
		o->undone = true;
	return 0;
}

static int stack_push(struct cursor *c, struct state *st, const struct rec_op *o)
{
	int rc = reader_grow(c->rd, (void **)&st->stack, st->depth, &st->capstack, sizeof(*st->stack));

	if (!rc)
		st->stack[st->depth++] = (uint32_t)(o - c->rd->r->ops);
	return rc;
}

/* A body ended, and with it what is above, which began in a wait of it. */
static int stack_pop(struct cursor *c, struct state *st, const struct rec_op *o)
{
	size_t i = st->depth;

	while (i && st->stack[i - 1] != (uint32_t)(o - c->rd->r->ops))
		i--;
	if (i)
		st->depth = i - 1;
	else if (reader_missed(c->rd, st->depth))
		return bad_event(c, "bodies end in no order, op %u.%u the last", o->index, o->gen);
	return 0;
}

/*
 * A begin or an end of a body of a launch.  They are nodes of their own until all streams are read
 * (nodes_join()), because a thread may end what another one began.
 */
static int get_node(struct cursor *c, struct state *st, unsigned int kind, bool first)
{
	struct recording *r = c->rd->r;
	uint64_t time = get_time(c), number, name = 0, n = 0, i, to;
	bool end = (kind & REC_KIND) == REC_END;
	struct rec_node node = { .name = "", .succ = r->nsucc, .runner = c->s->thread };
	struct rec_op *o;
	int rc;

	st->begin_op += (uint32_t)get_signed(c);
	st->begin_gen += (uint32_t)get_signed(c);
	number = get(c);
	if (!end)
		name = get(c);
	else if (kind & REC_END_STATUS)
		node.status = (int32_t)get_signed(c);
	if (end)
		n = get(c);
	if (n > (uint64_t)(c->end - c->p))
		c->cut = true;
	if (c->cut)
		return 0;
	if (number > UINT32_MAX || name > st->nnames)
		return bad_event(c, "body %" PRIu64 " of a launch, name %" PRIu64 " of %zu", number,
				 name, st->nnames);
	if (first) {
		struct mark m = { c->s->engine, st->begin_op, st->begin_gen }, *had = c->rd->marks;
		size_t k = c->rd->nmarks;

		for (i = 0; i < n; i++)
			get(c);
		if (k && !memcmp(&had[k - 1], &m, sizeof(m)))
			return 0;
		rc = reader_grow(c->rd, (void **)&c->rd->marks, k, &c->rd->capmarks, sizeof(m));
		if (!rc)
			c->rd->marks[c->rd->nmarks++] = m;
		return rc;
	}
	for (i = 0; i < n; i++) {
		to = get(c);
		if (c->cut)
			return 0;
		rc = reader_grow(c->rd, (void **)&r->succ, r->nsucc, &c->rd->capsucc, sizeof(*r->succ));
		if (rc)
			return rc;
		r->succ[r->nsucc++] = (uint32_t)to;
	}
	o = find(c, st->begin_op, st->begin_gen);
	if (!o)
		return 0;
	if (o->undone)
		return bad_event(c, "op %u.%u has a body, and was refused", o->index, o->gen);
	node.op = (uint32_t)(o - r->ops);
	node.number = (uint32_t)number;
	node.nsucc = (uint32_t)n;
	node.begun = !end;
	node.ended = end;
	node.begin = node.end = time;
	node.async = !end && kind & REC_BEGIN_ASYNC;
	node.skipped = !end && kind & REC_BEGIN_SKIPPED;
	if (name)
		node.name = st->names[name - 1];
	rc = reader_grow(c->rd, (void **)&r->nodes, r->nnodes, &c->rd->capnodes, sizeof(*r->nodes));
	if (rc)
		return rc;
	r->nodes[r->nnodes++] = node;
	if (end)
		return stack_pop(c, st, o);
	return node.async ? 0 : stack_push(c, st, o);
}

static int get_begin(struct cursor *c, struct state *st, bool first)
{
	struct recording *r = c->rd->r;
	uint64_t time = get_time(c), n, i, v;
	struct rec_op *o = NULL;
	const unsigned char *list;

	st->begin_op += (uint32_t)get_signed(c);
	st->begin_gen += (uint32_t)get_signed(c);
	st->open_op = st->begin_op;
	st->open_gen = st->begin_gen;
	n = get(c);
	if (n > (uint64_t)(c->end - c->p)) {
		c->cut = true;
		return 0;
	}
	list = c->p;
	for (i = 0; i < n; i++)
		get(c);
	if (c->cut || first)
		return 0;
	o = find(c, st->begin_op, st->begin_gen);
	if (!o)
		return 0;
	if (o->begun || o->undone)
		return bad_event(c, "op %u.%u begins %s", o->index, o->gen,
				 o->begun ? "twice" : "and was refused");
	if (n != o->naccesses)
		return bad_event(c, "op %u.%u begins with %" PRIu64 " accesses, and has %u",
				 o->index, o->gen, n, o->naccesses);
	o->begun = true;
	o->begin = time;
	o->runner = c->s->thread;
	c->p = list;
	for (i = 0; i < n; i++) {
		struct rec_access *a = &r->accesses[o->access + i];

		v = get(c);
		a->placed = v;
		a->version = v ? v - 1 : 0;
	}
	return o->async || o->launch ? 0 : stack_push(c, st, o);
}

static int get_end(struct cursor *c, struct state *st, unsigned int kind, bool first)
{
	uint64_t time = get_time(c);
	uint32_t index, gen;
	struct rec_op *o;
	int32_t status = 0;

	if (kind & REC_END_OPEN) {
		index = st->open_op;
		gen = st->open_gen;
		if (!index)
			return bad_event(c, "an end without a begin");
		st->open_op = 0;
	} else {
		index = (uint32_t)get(c);
		gen = (uint32_t)get(c);
	}
	if (kind & REC_END_STATUS)
		status = (int32_t)get_signed(c);
	if (c->cut || first)
		return 0;
	o = find(c, index, gen);
	if (!o)
		return 0;
	/* Its begin may be among another thread's events, which are read later. */
	if (o->ended || o->undone)
		return bad_event(c, "op %u.%u ends %s", index, gen,
				 o->ended ? "twice" : "and was refused");
	o->ended = true;
	o->end = time;
	o->status = status;
	return stack_pop(c, st, o);
}

static int get_wait(struct cursor *c, struct state *st, unsigned int kind, bool first)
{
	struct recording *r = c->rd->r;
	unsigned int what = kind & ~(unsigned int)REC_KIND;
	uint64_t time = get_time(c), var = 0, gen = 0;
	struct rec_wait *w;
	int rc;

	if (what != REC_WAIT_ALL && what != REC_WAIT_READABLE && what != REC_WAIT_WRITABLE)
		return bad_event(c, "a wait of kind %#x", what);
	if (what != REC_WAIT_ALL) {
		var = get(c);
		gen = get(c);
	}
	if (c->cut || !first)
		return 0;
	if (var > UINT32_MAX || gen > UINT32_MAX >> 1)
		return bad_event(c, "a wait for var %" PRIu64, var);
	if (r->nwaits == REC_NONE - 1)
		return bad_event(c, "too many waits");
	rc = reader_grow(c->rd, (void **)&r->waits, r->nwaits, &c->rd->capwaits, sizeof(*r->waits));
	if (!rc)
		rc = reader_grow(c->rd, (void **)&st->wstack, st->wdepth, &st->capwstack,
			  sizeof(*st->wstack));
	if (rc)
		return rc;
	w = &r->waits[r->nwaits];
	*w = (struct rec_wait){ .engine = c->s->engine, .thread = c->s->thread, .var = REC_NONE,
				.write = what == REC_WAIT_WRITABLE, .begin = time,
				.after = c->s->nops ? (uint32_t)r->nops - 1 : REC_NONE };
	if (what != REC_WAIT_ALL)
		rc = var_of(c->rd, c->s->engine, (uint32_t)var, (uint32_t)gen << 1 | 1,
			    &w->var);
	st->wstack[st->wdepth++] = (uint32_t)r->nwaits++;
	return rc;
}

static int get_waited(struct cursor *c, struct state *st)
{
	struct recording *r = c->rd->r;
	uint64_t time = get_time(c);
	int32_t status = (int32_t)get_signed(c);

	/* It may have begun before the recording; in the second pass none is pending. */
	if (c->cut || !st->wdepth)
		return 0;
	st->wdepth--;
	r->waits[st->wstack[st->wdepth]].ended = true;
	r->waits[st->wstack[st->wdepth]].end = time;
	r->waits[st->wstack[st->wdepth]].status = status;
	return 0;
}

/* The first pass reads names, pushes and waits, the second begins, ends and nested pushes. */
static int events(struct reader *rd, struct stream *s, bool first)
{
	struct cursor c = { .rd = rd, .s = s, .p = s->data };
	struct state st = { 0 };
	int rc = 0;

	if (first)
		s->first_op = rd->r->nops;
	if (!s->len)
		return 0;
	c.end = s->data + s->len;
	c.event = c.p;
	if (s->len < 8)
		rc = bad_event(&c, "no time at the beginning");
	else
		c.cycles = get_le64(c.p);
	c.p += 8;
	while (!rc && c.p < c.end) {
		unsigned int kind;

		c.event = c.p;
		kind = *c.p++;
		switch (kind & REC_KIND) {
		case REC_NAME:
			rc = get_name(&c, &st);
			break;
		case REC_PUSH:
			rc = get_push(&c, &st, kind, first);
			break;
		case REC_UNDO:
			rc = get_undo(&c, first);
			break;
		case REC_BEGIN:
			rc = kind & REC_BEGIN_NODE ? get_node(&c, &st, kind, first) :
			     get_begin(&c, &st, first);
			break;
		case REC_END:
			rc = kind & REC_END_NODE ? get_node(&c, &st, kind, first) :
			     get_end(&c, &st, kind, first);
			break;
		case REC_WAIT:
			rc = get_wait(&c, &st, kind, first);
			break;
		case REC_WAITED:
			rc = get_waited(&c, &st);
			break;
		default:
			rc = bad_event(&c, "an event of kind %u", kind & REC_KIND);
		}
		if (!rc && c.cut) {
			/* Its other half was in a missing chunk. */
			if (rd->r->ended)
				rc = bad_event(&c, "an event that does not end");
			break;
		}
	}
	free(st.names);
	free(st.stack);
	free(st.wstack);
	return rc;
}

static int hash_ops(struct reader *rd)
{
	struct recording *r = rd->r;
	size_t i;

	rd->ophash_size = 64;
	while (rd->ophash_size < r->nops * 2)
		rd->ophash_size *= 2;
	rd->ophash = malloc(rd->ophash_size * sizeof(*rd->ophash));
	if (!rd->ophash)
		return reader_no_memory(rd);
	memset(rd->ophash, 0xff, rd->ophash_size * sizeof(*rd->ophash));
	for (i = 0; i < r->nops; i++) {
		const struct rec_op *o = &r->ops[i];
		uint32_t *s = op_slot(rd, o->engine, o->index, o->gen);

		if (*s != REC_NONE)
			return file_err(rd->err, rd->errlen, -EBADMSG,
					"%s: op %u.%u of engine %u is pushed twice", rd->name, o->index,
					o->gen, o->engine);
		*s = (uint32_t)i;
	}
	for (i = 0; i < rd->nmarks; i++) {
		uint32_t *s = op_slot(rd, rd->marks[i].engine, rd->marks[i].index, rd->marks[i].gen);

		if (*s != REC_NONE)
			r->ops[*s].launch = true;
	}
	return 0;
}

static int node_cmp(const void *a, const void *b)
{
	const struct rec_node *x = a, *y = b;

	if (x->op != y->op)
		return x->op < y->op ? -1 : 1;
	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return (int)x->ended - (int)y->ended;
}

uint64_t rec_nodes_join(struct rec_node *nodes, size_t *count)
{
	struct rec_node *to = nodes, *n;

	if (*count)
		qsort(nodes, *count, sizeof(*nodes), node_cmp);
	for (n = nodes; n < nodes + *count; n++) {
		if (to > nodes && to[-1].op == n->op && to[-1].number == n->number) {
			if (to[-1].ended || !n->ended)
				return (uint64_t)(n - nodes) + 1;
			to[-1].ended = true;
			to[-1].end = n->end > to[-1].begin ? n->end : to[-1].begin;
			to[-1].status = n->status;
			to[-1].succ = n->succ;
			to[-1].nsucc = n->nsucc;
			continue;
		}
		/* Its begin was before the recording, or in a chunk that is missing. */
		if (!n->begun)
			continue;
		*to++ = *n;
	}
	*count = (size_t)(to - nodes);
	return 0;
}

static int nodes_join(struct reader *rd)
{
	struct recording *r = rd->r;
	uint64_t bad = rec_nodes_join(r->nodes, &r->nnodes);
	size_t i;

	if (bad) {
		const struct rec_node *n = &r->nodes[bad - 1];

		return file_err(rd->err, rd->errlen, -EBADMSG, "%s: body %u of op %u %s twice", rd->name,
				n->number, n->op, n->ended ? "ends" : "begins");
	}
	for (i = 0; i < r->nnodes; i++) {
		struct rec_op *o = &r->ops[r->nodes[i].op];

		if (!o->nnodes++)
			o->node = i;
	}
	return 0;
}

const struct rec_node *rec_node_find(const struct recording *r, const struct rec_op *o,
				     uint32_t number)
{
	uint32_t lo = 0, hi = o->nnodes, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (r->nodes[o->node + mid].number < number)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < o->nnodes && r->nodes[o->node + lo].number == number ? &r->nodes[o->node + lo] :
	       NULL;
}

/* Checks that need all streams. */
static int finish(struct reader *rd)
{
	struct recording *r = rd->r;
	size_t i;

	for (i = 0; i < r->nops; i++) {
		struct rec_op *o = &r->ops[i];

		if (o->ended && !o->begun) {
			if (r->ended && !r->lost)
				return file_err(rd->err, rd->errlen, -EBADMSG,
						"%s: op %u.%u of engine %u ends, and never began",
						rd->name, o->index, o->gen, o->engine);
			o->ended = false;
		}
		if (o->ended && o->end < o->begin)
			o->end = o->begin;
	}
	for (i = 0; i < r->naccesses; i++) {
		const struct rec_access *a = &r->accesses[i];
		struct rec_var *v = &r->vars[a->var];

		if (a->write)
			v->writes++;
		else
			v->reads++;
		if (a->placed && a->version < v->first)
			v->first = a->version;
	}
	r->threads = (uint32_t)rd->nstreams;
	r->length = rd->ns1 > rd->ns0 ? rd->ns1 - rd->ns0 : 0;
	return 0;
}

int rec_parse(const char *name, const void *data, size_t len, struct recording *r, char *err,
	      size_t errlen)
{
	struct reader rd = { .name = name, .r = r, .fd = -1, .err = err, .errlen = errlen };
	size_t i;
	int rc;

	memset(r, 0, sizeof(*r));
	r->format = "pawl";
	r->bytes = len;
	rc = reader_chunks(&rd, data, len);
	for (i = 0; !rc && i < rd.nstreams; i++)
		rc = events(&rd, &rd.streams[i], true);
	if (!rc)
		rc = hash_ops(&rd);
	for (i = 0; !rc && i < rd.nstreams; i++)
		rc = events(&rd, &rd.streams[i], false);
	if (!rc)
		rc = nodes_join(&rd);
	if (!rc)
		rc = finish(&rd);
	for (i = 0; i < rd.nstreams; i++) {
		free(rd.streams[i].data);
		free(rd.streams[i].pieces);
	}
	free(rd.streams);
	free(rd.ophash);
	free(rd.marks);
	free(rd.varhash);
	if (rc)
		rec_free(r);
	return rc;
}

void rec_free(struct recording *r)
{
	void *p = r->data[0], *next;

	for (; p; p = next) {
		memcpy(&next, p, sizeof(void *));
		free(p);
	}
	free(r->ops);
	free(r->accesses);
	free(r->vars);
	free(r->waits);
	free(r->nodes);
	free(r->succ);
	free(r->engines);
	free(r->edges);
	free(r->told);
	memset(r, 0, sizeof(*r));
}
