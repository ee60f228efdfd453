// SPDX-License-Identifier: Apache-2.0
/* tools/pawl/order.c: the serial order of recordings that are made here. */
#include "util.h"
#include <tools/pawl/record.h>

enum { OPS = 40 };

static struct rec_op ops[OPS];
static char text[256];

/* Each op by a thread of its own, without accesses; they were pushed in a random order. */
static void scatter(u64 *seed, u32 by_time[OPS])
{
	u32 i, k, was;

	for (i = 0; i < OPS; i++)
		by_time[i] = i;
	for (i = OPS - 1; i; i--) {
		k = (u32)(rnd(seed) % (i + 1));
		was = by_time[i];
		by_time[i] = by_time[k];
		by_time[k] = was;
	}
	for (i = 0; i < OPS; i++)
		ops[by_time[i]] = (struct rec_op){ .thread = by_time[i], .name = "", .begun = true,
						   .parent = REC_NONE, .push = 100 + i };
}

START_TEST(test_ops_that_wait_for_nothing_come_as_they_were_pushed)
{
	const struct recording r = { .ops = ops, .nops = OPS };
	u32 by_time[OPS], order[OPS], i, round;
	u64 seed = 5;
	size_t n;

	for (round = 0; round < 50; round++) {
		scatter(&seed, by_time);
		OK(rec_order(&r, order, &n, text, sizeof(text)));
		ck_assert_uint_eq(n, OPS);
		for (i = 0; i < OPS; i++)
			ck_assert_uint_eq(order[i], by_time[i]);
	}
}
END_TEST

/* The times are of a clock that went back; the order of the pushes is known all the same. */
START_TEST(test_a_refused_op_does_not_end_the_order_of_its_thread)
{
	const struct recording r = { .ops = ops, .nops = 4 };
	u32 order[4], i, begun;
	size_t n;

	for (begun = 0; begun < 2; begun++) {
		for (i = 0; i < 4; i++)
			ops[i] = (struct rec_op){ .name = "", .begun = begun, .parent = REC_NONE,
						  .push = 10 - i };
		ops[1].begun = false;
		ops[1].undone = true;
		OK(rec_order(&r, order, &n, text, sizeof(text)));
		ck_assert_uint_eq(n, 3);
		ck_assert(order[0] == 0 && order[1] == 2 && order[2] == 3);
	}
}
END_TEST

/* Of a slot in two engines, the ops of one are not before those of the other. */
START_TEST(test_each_engine_has_an_order_of_its_threads)
{
	const struct recording r = { .ops = ops, .nops = 4 };
	u32 order[4], i;
	size_t n;

	for (i = 0; i < 4; i++)
		ops[i] = (struct rec_op){ .name = "", .begun = true, .parent = REC_NONE,
					  .engine = i / 2, .push = i < 2 ? 5 + 2 * i : i };
	OK(rec_order(&r, order, &n, text, sizeof(text)));
	ck_assert_uint_eq(n, 4);
	ck_assert(order[0] == 2 && order[1] == 3 && order[2] == 0 && order[3] == 1);
	ops[2].begun = ops[3].begun = false;
	OK(rec_order(&r, order, &n, text, sizeof(text)));
	ck_assert(order[0] == 0 && order[1] == 1 && order[2] == 2 && order[3] == 3);
}
END_TEST

/* Whatever the clocks of the threads say. */
START_TEST(test_a_body_and_a_given_edge_come_before_what_waits_for_them)
{
	struct rec_edge edge = { 2, 1 };
	struct recording r = { .ops = ops, .nops = 3 };
	u32 order[3], i;
	size_t n;

	for (i = 0; i < 3; i++)
		ops[i] = (struct rec_op){ .name = "", .begun = true, .parent = REC_NONE,
					  .thread = i, .push = 10 - i };
	ops[2].parent = 0;
	OK(rec_order(&r, order, &n, text, sizeof(text)));
	ck_assert(n == 3 && order[0] == 1 && order[1] == 0 && order[2] == 2);
	r.edges = &edge;
	r.nedges = 1;
	OK(rec_order(&r, order, &n, text, sizeof(text)));
	ck_assert(n == 3 && order[0] == 0 && order[1] == 2 && order[2] == 1);
	edge.after = 0;
	ck_assert_int_eq(rec_order(&r, order, &n, text, sizeof(text)), -EBADMSG);
	ck_assert_msg(strstr(text, "2 ops wait for each other, among them op 0") != NULL, "%s",
		      text);
}
END_TEST

/* An op does not wait for itself: neither when it reads what it writes, nor by an edge. */
START_TEST(test_an_op_does_not_wait_for_itself)
{
	struct rec_access a[] = { { .placed = true }, { .placed = true, .write = true } };
	struct rec_edge edge = { 0, 0 };
	struct rec_var v = { .gen = 1 };
	const struct recording r = { .ops = ops, .nops = 1, .accesses = a, .naccesses = 2,
				     .vars = &v, .nvars = 1, .edges = &edge, .nedges = 1 };
	u32 order = 7;
	size_t n;

	ops[0] = (struct rec_op){ .name = "", .begun = true, .parent = REC_NONE, .naccesses = 2 };
	ck_assert_msg(!rec_order(&r, &order, &n, text, sizeof(text)), "%s", text);
	ck_assert(n == 1 && order == 0);
}
END_TEST

/* Neither what waits for it nor what it waits for is affected, and it is in no order. */
START_TEST(test_a_refused_op_is_waited_for_by_none)
{
	struct rec_access a[3] = { { .placed = true, .write = true },
				   { .placed = true, .write = true },
				   { .placed = true, .write = true } };
	struct rec_edge edges[] = { { 0, 1 }, { 1, 2 } };
	struct rec_var v = { .gen = 1 };
	const struct recording r = { .ops = ops, .nops = 3, .accesses = a, .naccesses = 3,
				     .vars = &v, .nvars = 1, .edges = edges, .nedges = 2 };
	u32 order[3], i, undone;
	size_t n;

	for (undone = 0; undone < 3; undone++) {
		for (i = 0; i < 3; i++)
			ops[i] = (struct rec_op){ .name = "", .begun = i != undone,
						  .parent = REC_NONE, .thread = i, .push = i,
						  .access = i, .naccesses = 1,
						  .undone = i == undone };
		/* its access has the version of another one, and no place */
		for (i = 0; i < 3; i++)
			a[i].version = i != (undone ? 0 : 1);
		ck_assert_msg(!rec_order(&r, order, &n, text, sizeof(text)), "%u: %s", undone,
			      text);
		ck_assert_uint_eq(n, 2);
		ck_assert(order[0] == (undone ? 0 : 1) && order[1] == (undone == 2 ? 1 : 2));
	}
}
END_TEST

/* A reader comes after the writer of its version, and before the next writer. */
START_TEST(test_accesses_tell_the_order_whatever_the_clocks_say)
{
	static const struct { bool write; u32 version, push; } list[] = {
		{ true, 1, 1 }, { false, 1, 3 }, { true, 0, 4 }, { false, 1, 2 }, { false, 0, 5 },
		{ true, 2, 0 },
	};
	static const u32 want[] = { 4, 2, 3, 1, 0, 5 };
	struct rec_access a[COUNT(list)];
	struct rec_var v[2] = { { .gen = 1 } };
	const struct recording r = { .ops = ops, .nops = COUNT(list), .accesses = a,
				     .naccesses = COUNT(list), .vars = v, .nvars = 2 };
	u32 order[COUNT(list)], i, apart;
	size_t n;

	/* Op 4 reads version 0.  If it reads another var, no op waits for it, and it comes last. */
	for (apart = 0; apart < 2; apart++) {
		for (i = 0; i < COUNT(list); i++) {
			a[i] = (struct rec_access){ .var = apart && i == 4, .placed = true,
						    .write = list[i].write,
						    .version = list[i].version };
			ops[i] = (struct rec_op){ .name = "", .begun = true, .parent = REC_NONE,
						  .thread = i, .push = list[i].push, .access = i,
						  .naccesses = 1 };
		}
		OK(rec_order(&r, order, &n, text, sizeof(text)));
		ck_assert_uint_eq(n, COUNT(list));
		for (i = 0; i < COUNT(list); i++)
			ck_assert_uint_eq(order[i], apart ? want[(i + 1) % COUNT(list)] : want[i]);
	}
}
END_TEST

/* The message has the program's name of the var, its ops, and the version after both writes. */
START_TEST(test_what_is_said_of_two_writes_of_one_version)
{
	struct rec_access a[] = { { .var = 1, .version = 5 }, { .var = 1, .version = 6 },
				  { .var = 0, .version = 6 }, { .var = 1, .version = 6 } };
	struct rec_var v[] = { { .index = 8, .gen = 9, .engine = 2 },
			       { .index = 17, .gen = 5, .engine = 3 } };
	const struct recording r = { .ops = ops, .nops = 4, .accesses = a, .naccesses = 4,
				     .vars = v, .nvars = 2 };
	u32 order[4], i;
	size_t n = 9;

	for (i = 0; i < 4; i++) {
		a[i].placed = a[i].write = true;
		ops[i] = (struct rec_op){ .name = "", .begun = true, .parent = REC_NONE,
					  .thread = i, .access = i, .naccesses = 1 };
	}
	ck_assert_int_eq(rec_order(&r, order, &n, text, sizeof(text)), -EBADMSG);
	ck_assert_str_eq(text, "var 17.5 of engine 3: ops 1 and 3 both wrote version 7");
	ck_assert_uint_eq(n, 0);
}
END_TEST

/* The message has their number and the first one, without ops that were refused or do not wait. */
START_TEST(test_what_is_said_of_ops_that_wait_for_each_other)
{
	struct rec_edge edges[] = { { 2, 3 }, { 3, 2 }, { 3, 4 } };
	const struct recording r = { .ops = ops, .nops = 5, .edges = edges,
				     .nedges = COUNT(edges) };
	static const char *const names[] = { "a", "b", "c", "d", "e" };
	u32 order[5], i;
	size_t n;

	for (i = 0; i < 5; i++)
		ops[i] = (struct rec_op){ .name = names[i], .begun = true, .parent = REC_NONE,
					  .thread = i, .undone = i == 0 };
	ck_assert_int_eq(rec_order(&r, order, &n, text, sizeof(text)), -EBADMSG);
	ck_assert_str_eq(text,
			 "no serial order: 3 ops wait for each other, among them op 2 (\"c\")");
}
END_TEST

SUITE("order", test_accesses_tell_the_order_whatever_the_clocks_say,
      test_what_is_said_of_two_writes_of_one_version,
      test_what_is_said_of_ops_that_wait_for_each_other, test_a_refused_op_is_waited_for_by_none,
      test_an_op_does_not_wait_for_itself,
      test_ops_that_wait_for_nothing_come_as_they_were_pushed,
      test_a_refused_op_does_not_end_the_order_of_its_thread,
      test_each_engine_has_an_order_of_its_threads,
      test_a_body_and_a_given_edge_come_before_what_waits_for_them)
