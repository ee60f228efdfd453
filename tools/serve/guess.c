// SPDX-License-Identifier: Apache-2.0
/*
 * guess.c - tries some sizes of the inputs: for the shapes of outputs that a file does not state,
 * and for what no run of the model could compute.
 *
 * What differs between two sizes may have any size.  If the model takes none of the sizes that
 * are tried, an output has one dimension of any size.  Only descriptions of the model say this;
 * answers have the shapes of their run.
 */
#include <errno.h>
#include <stdio.h>
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

/* Note an operator that refuses: the text of the error begins with its name. */
static void block(struct graph *g, const struct node *n, const char *text)
{
	char what[128], head[512];
	size_t len;

	snprintf(what, sizeof(what), "operator %s", n->type);
	len = (size_t)snprintf(head, sizeof(head), "%s '%s': ", what, n->name);
	graph_block(g, what, n->name, "%s", strncmp(text, head, strlen(head)) ? text : text + len);
}

/* What came of a size that was tried. */
struct trial {
	struct shape out[MAX_IO];
	unsigned int node;			/* that refuses it; else all take it */
	unsigned int nblocked;			/* nodes that run with no size like this */
};

/* Shapes of the outputs for a batch and a size of all that may vary.  note: record what blocks. */
static bool try_size(struct graph *g, int64_t batch, int64_t size, struct trial *t, bool note)
{
	struct shape *s = calloc(g->nvalues + 1, sizeof(*s));
	bool *unknown = calloc(g->nvalues + 1, sizeof(*unknown)), ok = s && unknown;
	const struct shape *in[MAX_INPUTS] = { NULL };
	unsigned int i, k;
	char text[256];
	int rc = 0;

	t->nblocked = 0;
	for (i = 0; ok && i < g->nvalues; i++) {
		s[i].type = g->value[i].type;
		s[i].rank = g->value[i].rank;
		memcpy(s[i].dims, g->value[i].dims, sizeof(s[i].dims));
		s[i].data = g->value[i].data;
		unknown[i] = g->value[i].unknown;
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

		if (to->data)
			continue;		/* a constant */
		for (k = 0; k < n->nin; k++) {
			in[k] = n->in[k] < 0 ? NULL : &s[n->in[k]];
			unknown[n->out] = unknown[n->out] || (in[k] && unknown[n->in[k]]);
		}
		if (unknown[n->out])
			continue;
		rc = shape_of(n, in, to, text, sizeof(text));
		if (rc == -ENOTSUP) {
			unknown[n->out] = true;
			t->nblocked++;
			if (note)
				block(g, n, text);
		} else if (rc) {
			break;
		} else {
			to->data = known(n, in, to);
			to->owned = to->data;
		}
	}
	t->node = i;
	ok = ok && i == g->nnodes && !t->nblocked;
	for (i = 0; ok && i < g->m.noutputs; i++) {
		ok = !unknown[g->out[i]];
		t->out[i] = s[g->out[i]];
	}
	for (i = 0; s && i < g->nvalues; i++)
		if (s[i].owned)
			free(s[i].data);
	free(s);
	free(unknown);
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

bool graph_guess(struct graph *g)
{
	static const int64_t sizes[] = { 224, 299, 32, 28, 64, 112, 512, 16, 8, 1 };
	unsigned int i, k, n = sizeof(sizes) / sizeof(sizes[0]), best = n, far = 0;
	struct trial *t = calloc(2, sizeof(*t));
	bool takes;

	if (!t)
		return false;
	for (k = 0; k < n && !try_size(g, 1, sizes[k], &t[0], false); k++)
		if (t[0].nblocked && (best == n || t[0].node > far)) {
			best = k;
			far = t[0].node;
		}
	takes = k < n;
	if (!takes && best < n)
		try_size(g, 1, sizes[best], &t[1], true);
	for (i = 0; i < g->m.noutputs; i++) {
		struct serve_io *io = &g->out_io[i];

		if (!g->unstated[i])
			continue;
		io->rank = takes ? t[0].out[i].rank : 1;
		io->dims[0] = -1;
		if (takes)
			memcpy(io->dims, t[0].out[i].dims, sizeof(t[0].out[i].dims));
	}
	if (takes && try_size(g, 2, sizes[k], &t[1], false))
		differ(g, t[0].out, t[1].out);
	if (takes && try_size(g, 1, sizes[k] + 64, &t[1], false))
		differ(g, t[0].out, t[1].out);
	free(t);
	return takes;
}
