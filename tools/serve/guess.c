// SPDX-License-Identifier: Apache-2.0
/*
 * guess.c - shapes of outputs that a file does not state: those for some sizes of the inputs.
 *
 * What differs between two sizes may have any size.  If the model takes none of the sizes that
 * are tried, an output has one dimension of any size.  Only descriptions of the model say this;
 * answers have the shapes of their run.
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

#define KNOWN_BYTES ((size_t)1 << 16)		/* of data that is computed from shapes */

/* Data that the plan of a run would know, since it depends on shapes alone. */
static void *known(const struct node *n, const struct shape *const *in, const struct shape *out)
{
	struct view view[MAX_INPUTS], o;
	const struct view *ins[MAX_INPUTS] = { NULL };
	size_t bytes;
	unsigned int i;
	void *data;

	if (!kernel_has(n->op) || dims_bytes(out->type, out->rank, out->dims, &bytes) ||
	    bytes > KNOWN_BYTES)
		return NULL;
	for (i = 0; i < n->nin; i++) {
		if (!in[i])
			continue;
		if (!in[i]->data && n->op != OP_SHAPE)
			return NULL;
		view_of(&view[i], in[i]->type, in[i]->rank, in[i]->dims, false, in[i]->data);
		ins[i] = &view[i];
	}
	data = aligned(bytes);
	if (data) {
		view_of(&o, out->type, out->rank, out->dims, false, data);
		if (kernel_run(n, &o, ins)) {
			free(data);
			data = NULL;
		}
	}
	return data;
}

/* Shapes of the outputs for a batch and a size of all that may vary, if the model takes them. */
static bool try_size(struct graph *g, int64_t batch, int64_t size, struct shape *out)
{
	struct shape *s = calloc(g->nvalues + 1, sizeof(*s));
	const struct shape *in[MAX_INPUTS] = { NULL };
	unsigned int i, k;
	bool ok = s;

	for (i = 0; ok && i < g->nvalues; i++) {
		s[i].type = g->value[i].type;
		s[i].rank = g->value[i].rank;
		memcpy(s[i].dims, g->value[i].dims, sizeof(s[i].dims));
		s[i].data = g->value[i].data;
	}
	for (i = 0; ok && i < g->m.ninputs; i++) {
		s[g->in[i]].rank = g->in_io[i].rank;
		for (k = 0; k < g->in_io[i].rank; k++)
			s[g->in[i]].dims[k] = g->in_io[i].dims[k] > 0 ? g->in_io[i].dims[k] :
				k ? size : batch;
	}
	for (i = 0; ok && i < g->nnodes; i++) {
		const struct node *n = &g->node[i];
		struct shape *to = &s[n->out];

		for (k = 0; k < n->nin; k++)
			in[k] = n->in[k] < 0 ? NULL : &s[n->in[k]];
		ok = !shape_of(n, in, to, NULL, 0);
		if (ok) {
			to->data = known(n, in, to);
			to->owned = to->data;
		}
	}
	for (i = 0; ok && i < g->m.noutputs; i++)
		out[i] = s[g->out[i]];
	for (i = 0; s && i < g->nvalues; i++)
		if (s[i].owned)
			free(s[i].data);
	free(s);
	return ok;
}

static void differ(struct graph *g, const struct shape *a, const struct shape *b)
{
	unsigned int i, k;

	for (i = 0; i < g->m.noutputs; i++)
		for (k = 0; g->unstated[i] && k < a[i].rank; k++)
			if (b[i].rank != a[i].rank || a[i].dims[k] != b[i].dims[k])
				g->out_io[i].dims[k] = -1;
}

void graph_guess(struct graph *g)
{
	static const int64_t sizes[] = { 224, 299, 32, 28, 64, 112, 512, 16, 8, 1 };
	struct shape first[MAX_IO], other[MAX_IO];
	unsigned int i, k, n = sizeof(sizes) / sizeof(sizes[0]);
	bool any = false;

	for (i = 0; i < g->m.noutputs; i++)
		any = any || g->unstated[i];
	if (!any)
		return;
	for (k = 0; k < n && !try_size(g, 1, sizes[k], first); k++)
		;
	for (i = 0; i < g->m.noutputs; i++) {
		struct serve_io *io = &g->out_io[i];

		if (!g->unstated[i])
			continue;
		io->rank = k < n ? first[i].rank : 1;
		io->dims[0] = -1;
		if (k < n)
			memcpy(io->dims, first[i].dims, sizeof(first[i].dims));
	}
	if (k < n && try_size(g, 2, sizes[k], other))
		differ(g, first, other);
	if (k < n && try_size(g, 1, sizes[k] + 64, other))
		differ(g, first, other);
}
