/* SPDX-License-Identifier: Apache-2.0 */
/* mxnet.h - what the two files that read MXNet's models share; see mxnet.c. */
#ifndef SERVE_MXNET_H
#define SERVE_MXNET_H

#include <jansson.h>

#include "build.h"

struct array {
	const unsigned char *data;
	unsigned int rank;
	int64_t dims[SERVE_RANK];
	size_t bytes;
	const char *name;			/* without arg: or aux:; not terminated */
	size_t name_len;
};

struct mx {
	struct site s;
	const unsigned char *p;			/* what is left of the arrays' file */
	size_t left;
	struct array *array;
	size_t narrays;
	json_t *root;
	int *value;				/* of each node; -1: a label */
	int *more;				/* outputs of each behind the first one */
	json_t *node;				/* the node that is read */
	const char *op;
	const char *bad;			/* an attribute of the node with an invalid value */
};

#define refuse_node(m, code, fmt, ...) refuse((m)->s.g, code, "operator %s '%s': " fmt, (m)->op, \
	(m)->s.where, ##__VA_ARGS__)

/* Attributes of the node: texts such as "(3, 3)", "True", "0.1".  One that is invalid sets bad. */
const char *mx_attr(const struct mx *m, const char *key);
bool mx_bool(struct mx *m, const char *key, bool other);
double mx_number(struct mx *m, const char *key, double other);
int64_t mx_int(struct mx *m, const char *key, int64_t other);
/* The numbers of a tuple, or of one number; returns how many, or -1 for more than most. */
int mx_tuple(const struct mx *m, const char *key, int64_t *out, unsigned int most);
bool mx_is(const struct mx *m, const char *key, const char *text);

/*
 * mxnet_lower.c: read an operator that consists of others.  Returns how many outputs there are in
 * out, which has room for MAX_IO, or an error; -ENOENT: it is none.
 */
int mxnet_lower(struct mx *m, const int *in, unsigned int nin, int *out);

#endif
