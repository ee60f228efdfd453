/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines that other processes of the same user may observe; empty in a build without
 * CONFIG_PUBLISH, and in the model, which has no sockets.
 */
#ifndef CORE_PUBLISH_H
#define CORE_PUBLISH_H

#include <core/engine.h>

/* How long a thread sleeps before it looks for a client; also between two looks while busy. */
#define PUBLISH_SLEEP_NS	500000000u

#if defined(CONFIG_PUBLISH) && !defined(PAWL_SIM)
/* An engine is being created: is it published?  publish_close() is its counterpart. */
bool publish_open(void);
void publish_close(void);
/* It begins, and ends, to be shown. */
void publish_engine(struct pawl_engine *e);
void publish_engine_end(struct pawl_engine *e);
void publish_look(void *user);
void publish_fork_child(void);

/* For threads that never sleep: call it now and then.  The socket lives as long as the engine. */
static inline void publish_poll(const struct pawl_engine *e)
{
	if (unlikely(e->published))
		publish_look(NULL);
}
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
static inline void publish_poll(const struct pawl_engine *e)
{
}
#endif

#endif
