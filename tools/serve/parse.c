// SPDX-License-Identifier: Apache-2.0
/*
 * The body of an infer request: from JSON and binary data to tensors.
 *
 * The body is walked once.  Binary tensors stay in it, numbers in JSON are converted into a
 * buffer as they are read; loop 0 copies either into the slot.  Most texts of errors are those
 * of Triton; Documentation/serve.md lists the differences.
 */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "infer.h"

const char *const type_name[] = { "BOOL", "UINT8", "UINT16", "UINT32", "UINT64",
				  "INT8", "INT16", "INT32",  "INT64",  "FP16",
				  "FP32", "FP64",  "BYTES" };
const uint8_t type_size[] = { 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 0 };
#define NTYPES (sizeof(type_name) / sizeof(type_name[0]))

#define failed infer_failed
#define refused infer_refused

bool infer_failed(struct parse *p, int http, const char *fmt, ...)
{
	va_list ap;

	if (!p->http) {
		p->http = http;
		va_start(ap, fmt);
		vsnprintf(p->err, p->size, fmt, ap);
		va_end(ap);
	}
	return false;
}

bool infer_refused(struct parse *p, const char *fmt, ...)
{
	char text[768];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!p->r->id.n)
		return failed(p, 400, "[request id: <id_unknown>] %s", text);
	return failed(p, 400, "[request id: %.*s] %s",
		      (int)(p->r->id.n > 100 ? 100 : p->r->id.n), p->r->id.p, text);
}

static void dims_text(char *buf, size_t size, unsigned int rank, const int64_t *dims)
{
	size_t n = 0;
	unsigned int i;

	for (i = 0; i < rank && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%" PRId64, i ? "," : "", dims[i]);
}

/* --- the data of a tensor ------------------------------------------------------- */

/* A number, or one that JSON does not have: clients write these as Python and Triton do. */
static bool real(struct js *j, double *d)
{
	static const struct {
		const char *text;
		double d;
	} other[] = { { "NaN", (double)NAN }, { "Infinity", HUGE_VAL }, { "-Infinity", -HUGE_VAL },
		      { "Inf", HUGE_VAL }, { "-Inf", -HUGE_VAL } };
	char c = js_peek(j);
	unsigned int i;
	size_t n;

	if (c == 'N' || c == 'I' || (c == '-' && j->end - j->p > 1 && j->p[1] == 'I'))
		for (i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
			n = strlen(other[i].text);
			if ((size_t)(j->end - j->p) < n || memcmp(j->p, other[i].text, n))
				continue;
			j->p += n;
			*d = other[i].d;
			return true;
		}
	return js_double(j, d);
}

/* A string becomes its length and its bytes, as in binary data. */
static bool string(struct js *j, struct sink *s)
{
	struct js_str text;
	uint32_t n;

	if (!js_string(j, &text))
		return false;
	/* there is room for the text as it is in the JSON, and js_decode() adds a 0 */
	n = (uint32_t)js_decode(&text, s->to + sizeof(n), text.n + 1);
	memcpy(s->to, &n, sizeof(n));
	s->to += sizeof(n) + n;
	return true;
}

static bool element(struct js *j, struct sink *s)
{
	static const int64_t min[] = { [SERVE_INT8] = INT8_MIN, [SERVE_INT16] = INT16_MIN,
		[SERVE_INT32] = INT32_MIN, [SERVE_INT64] = INT64_MIN };
	static const int64_t max[] = { [SERVE_INT8] = INT8_MAX, [SERVE_INT16] = INT16_MAX,
		[SERVE_INT32] = INT32_MAX, [SERVE_INT64] = INT64_MAX };
	static const uint64_t umax[] = { [SERVE_UINT8] = UINT8_MAX, [SERVE_UINT16] = UINT16_MAX,
		[SERVE_UINT32] = UINT32_MAX, [SERVE_UINT64] = UINT64_MAX };
	uint64_t u;
	int64_t v;
	double d;
	float f;
	bool b;

	if (!s->left)
		return js_fail(j, "more data than the shape has");
	s->left--;
	switch (s->type) {
	case SERVE_BOOL:
		if (js_peek(j) == 't' || js_peek(j) == 'f') {
			if (!js_bool(j, &b))
				return false;
		} else {
			if (!js_uint(j, &u))
				return false;
			if (u > 1)
				return js_fail(j, "not true, false, 0 or 1");
			b = u;
		}
		*s->to = b;
		break;
	case SERVE_UINT8:
	case SERVE_UINT16:
	case SERVE_UINT32:
	case SERVE_UINT64:
		if (!js_uint(j, &u))
			return false;
		if (u > umax[s->type])
			return js_fail(j, "an integer is out of the range of the datatype");
		memcpy(s->to, &u, type_size[s->type]);
		break;
	case SERVE_INT8:
	case SERVE_INT16:
	case SERVE_INT32:
	case SERVE_INT64:
		if (!js_int(j, &v))
			return false;
		if (v < min[s->type] || v > max[s->type])
			return js_fail(j, "an integer is out of the range of the datatype");
		memcpy(s->to, &v, type_size[s->type]);
		break;
	case SERVE_FP32:
		if (!real(j, &d))
			return false;
		f = (float)d;
		if (isinf(f) && !isinf(d))
			return js_fail(j, "a number is out of the range of the datatype");
		memcpy(s->to, &f, 4);
		break;
	case SERVE_BYTES:
		return string(j, s);
	default:
		if (!real(j, &d))
			return false;
		memcpy(s->to, &d, 8);
	}
	s->to += type_size[s->type];
	return true;
}

#define LOOK 256			/* elements between two looks at the clock */

/*
 * Arrays in arrays, or one flat array: both are the elements in row-major order.  Returns 0,
 * -EAGAIN when the time has passed, or -EINVAL, with the error in j.
 */
static int elements(struct js *j, struct sink *s, uint64_t until)
{
	bool reals = s->type == SERVE_FP32 || s->type == SERVE_FP64;
	size_t n = 0, k;

	if (!s->depth && js_peek(j) != '[')
		return js_fail(j, "data is not an array") ? 0 : -EINVAL;
	for (;;) {
		if (reals && s->depth) {
			k = js_reals(j, s->to, type_size[s->type], s->left < LOOK ? s->left : LOOK);
			s->to += k * type_size[s->type];
			s->left -= k;
			n += k;
			if (k == LOOK)
				goto look;
		}
		if (js_peek(j) == '[') {
			if (s->depth == SERVE_RANK)
				return js_fail(j, "data is nested too deeply") ? 0 : -EINVAL;
			if (js_open(j, '[')) {
				s->depth++;
				continue;
			}
		} else if (!element(j, s)) {
			return -EINVAL;
		}
		for (;;) {
			if (j->error)
				return -EINVAL;
			if (!s->depth)
				return 0;
			if (js_more(j, ']'))
				break;
			s->depth--;
		}
		n++;
look:
		/* an element follows, in an array that was opened */
		if (n >= LOOK) {
			n = 0;
			if (until != UINT64_MAX && now_ns() >= until)
				return -EAGAIN;
		}
	}
}

/* --- members --------------------------------------------------------------------- */

void infer_timeout(struct request *r, uint64_t us)
{
	if (us > UINT64_MAX / 4000)
		us = UINT64_MAX / 4000;
	r->deadline_ns = us ? r->arrival_ns + us * 1000 : 0;
}

void infer_priority(struct request *r, uint64_t priority)
{
	r->level = !priority	      ? LEVELS / 2 - 1 :
		   priority > LEVELS ? LEVELS - 1 :
				       (unsigned int)priority - 1;
}

/* The value of a member is null: then the member is as one that is missing. */
static bool is_null(struct parse *p)
{
	return js_peek(&p->j) == 'n';
}

static bool parameters(struct parse *p)
{
	struct js_str key;
	uint64_t u;

	for (bool more = js_open(&p->j, '{'); more; more = js_more(&p->j, '}')) {
		if (!js_key(&p->j, &key))
			return false;
		if (is_null(p)) {
			js_skip(&p->j);
		} else if (js_is(&key, "timeout")) {
			if (!js_uint(&p->j, &u))
				return false;
			infer_timeout(p->r, u);
		} else if (js_is(&key, "priority")) {
			if (!js_uint(&p->j, &u))
				return false;
			infer_priority(p->r, u);
		} else if (js_is(&key, "binary_data_output")) {
			if (!js_bool(&p->j, &p->binary_default))
				return false;
		} else if (js_is(&key, "layers")) {
			if (!js_bool(&p->j, &p->r->layers))
				return false;
		} else if (js_is(&key, "sequence_id") || js_is(&key, "sequence_start") ||
			   js_is(&key, "sequence_end")) {
			char c = js_peek(&p->j);
			const char *at = p->j.p;

			if (!js_skip(&p->j))
				return false;
			if (c != 'f' && !(c == '0' && p->j.p - at == 1) &&
			    !(c == '"' && p->j.p - at == 2))
				return failed(p, 400, "sequences are not supported");
		} else if (!js_skip(&p->j)) {
			return false;
		}
	}
	return !p->j.error;
}

static bool shape(struct parse *p, struct serve_shape *s, bool *many)
{
	int64_t v;

	s->rank = 0;
	*many = false;
	for (bool more = js_open(&p->j, '['); more; more = js_more(&p->j, ']')) {
		if (!js_int(&p->j, &v))
			return false;
		if (s->rank < SERVE_RANK)
			s->dims[s->rank++] = v;
		else
			*many = true;
	}
	return !p->j.error;
}

#define LENGTH 4u			/* bytes of the length of an element of BYTES */

static uint64_t least_size(enum serve_type type)
{
	return type == SERVE_BYTES ? LENGTH : type_size[type];
}

bool infer_shape_bytes(const struct serve_shape *s, enum serve_type type, uint64_t *bytes)
{
	uint64_t n = least_size(type);
	unsigned int i;

	for (i = 0; i < s->rank; i++)
		if (s->dims[i] < 0 || __builtin_mul_overflow(n, (uint64_t)s->dims[i], &n))
			return false;
	*bytes = n;
	return n <= (uint64_t)1 << 40;
}

static bool check_shape(struct parse *p, const struct serve_io *io, const struct serve_shape *s,
			bool many)
{
	char want[200] = "", got[200] = "";
	bool bad = many || (s->rank != io->rank && !io->any);
	unsigned int i;

	for (i = 0; !bad && i < s->rank; i++)
		bad = s->dims[i] < 0 ||
			(!io->any && io->dims[i] >= 0 && s->dims[i] != io->dims[i]);
	if (!bad)
		return true;
	dims_text(want, sizeof(want), io->rank, io->dims);
	dims_text(got, sizeof(got), s->rank, s->dims);
	return refused(
		p,
		"unexpected shape for input '%s' for model '%s'. Expected [%s], got [%s%s].%s",
		io->name, p->m->name, want, got, many ? ",..." : "",
		!p->m->batch ?
			"" :
			" NOTE: Setting a non-zero max_batch_size in the model config requires "
			"a batch dimension to be prepended to each input shape. If you want to "
			"specify the full shape including the batch dim in your input dims "
			"config, try setting max_batch_size to zero. See the model "
			"configuration docs for more info on max_batch_size.");
}

int infer_input(struct parse *p, const struct js_str *name, const struct js_str *type,
		const struct serve_shape *s, bool many)
{
	const struct serve_io *io;
	struct tensor *t;
	unsigned int i, k;
	char text[128];

	for (i = 0; i < p->m->ninputs && !js_is(name, p->m->inputs[i].name); i++)
		;
	if (p->ninputs++ < NAMES)
		p->names[p->ninputs - 1] = *name;
	if (i == p->m->ninputs) {
		js_decode(name, text, sizeof(text));
		failed(p, 400, "unexpected inference input '%s' for model '%s'", text,
		       p->m->name);
		return -1;
	}
	if (p->given & 1u << i) {
		js_decode(name, text, sizeof(text));
		refused(p, "input '%s' already exists in request", text);
		return -1;
	}
	p->given |= 1u << i;
	io = &p->m->inputs[i];
	t = &p->r->in[i];
	for (k = 0; k < NTYPES && !js_is(type, type_name[k]); k++)
		;
	if (k == NTYPES) {
		failed(p, 400, "invalid datatype for input %s", io->name);
		return -1;
	}
	if (k != io->type) {
		refused(p,
			"inference input '%s' data-type is '%s', but model '%s' expects '%s'",
			io->name, type_name[k], p->m->name, type_name[io->type]);
		return -1;
	}
	if (!check_shape(p, io, s, many))
		return -1;
	t->shape = *s;
	if (!infer_shape_bytes(s, io->type, &t->bytes)) {
		refused(p, "the shape of input '%s' is too large", io->name);
		return -1;
	}
	p->r->bytes += t->bytes;
	return (int)i;
}

/* Whether the data has as many elements as the shape, each behind its length. */
static bool strings(struct parse *p, unsigned int input, const char *data, uint64_t bytes)
{
	struct tensor *t = &p->r->in[input];
	uint64_t n = t->bytes / LENGTH, at = 0;
	uint32_t len;

	for (; n && bytes - at >= LENGTH; n--) {
		memcpy(&len, data + at, LENGTH);
		if (len > bytes - at - LENGTH)
			break;
		at += LENGTH + len;
	}
	if (n || at != bytes)
		return refused(p, "the elements of input '%s' do not have the lengths that "
			       "precede them, or are not as many as its shape says",
			       p->m->inputs[input].name);
	p->r->bytes += bytes - t->bytes;
	t->bytes = bytes;
	return true;
}

bool infer_size(struct parse *p, unsigned int input, const void *data, uint64_t bytes)
{
	if (p->m->inputs[input].type == SERVE_BYTES)
		return strings(p, input, data, bytes);
	if (bytes == p->r->in[input].bytes)
		return true;
	return refused(p,
		       "input byte size mismatch for input '%s' for model '%s'. "
		       "Expected %" PRIu64 ", got %" PRIu64,
		       p->m->inputs[input].name, p->m->name, p->r->in[input].bytes, bytes);
}

bool infer_buffer(struct parse *p, unsigned int input, uint64_t bytes)
{
	struct tensor *t = &p->r->in[input];
	struct buf b = { t->buf, 0, t->cap, p->r->heap };
	struct server *sv = p->l ? p->l->sv : p->r->loop->sv;
	size_t mine = p->held + p->r->held;

	if (!mem_room(sv, mine, mine + bytes))
		return failed(p, 503, "too many requests and answers are in memory");
	if (!buf_room(p->l, &b, bytes))
		return failed(p, 503, "out of memory");
	mem_hold(sv, &p->r->held, p->r->held + bytes);
	t->buf = b.p;
	t->cap = b.cap;
	t->data = t->buf;
	p->r->bufs |= 1u << input;
	return true;
}

/* The parameters of an input, or of an output. */
struct form {
	bool has_size, has_binary, binary;
	uint64_t size, classes;
};

static bool tensor_parameters(struct parse *p, bool is_input, struct form *f)
{
	struct js_str key;

	for (bool on = js_open(&p->j, '{'); on; on = js_more(&p->j, '}')) {
		if (!js_key(&p->j, &key))
			return false;
		if (is_null(p))
			js_skip(&p->j);
		else if (js_is(&key, "shared_memory_region"))
			return failed(p, 400, "shared memory is not supported");
		else if (is_input && js_is(&key, "binary_data_size"))
			f->has_size = js_uint(&p->j, &f->size);
		else if (!is_input && js_is(&key, "binary_data"))
			f->has_binary = js_bool(&p->j, &f->binary);
		else if (!is_input && js_is(&key, "classification"))
			js_uint(&p->j, &f->classes);
		else
			js_skip(&p->j);
	}
	return true;
}

static bool input(struct parse *p)
{
	static const char both[] = "unexpected 'data' for input '%s' with binary data";
	const struct serve_io *io;
	struct js_str key, name = { 0 }, type = { 0 };
	struct serve_shape s = { 0 };
	const char *data = NULL, *data_end = NULL;
	struct form form = { 0 };
	bool has_shape = false, many = false, twice = false;
	uint64_t bytes;
	struct tensor *t;
	int i;

	for (bool more = js_open(&p->j, '{'); more; more = js_more(&p->j, '}')) {
		if (!js_key(&p->j, &key))
			return false;
		if (is_null(p)) {
			js_skip(&p->j);
		} else if (js_is(&key, "name")) {
			twice = twice || name.p;
			js_string(&p->j, &name);
		} else if (js_is(&key, "datatype")) {
			twice = twice || type.p;
			js_string(&p->j, &type);
		} else if (js_is(&key, "shape")) {
			twice = twice || has_shape;
			has_shape = shape(p, &s, &many);
		} else if (js_is(&key, "data")) {
			/* converted when the type is known, and in pieces if it is large */
			twice = twice || data;
			if (js_peek(&p->j))
				data = p->j.p;
			js_skip_data(&p->j);
			data_end = p->j.p;
		} else if (js_is(&key, "parameters") && js_peek(&p->j) == '{') {
			if (!tensor_parameters(p, true, &form))
				return false;
		} else {
			js_skip(&p->j);
		}
		if (p->j.error)
			return false;
	}
	if (p->j.error)
		return false;
	if (twice)
		return failed(p, 400, "an input has a member twice");
	if (!name.p || !type.p || !has_shape)
		return failed(p, 400, "an input has no '%s'",
			      !name.p ? "name" :
			      !type.p ? "datatype" :
					"shape");
	i = infer_input(p, &name, &type, &s, many);
	if (i < 0)
		return false;
	io = &p->m->inputs[i];
	t = &p->r->in[i];
	bytes = t->bytes;
	if (form.has_size) {
		if (data)
			return failed(p, 400, both, io->name);
		if (form.size > (uint64_t)(p->body_end - p->binary))
			return failed(p, 400,
				      "unexpected size for input '%s', expecting %" PRIu64
				      " additional bytes for model '%s'",
				      io->name, form.size - (uint64_t)(p->body_end - p->binary),
				      p->m->name);
		if (!infer_size(p, (unsigned int)i, p->binary, form.size))
			return false;
		t->data = p->binary;
		p->binary += form.size;
		return true;
	}
	if (!data)
		return failed(p, 400,
			      "Input must set only one of the following fields: 'data', "
			      "'binary_data_size' in 'parameters', 'shared_memory_region' in "
			      "'parameters'. But no field is set");
	if (io->type == SERVE_FP16)
		return failed(p, 400,
			      "sending FP16 data via JSON is not supported. Please use the "
			      "binary data format for input '%s'",
			      io->name);
	/* Each element takes two bytes of text at least, so this bounds the memory. */
	if (bytes / least_size(io->type) > (uint64_t)(p->j.end - data) / 2 + 1)
		return refused(p, "unexpected number of elements in 'data' of input '%s'",
			       io->name);
	if (io->type == SERVE_BYTES)
		bytes += (uint64_t)(data_end - data);
	if (!infer_buffer(p, (unsigned int)i, bytes))
		return false;
	p->data[i] = data;
	return true;
}

/* Convert the data of inputs.  Returns as elements() does. */
static int convert(struct parse *p, uint64_t until)
{
	const struct serve_io *io;
	uint64_t bytes;
	unsigned int i;
	int rc;

	for (; p->input < p->m->ninputs; p->input++) {
		i = p->input;
		io = &p->m->inputs[i];
		if (!p->data[i])
			continue;
		if (!p->sink.to) {
			p->j.p = p->data[i];
			p->sink = (struct sink){ io->type, p->r->in[i].buf,
						 p->r->in[i].bytes / least_size(io->type), 0 };
		}
		rc = elements(&p->j, &p->sink, until);
		if (rc)
			return rc;
		if (p->sink.left) {
			refused(p, "unexpected number of elements in 'data' of input '%s': %"
				PRIu64 " are missing", io->name, p->sink.left);
			return -EINVAL;
		}
		if (io->type == SERVE_BYTES) {
			bytes = (uint64_t)(p->sink.to - (char *)p->r->in[i].buf);
			p->r->bytes += bytes - p->r->in[i].bytes;
			p->r->in[i].bytes = bytes;
		}
		p->sink.to = NULL;
	}
	return 0;
}

int infer_output(struct parse *p, const struct js_str *name)
{
	unsigned int i;
	char text[128];

	for (i = 0; i < p->m->noutputs && !js_is(name, p->m->outputs[i].name); i++)
		;
	if (i == p->m->noutputs) {
		js_decode(name, text, sizeof(text));
		failed(p, 400, "unexpected inference output '%s' for model '%s'", text,
		       p->m->name);
		return -1;
	}
	p->r->wanted |= 1u << i;
	return (int)i;
}

static bool output(struct parse *p)
{
	struct js_str key, name = { 0 };
	struct form form = { 0 };
	int i;

	for (bool more = js_open(&p->j, '{'); more; more = js_more(&p->j, '}')) {
		if (!js_key(&p->j, &key))
			return false;
		if (is_null(p)) {
			js_skip(&p->j);
		} else if (js_is(&key, "name")) {
			js_string(&p->j, &name);
		} else if (js_is(&key, "parameters") && js_peek(&p->j) == '{') {
			if (!tensor_parameters(p, false, &form))
				return false;
		} else {
			js_skip(&p->j);
		}
		if (p->j.error)
			return false;
	}
	if (p->j.error)
		return false;
	if (!name.p)
		return failed(p, 400, "an output has no 'name'");
	if (form.classes)
		return failed(p, 400, "classification is not supported");
	i = infer_output(p, &name);
	if (i < 0)
		return false;
	if (form.has_binary) {
		p->binary_set |= 1u << i;
		p->r->binary = (p->r->binary & ~(1u << i)) | (uint32_t)form.binary << i;
	}
	return true;
}

static bool document(struct parse *p)
{
	bool has_inputs = false;
	struct js_str key;

	for (bool more = js_open(&p->j, '{'); more; more = js_more(&p->j, '}')) {
		if (!js_key(&p->j, &key))
			return false;
		if (is_null(p)) {
			js_skip(&p->j);
		} else if (js_is(&key, "id")) {
			if (!js_string(&p->j, &p->r->id))
				return false;
		} else if (js_is(&key, "parameters")) {
			if (!parameters(p))
				return false;
		} else if (js_is(&key, "inputs")) {
			has_inputs = true;
			for (bool on = js_open(&p->j, '['); on; on = js_more(&p->j, ']'))
				if (!input(p))
					return false;
		} else if (js_is(&key, "outputs")) {
			for (bool on = js_open(&p->j, '['); on; on = js_more(&p->j, ']')) {
				p->outputs_given = true;
				if (!output(p))
					return false;
			}
		} else {
			js_skip(&p->j);
		}
		if (p->j.error)
			return false;
	}
	if (!js_end(&p->j))
		return false;
	return has_inputs || failed(p, 400, "Unable to find 'inputs' in the request");
}

void infer_start(struct parse *p)
{
	struct request *r = p->r;

	r->rows = 0;
	r->bytes = 0;
	r->wanted = r->binary = 0;
	r->id = (struct js_str){ 0 };
	r->level = LEVELS / 2 - 1;
	r->layers = false;
}

bool infer_complete(struct parse *p)
{
	const struct serve_model *m = p->m;
	char missing[256] = "", given[NAMES * 44] = "", text[41];
	unsigned int i;
	size_t len = 0, n = 0;

	for (i = 0; i < m->ninputs && len < sizeof(missing); i++)
		if (!(p->given & 1u << i))
			len += (size_t)snprintf(missing + len, sizeof(missing) - len, "%s'%s'",
						len ? "," : "", m->inputs[i].name);
	for (i = 0; *missing && i < p->ninputs && i < NAMES; i++) {
		js_decode(&p->names[i], text, sizeof(text));
		n += (size_t)snprintf(given + n, sizeof(given) - n, "%s'%s'", n ? "," : "", text);
	}
	if (*missing)
		return refused(
			p,
			"expected %u inputs but got %u inputs for model '%s'. Got input(s) "
			"[%s], but missing required input(s) [%s]. Please provide all required "
			"input(s).",
			m->ninputs, p->ninputs, m->name, given, missing);
	if (!p->r->wanted)
		p->r->wanted = m->noutputs == 32 ? ~0u : (1u << m->noutputs) - 1;
	/* inputs whose numbers of rows differ are no batch, but may be what the model wants */
	p->r->batch = m->batch && p->r->in[0].shape.dims[0];
	for (i = 1; i < m->ninputs && p->r->batch; i++)
		p->r->batch = p->r->in[i].shape.dims[0] == p->r->in[0].shape.dims[0];
	p->r->rows = p->r->batch ? (uint64_t)p->r->in[0].shape.dims[0] : 1;
	return true;
}

int infer_parse_begin(struct parse *p, struct loop *l, struct request *r,
		      const struct serve_model *m, const char *body, size_t n, int64_t json_length,
		      char *err, size_t size)
{
	size_t json = json_length < 0 ? n : (size_t)json_length;

	*p = (struct parse){ .l = l, .r = r, .m = m, .err = err, .size = size,
			     .held = r->c ? r->c->held : 0 };
	if (json > n) {
		snprintf(err, size,
			 "inference header size should be in range (0, %zu), got: %" PRId64, n,
			 json_length);
		return 400;
	}
	if (!body)
		body = "";
	p->body_end = body + n;
	p->binary = body + json;
	js_init(&p->j, body, json);
	infer_start(p);
	return 0;
}

int infer_parse_step(struct parse *p, uint64_t until)
{
	const struct serve_model *m = p->m;
	struct request *r = p->r;
	unsigned int i;
	int rc = 0;

	if (!p->has_read)
		rc = document(p) ? 0 : -EINVAL;
	p->has_read = true;
	if (!rc)
		rc = convert(p, until);
	if (rc == -EAGAIN)
		return rc;
	if (rc) {
		failed(p, 400, "failed to parse the request JSON buffer: %s at %zu",
		       p->j.error ? p->j.error : "invalid", (size_t)(p->j.p - p->j.start));
		return 0;
	}
	if (!infer_complete(p))
		return 0;
	if (p->binary != p->body_end) {
		failed(p, 400, "unexpected additional input data for model '%s'", m->name);
		return 0;
	}
	if (p->binary_default)
		r->binary |= ~p->binary_set;
	/* what JSON cannot express */
	for (i = 0; i < m->noutputs; i++)
		if (r->wanted & 1u << i && !(r->binary & 1u << i) &&
		    m->outputs[i].type == SERVE_FP16) {
			failed(p, 400,
			       "sending FP16 data via JSON is not supported. Please use the "
			       "binary data format for output '%s'",
			       m->outputs[i].name);
			return 0;
		}
	return 0;
}

int infer_parse(struct loop *l, struct request *r, const struct serve_model *m,
		const char *body, size_t n, int64_t json_length, char *err, size_t size)
{
	struct parse p;
	int http = infer_parse_begin(&p, l, r, m, body, n, json_length, err, size);

	if (http)
		return http;
	infer_parse_step(&p, UINT64_MAX);
	return p.http;
}
