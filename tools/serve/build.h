/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.h - for readers of operators that consist of others: makes their nodes.
 *
 * All functions return the new value, or an error; if an input is an error, they return it, so
 * that only the last result is to be checked.
 */
#ifndef SERVE_BUILD_H
#define SERVE_BUILD_H

#include "oper.h"

/* The graph, and the name of the node that is read, for the new ones and for messages. */
struct site {
	struct graph *g;
	const char *where;
};

/* A node whose inputs may be left out, -1. */
int build(struct site *s, enum op op, const char *type, bool (*rows)(struct rows *),
	  const struct attrs *a, const int *in, unsigned int nin);
int build_oper(struct site *s, const struct oper *o, const struct attrs *a, const int *in,
	       unsigned int nin);		/* of the tables */
int build1(struct site *s, enum op op, const char *type, bool (*rows)(struct rows *),
	   const struct attrs *a, int in);
int build_transpose(struct site *s, int in, const int64_t *perm, unsigned int n);
/* Add or remove dimensions of 1. */
int build_squeeze(struct site *s, bool adds, int in, const int64_t *axes, unsigned int n);
int build_reshape(struct site *s, int in, const int64_t *dims, unsigned int n);
int build_slice(struct site *s, int in, int64_t axis, int64_t from, int64_t to);
int build_concat(struct site *s, const int *in, unsigned int n, int64_t axis);
int build_matmul(struct site *s, int x, int y);
int build_cast(struct site *s, enum serve_type to, int in);
int build_binary(struct site *s, enum binary kind, int x, int y);
/* Constants. */
int build_number(struct site *s, float f);
int build_whole(struct site *s, const int64_t *v, unsigned int n);

static inline int build_times(struct site *s, int x, int y)
{
	return build_binary(s, B_MUL, x, y);
}

#endif
