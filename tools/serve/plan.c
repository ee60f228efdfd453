// SPDX-License-Identifier: Apache-2.0
/*
 * plan.c - the plan of a run with given shapes.
 *
 * The plan is a list of jobs, in an order that a serial program could run.  A job is an
 * operator, or a copy into another layout; large operators are cut into tiles, which are ops
 * of their own.  Pictures have their channels last inside the model, and in rows at its inputs
 * and outputs.
 *
 * All data is in blocks of memory.  A job may reuse a block only if it depends on all jobs that
 * used the block before, so the reuse makes no job wait for one on which it does not depend.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "oper.h"
#include "slot.h"

#define MAX_JOBS	20000
#define MAX_TILES	64
#define TILE_FLOP	16e6			/* less work is not worth a separate op */
#define OP_FLOP		1e9			/* another model waits for about this much */
#define FILL_BYTES	((size_t)1 << 20)	/* of memory, zeroed as one piece of a plan */

/* Count memory before it is allocated: shapes come from clients. */
static int take(struct serve_slot *s, size_t bytes)
{
	if (bytes > s->g->limit || s->bytes > s->g->limit - bytes)
		return graph_err(s->err, s->errsize, -EINVAL,
				 "a run with these shapes needs more than %zu bytes",
				 s->g->limit);
	s->bytes += bytes;
	return 0;
}

/* ---- pieces and jobs -------------------------------------------------------- */

static void *more(void *array, unsigned int n, size_t size)
{
	if (n && (n < 64 || (n & (n - 1))))
		return array;
	return realloc(array, (n < 64 ? 64 : 2 * (size_t)n) * size);
}

static int new_piece(struct serve_slot *s, size_t bytes, int writer)
{
	struct piece *p = more(s->piece, s->npieces, sizeof(*p));

	if (!p)
		return -ENOMEM;
	s->piece = p;
	p[s->npieces] = (struct piece){ .bytes = bytes, .writer = writer, .block = -1 };
	return (int)s->npieces++;
}

static struct job *new_job(struct serve_slot *s, const struct node *n, unsigned int nin)
{
	struct job *j = more(s->job, s->njobs, sizeof(*j));
	unsigned int i;

	if (!j)
		return NULL;
	s->job = j;
	j += s->njobs;
	memset(j, 0, sizeof(*j));
	j->n = n;
	j->nin = nin;
	j->tiles = 1;
	j->in = calloc(nin, sizeof(*j->in));
	j->ins = calloc(nin, sizeof(*j->ins));
	j->in_piece = calloc(nin, sizeof(*j->in_piece));
	s->njobs++;
	if (!j->in || !j->ins || !j->in_piece)
		return NULL;
	for (i = 0; i < nin; i++)
		j->in_piece[i] = -1;
	return j;
}

static size_t shape_bytes(const struct shape *sh)
{
	return (size_t)count(sh->rank, sh->dims) * type_size(sh->type);
}

/* Both layouts of the value are the same. */
static bool one_form(const struct shape *sh)
{
	return sh->rank < 3 || sh->dims[1] == 1 || count(sh->rank - 2, sh->dims + 2) == 1;
}

static int new_value(struct serve_slot *s, int v, int form, int writer)
{
	int p = new_piece(s, shape_bytes(&s->shape[v]), writer);

	if (p >= 0) {
		s->at[v][form] = p;
		if (one_form(&s->shape[v]))
			s->at[v][!form] = p;
	}
	return p;
}

/* A job's view of a value; its data is set when memory is planned. */
static void see(struct serve_slot *s, int v, int form, struct view *view, int *piece)
{
	const struct shape *sh = &s->shape[v];

	*piece = sh->data ? -1 : s->at[v][form];
	view_of(view, sh->type, sh->rank, sh->dims, !sh->data && form == LAST, sh->data);
}

/* Provide the value in this layout, by a copy if needed.  Known data stays in rows. */
static int have(struct serve_slot *s, int v, int form, bool copy_known)
{
	struct shape *sh = &s->shape[v];
	struct job *j;
	int p;

	if (sh->data ? !copy_known : s->at[v][form] >= 0)
		return 0;
	if (s->at[v][form] >= 0)
		return 0;
	j = new_job(s, NULL, 1);
	p = j ? new_value(s, v, form, (int)s->njobs - 1) : -1;
	if (p < 0)
		return slot_no_memory(s);
	if (sh->data) {
		see(s, v, ROWS, &j->in[0], &j->in_piece[0]);
	} else {
		j->in_piece[0] = s->at[v][!form];
		view_of(&j->in[0], sh->type, sh->rank, sh->dims, form == ROWS, NULL);
	}
	j->out_piece = p;
	view_of(&j->out, sh->type, sh->rank, sh->dims, form == LAST, NULL);
	return 0;
}

/* ---- tiles ------------------------------------------------------------------ */

static int64_t max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Cut a convolution or a product: by images, by rows of one image, by rows of a matrix. */
static int make_prims(struct serve_slot *s, struct job *j)
{
	const struct node *n = j->n;
	bool conv = n->op == OP_CONV || n->op == OP_DECONV, rows = false;
	struct prim_spec spec = { .n = n, .in = j->in[0], .out = j->out, .weights = j->in[1] };
	int64_t all, o = count(j->out.rank, j->out.dims);
	const struct view *w = &j->in[1];
	double flop;
	unsigned int t, tiles;
	int rc;

	/* a product of nothing is for kernel_run() */
	if (!conv && !j->in[0].dims[n->a.trans_a ? 0 : j->in[0].rank - 1])
		return 0;
	/*
	 * Slots change nothing in a model but its list of packed weights.  Weights that are
	 * computed from shapes are those of this slot.
	 */
	if (s->g->value[n->in[1]].data)
		spec.packed = (struct packed **)(uintptr_t)&n->packed;
	if (n->nin > 2 && n->in[2] >= 0)
		spec.bias = j->in[2];
	/* Any pointer that is not NULL, so that prim_create() plans for it. */
	if (n->nin > 2 && n->in[2] >= 0 && !spec.bias.data)
		spec.bias.data = (char *)spec.bias.dims;
	flop = 2 * (double)o * (double)(conv ? count(w->rank - 1, w->dims + 1) :
					j->in[0].dims[j->in[0].rank - 1]);
	if (conv) {
		all = j->out.dims[0];
		rows = n->op == OP_CONV && all == 1 && j->out.rank == 4;
		if (rows)
			all = j->out.dims[2];
	} else {
		all = w->rank == 2 ? o / max64(1, j->out.dims[j->out.rank - 1]) : 1;
	}
	tiles = flop / TILE_FLOP < s->g->tiles ? (unsigned int)(flop / TILE_FLOP) : s->g->tiles;
	if (flop / OP_FLOP > tiles)
		tiles = flop / OP_FLOP < MAX_TILES ? (unsigned int)(flop / OP_FLOP) : MAX_TILES;
	if ((int64_t)tiles > all)
		tiles = (unsigned int)all;
	tiles = tiles ? tiles : 1;
	spec.rows = rows && tiles > 1;
	if (rows && tiles == 1)
		all = j->out.dims[0];
again:
	j->prim = calloc(tiles, sizeof(*j->prim));
	j->scratch = calloc(tiles, sizeof(*j->scratch));
	if (!j->prim || !j->scratch)
		return slot_no_memory(s);
	j->tiles = tiles;
	for (t = 0; t < tiles; t++) {
		size_t scratch;

		spec.first = all * t / tiles;
		spec.last = all * (t + 1) / tiles;
		rc = prim_create(&spec, &j->prim[t], &scratch);
		if (rc == -ENOTSUP && tiles > 1) {
			/* for example a tile that lies only in the padding */
			while (t-- > 0)
				prim_destroy(j->prim[t]);
			free(j->prim);
			free(j->scratch);
			j->prim = NULL;
			j->scratch = NULL;
			tiles = 1;
			all = rows ? 1 : all;
			spec.rows = false;
			goto again;
		}
		if (rc)
			return graph_err(
				s->err, s->errsize, rc,
				"operator %s '%s' cannot be computed with these shapes",
				n->type, n->name);
		j->scratch[t] = -1;
		if (scratch) {
			j->scratch[t] = new_piece(s, scratch, (int)s->njobs - 1);
			if (j->scratch[t] < 0)
				return slot_no_memory(s);
		}
	}
	return 0;
}

/* ---- operators -------------------------------------------------------------- */

static bool same_memory(enum op op)
{
	return op == OP_RESHAPE || op == OP_FLATTEN || op == OP_SQUEEZE || op == OP_UNSQUEEZE;
}

static bool same_dims(const struct shape *a, const struct shape *b)
{
	return a->rank == b->rank && !memcmp(a->dims, b->dims, a->rank * sizeof(*a->dims));
}

/* Is the operator's output identical to its input? */
static bool no_change(const struct node *n, const struct shape *const *in,
		      const struct shape *out)
{
	int64_t first[SERVE_RANK], by[SERVE_RANK];
	unsigned int i;

	if (n->op == OP_IDENTITY)
		return true;
	if ((n->op != OP_EXPAND && n->op != OP_SLICE && n->op != OP_CAST) ||
	    in[0]->type != out->type || !same_dims(in[0], out))
		return false;
	if (n->op != OP_SLICE)
		return true;
	slice_of(n, in, first, by);
	for (i = 0; i < out->rank; i++)
		if (first[i] || by[i] != 1)
			return false;
	return true;
}

/* Does a transposed view have the strides of the output in this layout? */
static bool lies(const struct view *v, const struct shape *out, int form)
{
	struct view o;
	unsigned int i;

	view_of(&o, out->type, out->rank, out->dims, form == LAST, NULL);
	for (i = 0; i < out->rank; i++)
		if (out->dims[i] != 1 && o.strides[i] != v->strides[i])
			return false;
	return true;
}

/*
 * Let the output use the memory of the input, in those layouts that the input has.  Returns
 * true if it does: then the operator needs no job.
 */
static bool alias(struct serve_slot *s, const struct node *n, const struct shape *const *in)
{
	const struct shape *out = &s->shape[n->out], *x = in[0];
	int *to = s->at[n->out], *from, f, t;
	struct view v, turned;

	if (!n->nin || n->in[0] < 0 || x->data)
		return false;
	from = s->at[n->in[0]];
	if (no_change(n, in, out)) {
		to[ROWS] = from[ROWS];
		to[LAST] = from[LAST];
	} else if (same_memory(n->op)) {
		to[ROWS] = from[ROWS];
		/* the channels of each pixel stay together, and the order of pixels the same */
		if (x->rank > 2 && out->rank > 2 && x->dims[0] == out->dims[0] &&
		    x->dims[1] == out->dims[1])
			to[LAST] = from[LAST];
	} else if (n->op == OP_TRANSPOSE) {
		for (f = ROWS; f <= LAST; f++) {
			if (from[f] < 0)
				continue;
			view_of(&v, x->type, x->rank, x->dims, f == LAST, NULL);
			turned = transposed(n, &v);
			for (t = ROWS; t <= LAST; t++)
				if (lies(&turned, out, t))
					to[t] = from[f];
		}
	}
	if (one_form(out))
		to[ROWS] = to[LAST] = to[ROWS] >= 0 ? to[ROWS] : to[LAST];
	return to[ROWS] >= 0 || to[LAST] >= 0;
}

/* The layout for an operator that accepts any: that of most of its input bytes. */
static int either(struct serve_slot *s, const struct node *n, const struct shape *const *in)
{
	size_t bytes[FORMS] = { 0 };
	unsigned int i;
	int f;

	for (i = 0; i < n->nin; i++) {
		if (n->in[i] < 0 || in[i]->data || in[i]->rank != s->shape[n->out].rank ||
		    one_form(in[i]))
			continue;
		for (f = ROWS; f <= LAST; f++)
			if (s->at[n->in[i]][f] >= 0)
				bytes[f] += shape_bytes(in[i]);
	}
	return bytes[LAST] && bytes[LAST] >= bytes[ROWS] ? LAST : ROWS;
}

/* The layout of the first input; FORMS means either. */
static int wanted(const struct node *n)
{
	switch (n->op) {
	case OP_CONV: case OP_DECONV: case OP_POOL: case OP_GLOBAL_POOL: case OP_LRN:
	case OP_RESIZE:
		return LAST;
	case OP_GEMM: case OP_MATMUL: case OP_SOFTMAX: case OP_ROW_NORM: case OP_RESHAPE: case OP_FLATTEN:
	case OP_SQUEEZE: case OP_UNSQUEEZE: case OP_GATHER: case OP_FILL:
	case OP_LOOKUP:
		return ROWS;
	case OP_TABLE:
		return n->oper->any ? FORMS : ROWS;
	default:
		return FORMS;
	}
}

/* Compute a value from known data now. */
static int compute(struct serve_slot *s, const struct node *n, struct view *view,
		   const struct view **ins)
{
	struct shape *o = &s->shape[n->out];
	struct view out;
	unsigned int i;
	int rc, piece;

	for (i = 0; i < n->nin; i++) {
		ins[i] = NULL;
		if (n->in[i] < 0)
			continue;
		see(s, n->in[i], ROWS, &view[i], &piece);
		ins[i] = &view[i];
	}
	rc = take(s, shape_bytes(o));
	if (rc)
		return rc;
	o->data = aligned(shape_bytes(o));
	if (!o->data)
		return slot_no_memory(s);
	o->owned = true;
	view_of(&out, o->type, o->rank, o->dims, false, o->data);
	rc = kernel_run(n, &out, ins);
	return rc ? graph_err(s->err, s->errsize, rc, "operator %s '%s': out of range",
			      n->type, n->name) : 0;
}

static int add_node(struct serve_slot *s, const struct node *n)
{
	const struct shape *shapes[MAX_INPUTS] = { NULL };	/* NULL: left out */
	struct view view[MAX_INPUTS];
	const struct view *ins[MAX_INPUTS];
	struct shape *out = &s->shape[n->out];
	int form = wanted(n), of, rc;
	bool known = kernel_has(n->op);
	struct job *j;
	unsigned int i;
	char text[256];

	for (i = 0; i < n->nin; i++) {
		shapes[i] = n->in[i] < 0 ? NULL : &s->shape[n->in[i]];
		if (shapes[i] && !shapes[i]->data && n->op != OP_SHAPE)
			known = false;
	}
	rc = shape_of(n, shapes, out, text, sizeof(text));
	if (rc)
		return graph_err(s->err, s->errsize, rc, "%s", text);
	if (known)
		return compute(s, n, view, ins);
	if (alias(s, n, shapes))
		return 0;
	if (same_memory(n->op) && !shapes[0]->data) {
		rc = have(s, n->in[0], ROWS, false);
		if (!rc)
			alias(s, n, shapes);
		return rc;
	}
	of = form == FORMS ? either(s, n, shapes) : form;
	for (i = 0; i < n->nin && !rc; i++) {
		if (n->in[i] < 0)
			continue;
		if (form != FORMS)
			rc = have(s, n->in[i], i || form == ROWS ? ROWS : LAST,
				  !i && form == LAST);
		else if (!shapes[i]->data && s->at[n->in[i]][of] < 0 &&
			 s->at[n->in[i]][!of] < 0)
			rc = -EINVAL;
	}
	if (rc)
		return rc;
	j = new_job(s, n, n->nin);
	if (!j)
		return slot_no_memory(s);
	for (i = 0; i < n->nin; i++) {
		int in_form = of;

		if (n->in[i] < 0)
			continue;
		if (form != FORMS && i)
			in_form = ROWS;
		else if (form == FORMS && s->at[n->in[i]][of] < 0)
			in_form = !of;
		see(s, n->in[i], in_form, &j->in[i], &j->in_piece[i]);
		if (!i && form != FORMS && shapes[i]->data && s->at[n->in[i]][form] >= 0) {
			/* known data, copied into this layout */
			j->in_piece[i] = s->at[n->in[i]][form];
			view_of(&j->in[i], shapes[i]->type, shapes[i]->rank, shapes[i]->dims,
				form == LAST, NULL);
		}
		j->ins[i] = &j->in[i];
	}
	j->out_piece = new_value(s, n->out, of, (int)s->njobs - 1);
	if (j->out_piece < 0)
		return slot_no_memory(s);
	view_of(&j->out, out->type, out->rank, out->dims, of == LAST, NULL);
	return kernel_has(n->op) ? 0 : make_prims(s, j);
}

/* An output lies in rows, in memory that no other job writes. */
static int add_output(struct serve_slot *s, unsigned int i)
{
	int v = s->g->out[i], p, k;
	struct shape *sh = &s->shape[v];
	unsigned int in;
	struct job *j;
	bool own;

	if (!sh->data) {
		k = have(s, v, ROWS, false);
		if (k)
			return k;
	}
	p = sh->data ? -1 : s->at[v][ROWS];
	own = p >= 0 && s->piece[p].writer >= 0;
	for (in = 0; in < s->g->m.ninputs; in++)
		own = own && s->in_piece[in] != p;
	if (!own) {
		j = new_job(s, NULL, 1);
		k = j ? new_piece(s, shape_bytes(sh), (int)s->njobs - 1) : -1;
		if (k < 0)
			return slot_no_memory(s);
		view_of(&j->in[0], sh->type, sh->rank, sh->dims, false, sh->data);
		view_of(&j->out, sh->type, sh->rank, sh->dims, false, NULL);
		j->in_piece[0] = p;
		j->out_piece = k;
		p = k;
	}
	s->piece[p].fixed = s->piece[p].live = true;
	s->out_piece[i] = p;
	s->outputs[i].rank = sh->rank;
	memcpy(s->outputs[i].dims, sh->dims, sh->rank * sizeof(*sh->dims));
	return 0;
}

/* ---- memory ----------------------------------------------------------------- */

static void set_bit(uint64_t *set, unsigned int i)
{
	set[i / 64] |= (uint64_t)1 << (i % 64);
}

/* A block that job j may write, or a new one. */
static int place(struct serve_slot *s, int piece, const uint64_t *before, size_t words)
{
	struct piece *p = &s->piece[piece];
	struct block *b, *best = NULL;
	size_t waste = SIZE_MAX, k;
	unsigned int i;

	for (i = 0; i < s->nblocks && !p->fixed; i++) {
		size_t off;

		b = &s->block[i];
		if (b->fixed)
			continue;
		for (k = 0; k < words && !(b->users[k] & ~before[k]); k++)
			;
		if (k < words)
			continue;
		off = b->bytes > p->bytes ? b->bytes - p->bytes : p->bytes - b->bytes;
		if (off < waste) {
			waste = off;
			best = b;
		}
	}
	if (!best) {
		b = more(s->block, s->nblocks, sizeof(*b));
		if (!b)
			return slot_no_memory(s);
		s->block = b;
		best = &b[s->nblocks++];
		memset(best, 0, sizeof(*best));
		best->fixed = p->fixed;
		best->parts = 1;
		best->users = calloc(words, sizeof(*best->users));
		if (!best->users)
			return slot_no_memory(s);
	}
	if (best->bytes < p->bytes)
		best->bytes = p->bytes;
	p->block = (int)(best - s->block);
	return 0;
}

static int plan_memory(struct serve_slot *s)
{
	size_t words = (s->njobs + 63) / 64 + 1;
	uint64_t *before = calloc((size_t)s->njobs * words + 1, sizeof(*before)), *mine;
	uint64_t *users = calloc((size_t)s->npieces * words + 1, sizeof(*users));
	unsigned int i, k, t;
	size_t w;
	int rc = before && users ? 0 : slot_no_memory(s);

	for (i = 0; i < s->njobs && !rc; i++) {
		struct job *j = &s->job[i];

		if (!s->piece[j->out_piece].live)
			continue;
		for (k = 0; k < j->nin; k++)
			if (j->in_piece[k] >= 0)
				set_bit(users + (size_t)j->in_piece[k] * words, i);
		set_bit(users + (size_t)j->out_piece * words, i);
		for (t = 0; j->scratch && t < j->tiles; t++)
			if (j->scratch[t] >= 0)
				set_bit(users + (size_t)j->scratch[t] * words, i);
	}
	for (i = 0; i < s->g->m.ninputs && !rc; i++)
		rc = place(s, s->in_piece[i], before, 0);
	for (i = 0; i < s->njobs && !rc; i++) {
		struct job *j = &s->job[i];
		struct block *b;

		if (!s->piece[j->out_piece].live)
			continue;
		mine = before + (size_t)i * words;
		for (k = 0; k < j->nin; k++) {
			int from = j->in_piece[k] < 0 ? -1 : s->piece[j->in_piece[k]].writer;

			if (from < 0)
				continue;
			for (w = 0; w < words; w++)
				mine[w] |= before[(size_t)from * words + w];
			set_bit(mine, (unsigned int)from);
		}
		for (t = 0; t <= j->tiles && !rc; t++) {
			int p = t == j->tiles ? j->out_piece : j->scratch ? j->scratch[t] : -1;

			if (p < 0)
				continue;
			rc = place(s, p, mine, words);
			if (rc)
				break;
			b = &s->block[s->piece[p].block];
			for (w = 0; w < words; w++)
				b->users[w] |= users[(size_t)p * words + w];
			if (t == j->tiles && b->parts < j->tiles)
				b->parts = j->tiles;
		}
	}
	for (i = 0; i < s->nblocks; i++) {
		free(s->block[i].users);
		s->block[i].users = NULL;
		if (!rc)
			rc = take(s, s->block[i].bytes);
	}
	free(before);
	free(users);
	return rc;
}

/* Allocate the next block, or continue to zero it, which takes as long as its memory is large. */
static int fill_block(struct serve_slot *s)
{
	struct block *b = &s->block[s->nfilled];
	size_t n = b->bytes - s->filled;

	if (!b->data)
		b->data = aligned(b->bytes);
	if (!b->data)
		return slot_no_memory(s);
	n = n < FILL_BYTES ? n : FILL_BYTES;
	memset(b->data + s->filled, 0, n);
	s->filled += n;
	if (s->filled == b->bytes) {
		s->filled = 0;
		s->nfilled++;
	}
	return 0;
}

static int bind(struct serve_slot *s, struct job *j)
{
	unsigned int k, t;
	int rc = 0;

	for (k = 0; k < j->nin; k++)
		if (j->in_piece[k] >= 0)
			j->in[k].data = data_of(s, j->in_piece[k]);
	j->out.data = data_of(s, j->out_piece);
	for (t = 0; j->prim && t < j->tiles && !rc; t++)
		rc = prim_bind(j->prim[t], j->in[0].data, j->out.data, j->in[1].data,
			       j->nin > 2 ? j->in[2].data : NULL, data_of(s, j->scratch[t]));
	return rc ? graph_err(s->err, s->errsize, rc, "oneDNN refuses a buffer") : 0;
}

/* ---- the plan -------------------------------------------------------------- */

static int check_inputs(struct serve_slot *s, const struct serve_shape *shapes)
{
	const struct serve_model *m = &s->g->m;
	unsigned int i, k;
	size_t bytes;

	for (i = 0; i < m->ninputs; i++) {
		const struct serve_io *io = &m->inputs[i];
		bool ok = shapes[i].rank == io->rank;

		for (k = 0; ok && k < io->rank; k++)
			ok = shapes[i].dims[k] >= 0 &&
				(io->dims[k] < 0 || io->dims[k] == shapes[i].dims[k]);
		if (!ok || dims_bytes(io->type, io->rank, shapes[i].dims, &bytes))
			return graph_err(s->err, s->errsize, -EINVAL,
					 "the shape of input '%s' is not the model's", io->name);
	}
	return 0;
}

int slot_begin(struct serve_slot *s, const struct serve_shape *shapes)
{
	struct graph *g = s->g;
	unsigned int i;
	int rc;

	rc = check_inputs(s, shapes);
	if (rc)
		return rc;
	for (i = 0; i < g->nvalues; i++) {
		const struct value *v = &g->value[i];
		struct shape *sh = &s->shape[i];

		sh->type = v->type;
		sh->rank = v->rank;
		memcpy(sh->dims, v->dims, sizeof(v->dims));
		sh->data = v->data;
		s->at[i][ROWS] = s->at[i][LAST] = -1;
	}
	for (i = 0; i < g->m.ninputs; i++) {
		struct shape *sh = &s->shape[g->in[i]];

		sh->rank = shapes[i].rank;
		memcpy(sh->dims, shapes[i].dims, sh->rank * sizeof(*sh->dims));
		s->in_piece[i] = new_value(s, g->in[i], ROWS, -1);
		if (s->in_piece[i] < 0)
			return slot_no_memory(s);
		s->piece[s->in_piece[i]].fixed = true;
	}
	return 0;
}

/* All jobs of operators exist: add those of the outputs, and decide where the data lies. */
static int lay_out(struct serve_slot *s)
{
	struct graph *g = s->g;
	unsigned int i, k;
	int rc;

	for (i = 0; i < g->m.noutputs; i++) {
		rc = add_output(s, i);
		if (rc)
			return rc;
	}
	if (s->njobs > MAX_JOBS)
		return graph_err(s->err, s->errsize, -ENOTSUP, "more than %d operators",
				 MAX_JOBS);
	for (i = s->njobs; i-- > 0; ) {
		const struct job *j = &s->job[i];

		for (k = 0; s->piece[j->out_piece].live && k < j->nin; k++)
			if (j->in_piece[k] >= 0)
				s->piece[j->in_piece[k]].live = true;
	}
	rc = slot_fuse(s);
	return rc ? rc : plan_memory(s);
}

int slot_plan(struct serve_slot *s)
{
	unsigned int i;
	int rc = 0;

	if (s->nplanned < s->g->nnodes) {
		rc = add_node(s, &s->g->node[s->nplanned++]);
	} else if (!s->nblocks) {		/* each output is in a block */
		rc = lay_out(s);
	} else if (s->nfilled < s->nblocks) {
		rc = fill_block(s);
	} else {
		for (i = 0; i < s->njobs && !rc; i++)
			if (s->piece[s->job[i].out_piece].live)
				rc = bind(s, &s->job[i]);
		return rc;
	}
	return rc ? rc : -EAGAIN;
}
