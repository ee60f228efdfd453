// SPDX-License-Identifier: Apache-2.0
/*
 * onnx.c - reads ONNX files: messages, names, tensors, the graph; onnx_ops.c: operators.
 *
 * The messages are unpacked by protobuf-c, with code that protoc-c generates from the
 * onnx.proto of libonnx-dev.  The file is untrusted: since unpacking is recursive, the nesting
 * of messages is checked before, and every size is checked against the data that exists.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx.h"

#define MAX_DEPTH 24
enum { FLOAT16 = 10, BFLOAT16 = 16, OPSET_MIN = 7, OPSET_MAX = 28 };

/* ---- how deep the messages are ---------------------------------------------- */

static bool varint(const uint8_t **p, const uint8_t *end, uint64_t *v)
{
	unsigned int shift = 0;

	*v = 0;
	while (*p < end && shift < 64) {
		*v |= (uint64_t)(**p & 0x7f) << shift;
		if (!(*(*p)++ & 0x80))
			return true;
		shift += 7;
	}
	return false;
}

static bool shallow(const ProtobufCMessageDescriptor *d, const uint8_t *p, const uint8_t *end,
		    unsigned int depth)
{
	const ProtobufCFieldDescriptor *f;
	uint64_t key, len;

	if (depth > MAX_DEPTH)
		return false;
	while (p < end) {
		if (!varint(&p, end, &key))
			return false;
		switch (key & 7) {
		case 0:
			if (!varint(&p, end, &len))
				return false;
			break;
		case 1:
		case 5:
			len = (key & 7) == 1 ? 8 : 4;
			if (len > (uint64_t)(end - p))
				return false;
			p += len;
			break;
		case 2:
			if (!varint(&p, end, &len) || len > (uint64_t)(end - p))
				return false;
			f = key >> 3 > UINT32_MAX ? NULL :
						    protobuf_c_message_descriptor_get_field(
							    d, (unsigned int)(key >> 3));
			if (f && f->type == PROTOBUF_C_TYPE_MESSAGE &&
			    !shallow(f->descriptor, p, p + len, depth + 1))
				return false;
			p += len;
			break;
		default:
			return false;		/* groups: ONNX has none */
		}
	}
	return true;
}

/* ---- names ------------------------------------------------------------------ */

static uint64_t hash(const char *s)
{
	uint64_t h = 0xcbf29ce484222325;

	while (*s)
		h = (h ^ (unsigned char)*s++) * 0x100000001b3;
	return h;
}

int *onnx_find(struct names *t, const char *name)
{
	size_t i = (size_t)hash(name) & (t->size - 1);

	while (t->slot[i] && strcmp(t->g->value[t->slot[i] - 1].name, name))
		i = (i + 1) & (t->size - 1);
	return &t->slot[i];
}

/* A new value with this name, which no other has. */
int onnx_define(struct names *t, const char *name)
{
	int *slot = onnx_find(t, name), v;

	if (!*name || *slot)
		return refuse(t->g, -EINVAL, "two values are named '%s', or one has no name",
			      name);
	v = graph_value(t->g, name, strlen(name));
	if (v < 0)
		return refuse(t->g, v, "no memory");
	*slot = v + 1;
	return v;
}

/* ---- tensors ---------------------------------------------------------------- */

int onnx_type(int32_t onnx, enum serve_type *type)
{
	static const signed char types[] = {
		-1, SERVE_FP32, SERVE_UINT8, SERVE_INT8, SERVE_UINT16, SERVE_INT16, SERVE_INT32,
		SERVE_INT64, -1, SERVE_BOOL, SERVE_FP16, SERVE_FP64, SERVE_UINT32, SERVE_UINT64,
	};

	if (onnx < 0 || (size_t)onnx >= sizeof(types) || types[onnx] < 0)
		return -ENOTSUP;
	*type = (enum serve_type)types[onnx];
	return 0;
}

/* The data of a tensor, in whichever of its fields it is. */
static int read_data(struct graph *g, const Onnx__TensorProto *t, enum serve_type type, size_t n,
		     size_t bytes, unsigned char *data)
{
	size_t i;

	if (onnx_is_external(t))
		return onnx_external(g, t, bytes, data);
	if (t->has_raw_data) {
		memcpy(data, t->raw_data.data, bytes);
	} else if (type == SERVE_FP32 || type == SERVE_FP64 || type == SERVE_INT64 ||
		   type == SERVE_INT32 || type == SERVE_UINT64) {
		memcpy(data, type == SERVE_FP32 ? (const void *)t->float_data :
		       type == SERVE_FP64 ? (const void *)t->double_data :
		       type == SERVE_INT64 ? (const void *)t->int64_data :
		       type == SERVE_INT32 ? (const void *)t->int32_data :
		       (const void *)t->uint64_data, bytes);
	} else {
		for (i = 0; i < n; i++) {
			uint64_t e = type == SERVE_UINT32 ? t->uint64_data[i] :
				(uint64_t)(int64_t)t->int32_data[i];

			memcpy(data + i * type_size(type), &e,
			       type_size(type)); /* little endian */
		}
	}
	return 0;
}

/* bfloat16 is the upper half of float32. */
static void widen(struct value *v, size_t n)
{
	char *data = v->data;
	uint32_t whole;
	uint16_t half;

	while (n-- > 0) {
		memcpy(&half, data + 2 * n, sizeof(half));
		whole = (uint32_t)half << 16;
		memcpy(data + 4 * n, &whole, sizeof(whole));
	}
	v->type = SERVE_FP32;
	v->bfloat = true;
}

/* Read a tensor into value v, whose name is set. */
int onnx_tensor(struct graph *g, const Onnx__TensorProto *t, int v)
{
	const char *name = g->value[v].name;
	int64_t dims[SERVE_RANK];
	enum serve_type type;
	size_t bytes, i, n, have;
	int rc = 0;
	bool outside = onnx_is_external(t), bfloat;
	unsigned char *data;
	struct value *val;

	/* only a Cast may read it: onnx_node() */
	bfloat = t->data_type == BFLOAT16;
	if (onnx_type(bfloat ? FLOAT16 : t->data_type, &type))
		return graph_block(g, "tensor", name, "type %d is not supported", t->data_type);
	if (t->n_dims > SERVE_RANK)
		return graph_block(g, "tensor", name, "%zu dimensions", t->n_dims);
	if (t->segment)
		return graph_block(g, "tensor", name, "it is in segments");
	for (i = 0; i < t->n_dims; i++)
		dims[i] = t->dims[i];
	if (dims_bytes(type, (unsigned int)t->n_dims, dims, &bytes))
		return refuse(g, -EINVAL, "tensor '%s': its size is out of range", name);
	n = bytes / type_size(type);
	switch (type) {
	case SERVE_FP32:
		have = t->n_float_data;
		break;
	case SERVE_FP64:
		have = t->n_double_data;
		break;
	case SERVE_INT64:
		have = t->n_int64_data;
		break;
	case SERVE_UINT32:
	case SERVE_UINT64:
		have = t->n_uint64_data;
		break;
	default:
		have = t->n_int32_data;
		break;
	}
	if (outside ? (t->has_raw_data && t->raw_data.len) || have :
	    t->has_raw_data ? t->raw_data.len != bytes : have != n)
		return refuse(g, -EINVAL, "tensor '%s': %zu %s where %zu are needed", name,
			      t->has_raw_data ? t->raw_data.len : have,
			      t->has_raw_data ? "bytes" : "elements",
			      t->has_raw_data ? bytes : n);
	if (g->m.bytes > g->limit || bytes > g->limit - g->m.bytes)
		return refuse(g, -EINVAL, "it needs more than %zu bytes", g->limit);
	data = aligned(bfloat ? 2 * bytes : bytes);
	if (!data)
		return refuse(g, -ENOMEM, "no memory for tensor '%s'", name);
	g->m.bytes += bfloat ? 2 * bytes : bytes;
	val = &g->value[v];
	val->data = data;
	val->type = type;
	val->rank = (unsigned int)t->n_dims;
	memcpy(val->dims, dims, t->n_dims * sizeof(*dims));
	if (bytes)
		rc = read_data(g, t, type, n, bytes, data);
	if (bfloat && !rc)
		widen(val, n);
	return rc;
}

/* ---- the model -------------------------------------------------------------- */

/* unstated: where to note that the shape is not stated; NULL: it must be. */
static int read_io(struct graph *g, const Onnx__ValueInfoProto *vi, int v, struct serve_io *io,
		   bool *unstated)
{
	const char *what = unstated ? "output" : "input";
	const Onnx__TypeProto__Tensor *t;
	unsigned int i;

	io->name = g->value[v].name;
	if (!vi->type || vi->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
	    !vi->type->tensor_type)
		return graph_block(g, what, vi->name, "it is not a tensor");
	t = vi->type->tensor_type;
	if (unstated)
		*unstated = !t->shape;
	io->any = !unstated && !t->shape;
	if (onnx_type(t->elem_type, &io->type))
		return graph_block(g, what, vi->name, "type %d is not supported",
				   t->elem_type);
	if (unstated && !t->shape)
		return 0;
	if (!t->shape)
		return graph_block(g, what, vi->name, "it has no shape");
	if (t->shape->n_dim > SERVE_RANK)
		return graph_block(g, what, vi->name, "more than %d dimensions", SERVE_RANK);
	io->rank = (unsigned int)t->shape->n_dim;
	for (i = 0; i < io->rank; i++) {
		const Onnx__TensorShapeProto__Dimension *d = t->shape->dim[i];

		io->dims[i] =
			d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
					d->dim_value > 0 ?
				d->dim_value :
				-1;
	}
	return 0;
}

/* Drop what a node has left that cannot run here; its outputs are values of unknown data. */
static int block_node(struct reader *r, unsigned int before)
{
	struct graph *g = r->s.g;
	size_t i;
	int v;

	while (g->nnodes > before) {
		g->nnodes--;
		free(g->node[g->nnodes].name);
		free(g->node[g->nnodes].in);
	}
	for (i = 0; i < r->np->n_output; i++) {
		if (!*r->np->output[i])
			continue;
		v = *onnx_find(&r->names, r->np->output[i]) - 1;
		if (v < 0)
			v = onnx_define(&r->names, r->np->output[i]);
		if (v < 0)
			return v;
		g->value[v].unknown = true;
	}
	return 0;
}

static int read_initializers(struct reader *r, const Onnx__GraphProto *gp)
{
	struct graph *g = r->s.g;
	size_t i;
	int v, rc;

	if (gp->n_sparse_initializer)
		graph_block(g, "sparse tensors", "", "%s", "");
	for (i = 0; i < gp->n_sparse_initializer; i++) {
		const Onnx__SparseTensorProto *t = gp->sparse_initializer[i];

		v = onnx_define(&r->names, t->values && t->values->name ? t->values->name : "");
		if (v < 0)
			return v;
		g->value[v].unknown = true;
	}
	for (i = 0; i < gp->n_initializer; i++) {
		if (!gp->initializer[i]->name)
			return refuse(g, -EINVAL, "a tensor has no name");
		v = onnx_define(&r->names, gp->initializer[i]->name);
		if (v < 0)
			return v;
		rc = onnx_tensor(g, gp->initializer[i], v);
		g->value[v].unknown = rc == -ENOTSUP;
		if (rc && rc != -ENOTSUP)
			return rc;
	}
	return 0;
}

/* ---- the order of the nodes ----------------------------------------------------- */

/* Nodes by the names of their outputs, with open addresses. */
struct makers {
	const Onnx__GraphProto *gp;
	struct { const char *name; unsigned int node; } *slot;
	size_t size;
};

static size_t maker_at(const struct makers *t, const char *name)
{
	size_t i = (size_t)hash(name) & (t->size - 1);

	while (t->slot[i].name && strcmp(t->slot[i].name, name))
		i = (i + 1) & (t->size - 1);
	return i;
}

/* Depth first, with a stack of our own; a file in order stays as it is. */
static int walk_nodes(struct graph *g, const struct makers *t, unsigned int *order,
		      unsigned int *stack, unsigned char *state)
{
	enum { NEW, OPEN, DONE };
	unsigned int root, n = 0, depth, at, *next = calloc(t->gp->n_node + 1, sizeof(*next));
	const Onnx__NodeProto *np;
	size_t k;
	int rc = next ? 0 : refuse(g, -ENOMEM, "no memory");

	for (root = 0; root < t->gp->n_node && !rc; root++) {
		stack[0] = root;
		for (depth = state[root] == DONE ? 0 : 1; depth; ) {
			at = stack[depth - 1];
			np = t->gp->node[at];
			state[at] = OPEN;
			if (next[at] == np->n_input) {
				state[at] = DONE;
				order[n++] = at;
				depth--;
				continue;
			}
			k = maker_at(t, np->input[next[at]]);
			if (!*np->input[next[at]] || !t->slot[k].name ||
			    state[t->slot[k].node] == DONE) {
				next[at]++;
			} else if (state[t->slot[k].node] == OPEN) {
				rc = refuse(g, -EINVAL, "'%s' depends on itself",
					    np->input[next[at]]);
				break;
			} else {
				stack[depth++] = t->slot[k].node;
			}
		}
	}
	free(next);
	return rc;
}

/* An order in which each node is behind those whose outputs it reads. */
static int order_nodes(struct graph *g, const Onnx__GraphProto *gp, unsigned int *order)
{
	struct makers t = { .gp = gp, .size = 64 };
	unsigned int *stack = calloc(gp->n_node + 1, sizeof(*stack));
	unsigned char *state = calloc(gp->n_node + 1, 1);
	size_t i, k, at, n = 0;
	int rc;

	for (i = 0; i < gp->n_node; i++)
		n += gp->node[i]->n_output;
	while (t.size < 2 * n)
		t.size *= 2;
	t.slot = calloc(t.size, sizeof(*t.slot));
	for (i = 0; t.slot && i < gp->n_node; i++)
		for (k = 0; k < gp->node[i]->n_output; k++) {
			at = maker_at(&t, gp->node[i]->output[k]);
			if (t.slot[at].name)
				continue;	/* twice: refused when it is defined */
			t.slot[at].name = gp->node[i]->output[k];
			t.slot[at].node = (unsigned int)i;
		}
	rc = t.slot && stack && state ? walk_nodes(g, &t, order, stack, state) :
					refuse(g, -ENOMEM, "no memory");
	free(t.slot);
	free(stack);
	free(state);
	return rc;
}

static int read_graph(struct reader *r, const Onnx__GraphProto *gp)
{
	unsigned int before, *order;
	struct graph *g = r->s.g;
	size_t i;
	int v, rc;

	rc = read_initializers(r, gp);
	if (rc)
		return rc;
	for (i = 0; i < gp->n_input; i++) {
		if (!gp->input[i]->name)
			return refuse(g, -EINVAL, "an input has no name");
		v = *onnx_find(&r->names, gp->input[i]->name);
		if (v && (g->value[v - 1].data || g->value[v - 1].unknown))
			continue; /* a tensor with a default, as old files list them */
		if (g->m.ninputs == MAX_IO)
			return refuse(g, -ENOTSUP, "more than %d inputs", MAX_IO);
		v = onnx_define(&r->names, gp->input[i]->name);
		if (v < 0)
			return v;
		rc = read_io(g, gp->input[i], v, &g->in_io[g->m.ninputs], NULL);
		g->value[v].unknown = rc;
		g->value[v].type = g->in_io[g->m.ninputs].type;
		g->in[g->m.ninputs++] = v;
	}
	order = calloc(gp->n_node + 1, sizeof(*order));
	rc = order ? order_nodes(g, gp, order) : refuse(g, -ENOMEM, "no memory");
	for (i = 0; i < gp->n_node && !rc; i++) {
		r->np = gp->node[order[i]];
		before = g->nnodes;
		rc = onnx_node(r);
		if (rc == -ENOTSUP)
			rc = block_node(r, before);
	}
	free(order);
	if (rc)
		return rc;
	for (i = 0; i < gp->n_output; i++) {
		v = gp->output[i]->name ? *onnx_find(&r->names, gp->output[i]->name) : 0;
		if (!v)
			return refuse(g, -EINVAL, "output '%s' is not computed",
				      gp->output[i]->name ? gp->output[i]->name : "");
		if (g->m.noutputs == MAX_IO)
			return refuse(g, -ENOTSUP, "more than %d outputs", MAX_IO);
		if (read_io(g, gp->output[i], v - 1, &g->out_io[g->m.noutputs],
			    &g->unstated[g->m.noutputs]))
			g->value[v - 1].unknown = true;
		g->out[g->m.noutputs++] = v - 1;
	}
	if (!g->m.noutputs)
		return refuse(g, -EINVAL, "no outputs");
	return 0;
}

int onnx_parse(struct graph *g, const void *data, size_t len)
{
	Onnx__ModelProto *m = NULL;
	struct reader r = { .s.g = g };
	size_t i, n;
	int rc = -EINVAL;

	if (shallow(&onnx__model_proto__descriptor, data, (const uint8_t *)data + len, 0))
		m = onnx__model_proto__unpack(NULL, len, data);
	if (!m || !m->graph) {
		refuse(g, -EINVAL, "not an ONNX file, or a damaged one");
		goto out;
	}
	for (i = 0; i < m->n_opset_import; i++)
		if (!m->opset_import[i]->domain || !*m->opset_import[i]->domain ||
		    !strcmp(m->opset_import[i]->domain, "ai.onnx"))
			g->opset = m->opset_import[i]->version;
	/* what another library reads is not outside of the folder, and there is no more of it */
	rc = onnx_check_external(g, m);
	if (rc)
		goto out;
	g->readable = true;
	if (g->opset < OPSET_MIN || g->opset > OPSET_MAX)
		graph_block(g, "operator set", "", "%lld, and %d to %d are supported",
			    (long long)g->opset, OPSET_MIN, OPSET_MAX);
	if (m->graph->n_node > MAX_NODES) {
		rc = refuse(g, -ENOTSUP, "%zu operators, more than %d", m->graph->n_node,
			    MAX_NODES);
		goto out;
	}
	n = m->graph->n_initializer + m->graph->n_sparse_initializer + m->graph->n_input;
	for (i = 0; i < m->graph->n_node; i++)
		n += m->graph->node[i]->n_output;
	for (r.names.size = 64; r.names.size < 2 * n; r.names.size *= 2)
		;
	r.names.g = g;
	r.names.slot = calloc(r.names.size, sizeof(*r.names.slot));
	rc = r.names.slot ? read_graph(&r, m->graph) : refuse(g, -ENOMEM, "no memory");
out:
	free(r.names.slot);
	if (m)
		onnx__model_proto__free_unpacked(m, NULL);
	return rc;
}
