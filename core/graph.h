/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: ops described once and pushed many times. */
#ifndef CORE_GRAPH_H
#define CORE_GRAPH_H

#include <core/op.h>

#define GRAPH_MAX	32768u	/* ops of a graph */
#define GRAPH_ACCESSES	(1u << 22)	/* their reads and writes */
#define GRAPH_SLOTS	65535u	/* a slot's number is below */

struct capture;

/* One op of a graph. */
struct node {
	union {
		pawl_fn fn;
		pawl_async_fn async_fn;
	};
	void *arg;
	pawl_release_fn release;
	const char *name;
	u32 succ, nsucc;	/* its successors: plan.succ[succ .. succ + nsucc - 1] */
	bool async;
	bool single;		/* it has one successor, and that one no other predecessor */
};

/* What pawl_graph_create() computes; nothing of it changes until the graph has ended. */
struct plan {
	u32 n;
	u32 ndeps, nslots;
	u32 nsources, nsinks;	/* nodes without predecessors, and without successors */
	bool whole;		/* one op without capture: a launch runs it as it is */
	bool async;		/* some node is asynchronous */
	u16 flags;		/* OP_* of a launch */
	u8 prop;
	struct pawl_device device;	/* where a launch is without struct pawl_launch, */
	s32 prio;		/*   and its priority */
	const char *name;
	struct dep *deps;	/* the vars, sorted */
	u8 *slots;		/* SLOT_* */
	u32 *succ;		/* first the sources */
	u32 *wait;		/* how many predecessors each node has; 1 for a source */
	struct capture *capture;	/* group.c; NULL: the bodies run at each launch */
	struct node node[];
};

enum { SLOT_UNUSED, SLOT_READ, SLOT_WRITE };

/* A graph. */
struct graph {
	u32 refs;		/* A: launches in flight, plus one until deleted */
	u32 gen;		/* A: odd while alive */
	struct plan *plan;	/* I */
	struct pair free;	/* A: stack of struct launch; the tag counts its changes */
};

/*
 * A launch that is in flight, or the memory for one, which belongs to its graph.  Word i of
 * wait is for node i: [15:0] predecessors that have not ended, [31:16] those of them that
 * failed; when all have ended it belongs to the thread that has the node: NODE_FAILED, and in
 * [15:0] the next node of a list, plus one.
 */
struct launch {
	struct launch *next;	/* A: in the graph's stack */
	const struct plan *plan;	/* I */
	void **args;		/* of the nodes, or NULL: those of the graph */
	u32 op;			/* the op that has the vars */
	u32 carrier;		/* the first one, until the launch starts; or 0 */
	s32 status;		/* run.status of nodes without a failed predecessor */

	u32 left __cacheline_aligned;	/* A: sinks that have not ended */
	u32 err;		/* A: the first error of a node, or 0 */
	u32 rest;		/* A: stack of ready nodes that found no carrier */
	u32 wait[];		/* A; behind it room for args, and for the accesses */
};

#define NODE_WAITS	0xffffu
#define NODE_FAILS	0x10000u
#define NODE_FAILED	0x80000000u

static inline struct graph *graph_of(const struct pawl_engine *e, u32 idx)
{
	return pool_obj(e->pool[POOL_GRAPH], idx);
}

void graph_end(struct thread *t, struct op *op);
void graphs_exit(struct thread *t);

/* nodes.c */
int nodes_fn(struct pawl_run *run, void *arg);
u32 nodes_begin(struct thread *t, struct op *op, u32 opi, int status);
u32 node_run(struct thread *t, struct op *op, u32 opi);
u32 node_complete(struct thread *t, struct op *op, u32 opi, int status);
struct op *node_carrier(const struct pawl_run *run);

/* plan.c */
int plan_make(struct thread *t, const struct pawl_op *ops, size_t n, bool capture,
	      struct plan **out);
void plan_free(struct plan *p);

/* group.c */
int group_run(struct pawl_run *run, void *arg);
struct capture *capture_new(void);
void capture_free(struct capture *c);
void capture_refresh(struct capture *c);

static inline void *node_arg(const struct launch *l, u32 i)
{
	return l->args ? l->args[i] : l->plan->node[i].arg;
}

#endif
