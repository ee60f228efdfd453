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
 *
 * If the newest version cannot be loaded, the one that is served stays; if none is served, the
 * newest that can be loaded is.  The index and the metrics name the versions that failed.  Only
 * what does not exist any more (ENOENT) is unloaded: what cannot be read may exist.
 */

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "serve.h"

/* Names go into URLs, labels of metrics, and paths. */
bool repo_good_name(const char *name)
{
	size_t n = strspn(name,
			  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

	return n && !name[n] && n <= NAME_MAX_LEN && *name != '.';
}

/* Where a name is, or is to be, in the order of names. */
static unsigned int position(const struct server *sv, const char *name)
{
	unsigned int lo = 0, hi = sv->nentries, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (strcmp(sv->entries[mid]->name, name) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct entry *find(const struct server *sv, const char *name)
{
	unsigned int i = position(sv, name);

	return i < sv->nentries && !strcmp(sv->entries[i]->name, name) ? sv->entries[i] : NULL;
}

static void entry_free(struct msg *m)
{
	struct entry *e = m->arg, **at;

	for (at = &e->sv->active; e->active && *at != e; at = &(*at)->next_active)
		;
	if (e->active)
		*at = e->next_active;
	free(e);
}

void entry_put(struct entry *e)
{
	if (fetch_add_acq_rel(&e->refs, (u32)-1) == 1)
		port_send(&e->sv->loops[0].port, &e->free_msg, entry_free, e);
}

/* The settings of a model. */
static void settings(const struct server *sv, const char *name, struct model_conf *conf)
{
	const struct config *cfg = &sv->cfg;
	unsigned int i;

	*conf = cfg->model;
	for (i = 0; i < cfg->nnamed; i++)
		if (!strcmp(cfg->named[i].name, name))
			*conf = cfg->named[i].conf;
	if (!conf->instances)
		conf->instances = cfg->workers + 1;
}

static bool same_settings(const struct server *sv, const struct entry *e)
{
	struct model_conf c;

	settings(sv, e->name, &c);
	return c.max_batch == e->conf.max_batch && c.delay_ns == e->conf.delay_ns &&
		c.npreferred == e->conf.npreferred &&
		!memcmp(c.preferred, e->conf.preferred, c.npreferred * sizeof(c.preferred[0])) &&
		c.queue_requests == e->conf.queue_requests &&
		c.queue_bytes == e->conf.queue_bytes && c.slot_bytes == e->conf.slot_bytes &&
		c.weight == e->conf.weight && c.instances == e->conf.instances &&
		c.timeout_ns == e->conf.timeout_ns && c.backend == e->conf.backend &&
		c.batches == e->conf.batches && c.threads == e->conf.threads &&
		!strcmp(c.provider, e->conf.provider);
}

static struct entry *entry_new(struct server *sv, const char *name)
{
	struct entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	snprintf(e->name, sizeof(e->name), "%s", name);
	e->sv = sv;
	e->refs = 1;
	settings(sv, name, &e->conf);
	return e;
}

static struct entry *entry_create(struct server *sv, const char *name)
{
	struct entry *e, **all;
	unsigned int i;

	if (sv->nentries == sv->room) {
		all = realloc(sv->entries, (2 * sv->room + 16) * sizeof(*all));
		if (!all)
			return NULL;
		sv->entries = all;
		sv->room = 2 * sv->room + 16;
	}
	e = entry_new(sv, name);
	if (!e)
		return NULL;
	i = position(sv, name);
	memmove(sv->entries + i + 1, sv->entries + i,
		(sv->nentries++ - i) * sizeof(sv->entries[0]));
	sv->entries[i] = e;
	return e;
}

/* Whether a path is a folder, as far as can be known: 1, 0, or a negative errno. */
static int folder(const char *path)
{
	struct stat st;

	if (!stat(path, &st))
		return S_ISDIR(st.st_mode);
	return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
}

static int descending(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? 1 : -(x > y);
}

/*
 * The versions of a model, the newest first, in an array that the caller frees.  Returns how
 * many, or a negative errno.  One that cannot be examined counts: its load says why.
 */
static int versions(struct server *sv, const char *name, int64_t **all)
{
	char path[4096];
	unsigned int n = 0, room = 0;
	int64_t v, *more;
	struct dirent *d;
	char *end;
	DIR *dir;
	int rc;

	*all = NULL;
	snprintf(path, sizeof(path), "%s/%s", sv->cfg.repository, name);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while (errno = 0, (d = readdir(dir))) {
		v = strtoll(d->d_name, &end, 10);
		if (errno || *end || *d->d_name < '1' || *d->d_name > '9')
			continue;
		if (snprintf(path, sizeof(path), "%s/%s/%s", sv->cfg.repository, name,
			     d->d_name) >= (int)sizeof(path) || !folder(path))
			continue;
		if (n == room) {
			room = 2 * room + 8;
			more = realloc(*all, room * sizeof(**all));
			if (!more) {
				errno = ENOMEM;
				break;
			}
			*all = more;
		}
		(*all)[n++] = v;
	}
	rc = errno ? -errno : (int)n;
	closedir(dir);
	if (n)
		qsort(*all, n, sizeof(**all), descending);
	return rc;
}

static void version_free(struct msg *m)
{
	struct version *v = m->arg;
	struct helper *h = (struct helper *)((char *)v->home - offsetof(struct helper, port));
	char text[24], n[4][24];
	struct stats *st = &v->stats;
	unsigned int i;

	slots_free(v);
	for (i = 0; i < ENGINES; i++)
		if (v->weights[i].h)
			pawl_var_delete(h->sv->e[i], v->weights[i], NULL, NULL);
	if (v->m) {
		snprintf(text, sizeof(text), "%" PRId64, v->m->version);
		snprintf(n[0], sizeof(n[0]), "%" PRIu64, load_relaxed(&st->submitted));
		snprintf(n[1], sizeof(n[1]), "%" PRIu64, load_relaxed(&st->success.n));
		snprintf(n[2], sizeof(n[2]), "%" PRIu64, load_relaxed(&st->fail.n));
		snprintf(n[3], sizeof(n[3]), "%" PRIu64, load_relaxed(&st->canceled));
		/* the last figures of its metrics */
		log_line("info", "freed", "model", v->e->name, "version", text, "requests",
			 n[0], "succeeded", n[1], "failed", n[2], "canceled", n[3], NULL);
		serve_model_free(v->m);
	}
	free(v->stats.batch);
	entry_put(v->e);
	free(v);
	serve_cache_empty();
	malloc_trim(0);
}

void table_put(struct table *t)
{
	unsigned int i;

	if (fetch_add_acq_rel(&t->refs, (u32)-1) != 1)
		return;
	for (i = 0; i < t->n; i++)
		version_put(t->at[i].v);
	free(t->failed);
	free(t);
}

const char *table_why(const struct table *t, const char *name)
{
	unsigned int i;

	for (i = 0; i < t->nfailed; i++)
		if (!strcmp(t->failed[i].name, name))
			return t->failed[i].f.reason;
	return NULL;
}

static bool is_loading(const struct server *sv, const struct entry *e)
{
	return sv->load.e == e || (sv->load.e && sv->load.old == e) || e->wanted;
}

/* Whether the server is ready, by the rule of --ready; else the reason. */
static void judge(const struct server *sv, struct table *t)
{
	unsigned int i, serve = 0, n = 0;
	const struct entry *e, *bad = NULL;

	for (i = 0; i < sv->nentries; i++) {
		e = sv->entries[i];
		n++;
		serve += e->current != NULL;
		if (!e->current && is_loading(sv, e))
			t->loading = true;
		/* one that a running server does not have yet does not count until it failed */
		else if (!e->current && !e->explicitly_unloaded && !bad)
			bad = e;
	}
	t->loading = t->loading || !sv->started;
	if (sv->cfg.ready_any ? serve : sv->started && n && !bad)
		t->ready = true;
	else if (!sv->started)
		snprintf(t->reason, sizeof(t->reason), "models are loading");
	else if (bad)
		snprintf(t->reason, sizeof(t->reason), "model '%s' is not served: %.160s",
			 bad->name, bad->nfailed ? bad->failed[0].reason : bad->reason);
	else if (*sv->unreadable)
		snprintf(t->reason, sizeof(t->reason), "%s", sv->unreadable);
	else
		snprintf(t->reason, sizeof(t->reason), n ? "no model is served" :
			 "the repository has no models");
}

/* Send the loops what is current. */
static int publish_current(struct server *sv)
{
	struct table *t = calloc(1, sizeof(*t) + sv->nentries * sizeof(t->at[0]));
	unsigned int i, k, nfailed = 0;
	struct entry *e;

	for (i = 0; i < sv->nentries; i++)
		nfailed += sv->entries[i]->nfailed;
	if (t)
		t->failed = calloc(nfailed + 1, sizeof(*t->failed));
	if (!t || !t->failed) {
		free(t);
		return -ENOMEM;
	}
	for (i = 0; i < sv->nentries; i++) {
		e = sv->entries[i];
		for (k = 0; k < e->nfailed; k++) {
			strcpy(t->failed[t->nfailed].name, e->name);
			t->failed[t->nfailed++].f = e->failed[k];
		}
		if (!e->current)
			continue;
		version_get(e->current);
		t->at[t->n].e = e;
		t->at[t->n++].v = e->current;
	}
	t->refs = 1;
	judge(sv, t);
	sv->changed = false;
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

/* On the helper: load one version. */
static int prepare(struct load *ld, int64_t number, char *why, size_t size)
{
	const struct model_conf *conf = &ld->e->conf;
	struct server *sv = ld->sv;
	struct serve_how how;
	struct version *v;
	char path[4096];
	unsigned int i;
	int rc;

	snprintf(why, size, "out of memory");
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	ld->v = v;
	v->e = ld->e;
	fetch_add_relaxed(&v->e->refs, 1);
	v->home = &sv->loader.port;
	v->refs = 1;
	v->end = version_free;
	v->stats.batch = calloc((size_t)v->e->conf.max_batch + 2, sizeof(*v->stats.batch));
	if (!v->stats.batch)
		return -ENOMEM;
	snprintf(path, sizeof(path), "%s/%s/%" PRId64, sv->cfg.repository, ld->e->name, number);
	how = (struct serve_how){ .backend = conf->backend, .rows_apart = conf->batches &&
				  conf->max_batch > 1, .threads = conf->threads,
				  .provider = *conf->provider ? conf->provider : NULL };
	rc = serve_model_load(path, ld->e->name, number, &how, &v->m, why, size);
	if (rc) {
		v->m = NULL;
		return rc;
	}
	rc = check(v, why, size);
	for (i = 0; !rc && i < ENGINES; i++)
		rc = pawl_var_create(sv->e[i], &v->weights[i]);
	if (!rc)
		rc = slots_warm(sv, v, why, size);
	return rc;
}

/* On the helper: load the newest version, or an older one if otherwise none would serve. */
static void prepare_any(struct load *ld)
{
	struct failure none;
	int64_t *all;
	int i, n, rc;

	n = versions(ld->sv, ld->e->name, &all);
	ld->status = n < 0 ? n : -ENOENT;
	if (n <= 0) {
		ld->nfailed = 1;
		ld->failed[0].version = 0;
		if (!n || n == -ENOENT)
			snprintf(ld->failed[0].reason, sizeof(ld->failed[0].reason),
				 "no folder of a version");
		else
			snprintf(ld->failed[0].reason, sizeof(ld->failed[0].reason),
				 "the folder of the model cannot be read: %s", strerror(-n));
	}
	for (i = 0; i < n; i++) {
		struct failure *f = ld->nfailed < MAX_FAILED ? &ld->failed[ld->nfailed] : &none;

		if (i && ld->serves)
			break;
		f->version = all[i];
		rc = prepare(ld, all[i], f->reason, sizeof(f->reason));
		if (!i)
			ld->status = rc;
		if (!rc)
			break;
		if (ld->nfailed < MAX_FAILED)
			ld->nfailed++;
		if (ld->v)
			version_put(ld->v);
		ld->v = NULL;
	}
	free(all);
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

	prepare_any(ld);
	port_send(&ld->sv->port, m, load_arrived, ld);
}

static void load_begin(struct server *sv, struct entry *e, struct control *ct)
{
	/* an entry's settings do not change: the version has a new one, with its own queue */
	struct entry *fresh = same_settings(sv, e) ? NULL : entry_new(sv, e->name);

	e->wanted = false;
	if (!fresh)
		fetch_add_relaxed(&e->refs, 1);
	sv->load = (struct load){ .sv = sv, .e = fresh ? fresh : e, .old = fresh ? e : NULL,
				  .ct = ct, .begin_ns = now_ns(), .serves = e->current };
	sv->changed = true;
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
	struct entry *e = ld->old ? ld->old : ld->e, *other = ld->e;
	char number[24], ms[24];
	unsigned int i;

	if (ld->old && ld->v) {
		other = e;
		e = ld->e;
		e->present = other->present;
		e->current = other->current;
		other->current = NULL;
		sv->entries[position(sv, e->name)] = e;
	}
	ld->e = NULL;
	memcpy(e->failed, ld->failed, sizeof(e->failed));
	e->nfailed = ld->nfailed;
	if (ld->v && replace(sv, e, ld->v)) {
		ld->status = -ENOMEM;
		snprintf(e->failed[0].reason, sizeof(e->failed[0].reason), "out of memory");
		e->failed[0].version = ld->v->m->version;
		e->nfailed = 1;
		version_put(ld->v);
		ld->v = NULL;
	}
	sv->changed = true;
	for (i = 0; i < e->nfailed; i++) {
		snprintf(number, sizeof(number), "%" PRId64, e->failed[i].version);
		log_line("error", "load", "model", e->name, "version",
			 e->failed[i].version ? number : "", "error", e->failed[i].reason,
			 NULL);
	}
	if (ld->v) {
		e->explicitly_unloaded = false;
		snprintf(number, sizeof(number), "%" PRId64, ld->v->m->version);
		snprintf(ms, sizeof(ms), "%.3f", (double)(now_ns() - ld->begin_ns) / 1e6);
		log_line("info", "loaded", "model", e->name, "version", number, "backend",
			 ld->v->m->backend, "ms", ms, NULL);
	}
	/* the caller asked for the newest version: report its failure, also if an older one serves */
	if (ld->ct)
		answer(ld->ct, ld->status ? 400 : 200,
		       ld->status ? "failed to load '%s', %s" : NULL, e->failed[0].reason);
	entry_put(other);
}

static int unload(struct server *sv, struct entry *e, const char *why)
{
	int rc;

	/* the names of failed versions are not published any more */
	e->nfailed = 0;
	rc = e->current ? replace(sv, e, NULL) : 0;
	if (rc)
		return rc;
	snprintf(e->reason, sizeof(e->reason), "%s", why);
	sv->changed = true;
	log_line("info", "unloaded", "model", e->name, "why", why, NULL);
	return 0;
}

static void unreadable(struct server *sv, const char *path, int error)
{
	log_line("error", "repository", "folder", path, "error", strerror(error), NULL);
	snprintf(sv->unreadable, sizeof(sv->unreadable), "%.200s cannot be read: %s", path,
		 strerror(error));
}

/* Forget names that are neither in the repository nor in use. */
static void forget(struct server *sv)
{
	unsigned int i, n = 0;
	struct entry *e;

	for (i = 0; i < sv->nentries; i++) {
		e = sv->entries[i];
		if (e->present || e->current || is_loading(sv, e))
			sv->entries[n++] = e;
		else
			entry_put(e);
	}
	sv->nentries = n;
}

/* What a scan finds in the folder. */
static void found(struct server *sv, const char *name)
{
	int64_t *all;
	struct entry *e;
	int n;

	if (!repo_good_name(name)) {
		log_line("warning", "name", "folder", name, "error",
			 "a name of a model has letters, digits, _, . and - only", NULL);
		return;
	}
	e = find(sv, name);
	if (!e)
		e = entry_create(sv, name);
	if (!e) {
		log_line("error", "load", "model", name, "error", "out of memory", NULL);
		return;
	}
	e->present = true;
	if (e->explicitly_unloaded)
		return;
	n = versions(sv, name, &all);
	if (!e->current || n <= 0 || e->current->m->version != all[0] || !same_settings(sv, e))
		e->wanted = true;
	free(all);
}

/* Load new models, unload removed ones. */
static void scan(struct server *sv)
{
	DIR *dir = opendir(sv->cfg.repository);
	struct dirent *d;
	struct entry *e;
	char path[4096], why[320];
	unsigned int i;
	int is;

	sv->changed = true;
	*sv->unreadable = 0;
	if (!dir) {
		unreadable(sv, sv->cfg.repository, errno);
		return;
	}
	for (i = 0; i < sv->nentries; i++)
		sv->entries[i]->present = false;
	while (errno = 0, (d = readdir(dir))) {
		if (*d->d_name == '.' ||
		    snprintf(path, sizeof(path), "%s/%s", sv->cfg.repository, d->d_name) >=
		    (int)sizeof(path))
			continue;
		is = folder(path);
		if (is < 0)
			unreadable(sv, path, -is);
		if (is > 0)
			found(sv, d->d_name);
	}
	if (errno)
		unreadable(sv, sv->cfg.repository, errno);
	closedir(dir);
	for (i = 0; i < sv->nentries; i++) {
		e = sv->entries[i];
		snprintf(path, sizeof(path), "%s/%s", sv->cfg.repository, e->name);
		/* also what the list lacks is unloaded only if it does not exist */
		if (e->present || folder(path)) {
			e->present = true;
			continue;
		}
		e->wanted = false;
		snprintf(why, sizeof(why), "the folder %.150s/%s does not exist",
			 sv->cfg.repository, e->name);
		if (e->current)
			unload(sv, e, why);
	}
	forget(sv);
}

static void index_row(json_t *all, const struct entry *e, int64_t version, const char *state,
		      const char *backend, const char *reason)
{
	json_t *o = json_pack("{s:s}", "name", e->name);
	char text[24];

	if (version) {
		snprintf(text, sizeof(text), "%" PRId64, version);
		json_object_set_new(o, "version", json_string(text));
	}
	json_object_set_new(o, "state", json_string(state));
	if (backend)
		json_object_set_new(o, "backend", json_string(backend));
	if (reason)
		json_object_set_new(o, "reason", json_string(reason));
	json_array_append_new(all, o);
}

/* A row for each version that is served or failed, and one for a name without any. */
static void index_json(struct server *sv, struct control *ct)
{
	json_t *all = json_array();
	struct entry *e;
	unsigned int i, k;

	for (i = 0; i < sv->nentries; i++) {
		e = sv->entries[i];
		if (e->current)
			index_row(all, e, e->current->m->version, "READY",
				  e->current->m->backend, NULL);
		if (ct->ready_only)
			continue;
		if (!e->current && is_loading(sv, e))
			index_row(all, e, 0, "LOADING", NULL, NULL);
		else if (!e->current && !e->nfailed)
			index_row(all, e, 0, "UNAVAILABLE", NULL, e->reason);
		for (k = 0; k < e->nfailed && (e->current || !is_loading(sv, e)); k++)
			index_row(all, e, e->failed[k].version, "UNAVAILABLE",
				  NULL, e->failed[k].reason);
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
	if (!e && repo_good_name(ct->name) && folder(path))
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

/* Say so if the server has become ready, or is not any more. */
static void report(struct server *sv)
{
	const struct table *t = sv->table;
	char port[16];

	if (!t || !sv->started || load_relaxed(&sv->closing))
		return;
	if (t->ready && !sv->was_ready) {
		snprintf(port, sizeof(port), "%u", sv->cfg.port);
		if (!sv->notified)
			notify("READY=1");
		sv->notified = true;
		log_line("info", "ready", "host", sv->cfg.host, "port", port, NULL);
	} else if (!t->ready && strcmp(sv->told, t->reason)) {
		log_line("error", "not ready", "error", t->reason, NULL);
	}
	snprintf(sv->told, sizeof(sv->told), "%s", t->ready ? "" : t->reason);
	sv->was_ready = t->ready;
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
		if (!sv->started && !repo_busy(sv)) {
			sv->started = sv->changed = true;
			port_send(&sv->loader.port, &sv->loader.yield, helper_yield,
				  &sv->loader);
		}
		/* without memory the loops keep the old table, until the next message */
		if (sv->changed)
			publish_current(sv);
	} while (seen != sv->arrived);
	report(sv);
}

/* No loop runs any more. */
void repo_free(struct server *sv)
{
	unsigned int i;

	for (i = 0; i < sv->nentries; i++)
		if (sv->entries[i]->current)
			version_put(sv->entries[i]->current);
	if (sv->table)
		table_put(sv->table);
	/* the messages to the loops and the helper, which have ended */
	port_run(&sv->loops[0].port);
	port_run(&sv->loader.port);
	for (i = 0; i < sv->nentries; i++)
		entry_put(sv->entries[i]);
	port_run(&sv->loops[0].port);
	free(sv->entries);
}
