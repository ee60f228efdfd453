// SPDX-License-Identifier: Apache-2.0
/*
 * The repository: a folder with a folder for each model, which has a folder for each version,
 * named by a number.  The newest version is served.
 *
 * The main thread decides what is loaded, and a helper loads one version at a time, so that
 * signals and other calls do not wait for a load.  Loads and unloads by clients are executed in
 * the order of the calls, and before the loads of models that a scan of the folder has found.
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
	struct helper *h = (struct helper *)((char *)v->home - offsetof(struct helper, port));
	char text[24];
	unsigned int i;

	slots_free(v);
	for (i = 0; i < ENGINES; i++)
		if (v->weights[i].h)
			pawl_var_delete(h->sv->e[i], v->weights[i], NULL, NULL);
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
	for (i = 0; i < m->ninputs + m->noutputs; i++) {
		const struct serve_io *io = i < m->ninputs ? &m->inputs[i] :
							     &m->outputs[i - m->ninputs];
		struct js_str name = { .p = io->name, .n = strlen(io->name) };

		if (io->type == SERVE_BYTES) {
			snprintf(err, size, "tensors of BYTES are not supported");
			return -ENOTSUP;
		}
		/* neither JSON nor a message of gRPC could have it */
		if (!js_is_utf8(&name)) {
			snprintf(err, size, "the name of %s %u is not UTF-8",
				 i < m->ninputs ? "input" : "output",
				 i < m->ninputs ? i : i - m->ninputs);
			return -EINVAL;
		}
	}
	return 0;
}

/* On the helper: load the newest version. */
static int prepare(struct load *ld)
{
	struct server *sv = ld->sv;
	struct version *v;
	char path[4096];
	unsigned int i;
	int rc;

	ld->number = newest(sv, ld->e->name);
	if (!ld->number) {
		snprintf(ld->reason, sizeof(ld->reason), "no folder of a version");
		return -ENOENT;
	}
	snprintf(ld->reason, sizeof(ld->reason), "out of memory");
	ld->v = v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->e = ld->e;
	v->home = &sv->loader.port;
	v->refs = 1;
	v->free_msg = (struct msg){ .fn = version_free, .arg = v };
	snprintf(path, sizeof(path), "%s/%s/%" PRId64, sv->cfg.repository, ld->e->name,
		 ld->number);
	rc = serve_model_load(path, ld->e->name, ld->number, &v->m, ld->reason,
			      sizeof(ld->reason));
	if (rc) {
		v->m = NULL;
		return rc;
	}
	rc = check(v, ld->reason, sizeof(ld->reason));
	for (i = 0; !rc && i < ENGINES; i++)
		rc = pawl_var_create(sv->e[i], &v->weights[i]);
	if (!rc)
		rc = slots_warm(sv, v, ld->reason, sizeof(ld->reason));
	return rc;
}

static void load_arrived(struct msg *m)
{
	struct load *ld = m->arg;

	ld->ended = true;
	ld->sv->arrived++;
}

static void load_run(struct msg *m)
{
	struct load *ld = m->arg;

	ld->status = prepare(ld);
	port_send(&ld->sv->port, m, load_arrived, ld);
}

static void load_begin(struct server *sv, struct entry *e, struct control *ct)
{
	e->wanted = false;
	sv->load = (struct load){ .sv = sv, .e = e, .ct = ct, .begin_ns = now_ns() };
	port_send(&sv->loader.port, &sv->load.msg, load_run, &sv->load);
}

static void answer(struct control *ct, int http, const char *fmt, const char *why)
{
	ct->http = http;
	if (fmt && asprintf(&ct->text, fmt, ct->name, why) < 0)
		ct->text = NULL;
	port_post(&ct->loop->port, ct->done);
}

/* Serve the loaded version instead of the current one. */
static void load_end(struct server *sv)
{
	struct load *ld = &sv->load;
	struct entry *e = ld->e;
	char number[24], ms[24];
	int rc = ld->status ? ld->status : replace(sv, e, ld->v);

	if (!rc) {
		e->explicitly_unloaded = false;
		*e->reason = 0;
		snprintf(number, sizeof(number), "%" PRId64, ld->number);
		snprintf(ms, sizeof(ms), "%.3f", (double)(now_ns() - ld->begin_ns) / 1e6);
		log_line("info", "loaded", "model", e->name, "version", number, "ms", ms, NULL);
	} else {
		/* The current version stays. */
		snprintf(e->reason, sizeof(e->reason), "%s", ld->reason);
		log_line("error", "load", "model", e->name, "error", e->reason, NULL);
		if (ld->v)
			version_put(ld->v);
	}
	if (ld->ct)
		answer(ld->ct, rc ? 400 : 200, rc ? "failed to load '%s', %s" : NULL, e->reason);
	ld->e = NULL;
}

static int unload(struct server *sv, struct entry *e, const char *why)
{
	int rc = e->current ? replace(sv, e, NULL) : 0;

	if (rc)
		return rc;
	snprintf(e->reason, sizeof(e->reason), "%s", why);
	log_line("info", "unloaded", "model", e->name, "why", why, NULL);
	return 0;
}

/* Load new models, unload removed ones. */
static void scan(struct server *sv)
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
			e->wanted = true;
	}
	closedir(dir);
	for (i = 0; i < sv->nentries; i++)
		if (!sv->entries[i]->present && sv->entries[i]->current) {
			snprintf(why, sizeof(why), "the folder %.150s/%s does not exist",
				 sv->cfg.repository, sv->entries[i]->name);
			unload(sv, sv->entries[i], why);
		}
}

static void index_json(struct server *sv, struct control *ct)
{
	json_t *all = json_array(), *o;
	char version[24];
	struct entry *e;
	unsigned int i;
	bool loads;

	for (i = 0; i < sv->nentries; i++) {
		e = sv->entries[i];
		if ((ct->ready_only && !e->current) || (!e->present && !e->current))
			continue;
		o = json_pack("{s:s}", "name", e->name);
		if (e->current) {
			snprintf(version, sizeof(version), "%" PRId64, e->current->m->version);
			json_object_set_new(o, "version", json_string(version));
		}
		loads = sv->load.e == e || e->wanted;
		json_object_set_new(o, "state",
				    json_string(e->current ? "READY" :
						loads ? "LOADING" : "UNAVAILABLE"));
		if (!e->current && !loads)
			json_object_set_new(o, "reason", json_string(e->reason));
		json_array_append_new(all, o);
	}
	ct->text = json_dumps(all, JSON_COMPACT);
	json_decref(all);
	answer(ct, ct->text ? 200 : 503, NULL, NULL);
}

static void trace(struct server *sv, struct control *ct)
{
	const char *why;
	int rc = ct->what == CONTROL_TRACE ? trace_start(sv, &why) :
					     trace_stop(sv, &ct->text, &why);

	if (rc)
		answer(ct, rc == -ENOMEM ? 503 : 400, "failed to trace%s, %s", why);
	else
		answer(ct, 200, NULL, NULL);
}

static void control_load(struct server *sv, struct control *ct)
{
	struct entry *e = find(sv, ct->name);
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", sv->cfg.repository, ct->name);
	if (!e && good_name(ct->name) && is_folder(path))
		e = entry_create(sv, ct->name);
	if (!e) {
		answer(ct, 500, "failed to load '%s', %s",
		       "failed to poll from model repository");
		return;
	}
	e->present = true;
	load_begin(sv, e, ct);
}

static void control_unload(struct server *sv, struct control *ct)
{
	struct entry *e = find(sv, ct->name);

	/* as in Triton, unloading a model that is not loaded succeeds */
	if (e && unload(sv, e, "a client unloaded it")) {
		answer(ct, 503, "failed to unload '%s', %s", "out of memory");
		return;
	}
	if (e) {
		e->explicitly_unloaded = true;
		e->wanted = false;
	}
	answer(ct, 200, NULL, NULL);
}

static bool changes(const struct control *ct)
{
	return ct->what == CONTROL_LOAD || ct->what == CONTROL_UNLOAD;
}

static void control(struct server *sv, struct control *ct)
{
	if (ct->what == CONTROL_INDEX)
		index_json(sv, ct);
	else if (!changes(ct))
		trace(sv, ct);
	else if (sv->stopping)
		answer(ct, 503, "failed to change '%s', %s", "the server is stopping");
	else if (ct->what == CONTROL_LOAD)
		control_load(sv, ct);
	else
		control_unload(sv, ct);
}

bool repo_busy(const struct server *sv)
{
	return sv->load.e || sv->calls || sv->rescan;
}

static void run_calls(struct server *sv)
{
	struct control **at, *ct;

	for (at = &sv->calls; (ct = *at); ) {
		if (sv->load.e && changes(ct) && !sv->stopping) {
			at = &ct->next;
			continue;
		}
		*at = ct->next;
		if (!*at)
			sv->calls_tail = at;
		control(sv, ct);
	}
}

static void run_wanted(struct server *sv)
{
	bool again = sv->rescan;
	unsigned int i;

	sv->rescan = false;
	if (again)
		scan(sv);
	for (i = 0; i < sv->nentries && !sv->load.e; i++)
		if (sv->entries[i]->wanted)
			load_begin(sv, sv->entries[i], NULL);
}

void repo_run(struct server *sv)
{
	unsigned int seen;

	/* publishing waits for the loops; other messages may arrive meanwhile */
	do {
		seen = sv->arrived;
		if (sv->load.ended && sv->load.e)
			load_end(sv);
		run_calls(sv);
		if (sv->stopping)
			sv->rescan = false;
		else if (!sv->load.e)
			run_wanted(sv);
	} while (seen != sv->arrived);
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
	/* run the messages to the helper, which has ended */
	port_run(&sv->loader.port);
	for (i = 0; i < sv->nentries; i++) {
		free(sv->entries[i]->stats.batch);
		free(sv->entries[i]);
	}
	free(sv->table);
}
