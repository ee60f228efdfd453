// SPDX-License-Identifier: Apache-2.0
/*
 * The verification of pawl infer: a serial loop over the layers.
 *
 * The images divide into a fixed number of batches, and there are two versions of the weights,
 * so the loop computes all combinations at the start, with the same kernels as the ops.  All
 * bits of all outputs of each answer are compared with the result.
 */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "infer.h"
#include "net.h"

float *alloc_floats(size_t n)
{
	size_t bytes = (n * sizeof(float) + 63) / 64 * 64;
	float *p;

	if (n > SIZE_MAX / 8)
		return NULL;
	p = aligned_alloc(64, bytes ? bytes : 64);
	if (p)
		memset(p, 0, bytes);
	return p;
}

/* Fill in the images of all batches; the last batch wraps around. */
static void fill_input(struct work *w)
{
	unsigned int batch = w->opt.batch, i;
	uint32_t b;

	for (b = 0; b < w->nbatches; b++)
		for (i = 0; i < batch; i++)
			images_input(w->images, (uint32_t)(((uint64_t)b * batch + i) %
				     w->images->count),
				     w->input + b * w->in_size + i * (size_t)w->images->size);
}

/* Run one batch through all layers of a model; the result is in one of the two buffers. */
static const float *serial_forward(const struct work *w, const struct model *m, const float *in,
				   float *const buf[2])
{
	int k;

	for (k = 0; k < m->nlayers; k++) {
		const struct layer *l = &m->layers[k];

		layer_forward(l, l->weight, l->bias, in, buf[k & 1], (int)w->opt.batch);
		in = buf[k & 1];
	}
	return in;
}

int verify_init(struct work *w)
{
	size_t wide = (size_t)w->opt.batch * (size_t)w->shape->max_dim;
	float *buf[2] = { alloc_floats(wide), alloc_floats(wide) };
	int rc = -ENOMEM, v;
	uint32_t b;

	w->input = alloc_floats(w->nbatches * w->in_size);
	w->expected[0] = alloc_floats(w->nbatches * w->out_size);
	w->expected[1] = alloc_floats(w->nbatches * w->out_size);
	if (!buf[0] || !buf[1] || !w->input || !w->expected[0] || !w->expected[1])
		goto out;
	fill_input(w);
	for (v = 0; v < 2; v++)
		for (b = 0; b < w->nbatches; b++)
			memcpy(w->expected[v] + b * w->out_size,
			       serial_forward(w, w->model[v], w->input + b * w->in_size, buf),
			       w->out_size * sizeof(float));
	rc = 0;
out:
	free(buf[0]);
	free(buf[1]);
	return rc;
}

/* The model that produced the answer: versions alternate. */
static int model_of(const struct answer *a)
{
	return (int)(a->version & 1);
}

/*
 * Compare bit by bit.  A GPU adds in another order; then compare the class of each image, and
 * the values within a rounding error.
 */
static bool answer_right(const struct work *w, const float *out, const float *want)
{
	uint32_t n = w->images->classes, i, j, a, b;

	if (w->opt.device != PAWL_CUDA)
		return !memcmp(out, want, w->out_size * sizeof(float));
	for (i = 0; i < w->opt.batch; i++, out += n, want += n) {
		for (a = b = 0, j = 0; j < n; j++) {
			a = out[j] > out[a] ? j : a;
			b = want[j] > want[b] ? j : b;
			if (!(fabsf(out[j] - want[j]) <= 1e-4f))
				return false;
		}
		if (a != b)
			return false;
	}
	return true;
}

void verify_answer(const struct work *w, const struct answer *a, struct result *r)
{
	const float *want = w->expected[model_of(a)] + a->batch * w->out_size;

	r->checked++;
	if (a->mixed) {
		if (!r->mixed++ && !*r->first_wrong)
			snprintf(r->first_wrong, sizeof(r->first_wrong),
				 "request %" PRIu64 " began with version %" PRIu64
				 " of the weights and met another", a->request, a->version);
	} else if (!answer_right(w, a->out, want)) {
		if (!r->wrong++ && !*r->first_wrong)
			snprintf(r->first_wrong, sizeof(r->first_wrong),
				 "request %" PRIu64 " (batch %" PRIu32 ", version %" PRIu64
				 ") has other outputs than the serial computation",
				 a->request, a->batch, a->version);
	}
}

void verify_judge(struct work *w, const struct answer *a)
{
	uint32_t classes = w->images->classes, i, j, best;
	uint64_t image = (uint64_t)a->batch * w->opt.batch;
	uint8_t *seen = w->seen[model_of(a)];
	const float *out = a->out;

	w->answers[model_of(a)]++;
	if (seen[image] & SEEN)
		return;
	/* The last batch wraps around; those images are counted with the first batch. */
	for (i = 0; i < w->opt.batch && image < w->images->count;
	     i++, image++, out += classes) {
		for (best = 0, j = 1; j < classes; j++)
			if (out[j] > out[best])
				best = j;
		seen[image] = SEEN | (best == w->images->label[image] ? RIGHT : 0);
	}
}

struct accuracy accuracy_of(const struct work *w, int model)
{
	struct accuracy a = { 0 };
	uint32_t i;

	for (i = 0; i < w->images->count; i++) {
		uint8_t s = w->seen[model][i];

		if (!(s & SEEN))
			continue;
		a.seen++;
		a.right += !!(s & RIGHT);
		if (w->images->split[i]) {
			a.held_seen++;
			a.held_right += !!(s & RIGHT);
		}
	}
	return a;
}
