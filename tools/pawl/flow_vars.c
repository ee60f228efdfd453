// SPDX-License-Identifier: Apache-2.0
/* Vars of a large recording, and the positions of accesses in their queues. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "flow_events.h"
#include "flow_vars.h"

static size_t mix(uint32_t engine, uint32_t index)
{
	uint64_t h = (engine * 0x9e3779b97f4a7c15ull ^ index) * 0xbf58476d1ce4e5b9ull;

	return (size_t)(h ^ h >> 32);
}

static void var_free(struct flow_vars *t, struct flow_var *v)
{
	if (t->sink->gone)
		t->sink->gone(t->ctx, v);
	free(v->slots);
	free(v);
	t->n--;
}

static int vars_grow(struct flow_vars *t)
{
	size_t size = t->size ? t->size * 2 : 1024, i;
	struct flow_var **to = calloc(size, sizeof(*to)), *v, *next;

	if (!to)
		return -ENOMEM;
	for (i = 0; i < t->size; i++)
		for (v = t->table[i]; v; v = next) {
			struct flow_var **p = &to[mix(v->engine, v->index) & (size - 1)];

			next = v->next;
			v->next = *p;
			*p = v;
		}
	free(t->table);
	t->table = to;
	t->size = size;
	return 0;
}

int flow_var_of(struct flow_vars *t, uint32_t engine, uint64_t index, uint64_t gen,
		struct flow_var **out)
{
	struct flow_var **p, *v;

	if (t->known == REC_NONE - 1 || index > UINT32_MAX || gen > UINT32_MAX >> 1)
		return DIFFERS;
	if (t->n >= t->size && vars_grow(t))
		return -ENOMEM;
	p = &t->table[mix(engine, (uint32_t)index) & (t->size - 1)];
	for (v = *p; v; v = v->next)
		if (v->index == index && v->engine == engine && v->gen == gen) {
			*out = v;
			return 0;
		}
	for (; (v = *p);) {
		if (v->index == index && v->engine == engine && v->gen + 2 <= gen && !v->refs) {
			*p = v->next;
			var_free(t, v);
		} else {
			p = &v->next;
		}
	}
	v = *p = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->engine = engine;
	v->index = (uint32_t)index;
	v->gen = (uint32_t)gen;
	v->number = (uint32_t)t->known++;
	t->n++;
	*out = v;
	return 0;
}

void flow_vars_free(struct flow_vars *t)
{
	struct flow_var *v, *next;
	size_t i;

	for (i = 0; i < t->size; i++)
		for (v = t->table[i]; v; v = next) {
			next = v->next;
			var_free(t, v);
		}
	free(t->table);
	*t = (struct flow_vars){ 0 };
}

/* --- positions --- */

/* Slots are sorted by version. */
int flow_slot_add(struct flow_var *v, uint64_t version, bool write)
{
	struct flow_slot *s;
	uint32_t i;
	size_t cap;

	if (v->done_write > version || (write && v->done_read > version + 1))
		return DIFFERS;
	for (i = v->n; i && v->slots[v->first + i - 1].version > version; i--)
		;
	if (i && v->slots[v->first + i - 1].version == version) {
		s = &v->slots[v->first + i - 1];
		if (write && s->write)
			return DIFFERS;
		s->write |= write;
		s->reads += !write;
		return 0;
	}
	if (v->first && v->first + v->n == v->cap) {
		memmove(v->slots, v->slots + v->first, v->n * sizeof(*s));
		v->first = 0;
	}
	cap = v->cap;
	if (v->n == cap) {
		cap = cap ? cap * 2 : 2;
		s = cap > UINT32_MAX ? NULL : realloc(v->slots, cap * sizeof(*s));
		if (!s)
			return -ENOMEM;
		v->slots = s;
		v->cap = (uint32_t)cap;
	}
	s = &v->slots[v->first + i];
	memmove(s + 1, s, (v->n - i) * sizeof(*s));
	*s = (struct flow_slot){ version, !write, write };
	v->n++;
	return 0;
}

bool flow_slot_first(const struct flow_var *v, uint64_t version, bool write)
{
	uint32_t i;

	for (i = v->first; v->slots[i].version < version; i++)
		if (write || v->slots[i].write)
			return false;
	return !write || !v->slots[i].reads;
}

void flow_slot_remove(struct flow_var *v, uint64_t version, bool write)
{
	struct flow_slot *s = &v->slots[v->first];

	while (s->version < version)
		s++;
	if (write) {
		s->write = false;
		v->done_write = version + 1;
	} else {
		s->reads--;
		if (v->done_read < version + 1)
			v->done_read = version + 1;
	}
	while (v->n && !v->slots[v->first].reads && !v->slots[v->first].write) {
		v->first++;
		v->n--;
	}
}
