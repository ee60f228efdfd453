// SPDX-License-Identifier: Apache-2.0
/*
 * The settings of a model: those of the section [model], over them those of the file config.pbtxt
 * in its folder, and over these the ones that its own section [model NAME] states.
 *
 * config.pbtxt is Triton's.  What it has and is not read here is named in the log.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pbtxt.h"
#include "serve.h"

static bool is(const struct pbtxt *f, const char *name)
{
	return !strcmp(f->name, name);
}

static void ignored(struct settings *s, const char *outer, const char *name)
{
	size_t n = strlen(s->ignored);

	snprintf(s->ignored + n, sizeof(s->ignored) - n, "%s%s%s%.60s", n ? ", " : "", outer,
		 *outer ? "." : "", name);
}

/* Take a value by the rules of the key of the configuration file. */
static void take(struct settings *s, const struct pbtxt *f, const char *key, const char *value)
{
	if (!*s->why && (!value || !conf_set(&s->conf, &s->stated, key, value)))
		snprintf(s->why, sizeof(s->why), "config.pbtxt: line %u: '%.40s' is not good for "
			 "%.40s", f->line, value ? value : "{}", f->name);
}

static int ascending(const void *a, const void *b)
{
	unsigned int x = *(const unsigned int *)a, y = *(const unsigned int *)b;

	return x < y ? -1 : x > y;
}

/* Its sizes may have any order. */
static void batching(struct settings *s, const struct pbtxt *f)
{
	unsigned int sizes[MAX_PREFERRED], n = 0, i;
	const struct pbtxt *one, *last = NULL;
	char list[16 * MAX_PREFERRED] = "";

	for (one = f->first; one; one = one->next) {
		if (is(one, "preferred_batch_size")) {
			last = one;
			if (n < MAX_PREFERRED && one->value)
				sizes[n] = (unsigned int)strtoul(one->value, NULL, 10);
			n++;
		} else if (is(one, "max_queue_delay_microseconds")) {
			take(s, one, "max_delay_us", one->value);
		} else {
			ignored(s, f->name, one->name);
		}
	}
	if (n > MAX_PREFERRED) {
		snprintf(s->why, sizeof(s->why),
			 "config.pbtxt: line %u: more than %d preferred_batch_size", last->line,
			 MAX_PREFERRED);
		return;
	}
	qsort(sizes, n, sizeof(sizes[0]), ascending);
	for (i = 0; i < n; i++)
		sprintf(list + strlen(list), "%s%u", i ? ", " : "", sizes[i]);
	if (n)
		take(s, last, "preferred_batches", list);
}

/* Groups of instances differ by what runs them, which is one engine here. */
static void instances(struct settings *s, const struct pbtxt *f, unsigned long *count)
{
	const struct pbtxt *one;
	char text[24];

	for (one = f->first; one; one = one->next) {
		if (is(one, "count") && one->value) {
			*count += strtoul(one->value, NULL, 10);
			snprintf(text, sizeof(text), "%lu", *count);
			take(s, one, "instances", text);
		} else if (!is(one, "name") && !(is(one, "kind") && one->value &&
						 (!strcmp(one->value, "KIND_CPU") ||
						  !strcmp(one->value, "KIND_AUTO")))) {
			ignored(s, f->name, one->name);
		}
	}
}

static void policy(struct settings *s, const struct pbtxt *f)
{
	const struct pbtxt *one = f->first, *in;
	char list[21 * MAX_LISTED] = "";

	if (!one || one->value || one->next) {
		take(s, f, "versions", NULL);
		return;
	}
	in = one->first;
	if (is(one, "latest")) {
		snprintf(list, sizeof(list), "latest %.20s", in && is(in, "num_versions") &&
			 in->value ? in->value : "1");
	} else if (is(one, "all")) {
		strcpy(list, "all");
	} else if (is(one, "specific")) {
		for (; in && in->value && is(in, "versions") &&
		     strlen(list) + 24 < sizeof(list); in = in->next)
			sprintf(list + strlen(list), "%s%.19s", *list ? ", " : "", in->value);
		if (in)
			*list = 0;
	}
	take(s, f, "versions", list);
}

static void read_pbtxt(const char *path, const char *name, struct settings *s)
{
	unsigned long count = 0;
	struct pbtxt *all, *f;
	int rc = pbtxt_read(path, &all, s->why, sizeof(s->why));

	if (rc) {
		if (rc == -ENOENT || rc == -ENOTDIR)
			*s->why = 0;
		return;
	}
	for (f = all; f; f = f->next) {
		if (is(f, "max_batch_size"))
			take(s, f, "max_batch", f->value);
		else if (is(f, "dynamic_batching") && !f->value)
			batching(s, f);
		else if (is(f, "instance_group") && !f->value)
			instances(s, f, &count);
		else if (is(f, "version_policy"))
			policy(s, f);
		else if (!is(f, "name"))
			ignored(s, "", f->name);
		else if (!f->value || strcmp(f->value, name))
			snprintf(s->why, sizeof(s->why), "config.pbtxt: line %u: the name is "
				 "'%.100s', and that of the folder '%.100s'", f->line,
				 f->value ? f->value : "{}", name);
	}
	pbtxt_free(all);
}

void settings_read(const struct server *sv, const char *name, struct settings *s)
{
	const struct config *cfg = &sv->cfg;
	char path[4096];
	unsigned int i;

	memset(s, 0, sizeof(*s));
	s->conf = cfg->model;
	snprintf(path, sizeof(path), "%s/%s/config.pbtxt", cfg->repository, name);
	read_pbtxt(path, name, s);
	for (i = 0; i < cfg->nnamed; i++)
		if (!strcmp(cfg->named[i].name, name)) {
			s->stated |= cfg->named[i].seen;
			conf_take(&s->conf, &cfg->named[i].conf, cfg->named[i].seen);
		}
	/* a backend must not share runs because of a default */
	s->conf.batches = conf_batches(s->stated);
	if (!s->conf.instances)
		s->conf.instances = cfg->workers + 1;
	if (!*s->why && !conf_good(&s->conf))
		snprintf(s->why, sizeof(s->why), "a preferred batch is larger than max_batch");
}

bool settings_same(const struct model_conf *a, const struct model_conf *b)
{
	return a->max_batch == b->max_batch && a->delay_ns == b->delay_ns &&
		a->npreferred == b->npreferred &&
		!memcmp(a->preferred, b->preferred, a->npreferred * sizeof(a->preferred[0])) &&
		a->queue_requests == b->queue_requests && a->queue_bytes == b->queue_bytes &&
		a->slot_bytes == b->slot_bytes && a->weight == b->weight &&
		a->instances == b->instances && a->timeout_ns == b->timeout_ns &&
		a->backend == b->backend && a->batches == b->batches &&
		a->threads == b->threads && !strcmp(a->provider, b->provider) &&
		a->policy == b->policy && a->nversions == b->nversions &&
		!memcmp(a->versions, b->versions, sizeof(a->versions));
}
