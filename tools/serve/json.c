// SPDX-License-Identifier: Apache-2.0
/* A strict reader of JSON; see json.h. */

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

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
	const char *p, *end;
	bool minus, real, long_;
	uint64_t digits;	/* all digits without the point, if there are at most 19 */
	int exponent;		/* of ten, for these */
	const char *error;
};

static inline bool digit(const char *p, const char *end)
{
	return p < end && *p >= '0' && *p <= '9';
}

/* The bytes of w, in the order of the text, that are no digits: at least the first one is not 0. */
static inline uint64_t no_digits(uint64_t w)
{
	const uint64_t high = 0xf0f0f0f0f0f0f0f0, zeros = 0x3030303030303030;

	return ((w & high) ^ zeros) | (((w + 0x0606060606060606) & high) ^ zeros);
}

/* Eight digits, or zero bytes: pairs, and these are added up. */
static inline uint64_t eight(uint64_t w)
{
	w &= 0x0f0f0f0f0f0f0f0f;
	w = w * 10 + (w >> 8);
	return ((w & 0x000000ff000000ff) * (100 + ((uint64_t)1000000 << 32)) +
		(w >> 16 & 0x000000ff000000ff) * (1 + ((uint64_t)10000 << 32))) >> 32;
}

/* The first byte of the text is the lowest one. */
static inline uint64_t load(const char *p)
{
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	return le64toh(w);
}

static const uint64_t whole[] = { 1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000,
	1000000000, 10000000000, 100000000000, 1000000000000, 10000000000000, 100000000000000,
	1000000000000000, 10000000000000000 };

/* Append the digits from p on to v, eight at a time.  Returns the end of them. */
static inline const char *digits(const char *p, const char *end, uint64_t *v)
{
	uint64_t w, other;
	unsigned int n;

	while (end - p >= 8) {
		w = load(p);
		other = no_digits(w);
		n = other ? (unsigned int)__builtin_ctzll(other) / 8 : 8;
		if (!n)
			return p;
		/* zeros in front of fewer than eight */
		*v = *v * whole[n] + eight(w << (64 - 8 * n));
		p += n;
		if (n < 8)
			return p;
	}
	for (; digit(p, end); p++)
		*v = *v * 10 + (uint64_t)(*p - '0');
	return p;
}

#ifdef __SSE2__
/* A bit for each of 16 bytes that is no digit. */
static inline uint32_t no_digits16(const char *p)
{
	__m128i c = _mm_loadu_si128((const __m128i *)(const void *)p);

	/* digits become the ten lowest signed numbers */
	c = _mm_add_epi8(c, _mm_set1_epi8(INT8_MAX + 1 - '0'));
	return (uint32_t)_mm_movemask_epi8(_mm_cmpgt_epi8(c, _mm_set1_epi8(INT8_MIN + 9)));
}

/*
 * As scan() for up to 3 digits, a point and up to 15 digits, without branches that depend on how
 * many these are, or on the sign: those of an array are of all kinds, and a wrong guess of the CPU
 * takes longer than a number.  False: use scan().
 */
static inline bool scan_short(const char *first, const char *p, const char *end, struct number *n)
{
	/* as many bytes at the end of a word */
	static const uint64_t last[24] = {
		[9] = 0xff00000000000000, [10] = 0xffff000000000000, [11] = 0xffffff0000000000,
		[12] = 0xffffffff00000000, [13] = 0xffffffffff000000, [14] = 0xffffffffffff0000,
		[15] = 0xffffffffffffff00, [16 ... 23] = UINT64_MAX };
	unsigned int i, k;
	uint32_t others;

	/* the words that end with the last digit begin up to 13 bytes before the number */
	if (p - first < 16 || end - p < 33)
		return false;
	n->minus = *p == '-';
	others = (no_digits16(p) | no_digits16(p + 16) << 16) >> n->minus;
	p += n->minus;
	i = others ? (unsigned int)__builtin_ctz(others) : 0;
	others &= others - 1;
	/* a zero in front of other digits is not JSON */
	if (!i || i > 3 || p[i] != '.' || (*p == '0' && i > 1) || !others)
		return false;
	k = (unsigned int)__builtin_ctz(others) - i - 1;
	if (!k || k > 15)
		return false;
	n->digits = eight(load(p) << (64 - 8 * i)) * whole[k];
	p += i + 1 + k;
	n->digits += eight(load(p - 16) & last[k]) * 100000000 + eight(load(p - 8) & last[k + 8]);
	n->end = p;
	n->exponent = -(int)k;
	n->long_ = false;
	return *p == ',';
}
#else
static inline bool scan_short(const char *first, const char *p, const char *end, struct number *n)
{
	return false;
}
#endif

/* Scan a number that begins at p.  Returns false with n->error, at n->end. */
static inline bool scan(const char *p, const char *end, struct number *n)
{
	const char *first;
	int e = 0, count;
	bool minus;

	*n = (struct number){ .p = p };
	n->minus = p < end && *p == '-';
	n->end = p += n->minus;
	n->error = "not a number";
	if (!digit(p, end))
		return false;
	first = p;
	p = *p == '0' ? p + 1 : digits(p, end, &n->digits);
	count = p - first > 1000 ? 1000 : (int)(p - first);
	if (p < end && *p == '.') {
		n->real = true;
		n->end = first = ++p;
		n->error = "no digit behind the point of a number";
		if (!digit(p, end))
			return false;
		p = digits(p, end, &n->digits);
		count += p - first > 1000 ? 1000 : (int)(p - first);
		n->exponent = p - first > 1000 ? 0 : -(int)(p - first);
	}
	if (p < end && (*p == 'e' || *p == 'E')) {
		n->real = true;
		p++;
		minus = p < end && *p == '-';
		if (p < end && (*p == '-' || *p == '+'))
			p++;
		n->end = p;
		n->error = "no digit in the exponent of a number";
		if (!digit(p, end))
			return false;
		for (; digit(p, end); p++)
			if (e < 100000)
				e = e * 10 + *p - '0';
		n->exponent += minus ? -e : e;
	}
	n->long_ = count > 19;
	n->end = p;
	return true;
}

static bool number(struct js *j, struct number *n)
{
	js_peek(j);
	if (j->error)
		return false;
	if (!scan(j->p, j->end, n))
		return js_fail(j, n->error);
	j->p = n->end;
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

/* w / 10^k for k up to 27, rounded once: 5^k has 63 bits at most, and so has the quotient. */
static inline double quotient(uint64_t w, unsigned int k)
{
	static const uint64_t five[] = { 1, 5, 25, 125, 625, 3125, 15625, 78125, 390625, 1953125,
		9765625, 48828125, 244140625, 1220703125, 6103515625, 30517578125, 152587890625,
		762939453125, 3814697265625, 19073486328125, 95367431640625, 476837158203125,
		2384185791015625, 11920928955078125, 59604644775390625, 298023223876953125,
		1490116119384765625, 7450580596923828125 };
	unsigned int shift = 63 + (unsigned int)__builtin_clzll(w) -
		(unsigned int)__builtin_clzll(five[k]);
	unsigned __int128 n = (unsigned __int128)w << shift;
	uint64_t q = (uint64_t)(n / five[k]), bits = (uint64_t)(1023 - shift - k) << 52;
	double scale;

	/* what is below the bits of a double only has to say whether it is zero */
	q |= (uint64_t)n != q * five[k];
	memcpy(&scale, &bits, sizeof(scale));
	return (double)q * scale;
}

/* The nearest double, unless that needs more than some multiplications. */
static inline bool nearest(const struct number *n, double *v)
{
	static const double ten[] = { 1e0,  1e1,  1e2,	1e3,  1e4,  1e5,  1e6,	1e7,
				      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
				      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
	double d;

	if (n->long_)
		return false;
	d = (double)n->digits;
	if (n->digits <= (uint64_t)1 << 53 && n->exponent >= -22 && n->exponent <= 22)
		/* both factors are exact, so the quotient or product is rounded once */
		d = n->exponent < 0 ? d / ten[-n->exponent] : d * ten[n->exponent];
	else if (n->digits && n->exponent < 0 && n->exponent >= -27)
		d = quotient(n->digits, (unsigned int)-n->exponent);
	else
		return false;
	/* no branch: the signs of an array have no order */
	*v = copysign(d, 0.5 - n->minus);
	return true;
}

bool js_double(struct js *j, double *v)
{
	char buf[64], *copy = buf;
	struct number n;
	size_t len;

	if (!number(j, &n))
		return false;
	if (nearest(&n, v) || num_read(n.p, j->p, v))
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

size_t js_reals(struct js *j, char *to, size_t size, size_t most)
{
	const char *p = j->p, *end = j->end;
	struct number n;
	size_t k;
	double d;
	float f;

	for (k = 0; k < most; k++) {
		while (p < end && (*p == ' ' || *p == '\n'))
			p++;
		if ((!scan_short(j->start, p, end, &n) &&
		     (!scan(p, end, &n) || n.end == end || *n.end != ',')) || !nearest(&n, &d))
			break;
		f = (float)d;
		if (size == 4 && isinf(f))
			break;
		memcpy(to + k * size, size == 4 ? (void *)&f : (void *)&d, size);
		j->p = p = n.end + 1;
	}
	return k;
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
