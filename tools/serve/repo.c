// SPDX-License-Identifier: Apache-2.0
/*
 * The repository: a folder with a folder for each model, which has a folder for each version,
 * named by a number.  The newest version is served, or those that the settings select.
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
 * Instead of a version that cannot be loaded the next older one is served, and if none can be
 * loaded, those that are served stay.  The index and the metrics name the versions that failed.
 * Only what does not exist any more (ENOENT) is unloaded: what cannot be read may exist.
 *
 * A client may also load or unload one version, which the selection does not change until the
 * model is loaded or unloaded as a whole.
 */

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "repo.h"

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
	free(e->served);
	free(e);
}

void entry_put(struct entry *e)
{
	if (fetch_add_acq_rel(&e->refs, (u32)-1) == 1)
		port_send(&e->sv->loops[0].port, &e->free_msg, entry_free, e);
}

static struct entry *entry_new(struct server *sv, const char *name,
			       const struct model_conf *conf)
{
	struct entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	snprintf(e->name, sizeof(e->name), "%s", name);
	e->sv = sv;
	e->refs = 1;
	e->conf = *conf;
	return e;
}

static struct entry *entry_create(struct server *sv, const char *name)
{
	struct entry *e, **all;
	struct settings s;
	unsigned int i;

	if (sv->nentries == sv->room) {
		all = realloc(sv->entries, (2 * sv->room + 16) * sizeof(*all));
		if (!all)
			return NULL;
		sv->entries = all;
		sv->room = 2 * sv->room + 16;
	}
	settings_read(sv, name, &s);
	e = entry_new(sv, name, &s.conf);
	if (!e)
		return NULL;
	i = position(sv, name);
	memmove(sv->entries + i + 1, sv->entries + i,
		(sv->nentries++ - i) * sizeof(sv->entries[0]));
	sv->entries[i] = e;
	return e;
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
		serve += e->nserved;
		if (!e->nserved && is_loading(sv, e))
			t->loading = true;
		/* one that a running server does not have yet does not count until it failed */
		else if (!e->nserved && !e->explicitly_unloaded && !bad)
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
	unsigned int i, k, nfailed = 0, n = 0;
	struct entry *e;
	struct table *t;

	for (i = 0; i < sv->nentries; i++) {
		nfailed += sv->entries[i]->nfailed;
		n += sv->entries[i]->nserved;
	}
	t = calloc(1, sizeof(*t) + n * sizeof(t->at[0]));
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
		for (k = 0; k < e->nserved; k++) {
			version_get(e->served[k]);
			t->at[t->n].e = e;
			t->at[t->n++].v = e->served[k];
		}
	}
	t->refs = 1;
	judge(sv, t);
	sv->changed = false;
	publish(sv, t);
	return 0;
}

/* Serve these versions, in an array of malloc, instead of those that are served now. */
static int replace(struct server *sv, struct entry *e, struct version **served, unsigned int n)
{
	struct version **old = e->served;
	unsigned int nold = e->nserved, i;
	int rc;

	e->served = served;
	e->nserved = n;
	rc = publish_current(sv);
	if (rc) {
		e->served = old;
		e->nserved = nold;
		return rc;
	}
	for (i = 0; i < nold; i++)
		version_put(old[i]);
	free(old);
	return 0;
}

void load_arrived(struct msg *m)
{
	struct load *ld = m->arg;

	ld->ended = true;
	ld->sv->arrived++;
}

static void load_begin(struct server *sv, struct entry *e, struct control *ct, int64_t only)
{
	struct entry *fresh = NULL;
	struct settings s;

	settings_read(sv, e->name, &s);
	/* an entry's settings do not change: the versions have a new one, with its own queue */
	if (!*s.why && !settings_same(&s.conf, &e->conf))
		fresh = entry_new(sv, e->name, &s.conf);
	if (*s.ignored)
		log_line("warning", "settings", "model", e->name, "ignored", s.ignored, NULL);
	e->wanted = false;
	if (fresh) {
		memcpy(fresh->asked, e->asked, sizeof(e->asked));
		fresh->nasked = e->nasked;
	} else {
		fetch_add_relaxed(&e->refs, 1);
	}
	sv->load = (struct load){ .sv = sv, .e = fresh ? fresh : e, .old = fresh ? e : NULL,
				  .ct = ct, .only = only, .begin_ns = now_ns() };
	strcpy(sv->load.unfit, s.why);
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

/* Of a load of one version, the other failures are still true. */
static void keep_failures(struct load *ld, const struct entry *e)
{
	unsigned int i;

	for (i = 0; ld->only && !ld->old && i < e->nfailed && ld->nfailed < MAX_FAILED; i++)
		if (e->failed[i].version != ld->only)
			ld->failed[ld->nfailed++] = e->failed[i];
}

/* The failures of this load, and the versions that are new. */
static void log_loads(const struct load *ld, const struct entry *e, uint32_t fresh,
		      unsigned int nfailed)
{
	char number[24], ms[24];
	unsigned int i;

	for (i = 0; i < nfailed && i < ld->nfailed; i++) {
		snprintf(number, sizeof(number), "%" PRId64, ld->failed[i].version);
		log_line("error", "load", "model", e->name, "version",
			 ld->failed[i].version ? number : "", "error", ld->failed[i].reason,
			 NULL);
	}
	snprintf(ms, sizeof(ms), "%.3f", (double)(now_ns() - ld->begin_ns) / 1e6);
	for (i = 0; i < ld->nnext; i++) {
		snprintf(number, sizeof(number), "%" PRId64, ld->next[i]->m->version);
		if (i >= 32 || fresh & 1u << i)
			log_line("info", "loaded", "model", e->name, "version", number,
				 "backend", ld->next[i]->m->backend, "ms", ms, NULL);
	}
}

/* Serve what was loaded. */
static void load_end(struct server *sv)
{
	struct load *ld = &sv->load;
	struct entry *e = ld->old ? ld->old : ld->e, *other = ld->e;
	unsigned int i, k, own = ld->nfailed;
	uint32_t fresh = ~0u;

	if (ld->old && ld->nnext) {
		other = e;
		e = ld->e;
		e->present = other->present;
		e->served = other->served;
		e->nserved = other->nserved;
		other->served = NULL;
		other->nserved = 0;
		sv->entries[position(sv, e->name)] = e;
	}
	ld->e = NULL;
	for (i = 0; i < ld->nnext; i++)
		for (k = 0; k < e->nserved; k++)
			if (e->served[k] == ld->next[i]) {
				fresh &= ~(i < 32 ? 1u << i : 0);
				version_get(ld->next[i]);
			}
	/* the first table with these versions has the failures, too */
	keep_failures(ld, e);
	memcpy(e->failed, ld->failed, sizeof(e->failed));
	e->nfailed = ld->nfailed;
	if (ld->nnext && replace(sv, e, ld->next, ld->nnext)) {
		for (i = 0; i < ld->nnext; i++)
			version_put(ld->next[i]);
		ld->nnext = 0;
		ld->status = -ENOMEM;
		ld->failed[0] = e->failed[0] = (struct failure){ .reason = "out of memory" };
		ld->nfailed = e->nfailed = own = 1;
	}
	log_loads(ld, e, fresh, own);
	for (i = 0; ld->only && !repo_served(e, ld->only) && i < e->nasked; i++)
		if (e->asked[i].version == ld->only)
			e->asked[i] = e->asked[--e->nasked];
	sv->changed = true;
	if (ld->nnext)
		e->explicitly_unloaded = false;
	else
		free(ld->next);
	/* the caller asked for these versions: report a failure, also if an older one serves */
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
	rc = e->nserved ? replace(sv, e, NULL, 0) : 0;
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
		if (e->present || e->nserved || is_loading(sv, e))
			sv->entries[n++] = e;
		else
			entry_put(e);
	}
	sv->nentries = n;
}

/* Whether the versions that are served are not those that are selected. */
static bool differs(struct server *sv, const struct entry *e)
{
	unsigned int by_rule = 0, all = 0;
	struct settings s;
	bool other = false;
	int64_t *number;
	int n, i;

	n = repo_versions(sv, e->name, &number);
	for (i = 0; i < n; i++)
		if (repo_selected(e, number[i], by_rule)) {
			by_rule += repo_asked(e, number[i]) < 0;
			all++;
			other = other || !repo_served(e, number[i]);
		}
	free(number);
	settings_read(sv, e->name, &s);
	return other || n <= 0 || all != e->nserved || *s.why ||
		!settings_same(&s.conf, &e->conf);
}

/* What a scan finds in the folder. */
static void found(struct server *sv, const char *name)
{
	struct entry *e;

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
	if (!e->explicitly_unloaded && differs(sv, e))
		e->wanted = true;
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
		is = repo_folder(path);
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
		if (e->present || repo_folder(path)) {
			e->present = true;
			continue;
		}
		e->wanted = false;
		snprintf(why, sizeof(why), "the folder %.150s/%s does not exist",
			 sv->cfg.repository, e->name);
		if (e->nserved)
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
		for (k = 0; k < e->nserved; k++)
			index_row(all, e, e->served[k]->m->version, "READY",
				  e->served[k]->m->backend, NULL);
		if (ct->ready_only)
			continue;
		if (!e->nserved && is_loading(sv, e))
			index_row(all, e, 0, "LOADING", NULL, NULL);
		else if (!e->nserved && !e->nfailed)
			index_row(all, e, 0, "UNAVAILABLE", NULL, e->reason);
		for (k = 0; k < e->nfailed && (e->nserved || !is_loading(sv, e)); k++)
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

static const char too_many[] = "too many of its versions are loaded or unloaded alone";

/* Note that a client wants this version to serve, or not.  Returns false without room. */
static bool ask(struct entry *e, int64_t version, bool on)
{
	unsigned int i;

	for (i = 0; i < e->nasked && e->asked[i].version != version; i++)
		;
	if (i == MAX_LISTED)
		return false;
	e->nasked += i == e->nasked;
	e->asked[i].version = version;
	e->asked[i].on = on;
	return true;
}

static void control_load(struct server *sv, struct control *ct)
{
	struct entry *e = find(sv, ct->name);
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", sv->cfg.repository, ct->name);
	if (!e && repo_good_name(ct->name) && repo_folder(path))
		e = entry_create(sv, ct->name);
	if (!e) {
		answer(ct, 500, "failed to load '%s', %s",
		       "failed to poll from model repository");
		return;
	}
	e->present = true;
	if (!ct->version) {
		e->nasked = 0;
	} else if (!ask(e, ct->version, true)) {
		answer(ct, 400, "failed to load '%s', %s", too_many);
		return;
	}
	load_begin(sv, e, ct, ct->version);
}

/* A client unloads one version. */
static void unload_version(struct server *sv, struct entry *e, struct control *ct)
{
	struct version **rest, *v = repo_served(e, ct->version);
	char number[24];
	unsigned int i, n = 0;

	if (!ask(e, ct->version, false)) {
		answer(ct, 400, "failed to unload '%s', %s", too_many);
		return;
	}
	rest = v ? malloc(e->nserved * sizeof(struct version *)) : NULL;
	for (i = 0; rest && i < e->nserved; i++)
		if (e->served[i] != v) {
			version_get(e->served[i]);
			rest[n++] = e->served[i];
		}
	if (v && (!rest || replace(sv, e, rest, n))) {
		while (n)
			version_put(rest[--n]);
		free(rest);
		answer(ct, 503, "failed to unload '%s', %s", "out of memory");
		return;
	}
	if (v) {
		snprintf(number, sizeof(number), "%" PRId64, ct->version);
		log_line("info", "unloaded", "model", e->name, "version", number, "why",
			 "a client unloaded it", NULL);
	}
	if (!e->nserved) {
		e->explicitly_unloaded = true;
		e->wanted = false;
		strcpy(e->reason, "a client unloaded its last version");
	}
	answer(ct, 200, NULL, NULL);
}

static void control_unload(struct server *sv, struct control *ct)
{
	struct entry *e = find(sv, ct->name);

	/* as in Triton, unloading a model that is not loaded succeeds */
	if (e && ct->version) {
		unload_version(sv, e, ct);
		return;
	}
	if (e && unload(sv, e, "a client unloaded it")) {
		answer(ct, 503, "failed to unload '%s', %s", "out of memory");
		return;
	}
	if (e) {
		e->explicitly_unloaded = true;
		e->wanted = false;
		e->nasked = 0;
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
			load_begin(sv, sv->entries[i], NULL, 0);
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
	unsigned int i, k;

	for (i = 0; i < sv->nentries; i++)
		for (k = 0; k < sv->entries[i]->nserved; k++)
			version_put(sv->entries[i]->served[k]);
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
