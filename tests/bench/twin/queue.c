// SPDX-License-Identifier: Apache-2.0
/* queue.c - the blocking FIFO: a chunked list under a mutex, and a condition. */
#include <stdlib.h>

#include "internal.h"

void twin_queue_init(struct twin_queue *q)
{
	*q = (struct twin_queue){ .kill = false };
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->cond, NULL);
	q->first = q->last = twin_alloc(sizeof(*q->first));
	q->first->next = NULL;
}

void twin_queue_finish(struct twin_queue *q)
{
	struct twin_queue_chunk *c;

	while ((c = q->first)) {
		q->first = c->next;
		free(c);
	}
	free(q->front);
	pthread_cond_destroy(&q->cond);
	pthread_mutex_destroy(&q->lock);
}

/* The notification comes after the unlock, and only if a thread waits. */
void twin_queue_push(struct twin_queue *q, void *item)
{
	bool notify;

	pthread_mutex_lock(&q->lock);
	if (q->to == QUEUE_CHUNK) {
		struct twin_queue_chunk *c = twin_alloc(sizeof(*c));

		c->next = NULL;
		q->last->next = c;
		q->last = c;
		q->to = 0;
	}
	q->last->item[q->to++] = item;
	q->count++;
	notify = q->waiting != 0;
	pthread_mutex_unlock(&q->lock);
	if (notify)
		pthread_cond_signal(&q->cond);
}

void twin_queue_push_front(struct twin_queue *q, void *item)
{
	bool notify;

	pthread_mutex_lock(&q->lock);
	if (q->nfront == q->maxfront) {
		q->maxfront = q->maxfront ? 2 * q->maxfront : 16;
		q->front = realloc(q->front, q->maxfront * sizeof(*q->front));
		if (!q->front)
			abort();
	}
	q->front[q->nfront++] = item;
	notify = q->waiting != 0;
	pthread_mutex_unlock(&q->lock);
	if (notify)
		pthread_cond_signal(&q->cond);
}

bool twin_queue_pop(struct twin_queue *q, void **item, bool wait)
{
	struct twin_queue_chunk *c;
	bool got = false;

	pthread_mutex_lock(&q->lock);
	q->waiting++;
	while (wait && !q->count && !q->nfront && !q->kill)
		pthread_cond_wait(&q->cond, &q->lock);
	q->waiting--;
	if (q->kill || (!q->count && !q->nfront))
		goto out;
	got = true;
	if (q->nfront) {
		*item = q->front[--q->nfront];
		goto out;
	}
	if (q->from == QUEUE_CHUNK) {
		c = q->first;
		q->first = c->next;
		q->from = 0;
		free(c);
	}
	*item = q->first->item[q->from++];
	q->count--;
out:
	pthread_mutex_unlock(&q->lock);
	return got;
}

void twin_queue_kill(struct twin_queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->kill = true;
	pthread_mutex_unlock(&q->lock);
	pthread_cond_broadcast(&q->cond);
}
