/* SPDX-License-Identifier: Apache-2.0 */
/* What the main thread (repo.c) and the helper that loads (load.c) share. */
#ifndef SERVE_REPO_H
#define SERVE_REPO_H

#include "serve.h"

/* Whether a path is a folder, as far as can be known: 1, 0, or a negative errno. */
int repo_folder(const char *path);
/*
 * The versions of a model, the newest first, in an array that the caller frees.  Returns how
 * many, or a negative errno.  One that cannot be examined counts: its load says why.
 */
int repo_versions(struct server *sv, const char *name, int64_t **all);
/* Whether a client loaded (1) or unloaded (0) this version alone, else -1. */
int repo_asked(const struct entry *e, int64_t version);
/* Whether a version is selected, if n newer ones are served by the selection. */
bool repo_selected(const struct entry *e, int64_t version, unsigned int n);
/* The version of this number that is served, or NULL. */
struct version *repo_served(const struct entry *e, int64_t version);
/* Note why a version, or a model without any (0), could not be loaded. */
void load_note(struct load *ld, int64_t version, int rc, const char *why);
void load_run(struct msg *m);
void load_arrived(struct msg *m);	/* on the main thread, when it has ended */

#endif
