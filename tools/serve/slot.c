// SPDX-License-Identifier: Apache-2.0
/*
 * slot.c - a slot: the plan (plan.c) as a graph of the engine, and its launch.
 *
 * A block has a part for each tile of the operator that writes it in the most tiles.  The ops
 * name these parts, and so the engine keeps the order.  No other slot has this memory, so the
 * parts belong to each launch alone; the one var of a launch is that of the weights.
 *
 * Creating, moving and destroying a slot is blocking.  A launch does what pawl_graph_push() does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "ort.h"
#include "slot.h"

#define PRIM_BYTES	((size_t)64 << 10)

int slot_no_memory(struct serve_slot *s)
{
	return graph_err(s->err, s->errsize, -ENOMEM, "no memory for a slot");
}

/* ---- ops -------------------------------------------------------------------- */

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int body(struct pawl_run *run, void *arg)
{
	struct step *st = arg;
	const struct job *j = st->job;
	int rc = pawl_run_canceled(run);

	if (rc)
		return rc;
	if (st->timed) {
		st->thread = gettid();
		st->begin_ns = clock_ns();
	}
	if (st->ort)
		rc = ort_run(st->ort);
	else if (st->prim)
		rc = prim_run(st->prim);
	else if (j->chain)
		chain_run(j->chain, &j->out, j->ins);
	else if (j->n)
		rc = kernel_run(j->n, &j->out, j->ins);
	else
		view_copy(&j->out, &j->in[0]);
	if (st->timed)
		st->end_ns = clock_ns();
	if (rc)
		st->failed = true;
	if (rc && st->ort)
		return pawl_fail(run, rc, "onnxruntime: %s", ort_why(st->ort));
	return rc ? pawl_fail(run, rc, "operator %s '%s' failed", j->n ? j->n->type : "copy",
			      j->n ? j->n->name : "") : 0;
}

static size_t add_parts(const struct serve_slot *s, pawl_var_t *to, int piece,
			unsigned int tile, unsigned int tiles)
{
	const struct block *b;
	unsigned int i, n = 0;

	if (piece < 0)
		return 0;
	b = &s->block[s->piece[piece].block];
	if (!b->first)
		return 0;			/* no op writes an input of the model */
	for (i = b->parts * tile / tiles; i < b->parts * (tile + 1) / tiles; i++) {
		if (to)
			to[n] = (pawl_var_t)PAWL_SLOT(b->first + i);
		n++;
	}
	return n;
}

/* The ops, and what they name; or, if op is NULL, only how much that is. */
static size_t make_ops(struct serve_slot *s, struct pawl_op *op, pawl_var_t *vars)
{
	unsigned int i, k, t, n = 0;
	size_t at = 0;

	if (s->ort) {
		if (op) {
			vars[0] = (pawl_var_t)PAWL_SLOT(0);
			s->step[0] = (struct step){ .ort = s->ort };
			op[0] = (struct pawl_op)PAWL_OP_INIT;
			op[0].fn = body;
			op[0].arg = &s->step[0];
			op[0].name = "onnxruntime";
			op[0].reads = vars;
			op[0].nreads = 1;
		}
		s->nsteps = 1;
		return 1;
	}
	for (i = 0; i < s->njobs; i++) {
		struct job *j = &s->job[i];

		for (t = 0; s->piece[j->out_piece].live && t < j->tiles; t++, n++) {
			size_t reads = at, writes;

			if (op)
				vars[at] = (pawl_var_t)PAWL_SLOT(0);
			at++;			/* the weights */
			for (k = 0; k < j->nin; k++)
				at += add_parts(s, op ? vars + at : NULL, j->in_piece[k], 0, 1);
			writes = at;
			at += add_parts(s, op ? vars + at : NULL, j->out_piece, t, j->tiles);
			if (j->scratch)
				at += add_parts(s, op ? vars + at : NULL, j->scratch[t], 0, 1);
			if (!op)
				continue;
			s->step[n] = (struct step){ .job = j, .prim = j->prim ? j->prim[t] : NULL };
			op[n] = (struct pawl_op)PAWL_OP_INIT;
			op[n].fn = body;
			op[n].arg = &s->step[n];
			op[n].name = j->n ? j->n->type : "copy";
			op[n].reads = vars + reads;
			op[n].nreads = (uint32_t)(writes - reads);
			op[n].writes = vars + writes;
			op[n].nwrites = (uint32_t)(at - writes);
		}
	}
	s->nsteps = n;
	return at;
}

static int make_graph(struct serve_slot *s, struct pawl_engine *e, pawl_graph_t *out)
{
	pawl_var_t *vars = calloc(make_ops(s, NULL, NULL) + 1, sizeof(*vars));
	struct pawl_op *op = calloc(s->nsteps + 1, sizeof(*op));
	int rc = -ENOMEM;

	if (!s->step)
		s->step = calloc(s->nsteps + 1, sizeof(*s->step));
	if (vars && op && s->step) {
		make_ops(s, op, vars);
		rc = pawl_graph_create(e, op, s->nsteps, 0, out);
		if (rc)
			graph_err(s->err, s->errsize, rc, "%s", pawl_error_text());
	} else {
		slot_no_memory(s);
	}
	free(vars);
	free(op);
	return rc;
}

static int prepare(struct serve_slot *s)
{
	unsigned int i, n = 1;

	for (i = s->g->m.ninputs; !s->ort && i < s->nblocks; n += s->block[i++].parts)
		s->block[i].first = n;
	s->vars = calloc(n, sizeof(*s->vars));
	if (!s->vars)
		return slot_no_memory(s);
	s->nvars = n;
	return make_graph(s, s->e, &s->graph);
}

/* ---- the front's calls ------------------------------------------------------ */

int serve_slot_create(struct serve_model *m, struct pawl_engine *e,
		      const struct serve_shape *shapes, struct serve_slot **out, char *err,
		      size_t errsize)
{
	struct graph *g = (struct graph *)m;
	struct serve_slot *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return graph_err(err, errsize, -ENOMEM, "no memory for a slot");
	s->g = g;
	s->e = e;
	s->err = err;
	s->errsize = errsize;
	s->shape = calloc(g->nvalues + 1, sizeof(*s->shape));
	s->at = calloc(g->nvalues + 1, sizeof(*s->at));
	if (g->ort)
		rc = ort_plan(g->ort, m, shapes, g->limit, &s->ort, err, errsize);
	else
		rc = s->shape && s->at ? slot_begin(s, shapes) : slot_no_memory(s);
	if (rc) {
		serve_slot_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

/* The code and the descriptors of the primitives, about. */
static size_t prim_bytes(const struct serve_slot *s)
{
	size_t n = 0;
	unsigned int i, k;

	for (i = 0; i < s->njobs; i++)
		for (k = 0; s->job[i].prim && k < s->job[i].tiles; k++)
			n += s->job[i].prim[k] != NULL;
	return n * PRIM_BYTES;
}

int serve_slot_plan(struct serve_slot *s)
{
	int rc = s->ort ? 0 : slot_plan(s);

	if (!rc)
		rc = prepare(s);
	if (!rc && s->ort)
		s->apart = s->g->m.batch;
	else if (!rc)
		rc = slot_rows(s);
	if (!rc) {
		s->bytes += prim_bytes(s);
		s->err = NULL;
		s->errsize = 0;
	}
	return rc;
}

/* The next run finds zeros, as the first one did. */
size_t serve_slot_empty(struct serve_slot *s, size_t first, size_t most)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at, end;
	size_t done = 0, n;
	unsigned int i;

	for (i = 0; i < s->nblocks && done < most; i++) {
		/* the whole pages of the block */
		at = ((uintptr_t)s->block[i].data + page - 1) & -page;
		end = ((uintptr_t)s->block[i].data + s->block[i].bytes) & -page;
		n = end > at ? end - at : 0;
		if (first >= n) {
			first -= n;
			continue;
		}
		n -= first;
		n = n < most - done ? n : most - done;
		madvise((char *)at + first, n, MADV_DONTNEED);
		first = 0;
		done += n;
	}
	return done;
}

void serve_slot_destroy(struct serve_slot *s)
{
	unsigned int i, k;

	if (!s)
		return;
	if (s->graph.h)
		pawl_graph_delete(s->e, s->graph);
	ort_destroy(s->ort);
	/* the heap keeps the pages of what is freed */
	serve_slot_empty(s, 0, s->nfilled == s->nblocks ? SIZE_MAX : 0);
	for (i = 0; i < s->nblocks; i++) {
		free(s->block[i].data);
		free(s->block[i].users);
	}
	for (i = 0; i < s->njobs; i++) {
		struct job *j = &s->job[i];

		for (k = 0; j->prim && k < j->tiles; k++)
			prim_destroy(j->prim[k]);
		free(j->prim);
		free(j->chain);
		free(j->scratch);
		free(j->in);
		free(j->ins);
		free(j->in_piece);
	}
	for (i = 0; s->shape && i < s->g->nvalues; i++)
		if (s->shape[i].owned)
			free(s->shape[i].data);
	free(s->shape);
	free(s->at);
	free(s->piece);
	free(s->job);
	free(s->block);
	free(s->step);
	free(s->vars);
	free(s);
}

int serve_slot_move(struct serve_slot *s, struct pawl_engine *to)
{
	pawl_graph_t graph;
	int rc = make_graph(s, to, &graph);

	if (rc)
		return rc;
	pawl_graph_delete(s->e, s->graph);
	s->graph = graph;
	s->e = to;
	return 0;
}

size_t serve_slot_bytes(const struct serve_slot *s)
{
	return s->ort ? ort_bytes(s->ort) : s->bytes;
}

void *serve_slot_input(struct serve_slot *s, unsigned int i, size_t bytes)
{
	return s->ort ? ort_input(s->ort, i, bytes) : data_of(s, s->in_piece[i]);
}

const void *serve_slot_output(struct serve_slot *s, unsigned int i)
{
	return s->ort ? ort_output(s->ort, i) : data_of(s, s->out_piece[i]);
}

size_t serve_slot_output_bytes(const struct serve_slot *s, unsigned int i)
{
	return s->ort ? ort_output_bytes(s->ort, i) :
		(size_t)count(s->outputs[i].rank, s->outputs[i].dims) *
			type_size(s->g->m.outputs[i].type);
}

const struct serve_shape *serve_slot_output_shape(struct serve_slot *s, unsigned int i)
{
	return s->ort ? ort_output_shape(s->ort, i) : &s->outputs[i];
}

bool serve_slot_apart(const struct serve_slot *s)
{
	return s->apart;
}

int serve_slot_launch(struct serve_slot *s, const struct serve_launch *how)
{
	struct pawl_launch l = {
		.size = sizeof(l),
		.priority = how->priority,
		.device = { PAWL_CPU, 0 },
		.vars = s->vars,
		.nvars = s->nvars,
		.flags = PAWL_OP_CQ | PAWL_OP_TICKET,
		.cq = how->cq,
		.tag = how->tag,
		.deadline_ns = how->deadline_ns,
		.ticket = &s->ticket,
	};
	unsigned int i;

	if (how->deadline_ns)
		l.flags |= PAWL_OP_DEADLINE;
	s->vars[0] = how->weights;
	if (how->timed || s->timed)
		for (i = 0; i < s->nsteps; i++) {
			s->step[i].timed = how->timed;
			s->step[i].begin_ns = s->step[i].end_ns = 0;
		}
	s->timed = how->timed;
	if (s->ort)
		ort_start(s->ort);
	return pawl_graph_push(s->e, s->graph, &l);
}

void serve_slot_cancel(struct serve_slot *s)
{
	/* An error says that it has started, or that it is complete. */
	pawl_cancel(s->e, s->ticket);
	if (s->ort)
		ort_stop(s->ort);
}

void serve_slot_failure(struct serve_slot *s, char *text, size_t size)
{
	unsigned int i;

	for (*text = 0, i = 0; i < s->nsteps; i++) {
		const struct node *n = s->ort ? NULL : s->step[i].job->n;

		if (s->step[i].failed && s->ort)
			snprintf(text, size, "onnxruntime: %s", ort_why(s->ort));
		else if (s->step[i].failed && n)
			snprintf(text, size, "operator %s '%s'%s", n->type, n->name,
				 n->op == OP_GATHER ? ": an index is out of range" : "");
		s->step[i].failed = false;
	}
}

bool serve_slot_step(const struct serve_slot *s, unsigned int i, struct serve_step *out)
{
	const struct step *st = &s->step[i];

	if (i >= s->nsteps || !st->timed)
		return false;
	*out = (struct serve_step){ .name = st->ort ? s->g->m.name :
					    st->job->n ? st->job->n->name : "",
				    .op = st->ort ? "onnxruntime" :
					    st->job->n ? st->job->n->type : "copy",
				    .begin_ns = st->begin_ns, .end_ns = st->end_ns,
				    .thread = st->thread };
	return true;
}
