// SPDX-License-Identifier: Apache-2.0
/*
 * Scheduling: queues, batches and slots of all models, on loop 0 alone.
 *
 * Queues are bounded in requests and bytes; a request beyond that is refused at once.  A run
 * is launched when fewer than workers + 1 are in flight, so that the engine always has the
 * next one; requests that wait meanwhile can still be batched, reordered, canceled, or time
 * out.  Models take turns by stride scheduling: each run advances the pass of its model by the
 * usual time of its runs divided by its weight, and the model with the least pass is next.
 *
 * A batch has requests of one version and one shape, apart from the number of rows, in the
 * order of their priorities.  The files say that the first dimension of an output varies, but
 * not that it is the batch.  So before requests share a run, the outputs of two numbers of rows
 * are compared; if an output does not have the rows of the inputs, each request runs alone.
 * A model with max_delay waits for more requests until that time has passed since the arrival
 * of the oldest, or half of the time to the deadline of one.  No request ends because of the
 * deadline of another one: a run of several requests has the latest of their deadlines, and
 * none if one of them has none.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve.h"

#define MAX_SLOTS	64		/* of a version */
#define SCAN		256		/* requests that one batch is chosen from */
#define RUN_NS_FIRST	1000000u	/* before a model has run */

static const char too_late[] = "Request timeout expired";

void version_get(struct version *v)
{
	fetch_add_relaxed(&v->refs, 1);
}

void version_put(struct version *v)
{
	/* releases what this thread did with it; the last one acquires all of that */
	if (fetch_add_acq_rel(&v->refs, (u32)-1) == 1)
		port_post(v->home, &v->free_msg);
}

/* --- queues -------------------------------------------------------------------- */

static void finish(struct request *r, int status, const char *why)
{
	struct stats *st = &r->v->e->stats;

	r->state = REQ_DONE;
	r->status = status;
	r->why = why;
	if (status == -ETIMEDOUT)
		add_relaxed(&st->timed_out, 1);
	if (status == -ECANCELED)
		add_relaxed(&st->canceled, 1);
	r->done.arg = r;
	port_post(&r->loop->port, &r->done);
}

static void unlink_request(struct entry *e, struct request *r)
{
	struct queue *q = &e->level[r->level];

	if (r->prev)
		r->prev->next = r->next;
	else
		q->head = r->next;
	if (r->next)
		r->next->prev = r->prev;
	else
		q->tail = r->prev;
	e->queued--;
	e->queued_bytes -= r->bytes;
	store_relaxed(&e->pending, e->queued);
}

void sched_submit(struct msg *m)
{
	struct request *r = m->arg;
	struct entry *e = r->v->e;
	struct server *sv = r->loop->sv;
	struct queue *q = &e->level[r->level];

	r->queued_ns = now_ns();
	if (r->deadline_ns && r->deadline_ns <= r->queued_ns) {
		finish(r, -ETIMEDOUT, too_late);
		return;
	}
	if (e->queued >= e->conf.queue_requests ||
	    (e->queued && e->queued_bytes + r->bytes > e->conf.queue_bytes)) {
		add_relaxed(&e->stats.refused, 1);
		finish(r, -EAGAIN, "Exceeds maximum queue size");
		return;
	}
	r->state = REQ_QUEUED;
	r->next = NULL;
	r->prev = q->tail;
	if (q->tail)
		q->tail->next = r;
	else
		q->head = r;
	q->tail = r;
	if (!e->queued++)
		e->next_deadline = 0;
	e->queued_bytes += r->bytes;
	store_relaxed(&e->pending, e->queued);
	if (r->deadline_ns && (!e->next_deadline || r->deadline_ns < e->next_deadline))
		e->next_deadline = r->deadline_ns;
	if (!e->active) {
		e->active = true;
		e->next_active = sv->active;
		sv->active = e;
		/* time that was not used does not count */
		if (e->pass < sv->pass)
			e->pass = sv->pass;
	}
}

void sched_cancel(struct msg *m)
{
	struct request *r = m->arg;

	if (r->state == REQ_QUEUED) {
		unlink_request(r->v->e, r);
		finish(r, -ECANCELED, "canceled");
	} else if (r->state == REQ_RUNNING && !r->is_canceled) {
		r->is_canceled = true;
		if (++r->slot->canceled == r->slot->nreqs)
			serve_slot_cancel(r->slot->s);
	}
	/* the receipt: from now on this loop has nothing of the request */
	port_send(&r->loop->port, m, r->done.fn, r);
}

/* End what has waited too long.  Called once per millisecond at most. */
static void expire(struct entry *e, uint64_t now)
{
	uint64_t first = 0;
	struct request *r, *next;
	unsigned int k;

	for (k = 0; k < LEVELS; k++)
		for (r = e->level[k].head; r; r = next) {
			next = r->next;
			if (r->deadline_ns && r->deadline_ns <= now) {
				unlink_request(e, r);
				finish(r, -ETIMEDOUT, too_late);
			} else if (r->deadline_ns && (!first || r->deadline_ns < first)) {
				first = r->deadline_ns;
			}
		}
	e->next_deadline = first && first < now + 1000000 ? now + 1000000 : first;
}

/* --- slots --------------------------------------------------------------------- */

static bool same_shape(const struct serve_shape *a, const struct serve_shape *b, bool batch)
{
	return a->rank == b->rank && !memcmp(a->dims + batch, b->dims + batch,
					     (a->rank - batch) * sizeof(a->dims[0]));
}

static bool same_shapes(const struct request *a, const struct request *b)
{
	const struct serve_model *m = a->v->m;
	unsigned int i;

	if (a->v != b->v)
		return false;
	for (i = 0; i < m->ninputs; i++)
		if (!same_shape(&a->in[i].shape, &b->in[i].shape, m->batch))
			return false;
	return true;
}

static void slot_free(struct slot *s)
{
	if (s->s)
		serve_slot_destroy(s->s);
	free(s->reqs);
	free(s);
}

static struct slot *slot_create(struct server *sv, struct version *v,
				const struct serve_shape *in, uint64_t rows, int *rc, char *err,
				size_t size)
{
	struct slot *s = calloc(1, sizeof(*s));
	unsigned int most = v->m->batch && v->e->conf.max_batch > 1 ? v->e->conf.max_batch : 1;
	unsigned int i;

	*rc = -ENOMEM;
	snprintf(err, size, "out of memory");
	if (!s)
		return NULL;
	s->v = v;
	s->rows = rows;
	memcpy(s->in, in, v->m->ninputs * sizeof(*in));
	s->reqs = calloc(most, sizeof(struct request *));
	if (s->reqs)
		*rc = serve_slot_create(v->m, sv->e, s->in, &s->s, err, size);
	if (*rc) {
		s->s = NULL;
		slot_free(s);
		return NULL;
	}
	s->by_rows = v->m->batch;
	for (i = 0; s->by_rows && i < v->m->noutputs; i++) {
		const struct serve_shape *out = serve_slot_output_shape(s->s, i);

		s->by_rows = out->rank && out->dims[0] == (int64_t)rows;
	}
	if (!s->by_rows)
		v->share = SHARE_NO;
	v->nslots++;
	return s;
}

/* Free the slot that was not used for the longest time. */
static void slot_drop(struct version *v)
{
	struct slot **at = &v->free, *s;

	while ((*at)->next)
		at = &(*at)->next;
	s = *at;
	*at = NULL;
	v->nslots--;
	v->free_bytes -= serve_slot_bytes(s->s);
	slot_free(s);
}

/* Clients choose shapes, so what is kept for the next request with the same ones is bounded. */
static void slot_give(struct slot *s)
{
	struct version *v = s->v;

	s->next = v->free;
	v->free = s;
	v->free_bytes += serve_slot_bytes(s->s);
	while (v->free_bytes > v->e->conf.slot_bytes && v->free->next)
		slot_drop(v);
}

/* A free slot of these shapes, else a new one. */
static struct slot *slot_take(struct server *sv, struct version *v, const struct request *r,
			      uint64_t rows, int *rc)
{
	struct serve_shape in[MAX_IO];
	struct slot **at, *s;
	unsigned int i;
	char err[256];

	for (at = &v->free; (s = *at); at = &s->next) {
		if (s->rows != rows)
			continue;
		for (i = 0; i < v->m->ninputs; i++)
			if (!same_shape(&s->in[i], &r->in[i].shape, v->m->batch))
				break;
		if (i == v->m->ninputs) {
			*at = s->next;
			v->free_bytes -= serve_slot_bytes(s->s);
			return s;
		}
	}
	if (v->nslots >= MAX_SLOTS && v->free)
		slot_drop(v);
	for (i = 0; i < v->m->ninputs; i++) {
		in[i] = r->in[i].shape;
		if (v->m->batch)
			in[i].dims[0] = (int64_t)rows;
	}
	s = slot_create(sv, v, in, rows, rc, err, sizeof(err));
	/* once a second: clients choose the shapes */
	if (!s && now_ns() >= v->logged_ns + 1000000000u) {
		v->logged_ns = now_ns();
		log_line("error", "slot", "model", v->e->name, "error", err, NULL);
	}
	return s;
}

int sched_warm(struct server *sv, struct version *v, char *err, size_t size)
{
	const struct model_conf *conf = &v->e->conf;
	struct serve_shape in[MAX_IO];
	unsigned int i, k, n;
	struct slot *s;
	uint64_t rows;
	int rc;

	for (i = 0; i < v->m->ninputs; i++) {
		in[i].rank = v->m->inputs[i].rank;
		for (k = 0; k < in[i].rank; k++) {
			in[i].dims[k] = v->m->inputs[i].dims[k];
			if (in[i].dims[k] < 0 && (k || !v->m->batch))
				return 0;	/* planned with the first request of a shape */
		}
	}
	for (k = 0; k <= (v->m->batch ? conf->npreferred : 0); k++) {
		rows = k ? conf->preferred[k - 1] : 1;
		for (i = 0; i < v->m->ninputs && v->m->batch; i++)
			in[i].dims[0] = (int64_t)rows;
		for (n = 0; n < conf->instances; n++) {
			s = slot_create(sv, v, in, rows, &rc, err, size);
			if (!s)
				return rc;
			slot_give(s);
		}
	}
	return 0;
}

void slots_free(struct version *v)
{
	struct slot *s;

	while ((s = v->free)) {
		v->free = s->next;
		slot_free(s);
	}
}

void sched_recycle(struct msg *m)
{
	struct slot *s = m->arg;
	struct version *v = s->v;

	slot_give(s);
	version_put(v);
}

/* --- runs ---------------------------------------------------------------------- */

struct batch {
	struct request *r[SCAN];
	unsigned int n;
	uint64_t rows;
};

/* The next batch of a model.  Returns false if it should wait, and sets e->due. */
static bool gather(struct entry *e, struct batch *b, uint64_t now)
{
	const struct model_conf *conf = &e->conf;
	struct request *r, *first = NULL;
	uint64_t due = 0, at, rows, most;
	unsigned int k, i, seen = 0, fits = 0;

	b->n = 0;
	b->rows = 0;
	most = conf->max_batch;
	for (k = 0; k < LEVELS && seen < SCAN; k++) {
		for (r = e->level[k].head; r && seen < SCAN; r = r->next, seen++) {
			if (!first) {
				first = r;
				if (r->v->share == SHARE_NO)
					most = r->rows;
				else if (!r->v->m->batch || most < 1)
					most = 1;
			} else if (b->rows + r->rows > most) {
				if (b->rows >= most)
					break;
				continue;
			} else if (!same_shapes(first, r)) {
				continue;
			}
			b->r[b->n++] = r;
			b->rows += r->rows;
			at = r->arrival_ns + conf->delay_ns;
			/* half of the time to a deadline remains for the run */
			if (r->deadline_ns &&
			    at > r->arrival_ns + (r->deadline_ns - r->arrival_ns) / 2)
				at = r->arrival_ns + (r->deadline_ns - r->arrival_ns) / 2;
			if (!due || at < due)
				due = at;
		}
	}
	e->due = due;
	if (!b->n || !conf->delay_ns || b->rows >= most || now >= due)
		return b->n;
	/* the longest part that has a preferred size */
	for (i = 0, rows = 0; i < b->n; i++) {
		rows += b->r[i]->rows;
		for (k = 0; k < conf->npreferred; k++)
			if (rows == conf->preferred[k])
				fits = i + 1;
	}
	if (!fits)
		return false;
	while (b->n > fits)
		b->rows -= b->r[--b->n]->rows;
	return true;
}

/*
 * A slot for the batch, which becomes the first request alone if requests cannot share a run
 * of this version.
 */
static struct slot *slot_for(struct server *sv, struct version *v, struct batch *b, int *rc)
{
	struct slot *s = slot_take(sv, v, b->r[0], b->rows, rc), *alone;

	if (!s || b->n == 1 || v->share == SHARE_YES)
		return s;
	alone = slot_take(sv, v, b->r[0], b->r[0]->rows, rc);
	if (alone && v->share == SHARE_UNKNOWN) {
		v->share = SHARE_YES;
		slot_give(alone);
		return s;
	}
	slot_give(s);
	b->n = 1;
	b->rows = b->r[0]->rows;
	return alone;
}

static void launch(struct server *sv, struct entry *e, struct batch *b, uint64_t now)
{
	struct request *first = b->r[0];
	struct version *v = first->v;
	struct serve_launch how = { .weights = v->weights, .cq = sv->loops[0].cq,
				    .priority = LEVELS / 2 - 1 - (int)first->level };
	const char *why = "the model refuses these shapes";
	uint64_t end = 0, row = 0;
	unsigned int i, k;
	struct slot *s;
	bool limited = true;
	int rc = 0;
	char *to;

	s = slot_for(sv, v, b, &rc);
	for (k = 0; k < b->n; k++) {
		unlink_request(e, b->r[k]);
		limited = limited && b->r[k]->deadline_ns;
		if (b->r[k]->deadline_ns > end)
			end = b->r[k]->deadline_ns;
	}
	e->pass += (e->run_ns ? e->run_ns : RUN_NS_FIRST) / e->conf.weight;
	sv->pass = e->pass;
	if (!s)
		goto failed;
	s->nreqs = b->n;
	s->canceled = 0;
	s->start_ns = now;
	for (k = 0; k < b->n; k++) {
		s->reqs[k] = b->r[k];
		b->r[k]->row = row;
		b->r[k]->slot = s;
		b->r[k]->state = REQ_RUNNING;
		row += b->r[k]->rows;
		stats_add(&e->stats.queue, now - b->r[k]->arrival_ns);
		stats_hist(&e->stats, HIST_QUEUE, now - b->r[k]->arrival_ns);
	}
	for (i = 0; i < v->m->ninputs; i++) {
		to = serve_slot_input(s->s, i);
		for (k = 0; k < b->n; k++) {
			memcpy(to, b->r[k]->in[i].data, b->r[k]->in[i].bytes);
			to += b->r[k]->in[i].bytes;
		}
	}
	s->launched_ns = now_ns();
	how.tag = (uint64_t)(uintptr_t)s;
	how.deadline_ns = limited ? (int64_t)end : 0;
	version_get(v);
	rc = serve_slot_launch(s->s, &how);
	if (!rc) {
		sv->inflight++;
		e->inflight++;
		return;
	}
	slot_give(s);
	version_put(v);
failed:
	why = rc == -ENOMEM ? "out of memory" : rc == -EINVAL || rc == -ENOTSUP ? why :
		"the engine refused the run";
	for (k = 0; k < b->n; k++) {
		b->r[k]->slot = NULL;
		finish(b->r[k], rc, why);
	}
}

void sched_complete(struct slot *s, int status)
{
	struct version *v = s->v;
	struct entry *e = v->e;
	struct stats *st = &e->stats;
	struct server *sv = s->reqs[0]->loop->sv;
	uint64_t input = s->launched_ns - s->start_ns, run;
	unsigned int k, n = s->nreqs;
	struct timespec ts;

	s->done_ns = now_ns();
	run = s->done_ns - s->launched_ns;
	sv->inflight--;
	e->inflight--;
	e->run_ns = e->run_ns ? e->run_ns - e->run_ns / 8 + run / 8 : run;
	if (!status) {
		clock_gettime(CLOCK_REALTIME_COARSE, &ts);
		store_relaxed(&st->last_ms, (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / 1000000);
		add_relaxed(&st->executions, 1);
		if (st->batch && v->m->batch && s->rows <= e->conf.max_batch) {
			add_relaxed(&st->batch[s->rows].n, 1);
			add_relaxed(&st->batch[s->rows].input, input);
			add_relaxed(&st->batch[s->rows].infer, run);
		} else if (st->batch) {
			add_relaxed(&st->batch[1].n, 1);
			add_relaxed(&st->batch[1].input, input);
			add_relaxed(&st->batch[1].infer, run);
		}
		for (k = 0; k < n; k++) {
			stats_add(&st->input, input);
			stats_add(&st->infer, run);
			stats_hist(st, HIST_COMPUTE, run);
		}
	}
	/* Not under a request's control any more: the last that is done recycles the slot. */
	store_relaxed(&s->users, n);
	for (k = 0; k < n; k++)
		finish(s->reqs[k], s->reqs[k]->is_canceled ? -ECANCELED : status,
		       status == -ETIMEDOUT ? too_late : status == -ECANCELED ? "canceled" :
		       "the model failed");
}

/* End the turn of models without a queue. */
static void sweep(struct server *sv)
{
	struct entry **at = &sv->active, *e;

	while ((e = *at)) {
		if (e->queued) {
			at = &e->next_active;
			continue;
		}
		*at = e->next_active;
		e->active = false;
	}
}

uint64_t sched_run(struct server *sv, uint64_t now)
{
	static __thread struct batch b, best_batch;
	struct entry *e, *best;
	uint64_t next = 0, t;

	for (e = sv->active; e; e = e->next_active)
		if (e->next_deadline && now >= e->next_deadline)
			expire(e, now);
	while (sv->inflight < sv->cfg.workers + 1) {
		best = NULL;
		for (e = sv->active; e; e = e->next_active) {
			e->due = 0;
			if (!e->queued || e->inflight >= e->conf.instances ||
			    (best && e->pass >= best->pass))
				continue;
			if (gather(e, &b, now)) {
				best = e;
				best_batch.n = b.n;
				best_batch.rows = b.rows;
				memcpy(best_batch.r, b.r, b.n * sizeof(b.r[0]));
			}
		}
		if (!best)
			break;
		launch(sv, best, &best_batch, now);
	}
	sweep(sv);
	for (e = sv->active; e; e = e->next_active) {
		/* with all runs in flight, a completion comes first */
		t = sv->inflight < sv->cfg.workers + 1 && e->inflight < e->conf.instances ?
			    e->due :
			    0;
		if (e->next_deadline && (!t || e->next_deadline < t))
			t = e->next_deadline;
		if (t && (!next || t < next))
			next = t;
	}
	return next;
}
