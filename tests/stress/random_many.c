// SPDX-License-Identifier: Apache-2.0
/* Programs of several pushers: oracle C. */
#include "random.h"

struct pusher {
	struct program *p;
	u64 seed;
	u32 first, n;		/* its range of p->op */
	u32 deps, async, batch, nv, waits, notes;
	const u16 *map;
	bool timed;
};

static u64 stamps;		/* A: a clock that all threads share */
static u32 nodes;		/* A */

static void *pusher(void *arg)
{
	struct pusher *u = arg;
	struct program *p = u->p;
	struct desc *d = calloc(24, sizeof(*d));
	struct pawl_op ops[24];
	u32 at = 0, i;

	while (at < u->n) {
		u32 k = rnd(&u->seed) % 100 < u->batch ? (u32)(rnd(&u->seed) % 20) + 1 : 1;
		u32 node = fetch_add_relaxed(&nodes, 1);
		struct op *o;
		bool single;
		u64 begin;
		int rc;

		k = min_u(k, u->n - at);
		o = &p->op[u->first + at];
		for (i = 0; i < k; i++) {
			o[i].id = u->first + at + i;
			op_make(p, &o[i], &d[i], u->map, u->nv, u->deps, &u->seed);
			op_body(&o[i], &d[i], u->async, &u->seed);
			if (rnd(&u->seed) % 100 < u->notes)
				op_notes(&o[i], &d[i]);
			d[i].op.prop = random_prop(&u->seed);
			d[i].op.priority = rnd(&u->seed) % 3 ? 0 : (s32)(rnd(&u->seed) % 9) - 4;
			o[i].node = node;
			ops[i] = d[i].op;
		}
		begin = u->timed ? fetch_add_relaxed(&stamps, 1) : 0;
		single = k == 1 && rnd(&u->seed) % 8;
		/* Completions take room until they are reaped, and a push does not wait for that. */
		while ((rc = single ? pawl_push(p->e, ops) : pawl_push_batch(p->e, ops, k))) {
			GOOD(rc == -EAGAIN && u->notes);
			notes_reap(p);
		}
		for (i = 0; i < k; i++) {
			/* Set after the push: bodies read neither. */
			o[i].begin = begin;
			o[i].end = u->timed ? fetch_add_relaxed(&stamps, 1) : ~0ull;
		}
		at += k;
		/* Completions that are not reaped keep their notes. */
		if (u->notes)
			notes_reap(p);
		if (o->noted && rnd(&u->seed) % 100 < u->waits) {
			GOOD(!pawl_ticket_wait(p->e, o->ticket, -1));
			GOOD(load_acquire(&o->released) == 1);
			GOOD(pawl_ticket_state(p->e, o->ticket) == PAWL_TICKET_COMPLETE);
		}
		if (rnd(&u->seed) % 100 < u->waits) {
			pawl_var_t v = p->slot[u->map[rnd(&u->seed) % u->nv]].v;
			s64 limit = rnd(&u->seed) % 2 ? -1 : (s64)(rnd(&u->seed) % 50000);
			int wrc = rnd(&u->seed) % 3 ? pawl_wait_readable(p->e, v, limit, NULL) :
						     pawl_wait_writable(p->e, v, limit, NULL);

			GOOD(wrc == 0 || (wrc == -ETIMEDOUT && limit >= 0));
		}
	}
	free(d);
	return NULL;
}

struct edge { u32 to, next; };

struct graph {
	u32 n, nedges, cap;
	u32 *head, *indeg;
	u64 *place, *latest;
	struct edge *edge;
};

static void edge_add(struct graph *g, u32 from, u32 to)
{
	if (from == to)
		return;
	if (g->nedges == g->cap) {
		g->cap = g->cap ? 2 * g->cap : 4096;
		g->edge = realloc(g->edge, g->cap * sizeof(*g->edge));
	}
	g->edge[g->nedges] = (struct edge){ to, g->head[from] };
	g->head[from] = ++g->nedges;
	g->indeg[to]++;
}

/* Check that one order of all pushes explains what the ops saw. */
static void oracle_c(struct program *p, u32 nthreads, const struct pusher *u)
{
	struct graph g = { .n = nodes };
	u32 i, k, s, done = 0, *queue = calloc(g.n + 1, sizeof(*queue)), qn = 0;

	g.head = calloc(g.n, sizeof(*g.head));
	g.indeg = calloc(g.n, sizeof(*g.indeg));
	g.place = calloc(g.n, sizeof(*g.place));
	g.latest = calloc(g.n, sizeof(*g.latest));
	for (i = 0; i < nthreads; i++)
		for (k = 0; k < u[i].n; k++) {
			struct op *o = &p->op[u[i].first + k];

			g.place[o->node] = o->begin;
			g.latest[o->node] = o->end;
			if (k)
				edge_add(&g, o[-1].node, o->node);
		}
	for (s = 0; s < p->nslots; s++) {
		u64 top = p->slot[s].version;
		u32 *writer = calloc(top + 2, sizeof(*writer));	/* of version i: op + 1 */

		for (i = 0; i < p->nops; i++)
			for (k = 0; k < p->op[i].n; k++) {
				struct op *o = &p->op[i];

				if (o->slot[k] != s || !o->write[k])
					continue;
				if (o->saw[k] >= top || writer[o->saw[k] + 1])
					broken("two ops make version %llu of slot %u",
					       (unsigned long long)o->saw[k] + 1, s);
				writer[o->saw[k] + 1] = i + 1;
			}
		for (i = 1; i <= top; i++) {
			if (!writer[i])
				broken("nobody made version %u of slot %u", i, s);
			if (i > 1) {
				struct op *a = &p->op[writer[i - 1] - 1],
					  *b = &p->op[writer[i] - 1];

				/* Inside a batch: the order of the batch. */
				if (a->node == b->node && a->id > b->id)
					broken("ops %u and %u of one batch: wrong order", b->id,
					       a->id);
				edge_add(&g, a->node, b->node);
			}
		}
		for (i = 0; i < p->nops; i++)
			for (k = 0; k < p->op[i].n; k++) {
				struct op *o = &p->op[i];
				u64 x = o->saw[k];

				if (o->slot[k] != s || o->write[k])
					continue;
				GOOD(x <= top);
				if (x) {
					struct op *w = &p->op[writer[x] - 1];

					if (w->node == o->node && w->id > o->id)
						broken("op %u reads what op %u of its batch will write", o->id, w->id);
					edge_add(&g, w->node, o->node);
				}
				if (x < top) {
					struct op *w = &p->op[writer[x + 1] - 1];

					if (w->node == o->node && w->id < o->id)
						broken("op %u does not read what op %u of its batch wrote", o->id, w->id);
					edge_add(&g, o->node, w->node);
				}
			}
		free(writer);
	}
	for (i = 0; i < g.n; i++)
		if (!g.indeg[i])
			queue[qn++] = i;
	while (done < qn) {
		u32 x = queue[done++], e;

		if (g.place[x] > g.latest[x])
			broken("push %u was over before another that must be in front of it began", x);
		for (e = g.head[x]; e; e = g.edge[e - 1].next) {
			u32 to = g.edge[e - 1].to;

			if (g.place[to] < g.place[x])
				g.place[to] = g.place[x];
			if (!--g.indeg[to])
				queue[qn++] = to;
		}
	}
	if (done != g.n)
		broken("no serial order: %u of %u pushes are in a cycle", g.n - done, g.n);
	free(queue);
	free(g.head);
	free(g.indeg);
	free(g.place);
	free(g.latest);
	free(g.edge);
}

void several(u64 program)
{
	struct program *p = calloc(1, sizeof(*p));
	struct pusher u[THREADS_MAX];
	u32 n = 2 + (u32)(program % 3), nv, each, i;
	u64 seed = program, writes = 0, seen = 0;
	pthread_t t[THREADS_MAX];
	u16 map[VARS_MAX];

	p->seed = program;
	p->multi = true;
	p->slot = calloc(VARS_MAX, sizeof(*p->slot));
	p->op = calloc(OPS_MAX + 100, sizeof(*p->op));
	engine_make(p, &seed, true);
	memset(u, 0, sizeof(u));
	nv = 1 + (u32)(rnd(&seed) % (rnd(&seed) % 2 ? 5 : VARS_MAX));
	each = 30 + (u32)(rnd(&seed) % (OPS_MAX / THREADS_MAX - 30));
	for (i = 0; i < nv; i++)
		map[i] = slot_new(p);
	u[0].deps = 1 + (u32)(rnd(&seed) % DEPS_MAX);
	u[0].async = rnd(&seed) % 2 ? 0 : (u32)(rnd(&seed) % 60);
	u[0].batch = rnd(&seed) % 2 ? 0 : (u32)(rnd(&seed) % 50);
	u[0].waits = (u32)(rnd(&seed) % 10);
	u[0].timed = rnd(&seed) % 2;
	u[0].notes = rnd(&seed) % 2 ? 0 : (u32)(rnd(&seed) % 60);
	u[0].nv = nv;
	u[0].map = map;
	u[0].p = p;
	p->nops = n * each;
	p->ncompleters = u[0].async ? 1 : 0;
	store_relaxed(&nodes, 0);
	store_relaxed(&stamps, 1);
	if (verbose)
		printf("  %u pushers: %u ops each, %u vars, deps %u, async %u%%, batch %u%%, wait %u%%, timed %d\n",
		       n, each, nv, u[0].deps, u[0].async, u[0].batch, u[0].waits, u[0].timed);
	notes_begin(p);
	program_begin(p);
	for (i = 0; i < n; i++) {
		u[i] = u[0];
		u[i].seed = rnd(&seed);
		u[i].first = i * each;
		u[i].n = each;
		/* u[0] is the template of the others until all are created */
	}
	for (i = 0; i < n; i++)
		t[i] = spawn(pusher, &u[i]);
	for (i = 0; i < n; i++)
		join(t[i]);
	GOOD(!pawl_wait_all(p->e, -1, NULL));
	notes_end(p);
	for (i = 0; i < p->nops; i++) {
		u32 k;

		GOOD(p->op[i].ran == (p->op[i].body != NO_BODY));
		GOOD(p->op[i].released == 1);
		GOOD(p->op[i].status == 0);
		for (k = 0; k < p->op[i].n; k++)
			writes += p->op[i].write[k];
	}
	for (i = 0; i < p->nslots; i++) {
		GOOD(!p->slot[i].readers && !p->slot[i].writers);
		GOOD(version(p->e, p->slot[i].v) == p->slot[i].version);
		seen += p->slot[i].version;
	}
	GOOD(writes == seen);
	oracle_c(p, n, u);
	program_end(p);
}
