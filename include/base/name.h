/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of ops in output: a name is a string of the program, with any bytes.  What a reader gets is
 * UTF-8 without control characters.
 */
#ifndef BASE_NAME_H
#define BASE_NAME_H

#include <base/compiler.h>

#define NAME_BAD	0xfffdu		/* stands for a byte that is no UTF-8 */
#define NAME_ROOM	8u		/* bytes that name_put() writes at most */

/* Read one character and advance *s.  Returns NAME_BAD for a byte that begins no character. */
static inline u32 name_next(const char **s)
{
	const unsigned char *p = (const unsigned char *)*s;
	u32 c = p[0], n = c < 0x80 ? 0 : c < 0xc2 ? 4 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : c < 0xf5 ? 3 : 4, i;

	++*s;
	if (!n)
		return c;
	if (n == 4)
		return NAME_BAD;
	c &= 0x3fu >> n;
	for (i = 1; i <= n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return NAME_BAD;
		c = c << 6 | (p[i] & 0x3f);
	}
	/* Too long a form, a surrogate, or too large a number. */
	if ((n == 2 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) ||
	    (n == 3 && (c < 0x10000 || c > 0x10ffff)))
		return NAME_BAD;
	*s += n;
	return c;
}

static inline bool name_control(u32 c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

/* Is the name what name_copy() would make of it? */
static inline bool name_fine(const char *s)
{
	u32 c;

	while (*s) {
		c = name_next(&s);
		if (c == NAME_BAD || name_control(c))
			return false;
	}
	return true;
}

/* Store the character as UTF-8.  Returns the number of bytes, at most 4. */
static inline u32 name_utf8(char *out, u32 c)
{
	u32 n = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3, i;

	if (!n) {
		out[0] = (char)c;
		return 1;
	}
	for (i = n; i; i--, c >>= 6)
		out[i] = (char)(0x80 | (c & 0x3f));
	out[0] = (char)((0xff00u >> (n + 1) & 0xff) | c);
	return n + 1;
}

/*
 * Store one character as a reader may see it: a control character is \uXXXX.  Returns the number
 * of bytes, at most NAME_ROOM.
 */
static inline u32 name_put(char *out, u32 c)
{
	u32 i;

	if (!name_control(c))
		return name_utf8(out, c);
	out[0] = '\\';
	out[1] = 'u';
	for (i = 0; i < 4; i++)
		out[2 + i] = "0123456789abcdef"[c >> (12 - 4 * i) & 15];
	return 6;
}

/* Copy the name to out, and cut it behind a whole character if it has no room. */
static inline void name_copy(char *out, u32 size, const char *s)
{
	u32 n = 0, c;

	while (*s && n + NAME_ROOM < size) {
		c = name_next(&s);
		n += name_put(out + n, c);
	}
	out[n] = 0;
}

#endif
