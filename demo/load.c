// SPDX-License-Identifier: Apache-2.0
/* Finds and reads the files of pawl infer and pawl demo. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "infer.h"

/* The folder beside the program, as in the source tree, or where make install installs it. */
static char *find_data(void)
{
	static const char *const place[] = { "data", "../share/pawl" };
	char exe[PATH_MAX], *path, *real;
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	size_t i;

	if (len < 0)
		len = 0;
	exe[len] = 0;
	*(strrchr(exe, '/') ? strrchr(exe, '/') : exe) = 0;
	for (i = 0; i < sizeof(place) / sizeof(place[0]); i++) {
		if (asprintf(&path, "%s/%s", exe, place[i]) < 0)
			return NULL;
		real = realpath(path, NULL);
		free(path);
		if (real)
			return real;
	}
	/* Neither exists: opening a file in the first one will report the error. */
	return asprintf(&path, "%s/%s", exe, place[0]) < 0 ? NULL : path;
}

static char *data_path(const char *given, const char *dir, const char *name)
{
	char *path;

	if (given)
		return strdup(given);
	return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

/* Choose the names of the files: the given ones, or those in the data folder. */
static int find_files(struct work *w)
{
	const struct options *o = &w->opt;
	const char *env = getenv("PAWL_DATA");
	char *dir;

	if (o->data)
		dir = strdup(o->data);
	else if (env && *env)
		dir = strdup(env);
	else
		dir = find_data();
	if (dir) {
		w->path[0] = data_path(o->model[0], dir, "model-a");
		w->path[1] = data_path(o->model[1], dir, "model-b");
		w->images_path = data_path(o->images, dir, "digits.img");
		w->repository = data_path(NULL, dir, "models");
	}
	free(dir);
	if (!w->path[0] || !w->path[1] || !w->images_path || !w->repository)
		return failed("", strerror(ENOMEM));
	return 0;
}

static int read_files(struct work *w)
{
	char err[512];
	int v;

	if (images_load(w->images_path, &w->images, err, sizeof(err)))
		return failed("", err);
	for (v = 0; v < 2; v++) {
		if (model_load(w->path[v], NULL, &w->model[v], err, sizeof(err)))
			return failed("", err);
		if (model_check_io(w->model[v], (int)w->images->size, (int)w->images->classes,
				   err, sizeof(err)))
			return failed(w->path[v], err);
	}
	if (model_same_shape(w->model[0], w->model[1], err, sizeof(err)))
		return failed(w->path[0], err);
	return 0;
}

/* Set the sizes that follow from the files and the size of a batch. */
static void set_sizes(struct work *w)
{
	int k;

	w->shape = w->model[0];
	for (k = 0; k < w->shape->nlayers; k++) {
		const struct layer *l = &w->shape->layers[k];

		w->nweights += layer_nweight(l) + layer_nbias(l);
		w->weighted += l->weight || l->bias;
	}
	w->nbatches = (uint32_t)(((uint64_t)w->images->count + w->opt.batch - 1) / w->opt.batch);
	w->in_size = (size_t)w->opt.batch * w->images->size;
	w->out_size = (size_t)w->opt.batch * w->images->classes;
}

static void warn_same(struct work *w)
{
	uint32_t b, same = 0;

	for (b = 0; b < w->nbatches; b++)
		same += !memcmp(w->expected[0] + b * w->out_size,
				w->expected[1] + b * w->out_size, w->out_size * sizeof(float));
	if (same)
		warn(w,
		     "both models have the same answer for %" PRIu32 " of %" PRIu32 " batches, "
		     "so these do not show which version was used",
		     same, w->nbatches);
}

int work_load(struct work *w)
{
	cpu_set_t set;

	if (find_files(w) || read_files(w))
		return -EIO;
	set_sizes(w);
	w->seen[0] = calloc(w->images->count, 1);
	w->seen[1] = calloc(w->images->count, 1);
	if (!w->seen[0] || !w->seen[1] || verify_init(w))
		return failed("", strerror(ENOMEM));
	warn_same(w);
	w->cpus = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
	return 0;
}

void work_unload(struct work *w)
{
	int v;

	for (v = 0; v < 2; v++) {
		free(w->path[v]);
		model_free(w->model[v]);
		free(w->expected[v]);
		free(w->seen[v]);
	}
	free(w->images_path);
	free(w->repository);
	images_free(w->images);
	free(w->input);
}
