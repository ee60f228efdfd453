/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - what the rules of rows.c and of the tables of operators consist of. */
#ifndef SERVE_ROWS_H
#define SERVE_ROWS_H

#include "slot.h"

struct row {
	enum { MIXED, FIXED, AXIS } state;
	int axis;
	int64_t k;
	void *slope;				/* of the type of the data; NULL: all are 0 */
};

struct rows {
	const struct serve_slot *s;
	int64_t n;				/* N in this slot */
	struct row *row;			/* of each value */
	const struct node *node;
	const struct shape *in[MAX_INPUTS];	/* of the node; NULL: left out */
	const struct row *at[MAX_INPUTS];
	const struct shape *out;
	struct row *to;
};

static inline int row_axis(int64_t axis, unsigned int rank)
{
	return (int)(axis < 0 ? axis + (int64_t)rank : axis);
}

/* Input i does not depend on N, or it is left out. */
bool row_plain(const struct rows *r, unsigned int i);
bool row_plain_from(const struct rows *r, unsigned int i);
/* The first input has rows, and the others do not depend on N. */
bool row_first_alone(const struct rows *r);
/* The output has k * N rows along this axis. */
bool row_along(struct rows *r, int axis, int64_t k);
/* Whole numbers that the plan knows, and what each grows by per row.  Returns how many, or -1. */
int row_numbers(const struct rows *r, unsigned int i, int64_t *value, int64_t *slope, int most);

#endif
