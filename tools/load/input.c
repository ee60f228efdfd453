// SPDX-License-Identifier: Apache-2.0
/* The values of inputs: zeros, random, or from a file; as binary tensors or as JSON. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

static const struct type {
	const char *name;
	size_t size;		/* 0: BYTES */
	enum { BOOL, UNSIGNED, SIGNED, HALF, BRAIN, SINGLE, DOUBLE, BYTES } kind;
} types[] = {
	{ "BOOL", 1, BOOL }, { "UINT8", 1, UNSIGNED }, { "UINT16", 2, UNSIGNED },
	{ "UINT32", 4, UNSIGNED }, { "UINT64", 8, UNSIGNED }, { "INT8", 1, SIGNED },
	{ "INT16", 2, SIGNED }, { "INT32", 4, SIGNED }, { "INT64", 8, SIGNED },
	{ "FP16", 2, HALF }, { "BF16", 2, BRAIN }, { "FP32", 4, SINGLE }, { "FP64", 8, DOUBLE },
	{ "BYTES", 0, BYTES },
};

static const struct type *find(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(types[i].name, name))
			return &types[i];
	return NULL;
}

bool load_type_known(const char *type)
{
	return find(type);
}

size_t load_type_size(const char *type)
{
	return find(type)->size;
}

/* splitmix64 */
uint64_t load_random_next(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static void put(char *p, uint64_t v, size_t size)
{
	size_t i;

	for (i = 0; i < size; i++)
		p[i] = (char)(v >> 8 * i);
}

static uint64_t get(const char *p, size_t size)
{
	uint64_t v = 0;
	size_t i;

	for (i = 0; i < size; i++)
		v |= (uint64_t)(unsigned char)p[i] << 8 * i;
	return v;
}

static void put_real(char *p, const struct type *type, double v)
{
	float f = (float)v;
	uint64_t bits = 0;

	if (type->kind == DOUBLE)
		memcpy(&bits, &v, 8);
	else
		memcpy(&bits, &f, 4);
	put(p, bits, type->size);
}

/* Numbers of [0, 1), or from 0 to 99. */
static void put_random(char *p, const struct type *type, uint64_t r)
{
	switch (type->kind) {
	case BOOL:
		*p = (char)(r & 1);
		break;
	case HALF:	/* 0.5 and a random fraction */
		put(p, 0x3800u | (r & 0x3ff), 2);
		break;
	case BRAIN:
		put(p, 0x3f00u | (r & 0x7f), 2);
		break;
	case SINGLE:
		put_real(p, type, (double)(r >> 40) * 0x1p-24);
		break;
	case DOUBLE:
		put_real(p, type, (double)(r >> 11) * 0x1p-53);
		break;
	default:
		put(p, r % 100, type->size);
		break;
	}
}

int load_tensor_fill(struct tensor *t, bool zero, uint64_t *seed)
{
	const struct type *type = find(t->type);
	/* an empty string is its length alone */
	size_t size = type->kind == BYTES ? 4 : type->size, i;

	if (t->count > SIZE_MAX / 8)
		return -1;
	t->n = t->count * size;
	t->p = calloc(t->n + 1, 1);
	if (!t->p)
		return -1;
	for (i = 0; !zero && type->kind != BYTES && i < t->count; i++)
		put_random(t->p + i * size, type, load_random_next(seed));
	return 0;
}

/* --- from a file ------------------------------------------------------------------ */

static bool put_value(char *p, const struct type *type, const json_t *v)
{
	json_int_t i = json_is_boolean(v) ? json_boolean_value(v) : json_integer_value(v);
	unsigned int bits = (unsigned int)type->size * 8;

	switch (type->kind) {
	case SINGLE:
	case DOUBLE:
		if (!json_is_number(v))
			return false;
		put_real(p, type, json_number_value(v));
		return true;
	case BOOL:
	case UNSIGNED:
	case SIGNED:
		if (!json_is_integer(v) && !json_is_boolean(v))
			return false;
		if (type->kind == BOOL ? i < 0 || i > 1 : type->kind == UNSIGNED ?
		    i < 0 || (bits < 64 && i >> bits) :
		    bits < 64 && (i < -(1LL << (bits - 1)) || i >= 1LL << (bits - 1)))
			return false;
		put(p, (uint64_t)i, type->size);
		return true;
	default:
		return false;
	}
}

/* Append the values of a list of any depth. */
static bool flatten(struct tensor *t, const struct type *type, const json_t *v, size_t *count)
{
	size_t size, i, text;
	char *p;

	if (json_is_array(v)) {
		for (i = 0; i < json_array_size(v); i++)
			if (!flatten(t, type, json_array_get(v, i), count))
				return false;
		return true;
	}
	if (type->kind == BYTES && !json_is_string(v))
		return false;
	text = type->kind == BYTES ? json_string_length(v) : 0;
	size = type->kind == BYTES ? 4 + text : type->size;
	if (t->cap < t->n + size) {
		p = realloc(t->p, 2 * (t->n + size));
		if (!p)
			return false;
		t->p = p;
		t->cap = 2 * (t->n + size);
	}
	if (type->kind == BYTES) {
		put(t->p + t->n, text, 4);
		memcpy(t->p + t->n + 4, json_string_value(v), text);
	} else if (!put_value(t->p + t->n, type, v)) {
		return false;
	}
	t->n += size;
	++*count;
	return true;
}

static int digit64(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *p = c ? strchr(digits, c) : NULL;

	return p ? (int)(p - digits) : -1;
}

static bool decode64(struct tensor *t, const char *s, size_t n)
{
	unsigned int bits = 0, have = 0;
	int d;

	while (n && s[n - 1] == '=')
		n--;
	t->p = malloc(n + 1);
	if (!t->p)
		return false;
	for (; n; n--, s++) {
		d = digit64(*s);
		if (d < 0)
			return false;
		bits = (bits << 6 | (unsigned int)d) & 0xffff;
		have += 6;
		if (have >= 8) {
			have -= 8;
			t->p[t->n++] = (char)(bits >> have);
		}
	}
	return true;
}

/* The number of elements in the bytes of a tensor, or SIZE_MAX if the bytes are invalid. */
static size_t count_elements(const struct tensor *t, const struct type *type)
{
	size_t n = 0, at = 0;

	if (type->kind != BYTES)
		return t->n % type->size ? SIZE_MAX : t->n / type->size;
	for (; at < t->n; n++) {
		if (t->n - at < 4 || t->n - at - 4 < get(t->p + at, 4))
			return SIZE_MAX;
		at += 4 + get(t->p + at, 4);
	}
	return n;
}

int load_tensor_parse(struct tensor *t, json_t *value, char *why, size_t size)
{
	const struct type *type = find(t->type);
	const json_t *b64 = json_object_get(value, "b64");
	size_t count = 0, i, n;
	char *p;

	if (json_is_string(b64)) {
		if (!decode64(t, json_string_value(b64), json_string_length(b64))) {
			snprintf(why, size, "\"b64\" of '%s' is not base64", t->name);
			return -1;
		}
		count = count_elements(t, type);
	} else {
		if (json_is_object(value))
			value = json_object_get(value, "content");
		if (!value || !flatten(t, type, value, &count)) {
			snprintf(why, size, "the values of '%s' are not all %s", t->name,
				 t->type);
			return -1;
		}
	}
	if (count == t->count)
		return 0;
	/* repeat one row for the whole batch */
	if (count == SIZE_MAX || count * t->rows != t->count) {
		snprintf(why, size, "'%s' has %zu values in the file, and %zu in the model",
			 t->name, count == SIZE_MAX ? 0 : count, t->count);
		return -1;
	}
	n = t->n;
	p = realloc(t->p, n * t->rows + 1);
	if (!p) {
		snprintf(why, size, "out of memory");
		return -1;
	}
	t->p = p;
	for (i = 1; i < t->rows; i++)
		memcpy(p + i * n, p, n);
	t->n = n * t->rows;
	return 0;
}

/* --- to JSON ------------------------------------------------------------------------- */

static json_t *json_element(const char *p, const struct type *type)
{
	uint64_t v = get(p, type->size);
	unsigned int unused = 64 - (unsigned int)type->size * 8;
	double d;
	float f;

	switch (type->kind) {
	case BOOL:
		return json_boolean(v);
	case UNSIGNED:
		return json_integer((json_int_t)v);
	case SIGNED:
		return json_integer((json_int_t)((int64_t)(v << unused) >> unused));
	case SINGLE:
		memcpy(&f, p, 4);
		return json_real((double)f);
	default:
		memcpy(&d, p, 8);
		return json_real(d);
	}
}

/* Returns NULL if the type or a value has no form in JSON, or there is no memory. */
json_t *load_tensor_json(const struct tensor *t)
{
	const struct type *type = find(t->type);
	json_t *list;
	size_t at, size;

	if (type->kind == HALF || type->kind == BRAIN)
		return NULL;
	list = json_array();
	for (at = 0; list && at < t->n; at += size) {
		size = type->kind == BYTES ? 4 + get(t->p + at, 4) : type->size;
		if (json_array_append_new(list, type->kind == BYTES ?
					  json_stringn(t->p + at + 4, size - 4) :
					  json_element(t->p + at, type))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}
