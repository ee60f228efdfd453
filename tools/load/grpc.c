// SPDX-License-Identifier: Apache-2.0
/*
 * Requests over gRPC: unary calls of ModelInfer.  As with the libraries of gRPC, a connection
 * carries many calls at once.  Connections take turns.  When the server ends one (GOAWAY), another
 * one is opened at once, while the calls of the old one end.  Calls that the server has not
 * processed are made once more there.
 */

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <generated/inference.pb-c.h>
#include "client.h"

#define SERVICE		"/inference.GRPCInferenceService/"
#define CALLS		100u	/* of a connection, in an open loop */
#define HEADERS		32u	/* of --header */
#define FIXED		6u	/* headers of each request */

enum {
	GRPC_OK = 0,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_UNAVAILABLE = 14,
};

/* The headers of a request; constant after load_grpc_prepare(). */
static nghttp2_nv head[FIXED + HEADERS];
static size_t nhead;

/* --- headers ---------------------------------------------------------------------- */

static nghttp2_nv nv(const char *name, size_t n, const char *value, size_t nvalue)
{
	return (nghttp2_nv){
		(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, n, nvalue,
		NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE };
}

static void add_header(const char *name, const char *value)
{
	head[nhead++] = nv(name, strlen(name), value, strlen(value));
}

/* Add the lines of --header, with their names in lower case. */
static int add_lines(char *p)
{
	char *end, *value, *name;

	for (; *p; p = end + 2) {
		end = strstr(p, "\r\n");
		value = memchr(p, ':', (size_t)(end - p));
		if (nhead == FIXED + HEADERS) {
			fprintf(stderr, "%s: too many headers\n", LOAD_SELF);
			return -1;
		}
		for (name = p; name < value; name++)
			*name = (char)tolower((unsigned char)*name);
		name = p;
		p = value++;
		while (value < end && (*value == ' ' || *value == '\t'))
			value++;
		head[nhead++] = nv(name, (size_t)(p - name), value, (size_t)(end - value));
	}
	return 0;
}

int load_grpc_prepare(const struct options *o)
{
	nhead = 0;
	/* the path is the first header, because queries replace it */
	add_header(":path", SERVICE "ModelInfer");
	add_header(":method", "POST");
	add_header(":scheme", "http");
	add_header(":authority", o->authority);
	add_header("te", "trailers");
	add_header("content-type", "application/grpc");
	return o->headers ? add_lines(o->headers) : 0;
}

/* --- messages --------------------------------------------------------------------- */

static int pack(const ProtobufCMessage *m, struct request *r)
{
	size_t n = protobuf_c_message_get_packed_size(m);
	unsigned int i;

	r->p = n <= UINT32_MAX ? malloc(n + 5) : NULL;
	if (!r->p) {
		fprintf(stderr, "%s: out of memory, or the request is too large\n", LOAD_SELF);
		return -1;
	}
	r->p[0] = 0;
	for (i = 0; i < 4; i++)
		r->p[1 + i] = (char)(n >> (24 - 8 * i));
	r->n = 5 + protobuf_c_message_pack(m, (uint8_t *)r->p + 5);
	return 0;
}

/* protobuf-c's strings are not const, but it does not write to them. */
static char *text(const char *s)
{
	return s ? (char *)(uintptr_t)s : (char *)(uintptr_t)"";
}

int load_grpc_request(const struct options *o, const struct model *m,
		      const struct tensor *inputs, unsigned int n, struct request *r)
{
	Inference__InferParameter values[2] = { INFERENCE__INFER_PARAMETER__INIT,
						INFERENCE__INFER_PARAMETER__INIT };
	Inference__ModelInferRequest__ParametersEntry entries[2], *parameters[2];
	Inference__ModelInferRequest message = INFERENCE__MODEL_INFER_REQUEST__INIT;
	Inference__InferInputTensor *tensors = calloc(n, sizeof(*tensors));
	Inference__InferInputTensor **list = calloc(n, sizeof(void *));
	ProtobufCBinaryData *raw = calloc(n, sizeof(*raw));
	const struct {
		const char *name;
		uint64_t value;
	} given[2] = { { "timeout", o->timeout_us }, { "priority", o->priority } };
	unsigned int i;
	int rc = -1;

	for (i = 0; tensors && list && raw && i < n; i++) {
		inference__infer_input_tensor__init(&tensors[i]);
		tensors[i].name = text(inputs[i].name);
		tensors[i].datatype = text(inputs[i].type);
		tensors[i].n_shape = inputs[i].rank;
		tensors[i].shape = (int64_t *)(uintptr_t)inputs[i].dims;
		list[i] = &tensors[i];
		raw[i].data = (uint8_t *)inputs[i].p;
		raw[i].len = inputs[i].n;
	}
	message.model_name = text(m->name);
	message.model_version = text(m->version);
	message.n_inputs = message.n_raw_input_contents = n;
	message.inputs = list;
	message.raw_input_contents = raw;
	message.parameters = parameters;
	for (i = 0; i < 2; i++) {
		if (!given[i].value)
			continue;
		values[i].parameter_choice_case =
			INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
		values[i].int64_param = (int64_t)given[i].value;
		inference__model_infer_request__parameters_entry__init(&entries[i]);
		entries[i].key = text(given[i].name);
		entries[i].value = &values[i];
		parameters[message.n_parameters++] = &entries[i];
	}
	if (tensors && list && raw)
		rc = pack(&message.base, r);
	else
		fprintf(stderr, "%s: out of memory\n", LOAD_SELF);
	free(tensors);
	free(list);
	free(raw);
	return rc;
}

/* --- queries before the measurement -------------------------------------------------- */

static void query_ended(struct h2_call *k, uint32_t error)
{
	if (k->code < 0 && error)
		snprintf(k->why, sizeof(k->why), "the server reset the stream: %s",
			 nghttp2_http2_strerror(error));
}

static const char *exchange(struct h2 *h, struct h2_call *k, uint64_t wait_ns)
{
	uint64_t end = load_now() + wait_ns, now;
	struct pollfd p = { .fd = h->fd };
	const char *why;
	char buf[16384];
	bool full;

	while (k->h) {
		why = load_h2_send(h, &full);
		if (why)
			return why;
		now = load_now();
		if (now >= end)
			return "no answer";
		p.events = (short)(POLLIN | (full ? POLLOUT : 0));
		poll(&p, 1, (int)((end - now) / 1000000u) + 1);
		if (p.revents & (POLLIN | POLLHUP | POLLERR)) {
			why = load_h2_receive(h, buf, sizeof(buf));
			if (why && k->h)
				return why;
		}
	}
	return NULL;
}

/* Make one call on a new connection.  The answer is in k; the caller frees its body. */
static int query(const struct options *o, const char *path, const ProtobufCMessage *message,
		 struct h2_call *k)
{
	struct h2 h = { .fd = -1, .ended = query_ended };
	nghttp2_nv mine[FIXED + HEADERS];
	struct request r;
	const char *why;
	int rc;

	if (pack(message, &r))
		return -1;
	memcpy(mine, head, sizeof(mine));
	mine[0] = nv(":path", 5, path, strlen(path));
	*k = (struct h2_call){ .p = r.p, .n = r.n, .keep = true };
	rc = load_h2_open(&h, o);
	if (rc)
		why = strerror(rc);
	else if (!load_h2_call(&h, k, mine, nhead))
		why = "out of memory";
	else
		why = exchange(&h, k, o->wait_ns);
	load_h2_close(&h);
	free(r.p);
	if (why)
		fprintf(stderr, "%s: %s: %s\n", LOAD_SELF, o->authority, why);
	return why ? -1 : 0;
}

static json_t *describe(const struct h2_call *k)
{
	Inference__ModelMetadataResponse *answer = inference__model_metadata_response__unpack(
		NULL, k->got - 5, (const uint8_t *)k->body + 5);
	json_t *list, *shape;
	size_t i, d;

	if (!answer)
		return NULL;
	list = json_array();
	for (i = 0; i < answer->n_inputs; i++) {
		const Inference__TensorMetadata *in = answer->inputs[i];

		shape = json_array();
		for (d = 0; d < in->n_shape; d++)
			json_array_append_new(shape, json_integer(in->shape[d]));
		json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", in->name,
						      "datatype", in->datatype,
						      "shape", shape));
	}
	inference__model_metadata_response__free_unpacked(answer, NULL);
	return json_pack("{s:o}", "inputs", list);
}

json_t *load_grpc_metadata(const struct options *o, const struct model *m)
{
	Inference__ModelRequest message = INFERENCE__MODEL_REQUEST__INIT;
	struct h2_call k = { 0 };
	json_t *meta = NULL;

	message.name = text(m->name);
	message.version = text(m->version);
	if (query(o, SERVICE "ModelMetadata", &message.base, &k)) {
		free(k.body);
		return NULL;
	}
	if (k.code == GRPC_OK && load_h2_complete(&k))
		meta = describe(&k);
	if (!meta)
		fprintf(stderr, "%s: model '%s': the server does not describe it: status %d, "
			"HTTP %d: %s\n", LOAD_SELF, m->name, k.code, k.http, k.why);
	free(k.body);
	return meta;
}

/* --- the measurement ---------------------------------------------------------------- */

static void mark(struct thread *t, struct h2 *h)
{
	if (h->dirty)
		return;
	h->dirty = true;
	h->next_dirty = t->dirty;
	t->dirty = h;
}

static struct call *call_of(struct h2_call *k)
{
	return (struct call *)((char *)k - offsetof(struct call, h2));
}

/* The stream of a request has ended. */
static void ended(struct h2_call *k, uint32_t error)
{
	struct call *c = call_of(k);
	struct thread *t = c->t;
	enum outcome what = FAILED;
	char why[64];

	if (k->code < 0 && k->unprocessed && load_again(t, c)) {
		c->next_again = t->again;
		t->again = c;
		return;
	}
	/* as gRPC maps the answers of proxies */
	if (k->code < 0 && !error && (k->http == 429 || (k->http >= 502 && k->http <= 504)))
		k->code = GRPC_UNAVAILABLE;
	/* the server has not processed a refused stream */
	if (k->code < 0 && error == NGHTTP2_REFUSED_STREAM)
		k->code = GRPC_UNAVAILABLE;
	if (k->code < 0 && (error || k->http == 200 || !k->http)) {
		snprintf(why, sizeof(why), "the stream ended without a status: %s",
			 nghttp2_http2_strerror(error));
		load_lost(t, c, why);
		return;
	}
	if (k->code == GRPC_OK && !load_h2_complete(k)) {
		load_lost(t, c, "the answer is not a message of gRPC");
		return;
	}
	if (k->code == GRPC_OK)
		what = ANSWERED;
	else if (k->code == GRPC_RESOURCE_EXHAUSTED || k->code == GRPC_UNAVAILABLE)
		what = REFUSED;
	if (what == FAILED) {
		snprintf(why, sizeof(why), "status %d: ", k->code < 0 ? k->http : k->code);
		load_failure(t, why, k->why, strlen(k->why));
	}
	load_answered(t, c, what, (unsigned int)(k->code < 0 ? k->http : k->code), true);
}

/* The connection accepts no further calls. */
static void retire(struct thread *t, struct h2 *h)
{
	t->nopen -= h->counted;
	h->counted = false;
}

static void disconnected(struct thread *t, struct h2 *h, const char *why)
{
	struct call *c, *next;

	retire(t, h);
	load_h2_close(h);
	for (c = h->calls ? t->busy.head : NULL; c; c = next) {
		next = c->next;
		if (c->h2.h == h) {
			c->h2.h = NULL;
			load_lost(t, c, why);
		}
	}
	h->calls = 0;
}

/* One more connection.  NULL: no memory. */
static struct h2 *slot_new(struct thread *t)
{
	struct h2 **links = realloc(t->links, (t->nslots + 1) * sizeof(*links));
	struct h2 *h = calloc(1, sizeof(*h));

	if (links)
		t->links = links;
	if (!links || !h) {
		free(h);
		return NULL;
	}
	h->fd = -1;
	return t->links[t->nslots++] = h;
}

/* Find a connection that accepts a call or may be opened.  *room: the call need not wait. */
static struct h2 *pick(struct thread *t, bool *room)
{
	struct h2 *h, *found = NULL;
	unsigned int i;

	for (i = 0; i < t->nslots; i++) {
		h = t->links[t->link];
		t->link = (t->link + 1) % t->nslots;
		if (h->session && h->going && !h->calls)
			load_h2_close(h);
		*room = h->session ? !h->going && h->calls < load_h2_limit(h) :
				     t->nopen < t->nlinks;
		if (*room)
			return h;
		if (!found && h->session && !h->going)
			found = h;
	}
	/* the others have calls that end */
	*room = t->nopen < t->nlinks;
	return *room ? slot_new(t) : found;
}

static int open_link(struct thread *t, struct h2 *h)
{
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = h };
	int rc = load_h2_open(h, t->o);

	if (rc)
		return rc;
	load_opened(t);
	h->ended = ended;
	h->events = EPOLLIN;
	if (!epoll_ctl(t->epfd, EPOLL_CTL_ADD, h->fd, &e)) {
		h->counted = true;
		t->nopen++;
		return 0;
	}
	rc = errno;
	load_h2_close(h);
	return rc;
}

/* Returns false if the connection accepts no call: then another one may. */
static bool try_link(struct thread *t, struct call *c)
{
	bool room = false;
	struct h2 *h = pick(t, &room);
	int rc;

	if (!h) {
		load_lost(t, c, strerror(ENOMEM));
		return true;
	}
	rc = h->session ? 0 : open_link(t, h);
	if (rc) {
		load_lost(t, c, strerror(rc));
		return true;
	}
	c->h2.p = c->request->p;
	c->h2.n = c->request->n;
	if (!load_h2_call(h, &c->h2, head, nhead)) {
		retire(t, h);
		return false;
	}
	if (!room && c->measured)
		t->r->waited++;
	mark(t, h);
	return true;
}

static void start(struct thread *t, struct call *c)
{
	unsigned int i;

	c->h2.h = NULL;
	for (i = 0; i <= t->nlinks; i++)
		if (try_link(t, c))
			return;
	load_lost(t, c, "out of memory, or connections without further streams");
}

static void drop(struct thread *t, struct call *c)
{
	struct h2 *h = c->h2.h;
	struct call **p;

	for (p = &t->again; *p && *p != c; p = &(*p)->next_again)
		;
	if (*p)
		*p = c->next_again;
	if (!h)
		return;
	load_h2_cancel(&c->h2);
	mark(t, h);
}

static void event(struct thread *t, void *ptr, uint32_t events)
{
	struct h2 *h = ptr;
	const char *why;

	/* an earlier event closed the connection */
	if (!h->session)
		return;
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
		why = load_h2_receive(h, t->buf, RECV_SIZE);
		if (why) {
			disconnected(t, h, why);
			return;
		}
		if (h->going)
			retire(t, h);
	}
	mark(t, h);
}

static void flush_link(struct thread *t, struct h2 *h)
{
	struct epoll_event e = { .data.ptr = h };
	const char *why;
	bool full;

	why = load_h2_send(h, &full);
	e.events = EPOLLIN | (full ? EPOLLOUT : 0);
	if (!why && e.events != h->events) {
		h->events = e.events;
		if (epoll_ctl(t->epfd, EPOLL_CTL_MOD, h->fd, &e))
			why = strerror(errno);
	}
	if (why)
		disconnected(t, h, why);
}

static void flush(struct thread *t)
{
	struct call *c;
	struct h2 *h;

	do {
		while ((c = t->again)) {
			t->again = c->next_again;
			start(t, c);
		}
		while ((h = t->dirty)) {
			t->dirty = h->next_dirty;
			h->dirty = false;
			if (h->session)
				flush_link(t, h);
		}
	} while (t->again);
}

static int init(struct thread *t)
{
	const struct options *o = t->o;
	unsigned int in_flight = t->step->concurrency;

	t->nlinks = load_part(t, t->step->rate || o->connections < in_flight ? o->connections :
			      in_flight);
	t->ncalls = t->step->rate ? t->nlinks * CALLS : load_part(t, in_flight);
	t->calls = calloc(t->ncalls, sizeof(*t->calls));
	while (t->calls && t->nslots < t->nlinks)
		if (!slot_new(t))
			return ENOMEM;
	return t->calls ? 0 : ENOMEM;
}

static void fini(struct thread *t)
{
	unsigned int i;

	for (i = 0; i < t->nslots; i++) {
		load_h2_close(t->links[i]);
		free(t->links[i]);
	}
	free(t->links);
}

const struct transport load_grpc = {
	.init = init,
	.fini = fini,
	.start = start,
	.drop = drop,
	.event = event,
	.flush = flush,
};
