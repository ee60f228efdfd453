// SPDX-License-Identifier: Apache-2.0
/* core/readmostly.c: vars that many threads read and few write. */
#include "util.h"
#include "cells.h"
#include "trap.h"
#include <core/readmostly.h>

static struct var *word_of(struct pawl_engine *e, pawl_var_t v)
{
	return var_of(e, var_index(v));
}

static bool in_mode(struct pawl_engine *e, pawl_var_t v)
{
	return tag_is_rm(word_snapshot(word_of(e, v)).tag);
}

static struct pawl_op read_and_write(pawl_fn fn, void *arg, const pawl_var_t *r,
				     const pawl_var_t *w)
{
	struct pawl_op op = op_write(fn, arg, w);

	op.reads = r;
	op.nreads = 1;
	return op;
}

struct reader {
	struct pawl_engine *e;
	pawl_var_t shared;
	u32 n;
	u64 ran;
};

/* Each reads the shared var and writes its own. */
static void *reader(void *arg)
{
	struct reader *r = arg;
	pawl_var_t own = var_new(r->e);
	u32 i;

	for (i = 0; i < r->n; i++) {
		struct pawl_op op = read_and_write(add_plain, &r->ran, &r->shared, &own);

		OK(pawl_push(r->e, &op));
		pawl_run_one(r->e);
	}
	return NULL;
}

/* Another thread's reads, one after the other: then v is in the mode. */
static void make_read_mostly(struct pawl_engine *e, pawl_var_t v)
{
	struct reader r = { .e = e, .shared = v, .n = 2 * RM_READS };

	join(spawn(reader, &r));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	reader(&r);
	OK(pawl_wait_all(e, SOON_NS, NULL));
}

START_TEST(test_many_readers_change_no_shared_line)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct reader r = { .e = e, .shared = v, .n = 500 }, other = r;
	struct pair before, after;
	u64 state;

	make_read_mostly(e, v);
	ck_assert(in_mode(e, v));
	before = word_snapshot(word_of(e, v));
	state = load_relaxed(&block_of(e, word_cur(before.val))->state);
	join(spawn(reader, &other));
	reader(&r);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	after = word_snapshot(word_of(e, v));
	ck_assert_uint_eq(before.tag, after.tag);
	ck_assert_uint_eq(before.val, after.val);
	ck_assert_uint_eq(state, load_relaxed(&block_of(e, word_cur(before.val))->state));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_reads_of_one_var_convert_it)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u64 ran = 0;
	u32 i;

	make_read_mostly(e, v);
	ck_assert(in_mode(e, v));
	for (i = 0; i < 100; i++)
		OK(push_read(e, add_plain, &ran, v));
	ck_assert(in_mode(e, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 100);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Whichever rm counts them, the first and the last, too: a write waits for each of its readers. */
START_TEST(test_readers_of_each_place_are_waited_for)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t own = var_new(e), two[2], v = own;
	u32 place, i, n = 0;

	for (place = RM_MAX - 1; place <= RM_MAX; place++) {
		struct pawl_op ops[2];
		pawl_token_t token[4];

		while (var_index(v) % RM_MAX != place % RM_MAX)
			v = var_new(e);
		make_read_mostly(e, v);
		ck_assert(in_mode(e, v));
		ck_assert_uint_eq(rm_tag_index(word_snapshot(word_of(e, v)).tag), place % RM_MAX);
		two[0] = own;
		two[1] = v;
		for (i = 0; i < 4; i++) {
			struct pawl_op *op = &ops[i & 1];

			/* Alone, beside another var, and two in a batch. */
			*op = op_read(NULL, &token[i], i == 1 ? two : &v);
			op->nreads = 1 + (i == 1);
			op->async_fn = keep_token;
			op->prop = PAWL_ASYNC;
			if (i != 2)
				OK(i < 2 ? pawl_push(e, op) : pawl_push_batch(e, ops, 2));
		}
		ck_assert(in_mode(e, v));
		OK(push_write(e, add_one, &n, v));
		for (i = 0; i < 4; i++) {
			ck_assert_int_eq(pawl_run_one(e), 0);
			OK(pawl_complete(e, token[i], 0, NULL));
		}
		ck_assert_int_eq(pawl_run_one(e), 1);
	}
	ck_assert_uint_eq(n, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_one_thread_stays_as_usual)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct reader r = { .e = e, .shared = v, .n = 10 * RM_READS };

	reader(&r);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert(!in_mode(e, v));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_write_waits_for_readers_in_flight)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	pawl_var_t v = var_new(e);
	struct gate g = { 0 };
	u64 ran = 0;

	make_read_mostly(e, v);
	ck_assert(in_mode(e, v));
	gate_read(e, &g, v);
	ck_assert(in_mode(e, v));
	ck_assert_int_eq(pawl_wait_writable(e, v, 0, NULL), -ETIMEDOUT);
	ck_assert_int_eq(pawl_wait_readable(e, v, 0, NULL), 0);
	OK(push_write(e, add_plain, &ran, v));
	ck_assert(!in_mode(e, v));
	ck_assert_int_eq(pawl_wait_readable(e, v, 1000000, NULL), -ETIMEDOUT);
	ck_assert_uint_eq(load_relaxed(&ran), 0);
	gate_open(&g);
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	ck_assert_uint_eq(ran, 1);
	ck_assert_uint_eq(version(e, v), 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_at_rest_it_is_writable)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);

	make_read_mostly(e, v);
	ck_assert(in_mode(e, v));
	OK(pawl_wait_writable(e, v, 0, NULL));
	ck_assert(in_mode(e, v));
	OK(pawl_var_delete(e, v, NULL, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* More vars than there are rms: the others stay as they were. */
START_TEST(test_more_vars_than_rms)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	u32 i, n = 0, total = RM_MAX + 100;
	pawl_var_t *v = calloc(total, sizeof(*v));
	u64 ran = 0;

	e->rm_reads = 0;
	for (i = 0; i < total; i++) {
		v[i] = var_new(e);
		make_read_mostly(e, v[i]);
		n += in_mode(e, v[i]);
	}
	ck_assert_uint_le(n, RM_MAX);
	ck_assert_uint_ge(n, RM_MAX / 2);
	for (i = 0; i < total; i++)
		OK(push_write(e, add_plain, &ran, v[i]));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(ran, total);
	free(v);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Random pushes of all kinds on vars that enter the mode as soon as possible. */
START_TEST(test_readers_and_writers_at_any_moment)
{
	struct cells c = { .e = engine(PAWL_PER_DEVICE, 2), .rounds = (u32)TIMES(20000), .seed = 11 };

	c.e->rm_reads = 0;
	cells_run(&c);
	OK(pawl_engine_destroy(c.e));
}
END_TEST

#if CAN_TRAP
/* Another thread's read that begins and is taken back, because the mode is being closed. */
static struct rm_row *late;

static void in_and_out(void)
{
	store_relaxed(&late->in, late->in + 1);
	store_release(&late->out, late->out + 1);
}

/* Whenever other reads begin and end, the sum counts one that is in flight all the time. */
START_TEST(test_a_reader_in_flight_is_counted_at_any_moment)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate g;
	long k;
	u32 i, n;

	make_read_mostly(e, v);
	gate_read(e, &g, v);
	ck_assert(in_mode(e, v));
	i = rm_tag_index(word_snapshot(word_of(e, v)).tag);
	ck_assert_uint_eq(rm_reading(e, i), 1);
	ck_assert_uint_ge(slots_used(e), 2);
	trap_init(in_and_out);
	for (k = 0; k == 0 || trap.stops; k++) {
		/* in the first row, and in the last one */
		late = rm_row(thread_of(e, k & 1 ? slots_used(e) - 1 : 0), i);
		trap_after(k / 2, n = rm_reading(e, i));
		ck_assert_uint_ge(n, 1);
	}
	ck_assert_uint_eq(rm_reading(e, i), 1);
	gate_open(&g);
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST
#endif

/* Its readers are counted in a dump, and the ops behind one of them by the watchdog. */
START_TEST(test_a_dump_and_the_watchdog_know_the_mode)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_stalled seen = { 0 };
	pawl_var_t v = var_new(e);
	char text[4096], line[64];
	struct gate g[3];
	FILE *f = tmpfile();
	u32 i;

	MUST(f);
	make_read_mostly(e, v);
	ck_assert(in_mode(e, v));
	for (i = 0; i < 3; i++)
		gate_read(e, &g[i], v);
	ck_assert(in_mode(e, v));
	OK(pawl_dump(e, fileno(f)));
	rewind(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	fclose(f);
	snprintf(line, sizeof(line), "last pushed by many, rm %u, 3 holders of it\n",
		 rm_tag_index(word_snapshot(word_of(e, v)).tag));
	ck_assert_msg(strstr(text, line) != NULL, "no \"%s\" in:\n%s", line, text);
	for (i = 1; i < 3; i++) {
		gate_open(&g[i]);
		while (pawl_run_one(e))
			;
	}
	for (i = 0; i < 4; i++)
		OK(push_write(e, nothing, NULL, v));
	ck_assert_int_eq(pawl_watch(e, 0, NULL, NULL), 0);
	nap_us(1000);
	ck_assert_int_eq(pawl_watch(e, 0, stalled_keep, &seen), 1);
	ck_assert_int_eq(seen.what, PAWL_STALLED_ASYNC);
	ck_assert_uint_eq(seen.var.h, v.h);
	ck_assert_uint_eq(seen.behind, 4);
	gate_open(&g[0]);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("readmostly", test_many_readers_change_no_shared_line, test_reads_of_one_var_convert_it,
      test_readers_of_each_place_are_waited_for,
      test_one_thread_stays_as_usual, test_write_waits_for_readers_in_flight,
      test_at_rest_it_is_writable, test_more_vars_than_rms,
#if CAN_TRAP
      test_a_reader_in_flight_is_counted_at_any_moment,
#endif
      test_readers_and_writers_at_any_moment,
      test_a_dump_and_the_watchdog_know_the_mode)
