// SPDX-License-Identifier: Apache-2.0
/* The histogram of times agrees with sorted samples, also at both ends of its range. */

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../demo/hist.h"
#include "suite.h"

#define NSAMPLES 5000u

static struct hist h;

static void setup(void)
{
	/* What was there before must not matter. */
	h.count = 7;
	h.bucket[3] = 7;
	hist_init(&h);
}

/* xorshift64* */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1du;
}

static void add_times(uint64_t value, unsigned int times)
{
	while (times--)
		hist_add(&h, value);
}

static uint64_t quantile(unsigned int permille)
{
	uint64_t value = 0;

	ck_assert_int_eq(hist_quantile(&h, permille, &value), 0);
	return value;
}

/* A value is known to one of 128 steps per power of two, and never too low. */
static void near(uint64_t got, uint64_t value)
{
	ck_assert_uint_ge(got, value);
	ck_assert_uint_le(got - value, value / 128);
}

START_TEST(test_empty)
{
	uint64_t value = 42;
	unsigned int permille;

	ck_assert_uint_eq(h.count, 0);
	ck_assert_uint_eq(h.min, 0);
	ck_assert_uint_eq(h.max, 0);
	for (permille = 1; permille < 1000; permille++)
		ck_assert_int_eq(hist_quantile(&h, permille, &value), -ENODATA);
	ck_assert_uint_eq(value, 42);
}
END_TEST

START_TEST(test_no_such_quantile)
{
	uint64_t value = 42;

	add_times(1, 10000);
	ck_assert_int_eq(hist_quantile(&h, 0, &value), -EINVAL);
	ck_assert_int_eq(hist_quantile(&h, 1000, &value), -EINVAL);
	ck_assert_int_eq(hist_quantile(&h, UINT32_MAX, &value), -EINVAL);
	ck_assert_uint_eq(value, 42);
}
END_TEST

START_TEST(test_too_few)
{
	static const struct { unsigned int permille, need; } c[] = {
		{ 1, 2 }, { 500, 2 }, { 750, 4 }, { 900, 10 }, { 990, 100 }, { 999, 1000 },
	};
	uint64_t value;
	unsigned int i;

	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		hist_init(&h);
		add_times(5, c[i].need - 1);
		value = 42;
		ck_assert_int_eq(hist_quantile(&h, c[i].permille, &value), -ENODATA);
		ck_assert_uint_eq(value, 42);
		hist_add(&h, 5);
		ck_assert_uint_eq(quantile(c[i].permille), 5);
	}
}
END_TEST

START_TEST(test_small_values_are_exact)
{
	uint64_t value;

	for (value = 0; value < 256; value++) {
		hist_init(&h);
		add_times(value, 2);
		hist_add(&h, 1000000);
		ck_assert_uint_eq(quantile(500), value);
		ck_assert_uint_eq(h.min, value);
		ck_assert_uint_eq(h.max, 1000000);
	}
}
END_TEST

START_TEST(test_ranks)
{
	uint64_t value;

	for (value = 1; value <= 100; value++)
		hist_add(&h, value);
	/* The smallest value that as many as asked for do not exceed. */
	ck_assert_uint_eq(quantile(1), 1);
	ck_assert_uint_eq(quantile(10), 1);
	ck_assert_uint_eq(quantile(11), 2);
	ck_assert_uint_eq(quantile(500), 50);
	ck_assert_uint_eq(quantile(501), 51);
	ck_assert_uint_eq(quantile(900), 90);
	ck_assert_uint_eq(quantile(990), 99);
}
END_TEST

START_TEST(test_powers_of_two)
{
	unsigned int bit;
	int off;

	for (bit = 1; bit < 64; bit++)
		for (off = -1; off <= 1; off++) {
			uint64_t value = ((uint64_t)1 << bit) + (uint64_t)off;

			hist_init(&h);
			add_times(value, 2);
			hist_add(&h, UINT64_MAX);
			near(quantile(500), value);
			ck_assert_uint_eq(h.min, value);
		}
}
END_TEST

START_TEST(test_largest)
{
	add_times(UINT64_MAX, 1000);
	ck_assert_uint_eq(quantile(500), UINT64_MAX);
	ck_assert_uint_eq(quantile(999), UINT64_MAX);
	ck_assert_uint_eq(h.min, UINT64_MAX);
	ck_assert_uint_eq(h.bucket[HIST_BUCKETS - 1], 1000);
}
END_TEST

/* The top of the step would be more than any sample. */
START_TEST(test_not_above_maximum)
{
	add_times(1000001, 10);
	ck_assert_uint_eq(quantile(500), 1000001);
	ck_assert_uint_eq(quantile(900), 1000001);
}
END_TEST

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

START_TEST(test_beside_sorted)
{
	static uint64_t sample[NSAMPLES];
	uint64_t state = 0x9e3779b97f4a7c15u, last = 0, value;
	unsigned int round, i, permille, rank;

	for (round = 0; round < 4; round++) {
		/* all of the range, narrow, then what times look like */
		hist_init(&h);
		for (i = 0; i < NSAMPLES; i++) {
			value = next_random(&state);
			if (round == 0)
				value >>= next_random(&state) % 64;
			else if (round == 1)
				value %= 1000;
			else if (round == 2)
				value = 20000 + value % 5000 * (i % 1000 ? 1 : 1000);
			sample[i] = value;
			hist_add(&h, value);
		}
		qsort(sample, NSAMPLES, sizeof(sample[0]), compare);
		ck_assert_uint_eq(h.count, NSAMPLES);
		ck_assert_uint_eq(h.min, sample[0]);
		ck_assert_uint_eq(h.max, sample[NSAMPLES - 1]);
		for (permille = 1, last = 0; permille < 1000; permille++) {
			rank = (NSAMPLES * permille + 999) / 1000;
			value = quantile(permille);
			near(value, sample[rank - 1]);
			ck_assert_uint_ge(value, last);
			ck_assert_uint_le(value, h.max);
			last = value;
		}
	}
}
END_TEST

/* Years of samples: as many as the counters can hold. */
START_TEST(test_counts_without_overflow)
{
	h.count = UINT64_MAX;
	h.bucket[10] = UINT64_MAX / 2;
	h.bucket[20] = UINT64_MAX - UINT64_MAX / 2;
	h.min = 10;
	h.max = 20;
	ck_assert_uint_eq(quantile(1), 10);
	ck_assert_uint_eq(quantile(499), 10);
	ck_assert_uint_eq(quantile(501), 20);
	ck_assert_uint_eq(quantile(999), 20);
}
END_TEST

/* Each rank's value, and how many samples do not exceed it. */
START_TEST(test_value_of_a_rank)
{
	uint64_t seen;

	add_times(5, 3);
	add_times(7, 2);
	hist_add(&h, UINT64_MAX);
	ck_assert_uint_eq(h.sum, 5 * 3 + 7 * 2 + UINT64_MAX);
	ck_assert_uint_eq(hist_rank(&h, 1, &seen), 5);
	ck_assert_uint_eq(seen, 3);
	ck_assert_uint_eq(hist_rank(&h, 3, &seen), 5);
	ck_assert_uint_eq(hist_rank(&h, 4, &seen), 7);
	ck_assert_uint_eq(seen, 5);
	ck_assert_uint_eq(hist_rank(&h, 6, &seen), UINT64_MAX);
	ck_assert_uint_eq(seen, 6);
}
END_TEST

START_TEST(test_merge)
{
	static struct hist other, all;
	uint64_t state = 1, value;
	unsigned int i;

	hist_init(&other);
	hist_init(&all);
	hist_merge(&h, &other);
	ck_assert_int_eq(memcmp(&h, &all, sizeof(all)), 0);
	for (i = 0; i < 1000; i++) {
		value = next_random(&state) >> next_random(&state) % 64;
		hist_add(i % 3 ? &h : &other, value);
		hist_add(&all, value);
	}
	hist_merge(&h, &other);
	ck_assert_int_eq(memcmp(&h, &all, sizeof(all)), 0);
	hist_init(&other);
	hist_merge(&h, &other);
	hist_merge(&other, &h);
	ck_assert_int_eq(memcmp(&other, &all, sizeof(all)), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hist");
	TCase *tc = tcase_create("hist");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_empty);
	tcase_add_test(tc, test_no_such_quantile);
	tcase_add_test(tc, test_too_few);
	tcase_add_test(tc, test_small_values_are_exact);
	tcase_add_test(tc, test_ranks);
	tcase_add_test(tc, test_powers_of_two);
	tcase_add_test(tc, test_largest);
	tcase_add_test(tc, test_not_above_maximum);
	tcase_add_test(tc, test_beside_sorted);
	tcase_add_test(tc, test_counts_without_overflow);
	tcase_add_test(tc, test_value_of_a_rank);
	tcase_add_test(tc, test_merge);
	suite_add_tcase(s, tc);	return suite_run(s);
}
