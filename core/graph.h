/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: ops described once and pushed many times. */
#ifndef CORE_GRAPH_H
#define CORE_GRAPH_H

#include <core/op.h>

/*
 * A graph.  Its runs are ops with the vars of all its ops; what they run is the body of its
 * one op, or that of a group (group.c).
 */
struct graph {
	u32 refs;		/* A: runs in flight, plus one until deleted */
	u32 gen;		/* A: odd while alive */
	pawl_fn fn;
	pawl_async_fn async_fn;
	void *arg;
	pawl_release_fn release;
	const char *name;
	struct dep *deps;	/* I: template, sorted; malloc */
	u32 ndeps;
	u16 flags;
	u8 prop;
	u8 dev;			/* where a run is without struct pawl_launch */
	int prio;		/* and its priority */
	u32 unused[3];
};

void graph_put(struct thread *t, u32 idx);
void graphs_exit(struct thread *t);

/* group.c */
#define GRAPH_MAX	4096u	/* ops of a graph */

/*
 * Make of n ops that were checked one op, *all.  The caller frees all->reads, which holds
 * the writes, too; all->arg belongs to the graph.  Returns 0 or an error.
 */
int group_new(const struct pawl_op *ops, size_t n, bool capture, struct pawl_op *all);
/* Capture again.  Returns false if the body and its argument are not a group to capture. */
bool group_refresh(pawl_fn fn, void *arg);

#endif
