/* SPDX-License-Identifier: Apache-2.0 */
/* exec/polls.h: when an idle thread polls, from the lengths of its idle times. */
#include "exec_fixture.h"
#include "suite.h"
#include <exec/polls.h>

#define SPIN	60u	/* the thread polls so long, and each step below is an idle time */

/* The idle times until it changes between polling and sleeping; 0: it does not in `most`. */
static u32 until_change(struct polls *p, u32 idle, u32 most)
{
	bool was = polls_now(p);
	u32 i;

	for (i = 1; i <= most; i++) {
		polls_ended(p, idle < SPIN);
		if (polls_now(p) != was)
			return i;
	}
	return 0;
}

START_TEST(test_polls_at_first)
{
	struct polls p = {};

	ck_assert(polls_now(&p));
	ck_assert_uint_eq(until_change(&p, SPIN - 1, 10000), 0);
	/* Not if it is in vain now and then. */
	for (u32 i = 0; i < 1000; i++) {
		ck_assert_uint_eq(until_change(&p, SPIN, POLL_MISSES - 1), 0);
		ck_assert_uint_eq(until_change(&p, 5, 1), 0);
	}
	ck_assert_uint_eq(until_change(&p, SPIN, 100), POLL_MISSES);
}
END_TEST

/* With long idle times the pauses between single trials double, up to a limit. */
START_TEST(test_pauses)
{
	u32 pause = POLL_PAUSE, polled = 0, i;
	struct polls p = {};

	ck_assert_uint_eq(until_change(&p, 1000, 100), POLL_MISSES);
	for (i = 0; i < 20; i++) {
		ck_assert_uint_eq(until_change(&p, 1000, 10000), pause);
		ck_assert_uint_eq(until_change(&p, 1000, 10000), 1);
		pause = pause < POLL_PAUSE_MOST ? 2 * pause : pause;
	}
	ck_assert_uint_eq(pause, POLL_PAUSE_MOST);
	for (i = 0; i < 100000; i++) {
		polled += polls_now(&p);
		polls_ended(&p, false);
	}
	ck_assert_uint_le(polled, 100000 / POLL_PAUSE_MOST);
}
END_TEST

/* A thread whose sleeps turn out to be short soon polls again, after the longest pause too. */
START_TEST(test_short_sleeps)
{
	u32 longest = _i, pause = longest ? POLL_PAUSE_MOST : POLL_PAUSE;
	struct polls p = {};

	ck_assert_uint_eq(until_change(&p, 1000, 100), POLL_MISSES);
	while (longest && p.pause < POLL_PAUSE_MOST)
		ck_assert_uint_ne(until_change(&p, 1000, 10000), 0);
	ck_assert(!polls_now(&p));
	ck_assert_uint_eq(until_change(&p, 20, 1000), pause / POLL_SHORT);
	/* If polling in fact fails, as it takes the CPU from the others, it pauses again at once. */
	ck_assert_uint_eq(until_change(&p, SPIN, 1000), 1);
	/* A trial that succeeds begins anew. */
	ck_assert_uint_ne(until_change(&p, 20, 1000), 0);
	polls_ended(&p, true);
	ck_assert_uint_eq(until_change(&p, SPIN, 1000), POLL_MISSES);
	ck_assert_uint_eq(until_change(&p, SPIN, 1000), POLL_PAUSE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("polls");
	TCase *tc = tcase_create("polls");

	suite_add_tcase(s, tc);
	tcase_add_test(tc, test_polls_at_first);
	tcase_add_test(tc, test_pauses);
	tcase_add_loop_test(tc, test_short_sleeps, 0, 2);
	return suite_run(s);
}
