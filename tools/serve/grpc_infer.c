// SPDX-License-Identifier: Apache-2.0
/*
 * ModelInfer and ModelStreamInfer of gRPC: from the message to tensors, and from the slot to
 * the answer.
 *
 * The bytes of raw tensors stay in the message, and loop 0 copies them into the slot.
 * protobuf-c receives the message without them, since it would copy them, too.  The outputs are
 * written from the slot into the answer.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <generated/inference.pb-c.h>
#include "grpc.h"
#include "infer.h"

/* --- the request ------------------------------------------------------------------------- */

/* The fields of a ModelInferRequest that the library does not read. */
struct raw {
	unsigned int n;
	struct {
		const uint8_t *p;
		size_t n;
	} at[MAX_IO + 1];
	struct js_str id;
	size_t rest;			/* bytes of all other fields */
	bool together;			/* all others come first */
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
 * Walk over the fields of a ModelInferRequest.  If `to` is not NULL, copy all fields but
 * raw_input_contents there.
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

/* Read a parameter that is an integer and not negative. */
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

/* Whether a parameter has a value other than false, 0 or an empty string. */
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

/* Elements that have the size of the datatype also in the message. */
static bool same_size(struct parse *p, unsigned int i, const void *from, size_t n, size_t size)
{
	struct tensor *t = &p->r->in[i];

	if (!infer_size(p, i, from, n * size) || !infer_buffer(p, i, t->bytes))
		return false;
	if (t->bytes)
		memcpy(t->buf, from, t->bytes);
	return true;
}

/* Strings, each of which is to be behind its length. */
static bool join(struct parse *p, unsigned int i, const ProtobufCBinaryData *from, size_t n)
{
	struct tensor *t = &p->r->in[i];
	uint64_t bytes = 0;
	uint32_t len;
	size_t k;
	char *to;

	for (k = 0; k < n; k++)
		bytes += sizeof(len) + from[k].len;
	if (!infer_buffer(p, i, bytes))
		return false;
	to = t->buf;
	for (k = 0; k < n; k++) {
		len = (uint32_t)from[k].len;
		memcpy(to, &len, sizeof(len));
		to += sizeof(len);
		if (len)
			memcpy(to, from[k].data, len);
		to += len;
	}
	return infer_size(p, i, t->buf, bytes);
}

/* Integers of 8 and 16 bits, and booleans, have 32 bits in the message. */
static bool narrow(struct parse *p, unsigned int i, const int32_t *from, size_t n,
		   int64_t min, int64_t max, bool is_signed)
{
	const struct serve_io *io = &p->m->inputs[i];
	size_t size = type_size[io->type], k;
	int64_t v;
	char *to;

	if (!infer_size(p, i, from, n * size) || !infer_buffer(p, i, n * size))
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
	case SERVE_BYTES:
		return join(p, i, c->bytes_contents, n[7]);
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
		grpc_clean(in->name);
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
		if (!infer_size(p, (unsigned int)input, raw->at[i].p, raw->at[i].n))
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
		name = js_text(grpc_clean(out->name));
		if (infer_output(p, &name) < 0)
			return false;
	}
	return true;
}

static bool read_request(struct parse *p, const Inference__ModelInferRequest *m,
			 const struct raw *raw)
{
	infer_start(p);
	if (!js_is_utf8(&raw->id))
		return infer_failed(p, 400, "the id is not UTF-8");
	p->r->id = raw->id;
	if (!parameters(p, m) || !inputs(p, m, raw) || !outputs(p, m) || !infer_complete(p))
		return false;
	return raw->n <= m->n_inputs ||
		infer_failed(p, 400,
			     "expected number of inputs and raw input contents to be equal for "
			     "model '%s': %zu and %u", p->m->name, m->n_inputs, raw->n);
}

/* --- the answer -------------------------------------------------------------------------- */

/* In a call with many messages, an error is a message, and the call continues. */
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

/* Write the answer.  Returns NULL, or the reason why it is not written. */
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
		/* as with Triton: the request has no further answers */
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
		r->status == -ECANCELED ? GRPC_CANCELLED : grpc_status(infer_http(r));
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
		return;			/* the receipt of the cancel follows */
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
	infer_end(r, served ? 200 : r->status ? infer_http(r) : 503, gone, begin);
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

void grpc_infer(struct call *k, struct buf *body)
{
	struct loop *l = k->c->loop;
	struct raw raw;
	const uint8_t *bytes = (uint8_t *)body->p;
	Inference__ModelInferRequest *m = NULL;
	struct refusal why = { GRPC_INVALID_ARGUMENT, GRPC_UNREADABLE };
	struct request *r = NULL;
	struct version *v = NULL;
	struct arena *a = NULL;
	struct parse p;
	uint8_t *copy;
	bool ok = false, readable;
	char name[NAME_MAX_LEN + 1] = "";

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
	if (m) {
		v = grpc_find(k, m->model_name, m->model_version, &why);
		snprintf(name, sizeof(name), "%s", grpc_clean(m->model_name));
	} else if (readable && (!a || a->full)) {
		why = (struct refusal){ GRPC_RESOURCE_EXHAUSTED, "out of memory" };
	}
	if (v) {
		r = infer_new(l, v);
		if (!r)
			why = (struct refusal){ GRPC_RESOURCE_EXHAUSTED, "out of memory" };
	}
	if (r) {
		p = (struct parse){ .l = l, .r = r, .m = v->m, .err = why.text,
				    .size = sizeof(why.text), .held = k->held + a->held };
		ok = read_request(&p, m, &raw);
		if (!ok)
			why.status = grpc_status(p.http);
	}
	if (a)
		arena_end(a);
	if (!ok) {
		access_note(l, k->c, k->traceparent, r, name,
			    v ? v->m->version : 0, why.status == GRPC_NOT_FOUND ? 404 :
			    why.status == GRPC_INVALID_ARGUMENT ? 400 : 503);
		if (r)
			infer_release(l, r);
		if (!js_is_utf8(&raw.id))
			raw.id.n = 0;
		refuse(k, &raw.id, why.status, grpc_clean(why.text));
		return;
	}
	if (k->deadline_ns && (!r->deadline_ns || k->deadline_ns < r->deadline_ns))
		r->deadline_ns = k->deadline_ns;
	r->body = *body;
	*body = (struct buf){ 0 };
	mem_hold(l->sv, &r->held, r->held + r->body.n);
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
