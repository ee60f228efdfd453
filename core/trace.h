/* SPDX-License-Identifier: Apache-2.0 */
/* Trace events; empty in a build without CONFIG_TRACE. */
#ifndef CORE_TRACE_H
#define CORE_TRACE_H

#include <core/graph.h>

enum trace_kind {
	TRACE_PUSH,		/* pushed; of a node: ready */
	TRACE_REFUSED,		/* its push was refused */
	TRACE_BEGIN,
	TRACE_SKIP,		/* in the place of a begin: the body does not run */
	TRACE_RETURN,		/* an asynchronous body returned; the op may be complete, or not */
	TRACE_END,
	TRACE_MORE,		/* continues the event before it */
};

/* PAWL_TRACE: tracefile.c */
#if defined(CONFIG_TRACE) && !defined(PAWL_SIM)
void trace_begin_env(struct pawl_engine *e);
void trace_end_env(struct pawl_engine *e);
void trace_fork_child(void);
#else
static inline void trace_begin_env(struct pawl_engine *e)
{
}
static inline void trace_end_env(struct pawl_engine *e)
{
}
static inline void trace_fork_child(void)
{
}
#endif

#ifdef CONFIG_TRACE
void trace_event(struct thread *t, enum trace_kind k, struct op *op, u32 opi);
void trace_node(struct thread *t, enum trace_kind k, const struct launch *l, u32 node);
void trace_return(struct thread *t, u32 opi, u32 gen, u32 node);
void trace_exit(struct pawl_engine *e);
/* pawl_trace_write() to this file, which is closed. */
int trace_write_fd(struct pawl_engine *e, int fd);
#else
static inline int trace_write_fd(struct pawl_engine *e, int fd)
{
	return -ENOSYS;
}

static inline void trace_event(struct thread *t, enum trace_kind k, struct op *op, u32 opi)
{
}
static inline void trace_node(struct thread *t, enum trace_kind k, const struct launch *l, u32 node)
{
}
static inline void trace_return(struct thread *t, u32 opi, u32 gen, u32 node)
{
}
static inline void trace_exit(struct pawl_engine *e)
{
}
#endif

#endif
