// SPDX-License-Identifier: Apache-2.0
/*
 * Models for tests of the server: tools/serve/model.h implemented by small ops whose time and
 * result the test decides.  They are not part of the pawl command.
 *
 * A version's folder has a file "fake":
 *	type FP32	of input and output (default FP32)
 *	dims -1 4	of both; the first is -1: batches
 *	inputs 2	the output is their sum
 *	swap 1		the output has the first two dimensions the other way round
 *	add 5		added to each element
 *	layers 3	ops in a chain, each of which sleeps
 *	sleep_us 100	at most 999999
 *	count 1		added to each element: the runs before this one
 *	gate 1		the layers wait until the version's folder has a file "open"
 *	brake 1		the layers take a millisecond while the version's folder has a file "slow"
 *	fail 1		the last layer fails
 *	largest 99	the last layer fails if an element of the first input is larger
 *	refuse WHY	the load fails
 *	widest 9	a run with more than that in the last dimension is refused
 *	plan_gate 4	with more than that in the last dimension, a plan has pieces of a millisecond
 *			until the version's folder has a file "plan"
 *	trace 1		"slot" and "free" on standard error, when a slot is made and freed
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <base/atomic.h>
#include "../../../tools/serve/model.h"
#include "../../../tools/serve/serve.h"

#define MAX_LAYERS 64

struct fake {
	struct serve_model m;
	char name[128];
	struct serve_io in[8], out;
	char names[8][16];
	unsigned int layers, sleep_us, fail, gate, brake, count, swap, trace, widest;
	unsigned int plan_gate, largest;
	u32 runs;		/* A */
	char open[4096], plan[4096], slow[4096];
	double add;
};

struct step {
	struct serve_slot *s;
	unsigned int k;
	bool timed;
	uint64_t begin_ns, end_ns;
};

struct serve_slot {
	struct fake *f;
	struct pawl_engine *e;
	struct serve_shape out;
	size_t n, bytes, strings;	/* strings: bytes of input 0, if it is BYTES */
	char *in[8], *to;
	pawl_var_t state;
	u32 canceled;		/* A */
	struct step step[MAX_LAYERS];
};

void serve_model_limit(uint64_t bytes)
{
	(void)bytes;
}

void serve_cache_empty(void)
{
}

void serve_onnxruntime(const char *path)
{
	(void)path;
}

int serve_model_load(const char *dir, const char *name, int64_t version,
		     const struct serve_how *how, struct serve_model **out, char *err,
		     size_t errsize)
{
	struct fake *f = calloc(1, sizeof(*f));
	char path[4096], line[256], text[200];
	unsigned int i, inputs = 1;
	long long d[4];
	FILE *file;
	int n;

	(void)how;
	snprintf(path, sizeof(path), "%s/fake", dir);
	file = f ? fopen(path, "re") : NULL;
	if (!file) {
		snprintf(err, errsize, "%s: %s", path, strerror(errno));
		free(f);
		return -ENOENT;
	}
	f->in[0].type = SERVE_FP32;
	f->in[0].rank = 2;
	f->in[0].dims[0] = -1;
	f->in[0].dims[1] = 4;
	f->layers = 1;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "type %199s", text) == 1) {
			for (i = 0; i < 13; i++)
				if (!strcmp(type_name[i], text))
					f->in[0].type = (enum serve_type)i;
		} else if (!strncmp(line, "dims", 4)) {
			n = sscanf(line, "dims %lld %lld %lld %lld", d, d + 1, d + 2, d + 3);
			f->in[0].rank = (unsigned int)(n > 0 ? n : 0);
			for (i = 0; i < f->in[0].rank; i++)
				f->in[0].dims[i] = d[i];
		} else if (sscanf(line, "refuse %199[^\n]", text) == 1) {
			snprintf(err, errsize, "%s: %s", path, text);
			fclose(file);
			free(f);
			return -ENOTSUP;
		} else if (sscanf(line, "inputs %u", &inputs) == 1 ||
			   sscanf(line, "add %lf", &f->add) == 1 ||
			   sscanf(line, "layers %u", &f->layers) == 1 ||
			   sscanf(line, "sleep_us %u", &f->sleep_us) == 1 ||
			   sscanf(line, "count %u", &f->count) == 1 ||
			   sscanf(line, "gate %u", &f->gate) == 1 ||
			   sscanf(line, "brake %u", &f->brake) == 1 ||
			   sscanf(line, "swap %u", &f->swap) == 1 ||
			   sscanf(line, "trace %u", &f->trace) == 1 ||
			   sscanf(line, "widest %u", &f->widest) == 1 ||
			   sscanf(line, "plan_gate %u", &f->plan_gate) == 1 ||
			   sscanf(line, "largest %u", &f->largest) == 1 ||
			   sscanf(line, "fail %u", &f->fail) == 1) {
			continue;
		}
	}
	fclose(file);
	for (i = 0; i < inputs; i++) {
		f->in[i] = f->in[0];
		snprintf(f->names[i], sizeof(f->names[i]), "INPUT%u", i);
		f->in[i].name = f->names[i];
	}
	f->out = f->in[0];
	f->out.name = "OUTPUT0";
	snprintf(f->open, sizeof(f->open), "%.4000s/open", dir);
	snprintf(f->plan, sizeof(f->plan), "%.4000s/plan", dir);
	snprintf(f->slow, sizeof(f->slow), "%.4000s/slow", dir);
	snprintf(f->name, sizeof(f->name), "%s", name);
	f->m = (struct serve_model){ .name = f->name, .platform = "fake",
		.backend = "native", .version = version,
		.ninputs = inputs, .noutputs = 1, .inputs = f->in, .outputs = &f->out,
		.batch = f->in[0].rank && f->in[0].dims[0] == -1 };
	*out = &f->m;
	return 0;
}

void serve_model_free(struct serve_model *m)
{
	free(m);
}

int serve_slot_create(struct serve_model *m, struct pawl_engine *e,
		      const struct serve_shape *shapes, struct serve_slot **out, char *err,
		      size_t errsize)
{
	struct serve_slot *s = calloc(1, sizeof(*s));
	struct fake *f = (struct fake *)m;
	int64_t width = shapes[0].dims[shapes[0].rank - 1];
	unsigned int i;

	if (!s) {
		snprintf(err, errsize, "out of memory");
		return -ENOMEM;
	}
	if (f->widest && width > f->widest) {
		snprintf(err, errsize, "too wide");
		free(s);
		return -EINVAL;
	}
	if (f->trace)
		fputs("slot\n", stderr);
	s->f = f;
	s->e = e;
	s->out = shapes[0];
	if (s->f->swap) {
		s->out.dims[0] = shapes[0].dims[1];
		s->out.dims[1] = shapes[0].dims[0];
	}
	s->n = 1;
	for (i = 0; i < s->out.rank; i++)
		s->n *= (size_t)s->out.dims[i];
	s->bytes = s->n * type_size[m->inputs[0].type];
	s->to = malloc(s->bytes);
	for (i = 0; i < m->ninputs; i++) {
		s->in[i] = malloc(s->bytes);
		if (!s->in[i])
			break;
	}
	if (i < m->ninputs || !s->to || pawl_var_create(e, &s->state)) {
		snprintf(err, errsize, "out of memory");
		serve_slot_destroy(s);
		return -ENOMEM;
	}
	*out = s;
	return 0;
}

int serve_slot_plan(struct serve_slot *s)
{
	struct timespec piece = { 0, 1000000 };
	struct fake *f = s->f;

	if (!f->plan_gate || s->out.dims[s->out.rank - 1] <= f->plan_gate ||
	    !access(f->plan, F_OK))
		return 0;
	nanosleep(&piece, NULL);
	return -EAGAIN;
}

void serve_slot_destroy(struct serve_slot *s)
{
	unsigned int i;

	if (s->f->trace)
		fputs("free\n", stderr);
	for (i = 0; i < s->f->m.ninputs; i++)
		free(s->in[i]);
	free(s->to);
	if (s->state.h)
		pawl_var_delete(s->e, s->state, NULL, NULL);
	free(s);
}

int serve_slot_move(struct serve_slot *s, struct pawl_engine *to)
{
	pawl_var_t state;
	int rc = pawl_var_create(to, &state);

	if (rc)
		return rc;
	pawl_var_delete(s->e, s->state, NULL, NULL);
	s->e = to;
	s->state = state;
	return 0;
}

bool serve_slot_apart(const struct serve_slot *s)
{
	return !s->f->swap;
}

size_t serve_slot_bytes(const struct serve_slot *s)
{
	return s->bytes * (s->f->m.ninputs + 1);
}

size_t serve_slot_empty(struct serve_slot *s, size_t first, size_t most)
{
	(void)s;
	(void)first;
	(void)most;
	return 0;
}

void *serve_slot_input(struct serve_slot *s, unsigned int i, size_t bytes)
{
	if (s->f->in[0].type == SERVE_BYTES) {
		free(s->in[i]);
		s->in[i] = malloc(bytes + 1);
		if (!i) {
			free(s->to);
			s->to = malloc(bytes + 1);
			s->strings = bytes;
		}
	}
	return s->to ? s->in[i] : NULL;
}

size_t serve_slot_output_bytes(const struct serve_slot *s, unsigned int i)
{
	return i ? 0 : s->f->in[0].type == SERVE_BYTES ? s->strings : s->bytes;
}

const void *serve_slot_output(struct serve_slot *s, unsigned int i)
{
	return i ? NULL : s->to;
}

const struct serve_shape *serve_slot_output_shape(struct serve_slot *s, unsigned int i)
{
	return i ? NULL : &s->out;
}

static void compute(struct serve_slot *s)
{
	unsigned int k, n = s->f->m.ninputs;
	u32 runs = fetch_add_relaxed(&s->f->runs, 1);
	double add = s->f->add + (s->f->count ? runs : 0);
	size_t i;

	for (i = 0; i < s->n; i++) {
		if (s->f->in[0].type == SERVE_FP32) {
			float sum = (float)add, *p;

			for (k = 0; k < n; k++)
				sum += ((float *)(void *)s->in[k])[i];
			p = (float *)(void *)s->to;
			p[i] = sum;
		} else if (s->f->in[0].type == SERVE_INT32) {
			int32_t sum = (int32_t)add;

			for (k = 0; k < n; k++)
				sum += ((int32_t *)(void *)s->in[k])[i];
			((int32_t *)(void *)s->to)[i] = sum;
		}
	}
	if (s->f->in[0].type != SERVE_FP32 && s->f->in[0].type != SERVE_INT32)
		memcpy(s->to, s->in[0], serve_slot_output_bytes(s, 0));
}

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int layer(struct pawl_run *run, void *arg)
{
	struct step *st = arg;
	struct fake *f = st->s->f;
	struct timespec ts = { 0, (long)f->sleep_us * 1000 }, poll = { 0, 1000000 };
	size_t i;

	st->begin_ns = st->timed ? clock_ns() : 0;
	while (!load_acquire(&st->s->canceled) && f->gate && access(f->open, F_OK))
		nanosleep(&poll, NULL);
	if (load_acquire(&st->s->canceled))
		return -ECANCELED;
	if (f->sleep_us)
		nanosleep(&ts, NULL);
	if (f->brake && !access(f->slow, F_OK))
		nanosleep(&poll, NULL);
	st->end_ns = st->timed ? clock_ns() : 0;
	if (st->k + 1 < f->layers)
		return 0;
	compute(st->s);
	for (i = 0; f->largest && i < st->s->n; i++)
		if (((float *)(void *)st->s->in[0])[i] > (float)f->largest)
			return pawl_fail(run, -EINVAL, "an element is too large");
	return f->fail ? pawl_fail(run, -EIO, "this model fails") : 0;
}

int serve_slot_launch(struct serve_slot *s, const struct serve_launch *how)
{
	struct pawl_op op[MAX_LAYERS];
	unsigned int k;

	store_release(&s->canceled, 0);
	pawl_var_clear(s->e, s->state);
	for (k = 0; k < s->f->layers; k++) {
		s->step[k] = (struct step){ .s = s, .k = k, .timed = how->timed };
		op[k] = (struct pawl_op){ .size = sizeof(op[k]),
					  .fn = layer,
					  .arg = &s->step[k],
					  .reads = &how->weights,
					  .nreads = 1,
					  .writes = &s->state,
					  .nwrites = 1,
					  .priority = how->priority,
					  .name = "fake" };
		if (how->deadline_ns) {
			op[k].flags |= PAWL_OP_DEADLINE;
			op[k].deadline_ns = how->deadline_ns;
		}
	}
	op[k - 1].flags |= PAWL_OP_CQ;
	op[k - 1].cq = how->cq;
	op[k - 1].tag = how->tag;
	return pawl_push_batch(s->e, op, s->f->layers);
}

void serve_slot_cancel(struct serve_slot *s)
{
	store_release(&s->canceled, 1);
}

void serve_slot_failure(struct serve_slot *s, char *text, size_t size)
{
	(void)s;
	(void)size;
	*text = 0;
}

bool serve_slot_step(const struct serve_slot *s, unsigned int i, struct serve_step *out)
{
	const struct step *st = &s->step[i];

	if (i >= s->f->layers || !st->timed)
		return false;
	*out = (struct serve_step){ .name = "layer", .op = "Fake", .begin_ns = st->begin_ns,
				    .end_ns = st->end_ns, .thread = 1 };
	return true;
}
