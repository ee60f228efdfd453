/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of pawl infer: an engine, the requests that are in flight on it, and the load:
 * closed loop or arrivals.  The command's thread makes all calls.
 */
#ifndef PAWL_SERVE_H
#define PAWL_SERVE_H

#include "infer.h"

struct server;

/*
 * Do everything up to the first recorded request.  Returns 0, or a negative errno after a
 * message; *out must be freed in any case.
 */
int serve_begin(struct server **out, struct work *w, struct result *r, int kind, bool traced);
/* Run one round; no request is in flight before and after it. */
int serve_round(struct server *s, unsigned int round);
/* Wait for the last reload, take the statistics, write the trace. */
int serve_end(struct server *s, bool traced);
/* Free the server, also after a failure; NULL is allowed.  The result is kept. */
int serve_free(struct server *s);

#endif
