// SPDX-License-Identifier: Apache-2.0
/*
 * Groups of ops, which are counted, limited and canceled together.
 *
 * Purpose: a host treats the ops of one request or client together, and refuses work before it
 * has too much of it.  The engine itself is group 0; the cost of every op counts for it.
 *
 * Structures: an op that names a group or has a cost has a note (cq.c) with both.  The group
 * counts its incomplete ops and their cost.  A cancel increments `cancels`.  The note keeps the
 * value that `cancels` had at the push, and an op whose value is older does not start.  The
 * word also has the generation, so a late cancel cannot reach the next group of the object.
 *
 * A push beyond a limit is refused, and sets ROOM_WANTED.  A completion that finds ROOM_WANTED
 * and the group at its low-water mark posts the room completion.  The note of the room
 * completion belongs to the group: it is reserved when limits.cq is set, and queued while
 * ROOM_POSTED is set.
 *
 *	push that is refused                    completion
 *	CORE-H1 room |= ROOM_WANTED             CORE-H3 count the op as complete
 *	CORE-H2 try again                       CORE-H4 read room
 *
 * Bad outcome: the second try finds no room, and the completion does not see that room is
 * wanted, so no room completion is ever posted.  All four are seq_cst, which forbids it.  A
 * thread that waits for a group uses the same pattern: instead of H1 it increments `waiters`,
 * and instead of H2 it checks the group again behind a sleeper's barrier (EXEC-P6).
 *
 * For the limit, an op counts until it is complete, so a host that has reaped its completion
 * can push the next one.  For a wait, it counts until its completion is posted, so a host that
 * has waited for the group can reap all completions.  Both counts are in `life`, with the
 * generation: one compare-and-swap counts an op only if the group exists and has room, and one
 * ends the group only if it has no op.  An op without a queue leaves both counts in one step.
 * The destroyer sets ROOM_CLOSED first, so that no room completion is posted.
 *
 * Ordering: CORE-H5 (life counted down, seq_cst) <-> CORE-H6 (a wait reads life, acquire): a
 * thread that finds the group empty sees what its ops did.  CORE-H7 (the generation is
 * published,
 * release) <-> CORE-H8 (an op is counted, acquire): the op sees the limits of its group.
 * CORE-H9 (ROOM_POSTED set) <-> CORE-H10 (cleared by the reaper): the note changes hands.
 *
 * Progress: lock-free: a compare-and-swap fails only because an op of the group was counted.
 * If a thread waits for the group and there is room, a completion is also linear in the number
 * of threads.
 *
 * Lifetime: groups are type-stable; a handle has the generation.
 */
#include <core/admit.h>
#include <core/cq.h>
#include <core/opgroup.h>
#include <core/retire.h>
#include <core/sizes.h>
#include <core/wait.h>

#define LIMITS_SIZE_0	56u

BUILD_BUG_ON(sizeof(struct pawl_group_limits) != LIMITS_SIZE_0);
BUILD_BUG_ON(sizeof(struct op_group) % 16);

static struct op_group *group_of(struct pawl_engine *e, u32 idx)
{
	return idx ? pool_obj(e->pool[POOL_GROUP], idx) : e->root;
}

/* Allocate the engine's own group.  Returns 0 or -ENOMEM. */
int groups_init(struct thread *t)
{
	struct pawl_engine *e = t->e;
	u32 idx;

	e->root = pool_get(e->pool[POOL_GROUP], &t->cache[POOL_GROUP], &idx);
	if (!e->root)
		return -ENOMEM;
	store_relaxed(&e->root->deadline, NOTE_NEVER);
	store_relaxed(&e->root->low, 50);
	return 0;
}

/* Read group i.  Returns false if it does not exist. */
bool group_use(struct pawl_engine *e, u32 i, struct group_use *u)
{
	struct op_group *g = group_of(e, i);
	u64 life = load_relaxed(&g->life);

	*u = (struct group_use){ .h = g == e->root ? 0 : life >> 32 << 32 | i,
		.ops = life_incomplete(life), .max_ops = load_relaxed(&g->max_ops),
		.cost = load_relaxed(&g->cost), .max_cost = load_relaxed(&g->max_cost) };
	return g == e->root || (life >> 32 & 1);
}

/* Return the group, or NULL if it was destroyed or never was one. */
static struct op_group *group_get(struct pawl_engine *e, pawl_group_t h)
{
	u32 i = (u32)h.h, gen = (u32)(h.h >> 32);

	if (!h.h)
		return e->root;
	if (!i || i > pool_carved(e->pool[POOL_GROUP]) || !(gen & 1))
		return NULL;
	/* CORE-H8 <-> CORE-H7 */
	return load_acquire(&group_of(e, i)->life) >> 32 == gen ? group_of(e, i) : NULL;
}

/*
 * Count an op of group h, as complete if `add` says so.  Returns 0, -EAGAIN if the limit is
 * reached, or -ESTALE if the group was destroyed.  Progress: lock-free.
 */
static int life_enter(struct op_group *g, pawl_group_t h, u64 add, u64 most)
{
	u64 life = load_seq_cst(&g->life);	/* CORE-H2 <-> CORE-H3 */

	if (BUSTED(GROUP_UNLIMITED))
		most = 0;
	do {
		if (life >> 32 != h.h >> 32)
			return -ESTALE;
		if (most && life_incomplete(life) >= most)
			return -EAGAIN;
		/* CORE-H8 <-> CORE-H7, CORE-H13 <-> CORE-H3; a value no older than CORE-H2's */
	} while (!cas_acquire(&g->life, &life, life + add));
	return 0;
}

/*
 * Keep the group for the caller's push or call until group_leave(t, idx, cost, true).  This
 * counts for no limit.
 */
static int life_hold(struct op_group *g, pawl_group_t h)
{
	return life_enter(g, h, LIFE_OP | LIFE_COMPLETE, 0);
}

/* Add to a sum of costs unless that would exceed the limit, or, without one, 64 bits. */
static bool add_below(u64 *sum, u64 n, u64 most)
{
	u64 old = load_seq_cst(sum);	/* CORE-H2 <-> CORE-H3 */

	if (BUSTED(GROUP_UNLIMITED))
		most = 0;
	most = most ? most : UINT64_MAX;
	do
		if (old > most || n > most - old)
			return false;
	/* CORE-H13 <-> CORE-H3; a value no older than that of CORE-H2 */
	while (!cas_acquire(sum, &old, old + n));
	return true;
}

/* True if the group is at or below its low-water mark, or has no limits. */
static bool group_low(const struct op_group *g)
{
	u64 ops = load_relaxed(&g->max_ops), cost = load_relaxed(&g->max_cost);
	u32 low = load_relaxed(&g->low);

	return (!ops || life_incomplete(load_relaxed(&g->life)) <= low_of(ops, low)) &&
	       (!cost || load_relaxed(&g->cost) <= low_of(cost, low));
}

/* Post the room completion if one is wanted and there is room.  Progress: lock-free. */
static void room_check(struct thread *t, struct op_group *g)
{
	u32 room = load_seq_cst(&g->room);	/* CORE-H4 <-> CORE-H1 */

	if (likely(!(room & ROOM_WANTED)) || (room & (ROOM_POSTED | ROOM_CLOSED)) ||
	    !group_low(g))
		return;
	if ((room & ROOM_WINDOW) && !window_low(t, load_relaxed(&g->low)))
		return;
	/* Acquire, release: the note changes hands. */
	/* CORE-H9 <-> CORE-H10 */
	if (!cas_acq_rel_acquire(&g->room, &room, ROOM_POSTED))
		return;
	if (room & ROOM_WINDOW)
		fetch_add_relaxed(&t->e->nflight, -1u);
	note_room_post(t->e, load_acquire(&g->note));	/* CORE-H12 <-> CORE-H11 */
}

/*
 * A push was refused because too many ops are in flight.  If the engine's group has a queue, it
 * will report that there is room.  Until then it counts as a thread that waits for few ops in
 * flight (wait.c), so that completions check it.  Progress: lock-free.
 */
__cold void window_want(struct thread *t)
{
	struct op_group *g = t->e->root;

	if (!load_relaxed(&g->note))
		return;
	if (BUSTED(ROOM_FORGOTTEN))
		return;
	/* Counted first: if this thread is stopped between the two, another one may rely on it. */
	fetch_add_relaxed(&t->e->nflight, 1);
	if (fetch_or_relaxed(&g->room, ROOM_WANTED | ROOM_WINDOW) & ROOM_WINDOW)
		fetch_add_relaxed(&t->e->nflight, -1u);
	smp_mb();	/* CORE-N5 <-> CORE-N6: else the last op could complete unnoticed */
	room_check(t, g);
}

/* Fewer ops are in flight.  Progress: lock-free. */
void window_recheck(struct thread *t)
{
	if (load_relaxed(&t->e->root->room) & ROOM_WINDOW)
		room_check(t, t->e->root);
}

/* The room completion was reaped, so its note can be posted again. */
void group_told(struct thread *t, u32 idx)
{
	struct op_group *g = group_of(t->e, idx);

	fetch_and_acq_rel(&g->room, ~ROOM_POSTED);	/* CORE-H10 <-> CORE-H9 */
	smp_mb();	/* CORE-H3 <-> CORE-H2: a completion may have found the note queued */
	room_check(t, g);
}

static void waiters_wake(struct pawl_engine *e, struct op_group *g, u32 idx)
{
	struct thread *w;
	u32 i;

	if (life_ops(load_relaxed(&g->life)) && !group_low(g))
		return;
	for_each_live(e, w, i)
		if (load_relaxed(&w->waits_group) == idx + 1)
			exec_unpark(e->x, &w->ex);
}

static void level_check(struct thread *t, struct op_group *g, u32 idx)
{
	room_check(t, g);
	if (unlikely(load_seq_cst(&g->waiters)))	/* CORE-H4 <-> CORE-H1 */
		waiters_wake(t->e, g, idx);
}

/*
 * Subtract a complete op, so that there is room for another one.  If its completion is not
 * posted, group_leave() makes room.  Progress: wait-free.
 */
void group_room(struct pawl_engine *e, u32 idx, u64 cost, bool posts)
{
	struct op_group *g = group_of(e, idx);

	if (cost)	/* CORE-H3 <-> CORE-H2, CORE-H13 */
		fetch_add_seq_cst(&e->root->cost, -cost);
	if (cost && idx)	/* CORE-H3 <-> CORE-H2, CORE-H13 */
		fetch_add_seq_cst(&g->cost, -cost);
	if (idx && posts)	/* CORE-H3 <-> CORE-H2, CORE-H13 */
		fetch_add_seq_cst(&g->life, LIFE_COMPLETE);
}

/* A completion is posted: post the room completion, wake waiters.  Progress: lock-free. */
void group_leave(struct thread *t, u32 idx, u64 cost, bool posted)
{
	struct op_group *g = group_of(t->e, idx);

	if (idx) {
		/* CORE-H5 <-> CORE-H6; CORE-H3 <-> CORE-H2, CORE-H13 */
		fetch_add_seq_cst(&g->life, -(posted ? LIFE_OP | LIFE_COMPLETE : LIFE_OP));
		level_check(t, g, idx);
	}
	if (cost)
		level_check(t, t->e->root, 0);
}

/* Count an op and its cost.  -EAGAIN: *full is the name of the limit that forbids it. */
static int group_add(struct pawl_engine *e, struct op_group *g, pawl_group_t h, u64 cost,
		     const char **full)
{
	int rc;

	*full = "ops of the group";
	rc = h.h ? life_enter(g, h, LIFE_OP, load_relaxed(&g->max_ops)) : 0;
	if (unlikely(rc) || !cost)
		return rc;
	*full = "cost of the group";
	if (h.h && !add_below(&g->cost, cost, load_relaxed(&g->max_cost)))
		goto undo_op;
	*full = "cost of the engine";
	if (likely(add_below(&e->root->cost, cost, load_relaxed(&e->root->max_cost))))
		return 0;
	if (h.h)
		fetch_add_seq_cst(&g->cost, -cost);	/* CORE-H3 <-> CORE-H2 */
undo_op:
	if (h.h)
		fetch_add_seq_cst(&g->life, -LIFE_OP);	/* CORE-H3 <-> CORE-H2 */
	return -EAGAIN;
}

static void room_want(struct op_group *g)
{
	if (BUSTED(ROOM_FORGOTTEN))
		return;
	if (load_relaxed(&g->note))
		fetch_or_seq_cst(&g->room, ROOM_WANTED);	/* CORE-H1 <-> CORE-H4 */
}

/* The push is refused, or will be: try once more.  Returns 0 or an error. */
static __cold int group_full(struct thread *t, struct op_group *g, pawl_group_t h, u64 cost)
{
	struct pawl_engine *e = t->e;
	const char *full;
	int rc;

	if (h.h && life_hold(g, h)) {
		/* A thread that waited may have seen the first try's op, which woke nobody. */
		level_check(t, g, (u32)h.h);
		return -ESTALE;
	}
	room_want(g);
	if (h.h)
		room_want(e->root);
	/* A completion before this may not have seen that room is wanted. */
	rc = group_add(e, g, h, cost, &full);	/* CORE-H2 <-> CORE-H3 */
	/* While the tries counted the op, a completion may have found no room. */
	group_leave(t, (u32)h.h, 1, true);
	return rc ? err(rc, "push: the limit on the %s is reached", full) : 0;
}

/* Count an op that is not pushed yet.  Returns 0 or an error.  Progress: lock-free. */
int group_enter(struct thread *t, struct op_note *n, const struct pawl_op *d)
{
	struct pawl_engine *e = t->e;
	pawl_group_t h = d->flags & PAWL_OP_GROUP ? d->group : (pawl_group_t){ 0 };
	u64 cost = d->flags & PAWL_OP_COST ? d->cost : 0;
	struct op_group *g = group_get(e, h);
	u32 idx = (u32)h.h;
	const char *full;
	u64 most;
	int rc;

	if (!g)
		return err(-ESTALE, "push: op.group is not a group, or it was destroyed");
	if (cost > GROUP_COST_MAX)
		return err(-EINVAL, "push: op.cost is %llu", (unsigned long long)cost);
	most = idx ? load_relaxed(&g->max_cost) : 0;
	if ((most && cost > most) ||
	    (load_relaxed(&e->root->max_cost) && cost > load_relaxed(&e->root->max_cost)))
		return err(-E2BIG, "push: op.cost is %llu, beyond the limit of its group or of the "
			   "engine", (unsigned long long)cost);
	rc = group_add(e, g, h, cost, &full);
	if (unlikely(rc == -EAGAIN))
		rc = group_full(t, g, h, cost);
	if (unlikely(rc))
		return rc == -ESTALE ? err(rc, "push: op.group was destroyed meanwhile") : rc;
	store_relaxed(&n->group, idx);	/* atomic: note_is_of() */
	n->cost = cost;
	n->cancels = (u32)load_relaxed(&g->cancels);
	return 0;
}

/* Return -ECANCELED or -ETIMEDOUT if the op must not start, else 0.  Progress: wait-free. */
int group_begin(struct pawl_engine *e, const struct op_note *n)
{
	const struct op_group *g = group_of(e, n->group);
	u64 deadline = load_relaxed(&g->deadline);

	/* Relaxed: a push that is ordered after the cancel has read the new count. */
	if ((u32)load_relaxed(&g->cancels) != n->cancels)
		return -ECANCELED;
	return deadline != NOTE_NEVER && exec_late(deadline) ? -ETIMEDOUT : 0;
}

/*
 * One of these ops was refused with -EAGAIN: do all of them together exceed a limit of its group,
 * or that of the engine on costs?  Progress: wait-free, linear in n.
 */
bool group_never(struct pawl_engine *e, const struct pawl_op *ops, size_t n,
		 const struct pawl_op *refused)
{
	pawl_group_t h = refused->flags & PAWL_OP_GROUP ? refused->group : (pawl_group_t){ 0 };
	const struct op_group *g = group_get(e, h);
	u64 count = 0, cost = 0, all = 0, most_ops, most, most_all;
	bool over = false;	/* beyond 64 bits, which is the limit if there is no other */
	size_t i;

	if (!g)
		return false;
	for (i = 0; i < n; i++) {
		const struct pawl_op *d = op_at(ops, i);
		u64 c = d->flags & PAWL_OP_COST ? d->cost : 0;

		over |= __builtin_add_overflow(all, c, &all);
		if (!h.h || !(d->flags & PAWL_OP_GROUP) || d->group.h != h.h)
			continue;
		count++;
		cost += c;
	}
	most_ops = load_relaxed(&g->max_ops);
	most = load_relaxed(&g->max_cost);
	most_all = load_relaxed(&e->root->max_cost);
	return over || (h.h && most_ops && count > most_ops) || (h.h && most && cost > most) ||
	       (most_all && all > most_all);
}

/* --- calls --- */

static int limits_read(struct pawl_group_limits *l, const struct pawl_group_limits *given,
		       u32 idx)
{
	int rc;

	memset(l, 0, sizeof(*l));
	if (given) {
		rc = size_check("group: limits", given, LIMITS_SIZE_0, sizeof(*l));
		if (rc)
			return rc;
		memcpy(l, given, given->size < sizeof(*l) ? given->size : sizeof(*l));
	}
	l->low = l->low ? l->low : 50;
	if (l->low > 99)
		return err(-EINVAL, "group: limits.low is %u, not in 1..99 percent", l->low);
	if (l->deadline_ns < 0)
		return err(-EINVAL, "group: limits.deadline_ns is %lld",
			   (long long)l->deadline_ns);
	if (!idx && (l->ops || l->deadline_ns))
		return err(-EINVAL, "group: the engine's limit on ops is config.window, and it has "
			   "no deadline");
	return 0;
}

static int limits_set(struct thread *t, struct op_group *g, u32 idx,
		      const struct pawl_group_limits *l)
{
	struct pawl_engine *e = t->e;
	u32 none = 0, note = 0;
	int rc;

	/* The queue that it has already: it exists, since the note names it. */
	if (l->cq.h && !note_room_again(e, load_relaxed(&g->note), l->cq, l->tag)) {
		rc = note_room(t, &note, l->cq, l->tag, idx);
		if (rc)
			return rc;
		if (!cas_release_relaxed(&g->note, &none, note)) {	/* CORE-H11 <-> CORE-H12 */
			note_room_free(t, note);
			return err(-EBUSY, "group: limits.cq was set before");
		}
	}
	store_relaxed(&g->low, l->low);
	store_relaxed(&g->max_ops, l->ops);
	store_relaxed(&g->max_cost, l->cost);
	store_relaxed(&g->deadline, l->deadline_ns ? (u64)l->deadline_ns : NOTE_NEVER);
	smp_mb();	/* CORE-H3 <-> CORE-H2: the new limits may leave room */
	room_check(t, g);
	waiters_wake(e, g, idx);
	return 0;
}

/* Free the group's object, if it has one, and count it as destroyed. */
static void group_free(struct thread *t, u32 idx)
{
	if (idx)
		pool_put(t->e->pool[POOL_GROUP], &t->cache[POOL_GROUP], idx);
	fetch_add_relaxed(&t->e->ngroups, -1u);
}

int pawl_group_create(struct pawl_engine *e, const struct pawl_group_limits *limits,
		      pawl_group_t *out)
{
	struct thread *t = thread_get(e);
	struct pawl_group_limits l;
	struct op_group *g;
	u32 idx, gen;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	if (!out)
		return err(-EINVAL, "group_create: out is NULL");
	rc = limits_read(&l, limits, 1);
	if (rc)
		return rc;
	if (!count_below(&e->ngroups, groups_most(e)))
		return err(-ENOMEM, "group_create: %u groups exist", groups_most(e));
	g = pool_get(e->pool[POOL_GROUP], &t->cache[POOL_GROUP], &idx);
	rc = g ? limits_set(t, g, idx, &l) : err(-ENOMEM, "group_create: no memory");
	if (rc) {
		group_free(t, g ? idx : 0);
		return rc;
	}
	gen = gen_alive(e, (u32)(load_relaxed(&g->life) >> 32));
	store_relaxed(&g->cancels, (u64)gen << 32);
	store_release(&g->life, (u64)gen << 32);		/* CORE-H7 <-> CORE-H8 */
	out->h = (u64)gen << 32 | idx;
	return 0;
}
PAWL_EXPORT(pawl_group_create);

int pawl_group_limit(struct pawl_engine *e, pawl_group_t h,
		     const struct pawl_group_limits *limits)
{
	struct thread *t = thread_get(e);
	struct op_group *g = group_get(e, h);
	struct pawl_group_limits l;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	if (!g)
		return err(-ESTALE, "group_limit: no group, or it was destroyed");
	rc = limits_read(&l, limits, (u32)h.h);
	if (rc)
		return rc;
	if (!h.h)
		return limits_set(t, g, 0, &l);
	/* Count as an op of the group, so that it is not destroyed. */
	if (life_hold(g, h))
		return err(-ESTALE, "group_limit: the group was destroyed meanwhile");
	rc = limits_set(t, g, (u32)h.h, &l);
	group_leave(t, (u32)h.h, 0, true);
	return rc;
}
PAWL_EXPORT(pawl_group_limit);

int pawl_group_destroy(struct pawl_engine *e, pawl_group_t h)
{
	struct thread *t = thread_get(e);
	u64 life = h.h >> 32 << 32;
	struct op_group *g;
	u32 room, note;

	if (unlikely(!t))
		return thread_last.code;
	g = h.h ? group_get(e, h) : NULL;
	if (!g)
		return err(-ESTALE, "group_destroy: no group, or it was destroyed");
	/* CORE-H9 <-> CORE-H10: a room completion that is not reaped still uses the note. */
	room = fetch_or_acq_rel(&g->room, ROOM_CLOSED);
	if (room & ROOM_CLOSED)
		return err(-EBUSY, "group_destroy: another thread destroys it");
	/* CORE-H6 <-> CORE-H5 */
	if ((room & ROOM_POSTED) ||
	    !cas_acquire_relaxed(&g->life, &life, (u64)gen_dead((u32)(life >> 32)) << 32)) {
		/* Relaxed: this thread has written nothing that another one reads. */
		fetch_and_relaxed(&g->room, ~ROOM_CLOSED);
		/* CORE-H3 <-> CORE-H2: a completion may have found the group closed. */
		smp_mb();
		room_check(t, g);
		if (life >> 32 != h.h >> 32)
			return err(-ESTALE, "group_destroy: it was destroyed meanwhile");
		return err(-EBUSY, "group_destroy: one of its ops is not complete, or its room "
			   "completion was not reaped");
	}
	note = load_relaxed(&g->note);
	store_relaxed(&g->note, 0);
	store_relaxed(&g->room, 0);
	if (note)
		note_room_free(t, note);
	/* Waiters are woken by the completer of the last op, or by the next group_create(). */
	group_free(t, (u32)h.h);
	return 0;
}
PAWL_EXPORT(pawl_group_destroy);

/*
 * Cancel all ops.  An op has no room for the count of cancels at its push, so from the first call
 * on ops are stamped in an array beside them.  An op with the stamp 0 was pushed before.
 */
static void cancel_all(struct pawl_engine *e)
{
	/* Relaxed: a push that is ordered after this call stamps its op with the new count. */
	fetch_add_relaxed(&e->cancels, 1);
	fetch_or_relaxed(&e->special, SPECIAL_CANCELED);
}

/* The op is being pushed.  Progress: wait-free. */
void op_stamp(struct pawl_engine *e, u32 opi)
{
	store_relaxed(&e->stamps[opi], load_relaxed(&e->cancels));
}

/* Were all ops canceled after this one was pushed?  Progress: wait-free. */
bool op_canceled(struct pawl_engine *e, u32 opi)
{
	return load_relaxed(&e->stamps[opi]) != load_relaxed(&e->cancels);
}

int pawl_group_cancel(struct pawl_engine *e, pawl_group_t h)
{
	struct op_group *g = h.h ? group_get(e, h) : NULL;
	u64 n = g ? load_relaxed(&g->cancels) : 0;

	if (!h.h) {
		cancel_all(e);
		return 0;
	}
	do
		if (!g || n >> 32 != h.h >> 32)
			return err(-ESTALE, "group_cancel: no group, or it was destroyed");
	while (!cas_relaxed(&g->cancels, &n, (n & ~0xffffffffull) | (u32)(n + 1)));
	return 0;
}
PAWL_EXPORT(pawl_group_cancel);

int pawl_group_count(struct pawl_engine *e, pawl_group_t h, uint64_t *ops, uint64_t *cost)
{
	struct op_group *g = group_get(e, h);

	if (!g)
		return err(-ESTALE, "group_count: no group, or it was destroyed");
	if (ops)
		/* CORE-H6 <-> CORE-H5 */
		*ops = h.h ? life_ops(load_acquire(&g->life)) : ops_in_flight(e);
	if (cost)
		*cost = load_relaxed(&g->cost);
	return 0;
}
PAWL_EXPORT(pawl_group_count);

struct group_wait {
	struct thread *t;
	const struct op_group *g;
	u32 gen, idx;
	bool room;
};

static bool group_wait_over(void *arg)
{
	const struct group_wait *w = arg;

	u64 life = load_acquire(&w->g->life);			/* CORE-H6 <-> CORE-H5 */

	if (life >> 32 != w->gen)
		return true;
	if (!w->room)
		return !life_ops(life);
	/* A body never waits at the window (admit.c). */
	return group_low(w->g) && (w->g != w->t->e->root || thread_inside(w->t) ||
				   window_low(w->t, load_relaxed(&w->g->low)));
}

static bool in_group(void *arg, const struct op *op)
{
	struct group_wait *w = arg;

	return note_is_of(w->t->e, op, w->idx);
}

/* Wait until the group is empty, or (room) at its low-water mark.  how: PAWL_WAIT_* flags. */
int group_wait(struct pawl_engine *e, pawl_group_t h, s64 timeout_ns, bool room, u32 how)
{
	struct thread *t = thread_get(e);
	struct group_wait w = { t, NULL, (u32)(h.h >> 32), (u32)h.h, room };
	struct wait_for what;
	u32 idx = (u32)h.h, up;
	struct op_group *g;
	struct frame *f;
	bool window;
	u64 hard;
	int rc;

	if (unlikely(!t))
		return thread_last.code;
	g = h.h || room ? group_get(e, h) : NULL;
	if (!g)
		return err(-ESTALE, "group_wait: no group, or it was destroyed");
	w.g = g;
	if (group_wait_over(&w))
		return 0;
	for_each_frame(t, f)
		if (!room && !frame_complete(f) && note_is_of(e, op_of(e, f->op), idx))
			return err(-EDEADLK, "group_wait: from inside an op of the group");
	/* A body that runs inside this wait may wait for another group. */
	up = load_relaxed(&t->waits_group);
	store_relaxed(&t->waits_group, idx + 1);
	fetch_add_seq_cst(&g->waiters, 1);	/* CORE-H1 <-> CORE-H4 */
	/* In a body it is not the window; a wait further down the stack may be for few ops. */
	window = !idx && !thread_inside(t);
	hard = low_of(e->window, load_relaxed(&g->low));
	if (window)
		wait_flight_begin(t, hard, true);
	what = (struct wait_for){ group_wait_over, room ? NULL : in_group, &w };
	rc = window ? window_wait(t, hard, &what, timeout_ns, how) :
	     wait_body(t, &what, timeout_ns, how);
	if (window)
		wait_flight_end(t);
	fetch_add_relaxed(&g->waiters, -1u);
	store_relaxed(&t->waits_group, up);
	flight_check(t);
	if (!rc && load_relaxed(&g->life) >> 32 != w.gen)
		return err(-ESTALE, "group_wait: the group was destroyed meanwhile");
	if (rc == -EAGAIN)
		return err_unreaped(e, "group_wait");
	return rc ? err(rc, "group_wait: %s", rc == -EINTR ? "interrupted" : "the time has passed") :
	       0;
}

int pawl_group_wait(struct pawl_engine *e, pawl_group_t h, int64_t timeout_ns)
{
	return group_wait(e, h, timeout_ns, false, 0);
}
PAWL_EXPORT(pawl_group_wait);
