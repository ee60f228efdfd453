// SPDX-License-Identifier: Apache-2.0
/*
 * The text format of protobuf, without a description of the message: fields of a name and a
 * value, a list of values in brackets, or a message in braces or angle brackets.
 */

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pbtxt.h"

#define MOST	(1u << 20)		/* bytes of a file */
#define DEEPEST	32			/* messages within each other */

struct text {
	const char *path, *p;
	unsigned int line, depth;
	int rc;
	char *err;
	size_t size;
};

static bool fail(struct text *t, int rc, const char *what)
{
	if (!t->rc) {
		t->rc = rc;
		snprintf(t->err, t->size, "%.300s: line %u: %s", t->path, t->line, what);
	}
	return false;
}

static void skip(struct text *t)
{
	for (; *t->p == '#' || isspace((unsigned char)*t->p); t->p++) {
		if (*t->p == '#')
			t->p += strcspn(t->p, "\n");
		if (!*t->p)
			return;
		t->line += *t->p == '\n';
	}
}

/* Whether c is next, which is skipped. */
static bool next_is(struct text *t, char c)
{
	skip(t);
	if (*t->p != c)
		return false;
	t->p++;
	return true;
}

static size_t word(const char *p)
{
	size_t n = 0;

	while (isalnum((unsigned char)p[n]) || (p[n] && strchr("_.+-", p[n])))
		n++;
	return n;
}

/* One character of a string. */
static char escaped(struct text *t)
{
	static const char from[] = "abfnrtv", to[] = "\a\b\f\n\r\t\v";
	const char *at;
	char *end, digits[4] = "";
	size_t n = strspn(t->p, "01234567");

	if (n || *t->p == 'x') {
		n = n > 3 ? 3 : n;
		if (!n)
			n = strspn(++t->p, "0123456789abcdefABCDEF"), n = n > 2 ? 2 : n;
		memcpy(digits, t->p, n);
		t->p += n;
		n = strtoul(digits, &end, t->p[-1 - (ptrdiff_t)n] == 'x' ? 16 : 8);
		if (!n || n > 255)
			fail(t, -EINVAL, "a byte of a string that is 0 or no byte");
		return (char)n;
	}
	if (!*t->p || *t->p == '\n')
		return 0;		/* which is the caller's error */
	at = strchr(from, *t->p++);
	return at ? to[at - from] : t->p[-1];
}

/* Strings behind each other are one. */
static char *strings(struct text *t)
{
	char *value = NULL, *more, *to = NULL, quote;
	size_t n;

	while (!t->rc && (*t->p == '"' || *t->p == '\'')) {
		n = value ? (size_t)(to - value) : 0;
		more = realloc(value, n + strcspn(t->p, "\n") + 1);
		if (!more)
			break;
		value = more;
		to = value + n;
		quote = *t->p++;
		while (*t->p && *t->p != quote && *t->p != '\n' && !t->rc) {
			if (*t->p == '\\' && t->p++)
				*to++ = escaped(t);
			else
				*to++ = *t->p++;
		}
		if (*t->p != quote)
			fail(t, -EINVAL, "a string without its end");
		else
			t->p++;
		skip(t);
	}
	if (value)
		*to++ = 0;
	more = value ? realloc(value, (size_t)(to - value)) : NULL;
	return more ? more : value;
}

static bool fields(struct text *t, struct pbtxt **to, char end);

/* A value, which is appended at *at as a field. */
static struct pbtxt **value(struct text *t, struct pbtxt **at, const char *name, size_t n)
{
	struct pbtxt *f = calloc(1, sizeof(*f) + n + 1);
	size_t len;

	skip(t);
	if (!f) {
		fail(t, -ENOMEM, "out of memory");
		return at;
	}
	*at = f;
	memcpy(f->name, name, n);
	f->line = t->line;
	if (*t->p == '{' || *t->p == '<') {
		if (t->depth++ == DEEPEST)
			fail(t, -EINVAL, "too many messages within each other");
		else
			fields(t, &f->first, *t->p++ == '{' ? '}' : '>');
		t->depth--;
		return &f->next;
	}
	if (*t->p == '"' || *t->p == '\'') {
		f->value = strings(t);
	} else {
		len = word(t->p);
		if (!len)
			fail(t, -EINVAL, "a value is missing");
		f->value = strndup(t->p, len);
		t->p += len;
	}
	if (!f->value)
		fail(t, -ENOMEM, "out of memory");
	return &f->next;
}

/* The fields of a message, up to its end; 0: that of the text. */
static bool fields(struct text *t, struct pbtxt **at, char end)
{
	const char *name;
	bool colon;
	size_t n;

	while (!t->rc) {
		skip(t);
		if (*t->p == end) {
			t->p += end != 0;
			return true;
		}
		name = t->p;
		n = word(name);
		if (!n)
			return fail(t, -EINVAL, *t->p ? "the name of a field is missing" :
				    "a message without its end");
		t->p += n;
		colon = next_is(t, ':');
		skip(t);
		if (!colon && !strchr("{<[", *t->p))
			return fail(t, -EINVAL, "':' is missing behind the name of a field");
		if (!*t->p) {
			return fail(t, -EINVAL, "a value is missing");
		} else if (!next_is(t, '[')) {
			at = value(t, at, name, n);
		} else if (!next_is(t, ']')) {
			do
				at = value(t, at, name, n);
			while (!t->rc && next_is(t, ','));
			if (!t->rc && !next_is(t, ']'))
				return fail(t, -EINVAL, "a list without its end");
		}
		if (!next_is(t, ','))
			next_is(t, ';');
	}
	return false;
}

static int slurp(const char *path, char **text, char *err, size_t size)
{
	FILE *f = fopen(path, "re");
	size_t n = 0;
	int rc;

	*text = f ? malloc(MOST + 1) : NULL;
	if (*text)
		n = fread(*text, 1, MOST + 1, f);
	rc = !f || (*text && ferror(f)) ? -errno : !*text ? -ENOMEM : n > MOST ? -E2BIG : 0;
	if (f)
		fclose(f);
	if (rc) {
		snprintf(err, size, "%.300s: %s", path, strerror(-rc));
		free(*text);
		return rc;
	}
	(*text)[n] = 0;
	if (strlen(*text) == n)
		return 0;
	snprintf(err, size, "%.300s: a byte is 0", path);
	free(*text);
	return -EINVAL;
}

int pbtxt_read(const char *path, struct pbtxt **out, char *err, size_t size)
{
	struct text t = { .path = path, .line = 1, .err = err, .size = size };
	char *text;
	int rc = slurp(path, &text, err, size);

	*out = NULL;
	if (rc)
		return rc;
	t.p = text;
	fields(&t, out, 0);
	free(text);
	if (t.rc) {
		pbtxt_free(*out);
		*out = NULL;
	}
	return t.rc;
}

void pbtxt_free(struct pbtxt *f)
{
	struct pbtxt *next;

	for (; f; f = next) {
		next = f->next;
		pbtxt_free(f->first);
		free(f->value);
		free(f);
	}
}
