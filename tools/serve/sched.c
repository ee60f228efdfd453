// SPDX-License-Identifier: Apache-2.0
/*
 * Scheduling: queues and batches of all models, on loop 0 alone.
 *
 * Queues are bounded in requests and bytes; a request beyond that is refused at once.  A run
 * is launched when fewer than workers + 1 are in flight, so that the engine always has the
 * next one; requests that wait meanwhile can still be batched, reordered, canceled, or time
 * out.  Models take turns by stride scheduling: each run advances the pass of its model by the
 * usual time of the model's layers divided by its weight, and the model with the least pass is
 * next.  If with its next run a model's pass is still behind that of a model with a run in
 * flight, this run has the higher priority; it may also exceed the limit by one, if it is the
 * model's only run in flight.  Runs without a worker (light.c) do not compete with the others,
 * so each model has a second pass for them.
 *
 * A batch has requests of one version and one shape, apart from the number of rows, in the
 * order of their priorities.  The plan of the first slot shows whether each row is computed in
 * the same way for every number of rows (rows.c); if it does not show that, each request runs
 * alone.  So does one with more rows than max_batch.
 *
 * A batch needs a slot of its size.  If none is free, the longest part of it that has one runs,
 * and one for all of it is planned (slots.c); if no part has one, it waits for the plan, and
 * requests of other shapes run meanwhile.  A run that fails because of its data does so for all
 * of its requests: each of them runs again alone, and only the one with such data fails.
 *
 * A model with max_delay waits for more requests until that time has passed since the arrival
 * of the oldest, or half of the time to the deadline of one.  No request ends because of the
 * deadline of another one: a run of several requests has the latest of their deadlines, and
 * none if one of them has none.
 *
 * launch() returns from a light run when it is complete (light.c).  Such a run does not wait
 * for a worker.  After LIGHT_TURN_NS of them the loop reads its sockets and launches the other
 * runs before it continues.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve.h"

#define SCAN		256		/* requests that one batch is chosen from */
#define SKIP		4096		/* others that are passed over, since they wait for a plan */
#define TIMED_EVERY	8		/* one run in so many measures its layers */
#define RUN_NS_FIRST	1000000u	/* before a model has run */
#define LIGHT_TURN_NS	250000u		/* of light runs; then the loop reads its sockets */
#define CREDIT_NS	100000000u	/* a pass may be behind by so much, or by so many */
#define CREDIT_RUNS	4		/*   runs of the most expensive model */

static const char too_late[] = "Request timeout expired";
static const char no_memory[] = "out of memory";
static const char not_pushed[] = "the engine refused the run";

void version_get(struct version *v)
{
	fetch_add_relaxed(&v->refs, 1);
}

/* Loop 0 has no slot of it in its lists any more: the helper frees it. */
static void version_leave(struct msg *m)
{
	struct version *v = m->arg;

	slots_leave(v);
	port_send(v->home, m, v->end, v);
}

void version_put(struct version *v)
{
	/* releases what this thread did with it; the last one acquires all of that */
	if (fetch_add_acq_rel(&v->refs, (u32)-1) == 1)
		port_send(&v->e->sv->loops[0].port, &v->free_msg, version_leave, v);
}

/* --- queues -------------------------------------------------------------------- */

static void finish(struct request *r, int status, const char *why)
{
	struct stats *st = &r->v->stats;

	r->state = REQ_DONE;
	r->status = status;
	r->why = why;
	if (status == -ETIMEDOUT)
		add_relaxed(&st->timed_out, 1);
	r->done.arg = r;
	port_post(&r->loop->port, &r->done);
}

/* The model refuses the shapes or the values of the request. */
static void refuse(struct request *r, int status, const char *what, const char *why)
{
	bool said = status == -EINVAL || status == -ENOTSUP;

	if (said)
		snprintf(r->refused, sizeof(r->refused), "the model refuses these %s%s%s", what,
			 *why ? ": " : "", why);
	finish(r, status, said ? r->refused : status == -ENOMEM ? no_memory : not_pushed);
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
	shapes_put(r->v, r->shapes);
	r->shapes = NULL;
}

/* Into the queue, at its end or in front. */
static void enqueue(struct request *r, bool front)
{
	struct entry *e = r->v->e;
	struct server *sv = r->loop->sv;
	struct queue *q = &e->level[r->level];
	unsigned int k;

	r->slot = NULL;
	r->shapes = shapes_get(r);
	if (!r->shapes) {
		finish(r, -ENOMEM, no_memory);
		return;
	}
	r->state = REQ_QUEUED;
	r->next = front ? q->head : NULL;
	r->prev = front ? NULL : q->tail;
	*(r->prev ? &r->prev->next : &q->head) = r;
	*(r->next ? &r->next->prev : &q->tail) = r;
	if (!e->queued++) {
		e->next_deadline = 0;
		/* a model earns no credit while its queue is empty */
		for (k = 0; k < ENGINES; k++)
			if (e->pass[k] < sv->pass[k])
				e->pass[k] = sv->pass[k];
	}
	e->queued_bytes += r->bytes;
	store_relaxed(&e->pending, e->queued);
	if (r->deadline_ns && (!e->next_deadline || r->deadline_ns < e->next_deadline))
		e->next_deadline = r->deadline_ns;
	if (!e->active) {
		e->active = true;
		e->next_active = sv->active;
		sv->active = e;
	}
}

void sched_submit(struct msg *m)
{
	struct request *r = m->arg;
	struct entry *e = r->v->e;

	add_relaxed(&r->v->stats.submitted, 1);
	r->queued_ns = now_ns();
	if (r->deadline_ns && r->deadline_ns <= r->queued_ns) {
		finish(r, -ETIMEDOUT, too_late);
		return;
	}
	if (e->queued >= e->conf.queue_requests ||
	    (e->queued && e->queued_bytes + r->bytes > e->conf.queue_bytes)) {
		add_relaxed(&r->v->stats.refused, 1);
		finish(r, -EAGAIN, "Exceeds maximum queue size");
		return;
	}
	enqueue(r, false);
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

void sched_recycle(struct msg *m)
{
	struct slot *s = m->arg;
	struct version *v = s->v;

	light_settle(s);
	slot_give(s);
	version_put(v);
}

/* --- runs ---------------------------------------------------------------------- */

struct batch {
	struct request *r[SCAN];
	unsigned int n;
	uint64_t rows;
	uint64_t plan;			/* the rows of a slot to plan; 0: none */
	bool light;			/* its slot is light */
};

enum step { NOTHING, RUN, PLAN };

/* Requests that could share a run with the first, and when the model has waited for more. */
static uint64_t collect(struct request *first, struct batch *b)
{
	struct entry *e = first->v->e;
	const struct model_conf *conf = &e->conf;
	uint64_t due = 0, at, most = conf->max_batch;
	struct request *r;
	unsigned int k, seen = 0;

	if (first->shapes->share == SHARE_NO || first->alone || !first->shapes->batch)
		most = first->rows;
	else if (most < 1)
		most = 1;
	if (most > first->shapes->most)
		most = first->shapes->most;
	b->n = 0;
	b->rows = b->plan = 0;
	for (k = first->level; k < LEVELS && seen < SCAN; k++) {
		r = k == first->level ? first : e->level[k].head;
		for (; r && seen < SCAN; r = r->next, seen++) {
			if (r != first) {
				if (b->rows >= most)
					break;
				if (r->shapes != first->shapes || r->alone ||
				    r->rows > most - b->rows)
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
	return b->rows >= most ? 0 : due;
}

static void cut(struct batch *b, unsigned int n)
{
	while (b->n > n)
		b->rows -= b->r[--b->n]->rows;
}

/* Whether a batch of a model with max_delay can run: the longest part of a preferred size. */
static bool preferred(struct batch *b)
{
	const struct model_conf *conf = &b->r[0]->v->e->conf;
	unsigned int i, k, fits = 0;
	uint64_t rows = 0;

	for (i = 0; i < b->n; i++) {
		rows += b->r[i]->rows;
		for (k = 0; k < conf->npreferred; k++)
			if (rows == conf->preferred[k])
				fits = i + 1;
	}
	if (fits)
		cut(b, fits);
	return fits;
}

/* The longest part of the batch that has a slot, and the rows of a slot to be planned. */
static enum step choose(struct server *sv, struct batch *b, uint64_t now)
{
	struct version *v = b->r[0]->v;
	struct shapes *sh = b->r[0]->shapes;
	unsigned int i, fits = 0, most = sh->share == SHARE_YES ? b->n : 1;
	uint64_t rows = 0, all = b->rows;
	const struct slot *s;

	for (i = 0; i < most; i++) {
		rows += b->r[i]->rows;
		s = slot_find(v, sh, rows);
		if (s) {
			fits = i + 1;
			b->light = s->light;
		}
	}
	if (!fits) {
		b->plan = rows;
		return may_plan(sv, v, sh) ? PLAN : NOTHING;
	}
	if (fits < b->n && may_plan_more(sv, v, sh, now))
		b->plan = all;
	cut(b, fits);
	return RUN;
}

/* What a model does next.  Sets e->due if that is to wait for more requests. */
static enum step gather(struct server *sv, struct entry *e, struct batch *b, uint64_t now)
{
	unsigned int k, seen = 0, skipped = 0;
	uint64_t due, scan = ++sv->scan;
	struct request *r;
	enum step step;

	for (k = 0; k < LEVELS; k++) {
		for (r = e->level[k].head; r; r = r->next) {
			if (r->shapes->scan == scan ||
			    (!r->shapes->nfree && !may_plan(sv, r->v, r->shapes))) {
				if (++skipped == SKIP)
					return NOTHING;
				continue;
			}
			if (seen++ == SCAN)
				return NOTHING;
			due = collect(r, b);
			if (e->conf.delay_ns && due && now < due && !preferred(b)) {
				if (!e->due || due < e->due)
					e->due = due;
			} else {
				step = choose(sv, b, now);
				if (step != NOTHING)
					return step;
			}
			if (!r->alone)
				r->shapes->scan = scan;
		}
	}
	return NOTHING;
}

/* In the engine; between two levels there is room for runs that go first. */
static int priority(const struct request *r)
{
	return 2 * (LEVELS / 2 - 1 - (int)r->level);
}

/* A plan that fails fails the requests that cannot run without it. */
static void refuse_rows(struct entry *e, struct shapes *sh, uint64_t rows, int rc,
			const char *why)
{
	struct request *r, *next;
	unsigned int k;

	if (rows > 1 && sh->most > rows / 2)
		sh->most = rows / 2;
	for (k = 0; k < LEVELS; k++)
		for (r = e->level[k].head; r; r = next) {
			next = r->next;
			if (r->shapes == sh && r->rows == rows) {
				unlink_request(e, r);
				refuse(r, rc, "shapes", why);
			}
		}
}

/* Run them again, each alone; the slot has none of them any more. */
static void split(struct request *const *r, unsigned int n)
{
	struct stats *st = &r[0]->v->stats;

	while (n-- > 0) {
		if (r[n]->is_canceled) {
			r[n]->slot = NULL;
			finish(r[n], -ECANCELED, "canceled");
			continue;
		}
		r[n]->alone = true;
		add_relaxed(&st->alone, 1);
		enqueue(r[n], true);
	}
}

static uint64_t cost(const struct entry *e)
{
	return (e->run_ns ? e->run_ns : RUN_NS_FIRST) / e->conf.weight;
}

/* The greatest pass of the models with a run or a plan in flight. */
static uint64_t latest(const struct server *sv)
{
	const struct entry *e;
	uint64_t pass = 0;

	for (e = sv->active; e; e = e->next_active)
		if ((e->inflight || e->planning) && e->pass[WORKERS] > pass)
			pass = e->pass[WORKERS];
	return pass;
}

/*
 * Is the model's pass, with its next run, behind that of a model with a run in flight?  Then
 * the layers of the run go first, so it waits only for the layers that have begun.
 */
static bool goes_first(const struct entry *e, uint64_t latest_pass)
{
	return e->pass[WORKERS] + cost(e) < latest_pass;
}

static void plan_stop(struct slot *s, int rc)
{
	if (rc)
		refuse_rows(s->v->e, s->shapes, s->rows, rc, s->v->plan_error);
	plan_end(s, rc);
}

/* Push the next op of a plan. */
static void plan_on(struct slot *s)
{
	struct entry *e = s->v->e;
	int rc = plan_continue(s, goes_first(e, latest(s->sv)));

	if (rc)
		plan_stop(s, rc);
}

static void start_plan(struct server *sv, struct batch *b, bool needed)
{
	struct slot *s = plan_begin(sv, b->r[0]->v, b->r[0]->shapes, b->plan, needed,
				    priority(b->r[0]));

	if (s)
		plan_on(s);
	else if (needed)
		refuse_rows(b->r[0]->v->e, b->r[0]->shapes, b->plan, -ENOMEM, "");
}

/* An op of a plan is complete. */
static void planned(struct slot *s, int status)
{
	struct entry *e = s->v->e;
	int rc = status ? status : s->status;

	e->pass[WORKERS] += (s->done_ns - s->start_ns) / e->conf.weight;
	if (rc == -EAGAIN)
		plan_on(s);
	else
		plan_stop(s, rc);
}

/*
 * How far a pass may be behind.  It is behind for a short time, by less than a few runs of any
 * model, while the model has a run in flight and runs of others are launched.
 */
static uint64_t credit(const struct server *sv)
{
	const struct entry *e;
	uint64_t most = CREDIT_NS;

	for (e = sv->active; e; e = e->next_active)
		if (CREDIT_RUNS * cost(e) > most)
			most = CREDIT_RUNS * cost(e);
	return most;
}

/* A run of the model begins. */
static void charge(struct server *sv, struct entry *e, bool light)
{
	uint64_t *pass = &e->pass[light], *all = &sv->pass[light], most;

	/* models whose queue was empty begin with the pass of this model before the run */
	if (*all < *pass)
		*all = *pass;
	/* The limit of its runs, a delay, or a plan may have held it up for long. */
	else if (*pass + CREDIT_NS < *all && *pass + (most = credit(sv)) < *all)
		*pass = *all - most;
	*pass += cost(e);
	e->ran_light = light;
}

static void launch(struct server *sv, struct entry *e, struct batch *b)
{
	struct request *first = b->r[0];
	struct version *v = first->v;
	struct slot *s = slot_take(v, first->shapes, b->rows);
	struct serve_launch how = { .weights = v->weights[s->light],
				    .cq = sv->loops[0].cq[s->light],
				    .priority = priority(first) + goes_first(e, latest(sv)),
				    .timed = light_measures(s) ||
					    !(e->launches++ % TIMED_EVERY) };
	struct pawl_completion done;
	uint64_t end = 0, row = 0, queued;
	bool limited = true;
	unsigned int i, k;
	size_t bytes;
	char *to;
	int rc = 0;

	if (b->plan)
		start_plan(sv, b, false);
	charge(sv, e, s->light);
	s->nreqs = b->n;
	s->canceled = 0;
	/* not before the arrivals, which other loops measure */
	s->start_ns = now_ns();
	for (k = 0; k < b->n; k++) {
		unlink_request(e, b->r[k]);
		limited = limited && b->r[k]->deadline_ns;
		if (b->r[k]->deadline_ns > end)
			end = b->r[k]->deadline_ns;
		s->reqs[k] = b->r[k];
		b->r[k]->row = row;
		b->r[k]->slot = s;
		b->r[k]->state = REQ_RUNNING;
		how.timed = how.timed || b->r[k]->layers;
		row += b->r[k]->rows;
		if (!b->r[k]->alone) {
			queued = s->start_ns - b->r[k]->arrival_ns;
			stats_add(&v->stats.queue, queued);
			stats_hist(&v->stats, HIST_QUEUE, queued);
		}
	}
	for (i = 0; i < v->m->ninputs && !rc; i++) {
		for (bytes = 0, k = 0; k < b->n; k++)
			bytes += b->r[k]->in[i].bytes;
		to = serve_slot_input(s->s, i, bytes);
		rc = to ? 0 : -ENOMEM;
		for (k = 0; k < b->n && to; k++) {
			if (b->r[k]->in[i].bytes)
				memcpy(to, b->r[k]->in[i].data, b->r[k]->in[i].bytes);
			to += b->r[k]->in[i].bytes;
		}
	}
	s->launched_ns = now_ns();
	how.tag = (uint64_t)(uintptr_t)s;
	how.deadline_ns = limited ? (int64_t)end : 0;
	version_get(v);
	if (!rc)
		rc = serve_slot_launch(s->s, &how);
	if (!rc) {
		sv->inflight++;
		e->inflight++;
		if (s->light) {
			add_relaxed(&v->stats.light, 1);
			if (!sv->light_end)
				sv->light_end = s->launched_ns + LIGHT_TURN_NS;
			done = light_finish(sv);
			sched_complete((struct slot *)(uintptr_t)done.tag, done.status);
		}
		return;
	}
	for (k = 0; k < b->n; k++) {
		b->r[k]->slot = NULL;
		refuse(b->r[k], rc, "shapes", "");
	}
	slot_give(s);
	version_put(v);
}

/*
 * The total time of the run's layers, or 0 if it was not measured.  The time from the launch to
 * the end would include layers of other runs that went first.
 */
static uint64_t layers_ns(const struct slot *s, uint64_t run)
{
	struct serve_step st;
	uint64_t ns = 0;
	unsigned int i;

	for (i = 0; serve_slot_step(s->s, i, &st); i++)
		ns += st.end_ns - st.begin_ns;
	return i && !ns ? run : ns;
}

void sched_complete(struct slot *s, int status)
{
	struct version *v = s->v;
	struct entry *e = v->e;
	struct stats *st = &v->stats;
	struct server *sv = s->sv;
	uint64_t input, run, used;
	unsigned int k, n = s->nreqs;
	struct timespec ts;
	char why[256];

	if (s->is_planned) {
		planned(s, status);
		return;
	}
	s->done_ns = sv->now = now_ns();
	input = s->launched_ns - s->start_ns;
	run = s->done_ns - s->launched_ns;
	sv->inflight--;
	e->inflight--;
	if (!status && !slot_ran(s))
		status = -ENOTSUP;
	/* also if the run ended early */
	used = s->light ? run : layers_ns(s, status ? 0 : run);
	if (used)
		e->run_ns = e->run_ns ? e->run_ns - e->run_ns / 8 + used / 8 : used;
	if (!status) {
		light_ran(s, used);
		clock_gettime(CLOCK_REALTIME_COARSE, &ts);
		store_relaxed(&st->last_ms, (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / 1000000);
		add_relaxed(&st->executions, 1);
		/* [max_batch + 2] of them; a larger run is of one request */
		if (st->batch && s->rows <= e->conf.max_batch + 1) {
			add_relaxed(&st->batch[s->rows].n, 1);
			add_relaxed(&st->batch[s->rows].input, input);
			add_relaxed(&st->batch[s->rows].infer, run);
		}
		for (k = 0; k < n; k++) {
			stats_add(&st->input, input);
			stats_add(&st->infer, run);
			stats_hist(st, HIST_COMPUTE, run);
		}
	}
	if (status && status != -ETIMEDOUT && status != -ECANCELED)
		serve_slot_failure(s->s, why, sizeof(why));
	if (status && status != -ETIMEDOUT && status != -ECANCELED && n > 1) {
		split(s->reqs, n);
		slot_give(s);
		version_put(v);
		return;
	}
	/* Not under a request's control any more: the last that is done recycles the slot. */
	store_relaxed(&s->users, n);
	for (k = 0; k < n; k++)
		if (status == -EINVAL && !s->reqs[k]->is_canceled)
			refuse(s->reqs[k], status, "values", why);
		else
			finish(s->reqs[k], s->reqs[k]->is_canceled ? -ECANCELED : status,
			       status == -ETIMEDOUT ? too_late :
			       status == -ECANCELED ? "canceled" : "the model failed");
}

/* End the turn of models without a queue. */
static void sweep(struct server *sv)
{
	struct entry **at = &sv->active, *e;

	while ((e = *at)) {
		if (e->queued || e->inflight || e->planning) {
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
	enum step step, best_step = NOTHING;
	bool full, spent, room, light, best_light = false, later = false;
	struct entry *e, *best;
	uint64_t next = 0, pass, t;

	if (now < sv->now)
		now = sv->now;

	for (e = sv->active; e; e = e->next_active)
		if (e->next_deadline && now >= e->next_deadline)
			expire(e, now);
	for (;;) {
		full = sv->inflight >= sv->cfg.workers + 1;
		spent = sv->light_end && now >= sv->light_end;
		pass = latest(sv);
		best = NULL;
		for (e = sv->active; e; e = e->next_active) {
			e->due = 0;
			if (!e->queued || e->inflight >= e->conf.instances ||
			    (best && (!best_light || e->ran_light) &&
			     e->pass[best_light] >= best->pass[best_light]))
				continue;
			room = !full || (!e->inflight && goes_first(e, pass));
			if (!room && !load_relaxed(&e->nlight))
				continue;
			step = gather(sv, e, &b, now);
			if (step == NOTHING)
				continue;
			light = step == RUN && b.light;
			if (light) {
				later = later || spent;
				if (spent)
					continue;
			} else if (!room || (full && step != RUN)) {
				continue;
			}
			/* runs that need a worker are launched first */
			if (best && (light != best_light ? light :
				     e->pass[light] >= best->pass[light]))
				continue;
			best = e;
			best_light = light;
			best_step = step;
			best_batch.n = b.n;
			best_batch.rows = b.rows;
			best_batch.plan = full ? 0 : b.plan;
			memcpy(best_batch.r, b.r, b.n * sizeof(b.r[0]));
		}
		if (!best)
			break;
		if (best_step == RUN)
			launch(sv, best, &best_batch);
		else
			start_plan(sv, &best_batch, true);
		if (now < sv->now)
			now = sv->now;
	}
	sweep(sv);
	for (e = sv->active; e; e = e->next_active) {
		t = e->due;
		if (e->next_deadline && (!t || e->next_deadline < t))
			t = e->next_deadline;
		if (t && (!next || t < next))
			next = t;
	}
	return later ? now : next;
}
