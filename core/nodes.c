// SPDX-License-Identifier: Apache-2.0
/*
 * Nodes: run each body of a launch of a graph as soon as those that it depends on have ended.
 *
 * Purpose: inside a launch no vars order the bodies.  A counter per node does.
 *
 * Structures: a counter per node says how many of its predecessors have not ended, and how many
 * failed.  A node that runs, or is in a run queue, has a carrier, an object of the pool of ops
 * without vars: run queues hold ops, and an asynchronous body needs a token.  A thread that has
 * ended a node runs the first successor that this made ready, with the same carrier, and queues
 * the others.  If none became ready, it continues with the next node of the launch that it
 * queued itself.  Along a chain (node.single) nothing is counted.  A push reserves the first
 * carrier of its launch.  Ready nodes for which the pool has no carrier go to the launch's
 * stack; each thread that ends a node checks the stack first.  A thread puts nodes there only
 * while it has a ready node for its own carrier, so it finds them when that node ends.
 *
 * The vars stay with the launch's own op, which a node's frame names: a wait in a body, or
 * pawl_run_canceled(), refers to the launch.  launch.left counts down the sinks, the nodes
 * without successors, and the last one completes the op.  A thread subtracts the sinks that it
 * ran when it has no other node of the launch.  Until then the launch cannot end.
 *
 * Ordering:
 *   CORE-GR3 (counter, release) <-> CORE-GR4 (its last subtraction, acquire): a node sees what
 *   all its predecessors did, and that there is an error if one of them failed.
 *   CORE-GR5 (launch.left, release) <-> CORE-GR6 (the last one, acquire): the thread that
 *   completes the launch sees what all nodes did.
 *   CORE-GR7 (node put on the stack, release) <-> CORE-GR8 (taken, acquire): the thread that
 *   takes the node sees what its predecessors did.
 *   CORE-GR9 (launch.err, release) <-> CORE-GR10 (a node behind one that failed, acquire): the
 *   error may be that of another node, which it does not follow.
 *
 * Progress: wait-free between two bodies, bounded by the number of successors, apart from the
 * pool and the run queues (lock-free).  A thread that is stopped in a body, or an asynchronous
 * node, delays only what depends on that node.  There is one exception: ready nodes for which the
 * pool of ops was empty wait until any node of the launch ends, also if the pool has objects by
 * then.
 *
 * Lifetime: a launch exists until its last sink is subtracted.  A thread that has counted down
 * its node's successors, and has neither a ready node nor a sink to subtract, must not touch
 * it.
 */
#include <core/device.h>
#include <core/error.h>
#include <core/graph.h>
#include <core/record.h>
#include <core/retire.h>
#include <core/trace.h>

/*
 * A thread runs at most so many nodes in a row before it checks the run queues, and fewer if they
 * are long: it reads the time after the first one and after NODES_SHORT.
 */
#define NODES_SHORT	4u
#ifdef PAWL_MODEL
#define NODES_RUN	2u
#else
#define NODES_RUN	16u
#endif

#define NO_NODE		UINT32_MAX

/* How long a thread has run nodes without checking the run queues. */
struct turn {
	u32 ran;		/* nodes */
	u64 since;		/* cycles() when it began */
};

/* A body on the stack of a thread that runs nodes. */
struct node_frame {
	struct frame f;		/* of the launch's op */
	struct op *carrier;
};

/* Never called: a launch whose op has it is run by this file. */
int nodes_fn(struct pawl_run *run, void *arg)
{
	return 0;
}

/* The carrier of the node whose body has this. */
struct op *node_carrier(const struct pawl_run *run)
{
	return container_of(run, struct node_frame, f.run)->carrier;
}

static void carrier_set(struct thread *t, struct op *op, u32 opi, struct launch *l, u32 node)
{
	op->graph = node;
	store_relaxed(&op->name, l->plan->node[node].name);
	if (unlikely(load_relaxed(&t->e->special) & SPECIAL_TRACING))
		trace_node(t, TRACE_PUSH, l, node);
}

static void carrier_init(struct thread *t, struct op *op, struct launch *l)
{
	const struct op *of = op_of(t->e, l->op);

	store_helped16(&op->flags, OP_NODE | OP_NAMED);
	store_relaxed(&op->arg, l);
	op->prio = of->prio;
	op->prop = of->prop;
	op->dev = of->dev;
}

static u32 node_next(const struct launch *l, u32 node)
{
	return load_relaxed(&l->wait[node]) & NODE_WAITS;
}

/* Has a node failed on which this one depends?  Called by the thread that has the node. */
static bool node_failed(const struct launch *l, u32 node)
{
	return load_relaxed(&l->wait[node]) & NODE_FAILED;
}

static void node_link(struct launch *l, u32 node, u32 next)
{
	store_relaxed(&l->wait[node], (load_relaxed(&l->wait[node]) & NODE_FAILED) | next);
}

static void rest_put(struct launch *l, u32 node)
{
	u32 head = load_relaxed(&l->rest);

	do
		node_link(l, node, head);
	while (!cas_release_relaxed(&l->rest, &head, node + 1));	/* CORE-GR7 <-> CORE-GR8 */
}

/* Returns a node + 1, or 0.  A node is put there at most once, so its head never comes again. */
static u32 rest_take(struct launch *l)
{
	u32 head = load_acquire(&l->rest), next;	/* CORE-GR8 <-> CORE-GR7 */

	do {
		if (!head)
			return 0;
		next = node_next(l, head - 1);
	} while (!cas_acq_rel_acquire(&l->rest, &head, next));	/* CORE-GR8 <-> CORE-GR7 */
	node_link(l, head - 1, 0);
	return head;
}

/* One predecessor of the node has ended.  Returns true if it was the last one. */
static inline bool node_count(struct launch *l, u32 node, bool failed)
{
	u32 *w = &l->wait[node];
	u32 v = load_acquire(w);	/* CORE-GR4 <-> CORE-GR3 */

	/* If only ours is left, no other thread will touch the counter. */
	if ((v & NODE_WAITS) != 1) {
		/* CORE-GR3 <-> CORE-GR4; CORE-GR4 <-> CORE-GR3: it may be the last one */
		v = fetch_add_acq_rel(w, failed ? NODE_FAILS - 1 : -1u);
		if ((v & NODE_WAITS) != 1)
			return false;
	}
	if (BUSTED(NODE_FAILED_RUNS))
		failed = false;
	store_relaxed(w, failed || v >= NODE_FAILS ? NODE_FAILED : 0);
	return true;
}

/* Find a carrier for a ready node.  Returns 0 if there is none: the node is on the stack. */
static inline u32 carrier_get(struct thread *t, struct launch *l, u32 node)
{
	u32 opi;
	struct op *op = op_new(t, &opi);

	if (unlikely(!op)) {
		rest_put(l, node);
		return 0;
	}
	carrier_init(t, op, l);
	carrier_set(t, op, opi, l, node);
	store_relaxed(&op->wait, 0);
	return opi;
}

/* Find a carrier for each node of a list.  Returns them, oldest first, linked by op->wait. */
static __noinline u32 carriers_get(struct thread *t, struct launch *l, u32 node)
{
	u32 opi, head = 0, tail = 0, next;

	for (; node; node = next) {
		next = node_next(l, node - 1);
		opi = carrier_get(t, l, node - 1);
		if (!opi)
			continue;
		if (head)
			store_relaxed(&op_of(t->e, tail)->wait, opi);
		else
			head = opi;
		tail = opi;
	}
	return head;
}

/* May this thread run a node without checking the run queue? */
static inline bool node_stays(struct thread *t, struct turn *turn)
{
	if (!turn)
		return true;
	if (!t->ex.budget || ++turn->ran >= NODES_RUN)
		return false;
	return likely(turn->ran != 1 && turn->ran != NODES_SHORT) ||
	       !exec_turn_over(t->e->x, turn->since);
}

/* May it run the node after checking the run queue?  If not, the carrier has been queued. */
static bool node_keep(struct thread *t, struct op *op, u32 opi, struct turn *turn)
{
	turn->ran = 0;
	turn->since = cycles();
	if (op->prop != PAWL_DELETE_VAR)
		return exec_handoff(op_queue(t->e, op), &t->ex, opi, op->prio);
	queue_op(t, op, opi);
	return false;
}

/* Queue the carriers of a list.  Returns the empty list. */
static inline u32 carriers_queue(struct thread *t, u32 opi)
{
	struct op *op;
	u32 next;

	for (; opi; opi = next) {
		op = op_of(t->e, opi);
		next = load_relaxed(&op->wait);
		queue_op(t, op, opi);
	}
	return 0;
}

/* Queue the ready nodes behind `first`, the carrier's node.  Returns `first` or NO_NODE. */
static __noinline u32 nodes_queue(struct thread *t, struct launch *l, struct op *op, u32 opi,
				  u32 first, struct turn *turn)
{
	u32 more = carriers_get(t, l, node_next(l, first));

	if (BUSTED(NODES_SWAPPED))
		more = carriers_queue(t, more);
	/* Before the others are queued, since they must not go before it. */
	if (!node_keep(t, op, opi, turn))
		first = NO_NODE;
	carriers_queue(t, more);
	return first;
}

/*
 * The carrier has ended its node: count down n successors.  first: a ready node from the
 * launch's stack, plus 1, or 0.  turn: NULL if the launch begins.  Returns the node that this thread runs next, with the same carrier, or
 * NO_NODE if the carrier is queued or free.
 */
static __always_inline_fn u32 nodes_ready(struct thread *t, struct launch *l, struct op *op,
					  u32 opi, const u32 *succ, u32 n, u32 first, bool failed,
					  struct turn *turn)
{
	bool stays = node_stays(t, turn);
	u32 last = first, i, other;
	bool queued = false;

	for (i = 0; i < n; i++) {
		u32 s = succ[i];

		if (!node_count(l, s, failed))
			continue;
		if (!first) {
			first = s + 1;
		} else if (stays) {
			/* The launch exists, because its first ready node is not queued. */
			other = carrier_get(t, l, s);
			if (likely(other)) {
				queue_op_more(t, op_of(t->e, other), other);
				queued = true;
			}
			continue;
		} else {
			node_link(l, last - 1, s + 1);
		}
		last = s + 1;
	}
	if (!first) {
		op_free(t, op, opi);
		return NO_NODE;
	}
	if (BUSTED(NODES_NOT_TOLD))
		queued = false;
	if (queued)
		exec_pushed(op_queue(t->e, op), &t->ex);
	carrier_set(t, op, opi, l, first - 1);
	return likely(stays) ? first - 1 : nodes_queue(t, l, op, opi, first - 1, turn);
}

/* A node failed, or left a message behind. */
static __cold void node_error(struct thread *t, struct launch *l, struct op *op, int status)
{
	u32 error = op->flags & OP_ERR ? op->err : 0, none = 0;

	store_helped16(&op->flags, OP_NODE | OP_NAMED);
	if (status < 0 && !error)
		error = error_make(t, status, op_name(op), NULL);
	else if (status < 0 && error != t->e->spare_error)
		error_of(t->e, error)->code = status;	/* as for an op */
	/* CORE-GR9 <-> CORE-GR10 */
	if (status < 0 && cas_release_relaxed(&l->err, &none, error))
		return;
	if (error)
		error_put(t, error);
}

/* n sinks have ended.  Returns true if no others remain. */
static inline bool sink_count(struct launch *l, u32 n)
{
	if (load_acquire(&l->left) == n)	/* CORE-GR6 <-> CORE-GR5 */
		return true;
	/* CORE-GR5 <-> CORE-GR6; CORE-GR6 <-> CORE-GR5: it may be the last one */
	return fetch_add_acq_rel(&l->left, -n) == n;
}

/*
 * Did the node succeed, and is its one successor ready, because it has no other predecessor?
 * Then nothing is counted, and the successor's counter remains 1.
 */
static inline bool node_passes(struct thread *t, const struct launch *l, const struct op *op,
			       const struct node *nd, int status)
{
	return nd->single && !status && !(op->flags & OP_ERR) && !load_relaxed(&l->rest) &&
	       !(load_relaxed(&t->e->special) & SPECIAL_EVENTS);
}

/* The carrier's next node is the one successor.  Returns what nodes_ready() does. */
static inline u32 node_pass(struct thread *t, const struct launch *l, struct op *op, u32 opi,
			    const struct node *nd, struct turn *turn)
{
	u32 next = l->plan->succ[nd->succ];

	PROBE4(end, t->ex.id, opi, 0, t->ex.slot);
	op->graph = next;
	store_relaxed(&op->name, l->plan->node[next].name);
	return node_stays(t, turn) || node_keep(t, op, opi, turn) ? next : NO_NODE;
}

/*
 * The node has ended.  Returns what nodes_ready() does.  If the node is a sink, *sinks is
 * incremented; the caller passes it to sink_count() when it has no other node of the launch.
 */
static __always_inline_fn u32 node_end(struct thread *t, struct launch *l, struct op *op, u32 opi,
				       int status, struct turn *turn, u32 *sinks)
{
	const struct node *nd = &l->plan->node[op->graph];
	const u32 *succ = l->plan->succ + nd->succ;
	/* A node that ran in spite of an error passes that on, as an op does. */
	bool failed = status < 0 || node_failed(l, op->graph);
	u32 first = 0, n = nd->nsucc;

	if (unlikely(status < 0 || (op->flags & OP_ERR)))
		node_error(t, l, op, status);
	PROBE4(end, t->ex.id, opi, status, t->ex.slot);
	if (unlikely(load_relaxed(&t->e->special) & SPECIAL_TRACING))
		trace_node(t, TRACE_END, l, op->graph);
	if (unlikely(load_relaxed(&t->e->special) & SPECIAL_RECORDING))
		record_node_end(t, l, op->graph, status);
	/* While this node has not ended, the launch exists. */
	if (unlikely(load_relaxed(&l->rest)))
		first = rest_take(l);
	/* From here on it exists only if a node is ready, or a sink is not subtracted yet. */
	*sinks += !n;
	return nodes_ready(t, l, op, opi, succ, n, first, failed, turn);
}

/* The last node has ended: complete the launch's op.  Returns the op to run next, or 0. */
static u32 launch_end(struct thread *t, struct launch *l)
{
	u32 opi = l->op, error = load_relaxed(&l->err);
	struct op *op = op_of(t->e, opi);
	int status = 0;

	if (unlikely(error)) {
		op_err_set(t, op, error);
		status = error_of(t->e, error)->code;
	}
	return finish_op(t, op, opi, status);
}

/*
 * Take the carrier of the launch's next node from this thread's ring.  Returns 0 if the next op
 * there is not such a carrier, or may not run now.  The op is read before it is taken: if
 * exec_next() succeeds, it was in the ring all the time, so what was read is exact; otherwise
 * another thread may have taken it.  op->arg cannot mean an earlier launch in the same memory,
 * whose carriers left the ring before it ended.
 */
static inline u32 node_take(struct thread *t, const struct launch *l)
{
	u32 opi = exec_look(&t->ex);
	const struct op *op = op_of(t->e, opi);

	if (BUSTED(NODE_TAKES_ANY))
		l = load_relaxed(&op->arg);
	return opi && (load_relaxed(&op->flags) & OP_NODE) && load_relaxed(&op->arg) == l &&
	       exec_next(t->e->x, &t->ex, opi) ? opi : 0;
}

/* Run an asynchronous body.  The launch may be complete when it returns. */
static __cold u32 node_async(struct thread *t, struct frame *f, struct op *op, u32 opi,
			     const struct launch *l, u32 node)
{
	u32 of = l->op, gen = op_gen(op_of(t->e, of));

	run_async(t, f, op, opi, l->plan->node[node].async_fn, node_arg(l, node));
	if (unlikely(load_relaxed(&t->e->special) & SPECIAL_TRACING))
		trace_return(t, of, gen, node + 1);
	return 0;
}

/*
 * Run the carrier's node, and then those that become ready and that this thread may run.
 * Returns the op to run next, or 0.
 */
u32 node_run(struct thread *t, struct op *op, u32 opi)
{
	struct launch *l = op->arg;
	const struct plan *p = l->plan;
	struct node_frame nf = { .carrier = op };
	struct pawl_run *run = &nf.f.run;
	struct turn turn = { .since = cycles() };
	u32 node = op->graph, sinks = 0;

	frame_push(t, &nf.f, op_of(t->e, l->op), l->op);
	do {
		const struct node *nd = &p->node[node];
		bool failed = node_failed(l, node);
		bool skipped = failed && !(p->flags & OP_NO_SKIP);
		int status = 0;

		count(&t->nodes);
		/* CORE-GR10 <-> CORE-GR9 */
		run->status = likely(!failed) ? l->status :
			      error_of(t->e, load_acquire(&l->err))->code;
		if (unlikely(load_relaxed(&t->e->special) & SPECIAL_TRACING))
			trace_node(t, skipped ? TRACE_SKIP : TRACE_BEGIN, l, node);
		if (unlikely(load_relaxed(&t->e->special) & SPECIAL_RECORDING))
			record_node_begin(t, l, node, skipped);
		if (likely(nd->fn && !skipped)) {
			if (unlikely(nd->async && sinks))
				(void)sink_count(l, sinks);	/* this node has not ended */
			if (unlikely(nd->async))
				return node_async(t, &nf.f, op, opi, l, node);
			PROBE4(start, t->ex.id, opi, nd->fn, t->ex.slot);
			status = nd->fn(run, node_arg(l, node));
			if (unlikely(status > 0))
				status = pawl_fail(run, -EPROTO, "the body returned %d, not 0 or a "
						   "negative errno", status);
		}
		if (!failed && node_passes(t, l, op, nd, status))
			node = node_pass(t, l, op, opi, nd, &turn);
		else
			node = node_end(t, l, op, opi, status, &turn, &sinks);
		if (node != NO_NODE || turn.ran >= NODES_RUN)
			continue;
		opi = node_take(t, l);
		if (!opi)
			break;
		op = nf.carrier = op_of(t->e, opi);
		node = op->graph;
	} while (node != NO_NODE);
	frame_pop(t, &nf.f);
	return sinks && sink_count(l, sinks) ? launch_end(t, l) : 0;
}

/* pawl_complete() for a node.  Returns the op to run next, or 0. */
u32 node_complete(struct thread *t, struct op *op, u32 opi, int status)
{
	struct launch *l = op->arg;
	struct turn turn = { .ran = NODES_RUN };
	u32 sinks = 0;

	node_end(t, l, op, opi, status, &turn, &sinks);
	return sinks && sink_count(l, sinks) ? launch_end(t, l) : 0;
}

/* The launch is granted, and its vars are not poisoned.  Returns the op to run next, or 0. */
u32 nodes_begin(struct thread *t, struct op *op, u32 opi, int status)
{
	struct launch *l = op->arg;
	const struct plan *p = l->plan;
	u32 ci = l->carrier, node;
	struct op *c = op_of(t->e, ci);

	/* Plain: no other thread knows the launch before its first nodes are queued. */
	memcpy(l->wait, p->wait, p->n * sizeof(l->wait[0]));
	store_relaxed(&l->left, p->nsinks);
	store_relaxed(&l->err, 0);
	store_relaxed(&l->rest, 0);
	l->op = opi;
	l->status = status;
	l->carrier = 0;
	carrier_init(t, c, l);
	node = nodes_ready(t, l, c, ci, p->succ, p->nsources, 0, false, NULL);
	return node == NO_NODE ? 0 : node_run(t, c, ci);
}
