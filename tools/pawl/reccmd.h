/* SPDX-License-Identifier: Apache-2.0 */
/* The halves of pawl record: reccmd.c and rectrace.c. */
#ifndef PAWL_RECCMD_H
#define PAWL_RECCMD_H

#include "source.h"

int record_trace(struct source *s);

#endif
