// SPDX-License-Identifier: Apache-2.0
/*
 * tools/pawl/record.c: each field of each chunk and event, the message of each refusal, events that
 * are cut at any byte, and recordings that are larger than the first memory for them.  The file and
 * each allocation of the reader end at a page without access.
 */
#include "recordings.h"
#include "guarded.h"
#include <stdarg.h>

/* --- files --- */

static unsigned char file[1 << 19];
static size_t nfile;
static unsigned char made[1 << 18];	/* the events of a chunk */
static u32 nmade;

static void put32(unsigned char *to, u32 v)
{
	v = htole32(v);
	memcpy(to, &v, 4);
}

/* The clock counts 2000 cycles in the 4 s of a recording. */
static unsigned char *add(u32 type, u32 engine, u32 thread, u32 nth, const void *p, u32 n)
{
	unsigned char *head = file + nfile;

	MUST(nfile + REC_HEAD + n + 8 < sizeof(file));
	memset(head, 0, REC_HEAD + n + 8);
	put32(head, REC_MAGIC);
	put32(head + 4, type);
	set_bytes(head, n);
	put32(head + 12, engine);
	put32(head + 16, thread);
	put32(head + 20, nth);
	put64(head + 24, nfile ? 3000 : 1000);
	put64(head + 32, nfile ? 4000005000 : 5000);
	if (n)
		memcpy(head + REC_HEAD, p, n);
	nfile += chunk_size(head);
	return head;
}

static void file_of(u32 engines)
{
	static const unsigned char start[18] = { [0] = REC_VERSION, [4] = 77 },
		engine_[29] = { [4] = 1, [16] = 1 };
	u32 i;

	nfile = 0;
	add(REC_CHUNK_START, 0, 0, 0, start, sizeof(start));
	for (i = 0; i < engines; i++)
		add(REC_CHUNK_ENGINE, i, 0, 0, engine_, sizeof(engine_));
}

static void add_end(void)
{
	static const unsigned char lost[8];

	add(REC_CHUNK_END, 0, 0, 0, lost, sizeof(lost));
}

/* The first events of a thread. */
static void add_events(u32 engine, u32 thread, const void *events, u32 n)
{
	static unsigned char contents_[8 + sizeof(made)];

	put64(contents_, 1000);
	memcpy(contents_ + 8, events, n);
	add(REC_CHUNK_EVENTS, engine, thread, 0, contents_, 8 + n);
}

static void byte(u32 b)
{
	MUST(nmade < sizeof(made));
	made[nmade++] = (unsigned char)b;
}

static u64 zig(s64 v)
{
	return (u64)v << 1 ^ (u64)(v >> 63);
}

static void numbers(const u64 *v, size_t n)
{
	u64 left;

	for (; n; n--, v++) {
		for (left = *v; left >= 0x80; left >>= 7)
			byte(0x80 | (left & 0x7f));
		byte((u32)left);
	}
}

#define NUMBERS(...) numbers((const u64[]){ __VA_ARGS__ }, COUNT(((const u64[]){ __VA_ARGS__ })))
#define EVENT(kind, ...) do { byte(kind); NUMBERS(__VA_ARGS__); } while (0)

/* Parse the file; a refusal leaves nothing. */
static int parse(struct recording *r)
{
	static const struct recording nothing_;
	unsigned char *copy;
	int rc;

	memset(r, 0xa5, sizeof(*r));
	guard_begin();
	copy = malloc(nfile ? nfile : 1);
	memcpy(copy, file, nfile);
	rc = rec_parse("test", copy, nfile, r, text, sizeof(text));
	guard_end();
	free(copy);
	if (rc) {
		ck_assert_uint_eq(live, 0);
		ck_assert(!memcmp(r, &nothing_, sizeof(*r)));
	}
	return rc;
}

static void accepted(struct recording *r)
{
	int rc;

	seal(file, nfile);
	rc = parse(r);
	ck_assert_msg(!rc, "%s", text);
}

static void forget(struct recording *r)
{
	static const struct recording nothing_;

	rec_free(r);
	ck_assert_uint_eq(live, 0);
	ck_assert(!memcmp(r, &nothing_, sizeof(*r)));
}

/* The file is refused as it is, with this text. */
__attribute__((format(printf, 1, 2)))
static void refused_as_it_is(const char *fmt, ...)
{
	char want[256];
	struct recording r;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(want, sizeof(want), fmt, ap);
	va_end(ap);
	ck_assert_int_eq(parse(&r), -EBADMSG);
	ck_assert_str_eq(text, want);
}

#define refused(...) do { seal(file, nfile); refused_as_it_is(__VA_ARGS__); } while (0)

/* --- fields --- */

START_TEST(test_each_field_of_a_chunk_has_its_whole_range)
{
	unsigned char start[16 + 1 + 200 + 1 + 150], about[28 + 1 + 255], lost[8], *head;
	static const unsigned char push[] = { PUSH };
	struct recording r;
	u32 i;

	memset(start, 'l', sizeof(start));
	memset(about, 'n', sizeof(about));
	put32(start, REC_VERSION);
	put32(start + 4, 0xfedcba98);
	put64(start + 8, 0x123456789a);
	start[16] = 200;
	start[16 + 1 + 200] = 150;
	memset(start + 16 + 1 + 200 + 1, 'p', 150);
	for (i = 0; i < 7; i++)
		put32(about + 4 * i, 0xf0e0d0c0 + i);
	about[28] = 255;
	put64(lost, 0x123456789abc);
	nfile = 0;
	add(REC_CHUNK_START, 0, 0, 0, start, sizeof(start));
	add(REC_CHUNK_ENGINE, 0, 0, 0, about, sizeof(about));
	about[28] = 3;
	add(REC_CHUNK_ENGINE, 1, 0, 0, about, 28 + 1 + 3);
	add_events(1, 0xfffffff0, push, sizeof(push));
	head = add(REC_CHUNK_END, 0, 0, 0, lost, sizeof(lost));
	put64(head + 32, 7000000000000);
	accepted(&r);
	ck_assert_str_eq(r.format, "pawl");
	ck_assert_uint_eq(r.version, REC_VERSION);
	ck_assert_uint_eq(r.pid, 0xfedcba98);
	ck_assert_int_eq(r.started, 0x123456789a);
	ck_assert_uint_eq(strspn(r.library, "l"), 127);
	ck_assert_uint_eq(strspn(r.program, "p"), 127);
	ck_assert(!r.library[127] && !r.program[127]);
	ck_assert_uint_eq(r.nengines, 2);
	for (i = 0; i < 2; i++) {
		ck_assert_uint_eq(r.engines[i].number, i);
		ck_assert_uint_eq(r.engines[i].kind, 0xf0e0d0c0);
		ck_assert_uint_eq(r.engines[i].workers, 0xf0e0d0c1);
		ck_assert_uint_eq(r.engines[i].devices, 0xf0e0d0c4);
		ck_assert_uint_eq(strspn(r.engines[i].name, "n"), i ? 3 : 127);
		ck_assert_uint_eq(strlen(r.engines[i].name), i ? 3 : 127);
	}
	ck_assert_uint_eq(r.threads, 1);
	ck_assert_uint_eq(r.nops, 1);
	ck_assert_uint_eq(r.ops[0].engine, 1);
	ck_assert_uint_eq(r.ops[0].thread, 0xfffffff0);
	ck_assert_uint_eq(r.lost, 0x123456789abc);
	ck_assert_uint_eq(r.length, 7000000000000 - 5000);
	ck_assert_uint_eq(r.chunks, 5);
	ck_assert_uint_eq(r.bytes, nfile);
	ck_assert_uint_eq(r.whole, nfile);
	ck_assert(r.ended && !r.foreign && !r.nedges && !r.edges);
	forget(&r);
}
END_TEST

START_TEST(test_each_field_of_an_event_has_its_whole_range)
{
	enum { CYCLE = 2000000 };	/* in ns */
	const struct rec_op *o;
	struct recording r;

	nmade = 0;
	EVENT(REC_NAME, 1);
	byte('x');
	EVENT(REC_WAIT | REC_WAIT_ALL, 3);
	EVENT(REC_PUSH | REC_PUSH_PRIO | REC_PUSH_WHERE | REC_PUSH_ASYNC, 297, zig(4000000000),
	      zig(4100000000), 1, zig(INT32_MIN));
	byte(0x7b | REC_PROP_ENDS);
	NUMBERS(0x1234, 0xfedc, 2, 7 << 1 | 1, 5, (u64)(UINT32_MAX - 7) << 1, UINT32_MAX >> 1);
	EVENT(REC_PUSH | REC_PUSH_PRIO | REC_PUSH_MORE, 0, zig(1 - 4000000000), zig(1 - 4100000000),
	      0, zig(INT32_MAX), 0);
	EVENT(REC_PUSH | REC_PUSH_EMPTY, 0, zig(1), 0, 0, 0);
	byte(REC_PUSH | REC_PUSH_WHERE);
	NUMBERS(0, zig(1), zig(1), 0);
	byte(0x80);
	/* a var may have the number 0, also in the first access */
	NUMBERS(0, 0, 1, 0, 0);
	EVENT(REC_BEGIN, 50, zig(4000000000), zig(4100000000), 2, 0, (1ull << 40) + 1);
	EVENT(REC_END | REC_END_STATUS, 10, 4000000000, 4100000000, zig(INT32_MIN));
	EVENT(REC_BEGIN, 0, zig(1 - 4000000000), zig(1 - 4100000000), 0);
	EVENT(REC_WAIT | REC_WAIT_WRITABLE, 7, UINT32_MAX, UINT32_MAX >> 1);
	EVENT(REC_WAITED, 3, zig(INT32_MAX));
	file_of(2);
	add_events(1, 9, made, nmade);
	add_end();
	accepted(&r);
	ck_assert_uint_eq(r.nops, 4);
	ck_assert_uint_eq(r.naccesses, 3);
	ck_assert_uint_eq(r.nvars, 3);
	o = r.ops;
	ck_assert(o->engine == 1 && o->thread == 9 && o->runner == 9 && o->parent == REC_NONE);
	ck_assert(o->index == 4000000000 && o->gen == 4100000000);
	ck_assert_str_eq(o->name, "x");
	ck_assert(!o->access && o->naccesses == 2 && o->priority == INT32_MIN);
	ck_assert(o->prop == 0x7b && o->device_kind == 0x1234 && o->device == 0xfedc);
	ck_assert(o->async && o->ends && !o->empty && !o->more && !o->undone);
	ck_assert(o->begun && o->ended && o->status == INT32_MIN);
	ck_assert_uint_eq(o->push, 300ull * CYCLE);
	ck_assert_uint_eq(o->begin, 350ull * CYCLE);
	ck_assert_uint_eq(o->end, 360ull * CYCLE);
	o++;
	ck_assert(o->engine == 1 && o->thread == 9 && o->index == 1 && o->gen == 1);
	ck_assert_str_eq(o->name, "");
	ck_assert(o->access == 2 && !o->naccesses && o->priority == INT32_MAX);
	ck_assert(!o->prop && !o->device_kind && !o->device);
	ck_assert(!o->async && !o->ends && !o->empty && o->more && !o->undone);
	ck_assert(o->begun && !o->ended && !o->status && o->runner == 9);
	ck_assert_uint_eq(o->begin, 360ull * CYCLE);
	ck_assert_uint_eq(o->end, 0);
	o++;
	ck_assert(o->index == 2 && o->gen == 1);
	ck_assert(o->empty && !o->async && !o->more && !o->priority);
	ck_assert(!o->begun && !o->ended && o->runner == REC_NONE && o->parent == REC_NONE);
	o++;
	ck_assert(o->index == 3 && o->gen == 2 && !o->empty && !o->async && !o->more && o->ends);
	ck_assert(!o->prop && !o->device_kind && !o->device && o->access == 2 && o->naccesses == 1);
	ck_assert(r.accesses[0].var == 0 && r.accesses[0].write && !r.accesses[0].placed &&
		  !r.accesses[0].version);
	ck_assert(r.accesses[1].var == 1 && !r.accesses[1].write && r.accesses[1].placed &&
		  r.accesses[1].version == 1ull << 40);
	ck_assert(r.accesses[2].var == 2 && !r.accesses[2].write && !r.accesses[2].placed);
	ck_assert(r.vars[0].engine == 1 && r.vars[0].index == 7 && r.vars[0].gen == 11);
	ck_assert(r.vars[1].engine == 1 && r.vars[1].index == UINT32_MAX &&
		  r.vars[1].gen == UINT32_MAX);
	ck_assert(r.vars[2].engine == 1 && r.vars[2].index == 0 && r.vars[2].gen == 1);
	ck_assert(r.vars[0].first == UINT64_MAX && r.vars[1].first == 1ull << 40);
	ck_assert(r.vars[0].writes == 1 && !r.vars[0].reads && r.vars[1].reads == 1 &&
		  !r.vars[1].writes);
	ck_assert_uint_eq(r.nwaits, 2);
	ck_assert(r.waits[0].engine == 1 && r.waits[0].thread == 9 && r.waits[0].var == REC_NONE);
	ck_assert(!r.waits[0].write && !r.waits[0].ended && r.waits[0].after == REC_NONE &&
		  !r.waits[0].end && !r.waits[0].status);
	ck_assert_uint_eq(r.waits[0].begin, 3ull * CYCLE);
	ck_assert(r.waits[1].engine == 1 && r.waits[1].thread == 9 && r.waits[1].var == 1);
	ck_assert(r.waits[1].write && r.waits[1].ended && r.waits[1].after == 3 &&
		  r.waits[1].status == INT32_MAX);
	ck_assert_uint_eq(r.waits[1].begin, 367ull * CYCLE);
	ck_assert_uint_eq(r.waits[1].end, 370ull * CYCLE);
	forget(&r);
}
END_TEST

/* If the clock or the time stands still, the unit of the clock is unknown, and times are cycles. */
START_TEST(test_times_of_a_clock_that_stands_still)
{
	static const u64 ends[][2] = { { 1000, 4000005000 }, { 3000, 5000 }, { 1001, 5001 } };
	static const unsigned char push[] = { REC_PUSH, 40, 4, 2, 0, 0 };
	struct recording r;
	u32 i;

	for (i = 0; i < COUNT(ends); i++) {
		unsigned char *at;

		file_of(1);
		add_events(0, 7, push, sizeof(push));
		add_end();
		at = chunk(file, nfile, REC_CHUNK_END, 0);
		put64(at + 24, ends[i][0]);
		put64(at + 32, ends[i][1]);
		accepted(&r);
		ck_assert_uint_eq(r.ops[0].push, 40);
		ck_assert_uint_eq(r.length, ends[i][1] - 5000);
		forget(&r);
	}
}
END_TEST

/* Vars and ops differ by each part of their names, however many there are. */
START_TEST(test_names_of_vars_and_ops_that_differ_in_one_part)
{
	enum { N = 700 };
	struct recording r;
	u32 part, i, index, gen, last_index, last_gen;

	for (part = 0; part < 2; part++) {
		nmade = last_index = last_gen = 0;
		/* N indices of two generations, and then two indices of N generations */
		for (i = 0; i < 2 * N; i++) {
			index = part ? i / N : 1 + i % N;
			gen = part ? 1 + i % N : 1 + i / N;
			EVENT(REC_PUSH, 0, zig((s64)index - last_index),
			      zig((s64)gen - last_gen), 0, 1, part ? 1 : (u64)(i % N) << 1 | 1,
			      part ? i % N : 0);
			last_index = index;
			last_gen = gen;
		}
		for (i = 0; i < 2 * N; i++)
			EVENT(REC_END, 0, part ? i / N : 1 + i % N, part ? 1 + i % N : 1 + i / N);
		file_of(1);
		add_events(0, 7, made, nmade);
		accepted(&r);
		ck_assert_uint_eq(r.nops, 2 * N);
		ck_assert_uint_eq(r.nvars, N);
		ck_assert_uint_eq(r.foreign, 0);
		for (i = 0; i < 2 * N; i++) {
			const struct rec_var *v = &r.vars[i % N];

			MUST(r.accesses[i].var == i % N && v->writes == 2);
			MUST(v->index == (part ? 0 : i % N));
			MUST(v->gen == (part ? 2 * (i % N) + 1 : 1));
		}
		forget(&r);
	}
}
END_TEST

/* An op that was pushed before the recording is unknown, and so is what its body pushes. */
START_TEST(test_events_of_ops_that_are_unknown)
{
	struct recording r;
	u32 i;

	nmade = 0;
	EVENT(REC_PUSH, 0, zig(1), zig(1), 0, 0);
	EVENT(REC_BEGIN, 0, zig(5), zig(5), 1, 9);
	EVENT(REC_PUSH, 0, zig(1), 0, 0, 0);
	EVENT(REC_END | REC_END_OPEN | REC_END_STATUS, 0, zig(-5));
	EVENT(REC_BEGIN, 0, zig(-4), zig(-4), 0);
	EVENT(REC_BEGIN, 0, zig(5), zig(5), 0);
	EVENT(REC_PUSH, 0, zig(1), 0, 0, 0);
	EVENT(REC_END, 0, 6, 6);
	EVENT(REC_PUSH, 0, zig(1), 0, 0, 0);
	EVENT(REC_UNDO, 7, 7);
	EVENT(REC_END, 0, 1, 1);
	file_of(1);
	add_events(0, 7, made, nmade);
	add_end();
	accepted(&r);
	ck_assert_uint_eq(r.nops, 4);
	ck_assert_uint_eq(r.foreign, 5);
	for (i = 0; i < 4; i++) {
		ck_assert(r.ops[i].begun == !i && r.ops[i].ended == !i && !r.ops[i].undone);
		ck_assert_uint_eq(r.ops[i].parent, i < 2 ? REC_NONE : 0);
	}
	forget(&r);
}
END_TEST

/* The two times are of different clocks: the op took no time. */
START_TEST(test_an_op_that_ends_before_it_begins)
{
	struct recording r;

	nmade = 0;
	EVENT(REC_PUSH, 0, zig(1), zig(1), 0, 0);
	EVENT(REC_END, 10, 1, 1);
	EVENT(REC_BEGIN, 20, zig(1), zig(1), 0);
	file_of(1);
	add_events(0, 7, made, nmade);
	add_end();
	accepted(&r);
	ck_assert_uint_eq(r.ops[0].begin, 60000000);
	ck_assert_uint_eq(r.ops[0].end, 60000000);
	forget(&r);
}
END_TEST

/* --- what makes no sense --- */

START_TEST(test_what_is_said_of_a_chunk)
{
	static const unsigned char start[17] = { REC_VERSION }, zero[64];
	struct recording old;
	unsigned char *head;
	size_t at;

	nfile = 0;
	refused("test: 0 bytes: not a recording, or nothing of it");
	file_of(1);
	at = nfile;
	nfile = 20;
	refused_as_it_is("test: 20 bytes: not a recording, or nothing of it");
	nfile = at;
	file[0]++;
	refused_as_it_is("test: not a recording");
	file_of(1);
	file[40]++;
	refused_as_it_is("test: offset 0: the header of a chunk is damaged");
	file_of(1);
	seal(file, nfile);
	file[REC_HEAD]++;
	refused_as_it_is("test: offset 0: the contents of a chunk are damaged");
	file_of(1);
	at = nfile;
	put64(file + nfile, 1);
	nfile += 8;
	refused("test: offset %zu: no chunk begins here", at);

	nfile = 0;
	add(REC_CHUNK_START, 0, 0, 0, start, 15);
	refused("test: offset 0: the start has 15 bytes");
	/* no byte behind the file is read */
	nfile = 0;
	add(REC_CHUNK_START, 0, 0, 0, start, 16);
	refused("test: offset 0: a text of the start does not end");
	nfile = 0;
	add(REC_CHUNK_START, 0, 0, 0, start, 17);
	refused("test: offset 0: a text of the start does not end");
	file_of(0);
	put32(file + REC_HEAD, 99);
	refused("test: offset 0: version 99 of the format, this program reads 1 to 2");
	put32(file + REC_HEAD, REC_VERSION_OLD);
	accepted(&old);
	ck_assert_uint_eq(old.version, REC_VERSION_OLD);
	forget(&old);
	nfile = 0;
	add_end();
	refused("test: offset 0: no start");
	file_of(0);
	at = nfile;
	add(REC_CHUNK_START, 0, 0, 0, start, 17);
	refused("test: offset %zu: a second start", at);

	file_of(0);
	at = nfile;
	add(REC_CHUNK_ENGINE, 0, 0, 0, zero, 27);
	refused("test: offset %zu: an engine has 27 bytes", at);
	file_of(0);
	head = add(REC_CHUNK_ENGINE, 0, 0, 0, zero, 32);
	head[REC_HEAD + 28] = 4;
	refused("test: offset %zu: the name of engine 0 does not end", at);
	file_of(0);
	add(REC_CHUNK_ENGINE, 4000000000, 0, 0, zero, 32);
	refused("test: offset %zu: engine 4000000000 after 0 others", at);
	file_of(3);
	at = nfile;
	add(REC_CHUNK_ENGINE, 2, 0, 0, zero, 32);
	refused("test: offset %zu: engine 2 after 3 others", at);
	file_of(3);
	head = add(REC_CHUNK_ENGINE, 3, 0, 0, zero, 32);
	head[REC_HEAD + 28] = 4;
	refused("test: offset %zu: the name of engine 3 does not end", at);

	file_of(2);
	at = nfile;
	add(REC_CHUNK_EVENTS, 2, 0, 0, zero, 8);
	refused("test: offset %zu: events of engine 2, of which nothing was said", at);
	file_of(2);
	add(REC_CHUNK_EVENTS, 1, 4000000001, 0, zero, 8);
	at = nfile;
	add(REC_CHUNK_EVENTS, 1, 4000000001, 4000000002, zero, 8);
	refused("test: offset %zu: chunk 4000000002 of thread 4000000001 of engine 1, expected 1",
		at);
	file_of(2);
	at = nfile;
	add(REC_CHUNK_END, 0, 0, 0, zero, 7);
	refused("test: offset %zu: the end has 7 bytes", at);
	file_of(2);
	add(REC_CHUNK_END + 1, 0, 0, 0, zero, 8);
	refused("test: offset %zu: a chunk of type 5", at);
	file_of(2);
	add_end();
	at = nfile;
	add_end();
	refused("test: offset %zu: something after the end", at);
}
END_TEST

/* The push, begin, end and refusal of op 4294967295.4294967294, with an access of var 1. */
#define LAST_PUSH	REC_PUSH, 0, 1, 3, 0, 1, 3, 0
#define LAST_BEGIN	REC_BEGIN, 0, 1, 3, 1, 1
#define LAST		255, 255, 255, 255, 15, 254, 255, 255, 255, 15
#define LAST_END	REC_END, 0, LAST
#define LAST_UNDO	REC_UNDO, LAST

START_TEST(test_what_is_said_of_an_event)
{
	static const struct {
		unsigned char events[48];
		u32 n;
		u32 at;			/* of the event that makes no sense */
		const char *says;
	} list[] = {
		{ EVENTS(0), 0, "an event of kind 0" },
		{ EVENTS(LAST_PUSH, 0xf8, 0), 8, "an event of kind 0" },
		{ EVENTS(REC_NAME, 1, 'n', REC_PUSH, 0, 1, 3, 255, 255, 255, 255, 255, 255, 255,
			 255, 255, 1, 0), 3, "name 18446744073709551615 of 1" },
		{ EVENTS(REC_PUSH, 0, 1, 3, 0, 1, 128, 128, 128, 128, 32, 0), 0,
		  "an access of var 4294967296" },
		{ EVENTS(REC_PUSH, 0, 1, 3, 0, 2, 129, 128, 128, 128, 8, 0, 1, 0), 0,
		  "var 1073741824 twice in one op" },
		{ EVENTS(LAST_PUSH, LAST_BEGIN, LAST_UNDO), 14,
		  "op 4294967295.4294967294 was not refused" },
		{ EVENTS(LAST_PUSH, LAST_BEGIN, REC_BEGIN, 0, 0, 0, 1, 1), 14,
		  "op 4294967295.4294967294 begins twice" },
		{ EVENTS(LAST_PUSH, LAST_UNDO, LAST_BEGIN), 19,
		  "op 4294967295.4294967294 begins and was refused" },
		{ EVENTS(LAST_PUSH, REC_BEGIN, 0, 1, 3, 3, 1, 1, 1), 8,
		  "op 4294967295.4294967294 begins with 3 accesses, and has 1" },
		{ EVENTS(LAST_PUSH, REC_END | REC_END_OPEN, 0), 8, "an end without a begin" },
		{ EVENTS(LAST_PUSH, LAST_BEGIN, LAST_END, LAST_END), 26,
		  "op 4294967295.4294967294 ends twice" },
		{ EVENTS(LAST_PUSH, LAST_UNDO, LAST_END), 19,
		  "op 4294967295.4294967294 ends and was refused" },
		{ EVENTS(REC_WAIT | 0xf8, 0), 0, "a wait of kind 0xf8" },
		{ EVENTS(REC_WAIT | REC_WAIT_READABLE, 0, 128, 128, 128, 128, 16, 0), 0,
		  "a wait for var 4294967296" },
		{ EVENTS(LAST_PUSH, REC_WAITED, 0), 8, "an event that does not end" },
		/* a number has at most eleven bytes */
		{ EVENTS(REC_WAIT | REC_WAIT_ALL, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
			 128, 128, 0), 12, "an event of kind 0" },
		{ EVENTS(LAST_PUSH, REC_PUSH, 0, 0, 0, 0, 0), UINT32_MAX,
		  "op 4294967295.4294967294 of engine 1 is pushed twice" },
		{ EVENTS(LAST_PUSH, LAST_END), UINT32_MAX,
		  "op 4294967295.4294967294 of engine 1 ends, and never began" },
	};
	static const unsigned char zero[7];
	unsigned char name[3 + REC_NAME_MAX + 1] = { REC_NAME, 0x80, 2 };
	size_t at;
	u32 i;

	for (i = 0; i < COUNT(list); i++) {
		file_of(2);
		at = nfile + REC_HEAD + 8 + list[i].at;
		add_events(1, 4000000001, list[i].events, list[i].n);
		add_end();
		if (list[i].at == UINT32_MAX)
			refused("test: %s", list[i].says);
		else
			refused("test: offset %zu: thread 4000000001 of engine 1: %s", at,
				list[i].says);
	}
	file_of(2);
	at = nfile + REC_HEAD;
	add_events(1, 4000000001, name, sizeof(name));
	refused("test: offset %zu: thread 4000000001 of engine 1: a name of 256 bytes", at + 8);
	file_of(2);
	add(REC_CHUNK_EVENTS, 1, 4000000001, 0, zero, 7);
	refused("test: offset %zu: thread 4000000001 of engine 1: no time at the beginning", at);
}
END_TEST

/* --- events that are cut --- */

/* Both recordings have the same ops and waits, with the same times and results. */
static void same(const struct recording *a, const struct recording *b)
{
	size_t i;

	ck_assert_uint_eq(a->nops, b->nops);
	ck_assert_uint_eq(a->naccesses, b->naccesses);
	ck_assert_uint_eq(a->nwaits, b->nwaits);
	ck_assert_uint_eq(a->foreign, b->foreign);
	for (i = 0; i < a->nops; i++) {
		const struct rec_op *x = &a->ops[i], *y = &b->ops[i];

		ck_assert(x->undone == y->undone && x->begun == y->begun && x->ended == y->ended &&
			  x->begin == y->begin && x->end == y->end && x->status == y->status &&
			  x->parent == y->parent && x->runner == y->runner);
	}
	for (i = 0; i < a->naccesses; i++)
		ck_assert(a->accesses[i].placed == b->accesses[i].placed);
	for (i = 0; i < a->nwaits; i++)
		ck_assert(a->waits[i].ended == b->waits[i].ended &&
			  a->waits[i].end == b->waits[i].end &&
			  a->waits[i].status == b->waits[i].status);
}

/* No part of an event that was cut counts.  In a recording with an end, no event may be cut. */
START_TEST(test_nothing_of_an_event_that_is_cut_counts)
{
	enum { LARGE = 300 };		/* a number of two bytes */
	struct rec_op ops[2];
	struct rec_access accesses[3];
	struct rec_wait waits[1];
	struct recording r, before = { 0 };
	u32 kind, n, from, to;
	size_t at;

	for (kind = 0; kind < 10; kind++) {
		nmade = 0;
		EVENT(REC_NAME, 1);
		byte('n');
		EVENT(REC_PUSH, 0, zig(LARGE), zig(LARGE), 1, 2, 3, 0, 3, 0);
		EVENT(REC_PUSH, 0, zig(1), 0, 1, 1, 3, 0);
		EVENT(REC_BEGIN, 0, zig(LARGE), zig(LARGE), 2, 1, 1);
		EVENT(REC_WAIT | REC_WAIT_ALL, 0);
		from = nmade;
		switch (kind) {
		case 0:
			EVENT(REC_NAME, 3);
			byte('n'), byte('n'), byte('n');
			break;
		case 1:
			EVENT(REC_PUSH | REC_PUSH_PRIO | REC_PUSH_WHERE, LARGE, zig(LARGE),
			      zig(LARGE), 1, zig(LARGE));
			byte(3);
			NUMBERS(LARGE, LARGE, 3, LARGE, LARGE, LARGE, LARGE, LARGE, LARGE);
			break;
		case 2:
			/* no name has this number, since the number may be cut, too */
			EVENT(REC_PUSH, LARGE, zig(LARGE), zig(LARGE), LARGE, LARGE);
			break;
		case 3:
			EVENT(REC_UNDO, LARGE + 1, LARGE);
			break;
		case 4:
			EVENT(REC_BEGIN, LARGE, zig(1), 0, 1, LARGE);
			break;
		case 5:
			EVENT(REC_END | REC_END_STATUS, LARGE, LARGE, LARGE, zig(LARGE));
			break;
		case 6:
			EVENT(REC_END | REC_END_OPEN | REC_END_STATUS, LARGE, zig(LARGE));
			break;
		case 7:
			EVENT(REC_WAIT | REC_WAIT_READABLE, LARGE, LARGE, LARGE);
			break;
		case 8:
			EVENT(REC_WAITED, LARGE, zig(LARGE));
			break;
		default:
			/* the op was not pushed */
			EVENT(REC_END, LARGE, LARGE, LARGE + 1);
		}
		to = nmade;
		for (n = from; n < to; n++) {
			file_of(1);
			at = nfile + REC_HEAD + 8 + from;
			add_events(0, 7, made, n);
			if (n == from) {
				/* the next parse uses the same addresses: keep a copy */
				accepted(&r);
				ck_assert(r.nops == 2 && r.naccesses == 3 && r.nwaits == 1);
				memcpy(ops, r.ops, sizeof(ops));
				memcpy(accesses, r.accesses, sizeof(accesses));
				memcpy(waits, r.waits, sizeof(waits));
				before = r;
				before.ops = ops;
				before.accesses = accesses;
				before.waits = waits;
				forget(&r);
				continue;
			}
			accepted(&r);
			ck_assert(!r.ended);
			same(&r, &before);
			forget(&r);
			add_end();
			refused("test: offset %zu: thread 7 of engine 0: an event that does not "
				"end", at);
		}
	}
}
END_TEST

/* A count of more items than bytes follow means that some are missing, also if its double wraps. */
START_TEST(test_counts_beyond_the_end)
{
	static const unsigned char kinds[] = { REC_NAME, REC_PUSH, REC_BEGIN };
	static const u64 counts[] = { 20, 21, 40, 1ull << 62, 1ull << 63, UINT64_MAX };
	struct recording r;
	u32 i, k;

	for (k = 0; k < COUNT(kinds); k++) {
		for (i = 0; i < COUNT(counts); i++) {
			nmade = 0;
			byte(kinds[k]);
			if (k)
				NUMBERS(0, zig(1), zig(1));
			if (k == 1)
				NUMBERS(0);
			NUMBERS(counts[i]);
			while (nmade % 32 < 19)
				byte(2);
			file_of(1);
			add_events(0, 7, made, nmade);
			accepted(&r);
			ck_assert(!r.nops && !r.naccesses && !r.foreign);
			forget(&r);
		}
	}
}
END_TEST

/* --- recordings that are larger than the first memory for them --- */

static void many_are_right(const struct recording *r, u32 names, u32 ops, u32 deep)
{
	u32 i, k, nth;

	ck_assert_uint_eq(r->nvars, 3 * ops);
	for (k = 0; k < ops; k++) {
		const struct rec_op *o = &r->ops[k];

		nth = k % names;
		MUST(o->index == k + 1 && o->gen == 1 && o->push == 0);
		MUST(strlen(o->name) == nth % 12);
		for (i = 0; i < nth % 12; i++)
			MUST(o->name[i] == (char)('a' + nth % 26));
		MUST(o->parent == REC_NONE && o->naccesses == 3 && o->access == 3 * k);
		for (i = 0; i < 3; i++) {
			MUST(r->accesses[3 * k + i].var == 3 * k + i);
			MUST(r->accesses[3 * k + i].placed == (k < deep));
			MUST(r->vars[3 * k + i].index == 3 * k + i + 1);
		}
	}
	for (k = 0; k < deep; k++) {
		MUST(r->ops[k].begun && r->ops[k].ended);
		MUST(r->ops[ops + k].parent == k && r->ops[ops + k].naccesses == 1);
		MUST(r->accesses[3 * ops + k].var == k);
		MUST(r->ops[ops + deep + k].parent == (k < deep - 1 ? deep - 2 - k : REC_NONE));
		MUST(r->waits[k].ended && r->waits[k].status == -(int)k);
		MUST(r->waits[k].after == (k ? ops + k - 1 : ops - 1));
	}
}

START_TEST(test_more_of_everything_than_there_is_room_for_at_first)
{
	enum { NAMES = 100, OPS = 300, DEEP = 150, MORE = 200 };
	static const unsigned char waited[] = { REC_WAITED, 0, 0, 0 },
		push[] = { PUSH, BEGIN, REC_PUSH, 0, 2, 0, 0, 0 };
	struct recording r;
	size_t at = 0;
	u32 i, k;

	nmade = 0;
	for (k = 0; k < NAMES; k++) {
		EVENT(REC_NAME, k % 12);
		for (i = 0; i < k % 12; i++)
			byte('a' + k % 26);
	}
	for (k = 0; k < OPS; k++)
		EVENT(REC_PUSH, 0, zig(1), zig(!k), 1 + k % NAMES, 3, (3 * k + 1) << 1 | 1, 0, 2, 0,
		      2, 0);
	for (k = 0; k < DEEP; k++) {
		EVENT(REC_WAIT | REC_WAIT_ALL, 0);
		EVENT(REC_BEGIN, 0, zig(1), zig(!k), 3, 1, 1, 1);
		EVENT(REC_PUSH, 0, zig(1), 0, 0, 1, (k + 1) << 1, 0);
	}
	for (k = DEEP; k--; ) {
		EVENT(REC_END, 0, k + 1, 1);
		EVENT(REC_WAITED, 0, zig(-(s64)k));
		EVENT(REC_PUSH, 0, zig(1), 0, 0, 0);
	}
	for (i = 0; i < 2; i++) {
		file_of(MORE);
		add_events(0, 7, made, nmade);
		for (k = 1; k < MORE; k++) {
			add_events(k, 9, push, sizeof(push));
			at = nfile + REC_HEAD;
			/* the last event of all makes no sense in the second round */
			add(REC_CHUNK_EVENTS, 0, 7, k, waited, i && k == MORE - 1 ? 4 : 3);
		}
		add_end();
		if (i) {
			refused("test: offset %zu: thread 7 of engine 0: an event of kind 0",
				at + 3);
			break;
		}
		accepted(&r);
		ck_assert_uint_eq(r.threads, MORE);
		ck_assert_uint_eq(r.nengines, MORE);
		ck_assert_uint_eq(r.nwaits, DEEP);
		ck_assert_uint_eq(r.nops, OPS + 2 * DEEP + 2 * (MORE - 1));
		for (k = 1; k < MORE; k++) {
			const struct rec_op *o = &r.ops[OPS + 2 * DEEP + 2 * (k - 1)];

			MUST(o->engine == k && o->thread == 9 && o->begun && o->runner == 9);
			MUST(o[1].engine == k && !o[1].begun);
			MUST(o->parent == REC_NONE && o[1].parent == (u32)(o - r.ops));
			MUST(r.vars[r.accesses[o->access].var].engine == k);
		}
		r.nvars -= MORE - 1;
		many_are_right(&r, NAMES, OPS, DEEP);
		forget(&r);
	}
}
END_TEST

START_TEST(test_an_op_with_more_accesses_than_16_bits_count)
{
	enum { N = (1 << 16) + 1 };
	struct recording r;
	u32 i;

	nmade = 0;
	EVENT(REC_PUSH, 0, zig(1), zig(1), 0, N);
	for (i = 0; i < N; i++)
		NUMBERS(1 << 1, 0);
	EVENT(REC_BEGIN, 0, zig(1), zig(1), N);
	for (i = 0; i < N; i++)
		NUMBERS(2);
	file_of(1);
	add_events(0, 7, made, nmade);
	accepted(&r);
	ck_assert_uint_eq(r.ops[0].naccesses, N);
	ck_assert_uint_eq(r.naccesses, N);
	ck_assert_uint_eq(r.nvars, N);
	for (i = 0; i < N; i++)
		MUST(r.accesses[i].var == i && r.accesses[i].version == 1);
	forget(&r);
}
END_TEST

/* Each chunk of a thread is larger than those before it together. */
START_TEST(test_chunks_that_grow)
{
	struct recording r;
	u32 k, n = 0;

	file_of(1);
	add_events(0, 7, "", 0);
	for (k = 0; k < 5; k++) {
		nmade = 0;
		do {
			EVENT(REC_WAIT | REC_WAIT_ALL, 0);
			n++;
		} while (nmade < 100u << 2 * k);
		add(REC_CHUNK_EVENTS, 0, 7, 1 + k, made, nmade);
	}
	accepted(&r);
	ck_assert_uint_eq(r.nwaits, n);
	ck_assert_uint_eq(r.chunks, 8);
	forget(&r);
}
END_TEST

SUITE("record_events", test_each_field_of_a_chunk_has_its_whole_range,
      test_each_field_of_an_event_has_its_whole_range, test_times_of_a_clock_that_stands_still,
      test_names_of_vars_and_ops_that_differ_in_one_part, test_events_of_ops_that_are_unknown,
      test_an_op_that_ends_before_it_begins, test_what_is_said_of_a_chunk,
      test_what_is_said_of_an_event, test_nothing_of_an_event_that_is_cut_counts,
      test_counts_beyond_the_end, test_chunks_that_grow,
      test_an_op_with_more_accesses_than_16_bits_count,
      test_more_of_everything_than_there_is_room_for_at_first)
