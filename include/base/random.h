/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo-random numbers from a seed (splitmix64), layer 0. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <base/compiler.h>

static inline u64 random_next(u64 *seed)
{
	u64 x = *seed += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

#endif
