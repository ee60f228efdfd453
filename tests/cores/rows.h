/* SPDX-License-Identifier: Apache-2.0 */
/* Between sim.c and rows.c. */
#ifndef CORES_ROWS_H
#define CORES_ROWS_H

#include <base/compiler.h>

/* An access at `site`, a struct model_site or 1 | return address, moved the line. */
void rows_note(u64 line, u64 site, u64 wait_ns);
void rows_reset(void);

/* Do two of the watched threads use the line, and does one of them write? */
bool sim_contested(u64 line);
void sim_die(const char *what) __attribute__((noreturn));

static inline u64 hash(u64 v)
{
	v *= 0x9e3779b97f4a7c15ull;
	return v ^ v >> 29;
}

#endif
