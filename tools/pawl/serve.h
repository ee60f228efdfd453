/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of pawl infer: an engine, the requests that are in flight on it, and
 * the load: closed loop or arrivals.  All calls are the command's thread's.
 */
#ifndef PAWL_SERVE_H
#define PAWL_SERVE_H

#include "infer.h"

struct server;

/*
 * Everything up to the first recorded request.  0, or a negative errno after a message;
 * *out is to be freed in any case.
 */
int serve_begin(struct server **out, struct work *w, struct result *r, int kind, bool traced);
/* One turn; no request is in flight before and after it. */
int serve_round(struct server *s, unsigned int round);
/* The last reload is waited for, the statistics are taken, a trace is written. */
int serve_end(struct server *s, bool traced);
/* However far it came; NULL is fine.  The result stays. */
int serve_free(struct server *s);

#endif
