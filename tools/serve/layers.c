// SPDX-License-Identifier: Apache-2.0
/*
 * The path of a request through the server: when its layers ran, for a request with the
 * parameter "layers".  A parameter of an answer can only be a string, a number or a
 * boolean, so it is a string that contains JSON.
 */

#include <jansson.h>
#include <stdlib.h>

#include "serve.h"

/* Microseconds since the arrival of the request. */
static json_t *since(const struct request *r, uint64_t ns)
{
	return json_real((double)(int64_t)(ns - r->arrival_ns) / 1000);
}

bool layers_json(struct loop *l, struct buf *b, const struct request *r)
{
	json_t *o = json_object(), *all = json_array(), *e;
	const struct slot *s = r->slot;
	struct serve_step st;
	unsigned int i;
	char *text;
	bool ok;

	for (i = 0; serve_slot_step(s->s, i, &st); i++) {
		e = json_object();
		json_object_set_new(e, "name", json_string(st.name));
		json_object_set_new(e, "operator", json_string(st.op));
		json_object_set_new(e, "begin_us", since(r, st.begin_ns));
		json_object_set_new(e, "end_us", since(r, st.end_ns));
		json_object_set_new(e, "thread", json_integer(st.thread));
		json_array_append_new(all, e);
	}
	json_object_set_new(o, "queued_us", since(r, r->queued_ns));
	json_object_set_new(o, "launched_us", since(r, s->launched_ns));
	json_object_set_new(o, "done_us", since(r, s->done_ns));
	json_object_set_new(o, "batch", json_integer((json_int_t)s->rows));
	json_object_set_new(o, "layers", all);
	text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
	json_decref(o);
	ok = text && buf_printf(l, b, ",\"parameters\":{\"layers\":") && buf_json(l, b, text) &&
	     buf_printf(l, b, "}");
	free(text);
	return ok;
}
