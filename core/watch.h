/* SPDX-License-Identifier: Apache-2.0 */
/* What pawl_watch() remembers between its calls. */
#ifndef CORE_WATCH_H
#define CORE_WATCH_H

#include <core/engine.h>

/* Free the memory.  The engine is being destroyed. */
void watch_exit(struct pawl_engine *e);
/*
 * pawl_watch() with a threshold of 0, and with memory apart from that of the host's calls, which
 * it does not disturb.
 */
int watch_published(struct pawl_engine *e, pawl_watch_fn fn, void *arg);

#endif
