// SPDX-License-Identifier: Apache-2.0
/*
 * The repository: a folder with a folder for each model, which has a folder for each version,
 * named by a number.  The newest version is served.  All of this runs on the main thread.
 *
 * A load of a new version takes effect by a new table of models, which is sent to all loops.  A
 * request holds a reference to the version that it found, so each runs on one version, and none
 * fails because of the change.  When the last request of the old version has ended, the var of
 * its weights is deleted, which is a write, and their memory is freed.
 */

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "serve.h"

/* Names go into URLs, labels of metrics, and paths. */
static bool good_name(const char *name)
{
	size_t n = strspn(name,
			  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

	return n && !name[n] && n <= NAME_MAX_LEN && *name != '.';
}

static struct entry *find(struct server *sv, const char *name)
{
	unsigned int i;

	for (i = 0; i < sv->nentries; i++)
		if (!strcmp(sv->entries[i]->name, name))
			return sv->entries[i];
	return NULL;
}

static struct entry *entry_create(struct server *sv, const char *name)
{
	struct config *cfg = &sv->cfg;
	struct entry *e;
	unsigned int i;

	if (sv->nentries == MAX_MODELS)
		return NULL;
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	snprintf(e->name, sizeof(e->name), "%s", name);
	e->conf = cfg->model;
	for (i = 0; i < cfg->nnamed; i++)
		if (!strcmp(cfg->named[i].name, name))
			e->conf = cfg->named[i].conf;
	if (!e->conf.instances)
		e->conf.instances = cfg->workers + 1;
	e->stats.batch = calloc((size_t)e->conf.max_batch + 2, sizeof(*e->stats.batch));
	if (!e->stats.batch) {
		free(e);
		return NULL;
	}
	sv->entries[sv->nentries++] = e;
	return e;
}

static bool is_folder(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* The greatest version of a model, or 0. */
static int64_t newest(struct server *sv, const char *name)
{
	char path[4096];
	int64_t best = 0, v;
	struct dirent *d;
	char *end;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/%s", sv->cfg.repository, name);
	dir = opendir(path);
	if (!dir)
		return 0;
	while ((d = readdir(dir))) {
		errno = 0;
		v = strtoll(d->d_name, &end, 10);
		if (errno || *end || *d->d_name < '1' || *d->d_name > '9' || v <= best)
			continue;
		if (snprintf(path, sizeof(path), "%s/%s/%s", sv->cfg.repository, name,
			     d->d_name) < (int)sizeof(path) &&
		    is_folder(path))
			best = v;
	}
	closedir(dir);
	return best;
}

static void version_free(struct msg *m)
{
	struct version *v = m->arg;
	struct server *sv = (struct server *)((char *)v->home - offsetof(struct server, port));
	char text[24];
	unsigned int i;

	slots_free(v);
	for (i = 0; i < ENGINES; i++)
		if (v->weights[i].h)
			pawl_var_delete(sv->e[i], v->weights[i], NULL, NULL);
	if (v->m) {
		snprintf(text, sizeof(text), "%" PRId64, v->m->version);
		log_line("info", "freed", "model", v->e->name, "version", text, NULL);
		serve_model_free(v->m);
	}
	free(v);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct entry *const *)a)->name, (*(struct entry *const *)b)->name);
}

/* Send the loops what is current. */
static int publish_current(struct server *sv)
{
	struct entry *sorted[MAX_MODELS];
	struct table *t = calloc(1, sizeof(*t) + sv->nentries * sizeof(t->at[0]));
	unsigned int i;

	if (!t)
		return -ENOMEM;
	memcpy(sorted, sv->entries, sv->nentries * sizeof(sorted[0]));
	qsort(sorted, sv->nentries, sizeof(sorted[0]), by_name);
	for (i = 0; i < sv->nentries; i++)
		if (sorted[i]->current) {
			t->at[t->n].e = sorted[i];
			t->at[t->n++].v = sorted[i]->current;
		}
	publish(sv, t);
	return 0;
}

/* Replace the current version; v may be NULL. */
static int replace(struct server *sv, struct entry *e, struct version *v)
{
	struct version *old = e->current;
	int rc;

	e->current = v;
	rc = publish_current(sv);
	if (rc) {
		e->current = old;
		return rc;
	}
	if (old)
		version_put(old);
	return 0;
}

static int check(const struct version *v, char *err, size_t size)
{
	const struct serve_model *m = v->m;
	unsigned int i;

	if (m->ninputs > MAX_IO || m->noutputs > MAX_IO || !m->noutputs) {
		snprintf(err, size,
			 "%u inputs and %u outputs: 0 to %d and 1 to %d are supported",
			 m->ninputs, m->noutputs, MAX_IO, MAX_IO);
		return -ENOTSUP;
	}
	for (i = 0; i < m->ninputs + m->noutputs; i++)
		if ((i < m->ninputs ? &m->inputs[i] : &m->outputs[i - m->ninputs])->type ==
		    SERVE_BYTES) {
			snprintf(err, size, "tensors of BYTES are not supported");
			return -ENOTSUP;
		}
	return 0;
}

/* Load the newest version, and serve it instead of the current one. */
static int load(struct server *sv, struct entry *e)
{
	struct version *v = calloc(1, sizeof(*v));
	int64_t number = newest(sv, e->name);
	char path[4096], text[24];
	uint64_t begin = now_ns();
	unsigned int i;
	int rc = -ENOMEM;

	snprintf(e->reason, sizeof(e->reason), "out of memory");
	if (!number) {
		snprintf(e->reason, sizeof(e->reason), "no folder of a version");
		rc = -ENOENT;
	}
	if (!v || !number)
		goto failed;
	v->e = e;
	v->home = &sv->port;
	v->refs = 1;
	v->free_msg = (struct msg){ .fn = version_free, .arg = v };
	snprintf(path, sizeof(path), "%s/%s/%" PRId64, sv->cfg.repository, e->name, number);
	rc = serve_model_load(path, e->name, number, &v->m, e->reason, sizeof(e->reason));
	if (rc) {
		v->m = NULL;
		goto failed;
	}
	rc = check(v, e->reason, sizeof(e->reason));
	for (i = 0; !rc && i < ENGINES; i++)
		rc = pawl_var_create(sv->e[i], &v->weights[i]);
	if (!rc)
		rc = slots_warm(sv, v, e->reason, sizeof(e->reason));
	if (!rc)
		rc = replace(sv, e, v);
	if (rc)
		goto failed;
	e->state = ENTRY_READY;
	e->explicitly_unloaded = false;
	*e->reason = 0;
	snprintf(path, sizeof(path), "%" PRId64, number);
	snprintf(text, sizeof(text), "%.3f", (double)(now_ns() - begin) / 1e6);
	log_line("info", "loaded", "model", e->name, "version", path, "ms", text, NULL);
	return 0;
failed:
	/* What was served before stays. */
	if (!e->current)
		e->state = ENTRY_UNAVAILABLE;
	log_line("error", "load", "model", e->name, "error", e->reason, NULL);
	if (v && v->e)
		version_free(&v->free_msg);
	else
		free(v);
	return rc;
}

static int unload(struct server *sv, struct entry *e, const char *why)
{
	int rc = e->current ? replace(sv, e, NULL) : 0;

	if (rc)
		return rc;
	e->state = ENTRY_UNAVAILABLE;
	snprintf(e->reason, sizeof(e->reason), "%s", why);
	log_line("info", "unloaded", "model", e->name, "why", why, NULL);
	return 0;
}

void repo_scan(struct server *sv)
{
	DIR *dir = opendir(sv->cfg.repository);
	struct dirent *d;
	struct entry *e;
	char path[4096], why[320];
	unsigned int i;

	if (!dir) {
		log_line("error", "repository", "folder", sv->cfg.repository, "error",
			 strerror(errno), NULL);
		return;
	}
	for (i = 0; i < sv->nentries; i++)
		sv->entries[i]->present = false;
	while ((d = readdir(dir))) {
		if (*d->d_name == '.' ||
		    snprintf(path, sizeof(path), "%s/%s", sv->cfg.repository, d->d_name) >=
		    (int)sizeof(path) || !is_folder(path))
			continue;
		if (!good_name(d->d_name)) {
			log_line("warning", "name", "folder", d->d_name, "error",
				 "a name of a model has letters, digits, _, . and - only",
				 NULL);
			continue;
		}
		e = find(sv, d->d_name);
		if (!e)
			e = entry_create(sv, d->d_name);
		if (!e) {
			log_line("error", "load", "model", d->d_name, "error",
				 "too many models, or out of memory", NULL);
			continue;
		}
		e->present = true;
		if (e->explicitly_unloaded)
			continue;
		if (!e->current || e->current->m->version != newest(sv, e->name))
			load(sv, e);
	}
	closedir(dir);
	for (i = 0; i < sv->nentries; i++)
		if (!sv->entries[i]->present && sv->entries[i]->current) {
			snprintf(why, sizeof(why), "the folder %.150s/%s does not exist",
				 sv->cfg.repository, sv->entries[i]->name);
			unload(sv, sv->entries[i], why);
		}
}

static char *text_of(const char *fmt, const char *name, const char *why)
{
	char *text;

	return asprintf(&text, fmt, name, why) < 0 ? NULL : text;
}

static void index_json(struct server *sv, struct control *ct)
{
	json_t *all = json_array(), *o;
	char version[24];
	struct entry *e;
	unsigned int i;

	for (i = 0; i < sv->nentries; i++) {
		e = sv->entries[i];
		if ((ct->ready_only && !e->current) || (!e->present && !e->current))
			continue;
		o = json_pack("{s:s}", "name", e->name);
		if (e->current) {
			snprintf(version, sizeof(version), "%" PRId64, e->current->m->version);
			json_object_set_new(o, "version", json_string(version));
		}
		json_object_set_new(o, "state",
				    json_string(e->current ? "READY" : "UNAVAILABLE"));
		if (!e->current)
			json_object_set_new(o, "reason", json_string(e->reason));
		json_array_append_new(all, o);
	}
	ct->text = json_dumps(all, JSON_COMPACT);
	json_decref(all);
	ct->http = ct->text ? 200 : 503;
}

void repo_control(struct server *sv, struct control *ct)
{
	struct entry *e = *ct->name ? find(sv, ct->name) : NULL;
	const char *why;
	char path[4096];
	int rc = 0;

	ct->http = 200;
	switch (ct->what) {
	case CONTROL_INDEX:
		index_json(sv, ct);
		break;
	case CONTROL_TRACE:
		rc = trace_start(sv, &why);
		break;
	case CONTROL_TRACE_STOP:
		rc = trace_stop(sv, &ct->text, &why);
		break;
	case CONTROL_LOAD:
		snprintf(path, sizeof(path), "%s/%s", sv->cfg.repository, ct->name);
		if (!e && good_name(ct->name) && is_folder(path))
			e = entry_create(sv, ct->name);
		if (e)
			e->present = true;
		if (!e || load(sv, e)) {
			ct->http = e ? 400 : 500;
			ct->text =
				text_of("failed to load '%s', %s", ct->name,
					e ? e->reason : "failed to poll from model repository");
		}
		break;
	case CONTROL_UNLOAD:
		/* what is not loaded is unloaded, as Triton has it */
		if (e && unload(sv, e, "a client unloaded it")) {
			ct->http = 503;
			ct->text =
				text_of("failed to unload '%s', %s", ct->name, "out of memory");
		} else if (e) {
			e->explicitly_unloaded = true;
		}
	}
	if (rc) {
		ct->http = rc == -ENOMEM ? 503 : 400;
		ct->text = text_of("failed to trace%s, %s", "", why);
	}
	port_post(&ct->loop->port, ct->done);
}

/* No loop runs any more. */
void repo_free(struct server *sv)
{
	struct version *v;
	unsigned int i;

	for (i = 0; i < sv->nentries; i++) {
		v = sv->entries[i]->current;
		if (v)
			version_put(v);
	}
	port_run(&sv->port);
	for (i = 0; i < sv->nentries; i++) {
		free(sv->entries[i]->stats.batch);
		free(sv->entries[i]);
	}
	free(sv->table);
}
