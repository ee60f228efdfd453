/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool/rcu.c: other threads defer and reclaim in the middle of a call.
 *
 * pool/rcu.c is compiled here a second time: it calls pushed() after each push of a deferred
 * function, and waits() before each grace period.
 */
#include <urcu/urcu-memb.h>
#include <pool/pool.h>

#include "must.h"
#include "suite.h"

static void pushed(void);
static void waits(void);

static void plain_push(ck_stack_t *stack, ck_stack_entry_t *entry)
{
	ck_stack_push_upmc(stack, entry);
}

#define ck_stack_push_upmc(stack, entry)	(plain_push(stack, entry), pushed())
#define urcu_memb_synchronize_rcu()		(waits(), (urcu_memb_synchronize_rcu)())
#include "../../pool/rcu.c"
#undef ck_stack_push_upmc
#undef urcu_memb_synchronize_rcu

static u32 ran[2];
static bool reclaims;		/* the other thread reclaims after the next push */
static struct rcu_defer *late;	/* the other thread defers it before the next grace period */

static void first(struct rcu_defer *d)
{
	ran[0]++;
}

static void second(struct rcu_defer *d)
{
	ran[1]++;
}

static void pushed(void)
{
	if (!reclaims)
		return;
	reclaims = false;
	MUST(pool_rcu_reclaim());
}

static void waits(void)
{
	struct rcu_defer *d = late;

	late = NULL;
	if (d)
		pool_rcu_defer(d, second);
}

/* An object on the list has its function, also if it was deferred with another one before. */
START_TEST(test_a_function_can_run_as_soon_as_it_is_deferred)
{
	struct rcu_defer d = { .fn = NULL };

	memset(ran, 0, sizeof(ran));
	reclaims = true;
	pool_rcu_defer(&d, first);
	ck_assert_uint_eq(ran[0], 1);
	reclaims = true;
	pool_rcu_defer(&d, second);
	ck_assert_uint_eq(ran[0], 1);
	ck_assert_uint_eq(ran[1], 1);
	MUST(pool_rcu_reclaim());
	ck_assert_uint_eq(ran[0] + ran[1], 2);
}
END_TEST

/* Readers that began during a grace period may use what was deferred during it. */
START_TEST(test_what_is_deferred_during_a_grace_period_waits_for_the_next_one)
{
	struct rcu_defer d[2];

	memset(ran, 0, sizeof(ran));
	pool_rcu_defer(&d[0], first);
	late = &d[1];
	MUST(pool_rcu_reclaim() && !late);
	ck_assert_uint_eq(ran[0], 1);
	ck_assert_uint_eq(ran[1], 0);
	MUST(pool_rcu_reclaim());
	ck_assert_uint_eq(ran[0], 1);
	ck_assert_uint_eq(ran[1], 1);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rcu_meanwhile");
	TCase *t = tcase_create("rcu_meanwhile");

	tcase_add_test(t, test_a_function_can_run_as_soon_as_it_is_deferred);
	tcase_add_test(t, test_what_is_deferred_during_a_grace_period_waits_for_the_next_one);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
