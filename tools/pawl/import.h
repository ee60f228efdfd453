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
	char *err;
	size_t errlen;
};

int import_oom(struct import *im);
int import_refuse(struct import *im, const char *what, const char *which);
/* Room for one more in an array. */
int import_room(struct import *im, void **p, size_t n, size_t *cap, size_t size);
int import_op(struct import *im, const char *name, double seconds, int64_t priority);
/* Add an access to the newest op.  A var that is named twice is one access; a write wins. */
int import_access(struct import *im, const char *var, bool write);

/* traces.c */
int import_pytorch(struct import *im, const json_t *root);
int import_chrome(struct import *im, const json_t *root);

#endif
