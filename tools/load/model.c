// SPDX-License-Identifier: Apache-2.0
/*
 * The requests for a model, made once before the run: the server says which inputs the model
 * has, and the options say which shapes and values they have.
 */

#include <stdlib.h>
#include <string.h>

#include <tools/pawl/slurp.h>
#include "load.h"

#define INPUT_MAX	((size_t)1 << 30)
#define MAX_INPUTS	64u

struct build {
	const struct options *o;
	struct model *m;
	struct tensor inputs[MAX_INPUTS];
	unsigned int ninputs;
	bool batched;		/* an input has a variable first dimension */
	char path[512];
};

static int complain(const struct model *m, const char *why, const char *detail)
{
	fprintf(stderr, "%s: model '%s': %s%s\n", LOAD_SELF, m->name, why, detail);
	return -1;
}

/* --- the inputs ------------------------------------------------------------------ */

static int set_dims(struct build *b, struct tensor *t, const json_t *shape)
{
	const struct options *o = b->o;
	const struct shape_arg *arg = NULL;
	unsigned int i, skip;
	int64_t own;
	char why[256];

	t->rank = (unsigned int)json_array_size(shape);
	if (t->rank > MAX_RANK)
		return complain(b->m, "too many dimensions in the input ", t->name);
	for (i = 0; i < t->rank; i++)
		t->dims[i] = json_integer_value(json_array_get(shape, i));
	own = t->rank ? t->dims[0] : 0;
	for (i = 0; i < o->nshapes; i++)
		if (strlen(t->name) == o->shapes[i].name_len &&
		    !memcmp(t->name, o->shapes[i].name, o->shapes[i].name_len))
			arg = &o->shapes[i];
	b->batched = b->batched || own < 0;
	if (own < 0)
		t->dims[0] = (int64_t)(o->batch ? o->batch : 1);
	if (arg) {
		/* with or without the first dimension */
		skip = t->rank - arg->rank;
		if (arg->rank > t->rank || skip > 1 || (skip && own >= 0)) {
			snprintf(why, sizeof(why), "'%.100s' has %u dimensions, and --shape %u",
				 t->name, t->rank, arg->rank);
			return complain(b->m, why, "");
		}
		for (i = 0; i < arg->rank; i++)
			t->dims[skip + i] = arg->dims[i];
	}
	t->rows = own < 0 && t->dims[0] > 0 ? (size_t)t->dims[0] : 1;
	t->count = 1;
	for (i = 0; i < t->rank; i++) {
		if (t->dims[i] < 0) {
			snprintf(why, sizeof(why), "a dimension of '%.100s' is variable; "
				 "--shape sets it", t->name);
			return complain(b->m, why, "");
		}
		if (t->dims[i] && t->count > INPUT_MAX / (size_t)t->dims[i])
			return complain(b->m, "too many elements in the input ", t->name);
		t->count *= (size_t)t->dims[i];
	}
	return 0;
}

static int read_metadata(struct build *b, const json_t *meta)
{
	const json_t *inputs = json_object_get(meta, "inputs"), *in;
	struct tensor *t;
	size_t i;

	if (!json_is_array(inputs) || !json_array_size(inputs) ||
	    json_array_size(inputs) > MAX_INPUTS)
		return complain(b->m, "the server's description has no inputs, or too many",
				"");
	json_array_foreach(inputs, i, in) {
		t = &b->inputs[b->ninputs++];
		t->name = json_string_value(json_object_get(in, "name"));
		t->type = json_string_value(json_object_get(in, "datatype"));
		if (!t->name || !t->type || !json_is_array(json_object_get(in, "shape")))
			return complain(b->m, "the server's description is incomplete", "");
		if (!load_type_known(t->type))
			return complain(b->m, "unknown type of an input: ", t->type);
		if (set_dims(b, t, json_object_get(in, "shape")))
			return -1;
	}
	if (b->o->batch && !b->batched)
		return complain(b->m, "--batch: no input has a variable first dimension", "");
	return 0;
}

/* --- a request ---------------------------------------------------------------------- */

static json_t *json_input(const struct build *b, const struct tensor *t)
{
	json_t *shape = json_array(), *in;
	unsigned int i;

	for (i = 0; i < t->rank; i++)
		json_array_append_new(shape, json_integer(t->dims[i]));
	in = json_pack("{s:s, s:o, s:s}", "name", t->name, "shape", shape, "datatype", t->type);
	if (b->o->json)
		json_object_set_new(in, "data", load_tensor_json(t));
	else
		json_object_set_new(in, "parameters", json_pack("{s:I}", "binary_data_size",
								(json_int_t)t->n));
	return in;
}

static char *json_part(const struct build *b)
{
	const struct options *o = b->o;
	json_t *root = json_object(), *inputs = json_array(), *parameters = json_object(), *in;
	bool wide = false;
	unsigned int i;
	char *text;

	for (i = 0; i < b->ninputs; i++) {
		wide = wide || !strcmp(b->inputs[i].type, "FP64");
		in = json_input(b, &b->inputs[i]);
		if (o->json && !json_object_get(in, "data")) {
			complain(b->m, "JSON cannot express the values of ", b->inputs[i].name);
			json_decref(in);
			in = NULL;
		}
		if (!in || json_array_append_new(inputs, in)) {
			json_decref(root);
			json_decref(inputs);
			json_decref(parameters);
			return NULL;
		}
	}
	if (!o->json)
		json_object_set_new(parameters, "binary_data_output", json_true());
	if (o->timeout_us)
		json_object_set_new(parameters, "timeout",
				    json_integer((json_int_t)o->timeout_us));
	if (o->priority)
		json_object_set_new(parameters, "priority",
				    json_integer((json_int_t)o->priority));
	json_object_set_new(root, "inputs", inputs);
	if (json_object_size(parameters))
		json_object_set(root, "parameters", parameters);
	json_decref(parameters);
	/* 9 digits distinguish all float32 */
	text = json_dumps(root, JSON_COMPACT | (wide ? 0 : JSON_REAL_PRECISION(9)));
	json_decref(root);
	if (!text)
		complain(b->m, "out of memory", "");
	return text;
}

/* Add the request with the values that the inputs have now. */
static int add_request(struct build *b)
{
	const struct options *o = b->o;
	struct model *m = b->m;
	struct request *r = realloc(m->requests, (m->nrequests + 1) * sizeof(*r));
	size_t body, tensors = 0, i;
	char *json, length[64] = "", *p;
	int head;

	if (!r)
		return complain(m, "out of memory", "");
	m->requests = r;
	r += m->nrequests;
	if (o->grpc) {
		if (load_grpc_request(o, m, b->inputs, b->ninputs, r))
			return -1;
		m->nrequests++;
		return 0;
	}
	json = json_part(b);
	if (!json)
		return -1;
	for (i = 0; !o->json && i < b->ninputs; i++)
		tensors += b->inputs[i].n;
	body = strlen(json) + tensors;
	if (!o->json)
		snprintf(length, sizeof(length), "Inference-Header-Content-Length: %zu\r\n",
			 strlen(json));
	head = asprintf(&p, "POST %s/infer HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\n"
			"Content-Length: %zu\r\n%s%s\r\n%s", b->path, o->authority,
			o->json ? "application/json" : "application/octet-stream", body, length,
			o->headers ? o->headers : "", json);
	free(json);
	r->p = head < 0 ? NULL : realloc(p, (size_t)head + tensors + 1);
	if (!r->p) {
		if (head >= 0)
			free(p);
		return complain(m, "out of memory", "");
	}
	r->n = (size_t)head;
	for (i = 0; !o->json && i < b->ninputs; i++) {
		memcpy(r->p + r->n, b->inputs[i].p, b->inputs[i].n);
		r->n += b->inputs[i].n;
	}
	m->nrequests++;
	return 0;
}

static void clear(struct build *b)
{
	unsigned int i;

	for (i = 0; i < b->ninputs; i++) {
		free(b->inputs[i].p);
		b->inputs[i].p = NULL;
		b->inputs[i].n = b->inputs[i].cap = 0;
	}
}

/* --- from a file ----------------------------------------------------------------------- */

/* An object {"NAME": values, ...}, or a list of them, one after the other. */
static int from_entry(struct build *b, const json_t *entry)
{
	json_t *value, *v;
	unsigned int i;
	char why[256];
	size_t k;
	int rc;

	if (json_is_array(entry)) {
		json_array_foreach(entry, k, v)
			if (from_entry(b, v))
				return -1;
		return 0;
	}
	clear(b);
	for (i = 0; i < b->ninputs; i++) {
		value = json_object_get(entry, b->inputs[i].name);
		if (!value)
			return complain(b->m, "an entry of the input file has no values for ",
					b->inputs[i].name);
		if (load_tensor_parse(&b->inputs[i], value, why, sizeof(why)))
			return complain(b->m, why, "");
	}
	rc = add_request(b);
	clear(b);
	return rc;
}

static int from_file(struct build *b)
{
	const char *file = b->o->input;
	json_error_t error;
	json_t *root, *data;
	char why[512];
	size_t n;
	void *p;
	int rc;

	if (file_slurp(file, INPUT_MAX, &p, &n, why, sizeof(why))) {
		fprintf(stderr, "%s: %s\n", LOAD_SELF, why);
		return -1;
	}
	root = json_loadb(p, n, 0, &error);
	free(p);
	if (!root) {
		fprintf(stderr, "%s: %s:%d: %s\n", LOAD_SELF, file, error.line, error.text);
		return -1;
	}
	data = json_object_get(root, "data");
	if (json_object_get(root, "validation_data"))
		rc = complain(b->m, "answers are not compared with validation_data, in ", file);
	else if (!json_array_size(data))
		rc = complain(b->m, "no list named \"data\" in ", file);
	else
		rc = from_entry(b, data);
	if (!rc && !b->m->nrequests)
		rc = complain(b->m, "no requests in ", file);
	json_decref(root);
	return rc;
}

/* --- the model --------------------------------------------------------------------------- */

static int set_path(struct build *b)
{
	int n = snprintf(b->path, sizeof(b->path), "/v2/models/%s%s%s", b->m->name,
			 b->m->version ? "/versions/" : "",
			 b->m->version ? b->m->version : "");

	return n < (int)sizeof(b->path) ? 0 : complain(b->m, "the name is too long", "");
}

static json_t *metadata(struct build *b)
{
	char *body, text[300];
	json_error_t error;
	json_t *meta = NULL;
	int status;
	size_t n;

	if (load_http_get(b->o, b->path, &status, &body, &n))
		return NULL;
	if (status == 200)
		meta = json_loadb(body ? body : "", n, 0, &error);
	if (!meta) {
		snprintf(text, sizeof(text), "status %d: %.200s", status, body ? body : "");
		complain(b->m, "the server does not describe it: ", text);
	}
	free(body);
	return meta;
}

int load_model_prepare(const struct options *o, struct model *m)
{
	struct build b = { .o = o, .m = m };
	uint64_t seed = o->seed;
	unsigned int i;
	json_t *meta;
	int rc = -1;

	if (set_path(&b))
		return -1;
	meta = o->grpc ? load_grpc_metadata(o, m) : metadata(&b);
	if (!meta)
		return -1;
	if (!read_metadata(&b, meta)) {
		rc = o->input ? from_file(&b) : 0;
		for (i = 0; !rc && !o->input && i < b.ninputs; i++)
			if (load_tensor_fill(&b.inputs[i], o->zero, &seed))
				rc = complain(m, "out of memory", "");
		if (!rc && !o->input)
			rc = add_request(&b);
	}
	clear(&b);
	json_decref(meta);
	return rc;
}

void load_model_free(struct model *m)
{
	size_t i;

	for (i = 0; i < m->nrequests; i++)
		free(m->requests[i].p);
	free(m->requests);
	free(m->name);
	free(m->version);
}
