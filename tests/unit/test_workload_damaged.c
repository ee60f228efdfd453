// SPDX-License-Identifier: Apache-2.0
/*
 * tools/pawl/workload.c and the commands that read workloads: memory is refused, or a file is too
 * large or makes no sense.  Each reports the error, and leaves neither memory nor an open file.
 */
#include "recordings.h"
#include "no_memory.h"
#include <jansson.h>
#include <zlib.h>
#include <tools/pawl/cmd.h>
#include <tools/pawl/replay.h>

/* --- a file of any size that does not exist --- */

int __real_gzread(gzFile f, void *p, unsigned int n);
int __wrap_gzread(gzFile f, void *p, unsigned int n);

static bool faked;			/* gzread() returns bytes of that file: a text that does not end */
static size_t remaining;		/* its bytes that were not read yet */
static bool first;			/* none was read */

int __wrap_gzread(gzFile f, void *p, unsigned int n)
{
	if (!faked)
		return __real_gzread(f, p, n);
	if (n > remaining)
		n = (unsigned int)remaining;
	remaining -= n;
	if (first)
		memcpy(p, "[\"", 2);
	first = false;
	return (int)n;
}

/*
 * Write 70 ops in a row, each with its own var, and the first one with two.  They are too many for
 * the first allocation of each table.
 */
static void workload_write(const char *path, bool torch)
{
	FILE *f = fopen(path, "w");
	u32 i;

	MUST(f);
	fputs(torch ? "{\"nodes\": [{\"id\": 1}" :
	      "{\"workflow\": {\"specification\": {\"tasks\": ["
	      "{\"id\": \"1\", \"outputFiles\": [\"1\", \"0\"]}", f);
	for (i = 2; i <= 71; i++)
		if (torch)
			fprintf(f, ", {\"id\": %u, \"name\": \"op\","
				" \"inputs\": [[[%u, 0, 0, 4, 4, \"cpu\"],"
				" [%u, 9, 0, 4, 4, \"cpu\"]]],"
				" \"outputs\": [[%u, 0, 0, 4, 4, \"cpu\"]]}", i, i - 1, i, i);
		else if (i < 71)
			fprintf(f, ", {\"id\": \"%u\", \"parents\": [\"%u\", \"1\"],"
				" \"outputFiles\": [\"%u\"]}", i, i - 1, i);
	fputs(torch ? "]}" : "]}}}", f);
	MUST(!fclose(f));
}

/* If there is no memory for the name of an op, the op has no name. */
START_TEST(test_a_workload_without_memory_to_read_it_is_refused)
{
	size_t n, nvars = 0, nedges = 0;
	char *path = temp_path(), none[128], order_of_ops[128], edges[128];
	struct recording r;
	u32 k, step, torch, *order, before, seen[3];
	bool refused;
	int rc, fd = next_fd();

	json_set_alloc_funcs(__wrap_malloc, __wrap_free);
	snprintf(none, sizeof(none), "%s: no memory", path);
	snprintf(order_of_ops, sizeof(order_of_ops), "%s: no memory for the order of 70 ops", path);
	for (torch = 0; torch < 2; torch++) {
		memset(seen, 0, sizeof(seen));
		/* 69 steps of a thread, and 138 parents, or 69 reads of what was written */
		snprintf(edges, sizeof(edges), "%s: no memory for %u edges", path,
			 torch ? 69 + 69 : 69 + 138);
		workload_write(path, torch);
		for (k = 1, step = 16, refused = true; refused; k += step) {
			before = load_relaxed(&live);
			text[0] = 0;
			refuse_in = k;
			rc = workload_open(path, &r, &order, &n, text, sizeof(text));
			refused = !refuse_in;
			refuse_in = 0;
			if (!rc) {
				nvars = r.nvars;
				nedges = r.nedges;
				free(order);
				rec_free(&r);
			}
			before -= load_relaxed(&live);
			ck_assert_msg(!before, "%u: a leak", k);
			if (rc == -ENOMEM) {
				bool same[] = { !strcmp(text, none), !strcmp(text, order_of_ops),
						!strcmp(text, edges) };

				ck_assert_msg(same[0] || same[1] || same[2], "%u: %s", k, text);
				seen[same[1] ? 1 : same[2] ? 2 : 0]++;
			} else if (rc) {
				ck_assert_msg(rc == -EBADMSG, "%u: %d", k, rc);
				ck_assert_msg(strstr(text, path) != NULL, "%u: %s", k, text);
			} else {
				ck_assert_uint_eq(n, 70);
				ck_assert_uint_eq(nvars, torch ? 72 : 71);
				ck_assert_uint_eq(nedges, torch ? 0 : 138);
			}
			/* the parser allocates first; only every 16th of its calls is refused */
			if (k > 1 && step > 1 && rc != -EBADMSG) {
				k -= step;
				step = 1;
			}
		}
		ck_assert_uint_gt(k, 1000);
		ck_assert(seen[0] > 100 && seen[1] == 4 && seen[2] == 1);
		OK(rc);
	}
	ck_assert_int_eq(next_fd(), fd);
	unlink(path);
}
END_TEST

/* The limit is 1 GiB for one value, after decompression.  A smaller file may be too large for the memory. */
START_TEST(test_a_file_that_is_too_large_is_refused)
{
	static const size_t bytes[] = { ((size_t)1 << 30) + 5, ((size_t)1 << 30) - 1, 1 << 16 };
	static const int codes[] = { -EFBIG, -EBADMSG, -ENOMEM };
	static const char *const says_of[] = { "more than 1073741824 bytes", "line 1, column ",
					       "no memory" };
	char *path = temp_path(), want[128];
	int rc, fd = next_fd();
	struct recording r;
	u32 i, before;

	faked = true;
	/* the address sanitizer would touch all of the memory */
	for (i = SANITIZED ? 2 : 0; i < 3; i++) {
		remaining = bytes[i];
		first = true;
		refuse_in = i == 2 ? 2 : 0;
		before = load_relaxed(&live);
		rc = workload_load(path, &r, text, sizeof(text));
		before -= load_relaxed(&live);
		ck_assert_int_eq(rc, codes[i]);
		ck_assert_uint_eq(before, 0);
		ck_assert(!refuse_in);
		snprintf(want, sizeof(want), "%s: %s", path, says_of[i]);
		ck_assert_msg(strstr(text, want) == text, "%s", text);
	}
	faked = false;
	ck_assert_int_eq(next_fd(), fd);
	unlink(path);
}
END_TEST

#define TASKS(list)	"{\"workflow\": {\"specification\": {\"tasks\": " list "}}}"

START_TEST(test_a_workload_that_makes_no_sense_is_refused)
{
	static const char gzip[] = { 31, '\x8b', 8, 0, 0, 0, 0, 0, 0, 3, 1, 0 };
	static const struct { const char *contents, *says; } list[] = {
		{ gzip, "damaged compression" }, { "{", "line 1, column 1: " },
		{ "{\"workflow\": 1}", "neither a recording" }, { "[]", "neither a recording" },
		{ TASKS("1"), "no workflow.specification.tasks" },
		{ TASKS("[{}]"), "a task without an id" },
		{ TASKS("[{\"id\": \"a\"}, {\"id\": \"a\"}]"), "two tasks of one id: a" },
		{ TASKS("[{\"id\": \"a\", \"parents\": [1]}]"), "a parent that is no task" },
		{ TASKS("[{\"id\": \"a\", \"parents\": [\"b\"]}]"), "a parent that is no task: b" },
		{ TASKS("[{\"id\": \"a\", \"parents\": [\"a\"]}]"), "tasks wait for each other" },
		{ TASKS("[{\"id\": \"a\", \"inputFiles\": 1}]"),
		  "the files of a task are no list: a" },
		{ TASKS("[{\"id\": \"a\", \"outputFiles\": [\"f\", 1]}]"),
		  "a file without a name, of task: a" },
		{ "{\"nodes\": [{\"id\": 1}, {}]}", "a node without an id" },
	};
	char *path = temp_path();
	struct recording r;
	u32 i, before;
	int rc;

	for (i = 0; i < COUNT(list); i++) {
		write_file(path, list[i].contents, list[i].contents == gzip ? sizeof(gzip) :
			   strlen(list[i].contents));
		before = load_relaxed(&live);
		rc = workload_load(path, &r, text, sizeof(text));
		before -= load_relaxed(&live);
		ck_assert_msg(rc == -EBADMSG, "%u: %d", i, rc);
		ck_assert_msg(strstr(text, list[i].says) != NULL, "%u: %s", i, text);
		ck_assert_msg(!before, "%u: a leak", i);
	}
	unlink(path);
}
END_TEST

/* The first engine of a thread, and its first error, allocate memory that stays for the next. */
static void engine_first(void)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);

	OK(pawl_engine_destroy(e));
	FAILS(pawl_engine_create(NULL, NULL), -EINVAL);
}

/* A replay of a workload with edges succeeds, or reports that there is no memory. */
START_TEST(test_a_replay_without_memory_is_refused)
{
	struct replay_options o = { .workers = 0 };
	struct replay_result res;
	char *path = temp_path();
	struct recording r;
	u32 k, *order, before;
	bool refused = true;
	size_t n;
	int rc;

	workload_write(path, false);
	OK(workload_open(path, &r, &order, &n, text, sizeof(text)));
	unlink(path);
	engine_first();
	for (k = 1; refused; k++) {
		before = load_relaxed(&live);
		text[0] = 0;
		refuse_in = k;
		rc = replay_run(&r, order, n, &o, &res, text, sizeof(text));
		refused = !refuse_in;
		refuse_in = 0;
		before -= load_relaxed(&live);
		ck_assert_msg(!before, "%u: a leak", k);
		if (rc) {
			ck_assert_msg(rc == -ENOMEM && *text && res.ops < 70, "%u: %d %s", k, rc, text);
		} else {
			ck_assert(res.ops == 70 && res.edges == 138 && !res.wrong);
		}
	}
	ck_assert_uint_gt(k, 70);
	free(order);
	rec_free(&r);
}
END_TEST

/*
 * Run a command, and refuse the allocation with this number; 0: none.  Returns the exit status.
 * The caller frees what the command printed.
 */
static int command(int (*cmd)(int argc, char **argv), char *what, char *path, u32 refuse_at,
		   char **out, char **err)
{
	char self[] = "pawl it", *argv[] = { self, what, path, NULL };
	FILE *was = stdout, *was_err = stderr;
	size_t n;
	int rc;

	stdout = open_memstream(out, &n);
	stderr = open_memstream(err, &n);
	MUST(stdout && stderr);
	refuse_in = refuse_at;
	rc = cmd(3, argv);
	MUST(!fclose(stdout) && !fclose(stderr));
	stdout = was;
	stderr = was_err;
	return rc;
}

/* A command reports an error, or prints its whole text, except figures that need memory. */
START_TEST(test_a_command_without_memory)
{
	static char info[] = "info", dump[] = "dump", json[] = "json", workers[] = "-w0";
	static const struct {
		int (*cmd)(int argc, char **argv);
		char *what;
		const char *ends;
	} list[] = {
		{ cmd_record, info, "\norder      serial order of 1 ops found\n" },
		{ cmd_record, dump, "0.000 0 0 \"a\" normal 0 0 w0@0\n" },
		{ cmd_record, json, "],\n\"waits\":[]}\n" },
		{ cmd_replay, workers, ": order kept\n" },
	};
	static const char task[] = TASKS("[{\"id\": \"a\", \"outputFiles\": [\"f\"]}]");
	char *path = temp_path(), *out, *err, *at;
	u32 i, k, before;
	bool refused;
	int rc;

	json_set_alloc_funcs(__wrap_malloc, __wrap_free);
	write_file(path, task, strlen(task));
	engine_first();
	ck_assert_int_eq(command(cmd_replay, workers, path, 0, &out, &err), STATUS_OK);
	for (i = 0; i < COUNT(list); i++) {
		for (k = 1, refused = true; refused; k++) {
			free(out);
			free(err);
			before = load_relaxed(&live);
			rc = command(list[i].cmd, list[i].what, path, k, &out, &err);
			before -= load_relaxed(&live);
			refused = !refuse_in;
			refuse_in = 0;
			ck_assert_msg(!before, "%s, %u: a leak", list[i].what, k);
			ck_assert_msg(rc == (*err ? STATUS_FAILED : STATUS_OK), "%s, %u: %d",
				      list[i].what, k, rc);
			ck_assert_msg(!*err || strstr(err, "pawl it: ") == err, "%s, %u: %s",
				      list[i].what, k, err);
			at = strstr(out, list[i].ends);
			/* the name is left out if there is no memory for it */
			if (i == 1 && !at)
				at = strstr(out, "0.000 0 0 \"\" normal 0 0 w0@0\n");
			ck_assert_msg(*err ? !*out : at && at[strlen(at) - 1] == '\n',
				      "%s, %u: %s", list[i].what, k, out);
		}
		ck_assert_uint_gt(k, 10);
		ck_assert(!*err);
	}
	free(out);
	free(err);
	unlink(path);
}
END_TEST

SUITE("workload_damaged", test_a_workload_without_memory_to_read_it_is_refused,
      test_a_file_that_is_too_large_is_refused, test_a_workload_that_makes_no_sense_is_refused,
      test_a_replay_without_memory_is_refused, test_a_command_without_memory)
