/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ops, which are counted, limited and canceled together. */
#ifndef CORE_OPGROUP_H
#define CORE_OPGROUP_H

#include <core/op.h>

struct op_note;

#define GROUP_MAX	1048576u
#define GROUP_BOUNDED	65536u
#define GROUP_COST_MAX	(UINT64_MAX / 4)

enum { ROOM_WANTED = 1, ROOM_POSTED = 2, ROOM_CLOSED = 4, ROOM_WINDOW = 8 };

struct op_group {
	/* Changed by each op of the group. */
	u64 life __cacheline_aligned;	/* A: LIFE_* */
	u64 cost;		/* A: the sum of the costs of its incomplete ops */
	u32 room;		/* A: ROOM_* */
	u32 waiters;		/* A: threads that wait for it (thread.waits_group) */

	u64 cancels __cacheline_aligned;	/* A: generation << 32 | how often it was canceled */
	u32 note;		/* A: the note of its room completion, or 0 */
	u32 low;		/* A: percent */
	u64 max_ops, max_cost;	/* A: 0: no limit */
	u64 deadline;		/* A: CLOCK_MONOTONIC, ns; NOTE_NEVER */
};

/*
 * op_group.life:
 *
 *   [63:32] generation, odd while the group exists
 *   [31:21] ops that are complete, and whose completion is being posted: one per thread
 *   [20:0]  ops until their completion is posted
 */
#define LIFE_BITS	21u
#define LIFE_OP		1ull
#define LIFE_COMPLETE	(1ull << LIFE_BITS)

BUILD_BUG_ON(LIFE_BITS <= OPS_BITS || LIFE_BITS + SLOT_BITS > 32);

static inline u32 life_ops(u64 life)
{
	return (u32)(life & (LIFE_COMPLETE - 1));
}

static inline u32 life_incomplete(u64 life)
{
	return life_ops(life) - ((u32)life >> LIFE_BITS);
}

/* low percent of a limit */
static inline u64 low_of(u64 most, u32 low)
{
	return most / 100 * low + most % 100 * low / 100;
}

static inline u32 groups_most(const struct pawl_engine *e)
{
	return config_bounded(&e->cfg) ? (u32)min_u(e->cfg.max_ops, GROUP_BOUNDED) : GROUP_MAX;
}

/* A group beside its limits; 0: it has none. */
struct group_use {
	u64 h, ops, max_ops, cost, max_cost;
};

bool group_use(struct pawl_engine *e, u32 i, struct group_use *u);
int groups_init(struct thread *t);
int group_enter(struct thread *t, struct op_note *n, const struct pawl_op *d);
void group_room(struct pawl_engine *e, u32 idx, u64 cost, bool posts);
void group_leave(struct thread *t, u32 idx, u64 cost, bool posted);
bool op_canceled(struct pawl_engine *e, u32 opi);
int group_begin(struct pawl_engine *e, const struct op_note *n);
bool group_never(struct pawl_engine *e, const struct pawl_op *ops, size_t n,
		 const struct pawl_op *refused);
void group_told(struct thread *t, u32 idx);
void window_want(struct thread *t);
void window_recheck(struct thread *t);
int group_wait(struct pawl_engine *e, pawl_group_t h, s64 timeout_ns, bool room, u32 how);

#endif
