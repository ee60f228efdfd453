// SPDX-License-Identifier: Apache-2.0
/*
 * The server of pawl infer; see serve.h.
 *
 * A request is a batch of images.  Its layers are the ops of a graph, which was made once: each
 * reads the layer's weights, which all requests share, and the activations of the previous
 * layer, and writes its own activations, which belong to the request's slot.
 *
 *   requests    are launches of the graph.  A launch takes its positions on all vars at one
 *               point in time, so a reload comes before all of its layers or after all of
 *               them.  With one push per layer it could come between two layers, and the
 *               request would be answered by half of each model.
 *   slots       form a ring, with buffers and the vars of the launch created in advance: the
 *               loop allocates nothing.  A slot is reused when its request is complete, which
 *               is checked in push order.
 *   versions    every layer op compares the stamps of its weights, before and after its
 *               computation, with those that the previous layers saw.
 *
 * Ops read the work's shape, input and batch, which are constant by then.
 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu.h"
#include "net.h"
#include "serve.h"
#include "weights.h"

#define LATE_NS		1000000u	/* a push this long after its time is late */
#define TRACE_EVENTS	16384u		/* per thread */

struct slot;

/* The argument of a layer op. */
struct step {
	struct slot *slot;
	int layer;
};

struct slot {
	struct server *sv;
	struct step *step;		/* [layers] */
	void **args;			/* those, for the launch */
	float **act;			/* [layers] output of the layer */
	pawl_var_t *vars;		/* [layers + 1] of the launch: images, outputs */
	pawl_var_t done;		/* written last */
	/* On a device: the images, the output of each layer, and the ops around the launch. */
	float *dev_in, **dev_act;
	struct pawl_op up, down;
	uint32_t batch;
	uint64_t start, end;		/* ns; end is written by the last layer */
	uint64_t version;		/* the stamp that the first weighted layer saw */
	bool fixed;			/* version is set */
	bool mixed;			/* a later layer saw another version */
};

struct server {
	struct work *w;
	struct result *r;
	struct pawl_engine *e;
	struct weights weights;
	pawl_graph_t layers;
	struct slot *slots;
	uint64_t head, tail;		/* requests reaped, pushed */
	uint64_t random;
	uint32_t *deck, drawn;		/* the order of the batches in this round */
	bool record;			/* the warm-up is complete */

	uint64_t t0, t1;		/* ns, of this round */
	struct pawl_stats before;	/* at the first recorded request */
};

static void sleep_until(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / NSEC), (long)(ns % NSEC) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* The body of a layer. */
static int layer_body(struct pawl_run *pr, void *arg)
{
	const struct step *st = arg;
	struct slot *s = st->slot;
	const struct work *w = s->sv->w;
	const struct layer *l = &w->shape->layers[st->layer];
	const struct live *live = &s->sv->weights.live[st->layer];
	const float *in = st->layer ? s->act[st->layer - 1] : w->input + s->batch * w->in_size;
	/* The stamp of a layer without weights belongs to no var and is not read. */
	bool weighted = live->weight || live->bias;
	uint64_t stamp = weighted ? live->stamp : 0;

	(void)pr;
	layer_forward(l, live->weight, live->bias, in, s->act[st->layer], (int)w->opt.batch);
	if (weighted) {
		if (!s->fixed)
			s->version = stamp;
		s->fixed = true;
		/* Check at the end of the op, so that a concurrent copy is detected. */
		if (live->stamp != s->version || live->stamp_end != s->version ||
		    stamp != s->version)
			s->mixed = true;
	}
	if (st->layer == w->shape->nlayers - 1)
		s->end = now_ns();
	return 0;
}

/* --- the same on a device: images up, layers, answers down --- */

static int up_body(struct pawl_run *run, void *arg)
{
	const struct slot *s = arg;
	const struct work *w = s->sv->w;

	return pawl_run_copy(run, s->dev_in, w->input + s->batch * w->in_size,
			     w->in_size * sizeof(float), PAWL_HOST_TO_DEVICE);
}

static int dev_layer_body(struct pawl_run *run, void *arg)
{
	struct step *st = arg;
	struct slot *s = st->slot;
	const struct live *live = &s->sv->weights.live[st->layer];

	/* One var covers the weights on the host and their copy on the device. */
	if (live->weight || live->bias) {
		if (!s->fixed)
			s->version = live->stamp;
		s->fixed = true;
		if (live->stamp != s->version || live->stamp_end != s->version)
			s->mixed = true;
	}
	return gpu_layer(run, &s->sv->w->shape->layers[st->layer], live->dev_weight,
			 live->dev_bias, st->layer ? s->dev_act[st->layer - 1] : s->dev_in,
			 s->dev_act[st->layer], (int)s->sv->w->opt.batch);
}

static void note_end(void *arg)
{
	struct slot *s = arg;

	s->end = now_ns();
}

static int down_body(struct pawl_run *run, void *arg)
{
	struct slot *s = arg;
	int last = s->sv->w->shape->nlayers - 1;
	int rc = pawl_run_copy(run, s->act[last], s->dev_act[last],
			       s->sv->w->out_size * sizeof(float), PAWL_DEVICE_TO_HOST);

	return rc ? rc : pawl_run_call(run, note_end, s);
}

/* Each round visits all batches once, in a new order. */
static uint32_t next_batch(struct server *sv)
{
	uint32_t n = sv->w->nbatches, i = sv->drawn, j, batch;

	j = i + (uint32_t)(next_random(&sv->random) % (n - i));
	batch = sv->deck[j];
	sv->deck[j] = sv->deck[i];
	sv->deck[i] = batch;
	sv->drawn = i + 1 == n ? 0 : i + 1;
	return batch;
}

static int push_request(struct server *sv, uint64_t start)
{
	struct slot *s = &sv->slots[sv->tail % sv->w->opt.in_flight];
	uint64_t every = sv->w->opt.reload_every;
	uint32_t n = (uint32_t)sv->w->shape->nlayers;
	struct pawl_launch how = {
		.size = sizeof(how), .device = gpu_device(sv->w), .vars = s->vars,
		.nvars = n + 1, .args = s->args, .nargs = n,
	};

	s->batch = next_batch(sv);
	s->start = start;
	s->version = 0;
	s->fixed = s->mixed = false;
	if (s->dev_in && pawl_push(sv->e, &s->up))
		return pawl_failed(sv->r, "pawl_push (images)");
	if (pawl_graph_push(sv->e, sv->layers, &how))
		return pawl_failed(sv->r, "pawl_graph_push");
	if (s->dev_in && pawl_push(sv->e, &s->down))
		return pawl_failed(sv->r, "pawl_push (answers)");
	sv->tail++;
	if (sv->record && every && sv->tail % every == 0)
		reloader_kick(&sv->weights);
	return 0;
}

/* The oldest request is complete: check and count it. */
static void reap(struct server *sv)
{
	struct work *w = sv->w;
	struct slot *s = &sv->slots[sv->head % w->opt.in_flight];
	struct answer a = { sv->head++, s->batch, s->version, s->mixed,
			    s->act[w->shape->nlayers - 1] };

	verify_answer(w, &a, sv->r);
	if (!sv->record)
		return;
	verify_judge(w, &a);
	hist_add(&sv->r->latency, s->end - s->start);
	if (s->end > sv->t1)
		sv->t1 = s->end;
	sv->r->requests++;
	progress(w, sv->r, s->end);
}

/* Reap the oldest request if it completes in time.  Returns 1 or 0, or an error. */
static int reap_one(struct server *sv, int64_t timeout_ns)
{
	const struct slot *s = &sv->slots[sv->head % sv->w->opt.in_flight];
	int rc = pawl_wait_readable(sv->e, s->done, timeout_ns, NULL);

	if (rc == -ETIMEDOUT)
		return 0;
	if (rc)
		return pawl_failed(sv->r, "pawl_wait_readable");
	reap(sv);
	return 1;
}

static int reap_ready(struct server *sv)
{
	int rc = 1;

	while (rc > 0 && sv->head != sv->tail)
		rc = reap_one(sv, 0);
	return rc < 0 ? rc : 0;
}

static int reap_all(struct server *sv)
{
	int rc = 0;

	while (rc >= 0 && sv->head != sv->tail)
		rc = reap_one(sv, -1);
	return rc < 0 ? rc : 0;
}

/* Closed loop: push the next request when the oldest is complete.  0: no limit. */
static int fly_closed(struct server *sv, uint64_t requests, uint64_t deadline)
{
	uint64_t now, left = requests ? requests : UINT64_MAX;
	int rc;

	while (left) {
		for (; left && sv->tail - sv->head < sv->w->opt.in_flight; left--) {
			now = now_ns();
			if (deadline && now >= deadline)
				return reap_all(sv);
			rc = push_request(sv, now);
			if (rc)
				return rc;
		}
		rc = reap_one(sv, -1);
		if (rc >= 0)
			rc = reap_ready(sv);
		if (rc < 0)
			return rc;
	}
	return reap_all(sv);
}

static double gap_ns(struct server *sv)
{
	double mean = 1e9 / sv->w->opt.rate, u;

	if (!sv->w->opt.poisson)
		return mean;
	u = (double)(next_random(&sv->random) >> 11) * 0x1p-53;	/* in [0, 1) */
	return -log1p(-u) * mean;
}

/*
 * Push one request of the open loop, at its time, or later if no slot is free or the generator
 * is late.  A late request of a backlog is attributed to the engine, not to the generator.
 */
static int arrive(struct server *sv, uint64_t start, uint64_t now, bool *backlog)
{
	struct result *r = sv->r;
	int rc;

	if (now < start) {
		sleep_until(start);
		now = now_ns();
		*backlog = r->kind == PAWL_NAIVE;
	}
	if (sv->tail - sv->head == sv->w->opt.in_flight) {
		r->full++;
		*backlog = true;
		rc = reap_one(sv, -1);
		if (rc < 0)
			return rc;
	}
	if (!*backlog) {
		hist_add(&r->lateness, now - start);
		r->late += now - start > LATE_NS;
	}
	return push_request(sv, start);
}

/* Open loop: requests have arrival times, from which latency counts. */
static int fly_open(struct server *sv, uint64_t requests, uint64_t deadline)
{
	bool backlog = sv->r->kind == PAWL_NAIVE;
	double due = (double)sv->t0 + gap_ns(sv);
	uint64_t i, now, start;
	int rc;

	for (i = 0; !requests || i < requests; i++, due += gap_ns(sv)) {
		start = (uint64_t)due;
		if (deadline && start >= deadline)
			break;
		rc = reap_ready(sv);
		if (rc)
			return rc;
		now = now_ns();
		/* A request due at the very end may be slightly late, like any other. */
		if (deadline && now >= deadline && now - start > LATE_NS) {
			sv->r->unpushed++;
			continue;
		}
		rc = arrive(sv, start, now, &backlog);
		if (rc)
			return rc;
	}
	return reap_all(sv);
}

static void slot_free(struct server *sv, struct slot *s)
{
	int k;

	for (k = 0; s->act && k < sv->w->shape->nlayers; k++)
		free(s->act[k]);
	free(s->step);
	free(s->args);
	free(s->act);
	free(s->vars);
}

/*
 * The layers as a graph.  Its slot k has the images, or the output of layer k - 1, which
 * nothing outside a launch uses, except at both ends.
 */
static int layers_init(struct server *sv)
{
	const struct work *w = sv->w;
	uint32_t n = (uint32_t)w->shape->nlayers, k;
	struct pawl_op *ops = calloc(n, sizeof(*ops));
	pawl_var_t (*vars)[3] = calloc(n, sizeof(*vars));	/* of an op */
	int rc = ops && vars ? 0 : failed("", strerror(ENOMEM));

	for (k = 0; !rc && k < n; k++) {
		const struct live *live = &sv->weights.live[k];

		vars[k][0] = (pawl_var_t)PAWL_SLOT(k + 1);
		vars[k][1] = (pawl_var_t)PAWL_SLOT(k);
		vars[k][2] = live->var;
		ops[k] = (struct pawl_op)PAWL_OP_INIT;
		ops[k].fn = w->opt.device == PAWL_CPU ? layer_body : dev_layer_body;
		ops[k].device = gpu_device(w);
		ops[k].writes = &vars[k][0];
		ops[k].nwrites = 1;
		ops[k].reads = &vars[k][1];
		ops[k].nreads = live->weight || live->bias ? 2 : 1;
		ops[k].name = w->shape->layers[k].name;
	}
	if (!rc && pawl_graph_create(sv->e, ops, n, 0, &sv->layers))
		rc = pawl_failed(sv->r, "pawl_graph_create");
	free(ops);
	free(vars);
	return rc;
}

static int slot_var(struct server *sv, pawl_var_t *v)
{
	return pawl_var_create(sv->e, v) ? pawl_failed(sv->r, "pawl_var_create") : 0;
}

static struct pawl_op dev_op(struct slot *s, pawl_fn fn, uint16_t prop)
{
	struct pawl_op op = PAWL_OP_INIT;

	op.fn = fn;
	op.arg = s;
	op.nwrites = 1;
	op.prop = prop;
	op.device = gpu_device(s->sv->w);
	op.name = prop == PAWL_COPY_TO_DEVICE ? "images" : "answers";
	return op;
}

/* Memory on the device, and one op before the layers and one after them. */
static int slot_to_device(struct server *sv, struct slot *s)
{
	const struct work *w = sv->w;
	struct pawl_device dev = gpu_device(w);
	int n = w->shape->nlayers, k;

	s->dev_act = calloc((size_t)n, sizeof(*s->dev_act));
	if (!s->dev_act)
		return failed("", strerror(ENOMEM));
	if (pawl_device_alloc(sv->e, dev, w->in_size * sizeof(float), (void **)&s->dev_in))
		return pawl_failed(sv->r, "pawl_device_alloc");
	for (k = 0; k < n; k++) {
		size_t floats = (size_t)w->opt.batch * (size_t)w->shape->layers[k].out_dim;

		if (pawl_device_alloc(sv->e, dev, floats * sizeof(float),
				      (void **)&s->dev_act[k]))
			return pawl_failed(sv->r, "pawl_device_alloc");
	}
	s->up = dev_op(s, up_body, PAWL_COPY_TO_DEVICE);
	s->up.writes = &s->vars[0];
	s->down = dev_op(s, down_body, PAWL_COPY_FROM_DEVICE);
	s->down.reads = &s->vars[n];
	s->down.nreads = 1;
	s->down.writes = &s->done;
	return slot_var(sv, &s->vars[0]) || slot_var(sv, &s->done) ? -EIO : 0;
}

/* Slots are kept until the end. */
static int slot_init(struct server *sv, struct slot *s)
{
	const struct work *w = sv->w;
	size_t n = (size_t)w->shape->nlayers, k;

	s->sv = sv;
	s->step = calloc(n, sizeof(*s->step));
	s->args = calloc(n, sizeof(*s->args));
	s->act = calloc(n, sizeof(*s->act));
	s->vars = calloc(n + 1, sizeof(*s->vars));
	if (!s->step || !s->args || !s->act || !s->vars)
		return failed("", strerror(ENOMEM));
	for (k = 0; k < n; k++) {
		s->act[k] = alloc_floats((size_t)w->opt.batch *
					 (size_t)w->shape->layers[k].out_dim);
		if (!s->act[k])
			return failed("", strerror(ENOMEM));
		s->step[k] = (struct step){ s, (int)k };
		s->args[k] = &s->step[k];
	}
	if (slot_var(sv, &s->vars[n]))
		return -EIO;
	s->done = s->vars[n];
	return w->opt.device == PAWL_CPU ? 0 : slot_to_device(sv, s);
}

/* Free the device memory of slots and weights; no work uses it any more. */
static void leave_device(struct server *sv)
{
	struct pawl_device dev = gpu_device(sv->w);
	uint32_t i;
	int k;

	(void)!pawl_wait_all(sv->e, -1, NULL);
	for (i = 0; sv->slots && i < sv->w->opt.in_flight; i++) {
		struct slot *s = &sv->slots[i];

		if (s->dev_in)
			(void)!pawl_device_free(sv->e, dev, s->dev_in);
		for (k = 0; s->dev_act && k < sv->w->shape->nlayers; k++)
			if (s->dev_act[k])
				(void)!pawl_device_free(sv->e, dev, s->dev_act[k]);
		free(s->dev_act);
		s->dev_act = NULL;
	}
	weights_leave(&sv->weights);
}

static int engine_init(struct server *sv)
{
	const struct options *o = &sv->w->opt;
	const struct pawl_device dev = gpu_device(sv->w);
	struct pawl_config cfg;
	int rc;

	pawl_config_init(&cfg);
	cfg.devices = &dev;
	cfg.ndevices = o->device != PAWL_CPU;
	cfg.kind = sv->r->kind;
	cfg.name = "infer";
	cfg.workers = o->rate > 0 ? sv->w->cpus : sv->w->cpus - 1;
	if (o->workers >= 0)
		cfg.workers = o->workers;
	else if (cfg.workers < 1)
		cfg.workers = 1;
	rc = pawl_engine_create(&cfg, &sv->e);
	if (rc)
		return pawl_failed(sv->r, "pawl_engine_create");
	sv->r->workers = cfg.workers;
	return 0;
}

static int server_init(struct server *sv)
{
	const struct work *w = sv->w;
	uint32_t i;
	int rc;

	sv->random = w->opt.seed;
	sv->slots = calloc(w->opt.in_flight, sizeof(*sv->slots));
	sv->deck = calloc(w->nbatches, sizeof(*sv->deck));
	if (!sv->slots || !sv->deck)
		return failed("", strerror(ENOMEM));
	for (i = 0; i < w->nbatches; i++)
		sv->deck[i] = i;
	rc = engine_init(sv);
	if (!rc)
		rc = weights_init(&sv->weights, w, sv->r, sv->e);
	if (!rc)
		rc = layers_init(sv);
	for (i = 0; !rc && i < w->opt.in_flight; i++)
		rc = slot_init(sv, &sv->slots[i]);
	return rc ? rc : reloader_start(&sv->weights);
}

/* Subtract `before` from the counters; other fields stay unchanged. */
static void stats_since(struct pawl_stats *s, const struct pawl_stats *before)
{
	s->pushed -= before->pushed;
	s->completed -= before->completed;
	s->failed -= before->failed;
	s->skipped -= before->skipped;
	s->inlined -= before->inlined;
	s->helped -= before->helped;
	s->handed -= before->handed;
	s->stolen -= before->stolen;
	s->records -= before->records;
	s->helps -= before->helps;
	s->sleeps -= before->sleeps;
	s->wakes -= before->wakes;
}

static int start_record(struct server *sv, bool traced)
{
	sv->before.size = sizeof(sv->before);
	if (pawl_stats(sv->e, &sv->before))
		return pawl_failed(sv->r, "pawl_stats");
	if (traced && pawl_trace_start(sv->e, TRACE_EVENTS))
		return pawl_failed(sv->r, "pawl_trace_start");
	sv->record = true;
	return 0;
}

int serve_begin(struct server **out, struct work *w, struct result *r, int kind, bool traced)
{
	struct server *sv = *out = calloc(1, sizeof(*sv));
	int rc;

	memset(r, 0, sizeof(*r));
	r->kind = kind;
	r->name = engine_name[kind];
	hist_init(&r->latency);
	hist_init(&r->lateness);
	hist_init(&r->reload);
	if (!sv)
		return failed("", strerror(ENOMEM));
	sv->w = w;
	sv->r = r;
	rc = server_init(sv);
	/* Warm up memory, threads and BLAS, without reloads and records. */
	if (!rc)
		rc = fly_closed(sv, 4 * (uint64_t)w->opt.in_flight, 0);
	return rc ? rc : start_record(sv, traced);
}

int serve_round(struct server *sv, unsigned int round)
{
	const struct options *o = &sv->w->opt;
	unsigned int rounds = sv->w->rounds;
	uint64_t requests = 0, deadline = 0, had, took;
	struct result *r = sv->r;
	int rc;

	/* The remainder of the division goes to the first rounds. */
	if (o->requests) {
		requests = o->requests / rounds + (round < o->requests % rounds);
		if (!requests)
			return 0;
	}
	had = r->requests;
	sv->t0 = sv->t1 = now_ns();
	if (o->duration > 0)
		deadline = sv->t0 + (uint64_t)(o->duration / rounds * NSEC);
	rc = o->rate > 0 ? fly_open(sv, requests, deadline) : fly_closed(sv, requests, deadline);
	if (rc)
		return rc;
	took = sv->t1 - sv->t0;
	r->busy += took;
	if (took)
		r->rate[r->nrates++] = (double)(r->requests - had) * 1e9 / (double)took;
	return 0;
}

static int write_trace(struct server *sv)
{
	if (pawl_trace_stop(sv->e))
		return pawl_failed(sv->r, "pawl_trace_stop");
	if (pawl_trace_write(sv->e, sv->w->opt.trace))
		return pawl_failed(sv->r, "pawl_trace_write");
	return 0;
}

int serve_end(struct server *sv, bool traced)
{
	struct pawl_stats *stats = &sv->r->stats;
	struct pawl_error error;
	int rc;

	rc = reloader_stop(&sv->weights);
	if (rc)
		return rc;
	if (pawl_wait_all(sv->e, -1, &error)) {
		fprintf(stderr, "%s: %s engine: %u ops failed, the first: %s: %s\n", self,
			sv->r->name, error.count, error.op, error.text);
		return -EIO;
	}
	stats->size = sizeof(*stats);
	if (pawl_stats(sv->e, stats))
		return pawl_failed(sv->r, "pawl_stats");
	stats_since(stats, &sv->before);
	return traced ? write_trace(sv) : 0;
}

int serve_free(struct server *sv)
{
	uint32_t i;
	int rc = 0;

	if (!sv)
		return 0;
	/* After a failure ops may be in flight; they use what is freed below. */
	reloader_stop(&sv->weights);
	if (sv->e && sv->w->opt.device != PAWL_CPU)
		leave_device(sv);
	if (sv->e && pawl_engine_destroy(sv->e))
		rc = pawl_failed(sv->r, "pawl_engine_destroy");
	for (i = 0; sv->slots && i < sv->w->opt.in_flight; i++)
		slot_free(sv, &sv->slots[i]);
	weights_free(&sv->weights);
	free(sv->slots);
	free(sv->deck);
	free(sv);
	return rc;
}
