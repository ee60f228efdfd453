// SPDX-License-Identifier: Apache-2.0
/*
 * Numbers as text and back: the C++ standard library has the shortest digits that are read
 * back as the same number, and the nearest number to any digits, without a locale and without
 * trials.
 *
 * Most numbers of an answer are floats of ordinary size, and for these a double has enough bits
 * to find the same digits in a third of the time: shortest().
 */
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <endian.h>
#include <system_error>

#include "num.h"

/* Write eight digits at once: halves, then pairs, then digits of v side by side in a word. */
static void eight(char *to, uint32_t v)
{
	uint64_t w = v / 10000 | (uint64_t)(v % 10000) << 32, high;

	high = (w * 10486 >> 20) & 0x0000007f0000007f;		/* / 100 */
	w = high | (w - high * 100) << 16;
	high = (w * 103 >> 10) & 0x000f000f000f000f;		/* / 10 */
	w = high | (w - high * 10) << 8;
	w = htole64(w + 0x3030303030303030);
	std::memcpy(to, &w, sizeof(w));
}

/*
 * f from 1/512 to 2^23.  What is read as f lies between the middles to its
 * neighbours: times 10^k, between low and high, which have nine or ten digits and an error
 * below EPS.  As many zeros as possible at the end of an integer between them are digits that
 * are not needed.  Returns NULL if an error could decide, if f is an integer, or if it is a
 * power of two, where the middles have different distances.
 */
static char *shortest(char *to, float f)
{
	static const double ten[] = { 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10,
				      1e11 };
	static const double tenth[] = { 1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8,
					1e-9, 1e-10, 1e-11 };
	/* of 2^-9, 2^-8 ...: 8, less the exponent of ten */
	static const unsigned char scale[] = { 11, 11, 11, 10, 10, 10, 9, 9, 9, 8, 8, 8, 8, 7, 7,
					       7, 6, 6, 6, 5, 5, 5, 5, 4, 4, 4, 3, 3, 3, 2, 2, 2 };
	static const uint64_t whole[] = { 1, 10, 100, 1000, 10000, 100000, 1000000, 10000000,
					  100000000, 1000000000, 10000000000, 100000000000,
					  1000000000000, 10000000000000, 100000000000000,
					  1000000000000000 };
	const double EPS = 1e-5;
	uint32_t bits, first, last, n, integer;
	uint64_t half_bits, fraction;
	unsigned int e, k, p = 0;
	double v, half, low, high, rest;

	std::memcpy(&bits, &f, sizeof(bits));
	e = bits >> 23 & 0xff;
	if (e < 127 - 9 || e >= 127 + 23 || !(bits & 0x7fffff))
		return NULL;
	k = scale[e - (127 - 9)];
	half_bits = (uint64_t)(e - 127 + 1023 - 24) << 52;
	std::memcpy(&half, &half_bits, sizeof(half));
	v = std::fabs((double)f) * ten[k];
	half *= ten[k];
	low = v - half;
	high = v + half;
	first = (uint32_t)low + 1;
	last = (uint32_t)high;
	rest = low - (double)(first - 1);
	if (rest < EPS || rest > 1 - EPS)
		return NULL;
	rest = high - (double)last;
	if (rest < EPS || rest > 1 - EPS)
		return NULL;
	while ((first + 9) / 10 <= last / 10) {
		first = (first + 9) / 10;
		last /= 10;
		p++;
	}
	/* of these the one next to v */
	n = (uint32_t)(v * tenth[p] + 0.5);
	rest = std::fabs(v - (double)n * ten[p]) - ten[p] / 2;
	if (rest > -EPS && rest < EPS)
		return NULL;
	if (p >= k)
		return NULL;		/* it is an integer */
	k -= p;
	if (bits >> 31)
		*to++ = '-';
	integer = k < 10 ? n / (uint32_t)whole[k] : 0;
	n -= k < 10 ? integer * (uint32_t)whole[k] : 0;
	if (integer < 10)
		*to++ = (char)('0' + integer);
	else
		to = std::to_chars(to, to + 10, integer).ptr;
	*to++ = '.';
	/* the k digits behind the point, and zeros that are not needed */
	fraction = n * whole[16 - k];
	eight(to, (uint32_t)(fraction / 100000000));
	eight(to + 8, (uint32_t)(fraction % 100000000));
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
