// SPDX-License-Identifier: Apache-2.0
/* tools/pawl/record.c: the slots of ops and vars in the hash tables of the reader. */
#include <tools/pawl/slurp.c>
#include <tools/pawl/chunks.c>
#include <tools/pawl/record.c>
#include "util.h"

/* Names fill nearly as many slots as random numbers do, whichever bits of which part differ. */
START_TEST(test_similar_names_are_spread)
{
	enum { NAMES = 4096, PLACES = 2 * NAMES };
	static bool taken[PLACES];
	u32 part, shift, i, n;

	for (part = 0; part < 9; part++) {
		memset(taken, 0, sizeof(taken));
		shift = part / 3 * 10;
		for (n = i = 0; i < NAMES; i++) {
			u32 v = i << shift;
			size_t at = mix(part % 3 == 0 ? v : 3, part % 3 == 1 ? v : 3,
					part % 3 == 2 ? v : 3);
			bool *place = &taken[at % PLACES];

			n += !*place;
			*place = true;
		}
		/* random numbers fill 3223 on average */
		ck_assert_msg(n > 2900, "%u: %u", part, n);
	}
}
END_TEST

SUITE("record_hash", test_similar_names_are_spread)
