// SPDX-License-Identifier: Apache-2.0
/* compat/profile_table.c: what another thread changes between two steps of an update. */
#include "util.h"
#include <compat/profile.h>

/* Called before the next compare-and-swap of the file. */
static void (*meanwhile)(void);

static void another_first(void)
{
	void (*call)(void) = meanwhile;

	meanwhile = NULL;
	if (call)
		call();
}

#undef cas_relaxed
#undef cas_release_relaxed
#define cas_relaxed(p, old, new)						\
	(another_first(), __atomic_compare_exchange_n((p), (old), (new), false,	\
						      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
#define cas_release_relaxed(p, old, new)					\
	(another_first(), __atomic_compare_exchange_n((p), (old), (new), false,	\
						      __ATOMIC_RELEASE, __ATOMIC_RELAXED))
#include <compat/profile_table.c>

u32 mx_profile_lock;

int mx_err(int code, const char *fmt, ...)
{
	return code;
}

static const char *const names[] = { "one\x1f" "a", "one\x1f" "b" };

static void add_5(void) { mx_stat_add(names[0], MX_STAT_DURATION, 5); }
static void add_20(void) { mx_stat_add(names[0], MX_STAT_DURATION, 20); }
static void add_100(void) { mx_stat_add(names[0], MX_STAT_DURATION, 100); }

static void is(const struct entry *x, u64 count, u64 total, u64 least, u64 most)
{
	ck_assert_ptr_null(meanwhile);
	ck_assert_uint_eq(x->count, count);
	ck_assert_uint_eq(x->total, total);
	ck_assert_uint_eq(x->min, least + 1);
	ck_assert_uint_eq(x->max, most);
	memset(entries, 0, sizeof(entries));
}

/* The least of two threads' values stays, and the greatest, whichever is stored first. */
START_TEST(test_the_least_and_the_greatest_of_values_at_once)
{
	static void (*const others[])(void) = { add_5, add_20, add_100 };
	static const u64 values[] = { 5, 20, 100 }, mine[] = { 0, 10, 50, 200 };
	const u64 first = 30;
	u64 least, most;
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(others); i++) {
		for (k = 0; k < ARRAY_SIZE(mine); k++) {
			mx_stat_add(names[0], MX_STAT_DURATION, first);
			meanwhile = others[i];
			mx_stat_add(names[0], MX_STAT_DURATION, mine[k]);
			least = min_u(min_u(first, mine[k]), values[i]);
			most = first > mine[k] ? first : mine[k];
			most = most > values[i] ? most : values[i];
			is(entry_of(names[0]), 3, first + mine[k] + values[i], least, most);
		}
	}
}
END_TEST

static void add_other(void) { mx_stat_add(names[1], MX_STAT_COUNTER, 7); }

/* A place that another thread takes is its name's; the same name has one place. */
START_TEST(test_names_that_are_added_at_once)
{
	struct entry *x, *y;
	u32 i, n;

	meanwhile = add_5;
	mx_stat_add(names[0], MX_STAT_DURATION, 9);
	is(entry_of(names[0]), 2, 14, 5, 9);
	/* as if they had the same hash: all other places but one are taken */
	for (i = 0; i < ENTRIES; i++)
		entries[i].key = "full";
	x = &entries[17];
	y = &entries[18];
	x->key = y->key = NULL;
	meanwhile = add_other;
	mx_stat_add(names[0], MX_STAT_DURATION, 9);
	ck_assert_ptr_null(meanwhile);
	ck_assert(x->key != y->key && (x->key == names[0] || y->key == names[0]) &&
		  (x->key == names[1] || y->key == names[1]));
	if (x->key != names[0])
		y = x, x = &entries[18];
	ck_assert(x->count == 1 && x->total == 9 && x->kind == MX_STAT_DURATION);
	ck_assert(y->count == 1 && y->total == 7 && y->kind == MX_STAT_COUNTER);
	/* no place is left, and none is changed */
	mx_stat_add("three", MX_STAT_DURATION, 1);
	for (i = 0, n = 0; i < ENTRIES; i++)
		n += (u32)entries[i].count;
	ck_assert_uint_eq(n, 2);
	memset(entries, 0, sizeof(entries));
}
END_TEST

/* Whatever the hash of a name is, it has the last place that is left. */
START_TEST(test_the_last_place)
{
	u32 i, k;

	for (i = 0; i < ENTRIES; i++) {
		for (k = 0; k < ENTRIES; k++)
			entries[k].key = "full";
		entries[i].key = NULL;
		ck_assert_ptr_eq(entry_of(names[0]), &entries[i]);
		ck_assert_ptr_eq(entry_of(names[0]), &entries[i]);
		ck_assert_ptr_null(entry_of(names[1]));
	}
	memset(entries, 0, sizeof(entries));
}
END_TEST

static void *adds(void *arg)
{
	u32 i;

	for (i = 0; i < 200000; i++)
		mx_stat_add(names[0], MX_STAT_DURATION, 3);
	return NULL;
}

START_TEST(test_sums_of_threads)
{
	pthread_t t[4];
	u32 i;

	for (i = 0; i < 4; i++)
		t[i] = spawn(adds, NULL);
	for (i = 0; i < 4; i++)
		join(t[i]);
	is(entry_of(names[0]), 800000, 2400000, 3, 3);
}
END_TEST

SUITE("mx_profile_table", test_the_least_and_the_greatest_of_values_at_once,
      test_names_that_are_added_at_once, test_the_last_place, test_sums_of_threads)
