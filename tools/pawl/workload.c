// SPDX-License-Identifier: Apache-2.0
/*
 * Imports workloads of other formats as ops with vars: WfFormat here, traces in traces.c.
 *
 * WfFormat (https://wfcommons.org/format, schema 1.5): a task is an op, and a file is a var;
 * the measured run time is that of the body.  The parents of a task are kept as edges, which
 * describe the order independently of the files.  A parent that no file implies is a dependence
 * that is told by the edge alone.
 *
 * A workload becomes the pushes of one thread in a serial order, which determines the position of
 * each access.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include <core/record_format.h>
#include "import.h"
#include "slurp.h"
#include "text.h"

int import_oom(struct import *im)
{
	return file_err(im->err, im->errlen, -ENOMEM, "%s: no memory", im->name);
}

int import_refuse(struct import *im, const char *what, const char *which)
{
	return file_err(im->err, im->errlen, -EBADMSG, "%s: %s%s%s", im->name, what,
			which ? ": " : "", which ? which : "");
}

int import_room(struct import *im, void **p, size_t n, size_t *cap, size_t size)
{
	size_t want = *cap ? *cap * 2 : 64;
	void *q;

	if (n < *cap)
		return 0;
	q = realloc(*p, want * size);
	if (!q)
		return import_oom(im);
	*p = q;
	*cap = want;
	return 0;
}

/* Copy a text, which is freed with the recording; returns "" without memory. */
static const char *keep(struct recording *r, const char *text)
{
	char *s = malloc(sizeof(void *) + strlen(text) + 1);

	if (!s)
		return "";
	memcpy(s, &r->data[0], sizeof(void *));
	r->data[0] = s;
	return strcpy(s + sizeof(void *), text);
}

static size_t text_hash(const char *s)
{
	uint64_t h = 0xcbf29ce484222325;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3;
	return (size_t)(h ^ h >> 32);
}

static const char **name_slot(const char **names, size_t cap, const char *text)
{
	size_t i = text_hash(text);

	while (names[i & (cap - 1)] && strcmp(names[i & (cap - 1)], text))
		i++;
	return &names[i & (cap - 1)];
}

const char *import_name(struct import *im, const char *text)
{
	const char **slot;
	size_t i;

	if (!*text)
		return "";
	if (2 * im->nnames >= im->capnames) {
		size_t cap = im->capnames ? 2 * im->capnames : 256;
		const char **names = calloc(cap, sizeof(*names));

		if (!names)
			return "";
		for (i = 0; i < im->capnames; i++)
			if (im->names[i])
				*name_slot(names, cap, im->names[i]) = im->names[i];
		free(im->names);
		im->names = names;
		im->capnames = cap;
	}
	slot = name_slot(im->names, im->capnames, text);
	if (*slot)
		return *slot;
	text = keep(im->r, text);
	if (*text) {
		*slot = text;
		im->nnames++;
	}
	return text;
}

int import_op(struct import *im, const char *name, double seconds, int64_t priority)
{
	struct recording *r = im->r;
	int rc = import_room(im, (void **)&r->ops, r->nops, &im->capops, sizeof(*r->ops));

	if (rc)
		return rc;
	if (!(seconds >= 0 && seconds < 1e9)) {
		seconds = 0;
		r->nonsense++;
	}
	r->ops[r->nops] = (struct rec_op){
		.parent = REC_NONE, .name = import_name(im, name), .access = r->naccesses, .begun = true,
		.ended = true, .index = (uint32_t)r->nops, .push = r->nops, .begin = r->length,
		.end = r->length + (uint64_t)(seconds * 1e9),
		.priority = priority >= INT32_MIN && priority <= INT32_MAX ? (int32_t)priority : 0,
	};
	r->length = r->ops[r->nops++].end;
	return 0;
}

int import_access(struct import *im, const char *var, bool write)
{
	struct recording *r = im->r;
	struct rec_op *o = &r->ops[r->nops - 1];
	json_t *known = json_object_get(im->vars, var);
	uint32_t v;
	int rc;

	if (!known) {
		v = (uint32_t)r->nvars;
		rc = import_room(im, (void **)&r->vars, r->nvars, &im->capvars, sizeof(*r->vars));
		if (!rc)
			rc = import_room(im, (void **)&im->last, r->nvars, &im->caplast, sizeof(*im->last));
		if (rc)
			return rc;
		if (json_object_set_new(im->vars, var, json_integer(v)))
			return import_oom(im);
		r->vars[r->nvars++] = (struct rec_var){ .index = v, .gen = 1 };
		im->last[v].op = REC_NONE;
	} else {
		v = (uint32_t)json_integer_value(known);
	}
	if (im->last[v].op == (uint32_t)r->nops - 1) {
		r->accesses[im->last[v].access].write |= write;
		return 0;
	}
	im->last[v] = (struct last_access){ (uint32_t)r->nops - 1, r->naccesses };
	rc = import_room(im, (void **)&r->accesses, r->naccesses, &im->capacc, sizeof(*r->accesses));
	if (rc)
		return rc;
	r->accesses[r->naccesses++] = (struct rec_access){ .var = v, .write = write };
	o->naccesses++;
	return 0;
}

/* Compute the positions of the accesses in the order of the ops. */
static void places(struct recording *r)
{
	uint32_t j;
	size_t i;

	for (i = 0; i < r->nops; i++) {
		for (j = 0; j < r->ops[i].naccesses; j++) {
			struct rec_access *a = &r->accesses[r->ops[i].access + j];
			struct rec_var *v = &r->vars[a->var];

			a->placed = true;
			a->version = v->writes;
			if (a->write)
				v->writes++;
			else
				v->reads++;
		}
	}
}

/* --- WfFormat --- */

static int files_add(struct import *im, const json_t *list, bool write, const char *task)
{
	size_t i;
	int rc = 0;

	if (list && !json_is_array(list))
		return import_refuse(im, "the files of a task are no list", task);
	for (i = 0; !rc && i < json_array_size(list); i++) {
		const char *s = json_string_value(json_array_get(list, i));

		rc = s ? import_access(im, s, write) : import_refuse(im, "a file without a name, of task", task);
	}
	return rc;
}

/* A task, and when it comes: tasks that wait for parents further down the list come later. */
struct task {
	const json_t *json;
	const char *id;
	uint32_t *parents;	/* indexes in the list */
	size_t nparents;
	size_t waits;		/* parents that have no round yet */
	size_t child, nchildren;	/* in children[] */
	uint32_t round, index;
};

static int task_cmp(const void *a, const void *b)
{
	const struct task *x = a, *y = b;

	if (x->round != y->round)
		return x->round < y->round ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static int task_add(struct import *im, const struct task *t, const json_t *runs)
{
	const json_t *run = json_object_get(runs, t->id);
	int rc;

	rc = import_op(im, t->id, json_number_value(json_object_get(run, "runtimeInSeconds")),
		    json_integer_value(json_object_get(run, "priority")));
	if (!rc)
		rc = files_add(im, json_object_get(t->json, "inputFiles"), false, t->id);
	if (!rc)
		rc = files_add(im, json_object_get(t->json, "outputFiles"), true, t->id);
	return rc;
}

/* Find the tasks and their parents by their ids. */
static int tasks_read(struct import *im, const json_t *list, struct task *tasks, size_t n)
{
	json_t *known = json_object();
	size_t i, k;
	int rc = 0;

	for (i = 0; !rc && i < n; i++) {
		struct task *t = &tasks[i];

		t->json = json_array_get(list, i);
		t->index = (uint32_t)i;
		t->id = json_string_value(json_object_get(t->json, "id"));
		if (!t->id || json_object_get(known, t->id))
			rc = import_refuse(im, t->id ? "two tasks of one id" : "a task without an id", t->id);
		else if (json_object_set_new(known, t->id, json_integer((json_int_t)i)))
			rc = import_oom(im);
	}
	for (i = 0; !rc && i < n; i++) {
		const json_t *parents = json_object_get(tasks[i].json, "parents");

		tasks[i].parents = calloc(json_array_size(parents) + 1, sizeof(uint32_t));
		if (!tasks[i].parents)
			rc = import_oom(im);
		for (k = 0; !rc && k < json_array_size(parents); k++) {
			const char *p = json_string_value(json_array_get(parents, k));
			const json_t *at = p ? json_object_get(known, p) : NULL;

			if (!at)
				rc = import_refuse(im, "a parent that is no task", p);
			else
				tasks[i].parents[tasks[i].nparents++] = (uint32_t)json_integer_value(at);
		}
	}
	json_decref(known);
	return rc;
}

/* Compute the round of each task: 0, or that of a parent, or one more if that is further down. */
static int tasks_order(struct import *im, struct task *tasks, size_t n)
{
	uint32_t *children, *queue = calloc(n + 1, sizeof(*queue));
	size_t i, k, edges = 0, head = 0, tail = 0;

	for (i = 0; i < n; i++) {
		edges += tasks[i].waits = tasks[i].nparents;
		for (k = 0; k < tasks[i].nparents; k++)
			tasks[tasks[i].parents[k]].nchildren++;
	}
	children = calloc(edges + 1, sizeof(*children));
	if (!queue || !children) {
		free(queue);
		free(children);
		return import_oom(im);
	}
	for (i = 0, k = 0; i < n; i++) {
		tasks[i].child = k;
		k += tasks[i].nchildren;
		tasks[i].nchildren = 0;
		if (!tasks[i].waits)
			queue[tail++] = (uint32_t)i;
	}
	for (i = 0; i < n; i++)
		for (k = 0; k < tasks[i].nparents; k++) {
			struct task *p = &tasks[tasks[i].parents[k]];

			children[p->child + p->nchildren++] = (uint32_t)i;
		}
	for (; head < tail; head++) {
		const struct task *p = &tasks[queue[head]];

		for (k = 0; k < p->nchildren; k++) {
			struct task *c = &tasks[children[p->child + k]];
			uint32_t round = p->round + (p->index > c->index);

			if (round > c->round)
				c->round = round;
			if (!--c->waits)
				queue[tail++] = c->index;
		}
	}
	free(queue);
	free(children);
	return tail == n ? 0 : import_refuse(im, "tasks wait for each other", NULL);
}

/* Who wrote and who read each var: the accesses in the order of the vars. */
struct users {
	size_t *first;		/* var -> its users; of the next var: the end */
	uint32_t *op;
	bool *write;
};

static int users_find(struct import *im, struct users *u)
{
	const struct recording *r = im->r;
	size_t i, v;
	uint32_t j;

	u->first = calloc(r->nvars + 2, sizeof(*u->first));
	u->op = calloc(r->naccesses + 1, sizeof(*u->op));
	u->write = calloc(r->naccesses + 1, sizeof(*u->write));
	if (!u->first || !u->op || !u->write)
		return import_oom(im);
	for (i = 0; i < r->naccesses; i++)
		u->first[r->accesses[i].var + 2]++;
	for (v = 2; v < r->nvars + 2; v++)
		u->first[v] += u->first[v - 1];
	for (i = 0; i < r->nops; i++)
		for (j = 0; j < r->ops[i].naccesses; j++) {
			const struct rec_access *a = &r->accesses[r->ops[i].access + j];
			size_t at = u->first[a->var + 1]++;

			u->op[at] = (uint32_t)i;
			u->write[at] = a->write;
		}
	return 0;
}

/* Mark the earlier ops that the files of op i order before it. */
static void files_order(const struct recording *r, const struct users *u, uint32_t i, uint32_t *mark)
{
	uint32_t j;
	size_t k;

	for (j = 0; j < r->ops[i].naccesses; j++) {
		const struct rec_access *a = &r->accesses[r->ops[i].access + j];

		for (k = u->first[a->var]; k < u->first[a->var + 1] && u->op[k] < i; k++)
			if (a->write || u->write[k])
				mark[u->op[k]] = i + 1;
	}
}

/* The parents of each op become edges. */
static int parents_add(struct import *im, const struct task *tasks, const uint32_t *place,
		       const struct users *u, uint32_t *mark)
{
	struct recording *r = im->r;
	size_t i, k;
	int rc;

	for (i = 0; i < r->nops; i++) {
		files_order(r, u, (uint32_t)i, mark);
		for (k = 0; k < tasks[i].nparents; k++) {
			uint32_t p = place[tasks[i].parents[k]];
			bool told = mark[p] != i + 1;

			rc = import_room(im, (void **)&r->edges, r->nedges, &im->capedges, sizeof(*r->edges));
			if (rc)
				return rc;
			r->told[r->nedges] = told;
			r->edges[r->nedges++] = (struct rec_edge){ p, (uint32_t)i };
			r->ntold += told;
			mark[p] = (uint32_t)i + 1;	/* it may be named twice */
		}
	}
	return 0;
}

static int parents_link(struct import *im, const struct task *tasks)
{
	size_t n = im->r->nops, i, edges = 0;
	uint32_t *place = calloc(n + 1, sizeof(*place)), *mark = calloc(n + 1, sizeof(*mark));
	struct users u = { 0 };
	int rc = place && mark ? users_find(im, &u) : import_oom(im);

	for (i = 0; !rc && i < n; i++) {
		place[tasks[i].index] = (uint32_t)i;
		edges += tasks[i].nparents;
	}
	if (!rc && edges) {
		im->r->told = calloc(edges, sizeof(*im->r->told));
		rc = im->r->told ? 0 : import_oom(im);
	}
	if (!rc)
		rc = parents_add(im, tasks, place, &u, mark);
	free(place);
	free(mark);
	free(u.first);
	free(u.op);
	free(u.write);
	return rc;
}

static int wf_tasks(struct import *im, const json_t *list, const json_t *runs)
{
	size_t n = json_array_size(list), i;
	struct task *tasks = calloc(n + 1, sizeof(*tasks));
	int rc = tasks ? tasks_read(im, list, tasks, n) : import_oom(im);

	if (!rc)
		rc = tasks_order(im, tasks, n);
	if (!rc && n)
		qsort(tasks, n, sizeof(*tasks), task_cmp);
	for (i = 0; !rc && i < n; i++)
		rc = task_add(im, &tasks[i], runs);
	if (!rc)
		rc = parents_link(im, tasks);
	for (i = 0; tasks && i < n; i++)
		free(tasks[i].parents);
	free(tasks);
	return rc;
}

static int wf_load(struct import *im, const json_t *root)
{
	const json_t *flow = json_object_get(root, "workflow");
	const json_t *tasks = json_object_get(json_object_get(flow, "specification"), "tasks");
	const json_t *list = json_object_get(json_object_get(flow, "execution"), "tasks");
	json_t *runs = json_object();
	size_t i;
	int rc = 0;

	if (!json_is_array(tasks))
		rc = import_refuse(im, "no workflow.specification.tasks", NULL);
	for (i = 0; !rc && i < json_array_size(list); i++) {
		json_t *run = json_array_get(list, i);
		const char *id = json_string_value(json_object_get(run, "id"));

		if (id && json_object_set(runs, id, run))
			rc = import_oom(im);
	}
	if (!rc)
		rc = wf_tasks(im, tasks, runs);
	json_decref(runs);
	im->r->format = "wfformat";
	return rc;
}

/* --- files --- */

/* A recording is read as a whole. */
static int recording_read(struct text *t, struct recording *r)
{
	int rc = 0;

	while (!rc && !t->end)
		rc = text_more(t);
	return rc ? rc : rec_parse(t->name, t->buf, t->n, r, t->err, t->errlen);
}

/* The events of a trace of Chrome. */
static int events_read(struct text *t, struct import *im, struct chrome **c)
{
	json_t *event;
	int next, rc;

	if (!*c)
		*c = chrome_open(im);
	rc = *c ? text_expect(t, '[') : import_oom(im);
	if (!rc)
		rc = text_peek(t, &next);
	if (!rc && next == ']')
		return text_expect(t, ']');
	while (!rc) {
		rc = text_value(t, &event);
		if (rc)
			return rc;
		rc = chrome_event(*c, event);
		json_decref(event);
		if (!rc)
			rc = text_peek(t, &next);
		if (!rc && next != ',')
			return text_expect(t, ']');
		if (!rc)
			rc = text_expect(t, ',');
	}
	return rc;
}

/* One member of the file's object.  The events of a trace are not kept. */
static int member_read(struct text *t, struct import *im, json_t *root, struct chrome **c)
{
	json_t *key = NULL, *value = NULL;
	int next, rc = text_peek(t, &next);

	if (!rc)
		rc = next == '"' ? text_value(t, &key) : text_refuse(t, "string or '}' expected");
	if (!rc)
		rc = text_expect(t, ':');
	if (!rc)
		rc = text_peek(t, &next);
	if (!rc && json_object_get(root, json_string_value(key)))
		rc = text_refuse(t, "duplicate object key");
	if (!rc && next == '[' && !strcmp(json_string_value(key), "traceEvents")) {
		rc = events_read(t, im, c);
		value = json_true();
	} else if (!rc) {
		rc = text_value(t, &value);
	}
	if (!rc && json_object_set(root, json_string_value(key), value))
		rc = import_oom(im);
	json_decref(key);
	json_decref(value);
	return rc;
}

static int root_read(struct text *t, struct import *im, json_t *root, struct chrome **c)
{
	int next, rc = text_peek(t, &next);

	/* Chrome also writes the list of events alone. */
	if (!rc && next == '[') {
		rc = events_read(t, im, c);
		if (!rc && chrome_empty(*c)) {
			chrome_close(*c);
			*c = NULL;
		}
	} else if (!rc) {
		rc = next == '{' ? text_expect(t, '{') : text_refuse(t, "'[' or '{' expected");
		if (!rc)
			rc = text_peek(t, &next);
		while (!rc && next != '}') {
			rc = member_read(t, im, root, c);
			if (!rc)
				rc = text_peek(t, &next);
			if (rc || next != ',')
				break;
			rc = text_expect(t, ',');
		}
		if (!rc)
			rc = text_expect(t, '}');
	}
	if (!rc)
		rc = text_peek(t, &next);
	if (!rc && t->at < t->n)
		rc = text_refuse(t, "end of file expected");
	return rc;
}

static int root_import(struct import *im, const json_t *root, struct chrome *c)
{
	if (json_is_object(json_object_get(root, "workflow")))
		return wf_load(im, root);
	if (json_is_array(json_object_get(root, "nodes")))
		return import_pytorch(im, root);
	if (c)
		return import_chrome(c, root);
	return import_refuse(im, "neither a recording, nor WfFormat, nor a trace of PyTorch or Chrome",
			     NULL);
}

int workload_load(const char *path, struct recording *r, char *err, size_t errlen)
{
	struct import im = { .name = path, .r = r, .err = err, .errlen = errlen };
	struct chrome *c = NULL;
	json_t *root = NULL;
	struct text t;
	int rc;

	memset(r, 0, sizeof(*r));
	rc = text_open(&t, path, err, errlen);
	if (rc)
		return rc;
	rc = text_more(&t);
	if (!rc && t.n >= 4 && get_le32((const unsigned char *)t.buf) == REC_MAGIC) {
		rc = recording_read(&t, r);
		text_close(&t);
		return rc;
	}
	root = json_object();
	im.vars = json_object();
	if (!rc)
		rc = root && im.vars ? root_read(&t, &im, root, &c) : import_oom(&im);
	r->bytes = r->whole = t.bytes + t.n;
	r->ended = true;
	r->threads = 1;
	text_close(&t);
	if (!rc)
		rc = root_import(&im, root, c);
	chrome_close(c);
	json_decref(im.vars);
	json_decref(root);
	free(im.last);
	free(im.names);
	if (rc)
		rec_free(r);
	else
		places(r);
	return rc;
}

int workload_open(const char *path, struct recording *r, uint32_t **order, size_t *n, char *err,
		  size_t errlen)
{
	char text[256] = "no memory";
	int rc = workload_load(path, r, err, errlen);

	if (rc)
		return rc;
	*order = calloc(r->nops + 1, sizeof(**order));
	rc = *order ? rec_order(r, *order, n, text, sizeof(text)) : -ENOMEM;
	if (!rc)
		return 0;
	free(*order);
	rec_free(r);
	return file_err(err, errlen, rc, "%s: %s", path, text);
}
