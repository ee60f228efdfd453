/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the profiler: profiler.c, profile_table.c, profile_objects.c. */
#ifndef COMPAT_PROFILE_H
#define COMPAT_PROFILE_H

#include <compat/internal.h>

/* Separates the domain from the name in a key; a key without one is an operator's name. */
#define MX_STAT_SEP	'\x1f'

enum mx_stat_kind {
	MX_STAT_NONE,
	MX_STAT_DURATION,	/* the value is in ns */
	MX_STAT_COUNTER,
	MX_STAT_MARKER,		/* makes a heading without a row, as in MXNet */
};

/* Serializes the calls that control the profiler, and that print. */
extern u32 mx_profile_lock;

/* Running, and not paused. */
bool mx_profile_records(void);
u64 mx_profile_now(void);

/* Add a value to the sums of an interned key. */
void mx_stat_add(const char *key, enum mx_stat_kind kind, u64 value);

/*
 * Append the recorded events of profiling objects to the trace that pawl_trace_write() has
 * written; base is the time of its start.  Returns 0 or an error, with its text set.
 */
int mx_events_write(const char *path, u64 base);
/* Drop the recorded events. */
void mx_events_drop(void);

#endif
