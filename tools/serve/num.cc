// SPDX-License-Identifier: Apache-2.0
/*
 * Numbers as text and back: the C++ standard library has the shortest digits that are read
 * back as the same number, and the nearest number to any digits, without a locale and without
 * trials.
 *
 * Most numbers of an answer are floats of ordinary size, and for these integers of 64 bits find the
 * same digits in a third of the time: shortest().
 */
#include <charconv>
#include <cstdint>
#include <cstring>
#include <endian.h>
#include <system_error>

#include "num.h"

/* Write eight digits at once: halves, then pairs, then digits of v side by side in a word. */
static inline void eight(char *to, uint32_t v)
{
	uint64_t w = v / 10000 | (uint64_t)(v % 10000) << 32, high;

	high = (w * 10486 >> 20) & 0x0000007f0000007f;		/* / 100 */
	w = high | (w - high * 100) << 16;
	high = (w * 103 >> 10) & 0x000f000f000f000f;		/* / 10 */
	w = high | (w - high * 10) << 8;
	w = htole64(w + 0x3030303030303030);
	std::memcpy(to, &w, sizeof(w));
}

/* Is there a multiple of ten from first to last? */
static inline unsigned int has_multiple(uint32_t first, uint32_t last, uint32_t ten)
{
	return last / ten * ten >= first;
}

/*
 * f from 1/512 to 2^23.  What is read as f lies between the middles to its
 * neighbours: times 10^k, between low and high, which have nine or ten digits, and t bits behind the
 * point; 64 bits have room for both.  As many zeros as possible at the end of an integer between
 * them are digits that are not needed: at least one, since low and high are more than 10 apart.
 * Returns NULL if low, high, or the middle of two such integers is exact, if f is an integer, or if
 * it is a power of two, where the middles have different distances.
 *
 * The signs and the numbers of digits of an array have no order that a CPU could guess, so what
 * depends on them is computed without branches.
 */
static inline char *shortest(char *to, float f)
{
	/* of 2^-9, 2^-8 ... */
	static const unsigned char scale[] = { 11, 11, 11, 10, 10, 10, 9, 9, 9, 8, 8, 8, 8, 7, 7,
					       7, 6, 6, 6, 5, 5, 5, 5, 4, 4, 4, 3, 3, 3, 2, 2, 2 };
	static const uint64_t ten[] = { 1, 10, 100, 1000, 10000, 100000, 1000000, 10000000,
					100000000, 1000000000, 10000000000, 100000000000 };
#define INVERSE(n)	(UINT64_MAX / (n) + 1)	/* 2^64 / n, rounded up: exact for 32 bits */
	static const uint64_t tenth[] = { 0, INVERSE(10), INVERSE(100), INVERSE(1000),
					  INVERSE(10000), INVERSE(100000), INVERSE(1000000),
					  INVERSE(10000000), INVERSE(100000000),
					  INVERSE(1000000000) };
	uint64_t v, low, high, all, fraction;
	uint32_t bits, mantissa, first, last, n, integer, tail, near;
	unsigned int e, k, p, t;

	std::memcpy(&bits, &f, sizeof(bits));
	e = bits >> 23 & 0xff;
	mantissa = bits & 0x7fffff;
	if (e < 127 - 9 || e >= 127 + 23 || !mantissa)
		return NULL;
	mantissa |= 0x800000;
	k = scale[e - (127 - 9)];
	t = 127 + 24 - e;
	all = ((uint64_t)1 << t) - 1;
	v = 2 * mantissa * ten[k];
	low = v - ten[k];
	high = v + ten[k];
	if (!(low & all) || !(high & all))
		return NULL;
	first = (uint32_t)(low >> t) + 1;
	last = (uint32_t)(high >> t);
	p = 1 + has_multiple(first, last, 100) + has_multiple(first, last, 1000) +
		has_multiple(first, last, 10000) + has_multiple(first, last, 100000);
	if (p == 5)
		while (p < 9 && has_multiple(first, last, (uint32_t)ten[p + 1]))
			p++;
	if (p >= k)
		return NULL;		/* it is an integer */
	/* of these the one next to v */
	near = (uint32_t)(v >> t) + (uint32_t)ten[p] / 2;
	n = (uint32_t)((unsigned __int128)near * tenth[p] >> 64);
	if (!(v & all) && n * ten[p] == near)
		return NULL;
	k -= p;
	*to = '-';
	to += bits >> 31;
	/* no integer is as near to f as n is */
	integer = (uint32_t)((uint64_t)mantissa >> (t - 1));
	fraction = (n - integer * ten[k]) * ten[10 - k];
	if (integer < 10)
		*to++ = (char)('0' + integer);
	else
		to = std::to_chars(to, to + 10, integer).ptr;
	*to++ = '.';
	/* the k digits behind the point, and zeros that are not needed */
	eight(to, (uint32_t)(fraction / 100));
	tail = (uint32_t)(fraction % 100);
	to[8] = (char)('0' + tail / 10);
	to[9] = (char)('0' + tail % 10);
	return to + k;
}

extern "C" char *num_float(char *to, float f)
{
	char *end = shortest(to, f);

	return end ? end : std::to_chars(to, to + NUM_MAX, f).ptr;
}

extern "C" char *num_double(char *to, double d)
{
	return std::to_chars(to, to + NUM_MAX, d).ptr;
}

extern "C" bool num_read(const char *p, const char *end, double *d)
{
	std::from_chars_result r = std::from_chars(p, end, *d);

	return r.ec == std::errc() && r.ptr == end;
}
