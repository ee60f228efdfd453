/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: what a thread keeps for them. */
#ifndef CORE_BATCH_H
#define CORE_BATCH_H

#include <core/thread.h>

void batch_exit(struct thread *t);

#endif
