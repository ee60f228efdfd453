/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CORES_NAME_H
#define CORES_NAME_H

struct pawl_engine;

/* Tell the simulator the names of the engine's objects. */
void cores_names(struct pawl_engine *e);

#endif
