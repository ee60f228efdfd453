/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of a trim loses no object to a thread that takes objects in the middle of it.
 *
 * pool/trim.c is compiled here a second time, with a call of before() in front of each atomic
 * access that hands objects or magazines to another thread, or takes them.
 */
#include <setjmp.h>

#include "pool_things.h"

static void before(void);
static void before_gather(void);
static bool plain_cas(u64 *p, u64 *old, u64 v) { return cas_acquire_relaxed(p, old, v); }
static bool plain_cas_relaxed(u64 *p, u64 *old, u64 v) { return cas_relaxed(p, old, v); }
static u64 plain_xchg(u64 *p, u64 v) { return xchg_acquire(p, v); }
static u64 plain_or(u64 *p, u64 v) { return fetch_or_acq_rel(p, v); }
static u64 plain_count(u64 *p, u64 v);

#pragma push_macro("cas_acquire_relaxed")
#pragma push_macro("cas_relaxed")
#pragma push_macro("xchg_acquire")
#pragma push_macro("fetch_or_release")
#pragma push_macro("fetch_or_relaxed")
#pragma push_macro("fetch_add_release")
#undef cas_acquire_relaxed
#undef cas_relaxed
#undef xchg_acquire
#undef fetch_or_release
#undef fetch_or_relaxed
#undef fetch_add_release
#define cas_acquire_relaxed(p, old, v)	(before(), plain_cas(p, old, v))
#define cas_relaxed(p, old, v)		(before(), plain_cas_relaxed(p, old, v))
#define xchg_acquire(p, v)		(before_gather(), before(), plain_xchg(p, v))
#define fetch_or_release(p, v)		(before(), plain_or(p, v))
#define fetch_or_relaxed(p, v)		(before(), plain_or(p, v))
#define fetch_add_release(p, v)		(before(), plain_count(p, v))
#include "../../pool/trim.c"
#pragma pop_macro("cas_acquire_relaxed")
#pragma pop_macro("cas_relaxed")
#pragma pop_macro("xchg_acquire")
#pragma pop_macro("fetch_or_release")
#pragma pop_macro("fetch_or_relaxed")
#pragma pop_macro("fetch_add_release")

#define MAX	1500u	/* objects */

static struct pool_cache other;
static u32 points;		/* accesses of the trim so far */
static u32 chosen;		/* before this access, the other thread takes objects */
static u32 some;		/* the most objects that the other thread takes then */
static u32 taken;		/* objects that the other thread has */
static enum { GOES_ON, AFTER_COUNT, BEFORE_GATHER } stops;	/* where the trim stops for good */
static bool counted;		/* loose objects, since the other thread came */
static jmp_buf stopped;

static void take(u32 most)
{
	u32 idx;

	while (most-- && pool_get(things, &other, &idx))
		taken++;
}

static void before(void)
{
	static bool inside;

	if (inside)
		return;
	if (stops == AFTER_COUNT && counted)
		longjmp(stopped, 1);
	if (++points != chosen)
		return;
	inside = true;
	take(some);
	inside = false;
	counted = false;
}

static void before_gather(void)
{
	if (stops == BEFORE_GATHER && points >= chosen)
		longjmp(stopped, 1);
}

static u64 plain_count(u64 *p, u64 v)
{
	counted = points >= chosen;
	return fetch_add_acq_rel(p, v);
}

/* Objects that are so small that the bits of a slab are in several words. */
static void make_small(void)
{
	struct pool_desc d = { .name = "small", .size = 16, .max = MAX };

	ck_assert_int_eq(arena_create("test", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &things), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	ck_assert_uint_gt(slab_words(&pool_full(things)->objs), 1);
	hang_says = things_dump;
}

static void put_back(void)
{
	u32 i;

	for (i = 1; i <= MAX; i++)
		pool_put(things, &other, i);
	pool_cache_flush(things, &other);
	taken = 0;
}

static void finish(struct pool_trim *t, bool more)
{
	chosen = 0;
	while (more)
		more = pool_trim_step(things, t);
	ck_assert_int_eq(t->rc, 0);
	ck_assert_uint_eq(pool_depot_count(things), MAX);
}

/*
 * Run one trim for each of its accesses.  The trim pauses after the step in which the other thread
 * took objects, so that only that thread can move the objects that are still loose.
 */
START_TEST(test_every_object_can_be_taken_after_a_step_of_a_trim_that_was_disturbed)
{
	static const u32 takes[] = { 1, 40, MAX };
	u32 at, longest = 0;

	some = takes[_i];
	make_small();
	take(MAX);
	put_back();
	for (at = 1; ; at++) {
		struct pool_trim t = { 0 };
		bool more = true;

		points = 0;
		chosen = at;
		while (points < at && more)
			more = pool_trim_step(things, &t);
		if (points < at)
			break;
		longest = points;
		take(MAX);
		ck_assert_msg(taken == MAX, "the other thread came before access %u: "
			      "%u of %u objects", at, taken, MAX);
		put_back();
		finish(&t, more);
	}
	ck_assert_uint_gt(longest, 40);
	done();
}
END_TEST

/* Run a trim.  Returns whether it stopped for good; else it ended. */
static bool trim_stops(void)
{
	struct pool_trim t = { 0 };

	if (setjmp(stopped))
		return true;
	while (pool_trim_step(things, &t))
		;
	return false;
}

/*
 * The trim stops for good after its next count of loose objects, or before it next gathers some.
 * In both positions it may hold the rest of a magazine.
 */
START_TEST(test_a_trim_that_stops_after_it_was_disturbed_holds_one_magazine_at_most)
{
	static const u32 takes[] = { 1, 40, MAX };
	u32 at, n;

	some = takes[_i % 3];
	for (at = 1, n = 0; ; at++) {
		make_small();
		take(MAX);
		put_back();
		points = 0;
		chosen = at;
		counted = false;
		stops = _i < 3 ? AFTER_COUNT : BEFORE_GATHER;
		n += trim_stops();
		stops = GOES_ON;
		chosen = 0;
		take(MAX);
		ck_assert_msg(taken >= MAX - things->mag, "the other thread came before access %u: "
			      "%u of %u objects", at, taken, MAX);
		done();
		memset(&other, 0, sizeof(other));
		taken = 0;
		if (points < at)
			break;
	}
	ck_assert_uint_gt(n, 40);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("trim_meanwhile");
	TCase *t = tcase_create("trim_meanwhile");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t,
		test_every_object_can_be_taken_after_a_step_of_a_trim_that_was_disturbed, 0, 3);
	tcase_add_loop_test(t,
		test_a_trim_that_stops_after_it_was_disturbed_holds_one_magazine_at_most, 0, 6);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
