/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recorded workload in memory: ops with their accesses, times and positions.  Its source is
 * a file of pawl_record_start() (record.c; Documentation/record.md describes the format), or a
 * workload in another format (workload.c).
 */
#ifndef PAWL_RECORD_H
#define PAWL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REC_NONE UINT32_MAX

struct rec_access {
	uint32_t var;		/* in vars[] */
	bool write;
	bool placed;		/* version is known: the op began, and the var existed */
	uint64_t version;	/* completed writes of the var when the op began */
};

struct rec_op {
	uint32_t engine, thread;	/* that pushed it; thread: slot in the engine */
	uint32_t runner;	/* thread that began it */
	uint32_t index, gen;	/* its name in the file */
	uint32_t parent;	/* op in whose body it was pushed, or REC_NONE */
	const char *name;	/* "" if it has none */
	size_t access;		/* first of naccesses in accesses[] */
	uint32_t naccesses;
	int32_t priority;
	uint16_t prop, device_kind, device;
	bool async, empty;
	bool ends;		/* it deletes the var that it writes */
	bool more;		/* its thread's next op is in the same batch */
	bool undone;		/* its push was refused */
	bool begun, ended;
	int32_t status;
	uint64_t push, begin, end;	/* ns since the beginning */
	bool launch;		/* of a graph: it is no body; its bodies are nodes */
	uint32_t nnodes;
	size_t node;		/* first of nnodes in nodes[], by number */
};

/* A body of a launch. */
struct rec_node {
	uint32_t op, number;
	uint32_t runner;	/* thread that began it */
	bool async;
	bool skipped;		/* it did not run, because one before it failed */
	bool begun, ended;
	int32_t status;
	uint64_t begin, end;
	const char *name;
	size_t succ;		/* numbers of those that wait for it: first of nsucc in succ[] */
	uint32_t nsucc;
};

struct rec_var {
	uint32_t engine, index, gen;
	uint64_t first;		/* version at its first known access */
	uint64_t reads, writes;
};

struct rec_wait {
	uint32_t engine, thread, var;	/* var: REC_NONE when for all */
	bool write, ended;
	int32_t status;
	uint64_t begin, end;
	uint32_t after;		/* op that the thread pushed last, or REC_NONE */
};

struct rec_engine {
	uint32_t number, kind, workers, devices;
	char name[128];
};

/* before must be complete when after begins: said by the source in addition to the accesses. */
struct rec_edge {
	uint32_t before, after;
};

struct recording {
	struct rec_op *ops;	/* of each thread in the order of its pushes */
	size_t nops;
	struct rec_access *accesses;
	size_t naccesses;
	struct rec_var *vars;
	size_t nvars;
	struct rec_node *nodes;	/* sorted by op and number */
	size_t nnodes;
	uint32_t *succ;
	size_t nsucc;
	struct rec_wait *waits;
	size_t nwaits;
	struct rec_engine *engines;
	size_t nengines;
	struct rec_edge *edges;
	size_t nedges;
	bool *told;		/* of each edge: no access implies it; NULL: all are implied */
	size_t ntold;
	uint32_t threads;	/* that pushed or ran something */

	double covered;		/* of the trace's measured time by ops; 0: it is all; < 0: no times */
	const char *format;	/* what it was read from */
	uint32_t version, pid;
	char library[128], program[128];
	int64_t started;	/* seconds since 1970 */
	uint64_t length;	/* ns from the first to the last chunk */
	uint64_t chunks, bytes, lost;
	uint64_t foreign;	/* begins and ends of ops pushed before the recording */
	uint64_t nonsense;	/* of other formats: events and times left out */
	bool ended;		/* the recording was stopped; otherwise the file is truncated */
	uint64_t whole;		/* bytes that were read */

	void *data[8];		/* to free */
};

/*
 * Read a recording from memory; name is for messages.  Returns 0, or a negative errno with
 * the position and the reason in err.  A truncated recording is read up to its last whole
 * chunk (ended is false); any other defect is -EBADMSG.
 */
int rec_parse(const char *name, const void *data, size_t len, struct recording *r, char *err,
	      size_t errlen);
void rec_free(struct recording *r);
/* The node of the launch with this number, or NULL. */
const struct rec_node *rec_node_find(const struct recording *r, const struct rec_op *o,
				     uint32_t number);

/*
 * Store in order[] a serial order of all ops that were not undone, and their number in *n.  It
 * agrees with each thread's program order, with nesting (a body precedes the ops that it
 * pushed), and with the position of each access; of several ops that may be next, the one that
 * was pushed first is.  The engine guarantees that an order exists; otherwise the result is
 * -EBADMSG, with the ops that contradict each other.
 */
int rec_order(const struct recording *r, uint32_t *order, size_t *n, char *err, size_t errlen);

/* Load any of the formats, detected by the contents; also compressed by gzip. */
int workload_load(const char *path, struct recording *r, char *err, size_t errlen);
/* The same, with its serial order; the caller frees *order. */
int workload_open(const char *path, struct recording *r, uint32_t **order, size_t *n, char *err,
		  size_t errlen);

#endif
