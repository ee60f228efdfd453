/* SPDX-License-Identifier: Apache-2.0 */
/* Completion queues, deadlines and tickets. */
#ifndef CORE_CQ_H
#define CORE_CQ_H

#include <core/op.h>

/* The note of an op with a queue, a deadline, a ticket, a group or a cost; or of a group. */
struct op_note {
	u64 tag;		/* A: note_room_again() */
	u64 deadline;		/* CLOCK_MONOTONIC, ns; NOTE_NEVER */
	union {
		pawl_release_fn release;
		const char *name;	/* of the op, from note_end() on */
	};
	u64 waiter;		/* A: generation << 32 | slot + 1 of a thread that waits; or 0 */
	u32 state;		/* A: generation << 3 | NOTE_*; phase 0: complete, or no ticket */
	u32 cq;			/* its queue, or 0 */
	u32 next;		/* A: in a queue */
	s32 status;
	u64 cost;		/* op.cost; NOTE_ROOM in the note of a group */
	u32 group;		/* its group, or 0 */
	u32 cancels;		/* of the group, at the push */
};

enum {
	NOTE_QUEUED = 1,	/* it has a ticket, and has not started */
	NOTE_RUNNING = 2,
	NOTE_PRIVATE = 3,	/* no ticket, but a deadline or a group, and it has not started */
	NOTE_PHASE = 3,
	NOTE_CANCELED = 4,
	/* All bits: it has a ticket, and ends without having started, but not by a cancel. */
	NOTE_ENDING = NOTE_PRIVATE | NOTE_CANCELED,
};
#define NOTE_GEN_SHIFT	3
#define NOTE_GEN_MASK	((1u << 29) - 1)
#define NOTE_NEVER	UINT64_MAX

#define NOTE_ROOM	UINT64_MAX

#define CQ_MAX		1048576u
#define CQ_BOUNDED	1024u
#define CQ_REAPING	(1u << 31)	/* a thread reaps */
#define CQ_NOTE		0xffffffffull
#define CQ_TOLD		(1ull << 32)	/* the host was notified since the stack was taken */
#define CQ_TAKES_SHIFT	33

/* Flags of a description with which the op may end without having started. */
#define NOTE_ASKS	(PAWL_OP_TICKET | PAWL_OP_DEADLINE | PAWL_OP_GROUP)

/* A completion queue. */
struct cq {
	/* A: how often the stack was taken << 33 | CQ_TOLD | the newest note that was posted, or 0 */
	u64 head __cacheline_aligned;
	u32 written;		/* A: writes of the eventfd that were begun and not cleared */
	u32 fd;			/* A: the eventfd + 1, or 0; closed with the engine */
	u64 waiter;		/* A: generation << 32 | slot + 1 of a thread that waits; or 0 */

	/* A: generation << 32, odd while it exists | CQ_REAPING | completions to be reaped */
	u64 life __cacheline_aligned;
	u32 ready;		/* A, written by the reaper: taken from the stack, oldest first */
};

static inline u32 cqs_most(const struct pawl_engine *e)
{
	return config_bounded(&e->cfg) ? CQ_BOUNDED : CQ_MAX;
}

int note_fill(struct thread *t, struct op *op, const struct pawl_op *d);
void note_undo(struct thread *t, struct op *op);
pawl_release_fn note_release(struct pawl_engine *e, const struct op *op);
int note_begin(struct thread *t, struct op *op, bool starts);
void note_end(struct thread *t, u32 idx, const char *name, int status);
bool note_reaped(struct pawl_engine *e, u32 idx);
u64 cq_fullest(struct pawl_engine *e);
u64 cq_use(struct pawl_engine *e, u32 i, u32 *n);
bool note_is_of(struct pawl_engine *e, const struct op *op, u32 group);
int note_room(struct thread *t, u32 *idx, pawl_cq_t cq, u64 tag, u32 group);
bool note_room_again(struct pawl_engine *e, u32 idx, pawl_cq_t h, u64 tag);
void note_room_free(struct thread *t, u32 idx);
void note_room_post(struct pawl_engine *e, u32 idx);
int ticket_wait(struct pawl_engine *e, pawl_ticket_t ticket, s64 timeout_ns, u32 how);
int cq_wait(struct pawl_engine *e, pawl_cq_t h, s64 timeout_ns, u32 how);
void cqs_exit(struct pawl_engine *e);

#endif
