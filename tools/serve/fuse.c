// SPDX-License-Identifier: Apache-2.0
/*
 * fuse.c - merge jobs of elementwise operators into chains, each of which is one job.
 *
 * A job joins the job that reads its output if no other job reads it, and if the outputs of
 * both have the same shape and layout.  So only the result of its last operator leaves a chain.
 * A chain depends on what its members depend on, and none of that can depend on the chain.
 */
#include <stdlib.h>
#include <string.h>

#include "slot.h"

enum { NONE = -1, SEVERAL = -2 };

static bool can_join(const struct job *j)
{
	unsigned int i;

	if (!j->n || !chainable(j->n) || j->out.type != SERVE_FP32)
		return false;
	for (i = 0; i < j->nin; i++)
		if (j->in[i].type != SERVE_FP32)
			return false;
	return true;
}

static bool same_view(const struct view *a, const struct view *b)
{
	unsigned int i;

	if (a->rank != b->rank)
		return false;
	for (i = 0; i < a->rank; i++)
		if (a->dims[i] != b->dims[i] ||
		    (a->dims[i] != 1 && a->strides[i] != b->strides[i]))
			return false;
	return true;
}

/* Return the operand number (struct chain) of input k of job j. */
static int operand(struct serve_slot *s, struct job *chain, struct job *j, unsigned int k,
		   const int *group, const int *result, int root)
{
	int p = j->in_piece[k], w = p < 0 ? -1 : s->piece[p].writer;
	unsigned int i;

	if (w >= 0 && group[w] == root)
		return result[w];
	for (i = 0; i < chain->nin; i++)
		if (chain->in_piece[i] == p && chain->in[i].data == j->in[k].data &&
		    same_view(&chain->in[i], &j->in[k]))
			return (int)i + 1;
	chain->in_piece[i] = p;
	chain->in[i] = j->in[k];
	chain->ins[i] = &chain->in[i];
	chain->nin++;
	return (int)i + 1;
}

/* Make the job root compute all jobs of its group. */
static int make_chain(struct serve_slot *s, int root, const int *group, int *result)
{
	struct job *last = &s->job[root], all = *last;
	unsigned int max = CHAIN_STEPS + 1, k;
	struct chain *c = calloc(1, sizeof(*c));
	int i, left = 0;

	all.chain = c;
	all.nin = 0;
	all.in = calloc(max, sizeof(*all.in));
	all.ins = calloc(max, sizeof(*all.ins));
	all.in_piece = calloc(max, sizeof(*all.in_piece));
	if (!c || !all.in || !all.ins || !all.in_piece) {
		free(c);
		free(all.in);
		free(all.ins);
		free(all.in_piece);
		return slot_no_memory(s);
	}
	/* The members precede the root.  Each stores its result in a separate buffer. */
	for (i = 0; i <= root; i++) {
		struct job *j = &s->job[i];
		struct chain_step *st = &c->step[c->n];

		if (group[i] != root)
			continue;
		st->n = j->n;
		for (k = 0; k < j->nin; k++)
			st->operand[k + 1] = operand(s, &all, j, k, group, result, root);
		result[i] = i == root ? 0 : --left;
		st->operand[0] = result[i];
		c->n++;
		if (i != root)
			s->piece[j->out_piece].live = false;
	}
	c->nin = all.nin;
	free(last->in);
	free(last->ins);
	free(last->in_piece);
	*last = all;
	return 0;
}

int slot_fuse(struct serve_slot *s)
{
	int *group = malloc((s->njobs + 1) * sizeof(*group));
	int *members = calloc(s->njobs + 1, sizeof(*members));
	int *result = calloc(s->njobs + 1, sizeof(*result));
	int *reader = malloc((s->npieces + 1) * sizeof(*reader));	/* or see above */
	int i, rc = 0;
	unsigned int k;

	if (!group || !members || !result || !reader) {
		rc = slot_no_memory(s);
		goto out;
	}
	for (k = 0; k < s->npieces; k++)
		reader[k] = NONE;
	for (i = (int)s->njobs - 1; i >= 0; i--) {
		struct job *j = &s->job[i];
		const struct piece *p = &s->piece[j->out_piece];
		int to = reader[j->out_piece];
		bool joins = can_join(j);

		group[i] = NONE;
		if (!p->live)
			continue;
		if (joins && !p->fixed && to >= 0 && members[to] < CHAIN_STEPS &&
		    same_view(&j->out, &s->job[to].out))
			group[i] = to;
		else
			group[i] = i;
		members[group[i]]++;
		for (k = 0; k < j->nin; k++) {
			int in = j->in_piece[k], w = in < 0 ? -1 : s->piece[in].writer;

			if (w < 0)
				continue;
			if (!joins || !same_view(&j->in[k], &s->job[w].out) ||
			    (reader[in] != NONE && reader[in] != group[i]))
				reader[in] = SEVERAL;
			else
				reader[in] = group[i];
		}
	}
	for (i = 0; i < (int)s->njobs && !rc; i++)
		if (group[i] == i && members[i] > 1)
			rc = make_chain(s, i, group, result);
out:
	free(group);
	free(members);
	free(result);
	free(reader);
	return rc;
}
