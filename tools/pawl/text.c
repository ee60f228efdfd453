// SPDX-License-Identifier: Apache-2.0
/*
 * Reads JSON value by value, so that a long list need not be in memory as a whole: where a value
 * ends is found by its brackets, and jansson reads it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "slurp.h"
#include "text.h"

#define FIRST ((size_t)1 << 16)

int text_open(struct text *t, const char *path, char *err, size_t errlen)
{
	*t = (struct text){ .name = path, .line = 1, .cap = FIRST, .err = err, .errlen = errlen };
	t->f = gzopen(path, "rb");
	if (!t->f)
		return file_err(err, errlen, -errno, "%s: %s", path, strerror(errno));
	t->buf = malloc(t->cap);
	if (t->buf)
		return 0;
	text_close(t);
	return file_err(err, errlen, -ENOMEM, "%s: no memory", path);
}

void text_close(struct text *t)
{
	if (t->f)
		gzclose_r(t->f);
	free(t->buf);
	t->f = NULL;
	t->buf = NULL;
}

int text_more(struct text *t)
{
	int got, code;
	char *q;

	if (t->at) {
		memmove(t->buf, t->buf + t->at, t->n - t->at);
		t->bytes += t->at;
		t->n -= t->at;
		t->at = 0;
	}
	if (t->n == t->cap) {
		if (t->cap >= TEXT_MAX)
			return file_err(t->err, t->errlen, -EFBIG, "%s: more than %zu bytes", t->name,
					t->cap);
		q = realloc(t->buf, t->cap * 2);
		if (!q)
			return file_err(t->err, t->errlen, -ENOMEM, "%s: no memory", t->name);
		t->buf = q;
		t->cap *= 2;
	}
	got = gzread(t->f, t->buf + t->n, (unsigned int)(t->cap - t->n));
	if (got > 0) {
		t->n += (size_t)got;
		return 0;
	}
	t->end = true;
	code = gzclose_r(t->f);
	t->f = NULL;
	return !got && code == Z_OK ? 0 :
	       file_err(t->err, t->errlen, -EBADMSG, "%s: cannot read, or damaged compression", t->name);
}

int text_refuse(struct text *t, const char *why)
{
	return file_err(t->err, t->errlen, -EBADMSG, "%s: line %zu, column %zu: %s", t->name, t->line,
			t->column, why);
}

static void skip(struct text *t, size_t n)
{
	for (; n; n--) {
		t->column++;
		if (t->buf[t->at++] == '\n') {
			t->line++;
			t->column = 0;
		}
	}
}

static bool white(char c)
{
	return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

int text_peek(struct text *t, int *c)
{
	int rc;

	for (;;) {
		while (t->at < t->n && white(t->buf[t->at]))
			skip(t, 1);
		*c = t->at < t->n ? (unsigned char)t->buf[t->at] : 0;
		if (t->at < t->n || t->end)
			return 0;
		rc = text_more(t);
		if (rc)
			return rc;
	}
}

int text_expect(struct text *t, int c)
{
	char why[] = "'?' expected";
	int got, rc = text_peek(t, &got);

	if (rc)
		return rc;
	why[1] = (char)c;
	if (got != c)
		return text_refuse(t, why);
	skip(t, 1);
	return 0;
}

/* Find the end of the value at `at`.  If there is none, it is the end of the file. */
static int extent(struct text *t, size_t *len)
{
	bool string = false;
	size_t depth = 0, i = 0;
	const char *s;
	int rc;
	char c;

	for (;; i++) {
		while (t->at + i >= t->n) {
			if (t->end)
				goto out;
			rc = text_more(t);
			if (rc)
				return rc;
		}
		s = t->buf + t->at + i;
		c = *s;
		if (string) {
			size_t left = t->n - t->at - i;
			const char *quote = memchr(s, '"', left), *escape;

			left = quote ? (size_t)(quote - s) : left;
			escape = memchr(s, '\\', left);
			if (escape || !quote) {
				i += escape ? (size_t)(escape - s) + 1 : left - 1;
				continue;
			}
			string = false;
			i += left;
			if (depth)
				continue;
			i++;
			break;
		}
		if (c == '"') {
			string = true;
		} else if (c == '{' || c == '[') {
			depth++;
		} else if (c == '}' || c == ']') {
			if (depth > 1) {
				depth--;
				continue;
			}
			i += depth;
			break;
		} else if (!depth && (c == ',' || c == ':' || white(c))) {
			break;
		}
	}
out:
	*len = t->at + i < t->n ? i : t->n - t->at;
	return 0;
}

int text_value(struct text *t, json_t **v)
{
	json_error_t je;
	size_t len;
	int c, rc = text_peek(t, &c);

	if (!rc)
		rc = extent(t, &len);
	if (rc)
		return rc;
	*v = json_loadb(t->buf + t->at, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
	if (!*v && json_error_code(&je) == json_error_out_of_memory)
		return file_err(t->err, t->errlen, -ENOMEM, "%s: no memory", t->name);
	if (!*v) {
		if (je.line > 1) {
			t->line += (size_t)je.line - 1;
			t->column = 0;
		}
		t->column += (size_t)je.column;
		return text_refuse(t, je.text);
	}
	skip(t, len);
	return 0;
}
