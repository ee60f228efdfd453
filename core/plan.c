// SPDX-License-Identifier: Apache-2.0
/*
 * Plans: which ops of a graph must wait for which, and which vars a launch names.
 *
 * Structures: the accesses of all ops, sorted by var and then by op.  Along a var, a read
 * follows the last write, and a write follows the reads since the last write, or that write if
 * there are none.  Each of these pairs is an edge between two nodes, and each var is one access
 * of a launch, a write if any op writes it.  A slot is treated as a var of its own.
 *
 * Progress: blocking, because it allocates; n log n in the number of accesses.
 */
#include <stdlib.h>
#include <core/graph.h>
#include <core/link.h>
#include <core/sizes.h>
#include <core/sort.h>

/* A slot's handle: a generation that no var has, and the number. */
#define SLOT_TAG	((u32)(PAWL_SLOT_0 >> 32))
#define SLOT_KEY	0x80000000u	/* beside the number, in the place of a var's index */

BUILD_BUG_ON(PAWL_SLOT_0 >> 32 & 1);

/*
 * While the plan is made.  An access is a u64: [63:32] var or slot, [31:1] node, [0] 1 for a
 * read, so that in the order of numbers a write comes first.  An edge is from << 32 | to.
 */
struct making {
	struct plan *p;
	u64 *acc, *edges;
	u32 nacc, nedges;
};

static bool u64_less(const void *array, u32 i, u32 j)
{
	const u64 *a = array;

	return a[i] < a[j];
}

static void u64_swap(void *array, u32 i, u32 j)
{
	u64 *a = array, x = a[i];

	a[i] = a[j];
	a[j] = x;
}

static bool is_slot(pawl_var_t v)
{
	return v.h >> 32 == SLOT_TAG && (u32)v.h < GRAPH_SLOTS;
}

static int acc_add(struct thread *t, struct making *m, const pawl_var_t *v, u32 n, u32 node,
		   u32 read)
{
	u32 i, key;

	for (i = 0; i < n; i++) {
		if (is_slot(v[i])) {
			key = SLOT_KEY | (u32)v[i].h;
			m->p->nslots = (u32)max_u(m->p->nslots, (u32)v[i].h + 1);
		} else if (var_check(t, v[i])) {
			return err_field(var_bad("graph_create", read ? "reads" : "writes", i, v[i]),
					 "graph_create: ops[%u]: op", node);
		} else {
			key = var_index(v[i]);
		}
		m->acc[m->nacc++] = (u64)key << 32 | (u64)node << 1 | read;
	}
	return 0;
}

static void edge(struct making *m, u32 from, u32 to)
{
	m->edges[m->nedges++] = (u64)from << 32 | to;
}

/* The edges along one var: accesses first to last - 1, in the order of the nodes. */
static bool var_edges(struct making *m, u32 first, u32 last)
{
	u32 writer = 0, reads = first, i, k, node;	/* writer: node + 1 */
	bool written = false;

	for (i = first; i < last; i++) {
		node = (u32)m->acc[i] >> 1;
		if (i > first && node == (u32)m->acc[i - 1] >> 1) {
			/* The op names the var twice.  What was said about it counts. */
			if (reads == i)
				reads++;
			continue;
		}
		if (m->acc[i] & 1) {
			if (writer)
				edge(m, writer - 1, node);
			continue;
		}
		written = true;
		if (BUSTED(GRAPH_READS_LOST))
			reads = i;
		for (k = reads; k < i; k++)
			if (k == reads || (u32)m->acc[k] >> 1 != (u32)m->acc[k - 1] >> 1)
				edge(m, (u32)m->acc[k] >> 1, node);
		if (reads == i && writer)
			edge(m, writer - 1, node);
		writer = node + 1;
		reads = i + 1;
	}
	return written;
}

/* Edges, and the accesses of a launch.  The handles of vars are in ops. */
static void edges_make(struct making *m)
{
	struct plan *p = m->p;
	u32 first, last, key;
	bool w;

	sort_array(m->acc, m->nacc, u64_less, u64_swap);
	for (first = 0; first < m->nacc; first = last) {
		key = (u32)(m->acc[first] >> 32);
		for (last = first + 1; last < m->nacc && m->acc[last] >> 32 == key; last++)
			;
		w = var_edges(m, first, last);
		if (key & SLOT_KEY)
			p->slots[key & ~SLOT_KEY] = w ? SLOT_WRITE : SLOT_READ;
	}
	sort_array(m->edges, m->nedges, u64_less, u64_swap);
}

/* The edges are sorted: fill in the successors of each node, each once. */
static void succ_make(struct making *m)
{
	struct plan *p = m->p;
	u32 i, k, at;
	u64 last = ~0ull;

	for (i = 0; i < m->nedges; i++)
		if (!i || m->edges[i] != m->edges[i - 1])
			p->wait[(u32)m->edges[i]]++;
	for (i = 0; i < p->n; i++) {
		if (p->wait[i])
			continue;
		p->succ[p->nsources++] = i;
		p->wait[i] = 1;
	}
	at = p->nsources;
	for (i = 0, k = 0; i < p->n; i++) {
		p->node[i].succ = at;
		for (; k < m->nedges && m->edges[k] >> 32 == i; k++) {
			if (m->edges[k] != last)
				p->succ[at++] = (u32)m->edges[k];
			last = m->edges[k];
		}
		p->node[i].nsucc = at - p->node[i].succ;
		p->node[i].single = p->node[i].nsucc == 1 && p->wait[p->succ[at - 1]] == 1;
		p->nsinks += !p->node[i].nsucc;
	}
}

static int op_bad_here(struct pawl_engine *e, const struct pawl_op *ops, size_t i, size_t n,
		       bool capture)
{
	const struct pawl_op *op = op_at(ops, i);
	int rc = op_check(e, op, "graph_create");

	if (rc)
		return err_field(rc, "graph_create: ops[%zu]: op", i);
	/* These flags describe one push, and a graph keeps no descriptions of its ops. */
	if (op->flags & (PAWL_OP_NOTES | PAWL_OP_ARG))
		return err(-EINVAL, "graph_create: ops[%zu].flags is %#x, known is %#x", i, op->flags,
			   PAWL_OP_NO_SKIP);
	if ((u64)op->nreads + op->nwrites > ext_cap(EXT_CLASSES - 1))
		return err(-E2BIG, "graph_create: %u reads and %u writes in ops[%zu]", op->nreads,
			   op->nwrites, i);
	if (op->async_fn && (capture || (n > 1 && op->device.kind != PAWL_CPU)))
		return err(-EINVAL, "graph_create: ops[%zu] is asynchronous, and %s", i, capture ?
			   "the graph is captured" : "on a device the bodies run in one go");
	if (op->device.kind != ops[0].device.kind || op->device.id != ops[0].device.id ||
	    op->prop != ops[0].prop || op->flags != ops[0].flags)
		return err(-EINVAL, "graph_create: ops[%zu] has another device, prop or flags", i);
	return 0;
}

static int accs_count(struct pawl_engine *e, const struct pawl_op *ops, size_t n, bool capture,
		      u64 *nacc)
{
	size_t i;
	int rc;

	for (i = 0, *nacc = 0; i < n; i++) {
		rc = op_bad_here(e, ops, i, n, capture);
		if (rc)
			return rc;
		*nacc += (u64)op_at(ops, i)->nreads + op_at(ops, i)->nwrites;
	}
	return *nacc > GRAPH_ACCESSES ?
	       err(-E2BIG, "graph_create: %llu reads and writes, at most %u",
		   (unsigned long long)*nacc, GRAPH_ACCESSES) : 0;
}

void plan_free(struct plan *p)
{
	if (!p)
		return;
	capture_free(p->capture);
	free(p->deps);
	free(p->slots);
	free(p->succ);
	free(p->wait);
	free(p);
}

static struct plan *plan_new(const struct pawl_op *ops, u32 n, u32 nacc, bool capture)
{
	struct plan *p = calloc(1, sizeof(*p) + n * sizeof(p->node[0]));
	u32 i;

	if (!p)
		return NULL;
	p->deps = calloc(nacc + 1, sizeof(*p->deps));
	p->succ = calloc(n + 2 * (size_t)nacc, sizeof(*p->succ));
	p->wait = calloc(n, sizeof(*p->wait));
	p->capture = capture ? capture_new() : NULL;
	if (!p->deps || !p->succ || !p->wait || (capture && !p->capture)) {
		plan_free(p);
		return NULL;
	}
	p->n = n;
	for (i = 0; i < n; i++) {
		const struct pawl_op *op = op_at(ops, i);
		struct node *nd = &p->node[i];

		nd->fn = op->fn;
		if (op->async_fn)
			nd->async_fn = op->async_fn;
		nd->async = op->async_fn;
		p->async |= nd->async;
		nd->arg = op->arg;
		nd->release = op->release;
		nd->name = op->name;
	}
	return p;
}

/* The vars of a launch: those of all ops, sorted, each once. */
static int deps_make(struct thread *t, struct plan *p, const struct pawl_op *ops)
{
	u32 i, j, k = 0;

	for (i = 0; i < p->n; i++) {
		const struct pawl_op *op = op_at(ops, i);

		for (j = 0; j < op->nreads + op->nwrites; j++) {
			u32 w = j < op->nreads ? 0 : DEP_WRITE;
			pawl_var_t v = w ? op->writes[j - op->nreads] : op->reads[j];

			if (!is_slot(v))
				dep_set(&p->deps[k++], var_index(v) | w, 0, 0, (u32)(v.h >> 32));
		}
	}
	p->ndeps = deps_sort(p->deps, k);
	return p->ndeps + p->nslots > ext_cap(EXT_CLASSES - 1) ?
	       err(-E2BIG, "graph_create: %u vars and %u slots", p->ndeps, p->nslots) : 0;
}

static int plan_fill(struct thread *t, struct making *m, const struct pawl_op *ops)
{
	struct plan *p = m->p;
	u32 i;
	int rc;

	for (i = 0; i < p->n; i++) {
		const struct pawl_op *op = op_at(ops, i);

		rc = acc_add(t, m, op->reads, op->nreads, i, 1);
		if (!rc)
			rc = acc_add(t, m, op->writes, op->nwrites, i, 0);
		if (rc)
			return rc;
	}
	rc = deps_make(t, p, ops);
	if (rc)
		return rc;
	p->slots = calloc(p->nslots + 1, sizeof(*p->slots));
	if (!p->slots)
		return err(-ENOMEM, "graph_create: no memory for %u slots", p->nslots);
	edges_make(m);
	succ_make(m);
	p->whole = p->n == 1 && !p->capture;
	p->flags = (u16)(OP_GRAPH | prop_flags(ops) | (ops->name ? OP_NAMED : 0));
	if (p->whole && p->async)
		p->flags |= OP_ASYNC;
	p->prop = (u8)ops->prop;
	p->device = ops->device;
	p->prio = ops->priority;
	p->name = ops->name;
	return 0;
}

int plan_make(struct thread *t, const struct pawl_op *ops, size_t n, bool capture,
	      struct plan **out)
{
	struct making m = { .acc = NULL };
	u64 nacc;
	int rc = accs_count(t->e, ops, n, capture, &nacc);

	if (rc)
		return rc;
	m.p = plan_new(ops, (u32)n, (u32)nacc, capture);
	m.acc = calloc(nacc + 1, sizeof(*m.acc));
	m.edges = calloc(2 * nacc + 1, sizeof(*m.edges));
	rc = m.p && m.acc && m.edges ? plan_fill(t, &m, ops) :
	     err(-ENOMEM, "graph_create: no memory for %zu ops", n);
	free(m.acc);
	free(m.edges);
	if (rc)
		plan_free(m.p);
	else
		*out = m.p;
	return rc;
}
