/* SPDX-License-Identifier: Apache-2.0 */
/* The vars of a large recording that may still be named, and the accesses of ops in flight. */
#ifndef PAWL_FLOW_VARS_H
#define PAWL_FLOW_VARS_H

#include "flow.h"

struct flow_vars {
	struct flow_var **table;
	size_t n, size;
	size_t known;			/* ever */
	const struct flow_sink *sink;
	void *ctx;
};

/*
 * Find or add a var.  Those that had the same index at least two vars before, and that no op in
 * flight names, are dropped.  Returns 0, DIFFERS or -ENOMEM.
 */
int flow_var_of(struct flow_vars *t, uint32_t engine, uint64_t index, uint64_t gen,
		struct flow_var **out);
void flow_vars_free(struct flow_vars *t);
/* Add an access of an op that began.  Returns 0, DIFFERS or -ENOMEM. */
int flow_slot_add(struct flow_var *v, uint64_t version, bool write);
/* Does no added access precede this one, which was added? */
bool flow_slot_first(const struct flow_var *v, uint64_t version, bool write);
void flow_slot_remove(struct flow_var *v, uint64_t version, bool write);

#endif
