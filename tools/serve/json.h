/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict reader of JSON (RFC 8259) over bytes that need not end with 0: what the path of an
 * infer request uses.  It walks once, allocates nothing, and copies nothing.
 *
 * The first error stays: p does not move afterwards, and every call returns false.
 */
#ifndef SERVE_JSON_H
#define SERVE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define JS_DEPTH 64

struct js {
	const char *p, *end, *start;
	const char *error;
};

struct js_str {
	const char *p;		/* between the quotes, with its escapes */
	size_t n;
	bool escapes;
};

void js_init(struct js *j, const char *p, size_t n);
bool js_fail(struct js *j, const char *why);

/* The next byte that is no white space; 0: the end. */
static inline char js_peek(struct js *j)
{
	for (; !j->error && j->p < j->end; j->p++)
		if (*j->p != ' ' && *j->p != '\n' && *j->p != '\r' && *j->p != '\t')
			return *j->p;
	return 0;
}

bool js_take(struct js *j, char c);	/* that byte, which must be c */
bool js_string(struct js *j, struct js_str *s);
bool js_bool(struct js *j, bool *b);
bool js_int(struct js *j, int64_t *v);		/* no fraction, no exponent, in the range */
bool js_uint(struct js *j, uint64_t *v);
bool js_double(struct js *j, double *v);	/* the nearest double */
/*
 * In an array: numbers that a comma follows, as floats or doubles (size 4 or 8), at most so many.
 * Returns how many; what follows them may be anything, also an error.
 */
size_t js_reals(struct js *j, char *to, size_t size, size_t most);
bool js_skip(struct js *j);			/* any value */
/* Any value; what is inside of arrays without strings is not checked. */
bool js_skip_data(struct js *j);
bool js_end(struct js *j);			/* only white space is left */
/*
 * The members of an object, and the elements of an array:
 *	for (bool more = js_open(j, '{'); more; more = js_more(j, '}')) { js_key(j, &key) ... }
 * Afterwards j->error says whether it ended in order.
 */
bool js_open(struct js *j, char c);
bool js_more(struct js *j, char c);
bool js_key(struct js *j, struct js_str *s);
bool js_is_decoded(const struct js_str *s, const char *text);

/* Whether s, decoded, is the text. */
static inline bool js_is(const struct js_str *s, const char *text)
{
	size_t n = strlen(text);

	return s->escapes ? js_is_decoded(s, text) : s->n == n && !memcmp(s->p, text, n);
}

/* The bytes of one character beyond ASCII, or 0; the value of a hexadecimal digit, or -1. */
unsigned int js_utf8(const char *p, const char *end);
bool js_is_utf8(const struct js_str *s);
int js_hex(char c);
/* The decoded text, cut to size, with a 0. */
size_t js_decode(const struct js_str *s, char *buf, size_t size);

#define JS_DIGITS 20	/* of a number, or fewer */
/* Write the digits of v so that they end before end.  Returns the first one. */
char *js_digits(char *end, uint64_t v);

#endif
