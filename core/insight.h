/* SPDX-License-Identifier: Apache-2.0 */
/* Text about an engine, for programs. */
#ifndef CORE_INSIGHT_H
#define CORE_INSIGHT_H

#include <core/engine.h>

/* The text so far; len also counts what did not fit. */
struct text {
	char *buf;
	size_t size, len;
};

void text_add(struct text *t, const char *fmt, ...) __printf(2, 3);
/* Add what pawl top shows of an engine, as JSON. */
void snapshot_engine(struct text *t, struct pawl_engine *e);
/* Add a string of the program as a string of JSON. */
void snapshot_string(struct text *t, const char *s);

#endif
