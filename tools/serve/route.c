// SPDX-License-Identifier: Apache-2.0
/*
 * The endpoints: the Open Inference Protocol and those of Triton's extensions that exist here.
 * Answers that need only what the loop knows are given at once; calls on the repository go to
 * the main thread.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve.h"

#define MAX_PARTS	8
#define MAX_CONTROL	65536u		/* bytes of the body of a control call */
static const char as_json[] = "application/json";

struct version *table_find(const struct table *t, const char *name, size_t n, int64_t version)
{
	unsigned int lo = 0, hi = t->n, mid;
	int cmp;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		cmp = strncmp(t->at[mid].e->name, name, n);
		if (!cmp && t->at[mid].e->name[n])
			cmp = 1;
		if (cmp < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < t->n && !strncmp(t->at[lo].e->name, name, n) && !t->at[lo].e->name[n]; lo++)
		if (version == NEWEST || t->at[lo].v->m->version == version)
			return t->at[lo].v;
	return NULL;
}

/* Takes the reference to o. */
static void answer_json(struct conn *c, json_t *o)
{
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	if (text)
		conn_answer(c, 200, as_json, text, strlen(text));
	else
		conn_error(c, 503, "out of memory");
	free(text);
}

static json_t *ios(const struct serve_io *io, unsigned int n, bool config)
{
	json_t *all = json_array(), *dims;
	unsigned int i, k;
	char type[16];

	for (i = 0; i < n; i++) {
		dims = json_array();
		for (k = 0; k < io[i].rank; k++)
			json_array_append_new(dims, json_integer(io[i].dims[k]));
		snprintf(type, sizeof(type), "TYPE_%s",
			 io[i].type == SERVE_BYTES ? "STRING" : type_name[io[i].type]);
		json_array_append_new(all,
				      config ? json_pack("{s:s, s:s, s:o}", "name", io[i].name,
							 "data_type", type, "dims", dims) :
					       json_pack("{s:s, s:s, s:o}", "name", io[i].name,
							 "datatype", type_name[io[i].type],
							 "shape", dims));
	}
	return all;
}

static void metadata(struct conn *c, const struct version *v)
{
	const struct table *t = c->loop->table;
	const struct serve_model *m = v->m;
	json_t *all = json_array();
	char version[24];
	unsigned int i;

	for (i = 0; i < t->n; i++) {
		if (t->at[i].e != v->e)
			continue;
		snprintf(version, sizeof(version), "%" PRId64, t->at[i].v->m->version);
		json_array_append_new(all, json_string(version));
	}
	answer_json(c, json_pack("{s:s, s:o, s:s, s:o, s:o}", "name", m->name, "versions",
				 all, "platform", m->platform, "inputs",
				 ios(m->inputs, m->ninputs, false), "outputs",
				 ios(m->outputs, m->noutputs, false)));
}

/* As Triton calls it. */
static const char *config_backend(const struct serve_model *m)
{
	return strcmp(m->backend, "onnxruntime") ? m->platform : m->backend;
}

static void config(struct conn *c, const struct version *v)
{
	const struct model_conf *conf = &v->e->conf;
	const struct serve_model *m = v->m;
	unsigned int i, most = m->batch && conf->max_batch > 1 ? conf->max_batch : 0;
	json_t *o, *sizes = json_array();

	for (i = 0; i < conf->npreferred; i++)
		json_array_append_new(sizes, json_integer(conf->preferred[i]));
	/* with batches, Triton's dims leave out the first */
	o = json_pack("{s:s, s:s, s:s, s:i, s:o, s:o, s:[{s:s, s:i, s:s}]}", "name", m->name,
		      "platform", m->platform, "backend",
		      config_backend(m), "max_batch_size",
		      (int)most, "input", ios(m->inputs, m->ninputs, true), "output",
		      ios(m->outputs, m->noutputs, true), "instance_group", "name", m->name,
		      "count", (int)conf->instances, "kind", "KIND_CPU");
	if (o && most) {
		const char *const list[] = { "input", "output" };
		size_t k, x;
		json_t *io;

		for (k = 0; k < 2; k++)
			json_array_foreach(json_object_get(o, list[k]), x, io)
				json_array_remove(json_object_get(io, "dims"), 0);
		json_object_set_new(
			o, "dynamic_batching",
			json_pack("{s:O, s:I, s:{s:I, s:I}, s:i, s:i}", "preferred_batch_size",
				  sizes, "max_queue_delay_microseconds",
				  (json_int_t)(conf->delay_ns / 1000), "default_queue_policy",
				  "default_timeout_microseconds",
				  (json_int_t)(conf->timeout_ns / 1000), "max_queue_size",
				  (json_int_t)conf->queue_requests, "priority_levels", LEVELS,
				  "default_priority_level", LEVELS / 2));
	}
	json_decref(sizes);
	answer_json(c, o);
}

/* The main thread has answered. */
static void control_done(struct msg *m)
{
	struct conn *c = m->arg;
	struct control *ct = c->control;

	c->request_pending--;
	c->control = NULL;
	if (c->state == CONN_DEAD) {
		conn_close(c);
	} else {
		if (ct->http == 200)
			conn_answer(c, 200, as_json, ct->text, ct->text ? strlen(ct->text) : 0);
		else
			conn_error(c, ct->http, "%s", ct->text ? ct->text : "out of memory");
		conn_continue(c);
	}
	free(ct->text);
	free(ct);
}

static void control_arrived(struct msg *m)
{
	struct control *ct = m->arg;
	struct server *sv = ct->loop->sv;

	ct->next = NULL;
	*sv->calls_tail = ct;
	sv->calls_tail = &ct->next;
	sv->arrived++;
}

struct control *control_begin(struct loop *l, enum control_what what, const char *name,
			      int64_t version, bool ready_only, struct msg *done)
{
	struct control *ct = calloc(1, sizeof(*ct));

	if (!ct)
		return NULL;
	ct->done = done;
	ct->loop = l;
	ct->what = what;
	ct->ready_only = ready_only;
	ct->version = version;
	snprintf(ct->name, sizeof(ct->name), "%s", name);
	port_send(&l->sv->port, &ct->msg, control_arrived, ct);
	return ct;
}

static void control(struct conn *c, enum control_what what, const char *name, int64_t version)
{
	bool ready_only = false;
	json_error_t err;
	json_t *o = NULL;

	if (what != CONTROL_INDEX && !c->admin && !c->loop->sv->control) {
		conn_error(c, 403, "loads, unloads and traces are not served at this address: see "
			   "--admin and control in pawl-serve(1)");
		return;
	}
	/* a tree of JSON is many times as large as its text */
	if (c->body.n > MAX_CONTROL) {
		conn_error(c, 413, "the body is too large");
		return;
	}
	if (c->body.n) {
		o = json_loadb(c->body.p, c->body.n, JSON_REJECT_DUPLICATES, &err);
		if (!o || !json_is_object(o)) {
			conn_error(c, 400, "failed to parse the request JSON buffer: %s at %d",
				   o ? "not an object" : err.text, o ? 0 : err.position);
			json_decref(o);
			return;
		}
		ready_only = json_is_true(json_object_get(o, "ready"));
		if (what == CONTROL_LOAD &&
		    json_object_size(json_object_get(o, "parameters"))) {
			conn_error(c, 400, "parameters of a load are not supported");
			json_decref(o);
			return;
		}
		json_decref(o);
	}
	c->done.fn = control_done;
	c->done.arg = c;
	c->control = control_begin(c->loop, what, name, version, ready_only, &c->done);
	if (!c->control) {
		conn_error(c, 503, "out of memory");
		return;
	}
	c->state = CONN_BUSY;
	c->request_pending++;
}

/* Split the path at slashes, and decode %XX.  Returns how many parts, or -1. */
static int split(char *url, char *part[MAX_PARTS])
{
	char *from, *to;
	int n = 0, i, hi, lo;

	url[strcspn(url, "?#")] = 0;
	if (!strncasecmp(url, "http://", 7)) {
		/* the whole URL, as a proxy may send it */
		url += 7;
		url += strcspn(url, "/");
		if (!*url)
			return 0;
	}
	if (*url != '/')
		return -1;
	for (from = url; *from; ) {
		*from++ = 0;
		if (!*from)
			break;		/* a slash at the end */
		if (n == MAX_PARTS)
			return -1;
		part[n++] = from;
		from += strcspn(from, "/");
	}
	for (i = 0; i < n; i++) {
		for (from = to = part[i]; *from; to++) {
			if (*from == '%') {
				hi = js_hex(from[1]);
				lo = hi < 0 ? -1 : js_hex(from[2]);
				if (lo < 0 || !(hi | lo))
					return -1;
				*to = (char)(hi << 4 | lo);
				from += 3;
			} else {
				*to = *from++;
			}
		}
		*to = 0;
	}
	return n;
}

static void not_found(struct conn *c)
{
	conn_error(c, 404, "Not Found");
}

/* Whether the method is right; else the answer is given. */
static bool method(struct conn *c, unsigned int want)
{
	if (c->parser.method == want || (want == HTTP_GET && c->parser.method == HTTP_HEAD))
		return true;
	conn_error(c, 405, "Method Not Allowed");
	return false;
}

/* The specification of KServe has "live" in the answers of both calls, its client "ready". */
static void health(struct conn *c, bool ready)
{
	const char *why = NULL;
	bool good = !ready || loop_ready(c->loop, &why);
	struct loop *l = c->loop;

	if (!out_begin(c))
		return;
	if (buf_text(l, &c->out, good ? "{\"live\":true" : "{\"live\":false") &&
	    (!ready || buf_text(l, &c->out, good ? ",\"ready\":true" : ",\"ready\":false")) &&
	    (good || (buf_text(l, &c->out, ",\"error\":") && buf_json(l, &c->out, why))) &&
	    buf_add(l, &c->out, "}", 1))
		out_end(c, good ? 200 : 400, as_json, NULL);
	else
		conn_close(c);
}

static void model_ready(struct conn *c, const char *name, bool ready)
{
	const char *why = ready ? NULL : table_why(c->loop->table, name);
	struct loop *l = c->loop;

	if (!out_begin(c))
		return;
	if (buf_text(l, &c->out, "{\"name\":") && buf_json(l, &c->out, name) &&
	    buf_text(l, &c->out, ready ? ",\"ready\":true}" :
		     ",\"ready\":false,\"error\":\"Model version not ready\"") &&
	    (!why || (buf_text(l, &c->out, ",\"reason\":") && buf_json(l, &c->out, why))) &&
	    (ready || buf_add(l, &c->out, "}", 1)))
		out_end(c, ready ? 200 : 400, as_json, NULL);
	else
		conn_close(c);
}

/* What exists: clients take this list at its word. */
const char *const server_extensions[] = { "binary_tensor_data", "model_configuration",
					  "model_repository", "schedule_policy", "statistics",
					  NULL };

static void server_metadata(struct conn *c)
{
	json_t *all = json_array();
	unsigned int i;

	for (i = 0; server_extensions[i]; i++)
		json_array_append_new(all, json_string(server_extensions[i]));
	answer_json(c, json_pack("{s:s, s:s, s:o}", "name", "pawl", "version", pawl_version(),
				 "extensions", all));
}

/* Whether a text is the number of a version. */
static bool number(const char *text, int64_t *v)
{
	char *end;

	errno = 0;
	*v = strtoll(text, &end, 10);
	return !*end && end != text && *v > 0 && !errno;
}

/* v2/models/NAME[/versions/V][/WHAT] */
static void model(struct conn *c, char **part, int n)
{
	const char *name = part[0], *what = NULL, *version = NULL;
	struct version *v, *any;
	int64_t want = NEWEST;

	if (n >= 3 && !strcmp(part[1], "versions")) {
		version = part[2];
		what = n == 4 ? part[3] : NULL;
		n -= 2;
	} else if (n == 2) {
		what = part[1];
	}
	if (n > 2 || (what && strcmp(what, "ready") && strcmp(what, "infer") &&
		      strcmp(what, "config") && strcmp(what, "stats"))) {
		not_found(c);
		return;
	}
	if (!method(c, what && !strcmp(what, "infer") ? HTTP_POST : HTTP_GET))
		return;
	if (version && !number(version, &want)) {
		not_found(c);
		return;
	}
	v = table_find(c->loop->table, name, strlen(name), want);
	any = v ? v : table_find(c->loop->table, name, strlen(name), NEWEST);
	if (!v && what && !strcmp(what, "infer"))
		access_note(c->loop, c, c->traceparent, NULL, name, version ? want : 0,
			    !any && c->loop->table->loading ? 503 : 404);
	if (what && !strcmp(what, "ready")) {
		model_ready(c, name, v && !load_relaxed(&c->loop->sv->closing));
	} else if (!any && c->loop->table->loading) {
		conn_error(c, 503, "model '%s' is not loaded yet", name);
	} else if (!any && what && !strcmp(what, "stats")) {
		conn_error(c, 400, "requested model '%s' is not available", name);
	} else if (!any) {
		conn_error(c, 404, "Request for unknown model: '%s' is not found", name);
	} else if (!v) {
		conn_error(c, 404, "Request for unknown model: '%s' version %" PRId64
			   " is not found", name, want);
	} else if (!what) {
		metadata(c, v);
	} else if (!strcmp(what, "infer")) {
		infer_begin(c, v);
	} else if (!strcmp(what, "config")) {
		config(c, v);
	} else {
		stats_json(c, name, strlen(name), want);
	}
}

static void repository(struct conn *c, char **part, int n)
{
	int64_t version = 0;

	/* models/NAME[/versions/V]/load */
	if (n == 5 && !strcmp(part[2], "versions") && number(part[3], &version)) {
		part[2] = part[4];
		n = 3;
	}
	if (n == 1 && !strcmp(part[0], "index")) {
		if (method(c, HTTP_POST))
			control(c, CONTROL_INDEX, "", 0);
	} else if (n == 3 && !strcmp(part[0], "models") &&
		   (!strcmp(part[2], "load") || !strcmp(part[2], "unload"))) {
		if (!method(c, HTTP_POST))
			return;
		if (strlen(part[1]) > NAME_MAX_LEN)
			conn_error(c, 400, "the name of the model is too long");
		else
			control(c, *part[2] == 'l' ? CONTROL_LOAD : CONTROL_UNLOAD, part[1],
				version);
	} else {
		not_found(c);
	}
}

/* Whether a host, with or without a port, is an address or localhost, and no name of DNS. */
static bool is_address(const char *host)
{
	unsigned char addr[sizeof(struct in6_addr)];
	bool v6 = *host == '[';
	char text[64];

	snprintf(text, sizeof(text), "%s", host + v6);
	text[strcspn(text, v6 ? "]" : ":")] = 0;
	return v6 ? inet_pton(AF_INET6, text, addr) == 1 :
		    inet_pton(AF_INET, text, addr) == 1 || !strcasecmp(text, "localhost");
}

/*
 * Why the request is refused, if a page of another site may have sent it: a browser lets each
 * page send a POST to any server.  Browsers say where the page is from (Sec-Fetch-Site) if the
 * server's address is the loopback device or HTTPS; else they still name its origin.  An
 * origin with a name proves nothing even if it is that of the server: the page's owner may let
 * the name point to the server's address (DNS rebinding).  Clients that are no browsers send
 * neither.
 */
static const char *foreign(const struct conn *c)
{
	const char *origin = strstr(c->origin, "://");

	if (c->parser.method == HTTP_GET || c->parser.method == HTTP_HEAD ||
	    c->site == SITE_SAME)
		return NULL;
	/* a page of another site does not have the token */
	if (c->site == SITE_UNKNOWN && (!*c->origin || c->loop->token[c->admin]))
		return NULL;
	if (c->site == SITE_OTHER || !origin || strcasecmp(origin + 3, c->host))
		return "a page of another site may not use this server";
	return is_address(c->host) ? NULL :
		"the page of a server without a token is used by its address, or over HTTPS";
}

void route(struct conn *c)
{
	char url[sizeof(c->url)], *part[MAX_PARTS];
	const char *why;
	int n;

	memcpy(url, c->url, c->nurl + 1);	/* the next request may repeat it */
	n = split(url, part);
	if (!n) {
		/* without the token: the page asks for it */
		if (!c->admin && !c->loop->sv->metrics)
			conn_error(c, 403, "the page is at the address of --admin");
		else if (method(c, HTTP_GET))
			page_answer(c);
		return;
	}
	if (n < 0) {
		not_found(c);
		return;
	}
	if (!strcmp(part[0], "v2") && n == 3 && !strcmp(part[1], "health")) {
		/* without the token, too: a load balancer has none */
		if (strcmp(part[2], "live") && strcmp(part[2], "ready"))
			not_found(c);
		else if (method(c, HTTP_GET))
			health(c, *part[2] == 'r');
		return;
	}
	why = foreign(c);
	if (why) {
		conn_error(c, 403, "%s", why);
		return;
	}
	if (!c->authorized) {
		conn_error(c, 401, "a bearer token is required");
		return;
	}
	if (n == 1 && !strcmp(part[0], "metrics")) {
		if (!c->admin && !c->loop->sv->metrics)
			conn_error(c, 403, "the metrics are at the address of --admin");
		else if (method(c, HTTP_GET))
			stats_metrics(c);
		return;
	}
	if (strcmp(part[0], "v2")) {
		not_found(c);
	} else if (n == 1) {
		if (method(c, HTTP_GET))
			server_metadata(c);
	} else if (!strcmp(part[1], "trace") && n == 3 &&
		   (!strcmp(part[2], "start") || !strcmp(part[2], "stop"))) {
		if (method(c, HTTP_POST))
			control(c, part[2][2] == 'a' ? CONTROL_TRACE : CONTROL_TRACE_STOP, "", 0);
	} else if (!strcmp(part[1], "models") && n == 3 && !strcmp(part[2], "stats")) {
		if (method(c, HTTP_GET))
			stats_json(c, NULL, 0, NEWEST);
	} else if (!strcmp(part[1], "models") && n >= 3) {
		model(c, part + 2, n - 2);
	} else if (!strcmp(part[1], "repository") && n >= 3) {
		repository(c, part + 2, n - 2);
	} else {
		not_found(c);
	}
}
