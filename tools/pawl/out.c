// SPDX-License-Identifier: Apache-2.0
/* Printing without printf(), which takes most of the time of a large recording. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdarg.h>
#include <string.h>

#include "out.h"

void out_flush(struct out *o)
{
	fwrite(o->buf, 1, o->n, o->f);
	o->n = 0;
}

static void text(struct out *o, const char *s, size_t len)
{
	if (len > sizeof(o->buf) - o->n)
		out_flush(o);
	if (len > sizeof(o->buf)) {
		fwrite(s, 1, len, o->f);
		return;
	}
	memcpy(o->buf + o->n, s, len);
	o->n += len;
}

static void number(struct out *o, uint64_t v)
{
	char digits[20], *p = digits + sizeof(digits);

	do
		*--p = (char)('0' + v % 10);
	while (v /= 10);
	text(o, p, (size_t)(digits + sizeof(digits) - p));
}

void out_print(struct out *o, const char *fmt, ...)
{
	const char *next;
	va_list ap;
	char c;
	int d;

	va_start(ap, fmt);
	for (; *(next = strchrnul(fmt, '%')); fmt = next) {
		text(o, fmt, (size_t)(next - fmt));
		next++;
		switch (*next++) {
		case 's':
			fmt = va_arg(ap, const char *);
			text(o, fmt, strlen(fmt));
			break;
		case 'c':
			c = (char)va_arg(ap, int);
			text(o, &c, 1);
			break;
		case 'd':
			d = va_arg(ap, int);
			if (d < 0)
				text(o, "-", 1);
			number(o, d < 0 ? -(uint64_t)d : (uint64_t)d);
			break;
		case 'u':
			number(o, va_arg(ap, unsigned int));
			break;
		default:	/* lu, zu */
			next++;
			number(o, va_arg(ap, size_t));
		}
	}
	text(o, fmt, (size_t)(next - fmt));
	va_end(ap);
}

void out_fixed(struct out *o, uint64_t v, unsigned int digits)
{
	char part[10] = ".";
	uint64_t unit = 1;
	unsigned int i;

	for (i = digits; i; i--, unit *= 10)
		part[i] = (char)('0' + v / unit % 10);
	number(o, v / unit);
	text(o, part, digits + 1);
}

/* Bytes of the character of UTF-8 that begins here; 0 if none does. */
static size_t utf8(const unsigned char *p)
{
	static const unsigned int first[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = *p < 0x80 ? 1 : *p < 0xc0 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf8 ? 4 : 0, i;
	unsigned int c = n < 2 ? *p : *p & (0x7fu >> n);

	for (i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	return n && (c < first[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) ? 0 : n;
}

void out_json(struct out *o, const char *s)
{
	const unsigned char *p = (const unsigned char *)s, *q;
	char escape[8];
	size_t n;

	text(o, "\"", 1);
	for (;; p = q + 1) {
		for (q = p; *q >= 0x20 && *q != 0x7f && *q != '"' && *q != '\\' && (n = utf8(q)); q += n)
			;
		text(o, (const char *)p, (size_t)(q - p));
		if (!*q)
			break;
		if (*q == '"' || *q == '\\')
			snprintf(escape, sizeof(escape), "\\%c", *q);
		else
			snprintf(escape, sizeof(escape), "\\u%04x", *q < 0x80 ? *q : 0xfffdu);
		text(o, escape, strlen(escape));
	}
	text(o, "\"", 1);
}
