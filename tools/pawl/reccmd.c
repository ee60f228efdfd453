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
#include "out.h"
#include "reccmd.h"
#include "slurp.h"

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

/*
 * Percentiles of times.  Up to EXACT of them are kept; more are counted in classes, which are a
 * thousandth wide.
 */
struct times {
	uint64_t *t, n, max;
	uint64_t *count;	/* by class; NULL: t has them all */
};

#define EXACT		((size_t)1 << 18)
#define CLASS_BITS	10
#define CLASSES		((65u - CLASS_BITS) << CLASS_BITS)

static size_t class_of(uint64_t t)
{
	unsigned int shift = t >> CLASS_BITS ? 63 - (unsigned int)__builtin_clzll(t) - CLASS_BITS : 0;

	return ((size_t)shift << CLASS_BITS) + (t >> shift);
}

static uint64_t class_start(size_t c)
{
	size_t shift = c >> CLASS_BITS ? (c >> CLASS_BITS) - 1 : 0;

	return (uint64_t)(c - (shift << CLASS_BITS)) << shift;
}

static int time_add(struct times *s, uint64_t t)
{
	uint64_t i;

	if (!s->t)
		s->t = calloc(EXACT, sizeof(*s->t));
	if (!s->t)
		return -ENOMEM;
	if (t > s->max)
		s->max = t;
	if (s->n == EXACT && !s->count) {
		s->count = calloc(CLASSES, sizeof(*s->count));
		if (!s->count)
			return -ENOMEM;
		for (i = 0; i < EXACT; i++)
			s->count[class_of(s->t[i])]++;
	}
	if (s->count)
		s->count[class_of(t)]++;
	else
		s->t[s->n] = t;
	s->n++;
	return 0;
}

static int u64_cmp(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The time before which there are n others. */
static double time_at(const struct times *s, uint64_t n)
{
	size_t c;

	if (!s->count)
		return (double)s->t[n] / 1e3;
	for (c = 0; n >= s->count[c]; c++)
		n -= s->count[c];
	return (double)class_start(c) / 1e3;
}

static void times_print(const char *what, struct times *s)
{
	if (s->n && !s->count)
		qsort(s->t, s->n, sizeof(*s->t), u64_cmp);
	if (s->n)
		printf("%-10s p50 %.3f us, p99 %.3f us, max %.3f us\n", what, time_at(s, s->n / 2),
		       time_at(s, s->n - 1 - s->n / 100), (double)s->max / 1e3);
	free(s->t);
	free(s->count);
	*s = (struct times){ 0 };
}

/* What pawl record info says of all ops. */
struct summary {
	const struct source *s;
	uint64_t n, begun, ended, failed, inside, launches;
	uint64_t work, span;		/* of bodies: the sum, and the longest chain of dependent ops */
	uint64_t *end;			/* of the chain up to each op, if there are edges */
	struct times queued, bodies;
};

static int info_times(struct summary *m, const struct recording *r, const struct rec_op *o)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; i < o->nnodes && !rc; i++)
		if (r->nodes[i].ended && !r->nodes[i].skipped)
			rc = time_add(&m->bodies, r->nodes[i].end - r->nodes[i].begin);
	if (!rc && o->ended && !o->launch)
		rc = time_add(&m->bodies, o->end - o->begin);
	if (!rc && o->begun)
		rc = time_add(&m->queued, o->begin > o->push ? o->begin - o->push : 0);
	return rc;
}

static int info_op(void *ctx, const struct flow_op *op)
{
	struct summary *m = ctx;
	const struct source *s = m->s;
	const struct rec_op *o = &op->one->ops[0];
	uint64_t t = 0, k;
	uint32_t j;

	m->n++;
	m->begun += o->begun;
	m->ended += o->ended;
	m->failed += o->ended && o->status;
	m->inside += o->parent != REC_NONE;
	m->launches += o->launch;
	if (m->end)
		for (k = s->edge[op->number]; k < s->edge[op->number + 1]; k++)
			if (m->end[s->mem.edges[s->edge_of[k]].before] > t)
				t = m->end[s->mem.edges[s->edge_of[k]].before];
	for (j = 0; j < o->naccesses; j++) {
		if (op->vars[j]->write > t)
			t = op->vars[j]->write;
		if (op->one->accesses[j].write && op->vars[j]->reads > t)
			t = op->vars[j]->reads;
	}
	if (o->launch) {
		k = nodes_span(op->one, o, &m->work);
		if (k == UINT64_MAX)
			return -ENOMEM;
		t += k;
	} else if (o->ended) {
		t += o->end - o->begin;
		m->work += o->end - o->begin;
	}
	for (j = 0; j < o->naccesses; j++) {
		if (op->one->accesses[j].write) {
			op->vars[j]->write = t;
			op->vars[j]->reads = 0;
		} else if (t > op->vars[j]->reads) {
			op->vars[j]->reads = t;
		}
	}
	if (m->end)
		m->end[op->number] = t;
	if (t > m->span)
		m->span = t;
	return info_times(m, op->one, o);
}

static void info_free(struct summary *m)
{
	free(m->end);
	free(m->queued.t);
	free(m->queued.count);
	free(m->bodies.t);
	free(m->bodies.count);
}

static void info_again(void *ctx)
{
	struct summary *m = ctx;

	info_free(m);
	*m = (struct summary){ .s = m->s };
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

static int info(struct source *s)
{
	static const struct flow_sink sink = { .op = info_op };
	struct summary m = { .s = s };
	const struct recording *r = source_info(s);
	uint64_t undone, writes;
	int rc = 0;

	if (r->nedges) {
		m.end = calloc(r->nops + 1, sizeof(*m.end));
		rc = m.end ? 0 : -ENOMEM;
	}
	if (!rc)
		rc = source_run(s, &sink, &m, info_again);
	if (rc) {
		info_free(&m);
		return rc;
	}
	r = source_info(s);
	source_counts(s, &undone, &writes);
	info_file(r, s->path);
	printf("ops        %" PRIu64 " pushed by %" PRIu32 " threads, %" PRIu64 " of them in bodies; %"
	       PRIu64 " begun, %" PRIu64 " over, %" PRIu64 " with an error, %" PRIu64 " refused\n",
	       m.n, r->threads, m.inside, m.begun, m.ended, m.failed, undone);
	if (m.launches)
		printf("launches   %" PRIu64 " of these ops, with %zu bodies\n", m.launches, r->nnodes);
	printf("vars       %zu; %" PRIu64 " reads, %" PRIu64 " writes\n", r->nvars,
	       r->naccesses - writes, writes);
	if (r->nedges)
		printf("parents    %zu, of which no file implies %zu\n", r->nedges, r->ntold);
	if (r->covered > 0)
		printf("covered    %.1f %% of the time of the trace%s\n", r->covered * 100,
		       r->covered < .9 ? ": warning: the ops are not what takes the time" : "");
	else if (r->covered < 0)
		printf("covered    the trace has no times\n");
	if (r->nonsense)
		printf("left out   %" PRIu64 " events and times that have no meaning\n", r->nonsense);
	if (r->nwaits)
		printf("waits      %zu\n", r->nwaits);
	if (r->foreign)
		printf("others     %" PRIu64 " events of ops that were pushed before\n", r->foreign);
	times_print("queued", &m.queued);
	times_print("bodies", &m.bodies);
	printf("work       %.6f s, longest chain %.6f s: parallelism %.2f\n", (double)m.work / 1e9,
	       (double)m.span / 1e9, m.span ? (double)m.work / (double)m.span : 1.0);
	printf("order      serial order of %" PRIu64 " ops found\n", m.n);
	info_free(&m);
	return 0;
}

static void dump_end(struct out *out, bool ended, uint64_t ns, uint32_t runner, int32_t status)
{
	out_print(out, ended ? " " : " - - -");
	if (!ended)
		return;
	out_fixed(out, ns, 3);
	out_print(out, " %" PRIu32 " %" PRId32, runner, status);
}

/* The bodies of a launch, each with those that wait for it. */
static void dump_nodes(struct out *out, const struct recording *r, const struct rec_op *o)
{
	uint32_t i, k;

	for (i = 0; i < o->nnodes; i++) {
		const struct rec_node *n = &r->nodes[o->node + i];

		out_print(out, " {%" PRIu32 " ", n->number);
		out_json(out, n->name);
		out_print(out, "%s%s ", n->async ? " async" : "", n->skipped ? " skipped" : "");
		out_fixed(out, n->begin, 3);
		dump_end(out, n->ended, n->end, n->runner, n->status);
		for (k = 0; k < n->nsucc; k++)
			out_print(out, " >%" PRIu32, r->succ[n->succ + k]);
		out_print(out, "}");
	}
}

static int dump_op(void *ctx, const struct flow_op *op)
{
	const struct rec_op *o = &op->one->ops[0];
	struct out *out = ctx;
	uint32_t j;

	out_print(out, "%" PRIu64 " %" PRIu32 " %" PRIu32 ":%" PRIu32 " ", op->place, op->number, o->engine,
		  o->thread);
	out_fixed(out, o->push, 3);
	out_print(out, o->begun ? " " : " -");
	if (o->begun)
		out_fixed(out, o->begin, 3);
	dump_end(out, o->ended, o->end, o->runner, o->status);
	out_print(out, " ");
	out_json(out, o->name);
	out_print(out, " %s%s%s%s%s%s %" PRId32 " %" PRIu32, prop_name(o->prop),
	       o->async ? "+async" : "", o->empty ? "+empty" : "", o->more ? "+more" : "",
	       o->ends ? "+ends" : "", o->launch ? "+launch" : "", o->priority, (uint32_t)o->device);
	for (j = 0; j < o->naccesses; j++) {
		const struct rec_access *a = &op->one->accesses[j];

		out_print(out, " %c%" PRIu32, a->write ? 'w' : 'r', a->var);
		if (a->placed)
			out_print(out, "@%" PRIu64, a->version);
	}
	dump_nodes(out, op->one, o);
	out_print(out, "\n");
	return 0;
}

static int dump(struct source *s)
{
	static const struct flow_sink sink = { .op = dump_op };
	struct out out = { .f = stdout };
	int rc;

	out_print(&out, "# place op engine:thread push_us begin_us end_us runner status \"name\" prop prio "
	       "device accesses (r|w var@version)\n");
	rc = source_run(s, &sink, &out, NULL);
	out_flush(&out);
	return rc;
}

static void json_nodes(struct out *out, const struct recording *r, const struct rec_op *o)
{
	uint32_t i, k;

	out_print(out, ",\"launch\":true,\"bodies\":[");
	for (i = 0; i < o->nnodes; i++) {
		const struct rec_node *n = &r->nodes[o->node + i];

		out_print(out, "%s{\"body\":%" PRIu32 ",\"name\":", i ? "," : "", n->number);
		out_json(out, n->name);
		out_print(out, ",\"async\":%s,\"skipped\":%s,\"begin_ns\":%" PRIu64 ",\"runner\":%" PRIu32,
		       n->async ? "true" : "false", n->skipped ? "true" : "false", n->begin,
		       n->runner);
		if (n->ended)
			out_print(out, ",\"end_ns\":%" PRIu64 ",\"status\":%" PRId32, n->end, n->status);
		out_print(out, ",\"next\":[");
		for (k = 0; k < n->nsucc; k++)
			out_print(out, "%s%" PRIu32, k ? "," : "", r->succ[n->succ + k]);
		out_print(out, "]}");
	}
	out_print(out, "]");
}

/* The ops go to standard output, the waits to a file, whose contents follow. */
struct json {
	const char *sep, *waits_sep;
	struct out out, waits;
};

static int json_op(void *ctx, const struct flow_op *op)
{
	const struct recording *r = op->one;
	const struct rec_op *o = &r->ops[0];
	struct json *js = ctx;
	struct out *out = &js->out;
	uint32_t number = op->number, j;

	out_print(out, "%s{\"op\":%" PRIu32 ",\"engine\":%" PRIu32 ",\"thread\":%" PRIu32 ",\"name\":",
		  js->sep, number, o->engine, o->thread);
	js->sep = ",\n";
	out_json(out, o->name);
	out_print(out, ",\"prop\":\"%s\",\"priority\":%" PRId32 ",\"device\":%u,\"async\":%s,\"more\":%s"
	       ",\"push_ns\":%" PRIu64, prop_name(o->prop), o->priority, o->device,
	       o->async ? "true" : "false", o->more ? "true" : "false", o->push);
	if (o->begun)
		out_print(out, ",\"begin_ns\":%" PRIu64 ",\"runner\":%" PRIu32, o->begin, o->runner);
	if (o->ended)
		out_print(out, ",\"end_ns\":%" PRIu64 ",\"status\":%" PRId32, o->end, o->status);
	if (o->ends)
		out_print(out, ",\"ends\":true");
	if (o->parent != REC_NONE)
		out_print(out, ",\"parent\":%" PRIu32, o->parent);
	if (o->launch)
		json_nodes(out, r, o);
	out_print(out, ",\"accesses\":[");
	for (j = 0; j < o->naccesses; j++) {
		const struct rec_access *a = &r->accesses[o->access + j];

		out_print(out, "%s{\"var\":%" PRIu32 ",\"write\":%s", j ? "," : "", a->var,
		       a->write ? "true" : "false");
		if (a->placed)
			out_print(out, ",\"version\":%" PRIu64, a->version);
		out_print(out, "}");
	}
	out_print(out, "]}");
	return 0;
}

static void json_wait(void *ctx, const struct rec_wait *w)
{
	struct json *js = ctx;
	struct out *out = &js->waits;

	out_print(out, "%s{\"engine\":%" PRIu32 ",\"thread\":%" PRIu32 ",\"begin_ns\":%" PRIu64,
		js->waits_sep, w->engine, w->thread, w->begin);
	js->waits_sep = ",\n";
	if (w->var != REC_NONE)
		out_print(out, ",\"var\":%" PRIu32 ",\"write\":%s", w->var, w->write ? "true" : "false");
	if (w->after != REC_NONE)
		out_print(out, ",\"after\":%" PRIu32, w->after);
	if (w->ended)
		out_print(out, ",\"end_ns\":%" PRIu64 ",\"status\":%" PRId32, w->end, w->status);
	out_print(out, "}");
}

static int json(struct source *s)
{
	static const struct flow_sink sink = { .op = json_op, .wait = json_wait };
	struct json js = { .sep = "\n", .out.f = stdout, .waits.f = tmpfile(), .waits_sep = "\n" };
	const struct recording *r = source_info(s);
	char text[4096];
	size_t i;
	int rc;

	if (!js.waits.f)
		return file_err(s->err, s->errlen, -errno, "no temporary file: %s", strerror(errno));
	out_print(&js.out, "{\"format\":\"pawl-record\",\"version\":1,\"source\":\"%s\",\"program\":",
	       r->format);
	out_json(&js.out, r->program);
	out_print(&js.out, ",\"ended\":%s,\"length_ns\":%" PRIu64 ",\"lost\":%" PRIu64 ",\n\"engines\":[",
	       r->ended ? "true" : "false", r->length, r->lost);
	for (i = 0; i < r->nengines; i++) {
		const struct rec_engine *e = &r->engines[i];

		out_print(&js.out, "%s{\"engine\":%" PRIu32 ",\"kind\":\"%s\",\"workers\":%" PRIu32
		       ",\"devices\":%" PRIu32 "}", i ? "," : "", e->number, kind_name(e->kind),
		       e->workers, e->devices);
	}
	out_print(&js.out, "],\n\"ops\":[");
	rc = source_run(s, &sink, &js, NULL);
	out_print(&js.out, "],\n\"waits\":[");
	out_flush(&js.waits);
	out_flush(&js.out);
	rewind(js.waits.f);
	while (!rc && (i = fread(text, 1, sizeof(text), js.waits.f)) > 0)
		fwrite(text, 1, i, stdout);
	if (!rc && ferror(js.waits.f))
		rc = file_err(s->err, s->errlen, -EIO, "the temporary file cannot be read");
	fclose(js.waits.f);
	out_print(&js.out, "]}\n");
	out_flush(&js.out);
	return rc;
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

static void files(struct out *out, const struct recording *r, const struct rec_op *o, const char *key,
		  bool write)
{
	const char *sep = "";
	uint32_t j;

	out_print(out, ",\"%s\":[", key);
	for (j = 0; j < o->naccesses; j++) {
		if (r->accesses[o->access + j].write != write)
			continue;
		out_print(out, "%s\"var%" PRIu32 "\"", sep, r->accesses[o->access + j].var);
		sep = ",";
	}
	out_print(out, "]");
}

static void tasks(struct out *out, const char *key, const struct link *l, size_t first, size_t last,
		  bool to)
{
	const char *sep = "";
	size_t i;

	out_print(out, ",\"%s\":[", key);
	for (i = first; i < last; i++) {
		out_print(out, "%s\"op%zu\"", sep, to ? l[i].to : l[i].from);
		sep = ",";
	}
	out_print(out, "]");
}

/* A WfFormat instance: an op is a task, and a var a file. */
static int wfformat(const struct recording *r, const uint32_t *order, size_t n)
{
	struct out buffer = { .f = stdout }, *out = &buffer;
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
	out_print(out, "{\"name\":\"pawl\",\"schemaVersion\":\"1.5\","
		  "\"workflow\":{\"specification\":{\"tasks\":[");
	for (i = 0; i < n; i++) {
		const struct rec_op *o = &r->ops[order[i]];

		out_print(out, "%s\n{\"id\":\"op%zu\",\"name\":", i ? "," : "", i);
		out_json(out, *o->name ? o->name : "op");
		for (end = p; end < count && up[end].from == i; end++)
			;
		tasks(out, "parents", up, p, end, true);
		for (p = end, end = c; end < count && down[end].from == i; end++)
			;
		tasks(out, "children", down, c, end, true);
		c = end;
		files(out, r, o, "inputFiles", false);
		files(out, r, o, "outputFiles", true);
		out_print(out, "}");
	}
	out_print(out, "],\"files\":[");
	for (i = 0; i < r->nvars; i++)
		out_print(out, "%s{\"id\":\"var%zu\",\"sizeInBytes\":0}", i ? "," : "", i);
	out_print(out, "]},\"execution\":{\"makespanInSeconds\":");
	out_fixed(out, r->length, 9);
	out_print(out, ",\"executedAt\":\"1970-01-01T00:00:00Z\",\"tasks\":[");
	for (i = 0; i < n; i++) {
		const struct rec_op *o = &r->ops[order[i]];

		out_print(out, "%s\n{\"id\":\"op%zu\",\"runtimeInSeconds\":", i ? "," : "", i);
		out_fixed(out, o->ended ? o->end - o->begin : 0, 9);
		out_print(out, ",\"priority\":%" PRId32 "}", o->priority);
	}
	out_print(out, "]}}}\n");
	out_flush(out);
	free(down);
	free(up);
	return 0;
}

/* As tasks name those before and behind them, this is written from memory. */
static int show_wfformat(const char *path, char *err, size_t errlen)
{
	struct recording r;
	uint32_t *order;
	size_t n;
	int rc = workload_open(path, &r, &order, &n, err, errlen);

	if (rc)
		return rc;
	rc = wfformat(&r, order, n);
	free(order);
	rec_free(&r);
	return rc ? file_err(err, errlen, rc, "%s: no memory", path) : 0;
}

static int show(const char *self, const char *what, const char *path)
{
	static const struct { const char *what; int (*fn)(struct source *s); } shows[] = {
		{ "info", info }, { "dump", dump }, { "json", json }, { "trace", record_trace } };
	char err[256] = "no memory";
	struct source s;
	size_t i;
	int rc;

	if (!strcmp(what, "wfformat")) {
		rc = show_wfformat(path, err, sizeof(err));
	} else {
		rc = source_open(&s, path, err, sizeof(err));
		if (!rc && strcmp(what, "info"))
			rc = source_check(&s);
		for (i = 0; !rc && strcmp(shows[i].what, what); i++)
			;
		if (!rc)
			rc = shows[i].fn(&s);
		source_close(&s);
	}
	if (rc)
		fprintf(stderr, "%s: %s\n", self, err);
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
