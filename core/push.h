/* SPDX-License-Identifier: Apache-2.0 */
/* Push: an op from its description to the queues of its vars. */
#ifndef CORE_PUSH_H
#define CORE_PUSH_H

#include <core/op.h>

int push_op(struct thread *t, struct op *op, u32 opi);
void push_undo(struct thread *t, struct op *op);
void dispatch(struct thread *t, struct op *op, u32 opi);
int op_fill(struct thread *t, struct op *op, u32 opi, const struct pawl_op *d, u32 flags);
int var_delete(struct thread *t, pawl_var_t v, struct pawl_device dev, pawl_fn fn, void *arg);

#endif
