// SPDX-License-Identifier: Apache-2.0
/*
 * The slots of a version, and how they are planned.
 *
 * Planning a run with new shapes takes as long as many runs, so ops of the engine do it, while
 * loop 0 continues.  Each op plans for about PIECE_NS, and at its completion loop 0 pushes the
 * next one, behind the runs that wait for a worker.  (If an op pushed its successor, the worker
 * would prefer that to these runs.)  A plan counts as a run in flight, and each op advances the
 * clock of its model by the time it took.  Clients choose the shapes, so work and memory are
 * bounded: a version has one plan at a time, the plans of all models leave one worker to the
 * runs, and a version keeps at most MAX_SLOTS slots, and slot_bytes in free ones.  A struct
 * shapes exists while it has a slot, or a request in the queue, which is bounded itself.
 *
 * Ownership: loop 0 owns all slots.  An op that plans a slot owns the slot's fields s, status,
 * start_ns and done_ns, and version.plan_error, from its push until loop 0 has reaped its
 * completion; the engine orders both.  The op reads the model and the shapes.  They do not
 * change, and exist at least until the plan ends: the slot counts in shapes.nslots, and holds a
 * reference to the version.  Between two ops the plan has no other owner than loop 0.
 *
 * The helper frees the memory of large slots, since the kernel needs 55 ms for 700 MB.  Until
 * then the slot holds a reference to the version.  The helper may be busy with a load, so the
 * memory that waits for it is bounded; beyond that loop 0 frees it.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

#define MAX_SLOTS	64		/* of a version */
#define OLD_NS		1000000000u	/* a free slot that was unused for this time */
#define HOT_NS		100000000u	/* the same, of its tensors */
#define MAX_EMPTIED	((uint64_t)4 << 20) /* bytes at a time: 4 MB take 0.3 ms */
#define MOST_ROWS	8		/* of a batch that is tried at the load */
#define PIECE_NS	1000000u	/* of a plan, while other ops wait */
#define LARGE		((uint64_t)1 << 20) /* bytes; to free them takes some 80 us */
#define MAX_FREEING	((uint64_t)1 << 30) /* bytes that wait for the helper */

/* --- shapes -------------------------------------------------------------------- */

/* For shapes that differ only in the number of rows, first is 1. */
static bool same_shape(const struct serve_shape *a, const struct serve_shape *b,
		       unsigned int first)
{
	return a->rank == b->rank &&
		(a->rank <= first || !memcmp(a->dims + first, b->dims + first,
					     (a->rank - first) * sizeof(a->dims[0])));
}

static struct shapes **bucket_of(struct version *v, const struct serve_shape *in, bool batch)
{
	unsigned int i, k, first = batch;
	uint64_t h = 0;

	for (i = 0; i < v->m->ninputs; i++)
		for (k = first; k < in[i].rank; k++)
			h = (h ^ (uint64_t)in[i].dims[k]) * 0x9e3779b97f4a7c15u;
	return &v->shapes[h >> 58];
}

static struct shapes *shapes_of(struct version *v, const struct serve_shape *in, bool batch)
{
	struct shapes **at = bucket_of(v, in, batch), *sh;
	unsigned int i;

	for (sh = *at; sh; sh = sh->next) {
		for (i = 0; i < v->m->ninputs; i++)
			if (!same_shape(&sh->in[i], &in[i], batch))
				break;
		if (sh->batch == batch && i == v->m->ninputs)
			return sh;
	}
	sh = calloc(1, sizeof(*sh) + v->m->ninputs * sizeof(sh->in[0]));
	if (!sh)
		return NULL;
	memcpy(sh->in, in, v->m->ninputs * sizeof(sh->in[0]));
	sh->batch = batch;
	sh->most = UINT64_MAX;
	sh->next = *at;
	*at = sh;
	return sh;
}

static void shapes_drop(struct version *v, struct shapes *sh)
{
	struct shapes **at;

	if (sh->waiting || sh->nslots)
		return;
	for (at = bucket_of(v, sh->in, sh->batch); *at != sh; at = &(*at)->next)
		;
	*at = sh->next;
	free(sh);
}

struct shapes *shapes_get(struct request *r)
{
	struct serve_shape in[MAX_IO];
	struct shapes *sh;
	unsigned int i;

	for (i = 0; i < r->v->m->ninputs; i++)
		in[i] = r->in[i].shape;
	sh = shapes_of(r->v, in, r->batch);
	if (sh)
		sh->waiting++;
	return sh;
}

void shapes_put(struct version *v, struct shapes *sh)
{
	sh->waiting--;
	shapes_drop(v, sh);
}

/* --- slots --------------------------------------------------------------------- */

static struct slot *slot_new(struct server *sv, struct version *v, struct shapes *sh,
			     uint64_t rows)
{
	unsigned int most = v->m->batch && v->e->conf.max_batch > 1 ? v->e->conf.max_batch : 1;
	struct slot *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->reqs = calloc(most, sizeof(struct request *));
	if (!s->reqs) {
		free(s);
		return NULL;
	}
	s->sv = sv;
	s->v = v;
	s->shapes = sh;
	s->rows = rows;
	sh->nslots++;
	v->nslots++;
	return s;
}

/* Drop a plan that is not complete. */
static void plan_drop(struct slot *s)
{
	if (s->s)
		serve_slot_destroy(s->s);
	s->s = NULL;
}

/*
 * Begin or continue the plan for about PIECE_NS.  Returns -EAGAIN if it is not complete.
 * Blocking; called in an op, or on the helper.
 */
static int slot_plan(struct slot *s, char *err, size_t size)
{
	uint64_t end = now_ns() + PIECE_NS;
	struct serve_shape in[MAX_IO];
	struct version *v = s->v;
	unsigned int i;
	int rc;

	if (!s->s) {
		for (i = 0; i < v->m->ninputs; i++) {
			in[i] = s->shapes->in[i];
			if (s->shapes->batch)
				in[i].dims[0] = (int64_t)s->rows;
		}
		rc = serve_slot_create(v->m, s->sv->e[WORKERS], in, &s->s, err, size);
		if (rc) {
			s->s = NULL;
			return rc;
		}
	}
	do
		rc = serve_slot_plan(s->s);
	while (rc == -EAGAIN && now_ns() < end);
	if (rc && rc != -EAGAIN)
		plan_drop(s);
	return rc;
}

/* Note its memory, and whether its outputs have a row for each row of the inputs. */
static void measure(struct slot *s)
{
	uint64_t bytes = serve_slot_bytes(s->s);
	unsigned int i;

	s->by_rows = s->shapes->batch && serve_slot_apart(s->s);
	for (i = 0; s->by_rows && i < s->v->m->noutputs; i++) {
		const struct serve_shape *out = serve_slot_output_shape(s->s, i);

		s->by_rows = out->rank && out->dims[0] == (int64_t)s->rows;
	}
	s->v->bytes += bytes - s->bytes;
	s->bytes = bytes;
}

static void slot_planned(struct slot *s)
{
	measure(s);
	s->shapes->share = s->by_rows ? SHARE_YES : SHARE_NO;
}

bool slot_ran(struct slot *s)
{
	measure(s);
	if (s->by_rows || s->nreqs < 2)
		return true;
	/* the outputs of a backend are not what the configuration says */
	s->shapes->share = SHARE_NO;
	return false;
}

/* Its memory, with the slot. */
static void slot_destroy(struct slot *s)
{
	if (s->s)
		serve_slot_destroy(s->s);
	free(s->reqs);
	free(s);
}

/* On the helper. */
static void slot_arrived(struct msg *m)
{
	struct slot *s = m->arg;
	struct version *v = s->v;
	struct server *sv = s->sv;
	uint64_t bytes = s->bytes;

	slot_destroy(s);
	fetch_add_relaxed(&sv->freeing, -bytes);
	version_put(v);
}

static void slot_free(struct slot *s)
{
	struct version *v = s->v;
	struct server *sv = s->sv;
	uint64_t bytes = s->bytes, before;

	v->bytes -= bytes;
	if (v->fresh == s)
		v->fresh = NULL;
	/* this may run on the helper while loop 0 counts slots of another version */
	if (s->light)
		fetch_add_relaxed(&v->e->nlight, (u32)-1);
	v->nslots--;
	s->shapes->nslots--;
	shapes_drop(v, s->shapes);
	before = load_relaxed(&sv->freeing);
	/* without a reference the version is being freed itself */
	if (bytes < LARGE || !load_relaxed(&v->refs) ||
	    (before && before + bytes > MAX_FREEING)) {
		slot_destroy(s);
		return;
	}
	fetch_add_relaxed(&sv->freeing, bytes);
	version_get(v);
	port_send(v->home, &s->msg, slot_arrived, s);
}

static void idle_enter(struct slot *s)
{
	struct server *sv = s->sv;

	s->idle_next = NULL;
	s->idle_prev = sv->idle_tail;
	*(s->idle_prev ? &s->idle_prev->idle_next : &sv->idle) = s;
	sv->idle_tail = s;
	if (!sv->idle_full)
		sv->idle_full = s;
	sv->idle_bytes += s->bytes;
}

static void idle_leave(struct slot *s)
{
	struct server *sv = s->sv;

	*(s->idle_prev ? &s->idle_prev->idle_next : &sv->idle) = s->idle_next;
	*(s->idle_next ? &s->idle_next->idle_prev : &sv->idle_tail) = s->idle_prev;
	if (sv->idle_full == s)
		sv->idle_full = s->idle_next;
	sv->idle_bytes -= s->bytes - s->emptied;
	s->emptied = 0;
	s->is_empty = false;
}

/* It is not free any more. */
static void unlink_free(struct slot *s)
{
	struct version *v = s->v;
	struct slot **at = &v->free;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	s->shapes->nfree--;
	v->free_bytes -= s->bytes;
	if (!s->warm)
		idle_leave(s);
}

/* Free the slot that was not used for the longest time. */
static void slot_drop(struct version *v)
{
	struct slot *s = v->free;

	while (s->next)
		s = s->next;
	unlink_free(s);
	slot_free(s);
}

/*
 * Return up to most bytes of its tensors to the kernel.  Returns how much that was: less if no
 * more is left.
 */
static uint64_t slot_empty(struct slot *s, uint64_t most)
{
	uint64_t n = serve_slot_empty(s->s, s->emptied, most);

	s->emptied += n;
	s->is_empty = n < most;
	s->sv->idle_bytes -= n;
	return n;
}

/* A request for its shapes may arrive at once: keep its tensors. */
static bool is_hot(const struct slot *s, uint64_t now)
{
	if (s == s->sv->idle_tail && !s->sv->planning)
		return s->done_ns + OLD_NS > now;
	return s->uses > 1 && s->done_ns + HOT_NS > now;
}

/*
 * The budget for the free slots of all models.  Tensors go first, since a plan takes longer than
 * the faults of their pages, and only some at a time.  Returns whether that does not suffice.
 */
static bool slots_empty(struct server *sv, uint64_t now)
{
	uint64_t most = load_relaxed(&sv->cfg.slot_memory), left = MAX_EMPTIED;
	struct slot *s;

	for (s = sv->idle_full; s && left && sv->idle_bytes > most; s = s->idle_next) {
		if (!s->is_empty && !is_hot(s, now))
			left -= slot_empty(s, left);
		if (s == sv->idle_full && s->is_empty)
			sv->idle_full = s->idle_next;
	}
	return left && sv->idle_bytes > most;
}

/*
 * Then slots go: those that were used once at once, and those that were used more often if that
 * was long ago; the newest slot of a version stays.
 */
static void slots_trim(struct server *sv, uint64_t now)
{
	struct slot *s, *next;

	if (!slots_empty(sv, now))
		return;
	for (s = sv->idle; s && sv->idle_bytes > load_relaxed(&sv->cfg.slot_memory); s = next) {
		next = s->idle_next;
		if (s == s->v->free || (s->uses > 1 && s->done_ns + OLD_NS > now))
			continue;
		unlink_free(s);
		slot_free(s);
	}
}

void slots_tick(struct server *sv, uint64_t now)
{
	uint64_t idle = load_relaxed(&sv->cfg.slot_idle_ns);
	bool any = false;
	struct slot *s;

	while ((s = sv->idle) && s->done_ns + idle < now) {
		any = true;
		unlink_free(s);
		slot_free(s);
	}
	slots_trim(sv, now);
	if (any)
		helper_trim(sv, TRIM_HEAP | TRIM_CACHE);
}

void slot_give(struct slot *s)
{
	struct version *v = s->v;

	s->done_ns = now_ns();
	s->next = v->free;
	v->free = s;
	s->shapes->nfree++;
	v->free_bytes += s->bytes;
	/* the helper plans the warm ones, and loop 0 owns the list */
	if (!s->warm) {
		idle_enter(s);
		slots_trim(s->sv, s->done_ns);
	}
	while (v->free_bytes > v->e->conf.slot_bytes && v->free->next)
		slot_drop(v);
}

const struct slot *slot_find(const struct version *v, const struct shapes *sh, uint64_t rows)
{
	const struct slot *s;

	if (!sh->nfree)
		return NULL;
	for (s = v->free; s; s = s->next)
		if (s->shapes == sh && s->rows == rows)
			break;
	return s;
}

struct slot *slot_take(struct version *v, const struct shapes *sh, uint64_t rows)
{
	struct slot *s = v->free;

	while (s && (s->shapes != sh || s->rows != rows))
		s = s->next;
	if (!s)
		return NULL;
	unlink_free(s);
	s->uses++;
	if (v->fresh == s)
		v->fresh = NULL;
	return s;
}

/* --- plans --------------------------------------------------------------------- */

bool may_plan(const struct server *sv, const struct version *v, const struct shapes *sh)
{
	unsigned int most = sv->cfg.workers > 1 ? sv->cfg.workers - 1 : 1;

	if (v->plan || sv->planning >= most)
		return false;
	/* wait until the newest slot was used: a further one could cause it to be freed */
	return !v->fresh || v->fresh->shapes == sh || !v->fresh->shapes->waiting;
}

bool may_plan_more(const struct server *sv, const struct version *v, const struct shapes *sh,
		   uint64_t now)
{
	const struct slot *s;

	if (!may_plan(sv, v, sh))
		return false;
	if (v->nslots < MAX_SLOTS && v->bytes <= v->e->conf.slot_bytes / 2)
		return true;
	for (s = v->free; s && s->next; s = s->next)
		;
	return s && s->done_ns + OLD_NS < now;
}

static int plan(struct pawl_run *run, void *arg)
{
	struct slot *s = arg;

	(void)run;
	s->start_ns = now_ns();
	s->status = slot_plan(s, s->v->plan_error, sizeof(s->v->plan_error));
	s->done_ns = now_ns();
	return 0;
}

struct slot *plan_begin(struct server *sv, struct version *v, struct shapes *sh, uint64_t rows,
			bool needed, int priority)
{
	struct slot *s = slot_new(sv, v, sh, rows);

	if (!s)
		return NULL;
	if (v->nslots > MAX_SLOTS && v->free)
		slot_drop(v);
	s->is_planned = true;
	s->needed = needed;
	s->priority = priority;
	version_get(v);
	v->plan = s;
	v->e->planning++;
	sv->planning++;
	sv->inflight++;
	snprintf(v->plan_error, sizeof(v->plan_error), "out of memory");
	return s;
}

int plan_continue(struct slot *s, bool first)
{
	struct pawl_op op = PAWL_OP_INIT;

	slots_empty(s->sv, now_ns());
	op.fn = plan;
	op.arg = s;
	op.name = "plan";
	op.priority = s->priority + first;
	op.flags = PAWL_OP_CQ;
	op.cq = s->sv->loops[0].cq[WORKERS];
	op.tag = (uint64_t)(uintptr_t)s;
	return pawl_push_batch(s->sv->e[WORKERS], &op, 1);
}

void plan_end(struct slot *s, int status)
{
	struct version *v = s->v;

	s->sv->planning--;
	s->sv->inflight--;
	v->e->planning--;
	v->plan = NULL;
	s->is_planned = false;
	if (!status) {
		add_relaxed(&v->stats.plans, 1);
		slot_planned(s);
		if (s->needed)
			v->fresh = s;
		slot_give(s);
	} else {
		/* once a second: clients choose the shapes */
		if (now_ns() >= v->logged_ns + 1000000000u) {
			v->logged_ns = now_ns();
			log_line("error", "slot", "model", v->e->name, "error", v->plan_error,
				 NULL);
		}
		plan_drop(s);
		slot_free(s);
	}
	version_put(v);
}

/* --- at the load and at the end -------------------------------------------------- */

/*
 * Plan a slot of this size.  Returns -EINVAL if the model refuses these shapes, which it need
 * not do for another number of rows.
 */
static int warm(struct server *sv, struct version *v, const struct serve_shape *in,
		uint64_t rows, char *err, size_t size)
{
	struct shapes *sh = shapes_of(v, in, v->m->batch);
	struct slot *s = sh ? slot_new(sv, v, sh, rows) : NULL;
	int rc;

	if (!s) {
		if (sh)
			shapes_drop(v, sh);
		snprintf(err, size, "out of memory");
		return -ENOMEM;
	}
	do
		rc = slot_plan(s, err, size);
	while (rc == -EAGAIN);
	if (rc) {
		slot_free(s);
		return rc;
	}
	slot_planned(s);
	s->warm = true;
	slot_give(s);
	return 0;
}

int slots_warm(struct server *sv, struct version *v, char *err, size_t size)
{
	const struct model_conf *conf = &v->e->conf;
	struct serve_shape in[MAX_IO];
	unsigned int i, k, n, rows;
	char other[256];
	int rc;

	for (i = 0; i < v->m->ninputs; i++) {
		in[i].rank = v->m->inputs[i].rank;
		for (k = 0; k < in[i].rank; k++) {
			in[i].dims[k] = v->m->inputs[i].dims[k];
			if (in[i].dims[k] < 0 && (k || !v->m->batch))
				return 0;	/* planned for the first request of a shape */
		}
	}
	for (k = 0; k <= (v->m->batch ? conf->npreferred : 0); k++) {
		rows = k ? conf->preferred[k - 1] : 1;
		for (n = 0; n < conf->instances; n++) {
			rc = warm(sv, v, in, rows, err, size);
			/* a batch may be of two rows at least, or not of any number */
			for (i = 2; rc == -EINVAL && !k && v->m->batch && i <= MOST_ROWS; i++)
				if (warm(sv, v, in, i, other, sizeof(other)) != -EINVAL)
					break;
			if (rc == -EINVAL && v->m->batch && (k || i <= MOST_ROWS))
				break;
			if (rc)
				return rc;
		}
	}
	return 0;
}

void slots_leave(struct version *v)
{
	struct slot *s;

	for (s = v->free; s; s = s->next)
		if (!s->warm) {
			idle_leave(s);
			s->warm = true;
		}
}

void slots_free(struct version *v)
{
	while (v->free)
		slot_drop(v);
}
