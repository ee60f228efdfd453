// SPDX-License-Identifier: Apache-2.0
/* compat/pool.c: the stacks of lists of small objects. */
#include "util.h"
#include "trap.h"
#include <malloc.h>

static u32 refuse;	/* that of the file's next allocations fails; 0: none does */
static u32 live;	/* A */

static void *given(void *p)
{
	fetch_add_relaxed(&live, !!p);
	return p;
}

static bool refused(void)
{
	return refuse && !--refuse;
}

static void taken(void *p)
{
	fetch_add_relaxed(&live, -(u32)!!p);
	free(p);
}

#define malloc(n) (refused() ? NULL : given(malloc(n)))
#define aligned_alloc(align, n) (refused() ? NULL : given(aligned_alloc(align, n)))
#define free(p) taken(p)
#include <compat/pool.c>
#undef malloc
#undef aligned_alloc
#undef free

static void count_object(void *obj, void *arg)
{
	++*(u32 *)arg;
}

static u64 mark;

static u32 mark_list(void *head)
{
	struct mx_node *node = head;
	u32 n = 0;

	for (; node; node = node_of(node->next), n++) {
		ck_assert_msg(node->next_list != mark, "an object is in two lists");
		node->next_list = mark;
	}
	return n;
}

/* None is in use: each object of the pool is in one list, once. */
static void all_are_free(int pool)
{
	static void *lists[4096];
	u32 made = 0, n, i, all;

	mark++;		/* no address */
	mx_pool_each(pool, count_object, &made);
	all = mark_list(caches[pool].head);
	ck_assert_uint_le(caches[pool].n, all);
	for (n = 0; (lists[n] = list_pop(pool)); n++) {
		ck_assert_uint_lt(n, ARRAY_SIZE(lists) - 1);
		all += mark_list(lists[n]);
	}
	ck_assert_uint_eq(all, made);
	for (i = 0; i < n; i++)
		list_push(pool, lists[i]);
}

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

#if CAN_TRAP
static struct mx_node lists[4];
static void *theirs;

static void take_a_list(void)
{
	theirs = list_pop(MX_CALLS);
}

static void give_a_list(void)
{
	theirs = &lists[3];
	list_push(MX_CALLS, theirs);
}

static u32 count_lists(void)
{
	u32 n = 0, seen = 0, i;
	void *l;

	while ((l = list_pop(MX_CALLS))) {
		i = (u32)((struct mx_node *)l - lists);
		MUST(i < ARRAY_SIZE(lists) && !(seen >> i & 1));
		seen |= 1u << i;
		n++;
	}
	return n;
}
#endif

/* While one thread takes or returns a list, another one takes or returns one. */
START_TEST(test_a_list_is_taken_by_one_thread)
{
#if CAN_TRAP
	void (*const others[])(void) = { take_a_list, give_a_list };
	void *saved[64], *mine = NULL;
	u32 n, i, j, k, stops = 0, left;

	for (n = 0; n < ARRAY_SIZE(saved) && (saved[n] = list_pop(MX_CALLS)); n++)
		;
	MUST(n < ARRAY_SIZE(saved));
	for (i = 0; i < 4; i++) {
		trap_init(others[i / 2]);
		for (k = 0; !k || trap.stops; k++) {
			for (j = 0; j < 2; j++)
				list_push(MX_CALLS, &lists[j]);
			theirs = NULL;
			if (i % 2)
				trap_after(k, list_push(MX_CALLS, &lists[2]));
			else
				trap_after(k, mine = list_pop(MX_CALLS));
			stops += trap.stops;
			if (i % 2 == 0)
				MUST(mine && (i || mine != theirs));
			left = i % 2 ? 3 : 1;
			if (theirs)
				left += i / 2 ? 1 : -1u;
			MUST(count_lists() == left);
		}
	}
	ck_assert_uint_gt(stops, 20);
	while (n)
		list_push(MX_CALLS, saved[--n]);
#endif
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
	all_are_free(MX_CALLS);
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

#define HANDED	40u

struct user {
	int pool;
	void *handed[HANDED];	/* objects that another thread has taken */
	pthread_key_t key;
	u32 turns;
};

static void take_and_return(int pool, u32 n)
{
	void *obj[2 * MX_BATCH];
	u32 i;

	MUST(n <= ARRAY_SIZE(obj));
	for (i = 0; i < n; i++) {
		obj[i] = mx_pool_get(pool);
		MUST(obj[i]);
	}
	while (i)
		mx_pool_put(pool, obj[--i]);
}

static void return_handed(struct user *u)
{
	u32 i;

	for (i = 0; i < HANDED; i++)
		mx_pool_put(u->pool, u->handed[i]);
}

static void hand(struct user *u)
{
	u32 i;

	for (i = 0; i < HANDED; i++) {
		u->handed[i] = mx_pool_get(u->pool);
		ck_assert_ptr_nonnull(u->handed[i]);
	}
}

static void *only_returns(void *arg)
{
	return_handed(arg);
	return NULL;
}

START_TEST(test_a_thread_that_only_returns_objects_keeps_none_of_them)
{
	struct user u;

	for (u.pool = 0; u.pool < MX_POOLS; u.pool++) {
		hand(&u);
		join(spawn(only_returns, &u));
		all_are_free(u.pool);
	}
}
END_TEST

#define MANY	(70 * MX_BATCH)

/* Nor does it while it lives: it returns them a list at a time, and knows how many are left. */
static void *returns_many(void *arg)
{
	const struct mx_node *node;
	void **objs = arg;
	u32 i, n;

	for (i = 0; i < MANY; i++) {
		mx_pool_put(MX_CALLS, objs[i]);
		for (n = 0, node = caches[MX_CALLS].head; node; node = node_of(node->next))
			n++;
		MUST(n == caches[MX_CALLS].n && n < 2 * MX_BATCH);
	}
	return NULL;
}

START_TEST(test_a_thread_returns_what_it_has_in_excess)
{
	static void *objs[MANY];
	u32 i;

	for (i = 0; i < MANY; i++) {
		objs[i] = mx_pool_get(MX_CALLS);
		ck_assert_ptr_nonnull(objs[i]);
	}
	join(spawn(returns_many, objs));
	all_are_free(MX_CALLS);
}
END_TEST

/* Another thread's objects are in use, and this one has cached more than it returns now. */
static void at_its_end(void *arg)
{
	struct user *u = arg;

	if (!u->turns++) {
		return_handed(u);
		take_and_return(u->pool, HANDED + 1);
	} else {
		take_and_return(u->pool, MX_BATCH + HANDED);
	}
	if (u->turns < 2)
		MUST(!pthread_setspecific(u->key, u));
}

static void *ends_late(void *arg)
{
	struct user *u = arg;
	int pool;

	MUST(!pthread_setspecific(u->key, u));
	for (pool = 0; pool < MX_POOLS; pool++)
		take_and_return(pool, MX_BATCH + HANDED);
	return NULL;
}

/* Destructors of a thread's data run in any order: pawl's may not be the last one. */
START_TEST(test_a_thread_may_use_objects_after_its_cache_was_returned)
{
	struct user u = { .turns = 0 };

	take_and_return(MX_CALLS, 1);
	/* glibc calls them in the order in which the keys were made */
	ck_assert_int_eq(pthread_key_create(&u.key, at_its_end), 0);
	for (u.pool = 0; u.pool < MX_POOLS; u.pool++) {
		u.turns = 0;
		hand(&u);
		join(spawn(ends_late, &u));
		ck_assert_uint_eq(u.turns, 2);
		all_are_free(u.pool);
	}
	pthread_key_delete(u.key);
}
END_TEST

static void *has_no_notice(void *arg)
{
	take_and_return(MX_CALLS, 1);
	MUST(!pthread_getspecific(key));
	return NULL;
}

/* The last test: the thread loses its objects. */
START_TEST(test_without_a_key_no_other_is_used)
{
	take_and_return(MX_CALLS, 1);
	have_key = false;
	join(spawn(has_no_notice, NULL));
	have_key = true;
}
END_TEST

/* Whatever the memory had before: a fork takes what is not 0 for a var or an operator. */
START_TEST(test_new_objects_are_zero)
{
	struct mx_node *node, *list;
	const char *obj;
	int pool;
	u32 n, i;

	mallopt(M_PERTURB, 0x5a);
	for (pool = 0; pool < MX_POOLS; pool++) {
		list = chunk_new(pool);
		for (n = 0, node = list; node; node = node_of(node->next), n++) {
			obj = (char *)node - node_at[pool];
			ck_assert_uint_eq((uintptr_t)obj % (pool == MX_OPRS ? 8 : 16), 0);
			for (i = 0; i < sizes[pool]; i++)
				ck_assert(!obj[i] || obj + i - (char *)node < (long)sizeof(node->next));
		}
		ck_assert_uint_eq(n, MX_CHUNK);
		list_push(pool, list);
		all_are_free(pool);
	}
	mallopt(M_PERTURB, 0);
}
END_TEST

static void *is_refused(void *arg)
{
	const u32 was = live;
	u32 i;

	for (i = 1; i <= 2; i++) {
		refuse = i;
		MUST(!mx_pool_get(MX_VARS));
		MUST(!refuse && live == was);
	}
	take_and_return(MX_VARS, 2);
	MUST(live == was + 2);
	return NULL;
}

START_TEST(test_a_refused_chunk_leaves_nothing)
{
	while (list_pop(MX_VARS))
		;
	join(spawn(is_refused, NULL));
}
END_TEST

SUITE("mx_pool", test_a_stack_does_not_return_to_an_old_value,
      test_a_list_is_taken_by_one_thread, test_threads_share_the_lists,
      test_the_objects_that_a_thread_has_cached_outlive_it,
      test_a_thread_that_only_returns_objects_keeps_none_of_them,
      test_a_thread_returns_what_it_has_in_excess,
      test_a_thread_may_use_objects_after_its_cache_was_returned,
      test_new_objects_are_zero, test_a_refused_chunk_leaves_nothing,
      test_without_a_key_no_other_is_used)
