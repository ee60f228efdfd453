// SPDX-License-Identifier: Apache-2.0
/*
 * The reader of recordings, tools/pawl/record.c: a file that is cut or damaged anywhere is read
 * up to its last whole chunk, or refused.
 */
#include "recordings.h"
#include "no_memory.h"

/* Read from its own block, so that the address sanitizer detects a read beyond the end. */
static int try(const unsigned char *data, size_t len, struct recording *r)
{
	void *copy = malloc(len ? len : 1);
	u32 before;
	int rc;

	memcpy(copy, data, len);
	text[0] = 0;
	before = load_relaxed(&live);
	rc = rec_parse("test", copy, len, r, text, sizeof(text));
	before -= load_relaxed(&live);
	free(copy);
	if (rc) {
		ck_assert_msg(rc == -EBADMSG && strstr(text, "test: "), "%d %s", rc, text);
		ck_assert_uint_eq(before, 0);
	}
	return rc;
}

START_TEST(test_cut)
{
	unsigned char *data;
	struct recording r;
	size_t len, i, at = 0, n = 0, whole = 0, ops = 0;

	data = sample(&len);
	for (i = 0; i <= len; i++) {
		int rc = try(data, i, &r);

		if (len - at >= REC_HEAD && i == at + chunk_size(data + at)) {
			at = i;
			n++;
		}
		if (rc) {
			ck_assert_uint_eq(whole, 0);	/* not even the first chunk */
			continue;
		}
		ck_assert_uint_ge(r.nops, ops);
		ck_assert_uint_eq(r.whole, at);
		ck_assert_uint_eq(r.chunks, n);
		ck_assert(r.ended == (i == len));
		whole = r.whole;
		ops = r.nops;
		rec_free(&r);
	}
	ck_assert_uint_eq(whole, len);
	ck_assert_uint_eq(ops, 12);
	free(data);
}
END_TEST

/* Every single bit: refused, with the place of the chunk in which it is. */
START_TEST(test_bits)
{
	unsigned char *data;
	struct recording r;
	size_t len, i;

	data = sample(&len);
	for (i = 0; i < len * 8; i++) {
		data[i / 8] ^= (unsigned char)(1 << i % 8);
		MUST(try(data, len, &r) == -EBADMSG);
		MUST(i < 32 || strstr(text, "offset "));
		data[i / 8] ^= (unsigned char)(1 << i % 8);
	}
	OK(try(data, len, &r));
	rec_free(&r);
	free(data);
}
END_TEST

START_TEST(test_a_text_of_the_start_that_does_not_end_is_refused)
{
	struct recording r;
	unsigned char *data, *start;
	size_t len;
	u32 bytes;

	data = sample(&len);
	start = chunk(data, len, REC_CHUNK_START, 0);
	ck_assert_ptr_nonnull(start);
	start[REC_HEAD + 16] = 255;
	seal(data, len);
	ck_assert_int_eq(try(data, len, &r), -EBADMSG);
	ck_assert_msg(strstr(text, "does not end") != NULL, "%s", text);
	for (bytes = 15; bytes < 17; bytes++) {
		set_bytes(start, bytes);
		seal(data, REC_HEAD + 16);
		ck_assert_int_eq(try(data, REC_HEAD + 16, &r), -EBADMSG);
		ck_assert_msg(strstr(text, bytes < 16 ? "15 bytes" : "does not end") != NULL, "%s",
			      text);
	}
	free(data);
}
END_TEST

START_TEST(test_a_chunk_that_contradicts_the_others_is_refused)
{
	static const struct { u32 kind, at; unsigned char byte; const char *says; } list[] = {
		{ REC_CHUNK_START, 4, REC_CHUNK_ENGINE, "offset 0: no start" },
		{ REC_CHUNK_START, REC_HEAD, 0, "version 0 of the format, this" },
		{ REC_CHUNK_START, REC_HEAD, REC_VERSION + 1, "version 3 of the format, this" },
		{ REC_CHUNK_ENGINE, 4, REC_CHUNK_START, "a second start" },
		{ REC_CHUNK_ENGINE, 8, 27, "an engine has 27 bytes" },
		{ REC_CHUNK_ENGINE, 8, 28, "the name of engine 0 does not end" },
		{ REC_CHUNK_ENGINE, 8, 32, "the name of engine 0 does not end" },
		{ REC_CHUNK_ENGINE, 12, 1, "engine 1 after 0 others" },
		{ REC_CHUNK_EVENTS, 4, 99, "a chunk of type 99" },
		{ REC_CHUNK_EVENTS, 12, 1, "events of engine 1, of which nothing was said" },
		{ REC_CHUNK_EVENTS, 20, 1, "of engine 0, expected 0" },
		{ REC_CHUNK_END, 8, 7, "the end has 7 bytes" },
	};
	unsigned char *data, *copy, *head;
	struct recording r;
	size_t len, end;
	u32 i;

	data = sample(&len);
	copy = malloc(len);
	for (i = 0; i <= COUNT(list); i++) {
		memcpy(copy, data, len);
		head = chunk(copy, len, i < COUNT(list) ? list[i].kind : REC_CHUNK_START, 0);
		MUST(head);
		/* the last text of the start lacks its last byte */
		if (i < COUNT(list))
			head[list[i].at] = list[i].byte;
		else
			head[8]--;
		end = (size_t)(head - copy) + chunk_size(head);
		seal(copy, end);
		ck_assert_msg(try(copy, end, &r) == -EBADMSG, "%u", i);
		ck_assert_msg(strstr(text, i < COUNT(list) ? list[i].says :
				     "a text of the start does not end") != NULL, "%u: %s", i,
			      text);
	}
	free(copy);
	free(data);
}
END_TEST

START_TEST(test_events_without_a_whole_time_are_refused)
{
	unsigned char *data, *head;
	struct recording r;
	size_t len;
	u32 bytes;

	for (bytes = 1; bytes < 8; bytes++) {
		data = sample(&len);
		len = with_events(data, len, "", 0, true);
		head = chunk(data, len, REC_CHUNK_EVENTS, 0);
		set_bytes(head, bytes);
		seal(data, len);
		ck_assert_int_eq(try(data, len, &r), -EBADMSG);
		ck_assert_msg(strstr(text, "no time at the beginning") != NULL, "%u: %s", bytes,
			      text);
		free(data);
	}
}
END_TEST

START_TEST(test_a_chunk_of_no_bytes_is_whole)
{
	unsigned char *data, *head;
	struct recording r;
	size_t len;

	data = sample(&len);
	head = chunk(data, len, REC_CHUNK_EVENTS, 0);
	set_bytes(head, 0);
	len = (size_t)(head - data) + REC_HEAD;
	seal(data, len);
	OK(try(data, len, &r));
	ck_assert_uint_eq(r.whole, len);
	ck_assert_uint_eq(r.chunks, 3);
	rec_free(&r);
	free(data);
}
END_TEST

/* Up to three bytes may be the beginning of a chunk. */
START_TEST(test_what_follows_the_last_chunk)
{
	unsigned char *data;
	struct recording r;
	size_t len;
	u32 n;

	for (n = 1; n < 6; n++) {
		data = sample(&len);
		len = with_events(data, len, "", 0, false);
		memset(data + len, 'x', n);
		if (n < 4) {
			OK(try(data, len + n, &r));
			ck_assert_uint_eq(r.whole, len);
			rec_free(&r);
		} else {
			ck_assert_int_eq(try(data, len + n, &r), -EBADMSG);
			ck_assert_msg(strstr(text, "no chunk begins here") != NULL, "%s", text);
		}
		free(data);
		data = sample(&len);
		len = with_events(data, len, "", 0, true);
		memset(data + len, 'x', n);
		ck_assert_int_eq(try(data, len + n, &r), -EBADMSG);
		ck_assert_msg(strstr(text, n < 4 ? "something after the end" :
				     "no chunk begins here") != NULL, "%s", text);
		free(data);
	}
}
END_TEST

/* Of a recording that has its end no event may be cut, whichever is a stream's last. */
START_TEST(test_an_event_that_is_cut_is_refused)
{
	unsigned char *data, kind;
	struct recording r;
	size_t len;

	for (kind = 1; kind <= REC_KIND; kind++) {
		data = sample(&len);
		len = with_events(data, len, &kind, 1, true);
		ck_assert_int_eq(try(data, len, &r), -EBADMSG);
		ck_assert_msg(strstr(text, "an event that does not end") != NULL, "%u: %s", kind,
			      text);
		free(data);
	}
}
END_TEST

START_TEST(test_events_that_contradict_each_other_are_refused)
{
	static const struct {
		unsigned char events[32];
		u32 n;
		const char *says;	/* NULL: they do not */
	} list[] = {
		{ EVENTS(PUSH, BEGIN, END), NULL },
		/* also if the clock goes back between two threads */
		{ EVENTS(PUSH, REC_END, 5, 2, 1, REC_BEGIN, 5, 4, 2, 1, 1), NULL },
		{ EVENTS(PUSH, UNDO), NULL },
		{ EVENTS(PUSH, BEGIN, REC_END | REC_END_OPEN, 0), NULL },
		{ EVENTS(PUSH, UNDO, UNDO), "op 2.1 was not refused" },
		{ EVENTS(PUSH, BEGIN, UNDO), "op 2.1 was not refused" },
		{ EVENTS(PUSH, BEGIN, REC_BEGIN, 0, 0, 0, 1, 1), "op 2.1 begins twice" },
		{ EVENTS(PUSH, UNDO, BEGIN), "op 2.1 begins and was refused" },
		{ EVENTS(PUSH, BEGIN, END, END), "op 2.1 ends twice" },
		{ EVENTS(PUSH, UNDO, END), "op 2.1 ends and was refused" },
		{ EVENTS(PUSH, END), "op 2.1 of engine 0 ends, and never began" },
		{ EVENTS(PUSH, REC_END | REC_END_OPEN, 0), "an end without a begin" },
		{ EVENTS(PUSH, BEGIN, REC_END | REC_END_OPEN, 0, REC_END | REC_END_OPEN, 0),
		  "an end without a begin" },
		{ EVENTS(PUSH, REC_BEGIN, 0, 4, 2, 0), "begins with 0 accesses, and has 1" },
		{ EVENTS(PUSH, REC_PUSH, 0, 0, 0, 0, 0), "op 2.1 of engine 0 is pushed twice" },
		{ EVENTS(PUSH, REC_PUSH, 0, 0, 2, 0, 0), NULL },
		{ EVENTS(REC_NAME, 1, 'n', REC_PUSH, 0, 4, 2, 1, 0), NULL },
		{ EVENTS(REC_NAME, 1, 'n', REC_PUSH, 0, 4, 2, 2, 0), "name 2 of 1" },
		{ EVENTS(REC_PUSH, 0, 4, 2, 0, 2, 3, 0, 3, 0), NULL },
		{ EVENTS(REC_PUSH, 0, 4, 2, 0, 2, 3, 0, 1, 0), "var 1 twice in one op" },
		{ EVENTS(REC_PUSH, 0, 4, 2, 0, 1, 255, 255, 255, 255, 31, 0), NULL },
		{ EVENTS(REC_PUSH, 0, 4, 2, 0, 1, 128, 128, 128, 128, 32, 0), "var 4294967296" },
		{ EVENTS(REC_PUSH, 0, 4, 2, 0, 1, 3, 255, 255, 255, 255, 7), NULL },
		{ EVENTS(REC_PUSH, 0, 4, 2, 0, 1, 3, 128, 128, 128, 128, 8), "an access of var 1" },
		{ EVENTS(REC_WAIT | REC_WAIT_WRITABLE, 0, 255, 255, 255, 255, 15, 0), NULL },
		{ EVENTS(REC_WAIT | REC_WAIT_WRITABLE, 0, 128, 128, 128, 128, 16, 0),
		  "a wait for var 4294967296" },
		{ EVENTS(REC_WAIT | REC_WAIT_READABLE, 0, 1, 255, 255, 255, 255, 7), NULL },
		{ EVENTS(REC_WAIT | REC_WAIT_READABLE, 0, 1, 128, 128, 128, 128, 8),
		  "a wait for var 1" },
		{ EVENTS(REC_WAIT | REC_WAIT_ALL, 0, REC_WAITED, 0, 0, REC_WAITED, 0, 0), NULL },
		/* a number has 64 bits, and at most eleven bytes */
		{ EVENTS(REC_WAIT | REC_WAIT_ALL, 128, 128, 128, 128, 128, 128, 128, 128, 128,
			 128, 0), NULL },
		{ EVENTS(REC_WAIT | REC_WAIT_ALL, 128, 128, 128, 128, 128, 128, 128, 128, 128,
			 128, 128, 128, 0), "an event of kind 0" },
		{ EVENTS(REC_WAIT | REC_WAIT_READABLE | REC_WAIT_WRITABLE, 0),
		  "a wait of kind 0x18" },
	};
	unsigned char *data;
	struct recording r;
	size_t len;
	u32 i;
	int rc;

	for (i = 0; i < COUNT(list); i++) {
		data = sample(&len);
		len = with_events(data, len, list[i].events, list[i].n, true);
		set_heads(data, len);
		rc = try(data, len, &r);
		if (list[i].says) {
			ck_assert_msg(rc == -EBADMSG, "%u: %d", i, rc);
			ck_assert_msg(strstr(text, list[i].says) != NULL, "%u: %s", i, text);
		} else {
			ck_assert_msg(!rc, "%u: %s", i, text);
			ck_assert(!r.nops || r.ops[0].end >= r.ops[0].begin || !r.ops[0].ended);
			rec_free(&r);
		}
		free(data);
	}
}
END_TEST

/* The begin was lost, for lack of memory, or not written before the program was killed. */
START_TEST(test_an_end_may_have_lost_its_begin)
{
	static const unsigned char events[] = { PUSH, END };
	unsigned char *data;
	struct recording r;
	size_t len, n;
	u32 i, order;

	for (i = 0; i < 2; i++) {
		data = sample(&len);
		len = with_events(data, len, events, sizeof(events), i);
		if (i)
			put64(chunk(data, len, REC_CHUNK_END, 0) + REC_HEAD, 3);
		seal(data, len);
		OK(try(data, len, &r));
		ck_assert_uint_eq(r.lost, i ? 3 : 0);
		ck_assert(r.nops == 1 && !r.ops[0].begun && !r.ops[0].ended);
		OK(rec_order(&r, &order, &n, text, sizeof(text)));
		ck_assert_uint_eq(n, 1);
		rec_free(&r);
		free(data);
	}
}
END_TEST

/* Of the synchronous bodies that run on its thread the innermost one pushes an op. */
START_TEST(test_the_body_in_which_an_op_was_pushed)
{
	static const unsigned char events[] = {
		PUSH, REC_PUSH | REC_PUSH_ASYNC, 0, 2, 0, 0, 0, REC_PUSH, 0, 2, 0, 0, 0,
		BEGIN, REC_PUSH, 0, 2, 0, 0, 0,
		/* the asynchronous one begins and is completed inside */
		REC_BEGIN, 0, 2, 0, 0, REC_PUSH, 0, 2, 0, 0, 0,
		REC_END, 0, 3, 1, REC_PUSH, 0, 2, 0, 0, 0,
		/* the third one runs inside */
		REC_BEGIN, 0, 2, 0, 0, REC_PUSH, 0, 2, 0, 0, 0,
		REC_END | REC_END_OPEN, 0, REC_PUSH, 0, 2, 0, 0, 0,
		END, REC_PUSH, 0, 2, 0, 0, 0 };
	static const u32 parents[] = { REC_NONE, REC_NONE, REC_NONE, 0, 0, 0, 2, 0, REC_NONE };
	unsigned char *data;
	struct recording r;
	size_t len;
	u32 i;

	data = sample(&len);
	len = with_events(data, len, events, sizeof(events), true);
	OK(try(data, len, &r));
	ck_assert_uint_eq(r.nops, COUNT(parents));
	for (i = 0; i < COUNT(parents); i++)
		ck_assert_msg(r.ops[i].parent == parents[i], "%u: %u", i, r.ops[i].parent);
	rec_free(&r);
	free(data);
}
END_TEST

/* Each engine has its ops and vars, and each thread of an engine its pushes, names and waits. */
START_TEST(test_engines_and_threads_are_apart)
{
	static const unsigned char seven[] = { REC_NAME, 1, 'n', PUSH, BEGIN, END },
		eight[] = { REC_WAIT | REC_WAIT_ALL, 0, REC_PUSH, 5, 6, 2, 0, 0,
			    REC_WAIT | REC_WAIT_ALL, 0 },
		other[] = { PUSH, END }, refusal[] = { UNDO },
		named[] = { REC_PUSH, 0, 6, 2, 1, 0 };
	struct stream s[] = { { 0, 7, 1000, sizeof(seven), seven },
			      { 0, 8, 500, sizeof(eight), eight },
			      { 1, 7, 1000, sizeof(other) - 4, other } };
	unsigned char *data;
	struct recording r;
	size_t len;

	data = with_streams(s, 3, 2, &len);
	OK(try(data, len, &r));
	ck_assert_uint_eq(r.threads, 3);
	ck_assert_uint_eq(r.nengines, 2);
	ck_assert_uint_eq(r.nops, 3);
	ck_assert_uint_eq(r.nvars, 2);
	ck_assert(r.ops[0].ended && !r.ops[2].begun && r.ops[2].engine == 1);
	ck_assert(r.vars[0].engine == 0 && r.vars[1].engine == 1);
	ck_assert(r.waits[0].after == REC_NONE && r.waits[1].after == 1);
	/* a clock that was behind when the recording began */
	ck_assert_uint_eq(r.ops[1].push, 0);
	rec_free(&r);
	free(data);
	/* of an op of another engine nothing is known */
	s[2] = (struct stream){ 1, 7, 1000, 4, other + sizeof(other) - 4 };
	data = with_streams(s, 3, 2, &len);
	OK(try(data, len, &r));
	ck_assert_uint_eq(r.foreign, 1);
	rec_free(&r);
	free(data);
	s[1] = (struct stream){ 0, 8, 1000, sizeof(refusal), refusal };
	s[0].n -= sizeof((char[]){ BEGIN, END });
	data = with_streams(s, 2, 2, &len);
	ck_assert_int_eq(try(data, len, &r), -EBADMSG);
	ck_assert_msg(strstr(text, "thread 8 of engine 0: op 2.1 was not refused") != NULL, "%s",
		      text);
	free(data);
	s[1] = (struct stream){ 0, 8, 1000, sizeof(named), named };
	data = with_streams(s, 2, 2, &len);
	ck_assert_int_eq(try(data, len, &r), -EBADMSG);
	ck_assert_msg(strstr(text, "name 1 of 0") != NULL, "%s", text);
	free(data);
}
END_TEST

START_TEST(test_many_engines_have_ops_and_vars_of_one_number)
{
	static const unsigned char events[] = { PUSH, BEGIN, END };
	enum { ENGINES = 400 };
	struct stream s[ENGINES];
	unsigned char *data;
	struct recording r;
	size_t len;
	u32 i;

	for (i = 0; i < ENGINES; i++)
		s[i] = (struct stream){ i, 7, 1000, sizeof(events), events };
	data = with_streams(s, ENGINES, ENGINES, &len);
	OK(try(data, len, &r));
	ck_assert_uint_eq(r.nops, ENGINES);
	ck_assert_uint_eq(r.nvars, ENGINES);
	for (i = 0; i < ENGINES; i++)
		ck_assert(r.ops[i].ended && r.vars[i].engine == i && r.vars[i].writes == 1);
	rec_free(&r);
	free(data);
}
END_TEST

/* Then they are cycles, and the recording took no time. */
START_TEST(test_times_of_a_clock_that_does_not_advance)
{
	static const unsigned char events[] = {
		REC_PUSH, 40, 4, 2, 0, 0,
		/* and one that goes back, by 20 */
		REC_PUSH, 0xec, 255, 255, 255, 255, 255, 255, 255, 255, 1, 2, 0, 0, 0 };
	const struct stream s = { 0, 7, 1002, sizeof(events), events };
	static const u64 ends[][2] = { { 3000, 4000 }, { 900, 4000005000 } };
	unsigned char *data, *end;
	struct recording r;
	size_t len;
	u32 i;

	for (i = 0; i < COUNT(ends); i++) {
		data = with_streams(&s, 1, 2, &len);
		end = chunk(data, len, REC_CHUNK_END, 0);
		put64(end + 24, ends[i][0]);
		put64(end + 32, ends[i][1]);
		seal(data, len);
		OK(try(data, len, &r));
		ck_assert_uint_eq(r.ops[0].push, 42);
		ck_assert_uint_eq(r.ops[1].push, 22);
		ck_assert_uint_eq(r.length, i ? 4000000000 : 0);
		rec_free(&r);
		free(data);
	}
}
END_TEST

/* A quarter of an hour, at 3 GHz. */
START_TEST(test_times_of_a_long_recording)
{
	static const unsigned char events[] = { REC_PUSH, 0, 4, 2, 0, 0 };
	const u64 cycles = 2700000000000, ns = 900000000000;
	const struct stream s = { 0, 7, 1000 + cycles / 3, sizeof(events), events };
	unsigned char *data, *end;
	struct recording r;
	size_t len;

	data = with_streams(&s, 1, 1, &len);
	end = chunk(data, len, REC_CHUNK_END, 0);
	put64(end + 24, 1000 + cycles);
	put64(end + 32, 5000 + ns);
	seal(data, len);
	OK(try(data, len, &r));
	ck_assert_uint_eq(r.ops[0].push, ns / 3);
	ck_assert_uint_eq(r.length, ns);
	rec_free(&r);
	free(data);
}
END_TEST

/* The access of an op that did not begin has no position. */
START_TEST(test_the_first_version_of_a_var_is_that_of_an_access_with_a_place)
{
	static const unsigned char events[] = { PUSH, REC_PUSH, 0, 2, 0, 0, 1, 3, 0,
						REC_BEGIN, 0, 6, 2, 1, 6 };
	unsigned char *data;
	struct recording r;
	size_t len;

	data = sample(&len);
	len = with_events(data, len, events, sizeof(events), true);
	OK(try(data, len, &r));
	ck_assert(!r.accesses[0].placed && r.accesses[1].placed);
	ck_assert_uint_eq(r.accesses[1].version, 5);
	ck_assert_uint_eq(r.vars[0].first, 5);
	ck_assert_uint_eq(r.vars[0].writes, 2);
	rec_free(&r);
	free(data);
}
END_TEST

START_TEST(test_a_name_that_is_too_long_is_refused)
{
	unsigned char events[3 + REC_NAME_MAX + 1] = { REC_NAME }, *data;
	struct stream s = { 0, 7, 1000, 0, events };
	struct recording r;
	size_t len;
	u32 n;

	for (n = REC_NAME_MAX; n <= REC_NAME_MAX + 1; n++) {
		events[1] = 0x80 | (n & 0x7f);
		events[2] = (unsigned char)(n >> 7);
		s.n = 3 + n;
		data = with_streams(&s, 1, 2, &len);
		if (n == REC_NAME_MAX) {
			OK(try(data, len, &r));
			rec_free(&r);
		} else {
			ck_assert_int_eq(try(data, len, &r), -EBADMSG);
			ck_assert_msg(strstr(text, "a name of 256 bytes") != NULL, "%s", text);
		}
		free(data);
	}
}
END_TEST

/* The rest of an event was in a chunk that is missing; what follows in this one is no event. */
START_TEST(test_nothing_is_read_after_an_event_that_is_cut)
{
	static const unsigned char cut[][10] = {
		{ REC_NAME, 127 },			/* bytes */
		{ REC_PUSH, 0, 0, 0, 0, 127 },		/* accesses */
		{ REC_PUSH, 0, 0, 0, 0, 2, 3, 0, 128, 128 },	/* the second access */
		{ REC_BEGIN, 0, 0, 0, 127 },
	};
	unsigned char *data;
	struct recording r;
	size_t len;
	u32 i;

	for (i = 0; i < COUNT(cut); i++) {
		data = sample(&len);
		len = with_events(data, len, cut[i], sizeof(cut[i]), false);
		OK(try(data, len, &r));
		ck_assert(!r.ended && !r.nops && !r.naccesses);
		rec_free(&r);
		free(data);
	}
}
END_TEST

/* The offset is that in the file, whichever chunk of its thread has the event. */
START_TEST(test_the_offset_of_a_bad_event)
{
	static const unsigned char waited[3] = { REC_WAITED, 0, 0 };
	unsigned char *data, *file, *head;
	struct recording r;
	size_t len, at, bad;
	char offset[32];
	u32 i, k, number;

	data = sample(&len);
	head = chunk(data, len, REC_CHUNK_EVENTS, 0);
	file = calloc(1, len + 4 * (REC_HEAD + 16));
	MUST(head && file);
	for (k = 0; k < 5; k++) {
		bad = 0;
		at = (size_t)(head - data);
		memcpy(file, data, at);
		for (i = 0; i < 4; i++) {
			unsigned char *p = file + at;

			memset(p, 0, REC_HEAD + 16);
			memcpy(p, head, REC_HEAD);
			number = htole32(i);
			memcpy(p + 20, &number, 4);
			/* the first chunk begins with a time */
			set_bytes(p, i ? 3 : 11);
			p += REC_HEAD + (i ? 0 : 8);
			memcpy(p, waited, 3);
			if (i == k) {
				p[0] = 0;
				bad = (size_t)(p - file);
			}
			at += chunk_size(file + at);
		}
		seal(file, at);
		if (k == 4) {
			OK(try(file, at, &r));
			rec_free(&r);
			break;
		}
		ck_assert_int_eq(try(file, at, &r), -EBADMSG);
		snprintf(offset, sizeof(offset), "offset %zu: ", bad);
		ck_assert_msg(strstr(text, offset) && strstr(text, "event of kind 0"), "%s is not %s",
			      text, offset);
	}
	free(file);
	free(data);
}
END_TEST

/* Whichever allocation is refused, the reader says so, and frees the others. */
START_TEST(test_a_recording_without_memory_to_read_it_is_refused)
{
	unsigned char *data;
	u32 k, order[700], before;
	struct recording r;
	size_t len, n, nops, nvars;
	int rc;

	data = sample_of(&len, 700, 600);
	for (k = 1; ; k++) {
		before = load_relaxed(&live);
		refuse_in = k;
		rc = rec_parse("test", data, len, &r, text, sizeof(text));
		if (refuse_in)
			break;
		before -= load_relaxed(&live);
		ck_assert_int_eq(rc, -ENOMEM);
		ck_assert_msg(strstr(text, "memory") != NULL, "%u: %s", k, text);
		ck_assert_msg(!before, "%u: a leak", k);
	}
	refuse_in = 0;
	nops = r.nops;
	nvars = r.nvars;
	rec_free(&r);
	before -= load_relaxed(&live);
	OK(rc);
	ck_assert_uint_gt(k, 20);
	ck_assert_uint_eq(nops, 700);
	ck_assert_uint_eq(nvars, 600);
	ck_assert_uint_eq(before, 0);
	OK(rec_parse("test", data, len, &r, text, sizeof(text)));
	for (k = 1; ; k++) {
		before = load_relaxed(&live);
		refuse_in = k;
		rc = rec_order(&r, order, &n, text, sizeof(text));
		if (refuse_in)
			break;
		before -= load_relaxed(&live);
		ck_assert_int_eq(rc, -ENOMEM);
		if (k < 5)
			ck_assert_str_eq(text, "no memory for the order of 700 ops");
		ck_assert_uint_eq(n, 0);
		ck_assert_msg(!before, "%u: a leak", k);
	}
	refuse_in = 0;
	before -= load_relaxed(&live);
	ck_assert_uint_gt(k, 3);
	OK(rc);
	ck_assert_uint_eq(n, 700);
	ck_assert_uint_eq(before, 0);
	rec_free(&r);
	free(data);
}
END_TEST

START_TEST(test_a_recording_is_a_workload)
{
	size_t len, n = 0;
	unsigned char *data = sample(&len);
	char *path = temp_path();
	struct recording r;
	u32 *order, before;
	int rc;

	write_file(path, data, len);
	before = load_relaxed(&live);
	rc = workload_open(path, &r, &order, &n, text, sizeof(text));
	if (!rc) {
		free(order);
		rec_free(&r);
	}
	before -= load_relaxed(&live);
	ck_assert_msg(!rc, "%s", text);
	ck_assert_uint_eq(n, 12);
	ck_assert_uint_eq(before, 0);
	unlink(path);
	free(data);
}
END_TEST

/*
 * With right checksums: the reader returns with any result, an accepted recording may or may
 * not have an order, and no access is out of bounds (which the address sanitizer checks).
 */
START_TEST(test_nonsense)
{
	unsigned char *data, *copy;
	u64 seed = 1;
	struct recording r;
	size_t len, i, n, taken = 0, refused = 0;
	u32 order[64], k;

	data = sample(&len);
	copy = malloc(len);
	for (i = 0; i < (size_t)TIMES(60000); i++) {
		memcpy(copy, data, len);
		for (k = 0; k <= rnd(&seed) % 4; k++) {
			size_t at = rnd(&seed) % len;

			if (rnd(&seed) % 2)
				copy[at] ^= (unsigned char)(1 << rnd(&seed) % 8);
			else
				copy[at] = (unsigned char)rnd(&seed);
		}
		seal(copy, len);
		if (try(copy, len, &r)) {
			refused++;
			continue;
		}
		taken++;
		if (r.nops <= 64)
			(void)rec_order(&r, order, &n, text, sizeof(text));
		rec_free(&r);
	}
	ck_assert_uint_gt(taken, 0);
	ck_assert_uint_gt(refused, 0);
	free(copy);
	free(data);
}
END_TEST

SUITE("record_damaged", test_cut, test_bits,
      test_a_text_of_the_start_that_does_not_end_is_refused,
      test_a_chunk_that_contradicts_the_others_is_refused,
      test_events_without_a_whole_time_are_refused, test_a_chunk_of_no_bytes_is_whole,
      test_what_follows_the_last_chunk,
      test_events_that_contradict_each_other_are_refused, test_an_end_may_have_lost_its_begin,
      test_the_body_in_which_an_op_was_pushed, test_engines_and_threads_are_apart,
      test_many_engines_have_ops_and_vars_of_one_number,
      test_times_of_a_clock_that_does_not_advance, test_times_of_a_long_recording,
      test_the_first_version_of_a_var_is_that_of_an_access_with_a_place,
      test_a_name_that_is_too_long_is_refused, test_an_event_that_is_cut_is_refused,
      test_nothing_is_read_after_an_event_that_is_cut, test_the_offset_of_a_bad_event,
      test_a_recording_without_memory_to_read_it_is_refused,
      test_a_recording_is_a_workload, test_nonsense)
