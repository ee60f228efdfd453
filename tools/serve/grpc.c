// SPDX-License-Identifier: Apache-2.0
/*
 * The calls of gRPC: the Open Inference Protocol and some of Triton's extensions
 * (inference.proto).  The library protobuf-c reads and writes messages.  It allocates from an
 * arena, which holds a usual message without a call of malloc, and limits the size of others.
 * grpc_infer.c has the calls with tensors.
 */

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <generated/inference.pb-c.h>
#include "grpc.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* --- the memory of a message -------------------------------------------------------- */

void *arena_alloc(void *data, size_t n)
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
		/* a large block leaves the room in the previous one to others */
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

struct arena *arena_begin(struct loop *l, size_t n)
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
	/* a number of one byte on the wire can take eight in memory */
	a->left = ARENA_FIRST + 8 * n;
	a->full = false;
	return a;
}

void arena_end(struct arena *a)
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
	const char *why;

	(void)body;
	m.ready = loop_ready(k->c->loop, &why);
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

void *grpc_unpack(struct call *k, const struct buf *body,
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
		call_end(k, GRPC_INVALID_ARGUMENT, GRPC_UNREADABLE);
	if (*a)
		arena_end(*a);
	return NULL;
}

char *grpc_clean(char *text)
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

struct version *grpc_find(struct call *k, char *name, char *version, struct refusal *why)
{
	struct version *v = NULL;
	int64_t want = NEWEST;
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
				 grpc_clean(version));
			return NULL;
		}
	}
	v = table_find(k->c->loop->table, name, strlen(name), want);
	if (v)
		return v;
	v = table_find(k->c->loop->table, name, strlen(name), NEWEST);
	if (v) {
		snprintf(why->text, sizeof(why->text),
			 "Request for unknown model: '%s' version %" PRId64 " is not found",
			 v->e->name, want);
		v = NULL;
	} else if (k->c->loop->table->loading) {
		/* clients try again */
		why->status = GRPC_UNAVAILABLE;
		snprintf(why->text, sizeof(why->text), "model '%.500s' is not loaded yet",
			 grpc_clean(name));
	} else {
		snprintf(why->text, sizeof(why->text),
			 "Request for unknown model: '%.500s' is not found", grpc_clean(name));
	}
	return NULL;
}

/* The model of a request that has a name and a version. */
static Inference__ModelRequest *model_request(struct call *k, struct buf *body,
					      struct arena **a, struct version **v,
					      struct refusal *why)
{
	Inference__ModelRequest *m =
		grpc_unpack(k, body, &inference__model_request__descriptor, a);

	if (m)
		*v = grpc_find(k, m->name, m->version, why);
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
	m.ready = v && !load_relaxed(&k->c->loop->sv->closing);
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
	const struct table *t = k->c->loop->table;
	char (*number)[24];
	unsigned int i;
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
	a->left = SIZE_MAX;
	number = arena_alloc(a, t->n * sizeof(*number));
	m.versions = arena_alloc(a, t->n * sizeof(*m.versions));
	for (i = 0; number && m.versions && i < t->n; i++)
		if (t->at[i].e == v->e) {
			m.versions[m.n_versions] = number[m.n_versions];
			snprintf(number[m.n_versions++], sizeof(*number), "%" PRId64,
				 t->at[i].v->m->version);
		}
	m.name = (char *)(uintptr_t)v->m->name;
	m.platform = (char *)(uintptr_t)v->m->platform;
	m.inputs = tensors(a, v->m->inputs, v->m->ninputs);
	m.outputs = tensors(a, v->m->outputs, v->m->noutputs);
	m.n_inputs = v->m->ninputs;
	m.n_outputs = v->m->noutputs;
	if (m.inputs && m.outputs && number && m.versions)
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
	/* for a model with batches, Triton's dims leave out the first one */
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
	if (!strcmp(model->backend, "onnxruntime"))
		config.backend = (char *)(uintptr_t)model->backend;
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
	struct stats *st = &v->stats;
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
		else if (table_find(t, req->name, strlen(req->name), NEWEST))
			call_fail(k, GRPC_INVALID_ARGUMENT,
				  "requested model version is not available for model '%s'",
				  req->name);
		else
			call_fail(k, GRPC_INVALID_ARGUMENT,
				  "requested model '%.500s' is not available",
				  grpc_clean(req->name));
		arena_end(a);
		return;
	}
	/* the size of the answer depends on the table, not on the request */
	a->left = SIZE_MAX;
	m.model_stats = arena_alloc(a, (t->n + 1) * sizeof(*m.model_stats));
	for (i = 0; m.model_stats && i < t->n; i++) {
		if (*req->name && (*req->version ? t->at[i].v != v : t->at[i].e != v->e))
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

int grpc_status(int http)
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
		call_fail(k, grpc_status(ct->http), "%s", ct->text ? ct->text : "out of memory");
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
	if (what != CONTROL_INDEX && !k->c->loop->sv->control) {
		call_end(k, GRPC_PERMISSION_DENIED, "loads are not served at this address: see "
			 "--admin and control in pawl-serve(1)");
		return;
	}
	k->control_done.fn = control_done;
	k->control_done.arg = k;
	k->control = control_begin(k->c->loop, what, name, 0, ready, &k->control_done);
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

	m = grpc_unpack(k, body, &inference__repository_index_request__descriptor, &a);
	if (!m)
		return;
	control(k, CONTROL_INDEX, "", m->ready);
	arena_end(a);
}

static void repository_model(struct call *k, struct buf *body, enum control_what what)
{
	Inference__RepositoryModelRequest *m;
	struct arena *a;

	m = grpc_unpack(k, body, &inference__repository_model_request__descriptor, &a);
	if (!m)
		return;
	if (what == CONTROL_LOAD && m->n_parameters)
		call_end(k, GRPC_INVALID_ARGUMENT, "parameters of a load are not supported");
	else if (strlen(m->model_name) > NAME_MAX_LEN)
		call_end(k, GRPC_INVALID_ARGUMENT, "the name of the model is too long");
	else
		control(k, what, grpc_clean(m->model_name), false);
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

/* --- grpc.health.v1 ---------------------------------------------------------------------- */

static const char service[] = "inference.GRPCInferenceService";

/* Send the status, and note it.  Returns false if there is no memory. */
static bool send_health(struct call *k)
{
	Inference__HealthCheckResponse m = INFERENCE__HEALTH_CHECK_RESPONSE__INIT;
	const char *why;

	m.status = k->health == HEALTH_UNKNOWN ?
		INFERENCE__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN :
		loop_ready(k->c->loop, &why) ?
		INFERENCE__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING :
		INFERENCE__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
	if (k->health != HEALTH_UNKNOWN)
		k->health = m.status == INFERENCE__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING ?
			HEALTH_SERVING : HEALTH_NOT_SERVING;
	return call_send(k, &m.base);
}

static void health(struct call *k, struct buf *body, bool watch)
{
	Inference__HealthCheckRequest *m;
	struct arena *a;
	bool known;

	m = grpc_unpack(k, body, &inference__health_check_request__descriptor, &a);
	if (!m)
		return;
	known = !*m->service || !strcmp(m->service, service);
	arena_end(a);
	k->health = known ? HEALTH_NOT_SERVING : HEALTH_UNKNOWN;
	if (!known && !watch)
		call_end(k, GRPC_NOT_FOUND, "no service of this server has this name");
	else if (!send_health(k))
		call_end(k, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	else if (!watch)
		call_end(k, GRPC_OK, NULL);
}

static void health_check(struct call *k, struct buf *body)
{
	health(k, body, false);
}

static void health_watch(struct call *k, struct buf *body)
{
	health(k, body, true);
}

void grpc_health(struct call *k)
{
	const char *why;

	if (k->health == HEALTH_UNKNOWN || k->ended || k->closed ||
	    (k->health == HEALTH_SERVING) == loop_ready(k->c->loop, &why))
		return;
	if (!send_health(k))
		call_end(k, GRPC_RESOURCE_EXHAUSTED, "out of memory");
}

/* --- the service ------------------------------------------------------------------------- */

static const struct method methods[] = {
	{ "ModelInfer", grpc_infer, false, false },
	{ "ModelStreamInfer", grpc_infer, false, true },
	/* these need no token: a load balancer has none */
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

static const struct method health_methods[] = {
	{ "Check", health_check, true, false },
	{ "Watch", health_watch, true, false },
};

/* for a client that has no description of the service */
static const struct method reflection_methods[] = {
	{ "ServerReflectionInfo", grpc_reflect, false, true },
};

static const struct method *find_method(const struct method *all, size_t n, const char *name,
					size_t len)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (strlen(all[i].name) == len && !memcmp(all[i].name, name, len))
			return &all[i];
	return NULL;
}

static const struct {
	const char *prefix;		/* of a path */
	const struct method *methods;
	size_t n;
} service_table[] = {
	{ "/inference.GRPCInferenceService/", methods, COUNT(methods) },
	{ "/grpc.health.v1.Health/", health_methods, COUNT(health_methods) },
	{ "/grpc.reflection.v1.ServerReflection/", reflection_methods,
	  COUNT(reflection_methods) },
	{ "/grpc.reflection.v1alpha.ServerReflection/", reflection_methods,
	  COUNT(reflection_methods) },
};

const struct method *grpc_method(const char *path, size_t n)
{
	size_t i, skip;

	for (i = 0; i < COUNT(service_table); i++) {
		skip = strlen(service_table[i].prefix);
		if (n > skip && !memcmp(path, service_table[i].prefix, skip))
			return find_method(service_table[i].methods, service_table[i].n,
					   path + skip, n - skip);
	}
	return NULL;
}
