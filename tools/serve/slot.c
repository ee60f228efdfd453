// SPDX-License-Identifier: Apache-2.0
/*
 * slot.c - a slot: the ops of a plan (plan.c), and their launch.
 *
 * A block has a var for each tile of the operator that writes it in the most tiles.  The ops
 * name these vars, and so the engine keeps the order.
 *
 * A launch pushes the prepared ops as one batch.  The last op has no body.  It reads the blocks
 * of the outputs, which depend on all other ops, and so its completion is that of the run.
 *
 * Creating and destroying a slot is blocking.  A launch does what pawl_push_batch() does.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "slot.h"

int slot_no_memory(struct serve_slot *s)
{
	return graph_err(s->err, s->errsize, -ENOMEM, "%s: no memory for a slot", s->g->file);
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
	int rc = 0;

	if (st->timed) {
		st->thread = gettid();
		st->begin_ns = clock_ns();
	}
	if (st->prim)
		rc = prim_run(st->prim);
	else if (j->n)
		rc = kernel_run(j->n, &j->out, j->ins);
	else
		view_copy(&j->out, &j->in[0]);
	if (st->timed)
		st->end_ns = clock_ns();
	return rc ? pawl_fail(run, rc, "operator %s '%s' failed", j->n ? j->n->type : "copy",
			      j->n ? j->n->name : "") : 0;
}

static void ended(void *arg, int status)
{
	struct serve_slot *s = arg;

	s->status = status;
}

static size_t add_vars(struct serve_slot *s, pawl_var_t *to, int piece, unsigned int tile,
		       unsigned int tiles)
{
	const struct block *b;
	unsigned int i, n = 0;

	if (piece < 0)
		return 0;
	b = &s->block[s->piece[piece].block];
	if (!b->var)
		return 0;			/* an input of the model */
	for (i = b->parts * tile / tiles; i < b->parts * (tile + 1) / tiles; i++) {
		if (to)
			to[n] = b->var[i];
		n++;
	}
	return n;
}

/* The ops, or only how many vars they name: vars is NULL. */
static size_t make_ops(struct serve_slot *s, pawl_var_t *vars)
{
	unsigned int i, k, t, n = 0;
	size_t at = 0;

	for (i = 0; i <= s->njobs; i++) {
		struct job *j = i < s->njobs ? &s->job[i] : NULL;

		if (j && !s->piece[j->out_piece].live)
			continue;
		for (t = 0; t < (j ? j->tiles : 1); t++, n++) {
			size_t reads = at, writes;

			at++;			/* the weights */
			for (k = 0; j && k < j->nin; k++)
				at += add_vars(s, vars ? vars + at : NULL, j->in_piece[k], 0,
					       1);
			for (k = 0; !j && k < s->g->m.noutputs; k++)
				at += add_vars(s, vars ? vars + at : NULL, s->out_piece[k], 0,
					       1);
			writes = at;
			if (j) {
				at += add_vars(s, vars ? vars + at : NULL, j->out_piece, t,
					       j->tiles);
				if (j->scratch)
					at += add_vars(s, vars ? vars + at : NULL,
						       j->scratch[t], 0, 1);
			}
			if (!vars)
				continue;
			s->step[n] = (struct step){ .job = j,
						    .prim = j && j->prim ? j->prim[t] : NULL };
			s->op[n] = (struct pawl_op)PAWL_OP_INIT;
			s->op[n].fn = j ? body : NULL;
			s->op[n].arg = j ? (void *)&s->step[n] : s;
			s->op[n].release = j ? NULL : ended;
			s->op[n].name = !j ? "answer" : j->n ? j->n->type : "copy";
			s->op[n].reads = vars + reads;
			s->op[n].nreads = (uint32_t)(writes - reads);
			s->op[n].writes = vars + writes;
			s->op[n].nwrites = (uint32_t)(at - writes);
			s->op[n].flags = PAWL_OP_GROUP;
			s->op[n].group = s->group;
			s->weight_at[n] = reads;
		}
	}
	s->nops = n;
	return at;
}

static int engine_err(struct serve_slot *s, int rc)
{
	return graph_err(s->err, s->errsize, rc, "%s: %s", s->g->file, pawl_error_text());
}

static int prepare_ops(struct serve_slot *s)
{
	unsigned int i, k;
	int rc;

	rc = pawl_group_create(s->e, NULL, &s->group);
	if (rc)
		return engine_err(s, rc);
	s->has_group = true;
	for (i = 0; i < s->nblocks; i++) {
		struct block *b = &s->block[i];

		if (i < s->g->m.ninputs)
			continue;		/* no op writes it */
		b->var = calloc(b->parts, sizeof(*b->var));
		if (!b->var)
			return slot_no_memory(s);
		for (k = 0; k < b->parts; k++) {
			rc = pawl_var_create(s->e, &b->var[k]);
			if (rc)
				return engine_err(s, rc);
		}
	}
	s->vars = calloc(make_ops(s, NULL) + 1, sizeof(*s->vars));
	s->step = calloc(s->nops, sizeof(*s->step));
	s->op = calloc(s->nops, sizeof(*s->op));
	s->weight_at = calloc(s->nops, sizeof(*s->weight_at));
	if (!s->vars || !s->step || !s->op || !s->weight_at)
		return slot_no_memory(s);
	make_ops(s, s->vars);
	return 0;
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
		return graph_err(err, errsize, -ENOMEM, "%s: no memory for a slot", g->file);
	s->g = g;
	s->e = e;
	s->err = err;
	s->errsize = errsize;
	s->shape = calloc(g->nvalues + 1, sizeof(*s->shape));
	s->at = calloc(g->nvalues + 1, sizeof(*s->at));
	rc = s->shape && s->at ? slot_plan(s, shapes) : slot_no_memory(s);
	if (!rc)
		rc = prepare_ops(s);
	s->err = NULL;
	s->errsize = 0;
	if (rc) {
		serve_slot_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

void serve_slot_destroy(struct serve_slot *s)
{
	unsigned int i, k;

	if (!s)
		return;
	if (s->has_group) {
		/* A completion arrives before the op has left its group. */
		pawl_group_wait(s->e, s->group, -1);
		pawl_group_destroy(s->e, s->group);
	}
	for (i = 0; i < s->nblocks; i++) {
		for (k = 0; s->block[i].var && k < s->block[i].parts; k++)
			if (s->block[i].var[k].h)
				pawl_var_delete(s->e, s->block[i].var[k], NULL, NULL);
		free(s->block[i].var);
		free(s->block[i].data);
		free(s->block[i].users);
	}
	for (i = 0; i < s->njobs; i++) {
		struct job *j = &s->job[i];

		for (k = 0; j->prim && k < j->tiles; k++)
			prim_destroy(j->prim[k]);
		free(j->prim);
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
	free(s->op);
	free(s->vars);
	free(s->weight_at);
	free(s);
}

size_t serve_slot_bytes(const struct serve_slot *s)
{
	return s->bytes;
}

void *serve_slot_input(struct serve_slot *s, unsigned int i)
{
	return data_of(s, s->in_piece[i]);
}

const void *serve_slot_output(struct serve_slot *s, unsigned int i)
{
	return data_of(s, s->out_piece[i]);
}

const struct serve_shape *serve_slot_output_shape(struct serve_slot *s, unsigned int i)
{
	return &s->outputs[i];
}

int serve_slot_launch(struct serve_slot *s, const struct serve_launch *how)
{
	unsigned int i, k;
	int rc;

	if (s->status) {
		/* The run before ended with an error, which is still on its vars. */
		for (i = 0; i < s->nblocks; i++)
			for (k = 0; s->block[i].var && k < s->block[i].parts; k++)
				pawl_var_clear(s->e, s->block[i].var[k]);
		s->status = 0;
	}
	for (i = 0; i < s->nops; i++) {
		struct pawl_op *op = &s->op[i];

		s->vars[s->weight_at[i]] = how->weights;
		s->step[i].timed = how->timed;
		op->priority = how->priority;
		op->deadline_ns = how->deadline_ns;
		op->flags = how->deadline_ns ? PAWL_OP_GROUP | PAWL_OP_DEADLINE : PAWL_OP_GROUP;
	}
	s->op[s->nops - 1].flags |= PAWL_OP_CQ;
	s->op[s->nops - 1].cq = how->cq;
	s->op[s->nops - 1].tag = how->tag;
	rc = pawl_push_batch(s->e, s->op, s->nops);
	return rc;
}

int serve_slot_cancel(struct serve_slot *s)
{
	return pawl_group_cancel(s->e, s->group);
}

bool serve_slot_step(const struct serve_slot *s, unsigned int i, struct serve_step *out)
{
	const struct step *st = &s->step[i];

	/* the last op has no body */
	if (i + 1 >= s->nops || !st->timed)
		return false;
	*out = (struct serve_step){ .name = st->job->n ? st->job->n->name : "",
				    .op = st->job->n ? st->job->n->type : "copy",
				    .begin_ns = st->begin_ns, .end_ns = st->end_ns,
				    .thread = st->thread };
	return true;
}
