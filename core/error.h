/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: counted objects that travel along data. */
#ifndef CORE_ERROR_H
#define CORE_ERROR_H

#include <core/op.h>

struct error {
	u64 seq;		/* I: order of failing */
	u64 epoch;		/* I: of the engine's wait-alls */
	u32 refs;		/* A */
	u32 gone;		/* A: reported or cleared */
	s32 code;		/* I */
	u32 unused[3];
	char op[48];
	char text[160];
	void *payload;		/* A: the program's, until it is handed over or dropped */
};

BUILD_BUG_ON(sizeof(struct error) % 16);

static inline struct error *error_of(const struct pawl_engine *e, u32 idx)
{
	return pool_obj(e->pool[POOL_ERROR], idx);
}

u32 error_make(struct thread *t, int code, const char *op, const char *text);
void error_payload(struct pawl_engine *e, u32 idx, void *payload);
void payload_drop(struct pawl_engine *e, void *payload);
void errors_exit(struct pawl_engine *e);
void error_publish(struct thread *t, u32 idx, int code);
void error_drop(struct thread *t, u32 idx);
int error_take(struct thread *t, u32 idx, struct pawl_error *out);
int error_take_all(struct thread *t, struct pawl_error *out);
void error_get(struct pawl_engine *e, u32 idx);
void error_put(struct thread *t, u32 idx);
bool error_alive(struct pawl_engine *e, u32 idx);
void error_fill(struct pawl_engine *e, u32 idx, struct pawl_error *out);

/* Set the op's own error, in place of another one.  The op takes over the reference. */
static inline void op_err_set(struct thread *t, struct op *op, u32 error)
{
	if (unlikely(op->flags & (OP_ERR | OP_INHERITS)))
		error_put(t, op->err);
	op->err = error;
	store_helped16(&op->flags, (u16)((op->flags & ~OP_INHERITS) | OP_ERR));
}

static inline void error_none(struct pawl_error *out)
{
	if (out) {
		out->code = 0;
		out->payload = NULL;
	}
}

#endif
