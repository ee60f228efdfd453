// SPDX-License-Identifier: Apache-2.0
/* compat/pool.c: the stacks of lists of small objects. */
#include "util.h"
#include <compat/pool.c>

/*
 * A thread may be stopped between its read of a stack and its compare-and-swap for any number
 * of changes: the value that it has read must not return.  A tag of 16 bits did after 2^16.
 */
START_TEST(test_a_stack_does_not_return_to_an_old_value)
{
	void *obj = mx_pool_get(MX_CALLS);
	__typeof__(stacks[0]) was;
	struct mx_node *l = obj;
	u32 i;

	ck_assert_ptr_nonnull(obj);
	list_push(MX_CALLS, l);
	was = stacks[MX_CALLS];
	for (i = 0; i < 1u << 15; i++) {
		ck_assert_ptr_eq(list_pop(MX_CALLS), l);
		list_push(MX_CALLS, l);
	}
	ck_assert_int_ne(memcmp(&was, &stacks[MX_CALLS], sizeof(was)), 0);
	ck_assert_ptr_eq(list_pop(MX_CALLS), l);
	mx_pool_put(MX_CALLS, l);
}
END_TEST

/* Lists move between threads: no object is allocated twice, and none is lost. */
#define HAD	(4 * MX_BATCH)

static void *pool_main(void *arg)
{
	u32 *owner[HAD], i, k, n = 0;
	u64 seed = (uintptr_t)arg;

	for (i = 0; i < 3000; i++) {
		k = (u32)(rnd(&seed) % HAD);
		while (n < k) {
			struct mx_call *c = mx_pool_get(MX_CALLS);

			MUST(c);
			owner[n++] = &c->refs;
			MUST(!xchg_acquire(&c->refs, 1));
		}
		while (n > k) {
			struct mx_call *c = container_of(owner[--n], struct mx_call, refs);

			MUST(xchg_acq_rel(&c->refs, 0) == 1);
			mx_pool_put(MX_CALLS, c);
		}
	}
	while (n) {
		store_release(owner[--n], 0);
		mx_pool_put(MX_CALLS, container_of(owner[n], struct mx_call, refs));
	}
	return NULL;
}

static void count_object(void *obj, void *arg)
{
	++*(u32 *)arg;
}

START_TEST(test_threads_share_the_lists)
{
	pthread_t t[4];
	u32 i, n = 0;

	for (i = 0; i < 4; i++)
		t[i] = spawn(pool_main, (void *)(uintptr_t)(i + 1));
	for (i = 0; i < 4; i++)
		join(t[i]);
	mx_pool_each(MX_CALLS, count_object, &n);
	/* What the threads returned at their ends was used again. */
	ck_assert_uint_le(n, 8 * HAD + 4 * MX_CHUNK);
	ck_assert_uint_ge(n, HAD);
}
END_TEST

static void *takes_one(void *arg)
{
	void *obj = mx_pool_get(MX_OPRS);

	MUST(obj);
	return obj;
}

/* Also those of a thread that only takes objects, which other threads free. */
START_TEST(test_the_objects_that_a_thread_has_cached_outlive_it)
{
	void *obj;
	u32 i, n = 0;

	for (i = 0; i < 8; i++) {
		ck_assert_int_eq(pthread_join(spawn(takes_one, NULL), &obj), 0);
		mx_pool_put(MX_OPRS, obj);
	}
	mx_pool_each(MX_OPRS, count_object, &n);
	ck_assert_uint_eq(n, MX_CHUNK);
}
END_TEST

SUITE("mx_pool", test_a_stack_does_not_return_to_an_old_value, test_threads_share_the_lists,
      test_the_objects_that_a_thread_has_cached_outlive_it)
