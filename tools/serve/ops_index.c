// SPDX-License-Identifier: Apache-2.0
/* ops_index.c - operators that find or use positions of elements: rows of a table (oper.h). */
#include <math.h>
#include <string.h>

#include "oper.h"
#include "rows.h"

static int64_t index_at(const struct view *v, int64_t i)
{
	return load_whole(v->type, v->data + i * (int64_t)type_size(v->type));
}

static int whole_indices(const struct ctx *c, const struct shape *in)
{
	return in->type == SERVE_INT64 || in->type == SERVE_INT32 ? 0 :
		bad(c, "indices that are not whole numbers");
}

/* ---- what is done with an element that is there already ------------------------------ */

enum { PUT, PUT_ADD, PUT_MUL, PUT_MIN, PUT_MAX };

#define PUT_AS(T, U) do { \
	T x, y; \
	memcpy(&x, to, sizeof(x)); \
	memcpy(&y, from, sizeof(y)); \
	x = how == PUT_ADD ? (T)((U)x + (U)y) : how == PUT_MUL ? (T)((U)x * (U)y) : \
		how == PUT_MIN ? (y < x ? y : x) : (y > x ? y : x); \
	memcpy(to, &x, sizeof(x)); \
} while (0)

static void put(enum serve_type type, char *to, const char *from, int64_t how)
{
	switch (how == PUT ? SERVE_BYTES : type) {
	case SERVE_FP32:
		PUT_AS(float, float);
		break;
	case SERVE_FP64:
		PUT_AS(double, double);
		break;
	case SERVE_INT32:
		PUT_AS(int32_t, uint32_t);
		break;
	case SERVE_INT64:
		PUT_AS(int64_t, uint64_t);
		break;
	default:
		memcpy(to, from, type_size(type));
	}
}

static int reduction_ok(const struct ctx *c, const struct shape *x, int64_t how)
{
	return how == PUT || ((T_NUMBERS | BIT(FP64)) >> x->type & 1) ? 0 :
		bad_shape(c, -ENOTSUP, "a reduction of this type");
}

/* ---- elements along an axis ------------------------------------------------------------ */

static int shape_gather_elements(const struct ctx *c, const struct shape *const *in,
				 struct shape *out)
{
	const struct shape *x = in[0], *at = in[1];
	unsigned int i, axis = (unsigned int)axis_of(c->n->a.p[0], x->rank);
	int rc = whole_indices(c, at);

	if (rc)
		return rc;
	if (!axis_ok(axis_of(c->n->a.p[0], x->rank), x->rank) || at->rank != x->rank)
		return bad(c, "axis %lld, %u dimensions, indices of %u", (long long)c->n->a.p[0],
			   x->rank, at->rank);
	for (i = 0; i < x->rank; i++)
		if (i != axis && at->dims[i] > x->dims[i])
			return bad(c, "more indices than elements in dimension %u", i);
	out->rank = at->rank;
	memcpy(out->dims, at->dims, sizeof(out->dims));
	return 0;
}

/*
 * Call for each index the position of the element in the data, in elements, whose dimensions
 * off the axis may be larger than those of the indices.  Returns -1 if an index is out of range.
 */
struct along {
	const struct view *x, *index;
	unsigned int axis;
	int64_t at[SERVE_RANK], i, all;
};

static void along_begin(struct along *l, const struct view *x, const struct view *index, int64_t axis)
{
	*l = (struct along){ .x = x, .index = index, .axis = (unsigned int)axis_of(axis, x->rank) };
	l->all = count(index->rank, index->dims);
}

static int64_t along_next(struct along *l)
{
	int64_t k = index_at(l->index, l->i), len = l->x->dims[l->axis], to = 0;
	unsigned int i;

	k = k < 0 ? k + len : k;
	if (k < 0 || k >= len)
		return -1;
	for (i = 0; i < l->x->rank; i++)
		to += (i == l->axis ? k : l->at[i]) * l->x->strides[i];
	for (i = l->x->rank; i-- > 0; ) {
		if (++l->at[i] < l->index->dims[i])
			break;
		l->at[i] = 0;
	}
	l->i++;
	return to;
}

static int run_gather_elements(const struct node *n, const struct view *out,
			       const struct view *const *in)
{
	size_t size = type_size(out->type);
	struct along l;
	int64_t i, from;

	along_begin(&l, in[0], in[1], n->a.p[0]);
	for (i = 0; i < l.all; i++) {
		from = along_next(&l);
		if (from < 0)
			return -EINVAL;
		memcpy(out->data + (size_t)i * size, in[0]->data + (size_t)from * size, size);
	}
	return 0;
}

static int shape_scatter_elements(const struct ctx *c, const struct shape *const *in,
				  struct shape *out)
{
	struct shape like;
	int rc;

	if (in[0]->rank != in[2]->rank || in[2]->type != in[0]->type ||
	    in[1]->rank != in[2]->rank ||
	    memcmp(in[1]->dims, in[2]->dims, in[1]->rank * sizeof(*in[1]->dims)))
		return bad(c, "indices and updates differ");
	rc = shape_gather_elements(c, in, &like);
	if (!rc)
		rc = reduction_ok(c, in[0], c->n->a.p[1]);
	return rc ? rc : shape_same(c, in, out);
}

static int run_scatter_elements(const struct node *n, const struct view *out,
				const struct view *const *in)
{
	size_t size = type_size(out->type);
	struct along l;
	int64_t i, to;

	memcpy(out->data, in[0]->data, (size_t)count(out->rank, out->dims) * size);
	along_begin(&l, out, in[1], n->a.p[0]);
	for (i = 0; i < l.all; i++) {
		to = along_next(&l);
		if (to < 0)
			return -EINVAL;
		put(out->type, out->data + (size_t)to * size, in[2]->data + (size_t)i * size, n->a.p[1]);
	}
	return 0;
}

/* ---- slices by tuples of indices ------------------------------------------------------- */

static int tuples(const struct ctx *c, const struct shape *x, const struct shape *at,
		  int64_t batch, unsigned int *len)
{
	unsigned int i;
	int rc = whole_indices(c, at);

	*len = 0;
	if (rc)
		return rc;
	if (!at->rank || !x->rank || batch < 0 || batch >= (int64_t)at->rank ||
	    batch >= (int64_t)x->rank || at->dims[at->rank - 1] < 1 ||
	    at->dims[at->rank - 1] > (int64_t)x->rank - batch)
		return bad(c, "%u dimensions, indices of %u, batch_dims %lld", x->rank, at->rank,
			   (long long)batch);
	for (i = 0; i < (unsigned int)batch; i++)
		if (x->dims[i] != at->dims[i])
			return bad(c, "batches of %lld and %lld", (long long)x->dims[i],
				   (long long)at->dims[i]);
	*len = (unsigned int)at->dims[at->rank - 1];
	return 0;
}

static int shape_gather_nd(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0], *at = in[1];
	unsigned int i, len, from;
	int rc = tuples(c, x, at, c->n->a.p[0], &len);

	if (rc)
		return rc;
	from = (unsigned int)c->n->a.p[0] + len;
	if (at->rank - 1 + x->rank - from > SERVE_RANK)
		return bad(c, "too many dimensions");
	out->rank = at->rank - 1;
	memcpy(out->dims, at->dims, out->rank * sizeof(*out->dims));
	for (i = from; i < x->rank; i++)
		out->dims[out->rank++] = x->dims[i];
	return 0;
}

/* The offset of the slice that tuple i names, in elements, or -1. */
static int64_t tuple_at(const struct view *x, const struct view *index, unsigned int batch,
			int64_t i)
{
	int64_t len = index->dims[index->rank - 1], k, d, to = 0, each;

	each = count(index->rank - 1 - batch, index->dims + batch);
	if (batch)
		to = i / each * x->strides[batch - 1];
	for (k = 0; k < len; k++) {
		int64_t at = index_at(index, i * len + k);

		d = x->dims[batch + (unsigned int)k];
		at = at < 0 ? at + d : at;
		if (at < 0 || at >= d)
			return -1;
		to += at * x->strides[batch + (unsigned int)k];
	}
	return to;
}

static int run_gather_nd(const struct node *n, const struct view *out, const struct view *const *in)
{
	unsigned int batch = (unsigned int)n->a.p[0];
	unsigned int used = batch + (unsigned int)in[1]->dims[in[1]->rank - 1];
	int64_t each = count(in[0]->rank - used, in[0]->dims + used), i, from;
	int64_t all = count(in[1]->rank - 1, in[1]->dims);
	size_t size = type_size(out->type);

	for (i = 0; i < all; i++) {
		from = tuple_at(in[0], in[1], batch, i);
		if (from < 0)
			return -EINVAL;
		memcpy(out->data + (size_t)(i * each) * size, in[0]->data + (size_t)from * size,
		       (size_t)each * size);
	}
	return 0;
}

static int shape_scatter_nd(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0], *at = in[1], *up = in[2];
	unsigned int i, len;
	int rc = tuples(c, x, at, 0, &len);

	if (!rc)
		rc = reduction_ok(c, x, c->n->a.p[0]);
	if (rc)
		return rc;
	if (up->type != x->type || up->rank != at->rank - 1 + x->rank - len)
		return bad(c, "updates");
	for (i = 0; i < up->rank; i++)
		if (up->dims[i] != (i < at->rank - 1 ? at->dims[i] : x->dims[i - (at->rank - 1) + len]))
			return bad(c, "updates of %lld in dimension %u", (long long)up->dims[i], i);
	return shape_same(c, in, out);
}

static int run_scatter_nd(const struct node *n, const struct view *out, const struct view *const *in)
{
	unsigned int len = (unsigned int)in[1]->dims[in[1]->rank - 1];
	int64_t each = count(out->rank - len, out->dims + len), i, k, to;
	int64_t all = count(in[1]->rank - 1, in[1]->dims);
	size_t size = type_size(out->type);

	memcpy(out->data, in[0]->data, (size_t)count(out->rank, out->dims) * size);
	for (i = 0; i < all; i++) {
		to = tuple_at(out, in[1], 0, i);
		if (to < 0)
			return -EINVAL;
		if (n->a.p[0] == PUT)
			memcpy(out->data + (size_t)to * size, in[2]->data + (size_t)(i * each) * size,
			       (size_t)each * size);
		else
			for (k = 0; k < each; k++)
				put(out->type, out->data + (size_t)(to + k) * size,
				    in[2]->data + (size_t)(i * each + k) * size, n->a.p[0]);
	}
	return 0;
}

static bool rows_gather_nd(struct rows *r)
{
	if (r->at[1]->state != AXIS || r->at[1]->axis || r->in[1]->rank < 2)
		return false;
	if (row_plain(r, 0))
		return !r->node->a.p[0] && row_along(r, 0, r->at[1]->k);
	return r->node->a.p[0] > 0 && r->at[0]->state == AXIS && !r->at[0]->axis &&
		r->at[0]->k == r->at[1]->k && row_along(r, 0, r->at[1]->k);
}

/* ---- the greatest ------------------------------------------------------------------------ */

enum { LEAST, MOST };

/* Is x[i] before x[k]?  NaN is the greatest. */
#define BEFORE(name, T) \
	static bool name(const char *data, int64_t i, int64_t k, bool most) \
	{ \
		T x = ((const T *)(const void *)data)[i], y = ((const T *)(const void *)data)[k]; \
		return most ? x > y || (x != x && y == y) : x < y || (y != y && x == x); \
	}
BEFORE(before_f, float)
BEFORE(before_d, double)
BEFORE(before_i32, int32_t)
BEFORE(before_i64, int64_t)
BEFORE(before_u8, uint8_t)
BEFORE(before_i8, int8_t)

typedef bool (*before_fn)(const char *data, int64_t i, int64_t k, bool most);

static before_fn before_of(enum serve_type type)
{
	return type == SERVE_FP32 ? before_f : type == SERVE_FP64 ? before_d :
		type == SERVE_INT32 ? before_i32 : type == SERVE_INT64 ? before_i64 :
		type == SERVE_UINT8 ? before_u8 : before_i8;
}

/* p: axis, keepdims, select_last_index */
static int shape_arg(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0];
	int64_t axis = axis_of(c->n->a.p[0], x->rank);
	unsigned int i;

	if (!axis_ok(axis, x->rank) || !x->dims[axis])
		return bad(c, "axis %lld", (long long)c->n->a.p[0]);
	for (i = 0; i < x->rank; i++)
		if ((int64_t)i != axis || c->n->a.p[1])
			out->dims[out->rank++] = (int64_t)i == axis ? 1 : x->dims[i];
	return 0;
}

#define ARG_LOOP(T) do { \
	const T *x = (const T *)(const void *)in[0]->data; \
	for (i = 0; i < s.outer; i++) \
		for (k = 0; k < s.inner; k++) { \
			const T *p = x + i * s.n * s.inner + k; \
			T best = p[0]; \
			int64_t at = 0; \
			for (j = 1; j < s.n; j++) { \
				const T y = p[j * s.inner]; \
				if ((most ? y > best : y < best) || (last && y == best)) { \
					best = y; \
					at = j; \
				} \
			} \
			o[i * s.inner + k] = at; \
		} \
} while (0)

static int run_arg(const struct node *n, const struct view *out, const struct view *const *in)
{
	struct span s = span_of(n->a.p[0], in[0]->rank, in[0]->dims);
	int64_t *o = (int64_t *)(void *)out->data, i, j, k;
	bool most = n->oper->kind == MOST, last = n->a.p[2];

	switch (in[0]->type) {
	case SERVE_FP32:
		ARG_LOOP(float);
		break;
	case SERVE_FP64:
		ARG_LOOP(double);
		break;
	case SERVE_INT32:
		ARG_LOOP(int32_t);
		break;
	case SERVE_INT64:
		ARG_LOOP(int64_t);
		break;
	case SERVE_UINT8:
		ARG_LOOP(uint8_t);
		break;
	default:
		ARG_LOOP(int8_t);
	}
	return 0;
}

static bool rows_arg(struct rows *r)
{
	int axis = row_axis(r->node->a.p[0], r->in[0]->rank), at;

	if (!row_first_alone(r))
		return false;
	at = r->at[0]->axis;
	return at != axis && row_along(r, at - (at > axis && !r->node->a.p[1]), r->at[0]->k);
}

/* ---- TopK: p: axis, largest, sorted, k (before set 10) ---------------------------------- */

#define MOST_TOP 4096			/* on the stack, since a run allocates nothing */

static int shape_top_k(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	const struct shape *x = in[0];
	int64_t axis = axis_of(c->n->a.p[0], x->rank), k = c->n->a.p[3];
	unsigned int n;
	int rc;

	if (c->n->nin > 1) {
		rc = shape_numbers(c, in[1], "k", &k, &n, 1);
		if (rc)
			return rc;
		if (n != 1)
			return bad(c, "no k");
	}
	if (!axis_ok(axis, x->rank) || k < 0 || k > x->dims[axis])
		return bad(c, "axis %lld, the first %lld", (long long)c->n->a.p[0], (long long)k);
	if (k > MOST_TOP)
		return bad_shape(c, -ENOTSUP, "the first %lld", (long long)k);
	out->rank = x->rank;
	memcpy(out->dims, x->dims, sizeof(out->dims));
	out->dims[axis] = k;
	return 0;
}

/*
 * A heap of the k best, the worst of which is at the root; then they are taken out, the worst
 * first.  Elements that are equal are in order.
 */
struct heap {
	before_fn before;
	const char *data;
	int64_t base, step;
	bool most;
	int64_t *at;
};

static bool better(const struct heap *h, int64_t i, int64_t k)
{
	int64_t x = h->base + i * h->step, y = h->base + k * h->step;

	return h->before(h->data, x, y, h->most) || (!h->before(h->data, y, x, h->most) && i < k);
}

static void sink(const struct heap *h, int64_t n, int64_t i)
{
	int64_t c, t;

	while ((c = 2 * i + 1) < n) {
		if (c + 1 < n && better(h, h->at[c], h->at[c + 1]))
			c++;
		if (!better(h, h->at[i], h->at[c]))
			return;
		t = h->at[i];
		h->at[i] = h->at[c];
		h->at[c] = t;
		i = c;
	}
}

static int run_top_k(const struct node *n, const struct view *out, const struct view *const *in)
{
	struct span s = span_of(n->a.p[0], in[0]->rank, in[0]->dims);
	int64_t axis = axis_of(n->a.p[0], out->rank), k = out->dims[axis], o, j, i, m, t;
	size_t size = type_size(out->type);
	int64_t at[MOST_TOP];
	struct heap h = { before_of(in[0]->type), in[0]->data, 0, s.inner, n->a.p[1], at };

	for (o = 0; o < s.outer && k; o++)
		for (j = 0; j < s.inner; j++) {
			h.base = o * s.n * s.inner + j;
			for (i = 0; i < k; i++)
				at[i] = i;
			for (i = k / 2; i-- > 0; )
				sink(&h, k, i);
			for (i = k; i < s.n; i++)
				if (better(&h, i, at[0])) {
					at[0] = i;
					sink(&h, k, 0);
				}
			for (m = k; m-- > 1; ) {
				t = at[0];
				at[0] = at[m];
				at[m] = t;
				sink(&h, m, 0);
			}
			for (i = 0; i < k; i++) {
				char *to = out->data + (size_t)((o * k + i) * s.inner + j) * size;

				if (n->a.output)
					memcpy(to, &at[i], sizeof(*at));
				else
					memcpy(to, in[0]->data + (size_t)(h.base + at[i] * s.inner) * size,
					       size);
			}
		}
	return 0;
}

/* ---- CumSum: p: exclusive, reverse -------------------------------------------------------- */

static int shape_cum_sum(const struct ctx *c, const struct shape *const *in, struct shape *out)
{
	int64_t axis;
	unsigned int n;
	int rc = shape_numbers(c, in[1], "axis", &axis, &n, 1);

	if (rc)
		return rc;
	if (n != 1 || !axis_ok(axis_of(axis, in[0]->rank), in[0]->rank))
		return bad(c, "axis");
	return shape_same(c, in, out);
}

#define CUM_LOOP(T, U) do { \
	const T *x = (const T *)(const void *)in[0]->data; \
	T *y = (T *)(void *)out->data; \
	for (i = 0; i < s.outer; i++) \
		for (k = 0; k < s.inner; k++) { \
			U sum = 0; \
			for (j = 0; j < s.n; j++) { \
				int64_t at = (i * s.n + (back ? s.n - 1 - j : j)) * s.inner + k; \
				U plus = (U)x[at]; \
				y[at] = (T)(less ? sum : sum + plus); \
				sum += plus; \
			} \
		} \
} while (0)

static int run_cum_sum(const struct node *n, const struct view *out, const struct view *const *in)
{
	struct span s = span_of(load_whole(in[1]->type, in[1]->data), out->rank, out->dims);
	bool less = n->a.p[0], back = n->a.p[1];
	int64_t i, j, k;

	switch (out->type) {
	case SERVE_FP32:
		CUM_LOOP(float, double);
		break;
	case SERVE_FP64:
		CUM_LOOP(double, double);
		break;
	case SERVE_INT32:
		CUM_LOOP(int32_t, uint32_t);
		break;
	default:
		CUM_LOOP(int64_t, uint64_t);
	}
	return 0;
}

static bool rows_cum_sum(struct rows *r)
{
	int64_t axis, slope;

	return row_first_alone(r) && row_numbers(r, 1, &axis, &slope, 1) == 1 && !slope &&
		row_axis(axis, r->out->rank) != r->at[0]->axis &&
		row_along(r, r->at[0]->axis, r->at[0]->k);
}

#define REDUCTION "reduction=none|add|mul|min|max"
const struct oper opers_index[] = {
	{ "ArgMax", "axis=0 keepdims=1 select_last_index=0", 1, 1, 1, MOST, T_REAL,
		{ IS + SERVE_INT64 }, false, shape_arg, rows_arg, run_arg },
	{ "ArgMin", "axis=0 keepdims=1 select_last_index=0", 1, 1, 1, LEAST, T_REAL,
		{ IS + SERVE_INT64 }, false, shape_arg, rows_arg, run_arg },
	{ "CumSum", "exclusive=0 reverse=0", 2, 2, 1, 0, T_NUMBERS | BIT(FP64), { 0 }, false,
		shape_cum_sum, rows_cum_sum, run_cum_sum },
	{ "GatherElements", "axis=0", 2, 2, 1, 0, T_ANY, { 0 }, false,
		shape_gather_elements, rows_same_axes, run_gather_elements },
	{ "GatherND", "batch_dims=0", 2, 2, 1, 0, T_ANY, { 0 }, false,
		shape_gather_nd, rows_gather_nd, run_gather_nd },
	{ "Scatter", "axis=0 " REDUCTION, 3, 3, 1, 0, T_ANY, { 0 }, false,
		shape_scatter_elements, rows_same_axes, run_scatter_elements },
	{ "ScatterElements", "axis=0 " REDUCTION, 3, 3, 1, 0, T_ANY, { 0 }, false,
		shape_scatter_elements, rows_same_axes, run_scatter_elements },
	{ "ScatterND", REDUCTION, 3, 3, 1, 0, T_ANY, { 0 }, false,
		shape_scatter_nd, NULL, run_scatter_nd },
	{ "TopK", "axis=-1 largest=1 sorted=1 k=0", 1, 2, 2, 0, T_REAL, { 0, IS + SERVE_INT64 },
		false, shape_top_k, rows_axis, run_top_k },
	{ 0 }
};
