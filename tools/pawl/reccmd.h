/* SPDX-License-Identifier: Apache-2.0 */
/* The halves of pawl record: reccmd.c and rectrace.c. */
#ifndef PAWL_RECCMD_H
#define PAWL_RECCMD_H

#include "source.h"

/* Print a text as a string of JSON. */
void json_print(const char *s);
int record_trace(struct source *s);

#endif
