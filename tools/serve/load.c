// SPDX-License-Identifier: Apache-2.0
/*
 * A load, on the helper: which versions of a model are to serve, and those that do not yet.
 */

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "repo.h"

int repo_folder(const char *path)
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

int repo_versions(struct server *sv, const char *name, int64_t **all)
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
			     d->d_name) >= (int)sizeof(path) || !repo_folder(path))
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

/* On the helper: load one version, or begin to: *to is to be dropped also after an error. */
static int prepare(struct load *ld, int64_t number, struct version **to, char *why, size_t size)
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
	*to = v;
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

int repo_asked(const struct entry *e, int64_t version)
{
	unsigned int i;

	for (i = 0; i < e->nasked; i++)
		if (e->asked[i].version == version)
			return e->asked[i].on;
	return -1;
}

bool repo_selected(const struct entry *e, int64_t version, unsigned int n)
{
	const struct model_conf *conf = &e->conf;
	int ask = repo_asked(e, version);
	unsigned int i;

	if (ask >= 0)
		return ask;
	if (conf->policy != VERSIONS_LISTED)
		return conf->policy == VERSIONS_ALL || n < conf->nversions;
	for (i = 0; i < conf->nversions; i++)
		if (conf->versions[i] == version)
			return true;
	return false;
}

struct version *repo_served(const struct entry *e, int64_t version)
{
	unsigned int i;

	for (i = 0; i < e->nserved; i++)
		if (e->served[i]->m->version == version)
			return e->served[i];
	return NULL;
}

void load_note(struct load *ld, int64_t version, int rc, const char *why)
{
	if (!ld->status)
		ld->status = rc;
	if (ld->nfailed == MAX_FAILED)
		return;
	ld->failed[ld->nfailed].version = version;
	snprintf(ld->failed[ld->nfailed++].reason, REASON, "%s", why);
}

/* Load a version, or keep the one that is served.  Returns whether it serves. */
static bool prepare_one(struct load *ld, int64_t number, bool again)
{
	struct version *v = NULL, *old = ld->old ? NULL : repo_served(ld->e, number);
	char why[REASON];
	int rc = 0;

	if (!old || again) {
		rc = prepare(ld, number, &v, why, sizeof(why));
		if (rc) {
			load_note(ld, number, rc, why);
			if (v)
				version_put(v);
			v = NULL;
		}
	}
	v = v ? v : old;
	if (v)
		ld->next[ld->nnext++] = v;
	return v;
}

/* On the helper: load the versions that are selected and not served, and the newest again. */
static void prepare_all(struct load *ld)
{
	const struct entry *e = ld->e;
	const struct model_conf *conf = &e->conf;
	unsigned int by_rule = 0, i, k;
	bool again = ld->ct, serves;
	char why[256];
	int64_t *all;
	bool found = false;
	int n;

	n = repo_versions(ld->sv, e->name, &all);
	ld->next = calloc((n > 0 ? (unsigned int)n : 0) + e->nserved + 1, sizeof(struct version *));
	if (*ld->unfit)
		load_note(ld, 0, -EINVAL, ld->unfit);
	else if (n < 0 && n != -ENOENT)
		snprintf(why, sizeof(why), "the folder of the model cannot be read: %s",
			 strerror(-n)), load_note(ld, 0, n, why);
	else if (n <= 0)
		load_note(ld, 0, -ENOENT, "no folder of a version");
	else if (!ld->next)
		load_note(ld, 0, -ENOMEM, "out of memory");
	if (ld->status)
		n = 0;
	for (i = 0; n && conf->policy == VERSIONS_LISTED && i < conf->nversions; i++) {
		for (k = 0; k < (unsigned int)n && all[k] != conf->versions[i]; k++)
			;
		if (k == (unsigned int)n && !ld->only)
			load_note(ld, conf->versions[i], -ENOENT, "the version has no folder");
	}
	for (i = 0; i < (unsigned int)n; i++) {
		found = found || all[i] == ld->only;
		if (ld->only && !ld->old && all[i] != ld->only) {
			if (repo_served(e, all[i]))
				ld->next[ld->nnext++] = repo_served(e, all[i]);
			continue;
		}
		if (!repo_selected(e, all[i], by_rule))
			continue;
		serves = prepare_one(ld, all[i], again);
		by_rule += serves && repo_asked(e, all[i]) < 0;
		again = false;
	}
	if (n && ld->only && !found)
		load_note(ld, ld->only, -ENOENT, "the version has no folder");
	if (!ld->status && !ld->nnext)
		load_note(ld, 0, -ENOENT, "no version is selected");
	free(all);
}

void load_run(struct msg *m)
{
	struct load *ld = m->arg;

	prepare_all(ld);
	port_send(&ld->sv->port, m, load_arrived, ld);
}
