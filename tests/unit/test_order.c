// SPDX-License-Identifier: Apache-2.0
/* tools/pawl/order.c: the serial order of recordings that are made here. */
#include "util.h"
#include <tools/pawl/record.h>

enum { OPS = 40 };

static struct rec_op ops[OPS];
static char text[256];

/* Each op by a thread of its own, without accesses; they were pushed in a random order. */
static void scatter(u64 *seed, u32 by_time[OPS])
{
	u32 i, k, was;

	for (i = 0; i < OPS; i++)
		by_time[i] = i;
	for (i = OPS - 1; i; i--) {
		k = (u32)(rnd(seed) % (i + 1));
		was = by_time[i];
		by_time[i] = by_time[k];
		by_time[k] = was;
	}
	for (i = 0; i < OPS; i++)
		ops[by_time[i]] = (struct rec_op){ .thread = by_time[i], .name = "", .begun = true,
						   .parent = REC_NONE, .push = 100 + i };
}

START_TEST(test_ops_that_wait_for_nothing_come_as_they_were_pushed)
{
	const struct recording r = { .ops = ops, .nops = OPS };
	u32 by_time[OPS], order[OPS], i, round;
	u64 seed = 5;
	size_t n;

	for (round = 0; round < 50; round++) {
		scatter(&seed, by_time);
		OK(rec_order(&r, order, &n, text, sizeof(text)));
		ck_assert_uint_eq(n, OPS);
		for (i = 0; i < OPS; i++)
			ck_assert_uint_eq(order[i], by_time[i]);
	}
}
END_TEST

/* The times are of a clock that went back; the order of the pushes is known all the same. */
START_TEST(test_a_refused_op_does_not_end_the_order_of_its_thread)
{
	const struct recording r = { .ops = ops, .nops = 4 };
	u32 order[4], i;
	size_t n;

	for (i = 0; i < 4; i++)
		ops[i] = (struct rec_op){ .name = "", .begun = true, .parent = REC_NONE,
					  .push = 10 - i };
	ops[1].begun = false;
	ops[1].undone = true;
	OK(rec_order(&r, order, &n, text, sizeof(text)));
	ck_assert_uint_eq(n, 3);
	ck_assert(order[0] == 0 && order[1] == 2 && order[2] == 3);
}
END_TEST

SUITE("order", test_ops_that_wait_for_nothing_come_as_they_were_pushed,
      test_a_refused_op_does_not_end_the_order_of_its_thread)
