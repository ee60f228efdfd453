/* SPDX-License-Identifier: Apache-2.0 */
/* What the importers of workloads share: workload.c and traces.c. */
#ifndef PAWL_IMPORT_H
#define PAWL_IMPORT_H

#include <jansson.h>
#include "record.h"

struct import {
	const char *name;
	struct recording *r;
	json_t *vars;		/* name -> number */
	struct last_access {	/* the last access of each var */
		uint32_t op;
		size_t access;
	} *last;
	size_t capops, capacc, capvars, caplast, capedges;
	const char **names;	/* a hash of the texts that are kept */
	size_t nnames, capnames;
	char *err;
	size_t errlen;
};

int import_oom(struct import *im);
int import_refuse(struct import *im, const char *what, const char *which);
/* Room for one more in an array. */
int import_room(struct import *im, void **p, size_t n, size_t *cap, size_t size);
/* The kept copy of a text, the same for equal texts; "" without memory. */
const char *import_name(struct import *im, const char *text);
int import_op(struct import *im, const char *name, double seconds, int64_t priority);
/* Add an access to the newest op.  A var that is named twice is one access; a write wins. */
int import_access(struct import *im, const char *var, bool write);

/* traces.c */
int import_pytorch(struct import *im, const json_t *root);
/* The events of a trace of Chrome are read one by one, and then the rest of the file is. */
struct chrome;
struct chrome *chrome_open(struct import *im);
int chrome_event(struct chrome *c, const json_t *event);
bool chrome_empty(const struct chrome *c);
int import_chrome(struct chrome *c, const json_t *root);
void chrome_close(struct chrome *c);

#endif
