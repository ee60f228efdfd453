// SPDX-License-Identifier: Apache-2.0
/*
 * core/dump.c: pawl_dump() prints what is in flight, also while ops are stuck and under load.
 */
#include "util.h"
#include <fcntl.h>

static char *dump(struct pawl_engine *e)
{
	static char text[1 << 16];
	FILE *f = tmpfile();
	size_t n;

	ck_assert_ptr_nonnull(f);
	OK(pawl_dump(e, fileno(f)));
	rewind(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	fclose(f);
	return text;
}

static void has(const char *text, const char *what)
{
	ck_assert_msg(strstr(text, what), "no \"%s\" in:\n%s", what, text);
}

START_TEST(test_idle)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	int i;

	for (i = 0; i < 7; i++)
		OK(push_write(e, nothing, NULL, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	has(dump(e), "0 ops in flight");
	has(dump(e), "7 vars idle");
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_stuck)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e), x = var_new(e);
	struct pawl_op op;
	struct gate g, h;
	char name[32];
	char *text;

	gate_write(e, &g, v);
	gate_read(e, &h, w);
	op = op_read(nothing, NULL, &v);
	op.name = "the-reader";
	OK(pawl_push(e, &op));
	OK(push_write(e, nothing, NULL, w));
	OK(push_write(e, fail_io, NULL, x));
	while (pawl_run_one(e))
		;
	text = dump(e);
	has(text, "4 ops in flight");
	snprintf(name, sizeof(name), "var %u.", (u32)v.h);
	has(text, name);
	snprintf(name, sizeof(name), "var %u.", (u32)w.h);
	has(text, name);
	has(text, "write pending");
	has(text, "the-reader");
	has(text, "poisoned");
	has(text, "0 vars idle");
	OK(pawl_var_delete(e, v, NULL, NULL));
	has(dump(e), "deleted");
	gate_open(&g);
	gate_open(&h);
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	has(dump(e), "0 ops in flight");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* What the header lists: asynchronous ops that are not completed, and who waits. */
START_TEST(test_lists_ops)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op op;
	struct gate g;
	char *text;

	gate_write(e, &g, v);
	while (!g.running)
		ck_assert_int_eq(pawl_run_one(e), 1);
	op = op_read(nothing, NULL, &v);
	op.name = "reader-waits";
	OK(pawl_push(e, &op));
	text = dump(e);
	has(text, "to be completed");
	has(text, "reader-waits");
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	text = dump(e);
	ck_assert_ptr_null(strstr(text, "reader-waits"));
	ck_assert_ptr_null(strstr(text, "to be completed"));
	OK(pawl_engine_destroy(e));
}
END_TEST

static void *all_waiter(void *arg)
{
	MUST(!pawl_wait_all(arg, SOON_NS, NULL));
	return NULL;
}

START_TEST(test_waiter_is_named)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct gate g;
	pthread_t t;

	gate_write(e, &g, var_new(e));
	t = spawn(all_waiter, e);
	ck_assert(soon(strstr(dump(e), "waits until")));
	gate_open(&g);
	join(t);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_bad_fd)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	int fd = open("/dev/null", O_RDONLY);

	FAILS(pawl_dump(e, -1), -EBADF, "dump");
	FAILS(pawl_dump(e, fd), -EBADF, "dump");
	close(fd);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* While everything moves: it ends, and says something each time. */
struct busy {
	struct pawl_engine *e;
	pawl_var_t v[6];
	u32 stop;	/* A */
};

static void *busy_pusher(void *arg)
{
	struct busy *b = arg;
	u64 seed = 3;

	while (!load_acquire(&b->stop)) {
		pawl_var_t two[2] = { b->v[rnd(&seed) % 6], b->v[rnd(&seed) % 6] };
		pawl_var_t own = var_new(b->e);
		struct pawl_op op = op_of_fn(rnd(&seed) % 9 ? nothing : fail_io, NULL);

		op.writes = two;
		op.nwrites = 2;
		op.reads = &own;
		op.nreads = 1;
		op.name = "busy";
		MUST(!pawl_push(b->e, &op));
		MUST(!pawl_var_delete(b->e, own, NULL, NULL));
		if (rnd(&seed) % 50 == 0)
			pawl_wait_all(b->e, SOON_NS, NULL);
	}
	return NULL;
}

START_TEST(test_while_it_moves)
{
	struct busy b = { .e = engine(PAWL_PER_DEVICE, 1) };
	int i, fd = open("/dev/null", O_WRONLY);
	pthread_t t;

	for (i = 0; i < 6; i++)
		b.v[i] = var_new(b.e);
	t = spawn(busy_pusher, &b);
	for (i = 0; i < TIMES(300); i++)
		OK(pawl_dump(b.e, fd));
	store_release(&b.stop, 1);
	join(t);
	pawl_wait_all(b.e, SOON_NS, NULL);
	close(fd);
	OK(pawl_engine_destroy(b.e));
}
END_TEST

SUITE("dump", test_idle, test_stuck, test_lists_ops, test_waiter_is_named, test_bad_fd, test_while_it_moves)
