// SPDX-License-Identifier: Apache-2.0
/* tools/pawl/reccmd.c: what pawl record says of a recording. */
#include "recordings.h"
#include <tools/pawl/cmd.h>
#include <tools/pawl/flow.h>

static char *said_once(const char *what, const unsigned char *data, size_t len)
{
	char self[] = "pawl record", *path = temp_path();
	char *argv[] = { self, (char *)what, path, NULL };
	FILE *was = stdout;
	char *out = NULL;
	size_t n;

	write_file(path, data, len);
	stdout = open_memstream(&out, &n);
	MUST(stdout);
	MUST(!cmd_record(3, argv) && !fclose(stdout));
	stdout = was;
	unlink(path);
	return out;
}

/* What pawl record says of a file with these bytes, read as a whole and as a large one. */
static char *said(const char *what, const unsigned char *data, size_t len)
{
	uint64_t was = flow_min;
	char *out = said_once(what, data, len), *flow, *line;

	flow_min = 0;
	flow = said_once(what, data, len);
	flow_min = was;
	/* The names of the files differ, and waits are in the order of their ends. */
	ck_assert_uint_eq(strlen(out), strlen(flow));
	for (line = strtok(flow, "\n"); line; line = strtok(NULL, "\n")) {
		line[strlen(line) - (line[strlen(line) - 1] == ',')] = 0;
		ck_assert_msg(strstr(out, line) || !strncmp(line, "file ", 5) || strstr(line, "]}"),
			      "large: %s, not in %s", line, out);
	}
	free(flow);
	return out;
}

START_TEST(test_what_is_said_of_each_op)
{
	static const unsigned char events[] = {
		REC_NAME, 6, 'a', '"', '\\', 1, 0x7f, 0xe9,
		REC_PUSH, 10, 4, 2, 1, 2, 3, 0, 2, 0,
		REC_PUSH | REC_PUSH_PRIO | REC_PUSH_WHERE | REC_PUSH_ASYNC | REC_PUSH_MORE |
			REC_PUSH_EMPTY, 5, 2, 0, 0, 5, 2, 0, 1, 1, 3, 0,
		REC_PUSH | REC_PUSH_WHERE, 0, 2, 0, 0, 5 | REC_PROP_ENDS, 0, 0, 1, 5, 0,
		REC_PUSH | REC_PUSH_WHERE, 0, 2, 0, 0, 99, 0, 0, 1, 13, 0,
		REC_BEGIN, 10, 4, 2, 2, 1, 1, REC_END | REC_END_OPEN | REC_END_STATUS, 20, 9,
		REC_BEGIN, 5, 2, 0, 1, 2, REC_END, 10, 3, 1,
		REC_BEGIN, 5, 2, 0, 1, 1, REC_PUSH, 0, 2, 0, 0, 0, REC_END | REC_END_OPEN, 5,
		REC_WAIT | REC_WAIT_ALL, 0, REC_WAITED, 10, 9,
		REC_WAIT | REC_WAIT_WRITABLE, 0, 1, 0, REC_WAIT | REC_WAIT_READABLE, 0, 2, 0,
	};
	static const struct { const char *what, *ends; } says[] = {
		{ "info",
		  " for 4.000000 s\n"
		  "engine 0   \"pawl\", per-device, 1 workers, 1 devices\n"
		  "ops        5 pushed by 1 threads, 1 of them in bodies; 3 begun, 3 over, 1 "
		  "with an error, 0 refused\n"
		  "vars       3; 1 reads, 4 writes\n"
		  "waits      3\n"
		  "queued     p50 70000.000 us, p99 100000.000 us, max 100000.000 us\n"
		  "bodies     p50 20000.000 us, p99 40000.000 us, max 40000.000 us\n"
		  "work       0.070000 s, longest chain 0.060000 s: parallelism 1.17\n"
		  "order      serial order of 5 ops found\n" },
		{ "dump",
		  "# place op engine:thread push_us begin_us end_us runner status \"name\" prop "
		  "prio device accesses (r|w var@version)\n"
		  "0 0 0:7 20000.000 50000.000 90000.000 7 -5 \"a\\\"\\\\\\u0001\\u007f\\ufffd\" normal 0 0 w0@0 "
		  "r1@0\n"
		  "1 1 0:7 30000.000 100000.000 120000.000 7 0 \"\" "
		  "copy-to-device+async+empty+more -3 1 w0@1\n"
		  "2 2 0:7 30000.000 130000.000 140000.000 7 0 \"\" delete-var+ends 0 0 w1@0\n"
		  "3 3 0:7 30000.000 - - - - \"\" unknown 0 0 w2\n"
		  "4 4 0:7 130000.000 - - - - \"\" normal 0 0\n" },
		{ "json",
		  ",\"ended\":true,\"length_ns\":4000000000,\"lost\":0,\n"
		  "\"engines\":[{\"engine\":0,\"kind\":\"per-device\",\"workers\":1,"
		  "\"devices\":1}],\n"
		  "\"ops\":[\n"
		  "{\"op\":0,\"engine\":0,\"thread\":7,\"name\":\"a\\\"\\\\\\u0001\\u007f\\ufffd\","
		  "\"prop\":\"normal\",\"priority\":0,\"device\":0,\"async\":false,"
		  "\"more\":false,\"push_ns\":20000000,\"begin_ns\":50000000,\"runner\":7,"
		  "\"end_ns\":90000000,\"status\":-5,\"accesses\":[{\"var\":0,\"write\":true,"
		  "\"version\":0},{\"var\":1,\"write\":false,\"version\":0}]},\n"
		  "{\"op\":1,\"engine\":0,\"thread\":7,\"name\":\"\",\"prop\":\"copy-to-device\","
		  "\"priority\":-3,\"device\":1,\"async\":true,\"more\":true,"
		  "\"push_ns\":30000000,\"begin_ns\":100000000,\"runner\":7,\"end_ns\":120000000,"
		  "\"status\":0,\"accesses\":[{\"var\":0,\"write\":true,\"version\":1}]},\n"
		  "{\"op\":2,\"engine\":0,\"thread\":7,\"name\":\"\",\"prop\":\"delete-var\","
		  "\"priority\":0,\"device\":0,\"async\":false,\"more\":false,"
		  "\"push_ns\":30000000,\"begin_ns\":130000000,\"runner\":7,\"end_ns\":140000000,"
		  "\"status\":0,\"ends\":true,\"accesses\":[{\"var\":1,\"write\":true,"
		  "\"version\":0}]},\n"
		  "{\"op\":3,\"engine\":0,\"thread\":7,\"name\":\"\",\"prop\":\"unknown\","
		  "\"priority\":0,\"device\":0,\"async\":false,\"more\":false,"
		  "\"push_ns\":30000000,\"accesses\":[{\"var\":2,\"write\":true}]},\n"
		  "{\"op\":4,\"engine\":0,\"thread\":7,\"name\":\"\",\"prop\":\"normal\","
		  "\"priority\":0,\"device\":0,\"async\":false,\"more\":false,"
		  "\"push_ns\":130000000,\"parent\":2,\"accesses\":[]}],\n"
		  "\"waits\":[\n"
		  "{\"engine\":0,\"thread\":7,\"begin_ns\":140000000,\"after\":4,"
		  "\"end_ns\":160000000,\"status\":-5},\n"
		  "{\"engine\":0,\"thread\":7,\"begin_ns\":160000000,\"var\":0,\"write\":true,"
		  "\"after\":4},\n"
		  "{\"engine\":0,\"thread\":7,\"begin_ns\":160000000,\"var\":1,\"write\":false,"
		  "\"after\":4}]}\n" },
	};
	unsigned char *data;
	const char *at;
	char *out;
	size_t len;
	u32 i;

	data = sample(&len);
	len = with_events(data, len, events, sizeof(events), true);
	set_heads(data, len);
	for (i = 0; i < COUNT(says); i++) {
		out = said(says[i].what, data, len);
		at = strstr(out, says[i].ends);
		ck_assert_msg(at && !strcmp(at, says[i].ends), "not %s, but %s", says[i].ends, out);
		free(out);
	}
	free(data);
}
END_TEST

/* Another thread than the one that pushed it, in the second of two engines. */
START_TEST(test_who_pushed_and_who_ran_an_op)
{
	static const unsigned char pushes[] = { PUSH, REC_PUSH, 0, 2, 0, 0, 1, 3, 0 },
		runs[] = { BEGIN, REC_PUSH, 0, 8, 2, 0, 1, 5, 0, REC_UNDO, 4, 1, END,
			   REC_WAIT | REC_WAIT_ALL, 0 };
	const struct stream s[] = { { 1, 7, 1000, sizeof(pushes), pushes },
				    { 1, 9, 1100, sizeof(runs), runs } };
	static const struct { const char *what, *line; } says[] = {
		{ "info", "\nengine 1   \"pawl\", pooled, 3 workers, 5 devices\n" },
		{ "info", "\nops        2 pushed by 2 threads, 0 of them in bodies; 1 begun, 1 over, "
			  "0 with an error, 1 refused\n" },
		{ "dump", "\n0 0 1:7 0.000 200000.000 200000.000 9 0 \"\" normal 0 0 w0@0\n"
			  "1 1 1:7 0.000 - - - - \"\" normal 0 0 w0\n" },
		{ "json", "{\"engine\":1,\"kind\":\"pooled\",\"workers\":3,\"devices\":5}]" },
		{ "json", "{\"op\":0,\"engine\":1,\"thread\":7," },
		{ "json", "\"waits\":[\n{\"engine\":1,\"thread\":9,\"begin_ns\":200000000," },
		{ "json", "\"push_ns\":0,\"begin_ns\":200000000,\"runner\":9,\"end_ns\":200000000," },
	};
	unsigned char *data, *head;
	char *out;
	size_t len;
	u32 i;

	data = with_streams(s, 2, 2, &len);
	head = chunk(data, len, REC_CHUNK_ENGINE, 1);
	head[REC_HEAD] = 1;
	head[REC_HEAD + 4] = 3;
	head[REC_HEAD + 16] = 5;
	seal(data, len);
	for (i = 0; i < COUNT(says); i++) {
		out = said(says[i].what, data, len);
		ck_assert_msg(strstr(out, says[i].line) != NULL, "no %s in %s", says[i].line, out);
		free(out);
	}
	free(data);
}
END_TEST

/* The JSON of a recording with these events has the lines. */
static void json_has(const unsigned char *events, u32 nevents, const char *const *lines, u32 n)
{
	unsigned char *data;
	char *out;
	size_t len;
	u32 i;

	data = sample(&len);
	len = with_events(data, len, events, nevents, true);
	set_heads(data, len);
	out = said("json", data, len);
	for (i = 0; i < n; i++)
		ck_assert_msg(strstr(out, lines[i]) != NULL, "no %s in %s", lines[i], out);
	free(out);
	free(data);
}

/* Op 0, var 0 and status 0 are as any other; a wait before the first push is after none. */
START_TEST(test_what_has_the_number_0_is_said)
{
	static const unsigned char events[] = {
		REC_WAIT | REC_WAIT_ALL, 0, REC_WAITED, 0, 0, PUSH, BEGIN,
		REC_PUSH, 0, 2, 0, 0, 0,
		REC_WAIT | REC_WAIT_READABLE, 0, 1, 0, REC_WAITED, 0, 0 };
	static const char *const lines[] = {
		"\"waits\":[\n{\"engine\":0,\"thread\":7,\"begin_ns\":0,"
		"\"end_ns\":0,\"status\":0},\n",
		",\n{\"engine\":0,\"thread\":7,\"begin_ns\":0,\"var\":0,\"write\":false,"
		"\"after\":1,\"end_ns\":0,\"status\":0}]}",
		"\"parent\":0,\"accesses\":[]}" };
	static const unsigned char alone[] = { PUSH, REC_WAIT | REC_WAIT_ALL, 0 };
	unsigned char *data;
	char *out;
	size_t len;

	json_has(events, sizeof(events), lines, COUNT(lines));
	data = sample(&len);
	len = with_events(data, len, alone, sizeof(alone), true);
	set_heads(data, len);
	out = said("json", data, len);
	ck_assert_msg(strstr(out, "\"begin_ns\":0,\"after\":0}]}") != NULL, "%s", out);
	free(out);
	free(data);
}
END_TEST

/* A refused op, one that fails, the end of one that was pushed before, and a wait. */
START_TEST(test_info_counts_the_events)
{
	static const unsigned char events[] = {
		PUSH, UNDO, REC_PUSH, 0, 0, 2, 0, 0, REC_BEGIN, 0, 4, 4, 0,
		REC_END | REC_END_STATUS, 0, 2, 2, 9, REC_END, 0, 3, 1,
		REC_WAIT | REC_WAIT_ALL, 0, REC_WAITED, 0, 0 };
	static const char *const lines[] = {
		"\nops        1 pushed by 1 threads, 0 of them in bodies; 1 begun, 1 over, ",
		" 1 over, 1 with an error, 1 refused\n", "\nvars       1; 0 reads, 1 writes\n",
		"\nwaits      1\n",
		"\nothers     1 events of ops that were pushed before\n",
		"\nqueued     p50 0.000 us", "\nbodies     p50 0.000 us",
		"\norder      serial order of 1 ops found\n" };
	unsigned char *data;
	char *out;
	size_t len;
	u32 i;

	data = sample(&len);
	len = with_events(data, len, events, sizeof(events), true);
	out = said("info", data, len);
	for (i = 0; i < COUNT(lines); i++)
		ck_assert_msg(strstr(out, lines[i]) != NULL, "no %s in %s", lines[i], out);
	free(out);
	free(data);
}
END_TEST

/* A wait inside a body that runs inside a wait ends first; each has its own end. */
START_TEST(test_waits_inside_waits)
{
	static const unsigned char events[] = {
		REC_WAIT | REC_WAIT_ALL, 10, REC_WAIT | REC_WAIT_READABLE, 10, 1, 0,
		REC_WAIT | REC_WAIT_WRITABLE, 10, 2, 0,
		REC_WAITED, 10, 9, REC_WAITED, 10, 0, REC_WAITED, 10, 3,
	};
	static const char *const lines[] = {
		"\"begin_ns\":20000000,\"end_ns\":120000000,\"status\":-2},\n",
		"\"begin_ns\":40000000,\"var\":0,\"write\":false,\"end_ns\":100000000,"
		"\"status\":0},\n",
		"\"begin_ns\":60000000,\"var\":1,\"write\":true,\"end_ns\":80000000,"
		"\"status\":-5}]}",
	};

	json_has(events, sizeof(events), lines, COUNT(lines));
}
END_TEST

/* Two clocks that differ: an op that begins before its push was queued for no time. */
START_TEST(test_an_op_is_not_queued_for_less_than_no_time)
{
	static const unsigned char pushes[] = { PUSH, REC_PUSH, 0, 2, 0, 0, 0 },
		runs[] = { BEGIN, REC_END | REC_END_OPEN, 10, REC_BEGIN, 130, 1, 2, 0, 0,
			   REC_END | REC_END_OPEN, 30 };
	const struct stream s[] = { { 0, 7, 1100, sizeof(pushes), pushes },
				    { 0, 9, 1000, sizeof(runs), runs } };
	unsigned char *data;
	char *out;
	size_t len;

	data = with_streams(s, 2, 1, &len);
	out = said("info", data, len);
	ck_assert_msg(strstr(out, "\nqueued     p50 80000.000 us, p99 80000.000 us, max "
			     "80000.000 us\nbodies     p50 60000.000 us") != NULL, "%s", out);
	free(out);
	free(data);
}
END_TEST

/* How often each var was read and written, by ops that began or did not. */
START_TEST(test_accesses_of_each_var_are_counted)
{
	static const unsigned char events[] = {
		REC_PUSH, 0, 4, 2, 0, 2, 2, 0, 3, 0, REC_PUSH, 0, 2, 0, 0, 2, 2, 0, 2, 0,
		REC_BEGIN, 0, 4, 2, 2, 1, 1,
	};
	static const unsigned char unknown[] = {
		REC_PUSH, 0, 4, 2, 0, 2, 2, 0, 3, 0, REC_BEGIN, 0, 4, 2, 2, 0, 5,
	};
	unsigned char *data;
	struct recording r;
	size_t len;

	data = sample(&len);
	len = with_events(data, len, events, sizeof(events), true);
	OK(rec_parse("test", data, len, &r, text, sizeof(text)));
	ck_assert_uint_eq(r.nvars, 2);
	ck_assert_uint_eq(r.vars[0].reads, 2);
	ck_assert_uint_eq(r.vars[0].writes, 0);
	ck_assert_uint_eq(r.vars[1].reads, 1);
	ck_assert_uint_eq(r.vars[1].writes, 1);
	rec_free(&r);
	free(data);
	/* When the op began, nothing was known of the first var. */
	data = sample(&len);
	len = with_events(data, len, unknown, sizeof(unknown), true);
	OK(rec_parse("test", data, len, &r, text, sizeof(text)));
	ck_assert(!r.accesses[0].placed && r.accesses[1].placed);
	ck_assert_uint_eq(r.accesses[1].version, 4);
	ck_assert(r.vars[0].first == UINT64_MAX && r.vars[1].first == 4);
	rec_free(&r);
	free(data);
}
END_TEST

/* As many ops as a table has places, and the end of another op, which is in none of them. */
START_TEST(test_an_event_of_an_op_that_was_not_pushed)
{
	static const unsigned char push[] = { REC_PUSH, 0, 2, 0, 0, 0 },
		end[] = { REC_END, 0, 1, 5 };
	unsigned char events[256 * 6 + 8];
	struct stream s = { 0, 7, 1000, 0, events };
	unsigned char *data;
	struct recording r;
	size_t len;
	u32 n, i;

	for (n = 32; n <= 256; n *= 2) {
		for (i = 0; i < n; i++)
			memcpy(&events[i * 6], push, 6);
		memcpy(&events[n * 6], end, 4);
		memcpy(&events[n * 6 + 4], end, 4);
		s.n = n * 6 + 8;
		data = with_streams(&s, 1, 1, &len);
		OK(rec_parse("test", data, len, &r, text, sizeof(text)));
		ck_assert_uint_eq(r.nops, n);
		ck_assert_uint_eq(r.foreign, 2);
		rec_free(&r);
		free(data);
	}
}
END_TEST

/* The names of the library and of the program have up to 127 bytes; what is longer is cut. */
START_TEST(test_long_names_at_the_start)
{
	static const u32 sizes[] = { 0, 1, 127, 128, 255 };
	unsigned char *from, data[1024], *p;
	struct recording r;
	size_t len;
	u32 i, n;

	from = sample(&len);
	for (i = 0; i < COUNT(sizes); i++) {
		n = sizes[i];
		memset(data, 0, sizeof(data));
		memcpy(data, from, REC_HEAD + 16);
		p = data + REC_HEAD + 16;
		*p++ = (unsigned char)(255 - n);
		memset(p, 'l', 255 - n);
		p += 255 - n;
		*p++ = (unsigned char)n;
		memset(p, 'p', n);
		set_bytes(data, 16 + 1 + 255 - n + 1 + n);
		len = chunk_size(data);
		seal(data, len);
		OK(rec_parse("test", data, len, &r, text, sizeof(text)));
		ck_assert_uint_eq(strlen(r.library), min_u(255 - n, 127));
		ck_assert_uint_eq(strspn(r.library, "l"), min_u(255 - n, 127));
		ck_assert_uint_eq(strlen(r.program), min_u(n, 127));
		ck_assert_uint_eq(strspn(r.program, "p"), min_u(n, 127));
		rec_free(&r);
	}
	free(from);
}
END_TEST

/* A name ends where the file says, whatever was in that memory before. */
START_TEST(test_names_of_ops_are_whole)
{
	static const unsigned char events[] = {
		REC_NAME, 1, 'a', REC_NAME, 0,
		REC_NAME, 9, 'l', 'o', 'n', 'g', ' ', 'n', 'a', 'm', 'e',
		REC_PUSH, 0, 4, 2, 2, 0, REC_PUSH, 0, 2, 0, 3, 0, REC_PUSH, 0, 2, 0, 1, 0,
		REC_PUSH, 0, 2, 0, 0, 0 };
	static const char *const names[] = { "", "long name", "a", "" };
	unsigned char *data;
	void *used[32];
	struct recording r;
	size_t len;
	u32 i;

	data = sample(&len);
	len = with_events(data, len, events, sizeof(events), true);
	for (i = 0; i < COUNT(used); i++) {
		used[i] = malloc(24);
		MUST(used[i]);
		memset(used[i], 'x', 24);
	}
	for (i = 0; i < COUNT(used); i++)
		free(used[i]);
	OK(rec_parse("test", data, len, &r, text, sizeof(text)));
	ck_assert_uint_eq(r.nops, COUNT(names));
	for (i = 0; i < COUNT(names); i++)
		ck_assert_str_eq(r.ops[i].name, names[i]);
	rec_free(&r);
	free(data);
}
END_TEST

/* What pawl record and pawl replay say of a file that they refuse, and what they return. */
static int refused(int (*cmd)(int argc, char **argv), char *what, char *path, char **says)
{
	char self[] = "pawl it", *argv[] = { self, what, path, NULL };
	FILE *out = stdout, *err = stderr;
	char *printed = NULL;
	size_t n;
	int rc;

	stderr = open_memstream(says, &n);
	stdout = open_memstream(&printed, &n);
	MUST(stderr && stdout);
	rc = cmd(3, argv);
	MUST(!fclose(stderr) && !fclose(stdout));
	stderr = err;
	stdout = out;
	ck_assert_str_eq(printed, "");
	free(printed);
	return rc;
}

START_TEST(test_a_recording_without_an_order_is_refused)
{
	/* Both wrote the first version of the var. */
	static const unsigned char events[] = {
		PUSH, REC_PUSH, 0, 2, 0, 0, 1, 3, 0, BEGIN, END, REC_BEGIN, 0, 2, 0, 1, 1 };
	char *path = temp_path(), info[] = "info", workers[] = "-w0", want[256], *says;
	unsigned char *data;
	struct recording r;
	u32 *order;
	size_t len, n;

	data = sample(&len);
	len = with_events(data, len, events, sizeof(events), true);
	write_file(path, data, len);
	ck_assert_int_eq(workload_open(path, &r, &order, &n, text, sizeof(text)), -EBADMSG);
	snprintf(want, sizeof(want),
		 "%s: var 1.1 of engine 0: ops 0 and 1 both wrote version 1", path);
	ck_assert_str_eq(text, want);
	ck_assert(!r.ops && !r.accesses && !r.vars && !r.nops);
	ck_assert_int_eq(refused(cmd_record, info, path, &says), STATUS_FAILED);
	ck_assert_msg(strstr(says, want) == says + strlen("pawl it: "), "%s", says);
	free(says);
	ck_assert_int_eq(refused(cmd_replay, workers, path, &says), STATUS_FAILED);
	ck_assert_msg(strstr(says, want) == says + strlen("pawl it: "), "%s", says);
	free(says);
	unlink(path);
	free(data);
}
END_TEST

/* A file in which a key occurs twice means two things. */
START_TEST(test_a_workload_with_a_key_twice_is_refused)
{
	static const char json[] =
		"{\"workflow\": {\"specification\": {\"tasks\": [], \"tasks\": []}}}";
	char *path = temp_path(), dump[] = "dump", want[256], *says;

	write_file(path, json, strlen(json));
	ck_assert_int_eq(refused(cmd_record, dump, path, &says), STATUS_FAILED);
	snprintf(want, sizeof(want), "pawl it: %s: line 1, column ", path);
	ck_assert_msg(strstr(says, want) == says && strstr(says, "duplicate"), "%s", says);
	free(says);
	unlink(path);
}
END_TEST

/* An operator without a name, and one whose name is no text. */
START_TEST(test_an_operator_without_a_name)
{
	static const char json[] = "{\"nodes\": ["
		"{\"id\": 1, \"inputs\": [[1, 10, 0, 4, 4, \"cpu\"]], \"outputs\": []},"
		"{\"id\": 2, \"name\": 7, \"inputs\": [[1, 10, 0, 4, 4, \"cpu\"]]}]}";
	char *out = said("dump", (const unsigned char *)json, strlen(json));

	ck_assert_msg(strstr(out, "\n0 0 0:0 0.000 0.000 0.000 0 0 \"\" normal 0 0 r0@0\n"
			     "1 1 0:0 0.001 0.000 0.000 0 0 \"\" normal 0 0 r0@0\n") != NULL, "%s",
		      out);
	free(out);
}
END_TEST

/* Whatever an op's priority can be is kept. */
START_TEST(test_priorities_of_a_workload)
{
	static const int priority[] = { INT32_MAX, INT32_MIN, 1000000, -1 };
	char *json, *out, want[64];
	size_t len;
	FILE *f;
	u32 i;

	f = open_memstream(&json, &len);
	fputs("{\"workflow\": {\"specification\": {\"tasks\": [", f);
	for (i = 0; i < COUNT(priority); i++)
		fprintf(f, "%s{\"id\": \"%u\"}", i ? ", " : "", i);
	fputs("]}, \"execution\": {\"tasks\": [", f);
	for (i = 0; i < COUNT(priority); i++)
		fprintf(f, "%s{\"id\": \"%u\", \"priority\": %d}", i ? ", " : "", i, priority[i]);
	fputs("]}}}", f);
	MUST(!fclose(f));
	out = said("dump", (unsigned char *)json, len);
	for (i = 0; i < COUNT(priority); i++) {
		snprintf(want, sizeof(want), " \"%u\" normal %d 0\n", i, priority[i]);
		ck_assert_msg(strstr(out, want) != NULL, "no %s in %s", want, out);
	}
	free(out);
	out = said("json", (unsigned char *)json, len);
	ck_assert_msg(strstr(out, "\"source\":\"wfformat\",\"program\":\"\",\"ended\":true,") != 0,
		      "%s", out);
	free(out);
	free(json);
}
END_TEST

/* The program was killed, or had too little memory. */
START_TEST(test_info_says_what_is_missing)
{
	static const unsigned char lost[] = { PUSH, REC_END | REC_END_STATUS, 0, 2, 1, 9 };
	unsigned char *data;
	char *out, whole[64];
	size_t len;

	data = sample(&len);
	len = with_events(data, len, "", 0, false);
	out = said("info", data, len);
	snprintf(whole, sizeof(whole), ", %zu bytes, ends early\n", len);
	ck_assert_msg(strstr(out, whole) != NULL, "%s", out);
	snprintf(whole, sizeof(whole), " whole up to byte %zu: the program did not end it\n", len);
	ck_assert_msg(strstr(out, whole) != NULL, "%s", out);
	ck_assert_msg(!strstr(out, "missing"), "%s", out);
	free(out);
	/* the file is cut within its last chunk */
	out = said("info", data, len - 1);
	snprintf(whole, sizeof(whole), ", %zu bytes, ends early\n", len - 1);
	ck_assert_msg(strstr(out, whole) != NULL, "%s", out);
	snprintf(whole, sizeof(whole), " whole up to byte %td: the program did not end it\n",
		 chunk(data, len, REC_CHUNK_EVENTS, 0) - data);
	ck_assert_msg(strstr(out, whole) != NULL, "%s", out);
	free(out);
	free(data);
	data = sample(&len);
	len = with_events(data, len, lost, sizeof(lost), true);
	put64(chunk(data, len, REC_CHUNK_END, 0) + REC_HEAD, 3);
	seal(data, len);
	out = said("info", data, len);
	ck_assert_msg(strstr(out, "; 0 begun, 0 over, 0 with an error, 0 refused\n") != NULL, "%s",
		      out);
	ck_assert_msg(strstr(out, " 3 events or more are missing, for lack of memory\n") != NULL,
		      "%s", out);
	ck_assert_msg(!strstr(out, "early") && !strstr(out, "whole"), "%s", out);
	free(out);
	free(data);
}
END_TEST

START_TEST(test_info_names_the_program_and_the_kinds_of_engines)
{
	static const char *const kinds[] = { "per-device", "pooled", "naive", "unknown" };
	unsigned char *data, *start;
	char *out, want[256];
	size_t len;
	u32 i;

	for (i = 0; i < COUNT(kinds); i++) {
		data = sample(&len);
		len = with_events(data, len, "", 0, true);
		start = chunk(data, len, REC_CHUNK_START, 0) + REC_HEAD;
		memset(start + 4, 0, 4);
		start[4] = 77;
		put64(start + 8, 1000000000);
		chunk(data, len, REC_CHUNK_ENGINE, 0)[REC_HEAD] = (unsigned char)i;
		set_heads(data, len);
		out = said("info", data, len);
		snprintf(want, sizeof(want), " (process 77) with pawl %s, from 2001-09-09 01:46:40 "
			 "UTC for 4.000000 s\nengine 0   \"pawl\", %s, 1 workers", pawl_version(),
			 kinds[i]);
		ck_assert_msg(strstr(out, want) != NULL, "%s", out);
		free(out);
		out = said("json", data, len);
		snprintf(want, sizeof(want), "{\"format\":\"pawl-record\",\"version\":1,\"source\":"
			 "\"pawl\",\"program\":\"%s\",\"ended\":", program_invocation_short_name);
		ck_assert_msg(strstr(out, want) == out, "no %s in %s", want, out);
		free(out);
		free(data);
	}
}
END_TEST

/* Quotes, backslashes and control characters are escaped in JSON. */
START_TEST(test_json_escapes_the_name_of_the_program)
{
	unsigned char *data, *p;
	size_t len;
	char *out;

	data = sample(&len);
	len = with_events(data, len, "", 0, true);
	p = chunk(data, len, REC_CHUNK_START, 0) + REC_HEAD + 16;
	p += 1 + *p;	/* behind the name of the library */
	ck_assert_uint_ge(*p, 5);
	memcpy(p + 1, "a\"\\\n\x7f", 5);
	set_heads(data, len);
	out = said("json", data, len);
	ck_assert_msg(strstr(out, "\"program\":\"a\\\"\\\\\\u000a\\u007f") != NULL, "%s", out);
	free(out);
	free(data);
}
END_TEST

/* A hundred tasks of 1 to 100 s; a time or a priority that is out of range does not count. */
START_TEST(test_percentiles_and_limits_of_a_workload)
{
	static const char *const odd[] = { "-5, \"priority\": 2147483648",
					   "1e10, \"priority\": -2147483649" };
	char *json, *out, *at;
	size_t len;
	FILE *f;
	u32 i;

	f = open_memstream(&json, &len);
	fputs("{\"workflow\": {\"specification\": {\"tasks\": [{\"id\": \"1\"}", f);
	for (i = 2; i <= 102; i++)
		fprintf(f, ", {\"id\": \"%u\"}", i);
	fputs("]}, \"execution\": {\"tasks\": [{\"id\": \"0\"}", f);
	for (i = 1; i <= 100; i++)
		fprintf(f, ", {\"id\": \"%u\", \"runtimeInSeconds\": %u, \"priority\": -2}",
			i, 101 - i);
	for (i = 0; i < 2; i++)
		fprintf(f, ", {\"id\": \"%u\", \"runtimeInSeconds\": %s}", 101 + i, odd[i]);
	fputs("]}}}", f);
	MUST(!fclose(f));
	out = said("info", (unsigned char *)json, len);
	ck_assert_msg(!strstr(out, "early") && !strstr(out, "written"), "%s", out);
	ck_assert_msg(strstr(out, "\nops        102 pushed by 1 threads, 0 of") != NULL, "%s", out);
	ck_assert_msg(strstr(out, "\nbodies     p50 50000000.000 us, p99 99000000.000 us, max "
			     "100000000.000 us\nwork       5050.000000 s, longest chain "
			     "100.000000 s: parallelism 50.50\n") != NULL, "%s", out);
	free(out);
	out = said("dump", (unsigned char *)json, len);
	for (i = 1, at = out; i <= 102; i++) {
		char want[64];

		snprintf(want, sizeof(want), " \"%u\" normal %d 0\n", i, i > 100 ? 0 : -2);
		at = strstr(at, want);
		ck_assert_msg(at != NULL, "no %s in %s", want, out);
	}
	free(out);
	free(json);
}
END_TEST

/* pawl record prints this text for a recording with these events; whole_end: it ends with it. */
static void prints(const char *what, const unsigned char *events, u32 nevents, bool whole_end,
		   const char *want)
{
	unsigned char *data;
	const char *at;
	char *out;
	size_t len;

	data = sample(&len);
	len = with_events(data, len, events, nevents, true);
	set_heads(data, len);
	out = said(what, data, len);
	at = strstr(out, want);
	ck_assert_msg(at && (!whole_end || !strcmp(at, want)), "no %s in %s", want, out);
	free(out);
	free(data);
}

START_TEST(test_the_names_of_properties)
{
	static const char *const names[] = { "normal", "copy-from-device", "copy-to-device",
					     "cpu-prioritized", "async", "delete-var",
					     "gpu-prioritized", "no-skip", "unknown" };
	unsigned char events[] = { REC_PUSH | REC_PUSH_WHERE, 0, 4, 2, 0, 0, 0, 0, 0 };
	char want[128];

	for (events[5] = 0; events[5] < COUNT(names); events[5]++) {
		snprintf(want, sizeof(want), "\n0 0 0:7 0.000 - - - - \"\" %s 0 0\n",
			 names[events[5]]);
		prints("dump", events, sizeof(events), true, want);
		snprintf(want, sizeof(want), ",\"name\":\"\",\"prop\":\"%s\",\"priority\":0,",
			 names[events[5]]);
		prints("json", events, sizeof(events), false, want);
	}
}
END_TEST

/* The time in the queue is known, but that of the body is not. */
START_TEST(test_an_op_that_began_and_did_not_end)
{
	static const unsigned char events[] = {
		REC_PUSH, 10, 4, 2, 0, 1, 3, 0, REC_PUSH, 0, 2, 0, 0, 1, 5, 0,
		REC_BEGIN, 10, 6, 2, 1, 1, REC_BEGIN, 10, 1, 0, 1, 1, REC_END, 15, 3, 1 };

	prints("info", events, sizeof(events), true,
	     "ops        2 pushed by 1 threads, 0 of them in bodies; 2 begun, 1 over, 0 with an "
	     "error, 0 refused\n"
	     "vars       2; 0 reads, 2 writes\n"
	     "queued     p50 40000.000 us, p99 40000.000 us, max 40000.000 us\n"
	     "bodies     p50 50000.000 us, p99 50000.000 us, max 50000.000 us\n"
	     "work       0.050000 s, longest chain 0.050000 s: parallelism 1.00\n"
	     "order      serial order of 2 ops found\n");
	prints("dump", events, sizeof(events), true,
	     "\n0 0 0:7 20000.000 60000.000 - - - \"\" normal 0 0 w0@0\n"
	     "1 1 0:7 20000.000 40000.000 90000.000 7 0 \"\" normal 0 0 w1@0\n");
	prints("json", events, sizeof(events), false,
	     "\"push_ns\":20000000,\"begin_ns\":60000000,\"runner\":7,\"accesses\":[");
}
END_TEST

/* A body ends with what began in a wait of it, so the thread's next push is in no body. */
START_TEST(test_a_launch_without_an_end_inside_a_body)
{
	static const unsigned char events[] = {
		REC_PUSH, 10, 4, 2, 0, 1, 3, 0, REC_PUSH, 0, 2, 0, 0, 1, 5, 0,
		REC_BEGIN, 10, 4, 2, 1, 1, REC_BEGIN, 5, 2, 0, 1, 1, REC_END, 10, 2, 1,
		REC_PUSH, 5, 2, 0, 0, 0 };

	prints("info", events, sizeof(events), false,
	       "ops        3 pushed by 1 threads, 0 of them in bodies; 2 begun, 1 over,");
}
END_TEST

/* Times that no op has are not printed, nor waits and events of unknown ops if there are none. */
START_TEST(test_info_of_ops_that_did_not_begin)
{
	static const unsigned char events[] = { PUSH };

	prints("info", events, sizeof(events), true,
	     "ops        1 pushed by 1 threads, 0 of them in bodies; 0 begun, 0 over, 0 with an "
	     "error, 0 refused\n"
	     "vars       1; 0 reads, 1 writes\n"
	     "work       0.000000 s, longest chain 0.000000 s: parallelism 1.00\n"
	     "order      serial order of 1 ops found\n");
}
END_TEST

/* The op of the second thread was pushed first, and it writes the var that the others read. */
START_TEST(test_ops_in_another_order_than_in_the_file)
{
	static const unsigned char reads[] = { REC_PUSH, 0, 4, 2, 0, 1, 2, 0, REC_BEGIN, 0, 4, 2, 1,
					       2, REC_END | REC_END_OPEN, 15 },
		writes[] = { REC_PUSH, 0, 6, 2, 0, 1, 3, 0, REC_BEGIN, 0, 6, 2, 1, 1,
			     REC_END | REC_END_OPEN, 10, REC_PUSH, 0xc8, 1, 2, 0, 0, 1, 2, 0,
			     REC_BEGIN, 0, 2, 0, 1, 2, REC_END | REC_END_OPEN, 5 };
	const struct stream s[] = { { 0, 7, 1100, sizeof(reads), reads },
				    { 0, 9, 1000, sizeof(writes), writes } };
	static const struct { const char *what, *text; } list[] = {
		{ "info", "\nwork       0.060000 s, longest chain 0.050000 s: parallelism 1.20\n" },
		{ "dump", "\n0 1 0:9 0.000 0.000 20000.000 9 0 \"\" normal 0 0 w0@0\n"
			  "1 0 0:7 200000.000 200000.000 230000.000 7 0 \"\" normal 0 0 r0@1\n"
			  "2 2 0:9 420000.000 420000.000 430000.000 9 0 \"\" normal 0 0 r0@1\n" },
		{ "json", "\"ops\":[\n{\"op\":1,\"engine\":0,\"thread\":9," },
		{ "json", ",\n{\"op\":0,\"engine\":0,\"thread\":7," },
		{ "json", ",\n{\"op\":2,\"engine\":0,\"thread\":9," },
	};
	unsigned char *data;
	char *out;
	size_t len;
	u32 i;

	data = with_streams(s, 2, 1, &len);
	for (i = 0; i < COUNT(list); i++) {
		out = said(list[i].what, data, len);
		ck_assert_msg(strstr(out, list[i].text) != NULL, "no %s in %s", list[i].text, out);
		free(out);
	}
	free(data);
}
END_TEST

START_TEST(test_which_characters_of_a_name_json_escapes)
{
	static const unsigned char events[] = { REC_NAME, 5, 31, ' ', '!', '~', 127,
						REC_PUSH, 0, 4, 2, 1, 0 };

	prints("json", events, sizeof(events), false, ",\"name\":\"\\u001f !~\\u007f\",");
}
END_TEST

/* The JSON says whether the program ended the recording, and how many events were lost. */
START_TEST(test_json_says_what_is_missing)
{
	static const unsigned char events[] = { PUSH, REC_END, 0, 3, 1 };
	static const char *const want[] = {
		",\"ended\":false,\"length_ns\":4000000000,\"lost\":0,\n",
		",\"ended\":true,\"length_ns\":4000000000,\"lost\":3,\n" };
	unsigned char *data;
	char *out;
	size_t len;
	u32 ended;

	for (ended = 0; ended < 2; ended++) {
		data = sample(&len);
		len = with_events(data, len, events, sizeof(events), ended);
		if (ended)
			put64(chunk(data, len, REC_CHUNK_END, 0) + REC_HEAD, 3);
		set_heads(data, len);
		out = said("json", data, len);
		ck_assert_msg(strstr(out, want[ended]) != NULL, "no %s in %s", want[ended], out);
		free(out);
		free(data);
	}
}
END_TEST

SUITE("reccmd", test_ops_in_another_order_than_in_the_file, test_names_of_ops_are_whole,
      test_the_names_of_properties, test_an_op_that_began_and_did_not_end, test_a_launch_without_an_end_inside_a_body,
      test_info_of_ops_that_did_not_begin,
      test_which_characters_of_a_name_json_escapes, test_json_says_what_is_missing,
      test_who_pushed_and_who_ran_an_op, test_info_counts_the_events,
      test_waits_inside_waits, test_an_op_is_not_queued_for_less_than_no_time,
      test_an_event_of_an_op_that_was_not_pushed, test_long_names_at_the_start,
      test_a_workload_with_a_key_twice_is_refused,
      test_an_operator_without_a_name, test_priorities_of_a_workload,
      test_accesses_of_each_var_are_counted, test_a_recording_without_an_order_is_refused,
      test_what_is_said_of_each_op, test_what_has_the_number_0_is_said,
      test_info_says_what_is_missing, test_json_escapes_the_name_of_the_program,
      test_info_names_the_program_and_the_kinds_of_engines,
      test_percentiles_and_limits_of_a_workload)
