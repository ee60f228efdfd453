/* SPDX-License-Identifier: Apache-2.0 */
/* Completion queues, deadlines and tickets. */
#ifndef CORE_CQ_H
#define CORE_CQ_H

#include <core/op.h>

/* What an op has that names a completion queue, a deadline or a ticket. */
struct op_note {
	u64 tag;
	u64 deadline;		/* CLOCK_MONOTONIC, ns; NOTE_NEVER */
	pawl_release_fn release;
	u64 waiter;		/* A: generation << 32 | slot + 1 of a thread that waits; or 0 */
	u32 state;		/* A: generation << 3 | NOTE_* */
	u32 cq;			/* its queue, or 0 */
	u32 next;		/* A: in a queue */
	s32 status;
};

enum { NOTE_QUEUED = 1, NOTE_RUNNING = 2, NOTE_PHASE = 3, NOTE_CANCELED = 4 };
#define NOTE_GEN_SHIFT	3
#define NOTE_GEN_MASK	((1u << 29) - 1)
#define NOTE_NEVER	UINT64_MAX

#define CQ_MAX		1024u

/* A completion queue. */
struct cq {
	u32 head __cacheline_aligned;	/* A: the newest note that was posted, or 0 */
	u32 written;		/* A: writes of the eventfd that were begun and not cleared */
	u32 fd;			/* A: the eventfd + 1, or 0; kept until the engine goes */
	u32 waiter;		/* A: slot + 1 of a thread that waits, or 0 */

	u32 gen __cacheline_aligned;	/* A: odd while it exists */
	u32 named;		/* A: ops that name it, whose completions were not reaped */
	u32 reaping;		/* A: a thread reaps */
	u32 ready;		/* A, written by the reaper: taken from the stack, oldest first */
};

int note_fill(struct thread *t, struct op *op, u32 opi, const struct pawl_op *d);
void note_undo(struct thread *t, struct op *op);
pawl_release_fn note_release(struct pawl_engine *e, const struct op *op);
int note_begin(struct thread *t, struct op *op);
void note_end(struct thread *t, u32 idx, int status);
void cqs_exit(struct pawl_engine *e);

#endif
