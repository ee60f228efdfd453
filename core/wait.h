/* SPDX-License-Identifier: Apache-2.0 */
/* Waits, and how many ops are in flight. */
#ifndef CORE_WAIT_H
#define CORE_WAIT_H

#include <core/op.h>

/*
 * What a wait waits for: until cond(arg) is true.  wanted(arg, op) says whether a ready op is one
 * of those that must complete before that; NULL: it cannot be told.  The op may be another one
 * by then, so wanted() reads it as if it were anything.
 */
struct wait_for {
	bool (*cond)(void *arg);
	bool (*wanted)(void *arg, const struct op *op);
	void *arg;
};

int wait_body(struct thread *t, const struct wait_for *what, s64 timeout_ns, u32 how);
void waiter_granted(struct thread *t, struct op *op, u32 opi);
u64 ops_in_flight(struct pawl_engine *e);
u64 ops_pushed(struct pawl_engine *e);
u64 ops_completed(struct pawl_engine *e);
void wait_flight_begin(struct thread *t, u64 limit, bool room);
void wait_flight_end(struct thread *t);
void flight_check(struct thread *t);
void flight_wake(struct thread *t, u64 limit);
void wait_exit(struct thread *t);
int wait_until(struct thread *t, bool (*cond)(void *arg), void *arg, s64 timeout_ns, u32 how,
	       u32 help);
int wait_none(struct thread *t, s64 timeout_ns, u32 how, u32 help);

/* naive.c */
int wait_naive(struct thread *t);
void naive_run(void *user, struct exec_thread *ex, u32 work);
int naive_wait_inside(struct thread *t, bool (*cond)(void *arg), void *arg, s64 timeout_ns,
		      u32 flags, struct exec_inside *in);

void engine_idle(void *user, struct exec_thread *ex);

#endif
