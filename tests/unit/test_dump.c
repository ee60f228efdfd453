// SPDX-License-Identifier: Apache-2.0
/*
 * core/dump.c: pawl_dump() prints what is in flight, also while ops are stuck and under load.
 */
#include "util.h"
#include "child.h"
#include <core/engine.h>
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
	snprintf(name, sizeof(name), "var %u.", (u32)x.h);
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

/* No var has memory behind it. */
START_TEST(test_the_last_var_is_listed)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	char name[32];
	pawl_var_t v;

	do
		v = var_new(e);
	while ((u32)v.h < pool_carved(e->pool[POOL_VAR]));
	OK(push_write(e, nothing, NULL, v));
	snprintf(name, sizeof(name), "var %u.", (u32)v.h);
	has(dump(e), name);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* What the header lists: asynchronous ops that are not completed, and waiting threads. */
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
	ck_assert(soon(strstr(dump(e), "waits until at most 0 ops are in flight\n")));
	gate_open(&g);
	join(t);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_bad_fd)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	int fd = open("/dev/null", O_RDONLY);

	/* No text: it may be called in a signal handler, whose thread is about to read one. */
	FAILS(pawl_engine_create(NULL, NULL), -EINVAL, "out");
	errno = ENOTTY;
	FAILS(pawl_dump(e, -1), -EBADF, "out");
	FAILS(pawl_dump(e, fd), -EBADF, "out");
	ck_assert_int_eq(errno, ENOTTY);
	close(fd);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* While everything changes: it returns, and prints something each time. */
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

/* --- signal handlers --- */

static struct pawl_engine *handler_engine;
static int handler_fd;
static u32 handled, handler_failed;	/* A */

static void dump_handler(int sig)
{
	if (pawl_dump(handler_engine, handler_fd))
		store_relaxed(&handler_failed, 1);
	fetch_add_relaxed(&handled, 1);
}

static void handler_set(int sig, void (*fn)(int))
{
	struct sigaction sa = { .sa_handler = fn, .sa_flags = SA_RESTART };

	sigemptyset(&sa.sa_mask);
	MUST(!sigaction(sig, &sa, NULL));
}

/* The handler interrupts threads inside pushes, deletes, waits and bodies. */
#define HANDLER_PUSHERS 3

START_TEST(test_in_a_signal_handler)
{
	struct busy b = { .e = engine(PAWL_PER_DEVICE, 1) };
	pthread_t t[HANDLER_PUSHERS];
	u32 i, sent = 0;

	for (i = 0; i < 6; i++)
		b.v[i] = var_new(b.e);
	handler_engine = b.e;
	handler_fd = open("/dev/null", O_WRONLY);
	store_relaxed(&handled, 0);
	handler_set(SIGUSR1, dump_handler);
	for (i = 0; i < HANDLER_PUSHERS; i++)
		t[i] = spawn(busy_pusher, &b);
	for (; sent < TIMES(3000); sent++) {
		ck_assert(!pthread_kill(t[sent % HANDLER_PUSHERS], SIGUSR1));
		/* Signals that are not handled yet become one. */
		if (sent % 4 == 3)
			nap_us(100);
	}
	store_release(&b.stop, 1);
	for (i = 0; i < HANDLER_PUSHERS; i++)
		join(t[i]);
	ck_assert_uint_ge(load_relaxed(&handled), 1);
	ck_assert_uint_eq(load_relaxed(&handler_failed), 0);
	handler_set(SIGUSR1, SIG_DFL);
	pawl_wait_all(b.e, SOON_NS, NULL);
	close(handler_fd);
	OK(pawl_engine_destroy(b.e));
}
END_TEST

static void crash_handler(int sig)
{
	_exit(pawl_dump(handler_engine, handler_fd) ? 1 : 42);
}

static int crash(struct pawl_run *run, void *page)
{
	return *(volatile char *)page;
}

/* A body touches a page that may not be read; the handler's last act is the dump. */
START_TEST(test_in_a_crash)
{
	void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pawl_config c = small(PAWL_PER_DEVICE, SANITIZED ? 0 : 1);
	static char text[1 << 16];
	size_t n = 0;
	int fd[2], status;
	ssize_t got;
	pid_t pid;

	MUST(page != MAP_FAILED && !pipe(fd));
	pid = child_fork();
	if (!pid) {
		struct pawl_engine *e;
		struct pawl_op op = PAWL_OP_INIT;
		pawl_var_t v;

		MUST(!pawl_engine_create(&c, &e) && !pawl_var_create(e, &v));
		handler_engine = e;
		handler_fd = fd[1];
		handler_set(SIGSEGV, crash_handler);
		op.fn = crash;
		op.arg = page;
		op.writes = &v;
		op.nwrites = 1;
		op.name = "the-crash";
		MUST(!pawl_push(e, &op));
		pawl_wait_all(e, SOON_NS, NULL);
		_exit(3);
	}
	close(fd[1]);
	while ((got = read(fd[0], text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	close(fd[0]);
	MUST(waitpid(pid, &status, 0) == pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 42, "status %#x", status);
	has(text, "1 ops in flight");
	has(text, "runs op");
	has(text, "the-crash");
	has(text, "write pending");
	munmap(page, 4096);
}
END_TEST

/* A name that is longer than a line is cut, and the dump continues. */
START_TEST(test_long_name)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	static char name[1000];
	struct pawl_op op;
	struct gate g;

	memset(name, 'n', sizeof(name) - 1);
	gate_write(e, &g, v);
	op = op_read(nothing, NULL, &v);
	op.name = name;
	OK(pawl_push(e, &op));
	has(dump(e), "nnnnnnnn\n");
	has(dump(e), "vars idle\n");
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("dump", test_idle, test_stuck, test_the_last_var_is_listed, test_lists_ops,
      test_waiter_is_named, test_bad_fd, test_while_it_moves, test_in_a_signal_handler,
      test_in_a_crash, test_long_name)
