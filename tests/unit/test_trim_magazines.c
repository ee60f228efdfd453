/* SPDX-License-Identifier: Apache-2.0 */
/* pool/trim.c: the memory of empty magazines returns to the system, too. */
#include "pool_trims.h"

/* A pool of which each object has a magazine of its own; all are free and in the depot. */
static struct pool *one_each(u32 max)
{
	struct pool_desc d = { .name = "one each", .size = 16, .max = max, .mag = 1 };
	struct pool_cache c = { 0 };
	struct pool *p;
	u32 i, idx;

	ck_assert_int_eq(arena_create("magazines", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	things = p;
	for (i = 0; i < max; i++)
		MUST(pool_get(p, &c, &idx));
	put_all(p, &c, max);
	ck_assert_uint_eq(pool_full(p)->mag_carved, max + 1);
	return p;
}

enum { MAGAZINES = 8192 };	/* a trim does not free the memory of fewer magazines */

START_TEST(test_memory_of_few_magazines_stays)
{
	struct pool_full *f = pool_full(one_each(MAGAZINES - 1));

	ck_assert_uint_eq(f->mag_slabs.count, 0);
	ck_assert_int_gt(trim(&f->p), 0);
	ck_assert_uint_eq(vacant(&f->p), MAGAZINES - 1);
	check_magazines(f);
	ck_assert_uint_eq(stacked(f, &f->empty), MAGAZINES - 1);
	done();
	f = pool_full(one_each(MAGAZINES));
	ck_assert_int_gt(trim(&f->p), 0);
	check_magazines(f);
	ck_assert_uint_eq(f->mag_slabs.nvacant, MAGAZINES);
	ck_assert_uint_eq(stacked(f, &f->empty), 0);
	done();
}
END_TEST

/* A trim that may keep some bytes keeps so many bytes of magazines as well. */
START_TEST(test_trim_spares_magazines)
{
	u32 k;

	for (k = 0; k < 3; k++) {
		struct pool_full *f = pool_full(one_each(MAGAZINES));
		struct slabs *sl = &f->mag_slabs;
		struct pool_trim t = { 0 };

		/* All objects are freed, so that no magazine is in use. */
		while (t.phase < 3)
			MUST(pool_trim_step(&f->p, &t));
		ck_assert_uint_eq(vacant(&f->p), MAGAZINES);
		t.spare = k * (sl->size << sl->shift);
		while (pool_trim_step(&f->p, &t))
			;
		ck_assert_uint_eq(sl->nvacant, MAGAZINES + 1 - slab_from(sl, k + 1));
		ck_assert_uint_eq(stacked(f, &f->empty), slab_from(sl, k + 1) - 1);
		check_magazines(f);
		done();
	}
}
END_TEST

/* The system frees the memory of the objects, but not that of the last magazines or of all. */
START_TEST(test_magazines_that_are_not_taken_back_are_used_again)
{
	struct pool_full *f = pool_full(one_each(MAGAZINES));
	struct pool_cache c = { 0 };
	u32 i, idx, objects;
	s64 all;

	faults(HOOK_TRIM, 0, false);
	ck_assert_int_gt(trim(&f->p), 0);
	all = asked;
	objects = (u32)((f->objs.count * ((u64)f->objs.size << f->objs.shift) + SLAB_MAX - 1) /
			SLAB_MAX);
	ck_assert_int_gt(all, objects);
	for (i = 0; i < 2; i++) {
		struct pool_trim t = { 0 };

		while (pool_get(&f->p, &c, &idx))
			;
		put_all(&f->p, &c, MAGAZINES);
		check_magazines(f);
		faults(HOOK_TRIM, i ? all : objects + 1, true);
		while (pool_trim_step(&f->p, &t))
			;
		faults(NULL, 0, false);
		ck_assert_int_eq(t.rc, -ENOMEM);
		ck_assert_uint_eq(vacant(&f->p), MAGAZINES);
		ck_assert_uint_eq(t.bytes % arena_page(), 0);
		ck_assert(i ? f->mag_slabs.nvacant : !f->mag_slabs.nvacant);
		check_magazines(f);
	}
	ck_assert_int_gt(trim(&f->p), 0);
	ck_assert_uint_eq(f->mag_slabs.nvacant, MAGAZINES);
	done();
}
END_TEST

/* A trim ends although other threads return each empty magazine that it takes. */
START_TEST(test_trim_ends_while_others_leave_magazines)
{
	struct pool_full *f = pool_full(one_each(MAGAZINES));
	struct pool_trim t = { 0 };
	u32 m, steps = 0;

	while (pool_trim_step(&f->p, &t)) {
		MUST(++steps < 3 * MAGAZINES);
		while (t.phase == 3 && loose_take(&f->mag_slabs, &m, 1))
			mag_push(f, &f->empty, m);
	}
	check_magazines(f);
	done();
}
END_TEST

/* A trim that finds nothing in the depot does not search it again. */
START_TEST(test_a_trim_of_an_empty_depot_is_short)
{
	struct pool_full *f = pool_full(one_each(MAGAZINES));
	struct pool_cache c = { 0 };
	struct pool_trim t = { 0 };
	u32 idx, steps;

	while (pool_get(&f->p, &c, &idx))
		;
	for (steps = 1; t.phase < 2; steps++)
		MUST(pool_trim_step(&f->p, &t));
	ck_assert_uint_le(steps, 3);
	while (pool_trim_step(&f->p, &t))
		MUST(++steps < MAGAZINES / 8);
	ck_assert_uint_eq(vacant(&f->p), 0);
	check_magazines(f);
	done();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("trim_magazines");
	TCase *t = tcase_create("trim_magazines");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_memory_of_few_magazines_stays);
	tcase_add_test(t, test_trim_spares_magazines);
	tcase_add_test(t, test_magazines_that_are_not_taken_back_are_used_again);
	tcase_add_test(t, test_trim_ends_while_others_leave_magazines);
	tcase_add_test(t, test_a_trim_of_an_empty_depot_is_short);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
