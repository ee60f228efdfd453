/* SPDX-License-Identifier: Apache-2.0 */
/* What pawl_watch() remembers between its calls. */
#ifndef CORE_WATCH_H
#define CORE_WATCH_H

#include <core/engine.h>

/* Free the memory.  The engine is being destroyed. */
void watch_exit(struct pawl_engine *e);

#endif
