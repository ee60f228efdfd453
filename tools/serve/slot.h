/* SPDX-License-Identifier: Apache-2.0 */
/* slot.h - a slot and its plan: plan.c makes the plan, slot.c runs it. */
#ifndef PAWL_SERVE_SLOT_H
#define PAWL_SERVE_SLOT_H

#include "graph.h"

enum { ROWS, LAST, FORMS };			/* channels in the middle, and last */

struct piece {
	size_t bytes;
	int writer;				/* a job; -1: an input of the model */
	bool fixed, live;
	int block;
};

struct job {
	const struct node *n;			/* NULL: a copy; of a chain, its last node */
	struct chain *chain;			/* NULL: the node alone */
	unsigned int nin;
	struct view out, *in;
	const struct view **ins;		/* as kernel_run() takes them */
	int *in_piece, out_piece;		/* -1: none, or a constant */
	int *scratch;				/* a piece per tile, or -1 */
	struct prim **prim;			/* one per tile, or NULL */
	unsigned int tiles;
};

struct block {
	size_t bytes;
	char *data;
	bool fixed;
	unsigned int parts;
	unsigned int first;			/* of the parts' slots in the graph; 0: an input */
	uint64_t *users;			/* a bit per job; only while planning */
};

struct step {
	const struct job *job;
	struct ort_slot *ort;			/* or this: the run of a backend */
	struct prim *prim;
	bool timed, failed;
	int thread;
	uint64_t begin_ns, end_ns;		/* of the last run, if it was timed */
};

struct serve_slot {
	struct graph *g;
	struct pawl_engine *e;
	struct ort_slot *ort;			/* then there are no jobs */
	size_t bytes;
	struct shape *shape;			/* of each value */
	int (*at)[FORMS]; /* the piece of a value in each layout; -1: none */
	struct piece *piece;
	unsigned int npieces;
	struct job *job;
	unsigned int njobs;
	struct block *block;
	unsigned int nblocks;
	struct step *step;			/* of the graph's ops */
	unsigned int nsteps;
	pawl_graph_t graph;
	pawl_var_t *vars;			/* of a launch: the weights, and {0} for each part */
	unsigned int nvars;
	pawl_ticket_t ticket;			/* of the last launch */
	bool timed;				/* the last launch was */
	bool apart;				/* see serve_slot_apart() */
	struct serve_shape outputs[MAX_IO];
	int in_piece[MAX_IO], out_piece[MAX_IO];
	/* while it is planned: nodes that have jobs, blocks that are zeroed, bytes of the next */
	unsigned int nplanned, nfilled;
	size_t filled;
	char *err;
	size_t errsize;
};

int slot_no_memory(struct serve_slot *s);
/* Begin a plan for inputs of these shapes. */
int slot_begin(struct serve_slot *s, const struct serve_shape *shapes);
/*
 * Plan the next piece: a job with its calls of oneDNN, or memory.  Returns -EAGAIN until the
 * plan is complete.
 */
int slot_plan(struct serve_slot *s);
/* rows.c: set s->apart. */
int slot_rows(struct serve_slot *s);
/* fuse.c: merge jobs into chains, before their memory is planned. */
int slot_fuse(struct serve_slot *s);
static inline char *data_of(const struct serve_slot *s, int piece)
{
	return piece < 0 ? NULL : s->block[s->piece[piece].block].data;
}

#endif
