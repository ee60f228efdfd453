/* SPDX-License-Identifier: Apache-2.0 */
/* Trace events; empty in a build without CONFIG_TRACE. */
#ifndef CORE_TRACE_H
#define CORE_TRACE_H

#include <core/thread.h>

enum trace_kind { TRACE_PUSH, TRACE_BEGIN, TRACE_END, TRACE_DEP };
#ifdef CONFIG_TRACE
void trace_event(struct thread *t, enum trace_kind k, u32 opi, const char *name);
void trace_exit(struct pawl_engine *e);
#else
static inline void trace_event(struct thread *t, enum trace_kind k, u32 opi,
			       const char *name)
{
}
static inline void trace_exit(struct pawl_engine *e)
{
}
#endif

#endif
