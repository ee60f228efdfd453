// SPDX-License-Identifier: Apache-2.0
/*
 * The calls of gRPC: the Open Inference Protocol and those of Triton's extensions that exist
 * here (inference.proto).  Messages are read and written by the library protobuf-c.
 *
 * The bytes of raw tensors stay in the message, and loop 0 copies them into the slot; the
 * library would copy them, so it gets the message without them.  It allocates from an arena,
 * which has room for a usual message without a call of malloc, and a limit for others.  The
 * outputs are written from the slot into the answer.
 */

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <generated/inference.pb-c.h>
#include "grpc.h"
#include "infer.h"

#define ARENA_FIRST	(64u << 10)
#define UNREADABLE	"failed to parse the request message"

/* --- the memory of a message -------------------------------------------------------- */

struct chunk {
	struct chunk *next;
	uint64_t data[];
};

/* One per loop.  It is empty between messages. */
struct arena {
	ProtobufCAllocator allocator;
	struct server *sv;
	struct chunk *more;
	size_t held, left;	/* bytes of more, and those that are permitted */
	bool full;
	char *at, *end;
	uint64_t first[ARENA_FIRST / 8];
};

static void *arena_alloc(void *data, size_t n)
{
	struct arena *a = data;
	struct chunk *chunk;
	size_t size;
	void *p;

	n = (n + 15) & ~(size_t)15;
	if (n > (size_t)(a->end - a->at)) {
		size = n > ARENA_FIRST ? n : ARENA_FIRST;
		chunk = NULL;
		if (size <= a->left && mem_room(a->sv, a->held, a->held + size))
			chunk = malloc(sizeof(*chunk) + size);
		if (!chunk) {
			a->full = true;
			return NULL;
		}
		a->left -= size;
		mem_hold(a->sv, &a->held, a->held + size);
		chunk->next = a->more;
		a->more = chunk;
		/* a large one leaves room for others where it was */
		if (n > ARENA_FIRST / 2)
			return chunk->data;
		a->at = (char *)chunk->data;
		a->end = a->at + size;
	}
	p = a->at;
	a->at += n;
	return p;
}

static void arena_free(void *data, void *p)
{
	(void)data, (void)p;
}

/* An empty arena for a message of n bytes; NULL: no memory. */
static struct arena *arena_begin(struct loop *l, size_t n)
{
	struct arena *a = l->arena;

	if (!a) {
		a = l->arena = malloc(sizeof(*a));
		if (!a)
			return NULL;
		a->allocator = (ProtobufCAllocator){ arena_alloc, arena_free, a };
		a->sv = l->sv;
		a->more = NULL;
		a->held = 0;
	}
	a->at = (char *)a->first;
	a->end = a->at + ARENA_FIRST;
	/* a number of one byte on the wire has up to eight in memory */
	a->left = ARENA_FIRST + 8 * n;
	a->full = false;
	return a;
}

static void arena_end(struct arena *a)
{
	struct chunk *next;

	for (; a->more; a->more = next) {
		next = a->more->next;
		free(a->more);
	}
	mem_hold(a->sv, &a->held, 0);
}

void grpc_free(struct loop *l)
{
	struct call *k;

	free(l->arena);
	while ((k = l->free_calls)) {
		l->free_calls = k->next;
		free(k);
	}
}

/* --- calls without tensors ------------------------------------------------------------ */

/* Answer, and end the call. */
static void answer(struct call *k, const ProtobufCMessage *m)
{
	if (call_send(k, m))
		call_end(k, GRPC_OK, NULL);
	else
		call_end(k, GRPC_RESOURCE_EXHAUSTED, "out of memory");
}

static void server_live(struct call *k, struct buf *body)
{
	Inference__ServerLiveResponse m = INFERENCE__SERVER_LIVE_RESPONSE__INIT;

	(void)body;
	m.live = true;
	answer(k, &m.base);
}

static void server_ready(struct call *k, struct buf *body)
{
	Inference__ServerReadyResponse m = INFERENCE__SERVER_READY_RESPONSE__INIT;

	(void)body;
	m.ready = load_relaxed(&k->c->loop->sv->ready);
	answer(k, &m.base);
}

static void server_metadata(struct call *k, struct buf *body)
{
	Inference__ServerMetadataResponse m = INFERENCE__SERVER_METADATA_RESPONSE__INIT;

	(void)body;
	m.name = (char *)(uintptr_t)"pawl";
	m.version = (char *)(uintptr_t)pawl_version();
	m.extensions = (char **)(uintptr_t)server_extensions;
	while (server_extensions[m.n_extensions])
		m.n_extensions++;
	answer(k, &m.base);
}

/* Read the whole message into the arena; the call is ended if it is bad. */
static void *unpack(struct call *k, const struct buf *body,
		    const ProtobufCMessageDescriptor *type, struct arena **a)
{
	void *m = NULL;

	*a = arena_begin(k->c->loop, body->n);
	if (*a)
		m = protobuf_c_message_unpack(type, &(*a)->allocator, body->n,
					      (uint8_t *)body->p);
	if (m)
		return m;
	if (!*a || (*a)->full)
		call_end(k, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	else
		call_end(k, GRPC_INVALID_ARGUMENT, UNREADABLE);
	if (*a)
		arena_end(*a);
	return NULL;
}

/* Text that a client may get back: what is no UTF-8 would make the answer unreadable. */
static char *clean(char *text)
{
	char *p = text, *end = text + strlen(text);
	unsigned int n;

	for (; *p; p += n) {
		n = (unsigned char)*p < 0x80 ? 1 : js_utf8(p, end);
		if (!n) {
			*p = '?';
			n = 1;
		}
	}
	return text;
}

struct refusal {
	int status;
	char text[1024];
};

static struct version *find(struct call *k, char *name, char *version, struct refusal *why)
{
	struct version *v = table_find(k->c->loop->table, name, strlen(name));
	int64_t want = -1;
	char *end;

	why->status = GRPC_NOT_FOUND;
	if (*version) {
		errno = 0;
		want = strtoll(version, &end, 10);
		if (*end || errno || want < 0) {
			why->status = GRPC_INVALID_ARGUMENT;
			snprintf(why->text, sizeof(why->text),
				 "failed to get model version from specified version string "
				 "'%.100s', version should be an integral value > 0",
				 clean(version));
			return NULL;
		}
	}
	if (v && (want < 0 || v->m->version == want))
		return v;
	if (v)
		snprintf(why->text, sizeof(why->text),
			 "Request for unknown model: '%s' version %" PRId64 " is not found",
			 v->e->name, want);
	else
		snprintf(why->text, sizeof(why->text),
			 "Request for unknown model: '%.500s' is not found", clean(name));
	return NULL;
}

/* The model of a request that has a name and a version. */
static Inference__ModelRequest *model_request(struct call *k, struct buf *body,
					      struct arena **a, struct version **v,
					      struct refusal *why)
{
	Inference__ModelRequest *m =
		unpack(k, body, &inference__model_request__descriptor, a);

	if (m)
		*v = find(k, m->name, m->version, why);
	return m;
}

static void model_ready(struct call *k, struct buf *body)
{
	Inference__ModelReadyResponse m = INFERENCE__MODEL_READY_RESPONSE__INIT;
	struct refusal why;
	struct version *v;
	struct arena *a;

	if (!model_request(k, body, &a, &v, &why))
		return;
	m.ready = v && load_relaxed(&k->c->loop->sv->ready);
	if (!v && why.status == GRPC_INVALID_ARGUMENT)
		call_fail(k, why.status, "%s", why.text);
	else
		answer(k, &m.base);
	arena_end(a);
}

static Inference__TensorMetadata **tensors(struct arena *a, const struct serve_io *io,
					   unsigned int n)
{
	Inference__TensorMetadata **all = arena_alloc(a, (n + 1) * sizeof(*all)), *t;
	unsigned int i;

	for (i = 0; all && i < n; i++) {
		t = all[i] = arena_alloc(a, sizeof(*t));
		if (!t)
			return NULL;
		inference__tensor_metadata__init(t);
		t->name = (char *)(uintptr_t)io[i].name;
		t->datatype = (char *)(uintptr_t)type_name[io[i].type];
		t->n_shape = io[i].rank;
		t->shape = (int64_t *)(uintptr_t)io[i].dims;
	}
	return all;
}

static void model_metadata(struct call *k, struct buf *body)
{
	Inference__ModelMetadataResponse m = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
	char number[24], *versions[] = { number };
	struct refusal why;
	struct version *v;
	struct arena *a;

	if (!model_request(k, body, &a, &v, &why))
		return;
	if (!v) {
		call_fail(k, why.status, "%s", why.text);
		arena_end(a);
		return;
	}
	snprintf(number, sizeof(number), "%" PRId64, v->m->version);
	m.name = (char *)(uintptr_t)v->m->name;
	m.versions = versions;
	m.n_versions = 1;
	m.platform = (char *)(uintptr_t)v->m->platform;
	m.inputs = tensors(a, v->m->inputs, v->m->ninputs);
	m.outputs = tensors(a, v->m->outputs, v->m->noutputs);
	m.n_inputs = v->m->ninputs;
	m.n_outputs = v->m->noutputs;
	if (m.inputs && m.outputs)
		answer(k, &m.base);
	else
		call_end(k, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	arena_end(a);
}

static void model_config(struct call *k, struct buf *body)
{
	Inference__ModelConfigResponse m = INFERENCE__MODEL_CONFIG_RESPONSE__INIT;
	Inference__ModelConfig config = INFERENCE__MODEL_CONFIG__INIT;
	Inference__ModelDynamicBatching batching = INFERENCE__MODEL_DYNAMIC_BATCHING__INIT;
	Inference__ModelQueuePolicy policy = INFERENCE__MODEL_QUEUE_POLICY__INIT;
	Inference__ModelInstanceGroup group = INFERENCE__MODEL_INSTANCE_GROUP__INIT;
	Inference__ModelInstanceGroup *groups[] = { &group };
	Inference__ModelInput in[MAX_IO], *ins[MAX_IO];
	Inference__ModelOutput out[MAX_IO], *outs[MAX_IO];
	const struct model_conf *conf;
	const struct serve_model *model;
	const struct serve_io *io;
	struct refusal why;
	struct version *v;
	struct arena *a;
	unsigned int i, skip;

	if (!model_request(k, body, &a, &v, &why))
		return;
	arena_end(a);
	if (!v) {
		call_fail(k, why.status, "%s", why.text);
		return;
	}
	model = v->m;
	conf = &v->e->conf;
	/* with batches, Triton's dims leave out the first */
	skip = model->batch && conf->max_batch > 1;
	for (i = 0; i < model->ninputs; i++) {
		io = &model->inputs[i];
		inference__model_input__init(ins[i] = &in[i]);
		in[i].name = (char *)(uintptr_t)io->name;
		/* the enumerations have the same order */
		in[i].data_type = (Inference__DataType)(io->type + 1);
		in[i].dims = (int64_t *)(uintptr_t)io->dims + skip;
		in[i].n_dims = io->rank - skip;
	}
	for (i = 0; i < model->noutputs; i++) {
		io = &model->outputs[i];
		inference__model_output__init(outs[i] = &out[i]);
		out[i].name = (char *)(uintptr_t)io->name;
		out[i].data_type = (Inference__DataType)(io->type + 1);
		out[i].dims = (int64_t *)(uintptr_t)io->dims + skip;
		out[i].n_dims = io->rank - skip;
	}
	group.name = config.name = (char *)(uintptr_t)model->name;
	group.count = (int32_t)conf->instances;
	group.kind = INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU;
	config.platform = config.backend = (char *)(uintptr_t)model->platform;
	config.input = ins;
	config.n_input = model->ninputs;
	config.output = outs;
	config.n_output = model->noutputs;
	config.instance_group = groups;
	config.n_instance_group = 1;
	if (skip) {
		config.max_batch_size = (int32_t)conf->max_batch;
		config.dynamic_batching = &batching;
		batching.preferred_batch_size = (int32_t *)(uintptr_t)conf->preferred;
		batching.n_preferred_batch_size = conf->npreferred;
		batching.max_queue_delay_microseconds = conf->delay_ns / 1000;
		batching.priority_levels = LEVELS;
		batching.default_priority_level = LEVELS / 2;
		batching.default_queue_policy = &policy;
		policy.default_timeout_microseconds = conf->timeout_ns / 1000;
		policy.allow_timeout_override = true;
		policy.max_queue_size = conf->queue_requests;
	}
	m.config = &config;
	answer(k, &m.base);
}

/* --- statistics ------------------------------------------------------------------------ */

static Inference__StatisticDuration *duration(struct arena *a, uint64_t n, uint64_t ns)
{
	Inference__StatisticDuration *d = arena_alloc(a, sizeof(*d));

	if (d) {
		inference__statistic_duration__init(d);
		d->count = n;
		d->ns = ns;
	}
	return d;
}

static Inference__StatisticDuration *of(struct arena *a, struct counter *c)
{
	return duration(a, load_relaxed(&c->n), load_relaxed(&c->ns));
}

static Inference__ModelStatistics *statistics(struct arena *a, struct version *v)
{
	Inference__ModelStatistics *m = arena_alloc(a, sizeof(*m));
	Inference__InferStatistics *s = arena_alloc(a, sizeof(*s));
	Inference__InferBatchStatistics *b;
	struct stats *st = &v->e->stats;
	unsigned int i, most = v->e->conf.max_batch ? v->e->conf.max_batch : 1;
	uint64_t n;

	if (!m || !s)
		return NULL;
	inference__model_statistics__init(m);
	inference__infer_statistics__init(s);
	m->name = v->e->name;
	m->version = arena_alloc(a, 24);
	m->batch_stats = arena_alloc(a, most * sizeof(*m->batch_stats));
	if (!m->version || !m->batch_stats)
		return NULL;
	snprintf(m->version, 24, "%" PRId64, v->m->version);
	m->last_inference = load_relaxed(&st->last_ms);
	m->inference_count = load_relaxed(&st->inferences);
	m->execution_count = load_relaxed(&st->executions);
	m->inference_stats = s;
	s->success = of(a, &st->success);
	s->fail = of(a, &st->fail);
	s->queue = of(a, &st->queue);
	s->compute_input = of(a, &st->input);
	s->compute_infer = of(a, &st->infer);
	s->compute_output = of(a, &st->output);
	s->cache_hit = duration(a, 0, 0);
	s->cache_miss = duration(a, 0, 0);
	for (i = 1; i <= most; i++) {
		n = load_relaxed(&st->batch[i].n);
		if (!n)
			continue;
		b = arena_alloc(a, sizeof(*b));
		if (!b)
			return NULL;
		inference__infer_batch_statistics__init(b);
		b->batch_size = i;
		b->compute_input = duration(a, n, load_relaxed(&st->batch[i].input));
		b->compute_infer = duration(a, n, load_relaxed(&st->batch[i].infer));
		b->compute_output = duration(a, n, 0);
		m->batch_stats[m->n_batch_stats++] = b;
	}
	return m;
}

static void model_statistics(struct call *k, struct buf *body)
{
	Inference__ModelStatisticsResponse m = INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
	const struct table *t = k->c->loop->table;
	struct version *v = NULL;
	Inference__ModelRequest *req;
	struct refusal why;
	struct arena *a;
	unsigned int i;

	req = model_request(k, body, &a, &v, &why);
	if (!req)
		return;
	if (*req->name && !v) {
		if (why.status != GRPC_NOT_FOUND)
			call_fail(k, why.status, "%s", why.text);
		else if (table_find(t, req->name, strlen(req->name)))
			call_fail(k, GRPC_INVALID_ARGUMENT,
				  "requested model version is not available for model '%s'",
				  req->name);
		else
			call_fail(k, GRPC_INVALID_ARGUMENT,
				  "requested model '%.500s' is not available",
				  clean(req->name));
		arena_end(a);
		return;
	}
	/* the answer is as large as the table, not as the request */
	a->left = SIZE_MAX;
	m.model_stats = arena_alloc(a, (t->n + 1) * sizeof(*m.model_stats));
	for (i = 0; m.model_stats && i < t->n; i++) {
		if (*req->name && t->at[i].v != v)
			continue;
		m.model_stats[m.n_model_stats] = statistics(a, t->at[i].v);
		if (!m.model_stats[m.n_model_stats++])
			m.model_stats = NULL;
	}
	if (m.model_stats)
		answer(k, &m.base);
	else
		call_end(k, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	arena_end(a);
}

/* --- the repository --------------------------------------------------------------------- */

static int status_of(int http)
{
	return http == 400 ? GRPC_INVALID_ARGUMENT : http == 404 ? GRPC_NOT_FOUND :
		http == 503 ? GRPC_RESOURCE_EXHAUSTED : GRPC_INTERNAL;
}

static char *member(json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return (char *)(uintptr_t)(text ? text : "");
}

static void index_answer(struct call *k, const char *text)
{
	Inference__RepositoryIndexResponse m = INFERENCE__REPOSITORY_INDEX_RESPONSE__INIT;
	json_t *all = json_loads(text, 0, NULL), *o;
	size_t i, n = json_array_size(all);
	Inference__ModelIndex *at;

	at = calloc(n + 1, sizeof(*at));
	m.models = calloc(n + 1, sizeof(*m.models));
	if (!all || !at || !m.models) {
		call_end(k, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	} else {
		json_array_foreach(all, i, o) {
			inference__model_index__init(m.models[i] = &at[i]);
			at[i].name = member(o, "name");
			at[i].version = member(o, "version");
			at[i].state = member(o, "state");
			at[i].reason = member(o, "reason");
		}
		m.n_models = n;
		answer(k, &m.base);
	}
	free(m.models);
	free(at);
	json_decref(all);
}

/* The main thread has answered. */
static void control_done(struct msg *msg)
{
	Inference__Empty m = INFERENCE__EMPTY__INIT;
	struct call *k = msg->arg;
	struct control *ct = k->control;

	k->control = NULL;
	if (ct->http != 200)
		call_fail(k, status_of(ct->http), "%s", ct->text ? ct->text : "out of memory");
	else if (ct->what == CONTROL_INDEX)
		index_answer(k, ct->text);
	else
		answer(k, &m.base);
	free(ct->text);
	free(ct);
	call_done(k);
}

static void control(struct call *k, enum control_what what, const char *name, bool ready)
{
	k->control_done.fn = control_done;
	k->control_done.arg = k;
	k->control = control_begin(k->c->loop, what, name, ready, &k->control_done);
	if (!k->control) {
		call_end(k, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	k->pending++;
	k->c->request_pending++;
}

static void repository_index(struct call *k, struct buf *body)
{
	Inference__RepositoryIndexRequest *m;
	struct arena *a;

	m = unpack(k, body, &inference__repository_index_request__descriptor, &a);
	if (!m)
		return;
	control(k, CONTROL_INDEX, "", m->ready);
	arena_end(a);
}

static void repository_model(struct call *k, struct buf *body, enum control_what what)
{
	Inference__RepositoryModelRequest *m;
	struct arena *a;

	m = unpack(k, body, &inference__repository_model_request__descriptor, &a);
	if (!m)
		return;
	if (what == CONTROL_LOAD && m->n_parameters)
		call_end(k, GRPC_INVALID_ARGUMENT, "parameters of a load are not supported");
	else if (strlen(m->model_name) > NAME_MAX_LEN)
		call_end(k, GRPC_INVALID_ARGUMENT, "the name of the model is too long");
	else
		control(k, what, clean(m->model_name), false);
	arena_end(a);
}

static void repository_load(struct call *k, struct buf *body)
{
	repository_model(k, body, CONTROL_LOAD);
}

static void repository_unload(struct call *k, struct buf *body)
{
	repository_model(k, body, CONTROL_UNLOAD);
}

/* --- infer: the request ------------------------------------------------------------------ */

/* What of a ModelInferRequest is not for the library. */
struct raw {
	unsigned int n;
	struct {
		const uint8_t *p;
		size_t n;
	} at[MAX_IO + 1];
	struct js_str id;
	size_t rest;			/* bytes of all other fields */
	bool together;			/* they come first */
};

static bool varint(const uint8_t **p, const uint8_t *end, uint64_t *v)
{
	unsigned int shift;

	*v = 0;
	for (shift = 0; shift < 64 && *p < end; shift += 7) {
		*v |= (uint64_t)(**p & 0x7f) << shift;
		if (!(*(*p)++ & 0x80))
			return true;
	}
	return false;
}

/*
 * Walk over the fields of a ModelInferRequest.  to: copy there all that is not raw_input_
 * contents, or NULL.
 */
static bool walk(const uint8_t *p, size_t n, struct raw *raw, uint8_t *to)
{
	enum { ID = 3, RAW = 7 };
	const uint8_t *end = p + n, *first;
	uint64_t tag, len;

	*raw = (struct raw){ .together = true };
	while (p < end) {
		first = p;
		if (!varint(&p, end, &tag))
			return false;
		switch (tag & 7) {
		case 0:
			if (!varint(&p, end, &len))
				return false;
			len = 0;
			break;
		case 1:
			len = 8;
			break;
		case 2:
			if (!varint(&p, end, &len))
				return false;
			break;
		case 5:
			len = 4;
			break;
		default:
			return false;
		}
		if (len > (size_t)(end - p))
			return false;
		if (tag == (RAW << 3 | 2)) {
			if (raw->n <= MAX_IO) {
				raw->at[raw->n].p = p;
				raw->at[raw->n].n = len;
				raw->n++;
			}
			p += len;
			continue;
		}
		if (tag == (ID << 3 | 2))
			raw->id = (struct js_str){ .p = (const char *)p, .n = len };
		p += len;
		raw->together = raw->together && !raw->n;
		if (to)
			memcpy(to + raw->rest, first, (size_t)(p - first));
		raw->rest += (size_t)(p - first);
	}
	return true;
}

static bool is_utf8(const struct js_str *s)
{
	const char *p, *end;
	unsigned int n;

	if (!s->n)
		return true;
	for (p = s->p, end = p + s->n; p < end; p += n) {
		n = (unsigned char)*p < 0x80 ? 1 : js_utf8(p, end);
		if (!n)
			return false;
	}
	return true;
}

/* A parameter that is an integer and not negative. */
static bool whole(struct parse *p, const char *key, const Inference__InferParameter *v,
		  uint64_t *u)
{
	int kind = v ? (int)v->parameter_choice_case : 0;

	if (kind == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM) {
		*u = v->uint64_param;
		return true;
	}
	if (kind != INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM)
		return infer_failed(p, 400, "invalid value type for '%s' parameter, expected "
				    "int64_param or uint64_param.", key);
	*u = (uint64_t)v->int64_param;
	return v->int64_param >= 0 ||
		infer_failed(p, 400, "invalid value for '%s', expected value >= 0.", key);
}

/* Whether a parameter has a value that says something. */
static bool is_set(const Inference__InferParameter *v)
{
	if (!v)
		return false;
	switch (v->parameter_choice_case) {
	case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM:
		return v->bool_param;
	case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM:
		return v->int64_param;
	case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM:
		return v->uint64_param;
	case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM:
		return *v->string_param;
	default:
		return true;
	}
}

static bool parameters(struct parse *p, const Inference__ModelInferRequest *m)
{
	const Inference__InferParameter *v;
	const char *key;
	uint64_t u;
	size_t i;

	for (i = 0; i < m->n_parameters; i++) {
		key = m->parameters[i]->key;
		v = m->parameters[i]->value;
		if (!strcmp(key, "timeout")) {
			if (!whole(p, key, v, &u))
				return false;
			infer_timeout(p->r, u);
		} else if (!strcmp(key, "priority")) {
			if (!whole(p, key, v, &u))
				return false;
			infer_priority(p->r, u);
		} else if ((!strcmp(key, "sequence_id") || !strcmp(key, "sequence_start") ||
			    !strcmp(key, "sequence_end")) && is_set(v)) {
			return infer_failed(p, 400, "sequences are not supported");
		}
	}
	return true;
}

/* Elements that have the size of the datatype in the message, too. */
static bool same_size(struct parse *p, unsigned int i, const void *from, size_t n, size_t size)
{
	struct tensor *t = &p->r->in[i];

	if (!infer_size(p, i, n * size) || !infer_buffer(p, i))
		return false;
	memcpy(t->buf, from, t->bytes);
	return true;
}

/* Integers of 8 and 16 bits, and truth values, are 32 bits in the message. */
static bool narrow(struct parse *p, unsigned int i, const int32_t *from, size_t n,
		   int64_t min, int64_t max, bool is_signed)
{
	const struct serve_io *io = &p->m->inputs[i];
	size_t size = type_size[io->type], k;
	int64_t v;
	char *to;

	if (!infer_size(p, i, n * size) || !infer_buffer(p, i))
		return false;
	to = p->r->in[i].buf;
	for (k = 0; k < n; k++, to += size) {
		v = is_signed ? from[k] : (int64_t)(uint32_t)from[k];
		if (v < min || v > max)
			return infer_refused(p, "a value of input '%s' is out of the range of "
					     "its datatype", io->name);
		memcpy(to, &v, size);
	}
	return true;
}

/* The numbers of a message. */
static bool contents(struct parse *p, unsigned int i, const Inference__InferTensorContents *c)
{
	const struct serve_io *io = &p->m->inputs[i];
	static const char *const name[] = { "BOOL",   "INT32", "INT64", "UINT32",
					    "UINT64", "FP32",  "FP64",	"BYTES" };
	static const uint8_t field[] = { [SERVE_BOOL] = 0, [SERVE_INT8] = 1, [SERVE_INT16] = 1,
		[SERVE_INT32] = 1, [SERVE_INT64] = 2, [SERVE_UINT8] = 3, [SERVE_UINT16] = 3,
		[SERVE_UINT32] = 3, [SERVE_UINT64] = 4, [SERVE_FP32] = 5, [SERVE_FP64] = 6,
		[SERVE_FP16] = 8, [SERVE_BYTES] = 7 };
	const size_t n[] = { c->n_bool_contents, c->n_int_contents, c->n_int64_contents,
			     c->n_uint_contents, c->n_uint64_contents, c->n_fp32_contents,
			     c->n_fp64_contents, c->n_bytes_contents };
	unsigned int k;

	for (k = 0; k < 8; k++)
		if (n[k] && k != field[io->type])
			return infer_failed(p, 400,
					    "unexpected explicit tensor data for input tensor "
					    "'%s' for model '%s' of type '%s', expected datatype "
					    "'%s'", io->name, p->m->name, name[k],
					    type_name[io->type]);
	switch (io->type) {
	case SERVE_BOOL:
		return narrow(p, i, c->bool_contents, n[0], 0, 1, true);
	case SERVE_INT8:
		return narrow(p, i, c->int_contents, n[1], INT8_MIN, INT8_MAX, true);
	case SERVE_INT16:
		return narrow(p, i, c->int_contents, n[1], INT16_MIN, INT16_MAX, true);
	case SERVE_INT32:
		return same_size(p, i, c->int_contents, n[1], 4);
	case SERVE_INT64:
		return same_size(p, i, c->int64_contents, n[2], 8);
	case SERVE_UINT8:
		return narrow(p, i, (int32_t *)c->uint_contents, n[3], 0, UINT8_MAX, false);
	case SERVE_UINT16:
		return narrow(p, i, (int32_t *)c->uint_contents, n[3], 0, UINT16_MAX, false);
	case SERVE_UINT32:
		return same_size(p, i, c->uint_contents, n[3], 4);
	case SERVE_UINT64:
		return same_size(p, i, c->uint64_contents, n[4], 8);
	case SERVE_FP32:
		return same_size(p, i, c->fp32_contents, n[5], 4);
	case SERVE_FP64:
		return same_size(p, i, c->fp64_contents, n[6], 8);
	default:
		return infer_failed(p, 400, "input '%s' of datatype '%s' needs "
				    "raw_input_contents", io->name, type_name[io->type]);
	}
}

static struct js_str js_text(const char *text)
{
	return (struct js_str){ .p = text, .n = strlen(text) };
}

static bool shared_memory(Inference__InferInputTensor__ParametersEntry *const *all, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (!strcmp(all[i]->key, "shared_memory_region"))
			return true;
	return false;
}

static bool inputs(struct parse *p, const Inference__ModelInferRequest *m,
		   const struct raw *raw)
{
	const Inference__InferInputTensor *in;
	struct serve_shape s = { 0 };
	struct js_str name, type;
	size_t i, k;
	int input;

	for (i = 0; i < m->n_inputs; i++) {
		in = m->inputs[i];
		clean(in->name);
		name = js_text(in->name);
		type = js_text(in->datatype);
		if (shared_memory(in->parameters, in->n_parameters))
			return infer_failed(p, 400, "shared memory is not supported");
		s.rank = in->n_shape < SERVE_RANK ? (unsigned int)in->n_shape : SERVE_RANK;
		for (k = 0; k < s.rank; k++)
			s.dims[k] = in->shape[k];
		input = infer_input(p, &name, &type, &s, in->n_shape > SERVE_RANK);
		if (input < 0)
			return false;
		if (in->contents && raw->n)
			return infer_failed(p, 400,
					    "contents field must not be specified when using "
					    "raw_input_contents for '%s' for model '%s'",
					    in->name, p->m->name);
		if (in->contents) {
			if (!contents(p, (unsigned int)input, in->contents))
				return false;
			continue;
		}
		if (i >= raw->n)
			return infer_failed(p, 400,
					    "unable to find data for input tensor '%s' for "
					    "model '%s' in request.", in->name, p->m->name);
		if (!infer_size(p, (unsigned int)input, raw->at[i].n))
			return false;
		p->r->in[input].data = raw->at[i].p;
	}
	return true;
}

static bool outputs(struct parse *p, const Inference__ModelInferRequest *m)
{
	const Inference__InferRequestedOutputTensor *out;
	struct js_str name;
	size_t i, k;

	for (i = 0; i < m->n_outputs; i++) {
		out = m->outputs[i];
		for (k = 0; k < out->n_parameters; k++) {
			if (!strcmp(out->parameters[k]->key, "shared_memory_region"))
				return infer_failed(p, 400, "shared memory is not supported");
			if (!strcmp(out->parameters[k]->key, "classification") &&
			    is_set(out->parameters[k]->value))
				return infer_failed(p, 400, "classification is not supported");
		}
		name = js_text(clean(out->name));
		if (infer_output(p, &name) < 0)
			return false;
	}
	return true;
}

static bool read_request(struct parse *p, const Inference__ModelInferRequest *m,
			 const struct raw *raw)
{
	infer_start(p);
	if (!is_utf8(&raw->id))
		return infer_failed(p, 400, "the id is no UTF-8");
	p->r->id = raw->id;
	if (!parameters(p, m) || !inputs(p, m, raw) || !outputs(p, m) || !infer_complete(p))
		return false;
	return raw->n <= m->n_inputs ||
		infer_failed(p, 400,
			     "expected number of inputs and raw input contents to be equal for "
			     "model '%s': %zu and %u", p->m->name, m->n_inputs, raw->n);
}

/* --- infer: the answer ------------------------------------------------------------------- */

/* In a call with many messages, an error is one of them, and the call goes on. */
static void refuse(struct call *k, const struct js_str *id, int status, const char *text)
{
	Inference__ModelStreamInferResponse m = INFERENCE__MODEL_STREAM_INFER_RESPONSE__INIT;
	Inference__ModelInferResponse r = INFERENCE__MODEL_INFER_RESPONSE__INIT;
	char *copy;

	if (!k->method->stream) {
		call_fail(k, status, "%s", text);
		return;
	}
	copy = id->n ? strndup(id->p, id->n) : NULL;
	if (copy)
		r.id = copy;
	m.error_message = (char *)(uintptr_t)text;
	m.infer_response = &r;
	if (!call_send(k, &m.base))
		call_end(k, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	free(copy);
}

/* 0: the answer is written.  Else why it is not. */
static const char *write_answer(struct call *k, struct request *r)
{
	Inference__ModelStreamInferResponse stream = INFERENCE__MODEL_STREAM_INFER_RESPONSE__INIT;
	Inference__ModelInferResponse m = INFERENCE__MODEL_INFER_RESPONSE__INIT;
	Inference__ModelInferResponse__ParametersEntry last =
		INFERENCE__MODEL_INFER_RESPONSE__PARAMETERS_ENTRY__INIT, *params[] = { &last };
	Inference__InferParameter yes = INFERENCE__INFER_PARAMETER__INIT;
	Inference__InferOutputTensor out[MAX_IO], *outs[MAX_IO], *o;
	ProtobufCBinaryData data[MAX_IO];
	int64_t dims[MAX_IO][SERVE_RANK];
	const struct serve_model *model = r->v->m;
	struct arena *a = arena_begin(k->c->loop, r->id.n);
	const ProtobufCMessage *all = &m.base;
	const char *why = NULL;
	char version[24];
	unsigned int i, d;
	size_t n;

	if (!a)
		return "out of memory";
	snprintf(version, sizeof(version), "%" PRId64, model->version);
	m.model_name = (char *)(uintptr_t)model->name;
	m.model_version = version;
	if (r->id.n) {
		m.id = arena_alloc(a, r->id.n + 1);
		if (!m.id) {
			arena_end(a);
			return "out of memory";
		}
		memcpy(m.id, r->id.p, r->id.n);
		m.id[r->id.n] = 0;
	}
	for (i = 0; i < model->noutputs; i++) {
		if (!(r->wanted & 1u << i))
			continue;
		o = outs[m.n_outputs] = &out[m.n_outputs];
		inference__infer_output_tensor__init(o);
		o->name = (char *)(uintptr_t)model->outputs[i].name;
		o->datatype = (char *)(uintptr_t)type_name[model->outputs[i].type];
		o->n_shape = serve_slot_output_shape(r->slot->s, i)->rank;
		o->shape = dims[m.n_outputs];
		for (d = 0; d < o->n_shape; d++)
			o->shape[d] = infer_dim(r, i, d);
		data[m.n_outputs].data = (uint8_t *)(uintptr_t)infer_rows(r, i, &n);
		data[m.n_outputs++].len = n;
	}
	m.outputs = outs;
	m.raw_output_contents = data;
	m.n_raw_output_contents = m.n_outputs;
	if (k->method->stream) {
		/* as Triton says that a request has no further answers */
		last.key = (char *)(uintptr_t)"triton_final_response";
		last.value = &yes;
		yes.parameter_choice_case =
			INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
		yes.bool_param = true;
		m.parameters = params;
		m.n_parameters = 1;
		stream.infer_response = &m;
		all = &stream.base;
	}
	n = protobuf_c_message_get_packed_size(all);
	if (!mem_room(k->c->loop->sv, r->held, n))
		why = "too many requests and answers are in memory";
	else if (!call_send(k, all))
		why = "out of memory";
	arena_end(a);
	return why;
}

static int status_of_request(const struct request *r)
{
	return r->status == -ETIMEDOUT ? GRPC_DEADLINE_EXCEEDED :
		r->status == -ECANCELED ? GRPC_CANCELLED : status_of(infer_http(r));
}

static void infer_done(struct msg *msg)
{
	struct request *r = msg->arg;
	struct call *k = r->call;
	struct loop *l = r->loop;
	uint64_t begin = now_ns();
	const char *why = r->why ? r->why : "the model failed";
	bool gone = k->closed || k->ended, served = false;
	int status = 0;

	if (!infer_is_last(r))
		return;			/* the receipt of the cancel comes */
	if (r->call_prev)
		r->call_prev->call_next = r->call_next;
	else
		k->requests = r->call_next;
	if (r->call_next)
		r->call_next->call_prev = r->call_prev;
	if (r->status) {
		status = status_of_request(r);
	} else if (!gone) {
		why = write_answer(k, r);
		served = !why;
		status = GRPC_RESOURCE_EXHAUSTED;
	}
	infer_end(r, served, gone, begin);
	if (!served && !gone)
		refuse(k, &r->id, status, why);
	else if (!k->method->stream)
		call_end(k, GRPC_OK, NULL);
	infer_release(l, r);
	call_done(k);
}

void grpc_cancel(struct call *k)
{
	struct request *r;

	if (k->canceled)
		return;
	k->canceled = true;
	for (r = k->requests; r; r = r->call_next)
		infer_cancel(r);
}

static void model_infer(struct call *k, struct buf *body)
{
	struct loop *l = k->c->loop;
	struct raw raw;
	const uint8_t *bytes = (uint8_t *)body->p;
	Inference__ModelInferRequest *m = NULL;
	struct refusal why = { GRPC_INVALID_ARGUMENT, UNREADABLE };
	struct request *r = NULL;
	struct version *v = NULL;
	struct arena *a = NULL;
	struct parse p;
	uint8_t *copy;
	bool ok = false, readable;

	readable = walk(bytes, body->n, &raw, NULL);
	if (readable) {
		a = arena_begin(l, raw.rest);
		copy = a && !raw.together ? arena_alloc(a, raw.rest) : NULL;
		if (copy)
			walk(bytes, body->n, &raw, copy);
		if (a && (copy || raw.together))
			m = inference__model_infer_request__unpack(
				&a->allocator, raw.rest, copy ? copy : bytes);
	}
	if (m)
		v = find(k, m->model_name, m->model_version, &why);
	else if (readable && (!a || a->full))
		why = (struct refusal){ GRPC_RESOURCE_EXHAUSTED, "out of memory" };
	if (v) {
		r = infer_new(l, v);
		if (!r)
			why = (struct refusal){ GRPC_RESOURCE_EXHAUSTED, "out of memory" };
	}
	if (r) {
		p = (struct parse){ .l = l, .r = r, .m = v->m, .err = why.text,
				    .size = sizeof(why.text),
				    .max_batch = v->e->conf.max_batch ? v->e->conf.max_batch :
									1 };
		ok = read_request(&p, m, &raw);
		if (!ok)
			why.status = status_of(p.http);
	}
	if (a)
		arena_end(a);
	if (!ok) {
		if (r)
			infer_release(l, r);
		if (raw.id.n && !is_utf8(&raw.id))
			raw.id.n = 0;
		refuse(k, &raw.id, why.status, clean(why.text));
		return;
	}
	if (k->deadline_ns && (!r->deadline_ns || k->deadline_ns < r->deadline_ns))
		r->deadline_ns = k->deadline_ns;
	r->body = *body;
	*body = (struct buf){ 0 };
	mem_hold(l->sv, &r->held, r->body.n);
	r->call = k;
	r->call_prev = NULL;
	r->call_next = k->requests;
	if (r->call_next)
		r->call_next->call_prev = r;
	k->requests = r;
	k->pending++;
	k->c->request_pending++;
	infer_submit(r, infer_done);
}

/* --- the service ------------------------------------------------------------------------- */

static const struct method methods[] = {
	{ "ModelInfer", model_infer, false, false },
	{ "ModelStreamInfer", model_infer, false, true },
	/* without the token, too: a load balancer has none */
	{ "ServerLive", server_live, true, false },
	{ "ServerReady", server_ready, true, false },
	{ "ServerMetadata", server_metadata, false, false },
	{ "ModelReady", model_ready, false, false },
	{ "ModelMetadata", model_metadata, false, false },
	{ "ModelConfig", model_config, false, false },
	{ "ModelStatistics", model_statistics, false, false },
	{ "RepositoryIndex", repository_index, false, false },
	{ "RepositoryModelLoad", repository_load, false, false },
	{ "RepositoryModelUnload", repository_unload, false, false },
};

const struct method *grpc_method(const char *path, size_t n)
{
	static const char service[] = "/inference.GRPCInferenceService/";
	size_t i, skip = sizeof(service) - 1;

	if (n <= skip || memcmp(path, service, skip))
		return NULL;
	for (i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (strlen(methods[i].name) == n - skip &&
		    !memcmp(methods[i].name, path + skip, n - skip))
			return &methods[i];
	return NULL;
}
