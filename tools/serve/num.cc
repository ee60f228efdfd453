// SPDX-License-Identifier: Apache-2.0
/*
 * Numbers as text and back: the C++ standard library has the shortest digits that are read back
 * as the same number, and the nearest number to any digits, without a locale and without trials.
 */
#include <charconv>
#include <system_error>

#include "num.h"

extern "C" char *num_float(char *to, float f)
{
	return std::to_chars(to, to + NUM_MAX, f).ptr;
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
