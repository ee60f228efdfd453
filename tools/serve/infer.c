// SPDX-License-Identifier: Apache-2.0
/*
 * Infer requests: their life, for all protocols, and the answer in JSON or binary, which is
 * written from the slot.
 */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grpc.h"
#include "infer.h"
#include "num.h"

void infer_release(struct loop *l, struct request *r)
{
	buf_put(l, &r->body);
	mem_hold(l->sv, &r->held, 0);
	for (; r->bufs; r->bufs &= r->bufs - 1) {
		struct tensor *t = &r->in[__builtin_ctz(r->bufs)];
		struct buf b = { t->buf, 0, t->cap, r->heap };

		buf_put(l, &b);
		t->buf = NULL;
		t->cap = 0;
	}
	r->next = l->free_requests;
	l->free_requests = r;
}

static void infer_done(struct msg *m);

struct request *infer_new(struct loop *l, struct version *v)
{
	struct request *r = l->free_requests;

	if (r)
		l->free_requests = r->next;
	else
		r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->loop = l;
	r->v = v;
	r->first_ns = r->arrival_ns = l->now;
	r->deadline_ns = v->e->conf.timeout_ns ? l->now + v->e->conf.timeout_ns : 0;
	r->state = REQ_NEW;
	r->is_canceled = r->alone = r->batch = r->heap = false;
	r->shapes = NULL;
	r->slot = NULL;
	r->c = NULL;
	r->call = NULL;
	r->id = (struct js_str){ 0 };
	r->rows = 0;
	r->status = 0;
	r->why = NULL;
	return r;
}

void infer_submit(struct request *r, void (*done)(struct msg *))
{
	version_get(r->v);
	add_relaxed(&r->loop->busy, 1);
	r->pending = 1;
	r->done.fn = done;
	port_send(&r->loop->sv->loops[0].port, &r->submit, sched_submit, r);
}

void infer_cancel(struct request *r)
{
	r->pending++;
	port_send(&r->loop->sv->loops[0].port, &r->cancel, sched_cancel, r);
}

static void parsed(struct conn *c, struct request *r, int http, const char *err)
{
	if (http) {
		access_note(c->loop, c, c->traceparent, r, r->v->m->name, r->v->m->version, http);
		infer_release(c->loop, r);
		conn_error(c, http, "%s", err);
		return;
	}
	c->r = r;
	c->state = CONN_BUSY;
	infer_submit(r, infer_done);
}

/* A large body, which ops of the engine read. */
struct large {
	struct parse p;
	char err[1024];
};

static int parse_step(struct text *t, uint64_t until)
{
	struct request *r = (struct request *)((char *)t - offsetof(struct request, text));

	return infer_parse_step(r->parse, until);
}

static void parse_done(struct text *t)
{
	struct request *r = (struct request *)((char *)t - offsetof(struct request, text));
	struct large *large = (struct large *)((char *)r->parse - offsetof(struct large, p));
	struct version *v = r->v;
	struct conn *c = r->c;

	r->parse = NULL;
	c->request_pending--;
	if (c->state == CONN_DEAD) {
		infer_release(c->loop, r);
		conn_close(c);
	} else {
		parsed(c, r, large->p.http, large->err);
		if (c->state != CONN_BUSY)
			conn_continue(c);
	}
	free(large);
	version_put(v);
}

void infer_begin(struct conn *c, struct version *v)
{
	struct loop *l = c->loop;
	struct request *r = infer_new(l, v);
	size_t json = c->json_length < 0 ? c->body.n : (size_t)c->json_length;
	struct large *large;
	char err[1024];
	int http;

	if (!r) {
		conn_error(c, 503, "out of memory");
		return;
	}
	r->c = c;
	r->first_ns = c->first_ns;
	large = json > TEXT_MIN ? malloc(sizeof(*large)) : NULL;
	if (!large) {
		http = infer_parse(l, r, v->m, c->body.p, c->body.n, c->json_length, err,
				   sizeof(err));
		parsed(c, r, http, err);
		return;
	}
	http = infer_parse_begin(&large->p, NULL, r, v->m, c->body.p, c->body.n, c->json_length,
				 large->err, sizeof(large->err));
	if (http) {
		parsed(c, r, http, large->err);
		free(large);
		return;
	}
	version_get(v);
	r->heap = true;
	r->parse = &large->p;
	c->state = CONN_BUSY;
	c->request_pending++;
	text_begin(&r->text, l, parse_step, parse_done);
}

void infer_forget(struct conn *c)
{
	if (c->r)
		infer_cancel(c->r);
}

/* Behind so many elements of BYTES, each of which has its length in front. */
static const char *behind(const char *p, uint64_t n)
{
	uint32_t len;

	for (; n; n--) {
		memcpy(&len, p, sizeof(len));
		p += sizeof(len) + len;
	}
	return p;
}

const char *infer_rows(const struct request *r, unsigned int i, size_t *bytes)
{
	const struct serve_shape *s = serve_slot_output_shape(r->slot->s, i);
	const char *p = serve_slot_output(r->slot->s, i), *first;
	uint64_t n = serve_slot_output_bytes(r->slot->s, i), each = 1;
	unsigned int k;

	if (!r->slot->by_rows) {
		*bytes = n;		/* the run is of this request alone */
		return p;
	}
	if (r->v->m->outputs[i].type == SERVE_BYTES) {
		for (k = 1; k < s->rank; k++)
			each *= (uint64_t)s->dims[k];
		first = behind(p, r->row * each);
		*bytes = (size_t)(behind(first, r->rows * each) - first);
		return first;
	}
	n /= r->slot->rows;
	*bytes = n * r->rows;
	return p + n * r->row;
}

int64_t infer_dim(const struct request *r, unsigned int i, unsigned int k)
{
	return !k && r->slot->by_rows ? (int64_t)r->rows :
					serve_slot_output_shape(r->slot->s, i)->dims[k];
}

/* The answer while it is written: where the next piece begins. */
struct writer {
	struct buf b;			/* with HEAD_ROOM in front */
	struct loop *l;			/* NULL: an op writes */
	uint64_t begin_ns;
	unsigned int output;
	size_t at;			/* elements of its data that are written */
	bool begun, inside, any;
	int failed;			/* a negative errno */
	const char *type;
	char headers[64];
};

/* NaN and infinities as Triton has them. */
static char *real_text(char *to, double d, bool is_float)
{
	char *end;

	if (!isfinite(d))
		return stpcpy(to, isnan(d) ? "NaN" : d > 0 ? "Infinity" : "-Infinity");
	if (d == (double)(int64_t)(fabs(d) < 1e15 ? d : 0)) {
		char digits[JS_DIGITS], *p = js_digits(digits + JS_DIGITS,
						       (uint64_t)(d < 0 ? -d : d));

		if (signbit(d))
			*to++ = '-';
		end = mempcpy(to, p, (size_t)(digits + JS_DIGITS - p));
		return mempcpy(end, ".0", 2);
	}
	return is_float ? num_float(to, (float)d) : num_double(to, d);
}

#define LOOK	256			/* elements between two looks at the clock */
#define LONGEST	(NUM_MAX + 1)		/* bytes of an element and its comma */

static char *element_text(char *to, enum serve_type type, const char *p)
{
	size_t size = type_size[type];
	char digits[JS_DIGITS], *end = digits + JS_DIGITS, *first;
	uint64_t u = 0;
	int64_t v;
	double d;
	float f;

	switch (type) {
	case SERVE_BOOL:
		return stpcpy(to, *p ? "true" : "false");
	case SERVE_FP32:
		memcpy(&f, p, 4);
		return real_text(to, (double)f, true);
	case SERVE_FP64:
		memcpy(&d, p, 8);
		return real_text(to, d, false);
	default:
		memcpy(&u, p, size);
		if (type >= SERVE_INT8 && type <= SERVE_INT64) {
			v = (int64_t)(u << (64 - 8 * size)) >> (64 - 8 * size);
			if (v < 0)
				*to++ = '-';
			u = v < 0 ? -(uint64_t)v : (uint64_t)v;
		}
		first = js_digits(end, u);
		return mempcpy(to, first, (size_t)(end - first));
	}
}

/* A string of JSON; -EILSEQ if the bytes are no text. */
static int string_text(struct writer *w, const char *p, uint32_t n)
{
	struct js_str all = { .p = p, .n = n };
	const char *end = p + n, *to;
	bool ok = buf_add(w->l, &w->b, "\"", 1);

	if (!js_is_utf8(&all))
		return -EILSEQ;
	for (; ok && p < end; p = to) {
		for (to = p; to < end && (unsigned char)*to >= 0x20 && *to != '"' && *to != '\\';
		     to++)
			;
		if (to > p) {
			ok = buf_add(w->l, &w->b, p, (size_t)(to - p));
		} else {
			ok = buf_printf(w->l, &w->b, "\\u%04x", (unsigned char)*p);
			to = p + 1;
		}
	}
	return ok && buf_add(w->l, &w->b, "\"", 1) ? 0 : -ENOMEM;
}

/* The same for BYTES: n bytes, of elements with their lengths. */
static int strings_text(struct writer *w, const char *p, size_t n, uint64_t until)
{
	unsigned int done = 0;
	uint32_t len;
	int rc;

	while (w->at < n) {
		memcpy(&len, p + w->at, sizeof(len));
		if (w->at && !buf_add(w->l, &w->b, ",", 1))
			return -ENOMEM;
		rc = string_text(w, p + w->at + sizeof(len), len);
		if (rc)
			return rc;
		w->at += sizeof(len) + len;
		if (++done % LOOK == 0 && until != UINT64_MAX && w->at < n && now_ns() >= until)
			return -EAGAIN;
	}
	return 0;
}

/* Continue the data of an output, n elements.  Returns 0, -EAGAIN, or -ENOMEM. */
static int data_text(struct writer *w, enum serve_type type, const char *p, size_t n,
		     uint64_t until)
{
	size_t stop;
	char *to;

	while (w->at < n) {
		stop = n - w->at < LOOK ? n : w->at + LOOK;
		if (!buf_room(w->l, &w->b, w->b.n + (stop - w->at) * LONGEST))
			return -ENOMEM;
		to = w->b.p + w->b.n;
		for (; w->at < stop; w->at++) {
			if (w->at)
				*to++ = ',';
			to = element_text(to, type, p + w->at * type_size[type]);
		}
		w->b.n = (size_t)(to - w->b.p);
		if (until != UINT64_MAX && w->at < n && now_ns() >= until)
			return -EAGAIN;
	}
	return 0;
}

static bool head_text(struct writer *w, const struct request *r)
{
	const struct serve_model *m = r->v->m;
	struct loop *l = w->l;
	struct buf *b = &w->b;

	if (!buf_add(l, b, "{", 1))
		return false;
	if (r->id.n && (!buf_add(l, b, "\"id\":\"", 6) || !buf_add(l, b, r->id.p, r->id.n) ||
			!buf_add(l, b, "\",", 2)))
		return false;
	return buf_text(l, b, "\"model_name\":") && buf_json(l, b, m->name) &&
		buf_text(l, b, ",\"model_version\":\"") && buf_number(l, b, m->version) &&
		buf_text(l, b, "\"") && (!r->layers || layers_json(l, b, r)) &&
		buf_text(l, b, ",\"outputs\":[");
}

static bool output_text(struct writer *w, const struct request *r, unsigned int i, size_t n)
{
	const struct serve_shape *s = serve_slot_output_shape(r->slot->s, i);
	const struct serve_model *m = r->v->m;
	bool first = !(r->wanted & ((1u << i) - 1));
	struct loop *l = w->l;
	struct buf *b = &w->b;
	unsigned int k;

	if (!buf_text(l, b, first ? "{\"name\":" : ",{\"name\":") ||
	    !buf_json(l, b, m->outputs[i].name) || !buf_text(l, b, ",\"datatype\":\"") ||
	    !buf_text(l, b, type_name[m->outputs[i].type]) ||
	    !buf_text(l, b, "\",\"shape\":["))
		return false;
	for (k = 0; k < s->rank; k++)
		if ((k && !buf_add(l, b, ",", 1)) || !buf_number(l, b, infer_dim(r, i, k)))
			return false;
	if (!(r->binary & 1u << i))
		return buf_text(l, b, "],\"data\":[");
	w->any = true;
	return buf_text(l, b, "],\"parameters\":{\"binary_data_size\":") &&
		buf_number(l, b, (int64_t)n) && buf_add(l, b, "}}", 2);
}

/* Continue the answer.  Returns 0, -EAGAIN, or -ENOMEM. */
static int answer_text(struct writer *w, const struct request *r, uint64_t until)
{
	const struct serve_model *m = r->v->m;
	char length[JS_DIGITS + 1] = "";
	enum serve_type type;
	const char *p;
	unsigned int i;
	size_t n;
	int rc;

	if (!w->begun && !head_text(w, r))
		return -ENOMEM;
	w->begun = true;
	for (; w->output < m->noutputs; w->output++) {
		i = w->output;
		if (!(r->wanted & 1u << i))
			continue;
		p = infer_rows(r, i, &n);
		type = m->outputs[i].type;
		if (!w->inside && !output_text(w, r, i, n))
			return -ENOMEM;
		w->inside = true;
		if (!(r->binary & 1u << i)) {
			rc = type == SERVE_BYTES ? strings_text(w, p, n, until) :
				data_text(w, type, p, n / type_size[type], until);
			if (!rc && !buf_add(w->l, &w->b, "]}", 2))
				rc = -ENOMEM;
			if (rc)
				return rc;
		}
		w->inside = false;
		w->at = 0;
	}
	if (!buf_add(w->l, &w->b, "]}", 2))
		return -ENOMEM;
	*w->headers = 0;
	w->type = w->any ? "application/octet-stream" : "application/json";
	if (w->any)
		stpcpy(stpcpy(stpcpy(w->headers, "Inference-Header-Content-Length: "),
			      js_digits(length + JS_DIGITS, w->b.n - HEAD_ROOM)), "\r\n");
	for (i = 0; i < m->noutputs; i++)
		if (r->wanted & r->binary & 1u << i) {
			p = infer_rows(r, i, &n);
			if (!buf_add(w->l, &w->b, p, n))
				return -ENOMEM;
		}
	return 0;
}

int infer_http(const struct request *r)
{
	return r->status == -ETIMEDOUT || r->status == -EAGAIN || r->status == -ENOMEM ? 503 :
		r->status == -EINVAL || r->status == -ENOTSUP || r->status == -ECANCELED ?
		400 : 500;
}

void infer_end(struct request *r, int http, bool gone, uint64_t begin)
{
	struct stats *st = &r->v->stats;
	struct slot *slot = r->slot;
	const struct conn *c = r->call ? r->call->c : r->c;
	bool served = http == 200 && !gone;
	uint64_t now;

	if (!gone)
		trace_request(r->loop, r, http);
	access_note(r->loop, c, r->call ? r->call->traceparent : c->traceparent, r,
		    r->v->m->name, r->v->m->version, gone ? 499 : http);
	if (slot && fetch_add_acq_rel(&slot->users, (u32)-1) == 1) /* with the reads before */
		port_send(&r->loop->sv->loops[0].port, &slot->msg, sched_recycle, slot);
	now = now_ns();
	if (gone)
		add_relaxed(&st->canceled, 1);
	else
		stats_add(served ? &st->success : &st->fail, now - r->arrival_ns);
	if (served) {
		add_relaxed(&st->inferences, r->rows);
		stats_add(&st->output, now - begin);
		stats_hist(st, HIST_TOTAL, now - r->arrival_ns);
	}
	version_put(r->v);
	add_relaxed(&r->loop->busy, (u64)-1);
}

/* The answer is in w, or there is none. */
static void finish(struct conn *c, struct request *r, struct writer *w, uint64_t begin)
{
	struct loop *l = r->loop;
	bool dead = c->state == CONN_DEAD;
	int http = 200;

	if (!w) {
		http = infer_http(r);
	} else if (w->failed == -EILSEQ) {
		http = 400;
		r->why = "an output has bytes that are no text: JSON cannot have them; request "
			"binary data";
	} else if (w->failed) {
		http = 503;
		r->why = "out of memory";
	} else if (!mem_room(l->sv, c->held + r->held, w->b.n)) {
		http = 503;
		r->why = "too many requests and answers are in memory";
	}
	infer_end(r, http, dead, begin);
	if (w && http == 200 && !dead) {
		buf_put(l, &c->out);
		c->out = w->b;
		out_zip(c, w->type, w->headers);
	} else {
		if (w)
			buf_put(l, &w->b);
		if (!dead)
			conn_error(c, http, "%s", r->why ? r->why : "the model failed");
	}
	infer_release(l, r);
	if (dead)
		conn_close(c);
	else
		conn_continue(c);
}

/* Text of JSON that the answer has, about. */
static size_t text_bytes(const struct request *r)
{
	const struct serve_model *m = r->v->m;
	size_t n, all = 0;
	unsigned int i;

	for (i = 0; i < m->noutputs; i++)
		if (r->wanted & ~r->binary & 1u << i) {
			infer_rows(r, i, &n);
			all += m->outputs[i].type == SERVE_BYTES ? n :
				n / type_size[m->outputs[i].type] * 12;
		}
	return all;
}

static int write_step(struct text *t, uint64_t until)
{
	struct request *r = (struct request *)((char *)t - offsetof(struct request, text));
	int rc = answer_text(r->writer, r, until);

	r->writer->failed = rc != -EAGAIN ? rc : 0;
	return rc == -EAGAIN ? rc : 0;
}

static void write_done(struct text *t)
{
	struct request *r = (struct request *)((char *)t - offsetof(struct request, text));
	struct writer *w = r->writer;
	struct conn *c = r->c;

	r->writer = NULL;
	c->request_pending--;
	finish(c, r, w, w->begin_ns);
	free(w);
}

static void infer_done(struct msg *msg)
{
	struct request *r = msg->arg;
	struct conn *c = r->c;
	struct loop *l = r->loop;
	struct writer local = { .l = l, .begin_ns = now_ns() }, *w = NULL;
	size_t text;

	if (!infer_is_last(r))
		return;			/* the receipt of the cancel comes */
	c->r = NULL;			/* a close from here on cancels nothing */
	if (r->status || c->state == CONN_DEAD) {
		finish(c, r, NULL, local.begin_ns);
		return;
	}
	text = text_bytes(r);
	if (text > TEXT_MIN)
		w = malloc(sizeof(*w));
	if (!w) {
		local.failed = buf_room(l, &local.b, HEAD_ROOM + 512) ? 0 : -ENOMEM;
		local.b.n = HEAD_ROOM;
		if (!local.failed)
			local.failed = answer_text(&local, r, UINT64_MAX);
		finish(c, r, &local, local.begin_ns);
		return;
	}
	*w = (struct writer){ .begin_ns = local.begin_ns };
	/* pages that are not written take no memory; the loop has the buffer back at the end */
	if (!buf_room(l, &w->b, HEAD_ROOM + 512 + text)) {
		w->failed = -ENOMEM;
		finish(c, r, w, w->begin_ns);
		free(w);
		return;
	}
	w->b.n = HEAD_ROOM;
	r->writer = w;
	c->request_pending++;
	text_begin(&r->text, l, write_step, write_done);
}
