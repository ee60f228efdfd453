// SPDX-License-Identifier: Apache-2.0
/*
 * eng_tbb.cc - oneTBB, which has no dependences by data: the pusher finds them.
 *
 *   tbb-group  tasks of a task_group; each op has a counter of what it waits for and
 *              a list of who waits for it, both ours; the last one runs the task
 *   tbb-flow   one continue_node per op and one edge per dependence, built first,
 *              then started; building is part of the time
 */
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>
#include <tbb/task_scheduler_observer.h>

#include "bench.h"

namespace {

class pin_observer : public tbb::task_scheduler_observer {
public:
	explicit pin_observer(tbb::task_arena &a) : tbb::task_scheduler_observer(a)
	{
		observe(true);
	}
	void on_scheduler_entry(bool) override
	{
		bench_pin_self(tbb::this_task_arena::current_thread_index());
	}
};

std::unique_ptr<tbb::global_control> limit;
std::unique_ptr<tbb::task_arena> arena;
std::unique_ptr<pin_observer> observer;

void create(int threads)
{
	limit.reset(new tbb::global_control(tbb::global_control::max_allowed_parallelism,
					    (size_t)threads));
	arena.reset(new tbb::task_arena(threads));
	arena->initialize();
	if (bench_opts.pin)
		observer.reset(new pin_observer(*arena));
}

void enter(void (*fn)(void *), void *arg)
{
	arena->execute([=] { fn(arg); });
}

/*
 * The accesses of each var as the pusher saw them.  A read waits for the last
 * write; a write for the reads since then or, if there are none, the last write.
 */
template <class Node> struct accesses {
	Node *writer = nullptr;
	std::vector<Node *> readers;
};

template <class Node, class Edge>
void depend(std::vector<accesses<Node>> &vars, const struct bench_op *op, Node *me, Edge edge)
{
	unsigned int i;

	for (i = 0; i < op->nr; i++) {
		accesses<Node> &a = vars[op->v[i]];

		if (a.writer)
			edge(a.writer, me);
		a.readers.push_back(me);
	}
	for (; i < (unsigned int)op->nr + op->nw; i++) {
		accesses<Node> &a = vars[op->v[i]];

		for (Node *r : a.readers)
			edge(r, me);
		if (a.readers.empty() && a.writer)
			edge(a.writer, me);
		a.readers.clear();
		a.writer = me;
	}
}

/* ---- task_group ---- */

struct node;

struct edge {
	node *to;
	edge *next;
};

struct node {
	struct bench_op *op;
	std::atomic<int> left;		/* not over yet, + 1 while pushing */
	std::atomic<edge *> waiters;	/* OVER once the op is complete */

	explicit node(struct bench_op *o) : op(o), left(1), waiters(nullptr) { }
};

edge over;

std::unique_ptr<tbb::task_group> group;
/* deques: their elements stay where they are, and no list of pages per op */
std::deque<node> nodes;
std::deque<edge> edges;
std::vector<accesses<node>> group_vars;

void start(node *n);

void finish(node *n)
{
	edge *e = n->waiters.exchange(&over, std::memory_order_acq_rel), *next;

	for (; e; e = next) {
		next = e->next;
		if (e->to->left.fetch_sub(1, std::memory_order_acq_rel) == 1)
			start(e->to);
	}
}

void start(node *n)
{
	group->run([n] {
		bench_body(n->op);
		finish(n);
	});
}

void group_create(int threads)
{
	create(threads);
	group.reset(new tbb::task_group);
}

void group_reset()
{
	for (auto &a : group_vars) {
		a.writer = nullptr;
		a.readers.clear();
	}
	nodes.clear();
	edges.clear();
}

void group_make_vars(uint32_t n)
{
	group_vars.clear();
	group_vars.resize(n);
}

void group_push(struct bench_op *op)
{
	nodes.emplace_back(op);
	node *me = &nodes.back();

	depend(group_vars, op, me, [](node *from, node *to) {
		edge *seen = from->waiters.load(std::memory_order_acquire);

		if (seen == &over)
			return;
		edges.push_back({ to, seen });
		edge *e = &edges.back();

		to->left.fetch_add(1, std::memory_order_relaxed);
		do {
			if (seen == &over) {
				to->left.fetch_sub(1, std::memory_order_relaxed);
				return;
			}
			e->next = seen;
		} while (!from->waiters.compare_exchange_weak(seen, e, std::memory_order_acq_rel,
							      std::memory_order_acquire));
	});
	if (me->left.fetch_sub(1, std::memory_order_acq_rel) == 1)
		start(me);
}

void group_wait()
{
	group->wait();
}

void finish_all()
{
	observer.reset();
	arena.reset();
	limit.reset();
}

void group_destroy()
{
	group.reset();
	finish_all();
}

/* ---- flow graph ---- */

using tbb::flow::continue_msg;
using flow_node = tbb::flow::continue_node<continue_msg>;

std::unique_ptr<tbb::flow::graph> graph;
std::deque<flow_node> flow_nodes;
std::vector<flow_node *> roots;
std::vector<accesses<flow_node>> flow_vars;

void flow_reset()
{
	for (auto &a : flow_vars) {
		a.writer = nullptr;
		a.readers.clear();
	}
	roots.clear();
	flow_nodes.clear();
}

void flow_make_vars(uint32_t n)
{
	flow_vars.clear();
	flow_vars.resize(n);
}

/* A graph belongs to the arena it is made in. */
void flow_enter(void (*fn)(void *), void *arg)
{
	arena->execute([=] {
		if (!graph)
			graph.reset(new tbb::flow::graph);
		fn(arg);
	});
}

void flow_push(struct bench_op *op)
{
	bool root = true;

	flow_nodes.emplace_back(*graph, [op](const continue_msg &) { bench_body(op); });
	flow_node *me = &flow_nodes.back();

	depend(flow_vars, op, me, [&root](flow_node *from, flow_node *to) {
		tbb::flow::make_edge(*from, *to);
		root = false;
	});
	if (root)
		roots.push_back(me);
}

void flow_wait()
{
	for (flow_node *n : roots)
		n->try_put(continue_msg());
	graph->wait_for_all();
}

void flow_destroy()
{
	flow_reset();
	graph.reset();
	finish_all();
}

/* ---- threads that drive it themselves: tasks without dependences, a group per thread ---- */

struct host {
	tbb::global_control limit;
	tbb::task_arena arena;

	host(int threads, int workers) :
		limit(tbb::global_control::max_allowed_parallelism, (size_t)workers + 1),
		arena(threads + workers, (unsigned)threads)
	{
		arena.initialize();
	}
};

thread_local tbb::task_group *mine;

void *host_create(int threads, int workers, uint32_t)
{
	return new host(threads, workers);
}

void host_enter(void *h, void (*fn)(void *), void *arg)
{
	((host *)h)->arena.execute([=] {
		tbb::task_group g;

		mine = &g;
		fn(arg);
		g.wait();
		mine = nullptr;
	});
}

void host_push(void *, struct bench_op *op)
{
	mine->run([op] { bench_body(op); });
}

/* From outside: each thread has waited before it left. */
void host_wait(void *)
{
	if (mine)
		mine->wait();
}

void host_step(void *h, struct bench_op *op)
{
	host_push(h, op);
	mine->wait();
}

void host_destroy(void *h)
{
	delete (host *)h;
}

const struct bench_host hosts = { true, host_create, host_enter, host_push, host_step,
				  host_wait, nullptr, nullptr, host_destroy };

/*
 * No designated initializers in C++11: name, threads, flags, env, create, vars, enter,
 * push, wait, reset, destroy, host.  A graph starts with the wait: nothing for a worker alone.
 */
#define GROUP(n, t, f) { n, t, f, nullptr, group_create, group_make_vars, enter, group_push, \
			 group_wait, group_reset, group_destroy, &hosts, nullptr }
#define FLOW(n, t) { n, t, 0, nullptr, create, flow_make_vars, flow_enter, flow_push, \
		     flow_wait, flow_reset, flow_destroy, nullptr, nullptr }

const struct bench_engine group2 = GROUP("tbb-group-2", 2, BENCH_HAS_WORKER);
const struct bench_engine group1 = GROUP("tbb-group-1", 1, 0);
const struct bench_engine flow2 = FLOW("tbb-flow-2", 2);
const struct bench_engine flow1 = FLOW("tbb-flow-1", 1);

} /* namespace */

extern "C" {
const struct bench_engine *const bench_engines[] = { &group2, &flow2, &group1, &flow1, nullptr };
}
