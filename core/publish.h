/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines that other processes of the same user may observe; empty in a build without
 * CONFIG_PUBLISH, and in the model, which has no sockets.
 */
#ifndef CORE_PUBLISH_H
#define CORE_PUBLISH_H

#include <core/engine.h>

/* How often the threads of an engine look for a client. */
#define PUBLISH_LOOK_NS	500000000u

#if defined(CONFIG_PUBLISH) && !defined(PAWL_SIM)
/* An engine is being created: is it published?  publish_close() is its counterpart. */
bool publish_open(void);
void publish_close(void);
/* It begins, and ends, to be shown. */
void publish_engine(struct pawl_engine *e);
void publish_engine_end(struct pawl_engine *e);
void publish_look(void *user);
void publish_fork_child(void);
#else
static inline bool publish_open(void)
{
	return false;
}
static inline void publish_close(void)
{
}
static inline void publish_engine(struct pawl_engine *e)
{
}
static inline void publish_engine_end(struct pawl_engine *e)
{
}
static inline void publish_look(void *user)
{
}
static inline void publish_fork_child(void)
{
}
#endif

#endif
