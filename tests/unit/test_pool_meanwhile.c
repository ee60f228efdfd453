/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool/: other threads change a pool in the middle of a call: while it requests memory, while it
 * searches for loose objects, and right after a slab without memory became visible to them.
 *
 * pool/trim.c is compiled here a second time: each load calls looks(), each compare-and-swap calls
 * searched() before it, and each push of a slab calls pushed() after it.
 */
#include "pool_things.h"

static void looks(const void *at);
static void searched(void);
static void pushed(void);

static u32 plain_load_32(u32 *p)
{
	return load_relaxed(p);
}

static u64 plain_load_64(u64 *p)
{
	return load_relaxed(p);
}

static bool plain_cas(u64 *p, u64 *old, u64 v)
{
	return cas_relaxed(p, old, v);
}

static void plain_push(u64 *head, void *base, size_t size, u32 i)
{
	stack_push(head, base, size, i);
}

#pragma push_macro("load_relaxed")
#pragma push_macro("cas_relaxed")
#undef load_relaxed
#undef cas_relaxed
#define load_relaxed(p)								\
	(looks(p), _Generic(*(p), u32: plain_load_32, u64: plain_load_64)((void *)(p)))
#define cas_relaxed(p, old, v)			(searched(), plain_cas(p, old, v))
#define stack_push(head, base, size, i)		(plain_push(head, base, size, i), pushed())
#include "../../pool/trim.c"
#undef stack_push
#pragma pop_macro("load_relaxed")
#pragma pop_macro("cas_relaxed")

static struct pool_full *f;
static struct pool_cache other;	/* of the other thread */
static u32 held[1100];		/* objects of this thread */
static u32 nheld;
static u32 got;			/* what the other thread got */

/* Take objects until the next ones need memory. */
static struct pool_cache take_what_has_memory(u32 max)
{
	struct pool_cache c = { 0 };

	f = pool_full(make(max));
	memset(&other, 0, sizeof(other));
	nheld = 0;
	while (!nheld || c.n ||
	       ((u64)pool_carved(&f->p) + f->p.mag + 1) * f->p.size <= f->obj.committed)
		MUST(nheld < ARRAY_SIZE(held) && pool_get(&f->p, &c, &held[nheld++]));
	MUST(!c.nspare);
	return c;
}

static void other_puts_a_magazine(void)
{
	nheld -= f->p.mag;
	mag_put(f, &f->full, held + nheld, f->p.mag);
}

static void other_puts_an_object(void)
{
	nheld--;
	mag_put(f, &f->partial, held + nheld, 1);
}

/* Without memory for new objects, a thread finds those that were put during its request for it. */
START_TEST(test_objects_put_during_a_refused_request_are_found)
{
	struct pool_cache c = take_what_has_memory(5000);
	u32 idx = 1;

	faults(HOOK_COMMIT, 1, true);
	on_request = _i ? other_puts_an_object : other_puts_a_magazine;
	MUST(pool_get(&f->p, &c, &idx) && !on_request);
	ck_assert_uint_eq(idx, held[_i ? nheld : nheld + f->p.mag - 1]);
	ck_assert_uint_eq(c.n, _i ? 0 : f->p.mag - 1);
	ck_assert_uint_eq(c.gets, (_i ? 1 : f->p.mag) + pool_carved(&f->p));
	while (c.n)
		MUST(pool_get(&f->p, &c, &idx));
	ck_assert_ptr_null(pool_get(&f->p, &c, &idx));
	ck_assert_uint_eq(idx, 0);
	faults(NULL, 0, false);
	done();
}
END_TEST

static void other_gets(void)
{
	MUST(pool_get(&f->p, &other, &got));
}

/* Two threads that request memory for the same new objects get different ones. */
START_TEST(test_objects_taken_during_a_request_are_not_handed_out_again)
{
	struct pool_cache c = take_what_has_memory(5000);
	u32 carved = pool_carved(&f->p), idx;

	on_request = other_gets;
	MUST(pool_get(&f->p, &c, &idx) && !on_request);
	ck_assert_uint_eq(got, carved + 1);
	ck_assert_uint_eq(idx, carved + 1 + f->p.mag);
	ck_assert_uint_eq(pool_carved(&f->p), carved + 2 * f->p.mag);
	ck_assert_uint_eq(ctors, carved + 2 * f->p.mag);
	done();
}
END_TEST

/* Pretend that less is committed, and put single objects until the next magazine needs memory. */
static void use_magazines_that_have_memory(void)
{
	f->mag.committed = 2 * arena_page();
	while ((f->mag_carved + 1) * sizeof(struct pool_mag) <= f->mag.committed)
		other_puts_an_object();
}

static void other_empties_a_magazine(void)
{
	u32 idx[POOL_MAG];

	MUST(mag_take(f, &f->partial, idx) == 1);
	got = idx[0];
}

static void other_fills_a_magazine(void)
{
	other_puts_an_object();
	got++;
}

/* A thread that has no memory for a magazine uses one that was emptied during its request. */
START_TEST(test_a_magazine_emptied_during_a_refused_request_is_used)
{
	struct pool_stat s;

	take_what_has_memory(20000);
	use_magazines_that_have_memory();
	faults(HOOK_COMMIT, 1, true);
	on_request = other_empties_a_magazine;
	other_puts_an_object();
	MUST(!on_request);
	faults(NULL, 0, false);
	held[nheld++] = got;
	pool_stat(&f->p, &s);
	ck_assert_uint_eq(s.lost, 0);
	ck_assert_uint_eq(pool_depot_count(&f->p) + nheld, pool_carved(&f->p));
	done();
}
END_TEST

/* Two threads that request memory for the same new magazine get different ones. */
START_TEST(test_a_magazine_used_during_a_request_is_not_used_again)
{
	u32 mags;

	take_what_has_memory(20000);
	use_magazines_that_have_memory();
	mags = f->mag_carved;
	got = 0;
	on_request = other_fills_a_magazine;
	other_puts_an_object();
	ck_assert_uint_eq(got, 1);
	ck_assert_uint_eq(f->mag_carved, mags + 2);
	ck_assert_uint_eq(pool_depot_count(&f->p) + nheld, pool_carved(&f->p));
	done();
}
END_TEST

static u32 late;		/* the object to make loose during the next search; 0: none */
static bool at_the_end;		/* it becomes loose at the end of the search, else within it */

static void loosen_late(void)
{
	u32 idx = late;

	late = 0;
	loosen(&f->objs, &idx, 1);
}

/* A load of the second slab's bits: the search has passed the first slab. */
static void looks(const void *at)
{
	if (late && !at_the_end && at == slab_at(&f->objs, 2)->bits)
		loosen_late();
}

static void searched(void)
{
	if (late)
		loosen_late();
}

/* The next search finds an object that became loose in a slab that the last one had passed. */
START_TEST(test_objects_made_loose_during_a_search_are_found_by_the_next_one)
{
	u32 early, i, idx[POOL_MAG];

	take_what_has_memory(5000);
	at_the_end = _i;
	for (i = 0; i < 3; i++) {
		early = held[0];
		late = 0;
		loosen(&f->objs, &early, 1);
		ck_assert_uint_eq(loose_take(&f->objs, idx, POOL_MAG), 1);
		ck_assert_uint_eq(idx[0], early);
		late = held[1];
		ck_assert_uint_eq(loose_take(&f->objs, idx, POOL_MAG), 0);
		ck_assert_uint_eq(late, 0);
		ck_assert_uint_eq(loose_take(&f->objs, idx, POOL_MAG), 1);
		ck_assert_uint_eq(idx[0], held[1]);
		ck_assert_uint_eq(loose_take(&f->objs, idx, POOL_MAG), 0);
	}
	done();
}
END_TEST

static u32 pushes;

/* The other thread takes the slab at once, and returns it. */
static void pushed(void)
{
	struct slabs *sl = &f->objs;
	struct pool_stat st;
	u32 s = slab_pop(sl);

	pushes++;
	MUST(s);
	pool_stat(&f->p, &st);
	ck_assert_uint_le(st.vacant, st.carved - (slab_end(sl, s) - slab_from(sl, s)));
	ck_assert_uint_le(arena_bytes(arena),
			  f->obj.committed + f->mag.committed + sides(f));
	fetch_add_relaxed(&sl->nvacant, slab_end(sl, s) - slab_from(sl, s));
	plain_push(&sl->vacant, sl->side.start, slab_stride(sl), s);
}

/* No statistic is ever below zero, however early the objects without memory are taken again. */
START_TEST(test_objects_without_memory_are_counted_before_they_can_be_taken)
{
	struct pool_cache c = take_what_has_memory(5000);
	struct pool_trim t = { 0 };
	u32 n = nheld;

	while (nheld)
		pool_put(&f->p, &c, held[--nheld]);
	pool_cache_flush(&f->p, &c);
	pushes = 0;
	while (pool_trim_step(&f->p, &t))
		;
	ck_assert_int_eq(t.rc, 0);
	ck_assert_uint_ge(pushes, n / 64);
	ck_assert_uint_eq(pool_depot_count(&f->p), pool_carved(&f->p));
	done();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pool_meanwhile");
	TCase *t = tcase_create("pool_meanwhile");

	tcase_add_loop_test(t, test_objects_put_during_a_refused_request_are_found, 0, 2);
	tcase_add_test(t, test_objects_taken_during_a_request_are_not_handed_out_again);
	tcase_add_test(t, test_a_magazine_emptied_during_a_refused_request_is_used);
	tcase_add_test(t, test_a_magazine_used_during_a_request_is_not_used_again);
	tcase_add_loop_test(t, test_objects_made_loose_during_a_search_are_found_by_the_next_one,
			    0, 2);
	tcase_add_test(t, test_objects_without_memory_are_counted_before_they_can_be_taken);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
