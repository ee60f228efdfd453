// SPDX-License-Identifier: Apache-2.0
/* A strict reader of JSON; see json.h. */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "num.h"

void js_init(struct js *j, const char *p, size_t n)
{
	*j = (struct js){ p, p + n, p, NULL };
}

bool js_fail(struct js *j, const char *why)
{
	if (!j->error)
		j->error = why;
	return false;
}

bool js_take(struct js *j, char c)
{
	if (js_peek(j) != c || j->p == j->end)
		return js_fail(j, c == ':' ? "a colon is missing" : c == '"' ?
			       "a string is missing" : "an unexpected character");
	j->p++;
	return true;
}

unsigned int js_utf8(const char *text, const char *stop)
{
	const unsigned char *p = (const unsigned char *)text,
			    *end = (const unsigned char *)stop;
	unsigned int n, i;
	uint32_t c;

	if (*p >= 0xc2 && *p < 0xe0)
		n = 2, c = *p & 0x1fu;
	else if (*p >= 0xe0 && *p < 0xf0)
		n = 3, c = *p & 0x0fu;
	else if (*p >= 0xf0 && *p < 0xf5)
		n = 4, c = *p & 0x07u;
	else
		return 0;
	if ((size_t)(end - p) < n)
		return 0;
	for (i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3fu);
	}
	if ((n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) ||
	    (n == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 0;
	return n;
}

bool js_is_utf8(const struct js_str *s)
{
	const char *p, *end;
	unsigned int n;

	if (!s->n)
		return true;
	for (p = s->p, end = p + s->n; p < end; p += n) {
		n = (unsigned char)*p < 0x80 ? 1 : js_utf8(p, end);
		if (!n)
			return false;
	}
	return true;
}

int js_hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 :
		c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The four digits behind \u, or -1. */
static int32_t unit(const char *p, const char *end)
{
	int32_t v = 0;
	int i;

	if (end - p < 4)
		return -1;
	for (i = 0; i < 4; i++) {
		if (js_hex(p[i]) < 0)
			return -1;
		v = v << 4 | js_hex(p[i]);
	}
	return v;
}

/* The bytes that stand for themselves in a string. */
static const bool plain[256] = {
	[' '] = true, ['!'] = true, ['#' ... '['] = true, [']' ... 0x7f] = true,
};

bool js_string(struct js *j, struct js_str *s)
{
	const char *p;
	unsigned int n;
	int32_t u;

	if (!js_take(j, '"'))
		return false;
	s->escapes = false;
	for (p = s->p = j->p; p < j->end; ) {
		unsigned char c = (unsigned char)*p;

		if (plain[c]) {
			p++;
			continue;
		}
		if (c == '"') {
			s->n = (size_t)(p - s->p);
			j->p = p + 1;
			return true;
		}
		if (c < 0x20) {
			break;
		} else if (c == '\\') {
			s->escapes = true;
			if (++p == j->end || !*p || !strchr("\"\\/bfnrtu", *p))
				break;
			if (*p++ != 'u')
				continue;
			u = unit(p, j->end);
			if (u < 0 || (u & 0xfc00) == 0xdc00)
				break;
			p += 4;
			if ((u & 0xfc00) != 0xd800)
				continue;
			if (j->end - p < 6 || p[0] != '\\' || p[1] != 'u' ||
			    (unit(p + 2, j->end) & ~0x3ff) != 0xdc00)
				break;
			p += 6;
		} else {
			n = js_utf8(p, j->end);
			if (!n)
				break;
			p += n;
		}
	}
	j->p = p;
	return js_fail(j, p == j->end ? "a string without its end" :
		       "an invalid character in a string");
}

static bool word(struct js *j, const char *w)
{
	size_t n = strlen(w);

	if ((size_t)(j->end - j->p) < n || memcmp(j->p, w, n))
		return js_fail(j, "an invalid value");
	j->p += n;
	return true;
}

bool js_bool(struct js *j, bool *b)
{
	*b = js_peek(j) == 't';
	return *b ? word(j, "true") : js_peek(j) == 'f' ? word(j, "false") :
		js_fail(j, "not true or false");
}

struct number {
	const char *p;
	bool minus, real, long_;
	uint64_t digits;	/* all digits without the point, if there are at most 19 */
	int exponent;		/* of ten, for these */
};

static inline bool digit(const char *p, const char *end)
{
	return p < end && *p >= '0' && *p <= '9';
}

static bool number(struct js *j, struct number *n)
{
	const char *p, *end = j->end, *first;
	int e = 0, count;
	bool minus;

	js_peek(j);
	if (j->error)
		return false;
	p = j->p;
	*n = (struct number){ .p = p };
	n->minus = p < end && *p == '-';
	p += n->minus;
	if (!digit(p, end))
		return js_fail(j, "not a number");
	first = p;
	if (*p == '0') {
		p++;
	} else {
		for (; digit(p, end); p++)
			n->digits = n->digits * 10 + (uint64_t)(*p - '0');
	}
	count = p - first > 1000 ? 1000 : (int)(p - first);
	if (p < end && *p == '.') {
		n->real = true;
		first = ++p;
		if (!digit(p, end))
			return js_fail(j, "no digit behind the point of a number");
		for (; digit(p, end); p++)
			n->digits = n->digits * 10 + (uint64_t)(*p - '0');
		count += p - first > 1000 ? 1000 : (int)(p - first);
		n->exponent = p - first > 1000 ? 0 : -(int)(p - first);
	}
	if (p < end && (*p == 'e' || *p == 'E')) {
		n->real = true;
		p++;
		minus = p < end && *p == '-';
		if (p < end && (*p == '-' || *p == '+'))
			p++;
		if (!digit(p, end))
			return js_fail(j, "no digit in the exponent of a number");
		for (; digit(p, end); p++)
			if (e < 100000)
				e = e * 10 + *p - '0';
		n->exponent += minus ? -e : e;
	}
	n->long_ = count > 19;
	j->p = p;
	return true;
}

bool js_uint(struct js *j, uint64_t *v)
{
	struct number n;

	if (!number(j, &n))
		return false;
	if (n.real || (n.minus && n.digits))
		return js_fail(j, "not an unsigned integer");
	if (n.long_) {
		char buf[21] = "";

		if (j->p - n.p != 20)
			return js_fail(j, "an integer is too large");
		memcpy(buf, n.p, 20);
		errno = 0;
		*v = strtoull(buf, NULL, 10);
		return errno ? js_fail(j, "an integer is too large") : true;
	}
	*v = n.digits;
	return true;
}

bool js_int(struct js *j, int64_t *v)
{
	struct number n;

	if (!number(j, &n))
		return false;
	if (n.real)
		return js_fail(j, "not an integer");
	if (n.long_ || n.digits > (uint64_t)INT64_MAX + n.minus)
		return js_fail(j, "an integer is too large");
	*v = (int64_t)(n.minus ? -n.digits : n.digits);
	return true;
}

bool js_double(struct js *j, double *v)
{
	static const double ten[] = { 1e0,  1e1,  1e2,	1e3,  1e4,  1e5,  1e6,	1e7,
				      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
				      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
	char buf[64], *copy = buf;
	struct number n;
	size_t len;
	double d;

	if (!number(j, &n))
		return false;
	/* both factors are exact, so the quotient or product is rounded once */
	if (!n.long_ && n.digits <= (uint64_t)1 << 53 && n.exponent >= -22 &&
	    n.exponent <= 22) {
		d = (double)n.digits;
		d = n.exponent < 0 ? d / ten[-n.exponent] : d * ten[n.exponent];
		*v = n.minus ? -d : d;
		return true;
	}
	if (num_read(n.p, j->p, v))
		return true;
	/* too large, or nearly 0: strtod() says which, and needs an end */
	len = (size_t)(j->p - n.p);
	if (len >= sizeof(buf)) {
		copy = malloc(len + 1);
		if (!copy)
			return js_fail(j, "out of memory");
	}
	memcpy(copy, n.p, len);
	copy[len] = 0;
	*v = strtod(copy, NULL);
	if (copy != buf)
		free(copy);
	return isinf(*v) ? js_fail(j, "a number is too large") : true;
}

bool js_open(struct js *j, char c)
{
	if (!js_take(j, c))
		return false;
	if (js_peek(j) == (c == '{' ? '}' : ']')) {
		j->p++;
		return false;
	}
	return !j->error;
}

bool js_more(struct js *j, char c)
{
	char got = js_peek(j);

	if (got == ',') {
		j->p++;
		return true;
	}
	if (got == c)
		j->p++;
	else
		js_fail(j, c == '}' ? "a comma or } is missing" : "a comma or ] is missing");
	return false;
}

bool js_key(struct js *j, struct js_str *s)
{
	return js_string(j, s) && js_take(j, ':');
}

bool js_skip(struct js *j)
{
	char stack[JS_DEPTH];
	unsigned int depth = 0;
	struct js_str s;
	struct number n;
	char c;

	for (;;) {
		c = js_peek(j);
		if (c == '{' || c == '[') {
			if (depth == JS_DEPTH)
				return js_fail(j, "nested too deeply");
			if (js_open(j, c)) {
				stack[depth++] = c == '{' ? '}' : ']';
				if (c == '{' && !js_key(j, &s))
					return false;
				continue;
			}
		} else if (c == '"') {
			js_string(j, &s);
		} else if (c == 't') {
			word(j, "true");
		} else if (c == 'f') {
			word(j, "false");
		} else if (c == 'n') {
			word(j, "null");
		} else {
			number(j, &n);
		}
		for (;;) {
			if (j->error)
				return false;
			if (!depth)
				return true;
			if (js_more(j, stack[depth - 1])) {
				if (stack[depth - 1] == '}' && !js_key(j, &s))
					return false;
				break;
			}
			depth--;
		}
	}
}

bool js_skip_data(struct js *j)
{
	const char *p = j->p, *q, *at;
	unsigned int depth = 0;

	if (js_peek(j) != '[')
		return js_skip(j);
	for (p = j->p; (q = memchr(p, ']', (size_t)(j->end - p))); p = q + 1) {
		/* a string may have brackets */
		if (memchr(p, '"', (size_t)(q - p)))
			return js_skip(j);
		for (at = p; (at = memchr(at, '[', (size_t)(q - at))); at++)
			depth++;
		if (!--depth) {
			j->p = q + 1;
			return true;
		}
	}
	return js_skip(j);
}

bool js_end(struct js *j)
{
	js_peek(j);
	return !j->error && (j->p == j->end || js_fail(j, "something behind the end"));
}

size_t js_decode(const struct js_str *s, char *buf, size_t size)
{
	const char *p = s->p, *end = p + s->n;
	size_t n = 0;
	uint32_t u;
	char out[4];
	size_t k;

	while (p < end) {
		k = 1;
		out[0] = *p++;
		if (out[0] == '\\' && s->escapes) {
			char c = *p++;

			if (c == 'u') {
				u = (uint32_t)unit(p, end);
				p += 4;
				if ((u & 0xfc00) == 0xd800) {
					u = 0x10000 + ((u & 0x3ff) << 10) +
						((uint32_t)unit(p + 2, end) & 0x3ff);
					p += 6;
				}
				if (u < 0x80) {
					out[0] = (char)u;
				} else if (u < 0x800) {
					out[0] = (char)(0xc0 | u >> 6);
					out[1] = (char)(0x80 | (u & 0x3f));
					k = 2;
				} else if (u < 0x10000) {
					out[0] = (char)(0xe0 | u >> 12);
					out[1] = (char)(0x80 | (u >> 6 & 0x3f));
					out[2] = (char)(0x80 | (u & 0x3f));
					k = 3;
				} else {
					out[0] = (char)(0xf0 | u >> 18);
					out[1] = (char)(0x80 | (u >> 12 & 0x3f));
					out[2] = (char)(0x80 | (u >> 6 & 0x3f));
					out[3] = (char)(0x80 | (u & 0x3f));
					k = 4;
				}
			} else {
				out[0] = c == 'b' ? '\b' : c == 'f' ? '\f' : c == 'n' ? '\n' :
					c == 'r' ? '\r' : c == 't' ? '\t' : c;
			}
		}
		if (n + k >= size)
			break;
		memcpy(buf + n, out, k);
		n += k;
	}
	buf[n] = 0;
	return n;
}

bool js_is_decoded(const struct js_str *s, const char *text)
{
	char buf[256];
	size_t n = strlen(text);

	return js_decode(s, buf, sizeof(buf)) == n && !memcmp(buf, text, n);
}

char *js_digits(char *end, uint64_t v)
{
	do {
		*--end = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	return end;
}
