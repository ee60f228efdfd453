// SPDX-License-Identifier: Apache-2.0
/*
 * What pawl top shows of an engine, as JSON: the counters that the engine has, its queues, what
 * has not moved since the last call, and the groups and completion queues that are fullest.
 *
 * Progress: bounded by the number of ops, threads, groups and queues so far; the first call of an
 * engine allocates.  The calling thread only reads what others write, and delays none.
 */
#include <stdio.h>
#include <base/name.h>
#include <core/admit.h>
#include <core/cq.h>
#include <core/insight.h>
#include <core/opgroup.h>
#include <core/watch.h>

#define SNAPSHOT_MOST	8u	/* entries of each list */
#define SNAPSHOT_NAME	128u

void snapshot_string(struct text *t, const char *s)
{
	char c[NAME_ROOM];
	u32 code;

	text_add(t, "\"");
	while (*s) {
		code = name_next(&s);
		text_add(t, "%s%.*s", code == '"' || code == '\\' ? "\\" : "",
			 (int)name_put(c, code), c);
	}
	text_add(t, "\"");
}

/* The largest entries by a key, the first one first. */
struct largest {
	u32 n;
	struct {
		double key;
		union {
			struct group_use group;
			struct { u64 h, n; } cq;
			struct { struct pawl_stalled s; char name[SNAPSHOT_NAME]; } held;
		};
	} entry[SNAPSHOT_MOST + 1];
};

/* Make room for an entry with this key.  Returns its position, at the end if it is too small. */
static u32 largest_add(struct largest *l, double key)
{
	u32 i;

	for (i = l->n; i && l->entry[i - 1].key < key; i--)
		l->entry[i] = l->entry[i - 1];
	l->n = (u32)min_u(l->n + 1, SNAPSHOT_MOST);
	l->entry[i].key = key;
	return i;
}

static void held_add(void *arg, const struct pawl_stalled *s)
{
	struct largest *l = arg;
	u32 i = largest_add(l, (double)s->ns);

	l->entry[i].held.s = *s;
	name_copy(l->entry[i].held.name, SNAPSHOT_NAME, s->name ? s->name : "");
}

static void held_text(struct text *t, struct pawl_engine *e)
{
	static const char *const what[] = { "body", "async", "queue" };
	struct largest l = { 0 };
	u32 i;

	watch_published(e, held_add, &l);
	text_add(t, ",\"held\":[");
	for (i = 0; i < l.n; i++) {
		const struct pawl_stalled *s = &l.entry[i].held.s;

		text_add(t, "%s{\"what\":\"%s\",\"ns\":%llu,\"name\":", i ? "," : "", what[s->what],
			 (unsigned long long)s->ns);
		snapshot_string(t, l.entry[i].held.name);
		if (s->what != PAWL_STALLED_QUEUE)
			text_add(t, ",\"thread\":%u", s->thread);
		if (s->var.h)
			text_add(t, ",\"var\":\"%u.%u\"", (u32)s->var.h, (u32)(s->var.h >> 32));
		text_add(t, ",\"behind\":%llu}", (unsigned long long)s->behind);
	}
	text_add(t, "]");
}

static double part(u64 n, u64 most)
{
	return most ? (double)n / (double)most : 0;
}

static void groups_text(struct text *t, struct pawl_engine *e)
{
	u32 n = pool_carved(e->pool[POOL_GROUP]), i;
	struct largest l = { 0 };
	struct group_use u;
	double ops, cost;

	for (i = 1; i <= n; i++) {
		if (!group_use(e, i, &u) || (!u.h && !u.max_cost))
			continue;
		ops = part(u.ops, u.max_ops);
		cost = part(u.cost, u.max_cost);
		l.entry[largest_add(&l, ops > cost ? ops : cost)].group = u;
	}
	text_add(t, ",\"ngroups\":%u,\"groups\":[", load_relaxed(&e->ngroups));
	for (i = 0; i < l.n; i++) {
		u = l.entry[i].group;
		text_add(t, "%s{\"group\":\"%u.%u\",\"ops\":%llu,\"max_ops\":%llu,\"cost\":%llu,"
			 "\"max_cost\":%llu,\"full\":%.3f}", i ? "," : "", (u32)u.h,
			 (u32)(u.h >> 32), (unsigned long long)u.ops,
			 (unsigned long long)u.max_ops, (unsigned long long)u.cost,
			 (unsigned long long)u.max_cost, l.entry[i].key);
	}
	text_add(t, "]");
}

/* Completions take room in the window until they are reaped. */
static void cqs_text(struct text *t, struct pawl_engine *e)
{
	u32 n = pool_carved(e->pool[POOL_CQ]), i, k, p;
	struct largest l = { 0 };
	u64 h;

	for (i = 1; i <= n; i++) {
		h = cq_use(e, i, &k);
		if (!(h >> 32 & 1))
			continue;
		p = largest_add(&l, part(k, e->window));
		l.entry[p].cq.h = h;
		l.entry[p].cq.n = k;
	}
	text_add(t, ",\"ncqs\":%u,\"cqs\":[", load_relaxed(&e->ncqs));
	for (i = 0; i < l.n; i++)
		text_add(t, "%s{\"cq\":\"%u.%u\",\"completions\":%llu,\"full\":%.3f}", i ? "," : "",
			 (u32)l.entry[i].cq.h, (u32)(l.entry[i].cq.h >> 32),
			 (unsigned long long)l.entry[i].cq.n, l.entry[i].key);
	text_add(t, "]");
}

static void queues_text(struct text *t, struct pawl_engine *e)
{
	struct exec_queue_stats s;
	struct exec_queue *q;
	u32 i, k;

	text_add(t, ",\"queues\":[");
	for (i = 0; (q = exec_queue_at(e->x, i)); i++) {
		exec_queue_stats(q, &s);
		text_add(t, "%s{\"name\":", i ? "," : "");
		snapshot_string(t, s.name);
		text_add(t, ",\"workers\":%u,\"depth\":%llu,\"pushed\":%llu,\"wait_ns\":%llu,\"wait\":[",
			 s.workers, (unsigned long long)s.depth, (unsigned long long)s.pushed,
			 (unsigned long long)s.wait_ns);
		for (k = 0; k < ARRAY_SIZE(s.wait); k++)
			text_add(t, "%s%llu", k ? "," : "", (unsigned long long)s.wait[k]);
		text_add(t, "]}");
	}
	text_add(t, "]");
}

/* Threads that run a body, or help to run one. */
static u32 bodies(struct pawl_engine *e)
{
	struct thread *t;
	u32 i, n = 0;

	for_each_live(e, t, i)
		n += !!load_relaxed(&t->running);
	return n;
}

void snapshot_engine(struct text *t, struct pawl_engine *e)
{
	static const char *const kind[] = { "per-device", "pooled", "naive" };
	struct pawl_stats s = { .size = sizeof(s) };
	const struct { const char *name; u64 value; } f[] = {
		{ "window", e->window }, { "in_window", window_flight(e) },
		{ "running", bodies(e) }, { "tracing", !!load_relaxed(&e->tracing) },
	}, *i;
	const struct { const char *name; const u64 *value; } g[] = {
		{ "pushed", &s.pushed }, { "completed", &s.completed }, { "failed", &s.failed },
		{ "skipped", &s.skipped }, { "inlined", &s.inlined }, { "helped", &s.helped },
		{ "handed", &s.handed }, { "stolen", &s.stolen }, { "sleeps", &s.sleeps },
		{ "wakes", &s.wakes }, { "bytes", &s.bytes }, { "address_space", &s.address_space },
		{ "unreaped", &s.unreaped },
	}, *j;

	pawl_stats(e, &s);
	text_add(t, "{\"engine\":%llu,\"name\":", (unsigned long long)e->id);
	snapshot_string(t, exec_name(e->x));
	text_add(t, ",\"kind\":\"%s\",\"threads\":%u,\"workers\":%u", kind[e->kind], s.threads,
		 s.workers);
	for (i = f; i < f + ARRAY_SIZE(f); i++)
		text_add(t, ",\"%s\":%llu", i->name, (unsigned long long)i->value);
	for (j = g; j < g + ARRAY_SIZE(g); j++)
		text_add(t, ",\"%s\":%llu", j->name, (unsigned long long)*j->value);
	queues_text(t, e);
	held_text(t, e);
	groups_text(t, e);
	cqs_text(t, e);
	text_add(t, "}");
}
