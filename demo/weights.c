// SPDX-License-Identifier: Apache-2.0
/*
 * The live weights, and swapping them; see weights.h.
 *
 * A reload is one op that writes all weights: it copies the weights of the other model into
 * the live buffers.  There is one var per layer, for weight and bias together: every op uses
 * both, so a second var would order nothing more and add one access to every request.
 *
 * A reload stamps each layer's weights with its number, before and after the copy, so that a
 * layer detects a partial reload.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "weights.h"

/* Copy a model's weights into the live buffers of a layer. */
static void live_copy(struct live *live, const struct layer *l)
{
	if (l->weight)
		memcpy(live->weight, l->weight, layer_nweight(l) * sizeof(float));
	if (l->bias)
		memcpy(live->bias, l->bias, layer_nbias(l) * sizeof(float));
}

/* The live weights of a layer. */
static int live_init(struct weights *wt, struct live *live, const struct layer *l)
{
	if (pawl_var_create(wt->e, &live->var))
		return pawl_failed(wt->r, "pawl_var_create");
	if (l->weight)
		live->weight = alloc_floats(layer_nweight(l));
	if (l->bias)
		live->bias = alloc_floats(layer_nbias(l));
	if (!live->weight != !l->weight || !live->bias != !l->bias)
		return failed("", strerror(ENOMEM));
	live_copy(live, l);
	return 0;
}

static int dev_copy(struct weights *wt, const float *from, size_t n, float **out)
{
	if (!from)
		return 0;
	return pawl_device_alloc(wt->e, gpu_device(wt->w), n * sizeof(float), (void **)out) ?
	       pawl_failed(wt->r, "pawl_device_alloc") : 0;
}

/* Copy the live weights to the device. */
static int upload_body(struct pawl_run *run, void *arg)
{
	struct weights *wt = arg;
	int k, rc = 0;

	for (k = 0; !rc && k < wt->w->shape->nlayers; k++) {
		const struct layer *l = &wt->w->shape->layers[k];
		struct live *live = &wt->live[k];

		if (live->dev_weight)
			rc = pawl_run_copy(run, live->dev_weight, live->weight,
					   layer_nweight(l) * sizeof(float),
					   PAWL_HOST_TO_DEVICE);
		if (!rc && live->dev_bias)
			rc = pawl_run_copy(run, live->dev_bias, live->bias,
					   layer_nbias(l) * sizeof(float), PAWL_HOST_TO_DEVICE);
	}
	return rc;
}

static struct pawl_op upload_op(struct weights *wt)
{
	struct pawl_op op = PAWL_OP_INIT;

	op.fn = upload_body;
	op.arg = wt;
	op.writes = wt->vars;
	op.nwrites = (uint32_t)wt->w->weighted;
	op.prop = PAWL_COPY_TO_DEVICE;
	op.device = gpu_device(wt->w);
	op.name = "upload";
	return op;
}

/* Allocate device memory, and make the first upload. */
static int weights_enter(struct weights *wt)
{
	struct pawl_op op = upload_op(wt);
	int k, rc = 0;

	for (k = 0; !rc && k < wt->w->shape->nlayers; k++) {
		const struct layer *l = &wt->w->shape->layers[k];
		struct live *live = &wt->live[k];

		rc = dev_copy(wt, live->weight, layer_nweight(l), &live->dev_weight);
		if (!rc)
			rc = dev_copy(wt, live->bias, layer_nbias(l), &live->dev_bias);
	}
	if (!rc && op.nwrites && pawl_push(wt->e, &op))
		rc = pawl_failed(wt->r, "pawl_push (upload)");
	return rc;
}

void weights_leave(struct weights *wt)
{
	int k;

	for (k = 0; wt->live && k < wt->w->shape->nlayers; k++) {
		struct live *live = &wt->live[k];

		if (live->dev_weight)
			(void)!pawl_device_free(wt->e, gpu_device(wt->w), live->dev_weight);
		if (live->dev_bias)
			(void)!pawl_device_free(wt->e, gpu_device(wt->w), live->dev_bias);
	}
}

int weights_init(struct weights *wt, const struct work *w, struct result *r,
		 struct pawl_engine *e)
{
	size_t n = (size_t)w->shape->nlayers;
	int k, nvars = 0, rc;

	wt->w = w;
	wt->r = r;
	wt->e = e;
	atomic_init(&wt->stop, false);
	wt->live = calloc(n, sizeof(*wt->live));
	wt->vars = calloc(n, sizeof(*wt->vars));
	if (!wt->live || !wt->vars)
		return failed("", strerror(ENOMEM));
	if (sem_init(&wt->kick, 0, 0) || sem_init(&wt->reloaded, 0, 0))
		return failed("sem_init", strerror(errno));
	for (k = 0; k < w->shape->nlayers; k++) {
		const struct layer *l = &w->shape->layers[k];

		if (!l->weight && !l->bias)
			continue;
		rc = live_init(wt, &wt->live[k], l);
		if (rc)
			return rc;
		wt->vars[nvars++] = wt->live[k].var;
	}
	if (w->opt.device != PAWL_CPU)
		return weights_enter(wt);
	return 0;
}

void weights_free(struct weights *wt)
{
	int k;

	if (!wt->w)
		return;
	for (k = 0; wt->live && k < wt->w->shape->nlayers; k++) {
		free(wt->live[k].weight);
		free(wt->live[k].bias);
	}
	free(wt->live);
	free(wt->vars);
	sem_destroy(&wt->kick);
	sem_destroy(&wt->reloaded);
}

/* Swap in the other model's weights. */
static int reload_body(struct pawl_run *pr, void *arg)
{
	struct weights *wt = arg;
	const struct model *m = wt->w->model[++wt->serial & 1];
	int k;

	(void)pr;
	for (k = 0; k < m->nlayers; k++) {
		const struct layer *l = &m->layers[k];
		struct live *live = &wt->live[k];

		if (!l->weight && !l->bias)
			continue;
		live->stamp = wt->serial;
		live_copy(live, l);
		live->stamp_end = wt->serial;
	}
	wt->swapped = now_ns();
	return 0;
}

static void reload_over(void *arg, int status)
{
	struct weights *wt = arg;

	wt->status = status;
	sem_post(&wt->reloaded);
}

static void sem_wait_on(sem_t *sem)
{
	while (sem_wait(sem) && errno == EINTR)
		;
}

/*
 * The reloader is a separate thread, as in a server that watches for new models: its pushes
 * and those of the requests are concurrent.
 */
static void *reloader(void *arg)
{
	struct weights *wt = arg;
	/* On a device the upload follows the swap, with no request between them. */
	struct pawl_op ops[2] = { PAWL_OP_INIT, upload_op(wt) }, op = PAWL_OP_INIT;
	bool device = wt->w->opt.device != PAWL_CPU;
	uint64_t start;

	op.fn = reload_body;
	op.arg = wt;
	op.release = reload_over;
	op.writes = wt->vars;
	op.nwrites = (uint32_t)wt->w->weighted;
	op.name = "reload";
	ops[0] = op;
	for (;;) {
		sem_wait_on(&wt->kick);
		if (atomic_load(&wt->stop))
			return NULL;
		start = now_ns();
		wt->status = 0;
		if (pawl_push_batch(wt->e, ops, device ? 2 : 1)) {
			pawl_failed(wt->r, "pawl_push (reload)");
			wt->status = -EIO;
			return NULL;
		}
		sem_wait_on(&wt->reloaded);
		if (wt->status) {
			fprintf(stderr, "%s: %s engine: reload: %s\n", self, wt->r->name,
				strerror(-wt->status));
			return NULL;
		}
		hist_add(&wt->r->reload, wt->swapped - start);
		wt->r->reloads++;
	}
}

int reloader_start(struct weights *wt)
{
	int rc;

	if (!wt->w->opt.reload_every || !wt->w->weighted)
		return 0;
	rc = pthread_create(&wt->thread, NULL, reloader, wt);
	if (rc)
		return failed("pthread_create", strerror(rc));
	wt->has_thread = true;
	return 0;
}

void reloader_kick(struct weights *wt)
{
	if (wt->has_thread)
		sem_post(&wt->kick);
}

int reloader_stop(struct weights *wt)
{
	if (!wt->has_thread)
		return 0;
	atomic_store(&wt->stop, true);
	sem_post(&wt->kick);
	pthread_join(wt->thread, NULL);
	wt->has_thread = false;
	return wt->status;
}
