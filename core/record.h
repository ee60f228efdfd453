/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of a recording; empty in a build without CONFIG_RECORD, and in the model, which has no
 * files.
 */
#ifndef CORE_RECORD_H
#define CORE_RECORD_H

#include <core/graph.h>

#if defined(CONFIG_RECORD) && !defined(PAWL_SIM)
void record_engine(struct pawl_engine *e);
void record_fork_child(void);
void record_engine_end(struct pawl_engine *e);
void record_push(struct thread *t, struct op *op, u32 opi, bool more);
void record_undo(struct thread *t, struct op *op, u32 opi);
void record_begin(struct thread *t, struct op *op, u32 opi);
void record_end(struct thread *t, struct op *op, u32 opi, int status);
void record_node_begin(struct thread *t, const struct launch *l, u32 node, bool skipped);
void record_node_end(struct thread *t, const struct launch *l, u32 node, int status);
void record_wait(struct thread *t, u32 what, pawl_var_t v);
void record_waited(struct thread *t, int status);
#else
static inline void record_engine(struct pawl_engine *e)
{
}
static inline void record_engine_end(struct pawl_engine *e)
{
}
static inline void record_fork_child(void)
{
}
static inline void record_push(struct thread *t, struct op *op, u32 opi, bool more)
{
}
static inline void record_undo(struct thread *t, struct op *op, u32 opi)
{
}
static inline void record_begin(struct thread *t, struct op *op, u32 opi)
{
}
static inline void record_end(struct thread *t, struct op *op, u32 opi, int status)
{
}
static inline void record_node_begin(struct thread *t, const struct launch *l, u32 node, bool skipped)
{
}
static inline void record_node_end(struct thread *t, const struct launch *l, u32 node, int status)
{
}
static inline void record_wait(struct thread *t, u32 what, pawl_var_t v)
{
}
static inline void record_waited(struct thread *t, int status)
{
}
#endif

#endif
