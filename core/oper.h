/* SPDX-License-Identifier: Apache-2.0 */
/* Operators: ops described once and pushed many times. */
#ifndef CORE_OPER_H
#define CORE_OPER_H

#include <core/op.h>

/* A reusable operator. */
struct oper {
	u32 refs;		/* A: runs in flight, plus one until deleted */
	u32 gen;		/* A: odd while alive */
	pawl_fn fn;
	pawl_async_fn async_fn;
	void *arg;
	pawl_release_fn release;
	const char *name;
	struct dep *deps;	/* I: template, sorted; malloc */
	u32 ndeps;
	u16 flags;
	u8 prop;
	u8 dev;
	u64 unused[2];
};

void oper_put(struct thread *t, u32 idx);
bool oper_hold(struct pawl_engine *e, pawl_oper_t h, u32 *idx, pawl_fn *fn, void **arg);
void opers_exit(struct thread *t);

#endif
