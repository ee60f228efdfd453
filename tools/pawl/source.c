// SPDX-License-Identifier: Apache-2.0
/* The ops of a workload in their serial order, from a large recording or from memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "slurp.h"
#include "source.h"

static int no_memory(struct source *s)
{
	return file_err(s->err, s->errlen, -ENOMEM, "%s: no memory", s->path);
}

/* The place and the edges of each op in memory. */
static int arrays(struct source *s)
{
	const struct recording *r = &s->mem;
	uint32_t most = 0;
	size_t i;

	for (i = 0; i < r->nops; i++)
		if (r->ops[i].naccesses > most)
			most = r->ops[i].naccesses;
	s->vars = calloc(r->nvars + 1, sizeof(*s->vars));
	s->named = calloc((size_t)most + 1, sizeof(struct flow_var *));
	s->place = calloc(r->nops + 1, sizeof(*s->place));
	s->edge = calloc(r->nops + 2, sizeof(*s->edge));
	s->edge_of = calloc(r->nedges + 1, sizeof(*s->edge_of));
	if (!s->vars || !s->named || !s->place || !s->edge || !s->edge_of)
		return no_memory(s);
	for (i = 0; i < r->nvars; i++)
		s->vars[i].number = (uint32_t)i;
	for (i = 0; i < s->n; i++)
		s->place[s->order[i]] = i;
	for (i = 0; i < r->nedges; i++)
		s->edge[r->edges[i].after + 1]++;
	for (i = 0; i < r->nops; i++)
		s->edge[i + 1] += s->edge[i];
	for (i = r->nedges; i--;)
		s->edge_of[--s->edge[r->edges[i].after + 1]] = i;
	/* Storing them moved each start to the one before. */
	memmove(s->edge, s->edge + 1, (r->nops + 1) * sizeof(*s->edge));
	s->edge[r->nops] = r->nedges;
	return 0;
}

/* Read all of it into memory. */
static int whole(struct source *s)
{
	int rc;

	if (s->flow)
		flow_close(s->flow);
	s->flow = NULL;
	rc = workload_open(s->path, &s->mem, &s->order, &s->n, s->err, s->errlen);
	if (!rc)
		return arrays(s);
	s->order = NULL;
	return rc;
}

int source_of(struct source *s, const struct recording *r, const uint32_t *order, size_t n, char *err,
	      size_t errlen)
{
	*s = (struct source){ .path = "workload", .err = err, .errlen = errlen, .mem = *r,
			      .borrowed = true, .order = (uint32_t *)(uintptr_t)order, .n = n };
	return arrays(s);
}

int source_open(struct source *s, const char *path, char *err, size_t errlen)
{
	int rc;

	*s = (struct source){ .path = path, .err = err, .errlen = errlen };
	rc = flow_open(path, &s->flow);
	if (rc < 0)
		return no_memory(s);
	if (rc)
		rc = whole(s);
	if (rc)
		source_close(s);
	return rc;
}

void source_close(struct source *s)
{
	if (s->flow)
		flow_close(s->flow);
	if (!s->borrowed) {
		free(s->order);
		rec_free(&s->mem);
	}
	free(s->vars);
	free(s->named);
	free(s->place);
	free(s->edge);
	free(s->edge_of);
	memset(s, 0, sizeof(*s));
}

static int run_memory(struct source *s, const struct flow_sink *sink, void *ctx)
{
	struct recording one = { 0 };
	struct flow_op out = { .one = &one, .vars = s->named };
	struct rec_op o;
	uint32_t j;
	size_t i;
	int rc = 0;

	for (i = 0; i < s->n && !rc; i++) {
		out.number = s->order[i];
		out.place = i;
		o = s->mem.ops[out.number];
		one.ops = &o;
		one.accesses = s->mem.naccesses ? s->mem.accesses + o.access : NULL;
		one.nodes = s->mem.nnodes ? s->mem.nodes + o.node : NULL;
		one.succ = s->mem.succ;
		o.access = o.node = 0;
		for (j = 0; j < o.naccesses; j++)
			s->named[j] = &s->vars[one.accesses[j].var];
		rc = sink->op ? sink->op(ctx, &out) : 0;
	}
	for (i = 0; i < s->mem.nwaits && !rc && sink->wait; i++)
		sink->wait(ctx, &s->mem.waits[i]);
	for (i = 0; i < s->mem.nvars && sink->gone; i++)
		sink->gone(ctx, &s->vars[i]);
	return rc;
}

int source_run(struct source *s, const struct flow_sink *sink, void *ctx, void (*again)(void *ctx))
{
	int rc = s->flow ? flow_run(s->flow, sink, ctx) : run_memory(s, sink, ctx);

	if (rc <= 0)
		return rc == -ENOMEM ? no_memory(s) : rc;
	if (!again)
		return file_err(s->err, s->errlen, -EBADMSG, "%s: the file changed while it was read",
				s->path);
	again(ctx);
	rc = whole(s);
	return rc ? rc : run_memory(s, sink, ctx);
}

static void nothing(void *ctx)
{
	(void)ctx;
}

int source_check(struct source *s)
{
	static const struct flow_sink none;

	return s->flow ? source_run(s, &none, NULL, nothing) : 0;
}

const struct recording *source_info(const struct source *s)
{
	return s->flow ? flow_info(s->flow) : &s->mem;
}

void source_counts(const struct source *s, uint64_t *undone, uint64_t *writes)
{
	size_t i;

	if (s->flow) {
		flow_counts(s->flow, undone, writes);
		return;
	}
	*undone = s->mem.nops - s->n;
	for (*writes = 0, i = 0; i < s->mem.naccesses; i++)
		*writes += s->mem.accesses[i].write;
}
