// SPDX-License-Identifier: Apache-2.0
/*
 * Reader of MXNet's model files; see model.h.
 *
 * Both files are read into memory and checked against each other before anything is used.
 * Every count is checked against the available bytes first.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include <tools/pawl/slurp.h>

#define MAX_SYMBOL	((size_t)16 << 20)
#define MAX_PARAMS	((size_t)1 << 30)
#define MAX_DIM		(1 << 24)	/* of a layer; far below what overflows an int */
#define MAX_INPUTS	3		/* FullyConnected: data, weight, bias */
#define MAX_NDIM	32
#define MAX_NODES	10000		/* some steps are quadratic */

/* An array of the .params file.  Points into the file's bytes. */
struct param {
	size_t off;			/* of the record, for messages */
	const unsigned char *data;
	size_t data_off;
	uint64_t size;			/* floats */
	uint32_t ndim;
	uint64_t dim[2];		/* the first two */
	const char *name;		/* with "arg:" or "aux:"; not terminated */
	size_t name_len;
	bool used;
};

/* A node of the symbol file.  Strings belong to the JSON. */
struct node {
	const char *op, *name;
	json_t *attrs[3];		/* objects with attributes, or NULL */
	size_t in[MAX_INPUTS];
	unsigned int nin;
	unsigned int uses;
};

/* The state of a load. */
struct load {
	const char *sym, *par;		/* names of the files */
	char *err;
	size_t errlen;
	json_t *root;
	struct node *node;
	size_t nnodes;
	size_t head;
	struct param *param;
	size_t nparams;
	struct model *m;
};

#define fail(ld, code, ...) file_err((ld)->err, (ld)->errlen, code, __VA_ARGS__)

/* ---- the .params file ------------------------------------------------------- */

struct cursor {
	struct load *ld;
	const unsigned char *p;
	size_t len, off;
};

/* Check that n more bytes exist.  Returns 0 or -EBADMSG. */
static int want(struct cursor *c, uint64_t n, const char *what)
{
	if (n <= c->len - c->off)
		return 0;
	return fail(c->ld, -EBADMSG,
		    "%s: offset %zu: truncated: %s needs %llu bytes, %zu are left",
		    c->ld->par, c->off, what, (unsigned long long)n, c->len - c->off);
}

static int take_u32(struct cursor *c, uint32_t *v, const char *what)
{
	if (want(c, 4, what))
		return -EBADMSG;
	*v = get_le32(c->p + c->off);
	c->off += 4;
	return 0;
}

static int take_u64(struct cursor *c, uint64_t *v, const char *what)
{
	if (want(c, 8, what))
		return -EBADMSG;
	*v = get_le64(c->p + c->off);
	c->off += 8;
	return 0;
}

/* mshadow's type flags, in order. */
static const char *type_name(uint32_t flag)
{
	static const char *const name[] = {
		"float32", "float64", "float16", "uint8", "int32", "int8", "int64",
		"bool", "int16", "uint16", "uint32", "uint64", "bfloat16",
	};

	return flag < sizeof(name) / sizeof(name[0]) ? name[flag] : "unknown";
}

/*
 * An array's head, in the four spellings of NDArray::Save:
 *   V3, V2   magic, storage type, dimensions (32 bits), each dimension (64 bits)
 *   V1       magic, dimensions, each dimension (64 bits)
 *   V0       dimensions where the magic would be, each dimension (32 bits)
 */
static int param_shape(struct cursor *c, struct param *pm, size_t index)
{
	static const char *const storage[] = { "dense", "row_sparse", "csr" };
	struct load *ld = c->ld;
	uint32_t magic, stype, d32, i;
	uint64_t dim;
	size_t at;
	bool v0 = false;

	pm->off = c->off;
	if (take_u32(c, &magic, "the magic of an array"))
		return -EBADMSG;
	at = c->off;
	if (magic == 0xF993FACAu || magic == 0xF993FAC9u) {
		if (take_u32(c, &stype, "a storage type"))
			return -EBADMSG;
		if (stype)
			return fail(ld, -EOPNOTSUPP,
				    "%s: offset %zu: array %zu has storage type %d (%s), only dense is read",
				    ld->par, at, index, (int)stype,
				    stype < 3 ? storage[stype] : "unknown");
		at = c->off;
	} else if (magic != 0xF993FAC8u) {
		v0 = true;
		at = pm->off;
		pm->ndim = magic;
	}
	if (!v0 && take_u32(c, &pm->ndim, "a number of dimensions"))
		return -EBADMSG;
	if (pm->ndim < 1 || pm->ndim > MAX_NDIM)
		return fail(ld, -EBADMSG,
			    v0 ? "%s: offset %zu: array %zu begins with %#x, which is neither a known magic nor 1..%d dimensions" :
				 "%s: offset %zu: array %zu has %u dimensions, not 1..%d",
			    ld->par, at, index, pm->ndim, MAX_NDIM);
	pm->size = 1;
	for (i = 0; i < pm->ndim; i++) {
		at = c->off;
		if (v0) {
			if (take_u32(c, &d32, "a dimension"))
				return -EBADMSG;
			dim = d32;
		} else if (take_u64(c, &dim, "a dimension")) {
			return -EBADMSG;
		}
		/* So that the product stays within the file, thus does not overflow. */
		if (!dim || dim > c->len / sizeof(float) / pm->size)
			return fail(ld, -EBADMSG,
				    "%s: offset %zu: array %zu has %lld in dimension %u, and the file has %zu bytes",
				    ld->par, at, index, (long long)dim, i, c->len);
		pm->size *= dim;
		if (i < 2)
			pm->dim[i] = dim;
	}
	return 0;
}

static int param_array(struct cursor *c, struct param *pm, size_t index)
{
	struct load *ld = c->ld;
	uint32_t dev_type, dev_id, type;
	size_t at;
	int rc;

	rc = param_shape(c, pm, index);
	if (rc)
		return rc;
	at = c->off;
	if (take_u32(c, &dev_type, "a context") || take_u32(c, &dev_id, "a context"))
		return -EBADMSG;
	/* cpu, gpu, cpu_pinned, cpu_shared: the array's former device, ignored here. */
	if ((dev_type != 1 && dev_type != 2 && dev_type != 3 && dev_type != 5) ||
	    dev_id > INT32_MAX)
		return fail(ld, -EBADMSG,
			    "%s: offset %zu: array %zu has context %d(%d), which MXNet does not have",
			    ld->par, at, index, (int)dev_type, (int)dev_id);
	at = c->off;
	if (take_u32(c, &type, "a type"))
		return -EBADMSG;
	if (type)
		return fail(ld, -EOPNOTSUPP,
			    "%s: offset %zu: array %zu has type %d (%s), only float32 is read",
			    ld->par, at, index, (int)type, type_name(type));
	if (want(c, pm->size * sizeof(float), "an array's content"))
		return -EBADMSG;
	pm->data = c->p + c->off;
	pm->data_off = c->off;
	c->off += pm->size * sizeof(float);
	return 0;
}

static int param_name(struct cursor *c, struct param *pm, size_t index)
{
	struct load *ld = c->ld;
	size_t at = c->off, i;
	uint64_t len;

	if (take_u64(c, &len, "the length of a name") || want(c, len, "a name"))
		return -EBADMSG;
	pm->name = (const char *)c->p + c->off;
	pm->name_len = (size_t)len;
	c->off += pm->name_len;
	if (len < 5 || (memcmp(pm->name, "arg:", 4) && memcmp(pm->name, "aux:", 4)) ||
	    memchr(pm->name, 0, pm->name_len))
		return fail(ld, -EBADMSG,
			    "%s: offset %zu: name %zu does not begin with arg: or aux:, or has a zero byte",
			    ld->par, at, index);
	for (i = 0; i < index; i++)
		if (ld->param[i].name_len == pm->name_len &&
		    !memcmp(ld->param[i].name, pm->name, pm->name_len))
			return fail(ld, -EBADMSG,
				    "%s: offset %zu: a second array is named '%.*s'",
				    ld->par, at, (int)(len < 100 ? len : 100), pm->name);
	return 0;
}

/* List of arrays: magic, reserved, count, arrays, count, names. */
static int read_params(struct load *ld, const void *data, size_t len)
{
	struct cursor c = { ld, data, len, 0 };
	uint64_t magic, reserved, count, names, i;
	int rc;

	if (take_u64(&c, &magic, "the magic of the file"))
		return -EBADMSG;
	if (magic != 0x112)
		return fail(ld, -EBADMSG,
			    "%s: offset 0: not an MXNet .params file (%#llx instead of 0x112)",
			    ld->par, (unsigned long long)magic);
	if (take_u64(&c, &reserved, "the reserved field"))
		return -EBADMSG;
	if (reserved)
		return fail(ld, -EBADMSG, "%s: offset 8: reserved field is not zero", ld->par);
	if (take_u64(&c, &count, "the count of arrays"))
		return -EBADMSG;
	/* The shortest array: V0 of one dimension, 24 bytes, and a name of 13. */
	if (!count || count > (len - c.off) / (24 + 13))
		return fail(ld, -EBADMSG,
			    "%s: offset 16: %llu arrays cannot be in a file of %zu bytes",
			    ld->par, (unsigned long long)count, len);
	if (count > ld->nnodes)
		return fail(ld, -EBADMSG,
			    "%s: offset 16: %llu arrays, and %s has only %zu nodes",
			    ld->par, (unsigned long long)count, ld->sym, ld->nnodes);
	ld->nparams = (size_t)count;
	ld->param = calloc(ld->nparams, sizeof(*ld->param));
	if (!ld->param)
		return fail(ld, -ENOMEM, "%s: no memory for %zu arrays", ld->par, ld->nparams);
	for (i = 0; i < count; i++) {
		rc = param_array(&c, &ld->param[i], (size_t)i);
		if (rc)
			return rc;
	}
	if (take_u64(&c, &names, "the count of names"))
		return -EBADMSG;
	if (names != count)
		return fail(ld, -EBADMSG, "%s: offset %zu: %llu names for %llu arrays",
			    ld->par, c.off - 8, (unsigned long long)names,
			    (unsigned long long)count);
	for (i = 0; i < count; i++) {
		rc = param_name(&c, &ld->param[i], (size_t)i);
		if (rc)
			return rc;
	}
	if (c.off != len)
		return fail(ld, -EBADMSG, "%s: offset %zu: %zu bytes after the last name",
			    ld->par, c.off, len - c.off);
	return 0;
}

/* ---- the symbol file -------------------------------------------------------- */

/* [node, output, version], or [node, output]: output 0, version 0 of a node. */
static bool get_entry(json_t *entry, size_t limit, size_t *node)
{
	size_t i, n = json_array_size(entry);	/* 0 if it is not an array */
	json_int_t v;

	if (n < 2 || n > 3)
		return false;
	for (i = 0; i < n; i++) {
		json_t *e = json_array_get(entry, i);

		if (!json_is_integer(e))
			return false;
		v = json_integer_value(e);
		if (v < 0 || (i && v) || (uintmax_t)v >= limit)
			return false;
		if (!i)
			*node = (size_t)v;
	}
	return true;
}

/*
 * An attribute's text, or NULL.  Attributes are in "attrs" since 1.0; before, operators'
 * attributes were in "param" and users' attributes in "attr".
 */
static const char *get_attr(const struct node *nd, const char *key)
{
	size_t i;
	json_t *v;

	for (i = 0; i < 3; i++) {
		v = json_object_get(nd->attrs[i], key);
		if (v)
			return json_string_value(v) ? json_string_value(v) : "(no string)";
	}
	return NULL;
}

static bool is_var(const struct node *nd)
{
	return !strcmp(nd->op, "null");
}

static int read_node(struct load *ld, size_t i, json_t *js)
{
	static const char *const spelling[] = { "attrs", "attr", "param" };
	struct node *nd = &ld->node[i];
	json_t *inputs;
	size_t k;

	nd->op = json_string_value(json_object_get(js, "op"));
	nd->name = json_string_value(json_object_get(js, "name"));
	if (!nd->op || !nd->name || !*nd->name)
		return fail(ld, -EBADMSG, "%s: node %zu has no op or no name", ld->sym, i);
	for (k = 0; k < 3; k++) {
		nd->attrs[k] = json_object_get(js, spelling[k]);
		if (nd->attrs[k] && !json_is_object(nd->attrs[k]))
			return fail(ld, -EBADMSG, "%s: node %zu '%s': \"%s\" is no object",
				    ld->sym, i, nd->name, spelling[k]);
	}
	inputs = json_object_get(js, "inputs");
	if (!json_is_array(inputs))
		return fail(ld, -EBADMSG, "%s: node %zu '%s': \"inputs\" is no array",
			    ld->sym, i, nd->name);
	if (json_array_size(inputs) > MAX_INPUTS)
		return fail(ld, -EOPNOTSUPP,
			    "%s: node %zu '%s': operator %s with %zu inputs is not supported",
			    ld->sym, i, nd->name, nd->op, json_array_size(inputs));
	nd->nin = (unsigned int)json_array_size(inputs);
	for (k = 0; k < nd->nin; k++) {
		/* Only nodes before this one, so there is no cycle. */
		if (!get_entry(json_array_get(inputs, k), i, &nd->in[k]))
			return fail(ld, -EBADMSG,
				    "%s: node %zu '%s': input %zu is not output 0 of an earlier node",
				    ld->sym, i, nd->name, k);
		ld->node[nd->in[k]].uses++;
	}
	if (is_var(nd) != !nd->nin)
		return fail(ld, -EBADMSG, "%s: node %zu '%s': operator %s with %u inputs",
			    ld->sym, i, nd->name, nd->op, nd->nin);
	return 0;
}

/* "arg_nodes" repeats which nodes are variables; the two must agree. */
static int check_arg_nodes(struct load *ld)
{
	json_t *arg = json_object_get(ld->root, "arg_nodes"), *e;
	size_t i, k = 0;

	for (i = 0; i < ld->nnodes; i++) {
		if (!is_var(&ld->node[i]))
			continue;
		e = json_array_get(arg, k++);
		if (!json_is_integer(e) || json_integer_value(e) != (json_int_t)i)
			return fail(ld, -EBADMSG,
				    "%s: \"arg_nodes\" entry %zu is not node %zu '%s', the next variable",
				    ld->sym, k - 1, i, ld->node[i].name);
	}
	if (json_array_size(arg) != k)
		return fail(ld, -EBADMSG, "%s: \"arg_nodes\" has %zu entries for %zu variables",
			    ld->sym, json_array_size(arg), k);
	return 0;
}

static int read_symbol(struct load *ld, const void *data, size_t len)
{
	json_t *nodes, *heads;
	json_error_t je;
	size_t i;
	int rc;

	ld->root = json_loadb(data, len, JSON_REJECT_DUPLICATES, &je);
	if (!ld->root)
		return fail(ld, -EBADMSG, "%s: offset %d (line %d column %d): %s",
			    ld->sym, je.position, je.line, je.column, je.text);
	nodes = json_object_get(ld->root, "nodes");
	ld->nnodes = json_array_size(nodes);
	if (!ld->nnodes)
		return fail(ld, -EBADMSG, "%s: no \"nodes\"", ld->sym);
	if (ld->nnodes > MAX_NODES)
		return fail(ld, -EFBIG, "%s: %zu nodes, more than the limit of %d",
			    ld->sym, ld->nnodes, MAX_NODES);
	ld->node = calloc(ld->nnodes, sizeof(*ld->node));
	if (!ld->node)
		return fail(ld, -ENOMEM, "%s: no memory for %zu nodes", ld->sym, ld->nnodes);
	for (i = 0; i < ld->nnodes; i++) {
		rc = read_node(ld, i, json_array_get(nodes, i));
		if (rc)
			return rc;
	}
	rc = check_arg_nodes(ld);
	if (rc)
		return rc;
	heads = json_object_get(ld->root, "heads");
	if (json_array_size(heads) != 1)
		return fail(ld, json_array_size(heads) > 1 ? -EOPNOTSUPP : -EBADMSG,
			    "%s: \"heads\" has %zu entries, only 1 is supported",
			    ld->sym, json_array_size(heads));
	if (!get_entry(json_array_get(heads, 0), ld->nnodes, &ld->head))
		return fail(ld, -EBADMSG, "%s: \"heads\" entry 0 is not output 0 of a node",
			    ld->sym);
	ld->node[ld->head].uses++;
	/*
	 * Each node is used once, so the graph is one tree.  build_layers() checks that the
	 * tree is a chain.
	 */
	for (i = 0; i < ld->nnodes; i++)
		if (ld->node[i].uses != 1)
			return fail(ld, -EOPNOTSUPP,
				    "%s: node %zu '%s' is used %u times; only a straight chain is supported",
				    ld->sym, i, ld->node[i].name, ld->node[i].uses);
	return 0;
}

/* ---- layers ----------------------------------------------------------------- */

/* A node's attribute is missing (val is NULL), or its value is unknown. */
static int bad_attr(struct load *ld, size_t i, const char *key, const char *val)
{
	const struct node *nd = &ld->node[i];

	if (!val)
		return fail(ld, -EBADMSG, "%s: node %zu '%s': %s without %s",
			    ld->sym, i, nd->name, nd->op, key);
	return fail(ld, -EOPNOTSUPP, "%s: node %zu '%s': %s with %s '%s' is not supported",
		    ld->sym, i, nd->name, nd->op, key, val);
}

/* A decimal number in min..max, or -1. */
static int to_int(const char *s, int min, int max)
{
	char *end;
	long v;

	if (*s < '0' || *s > '9')
		return -1;
	errno = 0;
	v = strtol(s, &end, 10);
	return errno || *end || v < min || v > max ? -1 : (int)v;
}

/* Returns 1 or 0 for Python's and C's spellings, else -1. */
static int to_bool(const char *s)
{
	if (!strcmp(s, "True") || !strcmp(s, "true") || !strcmp(s, "1"))
		return 1;
	if (!strcmp(s, "False") || !strcmp(s, "false") || !strcmp(s, "0"))
		return 0;
	return -1;
}

/* The array of variable node v, which must not have been taken yet. */
static int find_param(struct load *ld, size_t v, struct param **out)
{
	const char *name = ld->node[v].name;
	size_t len = strlen(name), k;

	for (k = 0; k < ld->nparams; k++) {
		struct param *pm = &ld->param[k];

		if (pm->name_len != len + 4 || memcmp(pm->name, "arg:", 4) ||
		    memcmp(pm->name + 4, name, len))
			continue;
		if (pm->used)
			return fail(ld, -EBADMSG, "%s: node %zu: a second variable is named '%s'",
				    ld->sym, v, name);
		pm->used = true;
		*out = pm;
		return 0;
	}
	return fail(ld, -EBADMSG, "%s: no array 'arg:%s', which node %zu of %s needs",
		    ld->par, name, v, ld->sym);
}

/* The floats, aligned and in the host's byte order. */
static int copy_param(struct load *ld, const struct param *pm, float **out)
{
	size_t k, n = (size_t)pm->size;
	uint32_t bits;
	float *f;

	f = malloc(n * sizeof(*f));
	if (!f)
		return fail(ld, -ENOMEM, "%s: no memory for %zu floats", ld->par, n);
	for (k = 0; k < n; k++) {
		bits = get_le32(pm->data + 4 * k);
		memcpy(&f[k], &bits, sizeof(bits));
		/* The format has no checksum; this detects some broken files. */
		if (!isfinite(f[k])) {
			free(f);
			return fail(ld, -EBADMSG,
				    "%s: offset %zu: element %zu of '%.*s' is not finite",
				    ld->par, pm->data_off + 4 * k, k,
				    (int)(pm->name_len < 100 ? pm->name_len : 100), pm->name);
		}
	}
	*out = f;
	return 0;
}

static int fc_layer(struct load *ld, size_t i, struct layer *l)
{
	struct node *nd = &ld->node[i];
	const char *val;
	struct param *w, *b;
	int rc, no_bias = 0;

	l->kind = LAYER_FC;
	val = get_attr(nd, "num_hidden");
	if (!val)
		return bad_attr(ld, i, "num_hidden", NULL);
	l->out_dim = to_int(val, 1, MAX_DIM);
	if (l->out_dim < 0)
		return bad_attr(ld, i, "num_hidden", val);
	val = get_attr(nd, "no_bias");
	if (val) {
		no_bias = to_bool(val);
		if (no_bias < 0)
			return bad_attr(ld, i, "no_bias", val);
	}
	/* "flatten" makes no difference to a batch of rows. */
	if (nd->nin != (no_bias ? 2 : 3))
		return fail(ld, -EBADMSG, "%s: node %zu '%s': %s %s bias has %u inputs",
			    ld->sym, i, nd->name, nd->op, no_bias ? "without" : "with",
			    nd->nin);
	rc = find_param(ld, nd->in[1], &w);
	if (rc)
		return rc;
	if (w->ndim != 2)
		return fail(ld, -EBADMSG,
			    "%s: offset %zu: 'arg:%s' has %u dimensions, but node %zu '%s' of %s needs 2",
			    ld->par, w->off, ld->node[nd->in[1]].name, w->ndim, i, nd->name,
			    ld->sym);
	if (w->dim[1] > MAX_DIM)
		return fail(ld, -EFBIG, "%s: offset %zu: 'arg:%s' has %llu columns, over the limit of %d",
			    ld->par, w->off, ld->node[nd->in[1]].name,
			    (unsigned long long)w->dim[1], MAX_DIM);
	/* The graph does not contain the width of its input; its first weight does. */
	if (!ld->m->in_dim)
		ld->m->in_dim = l->in_dim = (int)w->dim[1];
	if (w->dim[0] != (uint64_t)l->out_dim || w->dim[1] != (uint64_t)l->in_dim)
		return fail(ld, -EBADMSG,
			    "%s: offset %zu: 'arg:%s' is %llu x %llu, but node %zu '%s' of %s needs %d x %d",
			    ld->par, w->off, ld->node[nd->in[1]].name,
			    (unsigned long long)w->dim[0], (unsigned long long)w->dim[1],
			    i, nd->name, ld->sym, l->out_dim, l->in_dim);
	rc = copy_param(ld, w, &l->weight);
	if (rc || no_bias)
		return rc;
	rc = find_param(ld, nd->in[2], &b);
	if (rc)
		return rc;
	if (b->ndim != 1 || b->dim[0] != (uint64_t)l->out_dim)
		return fail(ld, -EBADMSG,
			    "%s: offset %zu: 'arg:%s' has %u dimensions and %llu elements, but node %zu '%s' of %s needs 1 and %d",
			    ld->par, b->off, ld->node[nd->in[2]].name, b->ndim,
			    (unsigned long long)b->size, i, nd->name, ld->sym, l->out_dim);
	return copy_param(ld, b, &l->bias);
}

static int act_layer(struct load *ld, size_t i, struct layer *l)
{
	/* In the order of enum layer_act. */
	static const char *const act[] = { "relu", "sigmoid", "tanh", "softrelu", "softsign" };
	const char *val = get_attr(&ld->node[i], "act_type");
	size_t k;

	l->kind = LAYER_ACT;
	for (k = 0; val && k < sizeof(act) / sizeof(act[0]); k++) {
		if (!strcmp(val, act[k])) {
			l->act = (enum layer_act)k;
			return 0;
		}
	}
	return bad_attr(ld, i, "act_type", val);
}

/*
 * SoftmaxOutput's own attributes concern training.  softmax has an axis, and a temperature
 * that divides the logits.
 */
static int softmax_layer(struct load *ld, size_t i, struct layer *l)
{
	const struct node *nd = &ld->node[i];
	const char *val;
	char *end;

	l->kind = LAYER_SOFTMAX;
	l->temperature = 1;
	if (!strcmp(nd->op, "SoftmaxOutput"))
		return 0;
	val = get_attr(nd, "axis");
	if (val && strcmp(val, "-1") && strcmp(val, "1"))
		return bad_attr(ld, i, "axis", val);
	val = get_attr(nd, "use_length");
	if (val && to_bool(val))
		return bad_attr(ld, i, "use_length", val);
	val = get_attr(nd, "dtype");
	if (val && strcmp(val, "None") && strcmp(val, "float32"))
		return bad_attr(ld, i, "dtype", val);
	val = get_attr(nd, "temperature");
	if (val && strcmp(val, "None")) {
		l->temperature = strtof(val, &end);
		if (end == val || *end || !isfinite(l->temperature) || l->temperature <= 0)
			return bad_attr(ld, i, "temperature", val);
	}
	return 0;
}

/* Turn node i into the next layer of the model; Flatten leaves none. */
static int add_layer(struct load *ld, size_t i, int *dim)
{
	static const struct {
		const char *op;
		unsigned int min_in, max_in;
		int (*make)(struct load *ld, size_t i, struct layer *l);
	} ops[] = {
		{ "FullyConnected", 2, 3, fc_layer },
		{ "Activation", 1, 1, act_layer },
		{ "SoftmaxOutput", 1, 2, softmax_layer },	/* the label is for training */
		{ "softmax", 1, 1, softmax_layer },
		{ "Flatten", 1, 1, NULL },			/* rows are flat */
	};
	const struct node *nd = &ld->node[i];
	struct layer *l;
	size_t k;
	int rc;

	for (k = 0; k < sizeof(ops) / sizeof(ops[0]); k++)
		if (!strcmp(nd->op, ops[k].op))
			break;
	if (k == sizeof(ops) / sizeof(ops[0]))
		return fail(ld, -EOPNOTSUPP, "%s: node %zu '%s': operator %s is not supported",
			    ld->sym, i, nd->name, nd->op);
	if (nd->nin < ops[k].min_in || nd->nin > ops[k].max_in)
		return fail(ld, -EBADMSG, "%s: node %zu '%s': %s with %u inputs",
			    ld->sym, i, nd->name, nd->op, nd->nin);
	if (!ops[k].make)
		return 0;
	/* Add it before it is complete, so that model_free() frees its parts. */
	l = &ld->m->layers[ld->m->nlayers++];
	l->in_dim = l->out_dim = *dim;
	l->name = strdup(nd->name);
	if (!l->name)
		return fail(ld, -ENOMEM, "%s: no memory for a name", ld->sym);
	rc = ops[k].make(ld, i, l);
	if (rc)
		return rc;
	*dim = l->out_dim;
	if (l->in_dim > ld->m->max_dim)
		ld->m->max_dim = l->in_dim;
	if (l->out_dim > ld->m->max_dim)
		ld->m->max_dim = l->out_dim;
	return 0;
}

/* Layers in front of the first weight are as wide as that weight's input. */
static int set_first_dims(struct load *ld)
{
	struct model *m = ld->m;
	int k;

	if (!m->in_dim)
		return fail(ld, -EOPNOTSUPP,
			    "%s: no FullyConnected, so the width of the input is not known",
			    ld->sym);
	for (k = 0; k < m->nlayers && !m->layers[k].in_dim; k++)
		m->layers[k].in_dim = m->layers[k].out_dim = m->in_dim;
	return 0;
}

/* From the head down to the data, then layer by layer upwards. */
static int build_layers(struct load *ld)
{
	size_t *chain, n = 0, i, k;
	int rc = 0, dim = 0;

	ld->m = calloc(1, sizeof(*ld->m));
	chain = calloc(ld->nnodes, sizeof(*chain));
	if (ld->m)
		ld->m->layers = calloc(ld->nnodes, sizeof(*ld->m->layers));
	if (!ld->m || !chain || !ld->m->layers) {
		rc = fail(ld, -ENOMEM, "%s: no memory for %zu layers", ld->sym, ld->nnodes);
		goto out;
	}
	for (i = ld->head; !is_var(&ld->node[i]); i = ld->node[i].in[0]) {
		chain[n++] = i;		/* inputs come earlier: at most nnodes */
		for (k = 1; k < ld->node[i].nin; k++) {
			if (is_var(&ld->node[ld->node[i].in[k]]))
				continue;
			rc = fail(ld, -EOPNOTSUPP,
				  "%s: node %zu '%s': input %zu is an operator; only a straight chain is supported",
				  ld->sym, i, ld->node[i].name, k);
			goto out;
		}
	}
	while (n && !rc)
		rc = add_layer(ld, chain[--n], &dim);
	if (rc)
		goto out;
	rc = set_first_dims(ld);
	if (rc)
		goto out;
	ld->m->out_dim = dim;
	for (k = 0; k < ld->nparams; k++) {
		if (ld->param[k].used)
			continue;
		rc = fail(ld, -EBADMSG, "%s: offset %zu: array '%.*s' is used by no node of %s",
			  ld->par, ld->param[k].off,
			  (int)(ld->param[k].name_len < 100 ? ld->param[k].name_len : 100),
			  ld->param[k].name, ld->sym);
		goto out;
	}
out:
	free(chain);
	return rc;
}

/* ---- interface -------------------------------------------------------------- */

int model_parse(const void *sym, size_t sym_len, const char *sym_name,
		const void *par, size_t par_len, const char *par_name,
		struct model **out, char *err, size_t errlen)
{
	struct load ld = { .sym = sym_name, .par = par_name, .err = err, .errlen = errlen };
	int rc;

	rc = read_symbol(&ld, sym, sym_len);
	if (!rc)
		rc = read_params(&ld, par, par_len);
	if (!rc)
		rc = build_layers(&ld);
	if (rc)
		model_free(ld.m);
	else
		*out = ld.m;
	json_decref(ld.root);
	free(ld.node);
	free(ld.param);
	return rc;
}

int model_load(const char *symbol, const char *params, struct model **out,
	       char *err, size_t errlen)
{
	char *sym_path = NULL, *par_path = NULL;
	void *sym = NULL, *par = NULL;
	size_t sym_len, par_len;
	int rc;

	if (!params) {
		size_t n = strlen(symbol) + sizeof("-symbol.json");

		sym_path = malloc(n);
		par_path = malloc(n);
		if (!sym_path || !par_path) {
			rc = file_err(err, errlen, -ENOMEM, "%s: no memory for a path", symbol);
			goto out;
		}
		snprintf(sym_path, n, "%s-symbol.json", symbol);
		snprintf(par_path, n, "%s-0000.params", symbol);	/* as long */
		symbol = sym_path;
		params = par_path;
	}
	rc = file_slurp(symbol, MAX_SYMBOL, &sym, &sym_len, err, errlen);
	if (rc)
		goto out;
	rc = file_slurp(params, MAX_PARAMS, &par, &par_len, err, errlen);
	if (rc)
		goto out;
	rc = model_parse(sym, sym_len, symbol, par, par_len, params, out, err, errlen);
out:
	free(sym);
	free(par);
	free(sym_path);
	free(par_path);
	return rc;
}

void model_free(struct model *m)
{
	int k;

	if (!m)
		return;
	for (k = 0; k < m->nlayers; k++) {
		free(m->layers[k].name);
		free(m->layers[k].weight);
		free(m->layers[k].bias);
	}
	free(m->layers);
	free(m);
}

int model_same_shape(const struct model *a, const struct model *b,
		     char *err, size_t errlen)
{
	int k;

	if (a->nlayers != b->nlayers)
		return file_err(err, errlen, -EINVAL, "%d layers, and %d in the other model",
				a->nlayers, b->nlayers);
	for (k = 0; k < a->nlayers; k++) {
		const struct layer *x = &a->layers[k], *y = &b->layers[k];

		if (x->kind != y->kind || x->act != y->act ||
		    memcmp(&x->temperature, &y->temperature, sizeof(x->temperature)))
			return file_err(err, errlen, -EINVAL,
					"layer %d: '%s' is not of the same operator as '%s' in the other model",
					k, x->name, y->name);
		if (x->in_dim != y->in_dim || x->out_dim != y->out_dim ||
		    !x->bias != !y->bias)
			return file_err(err, errlen, -EINVAL,
					"layer %d: '%s' is %d -> %d%s, and '%s' in the other model %d -> %d%s",
					k, x->name, x->in_dim, x->out_dim,
					x->bias ? " with bias" : "", y->name, y->in_dim,
					y->out_dim, y->bias ? " with bias" : "");
	}
	return 0;
}

int model_check_io(const struct model *m, int in_dim, int out_dim,
		   char *err, size_t errlen)
{
	if (m->in_dim != in_dim)
		return file_err(err, errlen, -EINVAL,
				"layer 0 '%s' takes rows of %d, and the images have %d pixels",
				m->layers[0].name, m->in_dim, in_dim);
	if (m->out_dim != out_dim)
		return file_err(err, errlen, -EINVAL,
				"layer %d '%s' has rows of %d, and the images have %d classes",
				m->nlayers - 1, m->layers[m->nlayers - 1].name, m->out_dim,
				out_dim);
	return 0;
}
