/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - the twin's structs, pools and queue. */
#ifndef TWIN_INTERNAL_H
#define TWIN_INTERNAL_H

#include "twin.h"

/* ---- pools: pool.c ---- */

struct twin_pool {
	pthread_mutex_t lock;
	void *free;		/* linked through the first word */
	size_t size;
	void **pages;		/* freed only with the pool */
	size_t npages, maxpages;
};

void twin_pool_init(struct twin_pool *p, size_t size);
void twin_pool_finish(struct twin_pool *p);
void *twin_pool_new(struct twin_pool *p);
void twin_pool_delete(struct twin_pool *p, void *obj);
/* malloc that does not fail */
void *twin_alloc(size_t size);

/* ---- the FIFO of ready ops: queue.c ---- */

#define QUEUE_CHUNK 64

struct twin_queue_chunk {
	struct twin_queue_chunk *next;
	void *item[QUEUE_CHUNK];
};

struct twin_queue {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct twin_queue_chunk *first, *last;
	unsigned int from, to;		/* in first; in last */
	size_t count;
	void **front;			/* pushed to the front: a stack */
	size_t nfront, maxfront;
	int waiting;
	bool kill;
};

void twin_queue_init(struct twin_queue *q);
void twin_queue_finish(struct twin_queue *q);
void twin_queue_push(struct twin_queue *q, void *item);
void twin_queue_push_front(struct twin_queue *q, void *item);
bool twin_queue_pop(struct twin_queue *q, void **item, bool wait);
void twin_queue_kill(struct twin_queue *q);

/* ---- objects ---- */

/* A function object: a small closure inside, a larger one allocated. */
struct twin_fn {
	twin_body body;
	void *heap;
	uint64_t small[2];
};

struct twin_vec {
	struct twin_var **begin, **end;
};

struct twin_opr {
	struct twin_fn fn;
	struct twin_vec reads, writes;
	enum twin_prop prop;
	bool temporary, wait;
	int error;
};

struct twin_block {
	int wait;		/* atomic: accesses not granted yet, + 1 while pushing */
	int priority;
	struct twin_opr *opr;
	struct twin_engine *engine;
};

/* One queued access.  A queue ends in an empty one. */
struct twin_access {
	struct twin_access *next;
	struct twin_block *block;
	bool write;
};

struct twin_var {
	pthread_mutex_t lock;
	/* granted reads; WRITE_GRANTED: the pending write runs */
	int reads;
	struct twin_access *head;	/* the empty one */
	struct twin_access *pending;	/* the first write that is not over */
	uint64_t version;
	int error;
	bool deleted;
};

#define WRITE_GRANTED (-1)

#endif /* TWIN_INTERNAL_H */
