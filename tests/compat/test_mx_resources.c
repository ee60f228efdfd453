/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resources: what several threads that ask for a new context's at once leave behind, seeds
 * beside uses, and refused requests.
 */
#include "mx_meanwhile.h"
#include <malloc.h>
#include <pthread.h>

static struct pawl_mx_context its_context;
static struct pawl_mx_resource its_resource;

static struct pawl_mx_context cpu_number(int id)
{
	return (struct pawl_mx_context){ PAWL_MX_CPU, id };
}

static void another_request(void)
{
	OK(pawl_mx_resource_get(its_context, PAWL_MX_RANDOM, &its_resource));
}

static uint64_t vars_so_far(void)
{
	struct pawl_stats s = { .size = sizeof(s) };

	OK(pawl_stats(pawl_mx_engine_pawl(pawl_mx_engine_get()), &s));
	return s.vars;
}

enum { CONTEXTS = 1000 };

/* The growth of memory and vars by so many contexts, which two threads request at once or not. */
static void grows(int first, int races, size_t *bytes, uint64_t *vars)
{
	struct pawl_mx_resource r;
	int i;

	*bytes = mallinfo2().uordblks;
	*vars = vars_so_far();
	for (i = 0; i < CONTEXTS; i++) {
		its_context = cpu_number(first + i);
		meanwhile = races ? another_request : NULL;
		OK(pawl_mx_resource_get(its_context, PAWL_MX_RANDOM, &r));
		ck_assert(!meanwhile && (!races || r.var == its_resource.var));
		OK(MXNDArrayWaitAll());
	}
	*bytes = mallinfo2().uordblks - *bytes;
	*vars = vars_so_far() - *vars;
}

/* The vars and the memory of the one that comes too late are used again. */
START_TEST(test_a_context_that_two_threads_request_needs_no_more_than_one)
{
	uint64_t alone_vars, vars;
	size_t alone, bytes;

	grows(10000, 1, &bytes, &vars);
	grows(11000, 0, &alone, &alone_vars);
	grows(12000, 1, &bytes, &vars);
	ck_assert_uint_ge(alone_vars, CONTEXTS * 4);
	ck_assert_uint_lt(vars, alone_vars + CONTEXTS);
	/* vars of this library are allocated by the hundred */
	ck_assert_uint_lt(bytes, alone + 60000);
}
END_TEST

/* A context that is made beside another one hides none. */
START_TEST(test_contexts_that_are_made_at_once_both_stay)
{
	struct pawl_mx_resource r, again;

	OK(pawl_mx_resource_get(cpu, PAWL_MX_RANDOM, &r));
	its_context = cpu_number(3001);
	meanwhile = another_request;
	OK(pawl_mx_resource_get(cpu_number(3000), PAWL_MX_RANDOM, &r));
	ck_assert_ptr_null(meanwhile);
	ck_assert_ptr_ne(r.var, its_resource.var);
	OK(pawl_mx_resource_get(cpu_number(3000), PAWL_MX_RANDOM, &again));
	ck_assert_ptr_eq(again.var, r.var);
	OK(pawl_mx_resource_get(its_context, PAWL_MX_RANDOM, &again));
	ck_assert_ptr_eq(again.var, its_resource.var);
	OK(MXRandomSeed(5));
	OK(MXNDArrayWaitAll());
	ck_assert_uint_eq(pawl_mx_var_version(r.var), 1);
	ck_assert_uint_eq(pawl_mx_var_version(its_resource.var), 1);
}
END_TEST

struct draw {
	struct pawl_mx_resource r;
	uint64_t got[4];
	int half, go_on;
};

static int is_half(void);

static void draw(void *run, void *arg)
{
	struct draw *d = arg;
	int i;

	for (i = 0; i < 4; i++) {
		if (i == 2) {
			PUT(&d->half, 1);
			while (!GET(&d->go_on))
				usleep(100);
		}
		d->got[i] = pawl_mx_resource_random(&d->r);
	}
}

static struct draw drawn;

static int is_half(void)
{
	return GET(&drawn.half);
}

static void push_draw(struct draw *d)
{
	OK(MXEnginePushSync(draw, d, NULL, &cpu, NULL, 0, &d->r.var, 1, NULL, 0, "draw"));
}

/* A seed is an op: numbers that ops before it take are those of the seed before. */
START_TEST(test_a_seed_waits_for_the_uses_before_it)
{
	static const int types[] = { PAWL_MX_RANDOM, PAWL_MX_PARALLEL_RANDOM };
	struct draw want, next;
	int t, all;

	for (t = 0; t < 2; t++) {
		for (all = 0; all < 2; all++) {
			memset(&drawn, 0, sizeof(drawn));
			OK(pawl_mx_resource_get(cpu, types[t], &drawn.r));
			want = next = drawn;
			want.go_on = next.go_on = 1;
			OK(MXRandomSeed(77));
			push_draw(&want);
			OK(MXRandomSeed(77));
			push_draw(&drawn);
			ck_assert(soon(is_half));
			if (all)
				OK(MXRandomSeed(78));
			else
				OK(MXRandomSeedContext(78, PAWL_MX_CPU, 0));
			push_draw(&next);
			PUT(&drawn.go_on, 1);
			OK(MXNDArrayWaitAll());
			ck_assert(!memcmp(drawn.got, want.got, sizeof(want.got)));
			OK(MXRandomSeedContext(78, PAWL_MX_CPU, 0));
			push_draw(&want);
			OK(MXNDArrayWaitAll());
			ck_assert(!memcmp(next.got, want.got, sizeof(want.got)));
		}
	}
}
END_TEST

static void busy(void *run, void *arg)
{
	struct draw *d = arg;

	PUT(&d->half, 1);
	while (!GET(&d->go_on))
		usleep(100);
}

static struct pawl_mx_resource seeded;

static int is_seeded(void)
{
	return pawl_mx_var_version(seeded.var) == 1;
}

/* While the only worker of another context is busy. */
START_TEST(test_a_seed_is_set_in_its_own_context)
{
	memset(&drawn, 0, sizeof(drawn));
	OK(pawl_mx_resource_get(cpu_number(1), PAWL_MX_RANDOM, &seeded));
	OK(MXEnginePushSync(busy, &drawn, NULL, &cpu, NULL, 0, NULL, 0, NULL, 0, "busy"));
	ck_assert(soon(is_half));
	OK(MXRandomSeedContext(1, PAWL_MX_CPU, 1));
	ck_assert(soon(is_seeded));
	PUT(&drawn.go_on, 1);
	OK(MXNDArrayWaitAll());
}
END_TEST

/* In traces and in the profiler's table a seed has MXNet's name, once for each generator. */
START_TEST(test_a_seed_has_a_name)
{
	const char *keys[] = { "aggregate_stats" }, *on[] = { "1" }, *off[] = { "0" };
	struct pawl_mx_resource r;
	const char *text;

	OK(pawl_mx_resource_get(cpu, PAWL_MX_RANDOM, &r));
	OK(MXSetProfilerConfig(1, keys, on));
	OK(MXSetProfilerState(1));
	OK(MXRandomSeedContext(1, PAWL_MX_CPU, 0));
	OK(MXNDArrayWaitAll());
	OK(MXAggregateProfileStatsPrintEx(&text, 1, 1, 0, 0));
	ck_assert_msg(strstr(text, "\"ResourceRandomSetSeed\": {\"Count\": 2,") != NULL, "%s", text);
	OK(MXSetProfilerState(0));
	OK(MXSetProfilerConfig(1, keys, off));
}
END_TEST

/* Each type has a turn of its own, whatever is requested in between. */
START_TEST(test_spaces_are_returned_in_turn)
{
	struct pawl_mx_resource space[9], other;
	int i;

	for (i = 0; i < 9; i++) {
		OK(pawl_mx_resource_get(cpu_number(2), PAWL_MX_TEMP_SPACE, &space[i]));
		if (i % 3)
			OK(pawl_mx_resource_get(cpu_number(2), PAWL_MX_RANDOM, &other));
		OK(pawl_mx_resource_get(cpu_number(2), PAWL_MX_PARALLEL_RANDOM, &other));
		ck_assert_int_eq(space[i].id, space[0].id + i % 4);
		ck_assert_ptr_eq(space[i].var, space[i % 4].var);
	}
}
END_TEST

/* A refused request changes nothing, whatever it asked for. */
START_TEST(test_refused_requests)
{
	const struct { struct pawl_mx_context ctx; int type, rc; const char *text; } bad[] = {
		{ { PAWL_MX_GPU, 0 }, PAWL_MX_RANDOM, -ENODEV, "GPU is not enabled" },
		{ { 4, 0 }, PAWL_MX_TEMP_SPACE, -ENODEV, "device type 4 is unknown" },
		{ { PAWL_MX_CPU, -1 }, PAWL_MX_RANDOM, -ENODEV, "device id -1" },
		{ { PAWL_MX_CPU, 0 }, PAWL_MX_PARALLEL_RANDOM + 1, -EINVAL, "type 3" },
		{ { PAWL_MX_CPU, 0 }, PAWL_MX_RANDOM - 1, -EINVAL, "type -1" },
	};
	struct pawl_mx_resource r;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		memset(&r, 0x5a, sizeof(r));
		REFUSED(bad[i].rc, pawl_mx_resource_get(bad[i].ctx, bad[i].type, &r), bad[i].text);
		ck_assert_int_eq(r.type, 0x5a5a5a5a);
		if (bad[i].rc == -ENODEV)
			FAILS(MXRandomSeedContext(1, bad[i].ctx.dev_type, bad[i].ctx.dev_id),
			      bad[i].text);
	}
}
END_TEST

/* Also those that are requested later or never, and although engines use the same memory. */
START_TEST(test_the_next_engine_of_the_process_has_resources_of_its_own)
{
	struct pawl_mx_resource r, last = { 0 }, early;
	struct draw first, d;
	int i;

	memset(&first, 0, sizeof(first));
	OK(pawl_mx_engine_free(pawl_mx_engine_get()));
	for (i = 0; i < 3; i++) {
		/* for contexts that are made later */
		OK(MXRandomSeed(5));
		OK(pawl_mx_resource_get(cpu_number(40 + i), PAWL_MX_RANDOM, &early));
		OK(pawl_mx_resource_get(cpu_number(1), PAWL_MX_RANDOM, &r));
		ck_assert(r.type == PAWL_MX_RANDOM && r.ptr != last.ptr);
		d = (struct draw){ .r = r, .go_on = 1 };
		push_draw(&d);
		OK(MXRandomSeed(6));
		OK(MXNDArrayWaitAll());
		ck_assert_uint_eq(pawl_mx_var_version(r.var), 2);
		ck_assert_uint_eq(pawl_mx_var_version(early.var), 1);
		if (!i)
			first = d;
		ck_assert(!memcmp(d.got, first.got, sizeof(d.got)));
		OK(pawl_mx_resource_get(cpu_number(1), PAWL_MX_RANDOM, &last));
		ck_assert(last.ptr == r.ptr && last.var == r.var);
		OK(pawl_mx_engine_free(pawl_mx_engine_get()));
	}
}
END_TEST

/* A program that frees the engine of the process again and again does not grow by its spaces. */
START_TEST(test_the_spaces_of_an_engine_are_freed_with_it)
{
	enum { SPACE = 3 << 20, ROUNDS = 8 };
	struct pawl_mx_resource r;
	struct mallinfo2 info;
	size_t before = 0, now;
	int i, k;

	for (i = 0; i < ROUNDS; i++) {
		for (k = 0; k < 2; k++) {
			OK(pawl_mx_resource_get(cpu_number(k), PAWL_MX_TEMP_SPACE, &r));
			ck_assert_ptr_nonnull(pawl_mx_resource_space(&r, SPACE));
		}
		OK(pawl_mx_engine_free(pawl_mx_engine_get()));
		info = mallinfo2();
		now = info.uordblks + info.hblkhd;
		before = i ? before : now;
		ck_assert_uint_lt(now, before + SPACE);
	}
}
END_TEST

SUITE("mx_resources", 50, test_a_context_that_two_threads_request_needs_no_more_than_one,
      test_contexts_that_are_made_at_once_both_stay, test_a_seed_waits_for_the_uses_before_it,
      test_a_seed_is_set_in_its_own_context, test_a_seed_has_a_name,
      test_spaces_are_returned_in_turn, test_refused_requests,
      test_the_next_engine_of_the_process_has_resources_of_its_own,
      test_the_spaces_of_an_engine_are_freed_with_it)
