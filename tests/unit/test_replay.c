// SPDX-License-Identifier: Apache-2.0
/* tools/pawl/replay.c: what a replay does and finds, of recordings that are made here. */
#include "util.h"
#include <tools/pawl/cmd.h>
#include <tools/pawl/record.h>
#include <tools/pawl/replay.h>

static char text[256];

/*
 * An engine that breaks the order: pushes and sleeps of the replay come here (tests/Makefile).
 * UNORDERED takes the vars from the ops, and the last one runs first.  BESIDE runs the second op
 * inside the first.  TWICE runs each op twice that only reads.  FORGETFUL runs no op that writes.
 * FULL refuses ops that write.  SLEEPLESS only notes the sleeps.  BROKEN fails ops that write, and
 * does not run them; WORSE does that to the first op, and refuses the others.  NO_VARS refuses the
 * var with the number no_var.  CLOCKED has a clock that advances by 0.3 s each time that the main
 * thread reads it.  TAKEN has no vars left.
 */
enum { SOUND, UNORDERED, BESIDE, TWICE, FORGETFUL, FULL, SLEEPLESS, BROKEN, WORSE, NO_VARS,
       CLOCKED, TAKEN };

static int engine_is;
static struct pawl_op inner;
static struct timespec slept;		/* the last time */
static u32 sleeps, pushes, calls;	/* calls: of pawl_push() */
static struct pawl_op pushed[8];	/* its arguments, as far as there is room */
static pawl_var_t vars[8][8];		/* those that it reads, and then those that it writes */
static u32 creates, no_var;		/* creates: calls of pawl_var_create() */
static bool second_reads;

int __real_pawl_push(struct pawl_engine *e, const struct pawl_op *op);
int __wrap_pawl_push(struct pawl_engine *e, const struct pawl_op *op);
int __real_pawl_var_create(struct pawl_engine *e, pawl_var_t *out);
int __wrap_pawl_var_create(struct pawl_engine *e, pawl_var_t *out);
int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __real_nanosleep(const struct timespec *ns, struct timespec *left);
int __wrap_nanosleep(const struct timespec *ns, struct timespec *left);

int __wrap_pawl_push(struct pawl_engine *e, const struct pawl_op *op)
{
	static int32_t priority;
	struct pawl_op other = *op;

	if (calls < COUNT(pushed)) {
		pushed[calls] = *op;
		if (op->nreads + op->nwrites <= COUNT(vars[0])) {
			memcpy(vars[calls], op->reads, op->nreads * sizeof(*op->reads));
			memcpy(vars[calls] + op->nreads, op->writes,
			       op->nwrites * sizeof(*op->writes));
		}
	}
	calls++;
	if (engine_is == SOUND || engine_is == SLEEPLESS || engine_is == NO_VARS ||
	    engine_is == CLOCKED)
		return __real_pawl_push(e, op);
	if (engine_is == FORGETFUL && op->nwrites)
		return 0;
	if ((engine_is == FULL && op->nwrites) || (engine_is == WORSE && calls > 1))
		return -ENOBUFS;
	if (engine_is == TWICE && !op->nwrites)
		OK(__real_pawl_push(e, op));
	if (engine_is == BESIDE && pushes++ == 1) {
		inner = *op;
		return 0;
	}
	if ((engine_is == BROKEN && op->nwrites) || engine_is == WORSE)
		other.fn = fail_io;
	if (engine_is == UNORDERED) {
		other.nreads = other.nwrites = 0;
		other.priority = ++priority;
	}
	return __real_pawl_push(e, &other);
}

int __wrap_pawl_var_create(struct pawl_engine *e, pawl_var_t *out)
{
	while (engine_is == TAKEN && !__real_pawl_var_create(e, out))
		;
	return __real_pawl_var_create(e, engine_is == NO_VARS && creates++ == no_var ? NULL : out);
}

static u32 looks;			/* how often the clock of CLOCKED was read */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	u32 tenths;

	if (engine_is != CLOCKED || gettid() != getpid())
		return __real_clock_gettime(clock, ts);
	tenths = 3 * looks++;
	*ts = (struct timespec){ 1000 + tenths / 10, tenths % 10 * 100000000 };
	return 0;
}

int __wrap_nanosleep(const struct timespec *ns, struct timespec *left)
{
	struct pawl_op op = inner;

	MUST(ns);
	if (engine_is == SLEEPLESS) {
		slept = *ns;
		sleeps++;
		return 0;
	}
	inner.fn = NULL;
	return op.fn ? op.fn(NULL, op.arg) : __real_nanosleep(ns, left);
}

/* Two ops on one var; the second one writes, unless second_reads. */
static int replay(int how, bool read_first, struct replay_options o, u64 end,
		  struct replay_result *res)
{
	struct rec_access a[] = { { .var = 1, .write = !read_first, .placed = true },
				  { .var = 1, .write = !second_reads, .placed = true,
				    .version = !read_first } };
	struct rec_op ops[] = {
		{ .name = "", .parent = REC_NONE, .naccesses = 1, .begun = true, .ended = true,
		  .begin = 1000, .end = 1000 + end },
		{ .name = "two", .parent = REC_NONE, .access = 1, .naccesses = 1, .begun = true,
		  .ended = !end, .push = 1, .begin = end, .end = 0 },
	};
	struct rec_var v[2] = { { .gen = 1 } };
	const struct recording r = { .ops = ops, .nops = 2, .accesses = a, .naccesses = 2,
				     .vars = v, .nvars = 2 };
	const u32 order[] = { 0, 1 };
	int rc;

	engine_is = how;
	sleeps = pushes = 0;
	text[0] = 0;
	rc = replay_run(&r, order, 2, &o, res, text, sizeof(text));
	engine_is = SOUND;
	return rc;
}

static struct replay_result broken_replay(int how, bool read_first)
{
	struct replay_options o = { .speed = 1, .sleep = true };
	struct replay_result res;

	OK(replay(how, read_first, o, 0, &res));
	return res;
}

START_TEST(test_replay_sees_a_version_that_is_too_old_and_one_that_is_too_new)
{
	struct replay_result res = broken_replay(UNORDERED, false);

	ck_assert_str_eq(res.first, "op 1 (\"two\"): var 1 has version 0, not 1");
	ck_assert_uint_eq(res.wrong, 2);
	ck_assert_uint_eq(broken_replay(SOUND, false).wrong, 0);
}
END_TEST

/* Only readers may be inside each other; a reader inside a writer is also too early. */
START_TEST(test_replay_sees_who_is_beside_a_writer)
{
	struct replay_result res;
	u32 i, first, second;

	for (i = 0; i < 4; i++) {
		first = i & 1;
		second = i >> 1;
		second_reads = !second;
		res = broken_replay(BESIDE, !first);
		ck_assert_uint_eq(res.ops, 2);
		ck_assert_uint_eq(res.wrong, first ? 2 : second);
		ck_assert_str_eq(res.first, i ? "op 1 (\"two\"): var 1 is held by another" : "");
		ck_assert_uint_eq(broken_replay(SOUND, !first).wrong, 0);
	}
	second_reads = false;
}
END_TEST

START_TEST(test_replay_sees_ops_that_run_twice_or_never)
{
	struct replay_result res = broken_replay(TWICE, true);

	ck_assert_str_eq(res.first, "op 0 (\"\"): runs again");
	ck_assert_uint_eq(res.wrong, 2);
	ck_assert_uint_eq(res.ops, 3);
	res = broken_replay(FORGETFUL, true);
	ck_assert_str_eq(res.first, "1 bodies ran for 2 ops");
	ck_assert_uint_eq(res.wrong, 1);
}
END_TEST

/* An op whose end is not recorded takes none. */
START_TEST(test_bodies_take_their_time_divided_by_the_speed)
{
	struct replay_options o = { .speed = 2, .sleep = true };
	struct replay_result res;

	OK(replay(SLEEPLESS, false, o, 3000000002, &res));
	ck_assert_uint_eq(res.ops, 2);
	ck_assert_uint_eq(sleeps, 1);
	ck_assert(slept.tv_sec == 1 && slept.tv_nsec == 500000001);
	o.speed = 0;
	OK(replay(SLEEPLESS, false, o, 3000000002, &res));
	ck_assert_uint_eq(res.ops, 2);
	ck_assert_uint_eq(sleeps, 0);
	/* So does the whole replay, which takes no less, nor as long as the machine runs. */
	for (o.speed = 1; o.speed < 3; o.speed++) {
		OK(replay(SOUND, false, o, 4000000, &res));
		ck_assert_uint_ge(res.ns, 4000000 / (u32)o.speed);
		ck_assert_uint_lt(res.ns, 60000000000);
	}
	o.sleep = false;
	OK(replay(SLEEPLESS, false, o, 3000000, &res));
	ck_assert_uint_eq(sleeps, 0);
	ck_assert_uint_ge(res.ns, 3000000 / 3);
}
END_TEST

/* A busy body reads the clock until its time has passed, and not much longer. */
START_TEST(test_a_busy_body_ends_by_the_clock)
{
	struct replay_options o = { .workers = 0, .speed = 2 };
	struct replay_result res;

	looks = 0;
	OK(replay(CLOCKED, false, o, 12000000000, &res));
	/* after 20 reads the clock has advanced by 6 s */
	ck_assert_uint_ge(res.ns, 6000000000);
	ck_assert_uint_le(res.ns, looks * 300000000ull);
	ck_assert(looks > 20 && looks < 100);
}
END_TEST

/* The var ends after its last op alone; what an engine here does not have becomes plain. */
START_TEST(test_a_replay_of_ops_that_cannot_be_pushed_as_they_were)
{
	struct replay_options o = { .workers = 0 };
	struct rec_access a[] = { { .write = false }, { .write = true }, { .write = true } };
	struct rec_op ops[] = {
		{ .name = "", .parent = REC_NONE, .naccesses = 1 },
		{ .name = "", .parent = REC_NONE, .access = 1, .naccesses = 1, .ends = true,
		  .prop = PAWL_DELETE_VAR },
		{ .name = "", .parent = REC_NONE, .access = 2, .naccesses = 1, .priority = 1,
		  .prop = PAWL_NO_SKIP + 1, .device_kind = PAWL_CUDA, .device = 65535 },
	};
	struct rec_var v = { .gen = 1 };
	const struct recording r = { .ops = ops, .nops = 3, .accesses = a, .naccesses = 3,
				     .vars = &v, .nvars = 1 };
	const u32 order[] = { 0, 1, 2 };
	struct replay_result res;

	ck_assert_msg(!replay_run(&r, order, 3, &o, &res, text, sizeof(text)), "%s", text);
	ck_assert_uint_eq(res.ops, 3);
	ck_assert_msg(!res.wrong, "%s", res.first);
	ops[2].ends = true;
	ck_assert_msg(!replay_run(&r, order, 3, &o, &res, text, sizeof(text)), "%s", text);
	ck_assert_uint_eq(res.ops, 3);
	ck_assert_msg(!res.wrong, "%s", res.first);
}
END_TEST

/* A var is deleted by the op that ended it, if that op did nothing else; all others are pushed. */
START_TEST(test_which_ops_end_their_var)
{
	static const struct { bool ends; u32 n, writes; bool later; u32 calls; } list[] = {
		{ false, 1, 1, false, 1 }, { true, 1, 1, false, 0 }, { true, 1, 0, false, 1 },
		{ true, 2, 2, false, 1 }, { true, 2, 1, false, 1 }, { true, 1, 1, true, 2 },
	};
	struct replay_options o = { .workers = 0 };
	const u32 order[] = { 0, 1 };
	struct replay_result res;
	u32 i;

	for (i = 0; i < COUNT(list); i++) {
		/* the last access is a write, so that the last var could be deleted */
		struct rec_access a[] = { { .var = list[i].n - 1,
					    .write = list[i].writes == list[i].n },
					  { .write = list[i].writes },
					  { .var = list[i].n - 1 } };
		struct rec_op ops[] = {
			{ .name = "", .parent = REC_NONE, .naccesses = list[i].n,
			  .ends = list[i].ends,
			  .prop = PAWL_DELETE_VAR },
			{ .name = "", .parent = REC_NONE, .access = 2, .naccesses = 1 },
		};
		struct rec_var v[2] = { { .gen = 1 }, { .index = 1, .gen = 1 } };
		const struct recording r = { .ops = ops, .nops = 2, .accesses = a, .naccesses = 3,
					     .vars = v, .nvars = 2 };

		calls = 0;
		ck_assert_msg(
			!replay_run(&r, order, 1 + list[i].later, &o, &res, text, sizeof(text)),
			"%u: %s", i, text);
		ck_assert_msg(calls == list[i].calls, "%u: %u", i, calls);
		ck_assert_uint_eq(res.ops, 1 + list[i].later);
		ck_assert_msg(!res.wrong, "%u: %s", i, res.first);
	}
}
END_TEST

/* What an op is pushed with, and what is taken of it that this engine does not have. */
START_TEST(test_an_op_is_pushed_as_it_was_recorded)
{
	struct replay_options o = { .workers = 0 };
	struct rec_access a[] = { { .var = 0 }, { .var = 1, .write = true }, { .var = 2 },
				  { .var = 3, .write = true }, { .var = 4 } };
	struct rec_op ops[] = {
		{ .name = "one", .parent = REC_NONE, .naccesses = 5, .priority = -9,
		  .prop = PAWL_COPY_TO_DEVICE, .device = 1 },
		{ .name = "two", .parent = REC_NONE, .async = true, .prop = PAWL_NO_SKIP,
		  .priority = INT32_MAX, .device_kind = PAWL_CUDA, .device = 1 },
		{ .name = "", .parent = REC_NONE, .prop = PAWL_NO_SKIP + 1, .priority = INT32_MIN },
	};
	struct rec_var v[5] = { { .gen = 1 } };
	const struct recording r = { .ops = ops, .nops = 3, .accesses = a, .naccesses = 5,
				     .vars = v, .nvars = 5 };
	const u32 order[] = { 0, 1, 2 };
	struct replay_result res;

	calls = 0;
	ck_assert_msg(!replay_run(&r, order, 3, &o, &res, text, sizeof(text)), "%s", text);
	ck_assert(calls == 3 && res.ops == 3 && res.accesses == 5 && !res.edges && !res.wrong);
	ck_assert(pushed[0].nreads == 3 && pushed[0].nwrites == 2 && pushed[0].fn);
	ck_assert(pushed[0].priority == -9 && pushed[0].prop == PAWL_COPY_TO_DEVICE);
	ck_assert(pushed[0].device.kind == PAWL_CPU && pushed[0].device.id == 1);
	ck_assert_str_eq(pushed[0].name, "one");
	ck_assert(!pushed[0].async_fn && !pushed[1].fn && pushed[1].async_fn);
	ck_assert(pushed[1].priority == INT32_MAX && pushed[1].prop == PAWL_NO_SKIP);
	ck_assert(pushed[1].device.kind == PAWL_CPU && pushed[1].device.id == 0);
	ck_assert(!pushed[1].nreads && !pushed[1].nwrites);
	ck_assert_str_eq(pushed[1].name, "two");
	ck_assert(pushed[2].priority == INT32_MIN && pushed[2].prop == PAWL_NORMAL);
}
END_TEST

/* The engine has room for those of the recording, also if there are more than by default. */
START_TEST(test_a_replay_has_as_many_vars_as_the_recording)
{
	enum { VARS = 40000 };
	struct replay_options o = { .workers = 0 };
	struct rec_access *a = calloc(VARS, sizeof(*a));
	struct rec_op *ops = calloc(VARS, sizeof(*ops));
	struct rec_var *v = calloc(VARS, sizeof(*v));
	u32 *order = calloc(VARS, sizeof(*order)), i;
	struct recording r = { .ops = ops, .accesses = a, .vars = v };
	static const u32 sizes[] = { 1, 1023, 1024, 1025, VARS };
	char want[128];
	struct replay_result res;

	MUST(a && ops && v && order);
	for (i = 0; i < VARS; i++) {
		a[i] = (struct rec_access){ .var = i, .write = true };
		ops[i] = (struct rec_op){
			.name = "", .parent = REC_NONE, .access = i, .naccesses = 1
		};
		order[i] = i;
	}
	for (i = 0; i < COUNT(sizes); i++) {
		r.nops = r.naccesses = r.nvars = sizes[i];
		ck_assert_msg(!replay_run(&r, order, sizes[i], &o, &res, text, sizeof(text)),
			      "%u: %s", sizes[i], text);
		ck_assert(res.ops == sizes[i] && res.accesses == sizes[i] && !res.wrong);
		/* it has no more vars than that, but at least 1024 */
		snprintf(want, sizeof(want), "op 0: var_create: %u vars exist (config.max_vars)",
			 sizes[i] < 1024 ? 1024 : sizes[i]);
		engine_is = TAKEN;
		ck_assert_int_eq(replay_run(&r, order, sizes[i], &o, &res, text, sizeof(text)),
				 -ENOMEM);
		engine_is = SOUND;
		ck_assert_str_eq(text, want);
	}
	free(a);
	free(ops);
	free(v);
	free(order);
}
END_TEST

/* The ops that must be over are told op by op, in any order of the edges. */
START_TEST(test_a_replay_checks_the_edges_of_each_op)
{
	struct replay_options o = { .workers = 0 };
	struct rec_edge edges[] = { { 1, 3 }, { 1, 2 }, { 2, 3 }, { 0, 2 }, { 0, 1 } };
	struct rec_op ops[4];
	struct recording r = { .ops = ops, .nops = 4, .edges = edges, .nedges = COUNT(edges) };
	static const struct { u32 order[4], wrong; const char *first; } list[] = {
		{ { 0, 1, 2, 3 }, 0, "" },
		{ { 0, 2, 1, 3 }, 1, "op 2 (\"c\"): op 1 is not over" },
		{ { 1, 0, 2, 3 }, 1, "op 1 (\"b\"): op 0 is not over" },
		{ { 0, 1, 3, 2 }, 1, "op 3 (\"d\"): op 2 is not over" },
		{ { 3, 2, 1, 0 }, 5, "op 3 (\"d\"): op 1 is not over" },
	};
	static const char *const names[] = { "a", "b", "c", "d" };
	struct replay_result res;
	u32 i;

	for (i = 0; i < 4; i++)
		ops[i] = (struct rec_op){ .name = names[i], .parent = REC_NONE };
	for (i = 0; i < COUNT(list); i++) {
		ck_assert_msg(!replay_run(&r, list[i].order, 4, &o, &res, text, sizeof(text)),
			      "%s", text);
		ck_assert(res.ops == 4 && res.edges == 5);
		ck_assert_uint_eq(res.wrong, list[i].wrong);
		ck_assert_str_eq(res.first, list[i].first);
	}
}
END_TEST

START_TEST(test_an_op_or_an_engine_that_is_refused_ends_the_replay)
{
	struct replay_options o = { .workers = 0 };
	struct replay_result res;

	ck_assert_int_eq(replay(FULL, true, o, 0, &res), -ENOBUFS);
	ck_assert_msg(strstr(text, "op 1 (\"two\"): ") == text, "%s", text);
	ck_assert_uint_eq(res.ops, 1);
	ck_assert_uint_eq(res.wrong, 0);
	/* So does one that fails, which the wait for all of them says. */
	ck_assert_int_eq(replay(BROKEN, true, o, 0, &res), -EIO);
	ck_assert_msg(strstr(text, "two") != NULL, "%s", text);
	ck_assert_uint_eq(res.ops, 1);
	ck_assert_uint_eq(res.wrong, 0);
	o.kind = 99;
	ck_assert_int_eq(replay(SOUND, true, o, 0, &res), -EINVAL);
	ck_assert_msg(strstr(text, "kind") != NULL, "%s", text);
	ck_assert_uint_eq(res.ops, 0);
}
END_TEST

/* Replay three ops without edges on such an engine.  The second op has a long name. */
static int replay_three(int how, struct rec_access a[4], struct replay_result *res)
{
	static char name[61];
	struct replay_options o = { .workers = 0 };
	struct rec_op ops[] = {
		{ .name = "a", .parent = REC_NONE, .naccesses = 1 },
		{ .name = name, .parent = REC_NONE, .access = 1, .naccesses = 2 },
		{ .name = "c", .parent = REC_NONE, .access = 3, .naccesses = 1 },
	};
	struct rec_var v[4] = { { .gen = 1 } };
	const struct recording r = { .ops = ops, .nops = 3, .accesses = a, .naccesses = 4,
				     .vars = v, .nvars = 4 };
	const u32 order[] = { 0, 1, 2 };
	int rc;

	memset(name, 'b', sizeof(name) - 1);
	calls = creates = 0;
	engine_is = how;
	rc = replay_run(&r, order, 3, &o, res, text, sizeof(text));
	engine_is = SOUND;
	return rc;
}

#define TEN(c)		#c #c #c #c #c #c #c #c #c #c
#define FORTY(c)	TEN(c) TEN(c) TEN(c) TEN(c)

/* The ops after it are not pushed, and the message has the engine's reason. */
START_TEST(test_the_first_op_that_is_refused_ends_the_replay)
{
	struct rec_access a[] = { { .var = 0 }, { .var = 1 }, { .var = 2, .write = true },
				  { .var = 3 } };
	struct replay_result res;

	ck_assert_int_eq(replay_three(FULL, a, &res), -ENOBUFS);
	ck_assert_uint_eq(calls, 2);
	ck_assert(res.ops == 1 && res.accesses == 1 && !res.wrong);
	ck_assert_msg(strstr(text, "op 1 (\"" FORTY(b) "\"): ") == text, "%s", text);
	/* if both an op and the wait for all fail, the message is that of the op */
	ck_assert_int_eq(replay_three(WORSE, a, &res), -ENOBUFS);
	ck_assert_uint_eq(calls, 2);
	ck_assert(!res.ops && !res.wrong);
	ck_assert_msg(strstr(text, "op 1 (\"") == text, "%s", text);
	ck_assert_int_eq(replay_three(SOUND, a, &res), 0);
	ck_assert(res.ops == 3 && res.accesses == 4 && !res.wrong);
}
END_TEST

/* The op of the var is not pushed, and no more vars are created. */
START_TEST(test_a_var_that_is_refused_ends_the_replay)
{
	struct rec_access a[] = { { .var = 0 }, { .var = 1 }, { .var = 2, .write = true },
				  { .var = 3 } };
	struct replay_result res;

	no_var = 2;
	ck_assert_int_eq(replay_three(NO_VARS, a, &res), -EINVAL);
	ck_assert(calls == 1 && creates == 3 && res.ops == 1 && !res.wrong);
	ck_assert_str_eq(text, "op 1: var_create: out is NULL");
	/* so does the first var of an op */
	no_var = 1;
	ck_assert_int_eq(replay_three(NO_VARS, a, &res), -EINVAL);
	ck_assert(calls == 1 && creates == 2 && res.ops == 1 && !res.wrong);
	no_var = 2;
	a[2].var = 0;
	ck_assert_int_eq(replay_three(NO_VARS, a, &res), -EINVAL);
	ck_assert(calls == 2 && creates == 3 && res.ops == 2 && !res.wrong);
	ck_assert_str_eq(text, "op 2: var_create: out is NULL");
}
END_TEST

/* Each var of the recording is one var of the engine, from its first access to its last. */
START_TEST(test_ops_that_have_a_var_in_common_have_it_in_the_replay)
{
	struct replay_options o = { .workers = 0 };
	struct rec_access a[] = { { .var = 0 }, { .var = 1, .write = true }, { .var = 2 },
				  { .var = 3, .write = true }, { .var = 4 }, { .var = 0 },
				  { .var = 1 }, { .var = 2 }, { .var = 3 }, { .var = 4 } };
	struct rec_op ops[6];
	struct rec_var v[5] = { { .gen = 1 } };
	const struct recording r = { .ops = ops, .nops = 6, .accesses = a, .naccesses = 10,
				     .vars = v, .nvars = 5 };
	const u32 order[] = { 0, 1, 2, 3, 4, 5 };
	struct replay_result res;
	u32 i, k;

	for (i = 0; i < 6; i++)
		ops[i] = (struct rec_op){ .name = "", .parent = REC_NONE,
					  .access = i ? 4 + i : 0, .naccesses = i ? 1 : 5 };
	calls = 0;
	ck_assert_msg(!replay_run(&r, order, 6, &o, &res, text, sizeof(text)), "%s", text);
	ck_assert(calls == 6 && res.ops == 6 && res.accesses == 10 && !res.wrong);
	for (i = 0; i < 5; i++) {
		for (k = 0; k < 5 && memcmp(&vars[0][k], &vars[i + 1][0], sizeof(pawl_var_t)); k++)
			;
		/* an op's reads come before its writes */
		ck_assert_msg(i % 2 ? k == 3 || k == 4 : k < 3, "%u: %u", i, k);
		memset(&vars[0][k], 0, sizeof(pawl_var_t));
	}
}
END_TEST

/* An op has ended when its body has taken its time, not before. */
START_TEST(test_an_op_inside_another_one_that_must_be_over)
{
	struct replay_options o = { .speed = 1, .sleep = true };
	struct rec_edge edge = { 0, 1 };
	struct rec_op ops[] = { { .name = "", .parent = REC_NONE, .begun = true, .ended = true },
				{ .name = "", .parent = REC_NONE, .begun = true, .ended = true } };
	const struct recording r = { .ops = ops, .nops = 2, .edges = &edge, .nedges = 1 };
	const u32 order[] = { 0, 1 };
	struct replay_result res;

	engine_is = BESIDE;
	pushes = 0;
	OK(replay_run(&r, order, 2, &o, &res, text, sizeof(text)));
	engine_is = SOUND;
	ck_assert(res.ops == 2 && res.edges == 1 && res.wrong == 1);
	ck_assert_str_eq(res.first, "op 1 (\"\"): op 0 is not over");
}
END_TEST

/* The number of an op differs from its position in the order. */
START_TEST(test_the_op_that_ends_a_var_by_its_number)
{
	struct replay_options o = { .workers = 0 };
	struct rec_access a[] = { { .write = true }, { .write = true } };
	struct rec_op ops[] = {
		{ .name = "", .parent = REC_NONE, .naccesses = 1, .ends = true },
		{ .name = "", .parent = REC_NONE, .access = 1, .naccesses = 1 },
	};
	struct rec_var v = { .gen = 1 };
	const struct recording r = { .ops = ops, .nops = 2, .accesses = a, .naccesses = 2,
				     .vars = &v, .nvars = 1 };
	const u32 order[] = { 1, 0 };
	struct replay_result res;

	calls = 0;
	OK(replay_run(&r, order, 2, &o, &res, text, sizeof(text)));
	ck_assert(calls == 1 && res.ops == 2 && !res.wrong);
}
END_TEST

/* The names of ops in messages have at most 40 bytes. */
START_TEST(test_a_wrong_op_with_a_long_name)
{
	struct replay_options o = { .workers = 0 };
	struct rec_edge edge = { 0, 1 };
	struct rec_op ops[] = { { .name = "", .parent = REC_NONE },
				{ .name = FORTY(n), .parent = REC_NONE } };
	const struct recording r = { .ops = ops, .nops = 2, .edges = &edge, .nedges = 1 };
	const u32 order[] = { 1, 0 };
	struct replay_result res;
	u32 i;

	for (i = 0; i < 2; i++) {
		OK(replay_run(&r, order, 2, &o, &res, text, sizeof(text)));
		ck_assert_uint_eq(res.wrong, 1);
		ck_assert_str_eq(res.first, "op 1 (\"" FORTY(n) "\"): op 0 is not over");
		ops[1].name = FORTY(n) "n";
	}
}
END_TEST

/* A workload of one task of 2 s. */
static void write_task(const char *path)
{
	FILE *f = fopen(path, "w");

	MUST(f);
	fputs("{\"workflow\": {\"specification\": {\"tasks\": [{\"id\": \"a\"}]}, \"execution\": "
	      "{\"tasks\": [{\"id\": \"a\", \"runtimeInSeconds\": 2}]}}}", f);
	MUST(!fclose(f));
}

/* pawl replay with these options of a workload of one task of 2 s, with what it prints. */
static int replayed(char *one, char *two, char *path, char **says)
{
	char self[] = "pawl replay", *argv[] = { self, one, two, path, NULL };
	FILE *was = stdout;
	size_t n;
	int rc;

	sleeps = 0;
	engine_is = SLEEPLESS;
	stdout = open_memstream(says, &n);
	MUST(stdout);
	/* an earlier call left this error */
	errno = ERANGE;
	rc = cmd_replay(4, argv);
	MUST(!fclose(stdout));
	stdout = was;
	engine_is = SOUND;
	return rc;
}

/* The time, in ms, is at least that of the bodies, and at most that of the command. */
START_TEST(test_the_command_prints_the_time_of_a_replay)
{
	static char speed[] = "-s400", workers[] = "-w0";
	char *path = temp_path(), *says, *at;
	struct timespec from, to;
	double ms, most;

	write_task(path);
	clock_gettime(CLOCK_MONOTONIC, &from);
	ck_assert_int_eq(replayed(speed, workers, path, &says), STATUS_OK);
	clock_gettime(CLOCK_MONOTONIC, &to);
	most = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
	at = strstr(says, " in ");
	ck_assert_msg(at && sscanf(at, " in %lf ms: order kept", &ms) == 1, "%s", says);
	ck_assert_msg(ms >= 4.999 && ms <= most + 0.001, "%s, in %f", says, most);
	free(says);
	unlink(path);
}
END_TEST

START_TEST(test_options_of_the_command)
{
	static char fast[] = "--speed=1000000", slow[] = "-s4", sleep[] = "--sleep", once[] = "-r1",
		    thrice[] = "--repeat=3";
	static const struct { char *one, *two; u32 lines, sleeps; u64 ns; } of[] = {
		{ fast, once, 1, 0, 0 }, { slow, sleep, 1, 1, 500000000 },
		{ sleep, once, 1, 0, 0 }, { thrice, fast, 3, 0, 0 },
		{ sleep, slow, 1, 1, 500000000 },
	};
	char *path = temp_path(), *says, *at;
	u32 i, lines;

	write_task(path);
	for (i = 0; i < COUNT(of); i++) {
		slept = (struct timespec){ 0 };
		ck_assert_int_eq(replayed(of[i].one, of[i].two, path, &says), STATUS_OK);
		for (lines = 0, at = says; (at = strchr(at, '\n')); at++)
			lines++;
		ck_assert_uint_eq(lines, of[i].lines);
		ck_assert_uint_eq(sleeps, of[i].sleeps);
		ck_assert_uint_eq((u64)slept.tv_sec * 1000000000 + (u64)slept.tv_nsec, of[i].ns);
		ck_assert_msg(strstr(says, "wfformat: 1 ops, 0 vars, 0 accesses in ") == says, "%s",
			      says);
		free(says);
	}
	unlink(path);
}
END_TEST

SUITE("replay", test_an_op_inside_another_one_that_must_be_over,
      test_a_busy_body_ends_by_the_clock, test_the_op_that_ends_a_var_by_its_number,
      test_the_first_op_that_is_refused_ends_the_replay,
      test_a_var_that_is_refused_ends_the_replay,
      test_ops_that_have_a_var_in_common_have_it_in_the_replay,
      test_a_wrong_op_with_a_long_name, test_the_command_prints_the_time_of_a_replay,
      test_which_ops_end_their_var, test_an_op_is_pushed_as_it_was_recorded,
      test_a_replay_has_as_many_vars_as_the_recording, test_a_replay_checks_the_edges_of_each_op,
      test_options_of_the_command,
      test_replay_sees_a_version_that_is_too_old_and_one_that_is_too_new,
      test_replay_sees_who_is_beside_a_writer, test_replay_sees_ops_that_run_twice_or_never,
      test_bodies_take_their_time_divided_by_the_speed,
      test_a_replay_of_ops_that_cannot_be_pushed_as_they_were,
      test_an_op_or_an_engine_that_is_refused_ends_the_replay)
