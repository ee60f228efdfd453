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
	else if (j->chain)
		chain_run(j->chain, &j->out, j->ins);
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

/*
 * Remove a slot's group and n vars from an engine.  Returns -EBUSY if an op has not left the
 * group.
 */
static int leave(struct pawl_engine *e, pawl_group_t group, const pawl_var_t *var,
		 unsigned int n)
{
	int rc = pawl_group_destroy(e, group);

	if (rc)
		return rc;
	while (n)
		pawl_var_delete(e, var[--n], NULL, NULL);
	return 0;
}

static int enter(struct pawl_engine *e, pawl_group_t *group, pawl_var_t *var, unsigned int n)
{
	int rc = pawl_group_create(e, NULL, group);
	unsigned int i;

	for (i = 0; !rc && i < n; i++) {
		rc = pawl_var_create(e, &var[i]);
		if (rc)
			leave(e, *group, var, i);
	}
	return rc;
}

static int prepare_ops(struct serve_slot *s)
{
	unsigned int i, n = 0;
	int rc;

	/* no op writes the inputs */
	for (i = s->g->m.ninputs; i < s->nblocks; i++)
		n += s->block[i].parts;
	s->block_vars = calloc(n + 1, sizeof(*s->block_vars));
	if (!s->block_vars)
		return slot_no_memory(s);
	rc = enter(s->e, &s->group, s->block_vars, n);
	if (rc)
		return engine_err(s, rc);
	s->entered = true;
	s->nblock_vars = n;
	for (i = s->g->m.ninputs, n = 0; i < s->nblocks; n += s->block[i++].parts)
		s->block[i].var = s->block_vars + n;
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
	rc = s->shape && s->at ? slot_begin(s, shapes) : slot_no_memory(s);
	if (rc) {
		serve_slot_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

int serve_slot_plan(struct serve_slot *s)
{
	int rc = slot_plan(s);

	if (!rc)
		rc = prepare_ops(s);
	if (!rc) {
		s->err = NULL;
		s->errsize = 0;
	}
	return rc;
}

void serve_slot_destroy(struct serve_slot *s)
{
	unsigned int i, k;

	if (!s)
		return;
	if (s->entered) {
		/* A completion arrives before the op has left its group. */
		pawl_group_wait(s->e, s->group, -1);
		leave(s->e, s->group, s->block_vars, s->nblock_vars);
	}
	free(s->block_vars);
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
	free(s->op);
	free(s->vars);
	free(s->weight_at);
	free(s);
}

int serve_slot_move(struct serve_slot *s, struct pawl_engine *to)
{
	unsigned int n = s->nblock_vars;
	pawl_var_t *var = calloc(n + 1, sizeof(*var));
	pawl_group_t group;
	int rc = var ? enter(to, &group, var, n) : -ENOMEM;

	if (!rc) {
		rc = leave(s->e, s->group, s->block_vars, n);
		if (rc)
			leave(to, group, var, n);
	}
	if (!rc) {
		/* the new vars have no errors */
		s->status = 0;
		s->e = to;
		s->group = group;
		memcpy(s->block_vars, var, n * sizeof(*var));
		make_ops(s, s->vars);
	}
	free(var);
	return rc;
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
	unsigned int i;

	if (s->status) {
		/* The run before ended with an error, which is still on its vars. */
		for (i = 0; i < s->nblock_vars; i++)
			pawl_var_clear(s->e, s->block_vars[i]);
		s->status = 0;
	}
	for (i = 0; i < s->nops; i++) {
		struct pawl_op *op = &s->op[i];

		s->vars[s->weight_at[i]] = how->weights;
		s->step[i].timed = how->timed;
		s->step[i].begin_ns = s->step[i].end_ns = 0;
		op->priority = how->priority;
		op->deadline_ns = how->deadline_ns;
		op->flags = how->deadline_ns ? PAWL_OP_GROUP | PAWL_OP_DEADLINE : PAWL_OP_GROUP;
	}
	s->op[s->nops - 1].flags |= PAWL_OP_CQ;
	s->op[s->nops - 1].cq = how->cq;
	s->op[s->nops - 1].tag = how->tag;
	return pawl_push_batch(s->e, s->op, s->nops);
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
