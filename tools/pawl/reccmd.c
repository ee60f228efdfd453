// SPDX-License-Identifier: Apache-2.0
/* pawl record: prints a recording, for people and for programs. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd.h"
#include "record.h"

static const char help[] =
"Usage: pawl record info|dump|json|trace|wfformat FILE\n"
"Show a recording of a program that ran with PAWL_RECORD=FILE (pawl_record_start(3)), or\n"
"a workload in another format that pawl replay supports.\n\n"
"  info       a summary, and whether the ops have a serial order\n"
"  dump       one line per op, in that order\n"
"  json       everything as JSON\n"
"  trace      the ops as a trace of Chrome\n"
"  wfformat   the ops as a WfFormat instance\n";

static const char *const kinds[] = { "per-device", "pooled", "naive" };
static const char *const props[] = { "normal", "copy-from-device", "copy-to-device",
				     "cpu-prioritized", "async", "delete-var", "gpu-prioritized",
				     "no-skip" };

static const char *kind_name(uint32_t kind)
{
	return kind < 3 ? kinds[kind] : "unknown";
}

static const char *prop_name(uint32_t prop)
{
	return prop < 8 ? props[prop] : "unknown";
}

/* Add the bodies of a launch to *work.  Returns the longest chain of them, or UINT64_MAX. */
static uint64_t nodes_span(const struct recording *r, const struct rec_op *o, uint64_t *work)
{
	uint64_t *from = calloc(o->nnodes + 1, sizeof(*from)), span = 0, t;
	const struct rec_node *n, *to;
	uint32_t i, k;

	if (!from)
		return UINT64_MAX;
	/* Those that wait for a body have greater numbers. */
	for (i = 0; i < o->nnodes; i++) {
		n = &r->nodes[o->node + i];
		t = n->ended && !n->skipped ? n->end - n->begin : 0;
		*work += t;
		t += from[i];
		if (t > span)
			span = t;
		for (k = 0; k < n->nsucc; k++) {
			to = rec_node_find(r, o, r->succ[n->succ + k]);
			if (to > n && from[to - &r->nodes[o->node]] < t)
				from[to - &r->nodes[o->node]] = t;
		}
	}
	free(from);
	return span;
}

/* Times of bodies: the sum of all, and the longest chain of dependent ops. */
static int span_of(const struct recording *r, const uint32_t *order, size_t n, uint64_t *work,
		   uint64_t *span)
{
	struct last { uint64_t write, reads; } *last = calloc(r->nvars + 1, sizeof(*last));
	uint64_t t, *end = calloc(r->nops + 1, sizeof(*end));	/* of the chain up to each op */
	size_t *edge = calloc(r->nops + 2, sizeof(*edge)), i, k;	/* edges ascend by after */
	uint32_t j;

	int rc = -ENOMEM;

	*work = *span = 0;
	if (!last || !end || !edge)
		goto out;
	for (i = 0; i < r->nedges; i++)
		edge[r->edges[i].after + 1]++;
	for (i = 0; i < r->nops; i++)
		edge[i + 1] += edge[i];
	for (i = 0; i < n; i++) {
		const struct rec_op *o = &r->ops[order[i]];

		for (k = edge[order[i]], t = 0; k < edge[order[i] + 1]; k++)
			if (end[r->edges[k].before] > t)
				t = end[r->edges[k].before];
		for (j = 0; j < o->naccesses; j++) {
			const struct rec_access *a = &r->accesses[o->access + j];
			const struct last *l = &last[a->var];

			if (l->write > t)
				t = l->write;
			if (a->write && l->reads > t)
				t = l->reads;
		}
		if (o->launch) {
			k = nodes_span(r, o, work);
			if (k == UINT64_MAX)
				goto out;
			t += k;
		} else if (o->ended) {
			t += o->end - o->begin;
			*work += o->end - o->begin;
		}
		for (j = 0; j < o->naccesses; j++) {
			const struct rec_access *a = &r->accesses[o->access + j];
			struct last *l = &last[a->var];

			if (a->write)
				*l = (struct last){ t, 0 };
			else if (t > l->reads)
				l->reads = t;
		}
		end[order[i]] = t;
		if (t > *span)
			*span = t;
	}
	rc = 0;
out:
	free(last);
	free(end);
	free(edge);
	return rc;
}

static int u64_cmp(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Percentiles of the times from one event of the ops to another. */
static void quantiles(const struct recording *r, const char *what, bool body)
{
	uint64_t *t = calloc(r->nops + r->nnodes + 1, sizeof(*t));
	size_t i, n = 0;

	for (i = 0; t && body && i < r->nnodes; i++)
		if (r->nodes[i].ended && !r->nodes[i].skipped)
			t[n++] = r->nodes[i].end - r->nodes[i].begin;
	for (i = 0; t && i < r->nops; i++) {
		const struct rec_op *o = &r->ops[i];

		if (!(body ? o->ended && !o->launch : o->begun))
			continue;
		t[n++] = body ? o->end - o->begin : o->begin > o->push ? o->begin - o->push : 0;
	}
	if (n) {
		qsort(t, n, sizeof(*t), u64_cmp);
		printf("%-10s p50 %.3f us, p99 %.3f us, max %.3f us\n", what, (double)t[n / 2] / 1e3,
		       (double)t[n - 1 - n / 100] / 1e3, (double)t[n - 1] / 1e3);
	}
	free(t);
}

static void info_file(const struct recording *r, const char *path)
{
	time_t started = (time_t)r->started;
	char when[64] = "";
	struct tm tm;
	size_t i;

	printf("file       %s: %s, %" PRIu64 " bytes%s\n", path, r->format, r->bytes,
	       r->ended ? "" : ", ends early");
	if (strcmp(r->format, "pawl"))
		return;
	if (gmtime_r(&started, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", &tm);
	printf("written    by %s (process %" PRIu32 ") with pawl %s, from %s for %.6f s\n",
	       r->program, r->pid, r->library, when, (double)r->length / 1e9);
	if (!r->ended)
		printf("           whole up to byte %" PRIu64 ": the program did not end it\n",
		       r->whole);
	if (r->lost)
		printf("           %" PRIu64 " events or more are missing, for lack of memory\n",
		       r->lost);
	for (i = 0; i < r->nengines; i++) {
		const struct rec_engine *e = &r->engines[i];

		printf("engine %-3" PRIu32 " \"%s\", %s, %" PRIu32 " workers, %" PRIu32
		       " devices\n",
		       e->number, e->name, kind_name(e->kind), e->workers, e->devices);
	}
}

static int info(const struct recording *r, const char *path, const uint32_t *order, size_t n)
{
	size_t i, begun = 0, ended = 0, failed = 0, undone = 0, writes = 0, inside = 0, launches = 0;
	uint64_t work, span;

	for (i = 0; i < r->nops; i++) {
		const struct rec_op *o = &r->ops[i];

		undone += o->undone;
		begun += o->begun;
		ended += o->ended;
		failed += o->ended && o->status;
		inside += o->parent != REC_NONE && !o->undone;
		launches += o->launch && !o->undone;
	}
	for (i = 0; i < r->naccesses; i++)
		writes += r->accesses[i].write;
	info_file(r, path);
	printf("ops        %zu pushed by %" PRIu32 " threads, %zu of them in bodies; %zu begun, "
	       "%zu over, %zu with an error, %zu refused\n", r->nops - undone, r->threads, inside,
	       begun, ended, failed, undone);
	if (launches)
		printf("launches   %zu of these ops, with %zu bodies\n", launches, r->nnodes);
	printf("vars       %zu; %zu reads, %zu writes\n", r->nvars, r->naccesses - writes,
	       writes);
	if (r->nedges)
		printf("parents    %zu, of which no file implies %zu\n", r->nedges, r->ntold);
	if (r->covered > 0)
		printf("covered    %.1f %% of the time of the trace%s\n", r->covered * 100,
		       r->covered < .9 ? ": warning: the ops are not what takes the time" : "");
	else if (r->covered < 0)
		printf("covered    the trace has no times\n");
	if (r->nwaits)
		printf("waits      %zu\n", r->nwaits);
	if (r->foreign)
		printf("others     %" PRIu64 " events of ops that were pushed before\n", r->foreign);
	quantiles(r, "queued", false);
	quantiles(r, "bodies", true);
	if (!span_of(r, order, n, &work, &span))
		printf("work       %.6f s, longest chain %.6f s: parallelism %.2f\n", (double)work / 1e9,
		       (double)span / 1e9, span ? (double)work / (double)span : 1.0);
	printf("order      serial order of %zu ops found\n", n);
	return 0;
}

/* The bodies of a launch, each with those that wait for it. */
static void dump_nodes(const struct recording *r, const struct rec_op *o)
{
	uint32_t i, k;

	for (i = 0; i < o->nnodes; i++) {
		const struct rec_node *n = &r->nodes[o->node + i];

		printf(" {%" PRIu32 " \"%s\"%s%s %.3f", n->number, n->name, n->async ? " async" : "",
		       n->skipped ? " skipped" : "", (double)n->begin / 1e3);
		if (n->ended)
			printf(" %.3f %" PRIu32 " %" PRId32, (double)n->end / 1e3, n->runner, n->status);
		else
			printf(" - - -");
		for (k = 0; k < n->nsucc; k++)
			printf(" >%" PRIu32, r->succ[n->succ + k]);
		putchar('}');
	}
}

static int dump(const struct recording *r, const uint32_t *order, size_t n)
{
	uint32_t j;
	size_t i;

	printf("# place op engine:thread push_us begin_us end_us runner status \"name\" prop prio "
	       "device accesses (r|w var@version)\n");
	for (i = 0; i < n; i++) {
		const struct rec_op *o = &r->ops[order[i]];

		printf("%zu %" PRIu32 " %" PRIu32 ":%" PRIu32 " %.3f", i, order[i], o->engine,
		       o->thread, (double)o->push / 1e3);
		if (o->begun)
			printf(" %.3f", (double)o->begin / 1e3);
		else
			printf(" -");
		if (o->ended)
			printf(" %.3f %" PRIu32 " %" PRId32, (double)o->end / 1e3, o->runner,
			       o->status);
		else
			printf(" - - -");
		printf(" \"%s\" %s%s%s%s%s%s %" PRId32 " %" PRIu32, o->name, prop_name(o->prop),
		       o->async ? "+async" : "", o->empty ? "+empty" : "", o->more ? "+more" : "",
		       o->ends ? "+ends" : "", o->launch ? "+launch" : "", o->priority, (uint32_t)o->device);
		for (j = 0; j < o->naccesses; j++) {
			const struct rec_access *a = &r->accesses[o->access + j];

			printf(" %c%" PRIu32, a->write ? 'w' : 'r', a->var);
			if (a->placed)
				printf("@%" PRIu64, a->version);
		}
		dump_nodes(r, o);
		putchar('\n');
	}
	return 0;
}

static void json_text(const char *s)
{
	putchar('"');
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void json_nodes(const struct recording *r, const struct rec_op *o)
{
	uint32_t i, k;

	printf(",\"launch\":true,\"bodies\":[");
	for (i = 0; i < o->nnodes; i++) {
		const struct rec_node *n = &r->nodes[o->node + i];

		printf("%s{\"body\":%" PRIu32 ",\"name\":", i ? "," : "", n->number);
		json_text(n->name);
		printf(",\"async\":%s,\"skipped\":%s,\"begin_ns\":%" PRIu64 ",\"runner\":%" PRIu32,
		       n->async ? "true" : "false", n->skipped ? "true" : "false", n->begin,
		       n->runner);
		if (n->ended)
			printf(",\"end_ns\":%" PRIu64 ",\"status\":%" PRId32, n->end, n->status);
		printf(",\"next\":[");
		for (k = 0; k < n->nsucc; k++)
			printf("%s%" PRIu32, k ? "," : "", r->succ[n->succ + k]);
		printf("]}");
	}
	putchar(']');
}

static void json_op(const struct recording *r, uint32_t number)
{
	const struct rec_op *o = &r->ops[number];
	uint32_t j;

	printf("{\"op\":%" PRIu32 ",\"engine\":%" PRIu32 ",\"thread\":%" PRIu32 ",\"name\":",
	       number, o->engine, o->thread);
	json_text(o->name);
	printf(",\"prop\":\"%s\",\"priority\":%" PRId32 ",\"device\":%u,\"async\":%s,\"more\":%s"
	       ",\"push_ns\":%" PRIu64, prop_name(o->prop), o->priority, o->device,
	       o->async ? "true" : "false", o->more ? "true" : "false", o->push);
	if (o->begun)
		printf(",\"begin_ns\":%" PRIu64 ",\"runner\":%" PRIu32, o->begin, o->runner);
	if (o->ended)
		printf(",\"end_ns\":%" PRIu64 ",\"status\":%" PRId32, o->end, o->status);
	if (o->ends)
		printf(",\"ends\":true");
	if (o->parent != REC_NONE)
		printf(",\"parent\":%" PRIu32, o->parent);
	if (o->launch)
		json_nodes(r, o);
	printf(",\"accesses\":[");
	for (j = 0; j < o->naccesses; j++) {
		const struct rec_access *a = &r->accesses[o->access + j];

		printf("%s{\"var\":%" PRIu32 ",\"write\":%s", j ? "," : "", a->var,
		       a->write ? "true" : "false");
		if (a->placed)
			printf(",\"version\":%" PRIu64, a->version);
		putchar('}');
	}
	printf("]}");
}

static int json(const struct recording *r, const uint32_t *order, size_t n)
{
	size_t i;

	printf("{\"format\":\"pawl-record\",\"version\":1,\"source\":\"%s\",\"program\":",
	       r->format);
	json_text(r->program);
	printf(",\"ended\":%s,\"length_ns\":%" PRIu64 ",\"lost\":%" PRIu64 ",\n\"engines\":[",
	       r->ended ? "true" : "false", r->length, r->lost);
	for (i = 0; i < r->nengines; i++) {
		const struct rec_engine *e = &r->engines[i];

		printf("%s{\"engine\":%" PRIu32 ",\"kind\":\"%s\",\"workers\":%" PRIu32
		       ",\"devices\":%" PRIu32 "}", i ? "," : "", e->number, kind_name(e->kind),
		       e->workers, e->devices);
	}
	printf("],\n\"ops\":[");
	for (i = 0; i < n; i++) {
		printf(i ? ",\n" : "\n");
		json_op(r, order[i]);
	}
	printf("],\n\"waits\":[");
	for (i = 0; i < r->nwaits; i++) {
		const struct rec_wait *w = &r->waits[i];

		printf("%s{\"engine\":%" PRIu32 ",\"thread\":%" PRIu32 ",\"begin_ns\":%" PRIu64,
		       i ? ",\n" : "\n", w->engine, w->thread, w->begin);
		if (w->var != REC_NONE)
			printf(",\"var\":%" PRIu32 ",\"write\":%s", w->var, w->write ? "true" : "false");
		if (w->after != REC_NONE)
			printf(",\"after\":%" PRIu32, w->after);
		if (w->ended)
			printf(",\"end_ns\":%" PRIu64 ",\"status\":%" PRId32, w->end,
			       w->status);
		putchar('}');
	}
	printf("]}\n");
	return 0;
}

/* --- other formats --- */

/* An edge from a parent to a child: places in the order. */
struct link {
	size_t from, to;
};

static int link_cmp(const void *a, const void *b)
{
	const struct link *x = a, *y = b;

	return x->from != y->from ? (x->from < y->from ? -1 : 1) : x->to < y->to ? -1 : x->to > y->to;
}

/*
 * The last write of each var, or the reads since then, precede an access; and what the source says
 * besides.  Sorted by `from`, then by `to`, each once.
 */
static struct link *links(const struct recording *r, const uint32_t *order, size_t n, size_t *count)
{
	struct last { size_t write, reads; } *last = calloc(r->nvars + 1, sizeof(*last));
	size_t *before = calloc(r->naccesses + 1, sizeof(*before));	/* the read before, + 1 */
	size_t *by = calloc(r->naccesses + 1, sizeof(*by)), i, k, unique = 0;
	size_t *place = calloc(r->nops + 1, sizeof(*place));	/* in the order, + 1 */
	struct link *l = calloc(2 * r->naccesses + r->nedges + 1, sizeof(*l));
	uint32_t j;

	*count = 0;
	for (i = 0; place && i < n; i++)
		place[order[i]] = i + 1;
	for (i = 0; place && l && i < r->nedges; i++)
		if (place[r->edges[i].before] && place[r->edges[i].after])
			l[(*count)++] = (struct link){ place[r->edges[i].before] - 1,
						       place[r->edges[i].after] - 1 };
	for (i = 0; last && before && by && l && i < n; i++)
		for (j = 0; j < r->ops[order[i]].naccesses; j++) {
			size_t at = r->ops[order[i]].access + j;
			struct last *v = &last[r->accesses[at].var];

			by[at] = i;
			if (!r->accesses[at].write) {
				if (v->write)
					l[(*count)++] = (struct link){ v->write - 1, i };
				before[at] = v->reads;
				v->reads = at + 1;
				continue;
			}
			for (k = v->reads; k; k = before[k - 1])
				l[(*count)++] = (struct link){ by[k - 1], i };
			if (!v->reads && v->write)
				l[(*count)++] = (struct link){ v->write - 1, i };
			*v = (struct last){ i + 1, 0 };
		}
	if (!last || !before || !by || !place) {
		free(l);
		l = NULL;
	}
	free(place);
	free(last);
	free(before);
	free(by);
	if (!l)
		return NULL;
	qsort(l, *count, sizeof(*l), link_cmp);
	for (i = 0; i < *count; i++)
		if (!unique || link_cmp(&l[unique - 1], &l[i]))
			l[unique++] = l[i];
	*count = unique;
	return l;
}

/* One event of Chrome's trace format; ts and dur are microseconds. */
static void event(const char *sep, char ph, const char *cat, const char *name, uint32_t engine,
		  uint32_t thread, uint64_t ns)
{
	printf("%s\n{\"ph\":\"%c\",\"cat\":\"%s\",\"name\":", sep, ph, cat);
	json_text(*name ? name : "op");
	/* no process and no thread of the kernel has such a number */
	printf(",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"ts\":%.3f", engine + 1, 5000000 + thread,
	       (double)ns / 1e3);
}

/* Where an arrow begins or ends: at the slice of a body. */
struct slice {
	uint32_t engine, runner;
	uint64_t begin, end;
};

/* That of an op, or of the last or the first body of a launch.  Returns false if there is none. */
static bool slice_of(const struct recording *r, const struct rec_op *o, bool first, struct slice *s)
{
	bool found = !o->launch && o->ended && !o->async;
	uint32_t i;

	*s = (struct slice){ o->engine, o->runner == REC_NONE ? o->thread : o->runner, o->begin, o->end };
	for (i = 0; o->launch && i < o->nnodes; i++) {
		const struct rec_node *n = &r->nodes[o->node + i];

		if (!n->ended || n->skipped || n->async ||
		    (found && !(first ? n->begin < s->begin : n->end > s->end)))
			continue;
		*s = (struct slice){ o->engine, n->runner, n->begin, n->end };
		found = true;
	}
	return found;
}

/* Returns false if it would lead back, because the one before was asynchronous or the clocks differ. */
static bool arrow(const struct slice *from, const struct slice *to, uint64_t id)
{
	if (to->begin < from->begin)
		return false;
	event(",", 's', "dep", "dep", from->engine, from->runner, from->begin);
	printf(",\"id\":%" PRIu64 "}", id);
	event(",", 'f', "dep", "dep", to->engine, to->runner, to->begin);
	printf(",\"id\":%" PRIu64 ",\"bp\":\"e\"}", id);
	return true;
}

/* Arrows along the vars, and between the bodies of launches.  Returns how many cannot be shown. */
static int64_t arrows(const struct recording *r, const uint32_t *order, size_t n)
{
	struct slice from, to;
	size_t count, i;
	struct link *l = links(r, order, n, &count);
	const struct rec_node *next;
	uint64_t id = 0, missing = 0;
	uint32_t k;

	if (!l)
		return -1;
	for (i = 0; i < count; i++)
		if (slice_of(r, &r->ops[order[l[i].from]], false, &from) &&
		    slice_of(r, &r->ops[order[l[i].to]], true, &to) && arrow(&from, &to, id + 1))
			id++;
		else
			missing++;
	free(l);
	for (i = 0; i < r->nnodes; i++) {
		const struct rec_node *b = &r->nodes[i];
		const struct rec_op *o = &r->ops[b->op];

		from = (struct slice){ o->engine, b->runner, b->begin, b->end };
		for (k = 0; k < b->nsucc; k++) {
			next = rec_node_find(r, o, r->succ[b->succ + k]);
			if (next)
				to = (struct slice){ o->engine, next->runner, next->begin, next->end };
			if (next && b->ended && next->ended && !b->skipped && !next->skipped &&
			    !b->async && !next->async && arrow(&from, &to, id + 1))
				id++;
			else
				missing++;
		}
	}
	return (int64_t)missing;
}

/* Bodies are slices of their threads; asynchronous ones and launches are async events. */
static int chrome(const struct recording *r, const uint32_t *order, size_t n)
{
	const char *sep = "";
	int64_t missing;
	size_t i;

	printf("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
	for (i = 0; i < n; i++) {
		const struct rec_op *o = &r->ops[order[i]];
		const char *cat = o->launch ? "launch" : "async", *name = o->launch ? cat : o->name;
		uint32_t runner = o->runner == REC_NONE ? o->thread : o->runner;

		if (!o->ended)
			continue;
		if (!o->launch && !o->async) {
			event(sep, 'X', "op", name, o->engine, runner, o->begin);
			printf(",\"dur\":%.3f,\"args\":{\"op\":%" PRIu32 "}}",
			       (double)(o->end - o->begin) / 1e3, order[i]);
		} else {
			event(sep, 'b', cat, name, o->engine, runner, o->begin);
			printf(",\"id\":%" PRIu32 "}", order[i]);
			event(",", 'e', cat, name, o->engine, runner, o->end);
			printf(",\"id\":%" PRIu32 "}", order[i]);
		}
		sep = ",";
	}
	for (i = 0; i < r->nnodes; i++) {
		const struct rec_node *k = &r->nodes[i];
		uint32_t engine = r->ops[k->op].engine;

		if (!k->ended || k->skipped)
			continue;
		event(sep, k->async ? 'b' : 'X', "op", k->name, engine, k->runner, k->begin);
		if (k->async) {
			printf(",\"id\":\"%" PRIu32 ".%" PRIu32 "\"}", k->op, k->number);
			event(",", 'e', "op", k->name, engine, k->runner, k->end);
			printf(",\"id\":\"%" PRIu32 ".%" PRIu32 "\"}", k->op, k->number);
		} else {
			printf(",\"dur\":%.3f,\"args\":{\"op\":%" PRIu32 "}}",
			       (double)(k->end - k->begin) / 1e3, k->op);
		}
		sep = ",";
	}
	missing = arrows(r, order, n);
	printf("\n],\"otherData\":{\"arrows_missing\":%" PRId64 "}}\n", missing);
	return missing < 0 ? -ENOMEM : 0;
}

static void files(const struct recording *r, const struct rec_op *o, const char *key, bool write)
{
	const char *sep = "";
	uint32_t j;

	printf(",\"%s\":[", key);
	for (j = 0; j < o->naccesses; j++) {
		if (r->accesses[o->access + j].write != write)
			continue;
		printf("%s\"var%" PRIu32 "\"", sep, r->accesses[o->access + j].var);
		sep = ",";
	}
	putchar(']');
}

static void tasks(const char *key, const struct link *l, size_t first, size_t last, bool to)
{
	const char *sep = "";
	size_t i;

	printf(",\"%s\":[", key);
	for (i = first; i < last; i++) {
		printf("%s\"op%zu\"", sep, to ? l[i].to : l[i].from);
		sep = ",";
	}
	putchar(']');
}

/* A WfFormat instance: an op is a task, and a var a file. */
static int wfformat(const struct recording *r, const uint32_t *order, size_t n)
{
	size_t count, i, p = 0, c = 0, end;
	struct link *down = links(r, order, n, &count), *up = calloc(count + 1, sizeof(*up));

	if (!down || !up) {
		free(down);
		free(up);
		return -ENOMEM;
	}
	for (i = 0; i < count; i++)
		up[i] = (struct link){ down[i].to, down[i].from };
	qsort(up, count, sizeof(*up), link_cmp);
	printf("{\"name\":\"pawl\",\"schemaVersion\":\"1.5\",\"workflow\":{\"specification\":{\"tasks\":[");
	for (i = 0; i < n; i++) {
		const struct rec_op *o = &r->ops[order[i]];

		printf("%s\n{\"id\":\"op%zu\",\"name\":", i ? "," : "", i);
		json_text(*o->name ? o->name : "op");
		for (end = p; end < count && up[end].from == i; end++)
			;
		tasks("parents", up, p, end, true);
		for (p = end, end = c; end < count && down[end].from == i; end++)
			;
		tasks("children", down, c, end, true);
		c = end;
		files(r, o, "inputFiles", false);
		files(r, o, "outputFiles", true);
		putchar('}');
	}
	printf("],\"files\":[");
	for (i = 0; i < r->nvars; i++)
		printf("%s{\"id\":\"var%zu\",\"sizeInBytes\":0}", i ? "," : "", i);
	printf("]},\"execution\":{\"makespanInSeconds\":%.9f,\"executedAt\":\"1970-01-01T00:00:00Z\","
	       "\"tasks\":[", (double)r->length / 1e9);
	for (i = 0; i < n; i++) {
		const struct rec_op *o = &r->ops[order[i]];

		printf("%s\n{\"id\":\"op%zu\",\"runtimeInSeconds\":%.9f,\"priority\":%" PRId32 "}",
		       i ? "," : "", i, o->ended ? (double)(o->end - o->begin) / 1e9 : 0.0, o->priority);
	}
	printf("]}}}\n");
	free(down);
	free(up);
	return 0;
}

static int show(const char *self, const char *what, const char *path)
{
	struct recording r;
	uint32_t *order;
	char err[256];
	size_t n;
	int rc;

	if (workload_open(path, &r, &order, &n, err, sizeof(err))) {
		fprintf(stderr, "%s: %s\n", self, err);
		return STATUS_FAILED;
	}
	if (!strcmp(what, "info"))
		rc = info(&r, path, order, n);
	else if (!strcmp(what, "dump"))
		rc = dump(&r, order, n);
	else if (!strcmp(what, "trace"))
		rc = chrome(&r, order, n);
	else if (!strcmp(what, "wfformat"))
		rc = wfformat(&r, order, n);
	else
		rc = json(&r, order, n);
	free(order);
	rec_free(&r);
	return rc ? STATUS_FAILED : STATUS_OK;
}

int cmd_record(int argc, char **argv)
{
	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		fputs(help, stdout);
		return STATUS_OK;
	}
	if (argc != 3 || (strcmp(argv[1], "info") && strcmp(argv[1], "dump") &&
			  strcmp(argv[1], "json") && strcmp(argv[1], "trace") &&
			  strcmp(argv[1], "wfformat"))) {
		fprintf(stderr, "%s: info, dump, json, trace or wfformat, and a file\nTry '%s --help'.\n", argv[0],
			argv[0]);
		return STATUS_USAGE;
	}
	return show(argv[0], argv[1], argv[2]);
}
