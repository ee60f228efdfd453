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

static int dump_op(void *ctx, const struct flow_op *op)
{
	const struct rec_op *o = &op->one->ops[0];
	uint32_t j;

	(void)ctx;
	printf("%" PRIu64 " %" PRIu32 " %" PRIu32 ":%" PRIu32 " %.3f", op->place, op->number, o->engine,
	       o->thread, (double)o->push / 1e3);
	if (o->begun)
		printf(" %.3f", (double)o->begin / 1e3);
	else
		printf(" -");
	if (o->ended)
		printf(" %.3f %" PRIu32 " %" PRId32, (double)o->end / 1e3, o->runner, o->status);
	else
		printf(" - - -");
	printf(" \"%s\" %s%s%s%s%s%s %" PRId32 " %" PRIu32, o->name, prop_name(o->prop),
	       o->async ? "+async" : "", o->empty ? "+empty" : "", o->more ? "+more" : "",
	       o->ends ? "+ends" : "", o->launch ? "+launch" : "", o->priority, (uint32_t)o->device);
	for (j = 0; j < o->naccesses; j++) {
		const struct rec_access *a = &op->one->accesses[j];

		printf(" %c%" PRIu32, a->write ? 'w' : 'r', a->var);
		if (a->placed)
			printf("@%" PRIu64, a->version);
	}
	dump_nodes(op->one, o);
	putchar('\n');
	return 0;
}

static int dump(struct source *s)
{
	static const struct flow_sink sink = { .op = dump_op };

	printf("# place op engine:thread push_us begin_us end_us runner status \"name\" prop prio "
	       "device accesses (r|w var@version)\n");
	return source_run(s, &sink, NULL, NULL);
}

void json_print(const char *s)
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
		json_print(n->name);
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

/* The ops go to standard output, the waits to a file, whose contents follow. */
struct json {
	const char *sep;
	FILE *waits;
	const char *waits_sep;
};

static int json_op(void *ctx, const struct flow_op *op)
{
	const struct recording *r = op->one;
	const struct rec_op *o = &r->ops[0];
	struct json *out = ctx;
	uint32_t number = op->number, j;

	fputs(out->sep, stdout);
	out->sep = ",\n";
	printf("{\"op\":%" PRIu32 ",\"engine\":%" PRIu32 ",\"thread\":%" PRIu32 ",\"name\":",
	       number, o->engine, o->thread);
	json_print(o->name);
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
	return 0;
}

static void json_wait(void *ctx, const struct rec_wait *w)
{
	struct json *out = ctx;
	FILE *f = out->waits;

	fprintf(f, "%s{\"engine\":%" PRIu32 ",\"thread\":%" PRIu32 ",\"begin_ns\":%" PRIu64,
		out->waits_sep, w->engine, w->thread, w->begin);
	out->waits_sep = ",\n";
	if (w->var != REC_NONE)
		fprintf(f, ",\"var\":%" PRIu32 ",\"write\":%s", w->var, w->write ? "true" : "false");
	if (w->after != REC_NONE)
		fprintf(f, ",\"after\":%" PRIu32, w->after);
	if (w->ended)
		fprintf(f, ",\"end_ns\":%" PRIu64 ",\"status\":%" PRId32, w->end, w->status);
	putc('}', f);
}

static int json(struct source *s)
{
	static const struct flow_sink sink = { .op = json_op, .wait = json_wait };
	struct json out = { .sep = "\n", .waits = tmpfile(), .waits_sep = "\n" };
	const struct recording *r = source_info(s);
	char text[4096];
	size_t i;
	int rc;

	if (!out.waits)
		return file_err(s->err, s->errlen, -errno, "no temporary file: %s", strerror(errno));
	printf("{\"format\":\"pawl-record\",\"version\":1,\"source\":\"%s\",\"program\":",
	       r->format);
	json_print(r->program);
	printf(",\"ended\":%s,\"length_ns\":%" PRIu64 ",\"lost\":%" PRIu64 ",\n\"engines\":[",
	       r->ended ? "true" : "false", r->length, r->lost);
	for (i = 0; i < r->nengines; i++) {
		const struct rec_engine *e = &r->engines[i];

		printf("%s{\"engine\":%" PRIu32 ",\"kind\":\"%s\",\"workers\":%" PRIu32
		       ",\"devices\":%" PRIu32 "}", i ? "," : "", e->number, kind_name(e->kind),
		       e->workers, e->devices);
	}
	printf("],\n\"ops\":[");
	rc = source_run(s, &sink, &out, NULL);
	printf("],\n\"waits\":[");
	rewind(out.waits);
	while (!rc && (i = fread(text, 1, sizeof(text), out.waits)) > 0)
		fwrite(text, 1, i, stdout);
	if (!rc && ferror(out.waits))
		rc = file_err(s->err, s->errlen, -EIO, "the temporary file cannot be read");
	fclose(out.waits);
	printf("]}\n");
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
		json_print(*o->name ? o->name : "op");
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
