// SPDX-License-Identifier: Apache-2.0
/* tools/pawl/workload.c: which ops, vars and accesses a workload in another format becomes. */
#include "recordings.h"

/* Load the text as a file. */
static int loads(const char *json, struct recording *r)
{
	char *path = temp_path();
	int rc;

	write_file(path, json, strlen(json));
	rc = workload_load(path, r, text, sizeof(text));
	unlink(path);
	return rc;
}

/* The ops of a recording with their accesses: "name r0 w1; name r1". */
static const char *ops_of(const struct recording *r)
{
	static char out[1024];
	size_t at = 0, i;
	u32 j;

	out[0] = 0;
	for (i = 0; i < r->nops; i++) {
		at += (size_t)snprintf(out + at, sizeof(out) - at, "%s%s", i ? "; " : "",
				       r->ops[i].name);
		for (j = 0; j < r->ops[i].naccesses; j++) {
			const struct rec_access *a = &r->accesses[r->ops[i].access + j];

			at += (size_t)snprintf(out + at, sizeof(out) - at, " %c%u",
					       a->write ? 'w' : 'r', a->var);
		}
	}
	return out;
}

static void becomes(const char *json, const char *ops)
{
	struct recording r;

	ck_assert_msg(!loads(json, &r), "%s: %s", json, text);
	ck_assert_msg(!strcmp(ops_of(&r), ops), "%s: %s, not %s", json, ops_of(&r), ops);
	rec_free(&r);
}

#define TENSOR(s)	"[[" s ", " s ", 0, 4, 4, \"cpu\"]]"
#define NODE(id, parent)							\
	"{\"id\": " #id ", " parent ", \"name\": \"" #id "\", \"inputs\": " TENSOR(#id) "}"
#define NODES(list)	"{\"nodes\": [" list "]}"

/* Schema 1.0 has the field "parent", 1.1 has "ctrl_deps", which counts if there are both. */
START_TEST(test_an_operator_that_another_one_names_as_its_parent_is_no_op)
{
	becomes(NODES(NODE(1, "\"parent\": 0") "," NODE(2, "\"parent\": 1")), "2 r0");
	becomes(NODES(NODE(1, "\"ctrl_deps\": 0") "," NODE(2, "\"ctrl_deps\": 1")), "2 r0");
	becomes(NODES(NODE(1, "\"parent\": 2, \"ctrl_deps\": 0") ","
		      NODE(2, "\"parent\": 0, \"ctrl_deps\": 1")), "2 r0");
	becomes(NODES(NODE(1, "\"parent\": 0") "," NODE(2, "\"parent\": 0")), "1 r0; 2 r1");
	/* without either field it has no parent */
	becomes(NODES(NODE(1, "\"tid\": 2") "," NODE(2, "\"tid\": 1")), "1 r0; 2 r1");
}
END_TEST

/* The parents are named in any order, and several operators may have the same one. */
START_TEST(test_parents_are_found_in_any_order)
{
	becomes(NODES(NODE(9, "\"parent\": 7") "," NODE(8, "\"parent\": 6") ","
		      NODE(5, "\"parent\": 4") "," NODE(3, "\"parent\": 2") ","
		      NODE(7, "\"parent\": 1") "," NODE(6, "\"parent\": 1") ","
		      NODE(4, "\"parent\": 1") "," NODE(2, "\"parent\": 1") ","
		      NODE(1, "\"parent\": 0")), "3 r0; 5 r1; 8 r2; 9 r3");
	becomes(NODES(NODE(1, "\"parent\": 6") "," NODE(2, "\"parent\": 5") ","
		      NODE(3, "\"parent\": 4") "," NODE(4, "\"parent\": 0") ","
		      NODE(5, "\"parent\": 0") "," NODE(6, "\"parent\": 0")), "1 r0; 2 r1; 3 r2");
}
END_TEST

/* What computes is the op, also if it contains an allocation; its time is that of its kernels. */
START_TEST(test_an_operator_that_contains_only_light_ones_is_the_op)
{
#define OPERATOR(id, parent, name, more)					\
	"{\"id\": " #id ", \"parent\": " #parent ", \"name\": \"" name "\"" more "}"
#define T(s)	", \"inputs\": " TENSOR(s)
	struct recording r;

	becomes(NODES(OPERATOR(1, 0, "aten::addmm", T("1")) "," OPERATOR(2, 1, "aten::empty", T("2")) ","
		      OPERATOR(3, 1, "aten::expand", T("3")) "," OPERATOR(4, 3, "aten::as_strided", T("3"))),
		"aten::addmm r0");
	/* a child computes, however deep; a range of the program is no operator */
	becomes(NODES(OPERATOR(1, 0, "aten::linear", T("1")) "," OPERATOR(2, 1, "aten::t", T("2")) ","
		      OPERATOR(3, 1, "aten::mm", T("3")) "," OPERATOR(4, 3, "aten::empty", T("4"))),
		"aten::t r0; aten::mm r1");
	becomes(NODES(OPERATOR(1, 0, "forward", T("1")) "," OPERATOR(2, 1, "aten::empty", T("2"))),
		"aten::empty r0");
	/* both generations have kernels that belong to what launched them */
	OK(loads(NODES(OPERATOR(1, 0, "aten::conv2d", T("1") ", \"dur\": 5") ","
		       OPERATOR(2, 1, "cudaLaunchKernel", ", \"cat\": \"cuda_runtime\", \"correlation\": 7") ","
		       OPERATOR(3, 0, "sgemm", ", \"cat\": \"kernel\", \"correlation\": 7, \"dur\": 90") ","
		       OPERATOR(4, 0, "other", ", \"cat\": \"kernel\", \"correlation\": 8, \"dur\": 10")), &r));
	ck_assert_str_eq(ops_of(&r), "aten::conv2d r0");
	ck_assert_uint_eq(r.ops[0].end - r.ops[0].begin, 90000);
	ck_assert(r.covered > .899 && r.covered < .901);
	rec_free(&r);
	OK(loads("{\"nodes\": [{\"id\": 1, \"ctrl_deps\": 0, \"name\": \"aten::mm\", \"inputs\": {\"values\": "
		 TENSOR("1") "}, \"attrs\": [{\"name\": \"op_schema\", \"value\": \"x\"}, "
		 "{\"name\": \"dur\", \"value\": 3}]}, "
		 "{\"id\": 2, \"ctrl_deps\": 0, \"name\": \"aten::add\", \"inclusive_dur\": 6}]}", &r));
	ck_assert_str_eq(ops_of(&r), "aten::mm r0");
	ck_assert_uint_eq(r.ops[0].end - r.ops[0].begin, 3000);
	rec_free(&r);
}
END_TEST

/* Six values, of which the first is a whole number and the last is a text. */
START_TEST(test_which_values_are_tensors)
{
	static const struct { const char *value, *ops; } list[] = {
		{ "[1, 10, 0, 4, 4, \"cpu\"]", "op r0" },
		{ "[1, 10, 0, 4, 4, 5]", "" },
		{ "[\"a\", \"b\", \"c\", \"d\", \"e\", \"cpu\"]", "" },
		{ "[1, 10, 0, 4, 4, \"cpu\", \"cpu\"]", "" },
		{ "[1, 10, 0, 4, \"cpu\"]", "" },
		{ "[1.5, 10, 0, 4, 4, \"cpu\"]", "" },
		{ "7", "" }, { "\"cpu\"", "" }, { "null", "" }, { "[]", "" },
		/* the first is its own, whatever the storage is */
		{ "[1, null, 0, 4, 4, \"cpu\"]", "op r0" },
		{ "[[1, 10, 0, 4, 4, \"cpu\"], [[2, 20, 0, 4, 4, \"cpu\"]]]", "op r0 r1" },
		{ "[[1, 10, 0, 4, 4, \"cpu\"], [2, 10, 0, 4, 4, \"cpu\"]]", "op r0" },
		{ "[[5, 1, 0, 4, 4, \"cpu\"], [6, 1, 0, 4, 4, \"cpu\"]]", "op r0" },
		{ "[[1, 0, 0, 4, 4, \"cpu\"], [2, 0, 0, 4, 4, \"cpu\"]]", "op r0 r1" },
		{ "[[1, -5, 0, 4, 4, \"cpu\"], [2, -5, 0, 4, 4, \"cpu\"]]", "op r0 r1" },
		/* a list of as many tensors as a tensor has values */
		{ "[[1, 1, 0, 4, 4, \"cpu\"], [2, 2, 0, 4, 4, \"cpu\"], [3, 3, 0, 4, 4, \"cpu\"],"
		  " [4, 4, 0, 4, 4, \"cpu\"], [5, 5, 0, 4, 4, \"cpu\"], [6, 6, 0, 4, 4, \"cpu\"]]",
		  "op r0 r1 r2 r3 r4 r5" },
	};
	char json[512];
	u32 i;

	for (i = 0; i < COUNT(list); i++) {
		snprintf(json, sizeof(json),
			 "{\"nodes\": [{\"id\": 1, \"name\": \"op\", \"inputs\": [%s]}]}",
			 list[i].value);
		becomes(json, list[i].ops);
	}
}
END_TEST

/* Three tensors as arguments; the schema says which of them are written. */
START_TEST(test_which_arguments_a_schema_marks_as_written)
{
	static const struct { const char *schema, *ops; } list[] = {
		{ "", "op r0 r1 r2" },
		{ "f", "op r0 r1 r2" },
		{ "f!, !", "op r0 r1 r2" },
		{ "f()", "op r0 r1 r2" },
		{ "f(Tensor a, Tensor b, Tensor c) -> Tensor", "op r0 r1 r2" },
		{ "f(Tensor(a!) a, Tensor b, Tensor c)", "op w0 r1 r2" },
		{ "f(Tensor a, Tensor(a!) b, Tensor c)", "op r0 w1 r2" },
		{ "f(Tensor a, Tensor b, Tensor(a!) c)", "op r0 r1 w2" },
		{ "f(Tensor(a!)[] a, Tensor b, Tensor(c!) c)", "op w0 r1 w2" },
		{ "f(Tensor(a!) a, *, Tensor(b!) b, Tensor c)", "op w0 w1 r2" },
		{ "f(*, Tensor a, Tensor(b!) b, Tensor c)", "op r0 w1 r2" },
		/* a star of an alias does not end the arguments by position */
		{ "f(Tensor(a -> *) a, Tensor(b!) b, Tensor c)", "op r0 w1 r2" },
		{ "f(int[2] a=[1, 1], Tensor(b!) b, Tensor c)", "op r0 w1 r2" },
		{ "f((Tensor, Tensor) a, Tensor(b!) b, Tensor c)", "op r0 w1 r2" },
		/* what it returns is no argument */
		{ "f(Tensor a) -> (Tensor(a!), Tensor(b!))", "op r0 r1 r2" },
		{ "f(Tensor a) -> Tensor(a!), Tensor(b!), Tensor(c!)", "op r0 r1 r2" },
	};
	char json[512];
	u32 i;

	for (i = 0; i < COUNT(list); i++) {
		snprintf(json, sizeof(json), "{\"nodes\": [{\"id\": 1, \"name\": \"op\", "
			 "\"op_schema\": \"%s\", \"inputs\": [[1, 1, 0, 4, 4, \"cpu\"], "
			 "[2, 2, 0, 4, 4, \"cpu\"], [3, 3, 0, 4, 4, \"cpu\"]]}]}", list[i].schema);
		becomes(json, list[i].ops);
	}
}
END_TEST

/* If the schema marks a list, all its tensors are written, however deep they are. */
START_TEST(test_a_list_of_tensors_is_written_as_a_whole)
{
#define LIST(schema)								\
	"{\"nodes\": [{\"id\": 1, \"name\": \"op\", \"op_schema\": \"" schema "\", "	\
	"\"inputs\": [[" TENSOR("1") ", [" TENSOR("2") "]], " TENSOR("3") "]}]}"
	becomes(LIST("f(Tensor(a!)[] a, Tensor[] b)"), "op w0 w1 r2");
	becomes(LIST("f(Tensor[] a, Tensor(b!)[] b)"), "op r0 r1 w2");
}
END_TEST

/* A field of its own counts more than the attribute of that name. */
START_TEST(test_where_the_schema_of_an_operator_is)
{
#define ATTRS(list)								\
	"{\"nodes\": [{\"id\": 1, \"name\": \"op\", \"inputs\": " TENSOR("1") ", " list "}]}"
	becomes(ATTRS("\"op_schema\": \"f(Tensor(a!) a)\""), "op w0");
	becomes(ATTRS("\"attrs\": [{\"name\": \"op_schema\", \"value\": \"f(Tensor(a!) a)\"}]"),
		"op w0");
	becomes(ATTRS("\"op_schema\": \"f(Tensor a)\", "
		      "\"attrs\": [{\"name\": \"op_schema\", \"value\": \"f(Tensor(a!) a)\"}]"),
		"op r0");
	becomes(ATTRS("\"attrs\": [{\"name\": \"schema\", \"value\": \"f(Tensor(a!) a)\"}]"),
		"op r0");
	/* the first of several attributes counts */
	becomes(ATTRS("\"attrs\": [{\"name\": \"op_schema\", \"value\": \"f(Tensor(a!) a)\"}, "
		      "{\"name\": \"op_schema\", \"value\": \"f(Tensor a)\"}]"), "op w0");
	becomes(ATTRS("\"attrs\": [{}, {\"name\": 1}, {\"name\": \"op_schema\", \"value\": 1}]"),
		"op r0");
}
END_TEST

/* A result in the storage of an argument is a view, wherever in a list the argument is. */
START_TEST(test_a_result_that_is_a_view_of_an_argument_is_read)
{
	static const struct { const char *inputs, *outputs, *ops; } list[] = {
		{ TENSOR("1"), TENSOR("2"), "op r0 w1" },
		{ TENSOR("1"), TENSOR("1"), "op r0" },
		{ "[[[2, 2, 0, 4, 4, \"cpu\"], [1, 1, 0, 4, 4, \"cpu\"]]]", TENSOR("1"),
		  "op r0 r1" },
		{ TENSOR("1"), "[[[1, 1, 0, 4, 4, \"cpu\"], [2, 2, 0, 4, 4, \"cpu\"]]]",
		  "op r0 w1" },
		{ "[]", TENSOR("1"), "op w0" },
		{ "[]", "[[1, 1, 0, 4, 4, \"cpu\"], [1, 1, 0, 4, 4, \"cpu\"]]", "op w0" },
		/* of tensors without a storage they are views by their own number */
		{ "[[1, 0, 0, 4, 4, \"cpu\"]]",
		  "[[1, 0, 0, 4, 4, \"cpu\"], [2, 0, 0, 4, 4, \"cpu\"]]", "op r0 w1" },
	};
	char json[512];
	u32 i;

	for (i = 0; i < COUNT(list); i++) {
		snprintf(json, sizeof(json), "{\"nodes\": [{\"id\": 1, \"name\": \"op\", "
			 "\"inputs\": %s, \"outputs\": {\"values\": %s}}]}", list[i].inputs,
			 list[i].outputs);
		becomes(json, list[i].ops);
	}
	/* An argument of one operator is none of the next. */
	becomes(NODES("{\"id\": 1, \"name\": \"a\", \"inputs\": " TENSOR("1") "},"
		      "{\"id\": 2, \"name\": \"b\", \"outputs\": " TENSOR("1") "}"), "a r0; b w0");
}
END_TEST

#define FLOW(tasks, runs)	"{\"workflow\": {\"specification\": {\"tasks\": [" tasks "]}, " \
				"\"execution\": {\"tasks\": [" runs "]}}}"

/* In the order of the list; a task that must wait comes in a later pass over the list. */
START_TEST(test_a_task_comes_after_its_parents)
{
#define TASK(id, parents)	"{\"id\": \"" id "\", \"parents\": [" parents "]}"
	struct recording r;

	becomes(FLOW(TASK("a", "") "," TASK("b", "") "," TASK("c", ""), ""), "a; b; c");
	becomes(FLOW(TASK("a", "\"b\"") "," TASK("b", "\"c\"") "," TASK("c", "\"d\"") ","
		     TASK("d", ""), ""), "d; c; b; a");
	becomes(FLOW(TASK("a", "\"c\"") "," TASK("b", "") "," TASK("c", "") "," TASK("d", "\"a\""),
		     ""), "b; c; a; d");
	/* the last parent is there already */
	becomes(FLOW(TASK("b", "") "," TASK("a", "\"c\", \"b\"") "," TASK("c", ""), ""), "b; c; a");
	OK(loads(FLOW(TASK("a", "\"c\", \"b\"") "," TASK("b", "") "," TASK("c", "\"b\""), ""), &r));
	ck_assert_str_eq(ops_of(&r), "b; c; a");
	ck_assert_uint_eq(r.nedges, 3);
	ck_assert(r.edges[0].before == 0 && r.edges[0].after == 1);
	ck_assert(r.edges[1].before == 1 && r.edges[1].after == 2);
	ck_assert(r.edges[2].before == 0 && r.edges[2].after == 2);
	ck_assert(r.told[0] && r.told[1] && r.told[2] && r.ntold == 3);
	rec_free(&r);
}
END_TEST

/* A file implies a parent if one of the two writes it; the others are told by the edge alone. */
START_TEST(test_parents_that_no_file_implies)
{
#define STEP(id, parents, in, out)						\
	"{\"id\": \"" id "\", \"parents\": [" parents "], \"inputFiles\": [" in "], \"outputFiles\": [" out "]}"
	static const bool told[] = { false, false, true, true, false, false };
	struct recording r;
	u32 i;

	OK(loads(FLOW(STEP("a", "", "\"e\"", "\"f\"") "," STEP("b", "\"a\"", "\"f\"", "") ","
		      STEP("c", "\"a\"", "", "\"f\"") "," STEP("d", "\"a\", \"b\", \"b\"", "\"e\"", "") ","
		      STEP("e", "\"b\"", "", "\"f\""), ""), &r));
	ck_assert_uint_eq(r.nedges, 6);
	ck_assert_uint_eq(r.ntold, 2);
	for (i = 0; i < r.nedges; i++)
		ck_assert_int_eq(r.told[i], told[i]);
	rec_free(&r);
}
END_TEST

/* Children before parents, and one parent of all, in time that does not grow with the square. */
START_TEST(test_a_workflow_of_any_size)
{
	u32 n = 60000, i;
	struct recording r;
	char *path = temp_path();
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	fprintf(f, "{\"workflow\": {\"specification\": {\"tasks\": [{\"id\": \"join\", \"parents\": [");
	for (i = 0; i < n; i++)
		fprintf(f, "%s\"%u\"", i ? "," : "", i);
	fprintf(f, "]}");
	for (i = 0; i < n; i++)
		fprintf(f, ",{\"id\": \"%u\", \"parents\": [\"%u\"]}", i, i + 1);
	fprintf(f, ",{\"id\": \"%u\"}]}}}", n);
	fclose(f);
	OK(workload_load(path, &r, text, sizeof(text)));
	ck_assert(r.nops == n + 2 && r.nedges == 2 * n && r.ntold == 2 * n);
	/* from the end of the list to its beginning */
	ck_assert_str_eq(r.ops[0].name, "60000");
	ck_assert_str_eq(r.ops[n].name, "0");
	ck_assert_str_eq(r.ops[n + 1].name, "join");
	rec_free(&r);
	unlink(path);
}
END_TEST

/* A file is a var by its name; a task that both reads and writes it has one access. */
START_TEST(test_the_files_of_a_task)
{
#define FILES(id, in, out)							\
	"{\"id\": \"" id "\", \"inputFiles\": [" in "], \"outputFiles\": [" out "]}"
	struct recording r;
	u32 i;

	OK(loads(FLOW(FILES("a", "", "\"f\", \"g\"") "," FILES("b", "\"g\", \"g\"", "\"h\"") ","
		      FILES("c", "\"f\", \"h\"", "\"h\""), ""), &r));
	ck_assert_str_eq(ops_of(&r), "a w0 w1; b r1 w2; c r0 w2");
	ck_assert_uint_eq(r.nvars, 3);
	ck_assert_uint_eq(r.naccesses, 6);
	for (i = 0; i < r.nvars; i++) {
		ck_assert(r.vars[i].engine == 0 && r.vars[i].index == i && r.vars[i].gen == 1);
		ck_assert_uint_eq(r.vars[i].writes, i == 2 ? 2 : 1);
		ck_assert_uint_eq(r.vars[i].reads, i == 2 ? 0 : 1);
	}
	for (i = 0; i < r.naccesses; i++) {
		ck_assert(r.accesses[i].placed);
		ck_assert_uint_eq(r.accesses[i].version, i == 2 || i == 4 || i == 5);
	}
	rec_free(&r);
}
END_TEST

/* Runs without the name of a task do not count; each op begins when the one before has ended. */
START_TEST(test_the_times_of_tasks)
{
	static const u64 ends[] = { 0, 1500000000, 1500000000, 1750000000 };
	struct recording r;
	u32 i;

	OK(loads(FLOW(TASK("a", "") "," TASK("b", "") "," TASK("c", "") "," TASK("d", ""),
		      "{\"runtimeInSeconds\": 9}, {\"id\": 7, \"runtimeInSeconds\": 9},"
		      "{\"id\": \"d\", \"runtimeInSeconds\": 0.25, \"priority\": -7},"
		      "{\"id\": \"x\", \"runtimeInSeconds\": 9},"
		      "{\"id\": \"c\", \"runtimeInSeconds\": -1},"
		      "{\"id\": \"b\", \"runtimeInSeconds\": 1.5, \"priority\": 5}"), &r));
	ck_assert_uint_eq(r.nops, 4);
	for (i = 0; i < r.nops; i++) {
		const struct rec_op *o = &r.ops[i];

		ck_assert(o->begun && o->ended && !o->undone && o->parent == REC_NONE);
		ck_assert_uint_eq(o->index, i);
		ck_assert_uint_eq(o->push, i);
		ck_assert_uint_eq(o->begin, i ? ends[i - 1] : 0);
		ck_assert_uint_eq(o->end, ends[i]);
		ck_assert_int_eq(o->priority, i == 1 ? 5 : i == 3 ? -7 : 0);
	}
	ck_assert_uint_eq(r.length, 1750000000);
	ck_assert(r.threads == 1 && r.ended && r.whole == r.bytes && r.bytes > 100);
	ck_assert_str_eq(r.format, "wfformat");
	rec_free(&r);
}
END_TEST

/* A time counts if it is a number below 1e9 s. */
START_TEST(test_the_longest_time_of_a_task)
{
	static const struct { const char *seconds; u64 ns; } list[] = {
		{ "999999999", 999999999000000000 }, { "1e9", 0 }, { "1000000001", 0 },
		{ "\"1\"", 0 }, { "1e-9", 1 }, { "0", 0 },
	};
	struct recording r;
	char json[256];
	u32 i;

	for (i = 0; i < COUNT(list); i++) {
		snprintf(json, sizeof(json), FLOW(TASK("a", ""),
			 "{\"id\": \"a\", \"runtimeInSeconds\": %s}"), list[i].seconds);
		OK(loads(json, &r));
		ck_assert_msg(r.ops[0].end == list[i].ns, "%s", list[i].seconds);
		ck_assert_uint_eq(r.nonsense, i == 1 || i == 2);
		rec_free(&r);
	}
}
END_TEST

#define EVENT(ph, tid, ts, more) \
	"{\"ph\": \"" ph "\", \"tid\": " #tid ", \"ts\": " ts more "}"

/* An event with a duration is a slice, and so are a begin and an end.  What is neither is counted. */
START_TEST(test_the_events_of_chrome)
{
	static const struct { const char *events; u32 ops, nonsense; u64 ns; } list[] = {
		{ EVENT("X", 1, "1", ", \"dur\": 2"), 1, 0, 2000 },
		{ EVENT("X", 1, "-3", ", \"dur\": 2") "," EVENT("X", 1, "0.5", ""), 2, 0, 2000 },
		{ EVENT("X", 1, "1", ", \"dur\": -1") "," EVENT("X", 1, "1", ", \"dur\": \"1\"") ","
		  EVENT("X", 1, "\"1\"", ", \"dur\": 1") "," EVENT("X", 1, "1e300", ""), 0, 4, 0 },
		/* the inner one of thread 1, and that of thread 2 */
		{ EVENT("B", 1, "1", "") "," EVENT("B", 2, "2", "") "," EVENT("B", 1, "3", "") ","
		  EVENT("E", 1, "7", "") "," EVENT("E", 1, "9", "") "," EVENT("E", 2, "8", ""),
		  2, 0, 10000 },
		{ EVENT("E", 1, "1", "") "," EVENT("B", 1, "2", "") "," EVENT("E", 2, "3", ""), 0, 3, 0 },
		{ EVENT("B", 1, "5", "") "," EVENT("E", 1, "4", ""), 0, 1, 0 },
		/* none of them is a slice of a thread */
		{ EVENT("b", 1, "1", "") "," EVENT("i", 1, "1", "") "," EVENT("C", 1, "\"\"", ""), 0, 0, 0 },
	};
	struct recording r;
	char json[1024];
	u32 i;

	for (i = 0; i < COUNT(list); i++) {
		snprintf(json, sizeof(json), "{\"traceEvents\": [%s]}", list[i].events);
		OK(loads(json, &r));
		ck_assert_str_eq(r.format, "chrome");
		ck_assert_msg(r.nops == list[i].ops && r.nonsense == list[i].nonsense &&
			      r.length == list[i].ns, "%u: %zu ops, %llu, %llu ns", i, r.nops,
			      (unsigned long long)r.nonsense, (unsigned long long)r.length);
		rec_free(&r);
	}
}
END_TEST

/* What nests as deep as a file can say is refused: what is done per level would not end. */
START_TEST(test_how_deep_slices_nest)
{
	char *path = temp_path();
	struct recording r;
	u32 i, depth;
	FILE *f;

	for (depth = 10000; depth <= 10001; depth++) {
		f = fopen(path, "w");
		MUST(f);
		fputs("[", f);
		for (i = 0; i < depth; i++)
			fprintf(f, "%s{\"ph\": \"X\", \"ts\": %u, \"dur\": %u}", i ? ", " : "", i,
				2 * (depth - i));
		fputs("]", f);
		MUST(!fclose(f));
		if (depth == 10000) {
			load(path, &r);
			ck_assert_uint_eq(r.nops, 1);
			rec_free(&r);
		} else {
			ck_assert_int_eq(workload_load(path, &r, text, sizeof(text)), -EBADMSG);
			ck_assert_msg(strstr(text, "nests more than 10000 deep") != NULL, "%s", text);
		}
	}
	unlink(path);
}
END_TEST

/* The message is the file's name, the reason, and which task it is, if it is one. */
START_TEST(test_what_is_said_of_a_workload_that_is_refused)
{
	static const struct { const char *json, *says; } list[] = {
		{ FLOW(TASK("a", "\"b\"") "," TASK("b", "\"a\""), ""),
		  ": tasks wait for each other" },
		{ FLOW("{\"id\": \"a\"}, {\"parents\": []}", ""), ": a task without an id" },
		{ FLOW("{\"id\": 7}", ""), ": a task without an id" },
		{ FLOW(TASK("a", "") "," TASK("b", "") "," TASK("a", ""), ""),
		  ": two tasks of one id: a" },
		{ FLOW(TASK("a", "") "," TASK("b", "\"a\", \"c\""), ""),
		  ": a parent that is no task: c" },
		{ FLOW(TASK("a", "7"), ""), ": a parent that is no task" },
		{ FLOW("{\"id\": \"a\", \"inputFiles\": {}}", ""),
		  ": the files of a task are no list: a" },
		{ FLOW("{\"id\": \"a\", \"outputFiles\": \"f\"}", ""),
		  ": the files of a task are no list: a" },
		/* later files without a mistake change nothing */
		{ FLOW("{\"id\": \"a\", \"inputFiles\": 1, \"outputFiles\": [\"f\"]}", ""),
		  ": the files of a task are no list: a" },
		{ FLOW("{\"id\": \"b\", \"inputFiles\": [1, \"f\"]}," TASK("c", ""), ""),
		  ": a file without a name, of task: b" },
		{ FLOW("{\"id\": \"a\", \"inputFiles\": [[]]}", ""),
		  ": a file without a name, of task: a" },
		{ "{\"workflow\": {}}", ": no workflow.specification.tasks" },
		{ "{\"nodes\": [{\"id\": 1.5}]}", ": a node without an id" },
		{ "{\"nodes\": [{\"id\": 1}, {\"id\": 2}, {\"id\": 1}]}", ": two nodes of one id" },
		{ "{\"nodes\": [{\"id\": 1, \"parent\": 2}, {\"id\": 2, \"parent\": 1}]}",
		  ": nodes contain each other" },
		{ "{\"nodes\": {}}",
		  ": neither a recording, nor WfFormat, nor a trace of PyTorch or Chrome" },
		{ "{\"workflow\": [], \"node\": []}",
		  ": neither a recording, nor WfFormat, nor a trace of PyTorch or Chrome" },
	};
	char *path = temp_path(), want[256];
	struct recording r;
	u32 i;

	for (i = 0; i < COUNT(list); i++) {
		write_file(path, list[i].json, strlen(list[i].json));
		ck_assert_int_eq(workload_load(path, &r, text, sizeof(text)), -EBADMSG);
		snprintf(want, sizeof(want), "%s%s", path, list[i].says);
		ck_assert_str_eq(text, want);
		/* nothing of it remains */
		ck_assert(!r.ops && !r.vars && !r.accesses && !r.nops);
	}
	/* three bytes of a recording's four are none of a recording, and so is nothing */
	for (i = 0; i < 2; i++) {
		write_file(path, "PWR", i ? 3 : 0);
		ck_assert_int_eq(workload_load(path, &r, text, sizeof(text)), -EBADMSG);
		ck_assert_msg(strstr(text, ": line 1, column ") != NULL, "%s", text);
	}
	MUST(!unlink(path));
	ck_assert_int_eq(workload_load(path, &r, text, sizeof(text)), -ENOENT);
	snprintf(want, sizeof(want), "%s: No such file or directory", path);
	ck_assert_str_eq(text, want);
	ck_assert_int_eq(workload_load("/", &r, text, sizeof(text)), -EBADMSG);
	ck_assert_str_eq(text, "/: cannot read, or damaged compression");
}
END_TEST

/* A workflow beside nodes is a workflow; nodes may be none. */
START_TEST(test_which_format_a_file_has)
{
	struct recording r;

	OK(loads("{\"workflow\": {\"specification\": {\"tasks\": []}}, \"nodes\": []}", &r));
	ck_assert_str_eq(r.format, "wfformat");
	rec_free(&r);
	OK(loads("{\"workflow\": 1, \"nodes\": []}", &r));
	ck_assert_str_eq(r.format, "pytorch-et");
	ck_assert_uint_eq(r.nops, 0);
	rec_free(&r);
}
END_TEST

/* Of files whose size is that of a buffer, or one more or less, every byte is read. */
START_TEST(test_files_of_the_size_of_a_buffer)
{
	static const char tail[] = "{\"nodes\": [" NODE(1, "\"parent\": 0") "]}";
	char *path = temp_path(), *json;
	struct recording r;
	size_t n, size;

	for (size = 65536; size <= 131072; size *= 2) {
		for (n = size - 1; n <= size + 1; n++) {
			json = malloc(n);
			MUST(json);
			memset(json, ' ', n);
			memcpy(json + n - (sizeof(tail) - 1), tail, sizeof(tail) - 1);
			write_file(path, json, n);
			free(json);
			ck_assert_msg(!workload_load(path, &r, text, sizeof(text)), "%s", text);
			ck_assert_uint_eq(r.bytes, n);
			ck_assert_str_eq(ops_of(&r), "1 r0");
			rec_free(&r);
		}
	}
	unlink(path);
}
END_TEST

SUITE("workload", test_the_events_of_chrome, test_how_deep_slices_nest,
      test_a_list_of_tensors_is_written_as_a_whole, test_the_longest_time_of_a_task,
      test_an_operator_that_another_one_names_as_its_parent_is_no_op,
      test_an_operator_that_contains_only_light_ones_is_the_op,
      test_parents_are_found_in_any_order, test_which_values_are_tensors,
      test_which_arguments_a_schema_marks_as_written, test_where_the_schema_of_an_operator_is,
      test_a_result_that_is_a_view_of_an_argument_is_read, test_a_task_comes_after_its_parents,
      test_parents_that_no_file_implies, test_a_workflow_of_any_size,
      test_the_files_of_a_task, test_the_times_of_tasks,
      test_what_is_said_of_a_workload_that_is_refused, test_which_format_a_file_has,
      test_files_of_the_size_of_a_buffer)
