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

#include "infer.h"

void infer_release(struct loop *l, struct request *r)
{
	buf_put(l, &r->body);
	mem_hold(l->sv, &r->held, 0);
	for (; r->bufs; r->bufs &= r->bufs - 1) {
		struct tensor *t = &r->in[__builtin_ctz(r->bufs)];
		struct buf b = { t->buf, 0, t->cap };

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
	r->is_canceled = r->alone = r->batch = false;
	r->shapes = NULL;
	r->slot = NULL;
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

void infer_begin(struct conn *c, struct version *v)
{
	struct loop *l = c->loop;
	struct request *r = infer_new(l, v);
	char err[1024];
	int http;

	if (!r) {
		conn_error(c, 503, "out of memory");
		return;
	}
	r->c = c;
	r->first_ns = c->first_ns;
	http = infer_parse(l, r, v->m, c->body.p, c->body.n, c->json_length, err, sizeof(err));
	if (http) {
		infer_release(l, r);
		conn_error(c, http, "%s", err);
		return;
	}
	c->r = r;
	c->state = CONN_BUSY;
	infer_submit(r, infer_done);
}

void infer_forget(struct conn *c)
{
	if (c->r)
		infer_cancel(c->r);
}

const char *infer_rows(const struct request *r, unsigned int i, size_t *bytes)
{
	const struct serve_model *m = r->v->m;
	const struct serve_shape *s = serve_slot_output_shape(r->slot->s, i);
	const char *p = serve_slot_output(r->slot->s, i);
	uint64_t n = 0;

	infer_shape_bytes(s, m->outputs[i].type, &n);
	if (!r->slot->by_rows) {
		*bytes = n;		/* the run is of this request alone */
		return p;
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

/* The shortest text that is read back as the same number; NaN and infinities as Triton has them. */
static bool number_text(struct loop *l, struct buf *b, double d, bool is_float)
{
	int digits = is_float ? 6 : 15, most = is_float ? 9 : 17, n;
	char text[40];

	if (!isfinite(d))
		return buf_text(l, b, isnan(d) ? "NaN" : d > 0 ? "Infinity" : "-Infinity");
	if (d == (double)(int64_t)(fabs(d) < 1e15 ? d : 0))
		return (d != 0 || !signbit(d) || buf_add(l, b, "-", 1)) &&
			buf_number(l, b, (int64_t)d) && buf_add(l, b, ".0", 2);
	do
		n = snprintf(text, sizeof(text), "%.*g", digits, d);
	while (digits++ < most &&
	       (is_float ? strtof(text, NULL) != (float)d : strtod(text, NULL) != d));
	return buf_add(l, b, text, (size_t)n);
}

static bool data_text(struct loop *l, struct buf *b, enum serve_type type, const char *p,
		      size_t n)
{
	char text[JS_DIGITS], *digits;
	size_t i, size = type_size[type];
	uint64_t u;
	double d;
	float f;
	bool ok;

	for (i = 0; i < n / size; i++, p += size) {
		if (i && !buf_add(l, b, ",", 1))
			return false;
		u = 0;
		memcpy(&u, p, size);
		switch (type) {
		case SERVE_BOOL:
			ok = buf_text(l, b, u ? "true" : "false");
			break;
		case SERVE_INT8:
		case SERVE_INT16:
		case SERVE_INT32:
		case SERVE_INT64:
			ok = buf_number(l, b, (int64_t)(u << (64 - 8 * size)) >> (64 - 8 * size));
			break;
		case SERVE_FP32:
			memcpy(&f, p, 4);
			ok = number_text(l, b, (double)f, true);
			break;
		case SERVE_FP64:
			memcpy(&d, p, 8);
			ok = number_text(l, b, d, false);
			break;
		default:
			digits = js_digits(text + sizeof(text), u);
			ok = buf_add(l, b, digits, (size_t)(text + sizeof(text) - digits));
		}
		if (!ok)
			return false;
	}
	return true;
}

static bool answer(struct conn *c, struct request *r, char *headers, const char **type)
{
	const struct serve_model *m = r->v->m;
	const struct serve_shape *s;
	struct loop *l = c->loop;
	struct buf *b = &c->out;
	const char *p, *sep = "{\"name\":";
	bool any = false;
	unsigned int i, k;
	char length[JS_DIGITS + 1] = "";
	size_t n, begin = b->n;

	if (!buf_add(l, b, "{", 1))
		return false;
	if (r->id.n && (!buf_add(l, b, "\"id\":\"", 6) || !buf_add(l, b, r->id.p, r->id.n) ||
			!buf_add(l, b, "\",", 2)))
		return false;
	if (!buf_text(l, b, "\"model_name\":") || !buf_json(l, b, m->name) ||
	    !buf_text(l, b, ",\"model_version\":\"") || !buf_number(l, b, m->version) ||
	    !buf_text(l, b, "\"") || (r->layers && !layers_json(l, b, r)) ||
	    !buf_text(l, b, ",\"outputs\":["))
		return false;
	for (i = 0; i < m->noutputs; i++) {
		if (!(r->wanted & 1u << i))
			continue;
		s = serve_slot_output_shape(r->slot->s, i);
		p = infer_rows(r, i, &n);
		if (!buf_text(l, b, sep) || !buf_json(l, b, m->outputs[i].name) ||
		    !buf_text(l, b, ",\"datatype\":\"") ||
		    !buf_text(l, b, type_name[m->outputs[i].type]) ||
		    !buf_text(l, b, "\",\"shape\":["))
			return false;
		sep = ",{\"name\":";
		for (k = 0; k < s->rank; k++)
			if ((k && !buf_add(l, b, ",", 1)) ||
			    !buf_number(l, b, infer_dim(r, i, k)))
				return false;
		if (r->binary & 1u << i) {
			any = true;
			if (!buf_text(l, b, "],\"parameters\":{\"binary_data_size\":") ||
			    !buf_number(l, b, (int64_t)n) || !buf_add(l, b, "}}", 2))
				return false;
		} else if (!buf_text(l, b, "],\"data\":[") ||
			   !data_text(l, b, m->outputs[i].type, p, n) ||
			   !buf_add(l, b, "]}", 2)) {
			return false;
		}
	}
	if (!buf_add(l, b, "]}", 2))
		return false;
	*headers = 0;
	*type = any ? "application/octet-stream" : "application/json";
	if (any)
		stpcpy(stpcpy(stpcpy(headers, "Inference-Header-Content-Length: "),
			      js_digits(length + JS_DIGITS, b->n - begin)), "\r\n");
	for (i = 0; i < m->noutputs; i++)
		if (r->wanted & r->binary & 1u << i) {
			p = infer_rows(r, i, &n);
			if (!buf_add(l, b, p, n))
				return false;
		}
	return true;
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
	bool served = http == 200 && !gone;
	uint64_t now;

	if (!gone)
		trace_request(r->loop, r, http);
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

static void infer_done(struct msg *msg)
{
	struct request *r = msg->arg;
	struct conn *c = r->c;
	struct loop *l = r->loop;
	uint64_t now = now_ns();
	bool dead = c->state == CONN_DEAD;
	const char *type;
	char headers[64];
	int http = 200;

	if (!infer_is_last(r))
		return;			/* the receipt of the cancel comes */
	c->r = NULL;			/* a close from here on cancels nothing */
	if (!r->status && !dead && out_begin(c)) {
		if (!answer(c, r, headers, &type)) {
			http = 500;
			r->why = "out of memory";
		} else if (!mem_room(l->sv, c->held + r->held, c->out.n)) {
			http = 503;
			r->why = "too many requests and answers are in memory";
		}
	} else {
		http = infer_http(r);
	}
	infer_end(r, http, dead, now);
	dead = c->state == CONN_DEAD;
	if (http == 200)
		out_end(c, 200, type, headers);
	else if (!dead)
		conn_error(c, http, "%s", r->why ? r->why : "the model failed");
	infer_release(l, r);
	if (dead)
		conn_close(c);
	else
		conn_continue(c);
}
